"""Attacks on our own claims: lower bounds on epsilon from runs with and without a canary, or from
one run with many.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
from scipy.stats import beta, binom

from mezzotint.core.arguments import check_count, check_delta, check_probability
from mezzotint.core.errors import ParameterError, as_reals, refuse_nan
from mezzotint.core.search import bracket
from mezzotint.core.types import BoolArray, FloatArray


@final
@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an attack proves about a mechanism.

    Arguments:
        epsilon: lower bound on epsilon at `delta`, valid with the stated confidence; 0 if the
            attack fails.
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


@final
@dataclass(frozen=True, kw_only=True)
class _Answers:
    """How many of some runs the attack answered "it is there" about."""

    positive: int
    runs: int

    def flipped(self) -> _Answers:
        """Answers of the attack that says the opposite."""
        return _Answers(positive=self.runs - self.positive, runs=self.runs)

    def lower_limit(self, error: float) -> float:
        """Clopper-Pearson lower limit of the probability of this answer."""
        if self.positive == 0:
            return 0.0
        return float(beta.ppf(error, self.positive, self.runs - self.positive + 1))

    def upper_limit(self, error: float) -> float:
        """Clopper-Pearson upper limit of the probability of this answer."""
        if self.positive == self.runs:
            return 1.0
        return float(beta.ppf(1 - error, self.positive + 1, self.runs - self.positive))


def _bound(with_canary: _Answers, without_canary: _Answers, *, delta: float, error: float) -> float:
    """Lower bound on epsilon from one direction of the test, each limit missed with this
    probability.
    """
    power_limit = with_canary.lower_limit(error)
    false_alarm = without_canary.upper_limit(error)
    if power_limit <= delta or false_alarm == 0:
        return 0.0
    return math.log((power_limit - delta) / false_alarm)


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
        threshold: the attack answers "it is there" above it. Choose it before looking at these
            runs.
        delta: of the claim under attack, in [0, 1).
        confidence: in (0, 1); both directions of the test and both limits share the error.
    Returns: the larger of the two directions' bounds, at least 0.
    Raises:
        ParameterError: no runs, scores that are not numbers, delta or confidence outside their
            range.
    Guarantees: for an (epsilon, delta)-DP mechanism the bound exceeds epsilon with probability at
        most 1 - confidence, whatever the scores are.
    Source: Jagielski, Ullman and Oprea 2020; Clopper and Pearson 1934.
    """
    present = _answers("with_canary", with_canary, threshold)
    absent = _answers("without_canary", without_canary, threshold)
    check_delta(delta)
    check_probability("confidence", confidence)
    limit_error = (1 - confidence) / LIMITS
    adding = _bound(present, absent, delta=delta, error=limit_error)
    removing = _bound(absent.flipped(), present.flipped(), delta=delta, error=limit_error)
    return Audit(
        epsilon=max(0.0, adding, removing),
        delta=delta,
        confidence=confidence,
        hits=present.positive,
        misses=present.flipped().positive,
        false_alarms=absent.positive,
        rejections=absent.flipped().positive,
    )


LIMITS = 4
"""One-sided limits of a test in both directions; each is missed with an equal share of the error.
"""


def _answers(name: str, scores: npt.ArrayLike, threshold: float) -> _Answers:
    values = as_reals(name, scores, "need a score of each run").ravel()
    check_count(name, values.size)
    refuse_nan(name, values, "score")
    return _Answers(positive=int((values > threshold).sum()), runs=values.size)


