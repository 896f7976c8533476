"""Scripts that stray from the loop they are shown: the claim is never below what was done, or the step is refused."""

from __future__ import annotations

import importlib
import math
import warnings
from typing import Any

import numpy as np
import pytest

from mezzotint import ParameterError, privacy, training
from mezzotint.training import optimizers, rqp
from mezzotint.training.projection import LeftOutWarning, TrainingWarning
from tolerances import MANY

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

RECORDS = 24


def script(
    *,
    size: int = 8,
    noise: float = 1e-6,
    layer: Any = None,
    workers: int = 0,
    persistent: bool = False,
    **settings: Any,
) -> Any:
    """Record i moves weight i alone, by one clip norm to a step: weights count how often a record was in a sum."""
    torch.manual_seed(0)
    data = torch.utils.data.TensorDataset(100 * torch.eye(RECORDS))
    module = torch.nn.Linear(RECORDS, 1, bias=False) if layer is None else layer
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    inner = torch.optim.SGD(module.parameters(), lr=float(size))
    loader = torch.utils.data.DataLoader(
        data, batch_size=size, num_workers=workers, persistent_workers=persistent
    )
    return training.make_private(
        module, inner, loader, **{"noise_multiplier": noise, "delta": 1e-5, "seed": 1, **settings}
    )


def backward(module: Any, x: Any) -> None:
    (-module(x)).mean().backward()


def counts(module: Any) -> np.ndarray:
    """How many sums each record has been in, as the weights show it."""
    return np.rint(next(module.parameters()).detach().numpy().ravel())


def split(parts: Any, most: int) -> Any:
    manager = importlib.import_module("opacus.utils.batch_memory_manager")
    return manager.BatchMemoryManager(
        data_loader=parts[2], max_physical_batch_size=most, optimizer=parts[1]
    )


def test_sums_are_forgotten_whoever_clears_the_gradients() -> None:
    # `module.zero_grad()` knows nothing of sums: each batch would be added to all those before it.
    parts = module, optimizer, loader, accountant = script()
    expected = np.zeros(RECORDS)
    for (x,) in loader:
        expected += x.sum(dim=0).numpy() / 100
        module.zero_grad()
        backward(module, x)
        optimizer.step()
    np.testing.assert_array_equal(counts(module), expected)
    with split(parts, 3) as small:
        for (x,) in small:
            expected += x.sum(dim=0).numpy() / 100
            module.zero_grad()
            backward(module, x)
            optimizer.step()
    np.testing.assert_array_equal(counts(module), expected)
    assert len(accountant) == 6


@pytest.mark.parametrize("after", ["plain", "split"])
@pytest.mark.parametrize("parts_taken", [1, 2])
@pytest.mark.parametrize("stepped", [True, False])
def test_a_batch_that_is_left_in_its_midst_is_dropped(
    after: str, parts_taken: int, stepped: bool
) -> None:
    # Its records may be in the next batch as well, and would count twice under one noise.
    parts = module, optimizer, loader, accountant = script(size=RECORDS)
    with split(parts, 5) as small:
        for number, (x,) in enumerate(small):
            optimizer.zero_grad()
            backward(module, x)
            if stepped or number + 1 < parts_taken:
                optimizer.step()
            if number + 1 == parts_taken:
                break
    assert len(accountant) == 0
    optimizer.zero_grad()
    if after == "plain":
        for (x,) in loader:
            optimizer.zero_grad()
            backward(module, x)
            # A flag for a part that no step was taken for is left: the step then is no release, and the next is one.
            optimizer.step()
    else:
        with split(parts, 5) as small:
            for (x,) in small:
                optimizer.zero_grad()
                backward(module, x)
                optimizer.step()
    assert counts(module).max() <= len(accountant) <= 1


def test_parts_without_a_step_are_refused() -> None:
    parts = module, optimizer, _, accountant = script(size=RECORDS)
    with pytest.raises(ParameterError, match="every part of a batch"), split(parts, 5) as small:  # noqa: PT012
        for number, (x,) in enumerate(small):
            optimizer.zero_grad()
            backward(module, x)
            if number != 1:
                optimizer.step()
    assert len(accountant) == 0


