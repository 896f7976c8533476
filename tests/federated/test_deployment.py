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
from mezzotint.cli import run

NODES, COORDINATES = 8, 3000
pytestmark = pytest.mark.slow


def _inputs(place: int) -> np.ndarray:
    """What the app's clients send: multiples of the grid's step, so encoding is exact."""
    return np.random.default_rng(place).integers(-7, 8, COORDINATES) + 7


@contextlib.contextmanager
def _deployed(folder, stops: dict[int, str], nodes: int = NODES):
    deployment = Deployment(folder, nodes, stops)
    try:
        yield deployment
    finally:
        deployment.close()


def _run(deployment: Deployment, stops: dict[int, str], settings: str = "") -> dict:
    deployment.submit(settings)
    for place in stops:
        deployment.await_file(f"marker-{place}", 240)
        deployment.kill(f"node-{place}")
    return json.loads(deployment.await_file("outcome.json", 300).read_text())


def _masked(outcome: dict) -> dict[str, bytes]:
    return {who: bytes.fromhex(text)[9 + 64 :] for stage, who, text in outcome["payloads"] if stage == "sum"}


def test_two_nodes_are_killed_and_the_sum_of_the_others_is_right_bit_for_bit(tmp_path):
    """One is killed while it deals, one after its masked input has gone out; then the rest sum once more."""
    stops = {2: "deal", 5: "agree"}
    with _deployed(tmp_path, stops) as deployment:
        outcome = _run(deployment, stops)
        deployment.submit('nodes=6 minimum=4 outcome="again"')
        again = json.loads(deployment.await_file("again.json", 300).read_text())
    survivors = [place for place in range(NODES) if place != 2]
    assert outcome["values"] == sum(_inputs(place) for place in survivors).tolist()
    assert sorted(outcome["charges"]) == sorted(str(place) for place in survivors)
    # Whoever of the dead was still listed and drawn is missing from the second sum.
    assert len(again["charges"]) >= 4
    assert again["values"] == sum(_inputs(int(place)) for place in again["charges"]).tolist()
    first, second = _masked(outcome), _masked(again)
    assert len(first) == 7
    for payload in (*first.values(), *second.values()):
        # 7 bits each; false alarm below 1e-8.
        planes = np.unpackbits(np.frombuffer(payload, dtype=np.uint8), bitorder="little")[: 7 * COORDINATES]
        cells = np.bincount(planes.reshape(-1, 7) @ (1 << np.arange(7)), minlength=128)
        assert stats.chisquare(cells).pvalue > 1e-10
    # The same input twice: no 8 bytes in common, wherever they stand (by chance below 1e-12).
    windows = [
        {payload[i : i + 8] for payload in part.values() for i in range(len(payload) - 7)} for part in (first, second)
    ]
    assert not windows[0] & windows[1]


def test_under_the_minimum_the_sum_is_refused(tmp_path):
    stops = {2: "deal", 5: "sum"}
    with _deployed(tmp_path, stops) as deployment:
        outcome = _run(deployment, stops, "minimum=7")
    assert outcome["values"] is None
    assert outcome["charges"] == {}
    assert outcome["rounds"] == {"1": "failed: TooFewClients"}


def test_the_written_app_is_built_moved_and_run_from_another_folder(tmp_path, monkeypatch):
    """`mezzotint federate --app`, `flwr build`, `flwr run`, over TLS; the folder is moved in between."""
    written, moved = tmp_path / "written", tmp_path / "elsewhere"
    written.mkdir()
    moved.mkdir()
    monkeypatch.chdir(written)
    asked = ["--mechanism", "ddg", "--noise-multiplier", "8", "--clients", "4", "--per-round", "4", "--rounds", "2"]
    assert run(["federate", *asked, "--app", "run-app"]) == 0
    app = Path(shutil.move(written / "run-app", moved / "run-app"))
    shutil.rmtree(written)
    monkeypatch.chdir(moved)
    flwr = Path(sys.executable).parent / "flwr"
    built = subprocess.run([flwr, "build", "--app", app], cwd=moved, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stdout + built.stderr
    assert list(moved.glob("*.fab"))
    folder = tmp_path / "deployment"
    folder.mkdir()
    with _deployed(folder, {}, 4) as deployment:  # every stage starts a process per node
        deployment.submit('out="results"', app)
        report = json.loads(deployment.await_file("results/report.json", 500).read_text())
    assert report["ledger"]["rounds"] == {"1": "released", "2": "released"}
    assert report["ledger"]["charges"] == {str(place): 2 for place in range(4)}
    assert report["incidents"] == []
    assert report["claims"]["central"]["epsilon"] > 0
    assert {path.name for path in (folder / "results").iterdir()} >= {"model.npz", "ledger.jsonl", "settings.json"}
