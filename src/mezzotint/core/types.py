"""Types and constants that every module shares: kinds of arrays, the unit of probability, seeds."""

from __future__ import annotations

import os
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

AnyArray = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
IndexArray = npt.NDArray[np.intp]
NumberArray = npt.NDArray[np.number]
Floats = npt.NDArray[np.floating]
Words = npt.NDArray[np.uint64]
Codes = npt.NDArray[np.unsignedinteger]
BoolArray = npt.NDArray[np.bool_]
ByteArray = npt.NDArray[np.uint8]

ClipCounts: TypeAlias = tuple[int, int, int]
"""How many inputs lay below the range, lay above it, and were NaN."""

AnyPath: TypeAlias = "str | os.PathLike[str]"

TOTAL = 2**32
"""Every row of a table sums to this many units of probability."""

MAX_LEVELS = 2**16
"""More levels than this do not fit the 16-bit codes."""

MAX_PROBABILITIES = 2**25
"""Of a table that is computed, rows times levels: seconds, and about a gigabyte."""

UNIT = 2.0**-53
"""Unit roundoff: relative error of one correctly rounded float64 operation."""

Seed: TypeAlias = "int | np.random.Generator | None"
"""None draws from the system's generator, privately; a seed or a Generator is reproducible and NOT
private.
"""
