"""The profile of a sampled histogram whose counts are published with geometric noise."""

from __future__ import annotations

import decimal
import itertools
import math
from fractions import Fraction

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.smoothed import count_tables
from mezzotint.smoothed.model import (
    Loss,
    Profile,
    Sample,
    log10_worst_case_noisy,
    log_of,
    profile_of,
    split,
    to_log10,
)

MAX_CELLS = 4_000_000
"""The grid of outcomes holds one cell per type and outcome; beyond this it would take minutes and
gigabytes."""
_DIGITS = 60


def noisy_profile(
    histogram: tuple[int, ...],
    sample: Sample,
    loss: Loss,
    noise: Fraction,
) -> Profile:
    """delta(x) by summing over all outcomes, for every neighbour and both directions.

    The noise depends on each coordinate of the sampled histogram alone: Pr[y | h] = prod r^|y_i -
    h_i| / Z(h_i) over y_i >= 0 with Z(h) = (1 + r - r^(h+1)) / (1 - r). Outcomes beyond every
    possible h have proportional probabilities and are merged, which keeps all divergences. Merging
    types does not apply here, because each type receives its own noise; so every neighbour is
    compared.
    """
    log10_worst = log10_worst_case_noisy(sample, noise, loss)
    if log10_worst == -math.inf:
        reason = "The noise alone makes the mechanism purely private at this loss."
        return profile_of(
            sample=sample,
            loss=loss,
            value=-math.inf,
            upper=-math.inf,
            worst=log10_worst,
            reason=reason,
        )
    # One count more than present can be sampled from a neighbour.
    largest_counts = [min(sample.sampled, count + 1) for count in histogram]
    shape = np.array(largest_counts, dtype=np.int64) + 1
    if math.prod(shape.tolist()) > MAX_CELLS:
        remedy = f"needs a grid of shape {tuple(shape.tolist())}; sample fewer records"
        raise ParameterError("noise_ratio", float(noise), remedy)
    largest, pair = _worst_noisy_pair(histogram, shape, sample, loss, noise)
    # All sums before the difference are of positive double-doubles: each outcome is good to a few
    # 2**-100 per step, outcomes sum to 1 on either side, and probabilities below 1e-300 were
    # dropped.
    step_count = 8 * int(shape.sum()) + 64
    error = 3.0 * step_count * 2.0**-100 + 1e-290
    return profile_of(
        sample=sample,
        loss=loss,
        value=to_log10(log_of(largest)),
        upper=to_log10(math.log(largest + error), 4e-16),
        worst=log10_worst,
        pair=pair,
        status="closed" if error <= 1e-10 * largest else "bracketed",
        reason="Summed over every outcome, all neighbours and both directions; "
        "log10_worst_case is an upper bound.",
    )


def _worst_noisy_pair(
    histogram: tuple[int, ...],
    shape: np.ndarray,
    sample: Sample,
    loss: Loss,
    noise: Fraction,
) -> tuple[float, tuple[int, int] | None]:
    """The largest divergence from a neighbour, in either direction, and the counts of the two."""
    chances = _published(histogram, shape, sample, noise)
    largest = 0.0
    pair = None
    for giver, taker in itertools.permutations(range(len(histogram)), 2):
        if histogram[giver] == 0:
            continue
        neighbour = list(histogram)
        neighbour[giver] -= 1
        neighbour[taker] += 1
        neighbour_chances = _published(tuple(neighbour), shape, sample, noise)
        forward, backward = count_tables.hockey_stick(chances, neighbour_chances, loss.parts)
        if forward > largest:
            largest = forward
            pair = (histogram[giver], histogram[taker] + 1)
        if backward > largest:
            largest = backward
            pair = (histogram[taker] + 1, histogram[giver])
    return largest, pair


def _published(
    histogram: tuple[int, ...],
    shape: np.ndarray,
    sample: Sample,
    noise: Fraction,
) -> np.ndarray:
    """Probability of every published outcome, as double-doubles on a flat grid."""
    factors = np.zeros((len(histogram), int(shape.max()), 2))
    with decimal.localcontext() as context:
        context.prec = _DIGITS
        ratio = decimal.Decimal(noise.numerator) / noise.denominator
        constant = _sampled_factors(sample.records, sample)[sample.sampled]
        for axis, count in enumerate(histogram):
            sampled_chances = _sampled_factors(count, sample)[: int(shape[axis])]
            for sampled, weight in enumerate(sampled_chances):
                factor = weight * (1 - ratio) / (1 + ratio - ratio ** (sampled + 1))
                if axis == 0:
                    factor /= constant
                leading = float(factor)
                trailing = float(factor - decimal.Decimal(leading))
                factors[axis, sampled] = leading, trailing
    grid = count_tables.product_on_simplex(shape, factors, sample.sampled)
    inverse_gap = split(1 / (1 - noise))
    count_tables.spread(grid, shape, split(noise), inverse_gap)
    return grid


def _sampled_factors(count: int, sample: Sample) -> list[decimal.Decimal]:
    """Binomial probabilities at rate T/n.

    Their product over types, divided by the one of n records, is the multivariate hypergeometric
    law of the sampled histogram.
    """
    largest = min(sample.sampled, count)
    if sample.lost == 0:
        return [decimal.Decimal(int(sampled == count)) for sampled in range(largest + 1)]
    sampling_rate = decimal.Decimal(sample.sampled) / sample.records
    sampling_odds = decimal.Decimal(sample.sampled) / sample.lost
    chances = [(1 - sampling_rate) ** count]
    for sampled in range(largest):
        chances.append(chances[-1] * (count - sampled) / (sampled + 1) * sampling_odds)
    return chances
