"""The quadratic Renyi constant term by term: distances, ratios and humps gone through one by one."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest

from mezzotint import Mechanism, ParameterError
from mezzotint.families import pbm, rqm
from mezzotint.privacy.sums import geometry
from mezzotint.privacy.sums.cost import others_noise
from mezzotint.privacy.sums.geometry import pair_quotients, quadratic_renyi, squared_distance
from mezzotint.privacy.sums.noise import NoiseMixture, no_noise
from tolerances import FEW

DISTANCES = np.array([0.0, 0.05, 0.4, 1.0, 2.5])
ROW, SLOPE = np.array([0.2, 0.5, 0.3]), np.array([-0.08, -0.12, 0.2])
WINDOWS = {
    "known": NoiseMixture(
        probability=np.ones(1), pmf=np.array([[0.3, 0.7]]), outside=0.0, error=0.0
    ),
    "with holes": NoiseMixture(
        probability=np.array([0.75, 0.25]), pmf=np.array([[0.2, 0.6, 0.0], [0.7, 0.0, 0.3]]),
        outside=0.125, error=0.01,
    ),
    "silent": no_noise(),
}  # fmt: skip


for _seed in range(4):
    _draw = np.random.default_rng(_seed)
    WINDOWS[f"random {_seed}"] = NoiseMixture(
        probability=np.array([0.5, 0.5]),
        pmf=_draw.dirichlet(np.ones(4), size=2),
        outside=0.0,
        error=0.1 * _seed,
    )


def _slow(noise: NoiseMixture, alpha: float) -> list[float]:
    """Per bin the worst of a dense set of distances and ratios between their bounds, summed over places."""
    weights, lowest, highest = geometry._NoisyRows(noise).ratios(ROW, SLOPE)
    cap = float(np.max(np.abs(SLOPE) / ROW))

    def worst(ratios: list[float], t: float) -> float:
        if t == 0:
            return max(0.5 * alpha * (alpha - 1) * u * u for u in ratios)
        return max((max(1 + t * u, 0.0) ** alpha - 1 - alpha * t * u) / t**2 for u in ratios)

    def place(low: float, high: float, ts: list[float]) -> float:
        ratios = np.linspace(low, high, 9).tolist()
        return max(worst(ratios, t) for t in ts)

    found: list[float] = []
    for left, right in pairwise(DISTANCES):
        ts = np.linspace(left, right, 41).tolist()
        sides = [
            sum(
                weight
                * place(sign * (low if sign > 0 else high), sign * (high if sign > 0 else low), ts)
                for weight, low, high in zip(
                    weights.tolist(), lowest.tolist(), highest.tolist(), strict=True
                )
            )
            for sign in (1, -1)
        ]
        found.append(max(sides) + noise.outside * max(place(-cap, -cap, ts), place(cap, cap, ts)))
    return found


@pytest.mark.parametrize("alpha", [1.25, 2.0, 3.5])
@pytest.mark.parametrize("noise", WINDOWS.values(), ids=WINDOWS)
def test_every_distance_and_every_ratio_between_the_bounds_is_covered_and_no_more(
    noise: NoiseMixture, alpha: float
) -> None:
    ours, slow = pair_quotients(noise, ROW, SLOPE, DISTANCES, alpha), _slow(noise, alpha)
    # Below t = 1e-2 the differences of the slow sums cancel: a relative 1e-9 covers 2**-53 / t**2 / Phi.
    assert (ours >= np.array(slow) * (1 - 1e-9)).all()
    # Orders below 2 have humps, which 41 distances see within a relative (1/40)**2 of their curvature.
    # The series of small ratios errs by 1e-4 of itself, and not at all at order 2.
    assert (ours <= np.array(slow) * (1 + {1.25: 2e-2, 2.0: 1e-9, 3.5: 2e-4}[alpha])).all()


@pytest.mark.parametrize("alpha", [1.3, 2.0, 9.0])
@pytest.mark.parametrize("table", ["one report", "a crowd"])
def test_pairs_of_rows_and_slopes_that_are_passed_over_are_not_the_worst(
    table: str, alpha: float
) -> None:
    """The slow twin looks at every pair of row and slope in every bin."""
    mechanism = pbm(lower=-1, upper=2, trials=3, theta=0.2, knots=5)
    noise = no_noise() if table == "one report" else others_noise(mechanism, 40)
    knots, rows = geometry._segments(mechanism)
    steepness = np.diff(rows, axis=0) / np.diff(knots)[:, None]
    finer, mixed = geometry._refined((knots, rows), noise.pmf.size)
    owner = np.searchsorted(knots, finer[:-1], side="right") - 1
    apart = geometry._least_distances(finer)
    distances = (
        np.append(0.0, np.geomspace(1 / 32, 1, 24 if noise.pmf.size < geometry._CURVED else 6))
        * 3.0
    )
    worst = 0.0
    for k, row in enumerate(mixed):
        for j, slope in enumerate(steepness):
            nearest = float(apart[k, owner == j].min())
            quotients = pair_quotients(noise, row, slope, distances, alpha).tolist()
            for left, right, quotient in zip(distances[:-1], distances[1:], quotients, strict=True):
                if right > nearest:
                    worst = max(
                        worst, quotient if left == 0 else math.log1p(left**2 * quotient) / left**2
                    )
    slack = 2 * noise.slack(noise.pmf.size) + FEW
    ours = quadratic_renyi(mechanism, noise, alpha)
    assert ours == pytest.approx(worst / (alpha - 1), rel=slack)


TABLES = {
    "few levels": (lambda: pbm(lower=-1, upper=2, trials=3, theta=0.2, knots=5), 40),
    "mass that all but vanishes": (lambda: pbm(lower=-0.3, upper=0.3, trials=15, theta=0.499, knots=4), 300),
    "one report": (lambda: rqm(lower=-1, upper=1, levels=6, extension=0.5, q=0.4), 0),
    "no mass": (lambda: Mechanism(knots=[0, 1, 2], levels=[0, 1], weights=[[2**32, 0], [2**31, 2**31], [0, 2**32]]), 3),
}  # fmt: skip


@pytest.mark.parametrize("alpha", [1.1, 2.0, 12.0, 3000.0])
@pytest.mark.parametrize("table", TABLES)
def test_bounds_of_all_pairs_at_once_are_above_those_place_by_place_and_close(
    table: str, alpha: float
) -> None:
    mechanism, others = TABLES[table][0](), TABLES[table][1]
    noise = others_noise(mechanism, others)
    pairs = geometry._Pairs(mechanism, noise)
    found = pairs.bounds(alpha)
    assert not np.isnan(found).any()
    slack: list[float] = []
    for place, ours in enumerate(found):
        exact = geometry._over_squares(
            pairs.distances[:-1], pair_quotients(noise, *pairs._pair(place), pairs.distances, alpha)
        )
        assert (ours[~pairs.counts[place]] == 0).all()
        ours, exact = ours[pairs.counts[place]], exact[pairs.counts[place]]
        assert (ours >= exact * (1 - FEW)).all()
        slack += (ours[exact < math.inf] / exact[exact < math.inf]).tolist()
    # Chords between points a 32nd of themselves apart: where alpha u is at most 4, h is above its parabola by less than
    # a factor of e**4, and a chord above h by (alpha u / 32)**2 / 8 of that. Orders of thousands are all tails.
    assert alpha > 12 or np.median(slack) <= 1 + math.exp(4) * (4 / 32) ** 2 / 8


def _two_rows(width: float) -> Mechanism:
    return Mechanism(
        knots=[0, width], levels=[0, width], weights=[[3 * 2**30, 2**30], [2**30, 3 * 2**30]]
    )  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("alpha", [1.0, math.inf, 0.5, math.nan])
def test_orders_are_finite_and_above_one(alpha: float) -> None:
    with pytest.raises(ParameterError, match="alpha"):
        quadratic_renyi(_two_rows(1.0), no_noise(), alpha)


def test_ranges_whose_squares_are_floats() -> None:
    for width in (1e-100, 1e100):
        assert 0 < squared_distance(_two_rows(width), coordinates=1, clip_norm=width) < math.inf
    for width in (0.99e-100, 1.01e100):
        with pytest.raises(ParameterError, match="range squared"):
            squared_distance(_two_rows(width), coordinates=1, clip_norm=width)
