"""Charges of people in segments: against a dictionary, across kills at every change of a file, converted, exported."""

from __future__ import annotations

import errno
import math
import os
import shutil
import signal
import time
import unicodedata
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from killing import Runs
from laws.registry import judges
from mezzotint import privacy
from mezzotint.core.errors import BudgetError, FileFormatError, ParameterError
from mezzotint.core.files import RepairWarning
from mezzotint.privacy import conversion, people, people_store, sorted_records
from mezzotint.privacy.charges import GLOBAL, Charge
from mezzotint.privacy.ledger import Ledger
from mezzotint.privacy.people import UNITS, IdHash, budget_units, units_of
from strategies import examples

KEY = bytes(range(32))
COMPILED = ("loaded_merging",)
"""What each run would load for itself."""
HASHES = IdHash(KEY)


def release(name: str, epsilon: float = 1.0, fingerprint: str = "") -> Charge:
    return Charge(identity=name, client=GLOBAL, epsilon=epsilon, delta=0.0, fingerprint=fingerprint)


def charge(
    ledger: Ledger,
    name: str,
    ids: list[str],
    *,
    epsilon: float = 1.0,
    budget: float = math.inf,
    fingerprint: str = "",
) -> privacy.people.PeopleLine:
    with ledger.counting(KEY) as counter:
        counter.add(ids)
        return ledger.charge_people(counter, release(name, epsilon, fingerprint), budget=budget)


# Ids ---------------------------------------------------------------------------------------------


def test_ids_are_hashed_one_to_one_and_short_ones_come_back() -> None:
    ids = ["", "a", "fifteen bytes..", "Zoe\u0308", "x" * 16, "y" * 500, "\u732b" * 5, "\u732b" * 6]
    hashed = HASHES.of(ids)
    assert len({row.tobytes() for row in hashed}) == len(ids)
    names = HASHES.names(hashed)
    for text, name in zip(ids, names, strict=True):
        normal = unicodedata.normalize("NFC", text)
        if len(normal.encode()) <= people.SHORT_ID:
            assert name == normal
        else:
            assert name.startswith("#")
    # Composed and decomposed letters are one person; a slice of an Arrow array is what it shows.
    assert HASHES.of(["Zo\u00eb"]).tobytes() == hashed[3].tobytes()
    part = pa.array(["drop", *ids]).slice(1)
    assert HASHES.of_arrow(part).tobytes() == hashed.tobytes()
    assert IdHash(bytes(32)).of(["a"]).tobytes() != hashed[1].tobytes()
    # Ids of one length, which are hashed without masks, have the hashes that they have among others.
    assert HASHES.of(["a", "b"]).tobytes() == HASHES.of(["a", "b", "longer"])[:2].tobytes()
    assert HASHES.of(["", ""]).tobytes() == HASHES.of(["", "", "a"])[:2].tobytes()
    assert HASHES.of([]).shape == (0, 16)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 1 / 3, 1e-9, 20.0])
def test_prices_are_rounded_up_and_budgets_down(epsilon: float) -> None:
    assert (
        Fraction(units_of(epsilon), UNITS)
        >= Fraction(epsilon)
        > Fraction(units_of(epsilon) - 1, UNITS)
    )
    assert Fraction(budget_units(epsilon), UNITS) <= Fraction(epsilon)
    assert budget_units(math.inf) == people.MAX_UNITS


# Against a dictionary ----------------------------------------------------------------------------


