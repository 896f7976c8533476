"""Clipped gradients rounded to integers and added up, compiled or on a device, and Gaussian noise for their sums.

The noise may be correlated over some steps: much of it cancels in the iterates, and every record pays once for them.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, final

import numpy as np
import numpy.typing as npt

from mezzotint.core import gpu
from mezzotint.core.arguments import Neighboring
from mezzotint.core.errors import ParameterError
from mezzotint.core.kernels import compiled, inlined
from mezzotint.core.mechanism import FloatArray, IntArray
from mezzotint.training.models import torch
from mezzotint.training.quantized import Gradients, Totals
from mezzotint.training.rqp.accounting import noise_multiplier as least_noise
from mezzotint.training.rqp.phases import participations
from mezzotint.vectors import gaussian
from mezzotint.vectors.gaussian import UNDECIDED, RoundedGaussian
from mezzotint.vectors.rotation import coefficients, last_noise, solved

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
def add_squares(rows: npt.NDArray[np.float32], squares: FloatArray) -> None:
    """Adds each row's sum of squares; rows (n, width) contiguous float32."""
    for i in range(rows.shape[0]):
        squares[i] += _sum_of_squares(rows[i])


@inlined
def _integer(value: np.float32, limit: np.float32) -> np.int32:
    """The value without its fraction, never outside [-limit, limit]; NaN becomes -limit."""
    value = value if value > -limit else -limit
    return np.int32(value if value < limit else limit)


@partial(inlined, reorder=True)
def _add_rounded(values: npt.NDArray[np.float32], gain: np.float32, limit: np.float32, totals: Totals) -> float:
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
                found = _add_rounded(rows[i, start:end], gains[i, r] * factors[i], limit, totals[r, start:end])
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
        norms = sum(squares(gradient.rows) * squares(gradient.gains) for gradient in gradients)
        with np.errstate(invalid="ignore"):
            wanted = self.units * _ROOM / np.maximum(np.sqrt(norms), self.clip_norm)
        factors = np.where(np.isfinite(wanted) & np.isfinite(norms), wanted, 0).astype(np.float32)
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


