"""Weights put onto 2**bits levels: tables for it, a pass that does it in place, warnings where it
harms training.
"""

from __future__ import annotations

import functools
import itertools
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final, get_args

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_choice, check_count
from mezzotint.core.errors import ParameterError, outside
from mezzotint.core.kernels import compiled, put, take
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.sampler import PART, ElementWords, in_threads, usable_cores
from mezzotint.core.types import TOTAL, Float32Array
from mezzotint.training.contraction import check_q, contraction, table_contraction
from mezzotint.training.sampling import Rounding

ROUNDINGS = get_args(Rounding)
MAX_BITS = 8


@final
@dataclass(frozen=True, kw_only=True)
class Projection:
    """What happens to the weights after every noisy step.

    Arguments:
        table: draws a code for a weight. Weights are divided by the bound of their tensor first, so
            the table's range is [-1, 1] unless bounds are given in its own units.
        kappa: share of the noise's privacy loss that survives the table (Theorem A or B); 1 for
            mere rounding.
        rounding: how a weight comes onto the levels before codes are replaced; "table" for a user's
            own.
        q: probability to keep a code; 1 for no replacement.
    Guarantees: whatever the table, a step costs no more than its noise (kappa <= 1).
    """

    table: Mechanism
    kappa: float
    rounding: str
    q: float = 1.0

    @property
    def bits(self) -> int:
        """Bits of one weight."""
        return self.table.bits

    @cached_property
    def half_cell(self) -> float:
        """Half the widest distance of neighbouring levels, in units of the bound."""
        return float(np.diff(self.table.levels).max()) / 2

    @property
    def replacement(self) -> float:
        """Probability that a code is drawn afresh, evenly from all levels: lambda = L (1-q) /
        (L-1).
        """
        levels = self.table.levels.size
        return levels * (1 - self.q) / (levels - 1)


def projection(*, bits: int = 4, rounding: Rounding = "stochastic", q: float = 1.0) -> Projection:
    """Even levels on [-1, 1], rounded to, then kept with probability q or replaced by one of the
    others.

    Arguments:
        bits: bits of one weight, 1 to 8.
        rounding: "stochastic" (one of the two neighbours, unbiased) or "nearest" (the paper's).
        q: in [1/2**bits, 1]; 1 is mere rounding, which costs and buys no privacy.
    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    Guarantees:
        Stochastic with q=1 is unbiased within [-1, 1]. The table's own q is at most the one
        requested, by less than 2**-24, and its contraction at most `contraction(q, bits)`.
    Source: RQP-SGD paper, Algorithm 1 (nearest); docs/training.md for stochastic rounding.
    """
    levels = 2 ** check_count("bits", bits, most=MAX_BITS)
    check_choice("rounding", rounding, ROUNDINGS)
    keep_probability = check_q(q, levels)
    values = np.linspace(-1.0, 1.0, levels)
    # Rounding the replacement up keeps the table at least as private as the formula.
    other_weight = math.ceil((1 - keep_probability) / (levels - 1) * TOTAL)
    kept_weight = TOTAL - other_weight * (levels - 1)
    rows = np.full((levels, levels), other_weight, dtype=np.int64)
    np.fill_diagonal(rows, kept_weight)
    name = f"{rounding} to {levels} levels"
    if keep_probability < 1:
        name += f", kept with probability {keep_probability:g}"
    if rounding == "stochastic":
        table = Mechanism(knots=values, levels=values, weights=rows, name=name)
    else:
        # A jump halfway between neighbours: its first row is the lower level, its second the upper
        # one.
        middles = np.repeat((values[1:] + values[:-1]) / 2, 2)
        table_knots = np.concatenate([[-1.0], middles, [1.0]])
        table = Mechanism(
            knots=table_knots, levels=values, weights=np.repeat(rows, 2, axis=0), name=name
        )
    return Projection(
        table=table,
        kappa=contraction(keep_probability, bits),
        rounding=rounding,
        q=kept_weight / TOTAL,
    )


