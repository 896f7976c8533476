"""Proposals for the kernel: a float epsilon, raised a little, and what makes it checkable.

Nothing here is trusted. A proposal that the kernel refuses is tried again at a larger epsilon; when
none is accepted the claim stays computed. Sizes and steps decide how close a proposal is and how
long its check takes, nothing else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, final, runtime_checkable

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]

import mezzotint as mz
from mezzotint.core.records import JsonObject
from mezzotint.core.search import bracket
from mezzotint.core.types import UNIT
from mezzotint.privacy.claim import Claim, Release
from mezzotint.privacy.divergences import rdp_public_sampling, rdp_to_epsilon
from mezzotint.privacy.local import PRECISION, account_local
from mezzotint.privacy.profile import Profile, grid_step

if TYPE_CHECKING:
    from mezzotint.kernel.measures import Measure

Proof: TypeAlias = JsonObject

_RAISES = (0.0, 1e-9, 2e-5, 2e-4, 8e-4, 3.2e-3, 1.28e-2, 5.12e-2, 0.2048)
"""Relative raises of epsilon, tried in turn until one is accepted; then the interval below it is
halved. A refusal that shows its losses shows the least raise, too, which is tried next."""

_MAX_RAISE = _RAISES[-1]

_SHARE_ROUNDING = 1e-12
"""Covers what floats lose of a raise."""

_BINARY = 2.0**-60
"""Stands for the float itself: the shortest decimal that reads back as it may lie below it, and
below the truth."""

_PURE_RAISES = (_RAISES[0], _BINARY, *_RAISES[1:])
"""Those of a pure epsilon, whose float may be the sum of its parts to the last place; its checks
are fast."""

_SMALL_EPSILON = 1e-3
"""A smaller epsilon is raised by shares of this."""

_PRECISION = 4e-4
"""A raised epsilon is lowered again until the doubt is this share of it."""

_FINE_PRECISION = 5e-6
"""The same where checks are fast."""

_LOWERING_SHARE = 1 / 4
_FINE_SHARE = 1 / 20
"""Shares of a check's time that may be spent on lowering it, to either precision."""

