"""What this room puts into Flower's records: names of records and fields, and vectors in and out of arrays."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from mezzotint.core.errors import ParameterError

RECORD = "mezzotint"
"""Record of the protocol's messages, and of the client's state."""

STAGE, PAYLOAD, ENCODING, RETURNS, NAME = "stage", "payload", "encoding", "returns", "name"
REFUSED, REASON = "refused", "reason"


def flatten(arrays: ArrayRecord) -> npt.NDArray[np.float64]:
    """All arrays of a record one after the other, as one vector."""
    parts = [array.numpy().astype(np.float64).reshape(-1) for array in arrays.values()]
    if not parts:
        raise ParameterError("arrays", "none", "the model has no arrays")
    return np.concatenate(parts)


def unflatten(vector: npt.NDArray[np.float64], like: ArrayRecord) -> ArrayRecord:
    """A record with the names, shapes and types of `like`, filled from the vector."""
    filled: dict[str, Array] = {}
    place = 0
    for name, array in like.items():
        shape, size = array.shape, int(np.prod(array.shape, dtype=np.int64))
        part = vector[place : place + size].reshape(shape)
        filled[name] = Array(np.ascontiguousarray(part.astype(array.dtype)))
        place += size
    return ArrayRecord(filled)


def shapes(arrays: ArrayRecord) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes, in order."""
    return [(name, tuple(array.shape)) for name, array in arrays.items()]


def protocol_record(message: Message) -> ConfigRecord | None:
    """The protocol's record of a message; None when it carries none."""
    return message.content.config_records.get(RECORD) if message.has_content() else None


def reply(message: Message, values: dict[str, Any]) -> Message:
    """An answer that carries the protocol's record alone."""
    return Message(RecordDict({RECORD: ConfigRecord(values)}), reply_to=message)


def only(records: Iterable[ArrayRecord]) -> ArrayRecord:
    """The one record of arrays.

    Raises:
        ParameterError: none, or more than one.
    """
    found = list(records)
    if len(found) != 1:
        raise ParameterError("arrays", f"{len(found)} records", "a train function returns exactly one ArrayRecord")
    return found[0]
