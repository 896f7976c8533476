"""The Triton kernel without a GPU: interpreted against the CPU's kernels, and compiled to look at the machine code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest

from mezzotint import Mechanism
from mezzotint.core.gpu import Tables, tables_on
from mezzotint.core.kernels import alias_cells
from mezzotint.core.sampler import codes_from_words
from reference.gpu import (
    CPU,
    chacha_words,
    fused_codes,
    fused_words,
    interpreter,
    levels_of,
    outside,
    words_of_draws,
)
from reference.sampler import inputs_for, telltale
from strategies import random_knots, random_weights

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed here")

KEY = bytes(range(32))
SPACINGS = ["even", "uneven", "clustered"]
SEARCH = {"even": "uniform", "uneven": "bucketed", "clustered": "searched"}


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with interpreter() as executor:
        yield executor


def table(spacing: str, levels: int = 16) -> Mechanism:
    generator = np.random.default_rng(1)
    knots = random_knots(generator, 12, spacing, 0.0 if spacing == "even" else 0.5)
    return Mechanism(
        knots=knots,
        levels=np.arange(levels),
        weights=random_weights(generator, knots.size, levels, 6.0, 0.2),
    )


def check(
    pool: ProcessPoolExecutor,
    mechanism: Mechanism,
    x: np.ndarray,
    programs: int = 4096,
) -> None:
    """Codes and counts of the interpreted kernel are those of the CPU for the same words."""
    codes, counts = pool.submit(fused_codes, mechanism, x, KEY, programs).result()
    np.testing.assert_array_equal(
        codes, codes_from_words(mechanism, x, words_of_draws(KEY, x.size, mechanism.bits))
    )
    assert counts == [*outside(mechanism, x), 0]


def test_words_of_the_kernel_are_those_of_chacha20(pool: ProcessPoolExecutor) -> None:
    words = pool.submit(fused_words, KEY, 3, 1001).result()
    np.testing.assert_array_equal(words.view(np.uint64), chacha_words(KEY, 3, 1001))


# Interpreted ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spacing", SPACINGS)
def test_same_codes_as_the_cpu_on_2e3_words(
    pool: ProcessPoolExecutor, spacing: str, dtype: Any
) -> None:
    mechanism = table(spacing)
    assert tables_on(mechanism, np.dtype(dtype), CPU).search == SEARCH[spacing]
    check(pool, mechanism, inputs_for(mechanism, np.random.default_rng(2), 2_000).astype(dtype))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spacing", SPACINGS)
def test_same_codes_as_the_cpu_on_1e6_words(
    pool: ProcessPoolExecutor, spacing: str, dtype: Any
) -> None:
    mechanism = table(spacing)
    check(
        pool,
        mechanism,
        inputs_for(mechanism, np.random.default_rng(3), 1_000_000).astype(dtype),
    )


@pytest.mark.parametrize("levels", [2, 3, 256, 300, 2**16])
def test_few_and_very_many_levels(pool: ProcessPoolExecutor, levels: int) -> None:
    check(pool, table("uneven", levels), np.linspace(-5, 5, 1001))


def test_the_words_are_those_of_chacha12(pool: ProcessPoolExecutor) -> None:
    """65536 equal levels report the upper bits of each word's low half."""
    flat = Mechanism(knots=[0, 1], levels=np.arange(2**16), weights=[[2**16] * 2**16] * 2)
    codes, _ = pool.submit(fused_codes, flat, np.linspace(0, 1, 1000), KEY).result()
    np.testing.assert_array_equal(
        codes, words_of_draws(KEY, 1000, 16) >> np.uint64(16) & np.uint64(2**16 - 1)
    )


