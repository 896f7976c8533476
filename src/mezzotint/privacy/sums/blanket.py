"""Noise that every client is sure to add: translation blankets, exact in integers
(docs/proofs/sums.md).

A blanket says: whatever its input, a client draws component l with probability g_l (the same for
    every input), a
shift that may depend on the input, and then noise from the component's fixed shape. A sum cares
about differences only, so the noise need not sit at the same place for every input. Good ones are
sought by linear programs, which
nothing trusts: `Blanket.is_valid_for` has the last word.

From a blanket to a bound on delta(epsilon) of one secure sum, worst over pairs of rows:
    delta(eps) <= sup over rows x, x' of E_N[ HS_eps(p(x) * R_N || p(x') * R_N) ]    (Theorem S')
with R_N the noise of the components that the other honest clients drew.

`rows` are a table's rows on its lattice everywhere: (rows, span + 1) integers that sum to 2**32.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, final

import numpy as np
import numpy.typing as npt
import scipy  # pyright: ignore[reportMissingTypeStubs]

from mezzotint.core.errors import ParameterError
from mezzotint.core.types import TOTAL, FloatArray, IntArray
from mezzotint.privacy.profile import Profile
from mezzotint.privacy.sums.convolution import (
    UNIT,
    CountBounds,
    SumPmf,
    multinomial_cells,
    sum_pmf,
    variance_of,
)

_ROUNDS = 200
"""Passes that remove what a solver's floats overshot; each pass strictly shrinks the overshoot."""


def _frozen(values: npt.ArrayLike) -> IntArray:
    array = np.array(values, dtype=np.int64, copy=True)
    array.setflags(write=False)
    return array


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Component:
    """One shape of noise and where each row of the table may place it.

    Arguments:
        shape: (r,) integers >= 0, the noise's pmf on 0..r-1 times their sum.
        shifts: (rows, s) masses, in units of 2**-32, that each row gives to noise starting at each
            place; of one sum.
    """

    shape: IntArray
    shifts: IntArray

    def __post_init__(self) -> None:
        shape, shifts = _frozen(self.shape), _frozen(self.shifts)
        if shape.ndim != 1 or shape.size == 0 or int(shape.min()) < 0 or int(shape.sum()) <= 0:
            raise ParameterError("shape", shape.tolist(), "need integers >= 0 with a positive sum")
        if shifts.ndim != 2 or shifts.size == 0 or int(shifts.min()) < 0:
            raise ParameterError(
                "shifts", shifts.shape, "need one row of integers >= 0 per row of the table"
            )
        sums = shifts.sum(axis=1)
        if (sums != sums[0]).any():
            raise ParameterError("shifts", sums.tolist(), "every row must place the same mass")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "shifts", shifts)

    @property
    def mass(self) -> int:
        """Units of 2**-32 of the component's probability."""
        return int(self.shifts[0].sum())

    @property
    def pmf(self) -> FloatArray:
        """(r,) the noise's probabilities, each right to a relative 2**-53."""
        return self.shape / float(self.shape.sum())

    @property
    def variance(self) -> float:
        """Variance of one draw of the noise, squared lattice steps."""
        return variance_of(self.pmf)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Blanket:
    """Components that every row of a table contains together: `is_valid_for` decides that, in exact
    integers.

    Arguments:
        components: at least one; all with a row of shifts for every row of the table.
        name: how it was found, for people.
    """

    components: tuple[Component, ...]
    name: str

    @property
    def masses(self) -> FloatArray:
        """(L,) probabilities of the components, exact."""
        return np.array([component.mass for component in self.components]) / float(TOTAL)

    @property
    def variances(self) -> FloatArray:
        """(L,) variance of one draw of each component, squared lattice steps."""
        return np.array([component.variance for component in self.components])

    @property
    def shapes(self) -> list[FloatArray]:
        """The noise pmfs."""
        return [component.pmf for component in self.components]

    @property
    def variance(self) -> float:
        """sum_l g_l Var(w_l) per client: the variance that each is sure to add, squared lattice
        steps."""
        return sum(component.mass * component.variance for component in self.components) / TOTAL

    @property
    def leaks(self) -> bool:
        """Whether all noise shares a divisor: then the sum's residue is not hidden at all."""
        divisor = 0
        for component in self.components:
            places = np.flatnonzero(component.shape)
            divisor = math.gcd(divisor, int(np.gcd.reduce(places - places[0])))
        return divisor != 1

    def is_valid_for(self, rows: IntArray) -> bool:
        """Whether sum_l shape_l * shifts_{k,l} <= row_k entrywise for every row k, in exact
        integers."""
        if any(component.shifts.shape[0] != rows.shape[0] for component in self.components):
            return False
        common = math.lcm(*(int(component.shape.sum()) for component in self.components))
        for k, row in enumerate(rows.tolist()):
            spent = [0] * len(row)
            for component in self.components:
                factor = common // int(component.shape.sum())
                if not _spend(
                    spent, component.shape.tolist(), component.shifts[k].tolist(), factor
                ):
                    return False
            if any(used > common * weight for used, weight in zip(spent, row, strict=True)):
                return False
        return True


