"""`mezzotint ledger`, and what a run says of the ledger that it was charged to."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from federated.grids import charge_sum
from mezzotint import families, privacy
from mezzotint.core.files import AppendLog
from mezzotint.core.records import above
from mezzotint.federated.budgets import Sums
from mezzotint.federated.encoding import gaussian_encoding
from mezzotint.federated.lifetime_ledger import LifetimeLedger
from mezzotint.federated.run_ledger import RunLedger
from tolerances import FEW

EPSILON = families.randomized_response(lower=0, upper=10, epsilon=0.5).epsilon


@pytest.fixture
def charged(invoke: Callable[..., Any], tmp_path: Path) -> tuple[Path, Any]:
    """A ledger of three runs: ann with two rows and bob with one, bob and eve, everyone; the words to charge more."""
    families.randomized_response(lower=0, upper=10, epsilon=0.5).save(tmp_path / "m.json")
    ledger, words = tmp_path / "l.jsonl", ["--column", "x", "--mechanism", tmp_path / "m.json"]
    words += ["--ledger", ledger, "--budget", "1.6"]
    for place, (ids, more) in enumerate(
        (
            (["ann", "bob", "ann"], ["--charge-by", "id"]),
            (["bob", "eve"], ["--charge-by", "id"]),
            (["x"], []),
        )
    ):
        source = tmp_path / f"{place}.parquet"
        pq.write_table(pa.table({"x": [1.0] * len(ids), "id": ids}), source)
        assert (
            invoke(
                "privatize", source, *words, *more, "--out", tmp_path / f"o{place}.parquet"
            ).status
            == 0
        )
    return ledger, words


def test_a_ledger_says_who_spent_what_and_what_is_left(
    invoke: Callable[..., Any], charged: tuple[Path, Any]
) -> None:
    found = invoke("ledger", charged[0], "--budget", "1.6", "--json").json
    names = {one["client"]: one for one in found["clients"]}
    assert {name: one["releases"] for name, one in names.items()} == {
        "*": 1,
        "ann": 2,
        "bob": 3,
        "eve": 2,
    }
    assert found["persons"] == 3
    reports = {
        "*": 1,
        "ann": 3,
        "bob": 3,
        "eve": 2,
    }  # rows of their own, and the run that everyone paid for
    for name, one in names.items():
        assert one["epsilon"] == pytest.approx(reports[name] * EPSILON, rel=FEW)
        assert one["epsilon"] >= reports[name] * EPSILON
        assert one["left"] <= 1.6 - reports[name] * EPSILON
    assert found["worst"]["epsilon"] == privacy.Ledger(charged[0]).worst().epsilon
    assert found["charges"] == 3  # a line for each run
    assert [(one["charges"], one["sources"]) for one in found["claims"]] == [(3, 3)]
    export = charged[0].with_name("people.jsonl")
    assert invoke("ledger", charged[0], "--export", export).status == 0
    lines = [json.loads(line) for line in export.read_text().splitlines()]
    rows = {(one["person"], one["rows"]) for one in lines if "person" in one}
    assert rows == {("ann", 2), ("bob", 1), ("eve", 1)}
    said = invoke("ledger", charged[0], "--client", "eve", "--budget", "0.9")
    assert said.status == 1
    assert "Budget: epsilon 0.9, exceeded." in said.out
    assert "ann" not in said.out
    assert "Certified: (0.5, 0)-differential privacy" in " ".join(said.out.split())


@pytest.mark.parametrize(("client", "status"), [("eve", 0), ("ann", 1), ("nobody", 0)])
def test_one_client_is_not_taken_for_the_one_who_spent_most(
    invoke: Callable[..., Any], charged: tuple[Path, Any], client: str, status: int
) -> None:
    """What is said of the ledger stays so when one person is asked about, and names nobody else."""
    worst = privacy.Ledger(charged[0]).worst().epsilon
    arguments = ["ledger", charged[0], "--client", client, "--budget", "1.2"]
    printed = invoke(*arguments)
    assert printed.status == status
    words = " ".join(printed.out.split())
    assert f"Largest total: epsilon {above(worst)}" in words
    assert "whoever" not in words
    assert "more clients" not in words
    document = invoke(*arguments, "--json").json
    assert document["worst"]["epsilon"] == worst
    assert document["worst"]["client"] is None
    assert {entry["client"] for entry in document["clients"]} == {"*", client}


def test_a_budget_is_printed_as_it_was_given(
    invoke: Callable[..., Any], charged: tuple[Path, Any]
) -> None:
    """To six digits it would be 1.23457, more than was allowed."""
    printed = invoke("ledger", charged[0], "--client", "eve", "--budget", "1.23456789")
    assert "Budget: epsilon 1.23456789, " in printed.out


def test_another_attempt_is_told(invoke: Callable[..., Any], tmp_path: Path) -> None:
    ledger = privacy.Ledger(tmp_path / "l.jsonl")
    weekly = privacy.Charge(identity="w47", client="ann", epsilon=0.5, delta=0.0)
    ledger.charge(weekly)
    ledger.withdraw(ledger.charge(weekly), reason="nothing was sent")
    ledger.charge(weekly)
    found = invoke("ledger", tmp_path / "l.jsonl", "--json").json
    assert (found["charges"], found["repeated"], found["withdrawn"]) == (2, 1, 1)
    assert found["worst"] == {
        "client": "ann",
        "releases": 2,
        "repeated": 1,
        "epsilon": 1.0,
        "delta": 0.0,
    }
    assert (
        "2 charges, 1 of them another attempt at the same release, 1 withdrawn"
        in invoke("ledger", tmp_path / "l.jsonl").out
    )


def test_a_run_says_what_was_charged_and_left_and_a_refusal_names_whom_it_is_about(
    invoke: Callable[..., Any], charged: tuple[Path, Any], tmp_path: Path
) -> None:
    ledger, words = charged
    pq.write_table(pa.table({"x": [1.0, 2.0], "id": ["ann", "zoe"]}), tmp_path / "in.parquet")
    source = [
        tmp_path / "in.parquet",
        *words,
        "--charge-by",
        "id",
        "--out",
        tmp_path / "out.parquet",
    ]
    refused = invoke("privatize", *source)
    assert refused.status == 2
    assert (
        "exceeds the budget: person 'ann' has spent epsilon 1.5 and would pay 0.5 for each of their rows"
        in refused.err
    )
    assert "zoe" not in refused.err
    richer = ["2.25" if word == "1.6" else word for word in source]
    ran = invoke("privatize", *richer, "--json").json["charged"]
    assert (ran["people"], ran["attempt"], ran["epsilon"]) == (2, 1, EPSILON)
    assert ran["spent"] == privacy.Ledger(ledger).worst().epsilon
    assert 0.249 < ran["left"] <= 2.25 - 4 * EPSILON
    again = invoke(
        "privatize",
        tmp_path / "0.parquet",
        *("9" if word == "1.6" else word for word in words),
        "--out",
        tmp_path / "p.parquet",
    )
    assert (
        "ledger: charged everyone epsilon 0.5 (certified, to an observer of every single report)"
        in again.out
    )
    # Without ids nothing is known of people, who may have several rows.
    assert "the largest total of any row is now 2.5, which leaves 6.5 of the budget" in again.out
    richest = ["9" if word == "1.6" else word for word in source]
    by_people = invoke("privatize", *richest, "--overwrite")
    assert "the largest total of any person is now 3" in by_people.out


def test_ledgers_of_runs_say_rounds_and_steps(invoke: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    rounds = RunLedger(path, {"session": "ab", "coordinates": 3})
    for survivors in (["ann", "bob"], None):
        number = rounds.start()
        rounds.ask(number, ["ann", "bob", "eve"], minimum=2)
        if survivors:
            rounds.close(number, survivors)
    found = invoke("ledger", path, "--json").json
    assert found["charges"] == {"ann": 2, "bob": 2, "eve": 1}
    said = invoke("ledger", path).out
    assert "1 released, 1 interrupted" in said
    assert "more than 2 rounds" in said
    assert "mezzotint report" not in said  # which would refuse: the run has not ended
    (tmp_path / "report.json").write_text("{}")
    assert "mezzotint report" in invoke("ledger", path).out
    assert f"name the ledger in it: {path}" in invoke("ledger", tmp_path).err
    refused = invoke("ledger", path, "--budget", "1")
    assert refused.status == 2
    assert "counts rounds, whose price the run's report states" in refused.err
    path = tmp_path / "net.pt.ledger.jsonl"
    log = AppendLog(
        path, header={"format": "mezzotint-training-ledger", "version": 1}, take=lambda line: None
    )
    with log.transaction() as append:
        append(
            {"reserved": 40, "claim": None, "sentence": "Computed: (1, 1e-05)-differential privacy"}
        )
    assert "40 steps reserved\nComputed: (1, 1e-05)" in invoke("ledger", path).out


@pytest.mark.parametrize(
    "content", [b"", b"{}\n", b"[" * 70000, b"\xff\n", b'{"format":"mezzotint-ledger"}\n']
)
def test_other_files_are_refused(
    invoke: Callable[..., Any], tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "l.jsonl").write_bytes(content)
    ran = invoke("ledger", tmp_path / "l.jsonl")
    assert ran.status == 2
    assert "is not a ledger" in ran.err
    assert (tmp_path / "l.jsonl").read_bytes() == content
    assert invoke("ledger", tmp_path / "absent.jsonl").status == 2
    assert not (tmp_path / "absent.jsonl").exists()
    assert "is a folder; it holds no ledger.jsonl" in invoke("ledger", tmp_path).err


def test_a_damaged_ledger_is_named_whatever_is_wrong_with_it(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    """Every cut and many changed bytes: status 0 (a crash's cut is mended, and said) or 2, and never a traceback."""
    ledger = privacy.Ledger(tmp_path / "l.jsonl")
    for name in ("w47", "w48"):
        ledger.charge(privacy.Charge(identity=name, client="ann", epsilon=0.5, delta=0.0))
    whole = (tmp_path / "l.jsonl").read_bytes()
    second = whole.index(b"\n", whole.index(b"\n") + 1)
    for place in range(0, len(whole), 31):
        for damaged in (whole[:place], whole[:place] + b"\x00" + whole[place + 1 :]):
            (tmp_path / "l.jsonl").write_bytes(damaged)
            outcome = invoke("ledger", tmp_path / "l.jsonl", "--json")
            assert outcome.status in (0, 2)
            if outcome.status:
                assert re.fullmatch("mezzotint: .+\n", outcome.err)
            else:  # what counted when it was cut counts
                assert outcome.json["charges"] >= (len(damaged) == place and place > second)


def test_a_federated_client_reads_what_its_sums_cost(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    path = tmp_path / "sums.jsonl"
    encoding = gaussian_encoding(noise_multiplier=4.0, clip_norm=1.0, clients=10, size=20)
    ledger = LifetimeLedger(path, identity="ab")
    single_sum = Sums(size=20, clients=10, corrupted=2, delta=1e-5)
    for number in (1, 2):
        charge_sum(ledger, encoding, single_sum, number)
    expected = encoding.central(
        Sums(rounds=2, clients=10, size=20, delta=1e-6, corrupted=2)
    ).epsilon
    found = invoke("ledger", path, "--delta", "1e-6", "--json").json
    assert (found["sums"], found["epsilon"], found["observer"]) == (2, expected, "secure_sum")
    assert invoke("ledger", path, "--delta", "1e-6", "--budget", expected).status == 0
    exceeded = invoke("ledger", path, "--delta", "1e-6", "--budget", expected / 2)
    assert (exceeded.status, "exceeded" in exceeded.out) == (1, True)
    assert "--client" in invoke("ledger", path, "--client", "ann").err


def test_a_run_ledger_tells_of_one_client(invoke: Callable[..., Any], tmp_path: Path) -> None:
    ledger = RunLedger(tmp_path / "run.jsonl", {})
    number = ledger.start()
    ledger.ask(number, ["ann", "bob"], minimum=1)
    ledger.close(number, ["ann"])
    assert invoke("ledger", tmp_path / "run.jsonl", "--client", "bob", "--json").json[
        "charges"
    ] == {"bob": 0}
    assert "mezzotint report" in invoke("ledger", tmp_path / "run.jsonl", "--budget", "1").err


def test_nothing_overwrites_a_ledger_or_its_key(
    invoke: Callable[..., Any], charged: tuple[Path, Any], tmp_path: Path
) -> None:
    """What was spent would be forgotten: neither a run that is charged to it, nor another verb."""
    ledger, words = charged
    key = Path(f"{ledger}.key")
    names = {tmp_path / "l.csv": ledger, tmp_path / "k.csv": key, tmp_path / "l.json": ledger}
    for link, target in names.items():
        link.symlink_to(target)
    before = ledger.read_bytes(), key.read_bytes()
    run = ["privatize", tmp_path / "0.parquet", *words[:4]]
    for out in (ledger, tmp_path / "l.csv", key, f"{ledger}.people/", f"{ledger}.people/more/"):
        for more in ([], ["--overwrite"]):
            ended = invoke(*run, "--ledger", ledger, "--out", out, *more)
            assert ended.status == 2
            assert "is the ledger, or belongs to it" in ended.err
    other = tmp_path / "other.jsonl"
    for line in (
        [*run, "--ledger", other, "--out", tmp_path / "l.csv"],
        [*run, "--ledger", other, "--out", tmp_path / "k.csv"],
        ["ledger", ledger, "--export", ledger],
        ["design", "--epsilon", "1", "--levels", "2", "--out", tmp_path / "l.json"],
    ):
        ended = invoke(*line, "--overwrite")
        assert ended.status == 2
        assert "nothing overwrites" in ended.err
    assert (ledger.read_bytes(), key.read_bytes()) == before
    assert all(link.is_symlink() for link in names)
    assert not other.exists()
    table = families.randomized_response(lower=0, upper=10, epsilon=1.0)
    table.save(tmp_path / "m.json", overwrite=True)  # anything else is


def test_a_ledger_behind_links_that_go_in_a_circle_is_refused(
    invoke: Callable[..., Any], charged: tuple[Path, Any], tmp_path: Path
) -> None:
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    for path in (circle, circle / "l.jsonl"):
        line = ["privatize", tmp_path / "0.parquet", *charged[1][:4], "--out", tmp_path / "o.csv"]
        ended = invoke(*line, "--ledger", path)
        assert ended.status == 2
        assert "leads back to itself" in ended.err
        assert not (tmp_path / "o.csv").exists()


def test_a_conversion_waits_for_an_export_that_can_be_written(
    invoke: Callable[..., Any], tmp_path: Path
) -> None:
    book, there = tmp_path / "spent.jsonl", tmp_path / "there.jsonl"
    privacy.Ledger(book).charge(
        privacy.Charge(identity="w47", client="ann", epsilon=0.5, delta=0.0)
    )
    there.touch()
    outcome = invoke("ledger", book, "--convert", tmp_path / "new.jsonl", "--export", there)
    assert outcome.status == 2
    assert "--export=" in outcome.err
    assert not (tmp_path / "new.jsonl").exists()


@pytest.mark.parametrize("name", ["l.jsonl", "ledger.jsonl", "l.log"])
def test_a_ledger_has_no_page_and_the_refusal_says_what_shows_it(
    invoke: Callable[..., Any], charged: tuple[Path, Any], tmp_path: Path, name: str
) -> None:
    """By whatever name: ledger.jsonl was taken for that of a federated run, which should go on."""
    ledger = charged[0].rename(tmp_path / name)
    ended = invoke("report", ledger, "--out", tmp_path / "page.html")
    assert ended.status == 2
    assert f"mezzotint ledger {name} shows it" in ended.err
    (tmp_path / "m.json").unlink()
    for source in tmp_path.glob("?.parquet"):
        source.unlink()
    assert "federate" not in invoke("report", tmp_path, "--out", tmp_path / "page.html").err
