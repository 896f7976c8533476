"""Schemes calibrated to a claim: the strongest table, the least noise, the best ranked codebook."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import final

import numpy as np

from mezzotint.core.errors import InfeasibleError, MezzotintError
from mezzotint.core.kinds import checked
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.types import FloatArray
from mezzotint.privacy.claim import Claim
from mezzotint.privacy.divergences import rdp_to_epsilon
from mezzotint.privacy.tradeoffs import gaussian_shift
from mezzotint.vectors.codewords import quadrature
from mezzotint.vectors.cost_search import ACCEPTED, AIM, search
from mezzotint.vectors.gaussian import GaussianScheme
from mezzotint.vectors.ranked import RankedCodebook
from mezzotint.vectors.ranked_design import ranked_codebook
from mezzotint.vectors.setting import Setting
from mezzotint.vectors.tables import TableScheme

MAX_RANKED_EPSILON = 100.0
"""Largest epsilon of a ranked codebook's report; a larger one gains nothing that bits could carry."""

_WEAKEST = 1e-7
_STRONGEST = 20.0
"""Strengths of tables that are tried."""

_LARGEST_GUESS = 6.0
_LEAST_SHARE = 1.001
"""A search for a table starts at this strength if its share of the noise is hardly more than 1."""

_PATIENCE = 3
"""Turns after which a table that uses nearly all of epsilon is accepted."""

_FAR_BELOW = 0.75
"""Below this share of the target, a cost only steers a search."""

_LARGEST_COST = 1e12
"""Of Gaussian noise, where the noise is next to none."""

_TINY_VARIANCE = 1e-300
"""Stands for a variance of 0."""


@final
class TooManyBits(InfeasibleError):
    """The values do not fit into the bits allowed, whatever the parameter."""


@final
@checked
@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of tables on [-reach, reach].

    Arguments:
        name: of the family.
        build: (strength, reach) -> table; strength is the local epsilon of one report, or increases
            with it.

    Example:
        >>> family = mz.vectors.Family(name="one-bit response", build=mz.vectors.one_bit)
        >>> family.build(1.0, 0.5).bits
        1
    """

    name: str
    build: Callable[[float, float], Mechanism]


def calibrated_table(setting: Setting, family: Family) -> tuple[TableScheme, Claim]:
    """The strongest table of the family that meets the setting's claim, and its claim."""
    return _TableCalibration(setting, family).strongest()


@final
class _TableCalibration:
    """The search for the strongest table of a family under a setting's claim."""

    def __init__(self, setting: Setting, family: Family) -> None:
        self.setting = setting
        self.family = family
        self.claim = cache(setting.claim)
        # The last best order of Renyi accounting, moved to where the target is met.
        self.alpha: float | None = None

    def strongest(self) -> tuple[TableScheme, Claim]:
        """The strongest table scheme of the family whose claim meets the target, and its claim."""
        setting = self.setting
        guess = self._guess()
        bits = wire_bits(setting, self._scheme(guess))
        check_bits(setting, bits)
        if setting.dimension == 1 or setting.delta == 0:
            _, scheme = self._search(self._exact, _IDENTITY, guess)
            return scheme, self.claim(scheme)
        # The L2 bound is nearly always better, and coordinates are slow to account for: they come
        # last.
        scale = _gaussian_scale(setting, self._table)
        guess = scale.strength(AIM * setting.epsilon)
        strength, scheme = self._search(self._under_l2, scale, guess)
        if self._exact(scheme) > setting.epsilon:
            # Accounting does not try the order at which the search accepted it.
            _, scheme = self._search(self._exact, scale, strength)
        # The cost by coordinates grows with the strength: above the target here, it rules out all
        # stronger tables.
        has_slack = self._exact(scheme) < ACCEPTED * setting.epsilon
        release = setting.release(scheme)
        if has_slack and scheme.by_coordinates(release, setting.epsilon):
            with suppress(InfeasibleError):
                _, scheme = self._search(self._exact, scale, strength)
        return scheme, self.claim(scheme)

    def _guess(self) -> float:
        """A one-bit report at +-A has variance A^2: the honest clients' share of trusted noise."""
        setting = self.setting
        client_deviation = setting.trusted_deviation / math.sqrt(setting.honest)
        share = client_deviation / setting.reach
        if share <= _LEAST_SHARE:
            return _LARGEST_GUESS
        strength = 2 * math.atanh(1 / share)
        return min(strength, _LARGEST_GUESS)

    def _table(self, strength: float) -> Mechanism:
        return self.family.build(strength, self.setting.reach)

    def _scheme(self, strength: float) -> TableScheme:
        clip_norm = None
        if self.setting.dimension > 1:
            clip_norm = 1.0
        return TableScheme(
            mechanism=self._table(strength),
            size=self.setting.dimension,
            clients=self.setting.summed,
            clip_norm=clip_norm,
        )

    def _exact(self, scheme: TableScheme) -> float:
        return self.claim(scheme).epsilon

    def _under_l2(self, scheme: TableScheme) -> float:
        """Upper bound on epsilon by the L2 bound.

        Quick, at the last scheme's best order, if that is far below the target; else as in
        accounting.
        """
        target = self.setting.epsilon
        release = self.setting.release(scheme)
        if self.alpha is not None:
            quick_epsilons = scheme.under_l2(release, alpha=self.alpha)
            quick_cost = min(quick_epsilons.values())
            if quick_cost <= _FAR_BELOW * target:
                return quick_cost
        epsilons = scheme.under_l2(release)
        cost = min(epsilons.values())
        if math.isfinite(cost):
            # The best order is about inverse to the losses.
            epsilon, alpha = scheme.best_order(release.others, release.rounds, release.delta)
            growth = max(epsilon / target, 0.1)
            growth = min(growth, 10.0)
            self.alpha = 1 + (alpha - 1) * growth
        return cost

    def _search(
        self,
        cost: Callable[[TableScheme], float],
        scale: _Scale,
        guess: float,
    ) -> tuple[float, TableScheme]:
        """The strength, and its scheme, whose cost (an epsilon) comes up to the target without
        exceeding it.
        """

        def make(parameter: float) -> TableScheme:
            strength = scale.strength(parameter)
            return self._scheme(strength)

        def error(scheme: TableScheme) -> float:
            return table_error(self.setting, scheme.mechanism)

        parameter, scheme = search(
            make,
            cost,
            guess=scale.parameter(guess),
            target=self.setting.epsilon,
            least=scale.parameter(_WEAKEST),
            most=scale.parameter(_STRONGEST),
            patience=_PATIENCE,
            error=error,
        )
        return scale.strength(parameter), scheme


