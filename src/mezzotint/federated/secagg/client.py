"""The client's side of a round: it answers two messages, once each; members of the committee
four.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from mezzotint.core.errors import FileFormatError
from mezzotint.core.files import parse_object
from mezzotint.core.records import JsonObject
from mezzotint.core.sampler import pack_words
from mezzotint.federated.secagg import messages
from mezzotint.federated.secagg.client_values import compact, mask_partners
from mezzotint.federated.secagg.masks import (
    SEED_BYTES,
    SHARE_BYTES,
    add_mask,
    agree,
    checked_integers,
    commitment,
    derive,
    pair_purpose,
    pair_sign,
    public_bytes,
    reduced,
    seal,
    sign,
    signed,
    split,
    unseal,
)
from mezzotint.federated.secagg.messages import (
    COIN_BYTES,
    BytesByClient,
    Deal,
    Portion,
    SealedByDealer,
    Stage,
    bitmap,
)
from mezzotint.federated.secagg.plan import RoundPlan
from mezzotint.federated.secagg.roster import Card, Trust, channel_key, introduce, show
from mezzotint.federated.secagg.wire import (
    InconsistentLists,
    PlanRefused,
    ProtocolError,
    Reader,
    ReplayedRound,
    SwappedKey,
    TooFewClients,
    UnknownSender,
    WrongStage,
    client_number,
)

_POSITIONS: dict[Stage, int] = {"deal": 0, "sum": 1, "agree": 2, "unite": 2, "open": 3}
"""Stage -> stages that a client has answered before it."""
_SESSIONS = 256  # most sessions that a client answers; it forgets none
MOST_AHEAD = 20
"""Most rounds that clients deal in before the first of them is summed."""
_MOST_ROUNDS = MOST_AHEAD + 2
"""Most rounds that a client keeps: those dealt ahead, one to be opened, one of another session."""
_STAGES_OF_ALL = ("deal", "sum")
"""Stages that clients outside of the committee answer."""
_BYTE_FIELDS = ("mask_seed", "self_seed", "coins", "encoding")
_SET_FIELDS = ("dealt", "survivors")


@final
@dataclass(kw_only=True)
class _Round:
    """A client's knowledge of one round: stages answered (`done`), clients in the order drawn
    (`cohort`), two secret seeds (erased once the masked input has left), the coins of its picks,
    the description of its encoding, dealers announced, survivors certified.
    """

    plan: RoundPlan
    index: int
    done: int
    cohort: tuple[Card, ...]
    mask_seed: bytes
    self_seed: bytes
    coins: bytes
    encoding: bytes
    dealt: frozenset[int] = frozenset()
    survivors: frozenset[int] = frozenset()

    @property
    def last(self) -> bool:
        """Whether this client has answered everything."""
        stages = _STAGES_OF_ALL
        if self.index < self.plan.members:
            stages = messages.STAGES
        return self.done == len(stages)


@final
class Client:
    """One client over many rounds.

    Each stage's method takes the server's message and returns the answer, and refuses if called out
    of order or twice. After any other refusal the round is over for this client and its secrets of
    the round are erased. A client may have dealt in several rounds; the first part of a message says
    which of them it is about.

    Arguments:
        identity: 32 bytes, the raw Ed25519 private key; None makes a new one.
        trust: the conditions on which it answers.

    Guarantees:
        The input is masked with every partner that this client picked and that dealt.
        As a member of the committee it signs one set of survivors per round: at least the plan's
        minimum, each of whom
            masked among the same dealers, also with all that picked it, and has enough of its own
            picks in the set.
        It reveals a share of at most one of each client's two secrets, and only under the
        signatures of a quorum or of
            all dealers.
        A round is answered once, even across `save` and `load`.
        Once it has masked in a round, it knows nothing more of earlier rounds of that session. It
        keeps at most 22 rounds, and forgets the one that it dealt in first.
    """

    def __init__(self, *, identity: bytes | None = None, trust: Trust | None = None) -> None:
        if identity is None:
            identity = os.urandom(32)
        if trust is None:
            trust = Trust()
        self._secret = identity
        self._identity = Ed25519PrivateKey.from_private_bytes(identity)
        self.trust = trust
        self._last: dict[str, int] = {}
        self._rounds: dict[bytes, _Round] = {}

    @property
    def identity(self) -> bytes:
        """The public identity, 32 bytes: what a roster lists."""
        return public_bytes(self._identity)

    def plan_of(self, message: bytes) -> RoundPlan | None:
        """The plan of the round that a message is about; None if that is not in progress."""
        current = self._rounds.get(messages.tag_of(message))
        if current is None:
            return None
        return current.plan

    def card(self) -> bytes:
        """This client's card, signed, for a roster; 128 bytes."""
        return introduce(self._secret)

    def show(self, question: bytes) -> bytes:
        """Answer a server's `Challenge` with the card, a proof that it is this client's, and its
        roster's digest.
        """
        roster_digest = b""
        if self.trust.roster is not None:
            roster_digest = self.trust.roster.digest
        return show(self._secret, question, roster_digest)

    # Stages ---------------------------------------------------------------------------------------

    def deal(self, invitation: bytes, *, encoding: bytes = b"") -> bytes:
        """Answer an invitation with a fresh key, coins, and shares of both secrets for the
        committee.

        Arguments:
            invitation: the message.
            encoding: a description of the round's encoding, kept for `expect`.

        Raises:
            PlanRefused: an unsafe plan, one that protects less than `trust` asks for, or one that
                names its task.
            SwappedKey: another client was drawn for this place.
            ReplayedRound: this or a later round of the session was answered already.
        """
        plan, index, shipped = messages.read_invitation(invitation)
        if any(plan.task):
            raise PlanRefused("plan", "task: it is named when the round is announced, not before")
        roster = self.trust.roster_of(plan, shipped)
        self.trust.check(plan, len(roster.members))
        cohort = self.trust.place(plan, roster, index, self.identity)
        self._count_round(plan)
        current = _Round(
            plan=plan,
            index=index,
            done=1,
            cohort=cohort,
            mask_seed=os.urandom(SEED_BYTES),
            self_seed=os.urandom(SEED_BYTES),
            coins=os.urandom(COIN_BYTES),
            encoding=encoding,
        )
        dealing = self._dealing(current)
        self._rounds[messages.tag_of(dealing)] = current
        if len(self._rounds) > _MOST_ROUNDS:
            earliest_tag = next(iter(self._rounds))
            del self._rounds[earliest_tag]
        return dealing

    def _count_round(self, plan: RoundPlan) -> None:
        """Note the last round of the session that is answered; ReplayedRound for one not after
        it.
        """
        session = plan.session.hex()
        if plan.round <= self._last.get(session, 0):
            raise ReplayedRound("deal", f"round {plan.round} of this session was answered already")
        if session not in self._last and len(self._last) == _SESSIONS:
            # Forgotten, a round could be run twice, and of each client both secrets be opened.
            raise ReplayedRound(
                "deal", f"{_SESSIONS} sessions were answered by this process; start it again"
            )
        self._last[session] = plan.round

    def _dealing(self, current: _Round) -> bytes:
        """The signed message that shares both secrets of a client among the committee, member by
        member in their order, each share sealed and committed to.
        """
        plan = current.plan
        index = current.index
        channel = X25519PrivateKey.generate()
        self_shares = split(current.self_seed, plan.members, plan.quorum)
        key_shares = split(current.mask_seed, plan.members, plan.quorum)
        portions: list[Portion] = []
        for holder in range(plan.members):
            self_share = self_shares[holder]
            key_share = key_shares[holder]
            holder_channel = current.cohort[holder].channel
            portion_key = _portion_key(channel, holder_channel, plan, index, holder)
            about = pair_purpose(plan.base, index, holder)
            portion = Portion(
                sealed=seal(portion_key, self_share + key_share, about=about),
                of_self=_share_commitment(self_share, plan, index, holder, b"self"),
                of_key=_share_commitment(key_share, plan, index, holder, b"key"),
            )
            portions.append(portion)
        seed_commitment = _share_commitment(current.self_seed, plan, index, index, b"seed")
        its_contents = messages.contents(seed_commitment, portions)
        mask_key = mask_key_from_seed(current.mask_seed, plan, index)
        unsigned = Deal(
            index=index,
            mask=public_bytes(mask_key),
            channel=public_bytes(channel),
            coins=current.coins,
            contents=hashlib.sha256(its_contents).digest(),
        )
        signature = sign(self._identity, unsigned.statement(plan))
        deal = replace(unsigned, signature=signature)
        return messages.dealing(plan, deal, its_contents)

    def sum(self, partners: bytes, values: npt.ArrayLike) -> bytes:
        """Answer the task, the list of dealers and the partners' keys with the masked input.

        Arguments:
            partners: the message.
            values: (coordinates,) integers in 0..span.

        Raises:
            OutOfRangeInteger: some integer is not.
            TooFewClients: too few dealt, or too few of this client's own picks.
            UnknownSender, SwappedKey: a partner that nobody picked, a pick left out, a key that its
                owner did not sign.
        """
        with self._stage("sum", partners) as current:
            masked_words = checked_integers(
                values,
                coordinates=current.plan.coordinates,
                span=current.plan.span,
                bits=current.plan.bits,
                stage="sum",
            )
            plan, dealt, deals = messages.read_partners(partners, current.plan)
            _check_partners(current, dealt, deals)
            current.plan = plan
            index = current.index
            self_key = self_mask_key(current.self_seed, plan, index)
            add_mask(masked_words, self_key, sign=1)
            private = mask_key_from_seed(current.mask_seed, plan, index)
            for partner, deal in deals.items():
                pair_key = pair_mask_key(private, deal.mask, plan, index, partner)
                add_mask(masked_words, pair_key, sign=pair_sign(index, partner))
            dealers = bitmap(dealt, plan)
            statement = messages.masks_statement(plan, index, current.coins, dealers, deals)
            signature = sign(self._identity, statement)
            residues = reduced(masked_words, plan.bits)
            packed = pack_words(residues, plan.bits)
            answer = messages.masked(plan, signature, packed)
            current.dealt = dealt
            current.mask_seed = b""
            current.self_seed = b""
            self._forget_before(plan)
            return answer

    def _forget_before(self, plan: RoundPlan) -> None:
        """Forget the rounds of the session that come before this one: their server went on."""
        for round_tag, dealt_round in list(self._rounds.items()):
            dealt_plan = dealt_round.plan
            if dealt_plan.session == plan.session and dealt_plan.round < plan.round:
                del self._rounds[round_tag]

    def agree(self, proposal: bytes) -> bytes:
        """Sign the set of survivors, as a member of the committee.

        Raises:
            TooFewClients: fewer than the plan's minimum, or a survivor with too few of its own
                picks among them.
            InconsistentLists: a survivor did not mask among the dealers that this client was told
                of, or not with all of them that it picked or that picked it.
        """
        with self._stage("agree", proposal) as current:
            coins, signatures = messages.read_proposal(proposal, current.plan)
            dealt = frozenset(coins)
            survivors = frozenset(signatures)
            if not survivors <= dealt:
                raise InconsistentLists("agree", "survivors who did not deal")
            _check_survivors(current, coins, signatures, "agree")
            current.survivors = survivors
            return self._signed_agreement(current)

    def agreement(self, certificate: bytes) -> bytes:
        """The answer to `agree` for the set that `open` would open; a signature of Ed25519 does not
        depend on chance.
        """
        current = self._awaiting("open", certificate)
        return self._signed_agreement(current)

    def _signed_agreement(self, current: _Round) -> bytes:
        statement = _certificate_statement(current)
        signature = sign(self._identity, statement)
        return messages.agreement(current.plan, signature)

    def open(self, certificate: bytes) -> bytes:
        """Answer a quorum's signatures with one share of every dealer, as far as they can be
        opened.

        Raises:
            TooFewClients: no quorum signed the set that this client signed.
            UnknownSender, SwappedKey: a signature of no member, an invalid signature.
        """
        with self._stage("open", certificate) as current:
            signatures, sealed = messages.read_opening(certificate, current.plan, current.dealt)
            _check_certificate(current, signatures)
            return self._shares(current, sealed)

    def unite(self, union: bytes) -> bytes:
        """Open at once, as `agree` and `open` would, when all dealers are in the sum.

        Raises:
            TooFewClients: fewer than the plan's minimum, or one with too few of its own picks.
            InconsistentLists: somebody did not mask among the dealers that this client was told of,
                with all of them.
        """
        with self._stage("unite", union) as current:
            coins, signatures, sealed = messages.read_union(union, current.plan)
            _check_survivors(current, coins, signatures, "unite")
            current.survivors = current.dealt
            return self._shares(current, sealed)

    def abandon(self, message: bytes) -> None:
        """Forget the round that a message is about."""
        self._rounds.pop(messages.tag_of(message), None)

    def expect(self, partners: bytes) -> tuple[RoundPlan, bytes]:
        """The plan, with its task, under which `sum` would answer this message, if it would, and
        the description of the round's encoding; this changes nothing.
        """
        current = self._awaiting("sum", partners)
        plan, dealt, deals = messages.read_partners(partners, current.plan)
        _check_partners(current, dealt, deals)
        return plan, current.encoding

    def _awaiting(self, stage: Stage, message: bytes) -> _Round:
        """The round that a message is about, whose next stage this is."""
        if not self._rounds:
            raise WrongStage(stage, "no round is in progress")
        current = self._rounds.get(messages.tag_of(message))
        if current is None:
            raise ReplayedRound(stage, "the message belongs to another round than those dealt")
        if current.done != _POSITIONS[stage]:
            raise WrongStage(stage, f"stage {messages.STAGES[current.done]!r} comes next")
        return current

    @contextmanager
    def _stage(self, stage: Stage, message: bytes) -> Generator[_Round]:
        """A copy of the round that a message is about, whose next stage this is; it takes its place
        if the block ends well.
        """
        current = replace(self._awaiting(stage, message))
        round_tag = messages.tag_of(message)
        try:
            yield current
        except ProtocolError:
            del self._rounds[round_tag]
            raise
        current.done += 1
        if stage == "unite":  # it stands for the last two
            current.done = len(messages.STAGES)
        self._rounds[round_tag] = current
        if current.last:
            del self._rounds[round_tag]

    def _shares(self, current: _Round, sealed: SealedByDealer) -> bytes:
        """One share of each dealer, of the seed if it survived, else of the mask key; as far as
        they can be opened.
        """
        private = channel_key(self._secret)
        plan = current.plan
        opened: dict[int, bytes] = {}
        for owner, (channel, sealed_shares) in sealed.items():
            try:
                portion_key = _portion_key(private, channel, plan, owner, current.index)
            except SwappedKey:
                continue  # dealer or server sent something else
            about = pair_purpose(plan.base, owner, current.index)
            share_pair = unseal(portion_key, sealed_shares, about=about)
            if share_pair is None:
                continue
            if owner in current.survivors:
                opened[owner] = share_pair[:SHARE_BYTES]
            else:
                opened[owner] = share_pair[SHARE_BYTES:]
        return messages.shares(plan, opened)

    # State ----------------------------------------------------------------------------------------

    def save(self) -> bytes:
        """The whole state between two messages, secrets included, as JSON."""
        rounds = [_to_plain(current) for current in self._rounds.values()]
        state = {"identity": self._secret.hex(), "last": self._last, "rounds": rounds}
        return json.dumps(state).encode()

    @classmethod
    def load(cls, state: bytes, *, trust: Trust | None = None) -> Client:
        """The client that was saved; FileFormatError for anything but what `save` returned."""
        document = parse_object(state, name="saved client")
        try:
            client = cls(identity=bytes.fromhex(document["identity"]), trust=trust)
            client._last = document["last"]
            for saved_round in document["rounds"]:
                current = _from_plain(saved_round)
                header = messages.header("deal", current.plan)
                round_tag = messages.tag_of(header)
                client._rounds[round_tag] = current
        except (LookupError, TypeError, ValueError) as error:
            raise FileFormatError(f"saved client: cut or edited ({error})") from None
        return client


