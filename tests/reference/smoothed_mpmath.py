"""Slow twin of the room `smoothed` for large counts: sums in 60 digits, straight from the definitions."""

from __future__ import annotations

from fractions import Fraction

import mpmath as mp

mp.mp.dps = 60


def number(value: Fraction | int) -> mp.mpf:
    """A rational in 60 digits."""
    fraction = Fraction(value)
    return mp.mpf(fraction.numerator) / mp.mpf(fraction.denominator)


def log_choose(n: int, k: int) -> mp.mpf:
    """log C(n, k)."""
    return mp.loggamma(n + 1) - mp.loggamma(k + 1) - mp.loggamma(n - k + 1)


def pair_without_replacement(first: int, second: int, lost: int, ratio: mp.mpf) -> mp.mpf:
    """sum over outcomes of max(0, P - ratio Q) for P = (A, B - 1), Q = (A - 1, B), from the probabilities of both.

    P(l) = C(A, l) C(B - 1, s - l) / C(n, s) and, for the same published counts, Q loses l - 1 and s - l + 1.
    """
    whole = log_choose(first + second - 1, lost)
    total = mp.mpf(0)
    # P / Q = A (s - l + 1) / (B l) falls with l: start a little above where it equals the ratio.
    start = min(first, lost, int(mp.floor(first * (lost + 1) / (first + ratio * second))) + 2)
    for own in range(start, max(0, lost - second + 1) - 1, -1):
        p = mp.exp(log_choose(first, own) + log_choose(second - 1, lost - own) - whole)
        q = mp.mpf(0)
        if own > 0:
            q = mp.exp(log_choose(first - 1, own - 1) + log_choose(second, lost - own + 1) - whole)
        if p <= ratio * q:
            continue
        total += p - ratio * q
        if p < total * mp.mpf(10) ** -25:
            break
    return total


def pair_with_replacement(first: int, second: int, draws: int, ratio: mp.mpf) -> mp.mpf:
    """The same for `draws` records drawn with replacement from two types."""
    n = first + second - 1
    p, p_other = mp.mpf(first) / n, mp.mpf(second - 1) / n
    q, q_other = mp.mpf(first - 1) / n, mp.mpf(second) / n
    total = mp.mpf(0)
    start = int(
        mp.floor(
            (mp.log(ratio) + draws * mp.log(q_other / p_other))
            / mp.log(p * q_other / (q * p_other))
        )
    )
    for h in range(max(0, start - 1), draws + 1):
        choose = log_choose(draws, h)
        left = mp.exp(choose + h * mp.log(p) + (draws - h) * mp.log(p_other))
        right = mp.exp(choose + h * mp.log(q) + (draws - h) * mp.log(q_other))
        if left > ratio * right:
            total += left - ratio * right
            if left < total * mp.mpf(10) ** -25:
                break
    return total


def delta_two_types(
    counts: tuple[int, int], sampled: int, ratio: mp.mpf, *, replacement: bool = False
) -> mp.mpf:
    """delta(x) of two types from the four neighbouring pairs."""
    a, b = counts
    pairs = [(a, b + 1), (a + 1, b), (b, a + 1), (b + 1, a)]
    if replacement:
        return max(pair_with_replacement(one, two, sampled, ratio) for one, two in pairs)
    return max(pair_without_replacement(one, two, a + b - sampled, ratio) for one, two in pairs)


def utility_two_types(
    counts: tuple[int, int], sampled: int, threshold: mp.mpf, *, window: int
) -> mp.mpf:
    """The adversary's utility, outcome by outcome within `window` of the mean number of lost records of type one."""
    best = mp.mpf(0)
    a, b = counts
    lost = a + b - sampled
    for first, second in ((a, b + 1), (a + 1, b), (b, a + 1), (b + 1, a)):
        whole = log_choose(first + second - 1, lost)
        mean = lost * first // (first + second - 1)
        total = mp.mpf(0)
        for own in range(max(1, mean - window), min(lost, mean + window) + 1):
            p = mp.exp(log_choose(first, own) + log_choose(second - 1, lost - own) - whole)
            q = mp.exp(log_choose(first - 1, own - 1) + log_choose(second, lost - own + 1) - whole)
            accuracy = max(p, q) / (p + q)
            if accuracy > threshold:
                total += p * (accuracy - threshold) / (1 - threshold)
        best = max(best, total)
    return best


def delta_three_types(counts: tuple[int, int, int], sampled: int, ratio: mp.mpf) -> mp.mpf:
    """delta(x) of three types: every ordered pair, mixed over how many of the pair's records are lost."""
    n = sum(counts)
    lost = n - sampled
    best = mp.mpf(0)
    pairs = {
        pair
        for i in range(3)
        for j in range(3)
        if i != j
        for pair in ((counts[i], counts[j] + 1), (counts[j] + 1, counts[i]))
    }
    for first, second in pairs:
        own = first + second - 1
        total = mp.mpf(0)
        for s in range(max(0, lost - (n - own)), min(lost, own) + 1):
            weight = mp.exp(
                log_choose(own, s) + log_choose(n - own, lost - s) - log_choose(n, lost)
            )
            if weight > mp.mpf(10) ** -40:
                total += weight * pair_without_replacement(first, second, s, ratio)
        best = max(best, total)
    return best
