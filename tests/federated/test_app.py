"""Our own app without a network: trains, stops before its budget, goes on where it was, refuses other runs' files."""

from __future__ import annotations

import errno
import json
import math
import os
import runpy
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord

import mezzotint as mz
from federated.grids import LocalGrid
from federated.killed import in_process
from federated.rounds import roster
from federated.run_files import federate
from mezzotint.cli import run
from mezzotint.cli.federate import _going_on
from mezzotint.cli.federate_run import FAMILIES, QuantizedTable, _named
from mezzotint.core.errors import FileFormatError, InfeasibleError, ParameterError, StorageError
from mezzotint.core.files import RepairWarning, locked
from mezzotint.core.records import above
from mezzotint.families import stochastic_rounding
from mezzotint.federated import simulation
from mezzotint.federated.app import run_server
from mezzotint.federated.app_folder import write_app
from mezzotint.federated.budgets import Sums
from mezzotint.federated.client_app import PARAMETERS, TOLD, make_client_app
from mezzotint.federated.encoding import (
    FixedPointEncoding,
    canonical,
    gaussian_encoding,
)
from mezzotint.federated.encoding_files import load_encoding
from mezzotint.federated.run_ledger import Checkpoint, RunLedger
from mezzotint.federated.secagg import Roster
from mezzotint.federated.secure_strategy import SecureStrategy
from mezzotint.federated.settings import RunSettings
from tolerances import MANY

CLIENTS = 12


def _settings(tmp_path, **others: Any) -> RunSettings:
    """Digits over 12 clients; Gaussian noise of the clients, whose claims are quick."""
    encoding = gaussian_encoding(noise_multiplier=4.0, clip_norm=2.0, clients=CLIENTS, size=650)
    path = tmp_path / "encoding.json"
    path.write_text(canonical(encoding.as_dict()))
    settings: dict[str, Any] = {
        "population": CLIENTS,
        "clients_per_round": CLIENTS,
        "dirichlet": 5.0,
        "mechanism": str(path),
        "rounds": 3,
        "minimum": 10,
        "stage_timeout": 5.0,
    }
    return RunSettings(**(settings | others))


def _grid(count: int = CLIENTS) -> LocalGrid:
    return LocalGrid([make_client_app()] * count)


def test_a_run_reports_everything(tmp_path, caplog):
    lines: list[str] = []
    caplog.set_level("INFO")
    report = run_server(_grid(), _settings(tmp_path, out=str(tmp_path / "run")), lines.append)
    assert len(report.accuracy) == len(report.loss) == 4
    assert lines[0].startswith("warning: the noise of a mean is 0.33 clipping norms")
    assert len(lines) == 1 + 3
    assert "ROUND" not in caplog.text  # of Flower, which is asked for one round at a time
    assert [f"round {number}: sum of" in caplog.text for number in (1, 2, 3)] == [True] * 3
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
    first = run_server(_grid(), _settings(tmp_path, out=str(out), rounds=2))
    before = (out / "ledger.jsonl").read_bytes()
    grid = _grid()
    report = run_server(grid, _settings(tmp_path, out=str(out), rounds=3))
    assert (out / "ledger.jsonl").read_bytes().startswith(before)
    assert report.accuracy[:3] == first.accuracy
    assert len(report.accuracy) == 4
    assert report.ledger["charges"] == {str(place): 3 for place in range(CLIENTS)}
    assert Checkpoint.load(out).done == 3
    lines: list[str] = []
    again = run_server(_grid(), _settings(tmp_path, out=str(out), rounds=3), lines.append)
    assert again.accuracy == report.accuracy
    assert "is finished" in lines[0]


def test_a_crash_between_masks_and_sum_is_charged_to_all_who_were_asked(tmp_path):
    out = tmp_path / "run"
    run_server(_grid(), _settings(tmp_path, out=str(out), rounds=1))
    # As a server leaves it that was killed in its second round: 12 were asked, 10 may have been summed.
    header = json.loads((out / "ledger.jsonl").read_bytes().splitlines()[0])
    facts = {key: header[key] for key in ("session", "encoding", "dimension")}
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
        settings.encoding()
        .claims(Sums(rounds=rounds, clients=10, size=650, delta=1e-5))["central"]
        .epsilon
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