def _check_partners(current: _Round, dealt: frozenset[int], deals: Mapping[int, Deal]) -> None:
    """Refuse too few dealers, and partners that are not exactly those picked, or picked by."""
    plan = current.plan
    if current.index not in dealt or len(dealt) < plan.minimum:
        raise TooFewClients(
            "sum", f"{len(dealt)} clients dealt, the plan's minimum is {plan.minimum}"
        )
    picks = messages.picked(current.coins, plan, current.index)
    dealing_picks = picks & dealt
    if len(dealing_picks) < plan.least:
        raise TooFewClients(
            "sum", f"{len(dealing_picks)} of this client's picks dealt, {plan.least} are needed"
        )
    missing = sorted(dealing_picks - deals.keys())
    if missing:
        raise UnknownSender(
            "sum", f"clients {missing} were picked and dealt, but are left out", tuple(missing)
        )
    for partner, deal in deals.items():
        if partner not in dealt or partner == current.index:
            raise UnknownSender("sum", f"client {partner} has no part here", (partner,))
        identity = current.cohort[partner].identity
        if not signed(identity, deal.signature, deal.statement(plan)):
            raise SwappedKey("sum", f"client {partner} did not sign this key", (partner,))
        if partner in dealing_picks:
            continue
        partner_picks = messages.picked(deal.coins, plan, partner)
        if current.index not in partner_picks:
            raise UnknownSender("sum", f"client {partner} did not pick this client", (partner,))


