"""Exports are loaded by their own runtimes and compute what the packed model computes."""

from __future__ import annotations

import functools
import json
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
    # What the docstring says of a file suffices to read it.
    safetensors = pytest.importorskip("safetensors")
    packed, _ = packed_of("cnn", bits=bits)
    path = tmp_path / "m.safetensors"
    size = export.export_model(packed, path)
    assert size == path.stat().st_size < packed.packed_bytes + 8 * len(packed.levels) + 4000
    with safetensors.safe_open(path, framework="np") as file:
        header = json.loads(file.metadata()["mezzotint"].partition(" ")[2])
        levels = np.array(header["levels"])
        for entry in header["tensors"]:
            name, shape = entry["name"], entry["shape"]
            content = file.get_tensor(f"{name}.codes").tobytes()
            codes = unpack(content, bits, int(np.prod(shape))).reshape(shape)
            scale = np.array(entry["scale"], dtype=float)
            if entry["scale"] is None:
                scale = file.get_tensor(f"{name}.scale").astype(float)
            if bits < 4:
                chosen = file.get_tensor(f"{name}.chosen")
                rows = codes.reshape(max(1, scale.size), -1)
                pairs = zip(chosen, rows, strict=True)
                codes = np.stack([row[code] for row, code in pairs]).reshape(shape)
            weights = scale.reshape(-1, *(1,) * (codes.ndim - 1)) * levels[codes]
            np.testing.assert_array_equal(weights.astype(np.float32), packed.values()[name])
    with pytest.raises(ParameterError, match="exists"):
        export.export_model(packed, path)
    assert PackedModel.load(path).note == packed.note


def session_of(path: Path) -> Any:
    """A runtime that computes in floats: by default it rounds what enters a dense layer of integers to 8 bits."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    return runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def assert_same(path: Path, module: Any, x: Any, products: int) -> None:
    """onnxruntime computes what the module does, but for sums of so many products in another order, in 32 bits."""
    (outputs,) = session_of(path).run(None, {"features": x.numpy()})
    with torch.no_grad():
        expected = module.eval()(x).numpy()
    # rtol: layers in a row, whose norms and softmax enlarge what the sums of the last one lost.
    np.testing.assert_allclose(
        outputs, expected, atol=products * 2.0**-23 * np.abs(expected).max(), rtol=1e-4
    )


@pytest.mark.parametrize("model", ["softmax", "cnn", "transformer"])
@pytest.mark.parametrize("bits", [1, 2, 4, 7, 8])
def test_onnx(model: str, bits: int, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    packed, module = packed_of(model, bits=bits)
    size = export.export_model(packed, tmp_path / "m.onnx")
    for records in (1, 5):
        # 784 inputs of softmax; the transformer's norms and weights keep what it multiplies near 1, layer by layer.
        assert_same(tmp_path / "m.onnx", module, torch.rand(records, 28, 28), 784)
    # Half a byte or a byte for each weight; nodes, names, scales, norms and biases take a few kilobytes.
    each = 0.5 if bits <= 4 else 1
    assert size < packed.weights * each + (24_000 if model == "transformer" else 6000)
    session = session_of(tmp_path / "m.onnx")
    assert session.get_modelmeta().custom_metadata_map["note"].startswith("{")


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_onnx_as_runtimes_take_it(bits: int, tmp_path: Path) -> None:
    # By default onnxruntime rounds a dense layer's inputs to 8 bits: an output moves by at most half a unit of the
    # largest input for each weight, and the weights are those without the shortfall that is subtracted afterwards.
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    packed, module = packed_of("softmax", bits=bits)
    export.export_model(packed, tmp_path / "m.onnx")
    session = runtime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    x = torch.rand(4, 28, 28)
    (outputs,) = session.run(None, {"features": x.numpy()})
    weights = packed.values()["1.weight"]
    shortfall = packed.tensors[0].scales / (2**bits - 1)
    bound = np.abs(weights - shortfall).sum(axis=1) * float(x.max()) / 254 + 1e-4
    with torch.no_grad():
        assert (np.abs(outputs - module(x).numpy()) <= bound).all()


@pytest.mark.parametrize("scales", ["channel", "tensor"])
def test_levels_without_a_zero_are_exact_as_well(scales: str, tmp_path: Path) -> None:
    # Also where a channel's scale is negative; levels with a 0 need no correction of sums.
    onnx = pytest.importorskip("onnx")
    packed, _ = packed_of("softmax", bits=4, scales=scales)
    turned = []
    for tensor in packed.tensors:
        outputs = tensor.codes.shape[0]
        signs = np.where(np.arange(outputs) % 2, -1, 1)
        scale = (np.broadcast_to(tensor.scale, outputs) * signs).astype(np.float32)
        turned.append(replace(tensor, scale=scale))
    packed = replace(packed, tensors=tuple(turned))
    export.export_model(packed, tmp_path / "m.onnx")
    kinds = [node.op_type for node in onnx.load(tmp_path / "m.onnx").graph.node]
    assert ("ReduceSum" in kinds) == (scales == "tensor")
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


@pytest.mark.parametrize(("bits", "scales"), [(2, "channel"), (4, "channel"), (4, "tensor")])
@pytest.mark.parametrize("kind", ["tokens", "images"])
def test_modules_of_ones_own(kind: str, bits: int, scales: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    torch.manual_seed(bits)
    module = Language() if kind == "tokens" else convolutions()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    packed = packed_module(module, bits, scales)
    path = tmp_path / "m.onnx"
    shape, inputs = ((6,), "int64") if kind == "tokens" else ((6, 5), "float32")
    export.export_model(packed, path, module=module, shape=shape, inputs=inputs)
    for records in (1, 4):
        x = torch.randint(0, 17, (records, 6)) if kind == "tokens" else torch.randn(records, 6, 5)
        # Sums of at most 36 products, in up to a dozen layers.
        assert_same(path, packed.to_module(module), x, 12 * 36)
    if kind == "tokens":
        # A weight that is used twice is stored once for both.
        names = [value.name for value in onnx.load(path).graph.initializer]
        assert names.count("word.weight.codes") == 1
        assert not {"word.weight", "last.weight", "last.weight.codes"} & set(names)


class Recurrent(torch.nn.Module):
    """A recurrent layer, the last state of which a dense layer reads."""

    def __init__(self, kind: Any, **settings: Any) -> None:
        super().__init__()
        self.layer = kind(5, 6, batch_first=True, **settings)
        self.dense = torch.nn.Linear(12 if settings.get("bidirectional") else 6, 3)

    def forward(self, x: Any) -> Any:
        return self.dense(self.layer(x)[0][:, -1])


def normed(layer: Any, norm: Any) -> Any:
    """A layer and a norm by running statistics that are not those of the start."""
    module = torch.nn.Sequential(layer, norm)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    return module


class Looked(torch.nn.Module):
    """Scores of a table of vectors, which a dense layer is given; and a bias of two dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = torch.nn.Linear(4, 5)
        self.table, self.shift = (
            torch.nn.Parameter(torch.zeros(*size)) for size in ((3, 4), (1, 3))
        )

    def forward(self, x: Any) -> Any:
        vectors = self.dense(self.table)
        return torch.addmm(self.shift, x, vectors.t()) + torch.addmm(
            self.shift, x[:, :4], self.table.t()
        )


