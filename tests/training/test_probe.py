"""The probe's table: losses that are one per record are never refused, those that mix records always are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mezzotint import ParameterError, training
from mezzotint.training import models

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")
functional = torch.nn.functional

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")

WIDTH, CLASSES, COUNT, TIMES = 5, 3, 7, 4


def features(count: int = COUNT) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(count, WIDTH, generator=generator)
    return x, torch.arange(count) % CLASSES


def sequences(times: int = TIMES) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(4)
    return torch.randn(COUNT, times, WIDTH, generator=generator), torch.arange(COUNT) % CLASSES


def images() -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(5)
    return torch.randn(COUNT, 1, 8, 8, generator=generator), torch.arange(COUNT) % CLASSES


def tokens(times: int = TIMES) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(6)
    return torch.randint(11, (COUNT, times), generator=generator), torch.arange(COUNT) % CLASSES


def entropy(module: Any, batch: Any, **settings: Any) -> Any:
    return functional.cross_entropy(module(batch[0]), batch[1], **settings)


def summed(module: Any, batch: Any) -> Any:
    return entropy(module, batch, reduction="sum")


class Of(torch.nn.Module):
    """A module of layers and a function of them and the input."""

    def __init__(self, forward: Any, **layers: Any) -> None:
        super().__init__()
        self.function = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, x: Any) -> Any:
        return self.function(self, x)


def dense(width: int = WIDTH, outputs: int = CLASSES, **settings: Any) -> Any:
    return torch.nn.Linear(width, outputs, **settings)


def network() -> Any:
    return torch.nn.Sequential(dense(WIDTH, 8), torch.nn.ReLU(), dense(8, CLASSES))


def positions(expanded: bool) -> Any:
    def forward(self: Any, x: Any) -> Any:
        ids = torch.arange(x.shape[1])
        ids = ids.expand(len(x), -1) if expanded else ids
        return self.out((self.word(x) + self.place(ids)).mean(dim=1))

    return Of(
        forward,
        word=torch.nn.Embedding(11, 6),
        place=torch.nn.Embedding(9, 6),
        out=dense(6),
    )


def mixing(change: Any) -> Any:
    """A network that sees the batch through a function."""
    return Of(
        lambda self, x: self.out(torch.relu(self.into(change(x)))),
        into=dense(WIDTH, 8),
        out=dense(8),
    )


def running(self: Any, x: Any) -> Any:
    self.seen = 0.9 * getattr(self, "seen", 0.0) + x.detach().mean(dim=0)
    return self.out(x - self.seen)


def masked(module: Any, batch: Any) -> Any:
    """The mean of each record's token losses, over its own length."""
    x, _ = batch
    labels = x % CLASSES
    losses = functional.cross_entropy(module(x).transpose(1, 2), labels, reduction="none")
    present = (x > 2).float()
    return ((losses * present).sum(dim=1) / present.sum(dim=1).clamp(min=1)).mean()


def tokenwise() -> Any:
    return Of(lambda self, x: self.out(self.word(x)), word=torch.nn.Embedding(11, 6), out=dense(6))


def token_mean(module: Any, batch: Any) -> Any:
    x, _ = batch
    labels = torch.where(x > 4, x % CLASSES, -100)
    return functional.cross_entropy(module(x).transpose(1, 2), labels, ignore_index=-100)


def autocast(module: Any, batch: Any) -> Any:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs = module(batch[0])
    return functional.cross_entropy(outputs.float(), batch[1], reduction="sum")


def spectral() -> Any:
    layer = torch.nn.utils.parametrizations.spectral_norm(dense(WIDTH, WIDTH).requires_grad_(True))
    return torch.nn.Sequential(layer, dense())


class Bare(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, CLASSES))

    def forward(self, x: Any) -> Any:
        return x @ self.weight


def tied() -> Any:
    word, out = torch.nn.Embedding(11, 6), dense(6, 11, bias=False)
    out.weight = word.weight
    return Of(lambda self, x: self.out(self.word(x).mean(dim=1)), word=word, out=out)


def two_losses(module: Any, batch: Any) -> Any:
    outputs = module(batch["x"])
    return functional.cross_entropy(outputs, batch["y"]) + outputs.square().sum(dim=1).mean()


def frozen_part() -> Any:
    return torch.nn.Sequential(dense(WIDTH, 8).requires_grad_(False), torch.nn.Tanh(), dense(8))


def layered(*layers: Any) -> Any:
    return torch.nn.Sequential(*layers)


