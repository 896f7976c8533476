"""Any file that mezzotint writes, as a page: what is in it decides, not its name.

Reports of columns, what `mezzotint smoothed ... --json` printed, claims and ranked codebooks have their pages here;
mechanisms and runs have files of their own.
"""

from __future__ import annotations

import json
import math
import operator
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias, TypeVar, cast

import numpy as np

import mezzotint as mz
from mezzotint.core.document import FORMAT
from mezzotint.core.errors import FileFormatError, MezzotintError, ParameterError
from mezzotint.core.files import read_object, read_text
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import Json, JsonObject, above, below, number, percent
from mezzotint.kernel.claim import FORMAT as CLAIM
from mezzotint.privacy.accounting import report_claim
from mezzotint.privacy.claim import basis
from mezzotint.report.mechanism_pages import mechanism_page
from mezzotint.report.page import Curve, Figure, Page, Section, Table
from mezzotint.report.run_pages import LEDGER, REPORT, SETTINGS, federated_page, training_page

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


SECONDS = 20.0
"""Points of a curve that is not free are computed for about so long."""

LEAST = -400.0
"""Bars of smaller powers of ten are cut: some deltas are exactly 0."""

_DELTA = "log10 of delta"

_SAMPLING = ("loss_rate", "sampled", "replacement", "poisson", "noise_ratio")


def smoothed_page(source: Path) -> Page:
    """The report of the JSON object that a verb of `mezzotint smoothed` printed: curves anew, all upper bounds."""
    try:
        facts = read_object(source)
        make = PAGES[facts["verb"]]
    except (ValueError, KeyError, TypeError):
        remedy = "make one with: mezzotint smoothed profile ... --json > profile.json"
        raise FileFormatError(
            f"{source.name}: not a result of mezzotint smoothed; {remedy}"
        ) from None
    try:
        return make(facts)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, MezzotintError):
            raise
        raise FileFormatError(f"{source.name}: lacks or garbles {error}; it was edited") from None


def _number(value: float | str | None) -> float:
    """JSON lacks infinities: they are written as words."""
    return -math.inf if value is None else float(value)


def power(log10: float | str | None) -> str:
    """10 to a power that may be far below the smallest float, the exponent rounded up."""
    exponent = _number(log10)
    if exponent == -math.inf:
        return "0"
    shown = math.ceil(exponent * 100) / 100
    return "1" if shown >= 0 else f"10^{shown:g}"


def _rate(asked: JsonObject) -> str:
    how = "drawn with replacement" if asked.get("replacement") else "drawn without replacement"
    if "loss_rate" not in asked:
        return f"{asked['sampled']:,} of them {how}"
    how = "each lost or kept independently" if asked.get("poisson") else how
    return f"a share of {asked['loss_rate']} of them lost, the rest {how}"


T = TypeVar("T")


def _curves(values: Mapping[float, object], records: int, **fields: str) -> list[Curve]:
    """Of each field of the results over their positions, by its name on the page; and the level 1/n."""
    found = [
        Curve.of(label, values, [getattr(one, field) for one in values.values()])
        for field, label in fields.items()
    ]
    return [*found, Curve.of("1/n", values, [-math.log10(records)] * len(values), "dashed")]


def _evaluated(xs: list[float], compute: Callable[[float], T]) -> dict[float, T]:
    """Results at as many of the positions as fit into the time, spread over all of them; the first always."""
    begin, found = time.perf_counter(), {xs[0]: compute(xs[0])}
    each = max(time.perf_counter() - begin, 1e-6)
    affordable = int(np.clip(SECONDS / each, 1, len(xs) - 1))
    for place in np.unique(np.linspace(1, len(xs) - 1, affordable).round().astype(int)):
        found[xs[place]] = compute(xs[place])
    return dict(sorted(found.items()))


def _facts_table(facts: JsonObject) -> Table:
    left_out = ("asked", "verb", "reason")
    shown = {
        name: value
        for name, value in facts.items()
        if name not in left_out and value not in (None, [])
    }
    return Table.of(
        shown, show=lambda value: number(value) if isinstance(value, float) else str(value)
    )


# One database ------------------------------------------------------------------------------------------------


def _asked(facts: JsonObject) -> tuple[JsonObject, JsonObject]:
    """The options that were given, and those of them that say how records are sampled."""
    asked = {name: value for name, value in facts["asked"].items() if value is not None}
    return asked, {name: asked[name] for name in _SAMPLING if name in asked}


