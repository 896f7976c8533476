"""Lower bounds: a data set of the other clients, and a pair of inputs, that the true sum tells apart this well."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from mezzotint.core.arguments import check_delta, check_others
from mezzotint.core.loss import pure_epsilon
from mezzotint.core.types import UNIT, FloatArray, IntArray
from mezzotint.privacy.sums.blanket import as_probabilities, row_means
from mezzotint.privacy.sums.convolution import SumPmf, sum_pmf
from mezzotint.privacy.sums.noise import pairs_by_gap, spread

_SPLITS = (0.25, 0.5, 0.75)
"""Shares of the other clients that hold the first of two rows."""

_MIXED = 6
"""Rows of least variance that are also tried in pairs."""


@final
@dataclass(frozen=True, kw_only=True)
class Witness:
    """Inputs under which one secure sum is NOT (epsilon', delta)-private for any epsilon' < epsilon.

    Arguments:
        epsilon: lower bound on the central epsilon, rounded down.
        delta: the delta it is for.
        row_first, row_second: rows (of `lattice_rows`) of the protected client's two inputs.
        others: per row, how many other clients hold it.
    """

    epsilon: float
    delta: float
    row_first: int
    row_second: int
    others: tuple[int, ...]


def _lower_delta(summed: SumPmf, first: FloatArray, second: FloatArray, epsilon: float) -> float:
    slack = summed.error + (first.size + 8) * UNIT
    upper = spread(summed.pmf, first)[0] * (1 - slack)
    lower = spread(summed.pmf, second)[0] * (math.exp(epsilon) * (1 + slack))
    # What is 0 or outside the window of the second could sit under the first's mass: it is granted to the second in full.
    gain = float(np.maximum(upper - lower, 0.0).sum()) * (1 - upper.size * UNIT)
    return max(0.0, gain - math.exp(epsilon) * float(summed.outside[0]))


def _lower_epsilon(
    summed: SumPmf, first: FloatArray, second: FloatArray, delta: float, limit: float
) -> float:
    """The largest epsilon found at which delta is still exceeded: a lower bound."""
    low, high = 0.0, min(limit, 60.0)
    if _lower_delta(summed, first, second, 0.0) <= delta:
        return 0.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if _lower_delta(summed, first, second, middle) > delta else (low, middle)
        )
    return low


def _data_sets(rows: FloatArray, others: int) -> list[tuple[int, ...]]:
    """All others at one row, or split between two rows of small variance."""
    squares = np.arange(rows.shape[1], dtype=np.float64) ** 2
    variance = rows @ squares - row_means(rows) ** 2
    order: list[int] = np.argsort(variance)[:_MIXED].tolist()
    kinds = range(rows.shape[0])
    found = [tuple(others if k == row else 0 for k in kinds) for row in kinds]
    for position, a in enumerate(order):
        for b in order[position + 1 :]:
            for share in _SPLITS:
                part = round(share * others)
                counts = [0] * rows.shape[0]
                counts[a], counts[b] = part, others - part
                found.append(tuple(counts))
    return sorted(set(found))


def find_witness(rows: IntArray, *, clients: int, delta: float, corrupted: int = 0) -> Witness:
    """The worst data set among those tried (one or two kinds of other clients), and the epsilon it forces.

    Arguments:
        rows, clients, delta, corrupted: as in `central_epsilon`.

    Guarantees: the exact central epsilon at `delta` is at least `epsilon`; a search, so it need not be equal.
    """
    others = check_others(clients, corrupted)
    target = check_delta(delta)
    table = as_probabilities(rows)
    limit = pure_epsilon(rows)
    pairs = pairs_by_gap(table)[:2]
    best = Witness(
        epsilon=0.0, delta=target, row_first=0, row_second=0, others=(0,) * rows.shape[0]
    )
    for counts in _data_sets(table, others):
        used = [k for k, count in enumerate(counts) if count] or [0]
        summed = sum_pmf([table[k] for k in used], [[counts[k] for k in used]], tail=1e-20)
        for first, second in pairs:
            if _lower_delta(summed, table[first], table[second], best.epsilon) <= target:
                continue
            epsilon = _lower_epsilon(summed, table[first], table[second], target, limit)
            if epsilon > best.epsilon:
                best = Witness(
                    epsilon=epsilon, delta=target, row_first=first, row_second=second, others=counts
                )
    return best
