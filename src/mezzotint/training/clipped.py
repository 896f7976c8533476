"""Clipped gradients in integers, added up in one pass; the rounded Gaussian noise of their sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, final

import numpy as np
import numpy.typing as npt

from mezzotint.core import gpu
from mezzotint.core.errors import ParameterError
from mezzotint.core.kernels import compiled, inlined
from mezzotint.core.types import AnyArray, FloatArray, IntArray
from mezzotint.training.models import Tensor, torch
from mezzotint.vectors import gaussian, octaves
from mezzotint.vectors.gaussian import RoundedGaussian
from mezzotint.vectors.octaves import UNDECIDED

Rows = npt.NDArray[np.float32]
Totals = npt.NDArray[np.signedinteger]


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Gradients:
    """The gradients of n records in one parameter tensor, as outer products.

    A record's gradient is gains[:, None] * rows, flat. Of a dense layer's weight, these are what
    the layer sends back and what it was given; they need not be multiplied out. Any gradients are
    outer products with a single 1.

    Arguments:
        rows: (n, width) contiguous float32.
        gains: (n, repeat) contiguous float32.
    """

    rows: Rows
    gains: Rows

    @classmethod
    def of_tensors(cls, gains: Tensor, rows: Tensor) -> Gradients:
        """Gradients of float32 tensors on any device."""
        return cls(rows=_contiguous(rows), gains=_contiguous(gains))

    @property
    def coordinates(self) -> int:
        """Coordinates of one record's gradient."""
        _, width = self.rows.shape
        _, repeat = self.gains.shape
        return repeat * width


def _contiguous(tensor: Tensor) -> Rows:
    """The numbers of a tensor on any device."""
    host_tensor = tensor.cpu()
    return host_tensor.contiguous().numpy()


def check_records(lengths: Iterable[int]) -> None:
    """Raises ParameterError unless all arrays hold as many records: a loop would read beyond
    one.
    """
    if len(set(lengths)) > 1:
        raise ParameterError(
            "gradients", "different numbers of rows", "every tensor needs one row for each record"
        )


def _lengths(gradients: Sequence[Gradients]) -> Iterable[int]:
    for gradient in gradients:
        yield len(gradient.rows)
        yield len(gradient.gains)


EXACT = 2**53
"""Floats count to here."""


@partial(inlined, reorder=True)
def _sum_of_squares(values: Rows) -> float:
    total = 0.0
    for coordinate in range(values.size):
        value = np.float64(values[coordinate])
        total += value * value
    return total


@compiled
def squares(rows: Rows) -> FloatArray:
    """(n,) each row's sum of squares, in an order that depends on its length alone; rows (n, width)
    contiguous.
    """
    totals = np.zeros(len(rows))
    for record in range(totals.size):
        totals[record] = _sum_of_squares(rows[record])
    return totals


@inlined
def _integer(value: np.float32, limit: np.float32) -> np.int32:
    """The value without its fraction, never outside [-limit, limit]; NaN becomes -limit."""
    value = value if value > -limit else -limit
    return np.int32(value if value < limit else limit)


@partial(inlined, reorder=True)
def _add_rounded(values: Rows, gain: np.float32, limit: np.float32, totals: Totals) -> float:
    """Adds (width,) values times a gain, as integers; returns the sum of their squares."""
    squares = 0.0  # of integers, whose sum stays below 2^53, which no order of addition rounds
    for coordinate in range(values.size):
        number = _integer(values[coordinate] * gain, limit)
        totals[coordinate] += number
        integer = np.float64(number)
        squares += integer * integer
    return squares


CACHED = 4096
"""Totals that stay in the innermost cache while all records are added to them."""


