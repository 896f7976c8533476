"""A search for the largest parameter whose cost keeps to a target, with as few costs as can be."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, final

from mezzotint.core.errors import InfeasibleError, MezzotintError

Scheme = TypeVar("Scheme")

CLOSE = 0.98
"""A search ends when the cost uses this share of its target."""

AIM = (1 + CLOSE) / 2
"""The share that a search aims at."""

ACCEPTED = 0.9
"""The share accepted after `patience` turns: where the accounting jumps, nothing may be closer."""

_TURNS = 12
"""Costs taken at most."""

_NARROW = 2e-3
"""A search ends when the bracket of the parameter's logarithm is narrower."""

_GAIN = 0.005
"""A search ends when at most this share of the error can still be gained."""

_JUMP = 4.0
"""A cost that grows with a higher power of the parameter jumps."""

_EDGE = 0.03
"""A bracket is never cut closer to its ends than by this share."""


def search(
    make: Callable[[float], Scheme],
    cost: Callable[[Scheme], float],
    *,
    guess: float,
    target: float,
    least: float,
    most: float,
    patience: int = _TURNS,
    error: Callable[[Scheme], float] | None = None,
) -> tuple[float, Scheme]:
    """(parameter, scheme): the largest parameter tried whose cost is at most `target`.

    Costs grow with the parameter, which lies between `least` and `most`. After `patience` turns a
    cost of `ACCEPTED` of the target ends the search, before that `CLOSE`. It also ends if slightly
    too costly schemes have no smaller `error`.

    Raises:
        InfeasibleError: no scheme keeps to the target; the message names the last cost.
    """
    bracket = _Bracket(
        low=math.log(least),
        high=math.log(most),
        aim=math.log(target * AIM),
    )
    log_guess = max(math.log(guess), bracket.low)
    position = min(log_guess, bracket.high)
    accepted: tuple[float, Scheme] | None = None
    last_problem: MezzotintError = InfeasibleError("no parameter was tried")
    costly_error = 0.0  # of the weakest scheme that costs too much
    best_error = math.inf
    for turn in range(_TURNS):
        try:
            scheme = make(math.exp(position))
            scheme_cost = cost(scheme)
        except MezzotintError as refusal:
            last_problem = refusal
            bracket.high, bracket.cost_high = position, None
            costly_error = 0.0
        else:
            scheme_error = math.nan if error is None else error(scheme)
            if scheme_cost <= target:
                accepted = (math.exp(position), scheme)
                required_share = CLOSE if turn < patience else ACCEPTED
                if scheme_cost >= required_share * target or position >= math.log(most):
                    break
                bracket.low, bracket.cost_low = position, _finite_log(scheme_cost)
                best_error = scheme_error
            else:
                last_problem = _too_costly(scheme_cost, target)
                bracket.high, bracket.cost_high = position, _finite_log(scheme_cost)
                costly_error = scheme_error
        if bracket.width < _NARROW or costly_error >= (1 - _GAIN) * best_error:
            break
        position = bracket.next_position(turn)
    if accepted is None:
        raise last_problem
    return accepted


def _too_costly(cost: float, target: float) -> InfeasibleError:
    if math.isfinite(cost):
        return InfeasibleError(
            f"no noise tried meets epsilon={target:.4g}; the last cost {cost:.4g}"
        )
    return InfeasibleError(
        "noise with a resolution of 2**-32 has too short a tail for this delta, values and rounds"
    )


@final
@dataclass(kw_only=True)
class _Bracket:
    """The interval of a parameter's logarithm, and the logarithms of its ends' costs, if computed.

    Arguments:
        low, high: ends; costs meet the target at the lower one and exceed it at the upper one.
        aim: logarithm of the cost that is aimed at.
        cost_low, cost_high: None where no cost was computed, or where it is 0 or infinite.
    """

    low: float
    high: float
    aim: float
    cost_low: float | None = None
    cost_high: float | None = None

    @property
    def width(self) -> float:
        return self.high - self.low

    def next_position(self, turn: int) -> float:
        """Where to look next.

        By a power law between two costs, or in the middle every third turn and where costs jump;
        else by a power law of exponent 1 from the only cost.
        """
        if self.cost_low is not None and self.cost_high is not None:
            growth = self.cost_high - self.cost_low
            is_jump = growth > _JUMP * self.width + 0.05
            position_share = 0.5
            if turn % 3 < 2 and not is_jump:
                position_share = (self.aim - self.cost_low) / growth
            inner_share = min(max(position_share, _EDGE), 1 - _EDGE)
            return self.low + self.width * inner_share
        if self.cost_low is not None:
            return min(self.low + self.aim - self.cost_low, self.high)
        if self.cost_high is not None:
            return max(self.high - (self.cost_high - self.aim), self.low)
        return (self.low + self.high) / 2


def _finite_log(cost: float) -> float | None:
    if 0 < cost < math.inf:
        return math.log(cost)
    return None
