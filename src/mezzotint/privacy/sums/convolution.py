"""Sums of very many draws: how many are of each component, and what they add up to, small tails
included.

The pmf of a sum is the inverse transform of a product of powers. One transform is accurate to about
1e-15 of its peak only; tilted by exp(theta s) the peak moves, and around it the accuracy is
relative: peaks stand at the mean and every 5.5 deviations on both sides. Errors are bounded up to
the standard normwise error of a backward stable FFT (Higham, Accuracy and Stability of Numerical
Algorithms, Theorem 24.2); what is not right to a common relative error is left out, and its mass
counts as outside (docs/proofs/rounding.md, R4).

How many clients drew each component is a multinomial vector, bundled into cells that bound it from
below. A hockey-stick divergence can only fall when a client adds more noise (data processing), so
replacing the count vector of a cell by its lower corner gives an upper bound. Boxes follow every
component on its own, a ladder the worst of several: boxes are closer for few components, ladders
far cheaper for many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt
import scipy  # pyright: ignore[reportMissingTypeStubs]

from mezzotint.core.arguments import check_probability
from mezzotint.core.errors import ParameterError
from mezzotint.core.search import bracket
from mezzotint.core.types import FloatArray, IntArray

UNIT = 2.0**-53
_CHERNOFF = np.array(
    [0.25, 0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30, 40, 60], dtype=np.float64
)
"""Tilts (over one standard deviation) at which tails are bounded; the best counts."""

_DIRECT = 400
"""Shapes with at most this many positive entries are transformed term by term, with the smaller
error bound."""

_MEMORY = 2**18
"""Numbers held at a time: small enough for a processor's cache."""

_DEAD = 1e-40
"""Transforms below this are taken for 0."""

MAX_LENGTH = 2**25
"""Longest transform; a sum that needs more is refused."""

ComplexArray = npt.NDArray[np.complex128]


_FINEST, _COARSEST = -42, -10
"""Exponents of the relative errors, powers of 2, between which one is chosen for all probabilities
of a sum."""

_APART = 5.5
"""Deviations between the peaks of tilted sums."""

_MOST_PEAKS = 6
"""Peaks on either side of the mean."""


@final
@dataclass(frozen=True, kw_only=True)
class SumPmf:
    """The pmfs of several sums, each on its own window of consecutive integers.

    (cells,) first integers of the windows; (cells, width) probabilities, each right to a relative
    `error` or 0 (from
    above: at most that much too small); and (cells,) upper bounds on the masses where they are 0 or
        outside.
    """

    start: IntArray
    pmf: FloatArray
    outside: FloatArray
    error: float


@final
@dataclass(frozen=True, kw_only=True)
class _Family:
    """The shapes tilted by one theta: logarithms of their generating functions, and their pmfs."""

    theta: float
    weights: tuple[FloatArray, ...]
    cumulants: FloatArray


def _tops(shapes: Sequence[FloatArray]) -> FloatArray:
    return np.array([shape.size - 1.0 for shape in shapes])


