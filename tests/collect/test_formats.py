"""Formats of sources, object stores, and tables of others."""

from __future__ import annotations

import gzip
import io
import json
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from mezzotint import collect, families
from mezzotint.collect.listing import find_files
from mezzotint.core.errors import FileFormatError, ParameterError

MECHANISM = families.randomized_response(lower=0, upper=1, epsilon=30.0)
"""So large an epsilon that a code tells its input: rows that are lost, doubled or moved show."""

ROWS = 1000
TABLE = pa.table({"x": np.arange(ROWS) % 3 % 2, "name": [f"n{i % 5}" for i in range(ROWS)]}).cast(
    pa.schema([("x", pa.float64()), ("name", pa.string())])
)


def as_csv(delimiter: str = ",") -> bytes:
    target = io.BytesIO()
    pacsv.write_csv(TABLE, target, pacsv.WriteOptions(delimiter=delimiter))
    return target.getvalue()


def zstd(path: Path, data: bytes) -> None:
    with pa.CompressedOutputStream(str(path), "zstd") as stream:
        stream.write(data)


WRITERS: dict[str, Callable[[Path], Any]] = {
    "a.parquet": lambda path: pq.write_table(TABLE, path, row_group_size=300),
    "a.csv": lambda path: path.write_bytes(as_csv()),
    "a.tsv": lambda path: path.write_bytes(as_csv("\t")),
    "semicolons.csv": lambda path: path.write_bytes(as_csv(";")),
    "bars.csv": lambda path: path.write_bytes(as_csv("|")),
    "a.csv.gz": lambda path: path.write_bytes(gzip.compress(as_csv())),
    "a.csv.zst": lambda path: zstd(path, as_csv()),
    "a.tsv.zst": lambda path: zstd(path, as_csv("\t")),
    "a.arrow": lambda path: feather.write_feather(TABLE, path, chunksize=300),
    "a.feather": lambda path: feather.write_feather(TABLE, path, compression="uncompressed"),
    "a.orc": lambda path: orc.write_table(TABLE, path),
    "a.jsonl": lambda path: path.write_text(
        "".join(json.dumps(row) + "\n" for row in TABLE.to_pylist())
    ),
    "a.ndjson": lambda path: path.write_text(
        "".join(json.dumps(row) + "\n" for row in TABLE.to_pylist())
    ),
}


def privatized(source: Any, out: Path) -> pa.Table:
    collect.privatize(source, out, column="x", mechanism=MECHANISM, keep=["name"])
    return pq.read_table(out)


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name)
    found = privatized(tmp_path / name, tmp_path / "out.parquet")
    assert found["x_code"].to_pylist() == TABLE["x"].to_pylist()
    assert found["name"].to_pylist() == TABLE["name"].to_pylist()
    folder = tmp_path / "folder"
    collect.privatize(tmp_path / name, f"{folder}/", column="x", mechanism=MECHANISM)
    assert collect.read_counts(folder).n == ROWS


