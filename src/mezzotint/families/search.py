"""Searching a closed-form family: one dial meets epsilon, a few shape numbers lower the loss.

All of it happens in floats on the range [-1, 1] and is only a search: what it finds becomes a table by integer
rounding, and the table's own integers say what its epsilon is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
from scipy.optimize import minimize

from mezzotint.core.errors import InfeasibleError
from mezzotint.core.mechanism import TOTAL, FloatArray
from mezzotint.core.priors import Prior, cost_matrix
from mezzotint.families.selection import erm_rows, rqm_rows

Batch = tuple[FloatArray, FloatArray, FloatArray]
"""Levels (m,), knots (K,) and the rows (D, K, m) of D dial positions."""

_MANY_LEVELS = 32
"""Beyond this many levels the arithmetic of a row costs more than the call: fewer positions are tried at once."""

_CLOSEST = 1e-4


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Family:
    """A family with one dial: for given shape numbers, the rows at many dial positions at once, on [-1, 1].

    Arguments:
        is_large: whether rows are so long that the search should spare them.
        dials: (D,) increasing dial positions that are scanned; in between the search refines.
        axes: of a grid of shape numbers, where the search starts. No axis: nothing but the dial.
        batch: from shape numbers and dial positions.
        name: what a member is called, from shape, dial and half the input range in data units.
    """

    is_large: bool
    dials: FloatArray
    axes: list[FloatArray]
    batch: Callable[[FloatArray, FloatArray], Batch]
    name: Callable[[FloatArray, float, float], str]


def rqm_family(levels: int, least: float, most: float, bins: FloatArray | None) -> Family:
    """RQM: the dial is q, the one shape number the log of the outermost bin, from `least` to `most` half ranges."""
    is_large = levels > _MANY_LEVELS
    inner = 1 / (1 + np.exp(-np.linspace(-9, 9, 13 if is_large else 37)))
    axis = np.linspace(math.log(least), math.log(most), 12 if is_large else 32)

    def extension(shape: FloatArray) -> float:
        return max((math.exp(shape[0]) if bins is None else float(bins[-1])) - 1, 0.0)

    return Family(
        is_large=is_large,
        dials=np.concatenate([[0.0], inner, [1.0]]),
        axes=[axis] if bins is None else [],
        batch=lambda shape, q: rqm_rows(lower=-1.0, upper=1.0, levels=levels, extension=extension(shape), q=q),
        name=lambda shape, q, half: f"RQM(levels={levels}, extension={extension(shape) * half:.6g}, q={q:.6g})",
    )


def erm_family(levels: int, least: float, most: float, bins: FloatArray | None) -> Family:
    """ERM on symmetric bins +-R u**p, u even on [0, 1]: the dial is gamma, the shape (log R, log p)."""
    even, axes = np.linspace(-1, 1, levels), [np.linspace(math.log(least), math.log(most), 12)]
    if levels >= 4:  # there is an inner bin to move
        # Bins closer together than this share of R would only be one bin twice, and are beyond rounding.
        first = 2 / (levels - 1) if levels % 2 else 1 / (levels - 1)
        axes.append(np.linspace(math.log(0.25), math.log(min(8.0, math.log(_CLOSEST) / math.log(first))), 9))

    def batch(shape: FloatArray, gamma: FloatArray) -> Batch:
        chosen = bins
        if chosen is None:
            power = math.exp(shape[1]) if len(shape) > 1 else 1.0
            chosen = math.exp(shape[0]) * np.sign(even) * np.abs(even) ** power
        return chosen, *erm_rows(chosen, lower=-1.0, upper=1.0, gamma=gamma)

    return Family(
        is_large=levels > _MANY_LEVELS,
        dials=np.sinh(np.linspace(-math.asinh(400), math.asinh(400), 21 if levels > _MANY_LEVELS else 41)),
        axes=axes if bins is None else [],
        batch=batch,
        name=lambda shape, gamma, half: f"ERM(levels={levels}, gamma={gamma:.6g})",
    )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """The best member found: its shape numbers, dial position and float loss on [-1, 1]."""

    loss: float
    epsilon: float
    shape: FloatArray
    dial: float


def float_epsilon(rows: FloatArray) -> FloatArray:
    """(D,) pure epsilons of batched rows as a table would have them: what is possible has one unit at least."""
    kept = np.where(rows > 0, np.maximum(rows, 1.0 / TOTAL), 0.0)
    high, low = kept.max(axis=-2), kept.min(axis=-2)
    with np.errstate(divide="ignore"):
        ratios = np.log(np.where(high > 0, high, 1.0)) - np.log(np.where(high > 0, low, 1.0))
    return ratios.max(axis=-1)


def _apart(settings: list[Setting], axes: list[FloatArray], most: int) -> list[Setting]:
    """The first few feasible settings of a sorted list that are no neighbours of each other on the grid."""
    steps = np.array([axis[1] - axis[0] for axis in axes])
    chosen: list[Setting] = []
    for setting in settings:
        far = all((np.abs(setting.shape - other.shape) > 1.5 * steps).any() for other in chosen)
        if setting.loss < math.inf and far and len(chosen) < most:
            chosen.append(setting)
    return chosen


@final
class Search:
    """Minimises the loss of a family's members with float epsilon <= `epsilon`; counts batches in `evaluations`."""

    def __init__(self, family: Family, *, epsilon: float, loss: Literal["mse", "mae"], prior: Prior) -> None:
        self.family = family
        self.epsilon = epsilon
        self.loss: Literal["mse", "mae"] = loss
        self.prior = prior
        self.evaluations = 0
        self.points, self.refinements, self.starts = (5, 10, 1) if family.is_large else (17, 6, 2)

    def _evaluate(self, shape: FloatArray, dials: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(D,) losses and epsilons."""
        self.evaluations += 1
        levels, knots, rows = self.family.batch(shape, dials)
        costs = cost_matrix(knots=knots, levels=levels, prior=self.prior, loss=self.loss)
        return np.einsum("dkm,km->d", rows, costs), float_epsilon(rows)

    def _edges(self, shape: FloatArray, inside: FloatArray, outside: FloatArray) -> FloatArray:
        """The dials next to `outside` that still meet epsilon: all intervals are cut together, again and again."""
        cut = np.linspace(0, 1, self.points)
        for _ in range(self.refinements):
            dials = inside[:, None] + (outside - inside)[:, None] * cut
            broken = self._evaluate(shape, dials.ravel())[1].reshape(dials.shape) > self.epsilon
            broken[:, 0], broken[:, -1] = False, True
            first = np.argmax(broken, axis=1)[:, None]
            inside, outside = (np.take_along_axis(dials, first - back, axis=1)[:, 0] for back in (1, 0))
        return inside

    def dial(self, shape: FloatArray) -> Setting:
        """The best dial for a shape; loss inf, with the least epsilon, where no dial position meets epsilon."""
        dials = self.family.dials
        losses, epsilons = self._evaluate(shape, dials)
        meets = epsilons <= self.epsilon
        # Epsilon need not be monotone in the dial: every place where it crosses is a candidate beside the best scanned
        # position that meets it, unless both of its ends are worse than that one.
        best = int(np.argmin(np.where(meets, losses, np.inf))) if meets.any() else int(np.argmin(epsilons))
        crossing = np.flatnonzero((meets[:-1] != meets[1:]) & (np.minimum(losses[:-1], losses[1:]) <= losses[best]))
        if meets.any() and crossing.size:
            inner, outer = np.where(meets[crossing], [crossing, crossing + 1], [crossing + 1, crossing])
            dials = np.append(self._edges(shape, dials[inner], dials[outer]), dials[best])
            losses, epsilons = self._evaluate(shape, dials)
            best = int(np.argmin(np.where(epsilons <= self.epsilon, losses, np.inf)))
        loss = float(losses[best]) if epsilons[best] <= self.epsilon else math.inf
        return Setting(loss=loss, epsilon=float(epsilons[best]), shape=shape, dial=float(dials[best]))

    def run(self) -> Setting:
        """The best member found: a grid of shapes, then a simplex search from the best of them.

        Raises:
            InfeasibleError: no shape and dial position meets epsilon; the message says what is the least.
        """
        axes = self.family.axes
        shapes = (
            np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes)) if axes else np.zeros((1, 0))
        )
        settings = sorted((self.dial(shape) for shape in shapes), key=_loss)
        settings += [self._improve(setting) for setting in _apart(settings, axes, self.starts) if axes]
        best = min(settings, key=_loss)
        if best.loss == math.inf:
            least = min(setting.epsilon for setting in settings)
            raise InfeasibleError(
                f"epsilon={self.epsilon:g}: this family reaches no less than epsilon={least:.6g} on these levels; "
                "ask for a larger epsilon, give an int to have the levels chosen, or raise max_level"
            )
        return best

    def _improve(self, start: Setting) -> Setting:
        tried = [start]

        def loss(shape: FloatArray) -> float:
            tried.append(self.dial(np.array(shape)))
            return min(tried[-1].loss, 1e300)

        bounds = [(axis[0], axis[-1]) for axis in self.family.axes]
        steps = [axis[1] - axis[0] for axis in self.family.axes]
        simplex = np.clip(np.stack([start.shape, *(start.shape + np.diag(steps) / 2)]), *np.array(bounds).T)
        options = {"initial_simplex": simplex, "xatol": 1e-4, "fatol": 1e-7 * start.loss, "maxfev": 30 * len(bounds)}
        minimize(loss, start.shape, method="Nelder-Mead", bounds=bounds, options=options)
        return min(tried, key=_loss)


def _loss(setting: Setting) -> float:
    return setting.loss
