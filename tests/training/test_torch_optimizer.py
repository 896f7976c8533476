"""What a `torch.optim.Optimizer` is expected to do, row by row: it works as in PyTorch, or it is refused in words."""

from __future__ import annotations

import copy
import importlib
import math
import pickle
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from mezzotint import ParameterError, training
from mezzotint.datasets import Dataset
from mezzotint.training import models, optimizers
from mezzotint.training.projection import projection
from tolerances import FEW, SINGLE, UNIT

torch = pytest.importorskip("torch")
opacus = pytest.importorskip("opacus")

SGD, schedulers = torch.optim.SGD, torch.optim.lr_scheduler


def script(
    data: Dataset, *, module: Any = None, inner: Any = None, **settings: Any
) -> tuple[Any, Any, Any, Any]:
    """A private script on small data, whole batches unless said otherwise."""
    torch.manual_seed(3)
    module = (
        torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        if module is None
        else module
    )
    records = torch.utils.data.TensorDataset(
        torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    )
    loader = torch.utils.data.DataLoader(
        records, batch_size=settings.pop("batch_size", 200), **settings.pop("loader", {})
    )
    make = inner or (lambda p: SGD(p, lr=0.5))
    return training.make_private(
        module,
        make(module.parameters()),
        loader,
        **{"noise_multiplier": 1.0, "delta": 1e-5, "seed": 1, **settings},
    )


def backward(module: Any, optimizer: Any, batch: Any) -> None:
    """Gradients of one batch."""
    x, y = batch
    optimizer.zero_grad()
    outputs = module(x.to(next(module.parameters()).dtype)).float().squeeze(1)
    losses = torch.nn.functional.softplus(-outputs * (2 * y - 1))
    (losses.sum() if module.loss_reduction == "sum" else losses.mean()).backward()


def steps(parts: Any, number: int) -> np.ndarray:
    """Takes steps; the weights at the end."""
    module, optimizer, loader, _ = parts
    taken = 0
    while taken < number:
        for batch in loader:
            backward(module, optimizer, batch)
            optimizer.step()
            taken += 1
            if taken == number:
                break
    return flat(module)


def flat(module: Any) -> np.ndarray:
    return np.concatenate(
        [parameter.detach().float().numpy().ravel() for parameter in module.parameters()]
    )


INNER: dict[str, Callable[[Any], Any]] = {
    "sgd": lambda p: SGD(p, lr=0.5, weight_decay=0.01),
    "momentum": lambda p: SGD(p, lr=0.1, momentum=0.9),
    "nesterov": lambda p: SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "foreach": lambda p: SGD(p, lr=0.1, momentum=0.9, foreach=True),
    "fused": lambda p: torch.optim.Adam(p, lr=0.05, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.05),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.05),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
}


@pytest.mark.parametrize("kind", INNER)
def test_every_optimizer_takes_the_step_of_its_own(blobs: Dataset, kind: str) -> None:
    # A plain optimizer that is given the same noisy gradients ends in the same weights.
    parts = script(blobs, inner=INNER[kind])
    module, optimizer, _, accountant = parts
    other = [torch.nn.Parameter(parameter.detach().clone()) for parameter in module.parameters()]
    plain = INNER[kind](other)
    for _ in range(5):
        steps(parts, 1)
        for mine, its in zip(module.parameters(), other, strict=True):
            its.grad = mine.grad.clone()
        plain.step()
    for mine, its in zip(module.parameters(), other, strict=True):
        assert torch.equal(mine, its)
    assert accountant.claim().releases == 5
    assert optimizer.contraction == 1.0


@pytest.mark.parametrize("bits", [None, 4])
def test_it_is_an_optimizer(blobs: Dataset, bits: int | None) -> None:
    module, optimizer, _, _ = script(blobs, bits=bits, inner=INNER["adam"])
    assert isinstance(optimizer, torch.optim.Optimizer)
    assert isinstance(optimizer, opacus.optimizers.DPOptimizer)
    assert len(optimizer.param_groups) == 1
    assert [id(p) for p in optimizer.param_groups[0]["params"]] == [
        id(p) for p in module.parameters()
    ]
    assert optimizer.defaults["lr"] == 0.05
    assert "Adam" in repr(optimizer)


