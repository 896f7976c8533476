"""From clients' real vectors to integers that are summed, and from the sum back to the mean.

The interface of all encodings; plain rounding, tables of a mechanism, and noise that clients add.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Generic, Literal, TypeVar, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import (
    check_choice,
    check_count,
    check_epsilon,
    check_positive,
    check_scale,
    check_vector,
)
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.core.types import TOTAL, Seed
from mezzotint.families.noise import IntegerNoise, named_family
from mezzotint.federated.budgets import noise_within
from mezzotint.federated.secagg.plan import MAX_BITS, Overflow, Purpose, bits_needed
from mezzotint.federated.secagg.wire import OutOfRangeInteger
from mezzotint.privacy.accounting import account
from mezzotint.privacy.claim import Claim, Release
from mezzotint.privacy.sums import Lattice, find_lattice
from mezzotint.vectors import (
    GaussianScheme,
    ModularScheme,
    NoiseScheme,
    Rotation,
    TableScheme,
    VectorScheme,
    clip,
)
from mezzotint.vectors.gaussian import LARGEST as MOST_STEPS
from mezzotint.vectors.gaussian import merging_loss
from mezzotint.vectors.rotation import ROTATION

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


FALSE_ALARM_BITS = 40
"""An honest sum is refused with probability at most 2**-FALSE_ALARM_BITS."""

_NORM_ROUNDING = 1 + 2.0**-30  # float64 errors of that test, up to 2**32 coordinates

FACTS = ("span", "overflow", "report_bits", "report_epsilon", "sha256", "largest", "norm")
"""Attributes of an encoding that follow from its fields, and that an encoding around it takes over."""


class Encoding(ABC):
    """How updates become integers. Frozen; server and clients agree on it by its `binding`.

    Example:
        >>> encoding = mz.federated.gaussian_encoding(noise_multiplier=8.0, l2_norm=1.0, clients=100, size=1000)
        >>> isinstance(encoding, mz.federated.Encoding), len(encoding.sha256)
        (True, 64)
    """

    span: int
    """The largest integer that a client sends."""
    overflow: Overflow
    """Whether sums may wrap around."""
    report_bits: int
    """Bits of one coordinate's report, without the room for summing."""
    report_epsilon: float
    """Pure epsilon of one coordinate's report, seen alone; inf when there is none."""
    sha256: str
    """SHA-256 of the table, or of the noise and its steps in the norm; the kind where there is neither."""
    largest: float
    """Largest absolute value that a coordinate can take after clipping, data units."""
    norm: float | None
    """L2 norm to which updates are clipped; None does not clip."""

    def _hold(self, **facts: object) -> None:
        """Set attributes of a frozen encoding that follow from its fields."""
        vars(self).update(facts)

    def bits(self, clients: int) -> int:
        """Bits of the modulus for this number of clients."""
        return (
            bits_needed(clients, self.span)
            if self.overflow == "impossible"
            else self.span.bit_length()
        )

    @property
    def weighs(self) -> bool:
        """Whether the client's number of examples follows its update."""
        return False

    @property
    def purpose(self) -> Purpose:
        """What is summed: updates ("train") or clients' metrics ("evaluate")."""
        return "train"

    def numbers(self, parameters: int) -> int:
        """The number of values that each client contributes: that of the model's parameters."""
        return parameters

    def nothing(self, parameters: int) -> Vector:
        """The input of a client that has none: zero, of no weight."""
        return np.zeros(parameters + self.weighs)

    def length(self, size: int) -> int:
        """The number of integers that encode an update of `size` coordinates."""
        return size

    @abstractmethod
    def encode(self, update: npt.ArrayLike, *, rng: Seed = None) -> Integers:
        """(length,) integers in 0..span of a (d,) update; rng None is private, a seed is not.

        Raises:
            ParameterError: not a vector, or a coordinate that is not finite.
        """

    @abstractmethod
    def decode(self, total: Integers, *, count: int, size: int, release: Hashable = None) -> Vector:
        """(size,) mean of `count` clipped updates from the (length,) sum of their integers.

        Arguments:
            total: the sum.
            count: summands.
            size: coordinates of an update.
            release: names the sum, such as its session and round, for encodings whose server adds the noise: each name
                gets noise for one sum, once. Other encodings ignore it.

        Raises:
            ParameterError: noise would be drawn twice: a second release that was not charged.
        """

    @abstractmethod
    def check_sum(self, total: Integers, *, count: int, size: int) -> None:
        """Refuse a sum that honest clients hardly ever send, where that can be told; nobody can be named for it.

        Arguments: as of `decode`.

        Raises:
            OutOfRangeInteger: a client sent more than it may.
        """

    @abstractmethod
    def as_dict(self) -> JsonObject:
        """Plain values from which `encoding_from` restores it."""

    @abstractmethod
    def claims(
        self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0
    ) -> dict[str, Claim]:
        """Claims for a client in `rounds` sums of `clients` updates each.

        Returns: "local" (about each report) and "central" (about the sums), where there is something to claim.
        """

    def central(
        self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0
    ) -> Claim | None:
        """The "central" claim of `claims`."""
        return self.claims(
            rounds=rounds, clients=clients, size=size, delta=delta, corrupted=corrupted
        ).get("central")

    @abstractmethod
    def mse(self) -> float:
        """Mean squared error of one coordinate of one report, data units squared; NaN where rounding is all."""

    def noise_multiplier(self, clients: int) -> float:
        """Standard deviation of the noise that clients add to a sum, over the clipping norm; 0 for other randomness."""
        return 0.0

    @property
    def binding(self) -> bytes:
        """SHA-256 of the description, part of every round's plan."""
        return hashlib.sha256(canonical(self.as_dict()).encode()).digest()


