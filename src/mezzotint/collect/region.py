"""All distributions of inputs that the reports do not rule out, and the extremes of a quantity over them.

An interval here is [least, greatest] of a quantity over the distributions whose deviance stays below a threshold.
What the table cannot tell apart stays apart in the interval: nothing is assumed smooth (docs/proofs/estimation.md).
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from scipy import optimize, sparse

from mezzotint.collect.nodes import Fit, Nodes, deviance, gap_at, score
from mezzotint.core.errors import InfeasibleError
from mezzotint.core.loss import FloatArray

clarabel: Any = importlib.import_module("clarabel")  # a compiled module without type information

_SOLVED = ("Solved", "AlmostSolved")


def _solve(
    quadratic: sparse.spmatrix, linear: FloatArray, rows: Any, right: FloatArray, cones: list[object]
) -> tuple[Any, str]:
    """min 1/2 z'Pz + q'z with right - rows z in the cones."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    solution = clarabel.DefaultSolver(
        sparse.csc_matrix(quadratic), linear, sparse.csc_matrix(rows), right, cones, settings
    ).solve()
    return solution, str(solution.status)


def least_deviance(nodes: Nodes, start: Fit, *, rounds: int = 20) -> FloatArray:
    """Node masses of maximum likelihood by Newton steps on the simplex, from where EM stopped.

    Source: Kim, Carbonetto, Stephens, Anitescu 2020 (mix-SQP), each step a quadratic program with the fitted shares
    as variables of their own.
    """
    masses, best = start.masses, deviance(nodes, start.masses)
    for _ in range(rounds):
        move = _newton_move(nodes, masses)
        if move is None:
            break
        trials = [np.maximum(masses + step * move, 0.0) for step in 0.5 ** np.arange(12)]
        values = [deviance(nodes, trial / trial.sum()) for trial in trials]
        place = int(np.argmin(values))
        gained = best - values[place]
        if not gained > 0:
            break
        masses, best = trials[place] / trials[place].sum(), values[place]
        if gained < 1e-6:
            break
    return masses


def _newton_move(nodes: Nodes, masses: FloatArray) -> FloatArray | None:
    """The move d of the masses that is best for the likelihood's second-order model; None when the solver fails."""
    # With fitted / current - 1 = y = ratio d, the log-likelihood gains sum N_i (y_i - y_i^2 / 2) to second order.
    # z = sqrt(N) y is of order 1 at the scale that matters, and sum N_i y_i = n sum_j (score_j - 1) d_j as moves sum
    # to 0: no large numbers that cancel.
    seen, size = nodes.counts > 0, masses.size
    root = np.sqrt(nodes.counts[seen].astype(np.float64))
    ratio = (nodes.pmf[:, seen] / (masses @ nodes.pmf[:, seen])).T
    codes = root.size
    rows = sparse.bmat(
        [
            [root[:, None] * ratio, -sparse.identity(codes)],
            [np.ones((1, size)), None],
            [-sparse.identity(size), None],
        ]
    )
    quadratic = sparse.block_diag([sparse.csc_matrix((size, size)), sparse.identity(codes)])
    linear = np.concatenate([-nodes.n * (score(nodes, masses) - 1), np.zeros(codes)])
    right = np.concatenate([np.zeros(codes + 1), masses])
    cones = [clarabel.ZeroConeT(codes + 1), clarabel.NonnegativeConeT(size)]
    scale = max(1.0, float(np.abs(linear).max()) / 1e3)
    solution, status = _solve(quadratic / scale, linear / scale, rows, right, cones)
    return np.array(solution.x[:size]) if status in _SOLVED else None


def _excess(x: float) -> float:
    return x - np.log1p(x)


