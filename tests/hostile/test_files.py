"""Files that are damaged, forged or of another kind: every verb names what is wrong and ends with status 2 or 1.

Each case (`damaged.py`) takes a file that mezzotint wrote, damages it, and gives it to a verb. Nothing may raise, one
line on standard error must say what is wrong, and a file that is no longer what was written must not pass `verify`.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mezzotint as mz
from hostile.damaged import NUMBERS, VERBS, case, table
from mezzotint.cli import run
from mezzotint.kernel.units import MAX_TEXT

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """One whole file of every kind."""
    folder = tmp_path_factory.mktemp("originals")
    mechanism = mz.families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4)
    mechanism.save(folder / "m.json")
    mz.vectors.ranked_codebook(dimension=4, bits=2, epsilon=2.0).save(folder / "ranked.json")
    claim = mz.kernel.ExactClaim(
        release=mz.kernel.ExactRelease(observer="reports", tables=((mechanism.sha256, 1),)),
        statement={"kind": "dp", "epsilon": "9", "delta": "0"},
    )
    proof = {"kind": "ratio", "version": 1, "claim_sha256": claim.sha256, "precision": 128}
    text = mz.kernel.write_claim(claim, proof | {"tables": [mechanism.canonical()]})
    (folder / "claim.json").write_text(text, encoding="utf-8")
    values = np.random.default_rng(1).uniform(0, 10, 60)
    pq.write_table(pa.table({"x": values}), folder / "in.parquet")
    (folder / "in.csv").write_text("x\n" + "\n".join(map(str, values)) + "\n", encoding="utf-8")
    charged = {"ledger": folder / "ledger.jsonl", "budget": 99.0}
    for name in ("reports.parquet", "reports.csv", "reports.csv.gz"):
        mz.collect.privatize(
            folder / "in.parquet", folder / name, column="x", mechanism=mechanism, **charged
        )
    counts = mz.collect.read_counts(folder / "reports.parquet")
    mz.collect.save_counts(counts, folder / "counts.json")
    lines = [
        {
            "steps": 2,
            "model": "logreg",
            "data": "records",
            "method": "dp-sgd",
            "delta": 1e-5,
            "seed": None,
        },
        {
            "step": 1,
            "loss": 0.7,
            "epsilon": 0.5,
            "train_accuracy": 0.5,
            "test_accuracy": 0.5,
            "seconds": 1.0,
        },
    ]
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _run(arguments: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(arguments)
    return status, out.getvalue(), err.getvalue()


def _case(number: int, originals: dict[str, bytes], folder: Path) -> None:
    drawn = case(number)
    name, (verb, *options) = drawn.name, drawn.verb
    body = drawn.damage.apply(originals[name], drawn.dice)
    (folder / name).write_bytes(body)
    out = (
        []
        if verb in ("show", "verify", "account", "estimate", "ledger")
        else ["--out", f"out{number}.{_ending(verb)}"]
    )
    status, said, complained = _run([verb, name, *options, *out])
    context = (
        f"case {number}: {verb} {name}, {drawn.damage.name}\n{said[-300:]}\n{complained[-300:]}"
    )
    assert status in (0, 1, 2), context
    assert "Traceback" not in said + complained, context
    lines = [
        line for line in complained.splitlines() if not line.startswith("mezzotint: warning: ")
    ]
    unreadable = said.startswith("UNREADABLE: ")  # what `verify` says on standard output
    assert len(lines) + unreadable == (status == 2), context
    assert all(line.startswith("mezzotint: ") for line in lines), context
    assert not {"\x1b", "\x00"} & set(complained), context
    assert status or not drawn.damage.refused, context
    if status:
        assert not out or not (folder / out[1]).exists(), context
    if verb == "verify" and body != originals[name] and status == 0:
        assert _same(body, originals[name]), context


def _ending(verb: str) -> str:
    return "html" if verb == "report" else "parquet"


def _same(body: bytes, original: bytes) -> bool:
    """Whether what was changed is not part of any claim: white space, or a name."""
    loud = [json.loads(text.decode("utf-8-sig")) for text in (body, original)]
    for document in loud:
        document.pop("name", None)
    return loud[0] == loud[1]


def _cases(
    numbers: Iterable[int],
    originals: dict[str, bytes],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NO_COLOR", "1")
    for number in numbers:
        for name, body in originals.items():
            (folder / name).write_bytes(body)
        _case(number, originals, folder)


def test_damaged_files_are_named(
    originals: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _cases(NUMBERS["fast"], originals, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_five_hundred_damaged_files_are_named(
    part: int, originals: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _cases(NUMBERS["slow"][100 * part : 100 * (part + 1)], originals, tmp_path, monkeypatch)


def test_the_docs_have_the_table_of_these_cases():
    cases = [case(number) for numbers in NUMBERS.values() for number in numbers]
    assert {one.name for one in cases} == set(VERBS)
    stored = (ROOT / "docs" / "tables" / "damaged.md").read_text(encoding="utf-8")
    assert table(one.number for one in cases) == stored, "run python tools/fuzz_table.py"


ESCAPES = "\x1b[2J\x1b]0;x\x07\u202e\x85"
SURROGATE = "\ud800"


def _forged(originals: dict[str, bytes], source: str, **change: object) -> bytes:
    document = json.loads(originals[source]) | change
    return json.dumps(document).encode("utf-8")


@pytest.mark.parametrize("odd", [ESCAPES, SURROGATE])
def test_a_verdict_is_printable_whatever_a_file_or_its_name_holds(
    odd: str, originals: dict[str, bytes], tmp_path: Path
) -> None:
    """A terminal obeys what it is shown, and no stream takes half a character."""
    files = [
        _forged(originals, "m.json", **{odd: 1}),
        _forged(originals, "m.json", version=odd),
        _forged(originals, "m.json", certificate={odd: 1}),
        _forged(originals, "m.json", certificate={"epsilon": odd}),
        _forged(originals, "ranked.json", codebook={odd: 1}, table={odd: 1}),
        _forged(originals, "ranked.json", table={"T": odd}),
        _forged(originals, "claim.json", **{odd: 1}),
        _forged(originals, "claim.json", release={odd: 1}),
    ]
    reports = [mz.privacy.verify(tmp_path / f"no{odd}.json"), mz.privacy.verify(f"{odd}\0")]
    for number, content in enumerate(files):
        path = tmp_path / f"{number}.json"
        path.write_bytes(content)
        reports.append(mz.privacy.verify(path))
    for report in reports:
        assert not report.valid
        assert str(report).isprintable()
        assert str(report).isascii()


def test_verify_reads_no_more_of_a_file_than_it_may_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of 4 GB that holds nothing, which a whole read would need memory for."""
    path = tmp_path / "sparse.json"
    with path.open("wb") as file:
        file.truncate(2**32)
    monkeypatch.setattr(Path, "read_bytes", None)
    monkeypatch.setattr(Path, "read_text", None)
    report = mz.privacy.verify(path)
    assert report.unreadable
    assert "longer than 67108864 bytes" in str(report)


def test_a_table_larger_than_a_claim_is_verified(tmp_path: Path) -> None:
    """As 1,000 categories make: 20 MB."""
    row = [2**20 + shift % 2 * 2 - 1 for shift in range(2**12)]
    rows = [row if number % 2 else row[::-1] for number in range(600)]
    mechanism = mz.Mechanism(knots=range(600), levels=range(2**12), weights=rows)
    path = tmp_path / "large.json"
    mechanism.save(path)
    assert path.stat().st_size > MAX_TEXT
    report = mz.privacy.verify(path)
    assert report.valid
    assert report.epsilon_upper == mechanism.epsilon


@pytest.mark.parametrize(
    "content", [b"", b"\xff\xfe\x80", b"[]", b"{}", b'{"format":"mezzotint-claim"}', b"PK\3\4"]
)
def test_verify_ends_with_2_where_nothing_could_be_read(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(content)
    assert _run(["verify", str(path)])[0] == 2
    status, out, _ = _run(["verify", str(path), "--json"])
    assert status == 2
    assert json.loads(out)["valid"] is False
