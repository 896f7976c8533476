"""Clipped gradients in integers: drawn from a table or rounded, added up in one pass; the Gaussian noise of their sums.

The noise may be correlated over some steps: much of it cancels in the iterates, and every record pays once for them.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, NoReturn, TypeVar, final

import numpy as np
import numpy.typing as npt

from mezzotint.core import gpu
from mezzotint.core.arguments import Neighboring
from mezzotint.core.errors import ParameterError
from mezzotint.core.kernels import (
    compile_lookup,
    compiled,
    inlined,
    look_up,
    put,
    take,
)
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.sampler import Keystream, fast_start, in_threads, key_from, usable_cores
from mezzotint.core.types import Codes, FloatArray, IntArray, Seed
from mezzotint.training.models import torch
from mezzotint.training.phases import participations
from mezzotint.training.rqp import noise_multiplier as least_noise
from mezzotint.vectors import gaussian, octaves
from mezzotint.vectors.gaussian import RoundedGaussian
from mezzotint.vectors.octaves import UNDECIDED
from mezzotint.vectors.rotation import coefficients, last_noise, solved

Rows = npt.NDArray[np.float32]
Totals = npt.NDArray[np.signedinteger]


@compiled
def form(x: Rows, gains: Rows, factors: Rows, begin: int, out: Rows) -> None:
    """Elements of the records' gradients from `begin` on, into `out`.

    Arguments:
        x: (n, width) contiguous float32, one record per row.
        gains: (n, repeat) float32: a record's gradient is the outer product of its gains and its row of x, flat.
        factors: (n,) float32: multiplies a record's gradient.
    """
    width, repeat = x.shape[1], gains.shape[1]
    flat = x.reshape(-1)
    at = 0
    while at < out.size:
        record, column = divmod(begin + at, repeat * width)
        which, first = divmod(column, width)
        size = min(width - first, out.size - at)
        gain, factor, start = gains[record, which], factors[record], record * width + first
        for i in range(size):
            put(out, at + i, take(flat, start + i) * gain * factor)
        at += size


@compiled
def add_codes(
    codes: Codes,
    begin: int,
    width: int,
    totals: Totals,
    integers: npt.NDArray[np.int32],
    levels: int,
) -> None:
    """Adds codes drawn for the elements from `begin` on of records of `width` to the totals of their columns.

    Arguments:
        totals: (width,) sums, or (width * levels,) counts.
        integers: what each code adds; empty for the code itself.
        levels: 0 for sums; else the number of levels to count.
    """
    at = 0
    while at < codes.size:
        column = (begin + at) % width
        size = min(width - column, codes.size - at)
        if levels > 0:
            for i in range(size):
                totals[(column + i) * levels + np.int64(codes[at + i])] += 1
        elif integers.size > 0:
            for i in range(size):
                sent = look_up(integers, np.int64(take(codes, at + i)))
                put(totals, column + i, take(totals, column + i) + sent)
        else:
            for i in range(size):
                put(totals, column + i, take(totals, column + i) + np.int64(take(codes, at + i)))
        at += size


TOGETHER = 1 << 16
"""Elements that are drawn at a time: their words, inputs and codes stay in the second-level cache."""

PART = 1 << 21
"""Elements that one thread works through (some 3 ms); which they are does not depend on how many threads there are."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Gradients:
    """The gradients of n records in one parameter tensor, as outer products.

    A record's gradient is gains[:, None] * rows, flat. Of a dense layer's weight, these are what the layer sends back
    and what it was given; they need not be multiplied out. Any gradients are outer products with a single 1.

    Arguments:
        rows: (n, width) contiguous float32.
        gains: (n, repeat) contiguous float32.
    """

    rows: Rows
    gains: Rows

    @property
    def coordinates(self) -> int:
        """Coordinates of one record's gradient."""
        return self.rows.shape[1] * self.gains.shape[1]


def check_records(lengths: Iterable[int]) -> None:
    """Raises ParameterError unless all arrays hold as many records: a loop would read beyond one."""
    if len(set(lengths)) > 1:
        remedy = "every tensor needs one row for each record"
        raise ParameterError("gradients", "different numbers of rows", remedy)


def _lengths(gradients: Sequence[Gradients]) -> Iterable[int]:
    for gradient in gradients:
        yield len(gradient.rows)
        yield len(gradient.gains)


