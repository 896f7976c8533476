"""Answers of groups: every report under its own group's name, every interval as wide as it says."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from mezzotint import collect, families
from mezzotint.cli import run
from mezzotint.collect.estimates import CELLS_OF_A_DOMAIN
from mezzotint.collect.provenance import SAME_PEOPLE
from mezzotint.core.errors import FileFormatError, ParameterError
from tolerances import FEW

BIT = families.randomized_response(lower=0, upper=1, epsilon=1.0)

LABELS = st.one_of(
    st.none(), st.text('a,"( ', max_size=3), st.sampled_from(["(missing)", '"(missing)"', "a, b"])
)


@given(st.lists(st.tuples(LABELS, LABELS), min_size=1, max_size=12))
def test_two_groups_never_share_a_name(pairs: list[tuple[str | None, str | None]]) -> None:
    """By one column and by two: as many groups as distinct labels, whatever these are."""
    codes = np.zeros(len(pairs), dtype=np.uint8)
    columns = [pa.array(column, pa.string()) for column in zip(*pairs, strict=True)]
    together = collect.groups_of(codes, by=columns, mechanism=BIT)
    assert sorted(group.counts.n for group in together.values()) == sorted(
        pairs.count(pair) for pair in set(pairs)
    )
    alone = collect.groups_of(codes, by=columns[0], mechanism=BIT)
    labels = [label for label, _ in pairs]
    for label in set(labels):
        if label is not None and label.strip('"') != "(missing)":
            assert alone[label].counts.n == labels.count(label)
    assert sum(group.counts.n for group in alone.values()) == len(pairs)
    assert len(alone) == len(set(labels))


def test_plain_labels_stand_as_they_are() -> None:
    by = (["a", "b", None], [1, 2, 3])
    groups = collect.groups_of([0, 1, 0], by=by, mechanism=BIT)
    assert list(groups) == ["(missing), 3", "a, 1", "b, 2"]


def test_strata_of_the_same_people_are_no_sharper_than_one() -> None:
    """One memoised report of each person in every stratum, enumerated: a stratum's own chance."""
    n = 40
    ones = 25
    row = BIT.probabilities
    zeros = stats.binom(n - ones, row[0, 1]).pmf(np.arange(n - ones + 1))
    others = stats.binom(ones, row[-1, 1]).pmf(np.arange(ones + 1))
    chances = np.convolve(zeros, others)
    missed = {True: 0.0, False: 0.0}
    for same_people, (hits, chance) in itertools.product(missed, enumerate(chances)):
        counts = collect.CodeCounts(mechanism=BIT, counts=np.array([n - hits, hits]))
        group = collect.Group(counts=counts, weights=counts.counts, squares=counts.counts)
        groups = dict.fromkeys("abcd", group)
        estimates = collect.estimate_groups(
            groups, sizes=dict.fromkeys("abcd", 1.0), same_people=same_people
        )
        interval = estimates.answers[-1].interval
        if not interval.low <= ones / n <= interval.high:
            missed[same_people] += chance
        if same_people:
            own = estimates.answers[0].interval
            assert interval.low == pytest.approx(own.low, rel=FEW, abs=FEW)
            assert interval.high == pytest.approx(own.high, rel=FEW, abs=FEW)
    assert missed[True] <= 0.05
    assert missed[False] > 0.1  # of errors that agree: as they would be taken for independent


def test_memoised_strata_are_taken_for_the_same_people(tmp_path: Path) -> None:
    rows = pa.table({"x": [0.0, 1.0] * 100, "id": range(200), "day": [1, 2] * 100})
    pq.write_table(rows, tmp_path / "in.parquet")
    memo = collect.Memo(users="id", key=bytes(32))
    out = tmp_path / "r.parquet"
    options = {"column": "x", "mechanism": BIT, "keep": ["day"]}
    collect.privatize(tmp_path / "in.parquet", out, memo=memo, **options)
    groups = collect.read_groups(out, by="day")
    sizes = {"1": 1.0, "2": 1.0}
    found = collect.estimate_groups(groups, sizes=sizes)
    said = collect.estimate_groups(groups, sizes=sizes, same_people=True)
    assert found.answers == said.answers


@pytest.mark.parametrize("options", [{"against": "1"}, {"sizes": {"1": 1, "2": 1}}])
def test_waves_in_groups_of_their_own_are_not_combined_in_silence(
    tmp_path: Path, options: dict[str, object]
) -> None:
    """Each group is of one run; a difference or an average is of both."""
    groups = {}
    for wave in ("1", "2"):
        pq.write_table(pa.table({"x": [0.0, 1.0] * 50, "w": [wave] * 100}), tmp_path / "in.parquet")
        out = tmp_path / f"{wave}.parquet"
        collect.privatize(tmp_path / "in.parquet", out, column="x", mechanism=BIT, keep=["w"])
        groups |= collect.read_groups(out, by="w")
    (tmp_path / "in.parquet").unlink()
    for waves in (groups, collect.read_groups(tmp_path, by="w")):
        assert not collect.estimate_groups(waves).notes
        assert collect.estimate_groups(waves, **options).notes == (SAME_PEOPLE,)
        assert not collect.estimate_groups(waves, same_people=True, **options).notes
    # Reports of both runs in one group are counted as if of different people, whatever is combined.
    pooled = {"1": groups["1"].merge(groups["2"]), "2": groups["2"]}
    assert collect.estimate_groups(pooled, same_people=True).notes == (SAME_PEOPLE,)


