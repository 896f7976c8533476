"""The report of a federated run: what was learnt, what it cost whom, what to check."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

import mezzotint as mz
from mezzotint.core.errors import FileFormatError, MezzotintError
from mezzotint.core.files import read_object
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, above, number
from mezzotint.privacy.claim import basis
from mezzotint.report.contents import Curve, Figure, Page, Section, Table, nearest_percent
from mezzotint.report.mechanism_pages import what_it_does, what_it_guarantees

REPORT = "report.json"
SETTINGS = "settings.json"
MECHANISM = "mechanism.json"
ENCODING = "encoding.json"
LEDGER = "ledger.jsonl"
"""Names in a run's folder."""

REPORTED = (
    "accuracy",
    "loss",
    "ledger",
    "claims",
    "incidents",
    "stopped",
    "bits",
    "report_bits",
    "seconds",
)
"""Keys that a finished run's report has."""

OBSERVERS = {"local": "whoever sees single reports", "central": "whoever sees the sums alone"}
"""Claims of a report -> to whom they apply."""

PATHS = ("mechanism", "data", "out")
"""Settings that name paths of the machine that ran it."""


@final
@dataclass(frozen=True, kw_only=True)
class Run:
    """A finished federated run.

    Arguments:
        folder: where its files are.
        report: its report.json.
        settings: its settings.json; empty where there is none.
    """

    folder: Path
    report: JsonObject
    settings: JsonObject

    @property
    def single_reports(self) -> bool:
        """Whether the server saw single reports, each an index of a ranked codebook, and no
        sums.
        """
        return self.settings.get("observer") == "reports"

    @property
    def dimension(self) -> int:
        """Coordinates of an update; ledgers of before call them so."""
        return int(self.ledger.get("dimension", self.ledger.get("coordinates", 0)))

    @property
    def ledger(self) -> JsonObject:
        """Rounds, charges and sizes, as the report counts them."""
        return self.report["ledger"]

    @property
    def claims(self) -> JsonObject:
        """Claims by observer: "local", "central", or neither."""
        return {
            observer: claim
            for observer, claim in self.report["claims"].items()
            if observer in OBSERVERS
        }


def federated_page(source: Path) -> Page:
    """The report of a federated run.

    Arguments:
        source: the folder that `mezzotint federate --out` wrote, or the report.json in it.
    Returns: the page, for `html_page` or `write_png`.
    Raises:
        FileFormatError: no finished run there, or a damaged one.
    Guarantees: every privacy number shown is rounded up.
    Example:
        >>> page = mz.report.federated_page(Path("run"))  # doctest: +SKIP
        >>> mz.report.write_png(page, Path("."))  # doctest: +SKIP
    """
    run = _read_run(source)
    sections = [
        _learnt_together(run),
        _cost_of_sums(run),
        _wire(run),
        _rounds(run),
        _verify_sums(run),
    ]
    if (run.folder / MECHANISM).is_file():
        mechanism = Mechanism.load(run.folder / MECHANISM)
        sections += [what_it_does(mechanism), what_it_guarantees(mechanism)]
    outcomes = list(run.ledger["rounds"].values())
    accuracy = nearest_percent(run.report["accuracy"][-1])
    sent = "vector" if run.single_reports else "coordinate and report"
    model = run.settings.get("model", "a model")
    return Page(
        title=f"Federated run: {model} on {run.settings.get('dataset', 'clients')}",
        summary=f"{outcomes.count('released')} rounds; accuracy {accuracy}; "
        f"{run.report['report_bits']} bits per {sent}; {_cost_in_words(run)}.",
        sections=tuple(sections),
    )


def _read_run(source: Path) -> Run:
    folder = source if source.is_dir() else source.parent
    report = _read(folder / REPORT if source.is_dir() else source)
    missing = [name for name in REPORTED if name not in report]
    if missing:
        raise FileFormatError(
            f"{source.name}: not the report of a federated run; it lacks {', '.join(missing)}"
        )
    settings: JsonObject = {}
    if (folder / SETTINGS).is_file():
        from mezzotint.federated.settings import settings_of_today  # heavy

        settings = settings_of_today(_read(folder / SETTINGS))
    return Run(folder=folder, report=report, settings=settings)


def _read(path: Path) -> JsonObject:
    if not path.is_file():
        resume = f"mezzotint federate --out {path.parent.name} --resume"
        raise FileFormatError(
            f"{path.parent.name}: holds no {path.name}; if a run has not ended, go on: {resume}"
        )
    return read_object(path)


