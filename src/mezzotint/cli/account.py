"""`mezzotint account`: what a release would cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, final

import typer

import mezzotint as mz
from mezzotint.cli import common, console
from mezzotint.cli.options import AsJson, Overwrite, ProofOption, argument, option
from mezzotint.core.errors import ParameterError
from mezzotint.core.records import above

if TYPE_CHECKING:
    from mezzotint.core.mechanism import Mechanism
    from mezzotint.privacy.claim import Trust

EXAMPLE = (
    "mezzotint account m.json --dimension 1000 --rounds 10 --observer secure_sum --clients 1000 "
    "--delta 1e-6 --json"
)

TRUST: Mapping[str, Trust] = {
    "reports": "local",
    "secure_sum": "secure_sum",
    "shuffled": "shuffler",
}
"""Who must be trusted for an observer to see no more, as the library names it."""

_PURE_SECONDS = 10
"""Processor seconds that the check of a pure claim may take that nobody asked a proof of."""

RELEASE, OBSERVED, CLAIM = "Release", "Observer", "Claim"


@final
@dataclass(frozen=True, kw_only=True)
class AccountOptions:
    """Options of the verb."""

    file: Annotated[Path, argument("Mechanism file (.json).")]
    dimension: Annotated[int, option("Values of a person in a round.", panel=RELEASE)] = 1
    rounds: Annotated[int, option("Rounds that a person may be in.", panel=RELEASE)] = 1
    sampling_rate: Annotated[
        float, option("Probability to be in a round, in (0, 1].", panel=RELEASE)
    ] = 1.0
    sampling: Annotated[
        Literal["public", "poisson", "without_replacement"],
        option("Who takes part; known to all, or secret:", panel=RELEASE),
    ] = "public"
    observer: Annotated[
        Literal["reports", "secure_sum", "shuffled"],
        option("Sees every report, sums, or a shuffle:", panel=OBSERVED),
    ] = "reports"
    clients: Annotated[int | None, option("Reports in a sum or shuffle.", panel=OBSERVED)] = None
    corrupted: Annotated[
        int, option("Of these clients, those without honest noise.", panel=OBSERVED)
    ] = 0
    clip_norm: Annotated[
        float | None, option("Bound on a vector's L2 norm (secure_sum).", panel=OBSERVED)
    ] = None
    delta: Annotated[float, option("Delta of the claim, if it buys anything.", panel=CLAIM)] = 1e-6
    neighboring: Annotated[
        Literal["replace_one", "add_or_remove_one"], option("Relation:", panel=CLAIM)
    ] = "replace_one"
    proof: ProofOption = None
    overwrite: Overwrite = False
    as_json: AsJson = False


def command(options: AccountOptions) -> None:
    """Compute the epsilon of a complete release: several values and rounds, every report visible or
    only sums.

    With --proof, exit status 1: the claim could not be certified.
    """
    common.refuse_outputs(".json", overwrite=options.overwrite, proof=options.proof)
    release = mz.privacy.Release(
        mechanism=_mechanism(options),
        dimension=options.dimension,
        rounds=options.rounds,
        sampling_rate=options.sampling_rate,
        sampling=options.sampling,
        delta=options.delta,
        trust=TRUST[options.observer],
        neighboring=options.neighboring,
        clients=options.clients,
        corrupted=options.corrupted,
        clip_norm=options.clip_norm,
    )
    if options.proof is None:
        claim = mz.privacy.account(release)
        if claim.delta == 0 and claim.trust == "local":
            # Proofs that are pure take no time worth speaking of.
            claim, _ = mz.privacy.prove(release, seconds=_PURE_SECONDS)
    else:
        claim = common.write_proof(release, options.proof, overwrite=options.overwrite)
    json_fields = {**claim.as_dict(), "claim": str(claim)}
    console.show(json_fields, options.as_json, lambda: f"{claim}{_alternatives(claim)}")
    if options.proof is not None and not claim.certified:
        raise typer.Exit(1)


def _mechanism(options: AccountOptions) -> Mechanism | mz.vectors.RankedCodebook:
    """What the reports are drawn from: a table, or a ranked codebook of complete vectors."""
    if not common.is_ranked(options.file):
        return common.load_mechanism(options.file, parameter="file")
    vectors = options.dimension == 1 and options.clip_norm is None
    if not vectors or options.observer == "secure_sum":
        remedy = (
            "a ranked codebook's reports are of complete vectors, seen singly or shuffled; no "
            "sums, no dimension"
        )
        raise ParameterError("file", str(options.file), remedy)
    return mz.vectors.RankedCodebook.load(options.file)


def _alternatives(claim: mz.privacy.Claim) -> str:
    """Epsilons by other methods, which hold too."""
    others = [f"epsilon {above(epsilon)} by {name}" for name, epsilon in claim.alternatives[1:]]
    if not others:
        return ""
    return f"\nAlso valid ({mz.privacy.basis(claim.observer)}): {'; '.join(others)}."
