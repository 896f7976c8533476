"""The auditor: right on closed forms, silent about what is private, and it breaks the published claim."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom

from laws.registry import judges
from mezzotint import ParameterError
from mezzotint.papers import rqp_formulas
from mezzotint.papers.rqp_pure import pure_epsilon
from mezzotint.training import rqp
from mezzotint.training.audit import audit
from papers import DIAGNOSTIC


def test_clopper_pearson_limits() -> None:
    # 1000 runs each: 900 hits, 100 false alarms. Each limit is the p at which the count has tail 1/80 (exact binomial).
    scores = np.arange(1000) < 900
    other = np.arange(1000) < 100
    found = audit(scores, other, threshold=0.5, confidence=0.95)
    grid = np.linspace(0, 1, 200_001)
    power = grid[binom.sf(899, 1000, grid) <= 0.0125].max()
    alarm = grid[binom.cdf(100, 1000, grid) <= 0.0125].min()
    assert found.epsilon == pytest.approx(
        math.log(power / alarm), abs=1e-3
    )  # the grid of 5e-6, over rates from .1 on
    assert (found.hits, found.misses, found.false_alarms, found.rejections) == (900, 100, 100, 900)


@judges("training.audit.audit")
def test_false_alarm_rate_on_randomized_response() -> None:
    # 400 audits of epsilon = 1 randomized response at 80 % confidence: more than 110 false alarms have probability
    # below 1e-4 even if each audit failed in the full 20 % (they fail far less often).
    rng = np.random.default_rng(7)
    keep = math.e / (1 + math.e)
    exceeded = 0
    for _ in range(400):
        present, absent = rng.random(300) < keep, rng.random(300) > keep
        exceeded += audit(present, absent, threshold=0.5, confidence=0.8).epsilon > 1
    assert exceeded <= 110
    many = audit(rng.random(100_000) < keep, rng.random(100_000) > keep, threshold=0.5)
    assert 0.9 < many.epsilon <= 1


def test_nothing_is_learnt_from_noise() -> None:
    rng = np.random.default_rng(2)
    assert audit(rng.normal(size=500), rng.normal(size=500), threshold=0.0).epsilon < 0.2


def _codes(
    settings: rqp_formulas.RQPSettings,
    *,
    q: float,
    mean: float,
    runs: int,
    rng: np.random.Generator,
) -> npt.NDArray[np.int64]:
    """(runs, dimension) codes after noise around one mean, nearest rounding and keep-or-replace."""
    levels, shape = settings.levels, (runs, settings.dimension)
    noisy = mean + settings.weight_noise * rng.standard_normal(shape)
    codes = np.clip(
        np.rint((noisy + settings.bound) / (2 * settings.half_cell)), 0, levels - 1
    ).astype(np.int64)
    replaced = rng.random(shape) < levels / (levels - 1) * (1 - q)
    return np.where(replaced, rng.integers(0, levels, shape), codes)


def test_breaks_the_published_epsilon_and_not_ours() -> None:
    # One step on 31 weights at z = 0.1, where q = .152 makes the published bound read .989. The other records have
    # brought the weights near the edge of a cell; the canary's gradient moves all of them across it. The attacker
    # adds up log likelihood ratios of codes. Confidence 99.9 %: a false alarm in one of a thousand seeds.
    settings = replace(DIAGNOSTIC, noise_multiplier=0.1)
    q = float(rqp_formulas.published_q(settings))
    once = replace(settings, steps=1, dataset_size=10)
    nominal = float(rqp_formulas.published_epsilon(once, q=q))
    assert nominal == pytest.approx(0.989, abs=1e-3)  # three printed decimals
    rng = np.random.default_rng(13)
    means = (0.276 + 0.045 / math.sqrt(31), 0.276)
    ratio = np.log(
        np.divide(
            *(
                np.bincount(_codes(once, q=q, mean=mean, runs=20_000, rng=rng).ravel())
                for mean in means
            )
        )
    )
    present, absent = (
        ratio[_codes(once, q=q, mean=mean, runs=50_000, rng=rng)].sum(axis=1) for mean in means
    )
    broken = audit(present, absent, threshold=2.5, confidence=0.999)
    assert broken.epsilon > 2 * nominal
    honest = pure_epsilon(0.1, q=q, bits=4, dimension=31, steps=1, sampling_rate=1.0)
    assert broken.epsilon <= honest
    for delta in (1e-3, 1e-2, 0.1):
        claimed = rqp.epsilon(0.1, q=q, bits=4, sampling_rate=1.0, steps=1, delta=delta).epsilon
        attacked = audit(present, absent, threshold=2.5, delta=delta, confidence=0.999).epsilon
        assert 0 < attacked <= claimed


def test_bad_input() -> None:
    with pytest.raises(ParameterError, match="with_canary=0"):
        audit([], [1.0], threshold=0)
    with pytest.raises(ParameterError, match="without_canary=nan"):
        audit([1.0], [float("nan")], threshold=0)
    with pytest.raises(ParameterError, match="delta=1"):
        audit([1.0], [1.0], threshold=0, delta=1.0)
    with pytest.raises(ParameterError, match="confidence=1"):
        audit([1.0], [1.0], threshold=0, confidence=1.0)
