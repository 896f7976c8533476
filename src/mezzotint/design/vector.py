"""Vectors of bounded L2 norm, coordinate by coordinate, through the squared metric."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_count, check_positive
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.design.metric import row_losses, spacing_of
from mezzotint.design.optimal import optimal
from mezzotint.design.result import DesignResult
from mezzotint.privacy.sums.near import concave_majorant

FloatArray = npt.NDArray[np.float64]
Inputs = Literal["grid", "real"]

_STEPS = 14
_UNEVEN = 1e-8
"""Added to a vector's epsilon, relative: knots count as even up to 1e-9 of their distance."""
_HALVINGS = 60


def vector_epsilon(
    mechanism: Mechanism, *, dimension: int, l2_distance: float, inputs: Inputs = "real", segments: int = 64
) -> float:
    """Pure epsilon of a vector whose coordinates are reported independently by `mechanism`, an upper bound.

    Arguments:
        mechanism: a table on evenly spaced knots.
        dimension: number of coordinates, >= 1.
        l2_distance: largest L2 distance of two neighbouring vectors, data units (2 C for vectors of norm C).
        inputs: "grid": every coordinate is on a knot (MVU's Lemma 6 speaks about these). "real": any coordinates in
            the range; dithering between knots is paid for, and that positions between them are rounded (S1).

    Returns: epsilon, rounded up.

    Raises:
        ParameterError: dimension < 1, a negative distance, uneven knots.

    Guarantees: for two vectors within the distance, no report is more than e**epsilon times as likely under one as
        under the other (docs/proofs/design.md, "Vectors").
    """
    dimension = check_count("dimension", dimension, least=1)
    if not l2_distance >= 0 or math.isinf(l2_distance):
        raise ParameterError("l2_distance", l2_distance, "need a finite distance >= 0")
    if inputs not in ("grid", "real"):
        raise ParameterError("inputs", inputs, 'use "grid" or "real"')
    spacing = spacing_of(mechanism.knots)
    losses = np.maximum.accumulate(row_losses(mechanism))
    if math.isinf(losses[-1]):
        return math.inf
    distance = float(l2_distance)
    if inputs == "real" and distance > 0:
        # A row is drawn for a position off by 2^-32 of its segment at most (S1), whichever way, in both vectors.
        distance += 2 * math.sqrt(dimension) * spacing * 2.0**-32
    if inputs == "grid":
        squares, values = (np.arange(losses.size + 1) * spacing) ** 2, np.concatenate([[0.0], losses])
    else:
        squares, values = _real_profile(losses, spacing, segments)
    # sum_i profile(d_i^2) <= sum_i hull(d_i^2) <= dimension * hull(distance^2 / dimension), hull concave (Jensen).
    share = distance**2 / dimension
    return dimension * concave_majorant(squares, values, share) * (1 + _UNEVEN)


def _real_profile(losses: FloatArray, spacing: float, segments: int) -> tuple[FloatArray, FloatArray]:
    """Squared distances and bounds of the log-ratio of any two real inputs at most so far apart."""
    # Comonotone dithering: inputs d apart draw rows floor(d/h) or ceil(d/h) apart, so the loss is at most
    # losses[ceil(d/h)]. And log p has slope at most (e**losses[1] - 1) / h, so d = j h + rest costs at most
    # losses[j] + rest * slope. The smaller of the two, taken at the right end of each small step.
    slope = math.expm1(losses[0]) / spacing
    whole = np.concatenate([[0.0], losses])
    steps = np.arange(1, losses.size * segments + 1)
    full, rest = np.divmod(steps, segments)
    above = whole[np.minimum(full + (rest > 0), losses.size)]
    values = np.minimum(above, whole[full] + rest / segments * spacing * slope)
    # The profile between two steps is at most its value at the right one: each value stands at the left end, so the
    # hull of the points lies above the whole profile. Against squared distances the profile starts like a square
    # root, above every chord from 0, and many coordinates share small distances: the first step is halved again and
    # again.
    first = spacing / segments
    near = first * 0.5 ** np.arange(_HALVINGS, -1, -1)
    distance = np.concatenate([[0.0], near, steps[1:-1] * first])
    values = np.concatenate([np.minimum(near * slope, values[0]), values[1:]])
    return distance**2, np.maximum.accumulate(values)


