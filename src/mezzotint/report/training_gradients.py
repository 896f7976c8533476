"""Figures 4c and 4d of the OPTM paper: training from quantized gradients. Data only; drawing is beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mezzotint import design, families, training
from mezzotint.report.training import FOLDER_VARIABLE, Reproduction, Series


def _gradient_tables(bins: list[float]) -> dict[str, Any]:
    """The four mechanisms of OPTM's training figures, and the optimal one, all at epsilon 1 per coordinate."""
    rqm = families.rqm(lower=-1.0, upper=1.0, levels=4, extension=1.7, q=0.22)
    return {
        "OPTM": design.optm(epsilon=1.0, lower=-1.0, upper=1.0, bins=bins).mechanism,
        "RQM": rqm,
        "MVU": design.mvu(epsilon=1.0, lower=-1.0, upper=1.0, levels=4).mechanism,
        "optimal": design.optimal(epsilon=1.0, lower=-1.0, upper=1.0, levels=4).mechanism,
    }


def _optm_figure(
    data: Any, *, title: str, bins: list[float], clip: float, batch: int, steps: int, step_size: float, runs: int
) -> Reproduction:
    named = {"clipped only": None, **_gradient_tables(bins)}
    marks = [step for step in (5, 10, 25, 50, 100, 200, 400, 800, 1600) if step <= steps]
    rows: list[Mapping[str, Any]] = []
    series: list[Series] = []
    for name, table in named.items():
        method = (
            training.methods.ClippedSGD(clip=clip)
            if table is None
            else training.methods.QuantizedSGD(table=table, clip=clip)
        )
        curves = [_training_curve(data, method, batch, steps, step_size, seed, marks) for seed in range(runs)]
        mean = np.mean([curve for curve, _ in curves], axis=0)
        claim = curves[0][1]
        rows.append(
            {
                "mechanism": name,
                **{f"step {mark}": float(value) for mark, value in zip(marks, mean, strict=True)},
                "mse": None if table is None else table.mse(),
                "epsilon per coordinate": None if table is None else table.epsilon,
                "epsilon of the run": None if claim is None else claim.epsilon,
            }
        )
        series.append(Series(panel="", name=name, x=tuple(map(float, marks)), y=tuple(float(v) for v in mean)))
    return Reproduction(
        title=title,
        note=f"Training accuracy (%), mean of {runs} runs; the paper prints curves only, and neither step size "
        f"({step_size:g} here) nor length. Its epsilon of 1 is that of a single coordinate; the last column is what a "
        "record's reports cost over the run, each report seen (delta = 1e-6, replacing one record). Order: the table "
        "with the least MSE learns fastest.",
        rows=tuple(rows),
        series=tuple(series),
        x_label="steps",
    )


def _training_curve(
    data: Any, method: Any, batch: int, steps: int, step_size: float, seed: int, marks: list[int]
) -> tuple[list[float], Any]:
    task = training.models.task("softmax", shape=data.train_x.shape[1:], classes=data.classes)
    settings = training.trainer.Settings(steps=steps, batch_size=batch, step_size=step_size, delta=1e-6, seed=seed)
    trainer = training.trainer.Trainer(data=data, task=task, method=method, settings=settings)
    curve: list[float] = []
    for step in range(1, steps + 1):
        trainer.step()
        if step in marks:
            curve.append(100 * trainer.accuracy(data.train_x, data.train_y, trainer.weights()))
    return curve, trainer.claim() if seed == 0 else None


def optm_figure4c(*, steps: int = 400, runs: int = 5) -> Reproduction:
    """Figure 4c of the OPTM paper: softmax regression on Diagnostic from quantized gradients (Table 8's settings)."""
    return _optm_figure(
        training.data.breast_cancer(),
        title="OPTM, Figure 4c: training accuracy on Breast Cancer, batch 8, clip 0.1",
        bins=[-2.2, -0.4, 0.4, 2.2],
        clip=0.1,
        batch=8,
        steps=steps,
        step_size=1.0,
        runs=runs,
    )


def optm_figure4d(*, steps: int = 400, runs: int = 2) -> Reproduction:
    """Figure 4d of the OPTM paper: softmax regression on MNIST from quantized gradients (Table 9's settings)."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return Reproduction(
            title="OPTM, Figure 4d: training accuracy on MNIST, batch 32, clip 0.01",
            note=f"Set {FOLDER_VARIABLE} to a folder with MNIST's four idx files.",
            rows=(),
        )
    return _optm_figure(
        training.data.idx_folder(folder),
        title="OPTM, Figure 4d: training accuracy on MNIST, batch 32, clip 0.01",
        bins=[-2.6, -0.4, 0.4, 2.6],
        clip=0.01,
        batch=32,
        steps=steps,
        step_size=1.0,
        runs=runs,
    )


REPRODUCTIONS: dict[str, Callable[[], Reproduction]] = {
    "optm-figure4c": optm_figure4c,
    "optm-figure4d": optm_figure4d,
}
