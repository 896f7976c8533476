"""Federated learning without secure sums: one index a round, seen by the server, on the client's own ledger."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import zlib
from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from federated.grids import LocalGrid
from federated.rounds import roster
from federated.run_files import federate
from laws.registry import judges
from mezzotint.cli import run
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.federated.app import run_server
from mezzotint.federated.budgets import Sums
from mezzotint.federated.client_app import make_client_app
from mezzotint.federated.client_mod import SecureUpdates
from mezzotint.federated.flower_records import RECORD, Key
from mezzotint.federated.local_reports import LocalStrategy, LocalUpdates
from mezzotint.federated.policy import Policy, PolicyRefusal
from mezzotint.federated.run_ledger import RunLedger
from mezzotint.federated.settings import RunSettings
from mezzotint.privacy.ledger import Ledger
from mezzotint.vectors import RankedCodebook, ranked_codebook, round_seeds
from tolerances import FEW, MANY

SCHEME = ranked_codebook(10, 4.0, 6)


def _app(update, policy: Policy | None = None, *, local: bool = True) -> ClientApp:
    """A client whose train function returns the update; a function of no arguments is called first."""
    app = ClientApp(mods=[LocalUpdates(policy or Policy())] if local else [])

    @app.train()
    def train(message: Message, context) -> Message:
        values = update() if callable(update) else update
        return Message(
            RecordDict({"arrays": ArrayRecord({"a": Array(np.asarray(values))})}), reply_to=message
        )

    return app


def _arrays(size: int = 10) -> ArrayRecord:
    return ArrayRecord({"a": Array(np.zeros(size))})


def _start(
    grid: LocalGrid, strategy: LocalStrategy, rounds: int = 1, size: int = 10
) -> np.ndarray | None:
    given = {"initial_arrays": _arrays(size), "num_rounds": rounds, "train_config": ConfigRecord()}
    found = strategy.start(grid=grid, **given).arrays
    return found["a"].numpy() if found else None


def _strategy(**others) -> LocalStrategy:
    return LocalStrategy(
        **({"scheme": SCHEME, "clients_per_round": 4, "returns": "update"} | others)
    )


def _grid(count: int = 4, **others) -> LocalGrid:
    return LocalGrid([_app(np.eye(10)[place]) for place in range(count)], **others)


def _ask(grid: LocalGrid, node: int, strategy: LocalStrategy, number: int, slot: int) -> dict:
    """Joins and asks once, as any server may."""
    for stage, fields in (
        (
            "join",
            {Key.PAYLOAD: b"", Key.ENCODING: zlib.compress(strategy.scheme.to_json().encode())},
        ),
        (
            "report",
            {
                Key.PAYLOAD: json.dumps({"round": number, "slot": slot}).encode(),
                Key.RETURNS: "update",
            },
        ),
    ):
        content = RecordDict(
            {RECORD: ConfigRecord({Key.STAGE: stage, **fields}), "arrays": _arrays()}
        )
        (answer,) = grid.send_and_receive(
            [Message(content, message_type="train", dst_node_id=node)]
        )
        found = dict(answer.content.config_records[RECORD])
        if Key.REFUSED in found:
            return found
    return found


def test_the_model_moves_by_the_mean_of_the_estimates():
    strategy = _strategy(learning_rate=2.0)
    grid = _grid()
    found = _start(grid, strategy)
    reports = [record[Key.PAYLOAD] for record in map(_record, grid.received) if record[Key.PAYLOAD]]
    assert all(len(report) == 1 for report in reports)  # 6 bits a vector
    codes = [report[0] for report in reports]
    expected = 2 * strategy.scheme.mean(codes, round_seeds(1, range(4)))
    np.testing.assert_allclose(found, expected, rtol=FEW)
    assert strategy.ledger.rounds == {1: "released"}
    assert strategy.ledger.charges == {str(place): 1 for place in range(4)}


def _record(message: Message) -> ConfigRecord:
    return message.content.config_records[RECORD]


def test_nothing_but_the_index_leaves_a_client():
    grid = _grid()
    _start(grid, _strategy(), 2)
    assert len(grid.received) == 2 * 2 * 4
    for reply in grid.received:
        assert not reply.content.array_records
        assert not reply.content.metric_records
        assert set(_record(reply)) <= {Key.PAYLOAD, "name"}


def test_rounds_average_to_the_mean_update():
    """60 rounds of 4 clients; 5 standard errors a coordinate (false alarm below 1e-5)."""
    scheme = ranked_codebook(10, 8.0, 8)
    strategy = _strategy(scheme=scheme, learning_rate=1 / 60)
    found = _start(_grid(), strategy, 60)
    mean = np.r_[np.full(4, 0.25), np.zeros(6)]
    assert found is not None
    # No coordinate's error exceeds a unit vector's in all of them.
    assert np.abs(found - mean).max() < 5 * np.sqrt(scheme.mse / 240)
    assert np.sum((found - mean) ** 2) < 3 * scheme.mse / 240


def test_the_claim_is_the_codebooks_for_the_rounds_of_the_client_asked_most():
    strategy = _strategy()
    assert strategy.claims(Sums(size=10, clients=1, delta=0.0)) == {}
    _start(_grid(), strategy, 3)
    claims = strategy.claims(Sums(size=10, clients=1, delta=0.0))
    assert list(claims) == ["local"]
    claim = claims["local"]
    assert (claim.observer, claim.trust, claim.unit, claim.rounds) == (
        "reports",
        "local",
        "client",
        3,
    )
    assert 3 * SCHEME.epsilon <= claim.epsilon <= 3 * SCHEME.epsilon * (1 + MANY)
    assert (
        claim.sha256 == strategy.scheme.sha256 != SCHEME.sha256
    )  # the session is part of the beacon


def test_asked_again_the_same_index_comes_back_and_is_charged_once(tmp_path):
    """Whatever the vector has become; under another slot nothing comes. Also after the client was started anew."""
    vectors = iter(np.random.default_rng(1).normal(size=(100, 10)))
    trained = []

    def update():
        trained.append(next(vectors))
        return trained[-1]

    configs = {0: {"records": str(tmp_path)}}
    strategy = _strategy()
    grid = LocalGrid([_app(update)], configs=configs)
    first = _ask(grid, 10, strategy, 1, 5)[Key.PAYLOAD]
    assert [_ask(grid, 10, strategy, 1, 5)[Key.PAYLOAD] for _ in range(9)] == [first] * 9
    assert len(trained) == 1
    assert "another slot" in _ask(grid, 10, strategy, 1, 6)["reason"]
    again = LocalGrid([_app(update)], configs=configs)
    assert _ask(again, 10, strategy, 1, 5)[Key.PAYLOAD] == first
    assert len(trained) == 1
    _ask(again, 10, strategy, 2, 5)
    ledger = Ledger(tmp_path / "reports.jsonl")
    assert ledger.spent("0").releases == 2
    assert ledger.spent("0").epsilon == pytest.approx(2 * SCHEME.epsilon, rel=FEW)


def test_a_budget_without_a_ledger_that_outlasts_the_run_is_refused(tmp_path):
    """In Flower's state alone every run would begin anew: 9 reports where 3 fit."""
    budgeted = Policy(budget=2.5 * SCHEME.epsilon)
    grid = LocalGrid([_app(np.eye(10)[0], budgeted)])
    assert _ask(grid, 10, _strategy(), 1, 0)["reason"].startswith(
        "records: this client has a budget"
    )
    lost = LocalGrid([_app(np.eye(10)[0], budgeted)], configs={0: {"records": str(tmp_path)}})
    (tmp_path / "reports.jsonl").unlink()
    assert "ledger of reports is missing" in _ask(lost, 10, _strategy(), 1, 0)["reason"]
    assert not (tmp_path / "reports.jsonl").exists()
    answered = []
    for _ in range(9):  # a run each
        again = LocalGrid([_app(np.eye(10)[0], budgeted)], configs={0: {"records": str(tmp_path)}})
        answered.append(Key.PAYLOAD in _ask(again, 10, _strategy(), 1, 0))
    assert answered == [True, True] + [False] * 7


