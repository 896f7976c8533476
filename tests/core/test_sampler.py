from __future__ import annotations

import platform
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numba
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mezzotint import Mechanism, ParameterError
from mezzotint.core import kernels, sampler
from mezzotint.core.kernels import compile_lookup, draw_bucketed, draw_searched, draw_uniform
from mezzotint.core.sampler import PrivatizeStats, codes_from_words, key_from, privatize
from reference.sampler import (
    codes_from_words as twin,
    element_words,
    exact_threshold,
    inputs_for,
    telltale,
    threshold,
)
from strategies import mechanisms, random_knots

TOTAL = 2**32
HALF = TOTAL // 2
F32, F64 = np.dtype(np.float32), np.dtype(np.float64)


def one_bit() -> Mechanism:
    return Mechanism(
        knots=[-1, 1], levels=[-2, 2], weights=[[3 * 2**30, 2**30], [2**30, 3 * 2**30]]
    )


# The same codes as the reference --------------------------------------------------------------------------------------


@given(mechanism=mechanisms(), seed=st.integers(0, 2**32 - 1), dtype=st.sampled_from([F32, F64]))
@settings(max_examples=200)
def test_same_codes_as_the_twin_for_the_same_words(
    mechanism: Mechanism, seed: int, dtype: np.dtype
) -> None:
    generator = np.random.default_rng(seed)
    x = inputs_for(mechanism, generator, 300).astype(dtype)
    words = generator.integers(0, 2**64, 300, dtype=np.uint64)
    # The twin rounds t by itself: a word within a unit of the threshold may fall on either side (probability 2^-31).
    _, limit = threshold(mechanism, x)
    clear = np.abs((words >> np.uint64(32)).astype(np.int64) - limit) > 1
    assert clear.sum() > 250
    np.testing.assert_array_equal(
        codes_from_words(mechanism, x, words)[clear], twin(mechanism, x, words)[clear]
    )


@pytest.mark.parametrize("levels", [256, 257, 2**16])
def test_same_codes_with_very_many_levels(levels: int) -> None:
    generator = np.random.default_rng(levels)
    weights = generator.multinomial(TOTAL, generator.dirichlet(np.ones(levels)), 2).astype(np.int64)
    mechanism = Mechanism(knots=[0, 1], levels=np.arange(levels), weights=weights)
    x, words = generator.random(2000), generator.integers(0, 2**64, 2000, dtype=np.uint64)
    codes = codes_from_words(mechanism, x, words)
    assert codes.dtype == (np.uint8 if levels == 256 else np.uint16)
    np.testing.assert_array_equal(codes, twin(mechanism, x, words))


@given(mechanism=mechanisms(max_levels=20), seed=st.integers(0, 2**32 - 1))
def test_words_at_the_edges_of_cells(mechanism: Mechanism, seed: int) -> None:
    generator = np.random.default_rng(seed)
    cells = compile_lookup(mechanism, F64).arguments[-2].astype(np.int64)
    bits = mechanism.bits
    cell, edge = generator.integers(0, 2**bits, 200), generator.choice(cells, 200) >> bits
    unit = np.clip(edge + generator.integers(-1, 2, 200), 0, 2 ** (32 - bits) - 1)
    high = generator.choice([0, TOTAL - 1], 200)
    words = (high.astype(np.uint64) << np.uint64(32)) | ((cell << (32 - bits)) | unit).astype(
        np.uint64
    )
    x = generator.choice(mechanism.knots, 200)  # t is exactly 0 or 1: no rounding is involved
    np.testing.assert_array_equal(codes_from_words(mechanism, x, words), twin(mechanism, x, words))


@given(
    spacing=st.sampled_from(["even", "uneven", "clustered"]),
    segments=st.integers(1, 70),
    jumps=st.sampled_from([0.0, 0.5, 1.0]),
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([F32, F64]),
)
@settings(max_examples=200)
def test_threshold_is_within_one_unit_of_the_rational_one(
    spacing: str, segments: int, jumps: float, seed: int, dtype: np.dtype
) -> None:
    generator = np.random.default_rng(seed)
    mechanism = telltale(random_knots(generator, segments, spacing, jumps))
    for x in inputs_for(mechanism, generator, 12).astype(dtype):
        row, limit = exact_threshold(mechanism, float(x))
        # Right row for every high half at least a unit below t 2^32, left row for every one at least a unit above.
        highs = np.array(
            [h for h in (0, int(limit) - 1, int(limit) + 2, TOTAL - 1) if 0 <= h < TOTAL]
        )
        expected = np.array([row + (h + 1 <= limit) for h in highs])
        clear = np.array([not -1 < h - limit < 1 for h in highs])
        codes = codes_from_words(
            mechanism, np.full(highs.size, x), highs.astype(np.uint64) << np.uint64(32)
        )
        np.testing.assert_array_equal(codes[clear], expected[clear])


