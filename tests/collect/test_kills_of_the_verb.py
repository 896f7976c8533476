"""`mezzotint privatize` killed before changes of a file, and within writes: nothing is free, nothing lost."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from killing import Runs
from mezzotint import families
from mezzotint.cli import run
from mezzotint.collect.memo import load_memo_key
from mezzotint.core.files import RepairWarning
from mezzotint.privacy import Ledger, people

pytestmark = pytest.mark.slow

ROWS = 300
STRIDE = 3  # a part changes files about ten times, in one order
TABLE = families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.4)


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with Runs.of("mezzotint.cli:run") as found:
        yield found


@pytest.fixture
def days(tmp_path: Path) -> Path:
    """Two files, which become two parts."""
    folder = tmp_path / "days"
    folder.mkdir()
    for k in range(2):
        values = np.random.default_rng(k).uniform(-1, 1, ROWS)
        pq.write_table(
            pa.table({"x": values, "id": np.arange(k * ROWS, (k + 1) * ROWS)}),
            folder / f"{k}.parquet",
        )
    TABLE.save(tmp_path / "m.json")
    return folder


def _words(days: Path, out: str, ledger: Path, *more: str) -> list[str]:
    table = str(days.parent / "m.json")
    words = [
        "privatize",
        str(days),
        "--column",
        "x",
        "--mechanism",
        table,
        "--keep",
        "id",
        "--threads",
        "1",
    ]
    return [*words, "--out", out, "--ledger", str(ledger), *more]


def _spent(ledger: Path) -> float:
    """In releases."""
    if not ledger.exists():
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RepairWarning)  # of a torn line, whose charge was not made
        return Ledger(ledger).spent().epsilon / TABLE.epsilon


def _reports(place: Path) -> dict[str, bytes]:
    """Whatever holds reports, hidden drafts as well."""
    files = place.rglob("*") if place.is_dir() else place.parent.glob(f"*{place.name}*")
    return {path.name: path.read_bytes() for path in files if ".parquet" in path.name}


@pytest.mark.parametrize("torn", [False, True], ids=["before", "within"])
def test_a_folder_is_charged_before_its_first_part_and_once(
    runs: Runs, days: Path, tmp_path: Path, torn: bool
) -> None:
    changes = runs(*_words(days, f"{tmp_path}/whole/", tmp_path / "whole.jsonl")).changes
    assert changes > 15
    for at in range(1 + torn, changes + 1, STRIDE):
        out, ledger = tmp_path / f"out{at}", tmp_path / f"{at}.jsonl"
        words = _words(days, f"{out}/", ledger, "--resume")
        assert runs(*_words(days, f"{out}/", ledger), at=at, torn=torn).status is None
        left = _reports(out)
        paid = _spent(ledger)
        assert paid in (0.0, 1.0)
        assert paid or not left
        found = runs(*words)
        if found.status != 0:  # nothing had begun: there is nothing to go on with
            assert not left
            found = runs(*_words(days, f"{out}/", ledger))
        assert found.status == 0, found.output
        after = _reports(out)
        assert all(after[name] == data for name, data in left.items() if name.startswith("part-"))
        assert _spent(ledger) == 1.0
        assert sorted(pq.read_table(out, columns=["id"])["id"].to_pylist()) == list(range(2 * ROWS))
        assert not [name for name in after if name.startswith(".")]


@pytest.mark.parametrize("torn", [False, True], ids=["before", "within"])
def test_a_file_that_was_lost_is_paid_for_and_drawn_anew(
    runs: Runs, days: Path, tmp_path: Path, torn: bool
) -> None:
    changes = runs(*_words(days, f"{tmp_path}/whole.parquet", tmp_path / "whole.jsonl")).changes
    for at in range(1, changes + 1):
        out, ledger = tmp_path / f"out{at}.parquet", tmp_path / f"{at}.jsonl"
        words = _words(days, str(out), ledger)
        assert runs(*words, at=at, torn=torn).status is None
        left, paid = _reports(out), _spent(ledger)
        assert paid in (0.0, 1.0)
        assert paid or not left
        whole = left.get(out.name)
        again = runs(*words)
        assert again.status == (0 if whole is None else 2), again.output
        assert out.read_bytes() == (whole or out.read_bytes())
        assert _spent(ledger) == paid + (whole is None)


# Charges of people, at moments that no change of a file marks ------------------------------------

PEOPLE = 30_000
KILLS = 80


def run_that_dies_while_charging(words: list[str]) -> int:
    """A run that the system ends so many seconds after it began to charge, people in small pieces.

    Without an end it prints the seconds that it took from there.
    """
    seconds, *verb = words
    people.RUN = 1 << 12
    people.RANGE_RECORDS = 1 << 11
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the process, as SIGKILL does
    counting, began = Ledger.counting, []

    def timed_counting(*arguments: Any) -> Any:
        began.append(time.perf_counter())
        signal.setitimer(signal.ITIMER_REAL, float(seconds))
        return counting(*arguments)

    Ledger.counting = timed_counting  # type: ignore[method-assign]
    status = run(verb)
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(f"\nafter {time.perf_counter() - began[0]}")
    return status


def test_eighty_kills_of_charging_people(tmp_path: Path) -> None:
    """After each one everybody has paid for this run or nobody has, and what was written was paid."""
    rng = np.random.default_rng(1)
    ids = [f"user{number}" for number in rng.permutation(PEOPLE)]
    source, ledger_path = tmp_path / "in.parquet", tmp_path / "ledger.jsonl"
    pq.write_table(pa.table({"x": rng.uniform(-1, 1, PEOPLE), "id": ids}), source)
    TABLE.save(tmp_path / "m.json")
    words = ["privatize", source, "--column", "x", "--mechanism", tmp_path / "m.json"]
    words += ["--threads", "1", "--charge-by", "id", "--ledger", ledger_path, "--out"]
    paid = written = died = paid_and_lost = 0
    with Runs.of("collect.test_kills_of_the_verb:run_that_dies_while_charging") as runs:
        assert runs("60", *words, tmp_path / "first.parquet").status == 0
        whole = runs("60", *words, tmp_path / "second.parquet")  # what is loaded once is loaded
        assert whole.status == 0
        usual = float(whole.output.rpartition("after ")[2])
        while died < KILLS:
            out = tmp_path / f"{died + written}.parquet"
            ended = runs(f"{rng.uniform(0.001, usual)}", *words, out)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RepairWarning)
                ledger = Ledger(ledger_path)
                charges = len(ledger.people)
            assert charges in (paid + 2, paid + 3)  # two whole runs, earlier ones, perhaps this one
            charged = charges == paid + 3
            assert charged or not out.exists()
            paid += charged
            written += ended.status == 0
            died += ended.status is None
            paid_and_lost += charged and not out.exists()
            key = load_memo_key(Path(f"{ledger_path}.key"))
            for person in ("user0", f"user{PEOPLE - 1}"):
                assert ledger.person_spent(person, key=key).releases == charges
    totals = [spent for _, spent in ledger.people_spent(top=PEOPLE + 1)]
    assert len(totals) == PEOPLE
    assert {spent.epsilon for spent in totals} == {totals[0].epsilon}
    assert totals[0].epsilon >= (paid + 2) * TABLE.epsilon
    print(
        f"{died} kills: {paid_and_lost} paid and lost, {written} written, {paid + 2} charges, {usual:.2f} s a charge"
    )
