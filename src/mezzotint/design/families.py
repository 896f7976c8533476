"""Searching a closed-form family: one dial meets epsilon, a few shape numbers lower the loss.

All of it happens in floats on the range [-1, 1] and is only a search: what it finds becomes a table by integer
rounding, and the table's own integers say what its epsilon is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, final

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from mezzotint.core.errors import InfeasibleError
from mezzotint.core.mechanism import TOTAL
from mezzotint.core.priors import Prior, cost_matrix
from mezzotint.families.selection import erm_rows, rqm_rows

FloatArray = npt.NDArray[np.float64]
Batch = tuple[FloatArray, FloatArray, FloatArray]
"""Levels (m,), knots (K,) and the rows (D, K, m) of D dial positions."""

_MANY_LEVELS = 32
"""Beyond this many levels the arithmetic of a row costs more than the call: fewer positions are tried at once."""

_CLOSEST = 1e-4


class Family(ABC):
    """A family with one dial: for given shape numbers, the rows at many dial positions at once, on [-1, 1]."""

    levels: int

    @property
    def many(self) -> bool:
        """Whether rows are so long that the search should spare them."""
        return self.levels > _MANY_LEVELS

    @property
    @abstractmethod
    def dials(self) -> FloatArray:
        """(D,) increasing dial positions that are scanned; in between the search refines."""

    @abstractmethod
    def batch(self, shape: FloatArray, dials: FloatArray) -> Batch:
        """Levels, knots and rows at the dial positions."""

    @abstractmethod
    def name(self, shape: FloatArray, dial: float, half: float) -> str:
        """What a member is called, with its parameters in data units; `half` is half the input range."""

    @abstractmethod
    def shapes(self) -> list[FloatArray]:
        """(S,) axes of a grid of shape numbers: where the search starts. No axis: nothing but the dial."""


@final
@dataclass(frozen=True, kw_only=True)
class RqmFamily(Family):
    """RQM: the dial is q, the one shape number is the log of the outermost bin."""

    levels: int
    least: float
    most: float
    reach: float | None = None

    @property
    def dials(self) -> FloatArray:
        inner = 1 / (1 + np.exp(-np.linspace(-9, 9, 13 if self.many else 37)))
        return np.concatenate([[0.0], inner, [1.0]])

    def _extension(self, shape: FloatArray) -> float:
        return max((self.reach if self.reach is not None else math.exp(shape[0])) - 1, 0.0)

    def batch(self, shape: FloatArray, dials: FloatArray) -> Batch:
        return rqm_rows(lower=-1.0, upper=1.0, levels=self.levels, extension=self._extension(shape), q=dials)

    def name(self, shape: FloatArray, dial: float, half: float) -> str:
        return f"RQM(levels={self.levels}, extension={self._extension(shape) * half:.6g}, q={dial:.6g})"

    def shapes(self) -> list[FloatArray]:
        return (
            []
            if self.reach is not None
            else [np.linspace(math.log(self.least), math.log(self.most), 12 if self.many else 32)]
        )


@final
@dataclass(frozen=True, kw_only=True)
class ErmFamily(Family):
    """ERM on symmetric bins +-R u**p, u even on [0, 1]: the dial is gamma, the shape (log R, log p)."""

    levels: int
    least: float
    most: float
    bins: FloatArray | None = None

    @property
    def dials(self) -> FloatArray:
        return np.sinh(np.linspace(-math.asinh(400), math.asinh(400), 21 if self.many else 41))

    def _bins(self, shape: FloatArray) -> FloatArray:
        if self.bins is not None:
            return self.bins
        even = np.linspace(-1, 1, self.levels)
        power = math.exp(shape[1]) if len(shape) > 1 else 1.0
        return math.exp(shape[0]) * np.sign(even) * np.abs(even) ** power

    def batch(self, shape: FloatArray, dials: FloatArray) -> Batch:
        bins = self._bins(shape)
        knots, rows = erm_rows(bins, lower=-1.0, upper=1.0, gamma=dials)
        return bins, knots, rows

    def name(self, shape: FloatArray, dial: float, half: float) -> str:
        return f"ERM(levels={self.levels}, gamma={dial:.6g})"

    def shapes(self) -> list[FloatArray]:
        if self.bins is not None:
            return []
        reach = np.linspace(math.log(self.least), math.log(self.most), 12)
        if self.levels < 4:
            return [reach]  # no inner bin to move
        # Bins closer together than this share of R would only be one bin twice, and are beyond rounding.
        first = 2 / (self.levels - 1) if self.levels % 2 else 1 / (self.levels - 1)
        steepest = min(8.0, math.log(_CLOSEST) / math.log(first))
        return [reach, np.linspace(math.log(0.25), math.log(steepest), 9)]


@final
@dataclass(frozen=True, kw_only=True)
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
        self.points, self.refinements, self.starts = (5, 10, 1) if family.many else (17, 6, 2)

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
            _, epsilons = self._evaluate(shape, dials.ravel())
            broken = epsilons.reshape(dials.shape) > self.epsilon
            broken[:, 0], broken[:, -1] = False, True
            first = np.argmax(broken, axis=1)[:, None]
            inside = np.take_along_axis(dials, first - 1, axis=1)[:, 0]
            outside = np.take_along_axis(dials, first, axis=1)[:, 0]
        return inside

    def dial(self, shape: FloatArray) -> Setting:
        """The best dial for a shape; loss inf, with the least epsilon, where no dial position meets epsilon."""
        dials = self.family.dials
        losses, epsilons = self._evaluate(shape, dials)
        meets = epsilons <= self.epsilon
        if not meets.any():
            least = int(np.argmin(epsilons))
            return Setting(loss=math.inf, epsilon=float(epsilons[least]), shape=shape, dial=float(dials[least]))
        # Epsilon need not be monotone in the dial: every place where it crosses is a candidate beside the best scanned
        # position that meets it, unless both of its ends are worse than that one.
        best = int(np.argmin(np.where(meets, losses, np.inf)))
        crossing = np.flatnonzero((meets[:-1] != meets[1:]) & (np.minimum(losses[:-1], losses[1:]) <= losses[best]))
        if crossing.size == 0:
            return Setting(
                loss=float(losses[best]), epsilon=float(epsilons[best]), shape=shape, dial=float(dials[best])
            )
        inner, outer = np.where(meets[crossing], [crossing, crossing + 1], [crossing + 1, crossing])
        candidates = np.append(self._edges(shape, dials[inner], dials[outer]), dials[best])
        losses, epsilons = self._evaluate(shape, candidates)
        losses = np.where(epsilons <= self.epsilon, losses, np.inf)
        best = int(np.argmin(losses))
        return Setting(
            loss=float(losses[best]), epsilon=float(epsilons[best]), shape=shape, dial=float(candidates[best])
        )

    def run(self) -> Setting:
        """The best member found: a grid of shapes, then a simplex search from the best of them.

        Raises:
            InfeasibleError: no shape and dial position meets epsilon; the message says what is the least.
        """
        axes = self.family.shapes()
        if not axes:
            settings = [self.dial(np.zeros(0))]
        else:
            grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))
            settings = sorted((self.dial(shape) for shape in grid), key=lambda s: s.loss)
            settings += [self._improve(s, axes) for s in _apart(settings, axes, self.starts)]
        best = min(settings, key=lambda s: s.loss)
        if best.loss == math.inf:
            least = min(s.epsilon for s in settings)
            raise InfeasibleError(
                f"epsilon={self.epsilon:g}: this family reaches no less than epsilon={least:.6g} on these levels; "
                "ask for a larger epsilon, give an int to have the levels chosen, or raise max_level"
            )
        return best

    def _improve(self, start: Setting, axes: list[FloatArray]) -> Setting:
        best = start

        def loss(shape: FloatArray) -> float:
            nonlocal best
            setting = self.dial(np.array(shape))
            best = min(best, setting, key=lambda s: s.loss)
            return setting.loss if setting.loss < math.inf else 1e300

        steps = [axis[1] - axis[0] for axis in axes]
        simplex = np.stack([start.shape, *(start.shape + np.diag(steps) / 2)])
        bounds = [(axis[0], axis[-1]) for axis in axes]
        minimize(
            loss,
            start.shape,
            method="Nelder-Mead",
            bounds=bounds,
            options={
                "initial_simplex": np.clip(simplex, *np.array(bounds).T),
                "xatol": 1e-4,
                "fatol": 1e-7 * start.loss,
                "maxfev": 30 * len(axes),
            },
        )
        return best
