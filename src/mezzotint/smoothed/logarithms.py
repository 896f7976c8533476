"""The loops over counts behind every smoothed number, compiled by numba: masses, sums outward from
a peak, averages.

All work in logarithms; what is summed in double-double says so.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np

from mezzotint.core.kernels import compiled

Pair = tuple[float, float]
"""A double-double."""

STATED = 2.0**-46
"""Error of a logarithm of a mass or of a sum of masses, relative to `STATED_FLOOR` plus its
size."""
STATED_FLOOR = 64.0
STATED_DRIFT = 2.0**-51
"""Error for each of the roughly sqrt(s) steps from the largest term outwards, s the records lost or
drawn."""

# 2**27 + 1 splits a 53-bit significand in two halves whose products are exact.
_SPLIT = 134217729.0


@compiled
def two_sum(a: float, b: float) -> Pair:
    """The rounded sum and its exact error."""
    total = a + b
    shadow = total - a
    return total, (a - (total - shadow)) + (b - shadow)


@compiled
def two_product(a: float, b: float) -> Pair:
    """The rounded product and its exact error, for |a|, |b| below 2**970."""
    product = a * b
    scaled = _SPLIT * a
    a_high = scaled - (scaled - a)
    a_low = a - a_high
    scaled = _SPLIT * b
    b_high = scaled - (scaled - b)
    b_low = b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


@compiled
def add(a: Pair, b: Pair) -> Pair:
    """Sum of two double-doubles, relative error below 2**-103."""
    high, error = two_sum(a[0], b[0])
    low, low_error = two_sum(a[1], b[1])
    high, error = two_sum(high, error + low)
    return two_sum(high, error + low_error)


@compiled
def subtract(a: Pair, b: Pair) -> Pair:
    """Difference of two double-doubles, as `add`."""
    return add(a, (-b[0], -b[1]))


@compiled
def multiply(a: Pair, b: Pair) -> Pair:
    """Product of two double-doubles, relative error below 2**-102."""
    high, error = two_product(a[0], b[0])
    return two_sum(high, error + (a[0] * b[1] + a[1] * b[0]))


@compiled
def product_difference(
    a: float,
    b: float,
    c: float,
    d: float,
) -> float:
    """`a b - c d` for integers below 2**53, to one rounding of the result."""
    first, first_error = two_product(a, b)
    second, second_error = two_product(c, d)
    high, error = two_sum(first, -second)
    return high + (error + (first_error - second_error))


@compiled
def stated_error(log_value: float, moved: float) -> float:
    """A bound on the error of any logarithm that a loop of this module returns, `moved` records
    being lost or drawn.

    Added once, where a result leaves (docs/proofs/smoothed-profile.md, P3); 0 for a sum that
    is exactly 0.
    """
    if log_value == -math.inf:
        return 0.0
    return STATED * (STATED_FLOOR + abs(log_value)) + STATED_DRIFT * math.sqrt(moved)


@compiled
def stated_errors(log_values: np.ndarray, moved: float) -> np.ndarray:
    """`stated_error` of every entry."""
    errors = np.empty(log_values.size)
    for index in range(log_values.size):
        errors[index] = stated_error(log_values[index], moved)
    return errors


_LOG_TWO_PI = math.log(2.0 * math.pi)


def _stirling_table(size: int) -> np.ndarray:
    # log(n!) - log(sqrt(2 pi n) (n/e)^n) in 40 digits; the asymptotic series below takes over at n
    # = 16.
    with localcontext() as context:
        context.prec = 40
        two_pi = 2 * Decimal("3.141592653589793238462643383279502884197")
        errors = [Decimal(0)]
        for number in range(1, size):
            factorial = Decimal(math.factorial(number)).ln()
            errors.append(
                factorial - (two_pi * number).ln() / 2 - number * Decimal(number).ln() + number
            )
    return np.array([float(row) for row in errors])


_STIRLING = _stirling_table(16)


@compiled
def stirling_error(n: float) -> float:
    """log(n!) minus Stirling's leading terms, for integers n >= 0 (0 at 0 by convention)."""
    if n < 16.0:
        return _STIRLING[int(n)]
    square = n * n
    series = 1.0 / 1260.0 - (1.0 / 1680.0 - (1.0 / 1188.0) / square) / square
    return (1.0 / 12.0 - (1.0 / 360.0 - series / square) / square) / n


