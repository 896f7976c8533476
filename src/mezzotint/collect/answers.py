"""Answers about groups of reports: means, shares above a value, histograms, quantiles, and their
differences.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias, final

from mezzotint.collect.counts import (
    claim_of,
    refuse_seeded,
    seeded_together,
)
from mezzotint.collect.evidence import CrossFitted, Request
from mezzotint.collect.groups import (
    Group,
    Part,
    difference,
    parts_of,
    stratified,
    total,
)
from mezzotint.collect.intervals import (
    LADDER,
    Interval,
    check_confidence,
    confidence_words,
    each_confidence,
    normal_quantile,
)
from mezzotint.collect.provenance import IN_SEVERAL_GROUPS, SAME_PEOPLE
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.privacy.claim import Claim, Claimed

Parts: TypeAlias = dict[str, Part]
"""Of one group, by quantity: estimates with their sides at many levels, which differences combine.
"""

SHOWN_ANSWERS = 40
"""Of estimates that are printed; the others are counted."""


@final
@dataclass(frozen=True, kw_only=True)
class Answer:
    """One interval of one group.

    Arguments:
        group: its name; "A less B" for a difference, "population" for strata together.
        n: reports; None where it is no group's own.
        about: whether it is that of a group, of a difference, or of the population.
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
    about: Literal["group", "difference", "population"] = "group"

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
        notes: one sentence each of what the intervals rely on (`Provenance.notes_on_groups`).

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
    notes: tuple[str, ...] = ()

    def _rows(self) -> list[JsonObject]:
        return [answer.row for answer in self.answers]

    def as_dict(self) -> JsonObject:
        """Plain values for JSON."""
        answers: list[JsonObject] = []
        for answer in self.answers:
            answers.append({"about": answer.about, **answer.row, **answer.interval.as_dict()})
        return {**super().as_dict(), "answers": answers}

    def _told(self) -> JsonObject:
        """What is printed: an interval of each group by its name, then what holds for all."""
        printed_fields: JsonObject = {}
        for answer in self.answers[:SHOWN_ANSWERS]:
            printed_fields[f"{answer.group}: {answer.quantity}"] = answer.interval.as_dict()
        more = len(self.answers) - SHOWN_ANSWERS
        if more > 0:
            printed_fields["..."] = f"{more} more, in to_frame()"
        facts = super().as_dict()
        printed_fields["confidence"] = confidence_words(
            self.confidence, simultaneous=self.simultaneous
        )
        del facts["confidence"], facts["simultaneous"], facts["notes"]
        if self.notes:
            facts["notes"] = " ".join(self.notes)
        return printed_fields | facts


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class GroupEvidence:
    """What is asked of one group of unweighted reports of numbers, besides their mean.

    Arguments:
        evidence: of the reports of the group.
    """

    evidence: CrossFitted
    request: Request

    @classmethod
    def of(cls, group: Group, request: Request, *, confidence: float) -> GroupEvidence:
        """The evidence of a group; raises ParameterError for weighted reports."""
        if not group.sums.equal:
            remedy = "shares and quantiles are those of unweighted reports; leave the weights out"
            raise ParameterError("weights", "unequal", remedy)
        evidence = CrossFitted(group.counts, confidence=confidence, edges=request.edges)
        return cls(evidence=evidence, request=request)

    @property
    def edges(self) -> dict[str, tuple[float, float]]:
        """Edges of each share, by its name."""
        request = self.request
        edges: dict[str, tuple[float, float]] = {}
        for threshold in request.above:
            edges[f"share above {threshold:g}"] = (threshold, request.upper)
        for lower_end, upper_end in request.bins:
            edges[f"share in {lower_end:g} .. {upper_end:g}"] = (lower_end, upper_end)
        return edges

    @property
    def probabilities(self) -> dict[str, float]:
        """Probability of each quantile, by its name."""
        return {f"quantile {probability:g}": probability for probability in self.request.quantiles}

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """All shares and quantiles, by their names."""
        shares = {name: self.evidence.share(*edges) for name, edges in self.edges.items()}
        quantiles = {
            name: self.evidence.quantile(probability)
            for name, probability in self.probabilities.items()
        }
        return shares | quantiles

    def parts(self) -> Parts:
        """The same with their sides at many levels."""
        evidence = self.evidence
        quantiles = normal_quantile(evidence.confidence) * LADDER
        parts: Parts = {}
        for quantity, estimated in self.intervals.items():
            if quantity in self.edges:
                bounds = (0.0, 1.0)
                sides = evidence.sides_of_share(estimated, self.edges[quantity], quantiles)
            else:
                bounds = (self.request.lower, self.request.upper)
                probability = self.probabilities[quantity]
                sides = evidence.sides_of_quantile(estimated, probability, quantiles)
            below, above = sides
            parts[quantity] = Part(
                value=estimated.value,
                below=below,
                above=above,
                bias=0.0,
                bounds=bounds,
                n=evidence.counts.n,
            )
        return parts


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class GroupAnswers:
    """The estimates of one group: intervals of all that is asked, and parts for what is combined.

    Arguments:
        parts: of every quantity where differences are asked for, else of means or frequencies.
    """

    n: int
    intervals: dict[str, Interval]
    parts: Parts

    @classmethod
    def of(
        cls, group: Group, request: Request, *, confidence: float, compared: bool, totals: bool
    ) -> GroupAnswers:
        """What is asked of one group; raises ParameterError for shares of weighted reports."""
        parts = dict(parts_of(group, confidence=confidence))
        intervals = {quantity: part.interval for quantity, part in parts.items()}
        if request.size:
            evidence = GroupEvidence.of(group, request, confidence=confidence)
            intervals |= evidence.intervals
            if compared:
                parts |= evidence.parts()
        if totals:
            intervals["total"] = total(group, confidence=confidence)
        return cls(n=group.counts.n, intervals=intervals, parts=parts)


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
    totals: bool = False,
    allow_seeded: bool = False,
) -> GroupEstimates:
    """Means or frequencies of every group, on request shares and quantiles, and their differences.

    Arguments:
        groups: `read_groups`, or `groups_of`; of one table.
        confidence, simultaneous: of each interval, in (0, 1), or of all together (Bonferroni).
        above, histogram, quantiles: as in `estimate`, for each group of a table of numbers.
        against: the group that the others are compared with; None for no differences.
        same_people: whether groups are about the same people; assumed where reports were memoised.
            Differences and the population's estimates are then as wide as their groups' together.
        sizes: of strata, for the mean or the frequencies of their population.
        totals: also the total of each group, of weights 1 / probability of inclusion (`total`).
        allow_seeded: as in `estimate`.
    Returns: the answers, groups first.
    Raises:
        ParameterError: no groups, tables that differ, no such group, shares of categories or of
            weighted reports, seeded reports unless allowed.
    Guarantees: as `estimate` and `difference`, also of shares and quantiles: their sides at lower
        levels use decoders that were chosen for one of them.
    Example:
        >>> table = mz.collect.threshold_table(2.0, lower=0, upper=10, threshold=4)
        >>> codes = table.privatize([1.0, 9.0] * 500, rng=0)
        >>> groups = mz.collect.groups_of(codes, by=["a", "b"] * 500, mechanism=table)
        >>> mz.collect.estimate_groups(groups, against="a", allow_seeded=True).to_frame().shape
        (3, 6)
    """
    mechanism = _table_of(groups, against)
    seeded = seeded_together(group.counts.seeded for group in groups.values())
    refuse_seeded(seeded, allowed=allow_seeded)
    request = Request.of(mechanism, above=above, histogram=histogram, quantiles=quantiles)
    number = _intervals_of(groups, request, against=against, sizes=sizes, totals=totals)
    each = each_confidence(check_confidence(confidence), number, simultaneous=simultaneous)
    same = same_people or any(group.counts.provenance.memoised for group in groups.values())
    compared = against is not None
    estimated: dict[str, GroupAnswers] = {}
    for name, group in groups.items():
        estimated[name] = GroupAnswers.of(
            group,
            request,
            confidence=each,
            compared=compared,
            totals=totals,
        )
    answers = _combined(
        estimated,
        mechanism,
        against=against,
        sizes=sizes,
        same_people=same,
    )
    is_combined = compared or sizes is not None
    return GroupEstimates(
        confidence=confidence,
        simultaneous=simultaneous,
        answers=tuple(answers),
        claim=claim_of(mechanism, seeded=seeded),
        seeded=seeded,
        notes=_notes(groups, compared=is_combined, same=same),
    )


