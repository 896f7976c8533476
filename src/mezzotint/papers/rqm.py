"""Figures 1 to 3 and 7 to 10 of the RQM paper and its nine parameter pairs, all from the exact laws of the reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, cast

import numpy as np
from scipy import optimize

from mezzotint import design, families
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.core.types import FloatArray
from mezzotint.papers.exact_laws import (
    RandomizedQuantization,
    rqm_divergence,
    rqm_exact,
    rqm_floats,
    rqm_knots,
    rqm_rows,
)
from mezzotint.papers.reproduction import Reproduction, Series

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

ALPHAS = (1.1, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
LOW_ALPHAS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0)

PAIR_ORDERS = (2.0, 1000.0)
PRINTED = {1.0: 5.46838, 0.9333: 5.46190}
"""x / c -> D_1000(x || -c) as the paper prints it (Appendix B.1.1), the second "at a quantization level near c"."""

ORDER, LOW_ORDER = 1.5, 0.5
SIZES = (4, 16, 64)
DIVERGENCES = {ORDER: (1.0, 1.5, 2.0, 3.0, 4.0, 5.0), LOW_ORDER: (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)}
EXTENSION = 1.0
"""In units of the clipping range; the mechanism's losses depend on nothing else."""

GRID = tuple(Fraction(2 * k, 29) - 1 for k in range(30))
"""The paper's 30 even inputs."""
OPTIMAL_SIZES = (4,)
"""Sizes at which the optimal table is shown beside the two: at more levels the solver gives up near divergence 1."""


def poisson_binomial(theta: float, clip: float = 1.0) -> Mechanism:
    """PBM at equal bits as a table: 15 trials have 16 outcomes."""
    return families.pbm(lower=-clip, upper=clip, trials=TRIALS, theta=theta)


def randomized(pair: Pair, clip: float = 1.0) -> Mechanism:
    """RQM at one of the paper's (Delta / c, q), as a table."""
    return families.rqm(lower=-clip, upper=clip, levels=LEVELS, extension=pair[0] * clip, q=pair[1])


def law_of(pair: Pair) -> RandomizedQuantization:
    """RQM at one of the paper's (Delta / c, q), exactly."""
    return rqm_exact(levels=LEVELS, extension=pair[0], q=pair[1])


def grid_error(law: RandomizedQuantization) -> float:
    """Mean squared error over the paper's 30 inputs, in units of c^2."""
    return float(sum(map(law.mse, GRID), Fraction(0)) / len(GRID))


# Figure 1b and the nine pairs -----------------------------------------------------------------------------------------


def figure1() -> Reproduction:
    """Figure 1b of the RQM paper: the law of the report at x = c, RQM with Delta = c and q = 0.42 beside PBM."""
    law = law_of(PAIRS[0.25][0])
    exact = families.pbm_exact(lower=-1, upper=1, trials=TRIALS, theta=0.25)
    chances = {"RQM": [float(chance) for chance in law.pmf(1)], "PBM": exact.pmf(1.0).tolist()}
    rows = tuple(
        {"level": level, "RQM": ours, "PBM": rival}
        for level, (ours, rival) in enumerate(zip(*chances.values(), strict=True))
    )
    positions = tuple(map(float, range(LEVELS)))
    return Reproduction(
        title="RQM, Figure 1b: probabilities of the 16 outputs at x = c",
        note="The paper draws bars and prints neither numbers nor q, which is taken to be 0.42; PBM has theta = 0.25 "
        "and 15 trials, so that its law at c is Bin(15, 3/4). RQM's from rationals.",
        rows=rows,
        series=tuple(
            Series(panel="", name=name, x=positions, y=tuple(values))
            for name, values in chances.items()
        ),
        x_label="number of the output",
        y_label="probability",
    )


def _pair_row(theta: float, pair: Pair) -> JsonObject:
    law = law_of(pair)
    rival = families.pbm_exact(lower=-1, upper=1, trials=TRIALS, theta=theta)
    error, other = grid_error(law), float(np.mean(rival.mse([float(x) for x in GRID])))
    return {
        "theta": theta,
        "Delta / c": pair[0],
        "q": pair[1],
        "epsilon": law.epsilon,
        "at (c, -c)": law.between(1, -1).epsilon,
        "MSE": error,
        "MSE of PBM": other,
        "less error": error < other,
        "D_2": law.renyi(2.0),
        "D_2 of PBM": rival.renyi(2.0),
        "MSE at c": float(law.mse(1)),
        "PBM's at c": float(rival.mse(1.0)),
    }


