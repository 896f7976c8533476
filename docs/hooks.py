"""What mkdocs fills in while it builds: public names from the sources, the gallery from the reproductions."""

from __future__ import annotations

import ast
import json
import os
import re
import struct
import sys
import tomllib
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from escapes import powers
from typeset import typeset

SOURCE = Path(__file__).resolve().parents[1] / "src"
_NAMES = r"^\*On the site: the names of `([a-z_.]+)`\.\*$"
NAMES = re.compile(_NAMES, re.MULTILINE)
GALLERY = "*On the site: the gallery; here: [results](results/).*"
BENCHMARKS = "*On the site: the scripts; here: `benchmarks`.*"
PROOFS = "*On the site: all proofs; here: [proofs](proofs/).*"
NOTEBOOKS = "*On the site: all notebooks; here: [notebooks](notebooks/).*"
SUBPACKAGES = "*On the site: the subpackages; here: [CONTRIBUTING](../../CONTRIBUTING.md).*"
SUBPACKAGE = re.compile(r"^\| `(\w+)` \| ([^|]+) \|", re.MULTILINE)
"""A row of the table of CONTRIBUTING.md: a subpackage and what it holds."""
VERBS = "*On the site: the help of every verb; here: `mezzotint VERB --help`.*"
MEASURED = re.compile(r"^\*Table: ([^\[\n]+)\.\*$", re.MULTILINE)
"""Names of measured tables; one name stands for its continuations too: "Designs" for "Designs, 2"."""
MOST_USED = re.compile(r"^Most used: (\[`.*)\.$", re.MULTILINE)
"""Links to names, which the site shows as a table."""
HELD = re.compile(r"^\*Table: \[[^\]]+\]\(tables/([a-z-]+)\.md\)\.\*$", re.MULTILINE)
"""Tables that code writes or a test reads, each in a file of its own: the site shows them in their places."""
TABLES = SOURCE.parent / "benchmarks" / "results" / "tables.json"
"""Long tables of the page of benchmarks by name: how they were measured, headings, and rows of cells, as printed."""
VERSION = "of this checkout"
"""What stands in the place of each in the sources says so to whoever reads them there."""
RESULTS = Path(__file__).resolve().parent / "results"
PAPERS = {
    "optm": "OPTM: Cai, Zhang, Khalili 2024, Privacy-Aware Randomized Quantization via Linear Programming",
    "rqm": "RQM: Youn, Hu, Ziani, Abernethy 2023, Randomized Quantization is All You Need",
    "rqp": "RQP-SGD: Feng, Venkitasubramaniam 2024",
    "smoothed": "Smoothed DP: Liu, Wang, Xia 2021",
    "tradeoff": "Beside the papers",
}
"""First word of a name -> its paper."""

MOST_ROWS = 30
"""Longer tables are points of a curve: the figure shows them, and a file holds them."""


