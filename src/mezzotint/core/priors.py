"""Distributions of the inputs: a prior gives the moments of the clipped input on pieces of [lower,
upper].

A law gives integrals up to many inputs at once, in centred units, on [-1, 1]: cells of constant
density, point masses at the ends, or spread.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, cast, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_choice
from mezzotint.core.errors import ParameterError, as_reals, refuse_nan
from mezzotint.core.types import FloatArray, IndexArray

ORDERS = 4
"""Moments of order 0..3 suffice: a table is linear in x and a squared error quadratic (T6)."""


class Prior(ABC):
    """A distribution of the clipped input on [lower, upper]."""

    @abstractmethod
    def moments(self, edges: FloatArray) -> FloatArray:
        """(len(edges)-1, 4): integrals of (x - edges[i])**k over [edges[i], edges[i+1]), the last
        piece closed.

        Arguments:
            edges: strictly increasing, from lower to upper.
        """


def _powers(y: FloatArray) -> FloatArray:
    orders = np.arange(ORDERS, dtype=np.float64)
    return y[..., None] ** orders


@final
@dataclass(frozen=True, kw_only=True)
class UniformPrior(Prior):
    """Uniform on [lower, upper]."""

    def moments(self, edges: FloatArray) -> FloatArray:
        width = np.diff(edges)[:, None]
        orders = np.arange(1, ORDERS + 1)
        range_width = edges[-1] - edges[0]
        return width**orders / orders / range_width


class _Blocks(NamedTuple):
    """Points and masses in rows of `_BLOCK`, the last filled up with no mass; each row's moments
    from its first.
    """

    points: FloatArray
    masses: FloatArray
    moments: FloatArray


def _piece(edges: FloatArray, x: FloatArray) -> IndexArray:
    """The piece between two edges in which each input lies."""
    index = np.searchsorted(edges, x, side="right") - 1
    return np.clip(index, 0, edges.size - 2)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class SamplePrior(Prior):
    """Point masses, already clipped. `points` sorted, `masses` sum to 1; both (n,)."""

    points: FloatArray
    masses: FloatArray

    def moments(self, edges: FloatArray) -> FloatArray:
        blocks = self._blocks
        first_piece = _piece(edges, blocks.points[:, 0])
        last_piece = _piece(edges, blocks.points[:, -1])
        is_whole = first_piece == last_piece
        piece_moments = np.zeros((edges.size - 1, ORDERS))
        # All terms are at least 0 where the origin lies to the left: nothing cancels.
        whole_pieces = first_piece[is_whole]
        gaps = blocks.points[is_whole, 0] - edges[whole_pieces]
        whole_moments = _shifted(blocks.moments[is_whole], gaps)
        _add(piece_moments, whole_pieces, whole_moments)
        cut_points = blocks.points[~is_whole].ravel()
        cut_masses = blocks.masses[~is_whole].reshape(-1, 1)
        pieces = _piece(edges, cut_points)
        distances = cut_points - edges[pieces]
        _add(piece_moments, pieces, _powers(distances) * cut_masses)
        return piece_moments

    @cached_property
    def _blocks(self) -> _Blocks:
        padding = (0, -self.points.size % _BLOCK)
        padded_points = np.pad(self.points, padding, mode="edge")
        padded_masses = np.pad(self.masses, padding)
        points = padded_points.reshape(-1, _BLOCK)
        masses = padded_masses.reshape(-1, _BLOCK)
        distances = points - points[:, :1]
        moments = np.einsum("bpo,bp->bo", _powers(distances), masses)
        return _Blocks(points, masses, moments)


_BLOCK = 256
"""Points whose moments are added up once: a piece takes them whole, unless an edge runs through
them.
"""


def _shifted(moments: FloatArray, gap: FloatArray) -> FloatArray:
    """(n, ORDERS) moments from origins that lie (n,) gaps further left."""
    powers = _powers(gap)
    shifted = np.zeros_like(powers)
    for moment_order in range(ORDERS):
        for lower_order in range(moment_order + 1):
            binomial = math.comb(moment_order, lower_order)
            power = powers[:, moment_order - lower_order]
            shifted[:, moment_order] += binomial * power * moments[:, lower_order]
    return shifted


def _add(
    result: FloatArray,
    rows: IndexArray,
    terms: FloatArray,
) -> None:
    """result[rows] += terms, rows repeated."""
    for order in range(ORDERS):
        order_terms = terms[:, order]
        sums = np.bincount(rows, order_terms, minlength=len(result))
        result[:, order] += sums


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class DistributionPrior(Prior):
    """A continuous distribution given by its cdf; what lies outside the range sits on the two
    ends.
    """

    cdf: Callable[[FloatArray], FloatArray]

    def moments(self, edges: FloatArray) -> FloatArray:
        cdf_at_edges = np.asarray(self.cdf(edges), dtype=np.float64)
        moments = np.empty((edges.size - 1, ORDERS))
        moments[:, 0] = np.diff(cdf_at_edges)
        # By parts: int (x-a)^k dF = int k (x-a)^(k-1) (F(b) - F(x)) dx. Needs no density, nothing
        # cancels, and a spike in the density is only a step in the integrand.
        integral = _TailIntegral(
            cdf=self.cdf,
            edges=edges,
            cdf_at_edges=cdf_at_edges,
        )
        moments[:, 1:] = integral.adaptive()
        moments[0, 0] += cdf_at_edges[0]
        last_width = np.asarray(edges[-1] - edges[-2])
        mass_above = 1 - cdf_at_edges[-1]
        moments[-1] += mass_above * _powers(last_width)
        return moments


_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)
_GAP = (1 - _NODES[-1]) / 2
"""Share of a piece between an end and the first node."""


def _lagrange_weights(x: float) -> list[float]:
    """What each node's value counts in the value at x of the polynomial through the nodes."""
    weights: list[float] = []
    for node in _NODES:
        others = _NODES[node != _NODES]
        factors = (x - others) / (node - others)
        weights.append(float(np.prod(factors)))
    return weights


