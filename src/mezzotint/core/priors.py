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
from typing import Any, Literal, cast, final

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
    return y[..., None] ** np.arange(ORDERS, dtype=np.float64)


@final
@dataclass(frozen=True, kw_only=True)
class UniformPrior(Prior):
    """Uniform on [lower, upper]."""

    def moments(self, edges: FloatArray) -> FloatArray:
        width = np.diff(edges)[:, None]
        orders = np.arange(1, ORDERS + 1)
        return width**orders / orders / (edges[-1] - edges[0])


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class SamplePrior(Prior):
    """Point masses, already clipped. `points` sorted, `masses` sum to 1; both (n,)."""

    points: FloatArray
    masses: FloatArray

    def moments(self, edges: FloatArray) -> FloatArray:
        points, masses, blocks = self._blocks

        def piece(x: FloatArray) -> IndexArray:
            return np.clip(np.searchsorted(edges, x, side="right") - 1, 0, edges.size - 2)

        first, last = piece(points[:, 0]), piece(points[:, -1])
        whole, cut = first == last, first != last
        result = np.zeros((edges.size - 1, ORDERS))
        # All terms are at least 0 where the origin lies to the left: nothing cancels.
        _add(result, first[whole], _shifted(blocks[whole], points[whole, 0] - edges[first[whole]]))
        single, at = points[cut].ravel(), piece(points[cut].ravel())
        _add(result, at, _powers(single - edges[at]) * masses[cut].reshape(-1, 1))
        return result

    @cached_property
    def _blocks(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Points and masses in rows of `_BLOCK`, the last filled up with no mass; each row's
        moments from its first.
        """
        missing = -self.points.size % _BLOCK
        points = np.pad(self.points, (0, missing), mode="edge").reshape(-1, _BLOCK)
        masses = np.pad(self.masses, (0, missing)).reshape(-1, _BLOCK)
        return points, masses, np.einsum("bpo,bp->bo", _powers(points - points[:, :1]), masses)


_BLOCK = 256
"""Points whose moments are added up once: a piece takes them whole, unless an edge runs through
them.
"""


def _shifted(moments: FloatArray, gap: FloatArray) -> FloatArray:
    """(n, ORDERS) moments from origins that lie (n,) gaps further left."""
    powers = _powers(gap)
    terms = [
        [math.comb(k, j) * powers[:, k - j] * moments[:, j] for j in range(k + 1)]
        for k in range(ORDERS)
    ]
    return np.stack([sum(row) for row in terms], axis=1)


def _add(result: FloatArray, rows: IndexArray, terms: FloatArray) -> None:
    """result[rows] += terms, rows repeated."""
    for order in range(ORDERS):
        result[:, order] += np.bincount(rows, terms[:, order], minlength=len(result))


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class DistributionPrior(Prior):
    """A continuous distribution given by its cdf; what lies outside the range sits on the two
    ends.
    """

    cdf: Callable[[FloatArray], FloatArray]

    def moments(self, edges: FloatArray) -> FloatArray:
        at_edges = np.asarray(self.cdf(edges), dtype=np.float64)
        result = np.empty((edges.size - 1, ORDERS))
        result[:, 0] = np.diff(at_edges)
        # By parts: int (x-a)^k dF = int k (x-a)^(k-1) (F(b) - F(x)) dx. Needs no density, nothing
        # cancels, and a spike in the density is only a step in the integrand.
        result[:, 1:] = _integrate_tails(self.cdf, edges, at_edges)
        result[0, 0] += at_edges[0]
        result[-1] += (1 - at_edges[-1]) * _powers(np.asarray(edges[-1] - edges[-2]))
        return result


_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(16)
_GAP = (1 - _NODES[-1]) / 2
"""Share of a piece between an end and the first node."""
_TO_ENDS = np.array(
    [
        [np.prod([(end - b) / (a - b) for b in _NODES if b != a]) for a in _NODES]
        for end in (-1.0, 1.0)
    ]
)
"""(2, 16): values at both ends of the polynomial through the nodes."""
_DEEPEST = 60  # halvings: a piece is then shorter than the spacing of floats


def _integrate_tails(
    cdf: Callable[[FloatArray], FloatArray], edges: FloatArray, at_edges: FloatArray
) -> FloatArray:
    """(pieces, 3): int k (x-a)^(k-1) (F(b)-F(x)) dx by Gauss-Legendre, halved until halving changes
    nothing.

    Nor may the integrand's polynomial miss the ends of a piece: F grows, so mass between two nodes
    is seen at the next one, but mass between the last node and the end of a piece only at that end.
    """
    piece = np.arange(edges.size - 1)
    start, stop = edges[:-1], edges[1:]
    orders = np.arange(1, ORDERS)

    def integrand(piece: IndexArray, x: FloatArray) -> FloatArray:
        tail = at_edges[piece + 1][:, None] - np.asarray(cdf(x.ravel())).reshape(x.shape)
        return orders * (x - edges[piece][:, None])[..., None] ** (orders - 1) * tail[..., None]

    def quadrature(
        piece: IndexArray, start: FloatArray, stop: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """The integrals, and what each may miss beyond its outer nodes."""
        width = (stop - start)[:, None]
        known = integrand(piece, start[:, None] + width * (_NODES + 1) / 2)
        ends = integrand(piece, np.stack([start, stop], axis=1))
        missed = np.abs(np.einsum("pnk,en->pek", known, _TO_ENDS) - ends).sum(axis=1) * _GAP * width
        return np.einsum("pnk,n->pk", known, _NODE_WEIGHTS) * width / 2, missed

    result = np.zeros((edges.size - 1, ORDERS - 1))
    coarse, _ = quadrature(piece, start, stop)
    scale = (edges[-1] - edges[0]) ** orders * 1e-14
    for _ in range(_DEEPEST):
        middle = (start + stop) / 2
        (left, below), (right, above) = (
            quadrature(piece, start, middle),
            quadrature(piece, middle, stop),
        )
        rough = (np.maximum(np.abs(left + right - coarse), below + above) > scale).any(axis=1)
        np.add.at(result, piece[~rough], (left + right)[~rough])
        if not rough.any():
            return result
        piece = np.concatenate([piece[rough], piece[rough]])
        start, stop = (
            np.concatenate([start[rough], middle[rough]]),
            np.concatenate([middle[rough], stop[rough]]),
        )
        coarse = np.concatenate([left[rough], right[rough]])
    np.add.at(result, piece, coarse)
    return result


def as_prior(prior: object, *, lower: float, upper: float) -> Prior:
    """Reads a user's prior: None (uniform), a frozen scipy.stats distribution, a 1-D sample, or a
    Prior.

    Raises:
        ParameterError: an empty sample, NaN in it, a wrong shape, invalid parameters of a
            distribution, or something else altogether; a range whose fourth power is not a float.
    """
    if not 1e-70 <= upper - lower <= 1e70:
        raise ParameterError(
            "upper", upper, "fourth powers of the range exceed float64: rescale the data"
        )
    if prior is None:
        return UniformPrior()
    if isinstance(prior, Prior):
        return prior
    # A histogram needs no parameters to be frozen.
    if callable(getattr(prior, "freeze", None)) and type(prior).__name__ != "rv_histogram":
        raise ParameterError(
            "prior",
            type(prior).__name__,
            "give a frozen distribution: with its parameters, as in norm(0, 1)",
        )
    cdf = cast("Callable[[npt.ArrayLike], FloatArray] | None", getattr(prior, "cdf", None))
    if not callable(cdf):
        return _sample(prior, lower, upper)
    below, within = float(cdf(lower)), float(cdf(upper))
    if not 0 <= below <= within <= 1:
        raise ParameterError(
            "prior", (below, within), "its cdf at lower and upper: check its parameters"
        )
    if callable(getattr(prior, "pmf", None)) and not callable(getattr(prior, "pdf", None)):
        return _discrete(prior, lower, upper)
    return DistributionPrior(cdf=cdf)


def _discrete(distribution: Any, lower: float, upper: float) -> Prior:
    # scipy's discrete distributions live on loc + integers.
    shift = float(distribution.ppf(0.5)) % 1.0
    points = (
        np.arange(int(np.ceil(lower - shift)), int(np.floor(upper - shift)) + 1, dtype=np.float64)
        + shift
    )
    masses = np.asarray(distribution.pmf(points), dtype=np.float64)
    below = float(distribution.cdf(lower)) - masses[points <= lower].sum()
    above = max(0.0, 1.0 - below - masses.sum())
    return SamplePrior(
        points=np.concatenate([[lower], points, [upper]]),
        masses=np.concatenate([[max(0.0, below)], masses, [above]]),
    )


def _sample(values: object, lower: float, upper: float) -> Prior:
    remedy = "give None (uniform), a frozen scipy.stats distribution or a 1-D sample"
    sample = as_reals("prior", cast(npt.ArrayLike, values), remedy)
    if sample.ndim != 1 or sample.size == 0:
        raise ParameterError("prior", sample.shape, "a sample prior is a non-empty 1-D array")
    refuse_nan("prior", sample, "value")
    points, counts = np.unique(np.clip(sample, lower, upper), return_counts=True)
    return SamplePrior(points=points, masses=counts / sample.size)


def cell_means(prior: Prior, lower: float, upper: float) -> SamplePrior:
    """Point masses at the means of 2048 cells: where a search reads a prior again and again."""
    return _means(prior, np.linspace(lower, upper, 2049))[0]


def _means(prior: Prior, edges: FloatArray) -> tuple[SamplePrior, float]:
    """Point masses at the means of cells, and the mean square distance of an input from its own."""
    moments = prior.moments(edges)
    used = moments[:, 0] > 0
    mass, first, second, _ = moments[used].T
    spread = max(0.0, float((second - first**2 / mass).sum()))
    return SamplePrior(points=edges[:-1][used] + first / mass, masses=mass), spread


def cost_matrix(
    *, knots: FloatArray, levels: FloatArray, prior: Prior, loss: Literal["mse", "mae"]
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
    inner = levels[(levels > knots[0]) & (levels < knots[-1])] if loss == "mae" else levels[:0]
    edges = np.unique(np.concatenate([knots, inner]))
    moments = prior.moments(edges)
    left = edges[:-1]
    segment = np.searchsorted(knots, left, side="right") - 1
    width = knots[segment + 1] - knots[segment]
    position = (left - knots[segment]) / width

    # With y = x - left the loss is a polynomial in y on each piece: (d - y)^2, or +-(d - y) as no
    # level is inside.
    distance = levels - left[:, None]
    if loss == "mse":
        terms = np.array([distance**2, -2 * distance, np.ones(distance.shape)])
    else:
        sign = np.where(levels >= edges[1:, None], 1.0, -1.0)
        terms = np.array([sign * distance, -sign, np.zeros(distance.shape)])
    plain = np.einsum("opi,po->pi", terms, moments[:, :3])  # integral of loss
    tilted = np.einsum("opi,po->pi", terms, moments[:, 1:])  # integral of loss * y

    # Row k+1 is drawn with probability t(y) = position + y / width, row k with the rest.
    to_right = position[:, None] * plain + tilted / width[:, None]
    result = np.zeros((knots.size, levels.size))
    np.add.at(result, segment + 1, to_right)
    np.add.at(result, segment, plain - to_right)
    return result


_GRID = 4096
"""Cells at least in which a continuous prior is taken as uniform, and so is a sample of more than
`_FEW` points.
"""

_FEW = 2 * _GRID

_HEAVY, _HALVINGS = 1 / 256, 10
"""Cells of more mass than this are halved, so often at most."""


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
    def of(edges: FloatArray, masses: FloatArray, *, low: float = 0.0, high: float = 0.0) -> Law:
        """The law with these masses in the cells and atoms `low`, `high` at -1 and 1."""
        density = masses / np.diff(edges)
        parts = np.stack([np.diff(edges**k) * density / k for k in (1, 2, 3)], axis=1)
        first = low * np.array([1.0, -1.0, 1.0])
        below = np.concatenate([first[None], first + np.cumsum(parts, axis=0)])
        return Law(edges=edges, below=below, density=density, totals=below[-1] + high)

    def leaning_left(self) -> tuple[Law, int]:
        """This law (and 1) or that of -x (and -1), so rounded that a law and its mirror image give
        the same.
        """
        odd = (self.totals - 2 * self.integrals(np.zeros(1))[0])[[0, 2]]
        sign = next((int(np.sign(-one)) for one in (self.totals[1], *odd) if abs(one) > 1e-9), 1)
        low, high = [
            round(float(one), 10) for one in (self.below[0, 0], self.totals[0] - self.below[-1, 0])
        ][::sign]
        edges = np.round(sign * self.edges[::sign], 10)
        below = np.concatenate([[0.0], np.cumsum((self.density * np.diff(self.edges))[::sign])])
        wide = np.append(np.diff(edges) > 0, True)
        masses = np.diff(below[wide]).round(10)
        return Law.of(edges[wide], masses, low=low, high=high), sign

    def cell(self, x: FloatArray) -> IndexArray:
        return np.clip(np.searchsorted(self.edges, x, side="right") - 1, 0, self.density.size - 1)

    def integrals(self, x: FloatArray) -> FloatArray:
        """(..., 3) integrals of 1, x, x**2 over inputs below `x`; over all of them from 1 on."""
        cell = self.cell(x)
        left, density = self.edges[cell], self.density[cell]
        growth = np.stack([density * (x**k - left**k) / k for k in (1, 2, 3)], axis=-1)
        inside = self.below[cell] + growth
        ends = np.where((x >= 1)[..., None], self.totals, inside)
        return np.where((x <= -1)[..., None], 0.0, ends)

    def density_at(self, x: FloatArray) -> FloatArray:
        return self.density[self.cell(x)]


def _atoms(points: FloatArray, masses: FloatArray, spread: float) -> Law:
    """Point masses (centred units), made uniform over `spread` on both sides where they are inside
    the range.
    """
    low, high = masses[points <= -1].sum(), masses[points >= 1].sum()
    inside = (points > -1) & (points < 1)
    points, masses = points[inside], masses[inside]
    left, right = np.maximum(points - spread, -1.0), np.minimum(points + spread, 1.0)
    edges = np.unique(np.concatenate([[-1.0, 1.0], left, right]))
    change = np.zeros(edges.size)
    for side, sign in ((left, 1.0), (right, -1.0)):
        np.add.at(change, np.searchsorted(edges, side), sign * masses / (right - left))
    cells = np.maximum(np.cumsum(change)[:-1], 0.0) * np.diff(edges)
    scale = masses.sum() / cells.sum() if masses.size else 0.0
    return Law.of(edges, cells * scale, low=float(low), high=float(high))


def _inputs(edges: FloatArray, lower: float, upper: float) -> FloatArray:
    """Centred units, from -1 to 1, as data units."""
    return np.clip(lower + (upper - lower) * (edges + 1) / 2, lower, upper)


def _cells(prior: Prior, lower: float, upper: float) -> tuple[FloatArray, FloatArray, bool]:
    """Edges of cells, the mass below each (what lies on an end of the range outside), whether one
    is still heavy.
    """

    def below(edges: FloatArray) -> FloatArray:
        inputs = _inputs(edges, lower, upper)
        if isinstance(prior, SamplePrior):
            place = np.searchsorted(prior.points, inputs)
            place[0] = np.searchsorted(prior.points, lower, side="right")
            return np.concatenate([[0.0], np.cumsum(prior.masses)])[place]
        return np.asarray(cast(DistributionPrior, prior).cdf(inputs), dtype=np.float64)

    edges = np.linspace(-1.0, 1.0, _GRID + 1)
    known = below(edges)
    for _ in range(_HALVINGS):
        heavy = np.diff(known) > _HEAVY
        if not heavy.any():
            break
        edges = np.union1d(edges, (edges[1:] + edges[:-1])[heavy] / 2)
        known = below(edges)
    return edges, known, bool((np.diff(known) > _HEAVY).any())


def law_of(prior: Prior, lower: float, upper: float, *, spread: float = 1e-3) -> Law:
    """The law of a prior's inputs: exact for a uniform one, in cells for others, point masses
    uniform over `spread`.
    """
    if isinstance(prior, UniformPrior):
        return Law.of(np.array([-1.0, 1.0]), np.ones(1))
    if isinstance(prior, SamplePrior) and has_few_atoms(prior):
        return _atoms(*centred_atoms(prior, lower, upper), spread)
    edges, below, _ = _cells(prior, lower, upper)
    return Law.of(
        edges,
        np.maximum(np.diff(below), 0.0),
        low=float(below[0]),
        high=max(1 - float(below[-1]), 0.0),
    )


def condensed(prior: Prior, lower: float, upper: float) -> tuple[Prior, float]:
    """The prior, or point masses at the means of cells where it is too narrow for a density; what
    lies between.

    The second number is the mean square distance of an input from its point mass, squared data
    units: so much less than for the point masses an unbiased mechanism's MSE can be for the prior
    (docs/proofs/design.md, "Cells").
    """
    if isinstance(prior, UniformPrior) or has_few_atoms(prior):
        return prior, 0.0
    edges, _, is_narrow = _cells(prior, lower, upper)
    if not is_narrow:
        return prior, 0.0
    return _means(prior, np.unique(_inputs(edges, lower, upper)))


def has_few_atoms(prior: Prior) -> bool:
    """Whether the law of a prior is that of point masses made uniform over a spread."""
    return isinstance(prior, SamplePrior) and prior.points.size <= _FEW


def split_atoms(
    points: FloatArray, masses: FloatArray, edges: FloatArray, spread: float
) -> FloatArray:
    """(pieces, n) how much of each point mass lies between the edges when it is spread: all centred
    units.
    """
    left, right = np.maximum(points - spread, -1.0), np.minimum(points + spread, 1.0)
    inside = (points > -1) & (points < 1)
    below = np.clip((edges[:, None] - left) / (right - left), 0.0, 1.0)
    below = np.where(
        inside, below, np.where(points < 0, edges[:, None] > points, edges[:, None] >= points)
    )
    below[0], below[-1] = 0.0, 1.0
    return np.diff(below, axis=0) * masses


def centred_atoms(prior: SamplePrior, lower: float, upper: float) -> tuple[FloatArray, FloatArray]:
    """Points in centred units, and masses."""
    return np.clip((prior.points - lower) / (upper - lower) * 2 - 1, -1.0, 1.0), prior.masses


def exact_law(prior: Prior, lower: float, upper: float, edges: FloatArray) -> Law:
    """A law whose integrals are the prior's own at `edges` (centred, increasing), the only inputs
    to ask them at.
    """
    half = (upper - lower) / 2
    inputs, place = np.unique(
        np.clip(lower + half + edges * half, lower, upper), return_inverse=True
    )
    inputs[0], inputs[-1] = lower, upper
    moments = prior.moments(inputs)[:, :3] / half ** np.arange(3)
    left = ((inputs - lower) / half - 1)[:-1]
    m0, m1, m2 = moments.T
    raw = np.stack([m0, m1 + left * m0, m2 + 2 * left * m1 + left**2 * m0], axis=1)
    below = np.concatenate([np.zeros((1, 3)), np.cumsum(raw, axis=0)])
    return Law(edges=edges, below=below[place], density=np.zeros(edges.size - 1), totals=below[-1])
