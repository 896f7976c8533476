"""Flower apps made of a `client_fn` (NumPyClient), behind the interface of train and evaluate
functions.

Most older apps are of this kind. Flower hands them messages whose records have other names and
whose arrays have numbers in place of names; a mod sees the messages before that.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict

from mezzotint.core.errors import ParameterError
from mezzotint.federated.flower_records import arrays_of, kind_of

Train = Callable[[Message, Context], Message]

EXAMPLES = "num-examples"

_WORDS = {"train": "fit", "evaluate": "evaluate"}
"""Kind of message -> beginning of its records' names in such an app."""


def is_client_fn(call_next: Train) -> bool:
    """Whether the next call is that of an app made of a `client_fn`: if the asking mod is the app's
    last one.
    """
    return "ClientApp.__init__" in getattr(call_next, "__qualname__", "")


def adapted(call_next: Train) -> Train:
    """Such an app as a function of a message with one record of arrays by name, and back.

    Raises (when called): ParameterError if the app returns another number of arrays than the model
    has.
    """

    def answer(message: Message, context: Context) -> Message:
        word = _WORDS[kind_of(message)]
        arrays = arrays_of(message)
        older = copy.copy(message)
        older.content = _older_content(message, arrays, word)
        reply = call_next(older, context)
        if reply.has_error():
            return reply
        array_names = list(arrays)
        newer = _newer_content(reply.content, array_names, word)
        return Message(newer, reply_to=message)

    return answer


def _older_content(message: Message, arrays: ArrayRecord, word: str) -> RecordDict:
    """What a `client_fn` app takes: arrays by number, and one record of settings."""
    numbered: dict[str, Array] = {}
    for index, array in enumerate(arrays.values()):
        numbered[str(index)] = array
    settings: dict[str, Any] = {}
    for record in message.content.config_records.values():
        settings |= record
    content = RecordDict()
    content[f"{word}ins.parameters"] = ArrayRecord(numbered)
    content[f"{word}ins.config"] = ConfigRecord(settings)
    return content


def _newer_content(content: RecordDict, names: list[str], word: str) -> RecordDict:
    """What a train or evaluate function returns, from the result of `fit` or `evaluate`."""
    records = content.metric_records
    example_record = records[f"{word}res.num_examples"]
    reported = content.config_records[f"{word}res.metrics"]
    metrics = MetricRecord()
    for metric, number in reported.items():
        if isinstance(number, int | float):
            metrics[metric] = number
    metrics[EXAMPLES] = float(str(example_record["num_examples"]))
    if word == "evaluate":
        loss_record = records["evaluateres.loss"]
        metrics["loss"] = float(str(loss_record["loss"]))
        return RecordDict({"metrics": metrics})
    trained = content.array_records["fitres.parameters"]
    if len(trained) != len(names):
        raise ParameterError(
            "parameters", f"{len(trained)} arrays", f"the model has {len(names)}: return them all"
        )
    arrays = ArrayRecord()
    for array_name, serialized in zip(names, trained.values(), strict=True):
        # Serialized arrays lack types and shapes of their own.
        arrays[array_name] = Array(serialized.numpy())
    return RecordDict({"arrays": arrays, "metrics": metrics})