GOOD = {
    "dense, mean": (network, features, entropy, "mean"),
    "dense, sum": (network, features, summed, "sum"),
    "no bias": (lambda: dense(bias=False), features, entropy, "mean"),
    "frozen part": (frozen_part, features, entropy, "mean"),
    "convolution": (
        lambda: layered(
            torch.nn.Conv2d(1, 4, 3),
            torch.nn.GroupNorm(2, 4),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Flatten(),
            dense(36),
        ),
        images,
        entropy,
        "mean",
    ),
    "instance norm": (
        lambda: layered(
            torch.nn.Conv2d(1, 4, 3), torch.nn.InstanceNorm2d(4, affine=True), torch.nn.Flatten(), dense(144)
        ),
        images,
        entropy,
        "mean",
    ),
    "layer norm": (lambda: layered(dense(WIDTH, 8), torch.nn.LayerNorm(8), dense(8)), features, entropy, "mean"),
    "LSTM": (
        lambda: Of(
            lambda self, x: self.out(self.lstm(x)[0][:, -1]),
            lstm=opacus.layers.DPLSTM(WIDTH, 6, batch_first=True),
            out=dense(6),
        ),
        sequences,
        entropy,
        "mean",
    ),
    "GRU": (
        lambda: Of(
            lambda self, x: self.out(self.gru(x)[0][:, -1]),
            gru=opacus.layers.DPGRU(WIDTH, 6, batch_first=True),
            out=dense(6),
        ),
        sequences,
        entropy,
        "mean",
    ),
    "attention": (
        lambda: Of(
            lambda self, x: self.out(self.look(x, x, x)[0].mean(dim=1)),
            look=opacus.layers.DPMultiheadAttention(WIDTH, 1, batch_first=True),
            out=dense(),
        ),
        sequences,
        entropy,
        "mean",
    ),
    "transformer": (
        lambda: models.task("transformer", shape=(TIMES, WIDTH), classes=CLASSES).module,
        sequences,
        entropy,
        "mean",
    ),
    "dropout": (lambda: layered(dense(WIDTH, 8), torch.nn.Dropout(0.5), dense(8)), features, entropy, "mean"),
    "functional dropout": (lambda: mixing(lambda x: functional.dropout(x, 0.3)), features, entropy, "mean"),
    "input noise": (lambda: mixing(lambda x: x + 0.1 * torch.randn_like(x)), features, entropy, "mean"),
    "numpy noise": (
        lambda: mixing(lambda x: x + torch.from_numpy(np.random.normal(size=x.shape)).float()),  # noqa: NPY002
        features,
        entropy,
        "mean",
    ),
    "random integers": (
        lambda: mixing(lambda x: x + torch.randint(1, 3, x.shape)),
        features,
        entropy,
        "mean",
    ),
    "bare parameter": (Bare, features, entropy, "mean"),
    "called twice": (
        lambda: Of(lambda self, x: self.out(torch.tanh(self.mid(self.mid(x)))), mid=dense(WIDTH, WIDTH), out=dense()),
        features,
        entropy,
        "mean",
    ),
    "siamese": (
        lambda: mixing(lambda x: x),
        features,
        lambda m, b: (m(b[0]) - m(2 * b[0])).square().sum(dim=1).mean(),
        "mean",
    ),
    "expanded positions": (lambda: positions(expanded=True), tokens, entropy, "mean"),
    "tied weights": (tied, tokens, entropy, "mean"),
    "record weights": (
        network,
        features,
        lambda m, b: (entropy(m, b, reduction="none") * (1.0 + b[1])).mean(),
        "mean",
    ),
    "class weights, sum over n": (
        network,
        features,
        lambda m, b: entropy(m, b, weight=torch.tensor([1.0, 2.0, 3.0]), reduction="sum") / len(b[1]),
        "mean",
    ),
    "token mean per record": (tokenwise, tokens, masked, "mean"),
    "two losses": (network, lambda: dict(zip("xy", features(), strict=True)), two_losses, "mean"),
    "bfloat16 autocast, sum": (network, features, autocast, "sum"),
    "bfloat16 module, sum": (
        lambda: network().bfloat16(),
        features,
        lambda m, b: functional.cross_entropy(m(b[0].bfloat16()).float(), b[1], reduction="sum"),
        "sum",
    ),
    "padding_idx": (
        lambda: Of(
            lambda self, x: self.out(self.word(x).mean(dim=1)),
            word=torch.nn.Embedding(11, 6, padding_idx=0),
            out=dense(6),
        ),
        tokens,
        entropy,
        "mean",
    ),
    "circular padding": (
        lambda: layered(
            torch.nn.Conv2d(1, 2, 3, padding=1, padding_mode="circular"), torch.nn.Flatten(), dense(128)
        ),
        images,
        entropy,
        "mean",
    ),
    "checkpointed": (
        lambda: Of(
            lambda self, x: self.out(torch.utils.checkpoint.checkpoint(self.into, x, use_reentrant=False)),
            into=dense(WIDTH, 8),
            out=dense(8),
        ),
        features,
        entropy,
        "mean",
    ),
    "weight norm": (
        lambda: layered(torch.nn.utils.parametrizations.weight_norm(dense(WIDTH, 8)), dense(8)),
        features,
        entropy,
        "mean",
    ),
    "sorted first": (
        network,
        features,
        lambda m, b: (lambda order: entropy(m, (b[0][order], b[1][order])))(b[0][:, 0].argsort()),
        "mean",
    ),
    "sparse embedding": (
        lambda: Of(
            lambda self, x: self.out(self.word(x).mean(dim=1)),
            word=torch.nn.Embedding(11, 6, sparse=True),
            out=dense(6),
        ),
        tokens,
        entropy,
        "mean",
    ),
}  # fmt: skip


