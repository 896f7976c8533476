"""Answers about groups: cross tables, shares and quantiles of each, their differences, tables of them in files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laws.registry import judges
from mezzotint import collect, design, families
from mezzotint.cli import run
from mezzotint.collect.evidence import CrossFitted
from mezzotint.collect.intervals import LADDER
from mezzotint.core.errors import ParameterError
from tolerances import FEW, MANY

CLEAR = collect.threshold_table(12.0, lower=0, upper=10, threshold=4)
KRR = families.k_randomized_response(lower=0, upper=10, levels=4, epsilon=2.0)


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Two towns, three days; in the second town twice as many lie above 4."""
    rng, n = np.random.default_rng(2), 3000
    town, day = rng.choice(["a", "b"], n), rng.choice([1, 2, 10], n)
    above = rng.random(n) < np.where(town == "a", 0.3, 0.6)
    values = pa.table({"x": np.where(above, 9.0, 1.0), "town": town, "day": day})
    pq.write_table(values, tmp_path / "in.parquet")
    collect.privatize(
        tmp_path / "in.parquet",
        tmp_path / "r.parquet",
        column="x",
        mechanism=CLEAR,
        keep=["town", "day"],
    )
    return tmp_path / "r.parquet"


def test_a_cross_table_is_what_its_rows_say(reports: Path) -> None:
    found = collect.read_groups(reports, by=["town", "day"])
    assert list(found) == [f"{town}, {day}" for town in "ab" for day in (1, 2, 10)]
    rows = pq.read_table(reports).to_pylist()
    for name, group in found.items():
        mine = [row["x_code"] for row in rows if f"{row['town']}, {row['day']}" == name]
        assert group.counts.counts.tolist() == np.bincount(mine, minlength=2).tolist()
    frame = pq.read_table(reports)
    again = collect.groups_of(
        frame["x_code"].to_numpy(),
        by=(frame["town"].to_numpy(), frame["day"].to_numpy()),
        mechanism=CLEAR,
    )
    assert {name: group.counts.counts.tolist() for name, group in again.items()} == {
        name: group.counts.counts.tolist() for name, group in found.items()
    }
    with pytest.raises(ParameterError, match="named twice"):
        collect.read_groups(reports, by=["town", "town"])


def test_groups_of_a_frame_with_missing_labels_and_weights() -> None:
    groups = collect.groups_of(
        [0, 1, 1], by=["a", None, "a"], mechanism=CLEAR, weights=[1.0, 2.0, 3.0]
    )
    assert list(groups) == ["(missing)", "a"]
    assert groups["a"].weights.tolist() == [1.0, 3.0]
    assert groups["a"].heaviest == 3.0
    with pytest.raises(ParameterError, match="label for each of 3"):
        collect.groups_of([0, 1, 1], by=["a"], mechanism=CLEAR)
    frame = groups["a"].to_frame()
    assert frame.columns.tolist() == ["code", "level", "reports", "weight"]


@judges("collect.answers.GroupEvidence.intervals", "collect.answers.estimate_groups")
def test_shares_and_differences_of_groups_cover(reports: Path) -> None:
    """At a confidence of 0.9999999 for all at once: misses with chance 1e-7."""
    groups = collect.read_groups(reports, by="town")
    found = collect.estimate_groups(
        groups, confidence=0.9999999, simultaneous=True, above=[4.0], quantiles=[0.5], against="a"
    )
    answers = {(one.group, one.quantity): one.interval for one in found.answers}
    share = "share above 4"
    # Rows are draws of 3 in 10: within 6 standard errors of 1500 rows.
    rows = 6 * np.sqrt(0.25 / 1400)
    assert answers["a", share].low - rows <= 0.3 <= answers["a", share].high + rows
    assert answers["b", share].low - rows <= 0.6 <= answers["b", share].high + rows
    gap = answers["b less a", share]
    assert gap.low - 2 * rows <= 0.3 <= gap.high + 2 * rows
    assert gap.low > 0.1
    # A share that one event decides has the sides of both at every level: narrower than a sum of widths.
    wide = sum(answers[town, share].high - answers[town, share].low for town in "ab")
    assert gap.high - gap.low < wide
    # The difference holds its point.
    median = answers["b less a", "quantile 0.5"]
    assert median.low <= answers["b", "quantile 0.5"].value - answers["a", "quantile 0.5"].value
    frame = found.to_frame()
    assert frame.shape == (len(found.answers), 6)


