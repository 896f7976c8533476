"""delta(x) of two types over whole windows of counts, bounds over blocks of counts, and expectations of both.

f(A) = D2(A, n + 1 - A, R) and F(a) = max(f(a), f(n + 1 - a)); delta at count j is max(F(j), F(j + 1)), and both
are symmetric: F(a) = F(n + 1 - a), delta(j) = delta(n - j).
"""

from __future__ import annotations

import math

import numpy as np

from mezzotint.core.compiled import compiled
from mezzotint.smoothed.kernels.doubledouble import add, multiply
from mezzotint.smoothed.kernels.pmf import ROUNDOFFS, log_binomial, log_hypergeometric
from mezzotint.smoothed.kernels.tails import boundary, log_divergence

_NEGLIGIBLE = 2.0**-60


@compiled
def _log_worst(count: float, records: float, lost: float, ratio: tuple[float, float]) -> tuple[float, float]:
    one, one_error = log_divergence(count, records + 1.0 - count, lost, ratio)
    two, two_error = log_divergence(records + 1.0 - count, count, lost, ratio)
    return _larger(one, one_error, two, two_error)


@compiled
def _larger(one: float, one_error: float, two: float, two_error: float) -> tuple[float, float]:
    # The larger value; its error also covers the smaller one, should that be larger in truth.
    if two > one:
        one, one_error, two, two_error = two, two_error, one, one_error
    if one == -math.inf:
        return one, 0.0
    return one, max(one_error, two + two_error - one)


@compiled
def log_delta(count: float, records: float, lost: float, ratio: tuple[float, float]) -> tuple[float, float]:
    """log delta at one count, and an error bound."""
    if count <= 1.0 or count >= records - 1.0:
        return math.log((records - lost) / records), 2.0**-52
    one, one_error = _log_worst(count, records, lost, ratio)
    two, two_error = _log_worst(count + 1.0, records, lost, ratio)
    return _larger(one, one_error, two, two_error)


@compiled
def log_deltas(counts: np.ndarray, records: float, lost: float, ratio: tuple[float, float]) -> np.ndarray:
    """log delta at scattered counts."""
    values = np.empty(counts.size)
    for i in range(counts.size):
        values[i] = log_delta(counts[i], records, lost, ratio)[0]
    return values


@compiled
def log_delta_window(low: int, high: int, records: float, lost: float, ratio: tuple[float, float]):
    """log delta at every count from low to high, with error bounds; two arrays."""
    values = np.empty(high - low + 1)
    errors = np.empty(high - low + 1)
    before, before_error = -math.inf, 0.0
    if low >= 1:
        before, before_error = _log_worst(float(low), records, lost, ratio)
    for j in range(low, high + 1):
        after, after_error = -math.inf, 0.0
        if j < records:
            after, after_error = _log_worst(j + 1.0, records, lost, ratio)
        if j <= 1 or j >= records - 1:
            values[j - low], errors[j - low] = math.log((records - lost) / records), 2.0**-52
        else:
            values[j - low], errors[j - low] = _larger(before, before_error, after, after_error)
        before, before_error = after, after_error
    return values, errors


