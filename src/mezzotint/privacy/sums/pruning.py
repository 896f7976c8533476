"""The cases and ladders of a proof that are cheapest to check and yet keep an epsilon.

A cover's search divides cases until the worst is near the truth, and gives each the same ladder. A
proof needs less: a case whose epsilon is small enough stays whole, on a ladder with as few steps as
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
from mezzotint.privacy.sums.blanket import as_probabilities
from mezzotint.privacy.sums.convolution import sum_pmf
from mezzotint.privacy.sums.cover import Cover, Division, case_ladder, division, group_components
from mezzotint.privacy.sums.noise import mixture, no_noise, pair_profile, pairs_by_gap

STEPS = (4, 6, 8, 12, 16, 24, 36)
"""Steps of ladders that are tried, the cheapest first."""

_LADDER_GAIN = 1.05
"""No ladder's steps lower an epsilon of the search by more than this factor."""

_LARGEST_RAISE = 0.2
"""Relative raise of the search's epsilon up to which cases may stay whole."""

_HALVINGS = 9
"""A raise is known to 4e-4, as closely as a proposal seeks its own."""

_FEW_CORNERS = 16
"""A case with so few is not divided: its parts would hardly have fewer."""

Price: TypeAlias = Callable[[int, int], float]
"""Seconds that a check takes for a ladder with so many corners and components."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Whole:
    """A case that stays whole.

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


PrunedCase: TypeAlias = "Whole | Divided"


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
        self._rows = as_probabilities(rows)
        self._pairs = pairs_by_gap(self._rows)[:2]
        self._cover = cover
        self._leaves = {case.tobytes() for case in cover.cases}
        self._delta = delta
        self._tail = tail
        self._steps = steps
        self._price = price
        self._whole_cases: dict[tuple[bytes, int], Whole] = {}

    def affordable(self, root: IntArray, seconds: float, least_raise: float) -> PrunedCase | None:
        """The cases below the root with the least epsilon whose check takes so many seconds.

        None when no raise of the search's epsilon makes it so fast.
        """
        best: PrunedCase | None = None

        def is_affordable(share: float) -> bool:
            nonlocal best
            cases = self.cheapest(root, (1 + share) * self._cover.epsilon)
            if cases is None or cases.seconds > seconds:
                return False
            best = cases
            return True

        if is_affordable(least_raise) or not is_affordable(_LARGEST_RAISE):
            return best
        bracket(is_affordable, _LARGEST_RAISE, least_raise, steps=_HALVINGS)
        return best

    def cheapest(self, case: IntArray, limit: float) -> PrunedCase | None:
        """The cases below this one that are checked fastest, each with an epsilon of at most `limit`.

        None when there are none.
        """
        whole = self._cheapest_whole(case, limit)
        if case.tobytes() in self._leaves:
            return whole
        if whole is not None and len(whole.corners) <= _FEW_CORNERS:
            return whole
        divided = division(self._cover.groups, case)
        cases: list[PrunedCase] = []
        seconds = 0.0
        for smaller_case in divided.cases:
            pruned = self.cheapest(smaller_case, limit)
            if pruned is None:
                return whole
            cases.append(pruned)
            seconds += pruned.seconds
            if whole is not None and seconds >= whole.seconds:
                return whole
        epsilon = max(pruned.epsilon for pruned in cases)
        return Divided(division=divided, cases=cases, epsilon=epsilon, seconds=seconds)

    def _cheapest_whole(self, case: IntArray, limit: float) -> Whole | None:
        """The case on the ladder with fewest steps, if any suffices."""
        if self._cover.epsilons.get(case.tobytes(), math.inf) > _LADDER_GAIN * limit:
            return None
        for steps in self._steps:
            whole = self._whole(case, steps)
            if whole.epsilon <= limit:
                return whole
        return None

    def _whole(self, case: IntArray, steps: int) -> Whole:
        key = (case.tobytes(), steps)
        if key not in self._whole_cases:
            self._whole_cases[key] = self._computed(case, steps)
        return self._whole_cases[key]

    def _computed(self, case: IntArray, steps: int) -> Whole:
        used: list[int] = np.flatnonzero(case).tolist()
        components, owners = group_components(self._cover.groups, used)
        corners = np.zeros((1, 0), dtype=np.int64)
        noise = no_noise()
        if components:
            ladder = case_ladder(components, case[owners], steps=steps, tail=self._tail)
            corners = ladder.counts
            shapes = [component.pmf for component in components]
            noise = mixture(ladder, sum_pmf(shapes, corners, tail=1e-3 * self._tail))
        epsilon = 0.0
        for first, second in self._pairs:
            profile = pair_profile(noise, self._rows[first], self._rows[second])
            epsilon = max(epsilon, profile.epsilon(self._delta))
        return Whole(
            corners=corners,
            epsilon=epsilon,
            seconds=self._price(len(corners), len(components)),
        )
