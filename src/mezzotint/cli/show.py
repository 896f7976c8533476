"""`mezzotint show` and `mezzotint verify`: a file of a mechanism or of a claim, looked at and
checked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import RenderableType

import mezzotint as mz
from mezzotint.cli import common, console, tables
from mezzotint.cli.options import AsJson, argument, option
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, above, counted, number
from mezzotint.core.types import FloatArray
from mezzotint.kernel.units import shown

SHOW = "mezzotint show m.json --at=-1,0,1"
VERIFY = "mezzotint verify m.json --json"

GOOD, CHECK_FAILED, UNREADABLE = 0, 1, 2
"""Exit statuses of `verify`."""

_ROWS = 9
_COLUMNS = 8
_WIDEST = 64
_MOST = 40
"""Categories shown."""


def show(
    file: Annotated[Path, argument("Mechanism file (.json).")],
    at: Annotated[
        str | None, option("Inputs to show, as in -1,0,1; by default evenly spaced.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a mechanism: the distribution of its reports at some inputs, its errors and its
    certificate.
    """
    if common.is_ranked(file):
        scheme = mz.vectors.RankedCodebook.load(file)
        console.show(_ranked(scheme), as_json, lambda: str(scheme))
        return
    mechanism = common.load_mechanism(file, parameter="file")
    inputs = np.linspace(mechanism.lower, mechanism.upper, _ROWS)
    if mechanism.categories is not None:
        inputs = mechanism.knots
    if at is not None:
        inputs = np.array(common.parse_numbers(at, parameter="at"))
        for input_value in inputs[(inputs < mechanism.lower) | (inputs > mechanism.upper)]:
            console.note(
                f"{input_value:g} is clipped to "
                f"{np.clip(input_value, mechanism.lower, mechanism.upper):g}"
            )
    json_fields = _as_dict(mechanism, inputs)
    console.show(json_fields, as_json, lambda: _picture(mechanism, inputs))


def _ranked(scheme: mz.vectors.RankedCodebook) -> JsonObject:
    return {
        **common.picked(
            scheme, "name", "kind", "dimension", "clip_norm", "norms", "subspace", "indices"
        ),
        "table": scheme.table.as_dict(),
        **common.picked(scheme, "bits", "epsilon"),
        **scheme.claim().standing,
        "mse": scheme.mse,
        "mse_over_privunitg": scheme.mse / scheme.optimum,
        "bias": scheme.bias,
        "certificate": scheme.certificate(),
    }


def _as_dict(mechanism: Mechanism, inputs: FloatArray) -> JsonObject:
    return {
        **common.picked(
            mechanism, "name", "lower", "upper", "levels", "knots", "bits", "categories", "epsilon"
        ),
        **mz.privacy.report_claim(mechanism).standing,
        **_errors(mechanism, inputs),
        "inputs": inputs,
        "pmf": mechanism.pmf(inputs),
        "certificate": mechanism.certificate().as_dict(),
    }


def _errors(mechanism: Mechanism, inputs: FloatArray) -> JsonObject:
    """The errors of decoded reports; none for categories, whose levels are indices of reports."""
    if mechanism.categories is not None:
        return dict.fromkeys(("mse", "mae", "max_bias", "variance"))
    return {
        "mse": mechanism.mse(),
        "mae": mechanism.mae(),
        "max_bias": mechanism.max_bias,
        "variance": mechanism.variance(inputs),
    }


def _picture(mechanism: Mechanism, inputs: FloatArray) -> list[RenderableType]:
    if mechanism.categories is not None:
        return _categories(mechanism, mechanism.categories)
    few_levels = mechanism.levels.size <= _COLUMNS
    levels: list[str] = []
    if few_levels:
        levels = [f"{level:.4g}" for level in mechanism.levels]
    table_rows = []
    for input_value, probabilities in zip(inputs, mechanism.pmf(inputs), strict=True):
        cells = [_shown(float(input_value), mechanism), tables.sparkline(_shrink(probabilities))]
        if few_levels:
            cells += [f"{probability:.4f}" for probability in probabilities]
        cells.append(_shown(float(mechanism.mean(input_value)), mechanism))
        cells.append(_shown(float(np.sqrt(mechanism.variance(input_value))), mechanism))
        table_rows.append(cells)
    columns = ("input", "reports", *levels, "mean", "std. dev.")
    terminal_table = tables.TerminalTable(
        columns, table_rows, left=("reports",), title=_title(mechanism)
    )
    summary = (
        f"{mechanism.levels.size} levels ({counted(mechanism.bits, 'bit')}), "
        f"{mechanism.knots.size} rows, inputs in [{mechanism.lower:g}, {mechanism.upper:g}]\n"
        f"epsilon {_cost(mechanism)}; mean squared error {number(mechanism.mse())}, mean absolute "
        f"error {number(mechanism.mae())} (uniform inputs), greatest bias "
        f"{number(mechanism.max_bias, 3)}"
    )
    return [terminal_table, summary, mz.privacy.report_words(mechanism)]


ROUNDING = 1e-12
"""Of the largest level: sums of levels that are smaller are nothing but rounding, and shown as 0.
"""


def _title(mechanism: Mechanism) -> str:
    """The name on one line, so that no line of it reads as one of the program's own."""
    return " ".join(mechanism.name.split())


def _shown(value: float, mechanism: Mechanism) -> str:
    if abs(value) < ROUNDING * float(np.abs(mechanism.levels).max()):
        value = 0.0
    return number(value)


