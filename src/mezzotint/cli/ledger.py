"""`mezzotint ledger`: what releases did cost."""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, final

import typer
from rich.console import Group
from rich.text import Text

import mezzotint as mz
from mezzotint.cli import common, console, progress, tables
from mezzotint.cli.options import OUTPUT, AsJson, Overwrite, argument, option
from mezzotint.core.arguments import check_probability
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import AppendLog, replacing
from mezzotint.core.records import JsonObject, above, below

EXAMPLE = "mezzotint ledger ledger.jsonl --budget 1 --json"

FEDERATED, TRAINING = "mezzotint-federated-ledger", "mezzotint-training-ledger"
LIFETIME = "mezzotint-lifetime-ledger"

SHOWN = "What is shown"

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


def command(asked: LedgerOptions) -> None:
    """Show what a ledger charges to each client (releases, attempts, epsilon), the largest total and what remains.

    Exit status 1: a client's total exceeds --budget.
    """
    file = asked.file
    _refuse_no_file(file)
    if asked.budget is not None and not asked.budget >= 0:
        raise ParameterError("budget", asked.budget, "need an epsilon >= 0")
    header = _header(file)
    kind = str(header.get("format"))
    _refuse_options(asked, kind)
    if kind == FEDERATED:
        _show_rounds(file, header, asked.client, asked.top, asked.as_json)
    elif kind == LIFETIME:
        delta = check_probability("delta", 1e-5 if asked.delta is None else asked.delta)
        _show_sums(file, header, delta, asked.budget, asked.as_json)
    elif kind == TRAINING:
        _show_steps(file, header, asked.as_json)
    else:
        _show_releases(asked)


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


def _refuse_options(asked: LedgerOptions, kind: str) -> None:
    """Refuse options that a ledger of this kind would ignore."""
    name = asked.file.name
    if asked.budget is not None and kind in (FEDERATED, TRAINING):
        remedy = f"{name} counts rounds, whose price the run's report states: leave it out, and see mezzotint report"
        raise ParameterError("budget", asked.budget, remedy)
    if asked.client is not None and kind in (LIFETIME, TRAINING):
        remedy = f"{name} has no clients to choose from; leave it out"
        raise ParameterError("client", asked.client, remedy)
    if asked.delta is not None and kind != LIFETIME:
        remedy = f"{name} is not a federated client's ledger; leave it out"
        raise ParameterError("delta", asked.delta, remedy)


def _show_releases(asked: LedgerOptions) -> None:
    """A ledger of releases; exit status 1 where a total exceeds the budget."""
    file, budget, client, top = asked.file, asked.budget, asked.client, asked.top
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # said below, in the program's own words
        ledger = mz.privacy.Ledger(file)
    for text in ledger.repairs:
        console.warn(f"{file.name}: {text}")
    if asked.convert is not None:
        ledger = _converted(ledger, asked.convert)
    if asked.export is not None:
        _export(ledger, asked.export, overwrite=asked.overwrite)
    facts = _facts(ledger, budget=budget, client=client, top=top)
    if client is not None and not ledger.people and client not in ledger.by_client():
        console.note(
            f"no release is charged to {client} alone; releases about everyone count for every client"
        )
    console.show({"file": str(file), **facts}, asked.as_json, lambda: _picture(file, facts, top))
    if budget is not None and facts["worst"]["epsilon"] > budget:
        raise typer.Exit(1)


def _header(file: Path) -> JsonObject:
    """The first line of a ledger, as it was given."""
    from mezzotint.privacy import ledger as releases_of

    with file.open("rb") as opened:
        first = opened.readline(_HEADER)
    try:
        header: JsonObject = json.loads(first)
        header.pop("chain")
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        header = {}
    if header.get("format") not in (releases_of.FORMAT, FEDERATED, LIFETIME, TRAINING):
        raise FileFormatError(
            f"{file.name}: is not a ledger; name one that privatize --ledger or federate --out wrote"
        )
    return header


def _facts(
    ledger: mz.privacy.Ledger, *, budget: float | None, client: str | None, top: int
) -> JsonObject:
    """Everything that a ledger of releases says, for JSON."""
    from mezzotint.privacy import ledger as releases_of

    spent = ledger.by_client()
    people = [line for line in ledger.people if not line.withdrawn]
    if people:
        spent |= _people_of(ledger, client, top)
    elif client is not None:
        spent = {client: ledger.spent(client)}
    counted = [charge for charge in ledger.charges if not charge.withdrawn]
    again = Counter(charge.release.client for charge in counted if charge.attempt > 1)
    everyone = again[releases_of.GLOBAL]
    clients = [
        {
            "client": name,
            "releases": paid.releases,
            "repeated": everyone + (again[name] if name != releases_of.GLOBAL else 0),
            "epsilon": paid.epsilon,
            "delta": paid.delta,
            **({} if budget is None else {"left": paid.left(budget)}),
        }
        for name, paid in spent.items()
        if name != releases_of.GLOBAL or paid.releases or len(spent) == 1
    ]
    worst = max(clients, key=lambda one: one["epsilon"])
    fixed = ledger.fixed
    persons = {"persons": ledger.persons} if people else {}
    return {
        "charges": len(counted) + len(people),
        **persons,
        "observer": "of all these releases, each as its claim says",
        "certified": False,
        "method": "basic composition",
        "repeated": sum(again.values()),
        "withdrawn": len(ledger.charges) + len(ledger.people) - len(counted) - len(people),
        "worst": worst,
        "clients": sorted(clients, key=lambda one: -one["epsilon"]),
        "claims": _claims(
            [
                *(charge.release.description for charge in counted),
                *(line.description for line in people),
            ]
        ),
        **({} if budget is None else {"budget": budget}),
        **(
            {}
            if fixed is None
            else {"fixed": dict(zip(("epsilon", "delta", "slack"), fixed, strict=True))}
        ),
    }


