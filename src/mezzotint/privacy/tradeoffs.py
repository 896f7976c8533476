"""What one report reveals, in other terms than one epsilon.

The trade-off curve: how well any attack can tell two inputs apart (f-DP). The Gaussian mechanism's
exact curve: delta at an epsilon, epsilon at a delta, and the shift that a pair allows. Metric
privacy: epsilon per unit of distance, for all real inputs, and of vectors reported by one table.
"""

from __future__ import annotations

from fractions import Fraction
from math import inf, isinf, log, sqrt
from typing import Literal

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]

from mezzotint.core.arguments import check_choice, check_count, check_finite
from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import float_above, log_ratio
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.search import bracket
from mezzotint.core.types import UNIT, FloatArray, IntArray
from mezzotint.privacy.profile import Profile
from mezzotint.privacy.sums.geometry import POSITION_ERROR, concave_majorant, steepest_loss


def tradeoff(mechanism: Mechanism) -> Profile:
    """Computes how well any attack can tell two inputs apart from one report, worst over all pairs
    of inputs (f-DP).

    Arguments:
        mechanism: any table.

    Returns: the profile of one report: `power(false_alarm)` and the `corners` of the trade-off
        curve, `delta(epsilon)`.

    Guarantees: delta(epsilon) is the largest detection - e**epsilon * false_alarm over the corners.
        Swapping false alarms and misses gives the same curve.

    Source: Neyman-Pearson; Dong, Roth and Su 2022. For mixtures of rows, revealing which rows were
        mixed can only lower a curve, and the mixture of curves lies on or above the convex hull of
        all of them.

    Example:
        >>> profile = mz.privacy.tradeoff(mz.families.randomized_response(epsilon=1.0))
        >>> round(profile.power(0.05), 3)  # e times the false alarms
        0.136
    """
    return Profile.of_rows(mechanism.weights)


RELATIVE_ERROR = 1e-12
"""scipy's ndtr, ndtri, log_ndtr and erfcx err by a few 1e-15 relative where they are used here; 1e-12
is given away."""

_ROOT_TWO = sqrt(2)


def hockey_stick(shift: float | FloatArray, log_factor: FloatArray) -> FloatArray:
    """sup_A of N(mu,1)(A) - e**log_factor N(0,1)(A) for mu > 0, the shift; never understated.

    At any real log_factor and however large a shift.
    Source: Balle and Wang 2018, Theorem 8; Dong, Roth and Su 2022, Corollary 2.13.
    """
    # A is the half-line x >= log_factor / mu + mu / 2. It begins `from_shifted` below the one mean
    # and `from_central` below the other. Both are off by two roundings of their terms, which grow
    # with the shift: 2e-10 for a million.
    offset = log_factor / shift
    from_shifted = shift / 2 - offset
    from_central = -shift / 2 - offset
    sizes = shift / 2 + np.abs(offset)
    rounding = np.where(np.isfinite(offset), 4 * UNIT * sizes, 0.0)
    shifted_mass = scipy.special.ndtr(from_shifted + rounding)
    central_mass = _central_mass(log_factor, from_shifted, from_central, rounding)
    # Both terms err relatively, so their difference errs by that much of the first, which is the
    # larger one.
    largest_shifted = shifted_mass * (1 + RELATIVE_ERROR)
    smallest_central = central_mass * (1 - RELATIVE_ERROR)
    difference = largest_shifted - smallest_central
    capped_factor = np.minimum(log_factor, 0.0)
    total_difference = -np.expm1(capped_factor)  # of all outputs, A the real line
    least_difference = np.maximum(0.0, total_difference)
    return np.clip(difference, least_difference, 1.0)


def _central_mass(
    log_factor: FloatArray,
    from_shifted: FloatArray,
    from_central: FloatArray,
    rounding: FloatArray,
) -> FloatArray:
    """e**log_factor N(0,1)(A), not overstated.

    Arguments:
        from_shifted, from_central: how far below the means mu and 0 the half-line A begins.
        rounding: what both may be off by.
    """
    # The densities' ratio is e**log_factor where A begins. So the mass is the density of the
    # shifted distribution there times Mills' ratio of the central one: log_factor, whose rounding
    # an exponential would magnify, cancels.
    farthest = np.abs(from_shifted) + rounding
    depth = np.maximum(0.0, rounding - from_central)
    with np.errstate(over="ignore"):
        half_square = farthest**2 / 2
        density = np.exp(-half_square)
    mills_ratio: FloatArray = scipy.special.erfcx(depth / _ROOT_TWO)
    beyond_mean = density * mills_ratio / 2
    capped_factor = np.minimum(log_factor, 0.0)
    factor = np.exp(capped_factor)
    central_mass: FloatArray = scipy.special.ndtr(from_central - rounding)
    before_mean = factor * central_mass
    return np.where(from_central <= 0, beyond_mean, before_mean)