@judges(
    "privacy.charges.Total.plus",
    "privacy.charges.Total.spent",
    "privacy.charges.sum_of",
    "privacy.charges.sums_by_client",
    "privacy.ledger.Ledger.charge_people",
    "privacy.ledger.Ledger.people",
    "privacy.ledger.Ledger.person_spent",
    "privacy.ledger_state.LedgerState.active_people",
)
@settings(max_examples=examples(8))
@given(
    waves=st.lists(
        st.tuples(
            st.lists(st.integers(0, 12), max_size=30),
            st.sampled_from([0.25, 1.0, 1 / 3]),
            st.sampled_from([1.0, 3.0, math.inf]),
        ),
        min_size=1,
        max_size=5,
    ),
    everyone=st.sampled_from([0.0, 0.5]),
)
def test_segments_charge_what_a_dictionary_does(
    tmp_path_factory: pytest.TempPathFactory,
    waves: list[tuple[list[int], float, float]],
    everyone: float,
) -> None:
    ledger = Ledger(tmp_path_factory.mktemp("l") / "p.ledger")
    if everyone:
        ledger.charge(release("all", everyone))
    spent: Counter[str] = Counter()
    for place, (numbers, epsilon, budget) in enumerate(waves):
        ids = [f"id {number}" for number in numbers]
        price = Fraction(units_of(epsilon), UNITS)
        after = {one: spent[one] + many * price for one, many in Counter(ids).items()}
        most = math.inf if math.isinf(budget) else Fraction(budget)
        fits = all(total + Fraction(everyone) <= most for total in after.values())
        if fits:
            line = charge(ledger, f"wave {place}", ids, epsilon=epsilon, budget=budget)
            assert (line.persons, line.rows) == (len(after), len(ids))
            spent.update({one: total - spent[one] for one, total in after.items()})
        else:
            with pytest.raises(BudgetError, match="exceeds the budget"):
                charge(ledger, f"wave {place}", ids, epsilon=epsilon, budget=budget)
    again = Ledger(ledger.path)
    for number in range(13):
        total = spent[f"id {number}"] + Fraction(everyone)
        got = again.person_spent(f"id {number}", key=KEY).epsilon
        assert Fraction(got) >= total
        assert got <= math.nextafter(float(total), math.inf)
    worst = max(spent.values(), default=Fraction(0)) + Fraction(everyone)
    assert Fraction(again.worst().epsilon) >= worst
    assert again.worst().epsilon <= math.nextafter(float(worst), math.inf)
    listed = again.people_spent(top=100)
    assert len(listed) == again.persons == len([one for one in spent.values() if one])
    assert [paid.epsilon for _, paid in listed] == sorted(
        (paid.epsilon for _, paid in listed), reverse=True
    )


def test_runs_that_spill_are_merged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(people, "RUN", 100)
    ledger, ids = Ledger(tmp_path / "p.ledger"), [f"id {k % 977}" for k in range(5000)]
    with ledger.counting(KEY) as counter:
        for start in range(0, 5000, 64):
            counter.add(pa.array(ids[start : start + 64]))
        line = ledger.charge_people(counter, release("w"))
    assert (line.persons, line.rows, line.most) == (977, 5000, 6)
    records = np.fromfile(
        tmp_path / "p.ledger.people" / f"{line.token}.segment", sorted_records.RECORD
    )
    assert (np.diff(records["high"].astype(float)) >= 0).all()
    assert records["rows"].sum() == 5000
    assert sorted(path.suffix for path in (tmp_path / "p.ledger.people").iterdir()) == [
        "",
        ".segment",
    ]


def test_hashes_that_agree_in_their_first_half_are_two_people() -> None:
    high = np.array([5, 5, 5, 2], dtype=np.uint64)
    low = np.array([9, 1, 9, 4], dtype=np.uint64)
    ones = np.ones(4, dtype=np.uint64)
    first, second, amounts = sorted_records.sums_by_hash(high, low, ones)
    assert (first.tolist(), second.tolist(), amounts.tolist()) == ([2, 5, 5], [4, 1, 9], [1, 1, 2])
    totals = sorted_records.records_of((first, second, amounts), sorted_records.TOTAL)
    asked = np.array([5, 5, 5, 2, 7], dtype=np.uint64), np.array([1, 9, 3, 4, 1], dtype=np.uint64)
    assert sorted_records.lookup(totals, *asked).tolist() == [1, 2, 0, 1, 0]


@pytest.mark.parametrize("last_bits", [0, 2, 60])
def test_hashes_that_differ_in_few_bits_are_sorted(last_bits: int) -> None:
    """Also those that agree in all bits for which the sorting of keys has room."""
    rng = np.random.default_rng(last_bits)
    high = rng.integers(0, 1 << 62, 300, dtype=np.uint64) >> np.uint64(last_bits)
    low = rng.integers(0, 3, 300, dtype=np.uint64)
    amounts = rng.integers(1, 100, 300, dtype=np.uint64)
    sums: Counter[tuple[int, int]] = Counter()
    for first, second, amount in zip(high.tolist(), low.tolist(), amounts.tolist(), strict=True):
        sums[first, second] += amount
    columns = sorted_records.sums_by_hash(high, low, amounts)
    combined = zip(*(column.tolist() for column in columns), strict=True)
    assert list(combined) == [(*hashed, sums[hashed]) for hashed in sorted(sums)]
    assert (np.diff(sorted_records._order(high).astype(float)) != 0).all()


