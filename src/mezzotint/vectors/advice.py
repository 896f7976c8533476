"""Which scheme to use: all applicable ones calibrated to the same claim about the whole run, ranked by error."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import final

from mezzotint.core.arguments import check_positive
from mezzotint.core.errors import MezzotintError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, Progress, Record, number, ticks
from mezzotint.core.rounding import table
from mezzotint.privacy.claim import Claim
from mezzotint.vectors import calibration
from mezzotint.vectors.calibration import Family, NoiseFamily, Setting, TooManyBits
from mezzotint.vectors.gaussian import GaussianScheme
from mezzotint.vectors.integers import NoiseScheme
from mezzotint.vectors.ranked import RankedCodebook
from mezzotint.vectors.tables import VectorScheme

RANKED = "ranked codebook"
"""Name of the option that sends one index for the whole vector: local view, two coordinates and more."""

ROUNDED = "rounded Gaussian"
"""Name of the option that rounds Gaussian noise together with the values; federations call it rounded-gaussian."""

_NEAR = 1.05  # errors within this factor of each other are called equal


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
        names = ("name", "feasible", "mse", "wire_bits", "client_bits", "parameter", "reason", "epsilon")
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
            (one.name, f"mse {number(one.mse, 4)}, {one.wire_bits or '-'} bits: {one.reason}") for one in self.options
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
        (one.name, partial(_table, setting, one) if isinstance(one, Family) else partial(_noise, setting, one))
        for one in (*tables, *noises)
    ]
    tasks.append((ROUNDED, partial(_rounded, setting)))
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
    ranked = sorted((option for option in options if option.feasible), key=lambda option: option.mse)
    judged = [replace(option, reason=_judged(option, ranked, setting, central_baseline)) for option in ranked]
    rest = [option for option in options if not option.feasible]
    remarks = _remarks(setting, ranked, central_baseline)
    if not ranked:
        asked = f"fits into bits={setting.bits} a value" if all(too_large) else "meets this claim"
        remarks = (*remarks, f"No scheme {asked}, so nothing is ranked; each line says why and what can help.")
    return Advice(setting=setting, options=(*judged, *rest), central_baseline=central_baseline, remarks=remarks)


def _table(setting: Setting, family: Family) -> Option:
    scheme, claim = calibration.calibrated_table(setting, family)
    bits = scheme.bits if setting.trust == "sum" else scheme.mechanism.bits
    parameter = f"{scheme.mechanism.name}, local epsilon {scheme.mechanism.epsilon:.4g} a value"
    return _option(family.name, scheme, bits, calibration.table_error(setting, scheme.mechanism), parameter, claim)


def _noise(setting: Setting, family: NoiseFamily) -> Option:
    scheme, claim = calibration.calibrated_noise(setting, family)
    return _noisy(setting, family.name, scheme, math.sqrt(scheme.noise.variance), claim)


def _rounded(setting: Setting) -> Option:
    scheme, claim = calibration.calibrated_gaussian(setting)
    return _noisy(setting, ROUNDED, scheme, scheme.deviation, claim)


def _noisy(setting: Setting, name: str, scheme: NoiseScheme | GaussianScheme, steps: float, claim: Claim) -> Option:
    parameter = f"deviation {steps * scheme.granularity:.4g} a client = {steps:.4g} steps"
    return _option(name, scheme, scheme.bits, calibration.noise_error(setting, scheme), parameter, claim)


def _ranked(setting: Setting) -> Option:
    scheme = calibration.calibrated_ranked(setting)
    claim = scheme.claim(rounds=setting.rounds, delta=setting.delta)
    return _option(RANKED, scheme, scheme.bits, scheme.mse / setting.clients / setting.dimension, str(scheme), claim)


def _option(
    name: str, scheme: VectorScheme | RankedCodebook, bits: int, mse: float, parameter: str, claim: Claim
) -> Option:
    sent = bits * scheme.length if isinstance(scheme, VectorScheme) else bits
    return Option(
        name=name, feasible=True, mse=mse, wire_bits=bits, client_bits=sent, parameter=parameter, reason="",
        claim=claim, scheme=scheme,
    )  # fmt: skip


def _impossible(setting: Setting, name: str, error: MezzotintError) -> Option:
    summed, large = setting.trust == "sum", isinstance(error, TooManyBits)
    helps = ["a larger epsilon", "more clients" if summed else "a secure sum"]
    helps += ["fewer coordinates"] * (setting.dimension > 1) + ["fewer rounds"] * (setting.rounds > 1)
    if large:
        helps = ["more bits", "a scheme with fewer levels", *["fewer clients in a sum"] * summed]
    elif setting.delta == 0:
        helps = ["a positive delta"]
    return Option(
        name=name, feasible=False, mse=math.inf, wire_bits=None, client_bits=None, parameter="none",
        reason=f"{error}; what can help: {', '.join(helps)}",
    )  # fmt: skip


def _judged(option: Option, ranked: Sequence[Option], setting: Setting, central_baseline: float) -> str:
    """The reason for the option's rank, and whether its estimate is useful."""
    best = ranked[0]
    rank = "least error" if option is best else "about as good as the best"
    if option.mse > _NEAR * best.mse:
        rank = f"{option.mse / best.mse:.3g} x the error of the best"
    words = [rank, f"{option.mse / central_baseline:.3g} x a trusted server's error"]
    # A ranked codebook's bits are those of a whole vector.
    alike = RANKED not in (option.name, best.name)
    if option is not best and alike and (option.wire_bits or 0) < (best.wire_bits or 0):
        words.append(f"{(best.wire_bits or 0) - (option.wire_bits or 0)} bits fewer than the best")
    if option.mse > setting.answering_zero:
        words.append(f"worse than answering 0: {option.mse / setting.answering_zero:.3g} x its error")
    return "; ".join(words)


def _remarks(setting: Setting, ranked: Sequence[Option], central_baseline: float) -> tuple[str, ...]:
    zero = setting.answering_zero
    remarks: list[str] = []
    if central_baseline > zero:
        # The error falls with the square of the clients at a fixed noise on the sum.
        enough = math.ceil(setting.clients * math.sqrt(central_baseline / zero))
        remarks.append(
            f"One round's mean is lost in noise: even a trusted server errs {central_baseline / zero:.3g} x as much as "
            f"answering 0. It would need about {enough:,} clients a round at this claim, fewer rounds or coordinates."
        )
    elif ranked and ranked[0].mse > zero:
        remarks.append(
            "All schemes are worse than answering 0 here; a trusted server would err only "
            f"{central_baseline / zero:.3g} x as much as that."
            + (" A secure sum would help." if setting.trust == "local" else "")
        )
    if ranked and ranked[0].mse > zero and setting.rounds > 1:
        remarks.append(
            "Training averages over rounds and may survive some of that; no single round can be read, and no scheme "
            "here repairs it."
        )
    return tuple(remarks)
