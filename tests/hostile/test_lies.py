"""Every lie of a server, told to the real clients by the real strategy: what they refuse, and that it tells nothing.

Each is told twice, to clients of different data that toss the same coins: whatever they answer is the same bytes, but
for the masked inputs themselves.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from federated.grids import LocalGrid
from federated.rounds import apart, card, roster, secret, told
from mezzotint.federated.client_mod import SecureUpdates
from mezzotint.federated.encoding import gaussian_encoding
from mezzotint.federated.encoding_files import packed
from mezzotint.federated.flower_records import RECORD, task_digest
from mezzotint.federated.policy import Policy
from mezzotint.federated.secagg import (
    Roster,
    RoundPlan,
    Server,
    client as client_module,
    masks,
    messages,
    roster as roster_module,
)
from mezzotint.federated.secure_strategy import SecureStrategy

CLIENTS, SIZE, MINIMUM = 12, 3, 9
VICTIM = 4
"""A place in the round, of a member of the committee."""


def _noise(multiplier: float) -> Any:
    return gaussian_encoding(noise_multiplier=multiplier, clip_norm=1.0, clients=CLIENTS, size=SIZE)


NOISY, NOISIER = _noise(5.0), _noise(6.0)
POLICY = Policy(minimum=MINIMUM, noise_multiplier=1.0, clip_norm=1.0, roster=roster(CLIENTS))
PLACES = {
    10 + number: place
    for place, one in enumerate(roster(CLIENTS).cohort(1, CLIENTS))
    for number in range(CLIENTS)
    if card(number) == one
}
"""Node -> its place in the first round."""


@dataclass(kw_only=True)
class Round:
    """What a lying server has at hand: its own honest state, messages of earlier rounds, and what it has sent."""

    grid: LocalGrid
    server: Server | None = None
    old: dict[tuple[int, str], Message] = field(default_factory=dict)
    sent: dict[tuple[int, str], Message] = field(default_factory=dict)
    plans: dict[int, RoundPlan] = field(default_factory=dict)
    """Of places that were announced another one: all that goes there and comes from there is made to fit."""
    answers: list[tuple[str, Message]] = field(default_factory=list)

    @property
    def known(self) -> Server:
        assert self.server is not None
        return self.server

    @property
    def plan(self) -> RoundPlan:
        return self.known.plan


Tell = Callable[[Round, str, int, Message], Iterable[Message]]
"""From the honest message of a stage to a place, to those sent instead; the strategy sees the answer to the last."""


def _stage(message: Message) -> str:
    record = message.content.config_records.get(RECORD)
    return "" if record is None else str(record.get("stage", ""))


def _with(message: Message, **values: Any) -> Message:
    other = copy.deepcopy(message)
    other.content.config_records[RECORD].update(values)
    return other


def _payload(message: Message) -> bytes:
    payload = message.content.config_records[RECORD].get("payload", b"")
    assert isinstance(payload, bytes)
    return payload


def _planned(
    now: Round, message: Message, place: int, shipped: bytes = b"", **changes: Any
) -> Message:
    """The invitation with another plan, which the client goes on to hear of."""
    now.plans[place] = replace(messages.read_invitation(_payload(message))[0], **changes)
    return _with(message, payload=messages.invitation(now.plans[place], place, shipped))


def _another_plan(now: Round, place: int, message: Message) -> Iterable[Message]:
    """After the client has dealt, an invitation to another round of the same number; then the round goes on."""
    other = replace(now.plan, minimum=MINIMUM + 1, task=bytes(32))
    return [_with(now.sent[place, "deal"], payload=messages.invitation(other, place)), message]


def _under(plan: RoundPlan, stage: str, message: Message) -> Message:
    """The message, said to be of another plan."""
    head = messages.header(stage, plan)  # type: ignore[arg-type]
    return _with(message, payload=head + _payload(message)[len(head) :])


def at(wanted: str, tell: Callable[[Round, int, Message], Iterable[Message]]) -> Tell:
    """A lie at one stage."""
    return lambda now, stage, place, message: (
        tell(now, place, message) if stage == wanted else [message]
    )


# Lies ----------------------------------------------------------------------------------------------------------------


def _two_models(now: Round, stage: str, place: int, message: Message) -> Iterable[Message]:
    """Half of the clients are announced another model, and sent it."""
    other = ArrayRecord({"a": Array(np.full(SIZE, 1e-9))})
    if place % 2 or stage != "sum":
        return [message]
    content = RecordDict({RECORD: ConfigRecord({"returns": "update"}), "arrays": other})
    content["config"] = ConfigRecord({"server-round": 1})
    payload, head = _payload(message), len(messages.header("sum", now.plan))
    after_task = payload[head + len(now.plan.task) :]
    announced = payload[:head] + task_digest(content) + after_task
    changed = copy.deepcopy(_with(message, payload=announced))
    changed.content.array_records["arrays"] = other
    return [changed]


def _two_encodings(now: Round, place: int, message: Message) -> Iterable[Message]:
    if place % 2:
        return [message]
    return [_with(_planned(now, message, place, binding=NOISIER.binding), encoding=packed(NOISIER))]


def _forged(number_of_members: int) -> Roster:
    """The roster with one member of the server's own."""
    members = [*roster(CLIENTS).members[1:], card(number_of_members)]
    return Roster(members=tuple(sorted(members, key=lambda one: one.identity)), beacon=bytes(32))


