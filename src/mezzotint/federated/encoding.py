"""From clients' real vectors to integers that are summed, and from the sum back to the mean.

The interface of all encodings; plain rounding, tables of a mechanism, and Gaussian noise that
clients add.
"""

from __future__ import annotations

import hashlib
import json
import math
from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any, Generic, TypeVar, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import (
    check_count,
    check_epsilon,
    check_scale,
    check_total,
    check_vector,
    with_keys_of_today,
    with_old_fields,
    with_old_names,
)
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import parse_object
from mezzotint.core.kinds import checked
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.core.types import Seed
from mezzotint.federated.budgets import Sums, noise_within
from mezzotint.federated.secagg.plan import MAX_BITS, Overflow, Purpose, bits_needed
from mezzotint.federated.secagg.wire import OutOfRangeInteger
from mezzotint.privacy.claim import Claim, Release
from mezzotint.privacy.sums import Lattice, find_lattice
from mezzotint.vectors import GaussianScheme, TableScheme, VectorScheme, clip
from mezzotint.vectors.gaussian import LARGEST as MOST_STEPS, rounding_factor
from mezzotint.vectors.rotation import ROTATION

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


FALSE_ALARM_BITS = 40
"""An honest sum is refused with probability at most 2**-FALSE_ALARM_BITS."""

_NORM_ROUNDING = 1 + 2.0**-30  # float64 errors of that test, up to 2**32 coordinates

LOUD = 0.1
"""Noise of a mean's coordinate, over the clipping norm, above which a run begins with a warning."""

NOISE = "rounded Gaussian"
"""The noise of `GaussianEncoding`, by its name in descriptions."""

FACTS = ("span", "overflow", "report_bits", "report_epsilon", "sha256", "largest", "norm")
"""Attributes of an encoding that follow from its fields, and that an encoding around it takes over.
"""


class Encoding(ABC):
    """How updates become integers. Frozen; server and clients agree on it by its `binding`.

    Example:
        >>> encoding = mz.federated.gaussian_encoding(noise_multiplier=8.0, clip_norm=1.0, clients=100, size=1000)
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
    """SHA-256 of the table, or of the noise and its steps in the norm; the kind where there is
    neither.
    """
    largest: float
    """Largest absolute value that a coordinate can take after clipping, data units."""
    norm: float | None
    """L2 norm to which updates are clipped; None does not clip."""

    def _hold(self, **facts: object) -> None:
        """Set attributes of a frozen encoding that follow from its fields: all of them."""
        assert facts.keys() == set(FACTS)
        vars(self).update(facts)

    def bits(self, clients: int) -> int:
        """Bits of the modulus for this number of clients."""
        if self.overflow == "impossible":
            return bits_needed(clients, self.span)
        return self.span.bit_length()

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
    def decode(self, total: Integers, *, count: int, size: int) -> Vector:
        """(size,) mean of `count` clipped updates from the (length,) sum of their integers.

        Arguments:
            total: the sum.
            count: summands.
            size: coordinates of an update.
        """

    @abstractmethod
    def check_room(self, clients: int, *, size: int) -> None:
        """Refuse sums that would wrap around, and so be decoded to something else.

        Arguments:
            clients: most summands.
            size: coordinates of an update.

        Raises:
            ParameterError: the modulus was planned for fewer clients, or longer updates. Never
                where it grows with the clients.
        """

    @abstractmethod
    def check_sum(self, total: Integers, *, count: int, size: int) -> None:
        """Refuse a sum that honest clients hardly ever send, where that can be told; nobody can be
        named for it.

        Arguments: as of `decode`.

        Raises:
            OutOfRangeInteger: a client sent more than it may.
        """

    @abstractmethod
    def as_dict(self) -> JsonObject:
        """Plain values from which `encoding_from` restores it."""

    @abstractmethod
    def claims(self, sums: Sums) -> dict[str, Claim]:
        """Claims for a client that is in all of these sums.

        Returns: "local" (about each report) and "central" (about the sums), where there is
            something to claim.
        """

    def central(self, sums: Sums) -> Claim | None:
        """The "central" claim of `claims`."""
        return self.claims(sums).get("central")

    @abstractmethod
    def mse(self) -> float:
        """Mean squared error of one coordinate of one report, data units squared; NaN where
        rounding is all.
        """

    def noise_multiplier(self, clients: int) -> float:
        """Standard deviation of the noise that clients add to a sum, over the clipping norm; 0 for
        other randomness.
        """
        return 0.0

    def noise_per_coordinate(self, clients: int) -> float:
        """Standard deviation of the noise in a coordinate of a mean of so many clients, over the
        clipping norm.

        Returns: 0 without a clipping norm, or where rounding is all.
        """
        variance = self.mse() / check_count("clients", clients)
        if self.norm is None or math.isnan(variance):
            return 0.0
        return math.sqrt(variance) / self.norm

    def noise_warning(self, clients: int) -> str:
        """A sentence that says that little can be learnt from means of so many clients; empty where
        that is not so.
        """
        noise = self.noise_per_coordinate(clients)
        if noise <= LOUD:
            return ""
        return (
            f"the noise of a mean is {noise:.2g} clipping norms per coordinate, and no update is longer than one: "
            "little can be learnt; use more clients, less noise or fewer parameters"
        )

    @property
    def binding(self) -> bytes:
        """SHA-256 of the description, part of every round's plan."""
        description = canonical(self.as_dict())
        return hashlib.sha256(description.encode()).digest()


