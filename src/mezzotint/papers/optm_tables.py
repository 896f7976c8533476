"""The OPTM paper: programs for its numbers alone, Tables 1 and 2, Figures 3 and 4, the trade-off of optimal tables.

Cai, Zhang, Khalili 2024, "Privacy-Aware Randomized Quantization via Linear Programming"; docs/proofs/design.md, "OPTM".
The programs are Theorem 5 as printed, four bins exactly, and one ratio for all outputs.
"""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, final

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from mezzotint import datasets, design, families, report, training
from mezzotint.core.arguments import check_covering
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import FloatArray, Mechanism
from mezzotint.core.priors import cost_matrix
from mezzotint.core.records import JsonObject, Progress, ticks
from mezzotint.design.pair_selection import (
    SelectionTables,
    best_pairs,
    is_mirrored,
    solve_rows,
    table_of,
)
from mezzotint.design.problem import (
    DesignResult,
    Problem,
    achieved_loss,
    first_certified,
    make_problem,
    without_bound,
)
from mezzotint.papers.reproduction import Reproduction, Series
from mezzotint.papers.rqp import FOLDER_VARIABLE, Tick

if TYPE_CHECKING:
    from mezzotint.privacy import Claim as TrainingClaim

_POINTS = 49


def _largest_at_own_bin(tables: SelectionTables, i: int) -> list[FloatArray]:
    """q_j(i) - q_i(i) <= 0 on both sides, for inner bins (1-based)."""
    if not tables.lower <= tables.bins[i - 1] <= tables.upper:
        return []
    pairs = [
        (tables.own(j, i), tables.own(i, i) if i <= j else tables.own(i - 1, i))
        for j, _, _ in tables.used
    ]
    return [tables.unit(own) - tables.unit(nearest) for own, nearest in pairs if own != nearest]


def published_theorem5(tables: SelectionTables, forms: FloatArray, epsilon: float) -> FloatArray:
    """Theorem 5 as printed: NO guarantee. Bin t has no constraint at all, and outer bins lack pairs of cells.

    Arguments: as the constraints of `design.optm`, see `design.pair_selection.theorem5`.
    """
    cells = {j: place for place, (j, _, _) in enumerate(tables.used)}
    first = min(cells)
    rows: list[FloatArray] = []
    for i in range(1, tables.bins.size + 1):
        if tables.bins[i - 1] > tables.upper:
            continue
        at_end = forms[-1, 1, i - 1]
        # The bins k inside the range, to the right of bin i.
        for k in range(max(first, i) + 1, max(cells) + 1):
            if tables.bins[i - 1] >= tables.lower:
                uppers = [tables.unit(tables.own(i, i)), tables.unit(tables.own(i - 1, i))]
            else:
                uppers = [forms[cells[k], 0, i - 1], forms[0, 0, i - 1]]
            lowers = (forms[cells[k - 1], 1, i - 1], at_end)
            rows += [upper - math.exp(epsilon) * lower for upper in uppers for lower in lowers]
        rows += _largest_at_own_bin(tables, i)
    return np.array(rows) if rows else np.zeros((1, tables.size))


def optm_as_printed(
    epsilon: float = 1.0, *, bins: npt.ArrayLike, prior: object = None, boxes: int = 99
) -> DesignResult:
    """`design.optm` with the constraints of Theorem 5 as printed: its tables can exceed the nominal epsilon.

    Arguments: as `design.optm`, for inputs in [-1, 1].

    Raises:
        ParameterError, InfeasibleError: as `design.optm`.

    Guarantees: none but the certificate of the mechanism, at the epsilon that it truly has.
    Source: Cai, Zhang, Khalili 2024, Theorem 5; docs/proofs/design.md, "OPTM".
    """
    started = time.perf_counter()
    problem = make_problem(epsilon=epsilon, lower=-1.0, upper=1.0, loss="mae", prior=prior)
    sets = [check_covering("bins", bins, lower=problem.lower, upper=problem.upper)]
    best = best_pairs(
        problem, sets, published_theorem5, boxes=boxes, started=started, is_private=False
    )
    if best is None:
        raise InfeasibleError(
            f"bins={bins}: no selection probabilities satisfy the constraints at epsilon={epsilon:g}"
        )
    return best