def test_answers_are_repeated_and_a_budget_is_kept(tmp_path):
    drawn = iter(np.random.default_rng(2).normal(size=(100, 10)))
    budgeted = Policy(budget=2.5 * SCHEME.epsilon)
    grid = LocalGrid([_app(lambda: next(drawn), budgeted)], configs={0: {"records": str(tmp_path)}})
    strategy = _strategy()
    answers = {number: _ask(grid, 10, strategy, number, 0)[Key.PAYLOAD] for number in (1, 2)}
    third = _ask(grid, 10, strategy, 3, 0)
    assert third[Key.REFUSED] == "PolicyRefusal"
    assert "budget" in third["reason"]
    assert {
        number: _ask(grid, 10, strategy, number, 0)[Key.PAYLOAD] for number in (1, 2)
    } == answers


def test_a_full_disk_is_no_business_of_the_servers(tmp_path, monkeypatch):
    """Nothing leaves, and the refusal names neither the file nor what is wrong with it."""
    grid = LocalGrid([_app(np.eye(10)[0])], configs={0: {"records": str(tmp_path)}})
    strategy = _strategy()
    first = _ask(grid, 10, strategy, 1, 0)
    with monkeypatch.context() as patch:

        def full(descriptor: int, data: bytes) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr("mezzotint.core.files.os.write", full)
        refused = _ask(grid, 10, strategy, 2, 0)
    assert refused[Key.REFUSED] == "ClientFault"
    assert str(tmp_path) not in refused["reason"]
    assert Key.PAYLOAD in _ask(grid, 10, strategy, 2, 0)
    assert _ask(grid, 10, strategy, 1, 0)[Key.PAYLOAD] == first[Key.PAYLOAD]
    assert Ledger(tmp_path / "reports.jsonl").spent("0").releases == 2


