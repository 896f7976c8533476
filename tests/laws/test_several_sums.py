"""Vectors spread over several sums: what they cost by enumeration, which rounds are charged, what turns are worth."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr

from laws.registry import judges
from mezzotint.core.errors import ParameterError
from mezzotint.federated.encoding import GaussianEncoding, gaussian_encoding
from mezzotint.vectors import GaussianScheme
from mezzotint.vectors.rotation import MOST, SCALE, blocks, coefficients, last_noise, solved
from strategies import examples
from tolerances import FEW, MANY, printed

SHARES = (228 / 256, 114 / 256)
"""(1, 1/2) over the root of 5/4, in 256ths towards zero."""

DEVIATION, REACH = 1.3, 1.4
"""Of one client's noise, and how far its number goes from 0; steps."""

PLACES = np.arange(-18, 19)
"""Sums of two clients: beyond is less than 1e-16 of the noise."""

Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]


def chances(centres: Sequence[np.ndarray]) -> np.ndarray:
    """(..., places) chances of the sum of one or two rounded Gaussians around these (...) centres."""
    reports = [
        ndtr((PLACES + 0.5 - centre[..., None]) / DEVIATION)
        - ndtr((PLACES - 0.5 - centre[..., None]) / DEVIATION)
        for centre in centres
    ]
    if len(reports) == 1:
        return reports[0]
    first, second = reports
    found = np.zeros_like(first)
    for at, place in enumerate(PLACES):
        for one in range(PLACES.size):
            if 0 <= (other := int(place) - int(PLACES[one]) + PLACES.size // 2) < PLACES.size:
                found[..., at] += first[..., one] * second[..., other]
    return found


def outcomes(vectors: dict[int, Rule | float], turn: int, there: set[int]) -> np.ndarray:
    """(places, places, places) chances of three sums of a client and another.

    vectors: round of the client's turn -> its number, perhaps by what was seen before; turn: rounds before its first
    turn; there: rounds in whose sums it is. The other has its turns in rounds 1 and 3, and answers to what it saw.
    """
    y1, y2 = PLACES[:, None, None], PLACES[None, :, None]
    joint = np.ones((1, 1, 1))
    for number in (1, 2, 3):
        others = (
            REACH * SHARES[(number - 1) % 2] * (np.cos(y1) if number == 3 else np.ones((1, 1, 1)))
        )
        centres = [others[..., 0]]
        if number in there:
            since = (number - 1 - turn) % 2
            said = vectors.get(number - since, 0.0)
            value = said(y1, y2) if callable(said) else np.full((1, 1, 1), said)
            centres.append((REACH * SHARES[since] * value)[..., 0])
        shape = np.broadcast_shapes(*(one.shape for one in centres))
        found = chances([np.broadcast_to(one, shape) for one in centres])
        # Dimensions: first sum, second sum, then the one drawn now, which belongs at its own place.
        joint = joint * (
            found.reshape(-1, 1, 1)
            if number == 1
            else found[:1].reshape(1, -1, 1)
            if number == 2
            else found
        )
    return joint


def divergence(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


def scheme() -> GaussianScheme:
    """What the enumeration is about: clipped to 1, REACH steps."""
    return GaussianScheme(
        deviation=DEVIATION, size=1, l2_norm=1.0, granularity=1 / REACH, modulus_bits=20, bands=2
    )


def rule(sign: float, kind: str) -> Rule | float:
    if kind == "always":
        return sign
    if kind == "by the last sum":
        return lambda first, second: sign * np.where(second > first, 1.0, -1.0)
    return lambda first, second: sign * np.cos(first - second)


@judges("vectors.tables.ModularScheme.account")
@pytest.mark.parametrize("delta", [1e-1, 1e-2, 1e-4])
def test_no_numbers_in_several_sums_are_told_apart_better_than_claimed(delta: float) -> None:
    """Three rounds of two bands: whoever's turn it is, whichever rounds it is in, whatever it answers."""
    found: dict[tuple[int, frozenset[int]], float] = {}
    for turn, rounds in itertools.product((0, 1), (3, 2, 1)):
        for there in map(frozenset, itertools.combinations((1, 2, 3), rounds)):
            # Two clients are in each of its sums. It pays for blocks that it was in, here for those of its turn.
            count = len({(number - 1 - turn) // 2 for number in there if number > turn})
            assert count <= blocks(there, 2)
            if count == 0:
                continue
            epsilon = scheme().claim(clients=2, rounds=2 * count, delta=delta).epsilon
            for kind in ("always", "by the last sum", "by both"):
                turns = [number for number in (1, 2, 3) if (number - 1 - turn) % 2 == 0]
                worlds = [
                    outcomes(
                        {n: rule(sign, kind if n == 3 else "always") for n in turns},
                        turn,
                        set(there),
                    )
                    for sign in (1.0, -1.0)
                ]
                for first, second in (worlds, worlds[::-1]):
                    seen = divergence(first, second, epsilon)
                    # Places left out, and sums of some ten thousand floats.
                    assert seen <= delta * (1 + MANY) + 1e-13 * math.exp(epsilon)
                    found[turn, there] = max(found.get((turn, there), 0.0), seen)
    # A whole block. Rounding hides, too: it adds 5 % to the variance, and coefficients in 256ths lose 1 %.
    assert found[1, frozenset({2, 3})] > 0.5 * delta
    # A block without its second round costs less, and less is found.
    assert found[0, frozenset({1})] < found[1, frozenset({2, 3})]


def test_the_law_sees_two_vectors_in_one_block_and_too_few_blocks_charged() -> None:
    """What must not happen: a client that would train in every round, and charges that count sums, not blocks."""
    delta = 1e-2
    told = scheme().claim(clients=2, rounds=3, delta=delta).epsilon  # two blocks
    worlds = []
    for sign in (1.0, -1.0):
        others = np.zeros((1, 1))
        rows = [
            chances([others, np.full((1, 1), sign * REACH * share)])[0, 0]
            for share in (
                SHARES[0],
                sum(SHARES),
                sum(SHARES),
            )  # its last vector's second share beside the new one
        ]
        worlds.append(np.einsum("i,j,k->ijk", *rows))
    assert divergence(worlds[0], worlds[1], told) > 1.5 * delta
    # Asked in rounds 1 and 3 alone, a client of the first turn says two numbers: one vector's claim is false of them.
    pair = [outcomes({1: sign, 3: sign}, 0, {1, 3}) for sign in (1.0, -1.0)]
    assert divergence(*pair, scheme().claim(clients=2, rounds=2, delta=delta).epsilon) > 1.5 * delta
    assert blocks([1, 3], 2) == 2


def book(rounds: set[int], bands: int) -> int:
    """Blocks that are met, for the worst turn, by walking through the rounds."""
    worst = 0
    for turn in range(bands):
        met, current = 0, 0
        for number in range(1, max(rounds, default=0) + 1):
            if number > turn and (number - turn) % bands == 1 % bands:
                current = number
            if current and number in rounds:
                met, current = met + 1, 0  # the rest of the block costs nothing more
        worst = max(worst, met)
    return worst


@settings(max_examples=examples(200))
@given(
    rounds=st.sets(st.integers(1, 30), min_size=1),
    bands=st.integers(1, 12),
    more=st.integers(1, 30),
)
def test_blocks_are_those_that_a_walk_through_the_rounds_meets(
    rounds: set[int], bands: int, more: int
) -> None:
    found = blocks(rounds, bands)
    assert found == book(rounds, bands)
    assert found <= blocks(rounds | {more}, bands)
    assert found <= math.ceil(
        max(rounds) / bands
    )  # what is claimed of a run in advance, rounds skipped or not
    assert found >= math.ceil(len(rounds) / bands)
    encoding = gaussian_encoding(noise_multiplier=3.0, l2_norm=1.0, clients=20, size=8, bands=bands)
    assert encoding.charged(rounds) == bands * found
    assert encoding.charged(range(1, 25)) >= 24


@judges("federated.encoding.SchemeEncoding.claims")
def test_bands_are_claimed_as_one_vector_in_so_many_sums() -> None:
    plain, banded = (
        gaussian_encoding(noise_multiplier=3.0, l2_norm=1.0, clients=20, size=40, bands=bands)
        for bands in (1, 5)
    )
    where = {"clients": 20, "size": 40, "delta": 1e-5}
    for view in ("local", "central"):
        for rounds, vectors in ((1, 1), (5, 1), (6, 2), (20, 4)):
            claim = banded.claims(rounds=rounds, **where)[view]
            assert claim.epsilon == pytest.approx(
                plain.claims(rounds=vectors, **where)[view].epsilon, rel=FEW
            )
            assert claim.rounds == rounds
            assert "one vector in 5 sums" in claim.method
    assert banded.binding != plain.binding
    assert banded.sha256 != plain.sha256
    assert "bands" not in plain.as_dict()
    for bad in (0, MOST + 1):
        with pytest.raises(ParameterError, match="bands"):
            GaussianEncoding(deviation=2.0, l2_norm=1.0, granularity=1.0, modulus_bits=8, bands=bad)


def test_the_solutions_of_sums_without_noise_are_what_was_spread() -> None:
    rng, given = np.random.default_rng(1), coefficients(5)
    vectors = rng.normal(size=(12, 3))
    earlier: list[np.ndarray] = []
    for t in range(12):
        total = sum(given[j] * vectors[t - j] for j in range(5) if t >= j)
        earlier.append(
            solved(5, np.asarray(total), {lag: earlier[-lag] for lag in range(1, min(t, 4) + 1)})
        )
        np.testing.assert_allclose(
            earlier[-1], vectors[t], atol=1e-12
        )  # some ten operations on numbers near 256


def test_what_turns_cost_in_noise() -> None:
    """Noise of the final model at one claim, over that of training in every round; and that none is below that."""
    for bands, rounds, ratio, alone in (
        (10, 20, 1.56, 3.16),
        (10, 600, 1.22, 3.16),
        (4, 100, 1.14, 2.0),
    ):
        matrix = (
            sum(np.eye(rounds, k=-j) * value for j, value in enumerate(coefficients(bands))) / SCALE
        )
        noise = float(np.linalg.norm(np.linalg.inv(matrix).sum(axis=0)))
        assert noise == pytest.approx(last_noise(bands, rounds), rel=MANY)
        # One turn in so many rounds has so many times fewer updates, of as many clients together.
        turns = math.sqrt(rounds // bands) * bands / rounds
        assert turns * noise == pytest.approx(ratio, abs=printed(2))
        assert turns * math.sqrt(rounds) == pytest.approx(alone, abs=printed(2))


@settings(max_examples=examples(40))
@given(seed=st.integers(0, 2**32 - 1), rounds=st.integers(2, 7), every=st.integers(1, 3))
def test_no_mixing_beats_training_in_every_round(seed: int, rounds: int, every: int) -> None:
    """Any invertible matrix: the final model's noise at one claim, the sensitivity by enumeration."""
    matrix = np.random.default_rng(seed).normal(size=(rounds, rounds)) + 2 * np.eye(rounds)
    turns = list(range(0, rounds, every))
    worst = max(
        float(np.linalg.norm(matrix[:, turns] @ np.array(signs)))
        for signs in itertools.product((-1.0, 1.0), repeat=len(turns))
    )
    noise = float(np.linalg.norm(np.linalg.inv(matrix).sum(axis=0)))
    assert worst * noise >= len(turns) * (1 - 1e-6)  # matrices drawn here are far from singular
