"""Packed models in other programs' formats: safetensors, and ONNX with weights of 4 and 8 bits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from mezzotint.core import brought_by
from mezzotint.core.arguments import check_choice, check_options
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import replacing
from mezzotint.core.types import AnyPath
from mezzotint.training.packed import Inputs, PackedModel

if TYPE_CHECKING:
    import torch


def export_model(
    packed: PackedModel, path: AnyPath, *, overwrite: bool = False, **settings: Any
) -> int:
    """Writes a packed model for other programs, by the ending of the path.

    Arguments:
        packed: the model.
        path: ending in .onnx (see `save_onnx`, which takes the settings) or .safetensors (see
            `PackedModel.save`).
        overwrite: replaces the file if it exists.
    Returns: the size of the file in bytes.
    Raises:
        ParameterError: another ending, an existing file.
    """
    savers = {".onnx": save_onnx, ".safetensors": PackedModel.save}
    ending = Path(path).suffix
    if ending not in savers:
        raise ParameterError(
            "path", ending, f"the ending says the format; use one of {', '.join(savers)}"
        )
    check_options(settings, savers[ending])
    return savers[ending](packed, path, overwrite=overwrite, **settings)


def save_onnx(
    packed: PackedModel,
    path: AnyPath,
    *,
    module: torch.nn.Module | None = None,
    shape: tuple[int, ...] | None = None,
    inputs: Inputs = "float32",
    overwrite: bool = False,
) -> int:
    """Writes an ONNX graph whose weights are integers of 4 bits (at most 16 levels) or 8.

    Arguments:
        packed: on even levels.
        path: of the file.
        module: whose forward pass takes one tensor, records first, and gives one; by default the
            one that the note describes. It is exported as it is after eval().
        shape: of one record's features; the note's by default.
        inputs: what features are: "float32", or "int64" for tokens.
    Returns: the size of the file in bytes.
    Raises:
        ParameterError: levels that are not even; a shape that is not known; a pass that PyTorch
            cannot follow, that looks at values or at the number of records, draws random numbers,
            mixes records, or gives anything but one tensor of floats, records first.
        MissingExtraError: onnx is not installed.
    Guarantees: weights are those of `packed.values()` up to rounding in float32; those of one
        dimension (biases, norms) are stored as floats. onnxruntime rounds the inputs of dense
        layers to 8 bits, unless its session option session.qdq_matmulnbits_accuracy_level is 1.
    """
    with brought_by("export"):
        import onnx

    from mezzotint.training.onnx_graph import put_integers
    from mezzotint.training.onnx_trace import float_graph

    record_shape = shape or tuple(packed.note.get("architecture", {}).get("shape", ()))
    if not record_shape:
        raise ParameterError(
            "shape", None, "the packed model does not say what a record looks like; give its shape"
        )
    check_choice("inputs", inputs, get_args(Inputs))
    packed_module = packed.to_module(module).eval()
    onnx_model = float_graph(packed_module, record_shape, inputs)
    put_integers(onnx_model, packed)
    note_text = json.dumps(dict(packed.note), sort_keys=True)
    onnx.helper.set_model_props(onnx_model, {"note": note_text})
    onnx.checker.check_model(onnx_model, full_check=True)
    with replacing(path, overwrite=overwrite) as temporary:
        return Path(temporary).write_bytes(onnx_model.SerializeToString())
