"""Tables for categories: k-ary response, subset selection, Hadamard, projective and affine
response.

Every scheme is the same thing. A report i names a set of categories, and is e**epsilon times as
probable from a category inside it as from one outside. The schemes differ in the sets, and
certificate, file, sampler and estimates are those of any table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_epsilon
from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import exp_below
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.table import MISSING, OTHER, category_name
from mezzotint.core.types import MAX_LEVELS, TOTAL, IntArray
from mezzotint.families.finite_fields import (
    field_tables,
    prime_power,
    primitive,
    projective_points,
)
from mezzotint.families.response import LARGEST_EPSILON

Method = Literal["best", "krr", "subset", "hadamard", "projective", "affine"]
Sets = npt.NDArray[np.bool_]

MAX_CATEGORIES = 1024
MAX_ENTRIES = 1 << 22
"""Of a table: categories times reports."""

MAX_SUBSETS = 4096
"""Of `subset`: where there are more, a selection of about this many is taken."""

SUBSET_SEED = 20240611
"""Of the public sets of `subset` where there are too many to take all."""


def domain_names(
    categories: Sequence[str | int | bool],
    *,
    other: bool,
    missing: bool,
    most: int,
) -> list[str]:
    """Texts of the categories, those of other and missing values last; ParameterError unless 2 to
    `most` different.
    """
    names = [category_name(category) for category in categories]
    for reserved in (OTHER, MISSING):
        if reserved in names:
            remedy = "has a meaning of its own: ask for it with other= or missing="
            raise ParameterError("categories", reserved, remedy)
    if other:
        names.append(OTHER)
    if missing:
        names.append(MISSING)
    distinct_count = len(set(names))
    is_distinct = distinct_count == len(names)
    if not is_distinct or not 2 <= len(names) <= most:
        remedy = f"need 2 to {most} different names, not {distinct_count}"
        listed_names = ", ".join(names)
        raise ParameterError("categories", listed_names, remedy)
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
    names = domain_names(
        categories,
        other=other,
        missing=missing,
        most=MAX_CATEGORIES,
    )
    epsilon = check_epsilon(epsilon)
    if method != "best":
        return _mechanism(method, names, epsilon)
    mechanisms: list[Mechanism] = []
    errors: list[ParameterError] = []
    for candidate in _SETS:
        try:
            mechanisms.append(_mechanism(candidate, names, epsilon))
        except ParameterError as error:
            errors.append(error)
    if not mechanisms:
        raise errors[0]
    return min(mechanisms, key=frequency_variance)


def _mechanism(
    method: str,
    names: Sequence[str],
    epsilon: float,
) -> Mechanism:
    category_count = len(names)
    capped_epsilon = min(epsilon, LARGEST_EPSILON)
    make_sets = _SETS[method]
    sets = make_sets(category_count, capped_epsilon)
    weights = _two_valued(sets, capped_epsilon)
    return Mechanism(
        knots=np.arange(category_count, dtype=np.float64),
        levels=np.arange(weights.shape[1], dtype=np.float64),
        weights=weights,
        name=f"{method} of {category_count} categories(epsilon={epsilon:g})",
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
    report_shares = mechanism.probabilities.mean(axis=0)
    second_moments = report_shares @ mechanism.frequency_decoders**2
    mean_square = 1 / mechanism.knots.size
    return float(np.sum(second_moments) - mean_square)


# Sets ---------------------------------------------------------------------------------------------


def _two_valued(sets: Sets, epsilon: float) -> IntArray:
    """(k, m) weights: reports whose set holds the category at most e**epsilon times the others,
    rows summing to 2**32.

    Arguments:
        sets: (k, m), equally many reports for every category.
    """
    ratio = exp_below(epsilon)
    report_count = sets.shape[1]
    inside_count = int(sets[0].sum())
    outside_count = report_count - inside_count
    inside_ratio = ratio * inside_count
    outside_units = max(1, math.ceil(TOTAL / (inside_ratio + outside_count)))
    inside_total = TOTAL - outside_units * outside_count
    while inside_total > 0 and -(-inside_total // inside_count) > ratio * outside_units:
        outside_units += 1
        inside_total = TOTAL - outside_units * outside_count
    inside_units, extra_units = divmod(inside_total, inside_count)
    if inside_units <= outside_units:
        remedy = f"too small for {report_count} reports in units of 2**-32; ask for a larger one"
        raise ParameterError("epsilon", epsilon, remedy)
    real_weights = np.where(sets, inside_units, outside_units)
    weights = real_weights.astype(np.int64)
    # The last units go to the first reports of each set.
    is_among_first = np.cumsum(sets, axis=1) <= extra_units
    return weights + (sets & is_among_first)


def _fits(category_count: int, report_count: int) -> bool:
    return report_count <= MAX_LEVELS and category_count * report_count <= MAX_ENTRIES


def _subsets(category_count: int, epsilon: float) -> Sets:
    """All subsets of the best size, or a balanced selection: shifts of random ones."""
    odds = math.exp(epsilon)
    size = round(category_count / (odds + 1))
    size = min(max(1, size), category_count - 1)
    subset_count = math.comb(category_count, size)
    if subset_count > MAX_SUBSETS or category_count * subset_count > MAX_ENTRIES:
        return _selected_subsets(category_count, size)
    sets = np.zeros((category_count, subset_count), dtype=bool)
    all_members = combinations(range(category_count), size)
    for column, members in enumerate(all_members):
        sets[list(members), column] = True
    return sets


def _selected_subsets(category_count: int, size: int) -> Sets:
    """(k, b k) the k shifts of each of b random subsets."""
    block_count = min(
        MAX_LEVELS // category_count,
        MAX_ENTRIES // category_count**2,
        max(1, MAX_SUBSETS // category_count),
    )
    generator = np.random.default_rng(SUBSET_SEED)
    positions = np.arange(category_count)
    shifted = (positions[:, None] - positions) % category_count
    blocks: list[Sets] = []
    for _ in range(block_count):
        members = np.zeros(category_count, dtype=bool)
        order = generator.permutation(category_count)
        members[order[:size]] = True
        blocks.append(members[shifted])
    return np.concatenate(blocks, axis=1)


def _hadamard(category_count: int) -> Sets:
    """Rows 1..k of the Sylvester matrix: every report's set holds about half of the categories."""
    report_count = 1 << category_count.bit_length()
    if not _fits(category_count, report_count):
        remedy = (
            f"needs a table of {category_count} x {report_count}, more than {MAX_LEVELS} reports "
            f"or {MAX_ENTRIES} entries; try best"
        )
        raise ParameterError("method", "hadamard", remedy)
    numbers = np.arange(report_count)
    parities = [number.bit_count() % 2 for number in range(report_count)]
    is_even = np.array(parities) == 0
    category_numbers = numbers[1 : category_count + 1, None]
    return is_even[category_numbers & numbers]