def weighted(module: Any, batch: Any) -> Any:
    return entropy(module, batch, weight=torch.tensor([1.0, 2.0, 3.0]))


def hardest(module: Any, batch: Any) -> Any:
    losses = entropy(module, batch, reduction="none")
    return losses.topk(len(losses) // 2).values.sum() / len(losses)


def negatives(module: Any, batch: Any) -> Any:
    outputs = module(batch[0])
    return functional.cross_entropy(outputs @ outputs.T, torch.arange(len(outputs)))


def penalized(module: Any, batch: Any) -> Any:
    return entropy(module, batch) + sum(p.square().sum() for p in module.parameters())


def sorted_in_the_middle(self: Any, x: Any) -> Any:
    middle = torch.relu(self.into(x))
    return self.out(middle[middle[:, 0].argsort()])


def under_capacity(x: Any) -> Any:
    """An expert takes those with a positive first feature, all but one of a batch at most: only crowds show it."""
    places = (x[:, :1] > 0).long().cumsum(dim=0)
    return x * (1 + (x[:, :1] > 0) * (places < COUNT))


def where_anybody_is(self: Any, x: Any) -> Any:
    """A layer that no batch reaches in which every first feature is negative: its step would be refused."""
    chosen = x[:, :1] > 0
    return self.out(x) + (chosen * self.expert(x) if chosen.any() else 0)


class Scaled(torch.nn.Module):
    """A parameter of its own, and a setting by name, which per-record gradients would leave out."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(WIDTH, 8))

    def forward(self, x: Any, scale: float = 1.0) -> Any:
        return scale * (x @ self.weight)


BAD = {
    "keywords": (
        lambda: Of(lambda self, x: self.out(self.into(x, scale=3.0)), into=Scaled(), out=dense(8)),
        features,
        entropy,
        "mean",
    ),
    "bag of tokens": (
        lambda: Of(lambda self, x: self.out(self.bag(x)), bag=torch.nn.EmbeddingBag(11, 6), out=dense(6)),
        tokens,
        entropy,
        "mean",
    ),
    "softmax over the batch": (
        lambda: mixing(lambda x: x.softmax(dim=0)),
        features,
        entropy,
        "mean",
    ),
    "spectral norm": (spectral, features, entropy, "mean"),
    "positions [L]": (lambda: positions(expanded=False), tokens, entropy, "mean"),
    "positions [L], L == n": (lambda: positions(expanded=False), lambda: tokens(COUNT), entropy, "mean"),
    "constant": (
        lambda: Of(lambda self, x: self.out(x) + self.ask(torch.ones(1, 4)), out=dense(), ask=dense(4)),
        features,
        entropy,
        "mean",
    ),
    "time first": (
        lambda: Of(lambda self, x: self.out(x.transpose(0, 1)).mean(dim=0), out=dense()),
        sequences,
        entropy,
        "mean",
    ),
    "time first, T == n": (
        lambda: Of(lambda self, x: self.out(x.transpose(0, 1)).mean(dim=0), out=dense()),
        lambda: sequences(COUNT),
        entropy,
        "mean",
    ),
    "x - x.mean(0)": (lambda: mixing(lambda x: x - x.mean(dim=0)), features, entropy, "mean"),
    "x / x.norm()": (lambda: mixing(lambda x: x / x.norm()), features, entropy, "mean"),
    "running mean": (lambda: Of(running, out=dense()), features, entropy, "mean"),
    "mixup": (
        lambda: mixing(lambda x: 0.7 * x + 0.3 * x[torch.randperm(len(x))]), features, entropy, "mean",
    ),
    "roll": (lambda: mixing(lambda x: 0.7 * x + 0.3 * x.roll(1, 0)), features, entropy, "mean"),
    "class weights": (network, features, weighted, "mean"),
    "token mean": (tokenwise, tokens, token_mean, "mean"),
    "negatives of the batch": (network, features, negatives, "mean"),
    "hardest half": (network, features, hardest, "sum"),
    "variance": (network, features, lambda m, b: entropy(m, b) + m(b[0]).var(dim=0).sum(), "mean"),
    "weight penalty": (network, features, penalized, "mean"),
    "mean told sum": (network, features, entropy, "sum"),
    "sum told mean": (network, features, summed, "mean"),
    "functional weight": (
        lambda: Of(
            lambda self, x: self.out(functional.linear(x, self.into.weight)), into=dense(WIDTH, 8), out=dense(8),
        ),
        features,
        entropy,
        "mean",
    ),
    "sorted in the middle": (
        lambda: Of(sorted_in_the_middle, into=dense(WIDTH, 8), out=dense(8)), features, entropy, "mean",
    ),
    "batch norm": (lambda: layered(dense(WIDTH, 8), torch.nn.BatchNorm1d(8), dense(8)), features, entropy, "mean"),
    "functional batch norm": (
        lambda: mixing(lambda x: functional.batch_norm(x, None, None, training=True)), features, entropy, "mean",
    ),
    "max_norm": (
        lambda: Of(
            lambda self, x: self.out(self.word(x).mean(dim=1)),
            word=torch.nn.Embedding(11, 6, max_norm=0.5),
            out=dense(6),
        ),
        tokens,
        entropy,
        "mean",
    ),
    "bfloat16 autocast, mean": (
        network,
        features,
        lambda m, b: autocast(m, b) / len(b[0]),
        "mean",
    ),
    "capacity": (lambda: mixing(under_capacity), features, entropy, "mean"),
    "expert left out": (lambda: Of(where_anybody_is, out=dense(), expert=dense()), features, entropy, "mean"),
    "balance of 1e-4": (
        network,
        features,
        lambda m, b: entropy(m, b) + 1e-4 * m(b[0]).softmax(dim=1).mean(dim=0).square().sum(),
        "mean",
    ),
}  # fmt: skip


def probe(case: Any) -> Any:
    build, batch, loss, reduction = case
    torch.manual_seed(1)
    return training.check_records(build(), loss, batch(), reduction=reduction)


@pytest.mark.parametrize("name", GOOD)
def test_losses_of_one_per_record_pass(name: str) -> None:
    table = probe(GOOD[name])
    assert table.records == COUNT
    assert table.replaced == 2 * COUNT
    # 32-bit floats: the probe itself refuses at a larger difference.
    assert max(table.differences.values(), default=0) < 1e-3 or "bfloat16" in name
    assert "rows are separate" in str(table)


@pytest.mark.parametrize("name", BAD)
def test_losses_that_mix_records_are_found(name: str) -> None:
    with pytest.raises(ParameterError):
        probe(BAD[name])


def test_a_mean_over_padding_is_found_by_the_loader_s_collate() -> None:
    lengths = [1, 3, 2, 4, 2, 3]
    records = [(torch.full((length,), 1 + i), i % CLASSES) for i, length in enumerate(lengths)]

    def collate(chosen: list[Any]) -> Any:
        padded = torch.nn.utils.rnn.pad_sequence([x for x, _ in chosen], batch_first=True)
        return padded, torch.tensor([y for _, y in chosen])

    mean = Of(
        lambda self, x: self.out(self.word(x).mean(dim=1)),
        word=torch.nn.Embedding(11, 6),
        out=dense(6),
    )
    own = Of(
        lambda self, x: self.out((self.word(x) * (x > 0)[..., None]).sum(dim=1) / (x > 0).sum(dim=1)[:, None]),
        word=torch.nn.Embedding(11, 6),
        out=dense(6),
    )  # fmt: skip
    assert training.check_records(own, entropy, records, collate=collate).records == 6
    with pytest.raises(ParameterError, match="module=Of"):
        training.check_records(mean, entropy, records, collate=collate)


def test_the_probe_names_what_is_wrong_and_leaves_everything_as_it_was() -> None:
    torch.manual_seed(1)
    module, batch = mixing(lambda x: x - x.mean(dim=0)), features()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    legacy = np.random.get_state()[1].copy()  # noqa: NPY002
    with pytest.raises(ParameterError, match=r"replacing one record changes \d of 7 rows of"):
        training.check_records(module, entropy, batch)
    with pytest.raises(ParameterError, match="weighs records"):
        training.check_records(network(), weighted, batch)
    with pytest.raises(ParameterError, match=r"reduction=mean: rows are 7 times"):
        training.check_records(network(), summed, batch)
    with pytest.raises(ParameterError, match=r"into.weight has a gradient but no rows"):
        probe(BAD["functional weight"])
    plain = network()
    state = torch.random.get_rng_state()
    training.check_records(plain, entropy, batch)
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(before[name], tensor) for name, tensor in module.state_dict().items())
    assert np.array_equal(legacy, np.random.get_state()[1])  # noqa: NPY002
    assert not any(hasattr(parameter, "grad_sample") for parameter in module.parameters())