def _combined(
    estimated: Mapping[str, GroupAnswers],
    table: Mechanism,
    *,
    against: str | None,
    sizes: Mapping[str, float] | None,
    same_people: bool,
) -> list[Answer]:
    """The answers of all groups, and what is made of them together."""
    answers: list[Answer] = []
    for name, of_group in estimated.items():
        answers += _rows(name, of_group.intervals, n=of_group.n)
    if against is not None:
        answers += _differences(estimated, against, same_people=same_people)
    if sizes is not None:
        answers += _population(estimated, table, sizes, same_people=same_people)
    return answers


def _notes(groups: Mapping[str, Group], *, compared: bool, same: bool) -> tuple[str, ...]:
    """What the intervals rely on; that groups are of the same people may be said already."""
    origins = [group.counts.provenance for group in groups.values()]
    notes: dict[str, None] = {}
    for provenance in origins:
        notes |= dict.fromkeys(provenance.notes_on_groups)
    if compared and not same:
        run_names = frozenset[str]().union(*(provenance.run_names for provenance in origins))
        if len(run_names) > 1:
            notes[SAME_PEOPLE] = None
        if any(provenance.several_rows for provenance in origins):
            notes[IN_SEVERAL_GROUPS] = None
    return tuple(notes)


def _intervals_of(
    groups: Mapping[str, Group],
    request: Request,
    *,
    against: str | None,
    sizes: Mapping[str, float] | None,
    totals: bool,
) -> int:
    """How many intervals hold at once: of each group, of each difference, and of the population."""
    mechanism = next(iter(groups.values())).counts.mechanism
    quantities = len(mechanism.categories or ("mean",))
    number = (quantities + request.size + totals) * len(groups)
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