def _check_survivors(
    current: _Round, coins: BytesByClient, signatures: BytesByClient, stage: Stage
) -> None:
    """Check that the clients who gave these signatures can be summed, given the coins of all who
    dealt.
    """
    plan = current.plan
    survivors = signatures.keys()
    if coins.keys() != current.dealt:
        raise InconsistentLists(stage, "these are not the dealers that this client was told of")
    if len(survivors) < plan.minimum:
        raise TooFewClients(
            stage, f"{len(survivors)} survivors, the plan's minimum is {plan.minimum}"
        )
    picks = np.zeros((plan.clients, plan.picks), dtype=np.uint16)
    for dealer, dealer_coins in coins.items():
        dealer_picks = messages.picked(dealer_coins, plan, dealer)
        picks[dealer] = compact(dealer_picks)
    partners = mask_partners(sorted(current.dealt), picks)
    dealers = bitmap(current.dealt, plan)
    for survivor, signature in signatures.items():
        statement = messages.masks_statement(
            plan, survivor, coins[survivor], dealers, partners[survivor]
        )
        identity = current.cohort[survivor].identity
        if not signed(identity, signature, statement):
            raise InconsistentLists(
                stage,
                f"client {survivor} did not mask among these dealers, with all of them",
                (survivor,),
            )
        surviving_picks = survivors & picks[survivor].tolist()
        if len(surviving_picks) < plan.least:
            raise TooFewClients(
                stage,
                f"client {survivor} has too few of its picks among the survivors",
                (survivor,),
            )


