"""The private module: per-record gradients by Opacus's hooks, with the premises of DP-SGD
checked.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, cast, final

from mezzotint.core.errors import ParameterError
from mezzotint.training.master import plain_type, rule_of, trained_weight
from mezzotint.training.models import (
    DPRNNBase,
    GradSampleModule,
    Module,
    RNNLinear,
    Tensor,
    prepare_layer,
    reason_of,
    torch,
    tree_flatten,
)
from mezzotint.training.records import (
    StateWatch,
    label,
    name_parameters,
    refuse_changed_state,
    version,
)

GradSampleMode = Literal["hooks", "vmap"]
"""Who takes per-record gradients: hooks on layers during loss.backward(), or torch.func."""

Loss = Callable[[Any, Any], Tensor]

_FACTORS = "mezzotint_factors"

_SIXTEEN_BITS = (torch.bfloat16, torch.float16)


@final
class PrivateModule(GradSampleModule):
    """Opacus's module, which refuses what would make a row anything but one record's gradient.

    Where a dense layer sends back b (n, out) for inputs a (n, in), record i's gradient is the outer
    product of b[i] and a[i]. Opacus writes these n * out * in numbers twice; here `factors` gives b
    and a. What Opacus's own optimizers would read instead is NaN, so that none takes a step with
    it.

    Arguments:
        module: whose per-record gradients are taken.
        loss_reduction: of the loss that the loop computes.
        factored: leaves the gradients of dense layers as factors.
        steady: names of parameters and buffers that a forward pass may change, as what it writes
            does not depend on the records.
        mode: "hooks" for loss.backward(), "vmap" for `backward`.
    Raises:
        ParameterError: from a forward pass, state that it changed in training mode; from a backward
            pass, a layer that was called with different numbers of rows, and 16-bit gradients of a
            mean, whose division by the batch's size is rounded alike in every row.
    """

    def __init__(
        self,
        module: Module,
        *,
        loss_reduction: Literal["mean", "sum"] = "mean",
        factored: bool = True,
        steady: Set[str] = frozenset(),
        mode: GradSampleMode = "hooks",
    ) -> None:
        # What Opacus looks gradients of layers up in, while it is built.
        object.__setattr__(self, "GRAD_SAMPLERS", _samplers(module))
        super().__init__(module, loss_reduction=loss_reduction, strict=mode == "hooks")
        self.mode: GradSampleMode = mode
        self._factored = factored
        self._steady = frozenset(steady)
        self._passes = 0
        self._layers = tuple(module.named_modules())
        name_parameters(module)
        if mode == "vmap":
            self.remove_hooks()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if not (self.training and torch.is_grad_enabled()):
            return self._module(*args, **kwargs)
        state_watch = StateWatch(self._layers, copies=self._passes == 0)
        with translated():
            outputs = self._module(*args, **kwargs)
        refuse_changed_state(state_watch, self._steady)
        self._passes += 1
        return outputs

    def iterate_submodules(self, module: Module) -> Iterator[Module]:
        """The layers that get hooks; rules of `quantize_aware` are none of them."""
        if rule_of(module) is None:
            yield from super().iterate_submodules(module)
        elif any(parameter.requires_grad for parameter in module.parameters()):
            yield module

    def _get_module_type(self, module: Module) -> Any:
        """The class of a layer; of one whose settings Opacus's own rule ignores, a class without a
        rule.
        """
        if _is_ignored(module):
            return _Ruleless
        return type(module)

    def __getattr__(self, name: str) -> Any:
        """Attributes and methods of the plain module, such as `config`, where there are none
        here.
        """
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__") or "_module" not in self.__dict__.get("_modules", {}):
                raise
            return getattr(self._module, name)

    def backward(self, loss: Loss, batch: Any, *, chunk: int = 32) -> Tensor:
        """Takes each record's gradient by itself, through torch.func, in place of loss.backward().

        It takes what hooks refuse (nn.LSTM, nn.MultiheadAttention, layers that are given one row
        for the whole batch), and no loss can mix records.

        Arguments:
            loss: called as loss(module, batch) with a batch of one record.
            batch: tensors with records first, in tuples, lists and mappings.
            chunk: records at a time; more are faster and take more memory.
        Returns: the mean of the losses, without a gradient; nan of no records.
        Raises:
            ParameterError: rows that no step has used yet; a pass that torch.func cannot follow.
        """
        parameters = dict(self._module.named_parameters())
        trained = {
            name: parameter.detach()
            for name, parameter in parameters.items()
            if parameter.requires_grad
        }
        attributed: dict[str, Any] = {name: parameters[name] for name in trained}
        if any(
            getattr(parameter, "grad_sample", None) is not None for parameter in attributed.values()
        ):
            raise ParameterError(
                "gradients",
                "of several batches",
                "one backward pass to a step; call optimizer.zero_grad() before the next",
            )
        state_watch = StateWatch(self._layers, copies=self._passes == 0)
        with translated(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="There is a performance drop")
            record_rows, losses = _rows_alone(self._module, trained, loss, batch, chunk)
        refuse_changed_state(state_watch, self._steady)
        self._passes += 1
        for name, parameter in attributed.items():
            parameter.grad_sample = record_rows[name]
        return losses.mean()

    def add_hooks(self, **options: Any) -> None:
        """What Opacus calls to follow layers: hooks on these, and in each pass on their outputs.

        Opacus follows backward passes by hooks of layers, each of which puts a function of Python
        before and after its layer.
        """
        if hasattr(self._module, "autograd_grad_sample_hooks"):
            raise ParameterError(
                "module",
                type(self._module).__name__,
                "another private module follows it; give the plain module",
            )
        handles: list[Any] = []
        plain: Any = self._module
        plain.autograd_grad_sample_hooks = self.autograd_grad_sample_hooks = handles
        for layer in self.iterate_submodules(plain):
            if isinstance(layer, DPRNNBase):
                continue  # the dense layers inside are followed
            if self._get_module_type(layer) not in self.GRAD_SAMPLERS:
                prepare_layer(layer, batch_first=options["batch_first"])
                handles.append(layer.register_forward_pre_hook(_refuse_keywords, with_kwargs=True))
            handles.append(layer.register_forward_hook(self.capture_activations_hook))
        self.enable_hooks()

    def capture_activations_hook(
        self, module: Module, forward_input: Any, _forward_output: Any
    ) -> Tensor | None:
        """Hook after a layer: keeps what it was given until the gradient of its output is there.

        Returns: what stands for the output, None for the output itself.
        """
        if not (self.hooks_enabled and module.training and torch.is_grad_enabled()):
            return None
        trained = _trained(module)
        output = _forward_output
        if isinstance(output, tuple):
            output = output[0]
        if not trained or not isinstance(output, Tensor) or not output.requires_grad:
            return None
        layer: Any = module
        if not hasattr(layer, "activations"):
            layer.activations = []
        activations = [tensor.detach() for tensor in forward_input]
        layer.activations.append(activations)
        for parameter in trained:
            parameter._forward_counter += 1
        if output._is_view() or output.is_leaf:
            # Hooks of a view are lost where it is written to; those of a parameter stay for ever.
            output = output.clone()
        versions = list(map(version, activations))
        output.register_hook(partial(self._follow_back, module, activations, versions))
        if isinstance(_forward_output, tuple):
            return None
        return output

    def _follow_back(
        self,
        module: Module,
        activations: list[Tensor],
        versions: list[int],
        back: Tensor,
    ) -> None:
        """Hook behind a layer's output, of which `back` is the gradient."""
        if list(map(version, activations)) != versions:
            remedy = (
                "what it was given is written to afterwards; write h = h + x in place of h += x"
            )
            raise ParameterError("module", f"layer of {label(_trained(module)[0])}", remedy)
        self.capture_backprops_hook(
            module, activations, (back,), self.loss_reduction, self.batch_first
        )

    def capture_backprops_hook(
        self,
        module: Module,
        _forward_input: Any,
        output_gradients: Any,
        loss_reduction: str,
        batch_first: bool,
    ) -> None:
        """Takes the gradients of a layer's parameters, from that of its output.

        Opacus's name of `output_gradients` is forward_output, whatever it holds.
        """
        is_elsewhere = not self.training and not getattr(module, "activations", None)
        if not self.hooks_enabled or is_elsewhere:
            return  # gradients of inputs, of a module that is not being trained
        trained = _trained(module)
        _check_calls(module, trained)
        _check_precision(trained[0], output_gradients[0], loss_reduction)
        if self._factored and _is_simple(module, trained):
            self._keep_factors(module, output_gradients[0].detach(), loss_reduction)
            return
        try:
            super().capture_backprops_hook(
                module, _forward_input, output_gradients, loss_reduction, batch_first
            )
        except (TypeError, ValueError, IndexError, RuntimeError) as error:
            raise _unfollowed(module, error) from error
        for parameter in trained:
            if isinstance(parameter.grad_sample, list):
                # Nobody needs more than that there were several.
                parameter.grad_sample = parameter.grad_sample[-2:]

    def _keep_factors(self, layer: Any, back: Tensor, loss_reduction: str) -> None:
        """Hangs the factors of a dense layer's gradients onto its weight."""
        (inputs,) = layer.activations.pop()
        if loss_reduction == "mean":
            back = back * len(inputs)
        weight: Any = trained_weight(layer)
        unreadable = back.new_full((1, 1, 1), math.nan).expand(len(back), *weight.shape)
        weight.grad_sample = unreadable
        setattr(unreadable, _FACTORS, (back, inputs.to(back.dtype)))
        weight._forward_counter -= 1
        if layer.bias is not None and layer.bias.requires_grad:
            layer.bias.grad_sample = back
            layer.bias._forward_counter -= 1


