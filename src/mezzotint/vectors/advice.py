"""Which scheme to use: every applicable one calibrated to the same claim about the whole run, ranked by its error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, final

import numpy as np

from mezzotint.core.errors import MezzotintError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.rounding import table
from mezzotint.vectors.noise import NoiseTable
from mezzotint.vectors.rotation import Rotation
from mezzotint.vectors.scheme import NoiseScheme, TableScheme

Trust = Literal["local", "sum"]

_STEPS = 14
_QUIET = 0.05
"""Relative error of a calibrated parameter: the search stops there, on the private side."""


@final
@dataclass(frozen=True, kw_only=True)
class Setting:
    """What is to be estimated: the mean of clients' vectors, once per round.

    Arguments:
        clients: reports per sum.
        dimension: coordinates; vectors have L2 norm at most 1 (for dimension 1: values in [-1, 1]).
        rounds: rounds in which one client takes part.
        trust: "local": every report is seen; "sum": a secure sum hides all but the total.
        epsilon, delta: the claim for all coordinates and all those rounds, replace-one client.
        bits: most bits per report value that a client sends before any secure-sum overhead; None for no limit.
    """

    clients: int
    dimension: int
    rounds: int
    trust: Trust
    epsilon: float
    delta: float
    bits: int | None = None

    def __post_init__(self) -> None:
        for name in ("clients", "dimension", "rounds"):
            value = getattr(self, name)
            if int(value) != value or value < 1:
                raise ParameterError(name, value, "need an integer >= 1")
        if self.trust not in ("local", "sum"):
            raise ParameterError("trust", self.trust, 'use "local" (every report is seen) or "sum" (only sums are)')
        if not 0 < self.epsilon < math.inf:
            raise ParameterError("epsilon", self.epsilon, "need a positive, finite target")
        if not 0 < self.delta < 1:
            raise ParameterError("delta", self.delta, "need a probability in (0, 1)")
        if self.bits is not None and (int(self.bits) != self.bits or self.bits < 1):
            raise ParameterError("bits", self.bits, "need at least 1 bit, or None")

    @property
    def observed(self) -> int:
        """Reports whose noise hides one client's: all of a sum, only its own in the local view."""
        return self.clients if self.trust == "sum" else 1

    @property
    def width(self) -> int:
        """Coordinates after padding (rotations need a power of two); 1 stays 1."""
        return 1 if self.dimension == 1 else Rotation(dimension=self.dimension, seed=0).padded

    @property
    def reach(self) -> float:
        """Range of a rotated coordinate: four times its typical size 1 / sqrt(d), or 1 for a scalar."""
        return 1.0 if self.width == 1 else min(1.0, 4 / math.sqrt(self.width))


@final
@dataclass(frozen=True, kw_only=True)
class Option:
    """One scheme under the setting's claim.

    Arguments:
        name: of the scheme.
        feasible: whether some parameter meets the claim, and the bits.
        mse: mean squared error per coordinate of the estimated mean, at a typical vector (coordinates near 0 after
            rotation, uniform for a scalar); inf when infeasible.
        bits: per reported value on the wire (log2 of the modulus in the sum view).
        epsilon: of the claim at the parameter found.
        parameter: what was calibrated, as text.
        reason: why it ranks where it does, or why it cannot be used and what would help.
    """

    name: str
    feasible: bool
    mse: float
    bits: float
    epsilon: float
    parameter: str
    reason: str


