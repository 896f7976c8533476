"""What a client insists on before it answers: checked against the plan by the client itself, never read from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from mezzotint.core.errors import ParameterError
from mezzotint.federated.secagg.errors import PlanRefused, SwappedKey
from mezzotint.federated.secagg.parameters import CORRUPTED, SECURITY_BITS, corrupted_in, forked, split
from mezzotint.federated.secagg.plan import RoundPlan
from mezzotint.federated.secagg.roster import Card, Roster

ROUNDS = 1024


@final
@dataclass(frozen=True, kw_only=True)
class Trust:
    """What a client insists on before it answers.

    Arguments:
        roster: all clients that there are; None takes the server's word for it: a server that invents clients then
            learns what it likes.
        corrupted: largest share of the roster that colludes with the server.
        minimum: fewest summands that a plan may ask for.
        rounds: largest round number. A server can look ahead for the number whose draw suits it best, so each round
            must be safer by as much.
        security_bits: the odds that `rounds` rounds together protect less than this class promises are 2**-this.

    Raises:
        ParameterError: values that make no sense.
    """

    roster: Roster | None = None
    corrupted: float = CORRUPTED
    minimum: int = 2
    rounds: int = ROUNDS
    security_bits: float = SECURITY_BITS

    def __post_init__(self) -> None:
        if not 0 <= self.corrupted < 1:
            raise ParameterError("corrupted", self.corrupted, "a share of the clients in [0, 1)")
        if self.minimum < 2:
            raise ParameterError("minimum", self.minimum, "a sum of fewer than 2 hides nobody")
        if self.rounds < 1:
            raise ParameterError("rounds", self.rounds, "need at least one round")

    @property
    def bits(self) -> float:
        """Security of one round, so that `rounds` of them have `security_bits` together."""
        return self.security_bits + math.log2(self.rounds)

    def drawn_bits(self, population: int) -> float:
        """Security of one draw: the server may choose of two ways to draw, what part of so many, what committee."""
        return self.bits + 1 + 2 * math.log2(population)

    def roster_of(self, plan: RoundPlan, shipped: bytes) -> Roster:
        """The roster that the plan is about: this client's own, or the one shipped to a client that holds none.

        Raises:
            PlanRefused: the plan is about another one.
        """
        roster = Roster.from_bytes(shipped) if self.roster is None else self.roster
        if plan.roster != roster.digest:
            raise PlanRefused("plan", "roster: the plan is about other clients than this client's roster lists")
        if plan.clients > len(roster.members):
            raise PlanRefused("plan", f"clients={plan.clients}: the roster has {len(roster.members)}")
        return roster

    def corrupted_of(self, plan: RoundPlan, population: int | None = None) -> int:
        """Clients of the round whose noise and honesty are not relied upon."""
        if population is None:
            population = plan.clients if self.roster is None else max(plan.clients, len(self.roster.members))
        bits = self.drawn_bits(population)
        return corrupted_in(population=population, share=self.corrupted, clients=plan.clients, bits=bits)

    def check(self, plan: RoundPlan, population: int) -> None:
        """Raises PlanRefused when the plan protects less."""
        if plan.round > self.rounds:
            raise PlanRefused("plan", f"round={plan.round}: this client answers rounds up to {self.rounds}")
        if plan.minimum < self.minimum:
            raise PlanRefused("plan", f"minimum={plan.minimum}: this client wants at least {self.minimum} summands")
        bad = self.corrupted_of(plan, population)
        if plan.minimum <= bad:
            why = f"{bad} of {plan.clients} may collude with the server (corrupted, --colluding), too few are left"
            raise PlanRefused("plan", f"minimum={plan.minimum}: {why}")
        sizes = {"clients": plan.clients, "corrupted": bad}
        if forked(**sizes, members=plan.members, quorum=plan.quorum) > -self.drawn_bits(population):
            raise PlanRefused("plan", f"quorum={plan.quorum}: two sets of survivors could both get one")
        if split(**sizes, minimum=plan.minimum, picks=plan.picks, least=plan.least) > -self.bits:
            raise PlanRefused("plan", f"picks={plan.picks}, least={plan.least}: too few masks connect the clients")

    def place(self, plan: RoundPlan, roster: Roster, index: int, identity: bytes) -> tuple[Card, ...]:
        """The round's clients in the order drawn, this one at `index`.

        Raises:
            SwappedKey: somebody else is drawn for that place.
        """
        cohort = roster.cohort(plan.round, plan.clients, plan.draw)
        if cohort[index].identity != identity:
            raise SwappedKey("deal", f"another client is drawn for place {index} of this round")
        return cohort
