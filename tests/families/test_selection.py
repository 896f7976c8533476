"""Pair selection, RQM and ERM against the published sampling algorithms run over every outcome."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from counting import calls
from mezzotint import ParameterError, families, papers
from mezzotint.families.numeric import erm_rows, pair_rows, rqm_rows
from reference import families as twin
from tolerances import FEW, GRAIN, MANY


def twin_rows(pmf: Any, bins: list[Any], lower: Any, upper: Any) -> list[list[Any]]:
    """The twin's pmf at the knots: lower, every inner bin from below and at it, upper from below."""
    rows = [pmf(lower, "at")]
    for b in bins:
        if lower < b < upper:
            rows += [pmf(b, "below"), pmf(b, "at")]
    return [*rows, pmf(upper, "below")]


def assert_same(rows: np.ndarray, expected: list[list[Any]], rel: float = 1e-13) -> None:
    exact = np.array([[float(p) for p in row] for row in expected])
    assert rows.shape == exact.shape
    np.testing.assert_allclose(rows, exact, rtol=rel, atol=0)


@pytest.mark.parametrize("levels", [2, 3, 4, 5, 8])
@pytest.mark.parametrize("extension", [Fraction(1, 2), Fraction(1), Fraction(2), Fraction(7, 3)])
@pytest.mark.parametrize("q", [Fraction(1, 100), Fraction(21, 50), Fraction(9, 10)])
def test_rqm_rows_are_those_of_all_subsets(levels: int, extension: Fraction, q: Fraction) -> None:
    bins = [-1 - extension + 2 * (1 + extension) * Fraction(i, levels - 1) for i in range(levels)]
    expected = twin_rows(
        lambda x, at: twin.rqm_pmf(x, bins, q, at), bins, Fraction(-1), Fraction(1)
    )
    _, knots, rows = rqm_rows(
        lower=-1.0, upper=1.0, levels=levels, extension=float(extension), q=float(q)
    )
    assert_same(rows, expected, rel=1e-11)
    inner = [b for b in bins if -1 < b < 1 for _ in range(2)]
    np.testing.assert_allclose(knots, [float(k) for k in [-1, *inner, 1]], rtol=0, atol=FEW)


def test_rqm_between_the_knots_is_the_published_pmf() -> None:
    bins = [Fraction(-2) + Fraction(4 * i, 6) for i in range(7)]
    mechanism = families.rqm(levels=7, extension=1.0, q=0.42)
    for x in (Fraction(-9, 10), Fraction(-1, 7), Fraction(1, 3), Fraction(99, 100)):
        exact = [float(p) for p in twin.rqm_pmf(x, bins, Fraction(21, 50))]
        np.testing.assert_allclose(mechanism.pmf(float(x)), exact, rtol=0, atol=4 * GRAIN)


@pytest.mark.parametrize(
    ("levels", "extension", "inner"),
    [(4, 2.0, 0), (5, 1.0, 1), (8, 2 / 5, 4), (10, 2 / 7, 6), (9, 1.0, 3)],
)
@pytest.mark.parametrize(("lower", "upper"), [(-1.0, 1.0), (-0.1, 0.1), (0.3, 0.9), (-7.0, 130.1)])
def test_rqm_bin_on_the_end_of_the_range_opens_no_cell(
    levels: int, extension: float, inner: int, lower: float, upper: float
) -> None:
    # In exact arithmetic a bin falls on each end here; in floats it may miss it by an ulp.
    mechanism = families.rqm(
        lower=lower, upper=upper, levels=levels, extension=extension * (upper - lower) / 2, q=0.3
    )
    assert mechanism.knots.size == 2 + 2 * inner
    assert {lower, upper} <= set(mechanism.levels.tolist())


@pytest.mark.parametrize("gamma", [-30.0, -1.0, 0.0, 0.026, 3.0, 200.0])
@pytest.mark.parametrize(
    "bins", [[-5.1, -0.1, 0.1, 5.1], [-2.0, 3.0], [-1.5, -0.2, 0.1, 0.7, 4.0], [-1.0, 0.0, 1.0]]
)
def test_erm_rows_are_those_of_all_pairs(bins: list[float], gamma: float) -> None:
    left, right = twin.erm_tables(bins, gamma)
    exact = [twin.mpmath.mpf(b) for b in bins]
    expected = twin_rows(lambda x, at: twin.pair_pmf(x, exact, left, right, at), exact, -1, 1)
    _, rows = erm_rows(np.array(bins), lower=-1.0, upper=1.0, gamma=gamma)
    assert_same(rows, expected, rel=1e-12)


