"""Cuts: bounds on the MSE of every unbiased mechanism, wherever its levels are, from one solved design.

The multipliers of a design at some levels bound all mechanisms: the loss is at least `constant + min g` over the
levels that are used, g a function of the level alone. docs/proofs/design.md, "Limit" and "Any m levels".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from mezzotint.core.laws import centred_atoms, condensed, exact_law, has_few_atoms, law_of, split_atoms
from mezzotint.core.loss import FloatArray
from mezzotint.core.priors import SamplePrior
from mezzotint.design.floors import best_floors
from mezzotint.design.problem import Problem
from mezzotint.design.windows import make_windows


def least_of_quadratics(
    coefficients: FloatArray, roots: FloatArray, axis: FloatArray, ratio: float
) -> tuple[FloatArray, FloatArray]:
    """The least sum_k h(r_k(B)) in each cell of the axis and where it is; r_k a quadratic, h(t) = min(t, ratio t).

    Arguments:
        coefficients: (3, n) of 1, B and B**2; those of B**2 are >= 0.
        roots: all real roots of the r_k: between two of them the sum is one quadratic, least at an end or its vertex.
        axis: (c + 1,) increasing; infinite ends are allowed.
    """
    c, b, a = coefficients
    points = np.unique(np.concatenate([axis, roots[(roots > axis[0]) & (roots < axis[-1])]]))
    starts, stops = points[:-1], points[1:]
    # On an unbounded piece any point tells the signs.
    finite = np.clip(points, points[np.isfinite(points)].min() - 1e3, points[np.isfinite(points)].max() + 1e3)
    middle = (finite[1:] + finite[:-1]) / 2
    factor = np.where((a[:, None] * middle + b[:, None]) * middle + c[:, None] < 0, ratio, 1.0)
    total = np.stack([c, b, a]) @ factor
    with np.errstate(divide="ignore", invalid="ignore"):
        vertex = np.nan_to_num(-total[1] / (2 * total[2]))
    best = np.clip(vertex, starts, stops)
    cell = np.clip(np.searchsorted(axis, middle) - 1, 0, axis.size - 2)
    result, place = np.full(axis.size - 1, np.inf), np.zeros(axis.size - 1)
    for at in (starts, stops, best):
        known = np.isfinite(at)
        safe = np.where(known, at, 0.0)
        value = np.where(known, (total[2] * safe + total[1]) * safe + total[0], np.inf)
        # Unbounded pieces on which the sum falls for ever.
        value[~known & (total[2] == 0) & (total[1] * np.sign(at) < 0)] = -np.inf
        order = np.argsort(-value, kind="stable")
        better = order[value[order] < result[cell[order]]]
        result[cell[better]], place[cell[better]] = value[better], safe[better]
    return result, place


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Cut:
    """Multipliers for averages over cells of inputs and for the rows at -1 and 1 (centred units).

    Arguments:
        edges: (n+1,) of the cells, from -1 to 1.
        roots: (n, 2) levels at which the reduced cost of a cell vanishes: mass (B - L)(B - R).
        ends: (2, 2) coefficients (constant, slope) in B of the reduced costs of the two rows.
        moments: (n, 3) integrals of 1, x, x**2 over the cells.
    """

    edges: FloatArray
    roots: FloatArray
    ends: FloatArray
    moments: FloatArray

    def constant(self) -> float:
        """The bound on the loss when no level has a negative g."""
        mass, mean, square = self.moments.T
        low, high = self.roots.T
        rows = self.ends[0, 0] - self.ends[0, 1] + self.ends[1].sum()
        return float(mean @ (low + high) - mass @ (low * high) - square.sum() - rows)

    def variance(self) -> float:
        """That of the inputs."""
        _, mean, square = self.moments.sum(axis=0)
        return max(float(square - mean**2), 1e-300)

    def least(self, axis: FloatArray, ratio: float) -> tuple[FloatArray, FloatArray]:
        """The least g in each cell of levels and where it is, exact but for floats."""
        low, high = self.roots.T
        mass = self.moments[:, 0]
        cells = np.stack([mass * low * high, -mass * (low + high), mass])
        rows = np.concatenate([self.ends.T, np.zeros((1, 2))])
        with np.errstate(divide="ignore", invalid="ignore"):
            turns = -self.ends[:, 0] / self.ends[:, 1]
        roots = np.concatenate([self.roots.ravel(), turns[np.isfinite(turns)]])
        return least_of_quadratics(np.concatenate([cells, rows], axis=1), roots, axis, ratio)

    def mirrored(self) -> Cut:
        """The same cut for inputs and levels with their signs changed."""
        flip = np.array([1.0, -1.0])
        return Cut(
            edges=-self.edges[::-1],
            roots=-self.roots[::-1, ::-1],
            ends=self.ends[::-1] * flip,
            moments=self.moments[::-1] * np.array([1.0, -1.0, 1.0]),
        )


def cut_at(
    levels: FloatArray, ratio: float, problem: Problem, *, spread: float = 1e-4, doubt: float | None = None
) -> tuple[Cut, FloatArray]:
    """The cut of the best design on these levels (centred units) for the problem's prior, and its floors (m,).

    Arguments:
        doubt: see `best_floors`: any multipliers give a cut.
    """
    span = problem.lower, problem.upper
    prior, between = condensed(problem.prior, *span)
    law = law_of(prior, *span, spread=spread)
    optimum = best_floors(levels, ratio, law, "mse", doubt=doubt)
    windows = make_windows(levels, optimum.floors, ratio)
    means = np.clip(windows.means, -1.0, 1.0)
    means[0], means[-1] = -1.0, 1.0
    wide = np.diff(means) > 0
    pairs = np.stack([levels[windows.left], levels[windows.right]], axis=1)[wide]
    edges = np.concatenate([means[:-1][wide], [1.0]])
    if isinstance(prior, SamplePrior) and has_few_atoms(prior):
        # Any split of the point masses gives a bound; that of the law does so with these multipliers.
        points, masses = centred_atoms(prior, *span)
        moments = split_atoms(points, masses, edges, spread) @ points[:, None] ** np.arange(3)
    else:
        moments = np.diff(exact_law(prior, *span, edges).integrals(edges), axis=0)
    moments[0, 2] += between / (problem.width / 2) ** 2
    return Cut(edges=edges, roots=np.sort(pairs, axis=1), ends=optimum.ends, moments=moments), optimum.floors
