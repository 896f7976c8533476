"""A dishonest server that asks clients what they measure: it gets what policy, budget, ranges and plan allow."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from federated.grids import LocalGrid
from federated.rounds import card, roster, secret
from mezzotint.core.errors import ParameterError
from mezzotint.federated.budgets import Sums
from mezzotint.federated.client_mod import SecureUpdates
from mezzotint.federated.encoding import gaussian_encoding
from mezzotint.federated.encoding_files import packed
from mezzotint.federated.flower_records import RECORD
from mezzotint.federated.lifetime_ledger import LifetimeLedger
from mezzotint.federated.policy import Policy
from mezzotint.federated.secagg import PlanRefused, RoundPlan, messages
from mezzotint.federated.secure_strategy import Evaluation, SecureStrategy
from mezzotint.federated.wrapped_encodings import MetricsEncoding

CLIENTS, SIZE = 6, 3
NOISE = gaussian_encoding(noise_multiplier=6.0, clip_norm=1.0, clients=CLIENTS, size=SIZE)
MEASURES = MetricsEncoding.gaussian({"loss": (0.0, 5.0)}, noise_multiplier=6.0, clients=CLIENTS)
WIDER = MetricsEncoding.gaussian({"loss": (0.0, 0.001)}, noise_multiplier=6.0, clients=CLIENTS)
POLICY = Policy(
    minimum=5, noise_multiplier=3.0, evaluate_noise_multiplier=4.0, roster=roster(CLIENTS)
)
"""Of the smallest sum two of five may be corrupted: noise of 6 sqrt(3 / 6) is in it."""
NODE = 10


def _app(loss: float, policy: Policy, *, fails: bool = False) -> ClientApp:
    app = ClientApp(mods=[SecureUpdates(policy)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(
            RecordDict({"arrays": ArrayRecord({"a": Array(np.full(SIZE, loss))})}), reply_to=message
        )

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        if fails:
            raise ValueError(f"the loss is {loss}")
        return Message(RecordDict({"metrics": MetricRecord({"loss": loss})}), reply_to=message)

    return app


def _grid(
    folder: Path, policy: Policy = POLICY, *, loss: float = 1.0, fails: bool = False, **others: Any
) -> LocalGrid:
    for place in range(CLIENTS):
        (folder / f"key-{place}").write_bytes(secret(place))
    configs = {
        place: {"identity": str(folder / f"key-{place}"), "records": str(folder / "records")}
        for place in range(CLIENTS)
    }
    (folder / "records").mkdir(exist_ok=True)
    return LocalGrid(
        [_app(loss, policy, fails=fails) for _ in range(CLIENTS)], configs=configs, **others
    )


def _strategy(measures: MetricsEncoding = MEASURES) -> SecureStrategy:
    evaluation = Evaluation(encoding=measures)
    return SecureStrategy(
        encoding=NOISE,
        clients_per_round=CLIENTS,
        minimum=5,
        roster=roster(CLIENTS),
        returns="update",
        evaluation=evaluation,
    )


def _run(
    grid: LocalGrid, strategy: SecureStrategy | None = None, rounds: int = 1
) -> SecureStrategy:
    strategy = _strategy() if strategy is None else strategy
    strategy.start(
        grid=grid, initial_arrays=ArrayRecord({"a": Array(np.zeros(SIZE))}), num_rounds=rounds
    )
    return strategy


def _record(message: Message) -> dict[str, Any]:
    return dict(message.content.config_records[RECORD])


def _meddle(grid: LocalGrid, act: Callable[[Message], list[Message]]) -> list[dict[str, Any]]:
    """Each message is replaced by those that `act` gives; of them the last is the server's own. The others' answers."""
    send, answers = grid.push_messages, list[dict[str, Any]]()

    def meddling(batch: Any) -> list[str | None]:
        sent = []
        for message in batch:
            *lies, last = act(message)
            answers.extend(
                _record(reply) for reply in grid.pull_messages(n for n in send(lies) if n)
            )
            sent += send([last])
        return sent

    grid.push_messages = meddling  # type: ignore[method-assign]
    return answers


def _is(message: Message, kind: str, stage: str) -> bool:
    return message.metadata.message_type == kind and _record(message)["stage"] == stage


def _copied(message: Message, *, kind: str | None = None, **changes: Any) -> Message:
    content = copy.deepcopy(message.content)
    content.config_records[RECORD].update(changes)
    kind = message.metadata.message_type if kind is None else kind
    return Message(content, message_type=kind, dst_node_id=message.metadata.dst_node_id)


def test_the_sum_that_a_policy_allows_is_opened(tmp_path):
    """What all the lies below are measured against; its lines stand in every client's ledger of its life."""
    strategy = _run(_grid(tmp_path))
    assert set(strategy.measured) == {"loss"}
    value, error = strategy.measured["loss"]
    assert abs(value - 1.0) < 6 * error
    for place in range(CLIENTS):
        path = tmp_path / "records" / f"sums-{card(place).identity.hex()[:16]}.jsonl"
        noted = [json.loads(line) for line in path.read_text().splitlines()[1:]]
        lines = [line for line in noted if "purpose" in line]
        assert [line["purpose"] for line in lines] == ["train", "evaluate"]
        assert lines[1]["kind"] == [
            MEASURES.binding.hex(),
            5,
            POLICY.trust.corrupted_of(_plan()),
            1,
        ]


