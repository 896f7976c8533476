"""The loop that turns inputs and random words into reports."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mezzotint.core.alias import Cells
from mezzotint.core.compiled import compiled
from mezzotint.core.entropy import Words
from mezzotint.core.mechanism import FloatArray


# Per element: clip, find the segment, T = round(t 2^32), take the right row if the high half of the word is below T,
# then the level that the low half names in that row's alias cells. Every element takes the same steps; nothing
# branches on a value (conditional expressions compile to selects). NaN is counted and treated as `lower`, so that no
# index ever leaves its table; the caller drops the reports then.
@compiled
def draw(
    x: npt.NDArray[np.floating],
    words: Words,
    codes: npt.NDArray[np.unsignedinteger],
    lower: float,
    upper: float,
    bucket_scale: float,
    first: npt.NDArray[np.int32],
    steps: int,
    start: FloatArray,
    scale: FloatArray,
    cells: Cells,
    bits: int,
) -> tuple[int, int, int]:
    """Fills `codes`; returns how many inputs lay below, above, and were NaN."""
    below = above = nans = 0
    half, whole = np.uint64(32), np.uint64(0xFFFFFFFF)
    b, unit, aliases = np.uint64(bits), np.uint64(32 - bits), np.uint64((1 << bits) - 1)
    for i in range(x.size):
        value = np.float64(x[i])
        word = words[i]
        below += value < lower
        above += value > upper
        nans += value != value
        value = value if value >= lower else lower
        value = value if value <= upper else upper
        segment = np.int64(first[np.uint64((value - lower) * bucket_scale)])
        for step in range(steps - 1, -1, -1):
            probe = segment + (1 << step)
            segment = probe if value >= start[np.uint64(probe)] else segment
        at = np.uint64(segment)
        # t 2^32 in [0, 2^32]: adding one half before truncating rounds to the nearest unit.
        threshold = np.uint64((value - start[at]) * scale[at] + 0.5)
        row = (at << np.uint64(1)) | np.uint64((word >> half) < threshold)
        cell = (word & whole) >> unit
        entry = np.uint64(cells[row, cell])
        # threshold above alias in one integer: u << b | ones < threshold << b | alias exactly when u < threshold.
        below_threshold = (((word << b) & whole) | aliases) < entry
        codes[i] = cell if below_threshold else entry & aliases
    return below, above, nans
