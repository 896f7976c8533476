"""Figures 4 to 6 and 11 of the RQM paper: federated training with RQM beside PBM and the optimal table."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from mezzotint import datasets, design, families
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, Progress, ticks
from mezzotint.core.types import FloatArray, Seed
from mezzotint.federated import encoding as encodings
from mezzotint.federated import tasks
from mezzotint.papers.reproduction import Reproduction, Series
from mezzotint.papers.rqm import LEVELS, PAIRS, TRIALS, poisson_binomial, randomized

FOLDER_VARIABLE = "MEZZOTINT_FEMNIST"
"""Environment variable that names FEMNIST: an npz with x, y, writer and split, or a folder that LEAF made."""

CLIP = 2.9731e-5
PER_ROUND = 40
LEARNING_RATE = 500.0
TRAINING_ORDER = 2.0
"""Renyi order at which the optimal table is given the loss of the paper's first RQM."""

ALONE_CLIP, ALONE_RATE, ALONE_SEEDS = 1e-3, 100.0, 24
"""A setting that tells mechanisms apart: one client a round, so that nobody else's noise averages its own away."""

CIFAR_VARIABLE = "MEZZOTINT_CIFAR"
"""Environment variable that names the Python version of CIFAR-100, or of CIFAR-10 in its place."""

