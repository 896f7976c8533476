"""Vectors before they are reported: clipping, a randomized Hadamard rotation, a spread over several
sums.

Clipping bounds the influence of one client; the rotation spreads any vector evenly over its
coordinates, and its transpose undoes it. A banded Toeplitz matrix spreads a vector over consecutive
sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, final, get_args

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_choice, check_count, check_positive
from mezzotint.core.errors import ParameterError, as_reals
from mezzotint.core.kinds import checked
from mezzotint.core.types import AnyArray, FloatArray, Words

Norm = Literal["linf", "l2", "l1"]


def clip(vector: npt.ArrayLike, *, norm: Norm, bound: float) -> FloatArray:
    """The vector moved into the ball of radius `bound`: the projection, for each of the three
    norms.

    Arguments:
        vector: (..., d) finite numbers; every vector along the last axis is clipped by itself.
        norm: "linf" (each coordinate), "l2" (scaled down) or "l1" (soft threshold).
        bound: radius in data units, positive and finite.

    Returns: (d,) the nearest vector of the ball.

    Raises:
        ParameterError: NaN or infinite entries (named by index), a bound that is not a positive
        number.

    Guarantees:
        The result's norm is at most `bound`, in exact arithmetic on the floats returned.
        Clipping is a contraction: two clipped vectors are no farther apart in L2 than before.
    Edge cases: empty vectors and zero vectors are returned unchanged.

    Example:
        >>> mz.vectors.clip([3.0, 4.0], norm="l2", bound=1.0).round(6).tolist()
        [0.6, 0.8]
    """
    values = as_reals("vector", vector, "need real numbers, all vectors of one length")
    entries = values.ravel()
    finite = np.isfinite(entries)
    if not finite.all():
        position = int(np.argmin(finite))
        remedy = f"entry {position} is not finite; drop it first"
        raise ParameterError("vector", float(entries[position]), remedy)
    check_choice("norm", norm, get_args(Norm))
    check_positive("bound", bound)
    if norm == "linf" or values.size == 0:
        return np.clip(values, -bound, bound)
    project = _project_l1
    if norm == "l2":
        project = _project_l2
    vectors = np.atleast_1d(values)
    length = vectors.shape[-1]
    rows = vectors.reshape(-1, length)
    float_bound = float(bound)
    clipped = [_clipped(row, float_bound, project) for row in rows]
    return np.stack(clipped).reshape(values.shape)


@dataclass(frozen=True, kw_only=True)
class _Projection:
    """A vector in the direction of the projection, to be scaled to a norm."""

    vector: FloatArray
    order: Literal[1, 2]
    norm: float


_Project: TypeAlias = Callable[[FloatArray, float], _Projection | None]
"""From a row and a bound to the projection of the row; None if it lies inside."""


def _clipped(row: FloatArray, bound: float, project: _Project) -> FloatArray:
    """The nearest row whose norm is at most `bound`, never rounded outwards, however large or small
    both are.
    """
    largest = float(np.abs(row).max())
    if largest == 0 or largest * row.size <= bound:
        return row
    # Scaled by powers of two, so that neither squares nor sums leave the floats: the row to a
    # largest entry of about 1, and what is left of it to a norm of about 1.
    _, row_exponent = math.frexp(largest)
    scaled_row = np.ldexp(row, -row_exponent)
    scaled_bound = math.ldexp(bound, -row_exponent)
    projection = project(scaled_row, scaled_bound)
    if projection is None:
        return row
    mantissa, exponent = math.frexp(bound)
    inside = projection.vector
    if projection.norm > 0:
        scaled = inside * (mantissa / projection.norm)
        inside = _shrunk(scaled, projection.order, mantissa)
    clipped = np.ldexp(inside, exponent)
    if exponent >= 0:
        return clipped
    # Scaling down is exact but among subnormal numbers; there it must not round away from zero.
    scaled_back = np.ldexp(clipped, -exponent)
    has_grown = np.abs(scaled_back) > np.abs(inside)
    one_less = np.nextafter(clipped, 0.0)
    return np.where(has_grown, one_less, clipped)


def _norm(row: FloatArray, order: Literal[1, 2]) -> float:
    # fsum is exact but for its last rounding; squares and the root add three more.
    if order == 2:
        squares = row * row
        return math.sqrt(math.fsum(squares.tolist()))
    sizes = np.abs(row)
    return math.fsum(sizes.tolist())


def _shrunk(row: FloatArray, order: Literal[1, 2], bound: float) -> FloatArray:
    norm = _norm(row, order)
    while norm * (1 + _NORM_ROUNDING) > bound:
        factor = bound / norm * (1 - 2 * _NORM_ROUNDING)
        row = row * factor
        norm = _norm(row, order)
    return row


_NORM_ROUNDING = 2.0**-50
"""Four ulp, relative: they cover the roundings of a norm."""


def _project_l2(row: FloatArray, bound: float) -> _Projection | None:
    norm = _norm(row, 2)
    if norm <= bound * (1 - 2 * _NORM_ROUNDING):
        return None
    return _Projection(vector=row, order=2, norm=norm)


def _project_l1(row: FloatArray, bound: float) -> _Projection | None:
    """Projection onto the L1 ball: every entry loses as much, and no more than it has.

    Source: Duchi et al. 2008.
    """
    sizes = np.abs(row)
    inner_bound = bound * (1 - 2 * _NORM_ROUNDING)
    # A plain sum, right to 2**-26, spares the exact one for vectors that are far outside.
    if sizes.sum() <= 1.001 * bound and _norm(row, 1) <= inner_bound:
        return None
    # The largest entry after the projection is found from what others lack of the largest, so
    # that nothing cancels where little remains.
    deficits = sizes.max() - sizes
    ordered = np.sort(deficits)
    smallest = np.finfo(np.float64).tiny
    radius = max(bound, smallest)
    # The largest entry after the projection, if so many entries stay positive.
    counts = np.arange(1, row.size + 1)
    largest_by_count = (np.cumsum(ordered) + radius) / counts
    positive = np.flatnonzero(ordered < largest_by_count)
    largest = largest_by_count[positive[-1]]
    projected_sizes = np.maximum(largest - deficits, 0.0)
    vector = np.sign(row) * projected_sizes
    return _Projection(vector=vector, order=1, norm=_norm(vector, 1))


MAX_DIMENSION = 2**27
"""Largest dimension: one vector of it takes a GiB."""

ROTATION = "overlapping transforms"
"""Names the rotation in descriptions: one kind of rotation does not undo another."""


def hadamard(values: FloatArray) -> FloatArray:
    """Orthonormal Walsh-Hadamard transform along the last axis, whose length is a power of two; its
    own inverse."""
    from mezzotint.vectors import compiled as kernels

    length = values.shape[-1]
    transformed = np.array(values, dtype=np.float64, order="C")
    rows = transformed.reshape(-1, length)
    kernels.transform(rows, 1.0)
    return transformed / math.sqrt(length)


def word_count(bits: int) -> int:
    """64-bit words that hold so many bits."""
    return math.ceil(bits / 64)


def signs_of(words: Words, count: int) -> FloatArray:
    """(count,) numbers +-1 of 64-bit words: bit j, low bits first, is 1 for +1."""
    little_endian = words.astype("<u8", copy=False)
    octets = little_endian.view(np.uint8)
    sign_bits = np.unpackbits(octets, count=count, bitorder="little")
    return sign_bits.astype(np.float64) * 2.0 - 1.0


@checked
@final
@dataclass(frozen=True, kw_only=True)
class Rotation:
    """Random signs and a Hadamard transform of the first p coordinates, then of the last p; p is
    the block.

    Arguments:
        dimension: d >= 1.
        seed: of the signs; public, chosen by the server independently of the data (privacy does not
            rest on it).

    Guarantees: L2 norms and inner products are kept up to rounding; `undo(apply(x)) == x` up to
        1e-12 relative. Over the signs a rotated coordinate of x is subgaussian with |x| /
        sqrt(block) (docs/proofs/vectors.md).
    Source: Ailon and Chazelle 2006; Suresh et al. 2017; overlapping instead of padded.

    Example:
        >>> rotation = mz.vectors.Rotation(dimension=5, seed=1)
        >>> turned = rotation.apply([1.0, 0.0, 0.0, 0.0, 0.0])
        >>> bool(np.allclose(rotation.undo(turned), [1, 0, 0, 0, 0]))
        True
    """

    dimension: int
    seed: int

    def __post_init__(self) -> None:
        check_count("dimension", self.dimension)
        if self.dimension > MAX_DIMENSION:
            remedy = f"between 1 and {MAX_DIMENSION}; split longer vectors"
            raise ParameterError("dimension", self.dimension, remedy)
        check_count("seed", self.seed, least=0, most=2**64)

    @property
    def block(self) -> int:
        """The largest power of two up to d: the number of coordinates that one transform mixes."""
        doublings = int(self.dimension).bit_length() - 1
        return 2**doublings

    def _transforms(self) -> list[tuple[slice, FloatArray]]:
        """The slice of each transform, in order, and its (block,) signs.

        There is only one transform if d is a power of two.
        """
        block = self.block
        slices = [slice(0, block)]
        if block < self.dimension:
            last_start = int(self.dimension) - block
            slices.append(slice(last_start, None))
        sign_count = block * len(slices)
        # Raw words of a bit generator are the same in all releases of numpy; derived draws may
        # differ.
        seeds = np.random.SeedSequence(int(self.seed))
        generator = np.random.Philox(seeds)
        words = generator.random_raw(word_count(sign_count))
        signs = signs_of(words, sign_count)
        return list(zip(slices, signs.reshape(-1, block), strict=True))

    def _checked(self, name: str, coordinates: npt.ArrayLike) -> FloatArray:
        values = as_reals(name, coordinates, "need real numbers")
        if values.shape[-1:] != (self.dimension,):
            remedy = f"need {self.dimension} coordinates in the last axis"
            raise ParameterError(name, values.shape, remedy)
        return values

    def apply(self, vector: npt.ArrayLike) -> FloatArray:
        """(..., d) to (..., d)."""
        values = self._checked("vector", vector)
        for block, signs in self._transforms():
            signed = values[..., block] * signs
            values[..., block] = hadamard(signed)
        return values

    def undo(self, rotated: npt.ArrayLike) -> FloatArray:
        """(..., d) to (..., d)."""
        values = self._checked("rotated", rotated)
        for block, signs in reversed(self._transforms()):
            mixed = hadamard(values[..., block])
            values[..., block] = mixed * signs
        return values


SCALE = 2**8
"""Units of a column's norm: coefficients are integers."""

