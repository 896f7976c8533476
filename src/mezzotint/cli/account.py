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
    delta: Annotated[float, option("Delta of the claim.", panel=CLAIM)] = 1e-6
    neighboring: Annotated[
        Literal["replace_one", "add_or_remove_one"], option("Relation:", panel=CLAIM)
    ] = "replace_one"
    proof: ProofOption = None
    overwrite: Overwrite = False
    as_json: AsJson = False


def command(asked: AccountOptions) -> None:
    """Compute the epsilon of a complete release: several values and rounds, every report visible or only sums.

    With --proof, exit status 1: the claim could not be certified.
    """
    common.refuse_outputs(".json", overwrite=asked.overwrite, proof=asked.proof)
    release = mz.privacy.Release(
        mechanism=_mechanism(asked),
        dimension=asked.dimension,
        rounds=asked.rounds,
        sampling_rate=asked.sampling_rate,
        sampling=asked.sampling,
        delta=asked.delta,
        trust=TRUST[asked.observer],
        neighboring=asked.neighboring,
        clients=asked.clients,
        corrupted=asked.corrupted,
        clip_norm=asked.clip_norm,
    )
    if asked.proof is None:
        claim = mz.privacy.account(release)
    else:
        claim = common.write_proof(release, asked.proof, overwrite=asked.overwrite)
    facts = {**claim.as_dict(), "claim": str(claim)}
    console.show(facts, asked.as_json, lambda: f"{claim}{_alternatives(claim)}")
    if asked.proof is not None and not claim.certified:
        raise typer.Exit(1)


def _mechanism(asked: AccountOptions) -> Mechanism | mz.vectors.RankedCodebook:
    """What the reports are drawn from: a table, or a ranked codebook of complete vectors."""
    if not common.is_ranked(asked.file):
        return common.load_mechanism(asked.file, parameter="file")
    vectors = asked.dimension == 1 and asked.clip_norm is None
    if not vectors or asked.observer == "secure_sum":
        remedy = "a ranked codebook's reports are of complete vectors, seen singly or shuffled; no sums, no dimension"
        raise ParameterError("file", str(asked.file), remedy)
    return mz.vectors.RankedCodebook.load(asked.file)


def _alternatives(claim: mz.privacy.Claim) -> str:
    """Epsilons by other methods, which hold too."""
    others = [f"epsilon {above(epsilon)} by {name}" for name, epsilon in claim.alternatives[1:]]
    if not others:
        return ""
    return f"\nAlso valid ({mz.privacy.basis(claim.observer)}): {'; '.join(others)}."
