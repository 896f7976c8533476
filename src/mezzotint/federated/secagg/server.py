"""The server's side of a round, without a transport: take answers, get the next messages, read off
the sum.

A client that dealt useless shares can be proved guilty to anyone, and no honest client can. A
dealing is signed, and holds a commitment to each share. Shares that match the commitments but do
not restore the secret of that dealing (the seed that it commits to, the key that it names) were
dealt wrongly by the signer.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import read_object, write_text
from mezzotint.core.sampler import word_type
from mezzotint.federated.secagg import masks, messages, wire
from mezzotint.federated.secagg.client import mask_key_from_seed, pair_mask_key, self_mask_key
from mezzotint.federated.secagg.masks import signed
from mezzotint.federated.secagg.messages import Clients, Deal, OfClients, Outbox, Partners, Stage
from mezzotint.federated.secagg.plan import RoundPlan
from mezzotint.federated.secagg.roster import Roster

_SEALED = slice(0, messages.SEALED_BYTES)
_COMMITMENTS = slice(messages.SEALED_BYTES, messages.PORTION_BYTES)


@final
class Dealings(OfClients[Deal]):
    """The dealings of a round: the public part of each by client, ascending, and the sealed
    portions on request.

    In memory, 82 bytes for each pair of a dealer and a member; NumPy's zeros take none until they
    are written.
    """

    def __init__(self, plan: RoundPlan) -> None:
        super().__init__(np.zeros(plan.clients, dtype=np.bool_))
        self._plan = plan
        public_bytes = messages.DEAL_BYTES + masks.COMMITMENT_BYTES
        self._public = np.zeros((plan.clients, public_bytes), dtype=np.uint8)
        portions = (plan.clients, plan.members, messages.PORTION_BYTES)
        self._portions = np.zeros(portions, dtype=np.uint8)
        self.picks: npt.NDArray[np.uint16] = np.zeros((plan.clients, plan.picks), dtype=np.uint16)
        """Each client's picks."""

    def _of(self, index: int) -> Deal:
        return Deal.from_reader(wire.Reader(self.public([index]), "deal"))

    @property
    def size(self) -> int:
        """Bytes, once all have dealt."""
        return self._public.nbytes + self._portions.nbytes + self.picks.nbytes

    @property
    def clients(self) -> npt.NDArray[np.intp]:
        """The dealers, ascending."""
        return np.flatnonzero(self._there)

    def add(self, index: int, message: bytes, picks: Collection[int]) -> None:
        """Take a dealing that `messages.read_dealing` accepted, and the picks of its coins."""
        public, portions = messages.parts(message)
        self._public[index] = np.frombuffer(public, dtype=np.uint8)
        self._portions[index] = np.frombuffer(portions, dtype=np.uint8).reshape(
            self._portions.shape[1:]
        )
        self.picks[index] = messages.compact(picks)
        self._there[index] = True

    def leave_out(self, index: int) -> None:
        """Forget a client."""
        self._there[index] = False

    def public(self, clients: Collection[int] | Clients) -> bytes:
        """The public parts of these clients, one after the other."""
        return self._public[messages.compact(clients), : messages.DEAL_BYTES].tobytes()

    def seed(self, index: int) -> bytes:
        """A client's commitment to its self mask's seed."""
        return self._public[index, messages.DEAL_BYTES :].tobytes()

    def coins(self) -> dict[int, bytes]:
        """The coins of all dealers."""
        return {client: self._public[client, messages.COINS].tobytes() for client in self}

    def promised(self, member: int) -> Iterator[tuple[int, bytes, bytes]]:
        """Each dealer's commitments to one member's shares of its seed and of its mask key."""
        for client in self:
            commitments = self._portions[client, member, _COMMITMENTS].tobytes()
            yield (
                client,
                commitments[: masks.COMMITMENT_BYTES],
                commitments[masks.COMMITMENT_BYTES :],
            )

    def sealed(self, member: int, head: bytes = b"") -> bytes:
        """`head`; then each dealer's channel key and what it sealed for one member, as sent to it."""
        dealers = self.clients
        channels = self._public[dealers, messages.CHANNEL]
        sealed = self._portions[dealers, member, _SEALED]
        return head + np.concatenate([channels, sealed], axis=1).tobytes()

    def message(self, index: int) -> bytes:
        """A client's dealing."""
        header = messages.header("deal", self._plan)
        return header + self._public[index].tobytes() + self._portions[index].tobytes()


