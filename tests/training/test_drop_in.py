"""What scripts of others find: Opacus's engine by one import, batches settled before the first step, other engines."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

from mezzotint import ParameterError, training
from mezzotint.training import PrivacyEngine
from mezzotint.training.gradients import PrivateModule, factors
from mezzotint.training.splitting import empty_batch

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")
data = torch.utils.data
functional = torch.nn.functional

pytestmark = pytest.mark.filterwarnings("ignore:Full backward hook is firing")

WIDTH, TIMES, CLASSES = 5, 4, 3


def records(*shape: int, count: int = 40) -> Any:
    generator = torch.Generator().manual_seed(0)
    return data.TensorDataset(
        torch.randn(count, *shape, generator=generator), torch.arange(count) % CLASSES
    )


def loader(batch_size: int = 8, dataset: Any = None, **settings: Any) -> Any:
    return data.DataLoader(dataset or records(WIDTH), batch_size=batch_size, **settings)


def entropy(module: Any, batch: Any) -> Any:
    return functional.cross_entropy(module(batch[0]), batch[1])


def private(module: Any, batches: Any = None, **settings: Any) -> Any:
    settings = {"noise_multiplier": 1.0, "delta": 1e-5, **settings}
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    return training.make_private(module, optimizer, batches or loader(), **settings)


# Opacus's engine -------------------------------------------------------------------------------------


def test_an_opacus_script_changes_by_its_import_alone() -> None:
    train_loader = loader(4, shuffle=True)
    for _ in range(2):  # a second run gets the loader that the first one left
        model = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 8), torch.nn.ReLU(), torch.nn.Linear(8, CLASSES)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0)
        privacy_engine = PrivacyEngine(secure_mode=False)
        model, optimizer, train_loader = privacy_engine.make_private(
            module=model,
            optimizer=optimizer,
            data_loader=train_loader,
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        model.train()
        for x, y in train_loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.eval()
        event = dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(1.0))
        independent = PLDAccountant().compose(event, 10).get_epsilon(1e-5)
        # dp_accounting's losses stand on a grid of 1e-4; ten of them are composed.
        assert privacy_engine.accountant.get_epsilon(delta=1e-5) == pytest.approx(
            independent, rel=1e-3
        )
        assert privacy_engine.get_epsilon(1e-5) == privacy_engine.accountant.get_epsilon(1e-5)
        with pytest.raises(ParameterError, match="name the delta"):
            privacy_engine.accountant.claim()


@pytest.mark.parametrize("resumed", [False, True])
def test_an_engine_with_a_target_and_its_checkpoints(tmp_path: Path, resumed: bool) -> None:
    def engine() -> Any:
        torch.manual_seed(0)
        model = torch.nn.Linear(WIDTH, CLASSES)
        made = PrivacyEngine(accountant="rdp")
        settings = {"target_epsilon": 2.0, "target_delta": 1e-5, "epochs": 2, "max_grad_norm": 1.0}
        parts = made.make_private_with_epsilon(
            module=model,
            optimizer=torch.optim.Adam(model.parameters()),
            data_loader=loader(),
            **settings,
        )
        return made, *parts

    made, model, optimizer, batches = engine()
    for batch in batches:
        optimizer.zero_grad()
        entropy(model, batch).backward()
        optimizer.step()
    spent = made.get_epsilon(1e-5)
    assert 0 < spent < 2
    made.save_checkpoint(path=tmp_path / "run.pt", module=model, optimizer=optimizer)
    if resumed:
        made, model, optimizer, batches = engine()
        assert made.get_epsilon(1e-5) == 0
        made.load_checkpoint(path=tmp_path / "run.pt", module=model, optimizer=optimizer)
        assert made.get_epsilon(1e-5) == spent
    for batch in batches:
        optimizer.zero_grad()
        entropy(model, batch).backward()
        optimizer.step()
    assert 1.99 < made.get_epsilon(1e-5) <= 2


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"poisson_sampling": False}, "poisson_sampling"),
        ({"clipping": "per_layer"}, "clipping"),
        ({"batch_first": False}, "batch_first"),
        ({"grad_sample_mode": "ghost"}, "grad_sample_mode"),
        ({"max_grad_norm": [1.0, 1.0]}, "max_grad_norm"),
    ],
)
def test_what_is_not_accounted_for_is_refused_by_name(options: Any, named: str) -> None:
    module = torch.nn.Linear(WIDTH, CLASSES)
    settings = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, **options}
    with pytest.raises(ParameterError, match=named):
        PrivacyEngine().make_private(
            module=module,
            optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
            data_loader=loader(),
            **settings,
        )


def test_opacus_s_own_options_are_taken_and_compatibility_is_said() -> None:
    module = torch.nn.Linear(WIDTH, CLASSES)
    engine = PrivacyEngine()
    engine.make_private(
        module=module,
        optimizer=torch.optim.SGD(module.parameters(), lr=0.1),
        data_loader=loader(),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=True,
        clipping="flat",
        grad_sample_mode="hooks",
        criterion=torch.nn.CrossEntropyLoss(),
        noise_generator=None,
    )
    assert engine.is_compatible(module=torch.nn.Linear(2, 2))
    assert not engine.is_compatible(module=torch.nn.LSTM(2, 2))
    with pytest.raises(ParameterError, match="DPLSTM"):
        engine.validate(module=torch.nn.LSTM(2, 2))


class Named(torch.nn.Module):
    """Names in languages, as in Opacus's example of an LSTM."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(30, 8)
        self.rnn = kind(8, 8, batch_first=True)
        self.out_layer = torch.nn.Linear(8, CLASSES)

    def forward(self, x: Any, hidden: Any = None) -> Any:
        x, _ = self.rnn(self.embedding(x), hidden)
        return self.out_layer(x[:, -1, :])


