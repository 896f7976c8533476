"""The papers' tables and figures of training: known numbers, and the values that math note 3.4 measured."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.papers import optm_tables, rqp
from tolerances import printed

pytest.importorskip("torch")
pytest.importorskip("opacus")
pytest.importorskip("sklearn")

# Math note 3.4: medians over 10 splits x 10 runs on Diagnostic, 4 bits, Poisson batches.
MEASURED = {
    "logreg": {
        "non-private, clipped": 96.49,
        "DP-SGD, float weights": 95.61,
        "projected, nearest": 93.86,
        "RQP on the published curve, z=2.3, q=0.940": 91.23,
        "RQP, sound, q=0.99": 92.98,
        "RQP, sound, q=0.9": 92.11,
        "RQP, sound, q=0.7": 85.96,
        "RQP, sound, q=0.5": 72.37,
        "optimal table, epsilon of q=0.7": 89.5,
    },
    "svm": {
        "non-private, clipped": 96.93,
        "DP-SGD, float weights": 94.30,
        "projected, nearest": 93.86,
        "RQP on the published curve, z=2.3, q=0.940": 88.60,
        "RQP, sound, q=0.99": 93.86,
        "RQP, sound, q=0.9": 89.47,
        "RQP, sound, q=0.7": 82.46,
        "RQP, sound, q=0.5": 69.30,
        "optimal table, epsilon of q=0.7": 84.7,
    },
}
OURS = "DP-SGD, last half averaged, then 4 bits"


@pytest.mark.slow
def test_table1(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(rqp.FOLDER_VARIABLE, raising=False)
    found = rqp.rqp_table1()
    rows = {(row["model"], row["method"]): row for row in found.rows}
    for model, lines in MEASURED.items():
        for method, value in lines.items():
            row = rows[model, method]
            # Both means err: four standard errors of their difference, a false alarm in 1,000 over all rows.
            assert abs(row["ours"] - value) <= 4 * math.sqrt(2) * row["standard_error"], (
                model,
                method,
                row,
            )
    # Random replacement buys only kappa: the more of it, the worse.
    for model in MEASURED:
        falling = [rows[model, f"RQP, sound, q={q}"]["ours"] for q in (0.99, 0.9, 0.7, 0.5)]
        assert falling == sorted(falling, reverse=True)
    # A better method at the same honest (1, 1e-7) and 4 bits.
    assert rows["logreg", OURS]["ours"] >= 93
    assert rows["svm", OURS]["ours"] >= 92.5
    for model in MEASURED:
        assert rows[model, OURS]["epsilon"] <= 1
        assert rows[model, OURS]["ours"] > rows[model, "RQP, sound, q=0.9"]["ours"]
    found.png(tmp_path / "table.png")
    assert (tmp_path / "table.png").stat().st_size > 1000


@pytest.mark.slow
def test_packed_softmax_on_mnist_is_within_two_points_of_float(shared_data: Path) -> None:
    problem = rqp.mnist(str(shared_data / "mnist"), runs=3)
    noise = problem.noise()
    plain = rqp.accuracies(problem, rqp.noisy_sgd(noise))
    packed = rqp.accuracies(problem, rqp.noisy_sgd(noise), averaging=0.5, bits=4)
    assert np.median(packed) >= np.median(plain) - 2
    assert np.median(plain) > 86  # the paper's DP-SGD reads 86.02


@pytest.mark.slow
def test_small_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(rqp.FOLDER_VARIABLE, raising=False)
    found = rqp.rqp_table1(splits=1, runs=2)
    rows: dict[Any, Any] = {(row["model"], row["method"]): row for row in found.rows}
    assert len(rows) == 24
    assert rows["svm", "projected, nearest"]["paper"] == 69.74
    assert rows["logreg", "non-private, clipped"]["epsilon"] is None
    for row in rows.values():
        if "sound" in row["method"] or "projected" in row["method"]:
            assert 0.99 < row["epsilon"] <= 1


@pytest.mark.slow
def test_figure1(tmp_path: Path) -> None:
    found = rqp.rqp_figure1()
    q = {row["sigma"]: row["q"] for row in found.rows}
    for sigma, paper in ((0.01, 0.157), (0.045, 0.288), (0.06, 0.364), (0.08, 0.545), (0.1, 0.875)):
        assert q[sigma] == pytest.approx(paper, abs=printed(3))
    # At delta = 0, which the paper speaks of, and at 1e-7: nowhere near the 1 it states for RQP.
    assert all(
        row["pure_epsilon"] > row["epsilon"] > 40 for row in found.rows if row["method"] == "RQP"
    )
    assert [round(row["epsilon"], 3) for row in found.rows if row["method"] == "Proj-DP-SGD"] == [
        1.0
    ]
    found.png(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert set(found.as_dict()) == {"title", "note", "rows"}


@pytest.mark.slow
def test_figure2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(rqp.FOLDER_VARIABLE, raising=False)
    found = rqp.rqp_figure2(runs=3)
    rows = [row for row in found.rows if row["panel"] == "Diagnostic, logreg"]
    assert [round(row["q"], 3) for row in rows] == [0.152, 0.198, 0.285, 0.414, 0.678, 0.94]
    # Accuracy falls with q, as the paper says; epsilon is far from constant, as it does not.
    assert rows[-1]["median"] > rows[1]["median"]
    assert rows[0]["epsilon"] > 10 * rows[-1]["epsilon"]
    # Math note 3.2: 96, 34 and 28 along this curve at delta = 0, where the paper states 1.
    for row, noted in zip((rows[1], rows[2], rows[4]), (96, 34, 28), strict=True):
        # Noted as whole numbers, for q rounded to three digits: half a unit of 34 is 1.5 %.
        assert row["pure_epsilon"] == pytest.approx(noted, rel=0.015)


@pytest.mark.slow
def test_quantized_gradients_learn() -> None:
    found = optm_tables.optm_figure4c(steps=50, runs=2)
    rows = {row["mechanism"]: row for row in found.rows}
    assert set(rows) == {"clipped only", "OPTM", "RQM", "MVU", "optimal"}
    for name, row in rows.items():
        assert row["step 50"] > 90
        assert row["step 50"] <= rows["clipped only"]["step 50"]
        if name != "clipped only":
            assert row["epsilon per coordinate"] <= 1
            assert row["epsilon of the run"] > 50
    assert rows["optimal"]["mse"] <= rows["MVU"]["mse"] < rows["OPTM"]["mse"] < rows["RQM"]["mse"]


def test_mnist_figure_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(rqp.FOLDER_VARIABLE, raising=False)
    assert rqp.FOLDER_VARIABLE in optm_tables.optm_figure4d().note