def _key(ledger: mz.privacy.Ledger) -> bytes:
    from mezzotint.collect.charging import ledger_key

    return ledger_key(ledger, create=False)


def _people_of(
    ledger: mz.privacy.Ledger, client: str | None, top: int
) -> dict[str, mz.privacy.Spent]:
    """Those who have spent most, or the one named, by their ids."""
    import numpy as np

    from mezzotint.privacy.people import IdHash

    key = _key(ledger)
    if client is not None:
        return {client: ledger.person_spent(client, key=key)}
    listed = ledger.people_spent(top=top)
    hashed = np.frombuffer(b"".join(person for person, _ in listed), dtype=np.uint8)
    names = IdHash(key).names(hashed.reshape(-1, 16))
    return {name: paid for name, (_, paid) in zip(names, listed, strict=True)}


def _converted(old: mz.privacy.Ledger, path: Path) -> mz.privacy.Ledger:
    """A new ledger of segments that charges everybody what the old one does; the old one stays."""
    from mezzotint.collect.charging import inherited_key

    if path.exists():
        raise ParameterError("convert", str(path), "exists already; name a new file")
    key = inherited_key(old, path)
    with progress.bar("converting", unit="charges") as tell:
        new = mz.privacy.convert_ledger(old, path, key=key, progress=tell)
    console.note(f"{path.name} charges as {old.path} does, which is kept")
    return new


def _export(ledger: mz.privacy.Ledger, path: Path, *, overwrite: bool) -> None:
    """JSON lines that people can read: run, person, rows, epsilon."""
    from mezzotint.privacy.people import IdHash

    common.refuse_outputs(".jsonl", overwrite=overwrite, export=path)
    hashes = IdHash(_key(ledger)) if ledger.people else None
    with (
        replacing(path, overwrite=overwrite, parameter="export") as temporary,
        open(temporary, "w", encoding="utf-8") as file,
    ):
        for line in ledger.export(hashes):
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _claims(descriptions: Iterable[str]) -> list[JsonObject]:
    """Each claim once: how many charges name it, and about how many sources, as far as they say."""
    found: dict[str, Counter[str]] = {}
    for text in descriptions:
        claim, _, source = text.partition("; source ")
        found.setdefault(claim, Counter())[source] += 1
    return [
        {"claim": claim, "charges": sum(sources.values()), "sources": len(set(sources) - {""})}
        for claim, sources in found.items()
    ]


def _name(client: str) -> str:
    from mezzotint.privacy import ledger as releases_of

    return "everyone" if client == releases_of.GLOBAL else client


def _picture(file: Path, facts: JsonObject, top: int) -> Group:
    budgeted = ("epsilon left",) if "budget" in facts else ()
    rows = []
    for one in facts["clients"][:top]:
        left = [below(one["left"])] if "left" in one else []
        counts = (str(one["releases"]), str(one["repeated"]))
        rows.append(
            (Text(_name(one["client"])), *counts, above(one["epsilon"]), above(one["delta"]), *left)
        )
    table = tables.TerminalTable(
        ("client", "releases", "of them repeated", "epsilon", "delta", *budgeted), rows
    )
    again = (
        f", {facts['repeated']:,} of them another attempt at the same release"
        if facts["repeated"]
        else ""
    )
    withdrawn = f", {facts['withdrawn']:,} withdrawn" if facts["withdrawn"] else ""
    title = (
        f"{file.name}: {facts['charges']:,} charge{'s' * (facts['charges'] != 1)}{again}{withdrawn}"
    )
    if "persons" in facts:
        title += f" of {facts['persons']:,} people"
    return Group(Text(title), table, Text("\n".join(_words(facts, top))))


