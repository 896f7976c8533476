"""Laws of everything that chooses a mechanism: what comes out is what was asked, read off the integers row by row."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from laws.registry import judges
from mezzotint import design, families, privacy
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL
from mezzotint.design.floors import floors_at
from mezzotint.design.problem import make_problem
from reference.privacy import rows_of, worst_divergence, worst_hockey_stick
from tolerances import FEW

UNIT = 2.0**-53
GAP = 2e-6  # the solver's duality gap, relative (docs/proofs/design.md, "Bounds"), and the rounding of weights

# Levels of lopsided reach in other units, and the range that they belong to.
UNITS: dict[str, dict[str, Any]] = {
    "one": {"lower": -1.0, "upper": 1.0},
    "other": {"lower": -7.0, "upper": 1.0},
}
LEVELS = np.array([-7.0, -0.5, 0.25, 9.0])


def levels_in(unit: str) -> list[float]:
    low, high = UNITS[unit]["lower"], UNITS[unit]["upper"]
    return ((low + high) / 2 + (high - low) / 2 * LEVELS).tolist()


def metric_loss(mechanism: Mechanism, first: int, second: int) -> float:
    rows = rows_of(mechanism.weights[[first, second]])
    return float(worst_divergence(rows, math.inf))


# Problems of `optimal` ------------------------------------------------------------------------------------------------

PROBLEMS: dict[str, dict[str, Any]] = {
    "pure": {},
    "pure, worst input": {"loss": "minimax"},
    "pure, absolute": {"loss": "mae"},
    "pure, atoms": {"prior": [-0.9, 0.1, 0.1, 0.8]},
    "five knots": {"knots": 5},
    "delta": {"delta": 0.02, "knots": 5},
    "renyi": {"alpha": 3.0, "knots": 5},
    "biased": {"max_bias": 0.05, "knots": 5},
    "absolute metric": {"metric": "absolute", "knots": 5},
    "squared metric": {"metric": "squared", "knots": 5},
}


@judges(
    "design.optimum.optimal", "design.floors.design_fixed", "design.floors.floors_at", "design.program.design_general",
    "design.program.proven_design", "design.program.refine_even", "design.problem.first_certified",
    "design.problem.record",
)  # fmt: skip
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("mirror", [False, True], ids=["as it is", "mirrored"])
def test_designs_spend_what_was_asked_whichever_way_round(name: str, mirror: bool) -> None:
    options = dict(PROBLEMS[name])
    if mirror and "prior" in options:
        options["prior"] = [-x for x in options["prior"]]
    levels = -LEVELS[::-1] if mirror else LEVELS
    epsilon = 0.5 if "metric" in options else 1.0
    found = design.optimal(epsilon, levels=levels, **options)
    table, rows = found.mechanism, rows_of(found.mechanism.weights)
    if "delta" in options:
        assert worst_hockey_stick(rows, epsilon) <= options["delta"]
    elif "alpha" in options:
        assert worst_divergence(rows, options["alpha"]) <= epsilon
    elif "metric" in options:
        power = 1 if options["metric"] == "absolute" else 2
        for i in range(table.knots.size):
            for j in range(i):
                apart = float(table.knots[i] - table.knots[j])
                assert metric_loss(table, i, j) <= epsilon * apart**power * (1 + 8 * UNIT)
    else:
        assert worst_divergence(rows, math.inf) <= epsilon
    assert table.max_bias <= options.get("max_bias", 0.0) + 4 * float(np.ptp(LEVELS)) / TOTAL
    # The mirrored problem has the same value, and no bound is above another design of the same problem.
    other = design.optimal(epsilon, levels=LEVELS, **PROBLEMS[name])
    for bound in (found.lower_bound, other.lower_bound):
        if bound is not None:
            assert bound <= min(found.loss, other.loss) * (1 + GAP) + found.slack + other.slack


@judges("design.floors.floors_at", "design.windows.bound_with", "design.windows.lower_bound")
@pytest.mark.parametrize("seed", range(4))
def test_bounds_at_levels_are_below_mechanisms_made_without_a_solver(seed: int) -> None:
    """Rows at the ends by hand: an even mixture of all levels with the two that any unbiased mechanism needs."""
    rng = np.random.default_rng(seed)
    epsilon = float(rng.uniform(0.5, 3))
    least = 1 + 2 / math.expm1(epsilon)
    levels = np.array(
        [-least * rng.uniform(1.2, 3), rng.uniform(-0.9, 0.9), least * rng.uniform(1.2, 3)]
    )
    # The second prior is 2001 point masses: Newton's method on spread masses, with a bound of its own.
    priors = (None, np.linspace(-1, 1, 2001))
    bounds = [
        floors_at(
            make_problem(epsilon=epsilon, lower=-1.0, upper=1.0, prior=prior), levels, None
        ).lower_bound
        for prior in priors
    ]
    tried = 0
    for share in np.linspace(0, 0.9, 19):
        rows = []
        for end in (-1.0, 1.0):
            rest = end - share * levels[1]
            top = (rest - (1 - share) * levels[0]) / (levels[2] - levels[0])
            rows.append([1 - share - top, share, top])
        table = np.array(rows)
        if (table <= 0).any() or np.abs(
            np.log(table[0, [0, 2]] / table[1, [0, 2]])
        ).max() > epsilon:
            continue
        tried += 1
        x = np.linspace(-1, 1, 2001)[:, None]
        mixed = (1 - x) / 2 * table[0] + (1 + x) / 2 * table[1]
        # The error is a quadratic in x: Simpson's rule is exact.
        errors = (mixed * (levels - x) ** 2).sum(axis=1)
        weights = np.ones(2001)
        weights[1:-1] = np.where(np.arange(1, 2000) % 2 == 1, 4, 2)
        loss = float((errors * weights).sum() / weights.sum())
        assert bounds[0] <= loss * (1 + FEW)
        assert bounds[1] <= errors.mean() * (1 + FEW)
    assert tried > 0


# Designers of one number ----------------------------------------------------------------------------------------------

DESIGNERS: dict[str, Callable[[float, str], Mechanism]] = {
    "optimal": lambda e, u: design.optimal(e, levels=levels_in(u), **UNITS[u]).mechanism,
    "mvu": lambda e, u: design.mvu(e, **UNITS[u]).mechanism,
    "imvu": lambda e, u: design.imvu(e, **UNITS[u]).mechanism,
    "optm": lambda e, u: design.optm(e, bins=levels_in(u), boxes=15, **UNITS[u]).mechanism,
    "rqm": lambda e, u: design.calibrate("rqm", epsilon=e, **UNITS[u]).mechanism,
    "erm": lambda e, u: design.calibrate("erm", epsilon=e, **UNITS[u]).mechanism,
    "pbm": lambda e, u: design.calibrate("pbm", epsilon=e, **UNITS[u]).mechanism,
    "a function": lambda e, u: design.calibrate(
        lambda s: families.randomized_response(epsilon=s, **UNITS[u]), epsilon=e, **UNITS[u]
    ).mechanism,
}  # fmt: skip
LOCAL = ("mvu", "imvu", "optm")
"""The papers' own local searches, which may end elsewhere after a rounding."""


