"""The most frequent categories of large domains: statements that hold at once, files, and refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from laws.registry import judges
from mezzotint import collect, families
from mezzotint.core.errors import ParameterError
from mezzotint.families.finite_fields import powers_of_x, primitive

NAMES = [f"w{i}" for i in range(200)]
DOMAIN = families.hashed(categories=NAMES, epsilon=2.0)


def drawn(
    domain: families.HashedDomain, values: np.ndarray, rng: np.random.Generator
) -> collect.HashedCounts:
    """Reports drawn from the cells' rows, without the sampler."""
    hashes = rng.integers(0, domain.hashes, values.size)
    rows = domain.mechanism.probabilities.cumsum(axis=1)[domain.cell(values, hashes)]
    codes = (rows < rng.random(values.size)[:, None]).sum(axis=1)
    return collect.HashedCounts.from_reports(codes, hashes, domain=domain)


def test_all_statements_hold_at_once() -> None:
    """300 data sets at level 0.9: fewer than 252 that hold has a chance below 1e-3 at a true chance of 0.9."""
    rng = np.random.default_rng(5)
    shares = 1 / np.arange(1, 201) ** 1.2
    shares /= shares.sum()
    held = listed = 0
    for _ in range(300):
        values = rng.choice(200, size=3000, p=shares)
        found = collect.heavy_hitters(drawn(DOMAIN, values, rng), top=5, confidence=0.9)
        places = [NAMES.index(name) for name in found.categories]
        inside = all(
            one.low <= shares[i] <= one.high for i, one in zip(places, found.shares, strict=True)
        )
        rest = float(np.delete(shares, places).max())
        sure = all(
            shares[i] >= rest for i, certain in zip(places, found.certain, strict=True) if certain
        )
        held += inside and rest <= found.unlisted_at_most and sure
        listed += sum(found.certain)
    assert held >= stats.binom(300, 0.9).ppf(1e-3)
    assert listed >= 290  # the first is found


@judges("collect.hitters.heavy_hitters")
@given(st.integers(0, 2**32), st.integers(1, 254))
def test_no_hash_and_no_category_comes_first(seed: int, turn: int) -> None:
    """Renaming every hash and multiplying every category by the same power of x changes nothing else."""
    domain = families.hashed(categories=range(1, 256), epsilon=1.0)
    counts = np.random.default_rng(seed).poisson(3, size=(domain.hashes, domain.cells))
    one = collect.HashedCounts(domain=domain, counts=counts)
    other = collect.HashedCounts(domain=domain, counts=np.roll(counts, turn, axis=0))
    found, turned = (collect.heavy_hitters(each, top=255) for each in (one, other))
    order = powers_of_x(primitive(domain.bits), domain.bits)
    moved = {str(order[i]): str(order[(i + turn) % 255]) for i in range(255)}
    shares = dict(zip(turned.categories, turned.shares, strict=True))
    assert [shares[moved[name]] for name in found.categories] == list(found.shares)
    assert found.epsilon == turned.epsilon == domain.mechanism.epsilon
    assert found.unlisted_at_most == 0
    twice = collect.heavy_hitters(collect.HashedCounts(domain=domain, counts=2 * counts), top=255)
    for few, many in zip(found.shares, twice.shares, strict=True):
        assert many.value == few.value
        assert few.low <= many.low
        assert many.high <= few.high


def test_one_value_in_a_large_domain_is_found() -> None:
    domain = families.hashed(categories=range(100_000), epsilon=1.0)
    rng = np.random.default_rng(2)
    values = np.where(rng.random(50_000) < 0.4, 31_415, rng.integers(0, 100_000, 50_000))
    found = collect.heavy_hitters(drawn(domain, values, rng), top=3)
    assert found.categories[0] == "31415"
    assert found.shares[0].low <= 0.4 <= found.shares[0].high
    assert found.certain[0]
    assert not any(found.certain[1:])
    assert 0 < found.unlisted_at_most < 0.09
    assert found.epsilon == domain.mechanism.epsilon


@pytest.fixture
def words(tmp_path: Path) -> Path:
    values = ["w3"] * 6000 + ["w7"] * 3000 + [f"w{i}" for i in range(200)] * 5 + ["unheard"] * 500
    pq.write_table(
        pa.table({"word": values, "day": ["mon", "tue"] * 5250}),
        tmp_path / "in.parquet",
        row_group_size=3000,
    )
    (tmp_path / "domain.txt").write_text("\n".join(NAMES) + "\n")
    return tmp_path / "in.parquet"


