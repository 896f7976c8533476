"""What secure sums cost: the best bound of one sum, the claim of a whole release, and proofs that
are proposed for it.

The kernel checks that blankets fit, that cases hold all data sets, and what ladders miss.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from itertools import chain
from typing import final

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]

from mezzotint.core.arguments import check_delta, check_others
from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import pure_epsilon
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.core.search import bracket
from mezzotint.core.types import TOTAL, UNIT, FloatArray, IntArray
from mezzotint.privacy.claim import Claim, Release
from mezzotint.privacy.divergences import rdp_public_sampling, rdp_to_epsilon
from mezzotint.privacy.local import PRECISION, composed_epsilon
from mezzotint.privacy.profile import Profile
from mezzotint.privacy.propose import (
    TAIL,
    Outcome,
    Prover,
    accepted,
    beyond_pure,
    exact_release,
    exact_text,
    sealed,
)
from mezzotint.privacy.sums import lattice_rows
from mezzotint.privacy.sums.blanket import (
    Blanket,
    NoiseMixture,
    as_probabilities,
    blanket_noise,
    candidate_blankets,
    no_noise,
    pair_profile,
    pairs_by_gap,
    row_means,
    screen,
)
from mezzotint.privacy.sums.convolution import (
    interval_edges,
    interval_spacings,
    monotone_corners,
    multinomial_cells,
)
from mezzotint.privacy.sums.cover import Cover, cover, division
from mezzotint.privacy.sums.geometry import pure_epsilon_l2, quadratic_renyi, squared_distance
from mezzotint.privacy.tradeoffs import hockey_stick

_SMALL = 200
"""The most other clients for which every candidate is computed; above, a Gaussian score picks the
few best."""

_WORK = 4e5
"""Cells times window that one evaluation may cost, about."""


_TYPICAL = 1e-5
"""A composition of many releases lives off the body of one release's losses: its blanket is chosen
at this delta."""

MAX_EPSILON = 600.0
"""Curves end here: e**epsilon must stay a float. A larger finite epsilon is reported as inf."""

_BINS = 1024
"""A quarter of the grid points of a curve; chords between them cost a relative 1e-4 of delta or
less."""

_CURVE_ECONOMY = 2
"""A curve visits every pair of rows, so it affords fewer cells than one epsilon does."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class CentralBound:
    """An upper bound on epsilon of one sum, replace-one, worst over the other clients' inputs.

    `method` is the name of the `blanket` that gave it, "cases of inputs" with their `cover`, or
    "one report" when no other client's noise helps.
    """

    epsilon: float
    method: str
    blanket: Blanket | None = None
    cover: Cover | None = None


def _work_budget(blanket: Blanket, others: int) -> int:
    width = 15 * math.sqrt(max(blanket.variance * others, 1.0))
    return int(min(1500, max(16, _WORK / width)))


def kept_variance(blanket: Blanket, others: int, budget: int) -> float:
    """Variance that the blanket's cells keep on average, squared lattice steps; 0 when its residue
    leaks."""
    if blanket.leaks:
        return 0.0
    variances = blanket.variances
    cells = multinomial_cells(others, blanket.masses, variances, budget=budget)
    return float(cells.probability @ (cells.counts @ variances))


def _score(blanket: Blanket, others: int, gap: float, delta: float) -> float:
    """Roughly the epsilon at `delta`, from a Gaussian of each cell's variance. Ranks candidates,
    claims nothing."""
    variances = blanket.variances
    cells = multinomial_cells(
        others,
        blanket.masses,
        variances,
        budget=_work_budget(blanket, others),
        tail=1e-2 * delta,
    )
    found = _gaussian_epsilon(cells.probability, cells.counts @ variances, gap, delta)
    return found + (1e6 if blanket.leaks else 0.0)


def _gaussian_epsilon(
    probability: FloatArray, variance: FloatArray, gap: float, delta: float
) -> float:
    """Epsilon of a mixture of Gaussians with these variances and means `gap` apart."""
    mu = gap / np.sqrt(np.maximum(variance, 1e-3))
    kept = bracket(
        lambda e: float(probability @ hockey_stick(mu, np.array(e))) <= delta,
        200.0,
        0.0,
        tolerance=1e-6,
    )
    return kept[0]


