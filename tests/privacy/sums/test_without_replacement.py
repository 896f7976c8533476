"""Sums of a secret random choice of clients against enumeration of all choices and all data sets."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from mezzotint import Mechanism, privacy, vectors
from mezzotint.families import randomized_response, rqm
from mezzotint.privacy.sums.cost import PURE, PURE_L2
from reference.sums import random_rows, sum_pmf
from tolerances import FEW, MANY

BITS = randomized_response(lower=-1, upper=1, epsilon=1.8)


def views(
    reports: list[np.ndarray], population: int, chosen: int, corrupted: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """What is seen when the first client has one input or another, for every pair and all data of the others.

    The last clients are against it: they know whether they were chosen, and add nothing.
    """
    honest = population - corrupted

    def seen(inputs: tuple[int, ...]) -> np.ndarray:
        by_pattern: dict[tuple[int, ...], Any] = {}
        for members in itertools.combinations(range(population), chosen):
            pattern = tuple(member for member in members if member >= honest)
            added = [reports[inputs[member]] for member in members if member < honest]
            by_pattern[pattern] = by_pattern.get(pattern, 0) + sum_pmf([np.ones(1), *added])
        return np.concatenate(list(by_pattern.values())) / math.comb(population, chosen)

    rows = range(len(reports))
    for others in itertools.combinations_with_replacement(rows, honest - 1):
        outputs = [seen((row, *others)) for row in rows]
        yield from itertools.permutations(outputs, 2)


def worst_ratio(*shape: Any) -> float:
    return max(float(np.log(p / q).max()) for p, q in views(*shape))


def worst_delta(epsilon: float, *shape: Any) -> float:
    return max(float(np.maximum(p - math.exp(epsilon) * q, 0).sum()) for p, q in views(*shape))


def claimed(mechanism: Any, population: int, chosen: int, **words: Any) -> privacy.Claim:
    return privacy.account(
        mechanism,
        trust="secure_sum",
        clients=chosen,
        sampling="without_replacement",
        sampling_rate=chosen / population,
        **words,
    )


def tables() -> Iterator[Mechanism]:
    yield BITS
    rows = random_rows(np.random.default_rng(3), rows=3, levels=3)
    yield Mechanism(knots=[-1, 0, 1], levels=[-1, 0, 1], weights=rows)


@pytest.mark.parametrize("mechanism", list(tables()), ids=["bits", "three"])
@pytest.mark.parametrize(
    ("population", "chosen", "corrupted"),
    [(2, 1, 0), (4, 1, 0), (4, 2, 0), (4, 3, 0), (4, 2, 1), (4, 3, 1), (5, 3, 2), (5, 4, 2)],
)
def test_claims_of_a_secret_choice_are_never_below_enumeration(
    mechanism: Mechanism, population: int, chosen: int, corrupted: int
) -> None:
    shape = (list(mechanism.probabilities), population, chosen, corrupted)
    pure = claimed(mechanism, population, chosen, corrupted=corrupted, delta=0.0).epsilon
    assert worst_ratio(*shape) <= pure * (1 + MANY)
    assert pure <= mechanism.epsilon
    for delta in (1e-6, 0.05):
        claim = claimed(mechanism, population, chosen, corrupted=corrupted, delta=delta)
        assert worst_delta(claim.epsilon, *shape) <= delta + FEW


def test_one_report_of_few_clients_shrinks_as_it_should() -> None:
    """One of a population is chosen, everybody else reports the other row: the ratio is attained."""
    for population in (2, 3, 7):
        amplified = math.log1p(math.expm1(BITS.epsilon) / population)
        claim = claimed(BITS, population, 1, delta=0.0)
        assert claim.method == PURE
        assert claim.epsilon == pytest.approx(amplified, rel=MANY)
        shape = (list(BITS.probabilities), population, 1, 0)
        assert worst_ratio(*shape) == pytest.approx(amplified, rel=MANY)
        thrice = claimed(BITS, population, 1, delta=0.0, rounds=3).epsilon
        assert thrice == pytest.approx(3 * amplified, rel=MANY)


def test_corrupted_clients_who_were_not_chosen_know_that_others_were() -> None:
    """Three of four: if the one who is against us stays out, the three others are all in."""
    release = privacy.Release(
        mechanism=BITS,
        trust="secure_sum",
        clients=3,
        corrupted=1,
        sampling="without_replacement",
        sampling_rate=0.75,
        delta=0.0,
    )
    assert release.chance == 1.0
    assert release.pure == BITS.epsilon
    at_the_rate = math.log1p(0.75 * math.expm1(BITS.epsilon))
    delta = worst_delta(at_the_rate, list(BITS.probabilities), 4, 3, 1)
    assert delta > 1e-3  # where they told nobody of it, it would be 0
    for clients, corrupted, rate in ((10, 3, 0.1), (10, 9, 0.5), (7, 2, 1 / 3)):
        many = privacy.Release(
            mechanism=BITS,
            trust="secure_sum",
            clients=clients,
            corrupted=corrupted,
            sampling="without_replacement",
            sampling_rate=rate,
            delta=0.0,
        )
        exact = Fraction(clients) / (Fraction(clients) / Fraction(rate) - corrupted)
        assert exact <= Fraction(many.chance) <= exact * Fraction(1 + FEW)


@pytest.mark.parametrize("norm", [0.2, 0.7])
def test_choices_of_vectors_of_bounded_norm(norm: float) -> None:
    table = rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42)
    reports = [table.pmf(place) for place in (-norm, 0.0, norm)]
    for population, chosen in ((3, 1), (4, 2)):
        worst = worst_ratio(reports, population, chosen, 0)
        claim = claimed(table, population, chosen, delta=0.0, clip_norm=norm)
        assert claim.method == PURE_L2
        assert worst <= claim.epsilon
        scheme = vectors.TableScheme(mechanism=table, size=1, clients=chosen, clip_norm=norm)
        assert claimed(scheme, population, chosen, delta=0.0).epsilon == claim.epsilon
        always = privacy.account(
            table, trust="secure_sum", clients=chosen, delta=0.0, clip_norm=norm
        )
        assert claim.epsilon < always.epsilon


def test_a_sum_that_is_seen_to_lack_a_client_or_may_be_silent_is_not_amplified() -> None:
    for sampling in ("public", "poisson"):
        claim = privacy.account(
            BITS, trust="secure_sum", clients=3, sampling=sampling, sampling_rate=0.5, delta=0.0
        )
        assert claim.epsilon == BITS.epsilon
