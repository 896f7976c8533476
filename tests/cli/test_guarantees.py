"""Every number called epsilon or delta, wherever it is shown, says to whom, and whether the kernel checked it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click import Context
from rich.console import Console
from typer.main import get_command

from cli.files import save_column, save_mechanism
from mezzotint import Mechanism, kernel, privacy, vectors
from mezzotint.cli import app, run
from mezzotint.cli.tables import TerminalTable

Invoke = Callable[..., Any]
ROOT = Path(__file__).resolve().parents[2]

NUMBER = re.compile(
    r"(?:\b(?:epsilon|delta)\b|ε|δ)(?:\s*(?:=|<=|<|:|is|of|at most|about|\|)?\s*)\**(?:[-+]?\d|log\()"
    r"|\(\d[\d.e-]*, ?\d[\d.e-]*\)-(?:DP|differential)"
    # A column with that name and a number below it, in a table of a page or of a terminal.
    r"|(?m:^\|[^\n]*(?:\b(?:epsilon|delta)\b|ε|δ)[^\n]*\n\|[-:| ]+\|\n\|[^\n]*\d)"
    r"|┃[^┡]*\b(?:epsilon|delta)\b[^┡]*┡[━╇]*┩[^\d┃]*\d"
)
STATUS = re.compile(r"\b(certified|computed|simulation|not private)\b", re.IGNORECASE)
OBSERVER = re.compile(
    r"observer\s+(of|that|reports|secure_sum|shuffled|model)|(to|against)\s+(anyone|whoever|somebody)|observer=|trust=|--observer",
    re.IGNORECASE,
)
KEYS = re.compile(r"^(epsilon|delta|.*_epsilon|log10_delta|renyi)$")
ASKED = {"epsilon_asked", "target_epsilon", "report_epsilon"}


def unnamed(value: Any, known: frozenset[str] = frozenset(), path: str = "") -> Iterator[str]:
    """Keys of a JSON value that hold an epsilon or delta without observer and certified around them."""
    if isinstance(value, dict):
        known = known | (value.keys() & {"observer", "trust", "certified"})
        for key, inner in value.items():
            asked = path.startswith((".asked", ".setting"))
            number = (
                KEYS.match(key)
                and key not in ASKED
                and not isinstance(inner, (dict, list, type(None)))
            )
            if number and not asked and not {"observer", "certified"} <= known:
                yield f"{path}.{key}"
            yield from unnamed(inner, known, f"{path}.{key}")
    elif isinstance(value, list):
        for inner in value:
            yield from unnamed(inner, known, path)


def bare(text: str) -> list[str]:
    """Numbers called epsilon or delta in a text that does not say to whom and whether they are certified."""
    found = NUMBER.findall(
        re.sub(r"--(?:epsilon|delta)[ =]\S+", "", text)
    )  # what a command asks for
    return (
        [] if not found or (STATUS.search(text) and OBSERVER.search(text)) else [text.strip()[:160]]
    )


def paragraphs(page: str) -> Iterator[str]:
    """What a reader takes in at once: each section under its heading; what stands before all speaks for all."""
    preface, *sections = re.split(r"(?m)^## ", page)
    yield preface
    yield from sections


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of every kind that a verb reads."""
    folder = tmp_path_factory.mktemp("made")
    mechanism, column = save_mechanism(folder), save_column(folder)
    vectors.ranked_codebook(dimension=16, epsilon=2.0, bits=4).save(folder / "ranks.json")
    privatize = ["privatize", column, "--mechanism", mechanism, "--column", "x"]
    charged = [*privatize, "--ledger", folder / "ledger.jsonl"]
    for words in (
        ["account", mechanism, "--rounds", "2", "--proof", folder / "claim.json"],
        [*privatize, "--out", folder / "reports.parquet"],
        [*charged, "--keep", "word", "--out", folder / "grouped.parquet"],
        [*charged, "--column", "id", "--out", folder / "pairs.parquet"],
    ):
        assert run([str(word) for word in words]) == 0
    return folder


