"""What reports say about the column they came from, with intervals that own up to what they cannot say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from mezzotint.collect.cells import Fit, Nodes, deviance, fit, nodes_of
from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.mean import Interval, Method, check_level, half_width, report_moments, row_variances
from mezzotint.collect.region import Region, sharpened
from mezzotint.core.errors import InfeasibleError, ParameterError

FloatArray = npt.NDArray[np.float64]

DEFAULT_BINS = 10
DEFAULT_PROBABILITIES = (0.05, 0.25, 0.5, 0.75, 0.95)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Histogram:
    """Shares of the clipped inputs between edges.

    Arguments:
        edges: (B+1,) data units.
        share, low, high: (B,) maximum-likelihood share of each bin and its interval. A value on an edge may count to
            either side in the interval.
    """

    edges: FloatArray
    share: FloatArray
    low: FloatArray
    high: FloatArray

    def as_dict(self) -> dict[str, list[float]]:
        """Plain values for JSON."""
        return {name: getattr(self, name).tolist() for name in ("edges", "share", "low", "high")}


@final
@dataclass(frozen=True, kw_only=True)
class Quantiles:
    """Quantiles of the clipped inputs, data units, one `Interval` per probability."""

    probabilities: tuple[float, ...]
    values: tuple[Interval, ...]

    def as_dict(self) -> list[dict[str, float]]:
        """Plain values for JSON."""
        return [
            {"probability": probability, **value.as_dict()}
            for probability, value in zip(self.probabilities, self.values, strict=True)
        ]


@final
@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What one set of reports says about the clipped inputs.

    Arguments:
        n: reports.
        level: confidence of every interval.
        method: "asymptotic" or "safe" (see `estimate`).
        mean: data units; the point is unbiased up to `max_bias`, which the interval includes.
        input_variance: of the clipped inputs, squared data units, by maximum likelihood.
        report_variance: of one decoded report, squared data units.
        privacy_variance: what the mechanism added to one report on average, squared data units: the rest of
            report_variance. Where the table cannot tell input spread from its own noise, this interval is wide.
        max_bias: of the mechanism, data units.
        epsilon: pure epsilon of one report; None when the reports were drawn from a seed, which are not private.
        seeded: whether they were; None where their files do not say. The epsilon then holds if they were not.
        sha256: hash of the table.
        deviance: how far the best fit is from the reports; large against a chi-square of (codes - 1) degrees means
            that the reports were not made by this table.
        histogram, quantiles: where asked for.
    """

    n: int
    level: float
    method: Method
    mean: Interval
    input_variance: Interval
    report_variance: float
    privacy_variance: Interval
    max_bias: float
    epsilon: float | None
    seeded: bool | None
    sha256: str
    deviance: float
    histogram: Histogram | None = None
    quantiles: Quantiles | None = None

    @property
    def standard_error(self) -> float:
        """Of the mean, data units: sampling of the rows and privacy together."""
        return math.sqrt(self.report_variance / self.n)

    @property
    def sampling_error(self) -> Interval:
        """Standard error, data units, that the mean would have without privacy: the rows are a sample themselves."""
        return _per_mean(self.input_variance, self.n)

    @property
    def privacy_error(self) -> Interval:
        """Standard error, data units, that the mechanism alone adds to the mean of these very rows."""
        return _per_mean(self.privacy_variance, self.n)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON: n, mean, ci_low, ci_high, level first."""
        result: dict[str, Any] = {
            "n": self.n,
            "mean": self.mean.value,
            "ci_low": self.mean.low,
            "ci_high": self.mean.high,
            "level": self.level,
            "method": self.method,
            "standard_error": self.standard_error,
            "sampling_error": self.sampling_error.as_dict(),
            "privacy_error": self.privacy_error.as_dict(),
            "input_variance": self.input_variance.as_dict(),
            "privacy_variance": self.privacy_variance.as_dict(),
            "report_variance": self.report_variance,
            "max_bias": self.max_bias,
            "seeded": self.seeded,
            "deviance": self.deviance,
            "sha256": self.sha256,
        }
        if self.epsilon is not None:
            result["epsilon"] = self.epsilon if math.isfinite(self.epsilon) else "inf"
        if self.histogram is not None:
            result["histogram"] = self.histogram.as_dict()
        if self.quantiles is not None:
            result["quantiles"] = self.quantiles.as_dict()
        return result


def _per_mean(variance: Interval, n: int) -> Interval:
    return Interval(
        value=math.sqrt(variance.value / n), low=math.sqrt(variance.low / n), high=math.sqrt(variance.high / n)
    )


def estimate(
    counts: CodeCounts,
    *,
    level: float = 0.95,
    method: Method = "asymptotic",
    histogram: int | Sequence[float] | None = None,
    quantiles: Sequence[float] | None = None,
    allow_seeded: bool = False,
) -> Estimate:
    """Mean, variance and, on request, histogram and quantiles of the clipped inputs behind a set of reports.

    Arguments:
        counts: reports per code (`read_counts`, `CodeCounts.from_codes`).
        level: confidence of each interval, in (0, 1).
        method: "asymptotic": intervals right in the limit of many reports (Student's t for the mean, likelihood ratio
            for the rest). "safe": right at every n (Bernstein for the mean, a finite-sample bound on the
            likelihood ratio for the rest, which then holds for all of them at once); wider.
        histogram: number of equal bins over [lower, upper], or the edges; None for none.
        quantiles: probabilities in (0, 1); None for none.
        allow_seeded: estimate from reports that were drawn from a seed, too: for tests, as such reports are not
            private. The result says so, and states no epsilon.

    Raises:
        ParameterError: seeded reports unless allowed; a level, method, bin or probability that cannot be;
            fewer than 2 reports under "asymptotic".
        InfeasibleError: the reports cannot have come from this table.

    Guarantees:
        The mean is unbiased up to `max_bias`; its interval covers the mean of the population and that of the rows.
        Intervals of variance, histogram and quantiles bound everything the reports leave open: no smoothness is
        assumed, only independent reports of independent rows. Coverage is tested (tests/statistical).
        Costs no privacy: reports are already private.

    Edge cases: two levels identify nothing but the mean: other intervals show the whole rest as open.

    Source: docs/proofs/estimation.md; Agrawal 2020 for the finite-sample bound.
    """
    _check(counts, level, method)
    if counts.seeded and not allow_seeded:
        remedy = "such reports are NOT private; for tests, allow_seeded=True (--allow-seeded) estimates from them"
        raise ParameterError("counts", "drawn from a seed", remedy)
    mechanism = counts.mechanism
    edges = None if histogram is None else _edges(histogram, mechanism.lower, mechanism.upper)
    wanted = None if quantiles is None else _probabilities(quantiles)
    nodes = nodes_of(counts, edges=edges)
    best, peak = sharpened(nodes, fit(nodes))
    region = Region(nodes=nodes, centre=peak, threshold=_threshold(nodes, peak, level, method))
    mean, report_variance = _moments(counts, level, method)
    spread = _variance(nodes, best, region)
    return Estimate(
        n=counts.n,
        level=level,
        method=method,
        mean=mean,
        input_variance=spread,
        report_variance=report_variance,
        privacy_variance=_rest(report_variance, spread, float(row_variances(mechanism).min())),
        max_bias=mechanism.max_bias,
        epsilon=None if counts.seeded else mechanism.epsilon,
        seeded=counts.seeded,
        sha256=mechanism.sha256,
        deviance=best.deviance,
        histogram=None if edges is None else _histogram(nodes, best, region, edges),
        quantiles=None if wanted is None else _quantiles(nodes, best, region, wanted),
    )


def _check(counts: CodeCounts, level: float, method: str) -> None:
    check_level(level)
    if method not in ("asymptotic", "safe"):
        raise ParameterError("method", method, 'use "asymptotic" or "safe"')
    if counts.n == 0:
        raise ParameterError("counts", 0, "there are no reports to estimate from")


def _moments(counts: CodeCounts, level: float, method: Method) -> tuple[Interval, float]:
    """The mean with its interval, and the variance of a report."""
    width = half_width(counts, level=level, method=method)
    if counts.n >= 2:
        mean, variance = report_moments(counts)
    else:
        mean = float(counts.counts @ counts.mechanism.levels)
        variance = float(row_variances(counts.mechanism).max())
    return Interval(value=mean, low=mean - width, high=mean + width), variance


def finite_sample_limit(codes: int, *, level: float) -> float:
    """A deviance that the true distribution exceeds with probability at most 1 - level, at every number of reports.

    Arguments:
        codes: number of codes (or groups of codes), >= 1.
        level: in (0, 1).

    Source: Agrawal 2020, finite-sample concentration of the multinomial in relative entropy.
    """
    # n KL(observed || true) has moment generating function <= (1 - s)^-(k-1), hence by Chernoff's bound
    # P(n KL >= t) <= e^-t (e t / (k-1))^(k-1) for t > k-1; the deviance is 2 n KL.
    freedom, wanted = max(1, codes - 1), -math.log1p(-level)

    def excess(t: float) -> float:
        return t - freedom * (1 + math.log(t / freedom)) - wanted

    return 2 * optimize.root_scalar(excess, bracket=(freedom, 4 * freedom + 4 * wanted + 16)).root


def _threshold(nodes: Nodes, peak: FloatArray, level: float, method: Method) -> float:
    """By how much the deviance may exceed the least."""
    if method == "asymptotic":
        return float(special.chdtri(1, 1 - level))
    limit, least = finite_sample_limit(nodes.counts.size, level=level), deviance(nodes, peak)
    if least >= limit:
        raise InfeasibleError(
            f"estimate: the reports miss this table by a deviance of {least:.4g}, beyond {limit:.4g} at level "
            f"{level:g}; were they made by another one?"
        )
    return limit - least


def _variance(nodes: Nodes, best: Fit, region: Region) -> Interval:
    centre = float(best.masses @ nodes.x)
    return Interval(
        value=float(best.masses @ (nodes.x - centre) ** 2),
        low=region.least_variance(),
        high=region.greatest_variance(),
    )


def _rest(total: float, spread: Interval, floor: float) -> Interval:
    # Var(report) = Var(input) + E[variance added]; the second part is never below the table's least.
    low, value, high = (min(max(total - part, floor), total) for part in (spread.high, spread.value, spread.low))
    return Interval(value=value, low=low, high=high)


# Histogram and quantiles -------------------------------------------------------------------------------------


def _edges(histogram: int | Sequence[float], lower: float, upper: float) -> FloatArray:
    if isinstance(histogram, (int, np.integer)):
        if not 1 <= histogram <= 1000:
            raise ParameterError("histogram", int(histogram), "use 1 to 1000 bins")
        return np.linspace(lower, upper, int(histogram) + 1)
    edges = np.asarray(histogram, dtype=np.float64)
    if edges.ndim != 1 or edges.size < 2 or not (np.diff(edges) > 0).all():
        raise ParameterError("histogram", edges.tolist(), "edges must increase strictly, at least 2 of them")
    if edges[0] < lower or edges[-1] > upper:
        raise ParameterError("histogram", edges.tolist(), f"edges must lie inside [{lower:g}, {upper:g}]")
    return edges


def _probabilities(quantiles: Sequence[float]) -> tuple[float, ...]:
    wanted = tuple(float(probability) for probability in quantiles)
    if not wanted or not all(0 < probability < 1 for probability in wanted):
        raise ParameterError("quantiles", list(wanted), "probabilities lie strictly between 0 and 1; try 0.5")
    return wanted


def _histogram(nodes: Nodes, best: Fit, region: Region, edges: FloatArray) -> Histogram:
    cells = np.concatenate([[0.0], np.cumsum(nodes.mass_per_cell(best.masses))])
    places = np.searchsorted(nodes.breaks, edges)
    bounds = [nodes.inside(low, high) for low, high in pairwise(edges)]
    return Histogram(
        edges=edges,
        share=np.diff(cells[places]),
        low=np.clip([region.least(inner) for inner, _ in bounds], 0, 1),
        high=np.clip([region.greatest(outer) for _, outer in bounds], 0, 1),
    )


def _quantiles(nodes: Nodes, best: Fit, region: Region, wanted: tuple[float, ...]) -> Quantiles:
    return Quantiles(probabilities=wanted, values=tuple(_quantile(nodes, best, region, p) for p in wanted))


def _quantile(nodes: Nodes, best: Fit, region: Region, probability: float) -> Interval:
    breaks, lower = nodes.breaks, float(nodes.breaks[0])
    # Above the last break where even the greatest P(X <= break) falls short; at or below the first where even the
    # least P(X < break) suffices. Both are monotone in the break.
    short = _last(breaks, lambda e: region.greatest(nodes.inside(lower, e)[1]) < probability)
    enough = _last(breaks, lambda e: region.least(nodes.inside(lower, e)[0]) < probability)
    cumulated = np.concatenate([[0.0], np.cumsum(nodes.mass_per_cell(best.masses))])
    place = int(np.clip(np.searchsorted(cumulated, probability) - 1, 0, breaks.size - 2))
    inside = (probability - cumulated[place]) / max(cumulated[place + 1] - cumulated[place], 1e-300)
    return Interval(
        value=float(breaks[place] + np.clip(inside, 0, 1) * (breaks[place + 1] - breaks[place])),
        low=float(breaks[max(short, 0)]),
        high=float(breaks[min(enough + 1, breaks.size - 1)]),
    )


def _last(breaks: FloatArray, holds: Any) -> int:
    """Index of the last break for which a condition, true and then false, holds; 0 if it fails at all after it."""
    low, high = 0, breaks.size - 1
    while low < high:
        middle = (low + high + 1) // 2
        if holds(float(breaks[middle])):
            low = middle
        else:
            high = middle - 1
    return low
