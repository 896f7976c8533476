"""Compositions of reports that are all seen: against enumeration, laws, forgeries, and two bounds that once failed."""

from __future__ import annotations

import functools
from fractions import Fraction
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from laws.registry import judges
from mezzotint import Mechanism, families, kernel, privacy
from mezzotint.kernel import losses
from mezzotint.kernel.losses import sampled_curves
from mezzotint.kernel.measures import (
    SILENCE,
    Grid,
    Measure,
    curve_of,
    measure_of,
    pair_values,
    product_of_powers,
)
from mezzotint.kernel.real import exp_floor, polynomial
from mezzotint.kernel.units import FINE, ONE, WHOLE, set_deadline
from mezzotint.privacy.propose import propose_local
from reference.kernel import (
    accepts,
    claim,
    composed,
    decimal_text,
    forgeries,
    hockey_stick,
    probabilities,
    release,
    resealed,
)
from strategies import examples, mechanisms

SMALL = mechanisms(max_levels=4, max_segments=2, spacings=("even",))
RQM = families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42)


@pytest.fixture(autouse=True)
def _time() -> None:
    set_deadline(600)


def _grid(step: Fraction, low: int, high: int) -> Grid:
    return Grid(low, [exp_floor(index * step, FINE) for index in range(low, high + 1)], step)


def _described(
    sampling: str, rate: Fraction, neighboring: str = "replace_one", **more: Any
) -> kernel.ExactRelease:
    return kernel.ExactRelease(
        observer="reports",
        tables=(("0", 1),),
        sampling=sampling,
        rate=rate,
        neighboring=neighboring,
        **more,
    )


def _pair_curve(
    pairs: list[tuple[list[Fraction], list[Fraction]]], kept: Fraction = Fraction(1)
) -> losses.Curve:
    """The largest of the pairs' exact curves, each with a share lost to disclosure."""

    def curve(n: int, d: int) -> int:
        c = Fraction(n, d)
        worst = max(
            sum(max(p - c * q, Fraction(0)) for p, q in zip(*pair, strict=True)) for pair in pairs
        )
        return losses.ceil_div(
            (1 - kept + kept * worst).numerator * WHOLE, (1 - kept + kept * worst).denominator
        )

    return curve


@functools.lru_cache(maxsize=8)  # a shape is asked for in turn by several tests
def _proposed(mechanism: Mechanism, delta: float, **shape: Any) -> Any:
    names = {"sampling_rate" if name == "rate" else name: value for name, value in shape.items()}
    release = privacy.Release(mechanism=mechanism, delta=delta, **names)
    found = privacy.account(release)
    return found.epsilon, propose_local(release, found.epsilon)


# The two bounds that fail where slopes of an upper bound are taken for masses -----------------------------------


@judges("kernel.losses.sampled_curves")
def test_a_low_tail_moved_up_and_then_sampled_keeps_its_delta() -> None:
    step = Fraction(1, 200)
    at = int(Fraction(200669, 10**6) / step) + 1  # log(11/9) = 0.20067
    whole = Measure(
        polynomial([WHOLE]), at, 0, step
    )  # both atoms of (11/20, 9/20) at the larger loss
    upper = curve_of(whole)
    true = _pair_curve([([Fraction(11, 20), Fraction(9, 20)], [Fraction(9, 20), Fraction(11, 20)])])
    (sampled,) = sampled_curves(_described("poisson", Fraction(1, 2)), upper)
    (exact,) = sampled_curves(_described("poisson", Fraction(1, 2)), true)
    grid = _grid(step, -100, 100)
    made = measure_of(grid, [sampled(point, ONE) for point in grid.points], 0)
    curve = curve_of(made)
    assert made.deficit >= 0
    assert curve(1, 1) >= WHOLE // 20
    assert all(curve(point, ONE) >= exact(point, ONE) for point in grid.points)


def test_the_larger_of_two_curves_when_sampled_keeps_its_delta() -> None:
    step = Fraction(1, 100)
    rows = [Fraction(38, 100), Fraction(32, 100), Fraction(30, 100)]
    loud = _pair_curve([(rows, rows[::-1])])
    quiet = _pair_curve(
        [([Fraction(51, 100), Fraction(49, 100)], [Fraction(49, 100), Fraction(51, 100)])],
        Fraction(9, 10),
    )

    def largest(n: int, d: int) -> int:
        return max(loud(n, d), quiet(n, d))

    (sampled,) = sampled_curves(_described("poisson", Fraction(1, 2)), largest)
    grid = _grid(step, -60, 60)
    made = measure_of(grid, [sampled(point, ONE) for point in grid.points], 0)
    curve = curve_of(made)
    assert curve(1, 1) >= WHOLE * 4 // 100
    (exact,) = sampled_curves(_described("poisson", Fraction(1, 2)), loud)
    assert all(curve(point, ONE) >= exact(point, ONE) for point in grid.points)


