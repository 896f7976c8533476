"""Columns in, reports out: formats, missing values, clipping, refusals, constant memory."""

from __future__ import annotations

import decimal
import gzip
import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mezzotint import collect, datasets, families
from mezzotint.collect.source import open_columns
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.values import numbers
from reference.collect import csv_rows

N = 5000
VALUES = np.random.default_rng(7).uniform(-1.2, 1.2, N)


@pytest.fixture(scope="module")
def mechanism() -> Mechanism:
    return families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.4)


def write(path: Path, columns: dict[str, object]) -> Path:
    table = pa.table(columns)
    if path.name.endswith(".parquet"):
        pq.write_table(table, path, row_group_size=1000)
        return path
    lines = [",".join(table.column_names)]
    lines += [
        ",".join("" if v is None else str(v) for v in row.values()) for row in table.to_pylist()
    ]
    text = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(text) if path.name.endswith(".gz") else text)
    return path


def codes_of(path: Path, field: str = "x_code") -> list[int]:
    if path.name.endswith(".parquet"):
        return pq.read_table(path)[field].to_pylist()
    return [int(row[field]) for row in csv_rows(path)]


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".csv.gz"])
@pytest.mark.parametrize("result", [".parquet", ".csv", ".csv.gz"])
def test_every_format_gives_the_same_codes_in_order(
    tmp_path: Path, mechanism: Mechanism, ending: str, result: str
) -> None:
    source = write(tmp_path / f"in{ending}", {"other": ["a"] * N, "x": VALUES})
    out = tmp_path / f"out{result}"
    summary = collect.privatize(source, out, column="x", mechanism=mechanism, rng=3)
    # The same stream of words over one array: batches may not restart it.
    expected = mechanism.privatize(VALUES, np.random.default_rng(3))
    assert codes_of(out) == expected.tolist()
    assert summary.reports == N
    assert (summary.columns[0].below, summary.columns[0].above) == (
        int((VALUES < -1).sum()),
        int((VALUES > 1).sum()),
    )
    counts = collect.read_counts(out)
    assert counts.mechanism == mechanism
    assert counts.counts.tolist() == np.bincount(expected, minlength=4).tolist()


