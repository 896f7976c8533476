"""Bounds for shuffled reports from the literature, for comparison with those of sums; the package uses none of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from mezzotint.core.arguments import check_delta, check_others
from mezzotint.core.loss import pure_epsilon
from mezzotint.core.table import check_weights
from mezzotint.core.types import TOTAL, UNIT, FloatArray, IntArray
from mezzotint.privacy.shuffled import _coin_epsilon
from mezzotint.privacy.sums.blanket import as_probabilities
from mezzotint.privacy.sums.convolution import sum_pmf
from mezzotint.privacy.sums.counts import CountBounds, multinomial_cells
from mezzotint.privacy.sums.noise import pairs_by_gap

_BUDGET = 32
_COARSE = 4
_POINTS = 20_000
"""Most grid points of one report's score."""


def published_clones_epsilon(
    epsilon: float, *, clients: int, delta: float, corrupted: int = 0
) -> float:
    """As `clones_epsilon` with the larger coin probability 2 / (e**epsilon + 1) of the later paper; for comparison.

    Nothing in this package relies on it: the step from that probability to every randomizer was not re-derived here.

    Source: Feldman, McMillan and Talwar 2023, Stronger Privacy Amplification by Shuffling.
    """
    return _coin_epsilon(
        epsilon, 2 / (math.exp(epsilon) + 1), clients=clients, delta=delta, corrupted=corrupted
    )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Scores:
    """Row probabilities over the common mass, level by level, and the counts of others in the blanket."""

    common: FloatArray
    cells: CountBounds


def _delta(scores: _Scores, first: FloatArray, second: FloatArray, epsilon: float) -> float:
    """Upper bound on E_N[ E[max(0, L_1 + .. + L_{N+1})] / (N + 1) ] plus what levels outside the blanket show."""
    ratio = math.exp(epsilon)
    used = scores.common > 0
    bare = float(np.maximum(first[~used] - ratio * second[~used], 0.0).sum())
    weights = scores.common[used] / scores.common.sum()
    values = (first[used] - ratio * second[used]) / weights
    deviation = math.sqrt(float(weights @ (values - weights @ values) ** 2))
    if deviation == 0:
        return min(1.0, bare + max(0.0, float(values[0])))
    # Few draws leave the sum far from normal: it wants a fine grid, and affords it.
    draws = scores.cells.counts[:, 0] + 1
    fineness = min(max(math.sqrt(float(draws.max())) / 1000, 1 / 200), 1 / 8)
    step = max(deviation * fineness, float(values.max() - values.min()) / _POINTS)
    # Each score is split between its two grid neighbours, mean kept: E max(0, sum) can only grow (convex order).
    place = values / step
    below = np.floor(place)
    share = place - below
    low = int(below.min())
    pmf = np.zeros(int(below.max()) - low + 2)
    np.add.at(pmf, (below - low).astype(np.int64), weights * (1 - share))
    np.add.at(pmf, (below - low).astype(np.int64) + 1, weights * share)
    summed = sum_pmf([pmf / pmf.sum()], draws[:, None], tail=1e-22, from_above=True)
    places: IntArray = np.arange(summed.pmf.shape[1], dtype=np.int64)
    sums = (summed.start[:, None] + places + draws[:, None] * low).astype(np.float64) * step
    # Places err by 4 UNIT of themselves, once per draw.
    sums = sums + draws[:, None] * (np.abs(values).max() * 16 * UNIT)
    inner = (summed.pmf * np.maximum(sums, 0.0)).sum(axis=1) / draws + summed.outside * max(
        0.0, values.max()
    )
    total = float(scores.cells.probability @ inner) + scores.cells.lost + bare
    return min(1.0, total * (1 + (summed.pmf.size + 64) * UNIT))


def _epsilon(
    scores: _Scores, first: FloatArray, second: FloatArray, delta: float, limit: float
) -> float:
    low, high = 0.0, limit
    while high - low > 2e-4 * high + 1e-9:
        middle = (low + high) / 2
        low, high = (
            (low, middle) if _delta(scores, first, second, middle) <= delta else (middle, high)
        )
    return high


def _bracketed(
    fine: _Scores,
    coarse: _Scores,
    first: FloatArray,
    second: FloatArray,
    delta: float,
    limit: float,
) -> float:
    """As `_epsilon` of the fine cells; few cells give a quick upper end of the search."""
    return _epsilon(fine, first, second, delta, _epsilon(coarse, first, second, delta, limit))


def blanket_epsilon(weights: IntArray, *, clients: int, delta: float, corrupted: int = 0) -> float:
    """Central epsilon of shuffled reports of one table by its privacy blanket, rounded up.

    Arguments:
        weights: (rows, m) integers that sum to 2**32.
        clients, delta, corrupted: as in `clones_epsilon`.

    Guarantees: the blanket's bound itself, worst over all pairs of rows, not its Hoeffding or Bennett relaxation;
        never above one report's pure epsilon.
    Edge cases: no common mass, delta = 0 or a single client: one report's pure epsilon.
    Source: Balle, Bell, Gascon and Nissim 2019, The Privacy Blanket of the Shuffle Model, Lemma 5.3.
    """
    others, target = check_others(clients, corrupted), check_delta(delta)
    table = np.unique(check_weights(weights), axis=0)
    limit = pure_epsilon(table)
    common = table.min(axis=0)
    if target == 0 or others == 0 or not common.any() or limit == 0:
        return limit
    limit = min(limit, 60.0)
    rows = as_probabilities(table)
    mass = np.array([float(common.sum()) / TOTAL])
    fine, coarse = (
        _Scores(
            common=common / float(TOTAL),
            cells=multinomial_cells(others, mass, np.ones(1), budget=budget, tail=1e-4 * target),
        )
        for budget in (_BUDGET, _COARSE)
    )
    pairs = pairs_by_gap(rows)
    epsilon = max(_bracketed(fine, coarse, rows[i], rows[j], target, limit) for i, j in pairs[:2])
    for i, j in pairs[2:]:
        if (
            _delta(coarse, rows[i], rows[j], epsilon) > target
            and _delta(fine, rows[i], rows[j], epsilon) > target
        ):
            epsilon = max(epsilon, _epsilon(fine, rows[i], rows[j], target, limit))
    return min(epsilon, pure_epsilon(table))
