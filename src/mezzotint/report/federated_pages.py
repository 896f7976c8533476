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
from mezzotint.core.records import JsonObject, above, below, counted, number
from mezzotint.core.types import AnyPath
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


def federated_page(source: AnyPath) -> Page:
    """The report of a federated run.

    Arguments:
        source: the folder that `mezzotint federate --out` wrote, or the report.json in it.
    Returns: the page, for `html_page` or `write_png`.
    Raises:
        FileFormatError: no finished run there, or a damaged one.
    Guarantees: every privacy number shown is rounded up.
    Example:
        >>> page = mz.report.federated_page("run")  # doctest: +SKIP
        >>> mz.report.write_png(page, ".")  # doctest: +SKIP
    """
    run = _read_run(Path(source))
    sections = [
        _learnt_together(run),
        _cost_of_sums(run),
        _wire(run),
        _rounds(run),
    ]
    if run.report.get("evaluations"):
        sections.append(_measured_by_clients(run))
    sections.append(_verify_sums(run))
    if (run.folder / MECHANISM).is_file():
        mechanism = Mechanism.load(run.folder / MECHANISM)
        sections += [what_it_does(mechanism), what_it_guarantees(mechanism)]
    outcomes = list(run.ledger["rounds"].values())
    accuracy = nearest_percent(run.report["accuracy"][-1])
    report_unit = "vector" if run.single_reports else "coordinate and report"
    model_name = run.settings.get("model", "a model")
    return Page(
        title=f"Federated run: {model_name} on {run.settings.get('dataset', 'clients')}",
        summary=f"{counted(outcomes.count('released'), 'round')}; accuracy {accuracy}; "
        f"{run.report['report_bits']} bits per {report_unit}; {_cost_in_words(run)}.",
        sections=tuple(sections),
    )


def _read_run(source: Path) -> Run:
    run_folder = source if source.is_dir() else source.parent
    report = _read(run_folder / REPORT if source.is_dir() else source)
    missing_keys = [report_key for report_key in REPORTED if report_key not in report]
    if missing_keys:
        raise FileFormatError(
            f"{source.name}: not the report of a federated run; it lacks {', '.join(missing_keys)}"
        )
    settings: JsonObject = {}
    if (run_folder / SETTINGS).is_file():
        from mezzotint.federated.settings import settings_of_today  # heavy

        settings = settings_of_today(_read(run_folder / SETTINGS))
    return Run(folder=run_folder, report=report, settings=settings)


def _read(path: Path) -> JsonObject:
    if not path.is_file():
        resume_command = f"mezzotint federate --out {path.parent} --resume"
        raise FileFormatError(
            f"{path.parent}: holds no {path.name}; if a run has not ended, go on: {resume_command}"
        )
    return read_object(path, finite=False)  # a run that diverged has infinite losses


def _cost_in_words(run: Run) -> str:
    claim = run.claims.get("central") or run.claims.get("local")
    if claim is None:
        return "no privacy is claimed"
    standing = basis(claim["observer"], certified=claim.get("certified", False))
    return f"epsilon {_epsilon(claim['epsilon'])} ({standing})"


def _epsilon(value: float | str) -> str:
    return above(float(value))


# What was learnt --------------------------------------------------------------------------------


def _learnt_together(run: Run) -> Section:
    report = run.report
    round_numbers = range(len(report["accuracy"]))
    percentages = [100 * float(accuracy_share) for accuracy_share in report["accuracy"]]
    accuracy_figure = Figure.of(
        "accuracy",
        "Accuracy on public test data",
        ("rounds", "accuracy (%)"),
        Curve.of("accuracy", round_numbers, percentages),
    )
    loss_figure = Figure.of(
        "loss",
        "Loss on public test data",
        ("rounds", "loss"),
        Curve.of("loss", round_numbers, map(float, report["loss"])),
    )
    paragraphs: tuple[str, ...] = ()
    if report["stopped"]:
        paragraphs = (f"The run ended early: {report['stopped']}",)
    settings_facts = _settings(run) | _facts_of_encoding(run)
    settings_table = Table.of(settings_facts, "setting") if settings_facts else None
    return Section(
        title="What was learnt",
        words=paragraphs,
        figures=(accuracy_figure, loss_figure),
        table=settings_table,
    )


def _settings(run: Run) -> JsonObject:
    """Settings but for paths, and for those that a mechanism's encoding replaces."""
    hidden_settings: set[str] = {*PATHS}
    if run.settings.get("mechanism"):
        hidden_settings.add("clip")
        if not run.settings.get("clip_norm"):
            hidden_settings.add("clip_norm")
    return {
        setting_name: setting_value
        for setting_name, setting_value in run.settings.items()
        if setting_name not in hidden_settings
    }


