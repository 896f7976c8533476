"""Figures 4 to 6 and 11 of the RQM paper, and privacy against accuracy of five mechanisms: federated training, simulated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from mezzotint import datasets, design, families
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, ticks
from mezzotint.core.types import FloatArray
from mezzotint.papers.reproduction import RUNS, Part, Reproduction, Series
from mezzotint.papers.rqm import LEVELS, PAIRS, TRIALS, Pair, law_of, poisson_binomial, randomized
from mezzotint.papers.simulation import (
    QUICK_ROUNDS,
    QUICK_SEEDS,
    Contestant,
    Experiment,
    Kept,
    Run,
    Simulation,
    histories,
    pseudo_writers,
)

CLIP = 2.9731e-5
"""c of the paper's experiments on FEMNIST."""
TRAINING_ORDER = 2.0
"""Renyi order at which divergences are shown, and the optimal table is given that of the paper's first RQM."""
ALONE_ROUNDS, ALONE_RATE, ALONE_SEEDS = 400, 2000.0, 5
"""A setting that tells mechanisms apart: one client a round, so that nobody else's noise averages its own away."""
NOISE_FREE = "noise-free clipped"


@cache
def optimal_at(divergence: float) -> Mechanism:
    """The table on 16 even levels with the least MSE among those with at most this Renyi divergence of order 2."""
    reaches = (1.1, 1.25, 1.4, 1.6, 1.8, 2.1)
    tables = [
        design.optimal(
            epsilon=divergence,
            alpha=TRAINING_ORDER,
            lower=-1.0,
            upper=1.0,
            levels=np.linspace(-reach, reach, LEVELS).tolist(),
            knots=9,
        ).mechanism
        for reach in reaches
    ]
    return min(tables, key=lambda table: table.mse())


def rqm_name(pair: Pair) -> str:
    """What a row of RQM is called."""
    return f"RQM Delta={pair[0]:g}c q={pair[1]:g}"


def contestants(theta: float) -> dict[str, Contestant]:
    """What trains in the figure of this theta, by name."""
    main = PAIRS[theta][0]
    tables = {"PBM": poisson_binomial(theta)}
    tables |= {rqm_name(pair): randomized(pair) for pair in PAIRS[theta]}
    tables["optimal table"] = optimal_at(law_of(main).renyi(TRAINING_ORDER))
    found = {NOISE_FREE: Contestant(clip=CLIP)}
    return found | {name: Contestant(clip=CLIP, table=table) for name, table in tables.items()}


def _losses(theta: float, name: str, contestant: Contestant) -> JsonObject:
    """Of one report of one coordinate: RQM's and PBM's from their exact laws, the optimal table's its own."""
    laws = {rqm_name(pair): law_of(pair) for pair in PAIRS[theta]}
    exact = families.pbm_exact(lower=-1, upper=1, trials=TRIALS, theta=theta)
    law = {**laws, "PBM": exact}.get(name, contestant.table)
    if law is None or contestant.table is None:
        return {"epsilon of a report": None, f"D_{TRAINING_ORDER:g}": None, "MSE / c^2": 0.0}
    return {
        "epsilon of a report": law.epsilon,
        f"D_{TRAINING_ORDER:g}": law.renyi(TRAINING_ORDER),
        "MSE / c^2": contestant.table.mse(),
    }


def _federation(data: str | None) -> tuple[str, datasets.Federation]:
    """FEMNIST by writer, or MNIST in random parts in its place."""
    if data is None:
        raise ParameterError(
            "data", None, "name FEMNIST by writer (npz or LEAF's folder), or MNIST's folder instead"
        )
    if any(Path(data).glob("*images-idx3-ubyte*")):
        return "MNIST in 3,400 random parts of 17", pseudo_writers(data)
    federation = datasets.load_federation("femnist", folder=data, clients=0)
    return f"FEMNIST, {len(federation.clients)} writers", federation


def _mean_and_error(values: FloatArray) -> tuple[float, float]:
    if values.size < 2:
        return float(values.mean()), math.nan
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(values.size))


