"""The best table for every coordinate of vectors of bounded norm."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Literal, final

import numpy.typing as npt

from mezzotint.core.arguments import check_count, check_positive, with_old_names
from mezzotint.core.errors import InfeasibleError
from mezzotint.core.search import bracket
from mezzotint.design.optimum import optimal
from mezzotint.design.problem import (
    DesignResult,
)
from mezzotint.privacy.tradeoffs import UNEVEN, vector_epsilon

Inputs = Literal["grid", "real"]

_STEPS = 13
"""Halvings of the rate when inputs may be any numbers."""


@with_old_names(l2_norm="clip_norm")
def vector(
    epsilon: float = 1.0,
    *,
    dimension: int,
    clip_norm: float,
    levels: npt.ArrayLike = 4,
    knots: int = 9,
    inputs: Inputs = "grid",
    prior: object = None,
) -> DesignResult:
    """The best table for each coordinate of a vector of bounded L2 norm, under pure epsilon of the
    entire vector.

    Arguments:
        epsilon: pure epsilon of the entire report (all coordinates), replace-one neighbours.
        dimension: number of coordinates.
        clip_norm: bound C on the norm; each coordinate is in [-C, C], two vectors are at most 2 C
            apart.
        levels: number of levels or the levels, as in `optimal`.
        knots: even inputs per coordinate (the grid of MVU's Lemma 6).
        inputs: "grid": the guarantee is for vectors with every coordinate on a knot and norm at
            most C (round them there first, keeping the norm). "real": for all vectors; dithering is
            paid for, which costs much.
        prior: of one coordinate, as in `optimal`.

    Returns: the table of one coordinate; its `mechanism.epsilon` is that of one coordinate,
        `vector_epsilon` that of the vector. Where an even share of epsilon per coordinate serves
        better than the metric, it is that design.

    Raises:
        ParameterError, InfeasibleError: as `optimal`.

    Guarantees: vector_epsilon(mechanism, dimension, 2 C, inputs) <= epsilon.
    Source: Chaudhuri, Guo, Rabbat 2022, Lemma 6; docs/proofs/design.md, "Vectors".

    Example:
        >>> table = mz.design.vector(2.0, dimension=16, clip_norm=1.0, levels=4).mechanism
        >>> mz.design.vector_epsilon(table, dimension=16, l2_distance=2.0, inputs="grid") <= 2.0
        True
    """
    started = time.perf_counter()
    check_positive("epsilon", epsilon)
    check_positive("clip_norm", clip_norm)
    check_count("dimension", dimension)
    make = partial(
        optimal, lower=-clip_norm, upper=clip_norm, levels=levels, prior=prior, knots=knots
    )
    search = _Search(
        make=make, epsilon=epsilon, dimension=dimension, clip_norm=clip_norm, inputs=inputs
    )
    best = search.best()
    return replace(best, seconds=time.perf_counter() - started)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Search:
    """A search among tables of one coordinate for vectors of bounded norm.

    Arguments:
        make: as `optimal`, of the coordinate's range, levels, knots and prior.
        epsilon, dimension, clip_norm, inputs: as of `vector`.
        results: the tables tried that keep the vector within epsilon.
    """

    make: Callable[..., DesignResult]
    epsilon: float
    dimension: int
    clip_norm: float
    inputs: Inputs
    results: list[DesignResult] = field(default_factory=list[DesignResult])

    def best(self) -> DesignResult:
        """The table of least loss; InfeasibleError where none keeps the vector within epsilon."""
        failure = self._search_rates()
        # Few coordinates may do better with an even share of epsilon: then the distance does not
        # matter.
        share = self.epsilon / self.dimension * (1 - 2 * UNEVEN)
        with contextlib.suppress(InfeasibleError):
            self._adds(self.make(share))
        if not self.results:
            raise failure
        return min(self.results, key=attrgetter("loss"))

    def _adds(self, result: DesignResult) -> bool:
        """Whether a table keeps the vector within epsilon; then it is added to the results."""
        vector_loss = vector_epsilon(
            result.mechanism,
            dimension=self.dimension,
            l2_distance=2 * self.clip_norm,
            inputs=self.inputs,
        )
        if vector_loss > self.epsilon:
            return False
        self.results.append(result)
        return True

    def _holds(self, rate: float) -> bool:
        """Whether a rate's table keeps to epsilon; where there is no table, a larger rate may."""
        try:
            result = self.make(rate, metric="squared")
        except InfeasibleError:
            return True
        return self._adds(result)

    def _search_rates(self) -> InfeasibleError:
        """Try rates of the squared metric; returns why there may be no table."""
        # On the grid the metric's rate times the squared distance is the vector's epsilon;
        # dithering needs a smaller one.
        squared_distance = (2 * self.clip_norm) ** 2
        rate = self.epsilon / squared_distance * (1 - 2 * UNEVEN)
        try:
            result = self.make(rate, metric="squared")
            if not self._adds(result):
                bracket(self._holds, 0.0, rate, steps=_STEPS)
        except InfeasibleError as error:
            return error
        return InfeasibleError(f"epsilon={self.epsilon:g}: no table meets it; use fewer knots")
