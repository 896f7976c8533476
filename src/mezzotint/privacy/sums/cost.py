"""What secure sums cost: the best bound of one sum, and the claim of a whole release."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import chain
from typing import final

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]

from mezzotint.core.arguments import check_delta, check_others
from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import pure_epsilon
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.search import bracket
from mezzotint.core.types import UNIT, FloatArray, IntArray
from mezzotint.privacy.claim import Claim, Release
from mezzotint.privacy.divergences import rdp_public_sampling, rdp_to_epsilon
from mezzotint.privacy.local import PRECISION, composed_epsilon
from mezzotint.privacy.profile import Profile
from mezzotint.privacy.sums import Lattice, lattice_rows
from mezzotint.privacy.sums.blanket import Blanket, as_probabilities, row_means
from mezzotint.privacy.sums.candidates import candidate_blankets
from mezzotint.privacy.sums.counts import multinomial_cells
from mezzotint.privacy.sums.cover import Cover, cover
from mezzotint.privacy.sums.geometry import pure_epsilon_l2, quadratic_renyi, squared_distance
from mezzotint.privacy.sums.noise import (
    NoiseMixture,
    blanket_noise,
    no_noise,
    pair_profile,
    pairs_by_gap,
    screen,
    widest_epsilon,
)
from mezzotint.privacy.tradeoffs import hockey_stick

_SMALL_CROWD = 200
"""The most other clients for which every candidate is computed; above, a Gaussian score picks the
few best."""

_LARGE_CROWD = 10**5
"""Above it only the best candidate is computed."""

_WORK = 5e5
"""Cells times window that one evaluation may cost, about."""

_LEAST_CELLS = 16
_MOST_CELLS = 1500


TYPICAL_DELTA = 1e-5
"""A composition of many releases lives off the body of one release's losses: its blanket is chosen
at this delta."""

MAX_EPSILON = 600.0
"""Curves end here: e**epsilon must stay a float. A larger finite epsilon is reported as inf."""

_GRID_POINTS = 1024
"""A quarter of the grid points of a curve; chords between them cost a relative 1e-4 of delta or
less."""

_CURVE_ECONOMY = 2
"""A curve visits every pair of rows, so it affords fewer cells than one epsilon does."""

_CUT_SHARE = 1e-4
"""Share of delta that noise may cut off."""

_LARGEST_SCORE = 200.0
"""Largest epsilon of a Gaussian score."""

_LEAK_PENALTY = 1e6
"""Added to the score of a blanket whose residue leaks."""

_LEAST_REACH = 1e-9
"""End of the dense part of a grid on which nothing is above the floor."""

_LARGEST_GRID_EPSILON = 64.0


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class CentralBound:
    """An upper bound on epsilon of one sum, replace-one, worst over the other clients' inputs.

    Arguments:
        epsilon: the bound.
        method: the name of the `blanket` that gave it, "cases of inputs" with their `cover`, or
            "one report" when no other client's noise helps.
    """

    epsilon: float
    method: str
    blanket: Blanket | None = None
    cover: Cover | None = None


def _cell_budget(blanket: Blanket, others: int) -> int:
    width = 15 * math.sqrt(max(blanket.variance * others, 1.0))
    return int(min(_MOST_CELLS, max(_LEAST_CELLS, _WORK / width)))


def kept_variance(blanket: Blanket, others: int, budget: int) -> float:
    """Variance that the blanket's cells keep on average, squared lattice steps.

    0 when its residue leaks.
    """
    if blanket.leaks:
        return 0.0
    cells = multinomial_cells(others, blanket.masses, blanket.variances, budget=budget)
    cell_variances = cells.counts @ blanket.variances
    return float(cells.probability @ cell_variances)


def _score(
    blanket: Blanket,
    others: int,
    gap: float,
    delta: float,
) -> float:
    """Roughly the epsilon at `delta`, from a Gaussian of each cell's variance.

    Ranks candidates, claims nothing.
    """
    cells = multinomial_cells(
        others,
        blanket.masses,
        blanket.variances,
        budget=_cell_budget(blanket, others),
        tail=1e-2 * delta,
    )
    variance = cells.counts @ blanket.variances
    epsilon = _gaussian_epsilon(cells.probability, variance, gap, delta)
    if blanket.leaks:
        return epsilon + _LEAK_PENALTY
    return epsilon


def _gaussian_epsilon(
    probability: FloatArray,
    variance: FloatArray,
    gap: float,
    delta: float,
) -> float:
    """Epsilon of a mixture of Gaussians with these variances and means `gap` apart."""
    shift = gap / np.sqrt(np.maximum(variance, 1e-3))

    def holds(epsilon: float) -> bool:
        deltas = hockey_stick(shift, np.array(epsilon))
        return float(probability @ deltas) <= delta

    epsilon, _ = bracket(holds, _LARGEST_SCORE, 0.0, tolerance=1e-6)
    return epsilon


def shortlist(rows: IntArray, others: int, delta: float) -> list[Blanket]:
    """Blankets to compute for this many other clients, the most promising first."""
    candidates = list(candidate_blankets(rows))
    if others <= _SMALL_CROWD:
        return candidates
    means = row_means(as_probabilities(rows))
    gap = max(float(means.max() - means.min()), 1e-6)
    length = 2
    if others > _LARGE_CROWD:
        length = 1

    def leaks_then_variance(index: int) -> tuple[bool, float]:
        blanket = candidates[index]
        return blanket.leaks, -blanket.variance

    # Cells keep less variance than there is on average, so that the score with all of it is the
    # best that can come: those with most variance first, until enough are better than that.
    by_variance = sorted(range(len(candidates)), key=leaks_then_variance)
    scored: list[tuple[float, int]] = []
    for index in by_variance:
        blanket = candidates[index]
        if len(scored) >= length:
            last_score, _ = scored[length - 1]
            variance = np.array([max(blanket.variance, 1e-9) * others])
            best_score = _gaussian_epsilon(np.ones(1), variance, gap, delta)
            if best_score >= last_score:
                break
        score = _score(blanket, others, gap, max(delta, 1e-15))
        scored.append((score, index))
        scored.sort()
    return [candidates[index] for _, index in scored[:length]]


def _worst_epsilon(
    noise: NoiseMixture,
    rows: FloatArray,
    delta: float,
    limit: float,
) -> float:
    """The least epsilon that serves every pair of rows, at most `limit`.

    Pairs are computed only when screening asks for it.
    """
    computed = pairs_by_gap(rows)[:2]
    epsilon = widest_epsilon(noise, rows, delta)
    while epsilon < limit:
        divergences = screen(noise, rows, epsilon)
        # The pairs computed already are at delta by construction, up to rounding.
        for pair in computed:
            divergences[pair] = 0.0
        first, second = divmod(int(divergences.argmax()), len(divergences))
        if divergences[first, second] <= delta:
            return epsilon
        computed.append((first, second))
        profile = pair_profile(noise, rows[first], rows[second])
        epsilon = max(epsilon, profile.epsilon(delta))
    return limit


def central_epsilon(
    rows: IntArray,
    *,
    clients: int,
    delta: float,
    corrupted: int = 0,
) -> CentralBound:
    """epsilon of one secure sum at `delta`: the best of the blankets tried and of a cover by cases.

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
    delta = check_delta(delta)
    limit = pure_epsilon(rows)
    table = as_probabilities(rows)
    alone = _worst_epsilon(no_noise(), table, delta, limit)
    best = CentralBound(epsilon=alone, method="one report")
    if delta == 0 or others == 0 or alone == 0:
        return best
    first, second = pairs_by_gap(table)[0]
    for blanket in shortlist(rows, others, delta):
        budget = _cell_budget(blanket, others)
        noise = blanket_noise(blanket, others, budget=budget, tail=_CUT_SHARE * delta)
        if pair_profile(noise, table[first], table[second]).epsilon(delta) >= best.epsilon:
            continue
        epsilon = _worst_epsilon(noise, table, delta, limit)
        if epsilon < best.epsilon:
            best = CentralBound(epsilon=epsilon, method=blanket.name, blanket=blanket)
    cases = cover(
        rows,
        others=others,
        delta=delta,
        limit=limit,
        known=best.epsilon,
    )
    if cases is not None and cases.epsilon < best.epsilon:
        best = CentralBound(
            epsilon=cases.epsilon,
            method="cases of inputs",
            cover=cases,
        )
    return best


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Envelope:
    """Upper bounds on the largest divergence of all pairs of rows.

    Arguments:
        epsilons: (g,) increasing, from 0.
        deltas: (g,) bounds.
    """

    epsilons: FloatArray
    deltas: FloatArray

    @staticmethod
    def of(
        noises: Iterable[NoiseMixture],
        rows: FloatArray,
        limit: float,
    ) -> Envelope:
        """Over all pairs of rows under each of the noises, the worst of which comes first.

        0 from a finite `limit` on.
        """
        pairs = pairs_by_gap(rows)
        if not pairs:  # one row: inputs make no difference
            return Envelope(epsilons=np.zeros(1), deltas=np.zeros(1))
        remaining = iter(noises)
        worst_noise = next(remaining)
        first, second = pairs[0]
        widest = pair_profile(worst_noise, rows[first], rows[second])
        grid = _grid_for(widest, limit)
        deltas = np.zeros(grid.size)
        for noise in chain([worst_noise], remaining):
            for first, second in pairs:
                profile = pair_profile(noise, rows[first], rows[second])
                np.maximum(deltas, profile.deltas(grid), out=deltas)
        if limit <= MAX_EPSILON:
            below = grid < limit
            grid = np.append(grid[below], limit)
            deltas = np.append(deltas[below], 0.0)
        return Envelope(epsilons=grid, deltas=deltas)

    def smaller(self, second: Envelope) -> Envelope:
        """The smaller of two envelopes that both hold: chords in e**epsilon bound the true curve."""
        grid = np.union1d(self.epsilons, second.epsilons)
        deltas = np.minimum(self._chords(grid), second._chords(grid))
        return Envelope(epsilons=grid, deltas=deltas * (1 + 64 * UNIT))

    def _chords(self, grid: FloatArray) -> FloatArray:
        falling = np.minimum.accumulate(self.deltas)
        return np.interp(np.expm1(grid), np.expm1(self.epsilons), falling)

    def profile(self) -> Profile:
        """The symmetric pair with this curve."""
        return Profile.of_curve(self.epsilons, self.deltas)


