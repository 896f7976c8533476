"""`design.optm`: the optimal pair-selection mechanism as published, and the exact optimum of that family at m = 4."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import InfeasibleError, MezzotintError, ParameterError
from mezzotint.core.priors import UniformPrior
from mezzotint.core.rounding import table
from mezzotint.design.optm_program import BUILDERS, Constraints, Found, Tables
from mezzotint.design.optm_search import BoxSearch
from mezzotint.design.problem import Problem, check_levels, make_problem
from mezzotint.design.result import DesignResult, without_bound
from mezzotint.design.rounding import achieved_loss, first_certified
from mezzotint.families.selection import pair_rows

FloatArray = npt.NDArray[np.float64]
Progress = Callable[[int, int], None]

_OUTER = (1.05, 1.15, 1.3, 1.5, 1.75, 2.0, 2.4, 2.8, 3.4, 4.0)
_FINEST = 1e-4
_FEW_BOXES = 9
_FINALISTS = 3
_INNER = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97)


class _NoBoxError(MezzotintError):
    """No box has a solution: a smaller epsilon would not have one either."""


def is_mirrored(bins: FloatArray, problem: Problem) -> bool:
    """Whether bins and prior are symmetric about the middle of the range: then one table of q serves both sides."""
    if np.abs(bins + bins[::-1] - 2 * problem.center).max() > 1e-12 * max(1.0, np.abs(bins).max()):
        return False
    if isinstance(problem.prior, UniformPrior):
        return True
    edges = np.linspace(problem.lower, problem.upper, 65)
    masses = problem.prior.moments(edges)[:, 0]
    return bool(np.abs(masses - masses[::-1]).max() <= 1e-9)


def covering_bins(bins: Any, problem: Problem) -> FloatArray:
    """The bins, checked: increasing and reaching beyond the range on both sides."""
    values = check_levels(bins)
    if values[0] > problem.lower or values[-1] < problem.upper:
        raise ParameterError("bins", values.tolist(), f"must cover [{problem.lower:g}, {problem.upper:g}]")
    return values


def bin_sets(problem: Problem, levels: int) -> list[FloatArray]:
    """Symmetric bin sets: 10 outer distances times up to 11 inner spreads, about as many as the paper's code has."""
    half, needed = problem.width / 2, 1 + 2 / math.expm1(problem.epsilon)
    result = []
    for outer, inner in itertools.product(_OUTER, _INNER):
        middle = np.linspace(-inner, inner, levels - 2) if inner > 0 or levels <= 3 else None
        if middle is not None and (levels > 2 or inner == _INNER[0]):
            units = np.concatenate([[-outer * needed], middle, [outer * needed]])
            result.append(problem.center + half * units)
    return result


def table_of(problem: Problem, tables: Tables, y: FloatArray, *, name: str, epsilon: float) -> Any:
    """The certified table of selection probabilities y."""
    knots, rows = pair_rows(
        tables.bins, tables.choices(y, 0), tables.choices(y, 1), lower=problem.lower, upper=problem.upper
    )
    return table(knots=knots, levels=tables.bins, probabilities=rows, name=name, epsilon=epsilon)


def _search(
    problem: Problem, bins: FloatArray, epsilon: float, constraints: Constraints, boxes: int, finest: float
) -> tuple[Tables, Found | None, int]:
    sides = 1 if is_mirrored(bins, problem) else 2
    if constraints == "theorem6" and sides == 2:
        raise ParameterError("constraints", constraints, "Theorem 6 is about symmetric bins and priors; use theorem5")
    tables = Tables(bins=bins, lower=problem.lower, upper=problem.upper, sides=sides)
    points = boxes if sides == 1 else max(3, round(math.sqrt(boxes)))
    search = BoxSearch(
        tables=tables,
        epsilon=epsilon,
        target=tables.proxy(problem.prior)[0],
        constraints=constraints,
        points=points,
        finest=finest,
    )
    return tables, search.run(), search.programs


