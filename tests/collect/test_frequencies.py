"""Columns of categories: from text to reports to frequencies with intervals."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

from laws.registry import judges
from mezzotint import collect, families, privacy
from mezzotint.collect.counts import CodeCounts
from mezzotint.core.errors import ParameterError
from mezzotint.core.values import inputs
from mezzotint.report.file_pages import page_of
from tolerances import FEW

NAMES = ["red", "green", "blue"]
TRUE = [0.7, 0.25, 0.05]
EVERY = ("krr", "subset", "hadamard", "projective", "affine")


@pytest.fixture
def colours(tmp_path: Path) -> Path:
    values = np.random.default_rng(1).choice(NAMES, 20_000, p=TRUE).tolist()
    table = pa.table({"x": np.linspace(0, 1, 20_000), "colour": values})
    pq.write_table(table, tmp_path / "in.parquet")
    return tmp_path / "in.parquet"


def within(result: Any, truth: dict[str, float]) -> None:
    assert isinstance(result, collect.Frequencies)
    assert set(result.categories) == set(truth)
    for name, share in zip(result.categories, result.shares, strict=True):
        assert share.low <= truth[name] <= share.high, name  # at level 0.9999
        assert share.low <= share.value <= share.high
    assert sum(share.value for share in result.shares) == pytest.approx(1, rel=FEW)


@pytest.mark.parametrize("method", EVERY)
@pytest.mark.parametrize("out", ["r.parquet", "r.csv", "folder/"])
def test_text_to_frequencies(colours: Path, tmp_path: Path, method: Any, out: str) -> None:
    mechanism = families.categorical(categories=NAMES, epsilon=2.0, method=method)
    result = collect.privatize(colours, f"{tmp_path}/{out}", column="colour", mechanism=mechanism)
    assert (result.reports, result.columns[0].below, result.columns[0].above) == (20_000, 0, 0)
    found = collect.estimate(collect.read_counts(tmp_path / out), confidence=0.9999)
    seen = Counter(pq.read_table(colours)["colour"].to_pylist())
    within(found, {name: seen[name] / 20_000 for name in NAMES})
    assert (
        collect.estimate(collect.read_counts(tmp_path / out), method="safe").as_dict()["method"]
        == "safe"
    )


@pytest.mark.parametrize(
    ("values", "categories"),
    [
        (pa.array([True, False, None] * 3000), [True, False]),
        (pa.array([3, 1, None] * 3000, pa.int16()), [1, 3]),
        (pa.array(["a", "b", None] * 3000).dictionary_encode(), ["a", "b"]),
        (pa.array(["a", "b", ""] * 3000, pa.large_string()), ["a", "b"]),
    ],
    ids=["boolean", "integer", "dictionary", "empty text"],
)
def test_types_and_missing_values(values: pa.Array, categories: list[Any], tmp_path: Path) -> None:
    pq.write_table(pa.table({"c": values}), tmp_path / "in.parquet")
    plain = families.categorical(categories=categories, epsilon=3.0)
    with pytest.raises(ParameterError, match="data row 3 is missing"):
        collect.privatize(tmp_path / "in.parquet", tmp_path / "o.csv", column="c", mechanism=plain)
    dropped = collect.privatize(
        tmp_path / "in.parquet", tmp_path / "o.csv", column="c", mechanism=plain, missing="drop"
    )
    assert (dropped.reports, dropped.missing) == (6000, 3000)
    private = families.categorical(categories=categories, epsilon=3.0, missing=True)
    whole = collect.privatize(
        tmp_path / "in.parquet", tmp_path / "p.csv", column="c", mechanism=private
    )
    assert (whole.reports, whole.missing) == (9000, 0)
    found = collect.estimate(collect.read_counts(tmp_path / "p.csv"), confidence=0.9999)
    within(found, dict.fromkeys(private.categories or (), 1 / 3))


def test_values_that_are_not_listed(colours: Path, tmp_path: Path) -> None:
    few = families.categorical(categories=["red", "green"], epsilon=2.0)
    with pytest.raises(
        ParameterError,
        match=r"column=colour: data row \d+ holds a value that is no category of the table.*other=True",
    ):
        collect.privatize(colours, tmp_path / "o.parquet", column="colour", mechanism=few)
    rest = families.categorical(categories=["red", "green"], epsilon=2.0, other=True)
    collect.privatize(colours, tmp_path / "o.parquet", column="colour", mechanism=rest)
    found = collect.estimate(collect.read_counts(tmp_path / "o.parquet"), confidence=0.9999)
    within(found, {"red": 0.7, "green": 0.25, "(other)": 0.05} | {})
    with pytest.raises(
        ParameterError, match=r"column=x: data row 2 holds a fraction, which is no category"
    ):
        collect.privatize(colours, tmp_path / "q.parquet", column="x", mechanism=rest)


@pytest.mark.parametrize(
    ("kind", "spelled"),
    [
        (pa.decimal128(20, 0), ["0", "-7", None, "12345678901234567890"]),
        (pa.decimal128(9, 2), ["0", "-7", None, "12"]),
        (pa.decimal128(5, -2), ["0", "-700", None, "1200"]),
    ],
    ids=["whole", "zeros", "hundreds"],
)
def test_whole_decimals_are_spelled_as_their_digits(kind: pa.DataType, spelled: list[Any]) -> None:
    decimals = pa.array([text and Decimal(text) for text in spelled], kind)
    names = tuple(name for name in spelled if name is not None)
    read = inputs(decimals, names)
    assert read.present is not None
    assert read.present.tolist() == [True, True, False, True]
    assert read.values.tolist() == [0.0, 1.0, 2.0]
    assert read.unlisted == read.respelled == 0


def test_beside_a_column_of_numbers_and_kept_ones(colours: Path, tmp_path: Path) -> None:
    tables = {
        "colour": families.categorical(categories=NAMES, epsilon=1.0),
        "x": families.randomized_response(lower=0, upper=1, epsilon=0.5),
    }
    result = collect.privatize_columns(colours, tmp_path / "o.parquet", mechanisms=tables)
    assert result.claim is not None
    assert result.claim.epsilon == privacy.report_claim(tables).epsilon
    number = collect.estimate(
        collect.read_counts(tmp_path / "o.parquet", column="x_code"), confidence=0.9999
    )
    assert isinstance(number, collect.Estimate)
    assert number.mean.low <= 0.5 <= number.mean.high
    with pytest.raises(ParameterError, match="histogram=3: categories have frequencies"):
        collect.estimate(
            collect.read_counts(tmp_path / "o.parquet", column="colour_code"), histogram=3
        )


def test_csv_of_text_and_the_page_about_it(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,c\n" + "1,a\n2,b\n" * 500)
    mechanism = families.categorical(categories=["a", "b"], epsilon=2.0)
    collect.privatize(tmp_path / "in.csv", tmp_path / "o.parquet", column="c", mechanism=mechanism)
    page = page_of(tmp_path / "o.parquet")
    assert "1,000 reports about 2 categories" in page.summary
    assert page.sections[0].table is not None
    assert [row[0] for row in page.sections[0].table.rows] == ["a", "b"]


@judges("collect.estimates.frequencies")
@pytest.mark.parametrize("method", EVERY)
@pytest.mark.parametrize("n", [10, 1000])
def test_coverage_of_frequencies(method: Any, n: int) -> None:
    """Every category's 95 % interval, 150 draws: a coverage of 0.945 falls below the line with probability 1e-5."""
    mechanism = families.categorical(categories=NAMES, epsilon=2.0, method=method)
    draws, rng = 150, np.random.default_rng(5)
    hits = np.zeros(3)
    for counts in rng.multinomial(n, TRUE @ mechanism.probabilities, size=draws):
        found = collect.estimate(CodeCounts(mechanism=mechanism, counts=counts))
        assert isinstance(found, collect.Frequencies)
        hits += [
            share.low <= truth <= share.high
            for share, truth in zip(found.shares, TRUE, strict=True)
        ]
    assert hits.min() >= stats.binom(draws, 0.945).ppf(1e-5), hits