def _grid_for(widest: Profile, limit: float) -> FloatArray:
    """Epsilons for all pairs: dense where the widest pair's curve lives.

    They go on to where any pair may still have mass.
    """
    top = min(limit, _LARGEST_GRID_EPSILON)
    reach = top
    for _ in range(2):
        # Each pass ends the grid where the last one saw nothing but the floor.
        grid = np.linspace(0.0, reach, _GRID_POINTS)
        deltas = widest.deltas(grid)
        floor = deltas[-1] + 1e-18 + 1e-3 * widest.infinite
        above_floor = np.flatnonzero(deltas > floor)
        reach = _LEAST_REACH
        if above_floor.size:
            end = min(int(above_floor[-1]) + 2, _GRID_POINTS - 1)
            reach = float(grid[end])
    dense_grid = np.linspace(0, min(limit, 1.05 * reach), 2 * _GRID_POINTS)
    coarse_grid = np.linspace(0, top, _GRID_POINTS)
    return np.unique(np.concatenate([dense_grid, coarse_grid]))


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
        table = np.concatenate([table, absent])
        limit = math.inf
    target = min(max(check_delta(delta), 1e-25), 1e-4)
    curve = Envelope.of([no_noise()], table, limit)
    best = central_epsilon(
        rows,
        clients=clients,
        corrupted=corrupted,
        delta=max(target, TYPICAL_DELTA),
    )
    if best.cover is not None:
        noises = best.cover.noises(_CUT_SHARE * target)
        curve = curve.smaller(Envelope.of(noises, table, limit))
    elif best.blanket is not None:
        budget = _cell_budget(best.blanket, others)
        if others > _SMALL_CROWD:
            budget //= _CURVE_ECONOMY
        noise = blanket_noise(
            best.blanket,
            others,
            budget=max(budget, 8),
            tail=_CUT_SHARE * target,
        )
        curve = curve.smaller(Envelope.of([noise], table, limit))
    return curve.profile()


