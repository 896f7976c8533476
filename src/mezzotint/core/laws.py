"""The law of the inputs in centred units, on [-1, 1]: cells of constant density, point masses at the ends, or spread.

A prior (`core.priors`) answers for moments over cells of data; a law for integrals up to many inputs at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast, final

import numpy as np

from mezzotint.core.loss import FloatArray, IndexArray
from mezzotint.core.priors import DistributionPrior, Prior, SamplePrior, UniformPrior

_GRID = 4096
"""Cells at least in which a continuous prior is taken as uniform, and so is a sample of more than `_FEW` points."""

_FEW = 2 * _GRID

_HEAVY, _HALVINGS = 1 / 256, 10
"""Cells of more mass than this are halved, so often at most."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Law:
    """Inputs on [-1, 1]: uniform in each of several cells, atoms at the two ends only.

    Arguments:
        edges: (n+1,) increasing, from -1 to 1.
        below: (n+1, 3) integrals of 1, x, x**2 over [-1, edge), counting an atom at -1 but at the first edge.
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
        """This law (and 1) or that of -x (and -1), so rounded that a law and its mirror image give the same."""
        odd = (self.totals - 2 * self.integrals(np.zeros(1))[0])[[0, 2]]
        sign = next((int(np.sign(-one)) for one in (self.totals[1], *odd) if abs(one) > 1e-9), 1)
        low, high = [round(float(one), 10) for one in (self.below[0, 0], self.totals[0] - self.below[-1, 0])][::sign]
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
    """Point masses (centred units), made uniform over `spread` on both sides where they are inside the range."""
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
    """Edges of cells, the mass below each (what lies on an end of the range outside), whether one is still heavy."""

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
    """The law of a prior's inputs in centred units: exact for a uniform one, in cells for others.

    Arguments:
        spread: point masses inside the range are made uniform over so much on both sides.
    """
    if isinstance(prior, UniformPrior):
        return Law.of(np.array([-1.0, 1.0]), np.ones(1))
    if isinstance(prior, SamplePrior) and has_few_atoms(prior):
        return _atoms(*centred_atoms(prior, lower, upper), spread)
    edges, below, _ = _cells(prior, lower, upper)
    return Law.of(edges, np.maximum(np.diff(below), 0.0), low=float(below[0]), high=max(1 - float(below[-1]), 0.0))


def condensed(prior: Prior, lower: float, upper: float) -> tuple[Prior, float]:
    """The prior, or point masses at the means of cells where it is too narrow for a density; what lies between.

    The second number is the mean square distance of an input from its point mass, squared data units: so much less
    than for the point masses an unbiased mechanism's MSE can be for the prior (docs/proofs/design.md, "Cells").
    """
    if isinstance(prior, UniformPrior) or has_few_atoms(prior):
        return prior, 0.0
    edges, _, is_narrow = _cells(prior, lower, upper)
    if not is_narrow:
        return prior, 0.0
    inputs = np.unique(_inputs(edges, lower, upper))
    moments = prior.moments(inputs)[:, :3]
    used = moments[:, 0] > 0
    mass, first, second = moments[used].T
    points = inputs[:-1][used] + first / mass
    return SamplePrior(points=points, masses=mass), max(0.0, float((second - first**2 / mass).sum()))


def has_few_atoms(prior: Prior) -> bool:
    """Whether the law of a prior is that of point masses made uniform over a spread."""
    return isinstance(prior, SamplePrior) and prior.points.size <= _FEW


def split_atoms(points: FloatArray, masses: FloatArray, edges: FloatArray, spread: float) -> FloatArray:
    """(pieces, n) how much of each point mass lies between the edges when it is spread: all centred units."""
    left, right = np.maximum(points - spread, -1.0), np.minimum(points + spread, 1.0)
    inside = (points > -1) & (points < 1)
    below = np.clip((edges[:, None] - left) / (right - left), 0.0, 1.0)
    below = np.where(inside, below, np.where(points < 0, edges[:, None] > points, edges[:, None] >= points))
    below[0], below[-1] = 0.0, 1.0
    return np.diff(below, axis=0) * masses


def centred_atoms(prior: SamplePrior, lower: float, upper: float) -> tuple[FloatArray, FloatArray]:
    """Points in centred units, and masses."""
    return np.clip((prior.points - lower) / (upper - lower) * 2 - 1, -1.0, 1.0), prior.masses


def exact_law(prior: Prior, lower: float, upper: float, edges: FloatArray) -> Law:
    """A law whose integrals are the prior's own at `edges` (centred, increasing), the only inputs to ask them at."""
    half = (upper - lower) / 2
    inputs, place = np.unique(np.clip(lower + half + edges * half, lower, upper), return_inverse=True)
    inputs[0], inputs[-1] = lower, upper
    moments = prior.moments(inputs)[:, :3] / half ** np.arange(3)
    left = ((inputs - lower) / half - 1)[:-1]
    m0, m1, m2 = moments.T
    raw = np.stack([m0, m1 + left * m0, m2 + 2 * left * m1 + left**2 * m0], axis=1)
    below = np.concatenate([np.zeros((1, 3)), np.cumsum(raw, axis=0)])
    return Law(edges=edges, below=below[place], density=np.zeros(edges.size - 1), totals=below[-1])
