"""Encodings in files and in messages."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import parse_json, read_object
from mezzotint.core.mechanism import Mechanism
from mezzotint.families.noise import IntegerNoise
from mezzotint.federated.encoding.base import Encoding, canonical
from mezzotint.federated.encoding.fixed import FixedPointEncoding
from mezzotint.federated.encoding.noise import NoiseEncoding
from mezzotint.federated.encoding.table import TableEncoding

LARGEST = 1 << 24
"""Bytes of a description; a longer one is refused before it fills the memory."""


def encoding_from(values: Mapping[str, Any]) -> Encoding:
    """The encoding of `as_dict`.

    Raises:
        ParameterError: an unknown kind. FileFormatError: a mechanism that is none, a field that is missing.
    """
    makers = {"table": _table, "fixed": _fixed, "noise": _noise}
    kind = values.get("kind")
    if kind not in makers:
        raise ParameterError("encoding", kind, f"this version knows {', '.join(makers)}")
    try:
        return makers[kind](values)
    except (KeyError, TypeError, OverflowError) as error:
        raise FileFormatError(f"encoding of kind {kind!r}: damaged ({error})") from None


def _table(values: Mapping[str, Any]) -> Encoding:
    mechanism = Mechanism.from_json(json.dumps(values["mechanism"]))
    return TableEncoding(mechanism=mechanism, l2_norm=values["l2_norm"], seed=int(values["seed"]))


def _fixed(values: Mapping[str, Any]) -> Encoding:
    return FixedPointEncoding(clip=values["clip"], grid_bits=values["grid_bits"], l2_norm=values["l2_norm"])


def _noise(values: Mapping[str, Any]) -> Encoding:
    weights = np.array(values["weights"], dtype=np.int64)
    offsets = int(values["first"]) + np.arange(weights.size, dtype=np.int64)
    return NoiseEncoding(
        noise=IntegerNoise(offsets=offsets, weights=weights, truncated_mass=0.0),
        l2_norm=values["l2_norm"],
        granularity=values["granularity"],
        modulus_bits=int(values["modulus_bits"]),
        adds=values["adds"],
        seed=int(values["seed"]),
        name=str(values["name"]),
    )


def load_encoding(path: Path, *, l2_norm: float | None = None) -> Encoding:
    """An encoding's description, or a mechanism file (then with the norm given).

    Raises:
        FileFormatError: neither. ParameterError: a table that cannot be summed.
    """
    try:
        values = read_object(path)
    except FileFormatError as error:
        raise FileFormatError(f"{path.name}: no mechanism file ({error})") from None
    if "kind" in values:
        return encoding_from(values)
    return TableEncoding(mechanism=Mechanism.load(path), l2_norm=l2_norm)


def packed(encoding: Encoding) -> bytes:
    """The description as it travels."""
    return zlib.compress(canonical(encoding.as_dict()).encode(), 9)


def unpacked(data: bytes) -> Encoding:
    """The encoding of `packed`.

    Raises:
        FileFormatError: anything else, or more than `LARGEST` bytes.
    """
    try:
        reader = zlib.decompressobj()
        text = reader.decompress(data, LARGEST)
        values = parse_json(text, name="encoding")
        if not reader.eof or not isinstance(values, dict):
            raise ValueError("no description, or one that is too long")
    except (zlib.error, ValueError) as error:
        raise FileFormatError(f"encoding: damaged ({error})") from None
    return encoding_from(values)
