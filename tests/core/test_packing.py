from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mezzotint import ParameterError
from mezzotint.core.sampler import pack, pack_words, packed_size, unpack, unpack_words, word_type


@st.composite
def packable(draw: st.DrawFn) -> tuple[list[int], int]:
    bits = draw(st.integers(1, 16))
    return draw(st.lists(st.integers(0, 2**bits - 1), max_size=50)), bits


@given(packable())
def test_round_trip_against_big_integers(case: tuple[list[int], int]) -> None:
    codes, bits = case
    packed = pack(np.array(codes, dtype=np.uint16), bits)
    # The whole stream is one little-endian integer with code i at bit i * bits.
    number = sum(code << (i * bits) for i, code in enumerate(codes))
    assert packed == number.to_bytes(packed_size(len(codes), bits), "little")
    back = unpack(packed, bits, len(codes))
    assert back.dtype == (np.uint8 if bits <= 8 else np.uint16)
    assert back.tolist() == codes


def packed_bit_by_bit(words: np.ndarray, bits: int) -> bytes:
    planes = words.astype(np.uint64)[:, None] >> np.arange(bits, dtype=np.uint64) & np.uint64(1)
    return np.packbits(planes.astype(np.uint8).ravel(), bitorder="little").tobytes()


@pytest.mark.parametrize("bits", range(1, 33))
@pytest.mark.parametrize("count", [1, 7, 8, 9, 2**16, 2**16 + 7, 2**17 + 1])
def test_words_of_every_width_across_the_blocks_agree_with_the_slow_twin(
    bits: int, count: int
) -> None:
    words = (
        np.random.default_rng(bits)
        .integers(0, 2**bits, count, dtype=np.uint64)
        .astype(word_type(bits))
    )
    words[-1] = 2**bits - 1
    packed = pack_words(words, bits)
    assert packed == packed_bit_by_bit(words, bits)
    back = unpack_words(packed, bits, count)
    assert back.dtype == word_type(bits)
    np.testing.assert_array_equal(back, words)


def test_shape_is_flattened_in_c_order_and_strides_do_not_matter() -> None:
    codes = np.arange(24, dtype=np.uint8).reshape(4, 6)
    assert pack(codes, 5) == pack(codes.ravel().tolist(), 5)
    assert pack(codes.T, 5) == pack(codes.T.copy(), 5)
    assert pack(codes[:, ::2], 5) == pack(codes[:, ::2].copy(), 5)
    assert pack(codes.astype(">u2"), 5) == pack(codes, 5)


def test_empty() -> None:
    assert pack([], 3) == b""
    assert unpack(b"", 3, 0).tolist() == []


@pytest.mark.parametrize("bits", [0, 17, -1, 2.5, "3", None])
def test_bits_out_of_range(bits: object) -> None:
    with pytest.raises(ParameterError, match="bits="):
        pack([0], bits)  # pyright: ignore
    with pytest.raises(ParameterError, match="bits="):
        unpack(b"0", bits, 1)  # pyright: ignore


@pytest.mark.parametrize("codes", [[4], [-1], [0.5], ["a"], [True, 300], [2**40]])
def test_codes_that_do_not_fit(codes: list[object]) -> None:
    with pytest.raises(ParameterError, match="codes="):
        pack(codes, 2)  # pyright: ignore


@pytest.mark.parametrize(("data", "count"), [(b"", 1), (b"ab", 2), (b"a", 3), (b"abc", 11)])
def test_length_must_fit_the_count(data: bytes, count: int) -> None:
    with pytest.raises(ParameterError, match="data="):
        unpack(data, 3, count)


def test_bits_after_the_last_code_are_refused() -> None:
    packed = bytearray(pack([1, 2, 3], 3))
    packed[1] |= 0x80
    with pytest.raises(ParameterError, match="after the last code"):
        unpack(packed, 3, 3)


def test_negative_count() -> None:
    with pytest.raises(ParameterError, match="count="):
        unpack(b"", 3, -1)
