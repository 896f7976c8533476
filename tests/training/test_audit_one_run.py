"""Audits of one run: the bound holds where epsilon is known, and our training stays below its claim."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

from laws.registry import judges
from mezzotint import ParameterError
from mezzotint.training.audit import OneRunAudit, audit_one_run, chance_of
from tolerances import FEW

GUESSES = 60


def bound(right: int, *, canaries: int = GUESSES, delta: float = 0.0) -> float:
    """The audit of a run that was right so often."""
    coins = np.arange(canaries) % 2 == 0
    order = np.argsort(np.arange(canaries) % 2, kind="stable")
    scores = np.empty(canaries)
    scores[order] = -np.arange(canaries)
    wrong = order[: GUESSES - right]
    coins[wrong] = ~coins[wrong]
    found = audit_one_run(scores, coins, guesses=GUESSES, delta=delta)
    assert found.right == right
    return found.epsilon


@judges("training.audit.audit_one_run")
@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 3.0])
def test_the_bound_errs_as_seldom_as_it_says(epsilon: float) -> None:
    # Randomized response on every coin is epsilon-DP, and its guesses are right independently: the chance of each
    # number of right guesses is known, and with it the chance that the bound is above epsilon. One right guess fewer
    # could not be enough: the error is used up.
    known = math.exp(epsilon) / (1 + math.exp(epsilon))
    bounds = np.array([bound(right) for right in range(GUESSES + 1)])
    assert (np.diff(bounds) >= 0).all()
    chances = binom.pmf(np.arange(GUESSES + 1), GUESSES, known)
    assert chances[bounds > epsilon].sum() <= 0.05
    first = int(np.argmax(bounds > epsilon))
    if epsilon < 3:
        assert chances[first - 1 :].sum() > 0.05


@pytest.mark.parametrize("epsilon", [0.3, 1.0])
def test_failures_of_probability_delta_are_allowed_for(epsilon: float) -> None:
    # With probability delta all coins are shown at once, else randomized response. Guesses are then all right with
    # probability delta and a little.
    delta, known = 0.01, math.exp(epsilon) / (1 + math.exp(epsilon))
    chances = (1 - delta) * binom.pmf(np.arange(GUESSES + 1), GUESSES, known)
    chances[-1] += delta
    bounds = np.array([bound(right, delta=delta) for right in range(GUESSES + 1)])
    assert chances[bounds > epsilon].sum() <= 0.05
    # Or each coin by itself is shown with probability delta.
    single = binom.pmf(np.arange(GUESSES + 1), GUESSES, delta + (1 - delta) * known)
    assert single[bounds > epsilon].sum() <= 0.05
    assert (bounds <= [bound(right) for right in range(GUESSES + 1)]).all()


def test_the_chance_by_its_definition() -> None:
    # Written as in the theorem: the largest gain of i more right guesses, over i.
    right, guesses, canaries, epsilon, delta = 45, 60, 80, 0.5, 1e-3
    known = 1 / (1 + math.exp(-epsilon))
    tail = [
        sum(binom.pmf(k, guesses, known) for k in range(v, guesses + 1)) for v in range(right + 1)
    ]
    gain = max((tail[right - i] - tail[right]) / i for i in range(1, right + 1))
    expected = tail[right] + 2 * canaries * delta * gain
    assert chance_of(right, guesses, canaries, epsilon=epsilon, delta=delta) == pytest.approx(
        expected, rel=FEW
    )


CANARIES, STEPS = 800, 16


def one_run(noise: float, *, tampered: float | None = None) -> tuple[OneRunAudit, float]:
    """A run of `make_private` on canaries with gradients of their own, its audit, and its claim; as if the noise had
    been left out in part, if that is asked for."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("opacus")
    from mezzotint.training import make_private

    coins = np.random.default_rng(5).random(CANARIES) < 0.5
    records: Any = torch.utils.data.TensorDataset(torch.eye(CANARIES)[torch.from_numpy(coins)])
    module = torch.nn.Linear(CANARIES, 1, bias=False)
    torch.nn.init.zeros_(module.weight)
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    loader = torch.utils.data.DataLoader(records, batch_size=len(records))
    private, optimizer, loader, accountant = make_private(
        module, optimizer, loader, noise_multiplier=noise, delta=1e-5, loss_reduction="sum", seed=2
    )
    for _ in range(STEPS):
        for (x,) in loader:
            optimizer.zero_grad()
            (-private(x)).sum().backward()
            if tampered is not None:
                optimizer.record(optimizer)
                optimizer.record, optimizer.noise_multiplier = (lambda _: None), tampered
            optimizer.step()
            if tampered is not None:
                optimizer.record, optimizer.noise_multiplier = accountant.record, noise
    scores = module.weight.detach().numpy().ravel()
    assert len(accountant) == STEPS
    return audit_one_run(
        scores, coins, guesses=CANARIES // 2, delta=1e-5
    ), accountant.claim().epsilon


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_training_stays_below_its_claim_and_the_audit_can_fail() -> None:
    # Seeded runs of noise multiplier 4: mu = sqrt(16) / 4 = 1. By chance the honest one would fail in 5 % of the seeds
    # only if the claim were just met. Where the noise is an eighth of what is counted, the audit refutes the claim.
    found, claim = one_run(4.0)
    assert 0 < found.epsilon < claim
    refuted, same = one_run(4.0, tampered=0.5)
    assert same == claim
    assert refuted.epsilon > claim


def test_what_is_no_audit() -> None:
    for settings, name in (
        ({"scores": [], "included": []}, "scores"),
        ({"scores": [1.0, math.nan], "included": [1, 0]}, "scores"),
        ({"scores": [1.0, 2.0], "included": [1]}, "included"),
        ({"scores": [1.0, 2.0], "included": [1, 0], "guesses": 3}, "guesses"),
        ({"scores": [1.0, 2.0], "included": [1, 0], "guesses": 0}, "guesses"),
        ({"scores": [1.0, 2.0], "included": [1, 0], "delta": 1.0}, "delta"),
        ({"scores": [1.0, 2.0], "included": [1, 0], "confidence": 1.0}, "confidence"),
    ):
        with pytest.raises(ParameterError, match=name):
            audit_one_run(**{"guesses": 1, **settings})  # type: ignore[arg-type]