def wire_bits(setting: Setting, scheme: TableScheme) -> int:
    """Bits of a value on the wire: of the modulus in a sum, else of a report."""
    if setting.trust == "sum":
        return scheme.bits
    return scheme.mechanism.bits


@final
@dataclass(frozen=True, kw_only=True)
class _Scale:
    """A parameter that costs grow evenly with, and the strength of a family that it stands for."""

    strength: Callable[[float], float]
    parameter: Callable[[float], float]


_IDENTITY = _Scale(strength=float, parameter=float)


def _gaussian_scale(setting: Setting, build: Callable[[float], Mechanism]) -> _Scale:
    """As parameter the epsilon of Gaussian noise as large as the reports'."""
    log_strengths: list[float] = []
    log_epsilons: list[float] = []
    tried_strengths = np.geomspace(_WEAKEST, _STRONGEST, 97)
    for strength in tried_strengths.tolist():
        try:
            table = build(strength)
        except MezzotintError:
            continue
        cost = _gaussian_cost(setting, table)
        log_strengths.append(math.log(strength))
        epsilon = _gaussian_renyi(cost, setting.delta)
        log_epsilons.append(math.log(epsilon))
    # Strictly increasing, so that the scale has an inverse.
    increments = 1e-9 * np.arange(len(log_epsilons))
    rising_epsilons = np.maximum.accumulate(log_epsilons) + increments

    def strength_at(epsilon: float) -> float:
        log_strength = np.interp(math.log(epsilon), rising_epsilons, log_strengths)
        return math.exp(log_strength)

    def parameter_at(strength: float) -> float:
        log_epsilon = np.interp(math.log(strength), log_strengths, rising_epsilons)
        return math.exp(log_epsilon)

    return _Scale(strength=strength_at, parameter=parameter_at)


def _gaussian_cost(setting: Setting, table: Mechanism) -> float:
    """Renyi divergence over its order, of Gaussian noise as small as the table's smallest."""
    lengths = np.diff(table.knots)
    rises = np.diff(table.probabilities @ table.levels)
    is_segment = lengths > 0
    slopes = rises[is_segment] / lengths[is_segment]
    steepest = float(np.abs(slopes).max())
    variances = [table.variance(knot) for knot in table.knots.tolist()]
    least_variance = max(float(min(variances)), _TINY_VARIANCE)
    sum_variance = setting.honest * least_variance
    cost = 2 * steepest**2 * setting.rounds / sum_variance
    return min(cost, _LARGEST_COST)


