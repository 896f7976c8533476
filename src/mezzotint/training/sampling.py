"""How records enter a step, and what one step then loses.

Dominating curves and their loss distributions for steps that share all settings.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, final

import numpy as np
from dp_accounting import NeighboringRelation
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import (
    PrivacyLossDistribution,
    from_gaussian_mechanism,
)
from scipy.special import log_ndtr, ndtr
from scipy.stats import binom

from mezzotint.core.arguments import (
    Neighboring,
    check_count,
    check_positive,
    check_rate,
)
from mezzotint.core.errors import ParameterError
from mezzotint.core.kinds import checked
from mezzotint.core.records import JsonObject, above, below
from mezzotint.core.types import FloatArray
from mezzotint.privacy.tradeoffs import RELATIVE_ERROR, hockey_stick

Curve = Callable[[FloatArray], FloatArray]
"""Hockey sticks at t >= 0, bounded from above."""


class Curves(NamedTuple):
    """The curves of a pair of distributions, in one order and in the other."""

    ahead: Curve
    behind: Curve


Rounding = Literal["nearest", "stochastic"]
"""How a weight comes onto one of even levels."""

_FINEST = 1e-4
_POINTS = 100_000
"""Losses are spaced 1e-4 apart, wider where that would need more points than this: it only
overstates.
"""

MOST_RECORDS = 100
"""Of one user: with more, steps cost too much to be of use."""

_BEYOND = 40.0
"""Half-lines begin within this many deviations of the means."""

_COARSE = 20_001
"""Points that half-lines are tabulated at."""

_FARTHEST = 700.0
"""Losses that curves are followed to."""

_LARGEST = 709.0
"""The largest loss of which e to its power is a float."""

_NEGLIGIBLE = 1e-20
"""A loss this improbable is counted as infinite."""


class Sampling(ABC):
    """A rule by which records enter a batch."""

    @abstractmethod
    def _curves(self, noise: float, neighboring: Neighboring, contracted: bool) -> Curves | None:
        """Upper bounds on the hockey sticks of one step at t >= 0, in both orders of every pair.

        None if the worst pair is known to be that of Gaussian noise itself, in Poisson batches.
        """

    def spacing(self, noise: float, neighboring: Neighboring, *, contracted: bool = False) -> float:
        """Finest spacing of losses that `step` accepts; wider only overstates."""
        curves = self._curves(noise, neighboring, contracted)
        if curves is None:
            # A loss exceeded with probability 1e-15 or so; replacing a record shifts to either
            # side.
            clip_norms = 1
            if neighboring == "replace_one":
                clip_norms = 2
            shift = clip_norms / noise
            loss_reach = shift * shift / 2 + 9 * shift
        else:
            loss_reach = max(map(_reach, set(curves)))
        return max(_FINEST, loss_reach / _POINTS)

    def step(
        self, noise: float, neighboring: Neighboring, spacing: float, *, contracted: bool = False
    ) -> PrivacyLossDistribution:
        """Loss of one step that is (k / noise)-GDP for a shift of k clip norms; pessimistic.

        Arguments:
            noise: effective noise multiplier z / kappa > 0, finite.
            neighboring: which pairs of data sets are neighbours.
            contracted: kappa < 1: what is known of a step is its GDP alone, not that Gaussian noise
                was added.
            spacing: of the losses, at least `self.spacing(noise, neighboring)`; distributions that
                are to be composed must share it.
        """
        curves = self._curves(noise, neighboring, contracted)
        if curves is None:
            assert isinstance(self, Poisson)
            return from_gaussian_mechanism(
                noise,
                sampling_prob=self.rate,
                value_discretization_interval=spacing,
                neighboring_relation=NeighboringRelation[neighboring.upper()],
            )
        ahead, behind = curves
        losses = _losses(ahead, behind, spacing)
        reverse_losses = None
        if ahead is not behind:
            reverse_losses = _losses(behind, ahead, spacing)
        return PrivacyLossDistribution(losses, reverse_losses)

    @abstractmethod
    def words(self) -> str:
        """The rule in words, for the sentence of a claim."""


@final
@dataclass(frozen=True, kw_only=True)
class Poisson(Sampling):
    """Every record enters a batch with probability `rate`, independently of all others.

    Arguments:
        rate: in (0, 1].
        records_per_user: neighbours differ in all records of one user, at most this many.
    Source: docs/proofs/training.md, "Sampling" and "Users with several records".
    """

    rate: float
    records_per_user: int = 1

    def __post_init__(self) -> None:
        check_rate(self.rate)
        if check_count("records_per_user", self.records_per_user) > MOST_RECORDS:
            raise ParameterError(
                "records_per_user", self.records_per_user, f"{MOST_RECORDS} is the most; keep fewer"
            )

    def words(self) -> str:
        return f"Poisson sampling at rate {below(self.rate)}"

    def _curves(self, noise: float, neighboring: Neighboring, contracted: bool) -> Curves | None:
        if self.records_per_user == 1:
            if neighboring != "replace_one" or not contracted:
                return None
            replaced = partial(self._replace, noise)
            return Curves(replaced, replaced)
        # Of users a pair of noisy sums is known: random replacement after them is post-processing.
        return self._pairs(noise, neighboring)

    def _pairs(self, noise: float, neighboring: Neighboring) -> Curves:
        """Curves of the worst pair, in both orders: how many of the user's records enter is
        binomial.
        """
        copies = np.arange(self.records_per_user + 1)
        masses = binom.pmf(copies, self.records_per_user, self.rate)
        is_kept = masses > _NEGLIGIBLE
        missing = float(masses[~is_kept].sum())
        means = copies[is_kept] / noise
        present = Shifts(masses[is_kept], means, missing)
        mirrored = present.mirrored()
        if neighboring == "replace_one":
            height_curve = mixture_curve(present, mirrored)
            return Curves(height_curve, height_curve)
        absent = Shifts(np.ones(1), np.zeros(1), 0.0)
        return Curves(mixture_curve(present, absent), mixture_curve(absent, mirrored))

    def _replace(self, noise: float, target: FloatArray) -> FloatArray:
        # P = (1-p) M + p M_x, Q = (1-p) M + p M_x'. With e^t = 1 + p (e^s - 1), advanced joint
        # convexity (Balle, Barthe and Gaboardi 2018, Theorem 2) gives, with b = e^(t-s), H_t(P, Q)
        # = p H_s(M_x, (1-b) M + b M_x'), and convexity in the second argument splits that: M_x is
        # one clip norm from M and two from M_x'.
        inner = _inner(target, self.rate)
        share = np.exp(target - inner)
        near = hockey_stick(1 / noise, inner)
        far = hockey_stick(2 / noise, inner)
        return self.rate * ((1 - share) * near + share * far)


@final
@dataclass(frozen=True, kw_only=True)
class WithReplacement(Sampling):
    """A batch is `batch_size` draws from all records, evenly and with replacement.

    Arguments:
        batch_size, dataset_size: numbers of draws and of records, at least 1.
    """

    batch_size: int
    dataset_size: int

    def __post_init__(self) -> None:
        check_count("batch_size", self.batch_size)
        check_count("dataset_size", self.dataset_size)

    def words(self) -> str:
        return (
            f"batches of {self.batch_size} draws with replacement from {self.dataset_size} records"
        )

    def _curves(self, noise: float, neighboring: Neighboring, contracted: bool) -> Curves:
        """The curve of a step, the same in both directions; numbers of copies that are too rare to
        be counted disclose the record.
        """
        # Adding or removing a record is no worse than replacing it: a copy of it is exchanged for
        # some other record.
        chance = 1 / self.dataset_size
        copies = np.arange(1, self.batch_size + 1)
        masses = binom.pmf(copies, self.batch_size, chance)
        last_index = np.flatnonzero(masses > _NEGLIGIBLE)[-1]
        counted = int(last_index) + 1
        uncounted = float(binom.sf(counted, self.batch_size, chance))
        participation = 1.0
        if chance < 1:
            log_absence = self.batch_size * math.log1p(-chance)
            participation = -math.expm1(log_absence)

        def curve(target: FloatArray) -> FloatArray:
            # Given k copies in the batch, exchanging them all moves the sum by at most 2 k clip
            # norms (Balle, Barthe and Gaboardi 2018, Theorem 10).
            inner = _inner(target, participation)
            summed_heights = np.full(target.shape, uncounted)
            for number, mass in zip(copies[:counted], masses[:counted], strict=True):
                summed_heights += mass * hockey_stick(2 * float(number) / noise, inner)
            return summed_heights

        return Curves(curve, curve)


class Shifts(NamedTuple):
    """A mixture of normal distributions of unit variance: weights, means, and the mass of
    components left out.
    """

    weights: FloatArray
    means: FloatArray
    missing: float

    def mirrored(self) -> Shifts:
        """With every mean on the other side of 0."""
        return self._replace(means=-self.means)


def mixture_curve(first: Shifts, second: Shifts) -> Curve:
    """Rising t -> sup_A of P(A) - e^t Q(A) for mixtures P, Q; never understated.

    Arguments:
        first, second: P and Q; no mean of Q exceeds one of P, so that the ratio of their densities
            rises.
    """
    largest_mean = np.abs([*first.means, *second.means]).max()
    farthest = _BEYOND + largest_mean
    coarse_points = np.linspace(-farthest, farthest, _COARSE)
    coarse_ratios, _ = _log_ratio(first, second, coarse_points)

    def curve(target: FloatArray) -> FloatArray:
        points = np.interp(target, coarse_ratios, coarse_points)
        ratios, slopes = _log_ratio(first, second, points)
        points = points + (target - ratios) / np.maximum(slopes, 1e-9)
        # Whatever half-lines these are, each is the best event at a ratio of its own, and between
        # two ratios the curve, which is convex in e^t, lies below its chord.
        points = np.clip(points, -farthest, farthest)
        points.sort()
        ratios, _ = _log_ratio(first, second, points)
        ratios = np.maximum.accumulate(ratios)
        points = points[ratios < _LARGEST]
        ratios = ratios[ratios < _LARGEST]
        heights = _half_line_heights(first, second, points, ratios)
        factors = np.exp(np.minimum(target, _LARGEST))
        known_factors = np.append(0.0, np.exp(ratios))
        known_heights = np.append(1.0, heights)
        return np.interp(factors, known_factors, known_heights)

    return curve


def _half_line_heights(
    first: Shifts, second: Shifts, points: FloatArray, ratios: FloatArray
) -> FloatArray:
    """P(A) - e^t Q(A) of half-lines A from points on, where e^t is the ratio of densities; rounded
    up.
    """
    begins = points[:, None]
    under_first = ndtr(first.means - begins) @ first.weights + first.missing
    log_tails = np.log(second.weights) + log_ndtr(second.means - begins)
    log_parts = np.minimum(ratios[:, None] + log_tails, 0.0)
    parts = np.exp(log_parts)
    under_second = np.minimum(parts.sum(axis=1), 1.0)
    most_under_first = under_first * (1 + RELATIVE_ERROR)
    least_under_second = under_second * (1 - RELATIVE_ERROR)
    heights = most_under_first - least_under_second
    negative_ratios = np.minimum(ratios, 0.0)
    floor_heights = np.maximum(0.0, -np.expm1(negative_ratios))
    return np.clip(heights, floor_heights, 1.0)


def _log_ratio(first: Shifts, second: Shifts, points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Logarithm of the ratio of two mixtures' densities, and its derivative."""
    first_logs, first_slopes = _log_density(first, points)
    second_logs, second_slopes = _log_density(second, points)
    return first_logs - second_logs, first_slopes - second_slopes


