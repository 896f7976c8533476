"""ONNX graphs in which the integers of a packed model stand in place of its float weights."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core import brought_by
from mezzotint.core.errors import ParameterError
from mezzotint.core.sampler import pack
from mezzotint.core.types import AnyArray, FloatArray
from mezzotint.training.packed import PackedModel, PackedTensor

with brought_by("export"):
    import onnx
    from onnx import TensorProto, numpy_helper

_SMALLEST_BLOCK = 16
_LARGEST_BLOCK = 256
"""Inputs of a dense layer that share a scale: onnxruntime takes powers of two, and larger ones are
faster.
"""

_PLAIN = {"alpha": 1.0, "beta": 1.0, "transA": 0}
"""Settings of a Gemm that is a dense layer."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Integers:
    """A weight (outputs, ...) as signed integers times a width, plus a shortfall.

    Runtimes multiply by signed integers in less time than by codes that a number stands beside
    which means 0.

    Arguments:
        numbers: (outputs, ...) integers.
        widths: (outputs,) not 0.
        shortfall: (outputs,) what is missing to the weights, where no level is 0; else None.
    """

    numbers: npt.NDArray[np.int16]
    widths: FloatArray
    shortfall: FloatArray | None


def integers_of(tensor: PackedTensor, levels: tuple[float, ...]) -> Integers:
    """The integers of a tensor on even levels.

    Raises:
        ParameterError: levels that are not even.
    """
    spaces = np.diff(levels)
    spacing = float(spaces[0])
    if not np.allclose(spaces, spacing, rtol=1e-9, atol=0):
        raise ParameterError(
            "levels", len(levels), "ONNX multiplies integers: levels must be evenly spaced"
        )
    half_count = len(levels) // 2
    numbers = tensor.levels.astype(np.int16) - half_count
    scales = np.asarray(tensor.scale, dtype=float)
    channel_scales = np.broadcast_to(scales, len(numbers))
    widths = channel_scales * spacing
    lowest_level = levels[0]
    position_of_zero = -lowest_level / spacing
    if math.isclose(position_of_zero, half_count - 1):
        # One more level is above 0 than below; of signed integers one more is below.
        mirrored = -1 - numbers
        return Integers(numbers=mirrored, widths=-widths, shortfall=None)
    shortfall = None
    if not math.isclose(position_of_zero, half_count):
        level_of_zero = lowest_level + spacing * half_count
        shortfall = channel_scales * level_of_zero
    return Integers(numbers=numbers, widths=widths, shortfall=shortfall)


def _along_first(values: AnyArray, dimensions: int) -> AnyArray:
    """(outputs,) values, to be broadcast over the further axes of a tensor."""
    other_axes = range(1, dimensions)
    return np.expand_dims(values, tuple(other_axes))


def put_integers(model: Any, packed: PackedModel) -> None:
    """Replaces the float weights of a graph by integers, in place.

    A dense layer becomes MatMul of its inputs and DequantizeLinear of its integers, inputs by
    outputs, in blocks of inputs: what onnxruntime multiplies by without unpacking it. The bias of a
    Gemm is subtracted with the other sign: onnxruntime merges a product, an addition and an
    activation before it looks for integers. Other weights are dequantized as they are. Weights of
    one dimension (biases, norms) stay floats.

    Arguments:
        model: whose initializers have the names of the packed tensors.
        packed: on even levels.
    Raises:
        ParameterError: levels that are not even.
    """
    editor = _Editor(model.graph, packed)
    for node in list(model.graph.node):
        editor.rewrite(node)
    editor.finish()


