"""Plans before anything is collected: how many people, how much epsilon, how wide an interval.

A half width is predicted by the very code that makes the interval, on the counts that reports are expected
to have. Where the distribution of the inputs is not given, it is the worst one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast, final, get_args

import numpy as np
import numpy.typing as npt
from scipy import optimize, special, stats

from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.groups import Group, PairCounts, Part, difference, relation, total
from mezzotint.collect.intervals import (
    LADDER,
    Interval,
    Sums,
    Target,
    check_confidence,
    clopper_pearson,
    normal_quantile,
    spread_of,
    target_of_mean,
    target_of_values,
    targets_of_categories,
    within,
)
from mezzotint.collect.shapes import CrossFitted, possible_mean
from mezzotint.core.arguments import check_choice, check_count
from mezzotint.core.errors import InfeasibleError, ParameterError, as_real
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, Record, plain
from mezzotint.core.types import FloatArray

Estimand = Literal[
    "mean", "share", "frequency", "quantile", "difference", "slope", "total", "cell", "hitters"
]
Strategy = Literal["one question", "split", "lot", "memoised"]
Tables = Callable[[float], Mechanism]
"""Makes the table of a report from its epsilon."""

MOST_PEOPLE = 10**12
LEAST_EPSILON, MOST_EPSILON = 1e-3, 20.0
"""Where plans look for numbers of people and for the epsilon of a report; tables end soon after."""

ROUNDINGS = 2.0**-50
"""What a budget may be below the cost of its reports: a product and a quotient, rounded."""

LISTED = 0.9
"""Of the power of a heavy hitter: that no category which is not listed gets more support than is planned for."""

PAIRS = ("slope", "cell")
"""Estimands about two columns of the same record: each person gives two reports."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """What is asked of the reports, and what is assumed about the inputs.

    Arguments:
        estimand: "mean", "share" (of inputs above a value), "frequency" (of one of k categories),
            "quantile", "difference" (of the means of two groups), "slope" (of a second column on the
            first), "total" (of a population from a sample), "cell" (of a two-way table), "hitters" (the
            least share of a category that is certain to be found in a large domain).
        tables: the table of a report, or what makes it from its epsilon; None for the best one.
        lower, upper: range of the inputs, data units.
        levels: levels of the best table for means, cells of that for quantiles.
        categories: their number, or those of both columns of a two-way table.
        above: the value of a share, data units.
        probability: of a quantile.
        share: anticipated share, frequency or cell; None for the one of widest interval.
        inputs: anticipated inputs, a public sample, data units; None for the worst.
        second: of the second group, or of the second column of the same records.
        first_share: of the people in the first of two groups.
        population, weights: of a total: people of whom a sample is asked, and public weights of the
            sample in `inputs`, to each other; None for equal ones.
        confidence, simultaneous: of the interval, or of those of all categories or cells at once.
    """

    estimand: Estimand
    tables: Mechanism | Tables | None = None
    lower: float = 0.0
    upper: float = 1.0
    levels: int = 4
    categories: tuple[int, ...] = ()
    above: float | None = None
    probability: float | None = None
    share: float | None = None
    inputs: FloatArray | None = None
    second: FloatArray | None = None
    first_share: float = 0.5
    population: int | None = None
    weights: FloatArray | None = None
    confidence: float = 0.95
    simultaneous: bool = False

    def __post_init__(self) -> None:
        check_choice("estimand", self.estimand, get_args(Estimand))
        check_confidence(self.confidence)
        if not self.lower < self.upper:
            raise ParameterError("upper", self.upper, "must be above lower")
        needed: dict[str, tuple[str, ...]] = {
            "share": ("above",),
            "quantile": ("probability", "inputs"),
            "slope": ("inputs", "second"),
            "total": ("population", "inputs"),
        }
        for name in needed.get(self.estimand, ()):
            if getattr(self, name) is None:
                raise ParameterError(name, None, f"a plan for a {self.estimand} needs it")
        columns = {"frequency": 1, "hitters": 1, "cell": 2}.get(self.estimand, 0)
        if len(self.categories) != columns:
            wanted = ("no number", "one number", "two numbers")[columns]
            remedy = f"{self.estimand}: needs {wanted} of categories"
            given = ",".join(map(str, self.categories)) or None
            raise ParameterError("categories", given, remedy)
        if min(self.categories, default=2) < 2:
            raise ParameterError("categories", self.categories, "need at least 2 categories")
        if self.above is not None and not self.lower < self.above < self.upper:
            raise ParameterError("above", self.above, "must lie between lower and upper")
        for name in ("probability", "share", "first_share"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise ParameterError(name, value, "must lie between 0 and 1")
        if self.estimand == "slope":
            assert self.inputs is not None, "checked"
            assert self.second is not None, "checked"
            if np.shape(self.inputs) != np.shape(self.second):
                raise ParameterError(
                    "second", np.shape(self.second), "needs a value for each input"
                )

    @property
    def assumption(self) -> str:
        """What the plan takes the inputs to be."""
        if self.inputs is not None:
            return "inputs as in the sample given"
        if self.share is not None:
            return f"a share of {self.share:g}"
        if self.estimand in ("share", "frequency", "cell"):
            return "the share of the widest interval"
        if self.estimand == "hitters":
            return "unlisted categories of equal shares"
        return "the inputs of the widest interval"

    # Tables ------------------------------------------------------------------------------------------

    def table(self, epsilon: float, column: int = 0) -> Mechanism:
        """The table of one report at this epsilon."""
        if isinstance(self.tables, Mechanism):
            return self.tables
        if self.tables is not None:
            return self.tables(epsilon)
        from mezzotint import design, families

        if self.estimand in ("frequency", "cell"):
            return families.categorical(categories=range(self.categories[column]), epsilon=epsilon)
        if self.estimand == "share":
            assert self.above is not None
            return threshold_table(
                epsilon, lower=self.lower, upper=self.upper, threshold=self.above
            )
        span: dict[str, Any] = {"lower": self.lower, "upper": self.upper}
        if self.estimand == "quantile":
            return design.optimal(
                epsilon, loss="cdf", knots=self.levels + 1, levels=2 * self.levels, **span
            ).mechanism
        return design.optimal(epsilon, levels=self.levels, **span).mechanism

    def price(self, budget: float) -> float | None:
        """The epsilon of one report within this budget; None where a table that is given costs more."""
        if not isinstance(self.tables, Mechanism):
            return min(budget, MOST_EPSILON)  # beyond it there is no noise left to save
        cost = self.tables.epsilon
        return cost if cost * (1 - ROUNDINGS) <= budget else None

    # Intervals on expected counts --------------------------------------------------------------------

    def interval(self, epsilon: float, people: float) -> Interval:
        """The interval that the expected counts give.

        Arguments:
            epsilon: of each report.
            people: who answer this question; it may be a fraction.
        """
        by_name: dict[str, Callable[[float, float], Interval]] = {
            "mean": self._mean,
            "share": self._share,
            "frequency": self._frequency,
            "quantile": self._quantile,
            "difference": self._difference,
            "slope": self._slope,
            "total": self._total,
            "cell": self._cell,
            "hitters": self._hitters,
        }
        return by_name[self.estimand](epsilon, people)

    def half_width(self, epsilon: float, people: float) -> float:
        """Half the width of that interval."""
        found = self.interval(epsilon, people)
        return (found.high - found.low) / 2

    def _mean(self, epsilon: float, people: float) -> Interval:
        table = self.table(epsilon)
        reports = Sums.of_counts(people * expected_shares(table, self.inputs))
        target = target_of_mean(table)
        low, high = target.interval(reports, confidence=self.confidence)
        bias = table.max_bias
        return possible_mean(table, target.value(reports), low - bias, high + bias)

    def _share(self, epsilon: float, people: float) -> Interval:
        assert self.above is not None
        table = self.table(epsilon)
        edges = np.array([self.lower, self.above, self.upper])
        if self.inputs is not None:
            shares = expected_shares(table, self.inputs)
        else:
            below, above = table.pmf(np.array([self.lower, self.upper]))
            part = 0.5 if self.share is None else self.share
            shares = (1 - part) * below + part * above
        event = CrossFitted(
            _rounded(table, shares, 1), confidence=self.confidence, edges=edges
        ).event_of_share(self.above, self.upper)
        if event is None:
            counts = _rounded(table, shares, people)
            return CrossFitted(counts, confidence=self.confidence, edges=edges).share(
                self.above, self.upper
            )
        low, high = event.ends(Sums.of_counts(people * shares), (1 - self.confidence) / 2)
        line = event.lower
        value = line[0] + line[1] * float(shares[event.codes].sum())
        return within(value, float(low), float(high), bounds=(0.0, 1.0))

    def _level_of_each(self, number: int) -> float:
        return 1 - (1 - self.confidence) / number if self.simultaneous else self.confidence

    def _frequency(self, epsilon: float, people: float) -> Interval:
        table = self.table(epsilon)
        names = table.categories or ()
        target = targets_of_categories(table)[0]
        share = widest_share(target) if self.share is None else self.share
        inputs = np.append(share, np.full(len(names) - 1, (1 - share) / (len(names) - 1)))
        return _of_target(
            target, people * (inputs @ table.probabilities), self._level_of_each(len(names))
        )

    def _cell(self, epsilon: float, people: float) -> Interval:
        first, second = self.table(epsilon), self.table(epsilon, 1)
        size = len(first.categories or ()) * len(second.categories or ())
        values = np.outer(first.frequency_decoders[:, 0], second.frequency_decoders[:, 0])
        pmf = np.asarray(np.kron(first.probabilities, second.probabilities), dtype=np.float64)
        share = 0.5 if self.share is None else self.share
        inputs = np.append(share, np.full(size - 1, (1 - share) / (size - 1)))
        target = target_of_values(pmf, values.ravel())
        return _of_target(target, people * (inputs @ pmf), self._level_of_each(size))

    def _quantile(self, epsilon: float, people: float) -> Interval:
        assert self.probability is not None
        table = self.table(epsilon)
        counts = _rounded(table, expected_shares(table, self.inputs), people)
        shapes = CrossFitted(counts, confidence=self.confidence, edges=None)
        return shapes.quantile(self.probability)

    def parts(self, epsilon: float, people: float) -> tuple[Part, Part]:
        """The two groups of a difference."""
        table = self.table(epsilon)
        target = target_of_mean(table)
        numbers = (self.first_share * people, (1 - self.first_share) * people)
        second = self.inputs if self.second is None else self.second
        parts = []
        for number, inputs in zip(numbers, (self.inputs, second), strict=True):
            reports = Sums.of_counts(number * expected_shares(table, inputs))
            below, above = target.sides(reports, normal_quantile(self.confidence) * LADDER)
            parts.append(
                Part(
                    value=target.value(reports),
                    below=below,
                    above=above,
                    bias=table.max_bias,
                    bounds=(table.lower, table.upper),
                    n=math.ceil(number),
                )
            )
        return parts[0], parts[1]

    def _difference(self, epsilon: float, people: float) -> Interval:
        return difference(*self.parts(epsilon, people))

    def power(self, epsilon: float, people: float, effect: float) -> float:
        """Chance that the interval of the difference excludes 0, where it is `effect`."""
        table = self.table(epsilon)
        half = self.half_width(epsilon, people)
        second = self.inputs if self.second is None else self.second
        numbers = (self.first_share * people, (1 - self.first_share) * people)
        variance = 0.0
        for number, inputs in zip(numbers, (self.inputs, second), strict=True):
            shares = expected_shares(table, inputs)
            mean = float(shares @ table.levels)
            variance += float(shares @ (table.levels - mean) ** 2) / number
        deviation = math.sqrt(variance)
        above, below = special.ndtr([(effect - half) / deviation, (-effect - half) / deviation])
        return float(above + below)

    def _slope(self, epsilon: float, people: float) -> Interval:
        assert self.inputs is not None
        assert self.second is not None
        first, second = self.table(epsilon), self.table(epsilon, 1)
        joint = first.pmf(self.inputs).T @ second.pmf(self.second) / self.inputs.size
        counts = np.rint(people * joint).astype(np.int64)
        pairs = PairCounts(first=first, second=second, counts=counts)
        slope = relation(pairs, confidence=self.confidence).slope
        return Interval(value=0.0, low=-math.inf, high=math.inf) if slope is None else slope

    def _total(self, epsilon: float, people: float) -> Interval:
        assert self.inputs is not None
        assert self.population is not None
        table = self.table(epsilon)
        relative = np.ones(self.inputs.size) if self.weights is None else self.weights
        chances = people / self.population / relative / np.mean(1 / relative)
        if chances.max() > 1:
            raise ParameterError(
                "people", people, "so many of some weight are not there to be asked"
            )
        each = self.population / self.inputs.size * table.pmf(self.inputs)
        return total(
            Group(
                counts=CodeCounts(mechanism=table, counts=np.rint(chances @ each).astype(np.int64)),
                weights=each.sum(axis=0),
                squares=(1 / chances) @ each,
                heaviest=float(1 / chances.min()),
            ),
            confidence=self.confidence,
        )

    def _hitters(self, epsilon: float, people: float) -> Interval:
        """From 0 to twice the least share that is found with certainty: its half width is that share."""
        least = self.least_certain(epsilon, people, power=0.8)
        return Interval(value=least, low=0.0, high=2 * least)

    def least_certain(self, epsilon: float, people: float, *, power: float) -> float:
        """The least share of a category that is listed as certain with this probability; inf for none."""
        from mezzotint import families

        size, n = self.categories[0], math.floor(people)
        domain = families.hashed(categories=[str(i) for i in range(size)], epsilon=epsilon)
        own, others = domain.chances
        unlisted = 1 / size if self.share is None else self.share
        tail = (1 - self.confidence) / size / 2
        chance = others + unlisted * (own - others)
        most = float(stats.binom.ppf(LISTED ** (1 / (size - 1)), n, chance))
        limit = float(clopper_pearson(most, n, tail)[1])
        supports = np.arange(math.floor(most), n + 1)
        enough = supports[clopper_pearson(supports, n, tail)[0] > limit]
        if not enough.size:
            return math.inf

        def shortfall(share: float) -> float:
            found = stats.binom.sf(enough[0] - 1, n, others + share * (own - others))
            return float(found) - power / LISTED

        return (
            cast(float, optimize.brentq(shortfall, 0.0, 1.0)) if shortfall(1.0) >= 0 else math.inf
        )


def _of_target(target: Target, counts: FloatArray, confidence: float) -> Interval:
    reports = Sums.of_counts(counts)
    low, high = target.interval(reports, confidence=confidence)
    return within(target.value(reports), low, high, bounds=(0.0, 1.0))


def _rounded(table: Mechanism, shares: FloatArray, people: float) -> CodeCounts:
    counts = np.rint(people * shares).astype(np.int64)
    if not counts.any():
        counts[np.argmax(shares)] = 1
    return CodeCounts(mechanism=table, counts=counts)


def expected_shares(table: Mechanism, inputs: FloatArray | None) -> FloatArray:
    """(m,) shares of the codes from a sample of inputs, or from those of the greatest variance."""
    if inputs is not None:
        return table.pmf(np.asarray(inputs, dtype=np.float64)).mean(axis=0)
    spread = spread_of(table)
    low, high, share = spread.rows_of_greatest
    return (1 - share) * table.probabilities[low] + share * table.probabilities[high]


def widest_share(target: Target) -> float:
    """The share at which half of the reports are in the event that decides it, or the middle."""
    if target.event is None:
        return 0.5
    offset, slope = target.event.lower
    return float(np.clip(offset + slope / 2, 0.0, 1.0))


def threshold_table(epsilon: float, *, lower: float, upper: float, threshold: float) -> Mechanism:
    """Randomized response on whether an input lies above a value: one bit, whose share is exact.

    Arguments:
        epsilon: of a report.
        lower, upper: range of the inputs, data units.
        threshold: the value, inside the range.

    Returns: a table whose rows jump at the threshold.

    Example:
        >>> table = mz.collect.threshold_table(1.0, lower=20, upper=700, threshold=140)
        >>> table.bits, table.epsilon <= 1.0
        (1, True)
    """
    from mezzotint import families

    middles = (lower + threshold) / 2, (threshold + upper) / 2
    bit = families.randomized_response(lower=middles[0], upper=middles[1], epsilon=epsilon)
    return Mechanism(
        knots=np.array([lower, threshold, threshold, upper]),
        levels=bit.levels,
        weights=np.repeat(bit.weights, 2, axis=0),
        name=f"above {threshold:g}, epsilon {epsilon:g}",
    )


# Plans -----------------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class Option(Record):
    """One way of asking several questions within one budget per person.

    Arguments:
        strategy: "one question"; "split" (everybody answers all, at a share of the budget each),
            "lot" (everybody answers one, drawn by a public lot per person, with all of the budget),
            "memoised" (the same value gives the same report: the budget is shared by distinct values).
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
        half_width: of each interval at this confidence, in the unit of what is estimated; of heavy hitters
            the least share that is found with certainty.
        confidence: of each interval.
        identified: half the width that would be left with ever more people: the table's fault.
        effect, power: of a difference: the size that is to be seen, and the chance to see it.
        options: the ways of asking, best first; the first is the plan.
        assumption: what the inputs are taken to be. The prediction is for the average draw: half of
            the realised widths exceed it, by 1 to 10 % in one of twenty.
        mechanism: the table of a report.
        question: what was planned for, to plan on: `half_widths` draws its curves.

    Example:
        >>> plan = mz.collect.plan(epsilon=1.0, half_width=0.05, levels=2)
        >>> plan.people
        1840
    """

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
    mechanism: Mechanism
    question: Question

    @property
    def report_epsilon(self) -> float:
        """Of each report."""
        return self.options[0].report_epsilon

    def as_dict(self) -> JsonObject:
        """Plain values for JSON; the table by its hash."""
        shown = {**vars(self), "mechanism": self.mechanism.sha256}
        shown["report_epsilon"] = self.report_epsilon
        del shown["question"]
        return {name: plain(value) for name, value in shown.items() if value is not None}


@final
@dataclass(frozen=True, kw_only=True)
class Asking:
    """How often a person is asked within one budget.

    Arguments:
        columns, waves: questions of the same kind about one person: columns times waves.
        distinct: most distinct values that one person has over the waves, where reports are memoised;
            None for fresh draws.
        pairs: whether a question needs both reports of a record: lots would lose them.
    """

    columns: int = 1
    waves: int = 1
    distinct: int | None = None
    pairs: bool = False

    def options(self, question: Question, epsilon: float, people: float) -> list[Option]:
        """The ways of asking within the budget, best first.

        Raises:
            InfeasibleError: a table that is given costs more than any way leaves for a report.
        """
        each = 2 if self.pairs else 1
        found = []
        for strategy, budget, answering in self._ways(epsilon, people):
            price = question.price(budget / each)
            if price is None:
                continue
            width = question.half_width(price, answering)
            found.append(
                Option(strategy=strategy, report_epsilon=price, people=answering, half_width=width)
            )
        if not found:
            raise InfeasibleError(
                f"plan: a report from the table that is given costs more than an epsilon of {epsilon:g} leaves for it; "
                "give a larger epsilon, or what makes tables"
            )
        return sorted(found, key=lambda option: option.half_width)

    def _ways(self, epsilon: float, people: float) -> Iterator[tuple[Strategy, float, float]]:
        questions = self.columns * self.waves
        if questions == 1:
            yield "one question", epsilon, people
            return
        yield "split", epsilon / questions, people
        if not self.pairs:
            yield "lot", epsilon, people / questions
        if self.distinct is not None:
            yield "memoised", epsilon / (self.columns * self.distinct), people


def lot_crossover(questions: int) -> float:
    """The epsilon of a person below which one question each, by lot, beats an even split; randomized response.

    Arguments:
        questions: >= 2 about one person.

    Returns: the epsilon of one person over all questions.

    Guarantees: for the inputs of the greatest variance, where n times it is coth(epsilon/2)^2 / 4.

    Example:
        >>> [round(mz.collect.lot_crossover(w), 2) for w in (2, 3, 4, 8, 52)]
        [3.06, 3.71, 4.25, 5.88, 14.52]
    """
    count = check_count("questions", questions, least=2)

    def advantage(epsilon: float) -> float:
        split, lot = 1 / math.tanh(epsilon / 2 / count), 1 / math.tanh(epsilon / 2)
        return 2 * math.log(split / lot) - math.log(count)

    return cast(float, optimize.brentq(advantage, 1e-6, 40.0 * count))


def plan(
    estimand: Estimand = "mean",
    *,
    epsilon: float | None = None,
    people: int | None = None,
    half_width: float | None = None,
    effect: float | None = None,
    power: float | None = None,
    confidence: float = 0.95,
    simultaneous: bool = False,
    mechanism: Mechanism | Tables | None = None,
    lower: float = 0.0,
    upper: float = 1.0,
    levels: int = 4,
    categories: int | tuple[int, ...] = (),
    above: float | None = None,
    probability: float | None = None,
    share: float | None = None,
    inputs: npt.ArrayLike | None = None,
    second: npt.ArrayLike | None = None,
    first_share: float = 0.5,
    population: int | None = None,
    weights: npt.ArrayLike | None = None,
    columns: int = 1,
    waves: int = 1,
    distinct: int | None = None,
) -> Plan:
    """People, epsilon or half width: the one that is left out, from the other two.

    Arguments:
        estimand, lower, upper, levels, categories, above, probability, share, inputs, second,
            first_share, population, weights, confidence, simultaneous: as in `Question`.
        epsilon: that one person may spend over all columns and waves.
        people: who give reports.
        half_width: that the interval may have.
        effect, power: of a difference, in place of the half width: the difference that is to be seen,
            and the chance to see it (its interval excludes 0).
        mechanism: a table, whose epsilon is that of a report; or what makes one from an epsilon; None
            for the best one.
        columns, waves, distinct: as in `Asking`: several questions within one budget.

    Returns: the plan. The half width is that of the estimator on expected counts: realised ones vary
        around it, half of them are wider.

    Raises:
        ParameterError: not exactly two of epsilon, people and half width (or effect and power); an
            argument that the estimand needs.
        InfeasibleError: no number of people, or no epsilon, is enough.

    Source: docs/proofs/estimation.md, E11.

    Example:
        >>> mz.collect.plan("share", above=140, lower=20, upper=700, share=0.1, epsilon=1.0, half_width=0.02).people
        9812
    """
    fixed = mechanism if isinstance(mechanism, Mechanism) else None
    if fixed is not None:
        lower, upper = fixed.lower, fixed.upper
    question = Question(
        estimand=estimand,
        tables=mechanism,
        lower=as_real("lower", lower, math.isfinite, "needs a finite number"),
        upper=as_real("upper", upper, math.isfinite, "needs a finite number"),
        levels=check_count("levels", levels, least=2, most=256),
        categories=(categories,) if isinstance(categories, int) else tuple(categories),
        above=above,
        probability=probability,
        share=share,
        inputs=_sample(inputs),
        second=_sample(second),
        first_share=first_share,
        population=population,
        weights=_sample(weights),
        confidence=confidence,
        simultaneous=simultaneous,
    )
    asking = Asking(
        columns=check_count("columns", columns, least=1),
        waves=check_count("waves", waves, least=1),
        distinct=None if distinct is None else check_count("distinct", distinct, least=1),
        pairs=estimand in PAIRS,
    )
    goal = Goal(question=question, asking=asking, half_width=half_width, effect=effect, power=power)
    if epsilon is not None:
        remedy = "must be above 0 and finite"
        epsilon = as_real("epsilon", epsilon, lambda number: 0 < number < math.inf, remedy)
    if fixed is not None and epsilon is None and (people is None or not goal.given):
        epsilon = fixed.epsilon * (2 if asking.pairs else 1)
    if sum((epsilon is not None, people is not None, goal.given)) != 2:
        raise ParameterError(
            "epsilon",
            epsilon,
            "give exactly two of epsilon, people and half_width (or effect and power)",
        )
    if people is None:
        assert epsilon is not None
        people = goal.people(epsilon)
    elif epsilon is None:
        if fixed is not None:
            raise ParameterError("mechanism", fixed.name, "has one epsilon; give what makes tables")
        epsilon = goal.epsilon(people)
    options = asking.options(question, epsilon, check_count("people", people, least=1))
    seen = (
        None
        if effect is None
        else question.power(options[0].report_epsilon, options[0].people, effect)
    )
    chosen = question.table(options[0].report_epsilon)
    left_open = question.interval(options[0].report_epsilon, options[0].people).identified
    return Plan(
        estimand=estimand,
        people=people,
        epsilon=epsilon,
        half_width=options[0].half_width,
        confidence=confidence,
        identified=None if left_open is None else (left_open[1] - left_open[0]) / 2,
        effect=effect,
        power=seen,
        options=tuple(options),
        assumption=question.assumption,
        mechanism=chosen,
        question=question,
    )


def _sample(values: npt.ArrayLike | None) -> FloatArray | None:
    if values is None:
        return None
    array = np.asarray(values, dtype=np.float64).ravel()
    if not array.size or not np.isfinite(array).all():
        raise ParameterError("inputs", array.size, "need a sample of finite numbers")
    return array


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Goal:
    """What a plan must reach: a half width, or the power to see an effect."""

    question: Question
    asking: Asking
    half_width: float | None
    effect: float | None
    power: float | None

    def __post_init__(self) -> None:
        if self.half_width is not None and not self.half_width > 0:
            raise ParameterError("half_width", self.half_width, "must be above 0")
        if self.power is not None and not 0 < self.power < 1:
            raise ParameterError("power", self.power, "must lie between 0 and 1")
        if (
            self.effect is not None or self.power is not None
        ) and self.question.estimand != "difference":
            raise ParameterError("power", self.power, 'needs the estimand "difference"')
        if self.power is not None and self.effect is None:
            raise ParameterError(
                "effect", None, "a power is the chance to see an effect: give its size"
            )

    @property
    def given(self) -> bool:
        """Whether anything is to be reached."""
        return self.half_width is not None or self.power is not None

    def reached(self, epsilon: float, people: float) -> bool:
        """Whether the best way of asking reaches it."""
        option = self.asking.options(self.question, epsilon, people)[0]
        if self.half_width is not None and option.half_width > self.half_width:
            return False
        if self.power is None:
            return True
        assert self.effect is not None
        power = self.question.power(option.report_epsilon, option.people, self.effect)
        return power >= self.power

    def people(self, epsilon: float) -> int:
        """The least number of people: doubled until it is enough, then halved in."""
        enough = 2
        while not self.reached(epsilon, enough):
            if enough >= MOST_PEOPLE:
                raise InfeasibleError(
                    f"plan: not even {MOST_PEOPLE:,} people are enough: the table leaves more open; use a table made "
                    "for this estimand, or a larger half_width"
                )
            enough *= 2
        short = enough // 2
        if enough == 2 and self.reached(epsilon, 1):
            return 1
        while enough - short > 1:
            middle = (short + enough) // 2
            if self.reached(epsilon, middle):
                enough = middle
            else:
                short = middle
        return enough

    def epsilon(self, people: int) -> float:
        """The least epsilon on a ladder that is enough, then halved in: widths need not fall in epsilon."""
        ladder = np.geomspace(LEAST_EPSILON, MOST_EPSILON, 16).tolist()
        enough = next((epsilon for epsilon in ladder if self.reached(epsilon, people)), None)
        if enough is None:
            raise InfeasibleError(
                f"plan: no epsilon up to {MOST_EPSILON:g} is enough for {people:,} people; ask more people"
            )
        place = ladder.index(enough)
        short = ladder[place - 1] if place else 0.0
        for _ in range(20):
            middle = (short + enough) / 2
            if self.reached(middle, people):
                enough = middle
            else:
                short = middle
        return enough


def half_widths(planned: Question, epsilon: float, people: npt.ArrayLike) -> FloatArray:
    """Half widths for several numbers of people, for curves."""
    return np.array([planned.half_width(epsilon, number) for number in np.asarray(people).tolist()])


def people_for(mechanism: Mechanism, half_width: float, *, confidence: float = 0.95) -> int:
    """People for a half width of the mean by one table, whatever the inputs are.

    Arguments:
        mechanism: a table of numbers.
        half_width: data units.
        confidence: of the interval, in (0, 1).

    Returns: the least number that is enough.

    Raises:
        InfeasibleError: the bias of the table is larger.

    Example:
        >>> mz.collect.people_for(mz.families.randomized_response(lower=0, upper=1, epsilon=1.0), 0.05)
        1840
    """
    return plan(mechanism=mechanism, half_width=half_width, confidence=confidence).people