@pytest.mark.parametrize("bits", [None, 4])
def test_deepcopy(blobs: Dataset, bits: int | None) -> None:
    # Opacus's modules cannot be copied once they have made gradients; their optimizers can.
    parts = script(blobs, bits=bits, inner=INNER["adam"])
    steps(parts, 2)
    optimizer, twin = parts[1], copy.deepcopy(parts[1])
    for one in (optimizer, twin, twin):
        next(iter(parts[2]))
        one.zero_grad()
        for parameter in one.params:
            parameter.grad_sample = torch.ones(200, *parameter.shape)
        one.step()
        if one is optimizer:
            first = [parameter.detach().clone() for parameter in one.params]
        elif first is not None:
            # The same seed and state go on in both, and neither moves the other.
            assert all(torch.equal(*pair) for pair in zip(first, twin.params, strict=True))
            first = None
    # Few weights on levels may come to stand where they stood.
    assert not all(torch.equal(*pair) for pair in zip(optimizer.params, twin.params, strict=True))
    # Steps of both are counted, wherever the claim is asked for.
    assert len(parts[3]) == 5
    assert optimizer.record.__self__ is twin.record.__self__ is parts[3]


def test_copies_share_a_batch(blobs: Dataset) -> None:
    # A second release of the same sample is not amplified by sampling.
    module, optimizer, loader, accountant = script(blobs)
    batch = next(iter(loader))
    twin = copy.deepcopy(optimizer)
    backward(module, optimizer, batch)
    optimizer.step()
    for one in (twin, copy.copy(optimizer), copy.deepcopy(optimizer)):
        for parameter in one.params:
            parameter.grad_sample = torch.ones(3, *parameter.shape)
        with pytest.raises(ParameterError, match="a batch of its own"):
            one.step()
    assert len(accountant) == 1


@pytest.mark.parametrize("bits", [None, 4])
def test_pickled_copies_release_nothing(blobs: Dataset, bits: int | None) -> None:
    # Nobody's claim would cover their steps, also where a batch was left for them.
    parts = script(blobs, bits=bits, inner=INNER["adam"])
    steps(parts, 2)
    next(iter(parts[2]))
    optimizer, accountant = pickle.loads(pickle.dumps((parts[1], parts[3])))
    assert accountant.claim() == parts[3].claim()
    assert accountant.claim().releases == 2
    before = [parameter.detach().clone() for parameter in optimizer.params]
    for parameter in optimizer.params:
        parameter.grad_sample = torch.ones(200, *parameter.shape)
    with pytest.raises(ParameterError, match="load_state_dict"):
        optimizer.step()
    assert all(torch.equal(*pair) for pair in zip(before, optimizer.params, strict=True))
    assert optimizer.state_dict()["state"].keys() == parts[1].state_dict()["state"].keys()
    assert len(accountant) == 2
    # What goes on is a run of its own, which takes over what was counted.
    again = script(blobs, bits=bits, inner=INNER["adam"])
    again[0].load_state_dict(parts[0].state_dict())
    again[1].load_state_dict(optimizer.state_dict())
    again[3].load_state_dict(accountant.state_dict())
    steps(again, 1)
    assert len(again[3]) == 3


def test_pickle() -> None:
    weight = torch.nn.Parameter(torch.linspace(-1, 1, 5))
    made = optimizers.NoisyOptimizer(
        SGD([weight], lr=0.1), noise_multiplier=1.0, clip_norm=1.0, expected_batch_size=2
    )
    again = pickle.loads(pickle.dumps(made))
    again.params[0].grad_sample = torch.ones(2, 5)
    again.step()
    assert not torch.equal(again.params[0], weight)


