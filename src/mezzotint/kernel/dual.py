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
from typing import TypeAlias, final

from mezzotint.kernel.claim import LOWER_BOUND, ExactClaim
from mezzotint.kernel.real import Rational, exp_ceil, rational, rational_polynomial
from mezzotint.kernel.table import Tables
from mezzotint.kernel.units import Fields, increases, require, tick

_BITS = 64
"""Of the fraction that stands for e**epsilon."""

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

    constant: Rational
    leftmost: rational_polynomial
    turns: list[_Turn]


def _scaled(rows: list[list[int]], unit: Rational) -> list[list[Rational]]:
    """Pairs of coordinates."""
    lengths = {len(pair) for pair in rows}
    require(lengths <= {2}, "cut", "roots or ends are not pairs")
    return [[coordinate * unit for coordinate in pair] for pair in rows]


def _read_cut(fields: Fields, unit: Rational, extra: Rational) -> _Cut:
    """The cut with these edges of cells, roots of their quadratics, and lines at both ends."""
    edges = [coordinate * unit for coordinate in fields.integers("edges", _LEAST)]
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
    constant = rational(Fraction(-1, 3))
    leftmost = rational_polynomial([])
    turns: list[_Turn] = []
    for (cell_start, cell_end), pair in zip(pairwise(edges), roots, strict=True):
        tick()
        first_root, second_root = sorted(pair)
        half_width = (cell_end - cell_start) / 2
        middle = (cell_start + cell_end) / 2
        linear = -first_root - second_root
        quadratic = half_width * rational_polynomial([first_root * second_root, linear, 1])
        constant -= quadratic[0] + middle * quadratic[1]
        leftmost = leftmost + quadratic
        # Between its roots it is negative, and counts 1 + extra times.
        turns.append(_Turn(first_root, quadratic, extra))
        turns.append(_Turn(second_root, quadratic, -extra))
    for position, (intercept, slope) in zip((-1, 1), ends, strict=True):
        line = rational_polynomial([intercept, slope])
        constant -= intercept + position * slope
        leftmost = leftmost + line
        # Left of its zero a rising line is negative, and counts 1 + extra times.
        negative = slope > 0 or (slope == 0 and intercept < 0)
        if negative:
            leftmost = leftmost + extra * line
        if slope != 0:
            factor = -extra if negative else extra
            turns.append(_Turn(-intercept / slope, line, factor))
    return _Cut(constant, leftmost, turns)


def _least(cut: _Cut, axis: list[Rational]) -> list[Rational]:
    """The minimum of g in each cell of the axis, of which the first and last are unbounded."""
    quadratic = cut.leftmost
    start = None
    cell_minima: list[Rational] = []
    piece_minima: list[Rational] = []
    boundaries: list[tuple[Rational, _Turn | None]] = [(point, None) for point in axis]
    boundaries += [(turn.point, turn) for turn in cut.turns]
    boundaries.sort(key=lambda boundary: boundary[0])
    # Between two boundaries g is one quadratic; at the end of the axis the last cell ends.
    for boundary, turn in [*boundaries, (None, None)]:
        tick()
        curvature = quadratic[2]
        require(curvature > 0, "cut", "a quadratic is not convex")
        minimizer = -quadratic[1] / (2 * curvature)
        if start is not None:
            minimizer = max(minimizer, start)
        if boundary is not None:
            minimizer = min(minimizer, boundary)
        piece_minima.append(quadratic(minimizer))
        start = boundary
        if turn is None:
            cell_minima.append(min(piece_minima))
            piece_minima = []
        else:
            quadratic = quadratic + turn.factor * turn.quadratic
    return cell_minima


_Box: TypeAlias = list[list[int]]
"""For each level, the positions of the cells that it may lie in, increasing."""


