"""Gaussian noise rounded together with the value that it hides: integers from a keystream, and a
scheme for vectors.

Values need not be rounded to a grid first, and claims are Gaussian. A float decides nearly every
draw; the others get as many digits as they need: the integers are exact.
"""

from __future__ import annotations

import functools
import hmac
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, final

import flint
import numpy as np
import numpy.typing as npt
import scipy

from mezzotint.core.arguments import (
    check_count,
    check_finite,
    check_positive,
    check_residues,
    check_scale,
    check_vector,
    with_old_fields,
    with_old_names,
)
from mezzotint.core.errors import ParameterError
from mezzotint.core.kinds import checked
from mezzotint.core.records import counted
from mezzotint.core.sampler import (
    PART,
    WORDS_PER_COUNT,
    ElementWords,
    Keystream,
    in_threads,
    key_from,
    usable_cores,
)
from mezzotint.core.types import UNIT, FloatArray, IntArray, Seed
from mezzotint.privacy.claim import Claim, Release
from mezzotint.privacy.tradeoffs import gaussian_epsilon
from mezzotint.vectors.octaves import CELLS, LOWEST_OCTAVE, TERMS, UNDECIDED
from mezzotint.vectors.rotation import Rotation, clip
from mezzotint.vectors.tables import SUMMED, VectorScheme

WORD = 64
_TAIL_BITS = WORD - 1
"""Bits of a word below its sign."""

_GUARD_BITS = 64
"""Bits by which enclosures are finer than the interval that words leave."""

_NEWTON_BITS = 128
_NEWTON_STEPS = 3
"""Precision and steps of the quantiles: each step doubles the 50 bits that a float begins with."""

QUANTILE_ERROR = 1e-12
"""Bound on |z - z(u)|, z from the table and u anywhere in the interval that a word leaves.

Source: docs/proofs/training.md."""

LARGEST = 2.0**36
"""Largest standard deviation: at a larger one, more than a seventh of all draws would be
undecided."""

_NO_CENTRES = np.zeros(1)


