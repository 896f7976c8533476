"""The reports of a training log and of a federated run: what was learnt, what it cost whom, what to check."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import mezzotint as mz
from mezzotint.core.errors import FileFormatError, MezzotintError
from mezzotint.core.files import parse_object, read_object, read_text
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, above, number
from mezzotint.privacy.claim import basis
from mezzotint.report.contents import Curve, Figure, Page, Section, Table
from mezzotint.report.mechanism_pages import what_it_does, what_it_guarantees

if TYPE_CHECKING:
    from mezzotint.training import rqp
    from mezzotint.training.trainer import Standing

DELTAS = tuple(10.0**-k for k in range(3, 11))
"""Deltas at which the complete run is accounted again, where the log suffices."""

_SIMULATED = "Simulation; not private: this run was seeded and can be repeated bit for bit."

_PROGRESS = ("step", "loss", "train_accuracy", "test_accuracy", "epsilon")


def training_page(source: Path) -> Page:
    """The report of a training log, as `mezzotint train --out` writes it, perhaps of a run that is still going.

    Guarantees: every privacy number shown is rounded up.
    """
    lines = _lines(source)
    header = next((line for line in lines if "step" not in line and "steps" in line), None)
    end = next((line for line in reversed(lines) if "step" not in line and "claim" in line), {})
    history = [_progress(line, source) for line in lines if "step" in line]
    if header is None or not history:
        raise FileFormatError(
            f"{source.name}: holds no report of a training run; make one with mezzotint train --out"
        )
    last = history[-1]
    cost = "no privacy is claimed"
    if last["epsilon"] is not None:
        cost = f"epsilon {above(last['epsilon'])} spent ({basis('model')})"
    cost = f"simulation; not private ({cost})" if header.get("seed") is not None else cost
    method = (end or header).get("method", "no method")
    return Page(
        title=f"Training of {header.get('model', 'a model')} on {header.get('data', 'records')}",
        summary=f"{last['step']:,.0f} of {header['steps']:,} steps with {method}; "
        f"test accuracy {_nearest(last['test_accuracy'])}; {cost} at delta {above(header.get('delta', 0.0), 4)}.",
        sections=(_learnt(header, end, history), _cost(header, end, history), _verify(header, end)),
    )


def _lines(source: Path) -> list[JsonObject]:
    found = []
    for place, text in enumerate(read_text(source).splitlines(), start=1):
        try:
            found.append(parse_object(text, name=source.name))
        except FileFormatError:
            raise FileFormatError(
                f"{source.name}: line {place} is not a JSON object; the log is cut or of another kind"
            ) from None
    return found


def _progress(line: JsonObject, source: Path) -> JsonObject:
    """One report; JSON's words for infinity and NaN become numbers again."""
    try:
        # A run without privacy reports no epsilon.
        return {
            name: None if name == "epsilon" and line[name] is None else float(line[name])
            for name in _PROGRESS
        }
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(
            f"{source.name}: a report lacks or garbles {error}; the log was edited"
        ) from None


# What it learnt ----------------------------------------------------------------------------------------------


def _along(history: Sequence[JsonObject], x: str, y: str, factor: float = 1.0) -> Curve:
    known = [line for line in history if line[x] is not None]
    names = {"test_accuracy": "test records", "train_accuracy": "training records"}
    return Curve.of(
        names.get(y, y), [line[x] for line in known], [factor * line[y] for line in known]
    )


def _learnt(header: JsonObject, end: JsonObject, history: Sequence[JsonObject]) -> Section:
    curves = [_along(history, "step", name, 100.0) for name in ("test_accuracy", "train_accuracy")]
    accuracy = Figure.of("accuracy", "Accuracy", ("steps", "accuracy (%)"), *curves)
    loss = Figure.of("loss", "Loss of a batch", ("steps", "loss"), _along(history, "step", "loss"))
    words = [
        "Losses and accuracies are computed from the records without noise: they are for the operator's eyes, and no "
        "claim covers publishing them.",
    ]
    if end.get("caveat"):
        words.append(f"Note: {end['caveat']}.")
    if header.get("seed") is not None:
        words.insert(0, _SIMULATED)
    facts = {name: value for name, value in header.items() if value is not None}
    facts.pop("outputs", None)
    for what, name in (("test", "test_accuracy"), ("training", "train_accuracy")):
        facts[f"final {what} accuracy"] = _nearest(history[-1][name])
    if (
        "method" in facts
    ):  # the header has the method's internal name; the end, the one that was asked for
        facts["method"] = end.get("method", facts["method"])
    table = Table.of(facts, "setting", _cell)
    return Section(
        title="What it learnt", words=tuple(words), figures=(accuracy, loss), table=table
    )