def public_names(package: str) -> list[str]:
    """Dotted names that a package makes public with `X as X`, in order; a package or a whole module stands for itself.

    Subpackages are followed; packages without such a list show their modules.
    """
    folder = SOURCE / package.replace(".", "/")
    found = []
    for node in ast.walk(ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mezzotint"):
            public = (
                package == "mezzotint" and node.module != package
            )  # its rooms are named for type checkers alone
            found += [alias.name for alias in node.names if public or alias.asname == alias.name]
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


def summary(name: str) -> str:
    """First sentence of the docstring of a public name, wherever a package has it from."""
    package, _, last = name.rpartition(".")
    folder = SOURCE / package.replace(".", "/")
    path = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == last:
            return _first_sentence(node)
        if isinstance(node, ast.ImportFrom) and last in {alias.name for alias in node.names}:
            if node.module != package:
                return summary(f"{node.module}.{last}")
            return _first_sentence(ast.parse((folder / f"{last}.py").read_text(encoding="utf-8")))
    raise ValueError(f"{name}: not found in {path.name}")


def _first_sentence(node: ast.FunctionDef | ast.ClassDef | ast.Module) -> str:
    paragraph = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
    return powers(re.split(r"(?<=[.!?]) ", paragraph)[0]).replace("|", "\\|")


def most_used(links: str) -> str:
    """A line of links as a table: each name with the first line of its docstring."""
    lines = ["| you call | for |", "|---|---|"]
    for link, name in re.findall(r"(\[[^\]]+\]\[(mezzotint\.[\w.]+)\])", links):
        lines.append(f"| {link} | {summary(name)} |")
    return "\n".join(lines)


def in_order(package: str, first: list[str]) -> list[str]:
    """Public names as a user meets them: those that the page names, what is called, its results, what papers say."""

    def rank(name: str) -> tuple[int, int]:
        last = name.rsplit(".", 1)[-1]
        kind = (
            3
            if last.startswith("published_")
            else 2
            if last.isupper()
            else 1
            if last[:1].isupper()
            else 0
        )
        return (first.index(name), 0) if name in first else (len(first), kind)

    return sorted(public_names(package), key=rank)


def reproductions() -> dict[str, str]:
    """name -> title of everything that can be reproduced."""
    from mezzotint.papers import catalogue

    def numbers(name: str) -> list[int | str]:
        return [int(part) if part.isdigit() else part for part in _runs(name)]

    return {name: catalogue.summary(name) for name in sorted(catalogue.figures(), key=numbers)}


def _runs(name: str) -> list[str]:
    """Digits and the rest by turns, so that figure10 comes after figure9."""
    return re.split(r"(\d+)", name)


def gallery() -> str:
    """Every reproduction, paper by paper: its stored figure or numbers first, then what to know, and its command."""
    parts = []
    for paper, heading in PAPERS.items():
        parts.append(f"## {heading}")
        named = {
            name: title for name, title in reproductions().items() if name.split("-")[0] == paper
        }
        parts += [_shown(name, title) for name, title in named.items()]
    return "\n\n".join(parts)


def _shown(name: str, title: str) -> str:
    heading, command = f"### {name}", f"`mezzotint reproduce {name}`"
    stored = RESULTS / f"{name}.json"
    if not stored.is_file():
        return "\n\n".join([heading, title, f"{command} computes it; no result is stored here."])
    facts = json.loads(stored.read_text(encoding="utf-8"))
    parts = [heading]
    picture = stored.with_suffix(".png")
    if picture.is_file():
        wide, high = struct.unpack(">II", picture.read_bytes()[16:24])  # where every PNG says so
        attribute = "{ .wide }" if wide > 2 * high else ""
        parts.append(f"[![{facts['title']}](results/{name}.png){attribute}](results/{name}.png)")
    else:
        parts.append(f"**{facts['title']}**")
    made, took = facts.get("made"), f"{command} computes it."
    if made is not None:
        took = f"{command} took {made['seconds']} s on {made['computed']} ({made['platform']})."
    parts.append(f"{facts['note']} {took}")
    rows = [{key: row[key] for key in row if key != "runs"} for row in facts["rows"]]
    if len(rows) <= MOST_ROWS:
        parts.append(_table(rows))
    else:
        parts.append(f"[All {len(rows)} rows](results/{name}.json)")
    return "\n\n".join(parts)


def verbs() -> str:
    """The help of every verb, as the command line prints it at 80 columns."""
    import contextlib
    import io

    from mezzotint.cli import application

    program = application._command((*application.VERBS, *application.VERB_FAMILIES))
    parts = []
    for name, verb in program.commands.items():
        inner = [f"{name} {word}" for word in getattr(verb, "commands", {})]
        for words in [name, *inner]:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                application.run([*words.split(), "--help"])
            level = "###" if " " in words else "##"
            parts.append(f"{level} {words}\n\n```text\n{printed.getvalue().rstrip()}\n```")
    return "\n\n".join(parts)


def benchmarks() -> str:
    """The scripts and what the first line of each says."""
    lines = ["| script | what it measures |", "|---|---|"]
    for path in sorted((SOURCE.parent / "benchmarks").glob("*.py")):
        words = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").split("\n")[
            0
        ]
        lines.append(f"| `benchmarks/{path.name}` | {words} |")
    return "\n".join(lines)


def measured(name: str) -> str:
    """How something was measured, and its table, with its continuations."""
    tables = json.loads(TABLES.read_text(encoding="utf-8"))
    return "\n\n".join(_measured_table(tables[part]) for part in measured_parts(name, tables))


def measured_parts(name: str, tables: dict[str, Any]) -> list[str]:
    """The table of this name and its continuations, in their order."""
    continued = re.compile(rf"{re.escape(name)}(, \d+)?")
    return [part for part in tables if continued.fullmatch(part)]


def _measured_table(table: dict[str, Any]) -> str:
    rule = ["---"] * len(table["headings"])
    lines = (table["headings"], rule, *table["rows"])
    rows = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    return f"{table.get('measured', '')}\n\n{rows}".lstrip()


def held(name: str) -> str:
    """A table of `docs/tables`, with links as a page beside that folder has them."""
    text = (RESULTS.parent / "tables" / f"{name}.md").read_text(encoding="utf-8")
    return text.strip().replace("](../", "](")