@pytest.mark.parametrize("out", ["r.parquet", "r.csv", "folder/"])
def test_files_of_hashed_reports(words: Path, tmp_path: Path, out: str) -> None:
    domain = families.hashed(categories=NAMES, epsilon=2.0, other=True)
    result = collect.privatize(
        words, f"{tmp_path}/{out}", column="word", mechanism=domain, keep=["day"], block_rows=3000
    )
    assert result.epsilon == domain.mechanism.epsilon
    counts = collect.read_hashed(tmp_path / out, domain=domain)
    assert counts.n == 10_500
    found = collect.heavy_hitters(counts, top=3)
    assert found.categories[:2] == ("w3", "w7")
    assert found.certain[:2] == (True, True)
    assert found.shares[0].low <= 6005 / 10_500 <= found.shares[0].high
    with pytest.raises(ParameterError, match="made by another table"):
        collect.read_hashed(tmp_path / out, domain=DOMAIN)


def test_hashes_say_nothing_about_values_and_follow_a_seed(words: Path, tmp_path: Path) -> None:
    domain = families.hashed(categories=NAMES, epsilon=2.0, other=True)
    options: dict[str, Any] = {"column": "word", "mechanism": domain, "rng": 5}
    for name, threads in (("a", 1), ("b", 2)):
        collect.privatize(words, tmp_path / f"{name}.parquet", threads=threads, **options)
    one, two = (pq.read_table(tmp_path / f"{name}.parquet") for name in "ab")
    assert one.equals(two)
    # The same hashes whatever the values are.
    pq.write_table(
        pa.table({"word": ["w0"] * 10_500}), tmp_path / "other.parquet", row_group_size=700
    )
    collect.privatize(tmp_path / "other.parquet", tmp_path / "c.parquet", **options)
    assert (
        pq.read_table(tmp_path / "c.parquet")["word_hash"].to_pylist()
        == one["word_hash"].to_pylist()
    )
    counts = collect.read_hashed(tmp_path / "a.parquet", domain=domain)
    with pytest.raises(ParameterError, match="NOT private"):
        collect.heavy_hitters(counts)
    seeded = collect.heavy_hitters(counts, allow_seeded=True)
    assert seeded.claim is None
    assert seeded.epsilon is None
    # One seeded file among others makes all of it seeded, wherever it stands.
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    for name, rng in (("1", 5), ("2", None)):
        collect.privatize(words, mixed / f"{name}.parquet", **{**options, "rng": rng})
    assert collect.read_hashed(mixed / "*.parquet", domain=domain).seeded is True
    # All hashes are about equally frequent: chi-square, false alarms with chance 1e-6.
    seen = np.bincount(one["word_hash"].to_numpy(), minlength=domain.hashes)
    expected = 10_500 / domain.hashes
    assert ((seen - expected) ** 2 / expected).sum() < stats.chi2(domain.hashes - 1).isf(1e-6)


@pytest.mark.parametrize(
    "wrong", [-1, 0.5, 2**60], ids=["negative", "fractions", "sum is not exact"]
)
def test_hashed_counts_that_cannot_be_are_refused(wrong: float) -> None:
    domain = families.hashed(categories=["a", "b", "c"], epsilon=1.0)
    shape = (domain.hashes, domain.mechanism.levels.size)
    with pytest.raises(ParameterError, match=r"^counts="):
        collect.HashedCounts(domain=domain, counts=np.full(shape, wrong))
    with pytest.raises(ParameterError, match=r"^counts=.*one per outcome"):
        collect.HashedCounts(domain=domain, counts=np.ones(shape, dtype=int)[:, :1])
    counts = np.ones(shape, dtype=int)
    kept = collect.HashedCounts(domain=domain, counts=counts)
    counts[0, 0] = 7
    assert kept.n == counts.size
    with pytest.raises(ValueError, match="read-only"):
        kept.counts[0, 0] = 7


def test_what_cannot_be(words: Path, tmp_path: Path) -> None:
    memo = collect.Memo(users="day", key=bytes(32))
    with pytest.raises(ParameterError, match="hashed reports are not memoised"):
        collect.privatize(words, tmp_path / "r.csv", column="word", mechanism=DOMAIN, memo=memo)
    with pytest.raises(ParameterError, match="is no category"):
        collect.privatize(words, tmp_path / "r.csv", column="word", mechanism=DOMAIN)
    with pytest.raises(ParameterError, match="codes="):
        collect.HashedCounts.from_reports([8], [0], domain=DOMAIN)
    with pytest.raises(ParameterError, match="hashes="):
        collect.HashedCounts.from_reports([0], [255], domain=DOMAIN)
    empty = collect.HashedCounts.from_reports([], [], domain=DOMAIN)
    with pytest.raises(ParameterError, match="there are 0"):
        collect.heavy_hitters(empty)
