"""The report of collected data: what a reports file says about the column behind it."""

from __future__ import annotations

import json
import operator
from pathlib import Path
from typing import TypeAlias, cast

import mezzotint as mz
from mezzotint.core.errors import FileFormatError
from mezzotint.core.records import above, number, percent
from mezzotint.privacy.account import report_claim
from mezzotint.report.mechanism_pages import mechanism_page
from mezzotint.report.page import Curve, Figure, Page, Section, Table

COUNTS_KEY = b"mezzotint.raw_counts"
BINS = 10

Found: TypeAlias = "mz.collect.Estimate | mz.collect.Frequencies"

_COUNTED = ("below", "above", "missing", "rows")


def reports_page(source: Path, *, column: str | None = None, level: float = 0.95) -> Page:
    """The report of a reports file: its estimates first, then the mechanism that made it.

    Arguments:
        source: a reports file (.parquet, .csv, .csv.gz) that carries its mechanism, a folder of them, or counts that
            `mezzotint estimate --save-counts` wrote (.json).
        column: the field of codes, where the file has several.
        level: confidence of each interval.

    Raises:
        ParameterError, FileFormatError: as `collect.read_counts`.
    """
    saved = source.suffix == ".json"
    counts = mz.collect.load_counts(source) if saved else mz.collect.read_counts(source, column=column)
    name = _name(source, column)
    title = f"Reports of {name} in {source.name}" if name else f"Reports in {source.name}"
    if counts.mechanism.categories is not None:
        shares = cast(mz.collect.Frequencies, mz.collect.estimate(counts, level=level, allow_seeded=True))
        return _categories_page(title, name or "category", shares)
    estimate = cast(mz.collect.Estimate, mz.collect.estimate(counts, level=level, histogram=BINS, allow_seeded=True))
    mean = estimate.mean
    summary = (
        f"{estimate.n:,} reports; mean of the clipped inputs {number(mean.value)}, "
        f"{level:.0%} interval {number(mean.low)} to {number(mean.high)}; {_privacy(estimate)}."
    )
    sections = [_estimates(estimate, name or "input"), *([] if saved else [_clipped(source, column)])]
    if counts.seeded:  # a page about the mechanism would state claims that do not hold for these reports
        return Page(title=title, summary=summary, sections=(_seeded(), *sections))
    about = mechanism_page(counts.mechanism, file="mechanism.json")
    sections += about.sections
    record = None if saved or source.is_dir() else _record(source)
    if record is not None:
        sections.insert(1, record)
    return Page(title=title, summary=summary, sections=tuple(sections), attachment=about.attachment)


def _name(source: Path, column: str | None) -> str:
    """The column that the reports are about, as their file names it; "" where it names none, as counts do not."""
    from mezzotint.collect import columns, sources
    from mezzotint.collect import reports as descriptions

    if source.suffix == ".json":
        return ""
    with columns.open_columns(Path(sources.find_files(source)[0].path)) as reader:
        described = descriptions.read_description(reader.description, name=source.name)
    return (column or next(iter(described.tables))).removesuffix("_code")


def _categories_page(title: str, name: str, found: mz.collect.Frequencies) -> Page:
    rows = tuple(
        (name, percent(share.value), percent(share.low), percent(share.high))
        for name, share in zip(found.categories, found.shares, strict=True)
    )
    table = Table(headings=(name, "share", *_ends(found)), rows=rows)
    private = "" if found.seeded else " Computed from private reports alone."
    words = (f"Unbiased shares of the categories, each with its interval.{private}",)
    sections = [Section(title="What was collected", words=words, table=table)]
    return Page(
        title=title,
        summary=f"{found.n:,} reports about {len(found.categories)} categories; {_privacy(found)}.",
        sections=(*([_seeded()] if found.seeded else []), *sections),
    )