def subpackages() -> str:
    """Links to the pages of the API, with what each subpackage holds, as CONTRIBUTING.md says it."""
    text = (SOURCE.parent / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = ["- [mezzotint](mezzotint.md): `Mechanism`, the central object, and the errors"]
    for name, contents in SUBPACKAGE.findall(text):
        if (RESULTS.parent / "api" / f"{name}.md").is_file():
            lines.append(f"- [{name}]({name}.md): {contents}")
    return "\n".join(lines)


def proofs() -> str:
    """Links to the proofs by their titles."""
    docs = Path(__file__).resolve().parent
    return "\n".join(
        f"- [{path.read_text(encoding='utf-8').splitlines()[0].lstrip('# ')}](proofs/{path.name})"
        for path in sorted((docs / "proofs").glob("*.md"))
    )


def notebooks() -> str:
    """The cells of every notebook, and where to take it from."""
    parts = []
    for path in sorted((Path(__file__).resolve().parent / "notebooks").glob("*.ipynb")):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            text = "".join(cell["source"]).replace("](../", "](")
            if cell["cell_type"] == "code":
                parts.append(f"```python\n{text}\n```")
                parts += [f"```text\n{printed}\n```" for printed in _printed(cell["outputs"])]
            else:
                parts.append(re.sub(r"^(#+) ", r"#\1 ", text, flags=re.MULTILINE))
        parts.append(f"[Take it as a notebook](notebooks/{path.name})")
    return "\n\n".join(parts)


def _printed(outputs: list[dict[str, Any]]) -> list[str]:
    """What a cell printed, as text."""
    texts = []
    for output in outputs:
        lines = output.get("text") or output["data"].get("text/plain", [])
        texts.append("".join(lines).rstrip())
    return texts


def _table(rows: list[dict[str, Any]]) -> str:
    names = list(
        dict.fromkeys(key for row in rows for key, value in row.items() if value not in (None, ""))
    )
    lines = [
        "| " + " | ".join(name.replace("_", " ") for name in names) + " |",
        "|---" * len(names) + "|",
    ]
    lines += ["| " + " | ".join(_cell(row.get(name)) for name in names) + " |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("<", "&lt;")


def on_config(config: Any) -> Any:
    """Called by mkdocs first: in the navigation a folder stands for its pages, and `*` for all that stand nowhere."""
    docs = Path(config["docs_dir"])
    _fill(config["nav"], docs, set(re.findall(r"[\w/-]+\.md", str(config["nav"]))))
    config["copyright"] = f"Mezzotint {version()}, Apache-2.0"
    return config


def version() -> str:
    """What the site is about: MEZZOTINT_VERSION if that is set, else the version of the sources."""
    project = tomllib.loads((SOURCE.parent / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    return os.environ.get("MEZZOTINT_VERSION", project["version"])


def _fill(nav: list[Any], docs: Path, named: set[str]) -> None:
    if "*" in nav:
        place = nav.index("*")
        nav[place : place + 1] = sorted({path.name for path in docs.glob("*.md")} - named)
    for entry in nav:
        for title, value in entry.items() if isinstance(entry, dict) else ():
            if isinstance(value, list):
                _fill(value, docs, named)
            elif (docs / value).is_dir():
                pages = sorted(path.name for path in (docs / value).glob("*.md"))
                entry[title] = [
                    f"{value}/{name}" for name in sorted(pages, key=lambda name: name != "index.md")
                ]


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for every page."""
    first = re.findall(r"\]\[(mezzotint\.[\w.]+)\]", markdown)
    filled = NAMES.sub(
        lambda match: "\n\n".join(f"::: {name}" for name in in_order(match[1], first)), markdown
    )
    filled = MOST_USED.sub(lambda match: most_used(match[1]), filled)
    for mark, fill in (
        (GALLERY, gallery),
        (BENCHMARKS, benchmarks),
        (PROOFS, proofs),
        (SUBPACKAGES, subpackages),
        (NOTEBOOKS, notebooks),
        (VERBS, verbs),
    ):
        filled = filled.replace(mark, fill()) if mark in filled else filled
    filled = HELD.sub(lambda match: held(match[1]), filled)
    filled = MEASURED.sub(lambda match: measured(match[1]), filled)
    return filled.replace(VERSION, f"of version {version()}")


def on_page_content(page_html: str, page: Any, **_: Any) -> str:
    """Called by mkdocs with the HTML of every page."""
    return typeset(page_html, page.file.src_path)


def on_post_page(output: str, **_: Any) -> str:
    """Called by mkdocs with every whole page: the theme's search has no name for those who do not see it."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')
