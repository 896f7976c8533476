"""Vectors under an L2 bound: the Renyi loss of a table grows at most with the square of the
distance of its inputs.

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

import math
from functools import lru_cache
from itertools import pairwise
from typing import final

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import UNIT, FloatArray, IntArray, NumberArray
from mezzotint.privacy.profile import hull
from mezzotint.privacy.sums import find_lattice
from mezzotint.privacy.sums.blanket import NoiseMixture, spread

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

_FINE = 10**4
"""Noise on fewer places than this leaves losses curved, and affords finer bins of distances."""


def series(alpha: float, reach: float = 0.5) -> tuple[float, float, float, float, float, float]:
    """(alpha, small, a, b, c, UNIT): h(u) = max(1 + u, 0)**alpha - 1 - alpha u is at most u^2 (a +
    b u + c u^2), and at least half of it, for |u| <= small = reach / (alpha + 1), roundings of this
    bound included; 0 < reach <= 1/2."""
    small = reach / (alpha + 1)
    # Taylor with Lagrange's remainder for small u: the fourth derivative is at most its larger
    # end's, and its size is taken. The bracket a + b u + c u^2 lies within a factor of 2 of a, so
    # relative errors stay below 64 UNIT.
    second, third = alpha * (alpha - 1) / 2, alpha * (alpha - 1) * (alpha - 2) / 6
    fourth = abs(third * (alpha - 3)) / 4 * math.exp(abs(alpha - 4) * -math.log1p(-small))
    return alpha, small, second * (1 + 64 * UNIT), third, fourth, UNIT


def _segments(mechanism: Mechanism) -> tuple[FloatArray, FloatArray]:
    """(K,) distinct knots and (K, span + 1) rows, on its lattice, of a table without jumps."""
    lattice = find_lattice(mechanism.levels)
    rows = np.zeros((mechanism.knots.size, lattice.span + 1))
    rows[:, lattice.integers] = mechanism.probabilities
    keep = np.append(True, np.diff(mechanism.knots) > 0)
    return mechanism.knots[keep], rows[keep]


def _refined(knots: FloatArray, rows: FloatArray, places: int) -> tuple[FloatArray, FloatArray]:
    """The same table with more knots, interpolated: vertices of smaller pieces overstate less."""
    pieces = max(1, math.isqrt(int(_WORK / max(places, 1))) // knots.size)
    if pieces == 1:
        return knots, rows
    widest = (knots[-1] - knots[0]) / min(pieces * 4, 32)
    finer: list[FloatArray] = []
    mixed: list[FloatArray] = []
    for (a, b), (row, following) in zip(pairwise(knots.tolist()), pairwise(rows), strict=True):
        parts = max(1, math.ceil((b - a) / widest))
        steps = np.arange(parts)
        finer.append(a + (b - a) * steps / parts)
        # Sums of two positive terms: 3 UNIT of each entry, however small it is beside its
        # neighbours.
        mixed.append(((parts - steps)[:, None] * row + steps[:, None] * following) / parts)
    return np.append(np.concatenate(finer), knots[-1]), np.concatenate([*mixed, rows[-1:]])


def _reach(knots: FloatArray) -> FloatArray:
    """(K, K - 1) how far x must at least be from an x' in a segment beside knot k for segment j to
    be between them."""
    count = knots.size
    beside_left = knots[np.maximum(np.arange(count) - 1, 0)]
    beside_right = knots[np.minimum(np.arange(count) + 1, count - 1)]
    left_of = knots[None, :-1] - beside_right[:, None]
    right_of = beside_left[:, None] - knots[None, 1:]
    # Refined knots stand where they should up to a few ulp of the largest.
    return np.maximum(np.maximum(left_of, right_of) - 16 * UNIT * float(np.abs(knots).max()), 0.0)


def _ratio_cap(row: FloatArray, slope: FloatArray) -> float:
    """max_i |slope_i| / row_i: no convolution of both with the same noise exceeds it."""
    used = slope != 0
    if (row[used] == 0).any():
        return math.inf
    return float((np.abs(slope[used]) / row[used]).max(initial=0.0)) * (1 + 64 * UNIT)


@final
class _Smear:
    """Rows and slopes under a noise; each convolution is kept, for every row meets every slope."""

    def __init__(self, noise: NoiseMixture) -> None:
        self.noise = noise
        self.kept: dict[bytes, FloatArray] = {}

    def __call__(self, row: FloatArray) -> FloatArray:
        key = row.tobytes()
        if key not in self.kept:
            self.kept[key] = spread(self.noise.pmf, row)
        return self.kept[key]


def _noisy(
    smear: _Smear, row: FloatArray, slope: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The noisy row; the least and the greatest value that slope over row may have; per cell and
    place.

    No ratio is larger than the cap; what probabilities and sums are off by moves it by that share
    of the cap (R5).
    """
    cap = _ratio_cap(row, slope)
    below = smear(row)
    doubt = cap * smear.noise.slack(row.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.nan_to_num(smear(slope) / below, nan=0.0, posinf=cap, neginf=-cap)
    return below, np.maximum(ratio - doubt, -cap), np.minimum(ratio + doubt, cap)


def squared_distance(mechanism: Mechanism, *, coordinates: int, l2_norm: float) -> float:
    """Largest squared L2 distance of the inputs that the reports of two clients are drawn for,
    rounded up.

    Arguments:
        mechanism: its range clips every coordinate; refused where its square is not a float.
        coordinates: reported of one vector.
        l2_norm: of a client's vector, data units.

    Guarantees: covers what arithmetic does to a vector: rotating moves its norm by a relative 128
        UNIT at most, and the row is drawn for a position that differs from the input's by 2**-32 of
        its segment at most (S1).
    """
    width = float(np.diff(mechanism.knots).max())
    span = mechanism.upper - mechanism.lower
    if not 1e-100 <= span <= 1e100:
        raise ParameterError(
            "mechanism", span, "its range squared leaves the floats; rescale the data"
        )
    between = (
        2
        * (l2_norm * (1 + 128 * UNIT) + math.sqrt(coordinates) * width * 2.0**-32)
        * (1 + 8 * UNIT)
    )
    return min(between * between, coordinates * span * span * (1 + 8 * UNIT))


def quadratic_renyi(mechanism: Mechanism, noise: NoiseMixture, alpha: float) -> float:
    """kappa with D_alpha(sum given x || sum given x') <= kappa (x - x')^2 for all inputs, rounded
    up.

    Arguments:
        mechanism: levels on a lattice.
        noise: of the other honest clients (`blanket_noise`), or `no_noise()` for one report seen
            alone.
        alpha: order > 1.

    Returns: kappa in nats per squared data unit, never below the exact supremum over pairs of
        inputs; inf when a level with slope has a row without mass, and for a table with a jump:
        inputs on either side of it, however near, are not near in distribution.
    """
    if not 1 < alpha < math.inf:
        raise ParameterError("alpha", alpha, "need a finite Renyi order above 1")
    steps = np.diff(mechanism.weights, axis=0)[np.diff(mechanism.knots) == 0]
    return math.inf if (steps != 0).any() else _pairs(mechanism, noise).renyi(alpha)


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
        knots, rows = _segments(mechanism)
        # Slopes from the table itself: differences of interpolated rows would cancel.
        self.slopes = np.diff(rows, axis=0) / np.diff(knots)[:, None]
        coarse = knots
        knots, self.rows = _refined(knots, rows, noise.pmf.size)
        self.noise = noise
        segment = np.searchsorted(coarse, knots[:-1], side="right")
        bins = 24 if noise.pmf.size < _FINE else 6
        self.distances = np.append(0.0, np.geomspace(1 / 32, 1, bins)) * (
            mechanism.upper - mechanism.lower
        )
        # x' is a mixture of two neighbouring rows and G one of the slopes between x' and x: only
        # slopes within t count. Pieces of one segment share its slope: the nearest of them decides.
        apart = np.minimum.reduceat(_reach(knots), np.unique(segment, return_index=True)[1], axis=1)
        # The bins that count are those from some distance on.
        first = np.searchsorted(self.distances, apart.ravel(), side="right") - 1
        self.counts = np.arange(bins) >= first[:, None]
        self.caps = np.array([_ratio_cap(row, slope) for row in self.rows for slope in self.slopes])
        self.points, self.weights = self._gathered()

    def _gathered(self) -> tuple[FloatArray, FloatArray]:
        """(points,) sizes of u, and (2, pairs, points) what weighs on each, of u above 0 and
        below."""
        from mezzotint.privacy.sums import compiled as kernels

        known, smear = np.isfinite(self.caps), _Smear(self.noise)
        bottom = math.frexp(1 / float(self.distances[-1]))[1] - _FAINT
        octaves = max(1, math.frexp(float(self.caps[known].max(initial=0.0)))[1] - bottom)
        parts = 1 << min(5, max(0, int(math.log2(_GATHERED / (2 * octaves * self.caps.size)))))
        ends = np.ldexp(1 + np.arange(parts) / parts, np.arange(octaves)[:, None]).ravel()
        points = np.concatenate([[0.0], ends, [2.0**octaves]])
        unit = 2.0**bottom
        result = np.zeros((2, self.caps.size, points.size))
        for place in np.flatnonzero(known).tolist():
            weights, lowest, highest = _noisy(smear, *self._pair(place))
            weights = (weights * self.noise.probability[:, None]).ravel()
            kernels.gather(weights, lowest.ravel(), highest.ravel(), unit, parts, result[:, place])
        used = result.max(axis=(0, 1)) > 0
        return points[used] * unit, result[:, :, used]

    def _pair(self, place: int) -> tuple[FloatArray, FloatArray]:
        row, slope = divmod(place, len(self.slopes))
        return self.rows[row], self.slopes[slope]

    def bounds(self, alpha: float) -> FloatArray:
        """(pairs, bins) upper bounds on the loss over t^2 of each pair at distances t in each bin;
        0 in bins that do not count, inf where a level with slope has no mass."""
        above, below = (self._quotients(sign * self.points, alpha) for sign in (1, -1))
        # x above x', then below it; and outside the windows, where any ratio up to the cap may
        # stand.
        sides = [
            _mean_of(self.weights, one, other) for one, other in ((above, below), (below, above))
        ]
        means = np.maximum(*sides)
        if self.noise.outside > 0:
            caps = np.where(np.isinf(self.caps), 0.0, self.caps)
            edges = np.maximum(self._quotients(caps, alpha), self._quotients(-caps, alpha))
            means = means + self.noise.outside * edges
        means[np.isinf(self.caps)] = math.inf
        return np.where(self.counts, _over_squares(self.distances[:-1], means), 0.0)

    def _quotients(self, points: FloatArray, alpha: float) -> FloatArray:
        """(points, bins) the largest h(t u) / t^2 inside each bin of distances, u each point;
        rounded up."""
        from mezzotint.privacy.sums import compiled as kernels

        result = np.zeros((points.size, self.distances.size - 1))
        kernels.quotients(points, self.distances, series(alpha, _REACH), result)
        return result

    def renyi(self, alpha: float) -> float:
        """`quadratic_renyi` of this order."""
        bounds, worst = self.bounds(alpha), 0.0
        largest = bounds.max(axis=1)
        for place in np.argsort(-largest).tolist():
            if largest[place] <= worst or math.isinf(worst):
                break
            first, last = np.flatnonzero(bounds[place] > worst)[[0, -1]].tolist()
            ends = self.distances[first : last + 2]
            quotients = pair_quotients(self.noise, *self._pair(place), ends, alpha)
            worst = max(worst, float(_over_squares(ends[:-1], quotients).max()))
        # Means are sums over places and points, of terms that the noise's error enters once (R5).
        slack = self.noise.slack(self.noise.pmf.size + 2 * self.points.size)
        return worst / (alpha - 1) * (1 + slack)


_pairs = lru_cache(maxsize=2)(_Pairs)


def _mean_of(weights: FloatArray, above: FloatArray, below: FloatArray) -> FloatArray:
    """(pairs, bins) weights times values, of u above 0 and below; inf where a value that weighs
    is."""
    total = np.zeros((weights.shape[1], above.shape[1]))
    for weight, value in ((weights[0], above), (weights[1], below)):
        finite = np.isfinite(value)
        total += weight @ np.where(finite, value, 0.0)
        if not finite.all():
            total[weight @ np.where(finite, 0.0, 1.0) > 0] = math.inf
    return total


def _over_squares(left: FloatArray, quotients: FloatArray) -> FloatArray:
    """Per bin of t that starts at `left`, log(1 + t^2 q) / t^2: it falls with t, so that left ends
    bound it; at 0 q."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(left > 0, np.log1p(left**2 * quotients) / left**2, quotients)


def pair_quotients(
    noise: NoiseMixture, row: FloatArray, slope: FloatArray, distances: FloatArray, alpha: float
) -> FloatArray:
    """Per bin of distances an upper bound on Phi(t) / t^2 for every t in it, whether x lies above
    x' or below."""
    cap = _ratio_cap(row, slope)
    if math.isinf(cap):
        return np.full(distances.size - 1, math.inf)
    weights, lowest, highest = _noisy(_Smear(noise), row, slope)
    weights = (weights * noise.probability[:, None]).ravel()
    # Outside the windows any ratio up to the cap may stand.
    outside = np.array([noise.outside]), np.array([-cap]), np.array([cap])
    edges = _mean_quotients(*outside, distances, alpha)
    sides = [(lowest.ravel(), highest.ravel()), (-highest.ravel(), -lowest.ravel())]
    values = [_mean_quotients(weights, low, high, distances, alpha) + edges for low, high in sides]
    return np.nan_to_num(np.maximum(*values), nan=math.inf, posinf=math.inf)


def _mean_quotients(
    weights: FloatArray, low: FloatArray, high: FloatArray, distances: FloatArray, alpha: float
) -> FloatArray:
    from mezzotint.privacy.sums import compiled as kernels

    totals = np.zeros(distances.size - 1)
    kernels.mean_quotients(weights, low, high, distances, series(alpha, _REACH), totals)
    return totals


_SEGMENTS = 64


def loss_profile(mechanism: Mechanism) -> tuple[FloatArray, FloatArray]:
    """Distances t_1 < .. < t_k = range; for each the largest log-ratio of a level between inputs at
    most t apart.

    The losses of a table's jumps stand at every distance; they are inf where a level has mass in
    one row and none in another. Never below the supremum over all such pairs of inputs, and never
    above what a distance a few ulp larger allows (docs/proofs/vectors.md, "Pure losses").
    """
    distances = (mechanism.upper - mechanism.lower) * np.arange(1, _SEGMENTS + 1) / _SEGMENTS
    losses = [_loss_within(mechanism, float(t)) for t in distances]
    return distances, np.maximum.accumulate(losses)


def _loss_within(mechanism: Mechanism, distance: float) -> float:
    """The largest log-ratio between inputs at most `distance` apart."""
    # x and x' in two closed segments with |x - x'| <= t are a polygon, on which p(x) / p(x') is a
    # ratio of two affine functions: its largest value stands at a vertex, where one of the two is a
    # knot and the other a knot or t away.
    knots = mechanism.knots
    moved = np.concatenate([knots - distance, knots + distance])
    # A moved knot is rounded; between the floats on either side of it probabilities are monotone.
    moved = np.concatenate([moved, np.nextafter(moved, -math.inf), np.nextafter(moved, math.inf)])
    places = np.concatenate([knots, moved[(knots[0] < moved) & (moved < knots[-1])]])
    values = np.concatenate([mechanism.probabilities, _between(mechanism, places[knots.size :])])
    order = np.argsort(places, kind="stable")
    places, values = places[order], values[order]
    # The rounding of a moved knot, its neighbour, and their distance: each an ulp of the largest
    # knot at most.
    reach = distance + 8 * UNIT * float(np.abs(knots).max())
    first = np.searchsorted(places, places - reach, side="left")
    last = np.searchsorted(places, places + reach, side="right")
    highest = _window_maxima(values, first, last)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = float(np.nan_to_num(highest / values, nan=1.0, posinf=math.inf).max())
    # Ratios err by 16 UNIT, logarithms by 2 UNIT of at most 23.
    return math.log(ratio) + 256 * UNIT


def _between(mechanism: Mechanism, places: FloatArray) -> FloatArray:
    """(n, m) rows at places inside the range: sums of two positive terms, 8 UNIT of each entry."""
    knots, rows = mechanism.knots, mechanism.probabilities
    right = np.searchsorted(knots, places, side="right")
    before, after = knots[right - 1], knots[right]
    share, rest = (
        ((places - before) / (after - before))[:, None],
        ((after - places) / (after - before))[:, None],
    )
    return rest * rows[right - 1] + share * rows[right]


def _window_maxima(values: FloatArray, first: IntArray, last: IntArray) -> FloatArray:
    """(n, m) largest of values[first_i : last_i] per column: by the maxima of 2^j neighbours, two
    of which cover it."""
    result = np.empty_like(values)
    length = last - first
    width, maxima = 1, values
    while True:
        held = (length >= width) & (length < 2 * width)
        result[held] = np.maximum(maxima[first[held]], maxima[last[held] - width])
        if not (length >= 2 * width).any():
            return result
        maxima = np.maximum(maxima[:-width], maxima[width:])
        width *= 2


def pure_epsilon_l2(mechanism: Mechanism, *, coordinates: int, l2_norm: float) -> float:
    """Pure epsilon of one round between any two vectors of L2 norm at most `l2_norm`, rounded up.

    Arguments:
        mechanism: any table; its jumps may be crossed in every coordinate at once.
        coordinates: how many are reported, each independently.
        l2_norm: data units.

    Guarantees: at most `coordinates` times the table's own epsilon, up to rounding.
    """
    square = squared_distance(mechanism, coordinates=coordinates, l2_norm=l2_norm)
    distances, losses = loss_profile(mechanism)
    if math.isinf(float(losses[-1])):
        return math.inf
    # A pair at a distance in (t_{j-1}, t_j] loses at most losses[j]: points above the profile stand
    # at left ends. With a concave majorant f over squared distances, sum_j f(a_j) <= coordinates
    # f(sum a_j / coordinates) (Jensen). Where a square is off by a relative 4 UNIT, f is too: it
    # rises, is concave, and at 0 it is not below 0.
    squares = np.append(0.0, distances[:-1]) ** 2
    value = concave_majorant(squares, losses, square / coordinates)
    return coordinates * value * (1 + 64 * UNIT)


def concave_majorant(points: NumberArray, values: NumberArray, at: float) -> float:
    """The least concave, increasing function above the points, at `at`; constant beyond the
    last."""
    across: list[float] = points.tolist()
    up: list[float] = np.maximum.accumulate(values).tolist()
    vertices = hull(across, [-value for value in up])
    return float(np.interp(at, [across[i] for i in vertices], [up[i] for i in vertices]))
