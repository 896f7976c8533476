"""Runs that are refused: nothing on disk, nothing charged, no foreign exception, and the same place works afterwards."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import mezzotint as mz
from mezzotint import collect, families
from mezzotint.cli import run
from mezzotint.core.errors import BudgetError, FileFormatError, MezzotintError, ParameterError

TABLE = families.randomized_response(lower=0, upper=99, epsilon=1.0)
LETTERS = families.categorical(categories=["a", "b"], epsilon=1.0)
ROWS = 600

GOOD = pa.table({"x": np.arange(ROWS) % 100, "k": ["a", "b"] * (ROWS // 2)})


def parquet(path: Path, table: pa.Table = GOOD) -> None:
    pq.write_table(table, path, row_group_size=200, write_page_checksum=True, compression="none")


def flipped(path: Path) -> None:
    """A byte of the first page is flipped; its checksum is not."""
    parquet(path)
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(bytes(data))


def text(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content, encoding="utf-8")


def columns(**extra: Any) -> Callable[[Path], object]:
    return lambda path: parquet(path, GOOD.append_column("z", pa.array(**extra)))


LISTS: dict[str, Any] = {"obj": [[1]] * ROWS}
CASES: dict[str, tuple[str, Callable[[Path], object], dict[str, Any]]] = {
    "no such column": ("a.parquet", parquet, {"column": "y"}),
    "no such kept column": ("a.parquet", parquet, {"keep": ["y"]}),
    "text for numbers": ("a.parquet", parquet, {"column": "k"}),
    "a bad cell in the last row": ("a.csv", text("x,k\n" + "1,a\n" * 99_999 + "?,a\n"), {}),
    "an open quote": ("a.csv", text('x,k\n1,"a\n' + "2,b\n" * 500), {}),
    "a ragged row": ("a.csv", text("x,k\n" + "1,a\n" * 500 + "1\n"), {}),
    "a list kept in CSV": ("a.parquet", columns(**LISTS), {"keep": ["z"], "out": "r.csv"}),
    "bytes kept in CSV": (
        "a.parquet", columns(obj=[b"\xff"] * ROWS), {"keep": ["z"], "out": "r.csv"}),
    "an interval kept in Parquet": (
        "a.arrow",
        lambda path: feather.write_feather(
            GOOD.append_column("z", pa.array([(1, 2, 3)] * ROWS, pa.month_day_nano_interval())), path),
        {"keep": ["z"]}),
    "no value": ("a.csv", text("x,k\n" + "NA,a\n" * 9), {"missing": "drop"}),
    "no row": ("a.csv", text("x,k\n"), {}),
    "a value that is not listed": ("a.csv", text("x,k\n1,a\n2,c\n"), {"column": "k", "mechanism": LETTERS}),
    "beyond the budget": ("a.parquet", parquet, {"budget": 0.5}),
    "a flipped bit": ("a.parquet", flipped, {}),
    "a cut file": ("a.parquet", lambda path: path.write_bytes(b"PAR1" + bytes(50)), {}),
    "a cut stripe": (
        "a.orc", lambda path: (orc.write_table(GOOD, path), path.write_bytes(path.read_bytes()[:99])), {}),
    "another kind under the name": ("a.arrow", lambda path: path.write_bytes(b"ARROW1\0\0" + bytes(99)), {}),
    "text that is not JSON": ("a.jsonl", text('{"x": 1}\n{"x": 1\n'), {}),
    "a key that occurs twice": ("a.jsonl", text('{"x": 1, "x": 2}\n'), {}),
    "Latin-1": ("a.csv", lambda path: path.write_bytes("x,k\n1,ä\n".encode("latin-1")), {"keep": ["k"]}),
    "an unknown zone": ("a.csv", text("x,k\n1,2026-10-05\n"), {"column": "k:hour@Mars/Base"}),
    "a byte order mark within": ("a.csv", text("x,k\n1,a\n\ufeffx,k\n2,a\n"), {}),
    "a quote after a backslash": ("a.csv", text('x,k\n1,"a\\"b"\n'), {}),
}  # fmt: skip


@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
@pytest.mark.parametrize("case", CASES)
def test_a_refused_run_costs_nothing(tmp_path: Path, case: str, folder: bool) -> None:
    name, write, changes = CASES[case]
    options = {"column": "x", "mechanism": TABLE, "budget": 10.0, "out": "r.parquet", **changes}
    out = tmp_path / options.pop("out")
    if folder:
        if out.suffix == ".csv":
            pytest.skip("folders hold Parquet")
        out = tmp_path / "reports"
    write(tmp_path / name)
    ledger = tmp_path / "ledger.jsonl"
    with pytest.raises(MezzotintError) as caught:
        collect.privatize(tmp_path / name, out, ledger=ledger, **options)
    assert isinstance(caught.value, ParameterError | FileFormatError | BudgetError)
    assert not out.exists()
    assert {path.name for path in tmp_path.iterdir()} <= {name, ledger.name, f"{ledger.name}.key"}
    assert not ledger.exists() or not mz.privacy.Ledger(ledger).charges
    good = tmp_path / "good.parquet"
    parquet(good)
    collect.privatize(good, out, column="x", mechanism=TABLE, ledger=ledger)
    assert collect.read_counts(out).n == ROWS
    assert len(mz.privacy.Ledger(ledger).charges) == 1


@pytest.mark.parametrize(
    "case", ["an open quote", "a flipped bit", "a cut file", "a cut stripe", "Latin-1"]
)
def test_the_command_line_names_the_file_and_a_readers_remedy(
    tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, write, changes = CASES[case]
    write(tmp_path / name)
    TABLE.save(tmp_path / "m.json")
    kept = [word for column in changes.get("keep", ()) for word in ("--keep", column)]
    status = run(
        ["privatize", str(tmp_path / name), "--column", "x", "--mechanism", str(tmp_path / "m.json"),
         "--out", str(tmp_path / "out.parquet"), *kept]
    )  # fmt: skip
    told = capsys.readouterr().err
    assert status == 2
    assert name in told
    assert "space" not in told
    assert "Traceback" not in told


def test_checks_come_before_the_first_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many files the last one lacks the column: no row of the first is read."""
    for i in range(3):
        parquet(tmp_path / f"{i}.parquet", GOOD if i < 2 else GOOD.drop_columns("x"))

    def read(*_: object) -> None:
        raise AssertionError("rows were read")

    monkeypatch.setattr("mezzotint.collect.columns.ColumnReader.batches", read)
    with pytest.raises(ParameterError, match="no such column"):
        collect.privatize(tmp_path, tmp_path.parent / "r.parquet", column="x", mechanism=TABLE)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="files without names are Linux's")