def _ends(estimate: Found) -> tuple[str, str]:
    """Headings of an interval's ends."""
    return f"{100 * estimate.level:.4g} % low", f"{100 * estimate.level:.4g} % high"


def _privacy(estimate: Found) -> str:
    if estimate.claim is None:
        return "drawn from a seed: NOT private"
    known = "" if estimate.seeded is False else ", unless they were drawn from a seed (their files do not say)"
    return f"epsilon {above(estimate.claim.epsilon)} per report ({estimate.claim.basis}){known}"


def _seeded() -> Section:
    words = (
        "These reports were drawn from a seed, for tests. Whoever knows or guesses the seed reads the inputs off them: "
        "they are NOT private, and nothing is claimed about them.",
    )
    return Section(title="Not private", words=words)


def _estimates(estimate: mz.collect.Estimate, name: str) -> Section:
    bins = cast(mz.collect.Histogram, estimate.histogram)
    centres = tuple(float(left + right) / 2 for left, right in zip(bins.edges, bins.edges[1:], strict=False))
    figure = Figure(
        key="histogram",
        title=f"Shares of the inputs, with {estimate.level:.0%} intervals",
        x_label=f"{name} (data units)",
        y_label="share of the inputs",
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
        (what, number(value.value), number(value.low), number(value.high))
        for what, value in (
            ("mean (data units)", estimate.mean),
            ("variance (squared data units)", estimate.input_variance),
            ("standard error of the mean from the rows being a sample (data units)", estimate.sampling_error),
            ("standard error of the mean from privacy (data units)", estimate.privacy_error),
        )
    )
    private = (
        "" if estimate.seeded else " Everything here is computed from private reports and costs no further privacy."
    )
    words = (
        f"These numbers are about the inputs as clipped to the mechanism's range.{private}",
        "The intervals assume nothing about the shape of the inputs: where the table cannot tell two shapes apart, "
        "they are wide, and the point inside is only one shape among many.",
    )
    table = Table(headings=(f"{name}, clipped", "estimate", *_ends(estimate)), rows=rows)
    return Section(title="What was collected", words=words, figures=(figure,), table=table)


def _record(source: Path) -> Section | None:
    """What a row pays where the file reports several columns of it."""
    from mezzotint.collect import columns
    from mezzotint.collect import reports as descriptions

    with columns.open_columns(source) as reader:
        described = descriptions.read_description(reader.description, name=source.name)
    if len(described.tables) == 1:
        return None
    words = (
        f"Every row of this file reports {len(described.tables)} columns, and pays for all of them together: "
        f"{report_claim(described.tables)}.",
    )
    return Section(title="What a record pays", words=words)


def _clipped(source: Path, column: str | None) -> Section:
    counts = _raw_counts(source, column)
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


def _raw_counts(source: Path, column: str | None) -> dict[str, int] | None:
    """Clipped and missing inputs as recorded, added over the parts of a folder; None where any part has none."""
    parts = sorted(source.rglob("*.parquet")) if source.is_dir() else [source] if source.suffix == ".parquet" else []
    found = [_recorded(part, column) for part in parts]
    whole = [one for one in found if one is not None]
    if not whole or len(whole) < len(found):
        return None
    return {name: sum(one[name] for one in whole) for name in _COUNTED}


def _recorded(part: Path, column: str | None) -> dict[str, int] | None:
    import pyarrow.parquet as parquet

    text = (parquet.read_metadata(part).metadata or {}).get(COUNTS_KEY)
    if text is None:
        return None
    try:
        counts = {name: json.loads(text)[name] for name in _COUNTED}
        # Of several columns, clipped inputs are told per column.
        counts |= {
            name: value[(column or "").removesuffix("_code")]
            for name, value in counts.items()
            if isinstance(value, dict)
        }
        return {name: operator.index(value) for name, value in counts.items()}
    except (ValueError, TypeError, KeyError):
        raise FileFormatError(f"{part.name}: its recorded counts are damaged; privatize again") from None
