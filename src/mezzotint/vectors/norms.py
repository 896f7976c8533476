"""Tables on vectors of bounded L2 norm: Renyi and pure losses that grow with the distance of two vectors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from mezzotint.core.loss import UNIT
from mezzotint.privacy.sums.bound import kept_variance, shortlist
from mezzotint.privacy.sums.central import Noise, blanket_noise, silence
from mezzotint.privacy.sums.geometry import quadratic_renyi, squared_distance
from mezzotint.privacy.sums.lattice import lattice_rows

if TYPE_CHECKING:
    from mezzotint.core.mechanism import Mechanism

_CELLS = 12


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


def round_renyi(
    mechanism: Mechanism, noise: Noise, alpha: float, *, coordinates: int, l2_norm: float, share: float
) -> float:
    """Renyi divergence of one round between any two vectors of L2 norm at most `l2_norm`, rounded up.

    Arguments:
        alpha: order > 1.
        coordinates: of the (rotated) vector, whether reported in this round or not.
        l2_norm: data units; coordinates are clipped to the table's range besides.
        share: of the coordinates that a round reports, a fresh visible choice each time; 1 for all of them.

    Source: docs/proofs/vectors.md, "Tables under an L2 bound" and "Kept coordinates".
    """
    distance = squared_distance(mechanism, coordinates=coordinates, l2_norm=l2_norm)
    kappa = quadratic_renyi(mechanism, noise, alpha)
    if share == 1 or kappa == 0 or math.isinf(kappa):
        return kappa * distance
    # Coordinate j is seen with probability `share`: it costs g(a_j), a_j its squared distance and
    # g(a) = log(1 + share (e^((alpha - 1) kappa a) - 1)) / (alpha - 1), convex with g(0) = 0. So with all a_j <= A and
    # sum a_j <= D the cost is at most D / A g(A).
    most = min(distance, squared_distance(mechanism, coordinates=1, l2_norm=l2_norm))
    power = (alpha - 1) * kappa * most
    if power > 700:
        return kappa * distance
    return distance / most * math.log1p(share * math.expm1(power)) / (alpha - 1) * (1 + 64 * UNIT)
