"""Slow, obvious twin of the room `smoothed`: whole output distributions in exact fractions, all neighbours compared."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction

Distribution = dict[tuple[int, ...], Fraction]


def histograms(total: int, types: int) -> Iterator[tuple[int, ...]]:
    """All histograms of `total` records over `types` types."""
    if types == 1:
        yield (total,)
        return
    for head in range(total + 1):
        for tail in histograms(total - head, types - 1):
            yield (head, *tail)


def multinomial(draws: int, probabilities: tuple[Fraction, ...]) -> Distribution:
    """The multinomial distribution."""
    result: Distribution = {}
    for outcome in histograms(draws, len(probabilities)):
        value = Fraction(math.factorial(draws))
        for h, p in zip(outcome, probabilities, strict=True):
            value *= p**h / math.factorial(h)
        result[outcome] = value
    return result


def without_replacement(counts: tuple[int, ...], draws: int) -> Distribution:
    """The histogram of `draws` records drawn without replacement."""
    whole = math.comb(sum(counts), draws)
    return {
        h: Fraction(math.prod(math.comb(c, x) for c, x in zip(counts, h, strict=True)), whole)
        for h in histograms(draws, len(counts))
        if all(x <= c for x, c in zip(h, counts, strict=True))
    }


def with_replacement(counts: tuple[int, ...], draws: int) -> Distribution:
    """The histogram of `draws` records drawn with replacement."""
    whole = sum(counts)
    return multinomial(draws, tuple(Fraction(c, whole) for c in counts))


def poisson(counts: tuple[int, ...], rate: Fraction) -> Distribution:
    """The histogram when every record is kept independently with chance `rate`."""
    result: Distribution = {}
    for h in itertools.product(*(range(c + 1) for c in counts)):
        value = Fraction(1)
        for c, x in zip(counts, h, strict=True):
            value *= math.comb(c, x) * rate**x * (1 - rate) ** (c - x)
        result[h] = value
    return result


def noisy(counts: tuple[int, ...], draws: int, ratio: Fraction) -> Distribution:
    """The sampled histogram after Algorithm 4's noise; outcomes of more than `draws` + 2 are merged."""
    top = draws + 3

    def kernel(y: int, h: int) -> Fraction:
        normalizer = sum((ratio ** (h - z) for z in range(h)), Fraction(0)) + 1 / (1 - ratio)
        reach = ratio ** abs(y - h) if y < top else ratio ** (top - h) / (1 - ratio)
        return reach / normalizer

    table = [[kernel(y, h) for h in range(draws + 1)] for y in range(top + 1)]
    sampled = without_replacement(counts, draws)
    result: Distribution = {}
    for y in itertools.product(range(top + 1), repeat=len(counts)):
        result[y] = sum(
            (
                p * math.prod((table[a][b] for a, b in zip(y, h, strict=True)), start=Fraction(1))
                for h, p in sampled.items()
            ),
            Fraction(0),
        )
    return result


def neighbours(counts: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Every histogram that differs in one replaced record."""
    for giver, taker in itertools.permutations(range(len(counts)), 2):
        if counts[giver] > 0:
            other = list(counts)
            other[giver] -= 1
            other[taker] += 1
            yield tuple(other)


def divergence(left: Distribution, right: Distribution, ratio: Fraction) -> Fraction:
    """The hockey-stick divergence: the largest left(S) - ratio right(S)."""
    return sum(
        (max(Fraction(0), p - ratio * right.get(h, Fraction(0))) for h, p in left.items()),
        Fraction(0),
    )


def delta(counts: tuple[int, ...], ratio: Fraction, law) -> Fraction:
    """delta(x): the maximum over all neighbours and both directions; `law` maps counts to a Distribution."""
    own = law(counts)
    best = Fraction(0)
    for other in neighbours(counts):
        distribution = law(other)
        best = max(best, divergence(own, distribution, ratio), divergence(distribution, own, ratio))
    return best


def utility(counts: tuple[int, ...], threshold: Fraction, law) -> Fraction:
    """The largest adjusted utility over the record that is missing and its true value (Equation (3))."""
    best = Fraction(0)
    types = range(len(counts))
    for giver in types:
        if counts[giver] == 0:
            continue
        rest = [c - (i == giver) for i, c in enumerate(counts)]
        laws = [law(tuple(c + (i == j) for i, c in enumerate(rest))) for j in types]
        outcomes = {outcome for one in laws for outcome, chance in one.items() if chance > 0}
        for truth in types:
            total = Fraction(0)
            for outcome in outcomes:
                chances = [one.get(outcome, Fraction(0)) for one in laws]
                accuracy = max(chances) / sum(chances)
                total += chances[truth] * max(Fraction(0), accuracy - threshold)
            best = max(best, total / (1 - threshold))
    return best


def expected(
    records: int,
    splits: list[tuple[int, tuple[Fraction, ...]]],
    values: dict[tuple[int, ...], Fraction],
):
    """E[delta(x)] when, for each (k, p), k records follow the distribution p; `values` maps histograms to delta."""
    types = len(splits[0][1])
    law: Distribution = {(0,) * types: Fraction(1)}
    for count, probabilities in splits:
        part = multinomial(count, probabilities)
        joined: Distribution = {}
        for (a, p), (b, q) in itertools.product(law.items(), part.items()):
            key = tuple(x + y for x, y in zip(a, b, strict=True))
            joined[key] = joined.get(key, Fraction(0)) + p * q
        law = joined
    assert sum(next(iter(law))) == records
    return sum((p * values[h] for h, p in law.items()), Fraction(0))
