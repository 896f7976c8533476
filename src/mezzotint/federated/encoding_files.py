"""Encodings from their descriptions, and back, in files and messages.

A description is what `as_dict` returns: plain values.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, cast

from mezzotint.core.arguments import (
    with_old_names,
)
from mezzotint.core.errors import FileFormatError, MezzotintError, ParameterError
from mezzotint.core.files import parse_json, read_object
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.core.types import MAX_LEVELS, AnyPath
from mezzotint.federated.encoding import (
    NOISE,
    Encoding,
    FixedPointEncoding,
    GaussianEncoding,
    TableEncoding,
    canonical,
    encoding_of_today,
)
from mezzotint.federated.wrapped_encodings import MetricsEncoding, WeightedEncoding
from mezzotint.vectors.rotation import ROTATION

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


LARGEST = 1 << 24
"""Most bytes of a description; a longer one is refused before it fills the memory."""

MOST_PARTS = 4 * MAX_LEVELS
"""Most lists, objects and fields of a description: millions take seconds to read, and no table has
that many rows.
"""


_KINDS: dict[str, type[Encoding]] = {
    "table": TableEncoding,
    "fixed": FixedPointEncoding,
    "gaussian": GaussianEncoding,
    "weighted": WeightedEncoding,
    "metrics": MetricsEncoding,
}
_WHOLE = ("seed", "modulus_bits", "most_examples")


def encoding_from(values: JsonObject) -> Encoding:
    """The encoding of `as_dict`; ParameterError for an unknown kind, FileFormatError for a damaged
    description.
    """
    if not isinstance(values, dict):
        raise FileFormatError("encoding: damaged (an object of fields is needed)")
    values = encoding_of_today(values)
    encoding_kind = str(values.get("kind"))
    if encoding_kind not in _KINDS:
        raise ParameterError("encoding", encoding_kind, f"this version knows {', '.join(_KINDS)}")
    try:
        if encoding_kind == "gaussian":
            _check_method("noise", values["name"], NOISE)
        if encoding_kind == "gaussian" or (
            encoding_kind == "table" and values["clip_norm"] is not None
        ):
            rotation = values.get("rotation", "one transform after padding with zeros")
            _check_method("rotation", rotation, ROTATION)
        field_names = [
            declared.name
            for declared in fields(cast("type[DataclassInstance]", _KINDS[encoding_kind]))
        ]
        return _KINDS[encoding_kind](
            **{field_name: _field(field_name, values) for field_name in field_names}
        )
    except MezzotintError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FileFormatError(f"encoding of kind {encoding_kind!r}: damaged ({error})") from None


def _check_method(what: str, described: object, current: str) -> None:
    """Refuse a description of noise, or of a rotation, that this version has not: sums would decode
    to nonsense, and cost something else.
    """
    if described != current:
        shortened = str(described)[:80]
        raise FileFormatError(
            f"encoding: its {what} is {shortened!r}, this version's {current!r}; make it anew"
        )


def _field(name: str, values: JsonObject) -> object:
    """A field of an encoding from its description."""
    value = values[name]
    if name == "inner":
        return encoding_from(value)
    if name == "mechanism":
        return Mechanism.from_json(json.dumps(value))
    if name == "ranges":
        return tuple(
            (str(metric), lowest + 0.0, highest + 0.0) for metric, lowest, highest in value
        )  # text is refused
    if name in _WHOLE:
        return int(value)
    return value


@with_old_names(l2_norm="clip_norm")
def load_encoding(path: AnyPath, *, clip_norm: float | None = None) -> Encoding:
    """The encoding in a file: a description, or a mechanism.

    Arguments:
        path: of a description or a mechanism file.
        clip_norm: clipping norm, for a mechanism file.

    Returns: the encoding that server and clients share.

    Raises:
        FileFormatError: neither of them. ParameterError: a table that cannot be summed.

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
        raise FileFormatError(f"{Path(path).name}: not a mechanism file ({error})") from None
    if "kind" in values:
        return encoding_from(values)
    return TableEncoding(mechanism=Mechanism.load(path), clip_norm=clip_norm)


def packed(encoding: Encoding) -> bytes:
    """The description as sent over the wire."""
    return zlib.compress(canonical(encoding.as_dict()).encode(), 9)


def unpacked(data: bytes) -> Encoding:
    """The encoding of `packed`; FileFormatError for anything else, or above `LARGEST` bytes or
    `MOST_PARTS` parts.
    """
    try:
        reader = zlib.decompressobj()
        document = reader.decompress(data, LARGEST)
        if sum(document.count(mark) for mark in (b"[", b"{", b":")) > MOST_PARTS:
            raise ValueError("it has more lists, objects and fields than an encoding can have")
        values = parse_json(document, name="encoding")
        if not reader.eof or not isinstance(values, dict):
            raise ValueError("no description, or one that is too long")
    except (zlib.error, ValueError) as error:
        raise FileFormatError(f"encoding: damaged ({error})") from None
    encoding = encoding_from(values)
    if len(canonical(encoding.as_dict())) > LARGEST:  # ledgers must be able to read it again
        raise FileFormatError("encoding: damaged (too long when it is written down)")
    return encoding
