"""The histogram with exponential-mechanism noise: a separable kernel on the grid of outcomes, in double-double."""

from __future__ import annotations

import numpy as np

from mezzotint.core.compiled import compiled
from mezzotint.smoothed.kernels.doubledouble import add, multiply


@compiled
def product_on_simplex(shape: np.ndarray, factors: np.ndarray, draws: int) -> np.ndarray:
    """The product of per-type factors at every histogram of `draws` records; zero off the simplex.

    `factors[i, h]` holds two floats; the result has one row of two floats per cell of `shape`, C order.
    """
    cells = 1
    for size in shape:
        cells *= size
    grid = np.zeros((cells, 2))
    last = shape.size - 1
    index = np.zeros(shape.size, dtype=np.int64)
    for row in range(cells // shape[last]):
        rest = row
        left = draws
        for axis in range(last - 1, -1, -1):
            index[axis] = rest % shape[axis]
            rest //= shape[axis]
            left -= index[axis]
        if left < 0 or left >= shape[last]:
            continue
        high, low = factors[last, left, 0], factors[last, left, 1]
        for axis in range(last):
            high, low = multiply(high, low, factors[axis, index[axis], 0], factors[axis, index[axis], 1])
        grid[row * shape[last] + left, 0] = high
        grid[row * shape[last] + left, 1] = low
    return grid


@compiled
def spread(grid: np.ndarray, shape: np.ndarray, ratio: tuple[float, float], inverse_gap: tuple[float, float]) -> None:
    """Apply r^|y - h| along every axis, in place; the last index of an axis collects every larger outcome.

    Two first-order recursions per line: outcomes reached from below, f(y) = w(y) + r f(y - 1), and from above,
    g(y) = r (w(y + 1) + g(y + 1)). Outcomes at or beyond the last index sum to f(last) / (1 - r).
    """
    stride = 1
    for axis in range(shape.size - 1, -1, -1):
        size = shape[axis]
        above = np.zeros((size, 2))
        for line in range(grid.shape[0] // size):
            start = (line // stride) * stride * size + line % stride
            high, low = 0.0, 0.0
            for y in range(size - 2, -1, -1):
                cell = start + (y + 1) * stride
                high, low = add(high, low, grid[cell, 0], grid[cell, 1])
                high, low = multiply(high, low, ratio[0], ratio[1])
                above[y, 0], above[y, 1] = high, low
            high, low = 0.0, 0.0
            for y in range(size):
                cell = start + y * stride
                high, low = multiply(high, low, ratio[0], ratio[1])
                high, low = add(high, low, grid[cell, 0], grid[cell, 1])
                if y == size - 1:
                    out = multiply(high, low, inverse_gap[0], inverse_gap[1])
                else:
                    out = add(high, low, above[y, 0], above[y, 1])
                grid[cell, 0], grid[cell, 1] = out
        stride *= size


@compiled
def hockey_stick(left: np.ndarray, right: np.ndarray, ratio: tuple[float, float]) -> tuple[float, float]:
    """The sums of max(0, left - E right) and of max(0, right - E left)."""
    forward_high, forward_low = 0.0, 0.0
    backward_high, backward_low = 0.0, 0.0
    for cell in range(left.shape[0]):
        p_high, p_low = left[cell, 0], left[cell, 1]
        q_high, q_low = right[cell, 0], right[cell, 1]
        high, low = multiply(q_high, q_low, ratio[0], ratio[1])
        high, low = add(p_high, p_low, -high, -low)
        if high > 0.0:
            forward_high, forward_low = add(forward_high, forward_low, high, low)
        high, low = multiply(p_high, p_low, ratio[0], ratio[1])
        high, low = add(q_high, q_low, -high, -low)
        if high > 0.0:
            backward_high, backward_low = add(backward_high, backward_low, high, low)
    return forward_high, backward_high
