"""How much of the Gaussian noise's privacy loss is left after a random quantizer: Theorem A, enclosed from above.

Under it stand functions of the normal distribution, their rounding errors bounded; beside it the pure loss of one step,
finite because a replaced code is possible whatever the data, but large.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from mezzotint.core.arguments import check_count
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import TOTAL, FloatArray, Mechanism
from mezzotint.core.search import bracket
from mezzotint.privacy.tradeoff import RELATIVE_ERROR


def isoperimetric(mass: FloatArray, rest: FloatArray) -> FloatArray:
    """I(m) = phi(Phi^-1(m)), the Gaussian isoperimetric function; concave, symmetric, 0 at both ends.

    Arguments:
        mass: m in [0, 1].
        rest: 1 - m, given as well because near 1 only it is accurate.
    """
    quantile = ndtri(np.minimum(mass, rest))
    return np.exp(-(quantile**2) / 2) / np.sqrt(2 * np.pi)


def slope(mass: FloatArray, rest: FloatArray) -> FloatArray:
    """I'(m) = -Phi^-1(m); +inf at 0, -inf at 1."""
    return np.where(mass <= rest, -ndtri(np.minimum(mass, rest)), ndtri(np.minimum(mass, rest)))


TOLERANCE = 1e-7
"""The upper bound returned lies at most this far (relative) above the supremum."""

_CHUNK = 2048
_ROUNDS = 400

# Half of [0, 1] in octaves, so that a supremum near an end is found without a fine grid.
_OCTAVES = 2.0 ** -np.arange(1, 61)
_START = np.concatenate([[0.0], _OCTAVES[::-1]])


def check_bits(bits: int) -> int:
    """Number of levels 2**bits; ParameterError unless bits is an integer from 1 to 16."""
    return 2 ** check_count("bits", bits, most=16)


def check_q(q: float, levels: int) -> float:
    """The number itself; ParameterError outside [1/levels, 1]."""
    value = float(q)
    if not 1 / levels <= value <= 1:
        raise ParameterError("q", value, f"the probability to keep a code lies in [1/levels, 1] = [{1 / levels:g}, 1]")
    return value


class _Boxes:
    """Intervals [left, right] of m in one channel (low, high) each; m and 1 - m are both kept, for accuracy."""

    def __init__(self, low: FloatArray, gap: FloatArray, top: FloatArray, ends: tuple[FloatArray, ...]) -> None:
        self.channel = (low, gap, top)
        self.left, self.left_rest, self.right, self.right_rest = ends

    def take(self, chosen: npt.NDArray[np.intp] | npt.NDArray[np.bool_]) -> _Boxes:
        low, gap, top = (part[chosen] for part in self.channel)
        ends = (self.left, self.left_rest, self.right, self.right_rest)
        return _Boxes(low, gap, top, tuple(end[chosen] for end in ends))

    def halves(self) -> _Boxes:
        low, gap, top = (np.concatenate([part, part]) for part in self.channel)
        middle, rest = (self.left + self.right) / 2, (self.left_rest + self.right_rest) / 2
        ends = (
            np.concatenate([self.left, middle]),
            np.concatenate([self.left_rest, rest]),
            np.concatenate([middle, self.right]),
            np.concatenate([rest, self.right_rest]),
        )
        return _Boxes(low, gap, top, ends)


def _denominator(boxes: _Boxes, mass: FloatArray, rest: FloatArray) -> FloatArray:
    low, gap, top = boxes.channel
    # 1 - (low + gap m) = top + gap (1 - m), where top = 1 - high.
    return isoperimetric(low + gap * mass, top + gap * rest)


