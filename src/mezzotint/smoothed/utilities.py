"""The adversary's utility for one database (Equation (3)): how well the missing record can be guessed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.smoothed import logarithms
from mezzotint.smoothed.model import (
    Loss,
    Rational,
    Sample,
    Utility,
    read_counts,
    read_loss,
    read_rational,
    read_sample,
    read_sampling,
    split_log_step,
    to_log10,
)
from mezzotint.smoothed.profiles import LostRecords, LostRecordsUtility, log_mixture, log_pair

#: Three or more types are enumerated outcome by outcome up to this many; beyond it the utility is bracketed.
MAX_OUTCOMES = 300_000


def utility(
    counts: Sequence[int],
    *,
    threshold: Rational,
    loss_rate: Rational | None = None,
    sampled: int | None = None,
    replacement: bool = False,
    poisson: bool = False,
) -> Utility:
    """The adversary's adjusted utility: the expected accuracy above `threshold`, scaled so that certainty is 1.

    The adversary knows all records but one, sees the published histogram, assumes a uniform prior over the types
    of the missing record, and guesses the likeliest. Guesses of accuracy at most `threshold` count nothing. The
    worst missing record and the worst true value are taken.

    Arguments:
        counts: the records of each possible type.
        threshold: t in [1/2, 1), exact (a float by its shortest decimal); t = E/(1+E) matches delta at ratio E.
        loss_rate, sampled, replacement, poisson: as in `profile`.
    Returns:
        A `Utility`; with two types always certified. With more types certified when the outcomes can be
        enumerated (without replacement, up to 300000), else bracketed from above by (1 + (m-1)/(1+E)) delta.
    Raises:
        ParameterError: if a parameter is out of range.
    Guarantees:
        With two types, u(x, x') + u(x', x) = d(x, x') + d(x', x) at t = E/(1+E); utility <= 2 delta.
        `log10_upper` is never below the truth.
    Edge cases:
        No record lost: utility 1. threshold 1/2: every better-than-even guess counts (ratio 1).
    Source: "Smoothed Differential Privacy", Equation (3), Lemmas 2 and 10 (with the factor 3 corrected to 2).
    """
    histogram = read_counts(counts)
    sampling = read_sampling(replacement=replacement, poisson=poisson)
    sample = read_sample(sum(histogram), loss_rate=loss_rate, sampled=sampled, sampling=sampling)
    level = read_rational("threshold", threshold)
    if not Fraction(1, 2) <= level < 1:
        raise ParameterError("threshold", threshold, "must lie in [1/2, 1): the accuracy a guess must exceed")
    loss = read_loss(epsilon=None, ratio=level / (1 - level))
    if len(histogram) > 2:
        return _many_types(histogram, sample, loss, level)
    value, upper = _two_types(histogram, sample, loss)
    return _record(sample, level, value, upper, "Exact sum over the outcomes that one database makes likelier.")


def _record(sample: Sample, level: Fraction, value: float, upper: float, reason: str) -> Utility:
    return Utility(
        log10=min(value, upper),
        log10_upper=min(upper, 0.0),
        status="closed",
        records=sample.records,
        sampled=sample.sampled,
        threshold=float(level),
        reason=reason,
    )


def _two_types(histogram: tuple[int, ...], sample: Sample, loss: Loss) -> tuple[float, float]:
    # The neighbours of (a, b) are (a - 1, b + 1) and (a + 1, b - 1); each pair counts from both sides.
    a, b = histogram
    pairs = [pair for pair in ((a, b + 1), (b, a + 1)) if pair[0] >= 1]
    best, upper = -math.inf, -math.inf
    for one, other in pairs:
        for first, second in ((one, other), (other, one)):
            value, error = _log_pair(first, second, sample, loss)
            best = max(best, to_log10(value))
            if value > -math.inf:
                upper = max(upper, to_log10(value, error))
    return best, upper


def _log_pair(first: int, second: int, sample: Sample, loss: Loss) -> tuple[float, float]:
    if sample.sampling == "poisson":
        return log_mixture(
            LostRecordsUtility(
                divergence=LostRecords(
                    first=first,
                    second=second,
                    records=sample.records,
                    lost=sample.lost,
                    rate=1 - sample.rate,
                    ratio=loss.parts,
                )
            )
        )
    if sample.sampling == "without_replacement":
        return logarithms.log_utility(float(first), float(second), float(sample.lost), loss.parts)
    return _log_pair_replacement(first, second, sample, loss)


def _log_pair_replacement(first: int, second: int, sample: Sample, loss: Loss) -> tuple[float, float]:
    if first == 1 or second == 1:
        return _log_pair_single(first, second, sample, loss)
    up, down = split_log_step(first), split_log_step(second)
    sides = [
        logarithms.log_utility_replacement(
            float(first), float(second), float(sample.sampled), up, down, loss.log_ratio, below
        )
        for below in (False, True)
    ]
    value = float(np.logaddexp(sides[0][0], sides[1][0]))
    if value == -math.inf:
        return value, 0.0
    return value, max(side[1] for side in sides) + 1e-15 * (1.0 + abs(value))


def _log_pair_single(first: int, second: int, sample: Sample, loss: Loss) -> tuple[float, float]:
    # One database is (1, n - 1), the other (0, n). If the single record is drawn the adversary is certain, worth
    # (1 - t)/(1 - t) = 1 under the first database and nothing under the second, which never draws it. If not,
    # the odds are (1 - 1/n)^-T for the second; above E they are worth (odds - E)/(1 + odds) in either case.
    missed = sample.sampled * math.log1p(-1.0 / sample.records) if sample.records > 1 else -math.inf
    chance = math.exp(missed)
    slack = 2.0**-50 * (loss.epsilon + (-missed if missed > -math.inf else 0.0))
    excess = -missed - loss.log_ratio[0]
    worth, error = 0.0, 0.0
    if excess > -slack:
        excess = max(excess, slack)
        worth = -math.expm1(-excess) / (1.0 + chance)
        error = slack / excess if excess > 0.0 else 1.0
    value = (-math.expm1(missed) + chance * worth) if first == 1 else worth
    return (math.log(value) if value > 0.0 else -math.inf), error + 1e-15


def _many_types(histogram: tuple[int, ...], sample: Sample, loss: Loss, level: Fraction) -> Utility:
    types = len(histogram)
    if sample.sampling == "without_replacement" and math.comb(sample.sampled + types - 1, types - 1) <= MAX_OUTCOMES:
        value, upper = _enumerated(histogram, sample, level)
        return _record(sample, level, value, upper, f"Summed over every published histogram of {types} types.")
    upper = _bound(histogram, sample, loss)
    return Utility(
        log10=upper,
        log10_upper=upper,
        status="bracketed",
        records=sample.records,
        sampled=sample.sampled,
        threshold=float(level),
        reason="Too many outcomes to enumerate; bounded by the divergences of all pairs of true values.",
    )


def _bound(histogram: tuple[int, ...], sample: Sample, loss: Loss) -> float:
    # With truth i, a guess of type j != i is worth at most what it would be if i and j were the only candidates:
    # E_i[(post_j - t)+] / (1 - t) <= d(x_j, x_i) / (1 + E), and a guess of i at most d(x_i, x_j) for any j. So the
    # utility is at most (1 + (m - 1)/(1 + E)) times the largest D(C_j + 1, C_k + 1), C the other records, and D
    # falls with both counts.
    types = len(histogram)
    upper = -math.inf
    for missing in range(types):
        if histogram[missing] == 0:
            continue
        rare, common = sorted(count - (i == missing) + 1 for i, count in enumerate(histogram))[:2]
        if rare <= 1:
            upper = 0.0
            break
        for first, second in {(rare, common), (common, rare)}:
            value, error = log_pair(first, second, sample, loss, binary=False)
            upper = max(upper, to_log10(value, error) if value > -math.inf else -math.inf)
    factor = math.log10(1.0 + (types - 1) / (1.0 + float(loss.ratio)))
    return min(0.0, math.nextafter(upper + factor, math.inf) + 1e-15)


def _enumerated(histogram: tuple[int, ...], sample: Sample, level: Fraction) -> tuple[float, float]:
    types = len(histogram)
    bars = np.array(list(itertools.combinations(range(sample.sampled + types - 1), types - 1)))
    edges = np.hstack([np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), sample.sampled + types - 1)])
    outcomes = np.diff(edges, axis=1) - 1
    best, upper = 0.0, 0.0
    for missing in range(types):
        if histogram[missing] == 0:
            continue
        rest = [count - (i == missing) for i, count in enumerate(histogram)]
        laws = np.exp(
            np.array([_log_law(outcomes, [c + (i == j) for i, c in enumerate(rest)], sample) for j in range(types)])
        )
        total = laws.sum(axis=0)
        laws, total = laws[:, total > 0.0], total[total > 0.0]
        accuracy = laws.max(axis=0) / total
        scale = 1.0 - float(level)
        over = np.maximum(0.0, accuracy - float(level)) / scale
        # Accuracies are good to 1e-12, probabilities too.
        over_upper = np.maximum(0.0, accuracy * (1.0 + 1e-12) - float(level)) / scale * (1.0 + 1e-12)
        best = max(best, float((laws @ over).max()))
        upper = max(upper, float((laws @ over_upper).max()))
    return (math.log10(best) if best > 0.0 else -math.inf), (math.log10(upper) + 1e-15 if upper > 0.0 else -math.inf)


def _log_law(outcomes: np.ndarray, counts: list[int], sample: Sample) -> np.ndarray:
    # Binomials at rate T/n over types, divided by the one for all records: the hypergeometric law.
    total = np.zeros(len(outcomes))
    draws, records = float(sample.sampled), float(sample.records)
    for column, count in zip(outcomes.T, counts, strict=True):
        possible = np.arange(sample.sampled + 1, dtype=np.float64)
        table = np.full(possible.size, -np.inf)
        reach = possible <= count
        table[reach] = logarithms.binomial_fractions(possible[reach], float(count), draws, records)[0]
        total += table[column]
    return total - logarithms.binomial_fractions(np.array([draws]), records, draws, records)[0]
