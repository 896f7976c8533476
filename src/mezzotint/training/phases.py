"""How records enter a step, what one step then loses, and how much of that is left after a random quantizer.

Dominating curves and their loss distributions for steps that share all settings; Theorem A, enclosed from above, and
the pure loss of one step, finite because a replaced code is possible whatever the data, but large.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt
from dp_accounting import NeighboringRelation
from dp_accounting.pld import pld_pmf
from dp_accounting.pld.privacy_loss_distribution import (
    PrivacyLossDistribution,
    from_gaussian_mechanism,
)
from scipy.special import log_ndtr, ndtr, ndtri
from scipy.stats import binom

from mezzotint.core.arguments import (
    Neighboring,
    check_count,
    check_numbers,
    check_positive,
    check_rate,
)
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.core.search import bracket
from mezzotint.core.types import TOTAL, FloatArray
from mezzotint.privacy.tradeoffs import RELATIVE_ERROR, hockey_stick

Curve = Callable[[FloatArray], FloatArray]

Rounding = Literal["nearest", "stochastic"]
"""How a weight comes onto one of even levels."""

_FINEST = 1e-4
_POINTS = 100_000
"""Losses are spaced 1e-4 apart, wider where that would need more points than this; wider only
overstates."""

MOST_RECORDS = 100
"""Of one user: with more, steps cost too much to be of use."""

_BEYOND, _COARSE = 40.0, 20_001
"""Half-lines begin within this many standard deviations of the means, and are tabulated at this many points."""

_FARTHEST, _LARGEST = 700.0, 709.0
_NEGLIGIBLE = 1e-20
"""A loss this improbable is counted as infinite."""


class Sampling(ABC):
    """A rule by which records enter a batch."""

    @abstractmethod
    def _curves(
        self, noise: float, neighboring: Neighboring, contracted: bool
    ) -> tuple[Curve, Curve] | None:
        """Upper bounds on the hockey sticks of one step at t >= 0, in both orders of every pair.

        None if the worst pair is known to be that of Gaussian noise itself, in Poisson batches.
        """

    def spacing(self, noise: float, neighboring: Neighboring, *, contracted: bool = False) -> float:
        """Finest spacing of losses that `step` accepts; wider only overstates."""
        if curves := self._curves(noise, neighboring, contracted):
            reach = max(map(_reach, set(curves)))
        else:  # a loss exceeded with probability 1e-15 or so; replacing a record shifts to either side
            shift = (2 if neighboring == "replace_one" else 1) / noise
            reach = shift * shift / 2 + 9 * shift
        return max(_FINEST, reach / _POINTS)

    def step(
        self, noise: float, neighboring: Neighboring, spacing: float, *, contracted: bool = False
    ) -> PrivacyLossDistribution:
        """Loss of one step that is (k / noise)-GDP for a shift of k clip norms; pessimistic.

        Arguments:
            noise: effective noise multiplier z / kappa > 0, finite.
            neighboring: which pairs of data sets are neighbours.
            contracted: kappa < 1: what is known of a step is its GDP alone, not that Gaussian noise was added.
            spacing: of the losses, at least `self.spacing(noise, neighboring)`; distributions that are to be
                composed must share it.
        """
        if curves := self._curves(noise, neighboring, contracted):
            ahead, behind = curves
            other = None if ahead is behind else _losses(behind, ahead, spacing)
            return PrivacyLossDistribution(_losses(ahead, behind, spacing), other)
        assert isinstance(self, Poisson)
        return from_gaussian_mechanism(
            noise, sampling_prob=self.rate, value_discretization_interval=spacing,
            neighboring_relation=NeighboringRelation[neighboring.upper()],
        )  # fmt: skip

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
        return f"Poisson sampling at rate {self.rate:.6g}"

    def _curves(
        self, noise: float, neighboring: Neighboring, contracted: bool
    ) -> tuple[Curve, Curve] | None:
        if self.records_per_user == 1:
            replaced = partial(self._replace, noise)
            return (replaced, replaced) if neighboring == "replace_one" and contracted else None
        # Of users a pair of noisy sums is known: random replacement after them is post-processing here.
        return self._pairs(noise, neighboring)

    def _pairs(self, noise: float, neighboring: Neighboring) -> tuple[Curve, Curve]:
        """Curves of the worst pair, in both orders: how many of the user's records enter is binomial."""
        copies = np.arange(self.records_per_user + 1)
        masses = binom.pmf(copies, self.records_per_user, self.rate)
        kept = masses > _NEGLIGIBLE
        there = Shifts(masses[kept], copies[kept] / noise, float(masses[~kept].sum()))
        if neighboring == "replace_one":
            both = mixture_curve(there, there.mirrored())
            return both, both
        nobody = Shifts(np.ones(1), np.zeros(1), 0.0)
        return mixture_curve(there, nobody), mixture_curve(nobody, there.mirrored())

    def _replace(self, noise: float, target: FloatArray) -> FloatArray:
        # P = (1-p) M + p M_x, Q = (1-p) M + p M_x'. With e^t = 1 + p (e^s - 1), advanced joint convexity (Balle,
        # Barthe and Gaboardi 2018, Theorem 2) gives H_t(P, Q) = p H_s(M_x, (1-b) M + b M_x'), b = e^(t-s), and
        # convexity in the second argument splits that: M_x is one clip norm from M and two from M_x'.
        inner = _inner(target, self.rate)
        share = np.exp(target - inner)
        near, far = hockey_stick(1 / noise, inner), hockey_stick(2 / noise, inner)
        return self.rate * ((1 - share) * near + share * far)


