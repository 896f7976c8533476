"""Gaussian noise as integers from a keystream, and sums of gradients that carry it."""

from __future__ import annotations

import functools
import hmac
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, final

import flint
import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from mezzotint.core.entropy import PART, WORDS_PER_COUNT, ElementWords, Keystream
from mezzotint.core.errors import ParameterError
from mezzotint.core.kernels import Words, compiled, in_threads, inlined, look_up, put, take, usable_cores
from mezzotint.core.mechanism import FloatArray, IntArray
from mezzotint.training.quantized import Gradients

UNDECIDED = -(2**63)
"""Stands for a draw that its first word does not decide."""

LOWEST_OCTAVE = 38
"""Words are looked up where their low 63 bits w are at least 2^38; a draw further out, one in 2^25, is undecided."""

CELLS = 16
"""Cells of an octave 2^e <= w < 2^(e+1)."""

TERMS = 8
"""Coefficients of a cell's polynomial."""

_BELOW_SIGN = 2**63 - 1
_SHIFT = 48  # of the 52 bits of a float's mantissa, the upper 4 name the cell
_WITHIN = 2**_SHIFT - 1
_ONE = 1023 << 52
_FIRST_CELL = (1023 + LOWEST_OCTAVE) << 4
_MIDDLE = 1 + 1 / 32

Totals = npt.NDArray[np.signedinteger]

EXACT = 2**53
"""Floats count to here."""


@compiled
def draw(words: Words, table: FloatArray, sigma: float, margin: float, noise: IntArray) -> int:
    """Draws integers where words decide them.

    Arguments:
        words: (n,) contiguous uint64: a sign, then 63 bits w of a uniform number u = w / 2^64 < 1/2.
        table: cells' polynomials in contiguous rows; the last row is zero and stands for u = 1/2.
        sigma: standard deviation.
        margin: how near to a rounding boundary sigma * z(u) is not trusted.
        noise: (n,) contiguous int64 output.

    Returns: how many are undecided.
    """
    missing = 0
    entries = table.ravel()
    for i in range(words.size):
        word = np.int64(take(words, i))
        bits = np.float64(word & _BELOW_SIGN).view(np.int64)
        cell = (bits >> _SHIFT) - _FIRST_CELL
        row = (cell if cell > 0 else 0) * 8
        t = np.int64((bits & _WITHIN) | _ONE).view(np.float64) - _MIDDLE
        z = look_up(entries, row + 7)
        z = z * t + look_up(entries, row + 6)
        z = z * t + look_up(entries, row + 5)
        z = z * t + look_up(entries, row + 4)
        z = z * t + look_up(entries, row + 3)
        z = z * t + look_up(entries, row + 2)
        z = z * t + look_up(entries, row + 1)
        z = z * t + look_up(entries, row)
        raised = sigma * z + 0.5
        whole = np.int64(raised)
        rest = raised - whole
        decided = (cell >= 0) & (rest > margin) & (rest < 1 - margin)
        missing += not decided
        put(noise, i, (-whole if word < 0 else whole) if decided else UNDECIDED)
    return missing


@partial(inlined, reorder=True)
def _sum_of_squares(values: npt.NDArray[np.float32]) -> float:
    total = 0.0
    for j in range(values.size):
        total += np.float64(values[j]) * values[j]
    return total


@compiled
def add_squares(rows: npt.NDArray[np.float32], squares: FloatArray) -> None:
    """Adds each row's sum of squares, in an order that depends on its length alone.

    Arguments:
        rows: (n, width) contiguous float32.
        squares: (n,) float64, added to.
    """
    for i in range(rows.shape[0]):
        squares[i] += _sum_of_squares(rows[i])


@inlined
def _integer(value: np.float32, limit: np.float32) -> np.int32:
    """The value without its fraction, never outside [-limit, limit]; NaN becomes -limit."""
    value = value if value > -limit else -limit
    return np.int32(value if value < limit else limit)


@partial(inlined, reorder=True)
def _add(values: npt.NDArray[np.float32], gain: np.float32, limit: np.float32, totals: Totals) -> float:
    squares = 0.0  # of integers, whose sum stays below 2^53, which no order of addition rounds
    for j in range(values.size):
        number = _integer(values[j] * gain, limit)
        totals[j] += number
        squares += np.float64(number) * np.float64(number)
    return squares


BLOCK = 4096
"""Totals that stay in the innermost cache while all records are added to them."""


