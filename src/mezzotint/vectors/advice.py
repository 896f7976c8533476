"""Which scheme to use: all applicable ones, calibrated to the same claim about the whole run and ranked by error."""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from typing import Literal, TypeVar, final

import numpy as np

from mezzotint.core.arguments import check_count, check_positive, check_rules
from mezzotint.core.errors import InfeasibleError, MezzotintError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, Progress, Record, above, number, ticks
from mezzotint.core.rounding import table
from mezzotint.core.types import TOTAL, FloatArray
from mezzotint.families.noise import IntegerNoise
from mezzotint.privacy.accounting import account
from mezzotint.privacy.claim import Claim, Release
from mezzotint.privacy.divergences import rdp_to_epsilon
from mezzotint.privacy.tradeoffs import gaussian_shift
from mezzotint.vectors.gaussian import GaussianScheme
from mezzotint.vectors.integers import NoiseScheme
from mezzotint.vectors.ranked import RankedCodebook
from mezzotint.vectors.ranked_design import ranked_codebook
from mezzotint.vectors.rotation import MAX_DIMENSION
from mezzotint.vectors.tables import TableScheme, VectorScheme

Trust = Literal["local", "sum"]

MOST = 10**9
"""Most clients, and most rounds, of a setting."""


@final
@dataclass(frozen=True, kw_only=True)
class Setting:
    """The mean of clients' vectors, estimated once per round.

    Arguments:
        clients: reports per round, 1 to 10**9.
        dimension: coordinates; vectors have L2 norm at most 1 (for dimension 1: values in [-1, 1]). Other norms scale
            errors by their square.
        rounds: rounds in which one client takes part.
        trust: "local": every report is seen; "sum": a secure sum hides all but the total.
        epsilon, delta: the claim about all coordinates and all those rounds, replace-one client. delta = 0 asks for
            pure epsilon.
        bits: most bits per value on the wire: of a report in the local view, of the modulus in a secure sum; None sets
            no limit.
        corrupted: clients of a round whose noise does not count (dishonest, or dropped out); "sum" only.

    Raises:
        ParameterError: naming the parameter, its value and the remedy.

    Example:
        >>> setting = mz.vectors.Setting(clients=1000, dimension=8, rounds=5, trust="sum", epsilon=1.0, delta=1e-6)
        >>> setting.dimension
        8
    """

    clients: int
    dimension: int
    rounds: int
    trust: Trust
    epsilon: float
    delta: float
    bits: int | None = None
    corrupted: int = 0

    def __post_init__(self) -> None:
        for name, most in (("clients", MOST), ("dimension", MAX_DIMENSION), ("rounds", MOST)):
            check_count(name, getattr(self, name), most=most)
        check_count("bits", 1 if self.bits is None else self.bits)
        bad, local = check_count("corrupted", self.corrupted, least=0), self.trust == "local"
        check_rules(
            self,
            (
                "trust",
                local or self.trust == "sum",
                'use "local" (every report is visible) or "sum" (only sums are)',
            ),
            ("epsilon", 1e-6 <= self.epsilon <= 1e4, "need a target from 1e-6 to 10000"),
            ("delta", 0 <= self.delta < 1, "need a probability in [0, 1); 0 asks for pure epsilon"),
            (
                "delta",
                self.delta == 0 or self.delta >= 1e-15,
                "use 0 for pure epsilon, or 1e-15 and more",
            ),
            ("corrupted", bad < self.clients, f"must be less than clients={self.clients}"),
            (
                "corrupted",
                not (bad and local),
                'applies to secure sums only; use trust="sum" or leave it out',
            ),
        )

    @property
    def honest(self) -> int:
        """Clients whose noise hides one client's report: in a sum all honest ones, in the local view only itself."""
        return self.summed - self.corrupted

    @property
    def summed(self) -> int:
        """Vectors in one sum; in the local view one."""
        return self.clients if self.trust == "sum" else 1

    @property
    def reach(self) -> float:
        """Range of a rotated coordinate for tables: four times its typical size 1 / sqrt(d), or 1 for a scalar."""
        return 1.0 if self.dimension == 1 else min(1.0, 4 / math.sqrt(self.dimension))

    @property
    def answering_zero(self) -> float:
        """Error per coordinate of always answering 0: 1/d for unit vectors, 1/3 for uniform scalars."""
        return 1 / 3 if self.dimension == 1 else 1 / self.dimension

    @property
    def trusted_deviation(self) -> float:
        """Standard deviation of a trusted server's noise on each coordinate of the sum: Laplace or Gaussian."""
        # ||x - x'||_1 <= 2 sqrt(d): scale 2 sqrt(d) T / epsilon, and sqrt(2) of that is the deviation.
        laplace = math.sqrt(2) * 2 * math.sqrt(self.dimension) * self.rounds / self.epsilon
        if self.delta == 0:
            return laplace
        # T releases of shifts by 2 under noise s are 2 sqrt(T) / s-GDP.
        return min(laplace, 2 * math.sqrt(self.rounds) / gaussian_shift(self.epsilon, self.delta))

    def release(self, scheme: VectorScheme) -> Release:
        """The release; one report is a sum of one."""
        return Release(
            mechanism=scheme, trust="secure_sum", clients=self.summed, corrupted=self.corrupted, rounds=self.rounds,
            delta=self.delta,
        )  # fmt: skip

    def claim(self, scheme: VectorScheme) -> Claim:
        """The scheme's claim in this setting."""
        claim = account(self.release(scheme))
        return (
            claim
            if self.trust == "sum"
            else replace(claim, observer="reports", honest_clients=None)
        )


