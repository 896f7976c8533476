"""The loop that merges sorted hashes of people, compiled: heavy to import."""

from __future__ import annotations

import numpy as np

from mezzotint.core.kernels import compiled
from mezzotint.core.types import Words

NOTHING = np.uint64(0)


@compiled
def merge(
    first_high: Words,
    first_low: Words,
    first_amounts: Words,
    second_high: Words,
    second_low: Words,
    second_amounts: Words,
    merged_high: Words,
    merged_low: Words,
    merged_amounts: Words,
) -> int:
    """Merges two sorted sets of hashes; of one that is in both the amounts are added up.

    Arguments:
        first_high, first_low, first_amounts: halves of distinct hashes in ascending order, and what
            belongs to each; the second ones likewise.
        merged_high, merged_low, merged_amounts: written to, and as long as both together.

    Returns: how many hashes were written.
    """
    first = second = count = 0
    while first < first_high.size and second < second_high.size:
        high, other_high = first_high[first], second_high[second]
        low, other_low = first_low[first], second_low[second]
        same_half = high == other_high
        takes_first = high < other_high or (same_half and low <= other_low)
        takes_second = other_high < high or (same_half and other_low <= low)
        amount = NOTHING
        if takes_first:
            amount += first_amounts[first]
        if takes_second:
            amount += second_amounts[second]
        merged_high[count] = min(high, other_high)
        merged_low[count] = low if takes_first else other_low
        merged_amounts[count] = amount
        first += takes_first
        second += takes_second
        count += 1
    for index in range(first, first_high.size):
        merged_high[count] = first_high[index]
        merged_low[count] = first_low[index]
        merged_amounts[count] = first_amounts[index]
        count += 1
    for index in range(second, second_high.size):
        merged_high[count] = second_high[index]
        merged_low[count] = second_low[index]
        merged_amounts[count] = second_amounts[index]
        count += 1
    return count
