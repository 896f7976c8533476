"""Figures 4 to 6 and 11 of the RQM paper, and privacy against accuracy of five mechanisms:
federated training, simulated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from mezzotint import datasets, design
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, ticks
from mezzotint.core.types import FloatArray
from mezzotint.papers.reproduction import (
    LIMIT,
    QUICK_ROUNDS,
    QUICK_SEEDS,
    RUNS,
    Figure,
    Part,
    Reproduction,
    Run,
    Series,
    curves,
)
from mezzotint.papers.rqm import (
    ALPHAS,
    LEVELS,
    MAIN_PAIR,
    PAIRS,
    TRIALS,
    Pair,
    law_of,
    poisson_binomial,
    poisson_law,
    randomized,
)
from mezzotint.papers.simulation import (
    Contestant,
    Experiment,
    FinishedRuns,
    Simulation,
    histories,
    pseudo_writers,
)

CLIP = 2.9731e-5
"""c of the paper's experiments on FEMNIST."""
TRAINING_ORDER = 2.0
"""Renyi order at which divergences are shown, and the optimal table is given that of the paper's
first RQM.
"""
NOISE_FREE, PBM, OPTIMAL = "noise-free clipped", "PBM", "optimal table"

ALONE = Experiment(rounds=400, clients_per_round=1, learning_rate=2000.0)
"""A setting that tells mechanisms apart: one client a round, so that nobody else's noise averages
its own away.
"""
ALONE_SEEDS = 5
ALONE_PREFIX = "alone: "
"""Of the columns of that setting."""

Histories = Mapping[str, FloatArray]
"""Name -> (seeds, points, 3) of round, loss and accuracy."""


@cache
def optimal_at(divergence: float) -> Mechanism:
    """The table on 16 even levels with the least MSE among those with at most this Renyi divergence
    of order 2.
    """
    candidate_tables = [
        design.optimal(
            epsilon=divergence,
            alpha=TRAINING_ORDER,
            levels=np.linspace(-outermost_level, outermost_level, LEVELS).tolist(),
            knots=9,
        ).mechanism
        for outermost_level in (1.1, 1.25, 1.4, 1.6, 1.8, 2.1)
    ]
    return min(candidate_tables, key=lambda table: table.mse())


def rqm_name(pair: Pair) -> str:
    """The name of a row of RQM."""
    return f"RQM Delta={pair[0]:g}c q={pair[1]:g}"


def contestants(theta: float) -> dict[str, Contestant]:
    """What trains in the figure of this theta, by name."""
    divergence = law_of(PAIRS[theta][0]).renyi(TRAINING_ORDER)
    report_tables = {PBM: poisson_binomial(theta)}
    report_tables |= {
        rqm_name(parameter_pair): randomized(parameter_pair) for parameter_pair in PAIRS[theta]
    }
    report_tables[OPTIMAL] = optimal_at(divergence)
    private = {
        mechanism_name: Contestant(clip=CLIP, table=report_table)
        for mechanism_name, report_table in report_tables.items()
    }
    return {NOISE_FREE: Contestant(clip=CLIP), **private}


def _divergence(
    theta: float,
    name: str,
    table: Mechanism,
) -> Callable[[float], float]:
    """Renyi divergence by order, of one report: RQM's and PBM's from their exact laws, a table's
    own.
    """
    exact_divergences: dict[str, Callable[[float], float]] = {PBM: poisson_law(theta).renyi}
    exact_divergences |= {
        rqm_name(parameter_pair): law_of(parameter_pair).renyi for parameter_pair in PAIRS[theta]
    }
    return exact_divergences.get(name, lambda order: table.renyi(order))


def _losses(theta: float, name: str, table: Mechanism | None) -> JsonObject:
    """Of one report of one coordinate. The divergence alone bounds the optimal table: its epsilon
    is the solver's.
    """
    if table is None:
        return {"epsilon of a report": None, "D_2": None, "MSE / c^2": 0.0}
    epsilons = {
        rqm_name(parameter_pair): law_of(parameter_pair).epsilon for parameter_pair in PAIRS[theta]
    }
    epsilons[PBM] = poisson_law(theta).epsilon
    return {
        "epsilon of a report": epsilons.get(name),
        "D_2": _divergence(theta, name, table)(TRAINING_ORDER),
        "MSE / c^2": table.mse(),
    }


