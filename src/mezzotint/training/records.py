"""The premise of DP-SGD, checked where it is used: row i of every tensor is the gradient of record
i alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

from mezzotint.core.errors import ParameterError
from mezzotint.training.models import (
    AbstractGradSampleModule,
    GradSampleModule,
    GradSampleModuleFastGradientClipping,
    Module,
    ModuleValidator,
    Tensor,
    check_unused,
    torch,
)

_NAME = "mezzotint_name"


def name_parameters(module: Module) -> None:
    """Writes each parameter's name onto it, so that an optimizer's refusal can say which it is."""
    for name, parameter in module.named_parameters():
        setattr(parameter, _NAME, name)


def label(parameter: Tensor) -> str:
    """The name of a parameter for messages; its shape where no module has named it."""
    return getattr(parameter, _NAME, f"a tensor of shape {tuple(parameter.shape)}")


def record_rows(parameter: Any) -> Tensor:
    """The per-record gradients in one tensor, (records, ...), of one batch and not used before."""
    rows = getattr(parameter, "grad_sample", None)
    if rows is None:
        remedy = (
            "every trained tensor needs one backward pass to a step: put passes without "
            "backward() under torch.no_grad(), add up the losses of several passes, and freeze "
            "what the loss does not use"
        )
        raise ParameterError("gradients", f"none in {label(parameter)}", remedy)
    check_unused(rows)
    if not isinstance(rows, list):
        return rows
    if len(rows) > 1:
        remedy = (
            "gradients of several batches, which may share records; take one backward pass to a "
            "step, and opacus.utils.batch_memory_manager for batches that do not fit"
        )
        raise ParameterError("grad_sample", len(rows), remedy)
    return rows[0]


def record_count(parameters: Sequence[Tensor], samples: Sequence[Tensor]) -> int:
    """Counts the records of per-record gradients.

    Arguments:
        parameters: the trained tensors.
        samples: per-record gradients of each, (records, ...).
    Raises:
        ParameterError: tensors with different numbers of rows. A layer whose input has one row for
            the whole batch (a learned query, a position embedding) gives one row that holds the
            gradients of all records.
    """
    row_counts = [len(sample) for sample in samples]
    fewest = min(row_counts)
    if fewest != max(row_counts):
        name = label(parameters[row_counts.index(fewest)])
        raise ParameterError("gradients", _rows_in_words(name, fewest), _REMEDY)
    return fewest


def refuse_other_rows(parameter: Tensor, rows: int) -> ParameterError:
    """The error for as many rows in every tensor, which are not the records of the batch drawn."""
    return ParameterError("gradients", _rows_in_words(label(parameter), rows), _OTHER_REMEDY)


_REMEDY = (
    "a row must be one record's gradient: expand what this layer is given to the batch "
    "(x.expand(n, -1)), or mark the layer by training.records_first"
)
_OTHER_REMEDY = (
    "rows must be the records of the batch that the loader gave last: put records first in every "
    "tensor, give that batch alone to the step, and weight losses by 0 instead of dropping records"
)


def _rows_in_words(name: str, rows: int) -> str:
    """How many rows a tensor has; more than one may tell the size of the batch, which is
    private.
    """
    if rows == 1:
        return f"1 row in {name}"
    return f"rows in {name} that are not those of the batch"


def refuse_private(module: Module) -> None:
    """Raises ParameterError for a module whose per-record gradients somebody takes already."""
    if not isinstance(module, AbstractGradSampleModule):
        return
    remedy = "it is private already; give the plain module"
    if isinstance(module, GradSampleModuleFastGradientClipping):
        remedy = (
            "ghost clipping sums floats, sums here are integers of clipped gradients; give the "
            "plain module"
        )
    raise ParameterError("module", type(module).__name__, remedy)


_RECURRENT = {
    torch.nn.RNN: "opacus.layers.DPRNN",
    torch.nn.LSTM: "opacus.layers.DPLSTM",
    torch.nn.GRU: "opacus.layers.DPGRU",
    torch.nn.RNNCell: "opacus.layers.DPRNN",
    torch.nn.LSTMCell: "opacus.layers.DPLSTM",
    torch.nn.GRUCell: "opacus.layers.DPGRU",
    torch.nn.MultiheadAttention: "opacus.layers.DPMultiheadAttention",
}
"""Layers that hooks cannot follow, and what takes their place."""


def refuse_recurrent_layers(module: Module) -> None:
    """Raises ParameterError for recurrent layers and attention of PyTorch, naming what hooks
    follow.
    """
    for name, layer in module.named_modules():
        if type(layer) in _RECURRENT:
            remedy = (
                f"hooks cannot follow it; use {_RECURRENT[type(layer)]} (for LSTM, GRU and "
                "attention ModuleValidator.fix(module) puts it there; make the optimizer after "
                "that), or grad_sample_mode='vmap' and its backward(loss, batch)"
            )
            raise ParameterError("module", f"{type(layer).__name__} {name}".strip(), remedy)


def refuse_layers(module: Module, *, hooks: bool = True) -> None:
    """Raises ParameterError for layers that mix records, or that Opacus's hooks cannot follow.

    Arguments:
        hooks: whether hooks take the gradients; else any layer without batch statistics will do.
    """
    refuse_batch_state(module)
    if not hooks:
        return
    refuse_recurrent_layers(module)
    errors = ModuleValidator.validate(module, strict=False)
    if errors:
        remedy = (
            f"{errors[0]}; opacus.validators.ModuleValidator.fix(module) replaces what mixes "
            "records"
        )
        raise ParameterError("module", type(module).__name__, remedy)
    if GradSampleModule.validate(module, strict=False):
        remedy = (
            "a trained layer has buffers, which a pass may change by what records are; use "
            "layers without them (weight_norm in place of spectral_norm), or freeze this one"
        )
        raise ParameterError("module", type(module).__name__, remedy)


def refuse_batch_state(module: Module) -> None:
    """Raises ParameterError for layers whose output or state mixes the records of a batch.

    Statistics over a batch reach every record's output without clipping; running statistics and
    renormalized rows of an embedding are released with the module, without noise.
    """
    for name, layer in module.named_modules():
        reason = _batch_state(layer)
        if reason:
            value = f"{type(layer).__name__} {name}".strip()
            raise ParameterError("module", value, reason)


_Embeddings = torch.nn.Embedding | torch.nn.EmbeddingBag
_BatchNorm = torch.nn.modules.batchnorm._BatchNorm
_InstanceNorm = torch.nn.modules.instancenorm._InstanceNorm


def _batch_state(layer: Module) -> str:
    """What mixes records in a layer, with the remedy; empty if nothing is known to."""
    if isinstance(layer, _Embeddings) and layer.max_norm is not None:
        return "max_norm rewrites the rows that records look up, without noise; leave max_norm out"
    if isinstance(layer, _BatchNorm) and (layer.training or not layer.track_running_stats):
        return (
            "it normalizes by statistics of the batch, frozen or not; use GroupNorm, as "
            "opacus.validators.ModuleValidator.fix(module) does, or eval() and "
            "requires_grad_(False) on this layer"
        )
    if isinstance(layer, _InstanceNorm) and layer.training and layer.track_running_stats:
        return "running statistics are released without noise; use track_running_stats=False"
    return ""


Layers = Sequence[tuple[str, Module]]
"""Layers of a module by name, as `named_modules()` gives them."""


@final
class StateWatch:
    """Parameters and buffers before a forward pass, to be compared with those after it.

    Arguments:
        layers: that the pass goes through; listing them at each pass would take longer than
            looking.
        copies: compares values as well, and can put them back; version counters alone miss what
            is written through `.data`.
    """

    def __init__(self, layers: Layers, *, copies: bool) -> None:
        self._layers = layers
        self._before = _present(layers)
        self._copies: list[Tensor] = []
        if copies:
            self._copies = [entry.tensor.detach().clone() for entry in self._before]

    def changed(self) -> list[str]:
        """Names of the tensors that were changed, replaced or added since."""
        former_entries = {(entry.layer, entry.name): entry for entry in self._before}
        copies = dict(zip(former_entries, self._copies, strict=False))
        names: list[str] = []
        for entry in _present(self._layers):
            former = former_entries.get((entry.layer, entry.name))
            saved_copy = copies.get((entry.layer, entry.name))
            is_same = (
                former is not None
                and former.tensor is entry.tensor
                and former.version == entry.version
            )
            if not is_same or (saved_copy is not None and not same_bits(entry.tensor, saved_copy)):
                names.append(f"{entry.layer}.{entry.name}".lstrip("."))
        return names

    @torch.no_grad()
    def restore(self) -> None:
        """Puts values back where copies were made."""
        for entry, saved_copy in zip(self._before, self._copies, strict=False):
            entry.tensor.copy_(saved_copy)


class _Entry(NamedTuple):
    """A parameter or buffer of a layer, and how often it was written to."""

    layer: str
    name: str
    tensor: Tensor
    version: int


def _present(layers: Layers) -> list[_Entry]:
    return [
        _Entry(layer, name, tensor, version(tensor))
        for layer, module in layers
        for table in (module._parameters, module._buffers)
        for name, tensor in table.items()
        if tensor is not None
    ]


def version(tensor: Tensor) -> int:
    """How often a tensor was written to; 0 for those of which PyTorch does not count it."""
    if tensor.is_inference():
        return 0
    return tensor._version


def state_of(module: Module) -> dict[str, Tensor]:
    """Parameters and buffers of a module by name, shared ones under every name."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    return parameters | dict(module.named_buffers(remove_duplicate=False))


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Whether two tensors hold the same bits; NaN equals NaN."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    if first.layout != torch.strided:
        first = first.to_dense()
        second = second.to_dense()
    if torch.equal(first, second):
        return True
    either_nan = first.isnan() | second.isnan()
    both_nan = first.isnan() & second.isnan()
    return bool((both_nan | ((first == second) & ~either_nan)).all())


def refuse_changed_state(watch: StateWatch, steady: Mapping[str, object] | frozenset[str]) -> None:
    """Raises ParameterError if a forward pass changed parameters or buffers other than `steady`."""
    changed = [name for name in watch.changed() if name not in steady]
    if not changed:
        return
    watch.restore()
    remedy = (
        "the forward pass changes it in training mode, and it is released without noise; use "
        "layers that keep no statistics of records (GroupNorm, LayerNorm), or update it from "
        "released weights, outside of forward"
    )
    raise ParameterError("module", changed[0], remedy)
