"""Which laws judge which function: read from the source of the laws by the inventory, so that none is forgotten."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

TESTS = Path(__file__).parents[1]


def judges(*names: str) -> Callable[[T], T]:
    """Marks a law with the dotted names (below `mezzotint`) of the functions that it holds to account."""
    assert names
    return lambda law: law


def judged() -> dict[str, list[str]]:
    """Dotted name -> files of laws that name it, in `judges(..)` or in an `Issuer(..)` of a table of them.

    Laws that need their room's own twins stand beside those, in other folders of tests.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if "laws.registry" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            called = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            if not (called and node.func.id in ("judges", "Issuer")):  # pyright: ignore[reportAttributeAccessIssue]
                continue
            for inner in ast.walk(node):
                if isinstance(inner, ast.Constant) and re.fullmatch(
                    r"[a-z_]+(\.\w+)+", str(inner.value)
                ):
                    found.setdefault(str(inner.value), []).append(path.name)
    return found
