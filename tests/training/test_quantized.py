"""Sums of quantized records against slow twins: the same words, the same sums; the table's own probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from mezzotint import Mechanism, families
from mezzotint.core.kernels import Lookup, compile_lookup, draw_uniform
from reference.sampler import codes_from_words, exact_threshold, inputs_for, telltale, threshold
from reference.training import column_sums, drawn_codes
from strategies import mechanisms, random_weights

pytest.importorskip("torch", reason="the extra `torch` is not installed")

from mezzotint.training import clipped
from mezzotint.training.clipped import Gradients, RecordSums

TOTAL = 2**32
F32 = np.float32


def even_knots(generator: np.random.Generator, segments: int, jumps: float) -> np.ndarray:
    """Knots on an even grid, the first and the last of which are moved inwards, some inner ones twice."""
    lower, width = generator.choice([-1.0, 0.0, -3.7, 20.0]), generator.choice([1.0, 2.0, 675.0])
    knots = lower + width * np.arange(segments + 1) / segments
    cut = generator.choice([0.0, 0.25, 0.9], 2) * np.diff(knots)[[0, -1]] * (segments > 2)
    knots[[0, -1]] += cut * [1, -1]
    twice = generator.random(knots.size) < jumps
    twice[[0, -1]] = False
    return np.repeat(knots, 1 + twice)


def find_grid(mechanism: Mechanism) -> Lookup | None:
    """How codes are drawn from a table whose knots count as even."""
    lookup = compile_lookup(mechanism, np.dtype(F32), cut=True)
    return lookup if lookup.kernel is draw_uniform else None


def draw(grid: Lookup, x: np.ndarray, words: np.ndarray) -> np.ndarray:
    codes = np.empty(x.size, dtype=grid.code_dtype)
    assert grid.draw(x.astype(F32), words, codes)[2] == 0
    return codes


def plain(*tensors: np.ndarray) -> list[Gradients]:
    return [Gradients(rows=rows, gains=np.ones((len(rows), 1), dtype=F32)) for rows in tensors]


def random_even(seed: int, jumps: float) -> Mechanism:
    generator = np.random.default_rng(seed)
    levels = int(generator.choice([2, 3, 16, 17, 256, 300]))
    knots = even_knots(generator, int(generator.integers(1, 40)), jumps)
    weights = random_weights(generator, knots.size, levels, 6.0, 0.3)
    return Mechanism(knots=knots, levels=np.arange(levels, dtype=np.float64), weights=weights)


# One draw ---------------------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 2**32 - 1), jumps=st.sampled_from([0.0, 0.5, 1.0]))
@settings(max_examples=150)
def test_same_codes_as_the_twin_for_the_same_words(seed: int, jumps: float) -> None:
    mechanism, generator = random_even(seed, jumps), np.random.default_rng(seed)
    grid = find_grid(mechanism)
    if grid is None:  # a jump at a float32 number, where rounding errs: the other way is taken
        assert jumps > 0
        return
    x = inputs_for(mechanism, generator, 300).astype(F32)
    words = generator.integers(0, 2**64, 300, dtype=np.uint64)
    # The twin rounds t by itself: a word within a unit of the threshold may fall on either side (probability 2^-31).
    _, limit = threshold(mechanism, x)
    clear = np.abs((words >> np.uint64(32)).astype(np.int64) - limit) > 1
    np.testing.assert_array_equal(
        draw(grid, x, words)[clear], codes_from_words(mechanism, x, words)[clear]
    )


@given(
    seed=st.integers(0, 2**32 - 1), segments=st.integers(1, 70), jumps=st.sampled_from([0.0, 1.0])
)
@settings(max_examples=100)
def test_threshold_is_within_one_unit_of_the_rational_one(
    seed: int, segments: int, jumps: float
) -> None:
    generator = np.random.default_rng(seed)
    mechanism = telltale(even_knots(generator, segments, jumps))
    grid = find_grid(mechanism)
    if grid is None:
        assert jumps > 0
        return
    for x in inputs_for(mechanism, generator, 12).astype(F32):
        row, limit = exact_threshold(mechanism, float(x))
        highs = np.array(
            [h for h in (0, int(limit) - 1, int(limit) + 2, TOTAL - 1) if 0 <= h < TOTAL]
        )
        expected = np.array([row + (h + 1 <= limit) for h in highs])
        clear = np.array([not -1 < h - limit < 1 for h in highs])
        codes = draw(grid, np.full(highs.size, x), highs.astype(np.uint64) << np.uint64(32))
        np.testing.assert_array_equal(codes[clear], expected[clear])


def test_a_jump_counts_from_its_knot_on() -> None:
    mechanism = telltale(np.array([-0.75, -0.5, -0.5, 0.5, 0.5, 1.5, 1.5, 2.5, 2.5, 2.75]))
    grid = find_grid(mechanism)
    assert grid is not None
    words = np.array([0, TOTAL - 1, 2**63, 2**64 - 1], dtype=np.uint64)
    for row in (2, 4, 6, 8):
        at = np.full(4, mechanism.knots[row], dtype=F32)
        assert draw(grid, at, words).tolist() == [row] * 4
        assert set(draw(grid, np.nextafter(at, F32(-9)), words).tolist()) <= {row - 2, row - 1}


def test_a_jump_at_zero_is_left_to_the_exact_search() -> None:
    # Next to 0 lie float32 numbers that no subtraction of an origin can tell from it.
    table = families.rqm(lower=-1.0, upper=1.0, levels=3, extension=1.0, q=0.42)
    assert 0.0 in table.knots[np.flatnonzero(np.diff(table.knots) == 0)]
    assert find_grid(table) is None
    tiny = np.array([[-1e-40, 0.0, 1e-40]] * 50, dtype=F32)
    (found, _) = RecordSums(table, np.arange(3))(plain(tiny), np.ones(50, dtype=F32), 5)
    assert found.tolist() == column_sums(drawn_codes(table, tiny, 5), np.arange(3))


def test_which_tables_have_a_grid() -> None:
    for table in (
        families.rqm(lower=-1.0, upper=1.0, levels=16, extension=1.0, q=0.42),
        families.stochastic_rounding(lower=-1.0, upper=1.0, levels=300),
        families.k_randomized_response(lower=-2.0, upper=2.0, levels=4, epsilon=1.0),
    ):
        assert find_grid(table) is not None
    assert find_grid(telltale(np.array([-1.0, -0.2, 0.3, 1.0]))) is None
    assert find_grid(telltale(np.array([-1.5, 0.0, 1.0, 2.0]))) is None  # an end that sticks out
    assert (
        find_grid(telltale(np.array([0.0, 1e-9, 1.0, 2.0]) + 1)) is None
    )  # and one that is cut to nearly nothing
    far = 100.1 + 0.01 * np.arange(
        5
    )  # rounding leaves the origin 1e-12 segments off, which is little
    assert find_grid(telltale(far)) is not None
    far[-1] -= 0.0099  # but not a hundred times that
    assert find_grid(telltale(far)) is None


# Sums -------------------------------------------------------------------------------------------------------------


@given(
    mechanism=mechanisms(max_levels=40),
    seed=st.integers(0, 2**32 - 1),
    how=st.sampled_from(["codes", "odd", "count"]),
)
@settings(max_examples=60)
def test_sums_are_those_of_the_twin(mechanism: Mechanism, seed: int, how: str) -> None:
    generator = np.random.default_rng(seed)
    count, widths = int(generator.integers(0, 6)), generator.integers(0, 40, 3)
    factors = generator.choice([0.5, 1.0, 2.0], count).astype(F32)
    tensors = [
        inputs_for(mechanism, generator, count * width).reshape(count, width).astype(F32)
        for width in widths
    ]
    size = mechanism.levels.size
    integers = {"codes": np.arange(size), "odd": np.arange(size) ** 2 + 3, "count": None}[how]
    found, nans = RecordSums(mechanism, integers)(plain(*tensors), factors, seed)
    flat = np.concatenate([(rows * factors[:, None]).ravel() for rows in tensors])
    codes = np.split(drawn_codes(mechanism, flat, seed), np.cumsum(count * widths)[:-1])
    shaped = np.concatenate(
        [part.reshape(count, width) for part, width in zip(codes, widths, strict=True)], axis=1
    )
    assert nans == 0
    assert found.dtype == np.int64
    if integers is None:
        assert found.tolist() == [
            np.bincount(column, minlength=size).tolist() for column in shaped.T
        ]
    else:
        assert found.tolist() == column_sums(shaped, integers)


@pytest.mark.parametrize("levels", [16, 17])
@pytest.mark.parametrize(
    "shape", [(3, 1, 40), (5, 7, 11), (2, 3, 2050), (4, 6, 0), (4, 0, 6), (0, 3, 2)]
)
def test_factored_gradients_are_multiplied_out_on_the_way(
    levels: int, shape: tuple[int, int, int]
) -> None:
    table, generator = (
        families.rqm(lower=-1.0, upper=1.0, levels=levels, extension=1.0, q=0.42),
        np.random.default_rng(3),
    )
    count, repeat, width = shape
    gains, rows = (
        generator.normal(size=(count, repeat)).astype(F32),
        generator.normal(size=(count, width)).astype(F32),
    )
    factors, summed = (
        generator.uniform(0.1, 0.5, count).astype(F32),
        RecordSums(table, np.arange(levels)),
    )
    whole = (gains[:, :, None] * rows[:, None, :]).reshape(count, repeat * width)
    found, nans = summed([Gradients(rows=rows, gains=gains), *plain(rows)], factors, 6)
    assert nans == 0
    np.testing.assert_array_equal(found, summed(plain(whole, rows), factors, 6)[0])


@pytest.mark.parametrize("levels", [16, 17])
def test_parts_share_no_word_and_threads_do_not_matter(
    levels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # RQM with 17 levels has a jump at 0 and so no grid.
    table = families.rqm(lower=-1.0, upper=1.0, levels=levels, extension=1.0, q=0.42)
    rows, ones = np.zeros((1, 4096), dtype=F32), np.ones(1, dtype=F32)
    monkeypatch.setattr(clipped, "PART", 1024)
    summed = RecordSums(table, np.arange(levels))
    monkeypatch.setattr(clipped, "usable_cores", lambda: 3)
    found, _ = summed(plain(rows, rows[:, :5].copy()), ones, 8)
    monkeypatch.setattr(clipped, "usable_cores", lambda: 1)
    np.testing.assert_array_equal(found, summed(plain(rows, rows[:, :5].copy()), ones, 8)[0])
    # 1024 draws of at least a bit each: equal parts have probability below 2^-1000.
    assert len({found[begin : begin + 1024].tobytes() for begin in range(0, 4096, 1024)}) == 4
    assert (summed(plain(rows), ones)[0] != summed(plain(rows), ones)[0]).any()


@pytest.mark.parametrize("levels", [16, 17])
def test_nans_are_counted(levels: int) -> None:
    table = families.rqm(lower=-1.0, upper=1.0, levels=levels, extension=1.0, q=0.42)
    rows = np.zeros((3, 700), dtype=F32)
    rows[[0, 2, 2], [5, 0, 699]] = np.nan
    rows[1, :2] = np.inf, -np.inf  # clipped
    assert RecordSums(table, np.arange(levels))(plain(rows, rows), np.ones(3, dtype=F32))[1] == 6


@pytest.mark.parametrize("levels", [16, 17])
def test_levels_have_the_table_s_probabilities(levels: int) -> None:
    # 6 inputs, 400,000 draws each from the system's entropy: a chi-square above its 1 - 1e-9 quantile, in 12 tests.
    table = families.rqm(lower=-1.0, upper=1.0, levels=levels, extension=1.0, q=0.42)
    x = np.array([-1.0, -0.97, -0.31, 0.0, 0.62, 3.0], dtype=F32)
    counts, _ = RecordSums(table, None)(
        plain(np.tile(x / F32(2), (400_000, 1))), np.full(400_000, 2, dtype=F32)
    )
    for value, seen in zip(x.tolist(), counts, strict=True):
        row, limit = exact_threshold(table, value)
        t = float(limit / TOTAL)
        expected = ((1 - t) * table.weights[row] + t * table.weights[row + 1]) / TOTAL * 400_000
        possible = expected > 0
        assert not seen[~possible].any()
        statistic = ((seen - expected)[possible] ** 2 / expected[possible]).sum()
        assert statistic < chi2.isf(1e-9, possible.sum() - 1)


def test_totals_that_need_64_bits() -> None:
    table = families.stochastic_rounding(lower=0.0, upper=1.0, levels=2)
    rows = np.ones((3, 2), dtype=F32)
    found, _ = RecordSums(table, np.array([0, 2**30]))(plain(rows), np.ones(3, dtype=F32))
    assert found.tolist() == [3 * 2**30] * 2
