"""Vectors under integer noise: rounding with a bounded norm, noise of every client, addition modulo a planned M."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_count, check_positive, check_probability, check_residues, check_vector
from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import UNIT
from mezzotint.core.mechanism import TOTAL, FloatArray, IntArray
from mezzotint.families.noise import IntegerNoise
from mezzotint.privacy.claim import Claim
from mezzotint.privacy.propose import Outcome
from mezzotint.privacy.release import Release
from mezzotint.privacy.sums.account import renyi_to_epsilon
from mezzotint.privacy.sums.propose import propose_noise
from mezzotint.vectors.clipping import clip
from mezzotint.vectors.noise import MAX_SHIFT, SummedNoise, summed_noise, tail_distance, tail_probability
from mezzotint.vectors.rotation import Rotation
from mezzotint.vectors.scheme import VectorScheme

RENYI = "Renyi composition of the exact summed noise"
EXACT = "exact losses of the summed noise"

SPREAD = 10.0
"""Rotated coordinates are clipped to so many times their typical size: reached with probability 2 exp(-50) each."""

MAX_BITS = 48

_CUT = 0.5
"""Largest share of delta that the far tails of the noise may cost; what they do cost is subtracted."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseScheme(VectorScheme):
    """L2 clipping, rotation, conditional stochastic rounding to a grid, integer noise, addition modulo M.

    Arguments:
        noise: table of integer noise that EACH client adds (steps of `granularity`).
        size: coordinates of a client's vector.
        l2_norm: clipping norm, data units.
        granularity: data units per integer.
        clients: most clients per sum, for whom the modulus is planned; None plans nothing: then give `modulus_bits`,
            and look at `wrap_probability` yourself.
        modulus_bits: log2 of M; None takes the least that `clients` and `wrap` allow.
        wrap: how probable it may be that some coordinate of a sum wraps around; a sum that wraps decodes wrongly.
        seed: public, of the rotation's signs; chosen independently of the data.
        slack: rounding stretches the norm by at most the bound that fails with probability `slack` per try.

    Raises:
        ParameterError: a modulus too small for `clients` and `wrap`, norms that are not positive, more than 48 bits.

    Guarantees:
        Rounded vectors have L2 norm at most `rounded_norm` steps, coordinates at most `reach`: rounding is drawn again
        until they do. Privacy rests on these two bounds and on the noise's weights, on no coin of the rounding.
        Wrapping around M costs accuracy, never privacy.
        Estimates of sums are unbiased but for rounding drawn again (at most slack / (1 - slack) steps root mean square
        per client and coordinate; observed: far less) and wraps.
    Source: Kairouz, Liu and Steinke 2021 (conditional rounding); docs/proofs/vectors.md.
    """

    noise: IntegerNoise
    size: int
    l2_norm: float
    granularity: float
    clients: int | None = None
    modulus_bits: int | None = None
    wrap: float = 1e-6
    seed: int = 0
    slack: float = math.exp(-0.5)

    def __post_init__(self) -> None:
        check_positive("l2_norm", self.l2_norm)
        check_positive("granularity", self.granularity)
        check_probability("slack", self.slack)
        check_probability("wrap", self.wrap)
        _ = self._rotation
        if self.clients is None and self.modulus_bits is None:
            raise ParameterError(
                "clients", "None", "say for how many clients to plan the modulus, or give modulus_bits"
            )
        if self.clients is not None:
            check_count("clients", self.clients)
        if self.modulus_bits is None:
            object.__setattr__(self, "modulus_bits", self._planned_bits())
        elif not 2 <= check_count("modulus_bits", self.modulus_bits) <= MAX_BITS:
            raise ParameterError("modulus_bits", self.modulus_bits, f"between 2 and {MAX_BITS}")
        elif self.clients is not None and self.wrap_probability(self.clients) > self.wrap:
            remedy = f"{self.clients} clients wrap more often than wrap={self.wrap:g}; use {self._planned_bits()} bits"
            raise ParameterError("modulus_bits", self.modulus_bits, remedy)

    def _planned_bits(self) -> int:
        """Bits for the least room of those that keep the probability of a wrap below `wrap` (see `_wrap_bound`)."""
        clients = int(self.clients or 1)
        share = self.wrap / self.length
        rooms = [clients * self.reach + tail_distance(self.noise, clients, share)]
        signs = share / 2 - 2 * clients * math.exp(-(SPREAD**2) / 2)
        if self.length > 1 and signs > 0:
            signal = math.sqrt(2 * math.log(2 / signs)) * self._signal(clients)
            rooms.append(clients + signal + tail_distance(self.noise, clients, share / 2))
        bits = math.ceil(math.log2(min(rooms) + self._drift(clients) + 2)) + 1
        if bits > MAX_BITS:
            raise ParameterError("granularity", self.granularity, f"sums need {bits} bits, above {MAX_BITS}; coarsen")
        return max(2, bits)

    def _signal(self, clients: int) -> float:
        """Norm of the coefficients of random signs in a coordinate of a sum, steps."""
        return clients * self.l2_norm / math.sqrt(self.length) / self.granularity

    def _drift(self, clients: int) -> int:
        return math.ceil(clients * abs(float(self.noise.weights @ self.noise.offsets.astype(np.float64))) / TOTAL)

    @property
    def dimension(self) -> int:
        return self.size

    @property
    def _rotation(self) -> Rotation:
        return Rotation(dimension=self.size, seed=self.seed)

    @property
    def length(self) -> int:
        return self._rotation.padded

    @property
    def modulus(self) -> int:
        return 1 << int(self.modulus_bits or 0)

    @property
    def _limit(self) -> float:
        """Where rotated coordinates are clipped, data units."""
        return self.l2_norm * min(1.0, SPREAD / math.sqrt(self.length))

    @property
    def reach(self) -> int:
        """Largest absolute rounded coordinate, steps."""
        return max(1, math.ceil(self._limit / self.granularity * (1 - 2.0**-40)))

    @cached_property
    def rounded_norm(self) -> float:
        """Largest L2 norm of a rounded vector, steps."""
        norm, count = self.l2_norm / self.granularity, self.length
        if count == 1:
            return float(self.reach)
        # Rounding adds variance at most 1/4 per coordinate; beyond the mean by a Hoeffding-type margin.
        drawn = norm**2 + count / 4 + math.sqrt(2 * math.log(1 / self.slack)) * (norm + math.sqrt(count) / 2)
        return min(math.sqrt(drawn), norm + math.sqrt(count)) * (1 + 2.0**-40)

    def wrap_probability(self, clients: int) -> float:
        """Bound on the probability that some coordinate of a sum of `clients` vectors wraps around M.

        Guarantees: over the rotation's signs and the noise, for any vectors chosen independently of the signs.
        Edge cases: 0 when even the largest rounded coordinates and the largest noise fit.
        """
        return self._wrap_bound(check_count("clients", clients), int(self.modulus_bits or 0))

    def _wrap_bound(self, clients: int, bits: int) -> float:
        # Residues are read as [-M/2, M/2). A coordinate of the sum is signal + rounding + noise; rounding moves that of
        # each client by less than 1. The signal is a sum of random signs with coefficients of norm n C / sqrt(p) at
        # most: Hoeffding gives 2 exp(-t^2 / 2) beyond t of those; one client's is clipped with 2 exp(-50).
        room = (1 << (bits - 1)) - 1 - self._drift(clients)
        best = tail_probability(self.noise, clients, room - clients * self.reach)
        room -= clients
        for t in (5.5, 6.0, 6.5, 7.0, 7.5, 8.0, 9.0):
            if self.length > 1 and room > t * self._signal(clients):
                signs = 2 * math.exp(-(t**2) / 2) + 2 * clients * math.exp(-(SPREAD**2) / 2)
                best = min(best, signs + tail_probability(self.noise, clients, room - t * self._signal(clients)))
        return min(1.0, self.length * best)

    def encode(self, vector: npt.ArrayLike, rng: Any = None) -> IntArray:
        """(d,) to (length,) residues; rng None draws the noise from the keystream, a seed is not private."""
        clipped = clip(check_vector(vector, self.size), norm="l2", bound=self.l2_norm)
        limited = np.clip(self._rotation.apply(clipped), -self._limit, self._limit)
        generator = np.random.default_rng() if rng is None else np.random.default_rng(rng)
        rounded = self._round(limited / self.granularity, generator)
        return (rounded + self.noise.sample(rounded.shape, rng)) % self.modulus

    def _round(self, steps: FloatArray, generator: np.random.Generator) -> IntArray:
        # Privacy rests on the tests below alone, whatever the coins are. The sum of squares is an exact integer: a
        # coordinate that may be claimed about is at most MAX_SHIFT / 2, and 2**27 squares of that are below 2**53.
        below = np.floor(steps)
        most = self.rounded_norm**2
        for _ in range(1000):
            rounded = below + (generator.random(steps.shape) < steps - below)
            if float(rounded @ rounded) <= most and float(np.abs(rounded).max()) <= self.reach:
                return rounded.astype(np.int64)
        raise ParameterError("slack", self.slack, "rounding never met its norm; allow more slack")

    def decode_sum(self, total: npt.ArrayLike, clients: int) -> FloatArray:
        """Residues are read as the integers nearest 0."""
        count = check_count("clients", clients)
        if self.clients is not None and count > self.clients:
            raise ParameterError("clients", clients, f"the modulus was planned for at most {self.clients} clients")
        half = self.modulus // 2
        centred = (check_residues(total, self.length, self.modulus) + half) % self.modulus - half
        mean = float(self.noise.weights @ self.noise.offsets.astype(np.float64)) / float(self.noise.weights.sum())
        return self._rotation.undo((centred - count * mean) * self.granularity)

    def account(self, release: Release) -> Claim:
        """Renyi composition of the summed noise; the exact loss distribution for a single scalar release.

        Raises:
            ParameterError: clients who take part in secret, so that nobody knows how much noise is there.
        """
        if release.participation == "poisson":
            remedy = "noise of who stayed away is not in the sum: name the clients of one sum, with sampling='public'"
            raise ParameterError("sampling", "poisson", remedy)
        return release.claim(self._epsilons(release), dimension=self.length, sha256="")

    def propose(self, release: Release, claim: Claim, *, seconds: int) -> Outcome | str:
        """A proof of the claim, by the Renyi divergence of the order that `account` chose."""
        if not math.isfinite(claim.epsilon):
            return "no bound is finite"
        shift, distance = self._moves
        order = self._renyi(summed_noise(self.noise, release.honest), release.rounds, release.delta)[1]
        return propose_noise(
            self.noise.table, release, epsilon=claim.epsilon, dimension=self.length, shift=shift, distance=distance,
            order=order, seconds=seconds,
        )  # fmt: skip

    @property
    def _moves(self) -> tuple[int, int]:
        """By how much neighbours differ in one coordinate, and in the sum of all squares: integers both."""
        distance = math.floor(4 * self.rounded_norm**2 * (1 + 16 * UNIT))
        return min(2 * self.reach, math.isqrt(distance)), distance

    def _epsilons(self, release: Release) -> dict[str, float]:
        shift, _ = self._moves
        if shift > MAX_SHIFT:
            raise ParameterError(
                "granularity", self.granularity, f"a coordinate may move by {shift} steps; take a coarser"
            )
        if release.delta == 0:
            return {RENYI: math.inf}
        summed = summed_noise(self.noise, release.honest)
        if self.length * release.rounds == 1:
            return {EXACT: summed.epsilon(release.delta, shift=shift)}
        return {RENYI: self._renyi(summed, release.rounds, release.delta)[0]}

    def _renyi(self, summed: SummedNoise, rounds: int, delta: float) -> tuple[float, float]:
        """The least epsilon of a few orders, and its order."""
        shift, distance = self._moves
        lost = _CUT * delta / (self.length * rounds)
        found: list[tuple[float, float]] = []
        for alpha in _orders(summed.high, distance, rounds, delta):
            kappa, cut = summed.quadratic_renyi(alpha, shift=shift, lost=lost)
            left = delta - cut * self.length * rounds * (1 + 8 * UNIT)
            usable = math.isfinite(kappa) and left > 0
            found.append((renyi_to_epsilon(rounds * kappa * distance, alpha, left) if usable else math.inf, alpha))
        return min(found)


def _orders(pmf: FloatArray, distance: float, rounds: int, delta: float) -> list[float]:
    """A few orders around the one that a Gaussian of the same variance would choose."""
    places = np.arange(pmf.size, dtype=np.float64)
    mass = pmf / pmf.sum()
    variance = float(mass @ (places - mass @ places) ** 2)
    cost = rounds * distance / (2 * max(variance, 1e-9))
    best = 1 + math.sqrt(math.log(1 / delta) / cost)
    return [1 + (best - 1) * factor for factor in (0.8, 0.95, 1.1)]
