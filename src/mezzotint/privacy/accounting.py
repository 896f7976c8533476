"""What a whole release costs: one description in, one claim out.

With a proof where the kernel accepts one.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mezzotint as mz
from mezzotint.core.arguments import check_limit, check_options, check_positive
from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import float_above
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, above
from mezzotint.privacy.claim import Claim, Release, Released, nameless
from mezzotint.privacy.local import PURE, account_local
from mezzotint.privacy.propose import (
    Outcome,
    Proof,
    Provable,
    accepted,
    exact_release,
    propose_local,
    sealed,
)
from mezzotint.privacy.shuffled import account_shuffled
from mezzotint.privacy.sums.cost import PURE as SUMMED_PURE, PURE_L2, account_sum
from mezzotint.privacy.sums.proposals import propose_sum


def account(released: Release | Released, /, **fields: Any) -> Claim:
    """Computes the claim of the best valid method, the others beside it.

    Arguments:
        released: a `Release`; or its mechanism alone, with the other `fields` of `Release`.
        fields: as of `Release`, such as rounds=10; delta is 1e-6 where none is given.

    Returns: the claim, computed; `prove` returns it certified, with its proof.

    Raises:
        ParameterError: what `Release` refuses; fields beside a release, or unknown ones.

    Guarantees:
        epsilon is never below the exact worst case over all inputs, and adaptive choices of them.
        Of reports that are seen it is their dominating pair's (T7), up to the grid of losses. That
        is the worst case if one pair of rows has the largest divergence at every epsilon; of a
        lopsided table it may be a third above it. Never above rounds * dimension * mechanism.epsilon. Of a shuffle never above
        its claim with trust="local" either, which is one of its alternatives. The claim's delta is
        that of the release, or 0 where it would lower epsilon by less than a thousandth.

    Edge cases: delta=0: pure composition. A table with epsilon=inf has a claim when its delta
        allows one, else inf.
    Source: T2, T7 (docs/proofs/tables.md), docs/proofs/privacy-composition.md, docs/proofs/sums.md.

    Example:
        >>> table = mz.families.randomized_response(lower=-1, upper=1, epsilon=1.0)
        >>> round(account(Release(mechanism=table, rounds=100, delta=1e-6)).epsilon, 3)
        83.531
    """
    release = _release(released, fields)
    claim = _account(release)
    pure_bounds = [bound for bound in claim.alternatives if bound[0] in _DELTA_FREE]
    if not pure_bounds or pure_bounds[0][1] > claim.epsilon * (1 + WORTHLESS):
        return claim
    method, epsilon = pure_bounds[0]
    return replace(
        claim,
        epsilon=epsilon,
        delta=0.0,
        method=method,
        alternatives=tuple(pure_bounds),
        release=replace(claim.release or release, delta=0.0),
    )


WORTHLESS = 1e-3
"""A share of epsilon that is worth no delta: the claim is pure instead, and can be certified fast."""

_DELTA_FREE = (PURE, SUMMED_PURE, PURE_L2)
"""Methods whose epsilon holds at delta 0."""


def _account(release: Release) -> Claim:
    """The claim at the release's own delta."""
    mechanism = release.mechanism
    if isinstance(mechanism, Mapping):
        return _account_columns(release, mechanism)
    if not isinstance(mechanism, Mechanism):
        return mechanism.account(release)
    if release.distinct is not None:
        return _account_memoised(release, release.distinct)
    if release.trust == "local":
        return account_local(release)
    if release.trust == "secure_sum":
        return account_sum(release)
    if release.trust == "shuffler":
        return account_shuffled(release)
    remedy = "a table is drawn from before anything is sent: 'local', 'secure_sum'"
    raise ParameterError("trust", "central", remedy)


def _release(released: Release | Released, fields: Mapping[str, Any]) -> Release:
    """The release itself, or that of a mechanism and the other fields."""
    if isinstance(released, Release):
        if fields:
            remedy = "the release says everything; use dataclasses.replace"
            raise ParameterError(next(iter(fields)), "given", remedy)
        return released
    check_options(fields, Release, mechanism="it is the first argument")
    words: dict[str, Any] = {"mechanism": released, "delta": 1e-6, **fields}
    return Release(**words)


