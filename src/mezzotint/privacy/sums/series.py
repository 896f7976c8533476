"""What a Renyi loss is near 0, where its terms would cancel."""

from __future__ import annotations

from math import exp, log1p
from typing import NamedTuple

from mezzotint.core.types import UNIT


class Series(NamedTuple):
    """h(u) = max(1 + u, 0)**alpha - 1 - alpha u near 0: a tuple, as compiled loops take those.

    Arguments:
        alpha: order > 1.
        reach: h(u) is at most u^2 (second + third u + fourth u^2), and at least half of it, for
            |u| <= reach.
        second, third, fourth: coefficients.
        unit: roundoff.
    """

    alpha: float
    reach: float
    second: float
    third: float
    fourth: float
    unit: float


def series(alpha: float, share: float = 0.5) -> Series:
    """The series of an order, roundings of its bound included, up to share / (alpha + 1).

    0 < share <= 1/2.
    """
    reach = share / (alpha + 1)
    # Taylor with Lagrange's remainder for small u: the fourth derivative is at most its larger
    # end's, and its size is taken. The bracket second + third u + fourth u^2 lies within a factor
    # of 2 of its first term, so relative errors stay below 64 UNIT.
    second = alpha * (alpha - 1) / 2
    third = alpha * (alpha - 1) * (alpha - 2) / 6
    largest_log = abs(alpha - 4) * -log1p(-reach)
    largest_power = exp(largest_log)
    fourth = abs(third * (alpha - 3)) / 4
    return Series(
        alpha=alpha,
        reach=reach,
        second=second * (1 + 64 * UNIT),
        third=third,
        fourth=fourth * largest_power,
        unit=UNIT,
    )