def pairs() -> Reproduction:
    """The RQM paper's nine (Delta, q): exact epsilon, epsilon between the ends, error and divergence beside PBM's."""
    rows = [_pair_row(theta, pair) for theta, choices in PAIRS.items() for pair in choices]
    worse = [f"({row['Delta / c']:g} c, {row['q']:g})" for row in rows if not row["less error"]]
    return Reproduction(
        title="RQM: its nine parameter pairs (m = 16) beside PBM at the same theta",
        note="Exact: rationals, errors over the paper's 30 inputs in units of c^2, PBM with 15 trials. The paper has "
        f"all nine ahead; {', '.join(worse)} have more error than PBM. All nine have less divergence.",
        rows=tuple(rows),
    )


# Figures 3 and 10: errors at equal divergence -------------------------------------------------------------------------


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    return cast(float, optimize.brentq(function, low, high, xtol=1e-13))


def equal_q(levels: int, divergence: float, order: float) -> float:
    """q of RQM whose worst divergence is the one given: it grows with q."""
    knots = rqm_knots(levels, EXTENSION)

    def excess(q: float) -> float:
        return rqm_divergence(rqm_floats(levels, EXTENSION, q, knots), order) - divergence

    return _root(excess, 1e-3, 0.99)


def _randomized_error(levels: int, divergence: float, order: float) -> float:
    inputs = np.array([float(x) for x in GRID])
    rows = rqm_floats(levels, EXTENSION, equal_q(levels, divergence, order), inputs)
    points = np.linspace(-1 - EXTENSION, 1 + EXTENSION, levels)
    return float((rows * (points - inputs[:, None]) ** 2).sum(axis=1).mean())


def _poisson_binomial_error(levels: int, divergence: float, order: float) -> float:
    def at(theta: float) -> PoissonBinomial:
        return families.pbm_exact(lower=-1, upper=1, trials=levels - 1, theta=theta)

    theta = _root(lambda value: at(value).renyi(order) - divergence, 1e-3, 0.499)
    return float(np.mean(at(theta).mse([float(x) for x in GRID])))


def _optimal_error(levels: int, divergence: float, order: float) -> float:
    """Of the unbiased table with the least MSE on RQM's own levels."""
    grid = np.linspace(-1 - EXTENSION, 1 + EXTENSION, levels).tolist()
    found = design.optimal(
        epsilon=divergence, alpha=order, lower=-1, upper=1, levels=grid, knots=9
    ).mechanism
    return float(np.mean(found.mse([float(x) for x in GRID])))


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


def error_row(levels: int, divergence: float, order: float) -> JsonObject:
    """Errors of RQM, PBM and, at few levels and order 1.5, the optimal table, at one divergence."""
    row: JsonObject = {
        "levels": levels,
        "divergence": divergence,
        "RQM": _randomized_error(levels, divergence, order),
        "PBM": _poisson_binomial_error(levels, divergence, order),
    }
    if order == ORDER and levels in OPTIMAL_SIZES:
        row["optimal"] = _optimal_error(levels, divergence, order)
    return row


def _errors(number: int, order: float, said: str, more: str) -> Reproduction:
    rows = [error_row(levels, d, order) for levels in SIZES for d in DIVERGENCES[order]]
    series: list[Series] = []
    for levels in SIZES:
        chosen = [row for row in rows if row["levels"] == levels]
        names = [name for name in chosen[0] if name not in ("levels", "divergence")]
        series += [
            Series(
                panel=f"m = {levels}",
                name=name,
                x=DIVERGENCES[order],
                y=tuple(row[name] for row in chosen),
            )
            for name in names
        ]
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


