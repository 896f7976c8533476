"""Reading the room's parameters: exact rationals, the loss allowed, counts, and how many records are sampled."""

from __future__ import annotations

import decimal
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from mezzotint.core.errors import ParameterError

#: What is accepted where an exact rational is wanted. A float is read by its shortest decimal: 0.002 is 1/500.
Rational = int | float | str | Fraction

#: How records reach the published histogram.
Sampling = Literal["without_replacement", "with_replacement", "poisson"]

#: Counts beyond this are not exact floats any more.
MAX_RECORDS = 2**53

# Above this likelihood ratio only outcomes that one database cannot produce count, for any admissible n.
_LARGEST_RATIO = Fraction(10) ** 40


def read_rational(parameter: str, value: Rational) -> Fraction:
    """An exact rational from an int, a Fraction, a decimal or "p/q" string, or a float by its shortest decimal.

    Arguments:
        parameter: public name, for the error message.
        value: the number.
    Returns:
        The exact value; the float 0.002 becomes 1/500, not the binary number nearest to it.
    Raises:
        ParameterError: if the value is not a finite number.
    """
    if not isinstance(value, bool):
        try:
            return Fraction(repr(float(value))) if isinstance(value, float) else Fraction(value)
        except (ValueError, TypeError, OverflowError, ZeroDivisionError):
            pass
    raise ParameterError(parameter, value, "must be a finite number; try 0.002, '1/500' or Fraction(1, 500)")


def read_count(parameter: str, value: int) -> int:
    """A whole number from 0 to 2**53, from anything that is integral (floats such as 1e6 included).

    Raises:
        ParameterError: if it is negative, fractional, not a number, or above 2**53.
    """
    try:
        count = int(value)
        exact = not isinstance(value, (bool, str)) and count == value
    except (ValueError, TypeError, OverflowError):
        exact, count = False, 0
    if not exact:
        raise ParameterError(parameter, value, "must be a whole number of records")
    if count < 0:
        raise ParameterError(parameter, value, "must not be negative; give the number of records, 0 or more")
    if count > MAX_RECORDS:
        raise ParameterError(parameter, value, "must be at most 2**53 records, beyond which floats skip integers")
    return count


def read_counts(counts: Iterable[int]) -> tuple[int, ...]:
    """The histogram of a database: one count per possible type, zeros included.

    Raises:
        ParameterError: if there are fewer than two types, no record at all, or a count is bad.
    """
    values = tuple(read_count(f"counts[{i}]", value) for i, value in enumerate(counts))
    if len(values) < 2:
        raise ParameterError("counts", values, "needs at least two types; with one type there is nothing to hide")
    if sum(values) < 1:
        raise ParameterError("counts", values, "needs at least one record")
    if sum(values) > MAX_RECORDS:
        raise ParameterError("counts", values, "must sum to at most 2**53 records, beyond which floats skip integers")
    return values


