"""Rounded Gaussians by decided draws: the error bound, the slow twin, the law."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import flint
import mpmath
import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import chisquare, norm

from mezzotint import ParameterError
from mezzotint.core.sampler import ElementWords
from mezzotint.vectors import gaussian
from mezzotint.vectors.compiled import draw
from mezzotint.vectors.gaussian import (
    CELLS,
    LOWEST_OCTAVE,
    QUANTILE_ERROR,
    TERMS,
    UNDECIDED,
    RoundedGaussian,
)

SIGMA = 72_000.0
NOWHERE = np.zeros(1)
LOW = 2**63 - 1


def test_the_error_bound_holds_in_every_cell() -> None:
    # In balls, cell by cell: Lagrange's remainder, coefficients and evaluation in floats, and the width of the
    # interval of u that 63 digits and their conversion to a float leave.
    table, unit = gaussian.quantiles(), 2.0**-53
    with flint.ctx.workprec(200):
        half = flint.arb(1) / (2 * CELLS)
        for row, (octave, cell) in enumerate(
            itertools.product(range(LOWEST_OCTAVE, 63), range(CELLS))
        ):
            scale = flint.arb(2) ** (octave - 64)
            ends = [
                gaussian._tail_quantile(
                    (1 + Fraction(cell + end, CELLS)) * Fraction(2) ** (octave - 64)
                )
                for end in (0, 1)
            ]
            whole = ends[0].union(ends[1])  # z falls with u
            series = gaussian.taylor(whole, TERMS + 1)
            remainder = abs(series[TERMS]) * scale**TERMS * half**TERMS
            exact = gaussian.taylor(
                gaussian._tail_quantile(
                    (1 + Fraction(2 * cell + 1, 2 * CELLS)) * Fraction(2) ** (octave - 64)
                ),
                TERMS,
            )
            stored = sum(
                (
                    abs(flint.arb(float(table[row, n])) - exact[n] * scale**n) * half**n
                    for n in range(TERMS)
                ),
                flint.arb(0),
            )
            # Horner's rule with 2 (TERMS - 1) operations (Higham 2002, Section 5.1).
            sizes = sum(
                (abs(flint.arb(float(table[row, n]))) * half**n for n in range(TERMS)), flint.arb(0)
            )
            evaluated = sizes * 2 * TERMS * unit / (1 - 2 * TERMS * unit)
            # |dz/du| = 1 / phi(z); w + 1 lies within 1 and a conversion of relative error 2^-53 of w.
            slope = 1 / gaussian._density(ends[0])
            width = slope * (flint.arb(2) ** -64 + 2 * scale * unit)
            assert remainder + stored + evaluated + width <= QUANTILE_ERROR
    np.testing.assert_array_equal(table[-1], 0.0)


def twin(word: int, further: list[int], sigma: float, centre: float = 0.0) -> int | None:
    """floor(centre + X + 1/2) by mpmath's own inverse; None if the words do not decide it."""
    digits = 64 * (1 + len(further))
    tail = word & LOW
    for more in further:
        tail = tail << 64 | more
    if tail == 0:
        return None
    with mpmath.workdps(25 + digits):
        # -Phi^-1(u) = sqrt(2) erfinv(1 - 2 u)
        ends = [
            mpmath.sqrt(2) * mpmath.erfinv(1 - mpmath.mpf(2) * place / 2**digits)
            for place in (tail, tail + 1)
        ]
        sign = -1 if word >> 63 else 1
        near, far = (
            int(mpmath.floor(centre + sign * sigma * end + mpmath.mpf(1) / 2)) for end in ends
        )
    return near if near == far else None


def test_draws_agree_with_the_slow_twin() -> None:
    words = np.random.default_rng(1).integers(0, 2**64, 200, dtype=np.uint64)
    words[:8] = [2**38, 2**38 - 1, 2**40 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**62, 2**63 + 2**62 - 1]
    somewhere = np.random.default_rng(2).normal(size=words.size) * 5
    somewhere[8:12] = [0.5, -0.5, 1e-300, 7.0]
    cases = [(sigma, NOWHERE) for sigma in (0.3, 1.0, 1234.5, SIGMA, 3e8)]
    for sigma, centres in [*cases, (0.3, somewhere), (2.0, somewhere), (SIGMA, somewhere * 1e4)]:
        noise, law = np.empty(words.size, dtype=np.int64), RoundedGaussian(sigma=sigma)
        margin = law.margin + float(np.abs(centres).max()) * 2.0**-51
        missing = draw(words, centres, gaussian.quantiles(), sigma, margin, noise)
        assert missing == (noise == UNDECIDED).sum() < 30
        around = np.broadcast_to(centres, words.shape).tolist()
        for word, found, centre in zip(words.tolist(), noise.tolist(), around, strict=True):
            expected = twin(word, [], sigma, centre)
            if found != UNDECIDED:
                assert found == expected
            if word & LOW:
                more = [1234567, 89]
                closer = law.closer(word, iter(more), centre)
                assert closer == (
                    expected if expected is not None else twin(word, more, sigma, centre)
                )