KINDS = {
    "weights that layers are given": (Looked, (5,)),
    "lstm": (lambda: Recurrent(torch.nn.LSTM), (4, 5)),
    "lstm of two layers and directions": (
        lambda: Recurrent(torch.nn.LSTM, num_layers=2, bidirectional=True),
        (4, 5),
    ),
    "gru": (lambda: Recurrent(torch.nn.GRU), (4, 5)),
    "rnn with dropout": (lambda: Recurrent(torch.nn.RNN, num_layers=2, dropout=0.5), (4, 5)),
    "batch norm behind a convolution": (
        lambda: normed(torch.nn.Conv2d(1, 3, 3), torch.nn.BatchNorm2d(3)),
        (1, 6, 6),
    ),
    "batch norm behind a dense layer": (
        lambda: normed(torch.nn.Linear(5, 4), torch.nn.BatchNorm1d(4)),
        (5,),
    ),
    "convolutions of one axis": (
        lambda: torch.nn.Sequential(
            torch.nn.Conv1d(5, 5, 1), torch.nn.Softplus(), torch.nn.ConvTranspose1d(5, 4, 2)
        ),
        (5, 6),
    ),
    "attention": (lambda: torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (5, 8)),
    "a factor": (lambda: Steered(lambda x: torch.add(x, x, alpha=2)), (5,)),
    "a softmax in 64 bits": (
        lambda: Steered(lambda x: x.softmax(dim=-1, dtype=torch.float64).float()),
        (5,),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scales", ["channel", "tensor"])
def test_layers_of_pytorch(kind: str, scales: str, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    torch.manual_seed(0)
    factory, shape = KINDS[kind]
    module = factory()
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    packed = packed_module(module, 4, scales)
    export.export_model(packed, tmp_path / "m.onnx", module=module, shape=shape)
    for records in (1, 3, 7):
        # Sums of at most 40 products, in up to 8 layers or steps of a sequence.
        assert_same(
            tmp_path / "m.onnx", packed.to_module(module), torch.randn(records, *shape), 320
        )
    matrices = {tensor.name for tensor in packed.tensors if tensor.codes.ndim >= 2}
    assert not matrices & {value.name for value in onnx.load(tmp_path / "m.onnx").graph.initializer}


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
        lambda x: -x if x.shape[0] > 3 else x,
        lambda x: -x if x.shape[0] % 2 else x,
        lambda x: -x if x.shape[0] == 1 else x,
        lambda x: x * x.shape[0],
        lambda x: x - x.mean(dim=0),
        lambda x: x + x[:1],
        lambda x: x + torch.randn(5),
        lambda x: x * torch.bernoulli(torch.full((5,), 0.5)),
        lambda x: x + torch.nn.functional.dropout(torch.ones(5), 0.5),
        lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x, dropout_p=0.5),
        lambda x: x + torch.ones(5, dtype=torch.float64),
        lambda x: (x, x),
        lambda x: x.t(),
        lambda x: x.flatten(),
        lambda x: x.argmax(dim=1),
    ],
    ids=[
        "values",
        "number",
        "few records",
        "even records",
        "one record",
        "size",
        "mean of the batch",
        "first record",
        "normal",
        "coins",
        "dropout",
        "attention with dropout",
        "double",
        "two outputs",
        "records last",
        "records together",
        "integers",
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
    with pytest.raises(ParameterError, match="evenly"):
        export.export_model(uneven, tmp_path / "m.onnx")
    bare = PackedModel(tensors=packed.tensors, levels=packed.levels, note={})
    with pytest.raises(ParameterError, match="shape"):
        export.export_model(bare, tmp_path / "m.onnx", module=module)
    assert export.export_model(bare, tmp_path / "m.onnx", module=module, shape=(28, 28)) > 0
    other = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(784, 10, bias=False))
    with pytest.raises(ParameterError, match="on one side only"):
        export.export_model(bare, tmp_path / "n.onnx", module=other, shape=(28, 28))
    with pytest.raises(ParameterError, match="cannot follow it"):
        export.export_model(bare, tmp_path / "n.onnx", module=module, shape=(28, 27))
    assert not (tmp_path / "n.onnx").exists()


class Copied(torch.nn.Module):
    """Computes with its weight by another way than as a parameter."""

    def __init__(self, way: Any) -> None:
        super().__init__()
        self.dense, self.way = torch.nn.Linear(5, 5), way

    def forward(self, x: Any) -> Any:
        return torch.nn.functional.linear(x, self.way(self.dense.weight))


@pytest.mark.parametrize(
    "way",
    [
        lambda weight: torch.tensor(weight.tolist()),
        lambda weight: torch.from_numpy(weight.detach().numpy()),
        lambda weight: weight.data,
        lambda weight: weight.detach().clone(),
    ],
    ids=["list", "numpy", "data", "copy"],
)
def test_no_weight_is_stored_in_floats(way: Any, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    module, path = Copied(way), tmp_path / "m.onnx"
    packed = packed_module(module, 4)
    try:
        export.export_model(packed, path, module=module, shape=(5,))
    except ParameterError:
        assert not path.exists()
        return
    stored = onnx.load(path).graph.initializer
    assert not [
        value.name for value in stored if value.data_type == 1 and list(value.dims) == [5, 5]
    ]
    assert_same(path, packed.to_module(module), torch.randn(3, 5), 5)


def test_equal_weights_are_right(tmp_path: Path) -> None:
    # PyTorch's exporter may write one of them and a copy of it.
    onnx = pytest.importorskip("onnx")
    module = Dense(8)
    module.down.load_state_dict(module.up.state_dict())
    packed = packed_module(module, 4)
    export.export_model(packed, tmp_path / "m.onnx", module=module, shape=(8,))
    assert_same(tmp_path / "m.onnx", packed.to_module(module), torch.randn(3, 8), 16)
    names = {value.name for value in onnx.load(tmp_path / "m.onnx").graph.initializer}
    assert not {"up.weight", "down.weight"} & names


class Dense(torch.nn.Module):
    """Two dense layers with biases."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(width, width), torch.nn.Linear(width, width)

    def forward(self, x: Any) -> Any:
        return self.down(torch.relu(self.up(x)))


@pytest.mark.parametrize(("bits", "width"), [(4, 64), (8, 64), (4, 300)])
@pytest.mark.parametrize("axes", [1, 2])
def test_onnxruntime_multiplies_by_the_integers_of_layers_with_biases(
    bits: int, width: int, axes: int, tmp_path: Path
) -> None:
    # A product of vectors and an addition would become a Gemm, whose weights are unpacked at every call; a product of
    # rows of vectors takes its bias in.
    runtime = pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    torch.manual_seed(0)
    module = Dense(width)
    shape = (width,) if axes == 1 else (3, width)
    packed = packed_module(module, bits)
    export.export_model(packed, tmp_path / "m.onnx", module=module, shape=shape)
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # it remarks that what it optimized is for this machine
    options.optimized_model_filepath = str(tmp_path / "fused.onnx")
    runtime.InferenceSession(tmp_path / "m.onnx", options, providers=["CPUExecutionProvider"])
    nodes = onnx.load(tmp_path / "fused.onnx").graph.node
    kinds = [node.op_type for node in nodes]
    assert kinds.count("MatMulNBits") == 2
    assert kinds.count("Sub") == (2 if axes == 1 else 0)
    assert not {"FusedGemm", "Gemm", "MatMul", "DequantizeLinear", "Add"} & set(kinds)
    blocks = {
        setting.i for node in nodes for setting in node.attribute if setting.name == "block_size"
    }
    assert blocks == {64 if width == 64 else 256}
