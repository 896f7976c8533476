"""Beyond pure epsilon: (epsilon, delta), metrics, Renyi, bias budgets, worst-case loss, vectors."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import optimize

from mezzotint import InfeasibleError, Mechanism, ParameterError, design
from mezzotint.design import metric_epsilon
from mezzotint.privacy import verify
from reference.design import linear_program, loss_integrals, metric_losses
from tolerances import FEW, KEPT, MANY, SOLVED

LEVELS = [-3.0, -0.5, 0.5, 3.0]
SKEWED = [-3.5, -0.5, 0.9, 4.0]


def _uniform(knots: Any, levels: Any, loss: str = "mse") -> np.ndarray:
    return loss_integrals(knots, levels, lambda x: 0.5, loss)


@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.05])
@pytest.mark.parametrize("levels", [LEVELS, SKEWED])
def test_epsilon_delta_against_highs_over_all_pairs(delta: float, levels: list[float]) -> None:
    knots = np.linspace(-1, 1, 5)
    expected, _ = linear_program(_uniform(knots, levels), knots, levels, 1.0, delta=delta)
    result = design.optimal(1.0, levels=levels, delta=delta, knots=5)
    # The twin's solver (HiGHS, 1e-7 absolute) over losses of a tenth.
    assert result.loss == pytest.approx(expected, rel=1e-5)
    assert result.lower_bound is not None
    assert result.lower_bound <= expected * (1 + MANY)
    assert result.mechanism.delta(1.0) <= delta
    assert result.mechanism.max_bias < 1e-8  # some 40 units of 2^-32


def test_more_delta_never_costs() -> None:
    losses = [
        design.optimal(1.0, levels=LEVELS, delta=delta, knots=9).loss
        for delta in (0.0, 1e-4, 1e-2, 0.1, 0.5)
    ]
    assert all(later <= earlier * (1 + SOLVED) for earlier, later in itertools.pairwise(losses))


@pytest.mark.parametrize(
    "looser",
    [
        {"delta": 1e-6},
        {"delta": 1e-3, "knots": 9},
        {"delta": 1e-6, "levels": LEVELS},
        {"delta": 1e-6, "loss": "mae"},
        {"delta": 1e-6, "loss": "minimax"},
        {"alpha": 200.0},
        {"max_bias": 1e-3},
        {"max_bias": 1e-9},
        {"max_bias": 1e-9, "levels": LEVELS, "delta": 1e-5},
    ],
)
@pytest.mark.filterwarnings("ignore::mezzotint.design.UnboundedLevelsWarning")
def test_what_pure_designs_meet_costs_no_more_than_they_do(looser: dict[str, Any]) -> None:
    strict = {name: looser[name] for name in ("levels", "knots", "loss") if name in looser}
    pure = design.optimal(1.0, **strict)
    result = design.optimal(1.0, **looser)
    assert result.loss <= pure.loss
    mechanism = result.mechanism
    assert mechanism.delta(1.0) <= looser.get("delta", 0.0) or "alpha" in looser
    if "alpha" in looser:
        assert mechanism.renyi(looser["alpha"]) <= 1.0
    unit_effect = float(np.ptp(mechanism.levels)) * 2.0**-32
    assert mechanism.max_bias <= looser.get("max_bias", 0.0) + unit_effect


@pytest.mark.parametrize(
    ("looser", "max_level"),
    [({"max_bias": 0.5}, 2.0), ({"delta": 0.3}, 2.1), ({"max_bias": math.inf}, 1.5)],
)
def test_levels_may_be_nearer_than_those_that_pure_designs_need(
    looser: dict[str, Any], max_level: float
) -> None:
    with pytest.raises(ParameterError, match=r"levels must reach 2\.16395"):
        design.optimal(1.0, levels=3, max_level=max_level)
    result = design.optimal(1.0, levels=3, max_level=max_level, **looser)
    # Levels are found to a millionth.
    assert np.abs(result.mechanism.levels).max() <= max_level * (1 + 1e-6)
    # 32 bits leave a bias of a few units.
    assert result.mechanism.max_bias <= looser.get("max_bias", 0.0) + 1e-8


@pytest.mark.parametrize("metric", ["absolute", "squared"])
def test_metric_against_highs_over_all_pairs(metric: Any) -> None:
    knots, levels = np.linspace(-1, 1, 5), [-4.0, -0.5, 0.5, 4.0]
    step = 0.5
    if metric == "absolute":
        pairs = {(a, b): 1 + 0.8 * step for a in range(5) for b in range(5) if abs(a - b) == 1}
    else:
        pairs = {
            (a, b): math.exp(0.8 * (step * (a - b)) ** 2)
            for a in range(5)
            for b in range(5)
            if a != b
        }
    expected, _ = linear_program(_uniform(knots, levels), knots, levels, 0.0, pairs=pairs)
    result = design.optimal(0.8, levels=levels, metric=metric, knots=5)
    # The twin's solver (HiGHS, 1e-7 absolute) over losses of a tenth.
    assert result.loss == pytest.approx(expected, rel=1e-5)
    # Ten times KEPT: steps of the integers of the rarest level, of which a metric asks more.
    assert 0.8 * (1 - 1e-4) <= metric_epsilon(result.mechanism, metric) <= 0.8


@pytest.mark.parametrize("metric", ["absolute", "squared"])
def test_rare_levels_cost_a_metric_design_no_gap(metric: Any) -> None:
    """Integers take a thousandth of a percent of epsilon here; the bound must not pay for that again."""
    result = design.optimal(5.0, levels=[-6, -0.5, 0.5, 6], metric=metric, knots=9)
    assert result.status == "optimal"
    assert result.gap is not None
    assert result.gap <= 2 * SOLVED * result.loss


@pytest.mark.parametrize("seed", range(16))
def test_rounding_never_refuses_a_metric_or_a_divergence_that_has_a_table(seed: int) -> None:
    """Levels that reach farther than they must: rows with rare levels, close to each other, orders of all sizes."""
    rng = np.random.default_rng(seed)
    epsilon, count = float(10 ** rng.uniform(-1, 1)), int(rng.integers(2, 7))
    if seed % 2:
        options, outer = {"metric": "absolute", "knots": int(rng.integers(3, 18))}, 1 + 1 / epsilon
    else:
        options, outer = (
            {"alpha": float(10 ** rng.uniform(0.1, 3)), "knots": 9},
            1 + 2 / math.expm1(epsilon),
        )
    outer *= rng.uniform(1.1, 3)
    levels = np.sort([-outer, *rng.uniform(-outer, outer, count - 2), outer])
    result = design.optimal(epsilon, levels=levels, **options)
    assert result.gap is not None
    assert -result.slack <= result.gap <= 0.01 * result.loss


def test_absolute_metric_holds_between_knots() -> None:
    result = design.optimal(1.0, levels=LEVELS, metric="absolute", knots=9)
    inputs = np.linspace(-1, 1, 301)
    losses = metric_losses(result.mechanism, inputs)
    assert (losses <= np.abs(inputs[:, None] - inputs) * (1 + MANY) + FEW).all()


def test_squared_metric_holds_between_knots_rounded_up_to_the_grid() -> None:
    result = design.optimal(1.0, levels=[-6, -0.5, 0.5, 6], metric="squared", knots=5)
    inputs = np.linspace(-1, 1, 321)
    losses, apart = metric_losses(result.mechanism, inputs), np.abs(inputs[:, None] - inputs)
    covered = 0.5 * np.ceil(apart / 0.5 - 1e-9)
    assert (losses <= covered**2 * (1 + MANY) + FEW).all()
    # The slack is needed: close inputs differ by more than their squared distance allows.
    near = (apart > 0) & (apart < 0.1)
    assert (losses[near] > apart[near] ** 2).any()


def test_metric_epsilon_is_the_least_one() -> None:
    table = Mechanism(
        knots=[0, 1, 2],
        levels=[0, 1],
        weights=[[2**31, 2**31], [2**30, 3 * 2**30], [2**30, 3 * 2**30]],
        name="t",
    )
    # Slope: (1/2 - 1/4) / 1 over the smaller end 1/4.
    assert metric_epsilon(table, "absolute") == 1.0
    assert metric_epsilon(table, "squared") == pytest.approx(math.log(2), rel=FEW)
    jump = Mechanism(
        knots=[0, 1, 1, 2],
        levels=[0, 1],
        weights=[[2**31] * 2, [2**31] * 2, [2**30, 3 * 2**30], [2**31] * 2],
        name="t",
    )
    assert metric_epsilon(jump, "absolute") == math.inf
    with pytest.raises(ParameterError):
        metric_epsilon(jump, "squared")
    with pytest.raises(ParameterError):
        metric_epsilon(table, "hamming")
    constant = Mechanism(knots=[0, 1], levels=[0, 1], weights=[[2**31, 2**31]] * 2, name="t")
    assert metric_epsilon(constant, "absolute") == metric_epsilon(constant, "squared") == 0.0


@pytest.mark.parametrize("alpha", [1.5, 2.0, 8.0])
def test_renyi_is_certified_and_beats_pure_epsilon(alpha: float) -> None:
    outer = 5.0
    result = design.optimal(0.5, levels=[-outer, -0.5, 0.5, outer], alpha=alpha, knots=7)
    assert 0.5 * (1 - KEPT) <= result.mechanism.renyi(alpha) <= 0.5
    assert result.gap is not None
    assert 0 <= result.gap <= SOLVED * result.loss
    # Pure epsilon implies the Renyi bound at every order.
    pure = design.optimal(0.5, levels=[-outer, -0.5, 0.5, outer], knots=7)
    assert result.loss <= pure.loss


def test_renyi_against_a_general_purpose_solver() -> None:
    # Two rows, three levels, two free numbers (one per row): small enough for a fine grid search.
    levels, rho, alpha = np.array([-3.0, 0.0, 3.0]), 0.5, 2.0
    knots = np.array([-1.0, 1.0])
    costs = _uniform(knots, levels)

    def row(middle: float, mean: float) -> np.ndarray:
        high = ((1 - middle) + mean / 3) / 2
        return np.array([1 - middle - high, middle, high])

    def value(x: np.ndarray) -> float:
        p, q = row(x[0], -1), row(x[1], 1)
        if min(p.min(), q.min()) <= 1e-9:
            return 1e3
        worst = max(math.log((a**alpha * b ** (1 - alpha)).sum()) for a, b in ((p, q), (q, p)))
        return float((costs * np.stack([p, q])).sum()) + 1e3 * max(0.0, worst - rho)

    best = min(
        (
            optimize.minimize(
                value, [s, s], method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-12}
            ).fun
        )
        for s in (0.05, 0.2, 0.4)
    )
    result = design.optimal(rho, levels=levels, alpha=alpha, knots=2)
    assert result.loss == pytest.approx(best, rel=1e-4)  # Nelder-Mead ends there


def test_alpha_infinite_is_pure_epsilon() -> None:
    assert design.optimal(1.0, levels=LEVELS, alpha=math.inf, knots=9).loss == pytest.approx(
        design.optimal(1.0, levels=LEVELS, knots=9).loss, rel=MANY
    )


@pytest.mark.parametrize("max_bias", [0.1, 0.5, math.inf])
def test_bias_budget_against_highs(max_bias: float) -> None:
    knots = np.linspace(-1, 1, 5)
    expected, _ = linear_program(_uniform(knots, SKEWED), knots, SKEWED, 1.0, max_bias=max_bias)
    result = design.optimal(1.0, levels=SKEWED, knots=5, max_bias=max_bias)
    # The twin's solver (HiGHS, 1e-7 absolute) over losses of a tenth.
    assert result.loss == pytest.approx(expected, rel=1e-5)
    assert result.mechanism.max_bias <= max_bias + 1e-8  # some 40 units of 2^-32
    assert result.mechanism.epsilon <= 1.0


def test_minimax_is_the_worst_case_and_beats_the_average_design_there() -> None:
    average = design.optimal(1.0, levels=SKEWED, knots=17)
    robust = design.optimal(1.0, levels=SKEWED, knots=17, loss="minimax")
    x = np.linspace(-1, 1, 4001)

    def worst(table: Mechanism) -> float:
        return float((table.pmf(x) * (table.levels - x[:, None]) ** 2).sum(axis=1).max())

    assert worst(robust.mechanism) == pytest.approx(robust.loss, rel=SOLVED)
    assert robust.loss <= worst(average.mechanism) * (1 + MANY)
    assert robust.gap is not None
    assert (
        robust.gap <= 1e-4 * robust.loss
    )  # promised for several priors: the worst of them is searched


def test_minimax_lower_bound_by_duality_with_a_worst_prior() -> None:
    # The worst case is at least the average under any prior on the knots.
    robust = design.optimal(1.0, levels=LEVELS, knots=9, loss="minimax")
    for prior in (np.array([-1.0, 1.0]), np.array([0.0]), np.linspace(-1, 1, 9)):
        assert robust.loss >= design.optimal(1.0, levels=LEVELS, knots=9, prior=prior).loss * (
            1 - SOLVED
        )


@pytest.mark.parametrize(
    "options",
    [
        {"delta": 0.01},
        {"alpha": 2.0},
        {"metric": "absolute"},
        {"metric": "squared", "knots": 3},
        {"max_bias": 0.1},
    ],
)
def test_infeasible_variants_name_the_missing_reach(options: dict[str, Any]) -> None:
    with pytest.raises(InfeasibleError, match="the outer levels must reach"):
        design.optimal(0.2, levels=[-1.5, 0.0, 1.5], **options)


@pytest.mark.parametrize(
    "options",
    [
        {"delta": 0.01},
        {"alpha": 2.0},
        {"metric": "absolute"},
        {"metric": "squared"},
        {"max_bias": 0.2},
    ],
)
def test_required_reach_is_sharp(options: dict[str, Any]) -> None:
    def feasible(outer: float) -> bool:
        try:
            design.optimal(1.0, levels=[-outer, 0.1, outer], knots=5, **options)
        except InfeasibleError:
            return False
        return True

    low, high = 0.5, 50.0
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if feasible(middle) else (middle, high)
    with pytest.raises(InfeasibleError, match="must reach") as caught:
        design.optimal(1.0, levels=[-0.45, 0.1, 0.45], knots=5, **options)
    reach = float(str(caught.value).split("must reach ")[1].split(" beyond")[0])
    assert low - 0.02 <= 1 + reach <= high + 0.02


@pytest.mark.parametrize(
    "options", [{"delta": 1e-3}, {"alpha": 2.0}, {"metric": "absolute"}, {"loss": "minimax"}]
)
def test_variants_pass_verify(options: dict[str, Any]) -> None:
    result = design.optimal(1.0, levels=LEVELS, knots=9, **options)
    assert verify(result.mechanism).valid


@pytest.mark.parametrize("inputs", ["grid", "real"])
def test_vectors_of_bounded_norm(inputs: Any) -> None:
    result = design.vector(
        3.0, dimension=3, clip_norm=1.0, levels=[-6, -1, 1, 6], knots=5, inputs=inputs
    )
    table = result.mechanism
    bound = design.vector_epsilon(table, dimension=3, l2_distance=2.0, inputs=inputs)
    assert bound <= 3.0
    # Brute force over pairs of vectors of norm at most 1.
    rng = np.random.default_rng(1)
    axis = np.linspace(-1, 1, 5) if inputs == "grid" else rng.uniform(-1, 1, size=9)
    vectors = np.array([v for v in itertools.product(axis, repeat=3) if np.linalg.norm(v) <= 1])
    losses = metric_losses(table, axis)
    place = np.searchsorted(np.sort(axis), vectors)
    losses = losses[np.ix_(np.argsort(axis), np.argsort(axis))]
    worst = max(float(losses[place, place[k]].sum(axis=1).max()) for k in range(0, len(vectors), 3))
    assert worst <= bound * (1 + FEW)


def test_lemma_6_on_the_grid() -> None:
    # A table with metric rate r under the squared metric gives vectors at distance D at most r D^2.
    table = design.optimal(0.75, levels=[-6, -1, 1, 6], metric="squared", knots=5).mechanism
    for dimension in (1, 10, 1000):
        # Positions are drawn in steps of 2^-32 of a segment.
        assert design.vector_epsilon(
            table, dimension=dimension, l2_distance=2.0, inputs="grid"
        ) <= 3 * (1 + 2e-8)


def test_real_inputs_cost_more_than_grid_inputs() -> None:
    table = design.optimal(0.75, levels=[-6, -1, 1, 6], metric="squared", knots=5).mechanism
    for dimension in (1, 10, 1000):
        grid, real = (
            design.vector_epsilon(table, dimension=dimension, l2_distance=2.0, inputs=i)
            for i in ("grid", "real")
        )
        assert grid <= real
    with pytest.raises(ParameterError):
        design.vector_epsilon(table, dimension=0, l2_distance=1.0)
    with pytest.raises(ParameterError):
        design.vector_epsilon(table, dimension=1, l2_distance=math.inf)


@pytest.mark.parametrize("dimension", [1, 4, 100, 10**4, 10**6, 10**9, 10**12])
def test_real_vectors_that_share_their_distance_evenly(dimension: int) -> None:
    # The worst pair may differ a little in every coordinate: the loss of one is linear in its distance, not squared.
    table = design.optimal(0.75, levels=[-7, -1, 1, 7], metric="squared", knots=9).mechanism
    step = min(2.0 / math.sqrt(dimension), 0.5)
    worst = 0.0
    for start in np.linspace(-1, 1 - step, 41):
        low, high = (table.pmf(x) for x in (start, start + step))
        worst = max(worst, float(np.abs(np.log(high / low)).max()))
    bound = design.vector_epsilon(
        table, dimension=dimension, l2_distance=step * math.sqrt(dimension), inputs="real"
    )
    assert bound >= dimension * worst * (1 - SOLVED)
    assert bound <= 12 * dimension * worst


@pytest.mark.parametrize("inputs", ["grid", "real"])
@pytest.mark.parametrize("dimension", [1, 3, 50])
def test_vectors_are_never_worse_off_than_with_even_shares(inputs: Any, dimension: int) -> None:
    outer = 1 + 3 / math.expm1(6.0 / dimension)
    levels = [-max(outer, 8), -1, 1, max(outer, 8)]
    result = design.vector(
        6.0, dimension=dimension, clip_norm=1.0, levels=levels, knots=9, inputs=inputs
    )
    assert (
        design.vector_epsilon(result.mechanism, dimension=dimension, l2_distance=2.0, inputs=inputs)
        <= 6.0
    )
    share = design.optimal(6.0 / dimension, levels=levels, knots=9)
    assert result.loss <= share.loss * (1 + SOLVED)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"dimension": 0}, "dimension"),
        ({"dimension": 2.5}, "dimension"),
        ({"clip_norm": math.inf}, "clip_norm"),
        ({"clip_norm": "far"}, "clip_norm"),
        ({"inputs": "sphere"}, "inputs"),
        ({"knots": None}, "knots"),
    ],
)
def test_vectors_name_bad_input(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ParameterError) as caught:
        design.vector(
            **{
                "epsilon": 3.0,
                "dimension": 3,
                "clip_norm": 1.0,
                "levels": [-6, -1, 1, 6],
                **options,
            }
        )
    assert caught.value.parameter == named
