"""The privacy that a design asks of every two inputs: one class to a guarantee.

A constraint is a part of the program (`part`), the certified value of a finished table (`spent`),
and a test of two levels alone (`holds`); one about more pairs of inputs than a program can hold
also measures its violation by rows (`excess`). To add a guarantee, add a class, and a line to
`make_constraint`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, final

import numpy as np

from mezzotint.core.arguments import check_finite
from mezzotint.core.errors import InfeasibleError, ParameterError, as_real
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL, FloatArray, IndexArray
from mezzotint.design.cones import (
    ProgramPart,
    delta_part,
    pair_ratio_part,
    ratio_part,
    renyi_part,
)
from mezzotint.privacy.tradeoffs import metric_epsilon, spacing_of

Metric = Literal["absolute", "squared"]

LARGEST_EPSILON = 22.0
"""e**22 is 2**31.7: beyond it a 32-bit table cannot express the ratio, and a design would be the
same as at 22."""

LEAST_EPSILON = 1e-8
"""Of pure tables: 2**32 units cannot tell inputs apart that are more alike."""

LEAST_ORDER = 1 + 1e-5
LARGEST_ORDER = 1e4
"""Renyi orders that the solver can work with."""

_LEAST_PROBABILITY = 1e-15
"""In logarithms of probabilities that may be off."""

_ONE_ROUNDING = 1 + 1e-14
"""Two levels are tested in floats: every probability has one rounding."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """The rows that a constraint is about.

    Arguments:
        knots: (K,) the inputs of the rows, data units.
        levels: (m,) what their entries are the probabilities of.
        spare: by how much any probability may be off afterwards.
        spare_rounding: True for a table, False for a bound, which uses the whole delta.
    """

    knots: FloatArray
    levels: FloatArray
    spare: float = 0.0
    spare_rounding: bool = True


def _losses(rows: FloatArray, spare: float) -> tuple[FloatArray, FloatArray]:
    """(R, R, m) log-ratios of row a to row b, each probability `spare` off; (R, m) logs of b's."""
    low = np.log(np.maximum(rows - spare, _LEAST_PROBABILITY))
    high = np.log(np.maximum(rows + spare, _LEAST_PROBABILITY))
    return high[:, None] - low, low


def _two_level_rows(
    bottom: float,
    top: float,
    means: FloatArray,
) -> FloatArray:
    """(2, n) probabilities of two levels, bottom's first, that give these means.

    They are distances of two given numbers over the span: none is one minus another, which would
    lose the digits of a level just outside the range.
    """
    rows: FloatArray = np.array([top - means, means - bottom]) / (top - bottom)
    return rows


@dataclass(frozen=True, kw_only=True)
class Constraint(ABC):
    """A guarantee about every two inputs.

    Arguments:
        epsilon: the requested value; designs aim at a smaller one, which methods take.
    """

    epsilon: float

    is_pure: ClassVar[bool] = False
    by_distance: ClassVar[bool] = False
    """Whether the guarantee depends on the distance of two inputs."""

    needs_knots: ClassVar[bool] = False
    """Whether it speaks about given inputs only, so that none can be added."""

    @abstractmethod
    def part(
        self,
        rows: Rows,
        pairs: IndexArray,
        epsilon: float,
    ) -> ProgramPart:
        """Return the constraint on these (P, 2) pairs of rows as a part of a program."""

    @abstractmethod
    def spent(self, mechanism: Mechanism) -> float:
        """Return the certified value of the integers: at most `epsilon` where the guarantee
        holds.
        """

    @abstractmethod
    def holds(
        self,
        bottom: float,
        top: float,
        means: FloatArray,
    ) -> bool:
        """Whether reports of `bottom` and `top` alone obey it.

        Arguments:
            means: (n,) increasing, of the reports at n inputs, each in [bottom, top]: a report is
                `top` with probability (mean - bottom) / (top - bottom). Where the guarantee depends
                on distances (`by_distance`), reports are unbiased, and these are the n inputs.
        """

    def check_knots(self, knots: FloatArray) -> None:  # noqa: B027
        """Raise ParameterError for knots on which the guarantee cannot be stated."""


class PairConstraint(Constraint):
    """A guarantee whose pairs of inputs are added to a program as rows violate them."""

    @abstractmethod
    def excess(
        self,
        rows: Rows,
        values: FloatArray,
        epsilon: float,
    ) -> FloatArray:
        """(R, R) how far each ordered pair of the (R, m) rows is beyond it; <= 0 within."""


@final
@dataclass(frozen=True, kw_only=True)
class Pure(Constraint):
    """Pure epsilon: P[a, i] <= e**epsilon P[b, i] for all rows and levels."""

    is_pure = True

    def part(
        self,
        rows: Rows,
        pairs: IndexArray,
        epsilon: float,
    ) -> ProgramPart:
        return partial(ratio_part, epsilon=epsilon)

    def spent(self, mechanism: Mechanism) -> float:
        return mechanism.epsilon

    def holds(
        self,
        bottom: float,
        top: float,
        means: FloatArray,
    ) -> bool:
        return _sticks_hold(_two_level_rows(bottom, top, means), self.epsilon, 0.0)


