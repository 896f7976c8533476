from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings, strategies as st
from scipy.integrate import quad

from mezzotint import Mechanism, ParameterError
from mezzotint.core.priors import as_prior, cost_matrix
from strategies import mechanisms
from tolerances import FEW, MANY

TOTAL = 2**32
LOSSES: tuple[Literal["mse", "mae"], ...] = ("mse", "mae")


def loss_at(mechanism: Mechanism, x: float, loss: str) -> float:
    """Expected loss at one input, straight from its definition."""
    distance = np.abs(mechanism.levels - min(max(x, mechanism.lower), mechanism.upper))
    return float(mechanism.pmf(x) @ (distance**2 if loss == "mse" else distance))


def brute_force(mechanism: Mechanism, density: Any, loss: str) -> float:
    """Adaptive quadrature of loss times density on every piece between knots and levels."""
    inner = mechanism.levels[
        (mechanism.levels > mechanism.lower) & (mechanism.levels < mechanism.upper)
    ]
    edges = np.unique(np.concatenate([mechanism.knots, inner])).tolist()
    return math.fsum(
        quad(
            lambda x: loss_at(mechanism, x, loss) * density(x),
            np.nextafter(a, b),
            np.nextafter(b, a),
            epsabs=1e-13,
        )[0]
        for a, b in pairwise(edges)
    )


def exact_uniform(mechanism: Mechanism, loss: str) -> Fraction:
    """The uniform average in rationals: Simpson's rule is exact for cubics, and each piece is one."""
    knots, levels = (
        [Fraction(k) for k in mechanism.knots.tolist()],
        [Fraction(b) for b in mechanism.levels.tolist()],
    )
    total = Fraction(0)
    for k, (left, right) in enumerate(pairwise(knots)):
        cuts = sorted({left, right, *(b for b in levels if left < b < right)})
        for a, b in pairwise(cuts):
            for x, share in ((a, 1), ((a + b) / 2, 4), (b, 1)):
                t = (x - left) / (right - left)
                rows = zip(
                    mechanism.weights[k].tolist(),
                    mechanism.weights[k + 1].tolist(),
                    levels,
                    strict=True,
                )
                value = sum(
                    ((1 - t) * p + t * q) * (abs(x - y) if loss == "mae" else (x - y) ** 2)
                    for p, q, y in rows
                )
                total += value * share * (b - a) / 6
    return total / TOTAL / (knots[-1] - knots[0])


@given(
    mechanism=mechanisms(max_levels=8, max_segments=6, spacings=("even", "uneven")),
    loss=st.sampled_from(LOSSES),
)
@settings(max_examples=60)
def test_uniform_prior_against_rationals(mechanism: Mechanism, loss: Literal["mse", "mae"]) -> None:
    ours = mechanism.mse() if loss == "mse" else mechanism.mae()
    assert ours == pytest.approx(
        float(exact_uniform(mechanism, loss)), rel=MANY if mechanism.lower > 1e5 else FEW
    )


PRIORS = {
    "normal": scipy.stats.norm(0.1, 0.3),
    "narrow": scipy.stats.norm(0.2, 1e-3),
    "wide": scipy.stats.norm(0, 5),
    "exponential": scipy.stats.expon(-0.5, 0.4),
    "beta": scipy.stats.beta(0.5, 0.5, -1, 2),
    "uniform": scipy.stats.uniform(-0.3, 0.5),
    "triangle": scipy.stats.triang(0.3, -1, 2),
}


