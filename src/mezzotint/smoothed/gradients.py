"""Quantized gradients: 8-bit distributions, and smoothed delta of one step of stochastic gradient descent."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.smoothed.averages import average_profile
from mezzotint.smoothed.expectations import CONFIDENCE
from mezzotint.smoothed.inputs import Loss, Rational, Sample, read_count, read_loss, read_sample
from mezzotint.smoothed.many_types import Estimate, summary
from mezzotint.smoothed.results import LOG_TEN, Expected
from mezzotint.smoothed.worst_case import log10_worst_case, rounded_up

special = LazyModule("scipy.special")


def quantized_gaussian(mean: float, deviation: float, *, levels: int = 256) -> np.ndarray:
    """Chances of the levels of the quantized Gaussian: level i stands for (i - levels/2)/levels in [-1/2, 1/2).

    Arguments:
        mean, deviation: of the Gaussian before quantization; deviation > 0.
        levels: size of the grid.
    Returns:
        Array (levels,), the Gaussian's mass on each interval ((i - 128)/256, (i - 127)/256], normalized.
    Raises:
        ParameterError: if the deviation is not positive and finite, or no mass falls on the grid.
    Source: "Smoothed Differential Privacy", Definition 5.
    """
    edges = _edges(mean, deviation, levels)
    # Differences of the smaller tails, so that both sides keep their relative accuracy.
    below = special.ndtr(edges)
    above = special.ndtr(-edges)
    return _normalized(np.where(edges[1:] <= 0.0, np.diff(below), -np.diff(above)), mean)


def quantized_laplace(mean: float, deviation: float, *, levels: int = 256) -> np.ndarray:
    """The same with a Laplace distribution of the same standard deviation, scale deviation / sqrt(2).

    Source: "Smoothed Differential Privacy", Appendix G.1, which writes L(mu, sigma^2) and leaves the scale open;
        here sigma^2 is the variance, as for the Gaussian.
    """
    edges = _edges(mean, deviation, levels) * math.sqrt(2.0)
    below = np.where(edges < 0.0, 0.5 * np.exp(np.minimum(edges, 0.0)), 1.0 - 0.5 * np.exp(-np.maximum(edges, 0.0)))
    above = below[::-1] if mean == 0.0 and levels % 2 == 0 else _laplace_above(edges)
    return _normalized(np.where(edges[1:] <= 0.0, np.diff(below), -np.diff(above)), mean)


def _laplace_above(edges: np.ndarray) -> np.ndarray:
    return np.where(edges > 0.0, 0.5 * np.exp(-np.maximum(edges, 0.0)), 1.0 - 0.5 * np.exp(np.minimum(edges, 0.0)))


def _edges(mean: float, deviation: float, levels: int) -> np.ndarray:
    if not (math.isfinite(deviation) and deviation > 0.0):
        raise ParameterError("deviation", deviation, "must be a finite number above 0")
    if not math.isfinite(mean):
        raise ParameterError("mean", mean, "must be a finite number")
    if read_count("levels", levels) < 2:
        raise ParameterError("levels", levels, "needs at least 2 levels")
    return ((np.arange(levels + 1) - levels // 2) / levels - mean) / deviation


def _normalized(masses: np.ndarray, mean: float) -> np.ndarray:
    total = float(masses.sum())
    if not total > 0.0:
        raise ParameterError("mean", mean, "puts no mass on the grid [-1/2, 1/2]; move it closer")
    return masses / total


def expected_gradients(
    *,
    n: int,
    distributions: Sequence[np.ndarray],
    sampled: int | None = None,
    loss_rate: Rational | None = None,
    epsilon: float | None = None,
    ratio: Rational | None = None,
    split: Sequence[int] | None = None,
    draws: int = 100,
    seed: int = 0,
) -> Expected:
    """Expectation of delta(x) for the sampling average of quantized gradients: Monte Carlo over exact inner values.

    Arguments:
        n: number of records; sampled: batch size T, by default ceil(sqrt(n)).
        distributions: arrays of chances over the same levels, such as `quantized_gaussian(0, 0.12)`.
        loss_rate, epsilon, ratio: as in `profile`.
        split: how many records follow each distribution; by default every pure composition and the even one are
            tried, and the largest estimate is returned.
        draws, seed: databases per composition, and the seed.
    Returns:
        An `Expected` with status "sampled": a mean of exact delta(x) with a 99 % interval (central limit theorem)
        for the composition `split`. The rigorous bounds are those of any database: [0, sampling rate].
    Raises:
        ParameterError: if a parameter is out of range.
    Guarantees:
        log10_upper is the sampling rate, which no composition exceeds.
    Source: "Smoothed Differential Privacy", Section 6 and Appendix G (Figures 2 right and 5).
    """
    started = time.perf_counter()
    records = read_count("n", n)
    if records < 1:
        raise ParameterError("n", n, "needs at least one record")
    chances = _read_distributions(distributions)
    if sampled is None and loss_rate is None:
        sampled = math.isqrt(records - 1) + 1
    sample = read_sample(records, loss_rate=loss_rate, sampled=sampled)
    loss = read_loss(epsilon=epsilon, ratio=ratio)
    if read_count("draws", draws) < 2:
        raise ParameterError("draws", draws, "needs at least 2 databases for an interval; try 100")
    compositions = _compositions(records, len(chances), split)
    estimates = [(_estimate(chances, one, sample, loss, draws, seed), one) for one in compositions]
    estimate, composition = max(estimates, key=lambda item: item[0].log_value)
    worst = log10_worst_case(sample)
    upper = rounded_up(worst)
    return Expected(
        log10_delta=min(estimate.log_value / LOG_TEN, upper),
        log10_lower=-math.inf,
        log10_upper=upper,
        certified=False,
        status="sampled",
        confidence=(CONFIDENCE, estimate.log_low / LOG_TEN, min(estimate.log_high / LOG_TEN, upper)),
        records=records,
        sampled=sample.sampled,
        epsilon=loss.epsilon,
        vertices=tuple(tuple(row.tolist()) for row in chances),
        split=composition,
        method="Monte Carlo",
        log10_worst_case=worst,
        reason=f"Mean of exact delta(x) over {draws} databases; the worst of {len(estimates)} composition(s) tried.",
        seconds=time.perf_counter() - started,
    )


def _estimate(
    chances: list[np.ndarray], composition: tuple[int, ...], sample: Sample, loss: Loss, draws: int, seed: int
) -> Estimate:
    rng = np.random.default_rng(seed)
    logs = np.empty(draws)
    for draw in range(draws):
        codes = [rng.choice(row.size, size=count, p=row) for row, count in zip(chances, composition, strict=True)]
        levels = chances[0].size
        record = average_profile(np.concatenate(codes), sampled=sample.sampled, ratio=loss.ratio, levels=levels)
        logs[draw] = record.log10_delta * LOG_TEN
    return summary(logs, statistics.NormalDist().inv_cdf(0.5 + CONFIDENCE / 2.0))


def _read_distributions(distributions: Sequence[np.ndarray]) -> list[np.ndarray]:
    rows = [np.asarray(row, dtype=np.float64) for row in distributions]
    if not rows or any(row.ndim != 1 or row.size < 2 or row.size != rows[0].size for row in rows):
        raise ParameterError("distributions", distributions, "needs arrays of chances over the same levels")
    for row in rows:
        if not (np.isfinite(row).all() and (row >= 0.0).all() and abs(float(row.sum()) - 1.0) < 1e-9):
            raise ParameterError("distributions", row, "must be non-negative and sum to 1")
    return [row / row.sum() for row in rows]


def _compositions(records: int, vertices: int, split: Sequence[int] | None) -> list[tuple[int, ...]]:
    if split is not None:
        chosen = tuple(read_count(f"split[{i}]", count) for i, count in enumerate(split))
        if len(chosen) != vertices or sum(chosen) != records:
            raise ParameterError("split", chosen, f"needs {vertices} counts that sum to n={records}")
        return [chosen]
    pure = [tuple(records if i == j else 0 for i in range(vertices)) for j in range(vertices)]
    share = records // vertices
    even = (records - share * (vertices - 1),) + (share,) * (vertices - 1)
    return list(dict.fromkeys([*pure, even]))