def _check_certificate(current: _Round, signatures: BytesByClient) -> None:
    """Check that a quorum of the committee signed the survivors that this client signed."""
    plan = current.plan
    statement = _certificate_statement(current)
    for member, signature in signatures.items():
        if member >= plan.members:
            raise UnknownSender(
                "open", f"client {member} is not a member of the committee", (member,)
            )
        identity = current.cohort[member].identity
        if not signed(identity, signature, statement):
            raise SwappedKey("open", f"member {member} did not sign these survivors", (member,))
    if len(signatures) < plan.quorum:
        raise TooFewClients(
            "open", f"{len(signatures)} members signed, the quorum is {plan.quorum}"
        )


def _certificate_statement(current: _Round) -> bytes:
    return messages.certificate_statement(current.plan, current.dealt, current.survivors)


def _share_commitment(share: bytes, plan: RoundPlan, owner: int, holder: int, kind: bytes) -> bytes:
    return commitment(share, plan=plan.base, owner=owner, holder=holder, kind=kind)


def self_mask_key(seed: bytes, plan: RoundPlan, index: int) -> bytes:
    """Key of a client's own mask."""
    purpose = b"self mask" + client_number(index)
    return derive(seed, plan=plan.digest, purpose=purpose)


def pair_mask_key(
    private: X25519PrivateKey, public: bytes, plan: RoundPlan, mine: int, theirs: int
) -> bytes:
    """Key of the mask that two clients share; the client of the lower index adds it, the other
    subtracts it.
    """
    lower_index, higher_index = sorted((mine, theirs))
    purpose = pair_purpose(b"pair mask", lower_index, higher_index)
    return agree(private, public, plan=plan.digest, purpose=purpose)


