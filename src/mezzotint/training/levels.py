"""Weights moved and put onto even levels where they lie, with as few random bits as that takes: one pass, no copies."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from mezzotint.core.entropy import PART, ElementWords
from mezzotint.core.kernels import compiled, in_threads, put, take, usable_cores
from mezzotint.core.mechanism import TOTAL
from mezzotint.training.projection import Projection

Floats = npt.NDArray[np.float32]
Coin = np.uint16 | np.uint32


@compiled
def onto_levels(
    weights: Floats,
    gradients: Floats | None,
    rate: float,
    coins: npt.NDArray[Coin],
    offset: int,
    stochastic: bool,
    other: int,
    top: int,
    bound: float,
) -> int:
    """Rounds each weight to one of the even levels 0 .. top on [-bound, bound], then keeps or replaces its number.

    Arguments:
        weights: (n,) float32, overwritten with the values of the levels.
        gradients: (n,) float32, rate times which is subtracted first; None for nothing.
        rate: step size.
        coins: uint16 or uint32, uniform. Coin i rounds weight i, coin i + offset replaces it.
        offset: 0 where at most one of the two needs a coin.
        stochastic: round to one of the two neighbours, without bias, instead of the nearest.
        other: of 2^32 equally likely coins, how many lead to each of the other levels; 0 for no replacement.
        top: number of the highest level.
        bound: value of the highest level.

    Returns: how many weights are NaN; what they become means nothing.
    """
    nans = 0
    half, step, scale = top / 2, 2 / top, top / 2 / bound
    inverse, replaced = 1 / max(other, 1), other * top
    unit = 2.0 ** (-8 * coins.itemsize)
    for i in range(weights.size):
        given = np.float64(take(weights, i))
        if gradients is not None:  # decided when this is compiled
            given = given - rate * np.float64(take(gradients, i))
        nans += given != given
        position = given * scale
        position = position if position > -half else -half  # NaN fails the comparison
        position = position if position < half else half
        # The middle of what a coin stands for: chances are too small as often as too large.
        shift = (np.float64(take(coins, i)) + 0.5) * unit if stochastic else 0.5
        code = np.floor(position + half + shift)
        if other > 0:
            coin = np.int64(take(coins, i + offset))
            # coin // other, which the product with the inverse misses by one at most.
            further = np.int64(np.float64(coin) * inverse)
            further -= further * other > coin
            further += (further + 1) * other <= coin
            moved = code + np.float64(1 + further)
            moved = moved - (top + 1) if moved > top else moved
            code = moved if coin < replaced else code
        put(weights, i, np.float32((code * step - 1) * bound))
    return nans


def coins_for(projected: Projection) -> int:
    """How many coins a weight takes: one to round without bias, one to be replaced."""
    return (projected.rounding == "stochastic") + (projected.q < 1)


def coin_type(projected: Projection) -> type[Coin]:
    """32 bits where codes are replaced, which privacy rests on; 16 to round, which nothing rests on."""
    return np.uint32 if projected.q < 1 else np.uint16


def place(
    tensors: Sequence[Floats],
    bounds: Sequence[float],
    projected: Projection,
    key: bytes,
    moves: Sequence[tuple[Floats, float]] | None = None,
) -> int:
    """Puts weights onto the levels of a `projection`, as its table would, but for half a coin in rounding's chances.

    Arguments:
        tensors: contiguous 1-D arrays, overwritten.
        bounds: of each of them.
        projected: with even levels, from `projection.projection`.
        key: of the stream that coins come from; used for this call alone.
        moves: for each tensor an array of its size, and what is subtracted first in units of it; None for nothing.

    Returns: how many weights are NaN.

    Guarantees: chances of replacement are the table's own, in exact integers. Those of rounding without bias are
        within 2^-17 of the table's, within 2^-33 where codes are replaced as well.
    """
    top, each, kind = projected.table.levels.size - 1, coins_for(projected), coin_type(projected)
    other = round((1 - projected.q) * TOTAL) // top
    starts = [0, *itertools.accumulate(tensor.size for tensor in tensors)]
    per_word = 8 // np.dtype(kind).itemsize
    length = PART * per_word // max(each, 1)
    stochastic = projected.rounding == "stochastic"

    def part(first: int) -> int:
        end, nans = min(first + length, starts[-1]), 0
        words = np.empty(-(-(end - first) * max(each, 1) // per_word), dtype=np.uint64)
        if each:
            ElementWords(key, first // length * PART).fill(words)
        coins = words.view(kind)
        for i, (tensor, bound, start) in enumerate(zip(tensors, bounds, starts, strict=False)):
            here = slice(max(first - start, 0), max(end - start, 0))
            if (mine := tensor[here]).size:
                own = coins[max(start - first, 0) :]
                offset = end - first if each > 1 else 0
                gradient, rate = (None, 0.0) if moves is None else (moves[i][0][here], moves[i][1])
                nans += onto_levels(mine, gradient, rate, own, offset, stochastic, other, top, bound)
        return nans

    tasks = [functools.partial(part, first) for first in range(0, starts[-1], length)]
    return sum(in_threads(tasks, threads=usable_cores()))
