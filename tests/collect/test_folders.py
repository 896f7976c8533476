"""Data sets: folders and globs in, folders of parts out, runs that end early and are continued."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mezzotint as mz
from mezzotint import collect, families
from mezzotint.collect import encoder
from mezzotint.collect.encoder import Encoder, Tally
from mezzotint.collect.folders import MANIFEST, STATE, PartWriter, part_name
from mezzotint.collect.listing import find_files
from mezzotint.collect.reports import Origin
from mezzotint.collect.source import Block, Source, blocks_of
from mezzotint.core.errors import FileFormatError, ParameterError
from reference.collect import block_codes, csv_rows

ONE = families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.4)
TWO = families.randomized_response(lower=0, upper=5, epsilon=0.7)
SIZES = (700, 1, 1300)


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """Three files under day=... folders, and things that readers of data sets pass over."""
    folder, rng, first = tmp_path / "in", np.random.default_rng(3), 0
    for i, size in enumerate(SIZES):
        inner = folder / f"day={i}"
        inner.mkdir(parents=True)
        columns = {
            "x": rng.uniform(-1.2, 1.2, size),
            "y": rng.uniform(0, 5, size),
            "id": np.arange(first, first + size),
        }
        pq.write_table(pa.table(columns), inner / "data.parquet", row_group_size=200)
        first += size
    (folder / "_SUCCESS").write_text("")
    (folder / "day=0" / ".data.crc").write_text("x")
    return folder


def column(folder: Path, name: str) -> np.ndarray:
    return np.concatenate(
        [pq.read_table(folder / f"day={i}" / "data.parquet")[name] for i in range(len(SIZES))]
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


# Sources -----------------------------------------------------------------------------------------------------


def test_a_folder_and_a_glob_name_the_same_files(days: Path) -> None:
    names = [file.name for file in find_files(days)]
    assert names == [f"day={i}/data.parquet" for i in range(3)]
    assert [file.name for file in find_files(f"{days}/**/*.parquet")] == names
    assert [file.partition for file in find_files(days)] == [(("day", str(i)),) for i in range(3)]
    assert [file.name for file in find_files(f"{days}/day=[02]/*.parquet")] == [names[0], names[2]]


def test_what_names_no_data_set_is_refused(days: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for source, words in (
        (tmp_path / "empty", "names no files"),
        (f"{days}/*.csv", "names no files"),
        (tmp_path / "none", "no such file or folder"),
    ):
        with pytest.raises(ParameterError, match=words):
            find_files(source)
    os.symlink(days / "day=0" / "data.parquet", days / "day=1" / "again.parquet")
    with pytest.raises(ParameterError, match="are one file; its rows would count twice"):
        find_files(days)
    (days / "day=1" / "again.parquet").unlink()
    (days / "more.csv").write_text("x\n1\n")
    with pytest.raises(ParameterError, match="files of several kinds"):
        find_files(days)
    (days / "more.csv").rename(days / "more.txt")
    with pytest.raises(ParameterError, match=r"more\.txt"):
        find_files(days)


def rows_of(block: Block) -> int:
    assert block.groups is not None
    metadata = pq.read_metadata(block.file.path)
    return sum(metadata.row_group(group).num_rows for group in range(*block.groups))


@pytest.mark.parametrize("block_rows", [1, 300, 400, 10**9])
def test_blocks_hold_each_row_group_once(days: Path, block_rows: int) -> None:
    blocks = blocks_of(find_files(days), block_rows=block_rows)
    assert [block.index for block in blocks] == list(range(len(blocks)))
    assert sum(map(rows_of, blocks)) == sum(SIZES)
    for file in find_files(days):
        mine = [block for block in blocks if block.file == file]
        count = pq.ParquetFile(file.path).metadata.num_row_groups
        assert [group for block in mine for group in range(*(block.groups or ()))] == list(
            range(count)
        )
        assert all(rows_of(block) >= block_rows for block in mine[:-1])
        ends = np.cumsum([0, *map(rows_of, mine)]).tolist()
        assert [block.offset for block in mine] == ends[:-1]


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_many_files_into_one(days: Path, tmp_path: Path, ending: str) -> None:
    out = tmp_path / f"out{ending}"
    result = collect.privatize(days, out, column="x", mechanism=ONE, keep=["day", "id"], rng=3)
    # The rows of all files in order, from one stream.
    expected = ONE.privatize(column(days, "x"), np.random.default_rng(3))
    rows = pq.read_table(out).to_pylist() if ending == ".parquet" else csv_rows(out)
    assert [int(row["x_code"]) for row in rows] == expected.tolist()
    assert [int(row["id"]) for row in rows] == list(range(sum(SIZES)))
    assert [row["day"] for row in rows] == [
        str(i) for i, size in enumerate(SIZES) for _ in range(size)
    ]
    assert result.reports == sum(SIZES)
    assert collect.read_counts(out).counts.tolist() == np.bincount(expected, minlength=4).tolist()


def test_messages_name_file_and_row(days: Path, tmp_path: Path) -> None:
    path = days / "day=2" / "data.parquet"
    x = pq.read_table(path)["x"].to_numpy().copy()
    x[450] = np.nan
    pq.write_table(pa.table({"x": x}), path, row_group_size=200)
    for out in (tmp_path / "o.parquet", tmp_path / "o"):
        with pytest.raises(ParameterError, match=r"data row 451 of day=2/data.parquet is missing"):
            collect.privatize(days, out, column="x", mechanism=ONE, block_rows=100)
    assert not (tmp_path / "o.parquet").exists()


def test_files_that_do_not_fit_together_are_refused(days: Path, tmp_path: Path) -> None:
    path = days / "day=1" / "data.parquet"
    pq.write_table(pa.table({"x": [0.5], "id": ["one"]}), path)
    with pytest.raises(
        FileFormatError, match=r"day=1.*column id holds string, in files before it int64"
    ):
        collect.privatize(days, tmp_path / "o.parquet", column="x", mechanism=ONE, keep=["id"])
    pq.write_table(pa.table({"x": [0.5], "day": [1]}), path)
    with pytest.raises(
        ParameterError, match=r"keep=day: is a column of day=1/data.parquet and also"
    ):
        collect.privatize(days, tmp_path / "o.parquet", column="x", mechanism=ONE, keep=["day"])


# Folders of parts --------------------------------------------------------------------------------------------


def test_parts_are_drawn_as_defined_and_only_codes_are_left(days: Path, tmp_path: Path) -> None:
    out, tables = tmp_path / "out", {"x": ONE, "y": TWO}
    result = collect.privatize_columns(days, out, mechanisms=tables, rng=11, block_rows=400)
    blocks = blocks_of(find_files(days), block_rows=400)
    assert result.blocks == len(blocks) == 7
    expected = {name: [] for name in tables}
    for block in blocks:
        rows = pq.ParquetFile(block.file.path).read_row_groups(list(range(*(block.groups or ()))))
        part = pq.read_table(out / part_name(block.index))
        for name, key in zip(
            tables, Encoder.of(tables, collect.Settings(rng=11)).keys, strict=True
        ):
            codes = block_codes(tables[name], rows[name].to_pylist(), key=key, index=block.index)
            assert part[f"{name}_code"].to_pylist() == codes
            expected[name] += codes
    for name, mechanism in tables.items():
        counts = collect.read_counts(out, column=f"{name}_code")
        assert counts.mechanism == mechanism
        assert (
            counts.counts.tolist()
            == np.bincount(expected[name], minlength=mechanism.levels.size).tolist()
        )
    assert sorted(contents(out)) == [MANIFEST, *(part_name(block.index) for block in blocks)]
    manifest = json.loads((out / MANIFEST).read_text())
    assert (manifest["reports"], manifest["parts"], manifest["seeded"]) == (
        sum(SIZES),
        len(blocks),
        True,
    )
    assert "claim" not in manifest  # of a seeded draw there is none
    assert "data.parquet" not in (out / MANIFEST).read_text()


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_do_not_change_a_seeded_run(days: Path, tmp_path: Path, threads: int) -> None:
    for out, used in (("one", 1), ("other", threads)):
        collect.privatize(
            days, tmp_path / out, column="x", mechanism=ONE, rng=5, block_rows=200, threads=used
        )
    assert contents(tmp_path / "one") == contents(tmp_path / "other")


def test_without_a_seed_no_two_parts_share_a_key(
    days: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    keys: list[bytes] = []
    real = encoder.keystream_words

    def spy(key: bytes, *rows: Any) -> Any:
        keys.append(key)
        return real(key, *rows)

    monkeypatch.setattr(encoder, "keystream_words", spy)
    tables = {"x": ONE, "y": TWO}
    collect.privatize_columns(days, tmp_path / "a", mechanisms=tables, block_rows=1300, threads=1)
    collect.privatize_columns(days, tmp_path / "b", mechanisms=tables, block_rows=1300, threads=1)
    assert len(keys) == len(set(keys)) == 2 * 2 * 3  # runs, columns, parts
    assert all(len(key) == 32 for key in keys)


def test_csv_files_are_parts_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for i in range(3):
        (tmp_path / "in" / f"{i}.csv").write_text("x,w\n" + f"0.{i},a\n" * (i + 1))
    (tmp_path / "in" / "9.csv").write_text("x,w\n")
    result = collect.privatize(
        tmp_path / "in", tmp_path / "out", column="x", mechanism=ONE, keep=["w"]
    )
    assert (result.reports, result.blocks) == (6, 4)
    assert [pq.read_metadata(tmp_path / "out" / part_name(i)).num_rows for i in range(4)] == [
        1,
        2,
        3,
        0,
    ]
    assert collect.read_counts(tmp_path / "out").n == 6


def test_folders_that_cannot_be_written_are_refused(days: Path, tmp_path: Path) -> None:
    def attempt(out: Path, words: str, **options: Any) -> None:
        with pytest.raises(ParameterError, match=words):
            collect.privatize(days, out, column="x", mechanism=ONE, **options)

    collect.privatize(days, tmp_path / "done", column="x", mechanism=ONE)
    attempt(tmp_path / "done", "holds a finished run")
    attempt(tmp_path / "new", "never overwritten", overwrite=True)
    attempt(tmp_path / "no" / "new", "does not exist")
    attempt(tmp_path, "folder with other files")
    attempt(days, "lies inside the source")
    attempt(days / "day=0" / "out.parquet", "lies inside the source")
    attempt(days / "reports", "lies inside the source")
    attempt(tmp_path / "o.csv", "only an output folder .* can be resumed", resume=True)
    attempt(tmp_path / "o.csv", "engine=ray: writes a folder", engine="ray")
    attempt(tmp_path / "new", "engine=spark", engine="spark")
    attempt(tmp_path / "new", "address=there", address="there")
    attempt(tmp_path / "new", "threads=0", threads=0)
    attempt(tmp_path / "new", "block_rows=0", block_rows=0)
    (tmp_path / "file").write_text("")
    attempt(tmp_path / "file", "is a file")
    with pytest.raises(ParameterError, match="standard input cannot be read again"):
        collect.privatize("-", tmp_path / "new", column="x", mechanism=ONE)
    assert not (tmp_path / "new").exists()


def test_a_data_set_without_values_leaves_nothing(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": pa.array([None, None], pa.float64())}), tmp_path / "in.parquet")
    with pytest.raises(ParameterError, match="all 2 values are missing"):
        collect.privatize(
            tmp_path / "in.parquet", tmp_path / "out", column="x", mechanism=ONE, missing="drop"
        )
    pq.write_table(pa.table({"x": pa.array([], pa.float64())}), tmp_path / "in.parquet")
    with pytest.raises(ParameterError, match="it has no rows"):
        collect.privatize(tmp_path / "in.parquet", tmp_path / "out", column="x", mechanism=ONE)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_lost_a_part_is_refused(days: Path, tmp_path: Path) -> None:
    collect.privatize(days, tmp_path / "out", column="x", mechanism=ONE, block_rows=400)
    (tmp_path / "out" / part_name(1)).unlink()
    with pytest.raises(FileFormatError, match="its manifest says 2001"):
        collect.read_counts(tmp_path / "out")
    # Files that somebody put together are a data set too.
    (tmp_path / "out" / MANIFEST).unlink()
    assert 0 < collect.read_counts(tmp_path / "out").n < sum(SIZES)


# Interruptions -----------------------------------------------------------------------------------------------


class Stop(Exception):
    """An interruption."""


def stop_after(monkeypatch: pytest.MonkeyPatch, parts: int) -> None:
    made, real = [0], PartWriter.write

    def write(self: PartWriter, block: Any, **options: Any) -> Tally | None:
        if made[0] == parts:
            raise Stop
        made[0] += 1
        return real(self, block, **options)

    monkeypatch.setattr(PartWriter, "write", write)


def test_a_run_that_drew_nothing_is_no_run(
    days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "ledger.jsonl"

    def go(**options: Any) -> collect.PrivatizeResult:
        return collect.privatize(days, f"{tmp_path}/out/", column="x", ledger=ledger, **options)

    with monkeypatch.context() as patched:
        stop_after(patched, 0)
        with pytest.raises(Stop):
            go(mechanism=ONE, threads=1)
    assert not (tmp_path / "out").exists()
    # What a kill leaves before the first part: another command may begin anew.
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / STATE).write_text('{"format": "mezzotint-run", "ver')
    result = go(mechanism=TWO)
    assert result.reports == sum(SIZES)
    assert len(mz.privacy.Ledger(ledger).charges) == 1


@pytest.mark.parametrize("parts", [1, 5])
def test_a_continued_run_equals_an_uninterrupted_one(
    days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    def go(out: str, **options: Any) -> collect.PrivatizeResult:
        return collect.privatize(
            days, tmp_path / out, column="x", mechanism=ONE, block_rows=400, rng=7, **options
        )

    whole = go("whole")
    with monkeypatch.context() as patched:
        stop_after(patched, parts)
        with pytest.raises(Stop):
            go("cut", threads=1)
    with pytest.raises(ParameterError, match="holds an unfinished run"):
        collect.read_counts(tmp_path / "cut")
    with pytest.raises(
        ParameterError, match=r"unfinished run; continue it with resume=True \(--resume\)"
    ):
        go("cut")
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "cut").glob("part-*")}
    assert len(kept) == parts
    (tmp_path / "cut" / ".part-000004.parquet.abc.partial").write_text("what a kill leaves")
    result = go("cut", resume=True)
    assert contents(tmp_path / "cut") == contents(tmp_path / "whole")
    assert {name: (tmp_path / "cut" / name).stat().st_mtime_ns for name in kept} == kept
    assert (result.resumed, result.blocks, result.epsilon) == (parts, whole.blocks, whole.epsilon)
    assert (result.reports, result.missing) == (whole.reports, 0)


def test_a_run_is_not_continued_as_another(
    days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go(resume: bool = True, **changes: Any) -> None:
        options = {"mechanisms": {"x": ONE}, "keep": ["id"], "block_rows": 400, **changes}
        collect.privatize_columns(days, tmp_path / "out", resume=resume, **options)

    with monkeypatch.context() as patched:
        stop_after(patched, 2)
        with pytest.raises(Stop):
            go(resume=False)
    for name, changes in {
        "mechanisms": {"mechanisms": {"x": TWO}},
        "keep": {"keep": []},
        "rng": {"rng": 3},
        "memo": {"memo": collect.Memo(users="id", key=bytes(32))},
    }.items():
        with pytest.raises(
            ParameterError, match=f"{name}=what was given: is not what the run began with"
        ):
            go(**changes)
    path = days / "day=1" / "data.parquet"
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    with pytest.raises(ParameterError, match="source=the files: are not those of that run"):
        go()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with (tmp_path / "out" / STATE).open("rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(ParameterError, match="is being written by another run"):
            go()
    record = (tmp_path / "out" / STATE).read_text()
    for edited, words in (
        (record[:50], "is damaged"),
        ("[]", "is not the record of a run"),
        (record.replace('"version": 1', '"version": 2'), "is not the record of a run"),
        (record.replace('"block_rows": 400', '"block_rows": "400"'), "is damaged"),
    ):
        assert edited != record
        (tmp_path / "out" / STATE).write_text(edited)
        with pytest.raises(FileFormatError, match=words):
            go()
    (tmp_path / "out" / STATE).write_text(record)
    go()
    assert collect.read_counts(tmp_path / "out").n == sum(SIZES)


@pytest.mark.parametrize("people", [{}, {"charge_by": "id"}], ids=["everybody", "people"])
def test_a_charged_run_without_a_part_goes_on_as_it_began_alone(
    days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, people: dict[str, Any]
) -> None:
    """Another one would be charged anew, and the first charge lost; also of rewritten files."""
    ledger = tmp_path / "ledger.jsonl"

    def go(**changes: Any) -> collect.PrivatizeResult:
        options = {"mechanisms": {"x": ONE}, "ledger": ledger, "threads": 1, **people, **changes}
        return collect.privatize_columns(days, f"{tmp_path}/out/", **options)

    def stop(*_: object) -> None:
        raise Stop

    with monkeypatch.context() as patched:
        patched.setattr("mezzotint.collect.sink.Draft.publish", stop)
        with pytest.raises(Stop):
            go()
    assert not list((tmp_path / "out").glob("part-*"))
    before = ledger.read_bytes()
    for changes, words in (
        ({"mechanisms": {"x": TWO}}, "mechanisms=what was given: is not what the run began with:"),
        ({"keep": ["id"]}, "keep=what was given"),
        ({"delimiter": ";", "rng": None, "keep": ["id"]}, "delimiter=.*with, nor is keep"),
        ({"charge_by": "id", "at_most": 1}, "at_most=what was given"),
    ):
        for resume in (False, True):
            with pytest.raises(ParameterError, match=words):
                go(resume=resume, **changes)
    path = days / "day=1" / "data.parquet"
    status, data = path.stat(), path.read_bytes()
    table = pq.read_table(path)
    path.write_bytes(data[:4] + bytes([data[4] ^ 1]) + data[5:])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(ParameterError, match="hold other rows than when the run was charged"):
        go(resume=True)
    assert ledger.read_bytes() == before
    path.write_bytes(data)
    assert pq.read_table(path).equals(table)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    result = go(budget=ONE.epsilon)  # which it spent, and is not asked for again
    assert result.charged is not None
    assert (result.charged.attempt, result.reports) == (1, sum(SIZES))
    assert ledger.read_bytes() == before


def test_of_two_attempts_at_a_part_one_counts(
    days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a retry amounts to while the first attempt is still alive."""
    (tmp_path / "out").mkdir()
    maker, files = Encoder.of({"x": ONE}, collect.Settings()), find_files(days)
    rows = Source(files=tuple(files), wanted=maker.wanted)
    writer = PartWriter(encoder=maker, source=rows, folder=tmp_path / "out", origin=Origin(run="r"))
    block = blocks_of(files)[0]
    real, nested = Encoder.encode, []

    def encode(self: Any, *arguments: Any, **options: Any) -> Any:
        if not nested:
            nested.append(None)
            nested[0] = writer.write(block)  # the other attempt finishes while this one is half-way
        return real(self, *arguments, **options)

    monkeypatch.setattr(Encoder, "encode", encode)
    assert writer.write(block) is None
    assert nested[0].reports == SIZES[0]
    first = contents(tmp_path / "out")
    assert list(first) == [part_name(0)]
    assert writer.write(block) is None
    assert contents(tmp_path / "out") == first


def test_links_are_not_needed(days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr("mezzotint.collect.sink.unnamed_draft", lambda _: None)
    assert collect.privatize(days, tmp_path / "out", column="x", mechanism=ONE).reports == sum(
        SIZES
    )
    assert collect.read_counts(tmp_path / "out").n == sum(SIZES)
