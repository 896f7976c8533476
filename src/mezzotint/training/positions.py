"""Layers that are given one row for the whole batch, as position embeddings are, given one for each
record.
"""

from __future__ import annotations

from typing import Any, final

from mezzotint.core.errors import ParameterError
from mezzotint.training.models import Module, Tensor
from mezzotint.training.splitting import length_of


def records_first(module: Module, name: str) -> Module:
    """Expands what a layer is given to the batch wherever it has one row, so that rows are records.

    Not for a layer whose output is indexed by `[0]` behind it: all but the first row would be lost.
    `check_records` says whether the rows are right then.

    Arguments:
        module: whose forward pass takes tensors with records first; it is changed in place.
        name: of the layer, as in `module.named_modules()`.
    Returns: the module.
    Raises:
        ParameterError: no layer of that name.
    Example:
        >>> import torch
        >>> class Placed(torch.nn.Module):
        ...     def __init__(self) -> None:
        ...         super().__init__()
        ...         self.place = torch.nn.Embedding(3, 2)
        ...     def forward(self, values: torch.Tensor) -> torch.Tensor:
        ...         rows = self.place(torch.arange(3)[None])  # one row for the whole batch
        ...         self.row_count = len(rows)
        ...         return values + rows
        >>> module = records_first(Placed(), "place")
        >>> result = module(torch.zeros(5, 3, 2))
        >>> module.row_count
        5

    Source: docs/proofs/training.md, "One row for each record".
    """
    layers = dict(module.named_modules())
    if not name or name not in layers:
        raise ParameterError("name", name, "name a layer, as in module.named_modules()")
    expansion = _Expansion()
    module.register_forward_pre_hook(expansion.note_records, with_kwargs=True)
    layers[name].register_forward_pre_hook(expansion.expand)
    return module


@final
class _Expansion:
    """Knows how many records the module was called with, and expands a layer's inputs to as
    many.
    """

    def __init__(self) -> None:
        self._records: int | None = None

    def note_records(self, _: object, inputs: Any, settings: Any) -> None:
        """Hook before the module."""
        self._records = length_of([inputs, settings])

    def expand(self, _: object, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        """Hook before the layer."""
        expanded = map(self._expanded, inputs)
        return tuple(expanded)

    def _expanded(self, value: Any) -> Any:
        if self._records is None or not isinstance(value, Tensor):
            return value
        if value.dim() < 2 or len(value) != 1:
            return value
        _, *other_sizes = value.shape
        return value.expand(self._records, *other_sizes)
