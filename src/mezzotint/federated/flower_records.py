"""Flower's records: names of records and fields, and vectors in and out of arrays.

A model is an ArrayRecord, and its *parameters* are the arrays that a gradient moves: floating-point
arrays other than running statistics. Everything else (counters, masks, the means and variances of
batch normalization) stays with the server unchanged: a counter would use up the clipping norm that
the weights need, and a running mean of a client's inputs is a statistic of its data that no update
needs.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Mapping
from typing import Any, final

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

from mezzotint.core.errors import ParameterError
from mezzotint.core.types import AnyArray, FloatArray

RECORD = "mezzotint"
"""Record of the protocol's messages, and of the client's state."""


@final
class Key:
    """Fields of that record, and their special values."""

    STAGE = "stage"
    PAYLOAD = "payload"
    ENCODING = "encoding"
    RETURNS = "returns"
    NAME = "name"
    REFUSED = "refused"
    REASON = "reason"
    NEXT = "next"
    NEXT_REASONS = "next-reasons"
    """The invitations to further rounds, in a message of "deal" or of a committee's last stage; in
    its answer the dealings, and of each the reason why there is none.
    """
    METRICS = "metrics"
    """What evaluating clients shall return; training ones return "weights" or an "update"."""
    CARD = "card"
    """Stage before all rounds: a client identifies itself."""


_LONGEST = 500  # most characters kept of a client's text

log = logging.getLogger("flwr").log
"""Flower's own log, by its name: the function behind it has moved between releases."""

BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
"""Last parts of the names of running statistics in PyTorch's normalization layers."""


def is_parameter(name: str, dtype: str) -> bool:
    """Whether an array is part of the update: floating-point, and by its name not a running
    statistic; ParameterError for numbers that would be left out in silence.
    """
    if name.rpartition(".")[2] in BUFFERS:
        return False
    try:
        kind = np.dtype(dtype).kind
    except TypeError:  # types of other libraries, such as bfloat16
        kind = "V"
    if kind in "cV":
        remedy = (
            f"{dtype} is not summed; make it float32, and complex numbers two arrays: real and "
            "imaginary parts"
        )
        raise ParameterError("arrays", name, remedy)
    return kind == "f"


def parameters(arrays: ArrayRecord) -> int:
    """The number of parameters; ParameterError if there are none."""
    parameter_shapes = shapes(arrays)
    if not parameter_shapes:
        raise ParameterError("arrays", list(arrays), "the model has no floating-point parameters")
    return sum(math.prod(shape) for _, shape in parameter_shapes)


def flatten(arrays: ArrayRecord) -> FloatArray:
    """All parameters of a record as one vector; ParameterError if there are none."""
    parameters(arrays)  # refuses a model without any
    flat_arrays: list[AnyArray] = []
    for array_name, array in arrays.items():
        if is_parameter(array_name, array.dtype):
            flat_arrays.append(array.numpy().ravel())
    return np.concatenate(flat_arrays, dtype=np.float64)


def unflatten(vector: FloatArray, like: ArrayRecord) -> ArrayRecord:
    """A record with the names, shapes and types of `like`: parameters from the vector, all else as
    in `like`.
    """
    filled: dict[str, Array] = {}
    offset = 0
    for array_name, array in like.items():
        if not is_parameter(array_name, array.dtype):
            filled[array_name] = array
            continue
        end = offset + math.prod(array.shape)
        values = vector[offset:end].astype(array.dtype)
        values = values.reshape(array.shape)
        # Not ascontiguousarray, which turns a scalar into an array of length 1.
        filled[array_name] = Array(np.asarray(values, order="C"))
        offset = end
    return ArrayRecord(filled)


def shapes(arrays: ArrayRecord) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes of the parameters, in order."""
    parameter_shapes: list[tuple[str, tuple[int, ...]]] = []
    for array_name, array in arrays.items():
        if is_parameter(array_name, array.dtype):
            shape = tuple(array.shape)
            parameter_shapes.append((array_name, shape))
    return parameter_shapes


def protocol_record(message: Message) -> ConfigRecord | None:
    """The protocol's record of a message; None when it carries none."""
    if not message.has_content():
        return None
    return message.content.config_records.get(RECORD)


def kind_of(message: Message) -> str:
    """The kind of a message, by Flower's name, without the function that it asks."""
    return message.metadata.message_type.partition(".")[0]


def further_answers(record: ConfigRecord | None, count: int) -> list[ConfigRecord]:
    """The answers to so many invitations to further rounds, as if each had come alone; none where
    the client refused the whole message.
    """
    if record is None or Key.NEXT not in record:
        return []
    dealings = record[Key.NEXT]
    reasons = record.get(Key.NEXT_REASONS)
    if not isinstance(dealings, list) or not isinstance(reasons, list):
        dealings = []
        reasons = []
    if not len(dealings) == len(reasons) == count:
        return [ConfigRecord() for _ in range(count)]
    answers: list[ConfigRecord] = []
    for dealing, reason in zip(dealings, reasons, strict=True):
        answer = ConfigRecord({Key.PAYLOAD: dealing})
        if reason:
            refusal_name, _, reason_text = str(reason).partition(": ")
            answer = ConfigRecord({Key.REFUSED: refusal_name, Key.REASON: reason_text})
        answers.append(answer)
    return answers


def one_line(text: object) -> str:
    """A client's text, made fit for a log: no line breaks or control characters, and not too
    long.
    """
    words = " ".join(str(text).split())
    printable = filter(str.isprintable, words[:_LONGEST])
    return "".join(printable)


def task_digest(content: RecordDict) -> bytes:
    """SHA-256 of a client's task: model, configuration, and what it shall return.

    Of the protocol's own record only the last counts: its payload differs between clients.
    """
    digest = hashlib.sha256()

    def add(*parts: object) -> None:
        for value in parts:  # bytes may equal the text of another value: each has a type mark
            encoded = b"t" + repr(value).encode()
            if isinstance(value, bytes):
                encoded = b"b" + value
            length = len(encoded).to_bytes(8, "big")
            digest.update(length + encoded)

    for record_name in sorted(content):
        record = content[record_name]
        counted_fields = 0
        if record_name != RECORD:
            counted_fields = len(record)
        add(type(record).__name__, record_name, counted_fields)
        if isinstance(record, ArrayRecord):
            # In their order, which is that of the update's coordinates.
            for array_name, array in record.items():
                shape = tuple(array.shape)
                add(array_name, array.dtype, shape, array.stype, array.data)
        elif record_name == RECORD:
            add(record.get(Key.RETURNS))
        else:
            for field_name in sorted(record):
                value = record[field_name]
                add((field_name, type(value).__name__, value))
    return digest.digest()


def request(node: int, kind: str, values: Mapping[str, Any], task: Mapping[str, Any]) -> Message:
    """A message to a node, of this kind of Flower's, with the protocol's record and the task's."""
    record = ConfigRecord(dict(values))
    content = RecordDict({RECORD: record, **task})
    return Message(content, message_type=kind, dst_node_id=node)


def reply(message: Message, values: dict[str, Any]) -> Message:
    """An answer that carries only the protocol's record."""
    record = ConfigRecord(values)
    content = RecordDict({RECORD: record})
    return Message(content, reply_to=message)


def arrays_of(message: Message) -> ArrayRecord:
    """The only record of arrays in a message; ParameterError if there is none, or more than one."""
    candidates = list(message.content.array_records.values())
    if len(candidates) != 1:
        raise ParameterError(
            "arrays",
            f"{len(candidates)} records",
            "a train function returns exactly one ArrayRecord",
        )
    return candidates[0]
