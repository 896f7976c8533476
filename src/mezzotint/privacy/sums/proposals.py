"""Proofs that are proposed for the cost of secure sums.

Nothing here is trusted: the kernel checks that blankets fit, that cases hold all data sets, and
what ladders miss.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]

from mezzotint.core.loss import pure_epsilon
from mezzotint.core.records import JsonObject
from mezzotint.core.types import TOTAL, FloatArray, IntArray
from mezzotint.privacy.claim import Release
from mezzotint.privacy.propose import (
    TAIL,
    Outcome,
    Prover,
    beyond_pure,
    exact_release,
    sealed,
)
from mezzotint.privacy.sums.blanket import Blanket
from mezzotint.privacy.sums.cost import TYPICAL_DELTA, central_epsilon, shortlist
from mezzotint.privacy.sums.counts import (
    boxed_components,
    interval_edges,
    interval_spacings,
    monotone_corners,
)
from mezzotint.privacy.sums.cover import Cover, division

_TIME_MARGIN = 2
"""A check should take this many times less than it may."""

_GRID_TIME = 3
"""How many times longer a divergence takes at all points of a grid than at one."""

_STEPS = 48
"""Steps of a single blanket's ladder; cases take a quarter of them."""

_CUT_SHARE = 1e-4
"""Share of delta that noise may cut off."""

_MOST_CELLS = 1500
_LEAST_CELLS = 16
"""Cells of a blanket in boxes."""

_REACH_MARGIN = 1.05
"""By which tails are cut further out than a Gaussian's."""

_SPARES = (0.0, 0.005, 0.01, 0.02, 0.05)
"""Shares of the worst epsilon within which cases may stay undivided, tried one after the other."""


def _blanket(members: tuple[int, ...], blanket: Blanket | None) -> JsonObject:
    components: list[JsonObject] = []
    if blanket is not None:
        for component in blanket.components:
            shape = component.shape.tolist()
            components.append({"shape": shape, "places": component.shifts.tolist()})
    return {"rows": list(members), "block": 1, "components": components}


def _ladder(
    clients: list[tuple[int, Blanket]],
    steps: int,
    tail: float,
) -> list[list[int]]:
    """Corners for clients that draw from several blankets, in the kernel's order of components."""
    trials: list[int] = []
    for count, blanket in clients:
        trials += [count] * len(blanket.components)
    if not trials:
        return [[]]
    chances = np.concatenate([blanket.masses for _, blanket in clients])
    variances = np.concatenate([blanket.variances for _, blanket in clients])
    ladder = monotone_corners(np.array(trials), chances, variances, steps=steps, tail=tail)
    return ladder.counts.tolist()


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
    delta: float,
    seconds: float,
) -> JsonObject:
    """One case, its noise from one blanket whose counts are divided.

    They are divided the finer, the more seconds a check may take.
    """
    order: list[int] = np.argsort(-blanket.masses * blanket.variances).tolist()
    components = tuple(blanket.components[index] for index in order)
    blanket = replace(blanket, components=components)
    masses = blanket.masses
    variances = blanket.variances
    single_corner: JsonObject = {"corners": [[0] * masses.size]}
    affordable_cells = int(seconds / _seconds(rows, others, single_corner))
    cells = max(_LEAST_CELLS, min(_MOST_CELLS, affordable_cells))
    boxed = boxed_components(masses.size)
    if boxed < masses.size:
        cells //= _RUNGS
    spacings = interval_spacings(max(others, 1), masses[:boxed], variances[:boxed], cells)
    tree = _boxes(others, masses, variances, spacings, _RUNGS, _CUT_SHARE * delta)
    return _one_case(rows, blanket, others, tree)


def _case(
    cover: Cover,
    case: IntArray,
    steps: int,
    tail: float,
    spare: float,
) -> JsonObject:
    """The tree below a case as the search divided it.

    What is within `spare` of the worst stays whole.
    """
    is_leaf = any((case == leaf).all() for leaf in cover.cases)
    epsilon = cover.epsilons.get(case.tobytes(), math.inf)
    if is_leaf or epsilon <= (1 + spare) * cover.epsilon:
        clients: list[tuple[int, Blanket]] = []
        for count, group in zip(case.tolist(), cover.groups, strict=True):
            if count and group.blanket is not None:
                clients.append((count, group.blanket))
        return {"corners": _ladder(clients, steps, tail)}
    divided = division(cover.groups, case)
    children: list[JsonObject] = []
    for smaller_case in divided.cases:
        children.append(_case(cover, smaller_case, steps, tail, spare))
    return {
        "group": divided.node,
        "first": divided.first,
        "second": divided.second,
        "cuts": divided.cuts,
        "children": children,
    }


def _one_case(
    rows: IntArray,
    blanket: Blanket | None,
    others: int,
    tree: JsonObject,
) -> JsonObject:
    """One case that holds every data set, its noise from one blanket, if any."""
    everyone = _blanket(tuple(range(rows.shape[0])), blanket)
    return {"blankets": [everyone], "others": 0 if blanket is None else others, "cases": tree}


