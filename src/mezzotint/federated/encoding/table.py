"""One mechanism table for every coordinate; with an L2 bound, after a rotation."""

from __future__ import annotations

import json
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_positive, check_vector
from mezzotint.core.loss import pure_epsilon
from mezzotint.core.mechanism import Mechanism
from mezzotint.federated.encoding.base import Encoding, Integers, Vector
from mezzotint.federated.secagg.plan import Overflow, bits_needed
from mezzotint.privacy.account import account
from mezzotint.privacy.claim import Claim
from mezzotint.privacy.sums.lattice import Lattice, find_lattice
from mezzotint.vectors import TableScheme


@final
@dataclass(frozen=True, kw_only=True)
class TableEncoding(Encoding):
    """Every coordinate through one mechanism table, whose levels stand on a lattice.

    Arguments:
        mechanism: its range is the clipping range of a (rotated) coordinate, data units.
        l2_norm: clip the whole vector to this norm, rotate it, and account under the norm; None does neither.
        seed: of the rotation's signs; public.

    Raises:
        ParameterError: levels that stand on no lattice (sums of codes would not decode), an l2_norm that is not > 0.

    Guarantees: unbiased for updates within the clipping when the table is; decode(sum of integers) is the mean of the
        decoded reports to float precision.
    """

    mechanism: Mechanism
    l2_norm: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.l2_norm is not None:
            check_positive("l2_norm", self.l2_norm)
        find_lattice(self.mechanism.levels)  # a table that cannot be summed is refused at once

    @cached_property
    def lattice(self) -> Lattice:
        """The integers that stand for the levels."""
        return find_lattice(self.mechanism.levels)

    @cached_property
    def _schemes(self) -> dict[tuple[int, int], TableScheme]:
        return {}

    def scheme(self, size: int, clients: int) -> TableScheme:
        """The vector scheme for updates of `size` coordinates; kept, for it finds its lattice anew when made."""
        key = (size, clients)
        if key not in self._schemes:
            self._schemes[key] = TableScheme(
                mechanism=self.mechanism, size=size, clients=clients, l2_norm=self.l2_norm, seed=self.seed
            )
        return self._schemes[key]

    @property
    def span(self) -> int:
        return self.lattice.span

    @property
    def overflow(self) -> Overflow:
        return "impossible"

    def bits(self, clients: int) -> int:
        return bits_needed(clients, self.span)

    def length(self, size: int) -> int:
        return self.scheme(size, 1).length

    def encode(self, update: npt.ArrayLike, *, rng: Any = None) -> Integers:
        vector = check_vector(update, name="update")
        return self.scheme(vector.size, 1).encode(vector, rng)

    def decode(self, total: Integers, *, count: int, size: int, release: Hashable = None) -> Vector:
        return self.scheme(size, count).decode_sum(np.asarray(total), count) / count

    def as_dict(self) -> dict[str, Any]:
        mechanism = json.loads(self.mechanism.to_json())
        return {"kind": "table", "mechanism": mechanism, "l2_norm": self.l2_norm, "seed": self.seed}

    def claims(self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0) -> dict[str, Claim]:
        """Both claims; every coordinate changes with the client, so all of them are composed."""
        scheme = self.scheme(size, clients)
        return {
            "local": account(self.mechanism, dimension=scheme.length, rounds=rounds, delta=delta),
            "central": scheme.claim(clients=clients, rounds=rounds, corrupted=corrupted, delta=delta),
        }

    def mse(self) -> float:
        return self.mechanism.mse()

    @property
    def report_bits(self) -> int:
        return self.mechanism.bits

    @property
    def report_epsilon(self) -> float:
        return pure_epsilon(self.mechanism.weights)

    @property
    def sha256(self) -> str:
        return self.mechanism.sha256

    @property
    def largest(self) -> float:
        return max(abs(self.mechanism.lower), abs(self.mechanism.upper))

    @property
    def norm(self) -> float | None:
        return self.l2_norm

    def noise_multiplier(self, clients: int) -> float:
        """0: a table's randomness is no noise of fixed size; its claims say what it hides."""
        return 0.0
