"""What secure sums cost over coordinates, rounds and participation: the claim of a whole release."""

from __future__ import annotations

import math
from typing import Any

from mezzotint.core.errors import ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.core.loss import UNIT
from mezzotint.privacy.claim import Claim
from mezzotint.privacy.conversion import renyi_to_epsilon, seen_renyi
from mezzotint.privacy.distribution import Atoms, composed, fits
from mezzotint.privacy.release import Release
from mezzotint.privacy.sampling import poisson_replace_one, revealed
from mezzotint.privacy.sums.bound import central_epsilon, dominating_curve, kept_variance, shortlist
from mezzotint.privacy.sums.central import Noise, blanket_noise, silence
from mezzotint.privacy.sums.curve import HockeyStick
from mezzotint.privacy.sums.geometry import quadratic_renyi, squared_distance
from mezzotint.privacy.sums.near import pure_epsilon_l2

stats: Any = LazyModule("scipy.stats")

PURE = "pure composition of single reports"
COMPOSED = "secure sums, losses composed"
RENYI_L2 = "Renyi composition under the L2 bound"
PURE_L2 = "pure composition under the L2 bound"
_ORDERS = (1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0, 48.0, 64.0)
_L2_CELLS = 12
_PRECISION = 1e-4


def _single(run: Release, curve_delta: float) -> tuple[HockeyStick, float]:
    """The curve of one sum of one coordinate, and the probability that too few others took part for it."""
    (rows, lattice), others = run.summed, run.others
    if run.participation != "poisson":
        return dominating_curve(rows, clients=int(run.clients or 1), corrupted=run.corrupted, delta=curve_delta), 0.0
    # The others take part at random: given how many did (revealed to the adversary), the bound falls in their number.
    few = 1e-3 * run.delta / run.rounds
    least = int(stats.binom.ppf(few / 2, others, run.sampling_rate))
    missed = float(stats.binom.cdf(least - 1, others, run.sampling_rate)) * (1 + 1e-9) if least > 0 else 0.0
    zero = -lattice.offset / lattice.step
    if abs(zero - round(zero)) > 1e-9 or not 0 <= round(zero) <= lattice.span:
        remedy = "an absent client adds 0, which is not a level's integer; use sampling='public' or a lattice with 0"
        raise ParameterError("sampling", "poisson", remedy)
    curve = dominating_curve(rows, clients=max(least, 0) + 1, delta=curve_delta, silent=round(zero))
    return curve, missed


def _composed(run: Release) -> float:
    """Epsilon by losses of sums, composed over coordinates, then over rounds with their participation."""
    if run.delta == 0:
        return math.inf
    if run.releases == 1 and run.participation == "none":
        rows, _ = run.summed
        return central_epsilon(rows, clients=int(run.clients or 1), corrupted=run.corrupted, delta=run.delta).epsilon
    curve, missed = _single(run, run.delta / run.releases)
    if run.participation == "none":
        return _many(curve.atoms(), run.releases, run.delta)
    one_round = _round(curve.atoms(), run.dimension, run.rounds * run.sampling_rate)
    if one_round is None:
        return math.inf
    # Absent or replaced, the neighbours' outputs differ by one replaced report (or silence): all pairs covered.
    change = revealed if run.participation == "public" else poisson_replace_one
    left = run.delta - missed * run.rounds
    return _many(change(one_round, run.sampling_rate), run.rounds, left) if left > 0 else math.inf


def _round(atoms: Atoms, coordinates: int, expected_rounds: float) -> Atoms | None:
    tolerance = _PRECISION / max(1.0, expected_rounds)
    if not fits(atoms, coordinates, tolerance):
        return None
    return composed(atoms, coordinates, tolerance).atoms()


def _many(atoms: Atoms, count: int, delta: float) -> float:
    for tolerance in (_PRECISION, 1e-2, 1.0):
        if fits(atoms, count, tolerance):
            return composed(atoms, count, tolerance).epsilon(delta)
    return math.inf


def _round_noise(run: Release) -> Noise:
    rows, _ = run.summed
    found = shortlist(rows, run.others, 1e-5) if run.others else []
    if not found:
        return silence()
    best = max(found, key=lambda blanket: kept_variance(blanket, run.others, _L2_CELLS))
    return blanket_noise(best, run.others, budget=_L2_CELLS, tail=1e-25)


def _renyi_l2(run: Release) -> float:
    """Epsilon from kappa ||x - x'||^2 <= 4 kappa C^2 per round."""
    if run.clip_norm is None or run.delta == 0 or run.participation in ("poisson", "without_replacement"):
        return math.inf
    noise = _round_noise(run)
    square = squared_distance(run.table, coordinates=run.dimension, l2_norm=run.clip_norm)
    known: dict[int, float] = {}

    def value(index: int) -> float:
        if index not in known:
            alpha = _ORDERS[index]
            per_round = seen_renyi(square * quadratic_renyi(run.table, noise, alpha), alpha, run.sampling_rate)
            known[index] = renyi_to_epsilon(run.rounds * per_round, alpha, run.delta)
        return known[index]

    # kappa is nearly linear in alpha, so epsilon falls, then rises: bisection by index needs few orders.
    low, high = 0, len(_ORDERS) - 1
    while high - low > 2:
        middle = (low + high) // 2
        low, high = (low, middle + 1) if value(middle) <= value(middle + 1) else (middle, high)
    return min(value(index) for index in range(low, high + 1))


def _pure_l2(run: Release) -> float:
    if run.clip_norm is None:
        return math.inf
    single = pure_epsilon_l2(run.table, coordinates=run.dimension, l2_norm=run.clip_norm)
    return run.rounds * single * (1 + 4 * UNIT)


def account_sum(run: Release) -> Claim:
    """The cost of `rounds` secure sums of vectors, of which only the sums are seen.

    Raises:
        ParameterError: levels off every lattice (with the remedy); silence that is not on it.

    Guarantees:
        epsilon never below the exact worst case over all inputs of all clients; never above pure composition.
    Edge cases: clients = 1: the numbers of seen reports. delta = 0: pure composition (of vectors under an L2 bound).
    Source: docs/proofs/sums.md (S, S'), docs/proofs/sums-l2.md.
    """
    _ = run.summed  # levels off every lattice are refused before anything is computed
    return run.claim({PURE: run.pure, COMPOSED: _composed(run), RENYI_L2: _renyi_l2(run), PURE_L2: _pure_l2(run)})
