"""Packed models in other programs' formats: PyTorch modules, safetensors, ONNX with weights of 4 and 8 bits."""

from __future__ import annotations

import copy
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, final

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.files import replacing
from mezzotint.core.packing import pack
from mezzotint.training.extra import torch
from mezzotint.training.models import task
from mezzotint.training.packed import PackedModel, PackedTensor

OPSET = 21
"""The first with DequantizeLinear of 4-bit integers."""

FORMAT = 10

Dense = Literal["DequantizeLinear", "MatMulNBits"]
_DENSE = ("DequantizeLinear", "MatMulNBits")
_RUNTIME = "com.microsoft"
_BLOCK = 128
"""Inputs that share a scale and a zero point in MatMulNBits: 8 bytes beside 64."""


def built(packed: PackedModel) -> torch.nn.Module:
    """The module that a packed model's note describes, as `mezzotint train --out` writes it; weights not yet set.

    Raises:
        ParameterError: a note without an architecture.
    """
    known = packed.note.get("architecture")
    if known is None:
        raise ParameterError(
            "module", "None", "the packed model does not say how it is built; give a module of its kind"
        )
    return task(known["model"], shape=tuple(known["shape"]), classes=known["classes"]).module


def state_dict(packed: PackedModel) -> dict[str, torch.Tensor]:
    """The weights by name as tensors."""
    return {name: torch.from_numpy(values) for name, values in packed.values().items()}


@torch.no_grad()
def load_into(packed: PackedModel, module: torch.nn.Module) -> torch.nn.Module:
    """Sets all parameters of a module, in place; ParameterError unless names and shapes are the packed model's."""
    own, given = dict(module.named_parameters()), state_dict(packed)
    if set(own) != set(given):
        raise ParameterError("module", sorted(set(own) ^ set(given)), "these parameters are on one side only")
    for name, parameter in own.items():
        if parameter.shape != given[name].shape:
            raise ParameterError(
                "module", tuple(parameter.shape), f"{name} has shape {tuple(given[name].shape)} in the file"
            )
        parameter.copy_(given[name])
    return module


def to_module(packed: PackedModel, module: torch.nn.Module | None) -> torch.nn.Module:
    """A module with the packed weights: a copy of the one given, else the one that the note describes."""
    return load_into(packed, built(packed) if module is None else copy.deepcopy(module))


def save_safetensors(packed: PackedModel, path: str | os.PathLike[str], *, overwrite: bool = False) -> int:
    """Writes packed codes, scales and levels; returns the size of the file.

    For a tensor `name`: `name` holds its codes without gaps, `bits` each, first code in the lowest bits (uint8, flat);
    `name.scale` one float64, or one float32 for each index of the first axis; `name.shape` int64; `levels` float64. A
    weight is scale * levels[code]; where there is `name.chosen` (uint8, channels x 2**bits), scale *
    levels[chosen[channel, code]]. The metadata hold `bits` and `note` (JSON).
    """
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ImportError("this export needs an extra: pip install mezzotint[export]") from error
    tensors: dict[str, Any] = {"levels": np.asarray(packed.levels, dtype=np.float64)}
    for tensor in packed.tensors:
        tensors[tensor.name] = np.frombuffer(pack(tensor.codes, packed.bits_of(tensor)), dtype=np.uint8).copy()
        if tensor.chosen is not None:
            tensors[f"{tensor.name}.chosen"] = tensor.chosen
        tensors[f"{tensor.name}.scale"] = np.atleast_1d(tensor.scale)
        tensors[f"{tensor.name}.shape"] = np.array(tensor.codes.shape, dtype=np.int64)
    metadata = {"format": "mezzotint", "bits": str(packed.bits), "note": json.dumps(dict(packed.note), sort_keys=True)}
    with replacing(path, overwrite=overwrite) as temporary:
        save_file(tensors, temporary, metadata=metadata)
        return Path(temporary).stat().st_size


