"""What a source names: every file once, or an error; nothing passed over in silence."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from mezzotint import collect, families
from mezzotint.collect.listing import find_files, matches
from mezzotint.core.errors import FileFormatError, ParameterError

ROOT = os.name == "posix" and os.geteuid() == 0


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files in folders, hidden ones among them."""
    folder = tmp_path / "data"
    for name in (
        "a.csv", "b.csv", "day=1/a.csv", "day=2/deep/b.csv", "_done/x.csv", ".x.csv", "_x.csv", "_k=1/c.csv",
    ):  # fmt: skip
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"x,row\n1,{name}\n")
    return folder


def names(source: object) -> list[str]:
    return [file.name for file in find_files(source)]  # type: ignore[arg-type]


def test_a_folder_names_all_its_visible_files(tree: Path) -> None:
    assert names(tree) == ["_k=1/c.csv", "a.csv", "b.csv", "day=1/a.csv", "day=2/deep/b.csv"]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.csv", ["a.csv", "b.csv"]),
        ("**/*.csv", ["_k=1/c.csv", "a.csv", "b.csv", "day=1/a.csv", "day=2/deep/b.csv"]),
        ("day=*", ["day=1/a.csv", "day=2/deep/b.csv"]),
        ("day=*/*.csv", ["day=1/a.csv"]),
        ("*/deep/*", ["day=2/deep/b.csv"]),
        ("day=[1]/**", ["day=1/a.csv"]),
        ("?.csv", ["a.csv", "b.csv"]),
    ],
)
def test_patterns(tree: Path, pattern: str, expected: list[str]) -> None:
    """A folder that a pattern names is read with all that is in it; hidden files are passed over."""
    assert names(tree / pattern) == expected


@given(
    parts=st.lists(st.sampled_from("ab"), min_size=1, max_size=4),
    pattern=st.lists(st.sampled_from(["a", "b", "*", "**"]), min_size=1, max_size=4),
)
def test_matching_is_that_of_a_regular_expression(parts: list[str], pattern: list[str]) -> None:
    import re

    spelled = {"a": "a/", "b": "b/", "*": "[^/]*/", "**": "(?:[^/]*/)*"}
    expression = "".join(spelled[part] for part in pattern) + "(?:[^/]*/)*"
    if pattern[-1] == "**":  # it names what is in a folder, not the folder itself
        expression = expression.removesuffix("(?:[^/]*/)*")[:-1] + "+"
    wanted = re.fullmatch(expression, "".join(part + "/" for part in parts)) is not None
    assert matches(parts, pattern) is wanted


def test_a_link_without_target_is_refused(tree: Path) -> None:
    (tree / "c.csv").symlink_to(tree / "gone.csv")
    for source in (tree, tree / "*.csv", tree / "**"):
        with pytest.raises(ParameterError, match=r"c\.csv is a link without a target"):
            find_files(source)
    assert names(tree / "day=*") == ["day=1/a.csv", "day=2/deep/b.csv"]
    (tree / "c.csv").rename(tree / "_c.csv")
    assert "a.csv" in names(tree)


@pytest.mark.skipif(ROOT, reason="root may list every folder")
def test_a_folder_that_cannot_be_listed_is_refused(tree: Path) -> None:
    (tree / "day=2").chmod(0)
    try:
        with pytest.raises(ParameterError, match=r"day=2 cannot be listed"):
            find_files(tree)
    finally:
        (tree / "day=2").chmod(0o755)


def test_a_folder_that_cannot_be_listed_is_refused_even_for_root(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = os.scandir

    def scandir(path: str) -> object:
        if str(path).endswith("day=2"):
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    monkeypatch.setattr("mezzotint.collect.listing.os.scandir", scandir)
    with pytest.raises(ParameterError, match=r"day=2 cannot be listed .*make it readable"):
        find_files(tree)


def test_links(tree: Path) -> None:
    (tree / "day=1" / "loop").symlink_to(tree)
    assert len(names(tree)) == 5
    (tree / "again").symlink_to(tree / "day=1")
    with pytest.raises(ParameterError, match="are one file"):
        find_files(tree)
    (tree / "again").unlink()
    os.link(tree / "a.csv", tree / "same.csv")
    with pytest.raises(ParameterError, match=r"a\.csv and same\.csv are one file"):
        find_files(tree)


def test_what_is_no_file_is_refused(tree: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(tree)
        server.bind("s.csv")
        with pytest.raises(ParameterError, match="no regular file"):
            find_files(tree)
        with pytest.raises(ParameterError, match="neither a file nor a folder"):
            find_files(tree / "s.csv")


@pytest.mark.parametrize(
    ("change", "words"),
    [("notes.txt", "not a file of columns"), ("x.parquet", "several kinds"),
     ("day=1/day=2/x.csv", "spell the same key")],
)  # fmt: skip
def test_folders_that_are_no_data_set(tree: Path, change: str, words: str) -> None:
    (tree / change).parent.mkdir(parents=True, exist_ok=True)
    (tree / change).write_text("x\n1\n")
    with pytest.raises((ParameterError, FileFormatError), match=words):
        find_files(tree)


def test_a_refused_folder_costs_nothing(tree: Path, tmp_path: Path) -> None:
    """Exit 0, and a charge, for a part of the data: with a link that lost its target, today and in estimates."""
    table = families.randomized_response(lower=0, upper=2, epsilon=1.0)
    (tree / "c.csv").symlink_to(tree / "gone.csv")
    with pytest.raises(ParameterError, match="without a target"):
        collect.privatize(
            tree, f"{tmp_path}/out/", column="x", mechanism=table, ledger=tmp_path / "ledger.jsonl"
        )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]
    reports = tmp_path / "reports"
    reports.mkdir()
    for name in ("a.parquet", "b.parquet"):
        pq.write_table(pa.table({"x": [1.0]}), tmp_path / "in.parquet")
        collect.privatize(tmp_path / "in.parquet", reports / name, column="x", mechanism=table)
    assert collect.read_counts(reports).n == 2
    (reports / "c.parquet").symlink_to(tmp_path / "gone.parquet")
    with pytest.raises(ParameterError, match="without a target"):
        collect.read_counts(reports)
