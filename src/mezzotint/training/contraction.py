"""How much of a step's privacy loss is left after a random quantizer: Theorems A and B, enclosed
from above.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

from mezzotint.core.arguments import check_count
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL, FloatArray, IntArray
from mezzotint.privacy.tradeoffs import RELATIVE_ERROR


def isoperimetric(mass: FloatArray, complement: FloatArray) -> FloatArray:
    """I(m) = phi(Phi^-1(m)), the Gaussian isoperimetric function; concave, symmetric, 0 at both
    ends.

    Arguments:
        mass: m in [0, 1].
        complement: 1 - m, which near 1 only is accurate.
    """
    quantile = ndtri(np.minimum(mass, complement))
    height = np.exp(-(quantile**2) / 2)
    return height / np.sqrt(2 * np.pi)


def slope(mass: FloatArray, complement: FloatArray) -> FloatArray:
    """I'(m) = -Phi^-1(m); +inf at 0, -inf at 1."""
    quantile = ndtri(np.minimum(mass, complement))
    return np.where(mass <= complement, -quantile, quantile)


class Channels(NamedTuple):
    """(n,) events, each with probability low under one row and low + gap = 1 - top under another."""

    low: FloatArray
    gap: FloatArray
    top: FloatArray

    def select(self, chosen: Any) -> Channels:
        """Those of a slice, a mask or indices."""
        events = np.stack(self)
        return Channels(*events[:, chosen])

    def image(self, mass: FloatArray, complement: FloatArray) -> FloatArray:
        """I(low + gap m), for m = mass = 1 - complement."""
        image_mass = self.low + self.gap * mass
        # 1 - (low + gap m) = top + gap (1 - m)
        image_complement = self.top + self.gap * complement
        return isoperimetric(image_mass, image_complement)


TOLERANCE = 1e-7
"""The upper bound returned lies at most this far (relative) above the supremum."""

_CHUNK = 2048
_ROUNDS = 400

# [0, 1] in octaves from both ends, so that a supremum near an end is found without a fine grid.
_OCTAVES = 2.0 ** np.arange(-60.0, 0.0)
_MASSES = np.concatenate([[0.0], _OCTAVES, 1 - _OCTAVES[-2::-1], [1.0]])
"""Increasing; backwards, they are their complements."""

_CHANNEL = slice(0, 3)
_LEFT = slice(3, 5)
_RIGHT = slice(5, 7)
"""Rows of boxes (7, n): a channel, that is low, gap and top; m and 1 - m at the left end of an
interval, and at its right end: both are kept, for accuracy.
"""


def check_bits(bits: int) -> int:
    """Number of levels 2**bits; ParameterError unless bits is an integer from 1 to 16."""
    return 2 ** check_count("bits", bits, most=16)


def check_q(q: float, levels: int) -> float:
    """The number itself; ParameterError outside [1/levels, 1]."""
    probability = float(q)
    if not 1 / levels <= probability <= 1:
        raise ParameterError(
            "q",
            probability,
            f"the probability to keep a code lies in [1/levels, 1] = [{1 / levels:g}, 1]",
        )
    return probability


def code_gap(q: float, levels: int) -> float:
    """q - u, to a few ulp: by how much a code is likelier if it was the rounded one."""
    # A power of two times q is exact, and so is its difference from 1 near it; q - u would cancel.
    return (levels * q - 1) / (levels - 1)


