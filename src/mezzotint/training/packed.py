"""Models as few bits: codes packed without gaps, scales and levels of channels, in one checked file."""

from __future__ import annotations

import copy
import hashlib
import io
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_choice, check_count
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import parse_object, replacing
from mezzotint.core.records import JsonObject
from mezzotint.core.sampler import pack, packed_size, unpack
from mezzotint.core.types import Codes

if TYPE_CHECKING:
    import torch

Floats = npt.NDArray[np.float64]

_LEAST = 1e-30
"""Size that a channel of zeros is given."""

LEAST_BITS = 4
"""Channels of fewer bits choose among the integers of this many, so that each model has integers of 4 or 8 bits."""

_FEWEST = 8
"""Channels from which on the mean square of an input's weights is known well enough to say how much it matters."""

_SHRINKING = 2.0 ** (np.arange(2, -31, -1) / 10)
"""Scales that are tried, in units of the one at which no weight is cut off."""


def integers(bits: int) -> Floats:
    """(2**bits,) integers in a row, from 1 - 2**(bits - 1) on."""
    return np.arange(1 - 2 ** (bits - 1), 2 ** (bits - 1) + 1, dtype=np.float64)


_LEAST_FAN = 16
"""Weights of a channel from which on it has a scale of its own."""


def _by_channel(name: str, array: Floats, bits: int) -> PackedTensor:
    """A tensor whose channels have scales and levels of their own, as `pack_weights` says; one of each if small."""
    many = array.ndim > 1 and array.size >= _LEAST_FAN * array.shape[0] > 0
    rows = array.reshape(array.shape[0] if many else 1, -1)
    counts = np.mean(rows**2, axis=0) if len(rows) >= _FEWEST else np.ones(rows.shape[1])
    whole = integers(max(bits, LEAST_BITS))
    scales, codes = np.empty(len(rows), dtype=np.float32), np.empty(rows.shape, dtype=np.uint8)
    chosen = np.empty((len(rows), 2**bits), dtype=np.uint8) if bits < LEAST_BITS else None
    for i, row in enumerate(rows):
        largest = max(float(np.abs(row).max(initial=0.0)), _LEAST)
        tried = np.concatenate(
            [largest / whole[-1] * _SHRINKING, -largest / whole[-1] * _SHRINKING]
        )
        ladders = tried[:, None] * whole
        ladders[tried < 0] = ladders[tried < 0, ::-1]  # increasing
        channel = _Channel(row, counts)
        if chosen is None:
            best, places = int(np.argmin(channel.errors(ladders))), np.arange(len(whole))
        else:
            best, places = channel.choose(ladders, 2**bits)
        scales[i] = tried[best]
        if tried[best] < 0:
            places = len(whole) - 1 - places
        levels = float(scales[i]) * whole[places]
        found = np.searchsorted((levels[1:] + levels[:-1]) / 2, row)
        if chosen is None:
            codes[i] = places[found]
        else:
            chosen[i], codes[i] = places, found
    scale = scales if many else float(scales[0])
    return PackedTensor(name=name, codes=codes.reshape(array.shape), scale=scale, chosen=chosen)


@final
class _Channel:
    """Weights in order, and the sums up to each, so that a set of levels is judged without looking at every weight."""

    def __init__(self, row: Floats, counts: Floats) -> None:
        order = np.argsort(row, kind="stable")
        self.row = row[order]
        given = counts[order]
        if not given.any():
            given = np.ones(len(given))
        powers = np.stack([given, given * self.row, given * self.row**2])
        self.sums = np.concatenate([np.zeros((3, 1)), np.cumsum(powers, axis=1)], axis=1)

    def _upto(self, points: Floats) -> Floats:
        """(3, ...) sums over the weights below each point."""
        return np.take(self.sums, np.searchsorted(self.row, points), axis=1)

    def errors(self, levels: Floats) -> Floats:
        """(n,) squared error of the nearest of n sets of increasing levels (n, L), weight by weight as they count."""
        ends = np.pad(self._upto((levels[:, 1:] + levels[:, :-1]) / 2), ((0, 0), (0, 0), (1, 1)))
        ends[:, :, -1] = self.sums[:, -1:]
        return _spread(np.diff(ends, axis=2), levels).sum(axis=1)

    def choose(self, levels: Floats, count: int) -> tuple[int, npt.NDArray[np.intp]]:
        """Of n sets of increasing levels (n, L) the one, and the `count` levels of it, with the least error of all.

        By dynamic programming over the last level that is chosen: what lies between two neighbours goes to the nearer.
        """
        lower, upper = np.triu_indices(levels.shape[1], k=1)
        rising = np.argsort(
            lower + upper, kind="stable"
        )  # of their middles: looked up faster than in any order
        lower, upper = lower[rising], upper[rising]
        low, high, ends = levels[:, lower], levels[:, upper], self._upto(levels)
        middle, start, end = (
            self._upto((low + high) / 2),
            np.take(ends, lower, axis=2),
            np.take(ends, upper, axis=2),
        )
        between = np.full((levels.shape[1], *levels.shape), np.inf)
        between[lower, :, upper] = (_spread(middle - start, low) + _spread(end - middle, high)).T
        least, came = _spread(ends, levels), []
        for _ in range(count - 1):
            through = least.T[:, :, None] + between
            came.append(through.argmin(axis=0))
            least = through.min(axis=0)
        least = least + _spread(self.sums[:, -1][:, None, None] - ends, levels)
        best, last = np.unravel_index(int(least.argmin()), least.shape)
        places = [int(last)]
        for before in reversed(came):
            places.append(int(before[best, places[-1]]))
        return int(best), np.array(places[::-1])


