"""Probabilities in, integers out: rows that sum to 2**32, within the requested privacy, nearly
unbiased.

Nothing that a solver or a formula returns is trusted: it becomes a table only through this module,
and the table's epsilon is read off its integers afterwards.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import InfeasibleError, ParameterError, as_reals
from mezzotint.core.loss import exp_below
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL, FloatArray, IndexArray, IntArray

MARGIN = 2.0**-20
"""A design aims at epsilon * (1 - MARGIN), so that rounding has room to stay under epsilon."""

CANDIDATES = 64
"""Levels on each side between which units are moved to correct a mean."""

NEAR = 2.0**-14
"""Rounding may change a probability by this much: far more than solvers err, far less than a wrong
design.
"""


_NEGATIVE_TOLERANCE = 1e-9
SUM_TOLERANCE = 1e-6
"""What solvers may leave: probabilities below 0, and sums of rows off 1.

Rows are divided by their sum: what is certified is the integer table, which callers measure anew.
"""


def _check_probabilities(probabilities: npt.ArrayLike) -> FloatArray:
    """Rows of probabilities, (K, m), divided by their sums; raises ParameterError for what a
    solver's tolerance does not explain.
    """
    remedy = "need numbers in rows of one length"
    probability_rows = as_reals("probabilities", probabilities, remedy)
    if probability_rows.ndim != 2 or probability_rows.size == 0:
        remedy = "need a 2-D array, one row per knot, at least one row"
        raise ParameterError("probabilities", probability_rows.shape, remedy)
    is_finite = np.isfinite(probability_rows).all()
    smallest = float(np.min(probability_rows))
    if not is_finite or smallest < -_NEGATIVE_TOLERANCE:
        raise ParameterError("probabilities", smallest, "need finite probabilities >= 0")
    probability_rows = np.maximum(probability_rows, 0.0)
    row_sums = probability_rows.sum(axis=1, keepdims=True)
    deviations = np.abs(row_sums - 1)
    if (deviations > SUM_TOLERANCE).any():
        worst_row = int(np.argmax(deviations))
        worst_sum = float(row_sums.ravel()[worst_row])
        raise ParameterError("probabilities", worst_sum, "rows must sum to 1")
    return probability_rows / row_sums


def _largest_remainder(rows: FloatArray) -> IntArray:
    """Nearest integers with exact row sums; whatever is possible (p > 0) keeps at least one
    unit.
    """
    exact_units = rows * TOTAL
    weights = np.floor(exact_units).astype(np.int64)
    weights[(weights == 0) & (rows > 0)] = 1
    for weight_row, exact_row in zip(weights, exact_units, strict=True):
        missing = TOTAL - int(weight_row.sum())
        while missing != 0:
            # Largest remainder first; a surplus is taken where most was added, never down to zero.
            step = np.sign(missing)
            is_allowed = weight_row > 1
            if missing > 0:
                is_allowed = exact_row > 0
            gains = (exact_row - weight_row) * step
            remainders = np.where(is_allowed, gains, -np.inf)
            change_count = min(abs(missing), int(is_allowed.sum()))
            descending = np.argsort(-remainders, kind="stable")
            changed_levels = descending[:change_count]
            weight_row[changed_levels] += step
            missing = TOTAL - int(weight_row.sum())
    return weights


def _boxes(weights: IntArray, ratio: Fraction) -> tuple[IntArray, IntArray]:
    """Per level a box [low, high] with high <= ratio * low that costs the rows little."""
    smallest = weights.min(axis=0)
    # Rounding to nearest leaves an excess of a few units: raising the small end a little costs the
    # rows least.
    largest_units: list[int] = weights.max(axis=0).tolist()
    needed_units = [math.ceil(units / ratio) for units in largest_units]
    needed = np.array(needed_units, dtype=np.int64)
    raised = np.minimum(needed, smallest + 2)
    raised = np.maximum(smallest, raised)
    floors = np.where(smallest > 0, raised, 0)
    ceilings: list[int] = []
    for units in floors.tolist():
        highest = math.floor(units * ratio)
        ceilings.append(min(highest, TOTAL))
    return floors, np.array(ceilings, dtype=np.int64)


def _weight_limits(
    weights: IntArray,
    epsilon: float,
) -> tuple[IntArray, IntArray]:
    """(rows, m) least and largest weights within epsilon."""
    if math.isinf(epsilon):
        least = np.minimum(weights, 1)
        return least, least * TOTAL
    floors, ceilings = _boxes(weights, exp_below(epsilon))
    floor_rows = np.broadcast_to(floors, weights.shape)
    ceiling_rows = np.broadcast_to(ceilings, weights.shape)
    return floor_rows, ceiling_rows


@dataclass(frozen=True, kw_only=True, eq=False)
class _RowBox:
    """A row's (m,) least and largest weights, and the levels less the mean that it aims at.

    Deviations from the row's own aim keep float64 sums accurate to far below one unit.
    """

    low: IntArray
    high: IntArray
    deviations: FloatArray

    def within(self, row: IntArray, most: int) -> _RowBox:
        """This box, cut to weights that differ from the row's by at most `most`."""
        return _RowBox(
            low=np.maximum(self.low, row - most),
            high=np.minimum(self.high, row + most),
            deviations=self.deviations,
        )


