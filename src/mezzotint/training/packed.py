"""Models as few bits: codes packed without gaps, one scale per tensor, in one checked file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import replacing
from mezzotint.core.lazy import LazyModule
from mezzotint.core.packing import pack, packed_size, unpack

export: Any = LazyModule("mezzotint.training.export")

MAGIC = b"mezzotint-weights\n"
SCHEMA = 1
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
        scale: weight units per level unit, > 0.
    """

    name: str
    codes: Codes
    scale: float


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
            if not 0 < tensor.scale < float("inf"):
                raise ParameterError("scale", tensor.scale, f"tensor {tensor.name!r} needs a positive scale")
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
        return {t.name: (t.scale * levels[t.codes.astype(np.intp)]).astype(np.float32) for t in self.tensors}

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
            "tensors": [{"name": t.name, "shape": list(t.codes.shape), "scale": t.scale} for t in self.tensors],
            "note": dict(self.note),
        }
        text = json.dumps(header, sort_keys=True, allow_nan=False).encode()
        body = len(text).to_bytes(_LENGTH_BYTES, "little") + text
        body += b"".join(pack(tensor.codes, self.bits) for tensor in self.tensors)
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
        size = packed_size(count, bits)
        codes = unpack(body[position : position + size], bits, count).reshape(shape)
        tensors.append(PackedTensor(name=entry["name"], codes=codes, scale=entry["scale"]))
        position += size
    return PackedModel(tensors=tuple(tensors), levels=tuple(header["levels"]), note=header["note"])


def pack_weights(
    weights: Mapping[str, npt.NDArray[np.floating[Any]]], *, bits: int, note: Mapping[str, Any] | None = None
) -> PackedModel:
    """Rounds each tensor to the nearest of 2**bits even levels between its own extremes of magnitude.

    Of weights that were released privately this is post-processing: it costs no privacy.

    Arguments:
        weights: name to values; every value finite.
        bits: 1 to 8.
        note: kept in the file.

    Raises:
        ParameterError: bits out of range, values that are not finite.

    Guarantees: no weight moves by more than its tensor's max |w| / (2**bits - 1).
    Edge cases: a tensor of zeros gets scale 1 and the level next to zero.
    """
    if bits not in range(1, 9):
        raise ParameterError("bits", bits, "weights take 1 to 8 bits")
    levels = np.linspace(-1.0, 1.0, 2**bits)
    tensors: list[PackedTensor] = []
    for name, values in weights.items():
        array = np.asarray(values, dtype=np.float64)
        if not np.isfinite(array).all():
            raise ParameterError("weights", name, "holds values that are not finite")
        scale = float(np.abs(array).max(initial=0.0)) or 1.0
        codes = np.rint((array / scale + 1) / 2 * (levels.size - 1)).astype(np.uint8)
        tensors.append(PackedTensor(name=name, codes=codes, scale=scale))
    return PackedModel(tensors=tuple(tensors), levels=tuple(levels.tolist()), note=dict(note or {}))


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
