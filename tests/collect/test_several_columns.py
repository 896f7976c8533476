"""Several columns in one run: tables, keystreams, rows with missing values, and the claim of a record."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from laws.registry import judges
from mezzotint import collect, families, privacy
from mezzotint.collect import Settings
from mezzotint.collect.encoder import Encoder, Tally, draw, keystream_words
from mezzotint.collect.listing import SourceFile
from mezzotint.collect.reports import row_claim
from mezzotint.collect.source import Batch
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.sampler import codes_from_words
from tolerances import FEW

ONE = families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.4)
TWO = families.randomized_response(lower=0, upper=5, epsilon=0.7)
N = 3000
RNG = np.random.default_rng(5)
COLUMNS = {"x": RNG.uniform(-1, 1, N), "y": RNG.uniform(0, 6, N), "id": np.arange(N)}


def words_of(key: bytes, count: int) -> np.ndarray:
    """The first part of the keystream by its definition: AES-256-CTR over zeros from the count 2 on, by another route
    than the sampler's."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

    encryptor = Cipher(algorithms.AES(key), modes.CTR((2).to_bytes(16, "big"))).encryptor()
    return np.frombuffer(encryptor.update(bytes(8 * count)), dtype="<u8")


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_each_column_gets_its_own_table_and_stream(tmp_path: Path, ending: str) -> None:
    pq.write_table(pa.table(COLUMNS), tmp_path / "in.parquet", row_group_size=700)
    out = tmp_path / f"out{ending}"
    mechanisms = {"y": TWO, "x": ONE}
    result = collect.privatize_columns(
        tmp_path / "in.parquet",
        out,
        mechanisms=mechanisms,
        keep=["id"],
        rng=3,
        on_out_of_range="clip",
    )
    keys = Encoder.of(mechanisms, Settings(rng=3)).keys
    assert keys[0] != keys[1]
    for key, (column, mechanism) in zip(keys, mechanisms.items(), strict=True):
        expected = codes_from_words(mechanism, COLUMNS[column], words_of(key, N))
        counts = collect.read_counts(out, column=f"{column}_code")
        by_column = collect.read_counts(out, column=column)
        assert by_column.mechanism == mechanism
        assert by_column.counts.tolist() == counts.counts.tolist()
        assert counts.mechanism == mechanism
        assert (
            counts.counts.tolist()
            == np.bincount(expected, minlength=mechanism.levels.size).tolist()
        )
        if ending == ".parquet":
            assert pq.read_table(out)[f"{column}_code"].to_pylist() == expected.tolist()
    assert [one.column for one in result.columns] == ["y", "x"]
    assert result.columns[0].above == int((COLUMNS["y"] > 5).sum())
    assert result.reports == N


def test_the_claim_is_the_sum_rounded_up() -> None:
    claim = privacy.report_claim({"a": ONE, "b": TWO, "c": ONE})
    exact = 2 * Fraction(ONE.epsilon) + Fraction(TWO.epsilon)
    assert exact <= Fraction(claim.epsilon) <= exact + Fraction(math.ulp(claim.epsilon))
    assert "one report per column" in str(claim)
    assert claim.as_dict()["parts"] == {"a": ONE.epsilon, "b": TWO.epsilon, "c": ONE.epsilon}
    with pytest.raises(ParameterError, match="mechanism=no columns"):
        privacy.report_claim({})


def test_the_claim_bounds_the_ratios_of_whole_records_and_is_reached() -> None:
    # Brute force over all pairs of records on knots and all pairs of codes, in exact integers.
    one, two = ONE.weights.astype(object), TWO.weights.astype(object)

    def worst(weights: np.ndarray) -> Fraction:
        return max(
            Fraction(int(p), int(q))
            for row in weights
            for other in weights
            for p, q in zip(row, other, strict=True)
        )

    ratio = worst(one) * worst(two)
    epsilon = privacy.report_claim({"a": ONE, "b": TWO}).epsilon
    assert math.log(ratio) <= epsilon <= math.log(ratio) * (1 + FEW)


def test_a_table_without_privacy_makes_the_claim_infinite() -> None:
    bare = families.stochastic_rounding(lower=0, upper=1, levels=4)
    assert privacy.report_claim({"a": ONE, "b": bare}).epsilon == math.inf


def test_rows_missing_any_value_are_dropped_or_named(tmp_path: Path) -> None:
    x = pa.array([0.1, None, 0.3, 0.4, float("nan"), 0.6])
    y = pa.array([1, 2, None, 4, None, 6])
    pq.write_table(pa.table({"x": x, "y": y, "id": list(range(6))}), tmp_path / "in.parquet")
    mechanisms, out = {"x": ONE, "y": TWO}, tmp_path / "out.parquet"
    with pytest.raises(ParameterError, match=r"column=x: data row 2 is missing"):
        collect.privatize_columns(tmp_path / "in.parquet", out, mechanisms=mechanisms)
    result = collect.privatize_columns(
        tmp_path / "in.parquet", out, mechanisms=mechanisms, missing="drop", keep=["id"], rng=1
    )
    assert (result.reports, result.missing) == (3, 3)
    written = pq.read_table(out)
    assert written["id"].to_pylist() == [0, 3, 5]
    # Row i takes word i, whether rows before it were dropped or not.
    for key, (column, mechanism) in zip(
        Encoder.of(mechanisms, Settings(rng=1)).keys, mechanisms.items(), strict=True
    ):
        values = {"x": [0.1, 0.4, 0.6], "y": [1.0, 4.0, 6.0]}[column]
        expected = codes_from_words(mechanism, np.array(values), words_of(key, 6)[[0, 3, 5]])
        assert written[f"{column}_code"].to_pylist() == expected.tolist()


