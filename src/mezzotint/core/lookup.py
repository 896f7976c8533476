"""A mechanism compiled for sampling: where an input lies, and what to draw there, as flat tables."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.alias import Cells, alias_cells
from mezzotint.core.mechanism import TOTAL, FloatArray, Mechanism

MAX_BUCKETS = 1024


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Lookup:
    """The tables that one draw reads. S segments between distinct knots, 2**bits alias cells per row.

    Arguments:
        lower, upper: range of inputs, data units.
        bucket_scale: buckets per data unit: bucket(x) = int((x - lower) * bucket_scale).
        first: (buckets + 1,) the segment that an input in the bucket has at least.
        steps: halvings that find the segment from there; the same for every input.
        start: (S + 2**steps,) left ends of the segments, then inf.
        scale: (S,) 2**32 / width of the segment.
        cells: (2 S, 2**bits) alias cells of the left and the right row of every segment.
        bits: bits of one report.
        levels: m.
    """

    lower: float
    upper: float
    bucket_scale: float
    first: npt.NDArray[np.int32]
    steps: int
    start: FloatArray
    scale: FloatArray
    cells: Cells
    bits: int
    levels: int

    @property
    def code_dtype(self) -> Any:
        """uint8 up to 256 levels, else uint16."""
        return np.dtype(np.uint8 if self.levels <= 256 else np.uint16)


# Buckets cut [lower, upper] evenly. bucket() is monotone in x as floats compute it, and knots are put into buckets
# by the same expression, so: a knot in an earlier bucket lies below x, one in a later bucket above, and only those in
# x's own bucket need a compare. `steps` halvings settle n knots when n < 2**steps. Buckets are doubled until one
# compare suffices; where knots are too close for that, more halvings are made, the same number for every input.
def _buckets(interior: FloatArray, lower: float, upper: float) -> tuple[float, npt.NDArray[np.int32], int]:
    count = 1
    while True:
        bucket_scale = count / (upper - lower)
        bucket = ((interior - lower) * bucket_scale).astype(np.int64)
        fullest = int(np.bincount(bucket).max()) if interior.size else 0
        if fullest <= 1 or count >= MAX_BUCKETS:
            break
        count *= 2
    first = np.searchsorted(bucket, np.arange(count + 1), side="left").astype(np.int32)
    return bucket_scale, first, fullest.bit_length()


@lru_cache(maxsize=32)
def compile_lookup(mechanism: Mechanism) -> Lookup:
    """The sampling tables of a mechanism, kept for the 32 tables used last (equal tables share them)."""
    left_row = np.flatnonzero(np.diff(mechanism.knots) > 0)  # a jump has no width: no input falls into it
    start = mechanism.knots[left_row]
    bucket_scale, first, steps = _buckets(start[1:], mechanism.lower, mechanism.upper)
    cells = alias_cells(mechanism.weights, mechanism.bits)
    return Lookup(
        lower=mechanism.lower,
        upper=mechanism.upper,
        bucket_scale=bucket_scale,
        first=first,
        steps=steps,
        start=np.concatenate([start, np.full(1 << steps, np.inf)]),
        scale=TOTAL / (mechanism.knots[left_row + 1] - start),
        cells=np.stack([cells[left_row], cells[left_row + 1]], axis=1).reshape(2 * start.size, -1),
        bits=mechanism.bits,
        levels=mechanism.levels.size,
    )
