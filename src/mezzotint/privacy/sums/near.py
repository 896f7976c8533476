"""Pure losses of vectors under an L2 bound: what a table loses at most between inputs so far apart, added up."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from mezzotint.core.loss import UNIT
from mezzotint.core.mechanism import FloatArray, IntArray
from mezzotint.privacy.sums.geometry import squared_distance

if TYPE_CHECKING:
    from mezzotint.core.mechanism import Mechanism

_SEGMENTS = 64


def loss_profile(mechanism: Mechanism) -> tuple[FloatArray, FloatArray]:
    """Distances t_1 < .. < t_k = range; for each the largest log-ratio of a level between inputs at most t apart.

    Arguments:
        mechanism: any table; the losses of its jumps stand at every distance.

    Returns: distances in data units and losses, rounded up; inf where a level has mass in one row and none in another.

    Guarantees: never below the supremum over all such pairs of inputs, and never above what a distance a few ulp
        larger allows.
    Source: docs/proofs/vectors.md, "Pure losses".
    """
    distances = (mechanism.upper - mechanism.lower) * np.arange(1, _SEGMENTS + 1) / _SEGMENTS
    losses = [_loss_within(mechanism, float(t)) for t in distances]
    return distances, np.maximum.accumulate(losses)


def _loss_within(mechanism: Mechanism, distance: float) -> float:
    """The largest log-ratio between inputs at most `distance` apart."""
    # x and x' in two closed segments with |x - x'| <= t are a polygon, on which p(x) / p(x') is a ratio of two affine
    # functions: its largest value stands at a vertex, where one of the two is a knot and the other a knot or t away.
    knots = mechanism.knots
    moved = np.concatenate([knots - distance, knots + distance])
    # A moved knot is rounded; between the floats on either side of it probabilities are monotone.
    moved = np.concatenate([moved, np.nextafter(moved, -math.inf), np.nextafter(moved, math.inf)])
    places = np.concatenate([knots, moved[(knots[0] < moved) & (moved < knots[-1])]])
    values = np.concatenate([mechanism.probabilities, _between(mechanism, places[knots.size :])])
    order = np.argsort(places, kind="stable")
    places, values = places[order], values[order]
    # The rounding of a moved knot, its neighbour, and their distance: each an ulp of the largest knot at most.
    reach = distance + 8 * UNIT * float(np.abs(knots).max())
    first = np.searchsorted(places, places - reach, side="left")
    last = np.searchsorted(places, places + reach, side="right")
    highest = _window_maxima(values, first, last)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = float(np.nan_to_num(highest / values, nan=1.0, posinf=math.inf).max())
    # Ratios err by 16 UNIT, logarithms by 2 UNIT of at most 23.
    return math.log(ratio) + 256 * UNIT


def _between(mechanism: Mechanism, places: FloatArray) -> FloatArray:
    """(n, m) rows at places inside the range: sums of two positive terms, 8 UNIT of each entry."""
    knots, rows = mechanism.knots, mechanism.probabilities
    right = np.searchsorted(knots, places, side="right")
    before, after = knots[right - 1], knots[right]
    share, rest = ((places - before) / (after - before))[:, None], ((after - places) / (after - before))[:, None]
    return rest * rows[right - 1] + share * rows[right]


def _window_maxima(values: FloatArray, first: IntArray, last: IntArray) -> FloatArray:
    """(n, m) largest of values[first_i : last_i] per column: by the maxima of 2^j neighbours, two of which cover it."""
    result = np.empty_like(values)
    length = last - first
    width, maxima = 1, values
    while True:
        held = (length >= width) & (length < 2 * width)
        result[held] = np.maximum(maxima[first[held]], maxima[last[held] - width])
        if not (length >= 2 * width).any():
            return result
        maxima = np.maximum(maxima[:-width], maxima[width:])
        width *= 2


def pure_epsilon_l2(mechanism: Mechanism, *, coordinates: int, l2_norm: float) -> float:
    """Pure epsilon of one round between any two vectors of L2 norm at most `l2_norm`, rounded up.

    Arguments:
        mechanism: any table; its jumps may be crossed in every coordinate at once.
        coordinates: how many are reported, each independently.
        l2_norm: data units.

    Guarantees: at most `coordinates` times the table's own epsilon, up to rounding.
    Source: docs/proofs/vectors.md, "Pure losses".
    """
    square = squared_distance(mechanism, coordinates=coordinates, l2_norm=l2_norm)
    distances, losses = loss_profile(mechanism)
    if math.isinf(float(losses[-1])):
        return math.inf
    # A pair at a distance in (t_{j-1}, t_j] loses at most losses[j]: points above the profile stand at left ends. With
    # a concave majorant f over squared distances, sum_j f(a_j) <= coordinates f(sum a_j / coordinates) (Jensen).
    # Where a square is off by a relative 4 UNIT, f is too: it rises, is concave, and at 0 it is not below 0.
    squares = np.append(0.0, distances[:-1]) ** 2
    value = concave_majorant(squares, losses, square / coordinates)
    return coordinates * value * (1 + 64 * UNIT)


def concave_majorant(points: npt.NDArray[Any], values: npt.NDArray[Any], at: float) -> float:
    """The least concave, increasing function above the points, at `at`; constant beyond the last."""
    hull: list[tuple[float, float]] = []
    for x, y in zip(points.tolist(), values.tolist(), strict=True):
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2], hull[-1]
            if (y1 - y0) * (x - x1) > (y - y1) * (x1 - x0):
                break
            hull.pop()
        hull.append((x, y))
    across, up = ([point[axis] for point in hull] for axis in (0, 1))
    return float(np.interp(at, across, up))
