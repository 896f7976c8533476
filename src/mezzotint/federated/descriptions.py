"""Encodings in files and messages: from a description, which `as_dict` gives, and back."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from mezzotint.core.errors import FileFormatError, MezzotintError, ParameterError
from mezzotint.core.files import parse_json, read_object
from mezzotint.core.mechanism import MAX_LEVELS, Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.families.noise import IntegerNoise
from mezzotint.federated.encoding import (
    Encoding,
    FixedPointEncoding,
    GaussianEncoding,
    NoiseEncoding,
    TableEncoding,
    canonical,
)
from mezzotint.federated.joined import AdaptiveEncoding, MetricsEncoding, WeightedEncoding
from mezzotint.vectors.rotation import ROTATION

LARGEST = 1 << 24
"""Bytes of a description; a longer one is refused before it fills the memory."""

MOST_PARTS = 4 * MAX_LEVELS
"""Lists, objects and fields of a description; millions of them take seconds to read, and no table has as many rows."""


def encoding_from(values: JsonObject) -> Encoding:
    """The encoding of `as_dict`.

    Raises:
        ParameterError: an unknown kind. FileFormatError: a mechanism that is none, a field that is missing.
    """
    makers: dict[str, Callable[[JsonObject], Encoding]] = {
        "table": _table, "fixed": _fixed, "noise": _noise, "gaussian": _gaussian, **dict.fromkeys(_WRAPPED, _wrapped),
    }  # fmt: skip
    if not isinstance(values, dict):
        raise FileFormatError("encoding: damaged (an object of fields is needed)")
    kind = str(values.get("kind"))
    if kind not in makers:
        raise ParameterError("encoding", kind, f"this version knows {', '.join(makers)}")
    try:
        return makers[kind](values)
    except MezzotintError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FileFormatError(f"encoding of kind {kind!r}: damaged ({error})") from None


def _check_rotation(values: JsonObject) -> None:
    """FileFormatError of a description whose vectors were rotated in another way, which would decode to nonsense."""
    name = values.get("rotation", "one transform after padding with zeros")
    if name != ROTATION:
        raise FileFormatError(f"encoding: its rotation is {name!r}, this version's {ROTATION!r}; make it anew")


def _table(values: JsonObject) -> Encoding:
    if values["l2_norm"] is not None:
        _check_rotation(values)
    mechanism = Mechanism.from_json(json.dumps(values["mechanism"]))
    return TableEncoding(mechanism=mechanism, l2_norm=values["l2_norm"], seed=int(values["seed"]))


def _fixed(values: JsonObject) -> Encoding:
    return FixedPointEncoding(clip=values["clip"], grid_bits=values["grid_bits"], l2_norm=values["l2_norm"])


def _modular(values: JsonObject) -> JsonObject:
    """What all descriptions of noise modulo M say."""
    _check_rotation(values)
    kept = {name: values[name] for name in ("l2_norm", "granularity")}
    whole = {name: int(values[name]) for name in ("modulus_bits", "seed")}
    return kept | whole | {"name": str(values["name"])}


def _noise(values: JsonObject) -> Encoding:
    if len(values["weights"]) > MAX_LEVELS:
        raise ValueError(f"{len(values['weights'])} weights, above {MAX_LEVELS}")
    weights = np.array(values["weights"], dtype=np.int64)
    offsets = int(values["first"]) + np.arange(weights.size, dtype=np.int64)
    noise = IntegerNoise(offsets=offsets, weights=weights, truncated_mass=0.0)
    return NoiseEncoding(noise=noise, adds=values["adds"], **_modular(values))


def _gaussian(values: JsonObject) -> Encoding:
    return GaussianEncoding(deviation=values["deviation"], bands=int(values.get("bands", 1)), **_modular(values))


def _wrapped(values: JsonObject) -> Encoding:
    return _WRAPPED[values["kind"]].made_of(encoding_from(values["inner"]), values)


_WRAPPED = {"weighted": WeightedEncoding, "adaptive": AdaptiveEncoding, "metrics": MetricsEncoding}


def load_encoding(path: Path, *, l2_norm: float | None = None) -> Encoding:
    """An encoding's description, or a mechanism file (then with the norm given).

    Arguments:
        path: of a description or a mechanism file.
        l2_norm: clipping norm, for a mechanism file.

    Returns: the encoding that server and clients share.

    Raises:
        FileFormatError: neither. ParameterError: a table that cannot be summed.

    Example:
        >>> from pathlib import Path
        >>> mz.families.rqm(levels=16, extension=1.0, q=0.42).save("m.json")
        >>> encoding = mz.federated.load_encoding(Path("m.json"))
        >>> type(encoding).__name__
        'TableEncoding'
    """
    try:
        values = read_object(path)
    except FileFormatError as error:
        raise FileFormatError(f"{path.name}: no mechanism file ({error})") from None
    if "kind" in values:
        return encoding_from(values)
    return TableEncoding(mechanism=Mechanism.load(path), l2_norm=l2_norm)


def packed(encoding: Encoding) -> bytes:
    """The description as sent over the wire."""
    return zlib.compress(canonical(encoding.as_dict()).encode(), 9)


def unpacked(data: bytes) -> Encoding:
    """The encoding of `packed`.

    Raises:
        FileFormatError: anything else, more than `LARGEST` bytes, also as written down again, or `MOST_PARTS` parts.
    """
    try:
        reader = zlib.decompressobj()
        text = reader.decompress(data, LARGEST)
        if sum(text.count(mark) for mark in (b"[", b"{", b":")) > MOST_PARTS:
            raise ValueError("it has more lists, objects and fields than an encoding can have")
        values = parse_json(text, name="encoding")
        if not reader.eof or not isinstance(values, dict):
            raise ValueError("no description, or one that is too long")
    except (zlib.error, ValueError) as error:
        raise FileFormatError(f"encoding: damaged ({error})") from None
    encoding = encoding_from(values)
    if len(canonical(encoding.as_dict())) > LARGEST:  # what a ledger notes has to be read again
        raise FileFormatError("encoding: damaged (too long when it is written down)")
    return encoding