def _forged_roster(now: Round, place: int, message: Message) -> Iterable[Message]:
    forged = _forged(100)
    return [_planned(now, message, place, forged.to_bytes(), roster=forged.digest)]


def _hidden_picks(now: Round, place: int, message: Message) -> Iterable[Message]:
    """The victim is told that three of its picks did not deal."""
    if place != VICTIM:
        return [message]
    dealt = now.known._dealt
    fewer = set(dealt) - set(sorted(dealt.picks[VICTIM].tolist())[:3])
    deals = [dealt[other] for other in now.known._masking[VICTIM].tolist() if other in fewer]
    return [_with(message, payload=told(now.plan, fewer, deals))]


def _left_out_pick(now: Round, place: int, message: Message) -> Iterable[Message]:
    """The victim is not sent the key of a client that it picked, though that one dealt."""
    dealt = now.known._dealt
    deals = [dealt[other] for other in now.known._masking[place].tolist()]
    left = next(deal for deal in deals if deal.index in dealt.picks[place])
    return [
        _with(message, payload=told(now.plan, dealt, [one for one in deals if one is not left]))
    ]


def _hidden_picker(now: Round, place: int, message: Message) -> Iterable[Message]:
    """One is not told of the clients that picked it without being picked by it: the first who has such clients."""
    dealt, masking = now.known._dealt, now.known._masking
    if place != min(
        one
        for one, partners in masking.items()
        if set(partners.tolist()) - set(dealt.picks[one].tolist())
    ):
        return [message]
    deals = [dealt[other] for other in masking[place].tolist() if other in dealt.picks[place]]
    return [_with(message, payload=told(now.plan, dealt, deals))]


def _survivors(who: Callable[[int], Iterable[int]]) -> Tell:
    """Members are shown other survivors than those who answered."""

    def tell(now: Round, place: int, message: Message) -> Iterable[Message]:
        coins = now.known._dealt.coins()
        said = {index: now.known._masked[index] for index in who(place)}
        return [_with(message, payload=messages.proposal(now.plan, coins, said))]

    return at("agree", tell)


def _signatures(how_many: int) -> Tell:
    """Members are shown fewer signatures."""

    def tell(now: Round, place: int, message: Message) -> Iterable[Message]:
        few = dict(sorted(now.known._agreed.items())[:how_many])
        return [
            _with(message, payload=messages.opening(now.plan, few, now.known._dealt.sealed(place)))
        ]

    return at("open", tell)


def _early(now: Round, place: int, message: Message) -> Iterable[Message]:
    """Shares are asked for before anybody has signed anything."""
    sealed = now.known._dealt.sealed(min(place, now.plan.members - 1))
    return [_with(message, stage="open", payload=messages.opening(now.plan, {}, sealed)), message]


def _again_with_fewer(now: Round, place: int, message: Message) -> Iterable[Message]:
    """After the set that all are shown, each member is shown another one."""
    coins = now.known._dealt.coins()
    fewer = dict(sorted(now.known._masked.items())[:MINIMUM])
    return [message, _with(message, payload=messages.proposal(now.plan, coins, fewer))]


