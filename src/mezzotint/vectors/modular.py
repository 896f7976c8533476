"""What schemes that add noise to vectors share: clipping, rotation, a grid, addition modulo a power of two."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy.typing as npt

from mezzotint.core.arguments import check_count, check_residues, check_scale, check_vector
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import FloatArray
from mezzotint.privacy.claim import Claim, Release
from mezzotint.vectors.rotation import Rotation, clip
from mezzotint.vectors.tables import VectorScheme

MAX_BITS = 48
"""Most bits of a modulus: sums of residues stay exact integers of floats."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ModularScheme(VectorScheme):
    """L2 clipping, rotation, noise on a grid, addition modulo M; a subclass says what noise, and what it costs.

    Arguments:
        size: coordinates of a client's vector.
        l2_norm: clipping norm, data units.
        granularity: data units per integer.
        modulus_bits: log2 of M.
        seed: public, of the rotation's signs; chosen independently of the data.
    """

    size: int
    l2_norm: float
    granularity: float
    modulus_bits: int | None
    seed: int = 0

    def __post_init__(self) -> None:
        check_scale("l2_norm", self.l2_norm)
        check_scale("granularity", self.granularity)
        _ = self._rotation
        if self.modulus_bits is not None and not 2 <= check_count("modulus_bits", self.modulus_bits) <= MAX_BITS:
            raise ParameterError("modulus_bits", self.modulus_bits, f"between 2 and {MAX_BITS}")

    @property
    def dimension(self) -> int:
        return self.size

    @property
    def length(self) -> int:
        return self.size

    @property
    def modulus(self) -> int:
        return 1 << int(self.modulus_bits or 0)

    @property
    def _rotation(self) -> Rotation:
        return Rotation(dimension=self.size, seed=self.seed)

    @property
    @abstractmethod
    def variance(self) -> float:
        """Squared error of one client's report of a coordinate, at most: noise and rounding, data units squared."""

    @abstractmethod
    def wrap_probability(self, clients: int) -> float:
        """Bound on the probability that some coordinate of a sum of `clients` vectors wraps around M.

        Guarantees: over the rotation's signs and the noise, for any vectors chosen independently of the signs.
        """

    def rotated(self, vector: npt.ArrayLike) -> FloatArray:
        """(d,) vector, clipped to the norm and rotated, data units."""
        return self._rotation.apply(clip(check_vector(vector, self.size), norm="l2", bound=self.l2_norm))

    def _sum_of(self, total: npt.ArrayLike, mean: float = 0.0) -> FloatArray:
        """(d,) the sum that residues stand for when read as the integers nearest 0, less the noise's `mean` in it."""
        half = self.modulus // 2
        centred = (check_residues(total, self.length, self.modulus) + half) % self.modulus - half
        return self._rotation.undo((centred - mean) * self.granularity)

    def account(self, release: Release) -> Claim:
        """What the honest clients' noise together leaves to tell.

        Raises:
            ParameterError: clients who take part in secret, so that nobody knows how much noise is there.
        """
        if release.participation == "poisson":
            remedy = "noise of who stayed away is not in the sum: name the clients of one sum, with sampling='public'"
            raise ParameterError("sampling", "poisson", remedy)
        return release.claim(self._epsilons(release), dimension=self.length, sha256="")

    @abstractmethod
    def _epsilons(self, release: Release) -> dict[str, float]:
        """Valid bounds by name."""