@compiled
def deviance(x: float, mean: float, difference: float) -> float:
    """`x log(x / mean) + mean - x` from the exact `difference = x - mean`."""
    if x == 0.0:
        return mean
    ratio = difference / (x + mean)
    if abs(ratio) > 0.5:
        return x * math.log(x / mean) - difference
    # x log((1 + v)/(1 - v)) - d with d = v (x + mean) is d v + 2 x (v^3/3 + v^5/5 + ...).
    total = difference * ratio
    term_power = 2.0 * x * ratio
    square = ratio * ratio
    for term in range(1, 64):
        term_power *= square
        updated = total + term_power / (2 * term + 1)
        if updated == total:
            break
        total = updated
    return total


@compiled
def log_binomial(
    x: float,
    n: float,
    difference: float,
    p: float,
    q: float,
) -> float:
    """log Bin(x; n, p) with `difference = x - n p` and `q = 1 - p` given exactly."""
    if n == 0.0:
        return 0.0
    if x == 0.0:
        return n * (math.log1p(-p) if p < 0.5 else math.log(q))
    if x == n:
        return n * (math.log1p(-q) if q < 0.5 else math.log(p))
    deviances = deviance(x, n * p, difference) + deviance(n - x, n * q, -difference)
    scale = 0.5 * (math.log(n / (x * (n - x))) - _LOG_TWO_PI)
    errors = stirling_error(n) - stirling_error(x) - stirling_error(n - x)
    return errors - deviances + scale


@compiled
def log_binomial_fraction(
    x: float,
    n: float,
    part: float,
    whole: float,
) -> float:
    """log Bin(x; n, part / whole) for integers `part <= whole`."""
    if part == 0.0 or part == whole:
        is_certain = x == 0.0 if part == 0.0 else x == n
        return 0.0 if is_certain else -math.inf
    difference = product_difference(x, whole, n, part) / whole
    return log_binomial(x, n, difference, part / whole, (whole - part) / whole)


@compiled
def log_hypergeometric(
    x: float,
    special: float,
    ordinary: float,
    draws: float,
) -> float:
    """log-probability of x special records among `draws` from special + ordinary ones.

    Bin(x; special, p) Bin(draws - x; ordinary, p) / Bin(draws; all, p) at p = draws / all, where
    the deviance of the denominator vanishes.
    """
    records = special + ordinary
    if draws == 0.0 or draws == records or special == 0.0 or ordinary == 0.0:
        return 0.0
    difference = product_difference(x, records, special, draws) / records
    rate = draws / records
    complement = (records - draws) / records
    first = log_binomial(x, special, difference, rate, complement)
    second = log_binomial(draws - x, ordinary, -difference, rate, complement)
    return first + second - log_binomial(draws, records, 0.0, rate, complement)


@compiled
def hypergeometrics(
    x: np.ndarray,
    special: float,
    ordinary: float,
    draws: float,
) -> np.ndarray:
    """`log_hypergeometric` of every entry."""
    log_masses = np.empty(x.size)
    for index in range(x.size):
        log_masses[index] = log_hypergeometric(x[index], special, ordinary, draws)
    return log_masses


@compiled
def log_binomial_pair(
    x: float,
    n: float,
    p: Pair,
    mean: Pair,
) -> float:
    """log Bin(x; n, p) for p and `mean = n p` in two floats each."""
    q = (1.0 - p[0]) - p[1]
    if p[0] == 0.0 or q == 0.0:
        is_certain = x == (0.0 if p[0] == 0.0 else n)
        return 0.0 if is_certain else -math.inf
    high, low = subtract((x, 0.0), mean)
    return log_binomial(x, n, high + low, p[0], q)


@compiled
def binomials(x: np.ndarray, n: float, p: Pair) -> np.ndarray:
    """`log_binomial_pair` of every entry."""
    log_masses = np.empty(x.size)
    mean = multiply((n, 0.0), p)
    for index in range(x.size):
        log_masses[index] = log_binomial_pair(x[index], n, p, mean)
    return log_masses


@compiled
def binomial_fractions(
    x: np.ndarray,
    n: float,
    part: float,
    whole: float,
) -> np.ndarray:
    """log Bin(x; n, part / whole) of every entry."""
    log_masses = np.empty(x.size)
    for index in range(x.size):
        log_masses[index] = log_binomial_fraction(x[index], n, part, whole)
    return log_masses


_NEGLIGIBLE = 2.0**-60


@compiled
def _margin(
    first: float,
    second: float,
    total: float,
    lost: float,
    ratio: Pair,
):
    # first (total + 1 - lost) - E second lost, in double-double: positive where the likelihood
    # ratio exceeds E.
    scaled = multiply(two_product(second, lost), ratio)
    high, _ = subtract(two_product(first, total + 1.0 - lost), scaled)
    return high


