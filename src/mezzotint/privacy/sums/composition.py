"""Many releases: a hockey-stick curve composed with itself, errors bounded and added.

The curve is turned into a pair of distributions on a grid of losses that touches it at the grid points and lies
above it between them (connect the dots), in exact rationals; the losses of independent releases add up.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import FloatArray
from mezzotint.privacy.sums.convolution import UNIT, sum_bounds
from mezzotint.privacy.sums.curve import MAX_EPSILON, HockeyStick, check_delta

_POINTS = 3000
"""Most grid points of one release's losses on each side."""

_RESOLUTION = 10
"""Grid steps per standard deviation of one release's loss: costs about 1/(8 * 10**2) of epsilon."""


def _hull(ratios: list[Fraction], deltas: list[Fraction]) -> list[int]:
    """Lower convex hull in exact rationals, from (1, .) to the last point."""
    kept: list[int] = []
    for i in range(len(ratios)):
        while len(kept) >= 2:
            a, b = kept[-2], kept[-1]
            left = (deltas[b] - deltas[a]) * (ratios[i] - ratios[a])
            if left < (deltas[i] - deltas[a]) * (ratios[b] - ratios[a]):
                break
            kept.pop()
        kept.append(i)
    return kept


def _above(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def dominating_losses(deltas: FloatArray, step: float) -> tuple[FloatArray, float]:
    """Loss distribution, under the first of a symmetric pair, that dominates a curve known at multiples of `step`.

    Arguments:
        deltas: (g + 1,) upper bounds on delta at epsilon = 0, step, ..., g * step.
        step: epsilon per grid step.

    Returns: (2 g + 1,) masses at losses -g..g times step, each rounded up by at most one ulp, and the mass at
        infinite loss.

    Guarantees:
        The pair's hockey-stick curve is at least the given one everywhere, for both directions.
    Source: Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022, Connect the Dots.
    """
    count = deltas.size - 1
    # The floats exp(i step) are the exact ratios of the grid; the losses log of them are off by < 4 UNIT (see below).
    ratios = [Fraction(math.exp(i * step)) for i in range(count + 1)]
    values = [Fraction(float(value)) for value in np.minimum.accumulate(deltas)]
    kept = _hull(ratios, values)
    slopes = [
        (values[b] - values[a]) / (ratios[b] - ratios[a]) for a, b in zip(kept[:-1], kept[1:], strict=True)
    ] + [Fraction(0)]
    masses = [Fraction(0)] * (2 * count + 1)
    for position in range(1, len(kept)):
        i = kept[position]
        # h(g) = sum_{j > i} (1 - g / g_j) p_j + p_inf: the slope jumps by p_j / g_j at g_j. The mirrored atom has
        # the second distribution's mass p_j / g_j, since the neighbouring relation is symmetric.
        jump = slopes[position] - slopes[position - 1]
        masses[count + i] = jump * ratios[i]
        masses[count - i] = jump
    infinite = values[kept[-1]]
    masses[count] = 1 - infinite - sum(masses, Fraction(0))
    if masses[count] < 0:
        # Only when the bound at 0 exceeds what slopes allow: total variation above 1 is no distribution.
        raise ParameterError("deltas", float(values[0]), "no pair of distributions has this curve; refine the grid")
    return np.array([_above(mass) for mass in masses]), _above(infinite)


def _choose_step(curve: HockeyStick, count: int, floor: float) -> tuple[float, int]:
    """Grid step and number of steps: fine against one release's loss, ending where delta * count is negligible."""
    small = np.flatnonzero(curve.deltas * count <= floor)
    top = float(curve.epsilons[small[0]]) if small.size else float(curve.epsilons[np.isfinite(curve.epsilons)][-1])
    if top == 0:
        return 1.0, 1
    grid = np.linspace(0, top, 2001)
    values = curve.delta(grid)
    # E loss^2 = integral of 2 e h(e) d(e) up to factors near 1: enough for a scale.
    spread = math.sqrt(max(2 * float(np.sum((values[1:] + values[:-1]) / 2 * grid[1:])) * top / 2000, 1e-300))
    scale = max(spread, float(values[0]))
    step = max(scale / _RESOLUTION, top / _POINTS)
    steps = max(1, math.ceil(top / step))
    return top / steps, steps


def compose(curve: HockeyStick, count: int, *, delta: float) -> HockeyStick:
    """The curve of `count` independent releases that each obey `curve`, adaptive choices included.

    Arguments:
        curve: bound of one release, symmetric neighbours.
        count: how many, >= 1.
        delta: where the result should be tight.

    Raises:
        ParameterError: count < 1.

    Guarantees:
        Upper bound at every epsilon: discretisation, truncation and transform errors are all included.
        compose(c, 1) is at or above c; compose(c, a + b) is the composition of both up to those errors.
    Edge cases: a curve that is 0 everywhere stays 0.
    """
    if int(count) != count or count < 1:
        raise ParameterError("releases", count, "need at least 1 release")
    target = max(check_delta(delta), 1e-18)
    if curve.deltas[0] == 0 or count == 1:
        return curve
    step, steps = _choose_step(curve, int(count), 1e-5 * target)
    masses, infinite = dominating_losses(curve.delta(step * np.arange(steps + 1)), step)
    total = float(masses.sum())
    bounds = sum_bounds([masses / total], [[int(count)]], tail=min(1e-20, 1e-4 * target))
    # Masses rounded up add up to slightly more than 1; the power restores what was divided out.
    lift = math.exp(int(count) * (math.log(total) + 4 * UNIT)) if total > 1 - 1e-3 else 1.0
    masses_above = bounds.high[0] * lift
    certain = -math.expm1(int(count) * math.log1p(-min(infinite, 0.999999))) + float(bounds.outside[0]) * lift
    losses = (bounds.start[0] - int(count) * steps + np.arange(masses_above.size)) * step
    # exp(i step) in floats is off by (1 + i step) 2 UNIT, each of `count` losses by that much.
    losses = losses + int(count) * (8 * UNIT) * (1 + steps * step)
    never = np.flatnonzero(curve.deltas == 0)
    limit = count * float(curve.epsilons[never[0]]) if never.size else math.inf
    return _curve_of_losses(losses, masses_above, certain, limit)


def _curve_of_losses(losses: FloatArray, masses: FloatArray, certain: float, limit: float) -> HockeyStick:
    """delta(eps) = sum over losses above eps of (1 - e^(eps - loss)) mass, plus what is certain."""
    certain += float(masses[losses > MAX_EPSILON].sum())
    positive = (losses > 0) & (losses <= MAX_EPSILON)
    atoms, weights = losses[positive], masses[positive]
    if atoms.size == 0:
        return HockeyStick(epsilons=np.array([0.0]), deltas=np.array([min(1.0, certain)]))
    grid = np.concatenate([[0.0], atoms])
    # Suffix sums from the top, each term scaled by its own grid cell: no exponential over- or underflows.
    gaps = np.diff(grid)
    deltas = np.empty(grid.size)
    tail = np.concatenate([np.cumsum(weights[::-1])[::-1], [0.0]])
    deltas[-1] = 0.0
    keep = 0.0
    for i in range(grid.size - 2, -1, -1):
        # h(e_i) = sum_{j>i} w_j (1 - e^(e_i - a_j)) = e^-gap h(e_{i+1}) + (1 - e^-gap) tail_{i+1 and above}
        keep = keep * math.exp(-gaps[i]) - math.expm1(-gaps[i]) * tail[i]
        deltas[i] = keep
    deltas = np.minimum(deltas * (1 + (grid.size + 8) * 2 * UNIT) + certain, 1.0)
    if limit <= MAX_EPSILON:
        below = grid < limit
        grid, deltas = np.append(grid[below], limit), np.append(deltas[below], 0.0)
    return HockeyStick(epsilons=grid, deltas=deltas)
