"""Data sets for training: the Diagnostic set that scikit-learn carries, and idx images from a folder of the user's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.core.idx import read_image_set

Features = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Features and labels, split.

    Arguments:
        name: what it is.
        train_x, test_x: (n, ...) float32, records first.
        train_y, test_y: (n,) int64 labels, 0 .. classes - 1.
        classes: number of labels.
        note: what was done to the features that no privacy claim covers; empty if nothing.

    Raises:
        ParameterError: lengths that do not match, no records, labels out of range, features that are not finite.
    """

    name: str
    train_x: Features
    train_y: Labels
    test_x: Features
    test_y: Labels
    classes: int
    note: str = ""

    def __post_init__(self) -> None:
        for part, x, y in (("train", self.train_x, self.train_y), ("test", self.test_x, self.test_y)):
            if len(x) != len(y) or len(x) == 0:
                raise ParameterError(f"{part}_x", len(x), f"need as many records as labels ({len(y)}), at least one")
            if not np.isfinite(x).all():
                raise ParameterError(f"{part}_x", "not finite", "drop records with missing or infinite features")
            if y.min() < 0 or y.max() >= self.classes:
                raise ParameterError(f"{part}_y", int(y.max()), f"labels go from 0 to {self.classes - 1}")


def breast_cancer(*, split: int = 0, train_share: float = 0.8) -> Dataset:
    """Breast Cancer Wisconsin (Diagnostic): 569 records, 30 features, standardized; split at random.

    Arguments:
        split: seed of the split.
        train_share: share of the records that is trained on, in (0, 1).

    Raises:
        ParameterError: a share that leaves no record on one side.
        ImportError: scikit-learn, which carries the data, is not installed.

    Guarantees: mean and scale of the features come from the training records; the note says that this is not private.
    """
    try:
        from sklearn.datasets import load_breast_cancer
    except ImportError as error:
        raise ImportError("this data set comes with scikit-learn: pip install mezzotint[torch]") from error
    bunch: Any = load_breast_cancer()
    x, y = np.asarray(bunch.data, dtype=np.float64), np.asarray(bunch.target, dtype=np.int64)
    order = np.random.default_rng(split).permutation(len(x))
    size = round(train_share * len(x))
    if not 0 < size < len(x):
        raise ParameterError("train_share", train_share, "both parts need records; try 0.8")
    first, second = order[:size], order[size:]
    mean, scale = x[first].mean(axis=0), x[first].std(axis=0)
    standard = ((x - mean) / scale).astype(np.float32)
    return Dataset(
        name="breast-cancer",
        train_x=standard[first],
        train_y=y[first],
        test_x=standard[second],
        test_y=y[second],
        classes=2,
        note="features are standardized by the training records' mean and scale, which the claim does not cover",
    )


def idx_folder(folder: str | Path, *, train: int | None = None, test: int | None = None) -> Dataset:
    """Images and labels in the four idx files of MNIST and its kin (Fashion-MNIST, EMNIST digits).

    Arguments:
        folder: holds {train,t10k}-{images-idx3,labels-idx1}-ubyte, with or without .gz.
        train, test: use only the first so many records; None for all.

    Raises:
        ParameterError: a folder or file that is not there.
        FileFormatError: a file that is no idx file, or labels that do not go with the images.

    Returns: pixels scaled to [0, 1], images (n, rows, columns).
    """
    root = Path(folder)
    images = read_image_set(root)
    return Dataset(
        name=root.name,
        train_x=(images.train_images[:train] / np.float32(255)).astype(np.float32),
        train_y=images.train_labels[:train].astype(np.int64),
        test_x=(images.test_images[:test] / np.float32(255)).astype(np.float32),
        test_y=images.test_labels[:test].astype(np.int64),
        classes=int(max(images.train_labels.max(), images.test_labels.max())) + 1,
    )
