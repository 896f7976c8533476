"""Vectors under an L2 bound: losses grow at most with the square of the distance of two inputs.

Between knots rows are mixed linearly, so p(x,.) - p(x',.) = (x - x') G with G a mean of segment
slopes, and with h(u) = max(1 + u, 0)^alpha - 1 - alpha u,
    exp((alpha - 1) D_alpha(p(x,.) || p(x',.))) - 1 = sum_i p(x',i) h((x - x') G_i / p(x',i)) = Phi.
The perspective P h(t G / P) is jointly convex in (P, G), so for a distance t = |x - x'| the
supremum stands at a (row, slope) pair, of segments within t of each other, with +G where x lies
above x' and -G where it lies below: both count, as only mirror-symmetric tables tie one to the
other. Convexity also gives data processing: adding the other clients' noise to rows and slopes
alike lowers Phi, and revealed mixtures average it. Then D_alpha <= kappa t^2, and losses of
independent coordinates add up to kappa ||x - x'||^2 (docs/proofs/sums-l2.md).

Pure losses of vectors under an L2 bound: what a table loses at most between inputs so far apart,
added up.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from math import ceil, frexp, inf, isinf, isqrt, log, log2, sqrt
from typing import final

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import float_above
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import UNIT, BoolArray, FloatArray, IntArray
from mezzotint.privacy.hulls import hull
from mezzotint.privacy.sums import find_lattice
from mezzotint.privacy.sums.noise import NoiseMixture, spread
from mezzotint.privacy.sums.series import series

_WORK = 1e7
"""Rows times slopes times places that one constant may cost, about."""

_FAINT = 40
"""Ratios that change a probability by 2**-40 of itself over the complete range are distinguished
when gathered."""

_GATHERED = 2**22
"""Numbers that the gathered ratios of all pairs may take, about."""

_REACH = 0.125
"""Ratios up to this share of 1 / (alpha + 1) are summed by the series, whose relative error is 1e-4
there."""

_CURVED = 10**4
"""Noise on fewer places than this leaves losses curved, and affords finer bins of distances."""

_FINE_BINS = 24
_COARSE_BINS = 6
"""Of distances."""

_NEAREST = 1 / 32
"""Share of the range up to which distances are in the first bin."""

_MOST_PARTS_LOG = 5
"""Octaves of gathered ratios are cut into at most 2 to this power parts."""

Table = tuple[FloatArray, FloatArray]
"""(K,) knots, and the (K, span + 1) rows there, between which rows are mixed linearly."""

POSITION_ERROR = 1.125 * 2.0**-32
"""Share of its segment by which the position that a row is drawn for lies off an input, at most (S1).

