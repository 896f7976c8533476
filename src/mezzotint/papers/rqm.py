"""Figures 2 to 11 of the RQM paper: Renyi divergences and errors of single reports, and federated training."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np
from scipy import optimize
from scipy.special import logsumexp

from mezzotint import datasets, design, families
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import FloatArray, Mechanism, Seed
from mezzotint.core.records import JsonObject, Progress, ticks
from mezzotint.federated import encoding as encodings
from mezzotint.federated import tasks
from mezzotint.papers.reproduction import Reproduction, Series

if TYPE_CHECKING:
    from mezzotint.families import PoissonBinomial

LEVELS, TRIALS = 16, 15
"""Levels of RQM, and trials of PBM at equal bits: 15 trials have 16 outcomes."""

PAIRS: dict[float, tuple[tuple[float, float], ...]] = {
    0.15: ((2.33, 0.42), (4.0, 0.5), (1.0, 0.23)),
    0.25: ((1.0, 0.42), (2.0, 0.57), (0.66, 0.33)),
    0.35: ((0.429, 0.49), (1.0, 0.65), (0.25, 0.37)),
}
"""theta of PBM -> the paper's (Delta / c, q) of RQM; the first of each is the main one."""

ALPHAS = (1.1, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
LOW_ALPHAS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0)

PAIR_ORDERS = (2.0, 1000.0)
PRINTED = {1.0: 5.46838, 0.9333: 5.46190}
"""x / c -> D_1000(x || -c) as the paper prints it (Appendix B.1.1), the second "at a quantization level near c"."""


def poisson_binomial(theta: float, clip: float = 1.0) -> Mechanism:
    """PBM at equal bits: 15 trials have 16 outcomes."""
    return families.pbm(lower=-clip, upper=clip, trials=TRIALS, theta=theta)


def randomized(pair: tuple[float, float], clip: float = 1.0) -> Mechanism:
    """RQM at one of the paper's (Delta / c, q)."""
    return families.rqm(lower=-clip, upper=clip, levels=LEVELS, extension=pair[0] * clip, q=pair[1])


ORDER, LOW_ORDER = 1.5, 0.5
SIZES = (4, 16, 64)
DIVERGENCES = {ORDER: (1.0, 1.5, 2.0, 3.0, 4.0, 5.0), LOW_ORDER: (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)}
EXTENSION = 1.0
"""In units of the clipping range; the mechanism's losses depend on nothing else."""

INPUTS = np.linspace(-1, 1, 30)
OPTIMAL_SIZES = (4,)
"""Sizes at which the optimal table is shown beside the two: at more levels the solver gives up near divergence 1."""


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return cast(float, optimize.brentq(function, low, high))


def _randomized(levels: int, divergence: float, order: float) -> Mechanism:
    """RQM whose divergence is the one given: it grows with q."""

    def at(q: float) -> Mechanism:
        return families.rqm(lower=-1, upper=1, levels=levels, extension=EXTENSION, q=q)

    return at(_root(lambda q: at(q).renyi(order) - divergence, 1e-3, 0.99))


def _poisson_binomial(levels: int, divergence: float, order: float) -> PoissonBinomial:
    """PBM with as many outcomes, in its exact form: its rarest outcomes lie below the 2**-32 of a table."""

    def at(theta: float) -> PoissonBinomial:
        return families.pbm_exact(lower=-1, upper=1, trials=levels - 1, theta=theta)

    return at(_root(lambda theta: at(theta).renyi(order) - divergence, 1e-3, 0.499))


def _optimal(levels: int, divergence: float, order: float) -> Mechanism:
    """The unbiased table with the least MSE on RQM's own levels."""
    grid = np.linspace(-1 - EXTENSION, 1 + EXTENSION, levels).tolist()
    return design.optimal(
        epsilon=divergence, alpha=order, lower=-1, upper=1, levels=grid, knots=9
    ).mechanism


def figure3() -> Reproduction:
    """Figure 3 of the RQM paper: mean squared error against Renyi divergence of order 1.5, RQM against PBM."""
    return _errors(
        3,
        ORDER,
        "its order, RQM below PBM everywhere, holds",
        "optimal: the unbiased table with the least MSE on RQM's own levels at the same divergence (4 levels).",
    )


