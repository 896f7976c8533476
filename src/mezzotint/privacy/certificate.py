"""The checkable claim about one report: two integers whose ratio is e**epsilon, and where in the table they stand."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, final

from mezzotint.core.records import plain
from mezzotint.privacy.loss import log_ratio, worst_ratio

if TYPE_CHECKING:
    from mezzotint.core.mechanism import Mechanism


@final
@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What one report of one table reveals at most, in integers that anyone can look up in the table.

    Arguments:
        numerator, denominator: the largest and smallest weight (units of 2**-32) of the worst level; their ratio is
            e**epsilon. A denominator of 0 says that epsilon is unbounded.
        level, row_high, row_low: where they stand, 0-based.
        max_bias: sup over inputs of |E[decoded report] - input| as a rational, data units.
        sha256: hash of the table that the claim is about.
        neighboring: "replace_one": one input against any other input.
        unit: "report": one report of one value.

    Guarantees: `epsilon` is the exact pure epsilon rounded up; see `mezzotint.privacy.verify` for the check.
    """

    numerator: int
    denominator: int
    level: int
    row_high: int
    row_low: int
    max_bias: Fraction
    sha256: str
    neighboring: Literal["replace_one"] = "replace_one"
    unit: Literal["report"] = "report"

    @property
    def epsilon(self) -> float:
        """log(numerator / denominator), rounded up; inf over 0."""
        return log_ratio(self.numerator, self.denominator)

    def as_dict(self) -> dict[str, int | float | str]:
        """Plain values for JSON: integers as integers, max_bias as "a/b", an unbounded epsilon as "inf"."""
        return {
            "epsilon": plain(self.epsilon),
            "numerator": self.numerator,
            "denominator": self.denominator,
            "level": self.level,
            "row_high": self.row_high,
            "row_low": self.row_low,
            "max_bias": f"{self.max_bias.numerator}/{self.max_bias.denominator}",
            "sha256": self.sha256,
            "neighboring": self.neighboring,
            "unit": self.unit,
        }

    def __str__(self) -> str:
        table = f"table {self.sha256[:12]}"
        if self.denominator == 0:
            return (
                f"One report of {table} has no pure epsilon: level {self.level} has mass in row {self.row_high} and "
                f"none in row {self.row_low}; its mean is off by at most {float(self.max_bias):.3g} data units."
            )
        return (
            f"One report of {table}, to an observer of every single report, satisfies pure differential privacy with "
            f"computed epsilon = log({self.numerator}/{self.denominator}) <= {self.epsilon!r} for replacing its input "
            f"by any other (level {self.level}, rows {self.row_high} and {self.row_low}), and its mean is off by at "
            f"most {float(self.max_bias):.3g} data units; further reports about the same person add up."
        )


def certify(mechanism: Mechanism) -> Certificate:
    """The certificate of one report, read off the integers of the table.

    Arguments:
        mechanism: any table; an unbounded epsilon is certified as such (denominator 0).

    Guarantees: `certify(m).epsilon == m.epsilon`; `verify` re-derives every field without this code.
    Source: T3 and T4 (docs/proofs/tables.md).
    """
    worst = worst_ratio(mechanism.weights)
    return Certificate(
        numerator=worst.numerator,
        denominator=worst.denominator,
        level=worst.level,
        row_high=worst.row_high,
        row_low=worst.row_low,
        max_bias=mechanism.exact_max_bias,
        sha256=mechanism.sha256,
    )
