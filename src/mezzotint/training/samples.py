"""Per-sample gradients from Opacus, those of dense layers left as the outer products that they are."""

from __future__ import annotations

import math
from typing import Any, cast, final

from mezzotint.training.extra import GradSampleModule, torch

_FACTORS = "mezzotint_factors"


@final
class FactoredGradSampleModule(GradSampleModule):
    """Opacus's module, but the gradients of a dense layer's weight are not multiplied out.

    Where a layer sends back b (n, out) for inputs a (n, in), record i's gradient is the outer product of b[i] and a[i].
    Opacus writes these n * out * in numbers twice; here `factors` gives b and a. What Opacus's own optimizers would
    read instead is NaN, so that none takes a step with it.

    Raises:
        RuntimeError: a second backward pass before the step.
    """

    def capture_backprops_hook(
        self,
        module: torch.nn.Module,
        _forward_input: torch.Tensor,
        forward_output: torch.Tensor,
        loss_reduction: str,
        batch_first: bool,
    ) -> None:
        parameters: list[Any] = [parameter for parameter in module.parameters() if parameter.requires_grad]
        if any(factors(parameter.grad_sample) is not None for parameter in parameters):
            raise RuntimeError("one backward pass to a step: gradients of dense layers are not accumulated")
        if not self.hooks_enabled or not _is_simple(module, parameters):
            super().capture_backprops_hook(module, _forward_input, forward_output, loss_reduction, batch_first)
            return
        activations, back = self.rearrange_grad_samples(
            module=module, backprops=forward_output[0].detach(), loss_reduction=loss_reduction, batch_first=batch_first
        )
        del module.max_batch_len
        weight, *bias = parameters
        given = cast(Any, activations)[0].to(back.dtype)
        weight.grad_sample = back.new_full((1, 1, 1), math.nan).expand(len(back), *weight.shape)
        setattr(weight.grad_sample, _FACTORS, (back, given))
        for parameter in bias:
            parameter.grad_sample = back
        for parameter in parameters:
            parameter._forward_counter -= 1


def factors(sample: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
    """What was sent back, (n, out), and given, (n, in), where gradients are left factored; None for others."""
    return getattr(sample, _FACTORS, None)


def _is_simple(module: torch.nn.Module, parameters: list[Any]) -> bool:
    """A dense layer that was called once, with a vector per record, and whose parameters nothing else has used."""
    calls: Any = getattr(module, "activations", ())
    return (
        type(module) is torch.nn.Linear
        and module.weight.requires_grad
        and len(calls) == 1
        and calls[0][0].dim() == 2
        and all(
            parameter._forward_counter == 1
            and parameter.grad_sample is None
            and not hasattr(parameter, "_current_grad_sample")  # the part of another call
            for parameter in parameters
        )
    )
