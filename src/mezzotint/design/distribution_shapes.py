"""Tables for the entire shape of a distribution: how they are compared, and which is chosen."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from functools import partial

import numpy as np

from mezzotint.core.arguments import check_count, check_epsilon
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import FloatArray
from mezzotint.design.cdf import (
    MOST_CELLS,
    RARE,
    CellProblem,
    ColumnProgram,
    Sets,
    informative_table,
    stepped,
)
from mezzotint.families.response import square_wave


def interpolated(mechanism: Mechanism) -> Mechanism:
    """Makes a table for cells continuous: its rows move to the middles of the cells and are mixed
    in between.

    For columns whose distribution is spread inside the cells: reports then say something about
    where. Shares of the cells are no longer distinguished exactly (their intervals grow), and the
    mean is nearly unbiased.

    Arguments:
        mechanism: a stepped table, as `optimal` makes with loss="cdf": rows in equal pairs around
            each inner edge.

    Returns: a table on the middles of the cells, with the same epsilon.

    Raises:
        ParameterError: another table.

    Guarantees: the same rows, hence the same epsilon.

    Example:
        >>> cells = mz.families.square_wave(outputs=8, epsilon=1.0)
        >>> smooth = mz.design.interpolated(mz.design.optimal(1.0, loss="cdf", levels=8).mechanism)
        >>> smooth.epsilon <= 1.0
        True
    """
    knots = mechanism.knots
    weights = mechanism.weights
    is_stepped = knots.size % 2 == 0
    if is_stepped:
        first_knots, second_knots = knots[1:-1:2], knots[2::2]
        has_jumps = (first_knots == second_knots).all()
        first_rows, second_rows = weights[::2], weights[1::2]
        is_stepped = has_jumps and (first_rows == second_rows).all()
    if not is_stepped:
        remedy = 'has no constant rows between jumps; design it with loss="cdf"'
        raise ParameterError("mechanism", mechanism.name, remedy)
    centres = (knots[::2] + knots[1::2]) / 2
    return Mechanism(
        knots=np.concatenate([knots[:1], centres, knots[-1:]]),
        levels=mechanism.levels,
        weights=np.concatenate([weights[:1], weights[::2], weights[-1:]]),
        name=f"{mechanism.name}, interpolated",
    )


_FINE = 128
_ROUGHNESS = 100
"""Cells of the expected shapes, and how even these are: the total concentration of their Dirichlet
prior.
"""

_EVENER = 3
"""By how much evener shapes are expected where rows of cells are mixed afterwards, which blurs
narrow windows most.
"""


def shape_error(mechanism: Mechanism, *, reports: int = 50_000) -> float:
    """Expected error of the best linear estimate of the distribution function, as a share of the
    range.

    The mean absolute error over the inputs, about a Wasserstein-1 distance, where the shares of 128
    cells have a Dirichlet prior around even ones, of 100 observations. Unlike `loss` "cdf" it also
    compares tables that do
    not identify the cells exactly: what they leave open is weighted by the prior.

    Arguments:
        mechanism: any table of numbers.
        reports: how many reports the estimate uses, >= 1.

    Returns: the error, in [0, 1]; infinite where the table does not tell the cells apart.

    Example:
        >>> round(mz.design.shape_error(mz.design.for_shape(1.0, levels=16), reports=10_000), 4)
        0.0155
    """
    check_count("reports", reports)
    positions = (np.arange(_FINE) + 0.5) / _FINE
    width = mechanism.upper - mechanism.lower
    inputs = mechanism.lower + positions * width
    rows = mechanism.pmf(inputs)
    shares = np.full(_FINE, 1 / _FINE)
    share_covariance = np.diag(shares) - np.outer(shares, shares)
    prior_covariance = share_covariance / (_ROUGHNESS + 1)
    pmf = shares @ rows
    covariance = prior_covariance @ rows
    report_noise = np.diag(pmf) - np.outer(pmf, pmf)
    noise = report_noise / reports
    report_covariance = noise + rows.T @ covariance
    precision = np.linalg.pinv(report_covariance, rcond=1e-12, hermitian=True)
    posterior_covariance = prior_covariance - covariance @ precision @ covariance.T
    below = np.tri(_FINE)[:-1]
    variance = np.einsum("ij,jk,ik->i", below, posterior_covariance, below)
    # The mean absolute value of a Gaussian is sqrt(2 / pi) of its deviation.
    deviations = np.sqrt(np.maximum(0, variance))
    return float(deviations.mean() * math.sqrt(2 / math.pi))


def for_shape(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    levels: int = 32,
    reports: int = 50_000,
) -> Mechanism:
    """The best table for the entire shape of a distribution that this release knows, by
    `shape_error`.

    Arguments:
        epsilon: pure, of one report.
        lower, upper: range of the inputs, data units.
        levels: largest number of different reports, 3 to 1024.
        reports: roughly how many reports an estimate will use.

    Returns: the square wave; a table for cells made continuous (`interpolated`); or one of waves of
        several widths, made continuous: whichever is expected to err least. For shares between
            given edges a table with those cells is
        better: `optimal` with loss="cdf".

    Example:
        >>> mechanism = mz.design.for_shape(1.0, levels=16)
        >>> mechanism.epsilon <= 1.0
        True
    """
    epsilon = check_epsilon(epsilon)
    levels = check_count("levels", levels, least=3, most=1024)
    check_count("reports", reports)
    tables = [square_wave(outputs=levels, epsilon=epsilon, lower=lower, upper=upper)]
    designs: list[Callable[[], Mechanism]] = []
    kinds = (
        (_favouring, _FEWEST_TRIED, _MOST_TRIED, (levels * 11 // 16, levels)),
        (_waves, _FEWEST, MOST_CELLS, (levels // 4, levels // 2)),
    )
    for make, fewest, most, cell_counts in kinds:
        for cells in sorted({min(most, cell_count) for cell_count in cell_counts}):
            if cells >= fewest:
                edges = np.linspace(lower, upper, cells + 1)
                designs.append(partial(make, epsilon, edges, levels, reports))
    for design in designs:
        with contextlib.suppress(InfeasibleError):
            tables.append(interpolated(design()))
    return min(tables, key=lambda table: shape_error(table, reports=reports))


_FEWEST_TRIED = 2
_MOST_TRIED = 16
"""Cells of which every interval may be favoured; waves take over where reports allow more."""

_FEWEST = 8
"""Cells of waves."""

_PER_HALVING = 3
"""Widths tried between a width and its half."""


def _prior_information(
    shares: FloatArray,
    observations: int,
    reports: int,
) -> FloatArray:
    """(K, K) information per report about the shares of cells in a Dirichlet prior worth this many
    observations: the inverse of its covariance (diag(s) - s s^T) / (observations + 1), which
    vanishes on the shares themselves (docs/proofs/design.md, "A prior").
    """
    inverse_covariance = np.diag(1 / shares) - 1
    return (observations + 1) / reports * inverse_covariance


def _favouring(
    epsilon: float,
    edges: FloatArray,
    levels: int,
    reports: int,
) -> Mechanism:
    """A table whose reports favour intervals of cells, every one that is worth it."""
    cells = edges.size - 1
    shares = np.full(cells, 1 / cells)
    problem = CellProblem(
        shares=shares,
        edges=edges,
        epsilon=epsilon,
        levels=levels,
        known=_prior_information(shares, _EVENER * _ROUGHNESS, reports),
    )
    table, _ = informative_table(problem)
    return table


def _waves(
    epsilon: float,
    edges: FloatArray,
    levels: int,
    reports: int,
) -> Mechanism:
    """A table whose reports favour windows of few widths that slide over the cells: square waves of
    several widths.

    Under the prior of `shape_error` how often each window is used is a convex program
    (`ColumnProgram`, the prior being information that is known). The least used width is left out
    until few enough reports remain; InfeasibleError if one width makes too many already.
    """
    cells = edges.size - 1
    shares = np.full(cells, 1 / cells)
    information = _prior_information(shares, _ROUGHNESS, reports)
    steps = range(1, 4 * _PER_HALVING)
    shares_of_range = [2 ** (-step / _PER_HALVING) for step in steps]
    cell_counts = {max(2, round(cells * share)) for share in shares_of_range}
    widths = sorted(cell_counts)
    while widths:
        windows = [_windows(cells, width) for width in widths]
        sets = np.concatenate(windows)
        program = ColumnProgram(sets, shares, epsilon, information)
        frequency = program.solve().often * program.chances
        if (frequency > RARE).sum() <= levels:
            # What the rare reports leave missing costs a margin of epsilon.
            return stepped(
                partial(_wave_rows, sets, shares, information),
                shares,
                edges,
                epsilon,
                name=f"waves of {len(widths)} widths",
            )
        sizes = [len(window) for window in windows[:-1]]
        starts = np.cumsum([0, *sizes])
        frequency_by_width = np.add.reduceat(frequency, starts)
        widths.pop(int(np.argmin(frequency_by_width)))
    raise InfeasibleError(f"levels={levels}: too few for windows that slide over {cells} cells")


def _wave_rows(
    sets: Sets,
    shares: FloatArray,
    known: FloatArray,
    epsilon: float,
) -> FloatArray:
    return ColumnProgram(sets, shares, epsilon, known).rows(RARE)


def _windows(cells: int, width: int) -> Sets:
    """(cells + width - 1, cells) every position of a window, also those where it hangs over an
    end.
    """
    index = np.arange(cells)
    starts = np.arange(1 - width, cells)[:, None]
    return (index >= starts) & (index < starts + width)
