"""Proofs about secure sums, from what the search found: blankets, the tree of cases, a ladder for every case.

Nothing here is trusted: the kernel checks that blankets fit, that cases hold all data sets, and what ladders miss.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]

from mezzotint import kernel
from mezzotint.core.loss import pure_epsilon
from mezzotint.core.mechanism import TOTAL, FloatArray, IntArray, Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.privacy.claim import Release
from mezzotint.privacy.propose import TAIL, Outcome, accepted, exact_rate, exact_text, pure_total, sealed
from mezzotint.privacy.sums.blanket import Blanket
from mezzotint.privacy.sums.cells import interval_edges, interval_spacings, ladder_cells
from mezzotint.privacy.sums.cost import central_epsilon, shortlist
from mezzotint.privacy.sums.cover import Cover, division
from mezzotint.privacy.sums.lattice import lattice_rows

_TRIES = 2
"""By how much a check should fall short of the time that it may take."""

_GRID = 3
"""By how much longer a divergence takes at all points of a grid than at one."""

_TYPICAL = 1e-5
"""A composition lives off the body of one sum's losses: its blanket is chosen at this delta."""


def _blanket(members: tuple[int, ...], blanket: Blanket | None) -> JsonObject:
    made: list[JsonObject] = []
    if blanket is not None:
        made = [{"shape": c.shape.tolist(), "places": c.shifts.tolist()} for c in blanket.components]
    return {"rows": list(members), "block": 1 if blanket is None else blanket.block, "components": made}


