from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from mezzotint import ParameterError
from mezzotint.core import sampler
from mezzotint.core.sampler import BLOCK, ElementWords, Keystream, fast_start, key_from
from reference.sampler import element_words, keystream

KEY = bytes(range(32))


def drawn(key: bytes, start: int, count: int) -> np.ndarray:
    words = np.empty(count, dtype=np.uint64)
    Keystream(key, start).fill(words)
    return words


@given(start=st.integers(0, 2**40).map(lambda n: 2 * n), count=st.integers(0, 33))
def test_words_are_aes_of_their_counters(start: int, count: int) -> None:
    np.testing.assert_array_equal(drawn(KEY, start, count), keystream(KEY, start, count))


def test_known_answer() -> None:
    # AES-256 of the zero block under the zero key: dc95c078a2408989ad48a21492842087 (NIST GFSbox/KeySbox style vector).
    words = drawn(bytes(32), 0, 2)
    assert words.astype("<u8").tobytes().hex() == "dc95c078a2408989ad48a21492842087"


def test_blocks_continue_the_stream() -> None:
    stream = Keystream(KEY)
    parts = [np.empty(size, dtype=np.uint64) for size in (BLOCK, 2, 64, 7)]
    for part in parts:
        stream.fill(part)
    whole = np.concatenate(parts)
    np.testing.assert_array_equal(whole[-80:], keystream(KEY, whole.size - 80, 81)[:80])
    np.testing.assert_array_equal(drawn(KEY, BLOCK, 9), whole[BLOCK : BLOCK + 9])


@pytest.mark.parametrize("part", [0, 1, 5, 2**33, 2**64 - 1])
def test_fast_parts_are_ranges_of_the_same_stream(part: int) -> None:
    # From AES-GCM, but its words must be those of the counters, whatever sizes they are drawn in.
    stream, pieces = (
        Keystream(KEY, fast_start(part)),
        [np.empty(size, dtype=np.uint64) for size in (7, 0, 1, 64, 513)],
    )
    for piece in pieces:
        stream.fill(piece)
    np.testing.assert_array_equal(np.concatenate(pieces), keystream(KEY, fast_start(part), 585))


def test_fast_parts_do_not_meet() -> None:
    starts = [fast_start(part) for part in range(3)]
    assert starts == [4, 4 + 2**33, 4 + 2**34]
    # 2**33 - 4 words from there on end where the low half of the counter would wrap around.
    assert (starts[0] + 2**33 - 4) // 2 == 2**32


def test_words_fill_what_was_there() -> None:
    words = np.full(10, 2**64 - 1, dtype=np.uint64)
    Keystream(KEY).fill(words)
    np.testing.assert_array_equal(words, keystream(KEY, 0, 10))


@pytest.mark.parametrize("start", [1, -2, 7])
def test_start_must_be_even(start: int) -> None:
    with pytest.raises(ParameterError, match="even"):
        Keystream(KEY, start)


def test_block_limit() -> None:
    with pytest.raises(ParameterError, match=f"at most {BLOCK}"):
        Keystream(KEY).fill(np.empty(BLOCK + 1, dtype=np.uint64))


def test_none_never_repeats_a_key() -> None:
    keys = {key_from(None) for _ in range(1000)}
    assert len(keys) == 1000
    assert {len(key) for key in keys} == {32}


def test_seed_gives_its_key_whatever_integer_type() -> None:
    assert key_from(7) == key_from(np.int64(7)) == key_from(np.uint8(7))
    assert len({key_from(seed) for seed in (0, 1, 7, 2**64, 2**200)}) == 5
    assert key_from(0) != bytes(32)


def test_generator_is_advanced_by_one_key() -> None:
    generator, same = np.random.default_rng(3), np.random.default_rng(3)
    assert key_from(generator) == key_from(same)
    assert key_from(generator) != key_from(np.random.default_rng(3))
    assert generator.random() != np.random.default_rng(3).random()


@pytest.mark.parametrize(
    "rng", [-1, np.int64(-5), True, np.True_, 1.5, "7", np.random.RandomState(1), [1]]
)
def test_other_rngs_are_refused(rng: object) -> None:
    with pytest.raises(ParameterError, match="rng="):
        key_from(rng)


@pytest.mark.parametrize("first", [0, 1, 99, 100, 101, 250])
def test_elements_have_words_of_their_own_wherever_one_begins(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "PART", 100)
    stream, pieces = (
        ElementWords(KEY, first),
        [np.empty(size, dtype=np.uint64) for size in (1, 0, 98, 1, 250)],
    )
    for piece in pieces:
        stream.fill(piece)
    np.testing.assert_array_equal(np.concatenate(pieces), element_words(KEY, first, 350, part=100))


def test_elements_are_counted_from_zero() -> None:
    with pytest.raises(ParameterError, match="first=-1"):
        ElementWords(KEY, -1)
