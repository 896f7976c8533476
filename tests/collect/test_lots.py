"""Public lots: whom they ask, against a twin; whatever the values are; and who pays."""

from __future__ import annotations

import hashlib
import hmac
import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy import stats

from mezzotint import collect, families, privacy
from mezzotint.cli import run
from mezzotint.core.errors import BudgetError, ParameterError
from tolerances import FEW

TABLE = families.randomized_response(lower=0, upper=1, epsilon=1.0)
QUESTIONS = 3


def drawn_by_hand(person: str, questions: int, name: str) -> int:
    """The question of one person, from the definition."""
    secret = hashlib.sha256(b"mezzotint lot " + name.encode()).digest()
    key = hmac.new(secret, b"mezzotint people", hashlib.sha256).digest()
    text = unicodedata.normalize("NFC", person).encode()
    block = bytes([len(text)]) + text.ljust(15, b"\0")
    if len(text) > 15:
        block = b"\xff" + hashlib.blake2b(text, key=key, digest_size=15).digest()
    encrypted = Cipher(algorithms.AES(key), modes.ECB()).encryptor().update(block)
    return int.from_bytes(encrypted[:8], "little") % questions + 1


def test_the_question_is_the_one_defined() -> None:
    people = ["ann", "7", "é", "e\u0301", "fifteen letters", "sixteen letters!", "x" * 70]
    for questions, name in ((1, "a"), (2, "a"), (3, "spring 2026"), (52, "ü")):
        drawn = collect.question_of(people, questions=questions, name=name)
        assert drawn.tolist() == [drawn_by_hand(one, questions, name) for one in people]
    assert collect.question_of([7, 12], questions=5, name="a").tolist() == [
        drawn_by_hand(one, 5, "a") for one in ("7", "12")
    ]


def test_questions_are_alike_and_names_unrelated() -> None:
    """Pearson's statistic exceeds its quantile with chance 1e-6."""
    people = np.arange(60_000)
    for questions in (2, 3, 7):
        drawn = {
            name: collect.question_of(people, questions=questions, name=name) - 1
            for name in ("spring", "autumn")
        }
        for one in drawn.values():
            counts = np.bincount(one, minlength=questions)
            assert stats.chisquare(counts).pvalue > 1e-6
        pairs = np.bincount(drawn["spring"] * questions + drawn["autumn"])
        assert stats.chisquare(pairs).pvalue > 1e-6


def written(folder: Path, *, shift: float = 0.0) -> pa.Table:
    """Two files of 4,000 rows of uneven people, whose values may be others."""
    rng = np.random.default_rng(1)
    people = pa.array((rng.zipf(1.6, 4000) % 900).astype(str))
    columns = {f"q{i}": (rng.random(4000) + shift) % 1 for i in range(1, QUESTIONS + 1)}
    table = pa.table({"id": people, **columns})
    folder.mkdir()
    pq.write_table(table.slice(0, 1501), folder / "a.parquet", row_group_size=400)
    pq.write_table(table.slice(1501), folder / "b.parquet", row_group_size=400)
    return table


def lot(question: int, **options: Any) -> collect.Lot:
    values = {"people": "id", "question": question, "questions": QUESTIONS, "name": "spring"}
    return collect.Lot(**(values | options))


