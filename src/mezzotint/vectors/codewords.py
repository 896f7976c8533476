"""Public random codewords: the pinned stream that a seed makes, inner products with a vector, sums
of chosen codewords.

All implementations draw the same signs, positions and normal numbers, bit for bit. The stream's
words are AES-256 in counter mode; the map from words to normal numbers is integer arithmetic on a
table of 6,145 integers. Both are defined in docs/file-format.md; clients/vectors holds test
vectors. Nothing here is secret, and privacy does not rest on it: a client that draws other numbers
than the server spoils the estimate, not the claim.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple, final

import numpy as np
import numpy.typing as npt
import scipy

from mezzotint.core.errors import MezzotintError
from mezzotint.core.sampler import draw_words
from mezzotint.core.types import FloatArray, IntArray
from mezzotint.vectors.rotation import signs_of, word_count

VERSION = 1
"""Of generator and map, written into every file; other versions are refused."""

UNIT = 2.0**-24
"""Normal numbers are integers times this."""

OCTAVE_BITS = 8
"""Each doubling of the tail's probability is cut into 2**8 equal pieces."""

TABLE_SHA256 = "1c01ef181ebc01d52a5966ba4319f900d9d7e0c716ed0f1c2507284adf60e7ed"

_ROWS_START = 1 << 33
"""The 64-bit word at which the rows of normal numbers start; positions start at word 0."""


@lru_cache(maxsize=1)
def normal_table() -> IntArray:
    """(6145,) quantiles of the upper tail, units of 2**-24, at the left ends of the pieces of [0,
    2**31].

    Piece n < 2**8 is n itself; piece n = 2**8 (e + 1) + i starts at (2**8 + i) 2**e. The entry of a
    start v is the integer nearest to 2**24 times the N(0, 1) quantile of 1 - (v + 1/2) / 2**32.

    Guarantees: the integers have the pinned hash. None lies within 1e-4 of a tie, so any inverse of
        the normal distribution function with error below 1e-12 gives the same ones.
    """
    piece_count = 2**OCTAVE_BITS
    piece_numbers = np.arange(piece_count, dtype=np.float64)
    octave_pieces = piece_numbers + piece_count
    pieces = [piece_numbers]
    for octave in range(31 - OCTAVE_BITS):
        pieces.append(octave_pieces * 2.0**octave)
    starts = np.concatenate([*pieces, [2.0**31]])
    tail_probabilities = (starts + 0.5) / 2.0**32
    quantiles = -scipy.special.ndtri(tail_probabilities)
    units = np.rint(quantiles / UNIT)
    entries = units.astype(np.int64)
    entries[-1] = 0
    encoded = entries.astype("<i4").tobytes()
    if hashlib.sha256(encoded).hexdigest() != TABLE_SHA256:
        raise MezzotintError(
            "stream: this machine's inverse normal distribution does not give the pinned table"
        )
    entries.setflags(write=False)
    return entries


def stream_key(purpose: str, beacon: str, *numbers: int) -> bytes:
    """SHA-256 of "mezzotint public stream 1", purpose, beacon and decimal numbers, separated by
    zero bytes.

    The purpose is "signs" (numbered by the round) or "report" (numbered by the seed and the place
    in the report).
    """
    title = f"mezzotint public stream {VERSION}"
    joined_fields = "\0".join([title, purpose, beacon, *map(str, numbers)])
    return hashlib.sha256(joined_fields.encode()).digest()


