"""`mezzotint ledger`: what releases did cost."""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, final

import typer
from rich.console import RenderableType

import mezzotint as mz
from mezzotint.cli import common, console, progress, tables
from mezzotint.cli.options import OUTPUT, AsJson, Overwrite, argument, option
from mezzotint.core.arguments import check_probability
from mezzotint.core.errors import FileFormatError, ParameterError, StorageError
from mezzotint.core.files import AppendLog, parse_object, replacing
from mezzotint.core.records import JsonObject, above, below, counted, exactly

if TYPE_CHECKING:
    from mezzotint.privacy.people import IdHash

EXAMPLE = "mezzotint ledger ledger.jsonl --budget 1 --json"

FEDERATED, TRAINING = "mezzotint-federated-ledger", "mezzotint-training-ledger"
LIFETIME = "mezzotint-lifetime-ledger"
KINDS = {
    FEDERATED: "the ledger of a federated run's rounds",
    TRAINING: "the ledger of a training run's steps",
}
"""What the ledgers that state a delta of their own are, for messages."""

SHOWN = "What is shown"

DEFAULT_DELTA = 1e-5
"""Of a federated client's epsilon."""

_HEADER = 65536
"""Bytes that the first line of a ledger may have."""


@final
@dataclass(frozen=True, kw_only=True)
class LedgerOptions:
    """Options of the verb."""

    file: Annotated[Path, argument("Ledger (.jsonl) of privatize, federate, train or a client.")]
    budget: Annotated[
        float | None, option("Epsilon of a person that none may exceed.", panel=SHOWN)
    ] = None
    client: Annotated[str | None, option("Show this client (or person) alone.", panel=SHOWN)] = None
    delta: Annotated[
        float | None, option("Of a federated client's epsilon; by default 1e-5.", panel=SHOWN)
    ] = None
    top: Annotated[int, option("Clients listed, largest totals first.", panel=SHOWN, least=1)] = 20
    export: Annotated[
        Path | None, option("Write every person's rows in every run (.jsonl).", panel=OUTPUT)
    ] = None
    convert: Annotated[
        Path | None, option("Write a ledger of names as one of compact segments.", panel=OUTPUT)
    ] = None
    overwrite: Overwrite = False
    as_json: AsJson = False


def command(options: LedgerOptions) -> None:
    """Show what a ledger charges to each client (releases, attempts, epsilon), the largest total
    and what remains.

    Exit status 1: a client's total exceeds --budget.
    """
    file = options.file
    _refuse_no_file(file)
    if options.budget is not None and not options.budget >= 0:
        raise ParameterError("budget", options.budget, "need an epsilon >= 0")
    header = _header(file)
    kind = str(header.get("format"))
    _refuse_options(options, kind)
    if kind == FEDERATED:
        _show_rounds(file, header, options.client, options.top, options.as_json)
    elif kind == LIFETIME:
        delta = DEFAULT_DELTA
        if options.delta is not None:
            delta = check_probability("delta", options.delta)
        _show_sums(file, header, delta, options.budget, options.as_json)
    elif kind == TRAINING:
        _show_steps(file, header, options.as_json)
    else:
        _show_releases(options)


def _refuse_no_file(file: Path) -> None:
    if file.is_dir():
        inside = file / "ledger.jsonl"
        remedy = "it holds no ledger.jsonl; name a ledger"
        if inside.is_file():
            remedy = f"name the ledger in it: {inside}"
        raise ParameterError("file", str(file), f"is a folder; {remedy}")
    if not file.is_file():
        raise ParameterError(
            "file", str(file), "no such file; privatize --ledger and federate --out write ledgers"
        )