@final
@checked
@dataclass(frozen=True, kw_only=True)
class RoundedGaussian:
    """floor(c + X + 1/2) for X normal with mean 0 and any real centre c, 0 if none is given.

    It is the Gaussian mechanism with rounded output, and costs no more. For an integer n,
    n + floor(X + 1/2) = floor(n + X + 1/2): the noise may be added to an integer afterwards.

    Arguments:
        sigma: standard deviation of X, in (0, 2^36].

    Raises:
        ParameterError: sigma outside its range.

    Guarantees: the law is exact if the words are uniform, whatever floats round.
    Source: inversion; docs/proofs/training.md, "Noise".
    """

    sigma: float

    def __post_init__(self) -> None:
        if not 0 < self.sigma <= LARGEST:
            raise ParameterError("sigma", self.sigma, f"a standard deviation in (0, {LARGEST:g}]")

    @property
    def margin(self) -> float:
        """Distance from a rounding boundary below which a word does not decide its draw, around
        0."""
        # The product with sigma and the sums with centre and 1/2 round by less than
        # 2^-52 (9 sigma + |c| + 1).
        return self.sigma * (QUANTILE_ERROR + 2e-15) + 1e-15

    def draw(
        self,
        key: bytes,
        size: int,
        centres: FloatArray | None = None,
    ) -> IntArray:
        """(size,) independent draws.

        Coordinate i takes word i of the key's stream, and more of its own if needed.

        Arguments:
            centres: (size,) numbers of at most 2^36, contiguous; None: 0.

        Raises:
            ParameterError: centres beyond 2^36, or not finite.
        """
        largest = 0.0
        if centres is None or size == 0:
            centres = _NO_CENTRES
        else:
            lowest, highest = float(centres.min()), float(centres.max())
            largest = max(highest, -lowest)
        if not largest <= LARGEST:
            raise ParameterError("centres", largest, f"finite numbers of at most {LARGEST:g}")
        noise = np.empty(size, dtype=np.int64)
        margin = self.margin + largest * 2.0**-51

        def fill(first: int) -> None:
            end = first + PART
            part_centres = centres
            if centres.size > 1:
                part_centres = centres[first:end]
            self._fill(key, first, part_centres, margin, noise[first:end])

        if size <= PART:
            fill(0)
            return noise
        starts = range(0, size, PART)
        tasks = [functools.partial(fill, first) for first in starts]
        in_threads(tasks, threads=usable_cores())
        return noise

    def _fill(
        self,
        key: bytes,
        first: int,
        centres: FloatArray,
        margin: float,
        draws: IntArray,
    ) -> None:
        """Draw coordinates `first`, `first` + 1, ...; `centres` has one number for each, or for
        all."""
        from mezzotint.vectors.compiled import draw  # heavy: numba

        words = np.empty(draws.size, dtype=np.uint64)
        ElementWords(key, first).fill(words)
        undecided_count = draw(words, centres, quantiles(), self.sigma, margin, draws)
        if undecided_count == 0:
            return
        all_centres = np.broadcast_to(centres, draws.shape)
        for index in np.flatnonzero(draws == UNDECIDED).tolist():
            further = further_words(key, first + index)
            word, centre = int(words[index]), float(all_centres[index])
            draws[index] = self.closer(word, further, centre)

    def closer(
        self,
        word: int,
        further: Iterator[int],
        centre: float = 0.0,
    ) -> int:
        """The integer drawn by a word, and as many further words as it takes."""
        sign_bit = word >> _TAIL_BITS
        sign = 1 - 2 * sign_bit
        tail = word & (2**_TAIL_BITS - 1)
        digit_count = WORD
        # Boundaries have no mass, so that c - X is rounded like -(-c + X).
        while True:
            magnitude = self._settled(tail, digit_count, sign * centre)
            if magnitude is not None:
                return sign * magnitude
            tail = tail << WORD | next(further)
            digit_count += WORD

    def _settled(self, tail: int, digits: int, centre: float) -> int | None:
        """The integer to which centre + sigma z(u) rounds for all u in [tail, tail + 1) / 2^digits.

        None if there are several.
        """
        if tail == 0:
            return None
        probability = float(Fraction(tail, 2**digits))
        quantile = -float(scipy.special.ndtri(probability))
        nearest = math.floor(centre + 0.5 + self.sigma * quantile)
        with flint.ctx.workprec(digits + _GUARD_BITS):
            scale = flint.arb(2) ** digits
            for candidate in (nearest, nearest - 1, nearest + 1):
                upper_distance = flint.arb(candidate + 0.5) - centre
                lower_distance = flint.arb(candidate - 0.5) - centre
                above_upper = self._beyond(upper_distance) * scale
                above_lower = self._beyond(lower_distance) * scale
                if above_upper <= tail and tail + 1 <= above_lower:
                    return candidate
        return None

    def _beyond(self, distance: Any) -> Any:
        """Enclosure of P(X > distance)."""
        deviations = flint.arb(distance) / flint.arb(self.sigma)
        return _normal_tail(deviations)


def further_words(key: bytes, coordinate: int) -> Iterator[int]:
    """Words beyond the first for one coordinate."""
    subkey = hmac.digest(key, b"mezzotint closer %d" % coordinate, "sha256")
    for start in itertools.count(step=WORDS_PER_COUNT):
        words = np.empty(WORDS_PER_COUNT, dtype=np.uint64)
        Keystream(subkey, start).fill(words)
        yield from words.tolist()


@functools.cache
def quantiles() -> npt.NDArray[np.float64]:
    """(cells + 1, 8) Taylor coefficients of z(u) around the middle of each cell.

    They are in units of the cell's octave. Cell j of octave e holds u = 2^(e - 64) m for m in
    1 + [j, j + 1) / 16; the row of u = 1/2, where z = 0, is last.
    """
    octaves = range(LOWEST_OCTAVE, _TAIL_BITS)
    table = np.zeros((len(octaves) * CELLS + 1, TERMS))
    cells = itertools.product(octaves, range(CELLS))
    with flint.ctx.workprec(_NEWTON_BITS):
        for row, (octave, cell) in zip(table, cells, strict=False):
            exponent = octave - WORD
            middle = Fraction(2 * CELLS + 2 * cell + 1, 2 * CELLS)
            quantile = _tail_quantile(middle * Fraction(2) ** exponent)
            unit = flint.arb(2) ** exponent
            for power, coefficient in enumerate(taylor(quantile, TERMS)):
                row[power] = float(coefficient * unit**power)
    return table


def _normal_tail(deviations: Any) -> Any:
    """Enclosure of P(Z > deviations), Z standard normal."""
    scaled = deviations / flint.arb(2).sqrt()
    return scaled.erfc() / 2