def _fit_sum(row: IntArray, box: _RowBox) -> None:
    """Moves a clipped row to the exact sum inside its box, each batch where it also helps the mean
    most.
    """
    missing = TOTAL - int(row.sum())
    while missing != 0:
        spare_units = row - box.low
        if missing > 0:
            spare_units = box.high - row
        has_spare = spare_units > 0
        if not has_spare.any():
            raise InfeasibleError(
                "rounding: no table of integers meets this epsilon; ask for a slightly larger one"
            )
        residual = -float(row @ box.deviations)
        step = np.sign(missing)
        # After the move the mean should be as close to its aim as possible.
        errors = np.abs(residual - missing * box.deviations)
        spare_errors = np.where(has_spare, errors, np.inf)
        best_level = int(np.argmin(spare_errors))
        moved_units = min(abs(missing), int(spare_units[best_level]))
        row[best_level] += step * moved_units
        missing -= int(step) * moved_units


def _candidates(room: IntArray) -> IndexArray:
    """Levels with room: all of them, or, of very many, those with most room and some from
    everywhere.
    """
    with_room = np.flatnonzero(room > 0)
    if with_room.size <= CANDIDATES:
        return with_room
    half_count = CANDIDATES // 2
    by_room = np.argsort(-room[with_room], kind="stable")
    roomiest = with_room[by_room[:half_count]]
    even_positions = np.linspace(0, with_room.size - 1, half_count)
    evenly_spaced = even_positions.astype(np.intp)
    return np.union1d(roomiest, with_room[evenly_spaced])


_SAME_LEVEL = 1e-6
"""Share of the levels' span below which two of them count as one when means are brought to their
targets.
"""

_LEAST_IMPROVEMENT = 1e-12
"""Relative: a move that brings the mean closer by less is not made."""


