"""Integer noise that clients add before a secure sum: the exact n-fold convolution, and what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import TOTAL, FloatArray, IntArray
from mezzotint.privacy.loss import UNIT
from mezzotint.privacy.sums.convolution import sum_bounds

MAX_SHIFT = 4096
"""Largest change of one coordinate, lattice steps, that is gone through."""


class NoiseTable(Protocol):
    """What integer noise must offer: `mezzotint.families` makes such tables (discrete Gaussian, Skellam, ...)."""

    @property
    def offsets(self) -> IntArray:
        """(s,) consecutive integers."""
        ...

    @property
    def weights(self) -> IntArray:
        """(s,) integers >= 0 that sum to 2**32."""
        ...

    def sample(self, shape: int | tuple[int, ...], rng: Any = None) -> IntArray:
        """Independent draws."""
        ...


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class SummedNoise:
    """Bounds on the pmf of the sum of many clients' noise, on consecutive integers.

    Arguments:
        low, high: (w,) bounds on the probabilities.
        outside: mass outside the window.
    """

    low: FloatArray
    high: FloatArray
    outside: float

    def quadratic_renyi(self, alpha: float, *, shift: int, lost: float) -> tuple[float, float]:
        """kappa and a mass: D_alpha of the noise from itself shifted by s is at most kappa s^2 for all |s| <= shift.

        Arguments:
            alpha: order > 1.
            shift: largest |s|, lattice steps.
            lost: mass that may be cut off; the Renyi divergence is of what is left, the cut mass belongs to delta.

        Returns: (kappa, mass actually cut off per coordinate), both rounded up; kappa is inf when more would be lost.

        Guarantees: exact convolution; no approximation of the sum by a named distribution.
        Source: docs/proofs/sums-l2.md.
        """
        if not 1 < alpha < math.inf:
            raise ParameterError("alpha", alpha, "a finite Renyi order above 1")
        if not 1 <= shift <= MAX_SHIFT:
            remedy = f"one client may move a coordinate by 1 to {MAX_SHIFT} steps; take a coarser granularity"
            raise ParameterError("shift", shift, remedy)
        kappa, cut = 0.0, 0.0
        with np.errstate(divide="ignore"):
            log_high, log_low = np.log(self.high), np.log(self.low)
        for s in range(1, shift + 1):
            for ahead in (True, False):
                first, second = (slice(s, None), slice(None, -s)) if ahead else (slice(None, -s), slice(s, None))
                one, other = log_high[first], log_low[second]
                # Where the shifted pmf is not known to be positive, what the first has is cut off.
                known = np.isfinite(other) & np.isfinite(one)
                rest = float(self.high[first][~known].sum())
                rest += float((self.high[:s] if ahead else self.high[-s:]).sum()) + self.outside
                if not known.any() or rest > lost:
                    return math.inf, rest
                exponents = alpha * one[known] + (1 - alpha) * other[known]
                top = float(exponents.max())
                power = top + math.log(float(np.exp(exponents - top).sum()))
                # Rounding: exponents of size up to alpha * 800 err by 4 UNIT of themselves.
                power += (abs(power) + alpha * 800 + known.size) * 8 * UNIT
                kappa = max(kappa, power / (alpha - 1) / s**2)
                cut = max(cut, rest)
        return kappa * (1 + 8 * UNIT), cut * (1 + 64 * UNIT)


def summed_noise(noise: NoiseTable, clients: int) -> SummedNoise:
    """The noise of `clients` honest clients together, exact but for error bounds that are kept.

    Raises:
        ParameterError: clients < 1.
    """
    if int(clients) != clients or clients < 1:
        raise ParameterError("clients", clients, "need at least one client who adds honest noise")
    bounds = sum_bounds([noise.weights / float(TOTAL)], [[int(clients)]], tail=1e-22)
    return SummedNoise(low=bounds.low[0], high=bounds.high[0], outside=float(bounds.outside[0]))
