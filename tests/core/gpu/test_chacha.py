"""The keystream in torch against RFC 8439 and OpenSSL."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from mezzotint.core.gpu import halves, key_on
from reference.gpu import chacha_blocks, chacha_words

CPU = torch.device("cpu")
SEQUENCE = bytes(range(32))


def keystream(key: bytes, first: int, blocks: int, nonce: tuple[int, int] = (0, 0)) -> bytes:
    return halves(key_on(key, CPU), first, blocks, nonce).numpy().tobytes()


def test_block_of_the_rfc() -> None:
    # RFC 8439, 2.3.2: key 00..1f, counter 1, nonce 00000009 0000004a 00000000. The nonce's first word is the upper half
    # of the original cipher's 64-bit counter.
    expected = """
        10 f1 e7 e4 d1 3b 59 15 50 0f dd 1f a3 20 71 c4 c7 d1 f4 c7 33 c0 68 03 04 22 aa 9a c3 d4 6c 4e
        d2 82 64 46 07 9f aa 09 14 c2 d7 05 d9 8b 02 a2 b5 12 9c d1 de 16 4e b9 cb d0 83 e8 a2 50 3c 4e"""
    assert keystream(SEQUENCE, 1 | 0x09000000 << 32, 1, (0x4A000000, 0)) == bytes.fromhex(expected)


def test_zero_key_of_the_rfc() -> None:
    # RFC 8439, A.1, vectors 1 and 2: the zero key and nonce, counters 0 and 1.
    expected = """
        76 b8 e0 ad a0 f1 3d 90 40 5d 6a e5 53 86 bd 28 bd d2 19 b8 a0 8d ed 1a a8 36 ef cc 8b 77 0d c7
        da 41 59 7c 51 57 48 8d 77 24 e0 3f b8 d8 4a 37 6a 43 b8 f4 15 18 a1 1c c3 87 b6 69 b2 ee 65 86
        9f 07 e7 be 55 51 38 7a 98 ba 97 7c 73 2d 08 0d cb 0f 29 a0 48 e3 65 69 12 c6 53 3e 32 ee 7a ed
        29 b7 21 76 9c e6 4e 43 d5 71 33 b0 74 d8 39 d5 31 ed 1f 28 51 0a fb 45 ac e1 0a 1f 4b 79 4d 6f"""
    assert keystream(bytes(32), 0, 2) == bytes.fromhex(expected)


@given(
    key=st.binary(min_size=32, max_size=32), first=st.integers(0, 2**62), blocks=st.integers(0, 9)
)
def test_same_words_as_openssl(key: bytes, first: int, blocks: int) -> None:
    assert keystream(key, first, blocks) == chacha_words(key, first, 8 * blocks).tobytes()


@pytest.mark.parametrize("first", [2**31 - 2, 2**32 - 2, 2**33 - 2, 2**63 - 5])
def test_the_counter_carries(first: int) -> None:
    words = np.frombuffer(keystream(SEQUENCE, first, 4), dtype="<u8")
    np.testing.assert_array_equal(words, chacha_words(SEQUENCE, first, 32))


@pytest.mark.parametrize("nonce", [0, 1, 2**63 + 5])
@pytest.mark.parametrize("first", [0, 2**32 - 2])
def test_the_reference_is_openssls_at_20_rounds(first: int, nonce: int) -> None:
    blocks = chacha_blocks(SEQUENCE, first, 4, nonce, 20)
    assert blocks.tobytes() == chacha_words(SEQUENCE, first, 32, nonce).tobytes()


def test_block_of_chacha12() -> None:
    # draft-strombergson-chacha-test-vectors-01, TC1: 256-bit key and nonce of zeros, 12 rounds.
    expected = """
        9b f4 9a 6a 07 55 f9 53 81 1f ce 12 5f 26 83 d5 04 29 c3 bb 49 e0 74 14 7e 00 89 a5 2e ae 15 5f
        05 64 f8 79 d2 7a e3 c0 2c e8 28 34 ac fa 8c 79 3a 62 9f 2c a0 de 69 19 61 0b e8 2f 41 13 26 be"""
    assert chacha_blocks(bytes(32), 0, 1, 0, 12).tobytes() == bytes.fromhex(expected)


@given(
    key=st.binary(min_size=32, max_size=32), first=st.integers(0, 2**62), nonce=st.integers(0, 1)
)
def test_same_words_as_the_reference_at_12_rounds(key: bytes, first: int, nonce: int) -> None:
    words = halves(key_on(key, CPU), first, 3, (nonce, 0), 6).numpy()
    assert words.tobytes() == chacha_blocks(key, first, 3, nonce, 12).tobytes()


def test_key_bytes_reach_the_device_in_order() -> None:
    assert key_on(SEQUENCE, CPU).numpy().tobytes() == SEQUENCE
