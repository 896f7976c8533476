"""What public issue trackers report of DP training libraries, each tried here: right gradients, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mezzotint import ParameterError

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")

from mezzotint import training  # noqa: E402 - needs the extra
from mezzotint.training.batches import PoissonBatches  # noqa: E402

nn, data = torch.nn, torch.utils.data

RECORDS, WIDTH = 6, 8


def square(module: Any, batch: Any) -> Any:
    """A mean over records of a function of each one's outputs."""
    outputs = module(*batch) if isinstance(batch, tuple) else module(batch)
    return outputs.flatten(1).square().sum(dim=1).mean()


def normal(*shape: int) -> Any:
    return torch.randn(RECORDS, *shape, generator=torch.Generator().manual_seed(1))


def words(length: int) -> Any:
    return torch.randint(9, (RECORDS, length), generator=torch.Generator().manual_seed(1))


class TwoWindows(nn.Module):
    """An embedding that is looked up for a word, and for several others."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, WIDTH)

    def forward(self, word: Any, others: Any) -> Any:
        return (self.words(word) * self.words(others).mean(dim=1, keepdim=True)).squeeze(1)


class SharedNorm(nn.Module):
    """A norm behind two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: Any) -> Any:
        return self.norm(self.second(self.norm(self.first(x))))


class TiedTable(nn.Module):
    """Words in and words out by one table."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.out = nn.Embedding(9, WIDTH), nn.Linear(WIDTH, 9, bias=False)
        self.out.weight = self.words.weight

    def forward(self, x: Any) -> Any:
        return self.out(self.words(x).mean(dim=1))


class BagOfOffsets(nn.Module):
    """A bag whose records lie one behind another."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(9, WIDTH, mode="sum")

    def forward(self, x: Any) -> Any:
        offsets = torch.arange(len(x)) * x.shape[1]
        return self.bag(x.flatten(), offsets)


def bias_alone() -> Any:
    layer = nn.Linear(WIDTH, WIDTH)
    layer.weight.requires_grad_(False)
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), layer)


def frozen_statistics() -> Any:
    norm = nn.BatchNorm1d(WIDTH)
    norm.eval().requires_grad_(False)
    norm.train = lambda _mode=True: norm
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), norm)


RIGHT: dict[str, tuple[Callable[[], Any], Any]] = {
    "opacus#1 stride and padding": (lambda: nn.Conv2d(2, 3, 3, stride=2, padding=1), (2, 7, 7)),
    "opacus#78 groups": (lambda: nn.Conv2d(4, 8, 3, groups=4), (4, 6, 6)),
    "opacus#137 dilation": (lambda: nn.Conv2d(2, 3, 3, dilation=2), (2, 9, 9)),
    "opacus#671 three dimensions": (lambda: nn.Conv3d(1, 2, 2, stride=2), (1, 4, 4, 4)),
    "opacus#671 up again": (lambda: nn.ConvTranspose2d(2, 3, 2, stride=2), (2, 4, 4)),
    "opacus#58 called with two widths": (TwoWindows, lambda: (words(1), words(4))),
    "opacus#413 tied tables": (TiedTable, lambda: words(5)),
    "opacus#436, #542 a bias alone": (bias_alone, (WIDTH,)),
    "opacus#472 frozen statistics": (frozen_statistics, (WIDTH,)),
    "opacus#518 offsets": (BagOfOffsets, lambda: words(3)),
    "opacus#646 weight norm": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
        (WIDTH,),
    ),
    "opacus#578 a norm in two places": (SharedNorm, (WIDTH,)),
}


@pytest.mark.parametrize("issue", RIGHT)
def test_rows_are_those_of_each_record(issue: str) -> None:
    build, shape = RIGHT[issue]
    torch.manual_seed(0)
    batch = shape() if callable(shape) else normal(*shape)
    training.check_records(build(), square, batch)


REFUSED: dict[str, tuple[Callable[[], Any], Any, str]] = {
    "opacus#319 batch statistics": (lambda: nn.BatchNorm1d(WIDTH), (WIDTH,), "GroupNorm"),
    "opacus#717 GRU": (lambda: nn.GRU(WIDTH, WIDTH), (3, WIDTH), "DPGRU"),
    "opacus#646 spectral norm": (
        lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)),
        (WIDTH,),
        "weight_norm in place of spectral_norm",
    ),
}


