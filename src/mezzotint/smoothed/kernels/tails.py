"""One-dimensional tail sums: hockey-stick divergences and the adversary's utility for one neighbouring pair.

Every term is positive, the probabilities are log-concave and the factors are at most one, so a sum starts at its
largest term, steps by the ratio of probabilities, and stops when the geometric remainder is negligible.
Every function returns the natural logarithm of the value and a bound on the error of that logarithm; the bound
includes the remainder left out.
"""

from __future__ import annotations

import math

import numpy as np

from mezzotint.core.compiled import compiled
from mezzotint.smoothed.kernels.doubledouble import add, multiply, two_product
from mezzotint.smoothed.kernels.pmf import ROUNDOFFS, log_binomial_fraction, log_hypergeometric

_UNIT = 2.0**-53
_NEGLIGIBLE = 2.0**-60


@compiled
def _margin(first: float, second: float, total: float, lost: float, ratio: tuple[float, float]):
    # first (total + 1 - lost) - E second lost, in double-double: positive where the likelihood ratio exceeds E.
    a_high, a_low = two_product(first, total + 1.0 - lost)
    b_high, b_low = two_product(second, lost)
    c_high, c_low = multiply(b_high, b_low, ratio[0], ratio[1])
    high, _ = add(a_high, a_low, -c_high, -c_low)
    return high


@compiled
def boundary(first: float, second: float, total: float, ratio: tuple[float, float]) -> float:
    """Largest `lost` with `first (total + 1 - lost) > E second lost`."""
    lost = math.floor(first * (total + 1.0) / (first + ratio[0] * second))
    while lost > 0.0 and _margin(first, second, total, lost, ratio) <= 0.0:
        lost -= 1.0
    while _margin(first, second, total, lost + 1.0, ratio) > 0.0:
        lost += 1.0
    return lost


@compiled
def log_divergence(first: float, second: float, total: float, ratio: tuple[float, float]) -> tuple[float, float]:
    """D2(A, B, s): divergence between P = (A, B - 1) and Q = (A - 1, B) when `total` of these records are lost.

    With l lost among the A, the likelihood ratio is A (s + 1 - l) / (B l). Running down from the boundary k,
    v(l) = Hyp(l) / (s + 1 - l) obeys v(l - 1) = v(l) l (B - 1 - s + l) / ((A - l + 1) (s - l + 2)).
    """
    rest = second - 1.0
    lowest = max(0.0, total - rest)
    lost = boundary(first, second, total, ratio)
    if lost < lowest:
        return -math.inf, 0.0
    log_pmf, size = log_hypergeometric(lost, first, rest, total)
    margin = _margin(first, second, total, lost, ratio)
    step = first + ratio[0] * second
    weight = 1.0 / (total + 1.0 - lost)
    value = weight * margin
    drift = 0.0
    count = 0.0
    remainder = 0.0
    while lost > lowest:
        factor = lost * (rest - total + lost) / ((first - lost + 1.0) * (total - lost + 2.0))
        weight *= factor
        lost -= 1.0
        count += 1.0
        term = weight * (margin + count * step)
        value += term
        drift += count * term
        # What is left is below pmf(l) rho / (1 - rho), and pmf(l) is weight (s + 1 - l).
        shrink = factor * (total - lost + 1.0) / (total - lost) if total > lost else 0.0
        mass = first * weight * (total + 1.0 - lost)
        if mass * shrink < _NEGLIGIBLE * value * (1.0 - shrink):
            remainder = mass * shrink / (1.0 - shrink)
            break
    error = ROUNDOFFS * size + _UNIT * (6.0 * drift / value + 16.0) + remainder / value
    return log_pmf + math.log(value / first), error


