"""The report of a federated run: what was learnt, what it cost whom, what went over the wire, what went wrong."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from mezzotint.core.errors import FileFormatError
from mezzotint.core.files import read_object
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, above, number
from mezzotint.privacy.claim import basis
from mezzotint.report.content import Curve, Figure, Page, Section, Table
from mezzotint.report.mechanism_pages import what_it_does, what_it_guarantees

REPORT, SETTINGS, MECHANISM = "report.json", "settings.json", "mechanism.json"
"""Names in a run's folder."""

_NEEDED = ("accuracy", "loss", "ledger", "claims", "incidents", "stopped", "bits", "report_bits", "seconds")

_VIEWS = {"local": "whoever sees single reports", "central": "whoever sees the sums alone"}


def federated_page(source: Path) -> Page:
    """The report of a federated run.

    Arguments:
        source: the folder that `mezzotint federate --out` wrote, or the report.json in it.

    Raises:
        FileFormatError: no finished run there, or a damaged one.

    Guarantees: every privacy number shown is rounded up.
    """
    folder = source if source.is_dir() else source.parent
    report = _read(folder / REPORT if source.is_dir() else source)
    missing = [name for name in _NEEDED if name not in report]
    if missing:
        raise FileFormatError(f"{source.name}: no report of a federated run; it lacks {', '.join(missing)}")
    settings = _read(folder / SETTINGS) if (folder / SETTINGS).is_file() else {}
    table = Mechanism.load(folder / MECHANISM) if (folder / MECHANISM).is_file() else None
    sections = [_learnt(report, settings), _cost(report), _wire(report, settings), _rounds(report, settings)]
    sections.append(_verify(report, settings))
    if table is not None:
        sections += [what_it_does(table), what_it_guarantees(table)]
    claim = report["claims"].get("central") or report["claims"].get("local")
    cost = "no privacy is claimed" if claim is None else f"epsilon {_epsilon(claim['epsilon'])} ({_basis(claim)})"
    released = sum(outcome == "released" for outcome in report["ledger"]["rounds"].values())
    return Page(
        title=f"Federated run: {settings.get('model', 'a model')} on {settings.get('dataset', 'clients')}",
        summary=f"{released} rounds; accuracy {100 * report['accuracy'][-1]:.4g} %; {report['report_bits']} bits per "
        f"{'vector' if _single(settings) else 'coordinate and report'}; {cost}.",
        sections=tuple(sections),
    )


def _single(settings: JsonObject) -> bool:
    """Whether the server saw single reports, each one index of a ranked codebook, rather than sums."""
    return settings.get("trust") == "local"


def _read(path: Path) -> JsonObject:
    if not path.is_file():
        resume = f"mezzotint federate --out {path.parent.name} --resume"
        raise FileFormatError(f"{path.parent.name}: holds no {path.name}; if a run has not ended, go on: {resume}")
    return read_object(path)


def _basis(claim: JsonObject) -> str:
    observer = claim.get("observer", "reports" if claim["view"] == "local" else "secure_sum")
    return basis(observer, certified=claim.get("certified", False))


def _epsilon(value: float | str) -> str:
    return above(float(value))


def _learnt(report: JsonObject, settings: JsonObject) -> Section:
    rounds = tuple(float(k) for k in range(len(report["accuracy"])))
    accuracy = Figure(
        key="accuracy",
        title="Accuracy on public test data",
        x_label="rounds",
        y_label="decided rightly, %",
        curves=(Curve(name="accuracy", x=rounds, y=tuple(100.0 * float(one) for one in report["accuracy"])),),
    )
    loss = Figure(
        key="loss",
        title="Loss on public test data",
        x_label="rounds",
        y_label="loss",
        curves=(Curve(name="loss", x=rounds, y=tuple(float(one) for one in report["loss"])),),
    )
    places = ("mechanism", "data", "out")  # paths of the machine that ran it
    rows = tuple((name.replace("_", " "), str(value)) for name, value in settings.items() if name not in places)
    words = (f"The run ended early: {report['stopped']}",) if report["stopped"] else ()
    table = Table(headings=("setting", "value"), rows=rows) if rows else None
    return Section(title="What was learnt", words=words, figures=(accuracy, loss), table=table)