@pytest.mark.parametrize("rule", ["report_epsilon", "budget", "clip_norm", "largest_value"])
def test_a_refusal_shows_that_what_was_asked_is_more_than_what_is_allowed(rule: str) -> None:
    """By one part in 2**52: rounded to six digits, both would read the same."""
    asked = SCHEME.clip_norm if rule in ("clip_norm", "largest_value") else SCHEME.epsilon
    Policy(**{rule: asked}).check_report(SCHEME)
    with pytest.raises(PolicyRefusal) as refused:
        Policy(**{rule: np.nextafter(asked, 0)}).check_report(SCHEME)
    more, allowed = re.findall(r"\d[\d.e-]*", str(refused.value))
    assert float(more) == asked > float(allowed)


@pytest.mark.parametrize("mod", [LocalUpdates, SecureUpdates])
@pytest.mark.parametrize("stage", ["join", "report", "card", "deal", "sum", "agree", "unite", None])
@pytest.mark.parametrize("fields", [{}, {Key.PAYLOAD: "text"}, {Key.PAYLOAD: 3, Key.ENCODING: 4.0}])
def test_a_message_without_its_fields_is_refused_by_name(mod, stage, fields):
    """That is a fact about the message alone; the client's log is not needed to understand it."""
    app = ClientApp(mods=[mod(Policy())])
    app.train()(lambda message, context: message)
    grid = LocalGrid([app])
    record = ConfigRecord(fields if stage is None else {Key.STAGE: stage, **fields})
    message = Message(RecordDict({RECORD: record}), message_type="train", dst_node_id=10)
    (answer,) = grid.send_and_receive([message])
    assert _record(answer)[Key.REFUSED] != "ClientFault"


def test_a_second_codebook_in_one_run_is_refused():
    grid = _grid(1)
    assert Key.PAYLOAD in _ask(grid, 10, _strategy(), 1, 0)
    assert "one codebook" in _ask(grid, 10, _strategy(), 1, 0)["reason"]


class _Panic(BaseException):
    """As of libraries whose errors are no Exception."""


@pytest.mark.parametrize("broken", ["raises", "panics", "nan", "shape"])
def test_a_failure_is_reported_as_the_zero_vector_and_as_nothing_else(broken):
    """That a client's training fails can be a fact about its data: the server must not be told."""

    def update():
        if broken == "raises":
            raise RuntimeError("a value of 42 in my data")
        if broken == "panics":
            raise _Panic("a value of 42 in my data")
        return np.full(10, np.nan) if broken == "nan" else np.zeros(3)

    scheme = ranked_codebook(10, 8.0, 6, norms="null")
    strategy = _strategy(scheme=scheme)
    grid = LocalGrid([_app(update)])
    answers = [_ask(grid, 10, strategy, number, 0) for number in range(1, 41)]
    assert all(set(answer) == {Key.PAYLOAD} for answer in answers)
    # The zero vector is reported by the null output, number M, with probability W_0 / T.
    null = scheme.table.null or (0, 0)
    share = null[1] / 2**32
    heard = np.mean([answer[Key.PAYLOAD][0] == scheme.table.codewords for answer in answers])
    assert abs(heard - share) < 5 * np.sqrt(share * (1 - share) / 40) + 0.02