def test_batches_do_not_repeat_the_random_stream(
    tmp_path: Path, mechanism: Mechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mezzotint.collect.columns.BATCH_ROWS", 50)
    source = write(tmp_path / "in.parquet", {"x": np.zeros(2000)})
    collect.privatize(source, tmp_path / "out.parquet", column="x", mechanism=mechanism, rng=3)
    codes = np.array(codes_of(tmp_path / "out.parquet")).reshape(-1, 50)
    assert len({tuple(row) for row in codes.tolist()}) == len(codes)


def test_only_codes_reach_the_output_unless_asked(tmp_path: Path, mechanism: Mechanism) -> None:
    source = write(tmp_path / "in.parquet", {"id": list(range(N)), "x": VALUES, "secret": VALUES})
    collect.privatize(source, tmp_path / "bare.parquet", column="x", mechanism=mechanism)
    assert pq.read_schema(tmp_path / "bare.parquet").names == ["x_code"]
    collect.privatize(
        source, tmp_path / "kept.parquet", column="x", mechanism=mechanism, keep=["id"]
    )
    kept = pq.read_table(tmp_path / "kept.parquet")
    assert kept.schema.names == ["x_code", "id"]
    assert kept["id"].to_pylist() == list(range(N))


def test_kept_text_of_a_csv_passes_unchanged(tmp_path: Path, mechanism: Mechanism) -> None:
    path = tmp_path / "in.csv"
    path.write_text('x,note\n0.5,"a, ""b""\nc"\n0.25,NA\n0,\n-1,007\n', encoding="utf-8")
    collect.privatize(path, tmp_path / "out.csv", column="x", mechanism=mechanism, keep=["note"])
    assert [row["note"] for row in csv_rows(tmp_path / "out.csv")] == ['a, "b"\nc', "NA", "", "007"]


@pytest.mark.parametrize("ending", [".parquet", ".csv", ".csv.gz"])
def test_missing_values_raise_naming_the_row_or_are_dropped_on_request(
    tmp_path: Path, mechanism: Mechanism, ending: str
) -> None:
    values = [0.1, None, 0.3, float("nan"), 0.5]
    source = write(
        tmp_path / f"in{ending}", {"id": [1, 2, 3, 4, 5], "x": pa.array(values, from_pandas=False)}
    )
    with pytest.raises(ParameterError, match=r"column=x: data row 2 is missing"):
        collect.privatize(source, tmp_path / "out.csv", column="x", mechanism=mechanism)
    assert not (tmp_path / "out.csv").exists()
    summary = collect.privatize(
        source, tmp_path / "out.csv", column="x", mechanism=mechanism, missing="drop", keep=["id"]
    )
    assert (summary.reports, summary.missing) == (3, 2)
    assert [row["id"] for row in csv_rows(tmp_path / "out.csv")] == ["1", "3", "5"]


def test_an_empty_line_of_a_one_column_csv_is_a_missing_value(
    tmp_path: Path, mechanism: Mechanism
) -> None:
    (tmp_path / "in.csv").write_text("x\n1\n\n0\n", encoding="utf-8")
    with pytest.raises(ParameterError, match="data row 2 is missing"):
        collect.privatize(
            tmp_path / "in.csv", tmp_path / "out.csv", column="x", mechanism=mechanism
        )


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1, 0, -1, 5], pa.int8()),
        pa.array([1, 0, 0, 5], pa.uint64()),
        pa.array([1.0, 0.0, -1.0, 5.0], pa.float32()),
        pa.array([1.0, 0.0, -1.0, 5.0], pa.float16()),
        pa.array(
            [
                decimal.Decimal("1.00"),
                decimal.Decimal("0.10"),
                decimal.Decimal("-1.00"),
                decimal.Decimal("5.00"),
            ]
        ),
        pa.array([1.0, 0.0, -1.0, 5.0]).dictionary_encode(),
    ],
    ids=lambda array: str(array.type),
)
def test_numbers_of_every_kind_are_read(
    tmp_path: Path, mechanism: Mechanism, column: pa.Array
) -> None:
    pq.write_table(pa.table({"x": column}), tmp_path / "in.parquet")
    summary = collect.privatize(
        tmp_path / "in.parquet", tmp_path / "out.parquet", column="x", mechanism=mechanism
    )
    assert (summary.reports, summary.columns[0].above) == (4, 1)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["1", "2"]),
        pa.array([True, False]),
        pa.array([0, 1], pa.date32()),
        pa.array([0, 1], pa.timestamp("s")),
        pa.array([[1.0], [2.0]]),
    ],
    ids=lambda array: str(array.type),
)
def test_what_is_no_number_is_refused(
    tmp_path: Path, mechanism: Mechanism, column: pa.Array
) -> None:
    pq.write_table(pa.table({"x": column}), tmp_path / "in.parquet")
    with pytest.raises(ParameterError, match=r"column=x: holds .*, not numbers"):
        collect.privatize(
            tmp_path / "in.parquet", tmp_path / "out.parquet", column="x", mechanism=mechanism
        )


@pytest.mark.parametrize("cell", ["abc", "true", "2013-01-01", "0x10"])
def test_text_in_a_csv_is_refused_with_its_row(
    tmp_path: Path, mechanism: Mechanism, cell: str
) -> None:
    (tmp_path / "in.csv").write_text(f"x,y\n1,1\n2,1\n{cell},1\n", encoding="utf-8")
    with pytest.raises(
        ParameterError, match="column=x: data row 3 holds text, not a number; other columns: y"
    ):
        collect.privatize(
            tmp_path / "in.csv", tmp_path / "out.csv", column="x", mechanism=mechanism
        )


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_empty_and_absent_columns_are_refused(
    tmp_path: Path, mechanism: Mechanism, ending: str
) -> None:
    empty = write(
        tmp_path / f"in{ending}", {"x": pa.array([], pa.float64()), "y": pa.array([], pa.float64())}
    )
    with pytest.raises(ParameterError, match="column=x: is empty: it has no rows"):
        collect.privatize(empty, tmp_path / "out.csv", column="x", mechanism=mechanism)
    with pytest.raises(ParameterError, match=r"column=z: no such column; .* has: x, y"):
        collect.privatize(empty, tmp_path / "out.csv", column="z", mechanism=mechanism)
    blank = write(
        tmp_path / f"blank{ending}", {"x": pa.array([None, None], pa.float64()), "y": [1.0, 2.0]}
    )
    with pytest.raises(ParameterError, match="all 2 values are missing"):
        collect.privatize(
            blank, tmp_path / "out.csv", column="x", mechanism=mechanism, missing="drop"
        )
    assert not (tmp_path / "out.csv").exists()


