"""A federation in one process, without protocol or privacy: to compare mechanisms by what they
learn.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np

from mezzotint.core.arguments import (
    check_count,
    check_positive,
    with_old_fields,
)
from mezzotint.core.errors import ParameterError
from mezzotint.core.kinds import checked
from mezzotint.datasets import Federation
from mezzotint.federated.encoding import Encoding, TableEncoding, Vector
from mezzotint.federated.models import LocalTraining, Model
from mezzotint.federated.secagg.roster import Sampling, turn
from mezzotint.federated.server_optimizers import FedAvg, ServerOptimizer, State

_TOGETHER = 1 << 22  # coordinates quantized at a time


@with_old_fields(per_round="clients_per_round")
@final
@checked
@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """A federation in one process: train, clip, quantize, sum, decode, step. FedSGD as in the RQM
    paper unless told.

    Arguments:
        federation, model: the clients' data, and what they train.
        clients_per_round: clients of a round.
        sampling: "fixed" draws them without replacement, "cyclic" repeats one order of all.
        learning_rate: of the server.
        training: of the clients.
        optimizer: of the server.
        rounds: how many.
        every: rounds between evaluations; the last round is always evaluated.

    Example:
        >>> from mezzotint.federated.models import model_for
        >>> data = mz.datasets.load_federation("digits", clients=10)
        >>> rehearsal = mz.federated.Rehearsal(
        ...     federation=data, model=model_for("softmax", data), clients_per_round=10, learning_rate=1.0, rounds=1, every=1
        ... )
        >>> ((_, loss, accuracy),) = rehearsal.run(mz.federated.FixedPointEncoding(clip=1.0), seed=0)
        >>> accuracy > 0.2
        True
    """

    federation: Federation
    model: Model
    clients_per_round: int
    learning_rate: float
    rounds: int
    every: int
    sampling: Sampling = "fixed"
    training: LocalTraining = field(default_factory=lambda: LocalTraining(algorithm="fedsgd"))
    optimizer: ServerOptimizer = field(default_factory=FedAvg)

    def __post_init__(self) -> None:
        population = len(self.federation.clients)
        if not 1 <= self.clients_per_round <= population:
            raise ParameterError(
                "clients_per_round", self.clients_per_round, f"1 to {population} clients"
            )
        check_count("rounds", self.rounds)
        check_count("every", self.every)
        check_positive("learning_rate", self.learning_rate)

    def run(self, encoding: Encoding, *, seed: int) -> list[tuple[int, float, float]]:
        """(round, loss, accuracy) on the test data.

        Arguments:
            encoding: of the updates.
            seed: of the initial model, the participants and the noise; the first two do not depend
                on `encoding`, so that mechanisms can be compared pairwise.
        """
        federation = self.federation
        client_seed, noise_seed = np.random.SeedSequence(seed).spawn(2)
        client_source = np.random.default_rng(client_seed)
        noise_source = np.random.default_rng(noise_seed)
        population = len(federation.clients)
        client_order = None
        if self.sampling == "cyclic":
            client_order = client_source.permutation(population)
        parameters = self.model.initial(seed)
        state: State = {}
        history: list[tuple[int, float, float]] = []
        for round_number in range(1, self.rounds + 1):
            if client_order is not None:
                positions = turn(round_number, self.clients_per_round, population)
                places = client_order[positions]
            else:
                shuffled = client_source.permutation(population)
                places = shuffled[: self.clients_per_round]
            round_seed = seed + round_number
            updates: list[Vector] = []
            for index in places:
                x, y = federation.clients[index]
                update = self.training.update(self.model, parameters, x, y, seed=round_seed)
                if encoding.weighs:
                    update = np.append(update, len(y))
                updates.append(update)
            mean = mean_update(encoding, updates, rng=noise_source)
            state, change = self.optimizer.step(state, mean)
            parameters = parameters + self.learning_rate * change
            if round_number % self.every == 0 or round_number == self.rounds:
                loss, accuracy = self.model.evaluate(
                    parameters, federation.test_x, federation.test_y
                )
                history.append((round_number, loss, accuracy))
        return history


def mean_update(encoding: Encoding, updates: list[Vector], *, rng: np.random.Generator) -> Vector:
    """The mean that the server decodes from the sum of the updates' integers; not private."""
    size = updates[0].size - encoding.weighs
    integer_sum = np.zeros(encoding.length(size), dtype=np.int64)
    if isinstance(encoding, TableEncoding) and encoding.clip_norm is None:
        # Coordinates are quantized independently, so many clients go through the table at once.
        batch_size = max(1, _TOGETHER // size)
        for first in range(0, len(updates), batch_size):
            batch = np.stack(updates[first : first + batch_size])
            codes = encoding.mechanism.privatize(batch, rng)
            indices = np.asarray(codes).astype(np.intp)
            integers = encoding.lattice.integers[indices]
            integer_sum += integers.sum(axis=0)
    else:
        for update in updates:
            seed = int(rng.integers(2**62))
            integer_sum += encoding.encode(update, rng=seed)
    return encoding.decode(integer_sum, count=len(updates), size=size)
