"""Answers about groups of reports: means, shares above a value, histograms, quantiles, and their
differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

import numpy as np
from scipy import special

from mezzotint.collect.counts import (
    claim_of,
    refuse_seeded,
    seeded_together,
)
from mezzotint.collect.groups import (
    Group,
    Part,
    difference,
    parts_of,
    stratified,
)
from mezzotint.collect.intervals import (
    LADDER,
    Interval,
    Sums,
    check_confidence,
    each_confidence,
    normal_quantile,
)
from mezzotint.collect.requests import Request
from mezzotint.collect.shapes import CrossFitted
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.privacy.claim import Claim, Claimed

Estimated: TypeAlias = "Part | Interval"
"""An estimate with its sides at many levels, which differences combine, or with its interval alone.
"""

ByQuantity: TypeAlias = dict[str, Estimated]


@final
@dataclass(frozen=True, kw_only=True)
class Answer:
    """One interval of one group.

    Arguments:
        group: its name; "A less B" for a difference, "population" for strata together.
        n: reports; None where it is no group's own.
        quantity: "mean", "total", "share above 140", "share in 0 .. 50", "quantile 0.5", or a
            category.
        interval: with its estimate.

    Example:
        >>> share = mz.collect.Interval(value=0.4, low=0.3, high=0.5)
        >>> mz.collect.Answer(group="a", n=100, quantity="mean", interval=share).row["low"]
        0.3
    """

    group: str
    n: int | None
    quantity: str
    interval: Interval

    @property
    def row(self) -> JsonObject:
        """Plain values, one column each."""
        origin = {
            "group": self.group,
            "reports": self.n,
            "quantity": self.quantity,
        }
        return {**origin, **self.interval.ends}


@final
@dataclass(frozen=True, kw_only=True)
class GroupEstimates(Claimed):
    """Estimates of every group, and their differences from one of them.

    Arguments:
        confidence: of each interval, or of all together.
        simultaneous: whether it is that of all together (Bonferroni).
        answers: of the groups, in their order, then of differences, then of the population.
        claim: of one report; None when any report was drawn from a seed.
        seeded: whether any was; None where files do not say.

    Example:
        >>> table = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> codes = table.privatize([0.0, 1.0] * 500, rng=0)
        >>> groups = mz.collect.groups_of(codes, by=["a", "b"] * 500, mechanism=table)
        >>> found = mz.collect.estimate_groups(groups, against="a", allow_seeded=True)
        >>> [answer.group for answer in found.answers]
        ['a', 'b', 'b less a']
    """

    confidence: float
    simultaneous: bool
    answers: tuple[Answer, ...] = field(repr=False)
    claim: Claim | None = field(repr=False)
    seeded: bool | None

    def _rows(self) -> list[JsonObject]:
        return [answer.row for answer in self.answers]

    def as_dict(self) -> JsonObject:
        """Plain values for JSON."""
        return {**super().as_dict(), "answers": self._rows()}


def answers_of(group: Group, request: Request, *, confidence: float) -> dict[str, Part | Interval]:
    """What is asked of one group: parts, which differences combine, where sides are known at every
    level.

    Raises:
        ParameterError: shares or quantiles of weighted reports.
    """
    answers: ByQuantity = dict(parts_of(group, confidence=confidence))
    if not request.size:
        return answers
    if not group.sums.equal:
        remedy = "shares and quantiles are those of unweighted reports; leave the weights out"
        raise ParameterError("weights", "unequal", remedy)
    shapes = CrossFitted(group.counts, confidence=confidence, edges=request.edges)
    for threshold in request.above:
        answers[f"share above {threshold:g}"] = _share(shapes, threshold, request.upper)
    for lower_end, upper_end in request.bins:
        answers[f"share in {lower_end:g} .. {upper_end:g}"] = _share(shapes, lower_end, upper_end)
    for probability in request.quantiles:
        answers[f"quantile {probability:g}"] = shapes.quantile(probability)
    return answers


def _share(shapes: CrossFitted, low: float, high: float) -> Estimated:
    """A share; where one event decides it, with its sides at every level."""
    share, event = shapes.share(low, high), shapes.event_of_share(low, high)
    if event is None:
        return share
    quantiles = normal_quantile(shapes.confidence) * LADDER
    lows, highs = event.ends(Sums.of_counts(shapes.nodes.counts), special.ndtr(-quantiles))
    return Part(
        value=share.value,
        below=np.maximum(share.value - lows, 0.0),
        above=np.maximum(highs - share.value, 0.0),
        bias=0.0,
        bounds=(0.0, 1.0),
        n=shapes.counts.n,
    )


def _interval(answer: Estimated) -> Interval:
    return answer.interval if isinstance(answer, Part) else answer


def estimate_groups(
    groups: Mapping[str, Group],
    *,
    confidence: float = 0.95,
    simultaneous: bool = False,
    above: Sequence[float] | None = None,
    histogram: int | Sequence[float] | None = None,
    quantiles: Sequence[float] | None = None,
    against: str | None = None,
    same_people: bool = False,
    sizes: Mapping[str, float] | None = None,
    allow_seeded: bool = False,
) -> GroupEstimates:
    """Means or frequencies of every group, on request shares and quantiles, and their differences.

    Arguments:
        groups: `read_groups`, or `groups_of`; of one table.
        confidence: of each interval, in (0, 1).
        simultaneous: make it that of all intervals of the result together (Bonferroni).
        above, histogram, quantiles: as in `estimate`, for each group of a table of numbers.
        against: the group that the others are compared with; None for no differences.
        same_people: whether groups are about the same people; assumed where reports were memoised.
        sizes: of strata, for the mean or the frequencies of their population.
        allow_seeded: as in `estimate`.

    Returns: the answers, groups first.

    Raises:
        ParameterError: no groups, tables that differ, no such group, shares of categories or of
            weighted reports, seeded reports unless allowed.

    Guarantees: as `estimate` and `difference`. Where no event decides a share, and for quantiles, a
        difference is that of two intervals at half of the error each, which holds whatever their
        dependence is.

    Example:
        >>> table = mz.collect.threshold_table(2.0, lower=0, upper=10, threshold=4)
        >>> codes = table.privatize([1.0, 9.0] * 500, rng=0)
        >>> groups = mz.collect.groups_of(codes, by=["a", "b"] * 500, mechanism=table)
        >>> found = mz.collect.estimate_groups(groups, above=[4], against="a", allow_seeded=True)
        >>> found.to_frame().shape
        (6, 6)
    """
    check_confidence(confidence)
    mechanism = _table_of(groups, against)
    seeded = seeded_together(group.counts.seeded for group in groups.values())
    refuse_seeded(seeded, allowed=allow_seeded)
    request = Request.of(
        mechanism,
        above=above,
        histogram=histogram,
        quantiles=quantiles,
    )
    number = _intervals_of(groups, request, against=against, sizes=sizes)
    each = each_confidence(confidence, number, simultaneous=simultaneous)
    estimated: dict[str, ByQuantity] = {}
    answers: list[Answer] = []
    for group_name, group in groups.items():
        estimated[group_name] = answers_of(group, request, confidence=each)
        for quantity, answer in estimated[group_name].items():
            interval = _interval(answer)
            answers.append(
                Answer(
                    group=group_name,
                    n=group.counts.n,
                    quantity=quantity,
                    interval=interval,
                )
            )
    if against is not None:
        same = same_people or any(group.memoised for group in groups.values())
        answers += _differences(
            groups,
            request,
            estimated,
            against,
            each,
            same_people=same,
        )
    if sizes is not None:
        answers += _population(estimated, mechanism, sizes)
    return GroupEstimates(
        confidence=confidence,
        simultaneous=simultaneous,
        answers=tuple(answers),
        claim=claim_of(mechanism, seeded=seeded),
        seeded=seeded,
    )


def _intervals_of(
    groups: Mapping[str, Group],
    request: Request,
    *,
    against: str | None,
    sizes: Mapping[str, float] | None,
) -> int:
    """How many intervals hold at once: of each group, of each difference, and of the population."""
    mechanism = next(iter(groups.values())).counts.mechanism
    quantities = len(mechanism.categories or ("mean",))
    number = (quantities + request.size) * len(groups)
    if against is not None:
        number += (quantities + request.size) * (len(groups) - 1)
    if sizes is not None:
        number += quantities
    return number


def _table_of(groups: Mapping[str, Group], against: str | None) -> Mechanism:
    """The table of all groups; raises ParameterError for none, several, or a comparison with no
    group.
    """
    if not groups:
        raise ParameterError("groups", 0, "there are no groups to estimate")
    tables = {group.counts.mechanism.sha256: group.counts.mechanism for group in groups.values()}
    if len(tables) > 1:
        raise ParameterError(
            "groups",
            len(tables),
            "are of different tables; estimate them apart",
        )
    if against is not None and against not in groups:
        listed = ", ".join(list(groups)[:20])
        raise ParameterError("against", against, f"no such group; use one of: {listed}")
    (mechanism,) = tables.values()
    return mechanism


def _population(
    estimated: Mapping[str, ByQuantity],
    table: Mechanism,
    sizes: Mapping[str, float],
) -> list[Answer]:
    """The mean, or the frequencies, of the population whose strata have these sizes."""
    answers: list[Answer] = []
    for quantity in table.categories or ("mean",):
        strata: dict[str, Part] = {}
        for group_name, by_quantity in estimated.items():
            stratum = by_quantity[quantity]
            assert isinstance(stratum, Part), "as all of `parts_of`"
            strata[group_name] = stratum
        interval = stratified(strata, sizes)
        answers.append(
            Answer(
                group="population",
                n=None,
                quantity=quantity,
                interval=interval,
            )
        )
    return answers


def _differences(
    groups: Mapping[str, Group],
    request: Request,
    estimated: Mapping[str, ByQuantity],
    against: str,
    confidence: float,
    *,
    same_people: bool,
) -> list[Answer]:
    """Of every group from one of them; of intervals, each at half of the error, whatever their
    dependence is.
    """
    halved = estimated
    if request.size:
        half = (1 + confidence) / 2
        halved = {
            group_name: answers_of(groups[group_name], request, confidence=half)
            for group_name in groups
        }
    answers: list[Answer] = []
    for group_name in groups:
        if group_name == against:
            continue
        for quantity, answer in estimated[group_name].items():
            reference = estimated[against][quantity]
            if isinstance(answer, Part) and isinstance(reference, Part):
                gap = difference(answer, reference, same_people=same_people)
            else:
                gap = _gap(
                    halved[group_name][quantity],
                    halved[against][quantity],
                )
            label = f"{group_name} less {against}"
            answers.append(
                Answer(
                    group=label,
                    n=None,
                    quantity=quantity,
                    interval=gap,
                )
            )
    return answers


def _gap(answer: Estimated, other: Estimated) -> Interval:
    """One answer less another."""
    first, second = _interval(answer), _interval(other)
    return Interval(
        value=first.value - second.value,
        low=first.low - second.high,
        high=first.high - second.low,
    )
