"""One interface for private vectors: encode to integers, add them up, decode the sum, say what it costs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import FloatArray, IntArray, Mechanism
from mezzotint.privacy.claim import Claim
from mezzotint.privacy.loss import UNIT
from mezzotint.privacy.sums.account import account_sum, renyi_to_epsilon
from mezzotint.privacy.sums.lattice import Lattice, find_lattice
from mezzotint.vectors.clipping import clip
from mezzotint.vectors.noise import NoiseTable, summed_noise
from mezzotint.vectors.rotation import Rotation


class VectorScheme(ABC):
    """How clients turn vectors into integers that may be added. Integers are residues modulo `modulus`."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Coordinates of a client's vector."""

    @property
    @abstractmethod
    def length(self) -> int:
        """Integers that one client sends."""

    @property
    @abstractmethod
    def modulus(self) -> int:
        """Integers are added modulo this."""

    @abstractmethod
    def encode(self, vector: npt.ArrayLike, rng: Any = None) -> IntArray:
        """(d,) vector to (length,) residues; rng None draws from the keystream, a seed is not private."""

    @abstractmethod
    def decode_sum(self, total: npt.ArrayLike, clients: int) -> FloatArray:
        """(length,) sum of residues, modulo `modulus`, to the (d,) estimate of the sum of `clients` clipped vectors."""

    @abstractmethod
    def claim(self, *, clients: int, rounds: int = 1, corrupted: int = 0, delta: float = 1e-6) -> Claim:
        """What `rounds` secure sums of `clients` vectors cost one client who takes part in all of them."""

    @property
    def bits(self) -> int:
        """Bits on the wire per integer."""
        return (self.modulus - 1).bit_length()


def _residues(total: npt.ArrayLike, length: int, modulus: int) -> IntArray:
    values = np.asarray(total)
    if values.dtype.kind not in "iu" or values.shape != (length,):
        raise ParameterError("total", f"{values.dtype}{values.shape}", f"need {length} integers")
    return values.astype(np.int64) % modulus


