"""What a design returns: the mechanism and everything needed to judge it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, final

from mezzotint.core.mechanism import Mechanism


@final
@dataclass(frozen=True, kw_only=True)
class DesignResult:
    """The full record of one design.

    Arguments:
        mechanism: the table; its certified epsilon is at most the one asked for.
        loss: expected loss of `mechanism` under the asked loss and prior, computed from its integers; squared data
            units for "mse", data units for "mae".
        lower_bound: no mechanism of the searched class can have a smaller loss than this; None where none is known.
        gap: loss - lower_bound, same units; None where no bound is known. It can be negative by `slack` at most.
        status: how the result was reached: "optimal" (gap proven small), "calibrated" (parameters of a closed-form
            family searched for), or what a solver ended with.
        seconds: wall-clock time of the design.
        iterations: solver iterations, or evaluations of the family for a calibration.
        slack: by how much the loss may lie below the bound, same units: what the integers' bias can gain, and floats.
        proof: of a bound over all levels: the document of a claim file, which the kernel checks (kind `dual`).
        scope: the class of mechanisms that lower_bound speaks about, in words; empty where there is no bound.
    """

    mechanism: Mechanism
    loss: float
    lower_bound: float | None
    gap: float | None
    status: str
    seconds: float
    iterations: int
    scope: str = ""
    slack: float = 0.0
    proof: dict[str, Any] | None = None

    def percent_above(self, limit: DesignResult) -> float | None:
        """How far this loss is above the lower bound of `limit`, in percent; None where that bound is 0 or unknown.

        Arguments:
            limit: what `design.limit` returned for the same epsilon, range, prior and loss.
        """
        return None if not limit.lower_bound else 100 * (self.loss / limit.lower_bound - 1)


def without_bound(mechanism: Mechanism, *, loss: float, status: str, started: float, iterations: int) -> DesignResult:
    """The record of a design that proves nothing about other mechanisms; `started` by `time.perf_counter`."""
    return DesignResult(
        mechanism=mechanism,
        loss=loss,
        lower_bound=None,
        gap=None,
        status=status,
        seconds=time.perf_counter() - started,
        iterations=iterations,
    )
