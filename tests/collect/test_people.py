"""At most K rows of a person and period: against a dictionary, and whatever the values are."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laws.registry import judges
from mezzotint import collect, families, privacy
from mezzotint.cli import run
from mezzotint.collect.columns import STANDARD
from mezzotint.collect.listing import find_files
from mezzotint.collect.people import select_rows, total_variation
from mezzotint.collect.provenance import SAME_PEOPLE
from mezzotint.collect.results import PrivatizeResult
from mezzotint.collect.source import Source
from mezzotint.core.errors import BudgetError, ParameterError
from mezzotint.core.mechanism import Mechanism
from tolerances import FEW, printed

TABLE = families.randomized_response(lower=0, upper=1, epsilon=0.5)


def written(folder: Path, rows: int = 4000, *, values: Any = None) -> pa.Table:
    """Two files of rows of uneven people over three weeks."""
    rng = np.random.default_rng(1)
    table = pa.table(
        {
            "x": rng.random(rows) if values is None else values,
            "rider": pa.array((rng.zipf(1.6, rows) % 500).astype(str)),
            "week": rng.integers(0, 3, rows),
        }
    )
    folder.mkdir(exist_ok=True)
    pq.write_table(table.slice(0, 1501), folder / "a.parquet", row_group_size=400)
    pq.write_table(table.slice(1501), folder / "b.parquet", row_group_size=400)
    return table


@judges("collect.charging.RunCharge.pay")
@pytest.mark.parametrize("out", ["r.parquet", "parts/"])
def test_at_most_k_rows_are_kept_and_charged(tmp_path: Path, out: str) -> None:
    table = written(tmp_path / "in")
    ledger = tmp_path / "people.ledger"
    found = collect.privatize(
        tmp_path / "in",
        f"{tmp_path}/{out}",
        column="x",
        mechanism=TABLE,
        keep=["rider", "week"],
        charge_by="rider",
        at_most=2,
        per="week",
        ledger=ledger,
        budget=3.0,
        block_rows=500,
    )
    groups = Counter(zip(table["rider"].to_pylist(), table["week"].to_pylist(), strict=True))
    kept = Counter(
        zip(
            *(pq.read_table(tmp_path / out)[name].to_pylist() for name in ("rider", "week")),
            strict=True,
        )
    )
    assert kept == {group: min(2, size) for group, size in groups.items()}
    assert (found.reports, found.beyond, found.missing) == (kept.total(), 4000 - kept.total(), 0)
    assert found.shift == pytest.approx(total_variation(dict(Counter(groups.values())), 2), rel=FEW)
    key, opened = collect.load_memo_key(f"{ledger}.key"), privacy.Ledger(ledger)
    rows: Counter[str] = Counter()
    for (rider, _), many in kept.items():
        rows[rider] += many
    for rider in ("1", "2", "3", "77"):
        spent = opened.person_spent(rider, key=key).epsilon
        # Prices are rounded up to 2^-48 of an epsilon a row.
        assert spent == pytest.approx(rows[rider] * TABLE.epsilon, rel=1e-9)
    assert opened.worst().epsilon <= 3.0
    with pytest.raises(BudgetError, match="exceeds the budget"):
        collect.privatize(
            tmp_path / "in", tmp_path / "again.parquet", column="x", mechanism=TABLE,
            charge_by="rider", at_most=2, per="week", ledger=ledger, budget=3.0,
        )  # fmt: skip


def test_values_do_not_move_the_selection(tmp_path: Path) -> None:
    """Replacing every value leaves it bit by bit; another run's key does not."""
    asked: dict[str, Any] = {"person": "rider", "period": "week", "at_most": 1, "dialect": STANDARD}
    bits = []
    for place, values in enumerate((np.zeros(4000), np.arange(4000.0))):
        written(tmp_path / f"{place}", values=values)
        files = find_files(tmp_path / f"{place}")
        bits.append(select_rows(files, key=bytes(32), **asked).bits)
    assert bits[0].tobytes() == bits[1].tobytes()
    other = select_rows(find_files(tmp_path / "0"), key=bytes([1] * 32), **asked)
    assert other.bits.tobytes() != bits[0].tobytes()
    # Masks of parts of a file are slices of the whole.
    (first, _) = files = find_files(tmp_path / "0")
    whole = other.mask(first, 0, 1501)
    parts = [other.mask(first, start, 7) for start in range(0, 1498, 7)]
    assert np.concatenate(parts).tolist() == whole[:1498].tolist()
    assert whole.sum() + other.mask(files[1], 0, 2499).sum() == np.unpackbits(other.bits).sum()