@final
class Shares:
    """The shares that members opened, by the client whose secret they are of."""

    def __init__(self, plan: RoundPlan) -> None:
        self._shares = np.zeros((plan.clients, plan.members, masks.SHARE_BYTES), dtype=np.uint8)
        self._opened = np.zeros((plan.clients, plan.members), dtype=np.bool_)

    @property
    def counts(self) -> npt.NDArray[np.intp]:
        """The number of shares of each client's secret."""
        return self._opened.sum(axis=1)

    def add(self, holder: int, found: Mapping[int, bytes]) -> None:
        """Take the shares that a member opened, by dealer."""
        for owner, share in found.items():
            self._shares[owner, holder] = np.frombuffer(share, dtype=np.uint8)
            self._opened[owner, holder] = True

    def of(self, owner: int) -> dict[int, bytes]:
        """holder -> its share of a client's secret."""
        holders = np.flatnonzero(self._opened[owner]).tolist()
        return {holder: self._shares[owner, holder].tobytes() for holder in holders}


@final
@dataclass(frozen=True, kw_only=True)
class SecureSum:
    """The outcome of a round.

    Arguments:
        values: (coordinates,) int64, the sum of the survivors' integers, modulo the plan's modulus;
            read-only.
        survivors, dropped: indices of the invited clients whose integers are in it, and of the
            others; ascending.
    """

    values: npt.NDArray[np.int64]
    survivors: tuple[int, ...]
    dropped: tuple[int, ...]


