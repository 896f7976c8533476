"""Intervals at every level from .8 to .9999, by sums over all outcomes: no draws where a sum can say it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy import stats

from laws.registry import judges
from mezzotint import Mechanism, collect, design, families
from mezzotint.collect import bets, intervals
from mezzotint.collect.bets import Betting, chunks_of
from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.intervals import (
    LADDER,
    Sums,
    clopper_pearson,
    event_of_category,
    normal_quantile,
    target_of_mean,
    targets_of_categories,
)
from mezzotint.collect.spreads import Spread, spread_of
from mezzotint.collect.support_points import dominating, nodes_of
from mezzotint.core.types import TOTAL
from reference.fits import fitted_together
from reference.outcomes import ones_of_fixed, outcomes, probabilities, score_accepts
from tolerances import FEW, MANY

LEVELS = (0.8, 0.9, 0.95, 0.99, 0.999, 0.9999)
SHARES = (0.0, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 0.8, 0.97, 0.99, 1.0)

Column = tuple[tuple[float, ...], tuple[float, ...]]

COLUMNS: tuple[Column, ...] = (
    ((0.0,), (1.0,)),
    ((0.03,), (1.0,)),
    ((0.5,), (1.0,)),
    ((0.0, 1.0), (0.99, 0.01)),
    ((0.0, 1.0), (0.5, 0.5)),
    ((0.2, 1.0), (0.98, 0.02)),
)


def misses(table: Mechanism, column: Column, n: int, every: np.ndarray) -> np.ndarray:
    """(levels,) chance that the score interval misses the expected report, over that which its level allows."""
    pmf = np.array(column[1]) @ table.pmf(np.array(column[0]))
    chance = probabilities(every, pmf)
    missed = []
    for confidence in LEVELS:
        accepted, _ = score_accepts(table, every, float(pmf @ table.levels), confidence)
        missed.append(chance[~accepted].sum() / (1 - confidence))
    return np.array(missed)


ROUNDING4 = families.stochastic_rounding(lower=0, upper=1, levels=4)
KRR3E8 = families.k_randomized_response(lower=0, upper=1, levels=3, epsilon=8.0)
TABLES: dict[str, Callable[[], Mechanism]] = {
    "no noise": lambda: ROUNDING4,
    "k-RR 3, eps 1": lambda: families.k_randomized_response(
        lower=0, upper=1, levels=3, epsilon=1.0
    ),
    "k-RR 3, eps 8": lambda: KRR3E8,
    "k-RR 4, eps 5": lambda: families.k_randomized_response(
        lower=0, upper=1, levels=4, epsilon=5.0
    ),
    "optimal 3, eps .1": lambda: design.optimal(epsilon=0.1, lower=0, upper=1, levels=3).mechanism,
    "optimal 4, eps 4": lambda: design.optimal(epsilon=4.0, lower=0, upper=1, levels=4).mechanism,
    "far level": lambda: (
        design.optimal(epsilon=3.0, lower=0, upper=1, levels=[-0.055, -0.045, 0.5, 3.5]).mechanism
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_the_score_interval_holds_at_every_level(name: str) -> None:
    table = TABLES[name]()
    for n in (1, 2, 3, 6, 10, 16, 30):
        every = outcomes(n, table.levels.size)
        for column in COLUMNS:
            missed = misses(table, column, n, every)
            assert missed.max() <= 1, (n, column, missed)


CHECKS = [
    # No third moment: four levels without noise, one hundredth of ones.
    ("_skewness", lambda z: 0 * z, ROUNDING4, ((0.0, 1.0), (0.99, 0.01)), 10, 10.0),
    # Jumps as at 95 %: three levels, a tenth of ones.
    ("_unseen_jumps", lambda z: 2.0 + 0 * z, KRR3E8, ((0.0, 1.0), (0.9, 0.1)), 200, 1.4),
    # The smallest gap alone, as before: three levels of which two are near each other.
    (
        "_discreteness",
        lambda spread, variance, *ends: np.full_like(variance, spread.lattice),
        design.optimal(epsilon=0.1, lower=0, upper=1, levels=3).mechanism,
        ((0.5,), (1.0,)),
        18,
        1.1,
    ),
]


@pytest.mark.parametrize(("name", "other", "table", "column", "n", "worst"), CHECKS)
def test_every_term_is_needed(
    name: str,
    other: Callable[..., np.ndarray],
    table: Mechanism,
    column: Column,
    n: int,
    worst: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without it some interval misses more often than its level allows: these tests can fail."""
    every = outcomes(n, table.levels.size)
    assert misses(table, column, n, every).max() <= 1
    monkeypatch.setattr(intervals, name, other)
    assert misses(table, column, n, every).max() > worst