def _union(now: Round, place: int, said: Callable[[dict[int, bytes]], dict[int, bytes]]) -> bytes:
    """What a member is shown when all who dealt are in the sum, with other signatures."""
    coins = now.known._dealt.coins()
    known = {index: now.known._masked.get(index, bytes(64)) for index in coins}
    return messages.union(
        now.plan, coins, said(known), now.known._dealt.sealed(min(place, now.plan.members - 1))
    )


def _without_one(now: Round, place: int, message: Message) -> Iterable[Message]:
    """That all are in the sum, although one has not signed that it masked among these dealers."""
    return [_with(message, payload=_union(now, place, lambda said: said | {VICTIM: bytes(64)}))]


def _too_soon(now: Round, place: int, message: Message) -> Iterable[Message]:
    return [_with(message, stage="unite", payload=_union(now, place, dict)), message]


def _after_all(now: Round, place: int, message: Message) -> Iterable[Message]:
    """First members are asked to sign who is in the sum, and then for shares without the signatures of a quorum."""
    return [message, _with(message, stage="unite", payload=_union(now, place, dict))]


def _replayed(now: Round, stage: str, place: int, message: Message) -> Iterable[Message]:
    """Before each message, that of a round of an earlier session."""
    old = now.old.get((message.metadata.dst_node_id, stage))
    return [message] if stage == "card" or old is None else [copy.deepcopy(old), message]


def _mixed(now: Round, stage: str, place: int, message: Message) -> Iterable[Message]:
    """A training round's message as a question of another kind."""
    other = Message(
        copy.deepcopy(message.content),
        message_type="evaluate",
        dst_node_id=message.metadata.dst_node_id,
    )
    return [other, message]


def _plain(now: Round, place: int, message: Message) -> Iterable[Message]:
    """In between, for the update itself."""
    content = RecordDict(
        {name: record for name, record in message.content.items() if name != RECORD}
    )
    content["arrays"] = ArrayRecord({"a": Array(np.zeros(SIZE))})
    return [
        Message(content, message_type="train", dst_node_id=message.metadata.dst_node_id),
        message,
    ]


def _weaker(**changes: Any) -> Tell:
    return at("deal", lambda now, place, message: [_planned(now, message, place, **changes)])


