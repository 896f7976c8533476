"""The whole of `make_private` under attack: every claim holds, and the same attack finds runs that have less noise."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from mezzotint import training
from mezzotint.papers.rqp_pure import pure_epsilon
from mezzotint.privacy.claim import Claim
from mezzotint.training import Banded, Fresh
from mezzotint.training.audit import Audit, audit
from mezzotint.training.batches import PoissonBatches
from mezzotint.training.projection import TrainingWarning, projection
from mezzotint.vectors.gaussian import RoundedGaussian
from mezzotint.vectors.rotation import coefficients

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

CONFIDENCE = 0.999  # a false alarm in one of a thousand seeds, per setting
BLOCKS = 1000


@dataclass(frozen=True, kw_only=True)
class Attack:
    """A thousand canaries in one script, each alone on its weight, so that every weight is a trial of its own.

    Arguments:
        settings: of `make_private`, noise multiplier included.
        rate, steps: of the run.
        runs: scripts, each with BLOCKS / 2 canaries and as many weights without.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    noise: float = 1.0
    rate: float = 0.25
    steps: int = 4
    runs: int = 30
    delta: float = 1e-2

    @property
    def replaced(self) -> bool:
        return self.settings.get("neighboring") == "replace_one"

    def script(
        self, seed: int, fault: Callable[[Any, Any], None]
    ) -> tuple[np.ndarray, np.ndarray, Claim]:
        """(BLOCKS, steps + 1) weights, (BLOCKS,) part of each record, and the claim, of one run of the user's loop."""
        features = np.zeros((BLOCKS, BLOCKS), dtype=np.float32)
        here = np.arange(BLOCKS) % 2 == 0
        features[np.arange(BLOCKS), np.arange(BLOCKS)] = np.where(
            here, 100.0, -100.0 * self.replaced
        )
        module = torch.nn.Linear(BLOCKS, 1, bias=False)
        torch.nn.init.zeros_(module.weight)
        batch = round(self.rate * BLOCKS)
        loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(torch.from_numpy(features)), batch_size=batch
        )
        # A step of one clip norm to a sampled record: a weight moves by 1 and by noise of the multiplier.
        inner = torch.optim.SGD(module.parameters(), lr=float(batch))
        module, optimizer, loader, accountant = training.make_private(
            module,
            inner,
            loader,
            noise_multiplier=self.noise,
            delta=self.delta,
            seed=seed,
            **self.settings,
        )
        fault(optimizer, loader)
        weight = next(module.parameters())
        found = [weight.detach().numpy().ravel().copy()]
        while len(found) <= self.steps:
            for (x,) in loader:
                optimizer.zero_grad()
                (-module(x)).mean().backward()
                optimizer.step()
                found.append(weight.detach().numpy().ravel().copy())
                if len(found) > self.steps:
                    break
        own, parts = np.zeros(BLOCKS, dtype=int), loader.batch_sampler.parts
        for turn in range(0 if parts is None else self.bands):
            own[parts(np.arange(BLOCKS), turn)] = turn
        return np.array(found).T, own, accountant.claim()

    @property
    def bands(self) -> int:
        """Steps that share noise."""
        return self.settings.get("noise", Fresh()).steps_shared

    def scores(self, weights: np.ndarray, parts: np.ndarray) -> np.ndarray:
        """(BLOCKS,) sum over the steps of log likelihood ratios, exact but for rounding without bias."""
        if self.settings.get("method") == "rqp":
            return self._scores_of_codes(weights)
        moves, bands = np.diff(weights), self.bands
        column = np.array(coefficients(bands)) / 256
        mixed = sum(
            c * np.pad(moves, ((0, 0), (j, 0)))[:, : self.steps] for j, c in enumerate(column)
        )
        # What a record adds in step t stands in C X from t on, times the column: matched filter.
        padded = np.pad(mixed, ((0, 0), (0, bands)))
        met = sum(c * padded[:, j : j + self.steps] for j, c in enumerate(column))
        seen = np.array([(column[: self.steps - t] ** 2).sum() for t in range(self.steps)])
        rate = bands * self.rate

        def plausible(sign: float) -> np.ndarray:
            return np.log(1 - rate + rate * np.exp((2 * sign * met - seen) / (2 * self.noise**2)))

        ratios = plausible(1.0) - (plausible(-1.0) if self.replaced else 0.0)
        own = np.arange(self.steps) % bands == parts[:, None]
        return (ratios * own).sum(axis=1)

    def _scores_of_codes(self, weights: np.ndarray) -> np.ndarray:
        settings = self.settings
        projected = projection(bits=settings["bits"], rounding="nearest", q=settings["q"])
        levels = projected.table.levels * settings["bound"]
        codes = np.abs(weights[:, :, None] - levels).argmin(axis=2)
        edges = np.concatenate([[-np.inf], (levels[1:] + levels[:-1]) / 2, [np.inf]])

        def chances(shift: float) -> np.ndarray:
            moved = np.diff(ndtr((edges - levels[:, None] - shift) / self.noise), axis=1)
            other = (1 - projected.q) / (len(levels) - 1)
            return moved * projected.q + (1 - moved) * other

        here = (1 - self.rate) * chances(0.0) + self.rate * chances(1.0)
        away = (
            (1 - self.rate) * chances(0.0) + self.rate * chances(-1.0)
            if self.replaced
            else chances(0.0)
        )
        return np.log(here / away)[codes[:, :-1], codes[:, 1:]].sum(axis=1)

    def result(
        self, fault: Callable[[Any, Any], None] = lambda optimizer, loader: None
    ) -> tuple[Audit, Claim]:
        """What is proved at the claim's delta, by a threshold that was chosen on the first runs, and the claim."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", TrainingWarning)
            drawn = [self.script(seed, fault) for seed in range(self.runs)]
        claims = {claim.epsilon for _, _, claim in drawn}
        assert len(claims) == 1
        scores = np.array([self.scores(weights, parts) for weights, parts, _ in drawn])
        tried, judged = scores[: self.runs // 5], scores[self.runs // 5 :]
        candidates = np.quantile(tried, np.linspace(0.01, 0.995, 80))

        def proved(some: np.ndarray, threshold: float, confidence: float) -> Audit:
            present, absent = some[:, ::2].ravel(), some[:, 1::2].ravel()
            return audit(
                present, absent, threshold=threshold, delta=self.delta, confidence=confidence
            )

        best = max(candidates, key=lambda threshold: proved(tried, threshold, 0.9).epsilon)
        return proved(judged, float(best), CONFIDENCE), drawn[0][2]


REPLACED = {"neighboring": "replace_one"}
RQP = {"method": "rqp", "bits": 4, "q": 0.9, "bound": 8.0}
ROUNDED = {"bits": 8, "bound": 20.0}
ATTACKS = {
    "dp-sgd": Attack(),
    "dp-sgd, whole batches": Attack(rate=1.0, steps=2, noise=2.0),
    "dp-sgd, replaced": Attack(settings=REPLACED),
    "rounded": Attack(settings=ROUNDED),
    "rounded, replaced": Attack(settings={**ROUNDED, **REPLACED}),
    "rqp": Attack(settings=RQP),
    "rqp, replaced": Attack(settings={**RQP, **REPLACED}),
    "2 bands": Attack(settings={"noise": Banded(2)}),
    "4 bands, whole parts": Attack(settings={"noise": Banded(4)}, steps=8),
    "2 bands, replaced": Attack(settings={"noise": Banded(2), **REPLACED}),
    "3 bands, rounded": Attack(settings={"noise": Banded(3), **ROUNDED}, steps=6),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", ATTACKS)
def test_claims_of_scripts_withstand_canaries(kind: str) -> None:
    found, claim = ATTACKS[kind].result()
    # The law is that nothing is proved beyond the claim; 41 to 70 % of it is measured, with fixed seeds.
    assert 0.4 * claim.epsilon < found.epsilon < 0.7 * claim.epsilon


@pytest.mark.slow
def test_the_pure_bound_withstands_canaries() -> None:
    # Next to no noise and codes that are mostly replaced: what the noise hides is 3.4, what the codes hide far less.
    attack = Attack(
        settings={"method": "rqp", "bits": 2, "q": 0.3, "bound": 0.9}, noise=0.1, rate=0.5, steps=1
    )
    found, claim = replace(attack, delta=1e-5, runs=200).result()
    pure = pure_epsilon(0.1, q=0.3, bits=2, sampling_rate=0.5, steps=1, dimension=1)
    assert pure < 0.1 * claim.epsilon
    assert 0.4 * pure < found.epsilon < 0.7 * pure


def _less_noise(optimizer: Any, _: Any, share: float = 0.5) -> None:
    right = optimizer._law_of_noise()
    optimizer._law_of_noise = lambda: RoundedGaussian(sigma=right.sigma * share)


def _longer_than_the_clip_norm(optimizer: Any, _: Any) -> None:
    right = optimizer._clipped_sum
    optimizer._clipped_sum = lambda samples: 2 * right(samples)


def _every_record_in_every_batch(_: Any, loader: Any) -> None:
    loader.batch_sampler.batches = PoissonBatches(batch_size=BLOCKS, dataset_size=BLOCKS)


FAULTS = {
    "half the noise": ("dp-sgd", _less_noise),
    "half the noise, replaced": ("dp-sgd, replaced", _less_noise),
    "half the noise, rounded": ("rounded", _less_noise),
    # Codes that are replaced hide part of what the noise does not.
    "a quarter of the noise, rqp": ("rqp, replaced", partial(_less_noise, share=0.25)),
    "half the noise, bands": ("2 bands", _less_noise),
    "longer than the clip norm": ("dp-sgd", _longer_than_the_clip_norm),
    "every record in every batch": ("dp-sgd", _every_record_in_every_batch),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_the_same_attacks_find_what_is_wrong(fault: str) -> None:
    kind, broken = FAULTS[fault]
    found, claim = ATTACKS[kind].result(broken)
    assert found.epsilon > claim.epsilon
