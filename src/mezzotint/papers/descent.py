"""Private gradient descent for linear classifiers in plain numpy: what the papers train, as they
print it.

It is a simulation: seeded, for comparisons, never a private run. Each source of randomness has a
stream of its own, so that a change to one (such as random replacement) leaves the others as they
were.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, cast, final

import numpy as np
import numpy.typing as npt

from mezzotint import datasets
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import FloatArray

Array = npt.NDArray[np.float32]
Weights = Literal["iterate", "master"]
Rounding = Literal["nearest", "stochastic"]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class LinearData:
    """Records with a constant feature appended, and labels, for one of three linear classifiers.

    Arguments:
        model: "logreg", "svm" (two classes, one output) or "softmax".
        x, y: (n, f + 1) features of the training records, and their labels; test_x, test_y: of the
            test records.
        outputs: columns of the weights: 1, or one for each class.
    """

    model: str
    x: Array
    y: npt.NDArray[np.int64]
    test_x: Array
    test_y: npt.NDArray[np.int64]
    outputs: int

    @property
    def size(self) -> int:
        """Number of weights."""
        return self.x.shape[1] * self.outputs

    def errors(self, scores: Array, labels: npt.NDArray[np.int64]) -> Array:
        """(n, outputs) derivatives of each record's loss by its scores."""
        if self.model == "softmax":
            probabilities = np.exp(scores - scores.max(axis=1, keepdims=True))
            probabilities /= probabilities.sum(axis=1, keepdims=True)
            probabilities[np.arange(len(labels)), labels] -= 1
            return probabilities
        label_signs = (2 * labels - 1).astype(np.float32)[:, None]
        margins = label_signs * scores
        if self.model == "svm":
            return -label_signs * (margins < 1)
        return cast("Array", -label_signs / (1 + np.exp(np.clip(margins, -80, 80))))

    def accuracy(self, weights: FloatArray, *, training: bool = False) -> float:
        """Percent of the test records, or of the training records, that are classified rightly."""
        features, labels = self.test_x, self.test_y
        if training:
            features, labels = self.x, self.y
        record_scores = features @ weights.astype(np.float32).reshape(-1, self.outputs)
        predictions = record_scores[:, 0] > 0
        if self.model == "softmax":
            predictions = record_scores.argmax(axis=1)
        return 100 * float((predictions == labels).mean())


def linear_data(data: datasets.Dataset, model: str) -> LinearData:
    """A data set for one of the three classifiers; images become rows, and features stay in the
    data set's units.
    """
    outputs = 1
    if model == "softmax":
        outputs = data.classes
    return LinearData(
        model=model,
        x=_with_constant(data.train_x),
        y=data.train_y,
        test_x=_with_constant(data.test_x),
        test_y=data.test_y,
        outputs=outputs,
    )


def _with_constant(features: npt.NDArray[np.float32]) -> Array:
    flattened = features.reshape(len(features), -1)
    constants = np.ones((len(flattened), 1), dtype=np.float32)
    return np.concatenate([flattened, constants], axis=1)


@final
@dataclass(frozen=True, kw_only=True)
class Grid:
    """Even levels on [-bound, bound], and how weights get onto them.

    Arguments:
        bits: 2**bits levels; bound: M.
        rounding: "nearest", or "stochastic": one of the two neighbours, unbiased.
        q: probability with which a level is kept; else it becomes any of the others.
    """

    bits: int
    bound: float
    rounding: Rounding = "nearest"
    q: float = 1.0

    def place(self, weights: FloatArray, coins: Coins) -> FloatArray:
        """The weights on the levels."""
        highest_level = 2**self.bits - 1
        positions = (np.clip(weights / self.bound, -1, 1) + 1) * highest_level / 2
        if self.rounding == "nearest":
            level_numbers = np.floor(positions + 0.5)
        else:
            level_numbers = np.floor(positions + coins.rounding.random(positions.size))
        level_numbers = np.minimum(level_numbers, highest_level)
        if self.q < 1:
            level_count, draws = highest_level + 1, level_numbers.size
            is_replaced = coins.replacement.random(draws) >= self.q
            shifts = coins.replacement.integers(1, level_count, draws)
            shifted = (level_numbers + shifts) % level_count
            level_numbers = np.where(is_replaced, shifted, level_numbers)
        return self.bound * (2 * level_numbers / highest_level - 1)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Coins:
    """The streams of one run, all from one seed."""

    batches: np.random.Generator
    noise: np.random.Generator
    rounding: np.random.Generator
    replacement: np.random.Generator
    reports: np.random.Generator

    @staticmethod
    def of(seed: int) -> Coins:
        """Five independent streams."""
        names = ("batches", "noise", "rounding", "replacement", "reports")
        seeds = np.random.SeedSequence(seed).spawn(len(names))
        generators = map(np.random.default_rng, seeds)
        return Coins(**dict(zip(names, generators, strict=True)))