def padded(batch: list[Any]) -> Any:
    x = torch.nn.utils.rnn.pad_sequence([record[0] for record in batch], batch_first=True)
    return x, torch.stack([record[1] for record in batch])


@pytest.mark.parametrize("kind", ["DPLSTM", "DPGRU", "DPRNN"])
def test_names_are_read_by_recurrent_layers_with_batches_that_may_be_empty(kind: str) -> None:
    names = [(torch.arange(1, 3 + i % 4), torch.tensor(i % CLASSES)) for i in range(20)]
    module = Named(getattr(opacus.layers, kind))
    model, optimizer, batches, accountant = private(
        module, loader(1, names, collate_fn=padded), seed=1
    )
    sizes = set()
    for x, y in batches:
        optimizer.zero_grad()
        entropy(model, (x, y)).backward()
        optimizer.step()
        sizes.add(len(x))
    assert 0 in sizes
    assert len(accountant) == 20


# Batches ---------------------------------------------------------------------------------------------

Pair = namedtuple("Pair", ["x", "y"])


def in_words(batch: list[Any]) -> Any:
    x, y = data.default_collate(batch)
    return {"x": x, "y": y, "words": [f"record {int(label)}" for _, label in batch]}


def in_a_pair(batch: list[Any]) -> Any:
    return Pair(*data.default_collate(batch))


def with_mask(batch: list[Any]) -> Any:
    x, y = data.default_collate(batch)
    return [x, (y, torch.eye(3))]


def ragged(batch: list[Any]) -> Any:
    return [x for x, _ in batch], torch.stack([y for _, y in batch])


class Box:
    """A batch that nobody knows how to empty."""

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y


def in_a_box(batch: list[Any]) -> Any:
    return Box(*data.default_collate(batch))


def packed(batch: list[Any]) -> Any:
    return torch.nn.utils.rnn.pack_sequence([x[:, None] for x, _ in batch])


@pytest.mark.parametrize("collate", [in_words, in_a_pair, with_mask, ragged])
@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_empty_batches_look_like_others(collate: Any, workers: int) -> None:
    given = loader(1, collate_fn=collate, num_workers=workers)
    _, _, batches, _ = private(torch.nn.Linear(WIDTH, CLASSES), given, seed=1)
    empty = [
        batch
        for batch in batches
        if not len(
            batch["y"]
            if isinstance(batch, dict)
            else batch[1][0]
            if collate is with_mask
            else batch[1]
        )
    ]
    assert empty
    for batch in empty:
        if collate is in_words:
            assert batch["words"] == []
            assert batch["x"].shape == (0, WIDTH)
        elif collate is in_a_pair:
            assert isinstance(batch, Pair)
            assert batch.x.shape == (0, WIDTH)
            assert batch.y.dtype == torch.int64
        elif collate is with_mask:
            assert batch[0].shape == (0, WIDTH)
            assert batch[1][1].shape == (3, 3)
        else:
            assert batch[0] == []


