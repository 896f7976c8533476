"""How dense the source is, subpackage by subpackage, held to ceilings that only fall.

    python tools/density.py             print a row for each subpackage
    python tools/density.py --check     exit with 1 where a measure is well beyond its ceiling (`make check`)
    python tools/density.py --tighten   move the ceilings to what is measured, where that is better

A code line is a line with at least one token outside docstrings and comments. A local name is one that
a function assigns. The ceilings stand in `tools/density.json`.

The check guards against growth, not against single changes: a measure may exceed its ceiling by 2 %,
or by the slack of its kind where that is more (`SLACK`): 40 lines of a file, 6 of a function, and .1
tokens, .15 letters, 2 conditional expressions and 1 wide line per 1,000, and .1 percent of names. Nested
conditionals have no slack. Ceilings are lowered together with a clean-up, and never raised.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "mezzotint"
CEILINGS = Path(__file__).with_suffix(".json")

WIDEST = 100
"""Columns of a line."""

CODE_TOKENS = {tokenize.NAME, tokenize.OP, tokenize.NUMBER, tokenize.STRING}

PRONOUNS = frozenset(
    {
        *(
            "asked",
            "at",
            "drawn",
            "found",
            "given",
            "held",
            "kept",
            "known",
            "least",
            "left",
            "made",
        ),
        *("most", "one", "other", "both", "own", "part", "place", "rest", "said", "spent", "there"),
        *("told", "what", "whole"),
    }
)
"""Names that stand for anything."""

FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, kw_only=True)
class Density:
    """Measures of one subpackage, each better the smaller it is.

    Arguments:
        tokens_per_line: of code.
        conditionals: conditional expressions per 1,000 code lines.
        nested_conditionals: conditional expressions inside another one, or inside a comprehension.
        missing_letters: by how much the mean local name is shorter than twelve letters.
        pronouns: share of the local names that stand for anything, percent.
        wide_lines: lines beyond 100 columns, per 1,000 lines.
        longest_function: lines of code of the longest function, docstring apart.
        longest_file: lines of the longest file.
    """

    tokens_per_line: float
    conditionals: float
    nested_conditionals: int
    missing_letters: float
    pronouns: float
    wide_lines: float
    longest_function: int
    longest_file: int


RELATIVE_SLACK = 0.02
"""By how much of its ceiling any measure may exceed it."""

SLACK: dict[str, float] = {
    "tokens_per_line": 0.1,
    "conditionals": 2.0,
    "nested_conditionals": 0,
    "missing_letters": 0.15,
    "pronouns": 0.1,
    "wide_lines": 1.0,
    "longest_function": 6,
    "longest_file": 40,
}
"""By how much each measure may exceed its ceiling where 2 % of it are less."""


def highest(key: str, ceiling: float) -> float:
    """The largest value of a measure that passes the check; no nested conditional is tolerated."""
    if SLACK[key] == 0:
        return ceiling
    return ceiling + max(SLACK[key], RELATIVE_SLACK * ceiling)


LONG_NAME = 12
"""Letters from which `missing_letters` counts down."""


def docstring_of(node: ast.AST) -> ast.Expr | None:
    """The expression that is the docstring of a module, class or function."""
    if not isinstance(node, (ast.Module, ast.ClassDef, *FUNCTIONS)) or not node.body:
        return None
    first = node.body[0]
    if not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
        return None
    return first if isinstance(first.value.value, str) else None


def text_lines(tree: ast.AST) -> set[int]:
    """Lines of bare strings: docstrings, and the texts beside constants and fields."""
    lines: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Expr) or not isinstance(node.value, ast.Constant):
            continue
        if isinstance(node.value.value, str):
            lines.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def tokens_by_line(source: str, tree: ast.AST) -> dict[int, int]:
    """How many tokens each code line holds."""
    skipped = text_lines(tree)
    counts: dict[int, int] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        line = token.start[0]
        if token.type in CODE_TOKENS and line not in skipped:
            counts[line] = counts.get(line, 0) + 1
    return counts


def local_names(tree: ast.AST) -> Iterator[str]:
    """Every assignment to a name within a function."""
    for function in ast.walk(tree):
        if isinstance(function, FUNCTIONS):
            for node in ast.walk(function):
                if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                    yield node.id


def conditionals(tree: ast.AST) -> Iterator[bool]:
    """For each conditional expression, whether it is nested in another or in a comprehension."""
    stack: list[tuple[ast.AST, bool]] = [(tree, False)]
    while stack:
        node, is_inside = stack.pop()
        if isinstance(node, ast.IfExp):
            yield is_inside
        if isinstance(node, (ast.IfExp, *COMPREHENSIONS)):
            is_inside = True
        elif isinstance(node, (ast.stmt, ast.Lambda)):
            is_inside = False
        stack.extend((child, is_inside) for child in ast.iter_child_nodes(node))


def code_length(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function, signature included and docstring apart."""
    length = (function.end_lineno or function.lineno) - function.lineno + 1
    docstring = docstring_of(function)
    if docstring is not None:
        length -= (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return length


def measure(sources: list[str]) -> Density:
    """The measures of the files of one subpackage, from their texts."""
    tokens = code_lines = wide = lines = longest_file = longest_function = 0
    names: list[str] = []
    nesting: list[bool] = []
    for source in sources:
        tree = ast.parse(source)
        counts = tokens_by_line(source, tree)
        tokens += sum(counts.values())
        code_lines += len(counts)
        names.extend(local_names(tree))
        nesting.extend(conditionals(tree))
        file_lines = source.splitlines()
        lines += len(file_lines)
        wide += sum(len(line) > WIDEST for line in file_lines)
        longest_file = max(longest_file, len(file_lines))
        for node in ast.walk(tree):
            if isinstance(node, FUNCTIONS):
                longest_function = max(longest_function, code_length(node))
    letters = sum(len(name.strip("_")) for name in names) / max(len(names), 1)
    pronoun_count = sum(name in PRONOUNS for name in names)
    return Density(
        tokens_per_line=tokens / max(code_lines, 1),
        conditionals=1000 * len(nesting) / max(code_lines, 1),
        nested_conditionals=sum(nesting),
        missing_letters=max(0.0, LONG_NAME - letters),
        pronouns=100 * pronoun_count / max(len(names), 1),
        wide_lines=1000 * wide / max(lines, 1),
        longest_function=longest_function,
        longest_file=longest_file,
    )


def measured() -> dict[str, Density]:
    """The measures of every subpackage."""
    densities: dict[str, Density] = {}
    for folder in sorted(SOURCE.iterdir()):
        files = sorted(folder.rglob("*.py"))
        if files:
            densities[folder.name] = measure([file.read_text("utf-8") for file in files])
    return densities


def read_ceilings() -> dict[str, dict[str, float]]:
    return json.loads(CEILINGS.read_text("utf-8"))


def faults(
    densities: dict[str, Density],
    ceilings: dict[str, dict[str, float]],
) -> list[str]:
    """A line for each measure well beyond its ceiling, and for each subpackage without ceilings."""
    messages: list[str] = []
    for name, density in densities.items():
        if name not in ceilings:
            messages.append(f"{name}: has no ceilings; run python tools/density.py --tighten")
            continue
        for key, value in asdict(density).items():
            limit = highest(key, ceilings[name][key])
            if round(value, 2) > limit:
                messages.append(f"{name}: {key} is {value:.2f}, at most {limit:.4g} passes")
    return messages


def tightened(
    densities: dict[str, Density],
    ceilings: dict[str, dict[str, float]],
) -> dict[str, dict[str, float]]:
    """Ceilings at what is measured where that is lower; subpackages that are gone have none."""
    lowered: dict[str, dict[str, float]] = {}
    for name, density in densities.items():
        known = ceilings.get(name, {})
        lowered[name] = {}
        for key, value in asdict(density).items():
            lowered[name][key] = min(round(value, 2), known.get(key, round(value, 2)))
    return lowered


def print_table(densities: dict[str, Density]) -> None:
    keys = [field.name for field in fields(Density)]
    print(" " * 12, *(f"{key.replace('_', ' '):>20}" for key in keys))
    for name, density in densities.items():
        values = asdict(density)
        print(f"{name:<12}", *(f"{values[key]:>20.2f}" for key in keys))


def main() -> int:
    parser = argparse.ArgumentParser(description="How dense the source is.")
    parser.add_argument("--check", action="store_true", help="fail beyond the ceilings")
    parser.add_argument("--tighten", action="store_true", help="lower the ceilings")
    options = parser.parse_args()
    densities = measured()
    if options.tighten:
        ceilings = read_ceilings() if CEILINGS.exists() else {}
        text = json.dumps(tightened(densities, ceilings), indent=2)
        CEILINGS.write_text(text + "\n", encoding="utf-8")
    if options.check:
        messages = faults(densities, read_ceilings())
        print(*messages, sep="\n", end="\n" if messages else "")
        return 1 if messages else 0
    print_table(densities)
    return 0


if __name__ == "__main__":
    sys.exit(main())
