"""Figure 3 of the RQM paper against the reference values of independent sums."""

from __future__ import annotations

import pytest

from mezzotint.papers.rqm import DIVERGENCES, SIZES, figure3

REFERENCE = {
    # divergence -> (RQM, PBM) for 4, 16 and 64 levels; RQM's were found on a grid of q, hence within 1.2 %.
    1.0: ((2.528, 2.837), (2.573, 2.966), (2.581, 2.992)),
    2.0: ((1.015, 1.350), (1.068, 1.466), (1.071, 1.492)),
    5.0: ((0.332, 0.490), (0.224, 0.568), (0.227, 0.592)),
}


@pytest.mark.slow
def test_the_errors_are_those_of_the_reference_and_in_the_papers_order() -> None:
    result = figure3()
    rows = {(row["levels"], row["divergence"]): row for row in result.rows}
    assert set(rows) == {(levels, divergence) for levels in SIZES for divergence in DIVERGENCES}
    for divergence, pairs in REFERENCE.items():
        for levels, (rqm, pbm) in zip(SIZES, pairs, strict=True):
            row = rows[levels, divergence]
            assert rqm * (1 - 0.012) < row["RQM"] < rqm + 6e-4
            assert row["PBM"] == pytest.approx(pbm, abs=6e-4)
    assert all(row["RQM"] < row["PBM"] for row in result.rows)
    assert all(row["optimal"] < row["RQM"] for row in result.rows if row["levels"] == 4)