def shortlist(rows: IntArray, others: int, delta: float) -> list[Blanket]:
    """Blankets to compute for this many other clients, the most promising first."""
    found = list(candidate_blankets(rows))
    if others <= _SMALL:
        return found
    means = row_means(as_probabilities(rows))
    gap = max(float(means.max() - means.min()), 1e-6)
    few = 1 if others > 10**5 else 2
    ranked: list[tuple[float, int]] = []
    # Cells keep less variance than there is on average, so that the score with all of it is the
    # best that can come: those with most variance first, until enough are better than that.
    for place in sorted(
        range(len(found)), key=lambda place: (found[place].leaks, -found[place].variance)
    ):
        blanket = found[place]
        all_of_it = np.array([max(blanket.variance, 1e-9) * others])
        if (
            len(ranked) >= few
            and _gaussian_epsilon(np.ones(1), all_of_it, gap, delta) >= ranked[few - 1][0]
        ):
            break
        ranked = sorted([*ranked, (_score(blanket, others, gap, max(delta, 1e-15)), place)])
    return [found[place] for _, place in ranked[:few]]


def _worst_epsilon(noise: NoiseMixture, rows: FloatArray, delta: float, limit: float) -> float:
    """The least epsilon that serves every pair of rows; pairs are computed only when screening asks
    for it."""
    epsilon = 0.0
    done = pairs_by_gap(rows)[:2]
    for first, second in done:
        epsilon = max(epsilon, pair_profile(noise, rows[first], rows[second]).epsilon(delta))
    while epsilon < limit:
        above = screen(noise, rows, epsilon)
        # The pairs computed already are at delta by construction, up to rounding.
        for pair in done:
            above[pair] = 0.0
        worst = np.unravel_index(int(above.argmax()), above.shape)
        first, second = (int(index) for index in worst)
        if above[worst] <= delta:
            return epsilon
        done.append((first, second))
        epsilon = max(epsilon, pair_profile(noise, rows[first], rows[second]).epsilon(delta))
    return limit


def central_epsilon(
    rows: IntArray, *, clients: int, delta: float, corrupted: int = 0
) -> CentralBound:
    """epsilon of one secure sum at `delta`: the best of the blankets tried (Theorems S and S') and
    of a cover by cases.

    Arguments:
        rows: of the table on its lattice (`lattice_rows`).
        clients: how many reports are added, the protected one included.
        delta: in [0, 1); at 0 the answer is the pure epsilon of one report.
        corrupted: clients that add no honest noise (dishonest, or known to the adversary).

    Guarantees: never below the exact worst case over all inputs of the other clients; never above
        one report's own epsilon, which it is without other clients or common noise.
    Source: docs/proofs/sums.md, Theorems S and S', and "Cover".
    """
    others = check_others(clients, corrupted)
    target = check_delta(delta)
    limit = pure_epsilon(rows)
    table = as_probabilities(rows)
    best = CentralBound(
        epsilon=_worst_epsilon(no_noise(), table, target, limit), method="one report"
    )
    if target == 0 or others == 0 or best.epsilon == 0:
        return best
    for blanket in shortlist(rows, others, target):
        noise = blanket_noise(
            blanket, others, budget=_work_budget(blanket, others), tail=1e-4 * target
        )
        first, second = pairs_by_gap(table)[0]
        if pair_profile(noise, table[first], table[second]).epsilon(target) >= best.epsilon:
            continue
        epsilon = _worst_epsilon(noise, table, target, limit)
        if epsilon < best.epsilon:
            best = CentralBound(epsilon=epsilon, method=blanket.name, blanket=blanket)
    cases = cover(rows, others=others, delta=target, limit=limit, known=best.epsilon)
    if cases is not None and cases.epsilon < best.epsilon:
        best = CentralBound(epsilon=cases.epsilon, method="cases of inputs", cover=cases)
    return best


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Envelope:
    """Upper bounds on the largest divergence of all pairs of rows: (g,) increasing epsilons from 0,
    (g,) deltas."""

    epsilons: FloatArray
    deltas: FloatArray

    @staticmethod
    def of(noises: Iterable[NoiseMixture], rows: FloatArray, limit: float) -> Envelope:
        """Over all pairs of rows under each of the noises, the worst of which comes first; 0 from a
        finite `limit` on."""
        pairs = pairs_by_gap(rows)
        if not pairs:  # one row: inputs make no difference
            return Envelope(epsilons=np.zeros(1), deltas=np.zeros(1))
        others = iter(noises)
        worst = next(others)
        widest = pair_profile(worst, rows[pairs[0][0]], rows[pairs[0][1]])
        grid = _grid_for(widest, limit)
        deltas = np.zeros(grid.size)
        for noise in chain([worst], others):
            for first, second in pairs:
                profile = pair_profile(noise, rows[first], rows[second])
                np.maximum(deltas, profile.deltas(grid), out=deltas)
        if limit <= MAX_EPSILON:
            below = grid < limit
            grid, deltas = np.append(grid[below], limit), np.append(deltas[below], 0.0)
        return Envelope(epsilons=grid, deltas=deltas)

    def smaller(self, other: Envelope) -> Envelope:
        """The smaller of two envelopes that both hold: chords in e**epsilon bound the true
        curve."""
        grid = np.union1d(self.epsilons, other.epsilons)
        bounds = [
            np.interp(np.expm1(grid), np.expm1(one.epsilons), np.minimum.accumulate(one.deltas))
            for one in (self, other)
        ]
        return Envelope(epsilons=grid, deltas=np.minimum(*bounds) * (1 + 64 * UNIT))

    def profile(self) -> Profile:
        """The symmetric pair with this curve."""
        return Profile.of_curve(self.epsilons, self.deltas)


