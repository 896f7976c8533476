"""Mod and strategy over Flower's messages: sums, drop-outs, refusals, the ledger; without a network."""

from __future__ import annotations

import hashlib
import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from federated.grids import Clock, LocalGrid
from federated.rounds import EXCHANGES, apart, card, roster, secret
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.records import above
from mezzotint.families import rqm, stochastic_rounding
from mezzotint.federated import round_strategy as rounds_module
from mezzotint.federated.budgets import Sums, rounds_within
from mezzotint.federated.client_mod import SecureUpdates
from mezzotint.federated.encoding import FixedPointEncoding, TableEncoding, gaussian_encoding
from mezzotint.federated.flower_records import BUFFERS, RECORD, flatten, is_parameter
from mezzotint.federated.policy import Policy
from mezzotint.federated.round_strategy import halfway
from mezzotint.federated.run_ledger import RunLedger
from mezzotint.federated.secagg import STAGES, PlanRefused
from mezzotint.federated.secure_strategy import SecureStrategy

EXACT = FixedPointEncoding(clip=8.0, grid_bits=13)
"""Its grid has the integers and halves in it."""


def _app(
    add: float, policy: Policy | Path | None = None, *, update=None, secure: bool = True
) -> ClientApp:
    app = ClientApp(mods=[SecureUpdates(policy or Policy())] if secure else [])

    @app.train()
    def train(message: Message, context) -> Message:
        arrays = next(iter(message.content.array_records.values()))
        new = (
            {name: Array(np.asarray(array.numpy() + add)) for name, array in arrays.items()}
            if update is None
            else update
        )
        return Message(RecordDict({"arrays": ArrayRecord(new)}), reply_to=message)

    return app


def _start(grid: LocalGrid, strategy: SecureStrategy, rounds: int = 1) -> dict[str, np.ndarray]:
    arrays = ArrayRecord({"a": Array(np.zeros((2, 3))), "b": Array(np.zeros(4, dtype=np.float32))})
    result = strategy.start(
        grid=grid, initial_arrays=arrays, num_rounds=rounds, train_config=ConfigRecord()
    )
    return {name: array.numpy() for name, array in result.arrays.items()}


def _grid(count: int = 6, **others) -> LocalGrid:
    return LocalGrid([_app(float(place)) for place in range(count)], **others)


def _stage(message: Message) -> str:
    return str(message.content.config_records[RECORD]["stage"])


@pytest.mark.parametrize(("clients", "multiplier"), [(4, 15.2), (100, 8.0)])
def test_noise_beyond_what_can_be_learnt_is_told_before_the_first_round(
    caplog, monkeypatch, clients, multiplier
):
    """15.2 norms on a sum of 4 are 3.8 on the mean, in each coordinate; 8 on a sum of 100 are 0.08."""
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    encoding = gaussian_encoding(
        noise_multiplier=multiplier, clip_norm=0.5, clients=clients, size=100
    )
    strategy = SecureStrategy(
        encoding=encoding, clients_per_round=clients, corrupted=0.0, dropped=0.0
    )
    strategy = SecureStrategy(
        encoding=encoding, clients_per_round=clients, corrupted=0.0, dropped=0.0
    )
    # Rounding to a planned grid adds 2 % to the variance at most.
    assert strategy.encoding.noise_per_coordinate(clients) == pytest.approx(
        multiplier / clients, rel=0.02
    )
    strategy.summary()
    told = "3.8 clipping norms per coordinate" in caplog.text
    assert told == (clients == 4)


def test_the_model_moves_by_the_mean_update_and_keeps_its_shapes():
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6, learning_rate=2.0)
    found = _start(_grid(), strategy, 2)
    step = EXACT.step
    for name, shape in (("a", (2, 3)), ("b", (4,))):
        assert found[name].shape == shape
        np.testing.assert_allclose(found[name], 2 * 2 * 2.5, atol=4 * step)
    assert found["b"].dtype == np.float32
    assert strategy.ledger.rounds == {1: "released", 2: "released"}
    assert strategy.ledger.charges == {str(place): 2 for place in range(6)}
    assert strategy.incidents == []


def test_updates_leave_a_client_only_masked():
    grid = _grid()
    _start(grid, SecureStrategy(encoding=EXACT, clients_per_round=6))
    for reply in grid.received:
        assert not reply.content.array_records
        assert not reply.content.metric_records
        assert set(reply.content.config_records) == {RECORD}


