"""Run ids, ledgers and finished folders: nothing counted, charged or drawn twice."""

from __future__ import annotations

import hashlib
import hmac
import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laws.registry import judges
from mezzotint import collect, families, privacy, report
from mezzotint.cli import run as run_verb
from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.folders import PartWriter
from mezzotint.collect.provenance import (
    IN_SEVERAL_GROUPS,
    REPEATED_IN_A_GROUP,
    REPEATED_REPORTS,
    SAME_PEOPLE,
    Provenance,
)
from mezzotint.core.errors import BudgetError, FileFormatError, ParameterError
from tolerances import FEW

MECHANISM = families.randomized_response(lower=0, upper=1, epsilon=0.5)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    pq.write_table(
        pa.table({"x": np.linspace(0, 1, 1000)}), tmp_path / "in.parquet", row_group_size=300
    )
    return tmp_path / "in.parquet"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("out", ["r.parquet", "r.csv", "r.csv.gz", "folder/"])
def test_the_same_reports_are_never_added_to_themselves(
    source: Path, tmp_path: Path, out: str
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        collect.privatize(
            source, f"{tmp_path}/{name}/{out}", column="x", mechanism=MECHANISM, block_rows=300
        )
    one, two = (collect.read_counts(tmp_path / name / out) for name in ("one", "two"))
    assert one.provenance.runs
    assert not one.provenance.runs & two.provenance.runs
    assert one.merge(two).n == 2000
    for again in (one, one.merge(two)):
        with pytest.raises(ParameterError, match=r"counts=run .*count twice"):
            one.merge(again)
    collect.save_counts(one, tmp_path / "c.json")
    with pytest.raises(ParameterError, match="count twice"):
        collect.load_counts(tmp_path / "c.json").merge(one)


@pytest.mark.parametrize("out", ["r.parquet", "r.csv", "folder/"])
def test_two_runs_about_the_same_rows_are_never_added(
    source: Path, tmp_path: Path, out: str
) -> None:
    options: dict[str, Any] = {"column": "x", "mechanism": MECHANISM, "block_rows": 300}
    (tmp_path / "copy").mkdir()
    moved = Path(shutil.copy(source, tmp_path / "copy" / "other.parquet"))
    changed = tmp_path / "changed.parquet"
    pq.write_table(pa.table({"x": np.linspace(0, 1, 999)}), changed)
    counts = []
    for name, given in (("one", source), ("two", moved), ("three", changed)):
        (tmp_path / name).mkdir()
        place = f"{tmp_path}/{name}/{out}"
        collect.privatize(given, place, ledger=tmp_path / "ledger.jsonl", **options)
        counts.append(collect.read_counts(place))
    one, two, three = counts
    assert one.merge(three).n == 1999
    with pytest.raises(ParameterError, match="the same rows twice"):
        one.merge(two)
    with pytest.raises(ParameterError, match="the same rows twice"):
        collect.read_counts(f"{tmp_path}/*[oe]/**/*[!n]")
    collect.save_counts(one.merge(three), tmp_path / "c.json")
    with pytest.raises(ParameterError, match="the same rows twice"):
        two.merge(collect.load_counts(tmp_path / "c.json"))


def test_a_fingerprint_is_keyed_by_the_ledgers_secret(source: Path, tmp_path: Path) -> None:
    """Whoever sees the reports cannot try sources; whoever keeps the ledger finds the runs of one."""
    found = []
    for name in ("a", "b"):
        ledger = tmp_path / f"{name}.jsonl"
        collect.privatize(
            source, tmp_path / f"{name}.parquet", column="x", mechanism=MECHANISM, ledger=ledger
        )
        ((fingerprint, run),) = collect.read_counts(tmp_path / f"{name}.parquet").provenance.sources
        (charge,) = privacy.Ledger(ledger).charges
        assert fingerprint in charge.release.description
        assert run in charge.release.identity
        key = bytes.fromhex((tmp_path / f"{name}.jsonl.key").read_text())
        digest = hashlib.sha256(source.read_bytes()).digest()
        assert (
            fingerprint
            == hmac.new(key, b"mezzotint source " + digest, hashlib.sha256).hexdigest()[:32]
        )
        found.append(fingerprint)
    assert found[0] != found[1]
    collect.privatize(
        source, tmp_path / "c.parquet", column="x", mechanism=MECHANISM
    )  # no ledger, no secret
    assert not collect.read_counts(tmp_path / "c.parquet").provenance.sources


def test_runs_that_begin_at_once_share_one_key(source: Path, tmp_path: Path) -> None:
    def run(index: int) -> frozenset[tuple[str, str]]:
        out = tmp_path / f"{index}.parquet"
        collect.privatize(
            source, out, column="x", mechanism=MECHANISM, ledger=tmp_path / "ledger.jsonl"
        )
        return collect.read_counts(out).provenance.sources

    with ThreadPoolExecutor(max_workers=8) as pool:
        sources = list(pool.map(run, range(8)))
    assert len({fingerprint for one in sources for fingerprint, _ in one}) == 1
    assert not list(tmp_path.glob(".*"))


def test_parts_of_one_run_add_up_to_it(source: Path, tmp_path: Path) -> None:
    collect.privatize(source, f"{tmp_path}/out/", column="x", mechanism=MECHANISM, block_rows=300)
    parts = [collect.read_counts(path) for path in sorted((tmp_path / "out").glob("part-*"))]
    assert len(parts) == 4
    total = parts[0]
    for part in parts[1:]:
        total = total.merge(part)
    whole = collect.read_counts(tmp_path / "out")
    assert (total.counts.tolist(), total.provenance.runs) == (
        whole.counts.tolist(),
        whole.provenance.runs,
    )
    with pytest.raises(ParameterError, match="count twice"):
        whole.merge(parts[2])


def test_memoised_and_bare_reports_name_no_run(source: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [0.5, 0.7], "id": [1, 2]}), tmp_path / "ids.parquet")
    memo = collect.Memo(users="id", key=bytes(32))
    collect.privatize(
        tmp_path / "ids.parquet", tmp_path / "r.csv", column="x", mechanism=MECHANISM, memo=memo
    )
    assert collect.read_counts(tmp_path / "r.csv").provenance.runs == frozenset()
    bare = CodeCounts(mechanism=MECHANISM, counts=np.array([3, 5]))
    assert bare.merge(bare).n == 16


