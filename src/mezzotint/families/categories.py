"""Tables for categories, randomized response on k values (k = 2: one bit), and plain stochastic
rounding.

k-ary response, subset selection, Hadamard, projective and affine response: every scheme is the
same thing. A report i names a set of categories, and is e**epsilon times as probable from a
category inside it as from one outside. The schemes differ in the sets, and certificate, file,
sampler and estimates are those of any table.

Large domains: a public random hash of a category into few cells, and k-ary response of the cell. A
report is the number of the hash, which says nothing about the value, and a code. The hashes are
those of the affine scheme: divide by a power of x in the field of 2**b elements, and drop the last
bits. Any two categories share a cell under equally many of them, so that frequencies are unbiased,
and how many reports support each category is a convolution over the powers: all categories are
counted at once, in no more time than it takes to sort.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Literal, final, get_args

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import (
    Values,
    check_choice,
    check_count,
    check_epsilon,
    check_range,
    grid_or_values,
)
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.rounding import ratio_below, table
from mezzotint.core.table import MISSING, OTHER, category_name
from mezzotint.core.types import MAX_LEVELS, TOTAL, FloatArray, IntArray, Seed

_LARGEST = 64 * math.log(2)


def k_randomized_response(
    *, lower: float = -1.0, upper: float = 1.0, levels: int | Values = 4, epsilon: float
) -> Mechanism:
    """k-ary randomized response: dither the input onto k points, report that point or, at random,
    another one.

    Arguments:
        lower, upper: input range, data units.
        levels: k >= 2 evenly spaced points from lower to upper, or the k points themselves,
            increasing, the first equal to lower and the last to upper. The decoded levels follow
            from them and lie further out.
        epsilon: pure epsilon requested, > 0 and finite.
    Returns: the table, unbiased.
    Raises: ParameterError, naming the parameter; also an epsilon so small that 2**32 units cannot
    show it. Guarantees:
        The certified epsilon is at most `epsilon`, and within 2**-31 * k * (e**epsilon + k) of it
        while below 22. Unbiased up to the rounding of the levels to floats.
    Edge cases: epsilon above log(2**32): the rarest report keeps one unit and the certified epsilon
    stays below.
    Source: Kairouz, Oh, Viswanath 2014 (k-ary randomized response), debiased for a numeric mean.
    Example:
        >>> mechanism = mz.families.k_randomized_response(levels=4, epsilon=1.0)
        >>> mechanism.epsilon <= 1.0, mechanism.bits
        (True, 2)
    """
    low, high = check_range(lower, upper)
    points = grid_or_values("levels", levels, lower=low, upper=high)
    if points[0] != low or points[-1] != high:
        raise ParameterError(
            "levels", points.tolist(), f"must run from lower={low:g} to upper={high:g} exactly"
        )
    # No ratio of two weights exceeds 2**32: beyond that nothing changes, and e**epsilon need not be
    # a float.
    asked = min(epsilon := check_epsilon(epsilon), _LARGEST)
    # In units of 2**-32, of every other point and of the own point: the largest ratio that is at
    # most e**epsilon.
    rare = max(1, math.ceil(TOTAL / (ratio_below(asked) + points.size - 1)))
    often = TOTAL - (points.size - 1) * rare
    if often <= rare:
        remedy = f"too small for {points.size} points in units of 2**-32; ask for a larger one"
        raise ParameterError("epsilon", asked, remedy)

    # A report is j with probability r, the own point i with p = r + s. Debiasing needs levels v
    # with r * sum(v) + s * v_i = b_i for every i; summed over i this gives sum(v) = sum(b), as k r
    # + s = 1. The units are chosen first and the levels from them, so that rounding leaves no bias.
    s = (often - rare) / TOTAL
    centre = float(points.mean())
    rows = np.full((points.size, points.size), rare / TOTAL)
    np.fill_diagonal(rows, often / TOTAL)
    return table(
        knots=points,
        levels=centre + (points - centre) / s,
        probabilities=rows,
        name=f"{points.size}-ary randomized response(epsilon={epsilon:g})",
        epsilon=asked,
    )


def randomized_response(*, lower: float = -1.0, upper: float = 1.0, epsilon: float) -> Mechanism:
    """Unbiased one-bit response: two levels at (e**epsilon + 1) / (e**epsilon - 1) half ranges from
    the middle.

    Arguments:
        lower, upper: input range, data units.
        epsilon: pure epsilon requested, > 0 and finite; the certified one is at most this.
    Raises, Guarantees, Edge cases: as `k_randomized_response` with two points.
    Returns: the table, one bit.
    Source: Warner 1965; Duchi, Jordan, Wainwright 2018 for a bounded mean.
    Example:
        >>> mechanism = mz.families.randomized_response(lower=0, upper=10, epsilon=1.0)
        >>> mechanism.levels.round(3).tolist(), mechanism.bits
        ([-5.82, 15.82], 1)
    """
    return k_randomized_response(lower=lower, upper=upper, levels=2, epsilon=epsilon)


def stochastic_rounding(
    *, lower: float = -1.0, upper: float = 1.0, levels: int | Values = 4
) -> Mechanism:
    """Plain stochastic rounding to the two nearest levels: unbiased, and not private.

    Arguments:
        lower, upper: input range, data units.
        levels: that many evenly spaced levels from lower to upper, or the levels themselves,
            increasing, reaching from lower or below to upper or above.
    Returns: the table; its epsilon is infinite.
    Raises: ParameterError, naming the parameter.
    Guarantees: epsilon is inf whenever some level cannot be reported from every input.
    Edge cases: two levels strictly outside [lower, upper] are randomized response, with a finite
        epsilon; a level that no input can report stays, with probability 0.
    Example:
        >>> mz.families.stochastic_rounding(levels=4).epsilon
        inf
    """
    low, high = check_range(lower, upper)
    outputs = grid_or_values("levels", levels, lower=low, upper=high)
    inner = outputs[(outputs > low) & (outputs < high)]
    knots = np.concatenate([[low], inner, [high]])
    left = np.clip(np.searchsorted(outputs, knots, side="right") - 1, 0, outputs.size - 2)
    up = (knots - outputs[left]) / (outputs[left + 1] - outputs[left])
    rows = np.zeros((knots.size, outputs.size))
    rows[np.arange(knots.size), left] = 1 - up
    rows[np.arange(knots.size), left + 1] = up
    return table(
        knots=knots,
        levels=outputs,
        probabilities=rows,
        name=f"stochastic rounding to {outputs.size} levels",
    )


def square_wave(
    *, lower: float = -1.0, upper: float = 1.0, outputs: int = 32, epsilon: float
) -> Mechanism:
    """The square wave: a report near the input is e**epsilon times as probable as one far from it.

    For distributions, not for means: reports reach beyond the range by half a window and are not
    decoded to the input. `collect.estimate` gives histograms and quantiles from them as from any
    table.

    Arguments:
        lower, upper: input range, data units.
        outputs: equal bins, 2 to 4096, into which the continuous output is cut.
        epsilon: pure epsilon requested, > 0 and finite; the certified one is at most this.
    Returns: the table; what it decodes to is biased, `collect.estimate` is not.
    Raises: ParameterError, naming the parameter; also an epsilon so small that 2**32 units cannot
    show it.
    Guarantees: between the knots, at which the window meets an edge of a bin, the pmf is that of
        the continuous mechanism's bins, up to integer rounding.
    Edge cases: where the window is narrower than two bins none lies inside it, and the certified
    epsilon is smaller.
    Source: Li, Wang, Lopuhaa-Zwakenberg, Li, Skoric 2020, "Estimating numerical distributions under
        local differential privacy".
    Example:
        >>> mechanism = mz.families.square_wave(outputs=8, epsilon=1.0)
        >>> mechanism.epsilon <= 1.0, mechanism.levels.size
        (True, 8)
    """
    low, high = check_range(lower, upper)
    asked = epsilon = check_epsilon(epsilon)
    outputs = check_count("outputs", outputs, least=2, most=4096)
    if asked > 700:
        raise ParameterError("epsilon", epsilon, "at most 700: reports that hide less hide nothing")
    bins, knots, rows = _wave(asked, outputs)
    # Rounding takes up to a unit from each probability and gives them all to the greatest one of
    # its row.
    spare = (2 / float(rows.min()) + outputs / float(rows.max(axis=1).min())) / TOTAL
    if spare > asked / 8:
        raise ParameterError(
            "epsilon", epsilon, f"is too small for {outputs} outputs in units of 2**-32"
        )
    bins, knots, rows = _wave(asked - spare, outputs)
    weights = np.floor(rows * TOTAL).astype(np.int64)
    weights[np.arange(len(weights)), rows.argmax(axis=1)] += TOTAL - weights.sum(axis=1)
    return Mechanism(
        knots=low + knots * (high - low),
        levels=low + (bins[1:] + bins[:-1]) / 2 * (high - low),
        weights=weights,
        name=f"square wave of {outputs} outputs(epsilon={epsilon:g})",
    )


def _wave(epsilon: float, outputs: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Edges of the bins, knots, and pmf at the knots, inputs on [0, 1]."""
    odds = math.exp(epsilon)
    # Half the window, by the paper's choice; its limit is 1/2 at epsilon 0.
    gain = odds - 1 - epsilon
    half = (epsilon * odds - odds + 1) / (2 * odds * gain) if epsilon > 1e-3 else 0.5
    near, far = odds / (2 * half * odds + 1), 1 / (2 * half * odds + 1)
    bins = np.linspace(-half, 1 + half, outputs + 1)
    knots = np.unique(np.clip(np.concatenate([bins - half, bins + half, [0.0, 1.0]]), 0, 1))
    knots = knots[np.append(np.diff(knots) > 1e-9, True)]
    knots[0] = 0.0
    inside = np.minimum(bins[1:], knots[:, None] + half) - np.maximum(
        bins[:-1], knots[:, None] - half
    )
    rows = far * (bins[1] - bins[0]) + (near - far) * np.maximum(inside, 0)
    return bins, knots, rows / rows.sum(axis=1, keepdims=True)