@pytest.mark.parametrize("end", [".parquet", "/"])
def test_everybody_answers_one_question_and_pays_once(tmp_path: Path, end: str) -> None:
    table = written(tmp_path / "in")
    ledger, budget = tmp_path / "l.jsonl", 1.5
    written(tmp_path / "other", shift=0.3)
    asked: dict[str, int] = {}
    for question in range(1, QUESTIONS + 1):
        options: dict[str, Any] = {
            "column": f"q{question}", "mechanism": TABLE, "keep": ["id"], "lot": lot(question),
            "block_rows": 500,
        }  # fmt: skip
        paid: dict[str, Any] = {
            "ledger": ledger, "budget": budget, "charge_by": "id", "at_most": 1,
        }  # fmt: skip
        out = f"{tmp_path}/{question}{end}"
        found = collect.privatize(tmp_path / "in", out, **options, **paid)
        ids = pq.read_table(out)["id"].to_pylist()
        assert len(ids) == len(set(ids)) == found.reports
        sent_to_others = 4000 - pc.sum(pc.is_in(table["id"], pa.array(ids))).as_py()
        assert found.unasked == sent_to_others
        assert found.beyond == 4000 - sent_to_others - found.reports
        assert found.lot == lot(question)
        assert not asked.keys() & set(ids)
        asked |= dict.fromkeys(ids, question)
        # All rows of these people without a limit; the same whatever the values are.
        every = f"{tmp_path}/every{question}{end}"
        collect.privatize(tmp_path / "in", every, **options)
        collect.privatize(tmp_path / "other", f"{tmp_path}/other{question}{end}", **options)
        rows = pq.read_table(every)["id"].to_pylist()
        assert rows == pq.read_table(f"{tmp_path}/other{question}{end}")["id"].to_pylist()
        assert rows == [one for one in table["id"].to_pylist() if asked.get(one) == question]
    people = sorted(set(table["id"].to_pylist()))
    assert sorted(asked) == people
    drawn = collect.question_of(people, questions=QUESTIONS, name="spring")
    assert [asked[one] for one in people] == drawn.tolist()
    key, opened = collect.load_memo_key(f"{ledger}.key"), privacy.Ledger(ledger)
    for person in people[:5]:
        spent = opened.person_spent(person, key=key).epsilon
        assert spent == pytest.approx(TABLE.epsilon, rel=FEW)
    with pytest.raises(BudgetError):  # a second lot asks some of them again
        collect.privatize(
            tmp_path / "in", tmp_path / "again.csv", column="q1", mechanism=TABLE,
            lot=lot(1, name="summer"), **paid,
        )  # fmt: skip


@pytest.mark.parametrize("end", [".parquet", "/"])
@pytest.mark.parametrize("at_most", [None, 1, 2])
def test_every_row_is_counted_once(tmp_path: Path, end: str, at_most: int | None) -> None:
    """By name: reported, missing, of people asked something else, or beyond a person's limit."""
    people = np.repeat([f"p{index}" for index in range(400)], 3)
    values = pa.array(np.linspace(0, 1, 1200), mask=np.arange(1200) % 7 == 0)
    table = pa.table({"id": people, "x": values})
    pq.write_table(table, tmp_path / "in.parquet", row_group_size=100)
    is_asked = collect.question_of(people, questions=QUESTIONS, name="spring") == 1
    kept_count = int(is_asked.sum()) // 3 * (at_most or 3)
    limited: dict[str, Any] = {"ledger": tmp_path / "l", "charge_by": "id", "at_most": at_most}
    result = collect.privatize(
        tmp_path / "in.parquet", f"{tmp_path}/out{end}", column="x", mechanism=TABLE, lot=lot(1),
        missing="drop", block_rows=100, **(limited if at_most is not None else {}),
    )  # fmt: skip
    assert result.unasked == int((~is_asked).sum())
    assert result.beyond == int(is_asked.sum()) - kept_count
    assert result.reports + result.missing == kept_count
    if at_most is None:
        assert result.missing == int((is_asked & (np.arange(1200) % 7 == 0)).sum())


def test_a_lot_that_asks_nobody_says_so(tmp_path: Path) -> None:
    """One person, who is asked another question."""
    person = next(
        f"p{index}"
        for index in range(100)
        if collect.question_of([f"p{index}"], questions=QUESTIONS, name="spring")[0] == 2
    )
    pq.write_table(pa.table({"id": [person] * 5, "x": [0.5] * 5}), tmp_path / "in.parquet")
    for out in (tmp_path / "out.csv", f"{tmp_path}/out/"):
        with pytest.raises(ParameterError, match="another question of the people of all 5 rows"):
            collect.privatize(tmp_path / "in.parquet", out, column="x", mechanism=TABLE, lot=lot(1))


