"""Poisson batches: the rate that is claimed is the rate that is drawn, rounded up."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import binom

from mezzotint import ParameterError
from mezzotint.core.sampler import BLOCK, ElementWords
from mezzotint.training.batches import PoissonBatches


@given(st.integers(1, 10**12), st.data())
def test_the_claimed_rate_is_not_below_the_drawn_one(records: int, data: st.DataObject) -> None:
    batches = PoissonBatches(batch_size=data.draw(st.integers(1, records)), dataset_size=records)
    drawn, wanted = Fraction(batches.threshold, 2**64), Fraction(batches.batch_size, records)
    assert wanted <= drawn < wanted + Fraction(1, 2**64)
    assert drawn <= Fraction(batches.sampling.rate) <= drawn * (1 + Fraction(1, 2**52))


def test_a_record_enters_if_its_word_is_below_the_threshold() -> None:
    batches = PoissonBatches(batch_size=1000, dataset_size=BLOCK + 5000)
    key, words = bytes(range(32)), []
    stream = ElementWords(key)
    for size in (BLOCK, 5000):
        words.append(np.empty(size, dtype=np.uint64))
        stream.fill(words[-1])
    expected = [
        i for i, word in enumerate(np.concatenate(words).tolist()) if word < batches.threshold
    ]
    assert batches.draw(key).tolist() == expected


def test_sizes_of_batches_are_binomial() -> None:
    # 4000 batches; false alarm below one in a million, on either side.
    batches = PoissonBatches(batch_size=3, dataset_size=50)
    drawn = [batches.draw(bytes([1]) * 30 + i.to_bytes(2, "big")) for i in range(4000)]
    assert binom.sf(sum(map(len, drawn)) - 1, 200_000, 0.06) > 1e-6
    assert binom.cdf(sum(map(len, drawn)), 200_000, 0.06) > 1e-6
    assert np.unique(np.concatenate(drawn)).size == 50
    assert {0, 1, 2, 3, 4, 5} <= {len(batch) for batch in drawn}


def test_everyone_and_nobody() -> None:
    assert PoissonBatches(batch_size=7, dataset_size=7).draw(bytes(32)).tolist() == list(range(7))
    assert PoissonBatches(batch_size=7, dataset_size=7).sampling.rate == 1.0
    for size in (0, 8):
        with pytest.raises(ParameterError, match="batch_size"):
            PoissonBatches(batch_size=size, dataset_size=7)