_TO_ENDS = np.array([_lagrange_weights(-1.0), _lagrange_weights(1.0)])
"""(2, 16): values at both ends of the polynomial through the nodes."""
_DEEPEST = 60
"""Halvings: a piece is then shorter than the spacing of floats."""

_TAIL_ORDERS = np.arange(1, ORDERS)
_TAIL_ACCURACY = 1e-14
"""Of an integral over a piece, relative to the power of the range."""


class _Quadrature(NamedTuple):
    """(pieces, 3) integrals, and what each may miss beyond its outer nodes."""

    integrals: FloatArray
    missed: FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class _TailIntegral:
    """(pieces, 3): int k (x-a)^(k-1) (F(b)-F(x)) dx by Gauss-Legendre, halved until halving changes
    nothing.

    Nor may the integrand's polynomial miss the ends of a piece: F grows, so mass between two nodes
    is seen at the next one, but mass between the last node and the end of a piece only at that end.
    """

    cdf: Callable[[FloatArray], FloatArray]
    edges: FloatArray
    cdf_at_edges: FloatArray

    def _integrand(self, pieces: IndexArray, x: FloatArray) -> FloatArray:
        flat_cdf = np.asarray(self.cdf(x.ravel()))
        cdf = flat_cdf.reshape(x.shape)
        cdf_at_stops = self.cdf_at_edges[pieces + 1]
        tails = cdf_at_stops[:, None] - cdf
        starts = self.edges[pieces]
        distances = x - starts[:, None]
        powers = distances[..., None] ** (_TAIL_ORDERS - 1)
        return _TAIL_ORDERS * powers * tails[..., None]

    def _quadrature(
        self,
        pieces: IndexArray,
        start: FloatArray,
        stop: FloatArray,
    ) -> _Quadrature:
        piece_width = (stop - start)[:, None]
        node_distances = piece_width * (_NODES + 1) / 2
        nodes = start[:, None] + node_distances
        integrand_values = self._integrand(pieces, nodes)
        ends = np.stack([start, stop], axis=1)
        end_values = self._integrand(pieces, ends)
        extrapolated = np.einsum("pnk,en->pek", integrand_values, _TO_ENDS)
        end_misses = np.abs(extrapolated - end_values)
        missed = end_misses.sum(axis=1) * _GAP * piece_width
        weighted = np.einsum("pnk,n->pk", integrand_values, _NODE_WEIGHTS)
        integrals = weighted * piece_width / 2
        return _Quadrature(integrals, missed)

    def adaptive(self) -> FloatArray:
        """The integrals, to `_TAIL_ACCURACY` of the powers of the range."""
        pieces = np.arange(self.edges.size - 1)
        piece_starts = self.edges[:-1]
        piece_stops = self.edges[1:]
        integrals = np.zeros((pieces.size, ORDERS - 1))
        coarse_integrals = self._quadrature(pieces, piece_starts, piece_stops).integrals
        range_width = self.edges[-1] - self.edges[0]
        tolerance = range_width**_TAIL_ORDERS * _TAIL_ACCURACY
        for _halving in range(_DEEPEST):
            middle = (piece_starts + piece_stops) / 2
            left_half = self._quadrature(pieces, piece_starts, middle)
            right_half = self._quadrature(pieces, middle, piece_stops)
            fine_integrals = left_half.integrals + right_half.integrals
            changes = np.abs(fine_integrals - coarse_integrals)
            error = np.maximum(changes, left_half.missed + right_half.missed)
            is_rough = (error > tolerance).any(axis=1)
            is_fine = ~is_rough
            np.add.at(integrals, pieces[is_fine], fine_integrals[is_fine])
            if not is_rough.any():
                return integrals
            pieces = np.tile(pieces[is_rough], 2)
            rough_middle = middle[is_rough]
            piece_starts = np.concatenate([piece_starts[is_rough], rough_middle])
            piece_stops = np.concatenate([rough_middle, piece_stops[is_rough]])
            left_integrals = left_half.integrals[is_rough]
            right_integrals = right_half.integrals[is_rough]
            coarse_integrals = np.concatenate([left_integrals, right_integrals])
        np.add.at(integrals, pieces, coarse_integrals)
        return integrals


