"""Sums of very many draws: how many are of each component, and what they add up to, small tails
included.

The pmf of a sum is the inverse transform of a product of powers. One transform is accurate to about
1e-15 of its peak only; tilted by exp(theta s) the peak moves, and around it the accuracy is
relative: peaks stand at the mean and every 5.5 deviations on both sides. Errors are bounded up to
the standard normwise error of a backward stable FFT (Higham, Accuracy and Stability of Numerical
Algorithms, Theorem 24.2); what is not right to a common relative error is left out, and its mass
counts as outside (docs/proofs/rounding.md, R4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, log2, pi, sqrt
from typing import final

import numpy as np
import numpy.typing as npt
import scipy  # pyright: ignore[reportMissingTypeStubs]

from mezzotint.core.arguments import check_probability
from mezzotint.core.errors import ParameterError
from mezzotint.core.search import bracket
from mezzotint.core.types import UNIT, BoolArray, FloatArray, IntArray

_CHERNOFF_TILTS = np.concatenate(
    [[0.25, 0.5], np.arange(1.0, 11), [12, 14, 17, 20, 25, 30, 40, 60]]
)
"""Tilts (over one standard deviation) at which tails are bounded; the best counts."""

_LARGEST_EXPONENT = 600.0
"""e to this power is a float, with room to spare."""

_FACTOR_EXPONENT = 640
"""Bound on the exponents of the factors that undo a tilt, by which their roundings count."""

_STEEPEST_WINDOW = 300.0
_STEEPEST_SHAPE = 60.0
"""Largest exponents of a tilt over a window, and over one shape: all factors stay floats."""

_DIRECT = 400
"""Shapes with at most this many positive entries are transformed term by term, with the smaller
error bound."""

_MEMORY = 2**18
"""Numbers held at a time: small enough for a processor's cache."""

_NEGLIGIBLE = 1e-40
"""Transforms below this are taken for 0."""

_SMALLEST_SIZE = 1e-12
"""Transforms with smaller absolute values are bounded by this."""

_ZERO_TRANSFORM = 1e-300
"""Stands for a transform that is 0, which has no logarithm."""

MAX_LENGTH = 2**25
"""Longest transform; a sum that needs more is refused."""

ComplexArray = npt.NDArray[np.complex128]

Shapes = Sequence[FloatArray]
"""Pmfs on 0, 1, 2, ..., of which draws are added up."""

Window = tuple[FloatArray, FloatArray]
"""(cells,) integers between which each sum lies, ends included."""


_FINEST = -42
_COARSEST = -10
"""Exponents of the relative errors, powers of 2, between which one is chosen for all probabilities
of a sum."""

_PEAK_DISTANCE = 5.5
"""Deviations between the peaks of tilted sums."""

_PEAKS = 6
"""Most peaks on either side of the mean."""

_LEAST_SCALE = 1e-3
"""Sums with a smaller standard deviation are tilted as if they had this one."""

_ALIAS_TAIL = 1e-18
"""Largest mass that may wrap around a transform."""


@final
@dataclass(frozen=True, kw_only=True)
class SumPmf:
    """The pmfs of several sums, each on its own window of consecutive integers.

    Arguments:
        start: (cells,) first integers of the windows.
        pmf: (cells, width) probabilities, each right to a relative `error` or 0 (from above: at
            most that much too small).
        outside: (cells,) upper bounds on the masses where they are 0 or outside the windows.
        error: relative, of all probabilities.
    """

    start: IntArray
    pmf: FloatArray
    outside: FloatArray
    error: float


@final
@dataclass(frozen=True, kw_only=True)
class _Tilt:
    """The shapes tilted by one theta: their pmfs, and the logarithms of their generating functions.

    A shape w becomes w(i) exp(theta i) / exp(cumulant).
    """

    theta: float
    weights: tuple[FloatArray, ...]
    cumulants: FloatArray


def _largest_values(shapes: Shapes) -> FloatArray:
    return np.array([shape.size - 1.0 for shape in shapes])


def _longest(shapes: Shapes) -> int:
    """Entries of the longest shape."""
    return max(shape.size for shape in shapes)


