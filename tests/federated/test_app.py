"""Our own app without a network: trains, stops before its budget, goes on where it was, refuses other runs' files."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from federated.grids import LocalGrid
from federated.rounds import roster
from mezzotint.cli import run
from mezzotint.cli.federate import TABLES, _named
from mezzotint.core.errors import FileFormatError, InfeasibleError, ParameterError
from mezzotint.core.files import RepairWarning, locked
from mezzotint.families import discrete_gaussian, stochastic_rounding
from mezzotint.federated.app import make_client_app, run_server
from mezzotint.federated.encoding import canonical, load_encoding, noise_encoding
from mezzotint.federated.folder import write_app
from mezzotint.federated.ledger import Checkpoint, RunLedger
from mezzotint.federated.secagg import Roster
from mezzotint.federated.settings import RunSettings
from tolerances import MANY

CLIENTS = 12


def _settings(tmp_path, **others: Any) -> RunSettings:
    """Digits over 12 clients; distributed discrete Gaussian, whose claims are quick."""
    encoding = noise_encoding(
        lambda deviation: discrete_gaussian(sigma=deviation),
        noise_multiplier=4.0,
        l2_norm=2.0,
        clients=CLIENTS,
        size=650,
    )
    path = tmp_path / "encoding.json"
    path.write_text(canonical(encoding.as_dict()))
    settings: dict[str, Any] = {
        "clients": CLIENTS,
        "per_round": CLIENTS,
        "alpha": 5.0,
        "mechanism": str(path),
        "rounds": 3,
        "minimum": 10,
        "stage_timeout": 5.0,
    }
    return RunSettings(**(settings | others))


def _grid(count: int = CLIENTS) -> LocalGrid:
    return LocalGrid([make_client_app()] * count)


def test_a_run_reports_everything(tmp_path):
    lines: list[str] = []
    report = run_server(_grid(), _settings(tmp_path, out=str(tmp_path / "run")), lines.append)
    assert len(report.accuracy) == len(report.loss) == 4
    assert len(lines) == 3
    assert report.ledger["charges"] == {str(place): 3 for place in range(CLIENTS)}
    assert report.ledger["smallest_sum"] == CLIENTS
    assert report.claims["central"]["rounds"] == 3
    central, local = (float(report.claims[view]["epsilon"]) for view in ("central", "local"))
    assert 0 < central < local
    assert report.mse > 0
    assert report.bits == report.report_bits
    assert report.incidents == ()
    json.dumps(report.as_dict(), default=str)


def test_a_resumed_run_does_the_rounds_that_are_left_and_keeps_its_ledger(tmp_path):
    out = tmp_path / "run"
    run_server(_grid(), _settings(tmp_path, out=str(out), rounds=2))
    before = (out / "ledger.jsonl").read_bytes()
    grid = _grid()
    report = run_server(grid, _settings(tmp_path, out=str(out), rounds=3))
    assert (out / "ledger.jsonl").read_bytes().startswith(before)
    assert len(report.accuracy) == 2  # where it was, and the round that was left
    assert report.ledger["charges"] == {str(place): 3 for place in range(CLIENTS)}
    assert Checkpoint.load(out).done == 3


def test_a_crash_between_masks_and_sum_is_charged_to_all_who_were_asked(tmp_path):
    out = tmp_path / "run"
    run_server(_grid(), _settings(tmp_path, out=str(out), rounds=1))
    # As a server leaves it that was killed in its second round: 12 were asked, 10 may have been summed.
    header = json.loads((out / "ledger.jsonl").read_bytes().splitlines()[0])
    facts = {key: header[key] for key in ("session", "encoding", "coordinates")}
    killed = RunLedger(out / "ledger.jsonl", facts)
    killed.ask(killed.start(), map(str, range(CLIENTS)), minimum=10)
    with (out / "ledger.jsonl").open("ab") as handle:
        handle.write(b'{"round":2,"rele')
    with pytest.warns(RepairWarning):
        report = run_server(_grid(), _settings(tmp_path, out=str(out), rounds=2))
    assert report.ledger["rounds"] == {"1": "released", "2": "interrupted", "3": "released"}
    assert report.ledger["charges"] == {str(place): 3 for place in range(CLIENTS)}
    assert report.claims["central"]["rounds"] == 3
    assert report.ledger["smallest_sum"] == report.claims["central"]["honest_clients"] == 10


def test_the_run_stops_before_its_budget_and_sends_nothing_when_one_round_is_too_much(tmp_path):
    # Charged at the minimum of 10 summands: two rounds fit, three do not.
    settings = _settings(tmp_path)
    cost = [
        settings.encoding().claims(rounds=rounds, clients=10, size=650, delta=1e-5)["central"].epsilon
        for rounds in (1, 2, 3)
    ]
    report = run_server(_grid(), _settings(tmp_path, rounds=5, epsilon=(cost[1] + cost[2]) / 2))
    assert report.ledger["rounds"] == {"1": "released", "2": "released"}
    assert report.claims["central"]["epsilon"] <= (cost[1] + cost[2]) / 2
    assert "exceed" in report.stopped
    grid = _grid()
    with pytest.raises(InfeasibleError, match="nothing was sent"):
        run_server(grid, _settings(tmp_path, epsilon=0.9 * cost[0]))
    assert grid.received == []


def test_a_budget_without_noise_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="epsilon"):
        run_server(_grid(), _settings(tmp_path, mechanism="", epsilon=1.0))


def test_too_few_nodes_train_nothing_and_charge_nobody(tmp_path):
    report = run_server(_grid(3), _settings(tmp_path, rounds=1, stage_timeout=0.2))
    assert report.ledger["charges"] == {}
    assert report.claims == {}
    assert report.incidents[0][2] == "TooFewClients"
    assert report.accuracy[0] == report.accuracy[-1]


def test_a_node_without_data_is_left_out(tmp_path):
    grid = _grid(CLIENTS + 1)
    report = run_server(grid, _settings(tmp_path, rounds=1, per_round=CLIENTS, clients=CLIENTS - 0))
    assert all(incident[2] == "NoInput" for incident in report.incidents)


def test_another_runs_ledger_or_a_damaged_one_is_refused(tmp_path):
    path = tmp_path / "ledger.jsonl"
    RunLedger(path, {"session": "a"}).start()
    with pytest.raises(FileFormatError, match="another run"):
        RunLedger(path, {"session": "b"})
    path.write_bytes(path.read_bytes() + b"nonsense\n")
    with pytest.raises(FileFormatError, match="damaged"):
        RunLedger(path, {"session": "a"})
    out = tmp_path / "run"
    out.mkdir()
    refused = pytest.raises(ParameterError, match="another process")
    with (out / ".lock").open("ab") as file, locked(file.fileno(), out), refused:
        run_server(_grid(), _settings(tmp_path, out=str(out)))
    (tmp_path / "model.npz").write_bytes(b"nothing")
    with pytest.raises(FileFormatError, match="checkpoint"):
        Checkpoint.load(tmp_path)


def test_checkpoints_come_back_as_they_were(tmp_path):
    saved = Checkpoint(parameters=np.arange(5.0), done=3, session=bytes(range(16)))
    saved.save(tmp_path)
    found = Checkpoint.load(tmp_path)
    np.testing.assert_array_equal(found.parameters, saved.parameters)
    assert (found.done, found.session) == (3, saved.session)


@pytest.mark.parametrize(
    "bad",
    [
        {"rounds": 0},
        {"clients": 1},
        {"clients": 0, "per_round": 2},
        {"per_round": 1},
        {"per_round": 200},
        {"learning_rate": 0.0},
        {"epsilon": -1.0},
        {"delta": 0.0},
        {"stage_timeout": 0.0},
        {"pause": -1.0},
        {"algorithm": "adam"},
        {"steps": 0},
    ],
)
def test_settings_that_make_no_sense_are_refused(bad):
    with pytest.raises(ParameterError, match=next(iter(bad))):
        RunSettings(**bad)


def test_an_app_folder_holds_the_settings(tmp_path):
    settings = _settings(tmp_path, rounds=7, sampling="poisson", out=str(tmp_path / "run"), data=str(tmp_path))
    write_app(tmp_path / "app", settings, settings.encoding())
    written = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())
    portable = replace(settings, mechanism="encoding.json", out="", data="")
    assert RunSettings.from_config(written["tool"]["flwr"]["app"]["config"]) == portable
    for file in (tmp_path / "app").rglob("*.*"):
        assert str(tmp_path) not in file.read_text()
    assert set(written["tool"]["flwr"]["app"]["components"]) == {"serverapp", "clientapp"}
    with pytest.raises(ParameterError):
        write_app(tmp_path / "app", settings, None)
    with pytest.raises(ParameterError, match="run-config"):
        RunSettings.from_config({"round": 3})


@pytest.mark.parametrize("name", TABLES)
def test_every_table_can_be_chosen_by_name_and_summed(name):
    bits = 2 if name in ("optm", "optimal", "erm") else 4
    table = _named(name, 2**bits, 0.4, 0.0)
    assert (table.lower, table.upper) == (-0.4, 0.4)
    assert len(table.levels) == 2**bits
    assert np.ptp(np.diff(table.levels)) < MANY
    if name in ("erm", "optm", "optimal"):
        assert 3.5 < table.epsilon <= 4.0
    if name in ("rqm", "pbm"):
        assert _named(name, 2**bits, 0.4, 2.0).epsilon <= 2.0


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--mechanism", "nope.json"], "optimal"),
        (["--bits", "0"], "bits"),
        (["--clip", "-1"], "clip"),
        (["--report-epsilon", "nan"], "report-epsilon"),
        (["--mechanism", "ddg", "--noise-multiplier", "0"], "noise-multiplier"),
        (["--mechanism", "optm", "--bits", "4"], "--bits 2"),
        (["--clients", "0"], "clients"),
        (["--dataset", "imagenet", "--mechanism", "ddg"], "dataset"),
        (["--resume"], "resume"),
    ],
)
def test_bad_input_ends_with_2_and_a_remedy(arguments, word, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["federate", *arguments]) == 2
    assert word in capsys.readouterr().err.lower()


def test_an_app_is_written_with_its_encoding(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, kind in (("skellam", "noise"), ("gaussian", "noise"), ("quantize", "table")):
        assert run(["federate", "--mechanism", name, "--app", name]) == 0
        written = tomllib.loads((tmp_path / name / "pyproject.toml").read_text())
        path = tmp_path / name / "mezzotint_run" / written["tool"]["flwr"]["app"]["config"]["mechanism"]
        assert load_encoding(path).as_dict()["kind"] == kind
    stochastic_rounding(lower=-1, upper=1, levels=4).save(tmp_path / "m.json")
    assert run(["federate", "--mechanism", "m.json", "--app", "own"]) == 0


def test_an_app_takes_its_roster_along(tmp_path):
    known = roster(4)
    known.save(tmp_path / "clients.json")
    write_app(tmp_path / "app", RunSettings(per_round=4, clients=4, roster=str(tmp_path / "clients.json")))
    (tmp_path / "clients.json").unlink()
    written = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert written["roster"] == "roster.json"
    assert Roster.load(tmp_path / "app" / "mezzotint_run" / written["roster"]) == known