def test_a_column_that_stands_twice_is_refused_but_others_may(
    tmp_path: Path, mechanism: Mechanism
) -> None:
    (tmp_path / "in.csv").write_text("x,y,y\n1,a,b\n", encoding="utf-8")
    with pytest.raises(ParameterError, match="column=y: stands more than once"):
        collect.privatize(
            tmp_path / "in.csv", tmp_path / "out.csv", column="y", mechanism=mechanism
        )
    assert (
        collect.privatize(
            tmp_path / "in.csv", tmp_path / "out.csv", column="x", mechanism=mechanism
        ).reports
        == 1
    )


def test_options_that_would_undo_the_privacy_or_make_no_sense_are_refused(
    tmp_path: Path, mechanism: Mechanism
) -> None:
    source = write(tmp_path / "in.csv", {"x": VALUES, "x_code": VALUES})
    out = tmp_path / "out.csv"

    def attempt(**changes: object) -> None:
        collect.privatize(
            **{"source": source, "out": out, "column": "x", "mechanism": mechanism, **changes}
        )

    for changes, words in (
        ({"keep": ["x"]}, "keep=x: would reveal x"),
        ({"keep": ["x_code"]}, "keep=x_code: the reports take this name"),
        ({"keep": ["none"]}, "keep=none: no such column"),
        ({"missing": "fill"}, "missing=fill"),
        ({"on_out_of_range": "wrap"}, "on_out_of_range=wrap"),
        ({"on_out_of_range": "error"}, r"data row \d+ lies outside \[-1, 1\]"),
        ({"out": source}, "is the source itself"),
        ({"out": tmp_path / "out.txt"}, "out=.*out.txt: name a .parquet"),
        ({"source": tmp_path / "none.csv"}, "source=.*none.csv: no such file"),
        ({"out": tmp_path / "no" / "out.csv"}, "out=.*does not exist"),
    ):
        with pytest.raises(ParameterError, match=words):
            attempt(**changes)
    assert not out.exists()


def test_an_existing_output_is_refused_unless_overwriting(
    tmp_path: Path, mechanism: Mechanism
) -> None:
    source, out = write(tmp_path / "in.csv", {"x": VALUES}), tmp_path / "out.parquet"
    out.write_text("old")
    with pytest.raises(ParameterError, match=r"out=.*exists already"):
        collect.privatize(source, out, column="x", mechanism=mechanism)
    assert out.read_text() == "old"
    collect.privatize(source, out, column="x", mechanism=mechanism, overwrite=True)
    assert len(codes_of(out)) == N


def test_out_of_range_names_the_row_behind_missing_ones(
    tmp_path: Path, mechanism: Mechanism
) -> None:
    source = write(tmp_path / "in.parquet", {"x": pa.array([None, 0.5, None, 7.0])})
    with pytest.raises(ParameterError, match="data row 4 lies outside"):
        collect.privatize(
            source,
            tmp_path / "o.csv",
            column="x",
            mechanism=mechanism,
            missing="drop",
            on_out_of_range="error",
        )


def test_reports_take_few_bits_on_disk(tmp_path: Path, mechanism: Mechanism) -> None:
    source = write(tmp_path / "in.parquet", {"x": np.zeros(200_000)})
    collect.privatize(source, tmp_path / "out.parquet", column="x", mechanism=mechanism)
    assert (tmp_path / "out.parquet").stat().st_size * 8 / 200_000 < 1.1 * mechanism.bits


def test_floats_are_read_without_a_copy() -> None:
    array = pa.array(np.arange(10.0))
    values, present = numbers(array)
    assert present is None
    assert values.__array_interface__["data"][0] == array.buffers()[1].address


