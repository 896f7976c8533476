"""The compiled loops over whole tables: of the product law of a noisy release on its simplex, and of
counts of subsets by their sum.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from mezzotint.core.kernels import compiled, inlined
from mezzotint.smoothed.logarithms import Pair, add, multiply, subtract


@compiled
def _pair(rows: np.ndarray, row: int) -> Pair:
    return rows[row, 0], rows[row, 1]


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
    cell_count = 1
    for axis_length in shape:
        cell_count *= axis_length
    grid = np.zeros((cell_count, 2))
    last = shape.size - 1
    indices = np.zeros(shape.size, dtype=np.int64)
    for row in range(cell_count // shape[last]):
        quotient = row
        remaining = draws
        for axis in range(last - 1, -1, -1):
            indices[axis] = quotient % shape[axis]
            quotient //= shape[axis]
            remaining -= indices[axis]
        if remaining < 0 or remaining >= shape[last]:
            continue
        product = _pair(factors[last], remaining)
        for axis in range(last):
            product = multiply(product, _pair(factors[axis], indices[axis]))
        cell = row * shape[last] + remaining
        grid[cell, 0], grid[cell, 1] = product
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
        axis_length = shape[axis]
        above = np.zeros((axis_length, 2))
        for line in range(grid.shape[0] // axis_length):
            start = (line // stride) * stride * axis_length + line % stride
            partial_sum = (0.0, 0.0)
            for outcome in range(axis_length - 2, -1, -1):
                cell = start + (outcome + 1) * stride
                partial_sum = multiply(add(partial_sum, _pair(grid, cell)), ratio)
                above[outcome, 0], above[outcome, 1] = partial_sum
            partial_sum = (0.0, 0.0)
            for outcome in range(axis_length):
                cell = start + outcome * stride
                partial_sum = add(multiply(partial_sum, ratio), _pair(grid, cell))
                if outcome == axis_length - 1:
                    total = multiply(partial_sum, inverse_gap)
                else:
                    total = add(partial_sum, _pair(above, outcome))
                grid[cell, 0], grid[cell, 1] = total
        stride *= axis_length


@compiled
def hockey_stick(left: np.ndarray, right: np.ndarray, ratio: Pair) -> Pair:
    """The sums of max(0, left - E right) and of max(0, right - E left)."""
    return _beyond(left, right, ratio), _beyond(right, left, ratio)


@compiled
def _beyond(first: np.ndarray, second: np.ndarray, ratio: Pair) -> float:
    total = (0.0, 0.0)
    for cell in range(first.shape[0]):
        gap = subtract(_pair(first, cell), multiply(_pair(second, cell), ratio))
        if gap[0] > 0.0:
            total = add(total, gap)
    return total[0]


@compiled
def add_records(
    table: np.ndarray,
    filled: int,
    value: int,
    copies: int,
) -> None:
    """Add `copies` records of one value: table[t, s] counts the t-subsets of sum s, of `filled`
    records so far."""
    row_count, width = table.shape
    largest_value = (width - 1) // max(1, row_count - 1)
    for added in range(copies):
        largest_size = min(filled + added + 1, row_count - 1)
        for subset_size in range(largest_size, 0, -1):
            largest_sum = (subset_size - 1) * largest_value
            sum_count = min(width - value, largest_sum + 1)
            larger, smaller = table[subset_size], table[subset_size - 1]
            _add(larger, smaller, value, sum_count)


@compiled
def _add(
    target: np.ndarray,
    source: np.ndarray,
    value: int,
    count: int,
) -> None:
    for partial_sum in range(count):
        target[partial_sum + value] += source[partial_sum]


# Summands are positive, so their order does not matter for the error bound; reordering lets them
# run in lanes.
@partial(inlined, reorder=True)
def _hockey_stick(
    left: np.ndarray,
    right: np.ndarray,
    ratio: float,
    slack: float,
) -> Pair:
    divergence, bound = 0.0, 0.0
    for subset_sum in range(left.size):
        difference = left[subset_sum] - ratio * right[subset_sum]
        raised = difference + slack * left[subset_sum]
        divergence += difference if difference > 0.0 else 0.0
        bound += raised if raised > 0.0 else 0.0
    return divergence, bound


@compiled
def worst_replacement(
    without_record: np.ndarray,
    with_record: np.ndarray,
    record_shift: int,
    shifts: np.ndarray,
    ratio: float,
    slack: float,
) -> tuple[float, float, int, bool]:
    """The largest divergence when one record is replaced, in subset counts, and an upper bound.

    The record has the shift `record_shift`. `without_record` counts the T-subsets of the other
    records by sum, `with_record` their (T - 1)-subsets; all shifts are at least 0. Returns the
    value, the bound (each count inflated by `slack`), the worst shift, and its direction.
    """
    largest_shift = max(record_shift, shifts.max())
    length = max(without_record.size, with_record.size + largest_shift)
    original = np.zeros(length)
    original[: without_record.size] += without_record
    original[record_shift : record_shift + with_record.size] += with_record
    largest, bound, worst_shift, forward = 0.0, 0.0, record_shift, True
    replaced = np.zeros(length)
    for shift in shifts:
        if shift == record_shift:
            continue
        replaced[:] = 0.0
        replaced[: without_record.size] += without_record
        replaced[shift : shift + with_record.size] += with_record
        onward, onward_bound = _hockey_stick(original, replaced, ratio, slack)
        backward, backward_bound = _hockey_stick(replaced, original, ratio, slack)
        bound = max(bound, onward_bound, backward_bound)
        if onward > largest:
            largest, worst_shift, forward = onward, shift, True
        if backward > largest:
            largest, worst_shift, forward = backward, shift, False
    return largest, bound, worst_shift, forward