@pytest.mark.parametrize("sizes", [(0, 0), (0, 3), (5, 0), (40, 40), (7, 60), (30, 1, 20, 9, 0)])
def test_sorted_people_are_merged_as_all_are_sorted(sizes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(sum(sizes))
    parts: list[sorted_records.Columns] = []
    for size in sizes:
        high = rng.integers(0, 30, size, dtype=np.uint64) << np.uint64(59)
        low = rng.integers(0, 3, size, dtype=np.uint64)
        amounts = rng.integers(1, 1 << 62, size, dtype=np.uint64)
        parts.append(sorted_records.sums_by_hash(high, low, amounts % np.uint64(1 << 50)))
    everybody = [np.concatenate(column) for column in zip(*parts, strict=True)]
    expected = sorted_records.sums_by_hash(*everybody)
    merged = sorted_records.merged_sums(parts)
    for column, wanted in zip(merged, expected, strict=True):
        assert column.dtype == np.uint64
        assert column.tolist() == wanted.tolist()


@pytest.mark.parametrize("limit", [0, 5, 7, 8, 20, people.MAX_UNITS])
@pytest.mark.parametrize("units", [0, 1, 3, 1 << 62, 1 << 70])
def test_nobody_is_charged_beyond_a_limit(limit: int, units: int) -> None:
    """Who is not in the run may be above it; who is, is found."""
    earlier = {1: 6, 2: 8, 4: 3, 5: people.MAX_UNITS}
    for rows in ({1: 1}, {3: 2, 4: 1}, {2: 1, 3: 4}, {5: 1}, {}):
        after = {one: earlier.get(one, 0) + many * units for one, many in rows.items()}
        too_many = [one for one, total in after.items() if total > limit]
        outcome = people.with_charges(
            _people_records(earlier, sorted_records.TOTAL),
            _people_records(rows, sorted_records.RECORD),
            units=units,
            limit=limit,
        )
        if too_many:
            assert isinstance(outcome, people.Excess)
            assert int(outcome.hashed.view(">u8")[0]) in too_many
            assert outcome.units == earlier.get(int(outcome.hashed.view(">u8")[0]), 0)
            continue
        assert not isinstance(outcome, people.Excess)
        high, low, totals = outcome
        assert not low.any()
        charged = dict(zip(high.tolist(), totals.tolist(), strict=True))
        assert charged == {**earlier, **after}


def _people_records(amounts: dict[int, int], kind: np.dtype[Any]) -> sorted_records.Records:
    """Of people whose hashes are these numbers."""
    high = np.array(list(amounts), dtype=np.uint64)
    units = np.array(list(amounts.values()), dtype=np.uint64)
    return sorted_records.records_of((high, np.zeros_like(high), units), kind)


def test_what_people_cannot_be_charged(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "p.ledger")
    charge(ledger, "w", ["ann"])
    with pytest.raises(ParameterError, match="finite"):
        charge(ledger, "x", ["ann"], epsilon=math.inf)
    with ledger.counting(bytes(32)) as counter:
        counter.add(["ann"])
        with pytest.raises(ParameterError, match="another key"):
            ledger.charge_people(counter, release("x"))
    with pytest.raises(ParameterError, match="use charge_people"):
        ledger.reserve(
            Charge(identity="x", client="ann", epsilon=1.0, delta=0.0), budget=(9.0, 0.0)
        )
    with pytest.raises(BudgetError):
        ledger.reserve(release("all"), budget=(1.5, 0.0))
    ledger.reserve(release("all", 0.5), budget=(1.5, 0.0))
    assert ledger.worst().epsilon == 1.5
    by_name = Ledger(tmp_path / "old.jsonl")
    by_name.charge(Charge(identity="x", client="ann", epsilon=1.0, delta=0.0))
    with pytest.raises(ParameterError, match="--convert"):
        charge(by_name, "w", ["ann"])
    with pytest.raises(ParameterError, match="on disk"):
        Ledger()._files()
    # Sums never wrap: 10,000 rows at epsilon 8 are beyond what units hold.
    with ledger.counting(KEY) as counter:
        counter.add(["eve"], np.array([10_000], dtype=np.uint64))
        with pytest.raises(BudgetError):
            ledger.charge_people(counter, release("y", 8.0))


def test_the_same_bits_are_charged_once_and_attempts_each(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "p.ledger")
    bits = "0" * 64
    first = charge(ledger, "w", ["ann", "bob"], fingerprint=bits)
    assert charge(ledger, "w", ["ann", "bob"], fingerprint=bits).token == first.token
    assert charge(ledger, "w", ["ann"], fingerprint=bits).token != first.token
    charge(ledger, "w", ["ann", "bob"])
    assert ledger.person_spent("ann", key=KEY).epsilon == 3.0
    ledger.withdraw(first, reason="nothing was sent")
    assert ledger.person_spent("ann", key=KEY).epsilon == 2.0
    assert ledger.person_spent("bob", key=KEY).releases == 1
    with pytest.raises(ParameterError, match="once"):
        ledger.withdraw(first, reason="again")


def test_the_same_bits_are_one_charge_at_one_price_alone(tmp_path: Path) -> None:
    # Everything that proves two charges one is varied by itself; the delta of people is always 0.
    ledger = Ledger(tmp_path / "p.ledger")
    bits = "0" * 64
    line = charge(ledger, "w", ["ann"], fingerprint=bits)
    first = release("w", 1.0, bits)
    changes: tuple[dict[str, Any], ...] = (
        {"epsilon": math.nextafter(1.0, 2.0)},
        {"epsilon": 0.5},
        {"identity": "x"},
        {"fingerprint": "1" * 64},
        {"fingerprint": ""},
    )
    with ledger.counting(KEY) as counter:
        counter.add(["ann"])
        segment = counter.finish()
        assert ledger._same_people(replace(first, description="again"), segment) == line
        assert ledger._same_people(first, replace(segment, sha256="1" * 64)) is None
        for change in changes:
            assert ledger._same_people(replace(first, **change), segment) is None
    with ledger.counting(KEY) as counter, pytest.raises(ParameterError, match="pure"):
        ledger.charge_people(counter, replace(first, delta=1e-9))


def test_shards_are_merged_by_segment(tmp_path: Path) -> None:
    one, other = Ledger(tmp_path / "a.ledger"), Ledger(tmp_path / "b.ledger")
    charge(one, "w", ["ann", "bob"])
    line = charge(other, "w", ["ann"], epsilon=0.5)
    other.withdraw(charge(other, "v", ["bob"]), reason="nothing was sent")
    one.merge(other)
    one.merge(other)
    assert one.person_spent("ann", key=KEY).epsilon == 1.5
    assert one.person_spent("bob", key=KEY).epsilon == 1.0
    assert len(one.people) == 3
    assert any(kept.token == line.token for kept in one.people)


# Crashes -----------------------------------------------------------------------------------------


def wave(words: list[str]) -> int:
    """One run, for the process that is killed: the ledger and the name of the wave."""
    charge(Ledger(words[0]), words[1], [f"id {k}" for k in range(40)], epsilon=0.5)
    print("charged")
    return 0


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with Runs.of("privacy.test_people_ledger:wave", loads=COMPILED) as found:
        yield found


@pytest.mark.parametrize("torn", [False, True], ids=["before", "within"])
def test_killed_before_every_change_of_a_file(tmp_path: Path, runs: Runs, torn: bool) -> None:
    """What returned is charged; what did not is charged once at most; the next wave goes on."""
    place = tmp_path / "whole"
    place.mkdir()
    charge(Ledger(place / "p.ledger"), "first", ["id 0"])
    changes = runs(place / "p.ledger", "second").changes
    assert changes > 10
    for at in range(1, changes + 1):
        folder = tmp_path / f"{at}"
        folder.mkdir()
        charge(Ledger(folder / "p.ledger"), "first", ["id 0"])
        ended = runs(folder / "p.ledger", "second", at=at, torn=torn)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RepairWarning)
            ledger = Ledger(folder / "p.ledger")
            spent = ledger.person_spent("id 0", key=KEY).epsilon
            other = ledger.person_spent("id 7", key=KEY).epsilon
            assert (spent, other) in ((1.0, 0.0), (1.5, 0.5))
            if "charged" in ended.output:
                assert spent == 1.5
            charge(ledger, "third", ["id 0"])
            assert Ledger(folder / "p.ledger").person_spent("id 0", key=KEY).epsilon == spent + 1
        left = {path.suffix for path in (folder / "p.ledger.people").iterdir()}
        assert left <= {"", ".segment", ".orphan"}
        shutil.rmtree(folder)


