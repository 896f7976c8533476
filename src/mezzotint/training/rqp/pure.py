"""Pure loss of one RQP step: finite because a replaced code is possible whatever the data, but large."""

from __future__ import annotations

import math

from scipy.special import ndtr

from mezzotint.core.search import bracket
from mezzotint.training.rqp.gaussian import RELATIVE_ERROR

_FAR = 40.0


def _rate(x: float, gap: float, other: float) -> float:
    """r(x) = d/dx log(gap Phi(x) + other)."""
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return gap * density / (gap * float(ndtr(x)) + other)


def coordinate_loss(shift: float, gap: float, other: float) -> float:
    """l(shift) = sup_x log[(gap Phi(x + shift) + other) / (gap Phi(x) + other)], rounded up.

    Arguments:
        shift: |shift| of the mean over the noise, >= 0.
        gap: q - u >= 0.
        other: u > 0, the probability that a given other code replaces a code.
    """
    if shift == 0 or gap == 0:
        return 0.0

    # r' = -r (x + r), and x + r grows wherever it is 0: r rises to one peak and falls. So the window [x, x + shift]
    # that holds most of it is the only one with r(x) = r(x + shift), and bisection finds it.
    def rising(x: float) -> bool:
        return _rate(x, gap, other) < _rate(x + shift, gap, other)

    left, right = bracket(rising, -_FAR - shift, _FAR)
    # Numerator at the right end and denominator at the left end bound every x between.
    above, below = gap * float(ndtr(right + shift)) + other, gap * float(ndtr(left)) + other
    return math.log(above / below) * (1 + RELATIVE_ERROR) + RELATIVE_ERROR


def step_loss(shift: float, dimension: int, gap: float, other: float) -> float:
    """sup of sum_i l(t_i) over ||t|| <= shift in `dimension` coordinates, l as `coordinate_loss`; rounded up.

    Arguments:
        shift: L2 norm of the shift over the noise per coordinate, >= 0.
        dimension: number of coordinates, >= 1.
    """
    # l'(t) is the common value of r at both ends of the best window, which falls as t grows; so d/dv l(sqrt v) =
    # l'(sqrt v) / (2 sqrt v) falls too: l(sqrt v) is concave, and equal shares of ||t||^2 are worst.
    return dimension * coordinate_loss(shift / math.sqrt(dimension), gap, other)
