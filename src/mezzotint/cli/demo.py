"""`mezzotint demo`: the main job on real data, from design to proof, in seconds."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

import mezzotint as mz
from mezzotint.cli import console, progress, tables
from mezzotint.cli import design as designs
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

CARRIERS = (
    "9E",
    "AA",
    "AS",
    "B6",
    "DL",
    "EV",
    "F9",
    "FL",
    "HA",
    "MQ",
    "OO",
    "UA",
    "US",
    "VX",
    "WN",
    "YV",
)
"""Carriers with schedules within the country then: public knowledge, too. Anyone else is "(other)".
"""

SHOWN = 5
"""Carriers that the table shows, most frequent first."""


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
    paths = {
        file_name: folder / file_name
        for file_name in ("mechanism.json", "reports.parquet", "groups.parquet", "report.md")
    }
    grouped = _groups(Mechanism.load(paths["mechanism.json"]), paths["groups.parquet"])
    checked = mz.privacy.verify(paths["mechanism.json"])
    json_fields = {
        "rows": int(values.size),
        "lower": LOWER,
        "upper": UPPER,
        "true_mean": float(values.mean()),
        "epsilon_asked": EPSILON,
        "mechanisms": results,
        **grouped,
        "verified": checked.valid,
        "files": {file_name: str(path) for file_name, path in paths.items()},
        "seconds": time.perf_counter() - started,
    }
    with replacing(paths["report.md"], overwrite=True) as temporary:
        temporary.write_text(_markdown(json_fields, str(checked)), encoding="utf-8")
    console.show(json_fields, as_json, lambda: _picture(json_fields, str(checked)))
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


def _groups(mechanism: Mechanism, out: Path) -> JsonObject:
    """Privatizes the carrier, too, keeps the airport, and estimates by airport, beside the
    truth.
    """
    import pyarrow.parquet as parquet

    carriers = mz.families.categorical(categories=CARRIERS, epsilon=EPSILON, other=True)
    tables = {mz.datasets.AIR_TIME: mechanism, mz.datasets.CARRIER: carriers}
    with mz.datasets.flights() as path, progress.bar("carrier", unit="rows") as report_progress:
        written = mz.collect.privatize_columns(
            path,
            out,
            mechanisms=tables,
            keep=[mz.datasets.ORIGIN],
            missing="drop",
            overwrite=True,
            progress=report_progress,
        )
        truth = parquet.read_table(path).drop_null()
    minutes = truth[mz.datasets.AIR_TIME].to_numpy().clip(LOWER, UPPER)
    origins, carriers = truth[mz.datasets.ORIGIN].to_numpy(), truth[mz.datasets.CARRIER].to_numpy()
    true_means = {
        group_name: float(minutes[origins == group_name].mean())
        for group_name in sorted(set(origins))
    }
    true_shares = {
        group_name: float((carriers == group_name).mean()) for group_name in sorted(set(carriers))
    }
    by_origin = mz.collect.read_groups(
        out, by=mz.datasets.ORIGIN, column=f"{mz.datasets.AIR_TIME}_code"
    )
    shares = mz.collect.parts_of(
        mz.collect.read_groups(out, by=None, column=f"{mz.datasets.CARRIER}_code")[""]
    )
    return {
        "record_claim": str(written.claim),
        "by_origin": [
            {
                "origin": group_name,
                "truth": true_means[group_name],
                **mz.collect.parts_of(group)["mean"].interval.as_dict(),
            }
            for group_name, group in by_origin.items()
        ],
        "carriers": sorted(
            (
                {"carrier": n, "truth": true_shares.get(n, 0.0), **p.interval.as_dict()}
                for n, p in shares.items()
            ),
            key=lambda entry: -entry["value"],
        ),
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


def _grouped_rows(json_fields: JsonObject) -> list[tuple[str, ...]]:
    """What, truth, estimate, interval."""
    table_rows = [(f"mean from {e['origin']}", e, "{:.2f}") for e in json_fields["by_origin"]]
    table_rows += [
        (f"share of {e['carrier']}", e, "{:.4f}") for e in json_fields["carriers"][:SHOWN]
    ]
    ends = ("truth", "value", "low", "high")
    return [
        (estimand, *(form.format(entry[end]) for end in ends))
        for estimand, entry, form in table_rows
    ]


_GROUPED = ("by airport, and carriers", "truth", "estimate", "95 % low", "95 % high")


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
        f"Air time and carrier of one flight together: {json_fields['record_claim']} The airport "
        "was kept as it is.",
    ]


def _picture(json_fields: JsonObject, checked: str) -> list[RenderableType]:
    about, calibrated, verified, together = _words(json_fields, checked)
    truth, *families = _compared(json_fields)
    table = tables.TerminalTable(_HEADINGS, [truth, None, *families], caption=calibrated)
    grouped = tables.TerminalTable(_GROUPED, _grouped_rows(json_fields), caption=together)
    written = (
        f"Written: {', '.join(json_fields['files'].values())} ({json_fields['seconds']:.1f} s in "
        "all)"
    )
    return [Group(Text(about), table, Text(verified), grouped), written]


def _markdown(json_fields: JsonObject, checked: str) -> str:
    about, calibrated, verified, together = _words(json_fields, checked)
    compared = _pipes(_HEADINGS, _compared(json_fields))
    lines = ["# A private mean of 2013's flights", "", about, calibrated, "", *compared]
    lines += ["", verified, "", *_pipes(_GROUPED, _grouped_rows(json_fields)), "", together, ""]
    lines += [f"Check it again: `mezzotint verify {json_fields['files']['mechanism.json']}`", ""]
    return "\n".join(lines)


def _pipes(headings: tuple[str, ...], table_rows: list[tuple[str, ...]]) -> list[str]:
    """The lines of a Markdown table."""
    return [
        "| " + " | ".join(cells) + " |"
        for cells in (headings, ["---"] * len(headings), *table_rows)
    ]
