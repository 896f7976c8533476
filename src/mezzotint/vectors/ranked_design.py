"""From a dimension and an epsilon to the ranked codebook with the least error or the fewest bits."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Literal

from mezzotint.core.arguments import check_choice, check_count
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.records import JsonObject
from mezzotint.vectors.codewords import KINDS, Kind, gaussian_constant
from mezzotint.vectors.ranked import Norms, RankedCodebook, rank_table

MOST_BITS = 14
"""Most bits of one index: a client makes 2**13 rows of normal numbers for it."""
CHOSEN_BITS = 12
"""Most bits of one index by default."""
REPORT_BITS = 62
"""Most bits of a report of several indices, which is one 64-bit integer."""
DENSE = 2048
"""Up to this many coordinates codewords are as long as the vectors; beyond it they live in a subspace."""
SUBSPACE = 1024
"""Its default dimension, which increases the error by a factor of about 1 + (1 - 1 / A) / (2 * 1024)."""
SPLIT = 10.0
"""From this epsilon on, reports of several indices are tried."""
NULL = 4.0
"""From this epsilon of an index on, a null output is chosen for vectors of any norm."""
_ROTATION = (
    2**20
)  # largest work (coordinates times squared rows) of orthonormal codewords that "auto" considers
_ROWS = 2**15  # most normal numbers that "auto" lets the server draw for a report of kind "G"

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
    """The best ranked codebook of at most `bits`, or the one of fewest bits that is nearly as good as PrivUnitG.

    Arguments:
        dimension: d, coordinates of a vector.
        epsilon: pure epsilon of one report about the whole vector, > 0.
        bits: most bits of a report. None: the fewest with which the error is at most (1 + tolerance) times that of
            PrivUnitG at this epsilon; when 12 bits an index do not suffice, the design with the least error.
        tolerance: > 0.
        codebook: a kind of codewords, or "auto": "S" and "X" where rotating them is cheap, "G" where codewords are few
            (then it is better than "GX", but the server draws all M codewords of every report), else "GX".
        norms: see `RankedCodebook`. "auto": "null" from epsilon = 4 an index on, where it increases the error by at
            most 1.5 % at the clipping norm and reduces that of short vectors up to 13 times; else "slack", at no cost.
        subspace: coordinates of the codewords; None: all d up to 2048, else 1024.
        clip_norm: data units.
        beacon: public text mixed into codewords, e.g. the name of the collection and a public random value.

    Returns: the codebook, which prints its ratio to PrivUnitG.

    Raises:
        ParameterError: naming the parameter, its value and the remedy.
        InfeasibleError: no codebook of this kind exists with this number of bits.

    Guarantees: `epsilon` of the result is at most the one asked for, exactly.

    Example:
        >>> scheme = ranked_codebook(1000, 4.0, bits=8)
        >>> scheme.bits
        8
        >>> report = scheme.encode([0.6, 0.8] + [0.0] * 998, seed=7)
        >>> scheme.decode(report, 7).shape
        (1000,)
    """
    if not isinstance(epsilon, (int, float)) or not 1e-6 <= epsilon <= 200:
        raise ParameterError("epsilon", epsilon, "need a number from 1e-6 to 200")
    if not 0 < tolerance < math.inf:
        raise ParameterError("tolerance", tolerance, "need a positive number, e.g. 0.05")
    check_choice("codebook", codebook, ("auto", *KINDS))
    dimension = check_count("dimension", dimension)
    bits = None if bits is None else check_count("bits", bits)

    def best(limit: int, indices: int) -> RankedCodebook | None:
        """The least error with at most `limit` outputs per index."""
        # Very few outputs leave none for the zero vector.
        plain: Norms = "null" if epsilon / indices >= NULL and limit >= 4 else "slack"
        style: Norms = plain if norms == "auto" else norms
        found: list[RankedCodebook] = []
        for kind, codewords in _candidates(
            dimension + (style == "slack"), limit - (style == "null"), codebook
        ):
            options: JsonObject = {
                "kind": kind, "dimension": dimension, "norms": style, "indices": indices, "beacon": beacon,
                "subspace": _subspace(kind, dimension + (style == "slack"), subspace),
            }  # fmt: skip
            if (design := _best_top(options, codewords, Fraction(epsilon) / indices)) is not None:
                found.append(design)
        return min(found, key=lambda one: one.mse, default=None)

    most = 1 if epsilon < SPLIT else min(max(2, round(epsilon / 3)), REPORT_BITS)
    splits = range(1, most + 1)
    if bits is not None:
        room = min(bits, REPORT_BITS)
        designs = [best(2 ** min(room // b, MOST_BITS), b) for b in splits if room >= b]
    else:
        designs = [
            _fewest(
                lambda limit, b=b: best(limit, b),
                epsilon,
                tolerance,
                min(CHOSEN_BITS, REPORT_BITS // b),
            )
            for b in splits
        ]
        good = [
            one for one in designs if one is not None and one.mse <= (1 + tolerance) * one.optimum
        ]
        if good:
            return replace(min(good, key=lambda one: (one.bits, one.mse)), clip_norm=clip_norm)
    usable = [one for one in designs if one is not None]
    if not usable:
        remedy = "use other bits or codebook=auto"
        raise InfeasibleError(f"epsilon={epsilon:g}: no codebook of kind {codebook} fits; {remedy}")
    return replace(min(usable, key=lambda one: one.mse), clip_norm=clip_norm)


def _candidates(size: int, limit: int, codebook: Choice) -> Iterator[tuple[Kind, int]]:
    """Kinds and numbers of codewords worth trying. More are always better, except in a small simplex."""
    few = range(2, min(limit, 8) + 1)
    if codebook in ("S", "G"):
        most = min(limit, size + 1) if codebook == "S" else limit
        for codewords in sorted({*few, most}):
            if 2 <= codewords <= most:
                yield codebook, codewords
        return
    even = limit - limit % 2
    if codebook == "auto":
        simplex = min(limit, size + 1)
        for codewords in sorted({*few, simplex}):
            if 2 <= codewords <= simplex and size * codewords**2 <= _ROTATION:
                yield "S", codewords
    if codebook in ("auto", "X"):
        cross = min(even, 2 * size)
        if cross >= 2 and (codebook == "X" or size * (cross // 2) ** 2 <= _ROTATION):
            yield "X", cross
    if codebook == "auto" and limit >= 2 and limit * min(size, SUBSPACE) <= _ROWS:
        yield "G", limit
    if codebook in ("auto", "GX") and even >= 2:
        yield "GX", even


def _subspace(kind: Kind, size: int, subspace: int | None) -> int | None:
    if kind in ("S", "X"):
        return None
    padded = 1 << (size - 1).bit_length()
    if subspace is not None:
        return subspace if check_count("subspace", subspace) <= padded // 2 else None
    return SUBSPACE if size > DENSE else None


def _best_top(options: JsonObject, codewords: int, epsilon: Fraction) -> RankedCodebook | None:
    """The codebook whose number of codewords on top has the least error, which is unimodal in it."""

    @cache
    def tried(top: int) -> RankedCodebook | None:
        with suppress(InfeasibleError):
            null = options["norms"] == "null"
            return RankedCodebook(
                table=rank_table(codewords=codewords, top=top, epsilon=epsilon, null=null),
                **options,
            )
        return None

    def error(top: int) -> float:
        design = tried(top) if 1 <= top <= codewords // 2 else None
        return math.inf if design is None else design.mse

    at = min(max(1, round(gaussian_constant(float(epsilon))[1] * codewords)), codewords // 2)
    step = max(1, at // 8)
    while True:
        here, nearest = error(at), min((at - step, at + step), key=error)
        if error(nearest) < here:
            at = nearest
        elif step == 1:
            return tried(at)
        else:
            step //= 2


def _fewest(
    best: Callable[[int], RankedCodebook | None], epsilon: float, tolerance: float, most: int
) -> RankedCodebook | None:
    """The fewest bits within tolerance, or else the most; the search starts at a rule of thumb."""

    def good(design: RankedCodebook | None) -> bool:
        return design is not None and design.mse <= (1 + tolerance) * design.optimum

    at = min(max(1, round(3 + 0.8 * epsilon)), most)
    design = best(2**at)
    while not good(design) and at < most:
        at += 1
        design = best(2**at)
    while at > 1 and good(design):
        at, fewer = at - 1, best(2 ** (at - 1))
        if not good(fewer):
            break
        design = fewer
    return design
