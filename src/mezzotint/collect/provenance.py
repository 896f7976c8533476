"""Which runs drew reports, what they are about, and what that means for intervals.

An interval counts every report as that of another person. Files say which run drew their reports
and whether a person's equal values gave equal ones; whatever the counts are of, they carry it.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import final

from mezzotint.core.errors import ParameterError

SAME_PEOPLE = (
    "reports of several runs are counted as if of different people; "
    "the intervals hold only if nobody is in two of them"
)
"""What is said of `Provenance.releases` > 1."""

REPEATED_REPORTS = (
    "the reports were memoised, so that a person's equal values gave equal reports; "
    "the intervals hold only if each person is counted once: estimate each round by itself"
)
"""What is said where `Provenance.memoised` is not 0."""

REPEATED_IN_A_GROUP = (
    "the reports were memoised, so that a person's equal values gave equal reports; "
    "the interval of a group holds only if each person is counted once in it"
)
"""The same of groups."""

IN_SEVERAL_GROUPS = (
    "a person may have rows in several groups; differences and averages over groups hold only if "
    "nobody is in two of them: else use same_people (--same-people)"
)
"""What is said of groups that are compared, where `Provenance.several_rows`."""

_OF_A_RUN = re.compile("/| where ")
"""Behind the name of a run: its part, or the group that was taken out of it."""


@final
@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where the reports behind counts come from, as far as their files say.

    Arguments:
        runs: names of the reports counted (`Description.run`): they are never added to themselves.
        sources: pairs of what they are about (`Description.source`) and the run that drew them: two
            runs about the same rows are never added either, as their errors agree.
        memoised: from how many files (or folders of one run) of memoised reports: they name no run,
            so that nobody can tell whether the same people are in two of them.
        several_rows: whether files say that one person may have several rows.

    Example:
        >>> from mezzotint.collect.provenance import Provenance
        >>> spring, autumn = (Provenance(runs=frozenset([run])) for run in ("a1", "b2"))
        >>> spring.merge(autumn).releases
        2
    """

    runs: frozenset[str] = frozenset()
    sources: frozenset[tuple[str, str]] = frozenset()
    memoised: int = 0
    several_rows: bool = False

    @property
    def run_names(self) -> frozenset[str]:
        """The runs that drew the reports: of parts and groups, the run they are of."""
        return frozenset(_OF_A_RUN.split(run_name)[0] for run_name in self.runs)

    @property
    def releases(self) -> int:
        """From how many runs the reports are. People may be in several of them."""
        return len(self.run_names) + self.memoised

    @property
    def notes_on_groups(self) -> tuple[str, ...]:
        """As `notes`, where reports are estimated by groups that nobody is in twice."""
        return self._notes(len(self.run_names), REPEATED_IN_A_GROUP)

    @property
    def notes(self) -> tuple[str, ...]:
        """One sentence each of what intervals rely on: `SAME_PEOPLE`, `REPEATED_REPORTS`."""
        return self._notes(self.releases, REPEATED_REPORTS)

    def _notes(self, releases: int, of_memoised: str) -> tuple[str, ...]:
        sentences = {SAME_PEOPLE: releases > 1, of_memoised: self.memoised}
        return tuple(sentence for sentence, holds in sentences.items() if holds)

    def merge(self, other: Provenance) -> Provenance:
        """That of both; raises ParameterError where reports would count twice."""
        repeated = sorted(self.runs & other.runs)
        if repeated:
            remedy = (
                "given twice; its reports would count twice, and intervals would be too narrow; "
                "give each run once"
            )
            raise ParameterError("counts", f"run {repeated[0]}", remedy)
        refuse_two_runs(self.sources | other.sources, parameter="counts")
        return Provenance(
            runs=self.runs | other.runs,
            sources=self.sources | other.sources,
            memoised=self.memoised + other.memoised,
            several_rows=self.several_rows or other.several_rows,
        )


UNKNOWN = Provenance()
"""Of bare codes, and files that do not say."""


def refuse_two_runs(sources: Collection[tuple[str, str]], *, parameter: str) -> None:
    """Raises ParameterError where one source, by the pairs' first, was privatized by several runs,
    by their second.
    """
    run_of_source: dict[str, str] = {}
    for source, run_name in sorted(sources):
        first_run = run_of_source.setdefault(source, run_name)
        if first_run != run_name:
            remedy = (
                "privatized the same rows twice; together their intervals would be too narrow; "
                "estimate each run alone"
            )
            raise ParameterError(parameter, f"runs {first_run} and {run_name}", remedy)
