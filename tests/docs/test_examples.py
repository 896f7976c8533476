"""Every public name has a documented signature and an example that runs and prints what stands below it."""

from __future__ import annotations

import ast
import doctest
import importlib
import importlib.util
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import mezzotint as mz

SOURCE = Path(mz.__file__).parent
COUNTED = ("datasets", "kernel")
"""Rooms with a limit of lines: what they have no room for stands in the reference."""

EXTRAS = {"federated": "flwr", "training": "torch"}
RUNNER = {"optionflags": doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, "verbose": False}
LONG = {
    "mezzotint.federated.simulation.simulate",
    "mezzotint.report.federated_pages.federated_page",
}
"""Examples that take a federated run: tests/federated and tests/report make one."""


def public(room: str) -> Iterator[tuple[str, object]]:
    """Names that a room offers, and what they are; modules and constants left out."""
    package = importlib.import_module(f"mezzotint.{room}")
    for name in dir(package):
        value = getattr(package, name)
        if callable(value) and not name.startswith("_"):
            yield name, value


ROOMS = sorted(name for name in mz.__all__ if name.islower() and not name.startswith("_"))


@pytest.mark.parametrize("room", [room for room in ROOMS if room not in COUNTED])
def test_every_public_name_says_what_it_takes_and_returns_and_shows_an_example(room: str) -> None:
    pytest.importorskip(EXTRAS.get(room, "mezzotint"))
    lacking: list[tuple[str, str]] = []
    for name, value in public(room):
        text = inspect.getdoc(value) or ""
        if ">>> " not in text:
            lacking.append((name, "Example"))
        if isinstance(value, type) and issubclass(value, Exception | dict):
            continue
        signature = inspect.signature(value)
        taken = {
            one.name for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD
        }
        if (
            taken - {"args"}
            and "Arguments:" not in text
            and not (isinstance(value, type) and taken == {"self"})
        ):
            lacking.append((name, "Arguments"))
        if (
            inspect.isfunction(value)
            and signature.return_annotation not in (None, "None")
            and "Returns:" not in text
        ):
            lacking.append((name, "Returns"))
    assert lacking == []


@pytest.mark.parametrize("room", COUNTED)
def test_rooms_whose_lines_are_counted_show_their_names_on_their_page(
    room: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (SOURCE.parents[1] / f"docs/api/{room}.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert [
        name for name in dir(getattr(mz, room)) if not name.startswith("_") and name not in code
    ] == []
    monkeypatch.chdir(tmp_path)
    exec(compile(code, room, "exec"), {})


def _modules() -> list[str]:
    files = (
        path.relative_to(SOURCE).with_suffix("")
        for path in SOURCE.rglob("*.py")
        if re.search(r"^\s*>>> ", path.read_text(), re.MULTILINE)
    )
    return sorted(".".join(("mezzotint", *file.parts)).removesuffix(".__init__") for file in files)


@pytest.mark.parametrize("module", _modules())
def test_examples_print_what_stands_below_them(
    module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(EXTRAS.get(module.partition(".")[2].partition(".")[0], "mezzotint"))
    loaded = importlib.import_module(module)
    found = [
        one
        for one in doctest.DocTestFinder().find(loaded, globs={**vars(loaded), "mz": mz, "np": np})
        if one.examples
    ]
    assert found
    for example in found:
        skipped = any(doctest.SKIP in one.options for one in example.examples)
        assert not skipped or example.name in LONG, example.name
        folder = tmp_path / example.name
        folder.mkdir()
        monkeypatch.chdir(folder)
        report: list[str] = []
        doctest.DocTestRunner(**RUNNER).run(example, out=report.append)  # type: ignore[arg-type]
        assert not report, "".join(report)


def test_no_docstring_stands_twice() -> None:
    repeated: list[str] = []
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module):
                texts = [
                    part.value.value
                    for part in node.body[:2]
                    if isinstance(part, ast.Expr)
                    and isinstance(part.value, ast.Constant)
                    and isinstance(part.value.value, str)
                ]
                if len(texts) == 2:
                    repeated.append(f"{path.relative_to(SOURCE)}: {texts[0]}")
    assert repeated == []
