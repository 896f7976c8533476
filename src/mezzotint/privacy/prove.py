"""A claim about a whole release with a proof that the kernel has accepted."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from mezzotint import kernel
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject
from mezzotint.privacy.account import account, described
from mezzotint.privacy.claim import Claim
from mezzotint.privacy.local import PURE
from mezzotint.privacy.propose import Outcome, Proof, accepted, propose_local, sealed
from mezzotint.privacy.release import Provable, Release, Released
from mezzotint.privacy.sums.proofs import propose_sum

_SECONDS = 10
"""That a statement about one report may take to check before it is called computed."""


def prove(released: Release | Released, *, seconds: int = 60, **options: object) -> tuple[Claim, Proof | None]:
    """What `account` finds, raised by a little, with a proof that `mezzotint.kernel.check` has accepted.

    Arguments:
        released, options: as in `account`, which is asked first.
        seconds: processor time for each check.

    Returns: the claim, certified, and its proof for `mezzotint.kernel.check(claim, proof)` and `claim.save(path,
        proof)`. Without a proof (None) the claim is computed, and `claim.reason` says why.

    Raises:
        ParameterError: as `account`.

    Guarantees: a claim with a proof has passed `mezzotint.kernel.check` in this process.
    Source: docs/proofs/kernel.md.

    >>> from mezzotint import families
    >>> table = families.randomized_response(lower=-1, upper=1, epsilon=1.0)
    >>> claim, proof = prove(Release(mechanism=table, rounds=10, delta=1e-6))
    >>> claim.certified, claim.epsilon < 9.9
    (True, True)
    """
    release = described(released, **options)
    found = account(release)
    outcome = _proposed(found.release or release, found, seconds)
    if isinstance(outcome, str) or outcome.proof is None:
        return replace(found, reason=outcome if isinstance(outcome, str) else outcome.reason), None
    stated = outcome.claim.statement
    method = PURE if outcome.proof["kind"] == "ratio" else found.method
    return replace(found, epsilon=float(stated["epsilon"]), method=method, checked=outcome.claim), outcome.proof


def _proposed(release: Release, found: Claim, seconds: int) -> Outcome | str:
    """What the kernel accepted, or why nothing was proposed to it."""
    if isinstance(release.mechanism, Provable):
        return release.mechanism.propose(release, found, seconds=seconds)
    if isinstance(release.mechanism, Mapping):
        return _columns(tuple(release.mechanism.values()), found.epsilon, seconds)
    if not isinstance(release.mechanism, Mechanism):
        return f"no kind of proof is about a {type(release.mechanism).__name__}"
    if release.distinct is not None:
        return "no kind of proof is about memoised reports"
    if release.trust == "shuffler":
        return "no kind of proof is about shuffled reports"
    if release.clip_norm is not None:
        return "no kind of proof is about claims under an L2 bound"
    mechanism, sampling = nameless(release.mechanism), "revealed" if found.sampling == "public" else found.sampling
    shape: JsonObject = {
        "epsilon": found.epsilon, "delta": found.delta, "coordinates": found.dimension, "rounds": found.rounds,
        "sampling": sampling, "rate": found.sampling_rate, "seconds": seconds,
    }  # fmt: skip
    if release == Release(mechanism=release.mechanism, delta=0.0):
        return _columns((release.mechanism,), found.epsilon, seconds)
    if release.trust == "local":
        return propose_local(mechanism, neighboring=release.neighboring, **shape)
    if sampling not in ("none", "revealed"):
        return "no kind of proof is about secret participation in sums"
    return propose_sum(mechanism, clients=int(release.clients or 1), corrupted=release.corrupted, **shape)


@functools.lru_cache(maxsize=32)
def _columns(mechanisms: tuple[Mechanism, ...], epsilon: float, seconds: int = _SECONDS) -> Outcome:
    """One report from each table."""
    tables = {table.sha256: table.canonical() for table in map(nameless, mechanisms)}
    drawn = Counter(nameless(mechanism).sha256 for mechanism in mechanisms)
    release = kernel.ExactRelease(observer="reports", tables=tuple(drawn.items()))
    texts = tables.values()
    return accepted(release, epsilon, 0.0, lambda claim: sealed(claim, "ratio", tables=texts), seconds=seconds)


def nameless(mechanism: Mechanism) -> Mechanism:
    """The table without the names of its categories, which the kernel does not read: claims are about the numbers."""
    if mechanism.categories is None:
        return mechanism
    return Mechanism(knots=mechanism.knots, levels=mechanism.levels, weights=mechanism.weights, name=mechanism.name)


def check_report(mechanism: Mechanism, proof: str, *, order: float | None = None, **stated: float) -> bool:
    """Whether the kernel accepts a statement about one report of a table, within seconds.

    Arguments:
        proof: the kind: "ratio" (pure), "delta" or "renyi".
        order: of a Renyi statement.
        stated: the statement's numbers, epsilon and delta; taken at their shortest decimals.
    """
    table = nameless(mechanism)
    exact = {name: repr(float(value)) for name, value in stated.items()}
    ordered: JsonObject = {} if order is None else {"order": repr(float(order))}
    release = kernel.ExactRelease(observer="reports", tables=((table.sha256, 1),))
    claim = kernel.ExactClaim(
        release=release, statement={"kind": "dp" if order is None else "renyi", **exact, **ordered}
    )
    try:
        kernel.check(claim, sealed(claim, proof, tables=[table.canonical()], **ordered), seconds=_SECONDS)
    except (kernel.Refused, kernel.Unreadable, kernel.Unfinished):
        return False
    return True


def report_claim(mechanism: Mechanism | Mapping[str, Mechanism]) -> Claim:
    """What one report of a table costs, or one record all of whose columns are reported: the pure epsilon.

    Certified where the kernel accepts it within seconds.
    """
    return prove(Release(mechanism=mechanism, delta=0.0), seconds=_SECONDS)[0]


def report_words(mechanism: Mechanism) -> str:
    """The claim of one report, and where in the table its epsilon stands; where there is none, the certificate."""
    found = mechanism.certificate()
    if found.denominator == 0:
        return str(found)
    return (
        f"{report_claim(mechanism)}\nIts epsilon, log({found.numerator}/{found.denominator}) <= {found.epsilon!r}, "
        f"stands in table {found.sha256[:12]}: level {found.level}, rows {found.row_high} and {found.row_low}. "
        f"The mean of a report is off by at most {float(found.max_bias):.3g} data units; further reports about the "
        "same person add up."
    )