def _profile_page(facts: JsonObject) -> Page:
    asked, fixed = _asked(facts)
    epsilon, records = float(facts["epsilon"]), int(facts["records"])
    grid = [epsilon * k / 10 for k in range(1, 26)]
    values = _evaluated(
        sorted({*grid, epsilon}),
        lambda at: mz.smoothed.profile(asked["counts"], epsilon=at, **fixed),
    )
    names = {"log10_upper": "this database, upper bound", "log10_worst_case": "worst database"}
    curves = _curves(values, records, **names)
    figure = Figure.of("profile", "Privacy profile of this database", ("epsilon", _DELTA), *curves)
    summary = (
        f"{records:,} records, {_rate(asked)}: delta at most {power(facts['log10_upper'])} at epsilon "
        f"{above(epsilon)} ({basis('model')}), where the worst database has {power(facts['log10_worst_case'])}."
    )
    words = (str(facts["reason"]), _MEANING)
    about = Section(
        title="What publishing reveals", words=words, figures=(figure,), table=_facts_table(facts)
    )
    return Page(
        title="Smoothed privacy of one database",
        summary=summary,
        sections=(about, _verify("profile", asked)),
    )


_MEANING = (
    "delta is the share of outcomes, weighted by chance, in which the published counts would say more about one record "
    "than epsilon allows. It is of this database: the worst database, which ordinary differential privacy is about, "
    "is far more revealing. A delta well below 1/n is taken for private; nothing here protects a database that "
    "happens to be unusual."
)


def _utility_page(facts: JsonObject) -> Page:
    asked, fixed = _asked(facts)
    chosen = float(mz.smoothed.read_rational("threshold", asked["threshold"]))
    top = min(0.99, 0.5 + 3 * max(chosen - 0.5, 0.01))
    grid = sorted({chosen, *np.linspace(0.5, top, 16).round(6).tolist()})
    values = _evaluated(
        grid, lambda at: mz.smoothed.utility(asked["counts"], threshold=at, **fixed)
    )
    curves = _curves(values, int(facts["records"]), log10_upper="this database, upper bound")
    axes = ("accuracy that a guess must exceed", "log10 of the utility")
    figure = Figure.of(
        "utility", "What an adversary gains who knows all other records", axes, *curves
    )
    summary = (
        f"{int(facts['records']):,} records, {_rate(asked)}: utility at most {power(facts['log10_upper'])} "
        f"beyond an accuracy of {chosen:g}."
    )
    words = (
        str(facts["reason"]),
        "Utility 1 would be certainty about one record in every outcome; 0, no gain at all.",
    )
    about = Section(
        title="What an adversary gains", words=words, figures=(figure,), table=_facts_table(facts)
    )
    return Page(
        title="The adversary's utility",
        summary=summary,
        sections=(about, _verify("utility", asked)),
    )


# A model of databases ----------------------------------------------------------------------------------------


def _expected_page(facts: JsonObject) -> Page:
    asked = {name: value for name, value in _asked(facts)[0].items() if name != "ratio"}
    epsilon, records = float(facts["epsilon"]), int(facts["records"])
    figures: tuple[Figure, ...] = ()
    if facts["verb"] == "expected" and float(facts["seconds"]) < SECONDS / 4:
        grid = sorted({epsilon, *(epsilon * k / 4 for k in range(1, 9))})
        values = _evaluated(grid, lambda at: mz.smoothed.expected(**{**asked, "epsilon": at}))
        names = {"log10_upper": "smoothed, upper bound", "log10_worst_case": "worst database"}
        curves = _curves(values, records, **names)
        figures = (Figure.of("profile", "Smoothed privacy profile", ("epsilon", _DELTA), *curves),)
    bound = f"at most {power(facts['log10_upper'])}"
    if facts["confidence"] is not None:
        level, low, high = (float(value) for value in facts["confidence"])
        bound = f"{power(facts['log10_delta'])} ({level:.0%} interval {power(low)} to {power(high)}; no guarantee)"
    summary = (
        f"{records:,} records that follow the model, {facts['sampled']:,} of them published: expected delta {bound} at "
        f"epsilon {above(epsilon)} ({basis('model')}); the worst database has {power(facts['log10_worst_case'])}."
    )
    words = (
        str(facts["reason"]),
        "The guarantee is an average over databases that the model draws. It holds as far as the model does.",
    )
    about = Section(
        title="What the model implies", words=words, figures=figures, table=_facts_table(facts)
    )
    sections = (about, _verify(facts["verb"], asked | {"epsilon": epsilon}))
    return Page(title="Smoothed differential privacy", summary=summary, sections=sections)


