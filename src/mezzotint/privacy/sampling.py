"""What random participation changes: loss distributions of sampled releases from those of certain ones.

The covered set is symmetric: with every pair (P, Q) it holds (Q, P). Let h be the covering curve as a function of
c = e**epsilon, h(c) >= sup HS_c(P || Q).

From one way of saying what a release costs to another.
"""

from __future__ import annotations

import math

import numpy as np

from mezzotint.core.loss import UNIT
from mezzotint.core.mechanism import FloatArray
from mezzotint.privacy.distribution import Atoms

_UP = 8 * UNIT


def revealed(atoms: Atoms, rate: float) -> Atoms:
    """Takes part with probability `rate`, and everyone sees whether: the pairs become rate P + (1 - rate) [absent].

    HS_c(rate P + (1 - rate) a || rate Q + (1 - rate) a) = rate HS_c(P || Q) + (1 - rate) max(0, 1 - c) exactly.
    """
    return Atoms(
        losses=np.append(atoms.losses, 0.0),
        masses=np.append(atoms.masses * (rate * (1 + _UP)), (1 - rate) * (1 + _UP)),
        infinite=atoms.infinite * rate * (1 + _UP),
    )


def _tilted_loss(losses: FloatArray, rate: float) -> tuple[FloatArray, FloatArray]:
    """log(1 + rate (e**s - 1)) without overflow, and what it may be off by."""
    # log1p enlarges relative errors 1.8 times at most down to -1.
    near = np.log1p(rate * np.expm1(np.clip(losses, -1.0, 1.0)))
    high = np.maximum(losses, 0.0)
    # For s > 0: s + log(rate + (1 - rate) e**-s). The logarithm errs by (4 + s) UNIT, the sum by as much again.
    far = high + np.log(rate * np.exp(losses - high) + (1 - rate) * np.exp(-high))
    is_far = np.abs(losses) > 1.0
    found = np.where(is_far, far, near)
    return found, np.where(is_far, (16 + 4 * high) * UNIT, 0.0) + np.abs(found) * _UP


def poisson_replace_one(atoms: Atoms, rate: float) -> Atoms:
    """A record takes part with secret probability `rate`; neighbours replace it by another record.

    With A the output without the record, the pairs are (1 - rate) A + rate P against (1 - rate) A + rate Q. Advanced
    joint convexity (Balle, Barthe and Gaboardi 2018, Theorem 2): for c >= 1 and c' = 1 + rate (c - 1),
    HS_c'(..) = rate HS_c(P || (1 - b) A + b Q) with b = c'/c, at most rate h(c) as (P, A) and (P, Q) are both covered.
    For c' < 1 the mirrored pair is used: HS_c(P || Q) = 1 - c + c HS_{1/c}(Q || P).
    """
    positive = atoms.losses > 0
    losses, masses = atoms.losses[positive], atoms.masses[positive]
    # rate h(1 + (c' - 1)/rate) has its kinks at c' = 1 + rate (e**s - 1) with the same second masses e**-s mass.
    moved, error = _tilted_loss(losses, rate)
    second = masses * np.exp(-losses) * (1 + _UP)
    first = masses * (rate + (1 - rate) * np.exp(-losses)) * (1 + _UP)
    infinite = atoms.infinite * rate * (1 + _UP)
    rest = 1.0 - math.fsum([*first.tolist(), *second.tolist(), infinite])
    return Atoms(
        losses=np.concatenate([moved + error, error - moved, [0.0]]),
        masses=np.concatenate([first, second, [max(0.0, rest) + UNIT]]),
        infinite=infinite,
    )


def poisson_add(atoms: Atoms, rate: float) -> Atoms:
    """Secret participation; the record is there in the first output and absent in the second.

    HS_c((1 - rate) Q + rate P || Q) = rate HS_{1 + (c - 1)/rate}(P || Q) for c >= 1 - rate, and 1 - c below.
    """
    second = atoms.masses * np.exp(-np.minimum(atoms.losses, 700.0))
    missing = max(0.0, 1.0 - math.fsum(second.tolist()))  # off by a unit, which all masses' allowances together exceed
    moved, error = _tilted_loss(atoms.losses, rate)
    return Atoms(
        losses=np.append(moved + error, math.log1p(-rate) * (1 - _UP)),
        masses=np.append((rate * atoms.masses + (1 - rate) * second) * (1 + _UP), (1 - rate) * missing * (1 + _UP)),
        infinite=atoms.infinite * rate * (1 + _UP),
    )


def poisson_remove(atoms: Atoms, rate: float) -> Atoms:
    """Secret participation; the record is absent in the first output and there in the second.

    HS_c(Q || (1 - rate) Q + rate P) = sum over atoms s of Q against P of mass_s max(0, 1 - c (1 - rate + rate e**-s)).
    """
    most = -math.log1p(-rate) * (1 + _UP)
    moved, error = _tilted_loss(-atoms.losses, rate)
    return Atoms(
        losses=np.append(np.minimum(error - moved, most), most),
        masses=np.append(atoms.masses, atoms.infinite),
        infinite=0.0,
    )


def renyi_to_epsilon(divergence: float, alpha: float, delta: float) -> float:
    """Epsilon at `delta` > 0 of a release whose Renyi divergence of order `alpha` > 1 is at most `divergence`.

    Arguments:
        divergence: nats, >= 0; inf allowed.
        alpha, delta: as above.

    Guarantees: rounded up.
    Source: Canonne, Kamath and Steinke 2020, Proposition 12.
    """
    left, odds = math.log1p(-1 / alpha), math.log(delta) + math.log(alpha)
    # Near order 1 the roundings of 1 / alpha and of the logarithms count 1 / (alpha - 1) times.
    size = abs(divergence) + abs(left) + (abs(math.log(delta)) + math.log(alpha) + 1) / (alpha - 1)
    return max(0.0, divergence + left - odds / (alpha - 1) + size * 8 * UNIT)


def seen_renyi(divergence: float, alpha: float, rate: float) -> float:
    """Renyi divergence of a release that happens with probability `rate`, visibly; rounded up.

    An absence that everybody sees has likelihood ratio 1: log(1 - rate + rate e**((alpha - 1) D)) / (alpha - 1).
    """
    # Rounded up itself: where rate * e**power is about 1, its error counts `power` times.
    power = (alpha - 1) * divergence * (1 + 4 * UNIT)
    if rate == 1 or power >= 700:
        return divergence
    return math.log1p(rate * math.expm1(power)) / (alpha - 1) * (1 + 16 * UNIT)
