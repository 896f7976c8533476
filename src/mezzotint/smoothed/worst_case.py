"""The delta of ordinary differential privacy for the same mechanisms: the maximum over all databases."""

from __future__ import annotations

import math
from fractions import Fraction

from mezzotint.smoothed.inputs import Loss, Sample
from mezzotint.smoothed.results import LOG_TEN


def log10_fraction(value: Fraction) -> float:
    """log10 of a rational in [0, 1], to a few roundings."""
    if value == 0:
        return -math.inf
    gap = 1 - value
    if gap < Fraction(1, 2):
        return math.log1p(-float(gap)) / LOG_TEN
    return math.log10(value.numerator) - math.log10(value.denominator)


def rounded_up(log10: float) -> float:
    """An upper bound of a log10 of a chance that was computed with a few roundings."""
    return min(0.0, log10 + 2e-15 * (1.0 + abs(log10)))


def log10_worst_case(sample: Sample) -> float:
    """log10 of delta for the sampling histogram over all databases, at every finite epsilon.

    One record differs, and the outputs are equal unless it is sampled; so delta is at most the chance that it is.
    A database in which its type occurs once reaches that: the outcome then shows the type, or it does not.
    Without replacement and under Poisson sampling the chance is the sampling rate (Theorem 3 (iii)); with
    replacement it is 1 - (1 - 1/n)^T.

    Arguments:
        sample: how many records are sampled and how.
    Returns:
        log10 of delta, at most 0.
    Source: "Smoothed Differential Privacy", Theorems 3 and 5 (the latter corrected).
    """
    if sample.sampling != "with_replacement":
        return log10_fraction(sample.rate)
    if sample.records == 1:
        return 0.0
    missed = sample.sampled * math.log1p(-1.0 / sample.records)
    return math.log(-math.expm1(missed)) / LOG_TEN


def log10_worst_case_noisy(sample: Sample, noise_ratio: Fraction, loss: Loss) -> float:
    """An upper bound of the same for the histogram with exponential-mechanism noise (Algorithm 4).

    Replacing one sampled record lowers one count of the histogram and raises another by one. That changes the
    powers of r by r^-2 at most, and Z(h + 1) / Z(h) = (1 + r - r^(h+2)) / (1 + r - r^(h+1)) is at most 1 + r - r^2;
    so the noise alone has ratio B = (1 + r - r^2) / r^2. Sampling at rate eta leaves the event that the record is
    missed, so for E = 1 + eta (E' - 1) the divergence is at most eta times that of the noise at E', which for a
    mechanism of ratio B is at most (B - E') / (1 + B), its value for randomized response.

    Returns:
        log10 of the bound; -inf when the mechanism is purely private at this loss.
    """
    bound = noise_bound(noise_ratio)
    inner = 1 + (loss.ratio - 1) / sample.rate
    if inner >= bound:
        return -math.inf
    return log10_fraction(sample.rate * (bound - inner) / (1 + bound))


def noise_bound(noise_ratio: Fraction) -> Fraction:
    """The largest likelihood ratio of the noise alone when one sampled record is replaced: (1 + r - r^2) / r^2."""
    return (1 + noise_ratio - noise_ratio**2) / noise_ratio**2