LOST, COMPLETED = "no", "yes"
LIES: dict[str, tuple[Tell, set[str], str]] = {
    "none": (lambda now, stage, place, message: [message], set(), COMPLETED),
    "two models": (_two_models, {"InconsistentLists"}, LOST),
    "two encodings": (at("deal", _two_encodings), {"SwappedKey", "UnknownSender"}, LOST),
    "two minimums": (
        at(
            "deal",
            lambda now, place, message: [
                _planned(now, message, place, minimum=MINIMUM + place % 2)
            ],
        ),
        {"SwappedKey", "UnknownSender"},
        LOST,
    ),
    "a smaller minimum": (_weaker(minimum=MINIMUM - 1), {"PlanRefused"}, LOST),
    "a smaller committee": (_weaker(members=5, quorum=4), {"PlanRefused"}, LOST),
    "a smaller quorum": (_weaker(quorum=6), {"PlanRefused"}, LOST),
    "fewer picks": (_weaker(picks=4, least=2), {"PlanRefused"}, LOST),
    "fewer picks among survivors": (_weaker(least=1), {"PlanRefused"}, LOST),
    "a round beyond those allowed": (_weaker(round=5000), {"PolicyRefusal"}, LOST),
    "a different span": (_weaker(span=1), {"PolicyRefusal"}, LOST),
    "a modulus that does not wrap": (_weaker(bits=32), {"PolicyRefusal"}, LOST),
    "an encoding that is not the plan's": (
        at("deal", lambda now, place, message: [_with(message, encoding=packed(NOISIER))]),
        {"PolicyRefusal"},
        LOST,
    ),
    "a forged roster": (at("deal", _forged_roster), {"PlanRefused"}, LOST),
    "another client's place": (
        at("deal", lambda now, place, message: [_planned(now, message, (place + 1) % CLIENTS)]),
        {"SwappedKey"},
        LOST,
    ),
    "hidden picks": (at("sum", _hidden_picks), {"InconsistentLists"}, LOST),
    "a pick left out": (at("sum", _left_out_pick), {"UnknownSender"}, LOST),
    "a hidden picker": (at("sum", _hidden_picker), {"InconsistentLists"}, LOST),
    "survivors below the minimum": (
        _survivors(lambda place: range(MINIMUM - 1)),
        {"TooFewClients"},
        LOST,
    ),
    "two sets of survivors": (
        _survivors(lambda place: range(place % 2, CLIENTS - 1 + place % 2)),
        {"SwappedKey"},
        LOST,
    ),
    "shares before signatures": (at("agree", _early), {"WrongStage"}, LOST),
    "shares without a quorum": (_signatures(2), {"TooFewClients"}, LOST),
    "shares without signatures": (_signatures(0), {"TooFewClients"}, LOST),
    "a second set of survivors": (at("agree", _again_with_fewer), {"WrongStage"}, LOST),
    "unite with one dealer missing": (at("unite", _without_one), {"InconsistentLists"}, LOST),
    "unite before the sum": (at("sum", _too_soon), {"PolicyRefusal", "WrongStage"}, LOST),
    "unite after signatures": (at("agree", _after_all), {"WrongStage"}, LOST),
    "unite with two models": (_two_models, {"InconsistentLists"}, LOST),
    "unite with hidden picks": (at("sum", _hidden_picks), {"InconsistentLists"}, LOST),
    "unite with a hidden picker": (at("sum", _hidden_picker), {"InconsistentLists"}, LOST),
    "a second input": (
        at("sum", lambda now, place, message: [message, copy.deepcopy(message)]),
        {"WrongStage"},
        LOST,
    ),
    "the same round again": (
        at("deal", lambda now, place, message: [message, copy.deepcopy(message)]),
        {"ReplayedRound"},
        LOST,
    ),
    "another plan of the same round": (
        at("sum", _another_plan),
        {"ReplayedRound"},
        COMPLETED,
    ),
    # A member that was not asked to open, for there were enough, waits for that in the other session.
    "messages of another session": (_replayed, {"ReplayedRound", "WrongStage"}, COMPLETED),
    "messages of another stage": (
        at("sum", lambda now, place, message: [_with(message, stage="agree"), message]),
        {"PolicyRefusal", "WrongStage"},
        LOST,
    ),
    "a stage that does not exist": (
        at("sum", lambda now, place, message: [_with(message, stage="peek"), message]),
        {"PolicyRefusal", "WrongStage"},
        LOST,
    ),
    "a message of another type": (_mixed, {"PolicyRefusal"}, COMPLETED),
    "a request for the plain update": (at("sum", _plain), {"PolicyRefusal"}, COMPLETED),
}
"""Name -> the lie, how clients refuse, whether the round is completed."""

SPLIT = ("two encodings", "two minimums")
"""Lies after which half of the clients follow another plan than the others and the server do."""


# The round ------------------------------------------------------------------------------------------------------------


def _coins(patch: pytest.MonkeyPatch, seed: int = 0) -> None:
    """The same ones in every run."""
    count = iter(range(seed * 10**9, (seed + 1) * 10**9))

    def draw(size: int = 32) -> bytes:
        return hashlib.shake_128(b"coins %d" % next(count)).digest(size)

    patch.setattr(client_module, "os", SimpleNamespace(urandom=draw))
    below = SimpleNamespace(randbelow=lambda end: int.from_bytes(draw(), "little") % end)
    patch.setattr(masks, "secrets", below)
    drawn = SimpleNamespace(
        generate=lambda: X25519PrivateKey.from_private_bytes(draw()),
        from_private_bytes=X25519PrivateKey.from_private_bytes,
    )
    for module in (client_module, roster_module):  # and the server's questions who they are
        patch.setattr(module, "X25519PrivateKey", drawn)


