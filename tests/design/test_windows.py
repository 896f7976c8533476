"""Windows, the best floors at given levels, and integer windows: against loops, HiGHS and exact rationals."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
from scipy import stats

from laws.registry import judges
from mezzotint import Mechanism, design
from mezzotint.core.laws import exact_law, law_of
from mezzotint.core.loss import exp_below
from mezzotint.core.priors import UniformPrior, as_prior
from mezzotint.design.floor_search import FloorProblem, Optimum, best_floors, overhang
from mezzotint.design.integer_windows import (
    end_misses,
    integer_windows,
    reaching_floors,
    table,
)
from mezzotint.design.problem import BoundError, FloatDesign, make_problem, record
from mezzotint.design.windows import (
    average,
    best_ends,
    error,
    lower_bound,
    make_windows,
    peaks,
)
from reference.design import floor_program, loss_integrals
from tolerances import FEW, MANY, SOLVED

UNIFORM = law_of(UniformPrior(), -1.0, 1.0)
TOTAL = 2**32


def uniform_optimum(levels: np.ndarray, ratio: float, loss: str) -> Optimum:
    return best_floors(FloorProblem(levels=levels, ratio=ratio, law=UNIFORM, loss=loss))


def random_levels(rng: np.random.Generator, epsilon: float, *, tight: str = "") -> np.ndarray:
    """2 to 9 levels; `tight` names the sides ("l", "r") that reach no farther than they must."""
    needed = overhang(math.exp(epsilon))
    excess = rng.uniform(1e-3, 1.5, 2) * [("l" not in tight), ("r" not in tight)]
    low, high = -1 - needed * (1 + excess[0]), 1 + needed * (1 + excess[1])
    count = int(rng.integers(0, 8))
    inner = rng.uniform(-1, 1, count) * min(-low, high)
    if count and rng.random() < 0.3:  # a cluster
        inner = inner[0] + 1e-6 * np.arange(count)
    return np.unique(np.concatenate([[low], inner, [high]]))


@pytest.mark.parametrize("loss", ["mse", "mae"])
@pytest.mark.parametrize("seed", range(6))
def test_values_and_derivatives_of_windows_against_sums_over_inputs(loss: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ratio = math.exp(rng.uniform(0.3, 3))
    levels = random_levels(rng, math.log(ratio))
    floors = uniform_optimum(levels, ratio, loss).floors
    windows = make_windows(levels, floors, ratio, split=loss == "mae")
    x = (np.arange(100_000) + 0.5) / 50_000 - 1
    rows = np.stack([np.interp(x, windows.means, column) for column in windows.rows.T], axis=1)
    np.testing.assert_allclose(rows @ levels, x, atol=MANY * np.ptp(levels))
    assert (rows >= floors - 1e-15).all()  # eight roundings of numbers below 1
    assert (rows <= ratio * floors + FEW).all()
    plain = float((rows * error(loss, levels, x[:, None])).sum(axis=1).mean())
    # The midpoint rule errs by the second derivative over 24 n**2: far below this.
    assert average(windows, UNIFORM, loss).loss == pytest.approx(plain, rel=1e-7)
    # Derivatives: levels moved outwards a little, so that the ends stay covered whatever moves.
    levels = levels * 1.01
    found = average(make_windows(levels, floors, ratio, split=loss == "mae"), UNIFORM, loss)
    for j, unit in enumerate(np.eye(levels.size)):
        step = 1e-6 * floors[j]
        if step < 1e-10:
            continue
        above, below = (
            average(
                make_windows(levels, floors + s * step * unit, ratio, split=loss == "mae"),
                UNIFORM,
                loss,
            ).loss
            for s in (1, -1)
        )
        scale = float(np.abs(found.by_floor).max()) + 1
        # A central difference of piecewise linear values.
        assert found.by_floor[j] == pytest.approx(
            float(above - below) / (2 * step), abs=1e-4 * scale
        )


@pytest.mark.parametrize("loss", ["mse", "mae"])
@pytest.mark.parametrize(
    "seed", [pytest.param(k, marks=[pytest.mark.slow] if k >= 20 else []) for k in range(200)]
)
def test_best_floors_against_highs_on_their_own_kinks_and_on_a_grid(loss: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    epsilon = float(rng.uniform(0.2, 4))
    levels = random_levels(rng, epsilon)
    result = design.optimal(epsilon, levels=levels, loss=loss)
    assert result.lower_bound is not None
    kinks = result.mechanism.knots
    for knots in (kinks, np.linspace(-1, 1, 33)):
        costs = loss_integrals(knots, levels, lambda x: 0.5, loss)
        best = floor_program(costs, knots, levels, epsilon)
        # HiGHS meets its constraints to 1e-7.
        assert result.lower_bound <= best * (1 + SOLVED)
        assert result.loss <= best * (1 + SOLVED)


def test_floors_under_atoms_and_densities_against_highs() -> None:
    levels = np.array([-3.0, -0.5, 0.9, 4.0])
    for prior in ([-0.3, 0.2, 0.25], np.linspace(-1, 1, 40), [-1.0, 1.0], [0.4]):
        points = np.unique(np.concatenate([[-1.0, 1.0], prior]))
        weight = np.array([np.mean(np.asarray(prior) == point) for point in points])
        costs = weight[:, None] * (levels - points[:, None]) ** 2
        best = floor_program(costs, points, levels, 1.0)
        assert design.optimal(1.0, levels=levels, prior=prior).loss == pytest.approx(
            best, rel=SOLVED
        )


def test_one_level_that_just_reaches_leaves_the_others_in_use() -> None:
    # Once every level but the outer two was given up here, with a loss of 6.1585 called the best.
    outer = 1 + 2 / math.expm1(1.0)
    for levels in ([-outer, 0.0, 3.0], [-3.0, 0.0, outer]):
        result = design.optimal(1.0, levels=levels)
        # Six printed decimals, and the gap that designs promise.
        assert result.loss == pytest.approx(4.894168, abs=2e-6)
        assert result.gap is not None
        assert result.gap <= SOLVED * result.loss
        costs = loss_integrals(np.linspace(-1, 1, 65), levels, lambda x: 0.5, "mse")
        wider = floor_program(costs, np.linspace(-1, 1, 65), levels, 1.0 + 1e-9)
        assert result.loss <= wider * (1 + SOLVED)


@pytest.mark.parametrize(
    ("levels", "loss"),
    [([-1.000672, -0.5, 0.1, 0.4, 1.000672], 0.66561), ([-1.001, -0.5, 0.1, 0.4, 1.001], 0.146556)],
)
def test_levels_that_barely_reach_at_epsilon_8(levels: list[float], loss: float) -> None:
    # The first was called optimal with a bias of 93,261 units of 2**-32, the second infeasible.
    result = design.optimal(8.0, levels=levels)
    # The losses' five printed digits, and what one unit of bias gains at e^8 a unit.
    assert result.loss == pytest.approx(loss, rel=1e-4)
    assert result.mechanism.exact_max_bias <= (Fraction(levels[-1]) - Fraction(levels[0])) / TOTAL
    assert result.lower_bound is not None
    # The bias may gain as much, and the record says so.
    assert result.lower_bound - result.slack <= result.loss
    assert result.slack <= 2 * SOLVED * result.loss
    assert result.mechanism.epsilon <= 8.0


def test_a_loss_below_its_bound_is_told_and_not_clipped() -> None:
    problem = make_problem(epsilon=1.0, lower=-1, upper=1)
    mechanism = design.optimal(1.0, levels=[-3, -0.5, 0.5, 3]).mechanism
    honest = FloatDesign(lower_bound=mechanism.mse() * (1 - 1e-6), scope="", iterations=1)
    # A difference of two numbers that agree in six digits.
    assert record(problem, honest, mechanism, started=0.0).gap == pytest.approx(
        mechanism.mse() * 1e-6, rel=1e-3
    )
    with pytest.raises(BoundError, match="below its lower bound"):
        record(
            problem,
            FloatDesign(lower_bound=mechanism.mse() * 1.001, scope="", iterations=1),
            mechanism,
            started=0.0,
        )


@judges("design.windows.lower_bound")
@pytest.mark.parametrize("seed", range(100))
def test_no_floors_and_multipliers_give_a_bound_above_any_windows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ratio = math.exp(rng.uniform(0.2, 4))
    levels = random_levels(rng, math.log(ratio))
    best = uniform_optimum(levels, ratio, "mse")
    value = average(make_windows(levels, best.floors, ratio), UNIFORM, "mse")
    spoiled = best.floors * rng.uniform(0.5, 1.5, levels.size)
    spoiled *= rng.uniform(1 / ratio, 1) / spoiled.sum()
    # Windows of other floors price the averages over other cells, over the whole range all the same.
    other = average(make_windows(levels, spoiled, ratio), UNIFORM, "mse")
    for floors, prices in ((best.floors, value), (spoiled, other)):
        covered = make_windows(levels, floors, ratio).means
        if covered[0] > -1 + MANY or covered[-1] < 1 - MANY:
            continue
        tried = [best.ends, best.ends + rng.normal(size=(2, 2)), np.zeros((2, 2))]
        most = lower_bound(prices, floors, levels, best_ends(prices.by_floor, levels, ratio), ratio)
        bounds = [lower_bound(prices, floors, levels, ends, ratio) for ends in tried]
        assert max(most, *bounds) <= value.loss * (1 + MANY)
        # A linear program's answer is feasible to 1e-7, in multipliers that are below 100 losses here.
        assert most >= max(bounds) - 1e-5 * value.loss


def test_exact_laws_have_the_priors_own_integrals() -> None:
    edges = np.array([-1.0, -0.3, 0.2, 1.0])
    for prior in (None, stats.norm(3.1, 0.7), stats.poisson(3.0), np.linspace(2, 6, 23)):
        known = as_prior(prior, lower=2.0, upper=4.0)
        found = exact_law(known, 2.0, 4.0, edges).integrals(edges)
        moments = known.moments(3 + edges)
        np.testing.assert_allclose(np.diff(found[:, 0]), moments[:, 0], atol=FEW)
        first = moments[:, 1] + edges[:-1] * moments[:, 0]
        np.testing.assert_allclose(np.diff(found[:, 1]), first, atol=FEW)


def test_the_worst_input_is_found() -> None:
    levels = np.array([-3.0, -0.5, 0.9, 4.0])
    result = design.optimal(1.0, levels=levels, loss="minimax")
    x = np.linspace(-1, 1, 20_001)
    table = result.mechanism
    errors = (table.pmf(x) * (table.levels - x[:, None]) ** 2).sum(axis=1)
    assert errors.max() == pytest.approx(result.loss, rel=SOLVED)
    assert result.scope == "all mechanisms with these levels"
    assert result.gap is not None
    assert result.gap <= SOLVED * result.loss
    windows = make_windows(levels, uniform_optimum(levels, math.e, "mse").floors, math.e)
    rows = np.stack([np.interp(x, windows.means, column) for column in windows.rows.T], axis=1)
    assert peaks(windows)[1].loss.max() == pytest.approx(
        float((rows * (levels - x[:, None]) ** 2).sum(axis=1).max()), rel=FEW
    )


# Integers -------------------------------------------------------------------------------------------------------


def assert_exact(mechanism: Mechanism, epsilon: float, *, units: Fraction = Fraction(1)) -> None:
    """The theorem, in rationals: sums, ratios, means."""
    weights = mechanism.weights.astype(object)
    assert [sum(row) for row in weights.tolist()] == [TOTAL] * len(weights)
    ratio = exp_below(epsilon)
    for column in weights.T.tolist():
        assert max(column) * ratio.denominator <= min(column) * ratio.numerator
    levels = [Fraction(level) for level in mechanism.levels.tolist()]
    span, knots = levels[-1] - levels[0], mechanism.knots.tolist()
    for k, (knot, row) in enumerate(zip(knots, weights.tolist(), strict=True)):
        bias = abs(
            sum(Fraction(weight, TOTAL) * level for weight, level in zip(row, levels, strict=True))
            - Fraction(knot)
        )
        ulp = Fraction(math.ulp(knot))
        assert bias <= (ulp if 0 < k < len(knots) - 1 else units * span / TOTAL + ulp)


def one_problem(rng: np.random.Generator) -> tuple[float, float, float, np.ndarray]:
    epsilon = float(np.exp(rng.uniform(math.log(0.01), math.log(20))))
    levels = random_levels(rng, epsilon, tight=("", "l", "r", "lr")[int(rng.integers(0, 4))])
    if rng.random() < 0.25:  # nearly tight
        needed = 1 + overhang(math.exp(epsilon)) * (1 + 10.0 ** rng.uniform(-13, -2))
        levels = np.unique(np.concatenate([[-needed], levels[1:-1], [needed]]))
    half = float(10.0 ** rng.choice([-100, -3, 0, 3, 100]))
    middle = float(rng.choice([0.0, 1.0, -7.0])) * half
    return epsilon, middle - half, middle + half, middle + levels * half


def _check_one(rng: np.random.Generator) -> None:
    epsilon, lower, upper, levels = one_problem(rng)
    half = (upper - lower) / 2
    units, ratio = (levels - (lower + half)) / half, math.exp(epsilon)
    # Scaling to data units may cost an outer level a few ulps of what it needs.
    floors = uniform_optimum(units, ratio, "mse").floors
    windows = integer_windows(levels, floors, epsilon=epsilon, lower=lower, upper=upper)
    assert_exact(table(windows, levels, lower=lower, upper=upper), epsilon)


@pytest.mark.parametrize("side", ["l", "r", "lr"])
@pytest.mark.parametrize("loss", ["mse", "mae", "minimax"])
def test_levels_within_two_floats_of_what_they_need_are_feasible(
    side: str, loss: Literal["mse", "mae", "minimax"]
) -> None:
    """One minus a probability close to one had no digits left: levels that reach were said not to."""
    rng = np.random.default_rng(5)
    for _ in range(8):
        epsilon = float(rng.uniform(0.3, 9))
        reach = [
            overhang(math.exp(epsilon)) * (1 if which in side else rng.uniform(1, 500))
            for which in "lr"
        ]
        ends = [math.nextafter(-1 - reach[0], -math.inf), math.nextafter(1 + reach[1], math.inf)]
        levels = [ends[0], *np.sort(rng.uniform(-0.9, 0.9, rng.integers(0, 3))), ends[1]]
        found = design.optimal(epsilon, levels=levels, loss=loss)
        assert found.mechanism.epsilon <= epsilon
        assert found.gap is not None
        assert -found.slack <= found.gap


@pytest.mark.parametrize(
    ("epsilon", "levels"),
    [
        (
            6.134440473275444,
            [-1.9968543051461392, -0.2804261470147795, 0.28302717901120666, 1.0043432863054602],
        ),
        # A window's piece of 4e-12 inputs, whose moments over its length were noise: a bound above the optimum.
        (3.0329648917400287, [-1.1012212920601185, 1.1012212920601185]),
    ],
)
def test_levels_that_just_reach_are_designed_with_a_bound_that_holds(
    epsilon: float, levels: list[float]
) -> None:
    found = design.optimal(epsilon, levels=levels)
    if len(levels) == 2:  # the one unbiased mechanism there is; 2^-32 of the span may be its bias
        assert found.lower_bound == pytest.approx(
            levels[1] ** 2 - 1 / 3, abs=1e-11
        )  # moments of pieces; the noise was 4.5e-10
    assert found.status == "optimal"


@pytest.mark.parametrize("seed", range(150))
def test_integer_windows_are_private_and_unbiased_in_rationals(seed: int) -> None:
    _check_one(np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("block", "seed"), [(2, 555), (3, 637), (6, 423), (14, 845), (17, 843), (19, 127), (25, 867)]
)
def test_integers_reach_where_hardly_any_do(block: int, seed: int) -> None:
    """Of the thirty thousand below: floors once moved by trial missed by up to 13 units, or became negative."""
    _check_one(np.random.default_rng([7, block, seed]))


def test_the_least_outer_floors_that_reach_are_found() -> None:
    """Against all smaller pairs, one by one."""
    rng, reached = np.random.default_rng(2), 0
    for _ in range(24):
        epsilon = float(rng.uniform(18, 21))
        levels = random_levels(rng, epsilon, tight=("", "l", "r", "lr")[int(rng.integers(0, 4))])
        low, scale = levels[0], 2**60
        whole = [int(Fraction(level - low) * scale) for level in levels.tolist()]
        ratio, span = exp_below(epsilon), whole[-1]
        most = [math.floor(TOTAL * Fraction(d) * scale) + span for d in (-1 - low, levels[-1] - 1)]
        inner = rng.integers(0, 3, levels.size - 2).tolist()
        found = reaching_floors(whole, [0, *inner, 0], ratio, most)
        reached += found is not None
        for pair in itertools.product(
            *(range(end + 3) for end in ((found[0], found[-1]) if found else (70, 70)))
        ):
            tried = [pair[0], *inner, pair[1]]
            if all(
                end_misses(whole, tried, ratio, end)(tried[end]) <= most[end] for end in (0, -1)
            ):
                assert found is not None
                assert pair[0] >= found[0]
                assert pair[1] >= found[-1]
    assert reached >= 8


def test_two_levels_reach_with_the_next_integers_above_their_shares() -> None:
    """The last step of "Reach in integers": an existing pair, which need not be the least."""
    rng = np.random.default_rng(3)
    smaller = 0
    for _ in range(300):
        ratio = exp_below(float(rng.uniform(0.1, 22)))
        need = 2 / (ratio - 1)
        below, above = (need * (1 + Fraction(int(rng.integers(0, 3)), 7)) for _ in range(2))
        span = 2 + below + above
        shares = TOTAL * above / span, TOTAL * below / span
        scale = math.lcm(below.denominator, span.denominator)
        most = [math.floor((TOTAL * reach + span) * scale) for reach in (below, above)]
        levels = [0, int(span * scale)]
        floors = [math.ceil(share) for share in shares]
        for end in (0, -1):
            assert end_misses(levels, floors, ratio, end)(floors[end]) <= most[end]
        least = reaching_floors(levels, [0, 0], ratio, most)
        assert least is not None
        smaller += least[0] < math.floor(shares[0])
    assert smaller > 0


@pytest.mark.slow
@pytest.mark.parametrize("block", range(30))
def test_integer_windows_on_thirty_thousand_problems(block: int) -> None:
    for seed in range(1000):
        _check_one(np.random.default_rng([7, block, seed]))


def test_given_knots_are_kept() -> None:
    knots = np.array([-1.0, -0.6, 0.1, 0.1, 0.7, 1.0])
    result = design.optimal(1.0, levels=[-3, -0.5, 0.5, 3], knots=knots)
    np.testing.assert_array_equal(result.mechanism.knots, knots)
    assert result.mechanism.exact_max_bias <= Fraction(6, TOTAL)