def _best_thirds(
    problem: Problem, tables: SelectionTables, middle: FloatArray, epsilon: float
) -> tuple[float, FloatArray]:
    """(loss, y): the best q_3 for these q_2(1) of each side by one linear program; loss inf if there is none.

    Cells 1 and 3 pair q_3 with q_1 = 1, cell 2 pairs q_2 with q_2: with q_2 fixed every probability, hence the true
    epsilon and the true loss, is linear in q_3.
    """
    pinned, m = np.zeros(tables.size), tables.bins.size
    for side in range(tables.sides):
        pinned[tables.row(side, 2)] = middle[side], 1 - middle[side]
    forms = tables.forms(pinned).reshape(-1, m, tables.size)
    knots = np.array([end for _, *ends in tables.used for end in ends])
    costs = cost_matrix(
        knots=knots,
        levels=tables.bins,
        prior=problem.prior,
        loss="mae" if problem.loss == "mae" else "mse",
    )
    # Beside y stand the floors of the levels.
    flat, floors = forms.reshape(-1, tables.size), np.tile(np.eye(m), (knots.size, 1))
    private = np.concatenate(
        [np.hstack([-flat, floors]), np.hstack([flat, -math.exp(epsilon) * floors])]
    )
    target = np.concatenate([np.einsum("kmn,km->n", forms, costs), np.zeros(m)])
    answer = solve_rows(tables, *tables.box(pinned), target, private)
    return (math.inf, pinned) if answer is None else answer


def _best_middle(
    problem: Problem, tables: SelectionTables, epsilon: float
) -> tuple[float, FloatArray]:
    """The search over q_2(1): a grid, then a local refinement, one linear program per point."""
    axis = np.linspace(0, 1, _POINTS + 2)[1:-1]
    axes = [axis] if tables.sides == 1 else [axis[::3], axis[::3]]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, tables.sides)
    values = [_best_thirds(problem, tables, middle, epsilon)[0] for middle in grid]
    best = grid[int(np.argmin(values))]
    if not math.isfinite(min(values)):
        return math.inf, np.zeros(tables.size)

    def evaluate(middle: FloatArray) -> float:
        inside = np.clip(middle, 0, 1)
        value = _best_thirds(problem, tables, inside, epsilon)[0]
        return min(value, 1e12)

    step = 1 / (_POINTS + 1)
    simplex = np.concatenate([[best], best + step * np.eye(tables.sides)])
    options = {"initial_simplex": simplex, "xatol": 1e-10, "fatol": 1e-13, "maxiter": 200}
    refined = optimize.minimize(evaluate, best, method="Nelder-Mead", options=options)
    return _best_thirds(problem, tables, np.clip(refined.x, 0, 1), epsilon)


def optm_exact(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    bins: npt.ArrayLike,
    loss: Literal["mse", "mae"] = "mae",
    prior: object = None,
) -> DesignResult:
    """The best pair-selection mechanism on four bins: its true loss minimised under its true epsilon.

    Arguments: as `optm`; `bins` are four, two of them inside the range; `loss` "mae" or "mse".

    Raises:
        ParameterError: not four bins, or not two inside the range.
        InfeasibleError: the family has no member at this epsilon on these bins.

    Guarantees: never worse than `optm` on the same bins (same loss), up to the refinement of one number per side.
    Source: docs/proofs/design.md, "OPTM with four bins".
    """
    started = time.perf_counter()
    problem = make_problem(epsilon=epsilon, lower=lower, upper=upper, loss=loss, prior=prior)
    levels = check_covering("bins", bins, lower=problem.lower, upper=problem.upper)
    inside = (levels > problem.lower) & (levels < problem.upper)
    if levels.size != 4 or inside.sum() != 2:
        raise ParameterError(
            "bins", levels.tolist(), "need four bins, the inner two inside the range"
        )
    tables = SelectionTables(
        bins=levels,
        lower=problem.lower,
        upper=problem.upper,
        sides=1 if is_mirrored(levels, problem) else 2,
    )

    def build(budget: float) -> Mechanism:
        value, y = _best_middle(problem, tables, budget)
        if not math.isfinite(value):
            raise InfeasibleError(
                f"bins={levels.tolist()}: no pair selection reaches epsilon={epsilon:g} on them"
            )
        return table_of(problem, tables, y, name="OPTM (exact)", epsilon=problem.epsilon)

    mechanism = first_certified(build, epsilon=problem.epsilon)
    return without_bound(
        mechanism,
        loss=achieved_loss(problem, mechanism),
        status="optimal in its family",
        started=started,
        iterations=_POINTS,
    )


# What the paper's published program searches: boxes q_2(1) in [o, o + 0.01] on each side, all other q at least 1e-5.
_GRID = np.arange(1, 20) * 0.05
_WIDTH = 0.01
_LEAST = 1e-5
BIN_SETS = tuple(
    (-outer, *inner, outer)
    for outer in (2.0, 3.0, 4.0)
    for inner in itertools.combinations((-0.6, -0.2, 0.2, 0.6), 2)
)


def _others(tables: SelectionTables, j: int, x: float, i: int) -> FloatArray:
    """(size,) coefficients c with p(x, i) = y[own(j, i)] * (c @ y) at x in the closed cell j; bins count from 1."""
    m, bins = tables.bins.size, tables.bins
    result = np.zeros(tables.size)
    if i <= j:
        result[tables.row(1, m - j)] += ((bins[j:] - x) / (bins[j:] - bins[i - 1]))[::-1]
    else:
        result[tables.row(0, j)] += (x - bins[:j]) / (bins[i - 1] - bins[:j])
    return result


