"""What clients train: flat parameter vectors, gradients on a client's records, and accuracy on public test data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.datasets import Federation

images: Any = LazyModule("mezzotint.federated.images")

Vector = npt.NDArray[np.float64]
Algorithm = Literal["fedsgd", "fedavg"]


class Model(ABC):
    """A model as a function of one flat vector."""

    @abstractmethod
    def initial(self, seed: int) -> Vector:
        """Parameters to start from."""

    @abstractmethod
    def gradient(self, parameters: Vector, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> Vector:
        """Gradient of the mean cross-entropy."""

    @abstractmethod
    def evaluate(self, parameters: Vector, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[float, float]:
        """Mean cross-entropy and accuracy."""


@final
@dataclass(frozen=True, kw_only=True)
class Softmax(Model):
    """Multinomial logistic regression; (features + 1) * classes parameters. Needs numpy alone."""

    features: int
    classes: int

    def initial(self, seed: int) -> Vector:
        return np.zeros((self.features + 1) * self.classes)

    def _probabilities(self, parameters: Vector, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
        # In the images' own precision: float32 halves the time, and rounding to few bits follows anyway.
        table = parameters.reshape(self.features + 1, self.classes).astype(x.dtype)
        scores = x.reshape(len(x), -1) @ table[:-1] + table[-1]
        scores -= scores.max(axis=1, keepdims=True)
        odds = np.exp(scores)
        return odds / odds.sum(axis=1, keepdims=True)

    def gradient(self, parameters: Vector, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> Vector:
        error = self._probabilities(parameters, x)
        error[np.arange(len(y)), y] -= 1
        error /= len(y)
        parts = [(x.reshape(len(x), -1).T @ error).ravel(), error.sum(axis=0)]
        return np.concatenate(parts).astype(np.float64)

    def evaluate(self, parameters: Vector, x: npt.NDArray[Any], y: npt.NDArray[Any]) -> tuple[float, float]:
        found = self._probabilities(parameters, x)
        loss = -np.log(np.maximum(found[np.arange(len(y)), y], 1e-300)).mean()
        return float(loss), float((found.argmax(axis=1) == y).mean())


@final
@dataclass(frozen=True, kw_only=True)
class LocalTraining:
    """What a client does with the model.

    Arguments:
        algorithm: "fedsgd": the update is minus the gradient on all its records (Algorithm 1 of the RQM paper);
            "fedavg": the change that `steps` steps of gradient descent make.
        steps, rate: of fedavg; full-batch steps.
        batch: most records used at a time, drawn at random; 0 for all.
    """

    algorithm: Algorithm = "fedavg"
    steps: int = 5
    rate: float = 0.5
    batch: int = 0

    def __post_init__(self) -> None:
        if self.algorithm not in ("fedsgd", "fedavg"):
            raise ParameterError("algorithm", self.algorithm, "use 'fedsgd' or 'fedavg'")
        if self.steps < 1 or not self.rate > 0 or self.batch < 0:
            raise ParameterError("steps, rate, batch", (self.steps, self.rate, self.batch), "need >= 1, > 0, >= 0")

    def update(
        self, model: Model, parameters: Vector, x: npt.NDArray[Any], y: npt.NDArray[Any], *, seed: int
    ) -> Vector:
        """What the client wants added to the parameters; the seed draws batches."""
        rng = np.random.default_rng(seed)

        def gradient(at: Vector) -> Vector:
            if not 0 < self.batch < len(y):
                return model.gradient(at, x, y)
            chosen = rng.choice(len(y), self.batch, replace=False)
            return model.gradient(at, x[chosen], y[chosen])

        if self.algorithm == "fedsgd":
            return -gradient(parameters)
        now = parameters
        for _ in range(self.steps):
            now = now - self.rate * gradient(now)
        return now - parameters


def model_for(name: str, federation: Federation) -> Model:
    """A model by name: "softmax" (numpy), "cnn" or "small-cnn" (torch)."""
    if name == "softmax":
        return Softmax(features=int(np.prod(federation.test_x.shape[1:])), classes=federation.classes)
    if name in ("cnn", "small-cnn"):
        return images.network(name, federation.test_x.shape[1:], federation.classes)
    raise ParameterError("model", name, "use 'softmax', 'small-cnn' or 'cnn'")
