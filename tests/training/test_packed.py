"""Packed models: what is saved is loaded, files that are not whole are refused, sizes are what they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint import FileFormatError, ParameterError
from mezzotint.training.packed import PackedModel, PackedTensor, pack_codes, pack_weights
from tolerances import SINGLE


@given(bits=st.integers(1, 8), seed=st.integers(0, 1000), scale=st.floats(1e-6, 1e6))
def test_rounding_moves_no_weight_far(bits: int, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    weights = {"a": rng.normal(size=(3, 7)) * scale, "b": rng.normal(size=5)}
    packed = pack_weights(weights, bits=bits)
    for name, value in packed.values().items():
        most = np.abs(weights[name]).max()
        assert np.abs(value - weights[name]).max() <= most / (2**bits - 1) * (1 + SINGLE)
    assert packed.bits == bits
    assert packed.packed_bytes == -(-21 * bits // 8) + -(-5 * bits // 8)
    assert packed.float_bytes == 104


@pytest.mark.parametrize("bits", [1, 3, 4, 8])
def test_round_trip(tmp_path: Path, bits: int) -> None:
    rng = np.random.default_rng(bits)
    packed = pack_weights({"w": rng.normal(size=(31, 2)), "b": np.zeros(3)}, bits=bits, note={"epsilon": 1.0})
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
    with pytest.raises(ParameterError, match="tensors"):
        PackedModel(tensors=(tensor, tensor), levels=tuple(np.linspace(-1, 1, 16)), note={})
    with pytest.raises(ParameterError, match="levels"):
        PackedModel(tensors=(), levels=(1.0, -1.0), note={})
    with pytest.raises(ParameterError, match="bits=9"):
        pack_weights({}, bits=9)
    with pytest.raises(ParameterError, match="weights"):
        pack_weights({"w": np.array([np.nan])}, bits=4)