def _planned(clients: int, most: int) -> int:
    if int(clients) != clients or not 1 <= clients <= most:
        raise ParameterError("clients", clients, f"the modulus was planned for 1 to {most} clients")
    return int(clients)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class TableScheme(VectorScheme):
    """Every coordinate through one table of `Mechanism`, after clipping, rotation and coordinate sampling.

    Arguments:
        mechanism: levels on a lattice; its range clips the (rotated) coordinates.
        size: coordinates of a client's vector.
        clients: most clients per sum; the modulus is planned so that sums never wrap.
        l2_norm: clip vectors to this L2 norm, rotate them, and account under it; None clips per coordinate only.
        kept: how many coordinates (of the rotated vector, if rotated) each round reports; None all.
        seed: public; fixes the signs of the rotation and the coordinates kept, independently of the data.

    Guarantees: the sum of lattice integers is decoded without error but `Lattice.decode_error`; estimates are
        unbiased for the clipped vectors when the table is, and when all coordinates are kept or `seed` is fresh.
    """

    mechanism: Mechanism
    size: int
    clients: int
    l2_norm: float | None = None
    kept: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        find_lattice(self.mechanism.levels)
        if self.l2_norm is not None and not 0 < self.l2_norm < math.inf:
            raise ParameterError("l2_norm", self.l2_norm, "need a positive norm, or None")
        if self.kept is not None and not 1 <= self.kept <= self._width:
            raise ParameterError("kept", self.kept, f"between 1 and {self._width} coordinates, or None for all")
        _planned(self.clients, 2**40)

    @property
    def dimension(self) -> int:
        return self.size

    @cached_property
    def lattice(self) -> Lattice:
        """What is added up."""
        return find_lattice(self.mechanism.levels)

    @property
    def _rotation(self) -> Rotation:
        return Rotation(dimension=self.size, seed=self.seed)

    @property
    def _width(self) -> int:
        return self.size if self.l2_norm is None else self._rotation.padded

    @property
    def length(self) -> int:
        return self._width if self.kept is None else self.kept

    @property
    def modulus(self) -> int:
        return self.lattice.modulus(self.clients)

    def _chosen(self) -> IntArray:
        generator = np.random.Generator(np.random.Philox(key=self.seed + 1))
        return np.sort(generator.choice(self._width, self.length, replace=False)).astype(np.int64)

    def encode(self, vector: npt.ArrayLike, rng: Any = None) -> IntArray:
        """Clips, rotates, keeps the round's coordinates, reports each; (length,) integers 0..span."""
        values = np.asarray(vector, dtype=np.float64)
        if values.shape != (self.size,):
            raise ParameterError("vector", values.shape, f"need {self.size} coordinates")
        if self.l2_norm is not None:
            values = self._rotation.apply(clip(values, norm="l2", bound=self.l2_norm))
        if self.kept is not None:
            values = values[self._chosen()]
        codes = np.asarray(self.mechanism.privatize(values, rng))
        return self.lattice.integers[codes.astype(np.intp)]

    def decode_sum(self, total: npt.ArrayLike, clients: int) -> FloatArray:
        """Estimate of the sum; coordinates that were not kept are estimated by scaling up the kept ones' share."""
        count = _planned(clients, self.clients)
        residues = _residues(total, self.length, self.modulus).astype(np.float64)
        sums = residues * self.lattice.step + count * self.lattice.offset
        if self.kept is not None:
            # Inclusion probability kept / width for every coordinate: dividing by it keeps the mean.
            spread = np.zeros(self._width)
            spread[self._chosen()] = sums * (self._width / self.length)
            sums = spread
        return sums if self.l2_norm is None else self._rotation.undo(sums)

    def claim(self, *, clients: int, rounds: int = 1, corrupted: int = 0, delta: float = 1e-6) -> Claim:
        """The best of the coordinate-wise and (with `l2_norm`) the L2 accounting of `account_sum`.

        A seed that is fixed before the data makes the kept coordinates public: each costs, the others do not.
        """
        return account_sum(
            self.mechanism,
            clients=clients,
            coordinates=self.length,
            rounds=rounds,
            corrupted=corrupted,
            geometry="coordinate" if self.l2_norm is None else "l2",
            l2_norm=self.l2_norm,
            delta=delta,
        )


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseScheme(VectorScheme):
    """L2 clipping, rotation, conditional stochastic rounding to a grid, integer noise, addition modulo M.

    Arguments:
        noise: table of integer noise that EACH client adds (steps of `granularity`).
        size: coordinates of a client's vector.
        l2_norm: clipping norm, data units.
        granularity: data units per integer.
        modulus_bits: log2 of M.
        seed: public, of the rotation's signs.
        slack: rounding may stretch the norm by at most the bound that fails with probability `slack` per try.

    Guarantees:
        Rounded vectors have L2 norm at most `rounded_norm` steps: rounding is drawn again until they do.
        Wrapping around M costs accuracy, never privacy.
    Source: Kairouz, Liu and Steinke 2021 (conditional rounding, Lemma 29 / Proposition 26); the sum's noise is
        convolved exactly here instead of bounded.
    """

    noise: NoiseTable
    size: int
    l2_norm: float
    granularity: float
    modulus_bits: int
    seed: int = 0
    slack: float = math.exp(-0.5)

    def __post_init__(self) -> None:
        for name in ("l2_norm", "granularity"):
            if not 0 < getattr(self, name) < math.inf:
                raise ParameterError(name, getattr(self, name), "need a positive number of data units")
        if not 2 <= self.modulus_bits <= 48:
            raise ParameterError("modulus_bits", self.modulus_bits, "between 2 and 48")
        if not 0 < self.slack < 1:
            raise ParameterError("slack", self.slack, "a probability in (0, 1)")

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
        return 1 << self.modulus_bits

    @cached_property
    def rounded_norm(self) -> float:
        """Largest L2 norm of a rounded vector, steps."""
        norm, count = self.l2_norm / self.granularity, self.length
        # Rounding adds variance at most 1/4 per coordinate; beyond the mean by a Hoeffding-type margin.
        drawn = norm**2 + count / 4 + math.sqrt(2 * math.log(1 / self.slack)) * (norm + math.sqrt(count) / 2)
        return min(math.sqrt(drawn), norm + math.sqrt(count)) * (1 + 2.0**-40)

    def encode(self, vector: npt.ArrayLike, rng: Any = None) -> IntArray:
        """(d,) to (length,) residues."""
        clipped = clip(np.asarray(vector, dtype=np.float64), norm="l2", bound=self.l2_norm)
        steps = self._rotation.apply(clipped) / self.granularity
        generator = np.random.default_rng() if rng is None else np.random.default_rng(rng)
        rounded = self._round(steps, generator)
        return (rounded + self.noise.sample(rounded.shape, rng)) % self.modulus

    def _round(self, steps: FloatArray, generator: np.random.Generator) -> IntArray:
        # Privacy rests on the norm test below alone, whatever the coins are.
        below = np.floor(steps)
        for _ in range(1000):
            rounded = (below + (generator.random(steps.shape) < steps - below)).astype(np.int64)
            if int((rounded.astype(object) ** 2).sum()) <= self.rounded_norm**2 * (1 - 2.0**-40):
                return rounded
        raise ParameterError("slack", self.slack, "rounding never met its norm; allow more slack")

    def decode_sum(self, total: npt.ArrayLike, clients: int) -> FloatArray:
        """Residues are read as the integers nearest 0."""
        _planned(clients, 2**40)
        half = self.modulus // 2
        centred = (_residues(total, self.length, self.modulus) + half) % self.modulus - half
        mean = float(self.noise.weights @ self.noise.offsets.astype(np.float64)) / float(self.noise.weights.sum())
        return self._rotation.undo((centred - clients * mean) * self.granularity)

    def claim(self, *, clients: int, rounds: int = 1, corrupted: int = 0, delta: float = 1e-6) -> Claim:
        """Renyi accounting of the exact n-fold noise: kappa (2 rounded_norm)^2 per round; cut tails go to delta."""
        if not 0 <= delta < 1:
            raise ParameterError("delta", delta, "a probability in [0, 1)")
        if int(rounds) != rounds or rounds < 1:
            raise ParameterError("rounds", rounds, "need an integer >= 1")
        if int(corrupted) != corrupted or not 0 <= corrupted < clients:
            raise ParameterError("corrupted", corrupted, "fewer than all clients")
        epsilon = self._epsilon(clients - corrupted, rounds, delta)
        return Claim(
            epsilon=epsilon, delta=delta, neighboring="replace_one", unit="client", view="sum",
            honest_clients=clients - corrupted, sampling="none", sampling_rate=1.0, coordinates=self.length,
            rounds=rounds, method="Renyi composition of the exact summed noise",
            alternatives=(("Renyi composition of the exact summed noise", epsilon),), sha256="",
        )  # fmt: skip

    def _epsilon(self, honest: int, rounds: int, delta: float) -> float:
        if delta == 0:
            return math.inf
        summed = summed_noise(self.noise, honest)
        # Neighbours differ by a vector of norm 2 rounded_norm at most; no coordinate by more than that.
        reach = 2 * self.rounded_norm
        best = math.inf
        lost = 1e-3 * delta / (self.length * rounds)
        for alpha in _orders(summed.high, reach, rounds, delta):
            kappa, cut = summed.quadratic_renyi(alpha, shift=max(1, math.floor(reach)), lost=lost)
            left = delta - cut * self.length * rounds
            if math.isfinite(kappa) and left > 0:
                best = min(best, renyi_to_epsilon(rounds * kappa * reach**2 * (1 + 16 * UNIT), alpha, left))
        return best


def _orders(pmf: FloatArray, reach: float, rounds: int, delta: float) -> list[float]:
    """A few orders around the one that a Gaussian of the same variance would choose."""
    places = np.arange(pmf.size, dtype=np.float64)
    mass = pmf / pmf.sum()
    variance = float(mass @ (places - mass @ places) ** 2)
    cost = rounds * reach**2 / (2 * max(variance, 1e-9))
    best = 1 + math.sqrt(math.log(1 / delta) / cost)
    return [1 + (best - 1) * factor for factor in (0.8, 0.95, 1.1)]