def factors(sample: Any) -> tuple[Tensor, Tensor] | None:
    """What was sent back, (n, out), and given, (n, in), where gradients are factors; else None."""
    return getattr(sample, _FACTORS, None)


def factored(sample: Tensor) -> tuple[Tensor, Tensor]:
    """Gains and rows, float32, whose outer products are the records' gradients in one tensor."""
    factor_pair = factors(sample)
    if factor_pair is None:
        factor_pair = sample.new_ones((len(sample), 1)), sample.flatten(1)
    gains, rows = factor_pair
    return gains.detach().float(), rows.detach().float()


def _samplers(module: Module) -> dict[Any, Any]:
    """What takes the gradients of layers, by class; of those that `quantize_aware` has given a
    rule, too.
    """
    samplers: dict[Any, Any] = dict(GradSampleModule.GRAD_SAMPLERS)
    for layer in module.modules():
        layer_type = plain_type(layer)
        if layer_type is not type(layer) and layer_type in samplers:
            samplers[type(layer)] = partial(_sample_trained, samplers[layer_type])
    return samplers


def _sample_trained(sampler: Any, layer: Any, activations: Any, back: Any) -> dict[Any, Any]:
    """Rows of a layer with a rule; those of its levels are those of the weight behind them."""
    layer_type = plain_type(layer)
    plain = layer_type.__new__(layer_type)
    plain.__dict__.update(layer.__dict__)
    plain._parameters = {**layer._parameters, "weight": cast(Any, trained_weight(layer))}
    return sampler(plain, activations, back)