def _bounds(boxes: _Boxes) -> tuple[FloatArray, FloatArray]:
    """Value attained in each box, and an upper bound over the box, of gap I(m) / I(low + gap m)."""
    # On [a, b]: I lies under its tangents at a and b, and above its chord. A line over a positive line is monotone,
    # so the bound (lower tangent) / (chord of the denominator) peaks at a, at b, or where the two tangents meet.
    gap = boxes.channel[1]
    at_left, at_right = isoperimetric(boxes.left, boxes.left_rest), isoperimetric(boxes.right, boxes.right_rest)
    below_left = _denominator(boxes, boxes.left, boxes.left_rest)
    below_right = _denominator(boxes, boxes.right, boxes.right_rest)
    # Near 1 only the distances to 1 tell the ends apart.
    width = np.where(boxes.left <= boxes.left_rest, boxes.right - boxes.left, boxes.left_rest - boxes.right_rest)
    from_left, from_right = slope(boxes.left, boxes.left_rest), slope(boxes.right, boxes.right_rest)
    attained = gap * np.maximum(at_left / below_left, at_right / below_right)
    with np.errstate(invalid="ignore"):
        # Tangents: at_left + from_left t and at_right - from_right (width - t).
        meet = (at_right - at_left - from_right * width) / (from_left - from_right)
    meet = np.where(np.isfinite(from_left), meet, 0.0)
    meet = np.where(np.isfinite(from_right), meet, width)
    meet = np.clip(np.nan_to_num(meet), 0.0, width)
    # Where the slope at an end is infinite the other tangent alone bounds; elsewhere the larger of the two values at
    # the (rounded) meeting point is above the smaller one, which is what bounds.
    with np.errstate(invalid="ignore"):
        left_line = np.where(np.isfinite(from_left), at_left + from_left * meet, -np.inf)
        right_line = np.where(np.isfinite(from_right), at_right - from_right * (width - meet), -np.inf)
    chord = below_left + (below_right - below_left) * (meet / width)
    upper = np.maximum(attained, gap * np.maximum(left_line, right_line) / chord)
    return attained, upper * (1 + 10 * RELATIVE_ERROR)


def _attained(low: FloatArray, gap: FloatArray, top: FloatArray, best: float) -> float:
    """max of `best` and of gap I(m) / I(low + gap m) over channels and m, short by at most TOLERANCE (relative).

    Branch and bound; low, top > 0.
    """
    mirrored = np.concatenate([_START, 1 - _START[-2::-1]])
    rest = mirrored[::-1]
    index, piece = np.divmod(np.arange(low.size * (mirrored.size - 1)), mirrored.size - 1)
    ends = (mirrored[piece], rest[piece], mirrored[piece + 1], rest[piece + 1])
    boxes = _Boxes(low[index], gap[index], top[index], ends)
    for _ in range(_ROUNDS):
        attained, upper = _bounds(boxes)
        best = max(best, float(attained.max(initial=0.0)))
        open_boxes = upper > best * (1 + TOLERANCE)
        if not open_boxes.any() or best * (1 + TOLERANCE) >= 1:
            return best
        boxes = boxes.take(open_boxes).halves()
    return 1.0  # the bound by data processing, which always holds


