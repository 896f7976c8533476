"""What a table says about the variance of a decoded report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import final

import numpy as np

from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import FloatArray
from mezzotint.privacy.hulls import hull as lower_hull

ROUNDING = 1e-12
"""Numbers that differ by a smaller share of a table's reach are one number."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Spread:
    """Bounds on the variance of one decoded report, given its mean, over all distributions of the
    input.

    With mu = E[B] and S = E[B^2], a distribution of inputs reaches any point of the convex hull of
    the rows' (mu, S): the variance S - mu^2 lies between the lower and the upper hull at mu.

    Arguments:
        pmf: (K, c) probabilities of the codes from each row.
        values: (c,) what the codes are decoded to.
    """

    pmf: FloatArray
    values: FloatArray

    @cached_property
    def used(self) -> FloatArray:
        """Values that can occur, increasing; those that rounding alone tells apart are one."""
        occurring = np.unique(self.values[self.pmf.any(axis=0)])
        apart = np.diff(occurring, prepend=-math.inf) > 1e3 * ROUNDING * np.ptp(occurring)
        return occurring[apart]

    @cached_property
    def bottom(self) -> float:
        """Least value that can occur."""
        return float(self.used[0])

    @cached_property
    def top(self) -> float:
        """Greatest value that can occur."""
        return float(self.used[-1])

    @property
    def reach(self) -> float:
        """Greatest used value less the least."""
        return self.top - self.bottom

    @cached_property
    def means(self) -> FloatArray:
        """(K,) expected value from each row."""
        return self._centre + self.pmf @ (self.values - self._centre)

    @cached_property
    def _centre(self) -> float:
        return (self.bottom + self.top) / 2

    @cached_property
    def _points(self) -> FloatArray:
        # About the centre, so that values far from 0 do not cancel.
        centred = self.values - self._centre
        return np.stack([self.pmf @ centred, self.pmf @ centred**2], axis=1)

    @cached_property
    def variances(self) -> FloatArray:
        """(K,) variance of the report from each row; at no input is it below the least of these."""
        deviation = self.values - self.means[:, None]
        return np.einsum("ki,ki->k", self.pmf, deviation**2)

    @cached_property
    def _lower_hull(self) -> FloatArray:
        return hull(self._points, sign=-1, tolerance=ROUNDING * self.reach)

    @cached_property
    def _upper_hull(self) -> FloatArray:
        return hull(self._points, sign=1, tolerance=ROUNDING * self.reach)

    def least(self, mean: FloatArray) -> FloatArray:
        """Least variance at each mean (outside the rows' means: at the nearest)."""
        return _variance_on(self._lower_hull, mean - self._centre)

    def greatest(self, mean: FloatArray) -> FloatArray:
        """Greatest variance at each mean."""
        return _variance_on(self._upper_hull, mean - self._centre)

    def least_between(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """Least variance at any mean of each range; on an edge of the hull it is concave."""
        smallest = np.minimum(self.least(low), self.least(high))
        for vertex, square in self._lower_hull.tolist():
            vertex_mean = vertex + self._centre
            inside = (low <= vertex_mean) & (vertex_mean <= high)
            smallest = np.where(
                inside,
                np.minimum(smallest, square - vertex**2),
                smallest,
            )
        return np.maximum(smallest, 0.0)

    def greatest_between(self, low: FloatArray, high: FloatArray) -> FloatArray:
        """Greatest variance at any mean of each range: it is concave in the mean."""
        mean_of_greatest, _ = self._peak
        return self.greatest(np.clip(mean_of_greatest, low, high))

    @cached_property
    def turns(self) -> FloatArray:
        """Means between which the greatest variance rises or falls: of its hull and its peak."""
        hull_means = self._upper_hull[:, 0] + self._centre
        return np.append(hull_means, self._peak[0])

    @property
    def greatest_of_all(self) -> float:
        """Greatest variance over all distributions of the input."""
        return self._peak[1]

    @cached_property
    def rows_of_greatest(self) -> tuple[int, int, float]:
        """Two rows, and the share of the second, of which a mixture has the greatest variance."""
        peak_mean = self._peak[0] - self._centre
        vertices = self._upper_hull
        if len(vertices) == 1:  # all rows have one mean
            single_row = int(np.argmax(self.variances))
            return single_row, single_row, 0.0
        right = int(
            np.clip(
                np.searchsorted(vertices[:, 0], peak_mean),
                1,
                len(vertices) - 1,
            )
        )
        row_indices = [
            int(np.argmin(np.abs(self._points - vertices[index]).sum(axis=1)))
            for index in (right - 1, right)
        ]
        start = vertices[right - 1, 0]
        stop = vertices[right, 0]
        return (
            row_indices[0],
            row_indices[1],
            float(np.clip((peak_mean - start) / (stop - start), 0.0, 1.0)),
        )

    @cached_property
    def _peak(self) -> tuple[float, float]:
        """The mean at which the variance may be greatest, and that variance: edge by edge."""
        vertices = self._upper_hull
        variances = vertices[:, 1] - vertices[:, 0] ** 2
        first = int(np.argmax(variances))
        mean_of_greatest = float(vertices[first, 0])
        best = float(variances[first])
        for (x0, y0), (x1, y1) in pairwise(vertices.tolist()):
            slope = (y1 - y0) / (x1 - x0)
            turn = min(max(slope / 2, x0), x1)  # of y0 + slope (x - x0) - x^2
            variance = y0 + slope * (turn - x0) - turn * turn
            if variance > best:
                mean_of_greatest = turn
                best = variance
        return mean_of_greatest + self._centre, best

    @cached_property
    def lattice(self) -> float:
        """The cost of the values' discreteness to an interval around the mean, times n.

        Half the smallest distance of two values, where the reports form a lattice; more where rare
        far values make the reports skewed.
        """
        gaps = np.diff(self.used)
        # Values that are nearly one are one, or the step between the others would be overlooked.
        step = float(gaps[gaps > 1e-9 * self.reach].min(initial=self.reach))
        deviation = self.values - self.means[:, None]
        third = np.abs(np.einsum("ki,ki->k", self.pmf, deviation**3))
        noisy = self.variances > ROUNDING * self.reach**2
        skewed = 0.6 * float((third[noisy] / self.variances[noisy]).max(initial=0.0))
        return max(step / 2, skewed)

    @cached_property
    def widest_gap(self) -> float:
        """Largest distance of neighbouring values."""
        return float(np.diff(self.used).max(initial=0.0))


def _variance_on(vertices: FloatArray, centred: FloatArray) -> FloatArray:
    inside = np.clip(centred, vertices[0, 0], vertices[-1, 0])
    return np.maximum(
        np.interp(inside, vertices[:, 0], vertices[:, 1]) - inside**2,
        0.0,
    )


def hull(points: FloatArray, *, sign: int, tolerance: float) -> FloatArray:
    """Vertices of the lower (-1) or upper (1) hull of points in the plane, left to right.

    Points whose first coordinates differ by at most the tolerance count as one, of the farthest
    second coordinate: between them a slope would be made of rounding alone.
    """

    merged: list[list[float]] = []
    for abscissa, ordinate in points[np.argsort(points[:, 0], kind="stable")].tolist():
        if merged and abscissa - merged[-1][0] <= tolerance:
            merged[-1][1] = sign * max(sign * merged[-1][1], sign * ordinate)
        else:
            merged.append([abscissa, ordinate])
    corners = np.array(merged)
    return corners[lower_hull(corners[:, 0].tolist(), (-sign * corners[:, 1]).tolist())]


def spread_of(mechanism: Mechanism) -> Spread:
    """The spread of the table's own decoded reports."""
    return Spread(pmf=mechanism.probabilities, values=mechanism.levels)