def test_what_groups_cannot_be_asked() -> None:
    rng = np.random.default_rng(1)
    codes = KRR.privatize(rng.random(100) * 10, rng=3)
    groups = collect.groups_of(codes, by=["a", "b"] * 50, mechanism=KRR, weights=[1.0, 2.0] * 50)
    same = collect.estimate_groups(groups, above=[5.0])  # weights differ between groups alone
    assert same.answers
    uneven = collect.groups_of(codes, by=["a"] * 100, mechanism=KRR, weights=[1.0, 2.0] * 50)
    with pytest.raises(ParameterError, match="unweighted"):
        collect.estimate_groups(uneven, above=[5.0])
    with pytest.raises(ParameterError, match="no such group"):
        collect.estimate_groups(groups, against="c")
    with pytest.raises(ParameterError, match="no groups"):
        collect.estimate_groups({})
    other = {**groups, "c": collect.groups_of([0], by=["c"], mechanism=CLEAR)["c"]}
    with pytest.raises(ParameterError, match="different tables"):
        collect.estimate_groups(other)
    with pytest.raises(ParameterError, match="inside"):
        collect.estimate_groups(groups, above=[50.0])


def test_shares_above_of_one_column() -> None:
    counts = collect.CodeCounts(mechanism=CLEAR, counts=np.array([300, 700]))
    found = collect.estimate(counts, above=[4.0], histogram=[0, 4, 10])
    assert isinstance(found, collect.Estimate)
    assert found.shares_above is not None
    assert found.histogram is not None
    assert next(iter(found.shares_above.values())).low == pytest.approx(
        found.histogram.low[1], abs=FEW
    )
    low, high = collect.intervals.clopper_pearson(700, 1000, 0.025)
    own, other = CLEAR.pmf([9.0])[0, 1], CLEAR.pmf([1.0])[0, 1]
    assert next(iter(found.shares_above.values())).low == pytest.approx(
        (low - other) / (own - other), rel=MANY
    )
    assert next(iter(found.shares_above.values())).high == pytest.approx(
        (high - other) / (own - other), rel=MANY
    )
    assert set(found.to_frame()["quantity"]) >= {"mean", "share above 4"}
    assert found.as_dict()["shares_above"][0]["above"] == 4.0
    assert counts.to_frame()["reports"].tolist() == [300, 700]
    assert "<table>" in counts._repr_html_()


# The command line --------------------------------------------------------------------------------


def told(capsys: pytest.CaptureFixture[str], *arguments: Any, status: int = 0) -> str:
    capsys.readouterr()
    assert run(["estimate", *map(str, arguments)]) == status
    out, err = capsys.readouterr()
    return out + err


