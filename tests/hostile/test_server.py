"""A dishonest server against the real client mod: what it is refused, and that refusals tell nothing about data."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from counting import calls
from federated.grids import LocalGrid
from mezzotint.families import discrete_gaussian
from mezzotint.federated.encoding import FixedPointEncoding, noise_encoding, packed
from mezzotint.federated.mod import SecureUpdates
from mezzotint.federated.policy import Policy
from mezzotint.federated.records import RECORD
from mezzotint.federated.secagg import Client, DuplicateAnswer, MalformedMessage, RoundPlan, SwappedKey, messages
from mezzotint.federated.secagg.masks import sign
from mezzotint.federated.strategy import SecureStrategy

CLIENTS, SIZE = 4, 3
NOISE_FREE = FixedPointEncoding(clip=8.0, grid_bits=13)
NOISY = noise_encoding(
    lambda deviation: discrete_gaussian(sigma=deviation), noise_multiplier=5.0, l2_norm=1.0, clients=CLIENTS, size=SIZE
)
POLICY = Policy(minimum=3, noise_multiplier=4.0, l2_norm=1.0)


def _app(update: np.ndarray, policy: Policy = POLICY, *, fails: bool = False) -> ClientApp:
    app = ClientApp(mods=[SecureUpdates(policy)])

    def answered(message: Message) -> Message:
        if fails:
            raise ValueError(f"the data are {update}")
        records = {"arrays": ArrayRecord({"a": Array(update)}), "metrics": MetricRecord({"loss": float(update[0])})}
        return Message(RecordDict(records), reply_to=message)

    app.train()(lambda message, context: answered(message))
    app.evaluate()(lambda message, context: answered(message))
    app.query()(lambda message, context: answered(message))
    return app


def _record(message: Message) -> dict:
    return dict(message.content.config_records[RECORD])


def _send(grid: LocalGrid, node: int, values: dict, *, arrays: bool = False, kind: str = "train") -> Message:
    records: dict = {RECORD: ConfigRecord(values)} if values else {}
    if arrays:
        records["arrays"] = ArrayRecord({"a": Array(np.zeros(SIZE))})
    (reply,) = grid.send_and_receive([Message(RecordDict(records), message_type=kind, dst_node_id=node)])
    return reply


def _run(grid: LocalGrid) -> SecureStrategy:
    strategy = SecureStrategy(encoding=NOISY, per_round=CLIENTS, minimum=3, returns="update")
    arrays = ArrayRecord({"a": Array(np.zeros(SIZE))})
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1)
    return strategy


def _plan(encoding, number: int = 1) -> RoundPlan:
    strategy = SecureStrategy(encoding=encoding, per_round=CLIENTS, minimum=3, session=bytes(16))
    return strategy.plan(CLIENTS, number, encoding.length(SIZE))


def _honest(count: int = CLIENTS, **others) -> LocalGrid:
    return LocalGrid([_app(np.ones(SIZE)) for _ in range(count)], **others)


def _before(grid: LocalGrid, stage: str, act: Callable[[Message], None]) -> None:
    """Lets the server do something to every client just before it sends the message of a stage."""
    send = grid.send_and_receive

    def meddling(messages, *, timeout=None):
        batch = list(messages)
        for message in batch:
            if _record(message)["stage"] == stage:
                grid.send_and_receive = send  # type: ignore[method-assign]
                act(message)
                grid.send_and_receive = meddling  # type: ignore[method-assign]
        return send(batch)

    grid.send_and_receive = meddling  # type: ignore[method-assign]


def test_an_encoding_that_was_refused_is_not_masked_under_later():
    """A round is announced with noise, then another without: the refusal leaves neither to be answered."""
    grid = _honest()
    answers: list[dict] = []

    def announce_without_noise(message: Message) -> None:
        node = message.metadata.dst_node_id
        announced = {
            "stage": "advertise",
            "payload": messages.invitation(_plan(NOISE_FREE, 2), node - 10),
            "encoding": packed(NOISE_FREE),
        }
        answers.append(_record(_send(grid, node, announced)))

    _before(grid, "mask", announce_without_noise)
    strategy = _run(grid)
    assert [answer["refused"] for answer in answers] == ["PolicyRefusal"] * CLIENTS
    assert strategy.last_sum is None
    assert {one.name for one in strategy.incidents} == {"WrongStage", "TooFewClients"}
    assert strategy.ledger.charges == {}


OTHER_TASKS: dict[str, Callable[[RecordDict], None]] = {
    "model": lambda content: content.array_records.update(arrays=ArrayRecord({"a": Array(np.full(SIZE, 1e-9))})),
    "type": lambda content: content.array_records.update(arrays=ArrayRecord({"a": Array(np.zeros(SIZE, np.float32))})),
    "configuration": lambda content: content.config_records["config"].update({"rate": 0.0}),
    "round": lambda content: content.config_records["config"].update({"server-round": 2}),
    "more": lambda content: content.config_records.update(another=ConfigRecord({"rate": 0.0})),
    "less": lambda content: content.config_records.pop("config") and None,
    "wanted": lambda content: content.config_records[RECORD].update({"returns": "weights"}),
}


@pytest.mark.parametrize("what", OTHER_TASKS)
def test_a_client_answers_no_other_question_than_the_round_was_announced_with(what):
    """Updates to different models, or under different settings, would tell clients apart in the sum of all."""
    grid = _honest()
    send, seen = grid.send_and_receive, list[dict]()

    def other(messages, *, timeout=None):
        changed = [copy.deepcopy(message) for message in messages]
        for message in changed:
            if _record(message)["stage"] == "mask" and message.metadata.dst_node_id == 10:
                OTHER_TASKS[what](message.content)
        replies = list(send(changed))
        seen.extend(_record(reply) for reply in replies if "refused" in _record(reply))
        return replies

    grid.send_and_receive = other  # type: ignore[method-assign]
    strategy = _run(grid)
    assert [(one["refused"], one["reason"].split(":")[0]) for one in seen] == [("PolicyRefusal", "model")]
    assert strategy.last_sum is not None
    assert len(strategy.last_sum.survivors) == CLIENTS - 1


def test_neighbours_who_were_announced_different_models_do_not_share():
    plans = [
        SecureStrategy(encoding=NOISY, per_round=CLIENTS, minimum=3, session=bytes(16)).plan(
            CLIENTS, 1, NOISY.length(SIZE), task=task
        )
        for task in (bytes(32), b"\x01" * 32)
    ]
    clients = [Client() for _ in range(CLIENTS)]
    adverts = [client.advertise(messages.invitation(plans[place == 0], place)) for place, client in enumerate(clients)]
    told = [
        messages.Advertisement.from_reader(messages.opened(advert, "advertise", plans[place == 0]))
        for place, advert in enumerate(adverts)
    ]
    with pytest.raises(SwappedKey):
        clients[1].share(messages.roster(plans[0], [one for one in told if one.index != 1]))


@pytest.mark.parametrize("stage", messages.STAGES[1:])
def test_after_a_refusal_no_message_of_the_round_is_answered(stage):
    """One client is first sent the stage's message cut short, then the whole one."""
    grid = _honest()
    seen: list[str] = []

    def cut(message: Message) -> None:
        if message.metadata.dst_node_id == 10:
            shorter, whole = copy.deepcopy(message), copy.deepcopy(message)
            payload = _record(message)["payload"]
            shorter.content.config_records[RECORD]["payload"] = payload[:-1]
            seen.extend(_record(grid.send_and_receive([one])[0])["refused"] for one in (shorter, whole))

    _before(grid, stage, cut)
    _run(grid)
    assert seen == ["MalformedMessage", "WrongStage"]


