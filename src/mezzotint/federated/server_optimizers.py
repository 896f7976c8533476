"""How mean updates and sums move the server's model: post-processing of releases, which changes no claim."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from mezzotint.core.arguments import check_choice, check_positive, check_rules
from mezzotint.federated.encoding import Vector
from mezzotint.vectors.rotation import SCALE, solved

State = Mapping[str, Vector]
"""An optimizer's state: vectors of the model's length by name. Empty before the first round."""


class ServerOptimizer(ABC):
    """How mean updates move the model.

    Source: Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar and McMahan 2021 (Algorithm 2); the mean update is
        their pseudo-gradient, its learning rate the strategy's.
    """

    @abstractmethod
    def step(self, state: State, mean: Vector) -> tuple[State, Vector]:
        """The next state, and the change of the model per unit of learning rate.

        Arguments:
            state: from the last step; empty before the first.
            mean: (d,) mean update of a round's clients, with its noise.
        """


@final
@dataclass(frozen=True, kw_only=True)
class FedAvg(ServerOptimizer):
    """The mean update itself. No arguments.

    Example:
        >>> isinstance(mz.federated.FedAvg(), mz.federated.FedAvg)
        True
    """

    def step(self, state: State, mean: Vector) -> tuple[State, Vector]:
        return {}, mean


@final
@dataclass(frozen=True, kw_only=True)
class FedAvgM(ServerOptimizer):
    """Momentum: the sum of all mean updates so far, each weighted `momentum` times the one after it.

    Arguments:
        momentum: in [0, 1).

    Raises:
        ParameterError: another momentum.

    Example:
        >>> mz.federated.FedAvgM(momentum=0.5).momentum
        0.5
    """

    momentum: float = 0.9

    def __post_init__(self) -> None:
        check_rules(self, ("momentum", 0 <= self.momentum < 1, "a share in [0, 1)"))

    def step(self, state: State, mean: Vector) -> tuple[State, Vector]:
        moved = self.momentum * state.get("momentum", np.zeros_like(mean)) + mean
        return {"momentum": moved}, moved


@dataclass(frozen=True, kw_only=True)
class _Adaptive(ServerOptimizer, ABC):
    """A separate rate for each coordinate: the larger its mean updates have been, the lower."""

    first: float = 0.9
    second: float = 0.99
    least: float = 1e-3

    def __post_init__(self) -> None:
        share = "a share in [0, 1)"
        check_rules(self, ("first", 0 <= self.first < 1, share), ("second", 0 <= self.second < 1, share))
        check_positive("least", self.least)

    def step(self, state: State, mean: Vector) -> tuple[State, Vector]:
        nothing = np.zeros_like(mean)
        first = self.first * state.get("first", nothing) + (1 - self.first) * mean
        second = self._squares(state.get("second", np.full_like(mean, self.least**2)), mean * mean)
        return {"first": first, "second": second}, first / (np.sqrt(second) + self.least)

    @abstractmethod
    def _squares(self, before: Vector, now: Vector) -> Vector:
        """The average of squares."""


@final
@dataclass(frozen=True, kw_only=True)
class FedAdam(_Adaptive):
    """Adam on mean updates, without bias correction, as published.

    Arguments:
        first, second: decays of the averages of mean updates and of their squares, in [0, 1).
        least: added to the root of the second average, > 0. The smaller, the more the coordinates' rates differ.

    Raises:
        ParameterError: values out of these ranges.

    Example:
        >>> mz.federated.FedAdam(least=1e-2).least
        0.01
    """

    def _squares(self, before: Vector, now: Vector) -> Vector:
        return self.second * before + (1 - self.second) * now


@final
@dataclass(frozen=True, kw_only=True)
class FedYogi(_Adaptive):
    """Like `FedAdam`, but no square moves the average by more than its own size.

    Arguments:
        first, second, least: as of `FedAdam`.

    Example:
        >>> mz.federated.FedYogi().first
        0.9
    """

    def _squares(self, before: Vector, now: Vector) -> Vector:
        return before - (1 - self.second) * now * np.sign(before - now)


OPTIMIZERS: Mapping[str, type[ServerOptimizer]] = {
    kind.__name__.lower(): kind for kind in (FedAvg, FedAvgM, FedAdam, FedYogi)
}


def optimizer_named(name: str) -> ServerOptimizer:
    """The optimizer of this name, with default arguments; ParameterError if there is none."""
    check_choice("server_optimizer", name, OPTIMIZERS)
    return OPTIMIZERS[name]()


_SUM = "sum of round "


def behind(state: State, total: Vector, *, number: int, count: int, bands: int) -> tuple[State, Vector]:
    """The state for later rounds, and the mean update of this one, where updates are spread over several sums.

    The noise in these sums is correlated from round to round; together, they determine the sum of each turn's updates.

    Arguments:
        state: of the last round, possibly with other entries.
        total: (d,) the decoded sum.
        number: of the round; rounds that failed are missing, and their updates count as zero.
        count: summands, of whom about one in `bands` had its turn.
    """
    earlier = {lag: state[_SUM + str(number - lag)] for lag in range(1, bands) if _SUM + str(number - lag) in state}
    found = solved(bands, SCALE * total, earlier)
    kept = {_SUM + str(number - lag): vector for lag, vector in earlier.items() if lag < bands - 1}
    return kept | {_SUM + str(number): found}, found * bands / count
