"""The server's side of a round, without a transport: take answers, get the next messages, read off
the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from mezzotint.core.sampler import word_type
from mezzotint.core.types import IndexArray, IntArray
from mezzotint.federated.secagg import masks, messages
from mezzotint.federated.secagg.blame import Blame, Kind, is_promised, restored
from mezzotint.federated.secagg.client import mask_key_from_seed, pair_mask_key, self_mask_key
from mezzotint.federated.secagg.client_values import (
    Clients,
    ClientValues,
    Outbox,
    compact,
    mask_partners,
)
from mezzotint.federated.secagg.masks import signed
from mezzotint.federated.secagg.messages import BytesByClient, Deal, Portion, Stage
from mezzotint.federated.secagg.plan import RoundPlan
from mezzotint.federated.secagg.roster import Roster
from mezzotint.federated.secagg.wire import (
    DuplicateAnswer,
    OutOfRangeInteger,
    PlanRefused,
    Reader,
    SwappedKey,
    TamperedShare,
    TooFewClients,
    UnknownSender,
    WrongStage,
)

_SEALED = slice(0, messages.SEALED_BYTES)


@final
class Dealings(ClientValues[Deal]):
    """The dealings of a round: the public part of each by client, ascending, and the sealed
    portions on request.

    In memory, 82 bytes for each pair of a dealer and a member; NumPy's zeros take none until they
    are written.
    """

    def __init__(self, plan: RoundPlan) -> None:
        clients = plan.clients
        super().__init__(np.zeros(clients, dtype=np.bool_))
        message_bytes = messages.PORTIONS_BEGIN + plan.members * messages.PORTION_BYTES
        self._messages = np.zeros((clients, message_bytes), dtype=np.uint8)
        self._public = self._messages[:, messages.HEADER_BYTES : messages.PORTIONS_BEGIN]
        portions = self._messages[:, messages.PORTIONS_BEGIN :]
        self._portions = portions.reshape(clients, plan.members, messages.PORTION_BYTES)
        self.picks: Clients = np.zeros((clients, plan.picks), dtype=np.uint16)
        """Each client's picks."""

    def _value(self, index: int) -> Deal:
        public_part = self.public([index])
        reader = Reader(public_part, "deal")
        return Deal.from_reader(reader)

    @property
    def size(self) -> int:
        """Bytes, once all have dealt."""
        return self._messages.nbytes + self.picks.nbytes

    @property
    def clients(self) -> IndexArray:
        """The dealers, ascending."""
        return np.flatnonzero(self._has_value)

    def add(self, index: int, message: bytes, picks: Collection[int]) -> None:
        """Take a dealing that `messages.read_dealing` accepted, and the picks of its coins."""
        self._messages[index] = np.frombuffer(message, dtype=np.uint8)
        self.picks[index] = compact(picks)
        self._has_value[index] = True

    def leave_out(self, index: int) -> None:
        """Forget a client."""
        self._has_value[index] = False

    def public(self, clients: Collection[int] | Clients) -> bytes:
        """The public parts of these clients, one after the other."""
        deals = self._public[compact(clients), : messages.DEAL_BYTES]
        return deals.tobytes()

    def seed(self, index: int) -> bytes:
        """A client's commitment to its self mask's seed."""
        commitment = self._public[index, messages.DEAL_BYTES :]
        return commitment.tobytes()

    def coins(self) -> dict[int, bytes]:
        """The coins of all dealers."""
        coins: dict[int, bytes] = {}
        for client in self:
            coins[client] = self._public[client, messages.COINS].tobytes()
        return coins

    def portion(self, dealer: int, member: int) -> Portion:
        """What a client dealt to one member."""
        portion = self._portions[dealer, member]
        return messages.read_portion(portion.tobytes())

    def sealed(self, member: int, head: bytes = b"") -> bytes:
        """`head`; then each dealer's channel key and what it sealed for one member, as sent to
        it.
        """
        dealers = self.clients
        channels = self._public[dealers, messages.CHANNEL]
        sealed_shares = self._portions[dealers, member, _SEALED]
        entries = np.concatenate([channels, sealed_shares], axis=1)
        return head + entries.tobytes()

    def message(self, index: int) -> bytes:
        """A client's dealing."""
        return self._messages[index].tobytes()


