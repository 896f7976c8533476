"""What a run of `mezzotint train` does, apart from how it is made private, and where it stands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

from mezzotint.core.arguments import check_choice, check_count, check_positive
from mezzotint.core.errors import ParameterError
from mezzotint.core.kinds import checked
from mezzotint.core.records import JsonObject
from mezzotint.datasets import Dataset
from mezzotint.training.batches import first_records
from mezzotint.training.models import torch
from mezzotint.training.projection import Projection


@final
@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a run stands. Loss and accuracy are computed without noise: for the operator's eyes,
    not for release.

    Arguments:
        step: steps taken.
        loss: mean loss of the last batch that was not empty; nan before the first.
        train_accuracy, test_accuracy: accuracies of the current (averaged) weights, as fractions.
        epsilon: spent so far at the run's delta; None where nothing is private.
        seconds: since the run (or its resumption) began.
        seeded: the run is a simulation; not private, whatever epsilon says.
    """

    # Fields are keys of the lines of a run's log, which a resumed run reads.
    step: int
    loss: float
    train_accuracy: float
    test_accuracy: float
    epsilon: float | None
    seconds: float
    seeded: bool = False


Optimizers = Callable[[Iterable[torch.nn.Parameter], float], torch.optim.Optimizer]
"""Makes an optimizer of parameters and a step size."""

OPTIMIZERS: Mapping[str, Optimizers] = {
    "sgd": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate),
    "momentum": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=0.9),
    "adam": lambda parameters, rate: torch.optim.Adam(parameters, lr=rate),
}
SCHEDULES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1 - done,
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
}
"""Share of the step size after a share of the steps."""


@final
@checked
@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """What a run does, apart from how it is made private.

    Arguments:
        steps: T >= 1.
        batch_size: expected records per batch, m; a record enters each batch with probability m /
            n.
        step_size: eta > 0.
        averaging: share of the last steps whose weights are averaged (post-processing, free); 0 for
            the last alone.
        optimizer: one of `OPTIMIZERS`: "sgd", "momentum" (0.9) or "adam". But for "sgd" steps
            remember gradients, so that replacing codes buys nothing.
        records_per_user: maximum number of each user's records to train on; the claim is about all
            of them together; None for a claim about one record. Needs data that say whose each
            record is.
        schedule: of the step size, one of `SCHEDULES`: "constant", or falling to 0 at the end,
            "linear" or "cosine".
    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    """

    # Fields are keys of checkpoints and their ledgers, which refuse a run with others.
    steps: int
    batch_size: int
    step_size: float
    averaging: float = 0.0
    optimizer: str = "sgd"
    schedule: str = "constant"
    records_per_user: int | None = None

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_count("batch_size", self.batch_size)
        check_positive("step_size", self.step_size)
        if self.records_per_user is not None:
            check_count("records_per_user", self.records_per_user)
        if not 0 <= self.averaging <= 1:
            raise ParameterError("averaging", self.averaging, "must lie in [0, 1]")
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("schedule", self.schedule, SCHEDULES)

    @property
    def first_averaged(self) -> int:
        """The first step (counted from 1) whose weights enter the average."""
        return min(self.steps, self.steps - math.ceil(self.averaging * self.steps) + 1)


@final
@dataclass(frozen=True, kw_only=True)
class Levels:
    """What all weights are put onto after each step.

    Arguments:
        projection: of a weight over its bound.
        bounds: weights lie in [-bound, bound]; one number, or one for each parameter tensor.
    """

    projection: Projection
    bounds: float | Sequence[float]

    @property
    def facts(self) -> JsonObject:
        """Plain values for logs."""
        bounds = self.bounds
        if not isinstance(bounds, int | float):
            bounds = list(bounds)
        return {
            "projection": self.projection.table.name,
            "bits": self.projection.bits,
            "q": self.projection.q,
            "kappa": self.projection.kappa,
            "bound": bounds,
            "table": self.projection.table.sha256,
        }


def of_users(data: Dataset, limit: int | None) -> Dataset:
    """The data with at most this many training records per user; all of them for None.

    Raises:
        ParameterError: data that do not say whose the records are.
    """
    if limit is None:
        return data
    if data.train_users is None:
        raise ParameterError("records_per_user", limit, "the data do not say whose the records are")
    kept_records = first_records(data.train_users, limit, records=len(data.train_x))
    record_users = data.train_users[kept_records]
    return replace(
        data,
        train_x=data.train_x[kept_records],
        train_y=data.train_y[kept_records],
        train_users=record_users,
    )