@pytest.mark.parametrize("stage", ["card", *EXCHANGES])
def test_a_drop_out_at_any_stage(monkeypatch, stage):
    apart(monkeypatch, stage)

    def hand(message, reply):
        return None if _stage(message) == stage and message.metadata.dst_node_id == 12 else reply

    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6)
    found = _start(_grid(hand=hand), strategy)
    gone = stage in ("card", "deal", "sum")
    mean = np.mean([0, 1, 3, 4, 5]) if gone else 2.5
    np.testing.assert_allclose(found["a"], mean, atol=2 * EXACT.step)
    assert strategy.ledger.charges == {
        str(place): 1 for place in range(6) if not (gone and place == 2)
    }


@pytest.mark.parametrize("stage", ["card", "deal", "sum", "agree"])
def test_all_drop_out_nothing_is_released_nobody_is_charged_and_the_run_goes_on(monkeypatch, stage):
    apart(monkeypatch, stage)
    broken = [True]

    def hand(message, reply):
        return None if broken[0] and _stage(message) == stage else reply

    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6)
    grid = _grid(hand=hand)
    arrays = ArrayRecord({"a": Array(np.zeros(4))})
    assert not strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1).arrays
    assert strategy.ledger.charges == {}
    assert strategy.incidents[-1].name == "TooFewClients"
    broken[0] = False
    found = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1).arrays
    np.testing.assert_allclose(found["a"].numpy(), 2.5, atol=2 * EXACT.step)


@pytest.mark.parametrize("stage", ["open", "unite"])
def test_a_round_lost_while_unmasking_stays_charged_and_is_told(monkeypatch, stage):
    apart(monkeypatch, stage)
    noise = gaussian_encoding(noise_multiplier=6.0, clip_norm=1.0, clients=6, size=4)
    strategy = SecureStrategy(encoding=noise, clients_per_round=6, delta=1e-5)
    silent = [STAGES[1], stage]
    grid = _grid(hand=lambda message, reply: None if _stage(message) == silent[0] else reply)
    arrays = ArrayRecord({"a": Array(np.zeros(4))})
    told, lines = [], list[str]()
    monkeypatch.setattr(
        rounds_module, "log", lambda level, text, *words: lines.append(text % words)
    )
    for _ in range(2):
        result = strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1)
        assert not result.arrays
        told.append(result.train_metrics_clientapp.get(1))
        silent.pop(0)
    assert strategy.ledger.rounds == {1: "failed: TooFewClients", 2: "interrupted"}
    assert strategy.ledger.charges == {str(place): 1 for place in range(6)}
    # Of as few summands as it may have had.
    spent = noise.claims(Sums(rounds=1, clients=strategy.minimum, size=4, delta=1e-5))[
        "central"
    ].epsilon
    assert told == [None, {"epsilon": spent, "delta": 1e-5}]
    first, second = (line for line in lines if "released so far" in line or "spent by" in line)
    assert first == "mezzotint: nothing was released so far"
    assert f"epsilon {above(spent)}, delta 1e-05 spent" in second


@pytest.mark.parametrize("stage", ["agree", "unite"])
def test_a_double_answer_is_refused_and_the_first_stands(monkeypatch, stage):
    apart(monkeypatch, stage)
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6)
    found = _start(_grid(hand=lambda message, reply: [reply, reply]), strategy)
    np.testing.assert_allclose(found["a"], 2.5, atol=2 * EXACT.step)
    assert {one.name for one in strategy.incidents} == {"DuplicateAnswer"}
    plan = strategy.plan(6, 1, 1)
    # Introductions, dealings, inputs; what comes after the last that is wanted is not read. Of the committee half of
    # those beyond the quorum are wanted to agree, and a quorum to open.
    agreed = halfway(plan.quorum, plan.members) - 1 if stage == "agree" else 0
    assert len(strategy.incidents) == 6 + 2 * 5 + agreed + (plan.quorum - 1)


@pytest.mark.parametrize(
    "update",
    [
        {"a": Array(np.full((2, 3), np.nan)), "b": Array(np.zeros(4, dtype=np.float32))},
        {"a": Array(np.zeros((2, 4))), "b": Array(np.zeros(4, dtype=np.float32))},
        {"a": Array(np.zeros((2, 3)))},
    ],
    ids=["not finite", "another shape", "an array less"],
)
def test_nan_and_other_shapes_add_zero_and_are_charged_like_every_input(update):
    grid = LocalGrid([_app(1.0), _app(1.0), _app(1.0), _app(1.0), _app(0.0, update=update)])
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=5)
    found = _start(grid, strategy)
    np.testing.assert_allclose(found["a"], 4 / 5, atol=2 * EXACT.step)
    assert strategy.incidents == []
    assert sorted(strategy.ledger.charges) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("place", ["record", "arrays", "message"])