def _grid_for(widest: Profile, limit: float) -> FloatArray:
    """Epsilons for all pairs: dense where the widest pair's curve lives, out to where any pair may
    still have mass."""
    top = min(limit, 64.0)
    reach = top
    for _ in range(2):
        # Each pass ends the grid where the last one saw nothing but the floor.
        grid = np.linspace(0.0, reach, _BINS)
        deltas = widest.deltas(grid)
        alive = np.flatnonzero(deltas > deltas[-1] + 1e-18 + 1e-3 * widest.infinite)
        reach = float(grid[min(int(alive[-1]) + 2, _BINS - 1)]) if alive.size else 1e-9
    return np.unique(
        np.concatenate(
            [np.linspace(0, min(limit, 1.05 * reach), 2 * _BINS), np.linspace(0, top, _BINS)]
        )
    )


def dominating_profile(
    rows: IntArray,
    *,
    clients: int,
    corrupted: int = 0,
    delta: float = 1e-12,
    silent: int | None = None,
) -> Profile:
    """The profile of one secure sum, both directions, worst over pairs and other inputs.

    Arguments:
        rows, clients, corrupted: as in `central_epsilon`.
        delta: where the curve should be tight (the delta of the claim it serves, over the number of
            releases).
        silent: the integer that an absent client adds; None when the client is there for certain.
    """
    others = check_others(clients, corrupted)
    limit = pure_epsilon(rows)
    table = as_probabilities(rows)
    if silent is not None:
        absent = np.zeros((1, rows.shape[1]))
        absent[0, silent] = 1.0
        table, limit = np.concatenate([table, absent]), math.inf
    target = min(max(check_delta(delta), 1e-25), 1e-4)
    curve = Envelope.of([no_noise()], table, limit)
    best = central_epsilon(rows, clients=clients, corrupted=corrupted, delta=max(target, _TYPICAL))
    if best.cover is not None:
        curve = curve.smaller(Envelope.of(best.cover.noises(1e-4 * target), table, limit))
    elif best.blanket is not None:
        budget = _work_budget(best.blanket, others) // (1 if others <= _SMALL else _CURVE_ECONOMY)
        noise = blanket_noise(best.blanket, others, budget=max(budget, 8), tail=1e-4 * target)
        curve = curve.smaller(Envelope.of([noise], table, limit))
    return curve.profile()


PURE = "pure composition of single reports"
COMPOSED = "secure sums, losses composed"
RENYI_L2 = "Renyi composition under the L2 bound"
PURE_L2 = "pure composition under the L2 bound"
_ORDERS = (
    1.1,
    1.25,
    1.5,
    2.0,
    2.5,
    3.0,
    4.0,
    5.0,
    6.0,
    8.0,
    10.0,
    12.0,
    16.0,
    20.0,
    24.0,
    32.0,
    48.0,
    64.0,
)
_L2_CELLS = 12