def one_ratio(tables: SelectionTables, low: FloatArray, epsilon: float) -> FloatArray:
    """Rows A of A y <= 0 that imply epsilon-DP for every y >= low: any p(x, i) <= exp(epsilon) times any p(x', i').

    i' runs over all outputs where privacy asks for i' = i alone: sufficient, and stricter than needed.
    """
    uppers: list[FloatArray] = []
    lowers: list[FloatArray] = []
    for i, (j, start, stop) in itertools.product(range(1, tables.bins.size + 1), tables.used):
        near, far = (start, stop) if i <= j else (stop, start)
        own = tables.unit(tables.own(j, i))
        at_near, at_far = _others(tables, j, near, i), _others(tables, j, far, i)
        # With a single bin on the other side, drawn for certain, p is linear in y.
        certain = (tables.bins.size - j if i <= j else j) == 1
        # p(B_i, i) is q itself; no upper bounds of q are used, that is u = 1.
        uppers.append(
            own if near == tables.bins[i - 1] else own * at_near.sum() if certain else at_near
        )
        # A cell with one bin on a side is linear in y; elsewhere the other side's q is replaced by its lower bound.
        if certain:
            lowers.append(own * at_far.sum())
        else:
            alone = min(j, tables.bins.size - j) == 1
            lowers.append(low[tables.own(j, i)] * at_far if alone else own * (at_far @ low))
    return np.array([upper - math.exp(epsilon) * lower for upper in uppers for lower in lowers])


