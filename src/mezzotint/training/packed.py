"""Models as few bits: codes packed without gaps, scales and levels of channels, in one checked
safetensors file.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final

import numpy as np
import numpy.typing as npt

from mezzotint.core import brought_by
from mezzotint.core.arguments import check_choice, check_count
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import parse_object, replacing
from mezzotint.core.records import JsonObject
from mezzotint.core.sampler import pack, packed_size, unpack
from mezzotint.core.types import AnyArray, AnyPath, ByteArray, Codes, Float32Array, FloatArray
from mezzotint.training.channels import LEAST_BITS, integers, round_channels

if TYPE_CHECKING:
    import torch

MAX_BITS = 8

Inputs = Literal["float32", "int64"]
"""What features are that a model takes."""

_FEWEST_WEIGHTS = 16
"""Weights of a channel from which on it has a scale of its own."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PackedTensor:
    """One tensor on levels of the model: value = scale * levels[code], or scale *
    levels[chosen[channel, code]].

    Arguments:
        name: the parameter's name in the module.
        codes: unsigned integers below the number of levels, shape of the tensor.
        scale: weight units per level unit, not 0: a number, or float32 numbers, one for each index
            of the first axis (a channel). A negative one turns the levels around.
        chosen: (channels, 2**bits) uint8, the levels that each channel uses, where its codes have
            fewer bits than the model has levels for; one channel where the scale is a number. None
            for all levels.
    """

    name: str
    codes: Codes
    scale: float | Float32Array
    chosen: ByteArray | None = None

    @property
    def levels(self) -> Codes:
        """Which of the model's levels each weight stands on, shape of the tensor."""
        if self.chosen is None:
            return self.codes
        channel_codes = self.codes.reshape(len(self.chosen), -1)
        indices = channel_codes.astype(np.intp)
        levels = np.take_along_axis(self.chosen, indices, axis=1)
        return levels.reshape(self.codes.shape)

    @property
    def scales(self) -> FloatArray:
        """The scale as an array that multiplies the codes' levels: (), or (channels, 1, ...)."""
        scales = np.asarray(self.scale, dtype=np.float64)
        if scales.ndim == 0:
            return scales
        other_axes = range(1, self.codes.ndim)
        return np.expand_dims(scales, tuple(other_axes))

    def check(self, bits: int, level_count: int) -> None:
        """Raises ParameterError for scales, choices and codes that do not fit a model of these
        levels.
        """
        scale = np.asarray(self.scale)
        is_usable = np.isfinite(scale) & (scale != 0)
        if not is_usable.all():
            remedy = f"tensor {self.name!r} needs scales that are not 0"
            raise ParameterError("scale", float(scale.min()), remedy)
        channel_shape = self.codes.shape[:1]
        is_by_channel = scale.shape == channel_shape and scale.dtype == np.float32
        if scale.ndim and not is_by_channel:
            remedy = f"tensor {self.name!r} needs one float32 for each channel"
            raise ParameterError("scale", scale.shape, remedy)
        code_count = level_count
        if self.chosen is not None:
            self._check_chosen(self.chosen, scale.size, bits, level_count)
            code_count = self.chosen.shape[1]
        largest_code = int(self.codes.max(initial=0))
        if largest_code >= code_count:
            remedy = f"tensor {self.name!r} names no such level"
            raise ParameterError("codes", largest_code, remedy)

    def _check_chosen(self, chosen: ByteArray, channels: int, bits: int, level_count: int) -> None:
        shapes = [(channels, 2**fewer_bits) for fewer_bits in range(1, bits)]
        has_right_shape = chosen.shape in shapes and chosen.dtype == np.uint8
        largest_level = chosen.max(initial=0)
        if not has_right_shape or largest_level >= level_count:
            remedy = (
                f"tensor {self.name!r} needs fewer levels than the model has, a power of 2, for "
                "each channel"
            )
            raise ParameterError("chosen", chosen.shape, remedy)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PackedModel:
    """The weights of a model, every one on one of 2**bits levels.

    Arguments:
        tensors: in the module's order, names unique.
        levels: (2**bits or fewer,) increasing level values in units of a tensor's scale.
        note: plain values that belong to the model (its claim, its data), kept in the file.
    Raises:
        ParameterError: codes that name no level, scales that are 0 or not finite, names that
            repeat.
    Guarantees: what `save` writes `load` gives back bit for bit; an edited or cut file is refused.
    """

    tensors: tuple[PackedTensor, ...]
    levels: tuple[float, ...]
    note: JsonObject

    def __post_init__(self) -> None:
        names = [tensor.name for tensor in self.tensors]
        if len(set(names)) != len(names):
            raise ParameterError("tensors", names, "each name stands once")
        level_count = len(self.levels)
        has_right_count = 2 <= level_count <= 2**MAX_BITS
        increasing = sorted(set(self.levels))
        if not has_right_count or list(self.levels) != increasing:
            raise ParameterError("levels", level_count, "need 2 to 256 increasing levels")
        for tensor in self.tensors:
            tensor.check(self._bits_of_levels, level_count)

    @property
    def _bits_of_levels(self) -> int:
        """Bits of a weight that may stand on every level."""
        return _bits_for(len(self.levels))

    def bits_of(self, tensor: PackedTensor) -> int:
        """Bits of one weight of a tensor."""
        if tensor.chosen is None:
            return self._bits_of_levels
        _, code_count = tensor.chosen.shape
        return _bits_for(code_count)

    @property
    def bits(self) -> int:
        """Bits of one weight, the most of any tensor."""
        tensor_bits = [self.bits_of(tensor) for tensor in self.tensors]
        return max(tensor_bits, default=self._bits_of_levels)

    @property
    def weights(self) -> int:
        """Number of weights."""
        return sum(tensor.codes.size for tensor in self.tensors)

    @property
    def packed_bytes(self) -> int:
        """Bytes of the packed codes, tensor by tensor; scales, chosen levels and header not
        counted.
        """
        total = 0
        for tensor in self.tensors:
            bits = self.bits_of(tensor)
            total += packed_size(tensor.codes.size, bits)
        return total

    @property
    def float_bytes(self) -> int:
        """Bytes of the same weights in float32."""
        return 4 * self.weights

    def values(self) -> dict[str, Float32Array]:
        """The weights by name, float32."""
        levels = np.asarray(self.levels)
        values: dict[str, Float32Array] = {}
        for tensor in self.tensors:
            level_values = levels.take(tensor.levels, mode="clip")
            weights = tensor.scales * level_values
            values[tensor.name] = weights.astype(np.float32)
        return values

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The weights by name as PyTorch tensors, for `module.load_state_dict`; buffers are not in
        it.
        """
        from mezzotint.training.models import torch

        state: dict[str, torch.Tensor] = {}
        for name, weights in self.values().items():
            state[name] = torch.from_numpy(weights)
        return state

    def load_into(self, module: torch.nn.Module) -> torch.nn.Module:
        """Sets all parameters of a PyTorch module, in place, and returns it; names and shapes must
        be the same.
        """
        parameters = dict(module.named_parameters())
        tensors = self.state_dict()
        if set(parameters) != set(tensors):
            one_sided = sorted(set(parameters) ^ set(tensors))
            raise ParameterError("module", one_sided, "these parameters are on one side only")
        for name, parameter in parameters.items():
            shape = tuple(parameter.shape)
            packed_shape = tuple(tensors[name].shape)
            if shape != packed_shape:
                remedy = f"{name} has shape {packed_shape} in the file"
                raise ParameterError("module", shape, remedy)
            parameter.data.copy_(tensors[name])
        return module

    def to_module(self, module: torch.nn.Module | None = None) -> torch.nn.Module:
        """A PyTorch module with these weights: a copy of the one given, else the one that the note
        describes.
        """
        from mezzotint.training.models import task

        if module is not None:
            return self.load_into(copy.deepcopy(module))
        architecture = self.note.get("architecture")
        if architecture is None:
            raise ParameterError(
                "module",
                None,
                "the packed model does not say how it is built; give a module of its kind",
            )
        model = architecture["model"]
        shape = tuple(architecture["shape"])
        classes = architecture["classes"]
        described = task(model, shape=shape, classes=classes)
        return self.load_into(described.module)

    def save(self, path: AnyPath, *, overwrite: bool = False) -> int:
        """Writes the model as a safetensors file, atomically.

        Its tensors are, for each tensor `name`, `name.codes` (uint8, flat: codes without gaps, the
        first in the lowest bits), `name.scale` where each channel has one (float32), and
        `name.chosen` (uint8, channels x 2**bits) where channels choose among the levels. Its
        metadata have one entry, `mezzotint`: the SHA-256 of all, a space, and a JSON text with
        levels, shapes, single scales and the note.

        Returns: the size of the file in bytes.
        Raises:
            ParameterError: an existing file.
            MissingExtraError: safetensors is not installed.
        """
        with brought_by("torch"):
            from safetensors.numpy import save_file
        arrays: dict[str, AnyArray] = {}
        entries: list[JsonObject] = []
        for tensor in self.tensors:
            name = tensor.name
            content = pack(tensor.codes, self.bits_of(tensor))
            packed_codes = np.frombuffer(content, dtype=np.uint8)
            arrays[f"{name}.codes"] = packed_codes.copy()
            if tensor.chosen is not None:
                arrays[f"{name}.chosen"] = np.ascontiguousarray(tensor.chosen)
            scale = None
            if np.ndim(tensor.scale):
                arrays[f"{name}.scale"] = np.ascontiguousarray(tensor.scale)
            else:
                scale = float(tensor.scale)
            shape = list(tensor.codes.shape)
            entries.append({"name": name, "shape": shape, "scale": scale})
        header = {
            "schema": SCHEMA,
            "levels": list(self.levels),
            "tensors": entries,
            "note": dict(self.note),
        }
        header_text = json.dumps(header, sort_keys=True, allow_nan=False)
        digest = _digest(header_text, arrays)
        metadata = {_HEADER: f"{digest} {header_text}"}
        with replacing(path, overwrite=overwrite) as temporary:
            save_file(arrays, temporary, metadata=metadata)
            return Path(temporary).stat().st_size

    @classmethod
    def load(cls, path: AnyPath) -> PackedModel:
        """Reads what `save` wrote.

        Raises:
            FileFormatError: a missing, truncated, edited or foreign file.
            MissingExtraError: safetensors is not installed.
        """
        with brought_by("torch"):
            from safetensors import SafetensorError, safe_open
        name = Path(path).name
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except OSError as error:
            reason = error.strerror or "no such file"
            raise FileFormatError(f"{path}: cannot be read ({reason}); check the path") from None
        except (SafetensorError, TypeError, ValueError, KeyError) as error:
            raise FileFormatError(f"{name}: no packed model ({error})") from None
        digest, _, header_text = metadata.get(_HEADER, "").partition(" ")
        if metadata.keys() != {_HEADER} or digest != _digest(header_text, arrays):
            raise FileFormatError(f"{name}: truncated, edited, or no packed model")
        header = parse_object(header_text, name=name)
        try:
            if header["schema"] != SCHEMA:
                reason = f"schema {header['schema']}, this version reads {SCHEMA}"
                raise FileFormatError(f"{name}: {reason}")
            return _model_of(header, arrays)
        except FileFormatError:
            raise
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise FileFormatError(f"{name}: not a packed model ({error})") from None


SCHEMA = 4
_HEADER = "mezzotint"
"""The only entry of the metadata: of several, safetensors writes any first, and files would
differ.
"""


def _bits_for(count: int) -> int:
    """Bits of a number below a count."""
    return (count - 1).bit_length()


def _digest(header: str, arrays: Mapping[str, AnyArray]) -> str:
    """SHA-256 of a header and of arrays by name, with their types and shapes."""
    digest = hashlib.sha256(header.encode())
    for name, weight_array in sorted(arrays.items()):
        type_name = str(weight_array.dtype)
        description = json.dumps([name, type_name, weight_array.shape])
        digest.update(description.encode())
        digest.update(weight_array.tobytes())
    return digest.hexdigest()


def _model_of(header: JsonObject, arrays: dict[str, AnyArray]) -> PackedModel:
    """The model of a file's header and arrays, each of which is used."""
    unused = dict(arrays)
    levels = tuple(header["levels"])
    tensors: list[PackedTensor] = []
    for tensor_entry in header["tensors"]:
        name = tensor_entry["name"]
        shape = tuple(tensor_entry["shape"])
        chosen = unused.pop(f"{name}.chosen", None)
        code_count = len(levels)
        if chosen is not None:
            code_count = chosen.shape[1]
        packed_codes = unused.pop(f"{name}.codes")
        content = packed_codes.tobytes()
        flat_codes = unpack(content, _bits_for(code_count), math.prod(shape))
        codes = flat_codes.reshape(shape)
        scale = tensor_entry["scale"]
        if scale is None:
            scale = unused.pop(f"{name}.scale")
        tensors.append(PackedTensor(name=name, codes=codes, scale=scale, chosen=chosen))
    if unused:
        raise ValueError(f"{min(unused)} belongs to no tensor")
    note = dict(header["note"])
    return PackedModel(tensors=tuple(tensors), levels=levels, note=note)