def _cost_in_words(run: Run) -> str:
    claim = run.claims.get("central") or run.claims.get("local")
    if claim is None:
        return "no privacy is claimed"
    how = basis(claim["observer"], certified=claim.get("certified", False))
    return f"epsilon {_epsilon(claim['epsilon'])} ({how})"


def _epsilon(value: float | str) -> str:
    return above(float(value))


# What was learnt --------------------------------------------------------------------------------


def _learnt_together(run: Run) -> Section:
    report = run.report
    rounds = range(len(report["accuracy"]))
    percentages = [100 * float(share) for share in report["accuracy"]]
    accuracy = Figure.of(
        "accuracy",
        "Accuracy on public test data",
        ("rounds", "accuracy (%)"),
        Curve.of("accuracy", rounds, percentages),
    )
    loss = Figure.of(
        "loss",
        "Loss on public test data",
        ("rounds", "loss"),
        Curve.of("loss", rounds, map(float, report["loss"])),
    )
    words: tuple[str, ...] = ()
    if report["stopped"]:
        words = (f"The run ended early: {report['stopped']}",)
    facts = _settings(run) | _facts_of_encoding(run)
    table = Table.of(facts, "setting") if facts else None
    return Section(title="What was learnt", words=words, figures=(accuracy, loss), table=table)


def _settings(run: Run) -> JsonObject:
    """Settings but for paths, and for those that a mechanism's encoding replaces."""
    hidden: set[str] = {*PATHS}
    if run.settings.get("mechanism"):
        hidden.add("clip")
        if not run.settings.get("clip_norm"):
            hidden.add("clip_norm")
    return {name: value for name, value in run.settings.items() if name not in hidden}


def _facts_of_encoding(run: Run) -> JsonObject:
    """The mechanism, its clipping norm and its noise, as far as the encoding in the folder
    tells.
    """
    from mezzotint.federated.encoding import with_keys_of_today  # heavy

    path = run.folder / ENCODING
    if not path.is_file():
        return {}
    encoding = read_object(path)
    while isinstance(encoding.get("inner"), dict):
        encoding = encoding["inner"]
    encoding = with_keys_of_today(encoding)
    table = encoding.get("mechanism", {})
    default_name = table.get("name", encoding.get("kind"))
    facts: JsonObject = {"mechanism": encoding.get("name") or default_name}
    if "knots" in table:
        facts["clipped to"] = f"{number(table['knots'][0])} to {number(table['knots'][-1])}"
    if run.single_reports:
        facts["clip_norm"] = float(encoding["codebook"]["clip_norm"])
        return facts
    if encoding.get("clip_norm") is not None:
        facts["clip_norm"] = encoding["clip_norm"]
    noise = _noise_of_smallest_sum(run)
    if noise:
        facts["noise multiplier of the smallest sum"] = number(noise)
    return facts


def _noise_of_smallest_sum(run: Run) -> float | None:
    try:
        encoding = mz.federated.load_encoding(run.folder / ENCODING)
        return encoding.noise_multiplier(run.ledger["smallest_sum"])
    except MezzotintError:  # the encoding of another version
        return None


# What it cost -----------------------------------------------------------------------------------


def _cost_of_sums(run: Run) -> Section:
    if not run.report["claims"]:
        words = (
            "No epsilon can be claimed: the mechanism has no table, or no round was released.",
        )
        return Section(title="What it cost", words=words)
    words_of_claims = [
        f"To {OBSERVERS[observer]}: {claim['text']}" for observer, claim in run.claims.items()
    ]
    words_of_claims.append("Claims are about the client that took part most often.")
    if "central" in run.claims:
        words_of_claims.append(
            "That about sums trusts the aggregation protocol and relies on the honest clients' "
            "randomness; one about single reports relies on nothing but the client's own."
        )
    clients_by_rounds = sorted(Counter(run.ledger["charges"].values()).items())
    names = [f"{rounds} rounds" for rounds, _ in clients_by_rounds]
    bars = Curve.of("clients", names, [clients for _, clients in clients_by_rounds], "bars")
    title = "Rounds that clients are charged for"
    charged = Figure.of("charges", title, ("", "clients"), bars)
    return Section(
        title="What it cost",
        words=tuple(words_of_claims),
        figures=(charged,),
        table=_table_of_claims(run.claims),
    )