@pytest.mark.parametrize("kind", ["momentum", "adam"])
def test_state_dict_round_trip(blobs: Dataset, kind: str) -> None:
    first = script(blobs, inner=INNER[kind])
    steps(first, 3)
    second = script(blobs, inner=INNER[kind])
    second[0].load_state_dict(first[0].state_dict())
    second[1].load_state_dict(copy.deepcopy(first[1].state_dict()))
    second[1].rng.func.counts.update(first[1].rng.func.counts)
    assert np.array_equal(steps(first, 2), steps(second, 2))


def test_a_group_that_is_added_is_clipped_noised_and_projected(blobs: Dataset) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    parts = script(blobs, module=module, inner=lambda p: SGD(list(p)[:2], lr=0.5), bits=4)
    late = module[2].weight.detach().clone()
    steps(parts, 1)
    assert torch.equal(module[2].weight, late)
    parts[1].add_param_group({"params": [module[2].weight], "lr": 0.1})
    bound = 2 * float(late.abs().max())
    levels = np.linspace(-bound, bound, 16)
    steps(parts, 2)
    weight = module[2].weight.detach().numpy()
    assert np.abs(weight[..., None] - levels).min(axis=-1).max() < SINGLE
    assert not torch.equal(module[2].weight, late)
    assert parts[1].param_groups[1]["lr"] == 0.1


@pytest.mark.parametrize("bits", [None, 4])
@pytest.mark.parametrize(
    "make",
    [
        lambda o: schedulers.StepLR(o, 1, gamma=0.5),
        lambda o: schedulers.CosineAnnealingLR(o, 10),
        lambda o: schedulers.OneCycleLR(o, max_lr=0.5, total_steps=20),
        lambda o: schedulers.CyclicLR(o, 0.1, 0.5, cycle_momentum=False),
        lambda o: schedulers.LambdaLR(o, lambda step: 1 / (1 + step)),
        lambda o: schedulers.SequentialLR(
            o, [schedulers.ConstantLR(o, 0.1, 2), schedulers.ExponentialLR(o, 0.9)], milestones=[2]
        ),
    ],
    ids=["step", "cosine", "one-cycle", "cyclic", "lambda", "sequential"],
)
def test_schedulers_set_the_learning_rate(
    blobs: Dataset, make: Callable[[Any], Any], bits: int | None
) -> None:
    parts = script(blobs, bits=bits, inner=INNER["momentum"])
    plain = SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
    mine, its = make(parts[1]), make(plain)
    for _ in range(6):
        assert parts[1].param_groups[0]["lr"] == plain.param_groups[0]["lr"]
        steps(parts, 1)
        plain.step()
        mine.step()
        its.step()
    assert len(parts[3]) == 6


def test_plateaus(blobs: Dataset) -> None:
    parts = script(blobs)
    plateau = schedulers.ReduceLROnPlateau(parts[1], patience=0, factor=0.1)
    for loss in (1.0, 2.0):
        steps(parts, 1)
        plateau.step(loss)
    assert parts[1].param_groups[0]["lr"] == pytest.approx(0.05, rel=FEW)


@pytest.mark.parametrize("bits", [None, 4])
def test_hooks_fire_once(blobs: Dataset, bits: int | None) -> None:
    parts, seen = script(blobs, bits=bits), []
    handles = [
        parts[1].register_step_pre_hook(lambda *_: seen.append("before")),
        parts[1].register_step_post_hook(lambda *_: seen.append("after")),
    ]
    steps(parts, 2)
    assert seen == ["before", "after"] * 2
    for handle in handles:
        handle.remove()
    steps(parts, 1)
    assert len(seen) == 4


def test_closures_are_evaluated_once(blobs: Dataset) -> None:
    plain, closed = script(blobs), script(blobs)
    module, optimizer, loader, accountant = closed
    for batch in loader:
        optimizer.step(lambda batch=batch: backward(module, optimizer, batch))
    assert np.array_equal(steps(plain, 1), flat(module))
    assert len(accountant) == 1