def _nearest(share: float) -> str:
    """An accuracy as a percentage, rounded to nearest: only privacy numbers are rounded up."""
    return f"{100 * share:.4g} %"


def _cell(value: object) -> str:
    return (
        number(value)
        if isinstance(value, float)
        else f"{value:,}"
        if isinstance(value, int)
        else str(value)
    )


def history_figure(history: Sequence[Standing]) -> Figure:
    """Test and training accuracy against epsilon spent (against steps where nothing is private).

    Arguments:
        history: the `Standing`s of a run.

    Returns: the figure, for a page or `sheet`.

    Example:
        >>> history = [
        ...     mz.training.trainer.Standing(
        ...         step=k, loss=1 / k, train_accuracy=0.8, test_accuracy=0.7, epsilon=0.1 * k, seconds=float(k)
        ...     )
        ...     for k in (1, 2)
        ... ]
        >>> len(mz.report.history_figure(history).curves)
        2
    """
    private = all(progress.epsilon is not None for progress in history)
    x = [one.step if one.epsilon is None or not private else one.epsilon for one in history]
    train = [100 * one.train_accuracy for one in history]
    return Figure.of(
        "history",
        "Accuracy",
        ("epsilon spent" if private else "steps", "accuracy (%)"),
        Curve.of("test", x, [100 * one.test_accuracy for one in history]),
        Curve.of("training (not for release)", x, train, "dashed"),
    )


# What it cost ------------------------------------------------------------------------------------------------


def _cost(header: JsonObject, end: JsonObject, history: Sequence[JsonObject]) -> Section:
    title = "What it cost"
    if history[-1]["epsilon"] is None:
        words = (
            "No noise was added and no table stands between the records and the weights: nothing is private.",
        )
        return Section(title=title, words=words)
    claimed = (str(end.get("claim", "The log does not hold the run's claim.")),)
    title_spent = f"Epsilon spent, at delta {header['delta']:g}"
    spent = Figure.of(
        "spent", title_spent, ("steps", "epsilon"), _along(history, "step", "epsilon")
    )
    axes = ("epsilon spent", "test accuracy (%)")
    curve = _along(history, "epsilon", "test_accuracy", 100.0)
    against = Figure.of("accuracy-epsilon", "Accuracy against epsilon", axes, curve)
    profile = _profile(header, end)
    figures = (spent, against) if profile is None else (spent, against, profile)
    if header.get("seed") is not None:
        claimed = (f"{_SIMULATED} What is shown is what it would cost without its seed.", *claimed)
    words = (
        *claimed,
        "Every step counts from the moment its batch is drawn, lost ones after a crash too.",
    )
    return Section(title=title, words=words, figures=figures)


def _phase(header: JsonObject, end: JsonObject) -> rqp.Phase | None:
    """The run's steps as `rqp` accounts them; None where the log does not say enough, or a table protects."""
    from mezzotint.training import rqp

    if "sampling_rate" not in end or not header.get("noise_multiplier"):
        return None
    return rqp.Phase(
        noise_multiplier=header["noise_multiplier"],
        kappa=header.get("kappa", 1.0),
        sampling=rqp.Poisson(
            rate=end["sampling_rate"], records_per_user=header.get("records_per_user") or 1
        ),
        steps=end["steps"],
        bands=header.get("bands", 1),
    )


def _profile(header: JsonObject, end: JsonObject) -> Figure | None:
    from mezzotint.training import rqp

    phase = _phase(header, end)
    if phase is None:
        return None
    neighboring = end.get("neighboring") or "add_or_remove_one"
    claims = [
        mz.privacy.account(rqp.training_release([phase], delta=delta, neighboring=neighboring))
        for delta in DELTAS
    ]
    curve = Curve.of(
        "epsilon", [claim.delta for claim in claims], [claim.epsilon for claim in claims]
    )
    return Figure.of(
        "profile", "Privacy profile of the whole run", ("delta", "epsilon"), curve, log="x"
    )


# How to verify -----------------------------------------------------------------------------------------------


def _verify(header: JsonObject, end: JsonObject) -> Section:
    words = (
        "The claim follows from the noise, the sampling and the number of steps alone, whatever the records are. "
        "That the program adds this noise is not seen in a log: read it, or audit it (mezzotint.training.audit).",
    )
    phase = _phase(header, end)
    if phase is None:
        return Section(title="How to verify it", words=words)
    code = (
        ">>> from mezzotint.privacy import account\n>>> from mezzotint.training import rqp\n"
        f">>> phase = rqp.Phase(steps={phase.steps}, noise_multiplier={phase.noise_multiplier!r}, "
        f"kappa={phase.kappa!r}, bands={phase.bands}, sampling=rqp.{phase.sampling!r})\n"
        f">>> release = rqp.training_release([phase], delta={header['delta']!r}, neighboring={end['neighboring']!r})\n"
        ">>> print(account(release))"
    )
    packed, table = end.get("packed_test_accuracy"), None
    if packed is not None:
        table = Table.of(
            {"accuracy of the packed model": _nearest(packed)}, "of the weights as stored"
        )
    return Section(title="How to verify it", words=words, table=table, code=code)