def _plan(**changes: Any) -> RoundPlan:
    strategy = _strategy()
    assert strategy.evaluator is not None
    return dataclasses.replace(strategy.evaluator.plan(CLIENTS, 1, 1), **changes)


@pytest.mark.parametrize(
    ("policy", "word"),
    [
        (
            dataclasses.replace(POLICY, evaluate_noise_multiplier=float("inf")),
            "answers no sums of what it measures",
        ),
        (dataclasses.replace(POLICY, evaluate_noise_multiplier=4.3), "this client wants 4.3"),
        (dataclasses.replace(POLICY, mechanisms=(NOISE.sha256,)), "not among the tables"),
        (dataclasses.replace(POLICY, rounds=1), ""),
    ],
    ids=["not allowed", "too little noise", "another mechanism", "allowed"],
)
def test_nobody_measures_beyond_its_policy_and_nothing_is_charged(tmp_path, policy, word):
    strategy = _run(_grid(tmp_path, policy))
    assert strategy.counted == CLIENTS
    assert strategy.evaluator is not None
    told = [one.what for one in strategy.evaluator.incidents if one.client]
    assert bool(strategy.measured) == (not word)
    assert len(told) == (CLIENTS if word else 0)
    assert all(word in one for one in told)
    assert strategy.evaluator.ledger.charges == (
        {} if word else dict.fromkeys(strategy.ledger.charges, 1)
    )


def test_plain_questions_what_a_client_measures_are_refused_whatever_sums_it_allows(tmp_path):
    grid = _grid(tmp_path)
    content = RecordDict(
        {"arrays": ArrayRecord({"a": Array(np.zeros(SIZE))}), "config": ConfigRecord()}
    )
    for kind in ("evaluate", "query"):
        (reply,) = grid.send_and_receive(
            [Message(copy.deepcopy(content), message_type=kind, dst_node_id=NODE)]
        )
        if reply.has_error():  # no such function in the app
            continue
        assert _record(reply)["refused"] == "PolicyRefusal"
        assert not reply.content.metric_records