@pytest.mark.parametrize("cuts", [[1, 2, 3], [65_535, 65_537, 70_001], [7, 100_000]])
def test_codes_do_not_depend_on_where_batches_are_cut(cuts: list[int]) -> None:
    size, key = 140_001, bytes(range(32))
    values = np.random.default_rng(2).uniform(-1.5, 1.5, size)

    def drawn(first: int, stop: int) -> tuple[Any, int, int]:
        rows = pa.record_batch({"x": values[first:stop]})
        batch = Batch(values=rows, file=SourceFile(path="", name=""), row=first, first=first)
        return draw(ONE, values[first:stop], keystream_words(key, batch, None))

    whole, below, above = drawn(0, size)
    assert whole.tolist() == codes_from_words(ONE, values, words_of(key, size)).tolist()
    assert (below, above) == (int((values < -1).sum()), int((values > 1).sum()))
    edges = [0, *cuts, size]
    parts = [drawn(a, b)[0] for a, b in itertools.pairwise(edges)]
    assert np.concatenate(parts).tolist() == whole.tolist()


def test_out_of_range_names_row_and_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [0.0, 0.5], "y": [1.0, 9.0]}), tmp_path / "in.parquet")
    with pytest.raises(ParameterError, match=r"column=y: data row 2 lies outside \[0, 5\]"):
        collect.privatize_columns(
            tmp_path / "in.parquet",
            tmp_path / "o.csv",
            mechanisms={"x": ONE, "y": TWO},
            on_out_of_range="error",
        )
    (tmp_path / "in.csv").write_text("z,x,y\n1,1,1\n2,2,oops\n")
    with pytest.raises(
        ParameterError, match="column=y: data row 2 holds text, not a number; other columns: z, x"
    ):
        collect.privatize_columns(
            tmp_path / "in.csv", tmp_path / "o.csv", mechanisms={"x": ONE, "y": TWO}
        )
    with pytest.raises(ParameterError, match="mechanisms=none"):
        collect.privatize_columns(tmp_path / "in.csv", tmp_path / "o.csv", mechanisms={})


def test_tallies_add_up() -> None:
    one, two = Tally(rows=5, reports=4), Tally(rows=3, reports=3)
    one.note("x", below=1, above=2)
    two.note("x", below=1)
    one.add(two)
    assert one.columns == {("x", "below"): 2, ("x", "above"): 2}
    assert (one.missing, one.rows) == (1, 8)


def largest_log_ratio(*mechanisms: Mechanism) -> float:
    """Pure epsilon of a row of reports by its definition: over all pairs of rows of inputs and all outputs."""
    tables = [[[int(weight) for weight in row] for row in table.weights] for table in mechanisms]
    joint = [
        [math.prod(weights) for weights in itertools.product(*inputs)]
        for inputs in itertools.product(*tables)
    ]
    ratios = [
        Fraction(high, low)
        for first, second in itertools.permutations(joint, 2)
        for high, low in zip(first, second, strict=True)
    ]
    return math.log(max(ratios))


@judges("collect.reports.row_claim")
@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_the_claim_of_a_row_is_that_of_the_costliest_row(tmp_path: Path, ending: str) -> None:
    """Files of a folder may share the column that is estimated and differ in the others: the dearest counts."""
    source, folder = tmp_path / "in.parquet", tmp_path / "reports"
    pq.write_table(pa.table(COLUMNS).slice(0, 20), source)
    folder.mkdir()
    costly = families.randomized_response(lower=0, upper=5, epsilon=2.5)
    costs: list[float] = []
    for name, other in (("a", TWO), ("b", costly), ("c", TWO)):
        mechanisms = {"x": ONE, "y": other}
        out = folder / f"{name}{ending}"
        collect.privatize_columns(source, out, mechanisms=mechanisms, on_out_of_range="clip")
        costs.append(largest_log_ratio(ONE, other))
        claim = row_claim(out)
        assert claim is not None
        assert claim.certified
        assert costs[-1] * (1 - FEW) <= claim.epsilon <= costs[-1] * (1 + FEW)
    whole = row_claim(folder)
    assert whole is not None
    assert max(costs) * (1 - FEW) <= whole.epsilon <= max(costs) * (1 + FEW)


def test_a_row_of_one_column_or_of_seeded_reports_has_no_claim_of_its_own(tmp_path: Path) -> None:
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table(COLUMNS).slice(0, 20), source)
    collect.privatize(source, tmp_path / "one.csv", column="x", mechanism=ONE)
    assert row_claim(tmp_path / "one.csv") is None
    seeded = tmp_path / "seeded.csv"
    both = {"x": ONE, "y": TWO}
    collect.privatize_columns(source, seeded, mechanisms=both, rng=3, on_out_of_range="clip")
    assert row_claim(seeded) is None
    assert row_claim(source) is None  # it says nothing of reports
