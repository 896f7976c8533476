"""Bounds that are proved at every number of reports: bets on decoders that were chosen before.

The reports are dealt into chunks once. For each chunk a dominating decoder and a bet are chosen from
the chunks before it, so that the capital of whoever bets against a true statement is a supermartingale
that starts at 1: it reaches 1/alpha with a chance of at most alpha (Ville's inequality), whatever was
chosen (docs/proofs/estimation.md, E5).
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
from scipy import special

from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.nodes import SupportPoints, quick_fit
from mezzotint.collect.shapes import (
    FLOOR,
    STEPS,
    Edges,
    Fold,
    Shapes,
    decoder_basis,
    dominating,
    mean_interval,
)
from mezzotint.core.types import FloatArray

CHUNKS = (1 / 16, 3 / 16, 1 / 4, 1 / 2)
"""Shares of the reports in the chunks, in the order in which they are bet on."""

STAKES = (0.5, 0.75, 1.0, 1.35, 2.0)
"""Bets that the capital is shared among, relative to the best one for a normal law."""

MOST_STAKED = 0.9
"""Share of the capital that no report takes away."""

WIDTH_AHEAD, WIDEST_AHEAD = 0.4, 1.8
"""Standard errors that a decoder is chosen for: the quantile and the first, at most the second."""

_BISECTIONS = 60


def fresh_deal() -> int:
    """A seed for dealing reports into chunks that nobody could know when they were made."""
    return secrets.randbits(63)


def chunks_of(nodes: SupportPoints, *, deal: int) -> list[Fold]:
    """The reports dealt into CHUNKS one by one, each with what those before it suggest.

    Guarantees: given the sizes of the chunks their reports are independent, whatever the seed is, as
        long as it does not depend on the reports.
    """
    dealt = np.random.default_rng(deal).multinomial(nodes.counts, CHUNKS).T
    average = nodes.pmf.mean(axis=0)
    earlier, chunks = np.zeros_like(nodes.counts), []
    for counts in dealt:
        expected, centre = average, float(nodes.x.mean())
        if earlier.any():
            masses = quick_fit(nodes.with_counts(earlier), steps=STEPS)
            expected = (1 - FLOOR) * (masses @ nodes.pmf) + FLOOR * average
            centre = float(masses @ nodes.x)
        share = float(counts.sum()) / nodes.n
        chunks.append(Fold(counts=counts, share=share, expected=expected, centre=centre))
        earlier = earlier + counts
    return chunks


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Bets:
    """Upper ends of expectations over the inputs, by bets on the chunks of the reports.

    Arguments:
        chunks: of `chunks_of`.
        rows: (K, c) pmf at the knots, of which those at all inputs are mixtures.
    """

    chunks: list[Fold]
    rows: FloatArray

    @cached_property
    def _bases(self) -> list[FloatArray]:
        return [decoder_basis(self.rows, chunk.expected) for chunk in self.chunks]

    def upper(
        self,
        pmf: FloatArray,
        function: Callable[[Fold], FloatArray],
        *,
        least: float,
        tail: float,
    ) -> float:
        """Upper end of the interval of E v at one-sided error `tail`.

        Arguments:
            pmf: (J, c) codes from the inputs at which the decoder must dominate, as in `Bounds`.
            function: (J,) v there; of a chunk, where v follows from the chunks before it.
            least: a number that E v is surely not below.
            tail: in (0, 1/2).

        Guarantees: proved at every number of reports of independent, identically distributed inputs.
            At u = E v every factor of the capital has an expected value of at most 1 given the
            chunks before, as the decoder dominates v; the capital grows in u.
        """
        n = sum(int(chunk.counts.sum()) for chunk in self.chunks)
        quantile = float(special.ndtri(1 - tail))
        ahead = min(quantile + WIDTH_AHEAD, WIDEST_AHEAD) / math.sqrt(n)
        scale = math.sqrt(2 * math.log(1 / tail) / n)
        wanted = [function(chunk) for chunk in self.chunks]
        top = max(float(values.max()) for values in wanted)
        decoders, stakes = [], []
        for chunk, values, basis in zip(self.chunks, wanted, self._bases, strict=True):
            decoder = dominating(pmf, values, chunk.expected, width=ahead, basis=basis)
            decoders.append(decoder)
            stakes.append(_stakes(decoder, chunk.expected, scale=scale, least=least))

        def log_capital(bound: float) -> float:
            gains = np.zeros(len(STAKES))
            for chunk, decoder, stake in zip(self.chunks, decoders, stakes, strict=True):
                factors = np.log1p(stake[:, None] * (bound - decoder))
                gains += factors @ chunk.counts
            return float(special.logsumexp(gains)) - math.log(len(STAKES))

        wealth = math.log(1 / tail)
        if log_capital(top) < wealth:
            return top
        low, high = least, top
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            if log_capital(middle) >= wealth:
                high = middle
            else:
                low = middle
        return high


def _stakes(decoder: FloatArray, expected: FloatArray, *, scale: float, least: float) -> FloatArray:
    """(5,) shares of the capital per unit of the decoder: none where it says the same of all codes.

    A decoder that fell back to its constant would otherwise be a bet against whoever makes it.
    """
    mean = float(expected @ decoder)
    deviation = math.sqrt(float(expected @ (decoder - mean) ** 2))
    if np.ptp(decoder) == 0 or deviation == 0:
        return np.zeros(len(STAKES))
    largest = MOST_STAKED / (float(decoder.max()) - least)
    return np.minimum(np.array(STAKES) * scale / deviation, largest)


@final
class Betting(Shapes):
    """Bounds by bets: right at every number of reports.

    Arguments:
        deal: seed by which reports were dealt into chunks; None for a fresh one. One that was chosen
            after looking at intervals proves nothing.
    """

    strides = (1,)
    """Every break: one test decides whether the interval loses the quantile, the first at or beyond it."""

    def __init__(
        self,
        counts: CodeCounts,
        *,
        confidence: float,
        edges: FloatArray | None,
        deal: int | None = None,
    ) -> None:
        super().__init__(counts, confidence=confidence, edges=edges)
        self.deal = fresh_deal() if deal is None else deal

    @cached_property
    def _bets(self) -> Bets:
        knots = np.isin(self.base.x, self.counts.mechanism.knots)
        chunks = chunks_of(self.base, deal=self.deal)
        return Bets(chunks=chunks, rows=self.base.pmf[knots])

    @property
    def _tail(self) -> float:
        return (1 - self.confidence) / 2

    def _greatest(self, values: FloatArray, edges: Edges) -> float:
        corners = self.corners(edges)
        wanted = values[corners]
        return self._bets.upper(
            self.nodes.pmf[corners],
            lambda _: wanted,
            least=float(wanted.min()),
            tail=self._tail,
        )

    def _variance_ends(self) -> tuple[float, float]:
        # Each chunk has a centre c of its own, that of the chunks before: Var X <= E(X - c)^2, and
        # -Var X - (E X - c)^2 = -E(X - c)^2. A quarter of the error for each side of the mean.
        bets, corners = self._bets, self.corners(())
        knots, x = self.nodes.x[corners], self.base.x
        upper = bets.upper(
            self.nodes.pmf[corners],
            lambda chunk: (knots - chunk.centre) ** 2,
            least=0.0,
            tail=self._tail,
        )
        # No square is larger, wherever a centre lies: a stake may not know the centres of later chunks.
        largest_square = float(x.max() - x.min()) ** 2
        lower = -bets.upper(
            self.base.pmf,
            lambda chunk: -((x - chunk.centre) ** 2),
            least=-largest_square,
            tail=self._tail / 2,
        )
        mean = mean_interval(self.counts, confidence=1 - self._tail / 2, method="safe")
        distances = [
            (end - chunk.centre) ** 2 for chunk in bets.chunks for end in (mean.low, mean.high)
        ]
        return lower - max(distances) - self.base.widest() ** 2 / 4, upper