@final
@dataclass(frozen=True, kw_only=True)
class Approximate(PairConstraint):
    """(epsilon, delta): sum_i max(P[a, i] - e**epsilon P[b, i], 0) <= delta for all rows."""

    delta: float

    def _delta(self, rows: Rows) -> float:
        """Return delta less what rounding to integers can add to the divergence of two rows.

        Raises:
            ParameterError: a delta that 32-bit weights cannot resolve.
        """
        if not rows.spare_rounding:
            return self.delta
        rounding = 2 * rows.levels.size * (1 + math.exp(self.epsilon)) / TOTAL
        if self.delta <= 2 * rounding:
            resolution = f"no delta up to {2 * rounding:.2g}"
            if 2 * rounding >= 1:
                resolution = "no delta at this epsilon"
            remedy = f"a 32-bit table resolves {resolution}; use delta=0"
            raise ParameterError("delta", self.delta, remedy)
        return self.delta - rounding

    def part(
        self,
        rows: Rows,
        pairs: IndexArray,
        epsilon: float,
    ) -> ProgramPart:
        return partial(
            delta_part,
            pairs=pairs,
            epsilon=epsilon,
            delta=self._delta(rows),
        )

    def excess(
        self,
        rows: Rows,
        values: FloatArray,
        epsilon: float,
    ) -> FloatArray:
        ratio = math.exp(epsilon)
        sticks = [np.maximum(values - ratio * row, 0).sum(axis=1) for row in values]
        return np.stack(sticks, axis=1) - self._delta(rows)

    def spent(self, mechanism: Mechanism) -> float:
        if mechanism.delta(self.epsilon) <= self.delta:
            return 0.0
        return math.inf

    def holds(
        self,
        bottom: float,
        top: float,
        means: FloatArray,
    ) -> bool:
        return _sticks_hold(_two_level_rows(bottom, top, means), self.epsilon, self.delta)


def _sticks_hold(
    rows: FloatArray,
    epsilon: float,
    delta: float,
) -> bool:
    """Whether two outcomes, of increasing and of decreasing probability, obey (epsilon, delta)."""
    (bottom_low, top_low), (bottom_high, top_high) = rows[:, 0], rows[:, -1]
    ratio = math.exp(epsilon) * _ONE_ROUNDING
    return bool(top_high - ratio * top_low <= delta and bottom_low - ratio * bottom_high <= delta)


@final
@dataclass(frozen=True, kw_only=True)
class Renyi(PairConstraint):
    """Renyi divergence of a finite order: sum_i P[a, i]**order P[b, i]**(1 - order) is limited."""

    order: float

    def part(
        self,
        rows: Rows,
        pairs: IndexArray,
        epsilon: float,
    ) -> ProgramPart:
        return partial(
            renyi_part,
            pairs=pairs,
            alpha=self.order,
            epsilon=epsilon,
            spare=rows.spare,
        )

    def excess(
        self,
        rows: Rows,
        values: FloatArray,
        epsilon: float,
    ) -> FloatArray:
        losses, low = _losses(values, rows.spare)
        terms = self.order * losses + low
        largest = terms.max(axis=2)
        scaled_sums = np.exp(terms - largest[:, :, None]).sum(axis=2)
        moments = largest + np.log(scaled_sums)
        return moments / (self.order - 1) - epsilon

    def spent(self, mechanism: Mechanism) -> float:
        return mechanism.renyi(self.order)

    def holds(
        self,
        bottom: float,
        top: float,
        means: FloatArray,
    ) -> bool:
        rows = _two_level_rows(bottom, top, means)
        forwards = _divergence(rows[:, 0], rows[:, -1], self.order)
        backwards = _divergence(rows[:, -1], rows[:, 0], self.order)
        return max(forwards, backwards) <= self.epsilon * _ONE_ROUNDING


def _divergence(
    first: FloatArray,
    second: FloatArray,
    order: float,
) -> float:
    """Renyi divergence of one distribution on two outcomes from another."""
    is_possible = first > 0
    first_mass = first[is_possible]
    second_mass = second[is_possible]
    with np.errstate(divide="ignore"):
        # Of the terms p (p / q)**(order - 1), which may overflow.
        exponents = np.log(first_mass) + (order - 1) * np.log(first_mass / second_mass)
    return float(np.logaddexp.reduce(exponents)) / (order - 1)


@final
@dataclass(frozen=True, kw_only=True)
class AbsoluteMetric(Constraint):
    """P[a, i] <= e**(epsilon |x_a - x_b|) P[b, i] for all real inputs: neighbours tell it."""

    by_distance = True

    def part(
        self,
        rows: Rows,
        pairs: IndexArray,
        epsilon: float,
    ) -> ProgramPart:
        distances = np.abs(rows.knots[pairs[:, 0]] - rows.knots[pairs[:, 1]])
        # Between knots rows are linear: their slope counts, not the exponential.
        return partial(
            pair_ratio_part,
            pairs=pairs,
            ratios=1 + epsilon * distances,
            spare=rows.spare,
        )

    def spent(self, mechanism: Mechanism) -> float:
        return metric_epsilon(mechanism, "absolute")

    def holds(
        self,
        bottom: float,
        top: float,
        means: FloatArray,
    ) -> bool:
        if means[0] <= bottom or means[-1] >= top:
            return False
        smallest = float(_two_level_rows(bottom, top, means).min())
        # The chance is linear in the input: its slope is at most epsilon times its least value.
        return 1 / (top - bottom) <= self.epsilon * _ONE_ROUNDING * smallest


