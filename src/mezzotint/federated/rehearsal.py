"""Federated training in one process without masks or messages: the same clipping, tables and integer sums, faster.

For experiments alone: a masked sum is the plain sum of the same integers, so nothing but time differs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.datasets import Federation
from mezzotint.federated.encoding import Encoding, TableEncoding, Vector
from mezzotint.federated.tasks import Model

_TOGETHER = 1 << 22
"""Coordinates that are quantized at a time."""


@final
@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """FedSGD as in Algorithm 1 of the RQM paper: clip, quantize, sum, decode, step.

    Arguments:
        federation, model: who learns what.
        per_round: clients of a round, drawn without replacement.
        learning_rate: of the server.
        rounds: how many.
        every: rounds between evaluations; the last round is always evaluated.
    """

    federation: Federation
    model: Model
    per_round: int
    learning_rate: float
    rounds: int
    every: int

    def __post_init__(self) -> None:
        population = len(self.federation.clients)
        if not 1 <= self.per_round <= population:
            raise ParameterError("per_round", self.per_round, f"1 to {population} clients")
        if self.rounds < 1 or self.every < 1 or not self.learning_rate > 0:
            values = (self.rounds, self.every, self.learning_rate)
            raise ParameterError("rounds, every, learning_rate", values, "need >= 1, >= 1, > 0")

    def run(self, encoding: Encoding, *, seed: int) -> list[tuple[int, float, float]]:
        """(round, loss, accuracy) on the test data.

        Arguments:
            encoding: of the updates.
            seed: of the initial model, of who takes part and of the noise; the first two do not depend on `encoding`,
                so that mechanisms can be compared pair by pair.
        """
        federation = self.federation
        choice, noise = (np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(2))
        parameters = self.model.initial(seed)
        found: list[tuple[int, float, float]] = []
        for number in range(1, self.rounds + 1):
            chosen = choice.permutation(len(federation.clients))[: self.per_round]
            updates = [-self.model.gradient(parameters, *federation.clients[place]) for place in chosen]
            mean = mean_update(encoding, updates, rng=noise)
            parameters = parameters + self.learning_rate * mean
            if number % self.every == 0 or number == self.rounds:
                loss, accuracy = self.model.evaluate(parameters, federation.test_x, federation.test_y)
                found.append((number, loss, accuracy))
        return found


def mean_update(encoding: Encoding, updates: list[Vector], *, rng: np.random.Generator) -> Vector:
    """What the server decodes from the plain sum of the updates' integers; seeded, so not private."""
    size = updates[0].size
    total = np.zeros(encoding.length(size), dtype=np.int64)
    if isinstance(encoding, TableEncoding) and encoding.l2_norm is None:
        # Coordinates are quantized by themselves: many clients go through the table at once.
        together = max(1, _TOGETHER // size)
        for first in range(0, len(updates), together):
            codes = encoding.mechanism.privatize(np.stack(updates[first : first + together]), rng)
            total += encoding.lattice.integers[np.asarray(codes).astype(np.intp)].sum(axis=0)
    else:
        for update in updates:
            total += encoding.encode(update, rng=int(rng.integers(2**62)))
    return encoding.decode(total, count=len(updates), size=size, release=object())