@pytest.fixture
def files(tmp_path: Path, made: Path) -> dict[str, Path]:
    """Copies of them, by the names that `CALLS` uses, and places for what a verb writes."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    found = {
        "m": tmp_path / "m.json",
        "in": tmp_path / "in.parquet",
        "ledger": tmp_path / "ledger.jsonl",
    }
    found |= {name: tmp_path / f"{name}.json" for name in ("ranks", "claim")}
    found["run"] = tmp_path / "run.toml"
    budget = "budget = {noise_multiplier = 2.0, delta = 1e-5}"
    found["run"].write_text(f"data = 'breast-cancer'\nrun.steps = 3\n{budget}\n")
    found |= {name: tmp_path / f"{name}.parquet" for name in ("reports", "grouped", "pairs")}
    found["federation"] = tmp_path / "federation.toml"
    tables = "[data]\npopulation = 8\n[rounds]\ncount = 1\nclients_per_round = 8\n[mechanism]\nkind = 'table'\n"
    found["federation"].write_text(tables)
    return found | {
        "out": tmp_path / "out.html",
        "csv": tmp_path / "o.csv",
        "folder": tmp_path / "demo",
    }


CALLS: dict[str, tuple[str, ...]] = {
    "design": ("design", "--epsilon", "1", "--levels", "2"),
    "design, delta": ("design", "--epsilon", "1", "--levels=-3,3", "--delta", "1e-3"),
    "design, Renyi": ("design", "--epsilon", "1", "--levels=-4,4", "--alpha", "4"),
    "design, metric": ("design", "--epsilon", "1", "--levels=-3,3", "--metric", "absolute", "--knots", "5"),
    "design, family": ("design", "--epsilon", "1", "--family", "rqm"),
    "design, categories": ("design", "--epsilon", "1", "--categories", "a,b,c"),
    "show": ("show", "{m}"),
    "show, ranks": ("show", "{ranks}"),
    "verify": ("verify", "{m}"),
    "verify, ranks": ("verify", "{ranks}"),
    "verify, claim": ("verify", "{claim}"),
    "privatize": ("privatize", "{in}", "--column", "x", "--mechanism", "{m}", "--out", "{csv}", "--overwrite"),
    "privatize, two": (
        "privatize", "{in}", "--column", "x", "--column", "id", "--mechanism", "{m}", "--out", "{csv}", "--overwrite",
    ),
    "estimate": ("estimate", "{reports}"),
    "estimate, groups": ("estimate", "{grouped}", "--by", "word"),
    "estimate, pairs": ("estimate", "{pairs}", "--column", "x_code", "--column", "id_code"),
    "ledger": ("ledger", "{ledger}", "--budget", "9"),
    "plan": ("plan", "--epsilon", "1", "--levels", "2", "--people", "500"),
    "compare": ("compare", "--epsilon", "1", "--bits", "1"),
    "account": ("account", "{m}", "--rounds", "3"),
    "account, sum": ("account", "{m}", "--observer", "secure_sum", "--clients", "20", "--delta", "1e-3"),
    "account, ranks": ("account", "{ranks}", "--rounds", "3"),
    "advise": ("advise", "--clients-per-round", "50", "--epsilon", "4", "--observer", "reports", "--dimension", "2"),
    "report": ("report", "{m}", "--out", "{out}", "--overwrite"),
    "report, reports": ("report", "{reports}", "--out", "{out}", "--overwrite"),
    "account, shuffled": ("account", "{m}", "--observer", "shuffled", "--clients", "1000", "--delta", "1e-6"),
    "demo": ("demo", "--folder", "{folder}"),
    "train": ("train", "{run}"),
    "train, seeded": ("train", "{run}", "--set", "run.seed=1"),
    "federate": ("federate", "{federation}"),
    "reproduce": ("reproduce", "smoothed-figure1"),
    "smoothed, elections": ("smoothed", "elections"),
    "smoothed, gradients": ("smoothed", "gradients", "--n", "100", "--epsilon", "1", "--draws", "2"),
    "smoothed": ("smoothed", "profile", "--counts", "205,190", "--loss-rate", "0.01", "--epsilon", "1"),
    "smoothed, expected": (
        "smoothed", "expected", "--n", "50", "--vertices", "0.3", "--loss-rate", "0.1", "--epsilon", "1",
    ),
}  # fmt: skip


SLOW = (
    "advise", "report", "report, reports", "demo", "train", "train, seeded", "federate", "reproduce",
    "smoothed, elections", "smoothed, gradients",
)  # fmt: skip
NEEDS = {"train": "torch", "federate": "flwr"}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in CALLS]
)
def test_what_verbs_print_says_to_whom_and_whether_it_was_checked(
    invoke: Invoke, files: dict[str, Path], name: str
) -> None:
    if CALLS[name][0] in NEEDS:
        pytest.importorskip(NEEDS[CALLS[name][0]])
    words = [word.format(**{key: str(path) for key, path in files.items()}) for word in CALLS[name]]
    for more in ([], ["--json"]):
        outcome = invoke(*words, *more)
        assert outcome.status == 0, outcome.err
        if more:
            assert not list(unnamed(json.loads(outcome.out)))
        else:
            # A table and its title are one thing; elsewhere each line is.
            parts = (
                [outcome.out]
                if "━" in outcome.out or "──" in outcome.out
                else outcome.out.splitlines()
            )
            assert not [one for part in parts for one in bare(" ".join(part.split()))]


UNPRINTED = {
    "explore",
    "roster",
}  # serves pages until it is stopped: tests/explore reads them; promises nothing


def test_every_verb_is_among_the_calls() -> None:
    group: Any = get_command(app)
    verbs = set(group.list_commands(Context(group)))
    assert {call[0] for call in CALLS.values()} == verbs - UNPRINTED
    # Whatever has the option --proof is asked for one.
    proving = {
        verb
        for verb in verbs
        if any(one.name == "proof" for one in group.get_command(Context(group), verb).params)
    }
    assert {call[0] for call in PROOFS.values()} == proving


@pytest.mark.parametrize(
    "page",
    sorted(
        str(path.relative_to(ROOT))
        for path in (*ROOT.glob("docs/notebooks/*.ipynb"), *ROOT.glob("docs/api/*.md"))
    ),
)
def test_notebooks_and_the_reference_say_it_too(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    if page.endswith(".md"):
        parts = [text]
    else:
        cells = json.loads(text)["cells"]
        shown = [output.get("text", []) for cell in cells for output in cell.get("outputs", [])]
        parts = [
            "".join(lines)
            for lines in [*(c["source"] for c in cells if c["cell_type"] == "markdown"), *shown]
        ]
    assert not [one for part in parts for one in bare(part)]


def unsaid(page: str) -> list[str]:
    """What is bare on a page; a preface that says to whom, and whether checked, speaks for all of it."""
    preface, *sections = paragraphs(page)
    if not bare(preface) and STATUS.search(preface) and OBSERVER.search(preface):
        return []
    return [one for part in (preface, *sections) for one in bare(part)]


PAGES = [
    ROOT / "README.md",
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("docs/proofs/*.md")),
]


@pytest.mark.parametrize("page", [str(path.relative_to(ROOT)) for path in PAGES])
def test_pages_say_it_too(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not unsaid(text)
    # Whatever holds a number would be found without either kind of words.
    for words in (STATUS, OBSERVER):
        assert bool(unsaid(words.sub("", text))) == bool(NUMBER.search(text))


def test_numbers_of_the_gallery_stand_on_a_page_that_says_it() -> None:
    """`docs/results` is drawn below the gallery's preface, which is what `unsaid` reads of it."""
    preface = next(paragraphs((ROOT / "docs/gallery.md").read_text(encoding="utf-8")))
    stored = [
        path
        for path in ROOT.glob("docs/results/*.json")
        if list(unnamed(json.loads(path.read_text())))
    ]
    assert stored
    assert STATUS.search(preface)
    assert OBSERVER.search(preface)