def calibrated_ranked(setting: Setting) -> RankedCodebook:
    """The ranked codebook of the largest epsilon a round that meets the claim; local view only."""
    # A setting's `bits` are per value, of which a vector has `dimension`.
    report_bits = None
    if setting.bits is not None:
        report_bits = setting.bits * setting.dimension

    def make(epsilon: float) -> RankedCodebook:
        codebook = ranked_codebook(setting.dimension, epsilon)
        if report_bits is None or codebook.bits <= report_bits:
            return codebook
        return ranked_codebook(setting.dimension, epsilon, report_bits)

    def cost(scheme: RankedCodebook) -> float:
        claim = scheme.claim(rounds=setting.rounds, delta=setting.delta)
        return claim.epsilon

    # An ulp or two less, so that the sum over rounds, rounded up, keeps to epsilon.
    round_epsilon = min(setting.epsilon / setting.rounds, MAX_RANKED_EPSILON)
    pure_epsilon = round_epsilon * (1 - 2.0**-40)
    if setting.delta == 0 or setting.rounds == 1:
        return make(pure_epsilon)
    # Or composition by the square root of rounds, if that allows more.
    composed_epsilon = setting.epsilon / math.sqrt(setting.rounds)
    largest_epsilon = min(setting.epsilon, MAX_RANKED_EPSILON)
    guess = max(pure_epsilon, composed_epsilon / 3)
    _, scheme = search(
        make,
        cost,
        guess=min(guess, largest_epsilon),
        target=setting.epsilon,
        least=pure_epsilon,
        most=largest_epsilon,
    )
    return scheme


def check_bits(setting: Setting, bits: int) -> None:
    """Raise TooManyBits if a value on the wire takes more bits than the setting allows."""
    if setting.bits is not None and bits > setting.bits:
        message = "a report"
        if setting.trust == "sum":
            message = f"a sum of {setting.clients}"
        raise TooManyBits(f"{message} needs {bits} bits, but bits={setting.bits}")


def table_error(setting: Setting, mechanism: Mechanism) -> float:
    """Mean squared error per coordinate of the mean of scalars or random unit vectors.

    Scalars are uniform on [-1, 1]. The variance of the reports is divided by the clients. The bias
    is not, as if all clients had the same vector: it is the worst case. Search and advice both rank
    by this error.
    """
    if setting.dimension == 1:
        points, weights = np.polynomial.legendre.leggauss(128)
    else:
        points, weights = _unit_coordinates(setting.dimension, cut=mechanism.upper)
    clipped = np.clip(points, mechanism.lower, mechanism.upper)
    biases = mechanism.mean(clipped) - points
    variances = mechanism.variance(clipped) / setting.clients
    errors = variances + biases**2
    probabilities = weights / weights.sum()
    return float(probabilities @ errors)


_MOST_DEVIATIONS = 9.0
"""A coordinate of a random direction lies beyond so many of its deviations with probability below
3e-19."""

_NODES = 64
"""Of the quadrature of each part of a coordinate's range."""


def _unit_coordinates(dimension: int, *, cut: float) -> tuple[FloatArray, FloatArray]:
    """Points and weights of a coordinate of a uniformly random unit vector, two dimensions or more.

    It is the sine of an angle whose density is in proportion to cos(angle)^(d - 2), which is smooth
    in every dimension; errors have kinks at `cut` and -`cut`, between which and the ends quadratures
    are taken.
    """
    farthest = _MOST_DEVIATIONS / math.sqrt(dimension)
    end = min(math.pi / 2, farthest)
    cut_angle = math.asin(min(cut, 1.0))
    kink = min(cut_angle, end)
    angles, lengths = quadrature([-end, -kink, kink, end], _NODES)
    density = np.cos(angles) ** (dimension - 2)
    return np.sin(angles), lengths * density


def _gaussian_renyi(cost: float, delta: float) -> float:
    """Epsilon of Gaussian noise whose Renyi divergence of order alpha is alpha times `cost`.

    At least 1e-12.
    """
    squared_excess = math.log(1 / delta) / cost
    best_excess = math.sqrt(squared_excess)
    alphas = 1 + best_excess * np.geomspace(0.5, 2, 9)
    epsilons = [rdp_to_epsilon(alpha * cost, alpha, delta) for alpha in alphas.tolist()]
    return max(1e-12, min(epsilons))


def calibrated_gaussian(setting: Setting) -> tuple[GaussianScheme, Claim]:
    """The least rounded Gaussian noise that meets the claim, in the fewest bits, and its claim."""
    if setting.delta == 0:
        raise InfeasibleError("noise of sums has no pure epsilon; allow delta > 0")
    # T releases of shifts by 2 under noise z are 2 sqrt(T) / z-GDP, of which the corrupted add
    # none.
    shift = gaussian_shift(setting.epsilon, setting.delta)
    noisy_rounds = setting.rounds * setting.summed / setting.honest
    noise = 2 * math.sqrt(noisy_rounds) / shift

    claim = cache(setting.claim)

    def make(inverse: float) -> GaussianScheme:
        scheme = GaussianScheme.planned(
            noise_multiplier=1 / inverse,
            clip_norm=1.0,
            size=setting.dimension,
            clients=setting.summed,
        )
        check_bits(setting, scheme.bits)
        return scheme

    # Costs grow with the inverse of the noise. Rounding the claim and merging sums take a
    # billionth, and hardly ever more on such fine grids.
    _, scheme = search(
        make,
        lambda scheme: claim(scheme).epsilon,
        guess=(1 - 1e-9) / noise,
        target=setting.epsilon,
        least=1e-3 / noise,
        most=1 / noise,
    )
    return scheme, claim(scheme)
