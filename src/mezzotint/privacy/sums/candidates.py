"""Blankets worth scoring, sought by linear programs.

Nothing trusts what is found here: `Blanket.is_valid_for` has the last word.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import combinations_with_replacement, pairwise
from typing import Any, final

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]

from mezzotint.core.types import TOTAL, FloatArray, IntArray
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
    shift_counts = [size + 1 - shape.size for shape in shapes]
    shifts_per_row = sum(shift_counts)
    all_shifts = count * shifts_per_row
    variable_count = all_shifts + len(shapes)
    table_rows = np.arange(count)[:, None]
    # Of one row of the table: which level each shift reaches, from which column, by what weight.
    levels, columns, weights = _convolution_entries(shapes, shift_counts)
    usage_rows = (table_rows * size + levels).ravel()
    usage_columns = (table_rows * shifts_per_row + columns).ravel()
    usage = scipy.sparse.csr_matrix(
        (np.tile(weights, count), (usage_rows, usage_columns)),
        shape=(count * size, variable_count),
    )
    shape_indices = np.repeat(np.arange(len(shapes)), shift_counts)
    shift_rows = (table_rows * len(shapes) + shape_indices).ravel()
    mass_rows = np.arange(count * len(shapes))
    mass_columns = all_shifts + mass_rows % len(shapes)
    entries = np.append(np.ones(all_shifts), -np.ones(mass_rows.size))
    placement_rows = np.append(shift_rows, mass_rows)
    placement_columns = np.append(np.arange(all_shifts), mass_columns)
    placements = scipy.sparse.csr_matrix(
        (entries, (placement_rows, placement_columns)),
        shape=(mass_rows.size, variable_count),
    )
    return usage, placements


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
            levels.append(offset + shifts)
            columns.append(first + shifts)
            weights.append(np.full(shift_count, probabilities[offset]))
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
    shift_counts = [size + 1 - shape.size for shape in shapes]
    offsets = np.concatenate([[0], np.cumsum(shift_counts)])
    shifts_per_row = int(offsets[-1])
    all_shifts = count * shifts_per_row
    usage, placements = _constraints(count, size, shapes)
    result = scipy.optimize.linprog(
        np.concatenate([np.zeros(all_shifts), -value]),
        A_ub=usage,
        b_ub=rows.ravel(),
        A_eq=placements,
        b_eq=np.zeros(placements.shape[0]),
        bounds=(0, None),
        method="highs",
    )
    if result.x is None:
        return None
    solution = np.asarray(result.x, dtype=np.float64)
    shifts = solution[:all_shifts].reshape(count, shifts_per_row)
    return _Solution(
        masses=solution[all_shifts:],
        shifts=[shifts[:, first:last] for first, last in pairwise(offsets.tolist())],
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
    worths = solution.masses * _values(shapes, power)
    order: list[int] = np.argsort(-worths)[:limit].tolist()
    has_mass = solution.masses > _NEGLIGIBLE_MASS
    chosen = [index for index in order if has_mass[index]]
    if not chosen:
        return None
    if len(chosen) < int(has_mass.sum()):
        # The masses of the others go to those that stay.
        return solve_shapes(rows, [shapes[index] for index in chosen], name=name, power=power)
    chosen.sort()
    chosen_shapes = [shapes[index] for index in chosen]
    chosen_shifts = [solution.shifts[index] for index in chosen]
    return shape_blanket(rows, chosen_shapes, chosen_shifts, name=name)


def _values(shapes: Sequence[IntArray], power: float) -> FloatArray:
    """(L,) variances of the shapes to a power."""
    variances = np.array([variance_of(shape / shape.sum()) for shape in shapes])
    return variances**power


def _solved(
    rows: IntArray,
    shapes: Sequence[IntArray],
    power: float,
) -> _Solution | None:
    """The largest sum of masses times variance**power, in floats.

    None on failure, and where it would take long.
    """
    count, size = rows.shape
    if count * sum(size + 1 - shape.size for shape in shapes) > _MAX_VARIABLES:
        return None
    return _program(as_probabilities(rows), shapes, _values(shapes, power))


def solve_dyads(rows: IntArray, widths: Sequence[int]) -> Blanket | None:
    """The blanket of fair coins of these widths with the largest sure variance, exact.

    None when there is none.
    """
    name = f"fair coins of width {', '.join(map(str, widths))}"
    return solve_shapes(rows, [two_point(width) for width in widths], name=name)


def _row_pieces(rows: IntArray) -> list[IntArray]:
    """Pieces of the rows themselves, around their modes.

    That is what rows that are nearly shifts of each other share. Of a table with many levels only
    the row in the middle is cut up.
    """
    chosen = rows
    if rows.shape[1] > _CUT_LEVELS:
        means = row_means(as_probabilities(rows))
        centre = (float(means.max()) + float(means.min())) / 2
        middle = int(np.abs(means - centre).argmin())
        chosen = rows[middle : middle + 1]
    pieces: dict[bytes, IntArray] = {}
    for row in chosen:
        mode = int(row.argmax())
        for reach in range(1, min(row.size, _PIECE_REACH + 1)):
            first = max(0, mode - reach)
            piece = row[first : mode + reach + 1]
            scale = _PIECE_SUM / piece.sum()
            shape = np.floor(piece * scale).astype(np.int64)
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
    """`candidates` of rows as bytes, which can be cached; each name once."""
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
    by_name = {blanket.name: blanket for blanket in candidates if blanket.is_valid_for(rows)}
    return tuple(by_name.values())


def _coins(rows: IntArray) -> list[Blanket]:
    """Fair coins of all widths, and of a few that together keep much variance.

    Fewer components waste less on ladders.
    """
    widths = range(1, min(rows.shape[1] - 1, _WIDEST_COIN) + 1)
    coins = [two_point(width) for width in widths]
    solution = _solved(rows, coins, 1.0)
    if solution is None:
        return []
    few_name = f"fair coins, {_FEW_COINS}"
    blankets = [
        solve_shapes(rows, coins, name="fair coins, all", solution=solution),
        solve_shapes(rows, coins, name=few_name, limit=_FEW_COINS, solution=solution),
    ]
    if len(coins) > _FEW_COINS:
        worths = solution.masses * _values(coins, 1.0)
        likely: list[int] = np.argsort(-worths)[:_LIKELY_COINS].tolist()
        chosen = _one_by_one(rows, [coins[index] for index in likely], _FEW_COINS)
        blankets.append(solve_shapes(rows, chosen, name=f"{few_name} chosen one by one"))
    return [blanket for blanket in blankets if blanket is not None]


def _one_by_one(rows: IntArray, shapes: Sequence[IntArray], count: int) -> list[IntArray]:
    """So many of the shapes, each the one that adds most variance to those before it."""
    remaining = list(shapes)
    chosen: list[IntArray] = []
    while remaining and len(chosen) < count:
        variances = [_sure_variance(rows, [*chosen, shape]) for shape in remaining]
        chosen.append(remaining.pop(int(np.argmax(variances))))
    return chosen


def _sure_variance(rows: IntArray, shapes: Sequence[IntArray]) -> float:
    """The variance that the best blanket of these shapes keeps, in floats."""
    solution = _solved(rows, shapes, 1.0)
    if solution is None:
        return 0.0
    return float(solution.masses @ _values(shapes, 1.0))


def _piece_shapes(rows: IntArray) -> list[IntArray]:
    """Pieces of rows and narrow coins, each once."""
    widths = range(1, min(rows.shape[1] - 1, _PIECE_REACH) + 1)
    shapes: dict[bytes, IntArray] = {}
    for piece in _row_pieces(rows):
        reduced = piece // math.gcd(*piece.tolist())
        shapes[reduced.tobytes()] = reduced
    for coin in map(two_point, widths):
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
    widths = range(1, min(sums.shape[1] - 1, _WIDEST_COIN) + 1)
    return solve_dyads(sums, widths)
