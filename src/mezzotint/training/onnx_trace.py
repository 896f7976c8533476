"""What a module computes of any number of records, as an ONNX graph with weights in floats, by
PyTorch's exporter.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, final

from mezzotint.core import brought_by
from mezzotint.core.errors import ParameterError
from mezzotint.training.models import torch

with brought_by("export"):
    import onnx
    import onnx.version_converter

Inputs = Literal["float32", "int64"]

_DTYPES = {"float32": torch.float32, "int64": torch.int64}

OPSET = 21
"""The first with DequantizeLinear of 4-bit integers, and of blocks."""

FORMAT = 10

_EXPORTER_OPSET = 20
"""The latest that PyTorch writes."""

_TOLERANCE = 1e-4
"""Of the largest output, between records together and each alone; sums may be taken in another
order.
"""


def float_graph(module: torch.nn.Module, shape: tuple[int, ...], inputs: Inputs) -> Any:
    """The ONNX model of what a module computes of any number of records, with weights in floats.

    Its input is "features", its output "outputs"; weights have the names of parameters.

    Raises:
        ParameterError: as of `export.save_onnx`.
    """
    results = _check_pass(module, shape, inputs)
    onnx_model = _traced_model(module, shape, inputs, records=2)
    if onnx_model != _traced_model(module, shape, inputs, records=3):
        raise _refusal(module, "its forward pass looks at the number of records")
    onnx_model = onnx.version_converter.convert_version(onnx_model, OPSET)
    outputs = onnx.helper.make_tensor_value_info(
        "outputs", onnx.TensorProto.FLOAT, ["records", *results]
    )
    del onnx_model.graph.output[:], onnx_model.graph.value_info[:]
    onnx_model.graph.output.append(outputs)
    onnx_model.ir_version = FORMAT
    onnx_model.producer_name = "mezzotint"
    return onnx_model


def _traced_model(
    module: torch.nn.Module, shape: tuple[int, ...], inputs: Inputs, *, records: int
) -> Any:
    """What PyTorch's exporter writes of a pass over some records; constants are not folded."""
    buffer: Any = io.BytesIO()
    with _quiet_export(module, shape):
        torch.onnx.export(
            _SingleInput(module),
            (torch.zeros(records, *shape, dtype=_DTYPES[inputs]),),
            buffer,
            dynamo=False,
            opset_version=_EXPORTER_OPSET,
            do_constant_folding=False,
            # In evaluation it would merge norms into convolutions, whose weights are then others.
            training=torch.onnx.TrainingMode.PRESERVE,
            input_names=["features"],
            output_names=["outputs"],
            dynamic_axes={"features": {0: "records"}, "outputs": {0: "records"}},
        )
    onnx_model = onnx.load_from_string(buffer.getvalue())
    _shorten_names(onnx_model.graph)
    return onnx_model


@final
class _SingleInput(torch.nn.Module):
    """A module called with its features alone: the exporter would make tensors of settings by
    default.
    """

    def __init__(self, plain: torch.nn.Module) -> None:
        super().__init__()
        self.plain = plain

    def forward(self, features: torch.Tensor) -> Any:
        return self.plain(features)


def _shorten_names(graph: Any) -> None:
    """Gives weights the names of the plain module, and numbers to whatever nodes give."""
    short_names = {value.name: value.name.removeprefix("plain.") for value in graph.initializer}
    for value in graph.initializer:
        value.name = short_names[value.name]
    short_names |= {"features": "features", "outputs": "outputs", "": ""}
    for operation in graph.node:
        operation.name = ""
        for position, name in enumerate(operation.input):
            operation.input[position] = short_names[name]
        for position, name in enumerate(operation.output):
            operation.output[position] = short_names.setdefault(name, f"value{len(short_names)}")


@contextmanager
def _quiet_export(module: torch.nn.Module, shape: tuple[int, ...]) -> Iterator[None]:
    """Turns the exporters' errors into ParameterError; attention is followed in its parts."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        remedy = f"PyTorch cannot follow it with any number of records of shape {shape}: {reason}"
        raise _refusal(module, remedy) from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


def _refusal(module: torch.nn.Module, reason: str) -> ParameterError:
    return ParameterError("module", type(module).__name__, reason)


def _check_pass(module: torch.nn.Module, shape: tuple[int, ...], inputs: Inputs) -> tuple[int, ...]:
    """Refuses a pass that an exported graph would not repeat; returns the shape of a record's
    output.
    """
    with _quiet_export(module, shape):
        records = torch.zeros(2, *shape, dtype=_DTYPES[inputs])
        any_number = ({0: torch.export.Dim.DYNAMIC},)
        program = torch.export.export(module, (records,), dynamic_shapes=any_number)
    _check_number_of_records(module, program)
    for operation in program.graph.nodes:
        if _draws(operation):
            raise _refusal(module, f"it draws random numbers ({operation.target})")
    results = _result_shape(module, program)
    with _quiet_export(module, shape):
        _check_each_alone(module, shape, inputs)
    return results


def _check_number_of_records(module: torch.nn.Module, program: Any) -> None:
    """Refuses what holds for some numbers of records only: PyTorch notes it as a range or a
    guard.
    """
    findings = [
        f"{limits.lower} to {limits.upper} records"
        for limits in program.range_constraints.values()
        if limits.lower > 2 or str(limits.upper) != "int_oo"
    ]
    findings += getattr(program, "_guards_code", ())
    if findings:
        remedy = (
            f"its forward pass looks at the number of records ({findings[0]}); what is exported "
            "holds for any number"
        )
        raise _refusal(module, remedy)


def _draws(node: Any) -> bool:
    """Whether an operation draws random numbers; dropout and attention may, and say so."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    argument_names = [argument.name for argument in node.target._schema.arguments]
    values = {**dict(zip(argument_names, node.args, strict=False)), **node.kwargs}
    if "train" in argument_names:
        return bool(values.get("train", True))
    return values.get("dropout_p", 0.0) != 0 or "dropout_p" not in argument_names


def _result_shape(module: torch.nn.Module, program: Any) -> tuple[int, ...]:
    """Sizes of a record's output."""
    (inputs,) = program.graph_signature.user_inputs
    (output_node,) = [operation for operation in program.graph.nodes if operation.op == "output"]
    (records,) = [
        operation.meta["val"].shape[0]
        for operation in program.graph.nodes
        if operation.name == inputs
    ]
    values: list[Any] = [getattr(result, "meta", {}).get("val") for result in output_node.args[0]]
    if len(values) != 1 or not _has_records_first(values[0], records):
        remedy = f"it has to give one tensor of floats, records first, not {values}"
        raise _refusal(module, remedy)
    return tuple(values[0].shape[1:])


def _has_records_first(value: Any, records: Any) -> bool:
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32 or not value.dim():
        return False
    return str(value.shape[0]) == str(records)


def _check_each_alone(module: torch.nn.Module, shape: tuple[int, ...], inputs: Inputs) -> None:
    """Refuses a pass whose outputs of a few made-up records are not those of each alone."""
    generator = torch.Generator().manual_seed(0)
    if inputs == "int64":
        records = torch.randint(2, (3, *shape), generator=generator)
    else:
        records = torch.randn(3, *shape, generator=generator)
    together = module(records)
    single_outputs = torch.cat([module(record[None]) for record in records])
    largest = together.nan_to_num(0.0, 0.0, 0.0).abs().max()
    if not torch.allclose(
        together, single_outputs, rtol=0.0, atol=_TOLERANCE * largest, equal_nan=True
    ):
        raise _refusal(module, "its outputs of some records are not those of each record alone")