S = TypeVar("S")
V = TypeVar("V", bound=VectorScheme)

CLOSE = 0.98
"""A search ends when the claim uses this share of epsilon."""
_AIM = (1 + CLOSE) / 2  # the share that a search aims at
_ENOUGH = 0.9  # the share accepted after `_PATIENCE` turns: where the accounting jumps, nothing may be closer
_FAR = 0.75  # below this share of the target, a cost only steers a search
_STEEP = 4.0  # a cost that grows with a higher power of the parameter jumps
_SLIGHT = 0.005  # a search ends when at most this share of the error can still be gained
_PATIENCE, _TRIES = 3, 12
_WEAKEST, _STRONGEST = 1e-7, 20.0
MOST_RANKED = 100.0
"""Largest epsilon of a ranked codebook's report; a larger one gains nothing that bits could carry."""
_WIDEST_NOISE = (
    4000.0  # largest standard deviation of one client's noise, steps: 2**16 places hold its table
)
_INFLATION = (
    0.01  # share by which rounding may increase a vector's squared norm if bits are unlimited
)


@final
class TooManyBits(InfeasibleError):
    """The values do not fit into the bits allowed, whatever the parameter."""


@final
@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of tables on [-reach, reach].

    Arguments:
        name: of the family.
        build: (strength, reach) -> table; strength is the local epsilon of one report, or increases with it.

    Example:
        >>> family = mz.vectors.Family(name="one-bit response", build=mz.vectors.one_bit)
        >>> family.build(1.0, 0.5).bits
        1
    """

    name: str
    build: Callable[[float, float], Mechanism]


@final
@dataclass(frozen=True, kw_only=True)
class NoiseFamily:
    """A family of integer noise.

    Arguments:
        name: of the family.
        build: standard deviation in steps -> noise.

    Example:
        >>> family = mz.vectors.NoiseFamily(name="Skellam", build=lambda scale: mz.families.skellam(variance=scale**2))
        >>> float(family.build(3.0).variance) > 8.9
        True
    """

    name: str
    build: Callable[[float], IntegerNoise]


def search(
    make: Callable[[float], S],
    cost: Callable[[S], float],
    *,
    guess: float,
    target: float,
    least: float,
    most: float,
    patience: int = _TRIES,
    error: Callable[[S], float] | None = None,
) -> tuple[float, S, float]:
    """(parameter, scheme, cost): the largest parameter found with cost at most `target`; cost grows with it.

    After `patience` turns a cost of `_ENOUGH` of the target ends the search, before that `CLOSE`. It also ends if
    slightly too costly schemes have no smaller `error`. InfeasibleError names the last cost.
    """
    bracket = _Bracket(low=math.log(least), high=math.log(most), aim=math.log(target * _AIM))
    at = min(max(math.log(guess), bracket.low), bracket.high)
    best: tuple[float, S, float] | None = None
    trouble: MezzotintError = InfeasibleError("no parameter was tried")
    errors = [0.0, math.inf]  # of the weakest that costs too much, and of the best
    for turn in range(_TRIES):
        try:
            scheme = make(math.exp(at))
            value = cost(scheme)
        except MezzotintError as problem:
            trouble, bracket.high, bracket.above = problem, at, None
            errors[0] = 0.0
        else:
            if value <= target:
                best = (math.exp(at), scheme, value)
                if value >= (CLOSE if turn < patience else _ENOUGH) * target or at >= math.log(
                    most
                ):
                    break
            else:
                told = "noise with a resolution of 2**-32 has too short a tail for this delta, values and rounds"
                if math.isfinite(value):
                    told = f"no noise tried meets epsilon={target:.4g}; the last cost {value:.4g}"
                trouble = InfeasibleError(told)
            bracket.narrow(at, value, value <= target)
            if error is not None:
                errors[value <= target] = error(scheme)
        if bracket.high - bracket.low < 2e-3 or errors[0] >= (1 - _SLIGHT) * errors[1]:
            break
        at = bracket.following(turn)
    if best is None:
        raise trouble
    return best


@final
class _Bracket:
    """The interval of a parameter's logarithm, and the logarithms of the costs at its ends once known."""

    def __init__(self, *, low: float, high: float, aim: float) -> None:
        self.low, self.high, self.aim = low, high, aim
        self.below: float | None = None
        self.above: float | None = None

    def narrow(self, at: float, value: float, cheap: bool) -> None:
        known = math.log(value) if 0 < value < math.inf else None
        if cheap:
            self.low, self.below = at, known
        else:
            self.high, self.above = at, known

    def following(self, turn: int) -> float:
        """A power law between two known ends, or the middle (every third turn, and where costs jump); else a power law
        of exponent 1 from the known end."""
        width = self.high - self.low
        if self.below is not None and self.above is not None:
            jumps = self.above - self.below > _STEEP * width + 0.05
            share = (
                (self.aim - self.below) / (self.above - self.below)
                if turn % 3 < 2 and not jumps
                else 0.5
            )
            return self.low + width * min(max(share, 0.03), 0.97)
        if self.below is not None:
            return min(self.low + self.aim - self.below, self.high)
        if self.above is not None:
            return max(self.high - (self.above - self.aim), self.low)
        return (self.low + self.high) / 2


