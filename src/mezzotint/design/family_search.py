"""The best member of a closed-form family at an epsilon: a search over shape numbers, and over the
privacy parameter for each shape.

Everything is in floats on the range [-1, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal, cast, final

import numpy as np
from scipy.optimize import brentq, minimize

from mezzotint.core.errors import InfeasibleError
from mezzotint.core.priors import Prior, cost_matrix
from mezzotint.core.search import bracket
from mezzotint.core.types import TOTAL, FloatArray
from mezzotint.families.numeric import erm_rows, rqm_rows

Batch = tuple[FloatArray, FloatArray, FloatArray]
"""Levels (m,), knots (K,) and the rows (D, K, m) of D privacy parameters."""

_MANY_LEVELS = 32
"""Beyond this many levels the arithmetic of a row costs more than the call: fewer positions are
tried at once.
"""

_CLOSEST = 1e-4
"""Bins closer together than this share of the outermost would only be one bin twice, and are beyond
rounding.
"""

_LEAST_POWER = 0.25
_LARGEST_POWER = 8.0
"""Of the spacing of ERM's bins: they lie at +-R u**power, u even."""

_LARGEST_GAMMA = 400.0


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class SearchedFamily:
    """A family with one privacy parameter: the rows at many of its values at once, for given shape
    numbers, on [-1, 1].

    The search scans the privacy parameters and refines in between; it starts on the grid of shape
    numbers that `axes` make, and there is only the privacy parameter without one. A large family
    has so long rows that it tries fewer.
    """

    is_large: bool
    privacy_parameters: FloatArray
    """(D,) increasing."""

    axes: list[FloatArray]

    batch: Callable[[FloatArray, FloatArray], Batch]
    """Of shape numbers and privacy parameters."""

    name: Callable[[FloatArray, float, float], str]
    """Of shape numbers, privacy parameter and half the range, data units."""


def rqm_family(
    levels: int,
    least: float,
    most: float,
    bins: FloatArray | None,
) -> SearchedFamily:
    """RQM: the privacy parameter is q, the shape number the log of the outermost bin, `least` to
    `most` half ranges.
    """
    is_large = levels > _MANY_LEVELS
    logits = np.linspace(-9, 9, 13 if is_large else 37)
    inner_parameters = 1 / (1 + np.exp(-logits))
    axis = np.linspace(math.log(least), math.log(most), 12 if is_large else 32)

    def extension(shape: FloatArray) -> float:
        outermost = math.exp(shape[0]) if bins is None else float(bins[-1])
        return max(outermost - 1, 0.0)

    def batch(shape: FloatArray, parameters: FloatArray) -> Batch:
        extension_reach = extension(shape)
        return rqm_rows(
            lower=-1.0,
            upper=1.0,
            levels=levels,
            extension=extension_reach,
            q=parameters,
        )

    def name(
        shape: FloatArray,
        parameter: float,
        half_range: float,
    ) -> str:
        extension_reach = extension(shape) * half_range
        return f"RQM(levels={levels}, extension={extension_reach:.6g}, q={parameter:.6g})"

    return SearchedFamily(
        is_large=is_large,
        privacy_parameters=np.concatenate([[0.0], inner_parameters, [1.0]]),
        axes=[axis] if bins is None else [],
        batch=batch,
        name=name,
    )


