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
from mezzotint.privacy.sums.blanket import Blanket, block_rows, common_blanket, dyad_blanket

sparse: Any = LazyModule("scipy.sparse")
optimize: Any = LazyModule("scipy.optimize")

_MAX_VARIABLES = 12_000
"""Larger programs are not tried: the plain blanket stands then."""

_GREEDY = 5
"""Largest number of coins that are chosen one by one; the next step up is to use all widths."""

_WIDEST = 24
"""Widths tried; wider coins carry little mass in any table worth its noise."""


def _program(rows: FloatArray, widths: Sequence[int]) -> tuple[FloatArray, list[FloatArray]] | None:
    """Masses g_l and shifts that maximise sum_l g_l width_l^2 / 4 under the blanket's inequality; None on failure."""
    count, size = rows.shape
    sizes = [size - width for width in widths]
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    per_row = int(offsets[-1])
    cover = sparse.lil_matrix((size, per_row))
    pick = sparse.lil_matrix((len(widths), per_row))
    for position, width in enumerate(widths):
        for shift in range(sizes[position]):
            column = offsets[position] + shift
            cover[shift, column] += 0.5
            cover[shift + width, column] += 0.5
            pick[position, column] = 1.0
    upper = sparse.hstack([sparse.kron(sparse.eye(count), cover), sparse.csr_matrix((count * size, len(widths)))])
    equal = sparse.hstack(
        [sparse.kron(sparse.eye(count), pick), sparse.kron(np.ones((count, 1)), -sparse.eye(len(widths)))]
    )
    cost = np.concatenate([np.zeros(count * per_row), -np.square(widths) / 4.0])
    result = optimize.linprog(
        cost, A_ub=upper.tocsr(), b_ub=rows.ravel(), A_eq=equal.tocsr(), b_eq=np.zeros(count * len(widths)),
        bounds=(0, None), method="highs",
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
    """Blankets worth scoring: common mass, coins added greedily one width at a time, all widths, blocks of clients.

    Arguments:
        rows: (rows, span + 1) integers that sum to 2**32.

    Guarantees: every blanket fits the rows in exact integers.
    Edge cases: empty when rows share nothing, not even up to shifts (then no central claim beats the local one).
    """
    return _candidates(rows.shape, np.ascontiguousarray(rows).tobytes())


@lru_cache(maxsize=32)
def _candidates(shape: tuple[int, int], raw: bytes) -> tuple[Blanket, ...]:
    rows = np.frombuffer(raw, dtype=np.int64).reshape(shape)
    plain = common_blanket(rows)
    found = [] if plain is None else [plain]
    found += _greedy(rows)
    for block in (1, 2, 4):
        widths = list(range(1, min(block * (rows.shape[1] - 1), _WIDEST) + 1))
        if full := solve_dyads(rows, widths, block=block):
            found.append(full)
    return tuple({blanket.name: blanket for blanket in found if blanket.fits(rows)}.values())


def _greedy(rows: IntArray) -> list[Blanket]:
    """Chains of coins that each add the most variance; widths with a common divisor leak a residue, so two chains."""
    widths = range(1, min(rows.shape[1] - 1, _WIDEST) + 1)
    found: list[Blanket] = []
    for odd_first in (False, True):
        chosen: list[int] = []
        for step in range(min(_GREEDY, len(widths))):
            allowed = [w for w in widths if w not in chosen and (w % 2 == 1 or step > 0 or not odd_first)]
            tried = [blanket for w in allowed if (blanket := solve_dyads(rows, [*chosen, w]))]
            if not tried:
                break
            if step == 0 and not odd_first:
                found += tried
            best = max(tried, key=lambda blanket: blanket.variance)
            found.append(best)
            chosen = [component.shape.size - 1 for component in best.components]
    return found