def test_a_budget_that_holds_no_round_leaves_no_run_behind(tmp_path):
    """Else it could neither be begun anew, with another budget, nor go on."""
    out = tmp_path / "run"
    with pytest.raises(InfeasibleError, match="nothing was sent"):
        run_server(_grid(), _settings(tmp_path, epsilon=0.01, out=str(out)))
    assert not (out / "ledger.jsonl").exists()
    assert not (out / "settings.json").exists()
    run_server(_grid(), _settings(tmp_path, epsilon=100.0, out=str(out)))
    assert json.loads((out / "settings.json").read_text())["epsilon"] == 100.0


def test_a_run_whose_ledger_is_lost_is_not_begun_anew(tmp_path):
    """Its model has learnt from rounds that no claim would count."""
    out = tmp_path / "run"
    run_server(_grid(), _settings(tmp_path, out=str(out), rounds=1))
    (out / "ledger.jsonl").rename(tmp_path / "ledger.jsonl")
    with pytest.raises(FileFormatError, match="ledger is missing"):
        run_server(_grid(), _settings(tmp_path, out=str(out), rounds=2))
    (tmp_path / "ledger.jsonl").rename(out / "ledger.jsonl")
    report = run_server(_grid(), _settings(tmp_path, out=str(out), rounds=2))
    assert set(report.ledger["charges"].values()) == {2}


def test_settings_of_a_run_that_died_before_its_ledger_was_there_are_not_kept(tmp_path):
    """Nobody was asked in it: it is begun anew, as the new settings say."""
    out = tmp_path / "run"
    run_server(_grid(), _settings(tmp_path, out=str(out), rounds=1))
    first = Checkpoint(parameters=np.zeros(650), done=0, session=bytes(16))
    first.save(out)
    (out / "ledger.jsonl").unlink()
    run_server(_grid(), _settings(tmp_path, out=str(out), rounds=2, seed=7))
    assert RunSettings.load(out).rounds == 2
    assert Checkpoint.load(out).session != first.session


def test_a_budget_holds_rounds_that_are_repeated_besides_those_of_the_run(tmp_path):
    """Two rounds, of which the first is interrupted once, within an epsilon for many."""
    settings = _settings(tmp_path, out=str(tmp_path / "run"), epsilon=100.0, rounds=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunLedger, "close", _fail)
        with pytest.raises(RuntimeError, match="power"):
            run_server(_grid(), settings)
    report = run_server(_grid(), settings)
    assert report.stopped == ""
    assert set(report.ledger["charges"].values()) == {3}
    assert report.claims["central"]["epsilon"] <= 100.0


def _fail(*words, **named):
    raise RuntimeError("the power went")


@pytest.mark.parametrize("failing", ["round", "report", "ledger"])
def test_a_disk_that_is_full_after_a_charge_does_not_say_run_again(
    failing, tmp_path, monkeypatch, capsys
):
    """Another run would charge its clients again; this one goes on."""
    monkeypatch.setattr(simulation, "_run_engine", in_process)
    replace_file = os.replace
    no_space = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def full_ledger(*words, **named):
        raise StorageError("path", "ledger.jsonl", f"cannot be written ({no_space.strerror})")

    def full(source, target):
        name = {"round": "model.npz", "report": "report.json"}.get(failing)
        if Path(target).name == name and "ledger.jsonl" in os.listdir(Path(target).parent):
            raise no_space
        replace_file(source, target)

    words = federate(
        tmp_path,
        "--out",
        str(tmp_path / "run"),
        data={"population": 6},
        rounds={"count": 1, "clients_per_round": 6},
    )
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        if failing == "ledger":
            patch.setattr(RunLedger, "close", full_ledger)
        assert run(words) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "No space left" in told
    assert "run again" not in told
    assert f"continue with: mezzotint federate --out {tmp_path / 'run'} --resume" in told
    assert run(["federate", "--out", str(tmp_path / "run"), "--resume"]) == 0


