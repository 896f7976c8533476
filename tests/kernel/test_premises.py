"""Every premise of the kernel is refused when it is violated, and a page lists them all."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from mezzotint import kernel
from mezzotint.kernel import units
from reference import mutants
from reference.premises import PREMISES, Premise, expected, refused, table_of_premises


@pytest.mark.parametrize("premise", PREMISES, ids=lambda premise: premise.name)
def test_refuses(premise: Premise) -> None:
    """The premise is violated, and nothing else is found first."""
    assert re.search(expected(premise), refused(premise))


def test_every_check_of_the_kernel_has_a_premise_and_every_premise_a_check() -> None:
    found = sorted((check.name, check.why) for check in mutants.all_checks())
    listed = sorted((premise.function, premise.why) for premise in PREMISES)
    assert found == listed
    assert len(set(listed)) == len(listed)


def test_the_page_has_the_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "proofs" / "kernel.md"
    assert table_of_premises() in page.read_text(encoding="utf-8")
    assert len(mutants.rows()) == len(PREMISES)


def test_the_short_tables_of_other_pages_name_what_is_there() -> None:
    """Functions of the kernel and tests, of every page that ends with a table of premises."""
    root, functions = Path(__file__).parents[2], set[str]()
    for module in (
        "table",
        "measures",
        "losses",
        "sums",
        "gaussian",
        "dual",
        "smoothed",
        "claim",
        "one",
    ):
        names = vars(importlib.import_module(f"mezzotint.kernel.{module}"))
        functions |= {f"{module}.{name}" for name in names}
    refused_names = {premise.name for premise in PREMISES}
    read = 0
    for page in sorted((root / "docs" / "proofs").glob("*.md")):
        _, _, table = page.read_text(encoding="utf-8").partition("\n## Premises\n")
        for row in re.findall(r"^\|.* kernel .*\|$", table, re.MULTILINE):
            read += 1
            _, _, checked, test, _ = re.split(r"(?<!\\)\|", row)
            assert set(re.findall(r"`(\w+\.\w+)`", checked)) <= functions, row
            for path, name in re.findall(r"`(tests/[\w/.]+)::(\w+)", test):
                assert f"def {name}(" in (root / path).read_text(encoding="utf-8"), row
            assert set(re.findall(r"test_refuses\[(.*?)\]", test)) <= refused_names, row
    assert read >= 10


def _names(path: Path, root: Path) -> set[str]:
    """The dotted names of the functions, classes and methods of a module, as the package has them."""
    dotted = ".".join(path.relative_to(root).with_suffix("").parts)
    names: set[str] = set()

    def walk(node: ast.AST, outer: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                names.add(f"{outer}.{child.name}")
                walk(child, f"{outer}.{child.name}")

    walk(ast.parse(path.read_text(encoding="utf-8")), dotted)
    return names


def _proved_names(folder: Path) -> set[str]:
    """Definitions of the proved checker: `File.v: name` of Coq, `Module.name` of OCaml."""
    names: set[str] = set()
    for path in folder.glob("*.v"):
        text = path.read_text(encoding="utf-8")
        defined = re.findall(r"^(?:Definition|Fixpoint|Lemma|Theorem) (\w+)", text, re.MULTILINE)
        names |= {f"{path.name}: {name}" for name in defined}
    for path in folder.glob("command/*.ml"):
        text = path.read_text(encoding="utf-8")
        defined = re.findall(r"^(?:let|and) (?:rec )?(\w+)", text, re.MULTILINE)
        names |= {f"{path.stem.capitalize()}.{name}" for name in defined}
    return names


def _rows_of(page: Path) -> list[list[str]]:
    """The cells of every table of premises of a page."""
    rows: list[list[str]] = []
    inside = False
    for line in page.read_text(encoding="utf-8").splitlines():
        inside = line.startswith("|") and (inside or line.startswith("| premise |"))
        if inside and not line.startswith(("|---", "| premise |")):
            rows.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return rows


def test_every_page_of_proofs_has_a_table_of_premises_whose_functions_and_tests_exist() -> None:
    """The tests by their path, or by a name that only one file has; the functions by the end of their names."""
    root = Path(__file__).parents[2]
    ends: set[str] = set()
    for path in (root / "src").rglob("*.py"):
        for name in _names(path, root / "src"):
            parts = name.split(".")
            ends |= {".".join(parts[start:]) for start in range(len(parts))}
    ends |= _proved_names(root / "verified")
    tests: set[str] = set()
    for path in (root / "tests").rglob("test_*.py"):
        for name in re.findall(r"def (test_\w+)\(", path.read_text(encoding="utf-8")):
            tests |= {name, f"{path.relative_to(root)}::{name}"}
    for page in sorted((root / "docs" / "proofs").glob("*.md")):
        rows = _rows_of(page)
        assert rows, page.name
        for row in rows:
            checked, shown = row[1], row[-1]
            functions = re.findall(r"`([A-Za-z_]\w*(?:\.\w+)+(?:: \w+)?)`", checked)
            named = re.findall(r"`((?:tests/[\w/.]+::)?test_\w+)", shown)
            stated = checked.startswith("assumption") or "nothing can check it" in shown
            assert (functions and named) or stated, (page.name, row)
            assert set(functions) <= ends, (page.name, row, set(functions) - ends)
            assert set(named) <= tests, (page.name, row, set(named) - tests)


@pytest.mark.parametrize("number", range(0, len(PREMISES), 17))
def test_a_check_that_is_removed_is_missed(number: int) -> None:
    """Of a sample; all of them: the slow test below, or `python tests/reference/mutants.py`."""
    assert not mutants.survives(mutants.rows()[number])


@pytest.mark.slow
def test_no_check_can_be_removed_unnoticed() -> None:
    assert [row for row in mutants.rows() if mutants.survives(row)] == []


def test_numbers_are_bounded_before_anything_is_computed() -> None:
    assert units.number("1e-1000") > 0
    for text in ("1e-5000", "1e9999", "9" * 1200 + "e3000", "1/" + "0" * 5):
        with pytest.raises(kernel.Unreadable):
            units.number(text)
