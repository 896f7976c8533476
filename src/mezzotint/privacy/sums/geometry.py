"""Vectors under an L2 bound: the Renyi loss of a table grows at most with the square of the distance of its inputs.

Between knots rows are mixed linearly, so p(x,.) - p(x',.) = (x - x') G with G a mean of segment slopes, and with
h(u) = max(1 + u, 0)^alpha - 1 - alpha u,
    exp((alpha - 1) D_alpha(p(x,.) || p(x',.))) - 1 = sum_i p(x',i) h((x - x') G_i / p(x',i)) = Phi.
The perspective P h(t G / P) is jointly convex in (P, G), so for a distance t = |x - x'| the supremum stands at a
(row, slope) pair, of segments within t of each other, with +G where x lies above x' and -G where it lies below: both
count, as only mirror-symmetric tables tie one to the other. Convexity also gives data processing: adding the other
clients' noise to rows and slopes alike lowers Phi, and revealed mixtures average it. Then D_alpha <= kappa t^2, and
losses of independent coordinates add up to kappa ||x - x'||^2 (docs/proofs/sums-l2.md).

Pure losses of vectors under an L2 bound: what a table loses at most between inputs so far apart, added up.
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import UNIT
from mezzotint.core.mechanism import FloatArray, IntArray, Mechanism, NumberArray
from mezzotint.privacy.sums.blanket import Noise, spread
from mezzotint.privacy.sums.lattice import find_lattice

_WORK = 1e7
"""Rows times slopes times places that one constant may cost, about."""

_FINE = 10**4
"""Noise on fewer places than this leaves losses curved, and affords finer bins of distances."""


def excess(u: FloatArray, alpha: float) -> FloatArray:
    """h(u) = max(1 + u, 0)**alpha - 1 - alpha u, rounded up; h >= 0, convex, 0 at 0."""
    # h(u) = alpha (alpha - 1) u^2 int_0^1 (1 - s) (1 + s u)^(alpha - 2) ds for u >= -1: for small u the integral is
    # 1/2 at most times the larger end of (1 + s u)^(alpha - 2).
    size = np.abs(u)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        small = 0.5 * alpha * (alpha - 1) * u * u * np.exp(np.abs(alpha - 2) * -np.log1p(-np.minimum(size, 0.5)))
        power = np.exp(alpha * np.log1p(np.maximum(u, -1.0)))
        # Every term errs by (alpha + 4) UNIT of its own size.
        direct = power - 1 - alpha * u + (alpha * (1 + size) + 8) * 4 * UNIT * (power + 1 + alpha * size)
    return np.where(size * (alpha + 1) < 1e-3, small * (1 + 64 * UNIT), np.maximum(direct, 0.0))


def _segments(mechanism: Mechanism) -> tuple[FloatArray, FloatArray]:
    """(K,) distinct knots and (K, span + 1) rows, on its lattice, of a table without jumps."""
    lattice = find_lattice(mechanism.levels)
    rows = np.zeros((mechanism.knots.size, lattice.span + 1))
    rows[:, lattice.integers] = mechanism.probabilities
    keep = np.append(True, np.diff(mechanism.knots) > 0)
    return mechanism.knots[keep], rows[keep]


def _jumps(mechanism: Mechanism) -> bool:
    """Whether two different rows stand at one knot."""
    return bool((np.diff(mechanism.weights, axis=0)[np.diff(mechanism.knots) == 0] != 0).any())


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
        # Sums of two positive terms: 3 UNIT of each entry, however small it is beside its neighbours.
        mixed.append(((parts - steps)[:, None] * row + steps[:, None] * following) / parts)
    return np.append(np.concatenate(finer), knots[-1]), np.concatenate([*mixed, rows[-1:]])


def _reach(knots: FloatArray) -> FloatArray:
    """(K, K - 1) how far x must at least be from an x' in a segment beside knot k for segment j to be between them."""
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


