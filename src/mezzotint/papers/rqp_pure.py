"""The pure loss of RQP-SGD: finite, as a replaced code is possible whatever the data, but large."""

from __future__ import annotations

import math

from scipy.special import ndtr

from mezzotint.core.arguments import (
    Neighboring,
    check_count,
    check_neighboring,
    check_positive,
    check_rate,
)
from mezzotint.core.search import bracket
from mezzotint.training.contraction import check_bits, check_q, code_gap

_FAR = 40.0
"""Where the normal distribution function is 0 or 1 in floats."""

_RELATIVE_ERROR = 1e-12
"""Of values of the normal distribution function, which are a few ulp off."""


def pure_epsilon(
    noise_multiplier: float,
    *,
    q: float,
    bits: int,
    dimension: int,
    steps: int,
    sampling_rate: float,
    neighboring: Neighboring = "add_or_remove_one",
) -> float:
    """The epsilon of RQP-SGD at delta = 0 under Poisson sampling: finite for q < 1, and large.

    Arguments:
        noise_multiplier, q, bits, steps, sampling_rate, neighboring: as of
            `mezzotint.training.rqp.epsilon`; q = 1 gives inf.
        dimension: number of weights.
    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    Guarantees: never understates.
    Source: docs/proofs/training.md, "Pure epsilon".
    """
    check_positive("noise_multiplier", noise_multiplier)
    check_neighboring(neighboring)
    check_rate(sampling_rate)
    check_count("steps", steps)
    check_count("dimension", dimension)
    level_count = check_bits(bits)
    keep_probability = check_q(q, level_count)
    if keep_probability == 1:
        return math.inf
    # One record moves the sum by one clip norm when it comes or goes, by two when it is replaced.
    clip_norms = 1
    if neighboring == "replace_one":
        clip_norms = 2
    replacement = (1 - keep_probability) / (level_count - 1)
    gap = code_gap(keep_probability, level_count)
    largest_loss = step_loss(clip_norms / noise_multiplier, dimension, gap, replacement)
    # log(1 + p (e^x - 1)) = x + log(p + (1 - p) e^-x) does not overflow.
    sampled_loss = largest_loss + math.log(
        sampling_rate + (1 - sampling_rate) * math.exp(-largest_loss)
    )
    return steps * sampled_loss * (1 + 1e-12)


def step_loss(shift: float, dimension: int, gap: float, other: float) -> float:
    """sup of sum_i l(t_i) over ||t|| <= shift in `dimension` coordinates, l as `coordinate_loss`;
    rounded up.

    Arguments:
        shift: L2 norm of the shift over the noise per coordinate, >= 0.
        dimension: number of coordinates, >= 1.
    """
    # l'(t) is the common value of r at both ends of the best window, which falls as t grows; so
    # d/dv l(sqrt v) = l'(sqrt v) / (2 sqrt v) falls too: l(sqrt v) is concave, and equal shares of
    # ||t||^2 are worst.
    return dimension * coordinate_loss(shift / math.sqrt(dimension), gap, other)


def coordinate_loss(shift: float, gap: float, other: float) -> float:
    """l(shift) = sup_x log[(gap Phi(x + shift) + other) / (gap Phi(x) + other)], rounded up.

    Arguments:
        shift: |shift| of the mean over the noise, >= 0.
        gap: q - u >= 0.
        other: u > 0, the probability that a given other code replaces a code.
    """
    if shift == 0 or gap == 0:
        return 0.0

    # r' = -r (x + r), and x + r grows wherever it is 0: r rises to one peak and falls. So the
    # window [x, x + shift] that holds most of it is the only one with r(x) = r(x + shift), and
    # bisection finds it.
    def is_rising(x: float) -> bool:
        return _rate(x, gap, other) < _rate(x + shift, gap, other)

    window_start, window_end = bracket(is_rising, -_FAR - shift, _FAR)
    # Numerator at the right end and denominator at the left end bound every x between.
    numerator = gap * float(ndtr(window_end + shift)) + other
    denominator = gap * float(ndtr(window_start)) + other
    return math.log(numerator / denominator) * (1 + _RELATIVE_ERROR) + _RELATIVE_ERROR


def _rate(x: float, gap: float, other: float) -> float:
    """r(x) = d/dx log(gap Phi(x) + other)."""
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return gap * density / (gap * float(ndtr(x)) + other)
