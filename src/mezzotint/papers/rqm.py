"""Figures 2 to 6 of the RQM paper: divergences and errors of single reports, and federated training on FEMNIST."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy import optimize

from mezzotint import datasets, design, families
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.federated import encoding as encodings
from mezzotint.federated import tasks
from mezzotint.papers.reproduction import Reproduction, Series

ORDER = 1.5
SIZES = (4, 16, 64)
DIVERGENCES = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0)
EXTENSION = 1.0
"""In units of the clipping range; the mechanism's losses depend on nothing else."""

INPUTS = np.linspace(-1, 1, 30)
OPTIMAL_SIZES = (4,)
"""Sizes at which the optimal table is shown beside the two: at more levels the solver gives up near divergence 1."""


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    found: Any = optimize.brentq(function, low, high)
    return found


def _randomized(levels: int, divergence: float) -> Mechanism:
    """RQM whose divergence is the one given: it grows with q."""

    def at(q: float) -> Mechanism:
        return families.rqm(lower=-1, upper=1, levels=levels, extension=EXTENSION, q=q)

    return at(_root(lambda q: at(q).renyi(ORDER) - divergence, 1e-3, 0.99))


def _poisson_binomial(levels: int, divergence: float) -> Any:
    """PBM with as many outcomes, in its exact form: its rarest outcomes lie below the 2**-32 of a table."""

    def at(theta: float) -> Any:
        return families.pbm_exact(lower=-1, upper=1, trials=levels - 1, theta=theta)

    return at(_root(lambda theta: at(theta).renyi(ORDER) - divergence, 1e-3, 0.499))


def _optimal(levels: int, divergence: float) -> Mechanism:
    """The unbiased table with the least MSE on RQM's own levels."""
    grid = np.linspace(-1 - EXTENSION, 1 + EXTENSION, levels).tolist()
    return design.optimal(epsilon=divergence, alpha=ORDER, lower=-1, upper=1, levels=grid, knots=9).mechanism


def figure3() -> Reproduction:
    """Figure 3 of the RQM paper: mean squared error against Renyi divergence, RQM against PBM."""
    rows: list[Mapping[str, Any]] = []
    series: list[Series] = []
    for levels in SIZES:
        makers: dict[str, Callable[[int, float], Any]] = {"RQM": _randomized, "PBM": _poisson_binomial}
        if levels in OPTIMAL_SIZES:
            makers["optimal"] = _optimal
        errors = {name: [_error(make(levels, d)) for d in DIVERGENCES] for name, make in makers.items()}
        for name, found in errors.items():
            series.append(Series(panel=f"m = {levels}", name=name, x=DIVERGENCES, y=tuple(found)))
        for place, divergence in enumerate(DIVERGENCES):
            at = {name: errors[name][place] if name in errors else None for name in ("RQM", "PBM", "optimal")}
            rows.append({"levels": levels, "divergence": divergence, **at})
    return Reproduction(
        title=f"RQM, Figure 3: MSE at equal Renyi divergence of order {ORDER:g}",
        note="Mean over 30 even inputs, as in the paper, but exact where the paper draws 100,000 samples; Delta = c, "
        "in units of c. The paper draws curves and prints no numbers; its order, RQM below PBM everywhere, holds. "
        "optimal: the unbiased table with the least MSE on RQM's own levels at the same divergence (4 levels). All "
        "divergences are worst cases over all pairs of inputs, and of one coordinate's report.",
        rows=tuple(rows),
        series=tuple(series),
        x_label=f"Renyi divergence of order {ORDER:g}",
        y_label="mean squared error",
        log_y=True,
    )


def _error(mechanism: Any) -> float:
    """Mean squared error over the paper's inputs."""
    return float(np.mean(mechanism.mse(INPUTS)))


FOLDER_VARIABLE = "MEZZOTINT_FEMNIST"
"""Environment variable that names FEMNIST: an npz with x, y, writer and split, or a folder that LEAF made."""

LEVELS, TRIALS = 16, 15
CLIP = 2.9731e-5
PER_ROUND = 40
LEARNING_RATE = 500.0
TRAINING_ORDER = 2.0
"""Renyi order at which the optimal table is given the loss of the paper's first RQM."""

PAIRS: dict[float, tuple[tuple[float, float], ...]] = {
    0.15: ((2.33, 0.42), (4.0, 0.5), (1.0, 0.23)),
    0.25: ((1.0, 0.42), (2.0, 0.57), (0.66, 0.33)),
    0.35: ((0.429, 0.49), (1.0, 0.65), (0.25, 0.37)),
}
"""theta of PBM -> the paper's (Delta / c, q) of RQM; the first of each is the main one."""

ALPHAS = (1.1, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 300.0, 1000.0)


def poisson_binomial(theta: float, clip: float = 1.0) -> Mechanism:
    """PBM at equal bits: 15 trials have 16 outcomes."""
    return families.pbm(lower=-clip, upper=clip, trials=TRIALS, theta=theta)


