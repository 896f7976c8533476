"""Questions that reports are to answer, and how wide their intervals will be.

A half width is predicted by the very code that makes the interval, on the counts that reports are
expected to have. Where the distribution of the inputs is not given, it is the worst one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, cast, final

import numpy as np
from scipy import optimize, special, stats

from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.evidence import CrossFitted
from mezzotint.collect.groups import Group, Part, difference, total
from mezzotint.collect.intervals import (
    Interval,
    Sums,
    Target,
    check_confidence,
    clopper_pearson,
    each_confidence,
    mean_interval,
    target_of_mean,
    target_of_values,
    targets_of_categories,
    within,
)
from mezzotint.collect.pairs import PairCounts, relation
from mezzotint.collect.spreads import spread_of
from mezzotint.collect.support_points import nodes_of
from mezzotint.core.arguments import (
    check_count,
    check_probability,
    check_range,
)
from mezzotint.core.errors import ParameterError
from mezzotint.core.kinds import checked
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import FloatArray

if TYPE_CHECKING:
    from mezzotint.families.hashing import HashedDomain

Estimand = Literal[
    "mean",
    "share",
    "frequency",
    "quantile",
    "difference",
    "slope",
    "total",
    "cell",
    "hitters",
]


Tables = Callable[[float], Mechanism]
"""Makes the table of a report from its epsilon."""


MOST_EPSILON = 20.0
"""Of a report: beyond it there is no noise left to save."""


MOST_PEOPLE = 10**12
"""That a plan asks."""

TABLES_KEPT = 128
"""Tables that are kept: a search for a number of people asks for the same one again and again."""


USUAL_LEVELS = 4
"""Levels of a best table for which none are given."""


LEVELS_TRIED = (2, USUAL_LEVELS)
"""Levels that plans for means compare where none are given: for worst inputs one bit is better, for
mild ones more.
"""


USUAL_CONFIDENCE = 0.95
"""Of an interval for which none is given."""


SEARCHED = ("mean", "difference", "slope", "total")
"""Estimands whose best table has as many levels as one likes."""


ROUNDINGS = 2.0**-50
"""What a budget may be below the cost of its reports: a product and a quotient, rounded."""


SUM_ERROR = 2.0**-40
"""More than the relative error of a sum of weights."""


LISTED = 0.9
"""Of the power of a heavy hitter: that no category which is not listed gets more support than is
planned for.
"""


HITTERS_POWER = 0.8
"""The chance that a heavy hitter of the least share is listed as certain."""

LEAST_GROUP = 10
"""People of a group from whom on a difference has a power."""

PAIRS = ("slope", "cell")
"""Estimands about two columns of the same record: each person gives two reports."""


NEEDED: dict[str, tuple[str, ...]] = {
    "share": ("above",),
    "quantile": ("probability", "inputs"),
    "slope": ("inputs", "second"),
    "total": ("population", "inputs"),
}
"""Estimand -> arguments without which it cannot be planned."""

NEEDED_FOR = {
    "share": (
        "a plan for the share of numbers above a threshold needs the threshold; the share of a "
        "category, such as yes, is a frequency (--estimand frequency --categories 2)"
    )
}
"""Estimand -> why it needs them, where more than that is to be said."""

USED: dict[str, tuple[str, ...]] = {
    "above": ("share",),
    "probability": ("quantile",),
    "share": ("share", "frequency", "cell", "hitters"),
    "inputs": ("mean", "share", "quantile", "difference", "slope", "total"),
    "second": ("difference", "slope"),
    "first_share": ("difference",),
    "population": ("total",),
    "weights": ("total",),
    "simultaneous": ("frequency", "cell", "hitters"),
}
"""Argument -> estimands that it says something about; it would be without effect on others."""

CATEGORY_COLUMNS = {"frequency": 1, "hitters": 1, "cell": 2}
"""Estimand -> columns of categories that it is about."""


@final
@checked
@dataclass(frozen=True, kw_only=True, eq=False)
class Question:
    """What is asked of the reports, and what is assumed about the inputs.

    Arguments:
        estimand: "mean", "share" (of inputs above a value), "frequency" (of one of k categories),
            "quantile", "difference" (of the means of two groups), "slope" (of a second column on
            the first), "total" (of a population from a sample), "cell" (of a two-way table),
            "hitters" (the least share of a category that is certain to be found in a large domain).
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
    confidence: float = USUAL_CONFIDENCE
    simultaneous: bool = False

    def __post_init__(self) -> None:
        check_confidence(self.confidence)
        check_count("levels", self.levels, least=2, most=256)
        check_range(self.lower, self.upper)
        self._check_needed()
        self._check_used()
        self._check_categories()
        if self.above is not None and not self.lower < self.above < self.upper:
            raise ParameterError(
                "above",
                self.above,
                "must lie between lower and upper",
            )
        for argument_name in ("probability", "share", "first_share"):
            argument = getattr(self, argument_name)
            if argument is not None:
                check_probability(argument_name, argument)

    def _check_needed(self) -> None:
        """Raises ParameterError for an argument without which the estimand cannot be planned, or
        that it has no use for.
        """
        if self.estimand == "hitters" and self.tables is not None:
            remedy = "heavy hitters are found by hashes, whose table follows from epsilon"
            raise ParameterError("mechanism", "a table", f"{remedy}; leave it out")
        for argument_name in NEEDED.get(self.estimand, ()):
            if getattr(self, argument_name) is None:
                remedy = NEEDED_FOR.get(self.estimand, f"a plan for a {self.estimand} needs it")
                raise ParameterError(argument_name, None, remedy)
        sizes = [np.size(getattr(self, argument_name)) for argument_name in NEEDED["slope"]]
        if self.estimand == "slope" and sizes[0] != sizes[1]:
            raise ParameterError("second", sizes[1], f"needs a value for each of {sizes[0]} inputs")

    def _check_used(self) -> None:
        """Raises ParameterError for arguments that the estimand has no use for, or cannot use."""
        for argument_name, estimands in USED.items():
            argument = getattr(self, argument_name)
            unused = getattr(type(self), argument_name)
            if self.estimand in estimands or argument is unused:
                continue
            if isinstance(argument, np.ndarray) or argument != unused:
                shown = "a sample" if isinstance(argument, np.ndarray) else argument
                remedy = f"is for a {' or '.join(estimands)}, not for a {self.estimand}"
                raise ParameterError(argument_name, shown, f"{remedy}; leave it out")
        if self.population is not None:
            check_count("population", self.population, least=1)
        if self.weights is not None:
            assert self.inputs is not None, "a total needs it"
            if self.weights.shape != self.inputs.shape or not (self.weights > 0).all():
                remedy = f"need {self.inputs.size} numbers above 0, one for each input"
                raise ParameterError("weights", "other weights", remedy)

    def _check_categories(self) -> None:
        """Raises ParameterError unless there are as many numbers of categories as columns of
        them, each at least 2.
        """
        columns = CATEGORY_COLUMNS.get(self.estimand, 0)
        if len(self.categories) != columns:
            numbers = ("no number", "one number", "two numbers")[columns]
            spelled = ",".join(map(str, self.categories)) or None
            remedy = f"{self.estimand}: needs {numbers} of categories"
            raise ParameterError("categories", spelled, remedy)
        if min(self.categories, default=2) < 2:
            raise ParameterError(
                "categories",
                self.categories,
                "need at least 2 categories",
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

    # Tables ---------------------------------------------------------------------------------------

    def table(self, epsilon: float, column: int = 0) -> Mechanism:
        """The table of one report at this epsilon."""
        if isinstance(self.tables, Mechanism):
            return self._fitting(self.tables, column)
        if self.tables is not None:
            return self._fitting(self.tables(epsilon), column)
        if self.estimand == "hitters":
            return _hashed(epsilon, self.categories[0]).mechanism
        span = (self.lower, self.upper)
        if self.estimand in ("frequency", "cell"):
            return _categorical(epsilon, self.categories[column])
        if self.above is not None and self.estimand == "share":
            lower, upper = span
            return threshold_table(epsilon, lower=lower, upper=upper, threshold=self.above)
        return _optimal(epsilon, span, self.levels, self.estimand == "quantile")

    def _fitting(self, table: Mechanism, column: int) -> Mechanism:
        """A table that was given, where it reports what the estimand is about; else
        ParameterError: its numbers would be those of another question.
        """
        remedy = ""
        if self.estimand in ("frequency", "cell"):
            count = self.categories[column]
            if len(table.probabilities) != count:
                remedy = f"is no table of {count} categories; give one, or none"
        elif table.categories is not None:
            remedy = f"reports categories, and a {self.estimand} is of numbers; give another table"
        if remedy:
            raise ParameterError("mechanism", table.name, remedy)
        return table

    def price(self, budget: float) -> float | None:
        """The epsilon of one report within this budget; None where a table that is given costs
        more.
        """
        if not isinstance(self.tables, Mechanism):
            return min(budget, MOST_EPSILON)
        cost = self.tables.epsilon
        if cost * (1 - ROUNDINGS) > budget:
            return None
        return cost

    # Intervals on expected counts -----------------------------------------------------------------

    def interval(self, epsilon: float, people: float) -> Interval:
        """The interval that the expected counts give.

        Arguments:
            epsilon: of each report.
            people: who answer this question; it may be a fraction.
        """
        by_estimand: dict[str, Callable[[float, float], Interval]] = {
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
        return by_estimand[self.estimand](epsilon, people)

    def half_width(self, epsilon: float, people: float) -> float:
        """Half the width of that interval."""
        interval = self.interval(epsilon, people)
        return (interval.high - interval.low) / 2

    def _mean(self, epsilon: float, people: float) -> Interval:
        mechanism = self.table(epsilon)
        reports = Sums.of_counts(people * expected_shares(mechanism, self.inputs))
        return mean_interval(mechanism, reports, confidence=self.confidence)

    def _share(self, epsilon: float, people: float) -> Interval:
        """By the event that decides it, at fractions of reports; else by the decoders of whole
        expected counts.
        """
        assert self.above is not None
        mechanism = self.table(epsilon)
        shares = self._expected_codes(mechanism)
        counts = _rounded(mechanism, shares, people)
        edges = np.array([self.lower, self.above, self.upper])
        event = nodes_of(counts, edges=edges).event_of_share(self.above, self.upper)
        if event is None:
            evidence = CrossFitted(counts, confidence=self.confidence, edges=edges)
            return evidence.share(self.above, self.upper)
        lower_end, upper_end = event.ends(
            Sums.of_counts(people * shares), (1 - self.confidence) / 2
        )
        offset, slope = event.lower
        estimated = offset + slope * float(shares[event.codes].sum())
        return within(
            estimated,
            float(lower_end),
            float(upper_end),
            bounds=(0.0, 1.0),
        )

    def _share_or(self, worst: float) -> float:
        """The anticipated share, or the one of the widest interval."""
        return worst if self.share is None else self.share

    def _expected_codes(self, table: Mechanism) -> FloatArray:
        """(m,) expected shares of the codes where a share of the inputs lies above a value."""
        if self.inputs is not None:
            return expected_shares(table, self.inputs)
        share_above = self._share_or(0.5)
        return np.array([1 - share_above, share_above]) @ table.pmf([self.lower, self.upper])

    def _frequency(self, epsilon: float, people: float) -> Interval:
        mechanism = self.table(epsilon)
        target = targets_of_categories(mechanism)[0]
        share = self._share_or(widest_share(target))
        return self._of_category(target, mechanism.probabilities, share, people)

    def _cell(self, epsilon: float, people: float) -> Interval:
        """Of the first pair of categories in a two-way table, all other pairs being equally
        frequent.
        """
        first = self.table(epsilon)
        second = self.table(epsilon, 1)
        values = np.outer(
            first.frequency_decoders[:, 0],
            second.frequency_decoders[:, 0],
        )
        pair_rows = np.asarray(
            np.kron(first.probabilities, second.probabilities),
            dtype=np.float64,
        )
        target = target_of_values(pair_rows, values.ravel())
        share = self._share_or(0.5)
        return self._of_category(target, pair_rows, share, people)

    def _of_category(
        self,
        target: Target,
        rows: FloatArray,
        share: float,
        people: float,
    ) -> Interval:
        """The interval for the share of the first row's category, where the others are equally
        frequent.
        """
        others = len(rows) - 1
        inputs = np.append(share, np.full(others, (1 - share) / others))
        each = each_confidence(self.confidence, len(rows), simultaneous=self.simultaneous)
        reports = Sums.of_counts(people * (inputs @ rows))
        return target.interval(reports, confidence=each, bounds=(0.0, 1.0))

    def _quantile(self, epsilon: float, people: float) -> Interval:
        assert self.probability is not None
        mechanism = self.table(epsilon)
        counts = _rounded(mechanism, expected_shares(mechanism, self.inputs), people)
        evidence = CrossFitted(counts, confidence=self.confidence, edges=None)
        return evidence.quantile(self.probability)

    def _groups(self, people: float) -> list[tuple[float, FloatArray | None]]:
        """People and anticipated inputs of the two groups of a difference."""
        second = self.inputs if self.second is None else self.second
        first_people = self.first_share * people
        return [
            (first_people, self.inputs),
            (people - first_people, second),
        ]

    def _difference(self, epsilon: float, people: float, *, cut: bool = True) -> Interval:
        """Of the means of two groups of `first_share` of the people and the rest; `cut` to what is
        possible.
        """
        mechanism = self.table(epsilon)
        bounds = (mechanism.lower, mechanism.upper) if cut else (-math.inf, math.inf)
        parts: list[Part] = []
        for number, inputs in self._groups(people):
            group_part = Part.of(
                target_of_mean(mechanism),
                Sums.of_counts(number * expected_shares(mechanism, inputs)),
                confidence=self.confidence,
                bias=mechanism.max_bias,
                bounds=bounds,
                n=math.ceil(number),
            )
            parts.append(group_part)
        return difference(*parts)

    def power(self, epsilon: float, people: float, effect: float) -> float:
        """Chance that the interval of the difference excludes 0, where it is `effect`: by the normal
        law, which says nothing of a few people, who are given none.
        """
        mechanism = self.table(epsilon)
        # An interval that is cut to what is possible is narrower, but excludes 0 no more often.
        uncut_interval = self._difference(epsilon, people, cut=False)
        half = (uncut_interval.high - uncut_interval.low) / 2
        variance = 0.0
        for number, inputs in self._groups(people):
            if number < LEAST_GROUP:
                return 0.0
            shares = expected_shares(mechanism, inputs)
            deviations = mechanism.levels - float(shares @ mechanism.levels)
            variance += float(shares @ deviations**2) / number
        distances = np.array([effect - half, -effect - half]) / math.sqrt(variance)
        return float(special.ndtr(distances).sum())

    def _slope(self, epsilon: float, people: float) -> Interval:
        """Of the second column on the first; unbounded where the reports would leave the
        variance open.
        """
        assert self.inputs is not None
        assert self.second is not None
        first = self.table(epsilon)
        second = self.table(epsilon, 1)
        joint = first.pmf(self.inputs).T @ second.pmf(self.second) / self.inputs.size
        counts = np.rint(people * joint).astype(np.int64)
        pairs = PairCounts(first=first, second=second, counts=counts)
        unknown = Interval(value=0.0, low=-math.inf, high=math.inf)
        return relation(pairs, confidence=self.confidence).slope or unknown

    def _total(self, epsilon: float, people: float) -> Interval:
        """Of a population, from people asked in proportion to 1 / weight."""
        assert self.inputs is not None
        assert self.population is not None
        if people > self.most_people:
            remedy = f"at most {self.most_people:,} can be asked: then all of the least weight are"
            raise ParameterError("people", people, remedy)
        mechanism = self.table(epsilon)
        relative = self._relative_weights
        chances = people / self.population / relative / np.mean(1 / relative)
        codes = self.population / self.inputs.size * mechanism.pmf(self.inputs)
        counts = np.rint(chances @ codes).astype(np.int64)
        # Rounded counts may be more than everybody, whose weights are at least 1.
        correction = max(1.0, (1 + SUM_ERROR) * counts.sum() / codes.sum())
        weights = 1 / chances
        code_weights = codes.sum(axis=0)
        code_squares = weights @ codes
        sample = Group(
            counts=CodeCounts(mechanism=mechanism, counts=counts),
            weights=correction * code_weights,
            squares=correction * code_squares,
            heaviest=float(weights.max()),
        )
        return total(sample, confidence=self.confidence)

    @property
    def _relative_weights(self) -> FloatArray:
        """(n,) the weights of the inputs of a total, to each other."""
        assert self.inputs is not None
        return np.ones(self.inputs.size) if self.weights is None else self.weights

    @property
    def most_people(self) -> int:
        """How many can be asked: of a population, until all of the least weight are."""
        if self.population is None:
            return MOST_PEOPLE
        relative = self._relative_weights
        average_chance = np.mean(1 / relative)
        largest_share = float(average_chance * relative.min())
        most = math.floor(self.population * largest_share)
        return max(1, most)

    def _hitters(self, epsilon: float, people: float) -> Interval:
        """From 0 to twice the least share that is found with certainty: its half width is that
        share.
        """
        smallest = self.least_certain(epsilon, people, power=HITTERS_POWER)
        return Interval(value=smallest, low=0.0, high=2 * smallest)

    def least_certain(self, epsilon: float, people: float, *, power: float) -> float:
        """The least share of a category that is listed as certain with this probability; inf for
        none.
        """
        domain_size = self.categories[0]
        report_count = math.floor(people)
        listed_chance, other_chance = _hashed(epsilon, domain_size).chances
        signal = listed_chance - other_chance
        unlisted = self._share_or(1 / domain_size)
        tail = (1 - self.confidence) / domain_size / 2
        chance = other_chance + unlisted * signal
        greatest = float(
            stats.binom.ppf(
                LISTED ** (1 / (domain_size - 1)),
                report_count,
                chance,
            )
        )
        limit = float(clopper_pearson(greatest, report_count, tail)[1])
        supports = np.arange(math.floor(greatest), report_count + 1)
        enough = supports[clopper_pearson(supports, report_count, tail)[0] > limit]
        if not enough.size:
            return math.inf

        def shortfall(share: float) -> float:
            chance = other_chance + share * signal
            return float(stats.binom.sf(enough[0] - 1, report_count, chance)) - power / LISTED

        if shortfall(1.0) < 0:
            return math.inf
        return cast(float, optimize.brentq(shortfall, 0.0, 1.0))


@lru_cache(maxsize=TABLES_KEPT)
def _categorical(epsilon: float, categories: int) -> Mechanism:
    from mezzotint import families

    return families.categorical(categories=range(categories), epsilon=epsilon)


@lru_cache(maxsize=1)
def _hashed(epsilon: float, size: int) -> HashedDomain:
    """The reports of a large domain; one is kept, as its names may be many."""
    from mezzotint import families

    names = [str(index) for index in range(size)]
    return families.hashed(categories=names, epsilon=epsilon)


@lru_cache(maxsize=TABLES_KEPT)
def _optimal(
    epsilon: float, span: tuple[float, float], levels: int, for_quantiles: bool
) -> Mechanism:
    """The best table with so many levels, or for quantiles with so many cells."""
    from mezzotint import design

    search: dict[str, Any] = {"levels": levels}
    if for_quantiles:
        search = {"loss": "cdf", "knots": levels + 1, "levels": 2 * levels}
    return design.optimal(epsilon, lower=span[0], upper=span[1], **search).mechanism


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
    first_row, second_row, share = spread.rows_of_greatest
    return (1 - share) * table.probabilities[first_row] + share * table.probabilities[second_row]


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
