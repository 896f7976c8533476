"""What the training tests share."""

from __future__ import annotations

import importlib
import importlib.util

import numpy as np
import pytest

from mezzotint.datasets import Dataset


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """PyTorch, where it is installed, on one thread: tests share the machine."""
    if importlib.util.find_spec("torch") is not None:
        importlib.import_module("torch").set_num_threads(1)


@pytest.fixture(scope="session")
def blobs() -> Dataset:
    """Two well separated clouds in five dimensions, 200 records to train on and 100 to test."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 300)
    features = (rng.normal(size=(300, 5)) + 1.5 * (2 * labels[:, None] - 1)).astype(np.float32)
    return Dataset(
        name="blobs",
        train_x=features[:200],
        train_y=labels[:200],
        test_x=features[200:],
        test_y=labels[200:],
        classes=2,
    )
