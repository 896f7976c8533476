"""What one record pays for several reports, and one user for many rounds of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, final

from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.privacy import account, pure_epsilon
from mezzotint.privacy.claim import TRUSTED, Observer, Trust, rounded_up


@final
@dataclass(frozen=True, kw_only=True)
class RecordClaim:
    """The pure epsilon of all reports about one record (one row) together.

    Arguments:
        epsilon: of the whole record, rounded up.
        columns: (column, epsilon of its report) pairs.
        neighboring: "replace_one": any values of one record against any others.
        unit: what is protected. Whoever owns several rows pays once per row.
        observer: who the claim is against: somebody who sees every report.
        trust: nobody, but whoever draws the reports from the record.
        delta: always 0.
    """

    epsilon: float
    columns: tuple[tuple[str, float], ...]
    neighboring: str = "replace_one"
    unit: str = "record"
    observer: Observer = "reports"
    trust: Trust = "local"
    delta: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "columns": dict(self.columns)}

    def __str__(self) -> str:
        parts = " + ".join(f"{name} {rounded_up(epsilon)}" for name, epsilon in self.columns)
        return (
            f"epsilon {rounded_up(self.epsilon)} per record ({parts}), delta 0, replace-one, to an observer of every "
            f"single report; {TRUSTED[self.trust]}"
        )


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


@final
@dataclass(frozen=True, kw_only=True)
class LongitudinalClaim:
    """What one user pays over many rounds, with memoised reports and with fresh ones.

    The two protect different things. Fresh draws protect everything the user ever sends. Memoised ones protect which
    values the user has, given in which rounds they were equal: a change of the value shows.

    Arguments:
        rounds: reports of the user.
        distinct: different values among them, at most.
        memoised: pure epsilon of memoised reports, between any two histories whose values are equal in the same rounds.
        memoised_other: of memoised reports between histories whose equal rounds differ: infinite for two rounds or
            more, since unequal reports rule out equal values.
        fresh: pure epsilon of fresh draws, between any two histories.
        fresh_at_delta: of fresh draws, (epsilon, delta).
        delta: for `fresh_at_delta`.
        observer, trust: as in `RecordClaim`; memoised reports besides trust the device to keep its key.
    """

    rounds: int
    distinct: int
    memoised: float
    memoised_other: float
    fresh: float
    fresh_at_delta: float
    delta: float
    observer: Observer = "reports"
    trust: Trust = "local"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"over {self.rounds} rounds: memoised, epsilon {rounded_up(self.memoised)} for histories of "
            f"{self.distinct} distinct values that are equal in the same rounds (when a value changes is not "
            f"protected); fresh, epsilon {rounded_up(self.fresh)}, or {rounded_up(self.fresh_at_delta)} at delta "
            f"{rounded_up(self.delta)}, for all histories; to an observer of every single report; "
            f"{TRUSTED[self.trust]}"
        )


def longitudinal_claim(
    mechanism: Mechanism, *, rounds: int, distinct: int = 1, delta: float = 1e-6
) -> LongitudinalClaim:
    """What one user pays for one column over many rounds of collection, every report seen.

    Arguments:
        mechanism: the table.
        rounds: >= 1.
        distinct: different values that the user has over the rounds, 1 to `rounds`; `rounds` where nothing bounds it.
        delta: in [0, 1), for the fresh draws.

    Raises:
        ParameterError: counts that cannot be.

    Guarantees: all numbers are rounded up. Memoised claims hold against whoever cannot tell AES-256 from random.

    Source: docs/proofs/estimation.md, E7; the effect of changes: Ding, Kulkarni, Yekhanin 2017.
    """
    if rounds < 1:
        raise ParameterError("rounds", rounds, "need at least one round")
    if not 1 <= distinct <= rounds:
        raise ParameterError("distinct", distinct, f"between 1 and the number of rounds, {rounds}")
    epsilon = pure_epsilon(mechanism.weights)
    # Reports of equal values are copies and cost nothing; those of distinct values are independent and add up.
    return LongitudinalClaim(
        rounds=rounds,
        distinct=distinct,
        memoised=_times(epsilon, distinct),
        memoised_other=_times(epsilon, 1) if rounds == 1 else math.inf,
        fresh=_times(epsilon, rounds),
        fresh_at_delta=account(mechanism, rounds=rounds, delta=delta).epsilon,
        delta=delta,
    )


def _times(epsilon: float, count: int) -> float:
    """The product, rounded up."""
    if math.isinf(epsilon):
        return math.inf
    exact = Fraction(epsilon) * count
    total = float(exact)
    return total if Fraction(total) >= exact else math.nextafter(total, math.inf)
