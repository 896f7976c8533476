"""Figures 1 to 3 and 7 to 10 of the RQM paper and its nine parameter pairs, all from the exact laws
of the reports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, cast

import numpy as np
from scipy import optimize

from mezzotint import design, families
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.papers.exact_laws import (
    RandomizedQuantization,
    renyi_divergences,
    rqm_exact,
    rqm_floats,
    rqm_knots,
    worst_divergence,
)
from mezzotint.papers.reproduction import Figure, Reproduction, Series, curves

if TYPE_CHECKING:
    from mezzotint.families import PoissonBinomial

LEVELS, TRIALS = 16, 15
"""Levels of RQM, and trials of PBM at equal bits: 15 trials have 16 outcomes."""

Pair = tuple[float, float]

PAIRS: dict[float, tuple[Pair, ...]] = {
    0.15: ((2.33, 0.42), (4.0, 0.5), (1.0, 0.23)),
    0.25: ((1.0, 0.42), (2.0, 0.57), (0.66, 0.33)),
    0.35: ((0.429, 0.49), (1.0, 0.65), (0.25, 0.37)),
}
"""theta of PBM -> the paper's (Delta / c, q) of RQM; the first of each is the main one."""
MAIN_PAIR = PAIRS[0.25][0]

ALPHAS = (1.1, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
LOW_ALPHAS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0)

GRID = tuple(Fraction(2 * k, 29) - 1 for k in range(30))
"""The paper's 30 even inputs."""
INPUTS = tuple(map(float, GRID))

RIVALS = ("RQM", "PBM")


def poisson_binomial(theta: float) -> Mechanism:
    """PBM at equal bits as a table on [-1, 1]."""
    return families.pbm(trials=TRIALS, theta=theta)


def randomized(pair: Pair) -> Mechanism:
    """RQM at one of the paper's (Delta / c, q), as a table on [-1, 1]."""
    extension, keep_probability = pair
    return families.rqm(levels=LEVELS, extension=extension, q=keep_probability)


def poisson_law(theta: float, trials: int = TRIALS) -> PoissonBinomial:
    """PBM exactly, in units of c."""
    return families.pbm_exact(lower=-1, upper=1, trials=trials, theta=theta)


def law_of(pair: Pair) -> RandomizedQuantization:
    """RQM at one of the paper's (Delta / c, q), exactly."""
    extension, keep_probability = pair
    return rqm_exact(levels=LEVELS, extension=extension, q=keep_probability)


def grid_error(law: RandomizedQuantization) -> float:
    """Mean squared error of RQM over the paper's 30 inputs, in units of c^2."""
    return float(sum(map(law.mse, GRID), Fraction(0)) / len(GRID))


def poisson_error(law: PoissonBinomial) -> float:
    """The same of PBM."""
    return float(np.mean(law.mse(list(INPUTS))))


# Figure 1b and the nine pairs ---------------------------------------------------------------------


def figure1() -> Reproduction:
    """Figure 1b of the RQM paper: the law of the report at x = c, RQM with Delta = c and q = 0.42
    beside PBM.
    """
    output_rows = [
        {"level": output_level, "RQM": float(rqm_chance), "PBM": pbm_chance}
        for output_level, (rqm_chance, pbm_chance) in enumerate(
            zip(law_of(MAIN_PAIR).pmf(1), poisson_law(0.25).pmf(1.0).tolist(), strict=True)
        )
    ]
    return Reproduction(
        title="RQM, Figure 1b: distribution of outputs Q(x) under PBM and RQM, x = c",
        note="The paper draws bars and prints neither numbers nor q, which is taken to be 0.42; "
        "PBM has theta = 0.25 "
        "and 15 trials, so that its law at c is Bin(15, 3/4). RQM's from rationals.",
        rows=tuple(output_rows),
        series=_beside(output_rows, "level", ""),
        x_label="number of the output",
        y_label="probability",
    )


def _beside(
    rows: Sequence[JsonObject],
    x: str,
    panel: str,
) -> tuple[Series, ...]:
    """RQM and PBM, each a column."""
    drawn_curves: list[Series] = []
    for mechanism_name in RIVALS:
        drawn_curves += curves(rows, x, mechanism_name, name=mechanism_name, panel=panel)
    return tuple(drawn_curves)


