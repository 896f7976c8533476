"""The idx files that MNIST and its kin come in."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import FileFormatError, ParameterError


class ImageSet(NamedTuple):
    """Images as bytes, (n, rows, columns), and labels, (n,)."""

    train_images: npt.NDArray[np.uint8]
    train_labels: npt.NDArray[np.uint8]
    test_images: npt.NDArray[np.uint8]
    test_labels: npt.NDArray[np.uint8]


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """The array of an idx file of bytes, gzipped or not; FileFormatError for anything else."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError) as error:
        raise FileFormatError(f"{path.name}: cannot be read ({error})") from error
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        raise FileFormatError(f"{path.name}: not an idx file of bytes")
    dimensions = raw[3]
    start = 4 + 4 * dimensions
    if dimensions == 0 or len(raw) < start:
        raise FileFormatError(f"{path.name}: header cut short")
    shape = struct.unpack(f">{dimensions}I", raw[4:start])
    if len(raw) - start != int(np.prod(shape, dtype=np.int64)):
        raise FileFormatError(f"{path.name}: holds {len(raw) - start} bytes where its header says {shape}")
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)


def read_image_set(folder: Path) -> ImageSet:
    """The four idx files of MNIST and its kin (Fashion-MNIST, EMNIST digits).

    Arguments:
        folder: holds {train,t10k}-{images-idx3,labels-idx1}-ubyte, with or without .gz.

    Raises:
        ParameterError: a folder or file that is not there.
        FileFormatError: a file that is no idx file, or images and labels of different numbers.
    """
    parts: list[npt.NDArray[np.uint8]] = []
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        found = [path for path in (folder / f"{name}-ubyte.gz", folder / f"{name}-ubyte") if path.is_file()]
        if not found:
            raise ParameterError("data", str(folder), f"no {name}-ubyte[.gz] there; name a folder with MNIST's files")
        parts.append(read_idx(found[0]))
    for images, labels in (parts[:2], parts[2:]):
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise FileFormatError(f"{folder.name}: images {images.shape} do not go with labels {labels.shape}")
    return ImageSet(*parts)
