"""Encodings around others: examples that weigh the update, metrics, the vote on the clipping norm; and descriptions.

Descriptions are what `as_dict` returns: plain values that travel in files and messages. Reading them back takes all
kinds of encodings, of which those here are the last.
"""

from __future__ import annotations

import json
import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import SCALES, check_count, check_positive, check_probability, check_vector
from mezzotint.core.errors import FileFormatError, InfeasibleError, MezzotintError, ParameterError
from mezzotint.core.files import parse_json, read_object
from mezzotint.core.mechanism import MAX_LEVELS, Mechanism, Seed
from mezzotint.core.records import JsonObject
from mezzotint.families.noise import IntegerNoise
from mezzotint.federated.encoding import (
    Encoding,
    FixedPointEncoding,
    GaussianEncoding,
    Integers,
    ModularEncoding,
    NoiseEncoding,
    TableEncoding,
    Traits,
    Vector,
    canonical,
    gaussian_encoding,
)
from mezzotint.federated.secagg.plan import Purpose
from mezzotint.privacy.claim import Claim
from mezzotint.vectors import clip
from mezzotint.vectors.rotation import ROTATION


@dataclass(frozen=True, kw_only=True)
class WrappedEncoding(Encoding, ABC):
    """An encoding that transforms an update into another vector, which an inner encoding encodes.

    Arguments:
        inner: clips and encodes that vector.

    Guarantees: `claims` are the inner encoding's, for that vector.
    """

    inner: Encoding

    def __post_init__(self) -> None:
        if self.inner.bands > 1:
            raise ParameterError("inner", f"{self.inner.bands} bands", "a vector made of an update is not spread")

    @classmethod
    @abstractmethod
    def made_of(cls, inner: Encoding, values: JsonObject) -> WrappedEncoding:
        """From a description, whose inner encoding is made already.

        Raises:
            KeyError, TypeError: a field is missing, or of another type. FileFormatError: the wrong inner, or values.
        """

    @abstractmethod
    def _inside(self, size: int) -> int:
        """The number of coordinates of the inner vector for an update of `size`."""

    @property
    def traits(self) -> Traits:
        return self.inner.traits

    def length(self, size: int) -> int:
        return self.inner.length(self._inside(size))

    def claims(self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0) -> dict[str, Claim]:
        """The inner encoding's, for the vector that it encodes."""
        inside = self._inside(size)
        return self.inner.claims(rounds=rounds, clients=clients, size=inside, delta=delta, corrupted=corrupted)

    def central(self, *, rounds: int, clients: int, size: int, delta: float, corrupted: int = 0) -> Claim | None:
        inside = self._inside(size)
        return self.inner.central(rounds=rounds, clients=clients, size=inside, delta=delta, corrupted=corrupted)

    def mse(self) -> float:
        return self.inner.mse()

    def noise_multiplier(self, clients: int) -> float:
        return self.inner.noise_multiplier(clients)


