"""The other way round: from a budget for a whole release to the parameter of the mechanism."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, final

from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.privacy.account import account
from mezzotint.privacy.checks import check_count, check_delta
from mezzotint.privacy.claim import Claim

if TYPE_CHECKING:
    from mezzotint.core.mechanism import Mechanism

Build = Callable[[float], "Mechanism"]

_STEPS = 60
"""Most halvings of an interval of parameters."""

_CROWD = 10**6
"""Up to how many times the clients are tried when asked how many would do."""


@final
@dataclass(frozen=True, kw_only=True)
class Plan:
    """A whole release whose mechanism is still to be found; the words of `mezzotint.privacy.account`.

    Arguments:
        coordinates, rounds, sampling_rate, sampling, neighboring, view, clients, corrupted, geometry, l2_norm, delta:
            as in `account`.
    """

    coordinates: int = 1
    rounds: int = 1
    sampling_rate: float = 1.0
    sampling: str = "revealed"
    neighboring: str = "replace_one"
    view: str = "local"
    clients: int | None = None
    corrupted: int = 0
    geometry: str = "coordinate"
    l2_norm: float | None = None
    delta: float = 1e-6

    def account(self, mechanism: Mechanism) -> Claim:
        """The claim of the release if this mechanism is used."""
        return account(
            mechanism,
            coordinates=self.coordinates,
            rounds=self.rounds,
            sampling_rate=self.sampling_rate,
            sampling=self.sampling,
            neighboring=self.neighboring,
            view=self.view,
            clients=self.clients,
            corrupted=self.corrupted,
            geometry=self.geometry,
            l2_norm=self.l2_norm,
            delta=self.delta,
        )


@final
@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A parameter that meets a budget, the table it makes, and the claim of the whole plan.

    Arguments:
        parameter: what was searched, in the units of `build`.
        mechanism: build(parameter).
        claim: at or below the budget.
        tried: (parameter, epsilon) of everything that was computed, in order.
    """

    parameter: float
    mechanism: Mechanism
    claim: Claim
    tried: tuple[tuple[float, float], ...]


@final
@dataclass(kw_only=True)
class _Search:
    """Claims computed so far."""

    build: Build
    plan: Plan
    budget: float
    tried: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])

    def at(self, parameter: float) -> tuple[Mechanism, Claim]:
        mechanism = self.build(parameter)
        claim = self.plan.account(mechanism)
        self.tried.append((parameter, claim.epsilon))
        return mechanism, claim


def calibrate(
    build: Build,
    *,
    epsilon: float,
    plan: Plan,
    quiet: float,
    loud: float,
    tolerance: float = 1e-3,
) -> Calibration:
    """The parameter nearest to `quiet` (least noise) with which a whole release stays within (epsilon, delta).

    Arguments:
        build: parameter -> Mechanism, more noise towards `loud`; for example a design at that epsilon of one report,
            or integer noise of that sigma.
        epsilon: budget for the whole release at `plan.delta`, > 0.
        plan: everything but the mechanism: clients, coordinates, rounds, participation, view, delta.
        quiet, loud: ends of the search, both positive; either may be the larger one.
        tolerance: relative accuracy of the parameter.

    Returns: the quietest parameter found, with its claim.

    Raises:
        ParameterError: a budget or ends that are no positive numbers, or what `account` refuses.
        InfeasibleError: not even `loud` meets the budget; the message says how many coordinates, rounds or clients
            would, at that parameter.

    Guarantees:
        claim.epsilon <= epsilon: it is the claim of the mechanism returned, whatever the search assumed.
        No quieter parameter further than `tolerance` away does, if more noise never costs more.
    """
    for name, value in (("epsilon", epsilon), ("quiet", quiet), ("loud", loud), ("tolerance", tolerance)):
        if not 0 < value < math.inf:
            raise ParameterError(name, value, "need a positive, finite number")
    check_delta(plan.delta)
    search = _Search(build=build, plan=plan, budget=epsilon)
    mechanism, claim = search.at(quiet)
    if claim.epsilon <= epsilon:
        return Calibration(parameter=quiet, mechanism=mechanism, claim=claim, tried=tuple(search.tried))
    good, (mechanism, claim) = loud, search.at(loud)
    if claim.epsilon > epsilon:
        raise InfeasibleError(_advice(search, mechanism, claim, loud))
    bad = quiet
    for _ in range(_STEPS):
        if abs(math.log(good / bad)) <= tolerance:
            break
        middle = math.sqrt(good * bad)
        made, found = search.at(middle)
        if found.epsilon <= epsilon:
            good, mechanism, claim = middle, made, found
        else:
            bad = middle
    return Calibration(parameter=good, mechanism=mechanism, claim=claim, tried=tuple(search.tried))


def _advice(search: _Search, mechanism: Mechanism, claim: Claim, loud: float) -> str:
    """What would meet the budget where no parameter does."""
    plan, budget = search.plan, search.budget
    ways: list[str] = []
    for name in ("coordinates", "rounds"):
        most = _most(name, mechanism, plan, budget)
        if most is not None:
            ways.append(f"{name}={most} instead of {getattr(plan, name)}")
    crowd = _crowd(mechanism, plan, budget)
    if crowd is not None:
        ways.append(f"view='sum' with clients={crowd}" if plan.view == "local" else f"clients={crowd}")
    ways.append(f"a parameter louder than {loud:g}")
    return (
        f"calibrate: even at {loud:g}, the loudest parameter, the release costs epsilon={claim.epsilon:.6g} at "
        f"delta={plan.delta:g}, above epsilon={budget:g}; what would do: {'; or '.join(ways)}"
    )


def _most(name: str, mechanism: Mechanism, plan: Plan, budget: float) -> int | None:
    """The largest number of coordinates or rounds within the budget; None when not even one is."""

    def meets(count: int) -> bool:
        changed = replace(plan, coordinates=count) if name == "coordinates" else replace(plan, rounds=count)
        return changed.account(mechanism).epsilon <= budget

    low, high = 1, check_count(name, getattr(plan, name))
    if high == 1 or not meets(1):
        return None
    while high - low > max(1, low // 100):
        middle = max(low + 1, min(high - 1, math.isqrt(low * high)))
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low


def _crowd(mechanism: Mechanism, plan: Plan, budget: float) -> int | None:
    """Clients whose secure sum is within the budget (not the fewest); None when none were found."""
    if plan.view == "local" and plan.sampling == "poisson":
        return None  # records drawn in secret have no counterpart in sums over clients
    base = plan if plan.view == "sum" else replace(plan, view="sum")
    first = base.clients or 1
    factor = 2.0
    while factor <= _CROWD:
        clients = math.ceil(first * factor)
        try:
            epsilon = replace(base, clients=clients).account(mechanism).epsilon
        except ParameterError:
            return None
        if epsilon <= budget:
            return clients
        # Epsilon falls about with the root of the clients, at first faster.
        factor *= min(max((epsilon / budget) ** 2, 2.0), 100.0)
    return None
