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
    top_count = fields.integer("k", 1, codewords - 1)
    total = fields.integer("T", 1, 2**64)
    top_weight = fields.integer("w_hi", 1, total)
    low_weight = fields.integer("w_lo", 1, total)
    raised_count = fields.integer("r", 0, codewords - top_count)
    null_weights: list[int] = []
    if fields.has("null"):
        null_weights = fields.integers("null", 1)
        require(
            len(null_weights) == 2 and null_weights[0] <= null_weights[1],
            "ranks",
            "null is not a pair of weights, the lesser one first",
        )
    fields.done()
    # Of every other rank the low weight, and one more for those that are raised.
    ranked_mass = top_count * top_weight + raised_count
    ranked_mass += (codewords - top_count) * low_weight
    ranked_mass += sum(null_weights[:1])
    require(ranked_mass == total, "ranks", "the weights do not sum", ranked_mass, total)
    largest_other = low_weight + min(raised_count, 1)
    require(
        top_weight >= largest_other,
        "ranks",
        "w_hi is below a weight of the other ranks",
        top_weight,
        low_weight,
    )
    ratio = Fraction(top_weight, low_weight)
    if not null_weights:
        return ratio
    null_mass = codewords * low_weight + null_weights[1]
    require(
        null_mass == total,
        "ranks",
        "the weights of the null row do not sum",
        null_mass,
        total,
    )
    return max(ratio, Fraction(null_weights[1], null_weights[0]))


def check_ratio(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check a pure epsilon: the sum of the logarithms of all worst ratios, sampled per round.

    A sum reveals less than the reports in it.
    """
    target = Target.read(claim, "reports memoised secure_sum", "dp")
    release = target.release
    rank_tables: dict[str, object] = {}
    if proof.has("ranks"):
        documents = proof.items("ranks", 100)
        rank_tables = {sha256(canonical(document)): document for document in documents}
    total: Ball = ball(0)
    for digest, coordinates in release.tables:
        if digest in rank_tables:
            ratio = ranks_ratio(rank_tables[digest])
        else:
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
        total = _log_mixed(release.rate, total)
    total *= release.independent_rounds
    require(
        total <= ball(target.epsilon),
        "pure",
        "epsilon is too small",
        target.epsilon,
        total,
    )


def _log_mixed(rate: Fraction, log: Ball) -> Ball:
    """log(1 - p + p e**log) of a rate p: a round that is taken part in with this probability."""
    mixed: Ball = 1 + ball(rate) * log.expm1()
    return mixed.log()


def _log_above(power: Ball) -> Ball:
    """The upper end of log(power) as an exact number, which can be compared."""
    upper_end = power.log().upper()
    # A ball too wide for a logarithm is not a number, and every comparison with it would be false.
    require(upper_end.is_finite(), "precision", "a divergence could not be enclosed")
    return upper_end


def _table_cost(table: Table, order: Fraction) -> Ball:
    """The largest log of sum P^a Q^(1-a), which is (a - 1) D_a, over ordered pairs of rows."""
    require(order > 1, "renyi", "the order must be above 1")
    largest: Ball = ball(0)
    for first_row, second_row in permutations(table.rows, 2):
        tick()
        power_sum: Ball = ball(0)
        for weight, other_weight in zip(first_row, second_row, strict=True):
            require(other_weight > 0 or weight == 0, "renyi", _IMPOSSIBLE)
            if weight > 0:
                log_ratio = log_fraction(Fraction(weight, other_weight))
                power_sum += weight * (ball(order - 1) * log_ratio).exp()
        largest = max(largest, _log_above(power_sum / TOTAL))
    return largest


def check_renyi(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check a Renyi divergence, added over releases, or the (epsilon, delta) that follows."""
    target = Target.read(claim, "reports memoised", "dp", "renyi")
    proved_order = proof.number("order")
    release = target.release
    epsilon = target.epsilon
    require(
        target.order in (None, proved_order),
        "renyi",
        "the proof is about another order",
        proved_order,
        target.order,
    )
    require(release.sampling != "poisson", "renyi", "this proof is not about secret participation")
    round_log: Ball = ball(0)
    for digest, coordinates in release.tables:
        table = find_table(tables, digest)
        round_log += coordinates * _table_cost(table, proved_order)
    if release.sampling == "public":
        round_log = _log_mixed(release.rate, round_log)
    order = ball(proved_order)
    excess = ball(proved_order - 1)
    total = release.independent_rounds * round_log / excess
    if target.order is not None:
        require(
            total <= ball(epsilon),
            "renyi",
            "epsilon is too small",
            epsilon,
            total,
        )
        return
    require(target.delta > 0, "renyi", "a Renyi divergence says nothing at delta = 0")
    # Canonne, Kamath and Steinke 2020, Proposition 12, with the logarithm of delta on both sides:
    # log delta = (a - 1) (D - epsilon) + a log(1 - 1/a) - log(a - 1).
    log_delta = excess * (total - ball(epsilon))
    log_delta += order * (excess / order).log() - excess.log()
    require(
        log_delta <= ball(target.delta).log(),
        "renyi",
        "delta is too small at this epsilon",
        target.delta,
        log_delta.exp(),
    )