def test_a_cross_table_on_the_command_line(
    reports: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = (reports, "--by", "town", "--by", "day", "--above", 4, "--quantiles", "0.5,0.9")
    facts = json.loads(told(capsys, *asked, "--against", "a, 1", "--json"))
    assert facts["by"] == "town, day"
    answers = facts["answers"]
    assert [one["about"] for one in answers] == ["group"] * 24 + ["difference"] * 20
    assert [one["quantity"] for one in answers[:4]] == [
        "mean",
        "share above 4",
        "quantile 0.5",
        "quantile 0.9",
    ]
    for ending in ("csv", "parquet", "md"):
        out = tmp_path / f"t.{ending}"
        text = told(capsys, *asked, "--out", out)
        assert "share above 4" in text
        assert "exists already" in told(capsys, *asked, "--out", out, status=2)
    table = pq.read_table(tmp_path / "t.parquet")
    assert table.num_rows == 6 * 4
    assert table.column_names == ["group", "reports", "quantity", "value", "low", "high"]
    assert (tmp_path / "t.md").read_text().count("\n") == 6 * 4 + 2
    assert (tmp_path / "t.csv").read_text().splitlines()[0] == ",".join(table.column_names)
    assert "| a, 10 |" in (tmp_path / "t.md").read_text()
    assert ".csv or .parquet" in told(capsys, *asked, "--out", tmp_path / "t.txt", status=2)


def test_options_that_may_stand_without_a_value(
    reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = json.loads(told(capsys, reports, "--quantiles", "--histogram", "--json"))
    assert len(plain["quantiles"]) == 5
    assert len(plain["histogram"]["share"]) == 10
    own = json.loads(told(capsys, reports, "--quantiles", "0.5", "--histogram", "0,4,10", "--json"))
    assert len(own["quantiles"]) == 1
    assert own["histogram"]["edges"] == [0.0, 4.0, 10.0]


# Sides of shares and quantiles --------------------------------------------------------------------

CDF = design.optimal(epsilon=1.0, lower=0, upper=1, levels=12, loss="cdf", knots=9).mechanism


def beta_group(seed: int, n: int, second: float) -> collect.Group:
    rng = np.random.default_rng(seed)
    codes = CDF.privatize(rng.beta(2, second, n), rng=rng)
    counts = np.bincount(codes, minlength=CDF.levels.size)
    reports = collect.CodeCounts(mechanism=CDF, counts=counts, seeded=True)
    return collect.Group(counts=reports, weights=counts, squares=counts)


@pytest.mark.parametrize("same", [False, True])
def test_differences_of_shares_are_as_narrow_as_those_of_means(same: bool) -> None:
    """What they add to the range that the table leaves open is the root of the sum of squares."""
    groups = {"a": beta_group(1, 5000, 5.0), "b": beta_group(2, 5000, 4.0)}
    found = collect.estimate_groups(
        groups, above=[0.3], quantiles=[0.5], against="a", same_people=same, allow_seeded=True
    )
    answers = {(one.group, one.quantity): one.interval for one in found.answers}
    one, other = (answers[name, "share above 0.3"] for name in "ab")
    gap = answers["b less a", "share above 0.3"]
    assert one.identified is not None
    assert other.identified is not None
    upper = other.high - other.identified[1], one.identified[0] - one.low
    lower = other.identified[0] - other.low, one.high - one.identified[1]
    opened = other.identified[1] - one.identified[0], other.identified[0] - one.identified[1]
    added = gap.high - opened[0], opened[1] - gap.low
    for sides, width in zip((upper, lower), added, strict=True):
        whole = sum(sides) if same else math.hypot(*sides)
        assert 0.9 * whole < width < 1.1 * whole
    median = answers["b less a", "quantile 0.5"]
    one, other = (answers[name, "quantile 0.5"] for name in "ab")
    assert other.low - one.high <= median.low <= median.value <= median.high <= other.high - one.low


def test_sides_grow_with_the_level_and_hold_the_interval() -> None:
    """At each quantile they reach at least as far as at the one before."""
    evidence = CrossFitted(
        beta_group(3, 400, 5.0).counts, confidence=0.95, edges=np.array([0.0, 0.3, 1.0])
    )
    quantiles = 1.96 * LADDER
    share = evidence.share(0.3, 1.0)
    median = evidence.quantile(0.5)
    for below, above in (
        evidence.sides_of_share(share, (0.3, 1.0), quantiles),
        evidence.sides_of_quantile(median, 0.5, quantiles),
    ):
        assert below.shape == above.shape == LADDER.shape
        assert (np.diff(below) >= 0).all()
        assert (np.diff(above) >= 0).all()
        assert below[0] >= 0
        assert above[0] >= 0
    assert share.identified is not None
    below, above = evidence.sides_of_share(share, (0.3, 1.0), quantiles)
    assert share.value - below[0] <= share.identified[0]
    assert share.value + above[0] >= share.identified[1]
    # Its decoders are chosen for a lower quantile: no better ones, and hardly worse.
    for side, end in ((below, share.value - share.low), (above, share.high - share.value)):
        assert 0.95 * end <= side[-1] <= 1.15 * end
