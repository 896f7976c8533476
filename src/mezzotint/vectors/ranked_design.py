"""From a dimension and an epsilon to the ranked codebook with the least error or the fewest bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from operator import attrgetter
from typing import Literal, final

from mezzotint.core.arguments import check_count
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.vectors.codewords import Kind, gaussian_constant
from mezzotint.vectors.rank_table import RankTable, rank_table
from mezzotint.vectors.ranked import Norms, RankedCodebook

MOST_BITS = 14
"""Most bits of one index: a client makes 2**13 rows of normal numbers for it."""
CHOSEN_BITS = 12
"""Most bits of one index by default."""
REPORT_BITS = 62
"""Most bits of a report of several indices, which is one 64-bit integer."""
DENSE = 2048
"""Up to this many coordinates codewords are as long as the vectors; beyond it they live in a
subspace."""
SUBSPACE = 1024
"""Its default dimension, which increases the error by a factor of about 1 + (1 - 1 / A) / (2 *
1024)."""
SPLIT = 10.0
"""From this epsilon on, reports of several indices are tried."""
NULL = 4.0
"""From this epsilon of an index on, a null output is chosen for vectors of any norm."""
_ROTATION_WORK = 2**20
"""Largest work (coordinates times squared rows) of orthonormal codewords that "auto" considers."""
_DRAWN_NUMBERS = 2**15
"""Most normal numbers that "auto" lets the server draw for a report of kind "G"."""

_SMALL_SIMPLEX = 8
"""More codewords are always better, except among so few."""

_NULL_OUTPUTS = 4
"""Fewer outputs of an index leave none for the zero vector."""

Choice = Literal["auto", "S", "X", "G", "GX"]


def ranked_codebook(
    dimension: int,
    epsilon: float,
    bits: int | None = None,
    *,
    tolerance: float = 0.05,
    codebook: Choice = "auto",
    norms: Literal["auto", "unit", "slack", "null"] = "auto",
    subspace: int | None = None,
    clip_norm: float = 1.0,
    beacon: str = "",
) -> RankedCodebook:
    """The best ranked codebook of at most `bits`, or one of fewest bits nearly as good as PrivUnitG.

    Arguments:
        dimension: d, coordinates of a vector.
        epsilon: pure epsilon of one report about the whole vector, > 0.
        bits: most bits of a report. None: the fewest with an error of at most (1 + tolerance) times
            PrivUnitG's; when 12 bits an index do not suffice, the design with the least error.
        tolerance: > 0.
        codebook: a kind of codewords, or "auto": "S", "X" where rotating is cheap, "G" where
            codewords are few (the server draws all M of every report), else "GX".
        norms: see `RankedCodebook`. "auto": "null" from epsilon = 4 an index on (at most 1.5 % more
            error at the clipping norm, up to 13 times less for short vectors), else "slack".
        subspace: coordinates of the codewords; None: all d up to 2048, else 1024.
        clip_norm: data units.
        beacon: public text mixed into codewords: the collection's name and a public random value.
    Returns: the codebook, which prints its ratio to PrivUnitG.
    Raises:
        ParameterError: naming the parameter, its value and the remedy.
        InfeasibleError: no codebook of this kind exists with this number of bits.
    Guarantees: `epsilon` of the result is at most the one asked for, exactly.
    Example:
        >>> scheme = ranked_codebook(1000, 4.0, bits=8)
        >>> report = scheme.encode([0.6, 0.8] + [0.0] * 998, seed=7)
        >>> scheme.bits, scheme.decode(report, 7).shape
        (8, (1000,))
    """
    if not isinstance(epsilon, (int, float)) or not 1e-6 <= epsilon <= 200:
        raise ParameterError("epsilon", epsilon, "need a number from 1e-6 to 200")
    if not 0 < tolerance < math.inf:
        raise ParameterError("tolerance", tolerance, "need a positive number, e.g. 0.05")
    request = _Request(
        dimension=check_count("dimension", dimension),
        epsilon=epsilon,
        tolerance=tolerance,
        codebook=codebook,
        norms=norms,
        subspace=subspace,
        beacon=beacon,
    )
    if bits is None:
        chosen = request.fewest_bits()
    else:
        chosen = request.least_error(check_count("bits", bits))
    if chosen is None:
        problem = f"epsilon={epsilon:g}: no codebook of kind {codebook} fits"
        raise InfeasibleError(f"{problem}; use other bits or codebook=auto")
    return replace(chosen, clip_norm=clip_norm)


@final
@dataclass(frozen=True, kw_only=True)
class _Request:
    """What a codebook is designed for: the arguments of `ranked_codebook`."""

    dimension: int
    epsilon: float
    tolerance: float
    codebook: Choice
    norms: Literal["auto", "unit", "slack", "null"]
    subspace: int | None
    beacon: str

    @property
    def splits(self) -> range:
        """Numbers of indices in a report that are tried."""
        if self.epsilon < SPLIT:
            return range(1, 2)
        most_indices = max(2, round(self.epsilon / 3))
        return range(1, min(most_indices, REPORT_BITS) + 1)

    def good(self, design: RankedCodebook | None) -> bool:
        """Whether the error is within tolerance of PrivUnitG's."""
        return design is not None and design.mse <= (1 + self.tolerance) * design.optimum

    def best(self, limit: int, indices: int) -> RankedCodebook | None:
        """The least error with at most `limit` outputs per index."""
        norms = self._norms(limit, indices)
        coordinates = self.dimension + (norms == "slack")
        share = gaussian_constant(self.epsilon / indices)[1]
        designs: list[RankedCodebook | None] = []
        for kind, codewords in _candidates(coordinates, limit - (norms == "null"), self.codebook):
            make_codebook = partial(
                RankedCodebook,
                kind=kind,
                dimension=self.dimension,
                norms=norms,
                indices=indices,
                beacon=self.beacon,
                subspace=_subspace(kind, coordinates, self.subspace),
            )
            make_table = partial(
                rank_table,
                codewords=codewords,
                epsilon=Fraction(self.epsilon) / indices,
                null=norms == "null",
            )
            designs.append(_best_top(codewords, share, make_table, make_codebook))
        return _of_least_error(designs)

    def least_error(self, bits: int) -> RankedCodebook | None:
        """The least error of reports of at most `bits`."""
        bits = min(bits, REPORT_BITS)
        designs: list[RankedCodebook | None] = []
        for indices in self.splits:
            if bits < indices:
                break
            index_bits = min(bits // indices, MOST_BITS)
            designs.append(self.best(2**index_bits, indices))
        return _of_least_error(designs)

    def fewest_bits(self) -> RankedCodebook | None:
        """The fewest bits with which the error is within tolerance; else the least error."""
        designs = [self._fewest_index_bits(indices) for indices in self.splits]
        good = [design for design in designs if design and self.good(design)]
        if good:
            return min(good, key=attrgetter("bits", "mse"))
        return _of_least_error(designs)

    def _fewest_index_bits(self, indices: int) -> RankedCodebook | None:
        """The fewest bits of an index within tolerance, or else the most.

        The search starts at a rule of thumb.
        """
        largest_bits = min(CHOSEN_BITS, REPORT_BITS // indices)
        wanted_bits = max(1, round(3 + 0.8 * self.epsilon))
        index_bits = min(wanted_bits, largest_bits)
        design = self.best(2**index_bits, indices)
        while index_bits < largest_bits and not self.good(design):
            index_bits += 1
            design = self.best(2**index_bits, indices)
        while index_bits > 1 and self.good(design):
            index_bits -= 1
            smaller_design = self.best(2**index_bits, indices)
            if not self.good(smaller_design):
                break
            design = smaller_design
        return design

    def _norms(self, limit: int, indices: int) -> Norms:
        if self.norms != "auto":
            return self.norms
        if self.epsilon / indices >= NULL and limit >= _NULL_OUTPUTS:
            return "null"
        return "slack"


def _candidates(
    size: int,
    limit: int,
    codebook: Choice,
) -> Iterator[tuple[Kind, int]]:
    """Kinds and numbers of codewords worth trying."""
    if codebook in ("S", "G"):
        largest = min(limit, size + 1) if codebook == "S" else limit
        for codewords in _simplex_sizes(limit, largest):
            yield codebook, codewords
        return
    even_limit = limit - limit % 2
    if codebook == "auto":
        for codewords in _simplex_sizes(limit, min(limit, size + 1)):
            if size * codewords**2 <= _ROTATION_WORK:
                yield "S", codewords
    if codebook in ("auto", "X"):
        cross_codewords = min(even_limit, 2 * size)
        is_cheap = size * (cross_codewords // 2) ** 2 <= _ROTATION_WORK
        if cross_codewords >= 2 and (is_cheap or codebook == "X"):
            yield "X", cross_codewords
    if codebook == "auto" and limit >= 2 and limit * min(size, SUBSPACE) <= _DRAWN_NUMBERS:
        yield "G", limit
    if codebook in ("auto", "GX") and even_limit >= 2:
        yield "GX", even_limit


def _simplex_sizes(limit: int, largest: int) -> list[int]:
    """The largest number of codewords, and all small ones up to it."""
    sizes = {*range(2, min(limit, _SMALL_SIMPLEX) + 1), largest}
    return [size for size in sorted(sizes) if 2 <= size <= largest]


def _subspace(kind: Kind, size: int, subspace: int | None) -> int | None:
    if kind in ("S", "X"):
        return None
    if subspace is None:
        return SUBSPACE if size > DENSE else None
    padded = 1 << (size - 1).bit_length()
    if check_count("subspace", subspace) > padded // 2:
        return None
    return subspace


def _of_least_error(designs: Iterable[RankedCodebook | None]) -> RankedCodebook | None:
    return min(filter(None, designs), key=attrgetter("mse"), default=None)


def _best_top(
    codewords: int,
    share: float,
    make_table: Callable[..., RankTable],
    make_codebook: Callable[..., RankedCodebook],
) -> RankedCodebook | None:
    """The least error, which is unimodal in the number of codewords on top; None if no table has
    them. The search starts near a share of them.
    """
    designs: dict[int, RankedCodebook | None] = {}

    def error(top: int) -> float:
        if not 1 <= top <= codewords // 2:
            return math.inf
        if top not in designs:
            designs[top] = None
            with suppress(InfeasibleError):
                designs[top] = make_codebook(table=make_table(top=top))
        design = designs[top]
        return math.inf if design is None else design.mse

    top = min(max(1, round(share * codewords)), codewords // 2)
    stride = max(1, top // 8)
    while True:
        neighbour = min((top - stride, top + stride), key=error)
        if error(neighbour) < error(top):
            top = neighbour
        elif stride > 1:
            stride //= 2
        else:
            return designs[top]
