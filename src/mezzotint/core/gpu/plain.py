"""The draw in plain torch operations: `core/kernels.py` step by step, for devices without the fused kernel."""

from __future__ import annotations

import torch

from mezzotint.core.gpu.chacha import WORDS_PER_BLOCK, halves
from mezzotint.core.gpu.tables import Tables
from mezzotint.core.kernels import UNIT

CHUNK = 1 << 20
"""Elements at a time: the scratch tensors take some 100 bytes for each of them."""

_WHOLE = 0xFFFFFFFF


def _even(tables: Tables, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    lower, _, scale, half, _ = tables.numbers
    position = (value - lower) * scale
    segment = position.long().clamp(max=tables.last)
    return segment, ((position - segment) * UNIT + half).long()


def _bucketed(tables: Tables, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    lower, _, scale, half, down = tables.numbers
    bucket = ((value - lower) * scale).long()
    knot = tables.knots[bucket]
    right = value >= knot
    segment = tables.first[bucket].long() + right
    return segment, ((value - knot) * tables.slope[segment] + torch.where(right, half, down)).long()


def _searched(tables: Tables, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    segment = torch.zeros_like(value, dtype=torch.int64)
    for step in range(tables.last - 1, -1, -1):
        segment = segment + ((value >= tables.knots[segment + (1 << step)]).long() << step)
    return segment, ((value - tables.knots[segment]) * tables.slope[segment] + tables.numbers[3]).long()


_LOCATE = {"uniform": _even, "bucketed": _bucketed, "searched": _searched}


def _level(tables: Tables, rows: torch.Tensor, low: torch.Tensor) -> torch.Tensor:
    bits = tables.bits
    ones = (1 << bits) - 1
    cell = low >> (32 - bits)
    entry = tables.cells[(rows << bits) | cell].long() & _WHOLE
    return torch.where((((low << bits) & _WHOLE) | ones) < entry, cell, entry & ones)


def _chunk(tables: Tables, x: torch.Tensor, words: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """Overwrites `codes`; returns (3,) how many inputs lay below, above, and were NaN, on the device."""
    lower, upper = tables.numbers[0], tables.numbers[1]
    given = x.double()
    counts = torch.stack([(given < lower).sum(), (given > upper).sum(), given.isnan().sum()])
    # NaN fails the first comparison and becomes `lower`: no index leaves its table.
    value = torch.where(given >= lower, given, lower)
    value = torch.where(value <= upper, value, upper)
    segment, threshold = _LOCATE[tables.search](tables, value)
    low, high = (words.long() & _WHOLE).unbind(1)
    codes.copy_(_level(tables, (segment << 1) | (high < threshold), low))
    return counts


def draw(tables: Tables, x: torch.Tensor, key: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """Element i takes word i of the ChaCha20 keystream of `key`.

    Arguments:
        tables: for the type of x, on its device.
        x: 1-D, contiguous, float32 or float64.
        key: (8,) int32 on the same device.
        codes: of the size of x; overwritten.

    Returns: (3,) int64 on the device: how many inputs lay below, above, and were NaN.
    """
    counts = torch.zeros(3, dtype=torch.int64, device=x.device)
    for begin in range(0, x.numel(), CHUNK):
        part = slice(begin, begin + CHUNK)
        size = x[part].numel()
        words = halves(key, begin // WORDS_PER_BLOCK, -(-size // WORDS_PER_BLOCK))[:size]
        counts += _chunk(tables, x[part], words, codes[part])
    return counts
