"""Table 1 and Figures 1 and 2 of the RQP-SGD paper: private classifiers with few bits per weight."""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from mezzotint import datasets, design, training
from mezzotint.core.records import JsonObject, Progress, ticks
from mezzotint.papers.reproduction import Reproduction, Series

Tick = Callable[[], None]

FOLDER_VARIABLE = "MEZZOTINT_MNIST"
"""Environment variable that names a folder with MNIST's four idx files; without it only Diagnostic is trained."""

EPSILON, DELTA = 1.0, 1e-7
CLIP, BOUND, BITS = 0.45, 0.3, 4


@functools.cache
def _noise(rate: float, steps: int) -> float:
    return training.rqp.noise_multiplier(EPSILON, sampling_rate=rate, steps=steps, delta=DELTA)


@dataclass(frozen=True, kw_only=True)
class TrainingProblem:
    """A data set with the paper's settings.

    Arguments:
        name, model: labels.
        load: split number to data.
        steps, batch_size, dataset_size: T, m, n.
        splits, runs: how many splits of the data, and runs on each.
    """

    name: str
    model: str
    load: Callable[[int], datasets.Dataset]
    steps: int
    batch_size: int
    dataset_size: int
    splits: int
    runs: int

    @property
    def published(self) -> training.rqp.RQPSettings:
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


def diagnostic(model: str, *, splits: int = 10, runs: int = 10) -> TrainingProblem:
    """Breast Cancer Wisconsin (Diagnostic) with the paper's settings."""
    return TrainingProblem(
        name="Diagnostic",
        model=model,
        load=lambda split: datasets.breast_cancer(split=split),
        steps=46,
        batch_size=10,
        dataset_size=455,
        splits=splits,
        runs=runs,
    )


def mnist(folder: str, *, runs: int = 5) -> TrainingProblem:
    """MNIST with the paper's settings; always the same split."""
    data = datasets.idx_folder(folder)
    return TrainingProblem(
        name="MNIST",
        model="softmax",
        load=lambda split: data,
        steps=938,
        batch_size=64,
        dataset_size=60_000,
        splits=1,
        runs=runs,
    )


def problems(splits: int, runs: int, mnist_runs: int) -> list[TrainingProblem]:
    """Diagnostic with both classifiers, and MNIST where its folder is named."""
    found = [
        diagnostic("logreg", splits=splits, runs=runs),
        diagnostic("svm", splits=splits, runs=runs),
    ]
    folder = os.environ.get(FOLDER_VARIABLE)
    return [*found, mnist(folder, runs=mnist_runs)] if folder else found