@compiled
def log_utility(first: float, second: float, total: float, ratio: tuple[float, float]) -> tuple[float, float]:
    """The adversary's utility under P of the pair in `log_divergence`, at threshold t = E / (1 + E).

    With likelihood ratio L = P/Q the terms are P (L - E)/(1 + L) where L > E, the lower tail of l, and
    P (1/L - E)/(1 + 1/L) where L < 1/E, the upper tail; both denominators are A (s + 1 - l) + B l.
    """
    lower, lower_error = _log_utility_side(first, second, total, ratio, True)
    upper, upper_error = _log_utility_side(first, second, total, ratio, False)
    largest = max(lower, upper)
    if largest == -math.inf:
        return -math.inf, 0.0
    value = largest + math.log(math.exp(lower - largest) + math.exp(upper - largest))
    return value, max(lower_error, upper_error) + 4.0 * _UNIT * (1.0 + abs(value))


@compiled
def _log_utility_side(
    first: float, second: float, total: float, ratio: tuple[float, float], below: bool
) -> tuple[float, float]:
    rest = second - 1.0
    lowest = max(0.0, total - rest)
    highest = min(first, total)
    if below:
        lost = boundary(first, second, total, ratio)
        margin = _margin(first, second, total, lost, ratio)
        step = first + ratio[0] * second
    else:
        # B l > E A (s + 1 - l) is the same inequality for the B's that Q loses, s + 1 - l of them.
        lost = total + 1.0 - boundary(second, first, total, ratio)
        margin = _margin(second, first, total, total + 1.0 - lost, ratio)
        step = second + ratio[0] * first
    if lost < lowest or lost > highest:
        return -math.inf, 0.0
    log_pmf, size = log_hypergeometric(lost, first, rest, total)
    weight = 1.0
    value = margin / (first * (total + 1.0 - lost) + second * lost)
    drift = 0.0
    count = 0.0
    remainder = 0.0
    while (lost > lowest) if below else (lost < highest):
        if below:
            shrink = lost * (rest - total + lost) / ((first - lost + 1.0) * (total - lost + 1.0))
            lost -= 1.0
        else:
            shrink = (first - lost) * (total - lost) / ((lost + 1.0) * (rest - total + lost + 1.0))
            lost += 1.0
        weight *= shrink
        count += 1.0
        term = weight * (margin + count * step) / (first * (total + 1.0 - lost) + second * lost)
        value += term
        drift += count * term
        if weight * shrink < _NEGLIGIBLE * value * (1.0 - shrink):
            remainder = weight * shrink / (1.0 - shrink)
            break
    error = ROUNDOFFS * size + _UNIT * (6.0 * drift / value + 16.0) + remainder / value
    return log_pmf + math.log(value), error


@compiled
def _replacement_start(
    draws: float, up: tuple[float, float], down: tuple[float, float], loss: tuple[float, float]
) -> tuple[float, float]:
    # Fewest draws h of the first type with h up - (draws - h) down > loss, and that excess; up = ln(A/(A-1)),
    # down = ln(B/(B-1)). Boundary and excess in double-double, because both logarithms are near 1/n.
    step_high, step_low = add(up[0], up[1], down[0], down[1])
    base_high, base_low = multiply(draws, 0.0, down[0], down[1])
    base_high, base_low = add(base_high, base_low, loss[0], loss[1])
    start = max(0.0, math.floor(base_high / step_high) - 1.0)
    while True:
        high, low = multiply(start, 0.0, step_high, step_low)
        excess, _ = add(high, low, -base_high, -base_low)
        if excess > 0.0:
            return start, excess
        start += 1.0


@compiled
def log_divergence_replacement(
    first: float,
    second: float,
    draws: float,
    up: tuple[float, float],
    down: tuple[float, float],
    loss: tuple[float, float],
) -> tuple[float, float]:
    """Divergence of P = (A, B - 1) from Q = (A - 1, B) when `draws` of these records are drawn with replacement.

    The likelihood ratio at h draws of the first type is (A/(A-1))^h ((B-1)/B)^(draws - h), increasing in h, so
    the sum is an upper binomial tail with factors 1 - exp(-(log ratio - loss)).
    """
    start, excess = _replacement_start(draws, up, down, loss)
    return _log_tail_replacement(first, second - 1.0, draws, (start, excess, up[0] + down[0]), 0.0)


