"""Exports are loaded by their own runtimes and compute what the packed model computes."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint import ParameterError
from mezzotint.core.sampler import unpack
from mezzotint.training import export, models
from mezzotint.training.packed import PackedModel, pack_weights

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")


@functools.cache
def packed_of(
    model: str, *, bits: int, shape: tuple[int, ...] = (28, 28), classes: int = 10, **scales: Any
) -> tuple[PackedModel, Any]:
    """A model with random weights, packed; and the module with the packed weights."""
    torch.manual_seed(bits)
    module = models.task(model, shape=shape, classes=classes).module
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    weights = {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}
    note = {
        "claim": "none",
        "architecture": {"model": model, "shape": list(shape), "classes": classes},
    }
    packed = pack_weights(weights, bits=bits, note=note, **scales)
    return packed, packed.load_into(module)


@pytest.mark.parametrize("model", ["softmax", "cnn", "transformer"])
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
        export.export_model(packed, "m.tflite")


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
def test_safetensors(bits: int, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors")
    packed, _ = packed_of("cnn", bits=bits)
    size = export.export_model(packed, tmp_path / "m.safetensors")
    assert (
        size
        == (tmp_path / "m.safetensors").stat().st_size
        < packed.packed_bytes + 8 * len(packed.levels) + 4000
    )
    with safetensors.safe_open(tmp_path / "m.safetensors", framework="np") as file:
        assert file.metadata()["bits"] == str(bits)
        levels = file.get_tensor("levels")
        for name, values in packed.values().items():
            shape = file.get_tensor(f"{name}.shape")
            codes = unpack(file.get_tensor(name).tobytes(), bits, int(np.prod(shape))).reshape(
                shape
            )
            scale = file.get_tensor(f"{name}.scale").astype(float)
            if bits < 4:
                chosen, own = file.get_tensor(f"{name}.chosen"), codes.reshape(len(scale), -1)
                codes = np.stack(
                    [row[code] for row, code in zip(chosen, own, strict=True)]
                ).reshape(shape)
            weights = scale.reshape(-1, *(1,) * (codes.ndim - 1)) * levels[codes]
            np.testing.assert_array_equal(weights.astype(np.float32), values)
    with pytest.raises(ParameterError, match="exists"):
        export.export_model(packed, tmp_path / "m.safetensors")


def session_of(path: Path) -> Any:
    """A runtime that computes in floats: by default it rounds what enters a dense layer of integers to 8 bits."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    return runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def assert_same(path: Path, module: Any, x: Any, products: int) -> None:
    """onnxruntime computes what the module does, but for sums of so many products in another order, in 32 bits."""
    (found,) = session_of(path).run(None, {"features": x.numpy()})
    with torch.no_grad():
        expected = module.eval()(x).numpy()
    # rtol: layers in a row, whose norms and softmax enlarge what the sums of the last one lost.
    np.testing.assert_allclose(
        found, expected, atol=products * 2.0**-23 * np.abs(expected).max(), rtol=1e-4
    )


@functools.cache
def _traces() -> dict[Any, Any]:
    return {}


@pytest.fixture
def traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch follows modules of one text once: what it writes down knows the weights' names, not their values."""

    def traced(module: Any, *more: Any, trace: Any = export.traced) -> Any:
        key = (repr(module), *more)
        if key not in _traces():
            _traces()[key] = trace(module, *more)
        return _traces()[key]

    monkeypatch.setattr(export, "traced", traced)