def test_steps_need_batches_of_their_own() -> None:
    # Steps on one batch are not amplified by sampling as steps on batches drawn afresh are.
    module, optimizer, loader, accountant = script()
    for (x,) in loader:
        optimizer.zero_grad()
        backward(module, x)
        optimizer.step()
        before = counts(module)
        optimizer.zero_grad()
        backward(module, x)
        with pytest.raises(ParameterError, match="a batch of its own"):
            optimizer.step()
        np.testing.assert_array_equal(counts(module), before)
    assert len(accountant) == len(loader) == 3
    other = script()
    backward(other[0], 100 * torch.eye(RECORDS))
    with pytest.raises(ParameterError, match="loader=no batch since 0"):
        other[1].step()


def test_batches_that_were_looked_at_are_no_stock() -> None:
    # Whoever looks through the loader first has drawn many batches, and may use the last one once.
    module, optimizer, loader, accountant = script()
    drawn = [x for _ in range(3) for (x,) in loader]
    for steps in (1, 1):
        optimizer.zero_grad()
        backward(module, drawn[-1])
        if len(accountant) == 0:
            optimizer.step()
        else:
            with pytest.raises(ParameterError, match="a batch of its own"):
                optimizer.step()
        assert len(accountant) == steps


@pytest.mark.parametrize("persistent", [True, False])
def test_batches_that_workers_have_drawn_ahead_are_no_stock(persistent: bool) -> None:
    # Workers draw several batches before the loop has seen the first one.
    module, optimizer, loader, accountant = script(size=2, workers=2, persistent=persistent)
    for taken, (x,) in enumerate(loader):
        backward(module, x)
        optimizer.step()
        optimizer.zero_grad()
        backward(module, x)
        with pytest.raises(ParameterError, match="a batch of its own"):
            optimizer.step()
        optimizer.zero_grad()
        if taken == 1:
            break
    assert len(accountant) == 2
    # What was prepared for the pass that ended early is forgotten; each batch is known by its own size.
    for (x,) in loader:
        assert loader.batch_sampler.drawn.size == len(x)
        optimizer.zero_grad()
        backward(module, x)
        optimizer.step()
    assert len(accountant) == 2 + len(loader) == 14


def test_steps_of_more_records_than_the_batch_are_refused() -> None:
    # Batches put together have records twice as often as is paid for, and all records at once are no sample.
    module, optimizer, loader, accountant = script()
    given = iter(loader)
    (first,), (second,) = next(given), next(given)
    assert 0 < len(second) < RECORDS
    for x in (
        torch.cat([first, second]),
        100 * torch.eye(RECORDS),
        torch.cat([second, second[:1]]),
    ):
        optimizer.zero_grad()
        backward(module, x)
        with pytest.raises(ParameterError, match="rows must be the records of the batch"):
            optimizer.step()
        assert not counts(module).any()
        assert len(accountant) == 0
    optimizer.zero_grad()
    backward(module, second)
    optimizer.step()
    np.testing.assert_array_equal(counts(module), second.sum(dim=0).numpy() / 100)


def test_parts_of_more_records_than_the_batch_are_refused() -> None:
    parts = module, optimizer, _, accountant = script(size=RECORDS)
    refused = pytest.raises(ParameterError, match="rows must be the records of the batch")
    with split(parts, 5) as small, refused:
        for number, (x,) in enumerate(small):
            optimizer.zero_grad()
            backward(module, torch.cat([x, x[:1]]) if number == 1 else x)
            optimizer.step()
    assert len(accountant) == 0
    assert not counts(module).any()


def test_noise_is_projected_once() -> None:
    # With replaced codes, each further look at the same noise through fresh coins costs.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingWarning)
        module, optimizer, loader, _ = script(method="rqp", q=0.9, bound=1.0, noise=5.0)
    (x,) = next(iter(loader))
    backward(module, x)
    optimizer.step()
    with pytest.raises(ValueError, match="since the last optimizer step"):
        optimizer.original_optimizer.step()
    free = script(bits=4, bound=1.0, noise=5.0)
    backward(free[0], x)
    next(iter(free[2]))
    free[1].step()
    free[1].original_optimizer.step()  # kappa is 1: whatever comes after the noise is free


def test_gradients_from_before_are_not_applied() -> None:
    layer = torch.nn.Sequential(
        torch.nn.Linear(RECORDS, RECORDS, bias=False), torch.nn.Linear(RECORDS, 1)
    )
    layer(100 * torch.eye(RECORDS)).sum().backward()  # somebody tries whether the model runs
    layer[0].requires_grad_(False)
    module, optimizer, loader, _ = script(layer=layer)
    before = layer[0].weight.detach().clone()
    for (x,) in loader:
        backward(module, x)
        optimizer.step()
        break
    assert torch.equal(layer[0].weight, before)