@pytest.mark.parametrize("returns", ["weights", "update"])
def test_an_app_may_train_in_the_message_that_it_got(place: str, returns: Any) -> None:
    """The update is the difference from the model that was sent, not from what became of it."""

    def app(add: float) -> ClientApp:
        found = ClientApp(mods=[SecureUpdates(Policy())])

        @found.train()
        def train(message: Message, context: Any) -> Message:
            record = message.content["arrays"]
            moved = {name: Array(array.numpy() + add) for name, array in record.items()}
            if place == "record":
                message.content["arrays"] = ArrayRecord(moved)
                return Message(message.content, reply_to=message)
            for name, array in moved.items():
                record[name] = array
            return message if place == "message" else Message(message.content, reply_to=message)

        return found

    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6, returns=returns)
    found = _start(LocalGrid([app(float(place)) for place in range(6)]), strategy)
    np.testing.assert_allclose(found["a"], 2.5, atol=2 * EXACT.step)
    assert strategy.incidents == []


@pytest.mark.parametrize("dtype", ["complex64", "bfloat16"])
def test_a_model_whose_numbers_cannot_be_summed_is_refused_by_name(dtype: str) -> None:
    """Such arrays stayed as they were, like counters, and nobody was told."""
    odd = Array(dtype, (2,), "numpy.ndarray", bytes(200))
    arrays = ArrayRecord({"a": Array(np.zeros(3)), "layer.b": odd})
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6)
    with pytest.raises(ParameterError, match=f"layer.b.*{dtype} is not summed"):
        strategy.start(grid=_grid(), initial_arrays=arrays, num_rounds=1)
    assert strategy.ledger.charges == {}


def test_running_statistics_of_any_type_stay_as_they_are() -> None:
    for name in BUFFERS:
        for dtype in ("complex64", "bfloat16", "float32", "int64"):
            assert not is_parameter(f"layer.{name}", dtype)


def test_a_client_without_the_mod_is_left_out():
    grid = LocalGrid([_app(1.0), _app(1.0), _app(1.0), _app(1.0), _app(9.0, secure=False)])
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=5)
    found = _start(grid, strategy)
    np.testing.assert_allclose(found["a"], 1.0, atol=2 * EXACT.step)
    # Its train function finds no arrays at the first stage.
    assert [(one.client, one.name) for one in strategy.incidents] == [("14", "MalformedMessage")]
    assert sorted(strategy.ledger.charges) == ["0", "1", "2", "3"]


def test_a_server_without_the_protocol_gets_no_update():
    app = _app(1.0)
    grid = LocalGrid([app])
    message = Message(
        RecordDict({"arrays": ArrayRecord({"a": Array(np.zeros(3))})}),
        message_type="train",
        dst_node_id=10,
    )
    (reply,) = grid.send_and_receive([message])
    assert reply.content.config_records[RECORD]["refused"] == "PolicyRefusal"
    assert not reply.content.array_records


@pytest.mark.parametrize(
    ("policy", "word"),
    [
        (Policy(report_epsilon=1.0), "epsilon"),
        (Policy(mechanisms=("00",)), "mechanism"),
        (Policy(largest_value=0.5), "clip"),
        (Policy(clip_norm=1.0), "clip_norm"),
        (Policy(corrupted=0.5), "quorum"),
        (Policy(roster=roster(6)), "roster"),
        (Policy(rounds=1), "rounds"),
    ],
)
def test_a_client_refuses_what_its_policy_does_not_allow(policy, word):
    """The table has epsilon 5.47 and range [-1, 1]; the round has at least 4 summands."""
    encoding = TableEncoding(mechanism=rqm(lower=-1, upper=1, levels=16, extension=1.0, q=0.42))
    grid = LocalGrid([_app(0.1), _app(0.1), _app(0.1), _app(0.1), _app(0.1), _app(0.1, policy)])
    strategy = SecureStrategy(encoding=encoding, clients_per_round=6, minimum=4)
    _start(grid, strategy, 2)
    assert strategy.ledger.rounds == {1: "released", 2: "released"}
    mine = [one for one in strategy.incidents if one.client == "5" or one.client == "15"]
    assert mine
    assert all(word in one.what for one in mine)
    assert strategy.ledger.charges.get("5", 0) == (1 if word == "rounds" else 0)


def test_another_table_than_the_plans_is_refused():
    one = TableEncoding(mechanism=stochastic_rounding(lower=-1, upper=1, levels=16))
    other = TableEncoding(mechanism=stochastic_rounding(lower=-2, upper=2, levels=16))
    strategy = SecureStrategy(encoding=one, clients_per_round=4)
    honest = strategy.plan

    def crooked(clients, number, coordinates, **rest):
        strategy.encoding = other
        made = honest(clients, number, coordinates, **rest)
        strategy.encoding = one
        return made

    strategy.plan = crooked
    grid = _grid(4)
    _start_nothing(grid, strategy)
    assert {incident.name for incident in strategy.incidents} == {"PolicyRefusal", "TooFewClients"}
    assert strategy.ledger.charges == {}