@pytest.mark.usefixtures("traced_once")
@pytest.mark.parametrize("model", ["softmax", "cnn", "transformer"])
@pytest.mark.parametrize(
    ("bits", "dense"),
    [
        *((bits, "DequantizeLinear") for bits in (1, 2, 4, 7, 8)),
        (2, "MatMulNBits"),
        (4, "MatMulNBits"),
    ],
)
def test_onnx(model: str, bits: int, dense: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    packed, module = packed_of(model, bits=bits)
    size = export.export_model(packed, tmp_path / "m.onnx", dense=dense, exact=True)
    for records in (1, 5):
        # 784 inputs of softmax; the transformer's norms and weights keep what it multiplies near 1, layer by layer.
        assert_same(tmp_path / "m.onnx", module, torch.rand(records, 28, 28), 784)
    # Half a byte or a byte for each weight; nodes, names, norms and biases take a few kilobytes.
    each = (0.5 if bits <= 4 else 1) * (1.3 if dense == "MatMulNBits" else 1)
    assert size < packed.weights * each + (24_000 if model == "transformer" else 6000)
    assert (
        session_of(tmp_path / "m.onnx").get_modelmeta().custom_metadata_map["note"].startswith("{")
    )


@pytest.mark.parametrize(
    ("bits", "dense"),
    [*((bits, "DequantizeLinear") for bits in (2, 4, 8)), (2, "MatMulNBits"), (4, "MatMulNBits")],
)
def test_onnx_as_runtimes_take_it(bits: int, dense: Any, tmp_path: Path) -> None:
    # By default onnxruntime rounds a dense layer's inputs to 8 bits: an output moves by at most half a unit of the
    # largest input for each weight, and the weights are those without the rest that is subtracted afterwards.
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    packed, module = packed_of("softmax", bits=bits)
    export.export_model(packed, tmp_path / "m.onnx", dense=dense)
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
def test_zero_points_are_integers_where_levels_allow_it(
    dense: str, scales: str, tmp_path: Path
) -> None:
    # Runtimes multiply slowly with others. Levels without a 0, as trained with, have none: they are exact as well,
    # also where a channel is turned around.
    onnx = pytest.importorskip("onnx")
    packed, _ = packed_of("softmax", bits=4, scales=scales)
    given = [np.broadcast_to(t.scale, t.codes.shape[:1]).astype(np.float32) for t in packed.tensors]
    turned = [
        replace(t, scale=s * np.where(np.arange(len(s)) % 2, -1, 1).astype(np.float32))
        for t, s in zip(packed.tensors, given, strict=True)
    ]
    packed = replace(packed, tensors=tuple(turned))
    export.export_model(packed, tmp_path / "m.onnx", dense=dense, exact=True)
    graph = onnx.load(tmp_path / "m.onnx").graph
    slow = [
        value.name
        for value in graph.initializer
        if value.name.endswith(".zero") and value.data_type == 1
    ]
    slow += [node.op_type for node in graph.node if node.op_type == "ReduceSum"]
    assert bool(slow) == (scales == "tensor")
    assert_same(tmp_path / "m.onnx", packed.to_module(), torch.rand(3, 28, 28), 784)


class Language(torch.nn.Module):
    """Attention in several ways of writing it, over tokens whose embedding is also the last layer's weight."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.first = (
            torch.nn.Embedding(17, 16),
            torch.nn.Parameter(torch.zeros(1, 6, 16)),
        )
        self.own = torch.nn.MultiheadAttention(16, 2, batch_first=True)
        self.layer = torch.nn.TransformerEncoderLayer(16, 2, 24, batch_first=True)
        self.three, self.last = torch.nn.Linear(16, 48, bias=False), torch.nn.Linear(16, 17)
        self.last.weight = self.word.weight
        self.register_buffer("later", torch.ones(6, 6).triu(1).bool(), persistent=False)

    def forward(self, tokens: Any) -> Any:
        x = self.word(tokens) + self.first
        x = self.layer(x + self.own(x, x, x, attn_mask=self.get_buffer("later"))[0])
        query, key, value = self.three(x).chunk(3, dim=-1)
        scores = (query @ key.transpose(-2, -1) / 4.0).masked_fill(
            self.get_buffer("later"), float("-inf")
        )
        x = x + scores.softmax(dim=-1) @ value
        attention = torch.nn.functional.scaled_dot_product_attention
        x = x + attention(query, key, value, is_causal=True)
        x = x - 0.5 * attention(query, key, value, attn_mask=~self.get_buffer("later"))
        joined = torch.cat([x[:, -1:], x[:, 1:3]], dim=1)
        return self.last(joined.mean(dim=1)) + joined[:, 0] @ self.word.weight.t()


def convolutions() -> Any:
    """Norms of groups, and an activation in place of its input."""
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 6)), torch.nn.Conv2d(1, 4, 3, padding=(1, 0), bias=False),
        torch.nn.ReLU(inplace=True), torch.nn.GroupNorm(2, 4), torch.nn.MaxPool2d((2, 1)), torch.nn.Dropout(0.5),
        torch.nn.Flatten(), torch.nn.Linear(4 * 3 * 3, 5),
    )  # fmt: skip


def packed_module(module: Any, bits: int, scales: Any = "channel") -> PackedModel:
    return pack_weights(
        {name: p.detach().numpy() for name, p in module.named_parameters()},
        bits=bits,
        scales=scales,
    )


@pytest.mark.usefixtures("traced_once")
@pytest.mark.parametrize("dense", ["DequantizeLinear", "MatMulNBits"])
@pytest.mark.parametrize(("bits", "scales"), [(2, "channel"), (4, "channel"), (4, "tensor")])
@pytest.mark.parametrize("kind", ["tokens", "images"])
def test_modules_of_ones_own(kind: str, bits: int, scales: str, dense: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    torch.manual_seed(bits)
    module = Language() if kind == "tokens" else convolutions()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    packed = packed_module(module, bits, scales)
    shape, inputs = ((6,), "int64") if kind == "tokens" else ((6, 5), "float32")
    export.export_model(
        packed,
        tmp_path / "m.onnx",
        module=module,
        shape=shape,
        inputs=inputs,
        dense=dense,
        exact=True,
    )
    for records in (1, 4):
        x = torch.randint(0, 17, (records, 6)) if kind == "tokens" else torch.randn(records, 6, 5)
        # Sums of at most 36 products, in up to a dozen layers.
        assert_same(tmp_path / "m.onnx", packed.to_module(module), x, 12 * 36)
    if kind == "tokens" and dense == "DequantizeLinear":
        # A weight that is used twice is stored once for both; MatMulNBits has its own order.
        stored = [
            one
            for one in onnx.load(tmp_path / "m.onnx").graph.initializer
            if one.name.startswith("word")
        ]
        assert sum(one.name.endswith(".columns") for one in stored) == 1


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (torch.nn.Softplus(), "Softplus: aten.softplus"),
        (torch.nn.BatchNorm1d(5), "BatchNorm1d: aten.batch_norm"),
        (torch.nn.Flatten(0), "records first"),
        (torch.nn.Conv1d(5, 5, 1), "Conv1d: aten.conv1d"),
    ],
    ids=["activation", "batch norm", "records together", "convolution"],
)
def test_operations_that_are_not_written_are_named(module: Any, words: str, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    whole = torch.nn.Sequential(torch.nn.Linear(5, 5), module)
    shape = (5, 5) if isinstance(module, torch.nn.Conv1d) else (5,)
    with pytest.raises(ParameterError, match=words):
        export.export_model(packed_module(whole, 4), tmp_path / "m.onnx", module=whole, shape=shape)
    assert not list(tmp_path.iterdir())


class Steered(torch.nn.Module):
    """Looks at values, or at how many records there are."""

    def __init__(self, looks: Any) -> None:
        super().__init__()
        self.dense, self.looks = torch.nn.Linear(5, 5), looks

    def forward(self, x: Any) -> Any:
        return self.looks(self.dense(x))


@pytest.mark.parametrize(
    "looks",
    [
        lambda x: x if x.sum() > 0 else -x,
        lambda x: x / len(x),
        lambda x: torch.add(x, x, alpha=2),
        lambda x: x.softmax(dim=-1, dtype=torch.float64).float(),
        lambda x: -x if x.shape[0] > 3 else x,
        lambda x: -x if x.shape[0] % 2 else x,
        lambda x: x * x.shape[0],
        lambda x: x + torch.randn(5),
        lambda x: x * torch.bernoulli(torch.full((5,), 0.5)),
        lambda x: x + torch.nn.functional.dropout(torch.ones(5), 0.5),
        lambda x: x + torch.ones(5, dtype=torch.float64),
    ],
    ids=[
        "values",
        "number",
        "setting",
        "type",
        "few records",
        "even records",
        "size",
        "normal",
        "coins",
        "dropout",
        "double",
    ],
)
def test_passes_that_cannot_be_followed_are_refused(looks: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    module = Steered(looks)
    with pytest.raises(ParameterError, match="module=Steered"):
        export.export_model(
            packed_module(module, 4), tmp_path / "m.onnx", module=module, shape=(5,)
        )
    assert not list(tmp_path.iterdir())


def test_onnx_refuses_what_it_cannot_say(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    packed, module = packed_of("softmax", bits=4)
    uneven = PackedModel(
        tensors=packed.tensors, levels=(*packed.levels[:-1], 30.0), note=packed.note
    )
    with pytest.raises(ParameterError, match="inputs=int8"):
        export.export_model(packed, tmp_path / "m.onnx", inputs="int8")
    with pytest.raises(ParameterError, match="dense=Gemm"):
        export.export_model(packed, tmp_path / "m.onnx", dense="Gemm")
    with pytest.raises(ParameterError, match="at most 16 levels"):
        export.export_model(
            packed_of("softmax", bits=5)[0], tmp_path / "m.onnx", dense="MatMulNBits"
        )
    with pytest.raises(ParameterError, match="evenly"):
        export.export_model(uneven, tmp_path / "m.onnx")
    bare = PackedModel(tensors=packed.tensors, levels=packed.levels, note={})
    with pytest.raises(ParameterError, match="shape"):
        export.export_model(bare, tmp_path / "m.onnx", module=module)
    assert export.export_model(bare, tmp_path / "m.onnx", module=module, shape=(28, 28)) > 0
    other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10, bias=False))
    with pytest.raises(ParameterError, match="on one side only"):
        export.export_model(bare, tmp_path / "n.onnx", module=other, shape=(28, 28))
    layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10), torch.nn.Softplus())
    with pytest.raises(ParameterError, match="Softplus"):
        export.export_model(bare, tmp_path / "n.onnx", module=layers, shape=(28, 28))
    assert not (tmp_path / "n.onnx").exists()


class Dense(torch.nn.Module):
    """Two dense layers with biases."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, width), torch.nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        return self.down(torch.relu(self.up(x)))


@pytest.mark.parametrize("bits", [4, 8])
def test_onnxruntime_multiplies_by_the_integers_of_layers_with_biases(
    bits: int, tmp_path: Path
) -> None:
    # A product and an addition would become a Gemm, whose weights are unpacked at every call.
    runtime = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    torch.manual_seed(0)
    module = Dense()
    weights = {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}
    export.export_model(
        pack_weights(weights, bits=bits), tmp_path / "m.onnx", module=module, shape=(64,)
    )
    options = runtime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    runtime.InferenceSession(tmp_path / "m.onnx", options, providers=["CPUExecutionProvider"])
    kinds = [node.op_type for node in onnx.load(tmp_path / "fused.onnx").graph.node]
    assert kinds.count("MatMulNBits") == 2
    assert not {"Gemm", "MatMul", "DequantizeLinear"} & set(kinds)