def _log_density(shifts: Shifts, points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Logarithm of a mixture's density over the standard normal one, and its derivative."""
    from_middles = points[:, None] - shifts.means / 2
    exponents = np.log(shifts.weights) + shifts.means * from_middles
    largest = exponents.max(axis=1)
    masses = np.exp(exponents - largest[:, None])
    mixture_total = masses.sum(axis=1)
    log_density = largest + np.log(mixture_total)
    derivative = masses @ shifts.means / mixture_total
    return log_density, derivative


def _inner(target: FloatArray, rate: float) -> FloatArray:
    """s with e^t = 1 + rate (e^s - 1), t >= 0."""
    # log(1 + (e^t - 1)/rate) = t + log(e^-t + (1 - e^-t)/rate) does not overflow.
    complement = np.expm1(-target)
    remaining = np.exp(-target) - complement / rate
    return target + np.log(remaining)


def _reach(curve: Curve) -> float:
    loss_reach = 1.0
    while loss_reach < _FARTHEST:
        (height,) = curve(np.array([loss_reach]))
        if not height > _NEGLIGIBLE:
            break
        loss_reach *= 1.25
    return loss_reach


def _losses(ahead: Curve, behind: Curve, spacing: float) -> Any:
    """Losses of a pair whose hockey sticks stay under one curve, and in the other order under the
    other, t >= 0.
    """
    # Connect the dots: through points on or above a curve that is convex in e^t it stays above that
    # curve. Where our points are not convex themselves, dp-accounting raises negative masses to 0,
    # which only adds to delta.
    loss_reach = max(map(_reach, {ahead, behind}))
    index = np.arange(math.ceil(loss_reach / spacing) + 1)
    target = np.asarray(index * spacing, dtype=np.float64)
    ahead_heights = _falling(ahead(target))
    behind_heights = ahead_heights
    if behind is not ahead:
        behind_heights = _falling(behind(target))
    # H_-t(P, Q) = 1 - e^-t + e^-t H_t(Q, P).
    negative_heights = -np.expm1(-target) + np.exp(-target) * behind_heights
    deltas = np.concatenate([negative_heights[:0:-1], ahead_heights])
    grid = np.concatenate([-index[:0:-1], index])
    return pld_pmf.create_pmf_pessimistic_connect_dots(spacing, grid, _falling(deltas))


def _falling(heights: FloatArray) -> FloatArray:
    """Heights in [0, 1], none above those before it."""
    clipped_heights = np.clip(heights, 0.0, 1.0)
    return np.minimum.accumulate(clipped_heights)


def participations(steps: int, bands: int) -> int:
    """How often a record takes part at most that does so in one of `bands` steps in a row, the same
    one each time.
    """
    return -(-steps // bands)


@final
@checked
@dataclass(frozen=True, kw_only=True)
class Phase:
    """Steps of a run that share all settings.

    Arguments:
        noise_multiplier: z, noise of the summed clipped gradients over the clip norm, > 0.
        kappa: contraction of what follows the noise, in [0, 1]: 1 for post-processing (plain,
            nearest or stochastic rounding), `contraction(q, bits)` or `table_contraction(table)`
            for random replacement.
        sampling: how records enter a batch.
        steps: number of steps, at least 0.
        bands: steps that the noise is correlated over, at least 1; may exceed `steps`, for a run
            can be cut into phases. A record takes part in at most one of that many consecutive
            steps, by the rule `sampling`.
    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    """

    noise_multiplier: float
    kappa: float
    sampling: Sampling
    steps: int
    bands: int = 1

    def __post_init__(self) -> None:
        check_positive("noise_multiplier", self.noise_multiplier)
        if not 0 <= self.kappa <= 1:
            raise ParameterError("kappa", self.kappa, "a contraction lies in [0, 1]")
        if self.steps != 0:
            check_count("steps", self.steps)
        check_count("bands", self.bands)
        if self.bands > 1 and self.kappa != 1:
            raise ParameterError(
                "bands",
                self.bands,
                "replaced codes hide nothing of noise that is correlated: kappa=1",
            )
        if self.bands > 1 and self.records_per_user > 1:
            remedy = (
                "a user's records are in several parts, whose blocks of correlated noise "
                "overlap; use bands=1"
            )
            raise ParameterError("bands", self.bands, remedy)

    @property
    def participations(self) -> int:
        """How often a record takes part at most."""
        return participations(self.steps, self.bands)

    @property
    def records_per_user(self) -> int:
        """Maximum number of records of a user, where the claim is about users; else 1."""
        if isinstance(self.sampling, Poisson):
            return self.sampling.records_per_user
        return 1

    @property
    def effective_noise(self) -> float:
        """z / kappa: the noise multiplier of the DP-SGD that is as private; inf at kappa = 0. z for
        users' records.
        """
        if self.kappa == 0:
            return math.inf
        if self.records_per_user > 1:
            # Theorem A is about pairs of means, and several records mix more.
            return self.noise_multiplier
        return self.noise_multiplier / self.kappa

    def __str__(self) -> str:
        # Rounded so that what is printed costs no more than what is claimed.
        noise_words = f"noise multiplier {above(self.noise_multiplier)}"
        if self.kappa != 1:
            noise_words += f" contracted by kappa {below(self.kappa)}"
        if self.bands > 1:
            noise_words += f" correlated over {self.bands} steps, one of which may use a record"
        return f"{self.steps} step(s) with {noise_words}, {self.sampling.words()}"

    @property
    def facts(self) -> JsonObject:
        """Plain values for JSON."""
        phase_facts: JsonObject = {
            "noise_multiplier": self.noise_multiplier,
            "kappa": self.kappa,
            "steps": self.steps,
        }
        if self.bands > 1:
            phase_facts["bands"] = self.bands
        return phase_facts
