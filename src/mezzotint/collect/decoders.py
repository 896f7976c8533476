"""Upper and lower estimates of expectations over the inputs, by decoders that need no model of them.

A decoder a, one number per code, whose expected value from every input is at least v(input) has a mean report of at
least E v, whatever the inputs are. The best one for the reports at hand is a small cone program. It is chosen on some
of the reports and evaluated on others, four times over, so that no choice flatters itself (proofs/estimation.md, E4).
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import numpy.typing as npt
from scipy import sparse, special

from mezzotint.collect.mean import WIDER, Spread
from mezzotint.collect.nodes import Nodes, quick_fit
from mezzotint.core.loss import FloatArray

clarabel: Any = importlib.import_module("clarabel")  # a compiled module without type information

FOLDS = 4
FOLD_SEED = 20240611
"""Part of the method: whoever tries several seeds and picks an interval cheats. Deals reports into folds."""

FLOOR = 0.02
"""Weight of the average row in the shares that a decoder is optimised for, so that no code is thought impossible."""

_CANDIDATES = 513
"""Expected values of a decoder that are asked whether the reports rule them out."""

STEPS = 200
"""EM steps per fold. A worse fit makes a wider interval, never a wrong one."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Fold:
    """One part of the reports, and what the rest say about their shares.

    Arguments:
        counts: (c,) of this part.
        share: of all reports.
        expected: (c,) shares of the codes, from the other parts alone.
        centre: mean of the inputs, data units, from the other parts alone.
    """

    counts: npt.NDArray[np.int64]
    share: float
    expected: FloatArray
    centre: float


def folds_of(nodes: Nodes) -> list[tuple[Fold, ...]]:
    """Each data set's reports dealt into FOLDS parts at random, each report by itself; empty parts left out.

    Arguments:
        nodes: with counts of any number of data sets, (D, c).

    Guarantees: depends on a data set's counts alone; parts are independent of each other given their sizes.
    """
    parts = np.stack([_dealt(counts) for counts in nodes.counts])
    fitted = quick_fit(nodes.with_counts(nodes.counts[:, None] - parts), steps=STEPS)
    expected = (1 - FLOOR) * (fitted @ nodes.pmf) + FLOOR * nodes.pmf.mean(axis=0)
    shares = parts.sum(axis=-1) / nodes.counts.sum(axis=-1, keepdims=True)
    centres = fitted @ nodes.x
    return [
        tuple(
            Fold(counts=part, share=float(share), expected=codes, centre=float(centre))
            for part, share, codes, centre in zip(*of_set, strict=True)
            if share
        )
        for of_set in zip(parts, shares, expected, centres, strict=True)
    ]