def save_onnx(
    packed: PackedModel,
    path: str | os.PathLike[str],
    *,
    module: torch.nn.Module | None = None,
    shape: tuple[int, ...] | None = None,
    dense: Dense = "DequantizeLinear",
    overwrite: bool = False,
) -> int:
    """Writes an ONNX graph whose weights are integers of 4 bits (at most 16 levels) or 8; returns the file's size.

    Arguments:
        packed: on even levels.
        path: of the file.
        module: a chain (`torch.nn.Sequential`, also nested) of dense layers, convolutions, pools, activations and
            changes of shape; if not given, the one that the note describes.
        shape: of one record's features; the note's, if not given.
        dense: the operator of dense layers. "DequantizeLinear" is in the standard and has integers as zero points;
            "MatMulNBits", of at most 16 levels, is onnxruntime's own and takes the middle between two levels as it is.

    Raises:
        ParameterError: levels that are not even, a layer of another kind, a shape that is not known, more than 16
            levels with "MatMulNBits".
        ImportError: onnx is not installed.

    Guarantees: weights are those of `packed.values()` up to rounding in float32; biases are stored as floats.
    """
    try:
        import onnx
    except ImportError as error:
        raise ImportError("this export needs an extra: pip install mezzotint[export]") from error
    size = shape or tuple(packed.note.get("architecture", {}).get("shape", ()))
    if not size:
        raise ParameterError("shape", "None", "the packed model does not say what a record looks like; give its shape")
    whole = to_module(packed, module).eval()
    graph = _Graph(onnx.helper, packed, dense)
    with torch.no_grad():
        outputs = whole(torch.zeros(1, *size)).shape[1:]
    last = graph.chain(whole, "", "features", torch.zeros(1, *size))
    model = graph.model(size, last, tuple(outputs), note=json.dumps(dict(packed.note), sort_keys=True))
    onnx.checker.check_model(model, full_check=True)
    with replacing(path, overwrite=overwrite) as temporary:
        return Path(temporary).write_bytes(model.SerializeToString())


