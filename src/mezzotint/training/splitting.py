"""Batches taken apart into records and put together again; batches without records; made-up
ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, final

from mezzotint.core.errors import ParameterError
from mezzotint.training.models import Tensor, torch

_EXTREME = -3.0
"""Floats of an extreme record are those of another times this."""


@final
@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which records a batch is made of.

    Arguments:
        positions: of the records, in order.
        extreme: index of the chosen record whose floats become extreme, if any.
    """

    positions: list[int]
    extreme: int | None


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Records:
    """A few records, of which batches in any order and choice are made.

    Arguments:
        count: of the records.
        select: makes a batch of a choice.
    """

    count: int
    select: Callable[[Choice], Any]

    def batch(self, positions: Sequence[int] | None = None, *, extreme: int | None = None) -> Any:
        """A batch of the records at these positions, all in order by default."""
        if positions is None:
            positions = range(self.count)
        choice = Choice(positions=list(positions), extreme=extreme)
        return self.select(choice)


def records_of(batch: Any, collate: Callable[[list[Any]], Any] | None) -> Records:
    """The records of a batch, or those of a list that `collate` makes batches of.

    Raises:
        ParameterError: a batch that holds no tensor, or a list that is none with `collate`.
    """
    batch_type = type(batch).__name__
    if collate is None:
        count = length_of(batch)
        if count is None:
            raise ParameterError("batch", batch_type, "it holds no tensor; give collate")
        return Records(count=count, select=partial(_selected, batch, count))
    if not isinstance(batch, list):
        raise ParameterError("batch", batch_type, "with collate, give a list of records")

    def collated(choice: Choice) -> Any:
        records = [copy.deepcopy(batch[position]) for position in choice.positions]
        if choice.extreme is not None:
            records[choice.extreme] = _extreme(records[choice.extreme])
        return collate(records)

    return Records(count=len(batch), select=collated)


def length_of(batch: Any) -> int | None:
    """Rows of the first tensor of a batch that has any; None where none has."""
    for tensor in tensors_of(batch):
        if tensor.dim():
            return len(tensor)
    return None


_Tree = Mapping | list | tuple
"""What is followed in batches."""


def _entries(batch: Any) -> list[Any]:
    if isinstance(batch, Mapping):
        return list(batch.values())
    return list(batch)


def tensors_of(batch: Any) -> list[Tensor]:
    """All tensors of a batch, in tuples, lists and mappings."""
    if isinstance(batch, Tensor):
        return [batch]
    tensors: list[Tensor] = []
    if isinstance(batch, _Tree):
        for entry in _entries(batch):
            tensors += tensors_of(entry)
    return tensors


def rebuilt(batch: Any, values: Sequence[Any]) -> Any:
    """A tuple, named tuple, list or mapping of the same kind with other values."""
    if isinstance(batch, Mapping):
        entries: Any = dict(zip(batch, values, strict=True))
        if type(batch) is dict:
            return entries
        return type(batch)(entries)  # type: ignore[call-arg]
    if hasattr(batch, "_fields"):
        return type(batch)(*values)
    return type(batch)(values)


def _selected(batch: Any, count: int, choice: Choice) -> Any:
    """The chosen records of everything that has `count` of them."""
    if isinstance(batch, Tensor):
        return _selected_rows(batch, count, choice)
    if not isinstance(batch, _Tree):
        return batch
    is_list = not isinstance(batch, Mapping)
    if is_list and len(batch) == count and not tensors_of(batch):
        return rebuilt(batch, [batch[position] for position in choice.positions])
    entries = [_selected(entry, count, choice) for entry in _entries(batch)]
    return rebuilt(batch, entries)


def _selected_rows(tensor: Tensor, count: int, choice: Choice) -> Tensor:
    """The chosen rows of a tensor that has `count` of them."""
    if tensor.dim() == 0 or len(tensor) != count:
        return tensor
    chosen_rows = tensor[choice.positions]
    if choice.extreme is not None and chosen_rows.is_floating_point():
        chosen_rows[choice.extreme] *= _EXTREME
    return chosen_rows


def _extreme(record: Any) -> Any:
    """A single record whose floats are extreme."""
    if isinstance(record, _Tree):
        entries = map(_extreme, _entries(record))
        return rebuilt(record, list(entries))
    if isinstance(record, Tensor) and record.is_floating_point():
        return record * _EXTREME
    return record


def empty_batch(single: Any, double: Any) -> Any:
    """What a batch looks like that holds no record, from a batch of one and a batch of two.

    The size of a tensor that is 1 in the first and 2 in the second becomes 0; tensors of the same
    size in both hold zeros; lists and tuples with a value for each record become empty; tuples,
    named tuples, lists and mappings are followed.

    Raises:
        ParameterError: anything else: its way to hold nothing is not known.
    """
    if isinstance(single, Tensor):
        return _empty_tensor(single, double)
    packed = isinstance(single, torch.nn.utils.rnn.PackedSequence)
    if packed or not isinstance(single, _Tree):
        remedy = (
            "Poisson batches may be empty, and how this holds no record is not known; let "
            "collate_fn return tensors, and tuples, named tuples, lists or mappings of them"
        )
        raise ParameterError("loader", f"batches of {type(single).__name__}", remedy)
    if isinstance(single, Mapping):
        double = {entry_name: double[entry_name] for entry_name in single}
    elif len(single) == 1 and len(double) == 2:
        return rebuilt(single, [])
    pairs = zip(_entries(single), _entries(double), strict=True)
    entries = [empty_batch(*pair) for pair in pairs]
    return rebuilt(single, entries)


def _empty_tensor(single: Tensor, double: Tensor) -> Tensor:
    if single.shape == double.shape:
        return torch.zeros_like(single)
    empty_shape: list[int] = []
    changed_count = 0
    for sizes in zip(single.shape, double.shape, strict=True):
        single_size, double_size = sizes
        changed_count += single_size != double_size
        empty_size = single_size
        if sizes == (1, 2):
            empty_size = 0
        empty_shape.append(empty_size)
    if changed_count != 1 or 0 not in empty_shape:
        raise ParameterError(
            "loader",
            "tensors of other sizes",
            "one size of every tensor must be the number of records",
        )
    return single.new_empty(empty_shape)


MADE_UP = 6
"""Records of a made-up batch."""


def made_up_batch(empty: Any, generator: torch.Generator) -> Any:
    """A batch of made-up records that looks like a batch of none: normal floats, integers 0 and 1.

    Returns: the batch; None where it holds anything but tensors with records first.
    """
    if isinstance(empty, Tensor):
        return _made_up_rows(empty, generator)
    if isinstance(empty, Mapping):
        empty = dict(empty)
    elif not isinstance(empty, list | tuple) or not empty:
        return None
    made_up = [made_up_batch(entry, generator) for entry in _entries(empty)]
    if any(entry is None for entry in made_up):
        return None
    return rebuilt(empty, made_up)


def _made_up_rows(empty: Tensor, generator: torch.Generator) -> Tensor | None:
    if empty.dim() == 0 or len(empty) or empty.is_complex():
        return None
    shape = (MADE_UP, *empty.shape[1:])
    if empty.is_floating_point():
        values = torch.randn(shape, generator=generator)
    else:
        values = torch.randint(2, shape, generator=generator)
    return values.to(empty.device, empty.dtype)
