"""Clipping of vectors to a norm: what bounds how much one client can change."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_positive
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import FloatArray

Norm = Literal["linf", "l2", "l1"]


def clip(vector: npt.ArrayLike, *, norm: Norm, bound: float) -> FloatArray:
    """The vector moved into the ball of radius `bound`: the projection, for each of the three norms.

    Arguments:
        vector: (..., d) finite numbers; every vector along the last axis is clipped by itself.
        norm: "linf" (each coordinate), "l2" (scaled down) or "l1" (soft threshold).
        bound: radius in data units, positive and finite.

    Raises:
        ParameterError: NaN or infinite entries (named by index), a bound that is no positive number.

    Guarantees:
        The result's norm is at most `bound`, in exact arithmetic on the floats returned (they are shrunk by an ulp
        where rounding went over).
        Clipping is a contraction: two clipped vectors are no farther apart in L2 than before.
    Edge cases: empty vectors and zero vectors come back unchanged.
    """
    try:
        values = np.array(vector, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError("vector", type(vector).__name__, "need real numbers, all vectors of one length") from None
    if not np.isfinite(values).all():
        place = int(np.argmin(np.isfinite(values).ravel()))
        raise ParameterError("vector", float(values.ravel()[place]), f"entry {place} is not finite; drop it first")
    if norm not in ("linf", "l2", "l1"):
        raise ParameterError("norm", norm, 'use "linf", "l2" or "l1"')
    check_positive("bound", bound)
    if norm == "linf" or values.size == 0:
        return np.clip(values, -bound, bound)
    project = _l2 if norm == "l2" else _l1
    flat = values.reshape(-1, values.shape[-1] if values.ndim else 1)
    return np.stack([_projected(row, float(bound), project) for row in flat]).reshape(values.shape)


def _projected(row: FloatArray, bound: float, project: Callable[[FloatArray, float], FloatArray]) -> FloatArray:
    largest = float(np.abs(row).max())
    if largest == 0 or largest * row.size <= bound:
        return row
    # Scaled by a power of two, which is exact, so that neither squares nor sums leave the floats.
    power = math.frexp(largest)[1]
    scaled = np.ldexp(row, -power)
    projected = project(scaled, math.ldexp(bound, -power))
    return row if projected is scaled else np.ldexp(projected, power)


def _size(row: FloatArray, order: int) -> float:
    # fsum is exact but for its last rounding; squares and the root add three more.
    return math.sqrt(math.fsum((row * row).tolist())) if order == 2 else math.fsum(np.abs(row).tolist())


def _shrunk(row: FloatArray, order: int, bound: float) -> FloatArray:
    # Four ulp cover the roundings of the norm itself.
    while (size := _size(row, order)) * (1 + 2.0**-50) > bound:
        row = row * (bound / size * (1 - 2.0**-49))
    return row


def _l2(row: FloatArray, bound: float) -> FloatArray:
    size = _size(row, 2)
    return row if size <= bound * (1 - 2.0**-49) else _shrunk(row * (bound / size), 2, bound)


def _l1(row: FloatArray, bound: float) -> FloatArray:
    if _size(row, 1) <= bound * (1 - 2.0**-49):
        return row
    # Projection onto the L1 ball (Duchi et al. 2008): subtract the threshold that leaves exactly `bound`.
    ordered = np.sort(np.abs(row))[::-1]
    excess = (np.cumsum(ordered) - bound) / np.arange(1, row.size + 1)
    # The largest entry is always above its own; where rounding hides that, nothing but the largest is left.
    above = np.flatnonzero(ordered > excess)
    threshold = max(0.0, float(excess[above[-1] if above.size else 0]))
    return _shrunk(np.sign(row) * np.maximum(np.abs(row) - threshold, 0.0), 1, bound)
