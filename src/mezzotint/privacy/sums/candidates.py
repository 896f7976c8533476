"""Looking for good blankets by linear programs. Nothing here is trusted: `Blanket.is_valid_for` has the last word."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import Any, final

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]

from mezzotint.core.mechanism import TOTAL, FloatArray, IntArray
from mezzotint.privacy.sums.blanket import (
    Blanket,
    additive_blanket,
    as_probabilities,
    block_rows,
    common_blanket,
    row_means,
    shape_blanket,
    two_point,
)
from mezzotint.privacy.sums.convolution import variance_of

_MAX_VARIABLES = 12_000
"""Larger programs are not tried: the plain blanket stands then."""

_LIGHT = 1e-6
"""Components with less mass than this are dropped."""

_FEW_LEVELS = 8
"""Tables with at most this many levels have every row cut into pieces."""

_REACH = 8
"""How far a piece of a row goes to either side of its mode, and the widest coin beside pieces."""

_GRAIN = 2**16
"""Integers that a piece of a row sums to."""

_GREEDY = 5
"""Largest number of coins that are chosen one by one; the next step up is to use all widths."""

_GAIN = 1e-3
"""Least share of its variance that a further coin must add to a chain."""

_WIDEST = 24
"""Widths tried; wider coins carry little mass in any table worth its noise."""


def _constraints(count: int, size: int, shapes: Sequence[IntArray]) -> tuple[Any, Any]:
    """Matrices over the shifts of all rows, then the masses: what the shapes use of each level, and place in all."""
    room = [size + 1 - shape.size for shape in shapes]
    total = sum(room)
    places = np.concatenate([np.arange(number) for number in room])
    kinds = np.repeat(np.arange(len(shapes)), room)
    # Entry by entry of each shape: the column it belongs to (in one row of the table), its place and its weight.
    reach = [np.flatnonzero(shape) for shape in shapes]
    owner = np.concatenate([np.full(reach[kind].size, column) for column, kind in enumerate(kinds.tolist())])
    cells = np.concatenate([place + reach[kind] for place, kind in zip(places.tolist(), kinds.tolist(), strict=True)])
    weight = np.concatenate([shapes[kind][reach[kind]] / shapes[kind].sum() for kind in kinds.tolist()])
    row = np.repeat(np.arange(count), owner.size)
    shape = (count * size, count * total + len(shapes))
    use = scipy.sparse.csr_matrix(
        (np.tile(weight, count), (row * size + np.tile(cells, count), row * total + np.tile(owner, count))), shape=shape
    )
    placed = np.repeat(np.arange(count), total) * len(shapes) + np.tile(kinds, count)
    masses = np.tile(np.arange(len(shapes)), count)
    place = scipy.sparse.csr_matrix(
        (
            np.concatenate([np.ones(placed.size), -np.ones(masses.size)]),
            (
                np.concatenate([placed, np.arange(masses.size)]),
                np.concatenate([np.arange(count * total), count * total + masses]),
            ),
        ),
        shape=(masses.size, count * total + len(shapes)),
    )
    return use, place


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Solution:
    """A solver's answer, in floats.

    Arguments:
        masses: (L,) of the shapes.
        shifts: per shape (rows, places).
        worth: sum of masses times values.
        prices: (rows, size) what one more unit of each entry of the table would be worth: the dual solution; None
            where no program was solved.
    """

    masses: FloatArray
    shifts: list[FloatArray]
    worth: float
    prices: FloatArray | None = None


def _program(rows: FloatArray, shapes: Sequence[IntArray], value: FloatArray) -> _Solution | None:
    """Masses g_l and shifts that maximise sum_l g_l value_l under the blanket's inequality; None on failure."""
    count, size = rows.shape
    offsets = np.concatenate([[0], np.cumsum([size + 1 - shape.size for shape in shapes])])
    per_row = int(offsets[-1])
    use, place = _constraints(count, size, shapes)
    result = scipy.optimize.linprog(
        np.concatenate([np.zeros(count * per_row), -value]),
        A_ub=use, b_ub=rows.ravel(), A_eq=place, b_eq=np.zeros(place.shape[0]), bounds=(0, None), method="highs",
    )  # fmt: skip
    if result.x is None:
        return None
    solution = np.asarray(result.x, dtype=np.float64)
    shifts = solution[: count * per_row].reshape(count, per_row)
    return _Solution(
        masses=solution[count * per_row :],
        shifts=[shifts[:, a:b] for a, b in pairwise(offsets.tolist())],
        worth=-float(result.fun),
        prices=-np.asarray(result.ineqlin.marginals, dtype=np.float64).reshape(count, size),
    )