NARROWEST_RANGE = 1e-70
WIDEST_RANGE = 1e70
"""Widths of the range whose fourth powers are floats."""


def as_prior(
    prior: object,
    *,
    lower: float,
    upper: float,
) -> Prior:
    """Reads a user's prior: None (uniform), a frozen scipy.stats distribution, a 1-D sample, or a
    Prior.

    Raises:
        ParameterError: an empty sample, NaN in it, a wrong shape, invalid parameters of a
            distribution, or something else altogether; a range whose fourth power is not a float.
    """
    if not NARROWEST_RANGE <= upper - lower <= WIDEST_RANGE:
        remedy = "fourth powers of the range exceed float64: rescale the data"
        raise ParameterError("upper", upper, remedy)
    if prior is None:
        return UniformPrior()
    if isinstance(prior, Prior):
        return prior
    # A histogram needs no parameters to be frozen.
    type_name = type(prior).__name__
    if _has_method(prior, "freeze") and type_name != "rv_histogram":
        remedy = "give a frozen distribution: with its parameters, as in norm(0, 1)"
        raise ParameterError("prior", type_name, remedy)
    if not _has_method(prior, "cdf"):
        return _sample(prior, lower, upper)
    cdf = cast(Any, prior).cdf
    try:
        cdf_at_lower = float(cdf(lower))
        cdf_at_upper = float(cdf(upper))
    except (TypeError, ValueError, IndexError):
        remedy = "give a distribution of one number: its cdf at lower is not a number"
        raise ParameterError("prior", type_name, remedy) from None
    if not 0 <= cdf_at_lower <= cdf_at_upper <= 1:
        remedy = "its cdf at lower and upper: check its parameters"
        raise ParameterError("prior", (cdf_at_lower, cdf_at_upper), remedy)
    if _has_method(prior, "pmf") and not _has_method(prior, "pdf"):
        return _discrete(prior, lower, upper)
    return DistributionPrior(cdf=cdf)


def _has_method(candidate: object, name: str) -> bool:
    return callable(getattr(candidate, name, None))


MOST_INTEGERS = 2**22
"""Of a discrete prior: the masses of all of them are read."""

LARGEST_INTEGER = 2**53
"""Up to it all integers are floats."""