@compiled
def add_integers(
    rows: Rows,
    gains: Rows,
    factors: Rows,
    units: int,
    totals: Totals,
    squares: IntArray,
) -> None:
    """Adds the records' scaled gradients, rounded toward zero, and each record's sum of squares of
    what it adds.

    Arguments:
        rows, gains: (n, width) and (n, repeat) contiguous float32: a record's gradient is their
            outer product, flat.
        factors: (n,) float32: multiplies a record's gradient; records with 0 are left out.
        units: no coordinate counts as more than units + 1.
        totals: (repeat, width) int32 or int64, added to.
        squares: (n,) int64, added to; a sum that exceeds units^2 grows no further.
    """
    limit = np.float32(units + 1)
    largest_square = units * units
    record_count, width = rows.shape
    largest_summand = (units + 1) * (units + 1)
    # The squares of a chunk sum to at most EXACT: floats hold the sum.
    chunk_width = max(1, min(CACHED, EXACT // largest_summand))
    for repeat in range(gains.shape[1]):
        for start in range(0, width, chunk_width):
            end = min(start + chunk_width, width)
            chunk_totals = totals[repeat, start:end]
            for record in range(record_count):
                factor = factors[record]
                if factor == 0:
                    continue
                gain = gains[record, repeat] * factor
                added = _add_rounded(rows[record, start:end], gain, limit, chunk_totals)
                if squares[record] <= largest_square:
                    squares[record] += np.int64(added)


def scaled(numbers: IntArray | FloatArray, unit: float, divisor: float) -> tuple[Rows, bool]:
    """(D,) numbers in multiples of a unit, divided; and whether all of them are finite."""
    gradient = np.empty(numbers.size, dtype=np.float32)
    is_finite = _scale(numbers, unit, np.float32(divisor), gradient)
    return gradient, is_finite


@compiled
def _scale(numbers: AnyArray, unit: float, divisor: np.float32, gradient: Rows) -> bool:
    infinite_count = 0
    for coordinate in range(numbers.size):
        number = np.float64(numbers[coordinate])
        value = np.float32(number * unit) / divisor
        gradient[coordinate] = value
        infinite_count += not abs(value) < np.inf
    return infinite_count == 0


_MANY = 10**6
"""Coordinates from which on the grid is finer, as every one of them may lose a unit."""

_SCALED_NORM = 1 - 2.0**-18
"""The norm that gradients are scaled to, of that allowed: slightly shorter, as floats round."""

_SHORTENING = 1 - 2.0**-10
"""By which records that are too long all the same are shortened."""

_ATTEMPTS = 4
"""How often they are shortened before they are left out."""


@final
@dataclass(frozen=True, kw_only=True)
class ClippedSums:
    """Clips every record's gradient to an L2 norm, rounds it toward zero on a public grid, and adds
    up integers.

    Arguments:
        clip_norm: C > 0.
        coordinates: D, of a record's gradient in all tensors.
    Guarantees:
        The integers that a record adds have an L2 norm of at most `units`: each record's sum of
        squares is computed in integers, and a record that exceeds it is shortened or left out. No
        rounding of a float has a say in it. Sums are exact, in whatever order records come.
    """

    clip_norm: float
    coordinates: int

    @property
    def units(self) -> int:
        """Units of the grid in a clip norm: 2^16, from a million coordinates on 2^20."""
        if self.coordinates >= _MANY:
            return 2**20
        return 2**16

    @property
    def unit(self) -> float:
        """Width of the grid."""
        return self.clip_norm / self.units

    def __call__(self, gradients: Sequence[Gradients]) -> tuple[IntArray, int]:
        """The sums, and how many records were left out.

        Their gradients are not finite, or no shortening brought them within the norm.

        Arguments:
            gradients: of the records in each parameter tensor.
        Returns: (D,) int64 sums in units, for the coordinates of all tensors in order; the number.
        """
        totals, factors = self._settled(gradients)
        is_left_out = factors == 0
        sums = totals.astype(np.int64, copy=False)
        return sums, int(is_left_out.sum())

    def factors(self, gradients: Sequence[Gradients]) -> Rows:
        """(n,) what the records' gradients are multiplied by before they are rounded; 0 leaves a
        record out.
        """
        _, factors = self._settled(gradients)
        return factors

    def _settled(self, gradients: Sequence[Gradients]) -> tuple[Totals, Rows]:
        check_records(_lengths(gradients))
        record_count = len(gradients[0].rows)
        squared_norms = np.zeros(record_count)
        for gradient in gradients:
            squares_of_rows = squares(gradient.rows)
            squares_of_gains = squares(gradient.gains)
            squared_norms += squares_of_rows * squares_of_gains
        add = partial(self._added, gradients)
        return _settled(squared_norms, self, add)

    def _added(self, gradients: Sequence[Gradients], factors: Rows) -> tuple[Totals, IntArray]:
        """(D,) sums, and (n,) sums of squares of what each record has added."""
        record_count = factors.size
        largest_total = record_count * (self.units + 1)
        dtype = np.int64
        if largest_total < 2**31:
            dtype = np.int32
        totals = np.zeros(self.coordinates, dtype=dtype)
        squares = np.zeros(record_count, dtype=np.int64)
        start = 0
        for gradient in gradients:
            rows = gradient.rows
            gains = gradient.gains
            end = start + gradient.coordinates
            _, width = rows.shape
            _, repeat = gains.shape
            tensor_totals = totals[start:end].reshape(repeat, width)
            add_integers(rows, gains, factors, self.units, tensor_totals, squares)
            start = end
        return totals, squares


Numbers = TypeVar("Numbers", np.ndarray, Tensor)


def _settled(
    squared_norms: Numbers,
    sums: ClippedSums,
    add: Callable[[Numbers], tuple[Numbers, Numbers]],
) -> tuple[Numbers, Numbers]:
    """Sums, and the factors that no record is too long with.

    Arguments:
        squared_norms: (n,) of the records' gradients, about.
        add: what factors lead to: (D,) sums, and (n,) sums of squares of what each record has
            added.
    """
    module: Any = torch
    if isinstance(squared_norms, np.ndarray):
        module = np
    norms = squared_norms**0.5
    clipped_norms = norms.clip(min=sums.clip_norm)
    scales = sums.units * _SCALED_NORM / clipped_norms
    is_finite = (scales < math.inf) & (squared_norms < math.inf)
    finite_scales = module.where(is_finite, scales, 0.0)
    factors = module.asarray(finite_scales, dtype=module.float32)
    attempts = 0
    while True:
        totals, added_squares = add(factors)
        is_too_long = added_squares > sums.units**2
        if not is_too_long.any():
            return totals, factors
        attempts += 1
        shortening = _SHORTENING
        if attempts >= _ATTEMPTS:
            shortening = 0.0
        factors[is_too_long] *= shortening


Factored = tuple[Tensor, Tensor]
"""(n, repeat) and (n, width) float32: a record's gradient in a parameter is their outer product,
flat.
"""


AT_ONCE = 1 << 24
"""Numbers that records' gradients are written out to at a time."""


def clipped_sum(gradients: Sequence[Factored], sums: ClippedSums) -> tuple[Tensor, int]:
    """What `sums` makes of the records' gradients, on their device.

    Returns: (D,) int64 sums, and how many records were left out, as by `ClippedSums`.
    Guarantees: each record's integers have an L2 norm of at most `units`, as checked in exact
        arithmetic.
    """
    check_records(len(factor) for factors in gradients for factor in factors)
    squared_norms: list[Tensor] = []
    for gains, rows in gradients:
        outer_squares = _squared_norms(gains) * _squared_norms(rows)
        squared_norms.append(outer_squares)
    record_squares = torch.stack(squared_norms).sum(dim=0)
    add = partial(_added, gradients, sums)
    totals, factors = _settled(record_squares, sums, add)
    is_left_out = factors == 0
    return totals, int(is_left_out.sum())


def _squared_norms(rows: Tensor) -> Tensor:
    """(n,) squared L2 norms of rows."""
    squares = rows.double().square()
    return squares.sum(dim=1)


def _added(
    gradients: Sequence[Factored], sums: ClippedSums, factors: Tensor
) -> tuple[Tensor, Tensor]:
    """(D,) int64 sums, and (n,) sums of squares of what each record has added.

    The squares are summed in 64-bit floats: exact to 2^53, and whatever is beyond is found to be
    too long all the same.
    """
    limit = float(sums.units + 1)
    record_count = len(factors)
    # A compiler writes no record's gradient out; without one, a few records at a time.
    is_compiled = factors.is_cuda and gpu.compiler_works()
    totals: list[Tensor] = []
    squares = torch.zeros(record_count, dtype=torch.float64, device=factors.device)
    for gains, rows in gradients:
        scaled_gains = gains * factors[:, None]
        coordinate_count = gains.shape[1] * rows.shape[1]
        tensor_total = torch.zeros(coordinate_count, dtype=torch.int64, device=factors.device)
        group_size = max(1, AT_ONCE // max(1, coordinate_count))
        if is_compiled:
            group_size = record_count
        for first in range(0, record_count, group_size):
            group = slice(first, first + group_size)
            group_gains = scaled_gains[group]
            group_rows = rows[group]
            group_factors = factors[group]
            group_sums = _integer_sums(group_gains, group_rows, group_factors, limit)
            tensor_total += group_sums.flatten()
            squares[group] += _integer_squares(group_gains, group_rows, group_factors, limit)
        totals.append(tensor_total)
    return torch.cat(totals), squares


def _integers_of_records(gains: Tensor, rows: Tensor, factors: Tensor, limit: float) -> Tensor:
    """(n, repeat, width) float32: the clipped gradients in units, cut to whole numbers."""
    scaled = gains[:, :, None] * rows[:, None, :]
    is_counted = factors[:, None, None] > 0
    # A record with factor 0 may hold infinities, which times 0 are NaN.
    counted = torch.where(is_counted, scaled, 0.0).nan_to_num(-limit)
    return counted.clamp(-limit, limit).trunc()


@gpu.compiled_on_devices
def _integer_sums(gains: Tensor, rows: Tensor, factors: Tensor, limit: float) -> Tensor:
    """(repeat, width) int64 sums over the records."""
    integers = _integers_of_records(gains, rows, factors, limit)
    return integers.long().sum(dim=0)


@gpu.compiled_on_devices
def _integer_squares(gains: Tensor, rows: Tensor, factors: Tensor, limit: float) -> Tensor:
    """(n,) float64 sums of the squares of each record's integers."""
    integers = _integers_of_records(gains, rows, factors, limit)
    squares = integers.double().square()
    return squares.sum(dim=(1, 2))


def decide(words: Tensor, table: Tensor, law: RoundedGaussian) -> Tensor:
    """(n,) draws that (n,) int64 words lead to, UNDECIDED where they do not: `compiled.draw`, step
    by step.
    """
    return _decide(words, table, law.sigma, law.margin)


@gpu.compiled_on_devices
def _decide(words: Tensor, table: Tensor, sigma: float, margin: float) -> Tensor:
    magnitude_words = words & octaves.MAGNITUDE
    bits = magnitude_words.double().view(torch.int64)
    octave_cell = (bits >> octaves.SHIFT) - octaves.FIRST_CELL
    coefficients = table[octave_cell.clamp(min=0)]
    one_and_offset = (bits & octaves.IN_CELL) | octaves.ONE
    offset = one_and_offset.view(torch.float64) - octaves.MIDDLE
    quantile = coefficients[:, -1]
    for term in range(octaves.TERMS - 2, -1, -1):
        quantile = quantile * offset + coefficients[:, term]
    magnitude = sigma * quantile
    deviation = torch.where(words < 0, -magnitude, magnitude)
    raised = deviation + 0.5
    whole_number = raised.floor()
    fraction = raised - whole_number
    is_in_table = octave_cell >= 0
    is_off_borders = (fraction > margin) & (fraction < 1 - margin)
    return torch.where(is_in_table & is_off_borders, whole_number.long(), UNDECIDED)


def rounded_gaussian(law: RoundedGaussian, key: bytes, size: int, device: torch.device) -> Tensor:
    """(size,) int64 independent draws on a device; coordinate i takes word i of the key's ChaCha20
    stream.

    The few draws that their word does not decide look closer on the CPU, at words of their own.
    """
    table = gpu.to_device(gaussian.quantiles(), device)
    device_key = gpu.key_on(key, device)
    integer_draws = torch.empty(size, dtype=torch.int64, device=device)
    for chunk_start in range(0, size, gpu.CHUNK):
        chunk = integer_draws[chunk_start : chunk_start + gpu.CHUNK]
        first_block = chunk_start // gpu.WORDS_PER_BLOCK
        chunk_words = gpu.draw_words(device_key, first_block, chunk.numel())
        chunk.copy_(decide(chunk_words, table, law))
        undecided = torch.argwhere(chunk == UNDECIDED).flatten()
        positions = undecided.tolist()
        undecided_words = chunk_words[undecided]
        closer_draws: list[int] = []
        for random_word, position in zip(undecided_words.tolist(), positions, strict=True):
            further_words = gaussian.further_words(key, chunk_start + position)
            unsigned_word = random_word % 2**64
            closer_draws.append(law.closer(unsigned_word, further_words))
        chunk[undecided] = torch.tensor(closer_draws, dtype=torch.int64, device=device)
    device_key.zero_()
    return integer_draws