def solve_shapes(
    rows: IntArray,
    shapes: Sequence[IntArray],
    *,
    name: str,
    power: float = 1.0,
    block: int = 1,
    most: int | None = None,
    solved: _Solution | None = None,
) -> Blanket | None:
    """The blanket of these shapes with the largest sum of masses times variance**power, exact; None if there is none.

    Arguments:
        rows: (rows, span + 1) integers that sum to 2**32.
        shapes: distinct; integers >= 0, at most block * span + 1 of them each.
        name: for people.
        power: 1 keeps most variance, which is what many clients need; smaller powers keep more mass instead, which is
            what few clients need: it is rare then that nearly all of them drew the leftover.
        block: clients per draw.
        most: keep this many components only, those worth most.
        solved: what a solver found for all of them; None asks one.
    """
    solved = solved or _solved(rows, shapes, power, block)
    if solved is None:
        return None
    value = np.array([variance_of(shape / shape.sum()) for shape in shapes]) ** power
    masses = solved.masses
    order: list[int] = np.argsort(-masses * value)[:most].tolist()
    kept = [i for i in order if masses[i] > _LIGHT]
    if not kept:
        return None
    if len(kept) < int((masses > _LIGHT).sum()):
        return solve_shapes(rows, [shapes[i] for i in kept], name=name, power=power, block=block)
    kept.sort()
    return _made_exact(rows, shapes, solved, kept, name=name, block=block)


def _made_exact(
    rows: IntArray, shapes: Sequence[IntArray], solved: _Solution, kept: Sequence[int], *, name: str, block: int = 1
) -> Blanket | None:
    chosen, shifts = [shapes[i] for i in kept], [solved.shifts[i] for i in kept]
    return shape_blanket(rows, chosen, shifts, name=name, block=block)


def _solved(rows: IntArray, shapes: Sequence[IntArray], power: float, block: int = 1) -> _Solution | None:
    """The largest sum of masses times variance**power, in floats; None on failure, and where it would take long."""
    count = math.comb(rows.shape[0] + block - 1, block)
    size = block * (rows.shape[1] - 1) + 1
    if count * sum(size + 1 - shape.size for shape in shapes) > _MAX_VARIABLES:
        return None
    value = np.array([variance_of(shape / shape.sum()) for shape in shapes]) ** power
    return _program(block_rows(rows, block) / float(TOTAL), shapes, value)


def solve_dyads(rows: IntArray, widths: Sequence[int], *, block: int = 1) -> Blanket | None:
    """The blanket of fair coins of these widths with the largest sure variance, exact; None when there is none.

    Arguments:
        rows: (rows, span + 1) integers that sum to 2**32.
        widths: distinct, 1..block * span.
        block: clients per draw.
    """
    return solve_shapes(rows, [two_point(width) for width in widths], name=_coin_name(widths, block), block=block)


def _coin_name(widths: Sequence[int], block: int = 1) -> str:
    return f"fair coins of width {', '.join(map(str, widths))}" + (f", {block} clients each" if block > 1 else "")


def _own_shapes(rows: IntArray) -> list[IntArray]:
    """Pieces of the rows themselves, around their modes: what rows that are nearly shifts of each other share.

    Of a table with many levels only the row in the middle is cut up.
    """
    means = row_means(as_probabilities(rows))
    middle = int(np.abs(means - (float(means.max()) + float(means.min())) / 2).argmin())
    chosen = rows if rows.shape[1] <= _FEW_LEVELS else rows[middle : middle + 1]
    found: dict[bytes, IntArray] = {}
    for row in chosen:
        mode = int(row.argmax())
        for reach in range(1, min(row.size, _REACH + 1)):
            piece = row[max(0, mode - reach) : mode + reach + 1]
            shape = np.floor(piece * (_GRAIN / piece.sum())).astype(np.int64)
            shape[shape.argmax()] += _GRAIN - shape.sum()
            if shape.min() > 0:
                found[shape.tobytes()] = shape
    return list(found.values())


def candidate_blankets(rows: IntArray) -> tuple[Blanket, ...]:
    """Blankets worth scoring: the noise itself where it is additive; else common mass, coins, blocks of clients.

    Arguments:
        rows: (rows, span + 1) integers that sum to 2**32.

    Guarantees: every blanket fits the rows in exact integers.
    Edge cases: empty when rows share nothing, not even up to shifts (then no central claim beats the local one).
    """
    return _candidates(rows.shape, np.ascontiguousarray(rows).tobytes())


@lru_cache(maxsize=32)
def _candidates(shape: tuple[int, int], raw: bytes) -> tuple[Blanket, ...]:
    rows = np.frombuffer(raw, dtype=np.int64).reshape(shape)
    # Nothing beats knowing the noise, unless all rows are the same.
    whole = additive_blanket(rows)
    if whole is not None and whole.is_valid_for(rows):
        return (whole,)
    plain = common_blanket(rows)
    found = [] if plain is None else [plain]
    found += _greedy(rows)
    found += _pieces(rows)
    for block in (1, 2, 4, 8, 16):
        widths = list(range(1, min(block * (rows.shape[1] - 1), _WIDEST) + 1))
        if full := solve_dyads(rows, widths, block=block):
            found.append(full)
    return tuple({blanket.name: blanket for blanket in found if blanket.is_valid_for(rows)}.values())


