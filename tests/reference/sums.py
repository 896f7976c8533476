"""Slow, obvious twins for secure sums: every data set of the other clients is gone through."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np

TOTAL = 2**32


def random_rows(
    rng: np.random.Generator, *, rows: int | None = None, levels: int | None = None
) -> np.ndarray:
    """Integer rows that sum to 2**32; even, peaked, sparse and nearly equal ones all occur."""
    rows = int(rng.integers(2, 4)) if rows is None else rows
    levels = int(rng.integers(2, 5)) if levels is None else levels
    concentration = rng.choice([0.3, 1.0, 5.0])
    probabilities = rng.dirichlet(np.full(levels, concentration), rows)
    if rng.random() < 0.3:
        probabilities = 0.9 * probabilities[:1] + 0.1 * probabilities
    if rng.random() < 0.2:
        probabilities[probabilities < 0.05] = 0
        probabilities /= probabilities.sum(axis=1, keepdims=True)
    weights = np.floor(probabilities * TOTAL).astype(np.int64)
    weights[np.arange(rows), weights.argmax(axis=1)] += TOTAL - weights.sum(axis=1)
    return weights


def sum_pmf(rows: list[np.ndarray]) -> np.ndarray:
    """The pmf of a sum of independent reports, one row each; floats or Fractions (object arrays)."""
    result = rows[0]
    for row in rows[1:]:
        result = np.convolve(result, row)
    return result


def exact_delta(weights: np.ndarray, clients: int, epsilon: float) -> float:
    """Worst hockey-stick divergence of one sum over all data sets of the others and all pairs of rows (floats)."""
    table = weights / TOTAL
    worst = 0.0
    for others in itertools.combinations_with_replacement(range(len(table)), clients - 1):
        shared = sum_pmf([np.ones(1), *(table[k] for k in others)])
        for first, second in itertools.permutations(range(len(table)), 2):
            gain = np.convolve(shared, table[first]) - math.exp(epsilon) * np.convolve(
                shared, table[second]
            )
            worst = max(worst, float(np.maximum(gain, 0).sum()))
    return worst


def crowd_delta(weights: np.ndarray, clients: int, epsilon: float) -> float:
    """`exact_delta` for crowds: every way to give rows to the others, by transforms (errors near 1e-14)."""
    table = weights / TOTAL
    length = 2 ** math.ceil(math.log2(clients * (table.shape[1] - 1) + 2))
    spectra = np.fft.fft(table, length, axis=1)
    worst = 0.0
    for counts in itertools.product(range(clients), repeat=len(table) - 1):
        if sum(counts) >= clients:
            continue
        powers = np.array([*counts, clients - 1 - sum(counts)])[:, None]
        sums = np.fft.ifft(np.prod(spectra**powers, axis=0) * spectra, axis=1).real
        for first, second in itertools.permutations(range(len(table)), 2):
            gain = sums[first] - math.exp(epsilon) * sums[second]
            worst = max(worst, float(np.maximum(gain, 0).sum()))
    return worst


def exact_delta_fraction(weights: np.ndarray, clients: int, ratio: Fraction) -> Fraction:
    """The same in rationals, at e**epsilon = ratio."""
    table = [np.array([Fraction(int(w), TOTAL) for w in row], dtype=object) for row in weights]
    worst = Fraction(0)
    for others in itertools.combinations_with_replacement(range(len(table)), clients - 1):
        shared = sum_pmf([np.array([Fraction(1)], dtype=object), *(table[k] for k in others)])
        for first, second in itertools.permutations(range(len(table)), 2):
            gains = np.convolve(shared, table[first]) - ratio * np.convolve(shared, table[second])
            worst = max(worst, sum((gain for gain in gains if gain > 0), Fraction(0)))
    return worst


def exact_renyi(
    weights_first: np.ndarray, weights_second: np.ndarray, others: list[np.ndarray], alpha: float
) -> float:
    """Renyi divergence of one sum for one pair of pmfs of a client and fixed pmfs of the others (floats)."""
    shared = sum_pmf([np.ones(1), *others])
    first, second = np.convolve(shared, weights_first), np.convolve(shared, weights_second)
    used = first > 0
    return math.log(float((first[used] ** alpha * second[used] ** (1 - alpha)).sum())) / (alpha - 1)