def _halves(key: bytes, start: int, count: int) -> npt.NDArray[np.uint32]:
    """`count` 32-bit numbers, the low half of each 64-bit word first; `count` is even."""
    words = draw_words(key, start, count // 2)
    little_endian = words.astype("<u8", copy=False)
    return little_endian.view("<u4")


@lru_cache(maxsize=2)
def signs(beacon: str, group: int, size: int) -> FloatArray:
    """(size,) numbers +-1 of a round, read-only: bit j of the stream, low bits first, 1 for +1."""
    key = stream_key("signs", beacon, group)
    words = draw_words(key, 0, word_count(size))
    round_signs = signs_of(words, size)
    round_signs.setflags(write=False)
    return round_signs


def positions(key: bytes, count: int, among: int) -> IntArray:
    """(count,) distinct numbers: the stream's 32-bit numbers modulo `among`, a power of two,
    without repeats."""
    from mezzotint.vectors import compiled as kernels

    taken = np.zeros(among, dtype=np.uint8)
    distinct = np.empty(count, dtype=np.int64)
    filled = 0
    start = 0
    while filled < count:
        # Twice what is missing; the number of draws depends only on the public stream.
        missing = count - filled
        draw_count = row_stride(2 * missing)
        numbers = _halves(key, start, draw_count)
        filled = kernels.pick_distinct(numbers, taken, distinct, filled)
        start += draw_count // 2
    return distinct


_BLOCK_WIDTH = 4
"""32-bit numbers of an AES block."""


def row_stride(width: int) -> int:
    """32-bit numbers from the start of one row to that of the next: rows start with an AES
    block."""
    return _BLOCK_WIDTH * math.ceil(width / _BLOCK_WIDTH)


def normal_rows(
    key: bytes,
    first: int,
    count: int,
    width: int,
) -> FloatArray:
    """(count, width) normal numbers: rows `first`, `first` + 1, ... of a report's matrix."""
    from mezzotint.vectors import compiled as kernels

    stride = row_stride(width)
    numbers = _row_numbers(key, first, count, stride)
    rows = np.empty((count, width))
    kernels.normal_numbers(numbers, normal_table(), stride, OCTAVE_BITS, UNIT, rows)
    return rows


def _row_numbers(
    key: bytes,
    first: int,
    count: int,
    stride: int,
) -> npt.NDArray[np.uint32]:
    """The stream's numbers from the start of row `first` on, for so many rows."""
    start = _ROWS_START + first * (stride // 2)
    return _halves(key, start, count * stride)


def normal_products(key: bytes, count: int, vector: FloatArray) -> FloatArray:
    """(count,) inner products of the first `count` rows with a vector; the rows are never stored."""
    from mezzotint.vectors import compiled as kernels

    table = normal_table()
    stride = row_stride(vector.size)
    products = np.empty(count)
    block_rows = max(1, _BLOCK_NUMBERS // stride)
    for first in range(0, count, block_rows):
        block = products[first : first + block_rows]
        numbers = _row_numbers(key, first, block.size, stride)
        kernels.normal_products(numbers, table, stride, OCTAVE_BITS, UNIT, vector, block)
    return products


# Order statistics of normal numbers: how close the closest of M random directions are
# One-dimensional integrals over a beta-binomial tail; nothing is simulated.

_BLOCK_NUMBERS = 1 << 16
"""Numbers that are drawn at once: they stay in the cache."""

_INTEGRAL_LIMIT = 9.0
"""A normal number lies beyond with probability 2e-19."""
_NODES = 96
"""Gauss-Legendre nodes in each part of an integral."""


_legendre = lru_cache(np.polynomial.legendre.leggauss)


def quadrature(cuts: Iterable[float], nodes: int) -> tuple[FloatArray, FloatArray]:
    """Points and weights of Gauss and Legendre's rule of so many nodes between neighbouring cuts."""
    unit_points, unit_weights = _legendre(nodes)
    cut_column = np.array(sorted(cuts))[:, None]
    starts = cut_column[:-1]
    ends = cut_column[1:]
    half_widths = 0.5 * (ends - starts)
    middles = 0.5 * (ends + starts)
    points = middles + half_widths * unit_points
    weights = half_widths * unit_weights
    return points.ravel(), weights.ravel()


class TopMoments(NamedTuple):
    """Expected sum, and expected sum of squares, of the largest of some numbers."""

    total: float
    squares: float


def _on_top(
    count: int,
    top: int,
    *,
    centre: float,
    spread: float,
    low: float,
    below: Callable[[FloatArray], FloatArray],
) -> TopMoments:
    """Moments of the `top` largest of `count` numbers above `low`.

    `below` is their distribution. The density is phi, or twice phi from 0 on; the integrand falls
    around `centre`, within multiples of `spread`.
    """
    cuts = {low, _INTEGRAL_LIMIT}
    for multiple in (-9.0, 0.0, 9.0):
        cut = max(centre + multiple * spread, low)
        cuts.add(min(cut, _INTEGRAL_LIMIT))
    values, weights = quadrature(cuts, _NODES)
    squares = values * values
    powers = np.exp(-values * values / 2)
    density = powers / math.sqrt(2 * math.pi)
    # The probability that fewer than `top` of the other numbers are larger.
    chances_below = below(values)
    among_top = scipy.special.betainc(count - top, top, chances_below)
    if low == 0:
        count *= 2
    masses = count * weights * density * among_top
    return TopMoments(float(masses @ values), float(masses @ squares))


@lru_cache(maxsize=4096)
def top_normal(count: int, top: int) -> TopMoments:
    """Expected sum, and expected sum of squares, of the `top` largest of `count` normal numbers.

    They are independent N(0, 1); the relative error is about 1e-12.
    Source: the sum's integrand is M x phi(x) P(fewer than k of the other M - 1 are larger).
    """
    if top in (0, count):
        return TopMoments(0.0, float(top))
    share = top / count
    centre = float(-scipy.special.ndtri(share))
    deviation = _share_deviation(share, count)
    spread = deviation / _density(centre)
    return _on_top(
        count,
        top,
        centre=centre,
        spread=spread,
        low=-_INTEGRAL_LIMIT,
        below=scipy.special.ndtr,
    )


@lru_cache(maxsize=4096)
def top_folded(count: int, top: int) -> TopMoments:
    """As `top_normal`, of the `top` largest of +-g_1 .. +-g_h, where `count` = 2 h."""
    half = count // 2
    if top > half:
        # The sum of all is 0, and of all squares 2 h; the others mirror those on top.
        total, squares = top_folded(count, count - top)
        return TopMoments(total, count - squares)
    if top == 0:
        return TopMoments(0.0, 0.0)
    if top == half:
        mean_size = math.sqrt(2 / math.pi)
        return TopMoments(half * mean_size, float(half))
    share = top / half
    centre = float(scipy.special.ndtri(1 - share / 2))
    deviation = _share_deviation(share, half)
    spread = deviation / (2 * _density(centre))
    return _on_top(
        half,
        top,
        centre=centre,
        spread=spread,
        low=0.0,
        below=_folded_probability,
    )


def _folded_probability(values: FloatArray) -> FloatArray:
    """The probability that |N(0, 1)| lies below each value."""
    return scipy.special.erf(values / math.sqrt(2))


def _share_deviation(share: float, count: int) -> float:
    """Standard deviation of a share among so many independent draws."""
    variance = share * (1 - share) / count
    return math.sqrt(variance)


def _density(value: float) -> float:
    power = math.exp(-value * value / 2)
    return power / math.sqrt(2 * math.pi)


_GOLDEN_STEPS = 80
"""Each keeps .62 of an interval: in the end its ends are the same float."""

_STIRLING_DIMENSION = 10**6
"""Above it the series of a ratio of gamma functions is exact in floats."""


def mean_norm(dimension: int) -> float:
    """Expected L2 norm of a vector of independent N(0, 1): sqrt(d - 1/2) up to O(d**-1.5)."""
    if dimension > _STIRLING_DIMENSION:
        # sqrt(2) Gamma((d+1)/2) / Gamma(d/2) = sqrt(d) (1 - 1/(4 d) + 1/(32 d^2) + ...); the next
        # term is below 1e-18.
        first_term = 1 / (4 * dimension)
        second_term = 1 / (32 * dimension**2)
        series = 1 - first_term + second_term
        return math.sqrt(dimension) * series
    log_numerator = math.lgamma((dimension + 1) / 2)
    log_denominator = math.lgamma(dimension / 2)
    ratio = math.exp(log_numerator - log_denominator)
    return math.sqrt(2) * ratio


@lru_cache(maxsize=256)
def gaussian_constant(epsilon: float) -> tuple[float, float]:
    """(A, q) of PrivUnitG, the yardstick.

    E|error|^2 of a unit vector is A d, up to a constant, at the best share q.
    Source: Asi, Feldman and Talwar 2022, section 4; the limit of ranked codebooks for many
        codewords.
    """

    def constant(log_share: float) -> float:
        share = math.exp(log_share)
        threshold = float(-scipy.special.ndtri(share))
        # (q e^eps + 1 - q) / (e^eps - 1), without overflow.
        mixture = share + (1 - share) * math.exp(-epsilon)
        ratio = mixture / -math.expm1(-epsilon)
        return (ratio / _density(threshold)) ** 2

    # By golden section: A is unimodal in log q.
    low_end = -min(epsilon, 600.0) - 4.0
    high_end = math.log(0.5)
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(_GOLDEN_STEPS):
        width = high_end - low_end
        lower = high_end - golden * width
        upper = low_end + golden * width
        if constant(lower) < constant(upper):
            high_end = upper
        else:
            low_end = lower
    log_share = (low_end + high_end) / 2
    return constant(log_share), math.exp(log_share)


def gaussian_error(dimension: int, epsilon: float) -> float:
    """Mean squared error of PrivUnitG for a unit vector, with the share that makes
    `gaussian_constant` least.

    Its inner product with the vector has the mean m = A**-0.5 and the mean square 1 + m Phi^-1(1 -
    q), before division by m; the other coordinates are N(0, 1).
    """
    constant, share = gaussian_constant(epsilon)
    threshold = float(-scipy.special.ndtri(share))
    mean_square = 1 + threshold / math.sqrt(constant)
    return constant * (dimension - 1 + mean_square) - 1


# Codewords

Kind = Literal["S", "X", "G", "GX"]

KINDS = {
    "S": "simplex, rotated",
    "X": "cross-polytope, rotated",
    "G": "Gaussian directions about their mean",
    "GX": "Gaussian directions and their opposites",
}


class Moments(NamedTuple):
    """Of a vector x's inner product with a reported codeword c: E<c, x>, E<c, x>^2 and E|c|^2."""

    product: float
    square: float
    norm: float


@final
@dataclass(frozen=True, kw_only=True)
class Codebook:
    """M codewords for every seed.

    Arguments:
        kind: "S": a simplex, at most size + 1 codewords; "X": +- an orthonormal basis, at most 2
            size; both rotated by a uniformly random rotation and of norm 1. "G": Gaussian rows
            minus their mean; "GX": +- Gaussian rows.
        codewords: M; even for "X" and "GX".
        size: coordinates of the vectors that are ranked.
        subspace: number of the codewords' coordinates, a public choice of the outputs of public
            random signs and a Hadamard transform ("G" and "GX" only). None: the vectors' own
            coordinates.
        beacon: public text, mixed into everything drawn.
    """

    kind: Kind
    codewords: int
    size: int
    subspace: int | None
    beacon: str

    @property
    def padded(self) -> int:
        """Length of the vectors in inner products: `size`, or the next power of two for
        transforms."""
        if self.subspace is None:
            return self.size
        return 1 << (self.size - 1).bit_length()

    @property
    def width(self) -> int:
        """Coordinates of a codeword."""
        return self.subspace or self.size

    # What is known in closed form

    def moments(self, row: IntArray) -> Moments:
        """Moments under falling weights by place, times the weights' sum, up to scale.

        Source: docs/proofs/vectors.md; inner products of rotated codewords are order statistics of
            normal numbers over the norm of a Gaussian vector, which is independent of them.
        """
        mean = 0.0
        square = 0.0
        # Summation by parts: a weight counts all places down to where it falls.
        falls = -np.diff(row, append=0)
        for position in np.flatnonzero(falls).tolist():
            fall = float(falls[position])
            top = self._top_moments(position + 1)
            mean += fall * top.total
            square += fall * top.squares
        total = float(row.sum())
        variance = 1.0
        if not self.folded:
            variance = 1 - 1 / self.codewords
        if self.kind in ("G", "GX"):
            across = total * (self.width - 1) * variance
            return Moments(mean, square, across + square)
        unit_mean = mean / math.sqrt(variance)
        unit_square = square / variance
        return Moments(unit_mean / mean_norm(self.width), unit_square / self.width, total)

    @property
    def folded(self) -> bool:
        """Whether codewords come with their opposites."""
        return self.kind in ("X", "GX")

    def _top_moments(self, top: int) -> TopMoments:
        """Moments of the `top` largest inner products."""
        if self.folded:
            return top_folded(self.codewords, top)
        total, squares = top_normal(self.codewords, top)
        # About their own mean, independent of the differences, M numbers lose 1 / M of their squares.
        return TopMoments(total, squares - top / self.codewords)

    @cached_property
    def compression(self) -> float:
        """The factor that makes up for the subspace: 1 / E|projection| of a unit vector, 1 without
        one."""
        if self.subspace is None:
            return 1.0
        return mean_norm(self.padded) / mean_norm(self.width)

    # What a seed makes

    def signs(self, group: int) -> FloatArray:
        """(padded,) signs shared by all seeds of a round."""
        return signs(self.beacon, group, self.padded)

    def transform(self, vectors: FloatArray, group: int) -> None:
        """Signs, then Hadamard, in place in the (n, padded) rows; nothing without a subspace."""
        if self.subspace is not None:
            vectors *= self.signs(group)
            self._orthonormal_hadamard(vectors)

    def _orthonormal_hadamard(self, rows: FloatArray) -> None:
        """In place in (n, padded) rows."""
        from mezzotint.vectors import compiled as kernels

        factor = 1 / math.sqrt(self.padded)
        kernels.transform(rows, factor)

    def undo(self, vector: FloatArray, group: int) -> FloatArray:
        """(padded,) estimate to the (size,) vector."""
        if self.subspace is None:
            return vector
        rows = vector[None, :].copy()
        self._orthonormal_hadamard(rows)
        signed = rows[0] * self.signs(group)
        return signed[: self.size]

    def _key(self, seed: int, place: int) -> bytes:
        return stream_key("report", self.beacon, seed, place)

    def products(self, vector: FloatArray, seed: int, place: int) -> FloatArray:
        """(M,) inner products of a transformed (padded,) vector with codewords.

        Those are the codewords of a report's index number `place`.
        """
        key = self._key(seed, place)
        if self.subspace is not None:
            chosen = positions(key, self.subspace, self.padded)
            vector = vector[chosen]
        if self.kind == "S":
            basis = self._basis(key, self.codewords - 1)
            return _simplex(self.codewords) @ (basis @ vector)
        if self.kind == "G":
            products = normal_products(key, self.codewords, vector)
            return products - products.mean()
        pair_count = self.codewords // 2
        if self.kind == "X":
            half_products = self._basis(key, pair_count) @ vector
        else:
            half_products = normal_products(key, pair_count, vector)
        return np.concatenate([half_products, -half_products])

    def add(
        self,
        total: FloatArray,
        index: int,
        seed: int,
        place: int,
        weight: float,
    ) -> None:
        """Add `weight` times a codeword to the (padded,) total; the index of the null output adds
        nothing."""
        if index >= self.codewords:
            return
        key = self._key(seed, place)
        codeword = self._codeword(key, index) * weight
        if self.subspace is None:
            total += codeword
        else:
            chosen = positions(key, self.subspace, self.padded)
            total[chosen] += codeword

    def _codeword(self, key: bytes, index: int) -> FloatArray:
        """The codeword of an index under a key: a simplex's corner ("S"), a Gaussian less the mean
        of all ("G"), or one of a pair of opposites, orthonormal ("X") or Gaussian ("GX").
        """
        if self.kind == "S":
            basis = self._basis(key, self.codewords - 1)
            return _simplex(self.codewords)[index] @ basis
        if self.kind == "G":
            rows = normal_rows(key, 0, self.codewords, self.width)
            return rows[index] - rows.mean(axis=0)
        pair_count = self.codewords // 2
        is_opposite, pair = divmod(index, pair_count)
        sign = 1.0 - 2.0 * is_opposite
        if self.kind == "X":
            return self._basis(key, pair_count)[pair] * sign
        (direction,) = normal_rows(key, pair, 1, self.width)
        return direction * sign

    def _basis(self, key: bytes, count: int) -> FloatArray:
        """(count, size) orthonormal rows, uniformly distributed: Gaussian ones after
        Gram-Schmidt."""
        rows = normal_rows(key, 0, count, self.size)
        columns, triangle = np.linalg.qr(rows.T)
        diagonal_signs = np.sign(np.diag(triangle))
        signed_columns = columns * diagonal_signs
        return signed_columns.T


@lru_cache(maxsize=8)
def _simplex(count: int) -> FloatArray:
    """(M, M - 1) unit vectors with inner products -1 / (M - 1): Helmert's columns."""
    columns = np.zeros((count, count - 1))
    for row in range(1, count):
        columns[:row, row - 1] = 1.0
        columns[row, row - 1] = -row
    squares = columns**2
    columns /= np.sqrt(squares.sum(axis=0))
    ratio = count / (count - 1)
    return columns * math.sqrt(ratio)


def groups(seeds: Sequence[int]) -> dict[int, list[int]]:
    """Positions of the seeds of each round: those whose upper 32 bits agree."""
    by_round: dict[int, list[int]] = {}
    for position, seed in enumerate(seeds):
        round_positions = by_round.setdefault(seed >> 32, [])
        round_positions.append(position)
    return by_round
