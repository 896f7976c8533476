"""What may be claimed around which inner optimizer: the precondition of Theorem A, and the attack on its neglect."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from laws.registry import judges
from mezzotint import privacy
from mezzotint.datasets import Dataset
from mezzotint.training import optimizers, rqp
from mezzotint.training.audit import Audit, audit
from mezzotint.training.projection import projection
from training.runs import Method, make

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

SGD, STEPS, SHIFT = torch.optim.SGD, 40, 0.2
RQP = projection(bits=1, rounding="nearest", q=0.6)


def wrapped(make: Callable[[Any], Any], *, size: int = 3, projected: Any = RQP) -> Any:
    """A projecting optimizer around what `make` makes of its one parameter."""
    weight = torch.nn.Parameter(torch.zeros(size))
    return optimizers.ProjectedOptimizer(
        make([weight]), projection=projected, bounds=1.0, rng=iter(range(10**6)).__next__
    )


def attacked(inner: Callable[[Any], Any], *, runs: int, delta: float) -> tuple[Audit, float]:
    """What 40 steps on one weight of one bit prove at 99.9 % confidence, and what the optimizer lets us claim.

    Every coordinate of one long tensor is a run of its own: noise of standard deviation 1 on its gradient, moved by
    SHIFT in the runs with the canary. The score sums the codes, which all later steps' are pushed by, with weights
    from the first half.
    """
    scores = []
    for canary in (1.0, 0.0):
        optimizer, codes = wrapped(inner, size=runs), []
        (weight,) = optimizer.parameters
        noise = torch.Generator().manual_seed(int(canary) + 5)
        for _ in range(STEPS):
            weight.grad = torch.randn(runs, generator=noise) - SHIFT * canary
            optimizer.step()
            codes.append(optimizer.codes[0])
        scores.append(np.stack(codes).astype(float))
        claimed = optimizer.contraction
    tried = runs // 4
    weights = scores[0][:, :tried].mean(axis=1) - scores[1][:, :tried].mean(axis=1)
    present, absent = (weights @ codes for codes in scores)
    threshold = float(np.quantile(np.concatenate([present[:tried], absent[:tried]]), 0.8))
    phase = rqp.Phase(
        noise_multiplier=1 / SHIFT, kappa=claimed, sampling=rqp.Poisson(rate=1.0), steps=STEPS
    )
    found = audit(
        present[tried:], absent[tried:], threshold=threshold, delta=delta, confidence=0.999
    )
    return found, privacy.account(rqp.training_release([phase], delta=delta)).epsilon


@judges(
    "training.optimizers.ProjectedOptimizer.contraction",
    "training.optimizers.NoisyOptimizer.contraction",
)
@pytest.mark.parametrize(
    "inner",
    [
        lambda p: SGD(p, lr=1.0, momentum=0.99),
        lambda p: SGD(p, lr=1.0, momentum=0.99, nesterov=True),
        lambda p: torch.optim.Adam(p, lr=30.0, betas=(0.99, 0.999)),
    ],
    ids=["momentum", "nesterov", "adam"],
)
def test_memory_breaks_the_contracted_claim_and_not_ours(inner: Callable[[Any], Any]) -> None:
    # False alarm: one seed in a thousand, per optimizer.
    found, claimed = attacked(inner, runs=100_000, delta=1e-2)
    phase = rqp.Phase(
        noise_multiplier=1 / SHIFT, kappa=RQP.kappa, sampling=rqp.Poisson(rate=1.0), steps=STEPS
    )
    contracted = privacy.account(rqp.training_release([phase], delta=1e-2)).epsilon
    assert contracted < found.epsilon <= claimed


def test_the_contracted_claim_holds_around_plain_sgd() -> None:
    found, claimed = attacked(lambda p: SGD(p, lr=1.0), runs=100_000, delta=1e-2)
    assert 0.1 * claimed < found.epsilon <= claimed


class Remembering(SGD):
    """May keep anything."""


def hooked(parameters: Any) -> Any:
    inner = SGD(parameters, lr=1.0)
    inner.register_step_pre_hook(lambda *_: None)
    return inner


def scheduled(parameters: Any) -> Any:
    inner = SGD(parameters, lr=1.0)
    torch.optim.lr_scheduler.StepLR(inner, 10)  # wraps `step`, which might then do anything
    return inner


@pytest.mark.parametrize(
    ("inner", "stateless"),
    [
        (lambda p: SGD(p, lr=1.0), True),
        (lambda p: SGD(p, lr=1.0, weight_decay=0.1, maximize=True), True),
        (lambda p: SGD([{"params": p}], lr=1.0, foreach=True), True),
        (lambda p: SGD(p, lr=1.0, momentum=0.1), False),
        (lambda p: SGD(p, lr=1.0, dampening=0.1), False),
        (lambda p: torch.optim.RMSprop(p, lr=1.0), False),
        (lambda p: torch.optim.Adagrad(p, lr=1.0), False),
        (lambda p: Remembering(p, lr=1.0), False),
        (hooked, False),
        (scheduled, False),
    ],
)
def test_contraction_is_claimed_around_known_stateless_optimizers_only(
    inner: Callable[[Any], Any], stateless: bool
) -> None:
    assert wrapped(inner).contraction == (RQP.kappa if stateless else 1.0)
    # Rounding alone is free around anything.
    assert wrapped(inner, projected=projection(bits=4)).contraction == 1.0


def test_what_was_stateful_once_stays_so() -> None:
    optimizer = wrapped(lambda p: SGD(p, lr=1.0))
    (weight,) = optimizer.parameters
    weight.grad = torch.ones(3)
    optimizer.step()
    assert optimizer.contraction == RQP.kappa
    optimizer.param_groups[0]["momentum"] = 0.9
    assert optimizer.contraction == 1.0
    optimizer.param_groups[0]["momentum"] = 0.0
    assert optimizer.contraction == RQP.kappa  # no step was taken with it
    optimizer.param_groups[0]["momentum"] = 0.9
    weight.grad = torch.ones(3)
    optimizer.step()
    optimizer.param_groups[0]["momentum"] = 0.0
    optimizer.inner.state.clear()
    assert optimizer.contraction == 1.0


def test_global_hooks_count() -> None:
    optimizer = wrapped(lambda p: SGD(p, lr=1.0))
    handle = sys.modules[torch.optim.Optimizer.__module__].register_optimizer_step_post_hook(
        lambda *_: None
    )
    try:
        assert optimizer.contraction == 1.0
    finally:
        handle.remove()
    assert optimizer.contraction == RQP.kappa


@pytest.mark.parametrize("name", ["step", "project"])
def test_methods_put_in_place_of_its_own_count(name: str) -> None:
    """They may keep noisy gradients, or leave the projection out."""
    optimizer = wrapped(lambda p: SGD(p, lr=1.0))
    torch.optim.lr_scheduler.StepLR(optimizer, 1)  # wraps `step` to count calls
    assert optimizer.contraction == RQP.kappa
    setattr(optimizer, name, lambda: None)
    assert optimizer.contraction == 1.0


@pytest.mark.parametrize("name", ["step", "pre_step", "add_noise", "scale_grad", "_released"])
def test_methods_put_in_place_of_the_noisy_ones_count(name: str) -> None:
    inner = wrapped(lambda p: SGD(p, lr=1.0))
    noisy = optimizers.NoisyOptimizer(
        inner, noise_multiplier=1.0, clip_norm=1.0, expected_batch_size=1
    )
    assert noisy.contraction == RQP.kappa
    setattr(noisy, name, getattr(noisy, name))
    assert noisy.contraction == 1.0


def test_loaded_state_counts() -> None:
    other = wrapped(lambda p: SGD(p, lr=1.0, momentum=0.5))
    other.parameters[0].grad = torch.ones(3)
    other.step()
    optimizer = wrapped(lambda p: SGD(p, lr=1.0))
    optimizer.load_state_dict(other.state_dict())
    assert optimizer.contraction == 1.0
    optimizer.param_groups[0]["momentum"] = 0.0
    assert optimizer.contraction == 1.0  # its buffers are there


@pytest.mark.filterwarnings("ignore::mezzotint.training.projection.TrainingWarning")
def test_the_trainer_claims_what_its_optimizer_allows(blobs: Dataset) -> None:
    method = Method(projection=projection(bits=4, q=0.7))
    run = make(blobs, method)
    rounded = make(blobs, replace(method, projection=projection(bits=4)))
    assert run.claim(20).epsilon < rounded.claim(20).epsilon
    assert run.claim(20).release.mechanism.phases[0].kappa == method.projection.kappa
    run.optimizer.param_groups[0]["momentum"] = 0.9
    assert run.claim(20).epsilon == rounded.claim(20).epsilon
    assert run.claim(20).release.mechanism.phases[0].kappa == 1.0
