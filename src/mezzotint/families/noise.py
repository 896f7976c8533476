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

from mezzotint.core import loss as losses
from mezzotint.core.arguments import check_count, check_finite, check_table_size
from mezzotint.core.errors import ParameterError, as_array, wrong_kind
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import MAX_LEVELS, TOTAL, FloatArray, IntArray, Seed

MAX_INTEGER = 2**62
"""Offsets, shifts and reports stay below it, so that their sums fit 64 bits."""

EXACT_SHIFTS = 256
"""Distances of nearly the worst loss that are computed exactly."""

MOST_COMPARED = MAX_LEVELS**2
"""Distances times values of the noise: some seconds."""

MAX_BOUND = 2**31
"""Bounds of a range of integers that becomes a table."""

MAX_LAPLACE_SCALE = 1300.0
MAX_DEVIATION = 4500.0
"""Up to these the noise fits a table of 2**16 levels."""


def _integers(parameter: str, values: npt.ArrayLike) -> IntArray:
    array = as_array(parameter, values, "need integers, rows of one length")
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
    """Noise on integers, drawn exactly from integer weights: report = x + noise.

    Arguments:
        offsets: (s,) consecutive increasing integers: what the noise can be.
        weights: (s,) integers >= 0 that sum to 2**32; the first and the last are positive.
        name: what the noise is.
    Raises: ParameterError, naming the parameter, its value and the remedy.
    Guarantees: Losses are worst cases over all pairs of integers at most `sensitivity` apart, over
        every input. They are those of the weights as drawn, so truncation and rounding are in them.
    Edge cases: the ends of the support tell inputs apart: no pure epsilon is finite, and `delta`
        counts it.
    Example:
        >>> noise = mz.families.discrete_laplace(scale=2.0)
        >>> noise.privatize([5, 5, 5]).shape
        (3,)
        >>> noise.delta(1e9) < 1e-9
        True
    """

    offsets: IntArray
    weights: IntArray
    name: str = "integer noise"

    def __post_init__(self) -> None:
        offsets = _integers("offsets", self.offsets)
        weights = _integers("weights", self.weights)
        _check_offsets(offsets)
        _check_weights_of(offsets, weights)
        object.__setattr__(self, "offsets", _read_only(offsets))
        object.__setattr__(self, "weights", _read_only(weights))

    @property
    def mean(self) -> Fraction:
        """Exact mean of the noise."""
        return self._moment(1)

    @property
    def variance(self) -> Fraction:
        """Exact variance of the noise."""
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
        all_reports = np.unique(np.concatenate(reports_by_input))
        levels = all_reports.astype(np.float64)
        if levels.size > MAX_LEVELS:
            remedy = f"makes {levels.size} reports possible, above {MAX_LEVELS}"
            raise ParameterError("shift", distance, remedy)
        weights = np.zeros((2, levels.size), dtype=np.int64)
        for row, reports in zip(weights, reports_by_input, strict=True):
            columns = np.searchsorted(levels, reports)
            row[columns] = self.weights
        return Mechanism(
            knots=np.array([0.0, distance]),
            levels=levels,
            weights=weights,
            name=self.name,
        )

    def _shifts(self, sensitivity: int) -> range:
        """From the size of the support on, no report is possible for both inputs."""
        largest_shift = check_count(
            "sensitivity",
            sensitivity,
            least=1,
            most=MAX_INTEGER,
        )
        shift_count = min(largest_shift, self.offsets.size)
        return range(1, shift_count + 1)

    def delta(self, epsilon: float, *, sensitivity: int = 1) -> float:
        """Exact worst hockey-stick divergence between integers at most `sensitivity` apart; rounded
        up, and where more than `EXACT_SHIFTS` distances tie, above it by (s + 8) * 2**-52 at most.
        """
        shifts = self._shifts(sensitivity)
        masses = self.weights.astype(np.float64)
        if len(shifts) * masses.size > MOST_COMPARED:
            remedy = f"takes too long for noise of {masses.size:,} values; ask for a smaller one"
            raise ParameterError("sensitivity", sensitivity, remedy)
        checked_epsilon = losses.check_epsilon(epsilon)
        ratio = float(losses.exp_below(checked_epsilon))
        excesses = [_hockey_stick(masses, shift, ratio) for shift in shifts]
        margin = losses.screening_margin(masses.size)
        largest_excess = max(excesses)
        screened = np.array(excesses)
        nearly_worst = np.flatnonzero(screened >= largest_excess - margin)
        exact_deltas: list[float] = []
        for index in nearly_worst[:EXACT_SHIFTS].tolist():
            overlap = self._overlap(shifts[index])
            exact_deltas.append(losses.delta(overlap, epsilon))
        if nearly_worst.size > EXACT_SHIFTS:
            screened_bound = Fraction(largest_excess + margin) / TOTAL
            rounded_bound = losses.float_above(screened_bound)
            exact_deltas.append(min(1.0, rounded_bound))
        return max(exact_deltas)

    def _overlap(self, shift: int) -> IntArray:
        """(2, m) weights of the reports of an integer, and of the integer `shift` above it; those
        that one of them alone makes possible are one.
        """
        above = self.weights[:-shift]
        below = self.weights[shift:]
        rows = np.stack([below, above])
        shared = rows.sum(axis=1)
        alone = np.diag(TOTAL - shared)
        return np.hstack([rows, alone])

    def renyi(self, alpha: float, *, sensitivity: int = 1) -> float:
        """Worst Renyi divergence of order alpha between integers at most `sensitivity` apart;
        rounded up.
        """
        shifts = self._shifts(sensitivity)
        levels = 2 * self.offsets.size
        check_table_size("sensitivity", sensitivity, rows=len(shifts), levels=levels)
        return max(losses.renyi(self._overlap(shift), alpha) for shift in shifts)

    # Use ------------------------------------------------------------------------------------------

    @cached_property
    def table(self) -> Mechanism:
        """The table that draws come from: two equal rows, so that the input changes nothing.

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
        """Reports of integers x, any shape, int64: x + noise.

        Raises:
            ParameterError: x holds no integers, or so large ones that adding noise would overflow.
        """
        values = _integers("x", x)
        if values.size and _largest_magnitude(values) >= MAX_INTEGER:
            remedy = "integers must leave room for the noise; scale them down"
            raise ParameterError("x", "beyond 2**62", remedy)
        return values + self.sample(values.shape, rng)

    def mechanism(self, *, lower: int, upper: int) -> Mechanism:
        """The table on [lower, upper]: every integer a knot; between integers stochastic rounding
        picks one.

        Raises:
            ParameterError: bounds that are not increasing integers.
        """
        low = check_count("lower", lower, least=-MAX_BOUND, most=MAX_BOUND)
        high = check_count("upper", upper, least=-MAX_BOUND, most=MAX_BOUND)
        if not low < high:
            raise ParameterError("lower", low, f"must lie below upper={high}")
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


def _hockey_stick(masses: FloatArray, shift: int, ratio: float) -> float:
    """The larger excess of noise over `ratio` times the same noise `shift` away, and of that over
    this, in floats.
    """
    above = masses[:-shift]
    below = masses[shift:]
    gain_below = np.maximum(below - ratio * above, 0.0)
    gain_above = np.maximum(above - ratio * below, 0.0)
    alone_below = masses[:shift].sum()
    alone_above = masses[-shift:].sum()
    excess_below = gain_below.sum() + alone_below
    excess_above = gain_above.sum() + alone_above
    largest_excess = max(excess_below, excess_above)
    return float(largest_excess)


def _symmetric(
    probabilities: FloatArray,
    *,
    bound: int | None,
    name: str,
) -> IntegerNoise:
    """Integer noise from the probabilities at 0, 1, 2, .. of a symmetric distribution, up to
    `bound` where there is one.
    """
    units = np.rint(probabilities[1:] * TOTAL).astype(np.int64)
    if bound is not None:
        units = units[: check_count("bound", bound, least=1, most=MAX_LEVELS)]
    units = np.trim_zeros(units, "b")
    # The middle takes the rounding remainder and the mass beyond: the noise stays exactly
    # symmetric, so exactly unbiased.
    middle_units = TOTAL - 2 * int(units.sum())
    return IntegerNoise(
        offsets=np.arange(-units.size, units.size + 1),
        weights=np.concatenate([units[::-1], [middle_units], units]),
        name=name,
    )


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
) -> IntegerNoise:
    """Discrete Laplace (two-sided geometric) noise: probability proportional to exp(-|k| / scale).

    Arguments:
        scale: > 0, in integer steps; the variance is about 2 scale**2.
        bound: largest |k|; None keeps every k that gets a unit of 2**-32.
    Returns: the noise.
    Raises: ParameterError, naming the parameter, its value and the remedy.
    Source: Ghosh, Roughgarden, Sundararajan 2009 (geometric mechanism), truncated.
    Example:
        >>> noise = mz.families.discrete_laplace(scale=2.0)
        >>> round(float(noise.variance), 3)
        7.835
    """
    scale = _scale("scale", scale, most=MAX_LAPLACE_SCALE)
    offsets = np.arange(math.ceil(24 * scale) + 2)
    # Normaliser: sum over Z of exp(-|k|/t) = coth(1/(2t)).
    normaliser = math.tanh(0.5 / scale)
    probabilities = np.exp(-offsets / scale) * normaliser
    return _symmetric(probabilities, bound=bound, name=f"discrete Laplace(scale={scale:g})")


def discrete_gaussian(
    *,
    sigma: float,
    bound: int | None = None,
) -> IntegerNoise:
    """Discrete Gaussian noise: probability proportional to exp(-k**2 / (2 sigma**2)).

    Arguments:
        sigma: > 0, in integer steps; the standard deviation is at most sigma.
        bound: as in `discrete_laplace`.
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
    return _symmetric(powers, bound=bound, name=f"discrete Gaussian(sigma={sigma:g})")


def skellam(
    *,
    variance: float,
    bound: int | None = None,
) -> IntegerNoise:
    """Skellam noise, the difference of two Poisson variables of mean variance / 2: exp(-v)
    I_|k|(v).

    Arguments:
        variance: v > 0, in squared integer steps.
        bound: as in `discrete_laplace`.
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
    return _symmetric(probabilities, bound=bound, name=f"Skellam(variance={variance:g})")