def _delta(shift: float, epsilon: float) -> float:
    log_factor = np.array([epsilon])
    (delta,) = hockey_stick(shift, log_factor)
    return float(delta)


def gaussian_epsilon(shift: float, delta: float) -> float:
    """The least epsilon >= 0 at which N(0, 1) and N(shift, 1) are (epsilon, delta)-close.

    Rounded up; inf at delta 0. Releases of shifts mu_1, mu_2, ... under noise 1, chosen one after
    the other, cost what one of the root of the sum of their squares does (Dong, Roth and Su 2022,
    Corollary 3.3).

    Example:
        >>> round(gaussian_epsilon(1.0, 1e-5), 3)
        4.377
    """
    if not (shift < inf and delta > 0):
        return inf
    if shift == 0 or _delta(shift, 0.0) <= delta:
        return 0.0
    log_tail = log(2 / delta)
    deviations = sqrt(2 * log_tail)
    sufficient = shift * (shift / 2 + deviations)

    def suffices(epsilon: float) -> bool:
        return _delta(shift, epsilon) <= delta

    while _delta(shift, sufficient) > delta:
        sufficient *= 2
    least, _excessive = bracket(suffices, sufficient, 0.0, tolerance=1e-12)
    return least


def gaussian_shift(epsilon: float, delta: float) -> float:
    """The largest shift for which N(0, 1) and N(shift, 1) are (epsilon, delta)-close.

    Rounded down.
    """

    def is_close(shift: float) -> bool:
        return _delta(shift, epsilon) <= delta

    allowed = 0.0
    excessive = 1.0
    while is_close(excessive):
        allowed = excessive
        excessive *= 2
    largest, _excessive = bracket(is_close, allowed, excessive)
    return largest


UNEVEN = 1e-8
"""Added to a vector's epsilon, relative: knots count as even up to 1e-9 of their distance."""

_SEGMENTS = 64
"""Steps of a profile of distances between two knots."""

_EVEN = 1e-9
"""Share of their distance by which knots may miss an even grid."""


_QUOTIENT_ERROR = Fraction(1, 2**50)
"""Relative error of a quotient of two weights in floats."""


def spacing_of(knots: FloatArray) -> float:
    """The distance of evenly spaced knots; ParameterError if they are not."""
    spacings = np.diff(knots)
    if np.ptp(spacings) > _EVEN * spacings.max():
        remedy = "the squared metric needs evenly spaced knots; give their number"
        raise ParameterError("knots", knots.tolist(), remedy)
    span = float(knots[-1] - knots[0])
    return span / (knots.size - 1)


def metric_epsilon(mechanism: Mechanism, metric: str) -> float:
    """The least epsilon of metric privacy that the integers guarantee, per (squared) data unit.

    Arguments:
        metric: "absolute": P(report | x) <= exp(epsilon |x - x'|) P(report | x') for all real x, x'
            in the range. "squared": P(report | x) <= exp(epsilon (h ceil(|x - x'| / h))**2)
            P(report | x'), h the distance of the evenly spaced knots: |x - x'| rounded up to the
            grid, exact for inputs on the grid. Without rounding up no mechanism but a constant one
            has a finite epsilon (docs/proofs/design.md, "Metrics").

            In both, inputs that are not on knots count as up to 2.25 * 2**-32 of their segment
            farther apart than they are, twice `geometry.POSITION_ERROR`: the row of each is drawn
            for a position rounded to 2**-32 of it (docs/proofs/sampling.md, S1).

    Returns: epsilon, rounded up; inf if there is none.

    Raises:
        ParameterError: an unknown metric, or "squared" with uneven knots.

    Example:
        >>> design = mz.design.optimal(
        ...     epsilon=1.0, lower=0, upper=4, levels=4, metric="absolute", knots=5
        ... )
        >>> mz.design.metric_epsilon(design.mechanism, "absolute") <= 1.0
        True
    """
    check_choice("metric", metric, ("absolute", "squared"))
    if metric == "absolute":
        return steepest_loss(mechanism)
    spacing = Fraction(spacing_of(mechanism.knots))
    losses = row_losses(mechanism)
    if np.isinf(losses).any():
        return inf
    slopes: list[Fraction] = []
    for knots_apart, loss in enumerate(losses.tolist(), 1):
        distance = knots_apart * spacing
        slopes.append(Fraction(loss) / distance**2)
    return float_above(max(slopes))