class _Space(NamedTuple):
    """A projective space by the variance of its scheme: the smallest is the best."""

    variance: float
    order: int
    dimension: int


def _line_count(order: int, dimension: int) -> int:
    """How many lines through 0 a vector space of this dimension over this field has."""
    return (order**dimension - 1) // (order - 1)


def _space(
    category_count: int,
    odds: float,
    order: int,
) -> _Space | None:
    """The smallest space of this order with enough points; None where its table is too large."""
    dimension = 2
    point_count = _line_count(order, 3)
    while point_count < category_count:
        dimension += 1
        point_count = _line_count(order, dimension + 1)
    if not _fits(category_count, point_count):
        return None
    inside_count = _line_count(order, dimension)
    common_count = _line_count(order, dimension - 1)
    total = odds * inside_count + point_count - inside_count
    same_support = odds * inside_count / total
    other_support = (odds * common_count + inside_count - common_count) / total
    variance = support_variance(category_count, same_support, other_support)
    return _Space(variance, order, dimension)


def _projective(category_count: int, epsilon: float) -> Sets:
    """Hyperplanes of a projective space over a finite field, as sets of its points, of which k are
    the categories.

    Any two points lie together on equally many hyperplanes, as in all subsets of one size, with few
    of them.
    """
    spaces: list[_Space] = []
    largest_order = math.isqrt(MAX_LEVELS)
    for order in range(2, 1 + largest_order):
        if prime_power(order) is None:
            continue
        space = _space(category_count, math.exp(epsilon), order)
        if space is not None:
            spaces.append(space)
    if not spaces:
        remedy = f"has no space of {category_count} points whose table is small enough; try best"
        raise ParameterError("method", "projective", remedy)
    best_space = min(spaces)
    points = projective_points(best_space.order, best_space.dimension)
    sums, products = field_tables(best_space.order)
    shape = (category_count, len(points))
    inner_products = np.zeros(shape, dtype=np.int64)
    coordinates = zip(points[:category_count].T, points.T, strict=True)
    for category_entry, report_entry in coordinates:
        terms = products[category_entry[:, None], report_entry]
        inner_products = sums[inner_products, terms]
    return inner_products == 0


