"""What secure sums cost over coordinates, rounds and participation: the claim of a whole release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, final

from mezzotint.core.errors import ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.privacy.checks import check_count, check_delta, check_others, check_rate
from mezzotint.privacy.claim import Claim, Sampling
from mezzotint.privacy.conversion import renyi_to_epsilon, seen_renyi
from mezzotint.privacy.distribution import Atoms, composed, fits
from mezzotint.privacy.loss import UNIT
from mezzotint.privacy.run import Run
from mezzotint.privacy.sampling import poisson_replace_one, revealed
from mezzotint.privacy.sums.bound import central_epsilon, dominating_curve, kept_variance, shortlist
from mezzotint.privacy.sums.central import Noise, blanket_noise, silence
from mezzotint.privacy.sums.curve import HockeyStick
from mezzotint.privacy.sums.geometry import quadratic_renyi, squared_distance
from mezzotint.privacy.sums.lattice import Lattice, lattice_rows
from mezzotint.privacy.sums.near import pure_epsilon_l2

if TYPE_CHECKING:
    from mezzotint.core.mechanism import IntArray, Mechanism

stats: Any = LazyModule("scipy.stats")

Geometry = Literal["coordinate", "l2"]

PURE = "pure composition of single reports"
COMPOSED = "secure sums, losses composed"
RENYI_L2 = "Renyi composition under the L2 bound"
PURE_L2 = "pure composition under the L2 bound"
_ORDERS = (1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0, 48.0, 64.0)
_L2_CELLS = 12
_PRECISION = 1e-4


@final
@dataclass(frozen=True, kw_only=True)
class _Sums:
    """A run of which only sums over clients are seen."""

    run: Run
    clients: int
    corrupted: int
    l2_norm: float | None

    @property
    def others(self) -> int:
        """Other clients whose noise counts."""
        return check_others(self.clients, self.corrupted)

    @cached_property
    def table(self) -> tuple[IntArray, Lattice]:
        """The rows of integers that are added up, and what they stand for."""
        return lattice_rows(self.run.mechanism)


def _checked_sampling(rate: float, name: str) -> Sampling:
    if name not in ("revealed", "poisson", "without_replacement"):
        remedy = 'use "revealed" (the server of a secure sum knows who took part), "without_replacement" or "poisson"'
        raise ParameterError("sampling", name, remedy)
    known: dict[str, Sampling] = {"revealed": "revealed", "poisson": "poisson"}
    return "none" if rate == 1 else known.get(name, "without_replacement")


def _checked_norm(geometry: str, l2_norm: float | None) -> float | None:
    if geometry == "coordinate":
        if l2_norm is not None:
            raise ParameterError("l2_norm", l2_norm, "a norm is used with geometry='l2' only")
        return None
    if geometry != "l2":
        raise ParameterError("geometry", geometry, 'use "coordinate" or "l2" (with l2_norm)')
    if l2_norm is None or not 0 < l2_norm < math.inf:
        raise ParameterError("l2_norm", l2_norm, "geometry='l2' needs the clipping norm of a client's vector")
    return float(l2_norm)


def _single(sums: _Sums, curve_delta: float) -> tuple[HockeyStick, float]:
    """The curve of one sum of one coordinate, and the probability that too few others took part for it."""
    (rows, lattice), run, others = sums.table, sums.run, sums.others
    if run.sampling != "poisson":
        return dominating_curve(rows, clients=sums.clients, corrupted=sums.corrupted, delta=curve_delta), 0.0
    # The others take part at random: given how many did (revealed to the adversary), the bound falls in their number.
    few = 1e-3 * run.delta / run.rounds
    least = int(stats.binom.ppf(few / 2, others, run.rate)) - 1
    missed = float(stats.binom.cdf(least - 1, others, run.rate)) * (1 + 1e-9) if least > 0 else 0.0
    zero = -lattice.offset / lattice.step
    if abs(zero - round(zero)) > 1e-9 or not 0 <= round(zero) <= lattice.span:
        remedy = "an absent client adds 0, which is not a level's integer; use sampling='revealed' or a lattice with 0"
        raise ParameterError("sampling", "poisson", remedy)
    curve = dominating_curve(rows, clients=max(least, 0) + 1, delta=curve_delta, silent=round(zero))
    return curve, missed


def _composed(sums: _Sums) -> float:
    """Epsilon by losses of sums, composed over coordinates, then over rounds with their participation."""
    run = sums.run
    if run.delta == 0:
        return math.inf
    if run.releases == 1 and run.sampling == "none":
        rows, _ = sums.table
        return central_epsilon(rows, clients=sums.clients, corrupted=sums.corrupted, delta=run.delta).epsilon
    curve, missed = _single(sums, run.delta / run.releases)
    if run.sampling == "none":
        return _many(curve.atoms(), run.releases, run.delta)
    one_round = _round(curve.atoms(), run.coordinates, run.rounds * run.rate)
    if one_round is None:
        return math.inf
    # Absent or replaced, the neighbours' outputs differ by one replaced report (or silence): all pairs covered.
    change = revealed if run.sampling == "revealed" else poisson_replace_one
    left = run.delta - missed * run.rounds
    return _many(change(one_round, run.rate), run.rounds, left) if left > 0 else math.inf


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


def _round_noise(sums: _Sums) -> Noise:
    rows, _ = sums.table
    found = shortlist(rows, sums.others, 1e-5) if sums.others else []
    if not found:
        return silence()
    best = max(found, key=lambda blanket: kept_variance(blanket, sums.others, _L2_CELLS))
    return blanket_noise(best, sums.others, budget=_L2_CELLS, tail=1e-25)


def _renyi_l2(sums: _Sums) -> float:
    """Epsilon from kappa ||x - x'||^2 <= 4 kappa C^2 per round."""
    run = sums.run
    if sums.l2_norm is None or run.delta == 0 or run.sampling in ("poisson", "without_replacement"):
        return math.inf
    noise = _round_noise(sums)
    square = squared_distance(run.mechanism, coordinates=run.coordinates, l2_norm=sums.l2_norm)
    known: dict[int, float] = {}

    def value(index: int) -> float:
        if index not in known:
            alpha = _ORDERS[index]
            per_round = seen_renyi(square * quadratic_renyi(run.mechanism, noise, alpha), alpha, run.rate)
            known[index] = renyi_to_epsilon(run.rounds * per_round, alpha, run.delta)
        return known[index]

    # kappa is nearly linear in alpha, so epsilon falls, then rises: bisection by index needs few orders.
    low, high = 0, len(_ORDERS) - 1
    while high - low > 2:
        middle = (low + high) // 2
        low, high = (low, middle + 1) if value(middle) <= value(middle + 1) else (middle, high)
    return min(value(index) for index in range(low, high + 1))


