"""Decoders that dominate, and the intervals built on them: exact checks, reference values, failures, coverage."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import optimize, stats

from mezzotint import collect, datasets, design, families
from mezzotint.collect import evidence
from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.evidence import FLOOR, FOLDS, CrossFitted
from mezzotint.collect.intervals import Sums, mean_interval
from mezzotint.collect.spreads import spread_of
from mezzotint.collect.support_points import dominating, greatest_expectation, nodes_of, quick_fit
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL
from reference.fits import fitted_together
from strategies import mechanisms
from tolerances import FEW, MANY, printed

RR = families.randomized_response(lower=0, upper=1, epsilon=1.0)
KRR4 = families.k_randomized_response(lower=0, upper=1, levels=4, epsilon=1.0)
KRR16 = families.k_randomized_response(lower=0, upper=1, levels=16, epsilon=4.0)
# The reference numbers are about the best tables on these levels, which are symmetric.
OPT4 = design.optimal(
    epsilon=1.0,
    lower=0,
    upper=1,
    levels=[-0.7615710447677475, 0.4244462775224452, 0.5755537224775549, 1.7615710447677475],
).mechanism


# One decoder -----------------------------------------------------------------------------------------------------


def test_decoders_of_the_reference() -> None:
    """k-RR has one decoder for an indicator, its inverse; RR at five nodes has the two values that a solver gave."""
    indicator = np.array([1.0, 0, 0, 0])
    found = dominating(KRR4.probabilities, indicator, np.full(4, 0.25), width=0.01)
    # To the linear program's own tolerance of 1e-7, over decoders of size 10.
    assert found == pytest.approx([2.74593012, *[-0.58197671] * 3], abs=1e-6)
    below = (np.linspace(0, 1, 5) <= 0.25).astype(float)
    found = dominating(RR.pmf(np.linspace(0, 1, 5)), below, np.array([0.5, 0.5]), width=0.01)
    # As above, over decoders of size 2.
    assert found == pytest.approx([2.10930228, -0.77596894], abs=1e-6)


def exactly_dominates(pmf: np.ndarray, decoder: np.ndarray, values: np.ndarray) -> bool:
    """pmf a >= values in rationals."""
    exact = [Fraction(a) for a in decoder.tolist()]
    return all(
        sum((Fraction(p) * a for p, a in zip(row, exact, strict=True)), Fraction(0))
        >= Fraction(value)
        for row, value in zip(pmf.tolist(), values.tolist(), strict=True)
    )


@given(
    table=mechanisms(max_levels=6, max_segments=3),
    seed=st.integers(0, 10**6),
    width=st.sampled_from([0, 0.01, 1]),
)
def test_every_decoder_dominates_exactly(table: Mechanism, seed: int, width: float) -> None:
    rng = np.random.default_rng(seed)
    values = rng.choice([0.0, 1.0, rng.normal()], table.knots.size)
    shares = rng.dirichlet(np.full(table.levels.size, 0.3))
    decoder = dominating(table.probabilities, values, shares, width=width)
    assert exactly_dominates(table.probabilities, decoder, values)
    # Never dearer than the decoder that says max(values) whatever the code.
    spread = math.sqrt(max(0.0, shares @ (decoder - shares @ decoder) ** 2))
    assert shares @ decoder + width * spread <= values.max() + MANY * (1 + abs(values.max()))


def test_the_best_decoder_against_a_linear_program() -> None:
    """At width 0: the greatest share that given code shares leave open, by weak duality and by another solver."""
    pmf = OPT4.pmf(np.linspace(0, 1, 65))
    values = (np.linspace(0, 1, 65) <= 0.2).astype(float)
    shares = OPT4.pmf(np.random.default_rng(1).beta(2, 5, 1000)).mean(axis=0)
    primal = optimize.linprog(-values, A_eq=pmf.T, b_eq=shares, bounds=(0, None))
    assert greatest_expectation(pmf, values, shares) == pytest.approx(
        -primal.fun, abs=1e-6
    )  # both programs to 1e-7


@pytest.mark.parametrize("failure", ["nan", "garbage"])
def test_a_solver_that_fails_makes_intervals_wider_and_never_wrong(
    failure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = CodeCounts(
        mechanism=KRR16, counts=np.random.default_rng(1).multinomial(2000, KRR16.pmf(0.1))
    )
    usual = collect.estimate(counts, histogram=4, quantiles=[0.5])

    def broken(
        pmf: np.ndarray, values: np.ndarray, shares: np.ndarray, *rest: object
    ) -> np.ndarray | None:
        del pmf, values, rest
        return None if failure == "nan" else np.linspace(-3, 3, shares.size)

    monkeypatch.setattr("mezzotint.collect.support_points._solve", broken)
    result = collect.estimate(counts, histogram=4, quantiles=[0.5])
    assert result.mean == usual.mean
    assert result.histogram is not None
    assert usual.histogram is not None
    assert (result.histogram.low <= usual.histogram.low + MANY).all()
    assert (result.histogram.high >= usual.histogram.high - MANY).all()
    assert result.input_variance.high >= usual.input_variance.high


# Folds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 3, 10**4, 3 * 10**10])
def test_folds_deal_every_report_once_and_depend_on_the_counts_alone(n: int) -> None:
    counts = np.array([n // 2, n - n // 2, 0, 0])
    reports = CodeCounts(mechanism=KRR4, counts=counts)
    nodes = nodes_of(reports)
    again, _ = (
        one.folds for one in fitted_together([reports, reports], confidence=0.95, edges=None)
    )
    folds = CrossFitted(reports, confidence=0.95, edges=None).folds
    assert sum(fold.counts for fold in folds).tolist() == counts.tolist()
    assert sum(fold.share for fold in folds) == pytest.approx(1, rel=FEW)
    assert len(folds) <= FOLDS
    for one, other in zip(folds, again, strict=True):
        assert one.counts.tolist() == other.counts.tolist()
        assert one.expected.tolist() == other.expected.tolist()
        assert one.expected.sum() == pytest.approx(1, rel=FEW)
        assert (one.expected >= FLOOR * nodes.pmf.mean(axis=0) * (1 - MANY)).all()


def test_a_fold_does_not_see_its_own_reports() -> None:
    """What a fold expects is a fit of the other parts alone: their fit, put together again, is the same."""
    counts = np.random.default_rng(3).multinomial(500, KRR4.pmf(0.3))
    reports = CodeCounts(mechanism=KRR4, counts=counts)
    nodes = nodes_of(reports)
    for fold in CrossFitted(reports, confidence=0.95, edges=None).folds:
        rest = nodes.with_counts(nodes.counts - fold.counts)
        masses = quick_fit(rest, steps=evidence.STEPS)
        assert fold.expected == pytest.approx(
            (1 - FLOOR) * masses @ nodes.pmf + FLOOR * nodes.pmf.mean(axis=0), rel=FEW
        )


# Whole estimates -------------------------------------------------------------------------------------------------


def test_counts_on_which_a_solver_once_failed() -> None:
    levels = [-10.748969714322126, -7.7489697747180255, 13.748969774718026, 16.748969714322126]
    weights = [
        [1336716563, 1336725907, 810765247, 810759579],
        [810759582, 1336725907, 1336722222, 810759585],
        [810759585, 1336722222, 1336725907, 810759582],
        [810759579, 810765247, 1336725907, 1336716563],
    ]
    knots = [0.0, 2.9999907868822957, 3.0000092131177043, 6.0]
    table = Mechanism(knots=knots, levels=levels, weights=weights)
    counts = CodeCounts(mechanism=table, counts=np.array([223130, 275461, 276793, 224616]))
    asked = ({}, {"histogram": 10, "quantiles": [0.1, 0.5, 0.9]})
    for method, more in product(("asymptotic", "safe"), asked):  # "safe" alone is what failed
        result = collect.estimate(counts, method=method, **more)
        assert result.mean.value == pytest.approx(3.0347485967, abs=printed(10))
        assert result.standard_error == pytest.approx(0.0121838358, abs=printed(10))
        assert result.mean.low < result.mean.value < result.mean.high


@pytest.mark.parametrize("method", ["asymptotic", "safe"])
def test_points_do_not_move_with_what_is_asked_for(method: Any) -> None:
    counts = CodeCounts(
        mechanism=KRR16, counts=np.random.default_rng(2).multinomial(5000, KRR16.pmf(0.37))
    )
    plain = collect.estimate(counts, method=method)
    fine = collect.estimate(
        counts, method=method, histogram=[0, 0.123, 0.25, 0.4567, 0.75, 1], quantiles=[0.5]
    )
    coarse = collect.estimate(
        counts, method=method, histogram=[0, 0.25, 0.75, 1], quantiles=[0.2, 0.5]
    )
    assert plain.input_variance.value == fine.input_variance.value == coarse.input_variance.value
    assert fine.histogram is not None
    assert coarse.histogram is not None
    assert fine.histogram.share[:2].sum() == pytest.approx(coarse.histogram.share[0], abs=FEW)
    assert fine.quantiles is not None
    assert coarse.quantiles is not None
    assert next(iter(fine.quantiles.values())).value == list(coarse.quantiles.values())[1].value


def test_simultaneous_intervals_hold_the_single_ones() -> None:
    counts = CodeCounts(
        mechanism=KRR16, counts=np.random.default_rng(2).multinomial(5000, KRR16.pmf(0.37))
    )
    single = collect.estimate(counts, histogram=5, quantiles=[0.5])
    joint = collect.estimate(counts, histogram=5, quantiles=[0.5], simultaneous=True)
    assert joint.as_dict()["simultaneous"] is True
    assert joint.confidence == 0.95
    # Eight intervals: each at 1 - 0.05 / 8.
    assert joint.mean == mean_interval(
        counts.mechanism, Sums.of_counts(counts.counts), confidence=1 - 0.05 / 8
    )
    assert single.histogram is not None
    assert joint.histogram is not None
    assert (joint.histogram.high >= single.histogram.high).all()
    assert (joint.histogram.low <= single.histogram.low).all()
    assert joint.input_variance.high > single.input_variance.high


def stepped(cells: int, epsilon: float, *, lower: float, upper: float) -> Mechanism:
    """k-ary response of the cell that an input lies in."""
    response = families.k_randomized_response(
        lower=0, upper=1, levels=cells, epsilon=epsilon
    ).weights
    edges = np.linspace(lower, upper, cells + 1)
    knots = np.repeat(edges, 2)[1:-1]
    return Mechanism(
        knots=knots, levels=(edges[1:] + edges[:-1]) / 2, weights=np.repeat(response, 2, axis=0)
    )


def open_share(mechanism: Mechanism, values: np.ndarray, edge: float) -> collect.Interval:
    """The share below an edge from as many reports as there are values, with counts as they are on average."""
    counts = np.rint(mechanism.pmf(values).sum(axis=0)).astype(int)
    edges = [mechanism.lower, edge, mechanism.upper]
    bins = collect.estimate(
        CodeCounts(mechanism=mechanism, counts=counts), histogram=edges
    ).histogram
    assert bins is not None
    open_ends = (float(bins.identified_low[0]), float(bins.identified_high[0]))
    return collect.Interval(
        value=float(bins.share[0]),
        low=float(bins.low[0]),
        high=float(bins.high[0]),
        identified=open_ends,
    )


def test_what_the_table_leaves_open_is_told_from_what_few_reports_leave_open() -> None:
    """Air times on [20, 700], share up to 156 minutes: the table of four levels cannot say it, a stepped one can.

    Reference: linear programs on 128 cells by another implementation, to +-0.003.
    """
    with datasets.flights() as path:
        values = collect.read_values(path, column=datasets.AIR_TIME).clip(20, 700)
    truth = float((values <= 156).mean())
    levels = [-497.8683104412995, 308.6234687789731, 411.3765312210269, 1217.8683104412994]
    for table, open_ends in (
        (design.optimal(epsilon=1.0, lower=20, upper=700, levels=levels).mechanism, (0.163, 0.949)),
        (
            families.k_randomized_response(lower=20, upper=700, levels=8, epsilon=1.0),
            (0.390, 0.840),
        ),
    ):
        share = open_share(table, values, 156.0)
        assert share.identified == pytest.approx(open_ends, abs=printed(2))
        # The open ends are printed to 0.005; a fifth of that for the figure's own rounding.
        assert share.low <= open_ends[0] + 6e-3 < truth < open_ends[1] - 6e-3 <= share.high
        assert (
            share.high - share.low < open_ends[1] - open_ends[0] + 0.04
        )  # the table is to blame, not n
    share = open_share(stepped(10, 1.0, lower=20, upper=700), values, 156.0)
    assert share.identified is not None
    assert (
        share.identified[1] - share.identified[0] < 1e-3
    )  # the region is open by the rounding of the edges alone
    assert share.low <= truth <= share.high
    # Three standard errors of what 20 intervals of other reports were: 0.0007 each.
    assert (share.high - share.low) / 2 == pytest.approx(0.0103, abs=2e-3)


def test_variances_of_a_report_of_the_reference() -> None:
    spread = spread_of(OPT4)
    # As written down: the table's levels are designed to 1e-6.
    assert spread.least(np.array([0.5, 0.0])) == pytest.approx([0.9778865834, 1.1158031], abs=1e-5)
    # Likewise.
    assert spread.greatest(np.array([0.5, 0.0])) == pytest.approx(
        [1.3658031151, 1.1158031], abs=1e-5
    )


# Coverage --------------------------------------------------------------------------------------------------------

LEVEL = 0.95
EDGES = (0.0, 0.1, 0.3, 1.0)


def fewest(draws: int) -> int:
    """Hits below which a coverage of 0.945 falls with probability 1e-5: the false-alarm rate of one comparison."""
    return int(stats.binom(draws, 0.945).ppf(1e-5))


@pytest.mark.slow
@pytest.mark.parametrize("x", [0.0, 0.03])
def test_intervals_of_a_constant_column_cover(x: float) -> None:
    """k-RR of 16 levels at epsilon 4, 2000 reports of one value: where intervals once held the truth in 40 to 80 %."""
    draws, rng = 40, np.random.default_rng(21)
    hits = dict.fromkeys(["mean", "variance", *EDGES[1:]], 0)
    for counts in rng.multinomial(2000, KRR16.pmf(x), size=draws):
        result = collect.estimate(
            CodeCounts(mechanism=KRR16, counts=counts), confidence=LEVEL, histogram=EDGES
        )
        hits["mean"] += result.mean.low <= x <= result.mean.high
        hits["variance"] += result.input_variance.low <= 0
        assert result.histogram is not None
        for (low, high), least, most in zip(
            pairwise(EDGES), result.histogram.low, result.histogram.high, strict=True
        ):
            inside = low <= x < high or x == high == 1
            hits[high] += least <= 1 - MANY <= most + MANY if inside else least <= 1e-12
    assert min(hits.values()) >= fewest(draws), hits


RARE = Mechanism(
    knots=[0.0, 1.0],
    levels=[-0.2, 20.0],
    weights=[[TOTAL - rare, rare] for rare in (TOTAL // 101, 6 * TOTAL // 101)],
)
FAR = design.optimal(epsilon=1.0, lower=0, upper=1, levels=[-0.75, 0.4, 2.5]).mechanism


LOPSIDED = [
    pytest.param(RARE, 50, id="a rare level"),
    pytest.param(FAR, 10, id="three uneven levels", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("table", "n"), LOPSIDED)
def test_intervals_of_lopsided_tables_cover_by_enumeration(table: Mechanism, n: int) -> None:
    """All outcomes but the rarest thousandth, which counts as missed; by the variance seen alone 88 and 93.7 % held."""
    every = [c for c in product(range(n + 1), repeat=table.levels.size) if sum(c) == n]
    columns = [((0.0, 1.0), (1 - p, p)) for p in (0.002, 0.06, 0.35, 1.0)]
    columns += [((x, x), (0.5, 0.5)) for x in (0.0, 0.45, 0.8125)] + [((0.97, 0.03), (0.65, 0.35))]
    pmfs = [
        stats.multinomial(n, np.array(p) @ table.pmf(np.array(x))).pmf(every) for x, p in columns
    ]
    seen = np.max(pmfs, axis=0) > 1e-3 / len(every)
    many = [
        CodeCounts(mechanism=table, counts=np.array(c))
        for c, use in zip(every, seen, strict=True)
        if use
    ]
    found = [
        (one.variance(), one.share(0.0, 0.8), one.share(0.5, 1.0))
        for one in fitted_together(many, confidence=0.95, edges=np.array([0.0, 0.5, 0.8, 1.0]))
    ]
    for (x, p), pmf in zip(columns, pmfs, strict=True):
        values, shares = np.array(x), np.array(p)
        variance = float(shares @ (values - shares @ values) ** 2)
        truths = (variance, float(shares[values < 0.8].sum()), float(shares[values > 0.5].sum()))
        for i, truth in enumerate(truths):
            held = [one[i].low - FEW <= truth <= one[i].high + FEW for one in found]
            assert pmf[seen] @ held >= 0.945, (x, p, i)


@pytest.mark.parametrize("n", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_the_mean_of_hard_columns_is_covered_from_ten_reports_on(n: int) -> None:
    """Rare far levels, where a plain score interval covers 83 to 93 %."""
    draws, rng = 1500, np.random.default_rng(22)
    far = design.optimal(epsilon=3.0, lower=0, upper=1, levels=[-0.055, -0.045, 0.5, 3.5]).mechanism
    krr = families.k_randomized_response(lower=0, upper=1, levels=4, epsilon=5.0)
    for mechanism in (far, krr, KRR16, RR):
        for values, shares in (([0.0], [1.0]), ([1.0], [1.0]), ([0.2, 1.0], [0.98, 0.02])):
            truth = float(np.dot(values, shares))
            outcomes, often = np.unique(
                rng.multinomial(n, shares @ mechanism.pmf(values), size=draws),
                axis=0,
                return_counts=True,
            )
            hits = 0
            for counts, times in zip(outcomes, often.tolist(), strict=True):
                reports = Sums.of_counts(counts)
                found = mean_interval(mechanism, reports, confidence=LEVEL)
                hits += times * (found.low <= truth <= found.high)
            assert hits >= fewest(draws), (mechanism.name, values, hits / draws)