def projection_from(table: Mechanism) -> Projection:
    """Any table as a projection; its contraction is bounded by Theorem B.

    Arguments:
        table: a `Mechanism` of at most 256 levels; give the bounds of weights in units of its
            range.
    Raises:
        ParameterError: more than 256 levels.
    """
    if table.levels.size > 2**MAX_BITS:
        raise ParameterError(
            "table", table.levels.size, f"weights take at most {2**MAX_BITS} levels"
        )
    return Projection(table=table, kappa=table_contraction(table), rounding="table")


class TrainingWarning(UserWarning):
    """Base of the warnings about training settings."""


class DeadZoneWarning(TrainingWarning):
    """Nearest rounding never moves a weight whose step is shorter than half a cell."""


class MemoryLossWarning(TrainingWarning):
    """So many codes are replaced over the run that little of what was learned survives."""


class ContractionWarning(TrainingWarning):
    """Replacing codes lowers the noise needed only by kappa, and costs accuracy."""


class LeftOutWarning(TrainingWarning):
    """Records whose gradients are not finite, or too long to be clipped, count as zero."""


def warn_about(
    projection: Projection,
    *,
    bound: float,
    step_size: float,
    clip_norm: float,
    weight_noise: float,
    steps: int,
    contraction: float | None = None,
) -> None:
    """Warns where a projection harms training (docs/training.md).

    Arguments:
        projection: what follows each step.
        bound: largest weight, M; h = half_cell * bound.
        step_size: eta.
        clip_norm: rho, the longest averaged gradient.
        weight_noise: s, standard deviation of the noise on one weight, weight units.
        steps: of the complete run.
        contraction: what may be claimed, if that is not the projection's kappa.
    Warns:
        DeadZoneWarning: nearest rounding with eta rho < h, or with s < h / 2.
        MemoryLossWarning: lambda T > 1, lambda the probability that a code is drawn afresh.
        ContractionWarning: q < 1.
    """
    longest_step = step_size * clip_norm
    findings = (
        _dead_zone(projection, bound, longest_step, weight_noise),
        _memory_loss(projection, steps),
        _contraction_effect(projection, contraction),
    )
    for finding in findings:
        if finding is not None:
            warnings.warn(finding, stacklevel=outside())


def _dead_zone(
    projection: Projection, bound: float, longest_step: float, weight_noise: float
) -> DeadZoneWarning | None:
    half_cell = projection.half_cell * bound
    is_dead = longest_step < half_cell or weight_noise < half_cell / 2
    if projection.rounding != "nearest" or not is_dead:
        return None
    return DeadZoneWarning(
        f"nearest rounding has a dead zone: steps of at most {longest_step:.3g} with noise "
        f"{weight_noise:.3g} against half a cell of {half_cell:.3g}; use stochastic rounding"
    )


def _memory_loss(projection: Projection, steps: int) -> MemoryLossWarning | None:
    draws = projection.replacement * steps
    if draws <= 1:
        return None
    smallest_q = 1 - (1 - projection.q) / draws
    most_steps = 1 / projection.replacement
    return MemoryLossWarning(
        f"a weight is drawn afresh {draws:.3g} times over {steps} steps: most of what is learned "
        f"is lost; take q=1, or q of at least {smallest_q:.6g}, or at most {most_steps:.0f} steps"
    )


def _contraction_effect(
    projection: Projection, contraction: float | None
) -> ContractionWarning | None:
    """The warning that replaced codes save little noise, or none; None where no code is replaced."""
    if projection.q >= 1 or math.isclose(projection.q, 1.0):
        return None
    kappa = projection.kappa
    if contraction is not None:
        kappa = contraction
    effect = f"lowers the noise needed by a factor of {kappa:.3f} only"
    if kappa == 1:
        effect = (
            "buys nothing around an optimizer that may remember gradients, or where weights stay "
            "floats"
        )
    return ContractionWarning(
        f"q={projection.q:.4g} {effect}; stochastic rounding with q=1 usually learns more at the "
        "same epsilon"
    )