class _Ruleless:
    """Stands for layers whose gradients are taken by torch.func."""


_Convolution = torch.nn.Conv1d | torch.nn.Conv2d | torch.nn.Conv3d


def _is_ignored(layer: Any) -> bool:
    """Whether Opacus's rule for a layer leaves out a setting of it, and gives other gradients."""
    if isinstance(layer, torch.nn.Embedding):
        return layer.padding_idx is not None or layer.scale_grad_by_freq
    return isinstance(layer, _Convolution) and layer.padding_mode != "zeros"


def _refuse_keywords(layer: Any, _: Any, settings: Any) -> None:
    """Hook before layers that torch.func calls again, with what came by position alone."""
    if layer.training and settings and torch.is_grad_enabled():
        remedy = (
            f"{type(layer).__name__} is called with {', '.join(settings)}=, which per-record "
            "gradients would leave out; give them by position, or use grad_sample_mode='vmap'"
        )
        raise ParameterError("module", label(_trained(layer)[0]), remedy)


def _unfollowed(layer: Module, error: Exception) -> Exception:
    """The error of a layer that hooks cannot follow, with the remedy."""
    if isinstance(error, ParameterError):
        return error
    remedy = (
        f"hooks cannot take its per-record gradients ({reason_of(error)[:80]}); use another layer, or "
        "grad_sample_mode='vmap' and its backward(loss, batch)"
    )
    name = label(_trained(layer)[0])
    return ParameterError("module", f"{type(layer).__name__} of {name}", remedy)


def _is_simple(module: Module, parameters: list[Any]) -> bool:
    """A dense layer, called once with a vector per record, whose parameters nothing else has
    used.
    """
    if plain_type(module) is not torch.nn.Linear or not trained_weight(module).requires_grad:
        return False
    layer_calls: Any = getattr(module, "activations", ())
    if len(layer_calls) != 1 or layer_calls[0][0].dim() != 2:
        return False
    return all(
        parameter._forward_counter == 1
        and parameter.grad_sample is None
        and not hasattr(parameter, "_current_grad_sample")  # the part of another call
        for parameter in parameters
    )


def _trained(layer: Module) -> list[Any]:
    """The trained parameters of a layer and those inside; Opacus hangs attributes onto them."""
    if layer._modules:
        return [parameter for parameter in layer.parameters() if parameter.requires_grad]
    # Most layers have none inside, and this is called for each of them in every pass.
    return [
        parameter
        for parameter in layer._parameters.values()
        if parameter is not None and parameter.requires_grad
    ]


