"""What clients measure, as a secure sum: metrics clipped to stated ranges, under noise that the clients add."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import SCALES, check_vector
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.mechanism import Seed
from mezzotint.core.records import JsonObject
from mezzotint.federated.encoding import Encoding, Integers, ModularEncoding, Vector, gaussian_encoding
from mezzotint.federated.joined import WrappedEncoding
from mezzotint.federated.secagg.plan import Purpose
from mezzotint.federated.weights import WeightedEncoding


class Measured(NamedTuple):
    """A mean over clients, and the standard deviation of the noise in it (not of the clients)."""

    value: float
    error: float


MOST_METRICS = 1000
"""Of a sum: a description with more is refused before it takes long to read."""


@final
@dataclass(frozen=True, kw_only=True)
class MetricsEncoding(WrappedEncoding):
    """Means of metrics as one vector, each scaled from its range to an equal share of the inner clipping norm.

    A vector of k metrics within their ranges has at most the inner encoding's clipping norm, so that nothing is clipped
    but to the ranges, and the claims are the inner encoding's for k coordinates (with weights k + 1).

    Arguments:
        inner: noise that clients add (`GaussianEncoding`, `NoiseEncoding`), or that weighed by examples.
        ranges: (name, lowest, highest) of each metric; what clients measure is clipped to them.

    Raises:
        ParameterError: no metric, a name twice, a range without width, an inner encoding without noise of the clients.
    """

    ranges: tuple[tuple[str, float, float], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.ranges) > MOST_METRICS:
            raise ParameterError("ranges", f"{len(self.ranges)} metrics", f"at most {MOST_METRICS} in a sum")
        if not self.ranges or len({name for name, _, _ in self.ranges}) < len(self.ranges):
            raise ParameterError("ranges", str(self.ranges), "name at least one metric, and each once")
        for name, low, high in self.ranges:
            if not -SCALES[1] <= low < high <= SCALES[1] or high - low < SCALES[0]:
                raise ParameterError("ranges", f"{name}: [{low:g}, {high:g}]", "lowest first, within -1e50 to 1e50")
        noise = self.inner.inner if isinstance(self.inner, WeightedEncoding) else self.inner
        if not isinstance(noise, ModularEncoding) or noise.noise_multiplier(1) == 0:
            raise ParameterError("inner", self.inner.sha256, "metrics are summed under noise that the clients add")

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
            noise_multiplier: standard deviation of the noise on the sum of `clients` vectors, over their norm.
            clients: summands.
            most_examples: weighs clients by their examples, as `WeightedEncoding` does; 0 weighs all alike.

        Returns: the encoding, in as few bits as hold it.

        Raises:
            ParameterError: ranges that are none, noise that needs more than 32 bits.

        Example:
            >>> noisy = MetricsEncoding.gaussian({"accuracy": (0, 1)}, noise_multiplier=8.0, clients=100)
            >>> round(noisy.error(100)["accuracy"], 3)
            0.04
        """
        size = len(ranges) + (most_examples > 0)
        noise = gaussian_encoding(noise_multiplier=noise_multiplier, l2_norm=1.0, clients=clients, size=size)
        inner = WeightedEncoding(inner=noise, most_examples=most_examples) if most_examples else noise
        return cls(inner=inner, ranges=tuple((name, float(low), float(high)) for name, (low, high) in ranges.items()))

    @classmethod
    def made_of(cls, inner: Encoding, values: JsonObject) -> MetricsEncoding:
        if any(len(one) != 3 or isinstance(one[1], str) or isinstance(one[2], str) for one in values["ranges"]):
            raise FileFormatError("encoding of kind 'metrics': damaged (a range is a name and two numbers)")
        ranges = tuple((str(name), float(low), float(high)) for name, low, high in values["ranges"])
        return cls(inner=inner, ranges=ranges)

    @property
    def names(self) -> tuple[str, ...]:
        """Of the metrics, in order."""
        return tuple(name for name, _, _ in self.ranges)

    @property
    def purpose(self) -> Purpose:
        return "evaluate"

    def numbers(self, parameters: int) -> int:
        """As many as metrics, whatever the model."""
        return len(self.ranges)

    @property
    def _share(self) -> float:
        """What stands for the upper end of a range, of norms of the inner encoding: its middle is 0."""
        norm = self.inner.norm
        assert norm is not None  # checked when made
        reach = self.inner.reach if isinstance(self.inner, WeightedEncoding) else norm
        return reach / math.sqrt(len(self.ranges))

    @property
    def _middles(self) -> tuple[Vector, Vector]:
        low, high = (np.array([one[place] for one in self.ranges]) for place in (1, 2))
        return (low + high) / 2, (high - low) / 2

    @property
    def weighs(self) -> bool:
        return self.inner.weighs

    def _inside(self, size: int) -> int:
        return len(self.ranges)

    def nothing(self, parameters: int) -> Vector:
        return np.append(self._middles[0], [0.0] * self.weighs)

    def encode(self, update: npt.ArrayLike, *, rng: Seed = None) -> Integers:
        """As of every encoding; the update are the metrics, in order (and the number of examples)."""
        vector, count = check_vector(update, name="metrics"), len(self.ranges)
        if vector.size != count + self.weighs:
            raise ParameterError("metrics", f"{vector.size} numbers", f"need {', '.join(self.names)}")
        middle, half = self._middles
        scaled = self._share * np.clip((vector[:count] - middle) / half, -1, 1)
        return self.inner.encode(np.append(scaled, vector[count:]), rng=rng)

    def decode(self, total: Integers, *, count: int, size: int, release: Hashable = None) -> Vector:
        return np.array([one.value for one in self.measured(total, count=count).values()])

    def measured(self, total: Integers, *, count: int) -> dict[str, Measured]:
        """The metrics' means over `count` clients, by name; noise may carry them out of their ranges.

        With weights a mean is a ratio of two noisy sums, whose error is that of its expansion to first order.
        """
        deviation, spread = math.sqrt(self.inner.mse() / count), 0.0
        if isinstance(self.inner, WeightedEncoding):
            mean, weight = self.inner.ratio(total, count=count, size=len(self.ranges))
            deviation, spread = deviation / weight, 1 / self.inner.unit
        else:
            mean = self.inner.decode(total, count=count, size=len(self.ranges))
        middle, half = self._middles
        errors = deviation * np.sqrt(1 + (spread * mean) ** 2) * half / self._share
        values = middle + half * mean / self._share
        return {name: Measured(float(values[place]), float(errors[place])) for place, name in enumerate(self.names)}

    def error(self, clients: int) -> dict[str, float]:
        """Standard errors of the means of so many clients, at the middle of each range; weights count as 1 each."""
        deviation = math.sqrt(self.inner.mse() / clients)
        errors = deviation * self._middles[1] / self._share
        return dict(zip(self.names, errors.tolist(), strict=True))

    def as_dict(self) -> JsonObject:
        return {"kind": "metrics", "inner": self.inner.as_dict(), "ranges": [list(one) for one in self.ranges]}
