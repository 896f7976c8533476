"""Flower's deployment engine: SuperLink and 8 SuperNodes over TLS; two are killed, the sum is right or refused."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from federated.deployed import Deployment
from federated.run_files import federate
from mezzotint.cli import run
from mezzotint.core.records import JsonObject, above
from mezzotint.federated.budgets import Sums
from mezzotint.federated.encoding import Encoding
from mezzotint.federated.encoding_files import load_encoding
from mezzotint.federated.lifetime_ledger import LifetimeLedger, lifetime_path
from mezzotint.federated.secagg import Client, bits_needed, read_introduction

NODES, COORDINATES = 8, 3000
PATIENCE = 1200.0
"""Seconds that a deployment may take on a busy machine."""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


def _inputs(place: int) -> np.ndarray:
    """What the app's clients send: multiples of the grid's step, so encoding is exact."""
    return np.random.default_rng(place).integers(-7, 8, COORDINATES) + 7


@contextlib.contextmanager
def _deployed(
    folder,
    stops: dict[int, str],
    nodes: int = NODES,
    configs: dict[int, dict[str, Path]] | None = None,
):
    deployment = Deployment(folder, nodes, stops, configs)
    try:
        yield deployment
    finally:
        deployment.close()


def _run(deployment: Deployment, stops: dict[int, str], settings: str = "") -> dict:
    deployment.submit(settings)
    for place in stops:
        deployment.await_file(f"marker-{place}", PATIENCE)
        deployment.kill(f"node-{place}")
    return json.loads(deployment.await_file("outcome.json", PATIENCE).read_text())


def _masked(outcome: dict) -> dict[str, bytes]:
    return {
        who: bytes.fromhex(text)[9 + 64 :]
        for stage, who, text in outcome["payloads"]
        if stage == "sum"
    }


def test_two_nodes_are_killed_and_the_sum_of_the_others_is_right_bit_for_bit(tmp_path):
    """One is killed while it deals, one after its masked input has gone out; then the rest sum once more."""
    stops = {2: "deal", 5: "unite"}
    with _deployed(tmp_path, stops) as deployment:
        outcome = _run(deployment, stops)
        deployment.submit('nodes=6 minimum=4 outcome="again"')
        again = json.loads(deployment.await_file("again.json", PATIENCE).read_text())
    survivors = [place for place in range(NODES) if place != 2]
    # Whoever was killed is missed, perhaps by name; nobody else is.
    assert {client for client, _ in outcome["incidents"]} <= {"2", "5"}
    assert outcome["values"] == sum(_inputs(place) for place in survivors).tolist()
    assert sorted(outcome["charges"]) == sorted(str(place) for place in survivors)
    # Whoever of the dead was still listed and drawn is missing from the second sum.
    assert len(again["charges"]) >= 4
    assert again["values"] == sum(_inputs(int(place)) for place in again["charges"]).tolist()
    first, second = _masked(outcome), _masked(again)
    assert len(first) == 7
    for payload in (*first.values(), *second.values()):
        # 7 bits each, 6 where but four say who they are; false alarm below 1e-8.
        bits = len(payload) * 8 // COORDINATES
        assert bits_needed(len(again["charges"]), 14) <= bits <= bits_needed(NODES, 14)
        planes = np.unpackbits(np.frombuffer(payload, dtype=np.uint8), bitorder="little")[
            : bits * COORDINATES
        ]
        cells = np.bincount(planes.reshape(-1, bits) @ (1 << np.arange(bits)), minlength=1 << bits)
        assert stats.chisquare(cells).pvalue > 1e-10
    # The same input twice: no 8 bytes in common, wherever they stand (by chance below 1e-12).
    windows = [
        {payload[i : i + 8] for payload in part.values() for i in range(len(payload) - 7)}
        for part in (first, second)
    ]
    assert not windows[0] & windows[1]


def test_an_ordinary_client_starts_once_a_round_and_once_to_deal(tmp_path):
    """Four nodes, nobody corrupted, so a committee of one; between rounds of plain averaging in the same run.

    What a round takes beside a plain one is a row of the benchmark: `benchmarks/federated.py --engine`.
    """
    nodes, plain, rounds = 4, 2, 3
    settings = f"nodes={nodes} minimum=3 corrupted=0.0 dropped=0.0 plain={plain} rounds={rounds} stage-timeout=600.0"
    with _deployed(tmp_path, {}, nodes) as deployment:
        deployment.submit(settings)
        outcome = json.loads(deployment.await_file("outcome.json", PATIENCE).read_text())
        starts = [
            (tmp_path / f"marker-{place}-starts").read_text().split() for place in range(nodes)
        ]
    assert set(outcome["rounds"].values()) == {"released"}
    for one in starts:
        processes, stages = one[::2], one[1::2]
        assert len(set(processes)) == len(processes)  # every message starts a process
        assert stages.count("plain") == plain
        assert stages.count("card") == 1
        assert stages.count("sum") == rounds
    # All deal in the three rounds at once; then there is one member a round, which opens.
    totals = {
        stage: sum(one[1::2].count(stage) for one in starts)
        for stage in ("deal", "unite", "agree", "open")
    }
    assert totals == {"deal": nodes, "unite": rounds, "agree": 0, "open": 0}


def test_under_the_minimum_the_sum_is_refused(tmp_path):
    stops = {2: "deal", 5: "sum"}
    with _deployed(tmp_path, stops) as deployment:
        outcome = _run(deployment, stops, "minimum=7")
    assert outcome["values"] is None
    assert outcome["charges"] == {}
    assert outcome["rounds"] == {"1": "failed: TooFewClients"}


def _enrolled(folder: Path, nodes: int, policy: str) -> dict[int, dict[str, Path]]:
    """Identities as `mezzotint roster` makes them, one roster, one policy; each node's files."""
    cards = []
    for place in range(nodes):
        key, records = str(folder / f"{place}.key"), str(folder / "records")
        made = _mezzotint("roster", "identity", key, "--records", records)
        cards.append(made.stdout)
    (folder / "cards.txt").write_text("".join(cards))
    _mezzotint("roster", "make", str(folder / "cards.txt"), "--out", str(folder / "roster.json"))
    (folder / "policy.toml").write_text(f"roster = 'roster.json'\n{policy}")
    files = {"policy": folder / "policy.toml", "records": folder / "records"}
    return {place: files | {"identity": folder / f"{place}.key"} for place in range(nodes)}


