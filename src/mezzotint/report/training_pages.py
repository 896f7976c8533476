"""The report of a training log: what was learnt, what it cost, what to check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import mezzotint as mz
from mezzotint.core.errors import FileFormatError
from mezzotint.core.files import parse_object, read_text
from mezzotint.core.records import JsonObject, above, number
from mezzotint.privacy.claim import basis
from mezzotint.report.contents import Curve, Figure, Page, Section, Table, nearest_percent

if TYPE_CHECKING:
    from mezzotint.training import rqp

DELTAS = tuple(10.0**-exponent for exponent in range(3, 11))
"""Deltas at which the complete run is accounted again, where the log suffices."""

SIMULATED = "Simulation; not private: this run was seeded and can be repeated bit for bit."

REPORTED = ("step", "loss", "train_accuracy", "test_accuracy", "epsilon")
"""Numbers of a line of the log that reports progress."""

CURVE_NAMES = {"test_accuracy": "test records", "train_accuracy": "training records"}


def training_page(source: Path) -> Page:
    """The report of a training log, as `mezzotint train --out` writes it, even of a run under way.

    Guarantees: every privacy number shown is rounded up.
    """
    log_lines = _lines(source)
    header = _first_line_of_run(log_lines)
    last_line = _last_line_of_run(log_lines)
    history = [_progress(log_line, source) for log_line in log_lines if "step" in log_line]
    if header is None or not history:
        raise FileFormatError(
            f"{source.name}: holds no report of a training run; make one with mezzotint train --out"
        )
    latest_progress = history[-1]
    method_name = (last_line or header).get("method", "no method")
    delta_text = above(header.get("delta", 0.0), 4)
    accuracy = nearest_percent(latest_progress["test_accuracy"])
    return Page(
        title=f"Training of {header.get('model', 'a model')} on {header.get('data', 'records')}",
        summary=f"{latest_progress['step']:,.0f} of {header['steps']:,} steps with {method_name}; "
        f"test accuracy {accuracy}; "
        f"{_cost_in_words(header, latest_progress)} at delta {delta_text}.",
        sections=(
            _learnt(header, last_line, history),
            _cost(header, last_line, history),
            _verify(header, last_line),
        ),
    )


def _first_line_of_run(lines: Sequence[JsonObject]) -> JsonObject | None:
    """The line with the run's settings; None where there is none."""
    for log_line in lines:
        if "step" not in log_line and "steps" in log_line:
            return log_line
    return None


def _last_line_of_run(lines: Sequence[JsonObject]) -> JsonObject:
    """The line that a run ends with, its claim in it; empty where the run has not ended."""
    for log_line in reversed(lines):
        if "step" not in log_line and "claim" in log_line:
            return log_line
    return {}


def _cost_in_words(header: JsonObject, last: JsonObject) -> str:
    cost_text = "no privacy is claimed"
    if last["epsilon"] is not None:
        cost_text = f"epsilon {above(last['epsilon'])} spent ({basis('model')})"
    if header.get("seed") is not None:
        return f"simulation; not private ({cost_text})"
    return cost_text


def _lines(source: Path) -> list[JsonObject]:
    objects = []
    for line_number, line_text in enumerate(read_text(source).splitlines(), start=1):
        try:
            objects.append(parse_object(line_text, name=source.name))
        except FileFormatError:
            raise FileFormatError(
                f"{source.name}: line {line_number} is not a JSON object; the log is cut or of "
                "another kind"
            ) from None
    return objects


def _progress(line: JsonObject, source: Path) -> JsonObject:
    """One report; JSON's words for infinity and NaN become numbers again."""
    progress: JsonObject = {}
    try:
        for field_name in REPORTED:
            progress[field_name] = line[field_name]
            if field_name != "epsilon" or line[field_name] is not None:
                progress[field_name] = float(line[field_name])
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(
            f"{source.name}: a report lacks or garbles {error}; the log was edited"
        ) from None
    return progress


# What it learnt ---------------------------------------------------------------------------------


def _along(history: Sequence[JsonObject], x: str, y: str, factor: float = 1.0) -> Curve:
    """One number of the reports against another, where both are there."""
    complete_lines = [log_line for log_line in history if log_line[x] is not None]
    heights = [factor * log_line[y] for log_line in complete_lines]
    return Curve.of(CURVE_NAMES.get(y, y), [log_line[x] for log_line in complete_lines], heights)


def _learnt(header: JsonObject, end: JsonObject, history: Sequence[JsonObject]) -> Section:
    accuracy_curves = [
        _along(history, "step", field_name, 100.0)
        for field_name in ("test_accuracy", "train_accuracy")
    ]
    accuracy_figure = Figure.of("accuracy", "Accuracy", ("steps", "accuracy (%)"), *accuracy_curves)
    loss_figure = Figure.of(
        "loss", "Loss of a batch", ("steps", "loss"), _along(history, "step", "loss")
    )
    paragraphs = [
        "Losses and accuracies are computed from the records without noise: they are for the "
        "operator's eyes, and no claim covers publishing them.",
    ]
    if end.get("caveat"):
        paragraphs.append(f"Note: {end['caveat']}.")
    if header.get("seed") is not None:
        paragraphs.insert(0, SIMULATED)
    settings_table = Table.of(_settings(header, end, history[-1]), "setting", _cell)
    figures = (accuracy_figure, loss_figure)
    return Section(
        title="What it learnt", words=tuple(paragraphs), figures=figures, table=settings_table
    )


