"""Every rival of a mechanism at the same epsilon and number of levels, and the limit that none can beat."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import mezzotint as mz
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.privacy.prove import report_claim
from mezzotint.report.content import Curve, Figure

if TYPE_CHECKING:
    from mezzotint.design.compare import Row

MOST_LEVELS = 32
"""Beyond, designing the rivals would take minutes."""

GREATEST_EPSILON = 15.0
"""Beyond, 32-bit tables are too coarse for a comparison at equal epsilon."""

NAMES = {
    "optimal": "optimal table",
    "optm": "OPTM",
    "mvu": "MVU",
    "imvu": "I-MVU",
    "rqm": "RQM",
    "erm": "ERM",
    "pbm": "PBM",
    "k_randomized_response": "k-ary randomized response",
    "randomized_response": "one-bit randomized response",
}

SLOW = {"optm": 4}
"""Families whose search takes long beyond so many levels."""


@final
@dataclass(frozen=True, kw_only=True)
class Rival:
    """One mechanism of a comparison, on uniform inputs.

    Arguments:
        name: what it is.
        epsilon, bits: pure epsilon and size of one report.
        certified: whether the kernel accepts that epsilon.
        mse, mae, max_bias: squared data units and data units.
    """

    name: str
    epsilon: float
    bits: int
    mse: float
    mae: float
    max_bias: float
    certified: bool


@final
@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A mechanism among its rivals.

    Arguments:
        rivals: the mechanism itself first.
        limit: an MSE that no exactly unbiased mechanism with this epsilon can go below, at any number of levels; None
            where there is no comparison.
        remarks: what could not be compared, and why.
    """

    rivals: tuple[Rival, ...]
    limit: float | None
    remarks: tuple[str, ...]


def compare(mechanism: Mechanism) -> Comparison:
    """Designs every rival at the mechanism's own certified epsilon, range and number of levels, for uniform inputs.

    Guarantees: no rival's certified epsilon is above the mechanism's.
    Edge cases: no comparison where epsilon is below 0.001, above 15 or unbounded, or beyond 32 levels; the remarks
        say so.
    """
    own = Rival(
        name="this mechanism",
        epsilon=mechanism.epsilon,
        bits=mechanism.bits,
        mse=mechanism.mse(),
        mae=mechanism.mae(),
        max_bias=mechanism.max_bias,
        certified=report_claim(mechanism).certified,
    )
    epsilon, levels = mechanism.epsilon, mechanism.levels.size
    if not 1e-3 <= epsilon <= GREATEST_EPSILON:
        remark = f"There is no comparison at equal epsilon: {epsilon:g} lies outside [0.001, {GREATEST_EPSILON:g}]."
        return Comparison(rivals=(own,), limit=None, remarks=(remark,))
    if levels > MOST_LEVELS:
        remark = f"There is no comparison: rivals are designed for up to {MOST_LEVELS} levels, this table has {levels}."
        return Comparison(rivals=(own,), limit=None, remarks=(remark,))
    families = [name for name in NAMES if levels <= SLOW.get(name, MOST_LEVELS)]
    rows = mz.design.compare(
        epsilon=epsilon, levels=levels, lower=mechanism.lower, upper=mechanism.upper, families=families
    )
    remarks = [f"{NAMES[row.family]} is missing: {row.note}." for row in rows if row.mechanism is None]
    left_out = [NAMES[name] for name in NAMES if name not in families]
    if left_out:
        remarks.append(f"Not designed for {levels} levels, as their search is long: {', '.join(left_out)}.")
    made = [row for row in rows if row.mechanism is not None]
    limits = [
        row.mse / (1 + row.above_limit / 100) for row in made if row.mse is not None and row.above_limit is not None
    ]
    return Comparison(
        rivals=(own, *(_rival(row) for row in made)), limit=max(limits, default=None), remarks=tuple(remarks)
    )


def _rival(row: Row) -> Rival:
    name = NAMES[row.family] + (" (biased)" if row.note == "biased" else "")
    shared = ("epsilon", "bits", "mse", "mae", "max_bias", "certified")
    return Rival(name=name, **{field: getattr(row, field) for field in shared})


def tradeoff_figure(points: Sequence[JsonObject]) -> Figure:
    """MSE of the optimal table against epsilon, a curve for each number of bits, and the limit of any number of bits.

    Arguments:
        points: what `design.tradeoff` returns.
    """
    curves = [
        Curve(
            name=f"{bits:g} bit" + ("s" if bits > 1 else ""),
            x=tuple(point["epsilon"] for point in points if point["bits"] == bits),
            y=tuple(point["mse"] for point in points if point["bits"] == bits),
        )
        for bits in sorted({point["bits"] for point in points})
    ]
    limits = {point["epsilon"]: point["limit"] for point in points if point["limit"] > 0}
    curves.append(Curve(name="limit", x=tuple(limits), y=tuple(limits.values()), style="dashed"))
    return Figure(
        key="tradeoff",
        title="trade-off",
        x_label="epsilon",
        y_label="mean squared error",
        curves=tuple(curves),
        log_y=True,
    )
