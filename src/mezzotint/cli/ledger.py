"""`mezzotint account` and `mezzotint ledger`: what a release would cost, and what releases did cost."""

from __future__ import annotations

import json
import math
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

import mezzotint as mz
from mezzotint.cli import common
from mezzotint.cli.common import AsJson, Overwrite, ProofOption, option
from mezzotint.core.arguments import check_probability
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import AppendLog, replacing
from mezzotint.core.records import JsonObject, above, below

if TYPE_CHECKING:
    from mezzotint.privacy.claim import Trust

ACCOUNT = "mezzotint account m.json --coordinates 1000 --rounds 10 --view sum --clients 1000 --delta 1e-6 --json"
LEDGER = "mezzotint ledger ledger.jsonl --budget 1 --json"

FEDERATED, TRAINING = "mezzotint-federated-ledger", "mezzotint-training-ledger"
LIFETIME = "mezzotint-lifetime-ledger"

_TRUST: dict[str, Trust] = {"local": "local", "sum": "secure_sum", "shuffled": "shuffler"}

_HEADER = 65536
"""Bytes that the first line of a ledger may have."""


def account(
    file: Annotated[Path, typer.Argument(help="Mechanism file (.json).")],
    coordinates: Annotated[int, option("Values that one person reports per round.")] = 1,
    rounds: Annotated[int, option("Rounds that one person may take part in.")] = 1,
    view: Annotated[
        str, option("What is seen. local: every report; sum: secure sums; shuffled: random order.")
    ] = "local",
    clients: Annotated[int | None, option("Reports in a sum or shuffle.")] = None,
    corrupted: Annotated[
        int, option("Number of these clients assumed corrupted; their noise is not counted.")
    ] = 0,
    l2_norm: Annotated[
        float | None,
        option(
            "Bound on the L2 norm of a person's vector, data units (--view sum); without it each value may change fully."
        ),
    ] = None,
    sampling_rate: Annotated[
        float, option("Probability that a person participates in a round, in (0, 1].")
    ] = 1.0,
    sampling: Annotated[
        str,
        option(
            "Who knows that a person participates. public: everyone; poisson, without_replacement: nobody."
        ),
    ] = "public",
    neighboring: Annotated[
        str, option("Neighbouring relation: replace_one or add_or_remove_one.")
    ] = "replace_one",
    delta: Annotated[float, option("Delta of the claim.")] = 1e-6,
    proof: ProofOption = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Compute the epsilon of a complete release: several values and rounds, every report visible or only their sum.

    FILE is a mechanism file (.json).
    """
    common.refuse_outputs(".json", overwrite=overwrite, proof=proof)
    ranked = common.is_ranked(file)
    if view not in _TRUST:
        remedy = "use local (every report is visible), sum (only secure sums are) or shuffled (in random order)"
        raise ParameterError("view", view, remedy)
    if ranked and (coordinates, view == "sum", l2_norm) != (1, False, None):
        remedy = "a ranked codebook's reports are of complete vectors, seen singly or shuffled; no sums, no coordinates"
        raise ParameterError("file", str(file), remedy)
    load = (
        mz.vectors.RankedCodebook.load
        if ranked
        else partial(common.load_mechanism, parameter="file")
    )
    release = mz.privacy.Release(
        mechanism=load(file), dimension=coordinates, rounds=rounds, sampling_rate=sampling_rate, sampling=sampling,
        delta=delta, trust=_TRUST[view], neighboring=neighboring, clients=clients, corrupted=corrupted,
        clip_norm=l2_norm,
    )  # fmt: skip
    claim = (
        mz.privacy.account(release)
        if proof is None
        else common.write_proof(release, proof, overwrite=overwrite)
    )
    others = "; ".join(
        f"epsilon {above(epsilon)} by {name}" for name, epsilon in claim.alternatives[1:]
    )
    also = f"\nAlso valid ({mz.privacy.basis(claim.observer)}): {others}." if others else ""
    common.show({**claim.as_dict(), "claim": str(claim)}, as_json, lambda: str(claim) + also)
    if proof is not None and not claim.certified:
        raise typer.Exit(1)


def ledger(
    file: Annotated[
        Path,
        typer.Argument(
            help="Ledger (.jsonl) of privatize --ledger, federate --out, train --checkpoint, or of a client."
        ),
    ],
    budget: Annotated[
        float | None, option("Epsilon that nobody may exceed; also show what is left.")
    ] = None,
    client: Annotated[
        str | None, option("Show only this client (a person, with --charge-by).")
    ] = None,
    delta: Annotated[
        float | None,
        option(
            "Delta for the epsilon of a federated client's ledger, by default 1e-5; others record theirs."
        ),
    ] = None,
    top: Annotated[int, option("Number of clients to list, largest totals first.", least=1)] = 20,
    export: Annotated[
        Path | None,
        option(
            "Write every person's rows in every run as JSON lines (.jsonl); ids of over 15 bytes as hashes."
        ),
    ] = None,
    convert: Annotated[
        Path | None,
        option(
            "Write a ledger that charges people by name as one of compact segments, to this file."
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Show what a ledger charges to each client (releases, attempts, epsilon), the largest total and what remains.

    FILE is a ledger (.jsonl). Exit status 1: a client's total exceeds --budget.
    """
    if file.is_dir():
        inside = file / "ledger.jsonl"
        remedy = (
            f"name the ledger in it: {inside}"
            if inside.is_file()
            else "it holds no ledger.jsonl; name a ledger"
        )
        raise ParameterError("file", str(file), f"is a folder; {remedy}")
    if not file.is_file():
        raise ParameterError(
            "file", str(file), "no such file; privatize --ledger and federate --out write ledgers"
        )
    if budget is not None and not budget >= 0:
        raise ParameterError("budget", budget, "need an epsilon >= 0")
    header = _header(file)
    kind = header.get("format")
    if budget is not None and kind in (FEDERATED, TRAINING):
        remedy = f"{file.name} counts rounds, whose price the run's report states: leave it out, and see mezzotint report"
        raise ParameterError("budget", budget, remedy)
    if client is not None and kind in (LIFETIME, TRAINING):
        raise ParameterError(
            "client", client, f"{file.name} has no clients to choose from; leave it out"
        )
    if delta is not None and kind != LIFETIME:
        raise ParameterError(
            "delta", delta, f"{file.name} is not a federated client's ledger; leave it out"
        )
    if kind == FEDERATED:
        _show_rounds(file, header, client, top, as_json)
    elif kind == LIFETIME:
        _show_sums(
            file,
            header,
            check_probability("delta", 1e-5 if delta is None else delta),
            budget,
            as_json,
        )
    elif kind == TRAINING:
        _show_steps(file, header, as_json)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said below, in the program's own words
            opened = mz.privacy.Ledger(file)
        for text in opened.repairs:
            common.warn(f"{file.name}: {text}")
        if convert is not None:
            opened = _converted(opened, convert)
        if export is not None:
            _export(opened, export, overwrite=overwrite)
        facts = _facts(opened, budget=budget, client=client, top=top)
        if client is not None and not opened.people and client not in opened.by_client():
            common.note(
                f"no release is charged to {client} alone; releases about everyone count for every client"
            )
        common.show({"file": str(file), **facts}, as_json, lambda: _picture(file, facts, top))
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
    from mezzotint.collect.results import ledger_key

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
    from mezzotint.collect.results import inherited_key

    if path.exists():
        raise ParameterError("convert", str(path), "exists already; name a new file")
    key = inherited_key(old, path)
    with common.progress("converting", unit="charges") as tell:
        new = mz.privacy.convert_ledger(old, path, key=key, progress=tell)
    common.note(f"{path.name} charges as {old.path} does, which is kept")
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
    table = common.TerminalTable(
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
    common.show({"file": str(file), **facts}, as_json, lambda: words)
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
    table = common.TerminalTable(
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
    common.show(
        {"file": str(file), **facts}, as_json, lambda: Group(Text(title), table, Text(words))
    )


def _show_steps(file: Path, header: JsonObject, as_json: bool) -> None:
    """A training run: the steps that were reserved, and the sentence that stands beside the last of them."""
    lines: list[JsonObject] = [
        {"reserved": 0, "claim": None, "sentence": "nothing was reserved yet"}
    ]
    AppendLog(file, header=header, take=lines.append, what="ledger")
    words = f"{file.name}: {lines[-1]['reserved']:,} steps reserved\n{lines[-1]['sentence']}"
    common.show({"file": str(file), **lines[-1]}, as_json, lambda: words)