@compiled
def boundary(
    first: float,
    second: float,
    total: float,
    ratio: Pair,
) -> float:
    """Largest `lost` with `first (total + 1 - lost) > E second lost`."""
    lost = math.floor(first * (total + 1.0) / (first + ratio[0] * second))
    while lost > 0.0 and _margin(first, second, total, lost, ratio) <= 0.0:
        lost -= 1.0
    while _margin(first, second, total, lost + 1.0, ratio) > 0.0:
        lost += 1.0
    return lost


@compiled
def log_divergence(
    first: float,
    second: float,
    total: float,
    ratio: Pair,
) -> float:
    """D2(A, B, s): divergence between P = (A, B - 1) and Q = (A - 1, B) when `total` of these
    records are lost.

    With l lost among the A, the likelihood ratio is L = A (s + 1 - l) / (B l): the terms are P (1 -
    E / L) where L > E, the lower tail of l.
    """
    return _log_side(first, second, total, ratio, True, 0.0)


@compiled
def log_utility(
    first: float,
    second: float,
    total: float,
    ratio: Pair,
) -> float:
    """The adversary's utility under P of the pair in `log_divergence`, at threshold t = E / (1 +
    E).

    With likelihood ratio L = P/Q the terms are P (L - E)/(1 + L) where L > E, the lower tail of l,
    and P (1/L - E)/(1 + 1/L) where L < 1/E, the upper tail; both denominators are A (s + 1 - l) + B
    l.
    """
    lower = _log_side(first, second, total, ratio, True, 1.0)
    upper = _log_side(first, second, total, ratio, False, 1.0)
    largest = max(lower, upper)
    if largest == -math.inf:
        return -math.inf
    return largest + math.log(math.exp(lower - largest) + math.exp(upper - largest))


@compiled
def _log_side(
    first: float,
    second: float,
    total: float,
    ratio: Pair,
    below: bool,
    shift: float,
) -> float:
    # Sum of Hyp(l) (A (s + 1 - l) - E B l) / (A (s + 1 - l) + shift B l), from the last l with a
    # positive numerator down; or the same for the upper tail of l.
    others = second - 1.0
    lowest = max(0.0, total - others)
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
        return -math.inf
    log_pmf = log_hypergeometric(lost, first, others, total)
    relative_mass = 1.0
    total_weight = margin / (first * (total + 1.0 - lost) + shift * second * lost)
    step_count = 0.0
    while (lost > lowest) if below else (lost < highest):
        if below:
            shrink = lost * (others - total + lost) / ((first - lost + 1.0) * (total - lost + 1.0))
            lost -= 1.0
        else:
            shrink = (
                (first - lost) * (total - lost) / ((lost + 1.0) * (others - total + lost + 1.0))
            )
            lost += 1.0
        relative_mass *= shrink
        step_count += 1.0
        scale = first * (total + 1.0 - lost) + shift * second * lost
        total_weight += relative_mass * (margin + step_count * step) / scale
        # The rest is a geometric series of at most that much.
        if relative_mass * shrink < _NEGLIGIBLE * total_weight * (1.0 - shrink):
            break
    return log_pmf + math.log(total_weight)


@compiled
def _replacement_start(
    draws: float,
    up: Pair,
    down: Pair,
    loss: Pair,
) -> Pair:
    # Fewest draws h of the first type with h up - (draws - h) down > loss, and that excess; up =
    # ln(A/(A-1)), down = ln(B/(B-1)). Boundary and excess in double-double, because both logarithms
    # are near 1/n.
    step = add(up, down)
    base = add(multiply((draws, 0.0), down), loss)
    start = max(0.0, math.floor(base[0] / step[0]) - 1.0)
    while True:
        excess, _ = subtract(multiply((start, 0.0), step), base)
        if excess > 0.0:
            return start, excess
        start += 1.0


@compiled
def log_divergence_replacement(
    first: float,
    second: float,
    draws: float,
    up: Pair,
    down: Pair,
    loss: Pair,
) -> float:
    """Divergence of P = (A, B - 1) from Q = (A - 1, B) when `draws` of these records are drawn with
    replacement.

    The likelihood ratio at h draws of the first type is (A/(A-1))^h ((B-1)/B)^(draws - h),
    increasing in h, so the sum is an upper binomial tail with factors 1 - exp(-(log ratio - loss)).
    """
    start, excess = _replacement_start(draws, up, down, loss)
    return _log_tail_replacement(first, second - 1.0, draws, (start, excess, up[0] + down[0]), 0.0)