def _cancel_residual(row: IntArray, box: _RowBox) -> None:
    """Moves units between pairs of levels while that brings the row's mean closer to its aim."""
    deviations = box.deviations
    spacings = deviations[1:] - deviations[:-1]
    span = deviations[-1] - deviations[0]
    # Between levels that nearly coincide it would take nearly all units to cancel what a unit
    # elsewhere does.
    apart = spacings[spacings >= _SAME_LEVEL * span]
    close_enough = float(apart.min()) / 2
    for _ in range(8 * row.size):
        residual = -float(row @ deviations)
        available_units = row - box.low
        accepted_units = box.high - row
        givers = _candidates(available_units)
        takers = _candidates(accepted_units)
        if givers.size == 0 or takers.size == 0:
            return
        # What one unit from giver to taker adds to the mean.
        giver_column = givers[:, None]
        unit_effect = deviations[takers] - deviations[giver_column]
        most_units = np.minimum(available_units[giver_column], accepted_units[takers])
        wanted_units = np.divide(
            residual,
            unit_effect,
            out=np.zeros(unit_effect.shape),
            where=unit_effect != 0,
        )
        whole_units = np.maximum(np.rint(wanted_units), 0)
        moved_units = np.minimum(whole_units, most_units)
        residuals = np.abs(residual - moved_units * unit_effect)
        # Of the moves that come close enough, the smallest disturbs the row least.
        least_residual = float(residuals.min())
        is_close = residuals <= max(least_residual, close_enough)
        close_units = np.where(is_close, moved_units, np.inf)
        smallest = int(np.argmin(close_units))
        giver, taker = np.unravel_index(smallest, residuals.shape)
        improved = abs(residual) * (1 - _LEAST_IMPROVEMENT)
        if not residuals[giver, taker] < improved:
            return
        unit_count = int(moved_units[giver, taker])
        row[givers[giver]] -= unit_count
        row[takers[taker]] += unit_count


def _check_request(
    levels: FloatArray,
    target_means: FloatArray,
    rows: FloatArray,
    epsilon: float,
) -> None:
    """Raises ParameterError unless there is a level for each column, in increasing order, and a
    finite mean for each row; units of both are the same.
    """
    row_count, level_count = rows.shape
    is_finite = np.isfinite(levels).all()
    spacings = np.diff(levels)
    is_increasing = is_finite and (spacings > 0).all()
    if levels.shape != (level_count,) or not is_increasing:
        remedy = f"need {level_count} increasing levels, one per column"
        raise ParameterError("levels", levels.tolist(), remedy)
    are_finite = np.isfinite(target_means).all()
    if target_means.shape != (row_count,) or not are_finite:
        remedy = f"need {row_count} finite means, one per row"
        raise ParameterError("target_means", target_means.tolist(), remedy)
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
    probability_rows = _check_probabilities(probabilities)
    outputs = np.asarray(levels, dtype=np.float64)
    targets = np.zeros(len(probability_rows))
    if target_means is not None:
        targets = np.asarray(target_means, dtype=np.float64)
    _check_request(levels=outputs, target_means=targets, rows=probability_rows, epsilon=epsilon)
    if target_means is None:
        targets = probability_rows @ outputs
    weights = _largest_remainder(probability_rows)
    floors, ceilings = _weight_limits(weights, epsilon)
    for weight_row, target_mean, floor_row, ceiling_row in zip(
        weights, targets, floors, ceilings, strict=True
    ):
        np.clip(weight_row, floor_row, ceiling_row, out=weight_row)
        box = _RowBox(
            low=floor_row,
            high=ceiling_row,
            deviations=outputs - target_mean,
        )
        _fit_sum(weight_row, box)
        _cancel_residual(weight_row, box.within(weight_row, most))
    changes = weights / TOTAL - probability_rows
    largest_change = float(np.abs(changes).max())
    if largest_change > NEAR:
        raise InfeasibleError(
            f"rounding: probabilities would change by {largest_change:.2g} to meet "
            f"epsilon={epsilon!r} and the means aimed at; design rows that meet both, "
            "at epsilon * (1 - MARGIN)"
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
    target_means = None
    if unbiased:
        target_means = knots
    weights = round_rows(
        probabilities,
        levels=levels,
        target_means=target_means,
        epsilon=epsilon,
        most=most,
    )
    mechanism = Mechanism(
        knots=knots,
        levels=np.asarray(levels, dtype=np.float64),
        weights=weights,
        name=name,
    )
    if mechanism.epsilon > epsilon:
        raise InfeasibleError(
            f"rounding: certified epsilon {mechanism.epsilon!r} exceeds epsilon={epsilon!r}"
        )
    return mechanism