@compiled
def add_integers(
    rows: npt.NDArray[np.float32],
    gains: npt.NDArray[np.float32],
    factors: npt.NDArray[np.float32],
    units: int,
    totals: Totals,
    squares: IntArray,
) -> None:
    """Adds the records' scaled gradients, rounded toward zero, and each record's sum of squares of what it adds.

    Arguments:
        rows, gains: (n, width) and (n, repeat) contiguous float32: a record's gradient is their outer product, flat.
        factors: (n,) float32: multiplies a record's gradient; records with 0 are left out.
        units: no coordinate counts as more than units + 1.
        totals: (repeat, width) int32 or int64, added to.
        squares: (n,) int64, added to; a sum that exceeds units^2 grows no further.
    """
    limit, enough = np.float32(units + 1), units * units
    width = rows.shape[1]
    chunk = max(1, min(BLOCK, EXACT // ((units + 1) * (units + 1))))
    for r in range(gains.shape[1]):
        for start in range(0, width, chunk):
            end = min(start + chunk, width)
            for i in range(rows.shape[0]):
                if factors[i] == 0:
                    continue
                found = _add(rows[i, start:end], gains[i, r] * factors[i], limit, totals[r, start:end])
                if squares[i] <= enough:
                    squares[i] += np.int64(found)


WORD = 64
_DIGITS = WORD - 1

ERROR = 1e-12
"""Bound on |z - z(u)|, z from the table and u anywhere in the interval that a word leaves (docs/proofs/training.md)."""

LARGEST = 2.0**36
"""At a larger standard deviation more than a seventh of all words would leave their draw undecided."""


@final
@dataclass(frozen=True, kw_only=True)
class RoundedGaussian:
    """floor(X + 1/2) for X normal with mean 0.

    For an integer n, n + floor(X + 1/2) = floor(n + X + 1/2): added to integers, it is the Gaussian mechanism with its
    output rounded, and costs no more than that.

    Arguments:
        sigma: standard deviation of X, in (0, 2^36].

    Raises:
        ParameterError: sigma outside its range.

    Guarantees: the law is exact as long as the words are uniform; no rounding of a float has a say in it.
    Source: inversion; docs/proofs/training.md, "Noise".
    """

    sigma: float

    def __post_init__(self) -> None:
        if not 0 < self.sigma <= LARGEST:
            raise ParameterError("sigma", self.sigma, f"a standard deviation in (0, {LARGEST:g}]")

    @property
    def margin(self) -> float:
        """Distance from a rounding boundary below which a word's draw is not decided."""
        # The product with sigma and the sum with 1/2 round by less than 2^-52 (6 sigma + 1).
        return self.sigma * (ERROR + 2e-15) + 1e-15

    def draw(self, key: bytes, size: int) -> IntArray:
        """(size,) independent draws; coordinate i takes word i of the key's stream, and more of its own if needed."""
        table, noise = quantiles(), np.empty(size, dtype=np.int64)

        def part(first: int) -> None:
            words, mine = np.empty(min(PART, size - first), dtype=np.uint64), noise[first : first + PART]
            ElementWords(key, first).fill(words)
            if draw(words, table, self.sigma, self.margin, mine):
                for place in np.flatnonzero(mine == UNDECIDED).tolist():
                    mine[place] = self.closer(int(words[place]), _further(key, first + place))

        in_threads([functools.partial(part, first) for first in range(0, size, PART)], threads=usable_cores())
        return noise

    def closer(self, word: int, further: Iterator[int]) -> int:
        """The integer that a word leads to, with as many further words as it takes."""
        negative, tail, digits = word >> _DIGITS, word & (2**_DIGITS - 1), WORD
        while (found := self._settled(tail, digits)) is None:
            tail, digits = tail << WORD | next(further), digits + WORD
        return -found if negative else found

    def _settled(self, tail: int, digits: int) -> int | None:
        """The integer that sigma z(u) rounds to for all u in [tail, tail + 1) / 2^digits; None if there are several."""
        if tail == 0:
            return None
        near = math.floor(0.5 - self.sigma * float(ndtri(float(Fraction(tail, 2**digits)))))
        with flint.ctx.workprec(digits + WORD):
            scale = flint.arb(2) ** digits
            for guess in (near, near - 1, near + 1):
                if (
                    guess >= 0
                    and self._beyond(guess + 0.5) * scale <= tail
                    and tail + 1 <= self._beyond(guess - 0.5) * scale
                ):
                    return guess
        return None

    def _beyond(self, distance: float) -> Any:
        """Enclosure of P(X > distance)."""
        return (flint.arb(distance) / flint.arb(self.sigma) / flint.arb(2).sqrt()).erfc() / 2


def _further(key: bytes, place: int) -> Iterator[int]:
    """Words beyond the first for one coordinate."""
    own = hmac.digest(key, b"mezzotint closer %d" % place, "sha256")
    for start in itertools.count(step=WORDS_PER_COUNT):
        words = np.empty(WORDS_PER_COUNT, dtype=np.uint64)
        Keystream(own, start).fill(words)
        yield from words.tolist()


@functools.cache
def quantiles() -> npt.NDArray[np.float64]:
    """(cells + 1, 8) Taylor coefficients of z(u) around the middle of each cell, in units of the cell's octave.

    Cell j of octave e holds u = 2^(e - 64) m for m in 1 + [j, j + 1) / 16; the row of u = 1/2, where z = 0, is last.
    """
    octaves = range(LOWEST_OCTAVE, _DIGITS)
    table = np.zeros((len(octaves) * CELLS + 1, TERMS))
    with flint.ctx.workprec(128):
        for row, (octave, cell) in enumerate(itertools.product(octaves, range(CELLS))):
            middle = Fraction(2 * CELLS + 2 * cell + 1, 2 * CELLS)
            series = taylor(_tail_quantile(middle * Fraction(2) ** (octave - WORD)), TERMS)
            unit = flint.arb(2) ** (octave - WORD)
            table[row] = [float(value * unit**power) for power, value in enumerate(series)]
    return table


def _tail_quantile(u: Fraction) -> Any:
    """z(u), by Newton's method from the float."""
    value = flint.arb(-float(ndtri(float(u))))
    target = flint.arb(u.numerator) / u.denominator
    for _ in range(3):
        value += ((value / flint.arb(2).sqrt()).erfc() / 2 - target) / _density(value)
        value = value.mid()
    return value


def _density(z: Any) -> Any:
    return (-z * z / 2).exp() / (2 * flint.arb.pi()).sqrt()


def taylor(z: Any, terms: int) -> list[Any]:
    """z and the coefficients z^(n) / n! of u -> z(u) where it takes the value z; z may be a ball.

    Phi^-1 has derivatives P_n(x) / phi(x)^n with P_1 = 1, P_(n+1) = P_n' + n x P_n, and z(u) = -Phi^-1(u), x = -z.
    """
    found, polynomial, x = [z], flint.fmpz_poly([1]), -z
    for n in range(1, terms):
        value = sum((coefficient * x**power for power, coefficient in enumerate(polynomial)), flint.arb(0))
        found.append(-value / _density(z) ** n / math.factorial(n))
        polynomial = polynomial.derivative() + n * flint.fmpz_poly([0, 1]) * polynomial
    return found


_MANY = 10**6
"""Coordinates from which on the grid is finer, as every one of them may lose a unit."""

_ROOM = 1 - 2.0**-18
"""Gradients are scaled to a norm slightly shorter than allowed, as floats round."""

_SHORTER = 1 - 2.0**-10
_ATTEMPTS = 4


@final
@dataclass(frozen=True, kw_only=True)
class ClippedSums:
    """Clips every record's gradient to an L2 norm, rounds it toward zero on a public grid, and adds up integers.

    Arguments:
        clip_norm: C > 0.
        coordinates: D, of a record's gradient in all tensors.

    Guarantees:
        The integers that a record adds have an L2 norm of at most `units`: each record's sum of squares is computed
        in integers, and a record that exceeds it is shortened or left out. No rounding of a float has a say in it.
        Sums are exact, in whatever order records come.
    """

    clip_norm: float
    coordinates: int

    @property
    def units(self) -> int:
        """Units of the grid in a clip norm: 2^16, from a million coordinates on 2^20."""
        return 2**20 if self.coordinates >= _MANY else 2**16

    @property
    def unit(self) -> float:
        """Width of the grid."""
        return self.clip_norm / self.units

    def __call__(self, gradients: Sequence[Gradients]) -> tuple[IntArray, int]:
        """The sums, and how many records were left out as their gradients are not finite.

        Arguments:
            gradients: of the records in each parameter tensor.

        Returns: (D,) int64 sums in units, for the coordinates of all tensors in order; the number.
        """
        totals, factors = self._settled(gradients)
        return totals.astype(np.int64, copy=False), int((factors == 0).sum())

    def factors(self, gradients: Sequence[Gradients]) -> npt.NDArray[np.float32]:
        """(n,) what the records' gradients are multiplied by before they are rounded; 0 leaves a record out."""
        return self._settled(gradients)[1]

    def _settled(self, gradients: Sequence[Gradients]) -> tuple[Totals, npt.NDArray[np.float32]]:
        squares = sum(_squares(gradient.rows) * _squares(gradient.gains) for gradient in gradients)
        with np.errstate(invalid="ignore"):
            wanted = self.units * _ROOM / np.maximum(np.sqrt(squares), self.clip_norm)
        factors = np.where(np.isfinite(wanted) & np.isfinite(squares), wanted, 0).astype(np.float32)
        for _ in range(_ATTEMPTS):
            totals, found = self._added(gradients, factors)
            long = found > self.units**2
            if not long.any():
                return totals, factors
            factors[long] *= np.float32(_SHORTER)
        factors[long] = 0
        return self._added(gradients, factors)[0], factors

    def _added(self, gradients: Sequence[Gradients], factors: npt.NDArray[np.float32]) -> tuple[Totals, IntArray]:
        """(D,) sums, and (n,) sums of squares of what each record has added."""
        narrow = len(factors) * (self.units + 1) < 2**31
        totals = np.zeros(self.coordinates, dtype=np.int32 if narrow else np.int64)
        squares = np.zeros(len(factors), dtype=np.int64)
        ends = itertools.accumulate(gradient.coordinates for gradient in gradients)
        for gradient, end in zip(gradients, ends, strict=True):
            part = totals[end - gradient.coordinates : end].reshape(gradient.gains.shape[1], gradient.rows.shape[1])
            add_integers(gradient.rows, gradient.gains, factors, self.units, part, squares)
        return totals, squares


def _squares(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    found = np.zeros(len(rows))
    add_squares(rows, found)
    return found
