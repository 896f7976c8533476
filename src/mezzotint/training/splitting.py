"""Batches taken apart into records and put together again; batches without records; made-up ones."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from mezzotint.core.errors import ParameterError
from mezzotint.training.models import torch

_EXTREME = -3.0
"""Floats of an extreme record are those of another times this."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """A few records, of which batches in any order and choice are made.

    Arguments:
        count: of the records.
        select: makes a batch of the records at positions; the one at the second argument, if there
            is one, with extreme values.
    """

    count: int
    select: Callable[[Sequence[int], int | None], Any]

    def batch(self, positions: Sequence[int] | None = None, *, extreme: int | None = None) -> Any:
        """A batch of the records at these positions, all in order by default."""
        chosen = range(self.count) if positions is None else positions
        return self.select(list(chosen), extreme)


def records_of(batch: Any, collate: Callable[[list[Any]], Any] | None) -> Records:
    """The records of a batch, or those of a list that `collate` makes batches of.

    Raises:
        ParameterError: a batch that holds no tensor, or a list that is none with `collate`.
    """
    if collate is None:
        count = _first_length(batch)

        def select(positions: Sequence[int], extreme: int | None) -> Any:
            return _selected(batch, count, positions, extreme)

        return Records(count=count, select=select)
    if not isinstance(batch, list):
        raise ParameterError("batch", type(batch).__name__, "with collate, give a list of records")

    def collated(positions: Sequence[int], extreme: int | None) -> Any:
        records = [copy.deepcopy(batch[position]) for position in positions]
        if extreme is not None:
            records[extreme] = _selected(records[extreme], -1, [], 0)
        return collate(records)

    return Records(count=len(batch), select=collated)


def _first_length(batch: Any) -> int:
    tensors = [tensor for tensor in tensors_of(batch) if tensor.dim()]
    if not tensors:
        raise ParameterError("batch", type(batch).__name__, "it holds no tensor; give collate")
    return len(tensors[0])


def tensors_of(batch: Any) -> list[torch.Tensor]:
    """All tensors of a batch, in tuples, lists and mappings."""
    if isinstance(batch, torch.Tensor):
        return [batch]
    if isinstance(batch, Mapping):
        return [tensor for value in batch.values() for tensor in tensors_of(value)]
    if isinstance(batch, list | tuple):
        return [tensor for value in batch for tensor in tensors_of(value)]
    return []


def rebuilt(batch: Any, values: Sequence[Any]) -> Any:
    """A tuple, named tuple or list of the same kind with other values."""
    if hasattr(batch, "_fields"):
        return type(batch)(*values)
    return type(batch)(values)


def _selected(batch: Any, count: int, positions: Sequence[int], extreme: int | None) -> Any:
    """The records at positions of everything that has `count` of them; -1 scales a single record."""
    if isinstance(batch, torch.Tensor):
        if count >= 0 and (batch.dim() == 0 or len(batch) != count):
            return batch
        chosen = batch.clone() if count < 0 else batch[list(positions)]
        if extreme is not None and chosen.is_floating_point():
            rows = chosen if count < 0 else chosen[extreme]
            rows *= _EXTREME
        return chosen
    if isinstance(batch, Mapping):
        values = {key: _selected(value, count, positions, extreme) for key, value in batch.items()}
        return type(batch)(values) if type(batch) is not dict else values  # type: ignore[call-arg]
    if isinstance(batch, list | tuple):
        if count >= 0 and len(batch) == count and not tensors_of(batch):
            return rebuilt(batch, [batch[position] for position in positions])
        return rebuilt(batch, [_selected(value, count, positions, extreme) for value in batch])
    return batch


def empty_batch(batch: Any) -> Any:
    """What a batch looks like that holds no record, from a batch of one.

    Tensors keep their dtype and all sizes but the first, which becomes 0; a list or tuple of one
    value that is none of these becomes empty; tuples, named tuples, lists and mappings are followed.

    Raises:
        ParameterError: anything else: its way to hold nothing is not known.
    """
    if isinstance(batch, torch.Tensor):
        return batch.new_empty((0, *batch.shape[1:]))
    if isinstance(batch, torch.nn.utils.rnn.PackedSequence) or not isinstance(
        batch, Mapping | list | tuple
    ):
        remedy = (
            "Poisson batches may be empty, and how this holds no record is not known; let collate_fn "
            "return tensors, and tuples, named tuples, lists or mappings of them"
        )
        raise ParameterError("loader", f"batches of {type(batch).__name__}", remedy)
    if isinstance(batch, Mapping):
        values = {key: empty_batch(value) for key, value in batch.items()}
        return values if type(batch) is dict else type(batch)(values)  # type: ignore[call-arg]
    if len(batch) == 1 and not isinstance(batch[0], torch.Tensor | Mapping | list | tuple):
        return rebuilt(batch, [])
    return rebuilt(batch, [empty_batch(value) for value in batch])


MADE_UP = 6
"""Records of a made-up batch."""


def made_up_batch(batch: Any, generator: torch.Generator) -> Any:
    """A batch of made-up records that looks like a batch of one: normal floats, integers 0 and 1.

    Returns: the batch; None where it holds anything but tensors.
    """
    if isinstance(batch, torch.Tensor):
        shape = (MADE_UP, *batch.shape[1:])
        if batch.is_floating_point():
            return torch.randn(shape, generator=generator).to(batch.device, batch.dtype)
        if batch.is_complex():
            return None
        return torch.randint(2, shape, generator=generator).to(batch.device, batch.dtype)
    if isinstance(batch, Mapping):
        made = {key: made_up_batch(value, generator) for key, value in batch.items()}
        return None if any(value is None for value in made.values()) else made
    if isinstance(batch, list | tuple) and batch:
        parts = [made_up_batch(value, generator) for value in batch]
        return None if any(part is None for part in parts) else rebuilt(batch, parts)
    return None
