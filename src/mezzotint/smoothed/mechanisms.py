"""Anonymous mechanisms: their output's law depends on how many records are of each type, not on
whose they are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, cast, final

import numpy as np

from mezzotint.core.arguments import check_choice
from mezzotint.core.errors import ParameterError
from mezzotint.smoothed.model import Rational

Counts = tuple[int, ...]
Law = Callable[[Counts], Mapping[Hashable, Any]]
"""Histogram -> output -> its chance; an output that is absent has chance 0."""

Rule = Literal["plurality", "borda", "stv"]
RULES: tuple[Rule, ...] = ("plurality", "borda", "stv")


@final
@dataclass(frozen=True, kw_only=True)
class Histogram:
    """The histogram of the sample itself; with `noise_ratio`, under the exponential mechanism's
    noise (Algorithm 4)."""

    noise_ratio: Rational | None = None


@final
@dataclass(frozen=True, kw_only=True)
class Threshold:
    """Whether at least `least` records are of the first type."""

    least: int

    def law(self, counts: Counts) -> Mapping[Hashable, Any]:
        """The one output, for certain."""
        return {counts[0] >= self.least: 1}


@final
@dataclass(frozen=True, kw_only=True)
class Winner:
    """The winner under a voting rule; ties go to the lowest index.

    Arguments:
        rule: "plurality" (types are candidates), "borda" or "stv" (types are ballots).
        ballots: for the last two, a ranking for each type, such as ("abc", "bca", "cab").
    """

    rule: Rule = "plurality"
    ballots: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_choice("rule", self.rule, RULES)
        if self.rule == "plurality":
            return
        candidate_lists = {tuple(sorted(ballot)) for ballot in self.ballots}
        rankings = {len(set(ballot)) == len(ballot) for ballot in self.ballots}
        if len(candidate_lists) != 1 or rankings != {True}:
            remedy = "each must rank the same candidates once, such as abc"
            raise ParameterError("ballots", self.ballots, remedy)

    def law(self, counts: Counts) -> Mapping[Hashable, Any]:
        """The winner, for certain."""
        if self.rule == "plurality":
            winner = counts.index(max(counts))
            return {winner: 1}
        if len(counts) != len(self.ballots):
            remedy = f"needs one for each of {len(counts)} types"
            raise ParameterError("ballots", self.ballots, remedy)
        candidates = sorted(self.ballots[0])
        if self.rule == "borda":
            return {self._borda(counts, candidates): 1}
        return {self._transferable(counts, candidates): 1}

    def _borda(self, counts: Counts, candidates: list[str]) -> str:
        def score(name: str) -> int:
            total = 0
            for ballot, count in zip(self.ballots, counts, strict=True):
                places_below = len(candidates) - 1
                points = places_below - ballot.index(name)
                total += count * points
            return total

        return max(candidates, key=score)

    def _transferable(self, counts: Counts, candidates: list[str]) -> str:
        """Single transferable vote: the fewest first places drop out; of several, the highest
        index."""
        remaining = list(candidates)
        while len(remaining) > 1:
            first_places = dict.fromkeys(remaining, 0)
            for ballot, count in zip(self.ballots, counts, strict=True):
                first = next(name for name in ballot if name in remaining)
                first_places[first] += count
            loser = min(reversed(remaining), key=first_places.__getitem__)
            remaining.remove(loser)
        return remaining[0]


@final
@dataclass(frozen=True, kw_only=True)
class Own:
    """A mechanism by its law: of the sample where there is a sampler, else of the whole
    database."""

    law: Law


@final
@dataclass(frozen=True, kw_only=True)
class Table:
    """A mechanism by a row of chances for each histogram, in lexicographic order: (0, .., 0, n)
    first.

    Arguments:
        rows: numbers >= 0; rows of floats, Fractions or decimal strings that sum to 1, or of
            integers with one sum.
    """

    rows: Sequence[Sequence[Any]]

    def laws(self, total: int, types: int) -> dict[Counts, Mapping[Hashable, Any]]:
        """The law of every histogram."""
        histograms = list(histograms_of(total, types))
        if len(self.rows) != len(histograms):
            remedy = f"needs {len(histograms)} rows, one for each histogram of {total} records"
            raise ParameterError("mechanism", len(self.rows), remedy)
        chance_rows = [list(chances) for chances in self.rows]
        all_chances = itertools.chain.from_iterable(chance_rows)
        if all(isinstance(chance, int | np.integer) for chance in all_chances):
            chance_rows = _normalized(chance_rows)
        laws_by_histogram: dict[Counts, Mapping[Hashable, Any]] = {}
        for histogram, chances in zip(histograms, chance_rows, strict=True):
            laws_by_histogram[histogram] = dict(enumerate(chances))
        return laws_by_histogram


def _normalized(rows: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """Rows of integers with one sum, as Fractions that sum to 1."""
    row_sums = {sum(map(int, row)) for row in rows}
    if len(row_sums) != 1 or row_sums == {0}:
        remedy = "rows of integers need one sum above 0"
        raise ParameterError("mechanism", sorted(row_sums)[:3], remedy)
    (common_sum,) = row_sums
    exact_rows: list[list[Any]] = []
    for row in rows:
        shares = [Fraction(int(value), common_sum) for value in row]
        exact_rows.append(shares)
    return exact_rows


Anonymous = Histogram | Threshold | Winner | Own | Table


def read_mechanism(mechanism: object) -> Anonymous:
    """A mechanism from a record, a word, a callable histogram -> {output: chance}, or a table.

    Raises:
        ParameterError: anything else.
    """
    if isinstance(mechanism, Histogram | Threshold | Winner | Own | Table):
        return mechanism
    if mechanism == "histogram":
        return Histogram()
    if isinstance(mechanism, str) and mechanism in ("winner", "plurality"):
        return Winner()
    if callable(mechanism):
        return Own(law=cast(Law, mechanism))
    is_table = isinstance(mechanism, Sequence | np.ndarray)
    if is_table and not isinstance(mechanism, str | bytes):
        with suppress(TypeError):  # of what has no rows
            return Table(rows=[list(row) for row in mechanism])
    remedy = "use a callable, a table of rows, 'histogram', 'winner' or a record"
    raise ParameterError("mechanism", mechanism, remedy)


def histogram_count(total: int, types: int) -> int:
    """How many histograms of so many records there are."""
    return math.comb(total + types - 1, types - 1)


def histograms_of(total: int, types: int) -> Iterator[Counts]:
    """Every histogram of so many records, in lexicographic order."""
    if types == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for tail in histograms_of(total - first, types - 1):
            yield (first, *tail)
