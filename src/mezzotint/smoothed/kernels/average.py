"""How many subsets of the records have each sum, by a dynamic program with positive terms only."""

from __future__ import annotations

from functools import partial

import numpy as np

from mezzotint.core.compiled import compiled, inlined


@compiled
def add_records(table: np.ndarray, filled: int, value: int, copies: int) -> None:
    """Add `copies` records of one value: table[t, s] counts the t-subsets of sum s, of `filled` records so far."""
    size, width = table.shape
    step = (width - 1) // max(1, size - 1)
    for done in range(copies):
        for t in range(min(filled + done + 1, size - 1), 0, -1):
            # (t - 1)-subsets have sums up to (t - 1) step, step being the largest value.
            _add(table[t], table[t - 1], value, min(width - value, (t - 1) * step + 1))


@compiled
def _add(target: np.ndarray, source: np.ndarray, value: int, count: int) -> None:
    for s in range(count):
        target[s + value] += source[s]


# Summands are positive, so their order does not matter for the error bound; reordering lets them run in lanes.
@partial(inlined, reorder=True)
def _hockey_stick(left: np.ndarray, right: np.ndarray, ratio: float, slack: float) -> tuple[float, float]:
    value, bound = 0.0, 0.0
    for s in range(left.size):
        exact = left[s] - ratio * right[s]
        raised = exact + slack * left[s]
        value += exact if exact > 0.0 else 0.0
        bound += raised if raised > 0.0 else 0.0
    return value, bound


@compiled
def worst_replacement(
    rest: np.ndarray, chosen: np.ndarray, own: int, shifts: np.ndarray, ratio: float, slack: float
) -> tuple[float, float, int, bool]:
    """The largest divergence when one record of shift `own` is replaced, in subset counts, and an upper bound.

    `rest` counts the T-subsets of the other records by sum, `chosen` their (T - 1)-subsets; all shifts are at
    least 0. Returns the value, the bound (each count inflated by `slack`), the worst shift, and its direction.
    """
    length = max(rest.size, chosen.size + max(own, shifts.max()))
    left = np.zeros(length)
    left[: rest.size] += rest
    left[own : own + chosen.size] += chosen
    best, bound, where, forward = 0.0, 0.0, own, True
    right = np.zeros(length)
    for shift in shifts:
        if shift == own:
            continue
        right[:] = 0.0
        right[: rest.size] += rest
        right[shift : shift + chosen.size] += chosen
        ahead, ahead_bound = _hockey_stick(left, right, ratio, slack)
        back, back_bound = _hockey_stick(right, left, ratio, slack)
        bound = max(bound, ahead_bound, back_bound)
        if ahead > best:
            best, where, forward = ahead, shift, True
        if back > best:
            best, where, forward = back, shift, False
    return best, bound, where, forward
