"""The paper's formulas as printed: they reproduce, and exact counterexamples show that they guarantee nothing."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from mezzotint import ParameterError
from mezzotint.papers.rqp_formulas import (
    RQPSettings,
    published_epsilon,
    published_q,
    published_utility_bound,
    utility_bound,
)
from papers import DIAGNOSTIC
from reference import training as reference
from tolerances import FEW

MNIST = replace(DIAGNOSTIC, batch_size=64, dataset_size=60_000, steps=938, dimension=7850)
FIGURE_1 = replace(DIAGNOSTIC, batch_size=1, dataset_size=445, steps=445)


@pytest.mark.parametrize(
    ("settings", "noise", "q"),
    [
        *(
            (DIAGNOSTIC, z, q)
            for z, q in (
                (0.1, 0.152),
                (0.5, 0.198),
                (1, 0.285),
                (1.5, 0.414),
                (2, 0.678),
                (2.3, 0.940),
            )
        ),
        *(
            (MNIST, z, q)
            for z, q in ((0.5, 0.153), (1, 0.154), (2, 0.168), (5, 0.250), (10, 0.442))
        ),
        *(
            (FIGURE_1, s / 0.45, q)
            for s, q in ((0.01, 0.157), (0.045, 0.288), (0.06, 0.364), (0.08, 0.545), (0.1, 0.875))
        ),
    ],
)
def test_q_of_the_published_bound(settings: RQPSettings, noise: float, q: float) -> None:
    found = published_q(replace(settings, noise_multiplier=noise))
    # Printed to three digits; one of them was rounded from .28546 and one from .24962.
    assert float(found) == pytest.approx(q, abs=6e-4)
    assert float(
        published_epsilon(replace(settings, noise_multiplier=noise), q=float(found))
    ) == pytest.approx(1.0, rel=FEW)


@pytest.mark.parametrize(("settings", "sigma"), [(DIAGNOSTIC, 1.060), (MNIST, 6.750)])
def test_noise_from_which_the_published_bound_asks_no_replacement(
    settings: RQPSettings, sigma: float
) -> None:
    assert float(published_q(replace(settings, noise_multiplier=(sigma - 1e-3) / 0.45))) < 1
    assert float(published_q(replace(settings, noise_multiplier=(sigma + 1e-3) / 0.45))) == 1


@pytest.mark.parametrize(
    ("dimension", "noise", "start", "true"),
    [
        # All coordinates start on the second highest of the 16 levels and one record moves all of them up alike.
        (31, 1.0, 0.26, 3.71),
        # One weight starts on the seventh level and one record moves it up.
        (1, 2.355, -0.06, 1.32),
    ],
)
def test_counterexamples_in_forty_digits(
    dimension: int, noise: float, start: float, true: float
) -> None:
    # q is chosen for a published epsilon of 1 over 46 steps at rate 10/455; one full step then costs .989 of it.
    q = float(published_q(replace(DIAGNOSTIC, noise_multiplier=noise)))
    once = replace(
        DIAGNOSTIC, noise_multiplier=noise, dataset_size=10, steps=1, dimension=dimension
    )
    nominal = published_epsilon(once, q=q)
    assert float(nominal) == pytest.approx(0.989, abs=1e-3)  # three printed decimals
    # The record's gradient has norm rho and equal coordinates; the others' gradients vanish
    # (hinge loss, all well classified).
    move = 1.0 * 0.45 / 10 / math.sqrt(dimension)
    loss = dimension * reference.exact_code_loss(
        start=start, move=move, noise=once.weight_noise, q=q, bits=4, bound=0.3
    )
    assert float(loss) == pytest.approx(true, abs=0.005)  # two printed decimals
    assert float(loss) > 1.3 * float(nominal)


def test_reasons_name_the_flaws_that_apply() -> None:
    paper = published_epsilon(DIAGNOSTIC, q=0.9).reasons
    assert len(paper) == 5
    assert "C = -0.15 is negative" in paper[0]
    alone = replace(DIAGNOSTIC, dimension=1, sampling="poisson", batch_size=455, step_size=0.1)
    assert len(published_epsilon(alone, q=0.9).reasons) == 2
    assert "negative" not in published_epsilon(alone, q=0.9).reasons[0]
    assert "not a DP guarantee" in str(published_q(DIAGNOSTIC))


def test_published_utility_bound_is_broken_by_a_step_that_never_leaves_its_cell() -> None:
    # d=1, loss rho |w - M|, start at -M, no noise, nearest rounding: eta rho = .018 < h = .02 never moves the weight.
    settings = replace(
        DIAGNOSTIC,
        step_size=0.04,
        noise_multiplier=1e-12,
        dimension=1,
        steps=10**9,
        batch_size=10,
        dataset_size=10,
    )
    levels = np.linspace(-0.3, 0.3, 16)
    weight = -0.3
    for _ in range(1000):
        stepped = weight - settings.step_size * settings.clip_norm * np.sign(weight - 0.3)
        weight = float(levels[np.argmin(np.abs(levels - stepped))])
    excess = settings.clip_norm * abs(weight - 0.3)
    assert excess == pytest.approx(0.270, rel=FEW)
    assert float(published_utility_bound(settings, q=1.0)) == pytest.approx(
        0.0045, abs=1e-4
    )  # four printed decimals
    assert excess <= utility_bound(settings, rounding="nearest", start_distance=0.6)


@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("q", [1.0, 0.9, 0.5])
def test_utility_bound_holds_in_simulation(rounding: str, q: float) -> None:
    # Mean excess over all iterates of 4000 independent runs of d=1, loss rho |w - 0.1|, against the bound.
    settings = replace(DIAGNOSTIC, step_size=0.2, noise_multiplier=0.5, dimension=1, steps=100)
    rng = np.random.default_rng(11)
    runs, half = 4000, settings.half_cell
    levels = np.linspace(-0.3, 0.3, 16)
    weights, total = np.full(runs, -0.3), 0.0
    for _ in range(settings.steps):
        total += settings.clip_norm * float(np.abs(weights - 0.1).mean())
        noisy = weights - settings.step_size * settings.clip_norm * np.sign(weights - 0.1)
        noisy = np.clip(noisy + settings.weight_noise * rng.standard_normal(runs), -0.3, 0.3)
        exact = (noisy + 0.3) / (2 * half)
        codes = np.rint(exact) if rounding == "nearest" else np.floor(exact + rng.random(runs))
        replaced = rng.random(runs) < 16 / 15 * (1 - q)
        codes = np.where(replaced, rng.integers(0, 16, runs), codes).astype(int)
        weights = levels[np.clip(codes, 0, 15)]
    bound = utility_bound(settings, q=q, rounding=rounding, start_distance=0.4)
    assert total / settings.steps <= bound


def test_bad_settings() -> None:
    with pytest.raises(ParameterError, match="bits=0"):
        replace(DIAGNOSTIC, bits=0)
    with pytest.raises(ParameterError, match="noise_multiplier=0"):
        replace(DIAGNOSTIC, noise_multiplier=0.0)
    with pytest.raises(ParameterError, match="steps=0"):
        replace(DIAGNOSTIC, steps=0)
    with pytest.raises(ParameterError, match="sampling=shuffle"):
        replace(DIAGNOSTIC, sampling="shuffle")
    with pytest.raises(ParameterError, match=r"q=2\.0"):
        published_epsilon(DIAGNOSTIC, q=2.0)
    with pytest.raises(ParameterError, match="target=0"):
        published_q(DIAGNOSTIC, target=0.0)
    with pytest.raises(ParameterError, match="start_distance=nan"):
        utility_bound(DIAGNOSTIC, start_distance=float("nan"))