def randomized(pair: tuple[float, float], clip: float = 1.0) -> Mechanism:
    """RQM at one of the paper's (Delta / c, q)."""
    return families.rqm(lower=-clip, upper=clip, levels=LEVELS, extension=pair[0] * clip, q=pair[1])


def optimal_at(loss: float, clip: float = 1.0) -> Mechanism:
    """The table on 16 even levels with the least MSE among those with Renyi divergence at most `loss` at `ORDER`."""
    found = [
        design.optimal(
            epsilon=loss,
            alpha=TRAINING_ORDER,
            lower=-1.0,
            upper=1.0,
            levels=np.linspace(-reach, reach, LEVELS).tolist(),
            knots=9,
        ).mechanism
        for reach in (1.1, 1.25, 1.4, 1.6, 1.8, 2.1)
    ]
    best = min(found, key=lambda mechanism: mechanism.mse())
    # Scaling inputs and levels alike changes no row.
    return Mechanism(knots=best.knots * clip, levels=best.levels * clip, weights=best.weights, name="optimal")


def figure2() -> Reproduction:
    """Figure 2 of the RQM paper: worst Renyi divergence of one coordinate's report against its order."""
    rows: list[Mapping[str, Any]] = []
    series: list[Series] = []
    for theta, pairs in PAIRS.items():
        # PBM's smallest probabilities lie below the 2**-32 of a table, whose losses would be too small: the exact form.
        exact = families.pbm_exact(lower=-1, upper=1, trials=TRIALS, theta=theta)
        reports: dict[str, Any] = {"RQM": randomized(pairs[0]), "PBM": exact}
        values = {name: [report.renyi(alpha) for alpha in ALPHAS] for name, report in reports.items()}
        panel = f"theta = {theta:g}, Delta = {pairs[0][0]:g} c, q = {pairs[0][1]:g}"
        for name, found in values.items():
            series.append(Series(panel=panel, name=name, x=tuple(math.log10(a) for a in ALPHAS), y=tuple(found)))
        for place, alpha in enumerate(ALPHAS):
            pair = {name: found[place] for name, found in values.items()}
            rows.append({"theta": theta, "alpha": alpha, **pair, "PBM - RQM": pair["PBM"] - pair["RQM"]})
    return Reproduction(
        title="RQM, Figure 2: worst Renyi divergence of one report (16 levels)",
        note="The paper draws curves and prints no numbers. Ours are worst cases over all pairs of inputs, which its "
        "D(c || -c) is not always; at alpha = 1000 it reads 5.468 for (c, 0.42), as we do to three digits. PBM has 15 "
        "trials here: as many outcomes as RQM has levels. Single coordinates: a vector costs as many times more.",
        rows=tuple(rows),
        series=tuple(series),
        x_label="log10(alpha)",
        y_label="Renyi divergence",
    )


@final
@dataclass(frozen=True, kw_only=True)
class Experiment:
    """How the training figures are run.

    Arguments:
        rounds, seeds: scaled to a small machine; the paper has 2000 rounds and names no number of runs.
        model: "softmax" (48,670 parameters on FEMNIST); "small-cnn" and "cnn" take many times longer.
        learning_rate: of the server; the paper does not print its own.
        evaluations: points of a curve.
    """

    rounds: int = 100
    seeds: int = 3
    model: str = "softmax"
    learning_rate: float = LEARNING_RATE
    evaluations: int = 10


def _federation() -> Any:
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        remedy = "set it to FEMNIST by writer: LEAF's folder, or an npz with x, y, writer and split"
        raise ParameterError(FOLDER_VARIABLE, "not set", remedy)
    return datasets.load_federation("femnist", folder=folder, clients=0)


def _contestants(theta: float) -> dict[str, Any]:
    main, *others = PAIRS[theta]
    tables = {"PBM": poisson_binomial(theta, CLIP)}
    tables |= {f"RQM Delta={pair[0]:g}c q={pair[1]:g}": randomized(pair, CLIP) for pair in (main, *others)}
    tables["optimal table"] = optimal_at(randomized(main).renyi(TRAINING_ORDER), CLIP)
    return {
        "noise-free clipped": encodings.FixedPointEncoding(clip=CLIP),
        **{name: encodings.TableEncoding(mechanism=table) for name, table in tables.items()},
    }


def _mean_and_error(values: Any) -> tuple[float, float]:
    array = np.asarray(values, dtype=np.float64)
    return float(array.mean()), float(array.std(ddof=1) / math.sqrt(array.size)) if array.size > 1 else math.nan


def _losses(name: str, theta: float, encoding: Any) -> dict[str, Any]:
    """Of one report; PBM's by its exact form, for a table stops at probabilities of 2**-32."""
    table = getattr(encoding, "mechanism", None)
    if name == "PBM":
        table = families.pbm_exact(lower=-1, upper=1, trials=TRIALS, theta=theta)
    return {
        "epsilon of a report": None if table is None else table.epsilon,
        f"D_{TRAINING_ORDER:g}": None if table is None else table.renyi(TRAINING_ORDER),
        "MSE / c^2": None if table is None else encoding.mechanism.mse() / CLIP**2,
    }


