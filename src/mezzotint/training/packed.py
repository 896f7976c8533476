"""Models as few bits: codes packed without gaps, a scale per tensor or channel, in one checked file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import replacing
from mezzotint.core.lazy import LazyModule
from mezzotint.core.packing import pack, packed_size, unpack

export: Any = LazyModule("mezzotint.training.export")

MAGIC = b"mezzotint-weights\n"
SCHEMA = 2
_LENGTH_BYTES = 8
_HASH_BYTES = 32

Codes = npt.NDArray[Any]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PackedTensor:
    """One tensor on levels: value = scale * levels[code].

    Arguments:
        name: the parameter's name in the module.
        codes: unsigned integers below the number of levels, shape of the tensor.
        scale: weight units per level unit, > 0: a number, or float32 numbers, one for each index of the first axis.
    """

    name: str
    codes: Codes
    scale: float | npt.NDArray[np.float32]

    @property
    def scales(self) -> npt.NDArray[np.float64]:
        """The scale as an array that multiplies the codes' levels: (), or (channels, 1, ...)."""
        given = np.asarray(self.scale, dtype=np.float64)
        return given.reshape(given.shape + (1,) * (self.codes.ndim - 1 if given.ndim else 0))


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PackedModel:
    """The weights of a model, every one on one of 2**bits levels.

    Arguments:
        tensors: in the module's order, names unique.
        levels: (2**bits or fewer,) increasing level values in units of a tensor's scale.
        note: plain values that belong to the model (its claim, its data), kept in the file.

    Raises:
        ParameterError: codes that name no level, scales that are not positive, names that repeat.

    Guarantees: what `save` writes `load` gives back bit for bit; an edited or cut file is refused.
    """

    tensors: tuple[PackedTensor, ...]
    levels: tuple[float, ...]
    note: Mapping[str, Any]

    def __post_init__(self) -> None:
        names = [tensor.name for tensor in self.tensors]
        if len(set(names)) != len(names):
            raise ParameterError("tensors", names, "each name stands once")
        if not 2 <= len(self.levels) <= 256 or list(self.levels) != sorted(set(self.levels)):
            raise ParameterError("levels", len(self.levels), "need 2 to 256 increasing levels")
        for tensor in self.tensors:
            scale = np.asarray(tensor.scale)
            if not np.all((scale > 0) & (scale < float("inf"))):
                raise ParameterError("scale", float(scale.min()), f"tensor {tensor.name!r} needs positive scales")
            if scale.ndim and (scale.dtype != np.float32 or scale.shape != tensor.codes.shape[:1]):
                raise ParameterError("scale", scale.shape, f"tensor {tensor.name!r} needs one float32 for each channel")
            if tensor.codes.size and int(tensor.codes.max()) >= len(self.levels):
                raise ParameterError("codes", int(tensor.codes.max()), f"tensor {tensor.name!r} names no such level")

    @property
    def bits(self) -> int:
        """Bits of one weight."""
        return (len(self.levels) - 1).bit_length()

    @property
    def weights(self) -> int:
        """Number of weights."""
        return sum(tensor.codes.size for tensor in self.tensors)

    @property
    def packed_bytes(self) -> int:
        """Bytes of the packed codes, `bits` each, tensor by tensor; scales and header not counted."""
        return sum(packed_size(tensor.codes.size, self.bits) for tensor in self.tensors)

    @property
    def float_bytes(self) -> int:
        """Bytes of the same weights in float32."""
        return 4 * self.weights

    def values(self) -> dict[str, npt.NDArray[np.float32]]:
        """The weights by name, float32."""
        levels = np.asarray(self.levels)
        return {t.name: (t.scales * levels[t.codes.astype(np.intp)]).astype(np.float32) for t in self.tensors}

    def state_dict(self) -> dict[str, Any]:
        """The weights by name as PyTorch tensors, for `module.load_state_dict`; buffers are not in it."""
        return export.state_dict(self)

    def load_into(self, module: Any) -> Any:
        """Sets all parameters of a PyTorch module, in place, and returns it; names and shapes must be the same."""
        return export.load_into(self, module)

    def to_module(self, module: Any = None) -> Any:
        """A PyTorch module with these weights: a copy of the one given, else the one that the note describes."""
        return export.to_module(self, module)

    def export(self, path: str | os.PathLike[str], *, overwrite: bool = False, **settings: Any) -> int:
        """Writes the model for other programs, by the ending of the path; returns the size of the file in bytes.

        Arguments:
            path: ending in .onnx (see `export.save_onnx`, which takes the settings) or .safetensors (see
                `export.save_safetensors`).

        Raises:
            ParameterError: another ending, an existing file.
        """
        savers = {".onnx": export.save_onnx, ".safetensors": export.save_safetensors}
        ending = Path(path).suffix
        if ending not in savers:
            raise ParameterError("path", ending, f"the ending says the format: {', '.join(savers)}")
        return savers[ending](self, path, overwrite=overwrite, **settings)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
        """Writes the model, atomically; returns the size of the file in bytes. Refuses an existing file."""
        header = {
            "schema": SCHEMA,
            "levels": list(self.levels),
            "tensors": [
                {"name": t.name, "shape": list(t.codes.shape), "scale": None if np.ndim(t.scale) else t.scale}
                for t in self.tensors
            ],
            "note": dict(self.note),
        }
        text = json.dumps(header, sort_keys=True, allow_nan=False).encode()
        body = len(text).to_bytes(_LENGTH_BYTES, "little") + text
        for tensor in self.tensors:
            channels = np.asarray(tensor.scale, dtype="<f4").tobytes() if np.ndim(tensor.scale) else b""
            body += channels + pack(tensor.codes, self.bits)
        content = MAGIC + hashlib.sha256(body).digest() + body
        with replacing(path, overwrite=overwrite) as temporary:
            temporary.write_bytes(content)
        return len(content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PackedModel:
        """Reads what `save` wrote; FileFormatError for truncated, edited or foreign files."""
        raw = Path(path).read_bytes()
        start = len(MAGIC) + _HASH_BYTES
        if not raw.startswith(MAGIC) or len(raw) < start + _LENGTH_BYTES:
            raise FileFormatError(f"{Path(path).name}: no packed model")
        if hashlib.sha256(raw[start:]).digest() != raw[len(MAGIC) : start]:
            raise FileFormatError(f"{Path(path).name}: truncated or edited (its hash does not match)")
        return _parse(raw[start:], Path(path).name)


def _parse(body: bytes, name: str) -> PackedModel:
    length = int.from_bytes(body[:_LENGTH_BYTES], "little")
    position = _LENGTH_BYTES + length
    header = json.loads(body[_LENGTH_BYTES:position])
    if header["schema"] != SCHEMA:
        raise FileFormatError(f"{name}: schema {header['schema']}, this version reads {SCHEMA}")
    bits = (len(header["levels"]) - 1).bit_length()
    tensors: list[PackedTensor] = []
    for entry in header["tensors"]:
        shape = tuple(entry["shape"])
        count = int(np.prod(shape, dtype=np.int64))
        scale = entry["scale"]
        if scale is None:
            scale = np.frombuffer(body, dtype="<f4", count=shape[0], offset=position).astype(np.float32)
            position += scale.nbytes
        size = packed_size(count, bits)
        codes = unpack(body[position : position + size], bits, count).reshape(shape)
        tensors.append(PackedTensor(name=entry["name"], codes=codes, scale=scale))
        position += size
    return PackedModel(tensors=tuple(tensors), levels=tuple(header["levels"]), note=header["note"])


_CELLS = {1: 1.596, 2: 0.9957, 3: 0.5860, 4: 0.3352, 5: 0.1881, 6: 0.1041, 7: 0.05687, 8: 0.03076}
"""Width of a cell of the best even levels for a normal variable, in standard deviations, by bits."""

_LEAST_FAN = 16
"""Weights of a channel from which on it has a scale of its own."""


def pack_weights(
    weights: Mapping[str, npt.NDArray[np.floating[Any]]],
    *,
    bits: int,
    scales: Literal["channel", "tensor"] = "channel",
    note: Mapping[str, Any] | None = None,
) -> PackedModel:
    """Rounds each weight to the nearest of 2**bits even levels around 0.

    Of weights that were released privately this is post-processing: it costs no privacy.

    Arguments:
        weights: name to values; every value finite.
        bits: 1 to 8.
        scales: of the levels: "channel" takes, for each output of a layer (index of the first axis, of at least 16
            weights), the best of three: the largest weight of the tensor, that of the channel, and what suits a normal
            distribution of the channel's mean square. "tensor" takes the largest weight of the tensor.
        note: kept in the file.

    Raises:
        ParameterError: bits out of range, values that are not finite.

    Guarantees: the squared error of no channel is above that of levels between the tensor's extremes of magnitude (but
        for scales' rounding to float32), where no weight moves by more than max |w| / (2**bits - 1).
    Edge cases: a channel of zeros gets the least scale, so that its weights stay below 1e-37.
    Source: Max 1960, Table II, for the normal distribution.
    """
    if bits not in _CELLS:
        raise ParameterError("bits", bits, "weights take 1 to 8 bits")
    if scales not in ("channel", "tensor"):
        raise ParameterError("scales", scales, 'use "channel" or "tensor"')
    levels = np.linspace(-1.0, 1.0, 2**bits)
    tensors: list[PackedTensor] = []
    for name, values in weights.items():
        array = np.asarray(values, dtype=np.float64)
        if not np.isfinite(array).all():
            raise ParameterError("weights", name, "holds values that are not finite")
        many = scales == "channel" and array.ndim > 1 and array.size >= _LEAST_FAN * array.shape[0] > 0
        rows = array.reshape(array.shape[0] if many else 1, -1)
        found = _scales(rows, bits) if scales == "channel" else _largest(rows)
        codes = _nearest(rows, found, bits).astype(np.uint8).reshape(array.shape)
        scale = found.astype(np.float32) if many else float(found[0])
        tensors.append(PackedTensor(name=name, codes=codes, scale=scale))
    return PackedModel(tensors=tuple(tensors), levels=tuple(levels.tolist()), note=dict(note or {}))


def _largest(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """(channels,) the largest weights, as floats of 32 bits and never 0."""
    largest = np.abs(rows).max(axis=1, initial=0.0)
    return np.maximum(largest, np.finfo(np.float32).tiny).astype(np.float32).astype(np.float64)


def _nearest(rows: npt.NDArray[np.float64], scales: npt.NDArray[np.float64], bits: int) -> npt.NDArray[np.float64]:
    """Codes of the nearest levels."""
    top = 2**bits - 1
    return np.clip(np.rint((rows / scales[:, None] + 1) / 2 * top), 0, top)


def _scales(rows: npt.NDArray[np.float64], bits: int) -> npt.NDArray[np.float64]:
    """(channels,) for each channel the scale of least squared error by the three rules."""
    top = 2**bits - 1
    own = _largest(rows)
    typical = np.sqrt(np.mean(rows**2, axis=1)) if rows.shape[1] else own
    normal = np.maximum(_CELLS[bits] * top / 2 * typical, np.finfo(np.float32).tiny)
    rules = np.stack([np.full_like(own, own.max()), own, normal.astype(np.float32).astype(np.float64)])
    errors = [
        np.sum((scale[:, None] * (_nearest(rows, scale, bits) / top * 2 - 1) - rows) ** 2, axis=1) for scale in rules
    ]
    return rules[np.argmin(errors, axis=0), np.arange(len(own))]


def pack_codes(
    names: Sequence[str],
    codes: Sequence[Codes],
    *,
    bounds: Sequence[float],
    levels: Sequence[float],
    note: Mapping[str, Any],
) -> PackedModel:
    """A model whose weights stand on levels already: their codes as they are."""
    tensors = tuple(
        PackedTensor(name=name, codes=code, scale=bound) for name, code, bound in zip(names, codes, bounds, strict=True)
    )
    return PackedModel(tensors=tensors, levels=tuple(levels), note=dict(note))
