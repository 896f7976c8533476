"""Vectors spread over several sums in a row by a banded Toeplitz matrix, and the way back behind the noise."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_count
from mezzotint.core.errors import ParameterError

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
        raise ParameterError("bands", bands, f"correlate 1 to {MOST} steps; 8 is rarely far from the best")
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
    """(d,) what stands behind (d,) `released` = the sum over j of coefficients(bands)[j] times the solution j ago.

    Arguments:
        earlier: lag -> (d,) solution so long ago; one that is missing counts as zero.
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
    """The most blocks of `bands` rounds, each begun in a client's turn, that these rounds can meet.

    Arguments:
        rounds: numbers from 1.
        bands: every how many rounds it is a client's turn; which ones is not said.

    Source: docs/proofs/vectors.md, "Vectors in several sums".

    >>> blocks(range(1, 21), 10), blocks([4, 14, 24], 10), blocks([14, 15], 10)
    (2, 3, 2)
    """
    numbers = set(rounds)
    return max(
        len({(number - 1 - turn) // bands for number in numbers if number > turn})
        for turn in range(check_count("bands", bands))
    )
