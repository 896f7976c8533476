"""`mezzotint account`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import mezzotint as mz
from mezzotint.cli import common
from mezzotint.cli.common import AsJson, Overwrite, ProofOption, option
from mezzotint.core.errors import ParameterError
from mezzotint.core.records import above

EXAMPLE = "mezzotint account m.json --coordinates 1000 --rounds 10 --view sum --clients 1000 --delta 1e-6 --json"


def command(
    file: Annotated[Path, typer.Argument(help="Mechanism file (.json).")],
    coordinates: Annotated[int, option("Values that one person reports per round.")] = 1,
    rounds: Annotated[int, option("Rounds that one person may take part in.")] = 1,
    view: Annotated[
        str, option("What is seen. local: every report; sum: secure sums; shuffled: random order.")
    ] = "local",
    clients: Annotated[int | None, option("Reports in a sum or shuffle.")] = None,
    corrupted: Annotated[int, option("Clients assumed corrupted, whose noise does not count.")] = 0,
    geometry: Annotated[str, option("coordinate, or l2 with --l2-norm (view sum).")] = "coordinate",
    l2_norm: Annotated[float | None, option("Bound on the L2 norm of a person's vector, in data units.")] = None,
    sampling_rate: Annotated[float, option("Probability that a person participates in a round, in (0, 1].")] = 1.0,
    sampling: Annotated[str, option("public, poisson, or without_replacement.")] = "public",
    neighboring: Annotated[str, option("replace_one, or add_or_remove_one.")] = "replace_one",
    delta: Annotated[float, option("Delta of the claim.")] = 1e-6,
    proof: ProofOption = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Compute the privacy cost of a complete release: many values, many rounds, each report visible or only their sum.

    FILE is a mechanism file (.json).
    """
    common.refuse_outputs(overwrite=overwrite, proof=proof)
    ranked = common.is_ranked(file)
    if ranked and (coordinates, view == "sum", geometry, l2_norm) != (1, False, "coordinate", None):
        remedy = "a ranked codebook's reports are of complete vectors, seen singly or shuffled; no sums, no coordinates"
        raise ParameterError("file", str(file), remedy)
    release = mz.privacy.described(
        mz.vectors.RankedCodebook.load(file) if ranked else common.load_mechanism(file, parameter="file"),
        coordinates=coordinates, rounds=rounds, sampling_rate=sampling_rate, sampling=sampling, delta=delta, view=view,
        neighboring=neighboring, clients=clients, corrupted=corrupted, geometry=geometry, l2_norm=l2_norm,
    )  # fmt: skip
    claim = mz.privacy.account(release) if proof is None else common.write_proof(release, proof, overwrite=overwrite)
    others = "; ".join(f"epsilon {above(epsilon)} by {name}" for name, epsilon in claim.alternatives[1:])
    also = f"\nAlso valid ({mz.privacy.basis(claim.observer)}): {others}." if others else ""
    common.show({**claim.as_dict(), "claim": str(claim)}, as_json, lambda: str(claim) + also)
    if proof is not None and not claim.certified:
        raise typer.Exit(1)
