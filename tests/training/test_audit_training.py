"""Attacks on real runs: a canary whose gradient nobody else shares, scores of all iterates, Clopper-Pearson."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

from mezzotint import privacy
from mezzotint.datasets import Dataset
from mezzotint.training import models, rqp, trainer
from mezzotint.training.audit import audit
from mezzotint.training.projection import TrainingWarning, projection
from training.runs import Method, run_of

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

DIMENSION = 8
LONGEST = 0.06  # the canary moves a weight by 0.018, the noise by 0.025 or less
CONFIDENCE = 0.999  # a false alarm in one of a thousand seeds, per setting


def _scores(
    method: Any, *, canary: bool, runs: int, steps: int, batch_size: int, first_seed: int
) -> np.ndarray:
    """For each run, how far the iterates have moved along the canary's gradient, over all steps."""
    features = np.zeros((20, DIMENSION), dtype=np.float32)
    if canary:
        features[0] = 100.0  # clipped to norm 1, equal in all coordinates
    data = Dataset(
        name="canary",
        train_x=features,
        train_y=np.ones(20, dtype=np.int64),
        test_x=features,
        test_y=np.ones(20, dtype=np.int64),
        classes=2,
    )
    direction = np.full(DIMENSION, DIMENSION**-0.5)
    found = np.zeros(runs)
    for run in range(runs):
        layer = torch.nn.Linear(DIMENSION, 1, bias=False)
        torch.nn.init.zeros_(layer.weight)
        # The gradient of a record is minus its features: without the canary there is nothing but noise.
        task = models.Task(
            module=layer,
            losses=lambda out, y: -out.squeeze(1),
            decide=lambda out: (out.squeeze(1) > 0).long(),
        )
        settings = trainer.TrainingSettings(steps=steps, batch_size=batch_size, step_size=1.0)
        one = run_of(data, task, method, settings, seed=first_seed + run)
        for _ in range(steps):
            before = layer.weight.detach().numpy().copy()
            one.step()
            move = (layer.weight.detach().numpy() - before).ravel()
            # Longer moves are replaced codes: they say nothing about the canary.
            found[run] += float(np.clip(move, -LONGEST, LONGEST) @ direction)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [20, 10])
@pytest.mark.parametrize("kind", ["dp-sgd", "stochastic", "rqp"])
def test_claims_withstand_a_canary(kind: str, batch_size: int) -> None:
    noise, steps, runs = 0.5, 2, 1200
    projected = {
        "dp-sgd": None,
        "stochastic": projection(bits=4),
        "rqp": projection(bits=4, rounding="nearest", q=0.8),
    }[kind]
    method = Method(noise_multiplier=noise, clip_norm=1.0, projection=projected, bound=0.2)
    common = {"runs": runs, "steps": steps, "batch_size": batch_size}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TrainingWarning)
        present = _scores(method, canary=True, first_seed=0, **common)
        absent = _scores(method, canary=False, first_seed=10**6, **common)
    # The threshold is chosen on other runs than it is judged on.
    tried = np.quantile(np.concatenate([present[:200], absent[:200]]), [0.3, 0.5, 0.7])
    for delta in (1e-5, 1e-2):
        phase = rqp.Phase(
            noise_multiplier=noise,
            kappa=1.0 if projected is None else projected.kappa,
            sampling=rqp.Poisson(rate=batch_size / 20),
            steps=steps,
        )
        claimed = privacy.account(rqp.training_release([phase], delta=delta)).epsilon
        bounds = [
            audit(
                present[200:], absent[200:], threshold=t, delta=delta, confidence=CONFIDENCE
            ).epsilon
            for t in tried
        ]
        assert max(bounds) <= claimed
        if batch_size == 20:
            # The attack is no straw man: it proves a part of what is claimed at the larger delta.
            assert max(bounds) > 0.15 * claimed or delta < 1e-3
