"""`mezzotint demo`: the main job on real data, from design to proof, in seconds."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

import mezzotint as mz
from mezzotint.cli import console, design as designs, progress, tables
from mezzotint.cli.options import AsJson, option
from mezzotint.core.files import replacing
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, number

EXAMPLE = "mezzotint demo --folder demo"

EPSILON, LEVELS = 1.0, 4
LOWER, UPPER = 20.0, 700.0
"""Minutes. A range anyone would name for a flight within the country, chosen without a look at the
data: a range read off private data would itself give something away."""

FAMILIES: dict[str, tuple[str, int | list[float]]] = {
    "one-bit randomized response": ("randomized_response", 2),
    "RQM": ("rqm", LEVELS),
    "ERM": ("erm", LEVELS),
    "PBM": ("pbm", LEVELS),
    "OPTM": ("optm", [360.0 + 340.0 * bin for bin in (-3.0, -0.5, 0.5, 3.0)]),
    "optimal table": ("optimal", LEVELS),
}
"""OPTM has the bins that its paper gives for this epsilon, moved onto the range; it minimises
absolute errors.
"""

SAVED = "optimal table"


def command(
    folder: Annotated[
        Path, option("Folder for the mechanism, the reports and the summary.")
    ] = Path("demo"),
    as_json: AsJson = False,
) -> None:
    """Privatize the air time of 336,776 real flights with every family at epsilon 1, compare, save,
    and verify.
    """
    started = time.perf_counter()
    folder.mkdir(parents=True, exist_ok=True)
    with mz.datasets.flights() as path:  # the clipped values, which only this demonstration may see
        values = mz.collect.read_values(path, column=mz.datasets.AIR_TIME).clip(LOWER, UPPER)
    with tempfile.TemporaryDirectory() as aside:
        folders = dict.fromkeys(FAMILIES, Path(aside))
        folders[SAVED] = folder
        results = [_one(label, folders[label]) for label in FAMILIES]
    file_names = ("mechanism.json", "reports.parquet", "report.md")
    paths = {file_name: folder / file_name for file_name in file_names}
    checked = mz.privacy.verify(paths["mechanism.json"])
    json_fields = {
        "rows": int(values.size),
        "lower": LOWER,
        "upper": UPPER,
        "true_mean": float(values.mean()),
        "epsilon_asked": EPSILON,
        "mechanisms": results,
        "verified": checked.valid,
        "files": {file_name: str(path) for file_name, path in paths.items()},
        "seconds": time.perf_counter() - started,
    }
    about, calibrated, verified = _words(json_fields, str(checked))
    truth, *families = _compared(json_fields)
    with replacing(paths["report.md"], overwrite=True) as temporary:
        markdown = tables.as_markdown(_HEADINGS, [truth, *families])
        text = f"# A private mean of 2013's flights\n\n{about}\n{calibrated}\n\n{markdown}\n{verified}\n"
        temporary.write_text(text, encoding="utf-8")
    table = tables.TerminalTable(_HEADINGS, [truth, None, *families], caption=calibrated)
    written = (
        f"Written: {', '.join(map(str, paths.values()))} ({json_fields['seconds']:.1f} s in all)"
    )
    console.show(json_fields, as_json, lambda: [about, table, verified, written])
    if not checked.valid:
        raise typer.Exit(1)


def _one(label: str, folder: Path) -> JsonObject:
    """Designs, privatizes and estimates with one family; its mechanism and reports go into the
    folder.
    """
    family, levels = FAMILIES[label]
    started = time.perf_counter()
    loss = "mse"
    if family == "optm":
        loss = "mae"
    result = designs.make(
        family, epsilon=EPSILON, lower=LOWER, upper=UPPER, levels=levels, loss=loss, prior=None
    )
    mechanism: Mechanism = result.mechanism
    designed = time.perf_counter()
    reports = folder / "reports.parquet"
    with mz.datasets.flights() as path, progress.bar(label, unit="rows") as report_progress:
        options: JsonObject = {"missing": "drop", "overwrite": True, "progress": report_progress}
        mz.collect.privatize(
            path, reports, column=mz.datasets.AIR_TIME, mechanism=mechanism, **options
        )
    counts = mz.collect.read_counts(reports)
    estimate = mz.collect.estimate(counts)
    assert isinstance(estimate, mz.collect.Estimate)  # the demonstration's columns are numbers
    finished = time.perf_counter()
    claim = mz.privacy.report_claim(mechanism)
    mechanism.save(folder / "mechanism.json", overwrite=True)
    return {
        "mechanism": label,
        "epsilon": claim.epsilon,
        **claim.standing,
        "bits": mechanism.bits,
        "mean": estimate.mean.value,
        "ci_low": estimate.mean.low,
        "ci_high": estimate.mean.high,
        "standard_error": estimate.standard_error,
        "sampling_error_high": estimate.sampling_error.high,
        "design_seconds": designed - started,
        "collect_seconds": finished - designed,
    }


_HEADINGS = (
    "mechanism",
    "epsilon",
    "bits",
    "mean (minutes)",
    "95 % interval",
    "std. error",
    "design s",
    "collect s",
)


def _compared(json_fields: JsonObject) -> list[tuple[str, ...]]:
    """The truth, then every family."""
    table_rows: list[tuple[str, ...]] = [
        ("the truth (float64)", "none", "64", f"{json_fields['true_mean']:.2f}", "", "", "", "")
    ]
    for comparison in json_fields["mechanisms"]:
        cells = (
            comparison["mechanism"],
            f"{comparison['epsilon']:.6f}",
            str(comparison["bits"]),
            f"{comparison['mean']:.2f}",
            f"{comparison['ci_low']:.2f} .. {comparison['ci_high']:.2f}",
            number(comparison["standard_error"], 3),
            f"{comparison['design_seconds']:.2f}",
            f"{comparison['collect_seconds']:.2f}",
        )
        table_rows.append(cells)
    return table_rows


def _words(json_fields: JsonObject, checked: str) -> list[str]:
    certified = all(entry["certified"] for entry in json_fields["mechanisms"])
    basis = mz.privacy.basis(certified=certified)
    return [
        f"Air time of {json_fields['rows']:,} flights from New York in 2013 (missing values "
        f"dropped), clipped to [{LOWER:g}, {UPPER:g}] minutes, a range chosen without looking at "
        "the data.",
        f"Every family is calibrated to an epsilon of at most {EPSILON:g} per report "
        f"({basis}); one-bit response has 2 levels, the others {LEVELS}.",
        f"{json_fields['files']['mechanism.json']}: {checked}",
    ]
