"""Proofs that are proposed for the cost of secure sums.

Nothing here is trusted: the kernel checks that blankets fit, that cases hold all data sets, and
what ladders miss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import final

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]

from mezzotint.core.loss import pure_epsilon
from mezzotint.core.records import JsonObject
from mezzotint.core.types import TOTAL, FloatArray, IntArray
from mezzotint.privacy.claim import Release
from mezzotint.privacy.propose import (
    TAIL,
    Attempt,
    Outcome,
    beyond_pure,
    exact_release,
    sealed,
)
from mezzotint.privacy.sums.blanket import Blanket
from mezzotint.privacy.sums.candidates import block_blanket
from mezzotint.privacy.sums.cost import TYPICAL_DELTA, central_epsilon, shortlist
from mezzotint.privacy.sums.counts import (
    boxed_components,
    interval_edges,
    interval_spacings,
    monotone_corners,
)
from mezzotint.privacy.sums.cover import Cover
from mezzotint.privacy.sums.pruning import STEPS, PrunedCase, Pruning, Undivided, on_ladder

_TIME_MARGIN = 2
"""A check should take this many times less than it may."""

_STEPS = 48
"""Steps of a single blanket's ladder."""

_CUT_SHARE = 1e-4
"""Share of delta that noise may cut off."""

_CASE_SHARE = 0.9
"""Share of a budget that ladders of cases may take; blankets are read, too."""

_BOX_SHARE = 0.4
"""Share of a budget that boxes may take; finer ones prove hardly more."""

_MOST_CELLS = 1500
_LEAST_CELLS = 16
"""Cells of a blanket in boxes."""

_REACH_MARGIN = 1.05
"""By which tails are cut further out than a Gaussian's."""

_COMPOSED_STEPS = (12, 24, 36)
"""Steps of ladders of cases that are composed: no single delta tells how few steps suffice."""

_LOWEST_RAISE = -0.05
"""Composed sums live off all of a case's curve: cases whose epsilon at one delta is smaller than
the search's, by so much at most, are tried first."""

_LONG_CHECK = 3.0
"""Cases whose check takes more seconds give way to blocks of clients."""

_BLOCK = 4
"""Clients of a block."""

_BLOCK_GAIN = 1.02
"""The epsilon of blocks of clients may exceed that of cases by this factor."""

# Processor time of a check, seconds per output of a sum, as measured on 14 proofs of 1,000 to
# 1,000,000 clients (tables of 2 to 10 rows): right to a factor of 1.5.

_CORNER_SECONDS = 2.2e-6
"""A corner takes one product of two noises."""

_ROW_SECONDS = 1.5e-7
_PAIR_SECONDS = 9e-8
"""What each row and each ordered pair of rows adds to a corner."""

_GRID_PAIR_SECONDS = 7e-7
_GRID_POINT_SECONDS = 2e-7
"""What a pair adds at all points of a grid, per output and per point."""

_COMPONENT_SECONDS = 1.5e-6
"""What each component adds to the first noise of a ladder."""

_WIDTH = 17
"""Standard deviations of a sum that hold all but 2**-TAIL."""


@final
@dataclass(frozen=True, kw_only=True)
class CheckTime:
    """Estimated seconds of the parts of a check.

    Arguments:
        corner: of one corner of a ladder.
        component: of one component of a ladder.
    """

    corner: float
    component: float

    @staticmethod
    def of(rows: IntArray, others: int, points: int = 0) -> CheckTime:
        """For a table and a number of other clients; `points` of a grid, 0 at a single epsilon."""
        row_count, level_count = rows.shape
        values = np.arange(float(level_count))
        probabilities = rows / float(TOTAL)
        variances = probabilities @ values**2 - (probabilities @ values) ** 2
        likely_width = _WIDTH * math.sqrt(others * float(np.max(variances)))
        width = min(others * (level_count - 1), likely_width) + level_count
        pair_count = row_count * (row_count - 1)
        pair_seconds = _PAIR_SECONDS * width
        if points:
            pair_seconds = _GRID_PAIR_SECONDS * width + _GRID_POINT_SECONDS * points
        noise_seconds = (_CORNER_SECONDS + _ROW_SECONDS * row_count) * width
        corner_seconds = noise_seconds + pair_count * pair_seconds
        return CheckTime(corner=corner_seconds, component=_COMPONENT_SECONDS * width)

    def ladder(self, corners: int, components: int) -> float:
        """Seconds of a ladder."""
        return corners * self.corner + components * self.component

    def tree(self, node: JsonObject) -> float:
        """Seconds of all ladders below a node."""
        if "children" in node:
            return sum(self.tree(child) for child in node["children"])
        corners = node["corners"]
        return self.ladder(len(corners), len(corners[0]))


def _blanket(members: tuple[int, ...], blanket: Blanket | None, block: int = 1) -> JsonObject:
    """The blanket of every `block` clients with these rows."""
    components: list[JsonObject] = []
    if blanket is not None:
        for component in blanket.components:
            shape = component.shape.tolist()
            components.append({"shape": shape, "places": component.shifts.tolist()})
    return {"rows": list(members), "block": block, "components": components}