def row_losses(mechanism: Mechanism) -> FloatArray:
    """(K,) entry j-1: the largest log-ratio of two rows j knots apart, rounded up.

    inf where a row misses a level.
    """
    rows = mechanism.weights
    losses: list[float] = []
    for distance in range(1, len(rows)):
        former = rows[:-distance]
        latter = rows[distance:]
        larger = np.maximum(latter, former)
        smaller = np.minimum(latter, former)
        losses.append(_largest_log_ratio(larger, smaller))
    return np.array(losses)


def _largest_log_ratio(larger: IntArray, smaller: IntArray) -> float:
    """The largest log(larger / smaller) of two arrays, rounded up.

    inf where only the smaller one is 0.
    """
    positive = larger > 0
    numerators = larger[positive]
    denominators = smaller[positive]
    if not denominators.all():
        return inf
    # The float quotient picks the largest up to rounding.
    entry = np.argmax(numerators / denominators)
    numerator = int(numerators[entry])
    denominator = int(denominators[entry])
    if numerator <= denominator:
        return 0.0
    logarithm = Fraction(log_ratio(numerator, denominator))
    return float_above(logarithm + _QUOTIENT_ERROR)


def vector_epsilon(
    mechanism: Mechanism,
    *,
    dimension: int,
    l2_distance: float,
    inputs: Literal["grid", "real"] = "real",
) -> float:
    """Pure epsilon of a vector whose coordinates are reported independently, an upper bound.

    Arguments:
        mechanism: a table on evenly spaced knots.
        dimension: number of coordinates, >= 1.
        l2_distance: largest L2 distance of two neighbouring vectors, data units (2 C for vectors of
            norm C).
        inputs: "grid": every coordinate is on a knot (MVU's Lemma 6 speaks about these). "real":
            any coordinates in the range; dithering between knots is paid for, and that positions
            between them are rounded (S1).

    Returns: epsilon, rounded up.

    Raises:
        ParameterError: dimension < 1, a negative distance, uneven knots.

    Guarantees: for two vectors within the distance, no report is more than e**epsilon times as
        likely under one as under the other (docs/proofs/design.md, "Vectors").

    Example:
        >>> mechanism = mz.families.randomized_response(epsilon=0.5)
        >>> round(mz.design.vector_epsilon(mechanism, dimension=16, l2_distance=2.0), 3)
        2.595
    """
    dimension = check_count("dimension", dimension, least=1)
    if not check_finite("l2_distance", l2_distance) >= 0:
        raise ParameterError("l2_distance", l2_distance, "need a finite distance >= 0")
    spacing = spacing_of(mechanism.knots)
    losses = np.maximum.accumulate(row_losses(mechanism))
    if isinf(losses[-1]):
        return inf
    distance = float(l2_distance)
    loss_by_slope = inf
    if inputs == "grid":
        grid_distances: FloatArray = np.arange(losses.size + 1.0) * spacing
        squares = grid_distances**2
        bounds = np.append(0.0, losses)
    else:
        steepest = steepest_loss(mechanism)
        squares, bounds = _real_profile(losses, spacing, steepest)
        if distance > 0:
            # In both vectors, whichever way.
            distance += 2 * sqrt(dimension) * spacing * POSITION_ERROR
        loss_by_slope = steepest * sqrt(dimension) * distance
    # sum_i profile(d_i^2) <= sum_i hull(d_i^2) <= dimension * hull(distance^2 / dimension), hull
    # concave (Jensen); and sum_i steepest d_i <= steepest sqrt(dimension) distance.
    mean_square = distance**2 / dimension
    loss = dimension * concave_majorant(squares, bounds, mean_square)
    return min(loss, loss_by_slope) * (1 + UNEVEN)


def _real_profile(
    losses: FloatArray,
    spacing: float,
    steepest: float,
) -> tuple[FloatArray, FloatArray]:
    """Squared distances and bounds of the log-ratio of any two real inputs at most so far apart."""
    # Comonotone dithering: inputs d apart draw rows floor(d/h) or ceil(d/h) apart, so the loss is
    # at most losses[ceil(d/h)]. And no log p is steeper than `steepest`, so d = j h + r costs at
    # most losses[j] + r steepest. The smaller of the two, taken at the right end of each small
    # step.
    knot_losses = np.append(0.0, losses)
    steps = np.arange(losses.size * _SEGMENTS)
    knots_apart, remainder = np.divmod(steps + 1, _SEGMENTS)
    rows_apart = knots_apart + (remainder > 0)
    by_dithering = knot_losses[rows_apart]
    distance_beyond = remainder / _SEGMENTS * spacing
    by_slope = knot_losses[knots_apart] + distance_beyond * steepest
    bounds = np.minimum(by_dithering, by_slope)
    # The profile between two steps is at most its value at the right one: each value stands at the
    # left end, so the hull of the points lies above the whole profile.
    left_ends = steps * spacing / _SEGMENTS
    return left_ends**2, np.maximum.accumulate(bounds)