def _piece_shapes(rows: IntArray) -> list[IntArray]:
    """Pieces of rows and narrow coins, each once."""
    coins = [two_point(width) for width in range(1, min(rows.shape[1] - 1, _REACH) + 1)]
    shapes = [*(shape // math.gcd(*shape.tolist()) for shape in _own_shapes(rows)), *coins]
    return list({shape.tobytes(): shape for shape in shapes}.values())


def _pieces(rows: IntArray) -> list[Blanket]:
    """Pieces of the rows and coins together: much mass in few components, which is what small crowds need."""
    shapes = _piece_shapes(rows)
    found: list[Blanket] = []
    for power, mosts in ((0.25, (2, 3)), (0.5, (3,))):
        solved = _solved(rows, shapes, power)
        for most in mosts:
            name = f"{most} pieces of rows, variance to the power {power}"
            if blanket := solve_shapes(rows, shapes, name=name, power=power, most=most, solved=solved):
                found.append(blanket)
    return found


def variance_blanket(rows: IntArray) -> Blanket | None:
    """The blanket of these rows that keeps most variance and leaks no residue; None when there is none.

    Arguments:
        rows: (rows, span + 1) integers that sum to 2**32.
    """
    widths = range(1, rows.shape[1])
    tried = [
        common_blanket(rows),
        solve_dyads(rows, widths),
        solve_shapes(rows, _piece_shapes(rows), name="pieces of rows", most=4),
    ]
    sound = [blanket for blanket in tried if blanket is not None and not blanket.leaks]
    return max(sound, key=lambda blanket: blanket.variance, default=None)


def _greedy(rows: IntArray) -> list[Blanket]:
    """Every coin alone, and two chains of coins that each add the most variance.

    Widths with a common divisor leak a residue: the second chain starts with an odd one.
    """
    table = as_probabilities(rows)

    @cache
    def program(widths: tuple[int, ...]) -> _Solution | None:
        # A fair coin's variance is a quarter of its width squared.
        return _program(table, [two_point(width) for width in widths], np.square(np.array(widths)) / 4)

    found: dict[tuple[int, ...], _Solution] = {}
    for width in range(1, min(rows.shape[1] - 1, _WIDEST) + 1):
        shifts = _coin_alone(table, width)
        mass = float(shifts.sum(axis=1).min())
        if mass > _LIGHT:
            found[width,] = _Solution(masses=np.array([mass]), shifts=[shifts], worth=mass * width**2 / 4)
    most = {widths[0]: float(solved.masses[0]) for widths, solved in found.items()}
    for odd_first in (False, True):
        starts = [(width,) for width in most if width % 2 == 1 or not odd_first]
        chosen = max(starts, key=lambda start: found[start].worth, default=None)
        while chosen and len(chosen) < _GREEDY and (grown := _grown(program, chosen, most)):
            chosen, solved = grown
            found[chosen] = solved
    made = [
        _made_exact(rows, [two_point(width) for width in widths], solved, range(len(widths)), name=_coin_name(widths))
        for widths, solved in found.items()
    ]
    return [blanket for blanket in made if blanket is not None]


def _coin_alone(rows: FloatArray, width: int) -> FloatArray:
    """(rows, size - width) the most mass that coins of one width have in each row, by the places they start at.

    Places a width apart form chains, and a coin takes from two neighbours: what the first place of a chain has goes to
    the only coin that can use it, as far as the second allows, and so on along the chain.
    """
    left = 2 * rows
    shifts = np.zeros((rows.shape[0], rows.shape[1] - width))
    for place in range(shifts.shape[1]):
        shifts[:, place] = np.minimum(left[:, place], left[:, place + width])
        left[:, place + width] -= shifts[:, place]
    return shifts


def _grown(
    program: Callable[[tuple[int, ...]], _Solution | None], chosen: tuple[int, ...], most: Mapping[int, float]
) -> tuple[tuple[int, ...], _Solution] | None:
    """The coins chosen and the one more that adds the most variance; None when none adds any.

    Arguments:
        program: increasing widths to what a solver finds for them.
        most: mass of every coin that has any, when it is alone.
    """
    best = program(chosen)
    if best is None or best.prices is None:
        return None
    gains: dict[int, float] = {}
    for width in most.keys() - set(chosen):
        # At the prices of `best` a unit of the coin costs, in every row, the cheapest two places so far apart. Weak
        # duality: the coin adds at most what it is worth above that, times the most mass that it can have.
        cost = float((best.prices[:, width:] + best.prices[:, :-width]).min(axis=1).sum()) / 2
        gains[width] = most[width] * (width**2 / 4 - cost)
    found: tuple[tuple[int, ...], _Solution] | None = None
    worth = best.worth * (1 + _GAIN)
    for width in sorted(gains, key=lambda width: (-gains[width], width)):
        if best.worth + gains[width] <= worth:
            break
        widths = tuple(sorted((*chosen, width)))
        solved = program(widths)
        if solved is not None and solved.worth > worth and (solved.masses > _LIGHT).all():
            found, worth = (widths, solved), solved.worth
    return found