def channel_contraction(low: FloatArray, gap: FloatArray, top: FloatArray) -> float:
    """max over channels of sup_m gap I(m) / I(low + gap m), rounded up; 1 where low or top is 0.

    Arguments:
        low, gap, top: (n,) each; an event has probability low under one row and low + gap = 1 - top under another.
    """
    alive = gap > 0
    if not alive.any():
        return 0.0
    low, gap, top = low[alive], gap[alive], top[alive]
    # As m -> 0, I(m) / I(gap m) * gap -> 1: an event impossible under one row keeps the whole loss of the noise.
    if (low <= 0).any() or (top <= 0).any():
        return 1.0
    low, gap, top = _largest(low, gap, top)
    best = 0.0
    for start in range(0, low.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        best = _attained(low[part], gap[part], top[part], best)
    return min(1.0, best * (1 + 2 * TOLERANCE))


def _largest(low: FloatArray, gap: FloatArray, top: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Drops channels that another one can imitate: [low, high] inside a wider interval never contracts less."""
    order = np.lexsort((top, low))
    low, gap, top = low[order], gap[order], top[order]
    earlier = np.concatenate([[np.inf], np.minimum.accumulate(top)[:-1]])
    keep = top < earlier
    return low[keep], gap[keep], top[keep]


def contraction(q: float, bits: int) -> float:
    """kappa(q, b): the share of the noise's privacy loss that survives b-bit quantizing and keep-or-replace.

    The step is: Gaussian noise on the weights, any fixed quantizer to 2**bits levels, then each code is kept with
    probability q and otherwise replaced by one of the others, evenly. A shift of the weights' mean by a vector t
    then costs (kappa ||t|| / s)-GDP, s the noise per coordinate, in any dimension: RQP-SGD with noise multiplier z
    is exactly as private as DP-SGD with z / kappa.

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
    keep = check_q(q, levels)
    if keep == 1:
        return 1.0
    # kappa = sup_m (q-u) I(m) / I((q-u) m + u): the channel from u to q, k = 1 of the L levels.
    other = (1 - keep) / (levels - 1)
    gap = max(0.0, keep - other)
    return channel_contraction(np.array([other]), np.array([gap]), np.array([1 - keep]))


def _integer_rows(rows: Any) -> npt.NDArray[np.int64]:
    if isinstance(rows, Mechanism):
        return np.asarray(rows.weights, dtype=np.int64)
    array = np.asarray(rows)
    if array.ndim != 2 or array.dtype.kind not in "iu" or (array < 0).any() or (array.sum(axis=1) != TOTAL).any():
        raise ParameterError(
            "rows", array.shape, "give a Mechanism, or integer rows >= 0 that each sum to 2**32 (round_rows makes them)"
        )
    return array.astype(np.int64)


def table_contraction(rows: Mechanism | npt.NDArray[np.int64]) -> float:
    """kappa of any random table that is drawn from after Gaussian noise, whatever picks the row.

    The noisy value may choose its row by any fixed rule, random or not: a quantizer with one row per cell, or a
    `Mechanism` that interpolates between rows. The loss that survives is kappa times that of the noise, as in
    `contraction`, in any dimension.

    Arguments:
        rows: a `Mechanism`, or (rows, m) integers >= 0 that each sum to 2**32.

    Returns: kappa in [0, 1], rounded up.

    Raises:
        ParameterError: rows that are no table.

    Guarantees:
        Never below the supremum over means, shifts, scales and rules. Equals `contraction` for randomized response.
        1 if some row cannot give a set of levels that another row can; 0 if all rows are equal.
    Source: Theorem B (docs/proofs/training.md).
    """
    table = np.unique(_integer_rows(rows), axis=0)
    lows: list[npt.NDArray[np.int64]] = []
    highs: list[npt.NDArray[np.int64]] = []
    for row in table:
        # Of all sets of levels only those that a likelihood ratio picks matter (Theorem B): prefixes of this order.
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(table > 0, row / table, np.where(row > 0, math.inf, 0.0))
        order = np.argsort(ratio, axis=1, kind="stable")
        lows.append(np.cumsum(row[order], axis=1)[:, :-1].ravel())
        highs.append(np.cumsum(np.take_along_axis(table, order, axis=1), axis=1)[:, :-1].ravel())
    low, high = np.unique(np.stack([np.concatenate(lows), np.concatenate(highs)]), axis=1)
    # Integers below 2**53: these floats are exact.
    return channel_contraction(low / TOTAL, (high - low) / TOTAL, (TOTAL - high) / TOTAL)


_FAR = 40.0


def _rate(x: float, gap: float, other: float) -> float:
    """r(x) = d/dx log(gap Phi(x) + other)."""
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return gap * density / (gap * float(ndtr(x)) + other)


def coordinate_loss(shift: float, gap: float, other: float) -> float:
    """l(shift) = sup_x log[(gap Phi(x + shift) + other) / (gap Phi(x) + other)], rounded up.

    Arguments:
        shift: |shift| of the mean over the noise, >= 0.
        gap: q - u >= 0.
        other: u > 0, the probability that a given other code replaces a code.
    """
    if shift == 0 or gap == 0:
        return 0.0

    # r' = -r (x + r), and x + r grows wherever it is 0: r rises to one peak and falls. So the window [x, x + shift]
    # that holds most of it is the only one with r(x) = r(x + shift), and bisection finds it.
    def rising(x: float) -> bool:
        return _rate(x, gap, other) < _rate(x + shift, gap, other)

    left, right = bracket(rising, -_FAR - shift, _FAR)
    # Numerator at the right end and denominator at the left end bound every x between.
    above, below = gap * float(ndtr(right + shift)) + other, gap * float(ndtr(left)) + other
    return math.log(above / below) * (1 + RELATIVE_ERROR) + RELATIVE_ERROR


def step_loss(shift: float, dimension: int, gap: float, other: float) -> float:
    """sup of sum_i l(t_i) over ||t|| <= shift in `dimension` coordinates, l as `coordinate_loss`; rounded up.

    Arguments:
        shift: L2 norm of the shift over the noise per coordinate, >= 0.
        dimension: number of coordinates, >= 1.
    """
    # l'(t) is the common value of r at both ends of the best window, which falls as t grows; so d/dv l(sqrt v) =
    # l'(sqrt v) / (2 sqrt v) falls too: l(sqrt v) is concave, and equal shares of ||t||^2 are worst.
    return dimension * coordinate_loss(shift / math.sqrt(dimension), gap, other)
