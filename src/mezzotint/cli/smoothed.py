"""`mezzotint smoothed ...`: how much a published count or average of a random sample reveals."""

from __future__ import annotations

import dataclasses
import runpy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast, final

import typer

import mezzotint as mz
from mezzotint.cli import common, console, progress, tables
from mezzotint.cli.options import AsJson, argument, family, option, verb
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import parse_json, read_text
from mezzotint.core.records import JsonObject, confidence_percent
from mezzotint.datasets import Election
from mezzotint.privacy import claim
from mezzotint.report.smoothed_pages import election_cell, shown

CHECK_FAILED = 1

DEFAULT_RATIO = "51/49"
"""e^epsilon of the elections, where nothing else is asked for."""

_STANDING = {"observer": "model", "trust": "central", "certified": False}
_BASIS = f"Epsilon and delta: {claim.basis('model')}."

AtMost = Annotated[
    float | None, option("Exit with status 1 if the upper bound of log10 delta exceeds this.")
]

app = family()


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every verb takes. Options are what the library is asked, but for `UNASKED`."""

    as_json: AsJson = False

    @property
    def asked(self) -> JsonObject:
        """What the library is asked, by its own names."""
        options = dataclasses.asdict(self)
        return {name: value for name, value in options.items() if name not in UNASKED}


UNASKED = ("as_json", "at_most", "election", "ballots")


@dataclass(frozen=True, kw_only=True)
class SampleOptions(Options):
    """How records are sampled."""

    loss_rate: Annotated[str | None, option("Share of records lost: 0.002 or 1/500.")] = None
    sampled: Annotated[int | None, option("Number of records sampled, instead of --loss-rate.")] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class LossOptions(Options):
    """The privacy loss."""

    epsilon: Annotated[float | None, option("Privacy loss (natural logarithm).")] = None
    ratio: Annotated[
        str | None, option("e^epsilon as an exact rational instead, such as 51/49.")
    ] = None


@dataclass(frozen=True, kw_only=True)
class DatabaseOptions(SampleOptions):
    """One database, and how its records are sampled."""

    counts: Annotated[
        str | None, option("Number of records of each type, separated by commas.")
    ] = None
    election: Annotated[
        str | None,
        option("A bundled election instead of --counts: a year, or a state for 2020."),
    ] = None
    replacement: Annotated[bool, option("Sample with replacement.", "--replacement")] = False
    poisson: Annotated[bool, option("Keep each record independently.", "--poisson")] = False

    @property
    def asked(self) -> JsonObject:
        """With the counts of the election that is named."""
        return {**super().asked, "counts": _counts(self.counts, self.election)}


@final
@dataclass(frozen=True, kw_only=True)
class ProfileOptions(LossOptions, DatabaseOptions):
    """Options of the verb."""

    noise_ratio: Annotated[
        str | None, option("Exponential-mechanism noise, with this factor per unit in (0, 1).")
    ] = None
    at_most: AtMost = None


@verb(app, "profile --election 2020 --loss-rate 0.002 --ratio 51/49")
def profile(options: ProfileOptions) -> None:
    """Compute delta of one database at one epsilon exactly, and the worst case over all
    databases.
    """
    question = options.asked
    _finish("profile", question, mz.smoothed.profile(**question), options)


@final
@dataclass(frozen=True, kw_only=True)
class UtilityOptions(DatabaseOptions):
    """Options of the verb."""

    threshold: Annotated[str, option("Accuracy that a guess must exceed, in [1/2, 1).")]
    at_most: Annotated[
        float | None, option("Exit with status 1 if the upper bound of log10 utility exceeds this.")
    ] = None


@verb(app, "utility --election 2020 --loss-rate 0.002 --threshold 0.51")
def utility(options: UtilityOptions) -> None:
    """Compute the adversary's utility: how well someone who knows all other records can guess one
    record.
    """
    question = options.asked
    _finish("utility", question, mz.smoothed.utility(**question), options)


@dataclass(frozen=True, kw_only=True)
class ModelOptions(LossOptions, SampleOptions):
    """Distributions of the records, and what is published of them."""

    n: Annotated[int, option("Number of records.")]
    vertices: Annotated[
        str,
        option(
            "Distributions: 0.0554,0.22863 (shares of the first of two types) or "
            "0.5,0.3,0.2;0.4,0.4,0.2"
        ),
    ]
    at_most: AtMost = None

    @property
    def asked(self) -> JsonObject:
        """With the distributions as lists."""
        return {**super().asked, "vertices": _vertices(self.vertices)}


@final
@dataclass(frozen=True, kw_only=True)
class ExpectedOptions(ModelOptions):
    """Options of the verb."""

    method: Annotated[
        Literal["auto", "certificate", "all_splits", "enumeration", "bracket", "monte_carlo"],
        option("The first three for two types, the last three for more:"),
    ] = "auto"
    draws: Annotated[int | None, option("Random histograms for monte_carlo; 1000 by default.")] = (
        None
    )
    seed: Annotated[int | None, option("Seed of these histograms; 0 by default.")] = None


@verb(app, "expected --n 1000000 --vertices 0.0554 --loss-rate 0.002 --epsilon 1")
def expected(options: ExpectedOptions) -> None:
    """Compute smoothed delta: the largest expected delta over compositions of the given
    distributions.
    """
    question = options.asked
    with progress.busy("smoothed delta"):
        result = mz.smoothed.expected(**question)
    _finish("expected", question, result, options)


@final
@dataclass(frozen=True, kw_only=True)
class OwnOptions(ModelOptions):
    """Options of the verb."""

    mechanism: Annotated[
        str,
        option(
            "FILE.py:NAME, a function histogram -> {output: chance}; FILE.json, a row of chances "
            "for each histogram; histogram, plurality, borda, stv, or threshold:COUNT."
        ),
    ]
    sampling: Annotated[
        Literal["without_replacement", "with_replacement", "poisson"] | None,
        option("How records are drawn for it; by default it sees all:"),
    ] = None
    ballots: Annotated[
        str | None, option("For borda and stv, a ranking for each type: abc,bca,cab.")
    ] = None


@verb(app, "own --mechanism rules.py:majority --n 12 --vertices 0.3,0.6 --sampled 9 --ratio 2")
def own(options: OwnOptions) -> None:
    """Compute smoothed delta of a mechanism of your own, of a voting rule's winner, or of a sampled
    histogram.
    """
    question = options.asked
    mechanism = _mechanism(options.mechanism, options.ballots)
    with progress.busy("smoothed delta"):
        result = mz.smoothed.expected(**{**question, "mechanism": mechanism})
    _finish("own", question | {"ballots": options.ballots}, result, options)


def _mechanism(text: str, ballots: str | None) -> Any:
    """A mechanism from the command line's words."""
    records = mz.smoothed.mechanisms
    if text == "histogram":
        return records.Histogram()
    if text in records.RULES:
        return records.Winner(rule=text, ballots=tuple((ballots or "").split(",")))
    if text.startswith("threshold:") and text.partition(":")[2].isdigit():
        return records.Threshold(least=int(text.partition(":")[2]))
    file, _, name = text.rpartition(":")
    if text.endswith(".json") and Path(text).is_file():
        table_rows = parse_json(read_text(text), name=Path(text).name)
        return records.Table(rows=cast(Any, table_rows))
    if not file.endswith(".py") or not Path(file).is_file():
        raise ParameterError(
            "mechanism", text, "give FILE.py:NAME, FILE.json, a rule, or threshold:COUNT"
        )
    function = runpy.run_path(file).get(name)
    if not callable(function):
        raise ParameterError("mechanism", text, f"{Path(file).name} has no function {name}")
    return function


