"""The example folder: its app runs as it is, keeps to its epsilon and learns; `flwr build` takes it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from federated.grids import LocalGrid
from mezzotint.federated.secure_strategy import SecureStrategy

EXAMPLE = Path(__file__).parents[2] / "examples" / "federated"


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(EXAMPLE))
    from digits_app import client, server

    yield client, server
    for name in [name for name in sys.modules if name.startswith("digits_app")]:
        del sys.modules[name]


def _config(**others: Any) -> dict[str, Any]:
    written = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    return written["tool"]["flwr"]["app"]["config"] | others


def _run(app: Any, grid: LocalGrid, config: dict[str, Any]) -> None:
    for context in grid.contexts.values():
        context.run_config.update(config)
    context = Context(run_id=1, node_id=0, node_config={}, state=RecordDict(), run_config=config)
    app[1].app(grid, context)


def test_the_example_learns_within_its_epsilon(
    app: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is: 50 clients; the last epsilon that it logs is the budget's, and nobody was refused."""
    spent: list[float] = []
    start = SecureStrategy.start

    def noted(self: SecureStrategy, **words: Any) -> Any:
        found = start(self, **words)
        spent.append(float(found.train_metrics_clientapp[words["num_rounds"]]["epsilon"]))
        assert self.incidents == []
        return found

    monkeypatch.setattr(SecureStrategy, "start", noted)
    config = _config()
    grid = LocalGrid([app[0].app] * config["clients-per-round"])
    _run(app, grid, config)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("after")]
    scores = [float(line.split()[-1]) for line in lines]
    assert len(scores) == config["rounds"] + 1
    assert scores[0] < 0.2
    assert scores[-1] > 0.5  # noise is drawn anew; two runs ended at .78 and .81
    assert 0.95 * config["epsilon"] < spent[0] <= config["epsilon"]


def test_its_clients_take_data_of_their_own(app: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "mine.npz", x=rng.random((30, 64)), y=rng.integers(0, 10, 30))
    from digits_app import task

    images, labels = task.load_client(0, 20, str(tmp_path / "mine.npz"))
    assert images.shape == (30, 64)
    weights = task.train(task.initial_weights(), images, labels, steps=50)
    assert task.accuracy(weights, images, labels) > 0.5


@pytest.mark.slow
def test_flower_builds_the_example(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "app")
    flwr = Path(sys.executable).parent / "flwr"
    built = subprocess.run(
        [flwr, "build", "--app", tmp_path / "app"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    assert list(tmp_path.glob("*.fab"))
