"""What many reports cost together when each of them is seen: several valid bounds, the least of which counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mezzotint.core.loss import UNIT, pure_epsilon, renyi
from mezzotint.core.mechanism import TOTAL
from mezzotint.privacy.claim import Claim
from mezzotint.privacy.distribution import Atoms, LossDistribution, composed, fits
from mezzotint.privacy.recursion import worst_sequence_epsilon
from mezzotint.privacy.release import Release
from mezzotint.privacy.sampling import (
    poisson_add,
    poisson_remove,
    poisson_replace_one,
    renyi_to_epsilon,
    revealed,
    seen_renyi,
)
from mezzotint.privacy.tradeoff import tradeoff

if TYPE_CHECKING:
    from mezzotint.core.mechanism import Mechanism

EXACT = "exact worst sequence of inputs"
PLD = "privacy loss distribution"
PURE = "pure composition"
ADVANCED = "advanced composition"
RENYI = "Renyi composition"

_ORDERS = 1 + np.geomspace(1e-3, 1e5, 120)
_PRECISION = 1e-4
"""Share of epsilon (at least 1e-4 nats) that the grid of losses may cost."""


def dominating_atoms(mechanism: Mechanism) -> Atoms:
    """Losses of one report: of the pair of distributions that dominates all pairs of rows (T7), in exact integers.

    The corners of the trade-off curve are running sums of that pair: a step to the right is mass of the second
    distribution, a step down is mass of the first.
    """
    curve = tradeoff(mechanism)
    first, second = -np.diff(curve.misses), np.diff(curve.false_alarms)
    used = first > 0
    first, second = first[used], second[used]
    size = np.log1p(np.abs(first - second) / np.minimum(first, second))
    losses = np.where(first >= second, size * (1 + 16 * UNIT), -size * (1 - 16 * UNIT))
    return Atoms(losses=losses, masses=first / float(TOTAL), infinite=(TOTAL - int(curve.misses[0])) / TOTAL)


def advanced_epsilon(epsilon: float, count: int, delta: float) -> float:
    """Epsilon of `count` adaptively composed epsilon-DP releases at `delta` > 0, rounded up.

    A loss lies in [-epsilon, epsilon] and has conditional mean at most epsilon tanh(epsilon / 2) (Kairouz, Oh and
    Viswanath 2015), so Azuma's inequality gives P(sum > count mean + t) <= exp(-t^2 / (2 count epsilon^2)) = delta.
    """
    if delta <= 0 or math.isinf(epsilon):
        return math.inf
    mean = epsilon * math.tanh(epsilon / 2)
    return (count * mean + epsilon * math.sqrt(2 * count * math.log(1 / delta))) * (1 + 32 * UNIT)


def _is_secret(run: Release) -> bool:
    """True when participation is random and unseen."""
    return run.participation == "poisson"


def _round_epsilon(run: Release) -> float:
    """Pure epsilon of one round whose participation is secret."""
    single = run.dimension * pure_epsilon(run.table.weights) * (1 + 4 * UNIT)
    # Amplification of pure epsilon: e**epsilon - 1 shrinks by the rate (both neighbouring relations).
    growth = run.sampling_rate * math.expm1(single) if single < 700 else math.inf
    return min(single, math.log1p(growth) * (1 + 16 * UNIT))


def _pure(run: Release) -> float:
    return run.rounds * _round_epsilon(run) * (1 + 4 * UNIT) if _is_secret(run) else run.pure


def _advanced(run: Release) -> float:
    if _is_secret(run):
        return advanced_epsilon(_round_epsilon(run), run.rounds, run.delta)
    return advanced_epsilon(pure_epsilon(run.table.weights), run.releases, run.delta)


def renyi_order(table: Mechanism, dimension: int, rounds: int, rate: float, delta: float) -> float:
    """The order whose composition costs least of those tried, by the dominating pair's divergences."""
    atoms = dominating_atoms(table)

    def rough(alpha: float) -> float:
        exponents = (alpha - 1) * atoms.losses
        top = float(exponents.max())
        single = (top + math.log(float(atoms.masses @ np.exp(exponents - top)))) / (alpha - 1)
        return renyi_to_epsilon(rounds * seen_renyi(dimension * single, alpha, rate), alpha, delta)

    return min((float(alpha) for alpha in _ORDERS), key=rough)


def _renyi(run: Release) -> float:
    if _is_secret(run) or run.delta <= 0 or math.isinf(pure_epsilon(run.table.weights)):
        return math.inf
    best = renyi_order(run.table, run.dimension, run.rounds, run.sampling_rate, run.delta)
    single = run.dimension * renyi(run.table.weights, best)
    return renyi_to_epsilon(run.rounds * seen_renyi(single, best, run.sampling_rate), best, run.delta)


def _exact(run: Release) -> float:
    if _is_secret(run):
        return math.inf
    epsilon = worst_sequence_epsilon(
        run.table.weights, coordinates=run.dimension, rounds=run.rounds, delta=run.delta, rate=run.sampling_rate
    )
    return math.inf if epsilon is None else epsilon


def _many(atoms: Atoms, count: int, tolerance: float, delta: float) -> float:
    return composed(atoms, count, tolerance).epsilon(delta) if fits(atoms, count, tolerance) else math.inf


def _pld(run: Release, guess: float) -> float:
    atoms = dominating_atoms(run.table)
    tolerance = _PRECISION * max(1.0, guess if math.isfinite(guess) else 1.0)
    if run.participation == "none":
        return _many(atoms, run.releases, tolerance, run.delta)
    each = tolerance / max(1.0, run.sampling_rate * run.rounds)
    if not fits(atoms, run.dimension, each):
        return math.inf
    one_round: LossDistribution = composed(atoms, run.dimension, each)
    sampled: list[Callable[[Atoms, float], Atoms]] = [revealed]
    if _is_secret(run):
        sampled = [poisson_add, poisson_remove] if run.neighboring == "add_or_remove_one" else [poisson_replace_one]
    return max(
        _many(change(one_round.atoms(), run.sampling_rate), run.rounds, tolerance, run.delta) for change in sampled
    )


def account_local(run: Release) -> Claim:
    """The cost of dimension x rounds reports of one client, each of them seen."""
    bounds = {PURE: _pure(run), ADVANCED: _advanced(run), RENYI: _renyi(run)}
    if run.delta > 0:
        bounds[PLD] = _pld(run, min(bounds.values()))
        bounds[EXACT] = _exact(run)
    return run.claim(bounds)