def _start_nothing(grid: LocalGrid, strategy: SecureStrategy) -> None:
    arrays = ArrayRecord({"a": Array(np.zeros(4))})
    assert not strategy.start(grid=grid, initial_arrays=arrays, num_rounds=1).arrays


def test_the_run_stops_before_the_budget_is_exceeded():
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6, most_rounds=2)
    _start(_grid(), strategy, 5)
    assert strategy.ledger.rounds == {1: "released", 2: "released"}
    assert "exceed" in strategy.stopped
    assert rounds_within(10.0, lambda rounds: 3.0 * rounds, 100) == 3
    assert rounds_within(10.0, lambda rounds: 3.0 * rounds, 2) == 2
    with pytest.raises(
        InfeasibleError, match=r"^epsilon=2: one round costs epsilon 3, nothing was sent"
    ):
        rounds_within(2.0, lambda rounds: 3.0 * rounds, 100)
    with pytest.raises(
        InfeasibleError, match=r"^epsilon=2: one round has no finite epsilon, .*; use a mech"
    ):
        rounds_within(2.0, lambda rounds: math.inf, 100)
    for budget in (math.nan, -1.0, "2"):
        with pytest.raises(ParameterError, match="budget="):
            rounds_within(budget, lambda rounds: 3.0 * rounds, 100)  # pyright: ignore


def test_what_could_never_run_is_refused_at_once():
    with pytest.raises(ParameterError):
        SecureStrategy(encoding=EXACT, clients_per_round=0)
    with pytest.raises(ParameterError):
        SecureStrategy(encoding=EXACT, clients_per_round=6, sampling="some")
    with pytest.raises(PlanRefused):
        SecureStrategy(encoding=EXACT, clients_per_round=6, corrupted=0.9)
    with pytest.raises(PlanRefused, match="bits=40"):
        SecureStrategy(
            encoding=FixedPointEncoding(clip=1.0, grid_bits=24), clients_per_round=60_000
        )


def test_too_few_nodes_leave_the_round_out():
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6, stage_timeout=0.1)
    _start_nothing(_grid(2), strategy)
    assert [one.name for one in strategy.incidents] == ["TooFewClients"]


def test_the_ledger_on_disk_is_the_ledger(tmp_path):
    path = tmp_path / "ledger.jsonl"
    strategy = SecureStrategy(
        encoding=EXACT, clients_per_round=6, ledger=RunLedger(path, {"run": "x"})
    )
    _start(_grid(), strategy, 3)
    again = RunLedger(path, {"run": "x"})
    assert again.as_dict() == strategy.ledger.as_dict()
    assert again.start() == 4


