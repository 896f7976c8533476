"""Which scheme to use: all that apply, calibrated to one claim about the run, ranked by error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import final

from mezzotint.core.arguments import check_positive
from mezzotint.core.errors import MezzotintError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, Progress, Record, above, number, ticks
from mezzotint.core.rounding import table
from mezzotint.privacy.claim import Claim
from mezzotint.vectors.calibration import (
    Family,
    TooManyBits,
    calibrated_gaussian,
    calibrated_ranked,
    calibrated_table,
    table_error,
    wire_bits,
)
from mezzotint.vectors.ranked import RankedCodebook
from mezzotint.vectors.setting import Setting
from mezzotint.vectors.tables import VectorScheme

RANKED = "ranked codebook"
"""Name of the option that sends one index for the whole vector: local view, two coordinates and
more."""

ROUNDED = "rounded Gaussian"
"""Name of the option that rounds Gaussian noise together with the values; federations call it
rounded-gaussian."""

_ABOUT_EQUAL = 1.05
"""Errors within this factor of each other are called equal."""

_TABLE_MARGIN = 2.0**-20
_LEAST_MARGIN = 2.0**-29
"""What rounding to integers may add to the epsilon of a table: a share of it, and a constant."""


@final
@dataclass(frozen=True, kw_only=True)
class Option(Record):
    """One scheme under the setting's claim.

    Arguments:
        name: of the scheme.
        mse: mean squared error per coordinate of the estimated mean of one round, at typical
            vectors (uniform scalars; rotated unit vectors); inf when infeasible.
        wire_bits: per value: of a report in the local view, of the modulus in a secure sum; of a
            ranked codebook, of the one index for all values.
        client_bits: per client and round: wire_bits times the number of values sent.
        parameter: the calibrated one, as text.
        reason: for its rank, or why it cannot be used and what would help.
        claim: about the whole run; None when infeasible.
        scheme: ready to encode and decode; None when infeasible.

    Example:
        >>> setting = mz.vectors.Setting(
        ...     clients=1000, dimension=8, rounds=1, trust="local", epsilon=4.0, delta=0.0
        ... )
        >>> option = mz.vectors.advise(setting).options[0]
        >>> option.scheme.dimension
        8
    """

    name: str
    mse: float = math.inf
    wire_bits: int | None = None
    client_bits: int | None = None
    parameter: str = "none"
    reason: str = ""
    claim: Claim | None = None
    scheme: VectorScheme | RankedCodebook | None = None

    @property
    def feasible(self) -> bool:
        """Whether some parameter meets the claim and the bits."""
        return self.claim is not None

    @property
    def epsilon(self) -> float:
        """Of the claim; inf when infeasible."""
        if self.claim is None:
            return math.inf
        return self.claim.epsilon

    def as_dict(self) -> JsonObject:
        """Plain values for JSON."""
        standing: JsonObject = {"epsilon": None}
        if self.claim is not None:
            standing = self.claim.standing
        return {
            "name": self.name,
            "feasible": self.feasible,
            "mse": self.mse,
            "wire_bits": self.wire_bits,
            "client_bits": self.client_bits,
            "parameter": self.parameter,
            "reason": self.reason,
            "epsilon": self.epsilon,
            **standing,
            "claim": None if self.claim is None else str(self.claim),
        }


@final
@dataclass(frozen=True, kw_only=True)
class Advice(Record):
    """All options of a setting.

    Arguments:
        setting: as given.
        options: the feasible ones by error, then the infeasible ones.
        central_baseline: mean squared error per coordinate if a trusted server adds Gaussian or
            Laplace noise once.
        remarks: on all of them: whether the claim leaves any utility, and what would help.

    Example:
        >>> setting = mz.vectors.Setting(
        ...     clients=1000, dimension=8, rounds=1, trust="local", epsilon=4.0, delta=0.0
        ... )
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
        feasible = (option for option in self.options if option.feasible)
        return next(feasible, None)

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
        lines: JsonObject = {"setting": asdict(self.setting)}
        for option in self.options:
            bits = option.wire_bits or "-"
            lines[option.name] = f"mse {number(option.mse, 4)}, {bits} bits: {option.reason}"
        lines["remarks"] = "; ".join(self.remarks)
        return lines