@final
@dataclass(frozen=True, kw_only=True)
class SquaredMetric(PairConstraint):
    """P[a, i] <= e**(epsilon (x_a - x_b)**2) P[b, i] on a grid of even knots."""

    by_distance = True
    needs_knots = True

    _LARGEST_LOSS: ClassVar[float] = 40.0
    """Beyond every ratio of 32-bit weights."""

    def _allowed(self, first: FloatArray, second: FloatArray, epsilon: float) -> FloatArray:
        """The largest loss between inputs, the guarantee itself; `spent` measures the same."""
        return epsilon * (first - second) ** 2

    def check_knots(self, knots: FloatArray) -> None:
        spacing_of(knots)

    def part(
        self,
        rows: Rows,
        pairs: IndexArray,
        epsilon: float,
    ) -> ProgramPart:
        allowed = self._allowed(rows.knots[pairs[:, 0]], rows.knots[pairs[:, 1]], epsilon)
        ratios = np.exp(np.minimum(allowed, self._LARGEST_LOSS))
        return partial(
            pair_ratio_part,
            pairs=pairs,
            ratios=ratios,
            spare=rows.spare,
        )

    def excess(
        self,
        rows: Rows,
        values: FloatArray,
        epsilon: float,
    ) -> FloatArray:
        losses = _losses(values, rows.spare)[0].max(axis=2)
        return losses - self._allowed(rows.knots[:, None], rows.knots, epsilon)

    def spent(self, mechanism: Mechanism) -> float:
        return metric_epsilon(mechanism, "squared")

    def holds(
        self,
        bottom: float,
        top: float,
        means: FloatArray,
    ) -> bool:
        if means[0] <= bottom or means[-1] >= top:
            return False
        rows = _two_level_rows(bottom, top, means)
        ratios = rows[:, :, None] / rows[:, None, :]
        losses = np.abs(np.log(ratios)).max(axis=0)
        allowed = self._allowed(means[:, None], means, self.epsilon * _ONE_ROUNDING)
        return bool((losses <= allowed).all())


def make_constraint(
    *,
    epsilon: float,
    delta: float = 0.0,
    alpha: float | None = None,
    metric: str | None = None,
) -> Constraint:
    """Return the constraint of a caller's values; alpha=inf is pure epsilon.

    Raises:
        ParameterError: a value out of range, or more than one of delta, alpha and metric.
        InfeasibleError: a pure epsilon that no table of integers can show.
    """
    epsilon = check_finite("epsilon", epsilon)
    delta = check_finite("delta", delta)
    if alpha is not None:
        remedy = "the Renyi order must exceed 1; inf is pure epsilon"
        alpha = as_real("alpha", alpha, lambda order: order > 1, remedy)
    if not epsilon > 0:
        raise ParameterError("epsilon", epsilon, "must be positive; try epsilon=1.0")
    if metric is None and epsilon > LARGEST_EPSILON:
        remedy = f"a table of 32-bit weights supports epsilon up to {LARGEST_EPSILON:g}"
        raise ParameterError("epsilon", epsilon, remedy)
    if not 0 <= delta < 1:
        raise ParameterError("delta", delta, "must be in [0, 1); 0 is pure differential privacy")
    if metric not in (None, "absolute", "squared"):
        raise ParameterError("metric", metric, 'use "absolute" or "squared", or leave it out')
    if alpha is not None and not (LEAST_ORDER <= alpha <= LARGEST_ORDER or alpha == math.inf):
        implying = "inf, pure epsilon, implies it"
        if alpha < 2:
            implying = f"{LEAST_ORDER!r} implies it"
        raise ParameterError("alpha", alpha, f"no order for a solver; {implying}")
    if (delta > 0) + (alpha is not None) + (metric is not None) > 1:
        remedy = "delta=, alpha= and metric= are three different guarantees; give only one"
        raise ParameterError("delta", delta, remedy)
    if delta > 0:
        return Approximate(epsilon=epsilon, delta=delta)
    if metric == "absolute":
        return AbsoluteMetric(epsilon=epsilon)
    if metric == "squared":
        return SquaredMetric(epsilon=epsilon)
    if alpha is not None and alpha < math.inf:
        return Renyi(epsilon=epsilon, order=alpha)
    if epsilon < LEAST_EPSILON:
        raise InfeasibleError(
            f"epsilon={epsilon:g}: 2**32 units cannot tell inputs so little apart; ask for "
            f"{LEAST_EPSILON:g} or more"
        )
    return Pure(epsilon=epsilon)