def support_variance(
    category_count: float,
    same: float,
    other: float,
) -> float:
    """n times the variance of a frequency 1 / k.

    Arguments:
        category_count: k; infinite for a rare category.
        same, other: probabilities that a report supports its own category, and another one.
    """
    other_share = other * (1 - 1 / category_count)
    support = same / category_count + other_share
    return support * (1 - support) / (same - other) ** 2


def _affine_dimension(
    category_count: int,
    odds: float,
    bits: int,
) -> int:
    """The dimension of the subspace at which frequencies vary least, of those whose tables fit."""
    size = 2**bits
    variances: dict[int, float] = {}
    for dimension in range(1, bits):
        subspace_size = 2**dimension
        inside_odds = odds * subspace_size
        same_support = inside_odds / (inside_odds + size - subspace_size)
        # That another element lies in a set beside one of its elements.
        common_share = (subspace_size - 1) / (size - 1)
        outside_share = subspace_size / (size - 1)
        other_support = same_support * common_share + (1 - same_support) * outside_share
        if _fits(category_count, (size - 1) * size // subspace_size):
            variances[dimension] = support_variance(category_count, same_support, other_support)
    if not variances:
        remedy = f"needs too large a table for {category_count} categories; try best"
        raise ParameterError("method", "affine", remedy)
    return min(variances, key=variances.__getitem__)


def _affine(category_count: int, epsilon: float) -> Sets:
    """Cosets of a subspace of GF(2^b) times its elements, k of whose 2^b elements are the
    categories.

    Multiplication by x goes round all elements but 0, so that any two elements lie in equally many
    sets together, as in all subsets of one size. The subspace is that of the numbers below 2^d.
    """
    bits = max(2, (category_count - 1).bit_length())
    dimension = _affine_dimension(category_count, math.exp(epsilon), bits)
    polynomial = primitive(bits)
    elements = np.arange(category_count)
    cosets = np.arange(2 ** (bits - dimension))
    blocks: list[Sets] = []
    for _ in range(2**bits - 1):
        cosets_of_elements = elements >> dimension
        blocks.append(cosets_of_elements[:, None] == cosets)
        # All categories divided by x.
        is_odd = elements & 1 == 1
        reduced = np.where(is_odd, elements ^ polynomial, elements)
        elements = reduced >> 1
    return np.concatenate(blocks, axis=1)


_SETS: dict[str, Callable[[int, float], Sets]] = {
    "krr": lambda category_count, _: np.eye(category_count, dtype=bool),
    "subset": _subsets,
    "hadamard": lambda category_count, _: _hadamard(category_count),
    "projective": _projective,
    "affine": _affine,
}
