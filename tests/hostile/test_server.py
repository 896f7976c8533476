"""A dishonest server against the real client mod: what it is refused, and that refusals tell nothing about data."""

from __future__ import annotations

import copy
import dataclasses
import json
import logging
import math
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from federated.grids import LocalGrid, charge_sum
from federated.rounds import EXCHANGES, apart, card, people, roster, secret
from mezzotint import families
from mezzotint.core.errors import BudgetError, FileFormatError, ParameterError
from mezzotint.federated.budgets import Sums
from mezzotint.federated.client_mod import SecureUpdates
from mezzotint.federated.encoding import (
    FixedPointEncoding,
    TableEncoding,
    canonical,
    gaussian_encoding,
)
from mezzotint.federated.encoding_files import packed
from mezzotint.federated.flower_records import RECORD
from mezzotint.federated.lifetime_ledger import LifetimeLedger
from mezzotint.federated.policy import Policy
from mezzotint.federated.secagg import (
    Client,
    PlanRefused,
    ReplayedRound,
    RoundPlan,
    Server,
    SwappedKey,
    messages,
)
from mezzotint.federated.secagg.masks import sign
from mezzotint.federated.secagg.wire import InconsistentLists
from mezzotint.federated.secure_strategy import SecureStrategy
from tolerances import FEW

CLIENTS, SIZE, ROSTER = 4, 3, 12
NOISE_FREE = FixedPointEncoding(clip=8.0, grid_bits=13)
NOISY = gaussian_encoding(
    noise_multiplier=5.0 * math.sqrt(ROSTER / CLIENTS), clip_norm=1.0, clients=ROSTER, size=SIZE
)
"""A noise of 5 in the sum of four, on a grid with room for all of the roster."""
POLICY = Policy(minimum=3, noise_multiplier=2.5, clip_norm=1.0, roster=roster(CLIENTS))
"""One of the four may be corrupted, which leaves two honest noises of four in the smallest sum: 5 / sqrt 2."""


@pytest.fixture(autouse=True)
def _identities(tmp_path_factory):
    """Files of long-term secrets, one a client; grids made by `_grid` name them in their nodes' configurations."""
    folder = tmp_path_factory.getbasetemp() / "identities"
    folder.mkdir(exist_ok=True)
    for number in range(ROSTER):
        (folder / str(number)).write_bytes(secret(number))
    _Files.folder = folder


class _Files:
    folder: Path


def _grid(apps: list[ClientApp], **others) -> LocalGrid:
    configs = {
        place: {"identity": str(_Files.folder / str(place)), "records": str(_Files.folder)}
        for place in range(len(apps))
    }
    return LocalGrid(apps, configs=configs, **others)


class _Panic(BaseException):
    """As of libraries whose errors are no Exception."""


def _app(
    update: np.ndarray, policy: Policy = POLICY, *, fails: type[BaseException] | None = None
) -> ClientApp:
    app = ClientApp(mods=[SecureUpdates(policy)])

    def answered(message: Message) -> Message:
        if fails is not None:
            raise fails(f"the data are {update}")
        records = {
            "arrays": ArrayRecord({"a": Array(update)}),
            "metrics": MetricRecord({"loss": float(update[0])}),
        }
        return Message(RecordDict(records), reply_to=message)

    app.train()(lambda message, context: answered(message))
    app.evaluate()(lambda message, context: answered(message))
    app.query()(lambda message, context: answered(message))
    return app


def _record(message: Message) -> dict:
    return dict(message.content.config_records[RECORD])


def _send(
    grid: LocalGrid, node: int, values: dict, *, arrays: bool = False, kind: str = "train"
) -> Message:
    records: dict = {RECORD: ConfigRecord(values)} if values else {}
    if arrays:
        records["arrays"] = ArrayRecord({"a": Array(np.zeros(SIZE))})
    (reply,) = grid.send_and_receive(
        [Message(RecordDict(records), message_type=kind, dst_node_id=node)]
    )
    return reply


def _run(grid: LocalGrid, **others) -> SecureStrategy:
    options: dict = {"clients_per_round": CLIENTS, "minimum": 3, "roster": roster(CLIENTS)} | others
    strategy = SecureStrategy(encoding=NOISY, returns="update", **options)
    arrays = ArrayRecord({"a": Array(np.zeros(SIZE))})
    strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1)
    return strategy


