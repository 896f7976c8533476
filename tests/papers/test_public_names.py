"""Reproductions and readers stand on public names: what a user can import, and the foundations in `core`."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import mezzotint

SOURCE = Path(mezzotint.__file__).parent

INSIDE: dict[str, tuple[str, ...]] = {
    "papers/biased.py": ("families.numeric",),
    "papers/optm_programs.py": ("design.pair_selection", "design.problem"),
    "papers/published.py": ("families.numeric",),
}
"""Modules that published programs share with the designs that they are compared with; the list may only shrink."""


def imports(path: Path) -> list[tuple[str, str]]:
    """(module, name) of everything that a file imports from this package."""
    pairs: list[tuple[str, str]] = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mezzotint"):
            pairs += [(node.module or "", alias.name) for alias in node.names]
    return pairs


def is_public(module: str, name: str) -> bool:
    """Whether a name is one of those that its subpackage shows, of a module that it shows, or of `core`."""
    words = module.split(".")[1:]
    if name.startswith("_"):
        return False
    if not words:
        return hasattr(mezzotint, name)
    if words[0] == "core":
        return True
    shown = dir(importlib.import_module(f"mezzotint.{words[0]}"))
    if len(words) == 1:
        return name in shown
    return words[1] in shown


def test_papers_and_data_sets_import_public_names_only() -> None:
    exceptions: dict[str, set[str]] = {}
    for folder in ("papers", "datasets"):
        for path in sorted((SOURCE / folder).glob("*.py")):
            for module, name in imports(path):
                if module.startswith(f"mezzotint.{folder}") or is_public(module, name):
                    continue
                place = f"{folder}/{path.name}"
                exceptions.setdefault(place, set()).add(module.removeprefix("mezzotint."))
    assert {place: tuple(sorted(modules)) for place, modules in exceptions.items()} == INSIDE
