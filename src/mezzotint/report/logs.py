"""The report of a training log: what the run learnt, what it cost, how to check the claim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import mezzotint as mz
from mezzotint.core.errors import FileFormatError
from mezzotint.core.files import parse_json, read_text
from mezzotint.core.records import JsonObject, above, number, percent
from mezzotint.privacy.claim import basis
from mezzotint.report.content import Curve, Figure, Page, Section, Table

if TYPE_CHECKING:
    from mezzotint.training import rqp
    from mezzotint.training.trainer import Standing

DELTAS = tuple(10.0**-k for k in range(3, 11))
"""At which the whole run is accounted once more, where the log says enough."""

_SIMULATED = "Simulation; not private: this run was seeded and can be repeated bit for bit."

_REPORTS = ("quantized-gradient", "ranked-gradient")
"""Methods that draw each gradient from a table."""

_PROGRESS = ("step", "loss", "train_accuracy", "test_accuracy", "epsilon")


def training_page(source: Path) -> Page:
    """The report of a training log.

    Arguments:
        source: JSON lines, as `mezzotint train --log` writes them; a log of a run that is still going will do.

    Raises:
        FileFormatError: no training log, or one without a report.

    Guarantees: every privacy number shown is rounded up.
    """
    lines = _lines(source)
    header = next((line for line in lines if "step" not in line and "steps" in line), None)
    end = next((line for line in reversed(lines) if "step" not in line and "claim" in line), None)
    history = [_progress(line, source) for line in lines if "step" in line]
    if header is None or not history:
        raise FileFormatError(f"{source.name}: holds no report of a training run; make one with mezzotint train --log")
    last = history[-1]
    spent = "" if last["epsilon"] is None else f"epsilon {above(last['epsilon'])} spent ({basis(_observer(header))})"
    cost = spent or "no privacy is claimed"
    cost = f"simulation; not private ({cost})" if header.get("seed") is not None else cost
    method = (header if end is None else end).get("method", "no method")
    return Page(
        title=f"Training of {header.get('model', 'a model')} on {header.get('data', 'records')}",
        summary=f"{last['step']:,.0f} of {header['steps']:,} steps with {method}; "
        f"test accuracy {100 * last['test_accuracy']:.4g} %; {cost} at delta {above(header.get('delta', 0.0), 4)}.",
        sections=(_learnt(header, end, history), _cost(header, end, history), _verify(header, end)),
    )


def _observer(header: JsonObject) -> Literal["reports", "model"]:
    """Whom the claim is against: gradients drawn from a table are reports, each of which may be seen."""
    return "reports" if header.get("method") in _REPORTS else "model"


def _lines(source: Path) -> list[JsonObject]:
    found = []
    for place, text in enumerate(read_text(source).splitlines(), start=1):
        try:
            line = parse_json(text, name=source.name)
        except FileFormatError:
            line = None
        if not isinstance(line, dict):
            raise FileFormatError(f"{source.name}: line {place} is no JSON object; the log is cut or of another kind")
        found.append(line)
    return found


def _progress(line: JsonObject, source: Path) -> JsonObject:
    """One report; JSON's words for infinity and NaN become numbers again."""
    try:
        return {
            name: None if name == "epsilon" and line[name] is None else float(line[name]) for name in _PROGRESS
        }  # a run without privacy reports no epsilon
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(f"{source.name}: a report lacks or garbles {error}; the log was edited") from None


# What it learnt ----------------------------------------------------------------------------------------------


def _along(history: Sequence[JsonObject], x: str, y: str, factor: float = 1.0) -> Curve:
    points = [(line[x], factor * line[y]) for line in history if line[x] is not None and math.isfinite(line[x])]
    kept = [point for point in points if math.isfinite(point[1])]
    names = {
        "test_accuracy": "test records",
        "train_accuracy": "training records",
        "loss": "loss",
        "epsilon": "epsilon",
    }
    return Curve(name=names[y], x=tuple(a for a, _ in kept), y=tuple(b for _, b in kept))


def _learnt(header: JsonObject, end: JsonObject | None, history: Sequence[JsonObject]) -> Section:
    accuracy = Figure(
        key="accuracy",
        title="Accuracy",
        x_label="steps",
        y_label="records decided rightly, %",
        curves=tuple(_along(history, "step", name, 100.0) for name in ("test_accuracy", "train_accuracy")),
    )
    loss = Figure(
        key="loss", title="Loss of a batch", x_label="steps", y_label="loss", curves=(_along(history, "step", "loss"),)
    )
    words = [
        "Losses and accuracies are computed from the records without noise: they are for the operator's eyes, and no "
        "claim covers publishing them.",
    ]
    if end is not None and end.get("caveat"):
        words.append(f"Mind: {end['caveat']}.")
    if header.get("seed") is not None:
        words.insert(0, _SIMULATED)
    last = history[-1]
    rows = [(name.replace("_", " "), _cell(value)) for name, value in header.items() if value is not None]
    rows += [
        ("final test accuracy", f"{100 * last['test_accuracy']:.4g} %"),
        ("final training accuracy", f"{100 * last['train_accuracy']:.4g} %"),
    ]
    table = Table(headings=("setting", "value"), rows=tuple(rows))
    return Section(title="What it learnt", words=tuple(words), figures=(accuracy, loss), table=table)