def _compared(history: FloatArray, rival: FloatArray, prefix: str) -> JsonObject:
    """The last evaluation, and what PBM had less of, seed by seed."""
    loss, accuracy = history[:, -1, 1], 100 * history[:, -1, 2]
    row: JsonObject = {}
    row[f"{prefix}loss"], _ = _mean_and_error(loss)
    row[f"{prefix}accuracy"], row[f"{prefix}s.e."] = _mean_and_error(accuracy)
    row[f"{prefix}loss below PBM"], row[f"{prefix}its s.e."] = _mean_and_error(
        rival[:, -1, 1] - loss
    )
    gain = _mean_and_error(accuracy - 100 * rival[:, -1, 2])
    row[f"{prefix}accuracy above PBM"], row[f"{prefix}and its s.e."] = gain
    return row


ALONE = "alone: "
"""Prefix of the columns of the setting with one client a round."""


def _verdict(rows: Sequence[JsonObject], prefix: str, seeds: int) -> str:
    """Where each RQM differs from PBM by more than Student's 95 % interval, seed by seed."""
    factor = float(student.ppf(0.975, seeds - 1)) if seeds > 1 else math.inf
    words: list[str] = []
    for row in rows:
        if not row["mechanism"].startswith("RQM"):
            continue
        said: list[str] = []
        for gain, error in (
            ("loss below PBM", "its s.e."),
            ("accuracy above PBM", "and its s.e."),
        ):
            value, spread = row[prefix + gain], row[prefix + error]
            verdict = "undecided"
            if abs(value) > factor * spread:
                verdict = "better" if value > 0 else "worse"
            said.append(f"{gain.split()[0]} {verdict}")
        words.append(f"{row['mechanism']}: {', '.join(said)}")
    return "; ".join(words)


def training_figure(number: int, theta: float, run: Run) -> Reproduction:
    """Figures 4, 5 and 6 of the RQM paper: loss and accuracy of federated training.

    Arguments:
        number: of the figure; theta: of its PBM.
        run: how; its data are FEMNIST by writer, or MNIST's folder, whose records are cut in 3,400 parts of 17. The paper
            has "cnn", 2000 rounds, and names no number of runs.
    """
    described, federation = _federation(run.data)
    seeds = run.seeds_or(3)
    paper = Experiment(model=run.model, rounds=run.rounds_or(100), device=run.device)
    alone = replace(_alone_experiment(), device=run.device)
    alone_seeds = ALONE_SEEDS
    if run.quick:
        alone, alone_seeds = replace(alone, rounds=QUICK_ROUNDS), QUICK_SEEDS
    chosen, kept = contestants(theta), Kept(run.keep)
    total = len(chosen) * (seeds * paper.rounds + alone_seeds * alone.rounds)
    train = partial(histories, kept=kept, data=described, tick=ticks(run.progress, total))
    together = train(Simulation(federation, paper), chosen, seeds)
    single = train(Simulation(federation, alone), chosen, alone_seeds)
    rows: list[JsonObject] = []
    for name, contestant in chosen.items():
        row: JsonObject = {"mechanism": name, **_losses(theta, name, contestant)}
        row |= _compared(together[name], together["PBM"], "")
        row |= _compared(single[name], single["PBM"], ALONE)
        row[RUNS] = single[name][:, -1, 1].tolist()
        rows.append(row)
    excess = {name: history - single[NOISE_FREE] for name, history in single.items()}
    panels = (
        ("loss", together, together, 1),
        ("accuracy", together, together, 2),
        ("one client a round: loss above noise-free", excess, single, 1),
    )
    return Reproduction(
        title=f"RQM, Figure {number}: federated training (theta = {theta:g}, m = {LEVELS})",
        note=_note(described, paper, alone, alone_seeds, seeds, rows),
        rows=tuple(rows),
        series=tuple(
            _curve(panel, name, times[name][0, :, 0], history[:, :, column])
            for panel, curves, times, column in panels
            for name, history in curves.items()
        ),
        x_label="round",
        y_label=("test loss (nats)", "test accuracy", "extra test loss (nats)"),
    )


