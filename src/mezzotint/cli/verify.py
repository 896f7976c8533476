"""`mezzotint verify`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from mezzotint import privacy
from mezzotint.cli.common import AsJson, output, print_json
from mezzotint.core.errors import ParameterError

EXAMPLE = "mezzotint verify m.json --json"


def command(
    file: Annotated[Path, typer.Argument(help="Mechanism file (.json).")],
    as_json: AsJson = False,
) -> None:
    """Re-derive every claim of a mechanism file in exact rationals; exit status 1 when one does not hold.

    FILE is a mechanism file (.json).
    """
    if not file.is_file():
        raise ParameterError("file", str(file), "no such file; check the path")
    report = privacy.verify(file)
    if as_json:
        print_json(_as_dict(report))
    else:
        output().print(str(report), style="green" if report.valid else "bold red", markup=False, soft_wrap=True)
    if not report.valid:
        raise typer.Exit(1)


def _as_dict(report: Any) -> dict[str, Any]:
    return {
        "valid": report.valid,
        "epsilon": report.epsilon_upper if math.isfinite(report.epsilon_upper) else "inf",
        "max_bias": None if report.max_bias is None else float(report.max_bias),
        "max_bias_exact": None if report.max_bias is None else str(report.max_bias),
        "sha256": report.sha256,
        "problems": list(report.problems),
    }
