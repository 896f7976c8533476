"""The limit and its certificate, the level search, and the pieces they stand on."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from laws.registry import judges
from mezzotint import ParameterError, design
from mezzotint.design import solver as solvers
from mezzotint.design.cones import ratio_part
from mezzotint.design.level_proofs import least_of_quadratics
from mezzotint.design.levels import UnboundedLevelsWarning, search_levels, value_and_gradient
from mezzotint.design.limits import limit_of
from mezzotint.design.problem import make_problem
from mezzotint.design.program import program_on
from mezzotint.design.solver import safe_bound, solve
from reference.design import continuous_dual
from tolerances import GRAIN, MANY, SOLVED


@pytest.mark.parametrize(("epsilon", "attained"), [(0.5, 16.003), (1.0, 3.886), (2.0, 0.7766)])
def test_limits_of_the_notes(epsilon: float, attained: float) -> None:
    result = design.limit(epsilon)
    assert result.lower_bound is not None
    # The notes' values are attained on a dense grid of levels: the certified bound is just below.
    assert attained * (1 - 1e-3) <= result.lower_bound <= attained * (1 + 1e-4)
    # The levels of the table are searched on a grid; what that costs is in the gap, and this is what is promised.
    assert result.lower_bound <= result.loss <= result.lower_bound * (1 + 2e-3)
    assert result.mechanism.epsilon <= epsilon


@pytest.mark.parametrize(
    ("epsilon", "gap"), [(4.0, 0.003), pytest.param(8.0, 0.01, marks=pytest.mark.slow)]
)
def test_limits_are_sharp_at_large_epsilons(epsilon: float, gap: float) -> None:
    result = design.limit(epsilon)
    assert result.lower_bound is not None
    assert result.lower_bound <= result.loss <= result.lower_bound * (1 + gap)


@judges("design.limits.limit_of")
@pytest.mark.slow
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 4.0, 8.0])
def test_limits_at_other_epsilons_hold_for_designs(epsilon: float) -> None:
    bound = design.limit(epsilon).lower_bound
    assert bound is not None
    for levels in (2, 3, 8):
        assert design.optimal(epsilon, levels=levels).loss >= bound


@pytest.mark.parametrize(
    "prior",
    [
        pytest.param(stats.norm(0.5, 0.1), marks=pytest.mark.slow),
        pytest.param([0.3], marks=pytest.mark.slow),
        [-0.5, 0.5, 0.6],
    ],
)
def test_limit_under_other_priors(prior: Any) -> None:
    bound = design.limit(1.0, prior=prior).lower_bound
    assert bound is not None
    loss = design.optimal(1.0, levels=4, prior=prior).loss
    assert bound <= loss <= 1.1 * bound


@pytest.mark.parametrize("max_level", [2.5, pytest.param(6.0, marks=pytest.mark.slow)])
def test_limit_of_the_mae(max_level: float) -> None:
    result = design.limit(1.0, loss="mae", max_level=max_level)
    assert result.lower_bound is not None
    # As above.
    assert result.lower_bound <= result.loss <= result.lower_bound * (1 + 1e-3)
    for levels in (4, 7):
        assert (
            design.optimal(1.0, loss="mae", levels=levels, max_level=max_level).loss
            >= result.lower_bound
        )


def test_limit_scales_and_moves_with_the_data() -> None:
    plain, moved = design.limit(1.0).lower_bound, design.limit(1.0, lower=8, upper=12).lower_bound
    assert plain is not None
    assert moved == pytest.approx(4 * plain, rel=SOLVED)


@given(
    st.lists(
        st.tuples(st.floats(0.0, 2.0), st.floats(-3.0, 3.0), st.floats(-3.0, 3.0)),
        min_size=1,
        max_size=6,
    ),
    st.floats(1.0, 30.0),
)
def test_least_of_quadratics_against_a_fine_grid(
    terms: list[tuple[float, float, float]], ratio: float
) -> None:
    a, b, c = np.array([(0.01, 0.0, 1.0), *terms]).T
    coefficients = np.stack([c, b, a])
    with np.errstate(all="ignore"):
        half = -(b + np.copysign(np.sqrt(b**2 - 4 * a * c), b)) / 2
        roots = np.concatenate([[0.0], half / a, c / half, -c / b])
    roots = roots[np.abs(roots) < 1e100]
    found, place = least_of_quadratics(coefficients, roots, np.array([-np.inf, np.inf]), ratio)
    least = float(found[0])
    points = np.linspace(-40, 40, 2001)
    grid = continuous_dual(lambda x: (a * x + b) * x + c, ratio, points)
    assert least <= grid + MANY * (1 + abs(grid))
    if math.isfinite(least):
        at = (a * place[0] + b) * place[0] + c
        assert least == pytest.approx(
            float(np.minimum(at, ratio * at).sum()), rel=SOLVED, abs=SOLVED
        )
    if math.isfinite(least) and a.sum() > 0.5 and abs(place[0]) <= 40:
        scale = ratio * (np.abs(a).sum() * 1600 + np.abs(b).sum() * 40 + np.abs(c).sum())
        # The grid's step, 0.04, within which a quadratic moves by a(step/2)^2 = 4e-4 of its coefficient, of both signs.
        assert least >= grid - 1e-3 * scale or abs(least) > scale


def test_limits_refuse_what_they_do_not_know() -> None:
    with pytest.raises(ParameterError):
        design.limit(1.0, loss="minimax")
    with pytest.raises(ParameterError):
        design.limit(-1.0)
    for options in ({"delta": 0.01}, {"max_bias": 0.1}):
        problem = make_problem(epsilon=1.0, lower=-1, upper=1, **options)
        with pytest.raises(ParameterError, match="limits are known"):
            limit_of(problem, None)


@pytest.mark.parametrize("loss", ["mse", "mae"])
@pytest.mark.parametrize("levels", [[-3.0, -0.5, 0.9, 4.0], [-2.6, -1.4, 0.1, 1.4, 3.1]])
@pytest.mark.parametrize("prior", [None, stats.norm(0.2, 0.5)])
def test_envelope_gradient_is_the_derivative_of_the_value(
    loss: str, levels: list[float], prior: Any
) -> None:
    problem = make_problem(epsilon=1.0, lower=-1, upper=1, loss=loss, prior=prior)
    knots, at = np.linspace(-1, 1, 17), np.array(levels)
    _, gradient = value_and_gradient(problem, knots, at)
    for i, unit in enumerate(np.eye(at.size)):
        step = 1e-5
        above, below = (
            value_and_gradient(problem, knots, at + sign * step * unit)[0] for sign in (1, -1)
        )
        # A central difference of values that the solver knows to 1e-9.
        assert gradient[i] == pytest.approx((above - below) / (2 * step), abs=2e-4)


@pytest.mark.parametrize("options", [{"delta": 0.01}, {"alpha": 2.0}])
def test_envelope_gradient_of_other_constraints(options: dict[str, Any]) -> None:
    problem = make_problem(epsilon=1.0, lower=-1, upper=1, **options)
    knots, at = np.linspace(-1, 1, 5), np.array([-3.0, -0.5, 0.9, 4.0])
    _, gradient = value_and_gradient(problem, knots, at)
    for i, unit in enumerate(np.eye(at.size)):
        above, below = (
            value_and_gradient(problem, knots, at + sign * 1e-4 * unit)[0] for sign in (1, -1)
        )
        # A central difference of values that the solver knows to 1e-7.
        assert gradient[i] == pytest.approx((above - below) / 2e-4, abs=2e-3)


def test_free_outer_levels_warn_for_the_mae_and_stay_bounded() -> None:
    with pytest.warns(UnboundedLevelsWarning, match="max_level"):
        result = design.optimal(1.0, levels=4, loss="mae")
    assert np.abs(result.mechanism.levels).max() <= 1 + 2 * 2 / math.expm1(1.0) + MANY
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tight = design.optimal(1.0, levels=4, loss="mae", max_level=2.3)
    assert np.abs(tight.mechanism.levels).max() <= 2.3 * (1 + 16 * GRAIN)
    assert result.loss < tight.loss
    with pytest.raises(ParameterError, match="levels must reach"):
        design.optimal(1.0, levels=4, max_level=1.5)


@pytest.mark.slow
def test_search_under_an_asymmetric_prior_beats_symmetric_levels() -> None:
    prior = stats.norm(0.6, 0.1)
    found = design.optimal(1.0, levels=4, prior=prior)
    symmetric = design.optimal(
        1.0, levels=design.optimal(1.0, levels=4).mechanism.levels, prior=prior
    )
    assert found.loss <= symmetric.loss * (1 + SOLVED)


@pytest.mark.parametrize(
    "options", [{"loss": "minimax"}, {"metric": "absolute"}, {"max_bias": 0.2}]
)
def test_search_for_other_problems_beats_plain_levels(options: dict[str, Any]) -> None:
    problem = make_problem(epsilon=1.5, lower=-1, upper=1, **options)
    levels = search_levels(problem, 3, max_level=None)
    found = design.optimal(1.5, levels=levels, knots=9, **options)
    plain = design.optimal(1.5, levels=[-2.6, 0, 2.6], knots=9, **options)
    assert found.loss <= plain.loss * (1 + SOLVED)


@judges("design.solver.safe_bound")
def test_safe_bound_holds_for_any_dual_point() -> None:
    problem = make_problem(epsilon=1.0, lower=-1, upper=1)
    levels, knots = np.array([-3.0, -0.5, 0.9, 4.0]), np.linspace(-1, 1, 9)
    program = program_on(problem, levels, knots, partial(ratio_part, epsilon=1.0))
    solution = solve(program)
    assert safe_bound(program, solution.dual) == pytest.approx(
        solution.value, rel=1e-8
    )  # the solver's gap
    rng = np.random.default_rng(0)
    for size in (1e-6, 1e-2, 1.0, 100.0):
        spoiled = solution.dual + size * rng.normal(size=solution.dual.size)
        assert safe_bound(program, spoiled) <= solution.value * (1 + MANY)
    assert safe_bound(program, np.zeros_like(solution.dual)) <= 0


@pytest.mark.parametrize("count", [8, 11])
@pytest.mark.parametrize("knots", [2, 9, 12])
@pytest.mark.parametrize("options", [{}, {"loss": "mae"}, {"max_bias": math.inf}])
def test_half_of_a_mirrored_program_is_the_whole(
    monkeypatch: pytest.MonkeyPatch, count: int, knots: int, options: dict[str, Any]
) -> None:
    problem = make_problem(epsilon=1.0, lower=-1, upper=1, **options)
    levels = np.linspace(-1, 1, count) ** 3 * 2 + np.linspace(-2, 2, count)
    program = program_on(
        problem, levels, np.linspace(-1, 1, knots), partial(ratio_part, epsilon=1.0)
    )
    half = solve(program)
    np.testing.assert_allclose(
        half.rows, half.rows[::-1, ::-1], rtol=MANY
    )  # each row is divided by its sum
    np.testing.assert_array_equal(half.floors, half.floors[::-1])
    monkeypatch.setattr(solvers, "_FOLDED", count + 1)
    whole = solve(replace(program))
    assert half.value == pytest.approx(whole.value, rel=SOLVED, abs=SOLVED)
    assert safe_bound(program, half.dual) == pytest.approx(
        safe_bound(program, whole.dual), rel=SOLVED, abs=SOLVED
    )


@pytest.mark.parametrize(
    ("options", "shift", "target_means"),
    [
        ({"prior": stats.norm(0.6, 0.1)}, 0.0, (-1.0, 1.0)),
        ({"loss": "minimax"}, 0.0, (-1.0, 1.0)),
        ({"max_bias": 0.1}, 0.0, (-1.0, 1.0)),
        ({}, 1e-6, (-1.0, 1.0)),
        ({}, 0.0, (-1.0, 0.9)),
    ],
)
def test_what_has_no_mirror_is_solved_whole(
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, Any],
    shift: float,
    target_means: tuple[float, float],
) -> None:
    problem = make_problem(epsilon=1.0, lower=-1, upper=1, **options)
    levels = np.linspace(-3, 3, 8) + shift * np.arange(8)
    program = program_on(
        problem, levels, np.linspace(*target_means, 9), partial(ratio_part, epsilon=1.0)
    )
    found = solve(program)
    monkeypatch.setattr(solvers, "_FOLDED", 9)
    np.testing.assert_array_equal(found.rows, solve(replace(program)).rows)


@pytest.mark.parametrize("asked", [design.limit, partial(design.optimal, levels=2)])
def test_the_warning_about_unbounded_levels_points_at_the_line_that_asked(asked: Any) -> None:
    with pytest.warns(UnboundedLevelsWarning) as told:
        asked(1.0, loss="mae")
    assert [one.filename for one in told] == [__file__]