def _spread(sums: Floats, levels: Floats) -> Floats:
    """Squared error around levels, of weights of which these are the sums of counts, weights and squares."""
    count, first, second = sums
    return second - 2 * levels * first + levels**2 * count


MAGIC = b"mezzotint-weights\n"
SCHEMA = 3
_LENGTH_BYTES = 8
_HASH_BYTES = 32


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PackedTensor:
    """One tensor on levels of the model: value = scale * levels[code], or scale * levels[chosen[channel, code]].

    Arguments:
        name: the parameter's name in the module.
        codes: unsigned integers below the number of levels, shape of the tensor.
        scale: weight units per level unit, not 0: a number, or float32 numbers, one for each index of the first axis (a
            channel). A negative one turns the levels around.
        chosen: (channels, 2**bits) uint8, the levels that each channel uses, where its codes have fewer bits than the
            model has levels for; one channel where the scale is a number. None for all levels.
    """

    name: str
    codes: Codes
    scale: float | npt.NDArray[np.float32]
    chosen: npt.NDArray[np.uint8] | None = None

    @property
    def levels(self) -> Codes:
        """Which of the model's levels each weight stands on, shape of the tensor."""
        if self.chosen is None:
            return self.codes
        rows = self.codes.reshape(len(self.chosen), -1).astype(np.intp)
        return np.take_along_axis(self.chosen, rows, axis=1).reshape(self.codes.shape)

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
        ParameterError: codes that name no level, scales that are 0 or not finite, names that repeat.
    Guarantees: what `save` writes `load` gives back bit for bit; an edited or cut file is refused.
    """

    tensors: tuple[PackedTensor, ...]
    levels: tuple[float, ...]
    note: JsonObject

    def __post_init__(self) -> None:
        names = [tensor.name for tensor in self.tensors]
        if len(set(names)) != len(names):
            raise ParameterError("tensors", names, "each name stands once")
        if not 2 <= len(self.levels) <= 256 or list(self.levels) != sorted(set(self.levels)):
            raise ParameterError("levels", len(self.levels), "need 2 to 256 increasing levels")
        for tensor in self.tensors:
            scale = np.asarray(tensor.scale)
            if not np.all(np.isfinite(scale) & (scale != 0)):
                raise ParameterError(
                    "scale",
                    float(scale.min()),
                    f"tensor {tensor.name!r} needs scales that are not 0",
                )
            if scale.ndim and (scale.dtype != np.float32 or scale.shape != tensor.codes.shape[:1]):
                raise ParameterError(
                    "scale",
                    scale.shape,
                    f"tensor {tensor.name!r} needs one float32 for each channel",
                )
            chosen = tensor.chosen
            if chosen is not None and (
                chosen.shape not in [(scale.size, 2**bits) for bits in range(1, self._bits)]
                or chosen.dtype != np.uint8
                or int(chosen.max(initial=0)) >= len(self.levels)
            ):
                remedy = f"tensor {tensor.name!r} needs fewer levels than the model has, a power of 2, for each channel"
                raise ParameterError("chosen", chosen.shape, remedy)
            most = len(self.levels) if chosen is None else chosen.shape[1]
            if tensor.codes.size and int(tensor.codes.max()) >= most:
                raise ParameterError(
                    "codes", int(tensor.codes.max()), f"tensor {tensor.name!r} names no such level"
                )

    @property
    def _bits(self) -> int:
        return (len(self.levels) - 1).bit_length()

    def bits_of(self, tensor: PackedTensor) -> int:
        """Bits of one weight of a tensor."""
        return self._bits if tensor.chosen is None else tensor.chosen.shape[1].bit_length() - 1

    @property
    def bits(self) -> int:
        """Bits of one weight, the most of any tensor."""
        return max(map(self.bits_of, self.tensors), default=self._bits)

    @property
    def weights(self) -> int:
        """Number of weights."""
        return sum(tensor.codes.size for tensor in self.tensors)

    @property
    def packed_bytes(self) -> int:
        """Bytes of the packed codes, tensor by tensor; scales, chosen levels and header not counted."""
        return sum(packed_size(tensor.codes.size, self.bits_of(tensor)) for tensor in self.tensors)

    @property
    def float_bytes(self) -> int:
        """Bytes of the same weights in float32."""
        return 4 * self.weights

    def values(self) -> dict[str, npt.NDArray[np.float32]]:
        """The weights by name, float32."""
        levels = np.asarray(self.levels)
        return {
            t.name: (t.scales * levels.take(t.levels, mode="clip")).astype(np.float32)
            for t in self.tensors
        }

    def state_dict(self) -> dict[str, torch.Tensor]:
        """The weights by name as PyTorch tensors, for `module.load_state_dict`; buffers are not in it."""
        from mezzotint.training.models import torch

        return {name: torch.from_numpy(values) for name, values in self.values().items()}

    def load_into(self, module: torch.nn.Module) -> torch.nn.Module:
        """Sets all parameters of a PyTorch module, in place, and returns it; names and shapes must be the same."""
        own, given = dict(module.named_parameters()), self.state_dict()
        if set(own) != set(given):
            raise ParameterError(
                "module", sorted(set(own) ^ set(given)), "these parameters are on one side only"
            )
        for name, parameter in own.items():
            if parameter.shape != given[name].shape:
                remedy = f"{name} has shape {tuple(given[name].shape)} in the file"
                raise ParameterError("module", tuple(parameter.shape), remedy)
            parameter.data.copy_(given[name])
        return module

    def to_module(self, module: torch.nn.Module | None = None) -> torch.nn.Module:
        """A PyTorch module with these weights: a copy of the one given, else the one that the note describes."""
        from mezzotint.training.models import task

        if module is not None:
            return self.load_into(copy.deepcopy(module))
        known = self.note.get("architecture")
        if known is None:
            remedy = "the packed model does not say how it is built; give a module of its kind"
            raise ParameterError("module", None, remedy)
        return self.load_into(
            task(known["model"], shape=tuple(known["shape"]), classes=known["classes"]).module
        )

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
        """Writes the model, atomically; returns the size of the file in bytes. Refuses an existing file."""
        header = {
            "schema": SCHEMA,
            "levels": list(self.levels),
            "tensors": [
                {
                    "name": t.name,
                    "shape": list(t.codes.shape),
                    "scale": None if np.ndim(t.scale) else t.scale,
                    "chosen": 0 if t.chosen is None else t.chosen.shape[1],
                }
                for t in self.tensors
            ],
            "note": dict(self.note),
        }
        text = json.dumps(header, sort_keys=True, allow_nan=False).encode()
        body = len(text).to_bytes(_LENGTH_BYTES, "little") + text
        for tensor in self.tensors:
            channels = (
                np.asarray(tensor.scale, dtype="<f4").tobytes() if np.ndim(tensor.scale) else b""
            )
            chosen = b"" if tensor.chosen is None else pack(tensor.chosen, self._bits)
            body += channels + chosen + pack(tensor.codes, self.bits_of(tensor))
        content = MAGIC + hashlib.sha256(body).digest() + body
        with replacing(path, overwrite=overwrite) as temporary:
            temporary.write_bytes(content)
        return len(content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PackedModel:
        """Reads what `save` wrote; FileFormatError for missing, truncated, edited or foreign files."""
        name, start = Path(path).name, len(MAGIC) + _HASH_BYTES
        try:
            raw = Path(path).read_bytes()
        except OSError as error:
            raise FileFormatError(
                f"{path}: cannot be read ({error.strerror}); check the path"
            ) from None
        if not raw.startswith(MAGIC) or len(raw) < start + _LENGTH_BYTES:
            raise FileFormatError(f"{name}: no packed model")
        if hashlib.sha256(raw[start:]).digest() != raw[len(MAGIC) : start]:
            raise FileFormatError(f"{name}: truncated or edited (its hash does not match)")
        rest = io.BytesIO(raw[start:])
        header = parse_object(
            rest.read(int.from_bytes(rest.read(_LENGTH_BYTES), "little")), name=name
        )
        try:
            if header["schema"] != SCHEMA:
                raise FileFormatError(
                    f"{name}: schema {header['schema']}, this version reads {SCHEMA}"
                )
            return cls._read(header, rest)
        except FileFormatError:
            raise
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise FileFormatError(f"{name}: not a packed model ({error})") from None

    @classmethod
    def _read(cls, header: JsonObject, rest: io.BytesIO) -> PackedModel:
        most = (len(header["levels"]) - 1).bit_length()

        def codes(bits: int, shape: tuple[int, ...]) -> Codes:
            count = math.prod(shape)
            return unpack(rest.read(packed_size(count, bits)), bits, count).reshape(shape)

        tensors: list[PackedTensor] = []
        for entry in header["tensors"]:
            shape, scale, bits, chosen = tuple(entry["shape"]), entry["scale"], most, None
            if scale is None:
                scale = np.frombuffer(rest.read(4 * shape[0]), dtype="<f4").astype(np.float32)
            if entry["chosen"]:
                bits = int(entry["chosen"]).bit_length() - 1
                chosen = codes(most, (np.size(scale), 1 << bits))
            tensors.append(
                PackedTensor(
                    name=entry["name"], codes=codes(bits, shape), scale=scale, chosen=chosen
                )
            )
        if rest.read(1):
            raise ValueError("bytes are left over")
        return cls(
            tensors=tuple(tensors), levels=tuple(header["levels"]), note=dict(header["note"])
        )


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
        scales: of the levels. "channel" searches a scale for each output of a layer (index of the first axis, of at
            least 16 weights). From 4 bits on levels are integers in a row, one of them 0; with fewer bits each channel
            chooses among the 16 integers of 4 bits. "tensor" takes even levels from minus to plus the largest weight.
        note: kept in the file.
    Raises:
        ParameterError: bits out of range, values that are not finite.
    Guarantees: with "tensor" no weight moves by more than max |w| / (2**bits - 1), but for rounding to float32. With
        "channel" the scale is that of least error among those tried, each weight's squared error counted
        by the mean square of all weights of its input: weights of inputs that never move are noise, and say nothing
        about where levels should lie.
    Edge cases: a channel of zeros stays zero.
    Source: docs/training.md, "Which method".
    """
    check_count("bits", bits, most=8)
    check_choice("scales", scales, ("channel", "tensor"))
    tensors: list[PackedTensor] = []
    for name, values in weights.items():
        array = np.asarray(values, dtype=np.float64)
        if not np.isfinite(array).all():
            raise ParameterError("weights", name, "every weight must be finite")
        tensors.append((_by_channel if scales == "channel" else _evenly)(name, array, bits))
    levels = (
        np.linspace(-1.0, 1.0, 2**bits) if scales == "tensor" else integers(max(bits, LEAST_BITS))
    )
    return PackedModel(tensors=tuple(tensors), levels=tuple(levels.tolist()), note=dict(note or {}))


def _evenly(name: str, array: Floats, bits: int) -> PackedTensor:
    """A tensor on even levels between its extremes of magnitude, as floats of 32 bits and never 0."""
    top = 2**bits - 1
    scale = float(np.float32(max(np.abs(array).max(initial=0.0), np.finfo(np.float32).tiny)))
    codes = np.clip(np.rint((array / scale + 1) / 2 * top), 0, top).astype(np.uint8)
    return PackedTensor(name=name, codes=codes, scale=scale)


def pack_codes(
    names: Sequence[str],
    codes: Sequence[Codes],
    *,
    bounds: Sequence[float],
    levels: Sequence[float],
    note: JsonObject,
) -> PackedModel:
    """A model whose weights are on levels already: their codes as they are."""
    tensors = tuple(
        PackedTensor(name=name, codes=code, scale=bound)
        for name, code, bound in zip(names, codes, bounds, strict=True)
    )
    return PackedModel(tensors=tensors, levels=tuple(levels), note=dict(note))
