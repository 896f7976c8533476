"""The compiled loops over whole tables: of the product law of a noisy release on its simplex, and of
counts of subsets by their sum.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from mezzotint.core.kernels import compiled, inlined
from mezzotint.smoothed.logarithms import Pair, add, multiply


@compiled
def product_on_simplex(
    shape: np.ndarray,
    factors: np.ndarray,
    draws: int,
) -> np.ndarray:
    """The product of per-type factors at every histogram of `draws` records; zero off the simplex.

    `factors[i, h]` holds two floats; the result has one row of two floats per cell of `shape`, C
    order.
    """
    cells = 1
    for size in shape:
        cells *= size
    grid = np.zeros((cells, 2))
    last = shape.size - 1
    index = np.zeros(shape.size, dtype=np.int64)
    for row in range(cells // shape[last]):
        quotient = row
        remaining = draws
        for axis in range(last - 1, -1, -1):
            index[axis] = quotient % shape[axis]
            quotient //= shape[axis]
            remaining -= index[axis]
        if remaining < 0 or remaining >= shape[last]:
            continue
        high, low = factors[last, remaining, 0], factors[last, remaining, 1]
        for axis in range(last):
            high, low = multiply(
                high, low, factors[axis, index[axis], 0], factors[axis, index[axis], 1]
            )
        grid[row * shape[last] + remaining, 0] = high
        grid[row * shape[last] + remaining, 1] = low
    return grid


@compiled
def spread(
    grid: np.ndarray,
    shape: np.ndarray,
    ratio: Pair,
    inverse_gap: Pair,
) -> None:
    """Apply r^|y - h| along every axis, in place; the last index of an axis collects every larger
    outcome.

    Two first-order recursions per line: outcomes reached from below, f(y) = w(y) + r f(y - 1), and
    from above, g(y) = r (w(y + 1) + g(y + 1)). Outcomes at or beyond the last index sum to f(last)
    / (1 - r).
    """
    stride = 1
    for axis in range(shape.size - 1, -1, -1):
        size = shape[axis]
        above = np.zeros((size, 2))
        for line in range(grid.shape[0] // size):
            start = (line // stride) * stride * size + line % stride
            high, low = 0.0, 0.0
            for outcome in range(size - 2, -1, -1):
                cell = start + (outcome + 1) * stride
                high, low = add(high, low, grid[cell, 0], grid[cell, 1])
                high, low = multiply(high, low, ratio[0], ratio[1])
                above[outcome, 0], above[outcome, 1] = high, low
            high, low = 0.0, 0.0
            for outcome in range(size):
                cell = start + outcome * stride
                high, low = multiply(high, low, ratio[0], ratio[1])
                high, low = add(high, low, grid[cell, 0], grid[cell, 1])
                if outcome == size - 1:
                    out = multiply(high, low, inverse_gap[0], inverse_gap[1])
                else:
                    out = add(high, low, above[outcome, 0], above[outcome, 1])
                grid[cell, 0], grid[cell, 1] = out
        stride *= size


@compiled
def hockey_stick(left: np.ndarray, right: np.ndarray, ratio: Pair) -> Pair:
    """The sums of max(0, left - E right) and of max(0, right - E left)."""
    return _beyond(left, right, ratio), _beyond(right, left, ratio)


@compiled
def _beyond(p: np.ndarray, q: np.ndarray, ratio: Pair) -> float:
    total_high, total_low = 0.0, 0.0
    for cell in range(p.shape[0]):
        high, low = multiply(q[cell, 0], q[cell, 1], ratio[0], ratio[1])
        high, low = add(p[cell, 0], p[cell, 1], -high, -low)
        if high > 0.0:
            total_high, total_low = add(total_high, total_low, high, low)
    return total_high


@compiled
def add_records(
    table: np.ndarray,
    filled: int,
    value: int,
    copies: int,
) -> None:
    """Add `copies` records of one value: table[t, s] counts the t-subsets of sum s, of `filled`
    records so far."""
    size, width = table.shape
    step = (width - 1) // max(1, size - 1)
    for done in range(copies):
        for t in range(min(filled + done + 1, size - 1), 0, -1):
            # (t - 1)-subsets have sums up to (t - 1) step, step being the largest value.
            _add(table[t], table[t - 1], value, min(width - value, (t - 1) * step + 1))


@compiled
def _add(
    target: np.ndarray,
    source: np.ndarray,
    value: int,
    count: int,
) -> None:
    for s in range(count):
        target[s + value] += source[s]


# Summands are positive, so their order does not matter for the error bound; reordering lets them
# run in lanes.
@partial(inlined, reorder=True)
def _hockey_stick(
    left: np.ndarray,
    right: np.ndarray,
    ratio: float,
    slack: float,
) -> Pair:
    value, bound = 0.0, 0.0
    for s in range(left.size):
        exact = left[s] - ratio * right[s]
        raised = exact + slack * left[s]
        value += exact if exact > 0.0 else 0.0
        bound += raised if raised > 0.0 else 0.0
    return value, bound


@compiled
def worst_replacement(
    rest: np.ndarray,
    chosen: np.ndarray,
    own: int,
    shifts: np.ndarray,
    ratio: float,
    slack: float,
) -> tuple[float, float, int, bool]:
    """The largest divergence when one record of shift `own` is replaced, in subset counts, and an
    upper bound.

    `rest` counts the T-subsets of the other records by sum, `chosen` their (T - 1)-subsets; all
    shifts are at least 0. Returns the value, the bound (each count inflated by `slack`), the worst
    shift, and its direction.
    """
    length = max(rest.size, chosen.size + max(own, shifts.max()))
    original = np.zeros(length)
    original[: rest.size] += rest
    original[own : own + chosen.size] += chosen
    best, bound, worst_shift, forward = 0.0, 0.0, own, True
    replaced = np.zeros(length)
    for shift in shifts:
        if shift == own:
            continue
        replaced[:] = 0.0
        replaced[: rest.size] += rest
        replaced[shift : shift + chosen.size] += chosen
        ahead, ahead_bound = _hockey_stick(original, replaced, ratio, slack)
        back, back_bound = _hockey_stick(replaced, original, ratio, slack)
        bound = max(bound, ahead_bound, back_bound)
        if ahead > best:
            best, worst_shift, forward = ahead, shift, True
        if back > best:
            best, worst_shift, forward = back, shift, False
    return best, bound, worst_shift, forward
