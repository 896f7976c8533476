"""What one record pays when several of its columns are reported."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, final

from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.privacy import pure_epsilon


@final
@dataclass(frozen=True, kw_only=True)
class RecordClaim:
    """The pure epsilon of all reports about one record (one row) together.

    Arguments:
        epsilon: of the whole record, rounded up.
        columns: (column, epsilon of its report) pairs.
        neighboring: "replace_one": any values of one record against any others.
        unit: what is protected. Whoever owns several rows pays once per row.
        delta: always 0.
    """

    epsilon: float
    columns: tuple[tuple[str, float], ...]
    neighboring: str = "replace_one"
    unit: str = "record"
    delta: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "columns": dict(self.columns)}

    def __str__(self) -> str:
        parts = " + ".join(f"{name} {epsilon:.6g}" for name, epsilon in self.columns)
        return f"epsilon {self.epsilon:.6g} per record ({parts}), delta 0, replace-one"


def record_claim(mechanisms: Mapping[str, Mechanism]) -> RecordClaim:
    """The claim of one report per column, each from its own table with its own randomness.

    Arguments:
        mechanisms: column -> its table; at least one.

    Returns: the sum of the pure epsilons.

    Raises:
        ParameterError: no columns.

    Guarantees: at delta = 0 the sum is not only valid but the exact cost where all values of a record may change;
        rounding is upwards.
    Edge cases: a table without a finite epsilon makes the claim infinite.

    Source: sequential composition (Dwork et al. 2006).
    """
    if not mechanisms:
        raise ParameterError("mechanisms", "none", "name at least one column and its mechanism")
    # The likelihood ratio of a tuple of independent reports is the product of the columns' ratios, and each can be
    # at its largest at once: the logarithms of the maxima add up, with equality.
    parts = tuple((column, pure_epsilon(mechanism.weights)) for column, mechanism in mechanisms.items())
    if any(math.isinf(epsilon) for _, epsilon in parts):
        return RecordClaim(epsilon=math.inf, columns=parts)
    exact = sum((Fraction(epsilon) for _, epsilon in parts), Fraction(0))
    total = float(exact)
    if Fraction(total) < exact:
        total = math.nextafter(total, math.inf)
    return RecordClaim(epsilon=total, columns=parts)
