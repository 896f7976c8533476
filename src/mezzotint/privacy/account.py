"""What many reports cost together: the least of several valid bounds, with its name."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import TOTAL
from mezzotint.privacy.claim import Claim, Neighboring, Sampling, Unit
from mezzotint.privacy.distribution import Atoms, LossDistribution, composed, fits
from mezzotint.privacy.loss import UNIT, pure_epsilon, renyi
from mezzotint.privacy.recursion import worst_sequence_epsilon
from mezzotint.privacy.sampling import check_rate, poisson_add, poisson_remove, poisson_replace_one, revealed
from mezzotint.privacy.sums.account import account_sum
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


@final
@dataclass(frozen=True, kw_only=True)
class _Release:
    """What is accounted: a table, how often it is used, and who takes part."""

    mechanism: Mechanism
    coordinates: int
    rounds: int
    rate: float
    sampling: Sampling
    neighboring: Neighboring
    delta: float

    @property
    def secret(self) -> bool:
        """True when participation is random and unseen."""
        return self.sampling == "poisson"


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


def _round_epsilon(release: _Release) -> float:
    """Pure epsilon of one round."""
    single = release.coordinates * pure_epsilon(release.mechanism.weights) * (1 + 4 * UNIT)
    if not release.secret:
        return single
    # Amplification of pure epsilon: e**epsilon - 1 shrinks by the rate (both neighbouring relations).
    growth = release.rate * math.expm1(single) if single < 700 else math.inf
    return min(single, math.log1p(growth) * (1 + 16 * UNIT))


def _pure(release: _Release) -> float:
    return release.rounds * _round_epsilon(release) * (1 + 4 * UNIT)


def _advanced(release: _Release) -> float:
    if release.secret:
        return advanced_epsilon(_round_epsilon(release), release.rounds, release.delta)
    single = pure_epsilon(release.mechanism.weights)
    return advanced_epsilon(single, release.coordinates * release.rounds, release.delta)


def renyi_epsilon(divergence: float, alpha: float, delta: float) -> float:
    """Epsilon at `delta` > 0 of a release whose Renyi divergence of order `alpha` > 1 is at most `divergence`.

    Source: Canonne, Kamath and Steinke 2020, Proposition 12.
    """
    saved = math.log1p(-1 / alpha) - math.log(delta * alpha) / (alpha - 1)
    return max(0.0, divergence + saved + (abs(divergence) + abs(saved) + 1) * 16 * UNIT)


def _renyi(release: _Release) -> float:
    if release.secret or release.delta <= 0 or math.isinf(pure_epsilon(release.mechanism.weights)):
        return math.inf
    atoms = dominating_atoms(release.mechanism)

    def total(single: float, alpha: float) -> float:
        per_round = release.coordinates * single
        power = (alpha - 1) * per_round
        if release.sampling == "revealed" and power < 700:
            # A visible absence has likelihood ratio 1: log(1 - rate + rate e**((alpha - 1) D)) / (alpha - 1).
            per_round = math.log1p(release.rate * math.expm1(power)) / (alpha - 1) * (1 + 16 * UNIT)
        return release.rounds * per_round

    def rough(alpha: float) -> float:
        exponents = (alpha - 1) * atoms.losses
        top = float(exponents.max())
        single = (top + math.log(float(atoms.masses @ np.exp(exponents - top)))) / (alpha - 1)
        return renyi_epsilon(total(single, alpha), alpha, release.delta)

    best = min((float(alpha) for alpha in _ORDERS), key=rough)
    return renyi_epsilon(total(renyi(release.mechanism.weights, best), best), best, release.delta)


def _exact(release: _Release) -> float:
    if release.secret:
        return math.inf
    epsilon = worst_sequence_epsilon(
        release.mechanism.weights,
        coordinates=release.coordinates,
        rounds=release.rounds,
        delta=release.delta,
        rate=release.rate,
    )
    return math.inf if epsilon is None else epsilon


def _many(atoms: Atoms, count: int, tolerance: float, delta: float) -> float:
    return composed(atoms, count, tolerance).epsilon(delta) if fits(atoms, count, tolerance) else math.inf


def _pld(release: _Release, guess: float) -> float:
    atoms = dominating_atoms(release.mechanism)
    tolerance = _PRECISION * max(1.0, guess if math.isfinite(guess) else 1.0)
    if release.sampling == "none":
        return _many(atoms, release.coordinates * release.rounds, tolerance, release.delta)
    each = tolerance / max(1.0, release.rate * release.rounds)
    if not fits(atoms, release.coordinates, each):
        return math.inf
    one_round: LossDistribution = composed(atoms, release.coordinates, each)
    sampled: list[Callable[[Atoms, float], Atoms]] = [revealed]
    if release.secret:
        removed = release.neighboring == "add_or_remove_one"
        sampled = [poisson_add, poisson_remove] if removed else [poisson_replace_one]
    return max(
        _many(change(one_round.atoms(), release.rate), release.rounds, tolerance, release.delta) for change in sampled
    )


def _count(name: str, value: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise ParameterError(name, value, "need an integer >= 1") from None
    if isinstance(value, bool) or number < 1:
        raise ParameterError(name, value, "need an integer >= 1")
    return number


def _checked(
    mechanism: Mechanism, coordinates: int, rounds: int, rate: float, sampling: str, neighboring: str, delta: float
) -> _Release:
    if not 0 <= delta < 1:
        raise ParameterError("delta", delta, "need a probability in [0, 1); 0 asks for pure epsilon")
    if sampling not in ("revealed", "poisson"):
        remedy = "in the local view use 'revealed' (clients are seen to be absent) or 'poisson' (records, in secret)"
        raise ParameterError("sampling", sampling, remedy)
    if neighboring not in ("replace_one", "add_or_remove_one"):
        raise ParameterError("neighboring", neighboring, "use 'replace_one' or 'add_or_remove_one'")
    if neighboring == "add_or_remove_one" and sampling != "poisson":
        remedy = "a client seen to be absent is not hidden at all; use 'replace_one', or sampling='poisson' of records"
        raise ParameterError("neighboring", neighboring, remedy)
    rate = check_rate(rate)
    return _Release(
        mechanism=mechanism,
        coordinates=_count("coordinates", coordinates),
        rounds=_count("rounds", rounds),
        rate=rate,
        sampling="none" if rate == 1 else ("poisson" if sampling == "poisson" else "revealed"),
        neighboring="add_or_remove_one" if neighboring == "add_or_remove_one" else "replace_one",
        delta=float(delta),
    )


def _account_local(release: _Release, unit: Unit) -> Claim:
    found = {PURE: _pure(release), ADVANCED: _advanced(release), RENYI: _renyi(release)}
    if release.delta > 0:
        found[PLD] = _pld(release, min(found.values()))
        found[EXACT] = _exact(release)
    valid = sorted(((name, value) for name, value in found.items() if math.isfinite(value)), key=lambda item: item[1])
    method, epsilon = valid[0] if valid else (PLD, math.inf)
    return Claim(
        epsilon=epsilon,
        delta=release.delta,
        neighboring=release.neighboring,
        unit=unit,
        view="local",
        honest_clients=None,
        sampling=release.sampling,
        sampling_rate=release.rate,
        coordinates=release.coordinates,
        rounds=release.rounds,
        method=method,
        alternatives=tuple(valid),
        sha256=release.mechanism.sha256,
    )


def account(
    mechanism: Mechanism,
    *,
    coordinates: int = 1,
    rounds: int = 1,
    sampling_rate: float = 1.0,
    sampling: str = "revealed",
    neighboring: str = "replace_one",
    view: str = "local",
    clients: int | None = None,
    corrupted: int = 0,
    geometry: str = "coordinate",
    l2_norm: float | None = None,
    delta: float = 1e-6,
) -> Claim:
    """The cost of coordinates x rounds reports of one client, each of them seen, or only their secure sums.

    Arguments:
        mechanism: the table that every report is drawn from.
        coordinates: reports of one client in one round; changing the client changes all of them.
        rounds: rounds; inputs of a round may depend on everything seen before.
        sampling_rate: probability in (0, 1] of taking part in a round, independent over rounds.
        sampling: "revealed": a client takes part at random and is seen to be absent otherwise; in the local view the
            only honest reading of sampled clients. "poisson": in the local view a client draws which of its records
            enter the vector it reports about, tells nobody, and reports in every round; the unit protected is then one
            record. In the sum view also "without_replacement"; see `account_sum`.
        neighboring: "replace_one", or in the local view with "poisson" also "add_or_remove_one".
        view: "local": every report is seen. "sum": only the secure sum over clients is (`account_sum`).
        clients, corrupted, geometry, l2_norm: sum view only, see `account_sum`.
        delta: in [0, 1).

    Returns: the claim of the best valid method, the others beside it.

    Raises:
        ParameterError: a rate outside (0, 1], counts below 1, delta outside [0, 1), unknown or unfitting words.

    Guarantees:
        epsilon is never below the exact worst case over all inputs, and adaptive choices of them.
        Within 1e-3 of it for up to 8 reports of small tables; of many rows, the dominating pair's (T7).
        Never above rounds * coordinates * mechanism.epsilon.

    Edge cases: delta=0: pure composition. A table with epsilon=inf has a claim when its delta allows one, else inf.
    Source: T2, T7 (docs/proofs/tables.md) and docs/proofs/privacy-composition.md.
    """
    if view == "sum":
        if clients is None:
            raise ParameterError("clients", "None", "say how many reports a sum adds up, e.g. clients=1000")
        if neighboring != "replace_one":
            raise ParameterError("neighboring", neighboring, "sums are accounted for 'replace_one'")
        return account_sum(
            mechanism,
            clients=clients,
            coordinates=coordinates,
            rounds=rounds,
            sampling_rate=sampling_rate,
            sampling=sampling,
            corrupted=corrupted,
            geometry=geometry,
            l2_norm=l2_norm,
            delta=delta,
        )
    if view != "local":
        raise ParameterError("view", view, "use 'local' (every report is seen) or 'sum' (only secure sums are)")
    if clients is not None or corrupted != 0:
        raise ParameterError(
            "clients", str(clients), "nobody else's noise helps where every report is seen; view='sum'?"
        )
    if geometry != "coordinate" or l2_norm is not None:
        raise ParameterError("geometry", geometry, "the local view accounts per coordinate; use view='sum' for 'l2'")
    release = _checked(mechanism, coordinates, rounds, sampling_rate, sampling, neighboring, delta)
    return _account_local(release, "record" if sampling == "poisson" else "client")