@st.composite
def selections(
    draw: st.DrawFn,
) -> tuple[list[Fraction], list[list[Fraction]], list[list[Fraction]]]:
    """Increasing bins around [-1, 1] and two tables of selection probabilities, all rational."""
    m = draw(st.integers(2, 5))
    steps = draw(st.lists(st.integers(1, 9), min_size=m, max_size=m))
    cuts = [Fraction(sum(steps[: i + 1])) for i in range(m)]
    outer_low, outer_high = (Fraction(draw(st.integers(0, 12)), 4) for _ in range(2))
    span = (2 + outer_low + outer_high) / (cuts[-1] - cuts[0])
    bins = [-1 - outer_low + (c - cuts[0]) * span for c in cuts]

    def table() -> list[list[Fraction]]:
        rows = []
        for j in range(1, m):
            shares = draw(st.lists(st.integers(0, 8), min_size=j, max_size=j).filter(any))
            rows.append([Fraction(s, sum(shares)) for s in shares])
        return rows

    return bins, table(), table()


@settings(max_examples=60)
@given(selections())
def test_selection_is_the_published_algorithm(case: tuple[list, list, list]) -> None:
    bins, left, right = case
    # Bins in floats, then read back: the twin works on exactly the bins that the table has.
    floats = [
        -max(1.0, -float(bins[0])),
        *(float(b) for b in bins[1:-1]),
        max(1.0, float(bins[-1])),
    ]
    exact = [Fraction(b) for b in floats]
    mechanism = families.selection(bins=floats, left=left, right=right)
    rows = twin_rows(
        lambda x, at: twin.pair_pmf(x, exact, left, right, at), exact, Fraction(-1), Fraction(1)
    )
    # A few units more than rounding needs: they cancel the bias that it leaves.
    np.testing.assert_allclose(
        mechanism.probabilities, np.array(rows, dtype=float), rtol=0, atol=100 * GRAIN
    )
    assert mechanism.max_bias <= np.ptp(mechanism.levels) * GRAIN
    assert all(sum(p * b for p, b in zip(row, exact, strict=True)) == x for row, x in zip(
        rows, [Fraction(k) for k in mechanism.knots.tolist()], strict=True
    ))  # fmt: skip


def test_selection_mirrors_the_left_table() -> None:
    left = [[1.0], [0.7, 0.3], [0.5, 0.2, 0.3]]
    bins = [-3.0, -0.5, 0.5, 3.0]
    assert families.selection(bins=bins, left=left) == families.selection(
        bins=bins, left=left, right=left
    )
    rows = families.selection(bins=bins, left=left).probabilities
    np.testing.assert_allclose(rows, rows[::-1, ::-1], rtol=0, atol=2 * GRAIN)


def test_rqm_and_erm_are_selections() -> None:
    q = 0.3
    left = [
        [(1 - q) ** (j - 1)] + [q * (1 - q) ** (j - i) for i in range(2, j + 1)]
        for j in range(1, 5)
    ]
    bins = np.linspace(-2.5, 2.5, 5)
    assert families.selection(bins=bins, left=left) == families.rqm(levels=5, extension=1.5, q=q)
    even = [[1 / j] * j for j in range(1, 5)]
    assert families.selection(bins=bins, left=even) == families.erm(bins=bins, gamma=0.0)


def test_rqm_limits_of_q() -> None:
    response = families.rqm(levels=4, extension=2.0, q=0.0)
    assert response.epsilon == pytest.approx(
        math.log(2), rel=1e-8
    )  # levels +-3 c: log((3+1)/(3-1))
    assert not response.weights[:, 1:-1].any()
    assert math.isinf(families.rqm(levels=4, extension=2.0, q=1.0).epsilon)
    assert math.isinf(families.rqm(levels=4, extension=0.0, q=0.5).epsilon)