def _single(run: Release, curve_delta: float) -> tuple[Profile, float]:
    """The profile of one sum of one coordinate, and the probability that too few others took part
    for it."""
    (rows, lattice), others = run.summed, run.others
    if run.participation != "poisson":
        return dominating_profile(
            rows, clients=int(run.clients or 1), corrupted=run.corrupted, delta=curve_delta
        ), 0.0
    # The others take part at random: given how many did (revealed to the adversary), the bound
    # falls in their number.
    few = 1e-3 * run.delta / run.rounds
    least = int(scipy.stats.binom.ppf(few / 2, others, run.sampling_rate))
    missed = (
        float(scipy.stats.binom.cdf(least - 1, others, run.sampling_rate)) * (1 + 1e-9)
        if least > 0
        else 0.0
    )
    zero = -lattice.offset / lattice.step
    if abs(zero - round(zero)) > 1e-9 or not 0 <= round(zero) <= lattice.span:
        remedy = "an absent client adds 0, which is not a level's integer; use sampling='public' or a lattice with 0"
        raise ParameterError("sampling", "poisson", remedy)
    profile = dominating_profile(
        rows, clients=max(least, 0) + 1, delta=curve_delta, silent=round(zero)
    )
    return profile, missed


def _composed(run: Release) -> float:
    """Epsilon by losses of sums, composed over coordinates, then over rounds with their
    participation."""
    if run.delta == 0:
        return math.inf
    if run.releases == 1 and run.participation == "none":
        rows, _ = run.summed
        return central_epsilon(
            rows, clients=int(run.clients or 1), corrupted=run.corrupted, delta=run.delta
        ).epsilon
    profile, missed = _single(run, run.delta / run.releases)
    remaining = run.delta - missed * run.rounds
    if remaining <= 0:
        return math.inf
    return composed_epsilon(profile, run, remaining, (PRECISION, 1e-2, 1.0))


def others_noise(mechanism: Mechanism, others: int) -> NoiseMixture:
    """Noise that `others` honest clients' reports of the table hold in common, whatever their
    inputs."""
    found = shortlist(lattice_rows(mechanism)[0], others, 1e-5) if others else []
    if not found:
        return no_noise()
    best = max(found, key=lambda blanket: kept_variance(blanket, others, _L2_CELLS))
    return blanket_noise(best, others, budget=_L2_CELLS, tail=1e-25)


def _renyi_l2(run: Release) -> float:
    """Epsilon from kappa ||x - x'||^2 <= 4 kappa C^2 per round."""
    if (
        run.clip_norm is None
        or run.delta == 0
        or run.participation in ("poisson", "without_replacement")
    ):
        return math.inf
    noise = others_noise(run.table, run.others)
    square = squared_distance(run.table, coordinates=run.dimension, l2_norm=run.clip_norm)

    @cache
    def value(index: int) -> float:
        alpha = _ORDERS[index]
        per_round = rdp_public_sampling(
            square * quadratic_renyi(run.table, noise, alpha), alpha, run.sampling_rate
        )
        return rdp_to_epsilon(run.rounds * per_round, alpha, run.delta)

    # kappa is nearly linear in alpha, so epsilon falls, then rises: the first order that is no
    # worse than the next.
    return value(
        bisect_left(
            range(len(_ORDERS) - 1), True, key=lambda index: value(index) <= value(index + 1)
        )
    )


def _pure_l2(run: Release) -> float:
    if run.clip_norm is None:
        return math.inf
    single = pure_epsilon_l2(run.table, coordinates=run.dimension, l2_norm=run.clip_norm)
    return run.rounds * single * (1 + 4 * UNIT)


def account_sum(run: Release) -> Claim:
    """The cost of `rounds` secure sums of vectors, of which only the sums are seen.

    Raises:
        ParameterError: levels off every lattice (with the remedy); silence that is not on it.

    Guarantees:
        epsilon never below the exact worst case over all inputs of all clients; never above pure
        composition.
    Edge cases: clients = 1: the numbers of seen reports. delta = 0: pure composition (of vectors
        under an L2 bound).
    Source: docs/proofs/sums.md (S, S'), docs/proofs/sums-l2.md.
    """
    _ = run.summed  # levels off every lattice are refused before anything is computed
    return run.claim(
        {PURE: run.pure, COMPOSED: _composed(run), RENYI_L2: _renyi_l2(run), PURE_L2: _pure_l2(run)}
    )


# Proofs: nothing from here on is trusted ----------------------------------------------------------

_TRIES = 2
"""A check should take this many times less than it may."""

_GRID = 3
"""How many times longer a divergence takes at all points of a grid than at one."""

_STEPS = 48
"""Steps of a single blanket's ladder; cases take a quarter of them."""


def _blanket(members: tuple[int, ...], blanket: Blanket | None) -> JsonObject:
    made: list[JsonObject] = []
    if blanket is not None:
        made = [
            {"shape": c.shape.tolist(), "places": c.shifts.tolist()} for c in blanket.components
        ]
    return {
        "rows": list(members),
        "block": 1,
        "components": made,
    }


