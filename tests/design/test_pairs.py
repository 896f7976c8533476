"""Designs whose constraint is about pairs of rows: the pairs that the search begins with decide nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from mezzotint.design import solver
from mezzotint.design.constraints import PairConstraint
from mezzotint.design.problem import make_problem
from mezzotint.design.program import KnottedProblem, solve_pairs
from mezzotint.design.solver import safe_bound, solve
from tolerances import MANY, SOLVED


@pytest.mark.parametrize("asked", [{"delta": 1e-3}, {"alpha": 2.0}])
def test_the_optimum_over_all_pairs_is_found_from_any_start(asked: dict[str, Any]) -> None:
    problem = make_problem(epsilon=1.0, lower=-1, upper=1, loss="mse", prior=None, **asked)
    knots = np.linspace(-1, 1, 9)
    levels = np.array([-3.0, -0.7, 0.5, 4.0])
    setting = KnottedProblem(
        problem=problem, levels=levels, knots=knots, costs=problem.costs(knots, levels)
    )
    every = np.argwhere(~np.eye(knots.size, dtype=bool))
    constraint = problem.constraint
    assert isinstance(constraint, PairConstraint)
    whole, _ = solve_pairs(setting, problem.epsilon, every)
    for known in (None, every[::7], every[-3:]):
        found, pairs = solve_pairs(setting, problem.epsilon, known)
        # The solver's tolerance is 1e-10 of the loss; a constraint violated by 1e-8 moves it by little more than that.
        assert found.value == pytest.approx(whole.value, rel=1e-5)
        # The search ends where no pair is violated by more than 1e-8 before rows are rounded.
        assert constraint.excess(setting, found.rows, problem.epsilon).max() <= 1e-6
        assert len(pairs) <= len(every)


@pytest.mark.parametrize("limits", [{}, {"max_bias": 0.1}, {"loss": "minimax"}])
@pytest.mark.parametrize("asked", [{"delta": 1e-3}, {"alpha": 2.0}, {"alpha": 8.0}])
@pytest.mark.parametrize(("count", "knots"), [(4, 9), (5, 8)])
def test_half_of_a_mirrored_program_about_pairs_is_the_whole(
    monkeypatch: pytest.MonkeyPatch,
    asked: dict[str, Any],
    limits: dict[str, Any],
    count: int,
    knots: int,
) -> None:
    problem = make_problem(epsilon=1.0, lower=-1, upper=1, **asked, **limits)
    inputs, levels = np.linspace(-1, 1, knots), 8 * np.linspace(-1, 1, count)
    setting = KnottedProblem(
        problem=problem, levels=levels, knots=inputs, costs=problem.costs(inputs, levels)
    )
    program = setting.program(
        setting.ordered(np.array([[0, knots - 1], [3, 0], [2, 1], [4, 5]])), problem.epsilon
    )
    half = solve(program)
    np.testing.assert_allclose(
        half.rows, half.rows[::-1, ::-1], rtol=MANY
    )  # each row is divided by its sum
    monkeypatch.setattr(solver, "folding", lambda *_: None)
    whole = solve(replace(program))
    assert half.value == pytest.approx(whole.value, rel=SOLVED, abs=SOLVED)
    assert safe_bound(program, half.dual) == pytest.approx(
        safe_bound(program, whole.dual), rel=SOLVED, abs=SOLVED
    )
