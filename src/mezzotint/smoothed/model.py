"""Inputs and results of smoothed privacy: exact numbers, corners of a hull, records."""

from __future__ import annotations

import decimal
import functools
import math
import sys
from collections.abc import Iterable, Mapping, Sequence, Set, Sized
from dataclasses import dataclass, field
from fractions import Fraction
from numbers import Integral, Real
from typing import Literal, cast

import flint
import numpy as np
from scipy import optimize

from mezzotint.core.errors import ParameterError, as_real
from mezzotint.core.records import Record

Rational = Fraction | int | float | str
"""What is accepted where an exact rational is wanted.

A float is read by its shortest decimal: 0.002 is 1/500.
"""

Sampling = Literal["without_replacement", "with_replacement", "poisson"]
"""How records reach the published histogram."""

MAX_RECORDS = 2**53
"""Counts beyond this are not exact floats any more."""

# Above this likelihood ratio only outcomes that one database cannot produce count, for any
# admissible n.
_LARGEST_RATIO = Fraction(10) ** 40


def read_rational(parameter: str, value: Rational) -> Fraction:
    """An exact rational from an int, a Fraction, a decimal or "p/q" string, or a float.

    Arguments:
        parameter: public name, for the error message.
        value: the number.
    Returns:
        The exact value; the float 0.002 becomes 1/500, not the binary number nearest to it.
    Raises:
        ParameterError: if the value is not a finite number.
    Example:
        >>> mz.smoothed.read_rational("loss_rate", "0.01")
        Fraction(1, 100)
        >>> mz.smoothed.read_rational("loss_rate", 0.1)
        Fraction(1, 10)
    """
    remedy = "must be a finite number or a ratio of two, such as 0.002 or 1/500"
    if isinstance(value, bool):
        raise ParameterError(parameter, value, remedy)
    try:
        if isinstance(value, Integral):
            return Fraction(int(value))
        if isinstance(value, float):
            return Fraction(repr(float(value)))
        return Fraction(value)
    except (ValueError, TypeError, OverflowError, ZeroDivisionError):
        raise ParameterError(parameter, value, remedy) from None


def read_count(parameter: str, value: int, *, least: int = 0) -> int:
    """A whole number from `least` to 2**53, from anything that is integral, floats included."""
    try:
        count = int(value)
        is_exact = not isinstance(value, (bool, str)) and count == value
    except (ValueError, TypeError, OverflowError):
        count = 0
        is_exact = False
    if not is_exact:
        raise ParameterError(parameter, value, "must be a whole number of records")
    if count < least:
        raise ParameterError(parameter, value, f"must be at least {least}")
    if count > MAX_RECORDS:
        remedy = "must be at most 2**53 records, beyond which floats skip integers"
        raise ParameterError(parameter, value, remedy)
    return count


def read_each(parameter: str, counts: Iterable[int]) -> tuple[int, ...]:
    """Whole numbers; an error says which one is none."""
    return tuple(read_count(f"{parameter}[{index}]", count) for index, count in enumerate(counts))