@judges(
    "design.minimum_variance.mvu", "design.minimum_variance.imvu", "design.pair_selection.optm",
    "design.pair_selection.best_pairs", "design.calibration.calibrate",
    "design.family_search.FamilySearch.best", "design.family_search.FamilySearch.run",
)  # fmt: skip
@pytest.mark.parametrize("name", DESIGNERS)
def test_designers_spend_at_most_what_was_asked_in_any_unit(name: str) -> None:
    epsilon = 1.5
    tables = [DESIGNERS[name](epsilon, unit) for unit in UNITS]
    for table in tables:
        spent = worst_divergence(rows_of(table.weights), math.inf)
        assert spent <= epsilon
        assert spent <= table.epsilon
    if name not in LOCAL:
        losses = [table.mse() for table in tables]
        # One-dimensional searches stop within a thousandth of the loss.
        assert losses[1] == pytest.approx(16 * losses[0], rel=2e-3)


@judges("design.comparison.compare", "design.comparison.tradeoff")
def test_comparisons_print_what_their_tables_spend() -> None:
    rows = design.compare(epsilon=1.5, bits=2, lower=-7, upper=1, families=("optimal", "rqm"))
    for row in rows:
        assert row.mechanism is not None
        assert row.epsilon is not None
        assert worst_divergence(rows_of(row.mechanism.weights), math.inf) <= row.epsilon <= 1.5
    points = design.tradeoff(epsilons=[1.5], bits=[2], lower=-7, upper=1)
    for point in points:
        assert point["limit"] <= point["mse"] * (1 + GAP)
    assert [p["mse"] for p in points if p["epsilon"] == 1.5 and p["bits"] == 2] == pytest.approx(
        [row.mse for row in rows if row.family == "optimal"],
        rel=1e-3,  # levels of a search, found from two starts
    )


@judges("design.vector_design.vector")
@pytest.mark.parametrize("inputs", ["grid", "real"])
def test_vectors_spend_what_was_asked_in_any_unit(inputs: Any) -> None:
    for norm in (1.0, 4.0):
        found = design.vector(
            3.0, dimension=2, clip_norm=norm, levels=4, knots=3, inputs=inputs
        ).mechanism
        rows = rows_of(found.weights)
        knots = found.knots
        for a in range(3):
            for b in range(3):
                for c in range(3):
                    for d in range(3):
                        if math.hypot(knots[a] - knots[c], knots[b] - knots[d]) <= 2 * norm * (
                            1 + UNIT
                        ):
                            loss = sum(
                                float(worst_divergence([rows[i], rows[j]], math.inf))
                                for i, j in ((a, c), (b, d))
                            )
                            assert loss <= 3.0


@judges("privacy.calibration.calibrate")
@pytest.mark.parametrize("target", [0.7, 4.0])
def test_calibrated_runs_keep_their_target(target: float) -> None:
    found = privacy.calibrate(
        lambda s: privacy.Release(
            mechanism=families.randomized_response(lower=-7, upper=1, epsilon=s), dimension=2, rounds=2, delta=1e-3
        ),
        epsilon=target, least_noise_at=1e-3, most_noise_at=8.0,
    )  # fmt: skip
    assert privacy.account(found.release).epsilon <= target
    table = found.release.mechanism
    assert isinstance(table, Mechanism)
    # Never less than four reports of the worst two rows, each of them the same pair.
    p, q = (np.array(row, dtype=float) / TOTAL for row in table.weights[[0, -1]])
    first, second = p, q
    for _ in range(3):
        first, second = np.outer(first, p).ravel(), np.outer(second, q).ravel()
    assert np.maximum(first - math.exp(target) * second, 0).sum() <= found.claim.delta + 64 * UNIT