def _facts_of_encoding(run: Run) -> JsonObject:
    """The mechanism, its clipping norm and its noise, as far as the encoding in the folder
    tells.
    """
    from mezzotint.federated.encoding import encoding_of_today  # heavy

    encoding_file = run.folder / ENCODING
    if not encoding_file.is_file():
        return {}
    encoding = read_object(encoding_file)
    while isinstance(encoding.get("inner"), dict):
        encoding = encoding["inner"]
    encoding = encoding_of_today(encoding)
    mechanism_table = encoding.get("mechanism", {})
    default_name = mechanism_table.get("name", encoding.get("kind"))
    encoding_facts: JsonObject = {"mechanism": encoding.get("name") or default_name}
    if "knots" in mechanism_table:
        encoding_facts["clipped to"] = (
            f"{number(mechanism_table['knots'][0])} to {number(mechanism_table['knots'][-1])}"
        )
    if run.single_reports:
        encoding_facts["clip_norm"] = float(encoding["codebook"]["clip_norm"])
        return encoding_facts
    if encoding.get("clip_norm") is not None:
        encoding_facts["clip_norm"] = encoding["clip_norm"]
    noise_multiplier = _noise_of_smallest_sum(run)
    if noise_multiplier:
        encoding_facts["noise multiplier of the smallest sum"] = below(noise_multiplier)
    return encoding_facts


def _noise_of_smallest_sum(run: Run) -> float | None:
    try:
        encoding = mz.federated.load_encoding(run.folder / ENCODING)
        return encoding.noise_multiplier(run.ledger["smallest_sum"])
    except MezzotintError:  # the encoding of another version
        return None


# What it cost -----------------------------------------------------------------------------------


def _cost_of_sums(run: Run) -> Section:
    if not run.report["claims"]:
        paragraphs = (
            "No epsilon can be claimed: the mechanism has no table, or no round was released.",
        )
        return Section(title="What it cost", words=paragraphs)
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
    bar_names = [counted(rounds, "round") for rounds, _ in clients_by_rounds]
    client_bars = Curve.of(
        "clients", bar_names, [clients for _, clients in clients_by_rounds], "bars"
    )
    figure_title = "Rounds that clients are charged for"
    charges_figure = Figure.of("charges", figure_title, ("", "clients"), client_bars)
    return Section(
        title="What it cost",
        words=tuple(words_of_claims),
        figures=(charges_figure,),
        table=_table_of_claims(run.claims),
    )


def _table_of_claims(claims: Mapping[str, JsonObject]) -> Table:
    table_rows = []
    for observer, claim in claims.items():
        epsilons = claim.get("alternatives") or {claim["method"]: claim["epsilon"]}
        delta_cell = above(float(claim["delta"]), 4)
        for accounting, epsilon in epsilons.items():
            is_proved = claim.get("certified", False) and epsilon == claim["epsilon"]
            standing = "certified" if is_proved else "computed"
            table_rows.append(
                (OBSERVERS[observer], accounting, _epsilon(epsilon), standing, delta_cell)
            )
    headings = ("against", "accounting", "epsilon", "is", "delta")
    return Table(headings=headings, rows=tuple(table_rows))


# What went over the wire, and what happened -----------------------------------------------------


def _wire(run: Run) -> Section:
    report = run.report
    dimension = run.dimension
    wire_facts = {"coordinates of a vector": f"{dimension:,}"}
    if run.single_reports:
        wire_facts["bits of a report about the whole vector"] = report["report_bits"]
        bytes_sent = math.ceil(report["report_bits"] / 8)
        wire_facts["bytes of one client's report, per round"] = f"{bytes_sent:,}"
        error_scope = "per coordinate, norm 1"
    else:
        wire_facts["bits of a report, per coordinate"] = report["report_bits"]
        wire_facts["bits on the wire, per coordinate: enough for the sum of all"] = report["bits"]
        bytes_sent = math.ceil(dimension * report["bits"] / 8)
        wire_facts["bytes of one client's masked vector, per round"] = f"{bytes_sent:,}"
        error_scope = "uniform inputs (squared data units)"
    wire_facts["the vector as 32-bit floats, bytes"] = f"{4 * dimension:,}"
    wire_facts["seconds of the whole run, as measured"] = number(float(report["seconds"]), 4)
    squared_error = report.get("mse")
    if isinstance(squared_error, (int, float)) and math.isfinite(squared_error):
        wire_facts[f"mean squared error of one report, {error_scope}"] = number(
            float(squared_error)
        )
    return Section(title="What went over the wire", table=Table.of(wire_facts))


