"""Integer alias tables: one lookup and one compare draw a level with exactly the probability its weight says."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from mezzotint.core.compiled import compiled
from mezzotint.core.mechanism import IntArray

Cells = npt.NDArray[np.uint32]


# A row of weights sums to 2^32 units. They are shared out to 2^b cells (b = bits of a report) of 2^(32-b) units each,
# every cell holding units of at most two levels: the first `threshold` units belong to the level that has the cell's
# own number, the others to the cell's `alias`. A uniform 32-bit word names a cell by its high b bits and a unit in it
# by the rest, so level i is drawn for exactly weights[i] of the 2^32 words.
#
# One sweep shares them out. While the current heavy level (more units than a cell holds) still has more than a
# cellful, it tops up the cell of the next light level; else its own cell takes what it has left and the next heavy
# level tops that up. Units are conserved, so the levels that remain when no heavy one does fill their cells exactly.
#
# A threshold below the capacity takes 32-b bits and an alias takes b: a cell is one uint32, threshold above alias.
# A full cell would need threshold = capacity; it is stored as threshold 0 with itself as alias, which is the same.
@compiled
def _fill_cells(weights: IntArray, bits: int, cells: Cells) -> None:
    size = 1 << bits
    levels = weights.shape[1]
    capacity = 1 << (32 - bits)
    for row in range(weights.shape[0]):
        for cell in range(size):
            cells[row, cell] = cell
        light = -1
        heavy = 0
        while heavy < levels and weights[row, heavy] <= capacity:
            heavy += 1
        rest = weights[row, heavy] if heavy < levels else 0
        while heavy < levels:
            if rest > capacity:
                light += 1
                while light < levels and weights[row, light] > capacity:
                    light += 1
                threshold = weights[row, light] if light < levels else 0
                if threshold < capacity:
                    cells[row, light] = (threshold << bits) | heavy
                    rest -= capacity - threshold
            else:
                own, threshold = heavy, rest
                heavy += 1
                while heavy < levels and weights[row, heavy] <= capacity:
                    heavy += 1
                rest = weights[row, heavy] if heavy < levels else 0
                if threshold < capacity:
                    cells[row, own] = (threshold << bits) | heavy
                    rest -= capacity - threshold


def alias_cells(weights: IntArray, bits: int) -> Cells:
    """The alias cells of every row of a table.

    Arguments:
        weights: (rows, m) integers >= 0, every row summing to 2**32, m <= 2**bits.
        bits: 1 to 16; the number of cells per row is 2**bits.

    Returns: (rows, 2**bits) uint32: threshold << bits | alias; see the derivation above.

    Guarantees: over all 2**32 words level i is drawn exactly weights[row, i] times; no mass, never drawn.

    Source: Walker (1977), Vose (1991); the sweep is that of Huebschle-Schneider and Sanders (2022).
    """
    cells = np.empty((weights.shape[0], 1 << bits), dtype=np.uint32)
    _fill_cells(weights, bits, cells)
    return cells
