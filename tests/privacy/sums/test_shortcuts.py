"""What spares time in accounts of sums, beside the slow way: hulls of curves, the best blankets."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mezzotint.families import pbm, rqm
from mezzotint.privacy import distribution
from mezzotint.privacy.sums import cost, lattice_rows
from mezzotint.privacy.sums.blanket import (
    as_probabilities,
    candidate_blankets,
    row_means,
)
from tolerances import SOLVED

TABLES = {
    "PBM": lambda: lattice_rows(pbm(lower=-1, upper=1, trials=7, theta=0.3, knots=5))[0],
    "RQM": lambda: lattice_rows(rqm(lower=-1, upper=1, levels=8, extension=1.0, q=0.42))[0],
}


@pytest.mark.parametrize("seed", range(40))
def test_a_hull_in_passes_is_the_hull_point_by_point(seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.integers(1, 4, size=60)).astype(np.float64)
    # Whole numbers: no rounding decides what lies on a chord. Steps, straight parts and flat ends occur.
    y = np.sort(rng.integers(0, rng.integers(2, 400), size=60))[::-1].astype(np.float64)
    if seed % 3 == 0:
        y = np.maximum(0.0, 200.0 - 10 * np.floor(x / 4))
    if seed % 4 == 0:
        x[-1] = math.inf
    last = [59] if seed % 4 == 0 else []
    finite = slice(59 if last else 60)
    assert distribution._lower_hull(x, y).tolist() == [
        *distribution.hull(x[finite].tolist(), y[finite].tolist()),
        *last,
    ]


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
