"""Means that count a client by its examples: a clipped weight travels as one more coordinate of the same sum."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_count, check_vector
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Seed
from mezzotint.core.records import JsonObject
from mezzotint.federated.encoding import Encoding, FixedPointEncoding, Integers, TableEncoding, Vector
from mezzotint.federated.joined import JoinedEncoding
from mezzotint.vectors import clip


@final
@dataclass(frozen=True, kw_only=True)
class WeightedEncoding(JoinedEncoding):
    """The weighted mean as the ratio of two sums: of w x and of w h, in one vector (w x, w h) of d + 1 coordinates.

    x is the update, w = min(examples, most_examples) / most_examples, and h a constant within the range that the inner
    encoding clips coordinates to: half of its clipping norm, or else the range's wider end. Numbers of examples are
    data: the claims are about both sums together.

    Arguments:
        inner: clips and encodes the vector of d + 1 coordinates. Where it clips to a norm C, x is clipped to
            sqrt(C^2 - h^2) before, so that the vector's norm is at most w C. A range without 0 is refused, and a grid
            on which a client with one example would weigh 0: it rounds towards 0, so that a weight, too, may be one
            step too light.
        most_examples: a client with more counts as one with so many; the fewer, the less the noise of the second sum
            weighs.

    Edge cases: with much noise and few clients the second sum may come out near or below zero; it is then taken as the
        least that it can be, that of clients with one example each.
    """

    most_examples: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("most_examples", self.most_examples)
        if isinstance(self.inner, JoinedEncoding):
            raise ParameterError(
                "inner", "weighted or adaptive", "an encoding weighs once, and not where its norm adapts"
            )
        if self.inner.purpose != "train":
            raise ParameterError("inner", self.inner.purpose, "what clients measure weighs inside its own encoding")
        low, high = self._range
        if not low <= 0 <= high:
            raise ParameterError("inner", f"[{low:g}, {high:g}]", "weighted numbers shrink to 0: a range with 0 in it")
        if isinstance(self.inner, FixedPointEncoding):
            self._check_grid(self.inner)

    def _check_grid(self, inner: FixedPointEncoding) -> None:
        """A grid rounds towards 0: a weight below one of its steps would be none, and nobody would know."""
        steps = abs(self.unit) / inner.step * (1 - 1e-9)  # of the weight 1; what is rounded twice must not fall below
        if self.most_examples > steps:
            lost = min(self.most_examples, math.ceil(self.most_examples / steps) - 1)
            told = f"clients with up to {lost} examples would weigh 0 on this grid of {inner.grid_bits} bits"
            remedy = f"{told}: at most {math.floor(steps)} there, more grid_bits, or an encoding that rounds at random"
            raise ParameterError("most_examples", self.most_examples, remedy)

    @classmethod
    def made_of(cls, inner: Encoding, values: JsonObject) -> WeightedEncoding:
        return cls(inner=inner, most_examples=int(values["most_examples"]))

    @property
    def weighs(self) -> bool:
        return True

    @property
    def unit(self) -> float:
        """h: what stands for the weight 1. Never clipped: on the wider side of the range, and within it."""
        low, high = self._range
        wider = high if high >= -low else low
        return wider if self.inner.norm is None else math.copysign(min(self.inner.norm / 2, abs(wider)), wider)

    @property
    def _range(self) -> tuple[float, float]:
        """What the inner encoding clips each coordinate of (w x, w h) to, where it does so before any rotation."""
        if isinstance(self.inner, FixedPointEncoding):
            return -self.inner.clip, self.inner.clip
        if isinstance(self.inner, TableEncoding) and self.inner.norm is None:
            return self.inner.mechanism.lower, self.inner.mechanism.upper
        return -math.inf, math.inf

    @property
    def reach(self) -> float:
        """What the inner encoding's clipping norm leaves for an update beside its weight; inf where there is none."""
        return math.inf if self.inner.norm is None else math.sqrt(self.inner.norm**2 - self.unit**2)

    def encode(self, update: npt.ArrayLike, *, rng: Seed = None) -> Integers:
        """As of every encoding, but the update has d + 1 coordinates, the last of which is the number of examples."""
        vector = check_vector(update, name="update")
        examples = float(vector[-1])
        if vector.size < 2 or examples < 0:
            remedy = "the train function's metrics say how many there are"
            raise ParameterError("num-examples", "no number >= 0", remedy)
        short = vector[:-1]
        if self.inner.norm is not None:
            short = clip(short, norm="l2", bound=self.reach)
        short = np.clip(short, *self._range)
        weight = min(examples, self.most_examples) / self.most_examples
        return self.inner.encode(weight * np.append(short, self.unit), rng=rng)

    def decode(self, total: Integers, *, count: int, size: int, release: Hashable = None) -> Vector:
        return self.ratio(total, count=count, size=size, release=release)[0]

    def ratio(self, total: Integers, *, count: int, size: int, release: Hashable = None) -> tuple[Vector, float]:
        """The weighted mean, and the mean weight that it was divided by; arguments as of `decode`."""
        mean = self.inner.decode(total, count=count, size=size + 1, release=release)
        weight = min(1.0, max(float(mean[-1]) / self.unit, 1 / self.most_examples))
        return mean[:-1] / weight, weight

    def as_dict(self) -> JsonObject:
        return {"kind": "weighted", "inner": self.inner.as_dict(), "most_examples": self.most_examples}