def test_a_proof_that_cannot_be_written_is_refused_before_anybody_is_charged(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(simulation, "_run_engine", _fail)
    mechanism = {"kind": "table", "family": "rqm"}
    words = federate(
        tmp_path,
        "--proof",
        str(tmp_path / "nowhere" / "claim.json"),
        mechanism=mechanism,
        data={"population": 6},
        rounds={"count": 1, "clients_per_round": 6},
    )
    assert run(words) == 2
    assert "--proof" in capsys.readouterr().err


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
    report = run_server(
        grid, _settings(tmp_path, rounds=1, clients_per_round=CLIENTS, population=CLIENTS - 0)
    )
    assert not report.incidents


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
    with pytest.raises(FileFormatError, match="npz file"):
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
        {"population": 1},
        {"population": 0, "clients_per_round": 2},
        {"clients_per_round": 1},
        {"clients_per_round": 200},
        {"server_learning_rate": 0.0},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"epsilon": math.inf},
        {"clip": math.nan},
        {"rounds": 2.5},
        {"corrupted": math.nan},
        {"delta": 0.0},
        {"stage_timeout": 0.0},
        {"pause": -1.0},
        {"algorithm": "adam"},
        {"steps": 0},
        {"spare": -1, "clients_per_round": 50},
        {"colluding": 2.0},
        {"dropping": -1.0},
    ],
)
def test_settings_that_make_no_sense_are_refused(bad):
    with pytest.raises(ParameterError, match=next(iter(bad))):
        RunSettings(**bad)


def test_a_moved_run_is_resumed_where_it_is_now(tmp_path):
    """Its own files count, not those of a run that took its former place."""
    told = {
        "mechanism": str(tmp_path / "run" / "encoding.json"),
        "roster": str(tmp_path / "elsewhere.json"),
    }
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "settings.json").write_text(
        json.dumps(RunSettings(out=str(tmp_path / "run"), **told).as_dict())
    )
    assert RunSettings.load(tmp_path / "run").out == str(tmp_path / "run")
    (tmp_path / "run").rename(tmp_path / "moved")
    (tmp_path / "run").mkdir()
    moved = RunSettings.load(tmp_path / "moved")
    assert moved.out == str(tmp_path / "moved")
    assert moved.mechanism == str(tmp_path / "moved" / "encoding.json")
    assert moved.roster == told["roster"]


def test_an_app_folder_holds_the_settings(tmp_path):
    settings = _settings(
        tmp_path, rounds=7, sampling="cyclic", out=str(tmp_path / "run"), data=str(tmp_path)
    )
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


def test_an_app_runs_under_the_version_that_wrote_it_alone(tmp_path, monkeypatch):
    """The code's own version: the metadata of an editable install stay as old as the install."""
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.0.1")
    settings = _settings(tmp_path)
    write_app(tmp_path / "app", settings, settings.encoding())
    package = tmp_path / "app" / "mezzotint_run" / "__init__.py"
    runpy.run_path(str(package))
    package.write_text(package.read_text().replace(f'"{mz.__version__}"', '"9.9"'))
    with pytest.raises(
        ImportError, match=f"written by mezzotint 9.9, but {mz.__version__} runs here"
    ):
        runpy.run_path(str(package))


def test_an_engine_that_does_not_start_is_named_with_a_remedy(tmp_path, monkeypatch):
    ray = pytest.importorskip("ray")

    def late(*_: object, **__: object) -> None:
        raise Exception("The current node timed out during startup. This could happen because")

    monkeypatch.setattr(ray, "init", late)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    reason = r"Ray, does not start \(Exception: The current node timed out during startup\)"
    with pytest.raises(mz.MezzotintError, match=reason + ".*nothing was done; end other work"):
        mz.federated.simulate(_settings(tmp_path))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_table_can_be_chosen_by_name_and_summed(name):
    bits = 2 if name in ("optm", "optimal", "erm") else 4
    table = _named(QuantizedTable(family=name, bits=bits))
    assert (table.lower, table.upper) == (-0.4, 0.4)
    assert len(table.levels) == 2**bits
    assert np.ptp(np.diff(table.levels)) < MANY
    if name in ("erm", "optm", "optimal"):
        assert 3.5 < table.epsilon <= 4.0
    if name in ("rqm", "pbm"):
        assert _named(QuantizedTable(family=name, bits=bits, report_epsilon=2.0)).epsilon <= 2.0


