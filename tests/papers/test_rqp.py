"""The papers' tables and figures of training: known numbers, and the values that math note 3.4 measured."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mezzotint import datasets
from mezzotint.papers import descent, optm_tables, rqp
from mezzotint.papers.reproduction import Run
from tolerances import FEW, MANY, printed

pytest.importorskip("torch")
pytest.importorskip("opacus")
pytest.importorskip("sklearn")

# Medians over 10 splits x 10 runs on Diagnostic, 4 bits, Poisson batches, z = 1.279: separate programs.
MEASURED = {
    ("logreg", "floats", "non-private, clipped"): 96.49,
    ("logreg", "floats", "DP-SGD"): 95.61,
    ("logreg", "printed", "nearest"): 93.86,
    ("logreg", "printed", "RQP on the published curve, z=2.3, q=0.940"): 91.23,
    ("logreg", "printed", "q=0.9"): 92.11,
    ("logreg", "printed", "q=0.7"): 85.96,
    ("logreg", "printed", "q=0.5"): 72.37,
    ("logreg", "master", "nearest"): 93.9,
    ("logreg", "master", "q=0.9"): 93.9,
    ("logreg", "master", "q=0.5"): 89.5,
    ("svm", "floats", "non-private, clipped"): 96.93,
    ("svm", "floats", "DP-SGD"): 94.30,
    ("svm", "printed", "nearest"): 93.86,
    ("svm", "printed", "RQP on the published curve, z=2.3, q=0.940"): 88.60,
    ("svm", "printed", "q=0.9"): 89.47,
    ("svm", "printed", "q=0.7"): 82.46,
    ("svm", "printed", "q=0.5"): 69.30,
    ("svm", "master", "nearest"): 93.9,
    ("svm", "master", "q=0.9"): 93.0,
    ("svm", "master", "q=0.5"): 88.6,
}

# MNIST, means of 3 seeds of a separate program; the lines where the iterate is quantized vary from start to start.
MNIST = {
    ("floats", "non-private, clipped"): (89.3, 0.5),
    ("floats", "DP-SGD"): (88.1, 0.8),
    ("printed", "nearest"): (46.2, 5.0),
    ("printed", "stochastic"): (82.3, 1.5),
    ("printed", "q=0.9"): (10.5, 5.0),
    ("master", "nearest"): (87.3, 0.8),
    ("master", "stochastic"): (87.5, 0.8),
    ("master", "q=0.99"): (87.1, 0.9),
    ("master", "q=0.9"): (85.4, 1.0),
    ("master", "q=0.5"): (70.8, 5.0),
    ("master", "q=0.9, exported nearest"): (86.9, 0.8),
    ("master", "q=0.5, exported nearest"): (82.6, 1.5),
}


@pytest.mark.slow
def test_table1_on_diagnostic_in_both_readings() -> None:
    for model in ("logreg", "svm"):
        problem = rqp.diagnostic(model)
        rows = {
            (line.reading, line.label): rqp.table_row(
                rqp.Case(problem=problem, line=line), line.runs(problem)
            )
            for line in rqp.lines(problem)
        }
        for (measured, reading, method), value in MEASURED.items():
            if measured != model:
                continue
            row = rows[reading, method]
            # Both err: four standard errors of their difference, a false alarm in 1,000 over all rows.
            bound = 4 * math.sqrt(2) * row["standard_error"]
            assert abs(row["ours"] - value) <= bound, (model, reading, method, row["ours"])
        for reading in rqp.READINGS:
            falling = [rows[reading, f"q={q}"]["ours"] for q in (0.99, 0.9, 0.7, 0.5)]
            assert falling == sorted(falling, reverse=True)
            # In neither reading is random replacement above nearest rounding, beyond its error.
            nearest = rows[reading, "nearest"]
            assert all(value <= nearest["ours"] + nearest["standard_error"] for value in falling)
        for (reading, label), row in rows.items():
            if row["epsilon"] is not None and "published" not in label:
                assert 0.99 < row["epsilon"] <= 1, (reading, row)
        assert rows["printed", "nearest"]["paper"] == rqp.PAPER[problem.panel]["nearest"]


@pytest.mark.slow
def test_table1_on_mnist_in_both_readings(shared_data: Path) -> None:
    problem = rqp.mnist(str(shared_data / "mnist"), runs=3)
    for line in rqp.lines(problem):
        if (line.reading, line.label) in MNIST:
            mean, tolerance = MNIST[line.reading, line.label]
            assert line.runs(problem).mean() == pytest.approx(mean, abs=tolerance), line.label


@pytest.mark.slow
def test_bits_do_not_help_with_master_weights(shared_data: Path) -> None:
    problem = rqp.mnist(str(shared_data / "mnist"), runs=1)
    noise = problem.noise()

    def accuracy(bits: int, reading: rqp.Reading) -> float:
        line = rqp.Line(label="nearest", reading=reading, noise=noise, bits=bits)
        return float(line.runs(problem).mean())

    noted = {2: 87.3, 3: 87.3, 4: 87.1, 5: 87.2, 6: 87.2, 7: 87.2, 8: 87.2}
    for bits, value in noted.items():
        # Points of per cent: those noted are of other seeds.
        assert accuracy(bits, "master") == pytest.approx(value, abs=1.0)
    # It stalls: steps seldom reach half a cell. Where it stays depends on how the start at 0, midway
    # between two levels, is rounded: 9.8 in a separate program, 18 to 32 over three seeds here.
    assert accuracy(2, "printed") < 35
    # As above.
    assert accuracy(6, "printed") == pytest.approx(86.9, abs=1.0)


def test_random_replacement_moves_only_what_it_touches() -> None:
    """Each source of randomness has its own stream: batches and noise are the same whatever q is."""
    problem = rqp.diagnostic("svm")
    data = problem.load(0)
    grid = descent.Grid(bits=4, bound=0.3)
    how = descent.Descent(steps=1, batch=10, clip=0.45, noise=1.0, grid=grid, weights="master")
    kept = how.finish(data, 7).master
    replaced = replace(how, grid=replace(grid, q=0.5))
    assert np.array_equal(replaced.finish(data, 7).master, kept)
    assert not np.array_equal(replaced.finish(data, 7).used, how.finish(data, 7).used)
    assert not np.array_equal(how.finish(data, 8).master, kept)


def test_records_are_rows_of_features_and_a_constant() -> None:
    images = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    labels = np.array([0, 2, 1, 2])
    labelled = datasets.Dataset(
        name="small",
        train_x=images[:3],
        train_y=labels[:3],
        test_x=images[3:],
        test_y=labels[3:],
        classes=3,
    )
    data = descent.linear_data(labelled, "softmax")
    assert data.x.tolist() == [[*image.ravel().tolist(), 1.0] for image in images[:3]]
    assert data.test_x.tolist() == [[*images[3].ravel().tolist(), 1.0]]
    assert (data.y.tolist(), data.test_y.tolist()) == ([0, 2, 1], [2])
    assert [data.outputs, descent.linear_data(labelled, "svm").outputs] == [3, 1]


def test_each_run_of_each_split_has_a_seed_of_its_own() -> None:
    pytest.importorskip("sklearn")
    problem = rqp.diagnostic("logreg", splits=2, runs=5)
    line = rqp.Line(label="nearest", reading="printed", noise=1.0)
    expected = [
        [line.accuracy(problem, problem.load(split), 1000 * split + run) for run in range(5)]
        for split in range(2)
    ]
    assert line.runs(problem).tolist() == expected
    assert len(np.unique(expected)) > 2
    with pytest.raises(AssertionError, match="one seed"):
        rqp.diagnostic("logreg", runs=1001)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
def test_places_on_the_grid(rounding: descent.Rounding) -> None:
    grid = descent.Grid(bits=3, bound=0.3, rounding=rounding)
    levels = np.linspace(-0.3, 0.3, 8)
    values = np.linspace(-0.35, 0.35, 20_001)
    placed = grid.place(values, descent.Coins.of(1))
    assert np.abs(placed[:, None] - levels).min(axis=1).max() < FEW
    inside = np.clip(values, -0.3, 0.3)
    step = levels[1] - levels[0]
    reach = step / 2 if rounding == "nearest" else step
    assert np.abs(placed - inside).max() <= reach * (1 + MANY)
    if rounding == "stochastic":
        # Unbiased: the mean of 20,001 errors of at most a step each.
        assert abs((placed - inside).mean()) < 6 * step / math.sqrt(values.size)
    replaced = replace(grid, q=0.75).place(values, descent.Coins.of(1))
    # Six standard errors of 20,001 coins.
    assert np.mean(replaced != placed) == pytest.approx(0.25, abs=0.02)


def test_gradients_are_derivatives_of_the_losses() -> None:
    """Each model's error against a finite difference of its loss."""
    rng = np.random.default_rng(2)
    for model, outputs in (("logreg", 1), ("svm", 1), ("softmax", 3)):
        labels = rng.integers(0, max(2, outputs), 6)
        empty = np.zeros((1, 2), dtype=np.float32)
        data = descent.LinearData(
            model=model, x=empty, y=labels, test_x=empty, test_y=labels, outputs=outputs
        )

        def loss(scores: np.ndarray, model: str = model, labels: np.ndarray = labels) -> np.ndarray:
            signs = 2 * labels - 1
            if model == "logreg":
                return np.log1p(np.exp(-signs * scores[:, 0]))
            if model == "svm":
                return np.maximum(0, 1 - signs * scores[:, 0])
            return np.log(np.exp(scores).sum(axis=1)) - scores[np.arange(6), labels]

        scores = rng.normal(size=(6, outputs))
        errors = data.errors(scores.astype(np.float32), labels)
        for column in range(outputs):
            moved = scores.copy()
            moved[:, column] += 1e-6
            slope = (loss(moved) - loss(scores)) / 1e-6
            # Scores in single precision (6e-8), and a forward difference over 1e-6.
            np.testing.assert_allclose(errors[:, column], slope, atol=1e-4)


