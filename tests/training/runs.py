"""Short runs on small data."""

from __future__ import annotations

from typing import Any

from mezzotint.datasets import Dataset
from mezzotint.training import models, trainer


def make(
    data: Dataset,
    method: Any,
    *,
    model: str = "logreg",
    steps: int = 20,
    seed: int | None = 1,
    **settings: Any,
) -> Any:
    """A trainer on small data."""
    task = models.task(model, shape=data.train_x.shape[1:], classes=data.classes)
    chosen = trainer.TrainingSettings(
        steps=steps,
        batch_size=20,
        step_size=settings.pop("step_size", 1.0),
        delta=1e-5,
        seed=seed,
        **settings,
    )
    return trainer.Trainer(data=data, task=task, method=method, settings=chosen)


def dying(run: trainer.Trainer, *, after: int) -> None:
    """Lets the run die in the middle of a block."""
    whole, left = run.step, [after]

    def step() -> None:
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        whole()

    run.step = step  # type: ignore[method-assign]