PEOPLE = 20_000
KILLS = 80


def wave_that_dies(words: list[str]) -> int:
    """A run that the system ends after so many seconds, people sorted and merged in small pieces."""
    path, name, seconds = words
    people.RUN = 1 << 12
    sorted_records.RANGE_RECORDS = 1 << 11
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, as SIGKILL does
    began = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, float(seconds))
    ids = pa.array([f"user{number}" for number in range(PEOPLE)])
    with Ledger(path).counting(KEY) as counter:
        for start in range(0, PEOPLE, 1 << 12):
            counter.add(ids[start : start + (1 << 12)])
        Ledger(path).charge_people(counter, release(name, 0.5))
    print("charged after", time.perf_counter() - began)
    return 0


@pytest.mark.slow
def test_eighty_kills_at_random_moments(tmp_path: Path) -> None:
    """After each one everybody has paid for this run or nobody has, and what returned is paid."""
    path = tmp_path / "p.ledger"
    rng = np.random.default_rng(1)
    charged = died = paid_and_died = attempts = 0
    with Runs.of("privacy.test_people_ledger:wave_that_dies", loads=COMPILED) as timed:
        whole = timed(path, "first", "60").output
        usual = float(whole.rpartition("charged after ")[2])
        charged += 1
        while died < KILLS:
            attempts += 1
            ended = timed(path, f"wave {attempts}", f"{rng.uniform(0.001, 1.2 * usual)}")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RepairWarning)
                ledger = Ledger(path)
                paid = len(ledger.people) - charged
            assert paid in (0, 1)
            assert paid or "charged after" not in ended.output
            charged += paid
            died += ended.status is None
            paid_and_died += paid and ended.status is None
            for person in ("user0", f"user{PEOPLE - 1}"):
                spent = ledger.person_spent(person, key=KEY)
                assert (spent.releases, spent.epsilon) == (charged, charged / 2)
    assert ledger.persons == PEOPLE
    assert {spent.epsilon for _, spent in ledger.people_spent(top=PEOPLE)} == {charged / 2}
    print(
        f"{died} kills in {attempts} runs, {charged} charges, {paid_and_died} of them killed later"
    )