def one_bit(strength: float, reach: float) -> Mechanism:
    """The unbiased one-bit response at +-A, A = reach / tanh(strength / 2): local epsilon is the
    strength.

    Arguments:
        strength: local epsilon, > 0.
        reach: half the range, > 0.

    Returns: the table.

    Example:
        >>> mechanism = mz.vectors.one_bit(1.0, 0.5)
        >>> mechanism.bits, round(mechanism.epsilon, 6)
        (1, 1.0)
    """
    check_positive("reach", reach)
    check_positive("strength", strength)
    level = reach / math.tanh(strength / 2)
    high = (1 + reach / level) / 2
    return table(
        knots=[-reach, reach],
        levels=[-level, level],
        probabilities=[[high, 1 - high], [1 - high, high]],
        name=f"one-bit response(epsilon={strength:.4g})",
        epsilon=strength * (1 + _TABLE_MARGIN) + _LEAST_MARGIN,
    )


ONE_BIT = Family(name="one-bit response", build=one_bit)


def advise(
    setting: Setting,
    *,
    tables: Sequence[Family] = (ONE_BIT,),
    progress: Progress | None = None,
) -> Advice:
    """Every scheme at the same whole-run claim, best first; infeasible ones say what would help.

    Arguments:
        setting: what is estimated, from whom, under which claim.
        tables: families of tables. Rounded Gaussians are always tried, in the local view also
            ranked codebooks.
        progress: called as progress(done, total) after each option.

    Returns: the options, ranked.

    Guarantees: every feasible option's claim is that of its scheme, and its epsilon at most the
        setting's.

    Example:
        >>> setting = mz.vectors.Setting(
        ...     clients=1000, dimension=8, rounds=1, trust="local", epsilon=4.0, delta=0.0
        ... )
        >>> advice = mz.vectors.advise(setting)
        >>> errors = [option.mse for option in advice.options if option.feasible]
        >>> errors == sorted(errors)
        True
    """
    calibrations: list[tuple[str, Callable[[], Option]]] = [
        (family.name, partial(_table, setting, family)) for family in tables
    ]
    calibrations.append((ROUNDED, partial(_rounded, setting)))
    if setting.trust == "local" and setting.dimension > 1:
        calibrations.append((RANKED, partial(_ranked, setting)))
    done = ticks(progress, len(calibrations))
    feasible: list[Option] = []
    infeasible: list[Option] = []
    all_too_large = True
    for name, calibrate in calibrations:
        try:
            feasible.append(calibrate())
        except MezzotintError as error:
            infeasible.append(_infeasible(setting, name, error))
            all_too_large &= isinstance(error, TooManyBits)
        done()
    feasible.sort(key=lambda option: option.mse)
    central_baseline = (setting.trusted_deviation / setting.clients) ** 2
    remarks = _remarks(setting, feasible, central_baseline)
    if not feasible:
        remarks = (*remarks, _no_scheme(setting, all_too_large))
    ranked: list[Option] = []
    for option in feasible:
        reason = _reason(option, feasible[0], setting, central_baseline)
        ranked.append(replace(option, reason=reason))
    return Advice(
        setting=setting,
        options=(*ranked, *infeasible),
        central_baseline=central_baseline,
        remarks=remarks,
    )


def _no_scheme(setting: Setting, all_too_large: bool) -> str:
    """The remark where no scheme is feasible."""
    requirement = "meets this claim"
    if all_too_large:
        requirement = f"fits into bits={setting.bits} a value"
    consequence = "so nothing is ranked; each line says why, and what to try."
    return f"No scheme {requirement}, {consequence}"


def _table(setting: Setting, family: Family) -> Option:
    scheme, claim = calibrated_table(setting, family)
    bits = wire_bits(setting, scheme)
    local_epsilon = above(scheme.mechanism.epsilon, 4)
    return Option(
        name=family.name,
        mse=table_error(setting, scheme.mechanism),
        wire_bits=bits,
        client_bits=bits * scheme.length,
        parameter=f"{scheme.mechanism.name}, local epsilon {local_epsilon} a value",
        claim=claim,
        scheme=scheme,
    )