def _required(data: str | None, remedy: str) -> str:
    if data is None:
        raise ParameterError("data", None, remedy)
    return data


def _federation(run: Run) -> tuple[str, datasets.Federation]:
    """FEMNIST by writer, or MNIST in random parts in its place."""
    data_remedy = "name FEMNIST by writer (npz or LEAF's folder), or MNIST's folder instead"
    data_path = _required(run.data, data_remedy)
    if any(Path(data_path).glob("*images-idx3-ubyte*")):
        return "MNIST in 3,400 random parts of 17", pseudo_writers(data_path)
    federation = datasets.load_federation("femnist", folder=data_path, clients=0)
    return f"FEMNIST, {len(federation.clients)} writers", federation


def _mean_and_error(values: FloatArray) -> tuple[float, float]:
    if values.size < 2:
        return float(values.mean()), math.nan
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(values.size))


def _compared(
    history: FloatArray,
    rival: FloatArray,
    prefix: str,
) -> JsonObject:
    """The last evaluation, and how much less PBM has, seed by seed."""
    final_losses, final_accuracies = history[:, -1, 1], 100 * history[:, -1, 2]
    mean_loss, _ = _mean_and_error(final_losses)
    mean_accuracy, accuracy_error = _mean_and_error(final_accuracies)
    less_loss, less_error = _mean_and_error(rival[:, -1, 1] - final_losses)
    accuracy_gain, gain_error = _mean_and_error(final_accuracies - 100 * rival[:, -1, 2])
    columns = {
        "loss": mean_loss,
        "accuracy": mean_accuracy,
        "s.e.": accuracy_error,
        "loss below PBM": less_loss,
        "its s.e.": less_error,
        "accuracy above PBM": accuracy_gain,
        "and its s.e.": gain_error,
    }
    return {f"{prefix}{column_name}": column_value for column_name, column_value in columns.items()}


GAINS = {
    "loss": ("loss below PBM", "its s.e."),
    "accuracy": ("accuracy above PBM", "and its s.e."),
}


def _verdict(rows: Sequence[JsonObject], prefix: str, seeds: int) -> str:
    """Where each RQM differs from PBM by more than Student's 95 % interval, seed by seed."""
    student_quantile = math.inf
    if seeds > 1:
        student_quantile = float(student.ppf(0.975, seeds - 1))
    sentences: list[str] = []
    for mechanism_row in rows:
        if not mechanism_row["mechanism"].startswith("RQM"):
            continue
        measure_verdicts: list[str] = []
        for measure, (gain_column, error_column) in GAINS.items():
            mean_gain, gain_limit = (
                mechanism_row[prefix + gain_column],
                student_quantile * mechanism_row[prefix + error_column],
            )
            verdict = "undecided"
            if mean_gain > gain_limit:
                verdict = "better"
            elif mean_gain < -gain_limit:
                verdict = "worse"
            measure_verdicts.append(f"{measure} {verdict}")
        sentences.append(f"{mechanism_row['mechanism']}: {', '.join(measure_verdicts)}")
    return "; ".join(sentences)


def _mean_curves(
    panel: str,
    times: Histories,
    values: Mapping[str, FloatArray],
) -> list[Series]:
    """Means over the seeds of (seeds, points) values, and one standard error on both sides where
    there are several.
    """
    drawn_curves: list[Series] = []
    for method_name, run_heights in values.items():
        round_numbers = tuple(times[method_name][0, :, 0].tolist())
        mean_heights = run_heights.mean(axis=0)
        drawn_curve = Series(
            panel=panel, name=method_name, x=round_numbers, y=tuple(mean_heights.tolist())
        )
        if len(run_heights) > 1:
            standard_errors = run_heights.std(axis=0, ddof=1) / math.sqrt(len(run_heights))
            lower_ends, upper_ends = (
                tuple((mean_heights - standard_errors).tolist()),
                tuple((mean_heights + standard_errors).tolist()),
            )
            drawn_curve = replace(drawn_curve, low=lower_ends, high=upper_ends)
        drawn_curves.append(drawn_curve)
    return drawn_curves


def _training_curves(trained: Histories) -> list[Series]:
    loss_histories = {method_name: history[:, :, 1] for method_name, history in trained.items()}
    accuracies = {method_name: history[:, :, 2] for method_name, history in trained.items()}
    return [
        *_mean_curves("loss", trained, loss_histories),
        *_mean_curves("accuracy", trained, accuracies),
    ]


