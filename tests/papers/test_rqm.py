"""The figures of the RQM paper: divergences against known values, and training with and without secure sums."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from mezzotint.core.errors import ParameterError
from mezzotint.datasets import load_federation
from mezzotint.families import discrete_gaussian, rqm
from mezzotint.federated.encoding import FixedPointEncoding, TableEncoding, noise_encoding
from mezzotint.federated.tasks import Rehearsal, mean_update, model_for
from mezzotint.papers import rqm as figures
from mezzotint.papers import rqm_training as training
from tolerances import FEW, MANY, printed


def test_figure2_against_known_divergences():
    rows = {(row["theta"], row["alpha"]): row for row in figures.figure2().rows}
    for theta, at_low, at_high in (
        (0.15, (2.911, 4.000), (3.584, 9.279)),
        (0.25, (4.927, 11.010), (5.468, 16.475)),
        (0.35, (8.406, 22.063), (9.040, 26.017)),
    ):
        for alpha, (ours, rival) in ((1.5, at_low), (1000.0, at_high)):
            assert rows[theta, alpha]["RQM"] == pytest.approx(ours, abs=printed(3))
            assert rows[theta, alpha]["PBM"] == pytest.approx(rival, abs=printed(3))
            assert rows[theta, alpha]["PBM - RQM"] > 0


def test_figure_8_has_the_two_values_that_the_paper_prints():
    result = figures.figure8()
    printed = {row["x / c"]: row for row in result.rows if row["paper, order 1000"] is not None}
    assert {round(x, 4): row["paper, order 1000"] for x, row in printed.items()} == {
        1.0: 5.46838,
        0.9333: 5.46190,
    }
    assert all(
        abs(row["difference"]) < 5e-6 for row in printed.values()
    )  # half of the last of five digits
    # "Minor fluctuations at quantization levels", "then a swift incline": a local maximum, below the value at c.
    curve = next(one for one in result.series if one.panel == "order 1000")
    kink = curve.x.index(max(x for x in curve.x if x < 0.94))
    assert max(curve.y[kink - 1], curve.y[kink + 1]) < curve.y[kink] < curve.y[-1]


def test_figure_7_peaks_at_opposite_ends_and_is_the_divergence_of_the_tables_rows():
    result = figures.figure7()
    for order in figures.PAIR_ORDERS:
        curves = [one for one in result.series if one.panel == f"order {order:g}"]
        peak = max(max(one.y) for one in curves)
        assert [curves[0].y[-1], curves[-1].y[0]] == pytest.approx([peak, peak], rel=FEW)
        assert all(value >= 0 for one in curves for value in one.y)
        assert peak == pytest.approx(figures.law_of(figures.PAIRS[0.25][0]).renyi(order), rel=FEW)
    first, second = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    assert figures.rqm_divergence_between(first, second, 2.0) == pytest.approx(
        math.log(0.25 / 0.25 + 0.0625 / 0.25 + 0.0625 / 0.5), rel=FEW
    )


def test_figure_9_is_figure_2_at_low_orders():
    rows = {row["alpha"]: row for row in figures.figure9().rows}
    assert rows[1.5]["RQM"] == pytest.approx(2.911, abs=printed(3))
    for alpha, row in rows.items():
        # 15 tosses, each between 0.65 and 0.35: sums by hand.
        tosses = (
            15 * math.log(0.65**alpha * 0.35 ** (1 - alpha) + 0.35**alpha * 0.65 ** (1 - alpha))
            if alpha != 1
            else 0
        )
        if alpha != 1:
            assert row["PBM"] == pytest.approx(tosses / (alpha - 1), rel=MANY)
        assert row["RQM"] < row["PBM"] if alpha >= 1 else row["RQM"] < 1.053 * row["PBM"]


def test_figure_11_in_small(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    for name, count in (("train", 600), ("test", 200)):
        y = rng.integers(0, 5, count)
        x = rng.integers(0, 60, (count, 3072), dtype=np.uint8)
        x[np.arange(count)[:, None], y[:, None] * 50 + np.arange(50)] = 255
        (tmp_path / name).write_bytes(pickle.dumps({b"data": x, b"fine_labels": y.tolist()}))
    monkeypatch.setenv(training.CIFAR_VARIABLE, str(tmp_path))
    monkeypatch.setattr(training, "PER_ROUND", 4)
    how = training.Experiment(rounds=2, seeds=2, evaluations=2)
    found = training.figure11(how)
    rows = {row["method"]: row for row in found.rows}
    assert list(rows) == [
        "noise-free clipped",
        "PBM",
        "RQM Delta=1c q=0.42",
        "central Gaussian",
        "noise-free, no clipping",
    ]
    assert "CIFAR-100" in found.title
    assert all(row["loss"] < math.log(100) for row in rows.values())
    monkeypatch.delenv(training.CIFAR_VARIABLE)
    with pytest.raises(ParameterError, match=training.CIFAR_VARIABLE):
        training.figure11()


def test_the_optimal_table_has_the_divergence_of_rqm_and_a_smaller_error():
    table = figures.randomized(figures.PAIRS[0.25][0])
    best = training.optimal_at(table.renyi(training.TRAINING_ORDER), 1e-5)
    assert best.renyi(training.TRAINING_ORDER) <= table.renyi(training.TRAINING_ORDER)
    assert (best.lower, best.upper) == (-1e-5, 1e-5)
    assert best.mse() < 0.5 * table.mse() * 1e-10  # inputs of [-1, 1] are 1e5 times those
    assert np.ptp(np.diff(best.levels)) < FEW


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


@pytest.mark.slow
def test_a_training_figure_in_small(tmp_path, monkeypatch):
    monkeypatch.setenv(training.FOLDER_VARIABLE, _write(tmp_path))
    how = training.Experiment(rounds=4, seeds=2, alone_seeds=2, evaluations=2, learning_rate=500.0)
    found = training.training_figure(4, 0.15, how)
    names = [row["mechanism"] for row in found.rows]
    assert names[:2] == ["noise-free clipped", "PBM"]
    assert len(names) == 6
    assert "45 writers" in found.note
    for row in found.rows[1:]:
        assert row["accuracy"] > 50
        assert row["epsilon of a report"] > 3
    assert found.rows[1]["loss below PBM"] == 0
    assert [curve.x for curve in found.series] == [(2.0, 4.0)] * 18
    assert "cannot tell the mechanisms apart" in found.note
    alone = {row["mechanism"]: row["one client: loss above noise-free"] for row in found.rows}
    assert alone["noise-free clipped"] == 0
    assert alone["PBM"] > alone["optimal table"]
    found.png(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


def test_without_the_data_the_remedy_is_named(monkeypatch):
    monkeypatch.delenv(training.FOLDER_VARIABLE, raising=False)
    with pytest.raises(ParameterError, match=training.FOLDER_VARIABLE):
        training.figure4()


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
    assert run.run(FixedPointEncoding(clip=1.0), seed=3) == run.run(
        FixedPointEncoding(clip=1.0), seed=3
    )
    fine = noise_encoding(
        lambda deviation: discrete_gaussian(sigma=deviation),
        noise_multiplier=1e-3,
        l2_norm=100.0,
        clients=10,
        size=run.model.initial(0).size,
    )
    exact, near = run.run(FixedPointEncoding(clip=1.0), seed=3), run.run(fine, seed=3)
    assert near[-1][1] == pytest.approx(
        exact[-1][1], rel=0.05
    )  # of quality alone: a fine grid learns about as well
