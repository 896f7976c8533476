"""Smoothed delta: the largest expectation of delta(x) when every record follows some distribution of a set."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from fractions import Fraction

from scipy import optimize

from mezzotint.core.errors import ParameterError
from mezzotint.smoothed import many_types
from mezzotint.smoothed.many_types import search
from mezzotint.smoothed.model import (
    LOG_TEN,
    Distribution,
    Expected,
    Loss,
    Rational,
    Sample,
    Status,
    hull_vertices,
    log10_down,
    log10_worst_case,
    read_count,
    read_loss,
    read_loss_rate,
    read_rational,
    read_sample,
    read_vertices,
    to_log10,
)

#: Level of the confidence interval of sampled results.
CONFIDENCE = 0.99


def expected(
    *,
    n: int,
    vertices: Sequence[Rational | Sequence[Rational]],
    loss_rate: Rational | None = None,
    sampled: int | None = None,
    epsilon: float | None = None,
    ratio: Rational | None = None,
    method: str = "auto",
    draws: int = 1000,
    seed: int = 0,
) -> Expected:
    """Smoothed delta of the sampling histogram without replacement.

    Each of the n records independently follows a distribution chosen by an adversary from a set; the result is
    the maximum over all choices of the expectation of delta(x). Only the corners of the set's hull matter.

    Arguments:
        n: number of records.
        vertices: the distributions: for two types the share of the first type, else one chance per type.
            Floats are read by their shortest decimal.
        loss_rate, sampled, epsilon, ratio: as in `profile`.
        method: "auto"; "all_splits" (two types: every composition, O(n^2)); "bracket", "enumeration" or
            "monte_carlo" (three or more types).
        draws, seed: for "monte_carlo", the number of random histograms and the seed.
    Returns:
        An `Expected`. Two types: certified, unless two ends are so close that the search does not close above
        4096 records; then bracketed. Three or more: certified when small enough to enumerate, else bracketed;
        sampled with a 99 % interval (central limit theorem, cut to the bracket) on request.
    Raises:
        ParameterError: if a parameter is out of range.
    Guarantees:
        The truth lies in [log10_lower, log10_upper], whatever the status. The certified search equals the
        comparison of all compositions.
    Edge cases:
        No record lost: 1. A chance of 0: that type never occurs, one record of it would be seen: the worst case.
    Source: "Smoothed Differential Privacy", Definition 3, Proposition 7, Algorithm 1; the certificate is in
        docs/proofs/smoothed-expected.md.
    """
    started = time.perf_counter()
    records = read_count("n", n, least=1)
    corners = hull_vertices(read_vertices(vertices))
    sample = read_sample(records, loss_rate=loss_rate, sampled=sampled)
    loss = read_loss(epsilon=epsilon, ratio=ratio)
    _check_method(method, len(corners[0]))
    if sample.lost == 0:
        where = (records,) + (0,) * (len(corners) - 1)
        range_ = many_types.Range(log_value=0.0, log_lower=0.0, log_upper=0.0, split=where)
        reason = "No record is lost: the exact histogram is published, and delta = 1 for every database."
        return _record(sample, loss, corners, range_, "closed", "single vertex", reason, started)
    if len(corners[0]) == 2:
        return _two(sample, loss, corners, method, started)
    return _many(sample, loss, corners, method, draws, seed, started)


def _check_method(method: str, types: int) -> None:
    allowed = ("auto", "certificate", "all_splits") if types == 2 else ("auto", "enumeration", "bracket", "monte_carlo")
    if method not in allowed:
        raise ParameterError("method", method, f"with {types} types choose one of {', '.join(allowed)}")


def _two(sample: Sample, loss: Loss, corners: tuple[Distribution, ...], method: str, started: float) -> Expected:
    found = search(sample, loss, tuple(corner[0] for corner in corners), method)
    first = found.split if len(corners) == 2 else sample.records
    where = (first, sample.records - first)[: len(corners)]
    range_ = many_types.Range(
        log_value=found.log_value, log_lower=found.log_lower, log_upper=found.log_upper, split=where
    )
    reason = {
        "single vertex": "One distribution: delta summed over the counts that matter, the rest bounded.",
        "certificate": f"{found.checked} of {sample.records + 1} compositions evaluated; "
        + (
            "a quasi-convex majorant settles the others."
            if found.closed
            else "a quasi-convex majorant bounds the others."
        ),
        "all splits": f"All {sample.records + 1} compositions evaluated.",
    }[found.method]
    status = "closed" if found.closed else "bracketed"
    return _record(sample, loss, corners, range_, status, found.method, reason, started)


def _many(
    sample: Sample, loss: Loss, corners: tuple[Distribution, ...], method: str, draws: int, seed: int, started: float
) -> Expected:
    small = many_types.enumerable(sample.records, corners)
    if method == "enumeration" and not small:
        raise ParameterError("method", method, f"n={sample.records} is too large to enumerate; try bracket")
    if small and method in ("auto", "enumeration"):
        range_ = many_types.enumerate_all(sample, loss, corners)
        reason = "Every histogram and every composition evaluated."
        return _record(sample, loss, corners, range_, "closed", "enumeration", reason, started)
    range_ = many_types.bracket(sample, loss, corners)
    if method != "monte_carlo":
        reason = "Between the worst two-type problem and the sum over types of the rarest-type bound."
        return _record(sample, loss, corners, range_, "bracketed", "bracket", reason, started)
    if read_count("draws", draws) < 2:
        raise ParameterError("draws", draws, "needs at least 2 random histograms for an interval; try 1000")
    z = statistics.NormalDist().inv_cdf(0.5 + CONFIDENCE / 2.0)
    estimate = many_types.monte_carlo(sample, loss, corners, range_.split, draws=draws, seed=seed, z=z)
    reason = f"Mean of exact delta at {draws} random histograms of the composition {range_.split}."
    return _record(sample, loss, corners, range_, "sampled", "Monte Carlo", reason, started, estimate)


def _record(
    sample: Sample,
    loss: Loss,
    corners: tuple[Distribution, ...],
    range_: many_types.Range,
    status: Status,
    method: str,
    reason: str,
    started: float,
    estimate: many_types.SampledMean | None = None,
) -> Expected:
    confidence = None
    value = range_.log_value
    if estimate is not None:
        value = min(max(estimate.log_value, range_.log_lower), range_.log_upper)
        low, high = max(estimate.log_low, range_.log_lower), min(estimate.log_high, range_.log_upper)
        confidence = (CONFIDENCE, min(low, value) / LOG_TEN, max(high, value) / LOG_TEN)
    exact = range_.log_value == 0.0 and range_.log_upper == 0.0
    upper = 0.0 if exact else min(to_log10(range_.log_upper, 1e-300), 0.0)
    return Expected(
        log10_delta=min(value / LOG_TEN, upper),
        log10_lower=0.0 if exact else log10_down(range_.log_lower),
        log10_upper=upper,
        certified=status == "closed",
        status=status,
        confidence=confidence,
        records=sample.records,
        sampled=sample.sampled,
        epsilon=loss.epsilon,
        vertices=tuple(tuple(float(p) for p in corner) for corner in corners),
        split=range_.split,
        method=method,
        log10_worst_case=log10_worst_case(sample),
        reason=reason,
        seconds=time.perf_counter() - started,
    )


def asymptotic_rate(
    *,
    vertices: Sequence[Rational | Sequence[Rational]],
    loss_rate: Rational,
    epsilon: float | None = None,
    ratio: Rational | None = None,
) -> float:
    """The limit of -log10(smoothed delta) / n for two types, at a constant loss rate and any epsilon.

    Arguments:
        vertices: shares of the first type; loss_rate: rho in (0, 1); epsilon or ratio: the loss.
    Returns:
        The rate in powers of ten per record; 0 when a type may be absent. Not a bound at finite n.
    Raises:
        ParameterError: if there are more than two types, or rho is 0.
    Source: method of types: the share a of the first type costs KL(a || p); losing the shares rho u of the first
        and rho E u of the second type, the likeliest with likelihood ratio E, costs the other two divergences;
        u = 1 / (a + (1 - a) E) makes the lost shares add up.
    """
    corners = hull_vertices(read_vertices(vertices))
    if len(corners[0]) != 2:
        raise ParameterError("vertices", vertices, "the rate is for two types; give shares of the first type")
    rho = float(read_loss_rate(loss_rate))
    if rho == 0.0:
        raise ParameterError("loss_rate", loss_rate, "must be above 0: with nothing lost delta is 1 at every n")
    loss = read_loss(epsilon=epsilon, ratio=ratio)
    shares = [float(min(corner)) for corner in corners]
    return min(_rate(min(share, 1.0 - share), rho, float(loss.ratio)) for share in shares) / LOG_TEN


def _rate(share: float, rho: float, ratio: float) -> float:
    if share == 0.0:
        return 0.0

    def cost(a: float) -> float:
        return _divergence(a, share) + min(_sampling_cost(a, rho, ratio), _sampling_cost(1.0 - a, rho, ratio))

    # The cost may have two valleys, near 0 (the type nearly vanishes) and near the share itself.
    grid = [0.5 * (i / 400) ** 2 for i in range(401)]
    best = min(range(401), key=lambda i: cost(grid[i]))
    low, high = grid[max(0, best - 1)], grid[min(400, best + 1)]
    found = optimize.minimize_scalar(cost, bounds=(low, high), method="bounded", options={"xatol": 1e-12})
    return min(float(found.fun), cost(grid[best]))


def _sampling_cost(a: float, rho: float, ratio: float) -> float:
    u = 1.0 / (a + (1.0 - a) * ratio)
    if rho * ratio * u > 1.0:
        return math.inf
    return a * _divergence(rho * u, rho) + (1.0 - a) * _divergence(rho * ratio * u, rho)


def _divergence(x: float, p: float) -> float:
    first = x * math.log(x / p) if x > 0.0 else 0.0
    second = (1.0 - x) * math.log((1.0 - x) / (1.0 - p)) if x < 1.0 and p < 1.0 else 0.0
    return max(0.0, first + second)


def rare_loss_log10(n: int, *, share: Rational, lost: int) -> float:
    """log10 of (1 - p)^R - (1 - eta)(1 - p)^n: smoothed delta of one share p while only l = 0 counts.

    Exact as long as, at every count with any weight, the likelihood ratio exceeds e^epsilon only for outcomes
    that lose no record of the rarer type, that is A R <= E B; a check and an explanation, not a bound.

    Arguments:
        n: records; share: p, at most 1/2; lost: R, from 1 to n - 1.
    """
    p = read_rational("share", share)
    records, r = read_count("n", n), read_count("lost", lost)
    if not 0 <= p <= Fraction(1, 2):
        raise ParameterError("share", share, "must lie in [0, 1/2]: the chance of the rarer type")
    if not 1 <= r < records:
        raise ParameterError("lost", lost, "must lie between 1 and n - 1")
    log_miss = math.log1p(-float(p))
    return (r * log_miss + math.log1p(-(r / records) * math.exp((records - r) * log_miss))) / LOG_TEN
