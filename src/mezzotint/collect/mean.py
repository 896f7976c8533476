"""The mean of a column from reports, with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, final

import numpy as np
import numpy.typing as npt
from scipy import special

from mezzotint.collect.counts import CodeCounts
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism

Method = Literal["asymptotic", "safe"]
FloatArray = npt.NDArray[np.float64]


@final
@dataclass(frozen=True, kw_only=True)
class Interval:
    """An estimate and the interval around it, in the unit of what is estimated."""

    value: float
    low: float
    high: float

    def as_dict(self) -> dict[str, float]:
        """Plain values for JSON."""
        return {"value": self.value, "low": self.low, "high": self.high}


def check_level(level: float) -> float:
    """The level, checked to lie inside (0, 1)."""
    if not 0 < level < 1:
        raise ParameterError("level", level, "a confidence level lies between 0 and 1; try level=0.95")
    return float(level)


def row_variances(mechanism: Mechanism) -> FloatArray:
    """(K+1,) variance of the decoded report at each row, squared data units.

    The variance at any input is at least the smaller of its two rows': a mixture only adds the spread of their means.
    """
    deviation = mechanism.levels - (mechanism.probabilities @ mechanism.levels)[:, None]
    return np.einsum("ki,ki->k", mechanism.probabilities, deviation**2)


def report_moments(counts: CodeCounts) -> tuple[float, float]:
    """Mean of the decoded reports, and the unbiased variance of one, not less than the table's least.

    The second is at least the true least variance of a report whatever the inputs are, so few reports that happen to
    agree do not make an interval of no width.
    """
    levels, n = counts.mechanism.levels, counts.n
    if n < 2:
        raise ParameterError("n", n, 'one report has no spread; collect at least 2, or use method="safe"')
    centre = float(levels[np.argmax(counts.counts)])
    mean = centre + float(counts.counts @ (levels - centre)) / n
    variance = float(counts.counts @ (levels - mean) ** 2) / (n - 1)
    return mean, max(variance, float(row_variances(counts.mechanism).min()))


def greatest_report_variance(mechanism: Mechanism) -> float:
    """Greatest variance of one decoded report over all distributions of the input, squared data units; exact.

    With mu = E[B] and S = E[B^2], a distribution of inputs reaches any point of the convex hull of the rows'
    (mu, S); the variance S - mu^2 is concave there, so it is greatest on the upper hull, edge by edge.
    """
    centre = (mechanism.levels[0] + mechanism.levels[-1]) / 2
    levels = mechanism.levels - centre
    points = np.stack([mechanism.probabilities @ levels, mechanism.probabilities @ levels**2], axis=1)
    hull: list[FloatArray] = []
    for point in points[np.lexsort((points[:, 1], points[:, 0]))]:
        while hull and (hull[-1][0] == point[0] or (len(hull) > 1 and _bends_up(hull[-2], hull[-1], point))):
            hull.pop()
        hull.append(point)
    best = max(float(second - first**2) for first, second in hull)
    for (x0, y0), (x1, y1) in pairwise(hull):
        slope = (y1 - y0) / (x1 - x0)
        top = min(max(slope / 2, x0), x1)  # of y0 + slope (x - x0) - x^2
        best = max(best, float(y0 + slope * (top - x0) - top**2))
    return best


def _bends_up(a: FloatArray, b: FloatArray, c: FloatArray) -> bool:
    return bool((b[0] - a[0]) * (c[1] - a[1]) >= (c[0] - a[0]) * (b[1] - a[1]))


def half_width(counts: CodeCounts, *, level: float, method: Method) -> float:
    """Half the width of the interval for the mean, data units, the table's own bias included.

    Arguments:
        counts: the reports.
        level: confidence, in (0, 1).
        method: "asymptotic": Student's t on the reports, right in the limit; needs n >= 2.
            "safe": Bernstein's inequality with the table's greatest variance, right at every n; n >= 1.
    """
    if method == "asymptotic":
        _, variance = report_moments(counts)
        quantile = float(special.stdtrit(counts.n - 1, (1 + level) / 2))
        return quantile * math.sqrt(variance / counts.n) + counts.mechanism.max_bias
    return safe_half_width(counts.mechanism, n=counts.n, level=level)


def safe_half_width(mechanism: Mechanism, *, n: int, level: float) -> float:
    """Half the width that holds at every n >= 1, data units: known before any report is collected.

    Source: Bernstein's inequality for independent bounded variables.
    """
    # P(|mean - E mean| >= t) <= 2 exp(-n t^2 / (2 v + 2 R t / 3)) with v >= the average variance and R >= |B - E B|;
    # setting the right side to 1 - level gives a quadratic in t.
    used = mechanism.levels[mechanism.weights.any(axis=0)]
    means = mechanism.probabilities @ mechanism.levels
    reach = max(float(used[-1] - means.min()), float(means.max() - used[0]))
    log = math.log(2 / (1 - level))
    linear = reach * log / 3
    return (linear + math.sqrt(linear**2 + 2 * n * greatest_report_variance(mechanism) * log)) / n + mechanism.max_bias
