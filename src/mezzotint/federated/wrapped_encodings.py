"""Encodings around others: updates weighted by numbers of examples, and metrics."""

from __future__ import annotations

import math
from abc import ABC
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import (
    SCALES,
    check_count,
    check_finite,
    check_vector,
)
from mezzotint.core.errors import ParameterError
from mezzotint.core.kinds import checked
from mezzotint.core.records import JsonObject
from mezzotint.core.types import Seed
from mezzotint.federated.budgets import Sums
from mezzotint.federated.encoding import (
    FACTS,
    Encoding,
    FixedPointEncoding,
    GaussianEncoding,
    Integers,
    TableEncoding,
    Vector,
    gaussian_encoding,
)
from mezzotint.federated.secagg.plan import Purpose
from mezzotint.privacy.claim import Claim
from mezzotint.vectors import clip


@dataclass(frozen=True, kw_only=True)
class WrappedEncoding(Encoding, ABC):
    """An encoding that transforms an update into another vector, which `inner` encodes and claims
    are about.
    """

    inner: Encoding

    def __post_init__(self) -> None:
        facts = {fact: getattr(self.inner, fact) for fact in FACTS}
        self._hold(**facts)

    def _inside(self, size: int) -> int:
        """The number of coordinates of the inner vector for an update of `size`."""
        return size + 1

    def length(self, size: int) -> int:
        return self.inner.length(self._inside(size))

    def claims(self, sums: Sums) -> dict[str, Claim]:
        """The inner encoding's claims, for the vector that it encodes."""
        inner_size = self._inside(sums.size)
        return self.inner.claims(replace(sums, size=inner_size))

    def mse(self) -> float:
        return self.inner.mse()

    def check_room(self, clients: int, *, size: int) -> None:
        inner_size = self._inside(size)
        self.inner.check_room(clients, size=inner_size)

    def check_sum(self, total: Integers, *, count: int, size: int) -> None:
        inner_size = self._inside(size)
        self.inner.check_sum(total, count=count, size=inner_size)

    def noise_multiplier(self, clients: int) -> float:
        return self.inner.noise_multiplier(clients)


