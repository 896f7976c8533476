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
from mezzotint.core.types import UNIT, FloatArray, IntArray

_CHERNOFF_TILTS = np.array(
    [0.25, 0.5, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 17, 20, 25, 30, 40, 60], dtype=np.float64
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


def _largest_values(shapes: Sequence[FloatArray]) -> FloatArray:
    return np.array([shape.size - 1.0 for shape in shapes])


def _generated(shapes: Sequence[FloatArray], thetas: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Tilted shapes and their log generating functions.

    Returns: (thetas, shapes, longest) up to a factor, and (thetas, shapes).
    """
    longest = max(shape.size for shape in shapes)
    padded = np.zeros((len(shapes), longest))
    for padded_row, shape in zip(padded, shapes, strict=True):
        padded_row[: shape.size] = shape
    # Factored around the largest exponent: no overflow, and log1p-like accuracy is not needed (see
    # `_cumulant_error`).
    largest = np.maximum(0.0, thetas[:, None] * _largest_values(shapes))
    values = np.arange(longest, dtype=np.float64)
    exponents = thetas[:, None, None] * values - largest[:, :, None]
    # Above 0 are exponents of the padding alone.
    tilted = padded * np.exp(np.minimum(exponents, 0.0))
    cumulants = largest + np.log(tilted.sum(axis=2))
    return tilted, cumulants


def _tilted(shapes: Sequence[FloatArray], theta: float) -> _Tilt:
    tilted, cumulants = _generated(shapes, np.array([theta]))
    pmfs: list[FloatArray] = []
    for padded_row, shape in zip(tilted[0], shapes, strict=True):
        pmfs.append(padded_row[: shape.size] / padded_row.sum())
    return _Tilt(theta=theta, weights=tuple(pmfs), cumulants=cumulants[0])


def _edges(
    shapes: Sequence[FloatArray],
    counts: FloatArray,
    base: _Tilt,
    scale: float,
    tail: float,
) -> tuple[FloatArray, FloatArray]:
    """Per cell integers (a, b) between which the sum lies under the `base` tilt.

    But for a mass of `tail` (Chernoff).
    """
    steps = np.concatenate([-_CHERNOFF_TILTS, _CHERNOFF_TILTS]) / scale
    longest = max(shape.size for shape in shapes)
    steps = steps[np.abs(steps) * longest <= _LARGEST_EXPONENT]
    log_tail = math.log(2 / tail) + 2 * _cumulant_error(shapes, counts)
    _, cumulants = _generated(shapes, base.theta + steps)
    # P(S >= b) <= exp(K(theta + step) - K(theta) - step b) for step > 0, mirrored below.
    bounds = counts @ cumulants.T
    bounds += (log_tail - counts @ base.cumulants)[:, None]
    bounds /= steps
    lower = np.floor(bounds[:, steps < 0]).max(axis=1, initial=0.0)
    upper = np.ceil(bounds[:, steps > 0]).min(axis=1, initial=np.inf)
    upper = np.minimum(upper, counts @ _largest_values(shapes))
    return lower, np.maximum(upper, lower)


def _cumulant_error(shapes: Sequence[FloatArray], counts: FloatArray) -> FloatArray:
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
    return np.exp((-2j * math.pi / length) * np.arange(length))


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
        wrapped = np.bincount(np.arange(weight.size) % length, weights=weight)
    transform = np.asarray(scipy.fft.rfft(wrapped, length), dtype=np.complex128)
    # Normwise error 8 UNIT log2(M) of the transform's 2-norm sqrt(M) |w|_2, hence of any entry.
    norm = math.sqrt(length) * float(np.linalg.norm(wrapped))
    error = 8 * UNIT * math.log2(length) * norm
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
    frequencies = np.arange(roots.size // 2 + 1, dtype=np.int64)
    transform = np.zeros(frequencies.size, dtype=np.complex128)
    positive: list[int] = np.flatnonzero(weight).tolist()
    for value in positive:
        # The angle is reduced in integers.
        transform += weight[value] * roots[(value * frequencies) % roots.size]
    # An angle errs by 3 UNIT of itself, its exponential by 4 UNIT, products and sums by UNIT each.
    turns = frequencies * ((weight.size - 1) / roots.size)
    angles = 2 * math.pi * np.minimum(turns, 1.0)
    terms = len(positive) + 6
    return transform, (terms + 3 * angles) * UNIT


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
    transforms = [_transform(weight, roots) for weight in tilt.weights]
    values = np.stack([value for value, _ in transforms])
    errors = np.stack([error for _, error in transforms])
    bounds = np.maximum(np.abs(values), _SMALLEST_SIZE) + errors
    # Almost all frequencies are negligible: the smallest counts bound every cell's size there
    # (sizes above 1 are capped).
    capped_sizes = np.log(np.minimum(bounds, 1.0))
    ceiling = counts.min(axis=0) @ capped_sizes
    frequencies = np.flatnonzero(ceiling > math.log(_NEGLIGIBLE))
    values = values[:, frequencies]
    bounds = bounds[:, frequencies]
    logarithms = np.log(np.where(values == 0, _ZERO_TRANSFORM, values))
    # |fl(z)^N - z^N| <= N error size^(N-1); a logarithm errs by 4 UNIT and as much of itself, and
    # the exponent N log z, rotated, carries N |log z| (L + 2) UNIT of rounding.
    rounding = (4 + (len(tilt.weights) + 6) * np.abs(logarithms)) * UNIT
    return _Spectrum(
        frequencies=frequencies,
        logarithms=logarithms,
        sizes=np.log(bounds),
        coefficients=errors[:, frequencies] / bounds + rounding,
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
    turns = (frequencies * (start[:, None] % length)) % length
    exponents = counts.astype(np.complex128) @ spectrum.logarithms
    exponents += (2j * math.pi / length) * turns
    values = np.zeros((counts.shape[0], length // 2 + 1), dtype=np.complex128)
    values[:, frequencies] = np.exp(exponents)
    sizes = np.exp(counts @ spectrum.sizes)
    # The rotation by `start` adds 24 UNIT to every entry. Other frequencies are below _NEGLIGIBLE,
    # but for the tiny growth of sizes above 1, which exp(1) covers.
    relative_errors = counts @ spectrum.coefficients + 24 * UNIT
    entry_errors = sizes * relative_errors
    error = entry_errors.sum(axis=1) * 2 / length + 3 * _NEGLIGIBLE
    norm = np.sqrt((sizes**2).sum(axis=1) * 2 / length) + 3 * _NEGLIGIBLE
    pmfs = scipy.fft.irfft(values, length, axis=1)
    return pmfs, error + 8 * UNIT * math.log2(length) * norm


def _check(
    shapes: Sequence[FloatArray],
    counts: npt.ArrayLike,
    tail: float,
) -> IntArray:
    table = np.atleast_2d(np.asarray(counts, dtype=np.int64))
    if len(shapes) == 0 or table.shape[1] != len(shapes) or (table < 0).any():
        raise ParameterError("counts", table.shape, "need one count >= 0 per shape in every row")
    check_probability("tail", tail)
    for shape in shapes:
        if not _is_pmf(shape):
            raise ParameterError("shapes", shape.tolist(), "every shape is a pmf on 0, 1, 2, ...")
    return table


def _is_pmf(shape: FloatArray) -> bool:
    if shape.ndim != 1 or shape.size < 1 or (shape < 0).any():
        return False
    # Sums may miss 1 by the conversion of integer weights, never by more.
    return abs(float(shape.sum()) - 1) <= 2.0**-40


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
    return _Sums(shapes, table, tail).pmf(from_above=from_above)


@final
class _Sums:
    """The windows of several sums, and their estimates at every tilt."""

    def __init__(
        self,
        shapes: Sequence[FloatArray],
        table: IntArray,
        tail: float,
    ) -> None:
        self.shapes = shapes
        self.counts = table.astype(np.float64)
        self.tail = tail
        shape_variances = np.array([variance_of(shape) for shape in shapes])
        variances = self.counts @ shape_variances
        self.scale = max(_LEAST_SCALE, math.sqrt(float(variances.max())))
        untilted = _tilted(shapes, 0.0)
        self.lower, self.upper = _edges(shapes, self.counts, untilted, self.scale, tail)
        self.largest = self.counts @ _largest_values(shapes)
        widest = int(variances.argmax())
        ends = (float(self.lower[widest]), float(self.upper[widest]))
        self.tilts = _tilts(shapes, self.counts[widest], ends)

    def pmf(self, *, from_above: bool) -> SumPmf:
        """The best estimates of all tilts."""
        windows = [self._window(tilt) for tilt in self.tilts]
        width = int((self.upper - self.lower).max()) + 1
        length = self._length(width, windows)
        best = self._estimates(windows, width, length)
        drift = self._drift()
        holds_all = (self.lower <= 0) & (self.upper >= self.largest)
        beyond = np.where(holds_all, 0.0, self.tail)
        start = self.lower.astype(np.int64)
        span = self.upper - self.lower
        if from_above:
            return best.above(start, span, beyond, drift=drift)
        return best.reliable(start, span, beyond, drift=drift, tail=self.tail)

    def _drift(self) -> float:
        """Relative error of all probabilities by tilted weights and by exponents below 640."""
        # A draw's weight and cumulant err by m + 12 UNIT each, and by UNIT of exponents as large as
        # the steepest over a shape, in at most L + 20 operations.
        steepest = max(abs(tilt.theta) for tilt in self.tilts)
        steepest *= max(shape.size for shape in self.shapes) - 1
        places = np.array([np.count_nonzero(shape) for shape in self.shapes])
        operations = len(self.shapes) + 20
        by_draw = 2 * (places + 12) + operations * steepest
        drifts = self.counts @ by_draw
        return float(drifts.max()) * UNIT + 4 * UNIT * _FACTOR_EXPONENT

    @property
    def alias_tail(self) -> float:
        return min(self.tail, _ALIAS_TAIL)

    def _window(self, tilt: _Tilt) -> tuple[FloatArray, FloatArray]:
        """Where the tilted sums lie, but for what may wrap around."""
        return _edges(self.shapes, self.counts, tilt, self.scale, self.alias_tail)

    def _length(self, width: int, windows: list[tuple[FloatArray, FloatArray]]) -> int:
        """Of the transforms."""
        length = max(width, 2)
        for lowest, highest in windows:
            length = max(length, int((highest - lowest).max()) + 1)
        if length > MAX_LENGTH:
            remedy = f"the sum needs a window of {length} integers; use fewer"
            raise ParameterError("counts", int(self.counts.max()), remedy)
        return int(scipy.fft.next_fast_len(length, real=True))

    def _estimates(
        self,
        windows: list[tuple[FloatArray, FloatArray]],
        width: int,
        length: int,
    ) -> _Best:
        """Take from each tilt what it knows best, a batch of cells at a time.

        All in one loop, whose arrays are reused: a function for each tilt would give their memory back
        to the system, and take a sixth longer.
        """
        best = _Best.of(self.counts.shape[0], width)
        batch = max(1, _MEMORY // length)
        for tilt, (lowest, highest) in zip(self.tilts, windows, strict=True):
            spectrum = _spectrum(tilt, length, self.counts)
            holds_all = (lowest <= 0) & (highest >= self.largest)
            alias = np.where(holds_all, 0.0, self.alias_tail)
            for first in range(0, self.counts.shape[0], batch):
                cells = slice(first, first + batch)
                lower = self.lower[cells]
                counts = self.counts[cells]
                tilted, error = _powers(spectrum, counts, lower.astype(np.int64), length)
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
    shapes: Sequence[FloatArray],
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
    largest_value = max(shape.size for shape in shapes) - 1
    width = last - first + 1
    steepest = min(_STEEPEST_WINDOW / width, _STEEPEST_SHAPE / max(1, largest_value))
    thetas = [0.0]
    for sign, end in ((-1.0, first), (1.0, last)):
        theta = 0.0
        for _ in range(_PEAKS):
            mean, deviation = _moments(shapes, counts, theta)
            reaches_end = sign * (end - mean) <= _PEAK_DISTANCE / 2 * deviation
            if reaches_end or abs(theta) >= steepest:
                break
            theta = _next_tilt(shapes, counts, theta, sign * steepest)
            thetas.append(theta)
    return [_tilted(shapes, theta) for theta in thetas]


def _moments(
    shapes: Sequence[FloatArray],
    counts: FloatArray,
    theta: float,
) -> tuple[float, float]:
    """Mean and standard deviation of the tilted sum."""
    weights = _tilted(shapes, theta).weights
    means = np.array([float(weight @ np.arange(weight.size)) for weight in weights])
    variances = np.array([variance_of(weight) for weight in weights])
    mean = float(counts @ means)
    variance = max(float(counts @ variances), 0.0)
    return mean, math.sqrt(variance)


def _next_tilt(
    shapes: Sequence[FloatArray],
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
        return _Best(values=np.zeros((cells, width)), errors=np.full((cells, width), np.inf))

    def take(
        self,
        cells: slice,
        tilted: FloatArray,
        *,
        error: FloatArray,
        inside: tuple[FloatArray, FloatArray],
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
        indices = np.arange(tilted.shape[1], dtype=np.float64)
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
        is_better &= (indices >= first[:, None]) & (indices <= last[:, None])
        is_better[exponent > _LARGEST_EXPONENT] = False
        np.copyto(values, estimates, where=is_better)
        np.copyto(errors, estimate_errors, where=is_better)

    def _windows(self, span: FloatArray) -> npt.NDArray[np.bool_]:
        """(cells, width) whether an index lies in the cell's own window."""
        indices = np.arange(self.values.shape[1], dtype=np.float64)
        return np.less_equal(indices, span[:, None])

    def above(
        self,
        start: IntArray,
        span: FloatArray,
        beyond: FloatArray,
        *,
        drift: float,
    ) -> SumPmf:
        """Upper bounds on all probabilities; arguments as of `reliable`."""
        highest = np.minimum(self.values + self.errors, 1.0)
        return SumPmf(
            start=start,
            pmf=np.where(self._windows(span), highest, 0.0),
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
        omitted = np.cumsum(masses[::-1])[::-1][1:]
        level = int(np.argmax(omitted <= 2 * omitted[-1] + tail))
        is_taken = levels <= level
        omitted_by_cell = np.where(is_taken, 0.0, upper_masses).sum(axis=1)
        return SumPmf(
            start=start,
            pmf=np.where(is_taken, values, 0.0),
            outside=beyond + omitted_by_cell,
            error=float(relative[is_taken].max(initial=0.0)) + 2 * drift,
        )


def variance_of(pmf: FloatArray) -> float:
    """Variance of one draw from a pmf on 0, 1, 2, ..."""
    values = np.arange(pmf.size)
    squares = (values - pmf @ values) ** 2
    return float(pmf @ squares)
