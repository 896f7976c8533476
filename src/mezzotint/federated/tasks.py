"""Models as functions of flat vectors, training by clients and steps of the server; a rehearsal in
one process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, final

import numpy as np

from mezzotint.core.arguments import (
    check_choice,
    check_count,
    check_numbers,
    check_positive,
    check_rules,
    with_old_fields,
)
from mezzotint.core.errors import ParameterError
from mezzotint.datasets import Features, Federation, Labels
from mezzotint.federated.encoding import Encoding, TableEncoding, Vector
from mezzotint.federated.secagg.roster import Sampling, turn

Algorithm = Literal["fedsgd", "fedavg"]
ALGORITHMS: tuple[Algorithm, ...] = ("fedsgd", "fedavg")


class Model(ABC):
    """A model as a function of one flat vector."""

    @abstractmethod
    def initial(self, seed: int) -> Vector:
        """Parameters to start from."""

    @abstractmethod
    def gradient(self, parameters: Vector, x: Features, y: Labels) -> Vector:
        """Gradient of the mean cross-entropy."""

    @abstractmethod
    def evaluate(self, parameters: Vector, x: Features, y: Labels) -> tuple[float, float]:
        """Mean cross-entropy and accuracy."""


@final
@dataclass(frozen=True, kw_only=True)
class Softmax(Model):
    """Multinomial logistic regression; (features + 1) * classes parameters. Needs only numpy."""

    features: int
    classes: int

    def initial(self, seed: int) -> Vector:
        return np.zeros((self.features + 1) * self.classes)

    def _probabilities(self, parameters: Vector, x: Features) -> Vector:
        # In the images' own precision: float32 halves the time, and updates are rounded to few bits
        # anyway.
        weights = parameters.reshape(self.features + 1, self.classes).astype(x.dtype)
        scores = x.reshape(len(x), -1) @ weights[:-1] + weights[-1]
        scores -= scores.max(axis=1, keepdims=True)
        exponentials = np.exp(scores)
        return exponentials / exponentials.sum(axis=1, keepdims=True)

    def gradient(self, parameters: Vector, x: Features, y: Labels) -> Vector:
        residuals = self._probabilities(parameters, x)
        residuals[np.arange(len(y)), y] -= 1
        residuals /= len(y)
        gradients = [(x.reshape(len(x), -1).T @ residuals).ravel(), residuals.sum(axis=0)]
        return np.concatenate(gradients).astype(np.float64)

    def evaluate(self, parameters: Vector, x: Features, y: Labels) -> tuple[float, float]:
        probabilities = self._probabilities(parameters, x)
        # A probability that underflows counts as the least positive one.
        loss = -np.log(
            np.maximum(probabilities[np.arange(len(y)), y], np.finfo(probabilities.dtype).tiny)
        ).mean()
        return float(loss), float((probabilities.argmax(axis=1) == y).mean())


@with_old_fields(rate="learning_rate")
@final
@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """A client's training.

    Arguments:
        algorithm: "fedsgd": the update is minus the gradient on all its records (Algorithm 1 of the
            RQM paper); "fedavg": the change after `steps` steps of gradient descent.
        steps, learning_rate: of fedavg; full-batch steps.
        batch: most records used at a time, drawn at random; 0 for all.
    """

    algorithm: Algorithm = "fedavg"
    steps: int = 5
    learning_rate: float = 0.5
    batch: int = 0

    def __post_init__(self) -> None:
        check_choice("algorithm", self.algorithm, ALGORITHMS)
        check_count("steps", self.steps)
        check_positive("learning_rate", self.learning_rate)
        check_count("batch", self.batch, least=0)

    def update(
        self, model: Model, parameters: Vector, x: Features, y: Labels, *, seed: int
    ) -> Vector:
        """The client's update of the parameters; the seed draws batches."""
        generator = np.random.default_rng(seed)

        def gradient(at: Vector) -> Vector:
            if not 0 < self.batch < len(y):
                return model.gradient(at, x, y)
            chosen = generator.choice(len(y), self.batch, replace=False)
            return model.gradient(at, x[chosen], y[chosen])

        if self.algorithm == "fedsgd":
            return -gradient(parameters)
        local_parameters = parameters
        for _ in range(self.steps):
            step = self.learning_rate * gradient(local_parameters)
            local_parameters = local_parameters - step
        return local_parameters - parameters


