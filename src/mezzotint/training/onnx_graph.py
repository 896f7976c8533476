"""ONNX graphs in which the integers of a packed model stand in place of its float weights."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core import brought_by
from mezzotint.core.errors import ParameterError
from mezzotint.core.sampler import pack
from mezzotint.core.types import FloatArray
from mezzotint.training.packed import PackedModel, PackedTensor

with brought_by("export"):
    import onnx
    from onnx import numpy_helper

_SMALLEST_BLOCK, _LARGEST_BLOCK = 16, 256
"""Inputs of a dense layer that share a scale: onnxruntime takes powers of two, and larger ones are
faster.
"""

_UINT8, _UINT4 = 2, 21
"""ONNX's numbers for types."""

Codes = npt.NDArray[np.uint8]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Integers:
    """A weight (outputs, ...) as (code - zero) * width, plus a shortfall for levels without a 0.

    Arguments:
        codes: (outputs, ...) integers.
        widths: (outputs,) > 0.
        zeros: (outputs,) codes that stand for 0, or for the level next to it.
        shortfall: (outputs,) what is missing to the weights; None where nothing is.
    """

    codes: Codes
    widths: FloatArray
    zeros: Codes
    shortfall: FloatArray | None


@final
class Ladder:
    """Even levels as integers.

    Raises:
        ParameterError: levels that are not even.
    """

    def __init__(self, levels: tuple[float, ...]) -> None:
        spaces = np.diff(levels)
        if not np.allclose(spaces, spaces[0], rtol=1e-9, atol=0):
            remedy = "ONNX multiplies integers: levels must be evenly spaced"
            raise ParameterError("levels", len(levels), remedy)
        self.bits = 4 if len(levels) <= 16 else 8
        self._top = len(levels) - 1
        self._space = float(spaces[0])
        position_of_zero = -min(levels) / self._space
        self._zero = math.floor(position_of_zero + 0.5)
        self._shortfall = 0.0
        if not math.isclose(position_of_zero, self._zero):
            self._shortfall = min(levels) + self._space * self._zero

    def integers(self, tensor: PackedTensor) -> Integers:
        """The integers of a tensor; channels of a negative scale are turned around."""
        codes = tensor.levels
        scales = np.broadcast_to(np.asarray(tensor.scale, dtype=float), codes.shape[0])
        is_turned = scales < 0
        turned_codes = np.where(_along_first(is_turned, codes.ndim), self._top - codes, codes)
        zeros = np.where(is_turned, self._top - self._zero, self._zero)
        shortfall = None
        if self._shortfall:
            shortfall = scales * self._shortfall
        return Integers(
            codes=turned_codes.astype(np.uint8),
            widths=np.abs(scales) * self._space,
            zeros=zeros.astype(np.uint8),
            shortfall=shortfall,
        )


def _along_first(values: npt.NDArray[Any], dimensions: int) -> npt.NDArray[Any]:
    """(outputs,) values, to be broadcast over the further axes of a tensor."""
    return values.reshape(-1, *(1,) * (dimensions - 1))


def put_integers(model: Any, packed: PackedModel) -> None:
    """Replaces the float weights of a graph by integers, in place.

    A dense layer becomes MatMul of the inputs and DequantizeLinear of its integers, in blocks, from
    which its bias is subtracted with the other sign: onnxruntime merges a product and an addition
    into a Gemm before it looks for integers, and then unpacks the weights at every call. Other
    weights are dequantized as they are. Weights of one dimension (biases, norms) stay floats.

    Arguments:
        model: whose initializers have the names of the packed tensors.
        packed: on even levels.
    Raises:
        ParameterError: levels that are not even.
    """
    _Editor(model.graph, packed).rewrite()


