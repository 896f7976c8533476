"""What a whole release costs: one description in, one claim out, with a proof where the kernel
accepts one.

The other way round, `calibrate` goes from a budget for a whole release to the parameter of the
mechanism.

What shuffled reports reveal is claimed for every randomizer with this pure epsilon. A shuffler
hands over the multiset of reports; a sum is a post-processing of it. The variation-ratio bound is
not used: it claims too little in some cases.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, final

import numpy as np

import mezzotint as mz
from mezzotint.core.arguments import check_delta, check_others, check_positive
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.core.loss import float_above
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, Record, above
from mezzotint.core.search import bracket
from mezzotint.core.types import TOTAL, UNIT
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
from mezzotint.privacy.sums.blanket import (
    Blanket,
    Component,
    blanket_noise,
    pair_profile,
    two_point,
)
from mezzotint.privacy.sums.cost import account_sum, propose_sum


def account(released: Release | Released, **fields: Any) -> Claim:
    """Computes the claim of the best valid method, the others beside it.

    Arguments:
        released: a `Release`; or its mechanism alone, with the other `fields` of `Release`.
        fields: as of `Release`, such as rounds=10; delta is 1e-6 where none is given.

    Returns: the claim, computed; `prove` returns it certified, with its proof.

    Raises:
        ParameterError: what `Release` refuses; fields beside a release, or unknown ones.

    Guarantees:
        epsilon is never below the exact worst case over all inputs, and adaptive choices of them.
        Within 1e-3 of it for up to 8 reports of small tables; of many rows, the dominating pair's
        (T7). Never above rounds * dimension * mechanism.epsilon.

    Edge cases: delta=0: pure composition. A table with epsilon=inf has a claim when its delta
        allows one, else inf.
    Source: T2, T7 (docs/proofs/tables.md), docs/proofs/privacy-composition.md, docs/proofs/sums.md.

    Example:
        >>> table = mz.families.randomized_response(lower=-1, upper=1, epsilon=1.0)
        >>> round(account(Release(mechanism=table, rounds=100, delta=1e-6)).epsilon, 3)
        83.531
    """
    release = _release(released, fields)
    if isinstance(release.mechanism, Mapping):
        return _record(release, release.mechanism)
    if not isinstance(release.mechanism, Mechanism):
        return release.mechanism.account(release)
    if release.trust == "central":
        raise ParameterError(
            "trust",
            "central",
            "a table is drawn from before anything is sent: 'local', 'secure_sum'",
        )
    if release.distinct is not None:
        return _memoised(release, release.distinct)
    if release.trust == "shuffler":
        return account_shuffled(release)
    return account_local(release) if release.trust == "local" else account_sum(release)


def _release(released: Release | Released, fields: Mapping[str, Any]) -> Release:
    """The release itself, or that of a mechanism and the other fields."""
    if not isinstance(released, Release):
        unknown = fields.keys() - Release.__dataclass_fields__.keys()
        if unknown:
            remedy = f"use {', '.join(Release.__dataclass_fields__)}"
            raise ParameterError(min(unknown), fields[min(unknown)], remedy)
        described: dict[str, Any] = {"mechanism": released, "delta": 1e-6, **fields}
        return Release(**described)
    if fields:
        remedy = "the release says everything; use dataclasses.replace"
        raise ParameterError(next(iter(fields)), "given", remedy)
    return released


def _record(release: Release, tables: Mapping[str, Mechanism]) -> Claim:
    """One report per column. The sum of the pure epsilons is valid, and the exact cost where all
    values may change.

    Source: sequential composition (Dwork et al. 2006).
    """
    if not tables:
        raise ParameterError(
            "mechanism", "no columns", "name at least one column and its mechanism"
        )
    if release != Release(mechanism=tables, delta=0.0):
        remedy = "several columns are accounted once, pure, each report seen: give mechanism and delta=0 alone"
        raise ParameterError("mechanism", f"{len(tables)} columns", remedy)
    # The likelihood ratio of a tuple of independent reports is the product of the columns' ratios,
    # and each can be at its largest at once: the logarithms of the maxima add up, with equality.
    parts = tuple((column, table.epsilon) for column, table in tables.items())
    bounded = all(math.isfinite(epsilon) for _, epsilon in parts)
    total = (
        float_above(sum((Fraction(epsilon) for _, epsilon in parts), Fraction(0)))
        if bounded
        else math.inf
    )
    digests = {table.sha256 for table in tables.values()}
    return release.claim(
        {PURE: total}, dimension=len(parts), parts=parts, released="one report per column",
        sha256=digests.pop() if len(digests) == 1 else "",
    )  # fmt: skip


def _memoised(release: Release, distinct: int) -> Claim:
    """Reports of equal values are copies and cost nothing; those of distinct values are independent
    and add up.

    Fresh draws protect everything the user ever sends. Memoised ones protect which values the user
    has, given in which
    rounds they were equal: a change of the value shows. Holds against an observer who cannot tell
        AES-256 from random,
    if the device keeps its key.

    Source: docs/proofs/estimation.md, E7; the effect of changes: Ding, Kulkarni, Yekhanin 2017.
    """
    claim = account_local(replace(release, rounds=distinct, distinct=None))
    return replace(
        claim, release=release, rounds=release.rounds,
        released=f"memoised reports of at most {distinct} distinct values",
        between="histories that are equal in the same rounds (when a value changes is not protected)",
    )  # fmt: skip


_BUDGET = 32


def clones_epsilon(epsilon: float, *, clients: int, delta: float, corrupted: int = 0) -> float:
    """Central epsilon of shuffled reports of any pure `epsilon`-DP randomizer, rounded up.

    Arguments:
        epsilon: pure epsilon of one report, finite.
        clients: reports in the shuffle.
        delta: in [0, 1).
        corrupted: clients without honest randomness.

    Guarantees: the numerical bound itself, not its closed-form relaxation; never above `epsilon`.
    Source: Feldman, McMillan and Talwar 2021, Hiding Among the Clones: every other client is, with
        probability e**-epsilon, a fair coin between the two reports of the protected one
        (docs/proofs/sums.md, "Shuffled reports").
    """
    return _coin_epsilon(
        epsilon, math.exp(-epsilon), clients=clients, delta=delta, corrupted=corrupted
    )


def account_shuffled(run: Release) -> Claim:
    """The cost of `dimension` shuffled reports a round, together or each by itself: only their
    random order is seen.

    It rests on the pure epsilon of a client's reports in a round and on nothing else of the table.
    Rounds add up, each with an equal part of delta.
    """
    one = replace(run, rounds=1).pure
    # What is seen follows from the reports themselves: their claim holds as well.
    local = account_local(run)
    bounds = {local.method: local.epsilon}
    if run.delta > 0 and math.isfinite(one):
        clients, share = int(run.clients or 1), run.delta / run.rounds * (1 - 4 * UNIT)
        each = clones_epsilon(one, clients=clients, delta=share, corrupted=run.corrupted)
        bounds["clones"] = run.rounds * each * (1 + 4 * UNIT)
    return run.claim(bounds, honest_clients=1 + run.others)


def _coin_epsilon(
    epsilon: float, chance: float, *, clients: int, delta: float, corrupted: int
) -> float:
    """Central epsilon when each other client is a fair coin with probability `chance`."""
    others, target = check_others(clients, corrupted), check_delta(delta)
    if not 0 <= epsilon < math.inf:
        raise ParameterError("epsilon", epsilon, "need a finite pure epsilon >= 0")
    mass = math.floor(chance * (1 - 8 * UNIT) * TOTAL)
    if target == 0 or others == 0 or mass == 0 or epsilon == 0:
        return epsilon
    coins = Component(shape=two_point(1), shifts=np.array([[mass]]))
    noise = blanket_noise(
        Blanket(components=(coins,), name="clones"), others, budget=_BUDGET, tail=1e-4 * target
    )
    small = 1 / (1 + math.exp(epsilon))
    first, second = np.array([small, 1 - small]), np.array([1 - small, small])
    return min(epsilon, pair_profile(noise, first, second).epsilon(target))


Build = Callable[[float], Release]

_STEPS = 60
"""Most halvings of an interval of parameters."""

_CROWD = 10**6
"""The largest factor by which clients are multiplied in search of a sufficient number."""


@final
@dataclass(frozen=True, kw_only=True)
class Calibration(Record):
    """A parameter that meets a budget, the release it makes, and its claim.

    Arguments:
        parameter: what was searched, in the units of `build`.
        release: build(parameter).
        claim: at or below the budget.
        tried: (parameter, epsilon) of everything that was computed, in order.

    Example:
        >>> coin = mz.families.randomized_response
        >>> build = lambda epsilon: mz.privacy.Release(mechanism=coin(epsilon=epsilon), dimension=10, delta=1e-6)
        >>> found = mz.privacy.calibrate(build, epsilon=2.0, least_noise_at=2.0, most_noise_at=0.01)
        >>> found.claim.epsilon <= 2.0, found.parameter > 0.2
        (True, True)
    """

    parameter: float
    release: Release = field(repr=False)
    claim: Claim
    tried: tuple[tuple[float, float], ...] = field(repr=False)


def calibrate(
    build: Build,
    *,
    epsilon: float,
    least_noise_at: float,
    most_noise_at: float,
    tolerance: float = 1e-3,
) -> Calibration:
    """The parameter nearest to `least_noise_at` with which a whole release stays within (epsilon,
    delta).

    Arguments:
        build: parameter -> `Release`, more noise towards `most_noise_at`; for example of a design
            at that epsilon of one report, or of integer noise of that sigma.
        epsilon: budget for the whole release at its delta, > 0.
        least_noise_at, most_noise_at: ends of the search, both positive; either may be the larger
            one.
        tolerance: relative accuracy of the parameter.

    Returns: the parameter with least noise found, with its claim.

    Raises:
        ParameterError: a budget or an end of the search that is not positive; whatever `account`
            refuses.
        InfeasibleError: not even `most_noise_at` meets the budget; the message says which
            dimension, rounds or clients would, at that parameter.

    Guarantees:
        claim.epsilon <= epsilon: it is the claim of the mechanism returned, whatever the search
        assumed. No parameter with less noise does that is further than `tolerance` away, if more
        noise never costs more.

    Example:
        >>> coin = mz.families.randomized_response
        >>> build = lambda epsilon: mz.privacy.Release(mechanism=coin(epsilon=epsilon), rounds=10, delta=1e-6)
        >>> found = mz.privacy.calibrate(build, epsilon=3.0, least_noise_at=3.0, most_noise_at=0.01)
        >>> 2.99 < found.claim.epsilon <= 3.0
        True
    """
    ends = (("least_noise_at", least_noise_at), ("most_noise_at", most_noise_at))
    for name, value in (("epsilon", epsilon), *ends, ("tolerance", tolerance)):
        check_positive(name, value)
    tried: list[tuple[float, float]] = []

    def at(parameter: float) -> tuple[Release, Claim]:
        release = build(parameter)
        claim = account(release)
        tried.append((parameter, claim.epsilon))
        return release, claim

    release, claim = at(least_noise_at)
    if claim.epsilon <= epsilon:
        return Calibration(
            parameter=least_noise_at, release=release, claim=claim, tried=tuple(tried)
        )
    release, claim = at(most_noise_at)
    if claim.epsilon > epsilon:
        raise InfeasibleError(_advice(release, claim, epsilon, most_noise_at))

    def fits(parameter: float) -> bool:
        nonlocal release, claim
        made, found = at(parameter)
        if found.epsilon <= epsilon:
            release, claim = made, found
        return found.epsilon <= epsilon

    # |log(a / b)| <= t where the difference is at most 1 - e^-t of the larger one.
    good, _ = bracket(
        fits,
        most_noise_at,
        least_noise_at,
        tolerance=-math.expm1(-tolerance),
        steps=_STEPS,
        geometric=True,
    )
    return Calibration(parameter=good, release=release, claim=claim, tried=tuple(tried))


def _advice(release: Release, claim: Claim, budget: float, most_noise_at: float) -> str:
    """Changes that would meet the budget where no parameter does."""
    ways: list[str] = []
    for name in ("dimension", "rounds"):
        most = _most(name, release, budget)
        if most is not None:
            ways.append(f"{name}={most} instead of {getattr(release, name)}")
    crowd = _crowd(release, budget)
    if crowd is not None:
        ways.append(
            f"trust='secure_sum' with clients={crowd}"
            if release.trust == "local"
            else f"clients={crowd}"
        )
    ways.append(f"more noise than parameter={most_noise_at:g}")
    return (
        f"calibrate: even at {most_noise_at:g}, the parameter with most noise, the release costs "
        f"epsilon={above(claim.epsilon)} ({claim.basis}) at "
        f"delta={release.delta:g}, above epsilon={budget:g}; any of these would meet the budget: {'; or '.join(ways)}"
    )


def _most(name: str, release: Release, budget: float) -> int | None:
    """The largest dimension or number of rounds within the budget, up to 1 %; None when not even
    one is."""

    @functools.cache
    def meets(count: int) -> bool:
        return account(replace(release, **{name: count})).epsilon <= budget

    high = int(getattr(release, name))
    if high == 1 or not meets(1):
        return None
    return round(
        bracket(lambda count: meets(round(count)), 1.0, high, tolerance=0.01, geometric=True)[0]
    )


def _crowd(release: Release, budget: float) -> int | None:
    """Clients whose secure sum is within the budget (not the fewest); None when none were found."""
    if release.trust == "local" and release.sampling == "poisson":
        return None  # records drawn in secret have no counterpart in sums over clients
    first = release.clients or 1
    factor = 2.0
    while factor <= _CROWD:
        clients = math.ceil(first * factor)
        try:
            epsilon = account(replace(release, trust="secure_sum", clients=clients)).epsilon
        except ParameterError:
            return None
        if epsilon <= budget:
            return clients
        # Epsilon falls about with the root of the clients, at first faster.
        factor *= min(max((epsilon / budget) ** 2, 2.0), 100.0)
    return None


_SECONDS = 10
"""Processor seconds that checking a statement about one report may take; beyond them it is called
computed."""


def _float_above(decimal: str) -> float:
    """The least float that is written as no less than this decimal."""
    value = float(decimal)
    if Fraction(repr(value)) < Fraction(decimal):
        return math.nextafter(value, math.inf)
    return value


def prove(
    released: Release | Released, *, seconds: int = 60, **fields: Any
) -> tuple[Claim, Proof | None]:
    """The claim that `account` finds, raised by a little, with a proof that
    `mezzotint.kernel.check` has accepted.

    Arguments:
        released, fields: as in `account`, whose claim is to be proved.
        seconds: processor time for each check.

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
    release = _release(released, fields)
    found = account(release)
    outcome = _proposed(found.release or release, found, seconds)
    if isinstance(outcome, str) or outcome.proof is None:
        return replace(found, reason=outcome if isinstance(outcome, str) else outcome.reason), None
    stated = outcome.claim.statement
    method = PURE if outcome.proof["kind"] == "ratio" else found.method
    return replace(
        found, epsilon=_float_above(stated["epsilon"]), method=method, checked=outcome.claim
    ), outcome.proof