# Elections ---------------------------------------------------------------------------------------------------


def _elections_page(facts: JsonObject) -> Page:
    rows = facts["elections"]
    heights = [max(_number(row["log10_upper"]), LEAST) for row in rows]
    bars = Curve.of("delta", [str(row["election"]) for row in rows], heights, "bars")
    axes = ("", f"log10 of delta (cut at {LEAST:g})")
    figure = Figure.of("elections", "delta of every election, upper bounds", axes, bars)
    heads = ("election", "records", "log10_upper", "log10_utility", "log10_worst_case")
    shown = tuple(name for name in heads if name in rows[0])
    cells = tuple(tuple(_cell(name, row[name]) for name in shown) for row in rows)
    worst = max(rows, key=lambda row: _number(row["log10_upper"]))
    share = facts["loss_rate"]
    at = f"e^epsilon = {facts['ratio']}" if facts.get("ratio") else f"epsilon {facts['epsilon']}"
    summary = (
        f"{len(rows)} elections, a share of {share} of the votes lost at random: delta at most "
        f"{power(worst['log10_upper'])} at {at} ({worst['election']}; {basis('model')})."
    )
    about = Section(
        title="What the published counts reveal",
        words=(_MEANING,),
        figures=(figure,),
        table=Table(headings=tuple(name.replace("_", " ") for name in shown), rows=cells),
    )
    return Page(title="Smoothed privacy of elections", summary=summary, sections=(about,))


def _cell(name: str, value: float | str | None) -> str:
    if name == "records":
        return f"{value:,}"
    return str(value) if name == "election" else number(_number(value), 8)


# How to verify -----------------------------------------------------------------------------------------------


def _verify(verb: str, asked: JsonObject) -> Section:
    words = ("The values are exact sums of rationals, or bounds of them. This gives them again:",)
    given = {name: repr(value) for name, value in asked.items() if value is not False}
    given |= {"distributions": "[...]"} if "distributions" in asked else {}
    call = ", ".join(f"{name}={value}" for name, value in given.items())
    name = {"gradients": "expected_gradients"}.get(verb, verb)
    code = f">>> import mezzotint as mz\n>>> mz.smoothed.{name}({call})"
    return Section(title="How to verify it", words=words, code=code)


PAGES: dict[str, Callable[[JsonObject], Page]] = {
    "profile": _profile_page,
    "utility": _utility_page,
    "expected": _expected_page,
    "gradients": _expected_page,
    "elections": _elections_page,
}


def claim_page(source: Path) -> Page:
    """The report of a claim file: whether its proof holds, and what it says."""
    from mezzotint.kernel.checker import verdict_on

    text = read_text(source)
    status, verdict, claim = verdict_on(text)
    if status == 2 or claim is None:
        raise FileFormatError(f"{source.name}: {verdict}")
    proof = mz.kernel.read_claim(text)[1]
    release = cast(JsonObject, claim.document()["release"] or {})
    rows = {
        **claim.statement,
        **{name: value for name, value in release.items() if name != "lattice"},
    }
    words = (
        "The numbers stand as they are in the file. The assumptions are what the proof does not show.",
    )
    return Page(
        title=f"Claim in {source.name}",
        summary=f"{verdict}.",
        sections=(
            _facts("What is claimed", _in_words(rows), words),
            _check(source, f"proof: {proof.get('kind')}"),
        ),
        attachment=(source.name, text),
    )


CLAIM_WORDS = {
    "kind": "kind of statement",
    "neighboring": "neighbouring relation",
    "observer": "to an observer of",
    "trust": "trusted",
    "unit": "about",
    "assumptions": "relies on",
    "dp": "differential privacy",
    "replace_one": "replacing all data of one unit",
    "add_or_remove_one": "adding or removing all data of one unit",
    "reports": "every single report",
    "secure_sum": "secure sums alone",
    "local": "only the device that draws a report",
}
"""Names and values of a claim file -> how its page says them."""


