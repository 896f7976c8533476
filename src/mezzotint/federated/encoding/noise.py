"""Integer noise on rotated vectors: distributed (every client adds its part), or added by a trusted server."""

from __future__ import annotations

import hashlib
import math
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_positive, check_vector
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import TOTAL
from mezzotint.families.noise import IntegerNoise
from mezzotint.federated.encoding.base import Encoding, Integers, Vector, canonical
from mezzotint.federated.secagg.plan import MAX_BITS, Overflow
from mezzotint.privacy.claim import Claim
from mezzotint.vectors import NoiseScheme, Rotation

Adds = Literal["clients", "server"]


NOTHING = IntegerNoise(offsets=np.array([0]), weights=np.array([TOTAL]), truncated_mass=0.0, name="no noise")

SERVER_DRAWS = 64
"""A server adds its noise as the sum of so many draws: one table of 2**32 parts ends too early for small deltas."""


_ONE_AT_A_TIME = threading.Lock()


@dataclass
class _Decoded:
    """The sums that noise was drawn for, and the last of them with its mean."""

    names: set[Hashable] = field(default_factory=set[Hashable])
    last: tuple[Hashable, bytes] | None = None
    mean: Vector = field(default_factory=lambda: np.zeros(0))


@final
@dataclass(frozen=True, kw_only=True)
class NoiseEncoding(Encoding):
    """Distributed integer noise: L2 clipping, rotation, conditional rounding, noise, addition modulo 2**modulus_bits.

    Arguments:
        noise: what EACH client adds ("clients"), or the server `SERVER_DRAWS` times to the sum ("server"), in steps.
        l2_norm: clipping norm, data units.
        granularity: data units per step.
        modulus_bits: sums wrap at 2**modulus_bits, which costs accuracy and never privacy.
        adds: "clients", or "server": then the server sees the exact sum and is trusted to add the noise.
        seed: of the rotation's signs; public.
        name: what the noise is.
    """

    noise: IntegerNoise
    l2_norm: float
    granularity: float
    modulus_bits: int
    adds: Adds = "clients"
    seed: int = 0
    name: str = field(default="integer noise", compare=False)

    def __post_init__(self) -> None:
        check_positive("l2_norm", self.l2_norm)
        if self.adds not in ("clients", "server"):
            raise ParameterError("adds", self.adds, "use 'clients' or 'server'")
        if not 2 <= self.modulus_bits <= MAX_BITS:
            raise ParameterError("modulus_bits", self.modulus_bits, f"2 to {MAX_BITS}; less noise or a coarser grid")

    def scheme(self, size: int) -> NoiseScheme:
        """The vector scheme for updates of `size` coordinates, with the noise where it is accounted."""
        return NoiseScheme(
            noise=self.noise,
            size=size,
            l2_norm=self.l2_norm,
            granularity=self.granularity,
            modulus_bits=self.modulus_bits,
            seed=self.seed,
        )

    @cached_property
    def _deviation(self) -> float:
        """Of one adder's noise, steps."""
        return math.sqrt(self.noise.variance)

    @property
    def span(self) -> int:
        return 2**self.modulus_bits - 1

    @property
    def overflow(self) -> Overflow:
        return "modular"

    def bits(self, clients: int) -> int:
        return self.modulus_bits

    def length(self, size: int) -> int:
        return Rotation(dimension=size, seed=self.seed).padded

    def encode(self, update: npt.ArrayLike, *, rng: Any = None) -> Integers:
        vector = check_vector(update, name="update")
        scheme = self.scheme(vector.size)
        return (scheme if self.adds == "clients" else replace(scheme, noise=NOTHING)).encode(vector, rng)

    def decode(self, total: Integers, *, count: int, size: int, release: Hashable = None) -> Vector:
        """With adds="server" this is the release: the noise is drawn here, once for each sum.

        The sum decoded last may be decoded again under its name: the same mean comes back. Sums without a name are told
        apart by what they are, and none is decoded twice; equal sums of different rounds need names, for noise that
        they shared would tell that they are equal.
        """
        scheme, summed = self.scheme(size), np.asarray(total, dtype=np.int64)
        if self.adds == "clients":
            return scheme.decode_sum(summed, count) / count
        digest = hashlib.sha256(repr((count, size)).encode() + summed.tobytes()).digest()
        with _ONE_AT_A_TIME:
            if release is not None and self._decoded.last == (release, digest):
                return self._decoded.mean.copy()
            name = ("a sum without a name", digest) if release is None else release
            if name in self._decoded.names:
                remedy = "was decoded before; its noise is drawn once. Keep the mean, or name sums by session and round"
                raise ParameterError("release", "no name" if release is None else str(release), remedy)
            self._decoded.names.add(name)
        for _ in range(SERVER_DRAWS):
            summed = summed + self.noise.sample(summed.shape)
        mean = scheme.decode_sum(summed % scheme.modulus, SERVER_DRAWS) / count
        with _ONE_AT_A_TIME:
            self._decoded.last, self._decoded.mean = (release, digest), mean.copy()
        return mean

    @cached_property
    def _decoded(self) -> _Decoded:
        return _Decoded()

    def as_dict(self) -> dict[str, Any]:
        return {
            "kind": "noise",
            "name": self.name,
            "first": int(self.noise.offsets[0]),
            "weights": self.noise.weights.tolist(),
            "l2_norm": self.l2_norm,
            "granularity": self.granularity,
            "modulus_bits": self.modulus_bits,
            "adds": self.adds,
            "seed": self.seed,
        }

    def claims(self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0) -> dict[str, Claim]:
        """Without noise of the clients there is no local claim, and the central one trusts the server."""
        scheme = self.scheme(size)
        if self.adds == "clients":
            alone = scheme.claim(clients=1, rounds=rounds, delta=delta)
            return {
                "local": replace(alone, observer="reports", honest_clients=None),
                "central": scheme.claim(clients=clients, rounds=rounds, corrupted=corrupted, delta=delta),
            }
        claim = scheme.claim(clients=SERVER_DRAWS, rounds=rounds, delta=delta)
        method = f"{claim.method}, which a trusted server adds"
        alternatives = ((method, claim.epsilon),)
        seen = replace(claim, observer="model", method=method, alternatives=alternatives, honest_clients=None)
        return {"central": seen}

    def mse(self) -> float:
        """Noise of one client, and its rounding (at most a quarter of a squared step)."""
        own = float(self.noise.variance) if self.adds == "clients" else 0.0
        return (own + 0.25) * self.granularity**2

    @property
    def report_bits(self) -> int:
        return self.modulus_bits

    @property
    def report_epsilon(self) -> float:
        """inf: bounded noise tells some inputs apart."""
        return math.inf

    @cached_property
    def sha256(self) -> str:
        """Of the noise's weights."""
        table = canonical({"first": int(self.noise.offsets[0]), "weights": self.noise.weights.tolist()})
        return hashlib.sha256(table.encode()).hexdigest()

    @property
    def largest(self) -> float:
        return self.l2_norm

    @property
    def norm(self) -> float | None:
        return self.l2_norm

    def noise_multiplier(self, clients: int) -> float:
        if self.adds == "server":
            return 0.0
        return math.sqrt(clients) * self._deviation * self.granularity / self.l2_norm