def _refuse_options(options: LedgerOptions, kind: str) -> None:
    """Refuse options that a ledger of this kind would ignore."""
    file_name = options.file.name
    if options.budget is not None and kind in (FEDERATED, TRAINING):
        remedy = (
            f"{file_name} counts rounds, whose price the run's report states: leave it out, and "
            "see mezzotint report"
        )
        raise ParameterError("budget", options.budget, remedy)
    if options.client is not None and kind in (LIFETIME, TRAINING):
        remedy = f"{file_name} has no clients to choose from; leave it out"
        raise ParameterError("client", options.client, remedy)
    if options.delta is not None and kind != LIFETIME:
        ledger_kind = KINDS.get(kind, "a ledger of releases")
        remedy = f"{file_name} is {ledger_kind}, whose claims have a delta each; leave it out"
        raise ParameterError("delta", options.delta, remedy)


def _show_releases(options: LedgerOptions) -> None:
    """A ledger of releases; exit status 1 where a total exceeds the budget."""
    file, budget, client, top = options.file, options.budget, options.client, options.top
    # Before a conversion, which stays.
    common.refuse_outputs(".jsonl", overwrite=options.overwrite, export=options.export)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said below, in the program's own words
        ledger = mz.privacy.Ledger(file)
    for sentence in ledger.repairs:
        console.warn(f"{file.name}: {sentence}")
    if options.convert is not None:
        ledger = _converted(ledger, options.convert)
    if options.export is not None:
        _export(ledger, options.export, overwrite=options.overwrite)
    json_fields = _facts(ledger, budget=budget, client=client, top=top)
    if client is not None and not ledger.people and client not in ledger.by_client():
        console.note(
            f"no release is charged to {client} alone; releases about everyone count for every "
            "client"
        )
    console.show(
        {"file": str(file), **json_fields},
        options.as_json,
        lambda: _picture(file, json_fields, top),
    )
    if budget is not None and _asked_about(json_fields)["epsilon"] > budget:
        raise typer.Exit(1)


def _asked_about(json_fields: JsonObject) -> JsonObject:
    """The entry that a budget is compared with: of the client named, else the largest."""
    for entry in json_fields["clients"]:
        if entry["client"] == json_fields.get("client"):
            return entry
    return json_fields["worst"]


def _header(file: Path) -> JsonObject:
    """The first line of a ledger, as it was given."""
    from mezzotint.privacy import ledger as releases_of

    with file.open("rb") as opened:
        first = opened.readline(_HEADER)
    header: JsonObject = {}
    with suppress(FileFormatError):
        header = parse_object(first, name=file.name)
    if "chain" not in header or header.get("format") not in (
        releases_of.FORMAT,
        FEDERATED,
        LIFETIME,
        TRAINING,
    ):
        raise FileFormatError(
            f"{file.name}: is not a ledger; name one that privatize --ledger or federate --out "
            "wrote"
        )
    del header["chain"]
    return header


def _facts(
    ledger: mz.privacy.Ledger, *, budget: float | None, client: str | None, top: int
) -> JsonObject:
    """Everything that a ledger of releases says, for JSON."""
    charges = [charge for charge in ledger.charges if not charge.withdrawn]
    people = [line for line in ledger.people if not line.withdrawn]
    withdrawn = len(ledger.charges) + len(ledger.people) - len(charges) - len(people)
    repeated = Counter(charge.release.client for charge in charges if charge.attempt > 1)
    totals = _totals(ledger, client, top)
    clients = _clients(totals, repeated, budget)
    largest = clients
    if client is not None:  # whoever asks about one person is not told another's name
        largest_totals = ledger.by_client()
        for person_hash, total in ledger.people_spent(top=1):
            largest_totals[person_hash.hex()] = total
        largest = _clients(largest_totals, repeated, budget)
        for entry in largest:
            entry["client"] = None
    descriptions = [charge.release.description for charge in charges]
    descriptions += [line.description for line in people]
    json_fields: JsonObject = {
        "charges": len(charges) + len(people),
        "observer": "of all these releases, each as its claim says",
        "certified": False,
        "method": "basic composition",
        "repeated": repeated.total(),
        "withdrawn": withdrawn,
        "worst": max(largest, key=lambda entry: entry["epsilon"]),
        "clients": sorted(clients, key=lambda entry: -entry["epsilon"]),
        "claims": _claims(descriptions),
    }
    if people:
        json_fields["persons"] = ledger.persons
    if client is not None:
        json_fields["client"] = client
    if budget is not None:
        json_fields["budget"] = budget
    if ledger.fixed is not None:
        names = ("epsilon", "delta", "slack")
        json_fields["fixed"] = dict(zip(names, ledger.fixed, strict=True))
    return json_fields