def _proposed(release: Release, found: Claim, seconds: int) -> Outcome | str:
    """The proof that the kernel accepted, or the reason why none was proposed to it."""
    if isinstance(release.mechanism, Provable):
        return release.mechanism.propose(release, found, seconds=seconds)
    if isinstance(release.mechanism, Mapping):
        return _columns(tuple(release.mechanism.values()), found.epsilon, seconds)
    if not isinstance(release.mechanism, Mechanism):
        return f"no kind of proof is about a {type(release.mechanism).__name__}"
    if release.distinct is not None:
        memoised = replace(release, mechanism=nameless(release.mechanism))
        ratio = functools.partial(sealed, kind="ratio", tables=[memoised.table.canonical()])
        return accepted(exact_release(memoised), found.epsilon, 0.0, ratio, seconds=seconds)
    if release.trust == "shuffler":
        return "no kind of proof is about shuffled reports"
    if release.clip_norm is not None:
        return "no kind of proof is about claims under an L2 bound"
    if release == Release(mechanism=release.mechanism, delta=0.0):
        return _columns((release.mechanism,), found.epsilon, seconds)
    release = replace(release, mechanism=nameless(release.mechanism))
    if release.trust == "local":
        return propose_local(release, found.epsilon, seconds=seconds)
    if release.participation not in ("none", "public"):
        return "no kind of proof is about secret participation in sums"
    return propose_sum(release, found.epsilon, seconds=seconds)