@pytest.mark.parametrize(
    ("one", "other", "fails"),
    [
        (np.array([np.nan, 1.0, 2.0]), np.array([3.0, np.inf, -1.0]), False),
        (np.zeros(SIZE + 1), np.full(SIZE + 2, 7.0), False),
        (np.array([1.0, 2.0, 3.0]), np.array([-9.0, 0.5, 1e6]), True),
    ],
    ids=["not finite", "wrong shape", "the train function fails"],
)
def test_refusals_are_the_same_for_all_data(one, other, fails):
    def refusals(bad: np.ndarray) -> list[dict]:
        grid = LocalGrid([*(_app(np.ones(SIZE)) for _ in range(CLIENTS - 1)), _app(bad, fails=fails)])
        _run(grid)
        return [_record(reply) for reply in grid.received if "refused" in _record(reply)]

    first, second = refusals(one), refusals(other)
    assert first == second
    assert [answer["refused"] for answer in first] == ["NoInput"]


def test_a_fault_of_the_client_tells_nothing_of_its_machine(tmp_path):
    """A node whose identity file is missing says so in its own log, not to the server."""
    grid = LocalGrid([_app(np.ones(SIZE))], configs={0: {"identity": str(tmp_path / "secret" / "key")}})
    announced = {"stage": "advertise", "payload": messages.invitation(_plan(NOISY), 0), "encoding": packed(NOISY)}
    answer = _record(_send(grid, 10, announced))
    assert answer["refused"] == "ClientFault"
    assert "secret" not in str(answer)


