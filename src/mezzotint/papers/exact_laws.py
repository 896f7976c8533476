"""The law of RQM's report, exactly: what the paper's statements are held against, beside
`families.pbm_exact`.

Tables have integer weights of 2**-32, which changes the losses of outputs that are rarer than that.
A statement about the paper's mechanism is therefore computed from its own law, never from a table.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import final

import flint
import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_count
from mezzotint.core.errors import ParameterError
from mezzotint.core.kinds import checked
from mezzotint.core.types import FloatArray
from mezzotint.smoothed import read_rational

Rational = int | float | str | Fraction

MOST_LEVELS = 256
LOGARITHM_BITS = 120
"""Precision of the interval in which a logarithm is enclosed before it becomes a float."""


@final
@dataclass(frozen=True, kw_only=True)
class WorstPair:
    """The two inputs that one output tells apart best.

    Arguments:
        ratio: probability of the output at `likely` over that at `unlikely`, exactly: e^epsilon.
        level: number of the output, from 0.
        likely, unlikely: the inputs, in units of the clipping range c.
    """

    ratio: Fraction
    level: int
    likely: Fraction
    unlikely: Fraction

    @property
    def epsilon(self) -> float:
        """Natural logarithm of the ratio, rounded up."""
        return logarithm_above(self.ratio)


def logarithm_above(value: Fraction) -> float:
    """The natural logarithm of a positive rational as a float that is not below it."""
    with flint.ctx.workprec(LOGARITHM_BITS):
        enclosure = flint.arb(flint.fmpq(value.numerator, value.denominator)).log()
        return math.nextafter(float(enclosure.upper()), math.inf)


@final
@checked
@dataclass(frozen=True, kw_only=True)
class RandomizedQuantization:
    """RQM (Youn, Hu, Ziani, Abernethy 2023, Algorithm 2) on inputs in [-1, 1], in units of c.

    Levels are evenly spaced over [-1 - extension, 1 + extension]. Each inner level is kept with
    probability q, the outermost two always; the report is one of the two kept neighbours of the
    input, drawn so that its mean is the input.

    Arguments:
        levels: number m of levels, 3 to 256.
        extension: Delta / c, above 0. A float is read by its shortest decimal: 0.66 is 33/50.
        q: probability that an inner level is kept, in (0, 1).

    Raises: ParameterError, naming the parameter.
    Guarantees: `pmf`, `mse` and `WorstPair.ratio` are exact rationals; `epsilon` is rounded up.
    Source: with the input between levels j and j + 1, the kept neighbours are l <= j < r with
    probability
        (1-q)^(j-l) [q if l > 0] (1-q)^(r-j-1) [q if r < m-1]. That is linear in the input between
        two levels and continuous, so ratios are largest where both inputs are levels or ends of the
        range.
    Example:
        >>> law = mz.papers.rqm_exact(levels=16, extension=1, q="0.23")
        >>> round(law.epsilon, 6), round(law.between(1, -1).epsilon, 6)
        (3.219311, 3.173783)
    """

    levels: int = 16
    extension: Rational = 1
    q: Rational = Fraction(21, 50)

    def __post_init__(self) -> None:
        level_count = check_count("levels", self.levels, least=3, most=MOST_LEVELS)
        extension = read_rational("extension", self.extension)
        keep_probability = read_rational("q", self.q)
        if extension <= 0:
            raise ParameterError("extension", self.extension, "must be above 0, in units of c")
        if not 0 < keep_probability < 1:
            raise ParameterError("q", self.q, "must lie strictly between 0 and 1")
        object.__setattr__(self, "levels", level_count)
        object.__setattr__(self, "extension", extension)
        object.__setattr__(self, "q", keep_probability)

    @cached_property
    def points(self) -> tuple[Fraction, ...]:
        """The m outputs, in units of c, increasing."""
        outermost = 1 + Fraction(self.extension)
        spacing = 2 * outermost / (self.levels - 1)
        return tuple(spacing * position - outermost for position in range(self.levels))

    @cached_property
    def knots(self) -> tuple[Fraction, ...]:
        """The inputs at which ratios are largest: -1, the levels between, 1."""
        inner_points = tuple(point for point in self.points if -1 < point < 1)
        return (Fraction(-1), *inner_points, Fraction(1))

    def pmf(self, x: Rational) -> tuple[Fraction, ...]:
        """Probabilities of the m outputs at the input x in [-1, 1]."""
        input_value = self._input(x)
        points, last_level = self.points, self.levels - 1
        cell = sum(point <= input_value for point in points[1:last_level])
        chances = [Fraction(0)] * self.levels
        lower_levels, upper_levels = range(cell + 1), range(cell + 1, self.levels)
        for lower_level, upper_level in itertools.product(lower_levels, upper_levels):
            lower_chance = self._kept(cell - lower_level, lower_level > 0)
            upper_chance = self._kept(upper_level - cell - 1, upper_level < last_level)
            pair_chance = lower_chance * upper_chance
            distance = points[upper_level] - points[lower_level]
            upper_share = (input_value - points[lower_level]) / distance
            chances[lower_level] += pair_chance * (1 - upper_share)
            chances[upper_level] += pair_chance * upper_share
        return tuple(chances)

    def _kept(self, dropped: int, is_inner: bool) -> Fraction:
        """Probability that the first kept level comes after so many dropped ones."""
        all_dropped = (1 - Fraction(self.q)) ** dropped
        if is_inner:
            return all_dropped * Fraction(self.q)
        return all_dropped

    def _input(self, x: Rational) -> Fraction:
        input_value = read_rational("x", x)
        if not -1 <= input_value <= 1:
            raise ParameterError("x", x, "must lie in [-1, 1], in units of c")
        return input_value

    @cached_property
    def rows(self) -> tuple[tuple[Fraction, ...], ...]:
        """`pmf` at every knot."""
        return tuple(self.pmf(knot) for knot in self.knots)

    @cached_property
    def worst(self) -> WorstPair:
        """The pair of inputs with the largest ratio, over all inputs in [-1, 1]."""
        return _worst(self.knots, self.rows)

    def between(self, x: Rational, y: Rational) -> WorstPair:
        """The largest ratio between these two inputs, in either direction."""
        input_values = (self._input(x), self._input(y))
        rows = tuple(map(self.pmf, input_values))
        return _worst(input_values, rows)

    @property
    def epsilon(self) -> float:
        """Pure epsilon of one report over all pairs of inputs, rounded up."""
        return self.worst.epsilon

    def mse(self, x: Rational) -> Fraction:
        """Mean squared error at the input x, in units of c^2."""
        input_value = self._input(x)
        squares = ((point - input_value) ** 2 for point in self.points)
        terms = map(Fraction.__mul__, self.pmf(input_value), squares)
        return sum(terms, Fraction(0))

    def floats(self, inputs: npt.ArrayLike) -> FloatArray:
        """(n, m) probabilities of the outputs at n inputs, in floats: relative error below
        1e-12.
        """
        return rqm_floats(self.levels, float(self.extension), float(self.q), inputs)

    def renyi(self, order: float) -> float:
        """Worst-case Renyi divergence of one report, nats, to a few roundings; order above 0."""
        inputs = [float(knot) for knot in self.knots]
        return worst_divergence(self.floats(inputs), order)


rqm_exact = RandomizedQuantization
"""`RandomizedQuantization` by a name like that of `families.pbm_exact`."""


def _worst(inputs: Sequence[Fraction], rows: Sequence[Sequence[Fraction]]) -> WorstPair:
    worst_pairs: list[WorstPair] = []
    input_numbers = range(len(inputs))
    for level_number, probabilities in enumerate(zip(*rows, strict=True)):
        largest = max(input_numbers, key=probabilities.__getitem__)
        smallest = min(input_numbers, key=probabilities.__getitem__)
        worst_pair = WorstPair(
            ratio=probabilities[largest] / probabilities[smallest],
            level=level_number,
            likely=inputs[largest],
            unlikely=inputs[smallest],
        )
        worst_pairs.append(worst_pair)
    return max(worst_pairs, key=lambda worst_pair: worst_pair.ratio)


# The same law in floats, for curves and searches --------------------------------------------------


def rqm_floats(
    levels: int,
    extension: float,
    q: float,
    inputs: npt.ArrayLike,
) -> FloatArray:
    """(n, m) probabilities of RQM's outputs at inputs in [-1, 1], in floats: sums of positive
    terms.
    """
    level_points = np.linspace(-1 - extension, 1 + extension, levels)
    input_values = np.atleast_1d(np.asarray(inputs, dtype=np.float64))
    probabilities = np.zeros((input_values.size, levels))
    for input_probabilities, input_value in zip(probabilities, input_values.tolist(), strict=True):
        levels_below = int(np.searchsorted(level_points, input_value, side="right"))
        input_cell = min(max(levels_below - 1, 0), levels - 2)
        points_below = level_points[: input_cell + 1]
        points_above = level_points[input_cell + 1 :]
        # Chances that a level is the nearest kept one on its side; the outermost is always kept.
        nearest_below = (1 - q) ** np.arange(input_cell, -1, -1.0)
        nearest_below[1:] *= q
        nearest_above = (1 - q) ** np.arange(points_above.size, dtype=np.float64)
        nearest_above[:-1] *= q
        pair_chances = nearest_below[:, None] * nearest_above
        upper_share = (input_value - points_below[:, None]) / (points_above - points_below[:, None])
        input_probabilities[: input_cell + 1] = (pair_chances * (1 - upper_share)).sum(axis=1)
        input_probabilities[input_cell + 1 :] = (pair_chances * upper_share).sum(axis=0)
    return probabilities


def rqm_knots(levels: int, extension: float) -> FloatArray:
    """-1, the levels between, 1: where the divergences of RQM are largest."""
    level_points = np.linspace(-1 - extension, 1 + extension, levels)
    return np.concatenate([[-1.0], level_points[np.abs(level_points) < 1], [1.0]])


def renyi_divergences(
    first: FloatArray,
    second: FloatArray,
    order: float,
) -> FloatArray:
    """Renyi divergences of laws (..., m) from others, nats; order 1 is Kullback and Leibler's."""
    log_probabilities, rival_log_probabilities = np.log(first), np.log(second)
    if order == 1:
        divergences = (first * (log_probabilities - rival_log_probabilities)).sum(axis=-1)
    else:
        log_terms = order * log_probabilities + (1 - order) * rival_log_probabilities
        divergences = np.logaddexp.reduce(log_terms, axis=-1) / (order - 1)
    return np.maximum(divergences, 0.0)


def worst_divergence(rows: FloatArray, order: float) -> float:
    """The largest Renyi divergence of one row from another, nats; order above 0."""
    return float(renyi_divergences(rows[:, None], rows, order).max())
