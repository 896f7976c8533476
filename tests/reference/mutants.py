"""Copies of the kernel with one check removed, to show that some test or the forger fails without it.

python mutants.py ROWS...       runs the test that docs/proofs/kernel.md names for each premise against
                                a copy without its check (all rows if none is given)
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
KERNEL = ROOT / "src" / "mezzotint" / "kernel"
PAGE = ROOT / "docs" / "proofs" / "kernel.md"


@dataclass(frozen=True)
class Check:
    """A statement that refuses: where it stands, and the words of its refusal."""

    module: str
    function: str
    why: str
    first: int
    last: int
    column: int

    @property
    def name(self) -> str:
        return f"{self.module}.{self.function}"


def _literal(node: ast.expr) -> str:
    """The text of a message; the values in it as "..."."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(
            part.value if isinstance(part, ast.Constant) else "..." for part in node.values
        )  # pyright: ignore[reportArgumentType, reportCallIssue]
    return ast.unparse(node)


def _calls_require(statement: ast.stmt) -> ast.Call | None:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if isinstance(call.func, ast.Name) and call.func.id == "require":
            return call
    return None


def checks(module: str) -> Iterator[Check]:
    """Every `require` of a module of the kernel, by the function or class.method that it stands in."""

    def walk(node: ast.AST, path: tuple[str, ...]) -> Iterator[Check]:
        for child in ast.iter_child_nodes(node):
            inner = path
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
                inner = (*path, child.name)
            elif isinstance(child, ast.stmt):
                call = _calls_require(child)
                if call is not None:
                    why = _literal(call.args[2])
                    last = child.end_lineno or child.lineno
                    yield Check(module, ".".join(path), why, child.lineno, last, child.col_offset)
            yield from walk(child, inner)

    source = (KERNEL / f"{module}.py").read_text(encoding="utf-8")
    yield from walk(ast.parse(source), ())


def all_checks() -> list[Check]:
    """Of all modules."""
    modules = sorted(path.stem for path in KERNEL.glob("*.py"))
    return [check for module in modules for check in checks(module)]


def without(check: Check) -> str:
    """The source of the module with `pass` in the place of the check."""
    lines = (KERNEL / f"{check.module}.py").read_text(encoding="utf-8").split("\n")
    lines[check.first - 1 : check.last] = [" " * check.column + "pass"]
    return "\n".join(lines)


def copy_of_kernel(folder: Path, sources: dict[str, str]) -> None:
    """A package `mezzotint` with the kernel alone, some of its modules with other sources."""
    target = folder / "mezzotint" / "kernel"
    shutil.copytree(KERNEL, target, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "mezzotint" / "__init__.py").touch()
    for module, source in sources.items():
        (target / f"{module}.py").write_text(source, encoding="utf-8")


@dataclass(frozen=True)
class Edit:
    """A piece of a module that is replaced: a text, or the check with these words if `why` is given."""

    module: str
    text: str = ""
    why: str = ""
    by: str = "pass"

    def apply(self, source: str) -> str:
        """The module's source with the piece replaced everywhere."""
        text = self.text
        if self.why:
            original = (KERNEL / f"{self.module}.py").read_text(encoding="utf-8").split("\n")
            (check,) = (check for check in checks(self.module) if check.why == self.why)
            text = "\n".join(original[check.first - 1 : check.last]).lstrip()
        if text not in source:
            raise LookupError(f"{self.module} has no {text!r}")
        return source.replace(text, self.by)


_PAIRS = "permutations(range(len(rows)), 2)"

