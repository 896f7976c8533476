"""What is to be estimated, from whom and under which claim; and what a trusted server would do."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, final

from mezzotint.core.arguments import check_count
from mezzotint.core.errors import ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.core.search import bracket
from mezzotint.vectors.rotation import MAX_DIMENSION

special: Any = LazyModule("scipy.special")

Trust = Literal["local", "sum"]

MOST = 10**9
"""Most clients, and most rounds, of a setting."""


@final
@dataclass(frozen=True, kw_only=True)
class Setting:
    """The mean of clients' vectors, estimated once per round.

    Arguments:
        clients: reports per round, 1 to 10**9.
        dimension: coordinates; vectors have L2 norm at most 1 (for dimension 1: values in [-1, 1]). Other norms scale
            errors by their square.
        rounds: rounds in which one client takes part.
        trust: "local": every report is seen; "sum": a secure sum hides all but the total.
        epsilon, delta: the claim about all coordinates and all those rounds, replace-one client. delta = 0 asks for
            pure epsilon.
        bits: most bits per value on the wire: of a report in the local view, of the modulus in a secure sum; None for
            no limit.
        corrupted: clients of a round whose noise is not relied upon (dishonest, or dropped out); "sum" only.

    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    """

    clients: int
    dimension: int
    rounds: int
    trust: Trust
    epsilon: float
    delta: float
    bits: int | None = None
    corrupted: int = 0

    def __post_init__(self) -> None:
        for name, most in (("clients", MOST), ("dimension", MAX_DIMENSION), ("rounds", MOST)):
            check_count(name, getattr(self, name), most=most)
        if self.trust not in ("local", "sum"):
            raise ParameterError("trust", self.trust, 'use "local" (every report is seen) or "sum" (only sums are)')
        if not 1e-6 <= self.epsilon <= 1e4:
            raise ParameterError("epsilon", self.epsilon, "need a target from 1e-6 to 10000")
        if not 0 <= self.delta < 1:
            raise ParameterError("delta", self.delta, "need a probability in [0, 1); 0 asks for pure epsilon")
        if 0 < self.delta < 1e-15:
            raise ParameterError("delta", self.delta, "use 0 for pure epsilon, or 1e-15 and more")
        if self.bits is not None:
            check_count("bits", self.bits)
        if check_count("corrupted", self.corrupted, least=0) >= self.clients:
            raise ParameterError("corrupted", self.corrupted, f"fewer than all clients={self.clients}")
        if self.corrupted and self.trust == "local":
            raise ParameterError("corrupted", self.corrupted, "where every report is seen nobody else's noise counts")

    @property
    def honest(self) -> int:
        """Clients whose noise hides one client's report: of a sum all honest ones, in the local view only its own."""
        return self.clients - self.corrupted if self.trust == "sum" else 1

    @property
    def width(self) -> int:
        """Values that a client reports: coordinates, padded to a power of two for the rotation."""
        return 1 << (self.dimension - 1).bit_length()

    @property
    def reach(self) -> float:
        """Range of a rotated coordinate for tables: four times its typical size 1 / sqrt(d), or 1 for a scalar."""
        return 1.0 if self.width == 1 else min(1.0, 4 / math.sqrt(self.width))

    @property
    def answering_zero(self) -> float:
        """Error per coordinate of answering 0 without asking anyone: 1/d for unit vectors, 1/3 for uniform scalars."""
        return 1 / 3 if self.dimension == 1 else 1 / self.dimension

    @property
    def trusted_deviation(self) -> float:
        """Standard deviation of the noise that a trusted server would add to every coordinate of the sum.

        The better of Laplace noise, by the L1 norm and pure composition, and Gaussian noise, by its exact trade-off
        curve over all rounds.
        """
        # ||x - x'||_1 <= 2 sqrt(d): scale 2 sqrt(d) T / epsilon, and sqrt(2) of that is the deviation.
        laplace = math.sqrt(2) * 2 * math.sqrt(self.dimension) * self.rounds / self.epsilon
        if self.delta == 0:
            return laplace
        # T releases of shifts by 2 under noise s are 2 sqrt(T) / s-GDP.
        return min(laplace, 2 * math.sqrt(self.rounds) / gaussian_shift(self.epsilon, self.delta))


def gaussian_shift(epsilon: float, delta: float) -> float:
    """The largest mu for which N(0, 1) and N(mu, 1) are (epsilon, delta)-close, rounded down.

    Source: Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Corollary 1.
    """

    def excess(mu: float) -> float:
        first = float(special.ndtr(-epsilon / mu + mu / 2))
        return first - math.exp(epsilon + float(special.log_ndtr(-epsilon / mu - mu / 2))) - delta

    low, high = 0.0, 1.0
    while excess(high) <= 0:
        low, high = high, 2 * high
    return bracket(lambda mu: excess(mu) <= 0, low, high)[0]