def test_the_log_cut_at_every_byte(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "p.ledger")
    charge(ledger, "first", ["ann"])
    before = ledger.path.stat().st_size if ledger.path else 0
    charge(ledger, "second", ["ann", "bob"])
    raw = (tmp_path / "p.ledger").read_bytes()
    for cut in range(before, len(raw) + 1, 7):
        folder = tmp_path / f"cut{cut}"
        shutil.copytree(tmp_path / "p.ledger.people", folder / "p.ledger.people")
        (folder / "p.ledger").write_bytes(raw[:cut])
        # Totals of a line that is gone: a crash cannot leave them, as the line comes first.
        for totals in (folder / "p.ledger.people").glob("totals-2-*"):
            totals.unlink()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RepairWarning)
            opened = Ledger(folder / "p.ledger")
            spent = opened.person_spent("ann", key=KEY).epsilon
        assert spent == (2.0 if cut >= len(raw) - 1 else 1.0)
        orphans = list((folder / "p.ledger.people").glob("*.orphan"))
        assert len(orphans) == (0 if spent == 2.0 else 1)


def test_damage_that_no_crash_explains_is_refused(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "p.ledger")
    line = charge(ledger, "first", ["ann", "bob"])
    folder = tmp_path / "p.ledger.people"
    totals, segment = next(folder.glob("totals-*")), folder / f"{line.token}.segment"
    raw = segment.read_bytes()
    totals.unlink()
    assert Ledger(ledger.path).persons == 2  # made again
    segment.write_bytes(raw[:-1])
    with pytest.raises(FileFormatError, match="another size"):
        _ = Ledger(ledger.path).persons
    segment.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    next(folder.glob("totals-*")).unlink()
    with pytest.raises(FileFormatError, match="was changed"):
        _ = Ledger(ledger.path).persons
    segment.unlink()
    with pytest.raises(FileFormatError, match="is missing"):
        _ = Ledger(ledger.path).persons
    segment.write_bytes(raw)
    (folder / f"totals-2-{'0' * 16}").write_bytes(b"")
    with pytest.raises(FileFormatError, match="ahead of its ledger"):
        _ = Ledger(ledger.path).persons