@final
class _Editor:
    """Rewrites the nodes of a graph one by one; nodes that depend on constants alone come first."""

    def __init__(self, graph: Any, packed: PackedModel) -> None:
        self._graph = graph
        self._constants: dict[str, Any] = {}
        for constant in graph.initializer:
            self._constants[constant.name] = constant
        self._weights: dict[str, Integers] = {}
        for tensor in packed.tensors:
            name = tensor.name
            if tensor.codes.ndim >= 2 and name in self._constants:
                self._weights[name] = integers_of(tensor, packed.levels)
        self._bits = 8
        self._integer_type = TensorProto.INT8
        if len(packed.levels) <= 2**4:
            self._bits = 4
            self._integer_type = TensorProto.INT4
        self._originals: dict[str, str] = {}
        self._names_by_content: dict[bytes, str] = {}
        self._turned: dict[str, str] = {}
        self._first_nodes: dict[str, Any] = {}
        self._nodes: list[Any] = []

    def rewrite(self, node: Any) -> None:
        """Adds a node that reads integers where it read a weight."""
        node.input[:] = [self._originals.get(name, name) for name in node.input]
        inputs = list(node.input)
        first, second, *_ = [*inputs, "", ""]
        output = node.output[0]
        original = self._original(node)
        if original != output:
            self._originals[output] = original
        elif node.op_type == "Transpose" and self._is_matrix(first):
            self._turned[output] = first
        elif node.op_type == "MatMul" and second in self._turned:
            self._add_dense(node, self._turned[second])
        elif self._is_matrix(second) and _is_dense_gemm(node):
            self._add_dense(node, second)
        else:
            node.input[:] = [self._value(name) for name in inputs]
            self._nodes.append(node)

    def finish(self) -> None:
        """Writes the nodes into the graph, and the constants that they use."""
        graph = self._graph
        nodes = [*self._first_nodes.values(), *self._nodes]
        used_names: set[str] = set()
        for node in nodes:
            used_names.update(node.input)
        del graph.node[:]
        del graph.initializer[:]
        del graph.value_info[:]
        graph.node.extend(nodes)
        for name, constant in self._constants.items():
            if name in used_names:
                graph.initializer.append(constant)

    def _original(self, node: Any) -> str:
        """The name of the constant that a node copies, as the exporter writes for equal weights, or
        repeats; else that of its output.
        """
        output = node.output[0]
        if node.op_type == "Identity":
            copied_name = node.input[0]
            if copied_name in self._constants:
                return copied_name
        if node.op_type == "Constant":
            attribute = node.attribute[0]
            content = attribute.SerializeToString()
            return self._names_by_content.setdefault(content, output)
        return output

    def _is_matrix(self, name: str) -> bool:
        if name not in self._weights:
            return False
        return self._weights[name].numbers.ndim == 2

    def _value(self, name: str) -> str:
        """The name of a value in floats; weights and their transposes are dequantized first."""
        if name in self._turned:
            weight = self._value(self._turned[name])
            return self._add_transpose(weight, name)
        if name not in self._weights:
            return name
        integers = self._weights[name]
        rows_name = self._rows(name)
        if integers.shortfall is None:
            return rows_name
        addend = _along_first(integers.shortfall, integers.numbers.ndim)
        addend_name = self._constant(f"{name}.missing", addend)
        return self._add_first("Add", [rows_name, addend_name], f"{name}.whole")

    def _rows(self, name: str) -> str:
        """A weight as it stands in the module, but for its shortfall."""
        if self._is_matrix(name):
            columns_name = self._columns(name)
            return self._add_transpose(columns_name, f"{name}.rows")
        integers = self._weights[name]
        return self._dequantized(name, integers.numbers, integers.widths)

    def _add_transpose(self, matrix: str, output: str) -> str:
        return self._add_first("Transpose", [matrix], output, perm=[1, 0])

    def _columns(self, name: str) -> str:
        """A matrix as inputs x outputs, from integers in blocks of inputs."""
        integers = self._weights[name]
        columns = integers.numbers.T
        input_count = len(columns)
        power_of_two = 1 << (input_count - 1).bit_length()
        block_size = max(_SMALLEST_BLOCK, power_of_two)
        block_size = min(block_size, _LARGEST_BLOCK)
        block_count = math.ceil(input_count / block_size)
        block_widths = np.tile(integers.widths, (block_count, 1))
        return self._dequantized(name, columns, block_widths, block_size=block_size)

    def _dequantized(
        self,
        name: str,
        numbers: npt.NDArray[np.int16],
        widths: FloatArray,
        **block_size: int,
    ) -> str:
        codes_name = self._integers(f"{name}.codes", numbers)
        widths_name = self._constant(f"{name}.width", widths)
        operands = [codes_name, widths_name]
        output = f"{name}.floats"
        return self._add_first("DequantizeLinear", operands, output, axis=0, **block_size)

    def _add_dense(self, node: Any, weight: str) -> None:
        """Adds a product of inputs and a weight's transpose, and what a Gemm adds to it."""
        inputs = self._value(node.input[0])
        output = node.output[0]
        negative_terms: list[str] = []
        shortfall = self._weights[weight].shortfall
        if shortfall is not None:
            # (W + m) x = W x + m sum(x): runtimes multiply by W, of plain integers.
            last_axis = self._constant("last_axis", np.array([-1], dtype=np.int64))
            negative = self._constant(f"{weight}.shortfall", -shortfall)
            total = f"{output}.total"
            correction = f"{output}.correction"
            self._add("ReduceSum", [inputs, last_axis], total, keepdims=1)
            self._add("Mul", [total, negative], correction)
            negative_terms.append(correction)
        if len(node.input) > 2:
            bias = node.input[2]
            negative_terms.append(self._negative(bias))
        step_count = len(negative_terms)
        result_names = [f"{output}.{step}" for step in range(step_count)]
        result_names.append(output)
        columns_name = self._columns(weight)
        minuend = result_names[0]
        self._add("MatMul", [inputs, columns_name], minuend)
        for negative_term, difference in zip(negative_terms, result_names[1:], strict=True):
            self._add("Sub", [minuend, negative_term], difference)
            minuend = difference

    def _negative(self, bias: str) -> str:
        """The name of a bias with the other sign."""
        negative = f"{bias}.negative"
        if bias in self._constants and bias not in self._weights:
            values = numpy_helper.to_array(self._constants[bias])
            return self._constant(negative, -values)
        positive = self._value(bias)
        self._add("Neg", [positive], negative)
        return negative

    def _add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> None:
        node = onnx.helper.make_node(kind, inputs, [output], **attributes)
        self._nodes.append(node)

    def _add_first(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        if output not in self._first_nodes:
            node = onnx.helper.make_node(kind, inputs, [output], **attributes)
            self._first_nodes[output] = node
        return output

    def _constant(self, name: str, values: AnyArray) -> str:
        """Adds a constant: floats of 32 bits, or integers as they are."""
        if values.dtype.kind == "f":
            values = values.astype(np.float32)
        constant = numpy_helper.from_array(values, name)
        self._constants[name] = constant
        return name

    def _integers(self, name: str, numbers: npt.NDArray[np.int16]) -> str:
        """Adds signed integers: of 4 bits two to a byte, the first in the lower half."""
        low_bits = 2**self._bits - 1
        integer_bytes = np.ascontiguousarray(numbers).astype(np.uint8)
        content = pack(integer_bytes & low_bits, self._bits)
        constant = onnx.helper.make_tensor(
            name, self._integer_type, numbers.shape, content, raw=True
        )
        self._constants[name] = constant
        return name


def _is_dense_gemm(node: Any) -> bool:
    """Whether a node multiplies its first input by the transpose of its second."""
    if node.op_type != "Gemm":
        return False
    first, second, *_ = node.input
    if first == second:
        return False
    settings = dict(_PLAIN)
    for attribute in node.attribute:
        settings[attribute.name] = onnx.helper.get_attribute_value(attribute)
    return settings == _PLAIN | {"transB": 1}