def test_every_row_of_a_person_is_as_likely(tmp_path: Path) -> None:
    """One of four rows: over 400 keys each is kept 100 times, within five standard deviations."""
    pq.write_table(pa.table({"rider": ["a"] * 4}), tmp_path / "in.parquet")
    files = find_files(tmp_path / "in.parquet")
    counts = np.zeros(4)
    for number in range(400):
        key = number.to_bytes(32, "big")
        chosen = select_rows(
            files, person="rider", period=None, at_most=1, key=key, dialect=STANDARD
        )
        counts += chosen.mask(files[0], 0, 4)
    assert counts.sum() == 400
    assert abs(counts - 100).max() <= 5 * np.sqrt(400 * 0.25 * 0.75)


def test_the_variation_of_geometric_sizes() -> None:
    """8/27, .237, .133 and .035 for K = 1, 2, 4, 8 at mean 3, by its own sum over sizes up to 400."""
    sizes = {m: round(1e15 * (1 / 3) * (2 / 3) ** (m - 1)) for m in range(1, 80)}
    found = [total_variation(sizes, k) for k in (1, 2, 4, 8)]
    # Sizes end at 79: beyond are (2/3)^79 = 1e-14 of the people.
    assert found[0] == pytest.approx(8 / 27, abs=1e-6)
    assert found == pytest.approx([8 / 27, 0.237, 0.133, 0.035], abs=printed(3))
    assert total_variation({5: 3}, 2) == 0
    assert total_variation({}, 2) == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"at_most": 1}, "needs charge_by"),
        ({"at_most": 0, "charge_by": "rider", "ledger": "l"}, "at least 1"),
        ({"per": "week"}, "needs at_most"),
        ({"at_most": 1.5, "charge_by": "rider", "ledger": "l"}, "at_most=1.5: need an integer"),
        ({"charge_by": "rider", "ledger": "l", "budget": math.nan}, "budget=nan"),
        ({"charge_by": "rider", "ledger": "l", "budget": "3"}, "budget='3'"),
        ({"ledger": "l", "budget": math.nan}, "budget=nan"),
        ({"at_most": 1, "charge_by": "nobody", "ledger": "l"}, "nobody"),
        ({"at_most": 1, "charge_by": "rider", "per": "nowhere", "ledger": "l"}, "nowhere"),
    ],
)
def test_what_cannot_be_limited(
    tmp_path: Path, options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "in")
    with pytest.raises(ParameterError, match=words):
        collect.privatize(
            tmp_path / "in", tmp_path / "r.parquet", column="x", mechanism=TABLE, **options
        )
    pq.write_table(pa.table({"x": [0.1, 0.2], "rider": ["a", None]}), tmp_path / "h.parquet")
    with pytest.raises(ParameterError, match=r"data row 2 of h\.parquet has no id"):
        collect.privatize(
            tmp_path / "h.parquet", tmp_path / "r.parquet", column="x", mechanism=TABLE,
            charge_by="rider", at_most=1, ledger="l",
        )  # fmt: skip
    assert not (tmp_path / "r.parquet").exists()


