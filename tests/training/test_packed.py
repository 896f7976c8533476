"""Packed models: what is saved is loaded, files that are not whole are refused, sizes are what they are."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mezzotint import FileFormatError, ParameterError
from mezzotint.training.packed import PackedModel, PackedTensor, pack_codes, pack_weights
from tolerances import SINGLE


@given(bits=st.integers(1, 8), seed=st.integers(0, 1000), scale=st.floats(1e-6, 1e6))
def test_rounding_moves_no_weight_far(bits: int, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    weights = {"a": rng.normal(size=(3, 7)) * scale, "b": rng.normal(size=5)}
    packed = pack_weights(weights, bits=bits, scales="tensor")
    for name, value in packed.values().items():
        most = np.abs(weights[name]).max()
        assert np.abs(value - weights[name]).max() <= most / (2**bits - 1) * (1 + 2**bits * SINGLE)
    assert packed.bits == bits
    assert packed.packed_bytes == -(-21 * bits // 8) + -(-5 * bits // 8)
    assert packed.float_bytes == 104


def counted_error(row: np.ndarray, levels: np.ndarray, counts: np.ndarray) -> float:
    """Squared error of the nearest levels, by all distances."""
    return float(counts @ np.abs(row[:, None] - levels).min(axis=1) ** 2)


@pytest.mark.parametrize("channels", [3, 12])
@given(bits=st.integers(1, 8), seed=st.integers(0, 1000))
@settings(max_examples=25)
def test_channels_have_the_best_scale_that_was_tried(channels: int, bits: int, seed: int) -> None:
    # By the slow twin: every scale tried on every channel, every level on every weight.
    rng = np.random.default_rng(seed)
    weights = (
        rng.standard_t(3, size=(channels, 40))
        * rng.uniform(0.01, 2, size=(channels, 1))
        * rng.random(40) ** 3
    )
    packed = pack_weights({"w": weights, "b": weights[0, :9]}, bits=bits)
    assert packed.bits == bits
    assert packed.tensors[0].scales.shape == (channels, 1)
    assert packed.tensors[1].scales.shape == ()
    counts = np.mean(weights**2, axis=0) if channels >= 8 else np.ones(40)
    half = 2 ** (bits - 1)
    for mine, row in zip(packed.values()["w"].astype(float), weights, strict=True):
        assert len(np.unique(mine)) <= 2**bits
        tried = [
            sign * np.abs(row).max() / half * 2.0 ** (k / 10) * np.arange(1 - half, half + 1)
            for k in range(-30, 3)
            for sign in (1, -1)
        ]
        found, least = (
            counts @ (mine - row) ** 2,
            min(counted_error(row, levels, counts) for levels in tried),
        )
        # Scales are rounded to 24 bits; below 4 bits levels are chosen from more than these.
        assert (
            found == pytest.approx(least, rel=1e-4, abs=1e-10)
            if bits >= 4
            else found < least * (1 + 1e-4)
        )


@pytest.mark.parametrize("seed", range(2))
def test_few_bits_choose_the_best_of_the_integers(seed: int) -> None:
    # By the slow twin: every choice of levels at every scale. Most inputs never move, and their weights are noise.
    rng = np.random.default_rng(seed)
    moving = rng.random(20) < 0.4
    weights = 0.3 * rng.normal(size=(8, 20)) + moving * 2 * rng.normal(size=(8, 20))
    counts = np.mean(weights**2, axis=0)
    packed = pack_weights({"w": weights}, bits=2)
    for mine, row in zip(packed.values()["w"].astype(float), weights, strict=True):
        choices = np.array(list(itertools.combinations(range(-7, 9), 4)))
        least = math.inf
        for part in 2.0 ** (np.arange(-30, 3) / 10):
            for sign in (1, -1):
                levels = sign * np.abs(row).max() / 8 * part * choices
                gaps = np.abs(row[:, None, None] - levels).min(axis=2) ** 2
                least = min(least, float((counts @ gaps).min()))
        # The twin's grid of scales: around the best one the error is flat.
        assert counts @ (mine - row) ** 2 == pytest.approx(least, rel=1e-4)
    even = pack_weights({"w": weights}, bits=2, scales="tensor").values()["w"]
    assert np.sum(counts * (packed.values()["w"] - weights) ** 2) < 0.5 * np.sum(
        counts * (even - weights) ** 2
    )


def test_a_channel_of_zeros_stays_zero() -> None:
    weights = np.zeros((2, 30))
    weights[0] = np.linspace(-1, 1, 30)
    packed = pack_weights({"w": weights, "b": np.zeros(3)}, bits=4)
    assert not packed.values()["w"][1].any()
    assert not packed.values()["b"].any()
    assert not pack_weights({"w": weights}, bits=2).values()["w"][1].any()


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
def test_round_trip(tmp_path: Path, bits: int) -> None:
    rng = np.random.default_rng(bits)
    weights = {"w": rng.normal(size=(31, 2)), "b": np.zeros(3), "c": rng.normal(size=(3, 4, 5))}
    packed = pack_weights(weights, bits=bits, note={"epsilon": 1.0})
    size = packed.save(tmp_path / "m.mz")
    assert size == (tmp_path / "m.mz").stat().st_size
    loaded = PackedModel.load(tmp_path / "m.mz")
    for name, value in packed.values().items():
        np.testing.assert_array_equal(loaded.values()[name], value)
    assert dict(loaded.note) == {"epsilon": 1.0}
    loaded.save(tmp_path / "again.mz")
    assert (tmp_path / "again.mz").read_bytes() == (tmp_path / "m.mz").read_bytes()
    with pytest.raises(ParameterError, match="exists"):
        packed.save(tmp_path / "m.mz")


def test_damaged_files_are_refused(tmp_path: Path) -> None:
    packed = pack_weights({"w": np.linspace(-1, 1, 50)}, bits=4)
    place = tmp_path / "m.mz"
    packed.save(place)
    raw = place.read_bytes()
    rng = np.random.default_rng(0)
    for position in rng.integers(0, len(raw), 40):
        edited = bytearray(raw)
        edited[position] ^= 1
        place.write_bytes(bytes(edited))
        with pytest.raises(FileFormatError):
            PackedModel.load(place)
    for cut in (0, 5, 30, len(raw) - 1):
        place.write_bytes(raw[:cut])
        with pytest.raises(FileFormatError):
            PackedModel.load(place)
    place.write_bytes(raw + b"x")
    with pytest.raises(FileFormatError):
        PackedModel.load(place)


def test_codes_as_they_are() -> None:
    codes = [np.array([[0, 3], [1, 2]], dtype=np.uint8)]
    packed = pack_codes(["w"], codes, bounds=[0.5], levels=[-1.0, -1 / 3, 1 / 3, 1.0], note={})
    np.testing.assert_allclose(packed.values()["w"], [[-0.5, 0.5], [-1 / 6, 1 / 6]], rtol=SINGLE)


def test_bad_input() -> None:
    tensor = PackedTensor(name="w", codes=np.array([4], dtype=np.uint8), scale=1.0)
    with pytest.raises(ParameterError, match="codes=4"):
        PackedModel(tensors=(tensor,), levels=(-1.0, 0.0, 1.0), note={})
    for scale in (np.ones(2, dtype=np.float32), np.ones(1), np.zeros(1, dtype=np.float32)):
        with pytest.raises(ParameterError, match="scale="):
            PackedModel(
                tensors=(replace(tensor, scale=scale),),
                levels=tuple(np.linspace(-1, 1, 16)),
                note={},
            )
    for chosen in (
        np.zeros((1, 4)),
        np.zeros((2, 4), np.uint8),
        np.zeros((1, 3), np.uint8),
        np.full((1, 4), 16, np.uint8),
    ):
        with pytest.raises(ParameterError, match="chosen="):
            PackedModel(
                tensors=(replace(tensor, chosen=chosen),),
                levels=tuple(np.linspace(-1, 1, 16)),
                note={},
            )
    chosen = np.zeros((1, 4), np.uint8)
    with pytest.raises(ParameterError, match="codes=4"):
        PackedModel(
            tensors=(replace(tensor, chosen=chosen),), levels=tuple(np.linspace(-1, 1, 16)), note={}
        )
    with pytest.raises(ParameterError, match="scales=row"):
        pack_weights({}, bits=4, scales="row")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="tensors"):
        PackedModel(tensors=(tensor, tensor), levels=tuple(np.linspace(-1, 1, 16)), note={})
    with pytest.raises(ParameterError, match="levels"):
        PackedModel(tensors=(), levels=(1.0, -1.0), note={})
    with pytest.raises(ParameterError, match="bits=9"):
        pack_weights({}, bits=9)
    with pytest.raises(ParameterError, match="weights"):
        pack_weights({"w": np.array([np.nan])}, bits=4)