def _totals(ledger: mz.privacy.Ledger, client: str | None, top: int) -> dict[str, mz.privacy.Spent]:
    """What was charged to each client, or to the one named; of people, to those who spent most."""
    totals = ledger.by_client()
    if any(not line.withdrawn for line in ledger.people):
        return totals | _people_of(ledger, client, top)
    if client is not None:
        return {client: ledger.spent(client)}
    return totals


def _clients(
    totals: dict[str, mz.privacy.Spent], repeated: Counter[str], budget: float | None
) -> list[JsonObject]:
    """An entry for each client; releases about everyone have one of their own where there
    are any.
    """
    from mezzotint.privacy.ledger import GLOBAL

    entries: list[JsonObject] = []
    for client_name, total in totals.items():
        if client_name == GLOBAL and not total.releases and len(totals) > 1:
            continue
        entry: JsonObject = {"client": client_name, "releases": total.releases}
        entry["repeated"] = repeated[GLOBAL]
        if client_name != GLOBAL:
            entry["repeated"] += repeated[client_name]
        entry |= {"epsilon": total.epsilon, "delta": total.delta}
        if budget is not None:
            entry["left"] = total.left(budget)
        entries.append(entry)
    return entries


def _key(ledger: mz.privacy.Ledger) -> bytes:
    from mezzotint.collect.charging import ledger_key

    return ledger_key(ledger, create=False)


def _hashes(ledger: mz.privacy.Ledger) -> IdHash | None:
    """How ids are hashed; None where the ledger's key is gone, so that nobody can be named."""
    from mezzotint.collect.charging import key_path
    from mezzotint.privacy.people import IdHash

    assert ledger.path is not None
    path = key_path(ledger.path)
    if path.exists():
        return IdHash(_key(ledger))
    console.warn(
        f"{path.name} is missing: people are shown by their hashes, and nobody can be charged"
    )
    return None


def _people_of(
    ledger: mz.privacy.Ledger, client: str | None, top: int
) -> dict[str, mz.privacy.Spent]:
    """Those who have spent most, or the one named, by their ids."""
    import numpy as np

    if client is not None:
        return {client: ledger.person_spent(client, key=_key(ledger))}
    listed = ledger.people_spent(top=top)
    hashes = _hashes(ledger)
    names = [f"#{person.hex()}" for person, _ in listed]
    if hashes is not None:
        hashed = np.frombuffer(b"".join(person for person, _ in listed), dtype=np.uint8)
        names = hashes.names(hashed.reshape(-1, 16))
    return {client_name: paid for client_name, (_, paid) in zip(names, listed, strict=True)}


def _converted(old: mz.privacy.Ledger, path: Path) -> mz.privacy.Ledger:
    """A new ledger of segments that charges everybody what the old one does; the old one stays."""
    from mezzotint.collect.charging import inherited_key

    if path.exists():
        raise ParameterError("convert", str(path), "exists already; name a new file")
    key = inherited_key(old, path)
    with progress.bar("converting", unit="charges") as report_progress:
        new = mz.privacy.convert_ledger(old, path, key=key, progress=report_progress)
    console.note(f"{path.name} charges as {old.path} does, which is kept")
    return new


def _export(ledger: mz.privacy.Ledger, path: Path, *, overwrite: bool) -> None:
    """JSON lines that people can read: run, person, rows, epsilon."""
    hashes = None
    if ledger.people:
        hashes = _hashes(ledger)
    with (
        replacing(path, overwrite=overwrite, parameter="export") as temporary,
        open(temporary, "w", encoding="utf-8") as file,
    ):
        for line in ledger.export(hashes):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _claims(descriptions: Iterable[str]) -> list[JsonObject]:
    """Each claim once: how many charges name it, and about how many sources, as far as they say."""
    charges_by_source: dict[str, Counter[str]] = {}
    for description in descriptions:
        claim, _, source = description.partition("; source ")
        charges_by_source.setdefault(claim, Counter())[source] += 1
    claims: list[JsonObject] = []
    for claim, sources in charges_by_source.items():
        count = len(set(sources) - {""})
        claims.append({"claim": claim, "charges": sources.total(), "sources": count})
    return claims


