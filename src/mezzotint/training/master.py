"""Master weights: floats that are trained, of which every forward pass sees few levels."""

from __future__ import annotations

import copy
from typing import Any, cast, final

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.records import JsonObject
from mezzotint.core.types import Codes, Float32Array
from mezzotint.training.contraction import check_bits, check_q
from mezzotint.training.models import Module, Tensor, parametrize, torch
from mezzotint.training.packed import PackedModel, PackedTensor

BEHIND = "parametrizations.weight.original"
"""How PyTorch calls a weight that a rule stands before, in names of parameters."""

_LAYERS = (
    torch.nn.Linear,
    torch.nn.Embedding,
    torch.nn.Conv1d,
    torch.nn.Conv2d,
    torch.nn.Conv3d,
)

_TOP_PER_RMS = {1: 0.7979, 2: 1.4936}
"""The largest of even levels of least squared error for normal weights (Max 1960), over their RMS.
"""


def quantize_aware(
    module: Module, *, bits: int = 4, bound: float | None = None, q: float = 1.0
) -> Module:
    """Lets every forward pass see weights on 2^bits levels, while float weights are trained.

    Call it before `make_private`, and make the optimizer of the same parameters. The gradient with
    respect to a level is taken for that of its weight (straight through). Levels are a function of
    the weights, which are released with noise: the run costs what DP-SGD costs, whichever of
    weights and levels are published.

    Arguments:
        module: changed in place: weights of dense, convolution and embedding layers are projected.
        bits: per weight, 1 to 8.
        bound: levels lie evenly from -bound to bound; by default each output of a layer has its
            own: its largest weight, and for 1 and 2 bits the bound of least error of normal
            weights.
        q: in training a level is kept with this probability, else replaced by another, as in
            RQP-SGD. That saves no noise here: the claim has kappa = 1.
    Returns: the module.
    Raises:
        ParameterError: bits, q or bound outside their range; no layer to quantize, or one twice.
    Example:
        >>> layer = quantize_aware(torch.nn.Linear(4, 3), bits=2)
        >>> len(layer.weight[0].unique()) <= 4
        True

    Source: docs/proofs/training.md, "Master weights".
    """
    levels = check_bits(bits)
    if bits > 8:
        raise ParameterError("bits", bits, "1 to 8")
    check_q(q, levels)
    if bound is not None and not 0 < bound < float("inf"):
        raise ParameterError("bound", bound, "need a finite number > 0")
    layers = [layer for layer in module.modules() if isinstance(layer, _LAYERS)]
    if not layers:
        raise ParameterError(
            "module", type(module).__name__, "it has no dense, convolution or embedding layer"
        )
    for layer in layers:
        if parametrize.is_parametrized(layer):
            layer_type = type(layer).__name__
            raise ParameterError("module", layer_type, "its weights have a rule already")
    for layer in layers:
        rule = Levels(bits=bits, bound=bound, q=q)
        parametrize.register_parametrization(layer, "weight", rule)
    return module


@final
class Levels(Module):
    """The rule by which float weights become levels.

    Arguments: as of `quantize_aware`.
    """

    def __init__(self, *, bits: int, bound: float | None, q: float) -> None:
        super().__init__()
        self.bits = bits
        self.bound = bound
        self.q = q

    def forward(self, weight: Tensor) -> Tensor:
        """The levels of a weight (outputs, ...), of which gradients are the weight's."""
        levels: Any = _StraightThrough.apply(weight, self)
        return levels

    def scales(self, weight: Tensor) -> Tensor:
        """(outputs, 1, ...) the largest level of each output."""
        outputs = weight.detach().flatten(1)
        other_axes = (1,) * (weight.dim() - 1)
        scale_shape = (len(weight), *other_axes)
        if self.bound is not None:
            return weight.new_full(scale_shape, self.bound)
        if self.bits in _TOP_PER_RMS:
            mean_squares = outputs.square().mean(dim=1)
            scales = mean_squares.sqrt() * _TOP_PER_RMS[self.bits]
        else:
            scales = outputs.abs().amax(dim=1)
        smallest = torch.finfo(weight.dtype).tiny  # weights that are 0 need a scale, too
        scales = scales.clamp(min=smallest)
        return scales.view(scale_shape)

    def codes(self, weight: Tensor) -> Tensor:
        """The number of the nearest level of each weight, as integers in floats."""
        top_code = 2**self.bits - 1
        relative = weight.detach() / self.scales(weight)
        positions = (relative + 1) * (top_code / 2)
        nearest = positions.round()
        return nearest.clamp(0, top_code)

    def values(self, codes: Tensor, scales: Tensor) -> Tensor:
        """The levels that codes stand for."""
        count = 2**self.bits
        levels = torch.linspace(-1.0, 1.0, count, dtype=torch.float64, device=scales.device)
        code_levels = levels[codes.long()]
        values = scales.double() * code_levels
        return values.to(scales.dtype)

    def replaced(self, codes: Tensor) -> Tensor:
        """Codes, of which each is replaced by another one with probability 1 - q."""
        count = 2**self.bits
        code_shift = torch.randint_like(codes, 1, count)
        random_numbers = torch.rand_like(codes)
        others = (codes + code_shift) % count
        is_kept = random_numbers < self.q
        return torch.where(is_kept, codes, others)


