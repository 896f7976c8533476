"""Tables for the whole shape of a distribution: what they are compared by, and which is taken."""

from __future__ import annotations

import math
import time
from functools import partial

import numpy as np

from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import FloatArray, Mechanism
from mezzotint.design.distribution import MOST_CELLS, RARE, ColumnProgram, Sets, design_cells, stepped
from mezzotint.design.problem import make_problem
from mezzotint.families.response import square_wave


def interpolated(mechanism: Mechanism) -> Mechanism:
    """A table for cells made continuous: its rows stand at the middles of the cells, and are mixed in between.

    For columns whose distribution is spread inside the cells: reports then say something about where. Shares of the
    cells are no longer told apart exactly (their intervals grow), and the mean is nearly unbiased.

    Arguments:
        mechanism: a stepped table, as `optimal` makes with loss="cdf": rows in equal pairs around each inner edge.

    Raises:
        ParameterError: another table.

    Guarantees: the same rows, hence the same epsilon.
    """
    knots, weights = mechanism.knots, mechanism.weights
    stepped = knots.size % 2 == 0 and (knots[1:-1:2] == knots[2::2]).all() and (weights[::2] == weights[1::2]).all()
    if not stepped:
        remedy = 'has no constant rows between jumps; design it with loss="cdf"'
        raise ParameterError("mechanism", mechanism.name, remedy)
    return Mechanism(
        knots=np.concatenate([knots[:1], (knots[::2] + knots[1::2]) / 2, knots[-1:]]),
        levels=mechanism.levels,
        weights=np.concatenate([weights[:1], weights[::2], weights[-1:]]),
        name=f"{mechanism.name}, interpolated",
    )


_FINE = 128
_ROUGHNESS = 100
"""Cells of the shapes that are expected, and how even they are: Dirichlet, of so many observations in all."""


def shape_error(mechanism: Mechanism, *, reports: int = 50_000) -> float:
    """Expected error of the best linear estimate of the distribution function, as a share of the range.

    The mean absolute error over the inputs, about a Wasserstein-1 distance, where the shares of 128 cells have a
    Dirichlet prior around even ones, of 100 observations. Unlike `loss` "cdf" it compares tables that tell no cells
    apart exactly: what they leave open counts with what the prior says about it.

    Arguments:
        mechanism: any table of numbers.
        reports: how many are estimated from, >= 1.
    """
    inputs = mechanism.lower + (np.arange(_FINE) + 0.5) / _FINE * (mechanism.upper - mechanism.lower)
    rows, shares = mechanism.pmf(inputs), np.full(_FINE, 1 / _FINE)
    prior = (np.diag(shares) - np.outer(shares, shares)) / (_ROUGHNESS + 1)
    pmf, seen = shares @ rows, prior @ rows
    noise = (np.diag(pmf) - np.outer(pmf, pmf)) / reports
    left = prior - seen @ np.linalg.pinv(noise + rows.T @ seen, rcond=1e-12, hermitian=True) @ seen.T
    below = np.tri(_FINE)[:-1]
    variance = np.einsum("ij,jk,ik->i", below, left, below)
    return float(np.sqrt(np.maximum(0, variance)).mean() * math.sqrt(2 / math.pi))


def for_shape(
    epsilon: float = 1.0, *, lower: float = -1.0, upper: float = 1.0, levels: int = 32, reports: int = 50_000
) -> Mechanism:
    """The table for the whole shape of a distribution, of those that this release knows, by `shape_error`.

    Arguments:
        epsilon: pure, of one report.
        lower, upper: range of the inputs, data units.
        levels: most different reports, 3 to 1024.
        reports: about as many as will be estimated from.

    Returns: the square wave; a table for cells made continuous (`interpolated`); or one of waves of several widths,
        made continuous: whichever is expected to err least. For shares between given edges a table with those cells is
        better: `optimal` with loss="cdf".
    """
    if isinstance(levels, bool) or not 3 <= levels <= 1024:
        raise ParameterError("levels", levels, "need 3 to 1024 different reports")
    found = [square_wave(outputs=levels, epsilon=epsilon, lower=lower, upper=upper)]
    problem = make_problem(epsilon=epsilon, loss="cdf", lower=lower, upper=upper)

    def favouring(cells: int) -> Mechanism:
        return design_cells(problem, levels, cells + 1, started=time.perf_counter()).mechanism

    designs = [
        partial(favouring, cells)
        for cells in sorted({min(_MOST_TRIED, levels * part // 16) for part in (11, 16)} - {0, 1})
    ]
    designs += [
        partial(_waves, cells, epsilon, np.linspace(lower, upper, cells + 1), levels, reports)
        for cells in {min(MOST_CELLS, levels // 4), min(MOST_CELLS, levels // 2)}
        if cells >= _FEWEST
    ]
    for design in designs:
        try:
            found.append(interpolated(design()))
        except InfeasibleError:
            continue
    return min(found, key=lambda table: shape_error(table, reports=reports))


_MOST_TRIED = 16
"""Cells of which every interval may be favoured; waves take over where reports allow more."""
_FEWEST = 8
"""Cells of waves."""
_PER_HALVING = 3
"""Widths tried between a width and its half."""


def _waves(cells: int, epsilon: float, edges: FloatArray, levels: int, reports: int) -> Mechanism:
    """A table whose reports favour windows of few widths that slide over the cells: square waves of several widths.

    Under the prior of `shape_error` how often each window is used is a convex program (`ColumnProgram`, the prior being
    information that is known). The least used width is left out until few enough reports remain.

    Raises:
        InfeasibleError: one width makes too many reports already.
    """
    shares = np.full(cells, 1 / cells)
    known = (_ROUGHNESS + 1) / reports * (np.diag(1 / shares) - 1)
    widths = sorted({max(2, round(cells * 2 ** (-i / _PER_HALVING))) for i in range(1, 4 * _PER_HALVING)})
    while widths:
        windows = [_windows(cells, width) for width in widths]
        program = ColumnProgram(np.concatenate(windows), shares, epsilon, known)
        use = program.solve().often * program.chances
        if (use > RARE).sum() <= levels:
            rows_at = partial(_rows, program.sets, shares, known)
            return stepped(rows_at, shares, edges, epsilon, name=f"waves of {len(widths)} widths")
        ends = np.cumsum([len(part) for part in windows])
        widths.pop(int(np.argmin(np.add.reduceat(use, np.concatenate([[0], ends[:-1]])))))
    raise InfeasibleError(f"levels={levels}: too few for windows that slide over {cells} cells")


def _rows(sets: Sets, shares: FloatArray, known: FloatArray, epsilon: float) -> FloatArray:
    """The best rows without the rare reports; what those leave missing costs a margin of epsilon."""
    program = ColumnProgram(sets, shares, epsilon, known)
    often = program.solve().often
    rows = (program.columns * often[:, None])[often * program.chances > RARE].T
    return rows / rows.sum(axis=1, keepdims=True)


def _windows(cells: int, width: int) -> Sets:
    """(cells + width - 1, cells) every place of a window, also those where it hangs over an end."""
    starts = np.arange(1 - width, cells)[:, None]
    return (np.arange(cells) >= starts) & (np.arange(cells) < starts + width)
