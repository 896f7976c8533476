"""Bounds over all sets of levels: cuts against random mechanisms, proofs against a twin in exact rationals."""

from __future__ import annotations

import copy
import json
import math
from fractions import Fraction

import numpy as np
import pytest

from laws.registry import judges
from mezzotint import ParameterError, design, kernel
from mezzotint.core.laws import law_of
from mezzotint.core.priors import UniformPrior
from mezzotint.design import optimum
from mezzotint.design.floor_search import overhang
from mezzotint.design.level_proofs import Proven, cut_at, prove
from mezzotint.design.levels import Space
from mezzotint.design.problem import BoundError, make_problem
from reference.design import check_levels_proof
from tolerances import MANY

UNIFORM = law_of(UniformPrior(), -1.0, 1.0)


@judges("design.level_proofs.prove")
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 4.0])
def test_cuts_hold_for_random_mechanisms(epsilon: float) -> None:
    ratio, rng = math.exp(epsilon), np.random.default_rng(3)
    far = 1 + overhang(ratio)
    for seed in range(6):
        levels = np.sort(rng.uniform(-1.5, 1.5, 6)) * far
        levels[[0, -1]] = -1.6 * far, 1.6 * far
        cut, _ = cut_at(levels, ratio, make_problem(epsilon=epsilon, lower=-1, upper=1))
        for one in (cut, cut.mirrored()):
            count = 2 + seed
            points = rng.normal(size=(60, 2 * count))
            space = Space(
                count=count, law=UNIFORM, ratio=ratio, loss="mse", largest=math.inf, sharpness=1.0
            )
            losses, sets = np.exp(space(points)[0]), space.levels(points)
            for loss, chosen in zip(losses, sets, strict=True):
                # A set of levels is bounded by the least value of the cut at its levels.
                axis = np.unique(np.concatenate([chosen - 1e-9, chosen + 1e-9]))
                least = (
                    one.least(axis, ratio)[0][::2].min()
                    if axis.size == 2 * count
                    else one.least(axis, ratio)[0].min()
                )
                assert one.constant() + min(0.0, float(least)) <= loss * (1 + MANY)


@pytest.mark.parametrize(
    ("epsilon", "count", "gap"),
    [
        (1.0, 2, 0.011),
        pytest.param(1.0, 3, 0.031, marks=pytest.mark.slow),
        pytest.param(2.0, 3, 0.051, marks=pytest.mark.slow),
    ],
)
def test_a_proof_follows_in_rationals_alone(epsilon: float, count: int, gap: float) -> None:
    loss = design.optimal(epsilon, levels=count).loss
    # Enough time on a slow machine; it ends where nothing is left to try within the gap asked for here.
    result = prove(
        make_problem(epsilon=epsilon, lower=-1, upper=1), count, loss, seconds=200, least=gap
    )
    assert loss * (1 - gap) <= result.bound <= loss * (1 + MANY)
    bound = check_levels_proof(result.proof)
    assert bound <= Fraction(loss)
    assert float(bound) == pytest.approx(
        result.bound, rel=1e-7
    )  # the stored bound is rounded down to seven digits
    # The kernel reads the same file and says the same.
    assert kernel.check(*kernel.read_claim(json.dumps(result.proof))).certified
    # A larger bound does not follow, nor this one with a cut less for every second.
    forged = copy.deepcopy(result.proof)
    forged["statement"]["value"] = str(Fraction(loss) * Fraction(101, 100))
    with pytest.raises(AssertionError, match="meets every cut"):
        check_levels_proof(forged)
    fewer = copy.deepcopy(result.proof)
    fewer["proof"]["cuts"] = fewer["proof"]["cuts"][:1]
    with pytest.raises(AssertionError, match="meets every cut"):
        check_levels_proof(fewer)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("epsilon", "count", "programs"), [(1.0, 3, 140), (2.0, 3, 320), (1.0, 4, 720), (2.0, 4, 3800)]
)
def test_few_levels_are_settled_to_half_a_percent(
    epsilon: float, count: int, programs: int
) -> None:
    """Twice the programs that it took, of some 10 ms each: work is counted, never timed."""
    loss = design.optimal(epsilon, levels=count).loss
    problem = make_problem(epsilon=epsilon, lower=-1, upper=1)
    least = 0.0051
    result = prove(problem, count, loss, seconds=3000, least=least)
    assert loss * (1 - least) <= result.bound <= loss
    assert result.programs <= programs


def test_a_proven_design_says_what_its_bound_is_about() -> None:
    result = design.optimal(1.0, lower=2.0, upper=6.0, levels=3, prove=True, seconds=4.0)
    plain = design.optimal(1.0, levels=3)
    assert result.scope == "all mechanisms with 3 levels, wherever they are"
    assert result.lower_bound is not None
    assert result.lower_bound <= 4 * plain.loss * (1 + MANY)
    # At least what no number of levels can beat (3.8857), less the first cut's own gap.
    assert result.lower_bound >= 4 * 3.88
    assert result.proof is not None
    assert result.proof["statement"]["levels"] == 3
    with pytest.raises(ParameterError, match="prove"):
        design.optimal(1.0, levels=3, loss="mae", max_level=3.0, prove=True)


def test_a_proven_bound_above_the_loss_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = design.optimal(1.0, levels=3)

    def proven(share: float) -> design.DesignResult:
        fixed = Proven(bound=plain.loss * share, proof={}, programs=1)
        monkeypatch.setattr(optimum, "prove_levels", lambda *_, **__: fixed)
        return design.optimal(1.0, levels=3, prove=True)

    assert proven(1 - 1e-6).status == "optimal"
    assert proven(0.99).status == "feasible"
    for share in (1 + 1e-6, 1.01):
        with pytest.raises(BoundError, match="below its lower bound"):
            proven(share)