@pytest.mark.parametrize(
    ("collate", "named"), [(in_a_box, "batches of Box"), (packed, "batches of PackedSequence")]
)
def test_batches_that_nobody_can_empty_are_refused_before_anything_is_spent(
    collate: Any, named: str
) -> None:
    with pytest.raises(ParameterError, match=named):
        private(torch.nn.Linear(WIDTH, CLASSES), loader(collate_fn=collate))


def test_time_first_batches_are_emptied_along_their_records() -> None:
    first, second = torch.ones(4, 1, 2), torch.ones(4, 2, 2)
    assert empty_batch(first, second).shape == (4, 0, 2)
    with pytest.raises(ParameterError, match="number of records"):
        empty_batch(torch.ones(4), torch.ones(8))


def test_loaders_are_taken_again_and_the_plain_module_is_reachable() -> None:
    module = torch.nn.Linear(WIDTH, CLASSES)
    module.config = {"heads": 2}
    first = private(module)
    assert first[0].config == {"heads": 2}
    assert first[0].in_features == WIDTH
    with pytest.raises(AttributeError, match="no attribute 'absent'"):
        _ = first[0].absent
    second = private(torch.nn.Linear(WIDTH, CLASSES), first[2])
    assert len(second[2]) == len(first[2]) == 5
    assert second[2].batch_sampler.batches == first[2].batch_sampler.batches
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    for given in ({}, {"loader": loader(), "data_loader": loader()}):
        with pytest.raises(ParameterError, match="one loader"):
            training.make_private(module, optimizer, delta=1e-5, noise_multiplier=1.0, **given)


# Layers ----------------------------------------------------------------------------------------------


class Added(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Any) -> Any:
        h = self.into(x)
        h += x
        return self.out(h)


class Tokens(torch.nn.Module):
    """A dense layer on tokens, whose output is a view that is written to."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = torch.nn.Linear(2, WIDTH), torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Any) -> Any:
        h = self.into(torch.stack([x, -x], dim=2))
        h *= 2
        return self.out(h).mean(dim=1)


class Shown(torch.nn.Module):
    """A parameter as it is, which is no result of this call alone."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = torch.nn.Parameter(torch.ones(5, WIDTH))

    def forward(self, _: Any) -> Any:
        return self.shown


def test_what_a_dense_layer_makes_of_tokens_is_a_view() -> None:
    assert Tokens().into(torch.ones(5, WIDTH, 2))._is_view()


def test_a_parameter_that_a_layer_returns_keeps_no_hook_of_a_pass() -> None:
    layer = Shown()
    PrivateModule(layer)(torch.ones(5, WIDTH)).sum().backward()
    assert not layer.shown._backward_hooks


@pytest.mark.parametrize(
    "module",
    [
        lambda: torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 6), torch.nn.ReLU(inplace=True), torch.nn.Linear(6, CLASSES)
        ),
        lambda: torch.nn.Sequential(
            torch.nn.Unflatten(1, (1, WIDTH)),
            torch.nn.Conv1d(1, 2, 3),
            torch.nn.ELU(inplace=True),
            torch.nn.GroupNorm(1, 2),
            torch.nn.LeakyReLU(inplace=True),
            torch.nn.Flatten(),
            torch.nn.LazyLinear(CLASSES),
        ),
        Added,
        Tokens,
    ],
    ids=["activation", "convolution", "addition", "view"],
)
def test_what_is_written_in_place_has_the_rows_of_each_record_alone(
    module: Callable[[], torch.nn.Module],
) -> None:
    torch.manual_seed(0)
    plain = module()
    x, y = torch.randn(5, WIDTH), torch.randint(CLASSES, (5,))
    plain(x)  # lazy layers
    alone = []
    for i in range(5):
        plain.zero_grad()
        torch.nn.functional.cross_entropy(plain(x[i : i + 1]), y[i : i + 1]).backward()
        alone.append([p.grad.clone() for p in plain.parameters()])
    plain.zero_grad()
    private = PrivateModule(plain, factored=False)
    torch.nn.functional.cross_entropy(private(x), y).backward()
    for parameter, *expected in zip(plain.parameters(), *alone, strict=True):
        # Sums of some dozen float32 terms below one, in two orders: 2^-24 each.
        assert torch.allclose(parameter.grad_sample, torch.stack(expected), atol=1e-6)


