"""What secure sums cost over coordinates, rounds and participation: the claim of a whole release."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, final

from mezzotint.core.errors import ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.privacy.loss import UNIT, pure_epsilon
from mezzotint.privacy.sums.bound import central_epsilon, check_others, dominating_curve, kept_variance, shortlist
from mezzotint.privacy.sums.central import Noise, blanket_noise, silence
from mezzotint.privacy.sums.curve import HockeyStick, check_delta
from mezzotint.privacy.sums.geometry import quadratic_renyi
from mezzotint.privacy.sums.lattice import lattice_rows

if TYPE_CHECKING:
    from mezzotint.core.mechanism import Mechanism
    from mezzotint.privacy import claim as claims
    from mezzotint.privacy import distribution, sampling
    from mezzotint.privacy.claim import Claim, Sampling
    from mezzotint.privacy.distribution import Atoms
else:
    # They stand on this room's convolutions.
    claims = LazyModule("mezzotint.privacy.claim")
    distribution = LazyModule("mezzotint.privacy.distribution")
    sampling = LazyModule("mezzotint.privacy.sampling")

stats: Any = LazyModule("scipy.stats")

Geometry = Literal["coordinate", "l2"]

PURE = "pure composition of single reports"
RENYI_L2 = "Renyi composition under the L2 bound"
_ORDERS = (1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0, 48.0, 64.0)
_L2_CELLS = 12
_PRECISION = 1e-4


@final
@dataclass(frozen=True, kw_only=True)
class _Release:
    mechanism: Mechanism
    clients: int
    corrupted: int
    coordinates: int
    rounds: int
    rate: float
    sampling: Sampling
    l2_norm: float | None
    delta: float


def _count(name: str, value: int) -> int:
    if isinstance(value, bool) or int(value) != value or value < 1:
        raise ParameterError(name, value, "need an integer >= 1")
    return int(value)


def _checked_sampling(rate: float, name: str) -> tuple[float, Sampling]:
    if not 0 < rate <= 1:
        raise ParameterError("sampling_rate", rate, "a probability in (0, 1]; leave out clients that never take part")
    if name not in ("revealed", "poisson", "without_replacement"):
        remedy = 'use "revealed" (the server of a secure sum knows who took part), "without_replacement" or "poisson"'
        raise ParameterError("sampling", name, remedy)
    known: dict[str, Sampling] = {"revealed": "revealed", "poisson": "poisson"}
    return float(rate), "none" if rate == 1 else known.get(name, "without_replacement")


def _checked_norm(geometry: str, l2_norm: float | None, coordinates: int) -> float | None:
    if geometry == "coordinate":
        return None
    if geometry != "l2":
        raise ParameterError("geometry", geometry, 'use "coordinate" or "l2" (with l2_norm)')
    if l2_norm is None or not 0 < l2_norm < math.inf:
        raise ParameterError("l2_norm", l2_norm, "geometry='l2' needs the clipping norm of a client's vector")
    return float(l2_norm)


def _single(release: _Release, curve_delta: float) -> tuple[HockeyStick, float]:
    """The curve of one sum of one coordinate, and the probability that too few others took part for it."""
    rows, lattice = lattice_rows(release.mechanism)
    others = check_others(release.clients, release.corrupted)
    if release.sampling != "poisson":
        curve = dominating_curve(rows, clients=release.clients, corrupted=release.corrupted, delta=curve_delta)
        return curve, 0.0
    # The others take part at random: given how many did (revealed to the adversary), the bound falls in their number.
    few = 1e-3 * release.delta / release.rounds
    least = int(stats.binom.ppf(few / 2, others, release.rate)) - 1
    missed = float(stats.binom.cdf(least - 1, others, release.rate)) * (1 + 1e-9) if least > 0 else 0.0
    zero = -lattice.offset / lattice.step
    if abs(zero - round(zero)) > 1e-9 or not 0 <= round(zero) <= lattice.span:
        remedy = "an absent client adds 0, which is not a level's integer; use sampling='revealed' or a lattice with 0"
        raise ParameterError("sampling", "poisson", remedy)
    curve = dominating_curve(rows, clients=max(least, 0) + 1, delta=curve_delta, silent=round(zero))
    return curve, missed


def _composed(release: _Release) -> float:
    """Epsilon by losses of sums, composed over coordinates, then over rounds with their participation."""
    if release.delta == 0:
        return math.inf
    releases = release.coordinates * release.rounds
    if releases == 1 and release.sampling == "none":
        rows, _ = lattice_rows(release.mechanism)
        return central_epsilon(rows, clients=release.clients, corrupted=release.corrupted, delta=release.delta).epsilon
    curve, missed = _single(release, release.delta / releases)
    atoms = curve.atoms()
    if release.sampling == "none":
        return _many(atoms, releases, release.delta)
    one_round = _round(atoms, release.coordinates, release.rounds * release.rate)
    if one_round is None:
        return math.inf
    changed = (
        sampling.revealed(one_round, release.rate)
        if release.sampling == "revealed"
        # Absent or replaced, the neighbours' outputs differ by one replaced report (or silence): all pairs covered.
        else sampling.poisson_replace_one(one_round, release.rate)
    )
    left = release.delta - missed * release.rounds
    return _many(changed, release.rounds, left) if left > 0 else math.inf


def _round(atoms: Atoms, coordinates: int, expected_rounds: float) -> Atoms | None:
    tolerance = _PRECISION / max(1.0, expected_rounds)
    if not distribution.fits(atoms, coordinates, tolerance):
        return None
    return distribution.composed(atoms, coordinates, tolerance).atoms()


def _many(atoms: Atoms, count: int, delta: float) -> float:
    for tolerance in (_PRECISION, 1e-2, 1.0):
        if distribution.fits(atoms, count, tolerance):
            return distribution.composed(atoms, count, tolerance).epsilon(delta)
    return math.inf


def _pure(release: _Release) -> float:
    return release.coordinates * release.rounds * pure_epsilon(release.mechanism.weights) * (1 + UNIT)


def _round_noise(release: _Release) -> Noise:
    others = check_others(release.clients, release.corrupted)
    rows, _ = lattice_rows(release.mechanism)
    found = shortlist(rows, others, 1e-5) if others else []
    if not found:
        return silence()
    best = max(found, key=lambda blanket: kept_variance(blanket, others, _L2_CELLS))
    return blanket_noise(best, others, budget=_L2_CELLS, tail=1e-25)


def renyi_to_epsilon(divergence: float, alpha: float, delta: float) -> float:
    """Epsilon at `delta` > 0 of Renyi divergence at most `divergence` at order `alpha` > 1, rounded up.

    Source: Canonne, Kamath and Steinke 2020, Proposition 12.
    """
    saved = math.log1p(-1 / alpha) - math.log(delta * alpha) / (alpha - 1)
    return max(0.0, divergence + saved + (abs(divergence) + abs(saved) + 1) * 16 * UNIT)


def _renyi_l2(release: _Release) -> float:
    """Epsilon from kappa ||x - x'||^2 <= 4 kappa C^2 per round."""
    if release.l2_norm is None or release.delta == 0 or release.sampling in ("poisson", "without_replacement"):
        return math.inf
    noise = _round_noise(release)
    square = 4 * release.l2_norm**2 * (1 + 8 * UNIT)

    def at(alpha: float) -> float:
        per_round = square * quadratic_renyi(release.mechanism, noise, alpha)
        power = (alpha - 1) * per_round
        if release.rate < 1 and power < 700:
            # A visible absence has likelihood ratio 1.
            per_round = math.log1p(release.rate * math.expm1(power)) / (alpha - 1) * (1 + 16 * UNIT)
        return renyi_to_epsilon(release.rounds * per_round, alpha, release.delta)

    # kappa is nearly linear in alpha, so epsilon falls, then rises: a golden search by index needs few orders.
    low, high = 0, len(_ORDERS) - 1
    known: dict[int, float] = {}

    def value(index: int) -> float:
        if index not in known:
            known[index] = at(_ORDERS[index])
        return known[index]

    while high - low > 2:
        middle = (low + high) // 2
        low, high = (low, middle + 1) if value(middle) <= value(middle + 1) else (middle, high)
    return min(value(index) for index in range(low, high + 1))


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
    Edge cases: clients = 1: the local view's numbers. delta = 0: pure composition.
    Source: docs/proofs/sums.md (S, S'), docs/proofs/sums-l2.md.
    """
    rate, name = _checked_sampling(sampling_rate, sampling)
    lattice_rows(mechanism)
    check_others(clients, corrupted)
    release = _Release(
        mechanism=mechanism, clients=clients, corrupted=corrupted, coordinates=_count("coordinates", coordinates),
        rounds=_count("rounds", rounds), rate=rate, sampling=name,
        l2_norm=_checked_norm(geometry, l2_norm, coordinates), delta=check_delta(delta),
    )  # fmt: skip
    found = {PURE: _pure(release), "secure sums, losses composed": _composed(release), RENYI_L2: _renyi_l2(release)}
    valid = sorted(((key, value) for key, value in found.items() if math.isfinite(value)), key=lambda item: item[1])
    method, epsilon = valid[0] if valid else (PURE, math.inf)
    return claims.Claim(
        epsilon=epsilon,
        delta=release.delta,
        neighboring="replace_one",
        unit="client",
        view="sum",
        honest_clients=int(clients) - int(corrupted),
        sampling=name,
        sampling_rate=rate,
        coordinates=release.coordinates,
        rounds=release.rounds,
        method=method,
        alternatives=tuple(valid),
        sha256=mechanism.sha256,
    )
