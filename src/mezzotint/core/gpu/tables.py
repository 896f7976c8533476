"""A mechanism's lookup tables on a device: the same numbers that the CPU's kernels read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, final

import numpy as np
import torch

from mezzotint.core.gpu.transfer import to_device
from mezzotint.core.kernels import UNIT, draw_bucketed, draw_uniform
from mezzotint.core.lookup import compile_lookup
from mezzotint.core.mechanism import Mechanism


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Tables:
    """What a draw reads, on one device.

    Arguments:
        search: how the segment of an input is found; as the CPU's kernel for this table and input type.
        numbers: (5,) float64: lower, upper, scale (0 for "searched"), 1/2, 2**32 + 1/2.
        last: index of the last segment ("uniform"), or the halvings of the search ("searched"), else 0.
        first, knots, slope: "bucketed": `first`, `split`, `slope`; "searched": unused, `start`, `slope`; else unused.
        cells: int32 with the bits of the CPU's uint32 alias cells.
        bits: bits of one report.
        code_type: uint8 up to 256 levels, else int32.
    """

    search: Literal["uniform", "bucketed", "searched"]
    numbers: torch.Tensor
    last: int
    first: torch.Tensor
    knots: torch.Tensor
    slope: torch.Tensor
    cells: torch.Tensor
    bits: int
    code_type: torch.dtype


@lru_cache(maxsize=32)
def tables_on(mechanism: Mechanism, dtype: np.dtype[Any], device: torch.device) -> Tables:
    """The tables for inputs of type float32 or float64; the 32 used last are kept, on their devices."""
    lookup = compile_lookup(mechanism, dtype)
    lower, upper, *middle, cells, bits = lookup.arguments
    none = np.zeros(1)
    scale, last, first, knots, slope = 0.0, 0, none.astype(np.int32), none, none
    if lookup.kernel is draw_uniform:
        search = "uniform"
        scale, last = middle
    elif lookup.kernel is draw_bucketed:
        search = "bucketed"
        scale, first, knots, slope = middle
    else:
        search = "searched"
        last, knots, slope = middle
    numbers = np.array([lower, upper, scale, 0.5, UNIT + 0.5])
    first, knots, slope, cells, numbers = (
        to_device(array, device) for array in (first, knots, slope, cells.view(np.int32), numbers)
    )
    return Tables(
        search=search,
        numbers=numbers,
        last=int(last),
        first=first,
        knots=knots,
        slope=slope,
        cells=cells,
        bits=bits,
        code_type=torch.uint8 if lookup.code_dtype == np.uint8 else torch.int32,
    )