@pytest.mark.parametrize("digits", kernels.SCALE_DIGITS)
def test_positions_move_by_less_than_nine_eighths_of_a_unit(digits: int) -> None:
    """The most even segments there may be, every change of the scale: S1 of docs/proofs/sampling.md, in rationals."""
    generator, segments = np.random.default_rng(digits + 9), kernels.MOST_SEGMENTS
    lower, width = generator.uniform(-3, 3), generator.uniform(0.5, 4)
    edges = np.linspace(lower, lower + width, segments + 1)
    scale = kernels.FIXED * (segments / (edges[-1] - edges[0])) * (1 + digits * 2.0**-52)
    inputs = edges[-1] - width * generator.uniform(0, 1, 500) ** 4
    fixed = ((inputs - edges[0]) * scale).astype(np.int64)
    drawn = (fixed >> 33) * TOTAL + (((fixed & (2**33 - 1)) + 1) >> 1)
    rows = np.minimum(np.searchsorted(edges, inputs, side="right") - 1, segments - 1)
    for x, position, row in zip(inputs.tolist(), drawn.tolist(), rows.tolist(), strict=True):
        left, right = Fraction(edges[row]), Fraction(edges[row + 1])
        exact = (row + (Fraction(x) - left) / (right - left)) * TOTAL
        assert abs(position - exact) < Fraction(9, 8)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("spacing", ["even", "uneven", "clustered"])
def test_a_jump_counts_from_its_knot_on(spacing: str, dtype: np.dtype) -> None:
    knots = (
        random_knots(np.random.default_rng(5), 15, spacing, 1.0).astype(dtype).astype(np.float64)
    )
    knots = np.repeat(np.unique(knots), [1] + [2] * (np.unique(knots).size - 2) + [1])
    mechanism = telltale(knots)
    words = np.array([0, TOTAL - 1, 2**63, 2**64 - 1], dtype=np.uint64)
    second = np.flatnonzero(np.diff(knots) == 0) + 1
    for row in second:
        at = np.full(4, knots[row], dtype=dtype)
        assert codes_from_words(mechanism, at, words).tolist() == [row] * 4
        below = np.nextafter(at, dtype.type(-np.inf))
        assert set(codes_from_words(mechanism, below, words).tolist()) <= {row - 2, row - 1}


def test_each_spacing_has_its_kernel() -> None:
    generator = np.random.default_rng(1)
    expected = {"even": draw_uniform, "uneven": draw_bucketed, "clustered": draw_searched}
    for spacing, kernel in expected.items():
        assert (
            compile_lookup(telltale(random_knots(generator, 12, spacing, 0.0)), F32).kernel
            is kernel
        )
    even_jumps = telltale(np.repeat(np.linspace(-1, 1, 16), [1] + [2] * 14 + [1]))
    assert compile_lookup(even_jumps, F32).kernel is draw_uniform


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="reads x86-64 machine code"
)
@pytest.mark.parametrize(
    ("spacing", "kernel"),
    [("even", draw_uniform), ("uneven", draw_bucketed), ("clustered", draw_searched)],
)
def test_no_branch_on_a_value(spacing: str, kernel: Any) -> None:
    """Constant work per input: no conditional jump comes within three instructions of a floating-point comparison."""
    lookup = compile_lookup(telltale(random_knots(np.random.default_rng(1), 12, spacing, 0.0)), F32)
    fresh = numba.njit(
        **{key: kernel.targetoptions[key] for key in ("nogil", "error_model", "boundscheck")}
    )(kernel.py_func)
    fresh(
        np.zeros(2, dtype=F32),
        np.zeros(2, dtype=np.uint64),
        np.zeros(2, dtype=np.uint8),
        *lookup.arguments,
    )
    (assembly,) = fresh.inspect_asm().values()
    lines = [
        line.split()
        for line in assembly.splitlines()
        if line.startswith("\t") and not line.startswith("\t.")
    ]
    names = [line[0] for line in lines]
    compares = [i for i, name in enumerate(names) if "comis" in name]
    assert len(compares) >= 3  # the scalar rest of the loop compares with both ends, at least
    for i in compares:
        assert not [name for name in names[i + 1 : i + 4] if name.startswith("j") and name != "jmp"]


def test_codes_from_words_wants_one_word_per_input() -> None:
    for words in (
        np.zeros(2, dtype=np.uint64),
        np.zeros(3, dtype=np.int64),
        np.zeros((3, 1), dtype=np.uint64),
    ):
        with pytest.raises(ParameterError, match="words="):
            codes_from_words(one_bit(), np.zeros(3), words)
    with pytest.raises(ParameterError, match="NaN"):
        codes_from_words(one_bit(), [np.nan], np.zeros(1, dtype=np.uint64))