def random_mechanism(seed: int) -> Mechanism:
    generator = np.random.default_rng(seed)
    inner = np.sort(generator.uniform(-1, 1, 3))
    weights = generator.multinomial(TOTAL, generator.dirichlet(np.ones(4), 6)).astype(np.int64)
    return Mechanism(
        knots=[-1, inner[0], inner[1], inner[1], inner[2], 1],
        levels=[-1.7, -0.4, 0.5, 2.1],
        weights=weights,
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("prior", PRIORS)
def test_distributions_against_quadrature(prior: str, loss: Literal["mse", "mae"]) -> None:
    distribution = PRIORS[prior]
    for seed in range(3):
        mechanism = random_mechanism(seed)
        if prior in (
            "narrow",
            "beta",
            "uniform",
            "triangle",
        ):  # densities that quadrature in x handles badly: use quantiles
            kinks = distribution.cdf(np.unique(np.concatenate([mechanism.knots, mechanism.levels])))
            expected = quad(
                lambda u, m=mechanism: loss_at(m, float(distribution.ppf(u)), loss),
                0,
                1,
                points=sorted(set(kinks[(kinks > 1e-12) & (kinks < 1 - 1e-12)].tolist())) or None,
                limit=400,
                epsabs=1e-11,
            )[0]
        else:
            ends = distribution.cdf(-1) * loss_at(mechanism, -1, loss) + distribution.sf(
                1
            ) * loss_at(mechanism, 1, loss)
            expected = brute_force(mechanism, distribution.pdf, loss) + ends
        ours = getattr(mechanism, loss)(distribution)
        assert ours == pytest.approx(expected, rel=1e-8)  # both quadratures ask for 1e-9 or better


@pytest.mark.parametrize("loss", LOSSES)
@given(sample=st.lists(st.floats(-2, 2), min_size=1, max_size=30), seed=st.integers(0, 50))
def test_a_sample_is_averaged(loss: Literal["mse", "mae"], sample: list[float], seed: int) -> None:
    mechanism = random_mechanism(seed)
    expected = math.fsum(loss_at(mechanism, x, loss) for x in sample) / len(sample)
    assert getattr(mechanism, loss)(sample) == pytest.approx(expected, rel=MANY)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_sample_at_knots_levels_and_ends(loss: Literal["mse", "mae"]) -> None:
    mechanism = random_mechanism(7)
    sample = np.concatenate([mechanism.knots, mechanism.levels, [-np.inf, np.inf]])
    expected = np.mean([loss_at(mechanism, x, loss) for x in sample])
    assert getattr(mechanism, loss)(sample) == pytest.approx(expected, rel=FEW)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "distribution",
    [
        scipy.stats.poisson(1.3, loc=-1),
        scipy.stats.binom(4, 0.3, loc=-2),
        scipy.stats.randint(-1, 2),
    ],
)
def test_discrete_distributions_are_summed(distribution: Any, loss: Literal["mse", "mae"]) -> None:
    mechanism = random_mechanism(3)
    points = np.arange(-10, 60)
    expected = sum(loss_at(mechanism, float(x), loss) * distribution.pmf(x) for x in points)
    assert getattr(mechanism, loss)(distribution) == pytest.approx(expected, rel=FEW)


@given(
    mechanism=mechanisms(max_levels=8, max_segments=6, spacings=("even", "uneven")),
    loss=st.sampled_from(LOSSES),
)
def test_cost_is_linear_in_the_table(mechanism: Mechanism, loss: Literal["mse", "mae"]) -> None:
    prior = as_prior(None, lower=mechanism.lower, upper=mechanism.upper)
    cost = cost_matrix(knots=mechanism.knots, levels=mechanism.levels, prior=prior, loss=loss)
    assert cost.shape == mechanism.weights.shape
    assert (cost >= -FEW * np.abs(cost).max()).all()
    # A table that always reports level i: its loss is the column sum, and that is the mean distance from level i.
    width, lower, upper = mechanism.upper - mechanism.lower, mechanism.lower, mechanism.upper
    for i, level in enumerate(mechanism.levels.tolist()):
        if loss == "mse":
            expected = ((upper - level) ** 3 - (lower - level) ** 3) / 3 / width
        else:
            expected = (
                ((upper - level) * abs(upper - level) - (lower - level) * abs(lower - level))
                / 2
                / width
            )
        # `expected` subtracts cubes of distances that may be 1e3 widths: 3 roundings of 1e9 times the result.
        assert cost[:, i].sum() == pytest.approx(expected, rel=1e-7, abs=MANY * width)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ([], "non-empty"),
        ([[1.0]], "1-D"),
        ([0.0, math.nan], "value 1 is NaN"),
        ("text", "scipy.stats|sample"),
        (["a"], "scipy.stats|sample"),
        (object(), "scipy.stats"),
        (scipy.stats.norm, "frozen"),
        (scipy.stats.poisson, "frozen"),
        (scipy.stats.randint(100, 200), None),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_is_no_prior_is_refused(prior: object, message: str | None) -> None:
    if message is None:
        # All mass beyond the range is clipped to its end, as inputs are.
        assert random_mechanism(0).mse(prior) == pytest.approx(
            loss_at(random_mechanism(0), 1.0, "mse")
        )
        return
    with pytest.raises(ParameterError, match=message):
        random_mechanism(0).mse(prior)


def test_unknown_loss() -> None:
    mechanism = random_mechanism(0)
    prior = as_prior(None, lower=-1, upper=1)
    with pytest.raises(ParameterError, match="loss="):
        cost_matrix(knots=mechanism.knots, levels=mechanism.levels, prior=prior, loss="rmse")  # pyright: ignore
