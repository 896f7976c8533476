"""Claims that need no distribution of losses: pure epsilons, Renyi divergences, ranks.

Statements: T2, T3 (docs/proofs/tables.md), "One report" (docs/proofs/kernel.md).
"""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate, permutations

from mezzotint.kernel.claim import ExactClaim, ExactRelease, Target
from mezzotint.kernel.losses import summed_noise
from mezzotint.kernel.real import Ball, ball, ball_polynomial, log_fraction
from mezzotint.kernel.table import Rows, Tables, table_rows, worst_ratio
from mezzotint.kernel.units import (
    BITS,
    TOTAL,
    WHOLE,
    Fields,
    Refused,
    canonical,
    require,
    sha256,
    tick,
)


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
    used = top * high + rest + (codewords - top) * low + sum(null[:1])
    require(used == total, "ranks", "the weights do not sum", used, total)
    require(
        high >= low + (1 if rest else 0),
        "ranks",
        "w_hi is below a weight of the other ranks",
        high,
        low,
    )
    if not null:
        return Fraction(high, low)
    require(
        len(null) == 2 and null[0] <= null[1],
        "ranks",
        "null is not a pair of weights, the lesser one first",
    )
    require(codewords * low + null[1] == total, "ranks", "the weights of the null row do not sum")
    return max(Fraction(high, low), Fraction(null[1], null[0]))


def check_ratio(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check a pure epsilon: the product of all worst ratios, sampled per round. A sum reveals less than its reports."""
    target = Target.read(claim, "reports secure_sum", "dp")
    release, epsilon = target.release, target.epsilon
    ranks = (
        {sha256(canonical(entry)): entry for entry in proof.items("ranks", 100)}
        if proof.has("ranks")
        else {}
    )
    total: Ball = ball(0)
    for digest, coordinates in release.tables:
        ratio = (
            ranks_ratio(ranks[digest])
            if digest in ranks
            else worst_ratio(table_rows(tables, digest))
        )
        if ratio is None:
            raise Refused(
                "pure", "a report is possible under one input and impossible under another"
            )
        total += coordinates * log_fraction(ratio)
    if release.sampling == "poisson":
        require(
            release.observer == "reports",
            "pure",
            "nothing is proved here about secret participation in sums",
        )
        total = (1 + ball(release.rate) * total.expm1()).log()
    total *= release.rounds
    require(total <= ball(epsilon), "pure", "epsilon is too small", epsilon, total)


def _log_above(power: Ball, divisor: int = 1) -> Ball:
    """The upper end of log(power) / divisor as an exact number, which can be compared."""
    upper = (power.log() / divisor).upper()
    # A ball too wide for a logarithm is not a number, and every comparison with it would be false.
    require(upper.is_finite(), "precision", "a divergence could not be enclosed")
    return upper


def _table_cost(rows: Rows, order: Fraction) -> Ball:
    """The largest log of sum P^a Q^(1-a), which is (a - 1) D_a, over ordered pairs of rows."""
    worst: Ball = ball(0)
    for first, second in permutations(rows, 2):
        tick()
        power: Ball = ball(0)
        for p, q in zip(first, second, strict=True):
            require(
                q > 0 or not p,
                "renyi",
                "a report is possible under one input and impossible under another",
            )
            power += p * (ball(order - 1) * log_fraction(Fraction(p, q))).exp() if p else 0
        worst = max(worst, _log_above(power / TOTAL))
    return worst


def _noise_cost(
    release: ExactRelease, tables: Tables, order: Fraction, cut: int
) -> tuple[Ball, Fraction]:
    """The log of the power sum of a round under integer noise, and the mass per coordinate that it leaves out."""
    masses = [int(mass) for mass in summed_noise(release, tables, cut).poly.coeffs()]
    size, shift = len(masses), release.shift
    require(size <= 2**17, "size", "the noise is too wide", size, 2**17)
    require(
        shift < size and all(masses),
        "noise",
        "a shift is as wide as the noise, or the noise has a gap",
    )
    logs = [(ball(mass) / WHOLE).log() for mass in masses]
    own, other = (
        [(factor * log).exp() for log in logs] for factor in (ball(order), ball(1 - order))
    )
    # Entry size - 1 + s of this product is the sum over i of own[i] * other[i - s].
    powers = (ball_polynomial(own) * ball_polynomial(other[::-1])).coeffs()
    moves = [move for move in range(-shift, shift + 1) if move]
    worst = max([ball(0), *(_log_above(powers[size - 1 + move], move**2) for move in moves)])
    kept = [0, *accumulate(masses)]
    left_out = WHOLE - min(kept[size - shift], kept[size] - kept[shift])
    return ball(release.distance) * worst, Fraction(left_out, WHOLE)


def check_renyi(claim: ExactClaim, proof: Fields, tables: Tables) -> None:
    """Check a Renyi divergence of one order, added over releases, or the (epsilon, delta) that follows from it."""
    target, order = Target.read(claim, "reports noisy_sum", "dp", "renyi"), proof.number("order")
    release, epsilon, delta = target.release, target.epsilon, target.delta
    require(order > 1, "renyi", "the order must be above 1", order)
    require(
        target.order in (None, order),
        "renyi",
        "the proof is about another order",
        order,
        target.order,
    )
    require(release.sampling != "poisson", "renyi", "this proof is not about secret participation")
    if release.shift:
        round_log, left_out = _noise_cost(
            release, tables, order, WHOLE >> proof.integer("tail", 0, BITS)
        )
        delta -= left_out * release.tables[0][1] * release.rounds
    else:
        costs = [
            coordinates * _table_cost(table_rows(tables, digest), order)
            for digest, coordinates in release.tables
        ]
        round_log: Ball = sum(costs, ball(0))
    if release.sampling == "revealed":
        round_log = (1 - ball(release.rate) + ball(release.rate) * round_log.exp()).log()
    above = ball(order - 1)
    total = release.rounds * round_log / above
    if target.order is not None:
        require(delta == 0, "renyi", "what the noise leaves out has no Renyi divergence")
        require(total <= ball(epsilon), "renyi", "epsilon is too small", epsilon, total)
        return
    # Canonne, Kamath and Steinke 2020, Proposition 12, with the logarithm of delta on both sides.
    bound = (
        above * (total - ball(epsilon)) + ball(order) * (above / ball(order)).log() - above.log()
    )
    require(delta > 0, "renyi", "a Renyi divergence says nothing at delta = 0")
    require(
        bound <= ball(delta).log(),
        "renyi",
        "delta is too small at this epsilon",
        delta,
        bound.exp(),
    )
