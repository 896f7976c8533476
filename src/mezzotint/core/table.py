"""The one idea of this package: a scalar mechanism is a table of integers.

`Table` holds the checked arrays and their hash. Samplers and accountants read it; `Mechanism` adds
what users do with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError, as_array, wrong_kind
from mezzotint.core.records import JsonObject
from mezzotint.core.types import MAX_LEVELS, TOTAL, FloatArray, IntArray, NumberArray

Scalar = TypeVar("Scalar", np.float64, np.int64)

NARROWEST = 2.0**-900
"""Distinct knots are at least this far apart, so that 2**32 / width is a finite float."""

OTHER = "(other)"
"""The category of values that no other category names."""

MISSING = "(missing)"
"""The category of missing values."""


def category_name(value: object) -> str:
    """Spell a category as text: text as it is, true and false, or an integer's digits."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, (int, np.integer)):
        return str(int(cast(int, value)))
    raise ParameterError(
        "categories", type(value).__name__, "a category is text, an integer, or true or false"
    )


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Table:
    """Inputs (knots), outputs (levels) and integer probabilities (weights) of a scalar mechanism.

    An input is clipped to [lower, upper]. Between two knots one of their two rows is picked at
    random, row k+1 with probability t = (x - knots[k]) / (knots[k+1] - knots[k]), and one level is
    drawn from that row.

    Arguments:
        knots: (K+1,) sorted inputs in data units, float64 (other numbers become the nearest); the
            first is `lower`, the last is `upper`. A repeated knot is a jump: its first row holds
            just below it, its second row from it on.
        levels: (m,) strictly increasing decoded outputs in data units, 2 <= m <= 65536.
        weights: (K+1, m) integers >= 0, every row sums to exactly 2**32; row k is the pmf at
            knots[k].
        categories: names of the categories, where inputs are categories: category i is the input i,
            the knots are 0, 1, 2, ..., and levels are indices of reports rather than values. None
            for numeric inputs.

    Raises:
        ParameterError: naming the parameter, its value and the remedy, when the arrays form no
            table.

    Guarantees:
        Frozen: the arrays are read-only copies. Equality and hash are those of the canonical text.

    Source: math notes T1 (docs/proofs/tables.md).

    Example:
        >>> half = 2**31
        >>> Table(knots=[0, 1], levels=[0, 1], weights=[[half, half], [0, 2 * half]]).bits
        1
    """

    knots: FloatArray
    levels: FloatArray
    weights: IntArray
    categories: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        knots = _read_only(_array("knots", self.knots, "iuf", "knots are real numbers"), np.float64)
        levels = _read_only(
            _array("levels", self.levels, "iuf", "levels are real numbers"), np.float64
        )
        _check_knots(knots)
        _check_levels(levels)
        remedy = "weights are integers; mezzotint.core.rounding turns probabilities into them"
        weights = _array("weights", self.weights, "iu", remedy)
        if weights.shape != (knots.size, levels.size):
            remedy = f"need one row per knot and one column per level: {(knots.size, levels.size)}"
            raise ParameterError("weights", weights.shape, remedy)
        check_weights(weights)
        if self.categories is not None:
            object.__setattr__(self, "categories", tuple(self.categories))
            _check_categories(self.categories, knots)
        object.__setattr__(self, "knots", knots)
        object.__setattr__(self, "levels", levels)
        object.__setattr__(self, "weights", _read_only(weights, np.int64))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Check a copy like any table: its arrays are read-only, and what follows from them is
        computed anew.
        """
        self.__init__(**{field.name: state[field.name] for field in fields(self)})

    @property
    def lower(self) -> float:
        """Smallest input, data units; smaller inputs are clipped to it."""
        return float(self.knots[0])

    @property
    def upper(self) -> float:
        """Largest input, data units; larger inputs are clipped to it."""
        return float(self.knots[-1])

    @property
    def bits(self) -> int:
        """Bits of one report: ceil(log2 m)."""
        return (self.levels.size - 1).bit_length()

    @cached_property
    def probabilities(self) -> FloatArray:
        """(K+1, m) float64 rows: weights / 2**32, exact (integers below 2**53 over a power of
        two).
        """
        rows = self.weights / float(TOTAL)
        rows.setflags(write=False)
        return rows

    def content(self) -> JsonObject:
        """The hashed values as JSON has them: knots, levels and weights, and the categories if
        there are any.
        """
        document: JsonObject = {
            "knots": self.knots.tolist(),
            "levels": self.levels.tolist(),
            "weights": self.weights.tolist(),
        }
        if self.categories is not None:
            document["categories"] = list(self.categories)
        return document

    def canonical(self) -> str:
        """The table as canonical JSON: fixed key order, no spaces, shortest round-trip decimals."""
        return json.dumps(
            self.content(),
            separators=(",", ":"),
            allow_nan=False,
        )

    @cached_property
    def sha256(self) -> str:
        """SHA-256 (hex) of the canonical JSON."""
        return hashlib.sha256(self.canonical().encode("ascii")).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)


# Checks ------------------------------------------------------------------------------------------


def check_weights(weights: NumberArray) -> IntArray:
    """Return the array itself; ParameterError unless it has integer rows >= 0 that sum to 2**32
    each.
    """
    weights = as_array("weights", weights, "need rows of one length")
    if weights.ndim != 2 or weights.size == 0 or weights.dtype.kind not in "iu":
        raise wrong_kind("weights", weights, "iu", "need a 2-D array of integers, one row per knot")
    if weights.min() < 0:
        row, column = np.argwhere(weights < 0)[0].tolist()
        raise ParameterError(
            "weights", int(weights[row, column]), f"row {row}, level {column} is negative; use 0"
        )
    if weights.max() > TOTAL:
        raise ParameterError(
            "weights", int(weights.max()), f"no weight can exceed the row sum {TOTAL}"
        )
    table = weights.astype(np.int64, copy=False)
    row_sums = table.sum(axis=1)
    if (row_sums != TOTAL).any():
        row = int(np.flatnonzero(row_sums != TOTAL)[0])
        raise ParameterError(
            "weights", int(row_sums[row]), f"row {row} must sum to exactly 2**32 = {TOTAL}"
        )
    return table


def _read_only(values: NumberArray, dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    """Copy `values`, read-only and in C order; adding zero turns -0.0 into 0.0, so that equal
    tables hash equally.
    """
    array = np.array(
        values,
        dtype=dtype,
        order="C",
        copy=True,
    )
    np.add(array, 0, out=array)
    array.setflags(write=False)
    return array


def _array(
    parameter: str,
    values: npt.ArrayLike,
    kinds: str,
    remedy: str,
) -> NumberArray:
    """Read `values` as an array whose dtype is one of `kinds`; text that looks like a number is not
    a number.
    """
    try:
        array = np.asarray(values)
    except ValueError:
        raise ParameterError(
            parameter, type(values).__name__, "rows differ in length; give a rectangular array"
        ) from None
    if array.size and array.dtype.kind not in kinds:
        raise wrong_kind(parameter, array, kinds, remedy)
    return array


def _check_knots(knots: FloatArray) -> None:
    if knots.ndim != 1 or knots.size < 2:
        raise ParameterError(
            "knots", knots.tolist(), "need a 1-D sequence of at least 2 inputs, lower and upper"
        )
    if not np.isfinite(knots).all():
        raise ParameterError("knots", knots.tolist(), "every knot must be finite")
    with np.errstate(over="ignore"):
        distances = np.diff(knots)
        spread = knots[-1] - knots[0]
    is_segment = distances > 0
    too_close = bool((is_segment & (distances < NARROWEST)).any())
    jumps = distances == 0
    rules = (
        (
            np.isfinite(spread) and not too_close,
            f"upper - lower overflows or knots are closer than {NARROWEST:.1g}; rescale the data",
        ),
        (bool((distances >= 0).all()), "knots must be sorted; sort them with their rows"),
        (
            not (jumps[0] or jumps[-1]),
            "no jump can be at lower or upper: drop the row never drawn",
        ),
        (
            not (jumps[:-1] & jumps[1:]).any(),
            "a knot occurs at most twice: drop the rows in the middle",
        ),
    )
    for holds, remedy in rules:
        if not holds:
            raise ParameterError("knots", knots.tolist(), remedy)


def _check_levels(levels: FloatArray) -> None:
    if levels.ndim != 1:
        raise ParameterError("levels", levels.shape, "need a 1-D sequence of decoded outputs")
    if levels.size < 2:
        raise ParameterError("levels", levels.size, "need at least 2 output levels; try levels=4")
    if levels.size > MAX_LEVELS:
        raise ParameterError(
            "levels", levels.size, f"at most {MAX_LEVELS} levels fit a 16-bit code"
        )
    if not np.isfinite(levels).all():
        raise ParameterError("levels", levels.tolist(), "every level must be finite")
    if (np.diff(levels) <= 0).any():
        raise ParameterError(
            "levels", levels.tolist(), "levels must increase strictly; sort them, drop duplicates"
        )


def _check_categories(categories: Sequence[object], knots: FloatArray) -> None:
    all_text = all(isinstance(name, str) for name in categories)
    if not all_text or len(set(categories)) != len(categories):
        raise ParameterError("categories", ", ".join(map(str, categories)), "need distinct text")
    if knots.tolist() != list(range(len(categories))):
        raise ParameterError(
            "knots", knots.tolist(), "category i has the row of knot i: 0, 1, 2, ..."
        )