def _reach(room: float) -> tuple[float, float]:
    """The two roots of x - log(1 + x) = room, one in (-1, 0), one above 0."""

    def short(x: float) -> float:
        return _excess(x) - room

    high = optimize.root_scalar(short, bracket=(1e-13, 4 * room + 4 * np.sqrt(room))).root
    nearest = -1 + 1e-16
    return optimize.root_scalar(short, bracket=(nearest, -1e-13)).root if short(nearest) > 0 else -1.0, high


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Region:
    """Distributions whose deviance exceeds that of the best fit by at most `threshold`, and very few more.

    Arguments:
        nodes: what inputs can do.
        centre: (J,) masses of the best fit; `gap_at` of them widens the region, so a poor one only costs width.
        threshold: > 0, in units of deviance (twice the log-likelihood ratio).

    Guarantees: holds every distribution of deviance <= deviance(centre) + threshold, at any number of reports.
    """

    nodes: Nodes
    centre: FloatArray
    threshold: float

    @cached_property
    def _constraints(self) -> tuple[Any, FloatArray, list[object]]:
        # With y = fitted / best - 1 and f(y) = y - log(1 + y):
        #   (deviance - deviance(best)) / 2 = sum_i N_i f(y_i) - sum_i N_i y_i <= threshold / 2.
        # The second sum is at most gap / 2 as no distribution beats the best fit by more, so that every N_i f(y_i) is
        # at most (threshold + gap) / 2, hence low_i <= y_i <= high_i. There f(y) >= y^2 f(high) / high^2, as f(y) / y^2
        # falls in y: a second-order cone which holds the region, touches it at its extremes and is it at large N_i.
        nodes, size, gap = self.nodes, self.nodes.x.size, gap_at(self.nodes, self.centre)
        seen = nodes.counts > 0
        count = nodes.counts[seen].astype(np.float64)
        room = (self.threshold + gap) / (2 * count)
        low, high = np.array([_reach(float(r)) for r in room]).T
        weight = np.sqrt(count * 2 * room / self.threshold) / high
        ratio = (nodes.pmf[:, seen] / (self.centre @ nodes.pmf[:, seen])).T
        # Variables: the move d of the masses away from the centre, z = weight y = weight (ratio d), of order 1, and
        # spent = -2 sum N_i y_i / threshold = 2 n sum_j (1 - score_j) d_j / threshold, as the moves sum to 0.
        # The cone sum z^2 <= 1 - spent reads |(2 z, spent)| <= 2 - spent. Moves instead of masses keep digits at
        # large n, where the region is thin.
        codes = count.size
        lost = 2 * nodes.n / self.threshold * (1 - score(nodes, self.centre))
        tall, column = sparse.identity(codes), sparse.csc_matrix((codes, 1))
        blocks = [
            [np.ones((1, size)), None, None],
            [weight[:, None] * ratio, -tall, column],
            [lost[None], None, -np.ones((1, 1))],
            [-sparse.identity(size), None, None],
            [None, tall, None],
            [None, -tall, None],
            [None, None, np.ones((1, 1))],
            [None, None, -np.ones((1, 1))],
            [None, -2 * tall, None],
        ]
        right = [np.zeros(2 + codes), self.centre, weight * high, -weight * low, [2.0, 0.0], np.zeros(codes)]
        cones = [
            clarabel.ZeroConeT(2 + codes),
            clarabel.NonnegativeConeT(size + 2 * codes),
            clarabel.SecondOrderConeT(codes + 2),
        ]
        return sparse.csc_matrix(sparse.bmat(blocks)), np.concatenate(right), cones

    def greatest(self, values: FloatArray) -> float:
        """Greatest expectation of a function of the input over the region.

        Arguments:
            values: (J,) the function at the nodes.

        Raises:
            InfeasibleError: the solver failed on numbers too extreme for it.
        """
        return self._maximise(values, None)

    def least(self, values: FloatArray) -> float:
        """Least expectation, as `greatest`."""
        return -self._maximise(-values, None)

    def greatest_variance(self) -> float:
        """Greatest variance of the input, squared data units: a concave quadratic, maximised as such."""
        return self._maximise(self._centred() ** 2, self._centred())

    def least_variance(self, *, steps: int = 8) -> float:
        """A lower bound on the variance of the input, squared data units, short of the least by next to nothing.

        var X = min_c E(X - c)^2. On a ladder of c over the means in the region the least is missed by at most
        (half a rung)^2, and moving mass to the ends of its cell adds at most (half a cell)^2: both are given away.
        """
        x = self._centred()
        ladder = np.linspace(self.least(x), self.greatest(x), steps + 1)
        rung = float(ladder[1] - ladder[0])
        found = min(self.least((x - c) ** 2) for c in ladder)
        return max(0.0, found - rung**2 / 4 - self.nodes.widest() ** 2 / 4)

    def _centred(self) -> FloatArray:
        return self.nodes.x - (self.nodes.x[0] + self.nodes.x[-1]) / 2

    def _maximise(self, values: FloatArray, square: FloatArray | None) -> float:
        """max of values.w - (square.w)^2 over the region."""
        rows, right, cones = self._constraints
        spare = rows.shape[1] - values.size
        offset, mean = float(values @ self.centre), 0.0 if square is None else float(square @ self.centre)
        # With w = centre + d: values.d - 2 mean (square.d) - (square.d)^2, and what it is at the centre.
        values = values if square is None else values - 2 * mean * square
        scale = float(np.abs(values).max()) or 1.0
        linear = np.append(-values / scale, np.zeros(spare))
        quadratic = sparse.csc_matrix((linear.size, linear.size))
        if square is not None:
            # One more variable, square.d / sqrt(scale), whose square is subtracted.
            defined = sparse.csc_matrix(np.concatenate([square / np.sqrt(scale), np.zeros(spare), [-1.0]])[None, :])
            rows = sparse.vstack([defined, sparse.hstack([rows, sparse.csc_matrix((rows.shape[0], 1))])])
            right = np.append(0.0, right)
            cones = [clarabel.ZeroConeT(1), *cones]
            linear = np.append(linear, 0.0)
            quadratic = sparse.diags(np.append(np.zeros(linear.size - 1), 2.0))
        solution, status = _solve(quadratic, linear, rows, right, cones)
        if status not in _SOLVED:
            raise InfeasibleError(f"estimate: the solver stopped ({status}); ask for fewer bins or another level")
        # The dual value bounds the maximum from above.
        return offset - mean**2 - scale * min(solution.obj_val, solution.obj_val_dual)