def _categories(mechanism: Mechanism, categories: Sequence[str]) -> list[RenderableType]:
    columns = ("category", "reports")
    table_rows = []
    for category, probabilities in zip(categories[:_MOST], mechanism.probabilities, strict=False):
        table_rows.append((category, tables.sparkline(_shrink(probabilities))))
    terminal_table = tables.TerminalTable(
        columns, table_rows, left=columns, title=_title(mechanism)
    )
    size = f"{mechanism.levels.size} reports ({counted(mechanism.bits, 'bit')})"
    if len(categories) > _MOST:
        size += f", {len(categories) - _MOST} more categories"
    cost = f"epsilon {_cost(mechanism)}, table {mechanism.sha256[:12]}"
    return [terminal_table, f"{len(categories)} categories, {size}\n{cost}"]


def _cost(mechanism: Mechanism) -> str:
    claim = mz.privacy.report_claim(mechanism)
    return f"{above(claim.epsilon)} per report ({claim.basis})"


def _shrink(probabilities: FloatArray) -> list[float]:
    """At most `_WIDEST` probabilities, by summing neighbours."""
    if probabilities.size <= _WIDEST:
        return probabilities.tolist()
    starts = np.linspace(0, probabilities.size, _WIDEST, endpoint=False).astype(int)
    return np.add.reduceat(probabilities, starts).tolist()


def verify(
    file: Annotated[Path, argument("Mechanism file or claim file (.json).")],
    seconds: Annotated[float, option("CPU seconds allowed for a claim.", least=1)] = 60,
    as_json: AsJson = False,
) -> None:
    """Check a mechanism file in exact rational arithmetic, or a claim file by its proof.

    FILE is a mechanism file or a claim file (.json). Exit status: 0 if everything holds, 1 if the
    check fails or takes longer than --seconds, 2 if the file cannot be read.
    """
    if file.is_dir():
        from mezzotint.privacy.verification import CLAIM_FILES

        remedy = f"is a folder; {CLAIM_FILES}"
        raise ParameterError("file", str(file), remedy)
    if not file.is_file():
        # Whatever it is called, its name is no sentence of the check.
        raise ParameterError("file", shown(str(file)), "no such file; check the path")
    report = mz.privacy.verify(file, seconds=seconds)
    if report.subject == "claim":
        raise typer.Exit(_checked_claim(report, as_json))
    raise typer.Exit(_checked_mechanism(file, report, as_json))


def _checked_claim(report: mz.privacy.VerificationReport, as_json: bool) -> int:
    claim = report.claim
    verdict = "; ".join(report.problems) or str(report)
    status = GOOD
    if not report.valid:
        status = _failure(report)
    json_fields: JsonObject = {"valid": report.valid, "certified": report.valid}
    assumptions: Sequence[str] = []
    document = None
    if claim is not None:
        document = claim.document()
        if claim.release is not None:
            json_fields |= common.picked(claim, "observer", "trust")
            assumptions = claim.release.assumptions
    json_fields |= {
        "status": status,
        "verdict": verdict,
        "claim": document,
        "relies_on": assumptions,
    }
    sentences = [verdict]
    if assumptions:
        sentences.append(_reliance(assumptions))
    console.show(json_fields, as_json, lambda: "\n".join(sentences), style=_STYLES[status == GOOD])
    return status


def _checked_mechanism(file: Path, report: mz.privacy.VerificationReport, as_json: bool) -> int:
    bias = report.max_bias
    json_fields: JsonObject = {"valid": report.valid, "max_bias_exact": None, "max_bias": None}
    if bias is not None:
        json_fields |= {"max_bias_exact": str(bias), "max_bias": float(bias)}
    json_fields |= {**common.picked(report, "sha256", "problems"), "epsilon": report.epsilon_upper}
    if not report.valid:
        json_fields |= {"observer": "reports", "certified": False, "relies_on": []}
        console.show(json_fields, as_json, lambda: str(report), style=_STYLES[False])
        return _failure(report)
    claim = _claim_of(file)
    assumptions = ["reports_are_drawn_from_the_tables"]
    json_fields |= {**claim.standing, "claim": str(claim), "relies_on": assumptions}
    sentences = [str(report), str(claim), _reliance(assumptions)]
    if math.isinf(report.epsilon_upper):
        sentences.insert(2, _accountable(Mechanism.load(file)))
    console.show(json_fields, as_json, lambda: "\n".join(sentences), style=_STYLES[True])
    return GOOD


def _accountable(mechanism: Mechanism) -> str:
    """For which delta a table without a pure epsilon has one."""
    disjoint_mass = mechanism.delta(math.inf)
    if disjoint_mass >= 1:
        limits = "no epsilon can be claimed at any delta below 1"
    else:
        limits = (
            f"an epsilon can be claimed only at a delta above {above(disjoint_mass)} "
            "(mezzotint account --delta DELTA)"
        )
    return (
        "A report that one input gives has probability 0 at another: every Renyi divergence of "
        f"order 1 or more is infinite, and {limits}."
    )


def _failure(report: mz.privacy.VerificationReport) -> int:
    """The exit status of a file that is not valid."""
    if report.unreadable:
        return UNREADABLE
    return CHECK_FAILED


def _claim_of(file: Path) -> mz.privacy.Claim:
    """The claim about one report of a mechanism file or a ranked codebook."""
    if common.is_ranked(file):
        return mz.vectors.RankedCodebook.load(file).claim()
    return mz.privacy.report_claim(Mechanism.load(file))


def _reliance(assumptions: Sequence[str]) -> str:
    """What no check of a file can show, and an auditor must look at elsewhere."""
    return f"relies on: {'; '.join(name.replace('_', ' ') for name in assumptions)}"


_STYLES = {True: "green", False: "bold red"}
