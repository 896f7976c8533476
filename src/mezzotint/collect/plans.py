"""Plans before anything is collected: how many people, how much epsilon, how wide an interval."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Literal, cast, final

import numpy as np
import numpy.typing as npt
from scipy import optimize

from mezzotint.collect.questions import (
    LEVELS_TRIED,
    MOST_EPSILON,
    PAIRS,
    SEARCHED,
    TABLES_KEPT,
    USUAL_LEVELS,
    Estimand,
    Question,
    Tables,
)
from mezzotint.core.arguments import check_count, check_options
from mezzotint.core.errors import (
    InfeasibleError,
    ParameterError,
    as_real,
    as_reals,
)
from mezzotint.core.kinds import checked
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, Record, above, below, confidence_percent
from mezzotint.core.types import FloatArray
from mezzotint.privacy.accounting import table_line

Strategy = Literal["one question", "split", "lot", "memoised"]


EPSILON_STEP = 1e-6
"""Relative precision to which an epsilon is searched for."""


LARGEST_SHORTFALL = 1e9
"""In place of an infinite one, between which and a success there would be no slope."""


LEAST_EPSILON = 1e-3
"""Where plans look for numbers of people and for the epsilon of a report; tables end soon after."""


LADDER_STEPS = 16
"""Epsilons that are tried before the search closes in on one."""


SAMPLES = {"inputs", "second", "weights"}
"""Arguments of a question that are lists of numbers."""


@final
@dataclass(frozen=True, kw_only=True)
class Option(Record):
    """One way of asking several questions within one budget per person.

    Arguments:
        strategy: "one question"; "split" (everybody answers all, at a share of the budget each),
            "lot" (everybody answers one, drawn by a public lot per person, with all of the budget),
            "memoised" (the same value gives the same report: the budget is shared by distinct
            values).
        report_epsilon: of each report.
        people: who answer each question, on average.
        half_width: of the interval of each question, in its unit.

    Example:
        >>> plan = mz.collect.plan(epsilon=1.0, people=10_000, levels=2, waves=4)
        >>> [option.strategy for option in plan.options]
        ['lot', 'split']
    """

    strategy: Strategy
    report_epsilon: float
    people: float
    half_width: float


@final
@dataclass(frozen=True, kw_only=True)
class Plan(Record):
    """A plan: the number that was asked for, and the others.

    Arguments:
        estimand: what is estimated.
        people: who give reports, in all.
        epsilon: of one person, over all columns and waves.
        half_width: of each interval at this confidence, in the unit of what is estimated; of heavy
            hitters the least share that is found with certainty.
        confidence: of each interval.
        identified: half the width that would be left with ever more people: the table's fault.
        effect, power: of a difference: the size that is to be seen, and the chance to see it.
        options: the ways of asking, best first; the first is the plan.
        assumption: what the inputs are taken to be. The prediction is for the average draw: half of
            the realised widths exceed it, by 1 to 10 % in one of twenty; those of quantiles move in
            steps of the table's cells.
        mechanism: the table of a report.
        question: what was planned for, to plan on: `half_widths` draws its curves.
        asking: how often one person is asked: the columns, waves and distinct values of the plan.

    Example:
        >>> plan = mz.collect.plan(epsilon=1.0, half_width=0.05, levels=2)
        >>> plan.people
        1840
    """

    beside = ("report_epsilon",)

    estimand: Estimand
    people: int
    epsilon: float
    half_width: float
    confidence: float
    identified: float | None = None
    effect: float | None = None
    power: float | None = None
    options: tuple[Option, ...]
    assumption: str
    mechanism: Mechanism = field(repr=False)
    question: Question = field(repr=False)
    asking: Asking = field(repr=False)

    @property
    def report_epsilon(self) -> float:
        """Of each report."""
        return self.options[0].report_epsilon

    def as_dict(self) -> JsonObject:
        """Plain values for JSON; the table by its hash."""
        return {**super().as_dict(), "mechanism": self.mechanism.sha256}

    def _told(self) -> JsonObject:
        """What is printed: the ways of asking and the table in words."""
        printed_fields = self.as_dict()
        ways: list[str] = []
        for option in self.options:
            ways.append(
                f"{option.strategy}: epsilon {above(option.report_epsilon)} of a report, "
                f"{option.people:,.0f} people, half width {above(option.half_width)}"
            )
        printed_fields["options"] = "; ".join(ways)
        printed_fields["confidence"] = confidence_percent(self.confidence)
        printed_fields["table"] = table_line(self.mechanism)
        del printed_fields["mechanism"]
        return printed_fields


@final
@checked
@dataclass(frozen=True, kw_only=True)
class Asking:
    """How often a person is asked within one budget.

    Arguments:
        columns, waves: questions of the same kind about one person: columns times waves.
        distinct: most distinct values that one person has over the waves, where reports are
            memoised; None for fresh draws.
        pairs: whether a question needs both reports of a record: lots would lose them.
    """

    columns: int = 1
    waves: int = 1
    distinct: int | None = None
    pairs: bool = False

    def __post_init__(self) -> None:
        for count_name in ("columns", "waves", "distinct"):
            count = getattr(self, count_name)
            if count is not None:
                check_count(count_name, count, least=1)

    @property
    def reports(self) -> int:
        """Reports that one question takes."""
        return 2 if self.pairs else 1

    def options(self, question: Question, epsilon: float, people: float) -> list[Option]:
        """The ways of asking within the budget, best first.

        Raises:
            InfeasibleError: a table that is given costs more than any way leaves for a report.
        """
        options: list[Option] = []
        for strategy, budget, answering in self._ways(epsilon, people):
            price = question.price(budget / self.reports)
            if price is None:
                continue
            width = question.half_width(price, answering)
            options.append(
                Option(
                    strategy=strategy,
                    report_epsilon=price,
                    people=answering,
                    half_width=width,
                )
            )
        if not options:
            problem = f"costs more than an epsilon of {epsilon:g} leaves for it"
            remedy = "give a larger epsilon, or what makes tables"
            raise InfeasibleError(
                f"plan: a report from the table that is given {problem}; {remedy}"
            )
        return sorted(options, key=lambda option: option.half_width)

    def _ways(self, epsilon: float, people: float) -> Iterator[tuple[Strategy, float, float]]:
        """Each way of asking: its name, the epsilon of one question, and how many people
        answer it.
        """
        questions = self.columns * self.waves
        if questions == 1:
            yield "one question", epsilon, people
            return
        yield "split", epsilon / questions, people
        if not self.pairs:
            yield "lot", epsilon, people / questions
        if self.distinct is not None:
            yield (
                "memoised",
                epsilon / (self.columns * self.distinct),
                people,
            )


Progress = Callable[[int, float], None]
"""Is told the people and the epsilon of a step."""


def plan(
    estimand: Estimand = "mean",
    *,
    epsilon: float | None = None,
    people: int | None = None,
    half_width: float | None = None,
    effect: float | None = None,
    power: float | None = None,
    mechanism: Mechanism | Tables | None = None,
    levels: int | None = None,
    columns: int = 1,
    waves: int = 1,
    distinct: int | None = None,
    progress: Progress | None = None,
    **assumed: Any,
) -> Plan:
    """People, epsilon or half width: the one that is left out, from the other two.

    Arguments:
        estimand: as in `Question`.
        levels: as in `Question`; None for 4, or, for what is about means, the better of 2 and 4.
        epsilon: that one person may spend over all columns and waves.
        people: who give reports.
        half_width: that the interval may have.
        effect, power: of a difference, in place of the half width: the difference that is to be
            seen, and the chance to see it (its interval excludes 0).
        mechanism: a table, or what makes one from the epsilon of a report; None for the best one.
        columns, waves, distinct: as in `Asking`: several questions within one budget.
        progress: called with the people and the epsilon of each step of a search.
        assumed: other arguments of `Question`: lower, upper, confidence, simultaneous, categories,
            above, probability, share, inputs, second, first_share, population, weights. Categories
            may be one number, samples may be lists.
    Returns: the plan. The half width is that of the estimator on expected counts: realised ones
        vary around it, half of them are wider.
    Raises:
        ParameterError: not exactly two of epsilon, people and half width (or effect and power); an
            argument that the estimand needs.
        InfeasibleError: no number of people, or no epsilon, is enough.
    Source: docs/proofs/estimation.md, E11.
    Example:
        >>> share = {"above": 140, "lower": 20, "upper": 700, "share": 0.1}
        >>> mz.collect.plan("share", epsilon=1.0, half_width=0.02, **share).people
        9812
    """
    if isinstance(mechanism, Mechanism):
        assumed |= {"lower": mechanism.lower, "upper": mechanism.upper}
    elif mechanism is not None:
        mechanism = lru_cache(maxsize=TABLES_KEPT)(mechanism)
    check_options(assumed, Question, tables="give a mechanism")
    for sample in SAMPLES & assumed.keys():
        assumed[sample] = _sample(assumed[sample])
    if isinstance(assumed.get("categories"), int):
        assumed["categories"] = (assumed["categories"],)
    usual_levels = USUAL_LEVELS if levels is None else levels
    question = Question(estimand=estimand, tables=mechanism, levels=usual_levels, **assumed)
    asking = Asking(columns=columns, waves=waves, distinct=distinct, pairs=estimand in PAIRS)
    aim = {"half_width": half_width, "effect": effect, "power": power}
    goal = Goal(question=question, asking=asking, progress=progress, **aim)
    if levels is not None or mechanism is not None or estimand not in SEARCHED:
        return goal.plan(epsilon, people)
    return _best_levels(goal, epsilon, people)


def _best_levels(goal: Goal, epsilon: float | None, people: int | None) -> Plan:
    """The plan with the number of levels that needs least, of those that are tried."""
    plans: list[Plan] = []
    infeasible: InfeasibleError | None = None
    for levels in LEVELS_TRIED:
        question = replace(goal.question, levels=levels)
        try:
            plans.append(replace(goal, question=question).plan(epsilon, people))
        except InfeasibleError as error:
            infeasible = error
    if not plans:
        assert infeasible is not None, "one of both"
        raise infeasible
    return min(
        plans,
        key=lambda plan: (plan.people, plan.epsilon, plan.half_width),
    )


def _sample(values: npt.ArrayLike | None) -> FloatArray | None:
    if values is None:
        return None
    array = as_reals("inputs", values, "need a sample of finite numbers").ravel()
    if not array.size or not np.isfinite(array).all():
        raise ParameterError("inputs", array.size, "need a sample of finite numbers")
    return array


@final
@checked
@dataclass(frozen=True, kw_only=True, eq=False)
class Goal:
    """What a plan must reach: a half width, or the power to see an effect."""

    question: Question
    asking: Asking
    half_width: float | None
    effect: float | None
    power: float | None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        if self.half_width is not None and not self.half_width > 0:
            raise ParameterError("half_width", self.half_width, "must be above 0")
        if self.power is not None and not 0 < self.power < 1:
            raise ParameterError("power", self.power, "must lie between 0 and 1")
        is_compared = self.effect is not None or self.power is not None
        if is_compared and self.question.estimand != "difference":
            raise ParameterError("power", self.power, 'needs the estimand "difference"')
        if self.power is not None and self.effect is None:
            remedy = "a power is the chance to see an effect: give its size"
            raise ParameterError("effect", None, remedy)

    @property
    def given(self) -> bool:
        """Whether anything is to be reached."""
        return self.half_width is not None or self.power is not None

    @property
    def fixed(self) -> Mechanism | None:
        """The table of a report, where there is one only."""
        tables = self.question.tables
        return tables if isinstance(tables, Mechanism) else None

    def plan(self, epsilon: float | None, people: int | None) -> Plan:
        """The plan; raises ParameterError unless exactly one of epsilon, people and the goal is
        left open.
        """
        if people is not None:
            people = check_count("people", people, least=1)
        if epsilon is not None:
            remedy = "must be above 0 and finite"
            epsilon = as_real(
                "epsilon",
                epsilon,
                lambda number: 0 < number < math.inf,
                remedy,
            )
        elif self.fixed is not None and (people is None or not self.given):
            epsilon = self.fixed.epsilon * self.asking.reports
        if sum((epsilon is not None, people is not None, self.given)) != 2:
            remedy = "give exactly two of epsilon, people and half_width (or effect and power)"
            raise ParameterError("epsilon", epsilon, remedy)
        if people is None:
            assert epsilon is not None
            people = self.people(epsilon)
        elif epsilon is None:
            epsilon = self.epsilon(people)
        return self._solved(epsilon, people)

    def _solved(self, epsilon: float, people: int) -> Plan:
        """The plan of both numbers."""
        question = self.question
        options = self.asking.options(question, epsilon, people)
        best = options[0]
        power = identified = None
        if self.effect is not None:
            power = question.power(best.report_epsilon, best.people, self.effect)
        left_open = question.interval(best.report_epsilon, best.people).identified
        if left_open is not None:
            identified = (left_open[1] - left_open[0]) / 2
        return Plan(
            estimand=question.estimand,
            people=people,
            epsilon=epsilon,
            half_width=best.half_width,
            confidence=question.confidence,
            identified=identified,
            effect=self.effect,
            power=power,
            options=tuple(options),
            assumption=question.assumption,
            mechanism=question.table(best.report_epsilon),
            question=question,
            asking=self.asking,
        )

    def reached(self, epsilon: float, people: float) -> bool:
        """Whether the best way of asking reaches it."""
        return self._shortfall(epsilon, people) <= 0

    @property
    def _better_table(self) -> str:
        """A table that leaves less open, or less to chance."""
        question = self.question
        if question.population is not None and self.fixed is None:
            return "a larger epsilon"
        if question.estimand == "quantile" and question.tables is None:
            return f"one of more cells than {question.levels} (--levels)"
        return "a table made for this estimand"

    def people(self, epsilon: float) -> int:
        """The least number of people: doubled until it is enough, then halved in."""
        limit = self.question.most_people
        enough = min(2, limit)
        short = 0
        while not self.reached(epsilon, enough):
            if enough == limit:
                wishes: list[str] = []
                if self.half_width is not None:
                    wishes.append("a larger half_width")
                if self.power is not None:
                    wishes.append("a smaller power")
                wish = " and ".join(wishes)
                raise InfeasibleError(
                    f"plan: {self._best(epsilon, limit)}, and no more can be asked; use "
                    f"{self._better_table}, or {wish}"
                )
            short = enough
            enough = min(2 * enough, limit)
        between = range(short + 1, enough)
        return short + 1 + bisect_left(between, True, key=lambda n: self.reached(epsilon, n))

    def _best(self, epsilon: float, people: int) -> str:
        """What so many people reach at an epsilon of what was asked for, in words."""
        options = self.asking.options(self.question, epsilon, people)
        option = options[0]
        attained: list[str] = []
        if self.half_width is not None:
            half_width = above(option.half_width)
            attained.append(f"a half width of {half_width}")
        if self.power is not None:
            assert self.effect is not None
            power = self.question.power(option.report_epsilon, option.people, self.effect)
            attained.append(f"a power of {below(power)}")
        best = " and ".join(attained)
        return f"{people:,} people reach {best} at epsilon {above(epsilon)}"

    def epsilon(self, people: int) -> float:
        """The least epsilon on a ladder that is enough, then closed in on: widths need not fall in
        epsilon.
        """
        if self.fixed is not None:
            remedy = "has one epsilon; give what makes tables"
            raise ParameterError("mechanism", self.fixed.name, remedy)
        ladder = np.geomspace(LEAST_EPSILON, MOST_EPSILON, LADDER_STEPS).tolist()
        short: float | None = None
        for enough in ladder:
            if self.reached(enough, people):
                break
            short = enough
        else:
            remedy = "ask more people"
            if self.question.estimand == "quantile":
                remedy += f", or use {self._better_table}"
            raise InfeasibleError(
                f"plan: {self._best(MOST_EPSILON, people)}, and more is of no use; {remedy}"
            )
        if short is None:
            return enough
        precision = np.float64(EPSILON_STEP)
        root = cast(
            float,
            optimize.brentq(
                self._shortfall,
                short,
                enough,
                args=(people,),
                rtol=precision,
            ),
        )
        while root < enough and not self.reached(root, people):
            root *= 1 + EPSILON_STEP
        return min(root, enough)

    def _shortfall(self, epsilon: float, people: float) -> float:
        """By how much the best way of asking misses the goal; negative where it does better."""
        if self.progress is not None:
            self.progress(int(people), epsilon)
        option = self.asking.options(self.question, epsilon, people)[0]
        shortfall = -math.inf
        if self.half_width is not None:
            shortfall = (option.half_width - self.half_width) / self.half_width
        if self.power is not None:
            assert self.effect is not None
            power = self.question.power(option.report_epsilon, option.people, self.effect)
            shortfall = max(shortfall, self.power - power)
        return min(shortfall, LARGEST_SHORTFALL)


def half_widths(planned: Question, epsilon: float, people: npt.ArrayLike) -> FloatArray:
    """Half widths for several numbers of people, for curves."""
    return np.array([planned.half_width(epsilon, number) for number in np.asarray(people).tolist()])


def people_for(
    mechanism: Mechanism,
    half_width: float,
    *,
    confidence: float = 0.95,
) -> int:
    """People for a half width of the mean by one table, whatever the inputs are.

    Arguments:
        mechanism: a table of numbers.
        half_width: data units.
        confidence: of the interval, in (0, 1).

    Returns: the least number that is enough.

    Raises:
        InfeasibleError: the bias of the table is larger.

    Example:
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> mz.collect.people_for(table, 0.05)
        1840
    """
    return plan(
        mechanism=mechanism,
        half_width=half_width,
        confidence=confidence,
    ).people