def _pair_row(theta: float, pair: Pair) -> JsonObject:
    rqm_law, pbm_law = law_of(pair), poisson_law(theta)
    rqm_error, pbm_error = grid_error(rqm_law), poisson_error(pbm_law)
    return {
        "theta": theta,
        "Delta / c": pair[0],
        "q": pair[1],
        "epsilon": rqm_law.epsilon,
        "at (c, -c)": rqm_law.between(1, -1).epsilon,
        "MSE": rqm_error,
        "MSE of PBM": pbm_error,
        "less error": rqm_error < pbm_error,
        "D_2": rqm_law.renyi(2.0),
        "D_2 of PBM": pbm_law.renyi(2.0),
        "MSE at c": float(rqm_law.mse(1)),
        "PBM's at c": float(pbm_law.mse(1.0)),
    }


def pairs() -> Reproduction:
    """The RQM paper's nine (Delta, q): exact epsilon, epsilon between the ends, error and
    divergence beside PBM's.
    """
    pair_rows = [
        _pair_row(theta, parameter_pair)
        for theta, choices in PAIRS.items()
        for parameter_pair in choices
    ]
    worse_pairs = [
        f"({pair_row['Delta / c']:g} c, {pair_row['q']:g})"
        for pair_row in pair_rows
        if not pair_row["less error"]
    ]
    return Reproduction(
        title="RQM: its nine parameter pairs (m = 16) beside PBM at the same theta",
        note="Exact: rationals, errors over the paper's 30 inputs in units of c^2, PBM with 15 "
        "trials. The paper has "
        f"all nine ahead; {', '.join(worse_pairs)} have more error than PBM. All nine have less "
        f"divergence.",
        rows=tuple(pair_rows),
    )


# Figures 3 and 10: errors at equal divergence -----------------------------------------------------

ORDER, LOW_ORDER = 1.5, 0.5
SIZES = (4, 16, 64)
DIVERGENCES = {ORDER: (1.0, 1.5, 2.0, 3.0, 4.0, 5.0), LOW_ORDER: (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)}
EXTENSION = 1.0
"""In units of the clipping range; the mechanism's losses depend on nothing else."""
OPTIMAL_SIZE = 4
"""Levels at which the optimal table is shown beside the two: with more the solver gives up near
divergence 1.
"""


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return cast(float, optimize.brentq(function, low, high, xtol=1e-13))


def equal_q(levels: int, divergence: float, order: float) -> float:
    """q of RQM whose worst divergence is the one given: it grows with q."""
    input_knots = rqm_knots(levels, EXTENSION)

    def excess(q: float) -> float:
        return worst_divergence(rqm_floats(levels, EXTENSION, q, input_knots), order) - divergence

    return _root(excess, 1e-3, 0.99)


def _randomized_error(levels: int, divergence: float, order: float) -> float:
    keep_probability = equal_q(levels, divergence, order)
    input_values = np.array(INPUTS)
    level_points = np.linspace(-1 - EXTENSION, 1 + EXTENSION, levels)
    squares = (level_points - input_values[:, None]) ** 2
    return float(
        (rqm_floats(levels, EXTENSION, keep_probability, input_values) * squares).sum(axis=1).mean()
    )


def _poisson_error(levels: int, divergence: float, order: float) -> float:
    def excess(theta: float) -> float:
        return poisson_law(theta, levels - 1).renyi(order) - divergence

    return poisson_error(poisson_law(_root(excess, 1e-3, 0.499), levels - 1))


def _optimal_error(levels: int, divergence: float, order: float) -> float:
    """Of the unbiased table with the least MSE on RQM's own levels."""
    level_points = np.linspace(-1 - EXTENSION, 1 + EXTENSION, levels).tolist()
    design_result = design.optimal(
        epsilon=divergence,
        alpha=order,
        levels=level_points,
        knots=9,
    )
    return float(np.mean(design_result.mechanism.mse(list(INPUTS))))


def error_row(levels: int, divergence: float, order: float) -> JsonObject:
    """Errors of RQM, PBM and, at few levels and order 1.5, the optimal table, at one divergence."""
    error_columns: JsonObject = {
        "levels": levels,
        "divergence": divergence,
        "RQM": _randomized_error(levels, divergence, order),
        "PBM": _poisson_error(levels, divergence, order),
    }
    if order == ORDER and levels == OPTIMAL_SIZE:
        error_columns["optimal"] = _optimal_error(levels, divergence, order)
    return error_columns