def test_counters_and_running_statistics_stay_with_the_server():
    """Of batch normalization come back as they went; a parameter that is one number keeps its shape."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    model.register_parameter("temperature", torch.nn.Parameter(torch.tensor(1.0)))
    before = {name: value.numpy().copy() for name, value in model.state_dict().items()}
    grid = _grid()
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6)
    arrays = ArrayRecord(model.state_dict())
    found = strategy.start(
        grid=grid, initial_arrays=arrays, num_rounds=2, train_config=ConfigRecord()
    ).arrays
    assert strategy.ledger.rounds == {1: "released", 2: "released"}
    after = {name: array.numpy() for name, array in found.items()}
    assert list(after) == list(before)
    for name, value in before.items():
        assert after[name].shape == value.shape
        assert after[name].dtype == value.dtype
        moved = 0.0 if name.startswith("1.running") or name == "1.num_batches_tracked" else 2 * 2.5
        np.testing.assert_allclose(after[name], value + moved, atol=8 * EXACT.step)
    model.load_state_dict(
        {name: torch.from_numpy(np.array(value)) for name, value in after.items()}
    )
    assert flatten(arrays).size == sum(parameter.numel() for parameter in model.parameters())


def test_a_client_that_renames_itself_is_charged_under_the_name_it_was_asked_by():
    def hand(message, reply):
        record = reply.content.config_records[RECORD]
        if message.metadata.dst_node_id == 12 and _stage(message) in (
            "deal",
            "sum",
            "agree",
            "open",
        ):
            record["name"] = "somebody else"
        return reply

    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6)
    _start(_grid(hand=hand), strategy)
    assert strategy.ledger.charges == {str(place): 1 for place in range(6)}


def test_another_server_on_the_same_ledger_uses_up_the_same_budget(tmp_path):
    path = tmp_path / "ledger.jsonl"
    first, second = (
        SecureStrategy(
            encoding=EXACT, clients_per_round=6, ledger=RunLedger(path, {"run": "x"}), most_rounds=3
        )
        for _ in range(2)
    )
    arrays = ArrayRecord({"a": Array(np.zeros(4))})
    for strategy, rounds in ((first, 2), (second, 2), (first, 1)):
        strategy.start(grid=_grid(), initial_arrays=arrays, num_rounds=rounds)
    assert RunLedger(path, {"run": "x"}).charges == {str(place): 3 for place in range(6)}
    assert "exceed" in first.stopped
    assert "exceed" in second.stopped
    # The charge that another server makes between the first look and the announcement is seen as well.
    third = SecureStrategy(
        encoding=EXACT, clients_per_round=6, ledger=RunLedger(path, {"run": "x"}), most_rounds=4
    )
    rival = RunLedger(path, {"run": "x"})

    def hand(message, reply):
        if _stage(message) == "deal" and len(rival.rounds) == 4:
            rival.ask(rival.start(), ["3"], minimum=1)
        return reply

    assert not third.start(grid=_grid(hand=hand), initial_arrays=arrays, num_rounds=1).arrays
    assert "nothing was announced" in third.stopped
    assert rival.rounds[4] == "failed: BudgetError"


def test_a_client_that_starts_anew_is_asked_again_who_it_is():
    """It has lost its key with its state: one round goes on without it, the next one with it."""
    grid = _grid()
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6)
    _start(grid, strategy)
    grid.contexts[13].state = RecordDict()
    _start(grid, strategy)
    assert strategy.last_sum is not None
    assert len(strategy.last_sum.survivors) == 5
    assert [(one.client, one.name) for one in strategy.incidents] == [("3", "SwappedKey")]
    _start(grid, strategy)
    assert len(strategy.last_sum.survivors) == 6
    assert strategy.ledger.charges == {str(place): 2 if place == 3 else 3 for place in range(6)}


@pytest.mark.parametrize("sampling", ["fixed", "cyclic"])
def test_rounds_are_drawn_from_the_roster_whoever_is_connected(tmp_path, sampling):
    """16 members, of whom 2 are not there: the drawn ones take part, are charged by identity, and no others."""
    known = roster(16)
    for place in range(14):
        (tmp_path / str(place)).write_bytes(secret(place))
    configs = {
        place: {"identity": str(tmp_path / str(place)), "records": str(tmp_path)}
        for place in range(14)
    }
    policy = Policy(minimum=6, roster=known)
    grid = LocalGrid([_app(float(place), policy) for place in range(14)], configs=configs)
    strategy = SecureStrategy(
        encoding=EXACT,
        clients_per_round=12,
        minimum=6,
        sampling=sampling,
        roster=known,
        corrupted=0.2,
        stage_timeout=0.1,
    )
    sizes: list[int] = []
    plan = strategy.plan
    strategy.plan = lambda clients, *rest, **more: (
        sizes.append(clients),
        plan(clients, *rest, **more),
    )[1]
    counted: dict[str, int] = {}
    for number in range(1, 6):
        _start(grid, strategy)
        if strategy.counted:
            draw = "cyclic" if sampling == "cyclic" else "anew"
            drawn = {one.identity for one in known.cohort(number, sizes[-1], draw)}
            present = drawn & {card(place).identity for place in range(14)}
            assert strategy.counted == len(present)
            for identity in present:
                counted[identity.hex()] = counted.get(identity.hex(), 0) + 1
    assert strategy.ledger.charges == dict(sorted(counted.items()))
    assert counted
    assert len(set(sizes)) == 1


def test_clients_that_take_turns_are_charged_alike_also_after_a_restart(tmp_path):
    """12 nodes, 5 a round: after 12 rounds each was in 5, and nobody comes again before floor(12 / 5) rounds."""
    path, session = tmp_path / "ledger.jsonl", bytes(16)
    for rounds in (5, 7):  # the second server knows what the ledger tells
        strategy = SecureStrategy(
            encoding=EXACT,
            clients_per_round=5,
            sampling="cyclic",
            ledger=RunLedger(path, {}),
            session=session,
        )
        _start(_grid(12), strategy, rounds)
    ledger = RunLedger(path, {})
    assert set(ledger.rounds.values()) == {"released"}
    assert ledger.charges == {str(place): 5 for place in range(12)}
    for name in ledger.charges:
        turns = [
            number for number in ledger.rounds if name in (ledger._rounds[number].released or ())
        ]
        assert min(np.diff(turns)) >= 12 // 5


@pytest.mark.parametrize("restarts", [0, 1, 11], ids=["never", "once", "every round"])
def test_turns_of_clients_that_are_dead_are_kept_over_restarts(tmp_path, restarts):
    """Two of 12 say who they are and nothing else: all are drawn as if the server had never been away."""
    path, session = tmp_path / "ledger.jsonl", bytes(16)
    invited: dict[int, set[int]] = {}

    def hand(message, reply):
        if _stage(message) != "deal":
            return reply
        invited.setdefault(len(ledger.rounds), set()).add(message.metadata.dst_node_id - 10)
        return None if message.metadata.dst_node_id in (13, 17) else reply

    for rounds in np.diff(np.linspace(0, 12, restarts + 2).astype(int)):
        ledger = RunLedger(path, {})
        strategy = SecureStrategy(
            encoding=EXACT,
            clients_per_round=5,
            minimum=3,
            sampling="cyclic",
            corrupted=0.0,
            ledger=ledger,
            session=session,
            ahead=0,
        )
        _start(_grid(12, hand=hand), strategy, int(rounds))
    # The order that the session draws, gone through again and again.
    order = sorted(
        range(12), key=lambda place: hashlib.sha256(session + str(place).encode()).digest()
    )
    assert invited == {
        number: {order[(5 * (number - 1) + seat) % 12] for seat in range(5)}
        for number in range(1, 13)
    }


def test_each_client_of_a_cycle_gets_its_rounds_before_the_run_stops():
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6, sampling="cyclic", most_rounds=2)
    _start(_grid(12), strategy, 9)
    assert strategy.ledger.charges == {str(place): 2 for place in range(12)}
    assert [text for text in strategy.ledger.rounds.values() if text == "released"] == [
        "released"
    ] * 4
    assert "exceed" in strategy.stopped


def test_whose_rounds_are_used_up_is_left_out_and_the_others_go_on():
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6, minimum=4, most_rounds=2)
    for name in ("0", "3"):
        for _ in range(2):
            number = strategy.ledger.start()
            strategy.ledger.ask(number, [name], minimum=1)
    found = _start(_grid(), strategy, 4)
    np.testing.assert_allclose(found["a"], 2 * np.mean([1, 2, 4, 5]), atol=4 * EXACT.step)
    assert strategy.ledger.charges == {str(place): 2 for place in range(6)}
    assert "exceed" in strategy.stopped
    fewer = SecureStrategy(
        encoding=EXACT, clients_per_round=6, minimum=5, most_rounds=2, ledger=RunLedger(None, {})
    )
    for name in ("0", "3"):
        for _ in range(2):
            fewer.ledger.ask(fewer.ledger.start(), [name], minimum=1)
    _start_nothing(_grid(), fewer)
    assert "only 4 of 6 clients" in fewer.stopped


def test_new_nodes_in_place_of_those_whose_rounds_are_used_up_go_on() -> None:
    """As many nodes as clients are known, and none of them is one that was charged."""
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6, most_rounds=1)
    _start(_grid(), strategy, 2)
    assert "exceed" in strategy.stopped
    crowd = _grid(12)
    for node in range(10, 16):
        del crowd.apps[node]
    _start(crowd, strategy, 2)
    assert strategy.ledger.charges == {str(place): 1 for place in range(12)}
    assert list(strategy.ledger.rounds.values()) == ["released"] * 2
    assert "only 0 of 12 clients" in strategy.stopped


def test_a_node_that_lost_the_question_who_it_is_is_asked_again_when_it_is_back(
    clock: Clock,
) -> None:
    """It died with the question; while it is gone the others go on."""
    lost = [True]

    def silent(message: Message) -> bool:
        return bool(lost) and message.metadata.dst_node_id == 12 and _stage(message) == "card"

    grid = _grid(silent=silent)
    strategy = SecureStrategy(
        encoding=EXACT, clients_per_round=6, minimum=4, ahead=0, stage_timeout=10.0
    )
    _start(grid, strategy, 1)
    assert strategy.counted == 5
    lost.clear()
    app = grid.apps.pop(12)
    _start(grid, strategy, 1)
    assert strategy.counted == 5
    grid.apps[12] = app
    _start(grid, strategy, 1)
    assert strategy.counted == 6


def test_a_budget_waits_for_nodes_that_are_not_there_yet(clock: Clock) -> None:
    """As in a deployment, whose nodes come one by one; also when the run goes on."""
    ledger = RunLedger(None, {})
    for name in ("0", "1", "2"):
        ledger.ask(ledger.start(), [name], minimum=1)
    strategy = SecureStrategy(
        encoding=EXACT, clients_per_round=6, minimum=3, most_rounds=1, ledger=ledger
    )
    grid = _grid(12)
    there = grid.get_node_ids
    grid.get_node_ids = lambda: there() if clock.now > 5.0 else []  # type: ignore[method-assign]
    _start(grid, strategy, 1)
    assert strategy.stopped == ""
    assert strategy.counted == 6


# Early ends ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr("mezzotint.federated.round_strategy.time", found)
    return found


def _lenient(count: int, **others) -> LocalGrid:
    """Clients that take one in ten for corrupted, which leaves small rounds room for drop-outs."""
    return LocalGrid(
        [_app(float(place), Policy(corrupted=0.1)) for place in range(count)], **others
    )


def _dying(at: dict[int, str]):
    """Nodes that never answer from a stage on."""
    stages = ["card", *EXCHANGES]

    def silent(message: Message) -> bool:
        node = message.metadata.dst_node_id
        return node in at and stages.index(_stage(message)) >= stages.index(at[node])

    return silent


def test_a_round_with_spare_clients_waits_for_nobody(clock):
    """Of 12 drawn one is silent from the start and two while they train: the sum is the 9 others', at once."""
    strategy = SecureStrategy(
        encoding=EXACT, clients_per_round=9, spare=3, corrupted=0.1, stage_timeout=600.0
    )
    found = _start(_lenient(12, silent=_dying({11: "deal", 12: "sum", 13: "sum"})), strategy)
    np.testing.assert_allclose(
        found["a"], np.mean([0, 4, 5, 6, 7, 8, 8, 8, 8]), atol=2 * EXACT.step
    )  # clipped to 8
    assert clock.now < 10.0
    assert strategy.ledger.smallest_sum == strategy.counted == 9
    assert strategy.ledger.charges == {str(place): 1 for place in (0, *range(4, 12))}
    assert strategy.incidents == []


