"""Figures 3 and 10 of the RQM paper against the reference values of independent sums."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from mezzotint import families
from mezzotint.papers import rqm
from tolerances import GRAIN, printed

REFERENCE = {
    # divergence -> (RQM, PBM) for 4, 16 and 64 levels; RQM's were found on a grid of q, hence within 1.2 %.
    1.0: ((2.528, 2.837), (2.573, 2.966), (2.581, 2.992)),
    2.0: ((1.015, 1.350), (1.068, 1.466), (1.071, 1.492)),
    5.0: ((0.332, 0.490), (0.224, 0.568), (0.227, 0.592)),
}


@pytest.mark.slow
def test_the_errors_are_those_of_the_reference_and_in_the_papers_order() -> None:
    result = rqm.figure3()
    rows = {(row["levels"], row["divergence"]): row for row in result.rows}
    assert set(rows) == {
        (levels, divergence) for levels in rqm.SIZES for divergence in rqm.DIVERGENCES[rqm.ORDER]
    }
    for divergence, pairs in REFERENCE.items():
        for levels, (ours, pbm) in zip(rqm.SIZES, pairs, strict=True):
            row = rows[levels, divergence]
            # Printed to three digits; the reference's q is one of a grid, this one the best: up to 1.2 % better.
            assert ours * (1 - 0.012) < row["RQM"] < ours + printed(3)
            assert row["PBM"] == pytest.approx(pbm, abs=printed(3))
    assert all(row["RQM"] < row["PBM"] for row in result.rows)
    assert all(row["optimal"] < row["RQM"] for row in result.rows if row["levels"] == 4)


def _drawn(levels: int, q: float, x: float) -> np.ndarray:
    """Reports of RQM with Delta = c = 1 by its definition: inner levels are kept with chance q, outer ones always."""
    grid = np.linspace(-2, 2, levels)
    place = min(int((x + 2) / (4 / (levels - 1))), levels - 2)
    found = np.zeros(levels)
    for low in range(place + 1):
        for high in range(place + 1, levels):
            chance = (q if low else 1.0) * (1 - q) ** (place - low)
            chance *= (q if high < levels - 1 else 1.0) * (1 - q) ** (high - place - 1)
            share = (x - grid[low]) / (grid[high] - grid[low])
            found[low] += chance * (1 - share)
            found[high] += chance * share
    return found


@pytest.mark.slow
def test_the_errors_at_order_one_half_are_those_of_the_definitions() -> None:
    """The divergence of order 1/2 is -2 log sum sqrt(p q): n tosses of PBM have -n log(1 - 4 theta^2)."""
    result = rqm.figure10()
    grid = np.linspace(-1, 1, 30)
    for row in result.rows:
        levels, divergence = row["levels"], row["divergence"]
        trials = levels - 1
        theta = math.sqrt(1 - math.exp(-divergence / trials)) / 2
        squares = [(binom.pmf(range(levels), trials, 0.5 + theta * x), x) for x in grid]
        decoded = (np.arange(levels) - trials / 2) / (trials * theta)
        error = np.mean([(p * (decoded - x) ** 2).sum() for p, x in squares])
        # theta in closed form here, by a search to 1e-7 there.
        assert row["PBM"] == pytest.approx(error, rel=1e-6)
        # RQM: the table at its own q.
        q = rqm.equal_q(levels, divergence, 0.5)
        table = families.rqm(lower=-1, upper=1, levels=levels, extension=1.0, q=q)
        assert table.renyi(0.5) == pytest.approx(divergence, rel=1e-7)  # weights are rounded
        assert row["RQM"] == pytest.approx(np.mean(table.mse(grid)), rel=1e-7)
        # The paper has RQM ahead throughout; it is from divergence 1 on.
        assert row["RQM"] < row["PBM"] if divergence >= 1 else row["RQM"] < 1.056 * row["PBM"]
        assert row["RQM"] > row["PBM"] if divergence == 0.5 else True
    q = 0.42
    table = rqm.randomized((1.0, q))
    for x in (-1.0, -0.3, 0.7, 1.0):
        np.testing.assert_allclose(
            table.pmf(np.array([x]))[0], _drawn(16, q, x), rtol=0, atol=2 * GRAIN
        )
