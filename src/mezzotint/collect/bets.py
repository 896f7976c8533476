"""Bounds that are proved at every number of reports: bets on decoders that were chosen before.

The reports are dealt into chunks once. For each chunk a dominating decoder and a bet are chosen
from the chunks before it, so that the capital of whoever bets against a true statement is a
supermartingale that starts at 1: it reaches 1/alpha with a chance of at most alpha (Ville's
inequality), whatever was chosen (docs/proofs/estimation.md, E5).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from functools import cached_property
from typing import final

import numpy as np
from scipy import special

from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.evidence import STEPS, Evidence, Fold, expected_shares
from mezzotint.collect.intervals import Sums, mean_interval
from mezzotint.collect.support_points import SupportPoints, dominating, quick_fit
from mezzotint.core.search import bracket
from mezzotint.core.types import FloatArray

CHUNKS = (1 / 16, 3 / 16, 1 / 4, 1 / 2)
"""Shares of the reports in the chunks, in the order in which they are bet on."""


STAKES = (0.5, 0.75, 1.0, 1.35, 2.0)
"""Bets that the capital is shared among, relative to the best one for a normal law."""


MOST_STAKED = 0.9
"""Share of the capital that no report takes away."""


WIDTH_AHEAD, WIDEST_AHEAD = 0.4, 1.8
"""Standard errors that a decoder is chosen for: the quantile and the first, at most the second."""

BISECTIONS = 60


def chunks_of(nodes: SupportPoints, *, deal: int) -> list[Fold]:
    """The reports dealt into CHUNKS one by one, each with what those before it suggest.

    Guarantees: given the sizes of the chunks their reports are independent, whatever the seed is,
        as long as it does not depend on the reports.
    """
    dealt = np.random.default_rng(deal).multinomial(nodes.counts, CHUNKS).T
    earlier = np.zeros_like(nodes.counts)
    chunks = []
    for counts in dealt:
        expected = nodes.pmf.mean(axis=0)
        centre = float(nodes.x.mean())
        if earlier.any():
            masses = quick_fit(nodes.with_counts(earlier), steps=STEPS)
            expected = expected_shares(nodes, masses)
            centre = float(masses @ nodes.x)
        share = float(counts.sum()) / nodes.n
        chunks.append(
            Fold(
                counts=counts,
                share=share,
                expected=expected,
                centre=centre,
            )
        )
        earlier = earlier + counts
    return chunks


def stakes_of(
    decoder: FloatArray,
    expected: FloatArray,
    *,
    scale: float,
    least: float,
) -> FloatArray:
    """(5,) shares of the capital per unit of the decoder: none where it says the same of all codes.

    A decoder that fell back to its constant would otherwise be a bet against whoever makes it.
    """
    mean_report = float(expected @ decoder)
    deviation = math.sqrt(float(expected @ (decoder - mean_report) ** 2))
    if np.ptp(decoder) == 0 or deviation == 0:
        return np.zeros(len(STAKES))
    largest = MOST_STAKED / (float(decoder.max()) - least)
    return np.minimum(np.array(STAKES) * scale / deviation, largest)


@final
class Betting(Evidence):
    """Bounds by bets: proved at every number of reports of independent, identically distributed
    inputs.

    At u = E v every factor of the capital has an expected value of at most 1 given the chunks
    before, as the decoder dominates v; the capital grows in u.

    Arguments:
        deal: seed by which reports were dealt into chunks; None for a fresh one. One that was
            chosen after looking at intervals proves nothing.
    """

    strides = (1,)
    """Every break: one test decides whether the interval loses the quantile, the first at or
    beyond it.
    """

    def __init__(
        self,
        counts: CodeCounts,
        *,
        confidence: float,
        edges: FloatArray | None,
        deal: int | None = None,
    ) -> None:
        super().__init__(counts, confidence=confidence, edges=edges)
        # Fresh is one that nobody could know when the reports were made.
        self.deal = secrets.randbits(63) if deal is None else deal

    @cached_property
    def folds(self) -> Sequence[Fold]:  # pyright: ignore[reportIncompatibleVariableOverride]
        return chunks_of(self.base, deal=self.deal)

    def upper_end(
        self,
        pmf: FloatArray,
        wanted: Sequence[FloatArray],
        *,
        least: float,
        tail: float,
    ) -> float:
        """As in `Evidence`, proved: the least bound whose capital reaches 1 / tail, by halving
        between `least` and the greatest v.
        """
        report_count = self.base.n
        wealth = math.log(1 / tail)
        quantile = float(special.ndtri(1 - tail))
        width = min(quantile + WIDTH_AHEAD, WIDEST_AHEAD) / math.sqrt(report_count)
        scale = math.sqrt(2 * wealth / report_count)
        decoders: list[FloatArray] = []
        stakes: list[FloatArray] = []
        for chunk, values, basis in zip(self.folds, wanted, self.bases, strict=True):
            decoder = dominating(pmf, values, chunk.expected, width=width, basis=basis)
            decoders.append(decoder)
            stakes.append(stakes_of(decoder, chunk.expected, scale=scale, least=least))

        def refutes(bound: float) -> bool:
            gains = np.full(len(STAKES), -math.log(len(STAKES)))
            for chunk, decoder, stake in zip(self.folds, decoders, stakes, strict=True):
                gains += np.log1p(stake[:, None] * (bound - decoder)) @ chunk.counts
            return bool(special.logsumexp(gains) >= wealth)

        top = max(float(values.max()) for values in wanted)
        if not refutes(top):
            return top
        return bracket(refutes, top, least, steps=BISECTIONS)[0]

    def _centre_error(self) -> float:
        # Each chunk has a centre c of its own: Var X = E(X - c)^2 - (E X - c)^2. A quarter of the
        # error for each side.
        interval = mean_interval(
            self.counts.mechanism,
            Sums.of_counts(self.counts.counts),
            confidence=1 - self.tail / 2,
            method="safe",
        )
        distances = [
            interval_end - chunk.centre
            for chunk in self.folds
            for interval_end in (interval.low, interval.high)
        ]
        return max(distance**2 for distance in distances)
