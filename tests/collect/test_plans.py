"""Plans against beta quantiles, formulas and the estimators that they predict."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from laws.registry import judges
from mezzotint import Mechanism, collect, design, families
from mezzotint.cli import run
from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.plans import half_widths
from mezzotint.collect.questions import Question, expected_shares
from mezzotint.core.errors import InfeasibleError, ParameterError
from reference.mechanisms import stepped
from tolerances import MANY, printed

BETA = stats.beta(2, 5).ppf((np.arange(2000) + 0.5) / 2000)


def krr(epsilon: float) -> Mechanism:
    return families.categorical(categories=range(10), epsilon=epsilon, method="krr")


# Reference numbers -------------------------------------------------------------------------------


def test_people_and_epsilon_of_the_reference() -> None:
    """By beta quantiles, another implementation; the normal formula says 1799 for the first."""
    assert collect.plan(epsilon=1.0, half_width=0.05, levels=2).people == 1840
    share: dict[str, Any] = {"above": 0.5, "share": 0.1, "half_width": 0.02}
    assert collect.plan("share", epsilon=1.0, **share).people == 9812
    assert collect.plan("share", people=5000, **share).epsilon == pytest.approx(
        1.41715, abs=printed(5)
    )
    ten: dict[str, Any] = {"categories": 10, "share": 0.05, "mechanism": krr, "epsilon": 2.0}
    assert collect.plan("frequency", half_width=0.02, **ten).people == 4806
    assert collect.plan("frequency", half_width=0.02, simultaneous=True, **ten).people == 9724


def test_the_better_number_of_levels_is_planned_where_none_is_given() -> None:
    """For worst inputs one bit needs fewer people than four levels; for mild ones it is the other way round."""
    for asked, levels in (({}, 2), ({"inputs": BETA}, 4)):
        chosen = collect.plan(epsilon=4.0, half_width=0.02, **asked)
        people = {
            size: collect.plan(epsilon=4.0, half_width=0.02, levels=size, **asked).people
            for size in (2, 4)
        }
        assert chosen.question.levels == levels
        assert chosen.people == min(people.values())
    least = collect.plan(people=chosen.people, half_width=0.02, inputs=BETA)
    assert least.epsilon == pytest.approx(
        4.0, rel=0.01
    )  # a step of the search, a person more or less
    assert least.half_width <= 0.02


def test_a_quantile_that_needs_more_cells_says_so() -> None:
    quantile: dict[str, Any] = {"probability": 0.9, "inputs": BETA, "half_width": 0.01}
    with pytest.raises(InfeasibleError, match=r"more cells than 4 \(--levels\)"):
        collect.plan("quantile", epsilon=4.0, **quantile)


def test_the_least_number_of_people_is_the_least() -> None:
    for goal in (0.02, 0.1, 0.4):
        planned = collect.plan(epsilon=1.0, half_width=goal, levels=2)
        assert planned.half_width <= goal
        fewer = collect.plan(epsilon=1.0, people=planned.people - 1, levels=2)
        assert fewer.half_width > goal


def test_a_heavy_hitter_of_the_reference() -> None:
    found = collect.plan("hitters", categories=1000, epsilon=4.0, people=20_000)
    # Printed to 1e-4, and a step of the support count, 1 of 20,000 over a signal of .6.
    assert found.half_width == pytest.approx(0.0309, abs=2e-4)


@pytest.mark.parametrize(
    ("estimand", "asked"),
    [
        ("frequency", {"categories": 10}),
        ("cell", {"categories": (4, 3)}),
        ("hitters", {"categories": 4}),
        ("mean", {}),
    ],
)
def test_a_table_of_another_question_is_refused(estimand: Any, asked: dict[str, Any]) -> None:
    table = families.categorical(categories=list("abcd"), epsilon=0.5)
    for tables in (table, lambda epsilon: table):
        with pytest.raises(ParameterError, match="mechanism"):
            collect.plan(estimand, epsilon=1.0, people=1000, mechanism=tables, **asked)


def test_the_table_of_heavy_hitters_is_that_of_their_cells() -> None:
    planned = collect.plan("hitters", categories=100, epsilon=2.0, people=1000)
    domain = families.hashed(categories=list(range(100)), epsilon=2.0)
    assert planned.mechanism.probabilities.shape == domain.mechanism.probabilities.shape
    assert planned.mechanism.epsilon == domain.mechanism.epsilon


@judges("collect.plans.Goal.epsilon", "collect.plans.Plan.report_epsilon")
def test_where_a_lot_is_better_than_a_split() -> None:
    """Of W = 2 questions both are as good where tanh^2(E / 4) = sqrt 2 - 1."""
    closed = 4 * math.atanh(math.sqrt(math.sqrt(2) - 1))
    for epsilon, best in ((closed - 0.1, "lot"), (closed + 0.1, "split")):
        planned = collect.plan(epsilon=epsilon, people=100_000, levels=2, waves=2)
        assert planned.options[0].strategy == best
    planned = collect.plan(epsilon=1.0, people=10_000, levels=2, waves=4)
    widths = {option.strategy: option.half_width for option in planned.options}
    assert widths["lot"] == pytest.approx(0.0428, abs=printed(4))
    assert widths["split"] == pytest.approx(0.0792, abs=printed(4))
    assert planned.options[0].strategy == "lot"
    assert planned.epsilon == 1.0
    rich = collect.plan(epsilon=6.0, people=10_000, levels=2, waves=4)
    assert rich.options[0].strategy == "split"
    # A budget beyond what a table of one report can spend is not spent.
    lavish = collect.plan(epsilon=60.0, people=1000, levels=2, waves=2)
    assert max(option.report_epsilon for option in lavish.options) <= 20
    memoised = collect.plan(epsilon=1.0, people=10_000, levels=2, waves=52, distinct=2)
    assert memoised.options[0].strategy == "memoised"
    assert memoised.report_epsilon == 0.5
    # The plan holds what was asked; what is printed of it does not.
    assert (memoised.asking.waves, memoised.asking.distinct) == (52, 2)
    assert "asking" not in memoised.as_dict()


@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.999])
@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 8.0])
def test_no_effect_is_seen_no_more_often_than_the_level_allows(
    epsilon: float, confidence: float
) -> None:
    """Widths that were cut to the range made one person enough at every small epsilon."""
    for levels in (2, 4):
        question = Question(estimand="difference", levels=levels, confidence=confidence)
        for people in (1, 2, 19, 100, 10**4, 10**8):
            power = question.power(epsilon, people, 1e-12)
            assert power <= (1 - confidence) * (2 if people < 100 else 1)
    least = collect.plan(
        "difference", epsilon=epsilon, effect=0.1, power=0.5, confidence=confidence, levels=2
    )
    assert least.half_width == pytest.approx(0.1, rel=0.1)  # seen every other time: as wide


@pytest.mark.slow
def test_the_planned_power_is_that_of_draws() -> None:
    """500 runs at a small epsilon, all inputs of the greatest variance; 5 standard errors."""
    planned = collect.plan("difference", epsilon=0.1, effect=0.5, power=0.8, levels=2)
    assert planned.mechanism is not None
    half = planned.people // 2
    rng = np.random.default_rng(5)
    ones = [0.75, 0.25]
    seen, runs = 0, 500
    for _ in range(runs):
        parts = []
        for share in ones:
            codes = planned.mechanism.privatize((rng.random(half) < share) * 1.0, rng=rng)
            counts = collect.CodeCounts.from_codes(codes, mechanism=planned.mechanism)
            group = collect.Group(counts=counts, weights=counts.counts, squares=counts.counts)
            parts.append(collect.parts_of(group)["mean"])
        seen += collect.difference(*parts).low > 0
    assert planned.power is not None
    assert seen / runs == pytest.approx(planned.power, abs=5 * math.sqrt(0.16 / runs))


def test_power_by_the_normal_formula() -> None:
    """The chance that the planned interval excludes 0, two-sided; people for it, and back."""
    planned = collect.plan("difference", epsilon=1.0, effect=0.1, power=0.8, levels=2)
    table = planned.mechanism
    worst = expected_shares(table, None)
    mean = float(worst @ table.levels)
    variance = float(worst @ (table.levels - mean) ** 2) * 4 / planned.people
    deviation = math.sqrt(variance)
    sides = [(sign * 0.1 - planned.half_width) / deviation for sign in (1, -1)]
    assert planned.power == pytest.approx(special.ndtr(sides).sum(), rel=MANY)
    assert planned.power >= 0.8
    fewer = collect.plan("difference", epsilon=1.0, effect=0.1, people=planned.people - 2, levels=2)
    assert fewer.power is not None
    assert fewer.power < 0.8


# Against the estimators --------------------------------------------------------------------------

Draw = Callable[[np.random.Generator], collect.Interval]


def mean_of(table: Mechanism, n: int) -> Draw:
    def draw(rng: np.random.Generator) -> collect.Interval:
        counts = rng.multinomial(n, table.pmf(BETA).mean(axis=0))
        return collect.estimate(CodeCounts(mechanism=table, counts=counts)).mean  # type: ignore[union-attr]

    return draw


def share_of(table: Mechanism, n: int, edge: float) -> Draw:
    def draw(rng: np.random.Generator) -> collect.Interval:
        counts = CodeCounts(
            mechanism=table, counts=rng.multinomial(n, table.pmf(BETA).mean(axis=0))
        )
        bins = collect.estimate(counts, histogram=[0, edge, 1]).histogram  # type: ignore[union-attr]
        assert bins is not None
        return collect.Interval(
            value=float(bins.share[1]), low=float(bins.low[1]), high=float(bins.high[1])
        )

    return draw


RR100 = families.randomized_response(lower=0, upper=1, epsilon=1.0)
KRR8 = families.k_randomized_response(lower=0, upper=1, levels=8, epsilon=1.0)
BIT = collect.threshold_table(1.0, lower=0, upper=1, threshold=0.3)

CELLS: dict[str, tuple[dict[str, Any], Draw, float]] = {
    "mean": (
        {"estimand": "mean", "mechanism": RR100, "people": 2000},
        mean_of(RR100, 2000),
        float(BETA.mean()),
    ),
    "share by one bit": (
        {"estimand": "share", "above": 0.3, "mechanism": BIT, "people": 5000},
        share_of(BIT, 5000, 0.3),
        float((BETA > 0.3).mean()),
    ),
    "share by a linear table": (
        {"estimand": "share", "above": 0.3, "mechanism": KRR8, "people": 2000},
        share_of(KRR8, 2000, 0.3),
        float((BETA > 0.3).mean()),
    ),
}


@judges(
    "collect.plans.Asking.options",
    "collect.questions.Question.half_width",
    "collect.questions.Question.interval",
    "collect.plans.plan",
    "collect.plans.Goal.plan",
)
@pytest.mark.parametrize("name", CELLS)
def test_what_is_predicted_is_what_is_realised(name: str) -> None:
    """Within 5 % of the realised mean, and the truth is covered; benchmarks/planning.py has all twelve cells."""
    asked, draw, truth = CELLS[name]
    predicted = collect.plan(**asked, inputs=BETA).half_width
    rng, draws = np.random.default_rng(5), 25
    found = [draw(rng) for _ in range(draws)]
    realised = np.mean([(one.high - one.low) / 2 for one in found])
    assert predicted == pytest.approx(realised, rel=0.05)  # what a plan promises
    hits = sum(one.low <= truth <= one.high for one in found)
    assert hits >= stats.binom(draws, 0.95).ppf(1e-5)


def test_worst_inputs_are_the_worst() -> None:
    """No mixture of two inputs gives a wider interval of the mean, but by what discreteness adds."""
    table = design.optimal(epsilon=2.0, lower=0, upper=1, levels=4).mechanism
    worst = collect.plan(mechanism=table, people=1000).half_width
    for x, y, share in ((0.0, 1.0, 0.5), (0.2, 0.9, 0.3), (0.5, 0.5, 1.0), (0.0, 0.6, 0.8)):
        inputs = np.repeat([x, y], [round(100 * (1 - share)), round(100 * share)])
        other = collect.plan(mechanism=table, people=1000, inputs=inputs).half_width
        assert other <= worst * 1.001


def test_what_a_table_leaves_open_is_told_apart() -> None:
    planned = collect.plan("share", above=0.3, mechanism=KRR8, people=10**6, inputs=BETA)
    assert planned.identified is not None
    assert 0.05 < planned.identified < planned.half_width
    with pytest.raises(
        InfeasibleError,
        match=r"reach a half width of 0.* and no more can be asked; use a table made",
    ):
        collect.plan("share", above=0.3, mechanism=KRR8, half_width=0.01, inputs=BETA)


@pytest.mark.parametrize(
    ("asked", "parameter"),
    [
        ({"epsilon": 1.0}, "epsilon"),
        ({"epsilon": 1.0, "people": 100, "half_width": 0.1}, "epsilon"),
        ({"estimand": "quantile", "epsilon": 1.0, "people": 100}, "probability"),
        ({"estimand": "quantile", "probability": 0.5, "epsilon": 1.0, "people": 9}, "inputs"),
        ({"estimand": "frequency", "epsilon": 1.0, "people": 100}, "categories"),
        ({"estimand": "share", "epsilon": 1.0, "people": 100}, "above"),
        ({"estimand": "share", "above": 2.0, "epsilon": 1.0, "people": 100}, "above"),
        ({"estimand": "slope", "inputs": [1.0], "epsilon": 1.0, "people": 100}, "second"),
        ({"epsilon": -1.0, "people": 100}, "epsilon"),
        ({"epsilon": 1.0, "power": 0.8}, "power"),
        ({"estimand": "difference", "epsilon": 1.0, "power": 0.8}, "effect"),
        ({"epsilon": 1.0, "people": 0}, "people"),
        ({"mechanism": RR100, "people": 10, "half_width": 0.1}, "mechanism"),
    ],
)
def test_questions_that_cannot_be(asked: dict[str, Any], parameter: str) -> None:
    with pytest.raises(ParameterError) as caught:
        collect.plan(**asked)
    assert caught.value.parameter == parameter


def test_pairs_cost_both_reports() -> None:
    planned = collect.plan("cell", categories=(4, 3), share=0.02, epsilon=4.0, people=5000)
    assert planned.report_epsilon == 2.0
    assert {option.strategy for option in planned.options} == {"one question"}
    waves = collect.plan("cell", categories=(4, 3), share=0.02, epsilon=4.0, people=5000, waves=2)
    assert {option.strategy for option in waves.options} == {"split"}


def test_totals_and_slopes_and_quantiles_are_planned() -> None:
    total = collect.plan("total", mechanism=RR100, inputs=BETA, population=20_000, people=2500)
    assert 300 < total.half_width < 3000
    asked: dict[str, Any] = {"inputs": BETA, "population": 20_000}
    with pytest.raises(ParameterError, match="people=20001: at most 20,000 can be asked"):
        collect.plan("total", mechanism=RR100, people=20_001, **asked)
    weights = np.linspace(1, 3, BETA.size)
    most = math.floor(20_000 * np.mean(1 / weights))
    with pytest.raises(ParameterError, match=f"at most {most:,} can be asked"):
        collect.plan("total", mechanism=RR100, people=most + 1, weights=weights, **asked)
    # Everybody leaves a width; a plan reaches just that, and names it where it cannot.
    everybody = collect.plan("total", mechanism=RR100, people=20_000, **asked).half_width
    with pytest.raises(InfeasibleError, match="20,000 people reach a half width of") as refused:
        collect.plan("total", mechanism=RR100, half_width=everybody / 2, **asked)
    (named,) = re.findall(r"half width of ([0-9.]+) at epsilon", str(refused.value))
    # It is named with six digits, rounded up.
    assert everybody <= float(named) <= everybody * (1 + 1e-5)
    assert collect.plan("total", mechanism=RR100, half_width=float(named), **asked).people <= 20_000
    bit: dict[str, Any] = {
        "mechanism": lambda epsilon: families.randomized_response(lower=0, upper=1, epsilon=epsilon)
    }
    with pytest.raises(InfeasibleError, match="use a larger epsilon, or a larger half_width"):
        collect.plan("total", epsilon=1.0, half_width=1e-3, **asked, **bit)
    with pytest.raises(
        InfeasibleError, match=r"2,000 people reach a half width of .* at epsilon 20"
    ):
        collect.plan("total", people=2000, half_width=1e-3, **asked, **bit)
    with pytest.raises(InfeasibleError, match=r"20 people reach a power of 0\.0"):
        collect.plan("difference", people=20, effect=0.01, power=0.9, **bit)
    # Of an effect beside a half width the power is no goal; of both goals, both are named.
    compared: dict[str, Any] = {"effect": 0.1, "half_width": 1e-9, "epsilon": 1.0, **bit}
    width = "reach a half width of [0-9.e-]+"
    with pytest.raises(InfeasibleError, match=rf"{width} at epsilon 1,.*, or a larger half_width$"):
        collect.plan("difference", **compared)
    with pytest.raises(
        InfeasibleError, match=rf"{width} and a power of 1 at.*and a smaller power$"
    ):
        collect.plan("difference", power=0.5, **compared)
    slope = collect.plan(
        "slope",
        mechanism=lambda epsilon: families.k_randomized_response(
            lower=0, upper=1, levels=4, epsilon=epsilon
        ),
        inputs=BETA[::10],
        second=0.2 + 0.5 * BETA[::10],
        epsilon=8.0,
        people=50_000,
    )
    assert math.isfinite(slope.half_width)
    quantile = collect.plan(
        "quantile", probability=0.9, mechanism=stepped(10, 4.0), inputs=BETA, people=2000
    )
    assert quantile.half_width == pytest.approx(0.1, abs=0.01)  # cells of a tenth


def test_half_widths_fall_with_people() -> None:
    question = Question(estimand="mean", tables=RR100)
    widths = half_widths(question, 1.0, [10, 100, 1000, 10_000])
    assert (np.diff(widths) < 0).all()


# The command line --------------------------------------------------------------------------------


def told(capsys: pytest.CaptureFixture[str], *arguments: object, status: int = 0) -> str:
    capsys.readouterr()
    assert run(["plan", *map(str, arguments)]) == status
    out, err = capsys.readouterr()
    return out + err


def test_plan_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--estimand", "share", "--above", "140", "--lower", "20", "--upper", "700"]
    asked += ["--epsilon", "1", "--people", "40000"]
    facts = json.loads(told(capsys, *asked, "--json"))
    assert facts["half_width"] == pytest.approx(0.01063, abs=printed(5))
    assert facts["command"].startswith("mezzotint plan --estimand share --above 140")
    table = tmp_path / "bit.json"
    again = json.loads(told(capsys, *asked, "--json", "--out", table))
    assert str(table) in again["command"]
    assert Mechanism.load(table).sha256 == again["mechanism"]
    for ending in ("png", "svg", "pdf"):
        figure = tmp_path / f"plan.{ending}"
        told(capsys, "--levels", 2, "--epsilon", 1, "--people", 1000, "--figure", figure)
        assert figure.stat().st_size > 1000
    text = told(capsys, "--levels", 2, "--epsilon", 1, "--people", 1000, "--waves", 3)
    assert "lot" in text
    assert "Next: mezzotint design --epsilon 1 " in text
    cells = ("--estimand", "cell", "--categories", "2,4", "--epsilon", 1, "--people", 9000)
    command = json.loads(told(capsys, *cells, "--json"))["command"]
    for names in ("NAME1,NAME2 --out m1.json", "NAME1,NAME2,NAME3,... --out m2.json"):
        assert f"--categories {names}" in command
    assert "needs one number of categories" in told(
        capsys, "--estimand", "frequency", "--epsilon", 1, "--people", 10, status=2
    )
    assert "give --mechanism or --family" in told(
        capsys, "--mechanism", table, "--family", "rqm", "--people", 10, status=2
    )
    family = json.loads(told(capsys, "--family", "rqm", "--epsilon", 1, "--people", 1000, "--json"))
    assert family["half_width"] > 0


def test_a_table_that_is_given_costs_its_epsilon_however_it_is_asked() -> None:
    """A report from it costs no less in a share of a budget: ways that leave less are none."""
    table = families.randomized_response(lower=0, upper=1, epsilon=1.0)
    alone = collect.plan(mechanism=table, people=10_000, columns=3)
    assert [option.strategy for option in alone.options] == ["lot"]
    richer = collect.plan(mechanism=table, people=10_000, columns=3, epsilon=3 * table.epsilon)
    assert {option.strategy for option in richer.options} == {"lot", "split"}
    assert {option.report_epsilon for option in (*alone.options, *richer.options)} == {
        table.epsilon
    }
    with pytest.raises(InfeasibleError, match=r"costs more than an epsilon of 0\.5"):
        collect.plan(mechanism=table, people=10_000, epsilon=0.5)


def test_people_for_tables_without_epsilon_and_without_information() -> None:
    rounding = families.stochastic_rounding(lower=0, upper=1, levels=2)
    assert math.isinf(rounding.epsilon)
    planned = collect.plan(mechanism=rounding, half_width=0.05)
    assert math.isinf(planned.report_epsilon)
    assert planned.half_width <= 0.05
    half = [[2**31, 2**31]] * 2
    constant = Mechanism(knots=[0.0, 1.0], levels=[0.0, 1.0], weights=half)
    with pytest.raises(
        InfeasibleError,
        match=r"reach a half width of 0.* and no more can be asked; use a table made",
    ):
        collect.people_for(constant, 0.1)


def test_a_search_tells_its_steps() -> None:
    """Doubled until enough, then halved in: the steps of a progress display, the answer among them."""
    steps: list[tuple[int, float]] = []
    planned = collect.plan(
        epsilon=1.0,
        half_width=0.05,
        levels=2,
        progress=lambda people, epsilon: steps.append((people, epsilon)),
    )
    people = [count for count, _ in steps]
    assert people[:4] == [2, 4, 8, 16]
    assert planned.people in people
    assert {epsilon for _, epsilon in steps} == {1.0}


def test_a_printed_plan_says_its_table_and_ways_in_words() -> None:
    planned = collect.plan(epsilon=1.0, people=1000, levels=2, waves=2)
    text = " ".join(str(planned).split())
    assert f"table {planned.mechanism.sha256[:12]}" in text
    assert planned.mechanism.sha256 not in text
    assert "2 levels, epsilon 1 (certified, to an observer of every single report)" in text
    assert "lot: epsilon 1 of a report, 500 people, half width" in text
    assert "confidence 95 %" in text
    assert planned.as_dict()["mechanism"] == planned.mechanism.sha256


@pytest.mark.parametrize(
    ("estimand", "asked", "named"),
    [
        ("mean", {"above": 0.5}, "above"),
        ("mean", {"probability": 0.5}, "probability"),
        ("mean", {"share": 0.5}, "share"),
        ("mean", {"second": BETA}, "second"),
        ("mean", {"first_share": 0.1}, "first_share"),
        ("mean", {"population": 1000}, "population"),
        ("mean", {"weights": [1.0, 2.0]}, "weights"),
        ("mean", {"simultaneous": True}, "simultaneous"),
        ("frequency", {"categories": 3, "inputs": BETA}, "inputs"),
        ("difference", {"above": 0.5}, "above"),
        ("total", {"inputs": [0.1, 0.5], "population": 0}, "population"),
        ("total", {"inputs": [0.1, 0.5], "population": 10**6, "weights": [1, 1, 1]}, "weights"),
        ("total", {"inputs": [0.1, 0.5], "population": 10**6, "weights": [0, 1]}, "weights"),
        ("total", {"inputs": [0.1, 0.5], "population": 10**6, "weights": [-1, 1]}, "weights"),
    ],
)
def test_arguments_without_effect_or_sense_are_refused(
    estimand: Any, asked: dict[str, Any], named: str
) -> None:
    """A mean "above 0.5" was planned as a mean, and a frequency said that it used a sample."""
    with pytest.raises(ParameterError, match=f"^{named}="):
        collect.plan(estimand, epsilon=1.0, people=1000, **asked)
