"""Tables on vectors of bounded L2 norm: Renyi and pure losses that grow with the distance of two vectors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from mezzotint.core.mechanism import FloatArray
from mezzotint.privacy.loss import UNIT
from mezzotint.privacy.sums.bound import kept_variance, shortlist
from mezzotint.privacy.sums.central import Noise, blanket_noise, silence
from mezzotint.privacy.sums.geometry import quadratic_renyi
from mezzotint.privacy.sums.lattice import lattice_rows

if TYPE_CHECKING:
    from mezzotint.core.mechanism import Mechanism

_CELLS = 12
_SEGMENTS = 64


def others_noise(mechanism: Mechanism, others: int) -> Noise:
    """Noise that `others` honest clients' reports of the table hold in common, whatever their inputs."""
    if others == 0:
        return silence()
    rows, _ = lattice_rows(mechanism)
    found = shortlist(rows, others, 1e-5)
    if not found:
        return silence()
    best = max(found, key=lambda blanket: kept_variance(blanket, others, _CELLS))
    return blanket_noise(best, others, budget=_CELLS, tail=1e-25)


def round_renyi(mechanism: Mechanism, noise: Noise, alpha: float, *, l2_norm: float, share: float) -> float:
    """Renyi divergence of one round between any two vectors of L2 norm at most `l2_norm`, rounded up.

    Arguments:
        alpha: order > 1.
        l2_norm: data units; coordinates are clipped to the table's range besides.
        share: of the coordinates that a round reports, a fresh visible choice each time; 1 for all of them.

    Source: docs/proofs/vectors.md, "Tables under an L2 bound" and "Kept coordinates".
    """
    distance = 4 * l2_norm**2 * (1 + 8 * UNIT)
    kappa = quadratic_renyi(mechanism, noise, alpha)
    if share == 1 or math.isinf(kappa):
        return kappa * distance
    # Coordinate j is seen with probability `share`: it costs g(a_j), a_j its squared distance and
    # g(a) = log(1 + share (e^((alpha - 1) kappa a) - 1)) / (alpha - 1), convex with g(0) = 0. So with all a_j <= A and
    # sum a_j <= D the cost is at most D / A g(A).
    most = min(distance, (mechanism.upper - mechanism.lower) ** 2 * (1 + 8 * UNIT))
    power = (alpha - 1) * kappa * most
    if power > 700:
        return kappa * distance
    return distance / most * math.log1p(share * math.expm1(power)) / (alpha - 1) * (1 + 32 * UNIT)


def loss_profile(mechanism: Mechanism) -> tuple[FloatArray, FloatArray]:
    """Distances t_1 < .. < t_k = range; for each the largest log-ratio of a level between inputs at most t apart.

    Arguments:
        mechanism: a table without jumps.

    Returns: distances in data units and losses, rounded up; inf where a level has mass in one row and none in another.

    Guarantees: never below the supremum over all such pairs of inputs.
    """
    # For one level p is piecewise linear. If x and x' both move by the same amount the ratio is a Moebius function
    # between places where either is a knot, hence monotone; if one moves alone it is too. So both ends may be taken
    # from the knots and the knots moved by t.
    distances = (mechanism.upper - mechanism.lower) * np.arange(1, _SEGMENTS + 1) / _SEGMENTS
    return distances, np.array([_loss_within(mechanism, float(t)) for t in distances])


def _loss_within(mechanism: Mechanism, distance: float) -> float:
    knots = mechanism.knots
    places = np.unique(np.clip(np.concatenate([knots, knots - distance, knots + distance]), knots[0], knots[-1]))
    columns: list[FloatArray] = [np.interp(places, knots, column) for column in mechanism.probabilities.T]
    near = np.abs(places[:, None] - places) <= distance * (1 + 2.0**-40)
    worst = 0.0
    for column in columns:
        used = column > 0
        if (near[used] & ~used).any():
            return math.inf
        logs = np.log(column[used])
        gaps = np.where(near[np.ix_(used, used)], logs[:, None] - logs, 0.0)
        worst = max(worst, float(gaps.max(initial=0.0)))
    # Interpolation and logarithms of probabilities above 2**-32 err by less than 64 UNIT in all.
    return worst + 256 * UNIT


def pure_epsilon_l2(mechanism: Mechanism, *, coordinates: int, l2_norm: float) -> float:
    """Pure epsilon of one round between any two vectors of L2 norm at most `l2_norm`, rounded up.

    Arguments:
        mechanism: a table without jumps.
        coordinates: how many are reported, each independently.
        l2_norm: data units.

    Guarantees: at most `coordinates` times the table's own epsilon.
    Source: docs/proofs/vectors.md, "Pure losses".
    """
    distances, losses = loss_profile(mechanism)
    if math.isinf(float(losses[-1])):
        return math.inf
    # A pair at a distance in (t_{j-1}, t_j] loses at most losses[j]: points above the profile stand at left ends. With
    # a concave majorant f over squared distances, sum_j f(a_j) <= coordinates f(sum a_j / coordinates) (Jensen).
    squares = np.append(0.0, distances[:-1]) ** 2
    value = _concave_majorant(squares, np.maximum.accumulate(losses), 4 * l2_norm**2 / coordinates)
    return coordinates * value * (1 + 64 * UNIT)


def _concave_majorant(points: FloatArray, values: FloatArray, at: float) -> float:
    """The least concave, increasing function above the points, at `at`; constant beyond the last."""
    hull: list[tuple[float, float]] = []
    for x, y in zip(points.tolist(), values.tolist(), strict=True):
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2], hull[-1]
            if (y1 - y0) * (x - x1) > (y - y1) * (x1 - x0):
                break
            hull.pop()
        hull.append((x, y))
    across, up = np.array(hull).T
    return float(np.interp(at, across, up))
