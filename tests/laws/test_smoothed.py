"""Laws of smoothed profiles: types have no order and no names, records no identity; against exact enumeration."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial

import pytest
from hypothesis import given, settings, strategies as st

from laws.registry import judges
from mezzotint import smoothed
from mezzotint.smoothed.model import read_loss, read_sample
from mezzotint.smoothed.profiles import histogram_profile
from reference import smoothed_exact as exact
from strategies import examples
from tolerances import FEW

SLACK = 1e-9  # of a logarithm: the stated relative error of a certified profile (docs/proofs/smoothed-profile.md, P3)
RATIO = Fraction(3, 2)
KINDS = {
    "without": lambda draws: {"sampled": draws},
    "with": lambda draws: {"sampled": draws, "replacement": True},
    "poisson": lambda _: {"loss_rate": Fraction(2, 5), "poisson": True},
    "noisy": lambda draws: {"sampled": draws, "noise_ratio": Fraction(1, 3)},
}
LAWS = {
    "without": lambda draws: partial(exact.without_replacement, draws=draws),
    "with": lambda draws: partial(exact.with_replacement, draws=draws),
    "poisson": lambda _: partial(exact.poisson, rate=Fraction(3, 5)),
    "noisy": lambda draws: partial(exact.noisy, draws=draws, ratio=Fraction(1, 3)),
}


def alike(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= SLACK * (1 + abs(one))


@judges(
    "smoothed.profiles.profile",
    "smoothed.profiles.histogram_profile",
    "smoothed.noisy_profiles.noisy_profile",
    "smoothed.model.Profile.delta",
)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(9))
@given(
    counts=st.lists(st.integers(0, 4), min_size=2, max_size=3),
    turn=st.integers(1, 2),
    data=st.data(),
)
def test_types_have_no_order(kind: str, counts: list[int], turn: int, data: st.DataObject) -> None:
    """Every neighbour in both directions, n = 1 and types without a record included; and a type that never occurs."""
    counts[0] += not sum(counts)
    draws = data.draw(st.integers(1, min(3, sum(counts))))
    how = KINDS[kind](draws)
    found = smoothed.profile(counts, ratio=RATIO, **how)
    turned = smoothed.profile(counts[turn:] + counts[:turn], ratio=RATIO, **how)
    assert alike(turned.log10_upper, found.log10_upper)
    truth = exact.delta(tuple(counts), RATIO, LAWS[kind](draws))
    assert found.delta >= truth
    assert found.log10_delta == -math.inf if truth == 0 else found.log10_delta <= found.log10_upper
    if kind == "without" and draws < sum(counts):
        sample = read_sample(sum(counts), loss_rate=None, sampled=draws)
        direct = histogram_profile(tuple(counts), sample, read_loss(epsilon=None, ratio=RATIO))
        assert direct.log10_upper == found.log10_upper


@judges("smoothed.expectations.expected", "smoothed.model.Expected.delta")
@settings(max_examples=examples(5))
@given(
    records=st.integers(1, 6),
    shares=st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True),
    data=st.data(),
)
def test_expectations_have_no_first_type_and_no_first_distribution(
    records: int, shares: list[int], data: st.DataObject
) -> None:
    """And a distribution that is named twice, or that lies between others, changes nothing."""
    draws = data.draw(st.integers(1, records))
    vertices = [Fraction(share, 10) for share in shares]
    say = partial(smoothed.expected, n=records, sampled=draws, ratio=RATIO)
    found = say(vertices=vertices)
    for image in (
        vertices[::-1],
        [1 - p for p in vertices],
        vertices * 2,
        [*vertices, (vertices[0] + vertices[-1]) / 2],
    ):
        assert alike(say(vertices=image).log10_upper, found.log10_upper)
    values = {
        histogram: exact.delta(histogram, RATIO, partial(exact.without_replacement, draws=draws))
        for histogram in exact.histograms(records, 2)
    }
    for split in range(
        records + 1
    ):  # so many records follow the first distribution, the others the last
        given_to = [
            (split, (vertices[0], 1 - vertices[0])),
            (records - split, (vertices[-1], 1 - vertices[-1])),
        ]
        assert exact.expected(records, given_to, values) <= found.delta


@judges(
    "smoothed.guarantees.guarantee",
    "smoothed.guarantees.compose",
    "smoothed.guarantees.post_process",
    "smoothed.guarantees.pre_process",
)
def test_guarantees_add_up_in_any_order_and_processing_keeps_them() -> None:
    vertices = [Fraction(3, 10), Fraction(6, 10)]
    each = [
        smoothed.guarantee(
            smoothed.expected(n=8, vertices=vertices, sampled=k, ratio=RATIO), vertices=vertices
        )
        for k in (2, 5)
    ]
    there = smoothed.compose(each, randomness="independent")
    back = smoothed.compose(each[::-1], randomness="independent")
    assert (there.epsilon, there.log10_delta) == (back.epsilon, back.log10_delta)
    assert there.epsilon >= each[0].epsilon + each[1].epsilon
    assert 10**there.log10_delta >= sum(10**one.log10_delta for one in each) * (1 - FEW)
    assert smoothed.post_process(there, name="rounding").log10_delta == there.log10_delta
    swapped = smoothed.pre_process(
        each[0], feature_of_type=[1, 0], vertices=[1 - p for p in vertices]
    )
    assert swapped.log10_delta == each[0].log10_delta


@judges("smoothed.averages.average_profile")
@settings(max_examples=examples(5))
@given(records=st.lists(st.integers(0, 6), min_size=2, max_size=5), data=st.data())
def test_averages_of_records_have_no_order_and_no_direction(
    records: list[int], data: st.DataObject
) -> None:
    draws = data.draw(st.integers(1, len(records)))
    say = partial(smoothed.average_profile, sampled=draws, ratio=RATIO, levels=7)
    found = say(records).log10_upper
    assert alike(say(records[::-1]).log10_upper, found)
    assert alike(say([6 - value for value in records]).log10_upper, found)
