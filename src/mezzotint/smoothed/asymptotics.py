"""How fast smoothed delta falls with the number of records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from mezzotint.core.errors import ParameterError
from mezzotint.core.lazy import LazyModule
from mezzotint.smoothed.hull import hull_vertices, read_vertices
from mezzotint.smoothed.inputs import Rational, read_count, read_loss, read_loss_rate, read_rational
from mezzotint.smoothed.results import LOG_TEN

optimize = LazyModule("scipy.optimize")


def asymptotic_rate(
    *,
    vertices: Sequence[Rational | Sequence[Rational]],
    loss_rate: Rational,
    epsilon: float | None = None,
    ratio: Rational | None = None,
) -> float:
    """The limit of -log10(smoothed delta) / n for two types, at a constant loss rate and any epsilon.

    Arguments:
        vertices: shares of the first type; loss_rate: rho in (0, 1); epsilon or ratio: the loss.
    Returns:
        The rate in powers of ten per record; 0 when a type may be absent. Not a bound at finite n.
    Raises:
        ParameterError: if there are more than two types, or rho is 0.
    Source: method of types: the share a of the first type costs KL(a || p); losing the shares rho u of the first
        and rho E u of the second type, the likeliest with likelihood ratio E, costs the other two divergences;
        u = 1 / (a + (1 - a) E) makes the lost shares add up.
    """
    corners = hull_vertices(read_vertices(vertices))
    if len(corners[0]) != 2:
        raise ParameterError("vertices", vertices, "the rate is for two types; give shares of the first type")
    rho = float(read_loss_rate(loss_rate))
    if rho == 0.0:
        raise ParameterError("loss_rate", loss_rate, "must be above 0: with nothing lost delta is 1 at every n")
    loss = read_loss(epsilon=epsilon, ratio=ratio)
    shares = [float(min(corner)) for corner in corners]
    return min(_rate(min(share, 1.0 - share), rho, float(loss.ratio)) for share in shares) / LOG_TEN


def _rate(share: float, rho: float, ratio: float) -> float:
    if share == 0.0:
        return 0.0

    def cost(a: float) -> float:
        return _divergence(a, share) + min(_sampling_cost(a, rho, ratio), _sampling_cost(1.0 - a, rho, ratio))

    # The cost may have two valleys, near 0 (the type nearly vanishes) and near the share itself.
    grid = [0.5 * (i / 400) ** 2 for i in range(401)]
    best = min(range(401), key=lambda i: cost(grid[i]))
    low, high = grid[max(0, best - 1)], grid[min(400, best + 1)]
    found = optimize.minimize_scalar(cost, bounds=(low, high), method="bounded", options={"xatol": 1e-12})
    return min(float(found.fun), cost(grid[best]))


def _sampling_cost(a: float, rho: float, ratio: float) -> float:
    u = 1.0 / (a + (1.0 - a) * ratio)
    if rho * ratio * u > 1.0:
        return math.inf
    return a * _divergence(rho * u, rho) + (1.0 - a) * _divergence(rho * ratio * u, rho)


def _divergence(x: float, p: float) -> float:
    first = x * math.log(x / p) if x > 0.0 else 0.0
    second = (1.0 - x) * math.log((1.0 - x) / (1.0 - p)) if x < 1.0 and p < 1.0 else 0.0
    return max(0.0, first + second)


def rare_loss_log10(n: int, *, share: Rational, lost: int) -> float:
    """log10 of (1 - p)^R - (1 - eta)(1 - p)^n: smoothed delta of one share p while only l = 0 counts.

    Exact as long as, at every count with any weight, the likelihood ratio exceeds e^epsilon only for outcomes
    that lose no record of the rarer type, that is A R <= E B; a check and an explanation, not a bound.

    Arguments:
        n: records; share: p, at most 1/2; lost: R, from 1 to n - 1.
    """
    p = read_rational("share", share)
    records, r = read_count("n", n), read_count("lost", lost)
    if not 0 <= p <= Fraction(1, 2):
        raise ParameterError("share", share, "must lie in [0, 1/2]: the chance of the rarer type")
    if not 1 <= r < records:
        raise ParameterError("lost", lost, "must lie between 1 and n - 1")
    log_miss = math.log1p(-float(p))
    return (r * log_miss + math.log1p(-(r / records) * math.exp((records - r) * log_miss))) / LOG_TEN