def _shapes(
    rows: IntArray,
    others: int,
    delta: float,
    steps: int,
    budget: float,
) -> list[JsonObject]:
    """Contents of proofs that fit a budget of seconds.

    Of the cases, and of the best blanket in boxes and on a ladder.
    """
    tail = _CUT_SHARE * delta
    best = central_epsilon(rows, clients=others + 1, delta=delta)
    contents: list[JsonObject] = []
    if best.cover is not None:
        contents += _cover_contents(rows, best.cover, others, tail, steps, budget)
    blankets: list[Blanket] = []
    if best.blanket is not None:
        blankets = [best.blanket]
    elif others:
        blankets = shortlist(rows, others, delta)[:1]
    for blanket in blankets:
        if len(blanket.components) > 1:
            contents.append(_boxed(rows, blanket, others, delta, budget / 2))
        single_corner: JsonObject = {"corners": [[0] * len(blanket.components)]}
        affordable_rungs = int(budget / _seconds(rows, others, single_corner))
        rungs = min(steps, max(_LEAST_STEPS, affordable_rungs))
        ladder = _ladder([(others, blanket)], rungs, tail)
        contents.append(_one_case(rows, blanket, others, {"corners": ladder}))
    if not contents:
        contents = [_one_case(rows, None, others, {"corners": [[]]})]
    affordable = [
        content for content in contents if _seconds(rows, others, content["cases"]) < budget
    ]
    return affordable or contents[-1:]


def _cover_contents(
    rows: IntArray,
    cover: Cover,
    others: int,
    tail: float,
    steps: int,
    budget: float,
) -> list[JsonObject]:
    """Contents of proofs by cases: the finest division whose ladders are fine enough."""
    root = np.zeros(len(cover.groups), dtype=np.int64)
    root[0] = others
    blankets = [_blanket(group.members, group.blanket) for group in cover.groups]
    affordable_rungs = 0
    spare = _SPARES[-1]
    for spare in _SPARES:
        coarse = _case(cover, root, _LEAST_STEPS, tail, spare)
        step_seconds = _seconds(rows, others, coarse) / _LEAST_STEPS
        affordable_rungs = int(0.9 * budget / step_seconds)
        if affordable_rungs >= steps // 4:
            break
    contents: list[JsonObject] = []
    limits = (steps // 4, steps // 2)
    for rungs in {max(_LEAST_STEPS, min(limit, affordable_rungs)) for limit in limits}:
        cases = _case(cover, root, rungs, tail, spare)
        contents.append({"blankets": blankets, "others": others, "cases": cases})
    return contents


_PAIR_SECONDS = 1.5e-7
_COMPONENT_SECONDS = 2e-6
"""Processor time of a check, per output and corner, as measured."""

_LEAST_STEPS = 6
"""Steps of a ladder, however long a check takes."""

_RUNGS = 12
"""Steps of the ladders that stand on boxes."""


def _seconds(rows: IntArray, others: int, cases: JsonObject) -> float:
    """Estimated processor time of a check.

    The cost of each pair of rows and each component, per output and corner.
    """
    row_count, level_count = rows.shape
    values = np.arange(float(level_count))
    probabilities = rows / float(TOTAL)
    variances = probabilities @ values**2 - (probabilities @ values) ** 2
    largest_variance = float(np.max(variances))
    likely_width = 17 * math.sqrt(others * largest_variance)
    width = min(others * (level_count - 1), likely_width) + level_count
    return width * _corner_seconds(cases, row_count * (row_count - 1))


def _corner_seconds(node: JsonObject, pairs: int) -> float:
    """Of all corners below a node, per output."""
    if "children" in node:
        return sum(_corner_seconds(child, pairs) for child in node["children"])
    corners = node["corners"]
    components = 1 + len(corners[0])
    return len(corners) * (_PAIR_SECONDS * pairs + _COMPONENT_SECONDS * components)


def propose_sum(
    release: Release,
    epsilon: float,
    *,
    seconds: int = 60,
) -> Outcome:
    """A certified claim near the float epsilon of a table's secure sums."""
    rows, _ = release.summed

    def provers() -> Iterator[Prover]:
        claim_part: JsonObject = {"tables": [release.table.canonical()], "tail": TAIL}
        delta = release.delta
        budget = seconds / _TIME_MARGIN
        if release.releases > 1:
            claim_part |= _grids(epsilon, pure_epsilon(rows), release)
            delta = max(delta, TYPICAL_DELTA)
            budget /= _GRID_TIME
        for content in _shapes(rows, release.others, delta, _STEPS, budget):
            yield partial(sealed, kind="sum", **claim_part, **content)

    return beyond_pure(release, exact_release(release), epsilon, provers, seconds=seconds)


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
