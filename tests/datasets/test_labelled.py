"""Data sets: shapes, splits, and files that are refused."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from mezzotint import ParameterError
from mezzotint.datasets import Dataset, breast_cancer, idx_folder


def test_breast_cancer() -> None:
    pytest.importorskip("sklearn")
    data = breast_cancer(split=3)
    assert data.train_x.shape == (455, 30)
    assert data.test_x.shape == (114, 30)
    assert np.bincount(np.concatenate([data.train_y, data.test_y])).tolist() == [212, 357]
    np.testing.assert_allclose(data.train_x.mean(axis=0), 0, atol=1e-5)  # sums of 455 floats of 32 bits: 455 * 2^-24
    np.testing.assert_allclose(data.train_x.std(axis=0), 1, atol=1e-5)  # as above
    assert "not cover" in data.note
    assert not np.array_equal(breast_cancer(split=4).train_y, data.train_y)
    with pytest.raises(ParameterError, match="train_share"):
        breast_cancer(train_share=1.0)


def _idx(array: np.ndarray) -> bytes:
    return b"\0\0\x08" + bytes([array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def test_idx_folder(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (6, 28, 28), dtype=np.uint8), np.arange(6, dtype=np.uint8)
    for part in ("train", "t10k"):
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(_idx(images)))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(_idx(labels))
    data = idx_folder(tmp_path, train=4)
    assert data.train_x.shape == (4, 28, 28)
    np.testing.assert_allclose(data.test_x * 255, images, atol=1e-4)  # 255 times the rounding of a 32-bit float
    assert data.classes == 6
    assert data.train_y.tolist() == [0, 1, 2, 3]


def test_mnist(shared_data: Path) -> None:
    data = idx_folder(shared_data / "mnist")
    assert data.train_x.shape == (60_000, 28, 28)
    assert np.bincount(data.test_y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_bad_data() -> None:
    x, y = np.zeros((3, 2), dtype=np.float32), np.array([0, 1, 1])
    with pytest.raises(ParameterError, match="train_x=2"):
        Dataset(name="d", train_x=x[:2], train_y=y, test_x=x, test_y=y, classes=2)
    with pytest.raises(ParameterError, match="test_y=1"):
        Dataset(name="d", train_x=x, train_y=y * 0, test_x=x, test_y=y, classes=1)
    with pytest.raises(ParameterError, match="not finite"):
        Dataset(name="d", train_x=x + np.float32("nan"), train_y=y, test_x=x, test_y=y, classes=2)
    with pytest.raises(ParameterError, match="test_x=0"):
        Dataset(name="d", train_x=x, train_y=y, test_x=x[:0], test_y=y[:0], classes=2)
