"""Lower bounds that no unbiased epsilon-DP mechanism with so many levels can beat.

Statement: "Any m levels" (docs/proofs/design.md). A cut is a set of multipliers; a mechanism below
the bound has a level in the region of every cut. The bound holds when no cells of an axis, one per
level, meet the regions of all cuts.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import compress, pairwise
from typing import final

from mezzotint.kernel.claim import ExactClaim
from mezzotint.kernel.real import (
    Rational,
    exp_ceil,
    rational,
    rational_polynomial,
)
from mezzotint.kernel.table import Tables
from mezzotint.kernel.units import Fields, increases, require, tick

_BITS = 64
_LEAST = -(2**200)
"""Coordinates of cuts and axes, in units of the proof's scale, are at least this."""

MAX_AXIS = 2000
MAX_CUTS = 5000


@final
@dataclass(frozen=True)
class _Turn:
    """A point from which on `factor` times a quadratic is added."""

    point: Rational
    quadratic: rational_polynomial
    factor: Rational


@final
@dataclass(frozen=True)
class _Cut:
    """The constant q, and the function g: a quadratic left of all turns, then one more at each."""

    q: Rational
    g: rational_polynomial
    turns: list[_Turn]


def _scaled(rows: list[list[int]], unit: Rational) -> list[list[Rational]]:
    """Pairs of coordinates."""
    require(
        all(len(pair) == 2 for pair in rows),
        "cut",
        "roots or ends are not pairs",
    )
    return [[entry * unit for entry in pair] for pair in rows]


def _read_cut(fields: Fields, unit: Rational, extra: Rational) -> _Cut:
    """The cut with these edges of cells, roots of their quadratics, and lines at both ends."""
    edges = [entry * unit for entry in fields.integers("edges", _LEAST)]
    roots = _scaled(fields.lists("roots", _LEAST), unit)
    ends = _scaled(fields.lists("ends", _LEAST), unit)
    fields.done()
    require(edges[:1] == [-1] and edges[-1:] == [1], "cut", "the edges do not run from -1 to 1")
    require(increases(edges), "cut", "the edges do not increase")
    require(
        len(roots) == len(edges) - 1 and len(ends) == 2,
        "cut",
        "not one pair of roots per cell, and two ends",
    )
    q = rational(Fraction(-1, 3))
    g = rational_polynomial([])
    turns: list[_Turn] = []
    for (a, b), pair in zip(pairwise(edges), roots, strict=True):
        tick()
        low, high = sorted(pair)
        cell = (b - a) / 2 * rational_polynomial([low * high, -low - high, 1])
        q -= cell[0] + (a + b) / 2 * cell[1]
        g = g + cell
        turns.append(_Turn(low, cell, extra))
        turns.append(_Turn(high, cell, -extra))
    for side, (base, slope) in zip((-1, 1), ends, strict=True):
        line = rational_polynomial([base, slope])
        q -= base + side * slope
        # Left of its zero a rising line is negative, and counts 1 + extra times.
        negative = slope > 0 or (slope == 0 and base < 0)
        g = g + line
        if negative:
            g = g + extra * line
        if slope > 0:
            turns.append(_Turn(-base / slope, line, -extra))
        if slope < 0:
            turns.append(_Turn(-base / slope, line, extra))
    return _Cut(q, g, turns)


def _least(cut: _Cut, axis: list[Rational]) -> list[Rational]:
    """The minimum of g in each cell of the axis, of which the first and last are unbounded."""
    g = cut.g
    left = None
    minima: list[Rational] = []
    values: list[Rational] = []
    stops: list[tuple[Rational, _Turn | None]] = [(point, None) for point in axis]
    stops += [(turn.point, turn) for turn in cut.turns]
    stops.sort(key=lambda stop: stop[0])
    for right, turn in [*stops, (None, None)]:
        tick()
        require(g[2] > 0, "cut", "a quadratic is not convex")
        lowest = -g[1] / (2 * g[2])
        if left is not None:
            lowest = max(lowest, left)
        if right is not None:
            lowest = min(lowest, right)
        values.append(g(lowest))
        left = right
        if turn is None:
            minima.append(min(values))
            values = []
        else:
            g = g + turn.factor * turn.quadratic
    return minima


