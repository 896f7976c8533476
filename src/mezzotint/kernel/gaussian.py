"""Training runs: Gaussian noise on clipped sums, Poisson batches, codes kept or replaced at random.

Statements: Theorem A, "Sampling", "Replacing one record", "Users with several records"
(docs/proofs/training.md), E (docs/proofs/kernel.md). A step is as private as a Gaussian whose
standard deviation is noise_multiplier / kappa clip norms; kappa is checked by branch and bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import comb
from typing import final

from mezzotint.kernel.claim import ExactClaim, ExactRelease, Target
from mezzotint.kernel.losses import check_curves, read_tail, sampled_curves
from mezzotint.kernel.measures import Curve
from mezzotint.kernel.real import (
    Ball,
    ball,
    ball_polynomial,
    ceil_scaled,
    exp_ceil,
)
from mezzotint.kernel.table import Tables
from mezzotint.kernel.units import BITS, WHOLE, Fields, require, tick

_FARTHEST = 64
"""Half-lines begin at most this many standard deviations from 0, or everywhere."""

_HALVINGS = 16
_NEWTON_STEPS = 6
_WIDTH = Fraction(1, 2**100)
"""Of the interval that is shown to hold the point where the ratio of two mixtures is c."""


def _below(point: Ball) -> Ball:
    """The normal distribution function."""
    scaled = -point / ball(2).sqrt()
    return scaled.erfc() / 2


def gaussian_curve(shift: Ball) -> Curve:
    """HS_c(N(shift, 1), N(0, 1)), rounded up; it is the same in both directions."""
    require(shift > 0, "gaussian", "the shift is not positive")

    def bound(numerator: int, denominator: int) -> int:
        factor = ball(Fraction(numerator, denominator))
        # The ratio of densities is c here, in the middle between both means.
        crossing = factor.log() / shift
        first_mass = _below(shift / 2 - crossing)
        second_mass = _below(-shift / 2 - crossing)
        return ceil_scaled(first_mass - factor * second_mass, BITS)

    return Curve(bound)


def replaced_curve(shift: Ball, rate: Fraction) -> Curve:
    """HS_c of (1 - p) N(0) + p N(shift) to (1 - p) N(0) + p N(-shift), c >= 1, rounded up."""
    require(shift > 0, "gaussian", "the shift is not positive")
    require(0 < rate <= 1, "gaussian", "the rate is not a probability above 0")
    present = ball(rate)
    absent = 1 - present
    outer = present * (-shift * shift / 2).exp()

    def bound(numerator: int, denominator: int) -> int:
        require(numerator >= denominator, "gaussian", "c is below 1")
        factor = ball(Fraction(numerator, denominator))
        # The ratio of densities is c at w = e^(shift x), b w^2 - (1 - p)(c - 1) w = c b.
        linear = absent * (factor - 1)
        discriminant = linear * linear + 4 * factor * outer * outer
        positive_root = (linear + discriminant.sqrt()) / (2 * outer)
        crossing = positive_root.log() / shift
        unmoved = absent * (1 - factor) * _below(-crossing)
        first_mass = _below(shift - crossing)
        second_mass = _below(-shift - crossing)
        moved = present * (first_mass - factor * second_mass)
        return ceil_scaled(unmoved + moved, BITS)

    return Curve(bound)


def binomial_weights(records: int, rate: Fraction) -> list[Ball]:
    """Chances that 0, 1, ..., `records` records of a user enter a batch."""
    require(records > 0, "gaussian", "a user has no record")
    require(0 < rate <= 1, "gaussian", "the rate is not a probability above 0")
    present = ball(rate)
    absent = ball(1 - rate)
    chances: list[Ball] = []
    for chosen in range(records + 1):
        single = present**chosen * absent ** (records - chosen)
        chances.append(comb(records, chosen) * single)
    return chances


def mixture_curve(first: Sequence[Ball], second: Sequence[Ball], shift: Ball) -> Curve:
    """HS_c of sum first[j] N(j shift, 1) to sum second[j] N(-j shift, 1), rounded up.

    The ratio of densities rises with x, so half-lines are the best events. Of the one at which it
    is c the beginning lies between two points at which the sign of the difference is decided, or
    beyond the outermost ones: x > low counts for the first mixture, x > high for the second.
    """
    require(shift > 0, "gaussian", "the shift is not positive")
    rising = _relative_density(first, shift)
    falling = _relative_density(second, shift)
    rising_slope = rising.derivative()
    falling_slope = falling.derivative()

    def bound(numerator: int, denominator: int) -> int:
        tick()
        factor = ball(Fraction(numerator, denominator))

        def difference(point: Ball) -> Ball:
            growth = (shift * point).exp()
            decay = (-shift * point).exp()
            return rising(growth) - factor * falling(decay)

        def slope(point: Ball) -> Ball:
            growth = (shift * point).exp()
            decay = (-shift * point).exp()
            first_slope = growth * rising_slope(growth)
            return shift * (first_slope + factor * decay * falling_slope(decay))

        before, beyond = _bracket(difference, slope)
        first_mass = ball(1)
        second_mass = ball(0)
        if (difference(before) <= 0) is True:
            first_mass = _mass_above(first, shift, before)
        if (difference(beyond) >= 0) is True:
            second_mass = _mass_above(second, -shift, beyond)
        return ceil_scaled(first_mass - factor * second_mass, BITS)

    return Curve(bound)


def _relative_density(weights: Sequence[Ball], shift: Ball) -> ball_polynomial:
    """The density of sum weights[j] N(j shift, 1) over that of N(0, 1), as a polynomial.

    In e^(shift x); with means -j shift it is the same one in e^(-shift x).
    """
    coefficients: list[Ball] = []
    for multiple, weight in enumerate(weights):
        height = (-(shift**2) * multiple**2 / 2).exp()
        coefficients.append(weight * height)
    return ball_polynomial(coefficients)


def _mass_above(weights: Sequence[Ball], shift: Ball, start: Ball) -> Ball:
    """The mass of sum weights[j] N(j shift, 1) above a point."""
    total: Ball = ball(0)
    for multiple, weight in enumerate(weights):
        total += weight * _below(multiple * shift - start)
    return total


def _bracket(
    difference: Callable[[Ball], Ball], slope: Callable[[Ball], Ball]
) -> tuple[Ball, Ball]:
    """Points just below and above the one at which a rising function is 0, if that is not too far.

    Nothing is claimed about them: the caller decides the signs.
    """
    before = Fraction(-_FARTHEST)
    beyond = Fraction(_FARTHEST)
    if (difference(ball(before)) > 0) is True:
        return ball(before), ball(before)
    if (difference(ball(beyond)) < 0) is True:
        return ball(beyond), ball(beyond)
    for _halving in range(_HALVINGS):
        middle = (before + beyond) / 2
        if (difference(ball(middle)) < 0) is True:
            before = middle
        else:
            beyond = middle
    crossing: Ball = ball((before + beyond) / 2)
    for _iteration in range(_NEWTON_STEPS):
        correction = difference(crossing) / slope(crossing)
        crossing = (crossing - correction).mid()
    margin = ball(_WIDTH)
    return crossing - margin, crossing + margin


def _user_curves(release: ExactRelease, shift: Ball) -> list[Curve]:
    """Curves of a step for all records of one user, in both directions."""
    weights = binomial_weights(release.records_per_user, release.rate)
    if release.neighboring == "replace_one":
        return [mixture_curve(weights, weights, shift)]
    nobody = [ball(1)]
    removing = mixture_curve(weights, nobody, shift)
    adding = mixture_curve(nobody, weights, shift)
    return [removing, adding]


@final
@dataclass(frozen=True)
class _Interval:
    """Points x from left to right, the heights at both ends, and how often it may be halved."""

    left: Fraction
    right: Fraction
    left_height: Ball
    right_height: Ball
    halvings: int

    @property
    def nearest(self) -> Fraction:
        """The least |x|."""
        return max(self.left, -self.right, Fraction(0))

    @property
    def middle(self) -> Fraction:
        """The point that divides it into halves."""
        return (self.left + self.right) / 2

    def halves(self, height: Ball) -> list[_Interval]:
        """Both halves, from the height at the middle."""
        middle = self.middle
        halvings = self.halvings - 1
        return [
            _Interval(self.left, middle, self.left_height, height, halvings),
            _Interval(middle, self.right, height, self.right_height, halvings),
        ]


def check_contraction(
    low: Fraction,
    high: Fraction,
    kappa: Fraction,
    reach: Fraction,
    depth: int,
) -> None:
    """(high - low) I(m) <= kappa I(low + (high - low) m) for all m in [0, 1].

    I is the normal density at its quantile: phi(x) on the left, m = Phi(x), and phi(y(x)) on the
    right. Heights are densities times sqrt(2 pi).
    """
    require(
        0 < low < high < 1,
        "kappa",
        "a code is not likelier to be kept than to become a given other",
    )
    require(reach > 0, "kappa", "the range must be positive")
    spread = ball(high - low)

    def height_of(probability: Ball) -> Ball:
        """exp(-y^2 / 2) for the y of a probability."""
        scaled_quantile = (2 * probability).erfcinv()
        return (-(scaled_quantile**2)).exp()

    def height(point: Fraction) -> Ball:
        """exp(-y^2 / 2) for the y of x."""
        return height_of(ball(low) + spread * _below(ball(point)))

    def holds(nearest: Fraction, *heights: Ball) -> bool:
        """Whether the inequality holds wherever |x| >= nearest and the height is at least these."""
        highest = spread * (-ball(nearest**2) / 2).exp()
        return all((highest <= ball(kappa) * lowest) is True for lowest in heights)

    left_height = height(-reach)
    right_height = height(reach)
    holds_below = holds(reach, height_of(ball(low)), left_height)
    holds_above = holds(reach, right_height, height_of(ball(high)))
    require(
        holds_below and holds_above,
        "kappa",
        "kappa is too small, or the range is",
        kappa,
        reach,
    )
    intervals = [_Interval(-reach, reach, left_height, right_height, depth)]
    while intervals:
        tick()
        interval = intervals.pop()
        if holds(interval.nearest, interval.left_height, interval.right_height):
            continue
        remaining = interval.halvings
        require(
            remaining > 0,
            "kappa",
            "kappa is too small, or the depth is",
            kappa,
            depth,
        )
        intervals += interval.halves(height(interval.middle))


def _by_removal(target: Target) -> Target:
    """The statement about removing and adding from which that about replacing follows.

    (2 e, (1 + exp e) d) for two steps follows from (e, d) for each.
    """
    half_epsilon = target.epsilon / 2
    factor = Fraction(exp_ceil(half_epsilon, BITS), WHOLE)
    step_delta = target.delta / (1 + factor)
    release = replace(target.release, neighboring="add_or_remove_one")
    return replace(target, release=release, epsilon=half_epsilon, delta=step_delta)


def check_gaussian(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check (epsilon, delta) for all steps of a run and one record, or all records of one user."""
    target = Target.read(claim, "model model_of_users", "dp")
    kappa = proof.number("kappa")
    step = proof.number("step")
    cut = read_tail(proof)
    if proof.has("by") and proof.text("by", ("removal",)):
        target = _by_removal(target)
    release = target.release
    contracted = proof.has("range")
    unseen = release.sampling != "public"
    require(unseen, "gaussian", "nothing is proved about batches that are seen")
    if contracted:
        replacement_chance = (1 - release.kept) / (release.levels - 1)
        reach = proof.number("range")
        depth = proof.integer("depth", 0, 60)
        check_contraction(replacement_chance, release.kept, kappa, reach, depth)
    else:
        require(kappa >= 1, "kappa", "below 1 it needs a proof", kappa)
    deviation = release.noise_multiplier or Fraction(0)
    require(deviation > 0, "gaussian", "there is no noise")
    shift = ball(kappa / deviation)
    if release.records_per_user > 1:
        # Theorem A is about pairs of means: with several records nothing is gained by contraction.
        require(not contracted, "gaussian", "kappa is not about several records of a user")
        curves = _user_curves(release, shift)
    else:
        curves = _record_curves(release, shift, contracted)
    check_curves(target, proof, curves, step, cut)


def _record_curves(release: ExactRelease, shift: Ball, contracted: bool) -> list[Curve]:
    """Curves of a step for one record, in both directions.

    Replacing it moves the sum by up to two clipping norms, in all records as in a batch with it.
    """
    near = gaussian_curve(shift)
    far = gaussian_curve(2 * shift)
    if release.sampling == "none" and release.neighboring == "replace_one":
        return sampled_curves(release, far)
    replaced = None if contracted else replaced_curve(shift, release.rate)
    return sampled_curves(release, near, far, replaced)