class _StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(weight: Tensor, rule: Levels) -> Tensor:  # type: ignore[override]
        codes = rule.codes(weight)
        if rule.training and rule.q < 1:
            codes = rule.replaced(codes)
        return rule.values(codes, rule.scales(weight))

    @staticmethod
    def setup_context(context: Any, inputs: Any, output: Any) -> None:
        pass

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        return gradients[0], None

    generate_vmap_rule = True


def rule_of(layer: Module) -> Levels | None:
    """The rule of a layer whose weight alone has one, of `quantize_aware`; else None."""
    if not parametrize.is_parametrized(layer):
        return None
    parametrizations: Any = layer.parametrizations
    if list(parametrizations) != ["weight"]:
        return None
    rules = list(parametrizations.weight)
    if len(rules) != 1 or not isinstance(rules[0], Levels):
        return None
    return rules[0]


def plain_type(layer: Module) -> type[Module]:
    """The class of a layer, without the rule of `quantize_aware` if it has one."""
    if rule_of(layer) is None:
        return type(layer)
    return cast("type[torch.nn.Module]", type(layer).__bases__[0])


def trained_weight(layer: Any) -> Tensor:
    """The parameter behind a layer's weight."""
    if rule_of(layer) is None:
        return layer.weight
    return layer.parametrizations.weight.original


def without_rules(module: Module) -> Module:
    """A copy of a module with plain weights, those behind the levels."""
    plain_module = copy.deepcopy(module)
    for layer in list(plain_module.modules()):
        if rule_of(layer) is not None:
            parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    return plain_module


@torch.no_grad()
def pack_levels(module: Module, *, note: JsonObject | None = None) -> PackedModel:
    """Packs the levels that a forward pass of a `quantize_aware` module sees, under the plain
    names.

    Parameters without a rule, such as biases, are rounded to as many levels from minus to plus
    their largest weight.

    Raises:
        ParameterError: a module without rules, or with rules of different bits.
    """
    tensors: list[PackedTensor] = []
    bits: set[int] = set()
    for name, layer in module.named_modules():
        rule = rule_of(layer)
        if rule is None:
            continue
        weight_name = f"{name}.weight".lstrip(".")
        weight = trained_weight(layer)
        codes = _host_codes(rule, weight)
        scales = _host_scales(rule, weight)
        tensors.append(PackedTensor(name=weight_name, codes=codes, scale=scales))
        bits.add(rule.bits)
    if len(bits) != 1:
        raise ParameterError(
            "module",
            type(module).__name__,
            "call quantize_aware on it first, with one number of bits",
        )
    (bit_count,) = bits
    rule = Levels(bits=bit_count, bound=None, q=1.0)
    for name, parameter in module.named_parameters():
        if name.endswith(BEHIND):
            continue
        single_row = parameter.detach().reshape(1, -1)
        codes = _host_codes(rule, single_row).reshape(parameter.shape)
        (scale,) = _host_scales(rule, single_row)
        tensors.append(PackedTensor(name=name, codes=codes, scale=float(scale)))
    levels = np.linspace(-1.0, 1.0, 2**bit_count)
    level_values = tuple(levels.tolist())
    kept_note = dict(note or {})
    return PackedModel(tensors=tuple(tensors), levels=level_values, note=kept_note)


def _host_codes(rule: Levels, weight: Tensor) -> Codes:
    codes = rule.codes(weight)
    return codes.to(torch.uint8).cpu().numpy()


def _host_scales(rule: Levels, weight: Tensor) -> Float32Array:
    """(outputs,) the largest level of each output."""
    scales = rule.scales(weight).flatten()
    return scales.float().cpu().numpy()