@compiled
def log_utility_replacement(
    first: float,
    second: float,
    draws: float,
    up: Pair,
    down: Pair,
    loss: Pair,
    below: bool,
) -> float:
    """One side of the adversary's utility with replacement: the upper tail of h, or the lower one
    if `below`.

    With y = |log ratio| - loss > 0 the factor is (1 - e^-y) / (1 + e^-(y + loss)); the lower tail
    is the upper tail of the B's, h' = draws - h, at the pair (B, A), still weighted with P.
    """
    start, excess = (
        _replacement_start(draws, down, up, loss)
        if below
        else _replacement_start(draws, up, down, loss)
    )
    favoured, unfavoured = (second - 1.0, first) if below else (first, second - 1.0)
    return _log_tail_replacement(
        favoured, unfavoured, draws, (start, excess, up[0] + down[0]), math.exp(-loss[0])
    )


@compiled
def _log_tail_replacement(
    part: float,
    other: float,
    draws: float,
    tail: tuple[float, float, float],
    shift: float,
) -> float:
    # Sum over h >= start of Binomial(draws, part / (part + other)) times (1 - e^-y) / (1 + shift
    # e^-y), where y is `excess` at the start and grows by `step`; from the largest probability in
    # the tail outwards, both ways.
    start, excess, step = tail
    if start > draws:
        return -math.inf
    records = part + other
    anchor = min(draws, max(start, math.floor((draws + 1.0) * (part / records))))
    log_pmf = log_binomial_fraction(anchor, draws, part, records)
    log_excess = excess + (anchor - start) * step
    total_weight = -math.expm1(-log_excess) / (1.0 + math.exp(-log_excess) * shift)
    for direction in (1.0, -1.0):
        hit_count, relative_mass = anchor, 1.0
        while (hit_count < draws) if direction > 0.0 else (hit_count > start):
            if direction > 0.0:
                shrink = (draws - hit_count) * part / ((hit_count + 1.0) * other)
            else:
                shrink = hit_count * other / ((draws - hit_count + 1.0) * part)
            hit_count += direction
            relative_mass *= shrink
            log_excess = excess + (hit_count - start) * step
            total_weight -= (
                relative_mass * math.expm1(-log_excess) / (1.0 + math.exp(-log_excess) * shift)
            )
            if relative_mass * shrink < _NEGLIGIBLE * total_weight * (1.0 - shrink):
                break
    return log_pmf + math.log(total_weight)


@compiled
def divergences(
    first: float,
    second: float,
    total: np.ndarray,
    ratio: Pair,
) -> np.ndarray:
    """`log_divergence` of one pair at every number of lost records."""
    log_divergences = np.empty(total.size)
    for index in range(total.size):
        log_divergences[index] = log_divergence(first, second, total[index], ratio)
    return log_divergences


@compiled
def divergences_replacement(
    first: float,
    second: float,
    draws: np.ndarray,
    up: Pair,
    down: Pair,
    loss: Pair,
) -> np.ndarray:
    """`log_divergence_replacement` at every number of draws."""
    log_divergences = np.empty(draws.size)
    for index in range(draws.size):
        log_divergences[index] = log_divergence_replacement(
            first, second, draws[index], up, down, loss
        )
    return log_divergences


@compiled
def _log_worst(
    count: float,
    records: float,
    lost: float,
    ratio: Pair,
) -> float:
    return max(
        log_divergence(count, records + 1.0 - count, lost, ratio),
        log_divergence(records + 1.0 - count, count, lost, ratio),
    )


@compiled
def log_delta(
    count: float,
    records: float,
    lost: float,
    ratio: Pair,
) -> float:
    """log delta at one count."""
    if count <= 1.0 or count >= records - 1.0:
        return math.log((records - lost) / records)
    return max(
        _log_worst(count, records, lost, ratio), _log_worst(count + 1.0, records, lost, ratio)
    )


@compiled
def log_deltas(
    counts: np.ndarray,
    records: float,
    lost: float,
    ratio: Pair,
) -> np.ndarray:
    """log delta at scattered counts."""
    log_values = np.empty(counts.size)
    for index in range(counts.size):
        log_values[index] = log_delta(counts[index], records, lost, ratio)
    return log_values


@compiled
def log_delta_window(
    low: int,
    high: int,
    records: float,
    lost: float,
    ratio: Pair,
) -> np.ndarray:
    """log delta at every count from low to high."""
    log_values = np.empty(high - low + 1)
    delta_below = -math.inf
    if low >= 1:
        delta_below = _log_worst(float(low), records, lost, ratio)
    for count in range(low, high + 1):
        delta_above = -math.inf
        if count < records:
            delta_above = _log_worst(count + 1.0, records, lost, ratio)
        if count <= 1 or count >= records - 1:
            log_values[count - low] = math.log((records - lost) / records)
        else:
            log_values[count - low] = max(delta_below, delta_above)
        delta_below = delta_above
    return log_values