def _in_words(rows: JsonObject) -> dict[str, str]:
    """A claim's fields as words; what has none stands as the file spells it, without underscores."""
    return {
        CLAIM_WORDS.get(name, name.replace("_", " ")): _phrase(value)
        for name, value in rows.items()
    }


def _phrase(value: Json) -> str:
    if isinstance(value, Mapping):
        if "sha256" in value and "coordinates" in value:
            count = value["coordinates"]
            return f"{count} coordinate{'s' * (count != 1)} from table {str(value['sha256'])[:12]}"
        return ", ".join(
            f"{name.replace('_', ' ')} {_phrase(inner)}" for name, inner in value.items()
        )
    if isinstance(value, (list, tuple)):
        return "; ".join(_phrase(inner) for inner in value)
    if isinstance(value, str):
        return CLAIM_WORDS.get(value, value.replace("_", " "))
    return str(value)


def ranked_page(source: Path) -> Page:
    """The report of a ranked codebook."""
    scheme = mz.vectors.RankedCodebook.load(source)
    rows = {
        "vectors": f"{scheme.dimension} coordinates, L2 norm at most {scheme.clip_norm:g}",
        "bits per vector": scheme.bits,
        "codewords": scheme.table.codewords,
        "mean squared error of a report (squared units of the vectors)": number(scheme.mse),
        "times the error of PrivUnitG": number(scheme.mse / scheme.optimum, 4),
    }
    return Page(
        title=scheme.name,
        summary=f"{scheme}.",
        sections=(_facts("What it does", rows), _check(source, f"claim: {scheme.claim()}")),
        attachment=(source.name, source.read_text(encoding="utf-8")),
    )


def _facts(title: str, rows: JsonObject, words: tuple[str, ...] = ()) -> Section:
    return Section(title=title, words=words, table=Table.of(rows))


def _check(source: Path, words: str) -> Section:
    return Section(title="How to verify it", words=(words,), code=f"mezzotint verify {source.name}")


REPORTS = (".parquet", ".csv", ".gz")
LOGS = (".jsonl", ".log")
RUN = (LEDGER, REPORT, SETTINGS)
"""What tells the folder of a federated run from a folder of reports."""


def page_of(source: Path, *, column: str | None = None, confidence: float = 0.95) -> Page:
    """The report of a file or folder.

    Arguments:
        source: a mechanism, ranked codebook or claim file (.json); reports (.parquet, .csv, .csv.gz), a folder of them
            or their saved counts (.json); a training log (.jsonl); the folder of a federated run, or its report.json;
            what a verb of `mezzotint smoothed` printed with --json (.json).
        column: the field of codes, where reports have several.
        confidence: of each interval, for reports.
    Returns: the page, for `html_page` or `write_png`.
    Raises:
        ParameterError: a column of a file without columns. FileFormatError: an unknown kind of file, or a damaged one.
    Example:
        >>> from pathlib import Path
        >>> mz.families.randomized_response(epsilon=1.0).save("m.json")
        >>> len(mz.report.page_of(Path("m.json")).sections) > 2
        True
    """
    if source.is_dir() and not any((source / name).exists() for name in RUN):
        return reports_page(source, column=column, confidence=confidence)
    if source.is_file() and source.suffix in REPORTS:
        return reports_page(source, column=column, confidence=confidence)
    if column is not None:
        raise ParameterError("column", column, "only reports have columns; leave it out")
    if source.is_dir() or source.name == LEDGER:
        return federated_page(source if source.is_dir() else source.parent)
    if source.suffix in LOGS:
        return training_page(source)
    try:
        document = read_object(source)
    except FileFormatError:
        if source.suffix == ".json":
            raise
        document = {}
    if document.get("format") == CLAIM:
        return claim_page(source)
    if document.get("kind") == "ranks":
        return ranked_page(source)
    keys = set(document)
    if {"ledger", "accuracy"} <= keys:
        return federated_page(source)
    if "counts" in keys:
        return reports_page(source, confidence=confidence)
    if "verb" in keys:
        return smoothed_page(source)
    if document.get("format") != FORMAT:
        raise FileFormatError(
            f"{source.name}: not a file that mezzotint writes; see mezzotint report --help"
        )
    return mechanism_page(Mechanism.load(source), file=source.name)
