"""Questions that reports are to answer, and how wide their intervals will be.

A half width is predicted by the very code that makes the interval, on the counts that reports are expected
to have. Where the distribution of the inputs is not given, it is the worst one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast, final, get_args

import numpy as np
from scipy import optimize, special, stats

from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.groups import Group, Part, difference, total
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
from mezzotint.collect.pairs import PairCounts, relation
from mezzotint.collect.shapes import CrossFitted, possible_mean
from mezzotint.core.arguments import check_choice
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import FloatArray

Estimand = Literal[
    "mean", "share", "frequency", "quantile", "difference", "slope", "total", "cell", "hitters"
]
Tables = Callable[[float], Mechanism]
"""Makes the table of a report from its epsilon."""

MOST_EPSILON = 20.0
"""Of a report: beyond it there is no noise left to save."""

TABLES_KEPT = 128
"""Tables that are kept: a search for a number of people asks for the same one again and again."""

USUAL_LEVELS = 4
"""Levels of a best table for which none are given."""

LEVELS_TRIED = (2, USUAL_LEVELS)
"""Levels that plans for means compare where none are given: for worst inputs one bit is better, for mild ones more."""

SEARCHED = ("mean", "difference", "slope", "total")
"""Estimands whose best table has as many levels as one likes."""

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
    levels: int = USUAL_LEVELS
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
        self._check_needed()
        self._check_categories()
        if self.above is not None and not self.lower < self.above < self.upper:
            raise ParameterError("above", self.above, "must lie between lower and upper")
        for name in ("probability", "share", "first_share"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                raise ParameterError(name, value, "must lie between 0 and 1")

    def _check_needed(self) -> None:
        """Raises ParameterError for an argument without which the estimand cannot be planned."""
        needed: dict[str, tuple[str, ...]] = {
            "share": ("above",),
            "quantile": ("probability", "inputs"),
            "slope": ("inputs", "second"),
            "total": ("population", "inputs"),
        }
        for name in needed.get(self.estimand, ()):
            if getattr(self, name) is None:
                raise ParameterError(name, None, f"a plan for a {self.estimand} needs it")
        if self.estimand == "slope":
            assert self.inputs is not None, "checked"
            assert self.second is not None, "checked"
            if np.shape(self.inputs) != np.shape(self.second):
                remedy = "needs a value for each input"
                raise ParameterError("second", np.shape(self.second), remedy)

    def _check_categories(self) -> None:
        columns = {"frequency": 1, "hitters": 1, "cell": 2}.get(self.estimand, 0)
        if len(self.categories) != columns:
            wanted = ("no number", "one number", "two numbers")[columns]
            remedy = f"{self.estimand}: needs {wanted} of categories"
            spelled = ",".join(map(str, self.categories)) or None
            raise ParameterError("categories", spelled, remedy)
        if min(self.categories, default=2) < 2:
            raise ParameterError("categories", self.categories, "need at least 2 categories")

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
        if self.estimand in ("frequency", "cell"):
            return _categorical(epsilon, self.categories[column])
        span = (self.lower, self.upper)
        if self.estimand == "share":
            assert self.above is not None
            return threshold_table(epsilon, lower=span[0], upper=span[1], threshold=self.above)
        if self.estimand == "quantile":
            return _optimal_for_quantiles(epsilon, span, self.levels)
        return _optimal(epsilon, span, self.levels)

    def price(self, budget: float) -> float | None:
        """The epsilon of one report within this budget; None where a table that is given costs more."""
        if not isinstance(self.tables, Mechanism):
            return min(budget, MOST_EPSILON)
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
        interval = self.interval(epsilon, people)
        return (interval.high - interval.low) / 2

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
            code_shares_below, code_shares_above = table.pmf(edges[[0, -1]])
            share_above = 0.5 if self.share is None else self.share
            shares = (1 - share_above) * code_shares_below + share_above * code_shares_above
        shapes = CrossFitted(_rounded(table, shares, 1), confidence=self.confidence, edges=edges)
        event = shapes.event_of_share(self.above, self.upper)
        if event is None:
            counts = _rounded(table, shares, people)
            shapes = CrossFitted(counts, confidence=self.confidence, edges=edges)
            return shapes.share(self.above, self.upper)
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
        counts = CodeCounts(mechanism=table, counts=np.rint(chances @ each).astype(np.int64))
        sample = Group(
            counts=counts,
            weights=each.sum(axis=0),
            squares=(1 / chances) @ each,
            heaviest=float(1 / chances.min()),
        )
        return total(sample, confidence=self.confidence)

    def _hitters(self, epsilon: float, people: float) -> Interval:
        """From 0 to twice the least share that is found with certainty: its half width is that share."""
        smallest = self.least_certain(epsilon, people, power=0.8)
        return Interval(value=smallest, low=0.0, high=2 * smallest)

    def least_certain(self, epsilon: float, people: float, *, power: float) -> float:
        """The least share of a category that is listed as certain with this probability; inf for none."""
        size, n = self.categories[0], math.floor(people)
        listed_chance, other_chance = _chances_of_support(size, epsilon)
        signal = listed_chance - other_chance
        unlisted = 1 / size if self.share is None else self.share
        tail = (1 - self.confidence) / size / 2
        chance = other_chance + unlisted * signal
        greatest = float(stats.binom.ppf(LISTED ** (1 / (size - 1)), n, chance))
        limit = float(clopper_pearson(greatest, n, tail)[1])
        supports = np.arange(math.floor(greatest), n + 1)
        enough = supports[clopper_pearson(supports, n, tail)[0] > limit]
        if not enough.size:
            return math.inf

        def shortfall(share: float) -> float:
            chance = other_chance + share * signal
            return float(stats.binom.sf(enough[0] - 1, n, chance)) - power / LISTED

        if shortfall(1.0) < 0:
            return math.inf
        return cast(float, optimize.brentq(shortfall, 0.0, 1.0))


@lru_cache(maxsize=TABLES_KEPT)
def _categorical(epsilon: float, categories: int) -> Mechanism:
    from mezzotint import families

    return families.categorical(categories=range(categories), epsilon=epsilon)


@lru_cache(maxsize=TABLES_KEPT)
def _chances_of_support(size: int, epsilon: float) -> tuple[float, float]:
    """The chances that a report supports the category that it is about, and another one."""
    from mezzotint import families

    names = [str(index) for index in range(size)]
    return families.hashed(categories=names, epsilon=epsilon).chances


@lru_cache(maxsize=TABLES_KEPT)
def _optimal(epsilon: float, span: tuple[float, float], levels: int) -> Mechanism:
    from mezzotint import design

    return design.optimal(epsilon, levels=levels, lower=span[0], upper=span[1]).mechanism


@lru_cache(maxsize=TABLES_KEPT)
def _optimal_for_quantiles(epsilon: float, span: tuple[float, float], cells: int) -> Mechanism:
    from mezzotint import design

    search: dict[str, Any] = {"knots": cells + 1, "levels": 2 * cells}
    return design.optimal(epsilon, loss="cdf", lower=span[0], upper=span[1], **search).mechanism


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
