"""From a budget for a whole release to the parameter of its mechanism."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import final

from mezzotint.core.arguments import check_positive
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.records import Record, above, exactly
from mezzotint.core.search import bracket
from mezzotint.privacy.accounting import account
from mezzotint.privacy.claim import Claim, Release

Build = Callable[[float], Release]
"""A parameter to the release that it makes."""

_HALVINGS = 60
"""Most halvings of an interval of parameters."""

_MOST_CLIENTS = 10**6
"""The largest factor by which clients are multiplied in search of a sufficient number."""


@final
@dataclass(frozen=True, kw_only=True)
class Calibration(Record):
    """A parameter that meets a budget, the release it makes, and its claim.

    Arguments:
        parameter: what was searched, in the units of `build`.
        release: build(parameter).
        claim: at or below the budget.
        tried: (parameter, epsilon) of everything that was computed, in order.

    Example:
        >>> coin = mz.families.randomized_response
        >>> def build(epsilon):
        ...     return mz.privacy.Release(mechanism=coin(epsilon=epsilon), dimension=40, delta=1e-6)
        >>> found = mz.privacy.calibrate(build, epsilon=2.0, least_noise_at=2.0, most_noise_at=0.01)
        >>> found.claim.epsilon <= 2.0, found.parameter > 0.05
        (True, True)
    """

    parameter: float
    release: Release = field(repr=False)
    claim: Claim
    tried: tuple[tuple[float, float], ...] = field(repr=False)


def calibrate(
    build: Build,
    *,
    epsilon: float,
    least_noise_at: float,
    most_noise_at: float,
    tolerance: float = 1e-3,
) -> Calibration:
    """The parameter nearest to `least_noise_at` whose release stays within (epsilon, delta).

    Arguments:
        build: parameter -> `Release`, more noise towards `most_noise_at`; for example of a design
            at that epsilon of one report, or of integer noise of that sigma.
        epsilon: budget for the whole release at its delta, > 0.
        least_noise_at, most_noise_at: ends of the search, both positive; either may be the larger
            one.
        tolerance: relative accuracy of the parameter.

    Returns: the parameter with least noise found, with its claim.

    Raises:
        ParameterError: a budget or an end of the search that is not positive; whatever `account`
            refuses.
        InfeasibleError: not even `most_noise_at` meets the budget; the message says which
            dimension, rounds or clients would, at that parameter.

    Guarantees:
        claim.epsilon <= epsilon: it is the claim of the mechanism returned, whatever the search
        assumed. No parameter with less noise does that is further than `tolerance` away, if more
        noise never costs more.

    Example:
        >>> coin = mz.families.randomized_response
        >>> def build(epsilon):
        ...     return mz.privacy.Release(mechanism=coin(epsilon=epsilon), rounds=10, delta=1e-6)
        >>> found = mz.privacy.calibrate(build, epsilon=3.0, least_noise_at=3.0, most_noise_at=0.01)
        >>> 2.99 < found.claim.epsilon <= 3.0
        True
    """
    check_positive("epsilon", epsilon)
    check_positive("least_noise_at", least_noise_at)
    check_positive("most_noise_at", most_noise_at)
    check_positive("tolerance", tolerance)
    trials = _Trials(build, epsilon)
    parameter = least_noise_at
    if not trials.fits(least_noise_at):
        if not trials.fits(most_noise_at):
            release, claim = trials.computed[most_noise_at]
            raise InfeasibleError(_advice(release, claim, epsilon, most_noise_at))
        # |log(a / b)| <= t where the difference is at most 1 - e^-t of the larger one.
        parameter, _excessive = bracket(
            trials.fits,
            most_noise_at,
            least_noise_at,
            tolerance=-math.expm1(-tolerance),
            steps=_HALVINGS,
            geometric=True,
        )
    return trials.calibration(parameter)


@final
class _Trials:
    """The releases of the parameters tried so far, with their claims."""

    def __init__(self, build: Build, budget: float) -> None:
        self.build = build
        self.budget = budget
        self.computed: dict[float, tuple[Release, Claim]] = {}

    def fits(self, parameter: float) -> bool:
        """Whether the release of a parameter is within the budget."""
        release = self.build(parameter)
        claim = account(release)
        self.computed[parameter] = (release, claim)
        return claim.epsilon <= self.budget

    def calibration(self, parameter: float) -> Calibration:
        """The result, of a parameter that was tried."""
        release, claim = self.computed[parameter]
        tried: list[tuple[float, float]] = []
        for tried_parameter, (_release, tried_claim) in self.computed.items():
            tried.append((tried_parameter, tried_claim.epsilon))
        return Calibration(
            parameter=parameter,
            release=release,
            claim=claim,
            tried=tuple(tried),
        )


def _advice(
    release: Release,
    claim: Claim,
    budget: float,
    most_noise_at: float,
) -> str:
    """Changes that would meet the budget where no parameter does."""
    remedies: list[str] = []
    for name in ("dimension", "rounds"):
        largest = _largest_count(name, release, budget)
        if largest is not None:
            remedies.append(f"{name}={largest} instead of {getattr(release, name)}")
    clients = _enough_clients(release, budget)
    if clients is not None and release.trust == "local":
        remedies.append(f"trust='secure_sum' with clients={clients}")
    elif clients is not None:
        remedies.append(f"clients={clients}")
    remedies.append(f"more noise than parameter={most_noise_at:g}")
    return (
        f"calibrate: even at {most_noise_at:g}, the parameter with most noise, the release costs "
        f"epsilon={above(claim.epsilon)} ({claim.basis}) at delta={release.delta:g}, above "
        f"epsilon={exactly(budget)}; any of these would meet the budget: {'; or '.join(remedies)}"
    )


def _largest_count(name: str, release: Release, budget: float) -> int | None:
    """The largest dimension or number of rounds within the budget, up to 1 %.

    None when not even one is.
    """

    @functools.cache
    def meets(count: int) -> bool:
        return account(replace(release, **{name: count})).epsilon <= budget

    excessive = int(getattr(release, name))
    if excessive == 1 or not meets(1):
        return None
    largest, _excessive = bracket(
        lambda count: meets(round(count)),
        1.0,
        excessive,
        tolerance=0.01,
        geometric=True,
    )
    return round(largest)


def _enough_clients(release: Release, budget: float) -> int | None:
    """Clients whose secure sum is within the budget (not the fewest); None when none were found."""
    if release.trust == "local" and release.sampling == "poisson":
        return None  # records drawn in secret have no counterpart in sums over clients
    factor = 2.0
    while factor <= _MOST_CLIENTS:
        clients = math.ceil((release.clients or 1) * factor)
        summed = replace(release, trust="secure_sum", clients=clients)
        try:
            epsilon = account(summed).epsilon
        except ParameterError:
            return None
        if epsilon <= budget:
            return clients
        # Epsilon falls about with the root of the clients, at first faster.
        squared_excess = (epsilon / budget) ** 2
        factor *= min(max(squared_excess, 2.0), 100.0)
    return None