Coin = np.uint16 | np.uint32


@compiled
def onto_levels(
    weights: Float32Array,
    coins: npt.NDArray[Coin],
    offset: int,
    stochastic: bool,
    other: int,
    top: int,
    bound: float,
) -> int:
    """Rounds each weight to one of the even levels 0 .. top on [-bound, bound], then keeps or
    replaces its number.

    Arguments:
        weights: (n,) float32, overwritten with the values of the levels.
        coins: uint16 or uint32, uniform. Coin i rounds weight i, coin i + offset replaces it.
        offset: 0 where at most one of the two needs a coin.
        stochastic: round to one of the two neighbours, without bias, instead of the nearest.
        other: of 2^32 equally likely coins, how many lead to each of the other levels; 0 for no
            replacement.
        top: number of the highest level.
        bound: value of the highest level.
    Returns: how many weights are NaN; what they become means nothing.
    """
    nan_count = 0
    half = top / 2
    spacing = 2 / top
    scale = top / 2 / bound
    inverse = 1 / max(other, 1)
    replaced = other * top
    unit = 2.0 ** (-8 * coins.itemsize)
    for i in range(weights.size):
        weight = np.float64(take(weights, i))
        nan_count += weight != weight
        position = weight * scale
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
        put(weights, i, np.float32((code * spacing - 1) * bound))
    return nan_count


def coins_for(projected: Projection) -> int:
    """How many coins a weight takes: one to round without bias, one to be replaced."""
    return (projected.rounding == "stochastic") + (projected.q < 1)


def coin_type(projected: Projection) -> type[Coin]:
    """32 bits where codes are replaced, which privacy rests on; 16 to round, which nothing rests
    on.
    """
    if projected.q < 1:
        return np.uint32
    return np.uint16


def place(
    tensors: Sequence[Float32Array],
    bounds: Sequence[float],
    projected: Projection,
    key: bytes,
) -> int:
    """Puts weights onto the levels of a `projection`, as its table would, but for half a coin in
    rounding's chances.

    Arguments:
        tensors: contiguous 1-D arrays, overwritten.
        bounds: of each of them.
        projected: with even levels, from `projection.projection`.
        key: of the stream that coins come from; used for this call alone.
    Returns: how many weights are NaN.
    Guarantees: chances of replacement are the table's own, in exact integers. Those of rounding
        without bias are within 2^-17 of the table's, within 2^-33 where codes are replaced as well.
    """
    top = projected.table.levels.size - 1
    coins_each = coins_for(projected)
    kind = coin_type(projected)
    words_each = max(coins_each, 1)  # a loop without coins is handed some that it does not read
    other_weight = round((1 - projected.q) * TOTAL) // top
    starts = [0, *itertools.accumulate(tensor.size for tensor in tensors)]
    per_word = 8 // np.dtype(kind).itemsize
    length = PART * per_word // words_each
    stochastic = projected.rounding == "stochastic"

    def place_from(first: int) -> int:
        """Places the weights from `first` on that one thread works through."""
        end = min(first + length, starts[-1])
        words = np.empty(-(-(end - first) * words_each // per_word), dtype=np.uint64)
        if coins_each:
            ElementWords(key, first // length * PART).fill(words)
        coins = words.view(kind)
        offset = 0
        if coins_each > 1:
            offset = end - first
        nan_count = 0
        for tensor, bound, start in zip(tensors, bounds, starts, strict=False):
            elements = slice(max(first - start, 0), max(end - start, 0))
            weights = tensor[elements]
            if not weights.size:
                continue
            tensor_coins = coins[max(start - first, 0) :]
            nan_count += onto_levels(
                weights, tensor_coins, offset, stochastic, other_weight, top, bound
            )
        return nan_count

    placing_tasks = [functools.partial(place_from, first) for first in range(0, starts[-1], length)]
    return sum(in_threads(placing_tasks, threads=usable_cores()))
