"""Numbers by histogram, and their expectation over compositions of distributions.

Axis i of a grid is the count of type i; the last type has what remains. Entries are floats or exact
rationals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any, final

import flint
import numpy as np
import numpy.typing as npt

from mezzotint.smoothed.model import Distribution

Grid = npt.NDArray[Any]

Counts = tuple[int, ...]


@final
class Arithmetic:
    """Rationals or floats, by the same operations on arrays."""

    def __init__(self, *, is_exact: bool) -> None:
        self.is_exact = is_exact

    def number(self, value: Fraction | float | int) -> Any:
        """One number."""
        if not self.is_exact:
            return float(value)
        exact = Fraction(value)
        return flint.fmpq(exact.numerator, exact.denominator)

    def numbers(self, values: Iterable[Fraction | float | int]) -> list[Any]:
        """Each number."""
        return [self.number(value) for value in values]

    def zeros(self, *shape: int) -> Grid:
        """An array of zeros."""
        if not self.is_exact:
            return np.zeros(shape)
        grid = np.empty(shape, dtype=object)
        grid[...] = flint.fmpq(0)
        return grid

    def fraction(self, value: Any) -> Fraction:
        """The number as a Fraction."""
        if not self.is_exact:
            return Fraction(float(value))
        return Fraction(int(value.p), int(value.q))

    def positive(self, grid: Grid) -> Grid:
        """Entries above 0, others 0."""
        return np.maximum(grid, self.number(0))


FLOATS = Arithmetic(is_exact=False)


def below(total: int, axes: int) -> tuple[slice, ...]:
    """Indices of counts below `total` along every axis."""
    return (slice(0, total),) * axes


def one_more(total: int, axes: int, axis: int) -> tuple[slice, ...]:
    """Indices of the same counts with one record more of a type."""
    indices = list(below(total, axes))
    indices[axis] = slice(1, total + 1)
    return tuple(indices)


def mixed(
    grid: Grid,
    total: int,
    vertex: Distribution,
    arithmetic: Arithmetic,
) -> Grid:
    """sum_i p_i g(h + e_i) on histograms of one record less than `total`.

    One more record follows the distribution.
    """
    chances = [arithmetic.number(chance) for chance in vertex]
    corner = below(total, grid.ndim)
    expectation = chances[-1] * grid[corner]
    for axis in range(grid.ndim):
        shifted = one_more(total, grid.ndim, axis)
        expectation = expectation + chances[axis] * grid[shifted]
    return expectation


def weights_of(
    vertex: Distribution,
    records: int,
    arithmetic: Arithmetic,
) -> list[Grid]:
    """The multinomial law of 0, 1, .., n records of a distribution, each as a grid."""
    axes = len(vertex) - 1
    chances = [arithmetic.number(chance) for chance in vertex]
    grid = arithmetic.zeros(*[1] * axes)
    grid[(0,) * axes] = arithmetic.number(1)
    grids = [grid]
    for total in range(1, records + 1):
        larger_grid = arithmetic.zeros(*[total + 1] * axes)
        unchanged = below(total, axes)
        last_chance = chances[-1]
        larger_grid[unchanged] = larger_grid[unchanged] + last_chance * grid
        for axis in range(axes):
            shifted = one_more(total, axes, axis)
            larger_grid[shifted] = larger_grid[shifted] + chances[axis] * grid
        grid = larger_grid
        grids.append(grid)
    return grids


def best_composition(
    deltas: Grid,
    records: int,
    vertices: Sequence[Distribution],
    arithmetic: Arithmetic,
) -> tuple[Any, Counts]:
    """The largest expectation over all compositions, and the first composition that has it."""
    last_weights = weights_of(vertices[-1], records, arithmetic)
    largest_mean: Any = arithmetic.number(-1)
    composition: Counts = ()
    pending: list[tuple[Grid, int, Counts]] = [(deltas, records, ())]
    while pending:
        grid, remaining, counts = pending.pop()
        if len(counts) == len(vertices) - 1:
            mean_delta = (grid * last_weights[remaining]).sum()
            if mean_delta > largest_mean:
                largest_mean = mean_delta
                composition = (*counts, remaining)
            continue
        for count in range(remaining + 1):
            counts_so_far = (*counts, count)
            pending.append((grid, remaining - count, counts_so_far))
            if count < remaining:
                vertex = vertices[len(counts)]
                grid = mixed(grid, remaining - count, vertex, arithmetic)
    return largest_mean, composition
