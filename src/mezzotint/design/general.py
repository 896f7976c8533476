"""The optimum at given levels and knots beyond pure epsilon: constraints on pairs of rows, added as they are needed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from scipy.special import logsumexp

from mezzotint.core import rounding
from mezzotint.core.errors import InfeasibleError, MezzotintError, ParameterError
from mezzotint.core.loss import IndexArray
from mezzotint.core.mechanism import TOTAL, FloatArray, Mechanism
from mezzotint.design.fixed import ON_KNOTS, centered, program_on
from mezzotint.design.parts import DeltaPart, PairRatioPart, RenyiPart
from mezzotint.design.problem import Problem
from mezzotint.design.program import Part, Program, RatioPart, price_of_means
from mezzotint.design.rounding import Draft, without_unused
from mezzotint.design.solver import Solution, SolverError, safe_bound, solve
from mezzotint.privacy.metric import metric_epsilon, spacing_of

_UNITS = (0, 0, 0, 0, *(2 * 4**k for k in range(11)))
"""Units by which rounding may move a weight, one try after another, until the integers are certified."""

_MARGIN, _MOST = 2.0**-30, 1e-2
"""Least and largest relative reduction of epsilon, for solver and rounding."""

_SMALL = 1e-4
"""What is overspent by so little (relative) is made up for by asking for less."""

_VIOLATION = 1e-8
_ROUNDS = 30


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Setting:
    """A problem at fixed levels and knots, with what its program is made of.

    Arguments:
        spare_rounding: whether delta is reduced by what rounding may add: for a table; a bound uses all of it.
        spare: by how much any probability may be off while metrics and Renyi divergences still hold.
    """

    problem: Problem
    levels: FloatArray
    knots: FloatArray
    spare_rounding: bool = True
    spare: float = 0.0

    @cached_property
    def costs(self) -> FloatArray:
        """(K, m) of the problem."""
        return self.problem.costs(self.knots, self.levels)

    def part(self, pairs: IndexArray, epsilon: float) -> Part:
        """The privacy constraint on these pairs of rows."""
        problem = self.problem
        if problem.delta > 0:
            return DeltaPart(pairs=pairs, epsilon=epsilon, delta=self.delta if self.spare_rounding else problem.delta)
        if problem.alpha is not None:
            return RenyiPart(pairs=pairs, alpha=problem.alpha, epsilon=epsilon, spare=self.spare)
        distance = np.abs(self.knots[pairs[:, 0]] - self.knots[pairs[:, 1]])
        is_absolute = problem.metric == "absolute"
        ratios = 1 + epsilon * distance if is_absolute else np.exp(np.minimum(epsilon * distance**2, 40.0))
        return PairRatioPart(pairs=pairs, ratios=ratios, spare=self.spare)

    @property
    def delta(self) -> float:
        """delta less what rounding to integers can add to the hockey-stick divergence of two rows."""
        room = 2 * self.levels.size * (1 + math.exp(self.problem.epsilon)) / TOTAL
        if self.problem.delta <= 2 * room:
            raise ParameterError(
                "delta", self.problem.delta, f"below what a 32-bit table resolves here ({2 * room:.2g}); use delta=0"
            )
        return self.problem.delta - room

    def excess(self, rows: FloatArray, epsilon: float) -> FloatArray:
        """(R, R) how far each ordered pair of rows is beyond its constraint (<= 0: within)."""
        problem = self.problem
        if problem.delta > 0:
            ratio = math.exp(epsilon)
            sticks = np.stack([np.maximum(rows - ratio * row, 0).sum(axis=1) for row in rows], axis=1)
            return sticks - self.delta
        low = np.log(np.maximum(rows - self.spare, 1e-15))
        losses = np.log(np.maximum(rows + self.spare, 1e-15))[:, None] - low
        if problem.alpha is not None:
            return logsumexp(problem.alpha * losses + low, axis=2) / (problem.alpha - 1) - epsilon
        return losses.max(axis=2) - epsilon * (self.knots[:, None] - self.knots) ** 2

    def program(self, pairs: IndexArray, epsilon: float) -> Program:
        part = RatioPart(epsilon=epsilon) if self.problem.is_pure else self.part(pairs, epsilon)
        return program_on(self.problem, self.levels, self.knots, part, costs=self.costs)

    def first_pairs(self) -> IndexArray:
        """Pairs to start from: neighbours for a metric (all that "absolute" needs), the two ends otherwise."""
        last = self.knots.size - 1
        if self.problem.metric is None:
            return np.array([[0, last], [last, 0]], dtype=np.intp)
        near = np.arange(last)
        return np.concatenate([np.stack([near, near + 1], axis=1), np.stack([near + 1, near], axis=1)])

    def is_complete(self) -> bool:
        """Whether the first pairs are all that is needed."""
        return self.problem.is_pure or self.problem.metric == "absolute"


def solve_pairs(setting: Setting, epsilon: float) -> tuple[Solution, IndexArray]:
    """Solves with few pairs of rows, adds the violated ones, until none is: the optimum over all pairs."""
    pairs = setting.first_pairs()
    solution, candidates = solve(setting.program(pairs, epsilon)), np.argwhere(~np.eye(setting.knots.size, dtype=bool))
    for _ in range(_ROUNDS):
        if setting.is_complete():
            break
        excess = setting.excess(solution.rows, epsilon)[candidates[:, 0], candidates[:, 1]]
        order = np.argsort(-excess)[: 3 * setting.knots.size]
        violated = candidates[order[excess[order] > _VIOLATION]]
        fresh = np.unique(np.concatenate([pairs, violated]), axis=0)
        if len(fresh) == len(np.unique(pairs, axis=0)):
            break
        pairs = fresh
        solution = solve(setting.program(pairs, epsilon))
    return solution, pairs


def spent(problem: Problem, mechanism: Mechanism) -> float:
    """What the integers certify in the problem's own currency: at most `epsilon` when the problem is met."""
    if problem.delta > 0:
        return 0.0 if mechanism.delta(problem.epsilon) <= problem.delta else math.inf
    if problem.alpha is not None:
        return mechanism.renyi(problem.alpha)
    if problem.metric is not None:
        return metric_epsilon(mechanism, problem.metric)
    return mechanism.epsilon


