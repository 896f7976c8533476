"""The documentation site: every public name has its place, and it builds without a warning."""

from __future__ import annotations

import importlib
import itertools
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from browser import chromium
from mezzotint.cli import application
from mezzotint.papers import catalogue
from modules import load

ROOT = Path(__file__).resolve().parents[2]
ROOMS = [
    "families",
    "privacy",
    "design",
    "collect",
    "vectors",
    "smoothed",
    "training",
    "federated",
    "report",
    "kernel",
    "papers",
    "datasets",
]


screenshots = load(ROOT / "tools" / "screenshots.py")


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    pytest.importorskip("latex2mathml", reason="the extra `docs` is not installed")
    return load(ROOT / "docs" / "hooks.py")


def test_every_room_has_its_page() -> None:
    source = ROOT / "src" / "mezzotint"
    rooms = {path.name for path in source.iterdir() if (path / "__init__.py").is_file()}
    assert rooms - {"core", "cli"} == set(
        ROOMS
    )  # core is reached through `mezzotint`, cli has a page of its own
    for room in ROOMS:
        text = (ROOT / "docs" / "api" / f"{room}.md").read_text(encoding="utf-8")
        assert f"the names of `mezzotint.{room}`" in text


def test_links_to_names_lead_to_the_names_they_show() -> None:
    links = [
        (page.name, *link)
        for page in (ROOT / "docs").rglob("*.md")
        for link in re.findall(
            r"\[`([\w.]+)[^\]]*\]\[(mezzotint[\w.]*)\]", page.read_text(encoding="utf-8")
        )
    ]
    assert len(links) > 50
    assert [link for link in links if link[2].split(".")[-1] != link[1].split(".")[-1]] == []


@pytest.mark.parametrize(
    "room", ["families", "privacy", "design", "collect", "smoothed", "vectors"]
)
def test_public_names_are_listed_and_documented(room: str, hooks: ModuleType) -> None:
    package = importlib.import_module(f"mezzotint.{room}")
    listed = {
        name.removeprefix(f"mezzotint.{room}.") for name in hooks.public_names(f"mezzotint.{room}")
    }
    own = {
        name
        for name in dir(package)
        if getattr(getattr(package, name), "__module__", "").startswith("mezzotint.")
    }
    assert len(own) > 3
    assert own <= listed
    for name in own:
        assert getattr(package, name).__doc__, name


def test_names_are_filled_in(hooks: ModuleType) -> None:
    filled = hooks.on_page_markdown((ROOT / "docs/api/mezzotint.md").read_text(encoding="utf-8"))
    assert "::: mezzotint.Mechanism" in filled
    assert "::: mezzotint.collect" not in filled
    assert "mezzotint reproduce optm-table1" in hooks.on_page_markdown(hooks.GALLERY)


def test_the_help_of_every_verb_is_filled_in(hooks: ModuleType) -> None:
    page = hooks.on_page_markdown((ROOT / "docs" / "cli.md").read_text(encoding="utf-8"))
    for name in (*application.VERBS, *application.VERB_FAMILIES, "smoothed profile"):
        level = "###" if " " in name else "##"
        assert f"\n{level} {name}\n\n```text\nUsage: mezzotint {name} " in page
    assert "Values out of range: clip or error" in page


def test_no_placeholder_is_visible_to_whoever_reads_the_sources(hooks: ModuleType) -> None:
    pages = [
        "README.md",
        *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")),
    ]
    for page in pages:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert "{{" not in text, page
        filled = hooks.on_page_markdown(text)
        assert "On the site" not in filled, page
        assert "of this checkout" not in filled, page


def test_pages_name_tests_that_there_are() -> None:
    """Tables of the threat models say which test holds a cell: every name is that of a test."""
    sources = "".join(
        path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")
    )
    tests = set(re.findall(r"^def (test_\w+)\(", sources, re.MULTILINE))
    named = {
        (path.name, name)
        for path in (ROOT / "docs").rglob("*.md")
        for name in re.findall(r"`(test_[a-z0-9_]+)`", path.read_text(encoding="utf-8"))
    }
    assert "federated-threat-model.md" in {page for page, _ in named}
    assert {(page, name) for page, name in named if name not in tests} == set()


