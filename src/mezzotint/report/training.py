"""What the reproductions of training share: problems, seeded runs, their accuracy, a progress bar."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mezzotint import training
from mezzotint.core.lazy import LazyModule

drawing: Any = LazyModule("mezzotint.report.training_drawing")
bars: Any = LazyModule("rich.progress")
consoles: Any = LazyModule("rich.console")

Tick = Callable[[], None]

FOLDER_VARIABLE = "MEZZOTINT_MNIST"
"""Environment variable that names a folder with MNIST's four idx files; without it only Diagnostic is trained."""

EPSILON, DELTA = 1.0, 1e-7
CLIP, BOUND, BITS = 0.45, 0.3, 4


@dataclass(frozen=True, kw_only=True)
class Series:
    """One curve: its panel, its legend, its points."""

    panel: str
    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """A published table or figure beside our numbers.

    Arguments:
        title, note: what it is, and what to know when comparing.
        rows: one mapping per line.
        series: curves to draw; x_label: the horizontal axis.
    """

    title: str
    note: str
    rows: tuple[Mapping[str, Any], ...]
    series: tuple[Series, ...] = ()
    x_label: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Title, note and rows as plain values."""
        return {"title": self.title, "note": self.note, "rows": [dict(row) for row in self.rows]}

    def png(self, path: str | Path) -> None:
        """Draws the figure (or the table's rows) into a PNG file."""
        drawing.draw_png(self, path)


@functools.cache
def _noise(rate: float, steps: int) -> float:
    return training.rqp.noise_multiplier(EPSILON, sampling_rate=rate, steps=steps, delta=DELTA)


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A data set with the paper's settings.

    Arguments:
        name, model: labels.
        load: split number to data.
        steps, batch_size, dataset_size: T, m, n.
        splits, runs: how many splits of the data, and runs on each.
    """

    name: str
    model: str
    load: Callable[[int], Any]
    steps: int
    batch_size: int
    dataset_size: int
    splits: int
    runs: int

    @property
    def published(self) -> Any:
        """The paper's settings at noise multiplier 1."""
        return training.rqp.RQPSettings(
            noise_multiplier=1.0,
            bits=BITS,
            bound=BOUND,
            clip_norm=CLIP,
            step_size=1.0,
            batch_size=self.batch_size,
            dataset_size=self.dataset_size,
            steps=self.steps,
            dimension=31 if self.name == "Diagnostic" else 7850,
        )

    def noise(self) -> float:
        """Noise multiplier of DP-SGD at (1, 1e-7) under Poisson sampling, one record added or removed."""
        return _noise(self.batch_size / self.dataset_size + 2.0**-24, self.steps)


def diagnostic(model: str, *, splits: int = 10, runs: int = 10) -> Problem:
    """Breast Cancer Wisconsin (Diagnostic) with the paper's settings."""
    return Problem(
        name="Diagnostic",
        model=model,
        load=lambda split: training.data.breast_cancer(split=split),
        steps=46,
        batch_size=10,
        dataset_size=455,
        splits=splits,
        runs=runs,
    )


def mnist(folder: str, *, runs: int = 5) -> Problem:
    """MNIST with the paper's settings; always the same split."""
    data = training.data.idx_folder(folder)
    return Problem(
        name="MNIST",
        model="softmax",
        load=lambda split: data,
        steps=938,
        batch_size=64,
        dataset_size=60_000,
        splits=1,
        runs=runs,
    )


def problems(splits: int, runs: int, mnist_runs: int) -> list[Problem]:
    """Diagnostic with both classifiers, and MNIST where its folder is named."""
    found = [diagnostic("logreg", splits=splits, runs=runs), diagnostic("svm", splits=splits, runs=runs)]
    folder = os.environ.get(FOLDER_VARIABLE)
    return [*found, mnist(folder, runs=mnist_runs)] if folder else found


@contextmanager
def runs_counted(text: str, runs: int) -> Iterator[Tick]:
    """A progress bar on standard error with the time left, one tick per run; silence where that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=consoles.Console(stderr=True), transient=True) as shown:
        task = shown.add_task(text, total=runs)
        yield lambda: shown.advance(task)


def accuracies(
    problem: Problem,
    method: Any,
    *,
    averaging: float = 0.0,
    bits: int | None = None,
    tick: Tick = lambda: None,
) -> npt.NDArray[np.float64]:
    """(splits, runs) test accuracies in percent; run r on split s has the seed 1000 s + r.

    Arguments:
        problem: what to train.
        method: a method of `mezzotint.training.methods`.
        averaging: share of the last steps that is averaged.
        bits: pack the final weights into so many bits; None uses them as they are.
        tick: called after every run.
    """
    result = np.zeros((problem.splits, problem.runs))
    for split in range(problem.splits):
        data = problem.load(split)
        for run in range(problem.runs):
            task = training.models.task(problem.model, shape=data.train_x.shape[1:], classes=data.classes)
            settings = training.trainer.Settings(
                steps=problem.steps,
                batch_size=problem.batch_size,
                step_size=1.0,
                delta=DELTA,
                seed=1000 * split + run,
                averaging=averaging,
            )
            trainer = training.trainer.Trainer(data=data, task=task, method=method, settings=settings)
            for _ in range(problem.steps):
                trainer.step()
            weights = trainer.weights() if bits is None else trainer.packed(bits=bits).values()
            result[split, run] = 100 * trainer.accuracy(data.test_x, data.test_y, weights)
            tick()
    return result


def standard_error(accuracy: npt.NDArray[np.float64]) -> float:
    """Of the median of all runs, taken as that of a mean times sqrt(pi/2); splits vary more than runs do."""
    units = accuracy.mean(axis=1) if len(accuracy) > 1 else accuracy[0]
    return float(units.std(ddof=1) / math.sqrt(units.size) * math.sqrt(math.pi / 2)) if units.size > 1 else math.nan


def noisy_sgd(noise: float, projected: Any = None) -> Any:
    """DP-SGD with the paper's clip norm and bound, with or without a projection of the weights.

    Arguments:
        noise: noise multiplier of the DP-SGD on float weights that is to be as private.
        projected: a `Projection`, whose contraction lowers the noise; None keeps float weights.
    """
    if projected is None:
        return training.methods.NoisySGD(noise_multiplier=noise, clip_norm=CLIP)
    return training.methods.NoisySGD(
        noise_multiplier=noise * projected.kappa, clip_norm=CLIP, projection=projected, bound=BOUND
    )


def four_bits(rounding: Literal["nearest", "stochastic"], q: float = 1.0) -> Any:
    """The paper's 16 levels, rounded to and kept with probability q."""
    return training.projection.projection(bits=BITS, rounding=rounding, q=q)


def published_curve(z: float, q: float) -> Any:
    """RQP-SGD as the paper runs it: its own noise multiplier, whatever privacy that gives."""
    return training.methods.NoisySGD(
        noise_multiplier=z, clip_norm=CLIP, projection=four_bits("nearest", q), bound=BOUND
    )