# Inputs of every kind -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 0, 2), (2, 3, 5)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", ">f4", ">f8", "i1", "i8", "u8"])
def test_any_shape_and_type(shape: tuple[int, ...], dtype: str) -> None:
    x = np.ones(shape, dtype=dtype)
    codes = one_bit().privatize(x, 3)
    assert codes.shape == shape
    assert codes.dtype == np.uint8
    np.testing.assert_array_equal(codes, one_bit().privatize(np.ones(shape), 3))


@pytest.mark.parametrize("dtype", [F32, F64])
def test_strides_do_not_matter(dtype: np.dtype) -> None:
    base = np.random.default_rng(0).uniform(-1, 1, (40, 30)).astype(dtype)
    unaligned = np.zeros(base.nbytes + 1, dtype=np.uint8)[1:].view(dtype)
    unaligned[:] = base.ravel()
    read_only = base.copy()
    read_only.setflags(write=False)
    views = [
        base.T,
        base[::2, ::-3],
        base[None, 5],
        np.asfortranarray(base),
        np.broadcast_to(base[0], (4, 30)),
    ]
    for view in [*views, unaligned, read_only]:
        np.testing.assert_array_equal(
            one_bit().privatize(view, 1), one_bit().privatize(np.array(view, order="C"), 1)
        )


def test_scalars_and_lists() -> None:
    mechanism = one_bit()
    for x in (0.25, np.float32(0.25), np.float64(0.25), np.array(0.25), 0):
        code = mechanism.privatize(x, 0)
        assert isinstance(code, np.uint8)
        assert mechanism.decode(code) in (-2.0, 2.0)
    np.testing.assert_array_equal(
        mechanism.privatize([0.1, 0.2], 5), mechanism.privatize(np.array([0.1, 0.2]), 5)
    )
    assert mechanism.privatize([], 5).shape == (0,)


@pytest.mark.parametrize("x", [True, [True, False], np.array([True]), [0.5, None], ["0.5"]])
def test_what_is_no_number_is_refused(x: object) -> None:
    with pytest.raises(ParameterError, match="x"):
        one_bit().privatize(x)


def test_input_is_left_alone() -> None:
    x = np.array([-9.0, 0.5, np.inf])
    one_bit().privatize(x)
    np.testing.assert_array_equal(x, [-9.0, 0.5, np.inf])


@pytest.mark.parametrize(
    "x",
    [
        "text",
        ["1", "2"],
        None,
        1j,
        np.array([1, None]),
        np.array(["2020-01-01"], dtype="M8[D]"),
        [[1.0], [1.0, 2.0]],
        np.ma.array([1.0, 2.0], mask=[False, True]),
    ],
    ids=repr,
)
def test_what_is_no_real_number_is_refused(x: object) -> None:
    with pytest.raises(ParameterError, match=r"^x(\[[01]\])?="):
        one_bit().privatize(x)


# Range and NaN --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("spacing", ["even", "uneven", "clustered"])
def test_clipped_inputs_are_counted_and_drawn_as_the_ends(spacing: str, dtype: np.dtype) -> None:
    mechanism = telltale(random_knots(np.random.default_rng(2), 9, spacing, 0.5))
    x = np.array([-np.inf, -1e30, mechanism.lower, mechanism.upper, 1e30, np.inf, -0.0]).astype(
        dtype
    )
    expected = PrivatizeStats(
        below=int((x < mechanism.lower).sum()), above=int((x > mechanism.upper).sum()), total=7
    )
    codes, stats = mechanism.privatize_with_stats(x)
    assert stats == expected
    assert stats.below >= 2
    assert stats.above >= 2
    if dtype == F64:
        last = mechanism.knots.size - 1
        assert codes[:6].tolist() == [0, 0, 0, last, last, last]


def test_nan_names_the_first_and_releases_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "PART", 64)
    for dtype in (F32, F64):
        x = np.zeros(1000, dtype=dtype)
        x[[417, 900]] = np.nan
        with pytest.raises(ParameterError, match="input 417 is NaN"):
            one_bit().privatize(x)
        with pytest.raises(ParameterError, match="input 41, 7 is NaN"):
            one_bit().privatize(x.reshape(100, 10))
    with pytest.raises(ParameterError, match="NaN"):
        one_bit().privatize(float("nan"))