def test_totals_hold_together_with_the_means() -> None:
    counts = collect.CodeCounts(mechanism=BIT, counts=np.array([300, 700]))
    group = collect.Group(counts=counts, weights=counts.counts * 5, squares=counts.counts * 25)
    found = collect.estimate_groups({"a": group, "b": group}, totals=True, simultaneous=True)
    totals = [answer for answer in found.answers if answer.quantity == "total"]
    assert [answer.group for answer in totals] == ["a", "b"]
    each = collect.total(group, confidence=1 - 0.05 / 4)
    assert totals[0].interval.ends == each.ends


def test_covariance_and_slope_hold_together() -> None:
    counts = np.array([[300, 100], [120, 400]])
    pairs = collect.PairCounts(first=BIT, second=BIT, counts=counts)
    both = collect.relation(pairs, simultaneous=True)
    each = collect.relation(pairs, confidence=0.975)
    assert both.simultaneous
    assert both.covariance == each.covariance
    assert both.slope == each.slope


def test_names_of_groups_and_categories_are_no_words_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A category "mean", and groups "population" and "b less a"."""
    words = families.categorical(categories=["mean", "total", "x"], epsilon=3.0)
    groups = ["a", "population", "b less a", "b"]
    rows = pa.table({"word": ["mean", "total", "x", "mean"] * 40, "g": groups * 40})
    pq.write_table(rows, tmp_path / "in.parquet")
    out = tmp_path / "r.parquet"
    collect.privatize(tmp_path / "in.parquet", out, column="word", mechanism=words, keep=["g"])
    sizes = ",".join(f"{name}={index + 1}" for index, name in enumerate(groups))
    options = ["--by", "g", "--against", "a", "--sizes", sizes, "--json"]
    assert run(["estimate", str(out), *options]) == 0
    said = json.loads(capsys.readouterr().out)
    read = collect.read_groups(out, by="g")
    found = collect.estimate_groups(
        read, against="a", sizes={name: index + 1 for index, name in enumerate(groups)}
    )
    assert len(said["answers"]) == 3 * (4 + 3 + 1)
    for printed, answer in zip(said["answers"], found.answers, strict=True):
        assert printed["about"] == answer.about
        assert printed["group"] == answer.group
        assert printed["quantity"] == answer.quantity
        assert printed["value"] == answer.interval.value


def test_sizes_of_groups_by_two_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = pa.table({"x": [0.0, 1.0] * 40, "g": ["a", "b"] * 40, "h": [1, 1, 2, 2] * 20})
    pq.write_table(rows, tmp_path / "in.parquet")
    out = str(tmp_path / "r.parquet")
    options = {"column": "x", "mechanism": BIT, "keep": ["g", "h"]}
    collect.privatize(tmp_path / "in.parquet", out, **options)
    sizes = "a, 1=5,a, 2=6,b, 1=7,b, 2=8"
    assert run(["estimate", out, "--by", "g", "--by", "h", "--sizes", sizes, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answers"][-1]["about"] == "population"
    for wrong in ("a, 1", "a, 1=", "a=1,a=2", "a=x"):
        assert run(["estimate", out, "--by", "g", "--sizes", wrong]) == 2
        assert "--sizes" in capsys.readouterr().err


def test_hashes_are_integers(tmp_path: Path) -> None:
    domain = families.hashed(categories=range(100), epsilon=2.0)
    for hashes in ([0.2], ["1"], np.ma.array([1], mask=[True]), [True]):
        with pytest.raises(ParameterError, match="hashes"):
            collect.HashedCounts.from_reports([0], hashes, domain=domain)
    with pytest.raises(ParameterError, match="codes"):
        collect.HashedCounts.from_reports([0.7], [1], domain=domain)
    with pytest.raises(ParameterError, match="masked"):
        collect.CodeCounts.from_codes(np.ma.array([0, 1], mask=[0, 1]), mechanism=BIT)
    (tmp_path / "in.csv").write_text("word\n7\n8\n")
    out = tmp_path / "r.csv"
    collect.privatize(tmp_path / "in.csv", out, column="word", mechanism=domain)
    comment, header, first, *others = out.read_text().splitlines()
    code = first.partition(",")[0]
    out.write_text("\n".join([comment, header, f"{code},1.5", *others]) + "\n")
    with pytest.raises(FileFormatError, match=r"word_hash: report 1 is 1\.5"):
        collect.read_hashed(out, domain=domain)


def test_shares_of_cells_are_not_taken_for_those_of_values(tmp_path: Path) -> None:
    domain = families.hashed(categories=range(100), epsilon=2.0)
    (tmp_path / "in.csv").write_text("word\n" + "7\n" * 50)
    out = tmp_path / "r.csv"
    collect.privatize(tmp_path / "in.csv", out, column="word", mechanism=domain)
    assert CELLS_OF_A_DOMAIN in collect.estimate(collect.read_counts(out)).notes
    assert (
        CELLS_OF_A_DOMAIN
        not in collect.heavy_hitters(collect.read_hashed(out, domain=domain)).notes
    )
