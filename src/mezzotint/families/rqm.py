"""RQM, the randomized quantization mechanism: a random subset of an even grid, then unbiased rounding."""

from __future__ import annotations

import math

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.rounding import table
from mezzotint.families import inputs
from mezzotint.families.inputs import FloatArray
from mezzotint.families.selection import pair_rows

_SNAP = 1e-13


def rqm_bins(*, lower: float, upper: float, levels: int, extension: float) -> FloatArray:
    """(levels,) evenly spaced from lower - extension to upper + extension, data units."""
    bins = np.linspace(lower - extension, upper + extension, levels)
    # A bin that belongs on an end of the range may miss it by a rounding error, and would then open a cell between
    # itself and the end that the exact mechanism does not have.
    for end in (lower, upper):
        bins[np.abs(bins - end) <= _SNAP * (bins[-1] - bins[0])] = end
    return bins


def rqm_choices(levels: int, q: float | FloatArray) -> list[FloatArray]:
    """Selection probabilities (..., j) for j = 1 .. levels - 1 bins on a side, outermost first; q of shape (...)."""
    keep = np.asarray(q, dtype=np.float64)[..., None]
    # The nearest kept bin on a side with j bins is the i-th from outside: it is kept (q, the outermost always), the
    # j - i nearer ones are not.
    outermost = np.ones_like(keep)
    return [
        np.concatenate([outermost, np.repeat(keep, j - 1, axis=-1)], axis=-1) * (1 - keep) ** np.arange(j - 1, -1, -1.0)
        for j in range(1, levels)
    ]


def rqm_rows(
    *, lower: float, upper: float, levels: int, extension: float, q: float | FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Bins, knots and float64 pmfs (..., knots, levels) of `rqm` before rounding to integers; unchecked arguments."""
    bins = rqm_bins(lower=lower, upper=upper, levels=levels, extension=extension)
    choices = rqm_choices(levels, q)
    knots, rows = pair_rows(bins, choices, choices, lower=lower, upper=upper)
    return bins, knots, rows


def rqm(
    *, lower: float = -1.0, upper: float = 1.0, levels: int = 16, extension: float = 1.0, q: float = 0.42
) -> Mechanism:
    """The Randomized Quantization Mechanism: keep each inner bin with probability q, round between kept neighbours.

    Arguments:
        lower, upper: input range, data units (the paper's -c and c).
        levels: number m of evenly spaced bins, outermost included, >= 2.
        extension: how far the bins reach beyond the range on each side, data units (the paper's Delta), >= 0.
        q: probability that an inner bin is kept, in [0, 1].

    Raises:
        ParameterError: naming the parameter, its value and the remedy.

    Guarantees:
        The rows are Lemma 5.3's pmf at both one-sided limits of every bin, rounded to integers.
        Unbiased up to `max_bias`.
    Edge cases: q=0 is randomized response on the two outermost bins; q=1 is stochastic rounding; extension=0 has
        epsilon inf. Where a probability is below 2**-32 the table gives it one unit, and epsilon is that table's.

    Source: Youn, Hu, Ziani, Abernethy 2023, Algorithm 2 and Lemma 5.3.
    """
    low, high = inputs.bounded_range(lower, upper)
    size = inputs.count("levels", levels, least=2)
    reach = inputs.finite("extension", extension)
    if reach < 0:
        raise ParameterError("extension", reach, "must be 0 or more; the bins have to cover the input range")
    keep = inputs.finite("q", q)
    if not 0 <= keep <= 1:
        raise ParameterError("q", keep, "is a probability; choose it in [0, 1]")
    bins, knots, rows = rqm_rows(lower=low, upper=high, levels=size, extension=reach, q=keep)
    name = f"RQM(levels={size}, extension={reach:g}, q={keep:g})"
    return table(knots=knots, levels=bins, probabilities=rows, name=name)


def published_rqm_epsilon(*, lower: float, upper: float, levels: int, extension: float, q: float) -> float:
    """Theorem 5.4's upper bound on RQM's epsilon: log(2 (1-q)^2 (1 + c/Delta)) + m log(1/(1-q)), c the half range.

    It is far above the exact value; `rqm(...).epsilon` is exact. Nothing in this package relies on it.

    Arguments:
        lower, upper, levels, extension, q: as in `rqm`; extension > 0 and q in (0, 1), as the theorem asks.

    Raises:
        ParameterError: outside the theorem's range.

    Source: Youn, Hu, Ziani, Abernethy 2023, Theorem 5.4.
    """
    low, high = inputs.bounded_range(lower, upper)
    size = inputs.count("levels", levels, least=2)
    reach, keep = inputs.finite("extension", extension), inputs.finite("q", q)
    if reach <= 0:
        raise ParameterError("extension", reach, "Theorem 5.4 needs extension > 0")
    if not 0 < keep < 1:
        raise ParameterError("q", keep, "Theorem 5.4 needs q strictly between 0 and 1")
    half = (high - low) / 2
    return math.log(2 * (1 - keep) ** 2 * (1 + half / reach)) - size * math.log1p(-keep)
