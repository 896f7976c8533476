"""What a budget buys: the rounds, or the noise, that keep to it."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

from mezzotint.core.errors import InfeasibleError
from mezzotint.core.records import above
from mezzotint.privacy.claim import Claim
from mezzotint.vectors.advice import search


class Claiming(Protocol):
    """What a search for noise asks of an encoding."""

    def central(
        self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0
    ) -> Claim | None:
        """The claim about sums."""
        ...


E = TypeVar("E", bound=Claiming)

_LEAST, _MOST = 1e-2, 1e4  # noise multipliers that are tried


def noise_within(
    budget: float,
    make: Callable[[float], E],
    *,
    rounds: int,
    clients: int,
    size: int,
    delta: float,
    corrupted: int = 0,
) -> tuple[float, E]:
    """The least noise multiplier, to within two percent of epsilon, with its encoding, that keeps to the budget.

    The central claim is about `rounds` sums of the same client with `clients` summands or more, of whom `corrupted` may
    add no noise. InfeasibleError if no multiplier up to 10,000 suffices.
    """

    def cost(encoding: E) -> float:
        claim = encoding.central(
            rounds=rounds, clients=clients, size=size, delta=delta, corrupted=corrupted
        )
        return float("inf") if claim is None else claim.epsilon

    # Epsilon is about sqrt(8 rounds log(1/delta)) over the multiplier; any guess would do.
    guess = budget / (8 * rounds**0.5)
    strength, encoding, _ = search(
        lambda strength: make(1 / strength),
        cost,
        guess=guess,
        target=budget,
        least=1 / _MOST,
        most=1 / _LEAST,
    )
    return 1 / strength, encoding


def rounds_within(budget: float, spent: Callable[[int], float], rounds: int) -> int:
    """The most rounds, up to `rounds`, whose cost (non-decreasing) is within the budget; InfeasibleError for none."""
    if spent(rounds) <= budget:
        return rounds
    least = spent(1)
    if least > budget:
        cost, remedy = "has no finite epsilon", "use a mechanism with noise"
        if least < math.inf:
            cost = f"costs epsilon {above(least)}"
            remedy = "use a noisier mechanism, more clients or fewer parameters, or allow more"
        raise InfeasibleError(f"epsilon={budget:g}: one round {cost}, nothing was sent; {remedy}")
    return 1 + bisect_right(range(2, rounds), budget, key=spent)


def with_evaluations(updates: Claim, measured: Claim) -> Claim:
    """The joint claim for updates and for metrics of the same clients: epsilons and deltas add up."""
    total = math.nextafter(updates.epsilon + measured.epsilon, math.inf)
    method = f"{updates.method} and {measured.method}, added"
    honest = [
        claim.honest_clients for claim in (updates, measured) if claim.honest_clients is not None
    ]
    return replace(
        updates, epsilon=total, delta=updates.delta + measured.delta, method=method, alternatives=((method, total),),
        honest_clients=min(honest, default=None), release=None,
        parts=(("updates", updates.epsilon), ("evaluations", measured.epsilon)),
    )  # fmt: skip