def _discrete(
    distribution: Any,
    lower: float,
    upper: float,
) -> Prior:
    # scipy's discrete distributions live on loc + integers.
    shift = float(distribution.ppf(0.5)) % 1.0
    smallest, largest = distribution.support()
    first_integer = math.ceil(max(lower, smallest) - shift)
    last_integer = math.floor(min(upper, largest) - shift)
    integer_count = last_integer - first_integer + 1
    farthest = max(abs(first_integer), abs(last_integer))
    if integer_count > MOST_INTEGERS or farthest > LARGEST_INTEGER:
        remedy = (
            f"{integer_count:.3g} integers, up to {farthest:.3g}: at most {MOST_INTEGERS:,} up to "
            f"{LARGEST_INTEGER:.3g}"
        )
        raise ParameterError("prior", type(distribution).__name__, remedy)
    integers = np.arange(first_integer, last_integer + 1, dtype=np.float64)
    inner_points = integers + shift
    inner_masses = np.asarray(distribution.pmf(inner_points), dtype=np.float64)
    mass_up_to_lower = inner_masses[inner_points <= lower].sum()
    mass_below = float(distribution.cdf(lower)) - mass_up_to_lower
    mass_above = 1.0 - mass_below - inner_masses.sum()
    mass_at_lower = max(0.0, mass_below)
    mass_at_upper = max(0.0, mass_above)
    return SamplePrior(
        points=np.concatenate([[lower], inner_points, [upper]]),
        masses=np.concatenate([[mass_at_lower], inner_masses, [mass_at_upper]]),
    )


def _sample(
    values: object,
    lower: float,
    upper: float,
) -> Prior:
    """The prior of (n,) values, data units, each of mass 1 / n; clipped, equal ones are one point."""
    remedy = "give None (uniform), a frozen scipy.stats distribution or a 1-D sample"
    sample = as_reals("prior", cast(npt.ArrayLike, values), remedy)
    if sample.ndim != 1 or sample.size == 0:
        raise ParameterError("prior", sample.shape, "a sample prior is a non-empty 1-D array")
    refuse_nan("prior", sample, "value")
    clipped = np.clip(sample, lower, upper)
    points, counts = np.unique(clipped, return_counts=True)
    return SamplePrior(points=points, masses=counts / sample.size)


SEARCH_CELLS = 2048


def cell_means(
    prior: Prior,
    lower: float,
    upper: float,
) -> SamplePrior:
    """Point masses at the means of 2048 cells: where a search reads a prior again and again."""
    edges = np.linspace(lower, upper, SEARCH_CELLS + 1)
    means, _mean_square = _means(prior, edges)
    return means


def _means(prior: Prior, edges: FloatArray) -> tuple[SamplePrior, float]:
    """Point masses at the means of cells, and the mean square distance of an input from its own."""
    moments = prior.moments(edges)
    has_mass = moments[:, 0] > 0
    cell_masses, first_moments, second_moments, _third_moments = moments[has_mass].T
    cell_spreads = second_moments - first_moments**2 / cell_masses
    total_spread = float(cell_spreads.sum())
    cell_starts = edges[:-1][has_mass]
    point_masses = SamplePrior(
        points=cell_starts + first_moments / cell_masses,
        masses=cell_masses,
    )
    return point_masses, max(0.0, total_spread)


def cost_matrix(
    *,
    knots: FloatArray,
    levels: FloatArray,
    prior: Prior,
    loss: Literal["mse", "mae"],
) -> FloatArray:
    """(K+1, m) matrix C with expected loss = sum(C * P) for every table P of row probabilities on
    these knots.

    Arguments:
        knots: (K+1,) sorted, repeated at jumps.
        levels: (m,) increasing.
        prior: distribution of the clipped input.
        loss: "mse" (squared data units) or "mae" (data units).

    Guarantees: exact up to the prior's moments (closed form for uniform and sample priors).
    """
    check_choice("loss", loss, ("mse", "mae"))
    inner_levels = levels[:0]
    if loss == "mae":
        is_inner = (levels > knots[0]) & (levels < knots[-1])
        inner_levels = levels[is_inner]
    all_edges = np.concatenate([knots, inner_levels])
    edges = np.unique(all_edges)
    moments = prior.moments(edges)
    piece_starts = edges[:-1]
    segment = np.searchsorted(knots, piece_starts, side="right") - 1
    segment_width = knots[segment + 1] - knots[segment]
    position = (piece_starts - knots[segment]) / segment_width

    loss_terms = _loss_terms(edges, levels, loss)
    next_moments = moments[:, 1:]  # of y times the input's powers
    loss_integral = np.einsum("opi,po->pi", loss_terms, moments[:, :3])
    tilted_integral = np.einsum("opi,po->pi", loss_terms, next_moments)

    # Row k+1 is drawn with probability t(y) = position + y / width, row k otherwise.
    tilted_share = tilted_integral / segment_width[:, None]
    to_right = position[:, None] * loss_integral + tilted_share
    costs = np.zeros((knots.size, levels.size))
    np.add.at(costs, segment + 1, to_right)
    np.add.at(costs, segment, loss_integral - to_right)
    return costs