def _require_unmet(cells: list[int], every: int, count: int) -> None:
    """Check that no `count` cells meet every cut; a cell is the set of cuts it meets, as bits."""
    descending = sorted(set(cells), key=int.bit_count, reverse=True)
    # A cell is not needed if another one meets all the cuts that it meets.
    maximal: set[int] = set()
    for position, met_cuts in enumerate(descending):
        tick()
        larger_cells = descending[:position]
        dominated = any(met_cuts | larger == larger for larger in larger_cells)
        if not dominated:
            maximal.add(met_cuts)
    cells = list(dict.fromkeys(met_cuts for met_cuts in cells if met_cuts in maximal))
    boxes: list[_Box] = [[list(range(len(cells)))] * count]
    while boxes:
        smaller = _shrunk(boxes.pop(), cells, every)
        if not all(smaller):
            continue
        sizes = [len(choices) for choices in smaller]
        widest = sizes.index(max(sizes))
        middle = sizes[widest] // 2
        require(middle > 0, "levels", "a choice of cells meets every cut")
        for choices in (smaller[widest][:middle], smaller[widest][middle:]):
            boxes.append([*smaller[:widest], choices, *smaller[widest + 1 :]])


def _in_order(box: _Box, count: int) -> _Box:
    """The cells of each level that belong to a choice of cells in increasing order."""
    ordered = list(box)
    highest = count
    for level in reversed(range(len(box))):
        choices = box[level]
        if not choices:
            return [[]] * len(box)
        highest = min(highest, choices[-1])
        lowest = max(lower[0] for lower in box[: level + 1] if lower)
        ordered[level] = [position for position in choices if lowest <= position <= highest]
    return ordered


def _shrunk(box: _Box, cells: list[int], every: int) -> _Box:
    """The cells of each level that belong to some increasing choice that meets all cuts."""
    while all(box):
        tick()
        ordered = _in_order(box, len(cells))
        unions: list[int] = []
        reached = reached_twice = 0
        for choices in ordered:
            union = reduce(int.__or__, (cells[position] for position in choices), 0)
            unions.append(union)
            reached_twice |= reached & union
            reached |= union
        # A cut that only one level can meet must be met by that level; a cut that none can meet
        # empties the box.
        smaller: _Box = []
        for choices, union in zip(ordered, unions, strict=True):
            required = (union & ~reached_twice) | (every & ~reached)
            smaller.append(
                [position for position in choices if cells[position] & required == required]
            )
        if smaller == box:
            break
        box = smaller
    return box


def check_dual(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check a lower bound on the mean squared error, for inputs uniform on [-1, 1]."""
    require(claim.release is None, "claim", "a lower bound is about no release")
    stated = Fields(claim.statement, "statement")
    for key, constant in LOWER_BOUND.items():
        stated_value = stated.text(key)
        require(stated_value == constant, "claim", f"this proof is about {key} {constant}")
    levels = stated.integer("levels", 2, 64)
    epsilon = stated.number("epsilon")
    claimed = rational(stated.number("value"))
    stated.done()
    require(0 < epsilon <= 100, "claim", "epsilon is outside (0, 100]", epsilon)
    extra = rational(Fraction(exp_ceil(epsilon, _BITS), 1 << _BITS) - 1)
    scale_bits = proof.integer("scale", 0, 128)
    unit = rational(Fraction(1, 1 << scale_bits))
    axis = [coordinate * unit for coordinate in proof.integers("axis", _LEAST)]
    size = len(axis)
    require(
        size <= MAX_AXIS,
        "size",
        "the axis has too many points",
        size,
        MAX_AXIS,
    )
    require(increases(axis), "axis", "the points do not increase")
    mirror_image = [-point for point in reversed(axis)]
    require(axis == mirror_image, "axis", "it is not its own mirror image")
    # "Reach" (docs/proofs/design.md): one level lies at or beyond this point, and one at or beyond
    # its mirror image.
    reach = 1 + 2 / extra
    rare_share = claimed / (claimed + rational(Fraction(1, 3)))  # "Rare floors"
    columns = [[not point < reach for point in axis] + [True]]
    for document in proof.items("cuts", MAX_CUTS):
        tick()
        cut = _read_cut(Fields(document, "cut"), unit, extra)
        column: list[bool] = []
        for minimum in _least(cut, axis):
            bound = cut.constant + rare_share * min(0, minimum)
            column.append(not bound >= claimed)
        columns.append(column)
    columns += [column[::-1] for column in columns]  # the mirror image of a cut is a cut
    cut_bits = [1 << position for position in range(len(columns))]
    cells = [sum(compress(cut_bits, met)) for met in zip(*columns, strict=True)]
    _require_unmet(cells, sum(cut_bits), levels)