def _pure_l2(sums: _Sums) -> float:
    run = sums.run
    if sums.l2_norm is None:
        return math.inf
    single = pure_epsilon_l2(run.mechanism, coordinates=run.coordinates, l2_norm=sums.l2_norm)
    return run.rounds * single * (1 + 4 * UNIT)


def account_sum(
    mechanism: Mechanism,
    *,
    clients: int,
    coordinates: int = 1,
    rounds: int = 1,
    sampling_rate: float = 1.0,
    sampling: str = "revealed",
    corrupted: int = 0,
    geometry: str = "coordinate",
    l2_norm: float | None = None,
    delta: float = 1e-6,
) -> Claim:
    """The cost of `rounds` secure sums of vectors, of which only the sums are seen.

    Arguments:
        mechanism: the table; its levels must stand on a lattice (what is summed are integers).
        clients: reports per sum; with sampling="poisson" the clients of whom each takes part with `sampling_rate`.
        coordinates: values per client and round; changing a client changes all of them.
        rounds: sums; inputs may depend on all earlier sums.
        sampling_rate: chance of taking part in a round. With "without_replacement" clients / population.
        sampling: "revealed": the observer knows who took part (a server of a secure sum does): no amplification, but a
            client pays only for rounds it took part in. "without_replacement", "poisson": participation is secret.
        corrupted: clients that add no honest noise.
        geometry: "coordinate": every coordinate may change by its full range. "l2": the client's vector has L2 norm at
            most `l2_norm`, is rotated independently of the data and clipped to the table's range per coordinate.
        l2_norm: data units; with geometry="l2".
        delta: in [0, 1).

    Returns: the claim of the best valid method, the others beside it.

    Raises:
        ParameterError: levels off every lattice (with the remedy), clients < 1, rates outside (0, 1], ...

    Guarantees:
        epsilon never below the exact worst case over all inputs of all clients; never above pure composition.
    Edge cases: clients = 1: the local view's numbers. delta = 0: pure composition (under the L2 bound, if any).
    Source: docs/proofs/sums.md (S, S'), docs/proofs/sums-l2.md.
    """
    rate = check_rate(sampling_rate)
    run = Run(
        mechanism=mechanism, coordinates=check_count("coordinates", coordinates), rounds=check_count("rounds", rounds),
        rate=rate, sampling=_checked_sampling(rate, sampling), delta=check_delta(delta),
    )  # fmt: skip
    check_others(clients, corrupted)
    sums = _Sums(run=run, clients=int(clients), corrupted=int(corrupted), l2_norm=_checked_norm(geometry, l2_norm))
    lattice_rows(mechanism)
    bounds = {PURE: run.pure, COMPOSED: _composed(sums), RENYI_L2: _renyi_l2(sums), PURE_L2: _pure_l2(sums)}
    honest = sums.clients - sums.corrupted
    return run.claim(bounds, neighboring="replace_one", unit="client", observer="secure_sum", honest_clients=honest)