def _loss_terms(
    edges: FloatArray,
    levels: FloatArray,
    loss: Literal["mse", "mae"],
) -> FloatArray:
    """(3, pieces, m) coefficients of 1, y, y**2 of the loss, y the distance from a piece's start.

    On each piece the loss is (d - y)**2, or +-(d - y) as no level is inside.
    """
    distance = levels - edges[:-1, None]
    if loss == "mse":
        ones = np.ones(distance.shape)
        return np.array([distance**2, -2 * distance, ones])
    sign = np.where(levels >= edges[1:, None], 1.0, -1.0)
    zeros = np.zeros(distance.shape)
    return np.array([sign * distance, -sign, zeros])


_GRID = 4096
"""Cells at least in which a continuous prior is taken as uniform, and so is a sample of more than
`_FEW` points.
"""

_FEW = 2 * _GRID

_HEAVY = 1 / 256
_HALVINGS = 10
"""Cells of more mass than this are halved, so often at most."""

_MIRROR_DIGITS = 10
_SKEWED = 1e-9
"""A law is told from its mirror image by moments that differ by more, in numbers of so many
decimals.
"""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Law:
    """Inputs on [-1, 1]: uniform in each of several cells, atoms at the two ends only.

    Arguments:
        edges: (n+1,) increasing, from -1 to 1.
        below: (n+1, 3) integrals of 1, x, x**2 over [-1, edge), counting an atom at -1 but at the
            first edge.
        density: (n,) of each cell.
        totals: (3,) the same integrals over [-1, 1], with both atoms.
    """

    edges: FloatArray
    below: FloatArray
    density: FloatArray
    totals: FloatArray

    @staticmethod
    def of(
        edges: FloatArray,
        masses: FloatArray,
        *,
        low: float = 0.0,
        high: float = 0.0,
    ) -> Law:
        """The law with these masses in the cells and atoms `low`, `high` at -1 and 1."""
        density = masses / np.diff(edges)
        cell_integrals: list[FloatArray] = []
        for power in (1, 2, 3):
            growth = np.diff(edges**power)
            cell_integrals.append(growth * density / power)
        powers_at_start = np.array([1.0, -1.0, 1.0])
        first_atom = low * powers_at_start
        all_integrals = np.stack(cell_integrals, axis=1)
        cumulated = np.cumsum(all_integrals, axis=0)
        below = np.concatenate([first_atom[None], first_atom + cumulated])
        return Law(
            edges=edges,
            below=below,
            density=density,
            totals=below[-1] + high,
        )

    def leaning_left(self) -> tuple[Law, int]:
        """This law (and 1) or that of -x (and -1), so rounded that a law and its mirror image give
        the same.
        """
        sign = self._lean()
        mass_low = float(self.below[0, 0])
        mass_high = float(self.totals[0] - self.below[-1, 0])
        if sign < 0:
            mass_low, mass_high = mass_high, mass_low
        atom_low = round(mass_low, _MIRROR_DIGITS)
        atom_high = round(mass_high, _MIRROR_DIGITS)
        signed_edges = sign * self.edges[::sign]
        mirrored_edges = np.round(signed_edges, _MIRROR_DIGITS)
        cell_masses = self.density * np.diff(self.edges)
        masses_below = np.cumsum(cell_masses[::sign])
        below = np.concatenate([[0.0], masses_below])
        is_apart = np.diff(mirrored_edges) > 0
        is_wide = np.append(is_apart, True)
        rounded_masses = np.diff(below[is_wide]).round(_MIRROR_DIGITS)
        mirrored_law = Law.of(
            mirrored_edges[is_wide],
            rounded_masses,
            low=atom_low,
            high=atom_high,
        )
        return mirrored_law, sign

    def _lean(self) -> int:
        """1 where the first of these that is not 0 is negative, else -1; 1 where all are 0: the
        mean, and how much of the mass and of the second moment lies right of 0 more than left.
        """
        (left_of_zero,) = self.integrals(np.zeros(1))
        excess = self.totals - 2 * left_of_zero
        for moment in (self.totals[1], excess[0], excess[2]):
            if abs(moment) > _SKEWED:
                return int(np.sign(-moment))
        return 1

    def cell(self, x: FloatArray) -> IndexArray:
        index = np.searchsorted(self.edges, x, side="right") - 1
        return np.clip(index, 0, self.density.size - 1)

    def integrals(self, x: FloatArray) -> FloatArray:
        """(..., 3) integrals of 1, x, x**2 over inputs below `x`; over all of them from 1 on."""
        cell = self.cell(x)
        cell_start = self.edges[cell]
        density = self.density[cell]
        growths: list[FloatArray] = []
        for power in (1, 2, 3):
            growth = x**power - cell_start**power
            growths.append(density * growth / power)
        inside = self.below[cell] + np.stack(growths, axis=-1)
        is_above = (x >= 1)[..., None]
        is_below = (x <= -1)[..., None]
        up_to_end = np.where(is_above, self.totals, inside)
        return np.where(is_below, 0.0, up_to_end)

    def density_at(self, x: FloatArray) -> FloatArray:
        return self.density[self.cell(x)]