@compiled
def _log_block(low: float, high: float, records: float, lost: float, ratio: tuple[float, float]) -> float:
    # Upper bound of log D2(A, n + 1 - A, R) over low <= A <= high. The factors fall with the lost l and grow with
    # A, and l grows stochastically with A; so probabilities of the low end with factors of the high end overstate.
    second = records + 1.0 - high
    ordinary = records - low
    step = high + ratio[0] * second
    lowest = max(0.0, lost - ordinary)
    most = min(boundary(high, second, lost, ratio), min(low, lost))
    if most < lowest:
        return -math.inf
    mode = math.floor((lost + 1.0) * (low + 1.0) / (records + 2.0))
    anchor = max(lowest, min(most, mode))
    log_pmf, size = log_hypergeometric(anchor, low, ordinary, lost)
    total = 0.0
    for direction in (-1.0, 1.0):
        x = anchor
        weight = 1.0
        if direction > 0.0:
            if x == most:
                break
            weight = (low - x) * (lost - x) / ((x + 1.0) * (ordinary - lost + x + 1.0))
            x += 1.0
        while True:
            # 1e-12 covers the rounding of a factor that nearly vanishes.
            total += weight * ((high * (lost + 1.0) - x * step) / (high * (lost + 1.0 - x)) + 1e-12)
            if x == (lowest if direction < 0.0 else most):
                break
            if direction < 0.0:
                shrink = x * (ordinary - lost + x) / ((low - x + 1.0) * (lost - x + 1.0))
            else:
                shrink = (low - x) * (lost - x) / ((x + 1.0) * (ordinary - lost + x + 1.0))
            weight *= shrink
            x += direction
            if weight * shrink < 1e-6 * total * (1.0 - shrink):
                total += weight / (1.0 - shrink)
                break
    return min(0.0, log_pmf + math.log(total) + ROUNDOFFS * size + 1e-9)


@compiled
def block_bounds(edges: np.ndarray, records: float, lost: float, ratio: tuple[float, float]) -> np.ndarray:
    """Upper bounds of log F over each block of counts from edges[i] to edges[i + 1], inclusive."""
    bounds = np.empty(edges.size - 1)
    for i in range(edges.size - 1):
        low, high = edges[i], edges[i + 1]
        bounds[i] = max(
            _log_block(low, high, records, lost, ratio),
            _log_block(records + 1.0 - high, records + 1.0 - low, records, lost, ratio),
        )
    return bounds


@compiled
def log_expectation(values: np.ndarray, start: int, n: int, p: tuple[float, float]) -> tuple[float, float]:
    """log sum_j Bin(j; n, p) exp(values[j - start]) over the window, and the error bound of the weights."""
    terms = np.full(values.size, -math.inf)
    sizes = np.zeros(values.size)
    mean_high, mean_low = multiply(float(n), 0.0, p[0], p[1])
    q = (1.0 - p[0]) - p[1]
    largest = -math.inf
    for i in range(values.size):
        j = start + i
        if j < 0 or j > n or values[i] == -math.inf:
            continue
        if p[0] == 0.0 or q == 0.0:
            if j == (0 if p[0] == 0.0 else n):
                terms[i] = values[i]
        else:
            high, low = add(float(j), 0.0, -mean_high, -mean_low)
            weight, sizes[i] = log_binomial(float(j), float(n), high + low, p[0], q)
            terms[i] = weight + values[i]
        largest = max(largest, terms[i])
    if largest == -math.inf:
        return -math.inf, 0.0
    total, carry, worst = 0.0, 0.0, 0.0
    for i in range(values.size):
        # Terms below e^-80 of the largest are left out: fewer than 2**53 of them, below 1e-18 together.
        if terms[i] > largest - 80.0:
            worst = max(worst, sizes[i] + abs(terms[i]))
            share = math.exp(terms[i] - largest) - carry
            updated = total + share
            carry = (updated - total) - share
            total = updated
    return largest + math.log(total), ROUNDOFFS * (worst + 2.0)


@compiled
def mix_step(values: np.ndarray, p: tuple[float, float]) -> np.ndarray:
    """log((1 - p) e^v(j) + p e^v(j+1)): the expectation after one more record of share p; one entry shorter."""
    q = (1.0 - p[0]) - p[1]
    log_p = math.log(p[0]) if p[0] > 0.0 else -math.inf
    log_q = math.log(q) if q > 0.0 else -math.inf
    result = np.empty(values.size - 1)
    for i in range(result.size):
        stay, move = values[i] + log_q, values[i + 1] + log_p
        high, low = max(stay, move), min(stay, move)
        result[i] = high if low == -math.inf else high + math.log1p(math.exp(low - high))
    return result
