"""Lower bounds of designs: a proof that the design room makes, refutable bounds, cells and searches against twins."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import flint
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from mezzotint import design, kernel, privacy
from mezzotint.kernel.dual import _least, _read_cut, _require_unmet
from mezzotint.kernel.units import Fields, set_deadline
from reference.kernel import accepts, forgeries, resealed
from strategies import examples
from tolerances import SOLVED


@pytest.fixture(scope="module")
def proven() -> tuple[kernel.ExactClaim, dict[str, Any]]:
    """Two levels, epsilon 1: the optimum is 4.371."""
    result = design.optimal(epsilon=1.0, levels=2, prove=True, seconds=10.0)
    return kernel.read_claim(json.dumps(result.proof))


def test_verify_takes_a_lower_bound_which_promises_no_privacy(proven: Any, tmp_path: Path) -> None:
    (tmp_path / "bound.json").write_text(kernel.write_claim(*proven))
    report = privacy.verify(tmp_path / "bound.json")
    assert report.valid
    assert report.epsilon_upper == math.inf
    assert "mean squared error of at least" in str(report)


def test_no_unbiased_mechanism_with_two_levels_is_below_the_bound(proven: Any) -> None:
    """200 pairs of levels: one chance per input makes both means right; those that are epsilon-DP are not below it."""
    bound, ratio, private = float(Fraction(proven[0].statement["value"])), math.e, 0
    generator = np.random.default_rng(16)
    inputs = np.linspace(-1, 1, 20_001)
    for low, high in zip(
        -1 - generator.exponential(2, 200), 1 + generator.exponential(2, 200), strict=True
    ):
        chance = np.array([-1 - low, 1 - low]) / (high - low)
        worst = max(
            chance[1] / max(chance[0], 1e-300), (1 - chance[0]) / max(1 - chance[1], 1e-300)
        )
        loss = float(np.mean((inputs - low) * (high - inputs)))
        private += worst <= ratio
        # The mean over 20,001 inputs for the integral: the square of a step, 1e-8, of losses that reach 100.
        assert worst > ratio or loss >= bound * (1 - SOLVED)
    assert private > 10


def _valued(said: kernel.ExactClaim, **change: Any) -> kernel.ExactClaim:
    return kernel.ExactClaim(release=None, statement={**said.statement, **change})


def test_a_designs_proof_is_certified_and_stronger_claims_are_refused(proven: Any) -> None:
    said, proof = proven
    assert kernel.words(kernel.check(said, proof)).startswith(
        "certified: mean squared error of at least "
    )
    # More than the optimum's own loss is false; so is this loss for more levels or for less privacy.
    loss = Fraction(design.optimal(epsilon=1.0, levels=2).loss)
    assert float(Fraction(said.statement["value"])) > 0.9 * float(loss)
    for change in (
        {"value": str(loss + Fraction(1, 10**6))},
        {"levels": 3},
        {"levels": 5},
        {"epsilon": "1.1"},
    ):
        stronger = _valued(said, **change)
        assert not accepts(stronger, resealed(stronger, proof)), change
    weaker = _valued(said, value="3", epsilon="0.9")
    assert accepts(weaker, resealed(weaker, proof))


def test_a_bound_is_accepted_up_to_the_exact_number_and_not_beyond(proven: Any) -> None:
    """One cut from levels all over the axis bounds any number of levels: tau = q + tau/(tau + 1/3) min(0, least g)."""
    said, proof = proven
    one = {**proof, "cuts": proof["cuts"][:1]}
    extra = flint.fmpq(int(Fraction(math.e) * 2**64) + 1000, 2**64) - 1
    unit = flint.fmpq(1, 2 ** proof["scale"])
    cut = _read_cut(Fields(dict(one["cuts"][0]), "cut"), unit, extra)
    q, least = cut.constant, min(0, *_least(cut, [unit * end for end in proof["axis"]]))
    height, lowest = (Fraction(int(number.p), int(number.q)) for number in (q, flint.fmpq(least)))
    half = (height + lowest - Fraction(1, 3)) / 2
    # Rounded far below the steps.
    near = half + Fraction(math.isqrt(int((half**2 + height / 3) * 10**40)), 10**20)
    for step, holds in ((-1, True), (1, False)):
        other = _valued(said, levels=9, value=str(near + Fraction(step, 10**12)))
        assert accepts(other, resealed(other, one)) == holds


def test_no_change_of_one_field_proves_more_than_the_optimum(proven: Any) -> None:
    said, proof = proven
    fewer = {**proof, "cuts": proof["cuts"][:2]}
    loss = Fraction(design.optimal(epsilon=1.0, levels=2).loss)
    false = _valued(said, value=str(loss * Fraction(10001, 10000)))
    # Numbers of one cut are alike; every 67th change meets all keys and all places in a pair.
    for path, forged in itertools.islice(forgeries(fewer, skip=["claim_sha256"]), 0, None, 67):
        assert not accepts(false, resealed(false, forged)), path


def test_claims_of_another_kind_and_parts_that_are_missing_are_refused(proven: Any) -> None:
    said, proof = proven
    for change in (
        {"loss": "mae"},
        {"prior": "normal"},
        {"levels": 1},
        {"epsilon": "0"},
        {"more": 1},
        {"levels": 65},
    ):
        other = _valued(said, **change)
        assert not accepts(other, resealed(other, proof)), change
    other = kernel.ExactClaim(
        release=kernel.ExactRelease(observer="reports", tables=(("0", 1),)),
        statement=said.statement,
    )
    assert not accepts(other, resealed(other, proof))
    for key in ("scale", "axis", "cuts"):
        assert not accepts(said, {name: value for name, value in proof.items() if name != key})
    # A cut of its own for the mirrored levels: an axis that is not its own mirror image gives it to the wrong cells.
    assert not accepts(said, {**proof, "axis": [*proof["axis"][:-1], proof["axis"][-1] + 1]})
    assert not accepts(said, {**proof, "axis": list(range(-1001, 1002))})


def _cut(generator: np.random.Generator) -> dict[str, Any]:
    inner = sorted(set(generator.integers(-15, 16, 3).tolist()))
    edges = [-16, *inner, 16]
    roots = generator.integers(-40, 41, (len(edges) - 1, 2)).tolist()
    return {"edges": edges, "roots": roots, "ends": generator.integers(-20, 21, (2, 2)).tolist()}


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(9), deadline=None)
def test_the_least_value_in_a_cell_is_that_of_the_formula(seed: int) -> None:
    """q and g straight from the page, at many levels; attained up to the spacing of the levels."""
    generator = np.random.default_rng(seed)
    cut, extra = _cut(generator), Fraction(int(generator.integers(1, 40)), 8)
    axis = [Fraction(v, 16) for v in sorted(set(generator.integers(-60, 61, 7).tolist()))]
    unit = flint.fmpq(1, 16)
    read = _read_cut(Fields(cut, "cut"), unit, flint.fmpq(extra.numerator, extra.denominator))
    q, least = read.constant, _least(read, [flint.fmpq(v.numerator, v.denominator) for v in axis])
    least = [Fraction(int(v.p), int(v.q)) for v in least]
    edges = [Fraction(v, 16) for v in cut["edges"]]
    roots = [[Fraction(v, 16) for v in pair] for pair in cut["roots"]]
    ends = [[Fraction(v, 16) for v in pair] for pair in cut["ends"]]
    cells = list(zip(itertools.pairwise(edges), roots, strict=True))

    def scaled(t: Fraction) -> Fraction:
        return min(t, (1 + extra) * t)

    def g(level: Fraction) -> Fraction:
        total = sum(
            ((b - a) / 2 * scaled((level - low) * (level - high)) for (a, b), (low, high) in cells),
            Fraction(0),
        )
        return total + sum((scaled(c + s * level) for c, s in ends), Fraction(0))

    constant = sum(
        ((b - a) / 2 * ((a + b) / 2 * (x + y) - x * y) for (a, b), (x, y) in cells), Fraction(-1, 3)
    )
    constant -= ends[0][0] - ends[0][1] + ends[1][0] + ends[1][1]
    assert Fraction(int(q.p), int(q.q)) == constant
    bounds = [Fraction(-40), *axis, Fraction(40)]
    for (low, high), value in zip(itertools.pairwise(bounds), least, strict=True):
        points = [low + (high - low) * k / 64 for k in range(65)]
        seen = min(map(g, points))
        assert value <= seen
        # |g'| is at most (1 + extra) (2 (|B| + 2.5) + 2.5) on these cells: the grid misses the least by that much.
        reach = max(abs(low), abs(high))
        assert seen - value <= (1 + extra) * (2 * (reach + 3) + 3) * (high - low) / 64


@given(seed=st.integers(0, 2**32 - 1), count=st.integers(1, 3))
@settings(max_examples=examples(67), deadline=None)
def test_cells_that_meet_every_cut_are_found_whenever_there_are_any(seed: int, count: int) -> None:
    set_deadline(600)
    generator = np.random.default_rng(seed)
    cuts = int(generator.integers(1, 9))
    cells = [int(v) for v in generator.integers(0, 2**cuts, 9) & generator.integers(0, 2**cuts, 9)]
    every = (1 << cuts) - 1
    exist = any(
        sum(1 << k for k in range(cuts) if any(cell >> k & 1 for cell in chosen)) == every
        for chosen in itertools.combinations_with_replacement(cells, count)
    )
    if exist:
        with pytest.raises(kernel.Refused, match="meets every cut"):
            _require_unmet(cells, every, count)
    else:
        _require_unmet(cells, every, count)


def test_the_search_is_stopped_by_its_limit_of_time() -> None:
    set_deadline(0)
    with pytest.raises(kernel.Unfinished):
        _require_unmet([1, 2, 4], 7, 2)