def _check_calls(module: Any, trained: list[Any]) -> None:
    """Whether all calls of a layer, and of those that share its weights, had a row for every
    record.

    Opacus adds the gradients of several calls row by row: those of a call with fewer rows would be
    added to the first records. What it hangs onto others, and this relies on:

    - `activations` of a layer: the inputs of each call whose gradient has not come back, one less
      after each. Only the first to come back sees all of them here, but any mismatch fails there.
    - `max_batch_len` of a layer: the most rows of these calls, from the first gradient to the last.
    - `_current_grad_sample` of a parameter: the sum so far, until `_forward_counter`, the number of
      calls that it is in and whose gradients have not come back, is 0 (`_is_simple` reads it).
    """
    if isinstance(module, RNNLinear):
        return  # of a packed sequence, whose later steps have fewer records
    row_counts = {len(inputs[-1]) for inputs in getattr(module, "activations", ()) if inputs}
    if hasattr(module, "max_batch_len"):
        row_counts.add(module.max_batch_len)
    for parameter in trained:
        if hasattr(parameter, "_current_grad_sample"):
            row_counts.add(len(parameter._current_grad_sample))
    if len(row_counts) > 1:
        remedy = (
            "each call of a layer needs one row for every record of the batch: expand what it is "
            "given to the batch (x.expand(n, -1)), and put passes without backward() under "
            "torch.no_grad()"
        )
        raise ParameterError(
            "gradients", f"calls of {label(trained[0])} with different numbers of rows", remedy
        )


def _check_precision(parameter: Tensor, back: Tensor, reduction: str) -> None:
    if reduction == "mean" and back.dtype in _SIXTEEN_BITS:
        remedy = (
            f"{label(parameter)} gets {back.dtype} gradients of a mean: 1/n is "
            "rounded alike in every row; sum the losses of the batch and give loss_reduction='sum'"
        )
        raise ParameterError("loss_reduction", reduction, remedy)


def _rows_alone(
    module: Module,
    trained: Mapping[str, Tensor],
    loss: Loss,
    batch: Any,
    chunk: int,
) -> tuple[dict[str, Tensor], Tensor]:
    """Gradients of every record by itself, and its loss."""
    leaves, structure = tree_flatten(_plain(batch))
    if not leaves or not all(isinstance(leaf, Tensor) and leaf.dim() for leaf in leaves):
        raise ParameterError(
            "batch",
            type(batch).__name__,
            "give tensors with records first, in tuples, lists and mappings",
        )
    if not len(leaves[0]):
        record_rows = {
            name: tensor.new_zeros((0, *tensor.shape)) for name, tensor in trained.items()
        }
        return record_rows, leaves[0].new_zeros(0, dtype=torch.float32)

    def loss_of_one(weights: Mapping[str, Tensor], record: list[Tensor]) -> Any:
        single = structure.unflatten([leaf.unsqueeze(0) for leaf in record])
        return loss(_Functional(module, weights), single).float()

    gradient = torch.func.grad_and_value(loss_of_one)
    mapped = torch.func.vmap(gradient, in_dims=(None, 0), randomness="different", chunk_size=chunk)
    record_rows, losses = mapped(dict(trained), leaves)
    return {
        name: gradient_row.detach() for name, gradient_row in record_rows.items()
    }, losses.detach()


def _plain(batch: Any) -> Any:
    """A batch with plain mappings, which torch can take apart."""
    if isinstance(batch, Mapping):
        return {key: _plain(value) for key, value in batch.items()}
    return batch


@final
class _Functional:
    """A module with other weights, to be called in its place."""

    def __init__(self, module: Module, weights: Mapping[str, Tensor]) -> None:
        self._module = module
        self._weights = dict(weights)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return torch.func.functional_call(self._module, self._weights, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


REMEDIES = (
    (
        "data-dependent control flow",
        "torch.func cannot follow a pass that looks at values; use grad_sample_mode='hooks'",
    ),
    (
        "vmap: ",
        "torch.func cannot follow this pass; use grad_sample_mode='hooks', and layers of "
        "opacus.layers",
    ),
    (
        "saved tensor hooks",
        "torch.func cannot follow checkpoints; leave torch.utils.checkpoint out",
    ),
)
"""What PyTorch says, and what to do about it."""


@contextmanager
def translated() -> Iterator[None]:
    """Turns errors of PyTorch about per-record gradients into ParameterError with a remedy."""
    try:
        yield
    except ParameterError:
        raise
    except RuntimeError as error:
        for fragment, remedy in REMEDIES:
            if fragment in str(error):
                raise ParameterError("module", reason_of(error)[:80], remedy) from error
        raise