@final
@dataclass(kw_only=True, eq=False)
class _OneRatioSearch:
    """The best box at one epsilon over all bin sets tried so far, by the bound of Theorem 4."""

    problem: Problem
    epsilon: float
    value: float = math.inf
    best: tuple[SelectionTables, FloatArray] | None = field(default=None, init=False)
    programs: int = field(default=0, init=False)

    def add(self, bins: FloatArray) -> None:
        """Searches the boxes at these bins."""
        tables = SelectionTables(
            bins=bins, lower=self.problem.lower, upper=self.problem.upper, sides=2
        )
        self._descend(tables, (0, 0), (_GRID.size - 1, _GRID.size - 1))

    def _descend(
        self, tables: SelectionTables, first: tuple[int, int], last: tuple[int, int]
    ) -> None:
        """Boxes first .. last of the two sides. Their union with the largest lower bound as factor is a relaxation."""
        target, constant = tables.proxy(self.problem.prior)
        low, high, factors = self._union(tables, first, last)
        self.programs += 1
        answer = solve_rows(tables, low, high, target, one_ratio(tables, factors, self.epsilon))
        if answer is None or answer[0] + constant >= self.value:
            return
        if first == last:
            self.value, self.best = answer[0] + constant, (tables, answer[1])
            return
        side = 0 if last[0] - first[0] >= last[1] - first[1] else 1
        middle = (first[side] + last[side]) // 2
        self._descend(tables, first, _replaced(last, side, middle))
        self._descend(tables, _replaced(first, side, middle + 1), last)

    def _union(
        self, tables: SelectionTables, first: tuple[int, int], last: tuple[int, int]
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        low, high = np.full(tables.size, _LEAST), np.ones(tables.size)
        factors = low.copy()
        for side in (0, 1):
            low[tables.row(side, 1)] = factors[tables.row(side, 1)] = 1.0
            pinned = tables.row(side, 2).start
            low[pinned], high[pinned] = _GRID[first[side]], _GRID[last[side]] + _WIDTH
            factors[pinned] = _GRID[last[side]]
        return low, high, factors


def _replaced(pair: tuple[int, int], side: int, value: int) -> tuple[int, int]:
    return (value, pair[1]) if side == 0 else (pair[0], value)


def _four_bins(bins: npt.ArrayLike, problem: Problem) -> FloatArray:
    values = check_covering("bins", bins, lower=problem.lower, upper=problem.upper)
    if values.size != 4 or not problem.lower < values[1] < values[2] < problem.upper:
        raise ParameterError(
            "bin_sets", values.tolist(), "each needs four bins, the inner two inside the range"
        )
    return values


def optm_one_ratio(
    epsilon: float = 1.0, *, prior: object = None, bin_sets: Sequence[Sequence[float]] = BIN_SETS
) -> DesignResult:
    """OPTM with separate sides, four bins and one ratio for all outputs, on the coarse grids of the paper's Table 2.

    Arguments:
        epsilon: pure epsilon per report, replace-one neighbours.
        prior: of inputs in [-1, 1]: None (uniform), a frozen scipy.stats distribution or a 1-D sample.
        bin_sets: output levels to choose among; the default is what the paper's published program searches.

    Returns:
        The mechanism of the box and bins with the least bound on the MAE (Theorem 4), and its exact MAE as `loss`;
        no lower bound. `iterations` counts linear programs.

    Raises:
        ParameterError: a bad value.
        InfeasibleError: no box has a solution.

    Guarantees: certified epsilon <= epsilon; unbiased. Never better than `optm_exact` at the same bins: for use beside
    the paper's numbers.
    Source: Cai, Zhang, Khalili 2024, Theorem 4, Table 2 and the program published with it; docs/proofs/design.md,
    "OPTM".
    """
    started = time.perf_counter()
    problem = make_problem(epsilon=epsilon, lower=-1.0, upper=1.0, loss="mae", prior=prior)
    sets = [_four_bins(bins, problem) for bins in bin_sets]
    if not sets:
        raise ParameterError("bin_sets", bin_sets, "give at least one set of four bins")
    programs = 0

    def build(reduced: float) -> Mechanism:
        nonlocal programs
        search = _OneRatioSearch(problem=problem, epsilon=reduced)
        for bins in sets:
            search.add(bins)
        programs += search.programs
        if search.best is None:
            raise InfeasibleError(
                f"epsilon={epsilon:g}: no box has a solution; raise epsilon or use design.optimal"
            )
        return table_of(problem, *search.best, name="OPTM (one ratio)", epsilon=problem.epsilon)

    mechanism = first_certified(build, epsilon=problem.epsilon)
    return without_bound(
        mechanism,
        loss=achieved_loss(problem, mechanism),
        status="heuristic",
        started=started,
        iterations=programs,
    )


# Tables and figures -------------------------------------------------------------------------------------------------


def grid_mae(mechanism: Mechanism) -> float:
    """The papers' convention: the mean of E|report - x| over x = -1, -0.96, ..., 1 (51 inputs)."""
    inputs = np.linspace(-1, 1, 51)
    return float(
        (mechanism.pmf(inputs) * np.abs(mechanism.levels - inputs[:, None])).sum(axis=1).mean()
    )


OPTM_BINS = {0.5: (-6.0, -0.4, 0.4, 6.0), 1.0: (-3.0, -0.5, 0.5, 3.0), 1.5: (-3.0, -0.5, 0.5, 3.0)}
MVU_ALPHABETS = {
    0.5: (-4.34, -3.6, 3.6, 4.34),
    1.0: (-2.42, -1.69, 1.69, 2.42),
    1.5: (-1.83, -1.11, 1.11, 1.83),
}
RQM_SETTINGS = {1.0: (1.7, 0.22), 1.5: (1.6, 0.498)}
ERM_SETTINGS = {1.0: ((-5.1, -0.1, 0.1, 5.1), 0.026), 1.5: ((-2.7, -0.4, 0.4, 2.7), 0.043)}
TABLE1_PAPER = {
    "OPTM": {0.5: 3.904, 1.0: 1.882, 1.5: 1.179},
    "MVU": {0.5: 3.959, 1.0: 1.930, 1.5: 1.254},
    "RQM": {0.5: None, 1.0: 1.993, 1.5: 1.310},
    "ERM": {0.5: None, 1.0: 2.216, 1.5: 1.304},
}


def _published(name: str, epsilon: float) -> tuple[Mechanism, str]:
    """The paper's mechanism with its own hyperparameters, and a remark."""
    if name == "OPTM":
        return design.optm(
            epsilon, bins=OPTM_BINS[epsilon]
        ).mechanism, "solved anew on the paper's bins"
    if name == "MVU":
        return design.mvu(
            epsilon, levels=MVU_ALPHABETS[epsilon]
        ).mechanism, "2 input bits, the paper's alphabet"
    if name == "RQM" and epsilon in RQM_SETTINGS:
        extension, q = RQM_SETTINGS[epsilon]
        return families.rqm(levels=4, extension=extension, q=q), f"Delta={extension:g}, q={q:g}"
    if name == "ERM" and epsilon in ERM_SETTINGS:
        bins, gamma = ERM_SETTINGS[epsilon]
        return families.erm(bins=bins, gamma=gamma), f"gamma={gamma:g}"
    found = design.calibrate(name.lower(), epsilon=epsilon, loss="mae")
    return found.mechanism, "N/A in the paper is an artefact of its grid: calibrated by search" + (
        ", gamma < 0" if name == "ERM" else ""
    )


def _row1(name: str, epsilon: float) -> JsonObject:
    mechanism, note = _published(name, epsilon)
    paper = TABLE1_PAPER[name][epsilon]
    row: JsonObject = {"mechanism": name, "epsilon": epsilon, "paper": paper}
    reproduced = grid_mae(mechanism)
    best = design.optimal(epsilon, levels=mechanism.levels, loss="mae").mechanism
    return {
        **row,
        "reproduced": reproduced,
        "difference": None if paper is None else reproduced - paper,
        "exact_mae": mechanism.mae(),
        "exact_mse": mechanism.mse(),
        "certified_epsilon": mechanism.epsilon,
        "optimum_mae": best.mae(),
        "optimum_mse": best.mse(),
        "note": note,
    }


def table1() -> Reproduction:
    """Table 1: uniform inputs on [-1, 1], four levels, epsilon 0.5, 1, 1.5."""
    return Reproduction(
        title="OPTM, Table 1: mean absolute error, uniform inputs, m = 4",
        note=(
            "paper: as printed. reproduced: our mechanism in the paper's convention, the mean over 51 inputs. exact: "
            "the integral over the range. optimum: the best table at that row's own levels and epsilon, over all "
            "mechanisms with these levels; MAE and MSE are of that MAE-optimal table."
        ),
        rows=tuple(_row1(name, epsilon) for name in TABLE1_PAPER for epsilon in (0.5, 1.0, 1.5)),
    )


TABLE2_PAPER = {
    "OPTM": {0.1: 1.778, 0.2: 1.836, 0.3: 1.972},
    "MVU": {0.1: 2.053, 0.2: 2.052, 0.3: 2.002},
    "RQM": {0.1: 2.028, 0.2: 2.010, 0.3: 2.000},
}
_PER_OUTPUT = "OPTM, ratio per output"
_TABLE2_NOTES = {
    "OPTM": "the program published with the paper: one ratio for all outputs, coarse boxes; it ends at bins",
    _PER_OUTPUT: "the paper's bins, each output held to a ratio of its own (Theorem 5, corrected), finer boxes",
    "MVU": "the published row fits 2 E|x - y| with y left in units of [0, 1] (column `unscaled`), not the error",
    "RQM": "Delta=1.7, q=0.22",
}


def _unscaled(mechanism: Mechanism, inputs: np.ndarray) -> float:
    """2 E|x - y| with y = (B + 1) / 2: what the published MVU row comes near to."""
    outputs = (mechanism.levels + 1) / 2
    return float(2 * (mechanism.pmf(inputs) * np.abs(outputs - inputs[:, None])).sum(axis=1).mean())


def _mechanism2(name: str, prior: object) -> Mechanism:
    if name == "OPTM":
        return optm_one_ratio(1.0, prior=prior).mechanism
    if name == _PER_OUTPUT:
        return design.optm(1.0, bins=(-4.0, 0.2, 0.6, 4.0), prior=prior).mechanism
    if name == "MVU":
        return design.mvu(1.0, levels=MVU_ALPHABETS[1.0]).mechanism
    return families.rqm(levels=4, extension=1.7, q=0.22)


def _row2(name: str, sigma: float) -> JsonObject:
    prior = stats.norm(0.5, sigma)
    mechanism, note = _mechanism2(name, prior), _TABLE2_NOTES[name]
    if name == "OPTM":
        note += " " + " ".join(f"{level:g}" for level in mechanism.levels)
    best = design.optimal(1.0, levels=mechanism.levels, loss="mae", prior=prior).mechanism
    paper, exact = TABLE2_PAPER.get(name, {}).get(sigma), mechanism.mae(prior)
    quantiles = np.clip(prior.ppf((np.arange(20_000) + 0.5) / 20_000), -1, 1)
    return {
        "mechanism": name,
        "sigma": sigma,
        "paper": paper,
        "reproduced": exact,
        "difference": None if paper is None else exact - paper,
        "unscaled": _unscaled(mechanism, quantiles) if name == "MVU" else None,
        "exact_mse": mechanism.mse(prior),
        "certified_epsilon": mechanism.epsilon,
        "optimum_mae": best.mae(prior),
        "optimum_mse": best.mse(prior),
        "note": note,
    }


def table2() -> Reproduction:
    """Table 2: inputs N(0.5, sigma) clipped to [-1, 1], four levels, epsilon 1."""
    return Reproduction(
        title="OPTM, Table 2: mean absolute error, clipped Gaussian inputs, m = 4, epsilon = 1",
        note=(
            "reproduced: the exact expectation under the clipped normal distribution of which the paper draws 1000 "
            "samples. optimum: the best table at that row's own levels. OPTM's published program bounds the "
            "probabilities of every output by those of every other: privacy asks for less, and the row below it does "
            "just that. At sigma = 0.3 its bin search ends at -4 -0.2 0.6 4; the paper prints -4 0.2 0.6 4."
        ),
        rows=tuple(_row2(name, sigma) for name in _TABLE2_NOTES for sigma in (0.1, 0.2, 0.3)),
    )


def published_mechanisms(epsilon: float) -> dict[str, Mechanism]:
    """Table 1's mechanisms at this epsilon, and the optimum on OPTM's bins."""
    found: dict[str, Mechanism] = {}
    for name in TABLE1_PAPER:
        if TABLE1_PAPER[name][epsilon] is None:
            continue
        found[name] = _published(name, epsilon)[0]
    found["optimal"] = design.optimal(epsilon, levels=OPTM_BINS[epsilon], loss="mae").mechanism
    return found


DRAWS = 10_000
FIGURE4_EPSILONS = (1.0, 1.5, 2.0, 2.5, 3.0)
_BINS = (-3.0, -0.5, 0.5, 3.0)
_RQM_BINS = (-3.0, -1.0, 1.0, 3.0)


def figure3() -> Reproduction:
    """Figure 3: the mean absolute error at each input."""
    rows: list[JsonObject] = []
    series: list[Series] = []
    inputs = np.linspace(-1, 1, 101)
    for epsilon in (0.5, 1.0, 1.5):
        for name, mechanism in published_mechanisms(epsilon).items():
            errors = (mechanism.pmf(inputs) * np.abs(mechanism.levels - inputs[:, None])).sum(
                axis=1
            )
            series.append(
                Series(
                    panel=f"epsilon = {epsilon:g}",
                    name=name,
                    x=tuple(inputs.tolist()),
                    y=tuple(errors.tolist()),
                )
            )
            rows += [
                {"epsilon": epsilon, "mechanism": name, "x": x, "mae": error}
                for x, error in zip(inputs[::5].tolist(), errors[::5].tolist(), strict=True)
            ]
    return Reproduction(
        title="OPTM, Figure 3: E|report - x| at each input, m = 4",
        note="Exact expectations of the tables, no sampling; jumps at bins are those of pair selection.",
        rows=tuple(rows),
        series=tuple(series),
        x_label="input",
        y_label="mean absolute error",
    )


def ball(count: int, dimension: int, seed: int) -> FloatArray:
    """(count, dimension) points uniform in the unit L2 ball."""
    # Barthe et al. 2005: Gaussian coordinates over the root of their squares plus an exponential variable.
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal((count, dimension))
    scale = np.sqrt((normal**2).sum(axis=1) + 2 * rng.exponential(size=count))
    return normal / scale[:, None]


def _contenders(epsilon: float, prior: object) -> dict[str, Callable[[], Mechanism]]:
    return {
        "OPTM": lambda: design.optm(epsilon, bins=_BINS).mechanism,
        "RQM": lambda: (
            design.calibrate("rqm", epsilon=epsilon, levels=_RQM_BINS, loss="mae").mechanism
        ),
        "MVU": lambda: design.mvu(epsilon).mechanism,
        "optimal": lambda: design.optimal(epsilon, levels=4, prior=prior).mechanism,
    }


def _vector_errors(mechanism: Mechanism, vectors: FloatArray, seed: int) -> FloatArray:
    reports = mechanism.decode(mechanism.privatize(vectors, rng=seed))
    return np.sqrt(((reports - vectors) ** 2).sum(axis=1))


def _vectors(title: str, vectors: FloatArray, note: str, prior: object = None) -> Reproduction:
    rows: list[JsonObject] = []
    for epsilon in FIGURE4_EPSILONS:
        for name, build in _contenders(epsilon, prior).items():
            try:
                mechanism = build()
            except InfeasibleError as error:
                rows.append(_vector_row(epsilon, name, None, None, None, str(error)))
                continue
            errors = _vector_errors(mechanism, vectors, seed=4)
            rows.append(
                _vector_row(epsilon, name, mechanism, float(errors.mean()), float(errors.std()), "")
            )
    names = list(_contenders(1.0, prior))
    series = []
    for name in names:
        drawn = [row for row in rows if row["mechanism"] == name and row["error"] is not None]
        series.append(
            Series(
                panel="",
                name=name,
                x=tuple(row["epsilon"] for row in drawn),
                y=tuple(row["error"] for row in drawn),
                low=tuple(row["error"] - row["deviation"] for row in drawn),
                high=tuple(row["error"] + row["deviation"] for row in drawn),
            )
        )
    return Reproduction(
        title=title,
        note=note,
        rows=tuple(rows),
        series=tuple(series),
        x_label="epsilon per coordinate",
        y_label="mean Euclidean error",
    )


def _vector_row(
    epsilon: float,
    name: str,
    mechanism: Mechanism | None,
    error: float | None,
    deviation: float | None,
    note: str,
) -> JsonObject:
    return {
        "epsilon": epsilon,
        "mechanism": name,
        "error": error,
        "deviation": deviation,
        "standard_error": None if deviation is None else deviation / math.sqrt(DRAWS),
        "certified_epsilon": None if mechanism is None else mechanism.epsilon,
        "note": note,
    }


_SETUP = (
    f"{DRAWS} seeded random vectors, each coordinate reported independently with epsilon per coordinate. OPTM on the "
    "paper's bins +-3, +-0.5; RQM on its bins +-3, +-1 with q calibrated; MVU and the MSE-optimal table (for the "
    "distribution of one coordinate) with their own levels. The paper prints no numbers for this figure and no grid of "
    "epsilon: only the order can be compared. It has OPTM lowest; here OPTM is below RQM, as there, but MVU with an "
    "alphabet of its own at each epsilon is below OPTM, which minimises the MAE and keeps its bins at every epsilon."
)


def figure4a() -> Reproduction:
    """Figure 4a: 10 coordinates uniform in [-1, 1]."""
    vectors = np.random.default_rng(10).uniform(-1, 1, size=(DRAWS, 10))
    return _vectors(
        "OPTM, Figure 4a: Euclidean error, 10 coordinates uniform in [-1, 1]", vectors, _SETUP
    )


def figure4b() -> Reproduction:
    """Figure 4b: 100 coordinates, uniform in the unit L2 ball."""
    title = "OPTM, Figure 4b: Euclidean error, uniform in the unit ball of 100 dimensions"
    # A coordinate of a point in the ball is near 0: the optimum may know that distribution, which depends on no data.
    return _vectors(title, ball(DRAWS, 100, 11), _SETUP, prior=ball(1000, 100, 12)[:, 0])


def tradeoff(
    epsilons: Sequence[float] = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0), bits: Sequence[int] = (1, 2, 3)
) -> Reproduction:
    """MSE of the optimal table against epsilon for several bits, and the limit of any number of bits."""
    points = design.tradeoff(epsilons=epsilons, bits=bits)
    figure = report.tradeoff_figure(points)
    least = dict(zip(figure.curves[-1].x, figure.curves[-1].y, strict=True))
    absolute, relative = "mean squared error", "the same over the limit"
    series = [
        Series(panel=absolute, name=one.name, x=tuple(map(float, one.x)), y=one.y)
        for one in figure.curves
    ]
    return Reproduction(
        title="Optimal tables: MSE against epsilon, uniform inputs on [-1, 1]",
        note="optimal tables with searched levels; limit: certified lower bound for any number of bits. At small "
        "epsilon one bit is all that is needed: curves that lie on each other on the left are apart on the right.",
        rows=tuple(points),
        series=(
            *series,
            *(
                Series(
                    panel=relative,
                    name=one.name,
                    x=one.x,
                    y=tuple(y / least[x] for x, y in zip(one.x, one.y, strict=True)),
                )
                for one in series
            ),
        ),
        x_label=figure.x_label,
        y_label=("mean squared error", "mean squared error / limit"),
        log_y=True,
    )


