"""What mkdocs fills in while it builds: public names from the sources, the gallery from the reproductions."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).resolve().parents[1] / "src"
NAMES = re.compile(r"^\{\{ public names of ([a-z_.]+) \}\}$", re.MULTILINE)
GALLERY = "{{ gallery }}"


def public_names(package: str) -> list[str]:
    """Dotted names that a package makes public with `X as X`, in order; a package or a whole module stands for itself.

    Subpackages are followed; packages without such a list show their modules.
    """
    folder = SOURCE / package.replace(".", "/")
    found = []
    for node in ast.walk(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found += [alias.name for alias in node.names if alias.asname == alias.name]
    if not found:
        found = sorted(path.stem for path in folder.glob("*.py") if path.stem != "__init__")
    names = []
    for name in found:
        if (folder / name / "__init__.py").is_file():
            # The rooms of the whole have pages of their own.
            names += [] if package == "mezzotint" else public_names(f"{package}.{name}")
        else:
            names.append(f"{package}.{name}")
    return names


def reproductions() -> list[str]:
    """Names of everything that can be reproduced: keys of the REPRODUCTIONS dictionaries."""
    found = []
    for path in sorted((SOURCE / "mezzotint" / "report").glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            target = getattr(node, "target", None) or next(iter(getattr(node, "targets", [])), None)
            if getattr(target, "id", "") == "REPRODUCTIONS" and isinstance(node.value, ast.Dict):
                found += [
                    (key.value, _title(path, value))
                    for key, value in zip(node.value.keys, node.value.values, strict=True)
                ]
    rows = [f"| `mezzotint reproduce {name}` | {title} |" for name, title in sorted(found)]
    return ["| command | what |", "|---|---|", *rows]


def _title(path: Path, value: ast.expr) -> str:
    """First line of the docstring of the function that an entry names."""
    wanted = getattr(value, "id", "")
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == wanted:
            return (ast.get_docstring(node) or "").split("\n")[0]
    return ""


def on_config(config: Any) -> Any:
    """Called by mkdocs first: a folder in the navigation stands for its pages, the index first."""
    docs = Path(config["docs_dir"])
    for entry in config["nav"]:
        for title, value in entry.items():
            if isinstance(value, str) and (docs / value).is_dir():
                pages = sorted(path.name for path in (docs / value).glob("*.md"))
                entry[title] = [f"{value}/{name}" for name in sorted(pages, key=lambda name: name != "index.md")]
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for every page."""
    filled = NAMES.sub(lambda match: "\n\n".join(f"::: {name}" for name in public_names(match[1])), markdown)
    return filled.replace(GALLERY, "\n".join(reproductions()))
