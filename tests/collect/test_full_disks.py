"""`mezzotint privatize` with a ledger, each of whose changes of files fails in turn, as on a full disk."""

from __future__ import annotations

import errno
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from killing import Runs
from mezzotint import families
from mezzotint.collect import load_memo_key
from mezzotint.core.files import RepairWarning
from mezzotint.privacy import Ledger

TABLE = families.randomized_response(lower=0, upper=1, epsilon=0.5)
ROWS = 12


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with Runs.of("mezzotint.cli:run", loads=("loaded_merging", "pyarrow.csv")) as started:
        yield started


def words_of(folder: Path, out: str, people: bool) -> list[str]:
    words = ["privatize", str(folder / "in.csv"), "--column", "x", "--threads", "1"]
    words += ["--mechanism", str(folder / "m.json"), "--out", f"{folder}/{out}"]
    words += ["--ledger", str(folder / "ledger.jsonl")]
    if people:
        words += ["--charge-by", "id"]
    return words


def charged_runs(folder: Path, people: bool) -> float:
    """How many runs were charged to somebody who has one row."""
    ledger = folder / "ledger.jsonl"
    if not ledger.exists():
        return 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RepairWarning)
        opened = Ledger(ledger)
    spent = opened.spent() if not people else None
    if people and Path(f"{ledger}.key").exists():
        spent = opened.person_spent("p1", key=load_memo_key(f"{ledger}.key"))
    return 0 if spent is None else round(spent.epsilon / TABLE.epsilon, 9)


def made(folder: Path) -> Path:
    folder.mkdir()
    TABLE.save(folder / "m.json")
    rows = "".join(f"{row % 2},p{row}\n" for row in range(ROWS))
    (folder / "in.csv").write_text(f"x,id\n{rows}")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("people", [False, True], ids=["everybody", "people"])
@pytest.mark.parametrize("out", ["r.csv", "parts/"])
def test_who_is_told_of_a_failure_is_told_of_the_charge(
    runs: Runs, tmp_path: Path, out: str, people: bool
) -> None:
    """Nothing is charged twice without a word: a run that fails after its charge says so, and one
    into a folder is paid for by that charge when it goes on.
    """
    for name in ("first", "whole"):  # the first run may keep what it compiles
        whole = runs(*words_of(made(tmp_path / name), out, people))
    assert whole.status == 0
    charged_failures = 0
    for at in range(whole.changes // 2, whole.changes + 1):  # before, nothing is charged
        folder = made(tmp_path / str(at))
        ended = runs(*words_of(folder, out, people), at=at, fails=errno.ENOSPC)
        said = " ".join(ended.output.split())
        assert "Traceback" not in said
        charged = charged_runs(folder, people)
        published = (folder / out).is_file() or any((folder / out).glob("part*"))
        assert charged in (0, 1), said
        assert charged or not published
        if ended.status == 0:
            assert charged
            continue
        assert ended.status == 2, said
        assert ("the run is charged to" in said) == bool(charged), said
        assert ("nothing was charged" in said) <= (not charged), said
        charged_failures += bool(charged)
        again = runs(*words_of(folder, out, people))
        if out.endswith("/"):
            if again.status != 0:  # a part is there: it must be said that the run goes on
                again = runs(*words_of(folder, out, people), "--resume")
            assert again.status == 0, again.output
            assert charged_runs(folder, people) == 1
        elif not published:
            assert again.status == 0, again.output
            assert charged_runs(folder, people) == 1 + charged
    assert charged_failures >= 3