PROOFS: dict[str, tuple[str, ...]] = {
    "design": ("design", "--epsilon", "1", "--family", "rqm"),
    "design, delta": ("design", "--epsilon", "1", "--levels=-3,3", "--delta", "1e-3"),
    "design, categories": ("design", "--epsilon", "1", "--categories", "4"),
    "account": ("account", "{m}", "--rounds", "2"),
    "account, ranks": ("account", "{ranks}", "--rounds", "2", "--delta", "0"),
    "privatize": ("privatize", "{in}", "--column", "x", "--mechanism", "{m}", "--out", "{csv}"),
    "privatize, two": ("privatize", "{in}", "--column", "x", "--column", "id", "--mechanism", "{m}", "--out", "{csv}"),
    "train": ("train", "{run}"),
    "federate": ("federate", "{federation}"),
}  # fmt: skip


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in ("train", "federate") else [])
        for name in PROOFS
    ],
)
def test_verbs_write_proofs_that_verify_accepts(
    invoke: Invoke, files: dict[str, Path], tmp_path: Path, name: str
) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    words = [
        word.format(**{key: str(path) for key, path in files.items()}) for word in PROOFS[name]
    ]
    proof = tmp_path / "proof.json"
    outcome = invoke(*words, "--proof", proof, "--json")
    assert outcome.status == 0, outcome.err
    if not proof.exists():  # said so, by the name of what has no proof
        assert name == "federate"
        assert "no proof was written: " in outcome.err
        assert outcome.json["central"]["certified"] is False
        return
    checked = invoke("verify", proof, "--json")
    assert checked.status == 0
    assert checked.json["certified"] is True


