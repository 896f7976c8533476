"""Vectors under Gaussian noise that is rounded together with them: no grid to round to first, and Gaussian claims."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_count, check_positive
from mezzotint.core.entropy import key_from
from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import UNIT
from mezzotint.core.mechanism import FloatArray, IntArray, Seed
from mezzotint.privacy.claim import Release
from mezzotint.privacy.tradeoff import gaussian_epsilon
from mezzotint.vectors.rotation import Rotation, coefficients
from mezzotint.vectors.rounded import RoundedGaussian
from mezzotint.vectors.tables import MAX_BITS, ModularScheme

GAUSSIAN = "exact curve of the Gaussian before it is rounded"

LEAST = 1.0
"""Least deviation, steps: below, rounded reports are biased (by 1e-9 steps here) and their sums no longer Gaussian."""

_FINE = 2.0
"""Deviation, steps, from which planning takes a grid: rounding then adds 2 % to the variance, and e^-39 to a loss."""

_FAR = 6.0
"""A sum wraps around beyond so many of its deviations."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianScheme(ModularScheme):
    """L2 clipping, rotation, Gaussian noise in floats' full precision, rounding to a grid, addition modulo M.

    Arguments:
        deviation: standard deviation of the noise that EACH client adds before it rounds, steps of `granularity`.
        size: coordinates of a client's vector.
        l2_norm: clipping norm, data units.
        granularity: data units per integer.
        modulus_bits: log2 of M; `planned` chooses both.
        seed: public, of the rotation's signs; chosen independently of the data.
        bands: sums in a row that one vector is spread over, with `coefficients(bands)` / SCALE as factors. A claim
            about `rounds` sums is about one vector in every `bands` of them.

    Raises:
        ParameterError: a deviation below one step, norms that are not positive, a modulus above 2^48.

    Guarantees:
        Sums cost what a Gaussian of the honest clients' summed variance does on vectors of norm `l2_norm`, by its exact
        curve, and `merging_loss` besides, which from two steps on is nothing (1e-9 in all). Rounding is free.
        The noise is exact; no rounding of a float has a say in it. Wrapping around M costs accuracy, never privacy.
        Estimates of sums are unbiased up to 1e-9 steps a client, and wraps; a coordinate errs by deviation^2 + 1/12
        squared steps a client.
    Source: docs/proofs/vectors.md, "Rounded Gaussians" and "Vectors in several sums".
    """

    deviation: float
    modulus_bits: int
    bands: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.deviation >= LEAST:
            raise ParameterError("deviation", self.deviation, f"at least {LEAST:g} step; take a finer granularity")
        _ = self._noise, coefficients(self.bands)

    @classmethod
    def planned(
        cls, *, noise_multiplier: float, size: int, l2_norm: float, clients: int, seed: int = 0
    ) -> GaussianScheme:
        """The fewest bits for a noise of two steps a client and more, and the finest grid that they hold.

        Arguments:
            noise_multiplier: standard deviation of the noise of `clients` together, over `l2_norm`; > 0.
            clients: summands; a coordinate of their sum lies within its bounds' six deviations of 0, or wraps.
        """
        check_positive("noise_multiplier", noise_multiplier)
        check_positive("l2_norm", l2_norm)
        count = check_count("clients", clients)
        # Squared deviation of a coordinate in squares of one client's noise; were all vectors equal, for the signal.
        share = count / noise_multiplier
        spread = count * (1 + share * share / Rotation(dimension=size, seed=seed).block)
        least = 2 * _FAR * math.sqrt(_FINE**2 * spread + count / 12)
        if not least <= 2.0**MAX_BITS:
            raise ParameterError(
                "noise_multiplier", noise_multiplier, f"sums need more than {MAX_BITS} bits; more noise"
            )
        bits = max(2, math.ceil(math.log2(least)))
        deviation = math.sqrt(((2.0 ** (bits - 1) / _FAR) ** 2 - count / 12) / spread)
        each = noise_multiplier * l2_norm / math.sqrt(count)
        return cls(
            deviation=deviation, size=size, l2_norm=l2_norm, granularity=each / deviation, modulus_bits=bits, seed=seed
        )

    @property
    def _noise(self) -> RoundedGaussian:
        return RoundedGaussian(sigma=self.deviation)

    @property
    def variance(self) -> float:
        return (self.deviation**2 + 1 / 12) * self.granularity**2

    def wrap_probability(self, clients: int) -> float:
        count = check_count("clients", clients)
        signal = (count * self.l2_norm / self.granularity) ** 2 / self._rotation.block
        squared = 2 * (count * (self.deviation**2 + 1 / 12) + signal)
        stray = count * 3 * math.exp(-2 * (math.pi * self.deviation) ** 2)
        return min(1.0, 2 * self.size * math.exp(stray - (self.modulus / 2) ** 2 / squared))

    def centres(self, vector: npt.ArrayLike) -> FloatArray:
        """(d,) clipped and rotated vector, steps: of norm at most (1 + 2^-45) l2_norm / granularity."""
        # A level of a transform adds two floats: its errors have 2^-53 of the vector's norm, and there are 2 * 27 of
        # levels at most; scaling, and the division here, round four times more.
        return self.rotated(vector) / self.granularity

    def encode(self, vector: npt.ArrayLike, rng: Seed = None) -> IntArray:
        """(d,) to (d,) residues; rng None draws the noise from the keystream, a seed is not private."""
        return self._noise.draw(key_from(rng), self.size, self.centres(vector)) % self.modulus

    def decode_sum(self, total: npt.ArrayLike, clients: int) -> FloatArray:
        """Residues are read as the integers nearest 0."""
        check_count("clients", clients)
        return self._sum_of(total)

    def _epsilons(self, release: Release) -> dict[str, float]:
        """The Gaussian of the honest clients' variance over all vectors, by its exact curve."""
        vectors = -(-release.rounds // self.bands)
        # Neighbours' centres are two norms apart; 2^-40 covers their roundings and those of this line.
        apart = 2 * self.l2_norm / self.granularity * math.sqrt(vectors / release.honest) / self.deviation
        ratio = self.size * vectors * self.bands * merging_loss(self.deviation, release.honest)
        epsilon = gaussian_epsilon(apart * (1 + 2.0**-40), release.delta * math.exp(-ratio) * (1 - 4 * UNIT))
        method = GAUSSIAN if self.bands == 1 else f"{GAUSSIAN}; one vector in {self.bands} sums in a row"
        return {method: (epsilon + 2 * ratio) * (1 + 4 * UNIT)}


def merging_loss(deviation: float, clients: int) -> float:
    """Largest |log| of the ratio between the law of a sum of `clients` rounded Gaussians and a rounding of their sum.

    Arguments:
        deviation: of each Gaussian, steps.
        clients: summands; a single one loses nothing.

    Returns: of one coordinate, rounded up; inf where grids are so coarse that nothing is proved.

    Source: docs/proofs/vectors.md, "Rounded Gaussians".

    Example:
        >>> merging_loss(2.0, 1000) < 2e-17
        True
    """
    places = np.arange(1.0, clients)
    stray = np.exp(-2 * (math.pi * deviation) ** 2 * places / (places + 1) * (1 - 16 * UNIT))
    # 2 (x + x^4 + x^9 + ...) <= 2 x / (1 - x)
    off = 2 * stray / (1 - stray)
    if off.size and float(off.max()) >= 1:
        return math.inf
    return float(-np.log1p(-off).sum()) * (1 + (clients + 64) * UNIT)
