"""PBM, the Poisson binomial mechanism: the raw binomial sampler, and its interpolation as a table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, xlog1py, xlogy

from mezzotint.core.arguments import check_count, check_finite, check_range
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import MAX_LEVELS, FloatArray, Mechanism
from mezzotint.core.rounding import table

_SLACK = 2.0**-40
"""Relative amount by which losses computed in floats are raised: far above their rounding error (about 2**-48)."""


@final
@dataclass(frozen=True, kw_only=True)
class PoissonBinomial:
    """The raw mechanism on one value: Z ~ Binomial(trials, 1/2 + theta u) for u = (x - middle) / half range.

    Not a table: its pmf is a polynomial in x. It is described here exactly, to compare with; what this package draws
    from is the table of `pbm`.

    Arguments:
        lower, upper: input range, data units.
        trials: number n of coin tosses; the report is one of n + 1 levels.
        theta: slope of the coin's bias, in (0, 1/2].
    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    Guarantees:
        Losses are the exact worst cases over all pairs of inputs (docs/proofs/families.md), rounded up.
    Edge cases: theta = 1/2 makes an end of the range deterministic: epsilon is inf.
    Source: Chen, Ozgur, Kairouz 2022, Algorithm 2 (their m is `trials`).
    """

    lower: float = -1.0
    upper: float = 1.0
    trials: int = 15
    theta: float = 0.25

    def __post_init__(self) -> None:
        low, high = check_range(self.lower, self.upper)
        object.__setattr__(self, "lower", low)
        object.__setattr__(self, "upper", high)
        object.__setattr__(self, "trials", check_count("trials", self.trials, least=1, most=MAX_LEVELS - 1))
        theta = check_finite("theta", self.theta)
        if not 0 < theta <= 0.5:
            raise ParameterError("theta", theta, "choose it in (0, 1/2]: 1/2 + theta is the largest coin bias")
        object.__setattr__(self, "theta", theta)

    @property
    def _half(self) -> float:
        return (self.upper - self.lower) / 2

    @property
    def levels(self) -> FloatArray:
        """(trials + 1,) decoded outputs, data units: evenly spaced, middle + half range * (z / n - 1/2) / theta."""
        z = np.arange(self.trials + 1.0)
        steps: FloatArray = (z - self.trials / 2) / (self.trials * self.theta)
        return self.lower + self._half * (1 + steps)

    def _scaled(self, x: npt.ArrayLike) -> FloatArray:
        values = np.asarray(x, dtype=np.float64)
        if np.isnan(values).any():
            raise ParameterError("x", "nan", f"input {int(np.argmax(np.isnan(values).ravel()))} is NaN; drop it first")
        return (np.clip(values, self.lower, self.upper) - self.lower) / self._half - 1

    def pmf(self, x: npt.ArrayLike) -> FloatArray:
        """(..., trials + 1) float64 probabilities at inputs x, clipped to the range."""
        n, z = self.trials, np.arange(self.trials + 1)
        coin = (0.5 + self.theta * self._scaled(x))[..., None]
        ways = gammaln(n + 1) - gammaln(z + 1) - gammaln(n - z + 1)
        probabilities = np.exp(ways + xlogy(z, coin) + xlog1py(n - z, -coin))
        return probabilities / probabilities.sum(axis=-1, keepdims=True)

    def mean(self, x: npt.ArrayLike) -> FloatArray:
        """Expected decoded report: the clipped input, exactly."""
        return self.lower + self._half * (1 + self._scaled(x))

    def mse(self, x: npt.ArrayLike) -> FloatArray:
        """Mean squared error at inputs x, squared data units: (c**2 - 4 theta**2 x**2) / (4 n theta**2), c = half."""
        u = self._scaled(x)
        return self._half**2 * (1 - 4 * self.theta**2 * u**2) / (4 * self.trials * self.theta**2)

    @property
    def _toss(self) -> float:
        """log((1/2 + theta) / (1/2 - theta)): pure epsilon of one toss between the two ends of the range."""
        return 2 * math.atanh(2 * self.theta) if self.theta < 0.5 else math.inf

    @property
    def epsilon(self) -> float:
        """Exact pure epsilon, n log((1/2 + theta) / (1/2 - theta)); rounded up."""
        return self.trials * self._toss * (1 + _SLACK)

    def renyi(self, alpha: float) -> float:
        """Worst-case Renyi divergence of order alpha in (0, inf], nats; rounded up.

        Raises:
            ParameterError: an order that is not positive, or NaN.
        """
        order = float(alpha)
        if not order > 0:
            raise ParameterError("alpha", order, "a Renyi order is above 0 (1 is Kullback-Leibler, inf is epsilon)")
        high, low, toss = 0.5 + self.theta, 0.5 - self.theta, self._toss
        if math.isinf(order) or math.isinf(toss):
            # With theta = 1/2 the two ends have disjoint reports.
            return self.epsilon
        # One toss: log(high**a low**(1-a) + low**a high**(1-a)) / (a - 1) = log(high e**t + low e**-t) / (a - 1)
        # with t = (a - 1) log(high/low); high e**t + low e**-t - 1 = 2 sinh(t/2)**2 + 2 theta sinh(t), which does
        # not cancel at small t. n tosses add up.
        t = (order - 1) * toss
        if t == 0:
            one = 2 * self.theta * toss
        elif abs(t) < 1:
            one = math.log1p(2 * math.sinh(t / 2) ** 2 + 2 * self.theta * math.sinh(t)) / (order - 1)
        else:
            one = float(np.logaddexp(math.log(high) + t, math.log(low) - t)) / (order - 1)
        # Below order 1 the two terms differ by a factor 1 - a: that much of their relative accuracy is left.
        return min(self.trials * one * (1 + _SLACK + 2.0**-49 / order), self.epsilon)

    def delta(self, epsilon: float) -> float:
        """Worst-case hockey-stick divergence at `epsilon` >= 0; rounded up.

        Raises:
            ParameterError: a negative epsilon, or NaN.
        """
        asked = float(epsilon)
        if not asked >= 0:
            raise ParameterError("epsilon", asked, "must be 0 or more")
        if asked >= self.epsilon:
            return 0.0
        if self.theta == 0.5:
            return 1.0  # the two ends have disjoint reports
        # Report z has the log ratio (2 z - n) toss between the two ends, and P - e**eps Q = P (1 - e**(eps - ratio)).
        ratio = (2 * np.arange(self.trials + 1) - self.trials) * self._toss * (1 + _SLACK)
        excess = self.pmf(self.upper) * -np.expm1(np.minimum(asked - ratio, 0.0))
        # The logarithm of a probability above 1e-300 adds terms below n log n and 700: their rounding is its error.
        slack = 2.0**-48 * (1024 + 16 * self.trials)
        return min(1.0, float(excess.sum()) * (1 + slack))


def pbm_exact(*, lower: float = -1.0, upper: float = 1.0, trials: int = 15, theta: float = 0.25) -> PoissonBinomial:
    """The raw Poisson binomial mechanism's moments and losses; arguments as `PoissonBinomial`."""
    return PoissonBinomial(lower=lower, upper=upper, trials=trials, theta=theta)