def erm_family(
    levels: int,
    least: float,
    most: float,
    bins: FloatArray | None,
) -> SearchedFamily:
    """ERM on symmetric bins +-R u**p, u even on [0, 1]: the privacy parameter is gamma, the shape
    (log R, log p).
    """
    is_large = levels > _MANY_LEVELS
    even_bins = np.linspace(-1, 1, levels)
    axes: list[FloatArray] = []
    if bins is None:
        axes.append(np.linspace(math.log(least), math.log(most), 12))
    if bins is None and levels >= 4:  # there is an inner bin to move
        innermost = 2 / (levels - 1) if levels % 2 else 1 / (levels - 1)
        closest_power = math.log(_CLOSEST) / math.log(innermost)
        largest_power = min(_LARGEST_POWER, closest_power)
        axes.append(np.linspace(math.log(_LEAST_POWER), math.log(largest_power), 9))

    def bins_of(shape: FloatArray) -> FloatArray:
        if bins is not None:
            return bins
        power = math.exp(shape[1]) if len(shape) > 1 else 1.0
        unit_bins = np.sign(even_bins) * np.abs(even_bins) ** power
        return math.exp(shape[0]) * unit_bins

    def batch(shape: FloatArray, parameters: FloatArray) -> Batch:
        levels_at = bins_of(shape)
        knots, rows = erm_rows(
            levels_at,
            lower=-1.0,
            upper=1.0,
            gamma=parameters,
        )
        return levels_at, knots, rows

    def name(
        shape: FloatArray,
        parameter: float,
        half_range: float,
    ) -> str:
        return f"ERM(levels={levels}, gamma={parameter:.6g})"

    largest = math.asinh(_LARGEST_GAMMA)
    return SearchedFamily(
        is_large=is_large,
        privacy_parameters=np.sinh(np.linspace(-largest, largest, 21 if is_large else 41)),
        axes=axes,
        batch=batch,
        name=name,
    )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Member:
    """A member of a family: its shape numbers, privacy parameter and float loss on [-1, 1]."""

    loss: float
    epsilon: float
    shape: FloatArray
    privacy_parameter: float


def float_epsilon(rows: FloatArray) -> FloatArray:
    """(D,) pure epsilons of batched rows as a table would have them: what is possible has one unit
    at least.
    """
    possible = np.where(rows > 0, np.maximum(rows, 1.0 / TOTAL), 0.0)
    largest = possible.max(axis=-2)
    smallest = possible.min(axis=-2)
    is_reported = largest > 0
    with np.errstate(divide="ignore"):
        all_largest = np.where(is_reported, largest, 1.0)
        all_smallest = np.where(is_reported, smallest, 1.0)
        log_largest = np.log(all_largest)
        log_smallest = np.log(all_smallest)
    return (log_largest - log_smallest).max(axis=-1)


def _apart(
    members: list[Member],
    axes: list[FloatArray],
    most: int,
) -> list[Member]:
    """The first feasible members of a sorted list that are no neighbours of each other on the
    grid.
    """
    steps = np.array([axis[1] - axis[0] for axis in axes])
    chosen: list[Member] = []
    for member in members:
        distances = [np.abs(member.shape - chosen_member.shape) for chosen_member in chosen]
        is_apart = all((distance > 1.5 * steps).any() for distance in distances)
        if member.loss < math.inf and is_apart and len(chosen) < most:
            chosen.append(member)
    return chosen


_STARTS = 2
"""Points on the grid of shapes from which a simplex search starts; one for large families."""

_INFEASIBLE_LOSS = 1e300
"""Of shapes without a member, for a search that needs finite numbers."""

_HALVINGS = 26
"""Of an interval between two scanned privacy parameters."""

_LARGEST_EXCESS = 50.0
"""Of an epsilon, which may be infinite, beyond the one asked for: a search needs numbers."""