@final
@dataclass(frozen=True, kw_only=True)
class WithReplacement(Sampling):
    """A batch is `batch_size` draws from all records, evenly and with replacement: one record may come up often.

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

    def _curves(
        self, noise: float, neighboring: Neighboring, contracted: bool
    ) -> tuple[Curve, Curve]:
        # Adding or removing a record is no worse than replacing it: a copy of it is exchanged for some other record.
        chance = 1 / self.dataset_size
        copies = np.arange(1, self.batch_size + 1)
        masses = binom.pmf(copies, self.batch_size, chance)
        last = int(np.flatnonzero(masses > _NEGLIGIBLE)[-1]) + 1
        hit = 1.0 if chance == 1 else -math.expm1(self.batch_size * math.log1p(-chance))

        def curve(target: FloatArray) -> FloatArray:
            # Given k copies in the batch, exchanging them all moves the sum by at most 2 k clip norms
            # (Balle, Barthe and Gaboardi 2018, Theorem 10).
            inner = _inner(target, hit)
            total = np.full(target.shape, float(binom.sf(last, self.batch_size, chance)))
            for number, mass in zip(copies[:last], masses[:last], strict=True):
                total += mass * hockey_stick(2 * float(number) / noise, inner)
            return total

        return curve, curve


class Shifts(NamedTuple):
    """A mixture of normal distributions of unit variance: weights, means, and the mass of components left out."""

    weights: FloatArray
    means: FloatArray
    missing: float

    def mirrored(self) -> Shifts:
        """With every mean on the other side of 0."""
        return self._replace(means=-self.means)


def mixture_curve(first: Shifts, second: Shifts) -> Curve:
    """Rising t -> sup_A of P(A) - e^t Q(A) for mixtures P, Q; never understated.

    Arguments:
        first, second: P and Q; no mean of Q exceeds one of P, so that the ratio of their densities rises.
    """

    def of(shifts: Shifts, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Logarithm of a mixture's density over the standard normal one, and its derivative."""
        terms = np.log(shifts.weights) + shifts.means * (x[:, None] - shifts.means / 2)
        top = terms.max(axis=1)
        masses = np.exp(terms - top[:, None])
        total = masses.sum(axis=1)
        return top + np.log(total), masses @ shifts.means / total

    def ratio(x: FloatArray) -> tuple[FloatArray, FloatArray]:
        (above, rising), (below, falling) = of(first, x), of(second, x)
        return above - below, rising - falling

    farthest = _BEYOND + max(np.abs(first.means).max(), np.abs(second.means).max())
    coarse = np.linspace(-farthest, farthest, _COARSE)
    ratios, _ = ratio(coarse)

    def curve(target: FloatArray) -> FloatArray:
        x = np.interp(target, ratios, coarse)
        there, slope = ratio(x)
        x = np.clip(x + (target - there) / np.maximum(slope, 1e-9), -farthest, farthest)
        # Whatever half-lines these are, each is the best event at a ratio of its own, and between two ratios the curve,
        # which is convex in e^t, lies below its chord.
        x = np.sort(x)
        own = np.maximum.accumulate(ratio(x)[0])
        x, own = x[own < _LARGEST], own[own < _LARGEST]
        above = ndtr(first.means - x[:, None]) @ first.weights + first.missing
        tails = np.log(second.weights) + log_ndtr(second.means - x[:, None])
        below = np.exp(np.minimum(own[:, None] + tails, 0.0)).sum(axis=1)
        height = above * (1 + RELATIVE_ERROR) - np.minimum(below, 1.0) * (1 - RELATIVE_ERROR)
        height = np.clip(height, np.maximum(0.0, -np.expm1(np.minimum(own, 0.0))), 1.0)
        at = np.exp(np.minimum(target, _LARGEST))
        return np.interp(at, np.concatenate([[0.0], np.exp(own)]), np.concatenate([[1.0], height]))

    return curve