def _errors(
    number: int,
    order: float,
    verdict: str,
    remark: str,
) -> Reproduction:
    error_rows = [
        error_row(level_count, divergence, order)
        for level_count in SIZES
        for divergence in DIVERGENCES[order]
    ]
    panel_pattern = "m = {levels}"
    optimal_rows = [error_columns for error_columns in error_rows if "optimal" in error_columns]
    return Reproduction(
        title=f"RQM, Figure {number}: privacy-MSE trade-offs, Renyi divergence of order {order:g}",
        note="Mean over 30 even inputs, as in the paper, but exact where the paper draws 100,000 "
        "samples; Delta = c, "
        f"in units of c. The paper draws curves and prints no numbers; {verdict}. All divergences "
        f"are worst cases over "
        f"all pairs of inputs, and of one coordinate's report. {remark}".strip(),
        rows=tuple(error_rows),
        series=(
            *_beside(error_rows, "divergence", panel_pattern),
            *curves(optimal_rows, "divergence", "optimal", name="optimal", panel=panel_pattern),
        ),
        x_label=f"Renyi divergence of order {order:g}",
        y_label="mean squared error / c^2",
        log_y=True,
    )


def figure3() -> Reproduction:
    """Figure 3 of the RQM paper: mean squared error against Renyi divergence of order 1.5, RQM
    against PBM.
    """
    verdict = "its order, RQM below PBM everywhere, holds"
    remark = "optimal: the unbiased table with the least MSE on RQM's own levels at the same divergence (4 levels)."
    return _errors(3, ORDER, verdict, remark)


def figure10() -> Reproduction:
    """Figure 10 of the RQM paper: mean squared error against Renyi divergence of order 0.5, RQM
    against PBM.
    """
    verdict = "it has RQM below PBM, which holds from divergence 1 on; below, PBM's error is up to 5.5 % the smaller one"
    return _errors(10, LOW_ORDER, verdict, "")


# Figures 2 and 9: divergences against the order ---------------------------------------------------


def _divergences(
    title: str, verdict: str, thetas: Sequence[float], alphas: Sequence[float]
) -> Reproduction:
    divergence_rows: list[JsonObject] = []
    for theta in thetas:
        rqm_law, pbm_law = law_of(PAIRS[theta][0]), poisson_law(theta)
        extension, keep_probability = PAIRS[theta][0]
        setting_name = f"theta = {theta:g}, Delta = {extension:g} c, q = {keep_probability:g}"
        for alpha in alphas:
            divergence_row = {"theta": theta, "alpha": alpha}
            divergence_row |= {
                "RQM": rqm_law.renyi(alpha),
                "PBM": pbm_law.renyi(alpha),
                "setting": setting_name,
            }
            divergence_rows.append(divergence_row)
    drawn_curves = _beside(divergence_rows, "alpha", "{setting}")
    for divergence_row in divergence_rows:
        del divergence_row["setting"]
        divergence_row["PBM - RQM"] = divergence_row["PBM"] - divergence_row["RQM"]
    return Reproduction(
        title=title,
        note="The paper draws curves and prints no numbers. Ours are worst cases over all pairs of "
        "inputs, which its "
        f"D(c || -c) is not always; {verdict}. PBM has 15 trials here: as many outcomes as RQM has "
        f"levels. Single "
        "coordinates: a vector costs as many times more.",
        rows=tuple(divergence_rows),
        series=drawn_curves,
        x_label="Renyi order alpha",
        y_label="Renyi divergence (nats)",
        log_x=True,
    )


def figure2() -> Reproduction:
    """Figure 2 of the RQM paper: worst Renyi divergence of one coordinate's report against its
    order.
    """
    title = "RQM, Figure 2: worst Renyi divergence of one report (16 levels)"
    verdict = "at alpha = 1000 it reads 5.468 for (c, 0.42), as we do to three digits"
    return _divergences(title, verdict, list(PAIRS), ALPHAS)


def figure9() -> Reproduction:
    """Figure 9 of the RQM paper: the left panel of Figure 2, theta 0.15, at low orders."""
    title = "RQM, Figure 9: worst Renyi divergence at low orders (16 levels)"
    verdict = (
        "as there, the two are close below order 1, where RQM's is up to 5.3 % the greater one, "
        "and RQM's is less from "
        "order 1 on"
    )
    return _divergences(title, verdict, [0.15], LOW_ALPHAS)


# Figures 7 and 8: pairs of inputs -----------------------------------------------------------------

PAIR_ORDERS = (2.0, 1000.0)
CUTS = (-1.0, -0.5, 0.0, 0.5, 1.0)
PRINTED = {1.0: 5.46838, 0.9333: 5.46190}
"""x / c -> D_1000(x || -c) as the paper prints it (Appendix B.1.1), the second "at a quantization
level near c".
"""