@final
@dataclass(frozen=True, kw_only=True)
class OneRunAudit:
    """What an attack proves about a mechanism from a single run.

    Arguments:
        epsilon: lower bound on epsilon at `delta`, for adding or removing one record; 0 if the
            attack fails.
        delta: of the claim under attack.
        confidence: probability that the bound holds, over the coins and the run.
        canaries: records that a coin was thrown for.
        guesses, right: canaries that the attack said something about, and about how many it was
            right.
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
    """Lower bound on epsilon from one run whose data holds each of many canaries if a fair coin
    says so.

    Arguments:
        scores: (m,) one for each canary, larger is evidence that it is there. They may depend on
            all that was released.
        included: (m,) what the coins said: fair, independent, and unknown to whatever made the
            scores.
        guesses: how many canaries the attack guesses: the first half, rounded up, of the largest
            scores are said to be there, the rest, of the smallest, not to be. Choose it before
            looking at this run.
        delta: of the claim under attack, in [0, 1).
        confidence: in (0, 1).
    Raises:
        ParameterError: no canaries, scores that are not numbers, lengths that differ, more guesses
            than canaries, delta or confidence outside their range.
    Guarantees: for a mechanism that is (epsilon, delta)-DP for adding or removing one record the
        bound exceeds epsilon with probability at most 1 - confidence, whatever the canaries and
        scores are. It is loose: the guesses cannot show more than about log(guesses / log(1 / (1 -
        confidence))).
    Example:
        >>> audit_one_run(range(100), [0] * 50 + [1] * 50, guesses=40).epsilon
        2.554...

    Source: Steinke, Nasr and Jagielski 2023, Theorem 5.2.
    """
    evidence = as_reals("scores", scores, "need a score of each canary").ravel()
    coins = as_reals("included", included, "need true or false for each canary").ravel()
    if not np.isin(coins, (0, 1)).all():
        raise ParameterError("included", "other numbers", "need true or false for each canary")
    coin_values = coins.astype(bool)
    canaries = evidence.size
    check_count("scores", canaries)
    refuse_nan("scores", evidence, "score")
    if coin_values.size != canaries:
        raise ParameterError(
            "included", coin_values.size, f"need one coin for each of the {canaries} scores"
        )
    check_count("guesses", guesses, most=canaries)
    check_delta(delta)
    check_probability("confidence", confidence)
    correct = _correct_guesses(evidence, coin_values, guesses)
    return OneRunAudit(
        epsilon=_refuted(correct, guesses, canaries, delta, 1 - confidence),
        delta=delta,
        confidence=confidence,
        canaries=canaries,
        guesses=guesses,
        right=correct,
    )


def _correct_guesses(evidence: FloatArray, is_included: BoolArray, guesses: int) -> int:
    """How many of the canaries guessed, half of them at either end of the scores, are as guessed."""
    score_order = np.argsort(-evidence, kind="stable")
    guessed_in = (guesses + 1) // 2
    guessed_out = guesses - guessed_in
    largest = score_order[:guessed_in]
    smallest = score_order[evidence.size - guessed_out :]
    correct_in = is_included[largest].sum()
    correct_out = (~is_included[smallest]).sum()
    return int(correct_in + correct_out)


def chance_of(right: int, guesses: int, canaries: int, *, epsilon: float, delta: float) -> float:
    """Bound on the probability that an attack on an (epsilon, delta)-DP mechanism makes this many
    correct guesses.
    """
    accuracy = 1 / (1 + math.exp(-epsilon))
    tail_probability = float(binom.sf(right - 1, guesses, accuracy))
    if delta == 0:
        return tail_probability
    # A failure of probability delta may make i more guesses right at the price of i failures.
    failures = np.arange(1, right + 1)
    cumulated_gains = np.cumsum(binom.pmf(right - failures, guesses, accuracy)) / failures
    return min(
        1.0, tail_probability + 2 * canaries * delta * float(cumulated_gains.max(initial=0.0))
    )


def _refuted(correct: int, guesses: int, canaries: int, delta: float, error: float) -> float:
    """The largest epsilon at which so many correct guesses have less than this chance; 0 if
    none.
    """

    def is_refuted(epsilon: float) -> bool:
        return chance_of(correct, guesses, canaries, epsilon=epsilon, delta=delta) < error

    if not is_refuted(0.0):
        return 0.0
    upper = 1.0
    while is_refuted(upper):
        upper *= 2
    refuted, _ = bracket(is_refuted, 0.0, upper, tolerance=1e-9)
    return refuted
