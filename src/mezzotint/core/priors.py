"""Distributions of the inputs: a prior gives the moments of the clipped input on pieces of [lower,
upper].
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import ceil, comb, floor
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
    edges_below = np.searchsorted(edges, x, side="right")
    last_piece = edges.size - 2
    return np.clip(edges_below - 1, 0, last_piece)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class SamplePrior(Prior):
    """Point masses, already clipped. `points` sorted, `masses` sum to 1; both (n,)."""

    points: FloatArray
    masses: FloatArray

    def moments(self, edges: FloatArray) -> FloatArray:
        blocks = self._blocks
        first_points = blocks.points[:, 0]
        last_points = blocks.points[:, -1]
        first_piece = _piece(edges, first_points)
        is_whole = first_piece == _piece(edges, last_points)
        is_cut = ~is_whole
        piece_moments = np.zeros((edges.size - 1, ORDERS))
        # All terms are at least 0 where the origin lies to the left: nothing cancels.
        whole_pieces = first_piece[is_whole]
        gaps = first_points[is_whole] - edges[whole_pieces]
        block_moments = blocks.moments[is_whole]
        whole_moments = _shifted(block_moments, gaps)
        _add(piece_moments, whole_pieces, whole_moments)
        cut_points = blocks.points[is_cut].ravel()
        cut_masses = blocks.masses[is_cut].ravel()
        pieces = _piece(edges, cut_points)
        distances = cut_points - edges[pieces]
        cut_moments = _powers(distances) * cut_masses[:, None]
        _add(piece_moments, pieces, cut_moments)
        return piece_moments

    @cached_property
    def _blocks(self) -> _Blocks:
        padding = (0, -self.points.size % _BLOCK)
        padded_points = np.pad(self.points, padding, mode="edge")
        padded_masses = np.pad(self.masses, padding)
        points = padded_points.reshape(-1, _BLOCK)
        masses = padded_masses.reshape(-1, _BLOCK)
        distances = points - points[:, :1]
        powers = _powers(distances)
        moments = np.einsum("bpo,bp->bo", powers, masses)
        return _Blocks(points, masses, moments)


_BLOCK = 256
"""Points whose moments are added up once: a piece takes them whole, unless an edge runs through
them.
"""


def _shifted(moments: FloatArray, gap: FloatArray) -> FloatArray:
    """(n, ORDERS) moments from origins that lie (n,) gaps >= 0 further left: nothing cancels."""
    powers = _powers(gap)
    shifted = np.zeros_like(powers)
    for moment_order in range(ORDERS):
        for lower_order in range(moment_order + 1):
            binomial = comb(moment_order, lower_order)
            power = powers[:, moment_order - lower_order]
            lower_moment = moments[:, lower_order]
            shifted[:, moment_order] += binomial * power * lower_moment
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


Cdf = Callable[[FloatArray], FloatArray]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class DistributionPrior(Prior):
    """A continuous distribution given by its cdf; what lies outside the range sits on the two
    ends.
    """

    cdf: Cdf

    def moments(self, edges: FloatArray) -> FloatArray:
        cdf_at_edges = np.asarray(self.cdf(edges), dtype=np.float64)
        masses = np.diff(cdf_at_edges)
        moments = np.empty((masses.size, ORDERS))
        moments[:, 0] = masses
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
        weight = np.prod(factors)
        weights.append(float(weight))
    return weights


_TO_ENDS = np.array(list(map(_lagrange_weights, (-1.0, 1.0))))
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

    cdf: Cdf
    edges: FloatArray
    cdf_at_edges: FloatArray

    def _integrand(self, pieces: IndexArray, x: FloatArray) -> FloatArray:
        flat_cdf = np.asarray(self.cdf(x.ravel()))
        cdf = flat_cdf.reshape(x.shape)
        piece_column = pieces[:, None]
        tails = self.cdf_at_edges[piece_column + 1] - cdf
        distances = x - self.edges[piece_column]
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
        end_sums = end_misses.sum(axis=1)
        missed = end_sums * _GAP * piece_width
        weighted = np.einsum("pnk,n->pk", integrand_values, _NODE_WEIGHTS)
        integrals = weighted * piece_width / 2
        return _Quadrature(integrals, missed)

    def adaptive(self) -> FloatArray:
        """The integrals, to `_TAIL_ACCURACY` of the powers of the range."""
        pieces = np.arange(self.edges.size - 1)
        piece_starts = self.edges[:-1]
        piece_stops = self.edges[1:]
        integrals = np.zeros((pieces.size, ORDERS - 1))
        coarse = self._quadrature(pieces, piece_starts, piece_stops)
        coarse_integrals = coarse.integrals
        range_width = self.edges[-1] - self.edges[0]
        tolerance = range_width**_TAIL_ORDERS * _TAIL_ACCURACY
        for _halving in range(_DEEPEST):
            middle = (piece_starts + piece_stops) / 2
            left_half = self._quadrature(pieces, piece_starts, middle)
            right_half = self._quadrature(pieces, middle, piece_stops)
            fine_integrals = left_half.integrals + right_half.integrals
            changes = np.abs(fine_integrals - coarse_integrals)
            missed = left_half.missed + right_half.missed
            error = np.maximum(changes, missed)
            exceeds = error > tolerance
            is_rough = exceeds.any(axis=1)
            is_fine = ~is_rough
            np.add.at(integrals, pieces[is_fine], fine_integrals[is_fine])
            if not is_rough.any():
                return integrals
            pieces = np.tile(pieces[is_rough], 2)
            rough_middle = middle[is_rough]
            piece_starts = np.append(piece_starts[is_rough], rough_middle)
            piece_stops = np.append(rough_middle, piece_stops[is_rough])
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
    first_point = max(lower, smallest)
    last_point = min(upper, largest)
    first_integer = ceil(first_point - shift)
    last_integer = floor(last_point - shift)
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
    is_at_lower = inner_points <= lower
    lowest_masses = inner_masses[is_at_lower]
    mass_below = float(distribution.cdf(lower)) - lowest_masses.sum()
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
    masses = counts / sample.size
    return SamplePrior(points=points, masses=masses)


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
    right_knot = np.searchsorted(knots, piece_starts, side="right")
    left_knot = right_knot - 1
    segment_start = knots[left_knot]
    segment_width = knots[right_knot] - segment_start
    position = (piece_starts - segment_start) / segment_width

    loss_terms = _loss_terms(edges, levels, loss)
    first_moments = moments[:, :3]
    next_moments = moments[:, 1:]  # of y times the input's powers
    loss_integral = np.einsum("opi,po->pi", loss_terms, first_moments)
    tilted_integral = np.einsum("opi,po->pi", loss_terms, next_moments)

    # Row k+1 is drawn with probability t(y) = position + y / width, row k otherwise.
    tilted_share = tilted_integral / segment_width[:, None]
    to_right = position[:, None] * loss_integral + tilted_share
    to_left = loss_integral - to_right
    costs = np.zeros((knots.size, levels.size))
    np.add.at(costs, right_knot, to_right)
    np.add.at(costs, left_knot, to_left)
    return costs


def _loss_terms(
    edges: FloatArray,
    levels: FloatArray,
    loss: Literal["mse", "mae"],
) -> FloatArray:
    """(3, pieces, m) coefficients of 1, y, y**2 of the loss, y the distance from a piece's start.

    On each piece the loss is (d - y)**2, or +-(d - y) as no level is inside.
    """
    starts = edges[:-1, None]
    ends = edges[1:, None]
    distance = levels - starts
    if loss == "mse":
        ones = np.ones_like(distance)
        return np.array([distance**2, -2 * distance, ones])
    sign = np.where(levels >= ends, 1.0, -1.0)
    zeros = np.zeros_like(distance)
    return np.array([sign * distance, -sign, zeros])