@given(seed=st.integers(0, 2**32 - 1), noise=st.sampled_from([0.0, 1e-3, 0.1]))
@settings(max_examples=examples(14))
def test_the_envelope_of_any_upper_values_is_a_distribution_above_the_curve(
    seed: int, noise: float
) -> None:
    generator = np.random.default_rng(seed)
    rows = [
        [Fraction(int(w), 1000) for w in generator.multinomial(1000, np.full(4, 0.25))]
        for _ in range(3)
    ]
    true = _pair_curve(list(permutations(rows, 2)))
    grid = _grid(Fraction(1, 20), -40, 40)
    values = [
        true(p, ONE) + int(noise * generator.random() * 2**40) * (WHOLE >> 40) for p in grid.points
    ]
    made = measure_of(grid, values, 0)
    entries = [int(entry) for entry in made.poly.coeffs()]
    assert min(entries, default=0) >= 0
    assert sum(entries) + made.deficit == WHOLE
    assert made.deficit >= 0
    curve = curve_of(made)
    for c in [*(Fraction(p, ONE) for p in grid.points), Fraction(1), Fraction(7, 5), Fraction(100)]:
        assert curve(c.numerator, c.denominator) >= true(c.numerator, c.denominator)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=examples(10))
def test_values_of_a_pair_are_exact(seed: int) -> None:
    generator = np.random.default_rng(seed)
    entries = [tuple(map(int, generator.integers(0, 50, 2))) for _ in range(8)]
    grid = _grid(Fraction(1, 7), -15, 15)
    for point, value in zip(grid.points, pair_values(grid, entries), strict=True):
        assert value == sum(max((p << FINE) - point * q, 0) for p, q in entries)