def noise_encoding(
    make: Callable[[float], IntegerNoise],
    *,
    noise_multiplier: float,
    l2_norm: float,
    clients: int,
    size: int,
    adds: Adds = "clients",
    name: str = "integer noise",
    seed: int = 0,
) -> NoiseEncoding:
    """Granularity and modulus for a wanted noise on the sum.

    Arguments:
        make: standard deviation in steps -> noise, of `mezzotint.families`.
        noise_multiplier: standard deviation of the noise on the sum of `clients` updates, over `l2_norm`; > 0.
        l2_norm: clipping norm, data units.
        clients: summands; with fewer, less noise is in the sum (claims count those that are there).
        size: coordinates of an update.
        adds: who adds the noise.
        name: of the noise.
        seed: of the rotation.

    Raises:
        ParameterError: noise that needs more than 32 bits a coordinate.
    """
    check_positive("noise_multiplier", noise_multiplier)
    check_positive("l2_norm", l2_norm, "this mechanism needs a clipping norm > 0")
    padded = Rotation(dimension=size, seed=seed).padded
    total = noise_multiplier * l2_norm
    each = total / math.sqrt(clients if adds == "clients" else SERVER_DRAWS)
    # Rounding adds up to d/4 squared steps to the norm: at 2 sqrt(d) steps that is a sixteenth. And a step no wider
    # than the noise of one adder: else rounding, which hides nothing, adds more error than the noise.
    step = min(l2_norm / (2 * math.sqrt(padded)), each)
    # A coordinate of the sum, were all updates equal: four times the typical size of a rotated coordinate.
    reach = clients * l2_norm * min(1.0, 4 / math.sqrt(padded)) + 6 * math.hypot(total, step * math.sqrt(clients) / 2)
    bits = max(2, math.ceil(math.log2(2 * reach / step + 2)))
    return NoiseEncoding(
        noise=make(each / step), l2_norm=l2_norm, granularity=step, modulus_bits=bits, adds=adds, seed=seed, name=name
    )