def _plan(encoding, number: int = 1) -> RoundPlan:
    strategy = SecureStrategy(
        encoding=encoding,
        clients_per_round=CLIENTS,
        minimum=3,
        session=bytes(16),
        roster=roster(CLIENTS),
    )
    return strategy.plan(CLIENTS, number, encoding.length(SIZE))


def _honest(count: int = CLIENTS, **others) -> LocalGrid:
    return _grid([_app(np.ones(SIZE)) for _ in range(count)], **others)


def _before(grid: LocalGrid, stage: str, act: Callable[[Message], None]) -> None:
    """Lets the server do something to every client just before it sends the message of a stage."""
    send = grid.push_messages

    def meddling(messages):
        batch = list(messages)
        for message in batch:
            if _record(message)["stage"] == stage:
                grid.push_messages = send  # type: ignore[method-assign]
                act(message)
                grid.push_messages = meddling  # type: ignore[method-assign]
        return send(batch)

    grid.push_messages = meddling  # type: ignore[method-assign]


def test_an_encoding_that_was_refused_is_not_masked_under_later():
    """A round is announced with noise, then another without: the first goes on under its own encoding."""
    grid = _honest()
    answers: list[dict] = []

    def announce_without_noise(message: Message) -> None:
        node = message.metadata.dst_node_id
        announced = {
            "stage": "deal",
            "payload": messages.invitation(_plan(NOISE_FREE, 2), 0),
            "encoding": packed(NOISE_FREE),
        }
        answers.append(_record(_send(grid, node, announced)))

    _before(grid, "sum", announce_without_noise)
    strategy = _run(grid)
    assert [answer["refused"] for answer in answers] == ["PolicyRefusal"] * CLIENTS
    assert strategy.last_sum is not None
    refused = messages.header("deal", _plan(NOISE_FREE, 2))
    for context in grid.contexts.values():
        client = Client.load(context.state.config_records[RECORD]["client"], trust=POLICY.trust)
        assert client.plan_of(refused) is None


OTHER_TASKS: dict[str, Callable[[RecordDict], None]] = {
    "model": lambda content: content.array_records.update(
        arrays=ArrayRecord({"a": Array(np.full(SIZE, 1e-9))})
    ),
    "type": lambda content: content.array_records.update(
        arrays=ArrayRecord({"a": Array(np.zeros(SIZE, np.float32))})
    ),
    "configuration": lambda content: content.config_records["config"].update({"rate": 0.0}),
    "round": lambda content: content.config_records["config"].update({"server-round": 2}),
    "more": lambda content: content.config_records.update(another=ConfigRecord({"rate": 0.0})),
    "less": lambda content: content.config_records.pop("config") and None,
    "wanted": lambda content: content.config_records[RECORD].update({"returns": "weights"}),
    "wanted in bytes": lambda content: content.config_records[RECORD].update(
        {"returns": b"'update'"}
    ),
    "beside the protocol": lambda content: content.config_records[RECORD].update({"rate": 0.0}),
}


@pytest.mark.parametrize("what", OTHER_TASKS)
def test_a_client_answers_no_other_question_than_the_round_was_announced_with(what):
    """Updates to different models, or under different settings, would tell clients apart in the sum of all."""
    grid = _honest()
    send = grid.push_messages

    def other(messages):
        changed = [copy.deepcopy(message) for message in messages]
        for message in changed:
            if _record(message)["stage"] == "sum" and message.metadata.dst_node_id == 10:
                OTHER_TASKS[what](message.content)
        return send(changed)

    grid.push_messages = other  # type: ignore[method-assign]
    strategy = _run(grid)
    seen = [_record(reply) for reply in grid.received if "refused" in _record(reply)]
    named = "record" if what == "beside the protocol" else "model"
    assert [(one["refused"], one["reason"].split(":")[0]) for one in seen] == [
        ("PolicyRefusal", named)
    ]
    assert strategy.last_sum is not None
    assert len(strategy.last_sum.survivors) == CLIENTS - 1


