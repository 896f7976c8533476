"""The server's side of a round: collects answers stage by stage and learns the sum of the survivors, or nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.federated.secagg import messages
from mezzotint.federated.secagg.client import mask_key_from_seed, pair_mask_key, self_mask_key
from mezzotint.federated.secagg.errors import (
    DuplicateAnswer,
    InconsistentLists,
    OutOfRangeInteger,
    SwappedKey,
    TamperedShare,
    TooFewClients,
    UnknownSender,
    WrongStage,
)
from mezzotint.federated.secagg.masks import (
    add_mask,
    combine,
    commitment,
    has_large_order,
    public_bytes,
    reduced,
    signed,
    unpack_words,
    word_type,
)
from mezzotint.federated.secagg.messages import Advertisement, Confirmation, SealedShare, Stage
from mezzotint.federated.secagg.plan import RoundPlan, neighbour_graph


@final
@dataclass(frozen=True, kw_only=True)
class SecureSum:
    """The outcome of a round.

    Arguments:
        values: (coordinates,) int64, the sum of the survivors' integers, modulo the plan's modulus; read-only.
        survivors: indices of the clients whose integers are in it, ascending.
        dropped: indices of the invited clients whose integers are not.
    """

    values: npt.NDArray[np.int64]
    survivors: tuple[int, ...]
    dropped: tuple[int, ...]


@final
class Server:
    """One round. Give it every answer with `receive`, then call `advance` for the next stage's messages.

    A refused answer counts as no answer; the round goes on without its sender.

    Arguments:
        plan: the round.
        rng: None draws the ring of neighbours from the operating system; a seed reproduces (tests).
    """

    def __init__(self, plan: RoundPlan, *, rng: Any = None) -> None:
        self.plan = plan
        self._rng = rng
        self._place = 0
        self._adverts: dict[int, Advertisement] = {}
        self._graph: dict[int, tuple[int, ...]] = {}
        self._seeds: dict[int, bytes] = {}
        self._sealed: dict[int, dict[int, SealedShare]] = {}
        self._masked: set[int] = set()
        self._total = np.zeros(plan.coordinates, dtype=word_type(plan.bits))
        self._said: dict[int, Confirmation] = {}
        self._revealed: dict[int, tuple[dict[int, bytes], dict[int, bytes]]] = {}

    @property
    def stage(self) -> Stage:
        """The stage whose answers are being collected."""
        return messages.STAGES[self._place]

    @property
    def answered(self) -> tuple[int, ...]:
        """Clients whose answer of this stage was accepted."""
        return tuple(sorted((self._adverts, self._sealed, self._masked, self._said, self._revealed)[self._place]))

    @property
    def asked(self) -> tuple[int, ...]:
        """Clients whose answer of this stage is awaited or accepted."""
        if self._place == 0:
            return tuple(range(self.plan.clients))
        return tuple(sorted((self._adverts, self._sealed, self._masked, self._said)[self._place - 1]))

    def invitations(self) -> dict[int, bytes]:
        """The first stage's messages."""
        return {index: messages.invitation(self.plan, index) for index in range(self.plan.clients)}

    def receive(self, index: int, answer: bytes) -> None:
        """Takes one client's answer of the present stage.

        Raises:
            DuplicateAnswer: it answered already; the first answer stands.
            UnknownSender: it was not asked.
            ProtocolError: of the kind that fits, for any answer that is not as it should be.
        """
        stage = self.stage
        if index not in self.asked:
            raise UnknownSender(stage, f"client {index} was not asked", (index,))
        if index in self.answered:
            raise DuplicateAnswer(stage, f"client {index} answered already; its first answer stands", (index,))
        takers = (self._advertised, self._shared, self._took_masked, self._confirmed, self._took_reveal)
        takers[self._place](index, answer)

    def advance(self) -> dict[int, bytes]:
        """Closes the present stage; the messages of the next, by client.

        Raises:
            TooFewClients: fewer answered than the plan's minimum: the round is over and nothing was learnt.
            WrongStage: after the last stage; call `result`.
        """
        stage = self.stage
        if stage == "unmask":
            raise WrongStage(stage, "the last stage; its outcome is result()")
        least = self.plan.minimum if self._place < 3 else 1
        if len(self.answered) < least:
            raise TooFewClients(stage, f"{len(self.answered)} of {len(self.asked)} answered, {least} are needed")
        makers = (self._rosters, self._deliveries, self._lists, self._confirmations)
        made = makers[self._place]()
        self._place += 1
        return made

    # Advertise -----------------------------------------------------------------------------------------------------

    def _advertised(self, index: int, answer: bytes) -> None:
        reader = messages.opened(answer, "advertise", self.plan)
        advert = Advertisement.from_reader(reader)
        reader.end()
        if advert.index != index:
            raise UnknownSender("advertise", f"client {index} speaks for {advert.index}", (index,))
        if not signed(advert.identity, advert.signature, advert.statement(self.plan)):
            raise SwappedKey("advertise", f"client {index} did not sign its keys", (index,))
        if not (has_large_order(advert.channel) and has_large_order(advert.mask)):
            # Passed on, it would make every neighbour refuse, and the round fail for all.
            raise SwappedKey("advertise", f"client {index} offers a key of small order", (index,))
        mine = {advert.channel, advert.mask, advert.identity}
        for other in self._adverts.values():
            if mine & {other.channel, other.mask, other.identity}:
                raise SwappedKey("advertise", f"clients {other.index} and {index} use one key", (index,))
        self._adverts[index] = advert

    def _rosters(self) -> dict[int, bytes]:
        members = sorted(self._adverts)
        if min(self.plan.neighbours, len(members) - 1) < self.plan.threshold:
            left = len(members) - 1
            raise TooFewClients("advertise", f"{left} possible neighbours, the threshold is {self.plan.threshold}")
        self._graph = neighbour_graph(members, self.plan.neighbours, rng=self._rng)
        return {
            index: messages.roster(self.plan, [self._adverts[other] for other in others])
            for index, others in self._graph.items()
        }

    # Share ---------------------------------------------------------------------------------------------------------

    def _shared(self, index: int, answer: bytes) -> None:
        seed, sealed = messages.read_shares(answer, self.plan)
        if tuple(sorted(one.holder for one in sealed)) != self._graph[index]:
            raise UnknownSender("share", f"client {index} shares with others than its neighbours", (index,))
        self._seeds[index] = seed
        self._sealed[index] = {one.holder: one for one in sealed}

    def _deliveries(self) -> dict[int, bytes]:
        return {
            index: messages.delivery(
                self.plan,
                [(other, self._sealed[other][index].sealed) for other in self._graph[index] if other in self._sealed],
            )
            for index in self._sealed
        }

    # Mask ----------------------------------------------------------------------------------------------------------

    def _took_masked(self, index: int, answer: bytes) -> None:
        packed = messages.opened(answer, "mask", self.plan).rest()
        self._total += unpack_words(packed, self.plan.bits, self.plan.coordinates, stage="mask")
        self._masked.add(index)

    def _partners(self, index: int) -> tuple[int, ...]:
        """Neighbours with whom the client shares a mask."""
        return tuple(other for other in self._graph[index] if other in self._sealed)

    def _lists(self) -> dict[int, bytes]:
        return {
            index: messages.lists(
                self.plan,
                [other for other in self._partners(index) if other in self._masked],
                [other for other in self._partners(index) if other not in self._masked],
            )
            for index in self._masked
        }

    # Confirm -------------------------------------------------------------------------------------------------------

    def _confirmed(self, index: int, answer: bytes) -> None:
        reader = messages.opened(answer, "confirm", self.plan)
        said = Confirmation.from_reader(reader, "confirm")
        reader.end()
        partners = self._partners(index)
        sent = tuple(sorted((index, *(other for other in partners if other in self._masked))))
        gone = tuple(other for other in partners if other not in self._masked)
        if (said.index, said.survivors, said.dropped) != (index, sent, gone):
            raise InconsistentLists("confirm", f"client {index} confirms another list than it was sent", (index,))
        if not signed(self._adverts[index].identity, said.signature, said.statement(self.plan)):
            raise SwappedKey("confirm", f"client {index} did not sign its confirmation", (index,))
        self._said[index] = said

    def _confirmations(self) -> dict[int, bytes]:
        return {
            index: messages.confirmations(
                self.plan, [self._said[other] for other in self._partners(index) if other in self._said]
            )
            for index in self._said
        }

    # Unmask --------------------------------------------------------------------------------------------------------

    def _took_reveal(self, index: int, answer: bytes) -> None:
        of_self, of_key = messages.read_reveal(answer, self.plan)
        partners = self._partners(index)
        alive = {other for other in partners if other in self._masked}
        if of_self.keys() != alive or of_key.keys() != set(partners) - alive:
            raise UnknownSender("unmask", f"client {index} reveals shares of others than it was asked for", (index,))
        for kind, found in ((b"self", of_self), (b"key", of_key)):
            for owner, share in found.items():
                promised = self._sealed[owner][index]
                expected = promised.of_self if kind == b"self" else promised.of_key
                if commitment(share, plan=self.plan.digest, owner=owner, holder=index, kind=kind) != expected:
                    raise TamperedShare("unmask", f"client {index} reveals a wrong share of {owner}", (index, owner))
        self._revealed[index] = of_self, of_key

    def _secret(self, owner: int, which: int) -> bytes:
        shares = {holder: parts[which][owner] for holder, parts in self._revealed.items() if owner in parts[which]}
        if len(shares) < self.plan.threshold:
            raise TooFewClients(
                "unmask", f"{len(shares)} shares of client {owner} came, the threshold is {self.plan.threshold}"
            )
        return combine(shares, self._graph[owner], self.plan.threshold)

    def _remove_self_mask(self, total: npt.NDArray[Any], owner: int) -> None:
        seed = self._secret(owner, 0)
        if commitment(seed, plan=self.plan.digest, owner=owner, holder=owner, kind=b"seed") != self._seeds[owner]:
            raise TamperedShare("unmask", f"the shares that client {owner} dealt do not fit together", (owner,))
        add_mask(total, self_mask_key(seed, self.plan, owner), sign=-1)

    def _remove_pair_masks(self, total: npt.NDArray[Any], owner: int, survivors: Sequence[int]) -> None:
        private = mask_key_from_seed(self._secret(owner, 1), self.plan, owner)
        if public_bytes(private) != self._adverts[owner].mask:
            raise TamperedShare("unmask", f"the shares that client {owner} dealt do not give its key", (owner,))
        for other in survivors:
            key = pair_mask_key(private, self._adverts[other].mask, self.plan, owner, other)
            # The survivor added it when its index is the lower one.
            add_mask(total, key, sign=-1 if other < owner else 1)

    def result(self) -> SecureSum:
        """The sum, once the last stage's answers are in.

        Raises:
            TooFewClients: a secret lacks shares: nothing is learnt.
            TamperedShare: a client dealt shares that do not fit together; it is named.
            OutOfRangeInteger: the sum exceeds what the survivors may have sent.
        """
        if self.stage != "unmask":
            raise WrongStage(self.stage, "answers of later stages are missing")
        total = self._total.copy()
        for owner in sorted(self._sealed):
            if owner in self._masked:
                self._remove_self_mask(total, owner)
            elif partners := [other for other in self._partners(owner) if other in self._masked]:
                self._remove_pair_masks(total, owner, partners)
        values = reduced(total, self.plan.bits).astype(np.int64)
        self._check_range(values)
        values.setflags(write=False)
        dropped = tuple(index for index in range(self.plan.clients) if index not in self._masked)
        return SecureSum(values=values, survivors=tuple(sorted(self._masked)), dropped=dropped)

    def _check_range(self, values: npt.NDArray[np.int64]) -> None:
        most = len(self._masked) * self.plan.span
        if self.plan.overflow == "impossible" and int(values.max()) > most:
            place = int(np.argmax(values))
            raise OutOfRangeInteger(
                "unmask",
                f"coordinate {place} sums to {int(values[place])}, above {most}: a client sent more than it may",
            )
