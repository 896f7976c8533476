"""One round of a run on made-up data, in this process: whether its parts fit together, and what the
run would cost.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.records import Record
from mezzotint.datasets import Federation
from mezzotint.federated.app import check_run, prospective_strategy, sums_of
from mezzotint.federated.budgets import rounds_within
from mezzotint.federated.local_reports import LocalStrategy
from mezzotint.federated.models import model_for
from mezzotint.federated.rehearsal import Rehearsal
from mezzotint.federated.round_strategy import RoundStrategy
from mezzotint.federated.server_optimizers import optimizer_named
from mezzotint.federated.settings import RunSettings, Scheme
from mezzotint.vectors import RankedCodebook

SHAPES: dict[str, tuple[tuple[int, ...], int]] = {
    "digits": ((64,), 10),
    "mnist": ((28, 28), 10),
    "femnist": ((28, 28), 62),
    "cifar10": ((32, 32, 3), 10),
    "cifar100": ((32, 32, 3), 100),
}
"""Data set -> shape of a record's features, and the number of classes."""

_RECORDS = 10  # of a made-up client


@final
@dataclass(frozen=True, kw_only=True)
class DryRun(Record):
    """What a rehearsal found.

    Arguments:
        clients: of the round.
        parameters: of the model.
        bits: on the wire, of each parameter; of a whole report where the server sees reports.
        epsilon: of a client in `rounds` rounds, by the claim that a budget counts, with the sums of
            what clients measure; None without a claim.
        delta: of that claim; 0 where it is pure.
        rounds: most rounds of one client that the budget allows.
        wanted: most rounds of one client without a budget, none of them repeated; where clients are
            drawn anew, some client is in more with a probability of at most 1 %.
        evaluations: most sums of what clients measure that one client is in.
        seconds: that the round took, without Flower.
        warning: that the noise leaves little to be learnt; empty where it does not.
    """

    clients: int
    parameters: int
    bits: int
    epsilon: float | None
    delta: float
    rounds: int
    wanted: int
    evaluations: int
    seconds: float
    warning: str


def made_up(settings: RunSettings, clients: int) -> Federation:
    """Random features and labels of the shapes of a data set; nothing is read.

    Raises:
        ParameterError: a data set whose shapes are not known.
    """
    if settings.dataset not in SHAPES:
        data_sets = ", ".join(SHAPES)
        raise ParameterError("dataset", settings.dataset, f"no shapes are known; use {data_sets}")
    shape, classes = SHAPES[settings.dataset]
    generator = np.random.default_rng(settings.seed)

    def records(count: int) -> tuple[np.ndarray, np.ndarray]:
        features = generator.random((count, *shape), dtype=np.float32)
        return features, generator.integers(0, classes, count)

    test_x, test_y = records(_RECORDS)
    client_records = tuple(records(_RECORDS) for _ in range(clients))
    return Federation(clients=client_records, test_x=test_x, test_y=test_y, classes=classes)


def check_data(settings: RunSettings) -> None:
    """Refuse settings whose data are not there; nothing is read.

    Raises:
        ParameterError: no folder or file is named, or there is none of this name.
    """
    if settings.dataset == "digits":
        return
    if not settings.data:
        raise ParameterError("data", "none", f"name the folder that holds {settings.dataset}")
    if not Path(settings.data).exists():
        raise ParameterError("data", settings.data, "no such folder or file; check the path")


def rehearse(settings: RunSettings, scheme: Scheme) -> DryRun:
    """Refuse a run that could not start, then train, encode, sum and decode one round of made-up
    clients.

    Raises:
        ParameterError: as of the run: settings that no client would answer, a scheme for another
            model, data that are not there.
        InfeasibleError: not one round is within the budget.
    """
    check_run(settings, scheme)
    check_data(settings)
    beginning = time.perf_counter()
    federation = made_up(settings, settings.clients_per_round)
    model = model_for(settings.model, federation)
    parameter_count = model.initial(settings.seed).size
    settings.check_room(scheme, parameter_count)
    strategy = prospective_strategy(settings, scheme, parameter_count)
    rounds, epsilon = _spending(strategy, settings, parameter_count)
    delta = settings.delta
    if isinstance(strategy, LocalStrategy):
        delta = strategy.claim(rounds, delta=delta).delta
    warning = ""
    if isinstance(scheme, RankedCodebook):
        scheme.encode(model.initial(settings.seed), 0, rng=settings.seed)
    else:
        rehearsal = Rehearsal(
            federation=federation,
            model=model,
            clients_per_round=settings.clients_per_round,
            learning_rate=settings.server_learning_rate,
            rounds=1,
            every=1,
            training=settings.training,
            optimizer=optimizer_named(settings.server_optimizer),
        )
        rehearsal.run(scheme, seed=settings.seed)
        warning = scheme.noise_warning(settings.clients_per_round)
    return DryRun(
        clients=settings.clients_per_round,
        parameters=parameter_count,
        bits=strategy.message_bits,
        epsilon=epsilon,
        delta=delta,
        rounds=rounds,
        wanted=settings.participations,
        evaluations=settings.evaluations,
        seconds=time.perf_counter() - beginning,
        warning=warning,
    )


def _spending(
    strategy: RoundStrategy[Any], settings: RunSettings, size: int
) -> tuple[int, float | None]:
    """The most rounds of a client within the budget, and their epsilon, if one can be claimed."""

    sums = sums_of(strategy, settings, size)

    def cost(rounds: int) -> float:
        return strategy.cost(replace(sums, rounds=rounds))

    rounds = settings.participations
    if settings.epsilon:
        rounds = rounds_within(settings.epsilon, cost, rounds)
    try:
        epsilon = cost(rounds)
    except ParameterError:  # without noise
        return rounds, None
    if math.isinf(epsilon):
        return rounds, None
    return rounds, epsilon
