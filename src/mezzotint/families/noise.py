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

from mezzotint.core.arguments import check_count, check_finite
from mezzotint.core.errors import ParameterError, wrong_kind
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import MAX_LEVELS, TOTAL, FloatArray, IntArray, Seed

_TAIL_SLACK = 2.0**-30
"""Relative amount by which a tail mass summed in floats is raised."""


def _integers(parameter: str, values: npt.ArrayLike) -> IntArray:
    array = np.asarray(values)
    if array.dtype.kind not in "iu":
        raise wrong_kind(parameter, array, "iu", "need integers; round the data to a lattice first")
    return array.astype(np.int64)


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
        offsets, weights = _integers("offsets", self.offsets), _integers("weights", self.weights)
        far = offsets.size > 0 and max(abs(int(offsets[0])), abs(int(offsets[-1]))) > 2**62
        if offsets.ndim != 1 or offsets.size == 0 or far or (np.diff(offsets) != 1).any():
            raise ParameterError(
                "offsets", offsets.tolist(), "must be consecutive increasing integers within 2**62"
            )
        if weights.shape != offsets.shape or (weights < 0).any() or sum(weights.tolist()) != TOTAL:
            raise ParameterError(
                "weights", weights.tolist(), "need one weight >= 0 per offset, summing to 2**32"
            )
        if weights[0] == 0 or weights[-1] == 0:
            raise ParameterError(
                "weights", weights.tolist(), "drop the outer offsets that have no weight"
            )
        if self.modulus is not None:
            object.__setattr__(
                self, "modulus", check_count("modulus", self.modulus, least=2, most=2**62)
            )
        for field, array in (("offsets", offsets), ("weights", weights)):
            array = array.copy()
            array.setflags(write=False)
            object.__setattr__(self, field, array)

    @property
    def mean(self) -> Fraction:
        """Exact mean of the noise before any wrapping."""
        return Fraction(
            sum(w * o for w, o in zip(self.weights.tolist(), self.offsets.tolist(), strict=True)),
            TOTAL,
        )

    @property
    def variance(self) -> Fraction:
        """Exact variance of the noise before any wrapping."""
        pairs = zip(self.weights.tolist(), self.offsets.tolist(), strict=True)
        return Fraction(sum(w * o * o for w, o in pairs), TOTAL) - self.mean**2

    # Privacy --------------------------------------------------------------------------------------

    def pair(self, shift: int) -> Mechanism:
        """Two rows: the reports of an integer, and of the integer `shift` above it. Its losses are
        those of the pair.

        Arguments:
            shift: >= 1.
        Raises:
            ParameterError: more reports are possible than a table has levels.
        """
        step = check_count("shift", shift, least=1, most=2**62)
        rows = [self.offsets, self.offsets + step]
        if self.modulus is not None:
            rows = [row % self.modulus for row in rows]
        reports = np.unique(np.concatenate(rows)).astype(np.float64)
        if reports.size > MAX_LEVELS:
            raise ParameterError(
                "shift", step, f"makes {reports.size} reports possible, above {MAX_LEVELS}"
            )
        if reports.size == 1:  # a table needs a second level; nothing is ever put there
            reports = np.array([reports[0], reports[0] + 1])
        table = np.zeros((2, reports.size), dtype=np.int64)
        for row, values in zip(table, rows, strict=True):
            np.add.at(row, np.searchsorted(reports, values), self.weights)
        return Mechanism(knots=np.array([0.0, step]), levels=reports, weights=table, name=self.name)

    def _pairs(self, sensitivity: int) -> list[Mechanism]:
        most = check_count("sensitivity", sensitivity, least=1, most=MAX_LEVELS)
        return [self.pair(shift) for shift in range(1, most + 1)]

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
        levels, rows = self.offsets.astype(np.float64), np.stack([self.weights, self.weights])
        return Mechanism(knots=np.array([0.0, 1.0]), levels=levels, weights=rows, name=self.name)

    def sample(self, shape: int | tuple[int, ...], rng: Seed = None) -> IntArray:
        """Independent noise of the given shape, int64; rng None draws from the keystream, a seed is
        not private.
        """
        if self.offsets.size == 1:
            return np.full(shape, int(self.offsets[0]), dtype=np.int64)
        codes = np.asarray(self.table.privatize(np.zeros(shape), rng))
        return self.offsets[codes.astype(np.intp)]

    def privatize(self, x: npt.ArrayLike, rng: Seed = None) -> IntArray:
        """Reports of integers x, any shape, int64: x + noise, modulo `modulus` if there is one.

        Raises:
            ParameterError: x holds no integers, or so large ones that adding noise would overflow.
        """
        values = _integers("x", x)
        if values.size and max(abs(int(values.min())), abs(int(values.max()))) >= 2**62:
            raise ParameterError(
                "x", "beyond 2**62", "integers must leave room for the noise; scale them down"
            )
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
        low, high = (
            check_count(n, v, least=-(2**31), most=2**31)
            for n, v in (("lower", lower), ("upper", upper))
        )
        if not low < high:
            raise ParameterError("lower", low, f"must lie below upper={high}")
        if self.modulus is not None:
            raise ParameterError(
                "modulus",
                self.modulus,
                "wrapped reports are biased; build the noise without modulus",
            )
        points = high - low + 1
        levels = np.arange(points + self.offsets.size - 1.0) + (low + int(self.offsets[0]))
        table = np.zeros((points, levels.size), dtype=np.int64)
        for k in range(points):
            table[k, k : k + self.offsets.size] = self.weights
        return Mechanism(
            knots=np.arange(low, high + 1.0), levels=levels, weights=table, name=self.name
        )