# Tables ----------------------------------------------------------------------------------------------------------


def calibrated_table(setting: Setting, family: Family) -> tuple[TableScheme, Claim]:
    """The strongest table of the family that meets the setting's claim, and its claim."""
    norm = None if setting.dimension == 1 else 1.0

    def scheme(strength: float) -> TableScheme:
        table = family.build(strength, setting.reach)
        return TableScheme(
            mechanism=table, size=setting.dimension, clients=setting.summed, l2_norm=norm
        )

    # A one-bit report at +-A has variance A^2: the honest clients' share of a trusted server's noise.
    share = setting.trusted_deviation / math.sqrt(setting.honest) / setting.reach
    guess = min(2 * math.atanh(1 / share) if share > 1.001 else 6.0, 6.0)
    first = scheme(guess)
    check_bits(setting, first.bits if setting.trust == "sum" else first.mechanism.bits)

    claimed = cache(setting.claim)

    def exact(made: TableScheme) -> float:
        return claimed(made).epsilon

    under_l2 = _quick_under_l2(setting)

    def strongest(
        cost: Callable[[TableScheme], float], scale: Scale, guess: float
    ) -> tuple[float, TableScheme]:
        at, to = scale
        parameter, made, _ = search(
            lambda parameter: scheme(at(parameter)), cost, guess=to(guess), target=setting.epsilon,
            least=to(_WEAKEST), most=to(_STRONGEST), patience=_PATIENCE,
            error=lambda made: table_error(setting, made.mechanism),
        )  # fmt: skip
        return at(parameter), made

    if norm is None or setting.delta == 0:
        made = strongest(exact, _as_it_is, guess)[1]
        return made, claimed(made)
    # The L2 bound is nearly always better, and coordinates are slow to account for: they come last.
    scale = _gaussian_scale(setting, lambda strength: family.build(strength, setting.reach))
    guess, made = strongest(under_l2, scale, scale[0](_AIM * setting.epsilon))
    claim = claimed(made)
    if (
        claim.epsilon > setting.epsilon
    ):  # accounting does not try the order at which the search accepted it
        made = strongest(exact, scale, guess)[1]
        claim = claimed(made)
    # The cost by coordinates grows with the strength: above the target here, it rules out all stronger tables.
    if claim.epsilon < _ENOUGH * setting.epsilon and made.by_coordinates(
        setting.release(made), setting.epsilon
    ):
        with suppress(InfeasibleError):
            made = strongest(exact, scale, guess)[1]
            claim = claimed(made)
    return made, claim


