"""Data sets: shapes, splits, and files that are refused."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from pyarrow import csv, parquet

from mezzotint import FileFormatError, ParameterError
from mezzotint.core import files
from mezzotint.datasets import (
    Dataset,
    breast_cancer,
    idx_folder,
    image_folder,
    labelled,
    load_federation,
    read_idx,
    table_file,
)


def test_the_share_that_is_kept_for_testing_is_the_one_in_words() -> None:
    page = Path(__file__).parents[2] / "docs" / "training.md"
    share = {5: "fifth"}[labelled.EVERY]
    for text in (str(table_file.__doc__), page.read_text("utf-8")):
        assert f"a {share} of the r" in text.lower()


def test_breast_cancer() -> None:
    pytest.importorskip("sklearn")
    data = breast_cancer(split=3)
    assert data.train_x.shape == (455, 30)
    assert data.test_x.shape == (114, 30)
    assert np.bincount(np.concatenate([data.train_y, data.test_y])).tolist() == [212, 357]
    np.testing.assert_allclose(
        data.train_x.mean(axis=0), 0, atol=1e-5
    )  # sums of 455 floats of 32 bits: 455 * 2^-24
    np.testing.assert_allclose(data.train_x.std(axis=0), 1, atol=1e-5)  # as above
    assert "not cover" in data.note
    assert not np.array_equal(breast_cancer(split=4).train_y, data.train_y)
    with pytest.raises(ParameterError, match="train_share"):
        breast_cancer(train_share=1.0)


def _idx(array: np.ndarray) -> bytes:
    return (
        b"\0\0\x08"
        + bytes([array.ndim])
        + struct.pack(f">{array.ndim}I", *array.shape)
        + array.tobytes()
    )


def test_small_files_that_unpack_to_gigabytes_are_refused_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(labelled, "LARGEST", 1 << 20)
    bomb = tmp_path / "train-images-idx3-ubyte.gz"
    bomb.write_bytes(gzip.compress(_idx(np.zeros((3000, 28, 28), dtype=np.uint8))))
    assert bomb.stat().st_size < 10_000
    with pytest.raises(FileFormatError, match="holds more than 1 MB"):
        read_idx(bomb)
    monkeypatch.setattr(files, "LARGEST_UNPACKED", 1 << 22)
    packed = tmp_path / "femnist.npz"
    np.savez_compressed(packed, x=np.zeros((8000, 28, 28), dtype=np.uint8), y=np.zeros(8000))
    assert packed.stat().st_size < 40_000
    with pytest.raises(FileFormatError, match="unpacks to more than 4 MB"):
        load_federation("femnist", folder=str(packed))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x1f\x8b" + b"\0" * 40,
        gzip.compress(b"\0\0\x08\x03" * 9, mtime=0)[:-5],
        b"PK\x03\x04",
        b"[" * 99,
    ],
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
    np.testing.assert_allclose(
        data.test_x * 255, images, atol=1e-4
    )  # 255 times the rounding of a 32-bit float
    assert data.classes == 6
    assert data.train_y.tolist() == [0, 1, 2, 3]


def test_mnist(shared_data: Path) -> None:
    data = idx_folder(shared_data / "mnist")
    assert data.train_x.shape == (60_000, 28, 28)
    assert np.bincount(data.test_y).tolist() == [
        980,
        1135,
        1032,
        1010,
        982,
        892,
        958,
        1028,
        974,
        1009,
    ]


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
    with pytest.raises(ParameterError, match="train_y=1: there is nothing to learn"):
        Dataset(name="d", train_x=x, train_y=y * 0, test_x=x, test_y=y * 0, classes=1)
    with pytest.raises(ParameterError, match="train_x=float64 records"):
        Dataset(name="d", train_x=x.astype(float), train_y=y, test_x=x, test_y=y, classes=2)
    with pytest.raises(ParameterError, match="test_y=float64 labels"):
        Dataset(name="d", train_x=x, train_y=y, test_x=x, test_y=y.astype(float), classes=2)
    with pytest.raises(ParameterError, match=r"test_x=float32 records of shape \(1,\)"):
        Dataset(name="d", train_x=x, train_y=y, test_x=x[:, :1], test_y=y, classes=2)


def test_tables_are_features_and_a_label(tmp_path: Path) -> None:
    text = "size,grade,old\n" + "".join(
        f"{i},{'ba'[i % 2]},{'true' if i % 3 else 'false'}\n" for i in range(12)
    )
    (tmp_path / "t.csv").write_text(text)
    parquet.write_table(csv.read_csv(tmp_path / "t.csv"), tmp_path / "t.parquet")
    for name in ("t.csv", "t.parquet"):
        data = table_file(tmp_path / name, label="grade", neighboring="replace_one")
        assert (data.train_x.shape, data.test_x.shape, data.classes) == ((10, 2), (2, 2), 2)
        np.testing.assert_array_equal(data.test_x, [[4, 1], [9, 0]])  # every fifth row
        np.testing.assert_array_equal(data.test_y, [1, 0])  # "a" before "b"
        assert data.train_x.dtype == np.float32
        assert data.train_y.dtype == np.int64
        assert "not cover" in data.note


@pytest.mark.parametrize("owner", ["who", None])
def test_a_row_is_tested_or_trained_on_whoever_else_is_there(
    tmp_path: Path, owner: str | None
) -> None:
    rows = [f"u{i // 2},{i},{i % 3}\n" for i in range(200)]

    def parts(kept: list[str]) -> tuple[set[float], set[float]]:
        (tmp_path / "t.csv").write_text(
            "who,x,y\n" + "".join(row if owner else row[1:] for row in kept)
        )
        data = table_file(tmp_path / "t.csv", label="y", users=owner)
        return set(data.train_x[:, -1].tolist()), set(data.test_x[:, -1].tolist())

    train, test = parts(rows)
    # 100 users, or 200 rows, of whom each tests with probability 1/5: between these but for 1 in 1000 of all hashes.
    assert 8 <= len(test) / (2 if owner else 1) <= 70
    for first in (0, 2, 98):
        gone = {float(first), float(first + 1)}
        assert parts(rows[:first] + rows[first + 2 :]) == (train - gone, test - gone)
    if owner:
        assert all((2 * i in test) == (2 * i + 1 in test) for i in range(100))


def test_tables_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    def refused(text: str, words: str, *, label: str = "y", name: str = "t.csv") -> None:
        (tmp_path / name).write_text(text)
        with pytest.raises((ParameterError, FileFormatError), match=words):
            table_file(tmp_path / name, label=label)

    rows = "".join(f"{i},{i % 2}\n" for i in range(10))
    refused("x,y\n" + rows, "label=z", label="z")
    refused("x,y\n" + rows.replace("3,1", "three,1"), "column x holds values of type string")
    refused("x,y\n" + rows.replace("3,1", ",1"), "not finite|missing")
    refused("x,y\n" + rows.replace("3,1", "3,"), "label=y")
    refused("y\n" + "1\n0\n" * 5, "no column but the label")
    refused("x,y\n1,0\n", "at least one")
    refused("x,y\n1\n", "cannot be read")
    refused("no parquet", "cannot be read", name="t.parquet")
    refused("x,y\n" + rows, "ending in", name="t.txt")
    with pytest.raises(ParameterError, match="there"):
        table_file(tmp_path / "gone.csv", label="y")


def test_folders_of_images(tmp_path: Path) -> None:
    image = pytest.importorskip("PIL.Image")
    for name, mode, shape in (("a", "L", (3, 2)), ("b", "RGB", (3, 2, 3))):
        folder = tmp_path / mode
        for place in (folder / "a", folder / "b"):
            place.mkdir(parents=True, exist_ok=True)
            for i in range(5):
                pixels = np.full(shape, 51 * i, dtype=np.uint8)
                image.fromarray(pixels).save(place / f"{i}.png")
        data = image_folder(folder, neighboring="replace_one")
        assert data.train_x.shape == (8, 3, 2) if mode == "L" else (8, 3, 3, 2), name
        np.testing.assert_array_equal(data.test_y, [0, 1])
        np.testing.assert_allclose(data.test_x[0], 0.8)  # 204 of 255
    with pytest.raises(ParameterError, match="two at least"):
        image_folder(tmp_path / "L" / "a")
    image.fromarray(np.zeros((4, 4), dtype=np.uint8)).save(tmp_path / "L" / "a" / "9.png")
    with pytest.raises(ParameterError, match="images differ in shape"):
        image_folder(tmp_path / "L")
    (tmp_path / "L" / "a" / "9.png").write_bytes(b"no image")
    with pytest.raises(FileFormatError, match=r"9\.png: no image"):
        image_folder(tmp_path / "L")
    (tmp_path / "L" / "c").mkdir()
    (tmp_path / "L" / "a" / "9.png").unlink()
    with pytest.raises(ParameterError, match="no images"):
        image_folder(tmp_path / "L")