def _spend(spent: list[int], shape: list[int], shifts: list[int], factor: int) -> bool:
    """Adds factor * (shape convolved with shifts) to `spent`; False when mass falls off the row's
    end."""
    for shift, mass in enumerate(shifts):
        for i, weight in enumerate(shape):
            if mass and weight:
                if shift + i >= len(spent):
                    return False
                spent[shift + i] += factor * mass * weight
    return True


def common_blanket(rows: IntArray) -> Blanket | None:
    """The plain blanket (Theorem S): the mass that all rows have in the same place; None when there
    is none."""
    shared = rows.min(axis=0)
    if not shared.any():
        return None
    first, last = np.flatnonzero(shared)[[0, -1]]
    shape = shared[first : last + 1]
    shifts = np.zeros((rows.shape[0], int(first) + 1), dtype=np.int64)
    shifts[:, first] = shape.sum()
    return Blanket(components=(Component(shape=shape, shifts=shifts),), name="common mass")


def additive_blanket(rows: IntArray) -> Blanket | None:
    """All of the randomness, where a report is its input plus noise that does not depend on it;
    None elsewhere.

    Then every row is one shape in another place, no leftover remains, and the bound of a sum is the
    n-fold
    convolution itself: discrete Gaussian, discrete Laplace and Skellam tables are accounted so.
    """
    starts = (rows > 0).argmax(axis=1)
    shape = np.trim_zeros(rows[0])
    shifts = np.zeros((rows.shape[0], int(starts.max()) + 1), dtype=np.int64)
    for k, (row, start) in enumerate(zip(rows, starts.tolist(), strict=True)):
        if not np.array_equal(row[start : start + shape.size], shape):
            return None
        shifts[k, start] = shape.sum()
    return Blanket(components=(Component(shape=shape, shifts=shifts),), name="the noise itself")


def two_point(width: int) -> IntArray:
    """The shape (1, 0, ..., 0, 1): 0 or `width`, a fair coin decides."""
    shape = np.zeros(width + 1, dtype=np.int64)
    shape[[0, -1]] = 1
    return shape


def shape_blanket(
    rows: IntArray,
    shapes: Sequence[IntArray],
    shifts: Sequence[FloatArray],
    *,
    name: str,
) -> Blanket | None:
    """The blanket of these shapes nearest below a solver's, made exact; None when a component loses
    all mass.

    Arguments:
        shapes: integers >= 0 each, with sums up to 2**20 (powers of two keep the arithmetic short).
        shifts: per shape an array (rows, span + 2 - shape size) of probabilities; anything goes.
        name: as of `Blanket`.

    Guarantees: the result fits `rows` in exact integers.
    """
    units = [
        np.floor(np.clip(np.nan_to_num(array), 0, 1) * TOTAL).astype(np.int64) for array in shifts
    ]
    for k, row in enumerate(rows):
        _shrink_to_fit(row, shapes, [array[k] for array in units])
    components: list[Component] = []
    for shape, array in zip(shapes, units, strict=True):
        mass = int(array.sum(axis=1).min())
        if mass == 0:
            return None
        components.append(Component(shape=shape, shifts=_cut_to(array, mass)))
    blanket = Blanket(components=tuple(components), name=name)
    return blanket if blanket.is_valid_for(rows) else None