def _name(client: str) -> str:
    from mezzotint.privacy.ledger import GLOBAL

    if client == GLOBAL:
        return "everyone"
    return client


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _picture(file: Path, json_fields: JsonObject, top: int) -> list[RenderableType]:
    columns = ["client", "releases", "of them repeated", "epsilon", "delta"]
    if "budget" in json_fields:
        columns.append("epsilon left")
    table_rows = []
    for entry in json_fields["clients"][:top]:
        cells = [_name(entry["client"]), str(entry["releases"]), str(entry["repeated"])]
        cells += [above(entry["epsilon"]), above(entry["delta"])]
        if "left" in entry:
            cells.append(below(entry["left"]))
        table_rows.append(cells)
    title = f"{file.name}: {_plural(json_fields['charges'], 'charge')}"
    if json_fields["repeated"]:
        title += f", {json_fields['repeated']:,} of them another attempt at the same release"
    if json_fields["withdrawn"]:
        title += f", {json_fields['withdrawn']:,} withdrawn"
    if "persons" in json_fields:
        title += f" of {json_fields['persons']:,} people"
    table = tables.TerminalTable(columns, table_rows)
    return [title, table, *_words(json_fields, top)]


def _words(json_fields: JsonObject, top: int) -> Sequence[str]:
    worst = json_fields["worst"]
    sentences = []
    unlisted = json_fields.get("persons", len(json_fields["clients"])) - top
    if unlisted > 0 and "client" not in json_fields:
        sentences.append(f"{unlisted:,} more clients spent no more than these (--top)")
    whose = ""
    if worst["client"] is not None:
        whose = f"{_name(worst['client'])}, "
    sentences.append(
        f"Largest total: {whose}epsilon {above(worst['epsilon'])}, delta {above(worst['delta'])}."
    )
    sentences += _budget_words(json_fields)
    sentences.append(
        "Computed, to an observer of all these releases: sums of what their claims state (basic "
        "composition), valid whenever they are read. Single claims below may be certified; their "
        "sum is computed."
    )
    if any(_name(entry["client"]) == "everyone" for entry in json_fields["clients"]):
        sentences.append(
            "everyone: releases charged without --charge-by. The people in the data are then "
            "unknown, so these releases count for every person."
        )
    sentences.append(f"The claim{'s' * (len(json_fields['claims']) != 1)}:")
    for entry in json_fields["claims"][:top]:
        source_count = "sources not recorded"
        if entry["sources"]:
            source_count = _plural(entry["sources"], "source")
        sentences.append(
            f"{entry['charges']:,} x ({source_count}) "
            f"{entry['claim'] or 'a release without a claim'}"
        )
    return sentences


def _budget_words(json_fields: JsonObject) -> list[str]:
    """What is left of the budget that was asked about, and of the one that the ledger fixed."""
    sentences = []
    if "budget" in json_fields:
        entry = _asked_about(json_fields)
        whom = "whoever has spent most"
        if "client" in json_fields:
            whom = _name(entry["client"])
        state = "exceeded"
        if entry["epsilon"] <= json_fields["budget"]:
            state = f"{below(entry['left'])} of it left for {whom}"
        sentences.append(f"Budget: epsilon {exactly(json_fields['budget'])}, {state}.")
    if "fixed" in json_fields:
        epsilon, delta, slack = json_fields["fixed"].values()
        sentences.append(
            f"The budget was fixed at epsilon {exactly(epsilon)} and delta {exactly(delta)}, "
            f"{exactly(slack)} of it slack for advanced composition: what is reserved may add up to "
            "more than this epsilon, and still keep to it."
        )
    return sentences


