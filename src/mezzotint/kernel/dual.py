"""Lower bounds that no unbiased epsilon-DP mechanism with a given number of levels can beat, wherever they are.

Statement: "Any m levels" (docs/proofs/design.md). A cut is a set of multipliers; a mechanism below the bound has a
level in the region of every cut. The bound holds when no cells of an axis, one per level, meet the regions of all cuts.
"""

from __future__ import annotations

from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import TypeAlias

from mezzotint.kernel.claim import ExactClaim
from mezzotint.kernel.real import Rational, exp_ceil, rational, rational_polynomial
from mezzotint.kernel.table import Tables
from mezzotint.kernel.units import Fields, require, tick

_Turn: TypeAlias = tuple[Rational, rational_polynomial, Rational]
_BITS, _LEAST = 64, -(2**200)


def _read_cut(
    fields: Fields, unit: Rational, extra: Rational
) -> tuple[Rational, rational_polynomial, list[_Turn]]:
    """q; the quadratic that g is left of all turns; and the turns: (place, quadratic, its factor) to add from there."""
    edges = [entry * unit for entry in fields.integers("edges", _LEAST)]
    roots, ends = (
        [[x * unit for x in pair] for pair in fields.lists(key, _LEAST)]
        for key in ("roots", "ends")
    )
    fields.done()
    require(edges[:1] == [-1] and edges[-1:] == [1], "cut", "the edges do not run from -1 to 1")
    require(all(a < b for a, b in pairwise(edges)), "cut", "the edges do not increase")
    require(
        len(roots) == len(edges) - 1 and len(ends) == 2,
        "cut",
        "not one pair of roots per cell, and two ends",
    )
    require(all(len(pair) == 2 for pair in roots + ends), "cut", "roots or ends are not pairs")
    q, g, turns = rational(Fraction(-1, 3)), rational_polynomial([]), list[_Turn]()
    for (a, b), pair in zip(pairwise(edges), roots, strict=True):
        (low, high), weight = sorted(pair), (b - a) / 2
        cell = weight * rational_polynomial([low * high, -low - high, 1])
        q -= cell[0] + (a + b) / 2 * cell[1]
        g = g + cell
        turns += [(low, cell, extra), (high, cell, -extra)]
    for side, (base, slope) in zip((-1, 1), ends, strict=True):
        line = rational_polynomial([base, slope])
        q -= base + side * slope
        negative = slope > 0 or (slope == 0 and base < 0)
        g = g + (line * (1 + extra) if negative else line)
        if slope != 0:
            turns.append((-base / slope, line, -extra if negative else extra))
    return q, g, turns


def _least(g: rational_polynomial, turns: list[_Turn], axis: list[Rational]) -> list[Rational]:
    """The minimum of g in each cell of the axis, from the unbounded cell on the left to that on the right."""
    found: list[Rational] = []
    left, values = None, list[Rational]()
    ends = [(place, None, 0) for place in axis]
    for place, change, factor in [*sorted(turns + ends, key=lambda turn: turn[0]), (None, None, 0)]:
        at = -g[1] / (2 * g[2])
        at = at if left is None else max(at, left)
        at = at if place is None else min(at, place)
        values.append(g(at))
        left = place
        if change is None:
            found.append(min(values))
            values = []
        else:
            g = g + factor * change
    return found


def _require_unmet(cells: list[int], every: int, count: int) -> None:
    """Check that no `count` cells together meet every cut; a cell is the set of cuts that it meets, as bits."""
    by_size = sorted(set(cells), key=int.bit_count, reverse=True)
    # A cell is not needed if another one meets all the cuts that it meets.
    kept = {
        cell
        for k, cell in enumerate(by_size)
        if not any(cell | other == other for other in by_size[:k])
    }
    cells = list(dict.fromkeys(cell for cell in cells if cell in kept))
    boxes = [[list(range(len(cells)))] * count]
    while boxes:
        box = _shrunk(boxes.pop(), cells, every)
        if not all(box):
            continue
        widest = max(range(count), key=lambda level: len(box[level]))
        half = len(box[widest]) // 2
        require(half > 0, "levels", "a choice of cells meets every cut")
        halves = box[widest][:half], box[widest][half:]
        boxes += [[*box[:widest], part, *box[widest + 1 :]] for part in halves]


def _shrunk(box: list[list[int]], cells: list[int], every: int) -> list[list[int]]:
    """The cells that each level may be in, without those that belong to no increasing choice that meets every cut."""
    while all(box):
        tick()
        # In an increasing choice, a level is at or above the lowest cell of the level before it, and vice versa.
        highest = len(cells)
        for k in range(len(box) - 1, -1, -1):
            highest = min(highest, box[k][-1])
            lowest = max(level[0] for level in box[: k + 1])
            box[k] = [cell for cell in box[k] if lowest <= cell <= highest]
        unions = [reduce(int.__or__, (cells[cell] for cell in level)) for level in box]
        once = twice = 0
        for union in unions:
            once, twice = once | union, twice | (once & union)
        # A cut that only one level can meet must be met by that level; a cut that none can meet empties the box.
        needs = [(union & ~twice) | (every & ~once) for union in unions]
        smaller = [
            [c for c in level if cells[c] & need == need]
            for level, need in zip(box, needs, strict=True)
        ]
        if smaller == box:
            break
        box = smaller
    return box


def check_dual(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check a lower bound on the mean squared error of every unbiased mechanism, for inputs uniform on [-1, 1]."""
    require(claim.release is None, "claim", "a lower bound is about no release")
    stated = Fields(claim.statement, "statement")
    for key, only in (("kind", "lower_bound"), ("loss", "mse"), ("prior", "uniform")):
        require(stated.text(key) == only, "claim", f"this proof is about {key} {only}")
    count, epsilon, bound = (
        stated.integer("levels", 2, 64),
        stated.number("epsilon"),
        stated.number("value"),
    )
    stated.done()
    require(0 < epsilon <= 100, "claim", "epsilon is outside (0, 100]", epsilon)
    extra = rational(Fraction(exp_ceil(epsilon, _BITS), 1 << _BITS) - 1)
    unit = rational(Fraction(1, 1 << proof.integer("scale", 0, 128)))
    axis, tau = [entry * unit for entry in proof.integers("axis", _LEAST)], rational(bound)
    require(len(axis) <= 2000, "size", "the axis has too many points", len(axis), 2000)
    require(all(a < b for a, b in pairwise(axis)), "axis", "the points do not increase")
    require(axis == [-end for end in reversed(axis)], "axis", "it is not its own mirror image")
    # "Reach" (docs/proofs/design.md): one level lies at or beyond this point, and one at or beyond its mirror image.
    reach = 1 + 2 / extra
    share = tau / (tau + rational(Fraction(1, 3)))  # "Rare floors"
    columns = [[not end < reach for end in axis] + [True]]
    for entry in proof.items("cuts"):
        tick()
        q, g, turns = _read_cut(Fields(entry, "cut"), unit, extra)
        columns.append([not q + share * min(0, least) >= tau for least in _least(g, turns, axis)])
    columns += [column[::-1] for column in columns]  # the mirror image of a cut is a cut
    cells = [
        sum(1 << cut for cut, meets in enumerate(cell) if meets)
        for cell in zip(*columns, strict=True)
    ]
    _require_unmet(cells, (1 << len(columns)) - 1, count)