def read_counts(counts: Iterable[int]) -> tuple[int, ...]:
    """The histogram of a database: one count per possible type, zeros included."""
    if not isinstance(counts, Iterable) or isinstance(counts, str):
        remedy = "needs a sequence of whole numbers, one per type; try (5, 3)"
        raise ParameterError("counts", counts, remedy)
    values = read_each("counts", counts)
    if len(values) < 2:
        remedy = "needs at least two types; with one type there is nothing to hide"
        raise ParameterError("counts", values, remedy)
    if sum(values) < 1:
        raise ParameterError("counts", values, "needs at least one record")
    if sum(values) > MAX_RECORDS:
        remedy = "must sum to at most 2**53 records, beyond which floats skip integers"
        raise ParameterError("counts", values, remedy)
    return values


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The privacy loss that delta is measured at.

    Arguments:
        epsilon: the least float at or above the natural logarithm of `ratio`.
        ratio: e^epsilon as an exact rational, or a lower bound of it within 1e-55 relative:
            rounding the ratio down overstates delta.
        log_ratio: a lower bound of the logarithm, within 1e-31, as two floats.
    """

    epsilon: float
    ratio: Fraction
    log_ratio: tuple[float, float]

    @property
    def parts(self) -> tuple[float, float]:
        """The ratio as two floats for the kernels, rounded down."""
        return split(min(self.ratio, _LARGEST_RATIO))


@functools.lru_cache(maxsize=4096)
def split(value: Fraction) -> tuple[float, float]:
    """The largest double-double (to 2**-105 relative) that does not exceed a rational."""
    leading = float(value)
    remainder = value - Fraction(leading)
    trailing = float(remainder)
    if Fraction(trailing) > remainder:
        trailing = math.nextafter(trailing, -math.inf)
    return leading, trailing


def split_log(value: Fraction) -> tuple[float, float]:
    """Logarithm of a rational above zero as two floats, within 1e-31 of its size."""
    with decimal.localcontext() as context:
        context.prec = 70
        log_numerator = decimal.Decimal(value.numerator).ln()
        log_denominator = decimal.Decimal(value.denominator).ln()
        logarithm = log_numerator - log_denominator
    return split(Fraction(logarithm))


@functools.lru_cache(maxsize=4096)
def split_log_step(count: int) -> tuple[float, float]:
    """ln(count / (count - 1)) as two floats, for count >= 2."""
    return split_log(Fraction(count, count - 1))


_LARGEST_EPSILON = 700.0


def read_loss(*, epsilon: float | None, ratio: Rational | None) -> Loss:
    """The loss from exactly one of `epsilon` (a float > 0) and `ratio` (a rational >= 1)."""
    if ratio is None and epsilon is not None:
        return _loss_of_epsilon(epsilon)
    if ratio is not None and epsilon is None:
        return _loss_of_ratio(ratio)
    raise ParameterError("epsilon", epsilon, "give exactly one of epsilon= and ratio= (e^epsilon)")


def _loss_of_epsilon(epsilon: float) -> Loss:
    """The loss of an epsilon, nats, its ratio a rational that is not above e**epsilon, so that no
    divergence is understated.
    """
    remedy = "must be a finite number above 0; for total variation use ratio=1"
    value = as_real("epsilon", epsilon, lambda number: 0.0 < number < math.inf, remedy)
    if value > _LARGEST_EPSILON:
        remedy = "must be at most 700, where e**epsilon leaves the range of floats"
        raise ParameterError("epsilon", epsilon, remedy)
    with decimal.localcontext() as context:
        context.prec = 60
        exponential = decimal.Decimal(value).exp()
    # The 60th digit is rounded to nearest; one part in 1e56 less is surely below e^epsilon, and so
    # is 1.
    one_less = 1 - Fraction(1, 10**56)
    exact = max(Fraction(1), Fraction(exponential) * one_less)
    return Loss(epsilon=value, ratio=exact, log_ratio=(value, 0.0))


def _loss_of_ratio(ratio: Rational) -> Loss:
    exact = read_rational("ratio", ratio)
    if exact < 1:
        raise ParameterError("ratio", ratio, "must be at least 1 (ratio is e**epsilon); try 51/49")
    high, low = split_log(exact)
    epsilon = high
    # But for 1, logarithms of rationals are irrational: never a float themselves.
    if exact != 1 and low >= -1e-30 * high:
        epsilon = math.nextafter(high, math.inf)
    return Loss(epsilon=epsilon, ratio=exact, log_ratio=(high, low))


@dataclass(frozen=True, kw_only=True)
class Sample:
    """How many of n records are sampled, and how.

    Arguments:
        records, sampled: n and T, the number of draws; 0 for Poisson sampling, where it is random.
        rate: T / n or the Poisson rate: but for sampling with replacement, the chance that a record
            is sampled.
    """

    records: int
    sampled: int
    rate: Fraction
    sampling: Sampling

    @property
    def lost(self) -> int:
        """R = n - T, the records that are lost when sampling without replacement."""
        return self.records - self.sampled


def read_loss_rate(loss_rate: Rational) -> Fraction:
    """The share of records lost, in [0, 1)."""
    exact = read_rational("loss_rate", loss_rate)
    if not 0 <= exact < 1:
        remedy = "must lie in [0, 1): the share of records that is lost"
        raise ParameterError("loss_rate", loss_rate, remedy)
    return exact


def read_sample(
    records: int,
    *,
    loss_rate: Rational | None,
    sampled: int | None,
    replacement: bool = False,
    poisson: bool = False,
) -> Sample:
    """How many records are sampled: T itself, or T = ceil((1 - loss_rate) n) exactly.

    Or the Poisson rate.
    """
    if replacement and poisson:
        remedy = "excludes replacement=True; choose one way of sampling"
        raise ParameterError("poisson", poisson, remedy)
    if (loss_rate is None) == (sampled is None):
        raise ParameterError("loss_rate", loss_rate, "give exactly one of loss_rate= and sampled=")
    if poisson:
        if sampled is not None or loss_rate is None:
            remedy = "is random under Poisson sampling; give loss_rate instead"
            raise ParameterError("sampled", sampled, remedy)
        sampling_rate = 1 - read_loss_rate(loss_rate)
        return Sample(records=records, sampled=0, rate=sampling_rate, sampling="poisson")
    if loss_rate is not None:
        draw_count = math.ceil((1 - read_loss_rate(loss_rate)) * records)
    else:
        draw_count = _read_draws(sampled, records, replacement)
    return Sample(
        records=records,
        sampled=draw_count,
        rate=Fraction(draw_count, records),
        sampling="with_replacement" if replacement else "without_replacement",
    )


def _read_draws(sampled: int | None, records: int, replacement: bool) -> int:
    """The number T of draws, at least 1; without replacement at most all records."""
    assert sampled is not None
    draw_count = read_count("sampled", sampled)
    if draw_count < 1:
        remedy = "must be at least 1: with 0 records nothing is published"
        raise ParameterError("sampled", sampled, remedy)
    if draw_count > records and not replacement:
        remedy = (
            f"more than the {records} records present; use at most these, or draw with replacement"
        )
        raise ParameterError("sampled", sampled, remedy)
    return draw_count


Distribution = tuple[Fraction, ...]


_FLOAT_ERROR = Fraction(1, 2**52)
"""How far floats that were divided by their sum may miss 1, for each of them.