MAX_BANDS = 64
"""Largest number of consecutive sums that one vector is spread over."""


def coefficients(bands: int) -> tuple[int, ...]:
    """Integers in proportion to the first `bands` coefficients of (1 - x)^(-1/2), whose squares sum
    to at most SCALE^2.

    Guarantees: positive and falling, so that their power series has an inverse with bounded
        coefficients (Enestrom and Kakeya).

    >>> coefficients(1), coefficients(4)
    ((256,), (209, 104, 78, 65))
    """
    if not 1 <= check_count("bands", bands) <= MAX_BANDS:
        remedy = f"correlate 1 to {MAX_BANDS} steps; 8 is rarely far from the best"
        raise ParameterError("bands", bands, remedy)
    exact = [1.0]
    coefficient = 1.0
    for lag in range(1, bands):
        coefficient *= 2 * lag - 1
        coefficient /= 2 * lag
        exact.append(coefficient)
    squares = [coefficient * coefficient for coefficient in exact]
    norm = math.sqrt(sum(squares))
    integers = [int(SCALE * coefficient / norm) for coefficient in exact]
    integer_squares = [integer * integer for integer in integers]
    assert sum(integer_squares) <= SCALE**2
    return tuple(integers)


def solved(
    bands: int,
    released: AnyArray,
    earlier: Mapping[int, FloatArray],
) -> FloatArray:
    """(d,) solution of a banded triangular system, one round after the other.

    `released` is the sum over j of coefficients(bands)[j] times the solution j rounds ago.

    Arguments:
        earlier: lag -> (d,) solution that many rounds ago; missing ones count as zero.
    """
    factors = coefficients(bands)
    remainder = released.astype(np.float64)
    for lag in range(1, bands):
        if lag in earlier:
            remainder -= factors[lag] * earlier[lag]
    return remainder / factors[0]


def last_noise(bands: int, steps: int) -> float:
    """Standard deviation of all steps' noise, summed, in units of one step's if independent.

    The sum of the first T solutions w of C w = noise, T = `steps`, is a row of the inverse of C,
    summed up.
    """
    check_count("steps", steps)
    factors = np.array(coefficients(bands)) / SCALE
    inverse = np.zeros(steps)
    inverse[0] = 1 / factors[0]
    for step in range(1, steps):
        lag_count = min(step, bands - 1)
        recent = inverse[step - lag_count : step]
        lagged_factors = factors[1 : lag_count + 1]
        correlated = lagged_factors @ recent[::-1]
        inverse[step] = -correlated / factors[0]
    total_noise = np.cumsum(inverse)
    return float(np.linalg.norm(total_noise))