def test_every_page_is_in_the_navigation(hooks: ModuleType) -> None:
    docs = ROOT / "docs"
    nav = [{"Home": "index.md"}, {"Proofs": "proofs"}, {"How to": [{"Collect": "collect.md"}]}]
    nav.append({"In depth": ["vectors.md", "*"]})
    filled = hooks.on_config({"docs_dir": str(docs), "nav": nav})["nav"]
    assert filled[1]["Proofs"] == sorted(
        f"proofs/{path.name}" for path in (docs / "proofs").glob("*.md")
    )
    rest = filled[3]["In depth"]
    assert rest[0] == "vectors.md"
    assert {"index.md", "collect.md", *rest} == {path.name for path in docs.glob("*.md")}
    assert len(rest) == len(set(rest))


def test_every_reproduction_is_in_the_gallery(hooks: ModuleType) -> None:
    assert set(hooks.reproductions()) == set(catalogue.figures())
    assert all(hooks.reproductions().values())
    page = hooks.on_page_markdown(hooks.GALLERY)
    assert all(f"`mezzotint reproduce {name}`" in page for name in hooks.reproductions())


def test_what_is_not_stored_is_what_needs_data_that_nobody_ships(hooks: ModuleType) -> None:
    stored = {path.stem for path in (ROOT / "docs" / "results").glob("*.json")}
    assert set(hooks.reproductions()) - stored <= {"rqm-figure11"}
    assert stored <= set(hooks.reproductions())
    page = hooks.gallery()
    assert page.index("rqm-figure9") < page.index("rqm-figure10")
    whole = hooks.on_page_markdown((ROOT / "docs" / "gallery.md").read_text(encoding="utf-8"))
    assert whole.rindex("](results/") < whole.index("## Errata")


def test_errors_of_the_faq_are_errors_that_are_raised() -> None:
    sources = [
        path.read_text(encoding="utf-8") for path in (ROOT / "src" / "mezzotint").rglob("*.py")
    ]
    headings = re.findall(
        r"^## (.*)$", (ROOT / "docs" / "faq.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    quoted = [
        part
        for heading in headings
        for quote in re.findall(r'"([^"]+)"', heading)
        for part in quote.split("...")
    ]
    assert len(quoted) > 8
    for part in quoted:
        words = part.strip(" :=")
        assert any(words in source for source in sources), words


def test_formulas_are_drawn_and_unknown_commands_are_refused(hooks: ModuleType) -> None:
    page = r"""<p>as <span class="arithmatex">\(2\log |x'| \le -1\)</span></p>"""
    drawn = hooks.typeset(page, "page.md")
    assert drawn.startswith('<p>as <math xmlns="http://www.w3.org/1998/Math/MathML"')
    root = ElementTree.fromstring(drawn)
    assert "".join(root.itertext()) == "as 2log|x\u2032|\u2264\u22121"
    operators = {
        element.text: element.attrib
        for element in root.iter("{http://www.w3.org/1998/Math/MathML}mo")
    }
    assert operators["\u2212"]["form"] == "prefix"
    assert operators["|"]["lspace"] == "0"
    with pytest.raises(ValueError, match="nosuchthing"):
        hooks.typeset(r'<span class="arithmatex">\(\nosuchthing{x}\)</span>', "page.md")


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docs" / "proofs").glob("*.md")), ids=lambda path: path.stem
)
def test_proofs_are_typeset(path: Path, hooks: ModuleType) -> None:
    text = path.read_text(encoding="utf-8")
    formulas = re.findall(r"\$\$(.+?)\$\$|\$(.+?)\$|\\\((.+?)\\\)|\\\[(.+?)\\\]", text, re.DOTALL)
    assert len(formulas) > 10
    for formula in map("".join, formulas):
        hooks.typeset(rf'<span class="arithmatex">\({formula}\)</span>', path.name)
    prose = re.sub(
        r"\$\$.+?\$\$|\$.+?\$|\\\(.+?\\\)|\\\[.+?\\\]|```.+?```|`[^`]+`", "", text, flags=re.DOTALL
    )
    prose = re.sub(r"(?m)^ {4,}.*$|\]\([^)]*\)", "", prose)  # files and code, links
    assert (
        re.findall(r"<=|>=|\^|\b[A-Za-z]_[A-Za-z0-9]\b|sqrt\(|sum_|integral of \w+ d", prose) == []
    )