@pytest.mark.parametrize(
    "name", [name for name in WRITERS if "csv" not in name and "tsv" not in name]
)
def test_damaged_files_are_refused_by_name(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(b"\x00{" + whole[: len(whole) // 2])
    with pytest.raises(FileFormatError, match=name):
        privatized(tmp_path / name, tmp_path / "out.parquet")
    assert not (tmp_path / "out.parquet").exists()


def test_whole_numbers_that_end_after_the_first_block(tmp_path: Path) -> None:
    lines = ['{"x": null}\n', *['{"x": 1}\n'] * 200_000, '{"x": 0.0}\n', '{"y": 3}\n']
    (tmp_path / "a.jsonl").write_text("".join(lines))
    result = collect.privatize(
        tmp_path / "a.jsonl",
        tmp_path / "r.parquet",
        column="x",
        mechanism=MECHANISM,
        missing="drop",
    )
    assert (result.reports, result.missing) == (200_001, 2)


@pytest.mark.parametrize("name", ["a.xlsx", "a.txt", "a.json", "a.avro"])
def test_other_formats_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(ParameterError, match=r"ends in one of parquet, csv"):
        privatized(tmp_path / name, tmp_path / "out.parquet")


@pytest.mark.parametrize(
    "name", ["r.arrow", "r.orc", "r.jsonl", "r.csv.zst", "s3://bucket/r.parquet"]
)
def test_reports_are_written_in_few_formats(tmp_path: Path, name: str) -> None:
    WRITERS["a.csv"](tmp_path / "a.csv")
    out = name if "://" in name else tmp_path / name
    with pytest.raises(ParameterError, match="out="):
        collect.privatize(tmp_path / "a.csv", out, column="x", mechanism=MECHANISM)


# Tables of others ------------------------------------------------------------------------------------------------


def test_a_list_of_files_is_a_source(tmp_path: Path) -> None:
    """The live files of a table in another format, as its library lists them; of folders the partitions count."""
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(TABLE.slice(500 * (day - 1), 500), tmp_path / f"day={day}" / "a.parquet")
    paths = [str(tmp_path / f"day={day}" / "a.parquet") for day in (2, 1)]
    result = collect.privatize(
        paths, tmp_path / "out.parquet", column="x", mechanism=MECHANISM, keep=["day", "name"]
    )
    found = pq.read_table(tmp_path / "out.parquet")
    assert result.reports == ROWS
    assert found["day"].to_pylist() == ["2"] * 500 + ["1"] * 500
    x = TABLE["x"].to_pylist()
    assert found["x_code"].to_pylist() == x[500:] + x[:500]
    for bad in (
        [],
        [paths[0], paths[0]],
        [str(tmp_path)],
        [paths[0], str(tmp_path / "no.parquet")],
    ):
        with pytest.raises(ParameterError, match="source"):
            find_files(bad)


@pytest.mark.parametrize(
    ("mark", "kind"),
    [(".hoodie/hoodie.properties", "Hudi"), ("metadata/version-hint.text", "Iceberg"),
     ("metadata/00000-a.metadata.json", "Iceberg"), ("_delta_log/0.json", "Delta")],
)  # fmt: skip
def test_tables_of_others_are_refused_by_name(tmp_path: Path, mark: str, kind: str) -> None:
    WRITERS["a.parquet"](tmp_path / "a.parquet")
    (tmp_path / mark).parent.mkdir()
    (tmp_path / mark).write_text("x")
    with pytest.raises(ParameterError, match=f"{kind} table"):
        find_files(tmp_path)


# Object stores ---------------------------------------------------------------------------------------------------


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A real S3 server on the loopback interface, with one bucket; `stop` and `start` as often as wanted."""
    server_module = pytest.importorskip("moto.server")
    for name, value in (
        ("AWS_ACCESS_KEY_ID", "test"), ("AWS_SECRET_ACCESS_KEY", "test"), ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_MAX_ATTEMPTS", "1"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    server = server_module.ThreadedMotoServer(port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    # Servers of one process share what they keep.
    urllib.request.urlopen(f"http://{host}:{port}/moto-api/reset", data=b"", timeout=20).close()
    files = fs.S3FileSystem(
        endpoint_override=f"{host}:{port}", scheme="http", allow_bucket_creation=True
    )
    files.create_dir("bucket")

    class Store:
        def put(self, path: Path, key: str) -> None:
            with files.open_output_stream(f"bucket/{key}", compression=None) as stream:
                stream.write(path.read_bytes())

        def stop(self) -> None:
            server.stop()

        def start(self) -> None:
            again = server_module.ThreadedMotoServer(ip_address=host, port=port, verbose=False)
            again.start()
            self.stop = again.stop

    found = Store()
    yield found
    found.stop()


@pytest.mark.parametrize(
    "name", ["a.parquet", "a.csv", "a.csv.gz", "a.csv.zst", "a.arrow", "a.orc", "a.jsonl"]
)
def test_a_store_is_read_as_a_disk_is(tmp_path: Path, store: Any, name: str) -> None:
    WRITERS[name](tmp_path / name)
    store.put(tmp_path / name, f"data/day=1/{name}")
    for source in (
        f"s3://bucket/data/day=1/{name}",
        "s3://bucket/data",
        f"s3://bucket/data/*/{name}",
    ):
        keep = ["name"] if source.endswith(name) and "*" not in source else ["name", "day"]
        collect.privatize(
            source,
            tmp_path / "out.parquet",
            column="x",
            mechanism=MECHANISM,
            keep=keep,
            overwrite=True,
        )
        found = pq.read_table(tmp_path / "out.parquet")
        assert found["x_code"].to_pylist() == TABLE["x"].to_pylist()
        assert "day" not in keep or set(found["day"].to_pylist()) == {"1"}


def test_what_a_store_lacks_is_named(tmp_path: Path, store: Any) -> None:
    with pytest.raises(ParameterError, match="names no files"):
        find_files("s3://bucket/nothing")
    with pytest.raises(ParameterError, match=r"is not an address|not installed"):
        find_files("nonsense://bucket/a.parquet")


def test_a_store_that_dies_midway_loses_and_doubles_nothing(tmp_path: Path, store: Any) -> None:
    for part in range(4):
        pq.write_table(TABLE.slice(250 * part, 250), tmp_path / "p.parquet")
        store.put(tmp_path / "p.parquet", f"data/p{part}.parquet")
    stopped = []

    def stop(rows: float, _: float) -> None:
        if rows >= 500 and not stopped:
            stopped.append(rows)
            store.stop()

    options: Any = {
        "column": "x",
        "mechanism": MECHANISM,
        "keep": ["name"],
        "threads": 1,
        "block_rows": 250,
    }
    with pytest.raises(OSError):  # noqa: PT011
        collect.privatize("s3://bucket/data", f"{tmp_path}/out/", progress=stop, **options)
    assert stopped
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("part-*")}
    assert 0 < len(before) < 4
    store.start()
    result = collect.privatize("s3://bucket/data", f"{tmp_path}/out/", resume=True, **options)
    assert (result.reports, result.resumed) == (ROWS, len(before))
    assert {name: (tmp_path / "out" / name).read_bytes() for name in before} == before
    found = pq.read_table(tmp_path / "out")
    assert found["x_code"].to_pylist() == TABLE["x"].to_pylist()
    assert found["name"].to_pylist() == TABLE["name"].to_pylist()