def test_damaged_totals_are_made_again(tmp_path: Path) -> None:
    """A copy may end on a full disk, a disk lose bits: people would have their budget again."""
    ledger = Ledger(tmp_path / "p.ledger")
    charge(ledger, "first", ["ann", "bob", "eve"], budget=1.0)
    folder = tmp_path / "p.ledger.people"
    whole = next(folder.glob("totals-*")).read_bytes()
    cut = [whole[: 24 * records] for records in range(3)]
    zeros = [whole[:i] + bytes(8) + whole[i + 8 :] for i in range(0, len(whole), 8)]
    for damaged in (*cut, *zeros):
        next(folder.glob("totals-*")).write_bytes(damaged)
        for person in ("ann", "bob", "eve"):
            with pytest.raises(BudgetError):
                charge(Ledger(ledger.path), "second", [person], budget=1.0)
            assert Ledger(ledger.path).person_spent(person, key=KEY).epsilon == 1.0
    # Those of before, whose names say nothing of their content or its length, are made again.
    for end in ("", "-3"):
        path = next(folder.glob("totals-*"))
        path.rename(path.with_name(path.name.rpartition("-")[0] + end)).write_bytes(b"")
        assert Ledger(ledger.path).persons == 3


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the memory of a process")
def test_sorted_files_take_the_memory_of_a_range(tmp_path: Path) -> None:
    """Else the memory of a run that counts people would grow with its rows."""

    def mapped() -> int:
        words = Path("/proc/self/status").read_text().split()
        return int(words[words.index("RssFile:") + 1]) << 10

    count, files = 1 << 18, 8
    records = np.zeros(count, dtype=sorted_records.TOTAL)
    records["high"] = np.linspace(0, 2.0**64, count, endpoint=False).astype(np.uint64)
    for index in range(files):
        records.tofile(tmp_path / f"{index}")
    runs = [
        sorted_records.mapped_records(tmp_path / f"{index}", sorted_records.TOTAL)
        for index in range(files)
    ]
    before, most, read = mapped(), 0, 0
    for slices in sorted_records.ranges_of(runs):
        read += sum(int((piece["units"] == 0).sum()) for piece in slices)
        most = max(most, mapped() - before)
    assert read == files * count
    assert most < records.nbytes


def test_a_ledger_that_was_set_back_and_restored_is_whole(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "p.ledger")
    charge(ledger, "first", ["ann"])
    path = tmp_path / "p.ledger"
    older = path.read_bytes()
    charge(ledger, "second", ["ann"])
    newer = path.read_bytes()
    path.write_bytes(older)
    with pytest.raises(FileFormatError, match="ahead of its ledger"):
        charge(Ledger(path), "third", ["ann"])
    path.write_bytes(newer)
    assert Ledger(path).person_spent("ann", key=KEY).epsilon == 2.0