def test_a_round_without_spare_clients_waits_until_its_stages_end(clock):
    strategy = SecureStrategy(
        encoding=EXACT, clients_per_round=12, corrupted=0.1, stage_timeout=600.0
    )
    _start(_lenient(12, silent=_dying({11: "deal", 12: "sum"})), strategy)
    assert strategy.counted == 10
    assert 2 * 600.0 <= clock.now < 2 * 600.0 + 10.0


def test_whoever_answers_when_a_stage_is_over_is_not_in_the_sum_and_not_charged(clock):
    """Of 10 clients 8 are drawn, and all answer; those read after the sixth are left out, whoever they are."""
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6, spare=2, corrupted=0.1)
    _start(_lenient(10), strategy)
    total = strategy.last_sum
    assert total is not None
    assert len(total.survivors) == 6
    assert len(total.dropped) == 2
    assert sum(strategy.ledger.charges.values()) == 6
    assert (
        strategy.plan(strategy.invited, 1, 1).clients == 8
    )  # everybody computes the draw from this


@pytest.mark.parametrize("stage", ["agree", "unite"])
def test_members_of_the_committee_that_are_gone_are_not_waited_for(clock, monkeypatch, stage):
    apart(monkeypatch, stage)
    strategy = SecureStrategy(
        encoding=EXACT, clients_per_round=12, corrupted=0.1, dropped=0.25, stage_timeout=600.0
    )
    plan = strategy.plan(12, 1, 1)
    assert plan.members - plan.quorum >= 2
    gone: dict[int, str] = {}

    def silent(message: Message) -> bool:
        if _stage(message) == stage and len(gone) < (plan.members - plan.quorum) // 2:
            gone.setdefault(message.metadata.dst_node_id, stage)
        return _dying(gone)(message)

    _start(_lenient(12, silent=silent), strategy)
    assert gone
    assert strategy.counted == 12
    assert clock.now < 10.0


