"""Frequencies of categories from reports, with intervals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

from mezzotint.collect.counts import CodeCounts
from mezzotint.collect.mean import Interval, Method, Spread, bernstein, score_interval
from mezzotint.core.records import plain
from mezzotint.privacy.claim import Claim
from mezzotint.privacy.prove import report_claim


@final
@dataclass(frozen=True, kw_only=True)
class Frequencies:
    """Which share of the inputs was of each category.

    Arguments:
        n: reports.
        level: confidence of every interval, or of all together.
        method: as in `Estimate`.
        simultaneous: whether it is that of all together (Bonferroni).
        categories: names.
        shares: one interval per category. Points are unbiased, so that they may lie below 0 or above 1; they sum to 1.
        claim: of one report; None when the reports were drawn from a seed, which are not private.
        seeded: whether they were; None where their files do not say.
        sha256: hash of the table.
    """

    n: int
    level: float
    method: Method
    simultaneous: bool
    categories: tuple[str, ...]
    shares: tuple[Interval, ...]
    claim: Claim | None
    seeded: bool | None
    sha256: str

    @property
    def epsilon(self) -> float | None:
        """Pure epsilon of one report; None when there is no claim."""
        return None if self.claim is None else self.claim.epsilon

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        shares = zip(self.categories, self.shares, strict=True)
        result: dict[str, Any] = {
            "n": self.n,
            "frequencies": [{"category": name, **share.as_dict()} for name, share in shares],
            "level": self.level,
            "method": self.method,
            "simultaneous": self.simultaneous,
            "seeded": self.seeded,
            "sha256": self.sha256,
        }
        if self.claim is not None:
            result |= {"epsilon": plain(self.claim.epsilon), **self.claim.standing}
        return result


def frequencies(counts: CodeCounts, *, level: float, method: Method, simultaneous: bool) -> Frequencies:
    """The frequencies behind reports of a table for categories; see `estimate`.

    Each is the mean of a decoder that is unbiased for its category's indicator: a number per report, so that the score
    interval of means serves here too.

    Raises:
        ParameterError: a table whose rows are linearly dependent.
    """
    mechanism = counts.mechanism
    names = mechanism.categories or ()
    each = 1 - (1 - level) / len(names) if simultaneous else level
    shares = []
    for decoder in mechanism.frequency_decoders.T:
        mean = float(counts.counts @ decoder) / counts.n
        spread = Spread(pmf=mechanism.probabilities, values=decoder)
        if method == "safe":
            width = bernstein(spread, n=counts.n, level=each)
            low, high = mean - width, mean + width
        else:
            low, high = score_interval(counts.counts, spread, mean=mean, level=each)
        shares.append(Interval(value=mean, low=min(mean, max(low, 0.0)), high=max(mean, min(high, 1.0))))
    return Frequencies(
        n=counts.n,
        level=level,
        method=method,
        simultaneous=simultaneous,
        categories=names,
        shares=tuple(shares),
        claim=None if counts.seeded else report_claim(mechanism),
        seeded=counts.seeded,
        sha256=mechanism.sha256,
    )
