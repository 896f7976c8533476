"""The path of tensors on a device, walked on the CPU: torch's plain operations against the CPU's own kernels."""

from __future__ import annotations

import threading
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from mezzotint import Mechanism, ParameterError
from mezzotint.core import gpu, sampler
from mezzotint.core.sampler import PrivatizeStats, codes_from_words, key_from
from reference.gpu import outside, words_of_draws
from reference.sampler import inputs_for, telltale
from strategies import mechanisms, random_knots

TOTAL = 2**32
KEY = bytes(range(32))
CPU = torch.device("cpu")


def one_bit() -> Mechanism:
    return Mechanism(
        knots=[-1, 1], levels=[-2, 2], weights=[[3 * 2**30, 2**30], [2**30, 3 * 2**30]]
    )


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors on the CPU count as tensors on a device."""
    monkeypatch.setattr(sampler, "GPU", ("cpu",))


# The same codes as the CPU --------------------------------------------------------------------------------------------


@given(
    mechanism=mechanisms(),
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([np.float32, np.float64]),
)
@settings(max_examples=150)
def test_same_codes_as_the_cpu_for_the_same_words(
    mechanism: Mechanism, seed: int, dtype: Any
) -> None:
    generator = np.random.default_rng(seed)
    x = inputs_for(mechanism, generator, 300).astype(dtype)
    key = generator.bytes(32)
    codes, counts = gpu.draw(mechanism, torch.from_numpy(x), key, "plain")
    np.testing.assert_array_equal(
        codes.numpy(), codes_from_words(mechanism, x, words_of_draws(key, 300, mechanism.bits))
    )
    assert counts == (*outside(mechanism, x), 0)


@pytest.mark.parametrize("levels", [256, 257, 2**16])
def test_same_codes_with_very_many_levels(levels: int) -> None:
    generator = np.random.default_rng(levels)
    weights = generator.multinomial(TOTAL, generator.dirichlet(np.ones(levels)), 2).astype(np.int64)
    mechanism = Mechanism(knots=[0, 1], levels=np.arange(levels), weights=weights)
    x = generator.random(2000)
    codes, _ = gpu.draw(mechanism, torch.from_numpy(x), KEY, "plain")
    assert codes.dtype == (torch.uint8 if levels == 256 else torch.int32)
    np.testing.assert_array_equal(
        codes.numpy(), codes_from_words(mechanism, x, words_of_draws(KEY, 2000, mechanism.bits))
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("spacing", ["even", "uneven", "clustered"])
def test_a_jump_counts_from_its_knot_on(spacing: str, dtype: Any) -> None:
    knots = np.unique(
        random_knots(np.random.default_rng(5), 15, spacing, 0.0).astype(dtype).astype(np.float64)
    )
    mechanism = telltale(np.repeat(knots, [1] + [2] * (knots.size - 2) + [1]))
    inner = knots[1:-1].astype(dtype)
    at, _ = gpu.draw(mechanism, torch.from_numpy(inner), KEY, "plain")
    np.testing.assert_array_equal(at.numpy(), 2 * np.arange(1, inner.size + 1))
    below, _ = gpu.draw(
        mechanism, torch.from_numpy(np.nextafter(inner, dtype(-np.inf))), KEY, "plain"
    )
    assert (np.abs(below.numpy() - (2 * np.arange(1, inner.size + 1) - 1.5)) == 0.5).all()


@pytest.mark.parametrize("size", [0, 1, 511, 1023, 1024, 1025, 3100])
def test_chunks_continue_the_stream(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "CHUNK", 1024)
    x = np.random.default_rng(size).uniform(-1.2, 1.2, size)
    codes, counts = gpu.draw(one_bit(), torch.from_numpy(x), KEY, "plain")
    np.testing.assert_array_equal(
        codes.numpy(), codes_from_words(one_bit(), x, words_of_draws(KEY, size, 1))
    )
    assert counts == (*outside(one_bit(), x), 0)


@given(
    lower=st.floats(-1e6, 1e6),
    width=st.floats(1e-3, 1e6),
    dtype=st.sampled_from([np.float32, np.float64]),
)
def test_ends_of_a_type_are_the_outermost_numbers_within(
    lower: float, width: float, dtype: Any
) -> None:
    upper = lower + width
    mechanism = Mechanism(knots=[lower, upper], levels=[0, 1], weights=[[TOTAL, 0], [0, TOTAL]])
    tables = gpu.tables_on(mechanism, np.dtype(dtype), CPU)
    least, greatest = tables.ends.numpy()
    assert float(np.nextafter(least, dtype(-np.inf))) < lower <= float(least)
    assert float(greatest) <= upper < float(np.nextafter(greatest, dtype(np.inf)))
    assert tables.exact_ends == (float(least) == lower and float(greatest) == upper)


@given(
    lower=st.floats(-1e6, 1e6),
    width=st.floats(1e-3, 1e6),
    segment_count=st.sampled_from([1, 2, 3, 15, 31]),
    levels=st.sampled_from([2, 5, 16]),
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=20),
)
def test_places_on_a_line_are_off_by_no_more_than_its_margin(
    lower: float, width: float, segment_count: int, levels: int, shares: list[float]
) -> None:
    """In float32, a product rounded by itself, against fractions; a draw is left open by the margin."""
    knots = lower + width * np.arange(segment_count + 1)
    mechanism = Mechanism(
        knots=knots,
        levels=np.arange(levels),
        weights=[[TOTAL - levels + 1] + [1] * (levels - 1)] * (segment_count + 1),
    )
    tables = gpu.tables_on(mechanism, np.dtype(np.float32), CPU)
    if not tables.on_line:
        return
    slope, intercept, points = tables.line[:3].numpy()
    fraction_bits = gpu.high_bits(mechanism.bits) + mechanism.bits
    margin = Fraction(int(tables.line.view(torch.int32)[6])) / 2 ** (32 - fraction_bits)
    assert 1 <= margin < 2**mechanism.bits
    first, last = Fraction(mechanism.lower), Fraction(mechanism.upper)
    for share in shares:
        x = np.float32(mechanism.lower + share * (mechanism.upper - mechanism.lower))
        place = np.clip(x * slope + intercept, np.float32(0), np.float32(1)) * points
        place = place + np.float32(gpu.ROOM) - np.float32(gpu.ROOM)
        exact = min(max((Fraction(float(x)) - first) / (last - first), Fraction(0)), Fraction(1))
        assert abs(Fraction(float(place)) - exact * Fraction(float(points))) <= margin


def test_tables_beyond_the_fused_kernels_count_of_cells_are_drawn_from_plainly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpu, "FUSED_CELLS", 1)
    x = torch.linspace(-1, 1, 700)
    codes, counts = gpu.draw(one_bit(), x, KEY, "fused")  # on a CPU the kernel would not start
    expected, expected_counts = gpu.draw(one_bit(), x, KEY, "plain")
    assert torch.equal(codes, expected)
    assert counts == expected_counts


# Tensors of every kind ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(), (0,), (1,), (7,), (3, 0, 2), (2, 3, 5)])
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
        torch.int8,
        torch.int64,
        torch.bool,
    ],
    ids=str,
)
def test_any_shape_and_type(on_device: None, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    codes = one_bit().privatize(torch.ones(shape, dtype=dtype), 3)
    assert codes.shape == shape
    assert codes.dtype == torch.uint8
    assert torch.equal(codes, one_bit().privatize(torch.ones(shape, dtype=torch.float64), 3))


def test_strides_and_marks_do_not_matter(on_device: None) -> None:
    base = torch.from_numpy(np.random.default_rng(0).uniform(-1, 1, (40, 30)))
    complex_view = torch.complex(base, -base).conj().imag  # a view of -base, marked to be negated
    assert complex_view.is_neg()
    for view in (
        base.T,
        base[::2, 3:],
        base[None, 5],
        base[0].expand(4, 30),
        complex_view,
        torch._neg_view(base),
    ):
        plain_copy = torch.from_numpy(view.numpy(force=True).copy())
        assert torch.equal(one_bit().privatize(view, 1), one_bit().privatize(plain_copy, 1))


def test_marked_views_on_the_cpu_too() -> None:
    base = torch.linspace(-1, 1, 50)
    assert torch.equal(one_bit().privatize(torch._neg_view(base), 1), one_bit().privatize(-base, 1))


def test_gradients_stay_out(on_device: None) -> None:
    x = torch.linspace(-1, 1, 20, requires_grad=True)
    codes = one_bit().privatize(x * 1.0, 1)
    assert not codes.requires_grad
    assert torch.equal(codes, one_bit().privatize(x.detach(), 1))


def test_input_is_left_alone(on_device: None) -> None:
    x = torch.tensor([-9.0, 0.5, float("inf")])
    one_bit().privatize(x)
    assert x.tolist() == [-9.0, 0.5, float("inf")]


def test_default_types_and_devices_do_not_matter(on_device: None) -> None:
    x = torch.linspace(-1, 1, 100)
    expected = one_bit().privatize(x, 1)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            assert torch.equal(one_bit().privatize(x, 1), expected)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "bad",
    [torch.ones(3, dtype=torch.complex64), torch.ones(3).to_sparse(), torch.ones(3).to_mkldnn()],
    ids=["complex", "sparse", "mkldnn"],
)
def test_refused_tensors(on_device: None, bad: torch.Tensor) -> None:
    with pytest.raises(ParameterError, match=r"x=tensor of .*need a dense tensor of real numbers"):
        one_bit().privatize(bad)


def test_devices_that_do_not_draw_are_named() -> None:
    with pytest.raises(ParameterError, match=r"tensor on meta: draws on cpu, cuda; pass x.cpu\(\)"):
        one_bit().privatize(torch.ones(3, device="meta"))


# Range and NaN --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_nan_names_the_first_and_releases_nothing(on_device: None, dtype: torch.dtype) -> None:
    x = torch.zeros(1000, dtype=dtype)
    x[[417, 900]] = float("nan")
    for tensor, index in (
        (x, "417"),
        (x.reshape(100, 10), "41, 7"),
        (torch.tensor(float("nan"), dtype=dtype), "0"),
    ):
        with pytest.raises(ParameterError, match=f"x=nan: input {index} is NaN"):
            one_bit().privatize(tensor)
    with pytest.raises(ParameterError, match="NaN"):
        one_bit().privatize(torch.tensor([5.0, float("nan")]), on_out_of_range="error")


def test_clipped_inputs_are_counted_and_drawn_as_the_ends(on_device: None) -> None:
    mechanism = telltale(np.array([-1.0, 0.0, 0.7, 3.0]))
    x = torch.tensor([-float("inf"), -1e30, -1.0, 3.0, 1e30, float("inf")], dtype=torch.float64)
    codes, stats = mechanism.privatize_with_stats(x)
    assert stats == PrivatizeStats(below=2, above=2, total=6)
    assert codes.tolist() == [0, 0, 0, 3, 3, 3]


def test_out_of_range_is_an_error_on_request(on_device: None) -> None:
    x = torch.tensor([[0.0, 1.0], [-1.0, 1.5], [-7.0, 0.0]])
    with pytest.raises(ParameterError, match=r"x=input 1, 1: lies outside \[-1, 1\]"):
        one_bit().privatize(x, on_out_of_range="error")
    _, stats = one_bit().privatize_with_stats(x[:1], on_out_of_range="error")
    assert stats == PrivatizeStats(below=0, above=0, total=2)


def test_float32_inputs_are_compared_with_float64_limits(on_device: None) -> None:
    mechanism = Mechanism(knots=[-0.1, 0.1], levels=[-1, 1], weights=[[TOTAL // 2] * 2] * 2)
    with pytest.raises(ParameterError, match="x=input 1: lies outside"):
        mechanism.privatize(torch.tensor([0.05, 0.1, -0.1]), on_out_of_range="error")


# Randomness -----------------------------------------------------------------------------------------------------------


def test_a_seed_reproduces_and_a_generator_moves_on(on_device: None) -> None:
    x = torch.zeros(256)
    expected = codes_from_words(one_bit(), x.numpy(), words_of_draws(key_from(4), 256, 1))
    np.testing.assert_array_equal(one_bit().privatize(x, 4).numpy(), expected)
    generator = np.random.default_rng(1)
    first, second = one_bit().privatize(x, generator), one_bit().privatize(x, generator)
    assert torch.equal(first, one_bit().privatize(x, np.random.default_rng(1)))
    assert not torch.equal(first, second)


def test_no_two_draws_agree_in_any_thread(on_device: None) -> None:
    # 256 fair bits each: two equal draws have probability 2^-256.
    draws: list[bytes] = []

    def work() -> None:
        draws.extend(one_bit().privatize(torch.zeros(256)).numpy().tobytes() for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(draws)) == len(draws) == 80


@pytest.mark.slow
@pytest.mark.parametrize("gpu", [("cuda",), ("cpu",)])
def test_compiled_functions_draw_anew(gpu: tuple[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler, "GPU", gpu)
    drawn = torch.compiler.disable(one_bit().privatize)
    compiled = torch.compile(lambda x: drawn(x * 1.0).int() + 1, backend="eager")
    draws = [compiled(torch.zeros(256)) for _ in range(5)]
    assert len({tuple(codes.tolist()) for codes in draws}) == 5


def test_the_key_does_not_stay_on_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[torch.Tensor] = []
    key_on = gpu.key_on

    def kept(key: bytes, device: torch.device) -> torch.Tensor:
        keys.append(key_on(key, device))
        return keys[-1]

    monkeypatch.setattr(gpu, "key_on", kept)
    gpu.draw(one_bit(), torch.zeros(9), KEY)
    assert [key.tolist() for key in keys] == [[0] * 8]


def test_the_engine_follows_device_and_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    for installed, on_cuda in ((object(), "fused"), (None, "plain")):
        monkeypatch.setattr(gpu, "find_spec", lambda _, found=installed: found)
        assert gpu.engine_for(torch.device("cuda:1")) == on_cuda
        assert gpu.engine_for(CPU) == "plain"
    monkeypatch.setattr(gpu, "find_spec", lambda _: object())
    for version, engine in (
        ("2.6.0+cu124", "plain"),
        ("2.7.0", "fused"),
        ("2.13.0+cu130", "fused"),
        ("3.0.0a0", "fused"),
    ):
        monkeypatch.setattr(torch, "__version__", version)
        assert gpu.engine_for(torch.device("cuda")) == engine
