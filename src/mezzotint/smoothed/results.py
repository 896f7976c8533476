"""The room's results: frozen records that carry a value, a sound upper bound, and how both were obtained."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

#: certified: the value is exact up to the stated bound. bracketed: the truth lies between lower and upper.
#: sampled: the value is a Monte Carlo estimate.
Status = Literal["closed", "bracketed", "sampled"]

LOG_TEN = math.log(10.0)


def to_log10(value: float, error: float = 0.0) -> float:
    """log10 from a natural logarithm plus an error bound on it; rounded upwards when the bound is positive."""
    if value == -math.inf:
        return -math.inf
    if error == 0.0:
        return value / LOG_TEN
    return math.nextafter((value + error) / LOG_TEN * (1.0 + math.copysign(4e-16, value + error)), math.inf)


def log10_down(value: float) -> float:
    """log10 from a natural logarithm, rounded downwards."""
    return value if value == -math.inf else math.nextafter(value / LOG_TEN - abs(value) * 2e-16, -math.inf)


@dataclass(frozen=True, kw_only=True)
class Profile:
    """The database-dependent delta at one epsilon.

    Arguments:
        log10_delta: log10 of delta(x); -inf when delta is exactly 0.
        log10_upper: never below the true value; the number to state as a guarantee.
        status: "closed" (the two differ by rounding only) or "bracketed".
        log10_worst_case: log10 of the delta of ordinary differential privacy, the maximum over all databases.
        records, sampled: n and T (0 for Poisson sampling).
        epsilon: the loss.
        pair: the counts (A, B) of the worst neighbours: A records of one type against A - 1, B - 1 against B of
            the other; None where a closed form needs no pair.
        reason: one sentence.
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


@dataclass(frozen=True, kw_only=True)
class Utility:
    """The adversary's adjusted utility for one database.

    Arguments:
        log10: log10 of the utility; equal to `log10_upper` when only bracketed.
        log10_upper: never below the true value.
        status: "closed" or "bracketed".
        records, sampled, threshold: n, T, and the accuracy below which a guess counts nothing.
        reason: one sentence.
    """

    log10: float
    log10_upper: float
    status: Status
    records: int
    sampled: int
    threshold: float
    reason: str


@dataclass(frozen=True, kw_only=True)
class Expected:
    """Smoothed delta: the largest expectation of delta(x) over a set of distributions.

    Arguments:
        log10_delta: log10 of the value (the best found; a mean of exact inner values when sampled).
        log10_lower, log10_upper: rigorous bounds of the true value, rounding included.
        certified: whether the two differ by no more than rounding.
        status: "closed", "bracketed" or "sampled".
        confidence: for a sampled value, its level and log10 interval (low, high); else None.
        records, sampled, epsilon: n, T and the loss.
        vertices: the corners of the hull of the distributions, as given.
        split: how many records follow each of them in the worst composition found.
        method: "single vertex", "certificate", "all splits", "enumeration", "bracket" or "Monte Carlo".
        log10_worst_case: log10 of the delta of ordinary differential privacy.
        reason: one sentence.
        seconds: time spent.
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

    @property
    def delta(self) -> float:
        """The upper bound as a plain float, rounded up (never 0 unless delta is)."""
        return upper_power(self.log10_upper)


def upper_power(log10: float) -> float:
    """10**log10 as a float that does not understate it: the smallest normal float where it would underflow."""
    if log10 == -math.inf:
        return 0.0
    return min(1.0, max(10.0**log10 * (1.0 + 1e-12), 2.2250738585072014e-308))