def test_out_of_range_is_an_error_on_request() -> None:
    x = np.array([[0.0, 1.0], [-1.0, 1.5], [-7.0, 0.0]])
    with pytest.raises(ParameterError, match=r"x=input 1, 1: lies outside \[-1, 1\]"):
        one_bit().privatize(x, on_out_of_range="error")
    codes, stats = one_bit().privatize_with_stats(x[:1], on_out_of_range="error")
    assert codes.shape == (1, 2)
    assert stats == PrivatizeStats(below=0, above=0, total=2)
    with pytest.raises(ParameterError, match="NaN"):
        one_bit().privatize([5.0, np.nan], on_out_of_range="error")


def test_float32_inputs_are_compared_with_float64_limits() -> None:
    # float32(0.1) exceeds 0.1: counted as above by the kernel, and found again to be named.
    mechanism = Mechanism(knots=[-0.1, 0.1], levels=[-1, 1], weights=[[TOTAL // 2] * 2] * 2)
    x = np.array([0.05, 0.1, -0.1], dtype=F32)
    assert mechanism.privatize_with_stats(x)[1] == PrivatizeStats(below=1, above=1, total=3)
    with pytest.raises(ParameterError, match="x=input 1: lies outside"):
        mechanism.privatize(x, on_out_of_range="error")


@pytest.mark.parametrize("option", ["ignore", None, True])
def test_unknown_option(option: object) -> None:
    with pytest.raises(ParameterError, match="on_out_of_range="):
        one_bit().privatize([0.0], on_out_of_range=option)  # pyright: ignore


def test_threads_must_be_positive() -> None:
    with pytest.raises(ParameterError, match="threads="):
        privatize(one_bit(), [0.0], threads=0)


# Randomness -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 99, 100, 101, 999, 1000, 12_345])
def test_a_seed_gives_the_same_codes_on_any_number_of_threads(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "PART", 100)
    monkeypatch.setattr(sampler, "BLOCK", 64)
    x = np.random.default_rng(9).uniform(-1, 1, size)
    expected = twin(one_bit(), x, element_words(key_from(4), 0, size, part=100))
    for threads in (1, 2, 3, 7, None):
        codes, _ = privatize(one_bit(), x, rng=4, threads=threads)
        np.testing.assert_array_equal(codes, expected)


def test_a_generator_reproduces_and_moves_on() -> None:
    x = np.zeros(200)
    generator = np.random.default_rng(1)
    first, second = one_bit().privatize(x, generator), one_bit().privatize(x, generator)
    np.testing.assert_array_equal(first, one_bit().privatize(x, np.random.default_rng(1)))
    assert (first != second).any()


def test_an_integer_seed_starts_anew_on_every_call() -> None:
    """What the docstring warns of."""
    x = np.random.default_rng(6).uniform(-1, 1, 50)
    np.testing.assert_array_equal(one_bit().privatize(x, 7), one_bit().privatize(x, 7))


def test_no_two_draws_agree() -> None:
    # 256 fair bits each: two equal draws have probability 2^-256.
    draws = [one_bit().privatize(np.zeros(256)) for _ in range(50)] + [
        one_bit().privatize(np.zeros(256), s) for s in range(50)
    ]
    assert len({codes.tobytes() for codes in draws}) == 100


def test_threads_share_no_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "PART", 64)
    codes, _ = privatize(one_bit(), np.zeros(4 * 256), threads=4)
    assert len({part.tobytes() for part in codes.reshape(4, 256)}) == 4


def test_forked_processes_share_no_word() -> None:
    program = """
import os, sys
import numpy as np
from mezzotint import Mechanism
from mezzotint.core import sampler

sampler.PART = 1 << 10
mechanism = Mechanism(knots=[-1, 1], levels=[-2, 2], weights=[[3 * 2**30, 2**30], [2**30, 3 * 2**30]])
x = np.zeros(1 << 12)
draw = lambda: sampler.privatize(mechanism, x, threads=2)[0].tobytes()
seen = [draw()]  # kernels, tables and a pool have been used before the fork
for _ in range(2):
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.write(writing, draw())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        seen.append(pipe.read())
    os.wait()
seen.append(draw())
assert all(len(codes) == 1 << 12 for codes in seen)
parts = {codes[begin : begin + 256] for codes in seen for begin in range(0, 1 << 12, 256)}
assert len(parts) == 4 * 16, len(parts)
print("distinct")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "distinct\n", done.stderr


def test_works_where_nothing_can_be_cached() -> None:
    program = """
import numba.core.caching as caching
class Nowhere:
    @classmethod
    def from_function(cls, function, path):
        return None
caching.CacheImpl._locator_classes = [Nowhere]
from mezzotint import Mechanism
mechanism = Mechanism(knots=[-1, 1], levels=[-2, 2], weights=[[3 * 2**30, 2**30], [2**30, 3 * 2**30]])
print(mechanism.privatize([0.5, 0.5], 1).tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == f"{one_bit().privatize([0.5, 0.5], 1).tolist()}\n", done.stderr