@final
@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A family of tables to consider: `build(strength, reach)` gives its table on [-reach, reach].

    Arguments:
        name: of the family.
        build: (local epsilon of one report, range) -> Mechanism.
    """

    name: str
    build: Callable[[float, float], Mechanism]


def one_bit(epsilon: float, reach: float) -> Mechanism:
    """The unbiased one-bit response at +-A, A = reach / tanh(epsilon / 2)."""
    level = reach / math.tanh(epsilon / 2)
    high = (1 + reach / level) / 2
    return table(
        knots=[-reach, reach],
        levels=[-level, level],
        probabilities=[[high, 1 - high], [1 - high, high]],
        name="one-bit response",
        epsilon=epsilon * (1 + 2.0**-20),
    )


def _table_option(setting: Setting, candidate: Candidate) -> Option:
    norm = None if setting.width == 1 else 1.0

    def claimed(strength: float) -> tuple[float, TableScheme]:
        scheme = TableScheme(
            mechanism=candidate.build(strength, setting.reach),
            size=setting.dimension, clients=setting.clients, l2_norm=norm,
        )  # fmt: skip
        return scheme.claim(clients=setting.observed, rounds=setting.rounds, delta=setting.delta).epsilon, scheme

    low, high = 1e-4, 8.0
    best: tuple[float, float, TableScheme] | None = None
    for _ in range(_STEPS):
        strength = math.sqrt(low * high)
        epsilon, scheme = claimed(strength)
        if epsilon <= setting.epsilon:
            low, best = strength, (strength, epsilon, scheme)
        else:
            high = strength
        if high / low < 1 + _QUIET and best is not None:
            break
    if best is None:
        return _hopeless(setting, candidate.name)
    strength, epsilon, scheme = best
    variance = float(scheme.mechanism.variance(0.0)) if setting.width > 1 else scheme.mechanism.mse()
    bits = float(scheme.bits if setting.trust == "sum" else scheme.mechanism.bits)
    local = scheme.mechanism.bits
    if setting.bits is not None and local > setting.bits:
        return _too_many_bits(setting, candidate.name, local)
    return Option(
        name=candidate.name, feasible=True, mse=variance / setting.clients, bits=bits, epsilon=epsilon,
        parameter=f"local epsilon {strength:.4g} per report", reason="",
    )  # fmt: skip


def _hopeless(setting: Setting, name: str) -> Option:
    what = f"{setting.width} values x {setting.rounds} rounds"
    helps = "fewer coordinates or rounds, more clients" + (", or a secure sum" if setting.trust == "local" else "")
    return Option(
        name=name, feasible=False, mse=math.inf, bits=math.nan, epsilon=math.inf, parameter="none",
        reason=f"no noise level tried keeps {what} within epsilon={setting.epsilon:g}; what helps: {helps}",
    )  # fmt: skip


def _too_many_bits(setting: Setting, name: str, bits: int) -> Option:
    return Option(
        name=name, feasible=False, mse=math.inf, bits=float(bits), epsilon=math.nan, parameter="none",
        reason=f"needs {bits} bits per value, more than bits={setting.bits}; allow more bits",
    )  # fmt: skip


def _noise_option(setting: Setting, name: str, make: Callable[[float], NoiseTable]) -> Option:
    """Integer noise on a rotated vector: granularity a fraction of the noise, noise searched."""
    if setting.trust == "local" and setting.width > 1:
        return _hopeless(setting, name)
    # The summed noise needed is about that of a Gaussian: granularity a third of one client's share resolves it.
    ideal = gaussian_deviation(setting) / math.sqrt(setting.observed)
    share = 1.0

    def scheme(sigma: float) -> NoiseScheme:
        total = math.sqrt(setting.clients) * sigma * ideal
        typical = setting.clients * setting.reach / 4 if setting.width > 1 else setting.clients
        wanted = 2 * (typical + 6 * total) / (ideal * share)
        bits = min(48, max(2, math.ceil(math.log2(wanted + 2))))
        return NoiseScheme(
            noise=make(sigma / share), size=setting.dimension, l2_norm=1.0, granularity=ideal * share,
            modulus_bits=bits,
        )  # fmt: skip

    low, high = 0.5, 64.0
    found: tuple[float, float, NoiseScheme] | None = None
    for _ in range(_STEPS):
        sigma = math.sqrt(low * high)
        candidate = scheme(sigma)
        try:
            claim = candidate.claim(clients=setting.observed, rounds=setting.rounds, delta=setting.delta)
        except ParameterError:
            return _hopeless(setting, name)
        if claim.epsilon <= setting.epsilon:
            high, found = sigma, (sigma, claim.epsilon, candidate)
        else:
            low = sigma
        if high / low < 1 + _QUIET / 2 and found is not None:
            break
    if found is None:
        return _hopeless(setting, name)
    sigma, epsilon, chosen = found
    if setting.bits is not None and chosen.bits > setting.bits:
        return _too_many_bits(setting, name, chosen.bits)
    # Noise of all clients plus rounding (at most 1/4 step^2 each), over clients^2.
    mse = ((sigma / share) ** 2 + 0.25) * (ideal * share) ** 2 / setting.clients
    return Option(
        name=name, feasible=True, mse=mse, bits=float(chosen.bits), epsilon=epsilon,
        parameter=f"sigma {sigma / share:.4g} steps of {ideal * share:.4g} per client", reason="",
    )  # fmt: skip


def gaussian_deviation(setting: Setting) -> float:
    """Standard deviation of Gaussian noise on the sum that meets the claim (Renyi accounting): the ideal, not private
    without a trusted server."""
    alphas = 1 + np.geomspace(1e-3, 1e3, 2000)
    saved = np.log1p(-1 / alphas) - np.log(setting.delta * alphas) / (alphas - 1)
    room = np.maximum(setting.epsilon - saved, 0.0) / alphas
    best = float(room.max())
    # Replace-one: ||x - x'|| <= 2, so D_alpha = alpha 4 rounds / (2 s^2).
    return math.sqrt(2 * setting.rounds / best)


def _ideal(setting: Setting) -> Option:
    mse = (gaussian_deviation(setting) / setting.clients) ** 2
    return Option(
        name="Gaussian noise of a trusted server", feasible=False, mse=mse, bits=math.nan, epsilon=setting.epsilon,
        parameter=f"sigma {gaussian_deviation(setting):.4g} on the sum",
        reason="the yardstick: it needs a server that sees every vector",
    )  # fmt: skip


def advise(
    setting: Setting,
    *,
    tables: Sequence[Candidate] = (),
    noises: Sequence[tuple[str, Callable[[float], NoiseTable]]] = (),
) -> list[Option]:
    """Every applicable scheme at the same whole-run claim, best first; infeasible ones say why.

    Arguments:
        setting: what is estimated, from whom, under which claim.
        tables: families of tables besides the one-bit response, which is always considered.
        noises: named makers of integer noise tables, from the standard deviation in steps.

    Returns: options, the feasible ones by mean squared error, then the others; the trusted server's Gaussian last.

    Guarantees: every feasible option's `epsilon` is a valid claim of `TableScheme` or `NoiseScheme` and at most the
        setting's.
    """
    options: list[Option] = []
    for candidate in (Candidate(name="one-bit response", build=one_bit), *tables):
        try:
            options.append(_table_option(setting, candidate))
        except MezzotintError as error:
            options.append(_failed(candidate.name, error))
    for name, make in noises:
        try:
            options.append(_noise_option(setting, name, make))
        except MezzotintError as error:
            options.append(_failed(name, error))
    ideal = _ideal(setting)
    ranked = sorted((o for o in options if o.feasible), key=lambda o: o.mse)
    judged = [_judged(option, ideal, setting) for option in ranked]
    return [*judged, *(o for o in options if not o.feasible), ideal]


def _failed(name: str, error: MezzotintError) -> Option:
    return Option(
        name=name, feasible=False, mse=math.inf, bits=math.nan, epsilon=math.inf, parameter="none", reason=str(error)
    )


def _judged(option: Option, ideal: Option, setting: Setting) -> Option:
    """The option with its reason: how far from the ideal, and whether it is of any use."""
    ratio = option.mse / ideal.mse
    # Guessing the centre errs by the mean square of a coordinate: 1/d for unit vectors, 1/3 for uniform scalars.
    trivial = 1 / 3 if setting.width == 1 else 1 / setting.width
    verdict = f"{ratio:.3g} x the error of a trusted server's Gaussian"
    if option.mse > trivial:
        verdict += f"; HOPELESS: worse than answering 0 (error {trivial:.3g}) without asking anyone"
    return Option(**{**{f: getattr(option, f) for f in option.__dataclass_fields__}, "reason": verdict})