def _tail_quantile(probability: Fraction) -> Any:
    """z(u), by Newton's method from the float."""
    normal_quantile = scipy.special.ndtri(float(probability))
    float_quantile = -float(normal_quantile)
    quantile = flint.arb(float_quantile)
    target = flint.arb(probability.numerator) / probability.denominator
    for _ in range(_NEWTON_STEPS):
        excess = _normal_tail(quantile) - target
        quantile += excess / _density(quantile)
        quantile = quantile.mid()
    return quantile


def _density(quantile: Any) -> Any:
    numerator = (-quantile * quantile / 2).exp()
    return numerator / (2 * flint.arb.pi()).sqrt()


def taylor(quantile: Any, terms: int) -> list[Any]:
    """z and the coefficients z^(n) / n! of u -> z(u) where it takes the value z; z may be a ball.

    Phi^-1 has derivatives P_n(x) / phi(x)^n with P_1 = 1, P_(n+1) = P_n' + n x P_n, and
    z(u) = -Phi^-1(u), x = -z.
    """
    coefficients = [quantile]
    identity = flint.fmpz_poly([0, 1])
    polynomial = flint.fmpz_poly([1])
    point = -quantile
    for order in range(1, terms):
        numerator = flint.arb(0)
        for power, coefficient in enumerate(polynomial):
            numerator += coefficient * point**power
        derivative = -numerator / _density(quantile) ** order
        coefficients.append(derivative / math.factorial(order))
        polynomial = polynomial.derivative() + order * identity * polynomial
    return coefficients


MAX_BITS = 48
"""Most bits of a modulus: sums of residues stay exact in floats."""

GAUSSIAN = "exact curve of the Gaussian before it is rounded"

MIN_DEVIATION = 1.0
"""Least deviation, steps: below, rounded reports are biased (by 1e-9 steps here) and their sums no
longer Gaussian."""
_PLANNED_DEVIATION = 2.0
"""Least deviation of planned grids, steps: rounding adds 2 % to the variance, and e^-39 to a
loss."""
_WRAP_DEVIATIONS = 6.0
"""A sum wraps around beyond this many of its deviations, as planned."""
_LEAST_WRAP_DEVIATIONS = 4.0
"""Sums that wrap around within fewer are refused: a coordinate of them could do so with a
probability above 2 exp(-8), which no stated error counts. Spare clients fit in between."""

ROUNDING_VARIANCE = 1 / 12
"""Of a number rounded to the nearest integer, if it spreads over many."""

_CENTRE_ROUNDING = 2.0**-40
"""Relative bound on the roundings of centres and of the distance between two of them."""


