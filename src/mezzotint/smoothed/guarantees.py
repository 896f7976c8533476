"""Guarantees of smoothed privacy, and the operations on them with what each needs: composition,
post-processing and pre-processing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from mezzotint.core.errors import ParameterError
from mezzotint.core.records import Record
from mezzotint.smoothed.model import (
    Distribution,
    Expected,
    Rational,
    hull_vertices,
    in_hull,
    read_vertices,
)


@dataclass(frozen=True, kw_only=True)
class SmoothedGuarantee(Record):
    """A mechanism is (epsilon, delta, Pi)-smoothed differentially private; one record is replaced.

    Arguments:
        epsilon: the loss.
        log10_delta: an upper bound of log10 delta.
        records: number of records n.
        distributions: corners of the hull of Pi, exact chances per type.
        basis: what it rests on, one entry per step.

    Example:
        >>> result = mz.smoothed.expected(n=50, vertices=["0.3"], loss_rate="0.1", epsilon=1.0)
        >>> mz.smoothed.guarantee(result, vertices=["0.3"]).records
        50
    """

    epsilon: float
    log10_delta: float
    records: int
    distributions: tuple[Distribution, ...]
    basis: tuple[str, ...]

    @property
    def neighboring(self) -> str:
        """The neighbouring relation."""
        return "replace_one"


def guarantee(
    result: Expected,
    *,
    vertices: Sequence[Rational | Sequence[Rational]],
) -> SmoothedGuarantee:
    """The guarantee that an `expected` result supports: its rigorous upper bound.

    Arguments:
        result: what `expected` returned.
        vertices: the distributions that were given to `expected`, exactly.
    Returns: the guarantee, with what it rests on in `basis`.
    Raises:
        ParameterError: if the distributions are not those of the result.
    Example:
        >>> result = mz.smoothed.expected(n=50, vertices=["0.3"], loss_rate="0.1", epsilon=1.0)
        >>> smoothed = mz.smoothed.guarantee(result, vertices=["0.3"])
        >>> smoothed.log10_delta == result.log10_upper
        True
    """
    corners = hull_vertices(read_vertices(vertices))
    if tuple(tuple(map(float, corner)) for corner in corners) != result.vertices:
        remedy = "not the distributions of the result; give those"
        raise ParameterError("vertices", vertices, remedy)
    return SmoothedGuarantee(
        epsilon=result.epsilon,
        log10_delta=result.log10_upper,
        records=result.records,
        distributions=corners,
        basis=(f"{result.method}: {result.reason}",),
    )


def compose(guarantees: Sequence[SmoothedGuarantee], *, randomness: str) -> SmoothedGuarantee:
    """The guarantee of publishing the outputs of several mechanisms on the same database: sums of
    both parameters.

    Arguments:
        guarantees: one or more, for the same number of records and the same distributions.
        randomness: must be "independent": the mechanisms' coins must be independent given the
            database. Publishing the same sample twice, or two histograms of samples drawn together,
            does not qualify.
    Returns:
        (sum of epsilon, sum of delta), rounded up.
    Raises:
        ParameterError: if the guarantees differ in records or distributions, or randomness is not
        independent.
    Source: "Smoothed Differential Privacy", Proposition 5; the published proof does not hold, the
        statement does (docs/proofs/smoothed-properties.md).
    Example:
        >>> result = mz.smoothed.expected(n=50, vertices=["0.3"], loss_rate="0.1", epsilon=1.0)
        >>> once = mz.smoothed.guarantee(result, vertices=["0.3"])
        >>> mz.smoothed.compose([once, once], randomness="independent").epsilon >= 2 * once.epsilon
        True
    """
    if randomness != "independent":
        remedy = "composition needs mechanisms with 'independent' randomness"
        raise ParameterError("randomness", randomness, remedy)
    if not guarantees:
        raise ParameterError("guarantees", guarantees, "needs at least one guarantee")
    first = guarantees[0]
    basis: list[str] = []
    for single in guarantees:
        same_hull = set(single.distributions) == set(first.distributions)
        if single.records != first.records or not same_hull:
            remedy = "must be for the same records and the same distributions"
            raise ParameterError("guarantees", single, remedy)
        basis += single.basis
    epsilon = math.fsum(single.epsilon for single in guarantees)
    if len(guarantees) > 1:
        epsilon = math.nextafter(epsilon, math.inf)
    return dataclasses.replace(
        first,
        epsilon=epsilon,
        log10_delta=min(0.0, _log10_sum([single.log10_delta for single in guarantees])),
        basis=(*basis, f"composition of {len(guarantees)}"),
    )


def _log10_sum(logs: Sequence[float]) -> float:
    """log10 of the sum of powers of ten, rounded up."""
    peak = max(logs)
    if peak == -math.inf:
        return peak
    total = math.fsum(10.0 ** (log - peak) for log in logs)
    return peak + math.log10(total) * (1.0 + 1e-15) + 1e-15 * abs(peak)


def post_process(before: SmoothedGuarantee, *, name: str) -> SmoothedGuarantee:
    """The guarantee of any function of the output, random or not, that does not look at the
    database again.

    Arguments:
        before: the guarantee of the output.
        name: what is computed from it; recorded.
    Returns: the same parameters.
    Source: "Smoothed Differential Privacy", Proposition 4.
    Example:
        >>> result = mz.smoothed.expected(n=50, vertices=["0.3"], loss_rate="0.1", epsilon=1.0)
        >>> before = mz.smoothed.guarantee(result, vertices=["0.3"])
        >>> mz.smoothed.post_process(before, name="the winner").log10_delta == before.log10_delta
        True
    """
    return dataclasses.replace(before, basis=(*before.basis, f"post-processing: {name}"))


def pre_process(
    features: SmoothedGuarantee,
    *,
    feature_of_type: Sequence[int],
    vertices: Sequence[Rational | Sequence[Rational]],
) -> SmoothedGuarantee:
    """The guarantee on raw records when the mechanism sees a function of each record.

    Arguments:
        features: the guarantee of the mechanism on features.
        feature_of_type: for each raw type its feature's index. The function works record by record,
            which Proposition 6 needs but does not say: a function that mixes records (such as
            subtracting the mean) may turn one replaced record into many.
        vertices: the distributions of the raw records.
    Returns:
        The same parameters for the raw distributions.
    Raises:
        ParameterError: if the map does not fit, or the features' distributions leave the hull of
        those guaranteed.
    Source: "Smoothed Differential Privacy", Proposition 6.
    Example:
        >>> result = mz.smoothed.expected(n=50, vertices=["0.3"], loss_rate="0.1", epsilon=1.0)
        >>> features = mz.smoothed.guarantee(result, vertices=["0.3"])
        >>> raw = mz.smoothed.pre_process(
        ...     features, feature_of_type=[0, 1, 1], vertices=[["0.3", "0.3", "0.4"]]
        ... )
        >>> raw.log10_delta == features.log10_delta
        True
    """
    raw = hull_vertices(read_vertices(vertices))
    types = len(features.distributions[0])
    valid = all(0 <= feature < types for feature in feature_of_type)
    if len(feature_of_type) != len(raw[0]) or not valid:
        remedy = f"needs one feature index in 0..{types - 1} for each raw type"
        raise ParameterError("feature_of_type", feature_of_type, remedy)
    for corner in raw:
        chances = [Fraction(0)] * types
        for chance, feature in zip(corner, feature_of_type, strict=True):
            chances[feature] += chance
        if not in_hull(tuple(chances), features.distributions):
            remedy = "maps outside the distributions that the guarantee covers"
            raise ParameterError("vertices", tuple(map(float, chances)), remedy)
    return dataclasses.replace(
        features,
        distributions=raw,
        basis=(*features.basis, "pre-processing by a function of each record"),
    )