def pack_weights(
    weights: Mapping[str, npt.NDArray[np.floating]],
    *,
    bits: int,
    scales: Literal["channel", "tensor"] = "channel",
    note: JsonObject | None = None,
) -> PackedModel:
    """Rounds each weight to the nearest of 2**bits levels.

    Of weights that were released privately this is post-processing: it costs no privacy.

    Arguments:
        weights: name to values; every value finite.
        bits: 1 to 8.
        scales: of the levels. "channel" searches a scale for each output of a layer (index of the
            first axis, of at least 16 weights). From 4 bits on levels are integers in a row, one of
            them 0; with fewer bits each channel chooses among the 16 integers of 4 bits. "tensor"
            takes even levels from minus to plus the largest weight.
        note: kept in the file.
    Raises:
        ParameterError: bits out of range, values that are not finite.
    Guarantees: with "tensor" no weight moves by more than max |w| / (2**bits - 1), but for rounding
        to float32. With "channel" the scale is that of least error among those tried, each weight's
        squared error counted by the mean square of all weights of its input: weights of inputs that
        never move are noise, and say nothing about where levels should lie.
    Edge cases: a channel of zeros stays zero.
    Source: docs/training.md, "Which method".
    """
    check_count("bits", bits, most=MAX_BITS)
    check_choice("scales", scales, ("channel", "tensor"))
    round_tensor = _round_by_channel
    levels = integers(max(bits, LEAST_BITS))
    if scales == "tensor":
        round_tensor = _round_evenly
        levels = np.linspace(-1.0, 1.0, 2**bits)
    tensors: list[PackedTensor] = []
    for name, values in weights.items():
        weight_array = np.asarray(values, dtype=np.float64)
        if not np.isfinite(weight_array).all():
            raise ParameterError("weights", name, "every weight must be finite")
        tensors.append(round_tensor(name, weight_array, bits))
    level_values = tuple(levels.tolist())
    kept_note = dict(note or {})
    return PackedModel(tensors=tuple(tensors), levels=level_values, note=kept_note)


