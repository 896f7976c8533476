"""Attacks on our own claims: a lower bound on epsilon from runs with and without a canary."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.stats import beta

from mezzotint.core.arguments import check_count, check_delta, check_probability
from mezzotint.core.errors import ParameterError


@final
@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an attack proves about a mechanism.

    Arguments:
        epsilon: lower bound on epsilon at `delta`, valid with the stated confidence; 0 if the attack fails.
        delta: of the claim under attack.
        confidence: probability that the bound holds, over the runs.
        hits, misses: runs with the canary that the attack says have it, and that it says have not.
        false_alarms, rejections: the same for runs without it.
    """

    epsilon: float
    delta: float
    confidence: float
    hits: int
    misses: int
    false_alarms: int
    rejections: int


def _at_least(successes: int, trials: int, error: float) -> float:
    """Clopper-Pearson lower limit of a probability."""
    return 0.0 if successes == 0 else float(beta.ppf(error, successes, trials - successes + 1))


def _at_most(successes: int, trials: int, error: float) -> float:
    """Clopper-Pearson upper limit of a probability."""
    return 1.0 if successes == trials else float(beta.ppf(1 - error, successes + 1, trials - successes))


def _bound(yes_with: int, with_runs: int, yes_without: int, without_runs: int, delta: float, error: float) -> float:
    power, alarm = _at_least(yes_with, with_runs, error), _at_most(yes_without, without_runs, error)
    return math.log((power - delta) / alarm) if power > delta and alarm > 0 else 0.0


def audit(
    with_canary: npt.ArrayLike,
    without_canary: npt.ArrayLike,
    *,
    threshold: float,
    delta: float = 0.0,
    confidence: float = 0.95,
) -> Audit:
    """Lower bound on epsilon from an attacker's scores of independent runs.

    Arguments:
        with_canary, without_canary: one score per run; larger speaks for the canary.
        threshold: the attack answers "it is there" above it. Choose it before looking at these runs.
        delta: of the claim under attack, in [0, 1).
        confidence: in (0, 1); both directions of the test and both limits share the error.

    Returns: the larger of the two directions' bounds, at least 0.

    Raises:
        ParameterError: no runs, scores that are not numbers, delta or confidence outside their range.

    Guarantees: for an (epsilon, delta)-DP mechanism the bound exceeds epsilon with probability at most
        1 - confidence, whatever the scores are.
    Source: Jagielski, Ullman and Oprea 2020; Clopper and Pearson 1934.
    """
    first, second = np.asarray(with_canary, dtype=float).ravel(), np.asarray(without_canary, dtype=float).ravel()
    for name, scores in (("with_canary", first), ("without_canary", second)):
        check_count(name, scores.size)
        if np.isnan(scores).any():
            raise ParameterError(name, "nan", "every run needs a score")
    check_delta(delta)
    check_probability("confidence", confidence)
    hits, alarms = int((first > threshold).sum()), int((second > threshold).sum())
    # Four one-sided limits, each missed with a quarter of the error.
    error = (1 - confidence) / 4
    present = _bound(hits, first.size, alarms, second.size, delta, error)
    absent = _bound(second.size - alarms, second.size, first.size - hits, first.size, delta, error)
    return Audit(
        epsilon=max(0.0, present, absent),
        delta=delta,
        confidence=confidence,
        hits=hits,
        misses=first.size - hits,
        false_alarms=alarms,
        rejections=second.size - alarms,
    )