HOLES: dict[str, tuple[Edit, ...]] = {
    "equal rows are no pair": (
        Edit("measures", "largest = list(identity)", by="largest = [0] * len(identity)"),
        Edit("measures", why="values lie below the curve of equal rows"),
        Edit("measures", why="a value lies below the curve of equal rows"),
        Edit("losses", "largest = grid.identity", by="largest = [0] * len(grid.points)"),
    ),
    "row sums": (Edit("table", why="row ... does not sum to 2**32"),),
    "blankets fit": (Edit("sums", why="a row holds less than its blanket takes"),),
    "corners fall": (
        Edit("sums", why="corners do not fall"),
        Edit("sums", "append(required - present)", by="append(max(required - present, 0))"),
    ),
    "parts cover rows": (Edit("sums", why="a row of the divided group is in neither part"),),
    "parts hold all counts": (Edit("sums", why="the parts do not hold all counts"),),
    "parts begin at 0": (
        Edit(
            "sums",
            "len(cuts) == len(children) + 1 and cuts[0] == 0",
            by="len(cuts) > len(children)",
        ),
    ),
    "first group is all rows": (Edit("sums", why="the first group is not all rows"),),
    "equal masses": (Edit("sums", why="rows give a component unequal masses"),),
    "others are honest": (Edit("sums", "- 1 - release.corrupted", by="- 1"),),
    "counts from 0": (
        Edit("sums", why="the counts are not from 0 on"),
        Edit("measures", why="the weights do not sum to 1"),
    ),
    "draws that are left": (Edit("sums", "other.draws + 1 - beyond", by="other.draws"),),
    "zero under q": (
        Edit(
            "one", "Fraction(weight, other_weight)", by="Fraction(weight, other_weight or weight)"
        ),
        Edit("one", why="_IMPOSSIBLE"),
    ),
    "rank counts": (Edit("one", 'fields.integer("r", 0', by='fields.integer("r", -99'),),
    "direction add": (Edit("losses", "[Curve(add), Curve(remove)]", by="[Curve(remove)]"),),
    "deficit in delta": (Edit("losses", "measure.deficit", by="0"),),
    "deficit of noise": (Edit("measures", "weight * noise.deficit", by="0"),),
    "ordered pairs": (
        Edit("measures", _PAIRS, by=_PAIRS.replace("permutations", "combinations")),
        Edit("measures", "pairwise, permutations", by="combinations, pairwise"),
    ),
    "last count of a box": (
        Edit("sums", "*edges[1:], draws + 1", by="*edges[1:], edges[-1] + 1"),
        Edit("measures", why="the weights do not sum to 1"),
    ),
}
"""Premises whose absence the forger must notice: the edits that remove each."""


def hole(name: str) -> dict[str, str]:
    """The sources of the modules of a hole."""
    sources: dict[str, str] = {}
    for edit in HOLES[name]:
        source = (KERNEL / f"{edit.module}.py").read_text(encoding="utf-8")
        sources[edit.module] = edit.apply(sources.get(edit.module, source))
    return sources


def hunts(name: str, seed: int, seconds: int) -> tuple[bool, str]:
    """Whether the forger finds the hole in a copy of the kernel that has it, and what it printed."""
    forger = str(Path(__file__).with_name("forger.py"))
    with tempfile.TemporaryDirectory() as folder:
        copy_of_kernel(Path(folder), hole(name))
        done = subprocess.run(
            [sys.executable, forger, str(seconds), str(seed)], capture_output=True, text=True,
            env={**os.environ, "PYTHONPATH": folder}, check=False,
        )  # fmt: skip
    found = done.stdout.count("FALSE") + done.stdout.count("CRASH") > 0
    return done.returncode == 1 and found, done.stdout + done.stderr


@dataclass(frozen=True)
class Row:
    """A row of the table of premises."""

    premise: str
    function: str
    test: str

    @property
    def name(self) -> str:
        """Of the test's case: the function, and the words of its refusal."""
        return self.test.split("[", 1)[1].rstrip("]")


def case_of(function: str, why: str) -> str:
    """The name of the test's case for a refusal."""
    return re.sub(r"[^a-z0-9]+", "-", f"{function} {why}".lower()).strip("-")


def rows() -> list[Row]:
    """The table of docs/proofs/kernel.md."""
    found: list[Row] = []
    text = PAGE.read_text(encoding="utf-8").split("## Premises", 1)[1]
    for line in text.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if len(cells) == 3 and cells[1].startswith("`"):
            premise, function, test = cells
            found.append(Row(premise, function.strip("`"), test.strip("`")))
    return found


def check_of(row: Row) -> Check | None:
    """The statement that a row speaks of."""
    for check in all_checks():
        if check.name == row.function and case_of(check.name, check.why) == row.name:
            return check
    return None


def survives(row: Row) -> bool:
    """Whether the violation is still refused in the same words when its check is removed."""
    check = check_of(row)
    if check is None:
        return True
    premises = str(Path(__file__).with_name("premises.py"))
    with tempfile.TemporaryDirectory() as folder:
        copy_of_kernel(Path(folder), {check.module: without(check)})
        environment = {**os.environ, "PYTHONPATH": folder}
        command = [sys.executable, premises, row.name]
        done = subprocess.run(command, env=environment, capture_output=True, check=False)
    return done.returncode == 0


def main(arguments: list[str]) -> int:
    table, alive = rows(), 0
    for number, row in enumerate(table):
        if arguments and not any(word in f"{row.function} {row.name}" for word in arguments):
            continue
        survived = survives(row)
        alive += survived
        print(
            f"{number:3} {'SURVIVED' if survived else 'killed'} {row.name}",
            flush=True,
        )
    print(f"{alive} survived")
    return int(alive > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