def figure10() -> Reproduction:
    """Figure 10 of the RQM paper: mean squared error against Renyi divergence of order 0.5, RQM against PBM."""
    said = "it has RQM below PBM, which holds from divergence 1 on; below, PBM's error is up to 5.5 % the smaller one"
    return _errors(10, LOW_ORDER, said, "")


def _errors(number: int, order: float, said: str, more: str) -> Reproduction:
    rows: list[JsonObject] = []
    series: list[Series] = []
    divergences = DIVERGENCES[order]
    for levels in SIZES:
        makers: dict[str, Callable[[int, float, float], Mechanism | PoissonBinomial]] = {
            "RQM": _randomized,
            "PBM": _poisson_binomial,
        }
        if more and levels in OPTIMAL_SIZES:
            makers["optimal"] = _optimal
        errors = {
            name: [_error(make(levels, d, order)) for d in divergences]
            for name, make in makers.items()
        }
        for name, found in errors.items():
            series.append(Series(panel=f"m = {levels}", name=name, x=divergences, y=tuple(found)))
        for place, divergence in enumerate(divergences):
            rows.append(
                {
                    "levels": levels,
                    "divergence": divergence,
                    **{name: errors[name][place] for name in makers},
                }
            )
    return Reproduction(
        title=f"RQM, Figure {number}: MSE at equal Renyi divergence of order {order:g}",
        note="Mean over 30 even inputs, as in the paper, but exact where the paper draws 100,000 samples; Delta = c, "
        f"in units of c. The paper draws curves and prints no numbers; {said}. All divergences are worst cases over "
        f"all pairs of inputs, and of one coordinate's report. {more}".strip(),
        rows=tuple(rows),
        series=tuple(series),
        x_label=f"Renyi divergence of order {order:g}",
        y_label="mean squared error / c^2",
        log_y=True,
    )


def _error(mechanism: Mechanism | PoissonBinomial) -> float:
    """Mean squared error over the paper's inputs."""
    return float(np.mean(mechanism.mse(INPUTS)))


def figure2() -> Reproduction:
    """Figure 2 of the RQM paper: worst Renyi divergence of one coordinate's report against its order."""
    return _divergences(
        "RQM, Figure 2: worst Renyi divergence of one report (16 levels)",
        "at alpha = 1000 it reads 5.468 for (c, 0.42), as we do to three digits",
        PAIRS,
        ALPHAS,
    )


def figure9() -> Reproduction:
    """Figure 9 of the RQM paper: the left panel of Figure 2, theta 0.15, at low orders."""
    return _divergences(
        "RQM, Figure 9: worst Renyi divergence at low orders (16 levels)",
        "as there, the two are close below order 1, where RQM's is up to 5.3 % the greater one, and RQM's is less from "
        "order 1 on",
        {0.15: PAIRS[0.15]},
        LOW_ALPHAS,
    )


def _divergences(
    title: str,
    said: str,
    settings: Mapping[float, Sequence[tuple[float, float]]],
    alphas: Sequence[float],
) -> Reproduction:
    rows: list[JsonObject] = []
    series: list[Series] = []
    for theta, pairs in settings.items():
        # PBM's smallest probabilities lie below the 2**-32 of a table, whose losses would be too small: the exact form.
        exact = families.pbm_exact(lower=-1, upper=1, trials=TRIALS, theta=theta)
        reports: dict[str, Mechanism | PoissonBinomial] = {
            "RQM": randomized(pairs[0]),
            "PBM": exact,
        }
        values = {
            name: [report.renyi(alpha) for alpha in alphas] for name, report in reports.items()
        }
        panel = f"theta = {theta:g}, Delta = {pairs[0][0]:g} c, q = {pairs[0][1]:g}"
        series += [
            Series(panel=panel, name=name, x=tuple(alphas), y=tuple(found))
            for name, found in values.items()
        ]
        for place, alpha in enumerate(alphas):
            pair = {name: found[place] for name, found in values.items()}
            rows.append(
                {"theta": theta, "alpha": alpha, **pair, "PBM - RQM": pair["PBM"] - pair["RQM"]}
            )
    return Reproduction(
        title=title,
        note="The paper draws curves and prints no numbers. Ours are worst cases over all pairs of inputs, which its "
        f"D(c || -c) is not always; {said}. PBM has 15 trials here: as many outcomes as RQM has levels. Single "
        "coordinates: a vector costs as many times more.",
        rows=tuple(rows),
        series=tuple(series),
        x_label="Renyi order alpha",
        y_label="Renyi divergence (nats)",
        log_x=True,
    )


