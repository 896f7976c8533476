"""Claims that need no distribution of losses: pure epsilons, Renyi divergences, ranks.

Statements: T2, T3 (docs/proofs/tables.md), "One report" (docs/proofs/kernel.md).
"""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations

from mezzotint.kernel.claim import ExactClaim, Target
from mezzotint.kernel.real import Ball, ball, log_fraction
from mezzotint.kernel.table import Table, Tables, find_table, require_lattice, worst_ratio
from mezzotint.kernel.units import (
    TOTAL,
    Fields,
    Refused,
    canonical,
    require,
    sha256,
    tick,
)

_IMPOSSIBLE = "a report is possible under one input and impossible under another"


def ranks_ratio(value: object) -> Fraction:
    """The largest ratio of two weights of one index in a table over ranks (Ranks)."""
    fields = Fields(value, "ranks")
    codewords = fields.integer("M", 2, 2**20)
    top = fields.integer("k", 1, codewords - 1)
    total = fields.integer("T", 1, 2**64)
    high = fields.integer("w_hi", 1, total)
    low = fields.integer("w_lo", 1, total)
    raised = fields.integer("r", 0, codewords - top)
    null: list[int] = []
    if fields.has("null"):
        null = fields.integers("null", 1)
        require(
            len(null) == 2 and null[0] <= null[1],
            "ranks",
            "null is not a pair of weights, the lesser one first",
        )
    fields.done()
    mass = top * high + raised * (low + 1) + (codewords - top - raised) * low + sum(null[:1])
    require(mass == total, "ranks", "the weights do not sum", mass, total)
    largest = low + min(raised, 1)
    require(
        high >= largest,
        "ranks",
        "w_hi is below a weight of the other ranks",
        high,
        low,
    )
    if not null:
        return Fraction(high, low)
    mass = codewords * low + null[1]
    require(
        mass == total,
        "ranks",
        "the weights of the null row do not sum",
        mass,
        total,
    )
    return max(Fraction(high, low), Fraction(null[1], null[0]))


def check_ratio(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check a pure epsilon: the sum of the logarithms of all worst ratios, sampled per round.

    A sum reveals less than the reports in it.
    """
    target = Target.read(claim, "reports memoised secure_sum", "dp")
    release = target.release
    ranks: dict[str, object] = {}
    if proof.has("ranks"):
        ranks = {sha256(canonical(entry)): entry for entry in proof.items("ranks", 100)}
    total: Ball = ball(0)
    for digest, coordinates in release.tables:
        if digest in ranks:
            total += coordinates * log_fraction(ranks_ratio(ranks[digest]))
            continue
        table = find_table(tables, digest)
        if release.lattice:
            require_lattice(release.lattice, table)
        ratio = worst_ratio(table)
        if ratio is None:
            raise Refused("pure", _IMPOSSIBLE)
        total += coordinates * log_fraction(ratio)
    if release.sampling == "poisson":
        require(
            release.observer == "reports",
            "pure",
            "nothing is proved here about secret participation in sums",
        )
        total = (1 + ball(release.rate) * total.expm1()).log()
    total *= release.independent_rounds
    require(total <= ball(target.epsilon), "pure", "epsilon is too small", target.epsilon, total)


def _log_above(power: Ball) -> Ball:
    """The upper end of log(power) as an exact number, which can be compared."""
    upper = power.log().upper()
    # A ball too wide for a logarithm is not a number, and every comparison with it would be false.
    require(upper.is_finite(), "precision", "a divergence could not be enclosed")
    return upper


def _table_cost(table: Table, order: Fraction) -> Ball:
    """The largest log of sum P^a Q^(1-a), which is (a - 1) D_a, over ordered pairs of rows."""
    require(order > 1, "renyi", "the order must be above 1")
    worst: Ball = ball(0)
    for first, second in permutations(table.rows, 2):
        tick()
        power: Ball = ball(0)
        for p, q in zip(first, second, strict=True):
            require(q > 0 or p == 0, "renyi", _IMPOSSIBLE)
            if p > 0:
                power += p * (ball(order - 1) * log_fraction(Fraction(p, q))).exp()
        worst = max(worst, _log_above(power / TOTAL))
    return worst


def check_renyi(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check a Renyi divergence, added over releases, or the (epsilon, delta) that follows."""
    target = Target.read(claim, "reports memoised", "dp", "renyi")
    order = proof.number("order")
    release = target.release
    epsilon = target.epsilon
    delta = target.delta
    require(
        target.order in (None, order),
        "renyi",
        "the proof is about another order",
        order,
        target.order,
    )
    require(release.sampling != "poisson", "renyi", "this proof is not about secret participation")
    round_log: Ball = ball(0)
    for digest, coordinates in release.tables:
        round_log += coordinates * _table_cost(find_table(tables, digest), order)
    if release.sampling == "public":
        round_log = (1 + ball(release.rate) * round_log.expm1()).log()
    above = ball(order - 1)
    total = release.independent_rounds * round_log / above
    if target.order is not None:
        require(
            total <= ball(epsilon),
            "renyi",
            "epsilon is too small",
            epsilon,
            total,
        )
        return
    require(delta > 0, "renyi", "a Renyi divergence says nothing at delta = 0")
    # Canonne, Kamath and Steinke 2020, Proposition 12, with the logarithm of delta on both sides:
    # log delta = (a - 1) (D - epsilon) + a log(1 - 1/a) - log(a - 1).
    bound = above * (total - ball(epsilon))
    bound += ball(order) * (above / ball(order)).log() - above.log()
    require(
        bound <= ball(delta).log(),
        "renyi",
        "delta is too small at this epsilon",
        delta,
        bound.exp(),
    )