TAIL = 110
"""Products drop 2**-110 at each end."""


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a proposal.

    Arguments:
        claim: certified when `proof` is there, else computed.
        proof: for `mezzotint.kernel.check`; None when nothing was accepted.
        reason: why nothing was accepted; empty otherwise.
        too_large: the proof is too long or too slow to check, so that no larger epsilon would help
            it.
        sufficient: of a refused proof whose losses are known, the epsilon that they suffice for.

    Example:
        >>> table = mz.families.randomized_response(epsilon=1.0)
        >>> release = mz.privacy.Release(mechanism=table, rounds=2, delta=0.0)
        >>> claim, proof = mz.privacy.prove(release)
        >>> proof is not None
        True
    """

    claim: mz.kernel.ExactClaim
    proof: Proof | None
    reason: str = ""
    too_large: bool = False
    sufficient: float | None = None

    def __str__(self) -> str:
        return mz.kernel.words(self.claim, self.reason)

    @property
    def text(self) -> str | None:
        """The claim file; None when there is no proof."""
        return None if self.proof is None else mz.kernel.write_claim(self.claim, self.proof)


@runtime_checkable
class Provable(Protocol):
    """A mechanism of a release that proposes proofs of its own claims."""

    def propose(
        self,
        release: Release,
        claim: Claim,
        *,
        seconds: int,
    ) -> Outcome | str:
        """A proof of the claim, or the reason why there is none."""
        ...


def exact_text(value: float) -> str:
    """Nine significant digits, never less than the value.

    What is not raised stands as it is, at its shortest.
    """
    return _rounded_up(Decimal(repr(float(value))), 9)


def binary_text(value: float) -> str:
    """The least decimal of 18 digits that is not below the binary number, which it reads back as."""
    return _rounded_up(Decimal(float(value)), 18)


def _rounded_up(value: Decimal, digits: int) -> str:
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(value)
    return format(rounded.normalize(), "f")


def exact_rate(value: float) -> Fraction:
    """The binary fraction that is drawn with.

    The float itself, not the shortest decimal that rounds to it.
    """
    return Fraction(float(value))


def sealed(
    claim: mz.kernel.ExactClaim,
    kind: str,
    *,
    precision: int = 256,
    tables: Iterable[str] = (),
    **content: Any,
) -> Proof:
    """A proof that names its claim."""
    return {
        "kind": kind,
        "version": 1,
        "claim_sha256": claim.sha256,
        "precision": precision,
        "tables": list(tables),
        **content,
    }


def bound_document(
    *,
    levels: int,
    epsilon: Fraction,
    value: str,
    **content: Any,
) -> JsonObject:
    """The claim file, unchecked, of a lower bound on the mean squared error with so many levels.

    Inputs are uniform. `content` is that of a proof of kind `dual` (docs/proofs/design.md, "Any m
    levels").
    """
    statement = {
        "kind": "lower_bound",
        "loss": "mse",
        "prior": "uniform",
        "levels": levels,
        "epsilon": str(epsilon),
        "value": value,
    }
    claim = mz.kernel.ExactClaim(release=None, statement=statement)
    return {**claim.document(), "proof": sealed(claim, "dual", **content)}


def _checked(
    claim: mz.kernel.ExactClaim,
    proof: Proof,
    seconds: int,
) -> Outcome:
    """What the kernel says of a proof."""
    try:
        certified = mz.kernel.check(claim, proof, seconds=seconds)
    except (mz.kernel.Refused, mz.kernel.Unfinished, mz.kernel.Unreadable) as error:
        too_large = not isinstance(error, mz.kernel.Refused) or error.step == "size"
        return Outcome(
            claim=claim,
            proof=None,
            reason=f"not certified: {error}",
            too_large=too_large,
            sufficient=_sufficient_epsilon(claim, getattr(error, "evidence", None)),
        )
    return Outcome(claim=certified, proof=proof)


def _sufficient_epsilon(claim: mz.kernel.ExactClaim, evidence: object) -> float | None:
    """The least epsilon that the losses of a refused proof suffice for, in floats.

    None where no losses are known, or they are about another epsilon than the claim's.
    """
    from mezzotint.kernel.units import WHOLE

    if not isinstance(evidence, tuple):
        return None
    epsilon, measure = cast("tuple[Fraction, Measure]", evidence)
    if epsilon != claim.epsilon:
        return None
    masses = np.array([int(mass) / WHOLE for mass in measure.poly.coeffs()])
    positions = np.arange(masses.size, dtype=np.float64) + measure.start
    profile = Profile(
        losses=positions * float(measure.step),
        masses=masses,
        infinite=measure.deficit / WHOLE,
        error=UNIT,
    )
    return profile.epsilon(float(claim.delta))


Prover: TypeAlias = "Callable[[mz.kernel.ExactClaim], Proof]"
"""The proof for a claim."""

Attempt: TypeAlias = tuple[Prover, float]
"""A prover, and an epsilon below which it proves nothing; 0 where none is known."""


@final
@dataclass(frozen=True, kw_only=True)
class _Statement:
    """The claim (epsilon, delta) of a release, whose epsilon may be raised; checks take so many
    seconds at most."""

    release: mz.kernel.ExactRelease
    epsilon: float
    delta: float
    seconds: int

    def raised(self, share: float) -> mz.kernel.ExactClaim:
        """The claim at an epsilon raised by this share of it."""
        epsilon = repr(float(self.epsilon))
        if share == _BINARY:
            epsilon = binary_text(self.epsilon)
        elif share > 0:
            epsilon = exact_text(self.epsilon + share * max(self.epsilon, _SMALL_EPSILON))
        delta = "0" if self.delta == 0 else repr(float(self.delta))
        statement = {"kind": "dp", "epsilon": epsilon, "delta": delta}
        return mz.kernel.ExactClaim(release=self.release, statement=statement)

    def checked(self, prover: Prover, share: float) -> Outcome:
        """What the kernel says of a proof of the raised claim."""
        claim = self.raised(share)
        return _checked(claim, prover(claim), self.seconds)

    def least(
        self,
        prover: Prover,
        best: Outcome,
        largest: float,
        least_epsilon: float,
    ) -> Outcome:
        """The outcome at the least raise that is accepted, if that is below the raise of `best`."""
        start = max(0.0, self._share(least_epsilon))
        relative_raises = _RAISES if self.delta else _PURE_RAISES
        raises = [start + raised for raised in relative_raises]
        proved = math.inf
        if best.proof is not None:
            proved = self._share(float(best.claim.epsilon))
        outcome = best
        refused = share = start
        while share < proved and share <= largest:
            started = time.process_time()
            outcome = self.checked(prover, share)
            check_seconds = time.process_time() - started
            if outcome.proof is not None:
                return self._lowered(prover, outcome, refused, share, check_seconds)
            if outcome.too_large:
                return outcome
            refused = share
            share = min((raised for raised in raises if raised > refused), default=math.inf)
            if outcome.sufficient is not None:
                sufficient = self._share(outcome.sufficient) + _SHARE_ROUNDING
                if sufficient > refused:
                    # Nothing between is accepted.
                    refused = share = sufficient
        if proved <= largest:
            return self._lowered(
                prover=prover, outcome=best, refused=refused, share=proved, check_seconds=0.0
            )
        return outcome

    def _share(self, epsilon: float) -> float:
        """The raise that makes this epsilon."""
        return (epsilon - self.epsilon) / max(self.epsilon, _SMALL_EPSILON)

    def _lowered(
        self,
        prover: Prover,
        outcome: Outcome,
        refused: float,
        share: float,
        check_seconds: float,
    ) -> Outcome:
        """Halve the interval between a refused raise and an accepted one, while time lasts."""
        best = outcome
        started = time.process_time()

        def accepts(share: float, limit: float) -> bool:
            nonlocal best
            if time.process_time() - started >= limit:
                return False
            lower = self.checked(prover, share)
            if lower.proof is None:
                return False
            best = lower
            return True

        for precision, limit in (
            (_PRECISION, self.seconds * _LOWERING_SHARE),
            (_FINE_PRECISION, self.seconds * _FINE_SHARE - check_seconds),
        ):
            steps = math.ceil(math.log2(max((share - refused) / precision, 1)))
            within = partial(accepts, limit=limit)
            share, refused = bracket(within, share, refused, steps=steps)
        return best


def accepted(
    release: mz.kernel.ExactRelease,
    epsilon: float,
    delta: float,
    *provers: Prover,
    largest: float = _MAX_RAISE,
    least_epsilon: float = 0.0,
    otherwise: Outcome | None = None,
    seconds: int = 60,
) -> Outcome:
    """The claim at the least raised epsilon that the kernel accepts.

    Arguments:
        epsilon, delta: as the float accountant has them.
        provers: each is raised and halved by itself; the least epsilon that any of them proves
            counts.
        largest: raise.
        least_epsilon: the provers prove nothing below it.
        otherwise: the outcome of another proof, returned when no smaller epsilon than its own is
            accepted.
        seconds: processor time of each check.
    """
    statement = _Statement(
        release=release,
        epsilon=epsilon,
        delta=delta,
        seconds=seconds,
    )
    best = Outcome(claim=statement.raised(0.0), proof=None)
    if otherwise is not None and otherwise.proof is not None:
        best = otherwise
    if math.isinf(epsilon):
        return replace(best, reason="no bound is finite") if best.proof is None else best
    for prover in provers:
        outcome = statement.least(prover, best, largest, least_epsilon)
        if outcome.proof is not None:
            best = outcome
        elif best.proof is None:
            best = replace(outcome, claim=best.claim)
    return best


def exact_release(release: Release) -> mz.kernel.ExactRelease:
    """The release of a table as the kernel describes it."""
    exact = release.exact
    assert exact is not None, "what no kind of proof is about is not proposed"
    return exact


def propose_local(
    release: Release,
    epsilon: float,
    *,
    seconds: int = 60,
) -> Outcome:
    """A certified claim near the float epsilon of a table's reports, each of them seen."""
    texts = [release.table.canonical()]
    if release.releases > 1 and release.delta > 0:
        finer = account_local(release, precision=PRECISION / 4)
        epsilon = min(epsilon, finer.epsilon)

    def attempts() -> Iterator[Attempt]:
        if release.releases == 1 and release.participation != "poisson":
            yield partial(sealed, kind="delta", tables=texts), 0.0
        else:
            shape = losses_shape(release, epsilon)
            yield partial(sealed, kind="losses", tables=texts, **shape), 0.0

    exact = exact_release(release)
    outcome = beyond_pure(release, exact, epsilon, attempts, seconds=seconds)
    if release.delta == 0 or release.participation == "poisson":
        return outcome
    # Of few reports that lose much no pair of rows is the worst at every epsilon, which losses
    # count as if one were; at one order some pair is.
    order, least = _best_order(release)
    proved = outcome.proof is not None and outcome.claim.epsilon <= least
    if proved or math.isinf(least):
        return outcome
    renyi = partial(sealed, kind="renyi", tables=texts, order=repr(order))
    return accepted(exact, least, release.delta, renyi, otherwise=outcome, seconds=seconds)


_ORDERS = (1e-3, 1e4)
"""Renyi orders that are tried, less 1."""


def _best_order(release: Release) -> tuple[float, float]:
    """The Renyi order at which a table's reports, each seen, have the least epsilon; and that."""

    def epsilon(logarithm: float) -> float:
        order = 1 + math.exp(logarithm)
        divergence = release.dimension * release.table.renyi(order)
        divergence = rdp_public_sampling(divergence, order, release.sampling_rate)
        return rdp_to_epsilon(release.rounds * divergence, order, release.delta)

    bounds = [math.log(order) for order in _ORDERS]
    found = scipy.optimize.minimize_scalar(epsilon, bounds=bounds, method="bounded")
    return 1 + math.exp(float(found.x)), epsilon(float(found.x))


def beyond_pure(
    release: Release,
    exact: mz.kernel.ExactRelease,
    epsilon: float,
    attempts: Callable[[], Iterable[Attempt]],
    *,
    seconds: int,
) -> Outcome:
    """As `accepted`, of one table's reports.

    The attempts are made if their pure composition is not enough.
    """
    delta = release.delta
    pure = release.pure
    if delta == 0:
        pure = min(epsilon, pure)
    ratio = partial(sealed, kind="ratio", tables=[release.table.canonical()])
    outcome = accepted(exact, pure, delta, ratio, seconds=seconds)
    enough = outcome.proof is not None and outcome.claim.epsilon <= Fraction(epsilon)
    if delta == 0 or enough:
        return outcome
    for prover, least_epsilon in attempts():
        outcome = accepted(
            exact,
            epsilon,
            delta,
            prover,
            least_epsilon=least_epsilon,
            otherwise=outcome,
            seconds=seconds,
        )
    return outcome


_LARGEST_LOSS = 200.0
"""Losses of one report above it share the last point of a grid."""


def losses_shape(release: Release, epsilon: float) -> JsonObject:
    """Step and grids of a `losses` proof: fine enough to cost about 2e-4 of epsilon."""
    sampled = release.participation != "none"
    largest_loss = min(release.table.epsilon, _LARGEST_LOSS)
    rounds = release.rounds
    if sampled:
        rounds = 1 + round(release.sampling_rate * release.rounds)
    releases = release.dimension * rounds
    profile = Profile.of_rows(release.table.weights)
    step = grid_step(profile, releases, 2e-4 * max(epsilon, _SMALL_EPSILON))
    # Few releases afford a grid that costs nothing; many are wide as it is.
    points = 400 if releases <= 1000 else 64
    fineness = max(4, math.ceil(1 / min(step / 2, largest_loss / points)))
    reach = math.ceil(largest_loss * fineness) + 1
    shape: JsonObject = {
        "step": f"1/{fineness}",
        "tail": TAIL,
        "grids": [{"low": max(-reach, -99 * fineness), "high": reach}],
    }
    if sampled:
        width = math.ceil(min(reach * release.dimension, (epsilon + 40) * fineness))
        shape["sampled"] = {"low": max(-width, -60 * fineness), "high": width}
    return shape


def propose_profile(
    first: int,
    second: int,
    *,
    sampled: int,
    epsilon: float,
    log10_delta: float,
    seconds: int = 60,
) -> Outcome:
    """The claim about a histogram sampled without replacement from a database of two types, with
    its proof.

    Arguments:
        first, second: records of the two types.
        sampled: records in the sample.
        epsilon: its exact binary fraction is claimed.
        log10_delta: an upper bound, such as `mezzotint.smoothed.profile(...).log10_upper`.
        seconds: processor time for the check.

    Example:
        >>> propose_profile(60, 40, sampled=50, epsilon=1.0, log10_delta=-2.0).claim.certified
        True
    """
    statement = {
        "kind": "profile",
        "first": first,
        "second": second,
        "sampled": sampled,
        "epsilon": str(Fraction(epsilon)),
        "log10_delta": repr(float(log10_delta)),
    }
    claim = mz.kernel.ExactClaim(release=None, statement=statement)
    return _checked(claim, sealed(claim, "profile"), seconds)


def ranks_release(
    table: JsonObject,
    *,
    indices: int,
    rounds: int,
) -> mz.kernel.ExactRelease:
    """Reports of a table over ranks, of so many indices each, as the kernel describes them."""
    from mezzotint.kernel.units import canonical, sha256

    digest = sha256(canonical(dict(table)))
    return mz.kernel.ExactRelease(
        observer="reports",
        tables=((digest, indices),),
        rounds=rounds,
    )


def propose_ranks(
    table: JsonObject,
    *,
    epsilon: float,
    indices: int,
    rounds: int,
) -> Outcome:
    """The pure claim of all reports of a table over ranks (`verification.table_ratio`)."""
    release = ranks_release(table, indices=indices, rounds=rounds)
    ratio = partial(sealed, kind="ratio", ranks=[dict(table)])
    return accepted(release, epsilon, 0.0, ratio)
