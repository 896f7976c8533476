"""Batches taken apart into records and put together again; batches without records; made-up
ones.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from mezzotint.core.errors import ParameterError
from mezzotint.training.models import Tensor, torch

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
        if positions is None:
            positions = range(self.count)
        return self.select(list(positions), extreme)


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
    if isinstance(batch, _Tree):
        return [tensor for entry in _entries(batch) for tensor in tensors_of(entry)]
    return []


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


def _selected(batch: Any, count: int, positions: Sequence[int], extreme: int | None) -> Any:
    """The records at positions of everything that has `count` of them; -1 scales a single
    record.
    """
    if isinstance(batch, Tensor):
        return _selected_rows(batch, count, positions, extreme)
    if isinstance(batch, list | tuple) and not tensors_of(batch) and len(batch) == count:
        return rebuilt(batch, [batch[position] for position in positions])

    def selected(entry: Any) -> Any:
        return _selected(entry, count, positions, extreme)

    if isinstance(batch, _Tree):
        return rebuilt(batch, list(map(selected, _entries(batch))))
    return batch


def _selected_rows(
    tensor: Tensor, count: int, positions: Sequence[int], extreme: int | None
) -> Tensor:
    """The rows at positions of a tensor that has `count` of them; all of a single record for -1."""
    if count < 0:
        record = tensor.clone()
        if extreme is not None and record.is_floating_point():
            record *= _EXTREME
        return record
    if tensor.dim() == 0 or len(tensor) != count:
        return tensor
    chosen_rows = tensor[list(positions)]
    if extreme is not None and chosen_rows.is_floating_point():
        chosen_rows[extreme] *= _EXTREME
    return chosen_rows


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
    if not isinstance(single, Mapping) and len(single) == 1 and len(double) == 2:
        return rebuilt(single, [])
    if isinstance(single, Mapping):
        double = {entry_name: double[entry_name] for entry_name in single}
    pairs = zip(_entries(single), _entries(double), strict=True)
    return rebuilt(single, [empty_batch(*pair) for pair in pairs])


def _empty_tensor(single: Tensor, double: Tensor) -> Tensor:
    if single.shape == double.shape:
        return torch.zeros_like(single)
    empty_shape = list(single.shape)
    changed = 0
    for axis, sizes in enumerate(zip(single.shape, double.shape, strict=True)):
        single_size, double_size = sizes
        changed += single_size != double_size
        if sizes == (1, 2):
            empty_shape[axis] = 0
    if changed != 1 or 0 not in empty_shape:
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
        if empty.dim() == 0 or len(empty) or empty.is_complex():
            return None
        shape = (MADE_UP, *empty.shape[1:])
        if empty.is_floating_point():
            values = torch.randn(shape, generator=generator)
        else:
            values = torch.randint(2, shape, generator=generator)
        return values.to(empty.device, empty.dtype)
    if isinstance(empty, Mapping):
        empty = dict(empty)
    elif not isinstance(empty, list | tuple) or not empty:
        return None
    made_up = [made_up_batch(entry, generator) for entry in _entries(empty)]
    if any(entry is None for entry in made_up):
        return None
    return rebuilt(empty, made_up)