CIFAR_CLIP, CIFAR_CLIENTS = 5.3680e-5, 500


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
    return Mechanism(
        knots=best.knots * clip, levels=best.levels * clip, weights=best.weights, name="optimal"
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
        alone_seeds: runs of the setting with one client a round.
    """

    rounds: int = 100
    seeds: int = 3
    alone_seeds: int = ALONE_SEEDS
    model: str = "softmax"
    learning_rate: float = LEARNING_RATE
    evaluations: int = 10


def _federation() -> datasets.Federation:
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        remedy = "set it to FEMNIST by writer: LEAF's folder, or an npz with x, y, writer and split"
        raise ParameterError(FOLDER_VARIABLE, "not set", remedy)
    return datasets.load_federation("femnist", folder=folder, clients=0)


def _contestants(theta: float, clip: float = CLIP) -> dict[str, encodings.Encoding]:
    main, *others = PAIRS[theta]
    tables = {"PBM": poisson_binomial(theta, clip)}
    tables |= {
        f"RQM Delta={pair[0]:g}c q={pair[1]:g}": randomized(pair, clip) for pair in (main, *others)
    }
    tables["optimal table"] = optimal_at(randomized(main).renyi(TRAINING_ORDER), clip)
    return {
        "noise-free clipped": encodings.FixedPointEncoding(clip=clip),
        **{name: encodings.TableEncoding(mechanism=table) for name, table in tables.items()},
    }


def _mean_and_error(values: FloatArray) -> tuple[float, float]:
    array = np.asarray(values, dtype=np.float64)
    return float(array.mean()), float(
        array.std(ddof=1) / math.sqrt(array.size)
    ) if array.size > 1 else math.nan


def _losses(name: str, theta: float, encoding: encodings.Encoding) -> JsonObject:
    """Of one report; PBM's by its exact form, for a table stops at probabilities of 2**-32."""
    drawn = table = getattr(encoding, "mechanism", None)
    if name == "PBM":
        table = families.pbm_exact(lower=-1, upper=1, trials=TRIALS, theta=theta)
    return {
        "epsilon of a report": None if table is None else table.epsilon,
        f"D_{TRAINING_ORDER:g}": None if table is None else table.renyi(TRAINING_ORDER),
        "MSE / c^2": None if drawn is None else drawn.mse() / CLIP**2,
    }


def _last(history: FloatArray, accuracy: str) -> dict[str, float]:
    """Means over the seeds, and their errors, of the last evaluation."""
    found: dict[str, float] = {}
    for name, values in (("loss", history[:, -1, 1]), (accuracy, 100 * history[:, -1, 2])):
        found[name], found[f"{name.split()[0]} s.e."] = _mean_and_error(values)
    return found


def _row(
    name: str, theta: float, encoding: encodings.Encoding, history: FloatArray, rival: FloatArray
) -> JsonObject:
    """Losses of one report, the last evaluation, and what PBM had more of it, seed by seed."""
    gain, gain_error = _mean_and_error(rival[:, -1, 1] - history[:, -1, 1])
    better, better_error = _mean_and_error(100 * (history[:, -1, 2] - rival[:, -1, 2]))
    return {
        "mechanism": name,
        "bits": encoding.report_bits,
        **_losses(name, theta, encoding),
        **_last(history, "accuracy"),
        "loss below PBM": gain,
        "its s.e.": gain_error,
        "accuracy above PBM": better,
        "and its s.e.": better_error,
    }


def _verdict(rows: Sequence[JsonObject]) -> str:
    said: list[str] = []
    for row in rows:
        if not row["mechanism"].startswith("RQM"):
            continue
        words = []
        for quantity, error in (
            ("loss below PBM", "its s.e."),
            ("accuracy above PBM", "and its s.e."),
        ):
            gain, spread = row[quantity], row[error]
            verb = "yes" if gain > spread else "reversed" if gain < -spread else "no"
            words.append(f"{quantity.split()[0]} {verb}")
        said.append(f"{row['mechanism']}: {', '.join(words)}")
    return "Better than PBM beyond one standard error, seed by seed? " + "; ".join(said) + "."


def _rehearsal(how: Experiment, federation: datasets.Federation) -> tasks.Rehearsal:
    return tasks.Rehearsal(
        federation=federation,
        model=tasks.model_for(how.model, federation),
        per_round=PER_ROUND,
        learning_rate=how.learning_rate,
        rounds=how.rounds,
        every=max(1, how.rounds // how.evaluations),
    )


def training_figure(
    number: int,
    theta: float,
    experiment: Experiment | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Figures 4, 5 and 6 of the RQM paper: loss and accuracy of federated training on FEMNIST.

    Arguments:
        number: of the figure; theta: of its PBM.
        experiment: how it is run; progress: called after each run.
    """
    how = Experiment() if experiment is None else experiment
    federation = _federation()
    run = _rehearsal(how, federation)
    contestants, alone = _contestants(theta), _contestants(theta, ALONE_CLIP)
    tick = ticks(progress, len(contestants) * (how.seeds + how.alone_seeds))
    histories = _histories(run, contestants, how.seeds, tick)
    single = _histories(
        replace(run, per_round=1, learning_rate=ALONE_RATE), alone, how.alone_seeds, tick
    )
    excess = {name: history - single["noise-free clipped"] for name, history in single.items()}
    rows = []
    for name, encoding in contestants.items():
        gain, error = _mean_and_error(excess[name][:, -1, 1])
        row = _row(name, theta, encoding, histories[name], histories["PBM"])
        rows.append({**row, "one client: loss above noise-free": gain, "its standard error": error})
    panels = ("loss", histories, 1), ("accuracy", histories, 2), (ALONE_PANEL, excess, 1)
    return Reproduction(
        title=f"RQM, Figure {number}: federated training on FEMNIST (theta = {theta:g}, m = {LEVELS})",
        note=_note(how, federation, rows),
        rows=tuple(rows),
        series=tuple(
            _curve(panel, name, histories[name][0, :, 0], history[:, :, column])
            for panel, found, column in panels
            for name, history in found.items()
        ),
        x_label="round",
        y_label=("test loss (nats)", "test accuracy", "extra test loss (nats)"),
    )


ALONE_PANEL = "one client a round: loss above noise-free"


def _histories(
    run: tasks.Rehearsal, contestants: Mapping[str, Any], seeds: int, tick: Callable[[], None]
) -> dict[str, FloatArray]:
    """name -> (seeds, points, 3) of round, loss, accuracy."""
    found: dict[str, list[list[tuple[int, float, float]]]] = {name: [] for name in contestants}
    for name, encoding in contestants.items():
        for seed in range(seeds):
            found[name].append(run.run(encoding, seed=seed))
            tick()
    return {name: np.array(history) for name, history in found.items()}


def _curve(panel: str, name: str, rounds: FloatArray, values: FloatArray) -> Series:
    """Means over the seeds, (seeds, points), and one standard error on both sides where there are several."""
    mean = values.mean(axis=0)
    error = values.std(axis=0, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else None
    low, high = (
        ((), ())
        if error is None
        else (tuple((mean - error).tolist()), tuple((mean + error).tolist()))
    )
    return Series(
        panel=panel, name=name, x=tuple(rounds.tolist()), y=tuple(mean.tolist()), low=low, high=high
    )


def _note(how: Experiment, federation: datasets.Federation, rows: Sequence[JsonObject]) -> str:
    return (
        f"{_verdict(rows)} Left and middle: the sum of {PER_ROUND} clients hides the noise of each, so that this "
        "experiment cannot tell the mechanisms apart. Right: one that can, with one client a round, clipping at "
        f"{ALONE_CLIP:g}, rate {ALONE_RATE:g} and {how.alone_seeds} seeds; what is drawn is the loss above that of "
        "noise-free training with the same clients, and it grows with the MSE. Bars are one standard error. Scaled to "
        f"a small machine: {how.rounds} rounds of {PER_ROUND} of {len(federation.clients)} writers and {how.seeds} "
        f"seeds with model {how.model}; the paper has 2000 rounds, 3400 devices and a convolutional network, and "
        f"prints neither numbers nor its server's learning rate ({how.learning_rate:g} here). c = {CLIP:g}, m, theta, "
        f"Delta / c and q are the paper's; PBM has {TRIALS} trials, as many outcomes. The optimal table has the Renyi "
        f"divergence of the first RQM at order {TRAINING_ORDER:g}. Sums are plain: masks change time only. Epsilons "
        f"are of one coordinate; for the whole vector nothing useful can be claimed with {PER_ROUND} clients."
    )


def figure4(progress: Progress | None = None) -> Reproduction:
    """Figure 4 of the RQM paper: training on FEMNIST against PBM at theta 0.15."""
    return training_figure(4, 0.15, progress=progress)


def figure5(progress: Progress | None = None) -> Reproduction:
    """Figure 5 of the RQM paper: training on FEMNIST against PBM at theta 0.25."""
    return training_figure(5, 0.25, progress=progress)


def figure6(progress: Progress | None = None) -> Reproduction:
    """Figure 6 of the RQM paper: training on FEMNIST against PBM at theta 0.35."""
    return training_figure(6, 0.35, progress=progress)


@final
@dataclass(frozen=True, kw_only=True)
class _Centrally:
    """The noise-free encoding, to whose decoded mean the server adds Gaussian noise."""

    clean: encodings.FixedPointEncoding
    deviation: float
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(11))

    @property
    def weighs(self) -> bool:
        return self.clean.weighs

    def length(self, size: int) -> int:
        return self.clean.length(size)

    def encode(self, update: encodings.Vector, *, rng: Seed = None) -> encodings.Integers:
        return self.clean.encode(update, rng=rng)

    def decode(
        self, total: encodings.Integers, *, count: int, size: int, release: bytes | None = None
    ) -> encodings.Vector:
        mean = self.clean.decode(total, count=count, size=size, release=release)
        return mean + self.rng.normal(0, self.deviation / count, size)


def figure11(
    experiment: Experiment | None = None, progress: Progress | None = None
) -> Reproduction:
    """Figure 11 of the RQM paper: training on CIFAR-100 against PBM, central noise and no clipping.

    Arguments:
        experiment: how it is run; progress: called after each run.
    """
    how = Experiment(rounds=60) if experiment is None else experiment
    data, federation = _cifar()
    run = _rehearsal(how, federation)
    rqm = randomized(PAIRS[0.25][0], CIFAR_CLIP)
    clean = encodings.FixedPointEncoding(clip=CIFAR_CLIP)
    # Gaussian noise s on a sum that one client moves by at most 2 c: the divergence of order a is a (2 c)^2 / (2 s^2).
    deviation = 2 * CIFAR_CLIP * math.sqrt(TRAINING_ORDER / (2 * rqm.renyi(TRAINING_ORDER)))
    contestants: dict[str, Any] = {
        "noise-free clipped": clean,
        "PBM": encodings.TableEncoding(mechanism=poisson_binomial(0.25, CIFAR_CLIP)),
        "RQM Delta=1c q=0.42": encodings.TableEncoding(mechanism=rqm),
        "central Gaussian": _Centrally(clean=clean, deviation=deviation),
    }
    tick = ticks(progress, (len(contestants) + 1) * how.seeds)
    histories = _histories(run, contestants, how.seeds, tick)
    free = {"noise-free, no clipping": encodings.FixedPointEncoding(clip=1.0)}
    histories |= _histories(replace(run, learning_rate=FREE_RATE), free, how.seeds, tick)
    rows = [
        {"method": name, **_last(history, "accuracy (%)")} for name, history in histories.items()
    ]
    return Reproduction(
        title=f"RQM, Figure 11: federated training on {data} (theta = 0.25, m = {LEVELS})",
        note=f"{data}, {CIFAR_CLIENTS} clients (Dirichlet), {how.rounds} rounds of {PER_ROUND}, {how.seeds} seeds, "
        f"model {how.model}; the paper trains a convolutional network on CIFAR-100 and prints neither numbers nor "
        f"rates ({how.learning_rate:g} here, {FREE_RATE:g} without clipping). The Gaussian noise has RQM's divergence "
        f"of order {TRAINING_ORDER:g} for each coordinate, once for the sum: it trusts the server, and is the smaller "
        f"noise therefore. Clipping at {CIFAR_CLIP:g} leaves little but signs, and with {PER_ROUND} clients the noise "
        "of all three methods is small beside them: without a standard error between them no order can be told.",
        rows=tuple(rows),
        series=tuple(
            _curve(panel, name, history[0, :, 0], history[:, :, column])
            for panel, column in (("loss", 1), ("accuracy", 2))
            for name, history in histories.items()
        ),
        x_label="round",
        y_label=("test loss (nats)", "test accuracy"),
    )


FREE_RATE = 0.1


def _cifar() -> tuple[str, datasets.Federation]:
    folder = os.environ.get(CIFAR_VARIABLE)
    if not folder:
        raise ParameterError(
            CIFAR_VARIABLE, None, "set this variable to the folder of CIFAR-100 (Python version)"
        )
    name = "cifar100" if os.path.isfile(os.path.join(folder, "train")) else "cifar10"
    federation = datasets.load_federation(name, folder=folder, clients=CIFAR_CLIENTS)
    return {"cifar100": "CIFAR-100", "cifar10": "CIFAR-10, for want of CIFAR-100"}[name], federation


REPRODUCTIONS: dict[str, Callable[..., Reproduction]] = {
    "rqm-figure4": figure4,
    "rqm-figure5": figure5,
    "rqm-figure6": figure6,
    "rqm-figure11": figure11,
}
