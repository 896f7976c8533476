"""The page of collected reports: estimates, and the mechanism that made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias, cast

import mezzotint as mz
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import above, below, confidence_percent, number, percent
from mezzotint.core.types import AnyPath
from mezzotint.report.contents import (
    Curve,
    Figure,
    Page,
    Section,
    Table,
    interval_headings,
    nearest_percent,
)
from mezzotint.report.mechanism_pages import mechanism_page

BINS = 10
"""Of the histogram."""

Answer: TypeAlias = "mz.collect.Estimate | mz.collect.Frequencies"

SAMPLING_ERROR = "standard error of the mean from the rows being a sample (data units)"


def reports_page(source: AnyPath, *, column: str | None = None, confidence: float = 0.95) -> Page:
    """The report of a reports file: its estimates first, then the mechanism that made it.

    Arguments:
        source: a reports file (.parquet, .csv, .csv.gz) that carries its mechanism, a folder of
            them, or counts that `mezzotint estimate --save-counts` wrote (.json).
        column: the field of codes, where the file has several.
        confidence: of each interval.
    Returns: the page, for `html_page` or `write_png`.
    Raises:
        ParameterError, FileFormatError: as `collect.read_counts`.
    Example:
        >>> mechanism = mz.families.randomized_response(lower=20, upper=700, epsilon=1.0)
        >>> with mz.datasets.flights() as path:
        ...     written = mz.collect.privatize(
        ...         path, "r.parquet", column="air_time", mechanism=mechanism, missing="drop"
        ...     )
        >>> len(mz.report.reports_page("r.parquet").sections) > 2
        True
    """
    source = Path(source)
    code_counts, column_name = _counts_of(source, column)
    page_title = f"Reports in {source.name}"
    if column_name:
        page_title = f"Reports of {column_name} in {source.name}"
    if code_counts.mechanism.categories is not None:
        frequencies = cast(
            mz.collect.Frequencies,
            mz.collect.estimate(code_counts, confidence=confidence, allow_seeded=True),
        )
        about = _about_rows(source, seeded=code_counts.seeded)
        return _categories_page(page_title, column_name or "category", frequencies, about)
    estimate = cast(
        mz.collect.Estimate,
        mz.collect.estimate(code_counts, confidence=confidence, histogram=BINS, allow_seeded=True),
    )
    mean_interval = estimate.mean
    summary = (
        f"{estimate.n:,} reports; mean of the clipped inputs {number(mean_interval.value)}, "
        f"{confidence_percent(confidence)} interval "
        f"{number(mean_interval.low)} to {number(mean_interval.high)}; "
        f"{_privacy(estimate)}."
    )
    sections = [_estimates(estimate, column_name or "input")]
    # A page about the mechanism would state claims that do not hold for seeded reports.
    if code_counts.seeded:
        return Page(title=page_title, summary=summary, sections=(SEEDED, *sections))
    sections += _about_rows(source, seeded=code_counts.seeded)
    mechanism_part = mechanism_page(code_counts.mechanism, file="mechanism.json")
    sections += mechanism_part.sections
    return Page(
        title=page_title,
        summary=summary,
        sections=tuple(sections),
        attachment=mechanism_part.attachment,
    )


def _counts_of(source: Path, column: str | None) -> tuple[mz.collect.CodeCounts, str]:
    """The counts of a source, and the column that they are about; saved ones do not say: ""."""
    if source.suffix == ".json":
        return mz.collect.load_counts(source), ""
    code_counts = mz.collect.read_counts(source, column=column)
    codes_column = column or next(iter(_tables(source)))
    return code_counts, codes_column.removesuffix("_code")


def _tables(source: Path) -> Mapping[str, Mechanism]:
    """Column of codes -> its mechanism, as the first file of a source says."""
    from mezzotint.collect import listing, reports
    from mezzotint.collect.source import open_columns

    with open_columns(Path(listing.find_files(source)[0].path)) as column_reader:
        return reports.read_description(column_reader.description, name=source.name).tables


def _categories_page(
    title: str, name: str, frequencies: mz.collect.Frequencies, about: Sequence[Section]
) -> Page:
    table_rows = []
    for category, category_share in zip(frequencies.categories, frequencies.shares, strict=True):
        low_cell = f"{below(100 * category_share.low, 3)} %"
        table_rows.append(
            (
                category,
                nearest_percent(category_share.value),
                low_cell,
                percent(category_share.high),
            )
        )
    shares_table = Table(
        headings=(name, "share", *interval_headings(frequencies.confidence)), rows=tuple(table_rows)
    )
    paragraph = "Unbiased shares of the categories, each with its interval."
    if not frequencies.seeded:
        paragraph += " Computed from private reports alone."
    paragraphs = (paragraph, *_reliance(frequencies.notes))
    collected = Section(title="What was collected", words=paragraphs, table=shares_table)
    sections = (collected, *about)
    if frequencies.seeded:
        sections = (SEEDED, *sections)
    return Page(
        title=title,
        summary=f"{frequencies.n:,} reports about {len(frequencies.categories)} categories; "
        f"{_privacy(frequencies)}.",
        sections=sections,
    )


def _reliance(notes: Sequence[str]) -> list[str]:
    """What the intervals rely on, as sentences."""
    return [f"{note[0].upper()}{note[1:]}." for note in notes]


def _privacy(answer: Answer) -> str:
    if answer.claim is None:
        return "drawn from a seed: NOT private"
    privacy_text = f"epsilon {above(answer.claim.epsilon)} per report ({answer.claim.basis})"
    if answer.seeded is False:
        return privacy_text
    return f"{privacy_text}, unless they were drawn from a seed (their files do not say)"


SEEDED = Section(
    title="Not private",
    words=(
        "These reports were drawn from a seed, for tests. Whoever knows or guesses the seed reads "
        "the inputs off them: they are NOT private, and nothing is claimed about them.",
    ),
)


def _estimates(estimate: mz.collect.Estimate, name: str) -> Section:
    histogram = cast(mz.collect.Histogram, estimate.histogram)
    centres = (histogram.edges[:-1] + histogram.edges[1:]) / 2
    share_bars = Curve(
        name="share",
        x=tuple(centres.tolist()),
        y=tuple(histogram.share.tolist()),
        low=tuple(histogram.low.tolist()),
        high=tuple(histogram.high.tolist()),
        style="bars",
    )
    figure_title = f"Shares of the inputs, with {confidence_percent(estimate.confidence)} intervals"
    share_figure = Figure.of(
        "histogram", figure_title, (f"{name} (data units)", "share of the inputs"), share_bars
    )
    intervals = {
        "mean (data units)": estimate.mean,
        "variance (squared data units)": estimate.input_variance,
        SAMPLING_ERROR: estimate.sampling_error,
        "standard error of the mean from privacy (data units)": estimate.privacy_error,
    }
    table_rows = []
    for quantity, interval in intervals.items():
        interval_cells = (number(interval.value), number(interval.low), number(interval.high))
        table_rows.append((quantity, *interval_cells))
    clipped = "These numbers are about the inputs as clipped to the mechanism's range."
    if not estimate.seeded:
        clipped += " Everything here is computed from private reports and costs no further privacy."
    shape_sentence = (
        "The intervals assume nothing about the shape of the inputs: where the table cannot tell "
        "two shapes apart, they are wide, and the point inside is only one shape among many."
    )
    headings = (f"{name}, clipped", "estimate", *interval_headings(estimate.confidence))
    return Section(
        title="What was collected",
        words=(clipped, shape_sentence, *_reliance(estimate.notes)),
        figures=(share_figure,),
        table=Table(headings=headings, rows=tuple(table_rows)),
    )


def _about_rows(source: Path, *, seeded: bool | None) -> tuple[Section, ...]:
    """What estimates of rows are about, where people were charged for theirs, and what a complete
    row pays, where it has reports of several columns.
    """
    from mezzotint.collect.counts import COUNTS_REMARK
    from mezzotint.collect.reports import limits_of, row_claim

    if source.suffix == ".json":
        return (Section(title="Rows and people", words=tuple(_reliance([COUNTS_REMARK]))),)
    sections: list[Section] = []
    limits = _reliance(sorted(limit.note for limit in limits_of(source)))
    if limits:
        sections.append(Section(title="Rows and people", words=tuple(limits)))
    claim = None
    if not seeded:
        claim = row_claim(source)
    if claim is not None:
        paragraph = f"A complete row of these reports, all columns together, pays: {claim}"
        sections.append(Section(title="What a record pays", words=(paragraph,)))
    return tuple(sections)
