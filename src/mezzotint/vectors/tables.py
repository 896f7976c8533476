"""The interface of private vectors: encode to integers, add them up, decode the sum, account for
it.

Vectors through a table of `Mechanism`, coordinate by coordinate, whose losses under an L2 bound
grow with the distance of two vectors; and the base of schemes that add noise (clipping, rotation, a
grid, addition modulo a power of two).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import (
    check_count,
    check_options,
    check_positive,
    check_residues,
    check_vector,
    with_old_fields,
)
from mezzotint.core.errors import ParameterError
from mezzotint.core.kinds import checked
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import FloatArray, IntArray, Seed
from mezzotint.privacy.accounting import account
from mezzotint.privacy.claim import Claim, Release
from mezzotint.privacy.divergences import rdp_to_epsilon
from mezzotint.privacy.sums import Lattice, find_lattice
from mezzotint.privacy.sums.cost import PURE_L2, RENYI_L2, all_others_take_part, others_noise
from mezzotint.privacy.sums.geometry import pure_epsilon_l2, quadratic_renyi, squared_distance
from mezzotint.privacy.sums.noise import NoiseMixture
from mezzotint.privacy.tradeoffs import gaussian_epsilon
from mezzotint.vectors.rotation import Rotation, clip


class VectorScheme(ABC):
    """How clients turn vectors into integers that may be added. Integers are residues modulo
    `modulus`.

    Example:
        >>> table = mz.families.randomized_response(epsilon=1.0)
        >>> scheme = mz.vectors.TableScheme(mechanism=table, size=4, clients=50)
        >>> isinstance(scheme, mz.vectors.VectorScheme), scheme.length
        (True, 4)
    """

    size: int
    seed: int

    @property
    def dimension(self) -> int:
        """Coordinates of a client's vector."""
        return self.size

    @property
    def _rotation(self) -> Rotation:
        return Rotation(dimension=self.size, seed=self.seed)

    @property
    @abstractmethod
    def length(self) -> int:
        """Integers that one client sends."""

    @property
    @abstractmethod
    def modulus(self) -> int:
        """Integers are added modulo this."""

    @abstractmethod
    def encode(self, vector: npt.ArrayLike, rng: Seed = None) -> IntArray:
        """(d,) vector to (length,) residues; rng None draws from the keystream, a seed is not
        private."""

    @abstractmethod
    def decode_sum(self, total: npt.ArrayLike, clients: int) -> FloatArray:
        """(length,) sum of residues, modulo `modulus`, to the (d,) estimate of the sum of `clients`
        clipped vectors."""

    @abstractmethod
    def account(self, release: Release) -> Claim:
        """The cost of secure sums to a client that is in all of them; called by
        `mezzotint.privacy.account`."""

    def claim(
        self,
        *,
        clients: int,
        delta: float = 1e-6,
        **options: Any,
    ) -> Claim:
        """The claim of secure sums of `clients` vectors; `options` are further fields of `Release`.

        Raises:
            ParameterError: what `account` refuses; `trust` or `mechanism` among the options.
        """
        check_options(options, Release, trust="these are secure sums", mechanism="it is the scheme")
        return account(self, trust="secure_sum", clients=clients, delta=delta, **options)

    @property
    def bits(self) -> int:
        """Bits on the wire per integer."""
        return (self.modulus - 1).bit_length()


SUMMED = ("rounds", "sampling", "sampling_rate", "neighboring", "clients", "corrupted")
"""What the accounting of summed vectors takes from a release; dimensions and norms are the scheme's."""


def round_renyi(
    mechanism: Mechanism,
    noise: NoiseMixture,
    alpha: float,
    *,
    coordinates: int,
    clip_norm: float,
) -> float:
    """Renyi divergence of one round between any two vectors of L2 norm at most `clip_norm`, rounded
    up.

    Arguments:
        alpha: order > 1.
        coordinates: of the (rotated) vector.
        clip_norm: data units; coordinates are clipped to the table's range besides.

    Source: docs/proofs/vectors.md, "Tables under an L2 bound".
    """
    distance = squared_distance(mechanism, coordinates=coordinates, clip_norm=clip_norm)
    return quadratic_renyi(mechanism, noise, alpha) * distance


_ORDER_TRIALS = 10
"""Renyi orders tried at most."""
_LOSS_JUMP = 1.5
"""An order with this multiple of the best one's epsilon lies past the point where losses soar."""
_JUMP_WIDTH = 1.04
"""That point is located to within this factor."""
_COORDINATE_REPORTS = 2**12
"""Up to this many reports of one client, accounting by coordinates is quick and may be better."""