# One event ---------------------------------------------------------------------------------------


@judges(
    "collect.intervals.target_of_mean",
    "collect.intervals.target_of_values",
    "collect.intervals.Target.interval",
)
@pytest.mark.parametrize("epsilon", [0.25, 1.0, 4.0, 8.0, 12.0])
def test_two_levels_are_covered_at_every_n_and_level(epsilon: float) -> None:
    """Clopper and Pearson's: the sum over all outcomes, as drawn; of fixed rows at half of them ones."""
    table = families.randomized_response(lower=0, upper=1, epsilon=epsilon)
    target = target_of_mean(table)
    assert target.proved
    for n, confidence in product((1, 3, 10, 60), LEVELS):
        every = outcomes(n, 2)
        found = [target.interval(Sums.of_counts(counts), confidence=confidence) for counts in every]
        low, high = np.array([(interval.low, interval.high) for interval in found]).T
        for share in SHARES:
            held = (low <= share + FEW) & (share - FEW <= high)
            assert probabilities(every, table.pmf(share))[held].sum() >= confidence - MANY, (
                n,
                confidence,
                share,
            )
            ones = round(share * n)
            law = ones_of_fixed(table, n, ones)
            fixed = ones / n
            held = (low <= fixed + FEW) & (fixed - FEW <= high)
            assert law[every[:, 1]][held].sum() >= confidence - MANY, (n, confidence, ones)


CATEGORIES = {
    "k-RR 100, eps 8": (
        families.categorical(categories=range(100), epsilon=8.0, method="krr"),
        100,
    ),
    "k-RR 50, eps 12": (families.categorical(categories=range(50), epsilon=12.0, method="krr"), 20),
    "k-RR 30, eps 6": (families.categorical(categories=range(30), epsilon=6.0, method="krr"), 100),
    "subsets of 10, eps 1": (
        families.categorical(categories=range(10), epsilon=1.0, method="subset"),
        200,
    ),
    "planes of 13, eps 1": (
        families.categorical(categories=range(13), epsilon=1.0, method="projective"),
        50,
    ),
}


