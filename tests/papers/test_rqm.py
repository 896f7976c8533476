"""The figures of the RQM paper: divergences against known values, and training with and without secure sums."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest

from mezzotint.core.errors import ParameterError
from mezzotint.datasets import load_federation
from mezzotint.papers import catalogue, rqm as figures, rqm_training as training, simulation
from mezzotint.papers.exact_laws import renyi_divergences
from mezzotint.papers.reproduction import Run
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
    curve = next(one for one in result.series if one.panel == "alpha = 1000")
    kink = curve.x.index(max(x for x in curve.x if x < 0.94))
    assert max(curve.y[kink - 1], curve.y[kink + 1]) < curve.y[kink] < curve.y[-1]


def test_figure_7_peaks_at_opposite_ends_and_is_the_divergence_of_the_tables_rows():
    result = figures.figure7()
    for order in figures.PAIR_ORDERS:
        curves = [one for one in result.series if one.panel == f"alpha = {order:g}"]
        peak = max(max(one.y) for one in curves)
        assert [curves[0].y[-1], curves[-1].y[0]] == pytest.approx([peak, peak], rel=FEW)
        assert all(value >= 0 for one in curves for value in one.y)
        assert peak == pytest.approx(figures.law_of(figures.PAIRS[0.25][0]).renyi(order), rel=FEW)
    first, second = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    assert float(renyi_divergences(first, second, 2.0)) == pytest.approx(
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


def test_figure_11_in_small(tmp_path):
    rng = np.random.default_rng(0)
    for name, count in (("train", 600), ("test", 200)):
        y = rng.integers(0, 5, count)
        x = rng.integers(0, 60, (count, 3072), dtype=np.uint8)
        x[np.arange(count)[:, None], y[:, None] * 50 + np.arange(50)] = 255
        (tmp_path / name).write_bytes(pickle.dumps({b"data": x, b"fine_labels": y.tolist()}))
    found = catalogue.reproduce("rqm-figure11", data=str(tmp_path), rounds=2, seeds=2)
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


@pytest.mark.parametrize(
    "name",
    ["rqm-figure4", "rqm-figure11", "rqm-tradeoff", "rqp-table1", "rqp-bits", "optm-figure4d"],
)
def test_without_the_data_the_option_is_named(name):
    with pytest.raises(ParameterError, match="data=None"):
        catalogue.reproduce(name)
    with pytest.raises(ParameterError, match="takes data"):
        catalogue.reproduce(name, data="x", epsilon=1)


def test_the_optimal_table_has_the_divergence_of_rqm_and_a_smaller_error():
    law = figures.law_of(figures.PAIRS[0.25][0])
    best = training.optimal_at(law.renyi(training.TRAINING_ORDER))
    assert best.renyi(training.TRAINING_ORDER) <= law.renyi(training.TRAINING_ORDER)
    assert best.mse() < 0.5 * figures.grid_error(law)
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
def test_a_training_figure_in_small(tmp_path):
    keep = tmp_path / "kept.jsonl"
    asked = {"data": _write(tmp_path), "rounds": 4, "seeds": 2, "quick": True, "keep": keep}
    told: list[float] = []
    run = Run(progress=lambda done, total: told.append(done), **asked)
    found = training.training_figure(4, 0.15, run)
    names = [row["mechanism"] for row in found.rows]
    assert names[:2] == ["noise-free clipped", "PBM"]
    assert len(names) == 6
    assert "45 writers" in found.note
    assert len(told) == 6 * 2 * (4 + 20)
    for row in found.rows[1:]:
        assert len(row["runs"]) == 2
    assert all(row["epsilon of a report"] > 3 for row in found.rows[1:-1])
    # Its divergence bounds the optimal table; its epsilon is the solver's.
    assert found.rows[-1]["epsilon of a report"] is None
    assert found.rows[1]["loss below PBM"] == 0
    assert len(found.series) == 18 + 4
    again = training.training_figure(4, 0.15, Run(**asked))
    assert again.rows == found.rows
    assert len(keep.read_text().splitlines()) == 6 * (2 + 2)
    found.png(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


def _experiment(**more):
    how = {"rounds": 6, "clients_per_round": 3, "learning_rate": 0.5, "evaluations": 3}
    return simulation.Experiment(**{**how, **more})


@pytest.mark.parametrize("model", ["softmax", "small-cnn"])
def test_a_run_goes_on_where_it_stopped(tmp_path, model, monkeypatch):
    federation = load_federation("femnist", folder=_write(tmp_path), clients=0)
    contestant = simulation.Contestant(clip=0.05, table=figures.randomized((1.0, 0.42)))
    whole = simulation.Simulation(federation, _experiment(model=model)).run(contestant, 3)
    monkeypatch.setattr(simulation, "CHECKPOINT", 2)
    place = tmp_path / "run.pt"
    done = 0

    def stop():
        nonlocal done
        done += 1
        if done == 5:
            raise KeyboardInterrupt

    run = simulation.Simulation(federation, _experiment(model=model))
    with pytest.raises(KeyboardInterrupt):
        run.run(contestant, 3, checkpoint=place, tick=stop)
    assert place.is_file()
    fresh = simulation.Simulation(federation, _experiment(model=model))
    assert fresh.run(contestant, 3, checkpoint=place) == whole
    assert not place.exists()


def test_the_papers_network_has_its_number_of_weights():
    network = simulation.network("cnn", (28, 28), 62)
    assert sum(part.numel() for part in network.parameters()) == 1_206_590


def test_codes_are_drawn_with_the_tables_probabilities():
    """Means and variances of simulated reports against the table's: 16-bit chances err by 2^-16 a level."""
    table = figures.randomized((1.0, 0.42))
    codes, rng = simulation.CodeTable(table), np.random.default_rng(1)
    for x in (-1.0, -0.61, 0.0, 0.3, 1.0):
        draws = codes.report(np.full(200_000, x, dtype=np.float32), rng)
        spread = math.sqrt(float(table.variance(x)) / draws.size)
        coarse = 16 * 2.0**-16 * float(np.ptp(table.levels))
        assert abs(float(draws.mean(dtype=np.float64)) - x) < 6 * spread + coarse
        # A variance of 200,000 draws has a standard error of .3 % or so.
        assert float(draws.var(dtype=np.float64)) == pytest.approx(
            float(table.variance(x)), rel=0.03
        )


def test_the_same_seed_gives_the_same_clients_whatever_the_mechanism(tmp_path):
    federation = load_federation("femnist", folder=_write(tmp_path), clients=0)
    run = simulation.Simulation(federation, _experiment(learning_rate=0.01))
    free = simulation.Contestant(clip=1.0)
    assert run.run(free, 3) == run.run(free, 3)
    assert run.run(free, 3) != run.run(free, 4)
    noisy = simulation.Contestant(clip=1.0, deviation=1e-9)
    # Noise of 1e-9 moves a loss by less than single precision does over the rounds.
    assert run.run(noisy, 3)[-1].loss == pytest.approx(run.run(free, 3)[-1].loss, rel=1e-5)
