"""Probabilities in, integers out: rows that sum to 2**32, within the requested privacy, nearly
unbiased.

Nothing that a solver or a formula returns is trusted: it becomes a table only through this module,
and the table's epsilon is read off its integers afterwards.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import InfeasibleError, ParameterError, as_reals
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL, FloatArray, IntArray

MARGIN = 2.0**-20
"""A design aims at epsilon * (1 - MARGIN), so that rounding has room to stay under epsilon."""

CANDIDATES = 64
"""Levels on each side between which units are moved to correct a mean."""

NEAR = 2.0**-14
"""Rounding may change a probability by this much: far more than solvers err, far less than a wrong
design.
"""


def ratio_below(epsilon: float) -> Fraction:
    """A rational at or below e**epsilon. math.exp errs by less than one ulp; four ulps are given
    away.

    Above 700 it stays at e**700: beyond every ratio of weights, and still a float.
    """
    return Fraction(math.exp(min(epsilon, 700.0))) * (1 - Fraction(1, 2**50))


def _check_probabilities(probabilities: npt.ArrayLike) -> FloatArray:
    rows = as_reals("probabilities", probabilities, "need numbers in rows of one length")
    if rows.ndim != 2 or rows.size == 0:
        raise ParameterError(
            "probabilities", rows.shape, "need a 2-D array, one row per knot, at least one row"
        )
    if not np.isfinite(rows).all() or (rows < -1e-9).any():
        raise ParameterError("probabilities", float(np.min(rows)), "need finite probabilities >= 0")
    rows = np.maximum(rows, 0.0)
    sums = rows.sum(axis=1, keepdims=True)
    if (np.abs(sums - 1) > 1e-6).any():
        raise ParameterError(
            "probabilities", float(sums.ravel()[np.argmax(np.abs(sums - 1))]), "rows must sum to 1"
        )
    return rows / sums


def _largest_remainder(rows: FloatArray) -> IntArray:
    """Nearest integers with exact row sums; whatever is possible (p > 0) keeps at least one
    unit.
    """
    scaled = rows * TOTAL
    weights = np.floor(scaled).astype(np.int64)
    weights[(weights == 0) & (rows > 0)] = 1
    for row, target in zip(weights, scaled, strict=True):
        missing = TOTAL - int(row.sum())
        while missing != 0:
            # Largest remainder first; a surplus is taken where most was added, never down to zero.
            allowed = (target > 0) if missing > 0 else (row > 1)
            remainder = np.where(allowed, (target - row) * np.sign(missing), -np.inf)
            order = np.argsort(-remainder, kind="stable")[: min(abs(missing), int(allowed.sum()))]
            row[order] += np.sign(missing)
            missing = TOTAL - int(row.sum())
    return weights


def _boxes(weights: IntArray, ratio: Fraction) -> tuple[IntArray, IntArray]:
    """Per level a box [low, high] with high <= ratio * low that costs the rows little."""
    low = weights.min(axis=0)
    high = weights.max(axis=0)
    # Rounding to nearest leaves an excess of a few units: raising the small end a little costs the
    # rows least.
    needed = np.array([math.ceil(Fraction(int(top)) / ratio) for top in high], dtype=np.int64)
    low = np.where(low > 0, np.maximum(low, np.minimum(needed, low + 2)), 0)
    cap = np.array([min(math.floor(int(bottom) * ratio), TOTAL) for bottom in low], dtype=np.int64)
    return low, np.minimum(cap, TOTAL)


def _fit_sum(row: IntArray, low: IntArray, high: IntArray, slope: FloatArray, aim: float) -> None:
    """Moves a clipped row to the exact sum inside its box, each batch where it also helps the mean
    most.
    """
    missing = TOTAL - int(row.sum())
    while missing != 0:
        room = high - row if missing > 0 else row - low
        if not (room > 0).any():
            raise InfeasibleError(
                "rounding: no table of integers meets this epsilon; ask for a slightly larger one"
            )
        residual = aim - float(row @ slope)
        step = np.sign(missing)
        # After the move the mean should be as close to its aim as possible.
        error = np.where(room > 0, np.abs(residual - missing * slope), np.inf)
        best = int(np.argmin(error))
        amount = min(abs(missing), int(room[best]))
        row[best] += step * amount
        missing -= int(step) * amount


def _candidates(room: IntArray) -> npt.NDArray[np.intp]:
    """Levels with room: all of them, or, of very many, those with most room and some from
    everywhere.
    """
    able = np.flatnonzero(room > 0)
    if able.size <= CANDIDATES:
        return able
    roomiest = able[np.argsort(-room[able], kind="stable")[: CANDIDATES // 2]]
    return np.union1d(
        roomiest, able[np.linspace(0, able.size - 1, CANDIDATES // 2).astype(np.intp)]
    )


_APART = 1e-6
"""Share of the levels' span below which two of them count as one when means are brought to their
targets.
"""


def _cancel_residual(
    row: IntArray, low: IntArray, high: IntArray, slope: FloatArray, aim: float
) -> None:
    """Moves units between pairs of levels while that brings the row's mean closer to its aim."""
    gaps = slope[1:] - slope[:-1]
    # Between levels that nearly coincide it would take nearly all units to cancel what a unit
    # elsewhere does.
    enough = float(gaps[gaps >= _APART * (slope[-1] - slope[0])].min()) / 2
    for _ in range(8 * row.size):
        residual = aim - float(row @ slope)
        givers, takers = _candidates(row - low), _candidates(high - row)
        if givers.size == 0 or takers.size == 0:
            return
        gap = (
            slope[takers] - slope[givers][:, None]
        )  # what one unit from giver to taker adds to the mean
        room = np.minimum((row - low)[givers][:, None], (high - row)[takers])
        wanted = np.divide(residual, gap, out=np.zeros(gap.shape), where=gap != 0)
        units = np.minimum(np.maximum(np.rint(wanted), 0), room)
        after = np.abs(residual - units * gap)
        # Of the moves that come close enough, the smallest disturbs the row least.
        close = after <= max(float(after.min()), enough)
        best = np.unravel_index(int(np.argmin(np.where(close, units, np.inf))), after.shape)
        if not after[best] < abs(residual) * (1 - 1e-12):
            return
        amount = int(units[best])
        row[givers[best[0]]] -= amount
        row[takers[best[1]]] += amount