@pytest.mark.parametrize("place", [0, 1])
def test_a_withdrawal_that_died_before_its_totals_counts(
    tmp_path: Path, place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(tmp_path / "p.ledger")
    runs = [charge(ledger, name, ["ann", name]) for name in ("first", "second")]
    with monkeypatch.context() as patch:
        patch.setattr(people_store.PeopleStore, "forget_totals", lambda store: None)
        ledger.withdraw(runs[place], reason="nothing was sent")
    assert Ledger(ledger.path).person_spent("ann", key=KEY).epsilon == 1.0
    charge(Ledger(ledger.path), "third", ["ann"])
    assert Ledger(ledger.path).person_spent("ann", key=KEY).epsilon == 2.0


def test_a_charge_stands_where_its_totals_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is the charge: a refusal after it would say that nothing was charged."""
    ledger = Ledger(tmp_path / "p.ledger")
    charge(ledger, "first", ["ann"])

    def full(path: Path, target: Path) -> Path:
        raise OSError(errno.ENOSPC, f"no room for {target} beside {path}")

    with monkeypatch.context() as patch:
        patch.setattr(
            Path,
            "rename",
            lambda path, target: (
                full(path, target) if path.name.startswith("draft-") else os.rename(path, target)
            ),
        )
        line = charge(ledger, "second", ["ann"])
    assert line.identity == "second"
    assert Ledger(ledger.path).person_spent("ann", key=KEY).epsilon == 2.0


def test_files_of_people_are_their_owners_alone(tmp_path: Path) -> None:
    charge(Ledger(tmp_path / "p.ledger"), "first", ["ann"])
    folder = tmp_path / "p.ledger.people"
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())
    size = sum(path.stat().st_size for path in folder.glob("*.segment"))
    assert size == sorted_records.RECORD.itemsize == 20
    assert sorted_records.TOTAL.itemsize == 24


# Conversion and export ---------------------------------------------------------------------------


@judges("privacy.conversion.convert_ledger", "privacy.ledger.Ledger.people_spent")
def test_an_old_ledger_is_converted_losslessly(tmp_path: Path) -> None:
    old = Ledger(tmp_path / "old.jsonl")
    rng = np.random.default_rng(1)
    for run in ("May", "June"):
        for person in range(30):
            rows = int(rng.integers(1, 4))
            price = 1 / 3 if rows == 1 else math.nextafter(rows / 3, math.inf)
            old.charge(
                Charge(
                    identity=f"{run} of p{person}", client=f"p{person}", epsilon=price, delta=0.0
                )
            )
    old.charge(release("all", 0.25))
    old.charge(
        Charge(identity="May of p3", client="p3", epsilon=old.charges[3].release.epsilon, delta=0.0)
    )
    old.withdraw(old.charges[5], reason="nothing was sent")
    new = privacy.convert_ledger(old, tmp_path / "new.ledger", key=KEY)
    for person in range(30):
        before = old.spent(f"p{person}").epsilon
        after = new.person_spent(f"p{person}", key=KEY).epsilon
        # Each charge is rounded up to a part of 2^-48.
        assert before <= after <= before + 4 / UNITS
    assert new.persons == 30
    assert new.spent().epsilon == 0.25
    exported = list(new.export(HASHES))
    rows = Counter(one["person"] for one in exported if "person" in one and not one["withdrawn"])
    assert rows["p3"] == 3
    assert rows["p5"] == 1
    with pytest.raises(ParameterError, match="exists already"):
        privacy.convert_ledger(old, tmp_path / "new.ledger", key=KEY)
    assert len(old.charges) == 62
    assert not list(tmp_path.glob(".*"))


def test_a_converted_line_names_the_same_release(tmp_path: Path) -> None:
    old, bits = Ledger(tmp_path / "old.jsonl"), "5" * 64
    may = Charge(
        identity="May of ann",
        client="ann",
        epsilon=0.5,
        delta=0.0,
        description="ages",
        fingerprint=bits,
    )
    old.charge(may)
    new = privacy.convert_ledger(old, tmp_path / "new.ledger", key=KEY)
    (line,) = new.people
    assert (line.identity, line.description, line.fingerprint) == ("May", "ages", bits)
    # The same bits are one release: they are not charged again.
    assert charge(new, "May", ["ann"], epsilon=0.5, fingerprint=bits).token == line.token


def converted(words: list[str]) -> int:
    """A conversion."""
    old, new = words
    privacy.convert_ledger(Ledger(old), new, key=KEY)
    return 0


def test_a_conversion_that_died_leaves_no_ledger_that_forgot_something(tmp_path: Path) -> None:
    old = Ledger(tmp_path / "old.jsonl")
    old.charge(release("all", 0.25))
    for run in ("May", "June"):
        old.charge(Charge(identity=f"{run} of ann", client="ann", epsilon=0.5, delta=0.0))
    with Runs.of("privacy.test_people_ledger:converted", loads=COMPILED) as runs:
        changes = runs(tmp_path / "old.jsonl", tmp_path / "whole").changes
        assert changes > 20
        for at in range(1, changes + 1, 3):
            new = tmp_path / f"new{at}"
            assert runs(tmp_path / "old.jsonl", new, at=at).status is None
            if new.exists():
                assert Ledger(new).person_spent("ann", key=KEY).epsilon == 1.25


def before_conversion(folder: Path) -> tuple[Ledger, Path]:
    """A ledger with a charge of one person, and the name that it is to be converted under."""
    old = Ledger(folder / "old.jsonl")
    old.charge(Charge(identity="May of ann", client="ann", epsilon=0.5, delta=0.0))
    return old, folder / "new.ledger"


def test_a_conversion_leaves_a_ledger_that_took_its_name_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its people would be "ahead" of that ledger, which nobody could open any more."""
    old, new = before_conversion(tmp_path)
    publish = conversion.publish

    def overtaken(draft: Path, target: Path) -> bool:
        Ledger(target).charge(release("theirs"))
        return publish(draft, target)

    monkeypatch.setattr(conversion, "publish", overtaken)
    with pytest.raises(ParameterError, match="exists already"):
        privacy.convert_ledger(old, new, key=KEY)
    charge(Ledger(new), "theirs too", ["eve"])
    assert Ledger(new).person_spent("eve", key=KEY).epsilon == 2.0
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "new.ledger", "new.ledger.people", "old.jsonl",
    ]  # fmt: skip