def _ladder(parts: list[tuple[int, Blanket]], steps: int, tail: float) -> list[list[int]]:
    """Corners for clients that draw from several blankets, in the kernel's order of components."""
    trials = [clients for clients, blanket in parts for _ in blanket.components]
    if not trials:
        return [[]]
    chances = np.concatenate([blanket.masses for _, blanket in parts])
    variances = np.concatenate([blanket.variances for _, blanket in parts])
    return monotone_corners(
        np.array(trials), chances, variances, steps=steps, tail=tail
    ).counts.tolist()


def _boxes(
    draws: int,
    chances: FloatArray,
    variances: FloatArray,
    spacings: FloatArray,
    steps: int,
    tail: float,
) -> JsonObject:
    """Counts of one component after the other, a ladder of those that are left when there are no
    more spacings."""
    if not spacings.size or chances[0] >= 1:
        if not chances.size:
            return {"corners": [[]]}
        ladder = monotone_corners(
            np.full(chances.size, draws), chances, variances, steps=steps, tail=tail
        )
        return {"corners": ladder.counts.tolist()}
    chance = float(chances[0])
    reach = 1.05 * math.sqrt(2 * math.log(1 / tail))
    edges: list[int] = interval_edges(draws, chance, float(spacings[0]), reach).tolist()
    children: list[JsonObject] = []
    for low, after in zip(edges, [*edges[1:], draws + 1], strict=True):
        weight = float(
            scipy.stats.binom.cdf(after - 1, draws, chance)
            - scipy.stats.binom.cdf(low - 1, draws, chance)
        )
        rest = np.minimum(chances[1:] / (1 - chance), 1.0)
        if weight > tail:
            least = min(0.5, tail / weight)
            children.append(
                _boxes(draws + 1 - after, rest, variances[1:], spacings[1:], steps, least)
            )
        else:
            children.append({"corners": [[0] * rest.size]})
    return {"edges": edges, "children": children}


def _boxed(
    rows: IntArray, blanket: Blanket, others: int, delta: float, seconds: float
) -> JsonObject:
    """One case, its noise from one blanket whose counts are divided: the finer, the more seconds a
    check may take."""
    order: list[int] = np.argsort(-blanket.masses * blanket.variances).tolist()
    sorted_ = replace(blanket, components=tuple(blanket.components[index] for index in order))
    masses, variances = sorted_.masses, sorted_.variances
    one = _seconds(rows, others, {"corners": [[0] * masses.size]})
    count = masses.size if masses.size < _BOXED else 2
    laddered = masses.size > count
    cells = max(16, min(1500, int(seconds / one))) // (_RUNGS if laddered else 1)
    spacings = interval_spacings(max(others, 1), masses[:count], variances[:count], cells)
    return _one_case(
        rows, sorted_, others, _boxes(others, masses, variances, spacings, _RUNGS, 1e-4 * delta)
    )


def _case(cover: Cover, case: IntArray, steps: int, tail: float, spare: float) -> JsonObject:
    """The tree below a case as the search divided it; what is within `spare` of the worst stays
    whole."""
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


def _one_case(rows: IntArray, blanket: Blanket | None, others: int, tree: JsonObject) -> JsonObject:
    """One case that holds every data set, its noise from one blanket, if any."""
    everyone = _blanket(tuple(range(rows.shape[0])), blanket)
    return {"blankets": [everyone], "others": 0 if blanket is None else others, "cases": tree}


