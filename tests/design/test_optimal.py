"""The optimal table: duality, an independent solver, dominance, certificates, extreme inputs."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import mezzotint as mz
from mezzotint import InfeasibleError, ParameterError, design, families
from mezzotint.privacy import verify
from reference.design import floor_program, linear_program, loss_integrals, two_level_epsilon
from tolerances import FEW, GRAIN, KEPT, MANY, SOLVED

LEVELS = [-3.0, -0.5, 0.5, 3.0]


def _random_problem(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    epsilon = float(np.exp(rng.uniform(math.log(0.1), math.log(8))))
    half = float(10 ** rng.uniform(-2, 2))
    middle = float(rng.normal() * half)
    overhang = 2 * half / math.expm1(epsilon)
    outer = half + overhang * rng.uniform(1.001, 2.5, size=2)
    inner = rng.uniform(-1, 1, size=int(rng.integers(0, 5))) * outer.min() * 0.98
    levels = np.unique(np.concatenate([[-outer[0]], inner, [outer[1]]])) + middle
    priors: list[Any] = [
        None,
        stats.norm(middle + 0.3 * half, 0.4 * half),
        stats.beta(2, 5, loc=middle - half, scale=2 * half),
        rng.normal(middle, half, size=50),
        np.array([middle]),
    ]
    return {
        "epsilon": epsilon,
        "lower": middle - half,
        "upper": middle + half,
        "levels": levels,
        "prior": priors[seed % len(priors)],
        "loss": ("mse", "mae")[seed % 2],
        "knots": int(rng.integers(2, 34)),
    }


@pytest.mark.parametrize("seed", range(200))
def test_duality_on_random_problems(seed: int) -> None:
    problem = _random_problem(seed)
    result = design.optimal(**problem)
    assert result.lower_bound is not None
    assert result.gap is not None
    # Below the bound only by what the integers' bias explains, and that is little.
    assert -result.slack <= result.gap <= SOLVED * result.loss
    # A unit of 2^-32 of the span at each end, times what the mean costs there: dear where a level barely reaches.
    assert (
        result.slack
        <= 1000
        * np.ptp(result.mechanism.levels) ** (2 if problem["loss"] == "mse" else 1)
        * 2.0**-32
    )
    assert result.gap == result.loss - result.lower_bound
    table = result.mechanism
    ulp = 2.0**-52 * (abs(table.lower) + abs(table.upper))
    # One unit of the weights, and the rounding of the knots.
    assert table.max_bias <= np.ptp(table.levels) * GRAIN + ulp
    # The loss is the integers' own.
    own = table.mse(problem["prior"]) if problem["loss"] == "mse" else table.mae(problem["prior"])
    assert result.loss == pytest.approx(own, rel=FEW)


@pytest.mark.parametrize("seed", range(200))
def test_random_designs_pass_verify_and_spend_what_they_are_given(seed: int) -> None:
    problem = _random_problem(seed)
    asked, result = problem["epsilon"], design.optimal(**problem)
    report = verify(result.mechanism)
    assert report.valid
    assert report.epsilon_upper <= asked
    if result.mechanism.epsilon < asked * (1 - KEPT):
        # Left unspent only where it buys nothing: levels so wide that a larger epsilon has the same optimum.
        more = design.optimal(**{**problem, "epsilon": 1.5 * asked})
        assert more.loss == pytest.approx(result.loss, rel=SOLVED)


@pytest.mark.parametrize("seed", range(40))
def test_refined_knots_reach_the_bound_over_all_mechanisms_at_these_levels(seed: int) -> None:
    problem = _random_problem(seed)
    coarse = design.optimal(**problem)
    refined = design.optimal(**{**problem, "knots": None})
    assert "all mechanisms" in refined.scope or "knots" in refined.scope
    assert refined.lower_bound is not None
    assert refined.lower_bound <= coarse.loss + coarse.slack
    grain = 2.0**-28 * float(np.abs(problem["levels"]).max() + 1e-9) ** 2
    assert refined.gap is not None
    assert refined.gap <= 2 * KEPT * refined.loss + grain
    assert refined.loss <= coarse.loss * (1 + KEPT) + grain


@pytest.mark.parametrize("loss", ["mse", "mae"])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("levels", [LEVELS, [-9.0, -1.0, 0.25, 2.0, 9.5]])
def test_value_against_highs_on_the_program_written_out(
    loss: Any, epsilon: float, levels: list[float]
) -> None:
    levels = [level * (2.5 if epsilon < 1 else 1) for level in levels]
    knots = [-1.0, -0.6, 0.1, 0.1, 0.7, 1.0]
    costs = loss_integrals(knots, levels, lambda x: 0.5, loss)
    expected, _ = linear_program(costs, knots, levels, epsilon)
    result = design.optimal(epsilon, levels=levels, loss=loss, knots=knots)
    assert result.loss == pytest.approx(expected, rel=2 * SOLVED)
    assert result.lower_bound is not None
    assert result.lower_bound <= expected * (1 + MANY)


@pytest.mark.parametrize("method", ["highs-ds", "highs-ipm"])
def test_value_against_highs_on_the_floor_program(method: str) -> None:
    knots, levels = np.linspace(-1, 1, 17), np.linspace(-3, 3, 8)
    density = stats.norm(0.5, 0.3)
    costs = loss_integrals(knots, levels, density.pdf, "mse")
    costs[0] += density.cdf(-1) * (levels + 1) ** 2
    costs[-1] += density.sf(1) * (levels - 1) ** 2
    result = design.optimal(1.0, levels=levels, knots=17, prior=density)
    assert result.loss == pytest.approx(
        floor_program(costs, knots, levels, 1.0, method), rel=2 * SOLVED
    )


REFERENCE = [
    (0.5, [-6, -0.4, 0.4, 6], None, 3.6775),
    (1.0, LEVELS, None, 1.7006),
    (1.5, LEVELS, None, 1.0329),
    (1.0, [-4, 0.2, 0.6, 4], 0.1, 1.4476),
    (1.0, [-4, 0.2, 0.6, 4], 0.2, 1.4871),
    (1.0, [-4, 0.2, 0.6, 4], 0.3, 1.5291),
    (1.0, [-2.7, -0.9, 0.9, 2.7], None, 1.8007),
]


@pytest.mark.parametrize(("epsilon", "levels", "sigma", "expected"), REFERENCE)
@pytest.mark.parametrize("knots", [163, None])
def test_values_of_the_notes(
    epsilon: float, levels: list[float], sigma: float | None, expected: float, knots: Any
) -> None:
    prior = None if sigma is None else stats.truncnorm(-1.5 / sigma, 0.5 / sigma, 0.5, sigma)
    result = design.optimal(epsilon, levels=levels, loss="mae", prior=prior, knots=knots)
    assert result.loss == pytest.approx(expected, abs=1e-4)  # four printed decimals
    assert result.mechanism.epsilon <= epsilon


def test_the_mse_value_of_the_notes() -> None:
    # Four printed decimals.
    assert design.optimal(1.0, levels=[-2.7, -0.9, 0.9, 2.7]).loss == pytest.approx(
        4.2677, abs=1e-4
    )


def _rivals(epsilon: float) -> list[mz.Mechanism]:
    return [
        design.calibrate("rqm", epsilon=epsilon, levels=4, loss="mae", max_level=6.5).mechanism,
        design.calibrate("erm", epsilon=epsilon, levels=4, loss="mae", max_level=6.5).mechanism,
        design.calibrate("pbm", epsilon=epsilon, levels=4, knots=17).mechanism,
        design.calibrate("k_randomized_response", epsilon=epsilon, levels=4).mechanism,
        design.optm(epsilon, bins=[-5.2, -0.5, 0.5, 5.2], boxes=29).mechanism,
        design.mvu(epsilon, levels=4).mechanism,
    ]


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("loss", ["mse", "mae"])
def test_never_worse_than_any_rival_at_its_levels_knots_and_epsilon(
    epsilon: float, loss: Any
) -> None:
    for rival in _rivals(epsilon):
        value = rival.mse() if loss == "mse" else rival.mae()
        best = design.optimal(rival.epsilon, levels=rival.levels, loss=loss, knots=rival.knots)
        assert best.loss <= value * (1 + SOLVED), rival.name
        assert best.lower_bound is not None
        assert best.lower_bound <= value * (1 + MANY), rival.name
        # The bound over all mechanisms at these levels holds for the rival too.
        everywhere = design.optimal(rival.epsilon, levels=rival.levels, loss=loss)
        assert everywhere.lower_bound is not None
        assert everywhere.lower_bound <= value * (1 + MANY), rival.name


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 4.0, 8.0, 12.0])
@pytest.mark.parametrize("knots", [2, 33, None])
def test_certified_epsilon_is_as_asked(epsilon: float, knots: Any) -> None:
    outer = 1 + 2.5 / math.expm1(epsilon)
    result = design.optimal(epsilon, levels=[-outer, -0.5, 0.5, outer], knots=knots)
    assert result.mechanism.epsilon <= epsilon
    if knots != 2:  # two rows may leave some of it unspent, as more would buy nothing
        assert result.mechanism.epsilon >= epsilon * (1 - 1e-5)
    report = verify(result.mechanism)
    assert report.valid
    assert report.epsilon_upper <= epsilon


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
@pytest.mark.parametrize("shift", [0.0, 1.0, -50.0])
def test_loss_scales_with_the_data(scale: float, shift: float) -> None:
    moved = design.optimal(
        1.0,
        lower=(shift - 1) * scale,
        upper=(shift + 1) * scale,
        levels=(np.array(LEVELS) + shift) * scale,
        knots=17,
    )
    plain = design.optimal(1.0, levels=LEVELS, knots=17)
    # A tenth of what designs promise: the same program, scaled.
    assert moved.loss == pytest.approx(plain.loss * scale**2, rel=1e-7)


def test_infeasible_levels_are_named_with_what_is_missing() -> None:
    needed = 2 / math.expm1(1.0)
    with pytest.raises(
        InfeasibleError,
        match=r"1\.16395 beyond the range .* 1\.66395 more below lower and 1\.66395 more",
    ):
        design.optimal(1.0, levels=[-0.5, 0.5])
    with pytest.raises(InfeasibleError, match=r"0\.163953 more below lower, raise epsilon"):
        design.optimal(1.0, levels=[-2, 3])
    # Exactly far enough is feasible: one-bit randomized response.
    result = design.optimal(1.0, levels=[-1 - needed, 0.0, 1 + needed])
    assert result.mechanism.epsilon <= 1.0
    assert result.loss == pytest.approx((1 + needed) ** 2 - 1 / 3, rel=SOLVED)
    assert result.gap is not None
    assert (
        result.gap <= 1e-3 * result.loss
    )  # near two sided bounds that cost a solver its last digits; said in the gap


def test_two_levels_leave_no_choice() -> None:
    result = design.optimal(2.0, levels=[-3, 4])
    # Rounding to weights of 2^-32.
    assert result.mechanism.epsilon == pytest.approx(two_level_epsilon(-3, 4, -1, 1), rel=1e-8)


@pytest.mark.parametrize("knots", [9, None])
def test_extreme_priors(knots: Any) -> None:
    many = np.random.default_rng(5).normal(0.2, 0.5, size=1_000_000)
    point = design.optimal(1.0, levels=LEVELS, prior=[0.3], knots=knots)
    # All the weight on one input: its loss there must not exceed any other table's, such as the uniform optimum's.
    uniform = design.optimal(1.0, levels=LEVELS, knots=knots)
    assert point.loss <= uniform.mechanism.mse([0.3]) * (1 + SOLVED)
    mixed = np.concatenate([np.full(500, -0.25), np.linspace(-1, 1, 500)])
    assert design.optimal(1.0, levels=LEVELS, prior=mixed, knots=knots).mechanism.epsilon <= 1
    big = design.optimal(1.0, levels=LEVELS, prior=many, knots=knots)
    clipped = stats.norm(0.2, 0.5)
    same = design.optimal(1.0, levels=LEVELS, prior=clipped, knots=knots)
    assert big.loss == pytest.approx(same.loss, rel=5e-3)  # the sample's own standard error


@pytest.mark.parametrize("epsilon", [0.01, 20.0])
@pytest.mark.parametrize("levels", [2, 3, 4])
def test_extreme_epsilons_with_searched_levels(epsilon: float, levels: int) -> None:
    result = design.optimal(epsilon, levels=levels)
    # At epsilon = 20 a weight of 2**-32 is a step of 1e-2 in epsilon.
    assert epsilon * (1 - (1e-5 if epsilon < 15 else 1e-3)) <= result.mechanism.epsilon <= epsilon
    assert verify(result.mechanism).valid
    assert result.gap is not None
    # At epsilon = 0.01 the loss is 4e4, and what is proved of it ends at a part in 1e5.
    assert result.gap <= (1e-6 if epsilon > 0.1 else 3e-5) * result.loss
    # No privacy left: stochastic rounding on even levels has an MSE of step**2 / 6. Nearly all privacy: as one bit.
    known = (2 / (levels - 1)) ** 2 / 6 if epsilon > 1 else 1 / math.tanh(epsilon / 2) ** 2 - 1 / 3
    # Both are limits: at epsilon = 20 a neighbouring level keeps e^-20 of some hundred squared steps.
    assert result.loss == pytest.approx(known, rel=1e-3)


@pytest.mark.parametrize("epsilon", [0.001, 1.0, 12.0])
def test_two_levels_are_as_near_as_they_can_be(epsilon: float) -> None:
    levels = design.optimal(epsilon, levels=2, lower=5, upper=9).mechanism.levels
    reach = 4 / math.expm1(epsilon)
    # The greatest weight is a whole number at most E times the least: their difference loses up to a part in
    # 2**31 (E - 1), and the levels move outwards by as much.
    part = max(1e-8, 2**-30 / math.expm1(epsilon))
    assert levels[0] == pytest.approx(5 - reach, rel=part)
    assert levels[1] == pytest.approx(9 + reach, rel=part)
    assert levels[0] <= 5 - reach


@pytest.mark.parametrize(("lower", "upper"), [(1e6, 1e6 + 1), (0.0, 1e-9), (-1e12, 5.0)])
def test_searched_levels_scale_with_the_data(lower: float, upper: float) -> None:
    plain = design.optimal(1.0, levels=3).loss
    moved = design.optimal(1.0, levels=3, lower=lower, upper=upper).loss
    assert moved == pytest.approx(
        plain * ((upper - lower) / 2) ** 2, rel=1e-5
    )  # searches in other units


@pytest.mark.slow
def test_a_large_sample_is_searched_in_cells_and_designed_exactly() -> None:
    sample = np.random.default_rng(3).normal(0.5, 0.2, 1_000_000)
    result = design.optimal(1.0, levels=3, prior=sample)
    assert result.loss == pytest.approx(result.mechanism.mse(sample), rel=FEW)
    # A million draws: two standard errors.
    assert result.loss == pytest.approx(
        design.optimal(1.0, levels=3, prior=stats.norm(0.5, 0.2)).loss, rel=3e-3
    )


@pytest.mark.parametrize("loss", ["mse", "mae"])
def test_many_point_masses_and_uneven_levels(loss: Any) -> None:
    rng = np.random.default_rng(1)
    levels = np.concatenate([[-3.0], np.sort(rng.uniform(-3, 3, 14)), [3.0]])
    sample = rng.normal(0, 0.5, 120)
    result = design.optimal(1.0, levels=levels, prior=sample, loss=loss)
    points, counts = np.unique(np.clip(sample, -1, 1), return_counts=True)
    counts = counts / sample.size  # the sample reaches both ends
    error = (levels - points[:, None]) ** 2 if loss == "mse" else np.abs(levels - points[:, None])
    best = floor_program(counts[:, None] * error, points, levels, 1.0)
    assert result.gap is not None
    assert result.gap <= SOLVED * result.loss
    assert result.loss == pytest.approx(best, rel=2 * SOLVED)


def test_atoms_at_the_ends_are_bounded_exactly() -> None:
    for prior in (stats.poisson(0.3), np.array([-1.0, 0.0, 1.0]), np.array([1.0, 1.0])):
        result = design.optimal(1.0, levels=LEVELS, prior=prior)
        assert result.gap is not None
        assert result.gap <= SOLVED * result.loss


def test_levels_only_outside_or_only_inside() -> None:
    outside = design.optimal(1.0, levels=[-4, -3, 3, 4])
    assert outside.gap is not None
    assert outside.gap <= SOLVED * outside.loss
    inside = design.optimal(1.0, levels=[-0.6, -0.2, 0.2, 0.6], max_bias=0.9)
    assert inside.mechanism.max_bias <= 0.9 + 1e-8  # rounding to weights of 2^-32
    with pytest.raises(InfeasibleError):
        design.optimal(1.0, levels=[-0.6, -0.2, 0.2, 0.6])


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": math.inf}, "epsilon"),
        ({"epsilon": 30.0}, "epsilon"),
        ({"lower": 1.0, "upper": 1.0}, "lower"),
        ({"lower": math.inf}, "lower"),
        ({"levels": [1.0]}, "levels"),
        ({"levels": [3, 1]}, "levels"),
        ({"levels": [1, math.nan]}, "levels"),
        ({"levels": 1}, "levels"),
        ({"levels": "ab"}, "levels"),
        ({"levels": True}, "levels"),
        ({"loss": "rmse"}, "loss"),
        ({"knots": 1}, "knots"),
        ({"knots": [-1, 0.5]}, "knots"),
        ({"knots": [-1, 0.5, 0, 1]}, "knots"),
        ({"delta": -0.1}, "delta"),
        ({"delta": 1e-12}, "delta"),
        ({"delta": 0.1, "alpha": 2.0}, "delta"),
        ({"alpha": 1.0}, "alpha"),
        ({"alpha": 1e8}, "alpha"),
        ({"lower": -1e100, "upper": 1e100}, "upper"),
        ({"lower": 0.0, "upper": 1e-100}, "upper"),
        ({"metric": "l3"}, "metric"),
        ({"metric": "squared"}, "knots"),
        ({"max_bias": -1.0}, "max_bias"),
        ({"max_bias": math.nan}, "max_bias"),
        ({"max_bias": "small"}, "max_bias"),
        ({"alpha": "two"}, "alpha"),
        ({"delta": None}, "delta"),
        ({"levels": 3, "max_level": "far"}, "max_level"),
        ({"levels": 3, "max_level": math.nan}, "max_level"),
        ({"levels": 3, "max_level": 1.0}, "max_level"),
        ({"max_level": 5.0}, "max_level"),
        ({"prior": []}, "prior"),
        ({"prior": [0.1, math.nan]}, "prior"),
    ],
)
def test_bad_input_is_named(options: dict[str, Any], named: str) -> None:
    with pytest.raises(ParameterError) as caught:
        design.optimal(**{"epsilon": 1.0, "levels": LEVELS, **options})
    assert caught.value.parameter == named


def test_a_histogram_is_a_prior_and_tiny_epsilons_end() -> None:
    edges = np.array([-1.0, -0.5, 0.3, 1.0])
    shaped = stats.rv_histogram((np.array([1.0, 3.0, 2.0]), edges), density=False)
    result = design.optimal(1.0, levels=LEVELS, prior=shaped)
    assert result.gap is not None
    assert (
        result.gap <= 1e-3 * result.loss
    )  # near two sided bounds that cost a solver its last digits; said in the gap
    assert result.loss == pytest.approx(result.mechanism.mse(shaped), rel=FEW)
    tiny = 1e-6
    assert 0 < design.optimal(tiny, levels=2).mechanism.epsilon <= tiny


def test_worst_mse_is_the_supremum_over_inputs() -> None:
    for mechanism in (
        families.rqm(levels=4, extension=1.0, q=0.3),
        families.pbm(trials=3, theta=0.3, knots=5),
    ):
        x = np.linspace(-1, 1, 20001)
        error = (mechanism.pmf(x) * (mechanism.levels - x[:, None]) ** 2).sum(axis=1)
        assert error.max() <= mechanism.worst_mse() * (1 + FEW)
        # A grid of inputs misses the peak by a part of its curvature.
        assert error.max() >= mechanism.worst_mse() * (1 - 1e-3)


@pytest.mark.parametrize(
    ("levels", "divergence", "reach", "knots"),
    [(4, 0.75, 2.0, 9), (16, 1.0, 2.0, 9), (16, 0.75, 2.0, 9)],
)
def test_renyi_designs_near_the_least_feasible_divergence(
    levels: int, divergence: float, reach: float, knots: int
) -> None:
    grid = np.linspace(-reach, reach, levels).tolist()
    result = design.optimal(
        epsilon=divergence, alpha=1.5, lower=-1, upper=1, levels=grid, knots=knots
    )
    assert result.mechanism.renyi(1.5) <= divergence
    assert result.gap <= KEPT * result.loss
    # Outermost levels alone are a table of these levels too, and need log(...) = 0.66: the optimum is below its error.
    ends = design.optimal(
        epsilon=divergence, alpha=1.5, lower=-1, upper=1, levels=[-reach, reach], knots=knots
    )
    assert result.loss < ends.loss


@pytest.mark.parametrize("knots", [None, 2, 3, 17])
@pytest.mark.parametrize("levels", [[-178.66, 112.5, 750.01], [-750.01, -112.5, 178.66]])
def test_far_levels_do_not_hide_a_bias_that_a_cone_solver_left(levels, knots) -> None:
    """The solver's tolerance is nothing beside levels of 750 and a third of the range; no unbiased table has less than
    the least average error, whatever its inputs."""
    least = design.optimal(0.0112, levels=levels).lower_bound
    result = design.optimal(0.0112, levels=levels, loss="minimax", knots=knots)
    span = levels[-1] - levels[0]
    assert result.mechanism.max_bias <= span / 2**32
    assert result.loss >= least * (1 - MANY)
    # Two given knots carry all multipliers, and levels that reach barely far enough make them large.
    assert result.slack <= 10 * SOLVED * result.loss


_REACH = 1 + 2 / np.expm1(2.0) * (1 + 1e-15)
_SAMPLE = np.round(np.random.default_rng(0).normal(0.3, 0.3, 1500), 6)


@pytest.mark.parametrize(
    ("epsilon", "levels", "options"),
    [
        (2.0, [-2.2838, -0.8525, 0.1751, _REACH], {"prior": _SAMPLE}),
        (0.01, [-200.00200267450828, -137.41, 7.53, 57.45, 155.64, 397.0557], {"loss": "minimax"}),
    ],
    ids=["sample", "minimax"],
)
def test_levels_that_just_reach_on_one_side_are_as_good_as_their_mirror_image(
    epsilon: float, levels: list[float], options: dict[str, Any]
) -> None:
    mirrored = options | ({"prior": -options["prior"]} if "prior" in options else {})
    one = design.optimal(epsilon, levels=levels, **options)
    other = design.optimal(epsilon, levels=[-level for level in levels[::-1]], **mirrored)
    gaps = [found.gap for found in (one, other)]
    assert None not in gaps
    # The mirror image was twice as good once; and once, on one CPU, its bound was worse by 4.5e-4.
    assert max(gaps) <= 1e-4 * one.loss  # pyright: ignore
    assert abs(one.loss - other.loss) <= sum(gaps) + one.slack + other.slack  # pyright: ignore


@pytest.mark.parametrize("far", [1e8, 1e10, 1e15, 1e100, 1e200])
@pytest.mark.parametrize("loss", ["mse", "minimax"])
def test_levels_too_far_for_the_weights_are_named_and_others_have_true_bounds(
    far: float, loss: Any
) -> None:
    for levels in ([-far, -0.5, 0.5, far], [-3.0, -0.5, 0.5, far]):
        if far > 1e9:
            with pytest.raises(InfeasibleError, match="one unit of 2\\*\\*-32 moves a mean by"):
                design.optimal(1.0, levels=levels, loss=loss)
            continue
        result = design.optimal(1.0, levels=levels, loss=loss)
        assert result.gap is not None
        assert result.gap >= -result.slack
        assert result.mechanism.max_bias <= 2 * far / 2**32
        assert result.status == "feasible" or result.gap <= KEPT * result.loss


@pytest.mark.parametrize("width", [1e-2, 1e-4, 1e-5, 1e-7, 1e-10])
@pytest.mark.parametrize("kind", ["distribution", "few points", "many points"])
def test_narrow_priors_have_tight_bounds(width: float, kind: str) -> None:
    rng, levels = np.random.default_rng(0), [-3, -1, 0.2, 0.9, 3]
    prior: Any = stats.norm(0.3, width)
    if kind != "distribution":
        prior = rng.normal(0.3, width, 1500 if kind == "few points" else 9000)
    result = design.optimal(1.0, levels=levels, prior=prior)
    assert result.gap is not None
    # Point masses are spread over 1e-4, and as near is the bound; an uneven histogram of many points within 1/4096.
    assert -result.slack <= result.gap <= 2e-4 * result.loss


def test_the_largest_bias_is_kept_in_integers() -> None:
    for max_bias in (1e-6, 0.01, 0.3):
        result = design.optimal(1.0, levels=LEVELS, max_bias=max_bias, knots=5)
        assert result.mechanism.max_bias <= max_bias


@pytest.mark.parametrize(
    ("seconds", "remedy"), [("ten", "a number"), (0.0, "above 0"), (math.nan, "a number")]
)
def test_impossible_times_for_proofs_are_named(seconds: Any, remedy: str) -> None:
    with pytest.raises(ParameterError, match=f"seconds=.*{remedy}"):
        design.optimal(1.0, levels=[-3, 3], prove=True, seconds=seconds)


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_the_units_of_the_data_do_not_decide_what_is_called_optimal(unit: float) -> None:
    # At this epsilon integers are too coarse to come near the bound.
    result = design.optimal(22.0, lower=-unit, upper=unit, levels=4)
    assert result.gap is not None
    assert result.gap > result.loss / 100
    assert result.status == "feasible"


@pytest.mark.parametrize(
    ("lower", "upper", "remedy"),
    [(1.0, 1.0, "must lie below"), (-1e308, 1e308, "overflows"), (1.0, 1 + 2**-50, "too narrow")],
)
def test_a_range_without_room_is_refused(lower: float, upper: float, remedy: str) -> None:
    with pytest.raises(ParameterError, match=remedy):
        design.optimal(1.0, lower=lower, upper=upper)


@pytest.mark.parametrize("epsilon", [9e-9, 1e-12, 1e-17, 1e-300])
@pytest.mark.parametrize("name", ["optimal", "mvu", "imvu", "optm", "limit", "compare"])
def test_epsilons_that_no_table_of_integers_can_show_are_refused(name: str, epsilon: float) -> None:
    with pytest.raises(InfeasibleError, match="ask for 1e-08 or more"):
        getattr(design, name)(epsilon=epsilon)


def test_optm_leaves_out_bins_so_wide_that_integers_cannot_be_unbiased() -> None:
    """The widest bins that it would search are 6.4e8 out here, where a unit moves means by more than an eighth."""
    result = design.optm(1.25e-8, levels=3)
    span = float(np.ptp(result.mechanism.levels))
    assert span / 2**32 <= (result.mechanism.upper - result.mechanism.lower) / 8
    assert result.mechanism.max_bias <= span / 2**32
    with pytest.raises(InfeasibleError, match="an eighth of the range"):
        design.optm(1.25e-8, bins=[-6e8, 0, 6e8])
