"""`mezzotint verify`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import mezzotint as mz
from mezzotint.cli import common
from mezzotint.cli.common import AsJson, option
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject

EXAMPLE = "mezzotint verify m.json --json"


def command(
    file: Annotated[Path, typer.Argument(help="Mechanism file or claim file (.json).")],
    budget: Annotated[int, option("CPU seconds allowed for checking a claim.", least=1)] = 60,
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
    facts = {"valid": status == 0, "certified": status == 0, "status": status, "verdict": sentence}
    facts |= {} if claim is None or claim.release is None else common.picked(claim, "observer", "trust")
    facts |= {"claim": None if claim is None else claim.document()}
    common.show(facts, as_json, lambda: sentence, style=_STYLES[status == 0])
    return status


def _mechanism(file: Path, report: mz.privacy.VerificationReport, as_json: bool) -> int:
    claim, bias = None, report.max_bias
    if report.valid:
        ranked, load = common.is_ranked(file), mz.vectors.RankedCodebook.load
        claim = load(file).claim() if ranked else mz.privacy.report_claim(Mechanism.load(file))
    facts: JsonObject = {"valid": report.valid, "max_bias_exact": None if bias is None else str(bias)}
    facts |= {**common.picked(report, "sha256", "problems"), "epsilon": report.epsilon_upper}
    facts |= {"max_bias": None if bias is None else float(bias)}
    facts |= {"observer": "reports", "certified": False} if claim is None else {**claim.standing, "claim": str(claim)}
    text = str(report) if claim is None else f"{report}\n{claim}"
    common.show(facts, as_json, lambda: text, style=_STYLES[report.valid])
    return 0 if report.valid else 1


_STYLES = {True: "green", False: "bold red"}
