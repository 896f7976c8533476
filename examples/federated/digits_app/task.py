"""The model and the data: nothing here knows of Flower's messages, or of privacy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

Array = npt.NDArray[np.float64]
PIXELS, CLASSES = 64, 10
SIZE = (PIXELS + 1) * CLASSES


def initial_weights() -> Array:
    """(65, 10) zeros: one row a pixel, the last one for the bias."""
    return np.zeros((PIXELS + 1, CLASSES))


def load_client(place: int, clients: int, file: str = "") -> tuple[Array, npt.NDArray[np.int64]]:
    """A client's images and labels: from its own file (npz with x and y), or every n-th of the public digits."""
    if file:
        arrays = np.load(Path(file))
        return arrays["x"], arrays["y"]
    images, labels = load_digits(return_X_y=True)
    return images[place:1400:clients] / 16, labels[place:1400:clients]


def load_test() -> tuple[Array, npt.NDArray[np.int64]]:
    """The images that no client has."""
    images, labels = load_digits(return_X_y=True)
    return images[1400:] / 16, labels[1400:]


def probabilities(weights: Array, images: Array) -> Array:
    scores = images @ weights[:-1] + weights[-1]
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def train(weights: Array, images: Array, labels: npt.NDArray[np.int64], steps: int = 5) -> Array:
    """New weights after some steps of gradient descent."""
    inputs = np.column_stack([images, np.ones(len(images))])
    target = np.eye(CLASSES)[labels]
    for _ in range(steps):
        error = probabilities(weights, images) - target
        weights = weights - 0.5 * inputs.T @ error / len(images)
    return weights


def accuracy(weights: Array, images: Array, labels: npt.NDArray[np.int64]) -> float:
    return float((probabilities(weights, images).argmax(axis=1) == labels).mean())