def _atoms(
    points: FloatArray,
    masses: FloatArray,
    spread: float,
) -> Law:
    """Point masses (centred units), uniform over `spread` on both sides where inside the range."""
    mass_low = float(masses[points <= -1].sum())
    mass_high = float(masses[points >= 1].sum())
    is_inside = (points > -1) & (points < 1)
    inner_masses = masses[is_inside]
    spread_start, spread_stop = _spread_interval(points[is_inside], spread)
    all_edges = np.concatenate([[-1.0, 1.0], spread_start, spread_stop])
    edges = np.unique(all_edges)
    density = inner_masses / (spread_stop - spread_start)
    density_change = np.zeros(edges.size)
    start_index = np.searchsorted(edges, spread_start)
    stop_index = np.searchsorted(edges, spread_stop)
    np.add.at(density_change, start_index, density)
    np.add.at(density_change, stop_index, -density)
    cumulated = np.cumsum(density_change)
    densities = np.maximum(cumulated[:-1], 0.0)
    cell_masses = densities * np.diff(edges)
    if inner_masses.size:
        cell_masses *= inner_masses.sum() / cell_masses.sum()
    return Law.of(edges, cell_masses, low=mass_low, high=mass_high)


def _spread_interval(
    points: FloatArray,
    spread: float,
) -> tuple[FloatArray, FloatArray]:
    spread_start = np.maximum(points - spread, -1.0)
    spread_stop = np.minimum(points + spread, 1.0)
    return spread_start, spread_stop


def _inputs(
    edges: FloatArray,
    lower: float,
    upper: float,
) -> FloatArray:
    """Centred units, from -1 to 1, as data units."""
    range_width = upper - lower
    inputs = lower + range_width * (edges + 1) / 2
    return np.clip(inputs, lower, upper)


def _cells(
    prior: Prior,
    lower: float,
    upper: float,
) -> tuple[FloatArray, FloatArray, bool]:
    """Edges of cells, the mass below each (what lies on an end of the range outside), whether one
    is still heavy.
    """
    edges = np.linspace(-1.0, 1.0, _GRID + 1)
    cumulated = _mass_below(prior, edges, lower, upper)
    for _halving in range(_HALVINGS):
        is_heavy = np.diff(cumulated) > _HEAVY
        if not is_heavy.any():
            break
        middles = (edges[1:] + edges[:-1]) / 2
        edges = np.union1d(edges, middles[is_heavy])
        cumulated = _mass_below(prior, edges, lower, upper)
    is_heavy = np.diff(cumulated) > _HEAVY
    return edges, cumulated, bool(is_heavy.any())


def _mass_below(
    prior: Prior,
    edges: FloatArray,
    lower: float,
    upper: float,
) -> FloatArray:
    """The mass below each edge (centred units); at the first edge that of inputs up to `lower`."""
    edge_inputs = _inputs(edges, lower, upper)
    if isinstance(prior, SamplePrior):
        points = prior.points
        points_below = np.searchsorted(points, edge_inputs)
        points_below[0] = np.searchsorted(points, lower, side="right")
        cumulated = np.cumsum(prior.masses)
        masses_below = np.concatenate([[0.0], cumulated])
        return masses_below[points_below]
    distribution = cast(DistributionPrior, prior)
    return np.asarray(distribution.cdf(edge_inputs), dtype=np.float64)