class Late(torch.nn.Module):
    """Writes to what a layer without a rule was given, after it; PyTorch needs it no more."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.out = Scale(), torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Any) -> Any:
        x = x.clone()
        h = self.scale(x)
        x += 1
        return self.out(h)


class Scale(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Any) -> Any:
        return x.exp() * self.factor


def test_inputs_that_are_written_to_afterwards_are_refused_with_what_to_write() -> None:
    Late()(torch.ones(2, WIDTH)).sum().backward()  # PyTorch takes it
    with pytest.raises(ParameterError, match="write h = h"):
        private(Late())  # made-up records find it
    model = PrivateModule(Late())
    with pytest.raises(ParameterError, match="write h = h"):
        model(torch.ones(2, WIDTH)).sum().backward()


@pytest.mark.parametrize(
    ("layer", "named"),
    [
        (torch.nn.RNN(3, 3), "DPRNN"),
        (torch.nn.LSTM(3, 3), "DPLSTM"),
        (torch.nn.GRU(3, 3), "DPGRU"),
        (torch.nn.LSTMCell(3, 3), "DPLSTM"),
        (torch.nn.MultiheadAttention(4, 1), "DPMultiheadAttention"),
    ],
)
def test_recurrent_layers_are_refused_at_the_call_naming_what_to_use(
    layer: Any, named: str
) -> None:
    with pytest.raises(ParameterError, match=named) as refused:
        private(torch.nn.Sequential(layer))
    assert "vmap" in str(refused.value)


def test_a_pass_without_backward_is_refused_with_the_remedy() -> None:
    model, optimizer, batches, _ = private(torch.nn.Linear(WIDTH, CLASSES))
    x, y = next(iter(batches))
    model(x)
    optimizer.zero_grad()
    entropy(model, (x, y)).backward()
    with pytest.raises(ParameterError, match="no_grad"):
        optimizer.step()


def test_a_fixed_module_needs_another_optimizer() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    fixed = opacus.validators.ModuleValidator.fix(module)
    with pytest.raises(ParameterError, match="make the optimizer anew"):
        training.make_private(fixed, optimizer, loader(), noise_multiplier=1.0, delta=1e-5)


class Mixing(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = torch.nn.Linear(WIDTH, 6), torch.nn.Linear(6, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.out(torch.relu(self.into(x - x.mean(dim=0))))


def test_made_up_records_find_modules_that_mix_before_anything_is_spent() -> None:
    with pytest.raises(ParameterError, match="replacing one record changes"):
        private(Mixing())


class Counting(torch.nn.Module):
    """Counts its passes, which says nothing of records."""

    def __init__(self) -> None:
        super().__init__()
        self.out = torch.nn.Linear(WIDTH, CLASSES)
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.passes += 1
        return self.out(x)


def test_state_that_does_not_depend_on_records_may_change() -> None:
    model, optimizer, batches, _ = private(Counting())
    for batch in batches:
        optimizer.zero_grad()
        entropy(model, batch).backward()
        optimizer.step()
    assert float(model.passes) == 5


# Other ways to rows ----------------------------------------------------------------------------------


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(WIDTH, 6, batch_first=True)
        self.out = torch.nn.Linear(6, CLASSES)

    def forward(self, x: Any) -> Any:
        return self.out(self.lstm(x)[0][:, -1])


class Attending(torch.nn.Module):
    """Attention to learned queries, given once for all records."""

    def __init__(self) -> None:
        super().__init__()
        self.ask = torch.nn.Linear(4, WIDTH)
        self.look = torch.nn.MultiheadAttention(WIDTH, 1, batch_first=True)
        self.out = torch.nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Any) -> Any:
        query = self.ask(torch.ones(1, 2, 4)).expand(len(x), -1, -1)
        return self.out(self.look(query, x, x, need_weights=False)[0].mean(dim=1))


@pytest.mark.parametrize("kind", [Recurrent, Attending])
@pytest.mark.parametrize("chunk", [1, 3, 32])
def test_backward_takes_each_record_by_itself(kind: Any, chunk: int) -> None:
    torch.manual_seed(0)
    module = kind()
    given = loader(8, records(TIMES, WIDTH))
    model, optimizer, batches, accountant = private(module, given, grad_sample_mode="vmap")
    batch = next(iter(batches))
    loss = model.backward(entropy, batch, chunk=chunk)
    # Sums of 32-bit floats, chunk by chunk.
    assert float(loss) == pytest.approx(entropy(module, batch).item(), rel=1e-5)
    for i in range(len(batch[0])):
        alone = torch.autograd.grad(
            entropy(module, (batch[0][i : i + 1], batch[1][i : i + 1])), list(module.parameters())
        )
        for parameter, expected in zip(module.parameters(), alone, strict=True):
            torch.testing.assert_close(parameter.grad_sample[i], expected, rtol=1e-4, atol=1e-6)
    with pytest.raises(ParameterError, match="zero_grad"):
        model.backward(entropy, batch)
    optimizer.step()
    assert len(accountant) == 1
    optimizer.zero_grad()
    empty = model.backward(entropy, (batch[0][:0], batch[1][:0]))
    assert math.isnan(float(empty))
    assert all(len(parameter.grad_sample) == 0 for parameter in module.parameters())


def test_backward_needs_tensors_and_hooks_a_pass_of_their_own() -> None:
    model, optimizer, batches, _ = private(
        Recurrent(), loader(8, records(TIMES, WIDTH)), grad_sample_mode="vmap"
    )
    with pytest.raises(ParameterError, match="records first"):
        model.backward(entropy, ["words"])
    entropy(model, next(iter(batches))).backward()
    with pytest.raises(ParameterError, match="none in"):
        optimizer.step()
    assert not any(parameter.grad is not None for parameter in model.parameters())


class Placed(torch.nn.Module):
    """Positions that are looked up once for the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.word, self.place = torch.nn.Embedding(11, 6), torch.nn.Embedding(9, 6)
        self.out = torch.nn.Linear(6, CLASSES)

    def forward(self, x: Any) -> Any:
        ids = torch.arange(x.shape[1])[None]
        return self.out((self.word(x) + self.place(ids)).mean(dim=1))