def test_measuring_for_ever_ends_with_the_budget_of_a_life(tmp_path):
    """Servers and sessions without number: in the end each client has paid what it allows and answers nothing."""
    told = {
        "clients": 5,
        "size": SIZE,
        "corrupted": POLICY.trust.corrupted_of(_plan()),
        "delta": 5e-7,
    }
    once = NOISE.claims(Sums(rounds=1, **told))["central"].epsilon
    three, four = (
        MEASURES.claims(Sums(rounds=rounds, **told))["central"].epsilon for rounds in (3, 4)
    )
    policy = dataclasses.replace(POLICY, budget=once + (three + four) / 2, delta=1e-6)
    measured = []
    for _ in range(6):
        grid = _grid(tmp_path, policy)
        if measured:  # a server that never trains, and only asks
            strategy = _strategy()
            evaluator = strategy.evaluator
            assert evaluator is not None
            evaluator.configure_train(
                1, ArrayRecord({"a": Array(np.zeros(SIZE))}), ConfigRecord(), grid
            )
            measured.append(evaluator.aggregate_train(1, [])[1] is not None)
        else:
            measured.append(bool(_run(grid).measured))
    assert measured == [True] * 3 + [False] * 3
    refused = [_record(reply) for reply in grid.received if "refused" in _record(reply)]
    assert {one["reason"].split("=")[0] for one in refused} == {"budget"}
    for place in range(CLIENTS):
        identity = card(place).identity.hex()
        ledger = LifetimeLedger(
            tmp_path / "records" / f"sums-{identity[:16]}.jsonl", identity=identity
        )
        assert ledger.sums == 4
        assert ledger.spent(1e-6) <= policy.budget


def test_a_message_of_the_other_kind_is_refused_at_every_stage_and_changes_nothing(tmp_path):
    """A round to train is asked with the words of one to measure, and the other way round; both go on unharmed."""

    def other(message: Message) -> list[Message]:
        kind = "evaluate" if message.metadata.message_type == "train" else "train"
        return [_copied(message, kind=kind), message]

    grid = _grid(tmp_path)
    answers = _meddle(grid, other)
    strategy = _run(grid)
    assert strategy.counted == CLIENTS
    assert strategy.measured
    # The first question, who one is, has no purpose of its own: it travels to train, also before a sum of metrics.
    assert {one.get("refused") for one in answers} == {"PolicyRefusal"}
    assert all(one["reason"].startswith("purpose: a message to ") for one in answers)


@pytest.mark.parametrize("way", ["an update as a metric", "a metric as an update"])
def test_an_encoding_of_the_other_purpose_is_refused(tmp_path, way):
    """The plan says one thing, its encoding another."""
    purpose, encoding = (
        ("evaluate", NOISE) if way == "an update as a metric" else ("train", MEASURES)
    )
    coordinates = encoding.length(SIZE)
    plan = _plan(
        purpose=purpose, binding=encoding.binding, span=encoding.span, bits=encoding.bits(CLIENTS),
        coordinates=coordinates,
    )  # fmt: skip
    place = next(
        place
        for place, one in enumerate(roster(CLIENTS).cohort(1, CLIENTS))
        if one.identity == card(0).identity
    )
    values = {
        "stage": "deal",
        "payload": messages.invitation(plan, place),
        "encoding": packed(encoding),
    }
    grid = _grid(tmp_path)
    message = Message(
        RecordDict({RECORD: ConfigRecord(values)}), message_type=purpose, dst_node_id=NODE
    )
    (reply,) = grid.send_and_receive([message])
    assert _record(reply)["refused"] == "PolicyRefusal"
    assert _record(reply)["reason"].startswith(f"purpose={purpose}")


def test_a_plan_of_the_other_purpose_has_another_hash():
    """Partners who were announced different purposes do not mask for each other, and no committee signs for both."""
    assert _plan().digest != _plan(purpose="train").digest
    assert _plan().to_bytes() != _plan(purpose="train").to_bytes()
    with pytest.raises(PlanRefused, match="purpose"):
        _plan(purpose="query")


