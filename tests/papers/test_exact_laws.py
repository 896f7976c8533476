"""RQM's exact law against its definition, and the statements about the paper that rest on it."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

import mezzotint as mz
from mezzotint import ParameterError, families
from mezzotint.papers import rqm
from mezzotint.papers.exact_laws import rqm_floats, rqm_knots, worst_divergence
from tolerances import FEW, GRAIN, printed

EPSILONS = {
    # (m, Delta / c, q) -> exact epsilon, and between the two ends: rationals of a program of its own.
    (16, "1", "0.23"): (3.219311, 3.173783),
    (16, "0.66", "0.33"): (5.298263, 5.287540),
    (64, "1", "0.42"): (19.678177, 19.614369),
    (64, "0.66", "0.33"): (17.712279, 17.712279),
}

ERRORS = {
    0.15: (0.71699, (0.65372, 0.94816, 0.72127)),
    0.25: (0.24291, (0.22998, 0.23591, 0.25879)),
    0.35: (0.11230, (0.07780, 0.07017, 0.10780)),
}
"""theta -> error of PBM, errors of the three RQMs over the paper's 30 inputs, as noted."""


def drawn_by_subsets(law: mz.papers.RandomizedQuantization, x: Fraction) -> list[Fraction]:
    """The law by its definition: every set of kept inner levels, its probability, its neighbours of x."""
    points, last = law.points, law.levels - 1
    chances = [Fraction(0)] * law.levels
    for kept in itertools.product((False, True), repeat=law.levels - 2):
        chance = math.prod((law.q if one else 1 - law.q for one in kept), start=Fraction(1))
        present = [0, *(i + 1 for i, one in enumerate(kept) if one), last]
        low = max(i for i in present if points[i] <= x)
        high = min(i for i in present if points[i] > x)
        share = (x - points[low]) / (points[high] - points[low])
        chances[low] += chance * (1 - share)
        chances[high] += chance * share
    return chances


@given(
    levels=st.integers(3, 7),
    extension=st.fractions("1/10", 3, max_denominator=20),
    q=st.fractions("1/10", "9/10", max_denominator=20),
    x=st.fractions(-1, 1, max_denominator=30),
)
def test_the_law_is_that_of_all_sets_of_kept_levels(
    levels: int, extension: Fraction, q: Fraction, x: Fraction
) -> None:
    law = mz.papers.rqm_exact(levels=levels, extension=extension, q=q)
    assert list(law.pmf(x)) == drawn_by_subsets(law, x)
    assert sum(map(Fraction.__mul__, law.pmf(x), law.points)) == x
    # Ratios are largest at the knots: no other input beats them.
    assert law.between(x, 1).ratio <= law.worst.ratio
    assert law.between(x, -1).ratio <= law.worst.ratio
    floats = law.floats([float(x)])[0]
    np.testing.assert_allclose(floats, [float(p) for p in law.pmf(x)], rtol=0, atol=FEW)


@pytest.mark.parametrize("setting", EPSILONS)
def test_epsilons_of_the_paper_and_which_inputs_are_worst(setting: tuple[int, str, str]) -> None:
    levels, extension, q = setting
    law = mz.papers.rqm_exact(levels=levels, extension=extension, q=q)
    exact, ends = EPSILONS[setting]
    assert law.epsilon == pytest.approx(exact, abs=printed(6))
    assert law.between(1, -1).epsilon == pytest.approx(ends, abs=printed(6))
    assert math.exp(law.epsilon) >= law.worst.ratio


def test_fractions_stay_exact() -> None:
    third = Fraction(1, 3)
    law = mz.papers.rqm_exact(levels=4, extension=third, q=third)
    assert law == mz.papers.rqm_exact(levels=4, extension="1/3", q="1/3")
    assert (law.extension, law.q) == (third, third)


def test_a_ratio_in_integers() -> None:
    law = mz.papers.rqm_exact(levels=16, extension=4, q="0.5")
    assert law.worst.ratio == Fraction(215040, 9773)


def test_the_nine_pairs_of_the_paper_and_the_three_with_more_error() -> None:
    rows = rqm.pairs().rows
    for theta, (rival, errors) in ERRORS.items():
        found = [row for row in rows if row["theta"] == theta]
        assert [row["MSE"] for row in found] == pytest.approx(errors, abs=printed(5))
        assert [row["MSE of PBM"] for row in found] == pytest.approx([rival] * 3, abs=printed(5))
    worse = [(row["Delta / c"], row["q"]) for row in rows if row["MSE"] > row["MSE of PBM"]]
    assert worse == [(4.0, 0.5), (1.0, 0.23), (0.66, 0.33)]
    assert all(row["D_2"] < row["D_2 of PBM"] for row in rows)
    divergences = {
        (row["Delta / c"], row["q"]): (row["D_2"], row["D_2 of PBM"])
        for row in rows
        if row["MSE"] > row["MSE of PBM"]
    }
    assert divergences[4.0, 0.5] == pytest.approx((2.72, 5.00), abs=printed(2))
    assert divergences[1.0, 0.23] == pytest.approx((2.73, 5.00), abs=printed(2))
    assert divergences[0.66, 0.33] == pytest.approx((4.80, 12.71), abs=printed(2))
    assert [row["MSE at c"] for row in rows if row["theta"] == 0.25] == pytest.approx(
        [0.2154, 0.2086, 0.2091], abs=printed(4)
    )
    # Seven of the nine have their worst pair at the ends.
    assert sum(row["epsilon"] == row["at (c, -c)"] for row in rows) == 7


def test_figure_1b() -> None:
    rows = rqm.figure1().rows
    noted = [0.02731, 0.0581, 0.13229, 0.35304, 0.22211, 0.09057, 0.0415, 0.04775]
    assert [row["RQM"] for row in rows[8:]] == pytest.approx(noted, abs=printed(5))
    assert [row["PBM"] for row in rows] == pytest.approx(
        [math.comb(15, k) * 3**k / 4**15 for k in range(16)], rel=FEW
    )


@pytest.mark.parametrize("order", [0.5, 1.0, 1.5, 2.0, 1000.0])
def test_divergences_of_the_law_are_those_of_the_table_up_to_its_rounding(order: float) -> None:
    law = rqm.law_of(rqm.PAIRS[0.25][0])
    table = families.rqm(lower=-1, upper=1, levels=16, extension=1.0, q=0.42)
    least = min(min(row) for row in law.rows)
    # A weight errs by 2^-32 of a probability of at least `least`; ratios and orders enlarge that.
    assert law.renyi(order) == pytest.approx(
        table.renyi(order), rel=1e-7 + 4 * GRAIN / float(least)
    )
    rows = rqm_floats(16, 1.0, 0.42, rqm_knots(16, 1.0))
    assert worst_divergence(rows, order) == pytest.approx(law.renyi(order), rel=FEW)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("levels", {"levels": 2}),
        ("extension", {"extension": 0}),
        ("q", {"q": 1}),
        ("q", {"q": "half"}),
    ],
)
def test_bad_parameters_are_named(name: str, options: dict[str, object]) -> None:
    with pytest.raises(ParameterError, match=name):
        mz.papers.rqm_exact(**options)
    with pytest.raises(ParameterError, match="x"):
        mz.papers.rqm_exact().pmf(2)