@pytest.mark.parametrize("count", [0, 1, 6])
def test_layers_marked_records_first_have_rows(count: int) -> None:
    torch.manual_seed(0)
    module = training.records_first(Placed(), "place")
    generator = torch.Generator().manual_seed(1)
    batch = torch.randint(11, (count, 4), generator=generator), torch.arange(count) % CLASSES
    model = PrivateModule(module, loss_reduction="sum")
    functional.cross_entropy(model(batch[0]), batch[1], reduction="sum").backward()
    for parameter in module.parameters():
        assert len(parameter.grad_sample) == count
    for i in range(count):
        single = Placed()
        single.load_state_dict(module.state_dict())
        alone = torch.autograd.grad(
            entropy(single, (batch[0][i : i + 1], batch[1][i : i + 1])), list(single.parameters())
        )
        for parameter, expected in zip(module.parameters(), alone, strict=True):
            row = parameter.grad_sample[i]
            pair = factors(parameter.grad_sample)
            if pair is not None:
                row = pair[0][i][:, None] * pair[1][i][None, :]
            torch.testing.assert_close(row, expected, rtol=1e-4, atol=1e-6)


def test_records_first_is_never_automatic_and_is_probed() -> None:
    batch = torch.randint(11, (7, 4)), torch.arange(7) % CLASSES
    with pytest.raises(ParameterError, match="records_first"):
        training.check_records(Placed(), entropy, batch)
    training.check_records(training.records_first(Placed(), "place"), entropy, batch)
    with pytest.raises(ParameterError, match="named_modules"):
        training.records_first(Placed(), "positions")