@final
@dataclass(frozen=True, kw_only=True)
class Descent:
    """How a classifier is trained.

    Arguments:
        steps, batch: T, and the expected size of a Poisson batch.
        clip: bound of the L2 norm of a record's gradient, or with `reports` of each coordinate.
        noise: deviation of the Gaussian noise on the sum, over `clip`.
        step_size: eta; a step moves the weights by eta / batch times the noisy sum.
        grid: the levels on which gradients are taken and weights are published; None trains floats.
        weights: "iterate": the rounded weights are what the next step starts from (the paper's
            Algorithm 1); "master": floats in [-M, M] are kept and rounded anew in each step.
        reports: with a table each record's clipped gradient is reported coordinate by coordinate
            instead.
        coordinates: clip each coordinate, without reports: what reports are compared with.
    """

    steps: int
    batch: int
    clip: float
    noise: float = 0.0
    step_size: float = 1.0
    grid: Grid | None = None
    weights: Weights = "iterate"
    reports: Mechanism | None = None
    coordinates: bool = False

    def run(self, data: LinearData, seed: int) -> Iterator[tuple[int, FloatArray, FloatArray]]:
        """Yields (step, kept weights, weights in use) after every step; starts at zero."""
        random_streams, sampling_rate = Coins.of(seed), self.batch / len(data.x)
        master_weights = np.zeros(data.size)
        used_weights = master_weights
        for step_number in range(1, self.steps + 1):
            batch_records = np.flatnonzero(
                random_streams.batches.random(len(data.x)) < sampling_rate
            )
            noisy_sum = self._total(data, used_weights, batch_records, random_streams)
            start_weights = used_weights
            if self.weights == "master":
                start_weights = master_weights
            moved_weights = start_weights - self.step_size / self.batch * noisy_sum
            if self.grid is None:
                master_weights = used_weights = moved_weights
            else:
                master_weights = np.clip(moved_weights, -self.grid.bound, self.grid.bound)
                used_weights = self.grid.place(master_weights, random_streams)
            yield step_number, master_weights, used_weights

    def _total(
        self, data: LinearData, used: FloatArray, chosen: npt.NDArray[np.intp], coins: Coins
    ) -> FloatArray:
        """The noisy sum of the batch's clipped gradients."""
        features = data.x[chosen]
        matrix = used.astype(np.float32).reshape(-1, data.outputs)
        errors = data.errors(features @ matrix, data.y[chosen])
        if self.reports is not None or self.coordinates:
            return self._coordinate_sum(features, errors, coins)
        feature_norms = np.linalg.norm(features, axis=1)
        gradient_norms = feature_norms * np.linalg.norm(errors, axis=1)
        factors = self.clip / np.maximum(gradient_norms, self.clip)
        clipped_sum = features.T @ (errors * factors[:, None])
        noise = coins.noise.normal(0.0, 1.0, data.size)
        return clipped_sum.astype(np.float64).ravel() + noise * (self.noise * self.clip)

    def _coordinate_sum(self, features: Array, errors: Array, coins: Coins) -> FloatArray:
        """The sum of the batch's gradients, clipped, and reported, by coordinates."""
        gradients = features[:, :, None] * errors[:, None, :]
        weight_count = gradients.shape[1] * gradients.shape[2]
        scaled = gradients.reshape(len(features), weight_count) / self.clip
        coordinates = np.clip(scaled, -1.0, 1.0)
        if self.reports is not None and coordinates.size:
            codes = self.reports.privatize(coordinates, rng=coins.reports)
            coordinates = self.reports.decode(codes)
        return self.clip * coordinates.sum(axis=0, dtype=np.float64)

    def finish(self, data: LinearData, seed: int) -> Trained:
        """The weights at the end of a run."""
        averaging_start = self.steps // 2
        averaged_steps = self.steps - averaging_start
        running_mean = np.zeros(data.size)
        latest_weights = Trained(master=running_mean, used=running_mean, mean=running_mean)
        for step_number, master_weights, used_weights in self.run(data, seed):
            if step_number > averaging_start:
                running_mean = running_mean + used_weights / averaged_steps
            latest_weights = Trained(master=master_weights, used=used_weights, mean=running_mean)
        return latest_weights


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Trained:
    """Weights after training: those that are kept, those in use, and the mean of the latter over
    the last half.
    """

    master: FloatArray
    used: FloatArray
    mean: FloatArray


def packed(
    weights: FloatArray,
    *,
    bits: int,
    bound: float | None = None,
) -> FloatArray:
    """Float weights on even levels, nearest; `bound` None takes the largest of them."""
    if bound is None:
        bound = float(np.abs(weights).max())
    level_grid = Grid(bits=bits, bound=bound or 1.0)
    return level_grid.place(weights, Coins.of(0))