@final
class Server:
    """One round. Give it every answer with `receive`, then call `advance` for the next stage's
    messages.

    A refused answer counts as no answer; the round goes on without its sender. A masked input is
    added to the sum on arrival, and not kept: if clients spoil a sum, the round is repeated without
    them.

    Arguments:
        plan: of the round, without its task, which `bind` names.
        roster: of the plan.

    Raises:
        PlanRefused: the plan is about another roster.
    """

    def __init__(self, plan: RoundPlan, roster: Roster) -> None:
        if plan.roster != roster.digest:
            raise wire.PlanRefused("plan", "roster: the plan is about another one")
        self.plan = plan
        self.roster = roster
        self.cohort = roster.cohort(plan.round, plan.clients, plan.draw)
        self._place = 0
        self._dealt = Dealings(plan)
        self._masking: Mapping[int, Clients] = {}
        self._among = b""
        self._masked: dict[int, bytes] = {}
        self._total = np.zeros(plan.coordinates, dtype=word_type(plan.bits))
        self._agreed: dict[int, bytes] = {}
        self._opened: set[int] = set()
        self._shares = Shares(plan)
        self.blames: list[Blame] = []
        self.disputed: dict[int, list[int]] = {}
        """Dealer -> members whose share of it is not the one that it signed: either may have done
        it.
        """

    @property
    def dealt_bytes(self) -> int:
        """Memory of the round's dealings."""
        return self._dealt.size

    @property
    def stage(self) -> Stage:
        """The stage whose answers are being collected."""
        return messages.STAGES[self._place]

    @property
    def _answers(self) -> Collection[int]:
        return (self._dealt, self._masked, self._agreed, self._opened)[self._place]

    @property
    def answered(self) -> tuple[int, ...]:
        """Clients whose answer to this stage was accepted."""
        return tuple(sorted(self._answers))

    @property
    def asked(self) -> tuple[int, ...]:
        """Clients whose answer to this stage is awaited or accepted."""
        return tuple(filter(self._is_asked, range(self.plan.clients)))

    def _is_asked(self, index: int) -> bool:
        before = (range(self.plan.clients), self._dealt, self._masked, self._agreed)[self._place]
        return index in before and (self._place <= 1 or index < self.plan.members)

    def invitations(self, holding: Collection[int] = ()) -> Outbox:
        """The first stage's messages, with the roster for clients that are not `holding` it
        themselves.
        """
        shipped = self.roster.to_bytes()
        return Outbox(
            range(self.plan.clients),
            lambda index: messages.invitation(
                self.plan, index, b"" if index in holding else shipped
            ),
        )

    def bind(self, task: bytes) -> None:
        """Name the task of the round, before it is announced to those who dealt.

        Arguments:
            task: 32 bytes, SHA-256 of what each client is asked to do.

        Raises:
            WrongStage: it was announced already.
        """
        if self.stage != "deal":
            raise wire.WrongStage(self.stage, "the round was announced with its task already")
        self.plan = replace(self.plan, task=task)

    def leave_out(self, index: int) -> None:
        """Go on without a client that dealt, before the round is announced.

        Raises:
            WrongStage: it was announced already.
        """
        if self.stage != "deal":
            raise wire.WrongStage(self.stage, "the round was announced with its dealers already")
        self._dealt.leave_out(index)

    def receive(self, index: int, answer: bytes) -> None:
        """Take one client's answer to this stage.

        Raises:
            DuplicateAnswer: it answered already; the first answer stands.
            UnknownSender: it was not asked.
            ProtocolError: of the fitting kind, for any other flaw.
        """
        stage = self.stage
        if not self._is_asked(index):
            raise wire.UnknownSender(stage, f"client {index} was not asked", (index,))
        if index in self._answers:
            raise wire.DuplicateAnswer(
                stage, f"client {index} answered already; its first answer stands", (index,)
            )
        takers = (self._took_dealing, self._took_masked, self._took_agreement, self._took_shares)
        takers[self._place](index, answer)

    def ready(self, wanted: int) -> bool:
        """Whether this many have answered this stage, and enough of the right ones for the next."""
        if len(self._answers) < wanted:
            return False
        if self.stage == "open":
            return bool((self._shares.counts[self._dealt.clients] >= self.plan.quorum).all())
        try:
            self._check_enough(self.stage)
        except wire.TooFewClients:
            return False
        return True

    def advance(self) -> Outbox:
        """Close the current stage and return the messages of the next one, by client.

        Raises:
            TooFewClients: fewer answered than the plan asks for: the round is over and nothing was
                learnt.
            WrongStage: after the last stage; call `result`.
        """
        stage = self.stage
        if stage == "open":
            raise wire.WrongStage(stage, "the last stage; its outcome is result()")
        if stage == "deal":
            self._leave_out_lonely()
        self._check_enough(stage)
        outbox = (self._partners, self._proposals, self._certificates)[self._place]()
        self._place += 1
        return outbox

    @property
    def everybody(self) -> bool:
        """Whether all dealers are in the sum, so that `unite` can replace the last two stages."""
        return self.stage == "sum" and self._masked.keys() == self._dealt.keys()

    def unite(self) -> Outbox:
        """Close the stage "sum" if everybody is in it (else WrongStage); returns messages that
        members open at once.
        """
        if not self.everybody:
            raise wire.WrongStage(
                "unite", "only where all who dealt are in the sum; call advance()"
            )
        self._check_enough("sum")
        self._place = messages.STAGES.index("open")
        # No stage of signatures comes between, so all members in the sum are asked.
        self._agreed = {client: b"" for client in self._masked if client < self.plan.members}
        return self._with_sealed(messages.union(self.plan, self._dealt.coins(), self._masked, b""))

    def _with_sealed(self, head: bytes) -> Outbox:
        """The same to each member, and then what is sealed for it."""
        return Outbox(self._agreed, lambda index: self._dealt.sealed(index, head))

    def _check_enough(self, stage: Stage) -> None:
        plan, answered = self.plan, self.answered
        if stage != "agree" and len(answered) < plan.minimum:
            raise wire.TooFewClients(
                stage, f"{len(answered)} of {len(self.asked)} answered, {plan.minimum} are needed"
            )
        members = sum(client < plan.members for client in answered)
        if members < plan.quorum:
            raise wire.TooFewClients(
                stage, f"{members} members of the committee answered, the quorum is {plan.quorum}"
            )
        if stage == "sum":
            for client in answered:
                if len(self._masked.keys() & self._dealt.picks[client].tolist()) < plan.least:
                    raise wire.TooFewClients(
                        stage, f"client {client} has too few of its picks among the survivors"
                    )

    # Deal -----------------------------------------------------------------------------------------

    def _took_dealing(self, index: int, answer: bytes) -> None:
        deal, _ = messages.read_dealing(answer, self.plan)
        if deal.index != index:
            raise wire.UnknownSender("deal", f"client {index} speaks for {deal.index}", (index,))
        if not signed(self.cohort[index].identity, deal.signature, deal.statement(self.plan)):
            raise wire.SwappedKey("deal", f"client {index} did not sign its keys", (index,))
        if not (masks.has_large_order(deal.channel) and masks.has_large_order(deal.mask)):
            # Passed on, it would make every partner refuse, and the round fail for all.
            raise wire.SwappedKey("deal", f"client {index} offers a key of small order", (index,))
        self._dealt.add(index, answer, messages.picked(deal.coins, self.plan, index))

    def _leave_out_lonely(self) -> None:
        """Leave out clients that picked too few dealers: in the sum, they would make members refuse
        it.
        """
        present = np.zeros(self.plan.clients, dtype=bool)
        present[list(self._dealt)] = True
        while True:
            picked_present = {
                client: present[self._dealt.picks[client]].sum() for client in self._dealt
            }
            lonely = [client for client, count in picked_present.items() if count < self.plan.least]
            if not lonely:
                return
            present[lonely] = False
            for client in lonely:
                self._dealt.leave_out(client)

    def _partners(self) -> Outbox:
        self._masking = Partners(self._dealt.clients, self._dealt.picks)
        self._among = among = messages.bitmap(self._dealt, self.plan)
        public, masking = self._dealt.public, self._masking
        return Outbox(
            masking, lambda index: messages.partners(self.plan, among, public(masking[index]))
        )

    # Sum ------------------------------------------------------------------------------------------

    def _took_masked(self, index: int, answer: bytes) -> None:
        signature, packed = messages.read_masked(answer, self.plan)
        client_coins = self._dealt[index].coins
        statement = messages.masks_statement(
            self.plan, index, client_coins, self._among, self._masking[index]
        )
        if not signed(self.cohort[index].identity, signature, statement):
            raise wire.SwappedKey(
                "sum", f"client {index} did not sign among whom it masked", (index,)
            )
        self._total += masks.read_words(packed, self.plan.bits, self.plan.coordinates, stage="sum")
        self._masked[index] = signature

    def _proposals(self) -> Outbox:
        proposal = messages.proposal(self.plan, self._dealt.coins(), self._masked)
        return Outbox(
            [index for index in self._masked if index < self.plan.members], lambda index: proposal
        )

    # Agree ----------------------------------------------------------------------------------------

    def _took_agreement(self, index: int, answer: bytes) -> None:
        signature = messages.read_agreement(answer, self.plan)
        statement = messages.certificate_statement(self.plan, self._dealt, self._masked)
        if not signed(self.cohort[index].identity, signature, statement):
            raise wire.SwappedKey("agree", f"member {index} did not sign these survivors", (index,))
        self._agreed[index] = signature

    def _certificates(self) -> Outbox:
        return self._with_sealed(messages.opening(self.plan, self._agreed, b""))

    # Open -----------------------------------------------------------------------------------------

    def _took_shares(self, index: int, answer: bytes) -> None:
        good_shares = messages.read_shares(answer, self.plan, self._dealt)
        misdealt: list[int] = []
        for owner, of_self, of_key in self._dealt.promised(index):
            if owner not in good_shares:
                continue
            kind, expected = (b"self", of_self) if owner in self._masked else (b"key", of_key)
            if (
                masks.commitment(
                    good_shares[owner], plan=self.plan.base, owner=owner, holder=index, kind=kind
                )
                != expected
            ):
                # The member lies, or the dealer did not sign a commitment to the share that it
                # sealed.
                misdealt.append(owner)
                del good_shares[owner]
        if 2 * len(good_shares) < len(self._dealt):
            counts = f"{len(good_shares)} of {len(self._dealt)}"
            shortage = f"member {index} has good shares of {counts} clients"
            raise wire.TamperedShare(
                "open", f"{shortage}: too many for all of them to have dealt bad ones", (index,)
            )
        for owner in misdealt:
            self.disputed.setdefault(owner, []).append(index)
        self._shares.add(index, good_shares)
        self._opened.add(index)

    def _secret(self, owner: int) -> bytes:
        plan = self.plan
        shares = self._shares.of(owner)
        if len(shares) < plan.quorum:
            # Not all of these members can be corrupted: an honest one was dealt something that it
            # cannot open.
            crooked = len(self._opened) - len(shares) >= 2 * plan.quorum - plan.members
            shortage = f"{len(shares)} shares of client {owner} came, the quorum is {plan.quorum}"
            raise wire.TooFewClients("open", shortage, (owner,) if crooked else ())
        kind: Kind = "self" if owner in self._masked else "key"
        secret = restored(plan, self._dealt[owner], self._dealt.seed(owner), kind, shares)
        if secret is None:
            identity, dealing = self.cohort[owner].identity, self._dealt.message(owner)
            evidence = Blame(
                identity=identity, plan=plan.to_bytes(), dealing=dealing, kind=kind, shares=shares
            )
            self.blames.append(evidence)
            raise wire.TamperedShare(
                "open", f"the shares that client {owner} dealt do not fit together", (owner,)
            )
        return secret

    def _remove_pair_masks(self, total: masks.Words, owner: int) -> None:
        others = self._masked.keys() & self._masking[owner].tolist()
        if not others:
            return
        private = mask_key_from_seed(self._secret(owner), self.plan, owner)
        for partner in others:
            mask_key = pair_mask_key(private, self._dealt[partner].mask, self.plan, owner, partner)
            # The survivor added it when its index is the lower one.
            masks.add_mask(total, mask_key, sign=-1 if partner < owner else 1)

    def result(self) -> SecureSum:
        """The sum, once the answers to the last stage are in.

        Raises:
            TooFewClients: a secret lacks shares: nothing is learnt.
            TamperedShare: clients dealt inconsistent shares, or shares that members cannot open;
                they are named, and `blames` has the proofs, where there are any.
            OutOfRangeInteger: the sum exceeds what the survivors may have sent; nobody can be named
                for it.
        """
        if self.stage != "open":
            raise wire.WrongStage(self.stage, "answers of later stages are missing")
        unmasked = self._total.copy()
        culprits: list[int] = []
        unnamed: wire.TooFewClients | wire.TamperedShare | None = None
        for owner in sorted(self._dealt):
            try:
                if owner in self._masked:
                    masks.add_mask(
                        unmasked, self_mask_key(self._secret(owner), self.plan, owner), sign=-1
                    )
                else:
                    self._remove_pair_masks(unmasked, owner)
            except (wire.TooFewClients, wire.TamperedShare) as error:
                culprits += error.culprits
                unnamed = unnamed if error.culprits else error
        if unnamed is not None and not culprits:
            raise unnamed
        if culprits:
            raise wire.TamperedShare(
                "open", f"the shares that clients {culprits} dealt are of no use", tuple(culprits)
            )
        values = masks.reduced(unmasked, self.plan.bits).astype(np.int64)
        self._check_range(values)
        values.setflags(write=False)
        dropped = tuple(client for client in range(self.plan.clients) if client not in self._masked)
        return SecureSum(values=values, survivors=tuple(sorted(self._masked)), dropped=dropped)

    def _check_range(self, values: npt.NDArray[np.int64]) -> None:
        largest = len(self._masked) * self.plan.span
        if self.plan.overflow == "impossible" and int(values.max()) > largest:
            coordinate = int(np.argmax(values))
            raise wire.OutOfRangeInteger(
                "open",
                f"coordinate {coordinate} sums to {int(values[coordinate])}, above {largest}: a client sent "
                "more than it may. Masks hide who: there is no evidence against anybody. Who was asked in all "
                "rounds that ended like this, and in none that came to a sum, is suspect: see the ledger, and "
                "make a roster without",
            )


