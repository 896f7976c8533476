"""Attacks on our own claims: lower bounds on epsilon from runs with and without a canary, or from one run with many."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, binom

from mezzotint.core.arguments import check_count, check_delta, check_probability
from mezzotint.core.errors import ParameterError, refuse_nan
from mezzotint.core.search import bracket


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
    return (
        1.0
        if successes == trials
        else float(beta.ppf(1 - error, successes + 1, trials - successes))
    )


def _bound(
    yes_with: int, with_runs: int, yes_without: int, without_runs: int, delta: float, error: float
) -> float:
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
        with_canary, without_canary: one score per run; larger is evidence for the canary.
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
    first, second = (
        np.asarray(with_canary, dtype=float).ravel(),
        np.asarray(without_canary, dtype=float).ravel(),
    )
    for name, scores in (("with_canary", first), ("without_canary", second)):
        check_count(name, scores.size)
        refuse_nan(name, scores, "score")
    check_delta(delta)
    check_probability("confidence", confidence)
    hits, alarms = int((first > threshold).sum()), int((second > threshold).sum())
    # Four one-sided limits, each missed with a quarter of the error.
    error = (1 - confidence) / 4
    present = _bound(hits, first.size, alarms, second.size, delta, error)
    absent = _bound(second.size - alarms, second.size, first.size - hits, first.size, delta, error)
    return Audit(
        epsilon=max(0.0, present, absent), delta=delta, confidence=confidence, hits=hits, misses=first.size - hits,
        false_alarms=alarms, rejections=second.size - alarms,
    )  # fmt: skip


@final
@dataclass(frozen=True, kw_only=True)
class OneRunAudit:
    """What an attack proves about a mechanism from a single run.

    Arguments:
        epsilon: lower bound on epsilon at `delta`, for adding or removing one record; 0 if the attack fails.
        delta: of the claim under attack.
        confidence: probability that the bound holds, over the coins and the run.
        canaries: records that a coin was thrown for.
        guesses, right: canaries that the attack said something about, and about how many it was right.
    """

    epsilon: float
    delta: float
    confidence: float
    canaries: int
    guesses: int
    right: int


def audit_one_run(
    scores: npt.ArrayLike,
    included: npt.ArrayLike,
    *,
    guesses: int,
    delta: float = 0.0,
    confidence: float = 0.95,
) -> OneRunAudit:
    """Lower bound on epsilon from one run whose data holds each of many canaries if a fair coin says so.

    Arguments:
        scores: (m,) one for each canary, larger is evidence that it is there. They may depend on all that was released.
        included: (m,) what the coins said: fair, independent, and unknown to whatever made the scores.
        guesses: how many canaries the attack guesses: the first half, rounded up, of the largest scores are said
            to be there, the rest, of the smallest, not to be. Choose it before looking at this run.
        delta: of the claim under attack, in [0, 1).
        confidence: in (0, 1).
    Raises:
        ParameterError: no canaries, scores that are not numbers, lengths that differ, more guesses than canaries, delta
            or confidence outside their range.
    Guarantees: for a mechanism that is (epsilon, delta)-DP for adding or removing one record the bound exceeds epsilon
        with probability at most 1 - confidence, whatever the canaries and scores are. It is loose: the
        guesses cannot show more than about log(guesses / log(1 / (1 - confidence))).
    Example:
        >>> audit_one_run(range(100), [0] * 50 + [1] * 50, guesses=40).epsilon
        2.554...

    Source: Steinke, Nasr and Jagielski 2023, Theorem 5.2.
    """
    given, truth = np.asarray(scores, dtype=float).ravel(), np.asarray(included, dtype=bool).ravel()
    check_count("scores", given.size)
    refuse_nan("scores", given, "score")
    if given.size != truth.size:
        raise ParameterError(
            "included", truth.size, f"need one coin for each of the {given.size} scores"
        )
    check_count("guesses", guesses, most=given.size)
    check_delta(delta)
    check_probability("confidence", confidence)
    order = np.argsort(-given, kind="stable")
    there = (guesses + 1) // 2
    right = int(truth[order[:there]].sum()) + int(
        (~truth[order[given.size - (guesses - there) :]]).sum()
    )
    return OneRunAudit(
        epsilon=_refuted(right, guesses, given.size, delta, 1 - confidence), delta=delta, confidence=confidence,
        canaries=given.size, guesses=guesses, right=right,
    )  # fmt: skip


def chance_of(right: int, guesses: int, canaries: int, *, epsilon: float, delta: float) -> float:
    """Bound on the probability that an attack on an (epsilon, delta)-DP mechanism makes this many correct guesses."""
    known = 1 / (1 + math.exp(-epsilon))
    tail = float(binom.sf(right - 1, guesses, known))
    if delta == 0:
        return tail
    # A failure of probability delta may make i more guesses right at the price of i failures.
    more = np.cumsum(binom.pmf(right - np.arange(1, right + 1), guesses, known)) / np.arange(
        1, right + 1
    )
    return min(1.0, tail + 2 * canaries * delta * float(more.max(initial=0.0)))


def _refuted(right: int, guesses: int, canaries: int, delta: float, error: float) -> float:
    """The largest epsilon at which so many right guesses have less than this chance; 0 if none."""

    def refuted(epsilon: float) -> bool:
        return chance_of(right, guesses, canaries, epsilon=epsilon, delta=delta) < error

    if not refuted(0.0):
        return 0.0
    most = 1.0
    while refuted(most):
        most *= 2
    return bracket(refuted, 0.0, most, tolerance=1e-9)[0]