The sum of k errs by (k - 1) 2**-53 at most, its quotients and their shortest decimals by 2**-53 each,
relatively.
"""


def read_vertices(vertices: Sequence[Rational | Sequence[Rational]]) -> tuple[Distribution, ...]:
    """Distributions over the types, exactly.

    Each is a share of the first of two types, or one chance per type: their number is the number of
    types, which is stated nowhere else, so that impossible ones need a 0. Chances sum to 1 exactly, but
    for floats, which rounding may keep from it: then the largest takes the difference. So no type
    that was stated to be impossible becomes possible, and none of any chance impossible.
    """
    is_unordered = isinstance(vertices, (Real, str, Mapping, Set))
    if is_unordered or not isinstance(vertices, Sized) or len(vertices) == 0:
        remedy = "needs a sequence of one or more distributions; try (0.0554,)"
        raise ParameterError("vertices", vertices, remedy)
    distributions = [
        _read_vertex(f"vertices[{index}]", vertex) for index, vertex in enumerate(vertices)
    ]
    if len({len(row) for row in distributions}) > 1:
        raise ParameterError("vertices", vertices, "must all have the same number of types")
    return tuple(distributions)


def _read_vertex(name: str, vertex: Rational | Sequence[Rational]) -> Distribution:
    """One distribution: a number is the share of the first of two types, anything else one chance
    for each type, exact but for floats.
    """
    if isinstance(vertex, (Mapping, Set)):
        raise ParameterError(name, vertex, "needs the probabilities in the order of the types")
    if isinstance(vertex, (int, float, Real, str)):
        share = read_rational(name, vertex)
        return _checked_distribution(name, vertex, [share, 1 - share], allowed_miss=Fraction(0))
    if not isinstance(cast("object", vertex), Iterable):
        raise ParameterError(name, vertex, "needs a probability, or one for each type")
    stated = list(vertex)
    chances = [read_rational(name, value) for value in stated]
    float_count = sum(isinstance(value, float) for value in stated)
    return _checked_distribution(name, stated, chances, allowed_miss=float_count * _FLOAT_ERROR)


def _checked_distribution(
    name: str,
    stated: Rational | Sequence[Rational],
    chances: list[Fraction],
    *,
    allowed_miss: Fraction,
) -> Distribution:
    """Chances that sum to 1; the largest takes what they miss, up to `allowed_miss`."""
    if any(not 0 <= chance <= 1 for chance in chances):
        raise ParameterError(name, stated, "must lie in [0, 1]: the probability of a type")
    if len(chances) < 2:
        raise ParameterError(name, stated, "needs one probability for each of two or more types")
    miss = 1 - sum(chances, Fraction(0))
    if abs(miss) > allowed_miss:
        remedy = (
            "needs one probability per type, summing to 1 exactly: write thirds as 1/3, or divide "
            "floats by their sum"
        )
        raise ParameterError(name, stated, remedy)
    largest = chances.index(max(chances))
    chances[largest] += miss
    return tuple(chances)


def hull_vertices(points: Sequence[Distribution]) -> tuple[Distribution, ...]:
    """The points that are not convex combinations of the others, decided in exact rationals.

    Arguments:
        points: distributions over the same types.
    Returns:
        The corners, in the order given, without repetitions. A point is dropped only with an exact
        combination in hand, so a true corner is never lost.
    Source: "Smoothed Differential Privacy", Proposition 7.
    Example:
        >>> from fractions import Fraction
        >>> points = [(Fraction(k, 4), Fraction(4 - k, 4)) for k in range(5)]
        >>> len(mz.smoothed.hull_vertices(points))
        2
    """
    corners = list(dict.fromkeys(points))
    if not corners:
        raise ParameterError("points", corners, "needs at least one distribution")
    if len(corners[0]) == 2:
        ends = (min(corners), max(corners))
        return tuple(point for point in corners if point in ends)
    for point in list(corners):
        vertices = [vertex for vertex in corners if vertex != point]
        if vertices and in_hull(point, vertices):
            corners = vertices
    return tuple(corners)


def in_hull(point: Distribution, others: Sequence[Distribution]) -> bool:
    """Whether a point is exactly a convex combination of others.

    False when no combination could be proved.
    """
    if point in others:
        return True
    # A vertex solution of the linear program uses at most one point per type; those are solved for
    # exactly.
    columns = [[float(value) for value in vertex] for vertex in others]
    target = [float(value) for value in point]
    program = optimize.linprog(
        np.zeros(len(others)),
        A_eq=np.array(columns).T,
        b_eq=np.array(target),
        method="highs-ds",
    )
    if program.status != 0:
        return False
    weighted = zip(others, program.x, strict=True)
    combined = [vertex for vertex, weight in weighted if weight > 1e-12]
    equations = [
        [flint.fmpq(*chance.as_integer_ratio()) for chance in chances]
        for chances in zip(*combined, point, strict=True)
    ]
    reduced, rank = flint.fmpq_mat(equations).rref()
    # Exactly one solution: every column but the last has a pivot.
    pivots = [reduced[pivot, pivot] for pivot in range(rank)]
    if rank != len(combined) or any(pivot != 1 for pivot in pivots):
        return False
    return all(reduced[pivot, rank] >= 0 for pivot in range(rank))


Status = Literal["closed", "bracketed", "sampled"]
"""closed: the value is exact up to the stated bound. bracketed: the truth lies between lower and
upper. sampled: the value is a Monte Carlo estimate."""

LOG_TEN = math.log(10.0)


_LOG_ROUNDING = 4e-16
"""Relative error of a change of base."""


def log_of(value: float) -> float:
    """The natural logarithm; -inf where it has none."""
    if value <= 0.0:
        return -math.inf
    return math.log(value)


def to_log10(value: float, error: float = 0.0) -> float:
    """log10 from a natural logarithm plus an error bound on it.

    Rounded upwards when the bound is positive.
    """
    if value == -math.inf:
        return -math.inf
    if error == 0.0:
        return value / LOG_TEN
    bound = (value + error) / LOG_TEN
    error = math.copysign(_LOG_ROUNDING, bound)
    return math.nextafter(bound * (1.0 + error), math.inf)


def log10_down(value: float) -> float:
    """log10 from a natural logarithm, rounded downwards."""
    if value == -math.inf:
        return value
    rounding_error = abs(value) * 2e-16
    return math.nextafter(value / LOG_TEN - rounding_error, -math.inf)


@dataclass(frozen=True, kw_only=True)
class Profile(Record):
    """The database-dependent delta at one epsilon.

    Arguments:
        log10_delta: log10 of delta(x); -inf when delta is exactly 0.
        log10_upper: never below the true value; the number to state as a guarantee.
        status: "closed" (the two differ by rounding only) or "bracketed".
        log10_worst_case: log10 of the delta of ordinary differential privacy, the maximum over all
            databases.
        records, sampled: n and T (0 for Poisson sampling).
        epsilon: the loss.
        pair: the counts (A, B) of the worst neighbours: A records of one type against A - 1, B - 1
            against B of the other; None where a closed form needs no pair.
        reason: one sentence.

    Example:
        >>> profile = mz.smoothed.profile([205, 190], loss_rate="0.01", epsilon=1.0)
        >>> 0 < profile.delta < 1, profile.log10_delta <= profile.log10_upper
        (True, True)
    """

    log10_delta: float
    log10_upper: float
    status: Status
    log10_worst_case: float
    records: int
    sampled: int
    epsilon: float
    pair: tuple[int, int] | None
    reason: str

    @property
    def delta(self) -> float:
        """The upper bound as a plain float, rounded up (never 0 unless delta is)."""
        return upper_power(self.log10_upper)


def profile_of(
    sample: Sample,
    loss: Loss,
    value: float,
    upper: float,
    *,
    worst: float,
    reason: str,
    pair: tuple[int, int] | None = None,
    status: Status = "closed",
) -> Profile:
    """The record of a delta and its upper bound, and of the worst case; all as log10."""
    return Profile(
        log10_delta=min(value, upper),
        log10_upper=upper,
        status=status,
        log10_worst_case=worst,
        records=sample.records,
        sampled=sample.sampled,
        epsilon=loss.epsilon,
        pair=pair,
        reason=reason,
    )


@dataclass(frozen=True, kw_only=True)
class Utility(Record):
    """The adversary's adjusted utility for one database.

    Arguments:
        log10: log10 of the utility; equal to `log10_upper` when only bracketed.
        log10_upper: never below the true value.
        status: "closed" or "bracketed".
        records, sampled, threshold: n, T, and the accuracy below which a guess counts nothing.
        reason: one sentence.

    Example:
        >>> found = mz.smoothed.utility([205, 190], threshold="0.9", loss_rate="0.01")
        >>> found.log10 <= found.log10_upper
        True
    """

    log10: float
    log10_upper: float
    status: Status
    records: int
    sampled: int
    threshold: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class Expected(Record):
    """Smoothed delta: the largest expectation of delta(x) over a set of distributions.

    Arguments:
        log10_delta: log10 of the value (the best found; a mean of exact inner values when sampled).
        log10_lower, log10_upper: rigorous bounds of the true value, rounding included.
        certified: whether the two differ by no more than rounding.
        status: "closed", "bracketed" or "sampled".
        confidence: for a sampled value, its level and log10 interval (low, high); else None.
        records, sampled, epsilon: n, T and the loss.
        vertices: the corners of the hull of the distributions, as given; floats made to sum to 1.
        split: how many records follow each of them in the worst composition found.
        method: "single vertex", "certificate", "all splits", "enumeration", "bracket" or "Monte
            Carlo".
        log10_worst_case: log10 of the delta of ordinary differential privacy.
        reason: one sentence.
        seconds: time spent.
        exact: delta itself, where it is a known rational.

    Example:
        >>> result = mz.smoothed.expected(n=50, vertices=["0.3"], loss_rate="0.1", epsilon=1.0)
        >>> result.log10_lower <= result.log10_delta <= result.log10_upper, result.certified
        (True, True)
    """

    log10_delta: float
    log10_lower: float
    log10_upper: float
    certified: bool
    status: Status
    confidence: tuple[float, float, float] | None
    records: int
    sampled: int
    epsilon: float
    vertices: tuple[tuple[float, ...], ...]
    split: tuple[int, ...]
    method: str
    log10_worst_case: float
    reason: str
    seconds: float
    exact: Fraction | None = field(default=None, repr=False)

    @property
    def delta(self) -> float:
        """The upper bound as a plain float, rounded up (never 0 unless delta is)."""
        return upper_power(self.log10_upper)


def upper_power(log10: float) -> float:
    """10**log10 as a float that does not understate it.

    The smallest normal float where it would underflow.
    """
    if log10 == -math.inf:
        return 0.0
    power = 10.0**log10 * (1.0 + 1e-12)
    return min(1.0, max(power, sys.float_info.min))


def log10_fraction(value: Fraction) -> float:
    """log10 of a rational in [0, 1], to a few roundings."""
    if value == 0:
        return -math.inf
    gap = 1 - value
    if gap < Fraction(1, 2):
        return math.log1p(-float(gap)) / LOG_TEN
    return math.log10(value.numerator) - math.log10(value.denominator)


def rounded_up(log10: float) -> float:
    """An upper bound of a log10 of a chance that was computed with a few roundings."""
    return min(0.0, log10 + 2e-15 * (1.0 + abs(log10)))


def log10_worst_case(sample: Sample) -> float:
    """log10 of delta for the sampling histogram over all databases, at every finite epsilon.

    One record differs, and the outputs are equal unless it is sampled; so delta is at most the
    chance that it is. A database in which its type occurs once reaches that: the outcome then shows
    the type, or it does not.
    Source: "Smoothed Differential Privacy", Theorems 3 (iii) and 5 (the latter corrected).
    """
    if sample.sampling != "with_replacement":
        return log10_fraction(sample.rate)
    if sample.records == 1:
        return 0.0
    missed = sample.sampled * math.log1p(-1.0 / sample.records)
    return math.log(-math.expm1(missed)) / LOG_TEN


def log10_worst_case_noisy(
    sample: Sample,
    noise_ratio: Fraction,
    loss: Loss,
) -> float:
    """An upper bound of the same for the histogram with exponential-mechanism noise (Algorithm 4).

    Replacing one sampled record lowers one count of the histogram and raises another by one. That
    changes the powers of r by r^-2 at most, and Z(h + 1) / Z(h) = (1 + r - r^(h+2)) / (1 + r -
    r^(h+1)) is at most 1 + r - r^2; so the noise alone has ratio B = (1 + r - r^2) / r^2. Sampling
    at rate eta leaves the event that the record is missed, so for E = 1 + eta (E' - 1) the
    divergence is at most eta times that of the noise at E', which for a mechanism of ratio B is at
    most (B - E') / (1 + B), its value for randomized response; -inf for pure privacy.
    """
    bound = noise_bound(noise_ratio)
    inner = 1 + (loss.ratio - 1) / sample.rate
    if inner >= bound:
        return -math.inf
    divergence = (bound - inner) / (1 + bound)
    return log10_fraction(sample.rate * divergence)


def noise_bound(noise_ratio: Fraction) -> Fraction:
    """The largest likelihood ratio of the noise alone when one sampled record is replaced.

    (1 + r - r^2) / r^2.
    """
    return (1 + noise_ratio - noise_ratio**2) / noise_ratio**2
