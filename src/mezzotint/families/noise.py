"""Integer noise as tables of integer weights: discrete Laplace, discrete Gaussian, Skellam,
truncated and accounted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.special import ive

from mezzotint.core.arguments import check_count, check_finite, check_table_size
from mezzotint.core.errors import ParameterError, wrong_kind
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import MAX_LEVELS, TOTAL, FloatArray, IntArray, Seed

_TAIL_SLACK = 2.0**-30
"""Relative amount by which a tail mass summed in floats is raised."""

MAX_INTEGER = 2**62
"""Offsets, shifts and reports stay below it, so that their sums fit 64 bits."""

MAX_BOUND = 2**31
"""Bounds of a range of integers that becomes a table."""

MAX_LAPLACE_SCALE = 1300.0
MAX_DEVIATION = 4500.0
"""Up to these the noise fits a table of 2**16 levels."""


def _integers(parameter: str, values: npt.ArrayLike) -> IntArray:
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise wrong_kind(parameter, array, "iu", "need integers; round the data to a lattice first")
    return array.astype(np.int64)


def _read_only(values: IntArray) -> IntArray:
    copy = values.copy()
    copy.setflags(write=False)
    return copy


def _largest_magnitude(values: IntArray) -> int:
    lowest = int(values.min())
    highest = int(values.max())
    return max(abs(lowest), abs(highest))


def _check_offsets(offsets: IntArray) -> None:
    remedy = "must be consecutive increasing integers within 2**62"
    if offsets.ndim != 1 or offsets.size == 0 or (np.diff(offsets) != 1).any():
        raise ParameterError("offsets", offsets.tolist(), remedy)
    if _largest_magnitude(offsets) > MAX_INTEGER:
        raise ParameterError("offsets", offsets.tolist(), remedy)


def _check_weights_of(offsets: IntArray, weights: IntArray) -> None:
    is_mass = weights.shape == offsets.shape and not (weights < 0).any()
    if not is_mass or sum(weights.tolist()) != TOTAL:
        remedy = "need one weight >= 0 per offset, summing to 2**32"
        raise ParameterError("weights", weights.tolist(), remedy)
    if weights[0] == 0 or weights[-1] == 0:
        remedy = "drop the outer offsets that have no weight"
        raise ParameterError("weights", weights.tolist(), remedy)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerNoise:
    """Noise on integers, drawn exactly from integer weights: report = x + noise, or that modulo
    `modulus`.

    Arguments:
        offsets: (s,) consecutive increasing integers: what the noise can be.
        weights: (s,) integers >= 0 that sum to 2**32; the first and the last are positive.
        truncated_mass: mass that the named distribution has outside `offsets`, rounded up. For
            information: all losses are those of the weights as drawn, so truncation and rounding
                are in them.
        modulus: None, or M >= 2: reports are residues 0 .. M-1. Wrapping never costs privacy.
        name: what the noise is.
    Raises: ParameterError, naming the parameter, its value and the remedy.
    Guarantees: Losses are worst cases over all pairs of integers at most `sensitivity` apart, over
    every input.
    Edge cases: without wrap-around the ends of the support tell inputs apart: `epsilon` is inf,
    `delta` counts it. Example:
        >>> noise = mz.families.discrete_laplace(scale=2.0)
        >>> noise.privatize([5, 5, 5]).shape
        (3,)
        >>> round(noise.epsilon(sensitivity=1), 4)
        inf
    """

    offsets: IntArray
    weights: IntArray
    truncated_mass: float
    modulus: int | None = None
    name: str = "integer noise"

    def __post_init__(self) -> None:
        offsets = _integers("offsets", self.offsets)
        weights = _integers("weights", self.weights)
        _check_offsets(offsets)
        _check_weights_of(offsets, weights)
        if self.modulus is not None:
            modulus = check_count(
                "modulus",
                self.modulus,
                least=2,
                most=MAX_INTEGER,
            )
            object.__setattr__(self, "modulus", modulus)
        object.__setattr__(self, "offsets", _read_only(offsets))
        object.__setattr__(self, "weights", _read_only(weights))

    @property
    def mean(self) -> Fraction:
        """Exact mean of the noise before any wrapping."""
        return self._moment(1)

    @property
    def variance(self) -> Fraction:
        """Exact variance of the noise before any wrapping."""
        return self._moment(2) - self.mean**2

    def _moment(self, power: int) -> Fraction:
        pairs = zip(self.weights.tolist(), self.offsets.tolist(), strict=True)
        terms = (weight * offset**power for weight, offset in pairs)
        return Fraction(sum(terms), TOTAL)

    # Privacy --------------------------------------------------------------------------------------

    def pair(self, shift: int) -> Mechanism:
        """Two rows: the reports of an integer, and of the integer `shift` above it. Its losses are
        those of the pair.

        Arguments:
            shift: >= 1.
        Raises:
            ParameterError: more reports are possible than a table has levels.
        """
        distance = check_count("shift", shift, least=1, most=MAX_INTEGER)
        reports_by_input = [self.offsets, self.offsets + distance]
        if self.modulus is not None:
            reports_by_input = [reports % self.modulus for reports in reports_by_input]
        all_reports = np.unique(np.concatenate(reports_by_input))
        levels = all_reports.astype(np.float64)
        if levels.size > MAX_LEVELS:
            remedy = f"makes {levels.size} reports possible, above {MAX_LEVELS}"
            raise ParameterError("shift", distance, remedy)
        if levels.size == 1:
            # A table needs a second level; nothing is ever put there.
            levels = np.array([levels[0], levels[0] + 1])
        weights = np.zeros((2, levels.size), dtype=np.int64)
        for row, reports in zip(weights, reports_by_input, strict=True):
            columns = np.searchsorted(levels, reports)
            np.add.at(row, columns, self.weights)
        return Mechanism(
            knots=np.array([0.0, distance]),
            levels=levels,
            weights=weights,
            name=self.name,
        )

    def _pairs(self, sensitivity: int) -> list[Mechanism]:
        largest_shift = check_count(
            "sensitivity",
            sensitivity,
            least=1,
            most=MAX_LEVELS,
        )
        shifts = range(1, largest_shift + 1)
        return [self.pair(shift) for shift in shifts]

    def epsilon(self, *, sensitivity: int = 1) -> float:
        """Pure epsilon between integers at most `sensitivity` apart; rounded up; inf unless wraps
        fill every gap.
        """
        return max(pair.epsilon for pair in self._pairs(sensitivity))

    def delta(self, epsilon: float, *, sensitivity: int = 1) -> float:
        """Exact worst hockey-stick divergence between integers at most `sensitivity` apart; rounded
        up.
        """
        return max(pair.delta(epsilon) for pair in self._pairs(sensitivity))

    def renyi(self, alpha: float, *, sensitivity: int = 1) -> float:
        """Worst Renyi divergence of order alpha between integers at most `sensitivity` apart;
        rounded up.
        """
        return max(pair.renyi(alpha) for pair in self._pairs(sensitivity))

    # Use ------------------------------------------------------------------------------------------

    @cached_property
    def table(self) -> Mechanism:
        """The table that draws come from, before any wrapping: two equal rows, so that the input
        changes nothing.

        Raises:
            ParameterError: noise with a single value; a table needs two levels.
        """
        levels = self.offsets.astype(np.float64)
        weights = np.stack([self.weights, self.weights])
        return Mechanism(
            knots=np.array([0.0, 1.0]),
            levels=levels,
            weights=weights,
            name=self.name,
        )

    def sample(
        self,
        shape: int | tuple[int, ...],
        rng: Seed = None,
    ) -> IntArray:
        """Independent noise of the given shape, int64; rng None draws from the keystream, a seed is
        not private.
        """
        if self.offsets.size == 1:
            return np.full(shape, int(self.offsets[0]), dtype=np.int64)
        zeros = np.zeros(shape)
        codes = np.asarray(self.table.privatize(zeros, rng))
        return self.offsets[codes.astype(np.intp)]

    def privatize(self, x: npt.ArrayLike, rng: Seed = None) -> IntArray:
        """Reports of integers x, any shape, int64: x + noise, modulo `modulus` if there is one.

        Raises:
            ParameterError: x holds no integers, or so large ones that adding noise would overflow.
        """
        values = _integers("x", x)
        if values.size and _largest_magnitude(values) >= MAX_INTEGER:
            remedy = "integers must leave room for the noise; scale them down"
            raise ParameterError("x", "beyond 2**62", remedy)
        reports = values + self.sample(values.shape, rng)
        return reports if self.modulus is None else reports % self.modulus

    def decode(self, reports: npt.ArrayLike) -> IntArray:
        """Reports as integers, or with a modulus M the representatives in [-M/2, M/2)."""
        values = _integers("reports", reports)
        if self.modulus is None:
            return values
        half = self.modulus // 2
        return (values + half) % self.modulus - half

    def mechanism(self, *, lower: int, upper: int) -> Mechanism:
        """The table on [lower, upper]: every integer a knot; between integers stochastic rounding
        picks one.

        Raises:
            ParameterError: bounds that are not increasing integers; a modulus (wrapped reports are
                biased).
        """
        low = check_count("lower", lower, least=-MAX_BOUND, most=MAX_BOUND)
        high = check_count("upper", upper, least=-MAX_BOUND, most=MAX_BOUND)
        if not low < high:
            raise ParameterError("lower", low, f"must lie below upper={high}")
        if self.modulus is not None:
            remedy = "wrapped reports are biased; build the noise without modulus"
            raise ParameterError("modulus", self.modulus, remedy)
        knot_count = high - low + 1
        level_count = knot_count + self.offsets.size - 1
        check_table_size("upper", high, rows=knot_count, levels=level_count)
        knots = np.arange(low, high + 1.0)
        lowest_level = low + int(self.offsets[0])
        levels = np.arange(float(level_count)) + lowest_level
        weights = np.zeros((knots.size, levels.size), dtype=np.int64)
        for index in range(knots.size):
            row_stop = index + self.offsets.size
            weights[index, index:row_stop] = self.weights
        return Mechanism(
            knots=knots,
            levels=levels,
            weights=weights,
            name=self.name,
        )


@dataclass(frozen=True, kw_only=True)
class _Options:
    """How a distribution is cut and wrapped: `bound`, the largest |k|, and `modulus`."""

    bound: int | None
    modulus: int | None


def _symmetric(
    probabilities: FloatArray,
    tail_mass: float,
    *,
    options: _Options,
    name: str,
) -> IntegerNoise:
    """Integer noise from the probabilities at 0, 1, 2, .. of a symmetric distribution, and its mass
    on one side beyond them.
    """
    units = np.rint(probabilities[1:] * TOTAL).astype(np.int64)
    if options.bound is not None:
        bound = check_count("bound", options.bound, least=1, most=MAX_LEVELS)
        units = units[:bound]
    reach = 0
    if units.any():
        reach = int(np.flatnonzero(units)[-1]) + 1
    units = units[:reach]
    # The middle takes the rounding remainder: the noise stays exactly symmetric, so exactly
    # unbiased.
    middle_units = TOTAL - 2 * int(units.sum())
    weights = np.concatenate([units[::-1], [middle_units], units])
    cut_mass = float(probabilities[reach + 1 :].sum())
    outside_mass = 2 * (cut_mass + tail_mass)
    return IntegerNoise(
        offsets=np.arange(-reach, reach + 1),
        weights=weights,
        truncated_mass=min(1.0, outside_mass * (1 + _TAIL_SLACK)),
        modulus=options.modulus,
        name=name,
    )


def _cut(
    probabilities: FloatArray,
    size: int,
    *,
    options: _Options,
    name: str,
) -> IntegerNoise:
    """Integer noise from the first `size` probabilities; the others are mass beyond them."""
    tail_mass = float(probabilities[size:].sum())
    return _symmetric(probabilities[:size], tail_mass, options=options, name=name)


def _scale(
    parameter: str,
    value: object,
    *,
    most: float,
) -> float:
    number = check_finite(parameter, value)
    if number <= 0 or number > most:
        remedy = f"must lie in (0, {most:g}], so that the noise fits a 16-bit table"
        raise ParameterError(parameter, number, remedy)
    return number


def discrete_laplace(
    *,
    scale: float,
    bound: int | None = None,
    modulus: int | None = None,
) -> IntegerNoise:
    """Discrete Laplace (two-sided geometric) noise: probability proportional to exp(-|k| / scale).

    Arguments:
        scale: > 0, in integer steps; the variance is about 2 scale**2.
        bound: largest |k|; None keeps every k that gets a unit of 2**-32.
        modulus: see `IntegerNoise`.
    Returns: the noise.
    Raises: ParameterError, naming the parameter, its value and the remedy.
    Source: Ghosh, Roughgarden, Sundararajan 2009 (geometric mechanism), truncated.
    Example:
        >>> noise = mz.families.discrete_laplace(scale=2.0, modulus=256)
        >>> 0 <= int(noise.privatize([250])[0]) < 256
        True
    """
    scale = _scale("scale", scale, most=MAX_LAPLACE_SCALE)
    offsets = np.arange(math.ceil(24 * scale) + 2)
    # Normaliser: sum over Z of exp(-|k|/t) = coth(1/(2t)).
    normaliser = math.tanh(0.5 / scale)
    probabilities = np.exp(-offsets / scale) * normaliser
    first_outside = math.exp(-offsets.size / scale)
    geometric_sum = first_outside / -math.expm1(-1 / scale)
    tail_mass = geometric_sum * normaliser
    options = _Options(bound=bound, modulus=modulus)
    name = f"discrete Laplace(scale={scale:g})"
    return _symmetric(probabilities, tail_mass, options=options, name=name)


def discrete_gaussian(
    *,
    sigma: float,
    bound: int | None = None,
    modulus: int | None = None,
) -> IntegerNoise:
    """Discrete Gaussian noise: probability proportional to exp(-k**2 / (2 sigma**2)).

    Arguments:
        sigma: > 0, in integer steps; the standard deviation is at most sigma.
        bound, modulus: as in `discrete_laplace`.
    Returns: the noise, its variance at most sigma**2 where it is cut off.
    Raises: ParameterError, naming the parameter, its value and the remedy.
    Source: Canonne, Kamath, Steinke 2020, truncated.
    Example:
        >>> noise = mz.families.discrete_gaussian(sigma=3.0)
        >>> round(float(noise.variance), 3)
        9.0
    """
    sigma = _scale("sigma", sigma, most=MAX_DEVIATION)
    offsets = np.arange(math.ceil(40 * sigma) + 3)
    squares = (offsets / sigma) ** 2
    powers = np.exp(-squares / 2)
    powers /= powers[0] + 2 * powers[1:].sum()
    options = _Options(bound=bound, modulus=modulus)
    name = f"discrete Gaussian(sigma={sigma:g})"
    return _cut(powers, math.ceil(7 * sigma) + 2, options=options, name=name)


def skellam(
    *,
    variance: float,
    bound: int | None = None,
    modulus: int | None = None,
) -> IntegerNoise:
    """Skellam noise, the difference of two Poisson variables of mean variance / 2: exp(-v)
    I_|k|(v).

    Arguments:
        variance: v > 0, in squared integer steps.
        bound, modulus: as in `discrete_laplace`.
    Returns: the noise.
    Raises: ParameterError, naming the parameter, its value and the remedy.
    Source: Agarwal, Kairouz, Liu 2021, truncated.
    Example:
        >>> noise = mz.families.skellam(variance=8.0)
        >>> round(float(noise.variance), 3)
        8.0
    """
    variance = _scale("variance", variance, most=MAX_DEVIATION**2)
    deviation = math.sqrt(variance)
    offsets = np.arange(math.ceil(40 * deviation) + 200)
    # exp(-v) I_k(v), which scipy's scaled Bessel function is.
    probabilities = np.nan_to_num(ive(offsets, variance))
    options = _Options(bound=bound, modulus=modulus)
    name = f"Skellam(variance={variance:g})"
    return _cut(probabilities, math.ceil(7 * deviation) + 40, options=options, name=name)
