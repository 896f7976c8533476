"""Integer noise that clients add before a secure sum: the exact n-fold convolution, and its privacy
loss.

Vectors under integer noise: rounding with a bounded norm, noise of every client, addition modulo a
planned M.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_count, check_instance, check_probability
from mezzotint.core.errors import ParameterError
from mezzotint.core.search import bracket
from mezzotint.core.types import TOTAL, UNIT, FloatArray, IntArray, Seed
from mezzotint.families.noise import IntegerNoise
from mezzotint.privacy.claim import Claim, Release
from mezzotint.privacy.divergences import rdp_to_epsilon
from mezzotint.privacy.propose import Outcome
from mezzotint.privacy.sums.convolution import sum_pmf
from mezzotint.privacy.sums.geometry import series
from mezzotint.privacy.sums.proposals import propose_noise
from mezzotint.vectors.tables import MAX_BITS, ModularScheme, check_planned

if TYPE_CHECKING:
    from mezzotint import kernel

MAX_SHIFT = 4096
"""Largest change of one coordinate that is enumerated, lattice steps."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class SummedNoise:
    """Bounds on the pmf of the sum of many clients' noise, on consecutive integers.

    Arguments:
        low, high: (w,) bounds on the probabilities.
        outside: mass outside the window.
        symmetric: whether the pmf is its own mirror image, so that one direction of a shift speaks
            for both.

    Example:
        >>> noise = mz.vectors.summed_noise(mz.families.discrete_laplace(scale=2.0), clients=10)
        >>> bool(np.all(noise.low <= noise.high)), noise.outside < 1e-9
        (True, True)
    """

    low: FloatArray
    high: FloatArray
    outside: float
    symmetric: bool = False

    def _sides(self, shift: int) -> list[_Side]:
        # P and Q, the pmf and its copy moved by the shift, wherever the window knows both; and what
        # lies beyond.
        low, high, outside = self.low, self.high, self.outside
        left, right = float(high[:shift].sum()) + outside, float(high[-shift:].sum()) + outside
        ends = (slice(shift, None), left), (slice(None, -shift), right)
        return [
            _Side(
                high=high[p],
                low=low[p],
                copy_high=high[q],
                copy_low=low[q],
                beyond=first,
                copy_beyond=second,
            )
            for (p, first), (q, second) in (ends, ends[::-1])[: 1 if self.symmetric else 2]
        ]

    def quadratic_renyi(
        self,
        alpha: float,
        *,
        shift: int,
        lost: float,
    ) -> tuple[float, float]:
        """kappa and a mass: D_alpha of the noise from itself shifted by s is at most kappa s^2 for
        all |s| <= shift.

        Arguments:
            alpha: order > 1.
            shift: largest |s|, lattice steps.
            lost: mass that may be cut off, which belongs to delta; the Renyi divergence is that of
                the rest.

        Returns: (kappa, mass cut off per coordinate), both rounded up; kappa is inf if more would
            have to be cut off.

        Guarantees: exact convolution; the sum is not approximated by a named distribution.
        Source: docs/proofs/vectors.md, "Noise".
        """
        if not 1 < alpha < math.inf:
            raise ParameterError("alpha", alpha, "need a finite Renyi order above 1")
        kappa, cut = 0.0, 0.0
        for s in range(1, _checked_shift(shift) + 1):
            if s >= self.low.size:
                return math.inf, 1.0
            for side in self._sides(s):
                power, rest = side.power(alpha)
                if rest > lost:
                    return math.inf, rest
                kappa, cut = max(kappa, power / (alpha - 1) / s**2), max(cut, rest)
        return kappa * (1 + 8 * UNIT), cut * (1 + 64 * UNIT)

    def epsilon(self, delta: float, *, shift: int) -> float:
        """Least epsilon at which no shift by at most `shift` has a hockey-stick divergence above
        `delta`; rounded up.

        Guarantees: of the exact convolution, worst over all shifts and both directions.
        Edge cases: inf if the ends of the support distinguish inputs with probability above
            `delta`.
        """
        check_probability("delta", delta)
        epsilon = 0.0
        # The widest shift first: usually it is the worst, and the others only need a check.
        for s in range(_checked_shift(shift), 0, -1):
            if s >= self.low.size:
                return math.inf
            for side in self._sides(s):
                if side.delta(epsilon) > delta:
                    epsilon = side.epsilon(delta, epsilon)
        return epsilon


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Side:
    """A pmf P and its shifted copy Q where the window knows both; bounds on the mass beyond."""

    high: FloatArray
    low: FloatArray
    copy_high: FloatArray
    copy_low: FloatArray
    beyond: float
    copy_beyond: float

    def power(self, alpha: float) -> tuple[float, float]:
        """Upper bounds on log sum P^alpha Q^(1 - alpha) where Q > 0 is known, and on the mass of P
        elsewhere."""
        from mezzotint.privacy.sums import compiled as kernels

        known = self.copy_low > 0
        rest, copy_rest = self.beyond, self.copy_beyond
        parts = [self.high, self.low, self.copy_high, self.copy_low]
        if not known.all():
            rest += float(self.high[~known].sum())
            copy_rest += float(self.copy_high[~known].sum())
            parts = [part[known] for part in parts]
        if parts[0].size == 0:
            return math.inf, 1.0
        # With u = P / Q - 1 and h(u) = (1 + u)^alpha - 1 - alpha u the sum over the known places K
        # is
        #   Q(K) + alpha (P(K) - Q(K)) + sum Q h(u) <= 1 + (alpha - 1) Q(not K) + sum Q h(u),
        # free of cancellation; h is convex with h(0) = 0, so one end of the interval known to hold
        # u is worst.
        high, low, copy_high, copy_low = map(np.ascontiguousarray, parts)
        total = float(kernels.mean_excess(high, low, copy_high, copy_low, series(alpha)))
        total *= 1 + (parts[0].size + 64) * UNIT  # the summation rounds
        return math.log1p(total + (alpha - 1) * copy_rest * (1 + 64 * UNIT)) * (1 + 8 * UNIT), rest

    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence of P from Q, rounded up."""
        gains = self.high - math.exp(min(epsilon, 700.0)) * (1 - 4 * UNIT) * self.copy_low
        return float(np.maximum(gains, 0.0).sum()) * (1 + (gains.size + 8) * UNIT) + self.beyond

    def epsilon(self, delta: float, least: float) -> float:
        """Least epsilon >= `least` with divergence at most delta, rounded up; inf when there is
        none below 600."""
        low, high = least, max(1.0, 2 * least)
        while self.delta(high) > delta:
            if high > 600:
                return math.inf
            low, high = high, 2 * high
        return bracket(lambda epsilon: self.delta(epsilon) <= delta, high, low, tolerance=1e-7)[0]


def _checked_shift(shift: int) -> int:
    if not 1 <= shift <= MAX_SHIFT:
        remedy = f"one client may move a coordinate by 1 to {MAX_SHIFT} steps; take a coarser granularity"
        raise ParameterError("shift", shift, remedy)
    return int(shift)


def summed_noise(noise: IntegerNoise, clients: int) -> SummedNoise:
    """The total noise of `clients` honest clients, exact up to the error bounds returned.

    Arguments:
        noise: of each client.
        clients: honest ones.

    Returns: bounds on the pmf from both sides.

    Raises:
        ParameterError: clients < 1.

    Example:
        >>> noise = mz.vectors.summed_noise(mz.families.discrete_laplace(scale=2.0), clients=10)
        >>> noise.low.size == noise.high.size
        True
    """
    if isinstance(clients, bool) or int(clients) != clients or clients < 1:
        raise ParameterError("clients", clients, "need at least one honest client")
    summed = sum_pmf([noise.weights / float(TOTAL)], [[int(clients)]], tail=1e-22)
    symmetric = bool(np.array_equal(noise.weights, noise.weights[::-1]))
    return SummedNoise(
        low=summed.pmf[0] * (1 - summed.error),
        high=summed.pmf[0] * (1 + summed.error),
        outside=float(summed.outside[0]),
        symmetric=symmetric,
    )


def tail_probability(noise: IntegerNoise, clients: int, distance: float) -> float:
    """Chernoff's bound on the probability that `clients` together are more than `distance` steps
    from their mean."""
    if distance < 0:
        return 1.0
    odds, centred = _centred(noise)
    if distance >= clients * float(np.abs(centred).max()) * (1 + 2.0**-40):
        return 0.0
    variance = float(odds @ centred**2)
    best = 0.0
    # The best tilt for a Gaussian, and around it.
    for tilt in (distance / (clients * variance) * np.geomspace(0.25, 4, 25)).tolist():
        best = min(best, clients * _cumulant(tilt, odds, centred) - tilt * distance)
    return min(1.0, 2 * math.exp(best))


def tail_distance(noise: IntegerNoise, clients: int, probability: float) -> float:
    """A distance, steps, that the noise of `clients` exceeds with at most `probability`: Chernoff's
    bound inverted."""
    odds, centred = _centred(noise)
    widest = clients * float(np.abs(centred).max())
    if widest == 0:
        return 0.0
    needed = math.log(2 / probability)
    tilt = math.sqrt(2 * needed / (clients * float(odds @ centred**2)))
    tilts: list[float] = (tilt * np.geomspace(0.25, 2, 10)).tolist()
    return min(
        widest, *((clients * _cumulant(theta, odds, centred) + needed) / theta for theta in tilts)
    )


def _centred(noise: IntegerNoise) -> tuple[FloatArray, FloatArray]:
    """Probabilities, and the integers less their mean."""
    odds = noise.weights / float(TOTAL)
    return odds, noise.offsets.astype(np.float64) - float(odds @ noise.offsets)


def _cumulant(tilt: float, odds: FloatArray, centred: FloatArray) -> float:
    """The larger of log E exp(tilt X) and log E exp(-tilt X)."""
    found: list[float] = []
    for exponents in (tilt * centred, -tilt * centred):
        top = float(exponents.max())
        found.append(top + math.log(float(odds @ np.exp(exponents - top))))
    return max(found)


RENYI = "Renyi composition of the exact summed noise"
EXACT = "exact losses of the summed noise"

SPREAD = 10.0
"""Rotated coordinates are clipped to this multiple of their typical size: reached with probability
2 exp(-50) each."""
_CUT = 0.5  # largest share of delta for the far tails of the noise; their actual mass is subtracted


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseScheme(ModularScheme):
    """L2 clipping, rotation, conditional stochastic rounding to a grid, integer noise, addition
    modulo M.

    Arguments:
        noise: table of integer noise that EACH client adds (steps of `granularity`).
        size: coordinates of a client's vector.
        l2_norm: clipping norm, data units.
        granularity: data units per integer.
        clients: most clients per sum, for whom the modulus is planned; None plans nothing: then
            give `modulus_bits`, and check `wrap_probability` yourself.
        modulus_bits: log2 of M; None takes the least that `clients` and `wrap` allow.
        wrap: largest probability that some coordinate of a sum wraps around; a sum that wraps
            decodes wrongly.
        seed: public, of the rotation's signs; chosen independently of the data.
        slack: rounding increases the norm at most to a bound that one try exceeds with probability
            `slack`.

    Raises:
        ParameterError: a modulus too small for `clients` and `wrap`, norms that are not positive,
        more than 48 bits.

    Guarantees:
        Rounded vectors have L2 norm at most `rounded_norm` steps, coordinates at most `reach`:
        rounding is redrawn until they do. Privacy rests on these two bounds and on the noise's
        weights, not on the rounding's coins. Wrapping around M costs accuracy, never privacy.
        Estimates of sums are unbiased up to redrawn rounding (at most slack / (1 - slack) steps
        root mean square per client and coordinate; observed: far less) and wraps.
    Source: Kairouz, Liu and Steinke 2021 (conditional rounding); docs/proofs/vectors.md.

    Example:
        >>> scheme = mz.vectors.NoiseScheme(
        ...     size=4, l2_norm=1.0, granularity=0.01, modulus_bits=16, noise=mz.families.skellam(variance=100.0)
        ... )
        >>> total = sum(scheme.encode([0.1, 0.2, 0.3, 0.4]) for _ in range(50)) % scheme.modulus
        >>> scheme.decode_sum(total, clients=50).shape
        (4,)
    """

    noise: IntegerNoise
    clients: int | None = None
    modulus_bits: int | None = None
    wrap: float = 1e-6
    slack: float = math.exp(-0.5)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_instance("noise", self.noise, IntegerNoise)
        check_probability("slack", self.slack)
        check_probability("wrap", self.wrap)
        if self.clients is None and self.modulus_bits is None:
            raise ParameterError(
                "clients",
                None,
                "say for how many clients to plan the modulus, or give modulus_bits",
            )
        if self.clients is not None:
            check_count("clients", self.clients)
        if self.modulus_bits is None:
            object.__setattr__(self, "modulus_bits", self._planned_bits())
        elif self.clients is not None and self.wrap_probability(self.clients) > self.wrap:
            remedy = f"{self.clients} clients wrap more often than wrap={self.wrap:g}; use {self._planned_bits()} bits"
            raise ParameterError("modulus_bits", self.modulus_bits, remedy)

    def _planned_bits(self) -> int:
        """The fewest bits for which one of the bounds of `_wrap_bound` is at most `wrap`."""
        clients = int(self.clients or 1)
        share = self.wrap / self.length
        rooms = [clients * self.reach + tail_distance(self.noise, clients, share)]
        signs = share / 2 - 2 * clients * math.exp(-(SPREAD**2) / 2)
        if self.length > 1 and signs > 0:
            signal = math.sqrt(2 * math.log(2 / signs)) * self._signal(clients)
            rooms.append(clients + signal + tail_distance(self.noise, clients, share / 2))
        bits = math.ceil(math.log2(min(rooms) + self._drift(clients) + 2)) + 1
        if bits > MAX_BITS:
            raise ParameterError(
                "granularity", self.granularity, f"sums need {bits} bits, above {MAX_BITS}; coarsen"
            )
        return max(2, bits)

    def _signal(self, clients: int) -> float:
        """Norm of the coefficients of random signs in a coordinate of a sum, steps."""
        return clients * self.l2_norm / math.sqrt(self._rotation.block) / self.granularity

    def _drift(self, clients: int) -> int:
        return math.ceil(
            clients * abs(float(self.noise.weights @ self.noise.offsets.astype(np.float64))) / TOTAL
        )

    @property
    def _limit(self) -> float:
        """The bound at which rotated coordinates are clipped, data units."""
        return self.l2_norm * min(1.0, SPREAD / math.sqrt(self._rotation.block))

    @property
    def reach(self) -> int:
        """Largest absolute rounded coordinate, steps."""
        return max(1, math.ceil(self._limit / self.granularity * (1 - 2.0**-40)))

    @property
    def variance(self) -> float:
        return (float(self.noise.variance) + 0.25) * self.granularity**2

    @cached_property
    def rounded_norm(self) -> float:
        """Largest L2 norm of a rounded vector, steps."""
        norm, count = self.l2_norm / self.granularity, self.length
        if count == 1:
            return float(self.reach)
        # Rounding adds variance at most 1/4 per coordinate; and a margin of Hoeffding's type above
        # the mean.
        drawn = (
            norm**2
            + count / 4
            + math.sqrt(2 * math.log(1 / self.slack)) * (norm + math.sqrt(count) / 2)
        )
        return min(math.sqrt(drawn), norm + math.sqrt(count)) * (1 + 2.0**-40)

    def wrap_probability(self, clients: int) -> float:
        """0 if even the largest rounded coordinates and the largest noise fit."""
        return self._wrap_bound(check_count("clients", clients), int(self.modulus_bits or 0))

    def _wrap_bound(self, clients: int, bits: int) -> float:
        # Residues are read as [-M/2, M/2). A coordinate of the sum is signal + rounding + noise;
        # rounding moves that of each client by less than 1. The signal is a sum of random signs
        # with coefficients of norm n C / sqrt(p) at most: Hoeffding gives 2 exp(-t^2 / 2) beyond t
        # of those; one client's is clipped with 2 exp(-50).
        room = (1 << (bits - 1)) - 1 - self._drift(clients)
        best = tail_probability(self.noise, clients, room - clients * self.reach)
        room -= clients
        for t in (5.5, 6.0, 6.5, 7.0, 7.5, 8.0, 9.0):
            if self.length > 1 and room > t * self._signal(clients):
                signs = 2 * math.exp(-(t**2) / 2) + 2 * clients * math.exp(-(SPREAD**2) / 2)
                best = min(
                    best,
                    signs + tail_probability(self.noise, clients, room - t * self._signal(clients)),
                )
        return min(1.0, self.length * best)

    def encode(self, vector: npt.ArrayLike, rng: Seed = None) -> IntArray:
        """(d,) to (length,) residues; rng None draws the noise from the keystream, a seed is not
        private."""
        limited = np.clip(self.rotated(vector), -self._limit, self._limit)
        generator = np.random.default_rng() if rng is None else np.random.default_rng(rng)
        rounded = self._round(limited / self.granularity, generator)
        return (rounded + self.noise.sample(rounded.shape, rng)) % self.modulus

    def _round(self, steps: FloatArray, generator: np.random.Generator) -> IntArray:
        # Privacy rests on the tests below alone, whatever the coins are. The sum of squares is an
        # exact integer: claims allow coordinates of at most MAX_SHIFT / 2, and 2**27 squares of
        # those are below 2**53.
        below = np.floor(steps)
        most = self.rounded_norm**2
        for _ in range(1000):
            rounded = below + (generator.random(steps.shape) < steps - below)
            if float(rounded @ rounded) <= most and float(np.abs(rounded).max()) <= self.reach:
                return rounded.astype(np.int64)
        raise ParameterError("slack", self.slack, "rounding never met its norm; allow more slack")

    def decode_sum(self, total: npt.ArrayLike, clients: int) -> FloatArray:
        """Residues are read as the integers nearest 0."""
        count = check_planned(clients, self.clients)
        mean = float(self.noise.weights @ self.noise.offsets.astype(np.float64)) / float(
            self.noise.weights.sum()
        )
        return self._sum_of(total, count * mean)

    def describes(self, exact: kernel.ExactRelease) -> bool:
        """Whether what the kernel checked is this noise on vectors of this length that move by as
        much."""
        noise = ((self.noise.table.sha256, self.length),)
        shift, distance = self._moves
        return exact.tables == noise and exact.shift >= shift and exact.distance >= distance

    def propose(self, release: Release, claim: Claim, *, seconds: int) -> Outcome | str:
        """A proof of the claim, at the Renyi order that `account` chose."""
        if not math.isfinite(claim.epsilon):
            return "no bound is finite"
        shift, distance = self._moves
        order = self._renyi(
            summed_noise(self.noise, release.honest), release.rounds, release.delta
        )[1]
        drawn = replace(release, mechanism=self.noise.table, dimension=self.length)
        return propose_noise(
            drawn,
            claim.epsilon,
            shift=shift,
            distance=distance,
            order=order,
            seconds=seconds,
        )

    @property
    def _moves(self) -> tuple[int, int]:
        """The largest differences of neighbours: in one coordinate, and in the sum of all squares;
        both integers."""
        distance = math.floor(4 * self.rounded_norm**2 * (1 + 16 * UNIT))
        return min(2 * self.reach, math.isqrt(distance)), distance

    def _epsilons(self, release: Release) -> dict[str, float]:
        """Renyi composition of the summed noise; the exact loss distribution for a single scalar
        release."""
        shift, _ = self._moves
        if shift > MAX_SHIFT:
            remedy = f"a coordinate may move by {shift} steps; take a coarser"
            raise ParameterError("granularity", self.granularity, remedy)
        if release.delta == 0:
            return {RENYI: math.inf}
        summed = summed_noise(self.noise, release.honest)
        if self.length * release.rounds == 1:
            return {EXACT: summed.epsilon(release.delta, shift=shift)}
        return {RENYI: self._renyi(summed, release.rounds, release.delta)[0]}

    def _renyi(
        self,
        summed: SummedNoise,
        rounds: int,
        delta: float,
    ) -> tuple[float, float]:
        """The least epsilon of a few orders, and its order."""
        shift, distance = self._moves
        lost = _CUT * delta / (self.length * rounds)
        found: list[tuple[float, float]] = []
        for alpha in _orders(summed.high, distance, rounds, delta):
            kappa, cut = summed.quadratic_renyi(alpha, shift=shift, lost=lost)
            left = delta - cut * self.length * rounds * (1 + 8 * UNIT)
            usable = math.isfinite(kappa) and left > 0
            found.append(
                (
                    rdp_to_epsilon(rounds * kappa * distance, alpha, left) if usable else math.inf,
                    alpha,
                )
            )
        return min(found)


def _orders(
    pmf: FloatArray,
    distance: float,
    rounds: int,
    delta: float,
) -> list[float]:
    """A few orders around the best one for a Gaussian of the same variance."""
    places = np.arange(pmf.size, dtype=np.float64)
    mass = pmf / pmf.sum()
    variance = float(mass @ (places - mass @ places) ** 2)
    cost = rounds * distance / (2 * max(variance, 1e-9))
    best = 1 + math.sqrt(math.log(1 / delta) / cost)
    return [1 + (best - 1) * factor for factor in (0.8, 0.95, 1.1)]