@dataclass(frozen=True, kw_only=True)
class JoinedEncoding(WrappedEncoding, ABC):
    """An update of d coordinates and a number, through an encoding of d + 1: one vector and one sum.

    Guarantees: `claims` are the inner encoding's for d + 1 coordinates: the number costs no round of its own.
    """

    def _inside(self, size: int) -> int:
        return size + 1


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

    Example:
        >>> encoding = mz.federated.gaussian_encoding(noise_multiplier=8.0, l2_norm=1.0, clients=100, size=1000)
        >>> weighted = mz.federated.WeightedEncoding(inner=encoding, most_examples=500)
        >>> weighted.length(1000) == encoding.length(1001)
        True
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
        """A grid rounds towards 0: a weight below one step would silently become 0."""
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
        """As for every encoding, but the update has d + 1 coordinates, the last of which is the number of examples."""
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

    Example:
        >>> encoding = mz.federated.MetricsEncoding.gaussian({"loss": (0, 5)}, noise_multiplier=8.0, clients=100)
        >>> encoding.names
        ('loss',)
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
        """The number of metrics, whatever the model."""
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
        """As for every encoding; the update is the metrics, in order (and the number of examples)."""
        vector, count = check_vector(update, name="metrics"), len(self.ranges)
        if vector.size != count + self.weighs:
            raise ParameterError("metrics", f"{vector.size} numbers", f"need {', '.join(self.names)}")
        middle, half = self._middles
        scaled = self._share * np.clip((vector[:count] - middle) / half, -1, 1)
        return self.inner.encode(np.append(scaled, vector[count:]), rng=rng)

    def decode(self, total: Integers, *, count: int, size: int, release: Hashable = None) -> Vector:
        return np.array([one.value for one in self.measured(total, count=count).values()])

    def measured(self, total: Integers, *, count: int) -> dict[str, Measured]:
        """The means of the metrics over `count` clients, by name; noise may take them out of their ranges.

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
        """Standard errors of the means over this many clients, at the middle of each range, with all weights 1."""
        deviation = math.sqrt(self.inner.mse() / clients)
        errors = deviation * self._middles[1] / self._share
        return dict(zip(self.names, errors.tolist(), strict=True))

    def as_dict(self) -> JsonObject:
        return {"kind": "metrics", "inner": self.inner.as_dict(), "ranges": [list(one) for one in self.ranges]}


SHARE = 1 / 20
"""Standard deviation of the noise on the number of clients within the clipping norm, over all clients of a round."""

MOST_COST = 1.02
"""Largest factor by which the bit may increase the noise on the updates."""


@final
@dataclass(frozen=True, kw_only=True)
class AdaptiveEncoding(JoinedEncoding):
    """Updates in units of a clipping norm C that moves from round to round, and whether each was within it.

    A client sends (x / C, w b): its update clipped to C, and b = 1/2 if that did not shorten it, else -1/2. The inner
    encoding clips to R = sqrt(1 + w^2 / 4), which no such vector exceeds, so R says what w is; two differ by 2 R at
    most, and some do. The noise is that of the inner encoding and hence relative to C, whatever C is.

    Arguments:
        inner: of vectors of d + 1 coordinates in units of C; its norm R is above 1, and the factor by which the
            noise on the updates is larger than without the bit.
        clip: C of this round, data units, within `least` and `most`.
        quantile: share of the clients whose updates C shall not shorten, in (0, 1).
        rate: after a round in which the share was s, C is multiplied by exp(rate (quantile - s)).
        least, most: where C ends, data units.

    Raises:
        ParameterError: an inner norm of 1 or less, which leaves no room for the bit, or values out of their ranges.

    Guarantees: claims are the inner encoding's for d + 1 coordinates: those of mean and share together. They do not
        depend on C, and sums under different norms compose as those under one.
    Source: Andrew, Thakkar, McMahan and Ramaswamy 2021; docs/proofs/vectors.md, "Clipping norms that adapt".

    Example:
        >>> from mezzotint.federated.joined import adaptive_encoding
        >>> encoding = adaptive_encoding(noise_multiplier=8.0, clip=0.3, clients=1000, size=100)
        >>> isinstance(encoding, mz.federated.AdaptiveEncoding), encoding.quantile
        (True, 0.5)
    """

    inner: GaussianEncoding
    clip: float = 1.0
    quantile: float = 0.5
    rate: float = 0.2
    least: float = 0.0
    most: float = math.inf

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.inner.l2_norm > 1:
            raise ParameterError(
                "inner", f"norm {self.inner.l2_norm:g}", "above 1: 1 for the update, the rest for the bit"
            )
        check_positive("clip", self.clip)
        check_positive("rate", self.rate)
        check_probability("quantile", self.quantile)
        if not 0 <= self.least <= self.clip <= self.most:
            raise ParameterError("clip", self.clip, f"within its range of {self.least:g} to {self.most:g}")

    @classmethod
    def made_of(cls, inner: Encoding, values: JsonObject) -> AdaptiveEncoding:
        if not isinstance(inner, GaussianEncoding):
            raise FileFormatError("encoding of kind 'adaptive': damaged (its noise is no rounded Gaussian)")
        rule = {name: float(values[name]) for name in ("clip", "quantile", "rate", "least", "most") if name in values}
        return cls(inner=inner, **rule)

    @property
    def _unit(self) -> float:
        """w: what stands for one client, in units of C."""
        return 2 * math.sqrt(self.inner.l2_norm**2 - 1)

    def encode(self, update: npt.ArrayLike, *, rng: Seed = None) -> Integers:
        vector = check_vector(update, name="update")
        within = float(np.linalg.norm(vector)) <= self.clip
        short = clip(vector, norm="l2", bound=self.clip) / self.clip
        return self.inner.encode(np.append(short, self._unit * (0.5 if within else -0.5)), rng=rng)

    def decode(self, total: Integers, *, count: int, size: int, release: Hashable = None) -> Vector:
        return self.clip * self.inner.decode(total, count=count, size=size + 1, release=release)[:-1]

    def share(self, total: Integers, *, count: int, size: int) -> float:
        """Estimate of the share of the clients whose updates were within C; noise may take it out of [0, 1]."""
        return float(self.inner.decode(total, count=count, size=size + 1)[-1]) / self._unit + 0.5

    def after(self, total: Integers, *, count: int, size: int) -> AdaptiveEncoding:
        share = min(max(self.share(total, count=count, size=size), 0.0), 1.0)
        moved = self.clip * math.exp(self.rate * (self.quantile - share))
        return replace(self, clip=min(max(moved, self.least), self.most))

    @property
    def accounted(self) -> AdaptiveEncoding:
        """With nothing but the noise: no claim depends on the rest."""
        return AdaptiveEncoding(inner=self.inner)

    def as_dict(self) -> JsonObject:
        rule = {name: getattr(self, name) for name in ("clip", "quantile", "rate", "least")}
        most = {} if math.isinf(self.most) else {"most": self.most}  # JSON has no infinity
        return {"kind": "adaptive", "inner": self.inner.as_dict()} | rule | most

    def mse(self) -> float:
        return self.clip**2 * self.inner.mse()

    @cached_property
    def traits(self) -> Traits:
        return replace(self.inner.traits, largest=self.clip, norm=self.clip)


def cost_of_bits(noise_multiplier: float, clients: int) -> float:
    """Factor by which the noise on updates grows when one bit per client shares the budget; inf if none suffices.

    Arguments:
        noise_multiplier: of the joint release: what the update would have alone.
        clients: of a round; the noise on the number of bits has `SHARE` of that as its standard deviation.

    Example:
        >>> round(cost_of_bits(5.64, 100), 2), round(cost_of_bits(5.64, 1000), 3)
        (1.21, 1.002)
    """
    ratio = noise_multiplier / (2 * SHARE * clients)
    return math.inf if ratio >= 1 else (1 - ratio**2) ** -0.5


def adaptive_encoding(
    *,
    noise_multiplier: float,
    clip: float,
    clients: int,
    size: int,
    quantile: float = 0.5,
    rate: float = 0.2,
    clip_range: tuple[float, float] | None = None,
    seed: int = 0,
) -> AdaptiveEncoding:
    """Rounded Gaussian noise relative to a clipping norm that follows a quantile of the updates' norms.

    Arguments:
        noise_multiplier: of mean and quantile together, which is what claims and policies count: the standard deviation
            of the noise on the sum of `clients`, over half of the most that one client can move the sum by; > 0.
        clip: of the first round, data units.
        clients: summands of a round.
        size: coordinates of an update.
        quantile: share of the clients whose updates shall be within the norm, in (0, 1).
        rate: of the steps of the norm's logarithm.
        clip_range: least and largest norm, data units; None takes a hundredth and a hundred times of `clip`.
        seed: of the rotation.

    Returns: the encoding of the first round; its central claim is that of the continuous Gaussian with this noise
        multiplier, and covers the quantile.

    Raises:
        InfeasibleError: so few clients that the quantile would cost more than 2 % more noise on the updates.
        ParameterError: noise that needs more than 32 bits a coordinate.

    Example:
        >>> made = adaptive_encoding(noise_multiplier=8.0, clip=0.3, clients=1000, size=7850)
        >>> round(made.noise_multiplier(1000), 6), round(made.inner.l2_norm, 4)
        (8.0, 1.0032)
    """
    check_positive("noise_multiplier", noise_multiplier)
    cost = cost_of_bits(noise_multiplier, check_count("clients", clients))
    if cost > MOST_COST:
        ratio = math.sqrt(1 - MOST_COST**-2)
        needed = math.ceil(noise_multiplier / (2 * SHARE * ratio))
        told = "more noise than there can be" if math.isinf(cost) else f"{cost:.3g} times the noise on the updates"
        raise InfeasibleError(
            f"a clipping norm that adapts asks every client for one bit more, which with {clients} clients a round and "
            f"a noise multiplier of {noise_multiplier:.4g} takes {told}; at most {MOST_COST:g} times pay. Use {needed} "
            "clients a round, or a fixed norm"
        )
    least, most = (clip / 100, 100 * clip) if clip_range is None else clip_range
    inner = gaussian_encoding(
        noise_multiplier=noise_multiplier, l2_norm=cost, clients=clients, size=size + 1, seed=seed
    )
    return AdaptiveEncoding(inner=inner, clip=clip, quantile=quantile, rate=rate, least=least, most=most)


LARGEST = 1 << 24
"""Bytes of a description; a longer one is refused before it fills the memory."""

MOST_PARTS = 4 * MAX_LEVELS
"""Lists, objects and fields of a description; millions of them take seconds to read, and no table has as many rows."""


def encoding_from(values: JsonObject) -> Encoding:
    """The encoding of `as_dict`.

    Raises:
        ParameterError: an unknown kind. FileFormatError: a mechanism that is none, a field that is missing.
    """
    makers: dict[str, Callable[[JsonObject], Encoding]] = {
        "table": _table, "fixed": _fixed, "noise": _noise, "gaussian": _gaussian, **dict.fromkeys(_WRAPPED, _wrapped),
    }  # fmt: skip
    if not isinstance(values, dict):
        raise FileFormatError("encoding: damaged (an object of fields is needed)")
    kind = str(values.get("kind"))
    if kind not in makers:
        raise ParameterError("encoding", kind, f"this version knows {', '.join(makers)}")
    try:
        return makers[kind](values)
    except MezzotintError:
        raise
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise FileFormatError(f"encoding of kind {kind!r}: damaged ({error})") from None


def _check_rotation(values: JsonObject) -> None:
    """FileFormatError of a description whose vectors were rotated in another way, which would decode to nonsense."""
    name = values.get("rotation", "one transform after padding with zeros")
    if name != ROTATION:
        raise FileFormatError(f"encoding: its rotation is {name!r}, this version's {ROTATION!r}; make it anew")


def _table(values: JsonObject) -> Encoding:
    if values["l2_norm"] is not None:
        _check_rotation(values)
    mechanism = Mechanism.from_json(json.dumps(values["mechanism"]))
    return TableEncoding(mechanism=mechanism, l2_norm=values["l2_norm"], seed=int(values["seed"]))


def _fixed(values: JsonObject) -> Encoding:
    return FixedPointEncoding(clip=values["clip"], grid_bits=values["grid_bits"], l2_norm=values["l2_norm"])


def _modular(values: JsonObject) -> JsonObject:
    """What all descriptions of noise modulo M say."""
    _check_rotation(values)
    kept = {name: values[name] for name in ("l2_norm", "granularity")}
    whole = {name: int(values[name]) for name in ("modulus_bits", "seed")}
    return kept | whole | {"name": str(values["name"])}


def _noise(values: JsonObject) -> Encoding:
    if len(values["weights"]) > MAX_LEVELS:
        raise ValueError(f"{len(values['weights'])} weights, above {MAX_LEVELS}")
    weights = np.array(values["weights"], dtype=np.int64)
    offsets = int(values["first"]) + np.arange(weights.size, dtype=np.int64)
    noise = IntegerNoise(offsets=offsets, weights=weights, truncated_mass=0.0)
    return NoiseEncoding(noise=noise, adds=values["adds"], **_modular(values))


def _gaussian(values: JsonObject) -> Encoding:
    return GaussianEncoding(deviation=values["deviation"], bands=int(values.get("bands", 1)), **_modular(values))


def _wrapped(values: JsonObject) -> Encoding:
    return _WRAPPED[values["kind"]].made_of(encoding_from(values["inner"]), values)


_WRAPPED = {"weighted": WeightedEncoding, "adaptive": AdaptiveEncoding, "metrics": MetricsEncoding}


def load_encoding(path: Path, *, l2_norm: float | None = None) -> Encoding:
    """An encoding's description, or a mechanism file (then with the norm given).

    Arguments:
        path: of a description or a mechanism file.
        l2_norm: clipping norm, for a mechanism file.

    Returns: the encoding that server and clients share.

    Raises:
        FileFormatError: neither. ParameterError: a table that cannot be summed.

    Example:
        >>> from pathlib import Path
        >>> mz.families.rqm(levels=16, extension=1.0, q=0.42).save("m.json")
        >>> encoding = mz.federated.load_encoding(Path("m.json"))
        >>> type(encoding).__name__
        'TableEncoding'
    """
    try:
        values = read_object(path)
    except FileFormatError as error:
        raise FileFormatError(f"{path.name}: no mechanism file ({error})") from None
    if "kind" in values:
        return encoding_from(values)
    return TableEncoding(mechanism=Mechanism.load(path), l2_norm=l2_norm)


def packed(encoding: Encoding) -> bytes:
    """The description as sent over the wire."""
    return zlib.compress(canonical(encoding.as_dict()).encode(), 9)


def unpacked(data: bytes) -> Encoding:
    """The encoding of `packed`.

    Raises:
        FileFormatError: anything else, more than `LARGEST` bytes, also as written down again, or `MOST_PARTS` parts.
    """
    try:
        reader = zlib.decompressobj()
        text = reader.decompress(data, LARGEST)
        if sum(text.count(mark) for mark in (b"[", b"{", b":")) > MOST_PARTS:
            raise ValueError("it has more lists, objects and fields than an encoding can have")
        values = parse_json(text, name="encoding")
        if not reader.eof or not isinstance(values, dict):
            raise ValueError("no description, or one that is too long")
    except (zlib.error, ValueError) as error:
        raise FileFormatError(f"encoding: damaged ({error})") from None
    encoding = encoding_from(values)
    if len(canonical(encoding.as_dict())) > LARGEST:  # what a ledger notes has to be read again
        raise FileFormatError("encoding: damaged (too long when it is written down)")
    return encoding