def test_what_has_no_proof_writes_none_and_says_why(
    invoke: Invoke, files: dict[str, Path], tmp_path: Path
) -> None:
    proof = tmp_path / "proof.json"
    seeded = (
        "privatize",
        files["in"],
        "--column",
        "x",
        "--mechanism",
        files["m"],
        "--out",
        files["csv"],
        "--seed",
        1,
    )
    outcome = invoke(*seeded, "--proof", proof)
    assert outcome.status == 2
    assert "nothing to prove" in outcome.err
    l2 = ("--observer", "secure_sum", "--clients", 30, "--clip-norm", 5)
    outcome = invoke("account", files["m"], *l2, "--proof", proof, "--json")
    assert outcome.status == 1
    assert "L2 bound" in outcome.err
    assert outcome.json["certified"] is False
    assert not proof.exists()


def test_the_collectors_see_what_they_should() -> None:
    for text in (
        "epsilon 1.5 per report",
        "at epsilon = 2",
        "delta <= 1e-6",
        "(1.2, 1e-6)-differential privacy",
    ):
        assert bare(text)
        assert bare(f"{text}, certified")
        assert bare(f"{text}, to an observer of every single report")
        assert not bare(f"{text}, computed, to an observer of every single report")
    for table in ("| n | epsilon |\n|---|---|\n| 3 | 1.5 |", "┏━┓ ┃ delta ┃ ┡━╇━┩ │ 0.1 │ └─┘"):
        assert bare(table)
        assert bare(f"certified\n{table}")
        assert not bare(f"certified, to an observer of the sum\n{table}")
    assert not bare("| epsilon | what |\n|---|---|\n| small | good |")
    assert list(unnamed({"a": [{"epsilon": 1.0}]}))
    assert list(unnamed({"observer": "reports", "a": {"delta": 0.1}}))
    assert not list(unnamed({"observer": "reports", "certified": True, "a": [{"epsilon": 1.0}]}))


def test_what_the_kernel_refuses_is_not_called_certified(mechanism_file: Path) -> None:
    mechanism = Mechanism.load(mechanism_file)
    claim = privacy.report_claim(mechanism)
    assert claim.certified
    assert claim.epsilon == mechanism.epsilon
    assert isinstance(claim.checked, kernel.ExactClaim)
    assert str(claim).startswith("Certified: ")
    # The stamp is the kernel's, about this number: a smaller one loses it.
    less = replace(claim, epsilon=claim.epsilon * (1 - 1e-9))
    assert not less.certified
    assert str(less).startswith("Computed: ")
    assert (
        privacy.check_report(mechanism, "ratio", epsilon=claim.epsilon * (1 - 1e-9), delta=0.0)
        is False
    )


DIGITS = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?")
TIMES = re.compile(r"[\d.e-]+ s\b|[\d,]+(?: [a-z]+)?/s\b|seconds\s+[\d.e-]+")
BOXES = re.compile(r"[\u2500-\u257f]+")


