"""Runs told as options, for tests that vary one: each becomes a change of an empty run file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

_KEYS = {
    "label": "data.label",
    "users": "data.users",
    "records-per-user": "data.records_per_user",
    "method": "method.kind",
    "target-epsilon": "budget.target_epsilon",
    "noise-multiplier": "budget.noise_multiplier",
    "delta": "budget.delta",
    "neighboring": "budget.neighboring",
    "steps": "run.steps",
    "batch-size": "run.batch_size",
    "averaging": "run.averaging",
    "schedule": "run.schedule",
    "seed": "run.seed",
    "every": "run.every",
    "step-size": "run.optimizer.learning_rate",
    "optimizer": "run.optimizer.kind",
    "clip-norm": "method.clip_norm",
    "bits": "method.bits",
    "q": "method.q",
    "bound": "method.bound",
    "mechanism": "method.mechanism",
    "projection": "method.rounding",
    "weights": "method.weights",
}


def run_words(folder: Path, *options: object) -> list[str]:
    """The words of `mezzotint train` for a run file in a folder, after the verb."""
    file = folder / "run.toml"
    file.write_text("")
    words, given = [str(file)], [str(option) for option in options]
    changes: dict[str, str] = {}
    while given:
        name = given.pop(0)
        key = name.removeprefix("--")
        if key in _KEYS:
            changes[_KEYS[key]] = given.pop(0)
        elif key == "data":
            changes = {kept: text for kept, text in changes.items() if kept not in _DATA}
            value = given.pop(0)
            changes[_data(value)] = value
        elif key == "model":
            changes.update(_model(given.pop(0)))
        elif key == "set":
            words += [name, given.pop(0)]
        elif key == "bands":
            changes |= {"method.noise.kind": "banded", "method.noise.bands": given.pop(0)}
        else:
            words.append(name)
    return [*words, *_set(changes)]


_DATA = ("data.name", "data.file", "data.folder")


def _data(value: str) -> str:
    if Path(value).suffix in (".csv", ".parquet"):
        return "data.file"
    return "data.name" if value == "breast-cancer" else "data.folder"


def _model(value: str) -> dict[str, str]:
    if ".py:" in value:
        return {"model.kind": "module", "model.factory": value}
    return {"model.kind": value}


def _set(changes: dict[str, str]) -> Sequence[str]:
    return [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