@functools.lru_cache(maxsize=32)
def _columns(mechanisms: tuple[Mechanism, ...], epsilon: float, seconds: int = _SECONDS) -> Outcome:
    """One report from each table."""
    tables = {table.sha256: table.canonical() for table in map(nameless, mechanisms)}
    drawn = Counter(nameless(mechanism).sha256 for mechanism in mechanisms)
    release = mz.kernel.ExactRelease(observer="reports", tables=tuple(drawn.items()))
    texts = tables.values()
    return accepted(
        release, epsilon, 0.0, lambda claim: sealed(claim, "ratio", tables=texts), seconds=seconds
    )


def check_report(
    mechanism: Mechanism, proof: str, *, order: float | None = None, **stated: float
) -> bool:
    """Whether the kernel accepts a statement about one report of a table, within seconds.

    Arguments:
        proof: the kind: "ratio" (pure), "delta" or "renyi".
        order: of a Renyi statement.
        stated: the statement's numbers, epsilon and delta; taken at their shortest decimals.

    Returns: True if the kernel accepts the proof, False if it refuses it.

    Example:
        >>> table = mz.families.randomized_response(epsilon=1.0)
        >>> [mz.privacy.check_report(table, "ratio", epsilon=value, delta=0.0) for value in (1.0, 0.99)]
        [True, False]
    """
    table = nameless(mechanism)
    exact = {name: repr(float(value)) for name, value in stated.items()}
    ordered: JsonObject = {} if order is None else {"order": repr(float(order))}
    release = mz.kernel.ExactRelease(observer="reports", tables=((table.sha256, 1),))
    claim = mz.kernel.ExactClaim(
        release=release, statement={"kind": "dp" if order is None else "renyi", **exact, **ordered}
    )
    try:
        mz.kernel.check(
            claim, sealed(claim, proof, tables=[table.canonical()], **ordered), seconds=_SECONDS
        )
    except (mz.kernel.Refused, mz.kernel.Unreadable, mz.kernel.Unfinished):
        return False
    return True