@pytest.mark.parametrize(
    ("policy", "word"),
    [
        (Policy(report_epsilon=3.0), "epsilon"), (Policy(budget=3.0), "epsilon"), (Policy(roster=roster(3)), "trust"),
        (Policy(clip_norm=0.5), "clip_norm"), (Policy(largest_value=0.5), "clip_norm"),
        (Policy(mechanisms=("00",)), "mechanism"),
    ],
)  # fmt: skip
def test_a_client_refuses_what_its_policy_does_not_allow(policy, word):
    grid = LocalGrid(
        [_app(np.eye(10)[place]) for place in range(3)] + [_app(np.eye(10)[3], policy)]
    )
    strategy = _strategy()
    _start(grid, strategy)
    assert strategy.ledger.charges == {"0": 1, "1": 1, "2": 1}
    assert [word in one.what for one in strategy.incidents] == [True]


def test_rounds_beyond_the_policys_are_refused_and_not_charged():
    grid = LocalGrid(
        [_app(np.eye(10)[place]) for place in range(3)] + [_app(np.eye(10)[3], Policy(rounds=1))]
    )
    strategy = _strategy()
    _start(grid, strategy, 2)
    assert strategy.ledger.charges == {"0": 2, "1": 2, "2": 2, "3": 1}


def test_rounds_are_counted_from_one():
    grid = _grid(1)
    assert Key.REFUSED in _ask(grid, 10, _strategy(), 0, 0)
    assert Key.REFUSED not in _ask(grid, 10, _strategy(), 1, 0)


def test_a_client_for_sums_sends_no_single_report_and_the_other_way_round():
    for app in (make_client_app(observer="secure_sum"), make_client_app(observer="reports")):
        grid = LocalGrid([app])
        content = RecordDict(
            {RECORD: ConfigRecord({Key.STAGE: "deal", Key.PAYLOAD: b"", Key.ENCODING: b""})}
        )
        (answer,) = grid.send_and_receive([Message(content, message_type="train", dst_node_id=10)])
        assert Key.REFUSED in _record(answer)
        plain = Message(RecordDict({"arrays": _arrays()}), message_type="train", dst_node_id=10)
        (answer,) = grid.send_and_receive([plain])
        assert _record(answer)[Key.REFUSED] == "PolicyRefusal"
    assert Key.REFUSED in _ask(
        LocalGrid([make_client_app(observer="secure_sum")]), 10, _strategy(), 1, 0
    )


@pytest.mark.parametrize("described", [b"", b"x", zlib.compress(b"{}"), zlib.compress(b"\xff")])
def test_a_damaged_codebook_is_refused(described):
    grid = _grid(1)
    content = RecordDict(
        {RECORD: ConfigRecord({Key.STAGE: "join", Key.PAYLOAD: b"", Key.ENCODING: described})}
    )
    (answer,) = grid.send_and_receive([Message(content, message_type="train", dst_node_id=10)])
    assert _record(answer)[Key.REFUSED] == "PolicyRefusal"


def test_a_weaker_table_than_the_file_says_is_refused():
    document = json.loads(SCHEME.to_json())
    document["certificate"]["epsilon"] = 1.0
    grid = _grid(1)
    described = zlib.compress(json.dumps(document).encode())
    content = RecordDict(
        {RECORD: ConfigRecord({Key.STAGE: "join", Key.PAYLOAD: b"", Key.ENCODING: described})}
    )
    (answer,) = grid.send_and_receive([Message(content, message_type="train", dst_node_id=10)])
    assert "certificate" in _record(answer)["reason"]


def test_a_report_that_is_lost_stays_charged_and_one_that_is_none_is_left_out(tmp_path):
    def hand(message, reply):
        if _record(message)[Key.STAGE] == "report":
            if message.metadata.dst_node_id == 11:
                return None
            if message.metadata.dst_node_id == 12:
                _record(reply)[Key.PAYLOAD] = b"\xff"
            if message.metadata.dst_node_id == 13:
                return [reply, reply]
        return reply

    path = tmp_path / "run.jsonl"
    strategy = _strategy(ledger=RunLedger(path, {}))
    _start(_grid(hand=hand), strategy)
    assert strategy.ledger.charges == {str(place): 1 for place in range(4)}
    # Four are charged, but the mean is of the reports that arrived; the file says so, too.
    assert strategy.ledger.smallest_sum == RunLedger(path, {}).smallest_sum == 2
    assert sorted(one.name for one in strategy.incidents) == ["DuplicateAnswer", "MalformedMessage"]
    assert strategy.counted == 2