def test_names_that_are_used_most_are_shown_with_the_first_sentence_of_their_docstrings(
    hooks: ModuleType,
) -> None:
    assert hooks.summary("mezzotint.collect.estimate").startswith("Mean, variance and, on request")
    assert hooks.summary("mezzotint.training.audit").startswith("Attacks on our own claims")
    with pytest.raises(ValueError, match="nothing: not found"):
        hooks.summary("mezzotint.collect.nothing")
    pages = [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "api").glob("*.md")]
    lists = [links for page in pages for links in hooks.MOST_USED.findall(page)]
    assert len(lists) > 8
    for links in lists:
        _, _, *rows = hooks.most_used(links).splitlines()
        assert len(rows) == links.count("][mezzotint")
        assert all(row.endswith((". |", ") |", "? |")) for row in rows), rows


def test_an_api_page_begins_with_what_it_names(hooks: ModuleType) -> None:
    names = hooks.in_order("mezzotint.families", ["mezzotint.families.rqm"])
    assert names[0] == "mezzotint.families.rqm"
    assert set(names) == set(hooks.public_names("mezzotint.families"))
    published = [name.rsplit(".", 1)[-1].startswith("published_") for name in names]
    assert published == sorted(published)


def test_headings_of_docstrings_become_paragraphs() -> None:
    pytest.importorskip("griffe", reason="the extra `docs` is not installed")
    docstrings = load(ROOT / "docs" / "docstrings.py")
    written = """Draws.

Arguments:
    inputs: at least one.
Returns:
    The reports.

Guarantees: as many as inputs, and
    in their order.
Edge cases:
    None.

    An empty input has none.
Source: a paper.

The rest."""
    drawn = """Draws.

Arguments:
    inputs: at least one.

Returns:
    The reports.


**Guarantees:** as many as inputs, and
in their order.

**Edge cases:**
None.

An empty input has none.

**Source:** a paper.

The rest."""
    assert docstrings.paragraphs(written) == drawn


def test_powers_in_docstrings_are_not_bold() -> None:
    pytest.importorskip("griffe", reason="the extra `docs` is not installed")
    docstrings = load(ROOT / "docs" / "docstrings.py")
    written = (
        "Of 2**32 units, `2**31`.\n\nExample:\n    >>> 2**3, '2**3'\n    (8, '2**3')\n\nNot **so**."
    )
    drawn = docstrings.paragraphs(written)
    assert drawn.startswith(r"Of 2\*\*32 units, `2**31`.")
    assert ">>> 2**3, '2**3'\n    (8, '2**3')" in drawn
    assert drawn.endswith("Not **so**.")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the extra `docs` is not installed")
    folder = tmp_path_factory.mktemp("site") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False
    )
    assert built.returncode == 0, built.stderr + built.stdout
    return folder


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_holds_every_name(
    site: Path, hooks: ModuleType
) -> None:
    for room in ["", *ROOMS]:
        package = f"mezzotint.{room}".rstrip(".")
        page = (site / "api" / (room or "mezzotint") / "index.html").read_text(encoding="utf-8")
        for name in hooks.public_names(package):
            assert f'id="{name}"' in page, name
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "fonts.googleapis" not in text
        assert 'class="arithmatex"' not in text, page
        assert not re.search(
            r'<details class="(guarantees|edge-cases|sources?|returns|raises)"', text
        ), page
    assert (site / "proofs" / "tables" / "index.html").read_text(encoding="utf-8").count(
        "<math "
    ) > 50


@pytest.mark.slow
@pytest.mark.parametrize(
    "page",
    [
        "",
        "data-engineer/",
        "ml-engineer/",
        "notebooks/",
        "accounting/",
        "proofs/sums-l2/",
        "gallery/",
        "api/privacy/",
    ],
)
def test_pages_fit_their_window_ask_nobody_and_can_be_read_by_everyone(
    page: str, site: Path, tmp_path: Path
) -> None:
    with screenshots.serve(site) as address, chromium() as session:
        for width, scheme in itertools.product((390, 1280), screenshots.SCHEMES):
            shot = tmp_path / f"{width}-{scheme}.png"
            assert (
                screenshots.photograph(
                    session, f"{address}/{page}", shot, width=width, scheme=scheme
                )
                == []
            )
            background = session.execute_script(
                "return getComputedStyle(document.body).backgroundColor"
            )
            brightness = sum(map(float, re.findall(r"[\d.]+", background)[:3])) / 3
            assert (brightness > 200) == (scheme == "light"), background