def report_claim(mechanism: Mechanism | Mapping[str, Mechanism]) -> Claim:
    """The cost of one report of a table, or of one record all of whose columns are reported: the
    pure epsilon.

    Certified where the kernel accepts it within seconds.

    Arguments:
        mechanism: a table, or the tables of a record by column.

    Returns: the claim.

    Example:
        >>> claim = mz.privacy.report_claim(mz.families.randomized_response(epsilon=1.0))
        >>> claim.certified, round(claim.epsilon, 4)
        (True, 1.0)
    """
    return prove(Release(mechanism=mechanism, delta=0.0), seconds=_SECONDS)[0]


def report_words(mechanism: Mechanism) -> str:
    """The claim of one report, and where in the table its epsilon stands; the certificate of an
    unbounded one.

    Arguments:
        mechanism: a table.

    Returns: one or two sentences.

    Example:
        >>> words = mz.privacy.report_words(mz.families.randomized_response(epsilon=1.0))
        >>> words.startswith("Certified: ")
        True
    """
    found = mechanism.certificate()
    if found.denominator == 0:
        return str(found)
    accuracy = ""
    if found.max_bias is not None:
        accuracy = (
            f"The mean of a report is off by at most {float(found.max_bias):.3g} data units. "
        )
    return (
        f"{report_claim(mechanism)}\nIts epsilon is log({found.numerator}/{found.denominator}) <= {found.epsilon!r}: "
        f"level {found.level}, rows {found.row_high} and {found.row_low} of table {found.sha256[:12]}. "
        f"{accuracy}Further reports about the same person add up."
    )