@pytest.mark.parametrize("kind", ["evaluate", "query"])
def test_evaluate_and_query_reach_the_app_only_where_the_policy_allows_it(kind):
    update = np.full(SIZE, 4.25)
    refusing = LocalGrid([_app(update)])
    for _ in range(3):
        reply = _send(refusing, 10, {}, arrays=True, kind=kind)
        assert _record(reply)["refused"] == "PolicyRefusal"
        assert not reply.content.metric_records
    allowing = LocalGrid([_app(update, Policy(evaluate=True))])
    reply = _send(allowing, 10, {}, arrays=True, kind=kind)
    assert next(iter(reply.content.metric_records.values()))["loss"] == 4.25


@pytest.mark.parametrize("field", ["channel", "mask"])
def test_a_key_of_small_order_costs_its_owner_the_round_and_nobody_else(field):
    """Signed by its owner, so only its order gives it away; passed on, it would make all neighbours refuse."""
    identity = bytes(range(32))
    places = {"channel": slice(2, 34), "mask": slice(34, 66)}[field]

    def crooked(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id != 13 or _record(message)["stage"] != "advertise":
            return reply
        plan, index = messages.read_invitation(_record(message)["payload"])
        made = Client(identity=identity)
        answer = bytearray(made.advertise(messages.invitation(plan, index)))
        start = len(messages.header("advertise", plan))
        answer[start + places.start : start + places.stop] = bytes(32)
        found = messages.Advertisement.from_reader(messages.opened(bytes(answer), "advertise", plan))
        answer[-64:] = sign(made._identity, found.statement(plan))
        reply.content.config_records[RECORD]["payload"] = bytes(answer)
        return reply

    strategy = _run(_honest(hand=crooked))
    assert strategy.last_sum is not None
    assert strategy.last_sum.survivors == (0, 1, 2)
    assert [(one.client, one.name) for one in strategy.incidents] == [("13", "SwappedKey")]
    assert len(strategy.ledger.charges) == 3


class _Counted(int):
    """An index that counts how often it is compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        _Counted.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


@pytest.mark.parametrize("index", [lambda i: i, lambda i: 7], ids=["all different", "all the same"])
def test_long_lists_are_read_in_linear_time(index):
    """Lists may be as long as their count field allows, 65,535: in quadratic time they would hold a server up."""
    plan, count = _plan(NOISY), 8_000
    named = b"".join(index(i).to_bytes(2, "little") for i in range(count))
    body = messages.header("confirm", plan) + count.to_bytes(2, "little") + named + bytes(2)

    def read() -> None:
        with contextlib.suppress(DuplicateAnswer, MalformedMessage):
            messages.read_lists(body, plan)

    assert calls(read) < 20 * count
    _Counted.compared = 0
    with contextlib.suppress(DuplicateAnswer):
        messages._distinct([_Counted(index(i)) for i in range(count)], "confirm")
    assert _Counted.compared < 4 * count
