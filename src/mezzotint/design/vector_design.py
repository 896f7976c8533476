"""The best table for every coordinate of vectors of bounded norm."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from typing import Literal

import numpy.typing as npt

from mezzotint.core.arguments import (
    by_name,
    check_count,
    check_positive,
)
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


@by_name
def vector(
    epsilon: float = 1.0,
    *,
    dimension: int,
    l2_norm: float,
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
        l2_norm: bound C on the norm; each coordinate is in [-C, C], two vectors are at most 2 C
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
        >>> result = mz.design.vector(2.0, dimension=16, l2_norm=1.0, levels=4)
        >>> spent = mz.design.vector_epsilon(
        ...     result.mechanism, dimension=16, l2_distance=2.0, inputs="grid"
        ... )
        >>> spent <= 2.0
        True
    """
    started = time.perf_counter()
    epsilon = check_positive("epsilon", epsilon)
    l2_norm = check_positive("l2_norm", l2_norm)
    dimension = check_count("dimension", dimension, least=1)

    def design(
        rate: float,
        metric: Literal["squared"] | None = "squared",
    ) -> DesignResult:
        return optimal(
            rate,
            lower=-l2_norm,
            upper=l2_norm,
            levels=levels,
            prior=prior,
            knots=knots,
            metric=metric,
        )

    def fits(result: DesignResult) -> bool:
        vector_loss = vector_epsilon(
            result.mechanism,
            dimension=dimension,
            l2_distance=2 * l2_norm,
            inputs=inputs,
        )
        return vector_loss <= epsilon

    results: list[DesignResult] = []

    def holds(rate: float) -> bool:
        try:
            result = design(rate)
        except InfeasibleError:
            return True  # where a smaller rate fits no table, a larger one may
        if not fits(result):
            return False
        results.append(result)
        return True

    # On the grid the metric's rate times the squared distance is the vector's epsilon; dithering
    # needs a smaller one.
    rate = epsilon / (2 * l2_norm) ** 2 * (1 - 2 * UNEVEN)
    failure = InfeasibleError(f"epsilon={epsilon:g}: no table meets it; use fewer knots")
    try:
        by_metric = design(rate)
        if fits(by_metric):
            results.append(by_metric)
        else:
            bracket(holds, 0.0, rate, steps=_STEPS)
    except InfeasibleError as error:
        failure = error
    with contextlib.suppress(InfeasibleError):
        # Few coordinates may do better with an even share of epsilon each: then the distance does
        # not matter.
        by_share = design(epsilon / dimension * (1 - 2 * UNEVEN), None)
        if fits(by_share):
            results.append(by_share)
    if not results:
        raise failure
    best = min(results, key=lambda result: result.loss)
    return replace(best, seconds=time.perf_counter() - started)