def _row(name: str, theta: float, encoding: Any, history: Any, rival: Any) -> dict[str, Any]:
    """Losses of one report, the last evaluation, and what PBM had more of it, seed by seed."""
    loss, loss_error = _mean_and_error(history[:, -1, 1])
    accuracy, accuracy_error = _mean_and_error(100 * history[:, -1, 2])
    gain, gain_error = _mean_and_error(rival[:, -1, 1] - history[:, -1, 1])
    better, better_error = _mean_and_error(100 * (history[:, -1, 2] - rival[:, -1, 2]))
    return {
        "mechanism": name,
        "bits": encoding.report_bits,
        **_losses(name, theta, encoding),
        "loss": loss,
        "loss s.e.": loss_error,
        "accuracy": accuracy,
        "accuracy s.e.": accuracy_error,
        "loss below PBM": gain,
        "its s.e.": gain_error,
        "accuracy above PBM": better,
        "and its s.e.": better_error,
    }


def _verdict(rows: Sequence[Mapping[str, Any]]) -> str:
    said: list[str] = []
    for row in rows:
        if not row["mechanism"].startswith("RQM"):
            continue
        words = []
        for quantity, error in (("loss below PBM", "its s.e."), ("accuracy above PBM", "and its s.e.")):
            gain, spread = row[quantity], row[error]
            verb = "yes" if gain > spread else "reversed" if gain < -spread else "no"
            words.append(f"{quantity.split()[0]} {verb}")
        said.append(f"{row['mechanism']}: {', '.join(words)}")
    return "Better than PBM beyond one standard error, seed by seed? " + "; ".join(said) + "."


def training_figure(number: int, theta: float, experiment: Experiment | None = None) -> Reproduction:
    """Figures 4, 5 and 6 of the RQM paper: loss and accuracy of federated training on FEMNIST."""
    how = Experiment() if experiment is None else experiment
    federation = _federation()
    run = tasks.Rehearsal(
        federation=federation,
        model=tasks.model_for(how.model, federation),
        per_round=PER_ROUND,
        learning_rate=how.learning_rate,
        rounds=how.rounds,
        every=max(1, how.rounds // how.evaluations),
    )
    contestants = _contestants(theta)
    histories = {
        name: np.array([run.run(encoding, seed=seed) for seed in range(how.seeds)])
        for name, encoding in contestants.items()
    }
    rows = [_row(name, theta, encoding, histories[name], histories["PBM"]) for name, encoding in contestants.items()]
    series = [
        _curve(panel, name, history[0, :, 0], history[:, :, column])
        for panel, column in (("loss", 1), ("accuracy", 2))
        for name, history in histories.items()
    ]
    return Reproduction(
        title=f"RQM, Figure {number}: federated training on FEMNIST (theta = {theta:g}, m = {LEVELS})",
        note=_note(how, federation, rows),
        rows=tuple(rows),
        series=tuple(series),
        x_label="round",
    )


def _curve(panel: str, name: str, rounds: Any, values: Any) -> Series:
    """Means over the seeds, (seeds, points), and one standard error on both sides where there are several."""
    mean = values.mean(axis=0)
    error = values.std(axis=0, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else None
    low, high = ((), ()) if error is None else (tuple((mean - error).tolist()), tuple((mean + error).tolist()))
    return Series(panel=panel, name=name, x=tuple(rounds.tolist()), y=tuple(mean.tolist()), low=low, high=high)


def _note(how: Experiment, federation: Any, rows: Sequence[Mapping[str, Any]]) -> str:
    return (
        f"{_verdict(rows)} Scaled to a small machine: {how.rounds} rounds of {PER_ROUND} of {len(federation.clients)} "
        f"writers and {how.seeds} seeds with model {how.model}; the paper has 2000 rounds, 3400 devices and a "
        f"convolutional network, and prints neither numbers nor its server's learning rate ({how.learning_rate:g} "
        f"here). c = {CLIP:g}, m, theta, Delta / c and q are the paper's; PBM has {TRIALS} trials, as many outcomes. "
        f"The optimal table has the Renyi divergence of the first RQM at order {TRAINING_ORDER:g}. Sums are "
        "plain: masks change time only. Epsilons are of one coordinate; for the whole vector nothing useful can be "
        "claimed with 40 clients."
    )


def figure4() -> Reproduction:
    """Figure 4 of the RQM paper: training on FEMNIST against PBM at theta 0.15."""
    return training_figure(4, 0.15)


def figure5() -> Reproduction:
    """Figure 5 of the RQM paper: training on FEMNIST against PBM at theta 0.25."""
    return training_figure(5, 0.25)


def figure6() -> Reproduction:
    """Figure 6 of the RQM paper: training on FEMNIST against PBM at theta 0.35."""
    return training_figure(6, 0.35)


REPRODUCTIONS: dict[str, Callable[[], Reproduction]] = {
    "rqm-figure3": figure3,
    "rqm-figure2": figure2,
    "rqm-figure4": figure4,
    "rqm-figure5": figure5,
    "rqm-figure6": figure6,
}
