"""What many reports cost together when each of them is seen: several valid bounds, the least of which counts.

One pair that dominates all row pairs (T7) covers every sequence of them, but for a lopsided table it overstates: no
single choice is as bad in every respect. For few releases the sequences themselves can be gone through. With
c = e**epsilon and f_0(c) = max(0, 1 - c), one more release seen through the pair (P, Q) turns the curve f into
    (P, Q) f (c) = sum_i P_i f(c Q_i / P_i),
coordinates of one round are chosen at once (all combinations of pairs), rounds one after the other in the light of what
was seen (the largest value at every c): that is the adaptive adversary's own optimum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from mezzotint.core.loss import UNIT, renyi
from mezzotint.core.mechanism import TOTAL, FloatArray, IntArray, Mechanism
from mezzotint.privacy.claim import Claim, Release
from mezzotint.privacy.distribution import (
    Atoms,
    composed,
    poisson_add,
    poisson_remove,
    poisson_replace_one,
    rdp_public_sampling,
    rdp_to_epsilon,
    revealed,
)
from mezzotint.privacy.tradeoffs import tradeoff

MAX_ROWS = 8
"""Tables with more different rows are left to the dominating pair."""

_POINTS = 2048
_CELLS = 2**23
"""Values held at a time while curves are compared."""

_PASSES = 8

_FARTHEST = 1e250
"""Points c beyond this, or below its inverse, are left out: products with any ratio of weights stay floats."""

_BUDGET = 8000
"""Largest number of (combination of pairs, level, round) triples that are gone through."""

Pair = tuple[FloatArray, FloatArray]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class PrivacyCurve:
    """A convex decreasing piecewise linear function of c = e**epsilon, between points 0 = c_0 < c_1 < ...

    Chords only overstate a convex function, so leaving out points does no harm; beyond the last point it is constant.
    `floor` says how small a value still matters: points are left out where chords are near against value + floor.
    """

    points: FloatArray
    values: FloatArray
    floor: float = 1e-18

    def at(self, c: FloatArray) -> FloatArray:
        """Values at any c >= 0."""
        return np.interp(c, self.points, self.values)

    def epsilon(self, delta: float) -> float:
        """The least epsilon >= 0 at which the curve is at most delta, rounded up; inf when there is none."""
        good = np.flatnonzero((self.values <= delta) & (self.points >= 1.0))
        if float(self.at(np.ones(1))[0]) <= delta:
            return 0.0
        if good.size == 0:
            return math.inf
        j = int(good[0])
        (a, b), (u, v) = self.points[j - 1 : j + 1].tolist(), self.values[j - 1 : j + 1].tolist()
        c = min(b, max(1.0, a + (b - a) * (u - delta) / (u - v)))
        return math.log(c) * (1 + 8 * UNIT) + 8 * UNIT


def _thinned(points: FloatArray, values: FloatArray, floor: float) -> PrivacyCurve:
    """At most `_POINTS` points: those go first whose neighbours' chord is relatively nearest."""
    while points.size > _POINTS:
        inner = np.arange(1, points.size - 1, 2)
        left, right = points[inner - 1], points[inner + 1]
        share = (points[inner] - left) / (right - left)
        chord = values[inner - 1] * (1 - share) + values[inner + 1] * share
        gap = (chord - values[inner]) / (values[inner] + floor)
        # Few at a time: a gap grows as its neighbours go.
        dropped = inner[np.argsort(gap)[: min(points.size - _POINTS, 1 + inner.size // 3)]]
        points, values = np.delete(points, dropped), np.delete(values, dropped)
    return PrivacyCurve(points=points, values=values, floor=floor)


def _merged(points: FloatArray) -> FloatArray:
    """Sorted points without near-duplicates; 0 and the largest stay."""
    ordered = np.unique(points)
    fresh = np.append(np.diff(ordered) > 1e-12 * ordered[1:], True)
    fresh[0] = True
    return ordered[fresh]


def _through(pair: Pair, curve: PrivacyCurve) -> PrivacyCurve:
    """The curve after one more release that is seen through the pair."""
    first, second = pair
    both = (first > 0) & (second > 0)
    certain = float(first[second == 0].sum())
    points = np.append(0.0, (curve.points[:, None] * (first[both] / second[both])).ravel())
    points = _merged(points[(points == 0) | ((points > 1 / _FARTHEST) & (points < _FARTHEST))])
    values = np.full(points.size, certain)
    for p, q in zip(first[both].tolist(), second[both].tolist(), strict=True):
        values += p * curve.at(points * (q / p))
    return _thinned(points, values, curve.floor)


def _crossings(points: FloatArray, table: FloatArray) -> FloatArray:
    """The points where the largest of several piecewise linear functions changes: one crossing per interval."""
    top = np.argmax(table, axis=0)
    k = np.flatnonzero(top[:-1] != top[1:])
    before, after = top[k], top[k + 1]
    lead, loss = table[before, k] - table[after, k], table[after, k + 1] - table[before, k + 1]
    share = np.where(lead + loss > 0, lead / np.maximum(lead + loss, 1e-300), 0.5)
    return points[k] + share * (points[k + 1] - points[k])


def _largest(curves: Sequence[PrivacyCurve]) -> PrivacyCurve:
    """An upper bound on the pointwise maximum, exact at the union of points and at crossings."""
    if len(curves) == 1:
        return curves[0]
    points = _merged(np.concatenate([curve.points for curve in curves]))
    most = max(4 * _POINTS, _CELLS // len(curves))
    if points.size > most:
        points = points[np.linspace(0, points.size - 1, most).astype(np.int64)]
    table = np.stack([curve.at(points) for curve in curves])
    for _ in range(_PASSES):
        # A third curve may be the largest where two cross: then there are crossings with it on both sides.
        finer = _merged(np.concatenate([points, _crossings(points, table)]))
        if finer.size == points.size:
            break
        points = finer
        table = np.stack([curve.at(points) for curve in curves])
    return _thinned(points, table.max(axis=0), curves[0].floor)


def _combinations(pairs: Sequence[Pair], count: int, curve: PrivacyCurve) -> Iterator[PrivacyCurve]:
    """The curve seen through every multiset of `count` pairs (their order does not matter)."""
    if count == 0:
        yield curve
        return
    for i, pair in enumerate(pairs):
        yield from _combinations(pairs[i:], count - 1, _through(pair, curve))


def undominated(weights: IntArray) -> list[Pair]:
    """Ordered pairs of different rows whose curve is not below another pair's everywhere; equal curves count once."""
    rows = np.unique(weights, axis=0) / float(TOTAL)
    pairs = [(a, b) for i, a in enumerate(rows) for j, b in enumerate(rows) if i != j]
    start = PrivacyCurve(points=np.array([0.0, 1.0]), values=np.array([1.0, 0.0]))
    curves = [_through(pair, start) for pair in pairs]
    kept: list[int] = []
    for i, curve in enumerate(curves):
        # A convex curve is below a piecewise linear one if it is so at the latter's corners and at infinity.
        below = [
            bool((curve.at(other.points) <= other.values + 4 * UNIT).all())
            and curve.values[-1] <= other.values[-1]
            for other in curves
        ]
        equal_before = any(
            below[j] and (curves[j].at(curve.points) <= curve.values + 4 * UNIT).all() for j in kept
        )
        strictly = any(
            below[j] and not (curves[j].at(curve.points) <= curve.values + 4 * UNIT).all()
            for j in range(len(curves))
        )
        if not (equal_before or strictly):
            kept.append(i)
    return [pairs[i] for i in kept]


def _budgeted(weights: IntArray, coordinates: int, rounds: int) -> list[Pair] | None:
    """The pairs to go through, or None when that is too much."""
    if np.unique(weights, axis=0).shape[0] > MAX_ROWS or coordinates * rounds > _BUDGET:
        return None
    pairs = undominated(weights)
    nodes = sum(math.comb(len(pairs) + j - 1, j) for j in range(1, coordinates + 1)) if pairs else 0
    return pairs if nodes * rounds * weights.shape[1] <= _BUDGET else None


def worst_sequence_epsilon(
    weights: IntArray, *, coordinates: int, rounds: int, delta: float, rate: float = 1.0
) -> float | None:
    """Epsilon at `delta` of the worst sequence of inputs of rounds x coordinates reports; None when there are too many.

    Inputs of one round are chosen together, those of later rounds in the light of earlier reports. `rate` is the
    probability of taking part in a round, visibly. Never below the exact worst case: rounding errors are added.
    """
    pairs = _budgeted(weights, coordinates, rounds)
    if pairs is None:
        return None
    # Each release errs by (m + 8) 4 UNIT at most: m products, and arguments off by 4 UNIT where |c f'(c)| <= 1.
    target = delta - coordinates * rounds * (weights.shape[1] + 8) * 8 * UNIT
    curve = PrivacyCurve(
        points=np.array([0.0, 1.0]), values=np.array([1.0, 0.0]), floor=1e-3 * delta + 1e-18
    )
    last = [curve]
    for _ in range(rounds if pairs else 0):
        curve = _largest(last)
        # An empty round leaves the curve as it is: rate (P, Q) f + (1 - rate) f.
        last = [_mixed(seen, curve, rate) for seen in _combinations(pairs, coordinates, curve)]
    return max(seen.epsilon(target) for seen in last)


def _mixed(seen: PrivacyCurve, missed: PrivacyCurve, rate: float) -> PrivacyCurve:
    if rate == 1:
        return seen
    points = _merged(np.concatenate([seen.points, missed.points]))
    return _thinned(points, rate * seen.at(points) + (1 - rate) * missed.at(points), seen.floor)


EXACT = "exact worst sequence of inputs"
PLD = "privacy loss distribution"
PURE = "pure composition"
ADVANCED = "advanced composition"
RENYI = "Renyi composition"

_ORDERS = 1 + np.geomspace(1e-3, 1e5, 120)
PRECISION = 1e-4
"""Share of epsilon (at least 1e-4 nats) that the grid of losses may cost."""


def dominating_atoms(mechanism: Mechanism) -> Atoms:
    """Losses of one report: of the pair of distributions that dominates all pairs of rows (T7), in exact integers.

    The corners of the trade-off curve are running sums of that pair: a step to the right is mass of the second
    distribution, a step down is mass of the first.
    """
    curve = tradeoff(mechanism)
    first, second = -np.diff(curve.misses), np.diff(curve.false_alarms)
    used = first > 0
    first, second = first[used], second[used]
    size = np.log1p(np.abs(first - second) / np.minimum(first, second))
    losses = np.where(first >= second, size * (1 + 16 * UNIT), -size * (1 - 16 * UNIT))
    return Atoms(
        losses=losses, masses=first / float(TOTAL), infinite=(TOTAL - int(curve.misses[0])) / TOTAL
    )


def advanced_epsilon(epsilon: float, count: int, delta: float) -> float:
    """Epsilon of `count` adaptively composed epsilon-DP releases at `delta` > 0, rounded up.

    A loss lies in [-epsilon, epsilon] and has conditional mean at most epsilon tanh(epsilon / 2) (Kairouz, Oh and
    Viswanath 2015), so Azuma's inequality gives P(sum > count mean + t) <= exp(-t^2 / (2 count epsilon^2)) = delta.
    """
    if delta <= 0 or math.isinf(epsilon):
        return math.inf
    mean = epsilon * math.tanh(epsilon / 2)
    return (count * mean + epsilon * math.sqrt(2 * count * math.log(1 / delta))) * (1 + 32 * UNIT)


def _is_secret(run: Release) -> bool:
    """True when participation is random and unseen."""
    return run.participation == "poisson"


def _round_epsilon(run: Release) -> float:
    """Pure epsilon of one round whose participation is secret."""
    single = run.dimension * run.table.epsilon * (1 + 4 * UNIT)
    # Amplification of pure epsilon: e**epsilon - 1 shrinks by the rate (both neighbouring relations).
    growth = run.sampling_rate * math.expm1(single) if single < 700 else math.inf
    return min(single, math.log1p(growth) * (1 + 16 * UNIT))


def _pure(run: Release) -> float:
    return run.rounds * _round_epsilon(run) * (1 + 4 * UNIT) if _is_secret(run) else run.pure


def _advanced(run: Release) -> float:
    if _is_secret(run):
        return advanced_epsilon(_round_epsilon(run), run.rounds, run.delta)
    return advanced_epsilon(run.table.epsilon, run.releases, run.delta)


def renyi_order(run: Release) -> float:
    """The order whose composition costs least of those tried, by the dominating pair's divergences."""
    atoms = dominating_atoms(run.table)

    def rough(alpha: float) -> float:
        exponents = (alpha - 1) * atoms.losses
        top = float(exponents.max())
        single = (top + math.log(float(atoms.masses @ np.exp(exponents - top)))) / (alpha - 1)
        per_round = rdp_public_sampling(run.dimension * single, alpha, run.sampling_rate)
        return rdp_to_epsilon(run.rounds * per_round, alpha, run.delta)

    return min((float(alpha) for alpha in _ORDERS), key=rough)


def _renyi(run: Release) -> float:
    if _is_secret(run) or run.delta <= 0 or math.isinf(run.table.epsilon):
        return math.inf
    best = renyi_order(run)
    single = run.dimension * renyi(run.table.weights, best)
    return rdp_to_epsilon(
        run.rounds * rdp_public_sampling(single, best, run.sampling_rate), best, run.delta
    )


def composed_epsilon(
    atoms: Atoms, run: Release, delta: float, tolerances: Sequence[float]
) -> float:
    """Epsilon of a whole release each report of which the atoms cover; inf where no grid holds it.

    Arguments:
        delta: what is left of the release's own.
        tolerances: that grids may cost in all (nats), the best first; others are for what memory does not hold so.
    """

    def many(single: Atoms, count: int) -> float:
        found = (composed(single, count, tolerance) for tolerance in tolerances)
        return next((one.epsilon(delta) for one in found if one is not None), math.inf)

    if run.participation == "none":
        return many(atoms, run.releases)
    one_round = composed(
        atoms, run.dimension, tolerances[0] / max(1.0, run.sampling_rate * run.rounds)
    )
    if one_round is None:
        return math.inf
    # Of sums: absent or replaced, the outputs differ by one replaced report (or silence), and all pairs are covered.
    sampled: list[Callable[[Atoms, float], Atoms]] = [poisson_replace_one]
    if run.participation == "public":
        sampled = [revealed]
    elif run.neighboring == "add_or_remove_one":
        sampled = [poisson_add, poisson_remove]
    return max(many(change(one_round.atoms(), run.sampling_rate), run.rounds) for change in sampled)


def account_local(run: Release) -> Claim:
    """The cost of dimension x rounds reports of one client, each of them seen."""
    bounds = {PURE: _pure(run), ADVANCED: _advanced(run), RENYI: _renyi(run)}
    if run.delta > 0:
        guess = min(bounds.values())
        tolerance = PRECISION * max(1.0, guess if math.isfinite(guess) else 1.0)
        bounds[PLD] = composed_epsilon(dominating_atoms(run.table), run, run.delta, [tolerance])
    if run.delta > 0 and not _is_secret(run):
        exact = worst_sequence_epsilon(
            run.table.weights,
            coordinates=run.dimension,
            rounds=run.rounds,
            delta=run.delta,
            rate=run.sampling_rate,
        )
        bounds[EXACT] = math.inf if exact is None else exact
    return run.claim(bounds)