MARKS = (5, 10, 25, 50, 100, 200, 400, 800, 1600)
DELTA = 1e-6


@dataclass(frozen=True, kw_only=True)
class TrainingFigure:
    """One of the two figures.

    Arguments:
        title: its title; load: its data.
        bins: OPTM's levels; clip: largest coordinate of a gradient; batch: expected records per batch.
        steps, step_size, runs: of our runs (two at least); the paper states none of them.
        comparison: what reproduces and what does not.
    """

    title: str
    load: Callable[[], datasets.Dataset]
    bins: tuple[float, ...]
    clip: float
    batch: int
    steps: int
    runs: int
    comparison: str
    step_size: float = 1.0

    @property
    def marks(self) -> list[int]:
        """Steps after which accuracy is measured."""
        return [mark for mark in MARKS if mark <= self.steps]

    def tables(self) -> dict[str, Mechanism | None]:
        """The four mechanisms of the figure and the optimal one, all at epsilon 1 per coordinate; None clips only."""
        return {
            "clipped only": None,
            "OPTM": design.optm(epsilon=1.0, lower=-1.0, upper=1.0, bins=list(self.bins)).mechanism,
            "RQM": families.rqm(lower=-1.0, upper=1.0, levels=4, extension=1.7, q=0.22),
            "MVU": design.mvu(epsilon=1.0, lower=-1.0, upper=1.0, levels=4).mechanism,
            "optimal": design.optimal(epsilon=1.0, lower=-1.0, upper=1.0, levels=4).mechanism,
        }

    def curve(
        self, data: datasets.Dataset, table: Mechanism | None, seed: int
    ) -> tuple[list[float], TrainingClaim | None]:
        """Training accuracy (%) at the marks of one run, and what the run cost."""
        methods = training.methods
        method = (
            methods.ClippedSGD(clip=self.clip)
            if table is None
            else methods.QuantizedSGD(table=table, clip=self.clip)
        )
        task = training.models.task("softmax", shape=data.train_x.shape[1:], classes=data.classes)
        settings = training.trainer.TrainingSettings(
            steps=self.steps,
            batch_size=self.batch,
            step_size=self.step_size,
            delta=DELTA,
            seed=seed,
        )
        trainer = training.trainer.Trainer(data=data, task=task, method=method, settings=settings)
        found: list[float] = []
        for step in range(1, self.steps + 1):
            trainer.step()
            if step in self.marks:
                found.append(100 * trainer.accuracy(data.train_x, data.train_y, trainer.weights()))
        # Every run of a method costs the same, so one claim is enough.
        return found, trainer.claim() if seed == 0 else None

    def row(
        self, data: datasets.Dataset, name: str, table: Mechanism | None, tick: Tick
    ) -> JsonObject:
        """Mean accuracies of one mechanism (and the largest standard error among them), its error, its cost."""
        curves: list[list[float]] = []
        claim = None
        for seed in range(self.runs):
            found, cost = self.curve(data, table, seed)
            curves.append(found)
            claim = cost or claim
            tick()
        return {
            "mechanism": name,
            **{
                f"step {mark}": float(value)
                for mark, value in zip(self.marks, np.mean(curves, axis=0), strict=True)
            },
            "largest standard error": float(
                np.max(np.std(curves, axis=0, ddof=1)) / np.sqrt(self.runs)
            ),
            "mse": None if table is None else table.mse(),
            "epsilon per coordinate": None if table is None else table.epsilon,
            "epsilon of the run": None if claim is None else claim.epsilon,
        }

    def reproduction(self, progress: Progress | None) -> Reproduction:
        """The figure, recomputed."""
        data, tables = self.load(), self.tables()
        tick = ticks(progress, self.runs * len(tables))
        rows = [self.row(data, name, table, tick) for name, table in tables.items()]
        return Reproduction(
            title=self.title,
            note=f"Training accuracy (%), mean of {self.runs} runs, seeds from 0. The paper prints curves only, and "
            f"neither step size ({self.step_size:g} here) nor length. Its epsilon of 1 is that of a single coordinate; "
            f"the last column is what a record's reports cost over the run, each report seen (delta = {DELTA:g}, "
            f"replacing one record). {self.comparison}",
            rows=tuple(rows),
            series=tuple(
                Series(
                    panel="",
                    name=row["mechanism"],
                    x=tuple(map(float, self.marks)),
                    y=tuple(row[f"step {mark}"] for mark in self.marks),
                )
                for row in rows
            ),
            x_label="steps",
            y_label="training accuracy (%)",
        )