@pytest.mark.parametrize("issue", REFUSED)
def test_what_rows_cannot_be_had_of_is_refused(issue: str) -> None:
    build, shape, remedy = REFUSED[issue]
    torch.manual_seed(0)
    batch = shape() if callable(shape) else normal(*shape)
    with pytest.raises(ParameterError, match=remedy):
        training.check_records(build(), square, batch)


def script(
    module: Any = None, *, records: int = 40, batch_size: int = 10, loader: Any = None, **more: Any
) -> Any:
    """The parts of a private script with plain SGD."""
    torch.manual_seed(0)
    module = nn.Linear(WIDTH, 2) if module is None else module
    features = torch.randn(records, WIDTH)
    plain = data.DataLoader(
        data.TensorDataset(features, (features[:, 0] > 0).long()), batch_size=batch_size
    )
    settings = {"noise_multiplier": 1.0, "delta": 1e-5, "seed": 1, **more}
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    return training.make_private(module, optimizer, loader or plain, **settings)


def loss_of(module: Any, batch: Any) -> Any:
    return nn.functional.cross_entropy(module(batch[0]), batch[1])


def test_weighted_samplers_are_refused() -> None:
    # opacus#813: the rate was taken from the sampler's own number of draws.
    records = data.TensorDataset(torch.randn(100, WIDTH), torch.zeros(100).long())
    sampler = data.WeightedRandomSampler(torch.ones(100), num_samples=20)
    loader = data.DataLoader(records, batch_size=10, sampler=sampler)
    with pytest.raises(ParameterError, match="leave the sampler out"):
        script(loader=loader)


def test_whole_batches_cost_the_plain_gaussian_and_larger_ones_are_refused() -> None:
    # opacus#74, #335: a rate of 1 or more.
    module, optimizer, loader, accountant = script(batch_size=40)
    loss_of(module, next(iter(loader))).backward()
    optimizer.step()
    assert accountant.sampling.rate == 1.0
    assert 4.3 < accountant.claim().epsilon < 4.4  # mu = 1 at delta = 1e-5
    with pytest.raises(ParameterError, match="batch_size=41"):
        script(batch_size=41)


@pytest.mark.parametrize("records", [39, 40, 41])
def test_sums_are_divided_by_one_number_whoever_is_there(records: int) -> None:
    # opacus#571, #819: a divisor that depended on the number of records told neighbours apart.
    optimizer = script(records=records)[1]
    assert optimizer.expected_batch_size == 10


def test_split_batches_may_be_empty() -> None:
    # opacus#522
    module, optimizer, loader, accountant = script(records=30, batch_size=1)
    manager = opacus.utils.batch_memory_manager.BatchMemoryManager(
        data_loader=loader, max_physical_batch_size=2, optimizer=optimizer
    )
    steps = 0
    with manager as parts:
        for batch in parts:
            optimizer.zero_grad()
            loss_of(module, batch).backward()
            optimizer.step()
            steps += 1
    assert steps >= len(accountant) == 30
    assert all(torch.isfinite(parameter).all() for parameter in module.parameters())


def test_mappings_of_a_collator_may_be_empty() -> None:
    # opacus#534, #676, #743: a batch of none was made from the first record's shapes.
    torch.manual_seed(0)
    records = [{"input": torch.randn(WIDTH).tolist(), "label": k % 2} for k in range(30)]

    def collate(chosen: list[Any]) -> dict[str, Any]:
        features = torch.tensor([record["input"] for record in chosen])
        return {"features": features, "labels": torch.tensor([one["label"] for one in chosen])}

    module = nn.Linear(WIDTH, 2)
    loader = data.DataLoader(records, batch_size=1, collate_fn=collate)
    private, optimizer, loader, accountant = training.make_private(
        module,
        torch.optim.SGD(module.parameters(), lr=0.1),
        loader,
        noise_multiplier=1.0,
        delta=1e-5,
    )
    for batch in loader:
        optimizer.zero_grad()
        nn.functional.cross_entropy(private(batch["features"]), batch["labels"]).backward()
        optimizer.step()
    assert len(accountant) == 30


def test_passes_that_take_no_gradient_leave_nothing_behind() -> None:
    # opacus#176: activations of a validation pass stayed, in training mode as well.
    module, optimizer, loader, _ = script()
    batch = next(iter(loader))
    with torch.no_grad():
        for _ in range(3):
            module(torch.randn(7, WIDTH))
    assert not getattr(module._module, "activations", None)
    loss_of(module, batch).backward()
    optimizer.step()