def _excess_curves(
    panel: str,
    trained: Histories,
    names: Sequence[str],
) -> list[Series]:
    """Losses above that of noise-free clipped training with the same clients."""
    noise_free_losses = trained[NOISE_FREE][:, :, 1]
    return _mean_curves(
        panel,
        trained,
        {method_name: trained[method_name][:, :, 1] - noise_free_losses for method_name in names},
    )


def _divergence_curves(theta: float, chosen: Mapping[str, Contestant]) -> list[Series]:
    """The paper's right panel: worst Renyi divergence of one report against its order."""
    drawn_curves: list[Series] = []
    for method_name, contestant in chosen.items():
        if contestant.table is not None and method_name != OPTIMAL:
            heights = tuple(map(_divergence(theta, method_name, contestant.table), ALPHAS))
            drawn_curves.append(
                Series(
                    panel="privacy of a report",
                    name=method_name,
                    x=ALPHAS,
                    y=heights,
                )
            )
    return drawn_curves


def training_figure(number: int, theta: float, run: Run) -> Reproduction:
    """Figures 4, 5 and 6 of the RQM paper: loss and accuracy of federated training, divergence of a
    report.

    Arguments:
        number: of the figure.
        theta: of its PBM.
        run: how; its data are FEMNIST by writer, or MNIST's folder, whose records are cut in 3,400
            parts of 17. The paper has "cnn", 2000 rounds, and names no number of runs.
    """
    described, federation = _federation(run)
    seed_count, lone_seed_count = run.seeds_or(3), ALONE_SEEDS
    paper_experiment = Experiment(model=run.model, rounds=run.rounds_or(100), device=run.device)
    lone_experiment = replace(ALONE, device=run.device)
    if run.quick:
        lone_experiment = replace(lone_experiment, rounds=QUICK_ROUNDS)
        lone_seed_count = QUICK_SEEDS
    trained = contestants(theta)
    joint_rounds = seed_count * paper_experiment.rounds
    lone_rounds = lone_seed_count * lone_experiment.rounds
    count_round = ticks(run.progress, len(trained) * (joint_rounds + lone_rounds))
    finished = FinishedRuns(run.keep)
    train_all = partial(histories, finished=finished, data=described, tick=count_round)
    joint_histories = train_all(Simulation(federation, paper_experiment), trained, seed_count)
    lone_histories = train_all(Simulation(federation, lone_experiment), trained, lone_seed_count)
    mechanism_rows: list[JsonObject] = []
    for mechanism_name, contestant in trained.items():
        joint_history = joint_histories[mechanism_name]
        lone_history = lone_histories[mechanism_name]
        mechanism_row: JsonObject = {"mechanism": mechanism_name}
        mechanism_row |= _losses(theta, mechanism_name, contestant.table)
        mechanism_row |= _compared(joint_history, joint_histories[PBM], "")
        mechanism_row |= _compared(lone_history, lone_histories[PBM], ALONE_PREFIX)
        mechanism_row[RUNS] = lone_history[:, -1, 1].tolist()
        mechanism_rows.append(mechanism_row)
    excess_panel = "one client a round: loss above noise-free"
    return Reproduction(
        title=f"RQM, Figure {number}: federated training (theta = {theta:g}, m = {LEVELS})",
        note=_training_note(
            described,
            paper_experiment,
            lone_experiment,
            verdict=_verdict(mechanism_rows, "", seed_count),
            alone_verdict=_verdict(mechanism_rows, ALONE_PREFIX, lone_seed_count),
            seeds=seed_count,
            alone_seeds=lone_seed_count,
        ),
        rows=tuple(mechanism_rows),
        series=(
            *_training_curves(joint_histories),
            *_divergence_curves(theta, trained),
            *_excess_curves(excess_panel, lone_histories, list(lone_histories)),
        ),
        x_label=("round", "round", "Renyi order alpha", "round"),
        y_label=("test loss (nats)", "test accuracy", "Renyi divergence", "extra test loss (nats)"),
        log_x=(False, False, True, False),
    )