def _require_unmet(cells: list[int], every: int, count: int) -> None:
    """Check that no `count` cells meet every cut; a cell is the set of cuts it meets, as bits."""
    by_size = sorted(set(cells), key=int.bit_count, reverse=True)
    # A cell is not needed if another one meets all the cuts that it meets.
    needed: set[int] = set()
    for index, cell in enumerate(by_size):
        tick()
        if not any(cell | larger == larger for larger in by_size[:index]):
            needed.add(cell)
    cells = list(dict.fromkeys(cell for cell in cells if cell in needed))
    boxes = [[list(range(len(cells)))] * count]
    while boxes:
        box = _shrunk(boxes.pop(), cells, every)
        if not all(box):
            continue
        widest = max(range(count), key=lambda level: len(box[level]))
        half = len(box[widest]) // 2
        require(half > 0, "levels", "a choice of cells meets every cut")
        halves = box[widest][:half], box[widest][half:]
        boxes += [[*box[:widest], choice, *box[widest + 1 :]] for choice in halves]


def _in_order(box: list[list[int]], count: int) -> list[list[int]]:
    """The cells of each level that belong to a choice of cells in increasing order."""
    ordered = list(box)
    highest = count
    for k in range(len(box) - 1, -1, -1):
        if not box[k]:
            return [[] for _ in box]
        highest = min(highest, box[k][-1])
        lowest = max(level[0] for level in box[: k + 1] if level)
        ordered[k] = [cell for cell in box[k] if lowest <= cell <= highest]
    return ordered


def _shrunk(box: list[list[int]], cells: list[int], every: int) -> list[list[int]]:
    """The cells of each level that belong to some increasing choice that meets all cuts."""
    while all(box):
        tick()
        ordered = _in_order(box, len(cells))
        unions = [reduce(int.__or__, (cells[cell] for cell in level), 0) for level in ordered]
        once = twice = 0
        for union in unions:
            once, twice = once | union, twice | (once & union)
        # A cut that only one level can meet must be met by that level; a cut that none can meet
        # empties the box.
        smaller: list[list[int]] = []
        for level, union in zip(ordered, unions, strict=True):
            need = (union & ~twice) | (every & ~once)
            smaller.append([cell for cell in level if cells[cell] & need == need])
        if smaller == box:
            break
        box = smaller
    return box


def check_dual(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check a lower bound on the mean squared error, for inputs uniform on [-1, 1]."""
    require(claim.release is None, "claim", "a lower bound is about no release")
    stated = Fields(claim.statement, "statement")
    for key, only in (
        ("kind", "lower_bound"),
        ("loss", "mse"),
        ("prior", "uniform"),
    ):
        require(
            stated.text(key) == only,
            "claim",
            f"this proof is about {key} {only}",
        )
    count = stated.integer("levels", 2, 64)
    epsilon = stated.number("epsilon")
    tau = rational(stated.number("value"))
    stated.done()
    require(0 < epsilon <= 100, "claim", "epsilon is outside (0, 100]", epsilon)
    extra = rational(Fraction(exp_ceil(epsilon, _BITS), 1 << _BITS) - 1)
    unit = rational(Fraction(1, 1 << proof.integer("scale", 0, 128)))
    axis = [entry * unit for entry in proof.integers("axis", _LEAST)]
    require(
        len(axis) <= MAX_AXIS,
        "size",
        "the axis has too many points",
        len(axis),
        MAX_AXIS,
    )
    require(increases(axis), "axis", "the points do not increase")
    require(axis == [-end for end in reversed(axis)], "axis", "it is not its own mirror image")
    # "Reach" (docs/proofs/design.md): one level lies at or beyond this point, and one at or beyond
    # its mirror image.
    reach = 1 + 2 / extra
    share = tau / (tau + rational(Fraction(1, 3)))  # "Rare floors"
    columns = [[not end < reach for end in axis] + [True]]
    for entry in proof.items("cuts", MAX_CUTS):
        tick()
        cut = _read_cut(Fields(entry, "cut"), unit, extra)
        minima = _least(cut, axis)
        columns.append([not cut.q + share * min(0, least) >= tau for least in minima])
    columns += [column[::-1] for column in columns]  # the mirror image of a cut is a cut
    every = [1 << index for index in range(len(columns))]
    cells = [sum(compress(every, cell)) for cell in zip(*columns, strict=True)]
    _require_unmet(cells, sum(every), count)