def _ladder(parts: list[tuple[int, Blanket]], steps: int, tail: float) -> list[list[int]]:
    """Corners for clients that draw from several blankets, in the kernel's order of components."""
    trials = [clients // blanket.block for clients, blanket in parts for _ in blanket.components]
    if not trials:
        return [[]]
    chances = np.concatenate([blanket.masses for _, blanket in parts])
    variances = np.concatenate([blanket.variances for _, blanket in parts])
    return ladder_cells(np.array(trials), chances, variances, steps=steps, tail=tail).counts.tolist()


def _boxes(
    draws: int, chances: FloatArray, variances: FloatArray, spacings: FloatArray, steps: int, tail: float
) -> JsonObject:
    """Counts of one component after the other, a ladder of those that are left when there are no more spacings."""
    if not spacings.size or chances[0] >= 1:
        if not chances.size:
            return {"corners": [[]]}
        ladder = ladder_cells(np.full(chances.size, draws), chances, variances, steps=steps, tail=tail)
        return {"corners": ladder.counts.tolist()}
    chance = float(chances[0])
    reach = 1.05 * math.sqrt(2 * math.log(1 / tail))
    edges: list[int] = interval_edges(draws, chance, float(spacings[0]), reach).tolist()
    children: list[JsonObject] = []
    for low, after in zip(edges, [*edges[1:], draws + 1], strict=True):
        weight = float(scipy.stats.binom.cdf(after - 1, draws, chance) - scipy.stats.binom.cdf(low - 1, draws, chance))
        rest = np.minimum(chances[1:] / (1 - chance), 1.0)
        if weight > tail:
            least = min(0.5, tail / weight)
            children.append(_boxes(draws + 1 - after, rest, variances[1:], spacings[1:], steps, least))
        else:
            children.append({"corners": [[0] * rest.size]})
    return {"edges": edges, "children": children}


def _boxed(rows: IntArray, blanket: Blanket, others: int, delta: float, seconds: float) -> JsonObject:
    """One case that holds every data set, its noise from one blanket whose counts are divided one after the other.

    Arguments:
        seconds: that a check may take; the more, the finer the boxes.
    """
    order: list[int] = np.argsort(-blanket.masses * blanket.variances).tolist()
    sorted_ = replace(blanket, components=tuple(blanket.components[index] for index in order))
    draws, masses, variances = others // blanket.block, sorted_.masses, sorted_.variances
    one = _seconds(rows, others, {"corners": [[0] * masses.size]})
    count = masses.size if masses.size < _BOXED else 2
    laddered = masses.size > count
    cells = max(16, min(1500, int(seconds / one))) // (_RUNGS if laddered else 1)
    spacings = interval_spacings(max(draws, 1), masses[:count], variances[:count], cells)
    tree = _boxes(draws, masses, variances, spacings, _RUNGS, 1e-4 * delta)
    everyone = tuple(range(rows.shape[0]))
    return {"blankets": [_blanket(everyone, sorted_)], "others": others, "cases": tree}


def _case(cover: Cover, case: IntArray, steps: int, tail: float, spare: float) -> JsonObject:
    """The tree below a case as the search divided it; what is within `spare` of the worst stays whole."""
    enough = cover.own.get(case.tobytes(), math.inf) <= (1 + spare) * cover.epsilon
    if enough or any((case == leaf).all() for leaf in cover.cases):
        parts = [
            (int(clients), group.blanket)
            for clients, group in zip(case, cover.groups, strict=True)
            if clients and group.blanket is not None
        ]
        return {"corners": _ladder(parts, steps, tail)}
    node, (first, second), cuts, parts = division(cover.groups, case)
    children = [_case(cover, part, steps, tail, spare) for part in parts]
    return {"group": node, "first": first, "second": second, "cuts": cuts, "children": children}


def _single(rows: IntArray, blanket: Blanket | None, others: int, delta: float, steps: int) -> JsonObject:
    """One case that holds every data set, its noise from one blanket; none without a blanket."""
    everyone = tuple(range(rows.shape[0]))
    corners: list[list[int]] = [[]] if blanket is None else _ladder([(others, blanket)], steps, 1e-4 * delta)
    used = 0 if blanket is None else others
    return {"blankets": [_blanket(everyone, blanket)], "others": used, "cases": {"corners": corners}}


def _shapes(rows: IntArray, others: int, delta: float, steps: int, budget: float) -> list[JsonObject]:
    """Contents of proofs that fit the budget: of the cases, of the best blanket in boxes and on a ladder.

    Arguments:
        budget: processor seconds of a check, as `_seconds` predicts them.
    """
    best = central_epsilon(rows, clients=others + 1, delta=delta)
    found: list[JsonObject] = []
    if best.cover is not None:
        root = np.where(np.arange(len(best.cover.groups)) == 0, others, 0)
        blankets = [_blanket(group.members, group.blanket) for group in best.cover.groups]
        for spare in (0.0, 0.005, 0.01, 0.02, 0.05):
            corner = _seconds(rows, others, _case(best.cover, root, _LEAST, 1e-4 * delta, spare)) / _LEAST
            fitting = int(0.9 * budget / corner)
            if fitting < steps // 4 and spare < 0.05:
                continue  # fewer cases, with ladders that are fine enough
            for corners in {max(_LEAST, min(most, fitting)) for most in (steps // 4, steps // 2)}:
                cases = _case(best.cover, root, corners, 1e-4 * delta, spare)
                found.append({"blankets": blankets, "others": others, "cases": cases})
            break
    blankets = [best.blanket] if best.blanket is not None else shortlist(rows, others, delta)[:1] if others else []
    for blanket in blankets:
        if len(blanket.components) > 1:
            found.append(_boxed(rows, blanket, others, delta, budget / 2))
        corner = _seconds(rows, others, {"corners": [[0] * len(blanket.components)]})
        found.append(_single(rows, blanket, others, delta, min(steps, max(_LEAST, int(budget / corner)))))
    found = found or [_single(rows, None, others, delta, steps)]
    affordable = [content for content in found if _seconds(rows, others, content["cases"]) < budget]
    return affordable or found[-1:]


_PAIR, _PART = 1.5e-7, 2e-6
"""Processor seconds, as measured."""

_LEAST = 6
"""Steps of a ladder, however long a check takes."""

_BOXED, _RUNGS = 4, 12
"""From so many components on two are divided and the others stand on ladders of so many steps."""


def _seconds(rows: IntArray, others: int, cases: JsonObject) -> float:
    """About how long a check takes: per output and corner, what each pair of rows and each component cost."""
    places, odds = np.arange(float(rows.shape[1])), rows / float(TOTAL)
    variance = float(np.max(odds @ places**2 - (odds @ places) ** 2))
    width = min(others * (rows.shape[1] - 1), 17 * math.sqrt(others * variance)) + rows.shape[1]
    return width * _pieces(cases, rows.shape[0] * (rows.shape[0] - 1))


def _pieces(node: JsonObject, pairs: int) -> float:
    if "corners" in node:
        return len(node["corners"]) * (_PAIR * pairs + _PART * (1 + len(node["corners"][0])))
    return sum(_pieces(child, pairs) for child in node["children"])


def propose_sum(
    mechanism: Mechanism,
    *,
    epsilon: float,
    delta: float,
    clients: int,
    corrupted: int = 0,
    coordinates: int = 1,
    rounds: int = 1,
    sampling: str = "none",
    rate: float = 1.0,
    steps: int = 48,
    seconds: int = 60,
) -> Outcome:
    """A certified claim near a float epsilon about secure sums.

    Arguments:
        epsilon, delta: what `account` found.
        clients, corrupted, coordinates, rounds, sampling, rate: as in `account`.
        steps: of a single blanket's ladder; cases take a quarter of them.
        seconds: processor time for each check.
    """
    rows, lattice = lattice_rows(mechanism)
    release = kernel.ExactRelease(
        observer="secure_sum", tables=((mechanism.sha256, coordinates),), rounds=rounds, sampling=sampling,
        rate=exact_rate(rate), clients=clients, corrupted=corrupted, lattice=tuple(lattice.integers.tolist()),
    )  # fmt: skip
    texts = [mechanism.canonical()]
    total = pure_total(pure_epsilon(rows), coordinates, rounds)
    plain = accepted(release, min(epsilon, total) if delta == 0 else total, delta, lambda claim: sealed(
        claim, "ratio", tables=texts), seconds=seconds)  # fmt: skip
    if delta == 0 or (plain.proof is not None and plain.claim.epsilon <= Fraction(epsilon)):
        return plain
    releases = coordinates * rounds
    shape: JsonObject = {"tables": texts, "tail": TAIL}
    if releases > 1:
        shape |= _grids(epsilon, pure_epsilon(rows), coordinates, rounds, sampling)
    typical = delta if releases == 1 else max(delta, _TYPICAL)
    budget = seconds / _TRIES / (1 if releases == 1 else _GRID)
    provers = [
        partial(sealed, kind="sum", **shape, **content)
        for content in _shapes(rows, clients - 1 - corrupted, typical, steps, budget)
    ]
    return accepted(release, epsilon, delta, *provers, otherwise=plain, seconds=seconds)


def propose_noise(
    table: Mechanism,
    release: Release,
    *,
    epsilon: float,
    dimension: int,
    shift: int,
    distance: int,
    order: float,
    seconds: int = 60,
) -> Outcome | str:
    """A certified claim near a float epsilon about sums of vectors to which every client adds integer noise.

    Arguments:
        table: of the noise, with two equal rows.
        release: rounds, clients and who takes part.
        epsilon: what `account` found.
        dimension: integers in a vector.
        shift, distance: by how much neighbours differ in one integer, and in the squares of all of one round.
        order: of the Renyi divergence.
        seconds: processor time for each check.
    """
    if release.participation not in ("none", "public"):
        return f"no kind of proof is about noise with {release.participation} sampling"
    used = np.flatnonzero(table.weights[0])
    described = kernel.ExactRelease(
        observer="secure_sum", tables=((table.sha256, dimension),), rounds=release.rounds,
        sampling="none" if release.participation == "none" else "revealed", rate=exact_rate(release.sampling_rate),
        clients=int(release.clients or 1), corrupted=release.corrupted, lattice=tuple((used - used[0]).tolist()),
        shift=shift, distance=Fraction(distance),
    )  # fmt: skip
    content: JsonObject = {"tables": [table.canonical()], "tail": TAIL}
    if dimension * release.rounds == 1 and release.participation == "none":
        kind = "sum"
    else:
        kind, content["order"] = "renyi", exact_text(order)
    return accepted(described, epsilon, release.delta, partial(sealed, kind=kind, **content), seconds=seconds)


def _grids(epsilon: float, single: float, coordinates: int, rounds: int, sampling: str) -> JsonObject:
    """Step and grids: losses of one sum are about epsilon / sqrt(releases) wide, and tails a few times that."""
    releases = coordinates * rounds
    wide = min(single, 60.0, 8 * epsilon / releases**0.5 + 1e-3)
    fineness = math.ceil(400 / wide)
    reach = math.ceil(wide * fineness)
    shape: JsonObject = {"step": f"1/{fineness}", "grid": {"low": -reach, "high": reach}}
    if sampling != "none":
        most = min(reach * coordinates, 40 * fineness)
        shape["sampled"] = {"low": -most, "high": most}
    return shape