@judges("collect.intervals.targets_of_categories")
@pytest.mark.parametrize("name", CATEGORIES)
@pytest.mark.parametrize("confidence", LEVELS)
def test_all_frequencies_at_once(name: str, confidence: float) -> None:
    """The sum of the exact chances of missing each category is at most 1 - level, for four columns."""
    table, n = CATEGORIES[name]
    k = len(table.categories or ())
    targets = targets_of_categories(table)
    assert all(target.proved for target in targets)
    columns = [np.eye(k)[0], np.full(k, 1 / k), np.r_[0.9, np.full(k - 1, 0.1 / (k - 1))]]
    columns.append(np.r_[np.full(k // 2, 1 / (k // 2)), np.zeros(k - k // 2)])
    supports = np.arange(n + 1)
    low, high = clopper_pearson(supports, n, (1 - confidence) / k / 2)
    for shares in columns:
        pmf, missed = shares @ table.probabilities, 0.0
        for category, target in enumerate(targets):
            event = target.event
            assert event is not None
            ends = [
                line[0] + line[1] * end for line, end in ((event.lower, low), (event.upper, high))
            ]
            held = (ends[0] <= shares[category] + FEW) & (shares[category] - FEW <= ends[1])
            missed += stats.binom.pmf(supports, n, pmf[event.codes].sum())[~held].sum()
        assert missed <= 1 - confidence + MANY, shares


def test_simultaneous_frequencies_are_those_of_the_event() -> None:
    """What `estimate` returns is what the sums above are about, the unbiased point added to it."""
    table, n = CATEGORIES["k-RR 30, eps 6"]
    counts = np.zeros(30, dtype=int)
    counts[:2] = n - 3, 3
    found = collect.estimate(CodeCounts(mechanism=table, counts=counts), simultaneous=True)
    assert isinstance(found, collect.Frequencies)
    event = event_of_category(table, 1)
    assert event is not None
    low, high = clopper_pearson(3, n, 0.05 / 30 / 2)
    # Ends carry a margin of 1e-12 of the decoder's values, 1 here, for rounding.
    assert found.shares[1].low == max(0, event.lower[0] + event.lower[1] * low)
    # The other end as well: ten such margins are allowed.
    assert found.shares[1].high == pytest.approx(event.upper[0] + event.upper[1] * high, abs=1e-11)


def test_a_category_whose_codes_do_not_decide_it_has_no_event() -> None:
    """Sampled subsets: other categories give its codes different chances, so that no map is exact."""
    sampled = families.categorical(categories=range(40), epsilon=1.0, method="subset")
    assert event_of_category(sampled, 0) is None
    assert not targets_of_categories(sampled)[0].proved


# Differences -------------------------------------------------------------------------------------

BIT8 = families.randomized_response(lower=0, upper=1, epsilon=8.0)


def bit_parts(table: Mechanism, n: int, confidence: float) -> list[collect.Part]:
    parts = []
    for ones in range(n + 1):
        counts = np.array([n - ones, ones])
        reports = CodeCounts(mechanism=table, counts=counts)
        group = collect.Group(counts=reports, weights=counts, squares=counts)
        parts.append(collect.parts_of(group, confidence=confidence)["mean"])
    return parts


@judges("collect.groups.difference", "collect.groups.stratified")
@pytest.mark.parametrize("sizes", [(10, 10), (5, 40)])
@pytest.mark.parametrize("confidence", LEVELS)
def test_differences_hold_at_every_level(sizes: tuple[int, int], confidence: float) -> None:
    """9 of 10 against 1 of 10 at .999: square-added sides reach .942, and the truth is .96."""
    first, second = (bit_parts(BIT8, n, confidence) for n in sizes)
    gaps = [[collect.difference(one, other) for other in second] for one in first]
    low, high = (
        np.array([[getattr(gap, end) for gap in row] for row in gaps]) for end in ("low", "high")
    )
    mixes = [
        [collect.stratified({"a": one, "b": other}, {"a": 1, "b": 2}) for other in second]
        for one in first
    ]
    low_mix, high_mix = (
        np.array([[getattr(mix, end) for mix in row] for row in mixes]) for end in ("low", "high")
    )
    laws = {
        (n, share): stats.binom.pmf(range(n + 1), n, float(BIT8.pmf(share)[1]))
        for n, share in product(sizes, SHARES)
    }
    for a, b in product(SHARES, repeat=2):
        law = np.outer(laws[sizes[0], a], laws[sizes[1], b])
        held = (low <= a - b + FEW) & (a - b - FEW <= high)
        assert law[held].sum() >= confidence - MANY, (a, b)
        mean = a / 3 + 2 * b / 3
        held = (low_mix <= mean + FEW) & (mean - FEW <= high_mix)
        assert law[held].sum() >= confidence - MANY, (a, b)


def test_square_adding_would_fail() -> None:
    """The check above can fail: sides added by their squares miss 26 times too often."""
    parts = bit_parts(BIT8, 10, 0.999)
    laws = [stats.binom.pmf(range(11), 10, float(BIT8.pmf(share)[1])) for share in (0.97, 0.01)]
    missed = 0.0
    for i, j in product(range(11), repeat=2):
        one, other = parts[i], parts[j]
        above = math.hypot(float(one.above[-1]), float(other.below[-1]))
        below = math.hypot(float(one.below[-1]), float(other.above[-1]))
        gap = one.value - other.value
        if not gap - below <= 0.96 <= gap + above:
            missed += laws[0][i] * laws[1][j]
    # Ten times the .001 that these intervals promise.
    assert missed > 10 * 0.001


def test_sides_grow_with_the_quantile() -> None:
    table = TABLES["optimal 4, eps 4"]()
    reports = Sums.of_counts(np.array([7, 5, 30, 4]))
    below, above = target_of_mean(table).sides(reports, 4.0 * LADDER)
    assert (np.diff(below) >= 0).all()
    assert (np.diff(above) >= 0).all()


# Weights ------------------------------------------------------------------------------------------


@judges("collect.groups.parts_of", "collect.groups.Part.of")
def test_weighted_bits_hold_at_every_level() -> None:
    """Ten reports of weight 5 and 150 of weight 1 at epsilon 10, by enumeration: 2.28 times too many once missed."""
    table, sizes, weights = (
        families.randomized_response(lower=0, upper=1, epsilon=10.0),
        (10, 150),
        (5, 1),
    )
    some, target = [range(11), range(151)], target_of_mean(table)
    low, high = np.empty((2, len(LEVELS), 11, 151))
    quantiles = np.array([normal_quantile(confidence) for confidence in LEVELS])
    for heavy, light in product(*some):
        ones = np.array([heavy, light])
        rest = np.array(sizes) - ones
        sums = [
            np.array(
                [rest @ np.power(weights, power), ones @ np.power(weights, power)], dtype=float
            )
            for power in (1, 2)
        ]
        counts = np.array([rest.sum(), ones.sum()])
        group = collect.Group(
            counts=CodeCounts(mechanism=table, counts=counts),
            weights=sums[0],
            squares=sums[1],
            heaviest=5.0,
        )
        below, above = target.sides(group.sums, quantiles)
        value = target.value(group.sums)
        low[:, heavy, light], high[:, heavy, light] = value - below, value + above
    total = 200
    for heavy_share, light_share in product((0.0, 0.05, 0.5, 1.0), (0.0, 0.02, 0.5)):
        laws = [
            stats.binom.pmf(numbers, n, float(table.pmf(share)[1]))
            for numbers, n, share in zip(some, sizes, (heavy_share, light_share), strict=True)
        ]
        truth = (50 * heavy_share + 150 * light_share) / total
        for confidence, lows, highs in zip(LEVELS, low, high, strict=True):
            held = (lows <= truth + FEW) & (truth - FEW <= highs)
            assert np.outer(*laws)[held].sum() >= confidence - MANY, (
                heavy_share,
                light_share,
                confidence,
            )


def test_an_unknown_heaviest_weight_is_bounded() -> None:
    weights = np.array([1.0, 1.0, 2.0, 7.0])
    table = families.randomized_response(lower=0, upper=1, epsilon=1.0)
    counts = CodeCounts(mechanism=table, counts=np.array([4, 0]))
    squares = np.array([(weights**2).sum(), 0.0])
    group = collect.Group(counts=counts, weights=np.array([weights.sum(), 0.0]), squares=squares)
    assert 7.0 <= group.sums.heaviest <= weights.sum()
    equal = collect.Group(
        counts=counts, weights=np.array([10.0, 0.0]), squares=np.array([25.0, 0.0])
    )
    assert equal.sums.heaviest == 2.5


# Bounds on variances -----------------------------------------------------------------------------


def test_rows_whose_means_rounding_tells_apart_are_one_point() -> None:
    """Else the slope between them is made of rounding, and the greatest variance is read off a wrong vertex."""
    bit = families.randomized_response(lower=0, upper=1, epsilon=1.0)
    pmf = np.kron(bit.probabilities, bit.probabilities)
    values = np.outer(bit.levels - 0.3, bit.levels - 0.3).ravel()
    spread = Spread(pmf=pmf, values=values)
    variances = []
    for weights in np.random.default_rng(1).dirichlet(np.full(4, 0.3), 4000):
        law = weights @ pmf
        variances.append(law @ (values - law @ values) ** 2)
    assert spread.greatest_of_all >= max(variances) * (1 - FEW)
    assert spread.greatest_of_all <= max(variances) * 1.02  # the draws come near the greatest


def test_ranges_of_variances_against_a_grid() -> None:
    spread = spread_of(TABLES["far level"]())
    low, high = np.array([0.0, 0.1, 0.4]), np.array([0.05, 0.7, 1.0])
    grid = low + (high - low) * np.linspace(0, 1, 20_001)[:, None]
    least, greatest = spread.least(grid).min(axis=0), spread.greatest(grid).max(axis=0)
    # To the step of the grid, 5e-5 of the range.
    assert spread.least_between(low, high) == pytest.approx(least, rel=1e-3)
    # To the same step.
    assert spread.greatest_between(low, high) == pytest.approx(greatest, rel=1e-3)


# Bets ----------------------------------------------------------------------------------------------

KRR8 = families.k_randomized_response(lower=0, upper=1, levels=8, epsilon=1.0)


def test_the_variance_of_few_far_reports_holds_at_high_levels() -> None:
    """Outcomes with at most two of 100 unnoised reports far: with four reports of the greatest variance added at every
    level, as many as .95 needs, they alone missed 1.9 times as often as .9999 allows."""
    mechanism = families.stochastic_rounding(lower=0, upper=1, levels=4)
    shares = np.array([0.9, 0.1]) @ mechanism.pmf([0.03, 0.97])
    truth = 0.9 * 0.1 * 0.94**2
    counts = [
        np.array([100 - far - near, near, middle, far - middle])
        for far in range(3)
        for middle in range(far + 1)
        for near in range(25)
    ]
    chances = [float(stats.multinomial.pmf(one, 100, shares)) for one in counts]
    assert sum(chances) > 0.0019  # beyond 24 near ones stand 1e-7 of it
    many = [CodeCounts(mechanism=mechanism, counts=one) for one in counts]
    fits = list(fitted_together(many, confidence=0.9999, edges=None))
    missed = 0.0
    for fit, chance in zip(fits, chances, strict=True):
        if fit.variance_end(upper=True) < truth:
            missed += chance
    assert missed <= 1e-4  # the level's error; lower ends are above the truth for other outcomes


def test_every_chunk_is_bet_on_by_those_before_it() -> None:
    counts = np.random.default_rng(3).multinomial(400, KRR8.pmf(0.3))
    nodes = nodes_of(CodeCounts(mechanism=KRR8, counts=counts))
    chunks = chunks_of(nodes, deal=5)
    assert sum(chunk.counts for chunk in chunks).tolist() == counts.tolist()
    assert chunks[0].expected.tolist() == nodes.pmf.mean(axis=0).tolist()
    moved = nodes.with_counts(counts - chunks[-1].counts + chunks[-1].counts[::-1])
    again = chunks_of(moved, deal=5)
    assert len(again) == len(bets.CHUNKS)


@judges("collect.evidence.Evidence.share")
def test_bets_cover() -> None:
    """Upper ends of P(X <= .3) = .9, one bound at a time; proved at .9 each."""
    rng, draws, tail, hits = np.random.default_rng(9), 60, 0.1, 0
    pmf = np.array([0.9, 0.1]) @ KRR8.pmf(np.array([0.03, 0.97]))
    edges = np.array([0.0, 0.3, 1.0])
    for deal, counts in enumerate(rng.multinomial(60, pmf, size=draws)):
        reports = CodeCounts(mechanism=KRR8, counts=counts)
        evidence = Betting(reports, confidence=1 - 2 * tail, edges=edges, deal=deal)
        _, outer = evidence.nodes.inside(0.0, 0.3)
        hits += evidence.greatest(outer, (0.0, 0.3)) >= 0.9
    # Below this number with probability 1e-5 if it held in .9 only.
    assert hits >= stats.binom(draws, 1 - tail).ppf(1e-5)


def test_the_capital_of_a_bet_against_the_truth_is_at_most_1_on_average() -> None:
    """Three codes, six reports, all outcomes of two chunks: E capital <= 1 at u = E v, whatever was chosen."""
    table = families.k_randomized_response(lower=0, upper=1, levels=3, epsilon=1.0)
    column, truth = (np.array([0.0, 1.0]), np.array([0.7, 0.3])), 0.7
    law = column[1] @ table.pmf(column[0])
    values = (table.knots < 0.5).astype(float)
    every = outcomes(3, 3)
    chance = probabilities(every, law)
    total = 0.0
    for (first, p), (second, q) in product(zip(every, chance, strict=True), repeat=2):
        capital = 1.0
        for expected, counts in (
            (table.probabilities.mean(axis=0), first),
            ((first + 0.5) / 4.5, second),
        ):
            decoder = dominating(table.probabilities, values, expected, width=0.5)
            stake = bets.stakes_of(decoder, expected, scale=1.0, least=0.0)[2]
            capital *= float(np.prod((1 + stake * (truth - decoder)) ** counts))
        total += p * q * capital
    assert 0 < total <= 1 + MANY


def test_a_fresh_deal_is_recorded_and_repeats_the_result() -> None:
    counts = CodeCounts(mechanism=KRR8, counts=np.array([40, 30, 20, 10, 8, 7, 6, 5]))
    first = collect.estimate(counts, method="safe", histogram=2)
    again = collect.estimate(counts, method="safe", histogram=2, deal=first.deal)
    other = collect.estimate(counts, method="safe", histogram=2)
    assert first.deal is not None
    assert first.histogram is not None
    assert again.histogram is not None
    assert first.histogram.high.tolist() == again.histogram.high.tolist()
    assert other.deal != first.deal
    assert collect.estimate(counts, histogram=2).deal is None


def test_a_constant_decoder_is_no_bet() -> None:
    assert not bets.stakes_of(np.ones(3), np.full(3, 1 / 3), scale=0.1, least=0.0).any()
    stakes = bets.stakes_of(np.array([0.0, 5.0]), np.array([0.5, 0.5]), scale=1e3, least=-1.0)
    assert stakes.max() * (5.0 - -1.0) == pytest.approx(bets.MOST_STAKED, rel=FEW)


def test_stakes_on_a_chunk_do_not_know_the_chunks_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ends of the variance: what the last chunk is bet with moves, no earlier stake does."""
    table = families.k_randomized_response(lower=0, upper=1, levels=8, epsilon=5.0)
    counts = CodeCounts(mechanism=table, counts=np.array([14, 13, 12, 11, 12, 11, 13, 12]))
    plain_stakes, made = bets.stakes_of, list[list[float]]()

    def recorded(*decoder_and_shares: np.ndarray, scale: float, least: float) -> np.ndarray:
        stakes = plain_stakes(*decoder_and_shares, scale=scale, least=least)
        made.append(stakes.tolist())
        return stakes

    monkeypatch.setattr(bets, "stakes_of", recorded)
    chunks = chunks_of(nodes_of(counts), deal=5)
    for centre in (0.5, 1.0):
        evidence = Betting(counts, confidence=0.95, edges=None, deal=5)
        last = replace(chunks[-1], centre=centre)
        vars(evidence)["folds"] = [*chunks[:-1], last]
        evidence.variance()
    size = len(chunks)
    first, second = made[: 2 * size], made[2 * size :]
    for end in (slice(0, size), slice(size, 2 * size)):
        assert first[end][:-1] == second[end][:-1]
        assert first[end][-1] != second[end][-1]


@pytest.mark.parametrize("borders", [(0, 40), (3, 4), (17, 90), (90, 128), (0, 128)])
def test_mass_on_a_node_counts_as_that_of_any_cell_that_it_ends(borders: tuple[int, int]) -> None:
    """An input inside a cell is a mixture of the cell's two ends: neither bound may cut it off."""
    nodes = nodes_of(CodeCounts(mechanism=KRR8, counts=np.full(8, 50)))
    start, stop = borders
    assert nodes.breaks.size >= 129
    inner, outer = nodes.inside(nodes.breaks[start], nodes.breaks[stop])
    for cell in range(nodes.breaks.size - 1):
        ends = (nodes.first_cell <= cell) & (cell <= nodes.last_cell)
        assert ends.sum() == 2
        if start <= cell < stop:
            assert (outer[ends] == 1).all()
        else:
            assert (inner[ends] == 0).all()
    assert (inner <= outer).all()
    # Of the nodes at the two borders, which end a cell on either side, only the outer bound counts.
    at_borders = (nodes.x == nodes.breaks[start]) | (nodes.x == nodes.breaks[stop])
    assert (outer - inner)[~at_borders].sum() == 0
    assert outer.sum() == stop - start + 1


def test_safe_quantiles_skip_no_break() -> None:
    """The first break at which a test fails ends the search, although tests farther in would pass."""
    evidence = Betting(
        CodeCounts(mechanism=KRR8, counts=np.full(8, 50)), confidence=0.95, edges=None, deal=5
    )
    breaks = evidence.base.breaks

    def share_below(values: np.ndarray, edges: tuple[float, float]) -> float:
        """P(X <= break): small everywhere but at the fourth break."""
        return 1.0 if edges[1] == breaks[4] and values.max() > 0 else 0.0

    low, _ = evidence.quantile_ends(0.5, share_below)
    assert low == breaks[3]


def test_a_share_within_which_rows_differ_has_no_event() -> None:
    """A stepped table decides the share beyond its own edge, and no other; a table that mixes decides none."""
    stepped = collect.threshold_table(1.0, lower=0, upper=10, threshold=4)
    for table, edge, decides in ((stepped, 4.0, True), (stepped, 5.0, False), (KRR8, 0.5, False)):
        counts = CodeCounts(mechanism=table, counts=np.full(table.levels.size, 50))
        nodes = nodes_of(counts, edges=np.array([edge]))
        assert (nodes.event_of_share(edge, table.upper) is not None) == decides


def test_no_mean_within_the_range_is_passed_over() -> None:
    """Noise hundreds of times the range, and most of it for inputs in the middle: 2.6 times the level before."""
    rows = [[0.2348, 0.0397, 0.501], [0.5061, 0.0025, 0.0034], [0.1674, 0.338, 0.3319]]
    weights = np.rint(np.array(rows) * TOTAL).astype(np.int64)
    weights = np.column_stack([weights, TOTAL - weights.sum(axis=1)])
    table = Mechanism(
        knots=[0.0, 0.5, 1.0], levels=[-343.186, 0.264, 0.893, 356.893], weights=weights, name="far"
    )
    every = outcomes(3, 4)
    target = target_of_mean(table)
    quantiles = np.array([normal_quantile(confidence) for confidence in LEVELS])
    distances = []
    for counts in every:
        reports = Sums.of_counts(counts)
        distances.append((target.value(reports), *target.sides(reports, quantiles)))
    for x in (0.0, 0.2, 0.4, 0.5, 0.6, 0.8, 1.0):
        (pmf,) = table.pmf(np.array([x]))
        expected = float(pmf @ table.levels)
        missed = np.zeros(len(LEVELS))
        for chance, (value, below, above) in zip(probabilities(every, pmf), distances, strict=True):
            missed += chance * ((expected < value - below) | (expected > value + above))
        assert (missed <= (1 - np.array(LEVELS)) * (1 + FEW)).all(), (x, missed)
