"""Data sets: shapes, splits, and files that are refused."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from mezzotint import FileFormatError, ParameterError
from mezzotint.datasets import Dataset, breast_cancer, idx_folder, labelled, load_federation, read_idx


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


def test_small_files_that_unpack_to_gigabytes_are_refused_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labelled, "LARGEST", 1 << 20)
    bomb = tmp_path / "train-images-idx3-ubyte.gz"
    bomb.write_bytes(gzip.compress(_idx(np.zeros((3000, 28, 28), dtype=np.uint8))))
    assert bomb.stat().st_size < 10_000
    with pytest.raises(FileFormatError, match="holds more than 1 MB"):
        read_idx(bomb)
    packed = tmp_path / "femnist.npz"
    np.savez_compressed(packed, x=np.zeros((8000, 28, 28), dtype=np.uint8), y=np.zeros(8000))
    assert packed.stat().st_size < 40_000
    with pytest.raises(FileFormatError, match="unpacks to more than 4 MB"):
        load_federation("femnist", folder=str(packed))


@pytest.mark.parametrize(
    "body",
    [b"", b"\x1f\x8b" + b"\0" * 40, gzip.compress(b"\0\0\x08\x03" * 9, mtime=0)[:-5], b"PK\x03\x04", b"[" * 99],
    ids=["empty", "gzip header", "cut gzip", "zip header", "nested lists"],
)
def test_damaged_files_of_every_reader_are_named(tmp_path: Path, body: bytes) -> None:
    for name in ("a.gz", "b", "c.npz", "train", "test"):
        (tmp_path / name).write_bytes(body)
    for read in (
        lambda: read_idx(tmp_path / "a.gz"),
        lambda: read_idx(tmp_path / "b"),
        lambda: load_federation("femnist", folder=str(tmp_path / "c.npz")),
        lambda: load_federation("cifar100", folder=str(tmp_path)),
    ):
        with pytest.raises(FileFormatError):
            read()


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