def pbm_rows(raw: PoissonBinomial, knots: int) -> tuple[FloatArray, FloatArray]:
    """Evenly spaced knots and the raw mechanism's float64 pmfs there."""
    grid = np.linspace(raw.lower, raw.upper, knots)
    return grid, raw.pmf(grid)


def pbm(
    *, lower: float = -1.0, upper: float = 1.0, trials: int = 15, theta: float = 0.25, knots: int = 65
) -> Mechanism:
    """The Poisson binomial mechanism as a table: its exact pmf at evenly spaced knots, mixed in between.

    Arguments:
        lower, upper: input range, data units.
        trials: number n of tosses; n + 1 levels (2**b - 1 tosses fill b bits).
        theta: slope of the coin's bias, in (0, 1/2].
        knots: evenly spaced inputs at which the pmf is exact, >= 2.
    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    Guarantees:
        Unbiased up to `max_bias`: the raw mean is linear in x, so mixing keeps it.
        No loss exceeds the raw mechanism's (its rows are among it), up to rounding to integers.
        The variance exceeds the raw one by at most (1 - 1/n) (h/2)**2, h the distance of knots.
    Edge cases: theta = 1/2 has epsilon inf. A probability below 2**-32 becomes one unit.
    Source: Chen, Ozgur, Kairouz 2022; the interpolation is docs/proofs/families.md.
    """
    raw = pbm_exact(lower=lower, upper=upper, trials=trials, theta=theta)
    grid, rows = pbm_rows(raw, check_count("knots", knots, least=2, most=MAX_LEVELS))
    name = f"PBM(trials={raw.trials}, theta={raw.theta:g}, knots={grid.size})"
    return table(knots=grid, levels=raw.levels, probabilities=rows, name=name)


def published_pbm_mse(*, lower: float, upper: float, trials: int, theta: float) -> float:
    """The published bound on PBM's mean squared error for any input: c**2 / (4 n theta**2), c half the range.

    `pbm_exact(...).mse(x)` is exact and meets it at the middle of the range only.

    Source: Chen, Ozgur, Kairouz 2022, Theorem 3.1 for one client.
    """
    raw = pbm_exact(lower=lower, upper=upper, trials=trials, theta=theta)
    return ((raw.upper - raw.lower) / 2) ** 2 / (4 * raw.trials * raw.theta**2)
