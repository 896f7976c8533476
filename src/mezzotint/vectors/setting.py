"""What advice is about: the mean of clients' vectors under a claim, and who sees what."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, final

from mezzotint.core.arguments import check_count, check_rules
from mezzotint.core.kinds import checked
from mezzotint.privacy.accounting import account
from mezzotint.privacy.claim import Claim, Release
from mezzotint.privacy.tradeoffs import gaussian_shift
from mezzotint.vectors.rotation import MAX_DIMENSION
from mezzotint.vectors.tables import VectorScheme

View = Literal["local", "sum"]
"""What is seen of the vectors. The `Trust` of a claim names it "local" and "secure_sum"."""

MAX_COUNT = 10**9
"""Most clients, and most rounds, of a setting."""


@final
@checked
@dataclass(frozen=True, kw_only=True)
class Setting:
    """The mean of clients' vectors, estimated once per round.

    Arguments:
        clients: reports per round, 1 to 10**9.
        dimension: coordinates; vectors have L2 norm at most 1 (for dimension 1: values in [-1, 1]).
            Other norms scale errors by their square.
        rounds: rounds in which one client takes part.
        trust: "local": every report is seen; "sum": a secure sum hides all but the total.
        epsilon, delta: the claim about all coordinates and all those rounds, replace-one client.
            delta = 0 asks for pure epsilon.
        bits: most bits per value on the wire: of a report in the local view, of the modulus in a
            secure sum; None sets no limit.
        corrupted: clients of a round whose noise does not count (dishonest, or dropped out); "sum"
            only.

    Raises:
        ParameterError: naming the parameter, its value and the remedy.

    Example:
        >>> setting = mz.vectors.Setting(
        ...     clients=1000,
        ...     dimension=8,
        ...     rounds=5,
        ...     trust="sum",
        ...     epsilon=1.0,
        ...     delta=1e-6,
        ... )
        >>> setting.dimension
        8
    """

    clients: int
    dimension: int
    rounds: int
    trust: View
    epsilon: float
    delta: float
    bits: int | None = None
    corrupted: int = 0

    def __post_init__(self) -> None:
        check_count("clients", self.clients, most=MAX_COUNT)
        check_count("dimension", self.dimension, most=MAX_DIMENSION)
        check_count("rounds", self.rounds, most=MAX_COUNT)
        if self.bits is not None:
            check_count("bits", self.bits)
        corrupted = check_count("corrupted", self.corrupted, least=0)
        local = self.trust == "local"
        views = 'use "local" (every report is visible) or "sum" (only sums are)'
        tiny = "use 0 for pure epsilon, or 1e-15 and more"
        only_sums = 'applies to secure sums only; use trust="sum" or leave it out'
        check_rules(
            self,
            ("trust", local or self.trust == "sum", views),
            ("epsilon", 1e-6 <= self.epsilon <= 1e4, "need a target from 1e-6 to 10000"),
            ("delta", 0 <= self.delta < 1, "need a probability in [0, 1); 0 asks for pure epsilon"),
            ("delta", self.delta == 0 or self.delta >= 1e-15, tiny),
            ("corrupted", corrupted < self.clients, f"must be less than clients={self.clients}"),
            ("corrupted", corrupted == 0 or not local, only_sums),
        )

    @property
    def honest(self) -> int:
        """Clients whose noise hides one client's report.

        In a sum all honest ones, in the local view only itself.
        """
        return self.summed - self.corrupted

    @property
    def summed(self) -> int:
        """Vectors in one sum; in the local view one."""
        if self.trust == "local":
            return 1
        return self.clients

    @property
    def reach(self) -> float:
        """Range of a rotated coordinate for tables, or 1 for a scalar.

        It is four times the coordinate's typical size 1 / sqrt(d).
        """
        if self.dimension == 1:
            return 1.0
        return min(1.0, 4 / math.sqrt(self.dimension))

    @property
    def answering_zero(self) -> float:
        """Error per coordinate of always answering 0: 1/d for unit vectors, 1/3 for uniform scalars."""
        if self.dimension == 1:
            return 1 / 3
        return 1 / self.dimension

    @property
    def trusted_deviation(self) -> float:
        """Standard deviation of a trusted server's noise on each coordinate: Laplace or Gaussian."""
        # ||x - x'||_1 <= 2 sqrt(d): scale 2 sqrt(d) T / epsilon, and sqrt(2) of that is the
        # deviation.
        laplace_deviation = (
            math.sqrt(2) * 2 * math.sqrt(self.dimension) * self.rounds / self.epsilon
        )
        if self.delta == 0:
            return laplace_deviation
        # T releases of shifts by 2 under noise s are 2 sqrt(T) / s-GDP.
        shift = gaussian_shift(self.epsilon, self.delta)
        gaussian_deviation = 2 * math.sqrt(self.rounds) / shift
        return min(laplace_deviation, gaussian_deviation)

    def release(self, scheme: VectorScheme) -> Release:
        """The release; one report is a sum of one."""
        return Release(
            mechanism=scheme,
            trust="secure_sum",
            clients=self.summed,
            corrupted=self.corrupted,
            rounds=self.rounds,
            delta=self.delta,
        )

    def claim(self, scheme: VectorScheme) -> Claim:
        """The scheme's claim in this setting."""
        claim = account(self.release(scheme))
        if self.trust == "sum":
            return claim
        return replace(claim, observer="reports", honest_clients=None)