@pytest.mark.parametrize("out", ["r.parquet", "folder/"])
def test_a_ledger_is_charged_before_and_refuses_beyond_its_budget(
    source: Path, tmp_path: Path, out: str
) -> None:
    path = tmp_path / "ledger.jsonl"
    options: dict[str, Any] = {"column": "x", "mechanism": MECHANISM, "ledger": path, "budget": 1.1}
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        collect.privatize(source, f"{tmp_path}/{name}/{out}", **options)
    assert privacy.Ledger(path).worst().epsilon == pytest.approx(2 * MECHANISM.epsilon, rel=FEW)
    (tmp_path / "c").mkdir()
    with pytest.raises(BudgetError):
        collect.privatize(source, f"{tmp_path}/c/{out}", **options)
    assert [one.name for one in (tmp_path / "c").rglob("*.parquet")] == []
    assert privacy.Ledger(path).worst().epsilon == pytest.approx(2 * MECHANISM.epsilon, rel=FEW)
    # Without a budget it is charged and not asked.
    collect.privatize(source, f"{tmp_path}/d.parquet", column="x", mechanism=MECHANISM, ledger=path)
    assert privacy.Ledger(path).worst().epsilon == pytest.approx(3 * MECHANISM.epsilon, rel=FEW)


@pytest.mark.parametrize("people", [None, "id"])
def test_memoised_runs_are_charged_in_full_though_their_reports_are_the_same(
    tmp_path: Path, people: str | None
) -> None:
    """As the pages on scale and accounting say: a ledger cannot see that nothing new was drawn."""
    pq.write_table(pa.table({"x": [0.1, 0.9], "id": ["ann", "bob"]}), tmp_path / "in.parquet")
    path, memo = tmp_path / "ledger.jsonl", collect.Memo(users="id", key=bytes(range(32)))
    options: dict[str, Any] = {"column": "x", "mechanism": MECHANISM, "memo": memo}
    charged: dict[str, Any] = {
        **options,
        "ledger": path,
        "charge_by": people,
        "budget": 1.1,
    }  # for two runs
    for name in ("a", "b"):
        collect.privatize(tmp_path / "in.parquet", tmp_path / f"{name}.parquet", **charged)
    with pytest.raises(BudgetError):
        collect.privatize(tmp_path / "in.parquet", tmp_path / "c.parquet", **charged)
    collect.privatize(
        tmp_path / "in.parquet", tmp_path / "c.parquet", **options
    )  # the remedy: charged once
    assert spent_by(path, "ann") == pytest.approx(2 * MECHANISM.epsilon, rel=FEW)
    reports = [pq.read_table(tmp_path / f"{name}.parquet") for name in "abc"]
    assert reports[0].equals(reports[1])
    assert reports[0].equals(reports[2])


