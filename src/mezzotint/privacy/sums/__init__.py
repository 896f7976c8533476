"""What a secure sum of many reports reveals.

Integers are summed, not floats: here are the lattice of a table's levels and the table's rows on
it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import float_above
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import FloatArray, IntArray

TOLERANCE = 2.0**-40
"""Levels may miss the lattice by this fraction of their range: float arithmetic on an even grid
misses by ~2**-50."""

MAX_SPAN = 2**14
"""Largest integer a lattice may need; beyond it a secure sum spends over 14 bits on the gaps
between the levels."""

_REMEDY = (
    "not integer multiples of a step, so the sum of codes does not decode to the sum of values; "
    "design the table on an even grid or a sparse subset of one, such as -3,-1,1,3 (mezzotint "
    "design --levels=-3,-1,1,3), or use "
    "trust='local'"
)


@final
@dataclass(frozen=True, kw_only=True)
class Lattice:
    """The integers that clients add up: level i is sent as integers[i] and stands for offset + step
    * integers[i].

    Arguments:
        integers: (m,) strictly increasing, the first 0, greatest common divisor 1.
        step: data units per integer.
        offset: the value of integer 0, data units.
        decode_error: max_i |levels[i] - (offset + step * integers[i])|, data units, exact and
            rounded up; the decoded sum of n reports is off by at most n times this.

    Guarantees: claims about sums are claims about these integers; no float enters them.
    """

    integers: IntArray
    step: float
    offset: float
    decode_error: float

    @property
    def span(self) -> int:
        """The largest integer one client sends."""
        return int(self.integers[-1])

    def modulus(self, clients: int) -> int:
        """The least modulus under which the sum of `clients` reports cannot wrap around."""
        if clients < 1:
            raise ParameterError("clients", clients, "need at least 1 client")
        return clients * self.span + 1


def _integers(levels: FloatArray) -> IntArray | None:
    """Candidate integers of the levels; None when a ratio of distances is not a small rational."""
    exact_levels = _exact(levels)
    lowest = exact_levels[0]
    distances = [level - lowest for level in exact_levels]
    span = distances[-1]
    # The coarsest lattice first: rationals of the range with the least denominator that meets the
    # tolerance.
    denominator = 1
    for distance in distances[1:-1]:
        if denominator > MAX_SPAN:
            return None
        ratio = distance / span * denominator
        denominator *= _least_denominator(ratio, denominator)
    if denominator > MAX_SPAN:
        return None
    multiples = [round(distance * denominator / span) for distance in distances]
    integers = np.array(multiples, dtype=np.int64)
    return integers // np.gcd.reduce(integers)


def _exact(levels: FloatArray) -> list[Fraction]:
    return list(map(Fraction, levels.tolist()))


def _least_denominator(ratio: Fraction, scale: int) -> int:
    """The least q <= MAX_SPAN with |ratio - p/q| <= TOLERANCE * scale.

    MAX_SPAN + 1 when there is none.
    """
    tolerance = Fraction(TOLERANCE) * scale

    def is_near(denominator: int) -> bool:
        nearest = ratio.limit_denominator(denominator)
        return abs(nearest - ratio) <= tolerance

    # limit_denominator(q) gives the closest fraction, and its error shrinks with q.
    denominators = range(1, MAX_SPAN + 1)
    return 1 + bisect_left(denominators, True, key=is_near)


def find_lattice(levels: FloatArray) -> Lattice:
    """The coarsest lattice that the levels stand on.

    Arguments:
        levels: (m,) strictly increasing, data units.

    Raises:
        ParameterError: no integer multiples of a step within `TOLERANCE` of the range and
            `MAX_SPAN`; the remedy is an even grid, a sparse subset of one, or the local view.

    Guarantees: decided in exact rationals of the stored floats; `decode_error` is exact, rounded
        up.
    Edge cases: two levels always stand on a lattice (0 and 1).
    """
    values = np.asarray(levels, dtype=np.float64)
    if values.ndim != 1 or values.size < 2 or not _increasing(values):
        remedy = "need at least 2 finite, strictly increasing levels"
        raise ParameterError("levels", values.tolist(), remedy)
    integers = _integers(values)
    if integers is None or not _increasing(integers) or integers[-1] > MAX_SPAN:
        raise ParameterError("levels", values.tolist(), _REMEDY)
    exact_levels = _exact(values)
    offset = exact_levels[0]
    span = exact_levels[-1] - offset
    # Offset and step run through the first and the last level; only the floats that are stored
    # count.
    step = float(span / int(integers[-1]))
    exact_step = Fraction(step)
    decode_error = Fraction(0)
    for level, integer in zip(exact_levels, integers.tolist(), strict=True):
        decoded = offset + exact_step * integer
        decode_error = max(decode_error, abs(level - decoded))
    if decode_error > Fraction(TOLERANCE) * span:
        raise ParameterError("levels", values.tolist(), _REMEDY)
    integers.setflags(write=False)
    return Lattice(
        integers=integers,
        step=step,
        offset=float(offset),
        decode_error=float_above(decode_error),
    )


def _increasing(values: FloatArray | IntArray) -> bool:
    """Whether all values are finite, each larger than the one before."""
    is_larger = np.diff(values) > 0
    return bool(np.isfinite(values).all() and is_larger.all())


def lattice_rows(mechanism: Mechanism) -> tuple[IntArray, Lattice]:
    """The table's distinct rows as integer weights on 0..span (units of 2**-32), and its lattice.

    Levels that no row uses are dropped before the lattice is sought.

    Returns: (rows, span + 1) int64 weights, rows distinct, in the order in which they first stand
        in the table.
    """
    largest_weights = mechanism.weights.max(axis=0)
    used = largest_weights > 0
    levels = mechanism.levels[used]
    if levels.size == 1:
        remedy = "only one level is ever reported; there is nothing to sum"
        raise ParameterError("mechanism", mechanism.name, remedy)
    lattice = find_lattice(levels)
    _, first = np.unique(mechanism.weights, axis=0, return_index=True)
    distinct_rows = mechanism.weights[np.sort(first)]
    rows = np.zeros((first.size, lattice.span + 1), dtype=np.int64)
    rows[:, lattice.integers] = distinct_rows[:, used]
    return rows, lattice