REPORT, SETTINGS, MECHANISM = "report.json", "settings.json", "mechanism.json"
ENCODING, LEDGER = "encoding.json", "ledger.jsonl"
"""Names in a run's folder."""

_NEEDED = (
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

_VIEWS = {"local": "whoever sees single reports", "central": "whoever sees the sums alone"}


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
    folder = source if source.is_dir() else source.parent
    report = _read(folder / REPORT if source.is_dir() else source)
    missing = [name for name in _NEEDED if name not in report]
    if missing:
        raise FileFormatError(
            f"{source.name}: not the report of a federated run; it lacks {', '.join(missing)}"
        )
    settings = _read(folder / SETTINGS) if (folder / SETTINGS).is_file() else {}
    table = Mechanism.load(folder / MECHANISM) if (folder / MECHANISM).is_file() else None
    sections = [
        _learnt_together(report, settings, _used(folder, report, settings)),
        _cost_of_sums(report),
        _wire(report, settings),
        _rounds(report, settings),
        _verify_sums(report, settings, folder),
    ]
    if table is not None:
        sections += [what_it_does(table), what_it_guarantees(table)]
    claim = report["claims"].get("central") or report["claims"].get("local")
    cost = (
        "no privacy is claimed"
        if claim is None
        else f"epsilon {_epsilon(claim['epsilon'])} ({_basis(claim)})"
    )
    released = sum(outcome == "released" for outcome in report["ledger"]["rounds"].values())
    return Page(
        title=f"Federated run: {settings.get('model', 'a model')} on {settings.get('dataset', 'clients')}",
        summary=f"{released} rounds; accuracy {_nearest(report['accuracy'][-1])}; {report['report_bits']} bits per "
        f"{'vector' if _single(settings) else 'coordinate and report'}; {cost}.",
        sections=tuple(sections),
    )


def _single(settings: JsonObject) -> bool:
    """Whether the server saw single reports, each one index of a ranked codebook, rather than sums."""
    return settings.get("trust") == "local"


def _read(path: Path) -> JsonObject:
    if not path.is_file():
        resume = f"mezzotint federate --out {path.parent.name} --resume"
        raise FileFormatError(
            f"{path.parent.name}: holds no {path.name}; if a run has not ended, go on: {resume}"
        )
    return read_object(path)


def _basis(claim: JsonObject) -> str:
    return basis(claim["observer"], certified=claim.get("certified", False))


def _epsilon(value: float | str) -> str:
    return above(float(value))


def _used(folder: Path, report: JsonObject, settings: JsonObject) -> JsonObject:
    """The mechanism that the run used, its clipping norm and its noise, as far as the encoding in the folder tells."""
    if not (folder / ENCODING).is_file():
        return {}
    values = read_object(folder / ENCODING)
    inner = values
    while isinstance(inner.get("inner"), dict):
        inner = inner["inner"]
    table = inner.get("mechanism", {})
    facts: JsonObject = {"mechanism": inner.get("name") or table.get("name", inner.get("kind"))}
    if "knots" in table:
        facts["clipped to"] = f"{number(table['knots'][0])} to {number(table['knots'][-1])}"
    if _single(settings):
        return facts | {"l2_norm": float(inner["codebook"]["clip_norm"])}
    if inner.get("l2_norm") is not None:
        facts["l2_norm"] = inner["l2_norm"]
    try:
        noise = mz.federated.load_encoding(folder / ENCODING).noise_multiplier(
            report["ledger"]["smallest_sum"]
        )
    except MezzotintError:  # of another version
        return facts
    return facts | ({"noise multiplier of the smallest sum": number(noise)} if noise else {})


def _learnt_together(report: JsonObject, settings: JsonObject, used: JsonObject) -> Section:
    rounds = range(len(report["accuracy"]))
    right = Curve.of("accuracy", rounds, [100 * float(one) for one in report["accuracy"]])
    accuracy = Figure.of(
        "accuracy", "Accuracy on public test data", ("rounds", "accuracy (%)"), right
    )
    lost = Curve.of("loss", rounds, map(float, report["loss"]))
    loss = Figure.of("loss", "Loss on public test data", ("rounds", "loss"), lost)
    places = ("mechanism", "data", "out")  # paths of the machine that ran it
    # The encoding of a mechanism clips; these settings are those of a run without one.
    unused = (
        ("clip", *(() if settings.get("l2_norm") else ("l2_norm",)))
        if settings.get("mechanism")
        else ()
    )
    facts = {
        name: value for name, value in settings.items() if name not in (*places, *unused)
    } | used
    words = (f"The run ended early: {report['stopped']}",) if report["stopped"] else ()
    table = Table.of(facts, "setting") if facts else None
    return Section(title="What was learnt", words=words, figures=(accuracy, loss), table=table)


def _cost_of_sums(report: JsonObject) -> Section:
    claims, charges = report["claims"], report["ledger"]["charges"]
    if not claims:
        words = (
            "No epsilon can be claimed: the mechanism has no table, or no round was released.",
        )
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
        for name, value in (
            claim.get("alternatives") or {claim["method"]: claim["epsilon"]}
        ).items()
    )
    counted = sorted(Counter(charges.values()).items())
    bars = Curve.of(
        "clients",
        [f"{rounds} rounds" for rounds, _ in counted],
        [many for _, many in counted],
        "bars",
    )
    charged = Figure.of("charges", "Rounds that clients are charged for", ("", "clients"), bars)
    table = Table(headings=("against", "accounting", "epsilon (computed)", "delta"), rows=rows)
    return Section(title="What it cost", words=tuple(words), figures=(charged,), table=table)


