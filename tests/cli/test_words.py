"""What a newcomer reads in a terminal: one word for one thing, and a reason beside what surprises."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from mezzotint import collect, design, families, kernel, privacy
from mezzotint.kernel.checker import verdict_on
from mezzotint.privacy import claim
from tolerances import FEW

Invoke = Callable[..., Any]


def test_design_and_verify_print_one_epsilon_and_optimal_is_a_mechanism_alone(
    invoke: Invoke, tmp_path: Path
) -> None:
    path = tmp_path / "m.json"
    designed = invoke("design", "--epsilon", 1, "--levels", 2, "--out", path).out
    (stated,) = re.findall(r"epsilon (\S+) \(certified", designed)
    (derived,) = re.findall(r"epsilon <= (\S+) per report", invoke("verify", path).out)
    assert stated == derived
    assert float(derived) >= privacy.verify(path).epsilon_upper
    assert designed.startswith("optimal: ")
    assert designed.count("optimal:") == len(re.findall(r"\boptimal\b", designed)) == 1
    assert "solved to optimality in" in designed


def test_relation_and_unit_are_worded_alike_everywhere() -> None:
    """Whatever the unit is: what is done to it, then it; and the kernel says the same words."""
    verbs = {"replace_one": "replacing", "add_or_remove_one": "adding or removing"}
    units = {
        "client": "all data of one client",
        "record": "one record",
        "user": "all records of one user",
    }
    assert (verbs, units) == (claim._CHANGE, claim._UNITS)
    table = families.randomized_response(lower=0, upper=1, epsilon=1.0)
    certified, _ = privacy.prove(privacy.Release(mechanism=table, delta=0.0))
    assert certified.checked is not None
    for words in (str(certified), kernel.words(certified.checked)):
        assert "for replacing all data of one client" in words


def test_a_biased_table_is_blamed_for_a_wide_mean(invoke: Invoke, tmp_path: Path) -> None:
    """All that the bias leaves open stands in its column, and a sentence says that more reports do not help."""
    table = design.optimal(epsilon=1.0, lower=0, upper=10, levels=4, max_bias=2.0).mechanism
    inputs = np.random.default_rng(3).uniform(0, 10, 400_000)
    counts = collect.CodeCounts.from_codes(
        table.privatize(inputs, rng=5), mechanism=table, seeded=True
    )
    mean = collect.estimate(counts, allow_seeded=True).mean
    assert mean.identified is not None
    assert mean.identified[0] == pytest.approx(mean.value - table.max_bias, rel=FEW)
    assert mean.identified[1] == pytest.approx(mean.value + table.max_bias, rel=FEW)
    assert mean.low <= mean.identified[0] <= inputs.mean() <= mean.identified[1] <= mean.high
    path = tmp_path / "counts.json"
    collect.save_counts(counts, path)
    said = " ".join(invoke("estimate", path, "--allow-seeded").out.split())
    assert "which more reports do not reduce" in said
    fair = families.randomized_response(lower=0, upper=10, epsilon=1.0)
    counts = collect.CodeCounts.from_codes(
        fair.privatize(inputs, rng=5), mechanism=fair, seeded=True
    )
    assert collect.estimate(counts, allow_seeded=True).mean.identified is None


@pytest.mark.parametrize("method", ["asymptotic", "safe"])
@pytest.mark.parametrize("value", [0.0, 100.0])
def test_an_interval_for_the_mean_stays_within_the_range(value: float, method: Any) -> None:
    table = design.optimal(epsilon=1.0, lower=0, upper=100, levels=4).mechanism
    counts = collect.CodeCounts.from_codes(
        table.privatize(np.full(5000, value), rng=1), mechanism=table, seeded=True
    )
    mean = collect.estimate(counts, method=method, allow_seeded=True).mean
    assert min(0.0, mean.value) <= mean.low <= value <= mean.high <= max(100.0, mean.value)


def test_shares_below_zero_are_explained(invoke: Invoke, tmp_path: Path) -> None:
    table = families.categorical(categories=["a", "b", "c"], epsilon=1.0)
    for reports, expected in (([1000, 1000, 100], True), ([1000, 1000, 1000], False)):
        size = table.levels.size
        counts = np.resize(reports, size) if size != 3 else np.array(reports)
        path = tmp_path / f"{expected}.json"
        collect.save_counts(collect.CodeCounts(mechanism=table, counts=counts, seeded=True), path)
        said = invoke("estimate", path, "--allow-seeded").out
        assert ("unbiased" in said) == bool(re.search(r"-0\.\d", said)) == expected


def test_only_numbers_are_said_to_be_clipped(
    invoke: Invoke, tmp_path: Path, mechanism_file: Path
) -> None:
    source, table = tmp_path / "in.csv", tmp_path / "c.json"
    source.write_text("x,y\n" + "a,1\nb,99\n" * 5)
    assert (
        "3 possible reports"
        in invoke("design", "--epsilon", 1, "--categories", "a,b,c", "--out", table).out
    )
    words = ("privatize", source, "--column", "x", "--mechanism", table)
    alone = invoke(*words, "--out", tmp_path / "x.csv").out
    assert "clipped" not in alone
    assert "dropped as missing: 0" in alone
    both = invoke(
        *words, "--column", "y", "--mechanism", mechanism_file, "--out", tmp_path / "xy.csv"
    ).out
    assert "clipped: y 0 below, 5 above; dropped as missing: 0" in both


def test_the_kernel_sends_mechanism_files_to_verify(mechanism_file: Path) -> None:
    status, sentence, _ = verdict_on(mechanism_file.read_text())
    assert status == 2
    assert "mezzotint verify" in sentence
    assert "mezzotint verify" not in verdict_on('{"format": "mezzotint-claim"}')[1]


def test_a_ledger_explains_everyone_and_why_a_sum_is_computed(
    invoke: Invoke, tmp_path: Path, mechanism_file: Path, column_file: Path
) -> None:
    ledger = tmp_path / "l.jsonl"
    words = (
        "privatize",
        column_file,
        "--column",
        "x",
        "--mechanism",
        mechanism_file,
        "--ledger",
        ledger,
    )
    assert invoke(*words, "--out", tmp_path / "r.parquet").status == 0
    said = " ".join(invoke("ledger", ledger).out.split())
    assert "1 charge " in said
    assert "count for every person" in said
    assert "their sum is computed" in said
    other = tmp_path / "own.jsonl"
    words = (*words[:-1], other, "--charge-by", "id")
    assert invoke(*words, "--out", tmp_path / "r2.parquet").status == 0
    assert "everyone" not in invoke("ledger", other).out


def test_compare_says_what_its_columns_are(invoke: Invoke) -> None:
    said = invoke("compare", "--epsilon", 1, "--bits", 1).out
    for column in ("mse", "mae", "worst", "cdf", "max_bias", "% above"):
        assert said.count(column) >= 2, column


@pytest.mark.slow
def test_features_far_from_one_are_named_before_training(invoke: Invoke, tmp_path: Path) -> None:
    for name, size in (("far", 1000), ("near", 1)):
        rows = "\n".join(f"{i % 2},{(i % 7) * size}" for i in range(60))
        (tmp_path / f"{name}.csv").write_text(f"kind,x\n{rows}\n")
        data = f"data = {{file = '{tmp_path / name}.csv', label = 'kind'}}"
        text = f"{data}\nbudget.target_epsilon = 1\nrun = {{steps = 1, batch_size = 8}}\n"
        (tmp_path / "run.toml").write_text(text)
        outcome = invoke("train", tmp_path / "run.toml")
        assert outcome.status == 0, outcome
        assert ("scale all of them by public bounds" in outcome.err) == (name == "far")


def test_why_the_least_mse_may_take_more_people(invoke: Invoke) -> None:
    """The words below the comparison: the worst inputs lie at both ends, and one bit does not feel it."""
    ends, even = np.repeat([-1.0, 1.0], 256), np.linspace(-1, 1, 512)
    needed = {}
    for row in design.compare(epsilon=1.0, bits=2, families=("optimal", "randomized_response")):
        assert row.mechanism is not None
        for name, inputs in (("worst", None), ("ends", ends), ("even", even)):
            plan = collect.plan(mechanism=row.mechanism, half_width=0.1, inputs=inputs)
            needed[row.family, name] = plan.people
    assert needed["optimal", "worst"] == needed["optimal", "ends"] > needed["optimal", "even"]
    (one_bit,) = {needed["randomized_response", name] for name in ("worst", "ends", "even")}
    assert one_bit < needed["optimal", "worst"]
    printed = " ".join(invoke("compare", "--epsilon", 1, "--bits", 2).out.split())
    assert "The worst inputs lie half at each end" in printed
    assert str(needed["optimal", "worst"]) in printed


def test_reports_are_found_by_the_column_that_they_are_of(invoke: Invoke, tmp_path: Path) -> None:
    table = pa.table({"at": [f"2026-10-0{day}" for day in range(1, 8)] * 40, "x": [0.5] * 280})
    pq.write_table(table, tmp_path / "in.parquet")
    weekdays = families.categorical(categories=range(1, 8), epsilon=1.0)
    weekdays.save(tmp_path / "weekdays.json")
    families.randomized_response(lower=0, upper=1, epsilon=1.0).save(tmp_path / "bit.json")
    reports = tmp_path / "reports.parquet"
    columns = ["--column", "at:weekday", "--column", "x"]
    tables = ["--mechanism", tmp_path / "weekdays.json", "--mechanism", tmp_path / "bit.json"]
    invoke("privatize", tmp_path / "in.parquet", *columns, *tables, "--out", reports)
    by_column = invoke("estimate", reports, "--column", "at:weekday").out
    assert by_column == invoke("estimate", reports, "--column", "at_weekday_code").out
    page = tmp_path / "page.html"
    invoke("report", reports, "--column", "at:weekday", "--out", page)
    assert "<title>Reports of at:weekday in" in page.read_text(encoding="utf-8")
