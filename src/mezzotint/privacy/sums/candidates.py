"""Blankets worth scoring, sought by linear programs.

Nothing trusts what is found here: `Blanket.is_valid_for` has the last word.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import combinations_with_replacement
from typing import Any, final

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]

from mezzotint.core.types import TOTAL, FloatArray, IndexArray, IntArray
from mezzotint.privacy.sums.blanket import (
    Blanket,
    additive_blanket,
    as_probabilities,
    common_blanket,
    row_means,
    shape_blanket,
    two_point,
)
from mezzotint.privacy.sums.convolution import variance_of

_MAX_VARIABLES = 12_000
"""Larger programs are not tried: the plain blanket stands then."""

_NEGLIGIBLE_MASS = 1e-6
"""Components with less mass than this are dropped."""

_CUT_LEVELS = 8
"""Tables with at most this many levels have every row cut into pieces."""

_PIECE_REACH = 8
"""How far a piece of a row goes to either side of its mode, and the widest coin beside pieces."""

_PIECE_SUM = 2**16
"""Integers that a piece of a row sums to."""

_FEW_COINS = 4
"""Widths that coins are limited to for crowds in which ladders of many components waste too
much."""

_LIKELY_COINS = 8
"""Widths that keep most variance among all, of which the few are chosen."""

_WIDEST_COIN = 24
"""Widths tried; wider coins carry little mass in any table worth its noise."""


def _constraints(
    count: int,
    size: int,
    shapes: Sequence[IntArray],
) -> tuple[Any, Any]:
    """Sparse matrices over the shifts of all rows, then the masses of the shapes.

    The first says what the shapes use of each level of each row, the second what each row places of
    each shape beyond its mass.
    """
    shape_count = len(shapes)
    shift_counts = _shift_counts(shapes, size)
    shifts_per_row = sum(shift_counts)
    all_shifts = count * shifts_per_row
    variable_count = all_shifts + shape_count
    table_rows = np.arange(count)[:, None]
    # Of one row of the table: which level each shift reaches, from which column, by what weight.
    levels, columns, weights = _convolution_entries(shapes, shift_counts)
    usage_rows = table_rows * size + levels
    usage_columns = table_rows * shifts_per_row + columns
    usage = _sparse(
        np.tile(weights, count),
        rows=usage_rows.ravel(),
        columns=usage_columns.ravel(),
        shape=(count * size, variable_count),
    )
    shape_indices = np.repeat(np.arange(shape_count), shift_counts)
    shift_rows = table_rows * shape_count + shape_indices
    mass_rows = np.arange(count * shape_count)
    mass_columns = all_shifts + mass_rows % shape_count
    shift_columns = np.arange(all_shifts)
    shift_signs = np.ones(all_shifts)
    mass_signs = np.full(mass_rows.size, -1.0)
    placements = _sparse(
        np.append(shift_signs, mass_signs),
        rows=np.append(shift_rows, mass_rows),
        columns=np.append(shift_columns, mass_columns),
        shape=(mass_rows.size, variable_count),
    )
    return usage, placements


def _sparse(
    entries: FloatArray,
    *,
    rows: IndexArray,
    columns: IndexArray,
    shape: tuple[int, int],
) -> Any:
    return scipy.sparse.csr_matrix((entries, (rows, columns)), shape=shape)


def _shift_counts(shapes: Sequence[IntArray], size: int) -> list[int]:
    """In how many places of `size` levels each shape may stand."""
    return [size + 1 - shape.size for shape in shapes]


def _convolution_entries(
    shapes: Sequence[IntArray],
    shift_counts: list[int],
) -> tuple[IntArray, IntArray, FloatArray]:
    """Levels, columns and weights of all shifts of all entries of the shapes."""
    levels: list[IntArray] = []
    columns: list[IntArray] = []
    weights: list[FloatArray] = []
    first = 0
    for shape, shift_count in zip(shapes, shift_counts, strict=True):
        shifts = np.arange(shift_count)
        probabilities = shape / shape.sum()
        for offset in np.flatnonzero(shape).tolist():
            shift_weights = np.full(shift_count, probabilities[offset])
            levels.append(offset + shifts)
            columns.append(first + shifts)
            weights.append(shift_weights)
        first += shift_count
    return np.concatenate(levels), np.concatenate(columns), np.concatenate(weights)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Solution:
    """A solver's answer, in floats.

    Arguments:
        masses, shifts: (L,) of the shapes, and (rows, places) per shape.
    """

    masses: FloatArray
    shifts: list[FloatArray]


def _program(
    rows: FloatArray,
    shapes: Sequence[IntArray],
    value: FloatArray,
) -> _Solution | None:
    """Masses g_l and shifts that maximise sum_l g_l value_l under the blanket's inequality.

    None on failure.
    """
    count, size = rows.shape
    shift_counts = _shift_counts(shapes, size)
    shifts_per_row = sum(shift_counts)
    all_shifts = count * shifts_per_row
    usage, placements = _constraints(count, size, shapes)
    placement_count, _variable_count = placements.shape
    shift_values = np.zeros(all_shifts)
    result = scipy.optimize.linprog(
        np.append(shift_values, -value),
        A_ub=usage,
        b_ub=rows.ravel(),
        A_eq=placements,
        b_eq=np.zeros(placement_count),
        bounds=(0, None),
        method="highs",
    )
    if result.x is None:
        return None
    solution: FloatArray = result.x
    shifts = solution[:all_shifts].reshape(count, shifts_per_row)
    shape_ends = np.cumsum(shift_counts[:-1])
    return _Solution(
        masses=solution[all_shifts:],
        shifts=np.split(shifts, shape_ends, axis=1),
    )


def solve_shapes(
    rows: IntArray,
    shapes: Sequence[IntArray],
    *,
    name: str,
    power: float = 1.0,
    limit: int | None = None,
    solution: _Solution | None = None,
) -> Blanket | None:
    """The blanket of these shapes with the largest sum of masses times variance**power, exact.

    None if there is none.

    Arguments:
        shapes: distinct; integers >= 0, at most span + 1 of them each.
        power: 1 keeps most variance, which is what many clients need; smaller powers keep more mass
            instead, which is what few clients need: it is rare then that nearly all of them drew
            the leftover.
        limit: keep this many components only, those worth most.
        solution: a solver's answer for all of them; None computes it.
    """
    solution = solution or _solved(rows, shapes, power)
    if solution is None:
        return None
    order = _by_worth(shapes, solution, power)[:limit]
    has_mass = solution.masses > _NEGLIGIBLE_MASS
    chosen = [index for index in order if has_mass[index]]
    if not chosen:
        return None
    if len(chosen) < has_mass.sum():
        # The masses of the others go to those that stay.
        kept_shapes = [shapes[index] for index in chosen]
        return solve_shapes(rows, kept_shapes, name=name, power=power)
    chosen.sort()
    chosen_shapes = [shapes[index] for index in chosen]
    chosen_shifts = [solution.shifts[index] for index in chosen]
    return shape_blanket(rows, chosen_shapes, chosen_shifts, name=name)


def _values(shapes: Sequence[IntArray], power: float) -> FloatArray:
    """(L,) variances of the shapes to a power."""
    pmfs = [shape / shape.sum() for shape in shapes]
    variances = np.array([variance_of(pmf) for pmf in pmfs])
    return variances**power


def _by_worth(shapes: Sequence[IntArray], solution: _Solution, power: float) -> list[int]:
    """Indices of the shapes, those worth most first."""
    worths = solution.masses * _values(shapes, power)
    return np.argsort(-worths).tolist()


def _solved(
    rows: IntArray,
    shapes: Sequence[IntArray],
    power: float,
) -> _Solution | None:
    """The largest sum of masses times variance**power, in floats.

    None on failure, and where it would take long.
    """
    count, size = rows.shape
    shifts_per_row = sum(_shift_counts(shapes, size))
    if count * shifts_per_row > _MAX_VARIABLES:
        return None
    values = _values(shapes, power)
    return _program(as_probabilities(rows), shapes, values)


def solve_dyads(rows: IntArray, widths: Sequence[int]) -> Blanket | None:
    """The blanket of fair coins of these widths with the largest sure variance, exact.

    None when there is none.
    """
    name = f"fair coins of width {', '.join(map(str, widths))}"
    coins = [two_point(width) for width in widths]
    return solve_shapes(rows, coins, name=name)


def _row_pieces(rows: IntArray) -> list[IntArray]:
    """Pieces of the rows themselves, around their modes.

    That is what rows that are nearly shifts of each other share. Of a table with many levels only
    the row in the middle is cut up.
    """
    chosen = rows
    if rows.shape[1] > _CUT_LEVELS:
        means = row_means(as_probabilities(rows))
        centre = (means.max() + means.min()) / 2
        distances = np.abs(means - centre)
        middle = int(distances.argmin())
        chosen = rows[middle : middle + 1]
    pieces: dict[bytes, IntArray] = {}
    for row in chosen:
        mode = int(row.argmax())
        for reach in range(1, min(row.size, _PIECE_REACH + 1)):
            first = max(0, mode - reach)
            piece = row[first : mode + reach + 1]
            scale = _PIECE_SUM / piece.sum()
            scaled = np.floor(piece * scale)
            shape = scaled.astype(np.int64)
            shape[shape.argmax()] += _PIECE_SUM - shape.sum()
            if shape.min() > 0:
                pieces[shape.tobytes()] = shape
    return list(pieces.values())


def candidate_blankets(rows: IntArray) -> tuple[Blanket, ...]:
    """Blankets worth scoring: the noise itself where it is additive; else common mass, coins,
    pieces of rows.

    Guarantees: every blanket fits the rows in exact integers. None when rows share nothing, not
        even up to shifts (then no central claim beats the local one).
    """
    return _candidates(rows.shape, np.ascontiguousarray(rows).tobytes())


@lru_cache(maxsize=32)
def _candidates(shape: tuple[int, int], raw: bytes) -> tuple[Blanket, ...]:
    """`candidate_blankets` of rows as bytes, which can be cached; each name once."""
    rows = np.frombuffer(raw, dtype=np.int64).reshape(shape)
    # Nothing beats knowing the noise, unless all rows are the same.
    additive = additive_blanket(rows)
    if additive is not None and additive.is_valid_for(rows):
        return (additive,)
    candidates: list[Blanket] = []
    common = common_blanket(rows)
    if common is not None:
        candidates.append(common)
    candidates += _pieces(rows)
    candidates += _coins(rows)
    by_name: dict[str, Blanket] = {}
    for blanket in candidates:
        if blanket.is_valid_for(rows):
            by_name[blanket.name] = blanket
    return tuple(by_name.values())


def _widths(rows: IntArray, widest: int) -> range:
    """Widths of coins that fit the rows."""
    _row_count, level_count = rows.shape
    return range(1, min(level_count - 1, widest) + 1)


def _coins(rows: IntArray) -> list[Blanket]:
    """Fair coins of all widths, and of a few that together keep much variance.

    Fewer components waste less on ladders.
    """
    coins = [two_point(width) for width in _widths(rows, _WIDEST_COIN)]
    solution = _solved(rows, coins, 1.0)
    if solution is None:
        return []
    few_name = f"fair coins, {_FEW_COINS}"
    blankets = [
        solve_shapes(rows, coins, name="fair coins, all", solution=solution),
        solve_shapes(rows, coins, name=few_name, limit=_FEW_COINS, solution=solution),
    ]
    if len(coins) > _FEW_COINS:
        likely = _by_worth(coins, solution, 1.0)[:_LIKELY_COINS]
        likely_coins = [coins[index] for index in likely]
        chosen = _one_by_one(rows, likely_coins, _FEW_COINS)
        blanket = solve_shapes(rows, chosen, name=f"{few_name} chosen one by one")
        blankets.append(blanket)
    return [blanket for blanket in blankets if blanket is not None]


def _one_by_one(rows: IntArray, shapes: Sequence[IntArray], count: int) -> list[IntArray]:
    """So many of the shapes, each the one that adds most variance to those before it."""
    remaining = list(shapes)
    chosen: list[IntArray] = []
    while remaining and len(chosen) < count:
        variances = [_sure_variance(rows, [*chosen, shape]) for shape in remaining]
        best = int(np.argmax(variances))
        chosen.append(remaining.pop(best))
    return chosen


def _sure_variance(rows: IntArray, shapes: Sequence[IntArray]) -> float:
    """The variance that the best blanket of these shapes keeps, in floats."""
    solution = _solved(rows, shapes, 1.0)
    if solution is None:
        return 0.0
    return float(solution.masses @ _values(shapes, 1.0))


def _piece_shapes(rows: IntArray) -> list[IntArray]:
    """Pieces of rows and narrow coins, each once."""
    coins = [two_point(width) for width in _widths(rows, _PIECE_REACH)]
    shapes: dict[bytes, IntArray] = {}
    for piece in _row_pieces(rows):
        reduced = piece // np.gcd.reduce(piece)
        shapes[reduced.tobytes()] = reduced
    for coin in coins:
        shapes[coin.tobytes()] = coin
    return list(shapes.values())


def _pieces(rows: IntArray) -> list[Blanket]:
    """Pieces of the rows and coins together: much mass in few components.

    That is what small crowds need.
    """
    shapes = _piece_shapes(rows)
    solutions = {power: _solved(rows, shapes, power) for power in (0.25, 0.5)}
    blankets: list[Blanket] = []
    for power, limit in ((0.25, 2), (0.25, 3), (0.5, 3)):
        solution = solutions[power]
        if solution is None:
            continue
        blanket = solve_shapes(
            rows,
            shapes,
            name=f"{limit} pieces of rows, variance to the power {power}",
            power=power,
            limit=limit,
            solution=solution,
        )
        if blanket is not None:
            blankets.append(blanket)
    return blankets


def variance_blanket(rows: IntArray) -> Blanket | None:
    """The blanket of these rows that keeps most variance and leaks no residue.

    None when there is none.
    """
    widths = range(1, rows.shape[1])
    blankets = [
        common_blanket(rows),
        solve_dyads(rows, widths),
        solve_shapes(rows, _piece_shapes(rows), name="pieces of rows", limit=4),
    ]
    sound = [blanket for blanket in blankets if blanket is not None and not blanket.leaks]
    return max(sound, key=lambda blanket: blanket.variance, default=None)


def summed_rows(rows: IntArray, clients: int) -> IntArray:
    """(combinations, clients * span + 1) distributions of the sum of some clients' reports.

    One for every combination of their rows, in the kernel's order, in units of 2**-32, rounded
    down: what fits under them fits under the exact ones.
    """
    exact_rows = list(rows.astype(object))
    sums: list[IntArray] = []
    for chosen in combinations_with_replacement(exact_rows, clients):
        product = reduce(np.convolve, chosen)
        sums.append(product // TOTAL ** (clients - 1))
    return np.array(sums, dtype=np.int64)


def block_blanket(rows: IntArray, clients: int) -> Blanket | None:
    """The blanket of fair coins that so many clients are sure to add together.

    None when there is none. Its components have a row of shifts for every combination of rows.
    """
    sums = summed_rows(rows, clients)
    return solve_dyads(sums, _widths(sums, _WIDEST_COIN))