def test_memory_manager_draws_noise_once_per_logical_batch(blobs: Dataset) -> None:
    whole, split = script(blobs, batch_size=50), script(blobs, batch_size=50)
    module, optimizer, loader, accountant = split
    parts = 0
    manager = importlib.import_module("opacus.utils.batch_memory_manager")
    with manager.BatchMemoryManager(
        data_loader=loader, max_physical_batch_size=9, optimizer=optimizer
    ) as small:
        for batch in small:
            assert len(batch[0]) <= 9
            backward(module, optimizer, batch)
            optimizer.step()
            parts += 1
    assert parts > 4 * len(loader)
    assert len(accountant) == len(loader) == 4
    # Integer sums do not depend on how a batch is split, but for gradients of which a float's last bit does.
    np.testing.assert_allclose(steps(whole, 4), flat(module), atol=1e-4)


def test_parts_of_a_sum_that_are_not_parts_of_one_batch_are_refused(blobs: Dataset) -> None:
    # Three draws under one noise: a record may be in all of them, and one release would be counted.
    module, optimizer, loader, accountant = script(blobs, batch_size=50)
    for skipped, batch in zip((True, True, False), loader, strict=False):
        with pytest.raises(ParameterError, match="signal_skip_step"):
            optimizer.signal_skip_step(skipped)
        backward(module, optimizer, batch)
        optimizer.step()
    assert len(accountant) == 3


def test_accumulated_batches_are_refused(blobs: Dataset) -> None:
    # A record may be in several of them, and would count as several.
    # Dense layers keep factors, others write their gradients out.
    for module in (
        None,
        torch.nn.Sequential(torch.nn.LayerNorm(5), torch.nn.Linear(5, 1).requires_grad_(False)),
    ):
        made, optimizer, loader, accountant = script(blobs, module=module, batch_size=50)
        for x, y in list(loader)[:2]:
            torch.nn.functional.softplus(-made(x).squeeze(1) * (2 * y - 1)).mean().backward()
        with pytest.raises(ParameterError, match="batch_memory_manager"):
            optimizer.step()
        assert len(accountant) == 0


@pytest.mark.parametrize("bits", [None, 4])
def test_bfloat16_modules(blobs: Dataset, bits: int | None) -> None:
    module = torch.nn.Linear(5, 1).to(torch.bfloat16)
    parts = script(blobs, module=module, bits=bits, batch_size=50, loss_reduction="sum")
    steps(parts, 12)
    module = parts[0]
    assert all(
        parameter.dtype == parameter.grad.dtype == torch.bfloat16
        for parameter in module.parameters()
    )
    with torch.no_grad():
        right = (
            (module(torch.from_numpy(blobs.test_x).bfloat16()).squeeze(1) > 0).numpy()
            == blobs.test_y
        ).mean()
    assert right > 0.9


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_autocast(blobs: Dataset, kind: Any) -> None:
    # Weights stay in 32 bits; gradients of single records come in 16, and their integers are those of the 16 bits.
    parts = script(blobs, bits=4, batch_size=50, loss_reduction="sum")
    module, optimizer, loader, accountant = parts
    for _ in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=kind):
                outputs = module(x).squeeze(1)
                assert outputs.dtype == kind
                loss = torch.nn.functional.softplus(-outputs.float() * (2 * y - 1)).sum()
            loss.backward()
            optimizer.step()
    assert all(
        parameter.dtype == parameter.grad.dtype == torch.float32
        for parameter in module.parameters()
    )
    assert len(accountant) == 12
    with torch.no_grad():
        assert (
            (module(torch.from_numpy(blobs.test_x)).squeeze(1) > 0).numpy() == blobs.test_y
        ).mean() > 0.9


def test_gradient_scalers_are_refused(blobs: Dataset) -> None:
    # A scaler leaves a step out where a gradient overflows: whether it did would be seen, without noise.
    module, optimizer, loader, accountant = script(blobs)
    before = flat(module)
    scaler = torch.amp.GradScaler("cpu")
    ((x, y),) = loader
    scaler.scale(
        torch.nn.functional.softplus(-module(x).squeeze(1) * (2 * y - 1)).mean()
    ).backward()
    with pytest.raises(ParameterError, match="GradScaler"):
        scaler.step(optimizer)
    assert np.array_equal(before, flat(module))
    assert len(accountant) == 0
    plain, same = script(blobs), script(blobs)
    for parts in (plain, same):
        next(iter(parts[2]))
    backward(plain[0], plain[1], (x, y))
    torch.amp.GradScaler("cpu", enabled=False).step(plain[1])
    backward(same[0], same[1], (x, y))
    same[1].step()
    assert np.array_equal(flat(plain[0]), flat(same[0]))


