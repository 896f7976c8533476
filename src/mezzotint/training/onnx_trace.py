"""What a module computes of any number of records, as an ONNX graph with weights in floats, by
PyTorch's exporter.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

from mezzotint.core import brought_by
from mezzotint.core.errors import ParameterError
from mezzotint.training.models import Module, Tensor, reason_of, torch
from mezzotint.training.packed import Inputs

with brought_by("export"):
    import onnx
    import onnx.version_converter

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

_DRAWING = {
    "Bernoulli",
    "Dropout",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
}
"""ONNX's operations that draw random numbers."""


def float_graph(module: Module, shape: tuple[int, ...], inputs: Inputs) -> Any:
    """The ONNX model of what a module computes of any number of records, with weights in floats.

    Its input is "features", its output "outputs"; weights have the names of parameters.

    Raises:
        ParameterError: as of `export.save_onnx`.
    """
    with _quiet_export(module, shape):
        first_output, *_ = _outputs_of_each_alone(module, shape, inputs)
        _check_number_of_records(module, shape, inputs)
        onnx_model = _traced_model(module, shape, inputs, records=2)
        if onnx_model != _traced_model(module, shape, inputs, records=3):
            raise _refusal(module, "its forward pass looks at the number of records")
    for operation in onnx_model.graph.node:
        if operation.op_type in _DRAWING:
            raise _refusal(module, f"it draws random numbers ({operation.op_type})")
    onnx_model = onnx.version_converter.convert_version(onnx_model, OPSET)
    output_shape = ["records", *first_output.shape]
    outputs = onnx.helper.make_tensor_value_info("outputs", onnx.TensorProto.FLOAT, output_shape)
    graph = onnx_model.graph
    del graph.output[:]
    del graph.value_info[:]
    graph.output.append(outputs)
    onnx_model.ir_version = FORMAT
    onnx_model.producer_name = "mezzotint"
    return onnx_model


def _traced_model(module: Module, shape: tuple[int, ...], inputs: Inputs, *, records: int) -> Any:
    """What PyTorch's exporter writes of a pass over some records; constants are not folded."""
    buffer: Any = io.BytesIO()
    features = torch.zeros(records, *shape, dtype=_DTYPES[inputs])
    torch.onnx.export(
        _SingleInput(module),
        (features,),
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
class _SingleInput(Module):
    """A module called with its features alone: the exporter would make tensors of settings by
    default.
    """

    def __init__(self, plain: Module) -> None:
        super().__init__()
        self.plain = plain

    def forward(self, features: Tensor) -> Any:
        return self.plain(features)


def _shorten_names(graph: Any) -> None:
    """Gives weights the names of the plain module, and numbers to whatever nodes give."""
    short_names = {"": "", "features": "features", "outputs": "outputs"}
    for value in graph.initializer:
        short_name = value.name.removeprefix("plain.")
        short_names[value.name] = short_name
        value.name = short_name
    for operation in graph.node:
        operation.name = ""
        operation.input[:] = [short_names[name] for name in operation.input]
        for position, name in enumerate(operation.output):
            next_name = f"value{len(short_names)}"
            operation.output[position] = short_names.setdefault(name, next_name)


@contextmanager
def _quiet_export(module: Module, shape: tuple[int, ...]) -> Iterator[None]:
    """Turns the exporters' errors into ParameterError; attention is followed in its parts."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except ParameterError:
        raise
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        remedy = (
            f"PyTorch cannot follow it with any number of records of shape {shape}: "
            f"{reason_of(error)}"
        )
        raise _refusal(module, remedy) from error
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


def _refusal(module: Module, reason: str) -> ParameterError:
    return ParameterError("module", type(module).__name__, reason)


def _check_number_of_records(module: Module, shape: tuple[int, ...], inputs: Inputs) -> None:
    """Refuses what holds for some numbers of records only: PyTorch notes it as a range or a
    guard.
    """
    records = torch.zeros(2, *shape, dtype=_DTYPES[inputs])
    any_number = ({0: torch.export.Dim.DYNAMIC},)
    exported_program = torch.export.export(module, (records,), dynamic_shapes=any_number)
    findings = [
        f"{limits.lower} to {limits.upper} records"
        for limits in exported_program.range_constraints.values()
        if limits.lower > 2 or str(limits.upper) != "int_oo"
    ]
    findings += getattr(exported_program, "_guards_code", ())
    if findings:
        remedy = (
            f"its forward pass looks at the number of records ({findings[0]}); what is exported "
            "holds for any number"
        )
        raise _refusal(module, remedy)


def _outputs_of_each_alone(module: Module, shape: tuple[int, ...], inputs: Inputs) -> Tensor:
    """Outputs of a few made-up records; refuses others than one tensor of floats, records first,
    with what each record alone gives.
    """
    generator = torch.Generator().manual_seed(0)
    if inputs == "int64":
        records = torch.randint(2, (3, *shape), generator=generator)
    else:
        records = torch.randn(3, *shape, generator=generator)
    together = module(records)
    single_outputs = [module(record[None]) for record in records]
    are_first = [_has_records_first(single, 1) for single in single_outputs]
    if not _has_records_first(together, 3) or not all(are_first):
        raise _refusal(module, "it has to give one tensor of floats, records first")
    finite_outputs = together.nan_to_num(0.0, 0.0, 0.0)
    largest_output = finite_outputs.abs().max()
    expected = torch.cat(single_outputs)
    error_limit = _TOLERANCE * largest_output
    if not torch.allclose(together, expected, rtol=0.0, atol=error_limit, equal_nan=True):
        raise _refusal(module, "its outputs of some records are not those of each record alone")
    return together


def _has_records_first(value: object, count: int) -> bool:
    if not isinstance(value, Tensor) or value.dtype != torch.float32:
        return False
    return value.shape[:1] == (count,)