@final
class RecordSums:
    """Draws a code for every coordinate of every record from a table and adds up what the codes stand for.

    Arguments:
        table: the mechanism.
        integers: (m,) integers >= 0, what each level adds; None counts levels instead.
    Guarantees:
        A coordinate's code is the one that its own word of the cryptographic keystream leads to, as in
        `table.privatize`: of the same probabilities, in exact integers.
        Sums are exact. The same seed gives the same sums, whatever the number of threads.
    """

    def __init__(self, table: Mechanism, integers: IntArray | None) -> None:
        self.table = table
        self.levels = table.levels.size if integers is None else 0
        self.largest = 1 if integers is None else int(integers.max())
        plain = integers is None or np.array_equal(integers, np.arange(integers.size))
        self.integers = (
            np.empty(0, dtype=np.int32) if plain else np.asarray(integers, dtype=np.int32)
        )
        self.lookup = compile_lookup(table, np.dtype(np.float32), cut=True)
        # Words, inputs and codes of a part, kept for the next: fresh pages at every step cost more than their use.
        self._memory: list[list[npt.NDArray[Any]]] = []

    def __call__(
        self, gradients: Sequence[Gradients], factors: Rows, rng: Seed = None
    ) -> tuple[IntArray, int]:
        """The sums over the records of their gradients.

        Arguments:
            gradients: the records' gradients of each parameter tensor.
            factors: (n,) float32: a record's coordinates times its factor are in the table's units. What then lies
                outside its range is clipped.
            rng: None (private), a seed or a numpy Generator, as in `Mechanism.privatize`.
        Returns: (D,) int64 sums or (D, m) counts for the D coordinates of all tensors, in order; and the number of
            NaNs: with any, the sums mean nothing.
        Edge cases: no records or no coordinates give zeros.
        """
        check_records([len(factors), *_lengths(gradients)])
        key = key_from(rng)
        narrow = np.int32 if len(factors) * self.largest < 2**31 else np.int64
        columns = [0, *itertools.accumulate(gradient.coordinates for gradient in gradients)]
        shape = (columns[-1], max(1, self.levels))

        def work(number: int, part: list[_Piece]) -> tuple[Totals, int]:
            try:
                memory = self._memory.pop()
            except IndexError:
                kinds = np.uint64, np.float32, self.lookup.code_dtype
                memory = [np.empty(TOGETHER, dtype=kind) for kind in kinds]
            stream, totals, nans = (
                Keystream(key, fast_start(number)),
                np.zeros(shape, dtype=narrow),
                0,
            )
            for piece in part:
                given = gradients[piece.tensor]
                mine = totals[columns[piece.tensor] : columns[piece.tensor + 1]].reshape(-1)
                for begin in range(piece.begin, piece.end, TOGETHER):
                    words, inputs, codes = (one[: piece.end - begin] for one in memory)
                    stream.fill(words)
                    form(given.rows, given.gains, factors, begin, inputs)
                    nans += self.lookup.draw(inputs, words, codes)[2]
                    add_codes(codes, begin, given.coordinates, mine, self.integers, self.levels)
            self._memory.append(memory)
            return totals, nans

        parts = _parts([len(factors) * gradient.coordinates for gradient in gradients])
        found = in_threads(
            [partial(work, number, part) for number, part in enumerate(parts)],
            threads=usable_cores(),
        )
        sums = np.zeros(shape, dtype=np.int64)
        for totals, _ in found:
            sums += totals
        return sums if self.levels else sums[:, 0], sum(nans for _, nans in found)


class _Piece(NamedTuple):
    """Elements begin to end - 1 of all records' gradients of the tensor of a number."""

    tensor: int
    begin: int
    end: int


def _parts(sizes: list[int]) -> list[list[_Piece]]:
    """Pieces of at most PART elements, as many to a part as fit; in order."""
    parts: list[list[_Piece]] = []
    room = 0
    for tensor, size in enumerate(sizes):
        for begin in range(0, size, PART):
            piece = _Piece(tensor, begin, min(size, begin + PART))
            if piece.end - begin > room:
                parts.append([])
                room = PART
            parts[-1].append(piece)
            room -= piece.end - begin
    return parts


NOT_REPLACED = "replaced codes hide nothing of correlated noise; use proj-dp-sgd"