def _quick_under_l2(setting: Setting) -> Callable[[TableScheme], float]:
    """Upper bound on epsilon by the L2 bound: quick, at the last scheme's best order, if that is far below the target;
    else as in accounting."""
    best: list[float] = []

    def cost(made: TableScheme) -> float:
        release = setting.release(made)
        if best:
            value = min(made.under_l2(release, alpha=best[-1]).values())
            if value <= _FAR * setting.epsilon:
                return value
        value = min(made.under_l2(release).values())
        if setting.delta > 0 and math.isfinite(value):
            # The best order is about inverse to the losses: moved to where the target is met.
            epsilon, alpha = made.best_order(release.others, release.rounds, release.delta)
            best.append(1 + (alpha - 1) * min(max(epsilon / setting.epsilon, 0.1), 10.0))
        return value

    return cost


Scale = tuple[Callable[[float], float], Callable[[float], float]]
_as_it_is: Scale = (lambda strength: strength, lambda strength: strength)


def _gaussian_scale(setting: Setting, build: Callable[[float], Mechanism]) -> Scale:
    """(parameter to strength, strength to parameter): the epsilon of Gaussian noise as large as the reports'."""
    points: list[tuple[float, float]] = []
    for strength in np.geomspace(_WEAKEST, _STRONGEST, 97).tolist():
        try:
            table = build(strength)
        except MezzotintError:
            continue
        apart = np.diff(table.knots)
        steepest = float(
            np.abs(np.diff(table.probabilities @ table.levels)[apart > 0] / apart[apart > 0]).max()
        )
        least = float(min(table.variance(knot) for knot in table.knots.tolist()))
        cost = 2 * steepest**2 * setting.rounds / (setting.honest * max(least, 1e-300))
        points.append(
            (math.log(strength), math.log(_gaussian_renyi(min(cost, 1e12), setting.delta)))
        )
    x, y = np.array(points).T
    y = np.maximum.accumulate(y) + 1e-9 * np.arange(y.size)
    return (
        lambda epsilon: math.exp(float(np.interp(math.log(epsilon), y, x))),
        lambda strength: math.exp(float(np.interp(math.log(strength), x, y))),
    )


def calibrated_ranked(setting: Setting) -> RankedCodebook:
    """The ranked codebook of the largest epsilon a round that meets the setting's claim; local view only."""
    # A setting's `bits` are per value, of which a vector has `dimension`.
    most_bits = math.inf if setting.bits is None else setting.bits * setting.dimension

    def make(epsilon: float) -> RankedCodebook:
        chosen = ranked_codebook(setting.dimension, epsilon)
        return (
            chosen
            if chosen.bits <= most_bits
            else ranked_codebook(setting.dimension, epsilon, int(most_bits))
        )

    def exact(scheme: RankedCodebook) -> float:
        return scheme.claim(rounds=setting.rounds, delta=setting.delta).epsilon

    # An ulp or two less, so that the sum over rounds, rounded up, keeps to epsilon.
    pure = min(setting.epsilon / setting.rounds, MOST_RANKED) * (1 - 2.0**-40)
    if setting.delta == 0 or setting.rounds == 1 or pure == MOST_RANKED:
        return make(pure)
    # Or composition by the square root of rounds, if that allows more.
    guess = setting.epsilon / math.sqrt(setting.rounds) / 3
    most = min(setting.epsilon, MOST_RANKED)
    _, scheme, _ = search(
        make,
        exact,
        guess=min(max(pure, guess), most),
        target=setting.epsilon,
        least=pure,
        most=most,
    )
    return scheme


def check_bits(setting: Setting, bits: int) -> None:
    """Raise TooManyBits if a value on the wire takes more bits than the setting allows."""
    if setting.bits is not None and bits > setting.bits:
        where = "a report" if setting.trust == "local" else f"a sum of {setting.clients}"
        raise TooManyBits(f"{where} needs {bits} bits, but bits={setting.bits}")


def best_order(epsilon: float, delta: float) -> float:
    """The Renyi order at which Gaussian noise needs the least variance."""
    alphas = 1 + np.geomspace(1e-3, 1e5, 4000)
    saved = np.log1p(-1 / alphas) - np.log(delta * alphas) / (alphas - 1)
    return float(alphas[np.argmax((epsilon - saved) / alphas)])


def table_error(setting: Setting, mechanism: Mechanism) -> float:
    """Mean squared error per coordinate of the mean at typical vectors, with the bias of clipping if all are alike."""
    # Scalars are uniform on [-1, 1]; rotated coordinates of unit vectors are nearly normal.
    if setting.dimension == 1:
        points, weights = np.polynomial.legendre.leggauss(128)
        weights = weights / 2
    else:
        points, weights = np.polynomial.hermite_e.hermegauss(64)
        points, weights = points / math.sqrt(setting.dimension), weights / weights.sum()
    inside = np.clip(points, mechanism.lower, mechanism.upper)
    variance = np.array([float(mechanism.variance(x)) for x in inside])
    bias = np.array([float(mechanism.mean(x)) for x in inside]) - points
    return float(weights @ (variance / setting.clients + bias**2))