@pytest.mark.slow
def test_figure1(tmp_path: Path) -> None:
    found = rqp.rqp_figure1(Run())
    q = {row["sigma"]: row["q"] for row in found.rows if row["method"] == "RQP"}
    for sigma, paper in ((0.01, 0.157), (0.045, 0.288), (0.06, 0.364), (0.08, 0.545), (0.1, 0.875)):
        assert q[sigma] == pytest.approx(paper, abs=printed(3))
    ours = [row for row in found.rows if row["method"] == "RQP"]
    rivals = [row for row in found.rows if row["method"] == "Proj-DP-SGD"]
    # At delta = 0, which the paper speaks of, and at 1e-7: nowhere near the 1 it states for RQP.
    assert all(row["pure_epsilon"] > row["epsilon"] > 40 for row in ours)
    # Its noise is chosen for an epsilon of 1, to three places.
    assert rivals[-1]["epsilon"] == pytest.approx(1.0, abs=1e-3)
    # At equal noise the method without replacement has the lower bound, as printed and corrected.
    for row, rival in zip(ours, rivals, strict=False):
        assert row["sigma"] == rival["sigma"]
        assert rival["published bound"] < row["published bound"]
        assert rival["corrected bound"] < row["corrected bound"]
    found.png(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert set(found.as_dict()) == {"title", "note", "rows"}


@pytest.mark.slow
def test_figure2() -> None:
    found = rqp.rqp_figure2(Run(quick=True))
    rows = [
        row
        for row in found.rows
        if row["panel"] == "Diagnostic, logreg" and row["weights"] == "printed"
    ]
    assert [round(row["q"], 3) for row in rows] == [0.152, 0.198, 0.285, 0.414, 0.678, 0.94]
    # Accuracy falls with q, as the paper says; epsilon is far from constant, as it does not.
    assert rows[-1]["median"] > rows[1]["median"]
    assert rows[0]["epsilon"] > 10 * rows[-1]["epsilon"]
    # 96, 34 and 28 along this curve at delta = 0, where the paper states 1.
    for row, noted in zip((rows[1], rows[2], rows[4]), (96, 34, 28), strict=True):
        # Noted as whole numbers, for q rounded to three digits: half a unit of 34 is 1.5 %.
        assert row["pure_epsilon"] == pytest.approx(noted, rel=0.015)


@pytest.mark.slow
def test_quantized_gradients_learn() -> None:
    found = optm_tables.figure4c(Run(quick=True))
    rows = {row["mechanism"]: row for row in found.rows}
    assert set(rows) == {"clipped only", "OPTM", "RQM", "MVU", "optimal"}
    for name, row in rows.items():
        assert row["step 50"] > 88
        if name != "clipped only":
            assert row["epsilon per coordinate"] <= 1
            assert row["epsilon of the run"] > 50
    assert rows["optimal"]["mse"] <= rows["MVU"]["mse"] < rows["OPTM"]["mse"] < rows["RQM"]["mse"]