@pytest.mark.parametrize("bits", [None, 4])
def test_frozen_tensors_stay_as_they_are(blobs: Dataset, bits: int | None) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    module[0].requires_grad_(False)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    parts = script(blobs, module=module, bits=bits)
    steps(parts, 3)
    after = module.state_dict()
    for name in ("0.weight", "0.bias"):
        assert torch.equal(before[name], after[name])
    assert not torch.equal(before["2.weight"], after["2.weight"])
    module[0].requires_grad_(
        True
    )  # Opacus has no hooks there: the step is refused, not taken without the layer
    with pytest.raises((ValueError, AttributeError), match="grad"):
        steps(parts, 1)


def test_norms_and_biases_stay_floats(blobs: Dataset) -> None:
    module = torch.nn.Sequential(
        torch.nn.Linear(5, 4),
        torch.nn.LayerNorm(4),
        torch.nn.GroupNorm(2, 4),
        torch.nn.Linear(4, 1),
    )
    parts = script(blobs, module=module, bits=2)
    steps(parts, 2)
    for name, parameter in module.named_parameters():
        assert (len(torch.unique(parameter.detach())) <= 4) == (
            parameter.dim() == 2 or parameter.numel() <= 4
        ), name
    assert len(parts[1].original_optimizer.parameters) == 2


class Tied(torch.nn.Module):
    """One weight, used on the way in and on the way out."""

    def __init__(self) -> None:
        super().__init__()
        self.into = torch.nn.Linear(5, 5, bias=False)
        self.out = torch.nn.Linear(5, 5, bias=False)
        self.out.weight = self.into.weight

    def forward(self, x: Any) -> Any:
        return self.out(torch.tanh(self.into(x))).sum(dim=1, keepdim=True)


def test_tied_weights_are_one_tensor(blobs: Dataset) -> None:
    # Per-record gradients of both uses are summed before the clip: here by autograd, record by record.
    module = Tied()
    start = module.into.weight.detach().clone()
    parts = script(blobs, module=module, noise_multiplier=1e-9, max_grad_norm=0.3)
    expected = torch.zeros(5, 5)
    for x, y in zip(torch.from_numpy(blobs.train_x), torch.from_numpy(blobs.train_y), strict=True):
        weight = start.clone().requires_grad_(True)
        output = (torch.tanh(x @ weight.T) @ weight.T).sum()
        (gradient,) = torch.autograd.grad(
            torch.nn.functional.softplus(-output * (2 * y - 1)), weight
        )
        expected += gradient * min(1.0, 0.3 / float(gradient.norm()))
    steps(parts, 1)
    assert len(parts[1].params) == 1
    # The sum's grid, 2^-16 of the clip norm for each of 200 records.
    np.testing.assert_allclose(module.into.weight.detach(), start - 0.5 * expected / 200, atol=1e-5)
    assert module.out.weight is module.into.weight


def test_a_transformer_is_clipped_record_by_record() -> None:
    # Attention mixes the tokens of a record, never records: the step is that of gradients taken one by one.
    module = models.task("transformer", shape=(4, 3), classes=2, seed=1).module
    x, y = torch.randn(12, 4, 3), torch.arange(12) % 2
    loss, clip = torch.nn.functional.cross_entropy, 0.5
    start = [parameter.detach().clone() for parameter in module.parameters()]
    expected = [torch.zeros_like(one) for one in start]
    for record, label in zip(x, y, strict=True):
        gradients = torch.autograd.grad(
            loss(module(record[None]), label[None]), list(module.parameters())
        )
        length = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
        for total, gradient in zip(expected, gradients, strict=True):
            total += gradient * min(1.0, clip / length) / 12
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=12)
    private, optimizer, loader, _ = training.make_private(
        module,
        SGD(module.parameters(), lr=1.0),
        loader,
        noise_multiplier=1e-9,
        delta=1e-5,
        max_grad_norm=clip,
        seed=1,
    )
    for inputs, labels in loader:
        loss(private(inputs), labels).backward()
        optimizer.step()
    for parameter, first, moved in zip(module.parameters(), start, expected, strict=True):
        # The sum's grid: each of 12 records is truncated by less than 2^-16 of the clip norm; floats beside it.
        np.testing.assert_allclose(parameter.detach(), first - moved, atol=2.0**-16 * clip + 1e-6)