def _bounds(boxes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(n,) values attained in each of (7, n) boxes, and upper bounds over the boxes, of
    gap I(m) / I(low + gap m).
    """
    # On [a, b]: I lies under its tangents at a and b, and above its chord. A line over a positive
    # line is monotone, so the bound (lower tangent) / (chord of the denominator) peaks at a, at b,
    # or where the two tangents meet.
    channels = Channels(*boxes[_CHANNEL])
    left, left_complement = boxes[_LEFT]
    right, right_complement = boxes[_RIGHT]
    at_left = isoperimetric(left, left_complement)
    at_right = isoperimetric(right, right_complement)
    below_left = channels.image(left, left_complement)
    below_right = channels.image(right, right_complement)
    left_ratio = at_left / below_left
    right_ratio = at_right / below_right
    attained = channels.gap * np.maximum(left_ratio, right_ratio)
    # Near 1 only the distances to 1 tell the ends apart.
    is_near_zero = left <= left_complement
    width_near_one = left_complement - right_complement
    width = np.where(is_near_zero, right - left, width_near_one)
    left_slope = slope(left, left_complement)
    right_slope = slope(right, right_complement)
    meeting = _meeting_point(at_left, at_right, left_slope, right_slope, width)
    with np.errstate(invalid="ignore"):
        left_line = at_left + left_slope * meeting
        right_line = at_right - right_slope * (width - meeting)
    # Where the slope at an end is infinite the other tangent alone bounds; elsewhere the larger of
    # the two values at the (rounded) meeting point is above the smaller one, which is what bounds.
    left_line[~np.isfinite(left_slope)] = -np.inf
    right_line[~np.isfinite(right_slope)] = -np.inf
    highest_line = np.maximum(left_line, right_line)
    rise = below_right - below_left
    chord = below_left + rise * (meeting / width)
    upper = np.maximum(attained, channels.gap * highest_line / chord)
    return attained, upper * (1 + 10 * RELATIVE_ERROR)


def _meeting_point(
    at_left: FloatArray,
    at_right: FloatArray,
    left_slope: FloatArray,
    right_slope: FloatArray,
    width: FloatArray,
) -> FloatArray:
    """Where the tangents at_left + left_slope t and at_right - right_slope (width - t) meet, in [0,
    width].
    """
    with np.errstate(invalid="ignore"):
        right_height = at_right - at_left - right_slope * width
        meeting = right_height / (left_slope - right_slope)
    meeting[~np.isfinite(left_slope)] = 0.0
    meeting = np.where(np.isfinite(right_slope), meeting, width)
    meeting = np.nan_to_num(meeting)
    return meeting.clip(0.0, width)


def _attained(channels: Channels, best: float) -> float:
    """max of `best` and of gap I(m) / I(low + gap m) over channels and m, short by at most
    TOLERANCE (relative).

    Branch and bound; low, top > 0.
    """
    ends = np.stack([_MASSES, _MASSES[::-1]])
    intervals = np.vstack([ends[:, :-1], ends[:, 1:]])
    _, interval_count = intervals.shape
    events = np.repeat(np.stack(channels), interval_count, axis=1)
    intervals_of_channels = np.tile(intervals, channels.low.size)
    boxes = np.vstack([events, intervals_of_channels])
    for _ in range(_ROUNDS):
        attained, upper = _bounds(boxes)
        best = float(attained.max(initial=best))
        threshold = best * (1 + TOLERANCE)
        is_open = upper > threshold
        if not is_open.any() or threshold >= 1:
            return best
        boxes = _halves(boxes[:, is_open])
    return 1.0  # the bound by data processing, which always holds


def _halves(boxes: FloatArray) -> FloatArray:
    """(7, 2n) boxes: each of (7, n) cut at the middle of its interval."""
    middles = (boxes[_LEFT] + boxes[_RIGHT]) / 2
    left_halves = boxes.copy()
    left_halves[_RIGHT] = middles
    right_halves = boxes.copy()
    right_halves[_LEFT] = middles
    return np.hstack([left_halves, right_halves])


def channel_contraction(channels: Channels) -> float:
    """max over channels of sup_m gap I(m) / I(low + gap m), rounded up; 1 where low or top is 0."""
    noisy = channels.select(channels.gap > 0)
    if not noisy.gap.size:
        return 0.0
    # As m -> 0, I(m) / I(gap m) * gap -> 1: an event impossible under one row keeps the full loss.
    is_impossible = (noisy.low <= 0) | (noisy.top <= 0)
    if is_impossible.any():
        return 1.0
    largest = _largest(noisy)
    best = 0.0
    for start in range(0, largest.low.size, _CHUNK):
        end = start + _CHUNK
        chunk = largest.select(slice(start, end))
        best = _attained(chunk, best)
    upper = best * (1 + 2 * TOLERANCE)
    return min(1.0, upper)


def _largest(channels: Channels) -> Channels:
    """Drops channels that another one can imitate: [low, high] inside a wider interval never
    contracts less.
    """
    order = np.lexsort((channels.top, channels.low))
    ascending = channels.select(order)
    least_top = np.minimum.accumulate(ascending.top)
    earlier = np.append(np.inf, least_top[:-1])
    return ascending.select(ascending.top < earlier)


def contraction(q: float, bits: int) -> float:
    """kappa(q, b): the share of the noise's privacy loss that survives b-bit quantizing and
    keep-or-replace.

    The step is: Gaussian noise on the weights, any fixed quantizer to 2**bits levels, then each
    code is kept with probability q and otherwise replaced by one of the others, evenly. A shift of
    the weights' mean by a vector t then costs (kappa ||t|| / s)-GDP, s the noise per coordinate, in
    any dimension: RQP-SGD with noise multiplier z is exactly as private as DP-SGD with z / kappa.

    Arguments:
        q: probability to keep a code, in [1/2**bits, 1].
        bits: bits of one weight, 1 to 16.
    Returns: kappa in [0, 1], rounded up.
    Raises:
        ParameterError: q or bits outside their range.
    Guarantees:
        Never below the supremum, at most 1e-6 relative above it. 1 at q = 1, 0 at q = 1/2**bits.
    Source: Theorem A (docs/proofs/training.md).
    """
    levels = check_bits(bits)
    probability = check_q(q, levels)
    if probability == 1:
        return 1.0
    # kappa = sup_m (q-u) I(m) / I((q-u) m + u): the channel from u to q, k = 1 of the L levels.
    replacement = (1 - probability) / (levels - 1)
    channel = Channels(
        low=np.array([replacement]),
        gap=np.array([code_gap(probability, levels)]),
        top=np.array([1 - probability]),
    )
    return channel_contraction(channel)


def _integer_rows(rows: Any) -> IntArray:
    """(K, m) integer rows of a mechanism or an array; ParameterError unless each sums to 2**32."""
    if isinstance(rows, Mechanism):
        rows = rows.weights
    array = np.asarray(rows)
    is_table = array.ndim == 2 and array.dtype.kind in "iu"
    if is_table:
        sums = array.sum(axis=1)
        is_table = (array >= 0).all() and (sums == TOTAL).all()
    if not is_table:
        remedy = (
            "give a Mechanism, or integer rows >= 0 that each sum to 2**32 (round_rows makes them)"
        )
        raise ParameterError("rows", array.shape, remedy)
    return array.astype(np.int64)


def table_contraction(rows: Mechanism | IntArray) -> float:
    """kappa of any random table that is drawn from after Gaussian noise, whatever picks the row.

    The noisy value may choose its row by any fixed rule, random or not: a quantizer with one row
    per cell, or a `Mechanism` that interpolates between rows. The loss that survives is kappa times
    that of the noise, as in `contraction`, in any dimension.

    Arguments:
        rows: a `Mechanism`, or (rows, m) integers >= 0 that each sum to 2**32.
    Returns: kappa in [0, 1], rounded up.
    Raises:
        ParameterError: rows that do not form a table.
    Guarantees:
        Never below the supremum over means, shifts, scales and rules. Equals `contraction` for
        randomized response. 1 if some row cannot give a set of levels that another row can; 0 if
        all rows are equal.
    Source: Theorem B (docs/proofs/training.md).
    """
    table = np.unique(_integer_rows(rows), axis=0)
    lows: list[IntArray] = []
    highs: list[IntArray] = []
    for row in table:
        # Of all sets of levels only those that a likelihood ratio picks matter (Theorem B):
        # prefixes of this order.
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = row / table
        where_impossible = np.where(row > 0, math.inf, 0.0)
        ratios = np.where(table > 0, ratios, where_impossible)
        channel_order = np.argsort(ratios, axis=1, kind="stable")
        ordered_table = np.take_along_axis(table, channel_order, axis=1)
        lows.append(_inner_prefixes(row[channel_order]))
        highs.append(_inner_prefixes(ordered_table))
    pairs = np.vstack([np.concatenate(lows), np.concatenate(highs)])
    low, high = np.unique(pairs, axis=1)
    # Integers below 2**53: these floats are exact.
    channels = Channels(
        low=low / TOTAL,
        gap=(high - low) / TOTAL,
        top=(TOTAL - high) / TOTAL,
    )
    return channel_contraction(channels)


def _inner_prefixes(rows: IntArray) -> IntArray:
    """Sums of the first entries of each row, all of them left out, flat."""
    prefixes = np.cumsum(rows, axis=1)
    return prefixes[:, :-1].ravel()