def _inner(target: FloatArray, rate: float) -> FloatArray:
    """s with e^t = 1 + rate (e^s - 1), t >= 0."""
    # log(1 + (e^t - 1)/rate) = t + log(e^-t + (1 - e^-t)/rate) does not overflow.
    return target + np.log(np.exp(-target) - np.expm1(-target) / rate)


def _reach(curve: Curve) -> float:
    reach = 1.0
    while reach < _FARTHEST and curve(np.array([reach]))[0] > _NEGLIGIBLE:
        reach *= 1.25
    return reach


def _losses(one: Curve, other: Curve, spacing: float) -> Any:
    """Losses of a pair whose hockey sticks stay under one curve, and in the other order under the other, t >= 0."""
    # Connect the dots: through points on or above a curve that is convex in e^t it stays above that curve. Where
    # our points are not convex themselves, dp-accounting raises negative masses to 0, which only adds to delta.
    index = np.arange(math.ceil(max(map(_reach, {one, other})) / spacing) + 1)
    target = np.asarray(index * spacing, dtype=np.float64)
    seen = {
        curve: np.minimum.accumulate(np.clip(curve(target), 0.0, 1.0)) for curve in {one, other}
    }
    ahead, back = seen[one], seen[other]
    # H_-t(P, Q) = 1 - e^-t + e^-t H_t(Q, P).
    behind = -np.expm1(-target) + np.exp(-target) * back
    deltas = np.concatenate([behind[:0:-1], ahead])
    grid = np.concatenate([-index[:0:-1], index])
    return pld_pmf.create_pmf_pessimistic_connect_dots(
        spacing, grid, np.minimum.accumulate(np.minimum(deltas, 1.0))
    )


