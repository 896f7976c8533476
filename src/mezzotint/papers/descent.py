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
            odds = np.exp(scores - scores.max(axis=1, keepdims=True))
            odds /= odds.sum(axis=1, keepdims=True)
            odds[np.arange(len(labels)), labels] -= 1
            return odds
        signs = (2 * labels - 1).astype(np.float32)[:, None]
        margins = signs * scores
        if self.model == "svm":
            return -signs * (margins < 1)
        return cast("Array", -signs / (1 + np.exp(np.clip(margins, -80, 80))))

    def accuracy(self, weights: FloatArray, *, training: bool = False) -> float:
        """Percent of the test records, or of the training records, that are classified rightly."""
        x, y = (self.x, self.y) if training else (self.test_x, self.test_y)
        scores = x @ weights.astype(np.float32).reshape(-1, self.outputs)
        decided = scores.argmax(axis=1) if self.model == "softmax" else scores[:, 0] > 0
        return 100 * float((decided == y).mean())


def linear_data(data: datasets.Dataset, model: str) -> LinearData:
    """A data set for one of the three classifiers; images become rows."""
    features, tests = (_with_constant(part) for part in (data.train_x, data.test_x))
    outputs = data.classes if model == "softmax" else 1
    return LinearData(
        model=model, x=features, y=data.train_y, test_x=tests, test_y=data.test_y, outputs=outputs
    )


def _with_constant(features: npt.NDArray[np.float32]) -> Array:
    flat = features.reshape(len(features), -1)
    return np.concatenate([flat, np.ones((len(flat), 1), dtype=np.float32)], axis=1)


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
        most = 2**self.bits - 1
        position = (np.clip(weights / self.bound, -1, 1) + 1) * most / 2
        if self.rounding == "nearest":
            level = np.floor(position + 0.5)
        else:
            level = np.floor(position + coins.rounding.random(position.size))
        level = np.minimum(level, most)
        if self.q < 1:
            replaced = coins.replacement.random(level.size) >= self.q
            shift = coins.replacement.integers(1, most + 1, level.size)
            level = np.where(replaced, (level + shift) % (most + 1), level)
        return self.bound * (2 * level / most - 1)


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
        streams = [np.random.default_rng(part) for part in np.random.SeedSequence(seed).spawn(5)]
        return Coins(
            batches=streams[0],
            noise=streams[1],
            rounding=streams[2],
            replacement=streams[3],
            reports=streams[4],
        )


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
        coins, rate = Coins.of(seed), self.batch / len(data.x)
        kept = np.zeros(data.size)
        used = kept
        for step in range(1, self.steps + 1):
            chosen = np.flatnonzero(coins.batches.random(len(data.x)) < rate)
            total = self._total(data, used, chosen, coins)
            start = kept if self.weights == "master" else used
            moved = start - self.step_size / self.batch * total
            if self.grid is None:
                kept = used = moved
            else:
                kept = np.clip(moved, -self.grid.bound, self.grid.bound)
                used = self.grid.place(kept, coins)
            yield step, kept, used

    def _total(
        self, data: LinearData, used: FloatArray, chosen: npt.NDArray[np.intp], coins: Coins
    ) -> FloatArray:
        """The noisy sum of the batch's clipped gradients."""
        x = data.x[chosen]
        errors = data.errors(x @ used.astype(np.float32).reshape(-1, data.outputs), data.y[chosen])
        if self.reports is not None or self.coordinates:
            rows = (x[:, :, None] * errors[:, None, :]).reshape(len(chosen), data.size) / self.clip
            rows = np.clip(rows, -1.0, 1.0)
            if self.reports is not None and rows.size:
                rows = self.reports.decode(self.reports.privatize(rows, rng=coins.reports))
            return self.clip * rows.sum(axis=0, dtype=np.float64)
        norms = np.linalg.norm(x, axis=1) * np.linalg.norm(errors, axis=1)
        factors = self.clip / np.maximum(norms, self.clip)
        total = (x.T @ (errors * factors[:, None])).astype(np.float64).ravel()
        return total + coins.noise.normal(0.0, 1.0, data.size) * (self.noise * self.clip)

    def finish(self, data: LinearData, seed: int) -> Trained:
        """The weights at the end of a run."""
        half = self.steps // 2
        total = np.zeros(data.size)
        last = Trained(master=total, used=total, mean=total)
        for step, master, used in self.run(data, seed):
            if step > half:
                total = total + used / (self.steps - half)
            last = Trained(master=master, used=used, mean=total)
        return last


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
    reach = float(np.abs(weights).max()) if bound is None else bound
    levels = Grid(bits=bits, bound=reach or 1.0)
    return levels.place(weights, Coins.of(0))