def _app(update: np.ndarray) -> ClientApp:
    app = ClientApp(mods=[SecureUpdates(POLICY)])

    def answered(message: Message, context: Any) -> Message:
        records = {
            "arrays": ArrayRecord({"a": Array(update)}),
            "metrics": MetricRecord({"loss": float(update[0])}),
        }
        return Message(RecordDict(records), reply_to=message)

    app.train()(answered)
    app.evaluate()(answered)
    return app


def _grid(folder: Path, data: int) -> LocalGrid:
    updates = np.random.default_rng(data).normal(size=(CLIENTS, SIZE))
    for place in range(CLIENTS):
        (folder / str(place)).write_bytes(secret(place))
    records = str(folder / f"records of {data}")
    configs = {
        place: {"identity": str(folder / str(place)), "records": records}
        for place in range(CLIENTS)
    }
    return LocalGrid([_app(update) for update in updates], configs=configs)


def _run(
    grid: LocalGrid, tell: Tell, session: int, old: dict[tuple[int, str], Message]
) -> tuple[Any, Round]:
    """A round of a server that tells this."""
    now = Round(grid=grid, old=old)
    strategy = SecureStrategy(
        encoding=NOISY, clients_per_round=CLIENTS, minimum=MINIMUM, roster=roster(CLIENTS), returns="update",
        session=bytes([session] * 16),
    )  # fmt: skip
    opens, push = strategy._open, grid.push_messages

    def opened(*words: Any) -> Any:
        found = opens(*words)
        now.server = found.server
        return found

    def told(batch: Iterable[Message]) -> Any:
        numbers = []
        for message in batch:
            node, stage = message.metadata.dst_node_id, _stage(message)
            place = PLACES[node]
            if stage in ("sum", "agree", "open", "unite") and place in now.plans:
                message = _under(now.plans[place], stage, message)
            instead = [message] if stage == "card" else list(tell(now, stage, place, message))
            now.sent[place, stage] = message
            numbers.append(push(instead)[-1])
        return numbers

    def answered(message: Message, reply: Message) -> Message:
        stage, place = _stage(message), PLACES[message.metadata.dst_node_id]
        now.answers.append((stage, copy.deepcopy(reply)))
        if stage in messages.STAGES and place in now.plans and _payload(reply):
            reply.content.config_records[RECORD]["payload"] = _payload(
                _under(now.plan, stage, reply)
            )
        return reply

    strategy._open = opened  # type: ignore[method-assign]
    grid.hand = answered
    grid.push_messages = told  # type: ignore[method-assign]
    start = ArrayRecord({"a": Array(np.zeros(SIZE))})
    strategy.start(grid=grid, initial_arrays=start, num_rounds=1, train_config=ConfigRecord())
    grid.push_messages = push  # type: ignore[method-assign]
    return strategy, now


def _transcript(now: Round) -> list[Any]:
    """All that left the clients, but for masked inputs, of which the length counts."""
    found = []
    for stage, reply in now.answers:
        assert not reply.content.array_records
        assert not reply.content.metric_records
        record: dict[str, Any] = dict(reply.content.config_records[RECORD])
        if stage == "sum" and "payload" in record:
            record["payload"] = _payload(reply)[: 9 + 64], len(_payload(reply))
        found.append((reply.metadata.src_node_id, stage, record))
    return found


def _refused(now: Round) -> dict[int, set[str]]:
    """Place -> the names by which it refused."""
    told: dict[int, set[str]] = {}
    for _, reply in now.answers:
        record = reply.content.config_records[RECORD]
        if "refused" in record:
            told.setdefault(PLACES[reply.metadata.src_node_id], set()).add(str(record["refused"]))
    return told


def _check_split(now: Round, told: dict[int, set[str]], refusals: set[str]) -> None:
    """Whatever the coins, everybody refuses: each picks more clients than there are others of its own plan.

    Those of the server's plan are sent the keys of all whom they picked, one of which is signed for another plan.
    Those of the other plan picked others than the server thinks: one of their picks is missing, or a key is signed for
    another plan, or a client is among the keys that did not pick them.
    """
    base = now.plan.base
    ours = {place for place in range(CLIENTS) if now.plans.get(place, now.plan).base == base}
    assert now.plan.picks > max(len(ours), CLIENTS - len(ours)) - 1
    assert all(told[place] == {"SwappedKey"} for place in ours)
    assert all(told[place] and told[place] <= refusals for place in set(range(CLIENTS)) - ours)


