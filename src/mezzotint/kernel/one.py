"""One report of a table, and what follows from it without a distribution of losses: pure, delta, Renyi, ranks.

Statements: T2, T3 (docs/proofs/tables.md), "One report" (docs/proofs/kernel.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations
from typing import final

from mezzotint.kernel.claim import Claim, Release
from mezzotint.kernel.real import Ball, at_most, ball, exp_floor, log_fraction
from mezzotint.kernel.table import Tables, single_table, table_rows, worst_ratio
from mezzotint.kernel.units import TOTAL, Fields, Refused, canonical, require, sha256, tick

_BITS = 64


@final
@dataclass(frozen=True)
class Target:
    """What is to be shown of a release: epsilon >= 0 at delta >= 0, or at the order of a Renyi statement."""

    release: Release
    epsilon: Fraction
    delta: Fraction
    order: Fraction | None

    @staticmethod
    def read(claim: Claim, observers: str, *kinds: str) -> Target:
        """Refuses another observer, or another kind of statement, than those that a proof speaks of."""
        release, fields = claim.release, Fields(claim.statement, "statement")
        if release is None or release.observer not in observers.split():
            raise Refused("claim", f"this proof is about {observers}")
        kind, epsilon = fields.text("kind", kinds), fields.number("epsilon")
        delta = fields.number("delta") if kind == "dp" else Fraction(0)
        order = fields.number("order") if kind == "renyi" else None
        fields.done()
        require(epsilon <= 10**6, "claim", "no guarantee is worth that epsilon", epsilon)
        return Target(release, epsilon, delta, order)


def ranks_ratio(value: object) -> Fraction:
    """The largest ratio of two weights of one index in a table over ranks (docs/proofs/kernel.md, Ranks)."""
    fields = Fields(value, "ranks")
    codewords = fields.integer("M", 2, 2**20)
    top = fields.integer("k", 1, codewords - 1)
    total = fields.integer("T", 1, 2**64)
    high, low = fields.integer("w_hi", 1, total), fields.integer("w_lo", 1, total)
    rest = fields.integer("r", 0, codewords - top)
    null = fields.integers("null", 1) if fields.has("null") else []
    fields.done()
    used = top * high + rest * (low + 1) + (codewords - top - rest) * low + sum(null[:1])
    require(used == total, "ranks", "the weights do not sum", used, total)
    require(high >= low + (1 if rest else 0), "ranks", "w_hi is below a weight of the other ranks", high, low)
    if not null:
        return Fraction(high, low)
    require(len(null) == 2 and null[0] <= null[1], "ranks", "null is not a pair of weights, the lesser one first")
    require(codewords * low + null[1] == total, "ranks", "the weights of the null row do not sum")
    return max(Fraction(high, low), Fraction(null[1], null[0]))


def check_ratio(claim: Claim, proof: Fields, tables: Tables) -> None:
    """Pure epsilon: the product of all worst ratios, sampled per round. A sum shows less than its reports."""
    target = Target.read(claim, "reports secure_sum", "dp")
    release, epsilon = target.release, target.epsilon
    ranks = {sha256(canonical(entry)): entry for entry in proof.items("ranks", 100)} if proof.has("ranks") else {}
    total: Ball = ball(0)
    for digest, coordinates in release.tables:
        ratio = ranks_ratio(ranks[digest]) if digest in ranks else worst_ratio(table_rows(tables, digest))
        if ratio is None:
            raise Refused("pure", "a report is possible under one input and impossible under another")
        total += coordinates * log_fraction(ratio)
    if release.sampling == "poisson":
        require(release.observer == "reports", "pure", "nothing is proved here about secret participation in sums")
        total = (1 + ball(release.rate) * total.expm1()).log()
    total *= release.rounds
    require(at_most(total, ball(epsilon)), "pure", "epsilon is too small", epsilon, total)


def check_delta(claim: Claim, proof: Fields, tables: Tables) -> None:
    """(epsilon, delta) of one report: the hockey-stick divergence of every ordered pair of rows, in integers."""
    target = Target.read(claim, "reports", "dp")
    release, delta, rows = target.release, target.delta, single_table(target.release, tables)
    require(release.rounds == 1 and release.tables[0][1] == 1, "delta", "this proof is about one report")
    require(release.sampling != "poisson", "delta", "this proof is not about secret participation")
    factor = exp_floor(target.epsilon, _BITS)
    for first, second in permutations(rows, 2):
        tick()
        excess = sum(max((p << _BITS) - factor * q, 0) for p, q in zip(first, second, strict=True))
        require(release.rate * excess <= delta * (TOTAL << _BITS), "delta", "delta is too small at this epsilon")


def _power_sum(first: tuple[int, ...], second: tuple[int, ...], order: Fraction) -> Ball:
    """sum P^a Q^(1-a), which is e^((a-1) D_a)."""
    total: Ball = ball(0)
    for p, q in zip(first, second, strict=True):
        if p:
            require(q > 0, "renyi", "a report is possible under one input and impossible under another")
            total += p * (ball(order - 1) * log_fraction(Fraction(p, q))).exp()
    return total / TOTAL


def check_renyi(claim: Claim, proof: Fields, tables: Tables) -> None:
    """Renyi divergence of one order, added over releases; and the (epsilon, delta) that follows from it."""
    target, order = Target.read(claim, "reports", "dp", "renyi"), proof.number("order")
    release, epsilon, delta = target.release, target.epsilon, target.delta
    require(order > 1, "renyi", "the order must be above 1", order)
    require(target.order in (None, order), "renyi", "the proof is about another order", order, target.order)
    require(release.sampling != "poisson", "renyi", "this proof is not about secret participation")
    round_log: Ball = ball(0)
    for digest, coordinates in release.tables:
        rows = table_rows(tables, digest)
        # The largest over pairs is found by comparing upper ends, which are exact.
        worst: Ball = ball(0)
        for first, second in permutations(rows, 2):
            tick()
            upper = _power_sum(first, second, order).log().upper()
            # A ball too wide to take the logarithm of is no number: it would lose every comparison.
            require(upper.is_finite(), "precision", "a divergence could not be enclosed", order)
            worst = max(worst, upper)
        round_log += coordinates * worst
    if release.sampling == "revealed":
        round_log = (1 - ball(release.rate) + ball(release.rate) * round_log.exp()).log()
    above = ball(order - 1)
    total = release.rounds * round_log / above
    if target.order is not None:
        require(at_most(total, ball(epsilon)), "renyi", "epsilon is too small", epsilon, total)
        return
    # Canonne, Kamath and Steinke 2020, Proposition 12, with the logarithm of delta on both sides.
    bound = above * (total - ball(epsilon)) + ball(order) * (above / ball(order)).log() - above.log()
    require(delta > 0, "renyi", "a Renyi divergence says nothing at delta = 0")
    require(at_most(bound, ball(delta).log()), "renyi", "delta is too small at this epsilon", delta, bound.exp())