@pytest.mark.parametrize("spared", [None, 13])
def test_what_a_message_alone_makes_fail_is_refused_and_adds_nothing_to_a_sum(spared):
    """Were it taken for a client's own failure, all but one could be made to add zero: the sum would be that one's."""
    grid = _honest()
    send = grid.push_messages

    def unanswerable(messages):
        changed = [copy.deepcopy(message) for message in messages]
        for message in changed:
            if _record(message)["stage"] == "sum" and message.metadata.dst_node_id != spared:
                message.content.config_records[RECORD]["returns"] = b"'update'"
        return send(changed)

    grid.push_messages = unanswerable  # type: ignore[method-assign]
    strategy = _run(grid)
    assert strategy.last_sum is None
    refused = [_record(reply) for reply in grid.received if "refused" in _record(reply)]
    assert len(refused) == CLIENTS - (spared is not None)


def test_an_answer_that_the_purpose_does_not_have_is_refused_where_the_plan_holds_it(monkeypatch):
    grid = _honest()
    strategy = SecureStrategy(
        encoding=NOISY,
        returns="update",
        clients_per_round=CLIENTS,
        minimum=3,
        roster=roster(CLIENTS),
    )
    monkeypatch.setattr(SecureStrategy, "_wanted", "metrics")
    strategy.start(
        grid=grid, initial_arrays=ArrayRecord({"a": Array(np.zeros(SIZE))}), num_rounds=1
    )
    refused = [_record(reply) for reply in grid.received if "refused" in _record(reply)]
    assert [one["reason"].split(":")[0] for one in refused] == ["returns"] * CLIENTS
    assert strategy.last_sum is None


def test_the_app_does_not_see_the_protocols_record():
    seen: list[bool] = []
    app = ClientApp(mods=[SecureUpdates(POLICY)])

    @app.train()
    def train(message: Message, context) -> Message:
        seen.append(RECORD in message.content)
        return Message(
            RecordDict({"arrays": ArrayRecord({"a": Array(np.ones(SIZE))})}), reply_to=message
        )

    _run(_grid([app, *(_app(np.ones(SIZE)) for _ in range(CLIENTS - 1))]))
    assert seen == [False]


def test_an_input_for_another_model_is_in_no_sum():
    """Clients deal before the model is known; one is then told another model than all others, in the same round."""
    strategy = SecureStrategy(
        encoding=NOISY,
        clients_per_round=CLIENTS,
        minimum=3,
        session=bytes(16),
        roster=roster(CLIENTS),
    )
    plan = strategy.plan(CLIENTS, 1, NOISY.length(SIZE))
    server, other = (Server(plan, roster(CLIENTS)) for _ in range(2))
    clients = people(plan, trust=POLICY.trust)
    for place, message in server.invitations().items():
        dealing = clients[place].deal(message)
        server.receive(place, dealing)
        other.receive(place, dealing)
    server.bind(b"\x01" * 32)
    other.bind(b"\x02" * 32)
    announced, deceived = server.advance(), other.advance()
    inputs = np.zeros(NOISY.length(SIZE), dtype=int)
    signatures: dict[int, bytes] = {}
    for place, client in clients.items():
        answer = client.sum((deceived if place == 0 else announced)[place], inputs)
        signatures[place] = messages.read_masked(answer, plan)[0]
        if place == 0:
            with pytest.raises(SwappedKey, match="did not sign"):
                server.receive(place, answer)
        else:
            server.receive(place, answer)
    # A server that takes it all the same finds no member that does.
    coins = server._dealt.coins()
    union = messages.union(plan, coins, signatures, server._dealt.sealed(1))
    with pytest.raises(InconsistentLists, match="client 0"):
        clients[1].unite(union)


def test_a_task_is_not_named_before_the_round_is_announced():
    """Picks follow from the plan: with a task in it, a server could try tasks until the picks suit it."""
    strategy = SecureStrategy(
        encoding=NOISY, clients_per_round=CLIENTS, minimum=3, roster=roster(CLIENTS)
    )
    plan = strategy.plan(CLIENTS, 1, NOISY.length(SIZE))
    client = people(plan, trust=POLICY.trust)[0]
    early = replace(plan, task=b"\x01" * 32)
    with pytest.raises(PlanRefused, match="task"):
        client.deal(messages.invitation(early, 0))
    coins = bytes(16)
    assert messages.picked(coins, plan, 0) == messages.picked(coins, early, 0)
    assert plan.base == early.base
    assert plan.digest != early.digest