def _training_note(
    described: str,
    paper: Experiment,
    alone: Experiment,
    *,
    verdict: str,
    alone_verdict: str,
    seeds: int,
    alone_seeds: int,
) -> str:
    """What to know of Figures 4 to 6; the verdicts compare each RQM with PBM, seed by seed."""
    return (
        f"{described}. Loss and accuracy: model {paper.model}, {paper.rounds} rounds of "
        f"{paper.clients_per_round} clients, "
        f"{seeds} seeds, server's rate {paper.learning_rate:g}; the paper has 3,400 devices, 2,000 "
        f"rounds of 40, a "
        "convolutional network, and prints neither numbers nor its rate. The sum of 40 clients "
        "hides the noise of each, "
        "so that this setting cannot tell the mechanisms apart: against PBM, beyond Student's 95 % "
        "interval, seed by "
        f"seed: {verdict}. Privacy of a report: the paper's right panel, from "
        f"the exact laws. Last: "
        f"softmax regression with one client a round, {alone.rounds} rounds at rate "
        f"{alone.learning_rate:g}, "
        f"{alone_seeds} seeds, where the noise shows: {alone_verdict}. "
        f"What is drawn is the "
        "loss above that of noise-free training with the same clients, and it grows with the MSE, "
        "not with the "
        f"divergence. c = {CLIP:g}, m, theta, Delta / c and q are the paper's; PBM has {TRIALS} "
        f"trials, as many outcomes. "
        f"The optimal table has the Renyi divergence of the first RQM at order {TRAINING_ORDER:g}. "
        f"Bars are one standard "
        "error. Epsilons are of one coordinate; for a whole vector nothing useful can be claimed, "
        "here as in the paper. "
        "Sums are plain: masks change time only."
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


# The relative slack of a loss: sums of 32-bit floats in another order move it after 400 rounds by
# less on the same
# platform.
TRAINING_SLACK = 2e-3


def _alone_parts(theta: float, data: str | None) -> tuple[Part, ...]:
    """The first run of each mechanism in the setting with one client a round."""
    if data is None:
        return ()
    simulation = cache(lambda: Simulation(_federation(Run(data=data))[1], ALONE))

    def part(name: str) -> Part:
        def rows() -> Sequence[JsonObject]:
            final_point = simulation().run(contestants(theta)[name], 0)[-1]
            return [{"mechanism": name, RUNS: [final_point.loss]}]

        return Part(key=name, seconds=2.5, rows=rows, relative=TRAINING_SLACK)

    def optimum() -> Sequence[JsonObject]:
        optimal_table = contestants(theta)[OPTIMAL].table
        return [{"mechanism": OPTIMAL, **_losses(theta, OPTIMAL, optimal_table)}]

    mechanism_names = (NOISE_FREE, PBM, *map(rqm_name, PAIRS[theta]))
    design_part = Part(key=OPTIMAL, seconds=3.0, rows=optimum, relative=1e-5)
    return (*map(part, mechanism_names), design_part)


# Figure 11 ----------------------------------------------------------------------------------------

CIFAR_CLIP, CIFAR_CLIENTS, CIFAR_RATE, FREE_RATE = 5.3680e-5, 500, 10.0, 0.01
CIFAR_NAMES = {"cifar100": "CIFAR-100", "cifar10": "CIFAR-10, for want of CIFAR-100"}
GAUSSIAN = "central Gaussian"


def cifar_contestants() -> dict[str, Contestant]:
    """What trains in Figure 11, by name."""
    divergence = law_of(MAIN_PAIR).renyi(TRAINING_ORDER)
    # Gaussian noise s on a sum that one client moves by at most 2 c: the divergence of order a is a
    # (2 c)^2 / (2 s^2).
    deviation = 2 * CIFAR_CLIP * math.sqrt(TRAINING_ORDER / (2 * divergence))
    return {
        NOISE_FREE: Contestant(clip=CIFAR_CLIP),
        PBM: Contestant(clip=CIFAR_CLIP, table=poisson_binomial(0.25)),
        rqm_name(MAIN_PAIR): Contestant(clip=CIFAR_CLIP, table=randomized(MAIN_PAIR)),
        GAUSSIAN: Contestant(clip=CIFAR_CLIP, deviation=deviation),
        "noise-free, no clipping": Contestant(clip=None, learning_rate=FREE_RATE),
    }


def figure11(run: Run) -> Reproduction:
    """Figure 11 of the RQM paper: training on CIFAR against PBM, central noise and no clipping.

    Arguments:
        run: how; its data are a folder of CIFAR-100's or CIFAR-10's pickles, or of the package's
            images.
    """
    data_remedy = "name the folder of CIFAR-100 or CIFAR-10: pickles, or the package's images"
    data_path = _required(run.data, data_remedy)
    dataset_name = "cifar10"
    if (Path(data_path) / "train").is_file():
        dataset_name = "cifar100"
    described, trained_contestants = CIFAR_NAMES[dataset_name], cifar_contestants()
    federation = datasets.load_federation(dataset_name, folder=data_path, clients=CIFAR_CLIENTS)
    seed_count, round_count = run.seeds_or(3), run.rounds_or(60)
    experiment = Experiment(
        model=run.model, rounds=round_count, learning_rate=CIFAR_RATE, device=run.device
    )
    trained = histories(
        Simulation(federation, experiment),
        trained_contestants,
        seed_count,
        finished=FinishedRuns(run.keep),
        data=described,
        tick=ticks(run.progress, len(trained_contestants) * seed_count * round_count),
    )
    noisy = (PBM, rqm_name(MAIN_PAIR), GAUSSIAN)
    clients_per_round = experiment.clients_per_round
    return Reproduction(
        title=f"RQM, Figure 11: federated training on {described} (theta = 0.25, m = {LEVELS})",
        note=f"{described}, {CIFAR_CLIENTS} clients (Dirichlet), {round_count} rounds of {clients_per_round}, "
        f"{seed_count} seeds, model "
        f"{run.model}; the paper trains a convolutional network on CIFAR-100 and prints neither "
        f"numbers nor rates "
        f"({CIFAR_RATE:g} here, {FREE_RATE:g} without clipping). The Gaussian noise has RQM's "
        f"divergence of order "
        f"{TRAINING_ORDER:g} for each coordinate, once for the sum: it trusts the server, and is "
        f"the smaller noise "
        f"therefore. Clipping at {CIFAR_CLIP:g} leaves little but signs, and with {clients_per_round} "
        f"clients the noise of all "
        "three methods is small beside them: this setting cannot tell the mechanisms apart; the "
        "last panel shows how "
        "little is between them.",
        rows=tuple(_cifar_row(method, history) for method, history in trained.items()),
        series=(
            *_training_curves(trained),
            *_excess_curves("loss above noise-free", trained, noisy),
        ),
        x_label="round",
        y_label=("test loss (nats)", "test accuracy", "extra test loss (nats)"),
    )


def _cifar_row(method: str, history: FloatArray) -> JsonObject:
    """The last evaluation of one method."""
    final_losses = history[:, -1, 1]
    mean_loss, loss_error = _mean_and_error(final_losses)
    mean_accuracy, accuracy_error = _mean_and_error(100 * history[:, -1, 2])
    return {
        "method": method,
        "loss": mean_loss,
        "loss s.e.": loss_error,
        "accuracy (%)": mean_accuracy,
        "accuracy s.e.": accuracy_error,
        RUNS: final_losses.tolist(),
    }


# Privacy against accuracy -------------------------------------------------------------------------

TRADEOFF_EPSILONS = (1.0, 2.0, 3.0, 4.0, 6.0)
TRADEOFF_LEVELS = 4
TRADEOFF_FAMILIES = ("RQM", PBM, "MVU", "OPTM", "optimal")
TRADEOFF_PART = 3.0
"""The epsilon at which stored accuracies are checked."""


@cache
def tradeoff_table(family: str, epsilon: float) -> Mechanism:
    """The family's table with four levels at this certified epsilon of one report."""
    designs = {"MVU": design.mvu, "OPTM": design.optm, "optimal": design.optimal}
    if family in designs:
        return designs[family](epsilon, levels=TRADEOFF_LEVELS).mechanism
    return design.calibrate(family.lower(), epsilon=epsilon, levels=TRADEOFF_LEVELS).mechanism


def _tradeoff_experiment(run: Run) -> Experiment:
    rounds = run.rounds_or(ALONE.rounds)
    return replace(
        ALONE,
        model=run.model,
        rounds=rounds,
        evaluations=1,
        device=run.device,
    )


def tradeoff(run: Run) -> Reproduction:
    """Accuracy of federated training against the epsilon of a report: RQM, PBM, MVU, OPTM and the
    optimal table.

    Arguments:
        run: how; its data are MNIST's folder.
    """
    data_path = _required(run.data, "name a folder with MNIST's four idx files")
    seed_count, experiment = run.seeds_or(10), _tradeoff_experiment(run)
    simulation = Simulation(pseudo_writers(data_path), experiment)
    settings = [(family_name, e) for family_name in TRADEOFF_FAMILIES for e in TRADEOFF_EPSILONS]
    count_round = ticks(run.progress, (len(settings) + 1) * seed_count * experiment.rounds)
    finished_runs = FinishedRuns(run.keep)

    def accuracies(name: str, report_table: Mechanism | None) -> FloatArray:
        contestant_by_name = {name: Contestant(clip=CLIP, table=report_table)}
        trained = histories(
            simulation,
            contestant_by_name,
            seed_count,
            finished=finished_runs,
            data="MNIST",
            tick=count_round,
        )
        return 100 * trained[name][:, -1, 2]

    ceiling = float(accuracies(NOISE_FREE, None).mean())
    table_rows: list[JsonObject] = []
    for family_name, epsilon in settings:
        report_table = tradeoff_table(family_name, epsilon)
        table_rows.append(
            _tradeoff_row(family_name, epsilon, report_table, accuracies(family_name, report_table))
        )
    epsilon_ends = (TRADEOFF_EPSILONS[0], TRADEOFF_EPSILONS[-1])
    return Reproduction(
        title="Privacy against accuracy: five mechanisms of four levels at equal epsilon of a "
        "report",
        note="MNIST in 3,400 random parts of 17, softmax regression, one client a round, "
        f"{experiment.rounds} rounds at the server's rate {experiment.learning_rate:g}, "
        f"coordinates clipped at "
        f"c = {CLIP:g}, means of {seed_count} seeds and one standard error; without noise {ceiling:.1f} "
        f"%. epsilon is of one "
        "coordinate's report, certified; a gradient has 7,850 of them. Each mechanism has the "
        "parameters, or levels, "
        "with the least error that it allows: RQM and PBM by calibration, MVU and OPTM by their "
        "own searches (OPTM "
        "minimises an absolute error), the optimal table by its program. Accuracy follows the MSE. "
        "PBM has three trials.",
        rows=tuple(table_rows),
        series=(
            *curves(table_rows, "epsilon", "accuracy", name="{mechanism}", error="s.e."),
            Series(panel="", name=LIMIT, x=epsilon_ends, y=(ceiling, ceiling)),
        ),
        x_label="epsilon of a report",
        y_label="test accuracy (%)",
    )


def _tradeoff_row(
    family: str,
    epsilon: float,
    table: Mechanism,
    accuracies: FloatArray,
) -> JsonObject:
    """The accuracies (%) of one table, by seed."""
    mean_accuracy, standard_error = _mean_and_error(accuracies)
    return {
        "mechanism": family,
        "epsilon": epsilon,
        "certified epsilon": table.epsilon,
        "MSE / c^2": table.mse(),
        "accuracy": mean_accuracy,
        "s.e.": standard_error,
        RUNS: accuracies.tolist(),
    }


def _tradeoff_parts(data: str | None) -> tuple[Part, ...]:
    if data is None:
        return ()
    simulation = cache(lambda: Simulation(pseudo_writers(data), _tradeoff_experiment(Run())))

    def part(family: str) -> Part:
        def rows() -> Sequence[JsonObject]:
            report_table = tradeoff_table(family, TRADEOFF_PART)
            final_point = simulation().run(Contestant(clip=CLIP, table=report_table), 0)[-1]
            accuracies = [100 * final_point.accuracy]
            return [{"mechanism": family, "epsilon": TRADEOFF_PART, RUNS: accuracies}]

        return Part(key=family, seconds=1.0, rows=rows, absolute=0.25)

    return tuple(map(part, (PBM, "RQM", "optimal", "MVU")))


OPTIONS = ("data", "model", "rounds", "seeds", "quick", "keep", "device", "progress")

FIGURES = (
    *(
        Figure(
            name=f"rqm-figure{number}",
            compute=compute,
            options=OPTIONS,
            data="femnist",
            parts=partial(_alone_parts, theta),
        )
        for number, theta, compute in ((4, 0.15, figure4), (5, 0.25, figure5), (6, 0.35, figure6))
    ),
    Figure(
        name="rqm-figure11",
        compute=figure11,
        options=OPTIONS,
        data="cifar10",
        parts=lambda data: (),
    ),
    Figure(
        name="rqm-tradeoff",
        compute=tradeoff,
        options=OPTIONS,
        data="mnist",
        parts=_tradeoff_parts,
    ),
)