def canonical(values: JsonObject) -> str:
    """Canonical JSON."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


@final
@dataclass(frozen=True, kw_only=True)
class FixedPointEncoding(Encoding):
    """Plain rounding to a fine grid, for comparison: no privacy beyond that of the sum.

    Arguments:
        clip: coordinates are clipped to [-clip, clip], data units.
        grid_bits: the grid has 2**grid_bits - 1 points, 0 among them; 2 to 24.
        l2_norm: clip the whole vector to this norm first; None does not.

    Example:
        >>> encoding = mz.federated.FixedPointEncoding(clip=1.0)
        >>> encoding.claims(rounds=1, clients=10, size=4, delta=1e-6)
        {}
    """

    clip: float
    grid_bits: int = 16
    l2_norm: float | None = None

    def __post_init__(self) -> None:
        check_scale("clip", self.clip)
        check_count("grid_bits", self.grid_bits, least=2, most=24)
        if self.l2_norm is not None:
            check_scale("l2_norm", self.l2_norm)
        self._hold(
            span=2**self.grid_bits - 2, overflow="impossible", report_bits=self.grid_bits, report_epsilon=math.inf,
            sha256="fixed", largest=self.clip, norm=self.l2_norm,
        )  # fmt: skip

    @property
    def step(self) -> float:
        """Distance between neighbouring grid points, data units."""
        return 2 * self.clip / self.span

    def encode(self, update: npt.ArrayLike, *, rng: Seed = None) -> Integers:
        vector = check_vector(update, name="update")
        if self.l2_norm is not None:
            vector = clip(vector, norm="l2", bound=self.l2_norm)
        vector = np.clip(vector, -self.clip, self.clip)
        # Towards zero: rounding must not lengthen a clipped vector.
        return np.trunc(vector / self.step).astype(np.int64) + self.span // 2

    def decode(self, total: Integers, *, count: int, size: int, release: Hashable = None) -> Vector:
        return self.step * (np.asarray(total, dtype=np.float64) / count - self.span // 2)

    def check_sum(self, total: Integers, *, count: int, size: int) -> None:
        """Nothing: the server of the sum has checked its range, and there is no noise to hide in."""

    def as_dict(self) -> JsonObject:
        return {
            "kind": "fixed",
            "clip": self.clip,
            "grid_bits": self.grid_bits,
            "l2_norm": self.l2_norm,
        }

    def claims(
        self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0
    ) -> dict[str, Claim]:
        """None: rounding towards zero is deterministic."""
        return {}

    def mse(self) -> float:
        return math.nan


S = TypeVar("S", bound=VectorScheme)


class SchemeEncoding(Encoding, Generic[S]):
    """A scheme of `mezzotint.vectors` for updates of any size."""

    @abstractmethod
    def scheme(self, size: int, clients: int = 1) -> S:
        """The vector scheme for updates of `size` coordinates, with the noise that claims count."""

    def _own(self, size: int) -> S:
        """The scheme with which a client encodes."""
        return self.scheme(size)

    def encode(self, update: npt.ArrayLike, *, rng: Seed = None) -> Integers:
        vector = check_vector(update, name="update")
        return self._own(vector.size).encode(vector, rng)

    def decode(self, total: Integers, *, count: int, size: int, release: Hashable = None) -> Vector:
        return self.scheme(size, count).decode_sum(np.asarray(total), count) / count

    @abstractmethod
    def _local(self, *, rounds: int, size: int, delta: float) -> Claim:
        """The claim about each report."""

    def claims(
        self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0
    ) -> dict[str, Claim]:
        return {
            "local": self._local(rounds=rounds, size=size, delta=delta),
            "central": self.central(
                rounds=rounds, clients=clients, size=size, delta=delta, corrupted=corrupted
            ),
        }

    def central(
        self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0
    ) -> Claim:
        return self.scheme(size, clients).claim(
            clients=clients, rounds=rounds, corrupted=corrupted, delta=delta
        )


@final
@dataclass(frozen=True, kw_only=True)
class TableEncoding(SchemeEncoding[TableScheme]):
    """Every coordinate is quantized by one mechanism table, whose levels lie on a lattice.

    Arguments:
        mechanism: its range is the clipping range of a (rotated) coordinate, data units.
        l2_norm: clip the whole vector to this norm, rotate it, and account under the norm; None does neither.
        seed: of the rotation's signs; public.

    Raises:
        ParameterError: levels that stand on no lattice (sums of codes would not decode), an l2_norm that is not > 0.

    Guarantees: unbiased for updates within the clipping when the table is; decode(sum of integers) is the mean of the
        decoded reports to float precision.

    Example:
        >>> table = mz.families.rqm(levels=16, extension=1.0, q=0.42)
        >>> encoding = mz.federated.TableEncoding(mechanism=table)
        >>> sorted(encoding.claims(rounds=1, clients=50, size=4, delta=1e-6))
        ['central', 'local']
    """

    mechanism: Mechanism
    l2_norm: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.l2_norm is not None:
            check_scale("l2_norm", self.l2_norm)
        table = self.mechanism
        check_scale("mechanism", float(np.max(np.abs(table.levels))))
        self._hold(
            span=self.lattice.span, overflow="impossible", report_bits=table.bits,
            report_epsilon=table.epsilon, sha256=table.sha256,
            largest=max(abs(table.lower), abs(table.upper)), norm=self.l2_norm,
        )  # fmt: skip

    @cached_property
    def lattice(self) -> Lattice:
        """The integers that stand for the levels."""
        return find_lattice(self.mechanism.levels)

    @cached_property
    def _schemes(self) -> dict[tuple[int, int], TableScheme]:
        return {}

    def scheme(self, size: int, clients: int = 1) -> TableScheme:
        """Cached, for every new scheme finds its lattice again."""
        if (size, clients) not in self._schemes:
            self._schemes[size, clients] = TableScheme(
                mechanism=self.mechanism,
                size=size,
                clients=clients,
                l2_norm=self.l2_norm,
                seed=self.seed,
            )
        return self._schemes[size, clients]

    def check_sum(self, total: Integers, *, count: int, size: int) -> None:
        """Nothing: the server of the sum has checked its range."""

    def as_dict(self) -> JsonObject:
        mechanism = json.loads(self.mechanism.to_json())
        rotated = {} if self.l2_norm is None else {"rotation": ROTATION}
        return {
            "kind": "table",
            "mechanism": mechanism,
            "l2_norm": self.l2_norm,
            "seed": self.seed,
        } | rotated

    def _local(self, *, rounds: int, size: int, delta: float) -> Claim:
        """Composed over all coordinates, for all change with the client."""
        return account(
            Release(mechanism=self.mechanism, dimension=size, rounds=rounds, delta=delta)
        )

    def mse(self) -> float:
        return self.mechanism.mse()


Adds = Literal["clients", "server"]

NOTHING = IntegerNoise(
    offsets=np.array([0]), weights=np.array([TOTAL]), truncated_mass=0.0, name="no noise"
)

_TRIES = 8

SERVER_DRAWS = 64
"""Draws that a server's noise is the sum of: the tail of one table of 2**32 parts is too short for small deltas."""