def _check_request(
    levels: FloatArray, target_means: FloatArray, rows: FloatArray, epsilon: float
) -> None:
    if (
        levels.shape != rows.shape[1:]
        or not np.isfinite(levels).all()
        or (np.diff(levels) <= 0).any()
    ):
        raise ParameterError(
            "levels", levels.tolist(), f"need {rows.shape[1]} increasing levels, one per column"
        )
    if target_means.shape != rows.shape[:1] or not np.isfinite(target_means).all():
        raise ParameterError(
            "target_means", target_means.tolist(), f"need {rows.shape[0]} finite means, one per row"
        )
    if not epsilon >= 0:
        raise ParameterError("epsilon", epsilon, "a privacy loss is >= 0; inf sets no limit")


def round_rows(
    probabilities: npt.ArrayLike,
    *,
    levels: npt.ArrayLike,
    target_means: npt.ArrayLike | None = None,
    epsilon: float = math.inf,
    most: int = TOTAL,
) -> IntArray:
    """Integer rows that sum to 2**32, whose ratios per level stay within e**epsilon, with means
    near `target_means`.

    Arguments:
        probabilities: (K+1, m) rows summing to 1 within 1e-6.
        levels: (m,) decoded outputs, data units.
        target_means: (K+1,) the mean each row should keep (the knots, for an unbiased table); None
            keeps the rows' own.
        epsilon: pure epsilon that the integers must not exceed; inf for no limit. Design at
            epsilon * (1 - MARGIN) to leave room.
        most: units by which a weight may be moved to bring the row's mean nearer to its aim:
            between levels that nearly coincide many move the mean little, and ratios that must be
            close to 1 much.

    Raises:
        ParameterError: rows that are not probabilities, lengths that differ, a negative epsilon.
        InfeasibleError: no integers within NEAR of these rows meet epsilon and the target means.

    Guarantees:
        Row sums are exact; max_k W[k,i] <= e**epsilon * min_k W[k,i] for every level with mass, in
        exact integers. With epsilon=inf a positive probability keeps a positive weight.
    """
    rows = _check_probabilities(probabilities)
    slope = np.asarray(levels, dtype=np.float64)
    targets = (
        np.full(len(rows), 0.0)
        if target_means is None
        else np.asarray(target_means, dtype=np.float64)
    )
    _check_request(slope, targets, rows, epsilon)
    if target_means is None:
        targets = rows @ slope
    # Deviations from the row's own aim keep float64 sums accurate to far below one unit.
    weights = _largest_remainder(rows)
    if epsilon < math.inf:
        floors, ceilings = (
            np.broadcast_to(edge, rows.shape) for edge in _boxes(weights, ratio_below(epsilon))
        )
    else:
        floors, ceilings = np.minimum(weights, 1), np.where(weights > 0, TOTAL, 0)
    for row, target, low, high in zip(weights, targets, floors, ceilings, strict=True):
        np.clip(row, low, high, out=row)
        _fit_sum(row, low, high, slope - target, 0.0)
        _cancel_residual(
            row, np.maximum(low, row - most), np.minimum(high, row + most), slope - target, 0.0
        )
    moved = float(np.abs(weights / TOTAL - rows).max())
    if moved > NEAR:
        raise InfeasibleError(
            f"rounding: probabilities would change by {moved:.2g} to meet epsilon={epsilon!r} and the means aimed at; "
            "design rows that meet both, at epsilon * (1 - MARGIN)"
        )
    return weights


def table(
    *,
    knots: npt.ArrayLike,
    levels: npt.ArrayLike,
    probabilities: npt.ArrayLike,
    name: str,
    epsilon: float = math.inf,
    unbiased: bool = True,
    most: int = TOTAL,
) -> Mechanism:
    """A `Mechanism` from float rows: rounded by `round_rows`, then checked against `epsilon` in its
    integers.

    Arguments:
        knots, levels, probabilities: as in `Mechanism`, the rows in float.
        epsilon: the certified epsilon must not exceed it.
        unbiased: True rounds towards row means equal to the knots, False towards the rows' own
            means.
        most: as in `round_rows`.

    Raises:
        InfeasibleError: the certified epsilon would exceed `epsilon`.
    """
    knots = np.asarray(knots, dtype=np.float64)
    weights = round_rows(
        probabilities,
        levels=levels,
        target_means=knots if unbiased else None,
        epsilon=epsilon,
        most=most,
    )
    mechanism = Mechanism(
        knots=knots, levels=np.asarray(levels, dtype=np.float64), weights=weights, name=name
    )
    if mechanism.epsilon > epsilon:
        raise InfeasibleError(
            f"rounding: certified epsilon {mechanism.epsilon!r} exceeds epsilon={epsilon!r}"
        )
    return mechanism