def _show_sums(
    file: Path, header: JsonObject, delta: float, budget: float | None, as_json: bool
) -> None:
    """Show the cost of all sums of a federated client's life; exit status 1 where that exceeds the
    budget.
    """

    ledger = mz.federated.LifetimeLedger(file, identity=str(header.get("identity", "")))
    epsilon = 0.0
    if ledger.sums:
        try:
            epsilon = ledger.spent(delta)
        except StorageError:
            raise
        except ParameterError:  # sums without noise of the clients' own
            epsilon = math.inf
    json_fields: JsonObject = {
        "identity": header.get("identity"),
        "sums": ledger.sums,
        "epsilon": epsilon,
        "delta": delta,
        "neighboring": "replace_one",
        "observer": "secure_sum",
        "certified": False,
    }
    cost = "no epsilon can be claimed"
    if math.isfinite(epsilon):
        cost = f"epsilon {above(epsilon)}, delta {above(delta)}"
    sentences = (
        f"{file.name}: {counted(ledger.sums, 'secure sum')} that this client was in, or was "
        "charged for\n"
        f"Computed: {cost}, for replacing all data of this client (replace_one), to an observer of "
        "the secure sums alone, each of which is taken for the smallest that its plan allowed."
    )
    if budget is not None:
        json_fields |= {"budget": budget, "left": max(0.0, budget - epsilon)}
        state = "exceeded"
        if epsilon <= budget:
            state = f"{below(budget - epsilon)} of it left"
        sentences += f"\nBudget: epsilon {exactly(budget)}, {state}."
    console.show({"file": str(file), **json_fields}, as_json, lambda: sentences)
    if budget is not None and epsilon > budget:
        raise typer.Exit(1)


def _show_rounds(
    file: Path, header: JsonObject, client: str | None, top: int, as_json: bool
) -> None:
    """A federated run: rounds charged, whose price the run's report states."""
    run_facts = {key: value for key, value in header.items() if key not in ("format", "version")}
    ledger = mz.federated.RunLedger(file, run_facts)
    json_fields = ledger.as_dict()
    if client is not None:
        json_fields["charges"] = {client: json_fields["charges"].get(client, 0)}
    outcomes = Counter(sentence.partition(":")[0] for sentence in json_fields["rounds"].values())
    title = f"{file.name}: " + ", ".join(
        f"{count} {sentence}" for sentence, count in outcomes.items()
    )
    charged = sorted(json_fields["charges"].items(), key=lambda one: -one[1])
    table = tables.TerminalTable(
        ("client", "rounds charged"),
        ((client_name, str(count)) for client_name, count in charged[:top]),
    )
    others = len(charged) - top
    more = ""
    if others > 0:
        more = f"{others:,} more clients were charged for no more rounds (--top)\n"
    price = "see the report that the run writes when it ends (go on with --resume)"
    if (file.parent / "report.json").is_file():
        price = f"mezzotint report {file.parent} --out run.html"
    most_charged = max(ledger.charges.values(), default=0)
    sentences = (
        f"{more}Nobody was charged for more than {counted(most_charged, 'round')}; an interrupted round counts for "
        f"all who were asked. The smallest sum or mean is of {counted(json_fields['smallest_sum'], 'client')}. "
        f"What that costs: {price}"
    )
    console.show(
        {"file": str(file), **json_fields},
        as_json,
        lambda: [title, table, sentences],
    )


def _show_steps(file: Path, header: JsonObject, as_json: bool) -> None:
    """A training run: the steps that were reserved, and the sentence that stands beside the last of
    them.
    """
    reservations: list[JsonObject] = [
        {"reserved": 0, "claim": None, "sentence": "nothing was reserved yet"}
    ]
    AppendLog(file, header=header, take=reservations.append, what="ledger")
    last = reservations[-1]
    words = f"{file.name}: {last['reserved']:,} steps reserved\n{last['sentence']}"
    console.show({"file": str(file), **last}, as_json, lambda: words)
