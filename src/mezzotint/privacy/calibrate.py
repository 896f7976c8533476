"""The other way round: from a budget for a whole release to the parameter of the mechanism."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import final

from mezzotint.core.arguments import check_positive
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.records import above
from mezzotint.core.search import bracket
from mezzotint.privacy.account import account
from mezzotint.privacy.claim import Claim
from mezzotint.privacy.release import Release

Build = Callable[[float], Release]

_STEPS = 60
"""Most halvings of an interval of parameters."""

_CROWD = 10**6
"""Up to how many times the clients are tried when asked how many would do."""


@final
@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A parameter that meets a budget, the release it makes, and its claim.

    Arguments:
        parameter: what was searched, in the units of `build`.
        release: build(parameter).
        claim: at or below the budget.
        tried: (parameter, epsilon) of everything that was computed, in order.
    """

    parameter: float
    release: Release
    claim: Claim
    tried: tuple[tuple[float, float], ...]


def calibrate(build: Build, *, epsilon: float, quiet: float, loud: float, tolerance: float = 1e-3) -> Calibration:
    """The parameter nearest to `quiet` (least noise) with which a whole release stays within (epsilon, delta).

    Arguments:
        build: parameter -> `Release`, more noise towards `loud`; for example of a design at that epsilon of one
            report, or of integer noise of that sigma.
        epsilon: budget for the whole release at its delta, > 0.
        quiet, loud: ends of the search, both positive; either may be the larger one.
        tolerance: relative accuracy of the parameter.

    Returns: the quietest parameter found, with its claim.

    Raises:
        ParameterError: a budget or ends that are no positive numbers, or what `account` refuses.
        InfeasibleError: not even `loud` meets the budget; the message says which dimension, rounds or clients
            would, at that parameter.

    Guarantees:
        claim.epsilon <= epsilon: it is the claim of the mechanism returned, whatever the search assumed.
        No quieter parameter further than `tolerance` away does, if more noise never costs more.
    """
    for name, value in (("epsilon", epsilon), ("quiet", quiet), ("loud", loud), ("tolerance", tolerance)):
        check_positive(name, value)
    tried: list[tuple[float, float]] = []

    def at(parameter: float) -> tuple[Release, Claim]:
        release = build(parameter)
        claim = account(release)
        tried.append((parameter, claim.epsilon))
        return release, claim

    release, claim = at(quiet)
    if claim.epsilon <= epsilon:
        return Calibration(parameter=quiet, release=release, claim=claim, tried=tuple(tried))
    release, claim = at(loud)
    if claim.epsilon > epsilon:
        raise InfeasibleError(_advice(release, claim, epsilon, loud))

    def fits(parameter: float) -> bool:
        nonlocal release, claim
        made, found = at(parameter)
        if found.epsilon <= epsilon:
            release, claim = made, found
        return found.epsilon <= epsilon

    # |log(a / b)| <= t where the difference is at most 1 - e^-t of the larger one.
    good, _ = bracket(fits, loud, quiet, tolerance=-math.expm1(-tolerance), steps=_STEPS, geometric=True)
    return Calibration(parameter=good, release=release, claim=claim, tried=tuple(tried))


def _advice(release: Release, claim: Claim, budget: float, loud: float) -> str:
    """What would meet the budget where no parameter does."""
    ways: list[str] = []
    for name in ("dimension", "rounds"):
        most = _most(name, release, budget)
        if most is not None:
            ways.append(f"{name}={most} instead of {getattr(release, name)}")
    crowd = _crowd(release, budget)
    if crowd is not None:
        ways.append(f"trust='secure_sum' with clients={crowd}" if release.trust == "local" else f"clients={crowd}")
    ways.append(f"more noise than parameter={loud:g}")
    return (
        f"calibrate: even at {loud:g}, the parameter with most noise, the release costs "
        f"epsilon={above(claim.epsilon)} ({claim.basis}) at "
        f"delta={release.delta:g}, above epsilon={budget:g}; any of these would meet the budget: {'; or '.join(ways)}"
    )


def _most(name: str, release: Release, budget: float) -> int | None:
    """The largest dimension or number of rounds within the budget; None when not even one is."""

    def meets(count: int) -> bool:
        return account(replace(release, **{name: count})).epsilon <= budget

    low, high = 1, int(getattr(release, name))
    if high == 1 or not meets(1):
        return None
    while high - low > max(1, low // 100):
        middle = max(low + 1, math.isqrt(low * high))
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low


def _crowd(release: Release, budget: float) -> int | None:
    """Clients whose secure sum is within the budget (not the fewest); None when none were found."""
    if release.trust == "local" and release.sampling == "poisson":
        return None  # records drawn in secret have no counterpart in sums over clients
    first = release.clients or 1
    factor = 2.0
    while factor <= _CROWD:
        clients = math.ceil(first * factor)
        try:
            epsilon = account(replace(release, trust="secure_sum", clients=clients)).epsilon
        except ParameterError:
            return None
        if epsilon <= budget:
            return clients
        # Epsilon falls about with the root of the clients, at first faster.
        factor *= min(max((epsilon / budget) ** 2, 2.0), 100.0)
    return None
