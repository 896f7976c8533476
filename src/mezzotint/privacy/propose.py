"""Proposals for the kernel: a float epsilon, raised a little, with the numbers that make it checkable.

Nothing here is trusted. A proposal that the kernel refuses is tried again at a larger epsilon; when none is accepted
the claim stays computed. Sizes and steps decide how close a proposal is and how long its check takes, nothing else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias, final

from mezzotint import kernel
from mezzotint.core.loss import pure_epsilon
from mezzotint.privacy.distribution import grid_step
from mezzotint.privacy.local import dominating_atoms

if TYPE_CHECKING:
    from mezzotint.core.mechanism import Mechanism

Proof: TypeAlias = dict[str, Any]

RAISES = (0.0, 1e-9, 2e-4, 1e-3, 3e-3, 5e-3, 1e-2, 2e-2, 3e-2, 0.045, 0.06, 0.09, 0.12, 0.16, 0.2, 0.25)
"""By how much of itself epsilon is raised, in turn."""

TAIL = 110
"""Products drop 2**-110 at each end."""


@final
@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a proposal.

    Arguments:
        claim: certified when `proof` is there, else computed.
        proof: for `mezzotint.kernel.check`; None when nothing was accepted.
        reason: why nothing was accepted; empty otherwise.
        too_large: the proof is too long or too slow to check, so that no larger epsilon would help it.
    """

    claim: kernel.Claim
    proof: Proof | None
    reason: str = ""
    too_large: bool = False

    def __str__(self) -> str:
        return kernel.words(self.claim, self.reason)

    @property
    def text(self) -> str | None:
        """The claim file; None when there is no proof."""
        return None if self.proof is None else kernel.write_claim(self.claim, self.proof)


def exact_text(value: float) -> str:
    """Nine significant digits, never less than the value. What is not raised stands as it is, at its shortest."""
    return format(Context(prec=9, rounding=ROUND_CEILING).create_decimal(repr(float(value))).normalize(), "f")


def exact_rate(value: float) -> Fraction:
    """The rational that a probability's shortest decimal stands for."""
    return Fraction(repr(float(value)))


def sealed(
    claim: kernel.Claim, kind: str, *, precision: int = 256, tables: Iterable[str] = (), **content: Any
) -> Proof:
    """A proof that names its claim."""
    head = {"kind": kind, "version": 1, "claim_sha256": claim.sha256, "precision": precision}
    return {**head, "tables": list(tables), **content}


def bound_document(*, levels: int, epsilon: Fraction, value: str, **content: Any) -> dict[str, Any]:
    """The claim file, unchecked, of a mean squared error that no mechanism with so many levels is below.

    Arguments:
        levels, epsilon, value: of the statement; uniform inputs on [-1, 1].
        content: of a proof of kind `dual` (docs/proofs/design.md, "Any m levels").
    """
    statement = {"kind": "lower_bound", "loss": "mse", "prior": "uniform", "levels": levels}
    claim = kernel.Claim(release=None, statement={**statement, "epsilon": str(epsilon), "value": value})
    return {**claim.document(), "proof": sealed(claim, "dual", **content)}


def accepted(
    release: kernel.Release,
    epsilon: float,
    delta: float,
    prove: Callable[[kernel.Claim], Proof],
    *,
    raises: Iterable[float] = RAISES,
    seconds: int = 60,
) -> Outcome:
    """The claim at the least raised epsilon that the kernel accepts.

    Arguments:
        release: what is accounted.
        epsilon, delta: as the float accountant has them.
        prove: the proof for a claim.
        seconds: processor time for each check.
    """
    stated = "0" if delta == 0 else repr(float(delta))

    def at(text: str) -> kernel.Claim:
        return kernel.Claim(release=release, statement={"kind": "dp", "epsilon": text, "delta": stated})

    unraised = at(repr(float(epsilon)))
    if not math.isfinite(epsilon):
        return Outcome(claim=unraised, proof=None, reason="no bound is finite")
    reason, large = "", False
    for share in raises:
        claim = at(exact_text(epsilon * (1 + share))) if share else unraised
        proof = prove(claim)
        try:
            return Outcome(claim=kernel.check(claim, proof, seconds=seconds), proof=proof)
        except (kernel.Refused, kernel.Unfinished, kernel.Unreadable) as error:
            reason = str(error)
            large = not isinstance(error, kernel.Refused) or error.step == "size"
            if large:
                break
    return Outcome(claim=unraised, proof=None, reason=f"not certified: {reason}", too_large=large)


def propose_local(
    mechanism: Mechanism,
    *,
    epsilon: float,
    delta: float,
    coordinates: int = 1,
    rounds: int = 1,
    sampling: str = "none",
    rate: float = 1.0,
    neighboring: str = "replace_one",
    seconds: int = 60,
) -> Outcome:
    """A certified claim near a float epsilon of the local view.

    Arguments:
        epsilon, delta: what `account` found.
        coordinates, rounds, sampling, rate, neighboring: as in `Claim`.
    """
    release = kernel.Release(
        observer="reports", tables=((mechanism.sha256, coordinates),), rounds=rounds, sampling=sampling,
        rate=exact_rate(rate), neighboring=neighboring,
    )  # fmt: skip
    texts = [mechanism.canonical()]

    def pure(claim: kernel.Claim) -> Proof:
        return sealed(claim, "ratio", tables=texts)

    if delta == 0 or epsilon == 0:
        return accepted(release, epsilon, delta, pure, seconds=seconds)
    if coordinates * rounds == 1 and sampling != "poisson":
        return accepted(release, epsilon, delta, lambda claim: sealed(claim, "delta", tables=texts), seconds=seconds)
    shape = losses_shape(mechanism, epsilon, coordinates, rounds, sampling, rate)

    def losses(claim: kernel.Claim) -> Proof:
        return sealed(claim, "losses", tables=texts, **shape)

    outcome = accepted(release, epsilon, delta, losses, seconds=seconds)
    return outcome if outcome.proof is not None else accepted(release, epsilon, delta, pure, seconds=seconds)


def losses_shape(
    mechanism: Mechanism, epsilon: float, coordinates: int, rounds: int, sampling: str, rate: float
) -> Mapping[str, Any]:
    """Step and grids of a `losses` proof: fine enough to cost about 2e-4 of epsilon."""
    single = min(pure_epsilon(mechanism.weights), 200.0)
    releases = coordinates * (rounds if sampling == "none" else 1 + round(rate * rounds))
    step = grid_step(dominating_atoms(mechanism), releases, 2e-4 * max(epsilon, 1e-3))
    # Few releases afford a grid that costs nothing; many are wide as it is.
    fineness = max(4, math.ceil(1 / min(step / 2, single / (400 if releases <= 1000 else 64))))
    reach = math.ceil(single * fineness) + 1
    shape: dict[str, Any] = {
        "step": f"1/{fineness}", "tail": TAIL, "grids": [{"low": max(-reach, -99 * fineness), "high": reach}],
    }  # fmt: skip
    if sampling != "none":
        wide = min(reach * coordinates, math.ceil((epsilon + 40) * fineness))
        shape["sampled"] = {"low": max(-wide, -60 * fineness), "high": wide}
    return shape