EXACT = 2**53
"""Floats count to here."""


@partial(inlined, reorder=True)
def _sum_of_squares(values: npt.NDArray[np.float32]) -> float:
    total = 0.0
    for j in range(values.size):
        total += np.float64(values[j]) * values[j]
    return total


@compiled
def squares(rows: npt.NDArray[np.float32]) -> FloatArray:
    """(n,) each row's sum of squares, in an order that depends on its length alone; rows (n, width) contiguous."""
    found = np.zeros(rows.shape[0])
    for i in range(rows.shape[0]):
        found[i] = _sum_of_squares(rows[i])
    return found


@inlined
def _integer(value: np.float32, limit: np.float32) -> np.int32:
    """The value without its fraction, never outside [-limit, limit]; NaN becomes -limit."""
    value = value if value > -limit else -limit
    return np.int32(value if value < limit else limit)


@partial(inlined, reorder=True)
def _add_rounded(
    values: npt.NDArray[np.float32], gain: np.float32, limit: np.float32, totals: Totals
) -> float:
    squares = 0.0  # of integers, whose sum stays below 2^53, which no order of addition rounds
    for j in range(values.size):
        number = _integer(values[j] * gain, limit)
        totals[j] += number
        squares += np.float64(number) * np.float64(number)
    return squares