def divergence(mechanism: Mechanism, first: float, second: float, order: float) -> float:
    """Renyi divergence of the report of `first` from that of `second`, nats; order other than 1."""
    p, q = np.log(mechanism.pmf(np.array([first, second])))
    found = cast(float, logsumexp(order * p + (1 - order) * q))
    return max(0.0, float(found) / (order - 1))


CUTS = (-1.0, -0.5, 0.0, 0.5, 1.0)


def _inputs(table: Mechanism) -> tuple[float, ...]:
    """The range, and the levels in it: the divergences have their kinks there."""
    return tuple(
        np.union1d(np.linspace(-1, 1, 201), table.levels[np.abs(table.levels) < 1]).tolist()
    )


def figure7() -> Reproduction:
    """Figure 7 of the RQM paper: the Renyi divergence of every pair of inputs, theta 0.25's RQM."""
    table = randomized(PAIRS[0.25][0])
    inputs = _inputs(table)
    rows: list[JsonObject] = []
    series: list[Series] = []
    for order in PAIR_ORDERS:
        panel = f"order {order:g}"
        for second in CUTS:
            found = tuple(divergence(table, first, second, order) for first in inputs)
            series.append(Series(panel=panel, name=f"x' = {second:g} c", x=inputs, y=found))
        for first in CUTS:
            row = {f"x' = {second:g} c": divergence(table, first, second, order) for second in CUTS}
            rows.append({"order": order, "x / c": first, **row})
    return Reproduction(
        title="RQM, Figure 7: Renyi divergence of pairs of inputs, Delta = c, q = 0.42, m = 16",
        note="The paper draws the surface D(x || x'); here are five cuts through it, and the values where they cross. "
        "As there, the peaks stand at (c, -c) and (-c, c) for this setting; for others they do not (see the errata).",
        rows=tuple(rows),
        series=tuple(series),
        x_label="x / c",
        y_label="D(x || x') (nats)",
    )


def figure8() -> Reproduction:
    """Figure 8 of the RQM paper: the Renyi divergence of each input from -c, with the two values that it prints."""
    table = randomized(PAIRS[0.25][0])
    inputs = _inputs(table)
    curves = {
        order: tuple(divergence(table, x, -1.0, order) for x in inputs) for order in PAIR_ORDERS
    }
    marks = [-1.0, *(x for x in table.levels.tolist() if abs(x) < 1), 1.0]
    rows: list[JsonObject] = []
    for x in marks:
        found = {f"order {order:g}": divergence(table, x, -1.0, order) for order in PAIR_ORDERS}
        paper = PRINTED.get(round(x, 4))
        difference = None if paper is None else found["order 1000"] - paper
        rows.append({"x / c": x, **found, "paper, order 1000": paper, "difference": difference})
    return Reproduction(
        title="RQM, Figure 8: Renyi divergence of each input from -c, Delta = c, q = 0.42, m = 16",
        note="The table has the ends of the range and the levels between them, where the curves have their kinks. The "
        "paper prints the values of order 1000 at c and at the kink next to it.",
        rows=tuple(rows),
        series=tuple(
            Series(panel=f"order {order:g}", name="RQM", x=inputs, y=found)
            for order, found in curves.items()
        ),
        x_label="x / c",
        y_label="D(x || -c) (nats)",
    )


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
    bands = 1

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

    def after(self, _: encodings.Integers, **__: int) -> _Centrally:
        return self


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
    "rqm-figure2": figure2,
    "rqm-figure3": figure3,
    "rqm-figure4": figure4,
    "rqm-figure5": figure5,
    "rqm-figure6": figure6,
    "rqm-figure7": figure7,
    "rqm-figure8": figure8,
    "rqm-figure9": figure9,
    "rqm-figure10": figure10,
    "rqm-figure11": figure11,
}
