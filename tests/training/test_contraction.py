"""Theorem A and B: the contraction never understates, and is attained."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.stats import norm

from mezzotint import ParameterError, families
from mezzotint.core.rounding import round_rows
from mezzotint.core.types import TOTAL
from mezzotint.training.rqp import contraction, table_contraction
from reference import training as reference
from tolerances import FEW, MANY

# Table of math note 3.2 (the paper has none), to three digits; see test_eight_bits for the third row.
TABLE = [
    (
        4,
        (0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99),
        (0.2995, 0.434, 0.636, 0.797, 0.869, 0.936, 0.968, 0.994),
    ),
    (2, (0.5, 0.7, 0.9), (0.371, 0.633, 0.880)),
]


@pytest.mark.parametrize(("bits", "qs", "values"), TABLE)
def test_known_values(bits: int, qs: tuple[float, ...], values: tuple[float, ...]) -> None:
    for q, value in zip(qs, values, strict=True):
        assert contraction(q, bits) == pytest.approx(value, abs=1e-3)  # three printed decimals


def test_one_bit_is_the_mean_s_factor() -> None:
    for q in (0.5, 0.6, 0.75, 0.99):
        # As promised: never below, at most 1e-6 above.
        assert contraction(q, 1) == pytest.approx(2 * q - 1, rel=1e-6, abs=FEW)


def test_ends() -> None:
    for bits in (1, 4, 8, 16):
        assert contraction(1.0, bits) == 1.0
        assert contraction(2.0**-bits, bits) == 0.0


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("q", [0.55, 0.9, 0.99])
def test_against_thirty_digits(bits: int, q: float) -> None:
    # A grid in Phi^-1(m) with spacing 0.012 misses the supremum by about 0.006**2 relative.
    grid = float(reference.contraction_on_a_grid(q, bits, points=1001))
    assert grid <= contraction(q, bits) <= grid * (1 + 1e-4)  # three times that


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8, 16])
@pytest.mark.parametrize("log_excess", [-20, -30, -40, -44])
def test_nearly_even_replacement(bits: int, log_excess: int) -> None:
    # Between u and u + gap the denominator I is nearly constant, I(1/L): kappa is gap I(1/2) / I(1/L),
    # but for a share of gap |I'(1/L)| / I(1/L) <= 2 gap L.
    levels = 2**bits
    q = (1 + 2.0**log_excess) / levels
    gap = Fraction(2) ** log_excess / (levels - 1)
    assert Fraction(q) == (1 + Fraction(2) ** log_excess) / levels
    limit = float(gap) * norm.pdf(0) / norm.pdf(norm.ppf(1 / levels))
    kappa = contraction(q, bits)
    assert limit * (1 - 2.0 ** (log_excess + 2)) <= kappa
    # 1e-6 is what `contraction` promises.
    assert kappa <= limit * (1 + 1e-6 + 2.0 ** (log_excess + 2))


def test_eight_bits() -> None:
    # Coarse even grids with one-sided bounds read .831, .911, .974 here: they overstate, never understate.
    for q, coarse in ((0.5, 0.831), (0.7, 0.911), (0.9, 0.974)):
        assert coarse - 0.002 < contraction(q, 8) < coarse  # as coarse as those grids


@given(bits=st.integers(1, 12), q=st.floats(0.0, 1.0), step=st.floats(0.0, 1.0))
def test_grows_with_q(bits: int, q: float, step: float) -> None:
    low = 2.0**-bits
    first = low + (1 - low) * q
    second = first + (1 - first) * step
    # As promised: at most 1e-6 above.
    assert 0 <= contraction(first, bits) <= contraction(second, bits) * (1 + 1e-6) <= 1 + 1e-6


@pytest.mark.parametrize(("bits", "q"), [(1, 0.7), (2, 0.5), (4, 0.3), (4, 0.9), (6, 0.7)])
def test_brute_force_never_exceeds_and_attains(bits: int, q: float) -> None:
    kappa, best = contraction(q, bits), 0.0
    rows = reference.keep_or_replace(q, 2**bits)
    edges = reference.uniform_edges(1.0, bits)
    for noise in (0.02, 0.3, 2.0):
        for shift in (0.01, 0.5, 3.0):
            for mean in np.linspace(-2.5, 2.5, 101):
                first = reference.codes_after_noise(mean, noise, edges, rows)
                second = reference.codes_after_noise(mean + shift * noise, noise, edges, rows)
                distance = reference.gaussian_distance(first, second)
                assert (
                    distance <= kappa * shift * (1 + 1e-7) + MANY
                )  # differences of erf, near 1 where codes are rare
                best = max(best, distance / shift)
    assert best >= 0.99 * kappa


def test_table_equals_closed_form_for_randomized_response() -> None:
    for bits, q in ((1, 0.8), (2, 0.5), (4, 0.9)):
        rows = round_rows(reference.keep_or_replace(q, 2**bits), levels=np.arange(2.0**bits))
        # Rounding to 2^-32, and the search's tolerance of 5e-7.
        assert table_contraction(rows) == pytest.approx(contraction(q, bits), rel=1e-5)


@given(
    rows=st.lists(
        st.lists(st.integers(1, 30), min_size=4, max_size=4),
        min_size=2,
        max_size=5,
    ),
    data=st.data(),
)
def test_random_tables_brute_force(rows: list[list[int]], data: st.DataObject) -> None:
    probabilities = np.array(rows, dtype=float)
    probabilities /= probabilities.sum(axis=1, keepdims=True)
    weights = round_rows(probabilities, levels=np.arange(4.0))
    kappa = table_contraction(weights)
    # Any rule may pick the row: cells of random edges, rows in any order and repeated.
    cells = data.draw(st.integers(2, 6))
    edges = sorted(data.draw(st.lists(st.floats(-3, 3), min_size=cells - 1, max_size=cells - 1)))
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=cells, max_size=cells))
    shift = data.draw(st.floats(0.01, 4))
    full = np.concatenate([[-np.inf], edges, [np.inf]])
    table = weights[chosen] / TOTAL
    first = reference.codes_after_noise(0.0, 1.0, full, table)
    second = reference.codes_after_noise(shift, 1.0, full, table)
    # Weights of 2^-32 and errors of erf.
    assert reference.gaussian_distance(first, second) <= kappa * shift * (1 + 1e-7) + 1e-7


def test_table_is_attained_by_the_two_rows_that_differ_most() -> None:
    # Theorem B is sharp: of all thresholds between two rows one comes as close to kappa as small shifts allow.
    mechanism = families.rqm(lower=-1.0, upper=1.0, levels=4, extension=1.0, q=0.42)
    kappa = table_contraction(mechanism)
    table, best = mechanism.probabilities, 0.0
    for low in range(len(table)):
        for high in range(len(table)):
            for threshold in np.linspace(-2, 2, 41) if low != high else ():
                edges = np.array([-np.inf, threshold, np.inf])
                pair = table[[low, high]]
                first = reference.codes_after_noise(0.0, 1.0, edges, pair)
                second = reference.codes_after_noise(0.01, 1.0, edges, pair)
                best = max(best, reference.gaussian_distance(first, second) / 0.01)
    # A shift of 0.01, whose square is lost, at thresholds a tenth apart; kappa as above.
    assert 0.99 * kappa <= best <= kappa * (1 + 1e-6)


def test_events_are_exhausted_by_prefixes() -> None:
    # Theorem B looks at likelihood-ratio sets only; all 2**m sets of levels give the same supremum.
    rng = np.random.default_rng(5)
    for _ in range(10):
        weights = round_rows(rng.dirichlet(np.ones(5), size=3), levels=np.arange(5.0))
        subsets = np.array([[index >> bit & 1 for bit in range(5)] for index in range(32)])
        merged = 0.0
        for subset in subsets[1:-1]:
            inside = weights @ subset
            merged = max(merged, table_contraction(np.stack([inside, TOTAL - inside], axis=1)))
        assert table_contraction(weights) == pytest.approx(merged, rel=1e-5)  # as above


def test_degenerate_tables() -> None:
    half = TOTAL // 2
    assert table_contraction(np.array([[half, half], [half, half]])) == 0.0
    assert table_contraction(np.array([[TOTAL, 0], [half, half]])) == 1.0
    assert table_contraction(np.array([[0, TOTAL, 0], [0, half, half]])) == 1.0
    # Extreme but finite ratios are enclosed, not lost.
    assert 0 < table_contraction(np.array([[1, TOTAL - 1], [2, TOTAL - 2]])) < 1


def test_bad_input() -> None:
    with pytest.raises(ParameterError, match="bits=0"):
        contraction(0.5, 0)
    with pytest.raises(ParameterError, match="q=nan"):
        contraction(float("nan"), 4)
    with pytest.raises(ParameterError, match=r"q=0\.05"):
        contraction(0.05, 4)
    with pytest.raises(ParameterError, match="rows"):
        table_contraction(np.array([[0.5, 0.5]]))
    with pytest.raises(ParameterError, match="rows"):
        table_contraction(np.array([[1, 2]]))
