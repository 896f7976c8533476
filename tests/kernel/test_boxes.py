"""Counts divided one after the other: against the mean over all counts in fractions, and forged boxes."""

from __future__ import annotations

import copy
from fractions import Fraction
from itertools import permutations, product
from math import factorial, prod
from typing import Any

import numpy as np
import pytest

from mezzotint import Mechanism, kernel
from mezzotint.privacy.sums import lattice_rows
from reference.kernel import accepts, claim, decimal_text, forgeries, hockey_stick, sealed

TOTAL = 2**32
EPSILON = "0.1"


def _table(generator: np.random.Generator, components: int) -> tuple[Mechanism, dict[str, Any]]:
    """Two rows with a blanket of several shapes in the same places, and a rest in which the rows differ."""
    size = 4
    shapes = [
        generator.integers(0, 4, size - 1) + np.eye(size - 1, dtype=int)[0]
        for _ in range(components)
    ]
    masses = [
        int(shape.sum()) * int(generator.integers(2**20, TOTAL // (12 * components * 3)))
        for shape in shapes
    ]
    common = [Fraction(0)] * size
    for shape, mass in zip(shapes, masses, strict=True):
        for place, weight in enumerate(shape.tolist()):
            common[place] += Fraction(mass * weight, int(shape.sum()))
    base = [int(value) for value in common]
    left = TOTAL - sum(base)
    split = int(left * generator.uniform(0.7, 0.99))
    rows = [
        [base[0] + split, *base[1:-1], base[-1] + left - split],
        [base[0] + left - split, *base[1:-1], base[-1] + split],
    ]
    table = Mechanism(
        knots=[0.0, 1.0], levels=np.arange(float(size)), weights=np.array(rows), name="boxes"
    )
    listed = [
        {"shape": s.tolist(), "places": [[m], [m]]} for s, m in zip(shapes, masses, strict=True)
    ]
    return table, {"rows": [0, 1], "block": 1, "components": listed}


def _release(table: Mechanism, clients: int) -> kernel.ExactRelease:
    lattice = tuple(lattice_rows(table)[1].integers.tolist())
    return kernel.ExactRelease(
        observer="secure_sum", tables=((table.sha256, 1),), clients=clients, lattice=lattice
    )


def _tree(generator: np.random.Generator, draws: int, components: int) -> dict[str, Any]:
    """Random edges, every count by itself where `generator` is None; ladders now and then."""
    if not components:
        return {"corners": [[]]}
    if generator.random() < 0.2:
        corners = sorted({int(v) for v in generator.integers(0, draws + 1, 3)}, reverse=True)
        return {"corners": [[corner] * components for corner in corners]}
    edges = sorted({0, *(int(v) for v in generator.integers(0, draws + 1, 3))})
    ends = [*edges[1:], draws + 1]
    return {
        "edges": edges,
        "children": [_tree(generator, draws + 1 - end, components - 1) for end in ends],
    }


def _fine(draws: int, components: int) -> dict[str, Any]:
    if not components:
        return {"corners": [[]]}
    children = [_fine(draws - count, components - 1) for count in range(draws + 1)]
    return {"edges": list(range(draws + 1)), "children": children}


def _convolved(a: list[Fraction], b: list[Fraction]) -> list[Fraction]:
    found = [Fraction(0)] * (len(a) + len(b) - 1)
    for i, p in enumerate(a):
        for j, q in enumerate(b):
            found[i + j] += p * q
    return found


def _exact(table: Mechanism, blanket: dict[str, Any], others: int) -> Fraction:
    """The mean over all vectors of counts of what their noise leaves, for the worse order of the two rows."""
    rows = [[Fraction(int(w), TOTAL) for w in row] for row in lattice_rows(table)[0].tolist()]
    shapes = [[Fraction(w, sum(c["shape"])) for w in c["shape"]] for c in blanket["components"]]
    chances = [Fraction(c["places"][0][0], TOTAL) for c in blanket["components"]]
    totals = dict.fromkeys(permutations(range(2)), Fraction(0))
    for counts in product(range(others + 1), repeat=len(shapes)):
        none = others - sum(counts)
        if none < 0:
            continue
        ways = Fraction(factorial(others), prod(map(factorial, counts)) * factorial(none))
        weight = (
            ways
            * prod(g**k for g, k in zip(chances, counts, strict=True))
            * (1 - sum(chances)) ** none
        )
        noise = [Fraction(1)]
        for shape, count in zip(shapes, counts, strict=True):
            for _ in range(count):
                noise = _convolved(noise, shape)
        for first, second in totals:
            totals[first, second] += weight * hockey_stick(
                _convolved(rows[first], noise), _convolved(rows[second], noise), EPSILON
            )
    return max(totals.values())


def _accepts(
    table: Mechanism, blanket: dict[str, Any], others: int, tree: Any, delta: Fraction
) -> bool:
    content = {"tail": 160, "blankets": [blanket], "others": others, "cases": tree}
    said = claim(_release(table, others + 1), EPSILON, decimal_text(delta))
    return accepts(said, sealed(said, "sum", tables=[table.canonical()], **content))


def test_never_below_the_exact_mean_over_all_counts() -> None:
    """Every count by itself gives the mean exactly; coarser boxes and ladders are never below it."""
    generator = np.random.default_rng(41)
    for _ in range(25):
        components, others = int(generator.integers(1, 4)), int(generator.integers(1, 4))
        table, blanket = _table(generator, components)
        exact = _exact(table, blanket, others)
        assert exact > 0
        above, below = exact * (1 + Fraction(1, 10**9)), exact * (1 - Fraction(1, 10**9))
        fine = _fine(others, components)
        assert _accepts(table, blanket, others, fine, above)
        assert not _accepts(table, blanket, others, fine, below)
        for _ in range(4):
            assert not _accepts(table, blanket, others, _tree(generator, others, components), below)


def test_boxes_that_leave_out_a_count_or_count_it_twice_are_refused() -> None:
    generator = np.random.default_rng(42)
    table, blanket = _table(generator, 2)
    exact, fine = _exact(table, blanket, 2), _fine(2, 2)
    above, below = exact * (1 + Fraction(1, 10**9)), exact * (1 - Fraction(1, 10**9))
    assert _accepts(table, blanket, 2, fine, above)
    for path, forged in forgeries(fine):
        assert not _accepts(table, blanket, 2, forged, below), path
    for change in (
        {"edges": [1, 2]},
        {"edges": [0, 1, 2], "children": fine["children"][:2]},
        {"edges": [0, 2, 1]},
    ):
        assert not _accepts(table, blanket, 2, {**fine, **change}, Fraction(1)), change
    for change in (
        {"edges": [0, 1, 3]},
        {"edges": [0, 1, 1]},
        {"edges": []},
        {"edges": [0, 1, 2], "more": 1},
    ):
        assert not _accepts(table, blanket, 2, {**fine, **change}, Fraction(1)), change
    # A third component to divide, where there are two.
    deeper = copy.deepcopy(fine)
    deeper["children"][0]["children"][0] = {"edges": [0], "children": [{"corners": [[]]}]}
    assert not _accepts(table, blanket, 2, deeper, Fraction(1))


def test_what_is_drawn_for_sure_is_not_divided() -> None:
    """After it the chances of the others would be divided by nothing."""
    table = Mechanism(
        knots=[0.0, 1.0],
        levels=[0.0, 1.0, 2.0],
        weights=np.array([[2**31, 2**31, 0], [0, 2**31, 2**31]]),
        name="sure",
    )
    coin = {"shape": [1, 1], "places": [[TOTAL], [0, TOTAL]]}
    nothing = {"shape": [1], "places": [[0], [0]]}
    blanket = {"rows": [0, 1], "block": 1, "components": [coin, nothing]}
    assert _accepts(table, blanket, 2, {"corners": [[2, 0]]}, Fraction(1, 2))
    boxes = {"edges": [0], "children": [{"corners": [[0]]}]}
    assert not _accepts(table, blanket, 2, boxes, Fraction(1))


@pytest.mark.parametrize("change", [1, 3])
def test_draws_of_another_group_stay_as_they_are(change: int) -> None:
    """Two groups of two clients each: what one group drew says nothing about the other's draws."""
    weights = [[2**31, 2**31, 0, 0], [0, 0, 2**31, 2**31]]
    table = Mechanism(
        knots=[0.0, 1.0], levels=np.arange(4.0), weights=np.array(weights), name="groups"
    )
    whole = {"rows": [0, 1], "block": 1, "components": []}
    first, second = (
        {
            "rows": [row],
            "block": 1,
            "components": [{"shape": [1, 1], "places": [[0] * 2 * row + [2**31]]}],
        }
        for row in (0, 1)
    )
    leaf = {"edges": [0, 1, 2], "children": [_fine(2, 1)] * 3}
    parts = [
        {"corners": [[0]]},
        {"corners": [[0, 0]]},
        leaf,
        {"corners": [[0, 0]]},
        {"corners": [[0]]},
    ]
    tree = {"group": 0, "first": 1, "second": 2, "cuts": list(range(6)), "children": parts}
    content = {"tail": 160, "blankets": [whole, first, second], "others": 4, "cases": tree}
    said = claim(_release(table, 5), "1/10", "1")
    assert accepts(said, sealed(said, "sum", tables=[table.canonical()], **content))
    # One draw more or less than the other group has is refused: the last edge lies beyond them, or a part has none.
    parts[2] = {"edges": [0, 1, 2], "children": [_fine(change, 1)] * 3}
    forged = sealed(said, "sum", tables=[table.canonical()], **content)
    assert accepts(said, forged) == (change < 2)