def _boxes(
    draws: int,
    chances: FloatArray,
    variances: FloatArray,
    spacings: FloatArray,
    steps: int,
    tail: float,
) -> JsonObject:
    """Counts of one component after the other.

    When there are no more spacings, a ladder of the components that remain.
    """
    if not chances.size:
        return {"corners": [[]]}
    if not spacings.size or chances[0] >= 1:
        clients = np.full(chances.size, draws)
        ladder = monotone_corners(clients, chances, variances, steps=steps, tail=tail)
        return {"corners": ladder.counts.tolist()}
    chance = float(chances[0])
    reach = _REACH_MARGIN * math.sqrt(2 * math.log(1 / tail))
    edges: list[int] = interval_edges(draws, chance, float(spacings[0]), reach).tolist()
    ends = [*edges[1:], draws + 1]
    later_chances = np.minimum(chances[1:] / (1 - chance), 1.0)
    boundaries = np.array([*edges, draws + 1])
    below = scipy.stats.binom.cdf(boundaries - 1, draws, chance)
    box_masses: list[float] = np.diff(below).tolist()
    children: list[JsonObject] = []
    for end, box_mass in zip(ends, box_masses, strict=True):
        if box_mass <= tail:
            children.append({"corners": [[0] * later_chances.size]})
            continue
        box_tail = min(0.5, tail / box_mass)
        remaining_draws = draws + 1 - end
        children.append(
            _boxes(
                remaining_draws,
                later_chances,
                variances[1:],
                spacings[1:],
                steps,
                box_tail,
            )
        )
    return {"edges": edges, "children": children}


def _boxed(
    rows: IntArray,
    blanket: Blanket,
    others: int,
    tail: float,
    seconds: float,
    check_time: CheckTime,
) -> JsonObject:
    """One case, its noise from one blanket whose counts are divided.

    They are divided the finer, the more seconds a check may take.
    """
    order: list[int] = np.argsort(-blanket.masses * blanket.variances).tolist()
    components = tuple(blanket.components[index] for index in order)
    blanket = replace(blanket, components=components)
    masses = blanket.masses
    variances = blanket.variances
    affordable_cells = int(seconds / check_time.ladder(1, masses.size))
    cells = max(_LEAST_CELLS, min(_MOST_CELLS, affordable_cells))
    boxed = boxed_components(masses.size)
    if boxed < masses.size:
        cells //= _RUNGS
    spacings = interval_spacings(max(others, 1), masses[:boxed], variances[:boxed], cells)
    tree = _boxes(others, masses, variances, spacings, _RUNGS, tail)
    return _one_case(rows, blanket, others, tree)


def _written(case: PrunedCase) -> JsonObject:
    """The tree below a case."""
    if isinstance(case, Undivided):
        return {"corners": case.corners.tolist()}
    return {
        "group": case.division.node,
        "first": case.division.first,
        "second": case.division.second,
        "cuts": case.division.cuts,
        "children": [_written(smaller_case) for smaller_case in case.cases],
    }


def _one_case(
    rows: IntArray,
    blanket: Blanket | None,
    others: int,
    tree: JsonObject,
    block: int = 1,
) -> JsonObject:
    """One case that holds every data set, its noise from one blanket, if any."""
    everyone = _blanket(tuple(range(rows.shape[0])), blanket, block)
    return {"blankets": [everyone], "others": 0 if blanket is None else others, "cases": tree}


@final
@dataclass(frozen=True, kw_only=True)
class Draft:
    """The content of a proof.

    Arguments:
        content: its blankets and cases.
        epsilon: of one sum at the delta that it is made for, in floats, from which on the kernel
            should accept it; 0 where this is not known.
    """

    content: JsonObject
    epsilon: float = 0.0


_LEAST_STEPS = 6
"""Steps of a ladder, however long a check takes."""

_RUNGS = 12
"""Steps of the ladders that stand on boxes."""


def _drafts(
    rows: IntArray,
    others: int,
    delta: float,
    budget: float,
    points: int,
) -> list[Draft]:
    """Proofs whose check fits a budget of seconds.

    By the cases or blocks of clients, and by the best blanket on a ladder and in boxes. Divergences
    are taken at so many points of a grid; 0 for a single epsilon. Boxes stand behind a ladder that
    proves the accountant's epsilon, as that of many clients does: they are then not checked at all.
    """
    tail = _CUT_SHARE * delta
    check_time = CheckTime.of(rows, others, points)
    best = central_epsilon(rows, clients=others + 1, delta=delta)
    drafts: list[Draft] = []
    if best.cover is not None:
        drafts += _case_drafts(rows, best.cover, others, delta, budget, points)
        check_seconds = sum(check_time.tree(draft.content["cases"]) for draft in drafts)
        if check_seconds > _LONG_CHECK and not points:
            largest_epsilon = _BLOCK_GAIN * drafts[0].epsilon
            blocks = _block_draft(rows, others, delta, budget, largest_epsilon)
            if blocks is not None:
                return [blocks]
    blankets: list[Blanket] = []
    if best.blanket is not None:
        blankets = [best.blanket]
    elif others:
        blankets = shortlist(rows, others, delta)[:1]
    for blanket in blankets:
        ladder = _ladder_draft(rows, blanket, others, delta, budget, points)
        several = [ladder]
        if len(blanket.components) > 1:
            boxed = _boxed(rows, blanket, others, tail, _BOX_SHARE * budget, check_time)
            several.append(Draft(content=boxed))
        if ladder.epsilon > best.epsilon:
            several.reverse()
        drafts += several
    if not drafts:
        drafts = [Draft(content=_one_case(rows, None, others, {"corners": [[]]}))]
    seconds = [check_time.tree(draft.content["cases"]) for draft in drafts]
    affordable = [draft for draft, needed in zip(drafts, seconds, strict=True) if needed < budget]
    return affordable or [drafts[int(np.argmin(seconds))]]