# Integer noise ---------------------------------------------------------------------------------------------------


def calibrated_noise(setting: Setting, family: NoiseFamily) -> tuple[NoiseScheme, Claim]:
    """The least noise that meets the claim, and its claim; InfeasibleError if no table of noise does."""
    _check_delta(setting)
    # The deviation at which Gaussian noise, accounted as this noise is, meets the claim.
    alpha = best_order(setting.epsilon, setting.delta)
    left = setting.epsilon - rdp_to_epsilon(0.0, alpha, setting.delta)
    exact = setting.dimension * setting.rounds == 1 or left <= 0
    together = setting.trusted_deviation if exact else math.sqrt(2 * alpha * setting.rounds / left)
    ideal = together / math.sqrt(setting.honest)
    first = _noise_scheme(setting, family, ideal)
    ideal *= (
        first.rounded_norm * first.granularity
    )  # by as much as rounding stretches a vector of norm 1

    return _least_noise(
        setting, lambda noise: _noise_scheme(setting, family, noise), ideal, guess=_AIM, most=1e3
    )


def _least_noise(
    setting: Setting, at: Callable[[float], V], noise: float, *, guess: float, most: float
) -> tuple[V, Claim]:
    """The scheme of least noise that meets the claim, and its claim; `guess` and `most` divide the expected `noise`."""

    def make(inverse: float) -> tuple[V, Claim]:
        made = at(1 / inverse)
        return made, setting.claim(made)

    # Costs grow with the inverse of the noise.
    return search(
        make, lambda made: made[1].epsilon, guess=guess / noise, target=setting.epsilon, least=1e-3 / noise,
        most=most / noise,
    )[1]  # fmt: skip


def _gaussian_renyi(cost: float, delta: float) -> float:
    """Epsilon of Gaussian noise whose Renyi divergence of order alpha is alpha times `cost`; at least 1e-12."""
    alphas = 1 + math.sqrt(math.log(1 / delta) / cost) * np.geomspace(0.5, 2, 9)
    return max(1e-12, min(rdp_to_epsilon(alpha * cost, alpha, delta) for alpha in alphas.tolist()))


def _check_delta(setting: Setting) -> None:
    if setting.delta == 0:
        raise InfeasibleError("noise of sums has no pure epsilon; allow delta > 0")


def calibrated_gaussian(setting: Setting) -> tuple[GaussianScheme, Claim]:
    """The least rounded Gaussian noise that meets the claim, in the fewest bits, and its claim."""
    _check_delta(setting)
    # T releases of shifts by 2 under noise z are 2 sqrt(T) / z-GDP, of which the corrupted add none.
    shift = gaussian_shift(setting.epsilon, setting.delta)
    noise = 2 * math.sqrt(setting.rounds * setting.summed / setting.honest) / shift

    def at(noise: float) -> GaussianScheme:
        given = {"size": setting.dimension, "clients": setting.summed}
        made = GaussianScheme.planned(noise_multiplier=noise, l2_norm=1.0, **given)
        check_bits(setting, made.bits)
        return made

    # Rounding the claim and merging sums take a billionth, and hardly ever more on such fine grids.
    return _least_noise(setting, at, noise, guess=1 - 1e-9, most=1)