def test_tensors_that_are_not_optimized_do_not_stop_the_others() -> None:
    # Their gradients are nobody's to clear, and neither pile up nor stop anything.
    module = torch.nn.Sequential(torch.nn.Linear(RECORDS, 3), torch.nn.Linear(3, 1))
    data = torch.utils.data.TensorDataset(torch.eye(RECORDS))
    made, optimizer, loader, accountant = training.make_private(
        module,
        torch.optim.SGD(module[1].parameters(), lr=0.1),
        torch.utils.data.DataLoader(data, batch_size=4),
        noise_multiplier=1.0,
        delta=1e-5,
    )
    before = module[0].weight.detach().clone()
    for (x,) in loader:
        optimizer.zero_grad()
        backward(made, x)
        optimizer.step()
        assert (
            not isinstance(module[0].weight.grad_sample, list)
            or len(module[0].weight.grad_sample) == 2
        )
    assert torch.equal(module[0].weight, before)
    assert len(accountant) == 6


def test_empty_batches_are_steps() -> None:
    module, optimizer, loader, accountant = script(size=1, noise=1.0)
    empty = 0
    for _ in range(2):
        for (x,) in loader:
            before = next(module.parameters()).detach().clone()
            optimizer.zero_grad()
            backward(module, x)
            optimizer.step()
            empty += len(x) == 0
            # An empty batch releases noise, as any other does.
            assert not torch.isclose(before, next(module.parameters())).any()
    assert empty > 8
    phase = rqp.Phase(
        noise_multiplier=1.0,
        kappa=1.0,
        sampling=rqp.Poisson(rate=math.nextafter(1 / RECORDS, 1)),
        steps=2 * RECORDS,
    )
    known = privacy.account(rqp.training_release([phase], delta=1e-5)).epsilon
    assert accountant.claim().epsilon == pytest.approx(known, rel=MANY)


def test_records_without_finite_gradients_stop_nothing_and_move_nothing() -> None:
    module, optimizer, loader, accountant = script(size=RECORDS)
    for (x,) in loader:
        bad = x.clone()
        bad[3] = math.nan
        bad[5, 5] = math.inf
        backward(module, bad)
        with pytest.warns(LeftOutWarning, match="2 record"):
            optimizer.step()
    found = counts(module)
    assert found[3] == found[5] == 0
    assert np.delete(found, [3, 5]).tolist() == [1.0] * (RECORDS - 2)
    assert len(accountant) == 1


def test_partial_last_batches_over_epochs() -> None:
    # 24 records in batches of 7: four steps to an epoch, each at rate 7/24, and no record in more sums than steps.
    module, optimizer, loader, accountant = script(size=7)
    sizes = []
    for _ in range(5):
        for (x,) in loader:
            optimizer.zero_grad()
            backward(module, x)
            optimizer.step()
            sizes.append(len(x))
    assert len(accountant) == len(sizes) == 20
    assert counts(module).sum() == sum(sizes)
    assert accountant.sampling.rate == pytest.approx(7 / 24, rel=MANY)
    assert len(set(sizes)) > 3


def test_a_step_is_counted_before_anything_is_drawn() -> None:
    module, optimizer, loader, accountant = script(noise=1.0)
    (x,) = next(iter(loader))
    backward(module, x)
    before = counts(module)

    def interrupted() -> Any:
        raise KeyboardInterrupt

    optimizer.rng = interrupted
    with pytest.raises(KeyboardInterrupt):
        optimizer.step()
    assert len(accountant) == 1
    np.testing.assert_array_equal(counts(module), before)
    assert isinstance(optimizer, optimizers.NoisyOptimizer)


def test_gradients_without_noise_are_left_to_no_plain_optimizer() -> None:
    torch.manual_seed(0)
    plain = torch.nn.Linear(RECORDS, 2)
    kept = torch.optim.SGD(plain.parameters(), lr=1.0)
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(torch.eye(RECORDS)), batch_size=8
    )
    module, optimizer, loader, accountant = training.make_private(
        plain, kept, loader, noise_multiplier=1.0, delta=1e-5
    )
    for (x,) in loader:
        before = [parameter.detach().clone() for parameter in plain.parameters()]
        optimizer.zero_grad()
        module(x).sum().backward()
        kept.step()  # in the midst of a private step: autograd's own gradients would move the weights
        assert all(map(torch.equal, before, plain.parameters()))
        optimizer.step()
        assert not all(map(torch.equal, before, plain.parameters()))
    assert len(accountant) == len(loader)