@pytest.mark.parametrize("levels", [16, 64, 256])
def test_many_levels_are_unbiased_and_keep_every_report_possible(levels: int) -> None:
    mechanism = families.rqm(levels=levels, extension=1.0, q=0.42)
    assert mechanism.max_bias <= np.ptp(mechanism.levels) * GRAIN
    assert (mechanism.weights >= 1).all()
    assert math.isfinite(mechanism.epsilon)
    # Linear in levels (rounding is exact arithmetic on those of them that need it); a loop over pairs of them is not.
    assert calls(lambda: families.rqm(levels=levels, extension=1.0, q=0.42)) < 1000 * levels + 5000


def test_pair_rows_keep_relative_accuracy_of_tiny_probabilities() -> None:
    levels, q = 40, Fraction(1, 2)
    bins = [Fraction(-2) + Fraction(4 * i, levels - 1) for i in range(levels)]
    left = [
        [(1 - q) ** (j - 1)] + [q * (1 - q) ** (j - i) for i in range(2, j + 1)]
        for j in range(1, levels)
    ]
    floats = np.array([float(b) for b in bins])
    tables = [np.array(row, dtype=float) for row in left]
    _, rows = pair_rows(floats, tables, tables, lower=-1.0, upper=1.0)
    exact = twin.pair_pmf(Fraction(-1), [Fraction(b) for b in floats.tolist()], left, left)
    assert min(exact) < MANY  # or rounding to absolute accuracy would pass
    np.testing.assert_allclose(rows[0], [float(p) for p in exact], rtol=FEW)


# The biased variant ---------------------------------------------------------------------------------------------------


def _exponential(gamma: float, width: float) -> Any:
    def choose(x: Any, low: Any, high: Any) -> tuple[Any, Any]:
        a, b = (twin.mpmath.exp(-gamma * abs(x - y) / (2 * width)) for y in (low, high))
        return a / (a + b), b / (a + b)

    return choose


@pytest.mark.parametrize("gamma", [-3.0, 0.0, 1.5, 40.0])
def test_biased_selection_is_the_exponential_mechanism_at_its_knots(gamma: float) -> None:
    bins, left, right = (
        [-3.0, -0.5, 0.5, 3.5],
        [[1.0], [0.7, 0.3], [0.5, 0.2, 0.3]],
        [[1.0], [0.4, 0.6], [0.1, 0.2, 0.7]],
    )
    mechanism = papers.biased_selection(bins=bins, left=left, right=right, gamma=gamma, knots=9)
    assert {-1.0, -0.75, -0.5, 0.0, 0.5, 1.0} <= set(mechanism.knots.tolist())
    choose = _exponential(gamma, 2.0)
    seen: set[float] = set()
    for knot, row in zip(mechanism.knots.tolist(), mechanism.probabilities, strict=True):
        jump = knot in (-0.5, 0.5) and knot not in seen
        seen.add(knot)
        expected = twin.pair_pmf(
            knot, bins, left, right, "below" if jump or knot == 1 else "at", choose
        )
        np.testing.assert_allclose(row, [float(p) for p in expected], rtol=0, atol=8 * GRAIN)


def test_biased_selection_reports_its_bias_and_pays_less_privacy() -> None:
    bins, left = [-3.0, -0.5, 0.5, 3.0], [[1.0], [0.7, 0.3], [0.5, 0.2, 0.3]]
    biased = papers.biased_selection(bins=bins, left=left, gamma=1.0)
    unbiased = families.selection(bins=bins, left=left)
    assert biased.max_bias > 0.1
    assert biased.max_bias == pytest.approx(
        float(np.max(np.abs(biased.mean(biased.knots) - biased.knots))), rel=FEW
    )
    assert biased.epsilon < unbiased.epsilon


# Bad input ------------------------------------------------------------------------------------------------------------