def _account_columns(release: Release, tables: Mapping[str, Mechanism]) -> Claim:
    """One report per column.

    The sum of the pure epsilons is valid, and the exact cost where all values may change.
    Source: sequential composition (Dwork et al. 2006).
    """
    if not tables:
        remedy = "name at least one column and its mechanism"
        raise ParameterError("mechanism", "no columns", remedy)
    if release != Release(mechanism=tables, delta=0.0):
        remedy = (
            "several columns are accounted once, pure, each report seen: "
            "give mechanism and delta=0 alone"
        )
        raise ParameterError("mechanism", f"{len(tables)} columns", remedy)
    # The likelihood ratio of a tuple of independent reports is the product of the columns' ratios,
    # and each can be at its largest at once: the logarithms of the maxima add up, with equality.
    epsilons = [table.epsilon for table in tables.values()]
    total_epsilon = math.inf
    if all(map(math.isfinite, epsilons)):
        exact_total = sum(map(Fraction, epsilons), Fraction(0))
        total_epsilon = float_above(exact_total)
    return release.claim({PURE: total_epsilon}, dimension=len(tables))


def _account_memoised(release: Release, distinct: int) -> Claim:
    """Reports of equal values are copies and cost nothing; those of distinct values add up.

    Fresh draws protect everything the user ever sends. Memoised ones protect which values the user
    has, given in which rounds they were equal: a change of the value shows. Holds against an
    observer who cannot tell AES-256 from random, if the device keeps its key.
    Source: docs/proofs/estimation.md, E7; the effect of changes: Ding, Kulkarni, Yekhanin 2017.
    """
    fresh_rounds = replace(release, rounds=distinct, distinct=None)
    claim = account_local(fresh_rounds)
    return replace(
        claim,
        release=release,
        rounds=release.rounds,
        released=release.released,
        between=release.between,
    )


_METHODS = {"ratio": PURE, "renyi": "Renyi divergence"}
"""What proofs follow from that need not be what the accountant's least epsilon follows from."""

_REPORT_SECONDS = 10
"""Processor seconds that checking a statement about one report may take; beyond them it is called
computed."""


def _float_above(decimal: str) -> float:
    """The least float that is written as no less than this decimal."""
    value = float(decimal)
    if Fraction(repr(value)) < Fraction(decimal):
        return math.nextafter(value, math.inf)
    return value


def prove(
    released: Release | Released,
    /,
    *,
    seconds: float = 60,
    **fields: Any,
) -> tuple[Claim, Proof | None]:
    """The claim that `account` finds, raised by a little, with a proof that
    `mezzotint.kernel.check` has accepted.

    Arguments:
        released, fields: as in `account`, whose claim is to be proved.
        seconds: processor time for each check; parts of a second are rounded up.

    Returns: the claim, certified, and its proof for `mezzotint.kernel.check(claim, proof)` and
        `claim.save(path, proof)`. Without a proof (None) the claim is computed, and `claim.reason`
        says why.

    Raises:
        ParameterError: as `account`.

    Guarantees: a claim with a proof has passed `mezzotint.kernel.check` in this process.
    Source: docs/proofs/kernel.md.

    Example:
        >>> table = mz.families.randomized_response(lower=-1, upper=1, epsilon=1.0)
        >>> claim, proof = prove(Release(mechanism=table, rounds=100, delta=1e-6))
        >>> claim.certified, round(claim.epsilon, 2)
        (True, 83.53)
    """
    whole_seconds = math.ceil(check_positive("seconds", seconds))
    release = _release(released, fields)
    computed = account(release)
    outcome = _proposed(computed.release or release, computed, whole_seconds)
    if isinstance(outcome, str):
        return replace(computed, reason=outcome), None
    if outcome.proof is None:
        return replace(computed, reason=outcome.reason), None
    certified = replace(
        computed,
        epsilon=_float_above(outcome.claim.statement["epsilon"]),
        method=_METHODS.get(outcome.proof["kind"], computed.method),
        checked=outcome.claim,
    )
    return certified, outcome.proof


def _proposed(release: Release, computed: Claim, seconds: int) -> Outcome | str:
    """The proof that the kernel accepted, or the reason why none was proposed to it."""
    mechanism = release.mechanism
    if isinstance(mechanism, Provable):
        return mechanism.propose(release, computed, seconds=seconds)
    if isinstance(mechanism, Mapping):
        return _columns(tuple(mechanism.values()), computed.epsilon, seconds)
    if not isinstance(mechanism, Mechanism):
        return f"no kind of proof is about a {type(mechanism).__name__}"
    if release == Release(mechanism=mechanism, delta=0.0):
        return _columns((mechanism,), computed.epsilon, seconds)
    return _proposed_table(
        replace(release, mechanism=nameless(mechanism)),
        computed.epsilon,
        seconds,
    )


def _proposed_table(
    release: Release,
    epsilon: float,
    seconds: int,
) -> Outcome | str:
    """Of several reports of one table."""
    if release.distinct is not None:
        texts = [release.table.canonical()]
        ratio = functools.partial(sealed, kind="ratio", tables=texts)
        return accepted(exact_release(release), epsilon, 0.0, ratio, seconds=seconds)
    if release.trust == "shuffler":
        return "no kind of proof is about shuffled reports"
    if release.clip_norm is not None:
        return "no kind of proof is about claims under an L2 bound"
    if release.trust == "local":
        return propose_local(release, epsilon, seconds=seconds)
    if release.participation not in ("none", "public"):
        return "no kind of proof is about secret participation in sums"
    return propose_sum(release, epsilon, seconds=seconds)