@final
@checked
@dataclass(frozen=True, kw_only=True)
class WeightedEncoding(WrappedEncoding):
    """The weighted mean as the ratio of two sums: of w x and of w h, in one vector (w x, w h) of d
    + 1 coordinates.

    x is the update, w = min(examples, most_examples) / most_examples, and h a constant within the
    range that the inner encoding clips coordinates to: half of its clipping norm, or else the
    range's wider end. Numbers of examples are private data: the claims, the inner encoding's for d
    + 1 coordinates, are about both sums together.

    Arguments:
        inner: clips and encodes the vector of d + 1 coordinates. Where it clips to a norm C, x is
            first clipped to sqrt(C^2 - h^2), so that the vector's norm is at most w C. A range
            without 0 is refused, and a grid on which a client with one example would weigh 0, for
            grids round towards 0.
        most_examples: a client with more counts as one with this many; the fewer, the less noise
            the second sum has.

    Edge cases: if noise takes the second sum below the weight of clients with one example each,
        that weight is used.

    Example:
        >>> encoding = mz.federated.gaussian_encoding(noise_multiplier=8.0, clip_norm=1.0, clients=100, size=1000)
        >>> weighted = mz.federated.WeightedEncoding(inner=encoding, most_examples=500)
        >>> weighted.length(1000) == encoding.length(1001)
        True
    """

    # Fields are keys of descriptions, in files and messages; an old name stays in
    # `encoding_of_today`.
    most_examples: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("most_examples", self.most_examples)
        if isinstance(self.inner, WeightedEncoding):
            raise ParameterError("inner", "weighted", "an encoding weighs once")
        if self.inner.purpose != "train":
            raise ParameterError(
                "inner", self.inner.purpose, "weigh metrics inside their own encoding"
            )
        lowest, highest = self._range
        if not lowest <= 0 <= highest:
            raise ParameterError(
                "inner",
                f"[{lowest:g}, {highest:g}]",
                "weighted numbers shrink to 0: a range with 0 in it",
            )
        if isinstance(self.inner, FixedPointEncoding):
            self._check_grid(self.inner)

    def _check_grid(self, inner: FixedPointEncoding) -> None:
        """Refuse a weight below one step, which a grid, rounding towards 0, would silently turn
        into 0.
        """
        # Steps of the weight 1, with room for two roundings; with 2 bits there is not one.
        unit_steps = abs(self.unit) / inner.step * (1 - 1e-9)
        if self.most_examples > unit_steps:
            fewest_counted = math.ceil(self.most_examples / unit_steps)
            weightless = min(self.most_examples, fewest_counted - 1)
            most_counted = math.floor(unit_steps)
            remedy = "more grid_bits, or an encoding that rounds at random"
            if most_counted:
                remedy = f"at most {most_counted} there, {remedy}"
            raise ParameterError(
                "most_examples",
                self.most_examples,
                f"clients with up to {weightless} examples would weigh 0 on this grid of {inner.grid_bits} bits: "
                f"{remedy}",
            )

    @property
    def weighs(self) -> bool:
        return True

    @property
    def unit(self) -> float:
        """h, data units: the coordinate of a client of weight 1. On the wider side of the range and
        within it, so never clipped; it does not depend on how fine a grid is.
        """
        lowest, highest = self._range
        wider = lowest
        if highest >= -lowest:
            wider = highest
        if self.inner.norm is None:
            return wider
        magnitude = min(self.inner.norm / 2, abs(wider))
        return math.copysign(magnitude, wider)

    @property
    def _range(self) -> tuple[float, float]:
        """The range to which the inner encoding clips each coordinate of (w x, w h) before any
        rotation.
        """
        if isinstance(self.inner, FixedPointEncoding):
            return -self.inner.clip, self.inner.clip
        if isinstance(self.inner, TableEncoding) and self.inner.norm is None:
            return self.inner.mechanism.lower, self.inner.mechanism.upper
        return -math.inf, math.inf

    @property
    def reach(self) -> float:
        """The norm that the inner encoding's clipping norm leaves to the update; inf if it clips to
        none.
        """
        if self.inner.norm is None:
            return math.inf
        return math.sqrt(self.inner.norm**2 - self.unit**2)

    def encode(self, update: npt.ArrayLike, *, rng: Seed = None) -> Integers:
        """As for every encoding, of d + 1 coordinates: the update, then the number of examples."""
        vector = check_vector(update, name="update")
        examples = float(vector[-1])
        if vector.size < 2 or examples < 0:
            raise ParameterError(
                "num-examples",
                "no number >= 0",
                "the train function's metrics say how many there are",
            )
        clipped = vector[:-1]
        if self.inner.norm is not None:
            clipped = clip(clipped, norm="l2", bound=self.reach)
        clipped = np.clip(clipped, *self._range)
        weight = min(examples, self.most_examples) / self.most_examples
        coordinates = np.append(clipped, self.unit)
        return self.inner.encode(weight * coordinates, rng=rng)

    def decode(self, total: Integers, *, count: int, size: int) -> Vector:
        mean, _ = self.ratio(total, count=count, size=size)
        return mean

    def ratio(self, total: Integers, *, count: int, size: int) -> tuple[Vector, float]:
        """The weighted mean, and the mean weight by which it was divided; arguments as of
        `decode`.
        """
        mean = self.inner.decode(total, count=count, size=size + 1)
        mean_weight = float(mean[-1]) / self.unit
        least_weight = 1 / self.most_examples
        weight = min(1.0, max(mean_weight, least_weight))
        return mean[:-1] / weight, weight

    def as_dict(self) -> JsonObject:
        return {
            "kind": "weighted",
            "inner": self.inner.as_dict(),
            "most_examples": self.most_examples,
        }


class Measured(NamedTuple):
    """A mean over clients, and the standard deviation of the noise in it (not of the clients)."""

    value: float
    error: float