def _cell(value: object) -> str:
    return number(value) if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def history_figure(history: Sequence[Standing]) -> Figure:
    """Test and training accuracy against epsilon spent (against steps where nothing is private).

    Arguments:
        history: the `Standing`s of a run.
    """
    private = all(progress.epsilon is not None for progress in history)
    x = tuple(float(one.step) if one.epsilon is None or not private else one.epsilon for one in history)
    return Figure(
        key="history",
        title="Accuracy",
        x_label="epsilon spent" if private else "steps",
        y_label="accuracy (%)",
        curves=(
            Curve(name="test", x=x, y=tuple(100 * progress.test_accuracy for progress in history)),
            Curve(
                name="training (not for release)",
                x=x,
                y=tuple(100 * progress.train_accuracy for progress in history),
                style="dashed",
            ),
        ),
    )


# What it cost ------------------------------------------------------------------------------------------------


def _cost(header: JsonObject, end: JsonObject | None, history: Sequence[JsonObject]) -> Section:
    title = "What it cost"
    if history[-1]["epsilon"] is None:
        words = ("No noise was added and no table stands between the records and the weights: nothing is private.",)
        return Section(title=title, words=words)
    claimed = (str(end["claim"]),) if end is not None else ("The log does not hold the run's claim.",)
    spent = Figure(
        key="spent",
        title=f"Epsilon spent, at delta {header['delta']:g}",
        x_label="steps",
        y_label="epsilon",
        curves=(_along(history, "step", "epsilon"),),
    )
    against = Figure(
        key="accuracy-epsilon",
        title="Accuracy against epsilon",
        x_label="epsilon spent",
        y_label="test records decided rightly, %",
        curves=(_along(history, "epsilon", "test_accuracy", 100.0),),
    )
    profile = _profile(header, end)
    figures = (spent, against) if profile is None else (spent, against, profile)
    if header.get("seed") is not None:
        claimed = (f"{_SIMULATED} What is shown is what it would cost without its seed.", *claimed)
    words = (*claimed, "Every step counts from the moment its batch is drawn, lost ones after a crash too.")
    return Section(title=title, words=words, figures=figures)


def _phase(header: JsonObject, end: JsonObject | None) -> rqp.Phase | None:
    """The run's steps as `rqp` accounts them; None where the log does not say enough, or a table protects."""
    from mezzotint.training import rqp

    if end is None or "sampling_rate" not in end or not header.get("noise_multiplier"):
        return None
    return rqp.Phase(
        noise_multiplier=header["noise_multiplier"],
        kappa=header.get("kappa", 1.0),
        sampling=rqp.Poisson(rate=end["sampling_rate"], records_per_user=header.get("records_per_user") or 1),
        steps=end["steps"],
        bands=header.get("bands", 1),
    )


def _profile(header: JsonObject, end: JsonObject | None) -> Figure | None:
    from mezzotint.training import rqp

    phase = _phase(header, end)
    if end is None or phase is None:
        return None
    neighboring = end.get("neighboring") or "add_or_remove_one"
    claims = [
        mz.privacy.account(rqp.training_release([phase], delta=delta, neighboring=neighboring)) for delta in DELTAS
    ]
    kept = [(claim.delta, claim.epsilon) for claim in claims if math.isfinite(claim.epsilon)]
    curve = Curve(name="epsilon", x=tuple(d for d, _ in kept), y=tuple(e for _, e in kept))
    return Figure(
        key="profile",
        title="Privacy profile of the whole run",
        x_label="delta",
        y_label="epsilon",
        curves=(curve,),
        log_x=True,
    )


# How to verify -----------------------------------------------------------------------------------------------


def _verify(header: JsonObject, end: JsonObject | None) -> Section:
    source, act = ("table", "draws from this table") if _observer(header) == "reports" else ("noise", "adds this noise")
    words = (
        f"The claim follows from the {source}, the sampling and the number of steps alone, whatever the records are. "
        f"That the program {act} is not seen in a log: read it, or audit it (mezzotint.training.audit).",
    )
    phase = _phase(header, end)
    if end is None or phase is None:
        return Section(title="How to verify it", words=words)
    code = (
        ">>> from mezzotint.privacy import account\n>>> from mezzotint.training import rqp\n"
        f">>> phase = rqp.Phase(steps={phase.steps}, noise_multiplier={phase.noise_multiplier!r}, "
        f"kappa={phase.kappa!r}, bands={phase.bands}, sampling=rqp.{phase.sampling!r})\n"
        f">>> release = rqp.training_release([phase], delta={header['delta']!r}, neighboring={end['neighboring']!r})\n"
        ">>> print(account(release))"
    )
    rows = (
        (("accuracy of the packed model", percent(end["packed_test_accuracy"])),)
        if "packed_test_accuracy" in end
        else ()
    )
    table = Table(headings=("of the weights as stored", "value"), rows=rows) if rows else None
    return Section(title="How to verify it", words=words, table=table, code=code)