def mask_key_from_seed(seed: bytes, plan: RoundPlan, index: int) -> X25519PrivateKey:
    """The key from which a client's masks with others are derived."""
    # X25519 itself offers 128 bits, as many as a seed has; the salt rules out shared searches.
    purpose = b"mask key" + client_number(index)
    secret = derive(seed, plan=plan.base, purpose=purpose)
    return X25519PrivateKey.from_private_bytes(secret)


def _portion_key(
    private: X25519PrivateKey, public: bytes, plan: RoundPlan, dealer: int, holder: int
) -> bytes:
    purpose = pair_purpose(b"portion", dealer, holder)
    return agree(private, public, plan=plan.base, purpose=purpose)


def _to_plain(current: _Round) -> JsonObject:
    invitation = messages.invitation(current.plan, current.index)
    cards = [card.to_bytes() for card in current.cohort]
    plain: JsonObject = {
        "invitation": invitation.hex(),
        "done": current.done,
        "cohort": b"".join(cards).hex(),
    }
    for field_name in _BYTE_FIELDS:
        plain[field_name] = getattr(current, field_name).hex()
    for field_name in _SET_FIELDS:
        plain[field_name] = sorted(getattr(current, field_name))
    return plain


def _from_plain(plain: JsonObject) -> _Round:
    invitation = bytes.fromhex(plain["invitation"])
    plan, index, _ = messages.read_invitation(invitation)
    cards = Reader(bytes.fromhex(plain["cohort"]), "deal")
    cohort = [Card.from_reader(cards) for _ in range(plan.clients)]
    fields: JsonObject = {"done": plain["done"]}
    for field_name in _BYTE_FIELDS:
        fields[field_name] = bytes.fromhex(plain[field_name])
    for field_name in _SET_FIELDS:
        fields[field_name] = frozenset(plain[field_name])
    return _Round(plan=plan, index=index, cohort=tuple(cohort), **fields)