def _cost(report: JsonObject) -> Section:
    claims, charges = report["claims"], report["ledger"]["charges"]
    if not claims:
        words = ("No epsilon can be claimed: the mechanism has no table, or no round was released.",)
        return Section(title="What it cost", words=words)
    claims = {view: claim for view, claim in claims.items() if view in _VIEWS}
    words = [f"To {_VIEWS[view]}: {claim['text']}" for view, claim in claims.items()]
    words.append("Claims are about the client that took part most often.")
    if "central" in claims:
        words.append(
            "That about sums trusts the aggregation protocol and relies on the honest clients' randomness; one about "
            "single reports relies on nothing but the client's own."
        )
    rows = tuple(
        (_VIEWS[view], name, _epsilon(value), above(float(claim["delta"]), 4))
        for view, claim in claims.items()
        for name, value in (claim.get("alternatives") or {claim["method"]: claim["epsilon"]}).items()
    )
    counted = Counter(charges.values())
    charged = Figure(
        key="charges",
        title="Rounds that clients are charged for",
        x_label="",
        y_label="clients",
        curves=(
            Curve(
                name="clients",
                x=tuple(f"{rounds} rounds" for rounds in sorted(counted)),
                y=tuple(float(counted[rounds]) for rounds in sorted(counted)),
                style="bars",
            ),
        ),
    )
    table = Table(headings=("against", "accounting", "epsilon (computed)", "delta"), rows=rows)
    return Section(title="What it cost", words=tuple(words), figures=(charged,), table=table)


def _wire(report: JsonObject, settings: JsonObject) -> Section:
    coordinates = int(report["ledger"].get("coordinates", 0))
    single = _single(settings)
    sent = (
        [
            ("bits of a report about the whole vector", str(report["report_bits"])),
            ("bytes of one client's report, per round", f"{math.ceil(report['report_bits'] / 8):,}"),
        ]
        if single
        else [
            ("bits of a report, per coordinate", str(report["report_bits"])),
            ("bits on the wire, per coordinate: room for the sum of all", str(report["bits"])),
            ("bytes of one client's masked vector, per round", f"{math.ceil(coordinates * report['bits'] / 8):,}"),
        ]
    )
    rows = [
        ("coordinates of a vector", f"{coordinates:,}"),
        *sent,
        ("the vector as 32-bit floats, bytes", f"{4 * coordinates:,}"),
        ("seconds of the whole run, as measured", number(float(report["seconds"]), 4)),
    ]
    error = report.get("mse")
    if isinstance(error, (int, float)) and math.isfinite(error):
        about = (
            "of one report, per coordinate, norm 1" if single else "of one report, uniform inputs (squared data units)"
        )
        rows.append((f"mean squared error {about}", number(float(error))))
    return Section(title="What went over the wire", table=Table(headings=("what", "value"), rows=tuple(rows)))


def _rounds(report: JsonObject, settings: JsonObject) -> Section:
    ledger, found = report["ledger"], Counter((round_, name) for round_, _, name in report["incidents"])
    rows = tuple(
        (number, outcome, ", ".join(f"{name} x {n}" for (k, name), n in found.items() if str(k) == number) or "none")
        for number, outcome in ledger["rounds"].items()
    )
    words = (
        "A round that never ended is charged to everybody who was asked.",
        f"The smallest sum that was released, or may have been, is of {ledger['smallest_sum']} clients; a round that "
        "never ended counts as the smallest that it may have been.",
    )[: 1 if _single(settings) else 2]
    table = Table(headings=("round", "outcome", "refused"), rows=rows)
    return Section(title="What happened", words=words, table=table)


def _verify(report: JsonObject, settings: JsonObject) -> Section:
    kept = "The ledger beside the report holds every round with the clients in it, written before "
    kept += "reports were asked for." if _single(settings) else "anything was unmasked."
    charged = max(report["ledger"]["charges"].values(), default=0)
    claim = report["claims"].get("central")
    if claim is None or not settings.get("mechanism") or charged == 0:
        return Section(title="How to verify it", words=(kept,))
    words = (kept, "With the mechanism file it gives the claims again:")
    shared = f"--coordinates {report['ledger']['coordinates']} --rounds {charged} --delta {claim['delta']!r}"
    code = (
        f"$ mezzotint verify {MECHANISM}\n"
        f"$ mezzotint account {MECHANISM} {shared}\n"
        f"$ mezzotint account {MECHANISM} {shared} --view sum --clients {report['ledger']['smallest_sum']}"
    )
    return Section(title="How to verify it", words=words, code=code)
