"""What many reports cost together when each of them is seen: several valid bounds, the least of which counts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import TOTAL
from mezzotint.privacy.checks import check_count, check_delta, check_rate
from mezzotint.privacy.claim import Claim, Neighboring
from mezzotint.privacy.conversion import renyi_to_epsilon, seen_renyi
from mezzotint.privacy.distribution import Atoms, LossDistribution, composed, fits
from mezzotint.privacy.loss import UNIT, pure_epsilon, renyi
from mezzotint.privacy.recursion import worst_sequence_epsilon
from mezzotint.privacy.run import Run
from mezzotint.privacy.sampling import poisson_add, poisson_remove, poisson_replace_one, revealed
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


def _is_secret(run: Run) -> bool:
    """True when participation is random and unseen."""
    return run.sampling == "poisson"


def _round_epsilon(run: Run) -> float:
    """Pure epsilon of one round whose participation is secret."""
    single = run.coordinates * pure_epsilon(run.mechanism.weights) * (1 + 4 * UNIT)
    # Amplification of pure epsilon: e**epsilon - 1 shrinks by the rate (both neighbouring relations).
    growth = run.rate * math.expm1(single) if single < 700 else math.inf
    return min(single, math.log1p(growth) * (1 + 16 * UNIT))


def _pure(run: Run) -> float:
    return run.rounds * _round_epsilon(run) * (1 + 4 * UNIT) if _is_secret(run) else run.pure


def _advanced(run: Run) -> float:
    if _is_secret(run):
        return advanced_epsilon(_round_epsilon(run), run.rounds, run.delta)
    return advanced_epsilon(pure_epsilon(run.mechanism.weights), run.releases, run.delta)


def _renyi(run: Run) -> float:
    if _is_secret(run) or run.delta <= 0 or math.isinf(pure_epsilon(run.mechanism.weights)):
        return math.inf
    atoms = dominating_atoms(run.mechanism)

    def total(single: float, alpha: float) -> float:
        return run.rounds * seen_renyi(run.coordinates * single, alpha, run.rate)

    def rough(alpha: float) -> float:
        exponents = (alpha - 1) * atoms.losses
        top = float(exponents.max())
        single = (top + math.log(float(atoms.masses @ np.exp(exponents - top)))) / (alpha - 1)
        return renyi_to_epsilon(total(single, alpha), alpha, run.delta)

    best = min((float(alpha) for alpha in _ORDERS), key=rough)
    return renyi_to_epsilon(total(renyi(run.mechanism.weights, best), best), best, run.delta)


def _exact(run: Run) -> float:
    if _is_secret(run):
        return math.inf
    epsilon = worst_sequence_epsilon(
        run.mechanism.weights, coordinates=run.coordinates, rounds=run.rounds, delta=run.delta, rate=run.rate
    )
    return math.inf if epsilon is None else epsilon


def _many(atoms: Atoms, count: int, tolerance: float, delta: float) -> float:
    return composed(atoms, count, tolerance).epsilon(delta) if fits(atoms, count, tolerance) else math.inf


def _pld(run: Run, neighboring: Neighboring, guess: float) -> float:
    atoms = dominating_atoms(run.mechanism)
    tolerance = _PRECISION * max(1.0, guess if math.isfinite(guess) else 1.0)
    if run.sampling == "none":
        return _many(atoms, run.releases, tolerance, run.delta)
    each = tolerance / max(1.0, run.rate * run.rounds)
    if not fits(atoms, run.coordinates, each):
        return math.inf
    one_round: LossDistribution = composed(atoms, run.coordinates, each)
    sampled: list[Callable[[Atoms, float], Atoms]] = [revealed]
    if _is_secret(run):
        sampled = [poisson_add, poisson_remove] if neighboring == "add_or_remove_one" else [poisson_replace_one]
    return max(_many(change(one_round.atoms(), run.rate), run.rounds, tolerance, run.delta) for change in sampled)


def _checked_neighboring(neighboring: str, sampling: str) -> Neighboring:
    if neighboring == "replace_one":
        return "replace_one"
    if neighboring != "add_or_remove_one":
        raise ParameterError("neighboring", neighboring, "use 'replace_one' or 'add_or_remove_one'")
    if sampling != "poisson":
        remedy = "a client seen to be absent is not hidden at all; use 'replace_one', or sampling='poisson' of records"
        raise ParameterError("neighboring", neighboring, remedy)
    return "add_or_remove_one"


def _checked_run(
    mechanism: Mechanism, coordinates: int, rounds: int, sampling_rate: float, sampling: str, delta: float
) -> Run:
    if sampling not in ("revealed", "poisson"):
        remedy = "in the local view use 'revealed' (clients are seen to be absent) or 'poisson' (records, in secret)"
        raise ParameterError("sampling", sampling, remedy)
    rate = check_rate(sampling_rate)
    return Run(
        mechanism=mechanism,
        coordinates=check_count("coordinates", coordinates),
        rounds=check_count("rounds", rounds),
        rate=rate,
        sampling="none" if rate == 1 else ("poisson" if sampling == "poisson" else "revealed"),
        delta=check_delta(delta),
    )


def account_local(
    mechanism: Mechanism,
    *,
    coordinates: int = 1,
    rounds: int = 1,
    sampling_rate: float = 1.0,
    sampling: str = "revealed",
    neighboring: str = "replace_one",
    delta: float = 1e-6,
) -> Claim:
    """The cost of coordinates x rounds reports of one client, each of them seen; see `mezzotint.privacy.account`.

    Arguments, errors, guarantees: as there, for view="local".
    """
    relation = _checked_neighboring(neighboring, sampling)
    run = _checked_run(mechanism, coordinates, rounds, sampling_rate, sampling, delta)
    bounds = {PURE: _pure(run), ADVANCED: _advanced(run), RENYI: _renyi(run)}
    if run.delta > 0:
        bounds[PLD] = _pld(run, relation, min(bounds.values()))
        bounds[EXACT] = _exact(run)
    unit = "record" if sampling == "poisson" else "client"
    return run.claim(bounds, neighboring=relation, unit=unit, observer="reports", honest_clients=None)