def _noisy(noise: Noise, row: FloatArray, slope: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Upper bounds on the noisy row; bounds on slope over row where they are below and above 0; per cell and place."""
    slack = (row.size + 16) * UNIT
    below = spread(noise.low, row) * (1 - slack)
    rising, falling = np.maximum(slope, 0.0), np.maximum(-slope, 0.0)
    # Slopes are differences of probabilities over a width: 4 UNIT of each side, included in `slack`. Where `up` counts,
    # above 0, the rising side is the larger one: its slack pays for the roundings of both. So for `down`, below 0.
    up = spread(noise.high, rising) * (1 + slack) - spread(noise.low, falling)
    down = spread(noise.low, rising) - spread(noise.high, falling) * (1 + slack)
    cap = _ratio_cap(row, slope)
    with np.errstate(divide="ignore", invalid="ignore"):
        lowest = np.nan_to_num(down / below, nan=0.0, posinf=cap, neginf=-cap)
        highest = np.nan_to_num(up / below, nan=0.0, posinf=cap, neginf=-cap)
    return spread(noise.high, row) * (1 + slack), np.clip(lowest, -cap, cap), np.clip(highest, -cap, cap)


def squared_distance(mechanism: Mechanism, *, coordinates: int, l2_norm: float) -> float:
    """Largest squared L2 distance of the inputs that the reports of two clients are drawn for, rounded up.

    Arguments:
        mechanism: its range clips every coordinate.
        coordinates: reported of one vector.
        l2_norm: of a client's vector, data units.

    Raises:
        ParameterError: a range so narrow or wide that its square is no float.

    Guarantees: covers what arithmetic does to a vector: rotating moves its norm by a relative 128 UNIT at most, and
        the row is drawn for a position that differs from the input's by 2**-32 of its segment at most (S1).
    """
    width = float(np.diff(mechanism.knots).max())
    span = mechanism.upper - mechanism.lower
    if not 1e-100 <= span <= 1e100:
        raise ParameterError("mechanism", span, "its range squared leaves the floats; rescale the data")
    between = 2 * (l2_norm * (1 + 128 * UNIT) + math.sqrt(coordinates) * width * 2.0**-32) * (1 + 8 * UNIT)
    return min(between * between, coordinates * span * span * (1 + 8 * UNIT))


def quadratic_renyi(mechanism: Mechanism, noise: Noise, alpha: float) -> float:
    """kappa with D_alpha(sum given x || sum given x') <= kappa (x - x')^2 for all inputs, rounded up.

    Arguments:
        mechanism: levels on a lattice.
        noise: of the other honest clients (`blanket_noise`), or `silence()` for one report seen alone.
        alpha: order > 1.

    Returns: kappa in nats per squared data unit; inf when a level with slope has a row without mass, and for a table
        with a jump: inputs on either side of it, however near, are not near in distribution.

    Raises:
        ParameterError: levels off every lattice, alpha <= 1.

    Guarantees: never below the exact supremum over pairs of inputs.
    Source: docs/proofs/sums-l2.md.
    """
    if not 1 < alpha < math.inf:
        raise ParameterError("alpha", alpha, "a finite Renyi order above 1")
    if _jumps(mechanism):
        return math.inf
    knots, rows = _segments(mechanism)
    # Slopes from the table itself: differences of interpolated rows would cancel.
    steepness = np.diff(rows, axis=0) / np.diff(knots)[:, None]
    coarse = knots
    knots, rows = _refined(knots, rows, noise.low.size)
    segment = np.searchsorted(coarse, knots[:-1], side="right")
    bins = 24 if noise.low.size < _FINE else 6
    distances = np.append(0.0, np.geomspace(1 / 32, 1, bins)) * (mechanism.upper - mechanism.lower)
    # x' is a mixture of two neighbouring rows and G one of the slopes between x' and x: only slopes within t count.
    # Pieces of one segment share its slope: the nearest of them decides.
    apart = np.minimum.reduceat(_reach(knots), np.unique(segment, return_index=True)[1], axis=1)
    worst = np.zeros(distances.size - 1)
    for k, row in enumerate(rows):
        for j, slope in enumerate(steepness):
            met = distances[1:] > apart[k, j]
            quotients = pair_quotients(noise, row, slope, distances, alpha)
            worst = np.where(met, np.maximum(worst, quotients), worst)
    if math.isinf(float(worst.max())):
        return math.inf
    # log(1 + t^2 q) / t^2 falls with t: its value at a bin's left end bounds the bin; at 0 it is q.
    left = distances[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        bounds = np.where(left > 0, np.log1p(left**2 * worst) / left**2, worst)
    return float(bounds.max()) / (alpha - 1) * (1 + 64 * UNIT)


def _hump(u: FloatArray, distances: FloatArray, alpha: float) -> FloatArray:
    """(bins, u) the largest value of h(t u) / t^2 inside a bin of distances where it has one there; 0 elsewhere.

    Below t u = -1 it is (alpha v - 1) / v^2 u^2 with v = -t u, which rises up to v = 2 / alpha: orders below 2 see it.
    """
    peak = 2 / alpha
    if peak <= 1:
        return np.zeros((distances.size - 1, 1))
    inside = (distances[:-1, None] * -u < peak) & (distances[1:, None] * -u > peak)
    with np.errstate(over="ignore"):
        return np.where(inside, (u * alpha / 2) ** 2 * (1 + 8 * UNIT), 0.0)


def pair_quotients(noise: Noise, row: FloatArray, slope: FloatArray, distances: FloatArray, alpha: float) -> FloatArray:
    """Per bin of distances an upper bound on Phi(t) / t^2 for every t in it, whether x lies above x' or below."""
    cap = _ratio_cap(row, slope)
    if math.isinf(cap):
        return np.full(distances.size - 1, math.inf)
    weights, lowest, highest = _noisy(noise, row, slope)
    weights = (weights * noise.probability[:, None]).ravel()
    cells = np.array([-cap, cap])
    edges = _quotients(cells, distances, alpha).max(axis=1)
    edges = np.maximum(np.maximum(edges[:-1], edges[1:]), _hump(cells[:1], distances, alpha)[:, 0])
    sides = [(lowest.ravel(), highest.ravel()), (-highest.ravel(), -lowest.ravel())]
    values: list[FloatArray] = []
    for low, high in sides:
        # h(t u) / t^2 is monotone in t > 0 for each u (the integral above) but for one hump: both ends of a bin, and
        # the hump, bound it term by term. Outside the windows any ratio up to the cap may stand.
        ends = _quotients(np.where(high > 0, high, low), distances, alpha)
        unsure = (low < 0) & (high > 0)  # elsewhere the end farther from 0 is the worse one
        if unsure.any():
            ends[:, unsure] = np.maximum(ends[:, unsure], _quotients(low[unsure], distances, alpha))
        most = np.maximum(np.maximum(ends[:-1], ends[1:]), _hump(low, distances, alpha))
        with np.errstate(invalid="ignore", over="ignore"):
            total = most @ weights + (noise.outside * edges if noise.outside > 0 else 0.0)
        values.append(np.nan_to_num(total, nan=math.inf, posinf=math.inf))
    return np.maximum(*values) * (1 + (weights.size + 64) * UNIT)


def _quotients(u: FloatArray, distances: FloatArray, alpha: float) -> FloatArray:
    """(distances, u) values of h(t u) / t^2, at t = 0 of its limit; rounded up."""
    if u.size > 1000 and distances.size > 1:  # a row at a time: what `excess` needs besides fits the cache
        return np.concatenate([_quotients(u, distances[i : i + 1], alpha) for i in range(distances.size)])
    scale = distances[:, None]
    with np.errstate(invalid="ignore", over="ignore"):  # slopes of a tiny range: an infinite quotient bounds as well
        ratio = excess(scale * u, alpha) / scale**2
        return np.where(scale > 0, ratio, 0.5 * alpha * (alpha - 1) * u**2 * (1 + 8 * UNIT))


_SEGMENTS = 64


def loss_profile(mechanism: Mechanism) -> tuple[FloatArray, FloatArray]:
    """Distances t_1 < .. < t_k = range; for each the largest log-ratio of a level between inputs at most t apart.

    Arguments:
        mechanism: any table; the losses of its jumps stand at every distance.

    Returns: distances in data units and losses, rounded up; inf where a level has mass in one row and none in another.

    Guarantees: never below the supremum over all such pairs of inputs, and never above what a distance a few ulp
        larger allows.
    Source: docs/proofs/vectors.md, "Pure losses".
    """
    distances = (mechanism.upper - mechanism.lower) * np.arange(1, _SEGMENTS + 1) / _SEGMENTS
    losses = [_loss_within(mechanism, float(t)) for t in distances]
    return distances, np.maximum.accumulate(losses)


def _loss_within(mechanism: Mechanism, distance: float) -> float:
    """The largest log-ratio between inputs at most `distance` apart."""
    # x and x' in two closed segments with |x - x'| <= t are a polygon, on which p(x) / p(x') is a ratio of two affine
    # functions: its largest value stands at a vertex, where one of the two is a knot and the other a knot or t away.
    knots = mechanism.knots
    moved = np.concatenate([knots - distance, knots + distance])
    # A moved knot is rounded; between the floats on either side of it probabilities are monotone.
    moved = np.concatenate([moved, np.nextafter(moved, -math.inf), np.nextafter(moved, math.inf)])
    places = np.concatenate([knots, moved[(knots[0] < moved) & (moved < knots[-1])]])
    values = np.concatenate([mechanism.probabilities, _between(mechanism, places[knots.size :])])
    order = np.argsort(places, kind="stable")
    places, values = places[order], values[order]
    # The rounding of a moved knot, its neighbour, and their distance: each an ulp of the largest knot at most.
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
    share, rest = ((places - before) / (after - before))[:, None], ((after - places) / (after - before))[:, None]
    return rest * rows[right - 1] + share * rows[right]


def _window_maxima(values: FloatArray, first: IntArray, last: IntArray) -> FloatArray:
    """(n, m) largest of values[first_i : last_i] per column: by the maxima of 2^j neighbours, two of which cover it."""
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
    Source: docs/proofs/vectors.md, "Pure losses".
    """
    square = squared_distance(mechanism, coordinates=coordinates, l2_norm=l2_norm)
    distances, losses = loss_profile(mechanism)
    if math.isinf(float(losses[-1])):
        return math.inf
    # A pair at a distance in (t_{j-1}, t_j] loses at most losses[j]: points above the profile stand at left ends. With
    # a concave majorant f over squared distances, sum_j f(a_j) <= coordinates f(sum a_j / coordinates) (Jensen).
    # Where a square is off by a relative 4 UNIT, f is too: it rises, is concave, and at 0 it is not below 0.
    squares = np.append(0.0, distances[:-1]) ** 2
    value = concave_majorant(squares, losses, square / coordinates)
    return coordinates * value * (1 + 64 * UNIT)


def concave_majorant(points: NumberArray, values: NumberArray, at: float) -> float:
    """The least concave, increasing function above the points, at `at`; constant beyond the last."""
    hull: list[tuple[float, float]] = []
    for x, y in zip(points.tolist(), values.tolist(), strict=True):
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2], hull[-1]
            if (y1 - y0) * (x - x1) > (y - y1) * (x1 - x0):
                break
            hull.pop()
        hull.append((x, y))
    across, up = ([point[axis] for point in hull] for axis in (0, 1))
    return float(np.interp(at, across, up))
