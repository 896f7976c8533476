"""What a distribution of inputs does to the codes, exactly; the distributions that fit reports best,
and decoders whose expected value dominates a function of the inputs, as cone programs of least cost.

Between two breakpoints the pmf of a table is linear in x (T1), so any mass inside such a cell acts
like masses on the cell's two ends. A distribution on finitely many nodes therefore reaches exactly
the code probabilities that all distributions on [lower, upper] reach (docs/proofs/estimation.md,
E3). Nothing here is a grid approximation.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import kl_div, xlogy

from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.intervals import Event, event_of_chances
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import FloatArray, IndexArray

FINE_CELLS = 128
"""Cells of equal width laid over [lower, upper], besides the knots and the edges requested."""


MAX_CODES = 64
"""More levels than this are merged into groups of neighbours first: fewer statistics, still a
likelihood.
"""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class SupportPoints:
    """Extreme points of what inputs can do.

    Arguments:
        breaks: (S+1,) cell borders, increasing; no knot lies inside a cell.
        x: (J,) positions, data units; a jump of the table occurs twice.
        first_cell, last_cell: (J,) the cells that each node is an end of.
        pmf: (J, c) probabilities of the codes (or groups of codes) from each node.
        counts: (c,) reports per code or group.
    """

    breaks: FloatArray
    x: FloatArray
    first_cell: IndexArray
    last_cell: IndexArray
    pmf: FloatArray
    counts: npt.NDArray[np.int64]

    @property
    def n(self) -> int:
        """Number of reports."""
        return int(self.counts.sum())

    def with_counts(self, counts: npt.NDArray[np.int64]) -> Self:
        """The same nodes for other reports."""
        return replace(self, counts=counts)

    def widest(self) -> float:
        """Width of the widest cell, data units."""
        return float(np.diff(self.breaks).max())

    def inside(self, low: float, high: float) -> tuple[FloatArray, FloatArray]:
        """(J,) weights that bound the mass of the cells between two breaks from below and from
        above.

        Mass on a node may stand for mass of any cell that the node ends: it counts below only where
        all of them lie between `low` and `high`, above where any does.
        """
        start, stop = np.searchsorted(self.breaks, [low, high])
        all_in = (self.first_cell >= start) & (self.last_cell < stop)
        any_in = (self.last_cell >= start) & (self.first_cell < stop)
        return all_in.astype(np.float64), any_in.astype(np.float64)

    def event_of_share(self, low: float, high: float) -> Event | None:
        """The codes whose chance alone decides the share between two edges, where the table jumps
        at both.

        Their chance is p from every input inside and q from every other one: Clopper and Pearson's
        interval is proved then, by either method. None where inputs on one side differ.
        """
        inner, outer = self.inside(low, high)
        is_inside = inner > 0
        if (inner != outer).any() or is_inside.all() or not is_inside.any():
            return None
        node_rows = self.pmf
        codes = node_rows[is_inside].mean(axis=0) > node_rows[~is_inside].mean(axis=0)
        chances = node_rows[:, codes].sum(axis=1)
        return event_of_chances(codes, chances[is_inside], chances[~is_inside])

    def mass_per_cell(self, masses: FloatArray) -> FloatArray:
        """(S,) the masses of the nodes, shared evenly by the cells they end."""
        cells = np.zeros(self.breaks.size - 1)
        np.add.at(cells, self.first_cell, masses / 2)
        np.add.at(cells, self.last_cell, masses / 2)
        return cells


def nodes_of(counts: CodeCounts, *, edges: FloatArray | None = None) -> SupportPoints:
    """The nodes for one set of reports.

    Arguments:
        edges: further breakpoints inside [lower, upper], data units.
    """
    mechanism = counts.mechanism
    grid = np.linspace(mechanism.lower, mechanism.upper, FINE_CELLS + 1)
    breaks = np.concatenate([grid, mechanism.knots])
    if edges is not None:
        breaks = np.append(breaks, edges)
    breaks = np.unique(breaks)
    breaks = breaks[(breaks >= mechanism.lower) & (breaks <= mechanism.upper)]
    left_ends = breaks[:-1]
    right_ends = breaks[1:]
    at_left, at_right = _ends(mechanism, left_ends, right_ends)
    cells = np.arange(left_ends.size)
    # Where the table is continuous the right end of a cell and the left end of the next are one
    # node.
    is_joined = np.append((at_right[:-1] == at_left[1:]).all(axis=1), False)
    is_first = np.insert(~is_joined[:-1], 0, True)
    positions = np.concatenate([left_ends[is_first], right_ends])
    first_cell = np.concatenate([cells[is_first], cells])
    last_cell = np.concatenate([cells[is_first], cells + is_joined])
    order = np.lexsort((first_cell + last_cell, positions))
    groups = _groups(counts)
    node_rows = np.concatenate([at_left[is_first], at_right])[order]
    return SupportPoints(
        breaks=breaks,
        x=positions[order],
        first_cell=first_cell[order],
        last_cell=last_cell[order],
        pmf=np.add.reduceat(node_rows, groups, axis=1),
        counts=np.add.reduceat(counts.counts, groups),
    )


def _ends(
    mechanism: Mechanism, left: FloatArray, right: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """pmf at the two ends of each cell, as limits from inside the cell: (S, m) each."""
    # Of the left ends, not of the middles: between neighbouring floats these may be the next knot.
    segment, _ = mechanism.locate(left)
    start = mechanism.knots[segment]
    stop = mechanism.knots[segment + 1]
    start_rows = mechanism.probabilities[segment]
    stop_rows = mechanism.probabilities[segment + 1]

    def at(positions: FloatArray) -> FloatArray:
        share = ((positions - start) / (stop - start))[:, None]
        return (1 - share) * start_rows + share * stop_rows

    return at(left), at(right)


def _groups(counts: CodeCounts) -> IndexArray:
    """First code of each group, chosen by the table alone: neighbours with about equal shares of
    the average row.
    """
    code_count = counts.mechanism.levels.size
    if code_count <= MAX_CODES:
        return np.arange(code_count)
    share = np.cumsum(counts.mechanism.probabilities.mean(axis=0))
    position = (share - share[0]) / (share[-1] - share[0]) * MAX_CODES
    index = np.minimum(position, MAX_CODES - 1).astype(np.intp)
    return np.flatnonzero(np.diff(index, prepend=-1))


# Likelihood ---------------------------------------------------------------------------------------


def deviance(nodes: SupportPoints, masses: FloatArray) -> float:
    """2 n KL(observed shares || shares under `masses`), inf where an observed code is
    impossible.
    """
    divergences = kl_div(nodes.counts / nodes.n, masses @ nodes.pmf)  # terms are >= 0 each
    return 2 * nodes.n * max(0.0, float(divergences.sum()))


EM_GAIN, EM_WINDOW = 1e-8, 50
"""Plain EM stops when that many steps raise the log-likelihood per report by less."""


def smooth_fit(nodes: SupportPoints, *, max_iterations: int = 50_000) -> FloatArray:
    """(..., J) masses: plain EM from the uniform density, until the log-likelihood per report gains
    next to nothing.

    Stopping early is what keeps the density smooth where reports say little; the tolerance is that
    of the comparison in docs/proofs/estimation.md (E4). It depends on the shares of the codes
    alone, and does not overfit them.
    """
    shares = np.atleast_2d(nodes.counts / nodes.counts.sum(axis=-1, keepdims=True))
    uniform = _uniform(nodes)
    masses = np.atleast_2d(uniform).copy()
    unfinished = np.arange(len(shares))
    before = _log_likelihood(nodes.pmf, shares, masses)
    for _ in range(0, max_iterations, EM_WINDOW):
        climbed = _em(
            nodes.pmf,
            shares[unfinished],
            masses[unfinished],
            steps=EM_WINDOW,
        )
        masses[unfinished] = climbed
        after = _log_likelihood(nodes.pmf, shares[unfinished], climbed)
        is_rising = after - before[unfinished] >= EM_GAIN
        before[unfinished] = after
        unfinished = unfinished[is_rising]
        if not unfinished.size:
            break
    return masses.reshape(uniform.shape)


def quick_fit(
    nodes: SupportPoints,
    *,
    steps: int,
    start: FloatArray | None = None,
) -> FloatArray:
    """(..., J) masses nearer the maximum likelihood, after `steps` steps of accelerated EM
    (SQUAREM).

    It starts from the uniform density, or other masses. The likelihood never decreases.

    Source: Dempster, Laird, Rubin 1977; Varadhan and Roland 2008 (SQUAREM).
    """
    shares = nodes.counts / np.maximum(1, nodes.counts.sum(axis=-1, keepdims=True))
    masses = _uniform(nodes) if start is None else start
    for _ in range(0, steps, SQUAREM_STEPS):
        masses = _squarem(nodes.pmf, shares, masses)
    return masses


def _uniform(nodes: SupportPoints) -> FloatArray:
    """(..., J) masses of the uniform density, on the nodes that can have given any of these
    reports.
    """
    width = np.diff(nodes.breaks)
    masses = (width[nodes.first_cell] + width[nodes.last_cell]) / 2
    masses = np.where(nodes.first_cell == nodes.last_cell, masses / 2, masses)
    seen = (nodes.counts > 0).astype(np.float64)
    possible = (seen @ (nodes.pmf > 0).T > 0) | ~seen.any(axis=-1, keepdims=True)
    masses = np.where(possible, masses, 0.0)
    return masses / masses.sum(axis=-1, keepdims=True)


# Steps of EM for any number of data sets at once: pmf (J, c), shares (..., c), masses (..., J).


def _em(
    pmf: FloatArray,
    shares: FloatArray,
    masses: FloatArray,
    *,
    steps: int = 1,
) -> FloatArray:
    """Masses after some steps of plain EM; a data set without reports keeps its own."""
    # Arrays are made once, not in every step: they are so small that making them costs more than
    # the arithmetic.
    masses = masses.copy()
    codes = pmf.T
    is_seen: Any = shares > 0
    is_filled: Any = shares.any(axis=-1, keepdims=True)
    if is_seen.all():
        is_seen = is_filled = True  # numpy is faster without a mask
    fitted = np.empty(shares.shape)
    ratio = np.zeros_like(shares)
    moved = np.empty(masses.shape)
    for _ in range(steps):
        np.matmul(masses, pmf, out=fitted)
        np.divide(shares, fitted, out=ratio, where=is_seen)
        np.matmul(ratio, codes, out=moved)
        np.multiply(masses, moved, out=moved)
        total = np.add.reduce(moved, axis=-1, keepdims=True)
        np.divide(moved, total, out=masses, where=is_filled)
    return masses


def _log_likelihood(pmf: FloatArray, shares: FloatArray, masses: FloatArray) -> FloatArray:
    return xlogy(shares, masses @ pmf).sum(axis=-1)


SQUAREM_STEPS = 3
"""Steps of EM in one accelerated step."""


def _squarem(pmf: FloatArray, shares: FloatArray, start: FloatArray) -> FloatArray:
    """Masses after one accelerated step, or after two plain ones where these are likelier."""
    once = _em(pmf, shares, start)
    twice = _em(pmf, shares, once)
    first = once - start
    second = twice - 2 * once + start
    speed = _norm(first)
    turn = _norm(second)
    length = -np.maximum(
        1.0,
        np.divide(speed, turn, out=np.ones_like(turn), where=turn > 0),
    )
    leaped = start - 2 * length * first + length**2 * second
    # A leap out of the simplex is pulled back to where it stays inside, keeping every mass
    # positive.
    leaped = np.maximum(leaped, twice * 1e-3)
    leaped = _em(pmf, shares, leaped / leaped.sum(axis=-1, keepdims=True))
    is_better = _log_likelihood(pmf, shares, leaped) >= _log_likelihood(pmf, shares, twice)
    return np.where(is_better[..., None], leaped, twice)


def _norm(moves: FloatArray) -> FloatArray:
    return np.sqrt(np.add.reduce(moves * moves, axis=-1, keepdims=True))


# Cone programs ------------------------------------------------------------------------------------

clarabel: Any = importlib.import_module("clarabel")  # a compiled module without type information


def cone_program(
    costs: FloatArray,
    rows: FloatArray,
    right: FloatArray,
    cones: list[object],
    **settings: float,
) -> FloatArray | None:
    """min costs z with right - rows z in the cones; None where the solver finds nothing.

    Arguments:
        settings: of the solver, beside its defaults.
    """
    options = clarabel.DefaultSettings()
    options.verbose = False
    options.max_threads = 1
    for option_name, setting in settings.items():
        setattr(options, option_name, setting)
    quadratic = sparse.csc_matrix((costs.size, costs.size))
    solver = clarabel.DefaultSolver(quadratic, costs, _by_columns(rows), right, cones, options)
    solution = np.array(solver.solve().x)
    if not np.isfinite(solution).all():
        return None
    return solution


def _by_columns(rows: FloatArray) -> sparse.csc_matrix:
    """The matrix by columns, as the solver wants it."""
    # made by hand in half of scipy's time
    columns = rows.T
    is_used = rows.T != 0
    starts = np.append(np.int32(0), np.cumsum(is_used.sum(axis=1), dtype=np.int32))
    indices = np.nonzero(is_used)[1].astype(np.int32)
    return sparse.csc_matrix((columns[is_used], indices, starts), shape=rows.shape)


# Decoders that dominate --------------------------------------------------------------------------


def greatest_expectation(pmf: FloatArray, values: FloatArray, shares: FloatArray) -> float:
    """Greatest E v over all distributions of inputs that give the codes exactly these shares."""
    decoder = dominating(pmf, values, shares, width=0.0)
    return min(float(values.max()), float(decoder @ shares))


def dominating(
    pmf: FloatArray,
    values: FloatArray,
    shares: FloatArray,
    *,
    width: float,
    basis: FloatArray | None = None,
) -> FloatArray:
    """The decoder a, pmf a >= values, of the least shares.a + width * (standard deviation of a
    under the shares).

    Arguments:
        pmf: (J, c) of the inputs that have these (J,) values.
        shares: (c,) >= 0, summing to 1.
        basis: `decoder_basis` of rows that those of the pmf are mixtures of; None for its own.

    Guarantees: pmf a >= values whatever the solver does: its answer is lifted until it holds, with
        a margin for rounding; where it has none the constant max(values) stands in. A failure costs
        width, never validity, and raises nothing.
    """
    top = float(values.max())
    scale = top - float(values.min())
    constant = np.full(shares.size, top)
    if scale == 0:
        return constant
    if width > 0 and basis is None:
        basis = decoder_basis(pmf, shares)
    is_used = pmf.any(axis=0)
    if basis is not None:
        basis = basis[is_used]
    solution = _solve(
        pmf[:, is_used],
        (values - top) / scale,
        shares[is_used],
        width,
        basis,
    )
    if solution is None:
        return constant
    decoder = constant.copy()
    decoder[is_used] += scale * solution
    shortfall = float((values - pmf @ decoder).max())
    decoder += max(0.0, shortfall) + 1e-12 * float(np.abs(decoder).max())
    if _cost(decoder, shares, width) > top:
        return constant
    return decoder


def decoder_basis(rows: FloatArray, shares: FloatArray) -> FloatArray:
    """(c, r) decoders whose combinations are all that their means tell apart, uncorrelated under
    the shares.

    The first is constant, of square 1, the others have mean 0 and variance 1 under the shares, and
    r <= c. No decoder with the same means from all (K, c) rows varies less, as the shares are a
    mixture of the rows.
    """
    root = np.sqrt(np.maximum(shares, 1e-24))
    return np.linalg.qr(np.vstack([root, rows / root]).T)[0] / root[:, None]


def _cost(decoder: FloatArray, shares: FloatArray, width: float) -> float:
    mean_report = float(shares @ decoder)
    return mean_report + width * math.sqrt(max(0.0, float(shares @ (decoder - mean_report) ** 2)))


def _solve(
    pmf: FloatArray,
    values: FloatArray,
    shares: FloatArray,
    width: float,
    basis: FloatArray | None,
) -> FloatArray | None:
    """(c,) the decoder of least cost as the solver finds it, by a linear or a second-order
    cone program; None where it fails.
    """
    cones = [clarabel.NonnegativeConeT(values.size)]
    if basis is None:
        return cone_program(shares, -pmf, -values, cones)
    # By its coordinates y in the basis, a decoder has mean +-y_0 and standard deviation |(y_1,
    # ...)|.
    dimension = basis.shape[1]
    constraints = np.zeros((values.size + dimension, dimension + 1))
    constraints[: values.size, :dimension] = -pmf @ basis
    constraints[values.size, dimension] = -1.0
    constraints[values.size + 1 :, 1:dimension] = -np.identity(dimension - 1)
    right = np.append(-values, np.zeros(dimension))
    cones.append(clarabel.SecondOrderConeT(dimension))
    solution = cone_program(np.append(shares @ basis, width), constraints, right, cones)
    if solution is None:
        return None
    return basis @ solution[:dimension]


FIT_TOLERANCE = 1e-12
POLISHING_STEPS = 300


def least_deviance(nodes: SupportPoints, *, start: FloatArray | None = None) -> FloatArray:
    """Node masses of maximum likelihood: those of a cone program, after some steps of EM.

    Arguments:
        start: masses that the result is at least as likely as; None for a few steps of EM.

    Edge cases: where the reports cannot tell two distributions apart, any of them.

    Source: the maximum of sum s_i log(p_i w / s_i) over masses w, with shares s of the codes, by
        exponential cones
    (Chandrasekaran and Shah 2017).
    """
    candidates = [quick_fit(nodes, steps=POLISHING_STEPS, start=start)]
    likeliest = _likeliest(nodes)
    if likeliest is not None:
        candidates.append(quick_fit(nodes, steps=POLISHING_STEPS, start=likeliest))
    return min(candidates, key=lambda masses: deviance(nodes, masses))


def _likeliest(nodes: SupportPoints) -> FloatArray | None:
    """(J,) masses of maximum likelihood as the solver finds them."""
    # Unknowns are the masses w, and t_i <= log((w pmf)_i / s_i) for the codes that were seen.
    is_seen = nodes.counts > 0
    shares = nodes.counts[is_seen] / nodes.n
    node_count = nodes.x.size
    codes = shares.size
    constraints = np.zeros((1 + node_count + 3 * codes, node_count + codes))
    constraints[0, :node_count] = 1.0
    constraints[1 : node_count + 1, :node_count] = -np.identity(node_count)
    exponential = constraints[node_count + 1 :].reshape(codes, 3, node_count + codes)
    exponential[:, 0, node_count:] = -np.identity(codes)
    exponential[:, 2, :node_count] = -(nodes.pmf[:, is_seen] / shares).T
    right = np.zeros(len(constraints))
    right[0] = 1.0
    right[node_count + 2 :: 3] = 1.0
    cones = [
        clarabel.ZeroConeT(1),
        clarabel.NonnegativeConeT(node_count),
    ]
    cones += [clarabel.ExponentialConeT() for _ in range(codes)]
    costs = np.append(np.zeros(node_count), -shares)
    tolerances = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), FIT_TOLERANCE)
    solution = cone_program(costs, constraints, right, cones, **tolerances)
    if solution is None:
        return None
    masses = np.maximum(solution[:node_count], 0.0)
    return masses / masses.sum()
