"""Thresholds and majorities at many records: bump by bump against all compositions, and the noted values to 1e6."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import mezzotint as mz
from mezzotint.smoothed import bumps, compositions
from mezzotint.smoothed.bumps import Bump, CompositionSearch, Mixture, cuts_of
from mezzotint.smoothed.many_types import compare_splits
from strategies import examples
from tolerances import MANY, printed

TIE = (("0.52", "0.48"), ("0.48", "0.52"))
LANDSLIDES = (("0.3", "0.7"), ("0.6", "0.4"))

logarithms = st.one_of(st.just(-math.inf), st.floats(-30.0, 0.0, width=32))
shares = st.fractions("1/50", "49/50", max_denominator=50)


@given(values=st.lists(logarithms, min_size=2, max_size=40))
def test_bumps_are_cut_at_every_valley_and_hold_every_finite_value(values: list[float]) -> None:
    array = np.array(values)
    cuts = cuts_of(array)
    covered = np.zeros(array.size, dtype=bool)
    for cut in cuts:
        assert not covered[cut].any()
        covered[cut] = True
        steps = np.diff(array[cut])
        steps = steps[steps != 0]
        # Once it falls it never rises.
        assert (np.diff(np.sign(steps)) <= 0).all()
    assert (covered == np.isfinite(array)).all()


@settings(max_examples=examples(60))
@given(
    values=st.lists(logarithms, min_size=3, max_size=60).filter(lambda v: max(v) > -math.inf),
    first=shares,
    second=shares,
)
def test_bump_by_bump_is_what_all_compositions_have(
    values: list[float], first: Fraction, second: Fraction
) -> None:
    array = np.array(values)
    if len(cuts_of(array)) > bumps.MOST_BUMPS:
        return
    search = CompositionSearch(lower=array, upper=array, shares=(first, second))
    upper = search.run()
    assert upper is not None
    truth = compare_splits(array, 0.0, (first, second))
    assert search.best <= truth.log_upper
    assert truth.log_lower <= upper
    # The two bounds of an evaluation, and how far a bound of intervals is followed.
    assert upper - search.best <= 2 * bumps.EVALUATION_ERROR + bumps.TARGET + MANY


@settings(max_examples=examples(60))
@given(
    records=st.integers(1, 40),
    first=shares,
    second=shares,
    data=st.data(),
)
def test_expectations_of_a_composition_are_those_of_all_counts(
    records: int, first: Fraction, second: Fraction, data: st.DataObject
) -> None:
    drawn = st.lists(st.floats(-50.0, 0.0, width=32), min_size=records + 1, max_size=records + 1)
    heights = sorted(data.draw(drawn))
    peak = data.draw(st.integers(0, records))
    values = np.array([*heights[: records + 1 - peak], *heights[records + 1 - peak :][::-1]])
    low = data.draw(st.integers(0, records))
    high = data.draw(st.integers(low, records))
    mixture = Mixture(records=records, shares=(float(first), float(second)))
    means = mixture.log_means(Bump(start=0, values=values), low, high)
    for place, count in enumerate(range(low, high + 1)):
        law = np.ones(1)
        for size, share in ((count, float(first)), (records - count, float(second))):
            for _ in range(size):
                law = np.convolve(law, [1 - share, share])
        truth = math.log(float(law @ np.exp(values)))
        assert means[0, place] <= truth + MANY
        assert means[1, place] >= truth - MANY
        assert means[1, place] - means[0, place] <= 2.1 * bumps.EVALUATION_ERROR


def test_two_bumps_have_two_best_compositions_and_the_higher_is_found() -> None:
    counts = np.arange(201)
    values = np.maximum(-0.02 * (counts - 40.0) ** 2 - 1.0, -0.02 * (counts - 150.0) ** 2)
    assert len(cuts_of(values)) == 2
    for ends in ((Fraction(9, 10), Fraction(1, 10)), (Fraction(1, 10), Fraction(9, 10))):
        search = CompositionSearch(lower=values, upper=values, shares=ends)
        upper = search.run()
        truth = compare_splits(values, 0.0, ends)
        assert search.split == truth.split[0]
        # The search ends at its target; logarithms of sums are known to 1e-8.
        assert upper == pytest.approx(truth.log_upper, abs=bumps.TARGET + 1e-8)


NOTED = {
    # n -> log10 delta of a majority at epsilon 1, 0.2 % lost: of all databases, and smoothed where the hull has a tie.
    100_000: (-12.390, -14.101),
    1_000_000: (-100.66, -103.096),
}


@pytest.mark.parametrize("n", [100_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_majorities_of_many_records_have_the_noted_deltas(n: int) -> None:
    worst, smoothed = NOTED[n]
    result = mz.smoothed.expected(
        n=n, vertices=TIE, sampled=n - n // 500, epsilon=1.0, mechanism="winner"
    )
    assert result.log10_worst_case == pytest.approx(worst, abs=printed(2))
    assert result.log10_delta == pytest.approx(smoothed, abs=printed(3))
    assert result.log10_lower <= result.log10_delta <= result.log10_upper
    # At a million the two terms of delta nearly cancel, and their stated errors show.
    assert result.log10_upper - result.log10_lower < 1e-6


@pytest.mark.parametrize("vertices", [TIE, LANDSLIDES])
def test_both_searches_agree_where_both_can(
    vertices: tuple[tuple[str, str], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = {"n": 3000, "sampled": 2990, "epsilon": 0.5, "mechanism": "winner"}
    everything = mz.smoothed.expected(vertices=vertices, **setting)
    monkeypatch.setattr(compositions, "MAX_RECORDS", 1000)
    bump_by_bump = mz.smoothed.expected(vertices=vertices, **setting)
    assert (everything.method, bump_by_bump.method) == ("all splits", "bumps")
    assert bump_by_bump.split == everything.split
    # Both logarithms are known to 1e-8.
    assert bump_by_bump.log10_delta == pytest.approx(everything.log10_delta, abs=1e-8)
    assert bump_by_bump.log10_lower <= everything.log10_upper
    assert everything.log10_lower <= bump_by_bump.log10_upper
