"""ONNX graphs of packed models: nodes, constants, and weights as integers with a scale for each output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_choice
from mezzotint.core.errors import ParameterError
from mezzotint.core.sampler import pack
from mezzotint.core.types import FloatArray
from mezzotint.training.packed import PackedModel, PackedTensor

OPSET = 21
"""The first with DequantizeLinear of 4-bit integers."""

FORMAT = 10

Dense = Literal["DequantizeLinear", "MatMulNBits"]
_RUNTIME = "com.microsoft"
_BLOCKS = 16, 128
"""The least and the most inputs that share a scale and a zero point in MatMulNBits: up to 5 bytes beside 64."""

_FLOATS, _ROUNDED = 1, 4
"""Its levels of accuracy: inputs in 32-bit floats, or rounded to 8 bits."""

FLOAT, UINT8, INT64, BOOL, UINT4 = 1, 2, 7, 9, 21
"""ONNX's numbers for types."""

_TYPES = {
    "f": (FLOAT, np.float32),
    "i": (INT64, np.int64),
    "u": (INT64, np.int64),
    "b": (BOOL, np.bool_),
}


class Graph:
    """Nodes and constants of one graph. A constant of a name that is there already is not added again.

    Arguments:
        helper: onnx.helper.
        packed: whose tensors become the weights.
        dense: the operator of dense layers.
        exact: MatMulNBits multiplies floats, not inputs rounded to 8 bits.
    Raises:
        ParameterError: levels that are not even, more than 16 with "MatMulNBits".
    """

    def __init__(
        self, helper: Any, packed: PackedModel, dense: Dense, *, exact: bool = False
    ) -> None:
        check_choice("dense", dense, get_args(Dense))
        self.bits = 4 if len(packed.levels) <= 16 else 8
        if dense == "MatMulNBits" and self.bits > 4:
            raise ParameterError("dense", dense, "it holds at most 16 levels; use DequantizeLinear")
        self.operator, self.exact = dense, exact
        spaces = np.diff(packed.levels)
        if not np.allclose(spaces, spaces[0], rtol=1e-9, atol=0):
            raise ParameterError(
                "levels",
                len(packed.levels),
                "ONNX multiplies integers: levels must be evenly spaced",
            )
        self.helper, self.packed, self.space = helper, packed, float(spaces[0])
        self.tensors = {tensor.name: tensor for tensor in packed.tensors}
        self.values = packed.values()
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {}
        self._dequantized: dict[tuple[str, int], str] = {}
        zero = -min(packed.levels) / self.space
        self.middle = math.floor(zero + 0.5)
        # What is missing to weights whose zero lies between two levels.
        self.missing = 0.0
        if not math.isclose(zero, self.middle):
            self.missing = min(packed.levels) + self.space * self.middle

    def turned(
        self, tensor: PackedTensor
    ) -> tuple[npt.NDArray[np.uint8], FloatArray, npt.NDArray[np.uint8], FloatArray]:
        """Codes and, for each output, scales > 0, middles, and what levels lack beside integers around the middle.

        Channels of a negative scale are turned around.
        """
        codes = tensor.levels
        scales = np.broadcast_to(np.asarray(tensor.scale, dtype=float), codes.shape[0])
        top, turn = len(self.packed.levels) - 1, scales < 0
        codes = np.where(turn.reshape(-1, *(1,) * (codes.ndim - 1)), top - codes, codes).astype(
            np.uint8
        )
        middles = np.where(turn, top - self.middle, self.middle).astype(np.uint8)
        return codes, np.abs(scales), middles, np.where(turn, -self.missing, self.missing)

    def add(self, kind: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Adds a node; the names of its outputs."""
        name = f"{kind.lower()}{len(self.nodes)}"
        names = [name]
        if outputs > 1:
            names = [f"{name}.{number}" for number in range(outputs)]
        self.nodes.append(self.helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node of one output; its name."""
        return self.add(kind, *inputs, outputs=1, **attributes)[0]

    def raw(self, name: str, kind: int, shape: Sequence[int], content: bytes) -> str:
        """Adds a constant as the bytes that it is stored in."""
        if name not in self.constants:
            self.constants[name] = self.helper.make_tensor(name, kind, shape, content, raw=True)
        return name

    def constant(self, value: npt.ArrayLike, name: str = "") -> str:
        """Adds floats, integers or truth values."""
        array = np.asarray(value)
        kind, stored = _TYPES[array.dtype.kind]
        return self.raw(
            name or f"constant{len(self.constants)}",
            kind,
            array.shape,
            array.astype(stored).tobytes(),
        )

    def weight(self, name: str) -> str:
        """A parameter in floats: from integers, or as it is where it has one dimension."""
        if self.values[name].ndim < 2:
            return self.constant(self.values[name], name)
        weight, missing = self.integers(self.tensors[name], axis=0)
        if missing is None:
            return weight
        other_axes = (1,) * (self.values[name].ndim - 1)
        return self.node("Add", weight, self.constant(missing.reshape(-1, *other_axes)))

    def integers(self, tensor: PackedTensor, axis: int) -> tuple[str, Any]:
        """Adds a tensor's codes; the name of (code - middle) * width in floats, and what is missing to the weights.

        Outputs lie along `axis`: matrices are turned over for 1. Widths are written for each output although all may be
        the same: onnxruntime multiplies by integers then, and unpacks weights at every call where there is a single
        width. What is missing is an array for the outputs; None if nothing is.
        """
        name = tensor.name
        codes, scales, middles, shortfall = self.turned(tensor)
        if (name, axis) not in self._dequantized:
            codes_name = f"{name}.codes"
            if axis:
                codes_name, codes = f"{name}.columns", codes.T
            inputs = (
                self._integers(codes_name, codes),
                self.constant(scales * self.space, f"{name}.width"),
                self._integers(f"{name}.middle", middles),
            )
            self._dequantized[name, axis] = self.node("DequantizeLinear", *inputs, axis=axis)
        missing = scales * shortfall if self.missing else None
        return self._dequantized[name, axis], missing

    def _integers(self, name: str, values: npt.NDArray[np.uint8]) -> str:
        """Adds integers: of 4 bits two to a byte, the first in the lower half."""
        kind = UINT4 if self.bits == 4 else UINT8
        return self.raw(name, kind, values.shape, pack(np.ascontiguousarray(values), self.bits))

    def dense(self, name: str, inputs: str) -> str:
        """The product of inputs and a weight of outputs x inputs, by the graph's operator of dense layers."""
        tensor = self.tensors[name]
        if self.operator == "MatMulNBits":
            return self._blocks(tensor, inputs)
        weight, missing = self.integers(tensor, axis=1)
        product = self.node("MatMul", inputs, weight)
        if missing is None:
            return product
        # (W + m) x = W x + m sum(x): the weights stay plain integers, which runtimes multiply by. A
        # subtraction, as onnxruntime merges a product and an addition before it looks for integers.
        total = self.node("ReduceSum", inputs, self.constant([-1], "last"), keepdims=1)
        correction = self.node("Mul", total, self.constant(-missing, f"{tensor.name}.rest"))
        return self.node("Sub", product, correction)

    def _blocks(self, tensor: PackedTensor, inputs: str) -> str:
        """The same by onnxruntime's operator: inputs in blocks, each with a scale and a zero point.

        Zero points may be floats, at which it multiplies slowly; they are integers of 4 bits where levels allow it.
        """
        turned, scales, middles, missing = self.turned(tensor)
        outputs, width = turned.shape
        block = min(max(_BLOCKS[0], 1 << (width - 1).bit_length()), _BLOCKS[1])
        count = -(-width // block)
        codes = np.zeros((outputs, count * block), dtype=np.uint8)
        codes[:, :width] = turned
        blocks = self.raw(
            f"{tensor.name}.blocks", UINT8, (outputs, count, block // 2), pack(codes, 4)
        )
        widths = self.constant(np.repeat(scales * self.space, count), f"{tensor.name}.widths")
        zero = f"{tensor.name}.zero"
        if self.missing:
            self.constant(np.repeat(middles - missing / self.space, count), zero)
        else:
            # Two to a byte, each output from a new byte on.
            points = np.zeros((outputs, count + count % 2), dtype=np.uint8)
            points[:, :count] = middles[:, None]
            self.raw(zero, UINT8, (points.size // 2,), pack(points, 4))
        return self.node(
            "MatMulNBits", inputs, blocks, widths, zero, domain=_RUNTIME, K=width, N=outputs, bits=4, block_size=block,
            accuracy_level=_FLOATS if self.exact or self.missing else _ROUNDED,
        )  # fmt: skip

    def model(
        self, last: str, shape: Sequence[int], kind: int, results: Sequence[int], *, note: str
    ) -> Any:
        """The complete model: one input "features" of type `kind`, one output "outputs"."""
        self.nodes.append(self.helper.make_node("Identity", [last], ["outputs"]))
        features = self.helper.make_tensor_value_info("features", kind, ["records", *shape])
        outputs = self.helper.make_tensor_value_info("outputs", FLOAT, ["records", *results])
        graph = self.helper.make_graph(
            self.nodes, "mezzotint", [features], [outputs], list(self.constants.values())
        )
        opsets = [self.helper.make_opsetid("", OPSET)]
        if self.operator == "MatMulNBits":
            opsets.append(self.helper.make_opsetid(_RUNTIME, 1))
        model = self.helper.make_model(
            graph, opset_imports=opsets, ir_version=FORMAT, producer_name="mezzotint"
        )
        self.helper.set_model_props(model, {"note": note})
        return model
