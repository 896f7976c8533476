"""Designs whose constraint is about pairs of rows: the pairs that the search begins with decide nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mezzotint.design.problem import make_problem
from mezzotint.design.program import KnottedProblem, solve_pairs


@pytest.mark.parametrize("asked", [{"delta": 1e-3}, {"alpha": 2.0}])
def test_the_optimum_over_all_pairs_is_found_from_any_start(asked: dict[str, Any]) -> None:
    problem = make_problem(epsilon=1.0, lower=-1, upper=1, loss="mse", prior=None, **asked)
    knots = np.linspace(-1, 1, 9)
    levels = np.array([-3.0, -0.7, 0.5, 4.0])
    setting = KnottedProblem(problem=problem, levels=levels, knots=knots, costs=problem.costs(knots, levels))
    every = np.argwhere(~np.eye(knots.size, dtype=bool))
    whole, _ = solve_pairs(setting, problem.epsilon, every)
    for known in (None, every[::7], every[-3:]):
        found, pairs = solve_pairs(setting, problem.epsilon, known)
        # The solver's tolerance is 1e-10 of the loss; a constraint violated by 1e-8 moves it by little more than that.
        assert found.value == pytest.approx(whole.value, rel=1e-5)
        # The search ends where no pair is violated by more than 1e-8 before rows are rounded.
        assert setting.excess(found.rows, problem.epsilon).max() <= 1e-6
        assert len(pairs) <= len(every)