def test_a_node_that_does_not_say_who_it_is_is_waited_for_once(clock):
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6, stage_timeout=600.0)
    _start(_grid(7, silent=_dying({13: "card"})), strategy, 4)
    assert clock.now < 600.0 + 10.0
    assert sum(text == "released" for text in strategy.ledger.rounds.values()) >= 2


def test_nodes_that_are_not_there_are_waited_for_once_in_a_run(monkeypatch):
    found = Clock()
    monkeypatch.setattr("mezzotint.federated.round_strategy.time.monotonic", found.monotonic)
    monkeypatch.setattr("mezzotint.federated.round_strategy.time.sleep", found.sleep)
    strategy = SecureStrategy(
        encoding=EXACT, clients_per_round=8, corrupted=0.1, stage_timeout=600.0
    )
    _start(_lenient(6), strategy, 3)
    assert strategy.ledger.rounds == dict.fromkeys((1, 2, 3), "released")
    assert 600.0 <= found.now < 602.0


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"spare": -1}, "spare"),
        ({"spare": 30}, "minimum"),
        ({"spare": 5, "roster": roster(10)}, "clients_per_round"),
        ({"spare": 3}, "spare"),
        (
            {"spare": 2, "corrupted": 0.4},
            "spare",
        ),  # eight clients, half of whom collude, bear one drop-out
    ],
    ids=["negative", "minimum", "roster", "drop-outs", "committee"],
)
def test_spare_clients_that_cannot_be(options, name):
    with pytest.raises(ParameterError) as found:
        SecureStrategy(encoding=EXACT, clients_per_round=6, **options)
    assert found.value.parameter == name