def test_missing_values_are_numbered_before_they_are_dropped(tmp_path: Path) -> None:
    values = pa.table({"x": [None, 0.5] * 50, "rider": [str(k // 2) for k in range(100)]})
    pq.write_table(values, tmp_path / "in.parquet")
    found = collect.privatize(
        tmp_path / "in.parquet", tmp_path / "r.parquet", column="x", mechanism=TABLE,
        missing="drop", charge_by="rider", at_most=1, ledger=tmp_path / "l",
    )  # fmt: skip
    # Each of 50 people keeps one of two rows, of which one is missing.
    assert found.beyond == 50
    assert found.reports + found.missing == 50
    assert 5 < found.reports < 45


def test_the_limit_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "in")
    TABLE.save("m.json")
    words = "privatize in --column x --mechanism m.json --charge-by rider --at-most 1 --per week"
    words += " --ledger people.ledger --budget 3 --out reports/ --json"
    assert run(words.split()) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["beyond"] + facts["reports"] == 4000
    assert 0 < facts["shift"] < 1
    words = words.replace("reports/ --json", "more/").replace("--budget 3", "--budget 9")
    assert run(words.split()) == 0
    assert "dropped beyond it: " in capsys.readouterr().out


def test_the_key_belongs_to_the_ledger_wherever_it_lies(tmp_path: Path) -> None:
    """By a link it is the same ledger; moved without its key it is refused, and no other key is made."""
    written(tmp_path / "in")
    ledger = tmp_path / "people.ledger"

    def charged(name: str, books: Path, **asked: Any) -> collect.PrivatizeResult:
        out = tmp_path / f"{name}.parquet"
        return collect.privatize(
            tmp_path / "in", out, column="x", mechanism=TABLE, ledger=books, **asked
        )

    people = {"charge_by": "rider", "at_most": 1}
    charged("first", ledger, **people)
    once = privacy.Ledger(ledger).worst().epsilon
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "link.ledger"
    link.symlink_to(ledger)
    charged("second", link, **people)
    assert [path.name for path in link.parent.iterdir()] == ["link.ledger"]
    assert privacy.Ledger(ledger).worst().epsilon == pytest.approx(2 * once, rel=FEW)
    moved = tmp_path / "moved.ledger"
    ledger.rename(moved)
    (tmp_path / "people.ledger.people").rename(tmp_path / "moved.ledger.people")
    for name, asked in (("third", people), ("fourth", {})):
        with pytest.raises(
            ParameterError, match=r"its key .*moved\.ledger\.key is missing; copy it"
        ):
            charged(name, moved, **asked)
        assert not (tmp_path / f"{name}.parquet").exists()
    assert not (tmp_path / "moved.ledger.key").exists()
    (tmp_path / "people.ledger.key").rename(tmp_path / "moved.ledger.key")
    charged("fifth", moved, **people)
    assert privacy.Ledger(moved).worst().epsilon == pytest.approx(3 * once, rel=FEW)


def test_a_converted_ledger_keeps_the_key_that_named_its_sources(tmp_path: Path) -> None:
    written(tmp_path / "in")
    asked: dict[str, Any] = {"column": "x", "mechanism": TABLE}
    old, new = tmp_path / "old.ledger", tmp_path / "new.ledger"
    (tmp_path / "out").mkdir()
    collect.privatize(tmp_path / "in", tmp_path / "out" / "a.parquet", ledger=old, **asked)
    assert run(["ledger", str(old), "--convert", str(new)]) == 0
    collect.privatize(tmp_path / "in", tmp_path / "out" / "b.parquet", ledger=new, **asked)
    with pytest.raises(ParameterError, match="the same rows twice"):
        collect.read_counts(tmp_path / "out")


# Waves -------------------------------------------------------------------------------------------


def test_waves_of_the_same_people_are_told_apart_by_their_ledger(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ann, bob and eve in week one, bob, eve and dan in week two: two people are in both."""
    ledger = tmp_path / "ledger.jsonl"
    weeks = {"one": ["ann", "bob", "eve", "bob"], "two": ["bob", "eve", "dan"], "three": ["zoe"]}
    for week, people in weeks.items():
        table = pa.table({"x": [0.5] * len(people), "rider": people})
        pq.write_table(table, tmp_path / f"{week}.parquet")
        options: dict[str, Any] = {"charge_by": "rider", "ledger": ledger, "at_most": 1}
        collect.privatize(
            tmp_path / f"{week}.parquet", tmp_path / f"{week}.csv", column="x", mechanism=TABLE,
            **options,
        )  # fmt: skip
    counts = {week: collect.read_counts(tmp_path / f"{week}.csv") for week in weeks}
    both = counts["one"].merge(counts["two"])
    assert collect.spending_of(both, ledger).shared == 2
    assert collect.spending_of(counts["one"].merge(counts["three"]), ledger).shared == 0
    assert collect.spending_of(counts["one"], ledger).shared == 0
    assert collect.spending_of(both, tmp_path / "another.jsonl").shared is None
    worst = privacy.Ledger(ledger).worst().epsilon
    assert (
        collect.spending_of(both, ledger).most == worst == pytest.approx(2 * TABLE.epsilon, rel=FEW)
    )
    assert SAME_PEOPLE in collect.estimate(both).notes
    assert collect.estimate(counts["one"]).notes == ()

    def estimated(*names: str) -> tuple[dict[str, Any], str]:
        sources = [str(tmp_path / f"{name}.csv") for name in names]
        assert run(["estimate", *sources, "--ledger", str(ledger), "--json"]) == 0
        said = capsys.readouterr()
        return json.loads(said.out), " ".join(said.err.split())

    facts, words = estimated("one", "two")
    assert facts["people_in_several_runs"] == 2
    assert facts["epsilon_of_most_charged_person"] == worst
    assert "2 people are in more than one of these runs" in words
    assert "one row of each person: estimates are about people" in words
    assert SAME_PEOPLE in words
    facts, words = estimated("one", "three")
    assert facts["people_in_several_runs"] == 0
    assert facts["notes"] == []
    assert SAME_PEOPLE not in words


def test_the_rows_of_a_person_are_told_beside_an_estimate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pa.table({"x": [0.5] * 4, "rider": ["a", "a", "a", "b"], "day": [1, 1, 2, 1]})
    pq.write_table(table, tmp_path / "in.parquet")
    charged: dict[str, Any] = {"charge_by": "rider", "ledger": tmp_path / "ledger.jsonl"}
    for limit, words in (
        ({}, "all rows of each person: estimates are about rows"),
        ({"at_most": 2}, "at most 2 rows of each person: estimates are about rows"),
        ({"at_most": 1, "per": "day"}, "at most 1 rows of each person and day: estimates are"),
        ({"at_most": 1}, "one row of each person: estimates are about people"),
    ):
        out = tmp_path / f"{len(limit)}{limit.get('at_most')}.csv"
        collect.privatize(
            tmp_path / "in.parquet", out, column="x", mechanism=TABLE, **charged, **limit
        )
        assert run(["estimate", str(out)]) == 0
        assert words in " ".join(capsys.readouterr().err.split())


RIDES = {"x": [0.5] * 7, "rider": [*"aaaaabb"], "day": [1, 1, 2, 2, 3, 1, 1]}
"""Five rows of one person on three days, two of another on one."""


def remedies_of(words: str) -> dict[str, str]:
    """Options and their values that a refusal names."""
    return dict(re.findall(r"(--(?:at-most|budget|epsilon)) ([0-9.]+)", words))


@pytest.mark.parametrize("limit", [{}, {"at_most": 1, "per": "day"}], ids=["rows", "days"])
def test_what_the_refusal_of_a_spent_budget_names_lets_the_run_pass(
    tmp_path: Path, limit: dict[str, Any]
) -> None:
    pq.write_table(pa.table(RIDES), tmp_path / "in.parquet")
    run_options: dict[str, Any] = {
        "column": "x",
        "charge_by": "rider",
        "ledger": tmp_path / "ledger.jsonl",
        "overwrite": True,
    }

    def privatized(table: Mechanism = TABLE, **options: Any) -> PrivatizeResult:
        return collect.privatize(
            tmp_path / "in.parquet", tmp_path / "o.csv", mechanism=table, **run_options, **options
        )

    with pytest.raises(BudgetError, match="without --per") as refused:
        privatized(**limit, budget=2.5 * TABLE.epsilon)
    remedies = remedies_of(str(refused.value))
    assert remedies["--at-most"] == "2"
    privatized(at_most=2, budget=2.5 * TABLE.epsilon)
    # Half a row is left to each: no limit helps, a table of that epsilon does, or a larger budget.
    with pytest.raises(BudgetError, match="Not even one row of some people fits") as refused:
        privatized(**limit, budget=2.5 * TABLE.epsilon)
    remedies = remedies_of(str(refused.value))
    smaller = families.randomized_response(
        lower=TABLE.lower, upper=TABLE.upper, epsilon=float(remedies["--epsilon"])
    )
    privatized(smaller, at_most=1, budget=2.5 * TABLE.epsilon)
    spent = privacy.Ledger(tmp_path / "ledger.jsonl").worst().epsilon
    with pytest.raises(BudgetError, match="Nothing is left to some people") as refused:
        privatized(**limit, budget=math.nextafter(spent, math.inf))
    privatized(**limit, budget=float(remedies_of(str(refused.value))["--budget"]))


def test_what_the_refusal_of_a_budget_of_rows_names_lets_the_run_pass(tmp_path: Path) -> None:
    pq.write_table(pa.table(RIDES), tmp_path / "in.parquet")

    def privatized(table: Mechanism, budget: float) -> PrivatizeResult:
        return collect.privatize(
            tmp_path / "in.parquet",
            tmp_path / "o.csv",
            column="x",
            mechanism=table,
            ledger=tmp_path / "ledger.jsonl",
            budget=budget,
            overwrite=True,
        )

    budget = 1.5 * TABLE.epsilon
    privatized(TABLE, budget)
    with pytest.raises(BudgetError, match="each row") as refused:
        privatized(TABLE, budget)
    remedies = remedies_of(str(refused.value))
    privatized(TABLE, float(remedies["--budget"]))
    with pytest.raises(BudgetError, match="keep another ledger") as refused:
        privatized(TABLE, float(remedies["--budget"]))
    assert "--epsilon" not in remedies_of(str(refused.value))
    other = tmp_path / "other"
    other.mkdir()
    smaller = families.randomized_response(
        lower=TABLE.lower, upper=TABLE.upper, epsilon=float(remedies["--epsilon"])
    )
    (tmp_path / "ledger.jsonl").rename(other / "ledger.jsonl")
    privatized(TABLE, budget)
    privatized(smaller, budget)


def days_of(folder: Path, cell: str) -> Path:
    """Three files of a row a person; a cell of the last one is given."""
    folder.mkdir()
    for day in range(3):
        rows = [f"u{day}{row},0.{row}" for row in range(9)]
        if day == 2:
            rows[4] = f"u24,{cell}"
        (folder / f"{day}.csv").write_text("id,x\n" + "\n".join(rows) + "\n")
    return folder


@pytest.mark.parametrize(
    ("cell", "words", "options"),
    [
        ("oops", r"data row 5 of 2\.csv holds text", {}),
        ("", r"data row 5 of 2\.csv is missing", {}),
        ("7", r"data row 5 of 2\.csv lies outside", {"on_out_of_range": "error"}),
    ],
)
def test_a_bad_cell_of_the_last_file_is_met_before_people_are_charged(
    tmp_path: Path, cell: str, words: str, options: dict[str, Any]
) -> None:
    source, ledger = days_of(tmp_path / "days", cell), tmp_path / "p.ledger"
    options |= {"column": "x", "mechanism": TABLE, "ledger": ledger}
    with pytest.raises(ParameterError, match=words) as refused:
        collect.privatize(source, tmp_path / "out", charge_by="id", **options)
    assert refused.value.__notes__[0].startswith("0 of 3 parts are written and nothing was charged")
    assert not (tmp_path / "out").exists()
    assert not privacy.Ledger(ledger).people
    # Everybody is charged before the first part: then the run says what it leaves.
    with pytest.raises(ParameterError, match=words) as stopped:
        collect.privatize(source, tmp_path / "out", **options)
    assert stopped.value.__notes__[0].startswith(
        "2 of 3 parts are written and the run is charged to"
    )
    assert privacy.Ledger(ledger).spent().epsilon == TABLE.epsilon
    with pytest.raises(ParameterError, match=words) as without:
        collect.privatize(source, tmp_path / "free", **(options | {"ledger": None}))
    assert without.value.__notes__[0].startswith("2 of 3 parts are written; mend the file")


def test_rows_that_are_not_kept_are_not_refused(tmp_path: Path) -> None:
    source = tmp_path / "days"
    source.mkdir()
    for day, person in enumerate(("bob", "ann")):
        rows = f"{person},0.{day}\n" * 5 + "eve,7\n" * day
        (source / f"{day}.csv").write_text(f"id,x\n{rows}")
    options: dict[str, Any] = {"column": "x", "mechanism": TABLE, "on_out_of_range": "error"}
    options |= {"ledger": tmp_path / "p.ledger", "charge_by": "id", "at_most": 1}
    with pytest.raises(ParameterError, match=r"data row 6 of 1\.csv lies outside"):
        collect.privatize(source, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()
    # Of two rows of one person, one is kept: the other one is not looked at.
    (source / "1.csv").write_text("id,x\nann,0.5\nann,7\n")
    kept: list[int] = []
    for attempt in range(16):
        with suppress(ParameterError):  # the second row is kept
            out = tmp_path / f"out{attempt}"
            kept.append(collect.privatize(source, out, **options).reports)
    assert set(kept) == {2}
    assert len(kept) < 16


def test_the_command_line_says_what_a_stopped_run_leaves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    days_of(tmp_path / "days", "oops")
    TABLE.save(tmp_path / "m.json")
    words = "privatize days --column x --mechanism m.json --out out/ --ledger p.ledger"
    assert run(words.split()) == 2
    message = capsys.readouterr().err
    assert "data row 5 of 2.csv holds text" in message
    assert "2 of 3 parts are written and the run is charged to " in message
    assert "p.ledger; mend the file, delete out where it exists, and run again" in message


def test_a_ledger_without_its_key_names_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is left of erasing everybody: totals by hash, no names, no further charge."""
    monkeypatch.chdir(tmp_path)
    days_of(tmp_path / "days", "0.5")
    options: dict[str, Any] = {"column": "x", "mechanism": TABLE, "charge_by": "id"}
    collect.privatize("days", "a.parquet", ledger="p.ledger", **options)
    Path("p.ledger.key").unlink()
    assert run(["ledger", "p.ledger", "--json"]) == 0
    printed = capsys.readouterr()
    assert "p.ledger.key is missing" in printed.err
    clients = [entry["client"] for entry in json.loads(printed.out)["clients"]]
    assert len(clients) == 20
    assert all(client.startswith("#") and len(client) == 33 for client in clients)
    assert run(["ledger", "p.ledger", "--export", "all.jsonl"]) == 0
    exported = Path("all.jsonl").read_text()
    assert exported.count("\n") == 27
    assert not any(f'"u{day}{row}"' in exported for day in range(3) for row in range(9))
    assert run(["ledger", "p.ledger", "--client", "u11"]) == 2
    with pytest.raises(ParameterError, match="is missing; copy it"):
        collect.privatize("days", "b.parquet", ledger="p.ledger", **options)
    assert not Path("b.parquet").exists()


def spent_by(ledger: Path) -> dict[str, float]:
    """Everybody's spending, by id."""
    key, opened = collect.load_memo_key(f"{ledger}.key"), privacy.Ledger(ledger)
    riders = map(str, range(60))
    return {rider: opened.person_spent(rider, key=key).epsilon for rider in riders}


@pytest.mark.parametrize("limit", [{}, {"at_most": 1, "per": "week"}])
def test_people_counted_beside_their_values_are_those_read_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: dict[str, Any]
) -> None:
    """One file counts ids in the pass that reads values, a folder in one before it: in the end the
    books agree. A file whose draft has a name is charged for before its first byte."""
    written(tmp_path / "in")
    passes: list[str] = []
    batches = Source.batches

    def counted(source: Source) -> Any:
        passes.append("+".join(source.wanted.names))
        return batches(source)

    monkeypatch.setattr(Source, "batches", counted)
    options: dict[str, Any] = {"column": "x", "mechanism": TABLE, "charge_by": "rider", **limit}
    for name, out in (("one", "r.parquet"), ("kept", "k.csv"), ("folder", "parts/")):
        keep = ["rider"] if name == "kept" else []
        options |= {"ledger": tmp_path / name, "keep": keep}
        collect.privatize(tmp_path / "in", f"{tmp_path}/{out}", **options)
    monkeypatch.setattr("mezzotint.collect.sink.unnamed_draft", lambda _: None)
    options["ledger"] = tmp_path / "named"
    collect.privatize(tmp_path / "in", tmp_path / "n.parquet", **options)
    selections = passes.count("rider+week")
    assert selections == (4 if limit else 0)
    whole = [names for names in passes if names != "rider+week"]
    assert whole == ["x+rider", "x+rider", "x+rider", "x", "rider"]
    books = [spent_by(tmp_path / name) for name in ("one", "kept", "folder", "named")]
    assert sum(books[0].values()) > 0
    assert books[0] == books[1] == books[2] == books[3]


@pytest.mark.parametrize("cell", ["u1,", ",0.5", "u1,7"])
def test_what_a_single_pass_refuses_costs_nothing(tmp_path: Path, cell: str) -> None:
    """A row without a value, without an id, or out of range, the last of many."""
    rows = [f"u{row},0.{row}" for row in range(5000)]
    (tmp_path / "in.csv").write_text("id,x\n" + "\n".join([*rows, cell]) + "\n")
    options: dict[str, Any] = {"column": "x", "mechanism": TABLE, "on_out_of_range": "error"}
    options |= {"ledger": tmp_path / "l.jsonl", "charge_by": "id"}
    with pytest.raises(ParameterError, match="data row 5001"):
        collect.privatize(tmp_path / "in.csv", tmp_path / "out.csv", **options)
    (tmp_path / "in.csv").write_text("id,x\n" + "\n".join(rows) + "\n")
    options["budget"] = 1.5 * TABLE.epsilon
    collect.privatize(tmp_path / "in.csv", tmp_path / "first.csv", **options)
    with pytest.raises(BudgetError):
        collect.privatize(tmp_path / "in.csv", tmp_path / "out.csv", **options)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "first.csv", "in.csv", "l.jsonl", "l.jsonl.key", "l.jsonl.people",
    ]  # fmt: skip
    assert len(privacy.Ledger(tmp_path / "l.jsonl").people) == 1
    assert not list((tmp_path / "l.jsonl.people").glob("*.partial"))


@pytest.mark.parametrize("spelling", ["", "  ", "NA", "null"])
@pytest.mark.parametrize("out", ["out.csv", "out/"])
def test_a_cell_without_an_id_is_nobody(tmp_path: Path, spelling: str, out: str) -> None:
    """All rows without one would be charged to one person who does not exist."""
    (tmp_path / "in.csv").write_text(f"id,x\nann,0.5\n{spelling},0.5\n")
    options: dict[str, Any] = {"column": "x", "mechanism": TABLE}
    with pytest.raises(ParameterError, match=r"data row 2 of in\.csv has no id"):
        collect.privatize(
            tmp_path / "in.csv",
            f"{tmp_path}/{out}",
            charge_by="id",
            ledger=tmp_path / "l.jsonl",
            **options,
        )
    assert not (tmp_path / out).exists()
    assert not privacy.Ledger(tmp_path / "l.jsonl").people


@pytest.mark.parametrize("spelling", ["", "   "])
def test_nobody_has_a_memoised_report(tmp_path: Path, spelling: str) -> None:
    (tmp_path / "in.csv").write_text(f"id,x\nann,0.5\n{spelling},0.5\n")
    memo = collect.Memo(users="id", key=bytes(range(32)))
    with pytest.raises(ParameterError, match="every row needs a user id"):
        collect.privatize(
            tmp_path / "in.csv", tmp_path / "out.csv", column="x", mechanism=TABLE, memo=memo
        )
    with pytest.raises(ParameterError, match="every row needs a user id"):
        collect.memoised([0.5], [spelling], mechanism=TABLE, key=bytes(range(32)), column="x")
    assert not (tmp_path / "out.csv").exists()
