"""`mezzotint privatize` killed before changes of a file, and within writes: nothing is free, nothing lost."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from killing import Runs
from mezzotint import families
from mezzotint.collect import load_memo_key
from mezzotint.core.files import RepairWarning
from mezzotint.privacy import Ledger

pytestmark = pytest.mark.slow

ROWS = 300
STRIDE = 3  # a part changes files about ten times, in one order
PEOPLE_STRIDE = 7  # a run that charges people changes files 54 times
TABLE = families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.4)


@pytest.fixture(scope="module")
def runs() -> Iterator[Runs]:
    with Runs.of("mezzotint.cli:run", loads=("loaded_merging",)) as found:
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


def _spent_by(ledger: Path, person: int) -> float:
    """In releases."""
    if not ledger.exists() or not Path(f"{ledger}.key").exists():
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RepairWarning)  # of a torn line, whose charge was not made
        key = load_memo_key(f"{ledger}.key")
        return Ledger(ledger).person_spent(str(person), key=key).epsilon / TABLE.epsilon


@pytest.mark.parametrize("torn", [False, True], ids=["before", "within"])
def test_people_counted_beside_their_values_pay_before_a_report_is_there(
    runs: Runs, days: Path, tmp_path: Path, torn: bool
) -> None:
    """Of one file: nobody has paid and nothing is there, or everybody has paid for their row."""
    people = ("--charge-by", "id")
    changes = 0
    for name in ("first", "second"):  # the first run may keep what it compiles
        words = _words(days, f"{tmp_path}/{name}.parquet", tmp_path / f"{name}.jsonl", *people)
        changes = runs(*words).changes
    assert changes > 10
    for at in range(1 + 3 * torn, changes + 1, PEOPLE_STRIDE):
        out, ledger = tmp_path / f"out{at}.parquet", tmp_path / f"{at}.jsonl"
        words = _words(days, str(out), ledger, *people)
        assert runs(*words, at=at, torn=torn).status is None
        left = _reports(out)
        paid = [_spent_by(ledger, person) for person in (0, 2 * ROWS - 1)]
        assert paid in ([0.0, 0.0], [1.0, 1.0])
        assert paid[0] or not left
        whole_file = left.get(out.name)
        again = runs(*words)
        assert again.status == (0 if whole_file is None else 2), again.output
        assert _spent_by(ledger, 0) == paid[0] + (whole_file is None)