def test_too_few_reports_leave_the_model_and_are_charged():
    strategy = _strategy(minimum=4)
    grid = _grid(
        hand=lambda message, reply: reply if _record(message)[Key.STAGE] == "join" else None
    )
    assert _start(grid, strategy) is None
    assert strategy.ledger.charges == {str(place): 1 for place in range(4)}
    assert strategy.ledger.smallest_sum == 0  # no mean came of it
    assert [one.name for one in strategy.incidents] == ["TooFewClients"]
    nobody = _strategy(minimum=4)
    assert _start(_grid(hand=lambda message, reply: None), nobody) is None
    assert nobody.ledger.charges == {}


@pytest.mark.parametrize("restarts", [0, 1, 11], ids=["never", "once", "every round"])
def test_clients_take_turns_also_those_that_are_dead_and_over_restarts(tmp_path, restarts):
    """12 nodes, 5 a round, 12 rounds: one never answers, one does not report; all are asked 5 times, far apart."""
    path, session = tmp_path / "run.jsonl", bytes(16)
    asked: dict[int, set[int]] = {}

    def hand(message, reply):
        node, stage = message.metadata.dst_node_id, _record(message)[Key.STAGE]
        if stage == "join":
            asked.setdefault(len(ledger.rounds), set()).add(node)
        return None if node == 13 or (node == 17 and stage == "report") else reply

    apps = [
        _app(np.eye(10)[place % 10], Policy(budget=5 * SCHEME.epsilon + MANY))
        for place in range(12)
    ]
    # Clients live on, and refuse more reports than they have budget for.
    configs = {place: {"records": str(tmp_path / str(place))} for place in range(12)}
    grid = LocalGrid(apps, hand=hand, configs=configs)
    for rounds in np.diff(np.linspace(0, 12, restarts + 2).astype(int)):
        ledger = RunLedger(path, {})
        strategy = _strategy(clients_per_round=5, sampling="cyclic", ledger=ledger, session=session)
        _start(grid, strategy, int(rounds))
        assert "PolicyRefusal" not in {one.name for one in strategy.incidents}
    # The order that the session draws, gone through again and again.
    order = sorted(
        range(10, 22), key=lambda node: hashlib.sha256(session + str(node).encode()).digest()
    )
    assert asked == {
        number: {order[(5 * (number - 1) + seat) % 12] for seat in range(5)}
        for number in range(1, 13)
    }
    assert set(ledger.rounds.values()) == {"released"}
    # Who did not join was told nothing; who joined and was silent may have reported.
    assert RunLedger(path, {}).charges == {str(place): 5 for place in range(12) if place != 3}
    claim = strategy.claims(Sums(size=10, clients=1, delta=0.0))["local"]
    assert (claim.rounds, claim.sampling) == (5, "none")


def test_a_model_of_another_size_is_refused_on_both_sides():
    strategy = _strategy()
    with pytest.raises(ParameterError, match="dimension"):
        _start(_grid(), strategy, size=11)
    other = replace(SCHEME, dimension=11)
    assert "dimension" in _ask(_grid(1), 10, _strategy(scheme=other), 1, 0)["reason"]


# The app ---------------------------------------------------------------------------------------------------------


def _settings(tmp_path, **others) -> RunSettings:
    ranked_codebook(650, 8.0, clip_norm=1.0).save(tmp_path / "ranks.json", overwrite=True)
    given = {
        "population": 6, "clients_per_round": 6, "dirichlet": 5.0, "mechanism": str(tmp_path / "ranks.json"), "rounds": 2,
        "stage_timeout": 5.0, "observer": "reports",
    }  # fmt: skip
    return RunSettings(**(given | others))


def test_a_run_of_the_app_reports_the_local_claim_alone(tmp_path):
    lines: list[str] = []
    apps = [make_client_app(observer="reports")] * 6
    report = run_server(
        LocalGrid(apps), _settings(tmp_path, out=str(tmp_path / "run")), lines.append
    )
    assert list(report.claims) == ["local"]
    epsilon = RankedCodebook.load(tmp_path / "ranks.json").epsilon
    assert float(report.claims["local"]["epsilon"]) <= 2 * epsilon * (1 + MANY)
    assert report.ledger["charges"] == {str(place): 2 for place in range(6)}
    assert report.bits == report.report_bits == RankedCodebook.load(tmp_path / "ranks.json").bits
    assert [line.split(",")[0] for line in lines] == [
        "round 1: reports of 6 clients",
        "round 2: reports of 6 clients",
    ]
    resumed = run_server(LocalGrid(apps), _settings(tmp_path, out=str(tmp_path / "run"), rounds=3))
    assert resumed.ledger["charges"] == {str(place): 3 for place in range(6)}


