"""Minutes in the air, and labelled records for learning.

Some ship with the package or with scikit-learn; for the others the user brings standard files.
"""

from __future__ import annotations

import gzip
import hashlib
import struct
import zlib
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from mezzotint.core import brought_by
from mezzotint.core.arguments import Neighboring, check_count, check_neighboring, check_probability
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.types import AnyPath, FloatArray

if TYPE_CHECKING:
    import pyarrow as pa

AIR_TIME = "air_time"
"""Minutes, int16, missing values included; 336,776 rows."""

ORIGIN = "origin"
"""Text: EWR, JFK or LGA."""

CARRIER = "carrier"
"""Text: the carrier's two-letter code."""

Features = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Users = npt.NDArray[np.generic]


def flights() -> AbstractContextManager[Path]:
    """The Parquet file as a path, for a `with` block; its licence stands beside it."""
    folder = resources.files("mezzotint.datasets")
    return resources.as_file(folder.joinpath("flights", "air_time.parquet"))


# Files of images ----------------------------------------------------------------------------------


class ImageSet(NamedTuple):
    """Images as bytes, (n, rows, columns), and labels, (n,)."""

    train_images: Bytes
    train_labels: Bytes
    test_images: Bytes
    test_labels: Bytes


LARGEST = 1 << 30
"""Bytes of one file of a data set, unpacked; the largest known, EMNIST's images, has 0.55 of
them.
"""
IDX_OF_BYTES = b"\x00\x00\x08"
"""How an idx file of bytes begins; the number of dimensions follows."""


def file_bytes(path: Path) -> bytes:
    """A file of a data set, unpacked if its name ends in .gz; a small one that would unpack to
    gigabytes is refused.
    """
    opener: Callable[..., Any] = open
    if path.suffix == ".gz":
        opener = gzip.open
    try:
        with opener(path, "rb") as file:
            content: bytes = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise FileFormatError(f"{path.name}: cannot be read ({error})") from error
    if len(content) > LARGEST:
        problem = f"holds more than {LARGEST >> 20} MB, which no file of these data sets does"
        raise FileFormatError(f"{path.name}: {problem}")
    return content


def read_idx(path: AnyPath) -> Bytes:
    """The array of an idx file of bytes, gzipped or not; FileFormatError for anything else."""
    path = Path(path)
    content = file_bytes(path)
    if len(content) < 4 or not content.startswith(IDX_OF_BYTES):
        raise FileFormatError(f"{path.name}: not an idx file of bytes")
    dimensions = content[3]
    content_start = 4 + 4 * dimensions
    if dimensions == 0 or len(content) < content_start:
        raise FileFormatError(f"{path.name}: header cut short")
    array_shape = struct.unpack(f">{dimensions}I", content[4:content_start])
    content_size = len(content) - content_start
    if content_size != int(np.prod(array_shape, dtype=np.int64)):
        raise FileFormatError(
            f"{path.name}: holds {content_size} bytes where its header says {array_shape}"
        )
    values = np.frombuffer(content, dtype=np.uint8, offset=content_start)
    return values.reshape(array_shape)


def read_image_set(folder: AnyPath) -> ImageSet:
    """The four idx files of MNIST and its kin (Fashion-MNIST, EMNIST digits).

    Arguments:
        folder: holds {train,t10k}-{images-idx3,labels-idx1}-ubyte, with or without .gz.

    Raises:
        ParameterError: a folder or file that is not there.
        FileFormatError: not an IDX file, or different numbers of images and labels.
    """
    set_folder = Path(folder)
    arrays: list[Bytes] = []
    for file_stem in (
        "train-images-idx3",
        "train-labels-idx1",
        "t10k-images-idx3",
        "t10k-labels-idx1",
    ):
        candidates = [set_folder / f"{file_stem}-ubyte.gz", set_folder / f"{file_stem}-ubyte"]
        present = [candidate for candidate in candidates if candidate.is_file()]
        if not present:
            remedy = f"no {file_stem}-ubyte[.gz] there; name a folder with MNIST's files"
            raise ParameterError("data", str(folder), remedy)
        arrays.append(read_idx(present[0]))
    image_set = ImageSet(*arrays)
    for images, labels in (arrays[:2], arrays[2:]):
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            problem = f"images {images.shape} do not match labels {labels.shape}"
            raise FileFormatError(f"{set_folder.name}: {problem}")
    return image_set


def pixels(values: npt.ArrayLike) -> Features:
    """Bytes scaled to [0, 1]."""
    scaled = np.asarray(values) / np.float32(255)
    return scaled.astype(np.float32)


