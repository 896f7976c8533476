"""The page of collected reports: estimates, clipped inputs, and the mechanism that made them."""

from __future__ import annotations

import json
import operator
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias, cast

import mezzotint as mz
from mezzotint.core.errors import FileFormatError
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import above, below, number, percent
from mezzotint.privacy.accounting import report_claim
from mezzotint.report.contents import Curve, Figure, Page, Section, Table
from mezzotint.report.mechanism_pages import mechanism_page

BINS = 10

Found: TypeAlias = "mz.collect.Estimate | mz.collect.Frequencies"

_COUNTED = ("below", "above", "missing", "rows")


def reports_page(source: Path, *, column: str | None = None, confidence: float = 0.95) -> Page:
    """The report of a reports file: its estimates first, then the mechanism that made it.

    Arguments:
        source: a reports file (.parquet, .csv, .csv.gz) that carries its mechanism, a folder of them, or counts that
            `mezzotint estimate --save-counts` wrote (.json).
        column: the field of codes, where the file has several.
        confidence: of each interval.
    Returns: the page, for `html_page` or `write_png`.
    Raises:
        ParameterError, FileFormatError: as `collect.read_counts`.
    Example:
        >>> from pathlib import Path
        >>> mechanism = mz.families.randomized_response(lower=20, upper=700, epsilon=1.0)
        >>> with mz.datasets.flights() as path:
        ...     written = mz.collect.privatize(
        ...         path, "r.parquet", column="air_time", mechanism=mechanism, missing="drop"
        ...     )
        >>> len(mz.report.reports_page(Path("r.parquet")).sections) > 2
        True
    """
    saved = source.suffix == ".json"
    counts = (
        mz.collect.load_counts(source) if saved else mz.collect.read_counts(source, column=column)
    )
    # Counts do not say which column they are about.
    name = "" if saved else (column or next(iter(_tables(source)))).removesuffix("_code")
    title = f"Reports of {name} in {source.name}" if name else f"Reports in {source.name}"
    if counts.mechanism.categories is not None:
        shares = cast(
            mz.collect.Frequencies,
            mz.collect.estimate(counts, confidence=confidence, allow_seeded=True),
        )
        return _categories_page(title, name or "category", shares)
    estimate = cast(
        mz.collect.Estimate,
        mz.collect.estimate(counts, confidence=confidence, histogram=BINS, allow_seeded=True),
    )
    mean = estimate.mean
    summary = (
        f"{estimate.n:,} reports; mean of the clipped inputs {number(mean.value)}, "
        f"{confidence:.0%} interval {number(mean.low)} to {number(mean.high)}; {_privacy(estimate)}."
    )
    sections = [
        _estimates(estimate, name or "input"),
        *([] if saved else [_clipped(source, column)]),
    ]
    if (
        counts.seeded
    ):  # a page about the mechanism would state claims that do not hold for these reports
        return Page(title=title, summary=summary, sections=(_SEEDED, *sections))
    about = mechanism_page(counts.mechanism, file="mechanism.json")
    sections += about.sections
    record = None if saved or source.is_dir() else _record(source)
    if record is not None:
        sections.insert(1, record)
    return Page(title=title, summary=summary, sections=tuple(sections), attachment=about.attachment)


def _tables(source: Path) -> Mapping[str, Mechanism]:
    """Column of codes -> its mechanism, as the first file of a source says."""
    from mezzotint.collect import listing, reports
    from mezzotint.collect.source import open_columns

    with open_columns(Path(listing.find_files(source)[0].path)) as reader:
        return reports.read_description(reader.description, name=source.name).tables


def _categories_page(title: str, name: str, found: mz.collect.Frequencies) -> Page:
    rows = tuple(
        (name, percent(share.value), f"{below(100 * share.low, 3)} %", percent(share.high))
        for name, share in zip(found.categories, found.shares, strict=True)
    )
    table = Table(headings=(name, "share", *_ends(found)), rows=rows)
    private = "" if found.seeded else " Computed from private reports alone."
    words = (f"Unbiased shares of the categories, each with its interval.{private}",)
    collected = Section(title="What was collected", words=words, table=table)
    return Page(
        title=title,
        summary=f"{found.n:,} reports about {len(found.categories)} categories; {_privacy(found)}.",
        sections=(_SEEDED, collected) if found.seeded else (collected,),
    )


def _ends(estimate: Found) -> tuple[str, str]:
    """Headings of an interval's ends."""
    return f"{100 * estimate.confidence:.4g} % low", f"{100 * estimate.confidence:.4g} % high"