def participations(steps: int, bands: int) -> int:
    """How often a record takes part at most that does so in one of `bands` steps in a row, the same one each time."""
    return -(-steps // bands)


@final
@dataclass(frozen=True, kw_only=True)
class Phase:
    """Steps of a run that share all settings.

    Arguments:
        noise_multiplier: z, noise of the summed clipped gradients over the clip norm, > 0.
        kappa: contraction of what follows the noise, in [0, 1]: 1 for post-processing (plain, nearest or stochastic
            rounding), `contraction(q, bits)` or `table_contraction(table)` for random replacement.
        sampling: how records enter a batch.
        steps: number of steps, at least 0.
        bands: steps that the noise is correlated over, at least 1; may exceed `steps`, for a run can be
            cut into phases. A record takes part in at most one of that many consecutive steps, by the rule `sampling`.
    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    """

    noise_multiplier: float
    kappa: float
    sampling: Sampling
    steps: int
    bands: int = 1

    def __post_init__(self) -> None:
        check_numbers(self)
        check_positive("noise_multiplier", self.noise_multiplier)
        if not 0 <= self.kappa <= 1:
            raise ParameterError("kappa", self.kappa, "a contraction lies in [0, 1]")
        if self.steps != 0:
            check_count("steps", self.steps)
        if check_count("bands", self.bands) > 1 and self.kappa != 1:
            remedy = "replaced codes hide nothing of noise that is correlated: kappa=1"
            raise ParameterError("bands", self.bands, remedy)
        if self.bands > 1 and self.records_per_user > 1:
            remedy = "a user's records are in several parts, whose blocks of correlated noise overlap; use bands=1"
            raise ParameterError("bands", self.bands, remedy)

    @property
    def participations(self) -> int:
        """How often a record takes part at most."""
        return participations(self.steps, self.bands)

    @property
    def records_per_user(self) -> int:
        """Maximum number of records of a user, where the claim is about users; else 1."""
        return self.sampling.records_per_user if isinstance(self.sampling, Poisson) else 1

    @property
    def effective_noise(self) -> float:
        """z / kappa: the noise multiplier of the DP-SGD that is as private; inf at kappa = 0. z for users' records."""
        if self.records_per_user > 1 and self.kappa > 0:
            return (
                self.noise_multiplier
            )  # Theorem A is about pairs of means, and several records mix more
        return self.noise_multiplier / self.kappa if self.kappa > 0 else math.inf

    def __str__(self) -> str:
        contracted = "" if self.kappa == 1 else f" contracted by kappa {self.kappa:.6g}"
        noise = f"noise multiplier {self.noise_multiplier:.6g}{contracted}"
        if self.bands > 1:
            noise += f" correlated over {self.bands} steps, one of which may use a record"
        return f"{self.steps} step(s) with {noise}, {self.sampling.words()}"

    @property
    def facts(self) -> JsonObject:
        """Plain values for JSON."""
        bands = {"bands": self.bands} if self.bands > 1 else {}
        return {
            "noise_multiplier": self.noise_multiplier,
            "kappa": self.kappa,
            "steps": self.steps,
            **bands,
        }


def isoperimetric(mass: FloatArray, rest: FloatArray) -> FloatArray:
    """I(m) = phi(Phi^-1(m)), the Gaussian isoperimetric function; concave, symmetric, 0 at both ends.

    Arguments:
        mass: m in [0, 1].
        rest: 1 - m, given as well because near 1 only it is accurate.
    """
    quantile = ndtri(np.minimum(mass, rest))
    return np.exp(-(quantile**2) / 2) / np.sqrt(2 * np.pi)


def slope(mass: FloatArray, rest: FloatArray) -> FloatArray:
    """I'(m) = -Phi^-1(m); +inf at 0, -inf at 1."""
    return np.where(mass <= rest, -ndtri(np.minimum(mass, rest)), ndtri(np.minimum(mass, rest)))


TOLERANCE = 1e-7
"""The upper bound returned lies at most this far (relative) above the supremum."""

_CHUNK = 2048
_ROUNDS = 400

# [0, 1] in octaves from both ends, so that a supremum near an end is found without a fine grid.
_OCTAVES = 2.0 ** np.arange(-60.0, 0.0)
_START = np.concatenate([[0.0], _OCTAVES, 1 - _OCTAVES[-2::-1], [1.0]])


def check_bits(bits: int) -> int:
    """Number of levels 2**bits; ParameterError unless bits is an integer from 1 to 16."""
    return 2 ** check_count("bits", bits, most=16)


def check_q(q: float, levels: int) -> float:
    """The number itself; ParameterError outside [1/levels, 1]."""
    value = float(q)
    if not 1 / levels <= value <= 1:
        raise ParameterError(
            "q",
            value,
            f"the probability to keep a code lies in [1/levels, 1] = [{1 / levels:g}, 1]",
        )
    return value


def _bounds(boxes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Value attained in each box, and an upper bound over the box, of gap I(m) / I(low + gap m).

    Arguments:
        boxes: (7, n) low, gap and top of a channel each, then m and 1 - m at the left and at the right end of an
            interval: both are kept, for accuracy.
    """
    # On [a, b]: I lies under its tangents at a and b, and above its chord. A line over a positive line is monotone,
    # so the bound (lower tangent) / (chord of the denominator) peaks at a, at b, or where the two tangents meet.
    low, gap, top, left, left_rest, right, right_rest = boxes
    at_left, at_right = isoperimetric(left, left_rest), isoperimetric(right, right_rest)
    # 1 - (low + gap m) = top + gap (1 - m), where top = 1 - high.
    below_left = isoperimetric(low + gap * left, top + gap * left_rest)
    below_right = isoperimetric(low + gap * right, top + gap * right_rest)
    # Near 1 only the distances to 1 tell the ends apart.
    width = np.where(left <= left_rest, right - left, left_rest - right_rest)
    from_left, from_right = slope(left, left_rest), slope(right, right_rest)
    attained = gap * np.maximum(at_left / below_left, at_right / below_right)
    with np.errstate(invalid="ignore"):
        # Tangents: at_left + from_left t and at_right - from_right (width - t).
        meet = (at_right - at_left - from_right * width) / (from_left - from_right)
        meet = np.where(np.isfinite(from_left), meet, 0.0)
        meet = np.where(np.isfinite(from_right), meet, width)
        meet = np.clip(np.nan_to_num(meet), 0.0, width)
        # Where the slope at an end is infinite the other tangent alone bounds; elsewhere the larger of the two values
        # at the (rounded) meeting point is above the smaller one, which is what bounds.
        left_line = np.where(np.isfinite(from_left), at_left + from_left * meet, -np.inf)
        right_line = np.where(
            np.isfinite(from_right), at_right - from_right * (width - meet), -np.inf
        )
    chord = below_left + (below_right - below_left) * (meet / width)
    upper = np.maximum(attained, gap * np.maximum(left_line, right_line) / chord)
    return attained, upper * (1 + 10 * RELATIVE_ERROR)


def _attained(low: FloatArray, gap: FloatArray, top: FloatArray, best: float) -> float:
    """max of `best` and of gap I(m) / I(low + gap m) over channels and m, short by at most TOLERANCE (relative).

    Branch and bound; low, top > 0.
    """
    rest = _START[::-1]
    pieces = np.stack([_START[:-1], rest[:-1], _START[1:], rest[1:]])
    boxes = np.vstack(
        [np.repeat([low, gap, top], pieces.shape[1], axis=1), np.tile(pieces, low.size)]
    )
    for _ in range(_ROUNDS):
        attained, upper = _bounds(boxes)
        best = max(best, float(attained.max(initial=0.0)))
        open_boxes = upper > best * (1 + TOLERANCE)
        if not open_boxes.any() or best * (1 + TOLERANCE) >= 1:
            return best
        boxes = boxes[:, open_boxes]
        middle = (boxes[3:5] + boxes[5:]) / 2
        boxes = np.hstack(
            [np.vstack([boxes[:5], middle]), np.vstack([boxes[:3], middle, boxes[5:]])]
        )
    return 1.0  # the bound by data processing, which always holds


def channel_contraction(low: FloatArray, gap: FloatArray, top: FloatArray) -> float:
    """max over channels of sup_m gap I(m) / I(low + gap m), rounded up; 1 where low or top is 0.

    Arguments:
        low, gap, top: (n,) each; an event has probability low under one row and low + gap = 1 - top under another.
    """
    alive = gap > 0
    if not alive.any():
        return 0.0
    low, gap, top = low[alive], gap[alive], top[alive]
    # As m -> 0, I(m) / I(gap m) * gap -> 1: an event impossible under one row keeps the full loss of the noise.
    if (low <= 0).any() or (top <= 0).any():
        return 1.0
    low, gap, top = _largest(low, gap, top)
    best = 0.0
    for start in range(0, low.size, _CHUNK):
        part = slice(start, start + _CHUNK)
        best = _attained(low[part], gap[part], top[part], best)
    return min(1.0, best * (1 + 2 * TOLERANCE))


def _largest(
    low: FloatArray, gap: FloatArray, top: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Drops channels that another one can imitate: [low, high] inside a wider interval never contracts less."""
    order = np.lexsort((top, low))
    low, gap, top = low[order], gap[order], top[order]
    earlier = np.concatenate([[np.inf], np.minimum.accumulate(top)[:-1]])
    keep = top < earlier
    return low[keep], gap[keep], top[keep]


def contraction(q: float, bits: int) -> float:
    """kappa(q, b): the share of the noise's privacy loss that survives b-bit quantizing and keep-or-replace.

    The step is: Gaussian noise on the weights, any fixed quantizer to 2**bits levels, then each code is kept with
    probability q and otherwise replaced by one of the others, evenly. A shift of the weights' mean by a vector t
    then costs (kappa ||t|| / s)-GDP, s the noise per coordinate, in any dimension: RQP-SGD with noise multiplier z
    is exactly as private as DP-SGD with z / kappa.

    Arguments:
        q: probability to keep a code, in [1/2**bits, 1].
        bits: bits of one weight, 1 to 16.
    Returns: kappa in [0, 1], rounded up.
    Raises:
        ParameterError: q or bits outside their range.
    Guarantees:
        Never below the supremum, at most 1e-6 relative above it. 1 at q = 1, 0 at q = 1/2**bits.
    Source: Theorem A (docs/proofs/training.md).
    """
    levels = check_bits(bits)
    keep = check_q(q, levels)
    if keep == 1:
        return 1.0
    # kappa = sup_m (q-u) I(m) / I((q-u) m + u): the channel from u to q, k = 1 of the L levels.
    other = (1 - keep) / (levels - 1)
    gap = max(0.0, keep - other)
    return channel_contraction(np.array([other]), np.array([gap]), np.array([1 - keep]))


def _integer_rows(rows: Any) -> npt.NDArray[np.int64]:
    array = np.asarray(rows.weights if isinstance(rows, Mechanism) else rows)
    if (
        array.ndim != 2
        or array.dtype.kind not in "iu"
        or (array < 0).any()
        or (array.sum(axis=1) != TOTAL).any()
    ):
        remedy = (
            "give a Mechanism, or integer rows >= 0 that each sum to 2**32 (round_rows makes them)"
        )
        raise ParameterError("rows", array.shape, remedy)
    return array.astype(np.int64)


def table_contraction(rows: Mechanism | npt.NDArray[np.int64]) -> float:
    """kappa of any random table that is drawn from after Gaussian noise, whatever picks the row.

    The noisy value may choose its row by any fixed rule, random or not: a quantizer with one row per cell, or a
    `Mechanism` that interpolates between rows. The loss that survives is kappa times that of the noise, as in
    `contraction`, in any dimension.

    Arguments:
        rows: a `Mechanism`, or (rows, m) integers >= 0 that each sum to 2**32.
    Returns: kappa in [0, 1], rounded up.
    Raises:
        ParameterError: rows that do not form a table.
    Guarantees:
        Never below the supremum over means, shifts, scales and rules. Equals `contraction` for randomized response.
        1 if some row cannot give a set of levels that another row can; 0 if all rows are equal.
    Source: Theorem B (docs/proofs/training.md).
    """
    table = np.unique(_integer_rows(rows), axis=0)
    lows: list[npt.NDArray[np.int64]] = []
    highs: list[npt.NDArray[np.int64]] = []
    for row in table:
        # Of all sets of levels only those that a likelihood ratio picks matter (Theorem B): prefixes of this order.
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(table > 0, row / table, np.where(row > 0, math.inf, 0.0))
        order = np.argsort(ratio, axis=1, kind="stable")
        lows.append(np.cumsum(row[order], axis=1)[:, :-1].ravel())
        highs.append(np.cumsum(np.take_along_axis(table, order, axis=1), axis=1)[:, :-1].ravel())
    low, high = np.unique(np.stack([np.concatenate(lows), np.concatenate(highs)]), axis=1)
    # Integers below 2**53: these floats are exact.
    return channel_contraction(low / TOTAL, (high - low) / TOTAL, (TOTAL - high) / TOTAL)


_FAR = 40.0


def _rate(x: float, gap: float, other: float) -> float:
    """r(x) = d/dx log(gap Phi(x) + other)."""
    density = math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return gap * density / (gap * float(ndtr(x)) + other)


def coordinate_loss(shift: float, gap: float, other: float) -> float:
    """l(shift) = sup_x log[(gap Phi(x + shift) + other) / (gap Phi(x) + other)], rounded up.

    Arguments:
        shift: |shift| of the mean over the noise, >= 0.
        gap: q - u >= 0.
        other: u > 0, the probability that a given other code replaces a code.
    """
    if shift == 0 or gap == 0:
        return 0.0

    # r' = -r (x + r), and x + r grows wherever it is 0: r rises to one peak and falls. So the window [x, x + shift]
    # that holds most of it is the only one with r(x) = r(x + shift), and bisection finds it.
    def rising(x: float) -> bool:
        return _rate(x, gap, other) < _rate(x + shift, gap, other)

    left, right = bracket(rising, -_FAR - shift, _FAR)
    # Numerator at the right end and denominator at the left end bound every x between.
    above, below = gap * float(ndtr(right + shift)) + other, gap * float(ndtr(left)) + other
    return math.log(above / below) * (1 + RELATIVE_ERROR) + RELATIVE_ERROR


def step_loss(shift: float, dimension: int, gap: float, other: float) -> float:
    """sup of sum_i l(t_i) over ||t|| <= shift in `dimension` coordinates, l as `coordinate_loss`; rounded up.

    Arguments:
        shift: L2 norm of the shift over the noise per coordinate, >= 0.
        dimension: number of coordinates, >= 1.
    """
    # l'(t) is the common value of r at both ends of the best window, which falls as t grows; so d/dv l(sqrt v) =
    # l'(sqrt v) / (2 sqrt v) falls too: l(sqrt v) is concave, and equal shares of ||t||^2 are worst.
    return dimension * coordinate_loss(shift / math.sqrt(dimension), gap, other)