@pytest.mark.parametrize("step", ["people", "file"])
def test_a_conversion_that_fails_leaves_its_name_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A full disk is said to be one, and the people go with the ledger that is not there."""
    old, new = before_conversion(tmp_path)

    rename = Path.rename

    def fails(draft: Path, target: Path) -> Path:
        if target.name not in ("new.ledger", "new.ledger.people"):
            return rename(draft, target)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        if step == "file":
            patch.setattr(conversion, "publish", fails)
        else:
            patch.setattr(Path, "rename", fails)
        with pytest.raises(OSError, match="No space left"):
            privacy.convert_ledger(old, new, key=KEY)
    assert [path.name for path in tmp_path.iterdir()] == ["old.jsonl"]
    assert privacy.convert_ledger(old, new, key=KEY).persons == 1


def test_a_conversion_whose_name_is_not_durable_yet_keeps_its_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = before_conversion(tmp_path)
    publish = conversion.publish

    def unsynced(draft: Path, target: Path) -> bool:
        publish(draft, target)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(conversion, "publish", unsynced)
    with pytest.raises(OSError, match="Input/output"):
        privacy.convert_ledger(old, new, key=KEY)
    assert Ledger(new).person_spent("ann", key=KEY).epsilon == 0.5


@pytest.mark.parametrize("most", [-1, 0])
def test_names_are_free_where_the_file_system_states_no_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(os, "pathconf", lambda *_: most)
    charge(Ledger(tmp_path / "a.ledger"), "first", ["ann"])
    assert Ledger(tmp_path / "a.ledger").persons == 1


def test_a_name_without_space_for_those_beside_it_is_refused_first(tmp_path: Path) -> None:
    most = os.pathconf(tmp_path, "PC_NAME_MAX") - len(".people")
    names = {"n" * most: 0, "\u00fc" * (most // 2): 0, "n" * (most + 1): 1, "\u00fc" * most: most}
    for name, excess in names.items():
        if not excess:
            charge(Ledger(tmp_path / name), "first", ["ann"])
            assert Ledger(tmp_path / name).person_spent("ann", key=KEY).epsilon == 1.0
            continue
        before = sorted(tmp_path.iterdir())
        with pytest.raises(ParameterError, match=f"shorten its by {excess} bytes"):
            Ledger(tmp_path / name)
        with pytest.raises(ParameterError, match=f"shorten its by {excess} bytes"):
            privacy.convert_ledger(Ledger(), tmp_path / name, key=KEY)
        assert sorted(tmp_path.iterdir()) == before
