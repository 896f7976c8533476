"""The figures of the RQM paper: divergences against known values, and training with and without secure sums."""

from __future__ import annotations

import numpy as np
import pytest

from mezzotint.core.errors import ParameterError
from mezzotint.datasets import load_federation
from mezzotint.families import discrete_gaussian, rqm
from mezzotint.federated.encoding import FixedPointEncoding, TableEncoding, noise_encoding
from mezzotint.federated.tasks import Rehearsal, mean_update, model_for
from mezzotint.papers import rqm as figures


def test_figure2_against_known_divergences():
    rows = {(row["theta"], row["alpha"]): row for row in figures.figure2().rows}
    for theta, at_low, at_high in (
        (0.15, (2.911, 4.000), (3.584, 9.279)),
        (0.25, (4.927, 11.010), (5.468, 16.475)),
        (0.35, (8.406, 22.063), (9.040, 26.017)),
    ):
        for alpha, (ours, rival) in ((1.5, at_low), (1000.0, at_high)):
            assert rows[theta, alpha]["RQM"] == pytest.approx(ours, abs=6e-4)
            assert rows[theta, alpha]["PBM"] == pytest.approx(rival, abs=6e-4)
            assert rows[theta, alpha]["PBM - RQM"] > 0


def test_the_optimal_table_has_the_divergence_of_rqm_and_a_smaller_error():
    table = figures.randomized(figures.PAIRS[0.25][0])
    best = figures.optimal_at(table.renyi(figures.TRAINING_ORDER), 1e-5)
    assert best.renyi(figures.TRAINING_ORDER) <= table.renyi(figures.TRAINING_ORDER)
    assert (best.lower, best.upper) == (-1e-5, 1e-5)
    assert best.mse() < 0.5 * table.mse() * 1e-10
    assert np.ptp(np.diff(best.levels)) < 1e-14


def _write(folder) -> str:
    """FEMNIST in shape: 45 writers whose images tell their labels."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 4, 45 * 8)
    x = rng.integers(200, 256, (y.size, 28, 28)).astype(np.uint8)
    for place, label in enumerate(y):
        x[place, 7 * label : 7 * label + 7] = 0
    path = folder / "femnist.npz"
    np.savez(path, x=x, y=y, writer=np.repeat(np.arange(45), 8), split=np.tile([0] * 7 + [1], 45))
    return str(path)


def test_a_training_figure_in_small(tmp_path, monkeypatch):
    monkeypatch.setenv(figures.FOLDER_VARIABLE, _write(tmp_path))
    how = figures.Experiment(rounds=4, seeds=2, evaluations=2, learning_rate=500.0)
    found = figures.training_figure(4, 0.15, how)
    names = [row["mechanism"] for row in found.rows]
    assert names[:2] == ["noise-free clipped", "PBM"]
    assert len(names) == 6
    assert "45 writers" in found.note
    for row in found.rows[1:]:
        assert row["accuracy"] > 50
        assert row["epsilon of a report"] > 3
    assert found.rows[1]["loss below PBM"] == 0
    assert [curve.x for curve in found.series] == [(2.0, 4.0)] * 12
    found.png(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


def test_without_the_data_the_remedy_is_named(monkeypatch):
    monkeypatch.delenv(figures.FOLDER_VARIABLE, raising=False)
    with pytest.raises(ParameterError, match=figures.FOLDER_VARIABLE):
        figures.figure4()


def test_plain_sums_of_a_rehearsal_are_unbiased_means():
    """Within 6 standard errors of the clients' mean, for each kind of encoding."""
    rng = np.random.default_rng(1)
    updates = list(rng.uniform(-0.2, 0.2, (30, 50)))
    mean = np.mean(updates, axis=0)
    table = TableEncoding(mechanism=rqm(lower=-0.5, upper=0.5, levels=16, extension=0.5, q=0.42))
    for encoding in (table, FixedPointEncoding(clip=0.5)):
        draws = np.array([mean_update(encoding, updates, rng=rng) for _ in range(100)])
        spread = 6 * draws.std(axis=0) / 10 + 1e-4
        assert (np.abs(draws.mean(axis=0) - mean) < spread).all()


def test_the_same_seed_gives_the_same_clients_whatever_the_mechanism(tmp_path):
    federation = load_federation("femnist", folder=_write(tmp_path), clients=0)
    run = Rehearsal(
        federation=federation,
        model=model_for("softmax", federation),
        per_round=10,
        learning_rate=0.01,
        rounds=2,
        every=1,
    )
    assert run.run(FixedPointEncoding(clip=1.0), seed=3) == run.run(FixedPointEncoding(clip=1.0), seed=3)
    fine = noise_encoding(
        lambda deviation: discrete_gaussian(sigma=deviation),
        noise_multiplier=1e-3,
        l2_norm=100.0,
        clients=10,
        size=run.model.initial(0).size,
    )
    exact, near = run.run(FixedPointEncoding(clip=1.0), seed=3), run.run(fine, seed=3)
    assert near[-1][1] == pytest.approx(exact[-1][1], rel=0.05)