def _noise_scheme(setting: Setting, family: NoiseFamily, deviation: float) -> NoiseScheme:
    """The finest grid that is worth its bits, or the finest that the bits allow."""
    if setting.dimension == 1:
        # Whole steps up to the ends of the range, so that rounding never exceeds it and need only be finer than the
        # noise of one client.
        steps = min(max(math.ceil(2 / deviation), 1), 1000)
        grids = [1 / k for k in range(steps, 0, -max(1, steps // 40))]
    else:
        finest = min(2 * math.sqrt(_INFLATION / setting.dimension), deviation / 2)
        grids = (finest * np.geomspace(1, 4096, 73)).tolist()
    grids = [grid for grid in grids if grid * _WIDEST_NOISE >= deviation] or [
        deviation / _WIDEST_NOISE
    ]

    def at(grid: float) -> NoiseScheme:
        return NoiseScheme(
            noise=family.build(deviation / grid), size=setting.dimension, l2_norm=1.0, granularity=grid,
            clients=setting.summed,
        )  # fmt: skip

    # Coarser grids need fewer bits: the first that fits is found by bisection.
    fitting = bisect.bisect_left(
        grids, True, key=lambda grid: setting.bits is None or at(grid).bits <= setting.bits
    )
    if fitting == len(grids):
        raise TooManyBits(f"values need {at(grids[-1]).bits} bits even on the coarsest grid tried")
    return at(grids[fitting])


def noise_error(setting: Setting, scheme: NoiseScheme | GaussianScheme) -> float:
    """Mean squared error per coordinate of the mean: noise of all clients and their rounding."""
    if isinstance(scheme, GaussianScheme):
        return scheme.variance / setting.clients
    odds, places = scheme.noise.weights / float(TOTAL), scheme.noise.offsets.astype(np.float64)
    variance = float(odds @ places**2 - (odds @ places) ** 2)
    spread = (
        math.inf
        if setting.dimension == 1
        else 1 / math.sqrt(setting.dimension) / scheme.granularity
    )
    return (variance + rounding_variance(spread)) * scheme.granularity**2 / setting.clients


def rounding_variance(spread: float) -> float:
    """Mean variance f (1 - f) of rounding a normal number of standard deviation `spread` steps; 1/6 if large."""
    # The Fourier series of f (1 - f) is 1/6 - sum_j cos(2 pi j x) / (pi j)^2, and E cos(2 pi j x) = exp(-2 (pi j s)^2).
    j: FloatArray = np.arange(1.0, 2000.0)
    if math.isinf(spread):
        return 1 / 6
    return max(
        0.0, 1 / 6 - float(np.sum(np.exp(-2 * (math.pi * j * spread) ** 2) / (math.pi * j) ** 2))
    )


# Advice -----------------------------------------------------------------------------------------------------------

RANKED = "ranked codebook"
"""Name of the option that sends one index for the whole vector: local view, two coordinates and more."""

ROUNDED = "rounded Gaussian"
"""Name of the option that rounds Gaussian noise together with the values; federations call it rounded-gaussian."""

_EQUAL = 1.05  # errors within this factor of each other are called equal


@final
@dataclass(frozen=True, kw_only=True)
class Option(Record):
    """One scheme under the setting's claim.

    Arguments:
        name: of the scheme.
        feasible: whether some parameter meets the claim and the bits.
        mse: mean squared error per coordinate of the estimated mean of one round, at typical vectors (uniform scalars;
            rotated unit vectors); inf when infeasible.
        wire_bits: per value: of a report in the local view, of the modulus in a secure sum; of a ranked codebook, of
            the one index for all values.
        client_bits: per client and round: wire_bits times the number of values sent.
        parameter: the calibrated one, as text.
        reason: for its rank, or why it cannot be used and what would help.
        claim: about the whole run; None when infeasible.
        scheme: ready to encode and decode; None when infeasible.

    Example:
        >>> setting = mz.vectors.Setting(clients=1000, dimension=8, rounds=1, trust="local", epsilon=4.0, delta=0.0)
        >>> option = mz.vectors.advise(setting).options[0]
        >>> option.scheme.dimension
        8
    """

    name: str
    feasible: bool
    mse: float
    wire_bits: int | None
    client_bits: int | None
    parameter: str
    reason: str
    claim: Claim | None = None
    scheme: VectorScheme | RankedCodebook | None = None

    @property
    def epsilon(self) -> float:
        """Of the claim; inf when infeasible."""
        return math.inf if self.claim is None else self.claim.epsilon

    def as_dict(self) -> JsonObject:
        """Plain values for JSON."""
        names = (
            "name",
            "feasible",
            "mse",
            "wire_bits",
            "client_bits",
            "parameter",
            "reason",
            "epsilon",
        )
        values = {name: getattr(self, name) for name in names}
        standing = {"epsilon": None} if self.claim is None else self.claim.standing
        return {**values, **standing, "claim": None if self.claim is None else str(self.claim)}


@final
@dataclass(frozen=True, kw_only=True)
class Advice(Record):
    """All options of a setting.

    Arguments:
        setting: as given.
        options: the feasible ones by error, then the infeasible ones.
        central_baseline: mean squared error per coordinate if a trusted server adds Gaussian or Laplace noise once.
        remarks: on all of them: whether the claim leaves any utility, and what would help.

    Example:
        >>> setting = mz.vectors.Setting(clients=1000, dimension=8, rounds=1, trust="local", epsilon=4.0, delta=0.0)
        >>> advice = mz.vectors.advise(setting)
        >>> advice.options[0].feasible, advice.options[0].claim.epsilon <= 4.0
        (True, True)
    """

    setting: Setting
    options: tuple[Option, ...]
    central_baseline: float
    remarks: tuple[str, ...]

    @property
    def best(self) -> Option | None:
        """The feasible option with the least error, if any."""
        return next((option for option in self.options if option.feasible), None)

    def as_dict(self) -> JsonObject:
        """Plain values for JSON."""
        return {
            "setting": asdict(self.setting),
            "central_baseline_mse": self.central_baseline,
            "answering_zero_mse": self.setting.answering_zero,
            "options": [option.as_dict() for option in self.options],
            "remarks": list(self.remarks),
        }

    def _rows(self) -> list[JsonObject]:
        return [option.as_dict() for option in self.options]

    def _told(self) -> JsonObject:
        told = (
            (one.name, f"mse {number(one.mse, 4)}, {one.wire_bits or '-'} bits: {one.reason}")
            for one in self.options
        )
        return {"setting": asdict(self.setting), **dict(told), "remarks": "; ".join(self.remarks)}


def one_bit(strength: float, reach: float) -> Mechanism:
    """The unbiased one-bit response at +-A, A = reach / tanh(strength / 2): local epsilon is the strength.

    Arguments:
        strength: local epsilon, > 0.
        reach: half the range, > 0.

    Returns: the table.

    Example:
        >>> mechanism = mz.vectors.one_bit(1.0, 0.5)
        >>> mechanism.bits, round(mechanism.epsilon, 6)
        (1, 1.0)
    """
    level = check_positive("reach", reach) / math.tanh(check_positive("strength", strength) / 2)
    high = (1 + reach / level) / 2
    return table(
        knots=[-reach, reach],
        levels=[-level, level],
        probabilities=[[high, 1 - high], [1 - high, high]],
        name=f"one-bit response(epsilon={strength:.4g})",
        epsilon=strength * (1 + 2.0**-20) + 2.0**-29,
    )


ONE_BIT = Family(name="one-bit response", build=one_bit)


def advise(
    setting: Setting,
    *,
    tables: Sequence[Family] = (ONE_BIT,),
    noises: Sequence[NoiseFamily] = (),
    progress: Progress | None = None,
) -> Advice:
    """Every scheme at the same whole-run claim, best first; infeasible ones say why and what would help.

    Arguments:
        setting: what is estimated, from whom, under which claim.
        tables: families of tables.
        noises: families of integer noise. Rounded Gaussians are always tried, in the local view also ranked codebooks.
        progress: called as progress(done, total) after each option.

    Returns: the options, ranked.

    Guarantees: every feasible option's claim is that of its scheme, and its epsilon at most the setting's.

    Example:
        >>> setting = mz.vectors.Setting(clients=1000, dimension=8, rounds=1, trust="local", epsilon=4.0, delta=0.0)
        >>> advice = mz.vectors.advise(setting)
        >>> errors = [option.mse for option in advice.options if option.feasible]
        >>> errors == sorted(errors)
        True
    """
    options: list[Option] = []
    too_large: list[bool] = []
    tasks: list[tuple[str, Callable[[], Option]]] = [
        *((one.name, partial(_table, setting, one)) for one in tables),
        *(
            (one.name, lambda one=one: _noisy(setting, one.name, *calibrated_noise(setting, one)))
            for one in noises
        ),
        (ROUNDED, lambda: _noisy(setting, ROUNDED, *calibrated_gaussian(setting))),
    ]
    if setting.trust == "local" and setting.dimension > 1:
        tasks.append((RANKED, partial(_ranked, setting)))
    done = ticks(progress, len(tasks))
    for name, calibrate in tasks:
        try:
            options.append(calibrate())
        except MezzotintError as error:
            options.append(_impossible(setting, name, error))
            too_large.append(isinstance(error, TooManyBits))
        done()
    central_baseline = (setting.trusted_deviation / setting.clients) ** 2
    ranked = sorted(
        (option for option in options if option.feasible), key=lambda option: option.mse
    )
    judged = [
        replace(option, reason=_judged(option, ranked, setting, central_baseline))
        for option in ranked
    ]
    rest = [option for option in options if not option.feasible]
    remarks = _remarks(setting, ranked, central_baseline)
    if not ranked:
        asked = f"fits into bits={setting.bits} a value" if all(too_large) else "meets this claim"
        remarks = (
            *remarks,
            f"No scheme {asked}, so nothing is ranked; each line says why, and what to try.",
        )
    return Advice(
        setting=setting,
        options=(*judged, *rest),
        central_baseline=central_baseline,
        remarks=remarks,
    )


def _table(setting: Setting, family: Family) -> Option:
    scheme, claim = calibrated_table(setting, family)
    bits = scheme.bits if setting.trust == "sum" else scheme.mechanism.bits
    parameter = (
        f"{scheme.mechanism.name}, local epsilon {above(scheme.mechanism.epsilon, 4)} a value"
    )
    return _option(
        family.name, scheme, bits, table_error(setting, scheme.mechanism), parameter, claim
    )


def _noisy(
    setting: Setting, name: str, scheme: NoiseScheme | GaussianScheme, claim: Claim
) -> Option:
    steps = (
        scheme.deviation if isinstance(scheme, GaussianScheme) else math.sqrt(scheme.noise.variance)
    )
    parameter = f"deviation {steps * scheme.granularity:.4g} a client = {steps:.4g} steps"
    return _option(name, scheme, scheme.bits, noise_error(setting, scheme), parameter, claim)


def _ranked(setting: Setting) -> Option:
    scheme = calibrated_ranked(setting)
    claim = scheme.claim(rounds=setting.rounds, delta=setting.delta)
    return _option(
        RANKED,
        scheme,
        scheme.bits,
        scheme.mse / setting.clients / setting.dimension,
        str(scheme),
        claim,
    )


def _option(
    name: str,
    scheme: VectorScheme | RankedCodebook,
    bits: int,
    mse: float,
    parameter: str,
    claim: Claim,
) -> Option:
    sent = bits * scheme.length if isinstance(scheme, VectorScheme) else bits
    return Option(
        name=name, feasible=True, mse=mse, wire_bits=bits, client_bits=sent, parameter=parameter, reason="",
        claim=claim, scheme=scheme,
    )  # fmt: skip


def _impossible(setting: Setting, name: str, error: MezzotintError) -> Option:
    summed, large = setting.trust == "sum", isinstance(error, TooManyBits)
    helps = ["a larger epsilon", "more clients" if summed else "a secure sum"]
    helps += ["fewer coordinates"] * (setting.dimension > 1) + ["fewer rounds"] * (
        setting.rounds > 1
    )
    if large:
        helps = ["more bits", "a scheme with fewer levels", *["fewer clients per sum"] * summed]
    elif setting.delta == 0:
        helps = ["a positive delta"]
    return Option(
        name=name, feasible=False, mse=math.inf, wire_bits=None, client_bits=None, parameter="none",
        reason=f"{error}; try {' or '.join(filter(None, (', '.join(helps[:-1]), helps[-1])))}",
    )  # fmt: skip


def _judged(
    option: Option, ranked: Sequence[Option], setting: Setting, central_baseline: float
) -> str:
    """The reason for the option's rank, and whether its estimate is useful."""
    best = ranked[0]
    rank = "least error" if option is best else "about as good as the best"
    if option.mse > _EQUAL * best.mse:
        rank = f"{option.mse / best.mse:.3g} x the error of the best"
    words = [rank, f"{option.mse / central_baseline:.3g} x a trusted server's error"]
    # A ranked codebook's bits are those of a whole vector.
    alike = RANKED not in (option.name, best.name)
    if option is not best and alike and (option.wire_bits or 0) < (best.wire_bits or 0):
        words.append(f"{(best.wire_bits or 0) - (option.wire_bits or 0)} bits fewer than the best")
    if option.mse > setting.answering_zero:
        words.append(
            f"worse than answering 0: {option.mse / setting.answering_zero:.3g} x its error"
        )
    return "; ".join(words)


def _remarks(
    setting: Setting, ranked: Sequence[Option], central_baseline: float
) -> tuple[str, ...]:
    zero = setting.answering_zero
    remarks: list[str] = []
    if central_baseline > zero:
        # The error falls with the square of the clients at a fixed noise on the sum.
        enough = math.ceil(setting.clients * math.sqrt(central_baseline / zero))
        remarks.append(
            "The noise of one round exceeds the signal: even a trusted server's error is "
            f"{central_baseline / zero:.3g} times that of answering 0. It would need about {enough:,} clients "
            "a round at this claim, fewer rounds or fewer coordinates."
        )
    elif ranked and ranked[0].mse > zero:
        remarks.append(
            "All schemes are worse than answering 0 here; a trusted server's error would be only "
            f"{central_baseline / zero:.3g} times that."
            + (" A secure sum would help." if setting.trust == "local" else "")
        )
    if ranked and ranked[0].mse > zero and setting.rounds > 1:
        remarks.append(
            "Training averages over rounds and may survive some of that; no single round can be read, and no scheme "
            "here repairs it."
        )
    return tuple(remarks)