def test_the_run_stops_before_its_local_budget(tmp_path):
    apps = [make_client_app(observer="reports")] * 6
    report = run_server(LocalGrid(apps), _settings(tmp_path, rounds=5, epsilon=17.0))
    assert report.ledger["charges"] == {str(place): 2 for place in range(6)}
    assert "exceed" in report.stopped
    with pytest.raises(InfeasibleError, match="nothing was sent"):
        run_server(LocalGrid(apps), _settings(tmp_path, epsilon=7.0))
    ranked_codebook(651, 8.0).save(tmp_path / "other.json")
    with pytest.raises(ParameterError, match="650"):
        run_server(LocalGrid(apps), _settings(tmp_path, mechanism=str(tmp_path / "other.json")))
    with pytest.raises(ParameterError, match="observer"):
        RunSettings(observer="none")


def test_new_nodes_go_on_where_the_others_have_spent_their_rounds():
    strategy = _strategy(most_rounds=1)
    grid = _grid()
    _start(grid, strategy, 2)
    assert "exceed" in strategy.stopped
    assert strategy.ledger.rounds == {1: "released"}  # whose names are known is not asked for them
    assert len(grid.received) == 2 * 4
    crowd = _grid(8)
    for node in range(10, 14):
        del crowd.apps[node]
    _start(crowd, strategy, 1)
    assert strategy.ledger.charges == {str(place): 1 for place in range(8)}


@pytest.mark.parametrize(
    ("mechanism", "word"),
    [
        ({"kind": "ranked", "bits": -1}, "bits"),
        ({"kind": "ranked", "epsilon": -1.0}, "epsilon"),
        ({"kind": "ranked", "clip_norm": 0.0}, "clip_norm"),
        ({"kind": "ranked", "file": "nope.json"}, "nope.json"),
    ],
)
def test_bad_input_ends_with_2_and_a_remedy(mechanism, word, capsys, tmp_path):
    assert run(federate(tmp_path, mechanism=mechanism)) == 2
    assert word in capsys.readouterr().err


def test_an_app_folder_of_single_reports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ranked = {"kind": "ranked", "epsilon": 6.0}
    assert run(federate(tmp_path, "--app", "own", mechanism=ranked)) == 0
    module = (tmp_path / "own" / "mezzotint_run" / "client.py").read_text()
    assert "make_client_app(observer='reports')" in module
    scheme = RankedCodebook.load(tmp_path / "own" / "mezzotint_run" / "encoding.json")
    assert (scheme.dimension, scheme.epsilon <= 6.0) == (650, True)


@pytest.mark.slow
def test_the_verb_on_flowers_own_engine(tmp_path, capsys):
    """Ray's workers, one client at a time; what is printed names the observer."""
    command = federate(
        tmp_path,
        "--out",
        str(tmp_path / "run"),
        data={"population": 8},
        rounds={"count": 2, "clients_per_round": 8},
        mechanism={"kind": "ranked", "epsilon": 8.0},
    )
    assert run(command) == 0
    shown = capsys.readouterr().out
    assert "observer: the server itself" in shown
    assert "only the device that draws a report is trusted" in shown
    assert "central" not in shown
    assert "ledger: 2 rounds, smallest mean 8 clients, 8 clients charged" in shown


@judges("federated.local_reports.LocalStrategy.claim")
def test_a_delta_is_spent_only_where_it_buys_an_epsilon(
    capsys: pytest.CaptureFixture[str], tmp_path
) -> None:
    """Few rounds cost as much with a delta as without: the claim is pure, and certified."""
    strategy = _strategy()
    few, many = strategy.claim(3, delta=1e-6), strategy.claim(400, delta=1e-6)
    assert (few.delta, few.certified) == (0.0, True)
    assert few.epsilon == strategy.scheme.claim(rounds=3).epsilon
    assert many.delta == 1e-6
    assert many.epsilon < 0.99 * strategy.scheme.claim(rounds=400).epsilon
    (tmp_path / "run.toml").write_text('[mechanism]\nkind = "ranked"\nepsilon = 8.0\n')
    assert run(["federate", str(tmp_path / "run.toml"), "--dry-run"]) == 0
    assert "epsilon 48, delta 0: a client in 6 rounds" in capsys.readouterr().out
