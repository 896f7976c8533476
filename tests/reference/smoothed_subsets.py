"""Slow twin of the sampling average: every subset of the records, every replacement, in exact fractions."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction


def sums(records: Sequence[int], draws: int) -> Counter[int]:
    """How many subsets of `draws` records have each sum."""
    return Counter(sum(subset) for subset in itertools.combinations(records, draws))


def delta(records: Sequence[int], draws: int, ratio: Fraction, levels: int) -> Fraction:
    """delta(x) of the sum of a random subset, any record replaced by any level."""
    own = sums(records, draws)
    best = Fraction(0)
    for i in range(len(records)):
        for level in range(levels):
            other = sums([*records[:i], level, *records[i + 1 :]], draws)
            for left, right in ((own, other), (other, own)):
                total = sum(
                    (max(Fraction(0), count - ratio * right[s]) for s, count in left.items()),
                    Fraction(0),
                )
                best = max(best, total)
    return best / math.comb(len(records), draws)