def test_a_draft_has_no_name(tmp_path: Path) -> None:
    """Nothing of an uncharged draft can be left, or copied, before it is paid for."""
    parquet(tmp_path / "in.parquet")
    seen: list[set[str]] = []

    def look(rows: float, total: float) -> None:
        seen.append({path.name for path in tmp_path.iterdir()})
        assert not mz.privacy.Ledger(ledger).charges

    out, ledger = tmp_path / "r.parquet", tmp_path / "ledger.jsonl"
    collect.privatize(
        tmp_path / "in.parquet", out, column="x", mechanism=TABLE, ledger=ledger, progress=look
    )
    assert seen
    assert set[str]().union(*seen) <= {"in.parquet", "ledger.jsonl", "ledger.jsonl.key"}
    assert len(mz.privacy.Ledger(ledger).charges) == 1
    assert oct(out.stat().st_mode & 0o777) == oct(0o666 & ~umask())


def umask() -> int:
    import os

    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_without_such_files_the_charge_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mezzotint.collect.sink.unnamed_draft", lambda _: None)
    parquet(tmp_path / "in.parquet")
    ledger = tmp_path / "ledger.jsonl"

    def look(rows: float, total: float) -> None:
        assert len(mz.privacy.Ledger(ledger).charges) == 1

    collect.privatize(
        tmp_path / "in.parquet", tmp_path / "r.parquet", column="x", mechanism=TABLE, ledger=ledger, progress=look
    )  # fmt: skip
    assert collect.read_counts(tmp_path / "r.parquet").n == ROWS