@dataclass(frozen=True, kw_only=True)
class Loss:
    """The privacy loss that delta is measured at.

    Arguments:
        epsilon: natural logarithm of `ratio`, as a float.
        ratio: e^epsilon as an exact rational, or a lower bound of it within 1e-55 relative: rounding the ratio
            down overstates delta.
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
    high = float(value)
    rest = value - Fraction(high)
    low = float(rest)
    if Fraction(low) > rest:
        low = math.nextafter(low, -math.inf)
    return high, low


def split_log(value: Fraction) -> tuple[float, float]:
    """Logarithm of a rational above zero as two floats, within 1e-31 of its size."""
    with decimal.localcontext() as context:
        context.prec = 70
        logarithm = decimal.Decimal(value.numerator).ln() - decimal.Decimal(value.denominator).ln()
    return split(Fraction(logarithm))


@functools.lru_cache(maxsize=4096)
def split_log_step(count: int) -> tuple[float, float]:
    """ln(count / (count - 1)) as two floats, for count >= 2."""
    return split_log(Fraction(count, count - 1))


@functools.lru_cache(maxsize=4096)
def _loss_from_epsilon(epsilon: float) -> Loss:
    with decimal.localcontext() as context:
        context.prec = 60
        exponential = decimal.Decimal(epsilon).exp()
    # The 60th digit is rounded to nearest; one part in 1e56 less is surely below e^epsilon, and so is 1.
    ratio = max(Fraction(1), Fraction(exponential) * (1 - Fraction(1, 10**56)))
    return Loss(epsilon=epsilon, ratio=ratio, log_ratio=(epsilon, 0.0))


def read_loss(*, epsilon: float | None, ratio: Rational | None) -> Loss:
    """The loss from exactly one of `epsilon` (a float > 0) and `ratio` (a rational >= 1, e^epsilon).

    Raises:
        ParameterError: if none or both are given, epsilon is not in (0, inf), or the ratio is below 1.
    """
    if ratio is None and epsilon is not None:
        return _read_epsilon(epsilon)
    if ratio is not None and epsilon is None:
        exact = read_rational("ratio", ratio)
        if exact < 1:
            raise ParameterError("ratio", ratio, "must be at least 1 (ratio is e**epsilon); try ratio='51/49'")
        log_ratio = split_log(exact)
        return Loss(epsilon=log_ratio[0], ratio=exact, log_ratio=log_ratio)
    raise ParameterError("epsilon", epsilon, "give exactly one of epsilon= and ratio= (ratio is e**epsilon)")


def _read_epsilon(epsilon: float) -> Loss:
    try:
        value = float(epsilon)
    except (TypeError, ValueError):
        value = math.nan
    if not 0.0 < value < math.inf:
        raise ParameterError("epsilon", epsilon, "must be a finite number above 0; for total variation use ratio=1")
    if value > 700.0:
        raise ParameterError("epsilon", epsilon, "must be at most 700, where e**epsilon leaves the range of floats")
    return _loss_from_epsilon(value)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """How many of n records are sampled, and how.

    Arguments:
        records: n.
        sampled: T, the number of draws; 0 for Poisson sampling, where it is random.
        rate: T / n, or the Poisson rate; without replacement and under Poisson sampling, the exact chance that a
            given record is sampled.
        sampling: how.
    """

    records: int
    sampled: int
    rate: Fraction
    sampling: Sampling

    @property
    def lost(self) -> int:
        """R = n - T, the records that are lost when sampling without replacement."""
        return self.records - self.sampled


def read_sampling(*, replacement: bool, poisson: bool) -> Sampling:
    """The sampling scheme from the two public switches, which exclude each other."""
    if replacement and poisson:
        raise ParameterError("poisson", poisson, "excludes replacement=True; choose one way of sampling")
    return "with_replacement" if replacement else "poisson" if poisson else "without_replacement"


def read_loss_rate(loss_rate: Rational) -> Fraction:
    """The share of records lost, in [0, 1)."""
    exact = read_rational("loss_rate", loss_rate)
    if not 0 <= exact < 1:
        raise ParameterError("loss_rate", loss_rate, "must lie in [0, 1): the share of records that is lost")
    return exact


def read_sample(
    records: int, *, loss_rate: Rational | None, sampled: int | None, sampling: Sampling = "without_replacement"
) -> Sample:
    """How many records are sampled, from exactly one of `loss_rate` and `sampled`.

    Arguments:
        records: n, at least 1.
        loss_rate: share lost, in [0, 1); T = ceil((1 - loss_rate) n) exactly, or the Poisson rate 1 - loss_rate.
        sampled: T itself, at least 1 and, without replacement, at most n.
    Raises:
        ParameterError: if none or both are given, or the one given is out of range.
    """
    if loss_rate is not None and sampled is None:
        rate = 1 - read_loss_rate(loss_rate)
        if sampling == "poisson":
            return Sample(records=records, sampled=0, rate=rate, sampling=sampling)
        draws = math.ceil(rate * records)
    elif sampled is not None and loss_rate is None:
        draws = _read_draws(records, sampled, sampling)
    else:
        raise ParameterError("loss_rate", loss_rate, "give exactly one of loss_rate= and sampled=")
    return Sample(records=records, sampled=draws, rate=Fraction(draws, records), sampling=sampling)


def _read_draws(records: int, sampled: int, sampling: Sampling) -> int:
    if sampling == "poisson":
        raise ParameterError("sampled", sampled, "is random under Poisson sampling; give loss_rate instead")
    draws = read_count("sampled", sampled)
    if draws < 1:
        raise ParameterError("sampled", sampled, "must be at least 1: with 0 records nothing is published")
    if draws > records and sampling == "without_replacement":
        raise ParameterError("sampled", sampled, f"more than the {records} records present; try replacement=True")
    return draws
