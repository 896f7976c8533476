"""Training runs: Gaussian noise on clipped sums, Poisson batches, codes kept or replaced at random.

Statements: Theorem A, "Sampling", "Replacing one record", "Users with several records"
(docs/proofs/training.md), E (docs/proofs/kernel.md). A step is as private as a Gaussian whose
standard deviation is noise_multiplier / kappa clip norms; kappa is checked by branch and bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from math import comb

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


def _below(x: Ball) -> Ball:
    """The normal distribution function."""
    return (-x / ball(2).sqrt()).erfc() / 2


def gaussian_curve(shift: Ball) -> Curve:
    """HS_c(N(shift, 1), N(0, 1)), rounded up; it is the same in both directions."""
    require(shift > 0, "gaussian", "the shift is not positive")

    def bound(numerator: int, denominator: int) -> int:
        c = ball(Fraction(numerator, denominator))
        end = c.log() / shift
        return ceil_scaled(_below(shift / 2 - end) - c * _below(-shift / 2 - end), BITS)

    return Curve(bound)


def replaced_curve(shift: Ball, rate: Fraction) -> Curve:
    """HS_c of (1 - p) N(0) + p N(shift) to (1 - p) N(0) + p N(-shift), c >= 1, rounded up."""
    require(shift > 0, "gaussian", "the shift is not positive")
    require(0 < rate <= 1, "gaussian", "the rate is not a probability above 0")
    p = ball(rate)
    height = p * (-shift * shift / 2).exp()

    def bound(numerator: int, denominator: int) -> int:
        require(numerator >= denominator, "gaussian", "c is below 1")
        c = ball(Fraction(numerator, denominator))
        # The ratio of densities is c at w = e^(shift x), b w^2 - (1 - p)(c - 1) w = c b.
        middle = (1 - p) * (c - 1)
        root = (middle * middle + 4 * c * height * height).sqrt()
        x = ((middle + root) / (2 * height)).log() / shift
        certain = (1 - p) * (1 - c) * _below(-x)
        moved = p * (_below(shift - x) - c * _below(-shift - x))
        return ceil_scaled(certain + moved, BITS)

    return Curve(bound)


def binomial_weights(records: int, rate: Fraction) -> list[Ball]:
    """Chances that 0, 1, ..., `records` records of a user enter a batch."""
    require(records > 0, "gaussian", "a user has no record")
    require(0 < rate <= 1, "gaussian", "the rate is not a probability above 0")
    p = ball(rate)
    absent = ball(1 - rate)
    chosen = range(records + 1)
    return [comb(records, j) * p**j * absent ** (records - j) for j in chosen]


def mixture_curve(first: Sequence[Ball], second: Sequence[Ball], shift: Ball) -> Curve:
    """HS_c of sum first[j] N(j shift, 1) to sum second[j] N(-j shift, 1), rounded up.

    The ratio of densities rises with x, so half-lines are the best events. Of the one at which it
    is c the beginning lies between two points at which the sign of the difference is decided, or
    beyond the outermost ones: x > low counts for the first mixture, x > high for the second.
    """
    require(shift > 0, "gaussian", "the shift is not positive")
    # Densities over that of N(0, 1): polynomials in e^(shift x) and in e^(-shift x).
    size = max(len(first), len(second))
    factors = [(-(shift**2) * j**2 / 2).exp() for j in range(size)]
    rising = ball_polynomial([w * f for w, f in zip(first, factors, strict=False)])
    falling = ball_polynomial([w * f for w, f in zip(second, factors, strict=False)])
    rising_slope = rising.derivative()
    falling_slope = falling.derivative()

    def above(weights: Sequence[Ball], direction: int, start: Ball) -> Ball:
        """The mass of a mixture above a point."""
        total: Ball = ball(0)
        for j, weight in enumerate(weights):
            total += weight * _below(direction * j * shift - start)
        return total

    def bound(numerator: int, denominator: int) -> int:
        tick()
        c = ball(Fraction(numerator, denominator))

        def difference(x: Ball) -> Ball:
            return rising((shift * x).exp()) - c * falling((-shift * x).exp())

        def slope(x: Ball) -> Ball:
            growth = (shift * x).exp()
            decay = (-shift * x).exp()
            return shift * (growth * rising_slope(growth) + c * decay * falling_slope(decay))

        low, high = _bracket(difference, slope)
        mass = ball(1)
        other = ball(0)
        if (difference(low) <= 0) is True:
            mass = above(first, 1, low)
        if (difference(high) >= 0) is True:
            other = above(second, -1, high)
        return ceil_scaled(mass - c * other, BITS)

    return Curve(bound)


def _bracket(
    difference: Callable[[Ball], Ball], slope: Callable[[Ball], Ball]
) -> tuple[Ball, Ball]:
    """Points just below and above the one at which a rising function is 0, if that is not too far.

    Nothing is claimed about them: the caller decides the signs.
    """
    low = Fraction(-_FARTHEST)
    high = Fraction(_FARTHEST)
    if (difference(ball(low)) > 0) is True:
        return ball(low), ball(low)
    if (difference(ball(high)) < 0) is True:
        return ball(high), ball(high)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if (difference(ball(middle)) < 0) is True:
            low = middle
        else:
            high = middle
    x: Ball = ball((low + high) / 2)
    for _ in range(_NEWTON_STEPS):
        x = (x - difference(x) / slope(x)).mid()
    return x - ball(_WIDTH), x + ball(_WIDTH)


def _user_curves(release: ExactRelease, shift: Ball) -> list[Curve]:
    """Curves of a step for all records of one user, in both directions."""
    weights = binomial_weights(release.records_per_user, release.rate)
    nobody = [ball(1)]
    if release.neighboring == "replace_one":
        return [mixture_curve(weights, weights, shift)]
    return [
        mixture_curve(weights, nobody, shift),
        mixture_curve(nobody, weights, shift),
    ]


def check_contraction(
    low: Fraction,
    high: Fraction,
    kappa: Fraction,
    reach: Fraction,
    depth: int,
) -> None:
    """(high - low) I(m) <= kappa I(low + (high - low) m) for all m in [0, 1].

    I is the normal density at its quantile.
    """
    require(
        0 < low < high < 1,
        "kappa",
        "a code is not likelier to be kept than to become a given other",
    )
    require(reach > 0, "kappa", "the range must be positive")

    def height_of(m: Ball) -> Ball:
        """exp(-y^2 / 2) for the y of a probability."""
        return (-((2 * m).erfcinv() ** 2)).exp()

    def height(x: Fraction) -> Ball:
        """exp(-y^2 / 2) for the y of x."""
        return height_of(ball(low) + ball(high - low) * _below(ball(x)))

    def holds(nearest: Fraction, first: Ball, last: Ball) -> bool:
        """Whether the inequality holds wherever |x| >= nearest and the height is at least these."""
        top = ball(high - low) * (-ball(nearest**2) / 2).exp()
        return (top <= ball(kappa) * first) is True and (top <= ball(kappa) * last) is True

    ends = height(-reach), height(reach)
    below = holds(reach, height_of(ball(low)), ends[0])
    above = holds(reach, ends[1], height_of(ball(high)))
    require(
        below and above,
        "kappa",
        "kappa is too small, or the range is",
        kappa,
        reach,
    )
    boxes = [(-reach, reach, ends[0], ends[1], depth)]
    while boxes:
        tick()
        a, b, first, last, halvings = boxes.pop()
        if holds(max(a, -b, Fraction(0)), first, last):
            continue
        require(
            halvings > 0,
            "kappa",
            "kappa is too small, or the depth is",
            kappa,
            depth,
        )
        middle = (a + b) / 2
        value = height(middle)
        boxes.append((a, middle, first, value, halvings - 1))
        boxes.append((middle, b, value, last, halvings - 1))


def _by_removal(target: Target) -> Target:
    """The statement about removing and adding from which that about replacing follows.

    (2 e, (1 + exp e) d) for two steps follows from (e, d) for each.
    """
    half = target.epsilon / 2
    growth = 1 + Fraction(exp_ceil(half, BITS), WHOLE)
    release = replace(target.release, neighboring="add_or_remove_one")
    return replace(target, release=release, epsilon=half, delta=target.delta / growth)


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
    require(
        release.sampling != "public", "gaussian", "nothing is proved about batches that are seen"
    )
    if contracted:
        other = (1 - release.kept) / (release.levels - 1)
        reach = proof.number("range")
        depth = proof.integer("depth", 0, 60)
        check_contraction(other, release.kept, kappa, reach, depth)
    else:
        require(kappa >= 1, "kappa", "below 1 it needs a proof", kappa)
    noise = release.noise_multiplier or Fraction(0)
    require(noise > 0, "gaussian", "there is no noise")
    shift = ball(kappa / noise)
    if release.records_per_user > 1:
        # Theorem A is about pairs of means: with several records nothing is gained by contraction.
        require(
            not contracted,
            "gaussian",
            "kappa is not about several records of a user",
        )
        curves = _user_curves(release, shift)
    else:
        near = gaussian_curve(shift)
        far = gaussian_curve(2 * shift)
        pair = None if contracted else replaced_curve(shift, release.rate)
        # Replacing one record moves the sum by up to two clipping norms, in all records as in a
        # batch that holds it.
        everybody = release.sampling == "none" and release.neighboring == "replace_one"
        curves = sampled_curves(release, far if everybody else near, far, pair)
    check_curves(target, proof, curves, step, cut)