def _headings(out: str) -> list[str]:
    """What the heads of all tables say, column by column."""
    found: list[str] = []
    for head in re.findall(r"^┏.*?\n(.*?)^┡", out, re.MULTILINE | re.DOTALL):
        lines = [line.split("┃")[1:-1] for line in head.splitlines()]
        found += [
            " ".join(part.strip() for part in parts if part.strip())
            for parts in zip(*lines, strict=True)
        ]
    return [heading for heading in found if heading]


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else [])
        for name in CALLS
        if name != "demo"
    ],
)
def test_eighty_columns_cut_no_number_and_repeat_no_heading(
    invoke: Invoke, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if CALLS[name][0] in NEEDS:
        pytest.importorskip(NEEDS[CALLS[name][0]])
    words = [word.format(**{key: str(path) for key, path in files.items()}) for word in CALLS[name]]
    monkeypatch.setenv("COLUMNS", "80")
    narrow = invoke(*words).out
    assert "…" not in narrow
    tables = [line for line in narrow.splitlines() if BOXES.match(line)]
    assert all(len(line) <= 80 for line in tables)
    headings = _headings(narrow)
    assert len(headings) == len(set(headings))
    if name in ("train", "federate", "smoothed, gradients"):  # these draw anew
        return
    monkeypatch.setenv("COLUMNS", "400")
    wide = invoke(*words).out
    cells = [set(DIGITS.findall(TIMES.sub("", BOXES.sub(" ", out)))) for out in (narrow, wide)]
    assert cells[0] == cells[1]
    assert set(headings) <= set(_headings(wide))


def test_a_table_that_is_too_wide_goes_on_below_with_its_rows_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    reason = "for a reason that takes more room than any number does"
    numbers = ([f"{(i + 1) * 1.2345e-105 * 10**j:.4e}" for j in range(6)] for i in range(2))
    rows = [(f"row {i}", *cells, reason) for i, cells in enumerate(numbers)]
    columns = ("who", *(f"column {i}" for i in range(6)), "why")
    table = TerminalTable(columns, rows, left=("who", "why"), title="numbers")
    Console(width=80, no_color=True).print(table)
    out = capsys.readouterr().out
    assert out.count("e-1") == 12
    assert out.count("row 0 ") == 2
    assert f"row 0, row 1: {reason}" in " ".join(out.split())
    assert _headings(out) == ["who", *(f"column {i}" for i in range(6))]
    Console(width=200, no_color=True).print(table)
    assert _headings(capsys.readouterr().out)[-1] == "why"


@pytest.mark.parametrize("width", range(52, 110, 3))
def test_headings_break_before_any_cell_or_border_is_cut(
    capsys: pytest.CaptureFixture[str], width: int
) -> None:
    cells = ("one-bit randomized response", "1.000000", "2", "151.29", "148.76 .. 153.82")
    table = TerminalTable(
        ("mechanism", "epsilon", "bits", "mean (minutes)", "95 % interval"), [cells]
    )
    Console(width=width, no_color=True).print(table)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= width
    assert all(line[-1] in "┓┃┩│┘" for line in lines)
    assert all(any(f" {cell} " in line for line in lines) for cell in cells)


def test_remarks_that_few_rows_have_stand_below_a_table_that_is_too_wide(
    capsys: pytest.CaptureFixture[str],
) -> None:
    columns = ("mechanism", "note")
    table = TerminalTable(columns, (("optimal", ""), ("imvu", "biased"), ("rqm", "")), left=columns)
    Console(width=40, no_color=True).print(table)
    assert "note" in capsys.readouterr().out
    Console(width=20, no_color=True).print(table)
    narrow = capsys.readouterr().out
    assert "note" not in narrow
    assert narrow.splitlines()[-1] == "imvu: biased"


def test_a_proof_that_is_there_stays(
    invoke: Invoke, files: dict[str, Path], tmp_path: Path
) -> None:
    proof = tmp_path / "proof.json"
    assert invoke("account", files["m"], "--rounds", 3, "--proof", proof).status == 0
    before = proof.read_bytes()
    outcome = invoke("account", files["m"], "--proof", proof)
    assert outcome.status == 2
    assert "exists already" in outcome.err
    assert "--overwrite" in outcome.err
    assert proof.read_bytes() == before
    assert invoke("account", files["m"], "--proof", proof, "--overwrite").status == 0
    assert proof.read_bytes() != before