def optm_figure4c(
    *, steps: int = 400, runs: int = 20, progress: Progress | None = None
) -> Reproduction:
    """Figure 4c of the OPTM paper: softmax regression on Diagnostic from quantized gradients (Table 8's settings)."""
    return TrainingFigure(
        title="OPTM, Figure 4c: training accuracy on Breast Cancer, batch 8, clip 0.1",
        load=datasets.breast_cancer,
        bins=(-2.2, -0.4, 0.4, 2.2),
        clip=0.1,
        batch=8,
        steps=steps,
        runs=runs,
        comparison="As in the paper RQM, whose error is largest, is behind in the first 50 steps. OPTM's lead over MVU "
        "does not show: these two and the optimal table stay within two standard errors of each other, and about two "
        "points below clipping alone.",
    ).reproduction(progress)


def optm_figure4d(
    *, steps: int = 400, runs: int = 12, progress: Progress | None = None
) -> Reproduction:
    """Figure 4d of the OPTM paper: softmax regression on MNIST from quantized gradients (Table 9's settings)."""
    title = "OPTM, Figure 4d: training accuracy on MNIST, batch 32, clip 0.01"
    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        note = f"Set {FOLDER_VARIABLE} to a folder with MNIST's four idx files."
        return Reproduction(title=title, note=note, rows=())
    return TrainingFigure(
        title=title,
        load=lambda: datasets.idx_folder(folder),
        bins=(-2.6, -0.4, 0.4, 2.6),
        clip=0.01,
        batch=32,
        steps=steps,
        runs=runs,
        comparison="As in the paper OPTM and MVU are level, and in the end all are within about a point of clipping "
        "alone. That RQM falls behind in the first steps does not show: the differences are smaller than their "
        "standard errors.",
    ).reproduction(progress)


REPRODUCTIONS: dict[str, Callable[[], Reproduction]] = {
    "optm-table1": table1,
    "optm-table2": table2,
    "optm-figure3": figure3,
    "optm-figure4a": figure4a,
    "optm-figure4b": figure4b,
    "optm-figure4c": optm_figure4c,
    "optm-figure4d": optm_figure4d,
    "tradeoff": tradeoff,
}