@pytest.mark.parametrize(
    ("tables", "options", "word"),
    [
        ({"mechanism": {"kind": "rqm"}}, [], "mechanism.kind=rqm: use one of rounded-gaussian"),
        ({"mechanism": {"kind": "file", "file": "nope.json"}}, [], "mechanism.file=nope.json: no such file"),
        ({"mechanism": {"kind": "table", "family": "abc"}}, [], "mechanism.family=abc: use one of quantize"),
        ({"mechanism": {"kind": "table", "bits": 0}}, [], "mechanism.bits=0: "),
        ({"mechanism": {"kind": "table", "clip": -1.0}}, [], "mechanism.clip=-1.0: "),
        ({"mechanism": {"kind": "table", "report_epsilon": -1.0}}, [], "report_epsilon=-1.0: "),
        ({"mechanism": {"kind": "table", "family": "optm"}}, [], "mechanism.bits=4: "),
        ({"mechanism": {"kind": "table", "most_examples": -4}}, [], "0: equal weights"),
        ({"mechanism": {"kind": "table", "clip_norm": -1.0}}, [], "mechanism.clip_norm=-1.0: "),
        ({"mechanism": {"kind": "rounded-gaussian"}}, [], "name it, or a budget: privacy.epsilon"),
        ({"mechanism": {"kind": "rounded-gaussian", "noise_multiplier": -1.0}}, [], "noise_multiplier=-1.0: "),
        ({"mechanism": {"kind": "rounded-gaussian", "bits": 4}}, [], "bits=4: no such key; there are clip_norm"),
        ({"mechanism": {"kind": "grid", "noise_multiplier": 1.0}}, [], "no such key; there are clip"),
        ({"data": {"population": 0}}, [], "data.population=0: "),
        ({"data": {"set": "imagenet"}}, [], "imagenet"),
        ({"evaluate": {"every": 2, "noise_multiplier": 0.0}}, [], "evaluate.noise_multiplier=0.0: "),
        ({"evaluate": {"every": 2, "largest_loss": 0.0}}, [], "evaluate.largest_loss=0.0: "),
        ({"training": {"learning_rate": -1.0}}, [], "training.learning_rate=-1.0: "),
        ({"training": {"batch": -1}}, [], "training.batch=-1: "),
        ({"rounds": {"spare": 60}}, [], "rounds.spare=60: "),
        ({"rounds": {"count": 2000}}, [], "rounds.count=2000: "),
        ({"rounds": {"cuont": 2}}, [], "rounds.cuont=2: no such key; there are count"),
        ({"rounds": {"count": "3"}}, [], "rounds.count=3: need a value of type int"),
        ({"round": {"count": 3}}, [], "no such table; there are data"),
        ({"server": {"roster": "r.json"}}, [], "server.roster=r.json: simulated clients"),
        ({}, ["--set", "rounds"], "write table.key=value"),
        ({}, ["--set", "privacy=3"], "must be a table"),
        ({}, ["--set", "rounds.clients_per_round=x"], "rounds.clients_per_round=x: need a value of type int"),
        ({}, ["--resume"], "a resumed run keeps its settings"),
        ({"rounds": {"minimum": 1}}, ["--app", "a"], "rounds.minimum=1: "),
        ({"server": {"colluding": 0.9}}, ["--app", "a"], "server.colluding=0.9: "),
        ({}, ["--app", "a", "--proof", "p.json"], "--proof=p.json: "),
        ({}, ["--proof", "p.json"], "--proof=p.json: nothing is claimed"),
        (
            {"mechanism": {"kind": "rounded-gaussian", "noise_multiplier": 1.0}},
            ["--proof", "p.json"],
            "--proof=p.json: claims of rounded-gaussian",
        ),
    ],
)  # fmt: skip
def test_bad_input_ends_with_2_and_a_remedy(tables, options, word, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(federate(tmp_path, *options, **tables)) == 2
    assert word in " ".join(capsys.readouterr().err.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.toml"]


@pytest.mark.parametrize(
    "words", [["federate"], ["federate", "nowhere.toml"], ["federate", "--resume"]]
)
def test_without_a_run_file_the_example_is_named(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(words) == 2
    told = capsys.readouterr().err
    assert "--example" in told or "--out run --resume" in told


def test_the_example_is_a_private_run_and_a_dry_run_says_what_it_costs(
    capsys, tmp_path, monkeypatch
):
    """On made-up data, nothing kept: within the budget, by the accountant of the encoding that it would use."""
    monkeypatch.chdir(tmp_path)
    assert run(["federate", "--example"]) == 0
    example = capsys.readouterr().out
    (tmp_path / "run.toml").write_text(example)
    budget = tomllib.loads(example)["privacy"]["epsilon"]
    mnist = ["--set", "data.set=mnist", "--set", f"data.folder={tmp_path}", "--set", "rounds=2"]
    for others, size in (([], 650), (mnist, 7850)):
        assert run(["federate", "run.toml", "--dry-run", "--json", *others]) == 0
        told = json.loads(capsys.readouterr().out)
        assert 0.9 * budget < told["epsilon"] <= budget
        assert (told["parameters"], told["clients"]) == (size, 100)
    assert run(["federate", "run.toml", "--dry-run"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "nothing was read, kept or charged" in told
    worst = "a client in 6 rounds, each a sum of the fewest clients allowed, 51"
    assert "at worst the run costs epsilon" in told
    assert worst in told
    assert "rounds that clients spoil are repeated, and cost more" in told
    # What the price counts, and what it does not, is said.
    drawn = [
        "data.population=400",
        "rounds=20",
        "rounds.order=fixed",
        "privacy.corrupted=10",
        "evaluate.every=2",
    ]
    unlimited = ["privacy.epsilon=0", "mechanism.noise_multiplier=8.0"]
    words = [word for change in drawn + unlimited for word in ("--set", change)]
    assert run(["federate", "run.toml", "--dry-run", *words]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "at worst, but for draws of probability 0.01, the run costs epsilon" in told
    assert "sums of what clients measure, each a sum" in told
    assert "of whom 10 add no noise" in told
    assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]


def test_a_dry_run_refuses_data_that_are_not_there(capsys, tmp_path):
    """It reads none, and yet a run that would fail for want of them does not pass."""
    for data in ({"set": "mnist"}, {"set": "mnist", "folder": str(tmp_path / "none")}):
        assert run(federate(tmp_path, "--dry-run", data=data)) == 2
        assert "data.folder" in capsys.readouterr().err


def test_a_simulation_and_its_dry_run_warn_of_noise_that_hides_everything(tmp_path, capsys):
    """Ten clients under noise of two norms: .2 norms in each of 650 coordinates."""
    loud = {"kind": "rounded-gaussian", "clip_norm": 1.0, "noise_multiplier": 2.0}
    few = {"count": 1, "clients_per_round": 10}
    sets = {"data": {"population": 10}, "mechanism": loud, "rounds": few}
    assert run(federate(tmp_path, "--dry-run", **sets)) == 0
    assert "0.2 clipping norms per coordinate" in " ".join(capsys.readouterr().out.split())
    told: list[str] = []
    noise = gaussian_encoding(noise_multiplier=2.0, clip_norm=1.0, clients=CLIENTS, size=650)
    settings = _settings(tmp_path, rounds=1)
    Path(settings.mechanism).write_text(canonical(noise.as_dict()))
    run_server(_grid(), settings, told.append)
    assert told[0].startswith("warning: the noise of a mean is 0.17 clipping norms")


def test_a_dry_run_says_how_many_rounds_fit_the_budget_and_refuses_where_none_does(
    tmp_path, capsys
):
    """As the run itself would: with the sums of what clients measure, too."""
    noise = {"kind": "rounded-gaussian", "clip_norm": 1.0, "noise_multiplier": 6.0}
    sets = {"rounds": {"count": 6}, "mechanism": noise, "privacy": {"epsilon": 4.0}}
    assert run(federate(tmp_path, "--dry-run", "--json", **sets)) == 0
    alone = json.loads(capsys.readouterr().out)
    assert 1 < alone["rounds"] < alone["wanted"] == 6
    assert alone["epsilon"] <= 4.0
    sets["evaluate"] = {"every": 2, "noise_multiplier": 40.0}
    assert run(federate(tmp_path, "--dry-run", "--json", **sets)) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["rounds"] < alone["rounds"]
    del sets["evaluate"]
    assert run(federate(tmp_path, "--dry-run", **sets)) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"ends the run after {alone['rounds']} of 6 rounds" in told
    sets["privacy"] = {"epsilon": 0.5}
    assert run(federate(tmp_path, "--dry-run", **sets)) == 2
    assert "one round costs epsilon" in " ".join(capsys.readouterr().err.split())


def test_a_dry_run_of_single_reports_says_what_they_cost(capsys, tmp_path):
    ranked = {"kind": "ranked", "epsilon": 4.0}
    words = federate(tmp_path, "--dry-run", "--json", mechanism=ranked, rounds={"count": 3})
    assert run(words) == 0
    told = json.loads(capsys.readouterr().out)
    # Three rounds of 4, of which weights of 2^-32 leave less than 1 % unused.
    assert told["epsilon"] == pytest.approx(12.0, rel=0.01)


def test_all_of_femnists_clients_are_named_by_zero() -> None:
    """As its help says; of other sets there are no clients to count."""
    assert RunSettings(dataset="femnist", population=0).population == 0
    with pytest.raises(ParameterError, match="population"):
        RunSettings(dataset="digits", population=0)


def test_a_written_app_is_told_as_one_object(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(federate(tmp_path, "--set", "rounds=3", "--app", "app", "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["app"], told["settings"]["rounds"]) == ("app", 3)


def test_an_app_is_written_with_its_encoding(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kinds = {
        "gaussian": {"kind": "rounded-gaussian", "noise_multiplier": 1.0},
        "table": {"kind": "table", "family": "quantize"},
        "fixed": {"kind": "grid", "clip": 0.3},
    }
    for kind, mechanism in kinds.items():
        assert run(federate(tmp_path, "--app", kind, mechanism=mechanism)) == 0
        written = tomllib.loads((tmp_path / kind / "pyproject.toml").read_text())
        name = written["tool"]["flwr"]["app"]["config"]["mechanism"]
        found = load_encoding(tmp_path / kind / "mezzotint_run" / name).as_dict()
        assert found["kind"] == kind
    stochastic_rounding(lower=-1, upper=1, levels=4).save(tmp_path / "m.json")
    own = {"kind": "file", "file": str(tmp_path / "m.json")}
    assert run(federate(tmp_path, "--app", "own", mechanism=own)) == 0


def test_an_app_takes_its_roster_along(tmp_path):
    known = roster(4)
    known.save(tmp_path / "clients.json")
    write_app(
        tmp_path / "app",
        RunSettings(clients_per_round=4, population=4, roster=str(tmp_path / "clients.json")),
    )
    (tmp_path / "clients.json").unlink()
    written = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"][
        "app"
    ]["config"]
    assert written["roster"] == "roster.json"
    assert Roster.load(tmp_path / "app" / "mezzotint_run" / written["roster"]) == known


def test_every_round_tells_what_was_spent(tmp_path):
    """In the line, for what change, to whom and on what grounds; of an app of one's own also as a metric. The last
    is the claim's.
    """
    lines: list[str] = []
    settings = _settings(tmp_path, rounds=2)
    report = run_server(_grid(), settings, lines.append)
    rounds = [line for line in lines if not line.startswith("warning: ")]
    assert len(rounds) == len(lines) - 1
    for number, line in enumerate(rounds, start=1):
        claim = settings.encoding().claims(
            Sums(rounds=number, clients=CLIENTS, size=650, delta=1e-6)
        )["central"]
        assert f"epsilon {above(claim.epsilon)}, delta 1e-06 spent" in line
        assert line.endswith(
            "for replacing all data of one client (replace_one), computed, to an observer of the secure sums alone"
        )
    assert above(report.claims["central"]["epsilon"]) in lines[-1]
    strategy = SecureStrategy(
        encoding=settings.encoding(), clients_per_round=CLIENTS, returns="update", delta=1e-6
    )
    config = ConfigRecord({key: getattr(settings, key) for key in TOLD})
    arrays = ArrayRecord({PARAMETERS: Array(np.zeros(650, dtype=np.float32))})
    result = strategy.start(grid=_grid(), initial_arrays=arrays, num_rounds=2, train_config=config)
    told = [float(result.train_metrics_clientapp[number]["epsilon"]) for number in (1, 2)]
    assert told[0] < told[1] == report.claims["central"]["epsilon"]
    assert result.train_metrics_clientapp[2]["delta"] == 1e-6
    exact = SecureStrategy(
        encoding=FixedPointEncoding(clip=1.0),
        clients_per_round=CLIENTS,
        returns="update",
        delta=1e-6,
    )
    result = exact.start(grid=_grid(), initial_arrays=arrays, num_rounds=1, train_config=config)
    assert "epsilon" not in result.train_metrics_clientapp[1]


@pytest.mark.parametrize(
    ("sampling", "rounds", "clients_per_round", "charged"),
    [("fixed", 3, 12, 3), ("cyclic", 4, 9, 3), ("fixed", 2, 9, 2)],
)
def test_the_noise_that_a_budget_needs_is_found(
    tmp_path, sampling, rounds, clients_per_round, charged, capsys, monkeypatch
):
    """The run that it is written for ends within the budget, and three percent less noise would not have kept to it."""
    monkeypatch.chdir(tmp_path)
    command = federate(
        tmp_path,
        "--app",
        "app",
        data={"population": 12, "dirichlet": 5.0},
        rounds={
            "count": rounds,
            "clients_per_round": clients_per_round,
            "order": sampling,
            "minimum": 7,
        },
        privacy={"epsilon": 3.0},
        mechanism={"kind": "rounded-gaussian"},
    )
    assert run(command) == 0
    told = " ".join(capsys.readouterr().err.split())
    assert (
        f"keeps clients in {charged} of {rounds} rounds (sums of 7 or more) within epsilon 3"
        in told
    )
    found = float(told.split("a noise multiplier of ")[1].split()[0])
    costs = [
        gaussian_encoding(
            noise_multiplier=multiplier, clip_norm=1.0, clients=clients_per_round, size=650,
        ).central(Sums(rounds=charged, clients=7, size=650, delta=1e-6)).epsilon
        for multiplier in (found, 0.97 * found)
    ]  # fmt: skip
    assert costs[0] <= 3.0 < costs[1]
    config = tomllib.loads((tmp_path / "app" / "pyproject.toml").read_text())["tool"]["flwr"][
        "app"
    ]["config"]
    settings = replace(
        RunSettings.from_config(config),
        mechanism="app/mezzotint_run/encoding.json",
        stage_timeout=5.0,
    )
    report = run_server(_grid(), settings)
    assert report.stopped == ""
    assert report.claims["central"]["epsilon"] <= 3.0
    assert max(report.ledger["charges"].values()) <= charged


def test_a_clients_process_loads_nothing_before_it_is_used():
    """Flower starts a process for each message: the app without one, then reading an encoding and checking a plan."""
    code = """
import json, sys
from mezzotint.federated.client_app import client_app
heavy = ["numba", "scipy", "flint", "torch", "mezzotint.federated.encoding", "mezzotint.federated.secure_strategy"]
before = [name for name in heavy if name in sys.modules]
import mezzotint.federated.encoding_files
from mezzotint.federated.secagg import plan_sum
plan_sum(clients=20, corrupted=4, dropped=3, minimum=11)
print(json.dumps([before, [name for name in ("numba", "torch", "scipy.special") if name in sys.modules]]))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == [[], []]


def test_an_interrupted_run_says_what_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Between the folder and the first round there is nothing to go on with; nor was `--out` left out."""
    for out, words in ((None, "nothing is kept without --out"), (tmp_path, "no round had begun")):
        with pytest.raises(KeyboardInterrupt), _going_on(out):
            raise KeyboardInterrupt
        assert f"ended early; {words}" in capsys.readouterr().err
    (tmp_path / "ledger.jsonl").touch()
    with pytest.raises(KeyboardInterrupt), _going_on(tmp_path):
        raise KeyboardInterrupt
    assert "finished rounds are kept; continue with: mezzotint" in capsys.readouterr().err
