"""Exports are loaded by their own runtimes and compute what the packed model computes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint import ParameterError
from mezzotint.core.packing import unpack
from mezzotint.training import models
from mezzotint.training.packed import PackedModel, pack_weights

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")


def packed_of(
    model: str, *, bits: int, shape: tuple[int, ...] = (28, 28), classes: int = 10, **scales: Any
) -> tuple[PackedModel, Any]:
    """A model with random weights, packed; and the module with the packed weights."""
    torch.manual_seed(bits)
    module = models.task(model, shape=shape, classes=classes).module
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    weights = {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}
    note = {"claim": "none", "architecture": {"model": model, "shape": list(shape), "classes": classes}}
    packed = pack_weights(weights, bits=bits, note=note, **scales)
    return packed, packed.load_into(module)


@pytest.mark.parametrize("model", ["softmax", "cnn"])
def test_modules_have_the_packed_weights(model: str, tmp_path: Path) -> None:
    packed, module = packed_of(model, bits=4)
    packed.save(tmp_path / "m.mz")
    again = PackedModel.load(tmp_path / "m.mz").to_module()
    x = torch.rand(3, 28, 28)
    assert torch.equal(again(x), module(x))
    for name, parameter in again.named_parameters():
        np.testing.assert_array_equal(parameter.detach().numpy(), packed.values()[name])
    fresh = models.task(model, shape=(28, 28), classes=10).module
    fresh.load_state_dict(packed.state_dict())
    assert torch.equal(fresh(x), module(x))
    copy = packed.to_module(module)
    assert copy is not module
    assert torch.equal(copy(x), module(x))


def test_what_does_not_fit_is_refused() -> None:
    packed, _ = packed_of("softmax", bits=4)
    with pytest.raises(ParameterError, match="one side only"):
        packed.load_into(torch.nn.Linear(784, 10))
    with pytest.raises(ParameterError, match="in the file"):
        packed.load_into(models.task("softmax", shape=(28, 27), classes=10).module)
    with pytest.raises(ParameterError, match="how it is built"):
        PackedModel(tensors=packed.tensors, levels=packed.levels, note={}).to_module()
    with pytest.raises(ParameterError, match="the ending says"):
        packed.export("m.tflite")


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
def test_safetensors(bits: int, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    packed, _ = packed_of("cnn", bits=bits)
    size = packed.export(tmp_path / "m.safetensors")
    assert size == (tmp_path / "m.safetensors").stat().st_size < packed.packed_bytes + 8 * len(packed.levels) + 4000
    with safetensors.safe_open(tmp_path / "m.safetensors", framework="np") as file:
        assert file.metadata()["bits"] == str(bits)
        levels = file.get_tensor("levels")
        for name, values in packed.values().items():
            shape = file.get_tensor(f"{name}.shape")
            codes = unpack(file.get_tensor(name).tobytes(), bits, int(np.prod(shape))).reshape(shape)
            scale = file.get_tensor(f"{name}.scale").astype(float)
            if bits < 4:
                chosen, own = file.get_tensor(f"{name}.chosen"), codes.reshape(len(scale), -1)
                codes = np.stack([row[code] for row, code in zip(chosen, own, strict=True)]).reshape(shape)
            weights = scale.reshape(-1, *(1,) * (codes.ndim - 1)) * levels[codes]
            np.testing.assert_array_equal(weights.astype(np.float32), values)
    with pytest.raises(ParameterError, match="exists"):
        packed.export(tmp_path / "m.safetensors")


@pytest.mark.parametrize("model", ["softmax", "cnn"])
@pytest.mark.parametrize(
    ("bits", "dense"),
    [*((bits, "DequantizeLinear") for bits in (1, 2, 4, 7, 8)), (2, "MatMulNBits"), (4, "MatMulNBits")],
)
def test_onnx(model: str, bits: int, dense: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    packed, module = packed_of(model, bits=bits)
    size = packed.export(tmp_path / "m.onnx", dense=dense)
    options = runtime.SessionOptions()
    # Without this, onnxruntime rounds what enters a dense layer to 8 bits as well.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    session = runtime.InferenceSession(tmp_path / "m.onnx", options, providers=["CPUExecutionProvider"])
    for records in (1, 5):
        x = torch.rand(records, 28, 28)
        (found,) = session.run(None, {"features": x.numpy()})
        with torch.no_grad():
            expected = module(x).numpy()
        # Float32 sums of at most 784 products, in another order.
        np.testing.assert_allclose(found, expected, atol=784 * 2.0**-23 * np.abs(expected).max(), rtol=1e-4)
    # Half a byte or a byte for each weight; nodes, names and biases take a few kilobytes.
    assert size < packed.weights * (0.5 if bits <= 4 else 1) * (1.3 if dense == "MatMulNBits" else 1) + 6000
    assert session.get_modelmeta().custom_metadata_map["note"].startswith("{")


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_onnx_as_runtimes_take_it(bits: int, tmp_path: Path) -> None:
    # By default onnxruntime rounds a dense layer's inputs to 8 bits: an output moves by at most half a unit of the
    # largest input for each weight, and the weights are those without the rest that is subtracted afterwards.
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    packed, module = packed_of("softmax", bits=bits)
    packed.export(tmp_path / "m.onnx")
    session = runtime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    x = torch.rand(4, 28, 28)
    (found,) = session.run(None, {"features": x.numpy()})
    weights = packed.values()["1.weight"]
    rest = packed.tensors[0].scales / (2**bits - 1)
    bound = np.abs(weights - rest).sum(axis=1) * float(x.max()) / 254 + 1e-4
    with torch.no_grad():
        assert (np.abs(found - module(x).numpy()) <= bound).all()


@pytest.mark.parametrize("dense", ["DequantizeLinear", "MatMulNBits"])
@pytest.mark.parametrize("scales", ["channel", "tensor"])
def test_zero_points_are_integers_where_levels_allow_it(dense: str, scales: str, tmp_path: Path) -> None:
    # Runtimes multiply slowly with others. Levels without a 0, as trained with, have none: they are exact as well,
    # also where a channel is turned around.
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    packed, _ = packed_of("softmax", bits=4, scales=scales)
    given = [np.broadcast_to(t.scale, t.codes.shape[:1]).astype(np.float32) for t in packed.tensors]
    turned = [
        replace(t, scale=s * np.where(np.arange(len(s)) % 2, -1, 1).astype(np.float32))
        for t, s in zip(packed.tensors, given, strict=True)
    ]
    packed = replace(packed, tensors=tuple(turned))
    packed.export(tmp_path / "m.onnx", dense=dense)
    graph = onnx.load(tmp_path / "m.onnx").graph
    slow = [value.name for value in graph.initializer if value.name.endswith(".zero") and value.data_type == 1]
    slow += [node.op_type for node in graph.node if node.op_type == "ReduceSum"]
    assert bool(slow) == (scales == "tensor")
    options = runtime.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    session = runtime.InferenceSession(tmp_path / "m.onnx", options, providers=["CPUExecutionProvider"])
    x = torch.rand(3, 28, 28)
    with torch.no_grad():
        expected = packed.to_module()(x).numpy()
    (found,) = session.run(None, {"features": x.numpy()})
    # 784 products added in 32-bit floats, in another order; the second for what onnxruntime fuses.
    np.testing.assert_allclose(found, expected, atol=784 * 2.0**-23 * np.abs(expected).max(), rtol=1e-4)


def test_onnx_refuses_what_it_cannot_say(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    packed, module = packed_of("softmax", bits=4)
    uneven = PackedModel(tensors=packed.tensors, levels=(*packed.levels[:-1], 30.0), note=packed.note)
    with pytest.raises(ParameterError, match="dense=Gemm"):
        packed.export(tmp_path / "m.onnx", dense="Gemm")
    with pytest.raises(ParameterError, match="at most 16 levels"):
        packed_of("softmax", bits=5)[0].export(tmp_path / "m.onnx", dense="MatMulNBits")
    with pytest.raises(ParameterError, match="evenly"):
        uneven.export(tmp_path / "m.onnx")
    bare = PackedModel(tensors=packed.tensors, levels=packed.levels, note={})
    with pytest.raises(ParameterError, match="shape"):
        bare.export(tmp_path / "m.onnx", module=module)
    assert bare.export(tmp_path / "m.onnx", module=module, shape=(28, 28)) > 0
    other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10, bias=False))
    with pytest.raises(ParameterError, match="on one side only"):
        bare.export(tmp_path / "n.onnx", module=other, shape=(28, 28))
    layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10), torch.nn.Softplus())
    with pytest.raises(ParameterError, match="Softplus"):
        bare.export(tmp_path / "n.onnx", module=layers, shape=(28, 28))
    assert not (tmp_path / "n.onnx").exists()
