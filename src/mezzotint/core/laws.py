"""Laws: a prior in centred units, on [-1, 1], whose integrals up to many inputs are read at once.

Cells of constant density, with point masses at the ends alone: those inside are spread, or gathered
at the means of cells.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast, final

import numpy as np

from mezzotint.core.priors import DistributionPrior, Prior, SamplePrior, UniformPrior
from mezzotint.core.types import BoolArray, FloatArray, IndexArray

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
    positive_moments = moments[has_mass]
    cell_masses, first_moments, second_moments, _third_moments = positive_moments.T
    cell_spreads = second_moments - first_moments**2 / cell_masses
    total_spread = float(cell_spreads.sum())
    cell_starts = edges[:-1][has_mass]
    point_masses = SamplePrior(
        points=cell_starts + first_moments / cell_masses,
        masses=cell_masses,
    )
    return point_masses, max(0.0, total_spread)


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
        powers_at_start = np.array([[1.0, -1.0, 1.0]])
        first_atom = low * powers_at_start
        all_integrals = np.stack(cell_integrals, axis=1)
        cumulated = np.cumsum(all_integrals, axis=0)
        below = np.concatenate([first_atom, first_atom + cumulated])
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
        mass_below = self.below[:, 0]
        atoms = [float(mass_below[0]), float(self.totals[0] - mass_below[-1])]
        low, high = atoms[::sign]
        signed_edges = sign * self.edges[::sign]
        mirrored_edges = np.round(signed_edges, _MIRROR_DIGITS)
        cell_masses = self.density * np.diff(self.edges)
        mirrored_masses = cell_masses[::sign]
        below = np.append(0.0, np.cumsum(mirrored_masses))
        is_apart = np.diff(mirrored_edges) > 0
        is_wide = np.append(is_apart, True)
        wide_masses = np.diff(below[is_wide])
        mirrored_law = Law.of(
            mirrored_edges[is_wide],
            wide_masses.round(_MIRROR_DIGITS),
            low=round(low, _MIRROR_DIGITS),
            high=round(high, _MIRROR_DIGITS),
        )
        return mirrored_law, sign

    def _lean(self) -> int:
        """1 where the first of these that is not 0 is negative, else -1; 1 where all are 0: the
        mean, and how much of the mass and of the second moment lies right of 0 more than left.
        """
        (left_of_zero,) = self.integrals(np.zeros(1))
        _mass, mean, _square = self.totals
        mass_excess, _mean_excess, square_excess = self.totals - 2 * left_of_zero
        for moment in (mean, mass_excess, square_excess):
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
    low_masses = masses[points <= -1]
    high_masses = masses[points >= 1]
    is_inside = _is_inside(points)
    inner_points = points[is_inside]
    inner_masses = masses[is_inside]
    spread_start, spread_stop = _spread_interval(inner_points, spread)
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
    return Law.of(
        edges,
        cell_masses,
        low=float(low_masses.sum()),
        high=float(high_masses.sum()),
    )


def _is_inside(points: FloatArray) -> BoolArray:
    """Whether points lie in the range (centred units), and not at its ends."""
    return np.abs(points) < 1


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
    is_heavy = np.diff(cumulated) > _HEAVY
    for _halving in range(_HALVINGS):
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
        masses_below = np.append(0.0, cumulated)
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
    edge_column = edges[:, None]
    spread_width = spread_stop - spread_start
    position = (edge_column - spread_start) / spread_width
    spread_below = np.clip(position, 0.0, 1.0)
    is_above = edge_column > points
    is_at_or_above = edge_column >= points
    atom_below = np.where(points < 0, is_above, is_at_or_above)
    below = np.where(_is_inside(points), spread_below, atom_below)
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