class Adapted(torch.nn.Module):
    """A frozen layer with a low-rank adapter beside it, as LoRA puts it."""

    def __init__(self, base: Any, rank: int) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = torch.nn.Linear(base.in_features, rank, bias=False)
        self.up = torch.nn.Linear(rank, base.out_features, bias=False)
        torch.nn.init.zeros_(self.up.weight)

    def forward(self, x: Any) -> Any:
        return self.base(x) + self.up(self.down(x))


@pytest.mark.parametrize("bits", [None, 4])
def test_adapters_are_trained_and_their_base_is_not(blobs: Dataset, bits: int | None) -> None:
    module = torch.nn.Sequential(
        Adapted(torch.nn.Linear(5, 4), 2), torch.nn.Tanh(), Adapted(torch.nn.Linear(4, 1), 2)
    )
    before = {name: value.clone() for name, value in module.state_dict().items()}
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    parts = script(
        blobs, module=module, inner=lambda _: SGD(trained, lr=0.5), bits=bits, batch_size=50
    )
    steps(parts, 12)
    for name, value in module.state_dict().items():
        assert torch.equal(before[name], value) == ("base" in name), name
    if bits:
        for parameter in trained:
            bound = parts[1].original_optimizer.bounds[
                [id(one) for one in trained].index(id(parameter))
            ]
            levels = np.linspace(-bound, bound, 16)
            assert (
                np.abs(parameter.detach().numpy()[..., None] - levels).min(axis=-1).max() < SINGLE
            )
    # The clip norm and the noise are those of the adapters' coordinates alone.
    assert sum(parameter.numel() for parameter in parts[1].params) == 2 * (5 + 4) + 2 * (4 + 1)
    assert parts[3].claim().epsilon > 0


@pytest.mark.slow
@pytest.mark.parametrize("bits", [None, 4])
def test_adapters_of_peft(blobs: Dataset, bits: int | None) -> None:
    peft = pytest.importorskip("peft")
    base = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    module = peft.get_peft_model(
        base, peft.LoraConfig(r=2, target_modules=["0"], modules_to_save=["2"])
    )
    before = {name: value.clone() for name, value in module.state_dict().items()}
    # All parameters go to the optimizer, as in peft's own examples; the frozen ones are passed over.
    parts = script(blobs, module=module, bits=bits, batch_size=50)
    steps(parts, 12)
    trained = {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    assert sum("lora_" in name for name in trained) == 2
    for name, value in module.state_dict().items():
        assert torch.equal(before[name], value) == (name not in trained), name
    if bits:
        inner = parts[1].original_optimizer
        for parameter, bound in zip(inner.parameters, inner.bounds, strict=True):
            levels = np.linspace(-bound, bound, 16)
            assert (
                np.abs(parameter.detach().numpy()[..., None] - levels).min(axis=-1).max() < SINGLE
            )
        assert len(inner.parameters) == 3
    # The clip norm and the noise are those of what is trained.
    numbers = dict(module.named_parameters())
    assert sum(parameter.numel() for parameter in parts[1].params) == sum(
        numbers[name].numel() for name in trained
    )
    assert parts[3].claim().releases == 12


def test_sharded_and_ghost_modules_are_refused_by_name(blobs: Dataset) -> None:
    def refused(module: Any, words: str) -> None:
        with pytest.raises(ParameterError, match=words):
            script(blobs, module=module)

    refused(
        opacus.grad_sample.GradSampleModuleFastGradientClipping(torch.nn.Linear(5, 1)),
        "ghost clipping",
    )
    distributed = torch.distributed
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        mesh = distributed.device_mesh.init_device_mesh("cpu", (1,))
        whole = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Linear(4, 1))
        refused(torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(5, 1)), "module.module")
        distributed.fsdp.fully_shard(whole[0], mesh=mesh)
        refused(whole, "not sharded")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one process has nothing to shard, torch remarks
            older = distributed.fsdp.FullyShardedDataParallel(
                torch.nn.Linear(5, 1), device_id=torch.device("cpu")
            )
        refused(older, "not sharded")
    finally:
        distributed.destroy_process_group()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("bits", [None, 4])