def squares(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """(n,) each row's sum of squares, in an order that depends on its length alone."""
    found = np.zeros(len(rows))
    add_squares(rows, found)
    return found


Factored = tuple[torch.Tensor, torch.Tensor]
"""(n, repeat) and (n, width) float32: a record's gradient in a parameter is their outer product, flat."""


AT_ONCE = 1 << 24
"""Numbers that records' gradients are written out to at a time."""


def clipped_sum(gradients: Sequence[Factored], sums: ClippedSums) -> tuple[torch.Tensor, int]:
    """What `sums` makes of the records' gradients, on their device.

    Returns: (D,) int64 sums, and how many records were left out as their gradients are not finite.
    Guarantees: each record's integers have an L2 norm of at most `units`, as checked in exact arithmetic.
    """
    rows = [given.double().square().sum(dim=1) * back.double().square().sum(dim=1) for back, given in gradients]
    squares: torch.Tensor = torch.stack(rows).sum(dim=0)
    wanted = sums.units * _ROOM / squares.sqrt().clamp(min=sums.clip_norm)
    factors = torch.where(wanted.isfinite() & squares.isfinite(), wanted, 0.0).float()
    for attempt in range(_ATTEMPTS + 1):
        totals, found = _added(gradients, factors, sums)
        long = found > sums.units**2
        if not bool(long.any()):
            break
        shorter = _SHORTER if attempt + 1 < _ATTEMPTS else 0.0
        factors = torch.where(long, factors * shorter, factors)
    return totals, int((factors == 0).sum())


def _added(
    gradients: Sequence[Factored], factors: torch.Tensor, sums: ClippedSums
) -> tuple[torch.Tensor, torch.Tensor]:
    """(D,) int64 sums, and (n,) sums of squares of what each record has added.

    The squares are summed in 64-bit floats: exact to 2^53, and whatever is beyond is found to be too long all the same.
    """
    limit, parts = float(sums.units + 1), []
    squares = torch.zeros(len(factors), dtype=torch.float64, device=factors.device)
    for back, given in gradients:
        total = torch.zeros(back.shape[1], given.shape[1], dtype=torch.int64, device=factors.device)
        gains = back * factors[:, None]
        together = max(1, AT_ONCE // max(1, total.numel()))
        for first in range(0, len(factors), together):
            mine = slice(first, first + together)
            scaled = gains[mine, :, None] * given[mine, None, :]
            # A record with factor 0 may hold infinities, which times 0 are NaN.
            scaled = torch.where(factors[mine, None, None] > 0, scaled, 0.0).nan_to_num(-limit)
            whole = scaled.clamp(-limit, limit).trunc()
            total += whole.long().sum(dim=0)
            squares[mine] += whole.double().square().sum(dim=(1, 2))
        parts.append(total.flatten())
    return torch.cat(parts), squares


def decide(words: torch.Tensor, table: torch.Tensor, law: RoundedGaussian) -> torch.Tensor:
    """(n,) draws that (n,) int64 words lead to, UNDECIDED where they do not: `compiled.draw`, step by step."""
    bits = (words & gaussian._BELOW_SIGN).double().view(torch.int64)
    cell = (bits >> gaussian._SHIFT) - gaussian._FIRST_CELL
    row = table[cell.clamp(min=0)]
    t = ((bits & gaussian._WITHIN) | gaussian._ONE).view(torch.float64) - gaussian._MIDDLE
    z = row[:, -1]
    for term in range(gaussian.TERMS - 2, -1, -1):
        z = z * t + row[:, term]
    spread = law.sigma * z
    raised = torch.where(words < 0, -spread, spread) + 0.5
    whole = raised.floor()
    rest = raised - whole
    decided = (cell >= 0) & (rest > law.margin) & (rest < 1 - law.margin)
    return torch.where(decided, whole.long(), UNDECIDED)


def rounded_gaussian(law: RoundedGaussian, key: bytes, size: int, device: torch.device) -> torch.Tensor:
    """(size,) int64 independent draws on a device; coordinate i takes word i of the key's ChaCha20 stream.

    The few draws that their word does not decide look closer on the CPU, at words of their own.
    """
    table = gpu.to_device(gaussian.quantiles(), device)
    own, found = gpu.key_on(key, device), torch.empty(size, dtype=torch.int64, device=device)
    for begin in range(0, size, gpu.CHUNK):
        part = found[begin : begin + gpu.CHUNK]
        blocks = -(-part.numel() // gpu.WORDS_PER_BLOCK)
        halves = gpu.halves(own, begin // gpu.WORDS_PER_BLOCK, blocks)
        words = halves.contiguous().view(torch.int64).flatten()[: part.numel()]
        part.copy_(decide(words, table, law))
        places = (part == UNDECIDED).nonzero().flatten()
        closer = [
            law.closer(word & (2**64 - 1), gaussian._further(key, begin + place))
            for word, place in zip(words[places].tolist(), places.tolist(), strict=True)
        ]
        part[places] = torch.tensor(closer, dtype=torch.int64, device=device)
    own.zero_()
    return found


CHOICES = (1, 2, 4, 8, 16)
"""Numbers of steps to correlate noise over that `choose_bands` compares."""


def choose_bands(
    target_epsilon: float, *, batch_size: int, dataset_size: int, steps: int, delta: float, neighboring: Neighboring
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
        raise ParameterError("optimizer", "bands", "copies would use a record's one part in the noise twice")

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
            raise ParameterError("optimizer", "changed", "with bands noise, clip norm and weights stay what they were")
        self._last, self._settings = drawn, settings

    def mix(self, summed: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """(D,) C X of this step, from its sum and those kept."""
        mixed = self.integers[0] * summed
        for factor, earlier in zip(self.integers[1:], self._sums, strict=False):
            mixed = mixed + factor * earlier
        if self._sums.maxlen:
            self._sums.appendleft(summed)
        return mixed

    def solve(self, released: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """(D,) the step's sum with its noise, from what was released in this step and before."""
        found = solved(len(self.integers), released, dict(enumerate(self._solved, start=1)))
        if self._solved.maxlen:
            self._solved.appendleft(found)
        return found