@final
class Shares:
    """The shares that members opened, by the client whose secret they are of."""

    def __init__(self, plan: RoundPlan) -> None:
        pairs = (plan.clients, plan.members)
        self._shares = np.zeros((*pairs, masks.SHARE_BYTES), dtype=np.uint8)
        self._opened = np.zeros(pairs, dtype=np.bool_)

    @property
    def counts(self) -> IndexArray:
        """The number of shares of each client's secret."""
        return self._opened.sum(axis=1)

    def add(self, holder: int, opened: BytesByClient) -> None:
        """Take the shares that a member opened, by dealer."""
        for owner, share in opened.items():
            self._shares[owner, holder] = np.frombuffer(share, dtype=np.uint8)
            self._opened[owner, holder] = True

    def of(self, owner: int) -> dict[int, bytes]:
        """holder -> its share of a client's secret."""
        shares: dict[int, bytes] = {}
        holders = np.flatnonzero(self._opened[owner])
        for holder in holders.tolist():
            shares[holder] = self._shares[owner, holder].tobytes()
        return shares


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

    values: IntArray
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
            raise PlanRefused("plan", "roster: the plan is about another one")
        self.plan = plan
        self.roster = roster
        self.cohort = roster.cohort(plan.round, plan.clients, plan.draw)
        self._stage_number = 0
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
        return messages.STAGES[self._stage_number]

    @property
    def _answers(self) -> Collection[int]:
        answers: dict[Stage, Collection[int]] = {
            "deal": self._dealt,
            "sum": self._masked,
            "agree": self._agreed,
            "open": self._opened,
        }
        return answers[self.stage]

    @property
    def answered(self) -> tuple[int, ...]:
        """Clients whose answer to this stage was accepted."""
        return tuple(sorted(self._answers))

    @property
    def _everybody(self) -> range:
        return range(self.plan.clients)

    @property
    def asked(self) -> tuple[int, ...]:
        """Clients whose answer to this stage is awaited or accepted."""
        return tuple(filter(self._is_asked, self._everybody))

    def _is_asked(self, index: int) -> bool:
        answered_before: dict[Stage, Collection[int]] = {
            "deal": self._everybody,
            "sum": self._dealt,
            "agree": self._masked,
            "open": self._agreed,
        }
        if index not in answered_before[self.stage]:
            return False
        return self.stage in ("deal", "sum") or index < self.plan.members

    def invitations(self, holding: Collection[int] = ()) -> Outbox:
        """The first stage's messages, with the roster for clients that are not `holding` it
        themselves.
        """
        roster = self.roster.to_bytes()

        def invitation(index: int) -> bytes:
            shipped = roster
            if index in holding:
                shipped = b""
            return messages.invitation(self.plan, index, shipped)

        return Outbox(self._everybody, invitation)

    def bind(self, task: bytes) -> None:
        """Name the task of the round, before it is announced to those who dealt.

        Arguments:
            task: 32 bytes, SHA-256 of what each client is asked to do.

        Raises:
            WrongStage: it was announced already.
        """
        if self.stage != "deal":
            raise WrongStage(self.stage, "the round was announced with its task already")
        self.plan = replace(self.plan, task=task)

    def leave_out(self, index: int) -> None:
        """Go on without a client that dealt, before the round is announced.

        Raises:
            WrongStage: it was announced already.
        """
        if self.stage != "deal":
            raise WrongStage(self.stage, "the round was announced with its dealers already")
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
            raise UnknownSender(stage, f"client {index} was not asked", (index,))
        if index in self._answers:
            complaint = f"client {index} answered already; its first answer stands"
            raise DuplicateAnswer(stage, complaint, (index,))
        takers: dict[Stage, Callable[[int, bytes], None]] = {
            "deal": self._take_dealing,
            "sum": self._take_masked,
            "agree": self._take_agreement,
            "open": self._take_shares,
        }
        take = takers[stage]
        take(index, answer)

    def ready(self, wanted: int) -> bool:
        """Whether this many have answered this stage, and enough of the right ones for the next."""
        if len(self._answers) < wanted:
            return False
        if self.stage == "open":
            share_counts = self._shares.counts[self._dealt.clients]
            is_restorable = share_counts >= self.plan.quorum
            return bool(is_restorable.all())
        try:
            self._check_enough(self.stage)
        except TooFewClients:
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
            raise WrongStage(stage, "the last stage; its outcome is result()")
        if stage == "deal":
            self._leave_out_lonely()
        self._check_enough(stage)
        outboxes: dict[Stage, Callable[[], Outbox]] = {
            "deal": self._partners,
            "sum": self._proposals,
            "agree": self._certificates,
        }
        make_outbox = outboxes[stage]
        outbox = make_outbox()
        self._stage_number += 1
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
            raise WrongStage("unite", "only where all who dealt are in the sum; call advance()")
        self._check_enough("sum")
        self._stage_number = messages.STAGES.index("open")
        # No stage of signatures comes between, so all members in the sum are asked.
        self._agreed = dict.fromkeys(self._surviving_members(), b"")
        coins = self._dealt.coins()
        head = messages.union(self.plan, coins, self._masked, b"")
        return self._with_sealed(head)

    def _surviving_members(self) -> list[int]:
        """Members of the committee whose masked input is in the sum."""
        return [client for client in self._masked if client < self.plan.members]

    def _with_sealed(self, head: bytes) -> Outbox:
        """The same to each member, and then what is sealed for it."""
        return Outbox(self._agreed, lambda index: self._dealt.sealed(index, head))

    def _check_enough(self, stage: Stage) -> None:
        """Raises TooFewClients where a stage's answers are below the plan's minimum, quorum or
        least. Members alone agree, so that the minimum does not count there.
        """
        plan = self.plan
        answered = self.answered
        if stage != "agree" and len(answered) < plan.minimum:
            answers = f"{len(answered)} of {len(self.asked)} answered"
            raise TooFewClients(stage, f"{answers}, {plan.minimum} are needed")
        members = [client for client in answered if client < plan.members]
        if len(members) < plan.quorum:
            answers = f"{len(members)} members of the committee answered"
            raise TooFewClients(stage, f"{answers}, the quorum is {plan.quorum}")
        if stage != "sum":
            return
        for client in answered:
            surviving_picks = self._masked.keys() & self._dealt.picks[client].tolist()
            if len(surviving_picks) < plan.least:
                raise TooFewClients(
                    stage, f"client {client} has too few of its picks among the survivors"
                )

    # Deal -----------------------------------------------------------------------------------------

    def _take_dealing(self, index: int, answer: bytes) -> None:
        deal, _ = messages.read_dealing(answer, self.plan)
        if deal.index != index:
            raise UnknownSender("deal", f"client {index} speaks for {deal.index}", (index,))
        identity = self.cohort[index].identity
        statement = deal.statement(self.plan)
        if not signed(identity, deal.signature, statement):
            raise SwappedKey("deal", f"client {index} did not sign its keys", (index,))
        for public_key in (deal.channel, deal.mask):
            if not masks.has_large_order(public_key):
                # Passed on, it would make every partner refuse, and the round fail for all.
                raise SwappedKey("deal", f"client {index} offers a key of small order", (index,))
        picks = messages.picked(deal.coins, self.plan, index)
        self._dealt.add(index, answer, picks)

    def _leave_out_lonely(self) -> None:
        """Leave out clients that picked too few dealers: in the sum, they would make members refuse
        it.
        """
        has_dealt = np.zeros(self.plan.clients, dtype=bool)
        has_dealt[self._dealt.clients] = True
        while True:
            dealers = self._dealt.clients
            is_dealer = has_dealt[self._dealt.picks[dealers]]
            is_lonely = is_dealer.sum(axis=1) < self.plan.least
            lonely = dealers[is_lonely]
            if lonely.size == 0:
                return
            has_dealt[lonely] = False
            for client in lonely.tolist():
                self._dealt.leave_out(client)

    def _partners(self) -> Outbox:
        self._masking = mask_partners(self._dealt, self._dealt.picks)
        self._among = messages.bitmap(self._dealt, self.plan)

        def announcement(index: int) -> bytes:
            deals = self._dealt.public(self._masking[index])
            return messages.partners(self.plan, self._among, deals)

        return Outbox(self._masking, announcement)

    # Sum ------------------------------------------------------------------------------------------

    def _take_masked(self, index: int, answer: bytes) -> None:
        plan = self.plan
        signature, packed = messages.read_masked(answer, plan)
        coins = self._dealt[index].coins
        partners = self._masking[index]
        statement = messages.masks_statement(plan, index, coins, self._among, partners)
        identity = self.cohort[index].identity
        if not signed(identity, signature, statement):
            raise SwappedKey("sum", f"client {index} did not sign among whom it masked", (index,))
        words = masks.read_words(packed, plan.bits, plan.coordinates, stage="sum")
        self._total += words
        self._masked[index] = signature

    def _proposals(self) -> Outbox:
        coins = self._dealt.coins()
        proposal = messages.proposal(self.plan, coins, self._masked)
        return Outbox(self._surviving_members(), lambda _: proposal)

    # Agree ----------------------------------------------------------------------------------------

    def _take_agreement(self, index: int, answer: bytes) -> None:
        signature = messages.read_agreement(answer, self.plan)
        statement = messages.certificate_statement(self.plan, self._dealt, self._masked)
        identity = self.cohort[index].identity
        if not signed(identity, signature, statement):
            raise SwappedKey("agree", f"member {index} did not sign these survivors", (index,))
        self._agreed[index] = signature

    def _certificates(self) -> Outbox:
        head = messages.opening(self.plan, self._agreed, b"")
        return self._with_sealed(head)

    # Open -----------------------------------------------------------------------------------------

    def _kind(self, owner: int) -> Kind:
        """The secret of a dealer that the committee opens: of a survivor, never the mask key."""
        if owner in self._masked:
            return "self"
        return "key"

    def _take_shares(self, index: int, answer: bytes) -> None:
        shares = messages.read_shares(answer, self.plan, self._dealt)
        good_shares: dict[int, bytes] = {}
        misdealt: list[int] = []
        for owner, share in shares.items():
            portion = self._dealt.portion(owner, index)
            kind = self._kind(owner)
            if is_promised(share, portion, self.plan, owner=owner, holder=index, kind=kind):
                good_shares[owner] = share
            else:
                # The member lies, or the dealer did not sign a commitment to the share that it
                # sealed.
                misdealt.append(owner)
        if 2 * len(good_shares) < len(self._dealt):
            counts = f"{len(good_shares)} of {len(self._dealt)}"
            shortage = f"member {index} has good shares of {counts} clients"
            raise TamperedShare(
                "open", f"{shortage}: too many for all of them to have dealt bad ones", (index,)
            )
        for owner in misdealt:
            members = self.disputed.setdefault(owner, [])
            members.append(index)
        self._shares.add(index, good_shares)
        self._opened.add(index)

    def _secret(self, owner: int) -> bytes:
        """The secret of a dealer from a quorum of shares that it promised; else raises, with
        evidence against the dealer where only it can be at fault.
        """
        plan = self.plan
        shares = self._shares.of(owner)
        if len(shares) < plan.quorum:
            # Not all of these members can be corrupted: an honest one was dealt something that it
            # cannot open.
            failed_members = len(self._opened) - len(shares)
            culprits: tuple[int, ...] = ()
            if failed_members >= 2 * plan.quorum - plan.members:
                culprits = (owner,)
            raise TooFewClients(
                "open",
                f"{len(shares)} shares of client {owner} came, the quorum is {plan.quorum}",
                culprits,
            )
        kind = self._kind(owner)
        deal = self._dealt[owner]
        seed_commitment = self._dealt.seed(owner)
        secret = restored(plan, deal, seed_commitment, kind, shares)
        if secret is None:
            evidence = Blame(
                identity=self.cohort[owner].identity,
                plan=plan.to_bytes(),
                dealing=self._dealt.message(owner),
                kind=kind,
                shares=shares,
            )
            self.blames.append(evidence)
            raise TamperedShare(
                "open", f"the shares that client {owner} dealt do not fit together", (owner,)
            )
        return secret

    def _remove_self_mask(self, total: masks.Words, owner: int) -> None:
        seed = self._secret(owner)
        key = self_mask_key(seed, self.plan, owner)
        masks.add_mask(total, key, sign=-1)

    def _remove_pair_masks(self, total: masks.Words, owner: int) -> None:
        surviving_partners = self._masked.keys() & self._masking[owner].tolist()
        if not surviving_partners:
            return
        seed = self._secret(owner)
        private = mask_key_from_seed(seed, self.plan, owner)
        for partner in surviving_partners:
            public = self._dealt[partner].mask
            mask_key = pair_mask_key(private, public, self.plan, owner, partner)
            # What is left out is what the survivor added.
            masks.add_mask(total, mask_key, sign=-masks.pair_sign(partner, owner))

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
            raise WrongStage(self.stage, "answers of later stages are missing")
        unmasked = self._unmasked()
        residues = masks.reduced(unmasked, self.plan.bits)
        values = residues.astype(np.int64)
        self._check_range(values)
        values.setflags(write=False)
        survivors = tuple(sorted(self._masked))
        dropped = [client for client in self._everybody if client not in self._masked]
        return SecureSum(values=values, survivors=survivors, dropped=tuple(dropped))

    def _unmasked(self) -> masks.Words:
        """The total without the masks of all dealers; raises if a secret cannot be restored."""
        unmasked = self._total.copy()
        culprits: list[int] = []
        unnamed: TooFewClients | TamperedShare | None = None
        for owner in sorted(self._dealt):
            try:
                if self._kind(owner) == "self":
                    self._remove_self_mask(unmasked, owner)
                else:
                    self._remove_pair_masks(unmasked, owner)
            except (TooFewClients, TamperedShare) as error:
                culprits += error.culprits
                if not error.culprits:
                    unnamed = error
        if culprits:
            raise TamperedShare(
                "open", f"the shares that clients {culprits} dealt are of no use", tuple(culprits)
            )
        if unnamed is not None:
            raise unnamed
        return unmasked

    def _check_range(self, values: IntArray) -> None:
        """Raises OutOfRangeInteger for a sum that survivors within their span cannot reach; with a
        modular overflow every sum can be.
        """
        largest = len(self._masked) * self.plan.span
        coordinate = int(np.argmax(values))
        value = int(values[coordinate])
        if self.plan.overflow == "impossible" and value > largest:
            raise OutOfRangeInteger(
                "open",
                f"coordinate {coordinate} sums to {value}, above {largest}: a client sent "
                "more than it may. Masks hide who: there is no evidence against anybody. Who was asked in all "
                "rounds that ended like this, and in none that came to a sum, is suspect: see the ledger, and "
                "make a roster without",
            )