def _words(facts: JsonObject, top: int) -> Sequence[str]:
    from mezzotint.privacy import ledger as releases_of

    worst, others = facts["worst"], facts.get("persons", len(facts["clients"])) - top
    lines = [f"{others:,} more clients spent no more than these (--top)"] if others > 0 else []
    whom = _name(worst["client"])
    lines.append(
        f"Largest total: {whom}, epsilon {above(worst['epsilon'])}, delta {above(worst['delta'])}."
    )
    if "budget" in facts:
        exceeded = worst["epsilon"] > facts["budget"]
        left = (
            "exceeded"
            if exceeded
            else f"{below(worst['left'])} of it left for whoever has spent most"
        )
        lines.append(f"Budget: epsilon {facts['budget']:g}, {left}.")
    if "fixed" in facts:
        epsilon, delta, slack = facts["fixed"].values()
        lines.append(
            f"The budget was fixed at epsilon {above(epsilon)} and delta {above(delta)}, {above(slack)} of it slack "
            "for advanced composition: what is reserved may add up to more than this epsilon, and still keep to it."
        )
    lines.append(
        "Computed, to an observer of all these releases: sums of what their claims state (basic composition), valid "
        "whenever they are read. Single claims below may be certified; their sum is computed."
    )
    if any(one["client"] == releases_of.GLOBAL for one in facts["clients"]):
        lines.append(
            "everyone: releases charged without --charge-by. The people in the data are then unknown, so these "
            "releases count for every person."
        )
    lines.append(f"The claim{'s' * (len(facts['claims']) != 1)}:")
    for one in facts["claims"][:top]:
        about = (
            f"{one['sources']} source{'s' * (one['sources'] != 1)}"
            if one["sources"]
            else "sources not recorded"
        )
        lines.append(
            f"{one['charges']:,} x ({about}) {one['claim'] or 'a release without a claim'}"
        )
    return lines


def _show_sums(
    file: Path, header: JsonObject, delta: float, budget: float | None, as_json: bool
) -> None:
    """Show the cost of all sums of a federated client's life; exit status 1 where that exceeds the budget."""
    from mezzotint.privacy.claim import counted

    ledger = mz.federated.LifetimeLedger(file, identity=str(header.get("identity", "")))
    try:
        epsilon = ledger.spent(delta) if ledger.sums else 0.0
    except ParameterError:  # sums without noise of the clients' own
        epsilon = math.inf
    facts: JsonObject = {
        "identity": header.get("identity"),
        "sums": ledger.sums,
        "epsilon": epsilon,
        "delta": delta,
        "neighboring": "replace_one",
        "observer": "secure_sum",
        "certified": False,
    }
    paid = (
        f"epsilon {above(epsilon)}, delta {above(delta)}"
        if math.isfinite(epsilon)
        else "no epsilon can be claimed"
    )
    words = (
        f"{file.name}: {counted(ledger.sums, 'secure sum')} that this client was in, or was charged for\n"
        f"Computed: {paid}, for replacing all data of this client (replace_one), to an observer of the secure sums "
        "alone, each of which is taken for the smallest that its plan allowed."
    )
    if budget is not None:
        facts |= {"budget": budget, "left": max(0.0, budget - epsilon)}
        left = "exceeded" if epsilon > budget else f"{below(budget - epsilon)} of it left"
        words += f"\nBudget: epsilon {budget:g}, {left}."
    console.show({"file": str(file), **facts}, as_json, lambda: words)
    if budget is not None and epsilon > budget:
        raise typer.Exit(1)


def _show_rounds(
    file: Path, header: JsonObject, client: str | None, top: int, as_json: bool
) -> None:
    """A federated run: rounds charged, whose price the run's report states."""
    about = {key: value for key, value in header.items() if key not in ("format", "version")}
    ledger = mz.federated.RunLedger(file, about)
    facts = ledger.as_dict()
    if client is not None:
        facts["charges"] = {client: facts["charges"].get(client, 0)}
    outcomes = Counter(text.partition(":")[0] for text in facts["rounds"].values())
    title = f"{file.name}: " + ", ".join(f"{count} {text}" for text, count in outcomes.items())
    charged = sorted(facts["charges"].items(), key=lambda one: -one[1])
    table = tables.TerminalTable(
        ("client", "rounds charged"), ((Text(name), str(count)) for name, count in charged[:top])
    )
    others = len(charged) - top
    more = (
        f"{others:,} more clients were charged for no more rounds (--top)\n" if others > 0 else ""
    )
    price = "see the report that the run writes when it ends (go on with --resume)"
    if (file.parent / "report.json").is_file():
        price = f"mezzotint report {file.parent} --out run.html"
    words = (
        f"{more}Nobody was charged for more than {max(ledger.charges.values(), default=0)} rounds; an interrupted "
        f"round counts for all who were asked. The smallest sum is of {facts['smallest_sum']} clients. "
        f"What that costs: {price}"
    )
    console.show(
        {"file": str(file), **facts}, as_json, lambda: Group(Text(title), table, Text(words))
    )


def _show_steps(file: Path, header: JsonObject, as_json: bool) -> None:
    """A training run: the steps that were reserved, and the sentence that stands beside the last of them."""
    lines: list[JsonObject] = [
        {"reserved": 0, "claim": None, "sentence": "nothing was reserved yet"}
    ]
    AppendLog(file, header=header, take=lines.append, what="ledger")
    words = f"{file.name}: {lines[-1]['reserved']:,} steps reserved\n{lines[-1]['sentence']}"
    console.show({"file": str(file), **lines[-1]}, as_json, lambda: words)
