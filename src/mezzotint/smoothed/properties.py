"""What smoothed guarantees allow: composition, post-processing and pre-processing, with what each one needs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mezzotint.core.errors import ParameterError
from mezzotint.smoothed.model import Distribution, Expected, Rational, hull_vertices, in_hull, read_vertices


@dataclass(frozen=True, kw_only=True)
class SmoothedGuarantee:
    """A mechanism is (epsilon, delta, Pi)-smoothed differentially private; one record is replaced.

    Arguments:
        epsilon: the loss.
        log10_delta: an upper bound of log10 delta.
        records: number of records n.
        distributions: corners of the hull of Pi, exact chances per type.
        basis: what it rests on, one entry per step.
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


def guarantee(result: Expected, *, vertices: Sequence[Rational | Sequence[Rational]]) -> SmoothedGuarantee:
    """The guarantee that an `expected` result supports: its rigorous upper bound.

    Arguments:
        result: what `expected` returned.
        vertices: the same distributions it was asked for, exactly.
    Raises:
        ParameterError: if the distributions are not those of the result.
    """
    corners = hull_vertices(read_vertices(vertices))
    if tuple(tuple(float(p) for p in corner) for corner in corners) != result.vertices:
        raise ParameterError("vertices", vertices, "are not the distributions that the result was computed for")
    return SmoothedGuarantee(
        epsilon=result.epsilon,
        log10_delta=result.log10_upper,
        records=result.records,
        distributions=corners,
        basis=(f"{result.method}: {result.reason}",),
    )


def compose(guarantees: Sequence[SmoothedGuarantee], *, randomness: str) -> SmoothedGuarantee:
    """The guarantee of publishing the outputs of several mechanisms on the same database: sums of both parameters.

    Arguments:
        guarantees: one or more, for the same number of records and the same distributions.
        randomness: must be "independent": the mechanisms' coins must be independent given the database. Publishing
            the same sample twice, or two histograms of samples drawn together, does not qualify.
    Returns:
        (sum of epsilon, sum of delta), rounded up.
    Raises:
        ParameterError: if the guarantees differ in records or distributions, or randomness is not independent.
    Source: "Smoothed Differential Privacy", Proposition 5; the published proof does not hold, the statement does
        (docs/proofs/smoothed-properties.md).
    """
    if randomness != "independent":
        raise ParameterError("randomness", randomness, "composition needs mechanisms with 'independent' randomness")
    if not guarantees:
        raise ParameterError("guarantees", guarantees, "needs at least one guarantee")
    first = guarantees[0]
    for other in guarantees[1:]:
        if other.records != first.records or set(other.distributions) != set(first.distributions):
            raise ParameterError("guarantees", other, "must be for the same records and the same distributions")
    logs = np.array([one.log10_delta for one in guarantees])
    peak = float(logs.max())
    total = peak
    if peak > -math.inf:
        total = peak + math.log10(math.fsum(10.0 ** (logs - peak))) * (1.0 + 1e-15) + 1e-15 * abs(peak)
    epsilon = math.fsum(one.epsilon for one in guarantees)
    return dataclasses.replace(
        first,
        epsilon=math.nextafter(epsilon, math.inf) if len(guarantees) > 1 else epsilon,
        log10_delta=min(0.0, total),
        basis=(*(step for one in guarantees for step in one.basis), f"composition of {len(guarantees)}"),
    )


def post_process(before: SmoothedGuarantee, *, name: str) -> SmoothedGuarantee:
    """The guarantee of any function of the output, random or not, that does not look at the database again.

    Arguments:
        before: the guarantee of the output.
        name: what is computed from it; recorded.
    Source: "Smoothed Differential Privacy", Proposition 4.
    """
    return dataclasses.replace(before, basis=(*before.basis, f"post-processing: {name}"))


def pre_process(
    features: SmoothedGuarantee, *, feature_of_type: Sequence[int], vertices: Sequence[Rational | Sequence[Rational]]
) -> SmoothedGuarantee:
    """The guarantee on raw records when the mechanism sees a function of each record.

    Arguments:
        features: the guarantee of the mechanism on features.
        feature_of_type: for each raw type its feature's index. The function works record by record, which
            Proposition 6 needs but does not say: a function that mixes records (such as subtracting the mean) may
            turn one replaced record into many.
        vertices: the distributions of the raw records.
    Returns:
        The same parameters for the raw distributions.
    Raises:
        ParameterError: if the map does not fit, or the features' distributions leave the hull of those guaranteed.
    Source: "Smoothed Differential Privacy", Proposition 6.
    """
    raw = hull_vertices(read_vertices(vertices))
    types = len(features.distributions[0])
    if len(feature_of_type) != len(raw[0]) or any(not 0 <= f < types for f in feature_of_type):
        raise ParameterError(
            "feature_of_type", feature_of_type, f"needs one feature index in 0..{types - 1} for each raw type"
        )
    for corner in raw:
        pushed = tuple(
            sum((p for p, f in zip(corner, feature_of_type, strict=True) if f == feature), corner[0] * 0)
            for feature in range(types)
        )
        if not in_hull(pushed, features.distributions):
            raise ParameterError(
                "vertices", tuple(map(float, pushed)), "maps outside the distributions that the guarantee covers"
            )
    return dataclasses.replace(
        features, distributions=raw, basis=(*features.basis, "pre-processing by a function of each record")
    )