def test_modules_on_a_gpu(blobs: Dataset, bits: int | None) -> None:
    module = torch.nn.Sequential(
        torch.nn.Linear(5, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
    ).cuda()
    parts = script(blobs, module=module, bits=bits, batch_size=50)
    for _ in range(3):
        for x, y in parts[2]:
            backward(parts[0], parts[1], (x.cuda(), y.cuda()))
            parts[1].step()
    assert all(parameter.is_cuda and parameter.grad.is_cuda for parameter in module.parameters())
    with torch.no_grad():
        outputs = module(torch.from_numpy(blobs.test_x).cuda()).squeeze(1).cpu().numpy()
    assert ((outputs > 0) == blobs.test_y).mean() > 0.9


def test_parameters_in_any_memory_order(blobs: Dataset) -> None:
    module, other = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
    other.load_state_dict(module.state_dict())
    other.weight = torch.nn.Parameter(other.weight.detach().t().contiguous().t())
    assert not other.weight.is_contiguous()
    found, last = [], torch.nn.Linear(3, 1)
    for one in (module, other):
        parts = script(blobs, module=torch.nn.Sequential(one, copy.deepcopy(last)), bits=4)
        found.append(steps(parts, 1))
    np.testing.assert_allclose(found[0][:18], found[1][:18], atol=SINGLE)


@pytest.mark.parametrize("loader", [{"drop_last": True}, {"shuffle": True}, {"num_workers": 1}])
def test_loaders(blobs: Dataset, loader: dict[str, Any]) -> None:
    parts = script(blobs, batch_size=30, loader=loader)
    steps(parts, len(parts[2]))
    assert len(parts[2]) == (6 if "drop_last" in loader else 7)
    assert 0.15 <= parts[3].sampling.rate <= 0.15 * (1 + 4 * UNIT)


def test_projection_alone_is_an_optimizer() -> None:
    weight = torch.nn.Parameter(torch.zeros(4))
    made = optimizers.ProjectedOptimizer(
        SGD([weight], lr=0.1), projection=projection(bits=4), bounds=1.0
    )
    twin, seen = copy.deepcopy(made), []
    made.register_step_post_hook(lambda *_: seen.append(1))
    weight.grad = torch.ones(4)
    schedulers.StepLR(made, 1)
    made.step()
    assert seen == [1]
    assert not torch.equal(twin.parameters[0], weight)
    assert made.contraction == 1.0


@pytest.mark.parametrize(
    "settings",
    [{}, {"momentum": 0.9}, {"weight_decay": 0.1}, {"maximize": True}, {"lr": torch.tensor(0.1)}],
    ids=str,
)
def test_steps_are_made_by_the_optimizer_inside(settings: dict[str, Any]) -> None:
    weight, plain = (torch.nn.Parameter(torch.linspace(-1, 1, 16)) for _ in range(2))
    made = optimizers.ProjectedOptimizer(
        SGD([weight], **{"lr": 0.1, **settings}),
        projection=projection(bits=8, rounding="nearest"),
        bounds=1.0,
    )
    twin = SGD([plain], **{"lr": 0.1, **settings})
    for one in (weight, plain):
        one.grad = torch.ones(16)
    made.step()
    twin.step()
    # Half a cell for the first level and half for the second.
    np.testing.assert_allclose(weight.detach(), plain.detach().clamp(-1, 1), atol=2 / 255 + SINGLE)
