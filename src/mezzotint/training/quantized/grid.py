"""Tables whose knots lie on an even grid, ready for the fast loop: positions by arithmetic, alias cells in a row."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.alias import Cells, alias_cells
from mezzotint.core.mechanism import FloatArray, Mechanism

UNIT = 2.0**33
"""Positions are counted in these parts of a segment: one bit more than t has, to round t by."""

EVEN = 2.0**-36
"""Knots count as evenly spaced when none is further off than this part of a segment: 1/16 of the unit of t."""

MAX_STRETCHED = 2**12
"""Largest number of segments times how much the ends are stretched: keeps the rounding of positions below EVEN."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class EvenGrid:
    """An even grid of segments, of which the first and the last may be cut short by the range.

    An input v lies at p = (v - origin) * scale, counted in UNIT parts of a segment, origin one whole segment below the
    second knot. Where an end is cut short, p is stretched so that its segment is whole again:
    p + first_stretch * min(p - UNIT, 0) + last_stretch * max(p - last, 0). Stretching moves no position across a knot.

    Arguments:
        lower, upper: range of inputs.
        origin, scale: see above.
        last: position of the last segment's left end.
        first_stretch, last_stretch: whole over present width of that segment, less 1; >= 0.
        cells: (rows * 2**bits,) alias cells as `alias_cells` makes them, for the left and right row of every segment
            and of one more behind the last, which is the last row twice: where the upper end itself may fall.
        bits: bits of one report.
    """

    lower: float
    upper: float
    origin: float
    scale: float
    last: float
    first_stretch: float
    last_stretch: float
    cells: Cells
    bits: int

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What the loop takes, in its order."""
        ends = (self.first_stretch, self.last_stretch)
        where = (self.lower, self.upper, self.origin, self.scale, self.last, *ends)
        return where, self.cells, np.uint32(self.bits)  # 32 bits wide, for lanes of 32 bits


def find_grid(mechanism: Mechanism) -> EvenGrid | None:
    """The even grid that the table's knots lie on, for float32 inputs; None if there is none.

    Guarantees: every float32 input falls on the side of a jump on which it lies; t is off by less than its unit 2**-32.
    """
    rows = np.flatnonzero(np.diff(mechanism.knots) > 0)
    knots = mechanism.knots[np.append(rows, mechanism.knots.size - 1)]
    count = rows.size
    widths = np.diff(knots)
    pitch = float(widths.max() if count < 3 else (knots[-2] - knots[1]) / (count - 2))
    first, last = max(0.0, pitch / widths[0] - 1), max(0.0, pitch / widths[-1] - 1) if count > 1 else 0.0
    stretched = 1 + max(first, last)
    if count * stretched > MAX_STRETCHED or not math.isfinite(UNIT / pitch):
        return None
    origin = float(knots[1]) - pitch
    at = (knots - origin) / pitch - np.arange(count + 1)
    # An end may fall short of its place, but not lie beyond it. Stretching magnifies what the others are off by.
    if np.abs(at[1:-1]).max(initial=0.0) * stretched > EVEN or at[0] < -EVEN or at[-1] > EVEN:
        return None
    jumps = np.flatnonzero(np.diff(rows) > 1) + 1
    scale = _scale(origin, pitch, jumps, knots[jumps])
    if scale is None:
        return None
    cells = alias_cells(mechanism.weights, mechanism.bits)
    end = cells[-1:, None, :].repeat(2, axis=1)
    flat = np.concatenate([np.stack([cells[rows], cells[rows + 1]], axis=1), end]).reshape(-1)
    return EvenGrid(
        lower=mechanism.lower,
        upper=mechanism.upper,
        origin=origin,
        scale=scale,
        last=(count - 1) * UNIT,
        first_stretch=first,
        last_stretch=last,
        cells=flat,
        bits=mechanism.bits,
    )


# The side of a jump must be right for each float32 input: the smallest from the knot on, and the largest below it. A
# last-digit change of `scale` often helps where rounding gets it wrong. (At a knot without a jump the wrong side gives
# t = 1 in one segment for t = 0 in the next: the same row.)
def _scale(origin: float, pitch: float, jumps: npt.NDArray[np.intp], knots: FloatArray) -> float | None:
    at = knots.astype(np.float32)
    at = np.where(at < knots, np.nextafter(at, np.float32(np.inf)), at)
    before = np.nextafter(at, np.float32(-np.inf)).astype(np.float64)
    for digits in (0, 1, -1, 2, -2, 4, -4):
        scale = UNIT / pitch * (1 + digits * 2.0**-52)
        if (
            ((at.astype(np.float64) - origin) * scale >= jumps * UNIT) & ((before - origin) * scale < jumps * UNIT)
        ).all():
            return scale
    return None