def optm(
    epsilon: float = 1.0,
    *,
    lower: float = -1.0,
    upper: float = 1.0,
    bins: Any = None,
    levels: int = 4,
    prior: Any = None,
    constraints: Constraints = "theorem5",
    boxes: int = 99,
    progress: Progress | None = None,
) -> DesignResult:
    """OPTM as published: a linear program per box of selection probabilities, an upper bound of the MAE minimised.

    Arguments:
        epsilon: pure epsilon per report, replace-one neighbours.
        lower, upper: range of the inputs, data units.
        bins: output levels, data units, covering the range; symmetric bins with a symmetric prior use one table for
            both sides, others one table per side (Theorem 4). None searches 100 symmetric bin sets or so.
        levels: how many bins to search when `bins` is None.
        prior: None (uniform), a frozen scipy.stats distribution or a 1-D sample; only the masses of cells enter.
        constraints: "theorem5" (corrected: every pair of candidates), "theorem6" (three boxes; needs
            epsilon > ln 2 and is often infeasible), "published_theorem5" (as printed: NO guarantee; the mechanism is
            certified at whatever it truly has).
        boxes: grid points per free probability in the exhaustive pass of the box search.
        progress: called as progress(done, total) after each bin set.

    Returns:
        The mechanism and its exact MAE as `loss`; no bound (`optimal` at the same levels has one). `iterations`
        counts linear programs.

    Raises:
        ParameterError: a bad value.
        InfeasibleError: no box has a solution; names the constraints.

    Guarantees: certified epsilon <= epsilon, except under "published_theorem5"; unbiased.
    Source: Cai, Zhang, Khalili 2024, Algorithm 2, Theorems 3-6; corrections in docs/proofs/design.md, "OPTM".
    """
    started = time.perf_counter()
    problem = make_problem(epsilon=epsilon, lower=lower, upper=upper, loss="mae", prior=prior)
    if constraints not in BUILDERS:
        raise ParameterError("constraints", constraints, f"use one of {', '.join(BUILDERS)}")
    if not 1 <= boxes <= 10_000:
        raise ParameterError("boxes", boxes, "need between 1 and 10000 grid points; try 99")
    if bins is None and not 3 <= levels <= 64:
        raise ParameterError("levels", levels, "bins are searched for 3 to 64 levels")
    sets = bin_sets(problem, levels) if bins is None else [covering_bins(bins, problem)]
    best, programs = _search_sets(problem, sets, constraints, boxes, progress, started)
    if best is None:
        hint = "; it always needs epsilon > ln 2" if constraints == "theorem6" else ""
        raise InfeasibleError(
            f"bins={bins}: no selection probabilities satisfy {constraints} at epsilon={epsilon:g}{hint}; "
            "move the outer bins out, raise epsilon, or use design.optimal"
        )
    return _final(best, started, programs)


def _search_sets(
    problem: Problem,
    sets: list[FloatArray],
    constraints: Constraints,
    boxes: int,
    progress: Progress | None,
    started: float,
) -> tuple[DesignResult | None, int]:
    """All bin sets with few boxes, then the best few with all of them."""
    programs, found = 0, []
    total = len(sets) + (min(_FINALISTS, len(sets)) if len(sets) > 1 else 0)
    for done, candidate in enumerate(sets, start=1):
        few, finest = (boxes, _FINEST) if len(sets) == 1 else (min(boxes, _FEW_BOXES), 1.0)
        result, count = _at_bins(problem, candidate, constraints, few, finest, started)
        programs += count
        found += [result] if result is not None else []
        if progress is not None:
            progress(done, total)
    if len(sets) > 1:
        finalists = sorted(found, key=_loss)[:_FINALISTS]
        for done, finalist in enumerate(finalists, start=len(sets) + 1):
            result, count = _at_bins(problem, finalist.mechanism.levels, constraints, boxes, _FINEST, started)
            programs += count
            found += [result] if result is not None else []
            if progress is not None:
                progress(done, total)
    return min(found, key=_loss, default=None), programs


def _loss(result: DesignResult) -> float:
    return result.loss


def _final(best: DesignResult, started: float, programs: int) -> DesignResult:
    return without_bound(best.mechanism, loss=best.loss, status=best.status, started=started, iterations=programs)


def _at_bins(
    problem: Problem, bins: FloatArray, constraints: Constraints, boxes: int, finest: float, started: float
) -> tuple[DesignResult | None, int]:
    published = constraints == "published_theorem5"
    programs = 0

    def build(epsilon: float) -> Any:
        nonlocal programs
        tables, found, count = _search(problem, bins, epsilon, constraints, boxes, finest)
        programs += count
        if found is None:
            raise _NoBoxError(f"bins={bins.tolist()}: {constraints} has no solution")
        allowed = math.inf if published else problem.epsilon
        return table_of(problem, tables, found[1], name=f"OPTM ({constraints})", epsilon=allowed)

    try:
        mechanism = first_certified(build, epsilon=problem.epsilon)
    except (_NoBoxError, InfeasibleError):
        return None, programs
    return (
        without_bound(
            mechanism,
            loss=achieved_loss(problem, mechanism),
            status="no guarantee" if published else "heuristic",
            started=started,
            iterations=programs,
        ),
        programs,
    )