Either way: across a knot without a jump, too, where both segments have the same row, but never
across a jump (S3). Two inputs may so be farther apart, or nearer, by twice this.
"""


def _has_jumps(mechanism: Mechanism) -> bool:
    """Whether two rows at the same knot differ."""
    repeated_knots = np.diff(mechanism.knots) == 0
    changes = np.diff(mechanism.weights, axis=0)
    return bool(changes[repeated_knots].any())


def _segments(mechanism: Mechanism) -> Table:
    """Distinct knots, and the rows there on the lattice, of a table without jumps."""
    knots = mechanism.knots
    lattice = find_lattice(mechanism.levels)
    rows = np.zeros((knots.size, lattice.span + 1))
    rows[:, lattice.integers] = mechanism.probabilities
    is_new = np.diff(knots) > 0
    distinct = np.append(True, is_new)
    return knots[distinct], rows[distinct]


def _refined(table: Table, places: int) -> Table:
    """The same table with more knots, interpolated: vertices of smaller pieces overstate less."""
    knots, rows = table
    affordable_pairs = _WORK / max(places, 1)
    affordable_rows = isqrt(int(affordable_pairs))
    refinement = max(1, affordable_rows // knots.size)
    if refinement == 1:
        return table
    most_pieces = min(refinement * 4, 32)
    widest = (knots[-1] - knots[0]) / most_pieces
    finer_knots: list[FloatArray] = []
    finer_rows: list[FloatArray] = []
    knot_pairs = pairwise(knots.tolist())
    for (start, end), (left_row, right_row) in zip(knot_pairs, pairwise(rows), strict=True):
        length = end - start
        piece_count = max(1, ceil(length / widest))
        steps = np.arange(piece_count)
        finer_knots.append(start + length * steps / piece_count)
        # Sums of two positive terms: 3 UNIT of each entry, however small it is beside its
        # neighbours.
        steps_left = piece_count - steps
        left_part = steps_left[:, None] * left_row
        right_part = steps[:, None] * right_row
        finer_rows.append((left_part + right_part) / piece_count)
    finer_knots.append(knots[-1:])
    finer_rows.append(rows[-1:])
    return np.concatenate(finer_knots), np.concatenate(finer_rows)


def _least_distances(knots: FloatArray) -> FloatArray:
    """(K, K - 1) least distances of x from x'.

    x' lies in a segment beside knot k, and segment j between the two.
    """
    knots_before = np.append(knots[0], knots[:-1])
    knots_after = np.append(knots[1:], knots[-1])
    segment_starts = knots[:-1]
    segment_ends = knots[1:]
    # Where segment j lies above the segments beside knot k, and where it lies below them.
    above = segment_starts - knots_after[:, None]
    below = knots_before[:, None] - segment_ends
    # Refined knots stand where they should up to a few ulp of the largest.
    rounding = 16 * UNIT * _largest_size(knots)
    distances = np.maximum(above, below) - rounding
    return np.maximum(distances, 0.0)


def _largest_size(knots: FloatArray) -> float:
    return float(np.abs(knots).max())


def _ratio_cap(row: FloatArray, slope: FloatArray) -> float:
    """max_i |slope_i| / row_i: no convolution of both with the same noise exceeds it."""
    has_slope = slope != 0
    masses = row[has_slope]
    if (masses == 0).any():
        return inf
    ratios = np.abs(slope[has_slope]) / masses
    largest = float(ratios.max(initial=0.0))
    return largest * (1 + 64 * UNIT)


@final
class _NoisyRows:
    """Rows and slopes under a noise; convolutions are remembered, for every row meets every slope."""

    def __init__(self, noise: NoiseMixture) -> None:
        self.noise = noise
        self._convolutions: dict[bytes, FloatArray] = {}

    def _convolved(self, row: FloatArray) -> FloatArray:
        key = row.tobytes()
        convolution = self._convolutions.get(key)
        if convolution is None:
            convolution = spread(self.noise.pmf, row)
            self._convolutions[key] = convolution
        return convolution

    def ratios(
        self,
        row: FloatArray,
        slope: FloatArray,
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """What each cell and place weighs, and the bounds of the slope's ratio to the row there.

        No ratio is larger than the cap; what probabilities and sums are off by moves it by that
        share of the cap (R5).
        """
        cap = _ratio_cap(row, slope)
        noisy = self._convolved(row)
        with np.errstate(divide="ignore", invalid="ignore"):
            quotients = self._convolved(slope) / noisy
        ratio = np.nan_to_num(
            quotients,
            nan=0.0,
            posinf=cap,
            neginf=-cap,
        )
        error = cap * self.noise.slack(row.size)
        cell_weights = self.noise.probability[:, None]
        weights = noisy * cell_weights
        lowest = np.maximum(ratio - error, -cap)
        highest = np.minimum(ratio + error, cap)
        return weights.ravel(), lowest.ravel(), highest.ravel()


def squared_distance(
    mechanism: Mechanism,
    *,
    coordinates: int,
    clip_norm: float,
) -> float:
    """Largest squared L2 distance of the inputs that two clients' reports are drawn for.

    Rounded up.

    Arguments:
        mechanism: its range clips every coordinate; refused where its square is not a float.
        coordinates: reported of one vector.
        clip_norm: of a client's vector, data units.

    Guarantees: covers what arithmetic does to a vector: rotating moves its norm by a relative 128
        UNIT at most, and the row is drawn for a position that differs from the input's by 1.125 *
        2**-32 of its segment at most (S1).
    """
    span = mechanism.upper - mechanism.lower
    if not 1e-100 <= span <= 1e100:
        remedy = "its range squared leaves the floats; rescale the data"
        raise ParameterError("mechanism", span, remedy)
    segment_lengths = np.diff(mechanism.knots)
    widest_segment = float(segment_lengths.max())
    rotated_norm = clip_norm * (1 + 128 * UNIT)
    radius = rotated_norm + sqrt(coordinates) * widest_segment * POSITION_ERROR
    rounding = 1 + 8 * UNIT
    diameter = 2 * radius * rounding
    cube_diagonal_squared = coordinates * span * span * rounding
    return min(diameter * diameter, cube_diagonal_squared)


def quadratic_renyi(
    mechanism: Mechanism,
    noise: NoiseMixture,
    alpha: float,
) -> float:
    """kappa with D_alpha(sum given x || sum given x') <= kappa (x - x')^2 for all inputs.

    Rounded up.

    Arguments:
        mechanism: levels on a lattice.
        noise: of the other honest clients (`blanket_noise`), or `no_noise()` for one report seen
            alone.
        alpha: order > 1.

    Returns: kappa in nats per squared data unit, never below the exact supremum over pairs of
        inputs; inf when a level with slope has a row without mass, and for a table with a jump:
        inputs on either side of it, however near, are not near in distribution.
    """
    if not 1 < alpha < inf:
        raise ParameterError("alpha", alpha, "need a finite Renyi order above 1")
    if _has_jumps(mechanism):
        return inf
    return _pairs(mechanism, noise).renyi(alpha)


@final
class _Pairs:
    """Every row of a table with every slope under one noise: what they lose most, for one order
    after the other.

    The loss of a pair is a mean of h(t u) / t^2, convex in u: between two points of a grid a chord
    lies above it. What the places of a pair weigh is moved to the grid once; an order then bounds
    all pairs by one product of matrices, and only the few that may be the worst are looked at place
    by place.
    """

    def __init__(self, mechanism: Mechanism, noise: NoiseMixture) -> None:
        table = _segments(mechanism)
        table_knots, table_rows = table
        # Slopes from the table itself: differences of interpolated rows would cancel.
        lengths = np.diff(table_knots)
        changes = np.diff(table_rows, axis=0)
        self.slopes = changes / lengths[:, None]
        places = noise.pmf.size
        knots, self.rows = _refined(table, places)
        self.noise = noise
        bin_count = _COARSE_BINS
        if places < _CURVED:
            bin_count = _FINE_BINS
        shares = np.geomspace(_NEAREST, 1, bin_count)
        bin_edges = np.append(0.0, shares)
        span = mechanism.upper - mechanism.lower
        self.distances = bin_edges * span
        self.counts = self._counting_bins(table_knots, knots)
        self.caps = self._ratio_caps()
        self.points, self.weights = self._gathered()

    def _ratio_caps(self) -> FloatArray:
        """(pairs,) the cap of each row with each slope, rows first."""
        caps: list[float] = []
        for row in self.rows:
            for slope in self.slopes:
                caps.append(_ratio_cap(row, slope))
        return np.array(caps)

    def _counting_bins(self, table_knots: FloatArray, knots: FloatArray) -> BoolArray:
        """(pairs, bins) whether distances of a bin, or larger ones, are those of the pair.

        x' is a mixture of two neighbouring rows and G one of the slopes between x' and x: only slopes
        within t count.
        """
        # Pieces of one segment share its slope: the nearest of them decides.
        piece_starts = knots[:-1]
        segments = np.searchsorted(table_knots, piece_starts, side="right")
        _, first_pieces = np.unique(segments, return_index=True)
        piece_distances = _least_distances(knots)
        nearest = np.minimum.reduceat(piece_distances, first_pieces, axis=1)
        bin_ends = np.searchsorted(self.distances, nearest.ravel(), side="right")
        nearest_bins = bin_ends - 1
        return np.arange(self.bin_count) >= nearest_bins[:, None]

    @property
    def bin_count(self) -> int:
        """Bins of distances."""
        return self.distances.size - 1

    def _gathered(self) -> tuple[FloatArray, FloatArray]:
        """(points,) sizes of u, and what weighs on each: (2, pairs, points), u above 0 and below."""
        from mezzotint.privacy.sums import compiled as kernels

        finite = np.isfinite(self.caps)
        largest_cap = float(self.caps[finite].max(initial=0.0))
        span = float(self.distances[-1])
        unit_exponent = _exponent(1 / span) - _FAINT
        octave_count = max(1, _exponent(largest_cap) - unit_exponent)
        numbers = 2 * octave_count * self.caps.size
        affordable_log = max(0, int(log2(_GATHERED / numbers)))
        parts_log = min(_MOST_PARTS_LOG, affordable_log)
        part_count = 1 << parts_log
        points = _octave_points(octave_count, part_count)
        unit = 2.0**unit_exponent
        totals = np.zeros((2, self.caps.size, points.size))
        noisy_rows = _NoisyRows(self.noise)
        for pair in np.flatnonzero(finite).tolist():
            row, slope = self._pair(pair)
            bounds = noisy_rows.ratios(row, slope)
            kernels.gather(*bounds, unit, part_count, totals[:, pair])
        weighty = totals.max(axis=(0, 1)) > 0
        return points[weighty] * unit, totals[..., weighty]

    def _pair(self, pair: int) -> tuple[FloatArray, FloatArray]:
        row, slope = divmod(pair, len(self.slopes))
        return self.rows[row], self.slopes[slope]

    def bounds(self, alpha: float) -> FloatArray:
        """(pairs, bins) upper bounds on the loss over t^2 of each pair at distances t in each bin.

        0 in bins that do not count, inf where a level with slope has no mass.
        """
        above = self._quotients(self.points, alpha)
        below = self._quotients(-self.points, alpha)
        rising = _means(self.weights, above, below)  # x above x'
        falling = _means(self.weights, below, above)
        means = np.maximum(rising, falling)
        uncapped = np.isinf(self.caps)
        if self.noise.outside > 0:
            # Outside the windows any ratio up to the cap may stand.
            caps = np.where(uncapped, 0.0, self.caps)
            rising_edges = self._quotients(caps, alpha)
            falling_edges = self._quotients(-caps, alpha)
            edges = np.maximum(rising_edges, falling_edges)
            means = means + self.noise.outside * edges
        means[uncapped] = inf
        losses = _over_squares(self.distances[:-1], means)
        return np.where(self.counts, losses, 0.0)

    def _quotients(self, points: FloatArray, alpha: float) -> FloatArray:
        """(points, bins) the largest h(t u) / t^2 inside each bin of distances, u each point;
        rounded up."""
        from mezzotint.privacy.sums import compiled as kernels

        largest = np.zeros((points.size, self.bin_count))
        loss_series = series(alpha, _REACH)
        kernels.quotients(points, self.distances, loss_series, largest)
        return largest

    def renyi(self, alpha: float) -> float:
        """`quadratic_renyi` of this order."""
        bounds = self.bounds(alpha)
        largest = bounds.max(axis=1)
        worst = 0.0
        for pair in np.argsort(-largest).tolist():
            if largest[pair] <= worst or isinf(worst):
                break
            suspects = np.flatnonzero(bounds[pair] > worst)
            bin_ends = self.distances[suspects[0] : suspects[-1] + 2]
            row, slope = self._pair(pair)
            quotients = pair_quotients(self.noise, row, slope, bin_ends, alpha)
            losses = _over_squares(bin_ends[:-1], quotients)
            largest_loss = float(losses.max())
            worst = max(worst, largest_loss)
        # Means are sums over places and points, of terms that the noise's error enters once (R5).
        term_count = self.noise.pmf.size + 2 * self.points.size
        slack = self.noise.slack(term_count)
        return worst / (alpha - 1) * (1 + slack)


_pairs = lru_cache(maxsize=2)(_Pairs)


def _exponent(size: float) -> int:
    """The exponent of the next power of two above a size."""
    return frexp(size)[1]


def _octave_points(octave_count: int, part_count: int) -> FloatArray:
    """0, then 2^o (1 + k / parts) for every octave o and part k, then the end of the last octave."""
    mantissas = 1 + np.arange(part_count) / part_count
    octaves = np.arange(octave_count)
    starts = np.ldexp(mantissas, octaves[:, None])
    end = 2.0**octave_count
    return np.concatenate([[0.0], starts.ravel(), [end]])


def _means(
    weights: FloatArray,
    above: FloatArray,
    below: FloatArray,
) -> FloatArray:
    """(pairs, bins) weights times values, of u above 0 and below.

    inf where a value that weighs is.
    """
    totals = np.zeros((weights.shape[1], above.shape[1]))
    sides = (above, below)
    for side_weights, values in zip(weights, sides, strict=True):
        finite = np.isfinite(values)
        finite_values = np.where(finite, values, 0.0)
        totals += side_weights @ finite_values
        if not finite.all():
            is_infinite = np.where(finite, 0.0, 1.0)
            infinite_weight = side_weights @ is_infinite
            totals[infinite_weight > 0] = inf
    return totals


def _over_squares(distances: FloatArray, quotients: FloatArray) -> FloatArray:
    """Per bin of t that starts at a distance, log(1 + t^2 q) / t^2; at 0 q.

    It falls with t, so that left ends bound it.
    """
    squares = distances**2
    with np.errstate(divide="ignore", invalid="ignore"):
        losses = np.log1p(squares * quotients) / squares
    return np.where(distances > 0, losses, quotients)


def pair_quotients(
    noise: NoiseMixture,
    row: FloatArray,
    slope: FloatArray,
    distances: FloatArray,
    alpha: float,
) -> FloatArray:
    """Per bin of distances an upper bound on Phi(t) / t^2 for every t in it.

    Whether x lies above x' or below.
    """
    cap = _ratio_cap(row, slope)
    if isinf(cap):
        return np.full(distances.size - 1, inf)
    noisy_rows = _NoisyRows(noise)
    weights, lowest, highest = noisy_rows.ratios(row, slope)
    above = _mean_quotients(weights, lowest, highest, distances, alpha)
    below = _mean_quotients(weights, -highest, -lowest, distances, alpha)
    # Outside the windows any ratio up to the cap may stand.
    edges = _mean_quotients(
        np.array([noise.outside]),
        np.array([-cap]),
        np.array([cap]),
        distances,
        alpha,
    )
    worst = np.maximum(above + edges, below + edges)
    return np.nan_to_num(worst, nan=inf, posinf=inf)


def _mean_quotients(
    weights: FloatArray,
    low: FloatArray,
    high: FloatArray,
    distances: FloatArray,
    alpha: float,
) -> FloatArray:
    """(bins,) means of the largest h(t u) / t^2 inside each bin of distances, rounded up
    (`compiled.mean_quotients`); `compiled` is imported here because it is heavy.
    """
    from mezzotint.privacy.sums import compiled as kernels

    totals = np.zeros(distances.size - 1)
    loss_series = series(alpha, _REACH)
    kernels.mean_quotients(weights, low, high, distances, loss_series, totals)
    return totals


def steepest_loss(mechanism: Mechanism) -> float:
    """The largest slope of log p(x) over inputs and levels, per data unit, rounded up; inf at a
    jump, and where a level is possible at one of two neighbouring knots alone.
    """
    # Between two knots p is linear, so |d log p / dx| is largest at the smaller end: |b - a| / (h
    # min(a, b)). A supremum of slopes is the supremum of all difference quotients of log p.
    steepest = Fraction(0)
    knots = map(Fraction, mechanism.knots.tolist())
    knot_pairs = pairwise(knots)
    row_pairs = pairwise(mechanism.weights)
    for (start, end), (left_row, right_row) in zip(knot_pairs, row_pairs, strict=True):
        length = end - start
        smaller = np.minimum(left_row, right_row)
        difference = np.abs(right_row - left_row)
        changed = difference > 0
        if not changed.any():
            continue
        has_all_levels = smaller[changed].all()
        if length == 0 or not has_all_levels:
            return inf
        divisors = np.maximum(smaller, 1)
        quotients = np.where(changed, difference / divisors, 0.0)
        # Rounding keeps order: the quotient that is exactly the largest is among the largest
        # floats.
        is_largest = quotients == quotients.max()
        for level in np.flatnonzero(is_largest).tolist():
            smaller_weight = int(smaller[level])
            change = int(difference[level])
            relative_change = Fraction(change, smaller_weight)
            steepest = max(steepest, relative_change / length)
    return float_above(steepest)


_DISTANCES = 64
"""Distances at which a pure loss is computed."""

_HALVINGS = 40
"""Halvings of the first of them beside a jump; smaller ones are lost in what losses are rounded by."""


def loss_profile(mechanism: Mechanism) -> tuple[FloatArray, FloatArray]:
    """The largest log-ratio of a level between inputs at most so far apart.

    Returns: distances t_1 < .. < t_k = range, and the losses.

    Guarantees: the losses of a table's jumps stand at every distance; they are inf where a level
        has mass in one row and none in another. Never below the supremum over all such pairs of
        inputs, and never above what a distance a few ulp larger allows (docs/proofs/vectors.md,
        "Pure losses").
    """
    span = mechanism.upper - mechanism.lower
    steps = np.arange(1, _DISTANCES + 1)
    distances = span * steps / _DISTANCES
    if _has_jumps(mechanism):
        halvings = np.arange(_HALVINGS, 0, -1)
        near_distances = 0.5**halvings * distances[0]
        distances = np.concatenate([near_distances, distances])
    losses = [_loss_within(mechanism, distance) for distance in distances.tolist()]
    return distances, np.maximum.accumulate(losses)


def _loss_within(mechanism: Mechanism, distance: float) -> float:
    """The largest log-ratio between inputs at most `distance` apart."""
    # x and x' in two closed segments with |x - x'| <= t are a polygon, on which p(x) / p(x') is a
    # ratio of two affine functions: its largest value stands at a vertex, where one of the two is a
    # knot and the other a knot or t away.
    knots = mechanism.knots
    shifted = np.concatenate([knots - distance, knots + distance])
    # A shifted knot is rounded; between the floats on either side of it probabilities are monotone.
    floats_below = np.nextafter(shifted, -inf)
    floats_above = np.nextafter(shifted, inf)
    vertices = np.concatenate([shifted, floats_below, floats_above])
    is_inside = (knots[0] < vertices) & (vertices < knots[-1])
    inner = vertices[is_inside]
    inner_rows = _between(mechanism, inner)
    inputs = np.concatenate([knots, inner])
    rows = np.concatenate([mechanism.probabilities, inner_rows])
    order = np.argsort(inputs, kind="stable")
    inputs = inputs[order]
    rows = rows[order]
    # The rounding of a shifted knot, its neighbour, and their distance: each an ulp of the largest
    # knot at most.
    reach = distance + 8 * UNIT * _largest_size(knots)
    first = np.searchsorted(inputs, inputs - reach, side="left")
    last = np.searchsorted(inputs, inputs + reach, side="right")
    highest = _window_maxima(rows, first, last)
    # A ratio beyond the floats, beside a knot without mass, counts as an infinite one.
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratios = np.nan_to_num(highest / rows, nan=1.0, posinf=inf)
    largest_ratio = float(ratios.max())
    # Ratios err by 16 UNIT, logarithms by 2 UNIT of at most 23.
    return log(largest_ratio) + 256 * UNIT


def _between(mechanism: Mechanism, inputs: FloatArray) -> FloatArray:
    """(n, m) rows at inputs inside the range: sums of two positive terms, 8 UNIT of each entry."""
    rows = mechanism.probabilities
    knots = mechanism.knots
    segment_ends = np.searchsorted(knots, inputs, side="right")
    segment_starts = segment_ends - 1
    before = knots[segment_starts]
    after = knots[segment_ends]
    lengths = after - before
    right_shares = (inputs - before) / lengths
    left_shares = (after - inputs) / lengths
    left_parts = left_shares[:, None] * rows[segment_starts]
    right_parts = right_shares[:, None] * rows[segment_ends]
    return left_parts + right_parts


def _window_maxima(
    values: FloatArray,
    first: IntArray,
    last: IntArray,
) -> FloatArray:
    """(n, m) largest of values[first_i : last_i] per column.

    By the maxima of 2^j neighbours, two of which cover a window.
    """
    window_maxima = np.empty_like(values)
    lengths = last - first
    width = 1
    maxima = values  # of `width` neighbours, the first of which stands at the index
    while True:
        covered = (lengths >= width) & (lengths < 2 * width)
        left_starts = first[covered]
        right_starts = last[covered] - width
        left_maxima = maxima[left_starts]
        right_maxima = maxima[right_starts]
        window_maxima[covered] = np.maximum(left_maxima, right_maxima)
        if not (lengths >= 2 * width).any():
            return window_maxima
        maxima = np.maximum(maxima[:-width], maxima[width:])
        width *= 2


def pure_epsilon_l2(
    mechanism: Mechanism,
    *,
    coordinates: int,
    clip_norm: float,
) -> float:
    """Pure epsilon of one round between any two vectors of L2 norm at most `clip_norm`, rounded up.

    Arguments:
        mechanism: any table; its jumps may be crossed in every coordinate at once.
        coordinates: how many are reported, each independently.
        clip_norm: data units.

    Guarantees: at most `coordinates` times the table's own epsilon, up to rounding.
    """
    square = squared_distance(mechanism, coordinates=coordinates, clip_norm=clip_norm)
    distances, losses = loss_profile(mechanism)
    if isinf(losses[-1]):
        return inf
    # A pair at a distance in (t_{j-1}, t_j] loses at most losses[j]: points above the profile stand
    # at left ends. With a concave majorant f over squared distances, sum_j f(a_j) <= coordinates
    # f(sum a_j / coordinates) (Jensen). Where a square is off by a relative 4 UNIT, f is too: it
    # rises, is concave, and at 0 it is not below 0.
    left_ends = np.append(0.0, distances[:-1])
    mean_square = square / coordinates
    mean_loss = concave_majorant(left_ends**2, losses, mean_square)
    loss = coordinates * mean_loss
    # Coordinates at distances d_j lose at most the sum of steepest d_j (Cauchy-Schwarz).
    loss_by_slope = steepest_loss(mechanism) * sqrt(coordinates * square)
    return min(loss, loss_by_slope) * (1 + 64 * UNIT)


def concave_majorant(
    points: FloatArray,
    values: FloatArray,
    position: float,
) -> float:
    """The least concave, increasing function above the points, at a position.

    Constant beyond the last point.
    """
    increasing = np.maximum.accumulate(values)
    mirrored = -increasing
    vertices = hull(points.tolist(), mirrored.tolist())
    corner_points = points[vertices]
    corner_values = increasing[vertices]
    return float(np.interp(position, corner_points, corner_values))
