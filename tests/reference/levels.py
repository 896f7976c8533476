"""The fused kernels' levels for words of a test's choice; imported only where Triton interprets."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl

from mezzotint import Mechanism
from mezzotint.core import fused
from mezzotint.core.gpu import tables_on


@triton.jit
def _levels_kernel(
    x, leading, trailing, drawn, nearest, whole,
    ends, numbers, first, knots, slope, cells, line, row_cells, size,
    search: tl.constexpr, steps: tl.constexpr, bits: tl.constexpr, exact_ends: tl.constexpr,
    on_line: tl.constexpr,
):  # fmt: skip
    index = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    mask = index < size
    value = tl.load(x + index, mask=mask, other=0)
    before = tl.load(leading + index, mask=mask, other=0).to(tl.uint32)
    after = tl.load(trailing + index, mask=mask, other=0).to(tl.uint32)
    bounds = fused._load(ends, 0, 2) + fused._load(numbers, 0, 3)
    tables = (numbers, first, knots, slope)
    farthest = tl.full([1024], 0xFFFFFFFF, tl.uint32)
    if on_line:
        level, distance = fused._even_level(
            value,
            before,
            farthest,
            fused._load(line, 0, 5) + fused._load_bits(line, 5, 9),
            row_cells - (0x4B000000 + (1 << bits)),
            bits,
            False,
        )
    else:
        level, distance = fused._leading_level(
            value, before, farthest, bounds, tables, cells, search, steps, bits, exact_ends
        )
    settled = fused._whole_level(
        value, before, after, bounds, tables, cells, search, steps, bits, exact_ends
    )
    tl.store(drawn + index, (level & ((1 << bits) - 1)).to(tl.int64), mask=mask)
    tl.store(nearest + index, distance.to(tl.int64), mask=mask)
    tl.store(whole + index, settled.to(tl.int64), mask=mask)


def levels_of(
    mechanism: Mechanism, x: np.ndarray, leading: np.ndarray, trailing: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Of each input and pair of words (uint32 in int64): the level by the leading word alone, whether that is open, and
    the level by both."""
    tables = tables_on(mechanism, x.dtype, torch.device("cpu"))
    inputs = [torch.from_numpy(array) for array in (x, leading, trailing)]
    drawn, nearest, whole = (torch.zeros(x.size, dtype=torch.int64) for _ in range(3))
    _levels_kernel[(triton.cdiv(x.size, 1024),)](
        *inputs, drawn, nearest, whole,
        tables.ends, tables.numbers, tables.first, tables.knots, tables.slope, tables.cells,
        tables.line, tables.row_cells, x.size,
        tables.search, tables.steps, tables.bits, tables.exact_ends, tables.on_line,
    )  # fmt: skip
    margin = int(tables.line.view(torch.int32)[6])
    open_below = 2 * margin + 2 ** (32 - (32 - tables.bits) // 2) + 2**tables.bits
    return drawn.numpy(), (nearest < open_below).numpy(), whole.numpy()
