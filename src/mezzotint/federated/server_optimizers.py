"""How the server moves a model by mean updates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from mezzotint.core.arguments import (
    check_choice,
    check_rules,
)
from mezzotint.core.kinds import checked
from mezzotint.federated.encoding import Vector

State = Mapping[str, Vector]
"""An optimizer's state: vectors of the model's length by name. Empty before the first round."""


class ServerOptimizer(ABC):
    """How mean updates move the model.

    Source: Reddi, Charles, Zaheer, Garrett, Rush, Konečný, Kumar and McMahan 2021 (Algorithm 2);
        the mean update is their pseudo-gradient, its learning rate the strategy's.
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
@checked
@dataclass(frozen=True, kw_only=True)
class FedAvgM(ServerOptimizer):
    """Momentum: the sum of all mean updates so far, each weighted `momentum` times the one after
    it.

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
        check_rules(self, ("momentum", 0 <= self.momentum < 1, "need a share in [0, 1)"))

    def step(self, state: State, mean: Vector) -> tuple[State, Vector]:
        moved = self.momentum * state.get("momentum", np.zeros_like(mean)) + mean
        return {"momentum": moved}, moved


OPTIMIZERS: Mapping[str, type[ServerOptimizer]] = {
    kind.__name__.lower(): kind for kind in (FedAvg, FedAvgM)
}


def optimizer_named(name: str) -> ServerOptimizer:
    """The optimizer of this name, with default arguments; ParameterError if there is none."""
    check_choice("server_optimizer", name, OPTIMIZERS)
    return OPTIMIZERS[name]()
