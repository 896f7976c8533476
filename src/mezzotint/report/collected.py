"""The report of collected data: what a reports file says about the column behind it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from mezzotint.core.errors import FileFormatError
from mezzotint.core.lazy import LazyModule
from mezzotint.report.content import Curve, Figure, Page, Section, Table
from mezzotint.report.mechanism import mechanism_page
from mezzotint.report.words import percent, short, upwards

collect: Any = LazyModule("mezzotint.collect")
parquet: Any = LazyModule("pyarrow.parquet")

COUNTS_KEY = b"mezzotint.raw_counts"
BINS = 10


def reports_page(source: Path, *, column: str | None = None, level: float = 0.95) -> Page:
    """The report of a reports file: its estimates first, then the mechanism that made it.

    Arguments:
        source: a reports file (.parquet, .csv, .csv.gz) that carries its mechanism.
        column: the field of codes, where the file has several.
        level: confidence of each interval.

    Raises:
        ParameterError, FileFormatError: as `collect.read_counts`.
    """
    counts = collect.read_counts(source, column=column)
    estimate = collect.estimate(counts, level=level, histogram=BINS)
    about = mechanism_page(counts.mechanism, file="mechanism.json")
    mean = estimate.mean
    summary = (
        f"{estimate.n:,} reports; mean of the clipped inputs {short(mean.value)}, "
        f"{level:.0%} interval {short(mean.low)} to {short(mean.high)}; "
        f"epsilon {upwards(estimate.epsilon)} per report."
    )
    sections = (_estimates(estimate), _clipped(source), *about.sections)
    return Page(title=f"Reports in {source.name}", summary=summary, sections=sections, attachment=about.attachment)


def _estimates(estimate: Any) -> Section:
    bins = estimate.histogram
    centres = tuple(float(left + right) / 2 for left, right in zip(bins.edges, bins.edges[1:], strict=False))
    figure = Figure(
        key="histogram",
        title=f"Shares of the inputs, with {estimate.level:.0%} intervals",
        x_label="input (data units)",
        y_label="share",
        curves=(
            Curve(
                name="share",
                x=centres,
                y=tuple(bins.share.tolist()),
                low=tuple(bins.low.tolist()),
                high=tuple(bins.high.tolist()),
                style="bars",
            ),
        ),
    )
    rows = tuple(
        (name, short(value.value), short(value.low), short(value.high))
        for name, value in (
            ("mean", estimate.mean),
            ("variance", estimate.input_variance),
            ("standard error of the mean from the rows being a sample", estimate.sampling_error),
            ("standard error of the mean from privacy", estimate.privacy_error),
        )
    )
    words = (
        "These numbers are about the inputs as clipped to the mechanism's range. Everything here is computed from "
        "private reports and costs no further privacy.",
        "The intervals assume nothing about the shape of the inputs: where the table cannot tell two shapes apart, "
        "they are wide, and the point inside is only one shape among many.",
    )
    table = Table(headings=("of the clipped inputs", "estimate", "low", "high"), rows=rows)
    return Section(title="What was collected", words=words, figures=(figure,), table=table)


def _clipped(source: Path) -> Section:
    counts = _raw_counts(source)
    title = "What was clipped"
    if counts is None:
        words = (
            "The file does not say how many inputs were clipped or missing: such counts are about raw data and are "
            "not private, so they are kept only when asked for (mezzotint privatize --record-counts).",
        )
        return Section(title=title, words=words)
    rows = tuple((name, f"{counts[name]:,}", percent(counts[name] / max(1, counts["rows"]))) for name in counts)
    words = ("Counts over the raw data, recorded on request. They are not private.",)
    return Section(title=title, words=words, table=Table(headings=("inputs", "count", "share"), rows=rows))


def _raw_counts(source: Path) -> dict[str, int] | None:
    if source.suffix != ".parquet":
        return None
    text = (parquet.read_metadata(source).metadata or {}).get(COUNTS_KEY)
    if text is None:
        return None
    counts = json.loads(text)
    names = ("below", "above", "missing", "rows")
    if not isinstance(counts, dict) or not all(isinstance(counts.get(name), int) for name in names):
        raise FileFormatError(f"{source.name}: its recorded counts are damaged; privatize again")
    return {name: counts[name] for name in names}