def scikit_learn(name: str) -> tuple[FloatArray, Labels]:
    """Features and labels of a data set that scikit-learn carries.

    Raises:
        MissingExtraError: scikit-learn is not installed.
    """
    with brought_by("torch"):
        from sklearn import datasets
    loaded_records = getattr(datasets, f"load_{name}")()
    features = np.asarray(loaded_records.data, dtype=np.float64)
    class_numbers = np.asarray(loaded_records.target, dtype=np.int64)
    return features, class_numbers


# Data sets ----------------------------------------------------------------------------------------


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
        train_users: (n,) whose record each is; None where nobody says.

    No claim about a training covers the number of training records, nor `classes` or `note`: the
    operator may see them, but they are not for release (docs/training.md, "What the claims do not
    cover").

    Raises:
        ParameterError: lengths that do not match, no records, labels out of range, features that
            are not finite.
    """

    name: str
    train_x: Features
    train_y: Labels
    test_x: Features
    test_y: Labels
    classes: int
    note: str = ""
    train_users: Users | None = None

    def __post_init__(self) -> None:
        self._check("train", self.train_x, self.train_y)
        self._check("test", self.test_x, self.test_y)
        if self.classes < 2:
            remedy = "there is nothing to learn from one label; need two or more"
            raise ParameterError("train_y", self.classes, remedy)

    def _check(self, name: str, x: Features, y: Labels) -> None:
        if len(x) != len(y) or len(x) == 0:
            remedy = f"need as many records as labels ({len(y)}), at least one"
            raise ParameterError(f"{name}_x", len(x), remedy)
        if not np.isfinite(x).all():
            remedy = "drop records with missing or infinite features"
            raise ParameterError(f"{name}_x", "not finite", remedy)
        if y.min() < 0 or y.max() >= self.classes:
            remedy = f"labels go from 0 to {self.classes - 1}"
            raise ParameterError(f"{name}_y", int(y.max()), remedy)
        record_shape = self.train_x.shape[1:]
        if x.dtype != np.float32 or x.shape[1:] != record_shape:
            shape = f"{x.dtype} records of shape {x.shape[1:]}"
            raise ParameterError(f"{name}_x", shape, "need float32 records of one shape")
        if y.dtype != np.int64 or y.ndim != 1:
            shape = f"{y.dtype} labels of shape {y.shape}"
            raise ParameterError(f"{name}_y", shape, "need one int64 label for each record")


def breast_cancer(*, split: int = 0, train_share: float = 0.8) -> Dataset:
    """Breast Cancer Wisconsin (Diagnostic): 569 records, 30 features, standardized; split at
    random.

    Arguments:
        split: seed of the split.
        train_share: share of the records that is trained on, in (0, 1).

    Raises:
        ParameterError: a share that leaves no record on one side.
        MissingExtraError: scikit-learn, which carries the data, is not installed.

    Guarantees: mean and scale of the features come from the training records; the note says that
    this is not private.
    """
    seed = check_count("split", split, least=0)
    check_probability("train_share", train_share)
    features, diagnoses = scikit_learn("breast_cancer")
    generator = np.random.default_rng(seed)
    record_order = generator.permutation(len(features))
    train_count = round(train_share * len(features))
    if not 0 < train_count < len(features):
        raise ParameterError("train_share", train_share, "both parts need records; try 0.8")
    train_indices, test_indices = record_order[:train_count], record_order[train_count:]
    train_features = features[train_indices]
    centred = features - train_features.mean(axis=0)
    standardized = (centred / train_features.std(axis=0)).astype(np.float32)
    return Dataset(
        name="breast-cancer",
        train_x=standardized[train_indices],
        train_y=diagnoses[train_indices],
        test_x=standardized[test_indices],
        test_y=diagnoses[test_indices],
        classes=2,
        note="features are standardized by the training records' mean and scale, which the claim "
        "does not cover",
    )


def idx_folder(
    folder: AnyPath,
    *,
    train: int | None = None,
    test: int | None = None,
) -> Dataset:
    """Images and labels in the four idx files of MNIST and its kin (Fashion-MNIST, EMNIST digits).

    Arguments:
        folder: holds {train,t10k}-{images-idx3,labels-idx1}-ubyte, with or without .gz.
        train, test: the number of records to use, the first ones; None for all.

    Raises:
        ParameterError: a folder or file that is not there.
        FileFormatError: not an IDX file, or different numbers of images and labels.

    Returns: pixels scaled to [0, 1], images (n, rows, columns).
    """
    image_set = read_image_set(folder)
    largest_train, largest_test = image_set.train_labels.max(), image_set.test_labels.max()
    largest_label = max(largest_train, largest_test)
    return Dataset(
        name=Path(folder).name,
        train_x=pixels(image_set.train_images[:train]),
        train_y=image_set.train_labels[:train].astype(np.int64),
        test_x=pixels(image_set.test_images[:test]),
        test_y=image_set.test_labels[:test].astype(np.int64),
        classes=int(largest_label) + 1,
    )


# Tables and folders that are not split ------------------------------------------------------------

EVERY = 5
"""One record in so many is kept for testing: a fifth, as pages and docstrings say."""


def _by_hash(keys: Iterable[bytes]) -> npt.NDArray[np.bool_]:
    digests = (hashlib.sha256(record_key).digest() for record_key in keys)
    hash_words = (int.from_bytes(digest[:8], "big") for digest in digests)
    is_chosen = (hash_word % EVERY == 0 for hash_word in hash_words)
    return np.fromiter(is_chosen, dtype=np.bool_)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Records:
    """Records that are to be split.

    Arguments:
        name: of their file; x, y: features and labels; classes: names of the labels.
        neighboring: what a claim about the training will be about.
        users: whose record each is, or None.
    """

    name: str
    x: Features
    y: Labels
    classes: list[str]
    neighboring: Neighboring
    users: Users | None = None

    def tested(self) -> npt.NDArray[np.bool_]:
        """Which records test.

        By a hash of the record, or of whose it is, as positions would move others when one is added
        or removed. By position where one is replaced, as another hash would move it from one part
        to the other.
        """
        if self.users is not None:
            user_names = (str(user).encode() for user in self.users.tolist())
            return _by_hash(user_names)
        if check_neighboring(self.neighboring) == "replace_one":
            positions = np.arange(len(self.x))
            return positions % EVERY == EVERY - 1
        encoded_names = [class_name.encode() for class_name in self.classes]
        class_names = [encoded_names[class_number] for class_number in self.y.tolist()]
        return _by_hash(
            features.tobytes() + class_number
            for features, class_number in zip(self.x, class_names, strict=True)
        )

    def dataset(self) -> Dataset:
        """Most for training, the others for testing."""
        is_test = self.tested()
        if is_test.all() or not is_test.any():
            remedy = f"one record, or user, in {EVERY} tests, at least one: give more"
            raise ParameterError("data", self.name, remedy)
        train_users = None
        if self.users is not None:
            train_users = self.users[~is_test]
        classes = len(self.classes)
        return Dataset(
            name=self.name,
            train_x=self.x[~is_test],
            train_y=self.y[~is_test],
            test_x=self.x[is_test],
            test_y=self.y[is_test],
            classes=classes,
            note=f"the names of the {classes} classes are read from the data, which the claim does "
            f"not cover",
            train_users=train_users,
        )


def table_file(
    path: AnyPath,
    *,
    label: str,
    users: str | None = None,
    neighboring: Neighboring = "add_or_remove_one",
) -> Dataset:
    """A table of numbers, in CSV or Parquet; a fifth of the rows, or of the users, is kept for
    testing.

    Which ones depends on a hash of the row, or of the user's name, alone; where a row is replaced,
    on its position.

    Arguments:
        path: ending in .csv (with a header) or .parquet.
        label: the column to learn; its distinct values, in order, are the classes. All others are
            features as they are.
        users: the column that says whose record a row is; no feature. None if there is none.
        neighboring: what a claim about the training will be about: adding or removing a row, or
            replacing it in place.

    Raises:
        ParameterError: another ending, no such file or column, a feature that is missing or no
            number, too few rows.
        FileFormatError: a file that cannot be read.
    """
    table = _read_table(Path(path))
    row_users = None
    if users is not None:
        user_values = _named_column(table, "users", users)
        row_users = np.asarray(user_values)
    row_labels = np.asarray(_named_column(table, "label", label))
    classes, class_numbers = np.unique(row_labels, return_inverse=True)
    if classes.dtype.kind == "f" and not np.isfinite(classes).all():
        raise ParameterError("label", label, "some rows hold no finite number; drop them")
    if len(classes) > 2 and 2 * len(classes) > len(class_numbers):
        remedy = f"it has {len(classes)} values in {len(row_labels)} rows; name a column of classes"
        raise ParameterError("label", label, remedy)
    if users == label:
        raise ParameterError("users", str(users), "this column is what is learned; name another")
    file_name = Path(path).name
    feature_names = [name for name in table.column_names if name not in (label, users)]
    if not feature_names:
        remedy = "has no column but the label; give it others to learn from"
        raise ParameterError("data", file_name, remedy)
    columns = [_feature(table, feature_name, file_name) for feature_name in feature_names]
    features = np.stack(columns, axis=1)
    records = _Records(
        name=file_name,
        x=features.astype(np.float32),
        y=class_numbers.astype(np.int64),
        classes=list(map(str, classes.tolist())),
        neighboring=neighboring,
        users=row_users,
    )
    return records.dataset()


def _read_table(path: Path) -> pa.Table:
    import pyarrow as pa
    from pyarrow import csv, parquet

    readers: dict[str, Callable[[Path], pa.Table]] = {
        ".csv": csv.read_csv,
        ".parquet": parquet.read_table,
    }
    if path.suffix not in readers or not path.is_file():
        remedy = f"give a file that is there, ending in {' or '.join(readers)}"
        raise ParameterError("data", str(path), remedy)
    try:
        return readers[path.suffix](path)
    except (pa.ArrowException, OSError) as error:
        raise FileFormatError(f"{path.name}: cannot be read ({type(error).__name__})") from None


def _named_column(table: pa.Table, option: str, name: str) -> list[Any]:
    """The values of a column that an option names."""
    if name not in table.column_names:
        remedy = f"no such column; there are {', '.join(table.column_names)}"
        raise ParameterError(option, name, remedy)
    if table[name].null_count:
        raise ParameterError(option, name, "some rows have none; drop them")
    return table[name].to_pylist()


def _feature(table: pa.Table, name: str, file: str) -> FloatArray:
    from pyarrow import types

    column_type = table.schema.field(name).type
    if not (
        types.is_integer(column_type)
        or types.is_floating(column_type)
        or types.is_boolean(column_type)
    ):
        remedy = f"column {name} holds values of type {column_type}; features must be numbers: encode or drop it"
        raise ParameterError("data", file, remedy)
    column = table[name].cast("float64")
    return column.to_numpy()


def image_folder(folder: AnyPath, *, neighboring: Neighboring = "add_or_remove_one") -> Dataset:
    """Images in one folder for each class; some are kept for testing, as many and chosen as in
    `table_file`.

    Arguments:
        folder: holds a folder for each class, of images of one size that Pillow reads. Grey images
            become (rows, columns), others (3, rows, columns), scaled to [0, 1].
        neighboring: as of `table_file`.

    Raises:
        ParameterError: fewer than two classes, a class without images, images of several sizes.
        FileFormatError: not an image file.
        MissingExtraError: Pillow is not installed.
    """
    folders = (path for path in Path(folder).iterdir() if path.is_dir())
    classes = sorted(folders)
    if len(classes) < 2:
        raise ParameterError("data", str(folder), "need a folder for each class, two at least")
    images: list[Features] = []
    labels: list[int] = []
    for class_number, class_folder in enumerate(classes):
        class_files = (path for path in class_folder.iterdir() if path.is_file())
        entries = sorted(class_files)
        image_files = [path for path in entries if not path.name.startswith(".")]
        if not image_files:
            remedy = "holds no images; give a folder of them for each class"
            raise ParameterError("data", class_folder.name, remedy)
        images += map(_image, image_files)
        labels += [class_number] * len(image_files)
    image_shapes = {image.shape for image in images}
    if len(image_shapes) > 1:
        raise ParameterError(
            "data", str(sorted(image_shapes)[:3]), "images differ in shape; resize them"
        )
    records = _Records(
        name=Path(folder).name,
        x=np.stack(images),
        y=np.asarray(labels, dtype=np.int64),
        classes=[class_folder.name for class_folder in classes],
        neighboring=neighboring,
    )
    return records.dataset()


def _image(file: Path) -> Features:
    """Grey as (rows, columns), colours as (3, rows, columns)."""
    with brought_by("torch"):
        from PIL import Image
    try:
        with Image.open(file) as picture:
            if picture.mode in ("1", "L"):
                grey = np.asarray(picture.convert("L"))
                return pixels(grey)
            colours = pixels(np.asarray(picture.convert("RGB")))
            channels_first = colours.transpose(2, 0, 1)
            return np.ascontiguousarray(channels_first)
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        problem = f"{file.parent.name}/{file.name}: no image ({type(error).__name__})"
        raise FileFormatError(problem) from None
