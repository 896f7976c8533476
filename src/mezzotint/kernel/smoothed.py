"""What the histogram of a sample shows of one record of a database with two types.

Statements: P1, P2 (docs/proofs/smoothed-profile.md). With A records of the one type and B - 1 of
the other in the one database, A - 1 and B in its neighbour, and s records lost, the divergence is

    D(A, B, s) = sum over l <= k of Hyp(l; N, A, s) (1 - E B l / (A (s + 1 - l))),   N = A + B - 1,

where k is the largest l with A (s + 1 - l) > E B l and E = e**epsilon.
"""

from __future__ import annotations

from mezzotint.kernel.claim import ExactClaim
from mezzotint.kernel.real import Ball, ball, exp_floor, log_binomial
from mezzotint.kernel.table import Tables
from mezzotint.kernel.units import (
    FACTOR,
    ONE,
    Fields,
    ceil_div,
    number,
    require,
    tick,
)

MAX_RECORDS = 10**12

_NEGLIGIBLE = ONE >> 80
"""Terms below this share of the first are bounded by a geometric sum."""


def log_divergence(first: int, second: int, lost: int, factor: int) -> Ball | None:
    """An upper bound of log D(A, B, s), E at least `factor` / 2**FACTOR; None where D is 0.

    From k downwards the probabilities fall, and so do the ratios of successive ones.
    """
    total = first + second - 1
    require(first > 0 and second > 0, "profile", "a type has no record")
    require(0 <= lost <= total, "profile", "more is lost than there is")
    require(factor >= 2**FACTOR, "profile", "epsilon is negative")
    others = total - first
    weight = first << FACTOR
    scaled = factor * second
    # l (A + E B) < A (s + 1), with E rounded down: k is not too small, and factors are not either.
    highest = (weight * (lost + 1) - 1) // (weight + scaled)
    lowest = max(0, lost - others)
    if highest < lowest:
        return None
    # Hyp(l) over Hyp(k), and the sum of the terms over Hyp(k), in units of 2**-FINE.
    probability = ONE
    terms = 0
    count = highest
    while True:
        tick()
        positive = weight * (lost + 1 - count)
        terms += ceil_div(probability * (positive - scaled * count), positive)
        if count == lowest:
            break
        # Hyp(l - 1) / Hyp(l), below 1: l (N + 2) < (A + 1) (s + 1), as l < A (s + 1) / (N + 1).
        numerator = count * (others - lost + count)
        denominator = (first - count + 1) * (lost - count + 1)
        probability = ceil_div(probability * numerator, denominator)
        count -= 1
        if probability <= _NEGLIGIBLE:
            # The other terms are below probability (1 + r + r^2 + ...), r the ratio here.
            terms += ceil_div(probability * denominator, denominator - numerator)
            break
    log_highest: Ball = log_binomial(first, highest)
    log_highest += log_binomial(others, lost - highest)
    log_highest -= log_binomial(total, lost)
    return log_highest + (ball(terms) / ONE).log()


def check_profile(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check log10 of delta of the histogram of `sampled` records, drawn without replacement."""
    require(
        claim.release is None,
        "claim",
        "a profile is about one database, not about a release",
    )
    stated = Fields(claim.statement, "statement")
    stated.text("kind", ("profile",))
    first = stated.integer("first", 0, MAX_RECORDS)
    second = stated.integer("second", 0, MAX_RECORDS)
    sampled = stated.integer("sampled", 0, first + second)
    epsilon = stated.number("epsilon")
    log10_delta = number(stated.take("log10_delta"), "log10_delta")
    stated.done()
    require(epsilon <= 100, "profile", "epsilon is above 100", epsilon)
    lost_count = first + second - sampled
    factor = exp_floor(epsilon, FACTOR)
    # A record moves from either type to the other, and the divergence counts in both directions.
    pairs = {
        (first, second + 1),
        (first + 1, second),
        (second, first + 1),
        (second + 1, first),
    }
    log_ten = ball(10).log()
    log_delta: Ball = ball(log10_delta) * log_ten
    for moved, unmoved in sorted(pairs):
        if moved == 0 or unmoved == 0:
            continue  # no record of that type can move
        divergence = log_divergence(moved, unmoved, lost_count, factor)
        if divergence is not None:
            require(
                divergence <= log_delta,
                "delta",
                "log10_delta is too small",
                divergence / log_ten,
                log10_delta,
            )