def _table_of_claims(claims: Mapping[str, JsonObject]) -> Table:
    rows = []
    for observer, claim in claims.items():
        epsilons = claim.get("alternatives") or {claim["method"]: claim["epsilon"]}
        delta = above(float(claim["delta"]), 4)
        for accounting, epsilon in epsilons.items():
            rows.append((OBSERVERS[observer], accounting, _epsilon(epsilon), delta))
    headings = ("against", "accounting", "epsilon (computed)", "delta")
    return Table(headings=headings, rows=tuple(rows))


# What went over the wire, and what happened -----------------------------------------------------


def _wire(run: Run) -> Section:
    report = run.report
    dimension = run.dimension
    rows = {"coordinates of a vector": f"{dimension:,}"}
    if run.single_reports:
        rows["bits of a report about the whole vector"] = report["report_bits"]
        sent = math.ceil(report["report_bits"] / 8)
        rows["bytes of one client's report, per round"] = f"{sent:,}"
        about = "per coordinate, norm 1"
    else:
        rows["bits of a report, per coordinate"] = report["report_bits"]
        rows["bits on the wire, per coordinate: enough for the sum of all"] = report["bits"]
        sent = math.ceil(dimension * report["bits"] / 8)
        rows["bytes of one client's masked vector, per round"] = f"{sent:,}"
        about = "uniform inputs (squared data units)"
    rows["the vector as 32-bit floats, bytes"] = f"{4 * dimension:,}"
    rows["seconds of the whole run, as measured"] = number(float(report["seconds"]), 4)
    error = report.get("mse")
    if isinstance(error, (int, float)) and math.isfinite(error):
        rows[f"mean squared error of one report, {about}"] = number(float(error))
    return Section(title="What went over the wire", table=Table.of(rows))


def _rounds(run: Run) -> Section:
    refusals: dict[str, Counter[str]] = {}
    for round_number, _, name in run.report["incidents"]:
        refusals.setdefault(str(round_number), Counter())[name] += 1
    rows = []
    for round_number, outcome in run.ledger["rounds"].items():
        counted = refusals.get(round_number, Counter())
        refused = ", ".join(f"{name} x {times}" for name, times in counted.items())
        rows.append((round_number, outcome, refused or "none"))
    words = ["A round that never ended is charged to everybody who was asked."]
    if not run.single_reports:
        words.append(
            "The smallest sum that was released, or may have been, is of "
            f"{run.ledger['smallest_sum']} clients; a round that never ended counts as the "
            "smallest that it may have been."
        )
    table = Table(headings=("round", "outcome", "refused"), rows=tuple(rows))
    return Section(title="What happened", words=tuple(words), table=table)


# How to verify ----------------------------------------------------------------------------------


def _verify_sums(run: Run) -> Section:
    """Commands for the run's folder, each of which works on a file that is there."""
    title = "How to verify it"
    before = "anything was unmasked"
    file_name = MECHANISM
    claim = run.report["claims"].get("central")
    if run.single_reports:
        before = "reports were asked for"
        file_name = ENCODING
        claim = run.report["claims"].get("local")
    ledger_sentence = (
        "The ledger beside the report holds every round with the clients in it, written before "
        f"{before}."
    )
    charged = max(run.ledger["charges"].values(), default=0)
    with_mechanism = run.settings.get("mechanism") and (run.folder / file_name).is_file()
    if claim is None or charged == 0 or not with_mechanism:
        if not (run.folder / LEDGER).is_file():
            return Section(title=title, words=(ledger_sentence,))
        words = (ledger_sentence, "In the run's folder:")
        return Section(title=title, words=words, code=f"$ mezzotint ledger {LEDGER}")
    words = (
        ledger_sentence,
        "With the mechanism file it gives the claims again, in the run's folder:",
    )
    verify = f"$ mezzotint verify {file_name}"
    account = f"$ mezzotint account {file_name}"
    spent = f"--rounds {charged} --delta {claim['delta']!r}"
    if run.single_reports:
        return Section(title=title, words=words, code=f"{verify}\n{account} {spent}")
    sums = f"--dimension {run.dimension} {spent}"
    observed = f"--observer secure_sum --clients {run.ledger['smallest_sum']}"
    code = f"{verify}\n{account} {sums}\n{account} {sums} {observed}"
    return Section(title=title, words=words, code=code)
