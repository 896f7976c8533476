"""Looking for good blankets by linear programs. Nothing here is trusted: `Blanket.fits` has the last word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from mezzotint.core.lazy import LazyModule
from mezzotint.core.mechanism import TOTAL, FloatArray, IntArray
from mezzotint.privacy.sums.blanket import Blanket, additive_blanket, block_rows, common_blanket, dyad_blanket

sparse: Any = LazyModule("scipy.sparse")
optimize: Any = LazyModule("scipy.optimize")

_MAX_VARIABLES = 12_000
"""Larger programs are not tried: the plain blanket stands then."""

_GREEDY = 5
"""Largest number of coins that are chosen one by one; the next step up is to use all widths."""

_WIDEST = 24
"""Widths tried; wider coins carry little mass in any table worth its noise."""


def _constraints(count: int, size: int, widths: Sequence[int]) -> tuple[Any, Any]:
    """Matrices over the shifts of all rows, then the masses: what the coins use of each level, and place in all."""
    places = np.concatenate([np.arange(size - width) for width in widths])
    kinds = np.repeat(np.arange(len(widths)), [size - width for width in widths])
    total = places.size
    columns = np.arange(count * total)
    row = np.repeat(np.arange(count), total)
    # A coin at place s puts half of its mass on s, and half on s + width.
    low = row * size + np.tile(places, count)
    high = low + np.tile(np.asarray(widths)[kinds], count)
    use = sparse.csr_matrix(
        (np.full(2 * columns.size, 0.5), (np.concatenate([low, high]), np.tile(columns, 2))),
        shape=(count * size, count * total + len(widths)),
    )
    owner = row * len(widths) + np.tile(kinds, count)
    masses = np.tile(np.arange(len(widths)), count)
    place = sparse.csr_matrix(
        (
            np.concatenate([np.ones(columns.size), -np.ones(masses.size)]),
            (np.concatenate([owner, np.arange(masses.size)]), np.concatenate([columns, count * total + masses])),
        ),
        shape=(masses.size, count * total + len(widths)),
    )
    return use, place


def _program(rows: FloatArray, widths: Sequence[int]) -> tuple[FloatArray, list[FloatArray]] | None:
    """Masses g_l and shifts that maximise sum_l g_l width_l^2 / 4 under the blanket's inequality; None on failure."""
    count, size = rows.shape
    offsets = np.concatenate([[0], np.cumsum([size - width for width in widths])])
    per_row = int(offsets[-1])
    use, place = _constraints(count, size, widths)
    result = optimize.linprog(
        np.concatenate([np.zeros(count * per_row), -np.square(widths) / 4.0]),
        A_ub=use, b_ub=rows.ravel(), A_eq=place, b_eq=np.zeros(place.shape[0]), bounds=(0, None), method="highs",
    )  # fmt: skip
    if result.x is None:
        return None
    solution = np.asarray(result.x, dtype=np.float64)
    shifts = solution[: count * per_row].reshape(count, per_row)
    return solution[count * per_row :], [shifts[:, a:b] for a, b in pairwise(offsets.tolist())]


def solve_dyads(rows: IntArray, widths: Sequence[int], *, block: int = 1) -> Blanket | None:
    """The blanket of fair coins of these widths with the largest sure variance, exact; None when there is none.

    Arguments:
        rows: (rows, span + 1) integers that sum to 2**32.
        widths: distinct, 1..block * span.
        block: clients per draw.
    """
    count = math.comb(rows.shape[0] + block - 1, block)
    size = block * (rows.shape[1] - 1) + 1
    if count * sum(size - width for width in widths) > _MAX_VARIABLES:
        return None
    solved = _program(block_rows(rows, block) / float(TOTAL), widths)
    if solved is None:
        return None
    masses, shifts = solved
    kept = [position for position, mass in enumerate(masses) if mass > 1e-7]
    if not kept:
        return None
    return dyad_blanket(
        rows, [widths[position] for position in kept], [shifts[position] for position in kept], block=block
    )


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
    if whole is not None and whole.fits(rows):
        return (whole,)
    plain = common_blanket(rows)
    found = [] if plain is None else [plain]
    found += _greedy(rows)
    for block in (1, 2, 4, 8, 16):
        widths = list(range(1, min(block * (rows.shape[1] - 1), _WIDEST) + 1))
        if full := solve_dyads(rows, widths, block=block):
            found.append(full)
    return tuple({blanket.name: blanket for blanket in found if blanket.fits(rows)}.values())


def _greedy(rows: IntArray) -> list[Blanket]:
    """Chains of coins that each add the most variance; widths with a common divisor leak a residue, so two chains."""
    widths = range(1, min(rows.shape[1] - 1, _WIDEST) + 1)
    solved: dict[frozenset[int], Blanket | None] = {}

    def solve(chosen: list[int]) -> Blanket | None:
        if frozenset(chosen) not in solved:
            solved[frozenset(chosen)] = solve_dyads(rows, chosen)
        return solved[frozenset(chosen)]

    found: list[Blanket] = []
    for odd_first in (False, True):
        chosen: list[int] = []
        for step in range(min(_GREEDY, len(widths))):
            allowed = [w for w in widths if w not in chosen and (w % 2 == 1 or step > 0 or not odd_first)]
            tried = [blanket for w in allowed if (blanket := solve([*chosen, w]))]
            if not tried:
                break
            if step == 0 and not odd_first:
                found += tried
            best = max(tried, key=lambda blanket: blanket.variance)
            found.append(best)
            chosen = [component.shape.size - 1 for component in best.components]
    return found
