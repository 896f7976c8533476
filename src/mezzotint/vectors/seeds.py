"""Seeds of ranked codebooks: assigned by round and slot, or drawn for a shuffler."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from mezzotint.core.arguments import check_count
from mezzotint.core.errors import ParameterError
from mezzotint.core.sampler import draw_words, key_from
from mezzotint.core.types import Words

MAX_SEED = 2**64 - 1

_MAX_ROUND = 2**32 - 1
"""Largest round, and largest slot: a seed is 64 bits, of which a round has the upper half."""


def own_seeds(count: int) -> list[int]:
    """`count` seeds from the operating system's keystream, for reports that go through a shuffler.

    They are drawn independently of any vector, are sent with the reports, and name nobody. Each has
    a round of its own, and so, in a subspace, a transform: dense codebooks take the server the
    least time.

    Arguments:
        count: how many.

    Returns: 64-bit seeds.

    Example:
        >>> first, second = mz.vectors.own_seeds(2)
        >>> first != second
        True
    """
    checked_count = check_count("count", count)
    words = draw_words(key_from(None), 0, checked_count)
    return words.tolist()


def check_seeds(seeds: Any, count: int) -> list[int]:
    """`count` different integers from 0 to 2**64 - 1."""
    if hasattr(seeds, "tolist"):
        seeds = seeds.tolist()
    try:
        numbers = [operator.index(seed) for seed in seeds]
        if any(isinstance(seed, bool) for seed in seeds):
            raise TypeError
    except TypeError:
        remedy = "need integers, one per vector"
        raise ParameterError("seed", type(seeds).__name__, remedy) from None
    if len(numbers) != count:
        raise ParameterError("seed", f"{len(numbers)} seeds", f"need one per vector, {count}")
    if min(numbers, default=0) < 0 or max(numbers, default=0) > MAX_SEED:
        raise ParameterError("seed", "out of range", "from 0 to 2**64 - 1")
    if len(set(numbers)) < count:
        raise ParameterError("seed", "repeated", "every report needs a seed of its own")
    return numbers


def round_seeds(round_number: int, slots: Sequence[int]) -> Words:
    """The seeds of some slots of a round: round times 2**32 plus slot. Reports of one round share a
    transform.

    Arguments:
        round_number: 0 to 2**32 - 1.
        slots: 0 to 2**32 - 1; clients' slots must not depend on their vectors.

    Returns: (n,) uint64, one for each slot.

    Example:
        >>> mz.vectors.round_seeds(3, [0, 1]).tolist()
        [12884901888, 12884901889]
    """
    checked_round = check_count("round_number", round_number, least=0, most=_MAX_ROUND)
    first_seed = checked_round << 32
    seeds: list[int] = []
    for slot in slots:
        checked_slot = check_count("slot", slot, least=0, most=_MAX_ROUND)
        seeds.append(first_seed + checked_slot)
    return np.array(seeds, dtype=np.uint64)
