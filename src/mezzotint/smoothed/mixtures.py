"""Divergences of one neighbouring pair when the number of its records that is lost is itself random.

D = sum_s w(s) D(s): s of the pair's records are lost with a log-concave probability w, and D(s) is the
one-dimensional sum of `kernels.tails`. D(s) never grows with s, because dropping one more record at random is
post-processing; so the parts outside the summed window are bounded by D at the nearer end times the mass there.
The utility has no such law, but it is at most the sum of the two divergences, which have.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np

from mezzotint.smoothed import kernels
from mezzotint.smoothed.model import split

_NEGLIGIBLE = math.log(1e-15)


class Mixture(ABC):
    """Weights w(s) on `lowest..highest` and inner values D(s), both as logarithms with error bounds."""

    @property
    @abstractmethod
    def span(self) -> tuple[int, int]:
        """The least and the largest s with positive weight."""

    @property
    @abstractmethod
    def mode(self) -> float:
        """A point at most one away from the largest weight."""

    @abstractmethod
    def log_weights(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log w(s) and error bounds."""

    @abstractmethod
    def log_values(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """log D(s) and error bounds."""

    @abstractmethod
    def log_bounds(self, s: np.ndarray) -> np.ndarray:
        """Upper bounds of log D(s) that never grow with s."""


@final
@dataclass(frozen=True, kw_only=True)
class LostRecords(Mixture):
    """The pair (A, B) loses s records: hypergeometric (`lost` of `records`) or binomial (Poisson sampling).

    Arguments:
        first, second: A and B.
        records: n; used when `rate` is None.
        lost: R of n; used when `rate` is None.
        rate: the chance that a record is lost under Poisson sampling, or None.
        ratio: e^epsilon in two floats.
    """

    first: int
    second: int
    records: int
    lost: int
    rate: Fraction | None
    ratio: tuple[float, float]

    @property
    def _size(self) -> int:
        return self.first + self.second - 1

    @property
    def span(self) -> tuple[int, int]:
        if self.rate is not None:
            return 0, self._size
        return max(0, self.lost - (self.records - self._size)), min(self.lost, self._size)

    @property
    def mode(self) -> float:
        share = self.rate if self.rate is not None else Fraction(self.lost, self.records)
        return float(share * self._size)

    def log_weights(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if self.rate is not None:
            return kernels.binomials(s, float(self._size), split(self.rate))
        return kernels.hypergeometrics(s, float(self._size), float(self.records - self._size), float(self.lost))

    def log_values(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        first = np.full(s.size, float(self.first))
        second = np.full(s.size, float(self.second))
        return kernels.divergences(first, second, s, self.ratio)

    def log_bounds(self, s: np.ndarray) -> np.ndarray:
        values, errors = self.log_values(s)
        return values + errors


@final
@dataclass(frozen=True, kw_only=True)
class LostRecordsUtility(Mixture):
    """The adversary's utility for the pair of `divergence`, with the same weights."""

    divergence: LostRecords

    @property
    def span(self) -> tuple[int, int]:
        return self.divergence.span

    @property
    def mode(self) -> float:
        return self.divergence.mode

    def log_weights(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.divergence.log_weights(s)

    def log_values(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        pair = self.divergence
        return kernels.utilities(float(pair.first), float(pair.second), s, pair.ratio)

    def log_bounds(self, s: np.ndarray) -> np.ndarray:
        pair = self.divergence
        mirrored = dataclasses.replace(pair, first=pair.second, second=pair.first)
        return np.logaddexp(pair.log_bounds(s), mirrored.log_bounds(s))


@final
@dataclass(frozen=True, kw_only=True)
class MissedDraws(Mixture):
    """With replacement: s of T draws fall outside the pair, whose A + B - 1 records are part of n.

    Arguments:
        first, second: A and B, both at least 2.
        records: n.
        draws: T.
        up, down, loss: ln(A/(A-1)), ln(B/(B-1)) and epsilon in two floats each.
    """

    first: int
    second: int
    records: int
    draws: int
    up: tuple[float, float]
    down: tuple[float, float]
    loss: tuple[float, float]

    @property
    def span(self) -> tuple[int, int]:
        return 0, (self.draws if self.first + self.second - 1 < self.records else 0)

    @property
    def mode(self) -> float:
        return float(Fraction(self.draws * (self.records - self.first - self.second + 1), self.records))

    def log_weights(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        outside = self.records - self.first - self.second + 1
        return kernels.binomial_fractions(s, float(self.draws), float(outside), float(self.records))

    def log_values(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return kernels.divergences_replacement(
            float(self.first), float(self.second), self.draws - s, self.up, self.down, self.loss
        )

    def log_bounds(self, s: np.ndarray) -> np.ndarray:
        values, errors = self.log_values(s)
        return values + errors


@dataclass(kw_only=True)
class _Window:
    # The terms summed so far: s from low to high, log of each term, and the worst error bound among them.
    low: int
    high: int
    terms: np.ndarray
    error: float

    @property
    def log_total(self) -> float:
        peak = float(self.terms.max(initial=-math.inf))
        return -math.inf if peak == -math.inf else peak + math.log(math.fsum(np.exp(self.terms - peak)))


def _terms(mixture: Mixture, low: int, high: int) -> tuple[np.ndarray, float]:
    s = np.arange(low, high + 1, dtype=np.float64)
    log_weights, weight_errors = mixture.log_weights(s)
    log_values, value_errors = mixture.log_values(s)
    return log_weights + log_values, float((weight_errors + value_errors).max(initial=0.0))


def _peak(mixture: Mixture, low: int, high: int) -> int:
    # Zooms in on the largest term; a wrong peak costs time, never correctness.
    while high - low > 64:
        s = np.unique(np.linspace(low, high, 17).round())
        terms = mixture.log_weights(s)[0] + mixture.log_values(s)[0]
        if not np.isfinite(terms).any():
            return low
        best = int(np.argmax(terms))
        low, high = int(s[max(0, best - 1)]), int(s[min(s.size - 1, best + 1)])
    return (low + high) // 2


def _mass_bound(mixture: Mixture, s: int, edge: int) -> float:
    # log of the weight from s to the edge (inclusive): geometric beyond the mode, else at most 1.
    towards = 1 if edge >= s else -1
    if s == edge:
        return min(0.0, float(mixture.log_weights(np.array([float(s)]))[0][0]) + 1e-9)
    if (s - mixture.mode) * towards <= 1.0:
        return 0.0
    pair = mixture.log_weights(np.array([float(s), float(s + towards)]))[0]
    fall = float(pair[1] - pair[0])
    return min(0.0, float(pair[0]) + 1e-9 - math.log(-math.expm1(min(fall + 1e-9, -1e-12))))


def log_mixture(mixture: Mixture) -> tuple[float, float]:
    """Natural logarithm of the mixture and a bound on its error.

    Arguments:
        mixture: weights and inner values.
    Returns:
        (log D, bound): the truth lies within log D +- bound. (-inf, 0) when every inner value is 0.
    Guarantees:
        Everything outside the summed window is bounded from above and included in the bound.
    """
    first, last = mixture.span
    center = min(max(_peak(mixture, first, last), first), last)
    terms, error = _terms(mixture, center, center)
    window = _Window(low=center, high=center, terms=terms, error=error)
    right = _extend_right(mixture, window, last)
    left = _extend_left(mixture, window, first)
    total = window.log_total
    if total == -math.inf:
        return -math.inf, 0.0
    outside = math.exp(right - total) + math.exp(left - total)
    return total, window.error + outside + 1e-15 * (1.0 + abs(total))


def _grow(mixture: Mixture, window: _Window, low: int, high: int) -> None:
    terms, error = _terms(mixture, low, high)
    joined = (window.terms, terms) if low > window.high else (terms, window.terms)
    window.terms = np.concatenate(joined)
    window.low, window.high = min(low, window.low), max(high, window.high)
    window.error = max(error, window.error)


def _extend_right(mixture: Mixture, window: _Window, last: int) -> float:
    # Beyond the window D(s) <= D(window.high + 1); returns the log of the bound on what is left out.
    step = 16
    while window.high < last:
        head = float(mixture.log_bounds(np.array([window.high + 1.0]))[0])
        bound = head + _mass_bound(mixture, window.high + 1, last)
        if bound <= window.log_total + _NEGLIGIBLE or head == -math.inf:
            return bound
        _grow(mixture, window, window.high + 1, min(last, window.high + step))
        step *= 2 if step < 1024 else 1
    return -math.inf


def _extend_left(mixture: Mixture, window: _Window, first: int) -> float:
    # To the left D(s) <= 1 (a utility, too), so blocks [s - width, s] are bounded by D(s - width) times their mass
    # until even the whole remaining mass is negligible; a block too heavy for that is summed instead.
    skipped = -math.inf
    step, edge = 16, window.low
    while edge > first:
        goal = window.log_total + _NEGLIGIBLE
        remaining = _mass_bound(mixture, edge - 1, first)
        if remaining <= goal:
            return float(np.logaddexp(skipped, remaining))
        low = max(first, edge - step)
        block = float(mixture.log_bounds(np.array([float(low)]))[0]) + remaining
        if block <= goal - 7.0:
            skipped = float(np.logaddexp(skipped, block))
            edge, step = low, 2 * step
        elif edge == window.low:
            _grow(mixture, window, low, edge - 1)
            edge, step = low, min(2 * step, 1024)
        elif step > 1:
            step //= 2
        else:
            _grow(mixture, window, edge - 1, window.low - 1)
            edge, step = window.low, 16
    return skipped
