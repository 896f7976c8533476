"""Drawing for tensors on a device: tables once on each device, words and codes there and back."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

import numpy as np
import torch

from mezzotint.core.errors import ParameterError
from mezzotint.core.gpu import plain
from mezzotint.core.gpu.plain import key_on, tables_on, to_integers
from mezzotint.core.mechanism import Mechanism

Engine = Literal["plain", "fused"]

FUSED_SINCE = (2, 7)
"""From this torch on, the Triton that comes with it (3.3) compiles the kernel."""


def as_floats(x: torch.Tensor) -> torch.Tensor:
    """x as every sampler reads it: floating types of up to 32 bits as float32, all others as float64; detached.

    Arguments:
        x: any tensor, on its own device.

    Returns: a strided tensor of the same shape on the same device, x's own memory where nothing needs casting.

    Raises:
        ParameterError: complex, sparse or quantized tensors.
    """
    if x.is_complex() or x.layout != torch.strided or x.is_quantized:
        raise ParameterError("x", f"tensor of {x.dtype}, {x.layout}", "need a dense tensor of real numbers")
    small = x.is_floating_point() and x.element_size() <= 4
    # resolve_neg: `z.conj().imag` is a view of z.imag with a mark to negate it, which raw memory does not show.
    return x.detach().resolve_neg().to(torch.float32 if small else torch.float64)


def engine_for(device: torch.device) -> Engine:
    """The fused kernel on CUDA devices where a Triton that compiles it is installed, plain torch elsewhere."""
    major, minor, *_ = torch.__version__.split(".")
    compiles = (int(major), int(minor)) >= FUSED_SINCE and find_spec("triton") is not None
    return "fused" if device.type == "cuda" and compiles else "plain"


def draw(
    mechanism: Mechanism, x: torch.Tensor, key: bytes, engine: Engine | None = None
) -> tuple[torch.Tensor, tuple[int, int, int]]:
    """One report per element, drawn where x lies.

    Arguments:
        mechanism: the table.
        x: dense real tensor of any shape and strides, on a device that computes in float64.
        key: 32 bytes, used for this call only. Element i in row-major order takes bytes 8 i to 8 i + 7
            (little-endian) of the ChaCha20 keystream of this key, counter from 0, nonce 0.
        engine: None for `engine_for` the device; a test names one.

    Returns: codes of the shape of x on its device (uint8 up to 256 levels, else int32), and how many inputs lay
        below, above, and were NaN. Fetching these three numbers waits for the device; x and codes never leave it.

    Guarantees: the codes are those of `codes_from_words` for the same words, bit for bit; both engines agree.

    Edge cases: empty gives empty. With NaN among the inputs the codes mean nothing: the caller must not release them.
    """
    values = as_floats(x)
    flat = values.contiguous().reshape(-1)
    tables = tables_on(mechanism, np.dtype(np.float32 if flat.dtype == torch.float32 else np.float64), flat.device)
    codes = torch.empty(flat.numel(), dtype=tables.code_type, device=flat.device)
    device_key = key_on(key, flat.device)
    work = plain.draw
    if (engine or engine_for(flat.device)) == "fused":
        from mezzotint.core.gpu import fused

        work = fused.draw
    counts: torch.Tensor = work(tables, flat, device_key, codes)
    device_key.zero_()  # queued after the draw; the allocator would hand the key's memory on as it is
    below, above, nans = to_integers(counts)
    return codes.reshape(values.shape), (below, above, nans)


def find(mechanism: Mechanism, x: torch.Tensor, what: Literal["nan", "outside"]) -> tuple[tuple[int, ...], float]:
    """Index and value of the first input, in row-major order, that is NaN or lies outside; there must be one."""
    given = as_floats(x).double()
    bad = given.isnan() if what == "nan" else (given < mechanism.lower) | (given > mechanism.upper)
    index = to_integers(bad.nonzero()[0])
    return index, float(given[index].item())
