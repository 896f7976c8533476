"""Packed models in other programs' formats: PyTorch modules, safetensors, ONNX with weights of 4 and 8 bits."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.files import replacing
from mezzotint.core.packing import pack
from mezzotint.training.extra import torch
from mezzotint.training.graph import FLOAT, INT64, Dense, Graph
from mezzotint.training.models import task
from mezzotint.training.operations import Operations, traced
from mezzotint.training.packed import PackedModel

KINDS = {"float32": FLOAT, "int64": INT64}


def built(packed: PackedModel) -> torch.nn.Module:
    """The module that a packed model's note describes, as `mezzotint train --out` writes it; weights not yet set.

    Raises:
        ParameterError: a note without an architecture.
    """
    known = packed.note.get("architecture")
    if known is None:
        raise ParameterError("module", None, "the packed model does not say how it is built; give a module of its kind")
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
    inputs: Literal["float32", "int64"] = "float32",
    dense: Dense = "DequantizeLinear",
    exact: bool = False,
    overwrite: bool = False,
) -> int:
    """Writes an ONNX graph whose weights are integers of 4 bits (at most 16 levels) or 8; returns the file's size.

    Arguments:
        packed: on even levels.
        path: of the file.
        module: whose forward pass takes one tensor, records first, and gives one, made of dense layers, convolutions,
            max pools, embeddings, attention, norms of layers and groups, activations, sums and products, and changes of
            shape, in any order; if not given, the one that the note describes. torch.export follows the pass.
        shape: of one record's features; the note's, if not given.
        inputs: what features are: "float32", or "int64" for tokens.
        dense: the operator of dense layers. "DequantizeLinear" is in the standard and has integers as zero points;
            "MatMulNBits", of at most 16 levels, is onnxruntime's own: faster, and takes the middle between two levels
            as it is.
        exact: "MatMulNBits" multiplies inputs as they are. If not, it rounds them to 8 bits where zero points are
            integers. The operator of the standard leaves that to the runtime: onnxruntime rounds, unless its session
            option session.qdq_matmulnbits_accuracy_level is 1.

    Raises:
        ParameterError: levels that are not even, an operation of another kind, a pass that torch.export cannot follow
            (where it looks at values, or at the number of records), a shape that is not known, more than 16 levels with
            "MatMulNBits".
        ImportError: onnx is not installed.

    Guarantees: weights are those of `packed.values()` up to rounding in float32; those of one dimension (biases, norms)
        are stored as floats.
    """
    try:
        import onnx
    except ImportError as error:
        raise ImportError("this export needs an extra: pip install mezzotint[export]") from error
    size = shape or tuple(packed.note.get("architecture", {}).get("shape", ()))
    if not size:
        raise ParameterError("shape", None, "the packed model does not say what a record looks like; give its shape")
    if inputs not in KINDS:
        raise ParameterError("inputs", inputs, f"use one of {', '.join(KINDS)}")
    whole = to_module(packed, module).eval()
    note = json.dumps(dict(packed.note), sort_keys=True)
    model = written(Graph(onnx.helper, packed, dense, exact=exact), whole, size, inputs, note=note)
    onnx.checker.check_model(model, full_check=True)
    with replacing(path, overwrite=overwrite) as temporary:
        return Path(temporary).write_bytes(model.SerializeToString())


def written(graph: Graph, module: torch.nn.Module, shape: tuple[int, ...], inputs: str, *, note: str) -> Any:
    """The ONNX model of what a module computes, with weights as the graph stores them."""
    done = Operations(graph, module, traced(module, shape, inputs))
    return graph.model(done.last, shape, KINDS[inputs], done.results, note=note)