CACHED = 4096
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
    chunk = max(1, min(CACHED, EXACT // ((units + 1) * (units + 1))))
    for r in range(gains.shape[1]):
        for start in range(0, width, chunk):
            end = min(start + chunk, width)
            for i in range(rows.shape[0]):
                if factors[i] == 0:
                    continue
                found = _add_rounded(
                    rows[i, start:end], gains[i, r] * factors[i], limit, totals[r, start:end]
                )
                if squares[i] <= enough:
                    squares[i] += np.int64(found)


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
        check_records(_lengths(gradients))
        norms = np.asarray(
            sum(squares(gradient.rows) * squares(gradient.gains) for gradient in gradients)
        )
        return _settled(norms, self, partial(self._added, gradients))

    def _added(
        self, gradients: Sequence[Gradients], factors: npt.NDArray[np.float32]
    ) -> tuple[Totals, IntArray]:
        """(D,) sums, and (n,) sums of squares of what each record has added."""
        narrow = len(factors) * (self.units + 1) < 2**31
        totals = np.zeros(self.coordinates, dtype=np.int32 if narrow else np.int64)
        squares = np.zeros(len(factors), dtype=np.int64)
        ends = itertools.accumulate(gradient.coordinates for gradient in gradients)
        for gradient, end in zip(gradients, ends, strict=True):
            part = totals[end - gradient.coordinates : end].reshape(
                gradient.gains.shape[1], gradient.rows.shape[1]
            )
            add_integers(gradient.rows, gradient.gains, factors, self.units, part, squares)
        return totals, squares


Numbers = TypeVar("Numbers", np.ndarray, torch.Tensor)


def _settled(
    norms: Numbers, sums: ClippedSums, added: Callable[[Numbers], tuple[Numbers, Numbers]]
) -> tuple[Numbers, Numbers]:
    """Sums, and the factors that no record is too long with.

    Arguments:
        norms: (n,) squared L2 norms of the records' gradients, about.
        added: what factors lead to: (D,) sums, and (n,) sums of squares of what each record has added.
    """
    module: Any = np if isinstance(norms, np.ndarray) else torch
    wanted = sums.units * _ROOM / (norms**0.5).clip(min=sums.clip_norm)
    finite = (wanted < math.inf) & (norms < math.inf)
    factors = module.asarray(module.where(finite, wanted, 0.0), dtype=module.float32)
    attempts = 0
    while True:
        totals, found = added(factors)
        long, attempts = found > sums.units**2, attempts + 1
        if not long.any():
            return totals, factors
        factors[long] *= _SHORTER if attempts < _ATTEMPTS else 0.0


Factored = tuple[torch.Tensor, torch.Tensor]
"""(n, repeat) and (n, width) float32: a record's gradient in a parameter is their outer product, flat."""


AT_ONCE = 1 << 24
"""Numbers that records' gradients are written out to at a time."""


def clipped_sum(gradients: Sequence[Factored], sums: ClippedSums) -> tuple[torch.Tensor, int]:
    """What `sums` makes of the records' gradients, on their device.

    Returns: (D,) int64 sums, and how many records were left out as their gradients are not finite.
    Guarantees: each record's integers have an L2 norm of at most `units`, as checked in exact arithmetic.
    """
    check_records(len(factor) for factored in gradients for factor in factored)
    rows = [
        given.double().square().sum(dim=1) * back.double().square().sum(dim=1)
        for back, given in gradients
    ]
    totals, factors = _settled(
        torch.stack(rows).sum(dim=0), sums, lambda found: _added(gradients, found, sums)
    )
    return totals, int((factors == 0).sum())


def _added(
    gradients: Sequence[Factored], factors: torch.Tensor, sums: ClippedSums
) -> tuple[torch.Tensor, torch.Tensor]:
    """(D,) int64 sums, and (n,) sums of squares of what each record has added.

    The squares are summed in 64-bit floats: exact to 2^53, and whatever is beyond is found to be too long all the same.
    """
    limit = float(sums.units + 1)
    totals: list[torch.Tensor] = []
    squares = torch.zeros(len(factors), dtype=torch.float64, device=factors.device)
    for back, given in gradients:
        gains = back * factors[:, None]
        size = back.shape[1] * given.shape[1]
        total = torch.zeros(size, dtype=torch.int64, device=factors.device)
        # A compiler writes no record's gradient out; without one, a few records at a time.
        compiled = factors.is_cuda and gpu.compiler_works()
        together = len(factors) if compiled else max(1, AT_ONCE // max(1, size))
        for first in range(0, len(factors), together):
            records = slice(first, first + together)
            arguments = (gains[records], given[records], factors[records], limit)
            total += _integer_sums(*arguments).flatten()
            squares[records] += _integer_squares(*arguments)
        totals.append(total)
    return torch.cat(totals), squares


def _integers_of_records(
    gains: torch.Tensor, given: torch.Tensor, factors: torch.Tensor, limit: float
) -> torch.Tensor:
    """(n, repeat, width) float32: the clipped gradients in units, cut to whole numbers."""
    scaled = gains[:, :, None] * given[:, None, :]
    # A record with factor 0 may hold infinities, which times 0 are NaN.
    scaled = torch.where(factors[:, None, None] > 0, scaled, 0.0).nan_to_num(-limit)
    return scaled.clamp(-limit, limit).trunc()


@gpu.compiled_on_devices
def _integer_sums(
    gains: torch.Tensor, given: torch.Tensor, factors: torch.Tensor, limit: float
) -> torch.Tensor:
    """(repeat, width) int64 sums over the records."""
    return _integers_of_records(gains, given, factors, limit).long().sum(dim=0)


@gpu.compiled_on_devices
def _integer_squares(
    gains: torch.Tensor, given: torch.Tensor, factors: torch.Tensor, limit: float
) -> torch.Tensor:
    """(n,) float64 sums of the squares of each record's integers."""
    return _integers_of_records(gains, given, factors, limit).double().square().sum(dim=(1, 2))


def decide(words: torch.Tensor, table: torch.Tensor, law: RoundedGaussian) -> torch.Tensor:
    """(n,) draws that (n,) int64 words lead to, UNDECIDED where they do not: `compiled.draw`, step by step."""
    return _decide(words, table, law.sigma, law.margin)


@gpu.compiled_on_devices
def _decide(words: torch.Tensor, table: torch.Tensor, sigma: float, margin: float) -> torch.Tensor:
    bits = (words & octaves.MAGNITUDE).double().view(torch.int64)
    cell = (bits >> octaves.SHIFT) - octaves.FIRST_CELL
    row = table[cell.clamp(min=0)]
    t = ((bits & octaves.IN_CELL) | octaves.ONE).view(torch.float64) - octaves.MIDDLE
    z = row[:, -1]
    for term in range(octaves.TERMS - 2, -1, -1):
        z = z * t + row[:, term]
    spread = sigma * z
    raised = torch.where(words < 0, -spread, spread) + 0.5
    whole = raised.floor()
    rest = raised - whole
    decided = (cell >= 0) & (rest > margin) & (rest < 1 - margin)
    return torch.where(decided, whole.long(), UNDECIDED)


def rounded_gaussian(
    law: RoundedGaussian, key: bytes, size: int, device: torch.device
) -> torch.Tensor:
    """(size,) int64 independent draws on a device; coordinate i takes word i of the key's ChaCha20 stream.

    The few draws that their word does not decide look closer on the CPU, at words of their own.
    """
    table = gpu.to_device(gaussian.quantiles(), device)
    device_key = gpu.key_on(key, device)
    draws = torch.empty(size, dtype=torch.int64, device=device)
    for begin in range(0, size, gpu.CHUNK):
        part = draws[begin : begin + gpu.CHUNK]
        words = gpu.draw_words(device_key, begin // gpu.WORDS_PER_BLOCK, part.numel())
        part.copy_(decide(words, table, law))
        places = (part == UNDECIDED).nonzero().flatten()
        closer = [
            law.closer(word & (2**64 - 1), gaussian._further(key, begin + place))
            for word, place in zip(words[places].tolist(), places.tolist(), strict=True)
        ]
        part[places] = torch.tensor(closer, dtype=torch.int64, device=device)
    device_key.zero_()
    return draws


CHOICES = (1, 2, 4, 8, 16)
"""Numbers of steps to correlate noise over that `choose_bands` compares."""


def choose_bands(
    target_epsilon: float,
    *,
    batch_size: int,
    dataset_size: int,
    steps: int,
    delta: float,
    neighboring: Neighboring,
) -> int:
    """The number of bands, of 1, 2, 4, 8 and 16, with the least noise in the last iterate of plain SGD.

    Arguments: of the run, as for `make_private`; nothing but these decides, so the choice costs nothing.
    """
    costs: dict[int, float] = {}
    for bands in CHOICES:
        if bands * batch_size <= dataset_size:
            noise = least_noise(
                target_epsilon, sampling_rate=bands * batch_size / dataset_size, steps=participations(steps, bands),
                delta=delta, neighboring=neighboring,
            )  # fmt: skip
            costs[bands] = noise * last_noise(bands, steps)
    return min(costs, key=costs.__getitem__)


@final
class CorrelatedNoise:
    """Mixes integer sums of several steps before the noise, and solves for the steps' sums behind it.

    Arguments:
        bands: how many steps a sum is spread over.
        drawn: how many batches the loader has drawn so far: the records of `bands` batches in a row are disjoint.
    Guarantees: released is C X + N, X the sums of the steps, N independent rounded Gaussian noise of multiplier z in
        units of SCALE clip norms; what `solve` makes of it depends on nothing else. Sums of earlier steps are kept in
        memory alone, and never copied or pickled.
    Source: docs/proofs/training.md, "Correlated noise"; Choquette-Choo et al. 2023.
    """

    def __init__(self, bands: int, drawn: Callable[[], int]) -> None:
        self.integers = coefficients(bands)
        self._drawn, self._last = drawn, 0
        self._settings: tuple[object, ...] | None = None
        self._sums: deque[npt.NDArray[np.int64]] = deque(maxlen=bands - 1)
        self._solved: deque[npt.NDArray[np.float64]] = deque(maxlen=bands - 1)

    def __reduce__(self) -> NoReturn:
        raise ParameterError(
            "optimizer", "bands", "copies would use a record's one part in the noise twice"
        )

    def check(self, *settings: object) -> None:
        """Before a step releases anything: its batch is the next one, and noise and weights are as they were.

        Raises:
            ParameterError: a batch that was left out or is used again, other settings than in the first step.
        """
        drawn = self._drawn()
        if drawn != self._last + 1:
            remedy = "with bands every batch of the loader needs one step, in order; none may be left out or come twice"
            raise ParameterError("loader", f"batch {drawn} after {self._last}", remedy)
        if self._settings not in (None, settings):
            raise ParameterError(
                "optimizer",
                "changed",
                "with bands noise, clip norm and weights stay what they were",
            )
        self._last, self._settings = drawn, settings

    def mix(self, summed: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """(D,) C X of this step, from its sum and those kept."""
        mixed = self.integers[0] * summed
        for factor, earlier in zip(self.integers[1:], self._sums, strict=False):
            mixed = mixed + factor * earlier
        self._sums.appendleft(summed)
        return mixed

    def solve(self, released: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """(D,) the step's sum with its noise, from what was released in this step and before."""
        found = solved(len(self.integers), released, dict(enumerate(self._solved, start=1)))
        self._solved.appendleft(found)
        return found