@pytest.mark.parametrize("stage", EXCHANGES[1:])
def test_after_a_refusal_no_message_of_the_round_is_answered(monkeypatch, stage):
    """One client is first sent the stage's message cut short, then the whole one."""
    apart(monkeypatch, stage)
    grid = _honest()
    seen: list[str] = []

    def cut(message: Message) -> None:
        if message.metadata.dst_node_id == 10:
            shorter, whole = copy.deepcopy(message), copy.deepcopy(message)
            payload = _record(message)["payload"]
            shorter.content.config_records[RECORD]["payload"] = payload[:-1]
            seen.extend(
                _record(grid.send_and_receive([one])[0])["refused"] for one in (shorter, whole)
            )

    _before(grid, stage, cut)
    _run(grid)
    assert seen == ["MalformedMessage", "WrongStage"]


@pytest.mark.parametrize(
    ("one", "other", "fails"),
    [
        (np.array([np.nan, 1.0, 2.0]), np.array([3.0, np.inf, -1.0]), None),
        (np.zeros(SIZE + 1), np.full(SIZE + 2, 7.0), None),
        *(
            (np.array([1.0, 2.0, 3.0]), np.array([-9.0, 0.5, 1e6]), kind)
            for kind in (ValueError, SystemExit, _Panic)
        ),
    ],
    ids=["not finite", "wrong shape", "fails", "ends the process", "fails outside Exception"],
)
def test_clients_without_an_input_are_not_told_from_others(one, other, fails):
    def refusals(bad: np.ndarray) -> list[dict]:
        grid = _grid([*(_app(np.ones(SIZE)) for _ in range(CLIENTS - 1)), _app(bad, fails=fails)])
        _run(grid)
        return [_record(reply) for reply in grid.received if "refused" in _record(reply)]

    first, second = refusals(one), refusals(other)
    assert first == second == []


def test_a_fault_of_the_client_tells_nothing_of_its_machine(tmp_path):
    """A node whose identity file is missing says so in its own log, not to the server."""
    grid = LocalGrid(
        [_app(np.ones(SIZE))], configs={0: {"identity": str(tmp_path / "secret" / "key")}}
    )
    announced = {
        "stage": "deal",
        "payload": messages.invitation(_plan(NOISY), 0),
        "encoding": packed(NOISY),
    }
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
    """Signed by its owner, so only its order gives it away; passed on, it would make all partners refuse."""

    def crooked(message: Message, reply: Message) -> Message:
        if message.metadata.dst_node_id != 13 or _record(message)["stage"] != "deal":
            return reply
        plan, _, _ = messages.read_invitation(_record(message)["payload"])
        answer = reply.content.config_records[RECORD]["payload"]
        deal, _ = messages.read_dealing(answer, plan)
        forged = dataclasses.replace(deal, **{field: bytes(32)})
        forged = dataclasses.replace(
            forged, signature=sign(Client(identity=secret(3))._identity, forged.statement(plan))
        )
        start = len(messages.header("deal", plan)) + len(deal.to_bytes())
        reply.content.config_records[RECORD]["payload"] = messages.dealing(
            plan, forged, answer[start:]
        )
        return reply

    strategy = _run(_honest(hand=crooked))
    assert strategy.last_sum is not None
    assert len(strategy.last_sum.survivors) == CLIENTS - 1
    assert [(one.client, one.name) for one in strategy.incidents] == [
        (card(3).identity.hex(), "SwappedKey")
    ]
    assert len(strategy.ledger.charges) == 3


# Who is in a sum ------------------------------------------------------------------------------------------------------