@final
class _Editor:
    """Rewrites the nodes of a graph one by one; nodes that depend on constants alone come first."""

    def __init__(self, graph: Any, packed: PackedModel) -> None:
        self._graph = graph
        self._ladder = Ladder(packed.levels)
        self._constants: dict[str, Any] = {value.name: value for value in graph.initializer}
        self._drop_copies()
        self._tensors = {
            tensor.name: tensor
            for tensor in packed.tensors
            if tensor.codes.ndim >= 2 and tensor.name in self._constants
        }
        self._users: dict[str, list[Any]] = defaultdict(list)
        for node in graph.node:
            for name in node.input:
                self._users[name].append(node)
        self._dense_names = {name for name in self._tensors if self._is_dense(name)}
        self._first_nodes: list[Any] = []
        self._nodes: list[Any] = []
        self._weights: dict[tuple[str, bool], str] = {}
        self._transposed: dict[str, str] = {}
        self._products: set[str] = set()

    def rewrite(self) -> None:
        """Rewrites all nodes, and drops the constants that none uses any more."""
        for node in self._graph.node:
            self._rewrite_node(node)
        nodes = [*self._first_nodes, *self._nodes]
        used_names = {name for node in nodes for name in node.input}
        del self._graph.node[:], self._graph.initializer[:], self._graph.value_info[:]
        self._graph.node.extend(nodes)
        self._graph.initializer.extend(
            value for name, value in self._constants.items() if name in used_names
        )

    def _drop_copies(self) -> None:
        """Leaves out nodes that copy a constant, as the exporter writes for equal weights, or
        repeat one.
        """
        originals: dict[str, str] = {}
        names_by_content: dict[bytes, str] = {}
        kept_nodes: list[Any] = []
        for node in self._graph.node:
            for position, name in enumerate(node.input):
                node.input[position] = originals.get(name, name)
            original = ""
            if node.op_type == "Identity" and node.input[0] in self._constants:
                original = node.input[0]
            elif node.op_type == "Constant":
                content = node.attribute[0].SerializeToString()
                original = names_by_content.setdefault(content, node.output[0])
            if original in ("", node.output[0]):
                kept_nodes.append(node)
            else:
                originals[node.output[0]] = original
        del self._graph.node[:]
        self._graph.node.extend(kept_nodes)

    def _is_dense(self, name: str) -> bool:
        """Whether some node multiplies by the weight's transpose."""
        return any(_is_dense_gemm(node, name) or self._is_turn(node) for node in self._users[name])

    def _is_turn(self, node: Any) -> bool:
        """Whether a node transposes a matrix that nodes then multiply by."""
        if node.op_type != "Transpose" or _attributes(node).get("perm") != [1, 0]:
            return False
        output = node.output[0]
        consumers = self._users[output]
        are_products = all(
            consumer.op_type == "MatMul"
            and consumer.input[1] == output
            and consumer.input[0] != output
            for consumer in consumers
        )
        return bool(consumers) and are_products

    def _rewrite_node(self, node: Any) -> None:
        first, second, *more = [*node.input, "", ""]
        if second in self._tensors and _is_dense_gemm(node, second):
            self._add_dense(first, second, more[0], node.output[0])
        elif first in self._tensors and self._is_turn(node):
            self._transposed[node.output[0]] = first
        elif node.op_type == "MatMul" and second in self._transposed:
            self._add_dense(first, self._transposed[second], "", node.output[0])
        elif node.op_type == "Add" and first in self._products and self._is_bias(second):
            self._add_bias(first, second, node.output[0])
        elif node.op_type == "Add" and second in self._products and self._is_bias(first):
            self._add_bias(second, first, node.output[0])
        else:
            for position, name in enumerate(node.input):
                node.input[position] = self._value(name)
            self._nodes.append(node)

    def _value(self, name: str) -> str:
        """The name of a value as it stands in the module, where it is a weight in floats again."""
        if name in self._tensors:
            return self._whole_weight(name)
        return name

    def _is_bias(self, name: str) -> bool:
        return name in self._constants and len(self._constants[name].dims) == 1

    def _add_dense(self, inputs: str, weight: str, bias: str, output: str) -> None:
        """Adds the product of inputs and a weight's transpose, plus a bias if there is a name of
        it.
        """
        integers = self._ladder.integers(self._tensors[weight])
        inputs, columns = self._value(inputs), self._columns(weight)
        last_name = output
        if bias:
            last_name = f"{output}.without_bias"
        product = last_name
        if integers.shortfall is not None:
            product = f"{output}.product"
        self._add("MatMul", [inputs, columns], product)
        if integers.shortfall is not None:
            # (W + m) x = W x + m sum(x): runtimes multiply by W, of plain integers.
            total_name, correction = f"{output}.total", f"{output}.correction"
            last_axis = self._constant("last_axis", np.array([-1], dtype=np.int64))
            negative = self._constant(f"{weight}.shortfall", -integers.shortfall)
            self._add("ReduceSum", [inputs, last_axis], total_name, keepdims=1)
            self._add("Mul", [total_name, negative], correction)
            self._add("Sub", [product, correction], last_name)
        self._products.add(last_name)
        if bias:
            self._add_bias(last_name, bias, output)

    def _add_bias(self, product: str, bias: str, output: str) -> None:
        if bias in self._constants and bias not in self._tensors:
            values = numpy_helper.to_array(self._constants[bias])
            negative = self._constant(f"{bias}.negative", -values)
        else:
            negative = f"{output}.negative_bias"
            self._add("Neg", [self._value(bias)], negative)
        self._add("Sub", [product, negative], output)

    def _columns(self, name: str) -> str:
        """A matrix as inputs x outputs, from integers in blocks of inputs."""
        weight_key = (name, True)
        if weight_key not in self._weights:
            integers = self._ladder.integers(self._tensors[name])
            inputs = integers.codes.shape[1]
            block_size = min(max(_SMALLEST_BLOCK, 1 << (inputs - 1).bit_length()), _LARGEST_BLOCK)
            blocks = (-(-inputs // block_size), 1)
            operands = [
                self._integers(f"{name}.codes", integers.codes.T),
                self._constant(f"{name}.width", np.tile(integers.widths, blocks)),
                self._integers(f"{name}.zero", np.tile(integers.zeros, blocks)),
            ]
            output = f"{name}.columns"
            self._add_first("DequantizeLinear", operands, output, axis=0, block_size=block_size)
            self._weights[weight_key] = output
        return self._weights[weight_key]

    def _whole_weight(self, name: str) -> str:
        """A weight in floats as it stands in the module."""
        weight_key = (name, False)
        if weight_key not in self._weights:
            rows_name = f"{name}.rows"
            if name in self._dense_names:  # a matrix of dense layers, too, is stored once
                self._add_first("Transpose", [self._columns(name)], rows_name, perm=[1, 0])
            else:
                self._add_rows(name, rows_name)
            self._weights[weight_key] = self._with_shortfall(name, rows_name)
        return self._weights[weight_key]

    def _add_rows(self, name: str, output: str) -> None:
        """Adds a weight without its shortfall."""
        integers = self._ladder.integers(self._tensors[name])
        operands = [
            self._integers(f"{name}.codes", integers.codes),
            self._constant(f"{name}.width", integers.widths),
            self._integers(f"{name}.zero", integers.zeros),
        ]
        self._add_first("DequantizeLinear", operands, output, axis=0)

    def _with_shortfall(self, name: str, rows: str) -> str:
        integers = self._ladder.integers(self._tensors[name])
        if integers.shortfall is None:
            return rows
        addend = _along_first(integers.shortfall, integers.codes.ndim)
        whole_name = f"{name}.whole"
        self._add_first("Add", [rows, self._constant(f"{name}.missing", addend)], whole_name)
        return whole_name

    def _add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> None:
        self._nodes.append(onnx.helper.make_node(kind, inputs, [output], **attributes))

    def _add_first(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> None:
        self._first_nodes.append(onnx.helper.make_node(kind, inputs, [output], **attributes))

    def _constant(self, name: str, values: npt.NDArray[Any]) -> str:
        """Adds a constant: floats of 32 bits, or integers as they are."""
        if values.dtype.kind == "f":
            values = values.astype(np.float32)
        self._constants[name] = numpy_helper.from_array(values, name)
        return name

    def _integers(self, name: str, values: Codes) -> str:
        """Adds integers: of 4 bits two to a byte, the first in the lower half."""
        bits = self._ladder.bits
        onnx_type = _UINT4 if bits == 4 else _UINT8
        content = pack(np.ascontiguousarray(values), bits)
        tensor = onnx.helper.make_tensor(name, onnx_type, values.shape, content, raw=True)
        self._constants[name] = tensor
        return name


def _is_dense_gemm(node: Any, weight: str) -> bool:
    """Whether a node is a dense layer with this weight (outputs, inputs)."""
    if node.op_type != "Gemm" or node.input[1] != weight or node.input[0] == weight:
        return False
    plain = {"alpha": 1.0, "beta": 1.0, "transA": 0}
    return {**plain, **_attributes(node)} == {**plain, "transB": 1}


def _attributes(node: Any) -> dict[str, Any]:
    """What a node is set by."""
    return {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
