"""Which records enter a batch, drawn from a keystream by exact integers, so that what is drawn is what is claimed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.entropy import BLOCK, ElementWords
from mezzotint.core.errors import ParameterError
from mezzotint.training.rqp.sampling import Poisson

_WORDS = 2**64


@final
@dataclass(frozen=True, kw_only=True)
class PoissonBatches:
    """Every record enters every batch with the same probability, independently of all others.

    Arguments:
        batch_size: expected number of records in a batch, at least 1.
        dataset_size: number of records, at least batch_size.

    Raises:
        ParameterError: naming the parameter, its value and the remedy.

    Guarantees: a record enters with probability `threshold` / 2^64 exactly, and `sampling.rate` is not below that.
    """

    batch_size: int
    dataset_size: int

    def __post_init__(self) -> None:
        if not 1 <= self.batch_size <= self.dataset_size:
            raise ParameterError("batch_size", self.batch_size, f"the data has {self.dataset_size} records")

    @property
    def threshold(self) -> int:
        """ceil(2^64 batch_size / dataset_size): a record whose word is below it enters."""
        return -(-self.batch_size * _WORDS // self.dataset_size)

    @property
    def sampling(self) -> Poisson:
        """The rule that claims are made for."""
        exact = Fraction(self.threshold, _WORDS)
        rate = float(exact)
        return Poisson(rate=rate if rate >= exact else math.nextafter(rate, 1.0))

    def draw(self, key: bytes, *, records: int | None = None) -> npt.NDArray[np.int64]:
        """Indices of the records of one batch, increasing; of the first so many `records`, if not of all."""
        size = self.dataset_size if records is None else records
        if self.threshold == _WORDS:
            return np.arange(size)
        words, found = ElementWords(key), [np.empty(0, dtype=np.int64)]
        for first in range(0, size, BLOCK):
            drawn = np.empty(min(BLOCK, size - first), dtype=np.uint64)
            words.fill(drawn)
            found.append(first + np.flatnonzero(drawn < np.uint64(self.threshold)))
        return np.concatenate(found)
