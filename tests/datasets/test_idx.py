"""idx files: what is read, what is refused."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from mezzotint import ParameterError
from mezzotint.core.errors import FileFormatError
from mezzotint.datasets import read_idx, read_image_set


def idx(array: np.ndarray) -> bytes:
    return (
        b"\0\0\x08"
        + bytes([array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


IMAGES, LABELS = np.arange(6 * 4, dtype=np.uint8).reshape(6, 2, 2), np.arange(6, dtype=np.uint8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for part in ("train", "t10k"):
        (tmp_path / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(IMAGES)))
        (tmp_path / f"{part}-labels-idx1-ubyte").write_bytes(idx(LABELS))
    return tmp_path


def test_files_are_read_zipped_or_not(folder: Path) -> None:
    np.testing.assert_array_equal(read_idx(folder / "t10k-labels-idx1-ubyte"), LABELS)
    found = read_image_set(folder)
    np.testing.assert_array_equal(found.train_images, IMAGES)
    np.testing.assert_array_equal(found.test_labels, LABELS)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (idx(LABELS)[:-1], "header says"),
        (b"text", "not an idx file"),
        (b"\0\0\x08\x01\0", "cut short"),
        (b"\0\0\x08\0", "cut short"),
        (idx(LABELS[:5]), "do not match labels"),
    ],
)
def test_what_is_no_idx_file_is_refused(folder: Path, content: bytes, match: str) -> None:
    (folder / "t10k-labels-idx1-ubyte").write_bytes(content)
    with pytest.raises(FileFormatError, match=match):
        read_image_set(folder)


def test_a_broken_archive_and_a_missing_file_are_named(folder: Path) -> None:
    (folder / "train-images-idx3-ubyte.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(FileFormatError, match="cannot be read"):
        read_image_set(folder)
    (folder / "train-images-idx3-ubyte.gz").unlink()
    with pytest.raises(ParameterError, match="train-images"):
        read_image_set(folder)