@functools.lru_cache(maxsize=32)
def _columns(
    mechanisms: tuple[Mechanism, ...],
    epsilon: float,
    seconds: int = _REPORT_SECONDS,
) -> Outcome:
    """One report from each table."""
    tables = [nameless(mechanism) for mechanism in mechanisms]
    texts = {table.sha256: table.canonical() for table in tables}
    reports = Counter(table.sha256 for table in tables)
    release = mz.kernel.ExactRelease(observer="reports", tables=tuple(reports.items()))
    ratio = functools.partial(sealed, kind="ratio", tables=texts.values())
    return accepted(release, epsilon, 0.0, ratio, seconds=seconds)


def check_report(
    mechanism: Mechanism,
    proof: str,
    *,
    order: float | None = None,
    **stated: float,
) -> bool:
    """Whether the kernel accepts a statement about one report of a table, within seconds.

    Arguments:
        proof: the kind: "ratio" (pure), "delta" or "renyi".
        order: of a Renyi statement.
        stated: the statement's numbers, epsilon and delta; taken at their shortest decimals.

    Returns: True if the kernel accepts the proof, False if it refuses it.

    Example:
        >>> table = mz.families.randomized_response(epsilon=1.0)
        >>> mz.privacy.check_report(table, "ratio", epsilon=1.0, delta=0.0)
        True
        >>> mz.privacy.check_report(table, "ratio", epsilon=0.99, delta=0.0)
        False
    """
    table = nameless(mechanism)
    statement: JsonObject = {"kind": "dp" if order is None else "renyi"}
    for name, value in stated.items():
        statement[name] = repr(check_limit(name, value, "need a number >= 0"))
    ordered: JsonObject = {}
    if order is not None:
        ordered = {"order": repr(check_limit("order", order, "need a number > 1"))}
    one_report = ((table.sha256, 1),)
    claim = mz.kernel.ExactClaim(
        release=mz.kernel.ExactRelease(observer="reports", tables=one_report),
        statement={**statement, **ordered},
    )
    content = sealed(claim, proof, tables=[table.canonical()], **ordered)
    try:
        mz.kernel.check(claim, content, seconds=_REPORT_SECONDS)
    except (mz.kernel.Refused, mz.kernel.Unreadable, mz.kernel.Unfinished):
        return False
    return True


def report_claim(mechanism: Mechanism | Mapping[str, Mechanism]) -> Claim:
    """The cost of one report of a table, or of one record all of whose columns are reported.

    The pure epsilon, certified where the kernel accepts it within seconds.

    Arguments:
        mechanism: a table, or the tables of a record by column.

    Returns: the claim.

    Example:
        >>> claim = mz.privacy.report_claim(mz.families.randomized_response(epsilon=1.0))
        >>> claim.certified, round(claim.epsilon, 4)
        (True, 1.0)
    """
    return prove(Release(mechanism=mechanism, delta=0.0), seconds=_REPORT_SECONDS)[0]


def table_line(mechanism: Mechanism) -> str:
    """A table in one line: name, levels, epsilon of a report and its standing, hash."""
    privacy = f"epsilon {above(mechanism.epsilon)} ({report_claim(mechanism).basis})"
    size = mechanism.levels.size
    return f"{mechanism.name}: {size} levels, {privacy}, table {mechanism.sha256[:12]}"


def report_words(mechanism: Mechanism) -> str:
    """The claim of one report, and where in the table its epsilon stands.

    The certificate of a table without an epsilon.

    Arguments:
        mechanism: a table.

    Returns: one or two sentences.

    Example:
        >>> words = mz.privacy.report_words(mz.families.randomized_response(epsilon=1.0))
        >>> words.startswith("Certified: ")
        True
    """
    certificate = mechanism.certificate()
    if certificate.denominator == 0:
        return str(certificate)
    accuracy = ""
    if certificate.max_bias is not None:
        bias = float(certificate.max_bias)
        accuracy = f"The mean of a report is off by at most {bias:.3g} data units. "
    ratio = f"log({certificate.numerator}/{certificate.denominator})"
    rows = f"rows {certificate.row_high} and {certificate.row_low}"
    return (
        f"{report_claim(mechanism)}\nIts epsilon is {ratio} <= {certificate.epsilon!r}: "
        f"level {certificate.level}, {rows} of table {certificate.sha256[:12]}. "
        f"{accuracy}Further reports about the same person add up."
    )
