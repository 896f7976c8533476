"""Answers about groups of reports: means, shares above a value, histograms, quantiles, and their differences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import final

import numpy as np
from scipy import special

from mezzotint.collect.counts import refuse_seeded, seeded_together
from mezzotint.collect.estimates import Request
from mezzotint.collect.groups import Group, Part, difference, parts_of, stratified
from mezzotint.collect.intervals import (
    LADDER,
    Interval,
    Sums,
    check_confidence,
    normal_quantile,
)
from mezzotint.collect.shapes import CrossFitted
from mezzotint.core.errors import ParameterError
from mezzotint.core.records import JsonObject
from mezzotint.privacy.accounting import report_claim
from mezzotint.privacy.claim import Claim, Claimed


@final
@dataclass(frozen=True, kw_only=True)
class Answer:
    """One interval of one group.

    Arguments:
        group: its name; "A less B" for a difference, "population" for strata together.
        n: reports; None where it is no group's own.
        quantity: "mean", "total", "share above 140", "share in 0 .. 50", "quantile 0.5", or a category.
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
        ends = {"value": self.interval.value, "low": self.interval.low, "high": self.interval.high}
        return {"group": self.group, "reports": self.n, "quantity": self.quantity, **ends}


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
    """What is asked of one group: parts, which differences combine, where sides are known at every level.

    Raises:
        ParameterError: shares or quantiles of weighted reports.
    """
    answers: dict[str, Part | Interval] = dict(parts_of(group, confidence=confidence))
    if request.empty:
        return answers
    if not group.sums.equal:
        remedy = "shares and quantiles are those of unweighted reports; leave the weights out"
        raise ParameterError("weights", "unequal", remedy)
    edges = request.edges
    shapes = CrossFitted(group.counts, confidence=confidence, edges=edges)
    for threshold in request.above:
        label = f"share above {threshold:g}"
        answers[label] = _share(shapes, threshold, group.counts.mechanism.upper)
    if request.histogram is not None:
        for low, high in pairwise(request.histogram):
            answers[f"share in {low:g} .. {high:g}"] = _share(shapes, low, high)
    for probability in request.quantiles:
        answers[f"quantile {probability:g}"] = shapes.quantile(probability)
    return answers


def _share(shapes: CrossFitted, low: float, high: float) -> Part | Interval:
    """A share; where one event decides it, with its sides at every level."""
    share, event = shapes.share(low, high), shapes.event_of_share(low, high)
    if event is None:
        return share
    quantiles = normal_quantile(shapes.confidence) * LADDER
    ends = event.ends(Sums.of_counts(shapes.nodes.counts), special.ndtr(-quantiles))
    return Part(
        value=share.value,
        below=np.maximum(share.value - ends[0], 0.0),
        above=np.maximum(ends[1] - share.value, 0.0),
        bias=0.0,
        bounds=(0.0, 1.0),
        n=shapes.counts.n,
    )


def _gap(one: Part | Interval, other: Part | Interval, *, same_people: bool) -> Interval:
    """One answer less another; of intervals, each at half of the error, which holds whatever their dependence."""
    if isinstance(one, Part) and isinstance(other, Part):
        return difference(one, other, same_people=same_people)
    first, second = _interval(one), _interval(other)
    return Interval(
        value=first.value - second.value,
        low=first.low - second.high,
        high=first.high - second.low,
    )


def _interval(answer: Part | Interval) -> Interval:
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
    if not groups:
        raise ParameterError("groups", 0, "there are no groups to estimate")
    tables = {group.counts.mechanism.sha256: group.counts.mechanism for group in groups.values()}
    if len(tables) > 1:
        raise ParameterError("groups", len(tables), "are of different tables; estimate them apart")
    if against is not None and against not in groups:
        listed = ", ".join(list(groups)[:20])
        raise ParameterError("against", against, f"no such group; use one of: {listed}")
    seeded = seeded_together(*(group.counts.seeded for group in groups.values()))
    refuse_seeded(seeded, allowed=allow_seeded)
    (table,) = tables.values()
    request = Request.of(table, above=above, histogram=histogram, quantiles=quantiles)
    same = same_people or any(group.memoised for group in groups.values())
    first = len(table.categories or ("mean",)) + request.size
    count = first * (len(groups) + (0 if against is None else len(groups) - 1))
    count += 0 if sizes is None else len(table.categories or ("mean",))
    each = 1 - (1 - confidence) / count if simultaneous else confidence

    answers_by_group = {
        name: answers_of(group, request, confidence=each) for name, group in groups.items()
    }
    answers = [
        Answer(group=name, n=groups[name].counts.n, quantity=quantity, interval=_interval(answer))
        for name, those in answers_by_group.items()
        for quantity, answer in those.items()
    ]
    if against is not None:
        answers += _differences(groups, request, answers_by_group, against, each, same_people=same)
    if sizes is not None:
        for quantity, answer in next(iter(answers_by_group.values())).items():
            if isinstance(answer, Part) and not quantity.startswith("share "):
                strata = {name: those[quantity] for name, those in answers_by_group.items()}
                interval = stratified(_only_parts(strata), sizes)
                answers.append(
                    Answer(group="population", n=None, quantity=quantity, interval=interval)
                )
    claim = None if seeded else report_claim(table)
    return GroupEstimates(
        confidence=confidence,
        simultaneous=simultaneous,
        answers=tuple(answers),
        claim=claim,
        seeded=seeded,
    )


def _only_parts(answers: Mapping[str, Part | Interval]) -> dict[str, Part]:
    return {name: answer for name, answer in answers.items() if isinstance(answer, Part)}


def _differences(
    groups: Mapping[str, Group],
    request: Request,
    found: Mapping[str, Mapping[str, Part | Interval]],
    against: str,
    confidence: float,
    *,
    same_people: bool,
) -> list[Answer]:
    """Of every group from one of them."""
    halved = found
    if not request.empty:
        half = (1 + confidence) / 2
        halved = {
            name: answers_of(group, request, confidence=half) for name, group in groups.items()
        }
    answers = []
    for name in groups:
        if name == against:
            continue
        for quantity, answer in found[name].items():
            pair = (answer, found[against][quantity])
            if not all(isinstance(side, Part) for side in pair):
                pair = (halved[name][quantity], halved[against][quantity])
            gap = _gap(*pair, same_people=same_people)
            label = f"{name} less {against}"
            answers.append(Answer(group=label, n=None, quantity=quantity, interval=gap))
    return answers