def spent_by(ledger: Path, person: str) -> float:
    key = collect.load_memo_key(f"{ledger}.key")
    return privacy.Ledger(ledger).person_spent(person, key=key).epsilon


@judges(
    "collect.charging.Payment.receipt",
    "collect.charging.RunCharge.pay",
    "collect.charging.RunCharge.receipt",
)
@pytest.mark.parametrize("out", ["r.parquet", "folder/"])
def test_people_pay_for_their_own_rows(tmp_path: Path, out: str) -> None:
    """Ann has two rows, the others one: the second run of the same file is refused for her, and charges nobody."""
    pq.write_table(
        pa.table({"x": [0.1, 0.2, 0.3, 0.4], "id": ["ann", "bob", "ann", "eve"]}),
        tmp_path / "in.parquet",
    )
    pq.write_table(pa.table({"x": [0.1, 0.2], "id": ["bob", "dan"]}), tmp_path / "more.parquet")
    path = tmp_path / "ledger.jsonl"
    options: dict[str, Any] = {
        "column": "x",
        "mechanism": MECHANISM,
        "ledger": path,
        "charge_by": "id",
        "budget": 1.5,
    }
    for name in ("a", "b", "c", "d"):
        (tmp_path / name).mkdir()
    first = collect.privatize(tmp_path / "in.parquet", f"{tmp_path}/a/{out}", **options)
    assert first.reports == 4
    spent = {name: spent_by(path, name) for name in ("ann", "bob", "eve", "dan")}
    one = MECHANISM.epsilon
    assert spent == pytest.approx({"ann": 2 * one, "bob": one, "eve": one, "dan": 0.0}, rel=FEW)
    assert spent["ann"] >= 2 * one
    assert first.charged is not None
    assert (first.charged.people, first.charged.attempt) == (3, 1)
    assert first.charged.spent == spent["ann"]
    assert 2 * Fraction(one) <= Fraction(first.charged.epsilon) <= Fraction(first.charged.spent)
    assert first.charged.left == pytest.approx(1.5 - 2 * one, rel=FEW)
    assert Fraction(first.charged.left) <= Fraction(1.5) - 2 * Fraction(one)
    with pytest.raises(BudgetError, match="ann"):
        collect.privatize(tmp_path / "in.parquet", f"{tmp_path}/b/{out}", **options)
    assert [found.name for found in (tmp_path / "b").rglob("*.parquet")] == []
    assert spent_by(path, "eve") == pytest.approx(one, rel=FEW)
    collect.privatize(tmp_path / "more.parquet", f"{tmp_path}/c/{out}", **options)
    assert spent_by(path, "bob") == pytest.approx(2 * one, rel=FEW)
    # Without a budget everybody is charged and nobody asked.
    options["budget"] = None
    collect.privatize(tmp_path / "in.parquet", f"{tmp_path}/d/{out}", **options)
    assert spent_by(path, "ann") == pytest.approx(4 * one, rel=FEW)
    assert "id" not in pq.read_table(tmp_path / "a" / out).schema.names