_FORMAT = "mezzotint blame"
_BYTES = ("identity", "plan", "dealing")
Kind = Literal["self", "key"]


def restored(
    plan: RoundPlan, deal: Deal, seed_commitment: bytes, kind: Kind, shares: Mapping[int, bytes]
) -> bytes | None:
    """The secret that a quorum's shares restore; None unless it is the one of the dealing."""
    secret = masks.combine(shares, plan.quorum)
    if secret is None:
        return None
    if kind == "self":
        actual = masks.commitment(
            secret, plan=plan.base, owner=deal.index, holder=deal.index, kind=b"seed"
        )
        return secret if actual == seed_commitment else None
    mask_key = mask_key_from_seed(secret, plan, deal.index)
    return secret if masks.public_bytes(mask_key) == deal.mask else None


@final
@dataclass(frozen=True, kw_only=True)
class Blame:
    """A client's dealing, and shares that prove it useless.

    Arguments:
        identity: of the client, 32 bytes.
        plan: of the round, as on the wire.
        dealing: the client's message.
        kind: the secret to which the shares belong.
        shares: member of the committee -> the share that it opened.
    """

    identity: bytes
    plan: bytes
    dealing: bytes
    kind: Kind
    shares: Mapping[int, bytes]

    def check(self) -> None:
        """Check the proof.

        Raises:
            ParameterError: not signed by that client, not its shares, too few, or consistent ones.
        """
        try:
            with wire.Reader(self.plan, "plan") as reader:
                round_plan = RoundPlan.from_reader(reader)
            deal, seed_commitment = messages.read_dealing(self.dealing, round_plan)
        except wire.ProtocolError as error:
            raise ParameterError("blame", "the dealing", f"is not of this plan: {error}") from None
        if not signed(self.identity, deal.signature, deal.statement(round_plan)):
            raise ParameterError("blame", "the dealing", "was not signed by this client")
        if len(self.shares) < round_plan.quorum:
            raise ParameterError(
                "blame", f"{len(self.shares)} shares", f"{round_plan.quorum} are needed"
            )
        for holder, share in self.shares.items():
            if not 0 <= holder < round_plan.members:
                raise ParameterError("blame", f"member {holder}", "is not in the committee")
            portion = messages.portion(self.dealing, holder)
            promised = portion.of_self if self.kind == "self" else portion.of_key
            actual = masks.commitment(
                share,
                plan=round_plan.base,
                owner=deal.index,
                holder=holder,
                kind=self.kind.encode(),
            )
            if actual != promised:
                raise ParameterError(
                    "blame", f"the share of member {holder}", "is not the one that was dealt"
                )
        if restored(round_plan, deal, seed_commitment, self.kind, self.shares) is not None:
            raise ParameterError(
                "blame", "the shares", "fit together; nothing is wrong with this dealing"
            )

    def save(self, path: Path) -> None:
        """Write the file, replacing one that exists."""
        fields = {field_name: getattr(self, field_name).hex() for field_name in _BYTES}
        shares = {str(holder): share.hex() for holder, share in self.shares.items()}
        document = json.dumps({"format": _FORMAT, **fields, "kind": self.kind, "shares": shares})
        write_text(path, document, overwrite=True)

    @classmethod
    def load(cls, path: str | Path) -> Blame:
        """The blame in a file, not checked; FileFormatError for another file."""
        document = read_object(path)
        try:
            if document["format"] != _FORMAT or document["kind"] not in ("self", "key"):
                raise ValueError("another format")
            fields = {field_name: bytes.fromhex(document[field_name]) for field_name in _BYTES}
            shares = {
                int(holder): bytes.fromhex(share) for holder, share in document["shares"].items()
            }
            return cls(**fields, kind=document["kind"], shares=shares)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise FileFormatError(f"{Path(path).name}: not a proof of blame ({error})") from None