@pytest.mark.parametrize(
    ("size", "programs"),
    [(0, 1), (1, 1), (7, 4096), (511, 1), (512, 1), (513, 1), (1025, 4096), (1700, 2)],
)
def test_any_size_on_any_number_of_programs(
    pool: ProcessPoolExecutor, size: int, programs: int
) -> None:
    """512 elements at a time: the last tile may be a part of one, a program may have several tiles."""
    check(pool, table("even"), np.random.default_rng(size).uniform(-5, 5, size), programs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spacing", SPACINGS)
def test_a_jump_counts_from_its_knot_on(
    pool: ProcessPoolExecutor, spacing: str, dtype: Any
) -> None:
    knots = np.unique(
        random_knots(np.random.default_rng(5), 15, spacing, 0.0).astype(dtype).astype(np.float64)
    )
    mechanism = telltale(np.repeat(knots, [1] + [2] * (knots.size - 2) + [1]))
    inner = knots[1:-1].astype(dtype)
    x = np.concatenate([inner, np.nextafter(inner, dtype(-np.inf))])
    codes, _ = pool.submit(fused_codes, mechanism, x, KEY).result()
    second = 2 * np.arange(1, inner.size + 1)
    np.testing.assert_array_equal(codes[: inner.size], second)
    assert (np.abs(codes[inner.size :] - (second - 1.5)) == 0.5).all()


@pytest.mark.parametrize("spacing", SPACINGS)
def test_nan_is_counted_and_leaves_the_others_alone(
    pool: ProcessPoolExecutor, spacing: str
) -> None:
    mechanism = table(spacing)
    x = inputs_for(mechanism, np.random.default_rng(4), 100)
    x[[3, 50]] = np.nan
    codes, counts = pool.submit(fused_codes, mechanism, x, KEY).result()
    assert counts == [*outside(mechanism, x), 2]
    lowest = np.where(np.isnan(x), mechanism.lower, x)
    np.testing.assert_array_equal(
        codes, codes_from_words(mechanism, lowest, words_of_draws(KEY, 100, mechanism.bits))
    )


# Leading words -------------------------------------------------------------------------------------------------------


def words_at_thresholds(
    mechanism: Mechanism, x: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Leading words whose fields lie at, or beside, the thresholds of the row and of the level."""
    bits, high_bits = mechanism.bits, (32 - mechanism.bits) // 2
    unit_bits = 32 - bits - high_bits
    segment_count = mechanism.knots.size - 1
    clipped = np.clip(x.astype(np.float64), mechanism.lower, mechanism.upper)
    position = (clipped - mechanism.lower) * segment_count / (mechanism.upper - mechanism.lower)
    threshold = ((position - np.floor(position)) * 2.0**32).astype(np.int64)
    high = ((2**32 - 1 - threshold) >> (32 - high_bits)) + generator.integers(-2, 3, x.size)
    rows = np.floor(position).astype(np.int64) + generator.integers(0, 2, x.size)
    cell = generator.integers(0, 2**bits, x.size)
    cells = alias_cells(mechanism.weights, bits)
    entries = cells[np.minimum(rows, segment_count), cell].astype(np.int64)
    unit = (entries >> (bits + high_bits)) + generator.integers(-2, 3, x.size)
    fields = unit % 2**unit_bits << high_bits | high % 2**high_bits
    return fields << bits | cell


@pytest.mark.parametrize(
    ("lower", "upper"), [(-1, 1), (0, 1), (-1.1, 1.1), (3, 3.5), (-1e-30, 2e-30), (0.1, 7e20)]
)
@pytest.mark.parametrize("levels", [2, 7, 16, 256])
def test_a_leading_word_settles_nothing_that_the_whole_word_decides_otherwise(
    pool: ProcessPoolExecutor, levels: int, lower: float, upper: float
) -> None:
    """In float32 too, at thresholds, at knots, and at their neighbours; and it leaves few words open."""
    generator = np.random.default_rng(levels)
    for segment_count in (1, 2, 7):
        mechanism = Mechanism(
            knots=np.linspace(lower, upper, segment_count + 1),
            levels=np.arange(levels),
            weights=random_weights(generator, segment_count + 1, levels, 3.0, 0.2),
        )
        assert tables_on(mechanism, np.dtype(np.float32), CPU).on_line
        size, width = 4_000, upper - lower
        x = generator.uniform(lower - width / 10, upper + width / 10, size)
        x[: size // 2] = generator.choice(mechanism.knots, size // 2)
        x[: size // 4] += width * 2.0 ** -generator.integers(10, 30, size // 4)
        x = x.astype(np.float32)
        trailing = generator.integers(0, 2**32, size)
        nearby = words_at_thresholds(mechanism, x, generator)
        drawn, is_open, whole = pool.submit(levels_of, mechanism, x, nearby, trailing).result()
        np.testing.assert_array_equal(drawn[~is_open], whole[~is_open])
        anywhere = generator.integers(0, 2**32, size)
        drawn, is_open, whole = pool.submit(levels_of, mechanism, x, anywhere, trailing).result()
        np.testing.assert_array_equal(drawn[~is_open], whole[~is_open])
        # At most 2^-11 + 2^-12 are open (256 levels): of 4,000 words more than 14 have probability
        # below 1e-6.
        assert is_open.sum() <= 14


# Compiled -------------------------------------------------------------------------------------------------------------


KINDS = {
    "key": "*i32", "codes": "*u8", "counts": "*i64", "open_blocks": "*i32", "numbers": "*fp64",
    "first": "*i32", "knots": "*fp64", "slope": "*fp64", "cells": "*i32", "line": "*fp32",
    "row_cells": "*i32", "first_tile": "i32", "tiles": "i32", "last_blocks": "i32", "size": "i64",
    "slot": "i32",
}  # fmt: skip


def machine_code(
    kernel: str,
    tables: Tables,
    given: str,
    target: tuple[str, Any, int],
    monkeypatch: Any,
    tmp_path: Any,
) -> str:
    """PTX, or an AMD GPU's assembly, of a kernel as `fused.draw` starts it, without a GPU."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    import triton
    from triton.backends.compiler import GPUTarget

    from mezzotint.core import fused

    constants = {
        "search": tables.search,
        "steps": tables.steps,
        "bits": tables.bits,
        "exact_ends": tables.exact_ends,
        "on_line": tables.on_line,
        "ptx": target[0] == "cuda",
        "double_rounds": fused.DRAW_DOUBLE_ROUNDS,
    }
    function = getattr(fused, kernel)
    kinds = KINDS | {"x": f"*{given}", "ends": f"*{given}"} | dict.fromkeys(constants, "constexpr")
    source = triton.compiler.ASTSource(
        fn=function,
        signature={name: kinds[name] for name in function.arg_names},
        constexprs={name: constants[name] for name in function.arg_names if name in constants},
    )
    built = triton.compile(source, target=GPUTarget(*target), options=fused.OPTIONS)
    return built.asm["ptx" if target[0] == "cuda" else "amdgcn"]


FUSED = r"\b(?:fma|mad)\S*\.f(?:32|64)"
"""Products fused with sums, in PTX."""


@pytest.mark.parametrize(
    ("kernel", "spacing", "given"),
    [
        pytest.param(
            kernel,
            spacing,
            given,
            marks=[]
            if (kernel == "_draw_kernel") == (spacing == "even") == (given == "fp32")
            else [pytest.mark.slow],
        )
        for kernel in ("_draw_kernel", "_settle_kernel")
        for spacing in SPACINGS
        for given in ("fp32", "fp64")
    ],
)
def test_compiles_for_nvidia_and_fuses_no_product_with_a_sum_unasked(
    kernel: str, spacing: str, given: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    tables = tables_on(table(spacing), np.dtype("f4" if given == "fp32" else "f8"), CPU)
    code = machine_code(kernel, tables, given, ("cuda", 90, 32), monkeypatch, tmp_path)
    # ".rn" written out forbids the assembler, too, to fuse or to flush.
    assert not re.findall(r"\.ftz|\b(?:mul|add|sub)\.f64|\.approx", code)
    if kernel == "_draw_kernel" and tables.on_line:
        assert (spacing, given) == ("even", "fp32")
        assert len(re.findall(FUSED, code)) == 3 * 16  # those that are asked for
    else:
        assert re.findall(r"\bmul\.rn\.f64", code)
        assert not re.findall(FUSED, code)


@pytest.mark.slow
def test_compiles_for_amd(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    tables = tables_on(table("uneven"), np.dtype("f4"), CPU)
    code = machine_code(
        "_settle_kernel", tables, "fp32", ("hip", "gfx942", 64), monkeypatch, tmp_path
    )
    assert "v_mul_f64" in code