@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize("lie", SPLIT)
def test_two_plans_are_refused_by_everybody_whatever_the_coins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str, seed: int
) -> None:
    monkeypatch.setattr("mezzotint.federated.secagg.server.signed", lambda *words: True)
    tell, refusals, _ = LIES[lie]
    _coins(monkeypatch, seed)
    strategy, now = _run(_grid(tmp_path, 1), tell, seed, {})
    _check_split(now, _refused(now), refusals)
    assert strategy.last_sum is None


@pytest.mark.parametrize("lie", list(LIES))
def test_a_lie_is_refused_in_the_same_words_for_all_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    tell, refusals, whose = LIES[lie]
    if (
        not lie.startswith("unite") or "after" in lie
    ):  # members agree first, as when somebody who dealt is missing
        apart(monkeypatch, "agree")
    # The server itself believes everything.
    monkeypatch.setattr("mezzotint.federated.secagg.server.signed", lambda *words: True)
    transcripts = []
    for data in (1, 2):
        with monkeypatch.context() as patch:
            _coins(patch)
            grid, old = _grid(tmp_path, data), dict[tuple[int, str], Message]()
            if lie == "messages of another session":
                _, earlier = _run(grid, LIES["none"][0], 9, {})
                nodes = {place: node for node, place in PLACES.items()}
                old = {
                    (nodes[place], stage): message
                    for (place, stage), message in earlier.sent.items()
                }
            strategy, now = _run(grid, tell, 1, old)
        told = _refused(now)
        if lie in SPLIT:
            _check_split(now, told, refusals)
        else:
            assert set().union(*told.values()) == refusals
        total = strategy.last_sum
        assert (LOST if total is None else COMPLETED) == whose
        if total is None:
            # No share of any secret has left anybody.
            assert not any(
                stage in ("open", "unite") and _payload(reply) for stage, reply in now.answers
            )
        else:
            assert total.survivors == tuple(range(CLIENTS))
        transcripts.append(_transcript(now))
    same = [one == other for one, other in zip(*transcripts, strict=True)]
    assert all(same), transcripts[0][same.index(False)]


def test_the_page_lists_every_lie() -> None:
    table = Path(__file__).parents[2] / "docs" / "tables" / "lies.md"
    text = table.read_text(encoding="utf-8")
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in text.splitlines()
        if line[:1] == "|"
    ]
    told = {
        (lie, ", ".join(sorted(refusals)), whose)
        for lie, (_, refusals, whose) in LIES.items()
        if refusals
    }
    columns = ((1, LOST), (2, COMPLETED))
    listed = [
        (lie, row[0].replace("`", ""), whose)
        for row in rows[2:]
        for column, whose in columns
        for lie in filter(None, row[column].split("; "))
    ]
    assert len(listed) == len(told)
    assert set(listed) == told


def test_a_roster_that_names_somebody_twice_is_refused_by_clients_that_hold_none(
    tmp_path: Path,
) -> None:
    """Of a client without a roster of its own the server can make no two."""
    grid = _grid(tmp_path, 1)
    grid.apps[10] = ClientApp(mods=[SecureUpdates(Policy())])
    known = roster(CLIENTS)
    twice = known.to_bytes()[:34] + b"".join(
        one.to_bytes() for one in (*known.members[:-1], known.members[-2])
    )
    strategy = SecureStrategy(
        encoding=NOISY, clients_per_round=CLIENTS, minimum=MINIMUM, roster=known
    )
    plan = replace(
        strategy.plan(CLIENTS, 1, NOISY.length(SIZE)), roster=hashlib.sha256(twice).digest()
    )
    told = {
        "stage": "deal",
        "payload": messages.invitation(plan, 0, twice),
        "encoding": packed(NOISY),
    }
    asked = Message(RecordDict({RECORD: ConfigRecord(told)}), message_type="train", dst_node_id=10)
    grid.apps[10].train()(lambda message, context: message)
    (answer,) = grid.send_and_receive([asked])
    assert answer.content.config_records[RECORD]["refused"] == "MalformedMessage"
