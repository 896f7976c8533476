"""Clipping norms that follow a quantile of the updates' norms: one bit of each client travels in the same sum."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_count, check_positive, check_probability, check_vector
from mezzotint.core.errors import FileFormatError, InfeasibleError, ParameterError
from mezzotint.core.mechanism import Seed
from mezzotint.core.records import JsonObject
from mezzotint.federated.encoding import Encoding, GaussianEncoding, Integers, Vector, gaussian_encoding
from mezzotint.federated.joined import JoinedEncoding
from mezzotint.vectors import clip

SHARE = 1 / 20
"""Standard deviation of the noise on the number of clients within the clipping norm, over all clients of a round."""

MOST_COST = 1.02
"""Most that the bit may multiply the noise of the updates by."""


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

    @property
    def largest(self) -> float:
        return self.clip

    @property
    def norm(self) -> float:
        return self.clip


def cost_of_bits(noise_multiplier: float, clients: int) -> float:
    """Factor by which the noise on updates grows where a bit of each client shares the budget; inf if no noise does.

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
