"""What spares time in accounts of sums, beside the slow way: the best blankets."""

from __future__ import annotations

import pytest

from mezzotint.families import pbm, rqm
from mezzotint.privacy.sums import cost, lattice_rows
from mezzotint.privacy.sums.blanket import as_probabilities, row_means
from mezzotint.privacy.sums.candidates import candidate_blankets
from tolerances import SOLVED

TABLES = {
    "PBM": lambda: lattice_rows(pbm(lower=-1, upper=1, trials=7, theta=0.3, knots=5))[0],
    "RQM": lambda: lattice_rows(rqm(lower=-1, upper=1, levels=8, extension=1.0, q=0.42))[0],
}


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("others", [300, 10**4, 10**6])
def test_the_few_best_blankets_are_those_of_scoring_all(name: str, others: int) -> None:
    rows = TABLES[name]()
    means = row_means(as_probabilities(rows))
    gap = float(means.max() - means.min())
    scores = sorted(cost._score(blanket, others, gap, 1e-6) for blanket in candidate_blankets(rows))
    few = [
        cost._score(blanket, others, gap, 1e-6) for blanket in cost.shortlist(rows, others, 1e-6)
    ]
    # Scores are found to a millionth.
    assert few == pytest.approx(scores[: len(few)], rel=SOLVED, abs=SOLVED)