def vector(
    epsilon: float = 1.0,
    *,
    dimension: int,
    l2_norm: float,
    levels: Any = 4,
    knots: int = 9,
    inputs: Inputs = "grid",
    prior: Any = None,
) -> DesignResult:
    """The best table for each coordinate of a vector of bounded L2 norm, under pure epsilon of the whole vector.

    Arguments:
        epsilon: pure epsilon of the whole report (all coordinates), replace-one neighbours.
        dimension: number of coordinates.
        l2_norm: bound C on the norm; each coordinate is in [-C, C], two vectors are at most 2 C apart.
        levels: number of levels or the levels, as in `optimal`.
        knots: even inputs per coordinate (the grid of MVU's Lemma 6).
        inputs: "grid": the guarantee is for vectors with every coordinate on a knot and norm at most C (round them
            there first, keeping the norm). "real": for all vectors; dithering is paid for, which costs much.
        prior: of one coordinate, as in `optimal`.

    Returns: the table of one coordinate; its `mechanism.epsilon` is that of one coordinate, `vector_epsilon` that of
        the vector. Where an even share of epsilon per coordinate serves better than the metric, it is that design.

    Raises:
        ParameterError, InfeasibleError: as `optimal`.

    Guarantees: vector_epsilon(mechanism, dimension, 2 C, inputs) <= epsilon.
    Source: Chaudhuri, Guo, Rabbat 2022, Lemma 6; docs/proofs/design.md, "Vectors".
    """
    started = time.perf_counter()
    epsilon, l2_norm = check_positive("epsilon", epsilon), check_positive("l2_norm", l2_norm)
    dimension = check_count("dimension", dimension, least=1)

    def design(rate: float, metric: Literal["squared"] | None = "squared") -> DesignResult:
        return optimal(rate, lower=-l2_norm, upper=l2_norm, levels=levels, prior=prior, knots=knots, metric=metric)

    def fits(result: DesignResult) -> bool:
        spent = vector_epsilon(result.mechanism, dimension=dimension, l2_distance=2 * l2_norm, inputs=inputs)
        return spent <= epsilon

    found, failures = [], []
    # Few coordinates may do better with an even share of epsilon each: then the distance does not matter.
    for attempt in (
        lambda: _at_largest_rate(design, fits, epsilon / (2 * l2_norm) ** 2 * (1 - 2 * _UNEVEN)),
        lambda: design(epsilon / dimension * (1 - 2 * _UNEVEN), None),
    ):
        try:
            found.append(attempt())
        except InfeasibleError as error:
            failures.append(error)
    fitting = [result for result in found if result is not None and fits(result)]
    if not fitting:
        raise failures[0] if failures else InfeasibleError(f"epsilon={epsilon:g}: no table meets it; use fewer knots")
    best = min(fitting, key=lambda result: result.loss)
    return replace(best, seconds=time.perf_counter() - started)


def _at_largest_rate(
    design: Callable[[float], DesignResult], fits: Callable[[DesignResult], bool], rate: float
) -> DesignResult | None:
    """The design at the largest rate of the metric, up to `rate`, that fits; by bisection."""
    # On the grid the metric's rate times the squared distance is the vector's epsilon; dithering needs a smaller one.
    best, low, high = None, 0.0, rate
    for step in range(_STEPS):
        middle = rate if step == 0 else (low + high) / 2
        try:
            result = design(middle)
        except InfeasibleError:
            if step == 0:
                raise
            low = middle
            continue
        if not fits(result):
            high = middle
            continue
        best, low = result, middle
        if step == 0:
            break
    return best