@given(st.integers(0, 2**64 - 1), st.floats(1e-3, 1e9), st.floats(-1e6, 1e6))
def test_looking_closer_agrees_with_the_slow_twin(word: int, sigma: float, centre: float) -> None:
    more = [2**63, 5]
    for place in (0.0, centre):
        expected = next(
            found for n in range(3) if (found := twin(word, more[:n], sigma, place)) is not None
        )
        assert RoundedGaussian(sigma=sigma).closer(word, iter(more), place) == expected


def test_words_at_rounding_boundaries_are_not_decided_by_floats() -> None:
    # u just above and below P(X > k - 1/2): floats cannot tell, 64 further digits can.
    law = RoundedGaussian(sigma=SIGMA)
    with flint.ctx.workprec(300):
        for k in (1, 100, 65_536, 200_000):
            tail = int((law._beyond(k - 0.5) * flint.arb(2) ** 64).floor().unique_fmpz())
            noise = np.empty(1, dtype=np.int64)
            assert (
                draw(
                    np.array([tail], dtype=np.uint64),
                    NOWHERE,
                    gaussian.quantiles(),
                    SIGMA,
                    law.margin,
                    noise,
                )
                == 1
            )
            assert [law.closer(tail, iter([0])), law.closer(tail, iter([2**64 - 1]))] == [k, k - 1]
            assert law.closer(tail + 2**63, iter([0])) == -k


@pytest.mark.parametrize("sigma", [0.7, SIGMA])
def test_a_draw_does_not_depend_on_what_floats_decide(
    sigma: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    law, key = RoundedGaussian(sigma=sigma), bytes(range(32))
    centres = [None, np.random.default_rng(0).normal(size=3000)]
    usual = [law.draw(key, 3000, some) for some in centres]
    for margin in (0.25, 1.0):  # half of all draws look closer, and all of them
        monkeypatch.setattr(RoundedGaussian, "margin", property(lambda self, margin=margin: margin))
        for some, before in zip(centres, usual, strict=True):
            np.testing.assert_array_equal(law.draw(key, 3000, some), before)


def test_each_coordinate_has_its_own_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaussian, "PART", 1 << 18)
    size = (1 << 18) + 1000
    law, key, words = RoundedGaussian(sigma=SIGMA), bytes(32), np.empty(1000, dtype=np.uint64)
    ElementWords(key, 1 << 18).fill(words)
    found, last = law.draw(key, size), np.empty(1000, dtype=np.int64)
    draw(words, NOWHERE, gaussian.quantiles(), SIGMA, law.margin, last)
    np.testing.assert_array_equal(found[1 << 18 :][last != UNDECIDED], last[last != UNDECIDED])
    np.testing.assert_array_equal(law.draw(key, 10), found[:10])
    assert law.draw(key, 0).size == 0


@pytest.mark.parametrize("sigma", [0.4, 1.0, 30.0, SIGMA])
def test_the_law_of_two_million_draws(sigma: float) -> None:
    # Chi-square against cells of the rounded Gaussian; false alarm one in a million per standard deviation.
    noise = RoundedGaussian(sigma=sigma).draw(b"law of two million draws".ljust(32), 2_000_000)
    bins = 200
    edges = np.unique(np.round(sigma * norm.ppf(np.arange(1, bins) / bins)))
    expected = np.diff(np.concatenate([[0], norm.cdf((edges + 0.5) / sigma), [1]])) * noise.size
    observed = np.bincount(np.searchsorted(edges, noise), minlength=edges.size + 1)
    assert (
        chisquare(
            observed[expected > 0], expected[expected > 0] * (observed.sum() / expected.sum())
        ).pvalue
        > 1e-6
    )


def test_tails_and_words_of_zeros() -> None:
    law = RoundedGaussian(sigma=SIGMA)
    # Below 2^-64 the first word says nothing but "further out than 9 standard deviations".
    assert law.closer(0, iter([2**63, 0])) == twin(0, [2**63], SIGMA) > 9 * SIGMA
    assert -law.closer(2**63, iter([0, 5, 2**63, 0])) == twin(0, [0, 5, 2**63], SIGMA) > 15 * SIGMA


@pytest.mark.parametrize("centre", [0.3, -0.5, 7.9])
def test_the_law_around_a_centre_off_the_lattice(centre: float) -> None:
    # Chi-square of every integer with 10 draws and more expected; false alarm one in a million per centre.
    sigma, size = 2.0, 1_000_000
    drawn = RoundedGaussian(sigma=sigma).draw(
        b"law around a centre".ljust(32), size, np.full(size, centre)
    )
    edges = np.arange(math.floor(centre) - 8, math.floor(centre) + 9) + 0.5
    expected = np.diff(np.concatenate([[0], norm.cdf((edges - centre) / sigma), [1]])) * size
    observed = np.bincount(np.searchsorted(edges, drawn), minlength=edges.size + 1)
    assert chisquare(observed, expected).pvalue > 1e-6


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 2.0**37])
def test_centres_out_of_range(bad: float) -> None:
    with pytest.raises(ParameterError, match="centres"):
        RoundedGaussian(sigma=2.0).draw(bytes(32), 3, np.array([0.0, bad, 1.0]))


@pytest.mark.parametrize("sigma", [0.0, -1.0, 2.0**37, float("nan"), float("inf")])
def test_standard_deviations_out_of_range(sigma: Any) -> None:
    with pytest.raises(ParameterError, match="sigma"):
        RoundedGaussian(sigma=sigma)