def test_a_client_that_comes_back_as_another_node_takes_part_again():
    """A SuperNode that is started anew has another number and, with files, the same identity."""
    grid = _grid()
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6)
    _start(grid, strategy)
    grid.apps[99], grid.contexts[99] = grid.apps.pop(13), grid.contexts.pop(13)
    _start(grid, strategy)
    assert strategy.last_sum is not None
    assert len(strategy.last_sum.survivors) == 6
    assert strategy.incidents == []


def test_a_run_that_goes_on_draws_among_those_who_have_rounds_left(tmp_path):
    grid, session = _grid(), bytes(16)
    for _ in range(2):
        ledger = RunLedger(tmp_path / "ledger", {})
        strategy = SecureStrategy(
            encoding=EXACT,
            clients_per_round=3,
            minimum=2,
            ledger=ledger,
            session=session,
            most_rounds=1,
        )
        _start(grid, strategy)
        assert strategy.stopped == ""
        assert strategy.counted == 3


def test_clients_that_are_asked_another_of_their_apps_functions_refuse():
    """A second function could give nothing, and a sum be that of the one client whose first function was asked."""

    def _two(place: int) -> ClientApp:
        app = _app(float(place))

        @app.train("nothing")
        def nothing(message: Message, context) -> Message:
            return Message(message.content, reply_to=message)

        return app

    grid = LocalGrid([_two(place) for place in range(6)])
    push = grid.push_messages

    def pushed(messages):
        batch = list(messages)
        for message in batch:
            if _stage(message) == "sum" and message.metadata.dst_node_id != 12:
                message.metadata.message_type = "train.nothing"
        return push(batch)

    grid.push_messages = pushed  # type: ignore[method-assign]
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6)
    _start(grid, strategy)
    assert strategy.last_sum is None
    assert {one.name for one in strategy.incidents if one.client} == {"PolicyRefusal"}


@pytest.mark.parametrize(
    "values",
    [
        {"evaluate": "false"}, {"evaluate": 1}, {"minimum": float("nan")}, {"rounds": float("nan")},
        {"rounds": float("inf")}, {"clip_norm": float("nan")}, {"largest_value": float("nan")}, {"clip_norm": "1"},
        {"clip_norm": -1}, {"mechanisms": "ab"}, {"budget": "lots"}, {"delta": True}, {"corrupted": "a"},
        {"minimum": "3"}, {"noise_multiplier": "x"}, {"report_epsilon": float("nan")},
    ],
)  # fmt: skip
def test_a_policy_whose_values_would_protect_nobody_is_refused(values):
    with pytest.raises(ParameterError, match=next(iter(values))):
        Policy(**values)


def test_a_policy_that_cannot_be_read_is_named(tmp_path):
    """The node's own log says which file; the server learns no more than that it is the policy."""
    grid = LocalGrid(
        [*(_app(float(place)) for place in range(5)), _app(5.0, tmp_path / "gone.toml")]
    )
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6)
    _start(grid, strategy)
    (told,) = [one.what for one in strategy.incidents if one.client == "15"]
    assert "policy" in told
    assert "its log says why" in told
    assert "gone.toml" not in told


def test_an_empty_name_of_a_policy_sets_no_policy_aside():
    """As `os.environ.get("POLICY", "")` gives it: without conditions, anything would be answered."""
    mod = SecureUpdates(policy="")
    app = ClientApp(mods=[mod])
    app.train()(lambda message, context: Message(RecordDict(), reply_to=message))
    grid = LocalGrid([*(_app(float(place)) for place in range(5)), app])
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6)
    _start(grid, strategy)
    (refused,) = [incident for incident in strategy.incidents if incident.client == "15"]
    assert "policy" in refused.what


@pytest.mark.parametrize("stage", ["card", "deal"])
def test_what_a_client_says_is_one_short_line_of_the_log(monkeypatch, stage):
    apart(monkeypatch, stage)

    def hand(message, reply):
        if _stage(message) == stage and message.metadata.dst_node_id == 12:
            said = {"refused": "A\nB", "reason": "sorry\nround 7: released\x1b[2J" + "!" * 10_000}
            return Message(RecordDict({RECORD: ConfigRecord(said)}), reply_to=message)
        return reply

    strategy = SecureStrategy(encoding=EXACT, clients_per_round=6)
    _start(_grid(hand=hand), strategy)
    (told,) = [one for one in strategy.incidents if one.client in ("2", "12")]
    assert "sorry round 7" in told.what
    assert len(told.what) < 600
    assert told.what.isprintable()
    assert told.name.isprintable()