def test_a_loss_exactly_on_the_grid_is_read_as_the_sum_it_is() -> None:
    """The curve at c = 2 of atoms at log 2, whose point is a rounded power, and at losses far below any point."""
    step = Fraction(1, 4)
    measure = Measure(polynomial([1, 0, 0]), -4, 0, step)
    curve = curve_of(measure)
    assert curve(1, 10**300) >= WHOLE - 1
    tight = Measure(polynomial([WHOLE // 2, WHOLE // 2]), 0, 0, step)
    assert curve_of(tight)(1, 1) * 1000 // WHOLE == 110  # (1 - e^-1/4) / 2 = 0.1106


def test_products_round_down_and_lose_nothing_but_what_they_say() -> None:
    generator = np.random.default_rng(5)
    entries = [int(v) << 100 for v in generator.integers(0, 2**54, 30)]
    one = Measure(polynomial(entries), 3, cut=WHOLE >> 20)
    product = one * one
    exact = [0] * (2 * len(entries) - 1)
    for i, a in enumerate(entries):
        for j, b in enumerate(entries):
            exact[i + j] += a * b
    got = {product.start + i: int(v) for i, v in enumerate(product.poly.coeffs())}
    for index, value in enumerate(exact):
        mass = got.get(index + 6, 0)
        assert mass * WHOLE <= value
        assert mass == 0 or value < (mass + 1) * WHOLE
    cut = sum(value // WHOLE for index, value in enumerate(exact) if index + 6 not in got)
    assert cut <= 2 * (WHOLE >> 20)
    assert product.deficit == WHOLE - sum(got.values())
    assert one.power(5).deficit >= WHOLE - (WHOLE - one.deficit) ** 5 // WHOLE**4


@given(
    counts=st.lists(st.integers(0, 9), min_size=1, max_size=3),
    cut=st.sampled_from([0, WHOLE >> 30]),
)
@settings(max_examples=60)
def test_products_of_powers_are_those_of_single_factors_but_for_what_is_rounded_or_cut(
    counts: list[int], cut: int
) -> None:
    shapes = [[1, 3], [5, 0, 2, 1], [7]]
    factors: list[Measure] = []
    exact = {0: Fraction(1)}
    copies = 0
    for start, (shape, count) in enumerate(zip(shapes, counts, strict=False)):
        masses = [WHOLE * weight // 8 for weight in shape]  # exact: no rounding but of products
        factors.append(Measure(polynomial(masses), start, cut))
        for _ in range(count):
            sums: dict[int, Fraction] = {}
            for position, mass in exact.items():
                for index, weight in enumerate(shape):
                    to = position + start + index
                    sums[to] = sums.get(to, Fraction(0)) + mass * Fraction(weight, 8)
            exact = sums
            copies += 1
    product = product_of_powers(factors, counts)
    assert product.cut == cut
    # Each of at most 2 * copies products rounds every entry down by less than 1 and cuts twice;
    # squared later, what is lost is lost at most once for every copy.
    entries = sum((len(shape) - 1) * count for shape, count in zip(shapes, counts, strict=False))
    lost = Fraction((2 * copies) * copies * (entries + 1 + 2 * cut), WHOLE)
    missing = Fraction(0)
    got = {product.start + i: Fraction(int(v), WHOLE) for i, v in enumerate(product.poly.coeffs())}
    for position, mass in exact.items():
        assert 0 <= got.get(position, 0) <= mass
        missing += mass - got.get(position, 0)
    assert set(got) <= set(exact) | {p for p, v in got.items() if v == 0}
    assert missing <= lost
    assert product_of_powers([], []) == SILENCE


# Claims -------------------------------------------------------------------------------------------------------


@judges("kernel.measures.curve_of")
@given(mechanism=SMALL, count=st.sampled_from([2, 3]), delta=st.sampled_from([0.3, 0.01, 1e-4]))
@settings(max_examples=examples(9), deadline=None)
def test_compositions_are_never_below_enumeration(
    mechanism: Mechanism, count: int, delta: float
) -> None:
    """At the certified epsilon every sequence of one pair of rows has at most the claimed delta."""
    float_epsilon, outcome = _proposed(mechanism, delta, rounds=count)
    if outcome.proof is None:
        assert float_epsilon == np.inf or "not certified" in outcome.reason
        return
    rows = probabilities(mechanism)
    for pair in permutations(rows, 2):
        exact = hockey_stick(*composed(pair, count), str(outcome.claim.statement["epsilon"]))
        assert exact <= Fraction(str(delta))
        # A proof with the same numbers for the delta just below an exact one is refused.
        if exact > 0:
            low = claim(
                outcome.claim.release,
                outcome.claim.statement["epsilon"],
                decimal_text(exact * Fraction(999, 1000)),
            )
            assert not accepts(low, resealed(low, outcome.proof))


CASES: list[dict[str, Any]] = [
    {"rounds": 30},
    {"dimension": 4, "rounds": 20},
    {"rounds": 100, "sampling": "public", "rate": 0.1},
    {"dimension": 2, "rounds": 50, "sampling": "poisson", "rate": 0.1},
    {
        "dimension": 2,
        "rounds": 50,
        "sampling": "poisson",
        "rate": 0.1,
        "neighboring": "add_or_remove_one",
    },
]


@pytest.mark.parametrize("shape", CASES, ids=str)
def test_certified_epsilon_is_within_two_thousandths_of_the_float(shape: dict[str, Any]) -> None:
    float_epsilon, outcome = _proposed(RQM, 1e-6, **shape)
    assert outcome.proof is not None, outcome.reason
    # Below it where the proof begins at a finer grid than the accountant's.
    assert float_epsilon * 0.998 <= float(outcome.claim.epsilon) <= float_epsilon * 1.0021


@pytest.mark.parametrize("shape", CASES, ids=str)
def test_stronger_claims_are_refused_with_the_same_proof(shape: dict[str, Any]) -> None:
    _, outcome = _proposed(RQM, 1e-6, **shape)
    said, proof = outcome.claim, outcome.proof
    assert accepts(said, proof)
    stated = said.statement
    for field, factor in (("epsilon", Fraction(96, 100)), ("delta", Fraction(1, 3))):
        better = kernel.ExactClaim(
            release=said.release,
            statement={**stated, field: decimal_text(Fraction(stated[field]) * factor)},
        )
        assert not accepts(better, resealed(better, proof))
    document = said.release.document()
    changed: list[dict[str, Any]] = [{"rounds": said.rounds + 20}]
    changed.append(
        {
            "tables": [
                {**document["tables"][0], "coordinates": 2 * document["tables"][0]["coordinates"]}
            ]
        }
    )
    if said.sampling != "none":
        changed.append({"sampling": {"kind": said.sampling, "rate": "1/4"}})
        changed.append(
            {
                "sampling": {"kind": "none", "rate": "1"},
                "unit": "client",
                "neighboring": "replace_one",
            }
        )
    for change in changed:
        try:
            stronger = kernel.ExactRelease.read({**document, **change})
        except kernel.Unreadable:
            continue
        forged = kernel.ExactClaim(release=stronger, statement=stated)
        assert not accepts(forged, resealed(forged, proof)), change


SLOW = (pytest.param(shape, marks=pytest.mark.slow) for shape in CASES[1:4])


@pytest.mark.parametrize("shape", [CASES[0], CASES[4], *SLOW], ids=str)
def test_no_change_of_one_field_proves_a_false_claim(shape: dict[str, Any]) -> None:
    """Steps, grids and tails are choices: another choice may be refused, but none proves 4 % less epsilon."""
    _, outcome = _proposed(RQM, 1e-6, **shape)
    low = decimal_text(outcome.claim.epsilon * Fraction(96, 100))
    false = kernel.ExactClaim(
        release=outcome.claim.release, statement={**outcome.claim.statement, "epsilon": low}
    )
    for path, forged in forgeries(outcome.proof, skip=["claim_sha256", "tables"]):
        assert not accepts(false, resealed(false, forged)), path
    assert not accepts(outcome.claim, {**outcome.proof, "tables": []})
    other = families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.43).canonical()
    assert not accepts(outcome.claim, {**outcome.proof, "tables": [other]})
    assert not accepts(outcome.claim, {**outcome.proof, "tail": 0})


@given(mechanism=SMALL)
@settings(max_examples=examples(4), deadline=None)
def test_mirrors_and_permuted_levels_change_nothing(mechanism: Mechanism) -> None:
    _, outcome = _proposed(mechanism, 1e-3, rounds=5)
    if outcome.proof is None or outcome.proof["kind"] != "losses":
        return
    for weights in (
        mechanism.weights[::-1],
        mechanism.weights[:, ::-1],
        np.repeat(mechanism.weights, 2, axis=0),
    ):
        knots = np.arange(float(weights.shape[0]))
        other = Mechanism(knots=knots, levels=mechanism.levels, weights=weights, name="mirror")
        said = claim(
            release(other, rounds=5),
            outcome.claim.statement["epsilon"],
            outcome.claim.statement["delta"],
        )
        assert accepts(said, {**resealed(said, outcome.proof), "tables": [other.canonical()]})


def test_coordinates_times_rounds_is_what_counts_and_one_is_the_local_number() -> None:
    _, outcome = _proposed(RQM, 1e-6, rounds=30)
    stated = outcome.claim.statement
    spread = claim(release(RQM, 6, rounds=5), stated["epsilon"], stated["delta"])
    assert accepts(spread, resealed(spread, outcome.proof))
    # One report: never below its exact delta.
    exact = max(hockey_stick(p, q, "1.2") for p, q in permutations(probabilities(RQM), 2))
    single = claim(release(RQM), "1.2", decimal_text(exact * Fraction(9999, 10000)))
    assert not accepts(single, resealed(single, outcome.proof))


def test_two_tables_in_one_round() -> None:
    other = families.randomized_response(lower=-1, upper=1, epsilon=1.0)
    _, outcome = _proposed(RQM, 1e-6, rounds=30)
    both = kernel.ExactRelease(
        observer="reports", tables=((RQM.sha256, 1), (other.sha256, 2)), rounds=30
    )
    proof = {
        **outcome.proof,
        "tables": [RQM.canonical(), other.canonical()],
        "grids": outcome.proof["grids"] * 2,
    }
    alone, total = float(outcome.claim.epsilon), 30 * (RQM.epsilon + 2 * other.epsilon)
    assert accepts(
        claim(both, total, "1/1000000"), resealed(claim(both, total, "1/1000000"), proof)
    )
    low = claim(both, alone + 0.5 * (total - alone), "1/1000000")
    assert not accepts(low, resealed(low, proof))


def test_sizes_are_refused_before_anything_is_made() -> None:
    _, outcome = _proposed(RQM, 1e-6, rounds=30)
    for change in (
        {"step": "1/10000000000000"},
        {"grids": [{"low": 0, "high": 2**40}]},
        {"grids": [{"low": 5, "high": 4}]},
    ):
        assert not accepts(outcome.claim, {**outcome.proof, **change})
    many = claim(release(RQM, rounds=10**12), "1000000", "1/10")
    with pytest.raises((kernel.Refused, kernel.Unfinished)):
        kernel.check(many, resealed(many, outcome.proof), seconds=1)
