"""Counts what a house of many rooms grows by itself: copies of one idea, small files, names that stand twice.

    python tools/house.py                 the working tree
    python tools/house.py f126b10 HEAD    commits side by side, then what the working tree has

It reads syntax trees and compares names; it cannot see that two functions mean the same under two names.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
from collections import Counter
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "src/mezzotint"
APART = ("papers", "datasets")
"""Rooms with a budget of their own."""

Tree = dict[PurePosixPath, str]


def working_tree() -> Tree:
    """Path inside the package and text of every module as it lies here."""
    package = ROOT / PACKAGE
    return {
        PurePosixPath(path.relative_to(package).as_posix()): path.read_text(encoding="utf-8")
        for path in sorted(package.rglob("*.py"))
    }


def commit(name: str) -> Tree:
    """The same of a commit."""
    packed = subprocess.run(
        ["git", "archive", name, PACKAGE], cwd=ROOT, check=True, capture_output=True
    ).stdout
    found: Tree = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.name.endswith(".py") else None
            if content is not None:
                found[PurePosixPath(member.name).relative_to(PACKAGE)] = content.read().decode()
    return found


def _repeated(names: list[str]) -> int:
    return sum(count > 1 for count in Counter(names).values())


def _halves(node: ast.AST) -> bool:
    """A loop that takes the midpoint of an interval and goes on with one half: an end becomes the midpoint.

    The midpoint is `(low + high) / 2`, `low + (high - low) / 2` or by `sqrt(low * high)`. A loop that keeps both
    halves, as adaptive quadrature and proofs over boxes do, searches for nothing.
    """
    if not isinstance(node, ast.While | ast.For):
        return False
    assigned = [inner for inner in ast.walk(node) if isinstance(inner, ast.Assign)]
    middles = {
        target.id
        for inner in assigned
        if any(_is_midpoint(part) for part in ast.walk(inner.value))
        for target in inner.targets
        if isinstance(target, ast.Name)
    }
    moved = [value for inner in assigned for value in _values(inner.value)]
    return any(isinstance(value, ast.Name) and value.id in middles for value in moved)


def _values(node: ast.expr) -> list[ast.expr]:
    """What an assignment may assign: the parts of a tuple, both sides of a choice."""
    if isinstance(node, ast.Tuple):
        return [value for part in node.elts for value in _values(part)]
    return [*_values(node.body), *_values(node.orelse)] if isinstance(node, ast.IfExp) else [node]


def _is_midpoint(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = (
            node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        )
        return name == "sqrt" and bool(node.args) and _of_two(node.args[0], ast.Mult)
    if not isinstance(node, ast.BinOp):
        return False
    half = isinstance(node.op, ast.Div | ast.FloorDiv) and getattr(node.right, "value", None) == 2
    half |= isinstance(node.op, ast.RShift) and getattr(node.right, "value", None) == 1
    if isinstance(node.op, ast.Add):  # low + (high - low) / 2
        last = node.right
        return (
            isinstance(last, ast.BinOp)
            and isinstance(last.op, ast.Div | ast.FloorDiv)
            and _of_two(last.left, ast.Sub)
        )
    return half and _of_two(node.left, ast.Add)


def _of_two(node: ast.AST, operator: type[ast.operator]) -> bool:
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, operator)
        and all(
            isinstance(side, ast.Name | ast.Attribute | ast.Subscript)
            for side in (node.left, node.right)
        )
        and not any(
            isinstance(getattr(side, "slice", None), ast.Slice) for side in (node.left, node.right)
        )
    )


def _checks(path: PurePosixPath, tree: ast.Module) -> bool:
    """A module of argument checks: at least three of its functions do little but raise ParameterError."""
    short = [
        n
        for n in tree.body
        if isinstance(n, ast.FunctionDef) and (n.end_lineno or 0) - n.lineno < 25
    ]
    raising = [
        n
        for n in short
        if any(isinstance(r, ast.Raise) and "ParameterError" in ast.unparse(r) for r in ast.walk(n))
        and not any(isinstance(c, ast.For | ast.While) for c in ast.walk(n))
    ]
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    return len(raising) >= 3 and len(raising) >= len(functions) / 2


def _progress(tree: ast.Module) -> list[str]:
    """The forms of callbacks that tell how far something is: parameter and annotation."""
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.arg | ast.AnnAssign):
            name = node.arg if isinstance(node, ast.arg) else ast.unparse(node.target)
            if (
                name in ("progress", "on_progress", "on_row", "on_option", "on_round", "tell")
                and node.annotation
            ):
                found.append(
                    f"{name}: {ast.unparse(node.annotation).replace(' | None', '').strip(chr(39))}"
                )
    return found


def counts(files: Tree) -> dict[str, int]:
    """Everything counted, by its name."""
    trees = {path: ast.parse(text) for path, text in files.items()}
    lines = {path: text.count("\n") for path, text in files.items()}
    apart = [path for path in files if path.parts[0] in APART]
    product = [path for path in files if path not in apart]
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    defined = [node.name for node in nodes if isinstance(node, ast.FunctionDef)]
    named = [path.name for path in files if not path.name.startswith("__")]
    imports = [n for n in nodes if isinstance(n, ast.Import | ast.ImportFrom)]
    return {
        "lines outside papers and datasets": sum(lines[path] for path in product),
        "lines in papers and datasets": sum(lines[path] for path in apart),
        "files outside papers and datasets": len(product),
        "files in papers and datasets": len(apart),
        "lines of imports": sum((n.end_lineno or n.lineno) - n.lineno + 1 for n in imports),
        "files under 60 lines": sum(
            lines[path] < 60 for path in files if not path.name.startswith("__")
        ),
        "files over 800 lines": sum(count > 800 for count in lines.values()),
        "file names that stand twice": _repeated(named),
        "class names defined twice": _repeated(classes),
        "classes named Reproduction": classes.count("Reproduction"),
        "loops that search by halving": sum(_halves(node) for node in nodes),
        "files with such a loop": sum(
            any(_halves(n) for n in ast.walk(tree)) for tree in trees.values()
        ),
        "modules of argument checks": sum(_checks(path, tree) for path, tree in trees.items()),
        "functions as_dict": defined.count("as_dict"),
        "forms of progress callback": len(
            {form for tree in trees.values() for form in _progress(tree)}
        ),
        "stand-ins for modules (LazyModule)": sum(
            isinstance(n, ast.Call) and ast.unparse(n.func) == "LazyModule" for n in nodes
        ),
        "uses of Any": sum(isinstance(n, ast.Name) and n.id == "Any" for n in nodes),
    }


def main(names: list[str]) -> None:
    """Prints one column for each commit named and one for the working tree."""
    columns = {name[:10]: counts(commit(name)) for name in names} | {"now": counts(working_tree())}
    print(f"{'':38}" + "".join(f"{name:>11}" for name in columns))
    for what in columns["now"]:
        print(f"{what:38}" + "".join(f"{column[what]:>11,}" for column in columns.values()))


if __name__ == "__main__":
    main(sys.argv[1:])