def _round_by_channel(name: str, array: FloatArray, bits: int) -> PackedTensor:
    """A tensor whose channels have scales and levels of their own; one of each if it is small."""
    channel_count = 1
    if array.ndim > 1 and array.size > 0:
        width = array.size // len(array)
        if width >= _FEWEST_WEIGHTS:
            channel_count = len(array)
    rows = array.reshape(channel_count, -1)
    rounded = round_channels(rows, bits)
    scale = rounded.scales
    if channel_count == 1:
        scale = float(rounded.scales[0])
    codes = rounded.codes.reshape(array.shape)
    return PackedTensor(name=name, codes=codes, scale=scale, chosen=rounded.chosen)


def _round_evenly(name: str, array: FloatArray, bits: int) -> PackedTensor:
    """A tensor on the 2**bits even levels of `pack_weights`, its codes their indices; its scale, the
    largest magnitude as a float of 32 bits, is never 0.
    """
    top_code = 2**bits - 1
    smallest_scale = np.finfo(np.float32).tiny
    magnitudes = np.abs(array)
    largest = magnitudes.max(initial=smallest_scale)
    scale = float(np.float32(largest))
    relative = array / scale
    positions = (relative + 1) / 2 * top_code
    nearest = np.rint(positions)
    codes = np.clip(nearest, 0, top_code)
    return PackedTensor(name=name, codes=codes.astype(np.uint8), scale=scale)


def pack_codes(
    names: Sequence[str],
    codes: Sequence[Codes],
    *,
    bounds: Sequence[float],
    levels: Sequence[float],
    note: JsonObject,
) -> PackedModel:
    """A model whose weights are on levels already: their codes as they are."""
    tensors: list[PackedTensor] = []
    for name, tensor_codes, bound in zip(names, codes, bounds, strict=True):
        tensors.append(PackedTensor(name=name, codes=tensor_codes, scale=bound))
    return PackedModel(tensors=tuple(tensors), levels=tuple(levels), note=dict(note))