@with_old_fields(l2_norm="clip_norm")
@final
@checked
@dataclass(frozen=True, kw_only=True, eq=False)
class GaussianScheme(VectorScheme):
    """L2 clipping, rotation, Gaussian noise in floats' full precision, rounding to a grid, addition
    modulo M.

    Arguments:
        deviation: standard deviation of the noise that EACH client adds before it rounds, steps of
            `granularity`.
        size: coordinates of a client's vector.
        clip_norm: clipping norm, data units.
        granularity: data units per integer.
        modulus_bits: log2 of M; `planned` chooses both.
        seed: public, of the rotation's signs; chosen independently of the data.

    Raises:
        ParameterError: a deviation below one step, norms that are not positive, a modulus above
        2^48.

    Guarantees:
        Sums cost as much as a Gaussian of the honest clients' summed variance on vectors of norm
        `clip_norm`, by its exact curve, plus `merging_loss`, negligible from two steps on (1e-9 in
        all). Rounding is free. The noise is exact, whatever floats round. Wrapping around M costs
        accuracy, never privacy. Estimates of sums are unbiased up to 1e-9 steps a client, and
        wraps; a coordinate's mean squared error is deviation^2 + 1/12 squared steps a client.
    Source: docs/proofs/vectors.md, "Rounded Gaussians".

    Example:
        >>> scheme = mz.vectors.GaussianScheme.planned(
        ...     noise_multiplier=2.0, size=4, clip_norm=1.0, clients=50
        ... )
        >>> vectors = [[0.1, 0.2, 0.3, 0.4]] * 50
        >>> total = sum(scheme.encode(vector) for vector in vectors) % scheme.modulus
        >>> scheme.decode_sum(total, clients=50).shape
        (4,)
    """

    size: int
    clip_norm: float
    granularity: float
    modulus_bits: int
    deviation: float
    seed: int = 0

    def __post_init__(self) -> None:
        check_scale("clip_norm", self.clip_norm)
        check_scale("granularity", self.granularity)
        _ = self._rotation
        check_count("modulus_bits", self.modulus_bits, least=2, most=MAX_BITS)
        if not check_finite("deviation", self.deviation) >= MIN_DEVIATION:
            remedy = f"at least {MIN_DEVIATION:g} step; take a finer granularity"
            raise ParameterError("deviation", self.deviation, remedy)
        _ = self._noise

    @classmethod
    @with_old_names(l2_norm="clip_norm")
    def planned(
        cls,
        *,
        noise_multiplier: float,
        size: int,
        clip_norm: float,
        clients: int,
        seed: int = 0,
    ) -> GaussianScheme:
        """The fewest bits for noise of at least two steps a client, and the finest grid that fits.

        Arguments:
            noise_multiplier: standard deviation of the total noise of `clients`, over `clip_norm`; >
                0.
            clients: summands; a coordinate of their sum beyond six deviations from 0 wraps.
        """
        check_positive("noise_multiplier", noise_multiplier)
        check_positive("clip_norm", clip_norm)
        count = check_count("clients", clients)
        rotation = Rotation(dimension=size, seed=seed)
        # Variance of a coordinate, in variances of one client's noise, if all vectors are equal.
        signal = count / noise_multiplier
        variance_ratio = count * (1 + signal * signal / rotation.block)
        rounding = count * ROUNDING_VARIANCE
        planned_variance = _PLANNED_DEVIATION**2 * variance_ratio + rounding
        least_modulus = 2 * _WRAP_DEVIATIONS * math.sqrt(planned_variance)
        if not least_modulus <= 2.0**MAX_BITS:
            remedy = f"sums need more than {MAX_BITS} bits; more noise"
            raise ParameterError("noise_multiplier", noise_multiplier, remedy)
        modulus_bits = max(2, math.ceil(math.log2(least_modulus)))
        sum_deviation = 2.0 ** (modulus_bits - 1) / _WRAP_DEVIATIONS
        deviation = math.sqrt((sum_deviation**2 - rounding) / variance_ratio)
        client_noise = noise_multiplier * clip_norm / math.sqrt(count)
        return cls(
            deviation=deviation,
            size=size,
            clip_norm=clip_norm,
            granularity=client_noise / deviation,
            modulus_bits=modulus_bits,
            seed=seed,
        )

    @property
    def length(self) -> int:
        return self.size

    @property
    def modulus(self) -> int:
        return 1 << int(self.modulus_bits)

    @property
    def _noise(self) -> RoundedGaussian:
        return RoundedGaussian(sigma=self.deviation)

    @property
    def variance(self) -> float:
        """Upper bound on a report's squared error in one coordinate, data units squared.

        Of noise and rounding.
        """
        return (self.deviation**2 + ROUNDING_VARIANCE) * self.granularity**2

    def _wrap_deviations(self, clients: int) -> float:
        """Half of M, in deviations of a coordinate of a sum over signs and noise, if all vectors are
        equal."""
        noise_variance = clients * (self.deviation**2 + ROUNDING_VARIANCE)
        sum_norm = clients * self.clip_norm / self.granularity
        signal_variance = sum_norm**2 / self._rotation.block
        return self.modulus / 2 / math.sqrt(noise_variance + signal_variance)

    def wrap_probability(self, clients: int) -> float:
        """Bound on the probability that some coordinate of a sum of vectors wraps around M.

        Guarantees: over the rotation's signs and the noise, for any vectors of `clients` chosen
            independently of the signs.
        """
        count = check_count("clients", clients)
        log_factor = count * rounding_factor(self.deviation)
        exponent = log_factor - self._wrap_deviations(count) ** 2 / 2
        return min(1.0, 2 * self.size * math.exp(exponent))

    def check_room(self, clients: int) -> int:
        """The number of vectors in a sum, if such sums hardly ever wrap around.

        Raises:
            ParameterError: the modulus is too small for so many: their sum would be read as another
                one, and no stated error would say so.
        """
        count = check_count("clients", clients)
        if self._wrap_deviations(count) < _LEAST_WRAP_DEVIATIONS:
            remedy = (
                f"sums of so many vectors of {counted(self.size, 'coordinate')} wrap around "
                f"2**{self.modulus_bits}; plan the grid for them, or add up fewer"
            )
            raise ParameterError("clients", clients, remedy)
        return count

    def centres(self, vector: npt.ArrayLike) -> FloatArray:
        """(d,) clipped and rotated vector, steps: of norm at most (1 + 2^-45) clip_norm /
        granularity."""
        # Each level of a transform adds two floats, with errors of 2^-53 of the vector's norm, and
        # there are at most 2 * 27 levels; scaling, and the division here, round four times more.
        checked_vector = check_vector(vector, self.size)
        clipped = clip(checked_vector, norm="l2", bound=self.clip_norm)
        return self._rotation.apply(clipped) / self.granularity

    def encode(self, vector: npt.ArrayLike, rng: Seed = None) -> IntArray:
        """(d,) to (d,) residues; rng None draws the noise from the keystream, a seed is not
        private."""
        centres = self.centres(vector)
        key = key_from(rng)
        integers = self._noise.draw(key, self.size, centres)
        return integers % self.modulus

    def decode_sum(self, total: npt.ArrayLike, clients: int) -> FloatArray:
        """Residues are read as the integers nearest 0; more clients than `check_room` allows are
        refused."""
        self.check_room(clients)
        half_modulus = self.modulus // 2
        residues = check_residues(total, self.length, self.modulus)
        integers = (residues + half_modulus) % self.modulus - half_modulus
        return self._rotation.undo(integers * self.granularity)

    def account(self, release: Release) -> Claim:
        """The claim under the honest clients' total noise.

        Raises:
            ParameterError: random participation, which leaves the amount of noise unknown; what is
                not about sums, or what the scheme says by itself.
        """
        release.require_only("secure_sum", *SUMMED)
        if release.participation == "poisson":
            remedy = (
                "absent clients add no noise: name the number of clients in one sum, "
                "with sampling='public'"
            )
            raise ParameterError("sampling", "poisson", remedy)
        epsilons = self._epsilons(release)
        return release.claim(epsilons, dimension=self.length, sha256="")

    def _epsilons(self, release: Release) -> dict[str, float]:
        """The Gaussian of the honest clients' variance over all vectors, by its exact curve."""
        # Neighbours' centres are two norms apart, and the honest clients' variances add up.
        distance = 2 * self.clip_norm / self.granularity
        shift = distance * math.sqrt(release.rounds / release.honest) / self.deviation
        merging = merging_loss(self.deviation, release.honest)
        log_ratio = self.size * release.rounds * merging
        delta = release.delta * math.exp(-log_ratio) * (1 - 4 * UNIT)
        epsilon = gaussian_epsilon(shift * (1 + _CENTRE_ROUNDING), delta)
        largest = (epsilon + 2 * log_ratio) * (1 + 4 * UNIT)
        return {GAUSSIAN: largest}