def _symmetric(
    half: FloatArray, tail: FloatArray, *, bound: int | None, modulus: int | None, name: str
) -> IntegerNoise:
    """Integer noise from the probabilities at 0, 1, 2, .. (`half`, then `tail`) of a symmetric
    distribution.
    """
    units = np.rint(half[1:] * TOTAL).astype(np.int64)
    if bound is not None:
        units = units[: check_count("bound", bound, least=1, most=MAX_LEVELS)]
    reach = int(np.flatnonzero(units)[-1]) + 1 if units.any() else 0
    units = units[:reach]
    # The middle takes what is left: the noise stays exactly symmetric, so exactly unbiased.
    weights = np.concatenate([units[::-1], [TOTAL - 2 * int(units.sum())], units])
    outside = 2 * (float(half[reach + 1 :].sum()) + float(tail.sum()))
    return IntegerNoise(
        offsets=np.arange(-reach, reach + 1),
        weights=weights,
        truncated_mass=min(1.0, outside * (1 + _TAIL_SLACK)),
        modulus=modulus,
        name=name,
    )


def _scale(parameter: str, value: object, *, most: float) -> float:
    number = check_finite(parameter, value)
    if number <= 0 or number > most:
        raise ParameterError(
            parameter, number, f"must lie in (0, {most:g}], so that the noise fits a 16-bit table"
        )
    return number


def discrete_laplace(
    *, scale: float, bound: int | None = None, modulus: int | None = None
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
    t = _scale("scale", scale, most=1300.0)
    k = np.arange(math.ceil(24 * t) + 2)
    # Normaliser: sum over Z of exp(-|k|/t) = coth(1/(2t)).
    half = np.exp(-k / t) * math.tanh(0.5 / t)
    tail = math.exp(-k.size / t) / -math.expm1(-1 / t) * math.tanh(0.5 / t)
    return _symmetric(
        half, np.array([tail]), bound=bound, modulus=modulus, name=f"discrete Laplace(scale={t:g})"
    )


def discrete_gaussian(
    *, sigma: float, bound: int | None = None, modulus: int | None = None
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
    s = _scale("sigma", sigma, most=4500.0)
    k = np.arange(math.ceil(40 * s) + 3)
    powers = np.exp(-((k / s) ** 2) / 2)
    powers /= powers[0] + 2 * powers[1:].sum()
    cut = math.ceil(7 * s) + 2
    return _symmetric(
        powers[:cut],
        powers[cut:],
        bound=bound,
        modulus=modulus,
        name=f"discrete Gaussian(sigma={s:g})",
    )


def skellam(
    *, variance: float, bound: int | None = None, modulus: int | None = None
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
    v = _scale("variance", variance, most=4500.0**2)
    deviation = math.sqrt(v)
    powers = np.nan_to_num(ive(np.arange(math.ceil(40 * deviation) + 200), v))
    cut = math.ceil(7 * deviation) + 40
    return _symmetric(
        powers[:cut], powers[cut:], bound=bound, modulus=modulus, name=f"Skellam(variance={v:g})"
    )
