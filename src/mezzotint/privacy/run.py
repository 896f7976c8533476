"""A whole run: one table, how often a client uses it, who takes part; and the claim made of the bounds on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from mezzotint.privacy.claim import Claim, Neighboring, Observer, Sampling, Unit
from mezzotint.privacy.loss import UNIT, pure_epsilon

if TYPE_CHECKING:
    from mezzotint.core.mechanism import Mechanism


@final
@dataclass(frozen=True, kw_only=True)
class Run:
    """What is accounted.

    Arguments:
        mechanism: the table that every report is drawn from.
        coordinates, rounds: reports of one client in a round, and rounds.
        rate: probability of taking part in a round; 1 exactly when `sampling` is "none".
        sampling: who knows who took part.
        delta: of the claim.
    """

    mechanism: Mechanism
    coordinates: int
    rounds: int
    rate: float
    sampling: Sampling
    delta: float

    @property
    def releases(self) -> int:
        """Reports of one client in all."""
        return self.coordinates * self.rounds

    @property
    def pure(self) -> float:
        """Pure epsilon of all reports together, rounded up."""
        single = pure_epsilon(self.mechanism.weights)
        return single if self.releases == 1 else self.releases * single * (1 + 4 * UNIT)

    def claim(
        self,
        bounds: Mapping[str, float],
        *,
        neighboring: Neighboring,
        unit: Unit,
        observer: Observer,
        honest_clients: int | None,
    ) -> Claim:
        """The least of several valid bounds, by name (the first name when none is finite), the others beside it."""
        finite = [(name, value) for name, value in bounds.items() if math.isfinite(value)]
        valid = sorted(finite, key=lambda item: item[1])
        method, epsilon = valid[0] if valid else (next(iter(bounds)), math.inf)
        return Claim(
            epsilon=epsilon,
            delta=self.delta,
            neighboring=neighboring,
            unit=unit,
            observer=observer,
            honest_clients=honest_clients,
            sampling=self.sampling,
            sampling_rate=self.rate,
            coordinates=self.coordinates,
            rounds=self.rounds,
            method=method,
            alternatives=tuple(valid),
            sha256=self.mechanism.sha256,
        )