GOOD = {"bins": [-2.0, 0.0, 2.0], "left": [[1.0], [0.5, 0.5]]}
BAD_SELECTIONS = [
    ({"lower": 1.0, "upper": -1.0}, "lower"),
    ({"lower": 1.0, "upper": 1.0}, "lower"),
    ({"upper": math.inf}, "upper"),
    ({"lower": math.nan}, "lower"),
    ({"lower": 1e16, "upper": 1e16 + 2}, "upper"),
    ({"bins": [-2.0]}, "bins"),
    ({"bins": [-2.0, 2.0, 0.0]}, "bins"),
    ({"bins": [-2.0, 0.0, math.nan]}, "bins"),
    ({"bins": [-0.5, 0.0, 2.0]}, "bins"),
    ({"bins": [-2.0, 0.0, 0.5]}, "bins"),
    ({"bins": "wide"}, "bins"),
    ({"left": [[1.0]]}, "left"),
    ({"left": 3}, "left"),
    ({"left": [[1.0], [1.0]]}, "left"),
    ({"left": [[1.0], [0.5, "x"]]}, "left"),
    ({"left": [[1.0], [1.5, -0.5]]}, "left"),
    ({"left": [[1.0], [0.5, 0.4]]}, "left"),
    ({"left": [[1.0], [math.nan, 1.0]]}, "left"),
    ({"right": [[1.0], [0.6, 0.6]]}, "right"),
]


@pytest.mark.parametrize(("change", "parameter"), BAD_SELECTIONS)
def test_selection_names_what_is_wrong(change: dict[str, Any], parameter: str) -> None:
    for build in (families.selection, lambda **k: papers.biased_selection(gamma=1.0, **k)):
        with pytest.raises(ParameterError) as caught:
            build(**{**GOOD, **change})
        assert caught.value.parameter == parameter
        assert caught.value.remedy


GRID = {"lower": -1.0, "upper": 1.0, "levels": 4, "extension": 1.0}
BAD_OTHERS = [
    (families.rqm, {"levels": 1}, "levels"),
    (families.rqm, {"levels": 2.5}, "levels"),
    (families.rqm, {"levels": True}, "levels"),
    (families.rqm, {"levels": 2**16 + 1}, "levels"),
    (families.rqm, {"extension": -0.1}, "extension"),
    (families.rqm, {"extension": math.nan}, "extension"),
    (families.rqm, {"q": 1.1}, "q"),
    (families.rqm, {"q": "half"}, "q"),
    (families.erm, {"bins": [-2, 2], "gamma": math.inf}, "gamma"),
    (families.erm, {"bins": [0, 2]}, "bins"),
    (papers.biased_selection, {**GOOD, "gamma": math.nan}, "gamma"),
    (papers.biased_selection, {**GOOD, "gamma": 1.0, "knots": 1}, "knots"),
    (papers.published_rqm_epsilon, {**GRID, "extension": 0.0, "q": 0.5}, "extension"),
    (papers.published_rqm_epsilon, {**GRID, "q": 1.0}, "q"),
    (papers.published_erm_error, {**GRID, "gamma": 0.0}, "gamma"),
    (
        papers.published_erm_epsilon,
        {**GRID, "extension": -1.0, "gamma": 1},
        "extension",
    ),
]


@pytest.mark.parametrize(("build", "arguments", "parameter"), BAD_OTHERS)
def test_other_families_name_what_is_wrong(
    build: Any, arguments: dict[str, Any], parameter: str
) -> None:
    with pytest.raises(ParameterError) as caught:
        build(**arguments)
    assert caught.value.parameter == parameter


def test_published_rqm_bound_is_above_exact_epsilon() -> None:
    for levels in (4, 8, 16):
        for extension in (0.3, 1.0, 3.0):
            for q in (0.1, 0.5, 0.8):
                arguments = {
                    "lower": -2.0,
                    "upper": 1.0,
                    "levels": levels,
                    "extension": extension,
                    "q": q,
                }
                assert families.rqm(**arguments).epsilon <= papers.published_rqm_epsilon(
                    **arguments
                )


@pytest.mark.parametrize("gamma", [0.5, 2.0, 8.0])
def test_published_erm_error_is_above_exact_error(gamma: float) -> None:
    arguments = {"lower": -1.0, "upper": 1.0, "levels": 8, "extension": 1.0, "gamma": gamma}
    mechanism = families.erm(bins=np.linspace(-2, 2, 8), gamma=gamma)
    assert mechanism.mae() <= papers.published_erm_error(**arguments)
    # 4 log(8) / gamma * 2 + 4 / 7
    assert papers.published_erm_error(**arguments) == pytest.approx(
        8 * math.log(8) / gamma + 4 / 7, rel=1e-12
    )
