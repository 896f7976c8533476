"""The cases and ladders of a proof that are cheapest to check and yet keep an epsilon.

A cover's search divides cases until the worst is near the truth, and gives each the same ladder. A
proof needs less: a case whose epsilon is small enough stays undivided, on a ladder with as few steps as
that takes. Nothing here is trusted: the kernel checks what is proposed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from mezzotint.core.search import bracket
from mezzotint.core.types import IntArray
from mezzotint.privacy.sums.blanket import Component, as_probabilities
from mezzotint.privacy.sums.convolution import sum_pmf
from mezzotint.privacy.sums.cover import Cover, Division, case_ladder, division, group_components
from mezzotint.privacy.sums.noise import mixture, no_noise, widest_epsilon

STEPS = (4, 6, 8, 12, 16, 24, 36)
"""Steps of ladders that are tried, the cheapest first."""

_LADDER_GAIN = 1.05
"""No ladder's steps lower an epsilon of the search by more than this factor."""

_LARGEST_RAISE = 0.2
"""Relative raise of the search's epsilon up to which cases may stay undivided."""

_HALVINGS = 9
"""A raise is known to 4e-4, as closely as a proposal seeks its own."""

_FEW_CORNERS = 16
"""A case with so few is not divided: its parts would hardly have fewer."""

Price: TypeAlias = Callable[[int, int], float]
"""Seconds that a check takes for a ladder with so many corners and components."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Undivided:
    """A case that stays undivided.

    Arguments:
        corners: (steps, components) of its ladder, in the kernel's order of components.
        epsilon: of the two rows furthest apart, in floats.
        seconds: of its check, estimated.
    """

    corners: IntArray
    epsilon: float
    seconds: float


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Divided:
    """A case that is divided.

    Arguments:
        division: by the clients of which group.
        cases: its parts, each whole or divided.
        epsilon, seconds: worst epsilon of the parts, and seconds of all of them.
    """

    division: Division
    cases: list[PrunedCase]
    epsilon: float
    seconds: float


PrunedCase: TypeAlias = "Undivided | Divided"


def on_ladder(
    rows: IntArray,
    components: Sequence[Component],
    draws: IntArray,
    *,
    delta: float,
    tail: float,
    steps: int,
    price: Price,
) -> Undivided:
    """Noise of components on a ladder of so many steps.

    Arguments:
        rows: (rows, span + 1) of the table on its lattice.
        draws: (components,) in how many draws each may come.
        delta: of the epsilon.
        tail: mass that may be cut off.
    """
    corners = np.zeros((1, 0), dtype=np.int64)
    noise = no_noise()
    if components:
        ladder = case_ladder(components, draws, steps=steps, tail=tail)
        corners = ladder.counts
        shapes = [component.pmf for component in components]
        noise = mixture(ladder, sum_pmf(shapes, corners, tail=1e-3 * tail))
    return Undivided(
        corners=corners,
        epsilon=widest_epsilon(noise, as_probabilities(rows), delta),
        seconds=price(len(corners), len(components)),
    )


@final
class Pruning:
    """The choice between whole and divided cases of a cover."""

    def __init__(
        self,
        rows: IntArray,
        cover: Cover,
        *,
        delta: float,
        tail: float,
        steps: Sequence[int],
        price: Price,
    ) -> None:
        self._rows = rows
        self._cover = cover
        self._leaves = {case.tobytes() for case in cover.cases}
        self._delta = delta
        self._tail = tail
        self._steps = steps
        self._price = price
        self._undivided_cases: dict[tuple[bytes, int], Undivided] = {}

    def affordable(self, root: IntArray, seconds: float, least_raise: float) -> PrunedCase | None:
        """The cases below the root with the least epsilon whose check takes so many seconds.

        None when no raise of the search's epsilon makes it so fast.
        """
        best: PrunedCase | None = None

        def is_affordable(share: float) -> bool:
            nonlocal best
            pruned = self.cheapest(root, (1 + share) * self._cover.epsilon)
            if pruned is None or pruned.seconds > seconds:
                return False
            best = pruned
            return True

        if is_affordable(least_raise) or not is_affordable(_LARGEST_RAISE):
            return best
        bracket(is_affordable, _LARGEST_RAISE, least_raise, steps=_HALVINGS)
        return best

    def cheapest(self, case: IntArray, limit: float) -> PrunedCase | None:
        """The cases below this one that are checked fastest, no epsilon of theirs above `limit`.

        None when there are none.
        """
        undivided = self._cheapest_undivided(case, limit)
        if case.tobytes() in self._leaves:
            return undivided
        if undivided is not None and len(undivided.corners) <= _FEW_CORNERS:
            return undivided
        divided = division(self._cover.groups, case)
        pruned_cases: list[PrunedCase] = []
        seconds = 0.0
        for smaller_case in divided.cases:
            pruned = self.cheapest(smaller_case, limit)
            if pruned is None:
                return undivided
            pruned_cases.append(pruned)
            seconds += pruned.seconds
            if undivided is not None and seconds >= undivided.seconds:
                return undivided
        epsilon = max(pruned.epsilon for pruned in pruned_cases)
        return Divided(division=divided, cases=pruned_cases, epsilon=epsilon, seconds=seconds)

    def _cheapest_undivided(self, case: IntArray, limit: float) -> Undivided | None:
        """The case on the ladder with fewest steps, if any suffices."""
        if self._cover.epsilons.get(case.tobytes(), math.inf) > _LADDER_GAIN * limit:
            return None
        for step_count in self._steps:
            undivided = self._undivided(case, step_count)
            if undivided.epsilon <= limit:
                return undivided
        return None

    def _undivided(self, case: IntArray, steps: int) -> Undivided:
        key = (case.tobytes(), steps)
        if key not in self._undivided_cases:
            self._undivided_cases[key] = self._computed(case, steps)
        return self._undivided_cases[key]

    def _computed(self, case: IntArray, steps: int) -> Undivided:
        """The epsilon of a case (clients in each group), its groups not divided, on a ladder of so
        many steps.
        """
        used_groups: list[int] = np.flatnonzero(case).tolist()
        components, owners = group_components(self._cover.groups, used_groups)
        return on_ladder(
            self._rows,
            components,
            case[owners],
            delta=self._delta,
            tail=self._tail,
            steps=steps,
            price=self._price,
        )