def _mezzotint(*words: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).parent / "mezzotint"
    return subprocess.run(
        [program, *words], capture_output=True, text=True, timeout=PATIENCE, check=True
    )


@pytest.mark.parametrize("forgets", [True, False], ids=["forgets", "remembers"])
def test_members_that_die_between_answer_and_state_give_no_second_answer(tmp_path, forgets):
    """Every client is killed once at a stage, after its answer has left and before its state has.

    Asked for another dealing, another input or another set, nobody answers: the answer is on its ledger. (Without the
    kills, Flower's state says so first.)
    """
    configs = _enrolled(tmp_path, NODES, "minimum = 4")
    with _deployed(tmp_path, {}, NODES, configs) as deployment:
        for stage in ("deal", "sum", "agree", "unite"):
            forget = stage if forgets else ""
            deployment.submit(f'nodes={NODES} attack="{stage}" forget="{forget}" outcome="{stage}"')
            outcome = json.loads(deployment.await_file(f"{stage}.json", PATIENCE).read_text())
            assert outcome.get("first", NODES) == NODES
            assert outcome["answers"] == 0, stage
    for place in range(NODES):
        identity = read_introduction(
            Client(identity=configs[place]["identity"].read_bytes()).card()
        )
        name = identity.identity.hex()
        ledger = LifetimeLedger(lifetime_path(tmp_path / "records", name), identity=name)
        assert (ledger.dealings, ledger.sums) == (4, 3)