class _Liar:
    """A server that wants the sum of few: what it tells of a round of 12 after all inputs have come in."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch = monkeypatch
        self.policy = Policy(minimum=9, noise_multiplier=1.0, clip_norm=1.0, roster=roster(ROSTER))

    def run(self, **options) -> tuple[SecureStrategy, LocalGrid]:
        self.asked = list[str]()

        def note(message: Message, reply: Message) -> Message:
            self.asked.append(_record(message)["stage"])
            return reply

        grid = _grid([_app(np.ones(SIZE), self.policy) for _ in range(ROSTER)], hand=note)
        strategy = _run(
            grid,
            **({"clients_per_round": ROSTER, "minimum": 9, "roster": roster(ROSTER)} | options),
        )
        return strategy, grid

    def refusals(self, grid: LocalGrid) -> set[str]:
        return {
            str(_record(reply)["refused"]) for reply in grid.received if "refused" in _record(reply)
        }


def test_the_sum_that_a_policy_allows_is_opened(monkeypatch):
    strategy, grid = _Liar(monkeypatch).run()
    assert strategy.last_sum is not None
    assert len(strategy.last_sum.survivors) == ROSTER
    assert _Liar(monkeypatch).refusals(grid) == set()


def test_a_sum_of_three_is_not_opened_under_a_minimum_of_nine(monkeypatch):
    """The server forgets nine of the twelve masked inputs: no member signs, and no share leaves anybody."""
    apart(monkeypatch, "agree")
    liar = _Liar(monkeypatch)

    def three(server: Server) -> dict[int, bytes]:
        for index in sorted(server._masked)[3:]:
            del server._masked[index]
        members = range(server.plan.members)
        coins = server._dealt.coins()
        return dict.fromkeys(members, messages.proposal(server.plan, coins, server._masked))

    monkeypatch.setattr(Server, "_proposals", three)
    strategy, grid = liar.run()
    assert strategy.last_sum is None
    assert strategy.ledger.charges == {}
    assert liar.refusals(grid) == {"TooFewClients"}
    assert not {"open", "unite"} & {*liar.asked}


def test_a_plan_with_a_smaller_minimum_is_refused_before_anything_is_dealt(monkeypatch):
    strategy, grid = _Liar(monkeypatch).run(minimum=4)
    assert strategy.last_sum is None
    assert _Liar(monkeypatch).refusals(grid) == {"PlanRefused"}


def test_groups_that_are_told_of_themselves_alone_make_no_sum(monkeypatch):
    """Every client is told that only its own third of the clients dealt: each refuses, its minimum is not met."""
    honest = messages.partners

    def thirds(plan, dealt, deals):
        third = plan.clients // 3
        each = (
            deals[begin : begin + messages.DEAL_BYTES]
            for begin in range(0, len(deals), messages.DEAL_BYTES)
        )
        known = b"".join(deal for deal in each if int.from_bytes(deal[:2], "little") < third)
        return honest(plan, messages.bitmap(range(third), plan), known)

    monkeypatch.setattr(messages, "partners", thirds)
    strategy, grid = _Liar(monkeypatch).run()
    assert strategy.last_sum is None
    assert _Liar(monkeypatch).refusals(grid) == {"TooFewClients"}


def test_a_crowd_that_the_server_invented_is_refused(monkeypatch):
    """Three real clients among nine of the server's own making, introduced by a roster of the server's."""
    liar = _Liar(monkeypatch)
    invented = [_app(np.zeros(SIZE), Policy()) for _ in range(ROSTER - 3)]
    real = [_app(np.ones(SIZE), liar.policy) for _ in range(3)]
    strategy = _run(_grid([*real, *invented]), clients_per_round=ROSTER, minimum=4, roster=None)
    assert {one.name for one in strategy.incidents if one.client in ("0", "1", "2")} == {
        "PlanRefused"
    }
    if strategy.last_sum is not None:  # a sum of inventions, none of them real
        names = set(strategy.ledger.charges)
        assert not names & {"0", "1", "2"}


def test_a_client_without_a_roster_cannot_ask_for_a_minimum():
    with pytest.raises(ParameterError, match="name the roster"):
        Policy(minimum=50)


# A client's budget ---------------------------------------------------------------------------------------------------


def _epsilon(rounds: int) -> float:
    """Of sums of 9, of whom 3 of 12 may be corrupted: the encoding's own claim, composed exactly."""
    return NOISY.claims(Sums(rounds=rounds, clients=9, size=SIZE, delta=1e-6, corrupted=3))[
        "central"
    ].epsilon