def accuracies(
    problem: TrainingProblem,
    method: training.methods.Method,
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
            task = training.models.task(
                problem.model, shape=data.train_x.shape[1:], classes=data.classes
            )
            settings = training.trainer.TrainingSettings(
                steps=problem.steps,
                batch_size=problem.batch_size,
                step_size=1.0,
                delta=DELTA,
                seed=1000 * split + run,
                averaging=averaging,
            )
            trainer = training.trainer.Trainer(
                data=data, task=task, method=method, settings=settings
            )
            for _ in range(problem.steps):
                trainer.step()
            weights = (
                trainer.weights()
                if bits is None
                else trainer.packed(bits=bits, scales="tensor").values()
            )
            result[split, run] = 100 * trainer.accuracy(data.test_x, data.test_y, weights)
            tick()
    return result


def standard_error(accuracy: npt.NDArray[np.float64]) -> float:
    """Of the median of all runs, taken as that of a mean times sqrt(pi/2); splits vary more than runs do."""
    units = accuracy.mean(axis=1) if len(accuracy) > 1 else accuracy[0]
    return (
        float(units.std(ddof=1) / math.sqrt(units.size) * math.sqrt(math.pi / 2))
        if units.size > 1
        else math.nan
    )


def noisy_sgd(
    noise: float, projected: training.projection.Projection | None = None
) -> training.methods.Method:
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


def four_bits(
    rounding: Literal["nearest", "stochastic"], q: float = 1.0
) -> training.projection.Projection:
    """The paper's 16 levels, rounded to and kept with probability q."""
    return training.projection.projection(bits=BITS, rounding=rounding, q=q)


def published_curve(z: float, q: float) -> training.methods.Method:
    """RQP-SGD as the paper runs it: its own noise multiplier, whatever privacy that gives."""
    return training.methods.NoisySGD(
        noise_multiplier=z, clip_norm=CLIP, projection=four_bits("nearest", q), bound=BOUND
    )


SIGMAS = (0.01, 0.03, 0.045, 0.06, 0.08, 0.1)


def _figure1_row(method: str, settings: training.rqp.RQPSettings, q: float) -> JsonObject:
    claim = training.rqp.epsilon(
        settings.noise_multiplier,
        q=q,
        bits=BITS,
        sampling_rate=1 / 445,
        steps=settings.steps,
        delta=DELTA,
    )
    return {
        "method": method,
        "sigma": settings.noise_multiplier * CLIP,
        "q": q,
        "published_bound": float(training.rqp.published_utility_bound(settings, q=q)),
        "corrected_bound": training.rqp.utility_bound(
            settings,
            q=q,
            rounding="nearest",
            start_distance=2 * BOUND * math.sqrt(settings.dimension),
        ),
        "epsilon": claim.epsilon,
        "pure_epsilon": _pure(settings, q),
    }


def _pure(settings: training.rqp.RQPSettings, q: float) -> float:
    """Epsilon at delta 0, which is what the paper claims to be 1."""
    return training.rqp.pure_epsilon(
        settings.noise_multiplier,
        q=q,
        bits=BITS,
        dimension=settings.dimension,
        steps=settings.steps,
        sampling_rate=settings.batch_size / settings.dataset_size,
    ).epsilon


def rqp_figure1(*, progress: Progress | None = None) -> Reproduction:
    """Figure 1 of the RQP-SGD paper: q against noise at published epsilon 1, and the utility bounds."""
    base = training.rqp.RQPSettings(
        noise_multiplier=1.0,
        bits=BITS,
        bound=BOUND,
        clip_norm=CLIP,
        step_size=1.0,
        batch_size=1,
        dataset_size=445,
        steps=445,
        dimension=31,
    )
    rows: list[JsonObject] = []
    tick = ticks(progress, len(SIGMAS) + 1)
    for sigma in SIGMAS:
        settings = replace(base, noise_multiplier=sigma / CLIP)
        rows.append(_figure1_row("RQP", settings, float(training.rqp.published_q(settings))))
        tick()
    noise = training.rqp.noise_multiplier(EPSILON, sampling_rate=1 / 445, steps=445, delta=DELTA)
    projected = _figure1_row("Proj-DP-SGD", replace(base, noise_multiplier=noise), 1.0)
    series = (
        Series(
            panel="a: replacement",
            name="q at published epsilon 1",
            x=SIGMAS,
            y=tuple(row["q"] for row in rows),
        ),
        *(
            Series(
                panel="b: excess loss",
                name=name,
                x=SIGMAS,
                y=tuple(row[f"{name}_bound"] for row in rows),
            )
            for name in ("published", "corrected")
        ),
    )
    return Reproduction(
        title="RQP-SGD, Figure 1: replacement, noise and bounds (b=4, M=.3, rho=.45, T=445, m/n=1/445)",
        note="The paper prints curves only, and gives neither dimension nor step size: 31 and 1 here. epsilon is what "
        f"holds at delta={DELTA:g}, pure_epsilon at delta=0 (Poisson batches, one record added or removed). The curve "
        "of q reproduces; what the paper concludes from it does not: RQP has a lower bound than Proj-DP-SGD only "
        "because its sigma is chosen for an epsilon that does not hold. Its bound drops a cross term and is exceeded "
        "by an exact counterexample; the corrected bound is vacuous above 1.5, the largest possible excess loss.",
        rows=(*rows, projected),
        series=series,
        x_label="sigma",
        y_label=("q", "bound of the excess loss"),
    )


def _noises(problem: TrainingProblem) -> tuple[float, ...]:
    return (
        (0.1, 0.5, 1.0, 1.5, 2.0, 2.3)
        if problem.name == "Diagnostic"
        else (0.5, 2.0, 5.0, 10.0, 14.0)
    )


def _figure2_row(problem: TrainingProblem, z: float, tick: Tick) -> JsonObject:
    settings = replace(problem.published, noise_multiplier=z)
    q = float(training.rqp.published_q(settings))
    found = accuracies(problem, published_curve(z, q), tick=tick)
    claim = training.rqp.epsilon(
        z,
        q=q,
        bits=BITS,
        sampling_rate=problem.batch_size / problem.dataset_size,
        steps=problem.steps,
        delta=DELTA,
    )
    return {
        "panel": f"{problem.name}, {problem.model}",
        "z": z,
        "q": q,
        "median": float(np.median(found)),
        "deviation": float(found.std()),
        "epsilon": claim.epsilon,
        "pure_epsilon": _pure(settings, q),
    }


def rqp_figure2(
    *, splits: int = 1, runs: int = 10, mnist_runs: int = 3, progress: Progress | None = None
) -> Reproduction:
    """Figure 2 of the RQP-SGD paper: accuracy along the curve of noise and q on which its epsilon reads 1.

    Arguments:
        splits, runs, mnist_runs, progress: as in `rqp_table1`.
    """
    rows: list[JsonObject] = []
    series: list[Series] = []
    plan = problems(splits, runs, mnist_runs)
    tick = ticks(progress, sum(p.splits * p.runs * len(_noises(p)) for p in plan))
    for problem in plan:
        noises = _noises(problem)
        lines = [_figure2_row(problem, z, tick) for z in noises]
        panel = lines[0]["panel"]
        rows += lines
        series += [
            Series(
                panel=panel, name="accuracy, %", x=noises, y=tuple(line["median"] for line in lines)
            ),
            Series(panel=panel, name="100 q", x=noises, y=tuple(100 * line["q"] for line in lines)),
        ]
    return Reproduction(
        title="RQP-SGD, Figure 2: noise, replacement and accuracy at published epsilon 1",
        note="The paper prints curves only. Its curve of q reproduces and accuracy falls with q, as it says. But "
        f"privacy is not constant along it: epsilon is what holds at delta={DELTA:g}, pure_epsilon at delta=0, which "
        "the paper claims to be 1 throughout. Replacing codes lowers the noise needed by kappa only. Run r on split s "
        "has the seed 1000 s + r.",
        rows=tuple(rows),
        series=tuple(series),
        x_label="noise multiplier",
        y_label="percent",
    )


# The paper's medians of ten runs.
PAPER = {
    ("Diagnostic", "logreg"): {
        "non-private": 97.37,
        "DP-SGD": 96.92,
        "nearest": 94.30,
        "published": 95.18,
    },
    ("Diagnostic", "svm"): {
        "non-private": 98.68,
        "DP-SGD": 96.49,
        "nearest": 69.74,
        "published": 94.74,
    },
    ("MNIST", "softmax"): {
        "non-private": 87.25,
        "DP-SGD": 86.02,
        "nearest": 84.32,
        "published": 84.81,
    },
}

NOTE = (
    "epsilon is what holds under Poisson batches for adding or removing one record. The paper calls its RQP rows "
    "(1, 0)-DP, which is false, and draws its batches with replacement: at the noise of these rows that costs up to "
    "21.1 (Diagnostic) and 27.3 (MNIST) when a record is replaced. It names neither preprocessing nor sigma and q "
    "of its RQP rows; here features are standardized on Diagnostic and lie in [0, 1] on MNIST. What does not "
    "reproduce: the paper's 69.74 % of nearest rounding for the SVM, where we see no stall, and its MNIST rows of "
    "nearest rounding and RQP. There a step moves a weight by far less than half a cell, so nearest rounding "
    "stalls, and with q < 1 each weight is drawn afresh many times in 938 steps, so nothing is left of what was "
    "learned. No reading of the printed settings that we tried gives 84 %: standardized images reach 58 % with "
    "nearest rounding, RQP at z=15.1, where the published bound asks no replacement, 14 %. Random replacement buys "
    "only the factor kappa in noise and costs accuracy at every q; float training, averaged and packed at the end, "
    "is the better use of 4 bits. Run r on split s has the seed 1000 s + r. "
    f"MNIST is trained when {FOLDER_VARIABLE} names its folder."
)


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of the table.

    Arguments:
        label: what is trained; key: the paper's row, empty for our own.
        method: a method of `mezzotint.training.methods`.
        averaging, bits: how the run is finished, see `accuracies`.
    """

    label: str
    method: training.methods.Method
    key: str = ""
    averaging: float = 0.0
    bits: int | None = None

    def trained(self, problem: TrainingProblem, tick: Tick) -> npt.NDArray[np.float64]:
        """(splits, runs) test accuracies in percent."""
        return accuracies(problem, self.method, averaging=self.averaging, bits=self.bits, tick=tick)


@functools.cache
def optimal_projection(q: float) -> training.projection.Projection:
    """The optimal unbiased table of 16 levels with the pure epsilon of keeping a code with probability q."""
    # The largest ratio of keep-or-replace is that of keeping to becoming one given other code.
    epsilon = math.log(q / ((1 - q) / (2**BITS - 1)))
    table = design.optimal(epsilon=epsilon, lower=-1.0, upper=1.0, levels=2**BITS).mechanism
    return training.projection.projection_from(table)


def lines(problem: TrainingProblem) -> list[Line]:
    """Every line of Table 1 and our own, all at the noise of (1, 1e-7) but the paper's RQP."""
    noise = problem.noise()
    # The paper states neither sigma nor q of its RQP row; on Diagnostic z=2.3 is a point of its Theorem-1 curve.
    z = 2.3 if problem.name == "Diagnostic" else 10.0
    q = float(training.rqp.published_q(replace(problem.published, noise_multiplier=z)))
    stochastic = noisy_sgd(noise, four_bits("stochastic"))
    end = f"last half averaged, then {BITS} bits"
    return [
        Line(label="non-private, clipped", key="non-private", method=noisy_sgd(0.0)),
        Line(label="DP-SGD, float weights", key="DP-SGD", method=noisy_sgd(noise)),
        Line(
            label="projected, nearest", key="nearest", method=noisy_sgd(noise, four_bits("nearest"))
        ),
        Line(
            label=f"RQP on the published curve, z={z:g}, q={q:.3f}",
            key="published",
            method=published_curve(z, q),
        ),
        *(
            Line(
                label=f"RQP, sound, q={keep:g}", method=noisy_sgd(noise, four_bits("nearest", keep))
            )
            for keep in (0.99, 0.9, 0.7, 0.5)
        ),
        Line(
            label="optimal table, epsilon of q=0.7",
            method=noisy_sgd(noise, optimal_projection(0.7)),
        ),
        Line(label="projected, stochastic", method=stochastic),
        Line(label=f"projected, stochastic, {end}", method=stochastic, averaging=0.5, bits=BITS),
        Line(label=f"DP-SGD, {end}", method=noisy_sgd(noise), averaging=0.5, bits=BITS),
    ]


def _row(problem: TrainingProblem, line: Line, found: npt.NDArray[np.float64]) -> JsonObject:
    projected = getattr(line.method, "projection", None)
    claim = line.method.claim(
        steps=problem.steps,
        sampling_rate=problem.batch_size / problem.dataset_size + 2.0**-24,
        coordinates=1,
        delta=DELTA,
        neighboring="add_or_remove_one",
        contraction=1.0
        if projected is None
        else projected.kappa,  # the trainer's steps are plain SGD
    )
    paper = PAPER[problem.name, problem.model].get(line.key)
    median = float(np.median(found))
    return {
        "data": problem.name,
        "model": problem.model,
        "method": line.label,
        "paper": paper,
        "ours": median,
        "difference": None if paper is None else median - paper,
        "standard_error": standard_error(found),
        "deviation": float(found.std()),
        "epsilon": None if claim is None else claim.epsilon,
        "delta": None if claim is None else DELTA,
    }


def rqp_table1(
    *, splits: int = 10, runs: int = 10, mnist_runs: int = 5, progress: Progress | None = None
) -> Reproduction:
    """Table 1 of the RQP-SGD paper: test accuracy of private classifiers with few bits per weight.

    Arguments:
        splits, runs: splits of Diagnostic and runs on each; mnist_runs: runs on MNIST.
        progress: called as progress(done, total) after each run.
    """
    plan = [(problem, lines(problem)) for problem in problems(splits, runs, mnist_runs)]
    rows: list[JsonObject] = []
    tick = ticks(progress, sum(p.splits * p.runs * len(each) for p, each in plan))
    for problem, each in plan:
        rows += [_row(problem, line, line.trained(problem, tick)) for line in each]
    return Reproduction(
        title="RQP-SGD, Table 1: median test accuracy (%)", note=NOTE, rows=tuple(rows)
    )


REPRODUCTIONS: dict[str, Callable[[], Reproduction]] = {
    "rqp-figure1": rqp_figure1,
    "rqp-figure2": rqp_figure2,
    "rqp-table1": rqp_table1,
}
