"""Noise that every client is sure to add: translation blankets, exact in integers.

A blanket says: whatever its input, a client draws component l with probability g_l (the same for
every input), a shift that may depend on the input, and then noise from the component's fixed shape.
A sum cares about differences only, so the noise need not sit at the same place for every input.

From a blanket to a bound on delta(epsilon) of one secure sum, worst over pairs of rows:
    delta(eps) <= sup over rows x, x' of E_N[ HS_eps(p(x) * R_N || p(x') * R_N) ]    (Theorem S')
with R_N the noise of the components that the other honest clients drew (docs/proofs/sums.md).

`rows` are a table's rows on its lattice everywhere: (rows, span + 1) integers that sum to 2**32.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd, lcm
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.core.types import TOTAL, FloatArray, IndexArray, IntArray
from mezzotint.privacy.sums.convolution import variance_of

_PASSES = 200
"""Passes that remove what a solver's floats overshot; each strictly shrinks the overshoot."""


def _frozen(values: npt.ArrayLike) -> IntArray:
    array = np.array(values, dtype=np.int64)
    array.setflags(write=False)
    return array


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Component:
    """One shape of noise and where each row of the table may place it.

    Arguments:
        shape: (r,) integers >= 0, the noise's pmf on 0..r-1 times their sum.
        shifts: (rows, s) masses, in units of 2**-32, that each row gives to noise starting at each
            place; of one sum.
    """

    shape: IntArray
    shifts: IntArray

    def __post_init__(self) -> None:
        shape = _frozen(self.shape)
        shifts = _frozen(self.shifts)
        is_row = shape.ndim == 1 and shape.size > 0
        if not is_row or shape.min() < 0 or shape.sum() <= 0:
            remedy = "need integers >= 0 with a positive sum"
            raise ParameterError("shape", shape.tolist(), remedy)
        is_table = shifts.ndim == 2 and shifts.size > 0
        if not is_table or shifts.min() < 0:
            remedy = "need one row of integers >= 0 per row of the table"
            raise ParameterError("shifts", shifts.shape, remedy)
        row_masses = shifts.sum(axis=1)
        if np.ptp(row_masses) > 0:
            remedy = "every row must place the same mass"
            raise ParameterError("shifts", row_masses.tolist(), remedy)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "shifts", shifts)

    @property
    def mass(self) -> int:
        """Units of 2**-32 of the component's probability."""
        first_row = self.shifts[0]
        return int(first_row.sum())

    @property
    def weight(self) -> int:
        """The sum of the shape."""
        return int(self.shape.sum())

    @property
    def pmf(self) -> FloatArray:
        """(r,) the noise's probabilities, each right to a relative 2**-53."""
        return self.shape / float(self.weight)

    @property
    def variance(self) -> float:
        """Variance of one draw of the noise, squared lattice steps."""
        return variance_of(self.pmf)


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Blanket:
    """Components that every row of a table contains together.

    `is_valid_for` decides that, in exact integers.

    Arguments:
        components: at least one; all with a row of shifts for every row of the table.
        name: how it was found, for people.
    """

    components: tuple[Component, ...]
    name: str

    @property
    def masses(self) -> FloatArray:
        """(L,) probabilities of the components, exact."""
        units = np.array([component.mass for component in self.components])
        return units / float(TOTAL)

    @property
    def variances(self) -> FloatArray:
        """(L,) variance of one draw of each component, squared lattice steps."""
        return np.array([component.variance for component in self.components])

    @property
    def shapes(self) -> list[FloatArray]:
        """The noise pmfs."""
        return [component.pmf for component in self.components]

    @property
    def variance(self) -> float:
        """The variance that each client is sure to add, squared lattice steps: sum_l g_l Var(w_l)."""
        contributions = [component.mass * component.variance for component in self.components]
        return sum(contributions) / TOTAL

    @property
    def leaks(self) -> bool:
        """Whether all noise shares a divisor: then the sum's residue is not hidden at all."""
        common_divisor = 0
        for component in self.components:
            values = np.flatnonzero(component.shape)
            distances = values - values[0]
            common_divisor = gcd(common_divisor, *distances.tolist())
        return common_divisor != 1

    def is_valid_for(self, rows: IntArray) -> bool:
        """Whether sum_l shape_l * shifts_{k,l} <= row_k entrywise for every row k.

        In exact integers.
        """
        for component in self.components:
            if len(component.shifts) != len(rows):
                return False
        common = lcm(*(component.weight for component in self.components))
        fits = (self._fits(index, row, common) for index, row in enumerate(rows.tolist()))
        return all(fits)

    def _fits(self, index: int, row: list[int], common: int) -> bool:
        """Whether one row holds what the components use of it; `common` is a multiple of their sums."""
        used_units = [0] * len(row)
        for component in self.components:
            factor = common // component.weight
            row_shifts = component.shifts[index]
            shape: list[int] = component.shape.tolist()
            shifts: list[int] = row_shifts.tolist()
            if not _add_convolution(used_units, shape, shifts, factor):
                return False
        available_units = [common * weight for weight in row]
        return all(map(operator.le, used_units, available_units))