def test_people_without_ids_or_without_a_ledger_are_refused(source: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [0.1, 0.2], "id": ["ann", None]}), tmp_path / "in.parquet")
    path = tmp_path / "ledger.jsonl"
    cases: tuple[tuple[Path, dict[str, Any], str], ...] = (
        (
            tmp_path / "in.parquet",
            {"ledger": path, "charge_by": "id"},
            "charge_by=id: data row 2 of in.parquet has no id",
        ),
        (source, {"ledger": path, "charge_by": "id"}, "id"),
        (source, {"charge_by": "id"}, "needs a ledger; name it"),
    )
    for given, options, words in cases:
        with pytest.raises(ParameterError, match=words):
            collect.privatize(
                given, tmp_path / "r.parquet", column="x", mechanism=MECHANISM, **options
            )
    assert not (tmp_path / "r.parquet").exists()


def test_a_resumed_run_is_charged_once(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.jsonl"
    options: dict[str, Any] = {
        "column": "x",
        "mechanism": MECHANISM,
        "ledger": path,
        "budget": 0.6,
        "block_rows": 300,
    }
    write, done = PartWriter.write, []

    def stop(self: PartWriter, block: Any, **options: Any) -> Any:
        if len(done) == 2:
            raise OSError("the disk is gone")
        done.append(block)
        return write(self, block, **options)

    with monkeypatch.context() as patched:
        patched.setattr(PartWriter, "write", stop)
        with pytest.raises(OSError, match="disk"):
            collect.privatize(source, f"{tmp_path}/out/", threads=1, **options)
    result = collect.privatize(source, f"{tmp_path}/out/", resume=True, **options)
    assert (result.reports, result.resumed) == (1000, 2)
    assert privacy.Ledger(path).worst().epsilon == pytest.approx(MECHANISM.epsilon, rel=FEW)


def test_a_finished_folder_with_resume_is_a_success_that_does_nothing(
    source: Path, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"
    options: dict[str, Any] = {"column": "x", "ledger": path}
    first = collect.privatize(source, f"{tmp_path}/out/", mechanism=MECHANISM, **options)
    before = contents(tmp_path / "out")
    again = collect.privatize(
        source, f"{tmp_path}/out/", mechanism=MECHANISM, resume=True, **options
    )
    assert (again.reports, again.epsilon) == (first.reports, first.epsilon)
    assert again.resumed == again.blocks == first.blocks
    assert contents(tmp_path / "out") == before
    assert privacy.Ledger(path).worst().epsilon == pytest.approx(MECHANISM.epsilon, rel=FEW)
    other = families.randomized_response(lower=0, upper=1, epsilon=2.0)
    with pytest.raises(
        ParameterError, match="mechanisms=what was given: is not what the run began with"
    ):
        collect.privatize(source, f"{tmp_path}/out/", mechanism=other, resume=True, **options)
    with pytest.raises(ParameterError, match="holds a finished run"):
        collect.privatize(source, f"{tmp_path}/out/", mechanism=MECHANISM, **options)


def test_a_finished_folder_is_not_taken_for_that_of_other_files(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rows of the other file would be reported nowhere."""
    MECHANISM.save(tmp_path / "m.json")
    second = tmp_path / "second.parquet"
    pq.write_table(pa.table({"x": [0.5] * 777}), second)
    words = ["--column", "x", "--mechanism", str(tmp_path / "m.json"), "--out", f"{tmp_path}/out/"]
    assert run_verb(["privatize", str(source), *words]) == 0
    capsys.readouterr()
    assert run_verb(["privatize", str(second), *words, "--resume"]) == 2
    assert "the files are not those of that run" in capsys.readouterr().err.replace(": ", " ", 2)
    assert run_verb(["privatize", str(source), *words, "--resume"]) == 0
    printed = capsys.readouterr().out
    assert "written" not in printed
    assert "1,000 reports existed already, and nothing was drawn or charged" in printed
    # The manifest names no file; of runs that wrote no hash nothing is known.
    manifest = tmp_path / "out" / "_mezzotint.json"
    document = json.loads(manifest.read_text())
    assert "in.parquet" not in manifest.read_text()
    del document["files"]
    manifest.write_text(json.dumps(document))
    assert run_verb(["privatize", str(second), *words, "--resume"]) == 0


def test_a_folder_holds_the_parts_of_its_own_run(source: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        out = f"{tmp_path}/{name}/"
        collect.privatize(source, out, column="x", mechanism=MECHANISM, block_rows=300)
    part = "part-000001.parquet"
    shutil.copy(tmp_path / "one" / part, tmp_path / "two" / part)
    with pytest.raises(FileFormatError, match="which its manifest does not name"):
        collect.read_counts(tmp_path / "two")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"budget": 1.0}, "budget=1.0: needs a ledger"),
        ({"ledger": "l", "rng": 3}, "cannot be charged"),
    ],
)
def test_options_that_cannot_be(
    source: Path, tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(ParameterError, match=words):
        collect.privatize(source, tmp_path / "r.csv", column="x", mechanism=MECHANISM, **options)


WORDS = families.categorical(categories=["no", "yes"], epsilon=1.0)


@pytest.fixture(scope="module")
def reports_of_repeated_people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memoised run in which people have three rows each, and two fresh runs of other sources."""
    folder = tmp_path_factory.mktemp("repeated")
    for name in ("memoised", "first", "second"):
        columns = {
            "id": [f"{name}{row % 100}" for row in range(300)],
            "x": [row % 100 / 100 for row in range(300)],
            "y": [row % 10 / 10 for row in range(300)],
            "word": ["no", "yes"] * 150,
            "other": ["yes", "no", "no"] * 100,
            "day": ["d1", "d2"] * 150,
        }
        pq.write_table(pa.table(columns), folder / f"{name}-in.parquet")
        memo = collect.Memo(users="id", key=bytes(32)) if name == "memoised" else None
        out = folder / name
        out.mkdir()
        collect.privatize_columns(
            folder / f"{name}-in.parquet", out / "r.parquet", memo=memo, keep=["day"],
            mechanisms={"x": MECHANISM, "y": MECHANISM, "word": WORDS, "other": WORDS},
        )  # fmt: skip
    (folder / "fresh").mkdir()
    for name in ("first", "second"):
        (folder / name / "r.parquet").rename(folder / "fresh" / f"{name}.parquet")
    return folder


@pytest.mark.parametrize(
    ("run_folder", "note", "note_on_groups"),
    [
        ("memoised", REPEATED_REPORTS, REPEATED_IN_A_GROUP),
        ("fresh", SAME_PEOPLE, SAME_PEOPLE),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_every_estimate_says_what_its_intervals_rely_on(
    reports_of_repeated_people: Path,
    capsys: pytest.CaptureFixture[str],
    run_folder: str,
    note: str,
    note_on_groups: str,
    as_json: bool,
) -> None:
    """Numbers, categories, pairs of both, and groups: in the terminal and in JSON."""
    source = str(reports_of_repeated_people / run_folder)
    for words, expected in (
        (["--column", "x"], note),
        (["--column", "word"], note),
        (["--column", "x_code", "--column", "y_code"], note),
        (["--column", "word_code", "--column", "other_code"], note),
        (["--column", "x", "--by", "day"], note_on_groups),
        (["--column", "word", "--by", "day"], note_on_groups),
    ):
        arguments = ["estimate", source, *words] + ["--json"] * as_json
        assert run_verb(arguments) == 0, words
        printed = capsys.readouterr()
        assert expected in " ".join(printed.err.split()), words
        if as_json:
            assert expected in json.loads(printed.out)["notes"], words


@pytest.mark.parametrize(
    ("run_folder", "note"), [("memoised", REPEATED_REPORTS), ("fresh", SAME_PEOPLE)]
)
@pytest.mark.parametrize("column", ["x_code", "word_code"])
def test_a_page_says_what_its_intervals_rely_on(
    reports_of_repeated_people: Path, run_folder: str, note: str, column: str
) -> None:
    page = report.reports_page(reports_of_repeated_people / run_folder, column=column)
    paragraphs = [words for section in page.sections for words in section.words]
    assert any(note[1:] in words for words in paragraphs)


def test_saved_counts_keep_all_that_their_files_say(tmp_path: Path) -> None:
    provenance = Provenance(
        runs=frozenset(["a1"]),
        sources=frozenset([("s", "a1")]),
        memoised=2,
        several_rows=True,
    )
    counts = collect.CodeCounts(mechanism=MECHANISM, counts=np.array([5, 6]), provenance=provenance)
    collect.save_counts(counts, tmp_path / "counts.json")
    assert collect.load_counts(tmp_path / "counts.json").provenance == provenance


def test_no_counts_are_added_to_themselves(
    reports_of_repeated_people: Path, tmp_path: Path
) -> None:
    """Codes, pairs and hashes alike: reports would count twice."""
    path = reports_of_repeated_people / "fresh" / "first.parquet"
    domain = families.hashed(categories=[f"w{index}" for index in range(100)], epsilon=4.0)
    pq.write_table(pa.table({"word": ["w7"] * 50}), tmp_path / "words.parquet")
    hashed = tmp_path / "hashed.parquet"
    collect.privatize(tmp_path / "words.parquet", hashed, column="word", mechanism=domain)
    for counts in (
        collect.read_counts(path, column="x_code"),
        collect.read_pairs(path, columns=("x_code", "y_code")),
        collect.read_hashed(hashed, domain=domain),
        collect.read_groups(path, by="day", column="x_code")["d1"],
    ):
        with pytest.raises(ParameterError, match="count twice"):
            counts.merge(counts)  # type: ignore[arg-type]
    other = families.hashed(categories=[f"v{index}" for index in range(100)], epsilon=4.0)
    empty = collect.HashedCounts.from_reports([], [], domain=other)
    with pytest.raises(ParameterError, match="different domains"):
        collect.read_hashed(hashed, domain=domain).merge(empty)


def test_groups_of_memoised_and_fresh_reports_together_are_of_the_same_people(
    reports_of_repeated_people: Path,
) -> None:
    """One side memoised is enough for errors of a difference to add up."""
    memoised, fresh = (
        collect.read_groups(reports_of_repeated_people / name, by="day", column="x_code")
        for name in ("memoised", "fresh")
    )
    merged = {day: memoised[day].merge(fresh[day]) for day in memoised}
    together = collect.estimate_groups(merged, against="d1")
    said = collect.estimate_groups(merged, against="d1", same_people=True)
    assert [answer.row for answer in together.answers] == [answer.row for answer in said.answers]
    assert REPEATED_IN_A_GROUP in together.notes


def test_groups_that_one_person_may_be_in_are_not_compared_in_silence(tmp_path: Path) -> None:
    """Where people were charged for several rows, or for one in each period."""
    table = pa.table(
        {
            "id": [f"p{row % 100}" for row in range(300)],
            "x": [row % 100 / 100 for row in range(300)],
            "week": [f"w{row // 100}" for row in range(300)],
        }
    )
    pq.write_table(table, tmp_path / "in.parquet")
    options: dict[str, Any] = {"column": "x", "mechanism": MECHANISM, "keep": ["week"]}
    charged = {"ledger": tmp_path / "ledger", "charge_by": "id", "at_most": 1}
    for name, more in (("week", {**charged, "per": "week"}), ("one", charged), ("all", {})):
        out = tmp_path / f"{name}.parquet"
        collect.privatize(tmp_path / "in.parquet", out, **options, **more)
        groups = collect.read_groups(out, by="week")
        first = next(iter(groups))
        said = IN_SEVERAL_GROUPS in collect.estimate_groups(groups, against=first).notes
        assert said == (name == "week")
        assert IN_SEVERAL_GROUPS not in collect.estimate_groups(groups).notes
        same = collect.estimate_groups(groups, against=first, same_people=True)
        assert IN_SEVERAL_GROUPS not in same.notes