def _settings(header: JsonObject, end: JsonObject, last: JsonObject) -> JsonObject:
    """The settings of the run and where they led."""
    run_facts = {
        setting_name: setting_value
        for setting_name, setting_value in header.items()
        if setting_value is not None
    }
    run_facts.pop("outputs", None)
    run_facts["final test accuracy"] = nearest_percent(last["test_accuracy"])
    run_facts["final training accuracy"] = nearest_percent(last["train_accuracy"])
    # The header has the method's internal name; the end, the one that was asked for.
    if "method" in run_facts and "method" in end:
        run_facts["method"] = end["method"]
    return run_facts


def _cell(value: object) -> str:
    if isinstance(value, float):
        return number(value)
    if isinstance(value, int):
        return f"{value:,}"
    return str(value)


# What it cost -----------------------------------------------------------------------------------


def _cost(header: JsonObject, end: JsonObject, history: Sequence[JsonObject]) -> Section:
    if history[-1]["epsilon"] is None:
        paragraphs = (
            "No noise was added and no table stands between the records and the weights: nothing "
            "is private.",
        )
        return Section(title="What it cost", words=paragraphs)
    paragraphs = [
        str(end.get("claim", "The log does not hold the run's claim.")),
        "Every step counts from the moment its batch is drawn, lost ones after a crash too.",
    ]
    if header.get("seed") is not None:
        paragraphs.insert(0, f"{SIMULATED} What is shown is what it would cost without its seed.")
    epsilon_figure = Figure.of(
        "spent",
        f"Epsilon spent, at delta {header['delta']:g}",
        ("steps", "epsilon"),
        _along(history, "step", "epsilon"),
    )
    accuracy_figure = Figure.of(
        "accuracy-epsilon",
        "Accuracy against epsilon",
        ("epsilon spent", "test accuracy (%)"),
        _along(history, "epsilon", "test_accuracy", 100.0),
    )
    figures = [epsilon_figure, accuracy_figure]
    profile = _profile(header, end)
    if profile is not None:
        figures.append(profile)
    return Section(title="What it cost", words=tuple(paragraphs), figures=tuple(figures))


def _phase(header: JsonObject, end: JsonObject) -> rqp.Phase | None:
    """The run's steps as `rqp` accounts them.

    Returns: None where the log does not say enough, or a table protects.
    """
    from mezzotint.training import rqp

    if "sampling_rate" not in end or not header.get("noise_multiplier"):
        return None
    records_per_user = header.get("records_per_user") or 1
    return rqp.Phase(
        noise_multiplier=header["noise_multiplier"],
        kappa=header.get("kappa", 1.0),
        sampling=rqp.Poisson(rate=end["sampling_rate"], records_per_user=records_per_user),
        steps=end["steps"],
        bands=header.get("bands", 1),
    )


def _profile(header: JsonObject, end: JsonObject) -> Figure | None:
    """Epsilon of the complete run at several deltas; None where the log does not say enough."""
    from mezzotint.training import rqp

    run_phase = _phase(header, end)
    if run_phase is None:
        return None
    neighboring = end.get("neighboring") or "add_or_remove_one"
    profile_deltas = []
    profile_epsilons = []
    for profile_delta in DELTAS:
        release = rqp.training_release([run_phase], delta=profile_delta, neighboring=neighboring)
        claim = mz.privacy.account(release)
        profile_deltas.append(claim.delta)
        profile_epsilons.append(claim.epsilon)
    epsilon_curve = Curve.of("epsilon", profile_deltas, profile_epsilons)
    figure_title = "Privacy profile of the whole run"
    return Figure.of("profile", figure_title, ("delta", "epsilon"), epsilon_curve, log="x")


# How to verify ----------------------------------------------------------------------------------


def _verify(header: JsonObject, end: JsonObject) -> Section:
    section_title = "How to verify it"
    paragraphs = (
        "The claim follows from the noise, the sampling and the number of steps alone, whatever "
        "the records are. That the program adds this noise is not seen in a log: read it, or "
        "audit it (mezzotint.training.audit).",
    )
    run_phase = _phase(header, end)
    if run_phase is None:
        return Section(title=section_title, words=paragraphs)
    python_lines = (
        ">>> from mezzotint.privacy import account\n>>> from mezzotint.training import rqp\n"
        f">>> phase = rqp.Phase(steps={run_phase.steps}, "
        f"noise_multiplier={run_phase.noise_multiplier!r}, kappa={run_phase.kappa!r}, "
        f"bands={run_phase.bands}, sampling=rqp.{run_phase.sampling!r})\n"
        f">>> release = rqp.training_release([phase], delta={header['delta']!r}, "
        f"neighboring={end['neighboring']!r})\n"
        ">>> print(account(release))"
    )
    packed_accuracy = end.get("packed_test_accuracy")
    if packed_accuracy is None:
        return Section(title=section_title, words=paragraphs, code=python_lines)
    accuracy_facts = {"accuracy of the packed model": nearest_percent(packed_accuracy)}
    accuracy_table = Table.of(accuracy_facts, "of the weights as stored")
    return Section(title=section_title, words=paragraphs, table=accuracy_table, code=python_lines)
