"""All outcomes of few reports and their probabilities, and what an interval accepts of them: for tests and benchmarks."""

from __future__ import annotations

import numpy as np
from scipy import special, stats

from mezzotint import Mechanism
from mezzotint.collect.intervals import Sums, normal_quantile, score_widths
from mezzotint.collect.spreads import spread_of

ROUNDING = 1e-12
"""Of a table's span: what floats may err by where a mean lies on the edge of an interval."""


def outcomes(n: int, codes: int) -> np.ndarray:
    """(outcomes, codes) all counts of n reports."""
    if codes == 1:
        return np.array([[n]])
    blocks = []
    for first in range(n + 1):
        others = outcomes(n - first, codes - 1)
        blocks.append(np.column_stack([np.full(len(others), first), others]))
    return np.concatenate(blocks)


def probabilities(counts: np.ndarray, pmf: np.ndarray) -> np.ndarray:
    """(outcomes,) multinomial probabilities of counts, where reports have this pmf."""
    log_ways = special.gammaln(counts.sum(axis=1) + 1) - special.gammaln(counts + 1).sum(axis=1)
    return np.exp(log_ways + special.xlogy(counts, pmf).sum(axis=1))


def ones_of_fixed(table: Mechanism, n: int, ones: int) -> np.ndarray:
    """(n + 1,) probabilities of the reports of 1 from a table of two levels, where so many inputs are 1."""
    from_ones = stats.binom.pmf(range(ones + 1), ones, float(table.pmf(1.0)[1]))
    zeros = n - ones
    from_zeros = stats.binom.pmf(range(zeros + 1), zeros, float(table.pmf(0.0)[1]))
    return np.convolve(from_ones, from_zeros)


def score_accepts(
    table: Mechanism,
    counts: np.ndarray,
    truth: float,
    confidence: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Whether the score interval of each data set, (D, m) counts, accepts an expected report; its width there."""
    spread = spread_of(table)
    n = int(counts[0].sum())
    means = counts @ table.levels / n
    widths = score_widths(
        spread,
        Sums.of_counts(counts[0]),
        np.full(len(counts), truth),
        counts @ (table.levels - truth) ** 2 / n,
        quantiles=np.array(normal_quantile(confidence)),
        reports_above=means > truth,
    )
    return np.abs(means - truth) <= widths + ROUNDING * spread.reach, widths
