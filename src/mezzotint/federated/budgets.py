"""What a budget buys: the rounds, or the noise, that keep to it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar, final

from mezzotint.core.arguments import (
    check_count,
    check_delta,
    check_limit,
    check_positive,
)
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.kinds import checked
from mezzotint.core.records import above, exactly
from mezzotint.core.search import bracket
from mezzotint.privacy.claim import Claim


@final
@checked
@dataclass(frozen=True, kw_only=True)
class Sums:
    """Secure sums that one client is in, as a claim is about them.

    Arguments:
        size: coordinates of an update.
        clients: fewest summands of a sum.
        rounds: the number of sums.
        corrupted: summands that may add no noise.
        delta: of the claim.

    Raises:
        ParameterError: counts or a probability out of their ranges.

    Example:
        >>> mz.federated.Sums(size=1000, clients=100, delta=1e-6).rounds
        1
    """

    size: int
    clients: int
    rounds: int = 1
    corrupted: int = 0
    delta: float

    def __post_init__(self) -> None:
        check_count("size", self.size, least=0)
        check_count("clients", self.clients)
        check_count("rounds", self.rounds)
        check_count("corrupted", self.corrupted, least=0)
        check_delta(self.delta)


class Claiming(Protocol):
    """What a search for noise asks of an encoding."""

    def central(self, sums: Sums) -> Claim | None:
        """The claim about sums."""
        ...


E = TypeVar("E", bound=Claiming)

_LEAST, _MOST = 1e-2, 1e4  # noise multipliers that are tried

_NEAR = 1e-4
"""Share of a noise multiplier that may be more than is needed."""


def noise_within(budget: float, make: Callable[[float], E], sums: Sums) -> tuple[float, E]:
    """The least noise multiplier, to within 1e-4 of it, with its encoding, that keeps to the
    budget.

    Arguments:
        budget: largest epsilon of the central claim about `sums`.
        make: noise multiplier -> encoding; more noise costs less.
        sums: of the same client.

    Raises:
        InfeasibleError: no multiplier up to 10,000 suffices.
        ParameterError: a budget that is not finite and above 0.
    """
    check_positive("budget", budget)
    encodings: dict[float, E] = {}
    last_cost = math.inf

    def suffices(multiplier: float) -> bool:
        nonlocal last_cost
        try:
            encoding = make(multiplier)
        except ParameterError:  # so little noise that sums would need too many bits
            return False
        claim = encoding.central(sums)
        last_cost = math.inf if claim is None else claim.epsilon
        encodings[multiplier] = encoding
        return last_cost <= budget

    _ = make(_MOST)  # what is refused with any noise is refused here
    if not suffices(_MOST):
        raise InfeasibleError(
            f"epsilon={exactly(budget)}: even a noise multiplier of {_MOST:g} gives epsilon "
            f"{above(last_cost)}; allow more, or take part in fewer rounds"
        )
    multiplier = _LEAST
    if not suffices(_LEAST):
        multiplier, _ = bracket(suffices, _MOST, _LEAST, tolerance=_NEAR, geometric=True)
    return multiplier, encodings[multiplier]


def rounds_within(budget: float, spent: Callable[[int], float], rounds: int) -> int:
    """The most rounds, up to `rounds`, whose cost (non-decreasing) is within the budget;
    InfeasibleError for none.
    """
    check_limit("budget", budget)
    if spent(rounds) <= budget:
        return rounds
    least_cost = spent(1)
    if least_cost > budget:
        cost = "has no finite epsilon"
        remedy = "use a mechanism with noise"
        if least_cost < math.inf:
            cost = f"costs epsilon {above(least_cost)}"
            remedy = "use a noisier mechanism, more clients or fewer parameters, or allow more"
        raise InfeasibleError(
            f"epsilon={exactly(budget)}: one round {cost}, nothing was sent; {remedy}"
        )
    return 1 + bisect_right(range(2, rounds), budget, key=spent)


def with_evaluations(updates: Claim, measured: Claim) -> Claim:
    """The joint claim for updates and for metrics of the same clients: epsilons and deltas add
    up.
    """
    epsilon = math.nextafter(updates.epsilon + measured.epsilon, math.inf)
    method = f"{updates.method} and {measured.method}, added"
    honest = [
        claim.honest_clients for claim in (updates, measured) if claim.honest_clients is not None
    ]
    return replace(
        updates,
        epsilon=epsilon,
        delta=updates.delta + measured.delta,
        method=method,
        alternatives=((method, epsilon),),
        honest_clients=min(honest, default=None),
        release=None,
        parts=(("updates", updates.epsilon), ("evaluations", measured.epsilon)),
    )