MEZZOTINT = "import sys; from mezzotint.cli import main; sys.argv[0] = 'mezzotint'; main()"


def test_a_reader_of_standard_output_that_goes_away_is_loud(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("x\n" + "1\n" * 2_000_000)
    TABLE.save(tmp_path / "m.json")
    command = (
        f'"{sys.executable}" -c "{MEZZOTINT}" privatize in.csv --column x --mechanism m.json --out - '
        "2>err; echo $? >status"
    )
    subprocess.run(f"({command}) | head -2 >out", shell=True, cwd=tmp_path, check=True)
    assert (tmp_path / "status").read_text().strip() == "2"
    assert "reader went away" in (tmp_path / "err").read_text()


def test_dev_stdin_is_standard_input(tmp_path: Path) -> None:
    TABLE.save(tmp_path / "m.json")
    command = [sys.executable, "-c", MEZZOTINT, "privatize", "/dev/stdin", "--column", "x",
               "--mechanism", "m.json", "--out", "r.csv"]  # fmt: skip
    subprocess.run(command, cwd=tmp_path, check=True, input=b"x\n1\n2\n3\n", capture_output=True)
    assert collect.read_counts(tmp_path / "r.csv").n == 3


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["privatize", "a.csv", "--out", "a", "--out=b", "--column", "x"], "--out"),
        (["design", "--epsilon", "1", "--epsilon", "2"], "--epsilon"),
        (["smoothed", "profile", "--epsilon", "1", "--epsilon=2"], "--epsilon"),
    ],
)
def test_an_option_of_one_value_is_given_once(
    words: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(words) == 2
    assert f"{option}=2 times: takes one value; give it once" in capsys.readouterr().err


def test_options_of_text_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in.csv").write_text('x, y;z;name\n1,5;a;"C:\\"\n.;b;q\n')
    TABLE.save(tmp_path / "m.json")
    words = ["privatize", str(tmp_path / "in.csv"), "--column", "x, y", "--mechanism", str(tmp_path / "m.json"),
             "--out", str(tmp_path / "r.csv"), "--delimiter", ";", "--decimal", ",", "--missing-values", "NA,\\N,.",
             "--missing", "drop", "--keep", "name"]  # fmt: skip
    assert run(words) == 2
    assert "--backslash-is-text" in capsys.readouterr().err
    assert run([*words, "--backslash-is-text"]) == 0
    assert "dropped as missing: 1" in capsys.readouterr().out
    assert collect.read_counts(tmp_path / "r.csv").n == 1


def test_values_that_are_not_listed_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.csv").write_text("x\na\n b\nc\nd\nNA\n")
    families.categorical(categories=["a", "b"], epsilon=1.0, other=True).save(tmp_path / "m.json")
    words = ["privatize", str(tmp_path / "in.csv"), "--column", "x", "--mechanism", str(tmp_path / "m.json"),
             "--out", str(tmp_path / "r.csv"), "--missing", "drop"]  # fmt: skip
    assert run(words) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "dropped as missing: 1; not on the list: 2; spelled otherwise: 1" in told


def test_a_blank_last_line_is_nobody(tmp_path: Path) -> None:
    table = families.categorical(categories=["a"], epsilon=1.0, missing=True)
    (tmp_path / "in.csv").write_text("x\na\n\n")
    with pytest.raises(FileFormatError, match="ends in an empty line"):
        collect.privatize(tmp_path / "in.csv", tmp_path / "r.csv", column="x", mechanism=table)
    (tmp_path / "in.csv").write_text("x\na\n\na\n")
    assert (
        collect.privatize(
            tmp_path / "in.csv", tmp_path / "r.csv", column="x", mechanism=table
        ).reports
        == 3
    )
