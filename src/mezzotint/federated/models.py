"""Models as functions of flat vectors, and training by clients."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from mezzotint.core.arguments import (
    check_choice,
    check_count,
    check_positive,
    with_old_fields,
)
from mezzotint.core.errors import ParameterError
from mezzotint.datasets import Features, Federation, Labels
from mezzotint.federated.encoding import Vector

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
        layer = parameters.reshape(self.features + 1, self.classes)
        layer = layer.astype(x.dtype)
        weights = layer[:-1]
        biases = layer[-1]
        scores = _flat(x) @ weights + biases
        scores -= scores.max(axis=1, keepdims=True)
        exponentials = np.exp(scores)
        return exponentials / exponentials.sum(axis=1, keepdims=True)

    def gradient(self, parameters: Vector, x: Features, y: Labels) -> Vector:
        residuals = self._probabilities(parameters, x)
        record_count = len(y)
        residuals[np.arange(record_count), y] -= 1
        residuals /= record_count
        of_weights = _flat(x).T @ residuals
        of_biases = residuals.sum(axis=0)
        gradient = np.concatenate([of_weights.ravel(), of_biases])
        return gradient.astype(np.float64)

    def evaluate(self, parameters: Vector, x: Features, y: Labels) -> tuple[float, float]:
        probabilities = self._probabilities(parameters, x)
        records = np.arange(len(y))
        of_labels = probabilities[records, y]
        # A probability that underflows counts as the least positive one.
        least_positive = np.finfo(probabilities.dtype).tiny
        of_labels = np.maximum(of_labels, least_positive)
        losses = -np.log(of_labels)
        decisions = probabilities.argmax(axis=1)
        is_right = decisions == y
        return float(losses.mean()), float(is_right.mean())


def _flat(x: Features) -> Features:
    """(n, features) of records of any shape."""
    return x.reshape(len(x), -1)


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
        record_count = len(y)

        def gradient(local_parameters: Vector) -> Vector:
            if not 0 < self.batch < record_count:
                return model.gradient(local_parameters, x, y)
            chosen = generator.choice(record_count, self.batch, replace=False)
            return model.gradient(local_parameters, x[chosen], y[chosen])

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
    _, *record_shape = federation.test_x.shape
    return Softmax(features=math.prod(record_shape), classes=federation.classes)
