"""Slow, obvious twins of the training room's accounting: brute force over grids, no code shared with the package."""

from __future__ import annotations

import math
from collections.abc import Sequence

import mpmath
import numpy as np
from scipy.special import ndtri
from scipy.stats import norm

from mezzotint import Mechanism
from mezzotint.core.sampler import key_from
from reference.sampler import codes_from_words, keystream


def uniform_edges(bound: float, bits: int) -> np.ndarray:
    """Cell edges of the nearest level among 2**bits even levels on [-bound, bound]; the outer two are infinite."""
    levels = np.linspace(-bound, bound, 2**bits)
    return np.concatenate([[-np.inf], (levels[1:] + levels[:-1]) / 2, [np.inf]])


def codes_after_noise(mean: float, noise: float, edges: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Distribution of the output: Gaussian noise, then the cell, then that cell's row."""
    cells = np.diff(norm.cdf(edges, loc=mean, scale=noise))
    return cells @ rows


def keep_or_replace(q: float, levels: int) -> np.ndarray:
    """Rows of keeping a code with probability q, else one of the others evenly."""
    rows = np.full((levels, levels), (1 - q) / (levels - 1))
    np.fill_diagonal(rows, q)
    return rows


def gaussian_distance(first: np.ndarray, second: np.ndarray) -> float:
    """The mu for which the likelihood-ratio sets of two distributions just obey mu-GDP: max over sets of a gap."""
    worst = 0.0
    for p, r in ((first, second), (second, first)):
        order = np.argsort(-(p / r), kind="stable")
        power, level = np.cumsum(p[order])[:-1], np.cumsum(r[order])[:-1]
        inside = (level > 1e-13) & (power < 1 - 1e-13) & (power > 1e-13) & (level < 1 - 1e-13)
        if inside.any():
            worst = max(worst, float(np.max(norm.ppf(power[inside]) - norm.ppf(level[inside]))))
    return worst


def contraction_on_a_grid(q: float, bits: int, points: int = 4001) -> mpmath.mpf:
    """max over an even grid in Phi^-1(m) of (q-u) phi / I((q-u) m + u), in 30 digits."""
    with mpmath.workdps(30):
        u = (1 - mpmath.mpf(q)) / (2**bits - 1)
        best = mpmath.mpf(0)
        for x in np.linspace(-6, 6, points):
            mass = (q - u) * mpmath.ncdf(float(x)) + u
            quantile = mpmath.mpf(float(ndtri(float(mass))))
            for _ in range(2):  # Newton's steps: from an error of 1e-8 at most, far out, to 1e-30
                quantile -= (mpmath.ncdf(quantile) - mass) / mpmath.npdf(quantile)
            best = max(best, (q - u) * mpmath.npdf(float(x)) / mpmath.npdf(quantile))
        return best


def hockey_stick_on_a_grid(first: np.ndarray, second: np.ndarray, epsilon: float) -> float:
    """sum of the positive parts of first - e**epsilon second."""
    return float(np.maximum(first - math.exp(epsilon) * second, 0).sum())


def mixture_on_a_grid(
    means: Sequence[float], masses: Sequence[float], noise: float, grid: np.ndarray
) -> np.ndarray:
    """Cell probabilities of a mixture of Gaussians between the points of a grid, both tails included."""
    edges = np.concatenate([[-np.inf], grid, [np.inf]])
    return sum(
        m * np.diff(norm.cdf(edges, loc=mean, scale=noise))
        for mean, m in zip(means, masses, strict=True)
    )


def worst_ratio_on_a_grid(q: float, bits: int, shift: float) -> float:
    """max over x of log[((q-u) Phi(x + shift) + u) / ((q-u) Phi(x) + u)] over a fine grid."""
    u = (1 - q) / (2**bits - 1)
    x = np.linspace(-12 - shift, 12, 400_001)
    return float(np.log(((q - u) * norm.cdf(x + shift) + u) / ((q - u) * norm.cdf(x) + u)).max())


def exact_code_loss(
    *, start: float, move: float, noise: float, q: float, bits: int, bound: float
) -> mpmath.mpf:
    """Largest log ratio of the probabilities of one released code, when one record moves the mean by `move`.

    In 40 digits: nearest level of N(start, noise**2) against N(start + move, noise**2), then keep or replace.
    """
    with mpmath.workdps(40):
        levels = 2**bits
        half = mpmath.mpf(bound) / (levels - 1)
        edges = [
            -mpmath.inf,
            *(-mpmath.mpf(bound) + (2 * i + 1) * half for i in range(levels - 1)),
            mpmath.inf,
        ]
        u = (1 - mpmath.mpf(q)) / (levels - 1)

        def code(index: int, mean: mpmath.mpf) -> mpmath.mpf:
            cell = mpmath.ncdf((edges[index + 1] - mean) / noise) - mpmath.ncdf(
                (edges[index] - mean) / noise
            )
            return (q - u) * cell + u

        begin = mpmath.mpf(start)
        ratios = [mpmath.log(code(i, begin) / code(i, begin + move)) for i in range(levels)]
        return max(abs(ratio) for ratio in ratios)


def drawn_codes(table: Mechanism, inputs: np.ndarray, seed: int) -> np.ndarray:
    """The codes whose sums training takes: element i of all inputs takes word i behind the first two counts' four."""
    return codes_from_words(
        table, inputs, keystream(key_from(seed), 4, inputs.size).reshape(inputs.shape)
    )


def column_sums(codes: np.ndarray, integers: np.ndarray) -> list[int]:
    """Sums over rows, one addition of Python integers at a time."""
    return [sum(int(integers[code]) for code in column) for column in codes.T]