def _shrink_to_fit(row: IntArray, shapes: Sequence[IntArray], masses: list[IntArray]) -> None:
    """Lowers shift masses in place until the row, times the shapes' common sum, is nowhere
    exceeded."""
    common = math.lcm(*(int(shape.sum()) for shape in shapes))
    scaled = [shape * (common // int(shape.sum())) for shape in shapes]
    for _ in range(_ROUNDS):
        spent = np.zeros_like(row)
        for shape, mass in zip(scaled, masses, strict=True):
            spent += np.convolve(shape, mass)
        over = np.maximum(spent - common * row, 0)
        if not over.any():
            return
        for shape, mass in zip(scaled, masses, strict=True):
            for i in np.flatnonzero(shape).tolist():
                mass -= np.minimum(mass, -(-over[i : i + mass.size] // int(shape[i])))


def _cut_to(array: IntArray, mass: int) -> IntArray:
    """Every row lowered, from its end, to the sum `mass`."""
    before = np.cumsum(array, axis=1) - array
    return np.clip(mass - before, 0, array)


# Candidates: nothing here is trusted --------------------------------------------------------------

_MAX_VARIABLES = 12_000
"""Larger programs are not tried: the plain blanket stands then."""

_LIGHT = 1e-6
"""Components with less mass than this are dropped."""

_FEW_LEVELS = 8
"""Tables with at most this many levels have every row cut into pieces."""

_REACH = 8
"""How far a piece of a row goes to either side of its mode, and the widest coin beside pieces."""

_GRAIN = 2**16
"""Integers that a piece of a row sums to."""

_FEW_COINS = 4
"""Widths that coins are limited to for crowds in which ladders of many components waste too
much."""

_WIDEST = 24
"""Widths tried; wider coins carry little mass in any table worth its noise."""


def _constraints(count: int, size: int, shapes: Sequence[IntArray]) -> tuple[Any, Any]:
    """Matrices over the shifts of all rows, then the masses: what the shapes use of each level, and
    place in all."""
    room = [size + 1 - shape.size for shape in shapes]
    total, kinds = sum(room), np.repeat(np.arange(len(shapes)), room)
    # Of one row of the table, entry by entry of each shape: the levels, the columns and the weights
    # of all its places.
    entries = [
        (i + np.arange(places), first + np.arange(places), np.full(places, shape[i] / shape.sum()))
        for shape, places, first in zip(shapes, room, np.cumsum([0, *room]).tolist(), strict=False)
        for i in np.flatnonzero(shape).tolist()
    ]
    levels, columns, weights = map(np.concatenate, zip(*entries, strict=True))
    row, width = np.arange(count)[:, None], count * total + len(shapes)
    at = (row * size + levels).ravel(), (row * total + columns).ravel()
    use = scipy.sparse.csr_matrix((np.tile(weights, count), at), shape=(count * size, width))
    placed, masses = (row * len(shapes) + kinds).ravel(), np.arange(count * len(shapes))
    at = (
        np.append(placed, masses),
        np.append(np.arange(count * total), count * total + masses % len(shapes)),
    )
    signs = np.append(np.ones(placed.size), -np.ones(masses.size))
    return use, scipy.sparse.csr_matrix((signs, at), shape=(masses.size, width))


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class _Solution:
    """A solver's answer, in floats.

    Arguments:
        masses, shifts: (L,) of the shapes, and (rows, places) per shape.
    """

    masses: FloatArray
    shifts: list[FloatArray]


def _program(rows: FloatArray, shapes: Sequence[IntArray], value: FloatArray) -> _Solution | None:
    """Masses g_l and shifts that maximise sum_l g_l value_l under the blanket's inequality; None on
    failure."""
    count, size = rows.shape
    offsets = np.concatenate([[0], np.cumsum([size + 1 - shape.size for shape in shapes])])
    per_row = int(offsets[-1])
    use, place = _constraints(count, size, shapes)
    result = scipy.optimize.linprog(
        np.concatenate([np.zeros(count * per_row), -value]),
        A_ub=use, b_ub=rows.ravel(), A_eq=place, b_eq=np.zeros(place.shape[0]), bounds=(0, None), method="highs",
    )  # fmt: skip
    if result.x is None:
        return None
    solution = np.asarray(result.x, dtype=np.float64)
    shifts = solution[: count * per_row].reshape(count, per_row)
    return _Solution(
        masses=solution[count * per_row :],
        shifts=[shifts[:, a:b] for a, b in pairwise(offsets.tolist())],
    )


def solve_shapes(
    rows: IntArray,
    shapes: Sequence[IntArray],
    *,
    name: str,
    power: float = 1.0,
    most: int | None = None,
    solved: _Solution | None = None,
) -> Blanket | None:
    """The blanket of these shapes with the largest sum of masses times variance**power, exact; None
    if there is none.

    Arguments:
        shapes: distinct; integers >= 0, at most span + 1 of them each.
        power: 1 keeps most variance, which is what many clients need; smaller powers keep more mass
            instead, which is what few clients need: it is rare then that nearly all of them drew
            the leftover.
        most: keep this many components only, those worth most.
        solved: a solver's answer for all of them; None computes it.
    """
    solved = solved or _solved(rows, shapes, power)
    if solved is None:
        return None
    value = np.array([variance_of(shape / shape.sum()) for shape in shapes]) ** power
    masses = solved.masses
    order: list[int] = np.argsort(-masses * value)[:most].tolist()
    kept = [i for i in order if masses[i] > _LIGHT]
    if not kept:
        return None
    if len(kept) < int((masses > _LIGHT).sum()):
        return solve_shapes(rows, [shapes[i] for i in kept], name=name, power=power)
    kept.sort()
    chosen, shifts = [shapes[i] for i in kept], [solved.shifts[i] for i in kept]
    return shape_blanket(rows, chosen, shifts, name=name)


def _solved(rows: IntArray, shapes: Sequence[IntArray], power: float) -> _Solution | None:
    """The largest sum of masses times variance**power, in floats; None on failure, and where it
    would take long."""
    count, size = rows.shape
    if count * sum(size + 1 - shape.size for shape in shapes) > _MAX_VARIABLES:
        return None
    value = np.array([variance_of(shape / shape.sum()) for shape in shapes]) ** power
    return _program(as_probabilities(rows), shapes, value)


def solve_dyads(rows: IntArray, widths: Sequence[int]) -> Blanket | None:
    """The blanket of fair coins of these widths with the largest sure variance, exact; None when
    there is none."""
    name = f"fair coins of width {', '.join(map(str, widths))}"
    return solve_shapes(rows, [two_point(width) for width in widths], name=name)


def _own_shapes(rows: IntArray) -> list[IntArray]:
    """Pieces of the rows themselves, around their modes: what rows that are nearly shifts of each
    other share.

    Of a table with many levels only the row in the middle is cut up.
    """
    means = row_means(as_probabilities(rows))
    middle = int(np.abs(means - (float(means.max()) + float(means.min())) / 2).argmin())
    chosen = rows if rows.shape[1] <= _FEW_LEVELS else rows[middle : middle + 1]
    found: dict[bytes, IntArray] = {}
    for row in chosen:
        mode = int(row.argmax())
        for reach in range(1, min(row.size, _REACH + 1)):
            piece = row[max(0, mode - reach) : mode + reach + 1]
            shape = np.floor(piece * (_GRAIN / piece.sum())).astype(np.int64)
            shape[shape.argmax()] += _GRAIN - shape.sum()
            if shape.min() > 0:
                found[shape.tobytes()] = shape
    return list(found.values())


def candidate_blankets(rows: IntArray) -> tuple[Blanket, ...]:
    """Blankets worth scoring: the noise itself where it is additive; else common mass, coins,
    pieces of rows.

    Guarantees: every blanket fits the rows in exact integers. None when rows share nothing, not
        even up to shifts (then no central claim beats the local one).
    """
    return _candidates(rows.shape, np.ascontiguousarray(rows).tobytes())


@lru_cache(maxsize=32)
def _candidates(shape: tuple[int, int], raw: bytes) -> tuple[Blanket, ...]:
    rows = np.frombuffer(raw, dtype=np.int64).reshape(shape)
    # Nothing beats knowing the noise, unless all rows are the same.
    whole = additive_blanket(rows)
    if whole is not None and whole.is_valid_for(rows):
        return (whole,)
    plain = common_blanket(rows)
    found = [] if plain is None else [plain]
    found += _pieces(rows)
    found += _coins(rows)
    return tuple(
        {blanket.name: blanket for blanket in found if blanket.is_valid_for(rows)}.values()
    )


def _coins(rows: IntArray) -> list[Blanket]:
    """Fair coins of all widths, and of the few that keep most variance: fewer components waste less
    on ladders."""
    widths = range(1, min(rows.shape[1] - 1, _WIDEST) + 1)
    coins = [two_point(width) for width in widths]
    solved = _solved(rows, coins, 1.0)
    if solved is None:
        return []
    found: list[Blanket] = []
    for most in (None, _FEW_COINS):
        blanket = solve_shapes(
            rows, coins, name=f"fair coins, {most or 'all'}", most=most, solved=solved
        )
        if blanket is not None:
            found.append(blanket)
    return found


def _piece_shapes(rows: IntArray) -> list[IntArray]:
    """Pieces of rows and narrow coins, each once."""
    coins = [two_point(width) for width in range(1, min(rows.shape[1] - 1, _REACH) + 1)]
    shapes = [*(shape // math.gcd(*shape.tolist()) for shape in _own_shapes(rows)), *coins]
    return list({shape.tobytes(): shape for shape in shapes}.values())


def _pieces(rows: IntArray) -> list[Blanket]:
    """Pieces of the rows and coins together: much mass in few components, which is what small
    crowds need."""
    shapes = _piece_shapes(rows)
    found: list[Blanket] = []
    for power, mosts in ((0.25, (2, 3)), (0.5, (3,))):
        solved = _solved(rows, shapes, power)
        for most in mosts:
            name = f"{most} pieces of rows, variance to the power {power}"
            if blanket := solve_shapes(
                rows, shapes, name=name, power=power, most=most, solved=solved
            ):
                found.append(blanket)
    return found


def variance_blanket(rows: IntArray) -> Blanket | None:
    """The blanket of these rows that keeps most variance and leaks no residue; None when there is
    none."""
    widths = range(1, rows.shape[1])
    tried = [
        common_blanket(rows),
        solve_dyads(rows, widths),
        solve_shapes(rows, _piece_shapes(rows), name="pieces of rows", most=4),
    ]
    sound = [blanket for blanket in tried if blanket is not None and not blanket.leaks]
    return max(sound, key=lambda blanket: blanket.variance, default=None)


# Losses of pairs of rows --------------------------------------------------------------------------

_MANY = 2**15
"""Probabilities from which on compiled loops are worth their compiler's import."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class NoiseMixture:
    """A mixture of noise pmfs; the adversary sees which one was drawn.

    (cells,) `probability` is at or above the weights, (cells, width) `pmf` has entries that are
    right to a relative `error`, or 0, and the mass `outside`, of any kind, counts as certain
    disclosure.
    """

    probability: FloatArray
    pmf: FloatArray
    outside: float
    error: float

    def slack(self, terms: int) -> float:
        """Relative error of sums of so many products of entries, and of differences of such sums at
        an epsilon (R3)."""
        return 4 * self.error + 4 * (terms + 64) * UNIT


def no_noise() -> NoiseMixture:
    """No noise at all: what is seen is the one report itself."""
    return NoiseMixture(probability=np.ones(1), pmf=np.ones((1, 1)), outside=0.0, error=0.0)


def blanket_noise(
    blanket: Blanket, clients: int, *, budget: int = 64, tail: float = 1e-17
) -> NoiseMixture:
    """The noise of `clients` honest other clients under a blanket that fits the table.

    Arguments:
        budget: about how many cells the count vector is bundled into; more are tighter and slower.
        tail: mass that may be cut off; all of it is added to delta.
    """
    cells = multinomial_cells(clients, blanket.masses, blanket.variances, budget=budget, tail=tail)
    return mixture(cells, sum_pmf(blanket.shapes, cells.counts, tail=1e-3 * tail))


def mixture(cells: CountBounds, sums: SumPmf, part: slice = slice(None)) -> NoiseMixture:
    """Noise of which so many draws of each component are known: the part of the sums that is about
    these cells."""
    return NoiseMixture(
        probability=cells.probability,
        pmf=sums.pmf[part],
        outside=cells.lost + float(cells.probability @ sums.outside[part]),
        error=sums.error,
    )


def spread(pmfs: FloatArray, row: FloatArray) -> FloatArray:
    """Each pmf convolved with a row: (cells, width + span)."""
    result = np.zeros((pmfs.shape[0], pmfs.shape[1] + row.size - 1))
    if pmfs.size >= _MANY:
        from mezzotint.privacy.sums import compiled as kernels

        kernels.spread(pmfs, row, result)
        return result
    for i in np.flatnonzero(row).tolist():
        result[:, i : i + pmfs.shape[1]] += row[i] * pmfs
    return result


def pair_profile(noise: NoiseMixture, first: FloatArray, second: FloatArray) -> Profile:
    """Losses of row `first` against row `second` (probabilities on 0..span) under `noise`."""
    weights = noise.probability[:, None]
    return Profile.of_pair(
        (spread(noise.pmf, first) * weights).ravel(),
        (spread(noise.pmf, second) * weights).ravel(),
        outside=noise.outside,
        error=noise.error + (first.size + 8) * UNIT,
    )


def row_means(rows: FloatArray) -> FloatArray:
    """Mean of every row of probabilities on 0..span, lattice steps."""
    return rows @ np.arange(rows.shape[1], dtype=np.float64)


def pairs_by_gap(rows: FloatArray) -> list[tuple[int, int]]:
    """Ordered pairs of different rows, the largest difference of means first."""
    means = row_means(rows)
    count = rows.shape[0]
    pairs = [(i, j) for i in range(count) for j in range(count) if i != j]
    return sorted(pairs, key=lambda pair: -abs(float(means[pair[0]] - means[pair[1]])))


def screen(noise: NoiseMixture, rows: FloatArray, epsilon: float) -> FloatArray:
    """(rows, rows) upper bounds on the hockey-stick divergence of every ordered pair at one
    epsilon."""
    count, slack = rows.shape[0], noise.slack(noise.pmf.size)
    factor = math.exp(epsilon - slack * (1 + epsilon))
    result = np.zeros((count, count))
    noisy = [spread(noise.pmf, row) for row in rows]
    for j in range(count):
        lower = noisy[j] * factor
        for i in range(count):
            if i != j:
                gain = float(noise.probability @ _excess(noisy[i], lower))
                result[i, j] = (gain + noise.outside) * (1 + slack)
    return result


def _excess(upper: FloatArray, lower: FloatArray) -> FloatArray:
    """(cells,) sums of what is above `lower`."""
    if lower.size < _MANY:
        return np.maximum(upper - lower, 0.0).sum(axis=1)
    from mezzotint.privacy.sums import compiled as kernels

    result = np.zeros(lower.shape[0])
    kernels.excess(upper, lower, result)
    return result


def as_probabilities(rows: IntArray) -> FloatArray:
    """Integer rows over 2**32: exact."""
    return rows / 2.0**32