def _shapes(
    rows: IntArray, others: int, delta: float, steps: int, budget: float
) -> list[JsonObject]:
    """Contents of proofs that fit a budget of seconds: of the cases, of the best blanket in boxes
    and on a ladder."""
    best, tail = central_epsilon(rows, clients=others + 1, delta=delta), 1e-4 * delta
    found: list[JsonObject] = []
    if best.cover is not None:
        root = np.where(np.arange(len(best.cover.groups)) == 0, others, 0)
        blankets = [_blanket(group.members, group.blanket) for group in best.cover.groups]
        for spare in (0.0, 0.005, 0.01, 0.02, 0.05):
            corner = _seconds(rows, others, _case(best.cover, root, _LEAST, tail, spare)) / _LEAST
            fitting = int(0.9 * budget / corner)
            if fitting < steps // 4 and spare < 0.05:
                continue  # fewer cases, with ladders that are fine enough
            for corners in {max(_LEAST, min(most, fitting)) for most in (steps // 4, steps // 2)}:
                cases = _case(best.cover, root, corners, tail, spare)
                found.append({"blankets": blankets, "others": others, "cases": cases})
            break
    blankets = (
        [best.blanket]
        if best.blanket is not None
        else shortlist(rows, others, delta)[:1]
        if others
        else []
    )
    for blanket in blankets:
        if len(blanket.components) > 1:
            found.append(_boxed(rows, blanket, others, delta, budget / 2))
        corner = _seconds(rows, others, {"corners": [[0] * len(blanket.components)]})
        ladder = _ladder([(others, blanket)], min(steps, max(_LEAST, int(budget / corner))), tail)
        found.append(_one_case(rows, blanket, others, {"corners": ladder}))
    found = found or [_one_case(rows, None, others, {"corners": [[]]})]
    affordable = [content for content in found if _seconds(rows, others, content["cases"]) < budget]
    return affordable or found[-1:]


_PAIR, _PART = 1.5e-7, 2e-6
"""Processor seconds, as measured."""

_LEAST = 6
"""Steps of a ladder, however long a check takes."""

_BOXED, _RUNGS = 4, 12
"""From this many components on two are divided, and the others stand on ladders with this many
steps."""


def _seconds(rows: IntArray, others: int, cases: JsonObject) -> float:
    """Estimated processor time of a check: the cost of each pair of rows and each component, per
    output and corner."""
    places, odds = np.arange(float(rows.shape[1])), rows / float(TOTAL)
    variance = float(np.max(odds @ places**2 - (odds @ places) ** 2))
    width = min(others * (rows.shape[1] - 1), 17 * math.sqrt(others * variance)) + rows.shape[1]
    return width * _pieces(cases, rows.shape[0] * (rows.shape[0] - 1))


def _pieces(node: JsonObject, pairs: int) -> float:
    if "corners" in node:
        return len(node["corners"]) * (_PAIR * pairs + _PART * (1 + len(node["corners"][0])))
    return sum(_pieces(child, pairs) for child in node["children"])


def propose_sum(release: Release, epsilon: float, *, seconds: int = 60) -> Outcome:
    """A certified claim near the float epsilon of a table's secure sums."""
    rows, lattice = release.summed

    def provers() -> Iterator[Prover]:
        shape: JsonObject = {"tables": [release.table.canonical()], "tail": TAIL}
        typical, budget = release.delta, seconds / _TRIES
        if release.releases > 1:
            shape |= _grids(epsilon, pure_epsilon(rows), release)
            typical, budget = max(typical, _TYPICAL), budget / _GRID
        for content in _shapes(rows, release.others, typical, _STEPS, budget):
            yield partial(sealed, kind="sum", **shape, **content)

    exact = exact_release(release, lattice=tuple(lattice.integers.tolist()))
    return beyond_pure(release, exact, epsilon, provers, seconds=seconds)


def propose_noise(
    release: Release, epsilon: float, *, shift: int, distance: int, order: float, seconds: int = 60
) -> Outcome | str:
    """A certified claim near the float epsilon of sums of vectors to which every client adds
    integer noise.

    Arguments:
        release: of the noise's table, which has two equal rows; one report for each integer of a
            vector.
        shift, distance: by how much neighbours differ in one integer, and in the squares of all of
            one round.
        order: of the Renyi divergence.
    """
    if release.participation not in ("none", "public"):
        return f"no kind of proof is about noise with {release.participation} sampling"
    used = np.flatnonzero(release.table.weights[0])
    exact = exact_release(
        release, lattice=tuple((used - used[0]).tolist()), shift=shift, distance=Fraction(distance)
    )
    content: JsonObject = {"tables": [release.table.canonical()], "tail": TAIL}
    if release.releases == 1 and release.participation == "none":
        kind = "sum"
    else:
        kind, content["order"] = "renyi", exact_text(order)
    return accepted(
        exact, epsilon, release.delta, partial(sealed, kind=kind, **content), seconds=seconds
    )


def _grids(epsilon: float, single: float, release: Release) -> JsonObject:
    """Step and grids: losses of one sum are about epsilon / sqrt(releases) wide, and tails a few
    times that."""
    wide = min(single, 60.0, 8 * epsilon / release.releases**0.5 + 1e-3)
    fineness = math.ceil(400 / wide)
    reach = math.ceil(wide * fineness)
    shape: JsonObject = {"step": f"1/{fineness}", "grid": {"low": -reach, "high": reach}}
    if release.participation != "none":
        most = min(reach * release.dimension, 40 * fineness)
        shape["sampled"] = {"low": -most, "high": most}
    return shape
