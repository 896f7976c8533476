"""What one record pays for several reports, and one user for many rounds of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.privacy import Claim, account, pure_epsilon
from mezzotint.privacy.loss import float_above
from mezzotint.privacy.prove import check_reports


def record_claim(mechanisms: Mapping[str, Mechanism]) -> Claim:
    """The claim of one report per column, each from its own table with its own randomness.

    Arguments:
        mechanisms: column -> its table; at least one.

    Returns: the sum of the pure epsilons, certified where the kernel accepts it; `.parts` has the columns' own.
        Whoever owns several rows pays once per row.

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
    bounded = all(math.isfinite(epsilon) for _, epsilon in parts)
    total = float_above(sum((Fraction(epsilon) for _, epsilon in parts), Fraction(0))) if bounded else math.inf
    tables = tuple(mechanisms.values())
    return replace(
        account(tables[0], delta=0.0), epsilon=total, unit="record", coordinates=len(parts), method="pure composition",
        alternatives=(("pure composition", total),) if bounded else (), parts=parts, released="one report per column",
        sha256=tables[0].sha256 if len(set(tables)) == 1 else "", checked=check_reports(tables, epsilon=total),
    )  # fmt: skip


def longitudinal_claim(
    mechanism: Mechanism, *, rounds: int, distinct: int = 1, delta: float = 1e-6
) -> dict[str, Claim]:
    """What one user pays for one column over many rounds of collection, every report seen.

    Memoised and fresh reports protect different things. Fresh draws protect everything the user ever sends. Memoised
    ones protect which values the user has, given in which rounds they were equal: a change of the value shows.

    Arguments:
        mechanism: the table.
        rounds: >= 1.
        distinct: different values that the user has over the rounds, 1 to `rounds`; `rounds` where nothing bounds it.
        delta: in [0, 1), for the fresh draws.

    Returns: by name: "memoised", pure, between any two histories whose values are equal in the same rounds;
        "memoised_other", between histories whose equal rounds differ: infinite for two rounds or more, since unequal
        reports rule out equal values; "fresh", pure, between any two histories; "fresh_at_delta", the same at `delta`.

    Raises:
        ParameterError: counts that cannot be.

    Guarantees: all numbers are rounded up. Memoised claims hold against whoever cannot tell AES-256 from random, and
        trust the device to keep its key.

    Source: docs/proofs/estimation.md, E7; the effect of changes: Ding, Kulkarni, Yekhanin 2017.
    """
    if rounds < 1:
        raise ParameterError("rounds", rounds, "need at least one round")
    if not 1 <= distinct <= rounds:
        raise ParameterError("distinct", distinct, f"between 1 and the number of rounds, {rounds}")
    epsilon = pure_epsilon(mechanism.weights)
    kept = f"memoised reports of at most {distinct} distinct values"
    fresh = replace(account(mechanism, rounds=rounds, delta=0.0), epsilon=_times(epsilon, rounds), alternatives=())
    same = replace(
        fresh, epsilon=_times(epsilon, distinct), released=kept, method="pure composition of distinct values",
        between="histories that are equal in the same rounds (when a value changes is not protected)",
    )  # fmt: skip
    other = replace(
        same, epsilon=_times(epsilon, 1) if rounds == 1 else math.inf, between="histories whose equal rounds differ"
    )
    at_delta = account(mechanism, rounds=rounds, delta=delta)
    return {"memoised": same, "memoised_other": other, "fresh": fresh, "fresh_at_delta": at_delta}


def _times(epsilon: float, count: int) -> float:
    """The product, rounded up."""
    return float_above(Fraction(epsilon) * count) if math.isfinite(epsilon) else math.inf