def _generated(shapes: Sequence[FloatArray], thetas: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(thetas, shapes, longest) shapes tilted, up to a factor, and (thetas, shapes) their log
    generating functions."""
    stacked = np.zeros((len(shapes), max(shape.size for shape in shapes)))
    for row, shape in zip(stacked, shapes, strict=True):
        row[: shape.size] = shape
    # Factored around the largest exponent: no overflow, and log1p-like accuracy is not needed (see
    # `_slack`).
    top = np.maximum(0.0, thetas[:, None] * _tops(shapes))
    place = np.arange(stacked.shape[1], dtype=np.float64)
    # Above 0 are exponents of the padding alone.
    lifted = stacked * np.exp(np.minimum(thetas[:, None, None] * place - top[:, :, None], 0.0))
    return lifted, top + np.log(lifted.sum(axis=2))


def _tilted(shapes: Sequence[FloatArray], theta: float) -> _Family:
    lifted, cumulants = _generated(shapes, np.array([theta]))
    weights = tuple(
        row[: shape.size] / row.sum() for row, shape in zip(lifted[0], shapes, strict=True)
    )
    return _Family(theta=theta, weights=weights, cumulants=cumulants[0])


def _edges(
    shapes: Sequence[FloatArray], counts: FloatArray, base: _Family, scale: float, tail: float
) -> tuple[FloatArray, FloatArray]:
    """Per cell integers (a, b): under the `base` tilt the sum lies in [a, b] but for a mass of
    `tail` (Chernoff)."""
    steps = np.concatenate([-_CHERNOFF, _CHERNOFF]) / scale
    steps = steps[np.abs(steps) * max(shape.size for shape in shapes) <= 600]
    needed = math.log(2 / tail) + 2 * _slack(shapes, counts)
    # P(S >= b) <= exp(K(theta + step) - K(theta) - step b) for step > 0, mirrored below.
    bounds = counts @ _generated(shapes, base.theta + steps)[1].T
    bounds += (needed - counts @ base.cumulants)[:, None]
    bounds /= steps
    lower = np.floor(bounds[:, steps < 0]).max(axis=1, initial=0.0)
    upper = np.minimum(
        np.ceil(bounds[:, steps > 0]).min(axis=1, initial=np.inf), counts @ _tops(shapes)
    )
    return lower, np.maximum(upper, lower)


def _slack(shapes: Sequence[FloatArray], counts: FloatArray) -> FloatArray:
    """(cells,) bound on the error of a cumulant sum and of tilted weights, as an exponent."""
    # A cumulant is the log of a sum of m products, each within 4 ulp and one exp of an exponent
    # below 2**10: (m + 16) UNIT relative in the sum, and as much absolute in its logarithm of size
    # < 2**10.
    return counts @ np.array([(np.count_nonzero(shape) + 40) * 4 * UNIT for shape in shapes])


def _transform(weight: FloatArray, length: int) -> tuple[ComplexArray, float]:
    """(length/2 + 1,) Fourier transform of a short pmf, and a bound on the error of every entry."""
    used = np.flatnonzero(weight)
    if used.size > _DIRECT:
        # Longer than the window, the shape is wrapped around: the transform alone would cut it off.
        folded = (
            weight
            if weight.size <= length
            else np.bincount(np.arange(weight.size) % length, weights=weight)
        )
        result = scipy.fft.rfft(folded, length)
        # Normwise error 8 UNIT log2(M) of the transform's 2-norm sqrt(M) |w|_2, hence of any entry.
        error = 8 * UNIT * math.log2(length) * math.sqrt(length) * float(np.linalg.norm(folded))
        # Folding adds up to ceil(size / length) terms.
        return np.asarray(result, dtype=np.complex128), error + (8 + weight.size / length) * UNIT
    frequency = np.arange(length // 2 + 1, dtype=np.int64)
    result = np.zeros(frequency.size, dtype=np.complex128)
    for i in used.tolist():
        # The angle is reduced in integers: its error is below 2 UNIT * 2 pi, the exponential's
        # below 16 UNIT.
        result += weight[i] * np.exp((-2j * math.pi / length) * ((i * frequency) % length))
    return result, (used.size + 24) * UNIT


@final
@dataclass(frozen=True, kw_only=True)
class _Spectrum:
    """The part that all cells share at one tilt: log transforms, their sizes, each power's error
    coefficient."""

    logarithms: ComplexArray
    sizes: FloatArray
    coefficients: FloatArray


def _spectrum(family: _Family, length: int) -> _Spectrum:
    transforms = [_transform(weight, length) for weight in family.weights]
    values, errors = (
        np.stack([value for value, _ in transforms]),
        np.array([[error] for _, error in transforms]),
    )
    size = np.maximum(np.abs(values), 1e-12) + errors
    sizes = np.log(size)
    # |fl(z)^N - z^N| <= N error size^(N-1); the exponent N log z carries N |log z| (L + 4) UNIT of
    # rounding.
    rounding = (len(family.weights) + 4) * UNIT * (4 + np.abs(sizes))
    logarithms = np.log(np.where(values == 0, 1e-300, values))
    return _Spectrum(logarithms=logarithms, sizes=sizes, coefficients=errors / size + rounding)


def _powers(
    spectrum: _Spectrum, counts: FloatArray, start: IntArray, length: int
) -> tuple[FloatArray, FloatArray]:
    """(cells, length) circular pmfs of the tilted sums, index 0 standing for `start`, and (cells,)
    their errors."""
    # Almost all frequencies are dead: the smallest counts bound every cell's size there (sizes
    # above 1 are capped).
    ceiling = np.exp(counts.min(axis=0) @ np.minimum(spectrum.sizes, 0.0))
    alive = np.flatnonzero(ceiling > _DEAD)
    turns = (alive[None, :] * (start[:, None] % length)) % length
    exponent = counts.astype(np.complex128) @ spectrum.logarithms[:, alive]
    exponent += (2j * math.pi / length) * turns
    values = np.zeros((counts.shape[0], length // 2 + 1), dtype=np.complex128)
    values[:, alive] = np.exp(exponent)
    sizes = np.exp(counts @ spectrum.sizes[:, alive])
    # The rotation by `start` adds 24 UNIT to every entry. Dead frequencies are below _DEAD, but for
    # the tiny growth of sizes above 1, which exp(1) covers.
    error = (sizes * (counts @ spectrum.coefficients[:, alive] + 24 * UNIT)).sum(
        axis=1
    ) * 2 / length + 3 * _DEAD
    norm = np.sqrt((sizes**2).sum(axis=1) * 2 / length) + 3 * _DEAD
    result = scipy.fft.irfft(values, length, axis=1)
    return result, error + 8 * UNIT * math.log2(length) * norm


def _check(shapes: Sequence[FloatArray], counts: npt.ArrayLike, tail: float) -> IntArray:
    array = np.atleast_2d(np.asarray(counts, dtype=np.int64))
    if len(shapes) == 0 or array.shape[1] != len(shapes) or (array < 0).any():
        raise ParameterError("counts", array.shape, "need one count >= 0 per shape in every row")
    check_probability("tail", tail)
    for shape in shapes:
        # Sums may miss 1 by the conversion of integer weights, never by more.
        if (
            shape.ndim != 1
            or shape.size < 1
            or (shape < 0).any()
            or abs(float(shape.sum()) - 1) > 2.0**-40
        ):
            raise ParameterError("shapes", shape.tolist(), "every shape is a pmf on 0, 1, 2, ...")
    return array


def sum_pmf(
    shapes: Sequence[FloatArray],
    counts: npt.ArrayLike,
    *,
    tail: float = 1e-20,
    from_above: bool = False,
) -> SumPmf:
    """The pmf of the sum of counts[c, l] independent draws from shapes[l], for every cell c.

    Arguments:
        shapes: pmfs on 0, 1, 2, ...; every entry is right to a relative 2**-52.
        counts: (cells, shapes) integers >= 0; all 0: mass 1 at 0.
        tail: mass that a window may leave outside, about; nothing is outside where the window holds
            all.
        from_above: probabilities are rounded up instead of left out where they are not known well.

    Raises:
        ParameterError: shapes that are not pmfs, negative counts, or windows beyond `MAX_LENGTH`.

    Guarantees: as `SumPmf` says.
    Source: exponential tilting (Cramer); Higham, Theorem 24.2, for the transforms.
    """
    table = _check(shapes, counts, tail)
    numbers = table.astype(np.float64)
    variances = np.array([variance_of(shape) for shape in shapes])
    scale = max(1e-3, math.sqrt(float((numbers @ variances).max())))
    lower, upper = _edges(shapes, numbers, _tilted(shapes, 0.0), scale, tail)
    width = int((upper - lower).max()) + 1
    alias_tail = min(tail, 1e-18)
    varied = int((numbers @ variances).argmax())
    families = _families(shapes, numbers[varied], (lower[varied], upper[varied]))
    windows = [_edges(shapes, numbers, family, scale, alias_tail) for family in families]
    length = max(width, *(int((b - a).max()) + 1 for a, b in windows))
    if length > MAX_LENGTH:
        raise ParameterError(
            "counts", int(table.max()), f"the sum needs a window of {length} integers; use fewer"
        )
    length = int(scipy.fft.next_fast_len(max(length, 2), real=True))
    last = numbers @ _tops(shapes)
    best = _Best.of(table.shape[0], width)
    batch = max(1, _MEMORY // length)
    for family, (left, right) in zip(families, windows, strict=True):
        spectrum = _spectrum(family, length)
        alias = np.where((left <= 0) & (right >= last), 0.0, alias_tail)
        for first in range(0, table.shape[0], batch):
            part = slice(first, first + batch)
            start = lower[part].astype(np.int64)
            tilted, error = _powers(spectrum, numbers[part], start, length)
            exponent = numbers[part] @ family.cumulants - family.theta * lower[part]
            inside = (left[part] - lower[part], right[part] - lower[part])
            best.take(part, tilted[:, :width], error + alias[part], inside, family.theta, exponent)
    drift = 2 * float(_slack(shapes, numbers).max()) + 4 * UNIT * 640
    beyond = np.where((lower <= 0) & (upper >= last), 0.0, tail)
    start, last = lower.astype(np.int64), upper - lower
    if from_above:
        return best.above(start, last, beyond, drift=drift)
    return best.kept(start, last, beyond, drift=drift, tail=tail)


def _families(
    shapes: Sequence[FloatArray], counts: FloatArray, ends: tuple[float, float]
) -> list[_Family]:
    """The shapes at every tilt whose peak a window needs, the plain ones first.

    Arguments:
        counts: (shapes,) of the cell that varies most.
        ends: of its window, the first and the last integer.
    """
    # Sums that hardly vary are tilted less, so that no factor over the window leaves the floats.
    longest = max(shape.size for shape in shapes) - 1
    steepest = min(300 / (ends[1] - ends[0] + 1), 60 / max(1, longest))
    thetas = [0.0]
    for sign, end in ((-1.0, ends[0]), (1.0, ends[1])):
        theta = 0.0
        for _ in range(_MOST_PEAKS):
            mean, deviation = _moments(shapes, counts, theta)
            if sign * (end - mean) <= _APART / 2 * deviation or abs(theta) >= steepest:
                break
            theta = _next_tilt(shapes, counts, theta, sign * steepest)
            thetas.append(theta)
    return [_tilted(shapes, theta) for theta in thetas]


def _moments(shapes: Sequence[FloatArray], counts: FloatArray, theta: float) -> tuple[float, float]:
    """Mean and standard deviation of the tilted sum."""
    weights = _tilted(shapes, theta).weights
    means = np.array([float(weight @ np.arange(weight.size)) for weight in weights])
    variances = np.array([variance_of(weight) for weight in weights])
    return float(counts @ means), math.sqrt(max(float(counts @ variances), 0.0))


def _next_tilt(
    shapes: Sequence[FloatArray], counts: FloatArray, theta: float, last: float
) -> float:
    """The tilt, towards `last`, whose peak is `_APART` deviations from this one's, of what both
    have on average."""
    mean, deviation = _moments(shapes, counts, theta)

    def near(other: float) -> bool:
        far, wide = _moments(shapes, counts, other)
        return abs(far - mean) <= _APART * (deviation + wide) / 2

    return bracket(near, theta, last, tolerance=0.02)[1]


@final
@dataclass(frozen=True, kw_only=True)
class _Best:
    """Of several estimates of each probability the one with the smallest error: (cells, width)
    values and errors."""

    values: FloatArray
    errors: FloatArray

    @staticmethod
    def of(cells: int, width: int) -> _Best:
        """Nothing known yet."""
        return _Best(values=np.zeros((cells, width)), errors=np.full((cells, width), np.inf))

    def take(
        self,
        part: slice,
        tilted: FloatArray,
        error: FloatArray,
        inside: tuple[FloatArray, FloatArray],
        theta: float,
        exponent: FloatArray,
    ) -> None:
        """Undoes a tilt and keeps, entry by entry, what is nearer.

        Arguments:
            part: the cells.
            tilted: (cells, width) probabilities, and (cells,) their absolute `error`.
            inside: first and last place of each cell whose aliases the error counts.
            theta, exponent: the probability at place i is exp(exponent - theta i) times the tilted
                one.
        """
        index = np.arange(tilted.shape[1], dtype=np.float64)
        # A factor that would overflow belongs to a tilt far from its peak, which has nothing to say
        # there.
        with np.errstate(over="ignore", invalid="ignore"):
            factor = np.exp(np.minimum(exponent, 600.0))[:, None] * np.exp(-theta * index)
            uncertain = factor * error[:, None]
            estimate = np.maximum(tilted, 0.0) * factor
        values, errors = self.values[part], self.errors[part]
        nearer = (
            (uncertain < errors) & (index >= inside[0][:, None]) & (index <= inside[1][:, None])
        )
        nearer[exponent > 600.0] = False
        np.copyto(values, estimate, where=nearer)
        np.copyto(errors, uncertain, where=nearer)

    def above(
        self, start: IntArray, last: FloatArray, beyond: FloatArray, *, drift: float
    ) -> SumPmf:
        """Upper bounds on all probabilities; arguments as of `kept`."""
        own = np.less_equal(np.arange(self.values.shape[1], dtype=np.float64), last[:, None])
        highest = np.minimum(self.values + self.errors, 1.0)
        return SumPmf(start=start, pmf=np.where(own, highest, 0.0), outside=beyond, error=4 * drift)

    def kept(
        self, start: IntArray, last: FloatArray, beyond: FloatArray, *, drift: float, tail: float
    ) -> SumPmf:
        """What is known to a common relative error: the finest at which what is left out is `tail`
        or unavoidable.

        Arguments:
            start, last: first integers and last places of the cells' own windows.
            beyond: (cells,) masses outside them.
            drift: relative error of all probabilities.
        """
        own = np.less_equal(np.arange(self.values.shape[1], dtype=np.float64), last[:, None])
        values = np.where(own, self.values, 0.0)
        doubts = np.where(own, np.minimum(self.errors, 1.0), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            exponents = np.where(doubts > 0, np.ceil(np.log2(doubts / values)), -np.inf)
        levels = np.clip(exponents, _FINEST, _COARSEST + 1).astype(np.int64) - _FINEST
        masses = np.bincount(
            levels.ravel(), weights=(values + doubts).ravel(), minlength=_COARSEST + 2 - _FINEST
        )
        # Masses left out at each level, the finest first; at the last only what is not known at
        # all.
        missed = np.cumsum(masses[::-1])[::-1][1:]
        level = int(np.argmax(missed <= 2 * missed[-1] + tail))
        known = levels <= level
        return SumPmf(
            start=start,
            pmf=np.where(known, values, 0.0),
            outside=beyond + np.where(known, 0.0, values + doubts).sum(axis=1),
            error=2.0 ** (_FINEST + level) + 4 * drift,
        )


def variance_of(pmf: FloatArray) -> float:
    """Variance of one draw from a pmf on 0, 1, 2, ..."""
    index = np.arange(pmf.size)
    return float(pmf @ (index - pmf @ index) ** 2)


# Counts of components -----------------------------------------------------------------------------

_LOOSE = 1e-11
"""Added to every binomial distribution function, relative: scipy's are right to about 1e-13."""


_CORE = 3.5
"""Standard deviations around the mean that are divided finely."""

_FINE = 4.0
"""Standard deviations of a ladder's fine steps."""

_STEPS = 12
"""Steps of a ladder that stands on boxes; finer ones gain nothing."""


@final
@dataclass(frozen=True, kw_only=True)
class CountBounds:
    """(cells, L) lower corners of count vectors and (cells,) upper bounds on their probabilities.

    These may add up to slightly more than 1. What is left out, `lost` at most, counts as certain
    disclosure.
    """

    counts: IntArray
    probability: FloatArray
    lost: float


def _interval_mass(
    trials: IntArray, chance: float, edges: IntArray, last: npt.NDArray[np.bool_]
) -> FloatArray:
    """Upper bounds on P(edges[i] <= N < edges[i+1]), N binomial of trials[i]; `last` intervals are
    open above."""
    below = np.asarray(scipy.stats.binom.cdf(edges - 1, trials, chance))
    above = np.asarray(scipy.stats.binom.sf(edges - 1, trials, chance))
    below_next = np.where(last, 1.0, np.append(below[1:], 1.0))
    above_next = np.where(last, 0.0, np.append(above[1:], 0.0))
    # Whichever tail is the smaller one loses less to cancellation.
    left = below_next - below + _LOOSE * below_next
    right = above - above_next + _LOOSE * above
    return np.clip(np.minimum(left, right), 0.0, 1.0)


def interval_edges(trials: int, chance: float, spacing: float, reach: float) -> IntArray:
    """Lower ends of intervals of counts, the first 0: fine around the mean, coarse where little
    mass is.

    A spacing beyond `_CORE` standard deviations makes one interval of everything within reach.
    """
    mean, deviation = trials * chance, math.sqrt(trials * chance * (1 - chance))
    top = mean + reach * deviation + 10
    if spacing >= 2 * _CORE:
        inner = np.array([mean - reach * deviation, top])
    else:
        # Counts below the core are rare but cost most: at least two more intervals there, one
        # above.
        coarse = 2 * spacing if spacing < 0.5 else (reach - _CORE) / 2
        rare = np.arange(
            mean - reach * deviation, mean - _CORE * deviation, max(1.0, coarse * deviation)
        )
        core = np.arange(
            mean - _CORE * deviation, mean + 2 * deviation + 1, max(1.0, spacing * deviation)
        )
        inner = np.concatenate([rare, core, [mean + _CORE * deviation + 1, top]])
    edges = np.concatenate([[0], np.ceil(np.maximum(inner, 0.0))])
    return np.unique(edges[edges <= trials]).astype(np.int64)


def interval_spacings(
    clients: int, masses: FloatArray, variances: FloatArray, budget: int
) -> FloatArray:
    """Interval widths in standard deviations, such that each component wastes equally much
    variance."""
    if masses.size == 0:
        return np.zeros(0)
    deviation = np.sqrt(clients * masses * (1 - masses)) + 1e-9
    waste = np.maximum(variances, 1e-9) * deviation

    def cells(spacing: FloatArray) -> float:
        # About `_CORE` + 2 standard deviations are divided, never finer than single counts, and two
        # rare intervals.
        parts = np.minimum((_CORE + 2) / spacing, 1.2 * (_CORE + 2) * deviation + 1) + 2
        return float(np.prod(np.where(spacing >= 2 * _CORE, 1.0, parts)))

    low, high = 1e-3 * float(waste.min()), 1e4 * float(waste.max())
    return (
        bracket(lambda level: cells(level / waste) <= budget, high, low, geometric=True)[0] / waste
    )


def multinomial_cells(
    clients: int,
    masses: FloatArray,
    variances: FloatArray,
    *,
    budget: int = 64,
    tail: float = 1e-17,
) -> CountBounds:
    """Cells of the counts of `clients` draws, component l with probability masses[l] (the rest is
    none of them).

    Arguments:
        variances: (L,) how much each component matters.
        budget: about how many cells to use.
        tail: cells are dropped while all they hold is below this; it is added to `lost`.

    Guarantees: the true counts can be coupled to lie above the corner of the cell drawn with
        `probability`.
    """
    count = masses.size
    # All in boxes; the two that matter most in boxes, the others on a ladder; all on a ladder.
    ways = {count, 0} if count < 4 else {2, 0}
    order = np.argsort(-masses * variances)
    found = [
        _bundled(clients, masses[order], variances[order], boxes, budget, tail)
        for boxes in sorted(ways)
    ]
    best = min(found, key=lambda cells: _waste(cells, variances[order]))
    counts = np.empty_like(best.counts)
    counts[:, order] = best.counts
    return CountBounds(counts=counts, probability=best.probability, lost=best.lost)


def _waste(cells: CountBounds, variances: FloatArray) -> float:
    """The approximate cost of the cells: epsilon squared goes with the mean of 1 / variance."""
    kept = cells.counts @ variances
    return float(cells.probability @ (1 / np.maximum(kept, 0.05 * float(kept.max()) + 1e-9)))


def _bundled(
    clients: int, masses: FloatArray, variances: FloatArray, boxes: int, budget: int, tail: float
) -> CountBounds:
    """The first `boxes` components in boxes, one after the other, the rest on ladders that stand on
    them.

    Lower corners are drawn one component after the other, each given the largest counts the earlier
    ones may have.
    """
    laddered = masses.size > boxes
    spacing = interval_spacings(
        max(clients, 1), masses[:boxes], variances[:boxes], budget // _STEPS if laddered else budget
    )
    reach = 1.05 * math.sqrt(2 * math.log(1 / tail))
    counts = np.zeros((1, 0), dtype=np.int64)
    probability = np.ones(1)
    taken = np.zeros(1, dtype=np.int64)
    lost = used = 0.0
    for position, mass in enumerate(masses[:boxes].tolist()):
        chance = min(1.0, mass / max(1.0 - used, mass))
        trials = np.maximum(clients - taken, 0)
        found = [
            interval_edges(count, chance, float(spacing[position]), reach)
            for count in trials.tolist()
        ]
        edges, owner = (
            np.concatenate(found),
            np.repeat(np.arange(trials.size), [part.size for part in found]),
        )
        last = np.append(owner[1:] != owner[:-1], True)
        probability = _interval_mass(trials[owner], chance, edges, last) * probability[owner]
        counts = np.column_stack([counts[owner], edges])
        # Given counts below an interval's end, the later components have at least the trials that
        # remain then.
        taken = taken[owner] + np.where(last, trials[owner], np.append(edges[1:] - 1, 0))
        keep = _keep(probability, tail / (2 * masses.size))
        lost += float(probability[~keep].sum())
        counts, probability, taken = counts[keep], probability[keep], taken[keep]
        used += mass
    below = CountBounds(counts=counts, probability=probability, lost=lost * (1 + 1e-9))
    if not laddered:
        return below
    rest = np.minimum(1.0, masses[boxes:] / max(1.0 - used, float(masses[boxes:].sum())))
    steps = _STEPS if boxes else min(max(budget, _STEPS), 4 * _STEPS)
    return _climbed(below, np.maximum(clients - taken, 0), rest, variances[boxes:], steps, tail)


def _climbed(
    below: CountBounds,
    trials: IntArray,
    chances: FloatArray,
    variances: FloatArray,
    steps: int,
    tail: float,
) -> CountBounds:
    """A ladder of further components on every cell, given the draws that are left there."""
    counts: list[IntArray] = []
    probability: list[FloatArray] = []
    lost = below.lost
    for corner, weight, left in zip(
        below.counts, below.probability.tolist(), trials.tolist(), strict=True
    ):
        ladder = monotone_corners(
            np.full(chances.size, left), chances, variances, steps=steps, tail=tail
        )
        counts.append(
            np.column_stack([np.tile(corner, (ladder.probability.size, 1)), ladder.counts])
        )
        probability.append(ladder.probability * weight)
        lost += ladder.lost * weight
    return CountBounds(
        counts=np.concatenate(counts),
        probability=np.concatenate(probability),
        lost=lost * (1 + 1e-9),
    )


def monotone_corners(
    clients: IntArray,
    chances: FloatArray,
    variances: FloatArray,
    *,
    steps: int = 24,
    tail: float = 1e-17,
) -> CountBounds:
    """Cells whose corners lie on one curve: N_l >= mean_l - s_l(z) deviation_l for ALL l, z growing
    step by step.

    Arguments:
        clients: (L,) draws that component l may come from; components may share draws or not.
        chances: (L,) probability of component l in one of its draws.
        variances: (L,) how much each component matters.
        steps: about how many cells, >= 4.
        tail: mass beyond the last step; it is `lost`.

    Guarantees: the true counts can be coupled to lie above the corner of the cell drawn with
        `probability`, however the components depend on each other: that some count misses its
        corner has at most the sum of the chances of each, and divergences grow from step to step,
        so the largest such chances are the worst case.
    """
    mean = clients * chances
    deviation = np.sqrt(mean * (1 - chances))
    waste = np.maximum(variances * deviation, 1e-300)
    # Least variance is lost, at a given sum of misses, where densities at the corners go with what
    # a step wastes.
    apart = 2 * np.log(np.minimum(waste.max() / waste, 1e12))
    reach = 1.05 * math.sqrt(2 * math.log(clients.size / tail))
    fine = max(3, steps * 3 // 4)
    line = np.concatenate(
        [np.linspace(0, _FINE, fine), np.linspace(_FINE, reach, max(2, steps - fine + 1))[1:]]
    )
    corners = np.maximum(np.ceil(mean - np.sqrt(line[:, None] ** 2 + apart) * deviation), 0).astype(
        np.int64
    )
    below = np.asarray(scipy.stats.binom.cdf(corners - 1, clients, chances)) * (1 + _LOOSE)
    missed = np.minimum.accumulate(np.minimum(below.sum(axis=1) * (1 + _LOOSE), 1.0))
    probability = np.maximum(np.append(1.0, missed[:-1]) - missed, 0.0) * (1 + 1e-15)
    kept = probability > 0
    return CountBounds(counts=corners[kept], probability=probability[kept], lost=float(missed[-1]))


def _keep(probability: FloatArray, tail: float) -> np.ndarray:
    """All but the least likely cells, which together hold at most `tail`."""
    order = np.argsort(probability)
    dropped = order[np.cumsum(probability[order]) <= tail]
    keep = np.ones(probability.size, dtype=bool)
    keep[dropped] = False
    return keep