def _inputs(law: RandomizedQuantization) -> tuple[float, ...]:
    """The range, and the levels in it: the divergences have their kinks there."""
    exact_knots = [float(knot) for knot in law.knots]
    return tuple(np.union1d(np.linspace(-1, 1, 201), exact_knots).tolist())


def divergences_from(
    law: RandomizedQuantization, inputs: Sequence[float], origin: float, order: float
) -> tuple[float, ...]:
    """Renyi divergence of the report of each input from that of `origin`, nats; order other than
    1.
    """
    probabilities = law.floats([*inputs, origin])
    return tuple(renyi_divergences(probabilities[:-1], probabilities[-1], order).tolist())


def figure7() -> Reproduction:
    """Figure 7 of the RQM paper: the Renyi divergence of every pair of inputs, theta 0.25's RQM."""
    rqm_law = law_of(MAIN_PAIR)
    drawn_inputs = _inputs(rqm_law)
    crossing_rows: list[JsonObject] = []
    drawn_curves: list[Series] = []
    for renyi_order in PAIR_ORDERS:
        surface_cuts = [
            Series(
                panel=f"alpha = {renyi_order:g}",
                name=f"x' = {origin:g} c",
                x=drawn_inputs,
                y=divergences_from(rqm_law, drawn_inputs, origin, renyi_order),
            )
            for origin in CUTS
        ]
        for crossing in CUTS:
            crossed = {
                surface_cut.name: surface_cut.y[drawn_inputs.index(crossing)]
                for surface_cut in surface_cuts
            }
            crossing_rows.append({"order": renyi_order, "x / c": crossing, **crossed})
        drawn_curves += surface_cuts
    return Reproduction(
        title="RQM, Figure 7: Renyi divergence of pairs of inputs, Delta = c, q = 0.42, m = 16",
        note="The paper draws the surface D(x || x'); here are five cuts through it, and the "
        "values where they cross. "
        "As there, the peaks stand at (c, -c) and (-c, c) for this setting; for others they do not "
        "(see the errata).",
        rows=tuple(crossing_rows),
        series=tuple(drawn_curves),
        x_label="x / c",
        y_label="D(x || x') (nats)",
    )


def figure8() -> Reproduction:
    """Figure 8 of the RQM paper: the Renyi divergence of each input from -c, with the two values
    that it prints.
    """
    rqm_law = law_of(MAIN_PAIR)
    drawn_inputs = _inputs(rqm_law)
    order_curves = [
        Series(
            panel=f"alpha = {renyi_order:g}",
            name="RQM",
            x=drawn_inputs,
            y=divergences_from(rqm_law, drawn_inputs, -1.0, renyi_order),
        )
        for renyi_order in PAIR_ORDERS
    ]
    knot_rows: list[JsonObject] = []
    for knot_input in map(float, rqm_law.knots):
        position = drawn_inputs.index(knot_input)
        knot_row: JsonObject = {"x / c": knot_input}
        for renyi_order, order_curve in zip(PAIR_ORDERS, order_curves, strict=True):
            knot_row[f"order {renyi_order:g}"] = order_curve.y[position]
        printed = PRINTED.get(round(knot_input, 4))
        knot_row["paper, order 1000"] = printed
        knot_row["difference"] = None
        if printed is not None:
            knot_row["difference"] = knot_row["order 1000"] - printed
        knot_rows.append(knot_row)
    return Reproduction(
        title="RQM, Figure 8: Renyi divergence of each input from -c, Delta = c, q = 0.42, m = 16",
        note="The rows are the ends of the range and the levels between them, where the curves "
        "have their kinks. The "
        "paper prints the values of order 1000 at c and at the kink next to it.",
        rows=tuple(knot_rows),
        series=tuple(order_curves),
        x_label="x / c",
        y_label="D(x || -c) (nats)",
    )


FIGURES = (
    Figure(name="rqm-figure1", compute=figure1),
    Figure(name="rqm-figure2", compute=figure2),
    Figure(name="rqm-figure3", compute=figure3),
    Figure(name="rqm-figure7", compute=figure7),
    Figure(name="rqm-figure8", compute=figure8),
    Figure(name="rqm-figure9", compute=figure9),
    Figure(name="rqm-figure10", compute=figure10),
    Figure(name="rqm-pairs", compute=pairs),
)