def _check_spending(log: str, encoding: Encoding, claim: JsonObject) -> None:
    """A line per round, of four clients' sums; the last, of updates and of what was measured, is the result's."""
    assert (claim["delta"], claim["neighboring"], claim["observer"]) == (
        1e-6,
        "replace_one",
        "secure_sum",
    )
    assert claim["parts"].keys() == {"updates", "evaluations"}
    first = encoding.central(Sums(rounds=1, clients=4, size=claim["dimension"], delta=1e-6))
    assert first is not None
    grounds = "for replacing all data of one client (replace_one), computed, to an observer of the secure sums alone"
    lines = [
        line for line in log.splitlines() if "spent by the client that took part most often" in line
    ]
    for number, (line, epsilon) in enumerate(
        zip(lines, (first.epsilon, claim["epsilon"]), strict=True), start=1
    ):
        assert f"round {number}: sum of 4 clients" in line
        assert line.endswith(
            f"epsilon {above(epsilon)}, delta 1e-06 spent by the client that took part most often, {grounds}"
        )


def test_the_written_app_is_built_moved_and_run_from_another_folder(tmp_path, monkeypatch):
    """`mezzotint federate --app`, `flwr build`, `flwr run`, over TLS; the folder is moved in between.

    Nodes have identities, a policy with a budget and a roster of their own; one of them has a policy that refuses.
    After the last round the others measure. The log says after each round what has been spent.
    """
    written, moved, folder = tmp_path / "written", tmp_path / "elsewhere", tmp_path / "deployment"
    for one in (written, moved, folder):
        one.mkdir()
    monkeypatch.chdir(written)
    nodes = 5
    policy = "minimum = 4\nl2_norm = 1.0\nnoise_multiplier = 4.0\nevaluate_noise_multiplier = 4.0\nbudget = 50.0\n"
    configs = _enrolled(folder, nodes, policy)
    (folder / "strict.toml").write_text(
        "roster = 'roster.json'\nminimum = 4\nnoise_multiplier = 100.0\n"
    )
    configs[2]["policy"] = folder / "strict.toml"
    roster = folder / "roster.json"
    words = federate(
        tmp_path,
        "--app",
        "run-app",
        data={"population": 5},
        rounds={"count": 2, "clients_per_round": 5, "minimum": 4, "order": "fixed"},
        server={"roster": str(roster)},
        evaluate={"every": 2, "noise_multiplier": 16.0},
        mechanism={"kind": "rounded-gaussian", "noise_multiplier": 8.0},
    )
    assert run(words) == 0
    app = Path(shutil.move(written / "run-app", moved / "run-app"))
    shutil.rmtree(written)
    monkeypatch.chdir(moved)
    flwr = Path(sys.executable).parent / "flwr"
    built = subprocess.run(
        [flwr, "build", "--app", app], cwd=moved, capture_output=True, text=True, timeout=PATIENCE
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert list(moved.glob("*.fab"))
    with _deployed(
        folder, {}, nodes, configs
    ) as deployment:  # every stage starts a process per node
        started = deployment.submit('out="results"', app)
        report = json.loads(deployment.await_file("results/report.json", PATIENCE).read_text())
        log = deployment.log(started, until="clients measured")
    assert report["ledger"]["rounds"] == {"1": "released", "2": "released"}
    cards = [
        read_introduction(Client(identity=configs[place]["identity"].read_bytes()).card())
        for place in range(5)
    ]
    names = [card.identity.hex() for card in cards]
    refuses = names.pop(2)
    assert report["ledger"]["charges"] == dict.fromkeys(names, 2)
    assert report["incidents"] == [[number, refuses, "PolicyRefusal"] for number in (1, 2)]
    assert report["evaluations"]["incidents"] == [[1, refuses, "PolicyRefusal"]]
    assert report["evaluations"]["rounds"] == {"1": "released"}
    assert report["evaluations"]["charges"] == dict.fromkeys(names, 1)
    (measured,) = report["measured"]
    assert (measured["round"], measured["clients"]) == (2, 4)
    # Each client's loss is within [0, 5] and its accuracy within [0, 1]; false alarm below 1e-8.
    for key, largest in (("loss", 5.0), ("accuracy", 1.0)):
        value, error = measured[key]
        assert -6 * error < value < largest + 6 * error
    for name in names:
        assert (
            LifetimeLedger(folder / "records" / f"sums-{name[:16]}.jsonl", identity=name).sums == 3
        )
    _check_spending(
        log, load_encoding(app / "mezzotint_run" / "encoding.json"), report["claims"]["central"]
    )
    assert {path.name for path in (folder / "results").iterdir()} >= {
        "model.npz",
        "ledger.jsonl",
        "settings.json",
    }