@final
class FamilySearch:
    """Minimise the loss of a family's members whose float epsilon is at most `epsilon`.

    Shapes are minimised over by scipy, and for each shape the privacy parameter by a scan and
    bisections. `evaluations` counts shapes.
    """

    def __init__(
        self,
        family: SearchedFamily,
        *,
        epsilon: float,
        loss: Literal["mse", "mae"],
        prior: Prior,
    ) -> None:
        self.family = family
        self.epsilon = epsilon
        self.loss: Literal["mse", "mae"] = loss
        self.prior = prior
        self.evaluations = 0

    def _evaluate(
        self,
        shape: FloatArray,
        parameters: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """(D,) losses and epsilons."""
        levels, knots, rows = self.family.batch(shape, parameters)
        costs = cost_matrix(
            knots=knots,
            levels=levels,
            prior=self.prior,
            loss=self.loss,
        )
        return np.einsum("dkm,km->d", rows, costs), float_epsilon(rows)

    def _edge(
        self,
        shape: FloatArray,
        inside: float,
        outside: float,
    ) -> float:
        """The parameter next to `outside` that still meets epsilon.

        Between two scanned parameters epsilon is smooth: scipy finds where it crosses in fewer
        evaluations than a bisection, which follows only where the crossing is no simple one.
        """

        def excess(parameter: float) -> float:
            _, _, rows = self.family.batch(shape, np.array([parameter]))
            epsilon = float(float_epsilon(rows)[0])
            return min(epsilon - self.epsilon, _LARGEST_EXCESS)

        if excess(inside) > 0 or excess(outside) <= 0:
            return inside
        resolution = abs(outside - inside) * 2.0**-_HALVINGS
        root = cast(float, brentq(excess, inside, outside, xtol=resolution))
        edge = root + math.copysign(resolution, inside - outside)
        if excess(edge) <= 0:
            return edge
        return bracket(lambda parameter: excess(parameter) <= 0, inside, edge, steps=_HALVINGS)[0]

    def best(self, shape: FloatArray) -> Member:
        """The best member of a shape; loss inf, with the least epsilon, if none meets epsilon.

        Epsilon need not be monotone in the privacy parameter: the best scanned one that meets it is
        a candidate, and so is every place where it crosses, unless both ends are worse than that.
        """
        self.evaluations += 1
        parameters = self.family.privacy_parameters
        losses, epsilons = self._evaluate(shape, parameters)
        meets = epsilons <= self.epsilon
        if not meets.any():
            smallest = int(np.argmin(epsilons))
            return Member(
                loss=math.inf,
                epsilon=float(epsilons[smallest]),
                shape=shape,
                privacy_parameter=float(parameters[smallest]),
            )
        valid_losses = np.where(meets, losses, np.inf)
        best_index = int(np.argmin(valid_losses))
        better_ends = np.minimum(losses[:-1], losses[1:])
        is_promising = better_ends <= losses[best_index]
        is_crossing = meets[:-1] != meets[1:]
        candidates = [float(parameters[best_index])]
        for index in np.flatnonzero(is_crossing & is_promising).tolist():
            parameter_start = float(parameters[index])
            parameter_stop = float(parameters[index + 1])
            if meets[index]:
                candidates.append(self._edge(shape, parameter_start, parameter_stop))
            else:
                candidates.append(self._edge(shape, parameter_stop, parameter_start))
        losses, epsilons = self._evaluate(shape, np.array(candidates))
        best_index = int(np.argmin(losses))
        return Member(
            loss=float(losses[best_index]),
            epsilon=float(epsilons[best_index]),
            shape=shape,
            privacy_parameter=candidates[best_index],
        )

    def run(self) -> Member:
        """The best member found: a grid of shapes, then scipy's simplex search from the best.

        Raises:
            InfeasibleError: no shape of the grid meets epsilon.
        """
        axes = self.family.axes
        shapes = np.zeros((1, 0))
        if axes:
            grids = np.meshgrid(*axes, indexing="ij")
            shapes = np.stack(grids, axis=-1).reshape(-1, len(axes))
        results = [self.best(shape) for shape in shapes]
        members = sorted(results, key=attrgetter("loss"))
        if axes:
            starts = _apart(members, axes, 1 if self.family.is_large else _STARTS)
            members += [self._improve(start) for start in starts]
        best_member = min(members, key=attrgetter("loss"))
        if best_member.loss == math.inf:
            least_epsilon = min(member.epsilon for member in members)
            raise InfeasibleError(
                f"epsilon={self.epsilon:g}: this family reaches no less than epsilon={least_epsilon:.6g} "
                "on these levels; ask for a larger epsilon, give an int to have the levels chosen, or "
                "raise max_level"
            )
        return best_member

    def _improve(self, start: Member) -> Member:
        """The best member that a simplex search from `start` meets."""
        members = [start]

        def loss(shape: FloatArray) -> float:
            member = self.best(np.array(shape))
            members.append(member)
            return min(member.loss, _INFEASIBLE_LOSS)

        lows = np.array([axis[0] for axis in self.family.axes])
        highs = np.array([axis[-1] for axis in self.family.axes])
        steps = np.array([axis[1] - axis[0] for axis in self.family.axes])
        neighbours = start.shape + np.diag(steps) / 2
        corners = np.stack([start.shape, *neighbours])
        options = {
            "initial_simplex": np.clip(corners, lows, highs),
            "xatol": 1e-4,
            "fatol": 1e-7 * start.loss,
            "maxfev": 30 * lows.size,
        }
        bounds = list(zip(lows, highs, strict=True))
        minimize(
            loss,
            start.shape,
            method="Nelder-Mead",
            bounds=bounds,
            options=options,
        )
        return min(members, key=attrgetter("loss"))
