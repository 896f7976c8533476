"""What the server makes of mean updates: optimizers, and their state over a restart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord

from federated.grids import LocalGrid
from federated.test_app import CLIENTS, _grid, _settings
from federated.test_strategy import EXACT, _app
from mezzotint.core.errors import ParameterError
from mezzotint.datasets import load_federation
from mezzotint.federated.app import run_server
from mezzotint.federated.encoding import FixedPointEncoding
from mezzotint.federated.models import LocalTraining, model_for
from mezzotint.federated.rehearsal import Rehearsal
from mezzotint.federated.run_ledger import Checkpoint
from mezzotint.federated.secure_strategy import SecureStrategy
from mezzotint.federated.server_optimizers import FedAvg, FedAvgM, ServerOptimizer, optimizer_named
from mezzotint.federated.settings import RunSettings
from tolerances import FEW, SINGLE

MEANS = np.random.default_rng(7).normal(size=(12, 30)) * 0.1


def _moves(optimizer: ServerOptimizer) -> np.ndarray:
    state, found = {}, []
    for mean in MEANS:
        state, change = optimizer.step(state, mean)
        found.append(change)
    return np.array(found)


def test_the_mean_update_alone_has_no_memory():
    np.testing.assert_array_equal(_moves(FedAvg()), MEANS)


def test_momentum_is_that_of_torch():
    torch = pytest.importorskip("torch")
    weights = torch.zeros(30, dtype=torch.float64, requires_grad=True)
    sgd = torch.optim.SGD([weights], lr=1.0, momentum=0.8)
    found = np.cumsum(_moves(FedAvgM(momentum=0.8)), axis=0)
    for place, mean in enumerate(MEANS):
        weights.grad = -torch.from_numpy(mean)
        sgd.step()
        np.testing.assert_allclose(found[place], weights.detach().numpy(), rtol=0, atol=FEW)


@pytest.mark.parametrize(
    ("make", "bad"),
    [
        (FedAvgM, {"momentum": 1.0}),
        (FedAvgM, {"momentum": -0.1}),
    ],
)
def test_optimizers_that_make_no_sense_are_refused(make, bad):
    with pytest.raises(ParameterError, match=next(iter(bad))):
        make(**bad)


def test_settings_refuse_unknown_optimizers():
    with pytest.raises(ParameterError, match="fedavgm"):
        RunSettings(server_optimizer="adam")
    assert optimizer_named("fedavgm") == FedAvgM()


def test_a_strategy_moves_the_model_as_its_optimizer_says():
    """Mean updates of 2.5 each: with momentum 1/2 the model moves by 2.5, then by 3.75, times the learning rate."""
    strategy = SecureStrategy(
        encoding=EXACT, clients_per_round=6, learning_rate=2.0, optimizer=FedAvgM(momentum=0.5)
    )
    grid = LocalGrid([_app(float(place)) for place in range(6)])
    arrays = ArrayRecord({"a": Array(np.zeros(4))})
    seen: list[int] = []

    def own(number: int, record: ArrayRecord) -> MetricRecord:
        seen.append(number)
        return MetricRecord({"first": float(record["a"].numpy()[0])})

    result = strategy.start(
        grid=grid, initial_arrays=arrays, num_rounds=2, train_config=ConfigRecord(), evaluate_fn=own
    )
    np.testing.assert_allclose(result.arrays["a"].numpy(), 2.0 * (2.5 + 3.75), atol=8 * EXACT.step)
    np.testing.assert_allclose(strategy.optimizer_state["momentum"], 3.75, atol=4 * EXACT.step)
    assert seen == [0, 1, 2]
    metrics = result.evaluate_metrics_serverapp
    assert metrics[2]["first"] == pytest.approx(result.arrays["a"].numpy()[0], rel=SINGLE)


def test_what_an_optimizer_remembers_outlives_the_server(tmp_path):
    """Two rounds, a new server, one round: the model is that of three rounds (the mechanism is a fine grid)."""
    settings = replace(
        _settings(tmp_path, mechanism="", clip=1.0, rounds=3, minimum=CLIENTS), server_optimizer="fedavgm",
        server_learning_rate=0.01, out=str(tmp_path / "whole"),
    )  # fmt: skip
    run_server(_grid(), settings)
    whole = Checkpoint.load(tmp_path / "whole")
    parts = replace(settings, out=str(tmp_path / "parts"))
    run_server(_grid(), replace(parts, rounds=2))
    assert set(Checkpoint.load(tmp_path / "parts").optimizer) == {"momentum"}
    report = run_server(_grid(), parts)
    assert len(report.accuracy) == 4  # those before the restart are told again
    found = Checkpoint.load(tmp_path / "parts")
    np.testing.assert_array_equal(found.parameters, whole.parameters)
    for name, vector in whole.optimizer.items():
        np.testing.assert_array_equal(found.optimizer[name], vector)


def test_an_evaluation_of_ones_own_is_told_and_reported(tmp_path):
    lines: list[str] = []
    report = run_server(
        _grid(), _settings(tmp_path, rounds=2), lines.append,
        evaluate=lambda done, parameters: {"largest": float(np.abs(parameters).max()), "done": done},
    )  # fmt: skip
    assert [one["done"] for one in report.metrics] == [0, 1, 2]
    assert report.metrics[0]["largest"] == 0.0 < report.metrics[1]["largest"]
    assert f"largest {report.metrics[2]['largest']:.4g}" in lines[-1]


def test_a_rehearsal_takes_training_and_optimizer():
    """Plain: a rehearsal of one client is that client's training; momentum 0 is the mean update."""
    federation = load_federation("digits", clients=4, dirichlet=5.0)
    model = model_for("softmax", federation)
    training = LocalTraining(steps=2, learning_rate=0.1)
    common = {
        "federation": federation,
        "model": model,
        "clients_per_round": 4,
        "learning_rate": 1.0,
        "rounds": 3,
        "every": 1,
    }
    fine = FixedPointEncoding(clip=1.0, grid_bits=24)
    plain = Rehearsal(**common, training=training).run(fine, seed=1)
    still = Rehearsal(**common, training=training, optimizer=FedAvgM(momentum=0.0)).run(
        fine, seed=1
    )
    moved = Rehearsal(**common, training=training, optimizer=FedAvgM()).run(fine, seed=1)
    assert plain == still
    assert plain != moved
    at = model.initial(1)
    for number in range(3):
        at = at + np.mean(
            [training.update(model, at, x, y, seed=1) for x, y in federation.clients], axis=0
        )
        loss, _ = model.evaluate(at, federation.test_x, federation.test_y)
        # Rounding moves a parameter by at most a step of the grid in each round.
        assert plain[number][1] == pytest.approx(loss, abs=3 * fine.step * at.size)
