"""delta(x) of the sampling histogram for one database, and the adversary's utility; exact.

At any number of records and types. Where the number of a pair's records that is lost is itself
random, D = sum_s w(s) D(s): s of them are lost with a log-concave probability w, and D(s) is the
one-dimensional sum of `logarithms.log_divergence`. D(s) never grows with s, because dropping one
more record at random is post-processing; so the parts outside the summed window are bounded by D at
the nearer end times the mass there. The adversary's utility (Equation (3): how well the missing
record can be guessed) has no such law, but it is at most the sum of the two divergences, which
have.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.smoothed import logarithms
from mezzotint.smoothed.mechanisms import histogram_count
from mezzotint.smoothed.model import (
    Loss,
    Profile,
    Rational,
    Sample,
    Status,
    Utility,
    log10_worst_case,
    log_of,
    profile_of,
    read_counts,
    read_loss,
    read_rational,
    read_sample,
    rounded_up,
    split,
    split_log,
    split_log_step,
    to_log10,
)
from mezzotint.smoothed.noisy_profiles import noisy_profile

_NEGLIGIBLE = math.log(1e-15)
"""Logarithm of the share of a sum that each of its ends may leave out."""

_LEFT_OUT = math.log(3e-15)
"""Of both ends together."""

_LONGEST_STEP = 1024
"""Most terms by which a window grows at once."""
CEILING = 1e-6
"""Added to a logarithm that bounds what is left out of a sum: far above its error, and harmless at
1e-15 of the sum."""


@final
@dataclass(frozen=True, kw_only=True)
class Mixture:
    """Weights w(s) and inner values D(s) of an array of s, both as logarithms.

    Arguments:
        span: the least and the largest s with positive weight.
        mode: at most one away from the largest weight.
        log_weights, log_values: of s.
        log_majorant: bounds log D(s) by what never grows with s; None where the values themselves
            never do.
    """

    span: tuple[int, int]
    mode: float
    log_weights: Callable[[np.ndarray], np.ndarray]
    log_values: Callable[[np.ndarray], np.ndarray]
    log_majorant: Callable[[np.ndarray], np.ndarray] | None = None

    def ceiling(self, lost: int) -> float:
        """An upper bound of log D(s) that never grows with s."""
        majorant = self.log_majorant or self.log_values
        log_bounds = majorant(np.array([float(lost)]))
        return float(log_bounds[0]) + CEILING

    def log_weight(self, lost: int) -> float:
        """log w(s)."""
        log_weights = self.log_weights(np.array([float(lost)]))
        return float(log_weights[0])


def _lost_records(
    first: int,
    second: int,
    sample: Sample,
    loss: Loss,
) -> Mixture:
    """The pair (A, B) loses s records: hypergeometric, or binomial under Poisson sampling."""
    pair_records = first + second - 1
    other_records = sample.records - pair_records

    def log_values(lost: np.ndarray) -> np.ndarray:
        return logarithms.divergences(float(first), float(second), lost, loss.parts)

    def binomial(lost: np.ndarray) -> np.ndarray:
        return logarithms.binomials(lost, float(pair_records), split(1 - sample.rate))

    def hypergeometric(lost: np.ndarray) -> np.ndarray:
        return logarithms.hypergeometrics(
            lost, float(pair_records), float(other_records), float(sample.lost)
        )

    if sample.sampling == "poisson":
        return Mixture(
            span=(0, pair_records),
            mode=float((1 - sample.rate) * pair_records),
            log_values=log_values,
            log_weights=binomial,
        )
    return Mixture(
        span=(max(0, sample.lost - other_records), min(sample.lost, pair_records)),
        mode=float(Fraction(sample.lost, sample.records) * pair_records),
        log_values=log_values,
        log_weights=hypergeometric,
    )


def _lost_records_utility(
    first: int,
    second: int,
    sample: Sample,
    loss: Loss,
) -> Mixture:
    """The adversary's utility for the same pair, with the same weights.

    At most the sum of both divergences.
    """
    pair = _lost_records(first, second, sample, loss)
    mirrored = _lost_records(first=second, second=first, sample=sample, loss=loss)

    def log_values(lost: np.ndarray) -> np.ndarray:
        pair_values = [
            logarithms.log_utility(float(first), float(second), count, loss.parts)
            for count in lost.tolist()
        ]
        return np.array(pair_values)

    def log_majorant(lost: np.ndarray) -> np.ndarray:
        log_forward, log_backward = pair.log_values(lost), mirrored.log_values(lost)
        return np.logaddexp(log_forward, log_backward)

    return dataclasses.replace(pair, log_values=log_values, log_majorant=log_majorant)


def _missed_draws(
    first: int,
    second: int,
    sample: Sample,
    loss: Loss,
) -> Mixture:
    """With replacement: s of T draws fall outside the pair (A, B).

    Both are at least 2, and their records are part of n.
    """
    draw_count = sample.sampled
    records = float(sample.records)
    outside_records = sample.records - first - second + 1
    first_step = split_log_step(first)
    second_step = split_log_step(second)

    def log_weights(missed: np.ndarray) -> np.ndarray:
        return logarithms.binomial_fractions(
            missed, float(draw_count), float(outside_records), records
        )

    def log_values(missed: np.ndarray) -> np.ndarray:
        return logarithms.divergences_replacement(
            float(first),
            float(second),
            draw_count - missed,
            first_step,
            second_step,
            loss.log_ratio,
        )

    return Mixture(
        span=(0, draw_count if outside_records > 0 else 0),
        mode=float(Fraction(draw_count * outside_records, sample.records)),
        log_weights=log_weights,
        log_values=log_values,
    )


@final
class _Window:
    """The terms summed so far: s from low to high, and the logarithm of each."""

    def __init__(self, mixture: Mixture, center: int) -> None:
        self.mixture = mixture
        self.low = center
        self.high = center
        self.terms = self._terms(center, center)

    def _terms(self, low: int, high: int) -> np.ndarray:
        lost = np.arange(low, high + 1, dtype=np.float64)
        log_weights = self.mixture.log_weights(lost)
        return log_weights + self.mixture.log_values(lost)

    def grow_right(self, high: int) -> None:
        """Add the terms up to `high`."""
        right_terms = self._terms(self.high + 1, high)
        self.terms = np.concatenate((self.terms, right_terms))
        self.high = high

    def grow_left(self, low: int, high: int) -> None:
        """Add the terms from `low` to `high`, to the left of what was summed or passed over."""
        left_terms = self._terms(low, high)
        self.terms = np.concatenate((left_terms, self.terms))
        self.low = low

    @property
    def log_total(self) -> float:
        peak = float(self.terms.max())
        if peak == -math.inf:
            return -math.inf
        scaled_terms = np.exp(self.terms - peak)
        total = math.fsum(scaled_terms)
        return peak + math.log(total)


def _peak(mixture: Mixture, first_lost: int, last_lost: int) -> int:
    # Zooms in on the largest term; a wrong peak costs time, never correctness.
    while last_lost - first_lost > 64:
        even_points = np.linspace(first_lost, last_lost, 17)
        points = np.unique(even_points.round())
        terms = mixture.log_weights(points) + mixture.log_values(points)
        if not np.isfinite(terms).any():
            return first_lost
        largest = int(np.argmax(terms))
        first_lost = int(points[max(0, largest - 1)])
        last_index = min(points.size - 1, largest + 1)
        last_lost = int(points[last_index])
    return (first_lost + last_lost) // 2


def _mass_bound(mixture: Mixture, start: int, edge: int) -> float:
    """log of the weight from `start` to `edge`, both included, from above.

    Geometric beyond the mode, else at most 1.
    """
    if start == edge:
        return min(0.0, mixture.log_weight(start) + CEILING)
    direction = 1 if edge >= start else -1
    if (start - mixture.mode) * direction <= 1.0:
        return 0.0
    log_weight = mixture.log_weight(start)
    log_fall = mixture.log_weight(start + direction) - log_weight
    negative_fall = min(log_fall + 1e-9, -1e-12)
    fall_share = -math.expm1(negative_fall)
    log_gap = math.log(fall_share)
    return min(0.0, log_weight + 1e-9 - log_gap)


def log_mixture(mixture: Mixture) -> float:
    """Natural logarithm of the mixture; what is left out is below 3e-15 of it."""
    first, last = mixture.span
    window = _Window(mixture, _peak(mixture, first, last))
    log_right = _extend_right(mixture, window, last)
    log_left = _extend_left(mixture, window, first)
    log_total = window.log_total
    if log_total > -math.inf:
        assert np.logaddexp(log_left, log_right) <= log_total + _LEFT_OUT
    return log_total


def _extend_right(mixture: Mixture, window: _Window, last: int) -> float:
    """Sum to the right, and return the log of the bound on what is left out there."""
    window_step = 16
    while window.high < last:
        # Beyond the window D(s) <= D(window.high + 1).
        ceiling = mixture.ceiling(window.high + 1)
        omitted_bound = ceiling + _mass_bound(mixture, window.high + 1, last)
        if omitted_bound <= window.log_total + _NEGLIGIBLE or ceiling == -math.inf:
            return omitted_bound
        window.grow_right(min(last, window.high + window_step))
        window_step = min(2 * window_step, _LONGEST_STEP)
    return -math.inf


def _extend_left(mixture: Mixture, window: _Window, first: int) -> float:
    """Sum to the left, and return the log of the bound on what is left out there."""
    # To the left D(s) <= 1 (a utility, too), so blocks [s - width, s] are bounded by D(s - width)
    # times their mass until even the whole remaining mass is negligible; a block too heavy for that
    # is summed instead.
    skipped = -math.inf
    block_size = 16
    block_end = window.low
    while block_end > first:
        log_negligible = window.log_total + _NEGLIGIBLE
        remaining = _mass_bound(mixture, block_end - 1, first)
        if remaining <= log_negligible:
            return float(np.logaddexp(skipped, remaining))
        block_start = max(first, block_end - block_size)
        block_bound = mixture.ceiling(block_start) + remaining
        if block_bound <= log_negligible - 7.0:
            skipped = float(np.logaddexp(skipped, block_bound))
            block_end = block_start
            block_size *= 2
        elif block_end == window.low:
            window.grow_left(block_start, block_end - 1)
            block_end = block_start
            block_size = min(2 * block_size, _LONGEST_STEP)
        elif block_size > 1:
            block_size //= 2
        else:
            window.grow_left(block_end - 1, window.low - 1)
            block_end = window.low
            block_size = 16
    return skipped


def profile(
    counts: Sequence[int],
    *,
    loss_rate: Rational | None = None,
    sampled: int | None = None,
    epsilon: float | None = None,
    ratio: Rational | None = None,
    replacement: bool = False,
    poisson: bool = False,
    noise_ratio: Rational | None = None,
) -> Profile:
    """The database-dependent delta of publishing the histogram of a random sample of the records:
    the largest hockey-stick divergence from or to a neighbour (one record replaced).

    Arguments:
        counts: the records of each possible type; a type that exists but does not occur counts 0.
        loss_rate: share of records lost, in [0, 1); T = ceil((1 - loss_rate) n) exactly (or the
            Poisson rate). A float is read by its shortest decimal: 0.002 is 1/500.
        sampled: T itself, instead of `loss_rate`.
        epsilon: the loss, natural logarithm, above 0.
        ratio: e^epsilon as an exact rational instead, such as Fraction(51, 49); 1 gives the total
            variation.
        replacement, poisson: sample with replacement, or each record by itself.
        noise_ratio: r in (0, 1), the factor of a unit of L1 distance between the sampled and the
            published histogram (Algorithm 4); Equation (4) has `published_noise_ratio`.
    Returns: a `Profile`; every number is log10, because delta reaches 1e-14000.
    Raises:
        ParameterError: if a parameter is out of range (see each one above).
    Guarantees: `log10_upper` is never below the truth; the relative error of delta is at most 1e-9
        up to 1.6e8 records (about 1e-12 for small databases).
    Edge cases: delta = 1 where no record is lost; the worst case over all databases where a type
        has 0 or 1 records; exactly 0 (log10: -inf) with replacement, two types and T ln(A/(A-1)) <=
        epsilon.
    Source: "Smoothed Differential Privacy", Definition 2, Algorithms 2 and 4, Appendix F;
        docs/proofs/smoothed-profile.md.
    Example:
        >>> profile = mz.smoothed.profile([205, 190], loss_rate="0.01", epsilon=1.0)
        >>> round(profile.log10_delta, 2)
        -0.78
    """
    histogram = read_counts(counts)
    sample = read_sample(
        sum(histogram),
        loss_rate=loss_rate,
        sampled=sampled,
        replacement=replacement,
        poisson=poisson,
    )
    loss = read_loss(epsilon=epsilon, ratio=ratio)
    if noise_ratio is None:
        return histogram_profile(histogram, sample, loss)
    noise = read_rational("noise_ratio", noise_ratio)
    if not 0 < noise < 1:
        remedy = "must lie strictly between 0 and 1; leave it out for no noise"
        raise ParameterError("noise_ratio", noise_ratio, remedy)
    if sample.sampling != "without_replacement":
        remedy = "is defined for sampling without replacement only"
        raise ParameterError("noise_ratio", noise_ratio, remedy)
    return noisy_profile(histogram, sample, loss, noise)


def histogram_profile(
    histogram: tuple[int, ...],
    sample: Sample,
    loss: Loss,
) -> Profile:
    """`profile` without noise, from parameters that were read already."""
    rarest_count, second_count = sorted(histogram)[:2]
    log10_worst = log10_worst_case(sample)
    certain = _certain_reason(rarest_count, sample, log10_worst)
    if certain is not None:
        return profile_of(
            sample=sample,
            loss=loss,
            value=log10_worst,
            upper=rounded_up(log10_worst),
            worst=log10_worst,
            reason=certain,
        )
    # D falls as either count grows when there is a third type, so the worst pair is among the two
    # rarest types (docs/proofs/smoothed-profile.md); with two types there is no other pair. All
    # four orders are needed.
    has_two_types = len(histogram) == 2
    orders = (
        (rarest_count, second_count + 1),
        (rarest_count + 1, second_count),
        (second_count, rarest_count + 1),
        (second_count + 1, rarest_count),
    )
    log_divergences: dict[tuple[int, int], float] = {}
    for pair in dict.fromkeys(orders):
        log_divergences[pair] = log_pair(*pair, sample, loss, binary=has_two_types)
    worst_pair = max(log_divergences, key=log_divergences.__getitem__)
    largest = log_divergences[worst_pair]
    error = 2 * logarithms.stated_error(largest, scale_of(sample))
    reason = "Exact sum over the two rarest types, which are the worst pair."
    if largest == -math.inf:
        reason = "No outcome has a likelihood ratio above e^epsilon, so delta is exactly 0."
    elif has_two_types:
        reason = "Exact one-dimensional sum over the lost records of one type."
    return profile_of(
        sample=sample,
        loss=loss,
        value=to_log10(largest),
        upper=min(to_log10(largest, error), rounded_up(log10_worst)),
        worst=log10_worst,
        pair=worst_pair,
        reason=reason,
    )


def _certain_reason(rare: int, sample: Sample, worst: float) -> str | None:
    """Why delta is the worst case itself; None where it is not."""
    if sample.rate == 1 and sample.sampling != "with_replacement":
        all_sampled = f"{sample.records} of {sample.records} are sampled"
        return (
            f"No record is lost ({all_sampled}): the exact histogram is published, "
            "it differs between neighbours, and so delta = 1."
        )
    if rare <= 1 or worst == 0.0:
        return (
            f"The rarest type has {rare} record(s): its presence in the sample reveals a record "
            "with certainty, and delta equals the chance that this record is sampled."
        )
    return None


def scale_of(sample: Sample) -> float:
    """How many records are lost at most, or drawn with replacement: what errors are stated for."""
    if sample.sampling == "with_replacement":
        return float(sample.sampled)
    return float(sample.lost)


def log_pair(
    first: int,
    second: int,
    sample: Sample,
    loss: Loss,
    *,
    binary: bool,
) -> float:
    """log D(A, B) of one neighbouring pair with A, B >= 2.

    A records of one type stand against A - 1, B - 1 against B of the other; `binary`: there are
    only these two types.
    """
    if sample.sampling == "with_replacement":
        if not binary:
            return log_mixture(_missed_draws(first, second, sample, loss))
        return logarithms.log_divergence_replacement(
            float(first),
            float(second),
            float(sample.sampled),
            split_log_step(first),
            split_log_step(second),
            loss.log_ratio,
        )
    if binary and sample.sampling == "without_replacement":
        lost = float(sample.lost)
        return logarithms.log_divergence(float(first), float(second), lost, loss.parts)
    return log_mixture(_lost_records(first, second, sample, loss))


MAX_OUTCOMES = 300_000
"""Three or more types are enumerated outcome by outcome up to this many; beyond it the utility is
bracketed."""

_CHANCE_ERROR = 4e-12
"""What the logarithm of a chance, and of a wrong guess, may err by."""


def utility(
    counts: Sequence[int],
    *,
    threshold: Rational,
    loss_rate: Rational | None = None,
    sampled: int | None = None,
    replacement: bool = False,
    poisson: bool = False,
) -> Utility:
    """The adversary's adjusted utility: the expected accuracy above `threshold`, scaled so that
    certainty is 1.

    The adversary knows all records but one, sees the published histogram, assumes a uniform prior
    over the types of the missing record, and guesses the likeliest. The worst missing record and
    the worst true value are taken.

    Arguments:
        counts: the records of each possible type.
        threshold: t in [1/2, 1), exact (a float by its shortest decimal); accuracies up to it
            count nothing; t = E/(1+E) matches delta at ratio E.
        loss_rate, sampled, replacement, poisson: as in `profile`.
    Returns: a `Utility`: certified with two types, and where outcomes can be enumerated (without
        replacement, up to 300000), else at most (1 + (m-1)/(1+E)) delta.
    Raises:
        ParameterError: if a parameter is out of range.
    Guarantees: `log10_upper` is never below the truth. With two types, u(x, x') + u(x', x) =
        d(x, x') + d(x', x) at t = E/(1+E); utility <= 2 delta.
    Edge cases: no record lost: 1. threshold 1/2: every better-than-even guess counts (ratio 1).
    Source: "Smoothed Differential Privacy", Equation (3), Lemmas 2 and 10 (the factor 3 corrected
        to 2).
    Example:
        >>> guess = mz.smoothed.utility([205, 190], threshold="0.9", loss_rate="0.01")
        >>> guess.log10_upper < 0
        True
    """
    histogram = read_counts(counts)
    sample = read_sample(
        sum(histogram),
        loss_rate=loss_rate,
        sampled=sampled,
        replacement=replacement,
        poisson=poisson,
    )
    accuracy = read_rational("threshold", threshold)
    if not Fraction(1, 2) <= accuracy < 1:
        remedy = "must lie in [1/2, 1): the accuracy a guess must exceed"
        raise ParameterError("threshold", threshold, remedy)
    return _utility_of(histogram, sample, accuracy)


def _utility_of(
    histogram: tuple[int, ...],
    sample: Sample,
    accuracy: Fraction,
) -> Utility:
    """The record of the utility above this accuracy."""
    odds = accuracy / (1 - accuracy)
    loss = read_loss(epsilon=None, ratio=odds)
    status: Status = "closed"
    if len(histogram) == 2:
        log_value = _two_types(histogram, sample, loss)
        log10_value = to_log10(log_value)
        error = logarithms.stated_error(log_value, scale_of(sample))
        log10_upper = to_log10(log_value, 2 * error)
        reason = "Exact sum over the outcomes that one database makes likelier."
    elif _enumerable(sample, len(histogram)):
        log10_value, log10_upper = _enumerated(histogram, sample, accuracy)
        reason = f"Summed over every published histogram of {len(histogram)} types."
    else:
        log10_value = log10_upper = _bound(histogram, sample, loss)
        reason = "Too many outcomes to enumerate; bounded by the divergences of all pairs of true values."
        status = "bracketed"
    return Utility(
        log10=min(log10_value, log10_upper),
        log10_upper=min(log10_upper, 0.0),
        status=status,
        records=sample.records,
        sampled=sample.sampled,
        threshold=float(accuracy),
        reason=reason,
    )


def _enumerable(sample: Sample, types: int) -> bool:
    outcomes = histogram_count(sample.sampled, types)
    return sample.sampling == "without_replacement" and outcomes <= MAX_OUTCOMES


def _two_types(histogram: tuple[int, ...], sample: Sample, loss: Loss) -> float:
    # The neighbours of (a, b) are (a - 1, b + 1) and (a + 1, b - 1); each pair counts from both
    # sides.
    first, second = histogram
    utilities: list[float] = []
    for first_count, second_count in ((first, second + 1), (second, first + 1)):
        if first_count >= 1:
            utilities.append(
                _log_utility(first=first_count, second=second_count, sample=sample, loss=loss)
            )
            utilities.append(
                _log_utility(first=second_count, second=first_count, sample=sample, loss=loss)
            )
    return max(utilities)


def _log_utility(
    first: int,
    second: int,
    sample: Sample,
    loss: Loss,
) -> float:
    """The logarithm of an adversary's utility on the database (first, second - 1) of two types,
    whose neighbour is (first - 1, second); -inf where nothing is gained.
    """
    if sample.sampling == "poisson":
        return log_mixture(_lost_records_utility(first, second, sample, loss))
    if sample.sampling == "without_replacement":
        return logarithms.log_utility(float(first), float(second), float(sample.lost), loss.parts)
    if first == 1 or second == 1:
        return _log_utility_single(first, second, sample, loss)
    pair = (
        float(first),
        float(second),
        float(sample.sampled),
        split_log_step(first),
        split_log_step(second),
        loss.log_ratio,
    )
    above = logarithms.log_utility_replacement(*pair, False)
    below = logarithms.log_utility_replacement(*pair, True)
    return float(np.logaddexp(above, below))


def _log_utility_single(
    first: int,
    second: int,
    sample: Sample,
    loss: Loss,
) -> float:
    # One database is (1, n - 1), the other (0, n). If the single record is drawn the adversary is
    # certain, worth (1 - t)/(1 - t) = 1 under the first database and nothing under the second,
    # which never draws it. If not, the odds are (1 - 1/n)^-T for the second; above E they are worth
    # (odds - E)/(1 + odds) in either case.
    log_missed = -math.inf
    if sample.records > 1:
        log_other = math.log1p(-1.0 / sample.records)
        log_missed = sample.sampled * log_other
    chance = math.exp(log_missed)
    # Odds that are nearly E count as slightly above: their worth is what the slack is.
    lost_epsilon = loss.epsilon - max(log_missed, -700.0)
    slack = 2.0**-50 * lost_epsilon
    excess = -log_missed - loss.log_ratio[0]
    worth = 0.0
    if excess > -slack:
        log_worth = -max(excess, 0.0) - slack
        worth = -math.expm1(log_worth) / (1.0 + chance)
    mean_worth = worth
    if first == 1:
        mean_worth = -math.expm1(log_missed) + chance * worth
    return log_of(mean_worth)


def _bound(histogram: tuple[int, ...], sample: Sample, loss: Loss) -> float:
    # With truth i, a guess of type j != i is worth at most what it would be if i and j were the
    # only candidates: E_i[(post_j - t)+] / (1 - t) <= d(x_j, x_i) / (1 + E), and a guess of i at
    # most d(x_i, x_j) for any j. So the utility is at most (1 + (m - 1)/(1 + E)) times the largest
    # D(C_j + 1, C_k + 1), C the other records, and D falls with both counts.
    log10_upper = -math.inf
    for missing, present in enumerate(histogram):
        if present > 0:
            bound = _missing_bound(histogram, missing, sample, loss)
            log10_upper = max(log10_upper, bound)
    other_types = len(histogram) - 1
    factor = 1.0 + float(other_types / (1 + loss.ratio))
    rounded = math.nextafter(log10_upper + math.log10(factor), math.inf)
    return min(0.0, rounded + 1e-15)


def _missing_bound(
    histogram: tuple[int, ...],
    missing: int,
    sample: Sample,
    loss: Loss,
) -> float:
    """The largest D(C_j + 1, C_k + 1) where a record of one type is missing, as log10."""
    other_counts = list(histogram)
    other_counts[missing] -= 1
    rare, common, *_ = sorted(count + 1 for count in other_counts)
    if rare <= 1:
        return 0.0
    bounds: list[float] = []
    for first, second in ((rare, common), (common, rare)):
        log_divergence = log_pair(first, second, sample, loss, binary=False)
        error = logarithms.stated_error(log_divergence, scale_of(sample))
        bounds.append(to_log10(log_divergence, error))
    return max(bounds)


def _enumerated(
    histogram: tuple[int, ...],
    sample: Sample,
    level: Fraction,
) -> tuple[float, float]:
    """log10 of the utility, and of what its errors may add."""
    outcomes = _all_outcomes(sample.sampled, len(histogram))
    log_gap = split_log(1 - level)[0]
    log_value = -math.inf
    log_upper = -math.inf
    for missing, present in enumerate(histogram):
        if present == 0:
            continue
        log_laws: list[np.ndarray] = []
        for guess in range(len(histogram)):
            counts = list(histogram)
            counts[missing] -= 1
            counts[guess] += 1
            log_laws.append(_log_law(outcomes, counts, sample))
        log_chances = np.array(log_laws)
        is_possible = log_chances.max(axis=0) > -np.inf
        log_chances = log_chances[:, is_possible]
        ordered = np.sort(log_chances, axis=0)
        log_others = np.logaddexp.reduce(ordered[:-1], axis=0)
        log_wrong = log_others - np.logaddexp(ordered[-1], log_others)
        log_excess = log_wrong - log_gap
        log_value = max(log_value, _useful_mass(log_chances, log_excess))
        log_upper = max(log_upper, _useful_mass(log_chances, log_excess - _CHANCE_ERROR))
    return to_log10(log_value), to_log10(log_upper, _CHANCE_ERROR)


def _all_outcomes(draws: int, types: int) -> np.ndarray:
    """(outcomes, types) every histogram of so many draws: by where bars stand between them."""
    place_count = draws + types - 1
    bar_places = itertools.combinations(range(place_count), types - 1)
    bars = np.array(list(bar_places))
    first_bars = np.full((len(bars), 1), -1)
    last_bars = np.full((len(bars), 1), place_count)
    all_bars = np.hstack([first_bars, bars, last_bars])
    return np.diff(all_bars, axis=1) - 1


def _useful_mass(logs: np.ndarray, wrong: np.ndarray) -> float:
    """The largest log of the mass of useful guesses, each by how far it exceeds the threshold."""
    worth = -np.expm1(np.minimum(wrong, 1.0))
    is_useful = worth > 0.0
    log_worth = np.log(worth[is_useful])
    terms = logs[:, is_useful] + log_worth
    log_masses = np.logaddexp.reduce(terms, axis=1, initial=-np.inf)
    return float(log_masses.max())


def _log_law(
    outcomes: np.ndarray,
    counts: list[int],
    sample: Sample,
) -> np.ndarray:
    # Binomials at rate T/n over types, divided by the one for all records: the hypergeometric law.
    draws = float(sample.sampled)
    records = float(sample.records)
    log_chances = np.zeros(len(outcomes))
    for sampled, count in zip(outcomes.T, counts, strict=True):
        possible = np.arange(sample.sampled + 1, dtype=np.float64)
        log_table = np.full(possible.size, -np.inf)
        is_reached = possible <= count
        log_table[is_reached] = logarithms.binomial_fractions(
            possible[is_reached], float(count), draws, records
        )
        log_chances += log_table[sampled]
    all_draws = np.array([draws])
    return log_chances - logarithms.binomial_fractions(all_draws, records, draws, records)