def test_a_budget_holds_over_sessions_servers_and_restarts(tmp_path, caplog):
    """Three runs, each with a session, a strategy and contexts of its own: the third finds the budget spent."""
    known = roster(ROSTER)
    policy = Policy(minimum=9, roster=known, budget=(_epsilon(2) + _epsilon(3)) / 2)
    configs = {
        place: {"identity": str(_Files.folder / str(place)), "records": str(tmp_path)}
        for place in range(ROSTER)
    }
    for run in range(3):
        grid = LocalGrid([_app(np.ones(SIZE), policy) for _ in range(ROSTER)], configs=configs)
        strategy = _run(grid, clients_per_round=ROSTER, minimum=9, roster=known)
        assert (strategy.last_sum is not None) == (run < 2)
    assert {(one.name, one.what.split("=")[0]) for one in strategy.incidents if one.client} == {
        ("PolicyRefusal", "budget")
    }
    assert (
        "would exceed the budget of" in caplog.text
    )  # what was spent stands in the client's own log alone
    assert all("epsilon" not in one.what for one in strategy.incidents if one.client)
    for card_of in known.members:
        identity = card_of.identity.hex()
        ledger = LifetimeLedger(tmp_path / f"sums-{identity[:16]}.jsonl", identity=identity)
        assert ledger.sums == 2
        assert ledger.spent(1e-6) == pytest.approx(_epsilon(2), rel=FEW)
    with pytest.raises(FileFormatError):
        LifetimeLedger(tmp_path / f"sums-{identity[:16]}.jsonl", identity="somebody else")


def test_a_client_without_lasting_records_takes_no_budget(tmp_path):
    policy = Policy(budget=100.0, roster=roster(CLIENTS))
    grid = _grid([_app(np.ones(SIZE), policy) for _ in range(CLIENTS)])
    for context in grid.contexts.values():
        del context.node_config["records"]
    strategy = _run(grid)
    assert strategy.last_sum is None
    refused = [_record(reply) for reply in grid.received if "refused" in _record(reply)]
    assert len(refused) == CLIENTS
    assert all(
        (one["refused"], one["reason"].split(":")[0]) == ("PolicyRefusal", "records")
        for one in refused
    )


def test_a_budget_of_secure_sums_needs_a_roster(tmp_path):
    """Charged as a sum of as many clients as the server names, one with its inventions would cost far too little."""
    config = {"identity": str(_Files.folder / "0"), "records": str(tmp_path)}
    grid = LocalGrid(
        [_app(np.ones(SIZE), Policy(budget=100.0)) for _ in range(CLIENTS)], configs={0: config}
    )
    strategy = _run(grid, roster=None)
    assert strategy.last_sum is None
    refused = [_record(reply) for reply in grid.received if "refused" in _record(reply)]
    assert len(refused) == CLIENTS
    assert all(
        "without a roster" in one["reason"] and one["refused"] == "PolicyRefusal" for one in refused
    )
    (ledger,) = tmp_path.glob("sums-*")
    assert len(ledger.read_text().splitlines()) == 1  # as it was begun


def test_sums_of_different_kinds_add_up_at_their_shares_of_delta(tmp_path):
    ledger = LifetimeLedger(tmp_path / "sums.jsonl", identity="me")
    of_nine, of_twelve = (Sums(size=SIZE, clients=clients, delta=1e-6) for clients in (9, 12))
    for number, single_sum in enumerate((of_nine, of_twelve, of_nine), start=1):
        total = charge_sum(ledger, NOISY, single_sum, number, budget=1e6)
    with pytest.raises(ReplayedRound):
        charge_sum(ledger, NOISY, of_nine, 1)
    alone = {
        clients: NOISY.claims(Sums(rounds=rounds, clients=clients, size=SIZE, delta=5e-7))[
            "central"
        ].epsilon
        for clients, rounds in ((9, 2), (12, 1))
    }
    assert total == ledger.spent(1e-6) == pytest.approx(sum(alone.values()), rel=FEW)
    before = (tmp_path / "sums.jsonl").read_bytes()
    with pytest.raises(BudgetError):
        charge_sum(ledger, NOISY, of_nine, 8, budget=total)
    with pytest.raises(ParameterError, match="nothing is claimed"):
        charge_sum(ledger, NOISE_FREE, of_nine, 9, budget=1e6)
    dealt = (tmp_path / "sums.jsonl").read_bytes().removeprefix(before).splitlines()
    assert [json.loads(line)["stage"] for line in dealt] == ["deal", "deal"]


@pytest.mark.parametrize("first_is_table", [True, False])
def test_sums_of_a_table_are_alone_on_a_ledger_with_a_budget(
    tmp_path: Path, first_is_table: bool
) -> None:
    """Whichever comes first: else a server could choose the second kind by what the first told."""
    table = TableEncoding(mechanism=families.randomized_response(epsilon=0.1))
    single_sum = Sums(size=SIZE, clients=9, delta=1e-6)
    first, second = (table, NOISY) if first_is_table else (NOISY, table)
    ledger = LifetimeLedger(tmp_path / "sums.jsonl", identity="me")
    alone = charge_sum(ledger, first, single_sum, 1, budget=1e6)
    with pytest.raises(BudgetError, match=r"epsilon unbounded .* list that noise alone"):
        charge_sum(ledger, second, single_sum, 2, budget=1e6)
    assert ledger.spent(1e-6) == alone < 1e6
    assert charge_sum(ledger, second, single_sum, 3) == math.inf  # recorded, without a budget
    assert ledger.spent(1e-6) == math.inf