def model_for(name: str, federation: Federation) -> Model:
    """The model of this name for data of these shapes; ParameterError for any but "softmax"."""
    if name != "softmax":
        raise ParameterError("model", name, "use 'softmax', or write an app for your own model")
    features = int(np.prod(federation.test_x.shape[1:]))
    return Softmax(features=features, classes=federation.classes)


# The server ---------------------------------------------------------------------------------------

State = Mapping[str, Vector]
"""An optimizer's state: vectors of the model's length by name. Empty before the first round."""


class ServerOptimizer(ABC):
    """How mean updates move the model.

    Source: Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar and McMahan 2021 (Algorithm 2);
        the mean update is their pseudo-gradient, its learning rate the strategy's.
    """

    @abstractmethod
    def step(self, state: State, mean: Vector) -> tuple[State, Vector]:
        """The next state, and the change of the model per unit of learning rate.

        Arguments:
            state: from the last step; empty before the first.
            mean: (d,) mean update of a round's clients, with its noise.
        """


@final
@dataclass(frozen=True, kw_only=True)
class FedAvg(ServerOptimizer):
    """The mean update itself. No arguments.

    Example:
        >>> isinstance(mz.federated.FedAvg(), mz.federated.FedAvg)
        True
    """

    def step(self, state: State, mean: Vector) -> tuple[State, Vector]:
        return {}, mean


@final
@dataclass(frozen=True, kw_only=True)
class FedAvgM(ServerOptimizer):
    """Momentum: the sum of all mean updates so far, each weighted `momentum` times the one after
    it.

    Arguments:
        momentum: in [0, 1).

    Raises:
        ParameterError: another momentum.

    Example:
        >>> mz.federated.FedAvgM(momentum=0.5).momentum
        0.5
    """

    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_numbers(self)
        check_rules(self, ("momentum", 0 <= self.momentum < 1, "need a share in [0, 1)"))

    def step(self, state: State, mean: Vector) -> tuple[State, Vector]:
        moved = self.momentum * state.get("momentum", np.zeros_like(mean)) + mean
        return {"momentum": moved}, moved


OPTIMIZERS: Mapping[str, type[ServerOptimizer]] = {
    kind.__name__.lower(): kind for kind in (FedAvg, FedAvgM)
}


def optimizer_named(name: str) -> ServerOptimizer:
    """The optimizer of this name, with default arguments; ParameterError if there is none."""
    check_choice("server_optimizer", name, OPTIMIZERS)
    return OPTIMIZERS[name]()


# Rehearsal ----------------------------------------------------------------------------------------

_TOGETHER = 1 << 22  # coordinates quantized at a time


@with_old_fields(per_round="clients_per_round")
@final
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
        >>> from mezzotint.federated.tasks import model_for
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
        check_numbers(self)
        check_choice("sampling", self.sampling, ("fixed", "cyclic"))
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
        client_source, noise_source = (
            np.random.default_rng(sequence) for sequence in np.random.SeedSequence(seed).spawn(2)
        )
        population = len(federation.clients)
        client_order = client_source.permutation(population) if self.sampling == "cyclic" else None
        parameters = self.model.initial(seed)
        state: State = {}
        history: list[tuple[int, float, float]] = []
        for round_number in range(1, self.rounds + 1):
            if client_order is not None:
                places = client_order[turn(round_number, self.clients_per_round, population)]
            else:
                places = client_source.permutation(population)[: self.clients_per_round]
            client_data = [federation.clients[index] for index in places]
            updates = [
                self.training.update(self.model, parameters, *records, seed=seed + round_number)
                for records in client_data
            ]
            if encoding.weighs:
                updates = [
                    np.append(update, len(labels))
                    for update, (_, labels) in zip(updates, client_data, strict=True)
                ]
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
            codes = encoding.mechanism.privatize(np.stack(updates[first : first + batch_size]), rng)
            integer_sum += encoding.lattice.integers[np.asarray(codes).astype(np.intp)].sum(axis=0)
    else:
        for update in updates:
            integer_sum += encoding.encode(update, rng=int(rng.integers(2**62)))
    return encoding.decode(integer_sum, count=len(updates), size=size)