def _curve(panel: str, name: str, rounds: FloatArray, values: FloatArray) -> Series:
    """Means over the seeds, (seeds, points), and one standard error on both sides where there are several."""
    mean, low, high = values.mean(axis=0), np.zeros(0), np.zeros(0)
    if len(values) > 1:
        error = values.std(axis=0, ddof=1) / math.sqrt(len(values))
        low, high = mean - error, mean + error
    return Series(
        panel=panel,
        name=name,
        x=tuple(rounds.tolist()),
        y=tuple(mean.tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
    )


def _note(
    described: str,
    paper: Experiment,
    alone: Experiment,
    alone_seeds: int,
    seeds: int,
    rows: Sequence[JsonObject],
) -> str:
    return (
        f"{described}. Left and middle: model {paper.model}, {paper.rounds} rounds of {paper.per_round} clients, {seeds} "
        f"seeds, server's rate {paper.learning_rate:g}; the paper has 3,400 devices, 2,000 rounds of 40, a convolutional "
        "network, and prints neither numbers nor its rate. The sum of 40 clients hides the noise of each, so that this "
        "setting cannot tell the mechanisms apart: against PBM, "
        f"beyond Student's 95 % interval, seed by seed: {_verdict(rows, '', seeds)}. Right: softmax regression with "
        f"one client a round, {alone.rounds} rounds at rate {alone.learning_rate:g}, {alone_seeds} seeds, where the noise "
        f"shows: {_verdict(rows, ALONE, alone_seeds)}. What is drawn is the loss above that of noise-free training with "
        "the same clients, and it grows with the MSE, not with the divergence. "
        f"c = {CLIP:g}, m, theta, Delta / c and q are the paper's; PBM has {TRIALS} trials, as many outcomes. "
        "The optimal table has the Renyi divergence of the first RQM at "
        f"order {TRAINING_ORDER:g}. Bars are one standard error. Epsilons are of one coordinate; for a whole vector "
        "nothing useful can be claimed, here as in the paper. Sums are plain: masks change time only."
    )


def figure4(run: Run) -> Reproduction:
    """Figure 4 of the RQM paper: federated training against PBM at theta 0.15."""
    return training_figure(4, 0.15, run)


def figure5(run: Run) -> Reproduction:
    """Figure 5 of the RQM paper: federated training against PBM at theta 0.25."""
    return training_figure(5, 0.25, run)


def figure6(run: Run) -> Reproduction:
    """Figure 6 of the RQM paper: federated training against PBM at theta 0.35."""
    return training_figure(6, 0.35, run)


# Figure 11 ------------------------------------------------------------------------------------------------------------

CIFAR_CLIP, CIFAR_CLIENTS, CIFAR_RATE, FREE_RATE = 5.3680e-5, 500, 10.0, 0.01


def cifar_contestants() -> dict[str, Contestant]:
    """What trains in Figure 11, by name."""
    pair = PAIRS[0.25][0]
    divergence = law_of(pair).renyi(TRAINING_ORDER)
    # Gaussian noise s on a sum that one client moves by at most 2 c: the divergence of order a is a (2 c)^2 / (2 s^2).
    deviation = 2 * CIFAR_CLIP * math.sqrt(TRAINING_ORDER / (2 * divergence))
    return {
        NOISE_FREE: Contestant(clip=CIFAR_CLIP),
        "PBM": Contestant(clip=CIFAR_CLIP, table=poisson_binomial(0.25)),
        rqm_name(pair): Contestant(clip=CIFAR_CLIP, table=randomized(pair)),
        "central Gaussian": Contestant(clip=CIFAR_CLIP, deviation=deviation),
        "noise-free, no clipping": Contestant(clip=None, learning_rate=FREE_RATE),
    }


def figure11(run: Run) -> Reproduction:
    """Figure 11 of the RQM paper: training on CIFAR against PBM, central noise and no clipping.

    Arguments:
        run: how; its data are a folder of CIFAR-100's or CIFAR-10's pickles, or of the package's images.
    """
    if run.data is None:
        raise ParameterError(
            "data",
            None,
            "name the folder of CIFAR-100 or CIFAR-10: pickles, or the package's images",
        )
    data = run.data
    name = "cifar100" if (Path(data) / "train").is_file() else "cifar10"
    federation = datasets.load_federation(name, folder=data, clients=CIFAR_CLIENTS)
    described = {"cifar100": "CIFAR-100", "cifar10": "CIFAR-10, for want of CIFAR-100"}[name]
    seeds = run.seeds_or(3)
    how = Experiment(
        model=run.model,
        rounds=run.rounds_or(60),
        learning_rate=CIFAR_RATE,
        device=run.device,
    )
    chosen = cifar_contestants()
    found = histories(
        Simulation(federation, how),
        chosen,
        seeds,
        kept=Kept(run.keep),
        data=described,
        tick=ticks(run.progress, len(chosen) * seeds * how.rounds),
    )
    rows: list[JsonObject] = []
    for method, history in found.items():
        row: JsonObject = {"method": method}
        row["loss"], row["loss s.e."] = _mean_and_error(history[:, -1, 1])
        row["accuracy (%)"], row["accuracy s.e."] = _mean_and_error(100 * history[:, -1, 2])
        row[RUNS] = history[:, -1, 1].tolist()
        rows.append(row)
    return Reproduction(
        title=f"RQM, Figure 11: federated training on {described} (theta = 0.25, m = {LEVELS})",
        note=f"{described}, {CIFAR_CLIENTS} clients (Dirichlet), {how.rounds} rounds of {how.per_round}, {seeds} seeds, model "
        f"{how.model}; the paper trains a convolutional network on CIFAR-100 and prints neither numbers nor rates "
        f"({how.learning_rate:g} here, {FREE_RATE:g} without clipping). The Gaussian noise has RQM's divergence of order "
        f"{TRAINING_ORDER:g} for each coordinate, once for the sum: it trusts the server, and is the smaller noise "
        f"therefore. Clipping at {CIFAR_CLIP:g} leaves little but signs, and with {how.per_round} clients the noise of "
        "all three methods is small beside them: this setting cannot tell the mechanisms apart; the last panel shows how "
        "little is between them.",
        rows=tuple(rows),
        series=tuple(
            _curve(panel, method, history[0, :, 0], history[:, :, column])
            for panel, curves, column in (
                ("loss", found, 1),
                ("accuracy", found, 2),
                ("loss above noise-free", _excess(found), 3),
            )
            for method, history in curves.items()
        ),
        x_label="round",
        y_label=("test loss (nats)", "test accuracy", "extra test loss (nats)"),
    )


def _excess(found: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Of the noisy methods: with the loss above that of noise-free clipped training as a fourth column."""
    free = found[NOISE_FREE]
    noisy = [name for name in found if not name.startswith("noise-free")]
    return {
        name: np.concatenate([found[name], (found[name] - free)[:, :, 1:2]], axis=2)
        for name in noisy
    }


# Privacy against accuracy ---------------------------------------------------------------------------------------------

TRADEOFF_EPSILONS = (1.0, 2.0, 3.0, 4.0, 6.0)
TRADEOFF_LEVELS = 4
TRADEOFF_FAMILIES = ("RQM", "PBM", "MVU", "OPTM", "optimal")


@cache
def tradeoff_table(family: str, epsilon: float) -> Mechanism:
    """The family's table with four levels at this certified epsilon of one report."""
    if family == "MVU":
        return design.mvu(epsilon, levels=TRADEOFF_LEVELS).mechanism
    if family == "OPTM":
        return design.optm(epsilon, levels=TRADEOFF_LEVELS).mechanism
    if family == "optimal":
        return design.optimal(epsilon, levels=TRADEOFF_LEVELS).mechanism
    return design.calibrate(family.lower(), epsilon=epsilon, levels=TRADEOFF_LEVELS).mechanism


def _tradeoff_experiment(run: Run) -> Experiment:
    return Experiment(
        model=run.model,
        rounds=run.rounds_or(400),
        per_round=1,
        learning_rate=ALONE_RATE,
        evaluations=1,
        device=run.device,
    )


def tradeoff(run: Run) -> Reproduction:
    """Accuracy of federated training against the epsilon of a report: RQM, PBM, MVU, OPTM and the optimal table.

    Arguments:
        run: how; its data are MNIST's folder.
    """
    if run.data is None:
        raise ParameterError("data", None, "name a folder with MNIST's four idx files")
    seeds, how = run.seeds_or(10), _tradeoff_experiment(run)
    simulation = Simulation(pseudo_writers(run.data), how)
    settings = [(family, e) for family in TRADEOFF_FAMILIES for e in TRADEOFF_EPSILONS]
    tick = ticks(run.progress, (len(settings) + 1) * seeds * how.rounds)
    kept = Kept(run.keep)
    train = partial(histories, simulation, seeds=seeds, kept=kept, data="MNIST", tick=tick)
    free = train({NOISE_FREE: Contestant(clip=CLIP)})[NOISE_FREE][:, -1, 2]
    rows: list[JsonObject] = []
    for family, epsilon in settings:
        table = tradeoff_table(family, epsilon)
        accuracy = 100 * train({family: Contestant(clip=CLIP, table=table)})[family][:, -1, 2]
        mean, error = _mean_and_error(accuracy)
        row: JsonObject = {
            "mechanism": family,
            "epsilon": epsilon,
            "certified epsilon": table.epsilon,
            "MSE / c^2": table.mse(),
            "accuracy": mean,
            "s.e.": error,
            RUNS: accuracy.tolist(),
        }
        rows.append(row)
    ceiling = float(100 * free.mean())
    return Reproduction(
        title="Privacy against accuracy: five mechanisms of four levels at equal epsilon of a report",
        note=f"MNIST in 3,400 random parts of 17, softmax regression, one client a round, {how.rounds} rounds at the server's "
        f"rate {ALONE_RATE:g}, coordinates clipped at c = {CLIP:g}, means of {seeds} seeds and one standard error; "
        f"without noise {ceiling:.1f} %. epsilon is of one coordinate's report, certified; a gradient has 7,850 of them. "
        "Each mechanism has the parameters, or levels, with the least error that it allows: RQM and PBM by calibration, "
        "MVU and OPTM by their own searches (OPTM minimises an absolute error), the optimal table by its program. "
        "Accuracy follows the MSE. PBM has three trials.",
        rows=tuple(rows),
        series=(
            *(_tradeoff_curve(family, rows) for family in TRADEOFF_FAMILIES),
            Series(
                panel="",
                name="limit",
                x=(TRADEOFF_EPSILONS[0], TRADEOFF_EPSILONS[-1]),
                y=(ceiling, ceiling),
            ),
        ),
        x_label="epsilon of a report",
        y_label="test accuracy (%)",
    )


def _tradeoff_curve(family: str, rows: Sequence[JsonObject]) -> Series:
    chosen = [row for row in rows if row["mechanism"] == family]
    return Series(
        panel="",
        name=family,
        x=TRADEOFF_EPSILONS,
        y=tuple(row["accuracy"] for row in chosen),
        low=tuple(row["accuracy"] - row["s.e."] for row in chosen),
        high=tuple(row["accuracy"] + row["s.e."] for row in chosen),
    )


REPRODUCTIONS: dict[str, Callable[..., Reproduction]] = {
    "rqm-figure4": figure4,
    "rqm-figure5": figure5,
    "rqm-figure6": figure6,
    "rqm-figure11": figure11,
    "rqm-tradeoff": tradeoff,
}

# Parts ----------------------------------------------------------------------------------------------------------------

TRAINING_SLACK = 2e-3
"""Relative: sums of 32-bit floats in another order move a loss after 400 rounds by less on the same platform."""


def _alone_parts(theta: float, data: str | None) -> tuple[Part, ...]:
    """The first run of each mechanism in the setting with one client a round."""
    if data is None:
        return ()
    simulation = cache(lambda: Simulation(_federation(data)[1], _alone_experiment()))

    def part(name: str) -> Part:
        def rows() -> Sequence[JsonObject]:
            last = simulation().run(contestants(theta)[name], 0)[-1]
            return [{"mechanism": name, RUNS: [last.loss]}]

        return Part(key=name, seconds=2.5, rows=rows, relative=TRAINING_SLACK)

    names = (NOISE_FREE, "PBM", *map(rqm_name, PAIRS[theta]))
    return tuple(map(part, names))


def _alone_experiment() -> Experiment:
    return Experiment(rounds=ALONE_ROUNDS, per_round=1, learning_rate=ALONE_RATE)


def _tradeoff_parts(data: str | None) -> tuple[Part, ...]:
    if data is None:
        return ()
    simulation = cache(lambda: Simulation(pseudo_writers(data), _tradeoff_experiment(Run())))

    def part(family: str) -> Part:
        def rows() -> Sequence[JsonObject]:
            table = tradeoff_table(family, 3.0)
            last = simulation().run(Contestant(clip=CLIP, table=table), 0)[-1]
            return [{"mechanism": family, "epsilon": 3.0, RUNS: [100 * last.accuracy]}]

        return Part(key=family, seconds=1.0, rows=rows, absolute=0.25)

    return tuple(map(part, ("PBM", "RQM", "optimal", "MVU")))


PARTS: dict[str, Callable[[str | None], tuple[Part, ...]]] = {
    "rqm-figure4": partial(_alone_parts, 0.15),
    "rqm-figure5": partial(_alone_parts, 0.25),
    "rqm-figure6": partial(_alone_parts, 0.35),
    "rqm-figure11": lambda data: (),
    "rqm-tradeoff": _tradeoff_parts,
}