@compiled
def log_utility_replacement(
    first: float,
    second: float,
    draws: float,
    up: tuple[float, float],
    down: tuple[float, float],
    loss: tuple[float, float],
    below: bool,
) -> tuple[float, float]:
    """One side of the adversary's utility with replacement: the upper tail of h, or the lower one if `below`.

    With y = |log ratio| - loss > 0 the factor is (1 - e^-y) / (1 + e^-(y + loss)); the lower tail is the upper
    tail of the B's, h' = draws - h, at the pair (B, A), still weighted with P.
    """
    start, excess = _replacement_start(draws, down, up, loss) if below else _replacement_start(draws, up, down, loss)
    part, other = (second - 1.0, first) if below else (first, second - 1.0)
    return _log_tail_replacement(part, other, draws, (start, excess, up[0] + down[0]), math.exp(-loss[0]))


@compiled
def _log_tail_replacement(
    part: float, other: float, draws: float, tail: tuple[float, float, float], shift: float
) -> tuple[float, float]:
    # Sum over h >= start of Binomial(draws, part / (part + other)) times (1 - e^-y) / (1 + shift e^-y), where y is
    # `excess` at the start and grows by `step`; from the largest probability in the tail outwards, both ways.
    start, excess, step = tail
    if start > draws:
        return -math.inf, 0.0
    whole = part + other
    anchor = min(draws, max(start, math.floor((draws + 1.0) * (part / whole))))
    log_pmf, size = log_binomial_fraction(anchor, draws, part, whole)
    over = excess + (anchor - start) * step
    value = -math.expm1(-over) / (1.0 + math.exp(-over) * shift)
    drift, remainder = 0.0, 0.0
    for direction in (1.0, -1.0):
        hits, weight, count = anchor, 1.0, 0.0
        while (hits < draws) if direction > 0.0 else (hits > start):
            if direction > 0.0:
                shrink = (draws - hits) * part / ((hits + 1.0) * other)
            else:
                shrink = hits * other / ((draws - hits + 1.0) * part)
            hits += direction
            weight *= shrink
            count += 1.0
            over = excess + (hits - start) * step
            term = -weight * math.expm1(-over) / (1.0 + math.exp(-over) * shift)
            value += term
            drift += count * term
            if weight * shrink < _NEGLIGIBLE * value * (1.0 - shrink):
                remainder += weight * shrink / (1.0 - shrink)
                break
    error = ROUNDOFFS * size + _UNIT * (6.0 * drift / value + 32.0) + remainder / value
    return log_pmf + math.log(value), error


@compiled
def divergences(first: np.ndarray, second: np.ndarray, total: np.ndarray, ratio: tuple[float, float]):
    """`log_divergence` of every row; two arrays."""
    values = np.empty(first.size)
    errors = np.empty(first.size)
    for i in range(first.size):
        values[i], errors[i] = log_divergence(first[i], second[i], total[i], ratio)
    return values, errors


@compiled
def divergences_replacement(
    first: float,
    second: float,
    draws: np.ndarray,
    up: tuple[float, float],
    down: tuple[float, float],
    loss: tuple[float, float],
):
    """`log_divergence_replacement` at every number of draws; two arrays."""
    values = np.empty(draws.size)
    errors = np.empty(draws.size)
    for i in range(draws.size):
        values[i], errors[i] = log_divergence_replacement(first, second, draws[i], up, down, loss)
    return values, errors


@compiled
def utilities(first: float, second: float, total: np.ndarray, ratio: tuple[float, float]):
    """`log_utility` of one pair at every number of lost records; two arrays."""
    values = np.empty(total.size)
    errors = np.empty(total.size)
    for i in range(total.size):
        values[i], errors[i] = log_utility(first, second, total[i], ratio)
    return values, errors
