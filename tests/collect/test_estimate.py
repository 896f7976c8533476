"""Estimates against rationals, enumeration and a general optimiser; interval coverage in simulation."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from laws.registry import judges
from mezzotint import collect, families
from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.estimates import variance_of_report
from mezzotint.collect.intervals import Sums, bernstein, mean_interval
from mezzotint.collect.spreads import Spread, spread_of
from mezzotint.collect.support_points import (
    deviance,
    least_deviance,
    nodes_of,
    quick_fit,
    smooth_fit,
)
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import TOTAL
from reference import collect as reference
from tolerances import FEW, MANY, SOLVED

RR = families.randomized_response(lower=0, upper=1, epsilon=1.0)
RQM = families.rqm(lower=0, upper=1, levels=4, extension=0.5, q=0.4)
RQM16 = families.rqm(lower=0, upper=1, levels=16, extension=0.5, q=0.42)
KRR = families.k_randomized_response(lower=0, upper=1, levels=6, epsilon=3.0)
PBM = families.pbm(lower=0, upper=1, trials=15, theta=0.3)
ALL = {"rr": RR, "rqm": RQM, "rqm16": RQM16, "krr": KRR, "pbm": PBM}
each = pytest.mark.parametrize("mechanism", ALL.values(), ids=ALL.keys())


def drawn(mechanism: Mechanism, x: np.ndarray, rng: np.random.Generator) -> CodeCounts:
    """Reports of the inputs, drawn by the pmf alone, not by the sampler."""
    cumulated = np.cumsum(mechanism.pmf(x), axis=1)
    codes = (rng.random(x.size)[:, None] * cumulated[:, -1:] > cumulated).sum(axis=1)
    return CodeCounts.from_codes(codes, mechanism=mechanism)


def expected(mechanism: Mechanism, x: np.ndarray, n: int) -> CodeCounts:
    """Counts as near as integers get to what n reports of a population give on average."""
    return CodeCounts(
        mechanism=mechanism, counts=np.rint(mechanism.pmf(x).mean(axis=0) * n).astype(int)
    )


# The mean ------------------------------------------------------------------------------------------------------


@given(counts=st.lists(st.integers(0, 10**9), min_size=4, max_size=4).filter(lambda c: sum(c) > 1))
def test_mean_and_variance_are_those_of_the_decoded_reports(counts: list[int]) -> None:
    mean = Sums.of_counts(counts).mean(RQM.levels)
    variance = variance_of_report(CodeCounts(mechanism=RQM, counts=np.array(counts)))
    levels = RQM.levels.tolist()
    assert abs(Fraction(mean) - reference.exact_mean(counts, levels)) <= Fraction(1, 10**14)
    exact = max(
        float(reference.exact_variance(counts, levels)), float(spread_of(RQM).variances.min())
    )
    assert variance == pytest.approx(exact, rel=FEW)


def test_the_mean_is_unbiased_over_every_outcome() -> None:
    """All 2**8 outcomes of 8 one-bit reports, weighted by their exact probabilities."""
    x = np.linspace(0, 1, 8)
    up = RR.weights[0, 1] + (RR.weights[1, 1] - RR.weights[0, 1]) * x
    up = up / TOTAL
    total = 0.0
    for outcome in range(2**8):
        bits = np.array([outcome >> j & 1 for j in range(8)])
        chance = np.prod(np.where(bits == 1, up, 1 - up))
        total += chance * Sums.of_counts(np.bincount(bits, minlength=2)).mean(RR.levels)
    assert total == pytest.approx(x.mean(), abs=FEW)


def test_no_spread_among_few_reports_is_no_certainty() -> None:
    counts = CodeCounts(mechanism=RR, counts=np.array([0, 3]))
    assert Sums.of_counts(counts.counts).mean(RR.levels) == RR.levels[1]
    assert variance_of_report(counts) == spread_of(RR).variances.min() > 0


@each
def test_least_variance_of_a_report_is_at_a_row(mechanism: Mechanism) -> None:
    assert spread_of(mechanism).variances.min() <= mechanism.variance(
        np.linspace(0, 1, 1001)
    ).min() * (1 + FEW)


@each
def test_greatest_variance_of_a_report_against_a_grid(mechanism: Mechanism) -> None:
    ours, grid = (
        spread_of(mechanism).greatest_of_all,
        reference.greatest_variance(mechanism, steps=60),
    )
    assert grid * (1 - FEW) <= ours <= grid * 1.001


def test_the_safe_half_width_is_bernsteins() -> None:
    """P(|deviation| >= t) <= 2 exp(-n t^2 / (2 v + 2 R t / 3)) equals 1 - level at the returned t, bias aside."""
    for n in (1, 10, 10**6):
        t = bernstein(spread_of(RQM), n=n, confidence=0.9)
        reach = max(RQM.levels[-1] - 0, 1 - RQM.levels[0])
        tail = 2 * math.exp(-n * t**2 / (2 * spread_of(RQM).greatest_of_all + 2 * reach * t / 3))
        assert tail == pytest.approx(0.1, rel=MANY)


def test_bias_widens_the_interval() -> None:
    weights = np.array([[TOTAL // 2, TOTAL // 2], [TOTAL // 2, TOTAL // 2]])
    useless = Mechanism(knots=np.array([0.0, 1.0]), levels=np.array([0.0, 1.0]), weights=weights)
    assert useless.max_bias == 0.5
    result = collect.estimate(CodeCounts(mechanism=useless, counts=np.array([5000, 5000])))
    assert result.mean.low <= 0 < 1 <= result.mean.high


# Nodes and likelihood ------------------------------------------------------------------------------------------


@each
def test_nodes_reach_what_any_input_does(mechanism: Mechanism) -> None:
    """The pmf of every input is the mixture of the two nodes of its cell that keeps the mean."""
    counts = expected(mechanism, np.linspace(0, 1, 100), 10**6)
    nodes = nodes_of(counts, edges=np.array([0.21, 0.83]))
    assert {0.21, 0.83} <= set(nodes.breaks)
    x = np.random.default_rng(4).uniform(0, 1, 300)
    for value, row in zip(x, mechanism.pmf(x), strict=True):
        cell = int(np.searchsorted(nodes.breaks, value, side="right")) - 1
        ends = np.flatnonzero((nodes.first_cell <= cell) & (nodes.last_cell >= cell))
        assert ends.size == 2
        left, right = ends[np.argsort(nodes.x[ends])]
        t = (value - nodes.x[left]) / (nodes.x[right] - nodes.x[left])
        assert (1 - t) * nodes.pmf[left] + t * nodes.pmf[right] == pytest.approx(row, abs=FEW)


def test_many_levels_are_merged_without_loss_of_mass() -> None:
    mechanism = families.pbm(lower=0, upper=1, trials=255, theta=0.25)
    counts = expected(mechanism, np.linspace(0, 1, 100), 10**6)
    nodes = nodes_of(counts)
    assert nodes.counts.size <= 64
    assert nodes.n == counts.n
    assert nodes.pmf.sum(axis=1) == pytest.approx(1, abs=FEW)


@each
@pytest.mark.parametrize("n", [50, 10**4, 10**8])
def test_the_fit_is_the_best_there_is(mechanism: Mechanism, n: int) -> None:
    x = np.random.default_rng(5).beta(2, 5, 4000)
    nodes = nodes_of(
        drawn(mechanism, x[:n], np.random.default_rng(6))
        if n <= 4000
        else expected(mechanism, x, n)
    )
    em = quick_fit(nodes, steps=5_000)
    peak = least_deviance(nodes)
    assert peak.sum() == pytest.approx(1, rel=FEW)
    assert (peak >= 0).all()
    # Weak duality: no distribution beats `peak` by more than gap_at, which at 1e8 reports is rounding alone.
    if n <= 10**4:
        assert reference.gap_at(nodes.pmf, nodes.counts, peak) < 0.05
    assert deviance(nodes, peak) <= deviance(nodes, em) + MANY


@each
def test_the_point_is_plain_em_and_stops_where_it_gains_next_to_nothing(
    mechanism: Mechanism,
) -> None:
    nodes = nodes_of(expected(mechanism, np.random.default_rng(5).beta(2, 5, 4000), 10**6))
    masses = smooth_fit(nodes)
    slow = reference.plain_em(
        nodes.pmf, nodes.counts, start=smooth_fit(nodes, max_iterations=0), gain=1e-8
    )
    assert masses == pytest.approx(slow, abs=FEW)


def test_the_least_deviance_against_plain_em() -> None:
    counts = drawn(KRR, np.random.default_rng(5).beta(2, 5, 500), np.random.default_rng(6))
    nodes = nodes_of(counts)
    slow = reference.least_deviance(KRR, counts.counts, np.linspace(0, 1, 129))
    # Of a deviance: EM of the twin stops within a thousandth.
    assert deviance(nodes, least_deviance(nodes)) == pytest.approx(slow, abs=2e-3)


def test_with_two_levels_only_the_mean_is_known() -> None:
    """One bit: the region is an interval of means; the variance can be anything from 0 to (1 - mu) mu."""
    counts = expected(RR, np.full(10, 0.3), 10**9)
    result = collect.estimate(counts, histogram=[0.6, 0.9], quantiles=[0.5])
    assert result.input_variance.low == 0
    assert result.input_variance.high == pytest.approx(
        0.3 * 0.7, abs=1e-3
    )  # 10 standard errors of 1e9 reports, 2e-4
    assert result.histogram is not None
    # Share 0 by what the cone solver leaves, 1e-7 of numbers of size 1.
    assert result.histogram.low[0] == pytest.approx(0, abs=1e-6)
    assert result.histogram.high[0] == pytest.approx(0.3 / 0.6, abs=1e-3)  # Markov's inequality
    # P(X >= q) <= 0.3 / q, so the median can reach 0.6; symmetrically it can be 0.
    assert result.quantiles is not None
    assert next(iter(result.quantiles.values())).low == 0
    assert next(iter(result.quantiles.values())).high == pytest.approx(0.6, abs=1 / 64)


def test_a_deterministic_fine_table_recovers_the_distribution() -> None:
    """Stochastic rounding to 33 levels at 10**9 reports: histogram, variance and quantiles come back."""
    fine = families.stochastic_rounding(lower=0, upper=1, levels=33)
    x = stats.beta(2, 5).ppf((np.arange(20_000) + 0.5) / 20_000)
    result = collect.estimate(expected(fine, x, 10**9), histogram=4, quantiles=[0.25, 0.5, 0.9])
    assert result.histogram is not None
    assert result.quantiles is not None
    shares = np.diff(stats.beta(2, 5).cdf(np.linspace(0, 1, 5)))
    assert (result.histogram.low <= shares).all()
    assert (shares <= result.histogram.high).all()
    # An input is known to a cell of 1/32, in which the density moves by a few percent.
    assert result.histogram.share == pytest.approx(shares, abs=0.02)
    assert result.input_variance.low <= x.var() <= result.input_variance.high
    # A thousandth of the range squared: reports are many, and the table leaves no more open.
    assert result.input_variance.high - result.input_variance.low < 1e-3
    for probability, interval in zip(result.quantiles, result.quantiles.values(), strict=True):
        assert interval.low <= stats.beta(2, 5).ppf(probability) <= interval.high
        assert interval.high - interval.low < 0.08


# The whole estimate --------------------------------------------------------------------------------------------


@each
@pytest.mark.parametrize("method", ["asymptotic", "safe"])
@pytest.mark.parametrize("n", [2, pytest.param(30, marks=pytest.mark.slow), 3000])
def test_every_point_lies_in_its_interval_and_json_is_plain(
    mechanism: Mechanism, method: str, n: int
) -> None:
    counts = drawn(mechanism, np.random.default_rng(n).beta(2, 5, n), np.random.default_rng(3))
    result = collect.estimate(counts, method=method, histogram=5, quantiles=[0.1, 0.5, 0.9])
    assert result.histogram is not None
    assert result.quantiles is not None
    for interval in (
        result.mean,
        result.input_variance,
        result.privacy_variance,
        *result.quantiles.values(),
    ):
        assert interval.low <= interval.value <= interval.high
    assert (result.histogram.low <= result.histogram.share + MANY).all()
    assert (result.histogram.share <= result.histogram.high + MANY).all()
    assert result.histogram.share.sum() == pytest.approx(1, rel=FEW)
    values = [interval.value for interval in result.quantiles.values()]
    assert values == sorted(values)
    document = json.loads(json.dumps(result.as_dict(), allow_nan=False))
    assert list(document)[:5] == ["n", "mean", "ci_low", "ci_high", "confidence"]
    assert (document["n"], document["ci_low"]) == (n, result.mean.low)


def test_the_split_adds_up_and_is_right() -> None:
    """Population with known variance: sampling and privacy parts against their exact values."""
    x = np.random.default_rng(1).beta(2, 5, 50_000)
    result = collect.estimate(expected(KRR, x, 10**8))
    noise = float(KRR.variance(x).mean())
    assert result.privacy_variance.low <= noise <= result.privacy_variance.high
    assert result.input_variance.low <= x.var() <= result.input_variance.high
    assert result.report_variance == pytest.approx(
        noise + x.var(), rel=1e-4
    )  # 1e8 reports rounded to whole counts
    assert result.input_variance.value + result.privacy_variance.value == pytest.approx(
        result.report_variance
    )
    total = result.sampling_error.value**2 + result.privacy_error.value**2
    assert total == pytest.approx(result.standard_error**2, rel=FEW)


def test_reports_of_another_table_are_noticed() -> None:
    """Shares that no input of this table can give."""
    other = CodeCounts(mechanism=RQM, counts=np.array([0, 50_000, 0, 50_000]))
    assert collect.estimate(other).deviance > 1000
    assert collect.estimate(other, method="safe").deviance > 1000
    never = Mechanism(knots=[0, 1], levels=[0, 0.5, 1], weights=[[TOTAL // 2, 0, TOTAL // 2]] * 2)
    with pytest.raises(InfeasibleError, match="code 1 was reported, which this table never draws"):
        collect.estimate(CodeCounts(mechanism=never, counts=np.array([3, 1, 3])))


@pytest.mark.parametrize("method", ["safe", "asymptotic"])
def test_an_edge_one_float_below_a_jump_leaves_no_more_out_than_one_at_the_jump(
    method: str,
) -> None:
    """The bins beyond it contain one input more, whose row is the one left of the jump."""
    grid = np.linspace(0, 1, 11)  # 0.3 and 0.6 are one float above the literals
    jumps, below = grid[[3, 6]], np.nextafter(grid[[3, 6]], 0)
    table = families.erm(lower=0, upper=1, bins=[-0.4, *grid[[0, 3, 6, 7, 10]], 1.4], gamma=4.0)
    assert {*jumps.tolist()} <= {
        knot for knot, next_knot in pairwise(table.knots.tolist()) if knot == next_knot
    }
    drawn = np.random.default_rng(0).multinomial(20_000, table.pmf(0.2))
    at, under = (
        collect.estimate(
            CodeCounts(mechanism=table, counts=drawn),
            method=method,
            histogram=[0, 0.1, *edges, 0.7, 1],
            quantiles=[0.9],
            deal=1,
        )
        for edges in (jumps.tolist(), below.tolist())
    )
    assert (
        next(iter(under.quantiles.values())).low <= 0.2 <= next(iter(under.quantiles.values())).high
    )
    assert under.histogram.low[0] <= 0  # no input is below 0.1
    assert (under.histogram.low <= at.histogram.low + SOLVED).all()
    assert (under.histogram.high >= at.histogram.high - SOLVED).all()
    np.testing.assert_allclose(
        under.histogram.high[[0, 1, 4]], at.histogram.high[[0, 1, 4]], atol=SOLVED
    )


def test_one_report_says_little() -> None:
    one = CodeCounts(mechanism=RQM, counts=np.array([0, 1, 0, 0]))
    safe, usual = collect.estimate(one, method="safe"), collect.estimate(one)
    assert (safe.mean.low, safe.mean.high) == (0, 1)  # the whole range, and no more
    assert usual.mean.low == pytest.approx(0, abs=MANY)
    assert usual.mean.high == pytest.approx(1, abs=MANY)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"confidence": 1.0}, "confidence=1.0"),
        ({"confidence": float("nan")}, "confidence=nan"),
        ({"confidence": "x"}, "confidence=x"),
        ({"histogram": True}, "histogram=True"),
        ({"histogram": ["a", "b"]}, r"histogram\[0\]=a"),
        ({"quantiles": 0.5}, r"quantiles=0\.5"),
        ({"quantiles": ["a"]}, r"quantiles\[0\]=a"),
        ({"method": "bayes"}, "method=bayes"),
        ({"histogram": 0}, "histogram=0"),
        ({"histogram": [0.5, 0.2]}, "edges must increase"),
        ({"histogram": [-1.0, 0.2]}, r"inside \[0, 1\]"),
        ({"quantiles": []}, "quantiles="),
        ({"quantiles": [0.5, 1.0]}, "quantiles="),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        collect.estimate(CodeCounts(mechanism=RQM, counts=np.array([5, 5, 5, 5])), **options)


def test_no_reports_are_refused() -> None:
    with pytest.raises(ParameterError, match="no reports"):
        collect.estimate(CodeCounts(mechanism=RQM, counts=np.zeros(4, dtype=int)))


# Coverage ------------------------------------------------------------------------------------------------------


RUNS = 400
LEVEL = 0.9
# A false alarm of one comparison has probability below 1e-5 when coverage is exactly LEVEL: binomial lower tail.
FEWEST = int(stats.binom(RUNS, LEVEL).ppf(1e-5))


@each
@pytest.mark.parametrize("n", [100, pytest.param(3000, marks=pytest.mark.slow)])
def test_coverage_of_the_mean(mechanism: Mechanism, n: int) -> None:
    """Population mean under fresh rows, and mean of fixed rows: both covered by the same interval."""
    rng = np.random.default_rng(11)
    rows = rng.beta(2, 5, n)
    hits = {"population": 0, "rows": 0, "safe": 0}
    for _ in range(RUNS):
        fresh, fixed = drawn(mechanism, rng.beta(2, 5, n), rng), drawn(mechanism, rows, rng)
        for name, counts, truth in (("population", fresh, 2 / 7), ("rows", fixed, rows.mean())):
            reports = Sums.of_counts(counts.counts)
            interval = mean_interval(mechanism, reports, confidence=LEVEL)
            hits[name] += interval.low <= truth <= interval.high
        half = bernstein(spread_of(mechanism), n=n, confidence=LEVEL) + mechanism.max_bias
        hits["safe"] += (
            abs(Sums.of_counts(fixed.counts).mean(mechanism.levels) - rows.mean()) <= half
        )
    assert min(hits.values()) >= FEWEST, hits


@judges(
    "collect.evidence.Evidence.quantile",
    "collect.evidence.Evidence.share",
    "collect.evidence.Evidence.variance",
)
@pytest.mark.slow
@each
@pytest.mark.parametrize("n", [200, 20_000])
def test_coverage_of_everything_else(mechanism: Mechanism, n: int) -> None:
    """Variance, shares of bins and quantiles of a Beta(2, 5) population; 60 runs, level 0.9, alarm 1e-5 each."""
    runs, rng = 60, np.random.default_rng(12)
    fewest = int(stats.binom(runs, LEVEL).ppf(1e-5))
    population = stats.beta(2, 5)
    shares, probabilities = np.diff(population.cdf([0, 0.25, 0.5, 1])), [0.25, 0.5, 0.9]
    hits = np.zeros(1 + shares.size + len(probabilities))
    for _ in range(runs):
        counts = drawn(mechanism, rng.beta(2, 5, n), rng)
        result = collect.estimate(
            counts, confidence=LEVEL, histogram=[0, 0.25, 0.5, 1], quantiles=probabilities
        )
        assert result.histogram is not None
        assert result.quantiles is not None
        hits[0] += result.input_variance.low <= population.var() <= result.input_variance.high
        hits[1:4] += (result.histogram.low <= shares) & (shares <= result.histogram.high)
        truth = zip(result.quantiles.values(), population.ppf(probabilities), strict=True)
        hits[4:] += [interval.low <= value <= interval.high for interval, value in truth]
    assert (hits >= fewest).all(), hits


def test_values_that_rounding_alone_tells_apart_are_one() -> None:
    """Decoders of categories are inverses in floats: equal entries differ in their last bits, on some CPUs."""
    values = np.array([-0.25, -0.25, 1.5])
    shaken = values + np.array([0.0, 2.0**-54, 0.0])
    assert shaken[1] != values[1]
    one, two = (Spread(pmf=np.full((1, 3), 1 / 3), values=those) for those in (values, shaken))
    assert one.lattice == pytest.approx(two.lattice, rel=FEW)
    assert one.lattice >= 1.75 / 2