def _add_convolution(
    used: list[int],
    shape: list[int],
    shifts: list[int],
    factor: int,
) -> bool:
    """Add factor * (shape convolved with shifts); False when mass falls off the row's end."""
    for shift, mass in enumerate(shifts):
        for offset, weight in enumerate(shape):
            if mass == 0 or weight == 0:
                continue
            value = shift + offset
            if value >= len(used):
                return False
            used[value] += factor * mass * weight
    return True


def common_blanket(rows: IntArray) -> Blanket | None:
    """The plain blanket (Theorem S): the mass that all rows have in the same place.

    None when there is none.
    """
    shared = rows.min(axis=0)
    shared_levels = np.flatnonzero(shared)
    if not shared_levels.size:
        return None
    starts = np.full(len(rows), shared_levels[0])
    return _single(np.trim_zeros(shared), starts, "common mass")


def _single(shape: IntArray, starts: IndexArray, name: str) -> Blanket:
    """The blanket of one component, all of which stands at one place of each row.

    Arguments:
        starts: (rows,) where the shape begins.
    """
    row_count = starts.size
    shift_count = int(starts.max()) + 1
    shifts = np.zeros((row_count, shift_count), dtype=np.int64)
    shifts[np.arange(row_count), starts] = shape.sum()
    component = Component(shape=shape, shifts=shifts)
    return Blanket(components=(component,), name=name)


def additive_blanket(rows: IntArray) -> Blanket | None:
    """All of the randomness, where a report is its input plus noise that does not depend on it.

    None elsewhere. Then every row is one shape in another place, no leftover remains, and the bound
    of a sum is the n-fold convolution itself: discrete Gaussian, discrete Laplace and Skellam
    tables are accounted so.
    """
    is_positive = rows > 0
    starts = is_positive.argmax(axis=1)
    shape = np.trim_zeros(rows[0])
    for row, start in zip(rows, starts.tolist(), strict=True):
        piece = row[start : start + shape.size]
        if not np.array_equal(piece, shape):
            return None
    return _single(shape, starts, "the noise itself")


def two_point(width: int) -> IntArray:
    """The shape (1, 0, ..., 0, 1): 0 or `width`, a fair coin decides."""
    coin = np.zeros(width + 1, dtype=np.int64)
    coin[[0, -1]] = 1
    return coin


def shape_blanket(
    rows: IntArray,
    shapes: Sequence[IntArray],
    shifts: Sequence[FloatArray],
    *,
    name: str,
) -> Blanket | None:
    """The blanket of these shapes nearest below a solver's, made exact.

    None when a component loses all mass.

    Arguments:
        shapes: integers >= 0 each, with sums up to 2**20 (powers of two keep the arithmetic short).
        shifts: per shape an array (rows, span + 2 - shape size) of probabilities; anything goes.
        name: as of `Blanket`.

    Guarantees: the result fits `rows` in exact integers.
    """
    masses_by_shape: list[IntArray] = []
    for probabilities in shifts:
        finite = np.nan_to_num(probabilities)
        clipped = np.clip(finite, 0, 1)
        masses = np.floor(clipped * TOTAL)
        masses_by_shape.append(masses.astype(np.int64))
    for row, *row_masses in zip(rows, *masses_by_shape, strict=True):
        _shrink_to_fit(row, shapes, row_masses)
    components: list[Component] = []
    for shape, masses in zip(shapes, masses_by_shape, strict=True):
        row_sums = masses.sum(axis=1)
        common_mass = int(row_sums.min())
        if common_mass == 0:
            return None
        cut_masses = _cut_to(masses, common_mass)
        component = Component(shape=shape, shifts=cut_masses)
        components.append(component)
    blanket = Blanket(components=tuple(components), name=name)
    if not blanket.is_valid_for(rows):
        return None
    return blanket


def _shrink_to_fit(
    row: IntArray,
    shapes: Sequence[IntArray],
    masses: list[IntArray],
) -> None:
    """Lower shift masses in place until the row is nowhere exceeded."""
    weights = [int(shape.sum()) for shape in shapes]
    common = lcm(*weights)
    scaled: list[IntArray] = []
    for shape, weight in zip(shapes, weights, strict=True):
        scaled.append(shape * (common // weight))
    for _ in range(_PASSES):
        used_units = np.zeros_like(row)
        for shape, shape_masses in zip(scaled, masses, strict=True):
            used_units += np.convolve(shape, shape_masses)
        excess = np.maximum(used_units - common * row, 0)
        if not excess.any():
            return
        for shape, shape_masses in zip(scaled, masses, strict=True):
            for offset in np.flatnonzero(shape).tolist():
                shifted_excess = excess[offset : offset + shape_masses.size]
                weight = int(shape[offset])
                reduction = -(-shifted_excess // weight)  # rounded up
                shape_masses -= np.minimum(shape_masses, reduction)


def _cut_to(masses: IntArray, mass: int) -> IntArray:
    """Every row lowered, from its end, to the sum `mass`."""
    before = np.cumsum(masses, axis=1) - masses
    return np.clip(mass - before, 0, masses)


def as_probabilities(rows: IntArray) -> FloatArray:
    """Integer rows over 2**32: exact."""
    return rows / float(TOTAL)


def row_means(rows: FloatArray) -> FloatArray:
    """Mean of every row of probabilities on 0..span, lattice steps."""
    _row_count, level_count = rows.shape
    values = np.arange(level_count, dtype=np.float64)
    return rows @ values