def _generated(shapes: Shapes, thetas: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Tilted shapes and their log generating functions.

    Returns: (thetas, shapes, longest) up to a factor, and (thetas, shapes).
    """
    longest = _longest(shapes)
    padded = np.zeros((len(shapes), longest))
    for padded_row, shape in zip(padded, shapes, strict=True):
        padded_row[: shape.size] = shape
    # Factored around the largest exponent: no overflow, and log1p-like accuracy is not needed (see
    # `_cumulant_error`).
    last_exponents = np.outer(thetas, _largest_values(shapes))
    largest = np.maximum(0.0, last_exponents)
    values = np.arange(longest, dtype=np.float64)
    theta_exponents = np.outer(thetas, values)
    exponents = theta_exponents[:, None] - largest[:, :, None]
    # Above 0 are exponents of the padding alone.
    factors = np.exp(np.minimum(exponents, 0.0))
    tilted = padded * factors
    masses = tilted.sum(axis=2)
    return tilted, largest + np.log(masses)


def _tilted(shapes: Shapes, theta: float) -> _Tilt:
    thetas = np.array([theta])
    (tilted,), (cumulants,) = _generated(shapes, thetas)
    pmfs: list[FloatArray] = []
    for padded_row, shape in zip(tilted, shapes, strict=True):
        mass = padded_row.sum()
        pmfs.append(padded_row[: shape.size] / mass)
    return _Tilt(
        theta=theta,
        weights=tuple(pmfs),
        cumulants=cumulants,
    )


def _edges(
    shapes: Shapes,
    counts: FloatArray,
    base: _Tilt,
    scale: float,
    tail: float,
) -> Window:
    """Integers between which the sums lie under the `base` tilt.

    But for a mass of `tail` (Chernoff).
    """
    tilts = np.concatenate([-_CHERNOFF_TILTS, _CHERNOFF_TILTS])
    all_steps = tilts / scale
    has_floats = np.abs(all_steps) * _longest(shapes) <= _LARGEST_EXPONENT
    steps = all_steps[has_floats]
    log_tail = log(2 / tail) + 2 * _cumulant_error(shapes, counts)
    _, cumulants = _generated(shapes, base.theta + steps)
    # P(S >= b) <= exp(K(theta + step) - K(theta) - step b) for step > 0, mirrored below.
    excess = log_tail - counts @ base.cumulants
    bounds = counts @ cumulants.T
    bounds += excess[:, None]
    bounds /= steps
    lower_bounds = np.floor(bounds[:, steps < 0])
    upper_bounds = np.ceil(bounds[:, steps > 0])
    lower = lower_bounds.max(axis=1, initial=0.0)
    upper = upper_bounds.min(axis=1, initial=np.inf)
    largest = counts @ _largest_values(shapes)
    upper = np.minimum(upper, largest)
    return lower, np.maximum(upper, lower)


def _cumulant_error(shapes: Shapes, counts: FloatArray) -> FloatArray:
    """(cells,) bound on the error of a cumulant sum and of tilted weights, as an exponent."""
    # A cumulant is the log of a sum of m products, each within 4 ulp and one exp of an exponent
    # below 2**10: (m + 16) UNIT relative in the sum, and as much absolute in its logarithm of size
    # < 2**10.
    errors: list[float] = []
    for shape in shapes:
        product_count = np.count_nonzero(shape)
        errors.append((product_count + 40) * 4 * UNIT)
    return counts @ np.array(errors)


def _roots(length: int) -> ComplexArray:
    """The powers of the root of unity of a transform of this length."""
    angle = -2j * pi / length
    return np.exp(angle * np.arange(length))


def _transform(weight: FloatArray, roots: ComplexArray) -> tuple[ComplexArray, FloatArray]:
    """(length/2 + 1,) Fourier transform of a short pmf, and bounds on the errors of the entries."""
    if np.count_nonzero(weight) > _DIRECT:
        result, error = _fast_transform(weight, roots.size)
        return result, np.full(result.size, error)
    return _direct_transform(weight, roots)


def _fast_transform(weight: FloatArray, length: int) -> tuple[ComplexArray, float]:
    """The transform by FFT, of a pmf that is wrapped around where it is longer than the window, and
    one bound on the error of every entry.
    """
    wrapped = weight
    if weight.size > length:
        # Longer than the window, the shape is wrapped around: the transform alone would cut it off.
        places = np.arange(weight.size) % length
        wrapped = np.bincount(places, weights=weight)
    transform: ComplexArray = scipy.fft.rfft(wrapped, length)
    # Normwise error 8 UNIT log2(M) of the transform's 2-norm sqrt(M) |w|_2, hence of any entry.
    norm = sqrt(length) * float(np.linalg.norm(wrapped))
    error = 8 * UNIT * log2(length) * norm
    # Wrapping adds up to ceil(size / length) terms.
    wrapping_error = (8 + weight.size / length) * UNIT
    return transform, error + wrapping_error


def _direct_transform(
    weight: FloatArray,
    roots: ComplexArray,
) -> tuple[ComplexArray, FloatArray]:
    """The transform term by term, (length / 2 + 1,), with a bound on the error of each entry that
    grows with its frequency.
    """
    length = roots.size
    frequencies = np.arange(length // 2 + 1, dtype=np.int64)
    transform = np.zeros(frequencies.size, dtype=np.complex128)
    positive: list[int] = np.flatnonzero(weight).tolist()
    for value in positive:
        # The angle is reduced in integers.
        transform += weight[value] * roots[(value * frequencies) % length]
    # An angle errs by 3 UNIT of itself, its exponential by 4 UNIT, products and sums by UNIT each.
    largest_turn = (weight.size - 1) / length
    turns = np.minimum(frequencies * largest_turn, 1.0)
    terms = len(positive) + 6
    return transform, (terms + 3 * (2 * pi * turns)) * UNIT


@final
@dataclass(frozen=True, kw_only=True)
class _Spectrum:
    """What all cells share at one tilt.

    Arguments:
        frequencies: those at which some power is not negligible.
        logarithms: (shapes, frequencies) of the transforms there.
        sizes: of them, logarithms of upper bounds on the absolute values.
        coefficients: errors of a power, over its exponent.
    """

    frequencies: IntArray
    logarithms: ComplexArray
    sizes: FloatArray
    coefficients: FloatArray


def _spectrum(tilt: _Tilt, length: int, counts: FloatArray) -> _Spectrum:
    """Of the powers `counts`, (cells, shapes)."""
    roots = _roots(length)
    transforms: list[ComplexArray] = []
    transform_errors: list[FloatArray] = []
    for weight in tilt.weights:
        transform, error = _transform(weight, roots)
        transforms.append(transform)
        transform_errors.append(error)
    values = np.stack(transforms)
    errors = np.stack(transform_errors)
    bounds = np.maximum(np.abs(values), _SMALLEST_SIZE) + errors
    # Almost all frequencies are negligible: the smallest counts bound every cell's size there
    # (sizes above 1 are capped).
    capped_sizes = np.log(np.minimum(bounds, 1.0))
    ceiling = counts.min(axis=0) @ capped_sizes
    frequencies = np.flatnonzero(ceiling > log(_NEGLIGIBLE))
    values = values[:, frequencies]
    errors = errors[:, frequencies]
    bounds = bounds[:, frequencies]
    nonzero_values = np.where(values == 0, _ZERO_TRANSFORM, values)
    logarithms = np.log(nonzero_values)
    # |fl(z)^N - z^N| <= N error size^(N-1); a logarithm errs by 4 UNIT and as much of itself, and
    # the exponent N log z, rotated, carries N |log z| (L + 2) UNIT of rounding.
    operations = len(tilt.weights) + 6
    rounding = (4 + operations * np.abs(logarithms)) * UNIT
    return _Spectrum(
        frequencies=frequencies,
        logarithms=logarithms,
        sizes=np.log(bounds),
        coefficients=errors / bounds + rounding,
    )


def _powers(
    spectrum: _Spectrum,
    counts: FloatArray,
    start: IntArray,
    length: int,
) -> tuple[FloatArray, FloatArray]:
    """Circular pmfs of the tilted sums, index 0 standing for `start`, and their errors.

    Returns: (cells, length) and (cells,).
    """
    frequencies = spectrum.frequencies
    offsets = start % length
    turns = np.outer(offsets, frequencies) % length
    exponents = counts.astype(np.complex128) @ spectrum.logarithms
    exponents += (2j * pi / length) * turns
    value_shape = (len(counts), length // 2 + 1)
    values = np.zeros(value_shape, dtype=np.complex128)
    values[:, frequencies] = np.exp(exponents)
    sizes = np.exp(counts @ spectrum.sizes)
    # The rotation by `start` adds 24 UNIT to every entry. Other frequencies are below _NEGLIGIBLE,
    # but for the tiny growth of sizes above 1, which exp(1) covers.
    relative_errors = counts @ spectrum.coefficients + 24 * UNIT
    entry_errors = sizes * relative_errors
    error = entry_errors.sum(axis=1) * 2 / length + 3 * _NEGLIGIBLE
    square_sums = (sizes**2).sum(axis=1)
    norm = np.sqrt(square_sums * 2 / length) + 3 * _NEGLIGIBLE
    pmfs = scipy.fft.irfft(values, length, axis=1)
    return pmfs, error + 8 * UNIT * log2(length) * norm


def _check(
    shapes: Shapes,
    counts: npt.ArrayLike,
    tail: float,
) -> IntArray:
    integers = np.asarray(counts, dtype=np.int64)
    table = np.atleast_2d(integers)
    column_count = table.shape[1]
    has_all_counts = column_count == len(shapes) > 0
    if not has_all_counts or (table < 0).any():
        raise ParameterError("counts", table.shape, "need one count >= 0 per shape in every row")
    check_probability("tail", tail)
    for shape in shapes:
        if not _is_pmf(shape):
            raise ParameterError("shapes", shape.tolist(), "every shape is a pmf on 0, 1, 2, ...")
    return table


def _is_pmf(shape: FloatArray) -> bool:
    is_row = shape.ndim == 1 and shape.size > 0
    if not is_row or (shape < 0).any():
        return False
    # Sums may miss 1 by the conversion of integer weights, never by more.
    excess = float(shape.sum()) - 1
    return abs(excess) <= 2.0**-40


def sum_pmf(
    shapes: Shapes,
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
    return _Sums(shapes, table, tail).pmf(from_above=from_above)


@final
class _Sums:
    """The windows of several sums, and their estimates at every tilt."""

    def __init__(
        self,
        shapes: Shapes,
        table: IntArray,
        tail: float,
    ) -> None:
        self.shapes = shapes
        self.counts = table.astype(np.float64)
        self.cell_count = len(table)
        self.tail = tail
        variances = self.counts @ _variances(shapes)
        widest = int(variances.argmax())
        deviation = sqrt(float(variances[widest]))
        self.scale = max(_LEAST_SCALE, deviation)
        untilted = _tilted(shapes, 0.0)
        window = _edges(shapes, self.counts, untilted, self.scale, tail)
        self.window = window
        self.lower, upper = window
        self.span = upper - self.lower
        self.largest = self.counts @ _largest_values(shapes)
        ends = (float(self.lower[widest]), float(upper[widest]))
        self.tilts = _tilts(shapes, self.counts[widest], ends)

    def pmf(self, *, from_above: bool) -> SumPmf:
        """The best estimates of all tilts."""
        windows = [self._window(tilt) for tilt in self.tilts]
        span = self.span
        width = int(span.max()) + 1
        length = self._length(width, windows)
        best = self._estimates(windows, width, length)
        drift = self._drift()
        beyond = self._outside(self.window, self.tail)
        start = self.lower.astype(np.int64)
        if from_above:
            return best.above(start, span, beyond, drift=drift)
        return best.reliable(start, span, beyond, drift=drift, tail=self.tail)

    def _drift(self) -> float:
        """Relative error of all probabilities by tilted weights and by exponents below 640."""
        # A draw's weight and cumulant err by m + 12 UNIT each, and by UNIT of exponents as large as
        # the steepest over a shape, in at most L + 20 operations.
        largest_theta = max(abs(tilt.theta) for tilt in self.tilts)
        steepest = largest_theta * (_longest(self.shapes) - 1)
        places = np.array([np.count_nonzero(shape) for shape in self.shapes])
        operations = len(self.shapes) + 20
        by_draw = 2 * (places + 12) + operations * steepest
        drifts = self.counts @ by_draw
        largest_drift = float(drifts.max())
        return largest_drift * UNIT + 4 * UNIT * _FACTOR_EXPONENT

    @property
    def alias_tail(self) -> float:
        return min(self.tail, _ALIAS_TAIL)

    def _outside(self, window: Window, tail: float) -> FloatArray:
        """(cells,) the mass that a window may leave outside: none where it holds all values."""
        lowest, highest = window
        holds_all = (lowest <= 0) & (highest >= self.largest)
        return np.where(holds_all, 0.0, tail)

    def _window(self, tilt: _Tilt) -> Window:
        """Where the tilted sums lie, but for what may wrap around."""
        return _edges(self.shapes, self.counts, tilt, self.scale, self.alias_tail)

    def _length(self, width: int, windows: list[Window]) -> int:
        """Of the transforms."""
        length = max(width, 2)
        for lowest, highest in windows:
            spans = highest - lowest
            length = max(length, int(spans.max()) + 1)
        if length > MAX_LENGTH:
            remedy = f"the sum needs a window of {length} integers; use fewer"
            largest_count = int(self.counts.max())
            raise ParameterError("counts", largest_count, remedy)
        return int(scipy.fft.next_fast_len(length, real=True))

    def _estimates(
        self,
        windows: list[Window],
        width: int,
        length: int,
    ) -> _Best:
        """Take from each tilt what it knows best, a batch of cells at a time.

        All in one loop, whose arrays are reused: a function for each tilt would give their memory back
        to the system, and take a sixth longer.
        """
        best = _Best.of(self.cell_count, width)
        batch = max(1, _MEMORY // length)
        for tilt, window in zip(self.tilts, windows, strict=True):
            spectrum = _spectrum(tilt, length, self.counts)
            lowest, highest = window
            alias = self._outside(window, self.alias_tail)
            for first in range(0, self.cell_count, batch):
                cells = slice(first, first + batch)
                lower = self.lower[cells]
                counts = self.counts[cells]
                start = lower.astype(np.int64)
                tilted, error = _powers(spectrum, counts, start, length)
                best.take(
                    cells,
                    tilted[:, :width],
                    error=error + alias[cells],
                    inside=(lowest[cells] - lower, highest[cells] - lower),
                    theta=tilt.theta,
                    exponent=counts @ tilt.cumulants - tilt.theta * lower,
                )
        return best


def _tilts(
    shapes: Shapes,
    counts: FloatArray,
    ends: tuple[float, float],
) -> list[_Tilt]:
    """Every tilt whose peak a window needs, none at all first.

    Arguments:
        counts: (shapes,) of the cell that varies most.
        ends: of its window, the first and the last integer.
    """
    # Sums that hardly vary are tilted less, so that no factor over the window leaves the floats.
    first, last = ends
    largest_value = max(1, _longest(shapes) - 1)
    width = last - first + 1
    steepest = min(_STEEPEST_WINDOW / width, _STEEPEST_SHAPE / largest_value)
    thetas = [0.0]
    for sign, end in ((-1.0, first), (1.0, last)):
        theta = 0.0
        for _ in range(_PEAKS):
            mean, deviation = _moments(shapes, counts, theta)
            distance = sign * (end - mean)
            reaches_end = distance <= _PEAK_DISTANCE / 2 * deviation
            if reaches_end or abs(theta) >= steepest:
                break
            theta = _next_tilt(shapes, counts, theta, sign * steepest)
            thetas.append(theta)
    return [_tilted(shapes, theta) for theta in thetas]


def _moments(
    shapes: Shapes,
    counts: FloatArray,
    theta: float,
) -> tuple[float, float]:
    """Mean and standard deviation of the tilted sum."""
    weights = _tilted(shapes, theta).weights
    means = np.array([_mean_of(weight) for weight in weights])
    mean = float(counts @ means)
    variance = float(counts @ _variances(weights))
    return mean, sqrt(max(variance, 0.0))


def _next_tilt(
    shapes: Shapes,
    counts: FloatArray,
    theta: float,
    last: float,
) -> float:
    """The tilt, towards `last`, whose peak is `_PEAK_DISTANCE` deviations from this one's.

    Of deviations that both have on average.
    """
    mean, deviation = _moments(shapes, counts, theta)

    def is_near(further: float) -> bool:
        further_mean, further_deviation = _moments(shapes, counts, further)
        average = (deviation + further_deviation) / 2
        return abs(further_mean - mean) <= _PEAK_DISTANCE * average

    _, next_theta = bracket(is_near, theta, last, tolerance=0.02)
    return next_theta


@final
@dataclass(frozen=True, kw_only=True)
class _Best:
    """Of several estimates of each probability the one with the smallest error.

    Arguments:
        values, errors: (cells, width).
    """

    values: FloatArray
    errors: FloatArray

    @staticmethod
    def of(cells: int, width: int) -> _Best:
        """Nothing estimated yet."""
        values = np.zeros((cells, width))
        return _Best(values=values, errors=np.full_like(values, np.inf))

    def take(
        self,
        cells: slice,
        tilted: FloatArray,
        *,
        error: FloatArray,
        inside: Window,
        theta: float,
        exponent: FloatArray,
    ) -> None:
        """Undo a tilt and take, entry by entry, what has the smaller error.

        Arguments:
            cells: of the table.
            tilted: (cells, width) probabilities, and (cells,) their absolute `error`.
            inside: first and last index of each cell whose aliases the error counts.
            theta, exponent: the probability at index i is exp(exponent - theta i) times the tilted
                one.
        """
        indices = self._indices()
        # A factor that would overflow belongs to a tilt far from its peak, which has nothing to say
        # there.
        capped = np.minimum(exponent, _LARGEST_EXPONENT)
        with np.errstate(over="ignore", invalid="ignore"):
            factors = np.exp(capped)[:, None] * np.exp(-theta * indices)
            estimate_errors = factors * error[:, None]
            estimates = np.maximum(tilted, 0.0) * factors
        values = self.values[cells]
        errors = self.errors[cells]
        first, last = inside
        is_better = estimate_errors < errors
        is_better &= indices >= first[:, None]
        is_better &= indices <= last[:, None]
        is_better[exponent > _LARGEST_EXPONENT] = False
        np.copyto(values, estimates, where=is_better)
        np.copyto(errors, estimate_errors, where=is_better)

    def _indices(self) -> FloatArray:
        """(width,) of a window's integers, from its first on."""
        _cells, width = self.values.shape
        return np.arange(width, dtype=np.float64)

    def _windows(self, span: FloatArray) -> BoolArray:
        """(cells, width) whether an index lies in the cell's own window."""
        return np.less_equal(self._indices(), span[:, None])

    def above(
        self,
        start: IntArray,
        span: FloatArray,
        beyond: FloatArray,
        *,
        drift: float,
    ) -> SumPmf:
        """Upper bounds on all probabilities; arguments as of `reliable`."""
        windows = self._windows(span)
        highest = np.minimum(self.values + self.errors, 1.0)
        return SumPmf(
            start=start,
            pmf=np.where(windows, highest, 0.0),
            outside=beyond,
            error=2 * drift,
        )

    def reliable(
        self,
        start: IntArray,
        span: FloatArray,
        beyond: FloatArray,
        *,
        drift: float,
        tail: float,
    ) -> SumPmf:
        """What is right to a common relative error.

        The error is the finest at which what is left out is `tail` or unavoidable.

        Arguments:
            start, span: first integers and last indices of the cells' own windows.
            beyond: (cells,) masses outside them.
            drift: relative error of all probabilities.
        """
        windows = self._windows(span)
        values = np.where(windows, self.values, 0.0)
        errors = np.where(windows, np.minimum(self.errors, 1.0), 0.0)
        upper_masses = values + errors
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(errors > 0, errors / values, 0.0)
        # One level for each power of two, and a last one for what is not known at all.
        exponents = np.frexp(np.minimum(relative, 1.0))[1]
        exponents = np.where(relative > 0, exponents, _FINEST)
        levels = exponents.clip(_FINEST, _COARSEST + 1) - _FINEST
        masses = np.bincount(
            levels.ravel(),
            weights=upper_masses.ravel(),
            minlength=_COARSEST + 2 - _FINEST,
        )
        # Masses left out if only levels up to each are taken, the finest first.
        cumulated = np.cumsum(masses[::-1])
        omitted = cumulated[-2::-1]
        suffices = omitted <= 2 * omitted[-1] + tail
        level = int(np.argmax(suffices))
        is_taken = levels <= level
        omitted_by_cell = np.where(is_taken, 0.0, upper_masses).sum(axis=1)
        largest_error = float(relative[is_taken].max(initial=0.0))
        return SumPmf(
            start=start,
            pmf=np.where(is_taken, values, 0.0),
            outside=beyond + omitted_by_cell,
            error=largest_error + 2 * drift,
        )


def _mean_of(pmf: FloatArray) -> float:
    """Mean of one draw from a pmf on 0, 1, 2, ..."""
    return float(pmf @ np.arange(pmf.size))


def variance_of(pmf: FloatArray) -> float:
    """Variance of one draw from a pmf on 0, 1, 2, ..."""
    values = np.arange(pmf.size)
    squares = (values - pmf @ values) ** 2
    return float(pmf @ squares)


def _variances(pmfs: Shapes) -> FloatArray:
    return np.array([variance_of(pmf) for pmf in pmfs])