def rounding_factor(deviation: float) -> float:
    """Bound on log F: E exp(t (Y - c)) <= F exp(t^2 (deviation^2 + 1/12) / 2) for all t.

    Of a Gaussian Y around c, rounded, one coordinate, with a deviation of at least 1 step.
    Source: docs/proofs/vectors.md, "Rounded Gaussians", Wraps.

    >>> rounding_factor(1.0) < 1e-8
    True
    """
    assert deviation >= MIN_DEVIATION
    squared_angle = (math.pi * deviation) ** 2
    return 3 * math.exp(-2 * squared_angle)


def merging_loss(deviation: float, clients: int) -> float:
    """Largest |log| of the ratio of two laws: a sum of rounded Gaussians, and their sum rounded.

    Of `clients` Gaussians and one coordinate, rounded up; inf where grids are so coarse that
    nothing is proved. The deviation is in steps.
    Source: docs/proofs/vectors.md, "Rounded Gaussians".

    >>> merging_loss(2.0, 1000) < 2e-17
    True
    """
    summed_counts = np.arange(1.0, clients)
    exponents = -2 * (math.pi * deviation) ** 2 * summed_counts / (summed_counts + 1)
    harmonics = np.exp(exponents * (1 - 16 * UNIT))
    # 2 (x + x^4 + x^9 + ...) <= 2 x / (1 - x)
    ripples = 2 * harmonics / (1 - harmonics)
    if ripples.size and float(ripples.max()) >= 1:
        return math.inf
    log_ratio = float(-np.log1p(-ripples).sum())
    return log_ratio * (1 + (clients + 64) * UNIT)