def _ladder_draft(
    rows: IntArray,
    blanket: Blanket,
    others: int,
    delta: float,
    budget: float,
    points: int,
    block: int = 1,
) -> Draft:
    """The proof by one blanket of every `block` clients on a ladder.

    It has as many steps as the budget affords.
    """
    count = len(blanket.components)
    check_time = CheckTime.of(rows, others, points)
    affordable_steps = int(budget / check_time.ladder(1, count))
    ladder = on_ladder(
        rows,
        blanket.components,
        np.full(count, others // block),
        delta=delta,
        tail=_CUT_SHARE * delta,
        steps=min(_STEPS, max(_LEAST_STEPS, affordable_steps)),
        price=check_time.ladder,
    )
    corners: JsonObject = {"corners": ladder.corners.tolist()}
    content = _one_case(rows, blanket, others, corners, block)
    return Draft(content=content, epsilon=ladder.epsilon)


def _block_draft(
    rows: IntArray,
    others: int,
    delta: float,
    budget: float,
    largest_epsilon: float,
) -> Draft | None:
    """The proof by blocks of clients; None when its epsilon is larger than this.

    Of many clients, blocks are sure to add nearly as much as cases show, and need one ladder in
    place of one per case.
    """
    blanket = block_blanket(rows, _BLOCK)
    if blanket is None:
        return None
    blocks = _ladder_draft(rows, blanket, others, delta, budget, points=0, block=_BLOCK)
    if blocks.epsilon > largest_epsilon:
        return None
    return blocks


def _case_drafts(
    rows: IntArray,
    cover: Cover,
    others: int,
    delta: float,
    budget: float,
    points: int,
) -> list[Draft]:
    """The proof by cases with the least epsilon that the budget affords, if it affords any."""
    steps = STEPS
    lowest_raise = 0.0
    if points:
        steps = _COMPOSED_STEPS
        lowest_raise = _LOWEST_RAISE
    check_time = CheckTime.of(rows, others, points)
    tail = _CUT_SHARE * delta
    pruning = Pruning(
        rows,
        cover,
        delta=delta,
        tail=tail,
        steps=steps,
        price=check_time.ladder,
    )
    everyone = np.zeros(len(cover.groups), dtype=np.int64)
    everyone[0] = others
    pruned = pruning.affordable(everyone, _CASE_SHARE * budget, lowest_raise)
    if pruned is None:
        return []
    blankets = [_blanket(group.members, group.blanket) for group in cover.groups]
    content: JsonObject = {"blankets": blankets, "others": others, "cases": _written(pruned)}
    return [Draft(content=content, epsilon=pruned.epsilon)]


def propose_sum(
    release: Release,
    epsilon: float,
    *,
    seconds: int = 60,
) -> Outcome:
    """A certified claim near the float epsilon of a table's secure sums."""
    rows, _ = release.summed

    def attempts() -> Iterator[Attempt]:
        claim_part: JsonObject = {"tables": [release.table.canonical()], "tail": TAIL}
        delta = release.delta
        points = 0
        if release.releases > 1:
            grids = _grids(epsilon, pure_epsilon(rows), release)
            claim_part |= grids
            points = grids["grid"]["high"] - grids["grid"]["low"] + 1
            delta = max(delta, TYPICAL_DELTA)
        for draft in _drafts(rows, release.others, delta, seconds / _TIME_MARGIN, points):
            prover = partial(sealed, kind="sum", **claim_part, **draft.content)
            least_epsilon = 0.0
            if release.releases == 1:
                least_epsilon = draft.epsilon
            yield prover, least_epsilon

    return beyond_pure(release, exact_release(release), epsilon, attempts, seconds=seconds)


def _grids(epsilon: float, single: float, release: Release) -> JsonObject:
    """Step and grids.

    Losses of one sum are about epsilon / sqrt(releases) wide, and tails a few times that.
    """
    width = min(single, 60.0, 8 * epsilon / release.releases**0.5 + 1e-3)
    fineness = math.ceil(400 / width)
    reach = math.ceil(width * fineness)
    grids: JsonObject = {"step": f"1/{fineness}", "grid": {"low": -reach, "high": reach}}
    if release.participation != "none":
        sampled_reach = min(reach * release.dimension, 40 * fineness)
        grids["sampled"] = {"low": -sampled_reach, "high": sampled_reach}
    return grids
