"""`mezzotint verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import mezzotint as mz
from mezzotint.cli.common import AsJson, claim_of, print_json, say
from mezzotint.core.errors import ParameterError
from mezzotint.core.records import JsonObject

EXAMPLE = "mezzotint verify m.json --json"


def command(
    file: Annotated[Path, typer.Argument(help="Mechanism file or claim file (.json).")],
    budget: Annotated[int, typer.Option(min=1, help="CPU seconds allowed for checking a claim.")] = 60,
    as_json: AsJson = False,
) -> None:
    """Check a mechanism file in exact rational arithmetic, or a claim file by its proof.

    FILE is a mechanism file or a claim file (.json). Exit status: 0 if everything holds, 1 if the check fails or
    exceeds the budget, 2 if the file cannot be read.
    """
    if not file.is_file():
        raise ParameterError("file", str(file), "no such file; check the path")
    report = mz.privacy.verify(file, seconds=budget)
    status = _claim(report, as_json) if report.subject == "claim" else _mechanism(file, report, as_json)
    if status:
        raise typer.Exit(status)


def _claim(report: mz.privacy.VerificationReport, as_json: bool) -> int:
    claim, sentence = report.claim, "; ".join(report.problems) or str(report)
    status = 0 if report.valid else 2 if claim is None else 1
    if as_json:
        facts = {"valid": status == 0, "certified": status == 0, "status": status, "verdict": sentence}
        to = {} if claim is None or claim.release is None else {"observer": claim.observer, "trust": claim.trust}
        print_json({**facts, **to, "claim": None if claim is None else claim.document()})
    else:
        say(sentence, style="bold red" if status else "green")
    return status


def _mechanism(file: Path, report: mz.privacy.VerificationReport, as_json: bool) -> int:
    claim = claim_of(file) if report.valid else None
    if as_json:
        bias = None if report.max_bias is None else str(report.max_bias)
        derived: JsonObject = {"max_bias_exact": bias, "sha256": report.sha256, "problems": report.problems}
        derived |= {
            "epsilon": report.epsilon_upper,
            "max_bias": None if report.max_bias is None else float(report.max_bias),
        }
        derived |= {"observer": "reports", "certified": False} if claim is None else claim.standing
        derived |= {} if claim is None else {"claim": str(claim)}
        print_json({"valid": report.valid, **derived})
    else:
        lines = [str(report), *([] if claim is None else [str(claim)])]
        style = "green" if report.valid else "bold red"
        say("\n".join(lines), style=style)
    return 0 if report.valid else 1