LIES: dict[str, Callable[[Message], None]] = {
    "another model": lambda one: one.content.array_records.update(
        arrays=ArrayRecord({"a": Array(np.ones(SIZE))})
    ),
    "another configuration": lambda one: one.content.config_records["config"].update({"rate": 1.0}),
    "something else wanted": lambda one: one.content.config_records[RECORD].update(
        {"returns": "update"}
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_another_question_than_the_plans_is_not_measured(tmp_path, lie):
    """One client alone is asked about another model: its loss on that would tell it apart in the sum of all."""

    def act(message: Message) -> list[Message]:
        if not (_is(message, "evaluate", "sum") and message.metadata.dst_node_id == NODE):
            return [message]
        changed = _copied(message)
        LIES[lie](changed)
        return [changed]

    grid = _grid(tmp_path)
    _meddle(grid, act)
    strategy = _run(grid)
    refused = [_record(reply) for reply in grid.received if "refused" in _record(reply)]
    assert [(one["refused"], one["reason"].split(":")[0]) for one in refused] == [
        ("PolicyRefusal", "model")
    ]
    assert strategy.evaluator is not None
    assert strategy.evaluator.counted == CLIENTS - 1
    assert set(strategy.evaluator.ledger.charges.values()) == {1}
    assert card(0).identity.hex() not in strategy.evaluator.ledger.charges


def test_ranges_outside_the_plan_are_refused(tmp_path):
    """Narrow ranges would blow up small differences: what a client measures is clipped to those that the plan binds."""

    def act(message: Message) -> list[Message]:
        if not _is(message, "evaluate", "deal"):
            return [message]
        return [_copied(message, encoding=packed(WIDER))]

    grid = _grid(tmp_path)
    _meddle(grid, act)
    strategy = _run(grid)
    assert strategy.counted == CLIENTS
    assert not strategy.measured
    refused = [_record(reply)["reason"] for reply in grid.received if "refused" in _record(reply)]
    assert refused
    assert all("the plan was made for another table" in one for one in refused)


@pytest.mark.parametrize(("one", "other"), [(1.0, 4.0), (0.0, 1e9)])
@pytest.mark.parametrize("fails", [False, True], ids=["measures", "fails"])
def test_refusals_and_failures_are_the_same_for_all_data(tmp_path, one, other, fails):
    """Sizes, stages and words: nothing that leaves a client but the masked input depends on what it measures."""
    seen = []
    for loss in (one, other):
        grid = _grid(tmp_path, dataclasses.replace(POLICY), loss=loss, fails=fails)
        strategy = _run(grid)
        seen.append([
            {key: len(value) if isinstance(value, bytes) else value for key, value in _record(reply).items()}
            for reply in grid.received
        ])  # fmt: skip
        assert strategy.measured
    assert seen[0] == seen[1]
    assert not [record for record in seen[0] if "refused" in record]


def test_no_loss_however_large_moves_the_sum_beyond_its_range(tmp_path):
    """One client says 1e9: the mean of all six moves by 5 at most, for the range ends there."""
    quiet = MetricsEncoding.gaussian({"loss": (0.0, 5.0)}, noise_multiplier=0.05, clients=CLIENTS)
    policy = dataclasses.replace(POLICY, evaluate_noise_multiplier=0.0)
    grid = _grid(tmp_path, policy)
    grid.apps[NODE] = _app(1e9, policy)
    value, error = _run(grid, _strategy(quiet)).measured["loss"]
    assert abs(value - (5 * 1.0 + 5.0) / 6) < 6 * error


def test_what_a_server_could_fill_with_inventions_needs_a_roster():
    with pytest.raises(ParameterError, match="name the roster"):
        Policy(evaluate_noise_multiplier=1.0)
    with pytest.raises(ParameterError, match="evaluate_noise_multiplier"):
        Policy(evaluate_noise_multiplier=-1.0)


def test_a_folder_of_records_that_is_not_there_yet_is_made(tmp_path):
    configs = {
        place: {
            "identity": str(tmp_path / f"key-{place}"),
            "records": str(tmp_path / "new" / "records"),
        }
        for place in range(CLIENTS)
    }
    for place in range(CLIENTS):
        (tmp_path / f"key-{place}").write_bytes(secret(place))
    strategy = _run(LocalGrid([_app(1.0, POLICY) for _ in range(CLIENTS)], configs=configs))
    assert (strategy.counted, strategy.incidents) == (CLIENTS, [])
    assert len(list((tmp_path / "new" / "records").glob("sums-*.jsonl"))) == CLIENTS