def test_a_ledger_of_an_older_rotation_is_refused_with_what_to_do_and_nothing_leaves(
    tmp_path, caplog, monkeypatch
):
    """Its sums count for a budget, and this version cannot say what they cost; the server is told nothing of it."""
    monkeypatch.setattr(
        logging.getLogger("flwr"), "propagate", True
    )  # its simulations switch it off for good
    known = roster(CLIENTS)
    identity = card(0).identity.hex()
    path = tmp_path / f"sums-{identity[:16]}.jsonl"
    older = dataclasses.replace(NOISY, seed=1)
    values = {name: value for name, value in older.as_dict().items() if name != "rotation"}
    text = zlib.compress(canonical(values).encode(), 9)
    single_sum = Sums(size=SIZE, clients=3, corrupted=1, delta=1e-6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("mezzotint.federated.encoding_files.packed", lambda encoding: text)
        charge_sum(LifetimeLedger(path, identity=identity), older, single_sum, 1)
    before = path.read_bytes()
    policy = Policy(minimum=3, roster=known, budget=100.0)
    configs = {
        place: {"identity": str(_Files.folder / str(place)), "records": str(tmp_path)}
        for place in range(CLIENTS)
    }
    grid = LocalGrid([_app(np.ones(SIZE), policy) for _ in range(CLIENTS)], configs=configs)
    strategy = _run(grid)
    assert strategy.counted == CLIENTS - 1
    refused = [_record(reply) for reply in grid.received if "refused" in _record(reply)]
    assert [(one["refused"], "log" in one["reason"]) for one in refused] == [("ClientFault", True)]
    assert path.read_bytes().startswith(before)
    (noted_since,) = path.read_bytes()[len(before) :].splitlines()
    assert json.loads(noted_since)["stage"] == "deal"
    with pytest.raises(
        FileFormatError, match=r"one transform after padding.*take that off the policy's budget"
    ):
        LifetimeLedger(path, identity=identity).spent(1e-6)
    assert "take that off the policy's budget" in caplog.text
    # Without a budget nothing is added up: the sum is only noted.
    charge_sum(LifetimeLedger(path, identity=identity), NOISY, single_sum, 2)


def test_a_message_that_is_refused_reaches_no_app():
    """What an app keeps between messages could otherwise be changed by messages that nobody answers or charges."""
    asked: list[int] = []
    grid = _honest()
    for place in range(CLIENTS):
        app = ClientApp(mods=[SecureUpdates(POLICY)])

        @app.train()
        def train(message: Message, context) -> Message:
            asked.append(context.node_id)
            return Message(
                RecordDict({"arrays": ArrayRecord({"a": Array(np.ones(SIZE))})}), reply_to=message
            )

        grid.apps[10 + place] = app
    refused: list[str] = []

    def spoilt(message: Message) -> None:
        for cut in (
            lambda payload: bytes([payload[0] ^ 1]) + payload[1:],
            lambda payload: payload[:3] + payload[4:],
        ):
            other = copy.deepcopy(message)
            other.content.config_records[RECORD]["payload"] = cut(_record(message)["payload"])
            refused.append(_record(grid.send_and_receive([other])[0])["refused"])

    _before(grid, "sum", spoilt)
    _run(grid)
    assert len(refused) == 2 * CLIENTS
    assert asked == []  # the second of them ended the round


@pytest.mark.parametrize(
    ("stage", "key"), [("deal", "returns"), ("sum", "encoding"), ("sum", "rate")]
)
def test_a_stage_has_no_keys_of_another(stage, key):
    grid = _honest()
    _before(grid, stage, lambda message: message.content.config_records[RECORD].update({key: b"0"}))
    strategy = _run(grid)
    assert {_record(reply).get("reason", "").split(":")[0] for reply in grid.received} >= {"record"}
    assert strategy.last_sum is None