@compiled
def _log_block(
    low: float,
    high: float,
    records: float,
    lost: float,
    ratio: Pair,
) -> float:
    # Upper bound of log D2(A, n + 1 - A, R) over low <= A <= high. The factors fall with the lost l
    # and grow with A, and l grows stochastically with A; so probabilities of the low end with
    # factors of the high end overstate.
    second = records + 1.0 - high
    ordinary = records - low
    step = high + ratio[0] * second
    lowest = max(0.0, lost - ordinary)
    highest = min(boundary(high, second, lost, ratio), min(low, lost))
    if highest < lowest:
        return -math.inf
    mode = math.floor((lost + 1.0) * (low + 1.0) / (records + 2.0))
    anchor = max(lowest, min(highest, mode))
    log_pmf = log_hypergeometric(anchor, low, ordinary, lost)
    # 1e-12 covers the rounding of a factor that nearly vanishes.
    total = (high * (lost + 1.0) - anchor * step) / (high * (lost + 1.0 - anchor)) + 1e-12
    for direction in (-1.0, 1.0):
        lost_first, relative_mass = anchor, 1.0
        while (lost_first > lowest) if direction < 0.0 else (lost_first < highest):
            if direction < 0.0:
                shrink = (
                    lost_first
                    * (ordinary - lost + lost_first)
                    / ((low - lost_first + 1.0) * (lost - lost_first + 1.0))
                )
            else:
                shrink = (
                    (low - lost_first)
                    * (lost - lost_first)
                    / ((lost_first + 1.0) * (ordinary - lost + lost_first + 1.0))
                )
            relative_mass *= shrink
            lost_first += direction
            if relative_mass * shrink < 1e-6 * total * (1.0 - shrink):
                total += relative_mass / (1.0 - shrink)
                break
            total += relative_mass * (
                (high * (lost + 1.0) - lost_first * step) / (high * (lost + 1.0 - lost_first))
                + 1e-12
            )
    bound = log_pmf + math.log(total)
    return min(0.0, bound + stated_error(log_pmf, lost) + 1e-9)


@compiled
def block_bounds(
    edges: np.ndarray,
    records: float,
    lost: float,
    ratio: Pair,
) -> np.ndarray:
    """Upper bounds of log F over each block of counts from edges[i] to edges[i + 1], inclusive."""
    bounds = np.empty(edges.size - 1)
    for block in range(edges.size - 1):
        low, high = edges[block], edges[block + 1]
        bounds[block] = max(
            _log_block(low, high, records, lost, ratio),
            _log_block(records + 1.0 - high, records + 1.0 - low, records, lost, ratio),
        )
    return bounds


@compiled
def log_expectation(
    values: np.ndarray,
    start: int,
    n: int,
    p: Pair,
) -> float:
    """log sum_j Bin(j; n, p) exp(values[j - start]) over the window."""
    terms = np.full(values.size, -math.inf)
    largest, mean = -math.inf, multiply((float(n), 0.0), p)
    for position in range(values.size):
        if 0 <= start + position <= n and values[position] > -math.inf:
            terms[position] = (
                log_binomial_pair(float(start + position), float(n), p, mean) + values[position]
            )
            largest = max(largest, terms[position])
    if largest == -math.inf:
        return -math.inf
    total, carry = 0.0, 0.0
    for position in range(values.size):
        # Terms below e^-80 of the largest are left out: fewer than 2**53 of them, below 1e-18
        # together.
        if terms[position] > largest - 80.0:
            share = math.exp(terms[position] - largest) - carry
            updated = total + share
            carry = (updated - total) - share
            total = updated
    return largest + math.log(total)


@compiled
def mix_step(values: np.ndarray, p: Pair) -> np.ndarray:
    """log((1 - p) e^v(j) + p e^v(j+1)): the expectation after one more record of share p; one entry
    shorter."""
    q = (1.0 - p[0]) - p[1]
    log_p = math.log(p[0]) if p[0] > 0.0 else -math.inf
    log_q = math.log(q) if q > 0.0 else -math.inf
    mixed = np.empty(values.size - 1)
    for index in range(mixed.size):
        log_stay, log_move = values[index] + log_q, values[index + 1] + log_p
        high, low = max(log_stay, log_move), min(log_stay, log_move)
        mixed[index] = high if low == -math.inf else high + math.log1p(math.exp(low - high))
    return mixed
