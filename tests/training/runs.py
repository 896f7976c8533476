"""Short runs on small data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mezzotint.core.arguments import Neighboring
from mezzotint.datasets import Dataset
from mezzotint.training import models, noise, private, trainer
from mezzotint.training.projection import Projection


@dataclass(frozen=True, kw_only=True)
class Method:
    """How a run is made private, in short."""

    noise_multiplier: float = 1.0
    clip_norm: float = 0.5
    projection: Projection | None = None
    bound: Any = 1.0
    bands: int = 1
    neighboring: Neighboring = "add_or_remove_one"
    delta: float = 1e-5

    def settings(self, seed: int | None) -> private.Settings:
        """As `Trainer` takes them."""
        quiet = self.noise_multiplier == 0
        return private.Settings(
            delta=self.delta,
            noise_multiplier=None if quiet else self.noise_multiplier,
            noiseless=quiet,
            max_grad_norm=self.clip_norm,
            neighboring=self.neighboring,
            noise=noise.Fresh() if self.bands == 1 else noise.Banded(self.bands),
            seed=seed,
        )

    @property
    def levels(self) -> trainer.Levels | None:
        """As `Trainer` takes them."""
        if self.projection is None:
            return None
        return trainer.Levels(projection=self.projection, bounds=self.bound)


def run_of(
    data: Dataset,
    task: models.Task,
    method: Method,
    settings: trainer.TrainingSettings,
    *,
    seed: int | None = None,
) -> trainer.Trainer:
    """A trainer."""
    return trainer.Trainer(
        data=data, task=task, settings=settings, private=method.settings(seed), levels=method.levels
    )


def make(
    data: Dataset,
    method: Method,
    *,
    model: str = "logreg",
    steps: int = 20,
    seed: int | None = 1,
    **settings: Any,
) -> Any:
    """A trainer on small data."""
    task = models.task(model, shape=data.train_x.shape[1:], classes=data.classes)
    if "neighboring" in settings:
        method = replace(method, neighboring=settings.pop("neighboring"))
    step_size = settings.pop("step_size", 1.0)
    chosen = trainer.TrainingSettings(steps=steps, batch_size=20, step_size=step_size, **settings)
    return run_of(data, task, method, chosen, seed=seed)


def dying(run: trainer.Trainer, *, after: int) -> None:
    """Lets the run die in the middle of a block."""
    whole, remaining = run.step, [after]

    def step() -> None:
        if not remaining[0]:
            raise KeyboardInterrupt
        remaining[0] -= 1
        whole()

    run.step = step  # type: ignore[method-assign]


def watched_batches(run: Any) -> list[list[int]]:
    """The records of every batch that a run takes from now on, as they come."""
    batches: list[list[int]] = []
    sampler = run.loader.batch_sampler
    draw = sampler._draw

    def watched(waiting: Any) -> Any:
        for batch in draw(waiting):
            batches.append(list(batch))
            yield batch

    sampler._draw = watched
    return batches
