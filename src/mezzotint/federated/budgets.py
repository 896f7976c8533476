"""What a budget buys: the rounds, or the noise, that keep to it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar, final

from mezzotint.core.arguments import check_count, check_delta, check_limit, check_positive
from mezzotint.core.errors import InfeasibleError
from mezzotint.core.records import above
from mezzotint.privacy.claim import Claim
from mezzotint.vectors.cost_search import search


@final
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


def noise_within(budget: float, make: Callable[[float], E], sums: Sums) -> tuple[float, E]:
    """The least noise multiplier, to within two percent of epsilon, with its encoding, that keeps
    to the budget.

    Arguments:
        budget: largest epsilon of the central claim about `sums`.
        make: noise multiplier -> encoding.
        sums: of the same client.

    Raises:
        InfeasibleError: no multiplier up to 10,000 suffices.
        ParameterError: a budget that is not finite and above 0.
    """
    check_positive("budget", budget)

    def cost(encoding: E) -> float:
        claim = encoding.central(sums)
        return math.inf if claim is None else claim.epsilon

    # Epsilon is about sqrt(8 rounds log(1/delta)) over the multiplier; any guess would do.
    first_guess = budget / (8 * sums.rounds**0.5)
    strength, encoding, _ = search(
        lambda strength: make(1 / strength),
        cost,
        guess=first_guess,
        target=budget,
        least=1 / _MOST,
        most=1 / _LEAST,
    )
    return 1 / strength, encoding


def rounds_within(budget: float, spent: Callable[[int], float], rounds: int) -> int:
    """The most rounds, up to `rounds`, whose cost (non-decreasing) is within the budget;
    InfeasibleError for none.
    """
    check_limit("budget", budget)
    if spent(rounds) <= budget:
        return rounds
    least_cost = spent(1)
    if least_cost > budget:
        cost, remedy = "has no finite epsilon", "use a mechanism with noise"
        if least_cost < math.inf:
            cost = f"costs epsilon {above(least_cost)}"
            remedy = "use a noisier mechanism, more clients or fewer parameters, or allow more"
        raise InfeasibleError(f"epsilon={budget:g}: one round {cost}, nothing was sent; {remedy}")
    return 1 + bisect_right(range(2, rounds), budget, key=spent)


def with_evaluations(updates: Claim, measured: Claim) -> Claim:
    """The joint claim for updates and for metrics of the same clients: epsilons and deltas add up."""
    epsilon = math.nextafter(updates.epsilon + measured.epsilon, math.inf)
    method = f"{updates.method} and {measured.method}, added"
    honest = [
        claim.honest_clients for claim in (updates, measured) if claim.honest_clients is not None
    ]
    return replace(
        updates, epsilon=epsilon, delta=updates.delta + measured.delta, method=method, alternatives=((method, epsilon),),
        honest_clients=min(honest, default=None), release=None,
        parts=(("updates", updates.epsilon), ("evaluations", measured.epsilon)),
    )  # fmt: skip