def _privacy(estimate: Found) -> str:
    if estimate.claim is None:
        return "drawn from a seed: NOT private"
    known = (
        ""
        if estimate.seeded is False
        else ", unless they were drawn from a seed (their files do not say)"
    )
    return f"epsilon {above(estimate.claim.epsilon)} per report ({estimate.claim.basis}){known}"


_SEEDED = Section(
    title="Not private",
    words=(
        "These reports were drawn from a seed, for tests. Whoever knows or guesses the seed reads the inputs off them: "
        "they are NOT private, and nothing is claimed about them.",
    ),
)


def _estimates(estimate: mz.collect.Estimate, name: str) -> Section:
    bins = cast(mz.collect.Histogram, estimate.histogram)
    centres = [
        float(left + right) / 2 for left, right in zip(bins.edges, bins.edges[1:], strict=False)
    ]
    heights, low, high = (tuple(part.tolist()) for part in (bins.share, bins.low, bins.high))
    shares = Curve(name="share", x=tuple(centres), y=heights, low=low, high=high, style="bars")
    title = f"Shares of the inputs, with {estimate.confidence:.0%} intervals"
    figure = Figure.of("histogram", title, (f"{name} (data units)", "share of the inputs"), shares)
    rows = tuple(
        (what, number(value.value), number(value.low), number(value.high))
        for what, value in (
            ("mean (data units)", estimate.mean),
            ("variance (squared data units)", estimate.input_variance),
            (
                "standard error of the mean from the rows being a sample (data units)",
                estimate.sampling_error,
            ),
            ("standard error of the mean from privacy (data units)", estimate.privacy_error),
        )
    )
    private = " Everything here is computed from private reports and costs no further privacy."
    words = (
        f"These numbers are about the inputs as clipped to the mechanism's range.{'' if estimate.seeded else private}",
        "The intervals assume nothing about the shape of the inputs: where the table cannot tell two shapes apart, "
        "they are wide, and the point inside is only one shape among many.",
    )
    table = Table(headings=(f"{name}, clipped", "estimate", *_ends(estimate)), rows=rows)
    return Section(title="What was collected", words=words, figures=(figure,), table=table)


def _record(source: Path) -> Section | None:
    """The cost of a row where the file reports several columns of it."""
    tables = _tables(source)
    if len(tables) == 1:
        return None
    words = (
        f"Every row of this file reports {len(tables)} columns, and pays for all of them together: "
    )
    return Section(title="What a record pays", words=(f"{words}{report_claim(tables)}.",))


def _clipped(source: Path, column: str | None) -> Section:
    counts = _raw_counts(source, column)
    title = "What was clipped"
    if counts is None:
        words = (
            "The file does not say how many inputs were clipped or missing: such counts are about raw data and are "
            "not private, so they are kept only when asked for (mezzotint privatize --record-counts).",
        )
        return Section(title=title, words=words)
    rows = tuple(
        (name, f"{counts[name]:,}", percent(counts[name] / max(1, counts["rows"])))
        for name in counts
    )
    words = ("Counts over the raw data, recorded on request. They are not private.",)
    return Section(
        title=title, words=words, table=Table(headings=("inputs", "count", "share"), rows=rows)
    )


def _raw_counts(source: Path, column: str | None) -> dict[str, int] | None:
    """Clipped and missing inputs as recorded, added over the parts of a folder; None where any part has none."""
    import pyarrow.parquet as parquet

    from mezzotint.collect.reports import COUNTS_KEY

    own = (column or "").removesuffix(
        "_code"
    )  # of several columns, each has its own counts of clipped inputs
    parts = (
        sorted(source.rglob("*.parquet"))
        if source.is_dir()
        else [source]
        if source.suffix == ".parquet"
        else []
    )
    texts = {part: (parquet.read_metadata(part).metadata or {}).get(COUNTS_KEY) for part in parts}
    total: Counter[str] = Counter(dict.fromkeys(_COUNTED, 0))
    for part, text in texts.items():
        if text is None:
            continue
        try:
            counts = {name: json.loads(text)[name] for name in _COUNTED}
            total.update(
                {
                    name: operator.index(n[own] if isinstance(n, dict) else n)
                    for name, n in counts.items()
                }
            )
        except (ValueError, TypeError, KeyError):
            raise FileFormatError(
                f"{part.name}: its recorded counts are damaged; privatize again"
            ) from None
    return dict(total) if parts and None not in texts.values() else None