def test_estimates_are_about_the_people_asked(tmp_path: Path) -> None:
    """A third of 9,000 people, at a confidence of 1 - 1e-7."""
    values = np.random.default_rng(2).random(9000)
    pq.write_table(pa.table({"id": np.arange(9000), "x": values}), tmp_path / "in.parquet")
    out = tmp_path / "r.parquet"
    found = collect.privatize(tmp_path / "in.parquet", out, column="x", mechanism=TABLE, lot=lot(2))
    sent = values[collect.question_of(np.arange(9000), questions=QUESTIONS, name="spring") == 2]
    estimated = collect.estimate(collect.read_counts(out), confidence=1 - 1e-7)
    assert isinstance(estimated, collect.Estimate)
    assert estimated.n == found.reports == sent.size
    assert estimated.mean.low <= sent.mean() <= estimated.mean.high
    assert estimated.mean.low <= values.mean() <= estimated.mean.high
    description = json.loads(pq.read_schema(out).metadata[b"mezzotint"])
    assert description["lot"] == {
        "people": "id", "question": 2, "questions": 3, "name": "spring",
    }  # fmt: skip


def test_a_run_resumes_its_own_question_alone(tmp_path: Path) -> None:
    options: dict[str, Any] = {"column": "q1", "mechanism": TABLE, "block_rows": 500}
    state = tmp_path / "state"
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "a.csv").write_text("id,q1\nann,0.5\n")
    (tmp_path / "bad" / "b.csv").write_text("id,q1\nbob,0.5\nbob,0.5\nbob,oops\n")
    with pytest.raises(ParameterError, match="data row 3"):
        collect.privatize(tmp_path / "bad", state, lot=lot(1, questions=1), **options)
    assert list(state.glob("part-*"))
    with pytest.raises(ParameterError, match="lot=what was given: is not what the run began with"):
        collect.privatize(
            tmp_path / "bad", state, lot=lot(1, questions=1, name="other"), resume=True, **options
        )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"question": 0}, "question"),
        ({"question": 4}, "is none of 3"),
        ({"questions": 0}, "questions"),
        ({"questions": 1 << 21}, "at most"),
        ({"name": ""}, "name the survey"),
    ],
)
def test_lots_that_are_none(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        lot(**({"question": 1} | options))


def test_what_a_lot_cannot_ask(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,x\nann,0.5\n,0.5\n")
    options: dict[str, Any] = {"column": "x", "mechanism": TABLE}
    for people, words in (("id", r"data row 2 of in\.csv has no id"), ("no", "no")):
        with pytest.raises(ParameterError, match=words):
            collect.privatize(
                tmp_path / "in.csv", tmp_path / "o.csv", lot=lot(1, people=people), **options
            )
    with pytest.raises(ParameterError, match="not standard input"):
        collect.privatize("-", tmp_path / "o.csv", lot=lot(1), **options)
    ledger = tmp_path / "l.jsonl"
    with pytest.raises(ParameterError, match=r"lot=id: would be .*\(--charge-by id\)"):
        collect.privatize(
            tmp_path / "in.csv", tmp_path / "o.csv", lot=lot(1), ledger=ledger, **options
        )
    assert not ledger.exists()
    with pytest.raises(ParameterError, match="person 2 has no id"):
        collect.question_of(["ann", " "], questions=2, name="a")
    assert not (tmp_path / "o.csv").exists()


def test_the_command_line_draws_lots(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"u{row},0.{row}\n" for row in range(600))
    Path("in.csv").write_text(f"id,x\n{rows}")
    TABLE.save("m.json")
    asked = ["privatize", "in.csv", "--column", "x", "--mechanism", "m.json", "--out", "o.csv"]
    asked += ["--lot", "id"]
    assert run([*asked, "--question", "2/3", "--lot-name", "spring"]) == 0
    people = int(
        (
            collect.question_of([f"u{row}" for row in range(600)], questions=3, name="spring") == 2
        ).sum()
    )
    words = (
        f"question 2 of 3, by the lot 'spring': dropped {600 - people} rows of people whom it asks "
        "another question"
    )
    assert words in " ".join(capsys.readouterr().out.split())
    for extra, words in (
        (["--question", "2/3"], "lot_name"),
        (["--lot-name", "a"], "question"),
        (["--lot-name", "a", "--question", "2"], "which of how many"),
        (["--lot-name", "a", "--question", "3/2"], "is none of 2"),
    ):
        assert run([*asked[:-2], *extra, "--lot", "id", "--overwrite"]) == 2
        assert words.replace("_", "-") in capsys.readouterr().err.replace("_", "-")
    assert run([*asked[:-2], "--question", "1/2", "--overwrite"]) == 2