def _wire(report: JsonObject, settings: JsonObject) -> Section:
    coordinates = int(report["ledger"].get("coordinates", 0))
    single = _single(settings)
    rows = {"coordinates of a vector": f"{coordinates:,}"}
    if single:
        rows["bits of a report about the whole vector"] = report["report_bits"]
        rows["bytes of one client's report, per round"] = (
            f"{math.ceil(report['report_bits'] / 8):,}"
        )
    else:
        rows["bits of a report, per coordinate"] = report["report_bits"]
        rows["bits on the wire, per coordinate: room for the sum of all"] = report["bits"]
        sent = math.ceil(coordinates * report["bits"] / 8)
        rows["bytes of one client's masked vector, per round"] = f"{sent:,}"
    rows["the vector as 32-bit floats, bytes"] = f"{4 * coordinates:,}"
    rows["seconds of the whole run, as measured"] = number(float(report["seconds"]), 4)
    error = report.get("mse")
    if isinstance(error, (int, float)) and math.isfinite(error):
        about = "per coordinate, norm 1" if single else "uniform inputs (squared data units)"
        rows[f"mean squared error of one report, {about}"] = number(float(error))
    return Section(title="What went over the wire", table=Table.of(rows))


def _rounds(report: JsonObject, settings: JsonObject) -> Section:
    ledger, found = (
        report["ledger"],
        Counter((round_, name) for round_, _, name in report["incidents"]),
    )
    rows = tuple(
        (
            number,
            outcome,
            ", ".join(f"{name} x {n}" for (k, name), n in found.items() if str(k) == number)
            or "none",
        )
        for number, outcome in ledger["rounds"].items()
    )
    words = (
        "A round that never ended is charged to everybody who was asked.",
        f"The smallest sum that was released, or may have been, is of {ledger['smallest_sum']} clients; a round that "
        "never ended counts as the smallest that it may have been.",
    )[: 1 if _single(settings) else 2]
    table = Table(headings=("round", "outcome", "refused"), rows=rows)
    return Section(title="What happened", words=words, table=table)


def _verify_sums(report: JsonObject, settings: JsonObject, folder: Path) -> Section:
    """Commands for the run's folder, each of which works on a file that is there."""
    title, single = "How to verify it", _single(settings)
    kept = "The ledger beside the report holds every round with the clients in it, written before "
    kept += "reports were asked for." if single else "anything was unmasked."
    charged = max(report["ledger"]["charges"].values(), default=0)
    claim, file = (
        report["claims"].get("local" if single else "central"),
        ENCODING if single else MECHANISM,
    )
    if (
        claim is None
        or not settings.get("mechanism")
        or charged == 0
        or not (folder / file).is_file()
    ):
        if not (folder / LEDGER).is_file():
            return Section(title=title, words=(kept,))
        return Section(
            title=title, words=(kept, "In the run's folder:"), code=f"$ mezzotint ledger {LEDGER}"
        )
    words = (kept, "With the mechanism file it gives the claims again, in the run's folder:")
    if single:
        code = f"$ mezzotint verify {file}\n$ mezzotint account {file} --rounds {charged} --delta {claim['delta']!r}"
        return Section(title=title, words=words, code=code)
    shared = f"--dimension {report['ledger']['coordinates']} --rounds {charged} --delta {claim['delta']!r}"
    code = (
        f"$ mezzotint verify {file}\n"
        f"$ mezzotint account {file} {shared}\n"
        f"$ mezzotint account {file} {shared} --observer secure_sum --clients {report['ledger']['smallest_sum']}"
    )
    return Section(title=title, words=words, code=code)