def test_gradients_in_eval_mode_are_no_step() -> None:
    # opacus#613: attributions need gradients of inputs, of a module that is not in training mode.
    module, optimizer, loader, accountant = script()
    module.eval()
    inputs = torch.randn(3, WIDTH, requires_grad=True)
    module(inputs).sum().backward()
    assert inputs.grad is not None
    module.train()
    optimizer.zero_grad()
    loss_of(module, next(iter(loader))).backward()
    optimizer.step()
    assert len(accountant) == 1


def test_a_layer_frozen_later_stays_and_one_unfrozen_later_is_refused() -> None:
    # opacus#687
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 2))
    module, optimizer, loader, _ = script(body)
    body[0].requires_grad_(False)
    before = body[0].weight.detach().clone()
    loss_of(module, next(iter(loader))).backward()
    optimizer.step()
    assert torch.equal(body[0].weight, before)
    body[0].requires_grad_(True)
    optimizer.zero_grad()
    for batch in loader:
        loss_of(module, batch).backward()
        optimizer.step()
        break
    assert not torch.equal(body[0].weight, before)


def test_losses_of_two_passes_are_one_backward_pass() -> None:
    # opacus#31, #396, #474: discriminators see a batch and as many fakes.
    module, optimizer, loader, accountant = script()
    batches = iter(loader)
    real = next(batches)[0]
    fake = torch.randn_like(real)
    module(real).mean().backward()
    module(fake).mean().backward()
    with pytest.raises(ParameterError, match="one backward pass"):
        optimizer.step()
    assert len(accountant) == 0
    optimizer.zero_grad()
    real = next(batches)[0]
    fake = torch.randn_like(real)
    (module(real).mean() - module(fake).mean()).backward()
    optimizer.step()
    assert len(accountant) == 1


def test_microbatches_are_no_records() -> None:
    # tensorflow/privacy#81, #135, #620: means of several records that are clipped together.
    module, optimizer, loader, accountant = script(batch_size=20)
    features = next(iter(loader))[0]
    pairs = features[: len(features) // 2 * 2].unflatten(0, (-1, 2)).mean(dim=1)
    module(pairs).mean().backward()
    with pytest.raises(ParameterError, match="rows must be the records of the batch"):
        optimizer.step()
    assert len(accountant) == 0


def test_autograd_s_own_sum_reaches_no_step() -> None:
    # private-transformers#9, dayu11/Differentially-Private-Deep-Learning#7
    module, optimizer, loader, _ = script(noise_multiplier=1e-6, max_grad_norm=1e-3)
    batch = next(iter(loader))
    (1e3 * loss_of(module, batch)).backward()
    assert all(parameter.grad is None for parameter in module.parameters())
    before = [parameter.detach().clone() for parameter in module.parameters()]
    optimizer.step()
    pairs = zip(module.parameters(), before, strict=True)
    moved = sum(float((parameter - value).detach().square().sum()) for parameter, value in pairs)
    assert 0 < moved**0.5 <= 1e-3 * len(batch[0]) / 10 * (1 + 1e-3)  # and noise


def test_batches_of_another_loader_are_refused() -> None:
    # private-transformers#7, jax_privacy#272, tensorflow/privacy#483: claims of Poisson batches, without them.
    module, optimizer, _, accountant = script()
    module(torch.randn(10, WIDTH)).mean().backward()
    with pytest.raises(ParameterError, match="drawn by the loader"):
        optimizer.step()
    assert len(accountant) == 0


def test_noise_is_that_of_the_sum_over_the_batch_size() -> None:
    # jax_privacy#383: noise for a sum was added to a mean.
    module, optimizer, loader, _ = script(
        nn.Linear(WIDTH, 500), noise_multiplier=3.0, max_grad_norm=0.5
    )
    module(next(iter(loader))[0] * 0).mul(0).sum().backward()
    weight = module._module.weight.detach().numpy().copy()
    optimizer.step()
    moves = module._module.weight.detach().numpy() - weight
    assert np.std(moves) == pytest.approx(3.0 * 0.5 / 10, rel=0.08)  # 4,000 draws, seven errors


def test_one_draw_of_a_rate_is_never_above_the_rate_claimed() -> None:
    # opacus#819's other half: a rate that is rounded down claims too little.
    for records in (3, 7, 49, 60_000):
        batches = PoissonBatches(batch_size=1, dataset_size=records)
        assert batches.sampling.rate * 2**64 >= batches.threshold