def _dealt(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    deal = np.random.default_rng(FOLD_SEED)
    return deal.multinomial(counts, [1 / FOLDS] * FOLDS).T


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Bounds:
    """Interval ends of expectations over the inputs.

    Arguments:
        counts: (c,) all reports.
        folds: `folds_of` them.
        rows: (K, c) pmf at the knots: what all inputs are mixtures of.
    """

    counts: npt.NDArray[np.int64]
    folds: Sequence[Fold]
    rows: FloatArray

    def upper(self, pmf: FloatArray, function: Callable[[Fold], FloatArray], *, tail: float) -> float:
        """Upper end of the interval of E v at one-sided error `tail`.

        Arguments:
            pmf: (J, c) codes from the inputs at which the decoder must dominate: v at any other input is at most what
                it is on the chord between two of them that lie in one segment of the table.
            function: (J,) v there; of a fold, where v follows from the other folds.
            tail: in (0, 1/2).

        Guarantees: each decoder dominates v, so that the mean of its reports is an upper estimate at every n; the
            normal width around it is verified by simulation (benchmarks/coverage.py), not proved.
        """
        n, z = int(self.counts.sum()), float(special.ndtri(1 - tail)) + WIDER
        total = most = skewness = 0.0
        top, parts = -math.inf, []
        for fold in self.folds:
            wanted = function(fold)
            top = max(top, float(wanted.max()))
            decoder = dominating(pmf, wanted, fold.expected, width=z / math.sqrt(n))
            spread = Spread(pmf=self.rows, values=decoder)
            greatest = spread.greatest_of_all
            mean = float(self.counts @ decoder) / n
            seen = float(self.counts @ (decoder - mean) ** 2) / n
            total += float(fold.counts @ decoder) / n
            # Where no inputs make both ends of the decoder common, one is rare whatever the inputs are: its reports are
            # a Poisson count of jumps, k of which do not rule out k + z^2/2 + z sqrt(k + z^2/4).
            rare = 1 - 4 * greatest / spread.reach**2 if spread.reach > 0 else 0.0
            unseen = max(4 * greatest, rare * (z * spread.reach / 2) ** 2)
            parts.append((fold.share, spread, mean, seen, unseen))
            most += fold.share * (n * max(seen, greatest) + unseen) / (n + 4)
            if greatest > 0:
                lopsided = spread.reach * (1 - float(spread.variances.min()) / greatest)
                skewness += fold.share * lopsided * (1 + rare * (z**2 / 2 - 1))
        # How far above its reports an expected value may lie; there a report varies by what the table demands at least.
        away = np.linspace(0.0, z * math.sqrt(most / n) + skewness / n, _CANDIDATES)
        variance = np.zeros(_CANDIDATES)
        for share, spread, mean, seen, unseen in parts:
            variance += share * (n * np.maximum(seen, spread.least(mean + away)) + unseen) / (n + 4)
        widths = z * np.sqrt(variance / n) + skewness / n
        return min(top, total + max(float(widths[0]), float(away[away <= widths].max())))

    def lower(self, pmf: FloatArray, function: Callable[[Fold], FloatArray], *, tail: float) -> float:
        """Lower end, as `upper`."""
        return -self.upper(pmf, lambda fold: -function(fold), tail=tail)


def greatest_expectation(pmf: FloatArray, values: FloatArray, shares: FloatArray) -> float:
    """Greatest E v over all distributions of inputs that give the codes exactly these shares."""
    return min(float(values.max()), float(dominating(pmf, values, shares, width=0.0) @ shares))


def dominating(pmf: FloatArray, values: FloatArray, shares: FloatArray, *, width: float) -> FloatArray:
    """The decoder a, pmf a >= values, of the least shares.a + width * (standard deviation of a under the shares).

    Arguments:
        pmf: (J, c).
        values: (J,).
        shares: (c,) >= 0, summing to 1.
        width: >= 0.

    Returns: (c,).

    Guarantees: pmf a >= values whatever the solver does: its answer is lifted until it holds, with a margin for
        rounding; where it has none the constant max(values) stands in. A failure costs width, never validity, and
        raises nothing.
    """
    top = float(values.max())
    constant = np.full(shares.size, top)
    scale = top - float(values.min())
    used = pmf.any(axis=0)
    if scale == 0:
        return constant
    found = _solve(pmf[:, used], (values - top) / scale, shares[used], width)
    if found is None:
        return constant
    decoder = constant.copy()
    decoder[used] += scale * found
    shortfall = float((values - pmf @ decoder).max())
    decoder += max(0.0, shortfall) + 1e-12 * float(np.abs(decoder).max())
    return decoder if _cost(decoder, shares, width) <= top else constant


def _cost(decoder: FloatArray, shares: FloatArray, width: float) -> float:
    mean = float(shares @ decoder)
    return mean + width * math.sqrt(max(0.0, float(shares @ (decoder - mean) ** 2)))


def _solve(pmf: FloatArray, values: FloatArray, shares: FloatArray, width: float) -> FloatArray | None:
    codes = shares.size
    linear, rows, right = shares, -pmf, -values
    cones = [clarabel.NonnegativeConeT(values.size)]
    if width > 0:
        root = np.sqrt(shares)
        deviation = np.diag(root) - np.outer(root, shares)  # |deviation a| is the standard deviation of a
        blocks = [
            [rows, np.zeros((values.size, 1))],
            [np.zeros((1, codes)), -np.ones((1, 1))],
            [-deviation, np.zeros((codes, 1))],
        ]
        rows = np.block(blocks)
        right = np.concatenate([right, np.zeros(1 + codes)])
        linear = np.append(linear, width)
        cones.append(clarabel.SecondOrderConeT(1 + codes))
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.max_threads = 1
    size = linear.size
    solution = clarabel.DefaultSolver(
        sparse.csc_matrix((size, size)), linear, sparse.csc_matrix(rows), right, cones, settings
    ).solve()
    found = np.array(solution.x[:codes])
    return found if np.isfinite(found).all() else None
