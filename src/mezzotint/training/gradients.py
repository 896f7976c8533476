"""The private module: per-record gradients by Opacus's hooks, with the premises of DP-SGD checked."""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Any, Literal, cast, final

from mezzotint.core.errors import ParameterError
from mezzotint.training.models import GradSampleModule, RNNLinear, torch
from mezzotint.training.records import (
    StateWatch,
    label,
    name_parameters,
    refuse_changed_state,
)

_FACTORS = "mezzotint_factors"

_SIXTEEN_BITS = (torch.bfloat16, torch.float16)


@final
class PrivateModule(GradSampleModule):
    """Opacus's module, which refuses what would make a row anything but one record's gradient.

    Where a dense layer sends back b (n, out) for inputs a (n, in), record i's gradient is the outer
    product of b[i] and a[i]. Opacus writes these n * out * in numbers twice; here `factors` gives b
    and a. What Opacus's own optimizers would read instead is NaN, so that none takes a step with it.

    Arguments:
        module: whose per-record gradients are taken.
        loss_reduction: of the loss that the loop computes.
        factored: leaves the gradients of dense layers as factors.
        steady: names of parameters and buffers that a forward pass may change, as what it writes
            does not depend on the records.
    Raises:
        ParameterError: from a forward pass, state that it changed in training mode; from a backward
            pass, a layer that was called with different numbers of rows, and 16-bit gradients of a
            mean, whose division by the batch's size is rounded alike in every row.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        loss_reduction: Literal["mean", "sum"] = "mean",
        factored: bool = True,
        steady: Set[str] = frozenset(),
    ) -> None:
        super().__init__(module, loss_reduction=loss_reduction)
        self._factored = factored
        self._steady = frozenset(steady)
        self._passes = 0
        name_parameters(module)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            return self._module(*args, **kwargs)
        watch = StateWatch(self._module, copies=self._passes == 0)
        outputs = self._module(*args, **kwargs)
        refuse_changed_state(watch, self._steady)
        self._passes += 1
        return outputs

    def capture_backprops_hook(
        self,
        module: torch.nn.Module,
        _forward_input: torch.Tensor,
        forward_output: torch.Tensor,
        loss_reduction: str,
        batch_first: bool,
    ) -> None:
        if not self.hooks_enabled:
            return
        _check_calls(module)
        _check_precision(module, forward_output[0], loss_reduction)
        parameters = [p for p in module.parameters() if p.requires_grad]
        if self._factored and _is_simple(module, parameters):
            self._keep_factors(module, forward_output[0].detach(), loss_reduction, batch_first)
            return
        super().capture_backprops_hook(
            module, _forward_input, forward_output, loss_reduction, batch_first
        )
        for parameter in cast(list[Any], parameters):
            if isinstance(parameter.grad_sample, list):
                # Nobody needs more than that there were several.
                parameter.grad_sample = parameter.grad_sample[-2:]

    def _keep_factors(
        self, layer: Any, back: torch.Tensor, loss_reduction: str, batch_first: bool
    ) -> None:
        """Hangs the factors of a dense layer's gradients onto its weight."""
        activations, back = self.rearrange_grad_samples(
            module=layer, backprops=back, loss_reduction=loss_reduction, batch_first=batch_first
        )
        del layer.max_batch_len
        given = cast(Any, activations)[0].to(back.dtype)
        weight: Any = layer.weight
        unreadable = back.new_full((1, 1, 1), math.nan).expand(len(back), *weight.shape)
        weight.grad_sample = unreadable
        setattr(unreadable, _FACTORS, (back, given))
        weight._forward_counter -= 1
        if layer.bias is not None and layer.bias.requires_grad:
            layer.bias.grad_sample = back
            layer.bias._forward_counter -= 1


def factors(sample: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """What was sent back, (n, out), and given, (n, in), where gradients are factors; else None."""
    return getattr(sample, _FACTORS, None)


def _is_simple(module: torch.nn.Module, parameters: list[Any]) -> bool:
    """A dense layer, called once with a vector per record, whose parameters nothing else has used."""
    if type(module) is not torch.nn.Linear or not module.weight.requires_grad:
        return False
    calls: Any = getattr(module, "activations", ())
    if len(calls) != 1 or calls[0][0].dim() != 2:
        return False
    return all(
        parameter._forward_counter == 1
        and parameter.grad_sample is None
        and not hasattr(parameter, "_current_grad_sample")  # the part of another call
        for parameter in parameters
    )


def _first_parameter(module: torch.nn.Module) -> torch.Tensor:
    return next(parameter for parameter in module.parameters() if parameter.requires_grad)


def _check_calls(module: Any) -> None:
    """Whether all calls of a layer, and of those that share its weights, had a row for every record.

    Opacus adds the gradients of several calls row by row: those of a call with fewer rows would be
    added to the first records.
    """
    if isinstance(module, RNNLinear):
        return  # of a packed sequence, whose later steps have fewer records
    rows = {inputs[-1].shape[0] for inputs in getattr(module, "activations", ()) if inputs}
    if hasattr(module, "max_batch_len"):
        rows.add(module.max_batch_len)
    for parameter in module.parameters():
        if hasattr(parameter, "_current_grad_sample"):
            rows.add(len(parameter._current_grad_sample))
    if len(rows) > 1:
        remedy = (
            "each call of a layer needs one row for every record of the batch: expand what it is "
            "given to the batch (x.expand(n, -1)), and put passes without backward() under "
            "torch.no_grad()"
        )
        value = f"calls of {label(_first_parameter(module))} with different numbers of rows"
        raise ParameterError("gradients", value, remedy)


def _check_precision(module: torch.nn.Module, back: torch.Tensor, reduction: str) -> None:
    if reduction == "mean" and back.dtype in _SIXTEEN_BITS:
        remedy = (
            f"{label(_first_parameter(module))} gets {back.dtype} gradients of a mean: 1/n is "
            "rounded alike in every row; sum the losses of the batch and give loss_reduction='sum'"
        )
        raise ParameterError("loss_reduction", reduction, remedy)