def _rows(
    group: str,
    intervals: Mapping[str, Interval],
    *,
    n: int | None = None,
    about: Literal["group", "difference", "population"] = "group",
) -> list[Answer]:
    """An answer for each interval."""
    return [
        Answer(group=group, n=n, quantity=quantity, interval=interval, about=about)
        for quantity, interval in intervals.items()
    ]


def _population(
    estimated: Mapping[str, GroupAnswers],
    table: Mechanism,
    sizes: Mapping[str, float],
    *,
    same_people: bool,
) -> list[Answer]:
    """The mean, or the frequencies, of the population whose strata have these sizes."""
    intervals: dict[str, Interval] = {}
    for quantity in table.categories or ("mean",):
        strata = {name: of_group.parts[quantity] for name, of_group in estimated.items()}
        intervals[quantity] = stratified(strata, sizes, same_people=same_people)
    return _rows("population", intervals, about="population")


def _differences(
    estimated: Mapping[str, GroupAnswers], against: str, *, same_people: bool
) -> list[Answer]:
    """Of every group from one of them."""
    answers: list[Answer] = []
    references = estimated[against].parts
    for group_name, of_group in estimated.items():
        if group_name == against:
            continue
        gaps: dict[str, Interval] = {}
        for quantity, part in of_group.parts.items():
            gaps[quantity] = difference(part, references[quantity], same_people=same_people)
        answers += _rows(f"{group_name} less {against}", gaps, about="difference")
    return answers