_OLD_KEYS = {"l2_norm": "clip_norm"}
"""Keys of encodings as files of before have them -> as they are called today."""


def encoding_of_today(values: JsonObject) -> JsonObject:
    """An encoding from a file, whatever version wrote it.

    Raises:
        ParameterError: a key under both names.
    """
    return with_keys_of_today(values, _OLD_KEYS)


def canonical(values: JsonObject) -> str:
    """Canonical JSON."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


@with_old_fields(l2_norm="clip_norm")
@final
@checked
@dataclass(frozen=True, kw_only=True)
class FixedPointEncoding(Encoding):
    """Plain rounding to a fine grid, for comparison: no privacy beyond that of the sum.

    Arguments:
        clip: coordinates are clipped to [-clip, clip], data units.
        grid_bits: the grid has 2**grid_bits - 1 points, 0 among them; 2 to 24.
        clip_norm: clip the whole vector to this norm first; None does not.

    Example:
        >>> encoding = mz.federated.FixedPointEncoding(clip=1.0)
        >>> encoding.claims(mz.federated.Sums(size=4, clients=10, rounds=1, delta=1e-6))
        {}
    """

    # Fields are keys of descriptions, in files and messages; an old name stays in
    # `encoding_of_today`.
    clip: float
    grid_bits: int = 16
    clip_norm: float | None = None

    def __post_init__(self) -> None:
        check_scale("clip", self.clip)
        check_count("grid_bits", self.grid_bits, least=2, most=24)
        if self.clip_norm is not None:
            check_scale("clip_norm", self.clip_norm)
        self._hold(
            span=2**self.grid_bits - 2,
            overflow="impossible",
            report_bits=self.grid_bits,
            report_epsilon=math.inf,
            sha256="fixed",
            largest=self.clip,
            norm=self.clip_norm,
        )

    @property
    def step(self) -> float:
        """Distance between neighbouring grid points, data units."""
        return 2 * self.clip / self.span

    def encode(self, update: npt.ArrayLike, *, rng: Seed = None) -> Integers:
        vector = check_vector(update, name="update")
        if self.clip_norm is not None:
            vector = clip(vector, norm="l2", bound=self.clip_norm)
        vector = np.clip(vector, -self.clip, self.clip)
        # Towards zero: rounding must not lengthen a clipped vector.
        steps = np.trunc(vector / self.step)
        return steps.astype(np.int64) + self.span // 2

    def decode(self, total: Integers, *, count: int, size: int) -> Vector:
        mean = check_total(total, size) / check_count("count", count)
        return self.step * (mean - self.span // 2)

    def check_room(self, clients: int, *, size: int) -> None:
        """Nothing: the modulus grows with the clients."""

    def check_sum(self, total: Integers, *, count: int, size: int) -> None:
        """Nothing: the server of the sum has checked its range, and there is no noise to hide
        in.
        """

    def as_dict(self) -> JsonObject:
        return {"kind": "fixed", **asdict(self)}

    def claims(self, sums: Sums) -> dict[str, Claim]:
        """None: rounding towards zero is deterministic."""
        return {}

    def mse(self) -> float:
        return math.nan


S = TypeVar("S", bound=VectorScheme)


class SchemeEncoding(Encoding, Generic[S]):
    """A scheme of `mezzotint.vectors` for updates of any size."""

    @abstractmethod
    def scheme(self, size: int, clients: int = 1) -> S:
        """The vector scheme for updates of `size` coordinates."""

    def encode(self, update: npt.ArrayLike, *, rng: Seed = None) -> Integers:
        vector = check_vector(update, name="update")
        scheme = self.scheme(vector.size)
        return scheme.encode(vector, rng)

    def decode(self, total: Integers, *, count: int, size: int) -> Vector:
        scheme = self.scheme(size, count)
        decoded_sum = scheme.decode_sum(np.asarray(total), count)
        return decoded_sum / count

    @abstractmethod
    def _local(self, sums: Sums) -> Claim:
        """The claim about each report."""

    def claims(self, sums: Sums) -> dict[str, Claim]:
        return {"local": self._local(sums), "central": self.central(sums)}

    def central(self, sums: Sums) -> Claim:
        # Alone where it alone is asked for: budgets ask for many numbers of rounds.
        scheme = self.scheme(sums.size, sums.clients)
        return scheme.claim(
            clients=sums.clients, rounds=sums.rounds, corrupted=sums.corrupted, delta=sums.delta
        )


@with_old_fields(l2_norm="clip_norm")
@final
@checked
@dataclass(frozen=True, kw_only=True)
class TableEncoding(SchemeEncoding[TableScheme]):
    """Every coordinate is quantized by one mechanism table, whose levels lie on a lattice.

    Arguments:
        mechanism: its range is the clipping range of a (rotated) coordinate, data units.
        clip_norm: clip the whole vector to this norm, rotate it, and account under the norm; None
            does neither.
        seed: of the rotation's signs; public.

    Raises:
        ParameterError: levels that stand on no lattice (sums of codes would not decode), an clip_norm
            that is not > 0.

    Guarantees: unbiased for updates within the clipping when the table is; decode(sum of integers)
        is the mean of the decoded reports to float precision.

    Example:
        >>> table = mz.families.rqm(levels=16, extension=1.0, q=0.42)
        >>> encoding = mz.federated.TableEncoding(mechanism=table)
        >>> sorted(encoding.claims(mz.federated.Sums(size=4, clients=50, rounds=1, delta=1e-6)))
        ['central', 'local']
    """

    # Fields are keys of descriptions, in files and messages; an old name stays in
    # `encoding_of_today`.
    mechanism: Mechanism
    clip_norm: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.clip_norm is not None:
            check_scale("clip_norm", self.clip_norm)
        table = self.mechanism
        check_count("seed", self.seed, least=0, most=2**64)
        level_sizes = np.abs(table.levels)
        check_scale("mechanism", float(level_sizes.max()))
        self._hold(
            span=self.lattice.span,
            overflow="impossible",
            report_bits=table.bits,
            report_epsilon=table.epsilon,
            sha256=table.sha256,
            largest=max(abs(table.lower), abs(table.upper)),
            norm=self.clip_norm,
        )

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
                clip_norm=self.clip_norm,
                seed=self.seed,
            )
        return self._schemes[size, clients]

    def check_room(self, clients: int, *, size: int) -> None:
        """Nothing: the modulus grows with the clients."""

    def check_sum(self, total: Integers, *, count: int, size: int) -> None:
        """Nothing: the server of the sum has checked its range."""

    def as_dict(self) -> JsonObject:
        table = parse_object(self.mechanism.to_json(), name="mechanism")
        values: JsonObject = {
            "kind": "table",
            "mechanism": table,
            "clip_norm": self.clip_norm,
            "seed": self.seed,
        }
        if self.clip_norm is not None:
            values["rotation"] = ROTATION
        return values

    def _local(self, sums: Sums) -> Claim:
        """Composed over all coordinates, for all change with the client."""
        from mezzotint.privacy.accounting import account  # heavy, and not needed to encode

        release = Release(
            mechanism=self.mechanism, dimension=sums.size, rounds=sums.rounds, delta=sums.delta
        )
        return account(release)

    def mse(self) -> float:
        return self.mechanism.mse()


@with_old_fields(l2_norm="clip_norm")
@final
@checked
@dataclass(frozen=True, kw_only=True)
class GaussianEncoding(SchemeEncoding[GaussianScheme]):
    """L2 clipping, rotation, real Gaussian noise, rounding, addition modulo 2**modulus_bits.

    Arguments:
        clip_norm: clipping norm, data units.
        granularity: data units per step.
        modulus_bits: sums wrap at 2**modulus_bits, which costs accuracy and never privacy.
        deviation: standard deviation of the noise that EACH client adds before it rounds, steps;
            `gaussian_encoding` chooses it and the grid.
        seed: of the rotation's signs; public.

    Raises:
        ParameterError: a norm of too many steps, more than 32 bits, a deviation below one step.

    Example:
        >>> encoding = mz.federated.gaussian_encoding(noise_multiplier=8.0, clip_norm=1.0, clients=100, size=1000)
        >>> claims = encoding.claims(mz.federated.Sums(size=1000, clients=100, rounds=10, delta=1e-6))
        >>> {view: round(claim.epsilon, 2) for view, claim in claims.items()}
        {'local': 68.05, 'central': 3.75}
    """

    # Fields are keys of descriptions, in files and messages; an old name stays in
    # `encoding_of_today`.
    clip_norm: float
    granularity: float
    modulus_bits: int
    deviation: float
    seed: int = 0

    def __post_init__(self) -> None:
        _ = self.scheme(1)  # checks its part
        if self.clip_norm > MOST_STEPS * self.granularity:
            raise ParameterError(
                "granularity", self.granularity, f"a norm of at most {MOST_STEPS:g} steps; coarsen"
            )
        if not 2 <= self.modulus_bits <= MAX_BITS:
            raise ParameterError(
                "modulus_bits", self.modulus_bits, f"2 to {MAX_BITS}; less noise or a coarser grid"
            )
        norm_steps = f"{self.clip_norm / self.granularity:.10g}"
        description = canonical({"deviation": self.deviation, "steps": norm_steps})
        self._hold(
            span=2**self.modulus_bits - 1,
            overflow="modular",
            report_bits=self.modulus_bits,
            report_epsilon=math.inf,
            sha256=hashlib.sha256(description.encode()).hexdigest(),
            largest=self.clip_norm,
            norm=self.clip_norm,
        )

    @classmethod
    def _planned(cls, noise_multiplier: float, **planned: Any) -> GaussianEncoding:
        """The encoding in the fewest bits; arguments as of `GaussianScheme.planned`."""
        scheme = GaussianScheme.planned(noise_multiplier=noise_multiplier, **planned)
        values = asdict(scheme)
        del values["size"]
        return cls(**values)

    def scheme(self, size: int, clients: int = 1) -> GaussianScheme:
        return GaussianScheme(size=size, **asdict(self))

    def as_dict(self) -> JsonObject:
        return {"kind": "gaussian", "name": NOISE, "rotation": ROTATION, **asdict(self)}

    def _local(self, sums: Sums) -> Claim:
        scheme = self.scheme(sums.size)
        single_report = scheme.claim(clients=1, rounds=sums.rounds, delta=sums.delta)
        return replace(single_report, observer="reports", honest_clients=None)

    def mse(self) -> float:
        """Upper bound: the noise of one client and its rounding."""
        return self.scheme(1).variance

    def check_room(self, clients: int, *, size: int) -> None:
        self.scheme(size).check_room(clients)

    def noise_multiplier(self, clients: int) -> float:
        deviation = self.deviation * self.granularity
        check_count("clients", clients, least=0)
        return math.sqrt(clients) * deviation / self.clip_norm

    def check_sum(self, total: Integers, *, count: int, size: int) -> None:
        """Compare the norm of the whole sum, before it is rotated back, with the largest of honest
        sums.

        Arguments: as of `decode`.

        Raises:
            OutOfRangeInteger: a client sent more than it may; nobody can be named for it.

        Source: docs/proofs/vectors.md, "Implausible sums".
        """
        largest = self.largest_honest_norm(count=count, size=size)
        modulus = self.span + 1
        half = modulus // 2
        integers = np.asarray(total, dtype=np.int64)
        residues = (integers + half) % modulus
        centred = (residues - half).astype(np.float64)
        steps = float(np.linalg.norm(centred))
        norm = self.granularity * steps
        if norm > largest:
            honest = f"that of {count} clients within their clipping norm exceeds {largest:.4g}"
            raise OutOfRangeInteger(
                "open",
                f"the sum has norm {norm:.4g}, and {honest} with probability 2**-{FALSE_ALARM_BITS} at most: a client "
                "sent more than it may, and none can be named",
            )

    def largest_honest_norm(self, *, count: int, size: int) -> float:
        """Norm that an honest sum exceeds with probability at most 2**-FALSE_ALARM_BITS, data
        units.

        With S the sum of the updates, of norm at most count C, and Z the noise, of variance s^2 a
        coordinate: |S + Z|^2 = |S|^2 + 2 S.Z + |Z|^2, where S.Z <= |S| s sqrt(2 L) and |Z|^2 <=
        s^2 (D + 2 sqrt(D L) + 2 L), each but with probability F exp(-L): Z is sub-Gaussian up to
        the factor F of its moment generating function, `rounding_factor` for each client and
        coordinate. A residue read nearest 0 is never further from 0 than its integer.

        >>> quiet = gaussian_encoding(noise_multiplier=8.0, clip_norm=1.0, clients=100, size=7850)
        >>> round(quiet.largest_honest_norm(count=100, size=7850))
        774
        """
        log_factor = size * count * rounding_factor(self.deviation)
        tail_bound = (FALSE_ALARM_BITS + 1) * math.log(2) + log_factor
        variance = count * self.scheme(size).variance
        signal = count * self.clip_norm
        excess = 2 * math.sqrt(size * tail_bound)
        noise_square = variance * (size + excess + 2 * tail_bound)
        deviation = math.sqrt(2 * tail_bound * variance)
        cross_term = 2 * signal * deviation
        largest_square = signal**2 + cross_term + noise_square
        return math.sqrt(largest_square) * _NORM_ROUNDING


@with_old_names(l2_norm="clip_norm")
def gaussian_encoding(
    *,
    clip_norm: float,
    clients: int,
    size: int,
    noise_multiplier: float | None = None,
    epsilon: float | None = None,
    delta: float = 1e-6,
    rounds: int = 1,
    corrupted: int = 0,
    seed: int = 0,
) -> GaussianEncoding:
    """Rounded Gaussian noise with a given deviation of the sum, or for a given budget, in the
    fewest bits.

    Arguments:
        clip_norm: clipping norm, data units.
        clients: summands; fewer add less noise (claims count those that are there).
        size: coordinates of an update.
        noise_multiplier: standard deviation of the noise on the sum of `clients` updates, over
            `clip_norm`; > 0. Rounding adds at most 2 % to the variance, which no claim counts.
        epsilon: in place of `noise_multiplier`: the largest epsilon of a client that is in `rounds`
            such sums; the least noise, to within 1e-4 of it, is found.
        delta, rounds, corrupted: of that claim; `corrupted` of the clients may add no noise.
        seed: of the rotation.

    Returns: the encoding; its central claim is that of continuous Gaussian noise.

    Raises:
        ParameterError: both or neither of `noise_multiplier` and `epsilon`; noise that needs more
            than 32 bits.
        InfeasibleError: no noise multiplier up to 10,000 keeps to `epsilon`.

    Example:
        >>> gaussian_encoding(noise_multiplier=8.0, clip_norm=1.0, clients=100, size=1_100_000).modulus_bits
        8
        >>> private = gaussian_encoding(epsilon=2.0, delta=1e-6, rounds=10, clip_norm=1.0, clients=100, size=1000)
        >>> claim = private.central(mz.federated.Sums(size=1000, clients=100, rounds=10, delta=1e-6))
        >>> 1.999 < claim.epsilon <= 2.0
        True
    """
    if (noise_multiplier is None) == (epsilon is None):
        raise ParameterError(
            "noise_multiplier", noise_multiplier, "name it, or the epsilon that it is found for"
        )
    make = partial(
        GaussianEncoding._planned, size=size, clip_norm=clip_norm, clients=clients, seed=seed
    )
    if noise_multiplier is not None:
        return make(noise_multiplier)
    sums = Sums(size=size, clients=clients, rounds=rounds, corrupted=corrupted, delta=delta)
    _, encoding = noise_within(check_epsilon(epsilon), make, sums)
    return encoding