PURE = "pure composition of single reports"
COMPOSED = "secure sums, losses composed"
RENYI_L2 = "Renyi composition under the L2 bound"
PURE_L2 = "pure composition under the L2 bound"
_ORDERS = (
    *(1.1, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0),
    *(8.0, 10.0, 12.0, 16.0, 20.0, 24.0, 32.0, 48.0, 64.0),
)
"""Renyi orders that are tried."""
_L2_CELLS = 12
"""Cells of the others' noise under the L2 bound."""

_ABSENCE_SHARE = 1e-3
"""Share of delta for too few participants."""

_BINOMIAL_ROUNDING = 1 + 1e-9
"""Covers the relative error of scipy's binomial distribution function."""


def _single(run: Release, curve_delta: float) -> tuple[Profile, float]:
    """The profile of one sum of one coordinate.

    And the probability that too few others took part for it.
    """
    rows, lattice = run.summed
    if all_others_take_part(run):
        profile = dominating_profile(
            rows,
            clients=int(run.clients or 1),
            corrupted=run.corrupted,
            delta=curve_delta,
        )
        return profile, 0.0
    # The others take part at random: given how many did (revealed to the adversary), the bound
    # falls in their number.
    silent = _silent_integer(lattice)
    too_few = _ABSENCE_SHARE * run.delta / run.rounds
    fewest = int(scipy.stats.binom.ppf(too_few / 2, run.others, run.sampling_rate))
    missed = 0.0
    if fewest > 0:
        below = float(scipy.stats.binom.cdf(fewest - 1, run.others, run.sampling_rate))
        missed = below * _BINOMIAL_ROUNDING
    profile = dominating_profile(
        rows,
        clients=max(fewest, 0) + 1,
        delta=curve_delta,
        silent=silent,
    )
    return profile, missed