def test_progress_ends_at_one(
    tmp_path: Path, mechanism: Mechanism, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mezzotint.collect.columns.BATCH_ROWS", 1000)
    for ending in (".parquet", ".csv", ".csv.gz"):
        source, told = write(tmp_path / f"in{ending}", {"x": VALUES}), []
        collect.privatize(
            source,
            tmp_path / f"out{ending}",
            column="x",
            mechanism=mechanism,
            progress=lambda rows, total, told=told: told.append((rows / total, rows)),
        )
        assert told[-1] == (1.0, N)
        assert [done for done, _ in told] == sorted(done for done, _ in told)


def test_standard_streams_carry_csv(
    tmp_path: Path,
    mechanism: Mechanism,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    class Stream:
        buffer = io.BytesIO(b"x\n0.5\n-0.5\n")

    monkeypatch.setattr(sys, "stdin", Stream)
    collect.privatize("-", "-", column="x", mechanism=mechanism)
    written = capfdbinary.readouterr().out
    assert written.startswith(b"# mezzotint: {")
    Stream.buffer = io.BytesIO(written)
    assert collect.read_counts("-").n == 2


@pytest.mark.parametrize("cut", [0, 10, 60])
def test_truncated_and_foreign_files_are_named(
    tmp_path: Path, mechanism: Mechanism, cut: int
) -> None:
    for ending in (".parquet", ".csv.gz"):
        whole = write(tmp_path / f"in{ending}", {"x": VALUES})
        data = whole.read_bytes()
        whole.write_bytes(data[: len(data) * cut // 100])
        with pytest.raises(FileFormatError, match=r"in.*(damaged or cut|empty)"):
            collect.privatize(whole, tmp_path / "out.csv", column="x", mechanism=mechanism)
        assert not (tmp_path / "out.csv").exists()


def test_ragged_csv_is_refused(tmp_path: Path, mechanism: Mechanism) -> None:
    (tmp_path / "in.csv").write_text("x,y\n1,2\n3\n", encoding="utf-8")
    with pytest.raises(FileFormatError, match=r"data row 2 .* another number of fields"):
        collect.privatize(
            tmp_path / "in.csv", tmp_path / "out.csv", column="x", mechanism=mechanism
        )


def test_byte_order_mark_quoted_names_and_crlf(tmp_path: Path, mechanism: Mechanism) -> None:
    (tmp_path / "in.csv").write_bytes('﻿"a ""x"", b",y\r\n0.5,1\r\n-0.5,2\r\n'.encode())
    summary = collect.privatize(
        tmp_path / "in.csv", tmp_path / "out.parquet", column='a "x", b', mechanism=mechanism
    )
    assert summary.reports == 2


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells the peak of one process")
def test_memory_stays_constant(tmp_path: Path, mechanism: Mechanism) -> None:
    """Ten times the rows may not take more than a little more memory: measured in fresh processes.

    Not by ru_maxrss: it begins with the peak of the process that started this one, beside which rows are nothing.
    """
    peaks = []
    for rows in (1_000_000, 10_000_000):
        path = tmp_path / f"{rows}.parquet"
        with pq.ParquetWriter(path, pa.schema({"x": pa.float64()})) as writer:
            block = pa.table({"x": np.random.default_rng(1).uniform(-1, 1, 1_000_000)})
            for _ in range(rows // 1_000_000):
                writer.write_table(block)
        code = (
            "from pathlib import Path; from mezzotint import collect, families;"
            "m = families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.4);"
            f"collect.privatize({str(path)!r}, {str(path) + '.out.parquet'!r}, column='x', mechanism=m);"
            "print(Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0])"
        )
        ran = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        )
        peaks.append(int(ran.stdout))
    assert peaks[1] < peaks[0] * 1.25


def test_the_flights_are_as_stated() -> None:
    with datasets.flights() as path:
        values = collect.read_values(path, column=datasets.AIR_TIME)
        with open_columns(path) as reader:
            rows = sum(batch.num_rows for batch in reader.batches({datasets.AIR_TIME: "number"}))
    assert (rows, values.size) == (336_776, 336_776 - 9_430)
    assert (values.min(), values.max()) == (20, 695)


def test_the_flights_are_those_of_the_source(shared_data: Path) -> None:
    rows = csv_rows(shared_data / "nycflights13_2013.csv.gz")
    with datasets.flights() as path:
        ours = pq.read_table(path)["air_time"].to_pylist()
    assert ours == [None if row["air_time"] == "NA" else int(row["air_time"]) for row in rows]