_ONE_AT_A_TIME = threading.Lock()


@dataclass
class _Decoded:
    """The sums that noise was drawn for; the last of them, and its mean."""

    names: set[Hashable] = field(default_factory=set[Hashable])
    last: tuple[Hashable, bytes] | None = None
    mean: Vector = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, kw_only=True)
class ModularEncoding(SchemeEncoding[ModularScheme]):
    """L2 clipping, rotation, noise, addition modulo 2**modulus_bits.

    Arguments:
        l2_norm: clipping norm, data units.
        granularity: data units per step.
        modulus_bits: sums wrap at 2**modulus_bits, which costs accuracy and never privacy.
        seed: of the rotation's signs; public.
        name: what the noise is.
    """

    l2_norm: float
    granularity: float
    modulus_bits: int
    seed: int = 0
    name: str = field(default="integer noise", compare=False)

    def __post_init__(self) -> None:
        check_scale("l2_norm", self.l2_norm)
        if self.l2_norm > MOST_STEPS * check_scale("granularity", self.granularity):
            raise ParameterError(
                "granularity", self.granularity, f"a norm of at most {MOST_STEPS:g} steps; coarsen"
            )
        if not 2 <= self.modulus_bits <= MAX_BITS:
            raise ParameterError(
                "modulus_bits", self.modulus_bits, f"2 to {MAX_BITS}; less noise or a coarser grid"
            )
        _ = self.scheme(1)  # checks the rest
        noise = self._noise_values() | {"steps": f"{self.l2_norm / self.granularity:.10g}"}
        self._hold(
            span=2**self.modulus_bits - 1, overflow="modular", report_bits=self.modulus_bits, report_epsilon=math.inf,
            sha256=hashlib.sha256(canonical(noise).encode()).hexdigest(), largest=self.l2_norm, norm=self.l2_norm,
        )  # fmt: skip

    kind: ClassVar[str]
    """Names the encoding in descriptions."""

    def largest_honest_norm(self, *, count: int, size: int) -> float:
        """The norm that the sum of `count` clipped updates exceeds with probability at most 2^-40; inf: none is known."""
        return math.inf

    def check_sum(self, total: Integers, *, count: int, size: int) -> None:
        """Compare the norm of the whole sum, before it is rotated back, with the largest of honest sums.

        Arguments: as of `decode`.

        Raises:
            OutOfRangeInteger: a client sent more than it may; nobody can be named for it.

        Source: docs/proofs/vectors.md, "Implausible sums".
        """
        largest = self.largest_honest_norm(count=count, size=size)
        if math.isinf(largest):
            return
        modulus = self.span + 1
        centred = (np.asarray(total, dtype=np.int64) + modulus // 2) % modulus - modulus // 2
        norm = self.granularity * float(np.linalg.norm(centred.astype(np.float64)))
        if norm > largest:
            honest = f"that of {count} clients within their clipping norm exceeds {largest:.4g}"
            raise OutOfRangeInteger(
                "open",
                f"the sum has norm {norm:.4g}, and {honest} with probability 2**-{FALSE_ALARM_BITS} at most: a client "
                "sent more than it may, and none can be named",
            )

    @property
    def _grid(self) -> JsonObject:
        return {
            name: getattr(self, name) for name in ("l2_norm", "granularity", "modulus_bits", "seed")
        }

    @abstractmethod
    def _each(self) -> float:
        """Standard deviation of the noise that each contributor adds, steps."""

    def as_dict(self) -> JsonObject:
        return {
            "kind": self.kind,
            "name": self.name,
            **self._grid,
            "rotation": ROTATION,
        } | self._noise_values()

    def _local(self, *, rounds: int, size: int, delta: float) -> Claim:
        alone = self.scheme(size).claim(clients=1, rounds=rounds, delta=delta)
        return replace(alone, observer="reports", honest_clients=None)

    def mse(self) -> float:
        """Upper bound: the noise of one client and its rounding."""
        return self._own(1).variance

    @abstractmethod
    def _noise_values(self) -> JsonObject:
        """The distribution of each contributor's noise, as plain values."""

    def noise_multiplier(self, clients: int) -> float:
        return math.sqrt(clients) * self._each() * (self.granularity / self.l2_norm)


@final
@dataclass(frozen=True, kw_only=True)
class NoiseEncoding(ModularEncoding):
    """Distributed integer noise: L2 clipping, rotation, conditional rounding, noise, addition modulo 2**modulus_bits.

    Arguments:
        noise: what EACH client adds ("clients"), or the server adds `SERVER_DRAWS` times to the sum ("server"), steps.
        adds: "clients", or "server", which sees the exact sum and is trusted to add the noise.

    Example:
        >>> noise = mz.families.skellam(variance=4.0)
        >>> mz.federated.NoiseEncoding(noise=noise, l2_norm=1.0, granularity=0.1, modulus_bits=8).adds
        'clients'
    """

    noise: IntegerNoise
    adds: Adds = "clients"
    kind: ClassVar[str] = "noise"

    def __post_init__(self) -> None:
        check_choice("adds", self.adds, ("clients", "server"))  # before its text enters a hash
        super().__post_init__()

    def scheme(self, size: int, clients: int = 1) -> NoiseScheme:
        return NoiseScheme(size=size, noise=self.noise, **self._grid)

    def _each(self) -> float:
        return math.sqrt(self.noise.variance)

    def _own(self, size: int) -> ModularScheme:
        """Without noise if the server adds it."""
        scheme = self.scheme(size)
        return scheme if self.adds == "clients" else replace(scheme, noise=NOTHING)

    def decode(self, total: Integers, *, count: int, size: int, release: Hashable = None) -> Vector:
        """With adds="server" this is the release, which draws the noise, once for each sum.

        The last sum may be decoded again under its name, to the same mean. Unnamed sums are identified by their values
        and decoded once; equal sums of different rounds need names, for shared noise would reveal that they are equal.
        """
        if self.adds == "clients":
            return super().decode(total, count=count, size=size)
        scheme, summed = self.scheme(size), np.asarray(total, dtype=np.int64)
        digest = hashlib.sha256(repr((count, size)).encode() + summed.tobytes()).digest()
        with _ONE_AT_A_TIME:
            if release is not None and self._decoded.last == (release, digest):
                return self._decoded.mean.copy()
            name = ("a sum without a name", digest) if release is None else release
            if name in self._decoded.names:
                remedy = "was decoded before; its noise is drawn once. Keep the mean, or name sums by session and round"
                raise ParameterError(
                    "release", "no name" if release is None else str(release), remedy
                )
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

    def _noise_values(self) -> JsonObject:
        first, weights = int(self.noise.offsets[0]), self.noise.weights.tolist()
        return {"adds": self.adds, "first": first, "weights": weights}

    def claims(
        self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0
    ) -> dict[str, Claim]:
        """If the server adds the noise, there is no local claim, and the central one trusts the server."""
        if self.adds == "clients":
            return super().claims(
                rounds=rounds, clients=clients, size=size, delta=delta, corrupted=corrupted
            )
        return {
            "central": self.central(
                rounds=rounds, clients=clients, size=size, delta=delta, corrupted=corrupted
            )
        }

    def central(
        self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0
    ) -> Claim:
        if self.adds == "clients":
            return super().central(
                rounds=rounds, clients=clients, size=size, delta=delta, corrupted=corrupted
            )
        claim = self.scheme(size).claim(clients=SERVER_DRAWS, rounds=rounds, delta=delta)
        method = f"{claim.method}, which a trusted server adds"
        seen = {"observer": "model", "method": method, "alternatives": ((method, claim.epsilon),)}
        return replace(claim, honest_clients=None, **seen)

    @cached_property
    def _counts(self) -> bool:
        # Of other tables the deviation proves nothing: one with gaps hides nothing, and modulo M it may be no noise.
        return self.adds == "clients" and named_family(self.noise) is not None

    def noise_multiplier(self, clients: int) -> float:
        """As for every encoding; 0 if the server adds the noise, or if it is neither discrete Gaussian nor Skellam."""
        return super().noise_multiplier(clients) if self._counts else 0.0


@final
@dataclass(frozen=True, kw_only=True)
class GaussianEncoding(ModularEncoding):
    """Rounded Gaussian noise: L2 clipping, rotation, real Gaussian noise, rounding, addition modulo 2**modulus_bits.

    Arguments:
        deviation: standard deviation of the noise that EACH client adds before it rounds, steps; `gaussian_encoding`
            chooses it and the grid.

    Example:
        >>> encoding = mz.federated.gaussian_encoding(noise_multiplier=8.0, l2_norm=1.0, clients=100, size=1000)
        >>> claims = encoding.claims(rounds=10, clients=100, size=1000, delta=1e-6)
        >>> {view: round(claim.epsilon, 2) for view, claim in claims.items()}
        {'local': 68.05, 'central': 3.75}
    """

    deviation: float
    kind: ClassVar[str] = "gaussian"

    def scheme(self, size: int, clients: int = 1) -> GaussianScheme:
        return GaussianScheme(size=size, deviation=self.deviation, **self._grid)

    def _each(self) -> float:
        return self.deviation

    def _noise_values(self) -> JsonObject:
        return {"deviation": self.deviation}

    def largest_honest_norm(self, *, count: int, size: int) -> float:
        """Largest norm of an honest sum, data units.

        With S the sum of the updates, of norm at most count C, and Z the noise, of variance s^2 a coordinate and
        sub-Gaussian: |S + Z|^2 = |S|^2 + 2 S.Z + |Z|^2, where S.Z <= |S| s sqrt(2 L) and |Z|^2 <= s^2 (D + 2 sqrt(D L)
        + 2 L), each but with probability exp(-L) (Laurent and Massart 2000, Lemma 1). A residue read nearest 0 is never
        further from 0 than its integer. Several rounded Gaussians are one but for a factor of `merging_loss`.

        >>> quiet = gaussian_encoding(noise_multiplier=8.0, l2_norm=1.0, clients=100, size=7850)
        >>> round(quiet.largest_honest_norm(count=100, size=7850))
        774
        """
        merged = size * merging_loss(self.deviation, count)
        tail = (FALSE_ALARM_BITS + 1) * math.log(2) + merged
        variance = count * self.scheme(size).variance
        signal = count * self.l2_norm
        noise = variance * (size + 2 * math.sqrt(size * tail) + 2 * tail)
        cross = 2 * signal * math.sqrt(2 * tail * variance)
        return math.sqrt(signal**2 + cross + noise) * _NORM_ROUNDING


def gaussian_encoding(
    *,
    l2_norm: float,
    clients: int,
    size: int,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    delta: float = 1e-6,
    rounds: int = 1,
    corrupted: int = 0,
    seed: int = 0,
) -> GaussianEncoding:
    """Rounded Gaussian noise with a given deviation of the sum, or for a given budget, in the fewest bits.

    Arguments:
        l2_norm: clipping norm, data units.
        clients: summands; fewer add less noise (claims count those that are there).
        size: coordinates of an update.
        noise_multiplier: standard deviation of the noise on the sum of `clients` updates, over `l2_norm`; > 0.
            Rounding adds at most 2 % to the variance, which no claim counts.
        epsilon: in place of `noise_multiplier`: the largest epsilon of a client that is in `rounds` such sums; the
            least noise, to within two percent of epsilon, is found.
        delta, rounds, corrupted: of that claim; `corrupted` of the clients may add no noise.
        seed: of the rotation.

    Returns: the encoding; its central claim is that of continuous Gaussian noise.

    Raises:
        ParameterError: both or neither of `noise_multiplier` and `epsilon`; noise that needs more than 32 bits.
        InfeasibleError: no noise multiplier up to 10,000 keeps to `epsilon`.

    Example:
        >>> gaussian_encoding(noise_multiplier=8.0, l2_norm=1.0, clients=100, size=1_100_000).modulus_bits
        8
        >>> private = gaussian_encoding(epsilon=2.0, delta=1e-6, rounds=10, l2_norm=1.0, clients=100, size=1000)
        >>> claim = private.central(rounds=10, clients=100, size=1000, delta=1e-6)
        >>> 1.96 < claim.epsilon <= 2.0
        True
    """
    if (noise_multiplier is None) == (epsilon is None):
        raise ParameterError(
            "noise_multiplier", noise_multiplier, "name it, or the epsilon that it is found for"
        )
    if noise_multiplier is None and epsilon is not None:
        check_epsilon(epsilon)

        def make(multiplier: float) -> GaussianEncoding:
            return gaussian_encoding(
                noise_multiplier=multiplier, l2_norm=l2_norm, clients=clients, size=size, seed=seed
            )

        return noise_within(
            epsilon, make, rounds=check_count("rounds", rounds), clients=clients, size=size, delta=delta,
            corrupted=corrupted,
        )[1]  # fmt: skip
    assert noise_multiplier is not None
    planned = GaussianScheme.planned(
        noise_multiplier=noise_multiplier, size=size, l2_norm=l2_norm, clients=clients, seed=seed
    )
    return GaussianEncoding(
        deviation=planned.deviation, l2_norm=l2_norm, granularity=planned.granularity,
        modulus_bits=planned.modulus_bits, seed=seed, name="rounded Gaussian",
    )  # fmt: skip


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
    """Choose granularity and modulus for a given amount of noise on the sum.

    Arguments:
        make: standard deviation in steps -> noise, of `mezzotint.families`.
        noise_multiplier: standard deviation of the noise on the sum of `clients` updates, over `l2_norm`; > 0.
        l2_norm: clipping norm, data units.
        clients: summands; fewer add less noise (claims count those that are there).
        size: coordinates of an update.
        adds, name, seed: of `NoiseEncoding`.

    Returns: the encoding, whose claims count the noise of honest clients alone.

    Raises:
        ParameterError: noise that needs more than 32 bits a coordinate.

    Example:
        >>> encoding = mz.federated.noise_encoding(
        ...     lambda sigma: mz.families.skellam(variance=sigma**2),
        ...     noise_multiplier=8.0, l2_norm=1.0, clients=100, size=1000,
        ... )
        >>> round(encoding.noise_multiplier(100), 3)
        8.0
    """
    check_positive("noise_multiplier", noise_multiplier)
    check_positive("l2_norm", l2_norm, "this mechanism needs a clipping norm > 0")
    block = Rotation(dimension=size, seed=seed).block
    total = noise_multiplier * l2_norm
    each = total / math.sqrt(clients if adds == "clients" else SERVER_DRAWS)
    # Rounding adds up to d/4 squared steps to the norm: at 2 sqrt(d) steps that is a sixteenth. And a step no wider
    # than the noise of one adder: else rounding, which hides nothing, adds more error than the noise.
    step = min(l2_norm / (2 * math.sqrt(size)), each)
    # A coordinate of the sum, were all updates equal: four times the typical size of a rotated coordinate.
    reach = clients * l2_norm * min(1.0, 4 / math.sqrt(block)) + 6 * math.hypot(
        total, step * math.sqrt(clients) / 2
    )
    bits = max(2, math.ceil(math.log2(2 * reach / step + 2)))
    sigma, draws = each / step, clients if adds == "clients" else SERVER_DRAWS
    for attempt in range(_TRIES):
        encoding = NoiseEncoding(
            noise=make(sigma),
            l2_norm=l2_norm,
            granularity=step,
            modulus_bits=bits,
            adds=adds,
            seed=seed,
            name=name,
        )
        # Tables are truncated, and so fall a little short of the deviation asked for.
        found = ModularEncoding.noise_multiplier(encoding, draws)
        if found >= noise_multiplier:
            return encoding
        sigma *= (1 + 2.0 ** (3 * attempt - 40)) * noise_multiplier / found
    raise ParameterError(
        "noise_multiplier",
        noise_multiplier,
        "no table of noise has this value; try a little more or less",
    )