Method = Literal["best", "krr", "subset", "hadamard", "projective", "affine"]
Sets = npt.NDArray[np.bool_]

MAX_CATEGORIES = 1024
MAX_ENTRIES = 1 << 22
"""Of a table: categories times reports."""

_SEED = 20240611
"""Of the public sets of `subset` where there are too many to take all."""


def domain_names(
    categories: Sequence[str | int | bool], *, other: bool, missing: bool, most: int
) -> list[str]:
    """Texts of the categories, those of other and missing values last; ParameterError unless 2 to
    `most` different.
    """
    names = [category_name(one) for one in categories]
    for name in (OTHER, MISSING):
        if name in names:
            raise ParameterError(
                "categories", name, "has a meaning of its own: ask for it with other= or missing="
            )
    names += [OTHER] * other + [MISSING] * missing
    if len(set(names)) != len(names) or not 2 <= len(names) <= most:
        raise ParameterError(
            "categories",
            ", ".join(names),
            f"need 2 to {most} different names, not {len(set(names))}",
        )
    return names


def categorical(
    *,
    categories: Sequence[str | int | bool],
    epsilon: float,
    method: Method = "best",
    other: bool = False,
    missing: bool = False,
) -> Mechanism:
    """A table for a column of categories; `collect.estimate` gives their frequencies, with
    intervals.

    Arguments:
        categories: 2 to 1024 names: text, integers, or true and false. Take them from knowledge
            about the column: a list read off private data is a release of its own.
        epsilon: pure epsilon requested, > 0 and finite; the certified one is at most this.
        method: "krr", k-ary response; "subset", subset selection; "hadamard", sets of half of the
            categories; "projective", sets of about one in a prime power: points on the hyperplanes
            of a projective space; "affine", sets of one in a power of 2: a subspace of a finite
            field, multiplied by its elements and shifted; or "best": the one whose frequencies vary
            least at equal frequencies, of those whose tables are small enough.
        other: a category of its own, `(other)`, for values that are not listed. Without it they are
            an error.
        missing: a category of its own, `(missing)`, for missing values, so that their absence is
            private.
    Returns: the table, with `categories` in the order given.
    Raises:
        ParameterError: naming the parameter; also a method that would need more than 65536 reports
            or 2**22 entries.
    Guarantees: `Mechanism.certificate` as of any table. Frequencies can be estimated without bias:
        the rows are linearly independent.
    Edge cases: where not all subsets fit a table, a public selection of them, the same for
        everybody, is used. It touches the variance only. Tables of many hundred categories are
        files of many megabytes.
    Source: Kairouz, Bonawitz, Ramage 2016; Ye and Barg 2018 (subset selection); Acharya, Sun, Zhang
        2019 (Hadamard); Feldman, Nelson, Nguyen, Talwar 2022 (projective geometry).
    Example:
        >>> mechanism = mz.families.categorical(categories=["yes", "no", "unsure"], epsilon=1.0)
        >>> mechanism.categories, mechanism.epsilon <= 1.0
        (('yes', 'no', 'unsure'), True)
    """
    names = domain_names(categories, other=other, missing=missing, most=MAX_CATEGORIES)
    asked = min(epsilon := check_epsilon(epsilon), _LARGEST)
    check_choice("method", method, get_args(Method))
    methods = tuple(_SETS) if method == "best" else (method,)
    found: list[Mechanism] = []
    refused: list[ParameterError] = []
    for one in methods:
        try:
            found.append(_mechanism(one, names, asked, epsilon))
        except ParameterError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return min(found, key=frequency_variance) if len(found) > 1 else found[0]


