"""What a budget buys: how many rounds, with how much noise; and the claim against readers of the models alone."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from mezzotint.core.errors import InfeasibleError
from mezzotint.core.records import above
from mezzotint.federated.encoding import Encoding, FixedPointEncoding, TableEncoding
from mezzotint.federated.joined import WrappedEncoding
from mezzotint.federated.ledger import RunLedger
from mezzotint.privacy.claim import Claim
from mezzotint.vectors.calibration import search

E = TypeVar("E", bound=Encoding)

_LEAST, _MOST = 1e-2, 1e4  # noise multipliers that are tried


def rounds_within(budget: float, spent: Callable[[int], float], rounds: int) -> int:
    """The most rounds, up to `rounds`, whose cost stays within the budget.

    Arguments:
        budget: epsilon.
        spent: rounds -> epsilon, non-decreasing.
        rounds: planned.

    Raises:
        InfeasibleError: not even one round fits.
    """
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


def noise_within(
    budget: float, make: Callable[[float], E], *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0
) -> tuple[float, E]:
    """The least noise, to within two percent of epsilon, that keeps the given number of sums within the budget.

    Arguments:
        budget: epsilon of the central claim.
        make: noise multiplier -> encoding.
        rounds: sums with the same client.
        clients, corrupted: fewest summands, and the number of them that may add no noise.
        size: coordinates of an update.
        delta: of the claim.

    Returns: the noise multiplier and its encoding, whose claim is at most the budget.

    Raises:
        InfeasibleError: no noise multiplier up to 10,000 suffices.
    """

    def cost(encoding: E) -> float:
        claim = encoding.central(rounds=rounds, clients=clients, size=size, delta=delta, corrupted=corrupted)
        return float("inf") if claim is None else claim.epsilon

    # Epsilon is about sqrt(8 rounds log(1/delta)) over the multiplier; any guess would do.
    guess = budget / (8 * rounds**0.5)
    strength, encoding, _ = search(
        lambda strength: make(1 / strength), cost, guess=guess, target=budget, least=1 / _MOST, most=1 / _LEAST
    )
    return 1 / strength, encoding


def with_evaluations(updates: Claim, measured: Claim) -> Claim:
    """The joint claim for updates and for metrics of the same clients: epsilons and deltas add up."""
    total = math.nextafter(updates.epsilon + measured.epsilon, math.inf)
    method = f"{updates.method} and {measured.method}, added"
    honest = [claim.honest_clients for claim in (updates, measured) if claim.honest_clients is not None]
    return replace(
        updates, epsilon=total, delta=updates.delta + measured.delta, method=method, alternatives=((method, total),),
        honest_clients=min(honest, default=None), release=None,
        parts=(("updates", updates.epsilon), ("evaluations", measured.epsilon)),
    )  # fmt: skip


def _not_amplified(encoding: Encoding) -> str:
    """Why sampling amplifies no claim under an encoding other than a plain table."""
    if isinstance(encoding, WrappedEncoding):
        return "none: amplification is proved for updates summed as they are, and these are transformed first"
    if isinstance(encoding, FixedPointEncoding):
        return "none: there is no noise that absence could amplify"
    return "none: amplification is proved for tables, not for noise that is added to vectors"


def against_readers(
    encoding: Encoding, ledger: RunLedger, *, secret: bool, per_round: int, size: int, delta: float, corrupted: int
) -> Claim | str:
    """The claim against a reader of the models who does not know who took part; or why there is none.

    Arguments:
        encoding: of the run.
        ledger: of the run; such a reader must not see it.
        secret: whether the server drew each round's clients in secret, without replacement.
        per_round: number of clients drawn.
        size: coordinates of an update.
        delta: of the claim.
        corrupted: clients that collude with the reader; with any there is no claim, for they know who took part.

    Returns: a claim about all rounds, for clients that drop out independently of their data; only a run in which no
        client dropped out gets one.
    Source: docs/proofs/sums.md, "Pairs, composition, participation".
    """
    if not ledger.charges:
        return "nothing was released"
    if not secret:
        return "none: only a fixed number of clients that the server draws in secret is amplified here"
    if corrupted:
        return "none: a corrupted client knows who took part with it"
    if not isinstance(encoding, TableEncoding):
        return _not_amplified(encoding)
    among = ledger.among
    if among is None or among <= per_round:
        return "none: every round has to have the same clients to draw from, and more of them than it draws"
    if any(text != "released" for text in ledger.rounds.values()) or ledger.smallest_sum < per_round:
        return "none: clients that were drawn vanished, or a round failed"
    scheme = encoding.scheme(size, per_round)
    return scheme.claim(
        clients=per_round, rounds=len(ledger.rounds), delta=delta,
        sampling="without_replacement", sampling_rate=per_round / among,
    )  # fmt: skip
