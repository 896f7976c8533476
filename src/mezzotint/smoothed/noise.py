"""delta(x) of the sampling histogram with the exponential mechanism's noise (Algorithm 4)."""

from __future__ import annotations

import decimal
import itertools
import math
from fractions import Fraction

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.smoothed.inputs import Loss, Sample, split
from mezzotint.smoothed.results import Profile, to_log10
from mezzotint.smoothed.worst_case import log10_worst_case_noisy

kernels = LazyModule("mezzotint.smoothed.kernels.noise")

#: The grid of outcomes holds one cell per type and outcome; beyond this it would take minutes and gigabytes.
MAX_CELLS = 4_000_000
_DIGITS = 60


def noisy_profile(histogram: tuple[int, ...], sample: Sample, loss: Loss, noise: Fraction) -> Profile:
    """delta(x) by summing over all outcomes, for every neighbour and both directions.

    The noise depends on each coordinate of the sampled histogram alone: Pr[y | h] = prod r^|y_i - h_i| / Z(h_i)
    over y_i >= 0 with Z(h) = (1 + r - r^(h+1)) / (1 - r). Outcomes beyond every possible h have proportional
    probabilities and are merged, which keeps all divergences. Merging types does not apply here, because each
    type receives its own noise; so every neighbour is compared.
    """
    # One count more than present can be sampled from a neighbour.
    shape = np.array([min(sample.sampled, count + 1) + 1 for count in histogram], dtype=np.int64)
    if math.prod(int(size) for size in shape) > MAX_CELLS:
        raise ParameterError(
            "noise_ratio", float(noise), f"needs a grid of shape {tuple(shape.tolist())}; sample fewer records"
        )
    own = _published(histogram, shape, sample, noise)
    best, pair = 0.0, None
    for giver, taker in itertools.permutations(range(len(histogram)), 2):
        if histogram[giver] == 0:
            continue
        neighbour = list(histogram)
        neighbour[giver] -= 1
        neighbour[taker] += 1
        other = _published(tuple(neighbour), shape, sample, noise)
        forward, backward = kernels.hockey_stick(own, other, loss.parts)
        for value, counts in (
            (forward, (histogram[giver], histogram[taker] + 1)),
            (backward, (histogram[taker] + 1, histogram[giver])),
        ):
            if value > best:
                best, pair = value, counts
    # All sums before the difference are of positive double-doubles: each outcome is good to a few 2**-100 per
    # step, outcomes sum to 1 on either side, and probabilities below 1e-300 were dropped.
    depth = 8 * int(shape.sum()) + 64
    slack = 3.0 * depth * 2.0**-100 + 1e-290
    return _record(best, slack, pair, sample, loss, noise)


def _record(
    best: float, slack: float, pair: tuple[int, int] | None, sample: Sample, loss: Loss, noise: Fraction
) -> Profile:
    worst = log10_worst_case_noisy(sample, noise, loss)
    pure = worst == -math.inf
    if pure:
        best, slack, pair = 0.0, 0.0, None
    value = math.log(best) if best > 0.0 else -math.inf
    upper = to_log10(math.log(best + slack), 4e-16) if best + slack > 0.0 else -math.inf
    certified = pure or (best > 0.0 and slack <= 1e-10 * best)
    return Profile(
        log10_delta=to_log10(value),
        log10_upper=upper,
        status="closed" if certified else "bracketed",
        log10_worst_case=worst,
        records=sample.records,
        sampled=sample.sampled,
        epsilon=loss.epsilon,
        pair=pair,
        reason="The noise alone makes the mechanism purely private at this loss."
        if pure
        else "Summed over every outcome, all neighbours and both directions; log10_worst_case is an upper bound.",
    )


def _published(histogram: tuple[int, ...], shape: np.ndarray, sample: Sample, noise: Fraction) -> np.ndarray:
    # Probability of every published outcome, as double-doubles on a flat grid.
    factors = np.zeros((len(histogram), int(shape.max()), 2))
    with decimal.localcontext() as context:
        context.prec = _DIGITS
        columns = [_sampled_factors(count, sample) for count in histogram]
        constant = _sampled_factors(sample.records, sample)[sample.sampled]
        for axis, column in enumerate(columns):
            for h, weight in enumerate(column[: int(shape[axis])]):
                ratio = decimal.Decimal(noise.numerator) / noise.denominator
                normalized = weight * (1 - ratio) / (1 + ratio - ratio ** (h + 1))
                factors[axis, h] = _two_floats(normalized / constant if axis == 0 else normalized)
    grid = kernels.product_on_simplex(shape, factors, sample.sampled)
    kernels.spread(grid, shape, split(noise), split(1 / (1 - noise)))
    return grid


def _sampled_factors(count: int, sample: Sample) -> list[decimal.Decimal]:
    # Binomial probabilities at rate T/n: their product over types, divided by the one of n records, is the
    # multivariate hypergeometric law of the sampled histogram.
    top = min(sample.sampled, count)
    if sample.lost == 0:
        return [decimal.Decimal(int(h == count)) for h in range(top + 1)]
    rate = decimal.Decimal(sample.sampled) / sample.records
    odds = decimal.Decimal(sample.sampled) / sample.lost
    weight = (1 - rate) ** count
    column = [weight]
    for h in range(top):
        weight = weight * (count - h) / (h + 1) * odds
        column.append(weight)
    return column


def _two_floats(value: decimal.Decimal) -> tuple[float, float]:
    high = float(value)
    return high, float(value - decimal.Decimal(high))