def _mechanism(method: str, names: Sequence[str], asked: float, epsilon: float) -> Mechanism:
    k = len(names)
    weights = _two_valued(_SETS[method](k, asked), asked)
    return Mechanism(
        knots=np.arange(k, dtype=np.float64),
        levels=np.arange(weights.shape[1], dtype=np.float64),
        weights=weights,
        name=f"{method} of {k} categories(epsilon={epsilon:g})",
        categories=tuple(names),
    )


def frequency_variance(mechanism: Mechanism) -> float:
    """Sum over the categories of n times the variance of an estimated frequency, at equal
    frequencies.

    Arguments:
        mechanism: a table of categories.

    Returns: the sum, which does not depend on the number of reports.

    Example:
        >>> mechanism = mz.families.categorical(categories=["a", "b", "c"], epsilon=1.0)
        >>> round(mz.families.frequency_variance(mechanism), 3)
        5.027
    """
    shares = mechanism.probabilities.mean(axis=0)
    return float(np.sum(shares @ mechanism.frequency_decoders**2) - 1 / mechanism.knots.size)


# Sets ---------------------------------------------------------------------------------------------


def _two_valued(sets: Sets, epsilon: float) -> npt.NDArray[np.int64]:
    """(k, m) weights: reports whose set holds the category at most e**epsilon times the others,
    rows summing to 2**32.

    Arguments:
        sets: (k, m), equally many reports for every category.
    """
    ratio, m = ratio_below(epsilon), sets.shape[1]
    inside = int(sets[0].sum())
    low = max(1, math.ceil(TOTAL / (ratio * inside + m - inside)))
    while (left := TOTAL - low * (m - inside)) > 0 and -(-left // inside) > ratio * low:
        low += 1
    high, extra = divmod(left, inside)
    if high <= low:
        raise ParameterError(
            "epsilon",
            epsilon,
            f"too small for {m} reports in units of 2**-32; ask for a larger one",
        )
    weights = np.where(sets, high, low).astype(np.int64)
    # The last units go to the first reports of each set.
    return weights + (sets & (np.cumsum(sets, axis=1) <= extra))


def _check_size(method: str, k: int, reports: int) -> None:
    if reports > MAX_LEVELS or k * reports > MAX_ENTRIES:
        remedy = (
            f"needs a table of {k} x {reports}, more than {MAX_LEVELS} reports or {MAX_ENTRIES} "
            "entries; try best"
        )
        raise ParameterError("method", method, remedy)


def _subsets(k: int, epsilon: float) -> Sets:
    """All subsets of the best size, or a balanced selection: shifts of random ones."""
    odds = math.exp(epsilon)
    size = int(min(max(1, round(k / (odds + 1))), k - 1))
    everything = math.comb(k, size)
    if everything <= 4096 and k * everything <= MAX_ENTRIES:
        sets = np.zeros((k, everything), dtype=bool)
        for i, members in enumerate(combinations(range(k), size)):
            sets[list(members), i] = True
        return sets
    blocks = min(MAX_LEVELS // k, MAX_ENTRIES // k**2, max(1, 4096 // k))
    deal, shifts = np.random.default_rng(_SEED), np.arange(k)
    parts = []
    for _ in range(blocks):
        block = np.zeros(k, dtype=bool)
        block[deal.permutation(k)[:size]] = True
        parts.append(block[(shifts[:, None] - shifts) % k])
    return np.concatenate(parts, axis=1)


def _hadamard(k: int) -> Sets:
    """Rows 1..k of the Sylvester matrix: every report's set holds about half of the categories."""
    size = 1 << k.bit_length()
    _check_size("hadamard", k, size)
    index = np.arange(size)
    even = np.array([number.bit_count() % 2 == 0 for number in range(size)])
    return even[index[1 : k + 1, None] & index]


def _projective(k: int, epsilon: float) -> Sets:
    """Hyperplanes of a projective space over a finite field, as sets of its points, of which k are
    the categories.

    Any two points lie together on equally many hyperplanes, as in all subsets of one size, with few
    of them.
    """
    odds = math.exp(epsilon)
    spaces: list[tuple[float, int, int]] = []
    for order in (q for q in range(2, 1 + math.isqrt(MAX_LEVELS)) if _prime_power(q) is not None):
        dimension = 2
        while (points := (order ** (dimension + 1) - 1) // (order - 1)) < k:
            dimension += 1
        if points > MAX_LEVELS or k * points > MAX_ENTRIES:
            continue
        inside = (order**dimension - 1) // (order - 1)
        together = (order ** (dimension - 1) - 1) // (order - 1)
        total = odds * inside + points - inside
        own, others = odds * inside / total, (odds * together + inside - together) / total
        spaces.append((_variance(k, own, others), order, dimension))
    if not spaces:
        remedy = f"has no space of {k} points whose table is small enough; try best"
        raise ParameterError("method", "projective", remedy)
    _, order, dimension = min(spaces)
    points = _points(order, dimension)
    sums, products = _field(order)
    total = np.zeros((k, len(points)), dtype=np.int64)
    for one, other in zip(points[:k].T, points.T, strict=True):
        total = sums[total, products[one[:, None], other]]
    return total == 0


def _variance(k: float, own: float, others: float) -> float:
    """n times the variance of a frequency 1 / k, where sets support their own category and each
    other so often.
    """
    supports = own / k + others * (1 - 1 / k)
    return supports * (1 - supports) / (own - others) ** 2


def _affine(k: int, epsilon: float) -> Sets:
    """Cosets of a subspace of GF(2^b) times its elements, k of whose 2^b elements are the
    categories.

    Multiplication by x goes round all elements but 0, so that any two elements lie in equally many
    sets together, as in all subsets of one size. The subspace is that of the numbers below 2^d.
    """
    odds, b = math.exp(epsilon), max(2, (k - 1).bit_length())
    designs: list[tuple[float, int]] = []
    for d in range(1, b):
        inside = odds * 2**d / (odds * 2**d + 2**b - 2**d)
        chance = (2**d - 1) / (
            2**b - 1
        )  # that another element lies in a set beside one of its elements
        others = inside * chance + (1 - inside) * 2**d / (2**b - 1)
        if (reports := (2**b - 1) * 2 ** (b - d)) <= MAX_LEVELS and k * reports <= MAX_ENTRIES:
            designs.append((_variance(k, inside, others), d))
    if not designs:
        raise ParameterError(
            "method", "affine", f"needs too large a table for {k} categories; try best"
        )
    d, rule = min(designs)[1], primitive(b)
    element, cosets, parts = np.arange(2**b), np.arange(2 ** (b - d)), []
    for _ in range(2**b - 1):
        parts.append((element[:k] >> d)[:, None] == cosets)
        element = np.where(element & 1, element ^ rule, element) >> 1  # all categories divided by x
    return np.concatenate(parts, axis=1)


def _orbit(rule: int, b: int) -> list[int]:
    """The powers of x modulo a polynomial over GF(2) of degree b, as bits, until they are 1
    again.
    """
    found = [1]
    while (value := found[-1] << 1 ^ (rule if found[-1] >> (b - 1) else 0)) != 1:
        found.append(value)
    return found


def primitive(b: int) -> int:
    """A polynomial of degree b over GF(2), as bits, modulo which the powers of x are all elements
    but 0.
    """
    return next(
        rule for rule in range(2**b + 1, 2 ** (b + 1), 2) if len(_orbit(rule, b)) == 2**b - 1
    )


def _prime_power(order: int) -> tuple[int, int] | None:
    """The prime and its power, at most the third, that a number is."""
    prime = next(d for d in range(2, order + 1) if order % d == 0)
    return next(((prime, power) for power in (1, 2, 3) if prime**power == order), None)


def _field(order: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Tables of sums and of products of the field of this order; 0 and 1 are its zero and its one.

    Elements are polynomials over the prime field, their coefficients the digits of a number, lowest
    first. Products are taken modulo x^power - (c_0 + c_1 x + ...), the first such polynomial
    without a root: of degree 2 or 3, irreducible.
    """
    prime, power = _prime_power(order) or (order, 1)
    places = prime ** np.arange(power)
    digits = np.arange(order)[:, None] // places % prime
    x = np.arange(prime)
    rules = (
        rest
        for rest in digits
        if power == 1 or ((x**power - rest @ x ** np.arange(power)[:, None]) % prime).all()
    )
    rest = next(rules)
    product = np.zeros((order, order, 2 * power - 1), dtype=np.int64)
    for i in range(power):
        for j in range(power):
            product[:, :, i + j] += digits[:, None, i] * digits[None, :, j]
    for degree in range(2 * power - 2, power - 1, -1):
        product[:, :, degree - power : degree] += product[:, :, degree, None] % prime * rest
    sums = (digits[:, None] + digits) % prime @ places
    return sums, product[:, :, :power] % prime @ places


def _points(order: int, dimension: int) -> npt.NDArray[np.int64]:
    """One vector per line through 0, the one whose first entry other than 0 is 1."""
    parts = []
    for zeros in range(dimension + 1):
        free = dimension - zeros
        vectors = np.zeros((order**free, dimension + 1), dtype=np.int64)
        vectors[:, zeros] = 1
        for i in range(free):
            vectors[:, zeros + 1 + i] = np.arange(order**free) // order**i % order
        parts.append(vectors)
    return np.concatenate(parts)


_SETS: dict[str, Callable[[int, float], Sets]] = {
    "krr": lambda k, _: np.eye(k, dtype=bool),
    "subset": _subsets,
    "hadamard": lambda k, _: _hadamard(k),
    "projective": _projective,
    "affine": _affine,
}

MAX_DOMAIN = (1 << 18) - 1
MAX_COUNTS = 1 << 24
"""Hashes times cells."""


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class HashedDomain:
    """A public list of categories, and how they are reported: made by `hashed`.

    Arguments:
        categories: names; their order is part of the scheme.
        mechanism: the table of the cells. Its categories name the list they belong to.

    Example:
        >>> domain = mz.families.hashed(categories=[f"w{i}" for i in range(1000)], epsilon=2.0)
        >>> domain.mechanism.bits, len(domain.categories)
        (3, 1000)
    """

    categories: tuple[str, ...]
    mechanism: Mechanism

    def __post_init__(self) -> None:
        cells = self.mechanism.categories or ()
        if cells != _cells(self.categories, len(cells)) or len(cells) & (len(cells) - 1):
            remedy = "are not those of this table, or in another order; give those of the table"
            raise ParameterError("categories", f"{len(self.categories)} names", remedy)

    @property
    def bits(self) -> int:
        """Of the field: categories are its elements from 1 on."""
        return max(2, len(self.categories).bit_length())

    @property
    def cells(self) -> int:
        """Under each hash."""
        return self.mechanism.knots.size

    @property
    def hashes(self) -> int:
        """How many there are."""
        return (1 << self.bits) - 1

    @cached_property
    def _powers(self) -> IntArray:
        return powers(self.bits)

    @cached_property
    def _logarithms(self) -> IntArray:
        """(k,) the power of x that stands for each category."""
        logarithms = np.zeros(self.hashes + 1, dtype=np.int64)
        logarithms[self._powers] = np.arange(self.hashes)
        return logarithms[1 : len(self.categories) + 1]

    @cached_property
    def _kept(self) -> IntArray:
        """(hashes,) the cell of every power of x."""
        return self._powers >> (self.bits - self.cells.bit_length() + 1)

    def cell(self, positions: IntArray, hashes: IntArray) -> IntArray:
        """(n,) the cells of categories, by their positions in the list, each under a hash of its
        own.
        """
        return self._kept[(self._logarithms[positions] - hashes) % self.hashes]

    def privatize(self, values: npt.ArrayLike, *, rng: Seed = None) -> tuple[IntArray, IntArray]:
        """One report per value.

        Arguments:
            values: (n,) categories, as a list, an array or a series; None is missing.
            rng: None for the cryptographic generator; a seed or numpy Generator is reproducible and
                NOT private.
        Returns: (n,) codes and (n,) hashes, both parts of the report.
        Raises:
            ParameterError: a value that is not a category.
        """
        from mezzotint.core.values import inputs

        listed = inputs(values, self.categories, parameter="values")
        if listed.present is not None:
            first = int(np.argmin(listed.present))
            raise ParameterError("values", f"value {first}", "is missing; drop such values")
        positions = listed.values.astype(np.int64)
        generator = np.random.default_rng(rng) if isinstance(rng, int | np.integer) else rng
        hashes = (
            np.array([secrets.randbelow(self.hashes) for _ in positions], dtype=np.int64)
            if generator is None
            else generator.integers(0, self.hashes, positions.size)
        )
        cells = self.cell(positions, hashes)
        from mezzotint.core.sampler import privatize

        codes, _ = privatize(self.mechanism, cells.astype(np.float64), rng=generator)
        return codes.astype(np.int64), hashes

    def supports(self, counts: npt.NDArray[np.int64]) -> IntArray:
        """(k,) how many reports name a cell that the category is in.

        Arguments:
            counts: (hashes, cells) reports.
        """
        total = np.zeros(self.hashes // 2 + 1, dtype=np.complex128)
        for cell in range(self.cells):
            total += np.fft.rfft(counts[:, cell]) * np.fft.rfft(
                (self._kept == cell).astype(np.float64)
            )
        return np.rint(np.fft.irfft(total, n=self.hashes)).astype(np.int64)[self._logarithms]

    @property
    def chances(self) -> tuple[float, float]:
        """That a report supports its own category, and that it supports any given other one."""
        own, other = (float(self.mechanism.probabilities[0, i]) for i in (0, 1))
        together = ((1 << self.bits) // self.cells - 1) / self.hashes
        return own, together * own + (1 - together) * other


def hashed(
    *,
    categories: Sequence[str | int | bool],
    epsilon: float,
    other: bool = False,
    missing: bool = False,
) -> HashedDomain:
    """Reports about a large public domain, whose most frequent categories `collect.heavy_hitters`
    finds.

    Arguments:
        categories: 2 to 262143 names, known beforehand: a list read off private data is a release
            of its own.
        epsilon: pure epsilon requested, > 0 and finite; that of the table of cells is at most this.
        other, missing: as in `categorical`.
    Returns: what `collect.privatize` takes for a mechanism.
    Raises: ParameterError, naming the parameter.
    Guarantees: a report is a number drawn without looking at the value, and one report of
        `mechanism` about the cell that the value has under it: for every number the table's
        certificate holds. The number of cells is the power of 2 near e**epsilon + 1 at which a rare
        category's frequency varies least.
    Source: Wang, Blocki, Li, Jha 2017 (local hashing).
    Example:
        >>> domain = mz.families.hashed(categories=[f"w{i}" for i in range(1000)], epsilon=2.0)
        >>> domain.mechanism.epsilon <= 2.0
        True
    """
    names = domain_names(categories, other=other, missing=missing, most=MAX_DOMAIN)
    odds = math.exp(min(check_epsilon(epsilon), 30.0))
    bits = max(2, len(names).bit_length())

    def variance(d: int) -> float:
        own, together = odds / (odds + 2**d - 1), (2 ** (bits - d) - 1) / (2**bits - 1)
        return _variance(math.inf, own, together * own + (1 - together) * (1 - own) / (2**d - 1))

    most = max(1, min(bits - 1, (MAX_COUNTS >> bits).bit_length() - 1, 10))
    cells = 1 << min(range(1, most + 1), key=variance)
    table = categorical(categories=_cells(tuple(names), cells), epsilon=epsilon, method="krr")
    return HashedDomain(categories=tuple(names), mechanism=table)


def _cells(categories: Sequence[str], cells: int) -> tuple[str, ...]:
    """Names of the cells, which name the list: another list is refused where reports are
    counted.
    """
    of_each = hashlib.sha256()
    for name in categories:
        of_each.update(len(raw := name.encode()).to_bytes(8, "big") + raw)
    return tuple(f"{of_each.hexdigest()[:16]}/{i}" for i in range(cells))


def powers(bits: int) -> IntArray:
    """(2**bits - 1,) the powers of x in the field of 2**bits elements, as bits of polynomials."""
    return np.array(_orbit(primitive(bits), bits), dtype=np.int64)
