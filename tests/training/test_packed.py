"""Packed models: what is saved is loaded, files that are not whole are refused, sizes are what they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from mezzotint import FileFormatError, ParameterError
from mezzotint.training import packed as packed_module
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


@given(bits=st.integers(1, 8), seed=st.integers(0, 1000))
def test_channels_have_the_best_of_three_scales(bits: int, seed: int) -> None:
    # By the slow twin: every rule tried on every channel, every level on every weight.
    rng = np.random.default_rng(seed)
    weights = rng.standard_t(3, size=(4, 40)) * rng.uniform(0.01, 2, size=(4, 1))
    packed = pack_weights({"w": weights, "b": weights[0, :9]}, bits=bits)
    found, top = packed.values()["w"], 2**bits - 1
    levels = np.linspace(-1, 1, 2**bits)
    assert packed.tensors[0].scales.shape == (4, 1)
    assert packed.tensors[1].scales.shape == ()
    cells = dict(zip(range(1, 9), (1.596, 0.9957, 0.5860, 0.3352, 0.1881, 0.1041, 0.05687, 0.03076), strict=True))
    for mine, row in zip(found, weights, strict=True):
        rules = (np.abs(weights).max(), np.abs(row).max(), cells[bits] * top / 2 * np.sqrt(np.mean(row**2)))
        errors = [
            np.abs(row[:, None] - rule * levels).min(axis=1) @ np.abs(row[:, None] - rule * levels).min(axis=1)
            for rule in rules
        ]
        # Scales are rounded to 24 bits.
        assert np.sum((mine - row) ** 2) == pytest.approx(min(errors), rel=1e-4, abs=1e-10)


def test_the_normal_rule_is_the_best_for_a_normal_channel() -> None:
    # The cells of the table against the least error of a fine grid, for quantiles of the normal distribution.
    row = norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    for bits in range(1, 9):
        top = 2**bits - 1
        errors = {}
        for cell in np.linspace(0.5, 1.5, 41) * packed_module._CELLS[bits]:
            scale = cell * top / 2
            nearest = np.clip(np.rint((row / scale + 1) / 2 * top), 0, top) / top * 2 - 1
            errors[cell] = np.mean((scale * nearest - row) ** 2)
        assert min(errors, key=errors.__getitem__) == pytest.approx(packed_module._CELLS[bits], rel=0.06)  # two steps


def test_a_channel_of_zeros_stays_zero() -> None:
    weights = np.zeros((2, 30))
    weights[0] = np.linspace(-1, 1, 30)
    packed = pack_weights({"w": weights, "b": np.zeros(3)}, bits=4)
    assert np.abs(packed.values()["w"][1]).max() < 1e-37  # below it 32-bit floats have no full precision
    assert np.abs(packed.values()["b"]).max() < 1e-37  # likewise


@pytest.mark.parametrize("bits", [1, 3, 4, 8])
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
            PackedModel(tensors=(replace(tensor, scale=scale),), levels=tuple(np.linspace(-1, 1, 16)), note={})
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
