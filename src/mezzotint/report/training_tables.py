"""Table 1 of the RQP-SGD paper, recomputed: data only."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzotint import design, training
from mezzotint.report.training import (
    BITS,
    DELTA,
    FOLDER_VARIABLE,
    Problem,
    Reproduction,
    Tick,
    accuracies,
    four_bits,
    noisy_sgd,
    problems,
    published_curve,
    runs_counted,
    standard_error,
)

# The paper's medians of ten runs.
PAPER = {
    ("Diagnostic", "logreg"): {"non-private": 97.37, "DP-SGD": 96.92, "nearest": 94.30, "published": 95.18},
    ("Diagnostic", "svm"): {"non-private": 98.68, "DP-SGD": 96.49, "nearest": 69.74, "published": 94.74},
    ("MNIST", "softmax"): {"non-private": 87.25, "DP-SGD": 86.02, "nearest": 84.32, "published": 84.81},
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
    method: Any
    key: str = ""
    averaging: float = 0.0
    bits: int | None = None

    def trained(self, problem: Problem, tick: Tick) -> npt.NDArray[np.float64]:
        """(splits, runs) test accuracies in percent."""
        return accuracies(problem, self.method, averaging=self.averaging, bits=self.bits, tick=tick)


@functools.cache
def optimal_projection(q: float) -> Any:
    """The optimal unbiased table of 16 levels with the pure epsilon of keeping a code with probability q."""
    # The largest ratio of keep-or-replace is that of keeping to becoming one given other code.
    epsilon = math.log(q / ((1 - q) / (2**BITS - 1)))
    table = design.optimal(epsilon=epsilon, lower=-1.0, upper=1.0, levels=2**BITS).mechanism
    return training.projection.projection_from(table)


def lines(problem: Problem) -> list[Line]:
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
        Line(label="projected, nearest", key="nearest", method=noisy_sgd(noise, four_bits("nearest"))),
        Line(label=f"RQP on the published curve, z={z:g}, q={q:.3f}", key="published", method=published_curve(z, q)),
        *(
            Line(label=f"RQP, sound, q={keep:g}", method=noisy_sgd(noise, four_bits("nearest", keep)))
            for keep in (0.99, 0.9, 0.7, 0.5)
        ),
        Line(label="optimal table, epsilon of q=0.7", method=noisy_sgd(noise, optimal_projection(0.7))),
        Line(label="projected, stochastic", method=stochastic),
        Line(label=f"projected, stochastic, {end}", method=stochastic, averaging=0.5, bits=BITS),
        Line(label=f"DP-SGD, {end}", method=noisy_sgd(noise), averaging=0.5, bits=BITS),
    ]


def _row(problem: Problem, line: Line, found: npt.NDArray[np.float64]) -> Mapping[str, Any]:
    projected = getattr(line.method, "projection", None)
    claim = line.method.claim(
        steps=problem.steps,
        sampling_rate=problem.batch_size / problem.dataset_size + 2.0**-24,
        coordinates=1,
        delta=DELTA,
        neighboring="add_or_remove_one",
        contraction=1.0 if projected is None else projected.kappa,  # the trainer's steps are plain SGD
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


def rqp_table1(*, splits: int = 10, runs: int = 10, mnist_runs: int = 5) -> Reproduction:
    """Table 1 of the RQP-SGD paper: test accuracy of private classifiers with few bits per weight.

    Arguments:
        splits, runs: splits of Diagnostic and runs on each; mnist_runs: runs on MNIST.
    """
    plan = [(problem, lines(problem)) for problem in problems(splits, runs, mnist_runs)]
    rows: list[Mapping[str, Any]] = []
    with runs_counted("rqp-table1", sum(p.splits * p.runs * len(each) for p, each in plan)) as tick:
        for problem, each in plan:
            rows += [_row(problem, line, line.trained(problem, tick)) for line in each]
    return Reproduction(title="RQP-SGD, Table 1: median test accuracy (%)", note=NOTE, rows=tuple(rows))


REPRODUCTIONS: dict[str, Callable[[], Reproduction]] = {"rqp-table1": rqp_table1}