# Figures 2 and 9: divergences against the order -----------------------------------------------------------------------


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
    title: str, said: str, settings: Mapping[float, Sequence[Pair]], alphas: Sequence[float]
) -> Reproduction:
    rows: list[JsonObject] = []
    series: list[Series] = []
    for theta, choices in settings.items():
        law = law_of(choices[0])
        exact = families.pbm_exact(lower=-1, upper=1, trials=TRIALS, theta=theta)
        values = {
            "RQM": [law.renyi(alpha) for alpha in alphas],
            "PBM": [exact.renyi(alpha) for alpha in alphas],
        }
        panel = f"theta = {theta:g}, Delta = {choices[0][0]:g} c, q = {choices[0][1]:g}"
        series += [
            Series(panel=panel, name=name, x=tuple(alphas), y=tuple(curve))
            for name, curve in values.items()
        ]
        for alpha, ours, rival in zip(alphas, *values.values(), strict=True):
            row = {"theta": theta, "alpha": alpha, "RQM": ours, "PBM": rival}
            rows.append({**row, "PBM - RQM": rival - ours})
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


# Figures 7 and 8: pairs of inputs -------------------------------------------------------------------------------------

CUTS = (-1.0, -0.5, 0.0, 0.5, 1.0)


def _inputs(law: RandomizedQuantization) -> tuple[float, ...]:
    """The range, and the levels in it: the divergences have their kinks there."""
    knots = [float(knot) for knot in law.knots]
    return tuple(np.union1d(np.linspace(-1, 1, 201), knots).tolist())


def divergences(
    law: RandomizedQuantization, inputs: Sequence[float], y: float, order: float
) -> FloatArray:
    """(n,) Renyi divergence of the report of each input from that of `y`, nats; order other than 1."""
    rows = rqm_rows(law, [*inputs, y])
    return np.array([rqm_divergence_between(row, rows[-1], order) for row in rows[:-1]])


def rqm_divergence_between(first: FloatArray, second: FloatArray, order: float) -> float:
    """Renyi divergence of one law from another, nats; order other than 1."""
    total = np.logaddexp.reduce(order * np.log(first) + (1 - order) * np.log(second))
    return max(0.0, float(total) / (order - 1))


def figure7() -> Reproduction:
    """Figure 7 of the RQM paper: the Renyi divergence of every pair of inputs, theta 0.25's RQM."""
    law = law_of(PAIRS[0.25][0])
    inputs = _inputs(law)
    rows: list[JsonObject] = []
    series: list[Series] = []
    for order in PAIR_ORDERS:
        curves = {cut: divergences(law, inputs, cut, order).tolist() for cut in CUTS}
        series += [
            Series(panel=f"order {order:g}", name=f"x' = {cut:g} c", x=inputs, y=tuple(curve))
            for cut, curve in curves.items()
        ]
        for knot in CUTS:
            place = inputs.index(knot)
            crossed = {f"x' = {cut:g} c": curve[place] for cut, curve in curves.items()}
            rows.append({"order": order, "x / c": knot, **crossed})
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
    law = law_of(PAIRS[0.25][0])
    inputs = _inputs(law)
    curves = {order: divergences(law, inputs, -1.0, order).tolist() for order in PAIR_ORDERS}
    rows: list[JsonObject] = []
    for knot in [float(point) for point in law.knots]:
        place = inputs.index(knot)
        row: JsonObject = {"x / c": knot}
        row |= {f"order {order:g}": curves[order][place] for order in PAIR_ORDERS}
        paper = PRINTED.get(round(knot, 4))
        row["paper, order 1000"] = paper
        row["difference"] = None if paper is None else row["order 1000"] - paper
        rows.append(row)
    return Reproduction(
        title="RQM, Figure 8: Renyi divergence of each input from -c, Delta = c, q = 0.42, m = 16",
        note="The rows are the ends of the range and the levels between them, where the curves have their kinks. The "
        "paper prints the values of order 1000 at c and at the kink next to it.",
        rows=tuple(rows),
        series=tuple(
            Series(panel=f"order {order:g}", name="RQM", x=inputs, y=tuple(curve))
            for order, curve in curves.items()
        ),
        x_label="x / c",
        y_label="D(x || -c) (nats)",
    )


REPRODUCTIONS: dict[str, Callable[..., Reproduction]] = {
    "rqm-figure1": figure1,
    "rqm-figure2": figure2,
    "rqm-figure3": figure3,
    "rqm-figure7": figure7,
    "rqm-figure8": figure8,
    "rqm-figure9": figure9,
    "rqm-figure10": figure10,
    "rqm-pairs": pairs,
}