def _rounded(setting: Setting) -> Option:
    scheme, claim = calibrated_gaussian(setting)
    deviation = scheme.deviation * scheme.granularity
    return Option(
        name=ROUNDED,
        mse=scheme.variance / setting.clients,
        wire_bits=scheme.bits,
        client_bits=scheme.bits * scheme.length,
        parameter=f"deviation {deviation:.4g} a client = {scheme.deviation:.4g} steps",
        claim=claim,
        scheme=scheme,
    )


def _ranked(setting: Setting) -> Option:
    scheme = calibrated_ranked(setting)
    return Option(
        name=RANKED,
        mse=scheme.mse / setting.clients / setting.dimension,
        wire_bits=scheme.bits,
        client_bits=scheme.bits,
        parameter=str(scheme),
        claim=scheme.claim(rounds=setting.rounds, delta=setting.delta),
        scheme=scheme,
    )


def _infeasible(setting: Setting, name: str, error: MezzotintError) -> Option:
    reason = f"{error}; try {_alternatives(_remedies(setting, error))}"
    return Option(name=name, reason=reason)


def _remedies(setting: Setting, error: MezzotintError) -> list[str]:
    in_sum = setting.trust == "sum"
    if isinstance(error, TooManyBits):
        remedies = ["more bits", "a scheme with fewer levels"]
        if in_sum:
            remedies.append("fewer clients per sum")
        return remedies
    if setting.delta == 0:
        return ["a positive delta"]
    remedies = ["a larger epsilon", "more clients" if in_sum else "a secure sum"]
    if setting.dimension > 1:
        remedies.append("fewer coordinates")
    if setting.rounds > 1:
        remedies.append("fewer rounds")
    return remedies


def _alternatives(words: Sequence[str]) -> str:
    """Words as a list that ends with "or"."""
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _reason(
    option: Option,
    best: Option,
    setting: Setting,
    central_baseline: float,
) -> str:
    """The reason for the option's rank, and whether its estimate is useful."""
    rank = "about as good as the best"
    if option is best:
        rank = "least error"
    elif option.mse > _ABOUT_EQUAL * best.mse:
        rank = f"{option.mse / best.mse:.3g} x the error of the best"
    clauses = [rank, f"{option.mse / central_baseline:.3g} x a trusted server's error"]
    # A ranked codebook's bits are those of a whole vector.
    has_ranked = RANKED in (option.name, best.name)
    comparable = option is not best and not has_ranked
    saved_bits = (best.wire_bits or 0) - (option.wire_bits or 0)
    if comparable and saved_bits > 0:
        clauses.append(f"{saved_bits} bits fewer than the best")
    if option.mse > setting.answering_zero:
        multiple = option.mse / setting.answering_zero
        clauses.append(f"worse than answering 0: {multiple:.3g} x its error")
    return "; ".join(clauses)


def _remarks(
    setting: Setting,
    ranked: Sequence[Option],
    central_baseline: float,
) -> tuple[str, ...]:
    """What to think of the whole, from a trusted server's MSE and the schemes by theirs: whether
    one round can be read at all.
    """
    multiple = central_baseline / setting.answering_zero
    useless = bool(ranked) and ranked[0].mse > setting.answering_zero
    remarks: list[str] = []
    if multiple > 1:
        # The error falls with the square of the clients at a fixed noise on the sum.
        enough = math.ceil(setting.clients * math.sqrt(multiple))
        remarks.append(
            "The noise of one round exceeds the signal: even a trusted server's error is "
            f"{multiple:.3g} times that of answering 0. It would need about {enough:,} clients "
            "a round at this claim, fewer rounds or fewer coordinates."
        )
    elif useless:
        remedy = ""
        if setting.trust == "local":
            remedy = " A secure sum would help."
        remarks.append(
            "All schemes are worse than answering 0 here; a trusted server's error would be only "
            f"{multiple:.3g} times that.{remedy}"
        )
    if useless and setting.rounds > 1:
        remarks.append(
            "Training averages over rounds and may survive some of that; no single round can be "
            "read, and no scheme here repairs it."
        )
    return tuple(remarks)