_GAUSSIAN_GAP = 0.1
"""Share by which accounting by coordinates may beat a Gaussian of the same variance."""


def _optimistic_epsilon(release: Release) -> float:
    """About the least epsilon of accounting by coordinates; it only decides whether that is tried.

    At best all others report with the largest variance, while every coordinate crosses the range;
    that sum is nearly Gaussian.
    """
    table = release.table
    if release.delta == 0:
        return release.pure
    upper_mean = float(table.mean(table.upper))
    lower_mean = float(table.mean(table.lower))
    distance = abs(upper_mean - lower_mean)
    variances = [table.variance(knot) for knot in table.knots.tolist()]
    largest_variance = float(max(variances))
    noise_variance = (release.others + 1) * largest_variance
    shift = distance * math.sqrt(release.releases / max(noise_variance, 1e-300))
    gaussian = gaussian_epsilon(shift, release.delta)
    return min(release.pure, (1 - _GAUSSIAN_GAP) * gaussian)


@with_old_fields(l2_norm="clip_norm")
@final
@checked
@dataclass(frozen=True, kw_only=True, eq=False)
class TableScheme(VectorScheme):
    """Every coordinate through one table of `Mechanism`, after clipping and rotation.

    Arguments:
        mechanism: levels on a lattice; its range clips the (rotated) coordinates.
        size: coordinates of a client's vector.
        clients: most clients per sum; the modulus is planned so that sums never wrap.
        clip_norm: clip vectors to this L2 norm, rotate them, and account under it; None clips per
            coordinate only.
        seed: public; determines the rotation's signs, independently of the data.

    Raises:
        ParameterError: levels on no lattice, a norm that is not positive.

    Guarantees: sums of lattice integers are decoded exactly up to `Lattice.decode_error`; estimates
        are unbiased for the clipped vectors if the table is. Impossible totals of this many clients
        are refused.

    Example:
        >>> table = mz.families.rqm(levels=16, extension=1.0, q=0.42)
        >>> scheme = mz.vectors.TableScheme(mechanism=table, size=4, clients=50)
        >>> total = sum(scheme.encode([0.1, 0.2, 0.3, 0.4]) for _ in range(50)) % scheme.modulus
        >>> scheme.decode_sum(total, clients=50).shape
        (4,)
    """

    mechanism: Mechanism
    size: int
    clients: int
    clip_norm: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _ = self.lattice
        _ = self._rotation
        check_count("clients", self.clients)
        if self.clip_norm is not None:
            check_positive("clip_norm", self.clip_norm)

    @cached_property
    def lattice(self) -> Lattice:
        """The integers that are added up."""
        return find_lattice(self.mechanism.levels)

    @property
    def length(self) -> int:
        return self.size

    @property
    def modulus(self) -> int:
        return self.lattice.modulus(self.clients)

    def encode(self, vector: npt.ArrayLike, rng: Seed = None) -> IntArray:
        """Clips, rotates, reports each coordinate; (length,) integers 0..span."""
        values = check_vector(vector, self.size)
        if self.clip_norm is not None:
            clipped = clip(values, norm="l2", bound=self.clip_norm)
            values = self._rotation.apply(clipped)
        reported = self.mechanism.privatize(values, rng)
        codes = np.asarray(reported)
        return self.lattice.integers[codes.astype(np.intp)]

    def decode_sum(self, total: npt.ArrayLike, clients: int) -> FloatArray:
        """Estimate of the sum of the clients' vectors."""
        count = check_count("clients", clients)
        if count > self.clients:
            remedy = f"the modulus was planned for at most {self.clients} clients"
            raise ParameterError("clients", clients, remedy)
        residues = check_residues(total, self.length, self.modulus)
        largest = int(residues.max())
        if largest > count * self.lattice.span:
            remedy = f"impossible for {count} clients; is every report counted, and of this scheme?"
            raise ParameterError("total", largest, remedy)
        multiples = residues.astype(np.float64) * self.lattice.step
        sums = multiples + count * self.lattice.offset
        if self.clip_norm is None:
            return sums
        return self._rotation.undo(sums)

    def account(self, release: Release) -> Claim:
        """The best of the coordinate-wise accounting of secure sums and (with `clip_norm`) that under
        the L2 bound."""
        release.require_only("secure_sum", *SUMMED)
        by_coordinates = self._coordinate_release(release)
        # The L2 bound counts the noise of all others.
        if self.clip_norm is None or not all_others_take_part(release):
            return account(by_coordinates)
        epsilons = self.under_l2(release)
        least_epsilon = min(epsilons.values())
        # Without the L2 bound's help many reports only cost more.
        if self._few_reports(release) and _optimistic_epsilon(by_coordinates) < least_epsilon:
            epsilons = dict(account(by_coordinates).alternatives) | epsilons
        return release.claim(epsilons, dimension=self.length, sha256=self.mechanism.sha256)

    def _coordinate_release(self, release: Release) -> Release:
        """The same, coordinate by coordinate."""
        return replace(release, mechanism=self.mechanism, dimension=self.length)

    def _few_reports(self, release: Release) -> bool:
        return self.length * release.rounds <= _COORDINATE_REPORTS

    def by_coordinates(self, release: Release, epsilon: float) -> bool:
        """Whether accounting coordinate by coordinate comes to `epsilon` or less, and is affordable."""
        by_coordinates = self._coordinate_release(release)
        if not self._few_reports(release) or _optimistic_epsilon(by_coordinates) > epsilon:
            return False
        return account(by_coordinates).epsilon <= epsilon

    def under_l2(self, release: Release, *, alpha: float | None = None) -> dict[str, float]:
        """Epsilons of the release by the L2 bound alone, by their names; needs `clip_norm`.

        Arguments:
            alpha: the only Renyi order used, for a quick valid bound; None searches for the best.
        """
        remedy = "losses of vectors need their L2 norm bounded"
        norm = check_positive("clip_norm", self.clip_norm, remedy)
        pure = pure_epsilon_l2(self.mechanism, coordinates=self.length, clip_norm=norm)
        epsilons = {PURE_L2: release.over_rounds(pure)}
        if release.delta == 0:
            return epsilons
        amounts = (release.others, release.rounds, release.delta)
        if alpha is None:
            epsilons[RENYI_L2], _ = self.best_order(*amounts)
        else:
            epsilons[RENYI_L2] = self._at_order(*amounts, alpha)
        return epsilons

    def renyi(self, *, others: int, alpha: float) -> float:
        """Renyi divergence of one round of a client among `others` honest ones; needs `clip_norm`;
        rounded up."""
        if self.clip_norm is None:
            remedy = "Renyi losses of vectors need their L2 norm bounded"
            raise ParameterError("clip_norm", None, remedy)
        if others not in self._round_losses:
            noise = others_noise(self.mechanism, others)
            self._round_losses[others] = (noise, {})
        noise, divergences = self._round_losses[others]
        if alpha not in divergences:
            divergences[alpha] = round_renyi(
                self.mechanism,
                noise,
                alpha,
                coordinates=self.length,
                clip_norm=self.clip_norm,
            )
        return divergences[alpha]

    @cached_property
    def _round_losses(self) -> dict[int, tuple[NoiseMixture, dict[float, float]]]:
        """By the number of others: their noise, and Renyi order -> divergence of one round.

        Kept for searches.
        """
        return {}

    def best_order(
        self,
        others: int,
        rounds: int,
        delta: float,
    ) -> tuple[float, float]:
        """(epsilon, Renyi order): the least epsilon at any order tried, among `others` honest clients."""
        # Losses are nearly linear in the order, which points to the best one; its neighbours are
        # tried too.
        slope = self.renyi(others=others, alpha=2.0) * rounds / 2
        if math.isinf(slope):
            return math.inf, 2.0
        predicted = math.sqrt(math.log(1 / delta) / max(slope, 1e-12))

        def order(factor: float) -> float:
            return 1 + predicted * factor

        @cache
        def epsilon(factor: float) -> float:
            return self._at_order(others, rounds, delta, order(factor))

        factors = [0.7, 0.9, 1.1]
        # Where losses bend, the best order is far away: continue while it gets better.
        while len(factors) < _ORDER_TRIALS:
            best = min(factors, key=epsilon)
            if best == min(factors):
                factors.append(best * 0.7)
            elif best == max(factors):
                factors.append(best * 1.4)
            else:
                break
        # Past some order rare events take over and losses soar: the best one may stand right before
        # it.
        while True:
            best = min(factors, key=epsilon)
            larger = [factor for factor in factors if factor > best]
            next_larger = min(larger, default=best)
            is_close = next_larger <= _JUMP_WIDTH * best
            if is_close or epsilon(next_larger) <= _LOSS_JUMP * epsilon(best):
                break
            factors.append(math.sqrt(best * next_larger))
        return min((epsilon(factor), order(factor)) for factor in factors)

    def _at_order(
        self,
        others: int,
        rounds: int,
        delta: float,
        alpha: float,
    ) -> float:
        divergence = self.renyi(others=others, alpha=alpha)
        return rdp_to_epsilon(rounds * divergence, alpha, delta)