def law_of(
    prior: Prior,
    lower: float,
    upper: float,
    *,
    spread: float = 1e-3,
) -> Law:
    """The law of a prior's inputs: exact for a uniform one, in cells for others (what a cdf falls by
    counts as rounding), point masses uniform over `spread` (centred units) on both sides.
    """
    if isinstance(prior, UniformPrior):
        whole_range = np.array([-1.0, 1.0])
        return Law.of(whole_range, np.ones(1))
    if isinstance(prior, SamplePrior) and has_few_atoms(prior):
        return _atoms(*centred_atoms(prior, lower, upper), spread)
    edges, masses_below, _is_heavy = _cells(prior, lower, upper)
    cell_masses = np.maximum(np.diff(masses_below), 0.0)
    mass_above = 1 - float(masses_below[-1])
    return Law.of(
        edges,
        cell_masses,
        low=float(masses_below[0]),
        high=max(mass_above, 0.0),
    )


def condensed(
    prior: Prior,
    lower: float,
    upper: float,
) -> tuple[Prior, float]:
    """The prior, or point masses at the means of cells where it is too narrow for a density; what
    lies between.

    The second number is the mean square distance of an input from its point mass, squared data
    units: so much less than for the point masses an unbiased mechanism's MSE can be for the prior
    (docs/proofs/design.md, "Cells").
    """
    if isinstance(prior, UniformPrior) or has_few_atoms(prior):
        return prior, 0.0
    edges, _masses_below, is_narrow = _cells(prior, lower, upper)
    if not is_narrow:
        return prior, 0.0
    distinct_inputs = np.unique(_inputs(edges, lower, upper))
    return _means(prior, distinct_inputs)


def has_few_atoms(prior: Prior) -> bool:
    """Whether the law of a prior is that of point masses made uniform over a spread."""
    return isinstance(prior, SamplePrior) and prior.points.size <= _FEW


def split_atoms(
    points: FloatArray,
    masses: FloatArray,
    edges: FloatArray,
    spread: float,
) -> FloatArray:
    """(pieces, n) how much of each point mass lies between the edges when it is spread: all centred
    units.
    """
    spread_start, spread_stop = _spread_interval(points, spread)
    is_inside = (points > -1) & (points < 1)
    edge_column = edges[:, None]
    spread_width = spread_stop - spread_start
    position = (edge_column - spread_start) / spread_width
    spread_below = np.clip(position, 0.0, 1.0)
    is_at_lower = points < 0
    atom_below = np.where(is_at_lower, edge_column > points, edge_column >= points)
    below = np.where(is_inside, spread_below, atom_below)
    below[0] = 0.0
    below[-1] = 1.0
    return np.diff(below, axis=0) * masses


def centred_atoms(
    prior: SamplePrior,
    lower: float,
    upper: float,
) -> tuple[FloatArray, FloatArray]:
    """Points in centred units, and masses."""
    position = (prior.points - lower) / (upper - lower)
    centred = position * 2 - 1
    return np.clip(centred, -1.0, 1.0), prior.masses


def exact_law(
    prior: Prior,
    lower: float,
    upper: float,
    edges: FloatArray,
) -> Law:
    """A law whose integrals are the prior's own at `edges` (centred, increasing), the only inputs
    to ask them at.
    """
    half_range = (upper - lower) / 2
    exact_inputs = lower + half_range + edges * half_range
    all_inputs = np.clip(exact_inputs, lower, upper)
    distinct_inputs, input_index = np.unique(all_inputs, return_inverse=True)
    distinct_inputs[0] = lower
    distinct_inputs[-1] = upper
    data_moments = prior.moments(distinct_inputs)[:, :3]
    moments = data_moments / half_range ** np.arange(3)
    centred_inputs = (distinct_inputs - lower) / half_range - 1
    piece_starts = centred_inputs[:-1]
    mass, first_moment, second_moment = moments.T
    # Moments from a piece's start become moments from 0.
    raw_first = first_moment + piece_starts * mass
    spread = 2 * piece_starts * first_moment
    raw_second = second_moment + spread + piece_starts**2 * mass
    raw_moments = np.stack([mass, raw_first, raw_second], axis=1)
    cumulated = np.cumsum(raw_moments, axis=0)
    no_mass = np.zeros((1, 3))
    below = np.concatenate([no_mass, cumulated])
    return Law(
        edges=edges,
        below=below[input_index],
        density=np.zeros(edges.size - 1),
        totals=below[-1],
    )