def _rounds(run: Run) -> Section:
    refusals: dict[str, Counter[str]] = {}
    for round_number, _client, incident_name in run.report["incidents"]:
        refusals.setdefault(str(round_number), Counter())[incident_name] += 1
    table_rows = []
    for round_number, outcome in run.ledger["rounds"].items():
        incident_counts = refusals.get(round_number, Counter())
        refusal_text = ", ".join(
            f"{incident_name} x {occurrences}"
            for incident_name, occurrences in incident_counts.items()
        )
        table_rows.append((round_number, outcome, refusal_text or "none"))
    paragraphs = ["A round that never ended is charged to everybody who was asked."]
    if not run.single_reports:
        paragraphs.append(
            "The smallest sum that was released, or may have been, is of "
            f"{run.ledger['smallest_sum']} clients; a round that never ended counts as the "
            "smallest that it may have been."
        )
    outcome_table = Table(headings=("round", "outcome", "refused"), rows=tuple(table_rows))
    return Section(title="What happened", words=tuple(paragraphs), table=outcome_table)


def _measured_by_clients(run: Run) -> Section:
    """What clients measured on their own records, with the standard deviation of its noise."""
    evaluations = run.report["evaluations"]
    rows = []
    for measured in run.report.get("measured", ()):
        for metric, average in measured.items():
            if metric in ("round", "clients"):
                continue
            value, noise = map(float, average)
            cells = (number(value, 4), number(noise, 2))
            rows.append((str(measured["round"]), metric, *cells, str(measured["clients"])))
    most = max(evaluations["charges"].values(), default=0)
    outcomes = Counter(evaluations["rounds"].values())
    ended = ", ".join(f"{outcome}: {times}" for outcome, times in sorted(outcomes.items()))
    words = [
        "Means over clients' own records, from secure sums of their own, which the claims include: "
        f"the client that took part most often is charged for {most}. Noise may take a mean out of "
        "its range."
    ]
    if ended:
        words.append(f"How these sums ended: {ended}.")
    refused = Counter(name for _, _, name in evaluations.get("incidents", ()))
    if refused:
        names = ", ".join(f"{name} x {times}" for name, times in refused.items())
        words.append(f"Refused: {names}.")
    table = None
    if rows:
        headings = ("after round", "metric", "mean", "noise", "clients")
        table = Table(headings=headings, rows=tuple(rows))
    return Section(title="What clients measured", words=tuple(words), table=table)


# How to verify ----------------------------------------------------------------------------------


def _verify_sums(run: Run) -> Section:
    """Commands for the run's folder, each of which works on a file that is there."""
    section_title = "How to verify it"
    later_event = "anything was unmasked"
    file_name = MECHANISM
    claim = run.report["claims"].get("central")
    if run.single_reports:
        later_event = "reports were asked for"
        file_name = ENCODING
        claim = run.report["claims"].get("local")
    ledger_sentence = (
        "The ledger beside the report holds every round with the clients in it, written before "
        f"{later_event}."
    )
    charged_rounds = max(run.ledger["charges"].values(), default=0)
    with_mechanism = run.settings.get("mechanism") and (run.folder / file_name).is_file()
    # The commands are about sums of one table alone, all of whose clients add noise.
    beyond = ("clip_norm", "corrupted", "evaluate_every")
    is_plain = run.single_reports or not any(run.settings.get(name) for name in beyond)
    if claim is None or charged_rounds == 0 or not with_mechanism or not is_plain:
        if not (run.folder / LEDGER).is_file():
            return Section(title=section_title, words=(ledger_sentence,))
        paragraphs = (ledger_sentence, "In the run's folder:")
        return Section(title=section_title, words=paragraphs, code=f"$ mezzotint ledger {LEDGER}")
    paragraphs = (
        ledger_sentence,
        "With the mechanism file it gives the claims again, in the run's folder:",
    )
    verify_command = f"$ mezzotint verify {file_name}"
    account_command = f"$ mezzotint account {file_name}"
    spending_options = f"--rounds {charged_rounds} --delta {claim['delta']!r}"
    if run.single_reports:
        return Section(
            title=section_title,
            words=paragraphs,
            code=f"{verify_command}\n{account_command} {spending_options}",
        )
    sum_options = f"--dimension {run.dimension} {spending_options}"
    observer_options = f"--observer secure_sum --clients {run.ledger['smallest_sum']}"
    commands = (
        verify_command,
        f"{account_command} {sum_options}",
        f"{account_command} {sum_options} {observer_options}",
    )
    return Section(title=section_title, words=paragraphs, code="\n".join(commands))