MOST_METRICS = 1000
"""Most metrics of a sum: longer descriptions are refused before they take long to read."""


def _limits(
    ranges: Mapping[str, tuple[float, float]],
) -> tuple[tuple[str, float, float], ...]:
    """(name, lowest, highest) of each metric; ParameterError unless these are pairs of numbers."""
    remedy = 'need the lowest and the highest value of each metric, as {"loss": (0, 5)}'
    if not isinstance(ranges, Mapping) or not ranges:
        raise ParameterError("ranges", str(ranges), remedy)
    limits: list[tuple[str, float, float]] = []
    for metric, ends in ranges.items():
        if not isinstance(ends, tuple | list) or len(ends) != 2:
            raise ParameterError("ranges", f"{metric}: {ends}", remedy)
        lowest, highest = (check_finite(f"ranges[{metric!r}]", end) for end in ends)
        limits.append((metric, lowest, highest))
    return tuple(limits)


@final
@checked
@dataclass(frozen=True, kw_only=True)
class MetricsEncoding(WrappedEncoding):
    """Means of metrics as one vector, each scaled from its range to an equal share of the inner
    clipping norm.

    A vector of k metrics within their ranges has at most the inner encoding's clipping norm, so
    only the ranges clip, and the claims are the inner encoding's for k coordinates (k + 1 with
    weights).

    Arguments:
        inner: noise that clients add (`GaussianEncoding`), or a `WeightedEncoding` of such noise.
        ranges: (name, lowest, highest) of each metric, to which values are clipped.

    Raises:
        ParameterError: no metric, a name twice, a range without width, an inner encoding without
            noise of the clients.

    Example:
        >>> encoding = mz.federated.MetricsEncoding.gaussian({"loss": (0, 5)}, noise_multiplier=8.0, clients=100)
        >>> encoding.names
        ('loss',)
    """

    # Fields are keys of descriptions, in files and messages; an old name stays in
    # `encoding_of_today`.
    ranges: tuple[tuple[str, float, float], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.ranges) > MOST_METRICS:
            raise ParameterError(
                "ranges", f"{len(self.ranges)} metrics", f"at most {MOST_METRICS} in a sum"
            )
        distinct_names = set(self.names)
        if not self.ranges or len(distinct_names) < len(self.ranges):
            raise ParameterError(
                "ranges", str(self.ranges), "name at least one metric, and each once"
            )
        smallest_width, largest_end = SCALES
        for metric, lowest, highest in self.ranges:
            is_ordered = -largest_end <= lowest < highest <= largest_end
            if not is_ordered or highest - lowest < smallest_width:
                raise ParameterError(
                    "ranges",
                    f"{metric}: [{lowest:g}, {highest:g}]",
                    "lowest first, within -1e50 to 1e50",
                )
        noise = self.inner
        if isinstance(noise, WeightedEncoding):
            noise = noise.inner
        if not isinstance(noise, GaussianEncoding):
            raise ParameterError(
                "inner", self.inner.sha256, "metrics are summed under noise that the clients add"
            )

    @classmethod
    def gaussian(
        cls,
        ranges: Mapping[str, tuple[float, float]],
        *,
        noise_multiplier: float,
        clients: int,
        most_examples: int = 0,
    ) -> MetricsEncoding:
        """Metrics under rounded Gaussian noise.

        Arguments:
            ranges: metric -> (lowest, highest).
            noise_multiplier: standard deviation of the noise on the sum of `clients` vectors, over
                their norm.
            clients: summands.
            most_examples: weighs clients by their examples, as `WeightedEncoding` does; 0 weighs
                all equally.

        Returns: the encoding, in the fewest bits.

        Raises:
            ParameterError: invalid ranges, noise that needs more than 32 bits.

        Example:
            >>> noisy = MetricsEncoding.gaussian({"accuracy": (0, 1)}, noise_multiplier=8.0, clients=100)
            >>> round(noisy.error(100)["accuracy"], 3)
            0.04
        """
        limits = _limits(ranges)
        check_count("most_examples", most_examples, least=0)
        size = len(limits) + (most_examples > 0)
        noise = gaussian_encoding(
            noise_multiplier=noise_multiplier, clip_norm=1.0, clients=clients, size=size
        )
        inner_encoding: Encoding = noise
        if most_examples:
            inner_encoding = WeightedEncoding(inner=noise, most_examples=most_examples)
        return cls(inner=inner_encoding, ranges=limits)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the metrics, in order."""
        return tuple(metric for metric, _, _ in self.ranges)

    @property
    def purpose(self) -> Purpose:
        return "evaluate"

    def numbers(self, parameters: int) -> int:
        """The number of metrics, whatever the model."""
        return len(self.ranges)

    @property
    def _share(self) -> float:
        """The coordinate of the upper end of a range, whose middle is 0."""
        reach = self.inner.norm
        assert reach is not None  # checked when made
        if isinstance(self.inner, WeightedEncoding):
            reach = self.inner.reach
        return reach / math.sqrt(len(self.ranges))

    @property
    def _middles(self) -> tuple[Vector, Vector]:
        """The middle of each range, and half of its width."""
        low = np.array([lowest for _, lowest, _ in self.ranges])
        high = np.array([highest for _, _, highest in self.ranges])
        middles = (low + high) / 2
        half_widths = (high - low) / 2
        return middles, half_widths

    @property
    def weighs(self) -> bool:
        return self.inner.weighs

    def _inside(self, size: int) -> int:
        return len(self.ranges)

    def nothing(self, parameters: int) -> Vector:
        middles, _ = self._middles
        no_examples = [0.0] * self.weighs
        return np.append(middles, no_examples)

    def encode(self, update: npt.ArrayLike, *, rng: Seed = None) -> Integers:
        """As for every encoding, of the metrics, in order (and the number of examples)."""
        vector = check_vector(update, name="metrics")
        count = len(self.ranges)
        if vector.size != count + self.weighs:
            raise ParameterError(
                "metrics", f"{vector.size} numbers", f"need {', '.join(self.names)}"
            )
        middles, half_widths = self._middles
        metrics = vector[:count]
        positions = (metrics - middles) / half_widths
        positions = np.clip(positions, -1, 1)
        examples = vector[count:]
        coordinates = np.append(self._share * positions, examples)
        return self.inner.encode(coordinates, rng=rng)

    def decode(self, total: Integers, *, count: int, size: int) -> Vector:
        metrics = self.measured(total, count=count)
        return np.array([metric.value for metric in metrics.values()])

    def measured(self, total: Integers, *, count: int) -> dict[str, Measured]:
        """The means of the metrics over `count` clients, by name; noise may take them out of their
        ranges.

        With weights a mean is a ratio of two noisy sums, and its error is estimated to first order.
        """
        check_count("count", count)
        size = len(self.ranges)
        deviation = math.sqrt(self.inner.mse() / count)
        widening = 1.0
        if isinstance(self.inner, WeightedEncoding):
            centred, weight = self.inner.ratio(total, count=count, size=size)
            deviation /= weight
            shifts = centred / self.inner.unit
            widening = np.sqrt(1 + shifts**2)
        else:
            centred = self.inner.decode(total, count=count, size=size)
        middles, half_widths = self._middles
        values = middles + half_widths * centred / self._share
        errors = deviation * widening * half_widths / self._share
        means = map(Measured, values.tolist(), errors.tolist())
        return dict(zip(self.names, means, strict=True))

    def error(self, clients: int) -> dict[str, float]:
        """Standard errors of means over this many clients, at the middle of each range, all weights
        being 1.
        """
        check_count("clients", clients)
        deviation = math.sqrt(self.inner.mse() / clients)
        _, half_widths = self._middles
        errors = deviation * half_widths / self._share
        return dict(zip(self.names, errors.tolist(), strict=True))

    def as_dict(self) -> JsonObject:
        return {
            "kind": "metrics",
            "inner": self.inner.as_dict(),
            "ranges": [list(limits) for limits in self.ranges],
        }