def _rounded(setting: Setting, rows: FloatArray) -> Mechanism:
    """The integer table."""
    problem, rows = setting.problem, without_unused(rows)
    if problem.max_bias == 0:
        # What the solver's tolerance left of the means is nothing beside far levels, but many units.
        ends = np.flatnonzero(rows.any(axis=0))[[0, -1]]
        missing = (setting.knots - rows @ setting.levels) / np.diff(setting.levels[ends])
        rows[:, ends] = np.maximum(rows[:, ends] + missing[:, None] * [-1, 1], 0.0)
    return rounding.table(
        knots=setting.knots,
        levels=setting.levels,
        probabilities=rows,
        name="optimal",
        epsilon=problem.epsilon if problem.is_pure else math.inf,
        unbiased=problem.max_bias == 0,
        most=TOTAL if problem.is_pure else setting.levels.size + 16,
    )


def design_general(problem: Problem, levels: FloatArray, knots: FloatArray) -> tuple[Draft, Mechanism]:
    """The optimal table at these levels and knots for any of the constraints and losses."""
    if problem.metric == "squared":
        spacing_of(knots)  # refuses uneven knots
    setting = Setting(problem=problem, levels=levels, knots=knots)
    rows, drafts, used = np.zeros((knots.size, levels.size)), list[Draft](), np.ones(levels.size, dtype=bool)
    failure: MezzotintError = InfeasibleError(
        f"epsilon={problem.epsilon:g}: the rows found, as integers, spend more; use fewer knots or levels, or raise it"
    )
    margin, grain = _MARGIN, float(np.ptp(levels)) / TOTAL
    for units in _UNITS:
        # Levels that are hardly ever used have no probability to spare: they are left out.
        less = max(problem.max_bias - (2 + units) * grain, problem.max_bias / 2)
        tried = Setting(problem=replace(problem, max_bias=less), levels=levels[used], knots=knots, spare=units / TOTAL)
        try:
            solution, pairs = solve_pairs(tried, problem.epsilon * (1 - margin))
            rows[:] = 0.0
            rows[:, used] = solution.rows
            if used.all():
                drafts.append(_draft(setting, solution, pairs))
            mechanism = _rounded(setting, rows)
        except (InfeasibleError, SolverError) as error:
            failure, margin = failure if drafts else error, min(8 * margin, _MOST)
            continue
        beyond = spent(problem, mechanism) / problem.epsilon - 1
        if beyond <= 0 and mechanism.max_bias <= max(problem.max_bias, grain):
            # The multipliers of the least margin bound best, those of rare levels' rounding far worse.
            return max(drafts, key=lambda draft: draft.lower_bound or -math.inf), mechanism
        used = without_unused(rows).any(axis=0)
        margin = min(margin + (1.5 * max(beyond, 0.0) if beyond < _SMALL else margin), _MOST)
    raise failure


def _draft(setting: Setting, solution: Solution, pairs: IndexArray) -> Draft:
    """What the multipliers of a solution prove: with some pairs a bound of the program with all."""
    problem, half = setting.problem, setting.problem.width / 2
    unit = half**2 if problem.loss == "minimax" else 1.0
    asked = replace(setting, spare_rounding=False).program(pairs, problem.epsilon)
    units = centered(problem, setting.levels)
    price = price_of_means(asked, solution.dual, units) if problem.max_bias < math.inf else 0.0
    bound = safe_bound(asked, solution.dual) * unit
    return Draft(lower_bound=bound, scope=ON_KNOTS, iterations=solution.iterations, price=price * unit / half)


def refine_even(problem: Problem, levels: FloatArray) -> tuple[Draft, Mechanism]:
    """Even knots, doubled until the bound of the program stalls or the program grows large."""
    most = 4000 if problem.is_pure else 260
    best: tuple[Draft, Mechanism] | None = None
    previous = math.inf
    for count in (9, 17, 33, 65, 129, 257):
        if best is not None and count * levels.size > most:
            break
        best = design_general(problem, levels, np.linspace(problem.lower, problem.upper, count))
        value = best[0].lower_bound or 0.0
        if previous - value <= 1e-5 * abs(value):
            break
        previous = value
    if best is None:
        raise ParameterError("levels", levels.size, "too many for this constraint; use fewer")
    return best