@final
class _Graph:
    """Nodes and constants of a chain of layers."""

    def __init__(self, helper: Any, packed: PackedModel, dense: Dense) -> None:
        if dense not in _DENSE:
            raise ParameterError("dense", dense, f"use one of {', '.join(_DENSE)}")
        self.bits = 4 if len(packed.levels) <= 16 else 8
        if dense == "MatMulNBits" and self.bits > 4:
            raise ParameterError("dense", dense, "it holds at most 16 levels; use DequantizeLinear")
        self.operator = dense
        spaces = np.diff(packed.levels)
        if not np.allclose(spaces, spaces[0], rtol=1e-9, atol=0):
            raise ParameterError("levels", len(packed.levels), "ONNX multiplies integers: levels must be evenly spaced")
        self.helper, self.packed, self.space = helper, packed, float(spaces[0])
        self.tensors = {tensor.name: tensor for tensor in packed.tensors}
        self.values = packed.values()
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        zero = -min(packed.levels) / self.space
        self.middle = math.floor(zero + 0.5)
        # What is missing to weights whose zero lies between two levels.
        self.missing = 0.0 if math.isclose(zero, self.middle) else min(packed.levels) + self.space * self.middle

    def turned(self, tensor: PackedTensor) -> tuple[Any, Any, Any, Any]:
        """Codes and, for each output, scales > 0, middles, and what levels lack beside integers around the middle.

        Channels of a negative scale are turned around.
        """
        codes = tensor.levels
        scales = np.broadcast_to(np.asarray(tensor.scale, dtype=float), codes.shape[0])
        top, turn = len(self.packed.levels) - 1, scales < 0
        codes = np.where(turn.reshape(-1, *(1,) * (codes.ndim - 1)), top - codes, codes).astype(np.uint8)
        middles = np.where(turn, top - self.middle, self.middle).astype(np.uint8)
        return codes, np.abs(scales), middles, np.where(turn, -self.missing, self.missing)

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node; the name of its output."""
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(self.helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, name: str, value: Any) -> str:
        """Adds a float or int64 constant."""
        array = np.asarray(value)
        kind = 7 if array.dtype == np.int64 else 1  # INT64, FLOAT
        array = array if kind == 7 else array.astype(np.float32)
        self.constants.append(self.helper.make_tensor(name, kind, array.shape, array.tobytes(), raw=True))
        return name

    def integers(self, tensor: PackedTensor, axis: int) -> tuple[str, Any]:
        """Adds a tensor's codes; the name of (code - middle) * width in floats, and what is missing to the weights.

        Outputs lie along `axis`: matrices are turned over for 1. Widths are written for each output although all may be
        the same: onnxruntime multiplies by integers then, and unpacks weights at every call where there is a single
        width. What is missing is an array for the outputs; None if nothing is.
        """
        codes, scales, middles, missing = self.turned(tensor)
        name = tensor.name
        for part, values in ((f"{name}.codes", codes.T if axis else codes), (f"{name}.middle", middles)):
            # Two to a byte, the first in the lower half, where they have 4 bits.
            stored, kind = pack(np.ascontiguousarray(values), self.bits), 21 if self.bits == 4 else 2  # UINT4, UINT8
            self.constants.append(self.helper.make_tensor(part, kind, values.shape, stored, raw=True))
        given = f"{name}.codes", self.constant(f"{name}.width", scales * self.space), f"{name}.middle"
        return self.node("DequantizeLinear", *given, axis=axis), scales * missing if self.missing else None

    def chain(self, module: torch.nn.Module, prefix: str, name: str, sample: torch.Tensor) -> str:
        """Adds the layers of a module; the name of the last output."""
        if not isinstance(module, torch.nn.Sequential):
            return self.layer(module, prefix, name, module(sample).shape)
        with torch.no_grad():
            for key, part in module.named_children():
                name = self.chain(part, f"{prefix}{key}.", name, sample)
                sample = part(sample)
        return name

    def layer(self, module: torch.nn.Module, prefix: str, name: str, shape: Any) -> str:
        """Adds one layer."""
        known: dict[type, Callable[[], str]] = {
            torch.nn.Linear: lambda: self.dense(module, prefix, name),
            torch.nn.Conv2d: lambda: self.convolution(module, prefix, name),
            torch.nn.MaxPool2d: lambda: self.pool(module, name),
            torch.nn.Flatten: lambda: self.reshape(prefix, name, shape),
            torch.nn.Unflatten: lambda: self.reshape(prefix, name, shape),
            torch.nn.Tanh: lambda: self.node("Tanh", name),
            torch.nn.ReLU: lambda: self.node("Relu", name),
            torch.nn.Sigmoid: lambda: self.node("Sigmoid", name),
            torch.nn.Identity: lambda: name,
            torch.nn.Dropout: lambda: name,
        }
        if type(module) not in known:
            layers = ", ".join(kind.__name__ for kind in known)
            raise ParameterError("module", type(module).__name__, f"chains of {layers} are exported")
        return known[type(module)]()

    def dense(self, module: Any, prefix: str, name: str) -> str:
        product = self.blocks if self.operator == "MatMulNBits" else self.product
        out = product(self.tensors[f"{prefix}weight"], prefix, name)
        if module.bias is None:
            return out
        return self.node("Add", out, self.constant(f"{prefix}bias", self.values[f"{prefix}bias"]))

    def product(self, tensor: PackedTensor, prefix: str, name: str) -> str:
        """A dense layer's product with integers whose zero point is one."""
        weight, rest = self.integers(tensor, axis=1)
        out = self.node("MatMul", name, weight)
        if rest is None:
            return out
        # (W + rest) x = W x + rest * sum(x): the weights stay plain integers, which runtimes multiply by. A
        # subtraction, as onnxruntime merges a product and an addition before it looks for integers.
        axis = self.constant(f"{prefix}axis", np.array([-1], dtype=np.int64))
        total = self.node("ReduceSum", name, axis, keepdims=1)
        return self.node("Sub", out, self.node("Mul", total, self.constant(f"{prefix}rest", -rest)))

    def blocks(self, tensor: PackedTensor, prefix: str, name: str) -> str:
        """The same by onnxruntime's operator: inputs in blocks, each with a scale and a zero point.

        Zero points may be floats, at which it multiplies slowly; they are integers of 4 bits where levels allow it.
        """
        given, scales, middles, missing = self.turned(tensor)
        outputs, inputs = given.shape
        count = -(-inputs // _BLOCK)
        codes = np.zeros((outputs, count * _BLOCK), dtype=np.uint8)
        codes[:, :inputs] = given
        stored = pack(codes, 4)
        self.constants.append(
            self.helper.make_tensor(f"{tensor.name}.codes", 2, (outputs, count, _BLOCK // 2), stored, raw=True)
        )
        widths = self.constant(f"{tensor.name}.width", np.repeat(scales * self.space, count))
        zero = f"{tensor.name}.zero"
        if self.missing:
            self.constant(zero, np.repeat(middles - missing / self.space, count))
        else:
            # Two to a byte, each output's from a byte of its own on.
            points = np.zeros((outputs, count + count % 2), dtype=np.uint8)
            points[:, :count] = middles[:, None]
            stored = pack(points, 4)
            self.constants.append(self.helper.make_tensor(zero, 2, (len(stored),), stored, raw=True))
        return self.node(
            "MatMulNBits", name, f"{tensor.name}.codes", widths, zero, domain=_RUNTIME, K=inputs, N=outputs, bits=4,
            block_size=_BLOCK,
        )  # fmt: skip

    def convolution(self, module: Any, prefix: str, name: str) -> str:
        if isinstance(module.padding, str) or module.padding_mode != "zeros":
            raise ParameterError("padding", module.padding, "give a convolution's padding in numbers, of zeros")
        tensor = self.tensors[f"{prefix}weight"]
        weight, rest = self.integers(tensor, axis=0)
        if rest is not None:
            weight = self.node("Add", weight, self.constant(f"{prefix}rest", rest.reshape(-1, 1, 1, 1)))
        given = [name, weight]
        if module.bias is not None:
            given.append(self.constant(f"{prefix}bias", self.values[f"{prefix}bias"]))
        return self.node(
            "Conv", *given, strides=module.stride, pads=[*module.padding, *module.padding], dilations=module.dilation,
            group=module.groups,
        )  # fmt: skip

    def pool(self, module: Any, name: str) -> str:
        def pair(value: Any) -> list[int]:
            return [value, value] if isinstance(value, int) else list(value)

        return self.node(
            "MaxPool", name, kernel_shape=pair(module.kernel_size), strides=pair(module.stride),
            pads=pair(module.padding) * 2, dilations=pair(module.dilation), ceil_mode=int(module.ceil_mode),
        )  # fmt: skip

    def reshape(self, prefix: str, name: str, shape: Any) -> str:
        sizes = np.array([0, *shape[1:]], dtype=np.int64)  # 0 keeps the number of records
        return self.node("Reshape", name, self.constant(f"{prefix}shape", sizes))

    def model(self, shape: tuple[int, ...], last: str, results: tuple[int, ...], *, note: str) -> Any:
        """The whole model; one input "features", one output "outputs"."""
        self.nodes.append(self.helper.make_node("Identity", [last], ["outputs"]))
        features = self.helper.make_tensor_value_info("features", 1, ["records", *shape])
        outputs = self.helper.make_tensor_value_info("outputs", 1, ["records", *results])
        graph = self.helper.make_graph(self.nodes, "mezzotint", [features], [outputs], self.constants)
        opsets = [self.helper.make_opsetid("", OPSET)]
        if self.operator == "MatMulNBits":
            opsets.append(self.helper.make_opsetid(_RUNTIME, 1))
        model = self.helper.make_model(graph, opset_imports=opsets, ir_version=FORMAT, producer_name="mezzotint")
        self.helper.set_model_props(model, {"note": note})
        return model
