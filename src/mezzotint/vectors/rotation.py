"""Vectors before they are reported: clipping, a randomized Hadamard rotation, a spread over several sums.

Clipping bounds the influence of one client; the rotation spreads any vector evenly over its coordinates, and its
transpose undoes it. A banded Toeplitz matrix spreads a vector over consecutive sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias, final, get_args

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_choice, check_count, check_positive
from mezzotint.core.errors import ParameterError
from mezzotint.core.types import FloatArray

Norm = Literal["linf", "l2", "l1"]


def clip(vector: npt.ArrayLike, *, norm: Norm, bound: float) -> FloatArray:
    """The vector moved into the ball of radius `bound`: the projection, for each of the three norms.

    Arguments:
        vector: (..., d) finite numbers; every vector along the last axis is clipped by itself.
        norm: "linf" (each coordinate), "l2" (scaled down) or "l1" (soft threshold).
        bound: radius in data units, positive and finite.

    Returns: (d,) the nearest vector of the ball.

    Raises:
        ParameterError: NaN or infinite entries (named by index), a bound that is not a positive number.

    Guarantees:
        The result's norm is at most `bound`, in exact arithmetic on the floats returned.
        Clipping is a contraction: two clipped vectors are no farther apart in L2 than before.
    Edge cases: empty vectors and zero vectors are returned unchanged.

    Example:
        >>> mz.vectors.clip([3.0, 4.0], norm="l2", bound=1.0).round(6).tolist()
        [0.6, 0.8]
    """
    try:
        values = np.array(vector, dtype=np.float64)
    except (TypeError, ValueError):
        raise ParameterError(
            "vector", type(vector).__name__, "need real numbers, all vectors of one length"
        ) from None
    if not np.isfinite(values).all():
        place = int(np.argmin(np.isfinite(values).ravel()))
        raise ParameterError(
            "vector", float(values.ravel()[place]), f"entry {place} is not finite; drop it first"
        )
    check_choice("norm", norm, get_args(Norm))
    check_positive("bound", bound)
    if norm == "linf" or values.size == 0:
        return np.clip(values, -bound, bound)
    project = _l2 if norm == "l2" else _l1
    flat = values.reshape(-1, values.shape[-1] if values.ndim else 1)
    return np.stack([_projected(row, float(bound), project) for row in flat]).reshape(values.shape)


def _projected(
    row: FloatArray, bound: float, project: Callable[[FloatArray, float], _Left | None]
) -> FloatArray:
    largest = float(np.abs(row).max())
    if largest == 0 or largest * row.size <= bound:
        return row
    # Scaled by powers of two, so that neither squares nor sums leave the floats: the row to a largest entry of about 1,
    # and what is left of it to a norm of about 1.
    power = math.frexp(largest)[1]
    left = project(np.ldexp(row, -power), math.ldexp(bound, -power))
    if left is None:
        return row
    vector, order, size = left
    unit, exponent = math.frexp(bound)
    inside = _shrunk(vector * (unit / size), order, unit) if size > 0 else vector
    found = np.ldexp(inside, exponent)
    if exponent >= 0:
        return found
    # Scaling down is exact but among subnormal numbers; there it must not round away from zero.
    return np.where(
        np.abs(np.ldexp(found, -exponent)) > np.abs(inside), np.nextafter(found, 0.0), found
    )


def _size(row: FloatArray, order: int) -> float:
    # fsum is exact but for its last rounding; squares and the root add three more.
    return (
        math.sqrt(math.fsum((row * row).tolist()))
        if order == 2
        else math.fsum(np.abs(row).tolist())
    )


def _shrunk(row: FloatArray, order: int, bound: float) -> FloatArray:
    # Four ulp cover the roundings of the norm itself.
    while (size := _size(row, order)) * (1 + 2.0**-50) > bound:
        row = row * (bound / size * (1 - 2.0**-49))
    return row


_Left: TypeAlias = tuple[FloatArray, Literal[1, 2], float]
"""A vector in the direction of the projection, the order of the norm that it is to be scaled by, and that norm."""


def _l2(row: FloatArray, bound: float) -> _Left | None:
    size = _size(row, 2)
    return None if size <= bound * (1 - 2.0**-49) else (row, 2, size)


def _l1(row: FloatArray, bound: float) -> _Left | None:
    sizes = np.abs(row)
    # A plain sum, right to 2**-26, spares the exact one for vectors that are far outside.
    if sizes.sum() <= 1.001 * bound and _size(row, 1) <= bound * (1 - 2.0**-49):
        return None
    # Projection onto the L1 ball (Duchi et al. 2008): every entry loses as much, and no more than it has. What is left
    # of the largest is found from what others lack of it, so that nothing cancels where little is left.
    lacking = sizes.max() - sizes
    ordered = np.sort(lacking)
    left = (np.cumsum(ordered) + max(bound, np.finfo(np.float64).tiny)) / np.arange(1, row.size + 1)
    vector = np.sign(row) * np.maximum(left[np.flatnonzero(ordered < left)[-1]] - lacking, 0.0)
    return vector, 1, _size(vector, 1)


MAX_DIMENSION = 2**27
"""Largest dimension: one vector of it takes a GiB."""

ROTATION = "overlapping transforms"
"""Names the rotation in descriptions: one kind of rotation does not undo another."""


def hadamard(values: FloatArray) -> FloatArray:
    """Orthonormal Walsh-Hadamard transform along the last axis, whose length is a power of two; its own inverse."""
    from mezzotint.vectors import compiled as kernels

    size = values.shape[-1]
    result = np.array(values, dtype=np.float64, order="C")
    kernels.transform(result.reshape(-1, size), 1.0)
    return result / math.sqrt(size)


@final
@dataclass(frozen=True, kw_only=True)
class Rotation:
    """Random signs and a Hadamard transform of the first p coordinates, then of the last p; p is the block.

    Arguments:
        dimension: d >= 1.
        seed: of the signs; public, chosen by the server independently of the data (privacy does not rest on it).

    Guarantees: L2 norms and inner products are kept up to rounding; `undo(apply(x)) == x` up to 1e-12 relative.
        Over the signs a rotated coordinate of x is subgaussian with |x| / sqrt(block) (docs/proofs/vectors.md).
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
        if check_count("dimension", self.dimension) > MAX_DIMENSION:
            raise ParameterError(
                "dimension", self.dimension, f"between 1 and {MAX_DIMENSION}; split longer vectors"
            )
        check_count("seed", self.seed, least=0, most=2**64)

    @property
    def block(self) -> int:
        """The largest power of two up to d: the number of coordinates that one transform mixes."""
        return 1 << (int(self.dimension).bit_length() - 1)

    def _parts(self) -> list[tuple[slice, FloatArray]]:
        """The slice of each transform, in order, and its (block,) signs; only one transform if d is a power of two."""
        size = self.block
        parts = [slice(0, size), slice(int(self.dimension) - size, None)][
            : 1 if size == self.dimension else 2
        ]
        # Raw words of a bit generator are the same in all releases of numpy; derived draws may differ.
        words = np.random.Philox(np.random.SeedSequence(int(self.seed))).random_raw(
            -(-size * len(parts) // 64)
        )
        bits = np.unpackbits(words.astype("<u8").view(np.uint8), bitorder="little")[
            : size * len(parts)
        ]
        return list(zip(parts, bits.astype(np.float64).reshape(-1, size) * 2.0 - 1.0, strict=True))

    def _checked(self, name: str, given: npt.ArrayLike) -> FloatArray:
        values = np.array(given, dtype=np.float64)
        if values.ndim == 0 or values.shape[-1] != self.dimension:
            raise ParameterError(
                name, values.shape, f"need {self.dimension} coordinates in the last axis"
            )
        return values

    def apply(self, vector: npt.ArrayLike) -> FloatArray:
        """(..., d) to (..., d)."""
        values = self._checked("vector", vector)
        for part, signs in self._parts():
            values[..., part] = hadamard(values[..., part] * signs)
        return values

    def undo(self, rotated: npt.ArrayLike) -> FloatArray:
        """(..., d) to (..., d)."""
        values = self._checked("rotated", rotated)
        for part, signs in reversed(self._parts()):
            values[..., part] = hadamard(values[..., part]) * signs
        return values


SCALE = 2**8
"""Units of a column's norm: coefficients are integers."""

MOST = 64


def coefficients(bands: int) -> tuple[int, ...]:
    """Integers in proportion to the first `bands` coefficients of (1 - x)^(-1/2), whose squares sum to at most SCALE^2.

    Guarantees: positive and falling, so that their power series has an inverse with bounded coefficients (Enestrom and
        Kakeya).

    >>> coefficients(1), coefficients(4)
    ((256,), (209, 104, 78, 65))
    """
    if not 1 <= check_count("bands", bands) <= MOST:
        raise ParameterError(
            "bands", bands, f"correlate 1 to {MOST} steps; 8 is rarely far from the best"
        )
    exact = [1.0]
    for j in range(1, bands):
        exact.append(exact[-1] * (2 * j - 1) / (2 * j))
    norm = math.sqrt(sum(value * value for value in exact))
    found = tuple(int(SCALE * value / norm) for value in exact)
    assert sum(value * value for value in found) <= SCALE**2
    return found


def solved(
    bands: int, released: npt.NDArray[np.generic], earlier: Mapping[int, npt.NDArray[np.float64]]
) -> npt.NDArray[np.float64]:
    """(d,) the solution of `released` = the sum over j of coefficients(bands)[j] times the solution j rounds ago.

    Arguments:
        earlier: lag -> (d,) solution that many rounds ago; missing ones count as zero.
    """
    given = coefficients(bands)
    found = released.astype(np.float64)
    for lag in range(1, bands):
        if lag in earlier:
            found -= given[lag] * earlier[lag]
    return found / given[0]


def last_noise(bands: int, steps: int) -> float:
    """Standard deviation of the sum of all steps' noise, in units of one step's noise if it were independent.

    The sum of the first T solutions w of C w = noise, T = `steps`, is a row of the inverse of C, summed up.
    """
    given = np.array(coefficients(bands)) / SCALE
    inverse = np.zeros(check_count("steps", steps))
    for t in range(steps):
        known = given[1 : t + 1] @ inverse[t - 1 :: -1][: len(given) - 1] if t else 0.0
        inverse[t] = (float(t == 0) - known) / given[0]
    return float(np.linalg.norm(np.cumsum(inverse)))


def blocks(rounds: Iterable[int], bands: int) -> int:
    """The largest number of blocks of `bands` rounds, each beginning with a client's turn, that contain these rounds.

    The client's first turn is unknown.
    Source: docs/proofs/vectors.md, "Vectors in several sums".

    >>> blocks(range(1, 21), 10), blocks([4, 14, 24], 10), blocks([14, 15], 10)
    (2, 3, 2)
    """
    numbers = set(rounds)
    return max(
        len({(number - 1 - turn) // bands for number in numbers if number > turn})
        for turn in range(check_count("bands", bands))
    )