def _silent_integer(lattice: Lattice) -> int:
    """The integer that an absent client adds."""
    multiple = -lattice.offset / lattice.step
    integer = round(multiple)
    if abs(multiple - integer) > 1e-9 or not 0 <= integer <= lattice.span:
        remedy = (
            "an absent client adds 0, which is not a level's integer; "
            "use sampling='public' or a lattice with 0"
        )
        raise ParameterError("sampling", "poisson", remedy)
    return integer


def _composed(run: Release) -> float:
    """Epsilon by losses of sums.

    They are composed over coordinates, then over rounds with their participation.
    """
    if run.delta == 0:
        return math.inf
    if run.releases == 1 and run.participation == "none":
        return central_epsilon(
            run.summed[0],
            clients=int(run.clients or 1),
            corrupted=run.corrupted,
            delta=run.delta,
        ).epsilon
    profile, missed = _single(run, run.delta / run.releases)
    remaining = run.delta - missed * run.rounds
    if remaining <= 0:
        return math.inf
    return composed_epsilon(profile, run, remaining, (PRECISION, 1e-2, 1.0))


def all_others_take_part(run: Release) -> bool:
    """Whether the noise of all `run.others` is in every sum that the one protected is in.

    Bounds that count all of it hold only then: where each decides by chance, any number of them may
    be absent.
    """
    return run.participation != "poisson"


def others_noise(mechanism: Mechanism, others: int) -> NoiseMixture:
    """Noise that `others` honest clients' reports of the table hold in common.

    Whatever their inputs.
    """
    if others == 0:
        return no_noise()
    rows, _ = lattice_rows(mechanism)
    blankets = shortlist(rows, others, TYPICAL_DELTA)
    if not blankets:
        return no_noise()
    blanket = max(blankets, key=lambda blanket: kept_variance(blanket, others, _L2_CELLS))
    return blanket_noise(blanket, others, budget=_L2_CELLS, tail=1e-25)


def _renyi_l2(run: Release) -> float:
    """Epsilon from kappa ||x - x'||^2 <= 4 kappa C^2 per round; inf where it proves none.

    Of participation in secret it claims nothing.
    """
    if run.clip_norm is None or run.delta == 0:
        return math.inf
    if not all_others_take_part(run):
        return math.inf
    if run.participation == "without_replacement":
        # Everybody who is counted takes part, but the source derives how losses shrink with the
        # rate for participation that is seen, and no more.
        return math.inf
    noise = others_noise(run.table, run.others)
    square = squared_distance(run.table, coordinates=run.dimension, clip_norm=run.clip_norm)

    @cache
    def epsilon(index: int) -> float:
        alpha = _ORDERS[index]
        divergence = square * quadratic_renyi(run.table, noise, alpha)
        per_round = rdp_public_sampling(divergence, alpha, run.sampling_rate)
        return rdp_to_epsilon(run.rounds * per_round, alpha, run.delta)

    # kappa is nearly linear in alpha, so epsilon falls, then rises: the first order that is no
    # worse than the next.
    best = bisect_left(
        range(len(_ORDERS) - 1),
        True,
        key=lambda index: epsilon(index) <= epsilon(index + 1),
    )
    return epsilon(best)


def _pure_l2(run: Release) -> float:
    if run.clip_norm is None:
        return math.inf
    single = pure_epsilon_l2(run.table, coordinates=run.dimension, clip_norm=run.clip_norm)
    return run.over_rounds(single)


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
    epsilons = {
        PURE: run.pure,
        COMPOSED: _composed(run),
        RENYI_L2: _renyi_l2(run),
        PURE_L2: _pure_l2(run),
    }
    return run.claim(epsilons)
