"""Training runs: Gaussian noise on clipped sums, Poisson batches, codes kept or replaced at random.

Statements: Theorem A, "Sampling", "Replacing one record" (docs/proofs/training.md), E (docs/proofs/kernel.md). A step
is as private as a Gaussian whose standard deviation is noise_multiplier / kappa clip norms; kappa is checked by branch
and bound.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from mezzotint.kernel.claim import ExactClaim, Target
from mezzotint.kernel.losses import Curve, check_sampled
from mezzotint.kernel.real import Ball, ball, ceil_scaled, exp_ceil
from mezzotint.kernel.table import Tables
from mezzotint.kernel.units import BITS, WHOLE, Fields, require, tick


def _below(x: Ball) -> Ball:
    """The normal distribution function."""
    return (-x / ball(2).sqrt()).erfc() / 2


def gaussian_curve(shift: Ball) -> Curve:
    """HS_c(N(shift, 1), N(0, 1)), rounded up; it is the same in both directions."""

    def curve(numerator: int, denominator: int) -> int:
        c = ball(Fraction(numerator, denominator))
        at = c.log() / shift
        return ceil_scaled(_below(shift / 2 - at) - c * _below(-shift / 2 - at), BITS)

    return curve


def replaced_curve(shift: Ball, rate: Fraction) -> Curve:
    """HS_c of (1 - p) N(0, 1) + p N(shift, 1) to (1 - p) N(0, 1) + p N(-shift, 1), p > 0, c >= 1, rounded up."""
    p, height = ball(rate), ball(rate) * (-shift * shift / 2).exp()

    def curve(numerator: int, denominator: int) -> int:
        c = ball(Fraction(numerator, denominator))
        middle = (1 - p) * (c - 1)
        x = (
            (middle + (middle * middle + 4 * c * height * height).sqrt()) / (2 * height)
        ).log() / shift
        return ceil_scaled(
            (1 - p) * (1 - c) * _below(-x) + p * (_below(shift - x) - c * _below(-shift - x)), BITS
        )

    return curve


def check_contraction(
    low: Fraction, high: Fraction, kappa: Fraction, reach: Fraction, depth: int
) -> None:
    """(high - low) I(m) <= kappa I(low + (high - low) m) for all m in [0, 1], I the normal density at its quantile."""
    require(
        0 < low < high < 1,
        "kappa",
        "a code is not likelier to be kept than to become a given other",
        low,
        high,
    )
    require(reach > 0, "kappa", "the range must be positive", reach)

    def height(x: Fraction | None, end: Fraction) -> Ball:
        """exp(-y^2 / 2) for the y of x, or of the probability `end` at infinity."""
        m = ball(end) if x is None else ball(low) + ball(high - low) * _below(ball(x))
        return (-((2 * m).erfcinv() ** 2)).exp()

    def holds(nearest: Fraction, first: Ball, last: Ball) -> bool:
        top = ball(high - low) * (-ball(nearest**2) / 2).exp()
        return (top <= ball(kappa) * first) is True and (top <= ball(kappa) * last) is True

    ends = height(-reach, low), height(reach, low)
    outside = holds(reach, height(None, low), ends[0]) and holds(reach, ends[1], height(None, high))
    require(outside, "kappa", "kappa is too small, or the range is", kappa, reach)
    boxes = [(-reach, reach, ends[0], ends[1], depth)]
    while boxes:
        tick()
        a, b, first, last, left = boxes.pop()
        if holds(max(a, -b, Fraction(0)), first, last):
            continue
        require(left > 0, "kappa", "kappa is too small, or the depth is", kappa, depth)
        middle = (a + b) / 2
        value = height(middle, low)
        boxes += [(a, middle, first, value, left - 1), (middle, b, value, last, left - 1)]


def check_gaussian(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check (epsilon, delta) for all steps of a run and one record."""
    target, kappa = Target.read(claim, "model", "dp"), proof.number("kappa")
    release = target.release
    require(
        not release.tables and release.sampling != "revealed",
        "gaussian",
        "nothing is proved about this release",
    )
    if proof.has("by") and proof.text("by", ("removal",)):
        # To replace is to remove, then to add: (2 e, (1 + exp e) d) follows from (e, d) for each.
        half = target.epsilon / 2
        grown = 1 + Fraction(exp_ceil(half, BITS), WHOLE)
        release = replace(release, neighboring="add_or_remove_one")
        target = replace(target, release=release, epsilon=half, delta=target.delta / grown)
    contracted = proof.has("range")
    if contracted:
        other = (1 - release.kept) / (release.levels - 1)
        check_contraction(
            other, release.kept, kappa, proof.number("range"), proof.integer("depth", 0, 60)
        )
    else:
        require(kappa >= 1, "kappa", "below 1 it needs a proof", kappa)
    shift = ball(kappa / (release.noise_multiplier or Fraction(0)))
    pair = None if contracted else replaced_curve(shift, release.rate)
    near, far = gaussian_curve(shift), gaussian_curve(2 * shift)
    # Replacing one record moves the sum by up to two clipping norms, in all records as in a batch that holds it.
    certain = far if release.sampling == "none" and release.neighboring == "replace_one" else near
    check_sampled(
        target,
        proof,
        proof.number("step"),
        WHOLE >> proof.integer("tail", 0, BITS),
        certain,
        far,
        pair,
    )
