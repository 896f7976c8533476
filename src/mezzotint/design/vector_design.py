"""The best table for every coordinate of vectors of bounded norm."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Literal

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
        >>> result = mz.design.vector(2.0, dimension=16, clip_norm=1.0, levels=4)
        >>> spent = mz.design.vector_epsilon(
        ...     result.mechanism, dimension=16, l2_distance=2.0, inputs="grid"
        ... )
        >>> spent <= 2.0
        True
    """
    started = time.perf_counter()
    check_positive("epsilon", epsilon)
    check_positive("clip_norm", clip_norm)
    check_count("dimension", dimension)
    make = partial(
        optimal,
        lower=-clip_norm,
        upper=clip_norm,
        levels=levels,
        prior=prior,
        knots=knots,
    )
    results: list[DesignResult] = []

    def adds(result: DesignResult) -> bool:
        """Whether a table keeps the vector within epsilon; then it is added to the results."""
        vector_loss = vector_epsilon(
            result.mechanism, dimension=dimension, l2_distance=2 * clip_norm, inputs=inputs
        )
        if vector_loss > epsilon:
            return False
        results.append(result)
        return True

    failure = _search_rates(make, adds, epsilon, clip_norm)
    # Few coordinates may do better with an even share of epsilon: then the distance does not matter.
    with contextlib.suppress(InfeasibleError):
        adds(make(epsilon / dimension * (1 - 2 * UNEVEN)))
    if not results:
        raise failure
    best = min(results, key=attrgetter("loss"))
    return replace(best, seconds=time.perf_counter() - started)


def _search_rates(
    make: Callable[..., DesignResult],
    adds: Callable[[DesignResult], bool],
    epsilon: float,
    clip_norm: float,
) -> InfeasibleError:
    """Try rates of the squared metric; returns why there may be no table."""

    def holds(rate: float) -> bool:
        """Whether a rate's table keeps to epsilon; where there is no table, a larger rate may."""
        try:
            result = make(rate, metric="squared")
        except InfeasibleError:
            return True
        return adds(result)

    # On the grid the metric's rate times the squared distance is the vector's epsilon; dithering
    # needs a smaller one.
    rate = epsilon / (2 * clip_norm) ** 2 * (1 - 2 * UNEVEN)
    try:
        if not adds(make(rate, metric="squared")):
            bracket(holds, 0.0, rate, steps=_STEPS)
    except InfeasibleError as error:
        return error
    return InfeasibleError(f"epsilon={epsilon:g}: no table meets it; use fewer knots")