@verb(app, "elections --loss-rate 0.002 --ratio 51/49 --json")
def elections(
    file: Annotated[
        str | None,
        argument("CSV file of counts, one election per row; - for standard input."),
    ] = None,
    which: Annotated[
        Literal["national", "states", "districts"],
        option("Elections of 1920 to 2024, or parts of 2020:", "--set"),
    ] = "national",
    columns: Annotated[
        str | None, option("Columns of counts, by commas, if more than two hold counts.")
    ] = None,
    top: Annotated[int, option("Number of leading candidates whose counts are published.")] = 2,
    loss_rate: Annotated[str | None, option("Share of votes lost: 0.002 or 1/500.")] = "0.002",
    epsilon: Annotated[float | None, option("Privacy loss (natural logarithm).")] = None,
    ratio: Annotated[str | None, option("e^epsilon as an exact rational instead.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compute delta and the adversary's utility for many elections, from the bundled data or a CSV
    file.
    """
    if epsilon is None and ratio is None:
        ratio = DEFAULT_RATIO
    if top < 2:
        raise ParameterError("top", top, "needs at least two candidates")
    read_elections = _elections(file, which, columns)
    table_rows = [_row(election.top(top), loss_rate, epsilon, ratio) for election in read_elections]
    json_fields: JsonObject = {
        "verb": "elections",
        "loss_rate": loss_rate,
        "epsilon": epsilon,
        "ratio": ratio,
    }
    remarks: list[str] = []
    if file is not None:
        candidates = list(read_elections[0].candidates)
        json_fields["columns"] = candidates
        remarks.append(f"Columns of counts: {', '.join(candidates)}")
    json_fields |= {**_STANDING, "elections": table_rows}
    threshold = f"e^epsilon = {ratio}"
    if ratio is None:
        threshold = f"epsilon {epsilon:g}"
    question = f"log10 at {threshold}, loss rate {loss_rate}; private if delta is well below 1/n."
    cells = [[election_cell(name, value) for name, value in row.items()] for row in table_rows]
    terminal_table = tables.TerminalTable(
        table_rows[0], cells, title=f"Values are {question} {_BASIS}"
    )
    console.show(json_fields, as_json, lambda: [*remarks, terminal_table])


@final
@dataclass(frozen=True, kw_only=True)
class GradientsOptions(LossOptions):
    """Options of the verb."""

    n: Annotated[int, option("Number of records.")]
    distributions: Annotated[
        list[str] | None,
        option("gaussian:MEAN:DEVIATION or laplace:...; may be repeated.", "--distribution"),
    ] = None
    sampled: Annotated[int | None, option("Batch size; the square root of n by default.")] = None
    draws: Annotated[int, option("Random databases per composition; an interval takes 30.")] = 30
    seed: Annotated[int, option("Seed of the random databases.")] = 0


@verb(app, "gradients --n 400 --epsilon 1 --draws 30 --json")
def gradients(options: GradientsOptions) -> None:
    """Estimate smoothed delta of one gradient step on 8-bit gradients: the average exact delta of
    random databases.
    """
    distributions = options.distributions or ["gaussian:0:0.12"]
    question = options.asked | {"distributions": distributions}
    chances = [_distribution(text) for text in distributions]
    with progress.busy("gradients"):
        result = mz.smoothed.expected_gradients(**{**question, "distributions": chances})
    _finish("gradients", question, dataclasses.replace(result, vertices=()), options)


def _counts(counts: str | None, election: str | None) -> list[int]:
    if (counts is None) == (election is None):
        raise ParameterError("counts", counts, "give exactly one of --counts and --election")
    if election is not None:
        bundled_elections = (
            *mz.datasets.national_elections(),
            *mz.datasets.state_elections(),
        )
        elections_by_name = {bundled.name: bundled for bundled in bundled_elections}
        if election not in elections_by_name:
            raise ParameterError(
                "election", election, "use a year such as 2020 (to 2024), or a state such as CA"
            )
        return list(elections_by_name[election].top(2).counts)
    try:
        return [int(count) for count in (counts or "").split(",")]
    except ValueError:
        raise ParameterError(
            "counts", str(counts), "give whole numbers: --counts 81283501,74223975"
        ) from None


def _vertices(text: str) -> list[str] | list[list[str]]:
    if ";" in text:
        return [distribution.split(",") for distribution in text.split(";")]
    chances = text.split(",")
    # Three or more chances that sum to one are one distribution over many types; else shares of the
    # first of two.
    if len(chances) > 2:
        exact_sum = sum(mz.smoothed.read_rational("vertices", chance) for chance in chances)
        # The library refuses a distribution whose sum is 1 but for a slip of the pen.
        if abs(exact_sum - 1) < _NEARLY_ONE:
            return [chances]
    return chances


_NEARLY_ONE = 1e-3
"""Distance from 1 of a sum of three or more chances that are meant as one distribution."""


def _distribution(text: str) -> Any:
    kinds = {"gaussian": mz.smoothed.quantized_gaussian, "laplace": mz.smoothed.quantized_laplace}
    kind, _, parameters = text.partition(":")
    try:
        mean, deviation = (float(parameter) for parameter in parameters.split(":"))
        return kinds[kind](mean, deviation)
    except ParameterError as error:
        remedy = f"its {error.parameter} {error.remedy}"
        raise ParameterError("distribution", text, remedy) from None
    except (KeyError, ValueError):
        raise ParameterError(
            "distribution", text, "give gaussian:0:0.12 or laplace:0.2:0.12"
        ) from None


def _elections(file: str | None, which: str, columns: str | None) -> tuple[Election, ...]:
    if file is not None:
        if which != "national":
            raise ParameterError("set", which, "names elections that are bundled: leave FILE out")
        column_names = None
        if columns:
            column_names = columns.split(",")
        if file == "-":
            return mz.datasets.read_elections(sys.stdin, columns=column_names)
        return mz.datasets.read_elections(Path(file), columns=column_names)
    if columns is not None:
        remedy = "names columns of a file: give FILE, or leave it out"
        raise ParameterError("columns", columns, remedy)
    sets = {
        "national": mz.datasets.national_elections,
        "states": mz.datasets.state_elections,
        "districts": mz.datasets.district_elections,
    }
    return sets[which]()


def _row(
    election: Election, loss_rate: str | None, epsilon: float | None, ratio: str | None
) -> JsonObject:
    profile = mz.smoothed.profile(
        election.counts, loss_rate=loss_rate, epsilon=epsilon, ratio=ratio
    )
    row: JsonObject = {
        "election": election.name,
        **common.picked(profile, "records", "log10_delta", "log10_upper"),
    }
    if ratio is not None:
        odds = mz.smoothed.read_rational("ratio", ratio)
        threshold = odds / (1 + odds)  # matches the ratio, exactly
        row["log10_utility"] = mz.smoothed.utility(
            election.counts, threshold=threshold, loss_rate=loss_rate
        ).log10
    row["log10_worst_case"] = profile.log10_worst_case
    return row


def _finish(name: str, question: JsonObject, result: Any, options: Options) -> None:
    """Prints the result, as JSON with the question beside it; status 1 where its bound is above
    --at-most.
    """
    json_fields = dataclasses.asdict(result) | _STANDING
    table_rows = []
    for quantity, value in json_fields.items():
        if quantity != "reason" and quantity not in _STANDING and value not in ((), None):
            table_rows.append((quantity, shown(quantity, value)))
    terminal_table = tables.TerminalTable(("", ""), table_rows, left=("",))
    sentences = f"{json_fields['reason']} {_BASIS}"
    confidence = json_fields.get("confidence")
    if confidence is not None:
        sentences += (
            f" log10_delta is an estimate from random draws, its {confidence_percent(confidence[0])} "
            "interval, by the central limit theorem (of fewer than 30 draws: the bounds), no "
            "guarantee; log10_upper is one."
        )
    console.show(
        {"verb": name, **json_fields, "asked": question},
        options.as_json,
        lambda: [terminal_table, sentences],
    )
    at_most = getattr(options, "at_most", None)
    if at_most is not None and result.log10_upper > at_most:
        console.note(f"log10 bound {result.log10_upper:.6g} exceeds {at_most:.6g}")
        raise typer.Exit(CHECK_FAILED)
