"""Shares and quantiles that are asked of numbers, checked against a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self, final

import numpy as np

from mezzotint.core.errors import (
    ParameterError,
    as_reals,
)
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import FloatArray

MOST_BINS = 1000


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Request:
    """Shares and quantiles that are asked of numbers.

    Arguments:
        above: thresholds of shares above them, data units.
        histogram: edges of bins, data units; none for no histogram.
        quantiles: probabilities.
        lower, upper: range of the inputs.
    """

    above: tuple[float, ...]
    histogram: tuple[float, ...]
    quantiles: tuple[float, ...]
    lower: float
    upper: float

    @classmethod
    def of(
        cls,
        table: Mechanism,
        *,
        above: Sequence[float] | None,
        histogram: int | Sequence[float] | None,
        quantiles: Sequence[float] | None,
    ) -> Self:
        """The request, checked against the table; raises ParameterError for what it cannot
        answer.
        """
        requested = {
            "above": above,
            "histogram": histogram,
            "quantiles": quantiles,
        }
        for argument, requested_value in requested.items():
            if table.categories is not None and requested_value is not None:
                remedy = "categories have frequencies, and no order; leave it out"
                raise ParameterError(argument, requested_value, remedy)
        thresholds = edges = probabilities = ()
        if above is not None:
            thresholds = _thresholds(above, table.lower, table.upper)
        if histogram is not None:
            edges = _edges(histogram, table.lower, table.upper)
        if quantiles is not None:
            probabilities = _probabilities(quantiles)
        return cls(
            above=thresholds,
            histogram=edges,
            quantiles=probabilities,
            lower=table.lower,
            upper=table.upper,
        )

    @property
    def bins(self) -> list[tuple[float, float]]:
        """Both edges of each bin."""
        return list(pairwise(self.histogram))

    @property
    def size(self) -> int:
        """Intervals asked for."""
        return len(self.above) + len(self.bins) + len(self.quantiles)

    @property
    def edges(self) -> FloatArray | None:
        """All edges of shares; None for none."""
        edges = {*self.above, *self.histogram}
        if not edges:
            return None
        if self.above:
            edges |= {self.lower, self.upper}
        return np.array(sorted(edges))


def _thresholds(above: Sequence[float], lower: float, upper: float) -> tuple[float, ...]:
    remedy = f"list values inside ({lower:g}, {upper:g}); try [{(lower + upper) / 2:g}]"
    values = as_reals("above", above, remedy)
    if values.ndim != 1 or not ((values > lower) & (values < upper)).all():
        raise ParameterError("above", values.tolist(), remedy)
    return tuple(values.tolist())


def _edges(histogram: int | Sequence[float], lower: float, upper: float) -> tuple[float, ...]:
    """Edges of bins within the range: equal ones for a number of bins, at most `MOST_BINS`, or
    those that are listed.
    """
    if isinstance(histogram, (int, np.integer, np.bool_)):
        if isinstance(histogram, (bool, np.bool_)) or not 1 <= histogram <= MOST_BINS:
            raise ParameterError("histogram", histogram, f"use 1 to {MOST_BINS} bins")
        return tuple(np.linspace(lower, upper, int(histogram) + 1).tolist())
    remedy = "edges must increase strictly, at least 2 of them"
    edges = as_reals("histogram", histogram, remedy)
    if edges.ndim != 1 or edges.size < 2 or not (np.diff(edges) > 0).all():
        raise ParameterError("histogram", edges.tolist(), remedy)
    if edges[0] < lower or edges[-1] > upper:
        remedy = f"edges must lie inside [{lower:g}, {upper:g}]"
        raise ParameterError("histogram", edges.tolist(), remedy)
    return tuple(edges.tolist())


def _probabilities(quantiles: Sequence[float]) -> tuple[float, ...]:
    remedy = "list probabilities strictly between 0 and 1; try [0.5]"
    values = as_reals("quantiles", quantiles, remedy)
    if values.ndim != 1 or not values.size or not ((values > 0) & (values < 1)).all():
        raise ParameterError("quantiles", values.tolist(), remedy)
    return tuple(values.tolist())
