"""Small numbers to the device and back: the few torch functions whose own signatures leave types open."""

from __future__ import annotations

from typing import Any, cast

import numpy.typing as npt
import torch

_torch = cast(Any, torch)


def to_device(array: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """A copy of `array` on `device`: the array may be read-only, and torch knows no such thing."""
    return _torch.from_numpy(array.copy()).to(device)


def to_integers(x: torch.Tensor) -> tuple[int, ...]:
    """The elements of a 1-D integer tensor. Waits for the device."""
    return tuple(cast(Any, x).tolist())
