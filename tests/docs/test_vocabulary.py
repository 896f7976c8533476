"""docs/vocabulary.md, held: options, keys of run files, parameters of public names, and commands on the pages."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mezzotint.cli import application
from mezzotint.cli.options import OLD_NAMES
from mezzotint.cli.runfile import rename_keys
from mezzotint.core.errors import ParameterError

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "vocabulary.md"
SUBPACKAGES = (
    "core",
    "families",
    "privacy",
    "design",
    "vectors",
    "smoothed",
    "collect",
    "training",
    "federated",
    "report",
    "kernel",
    "datasets",
    "papers",
)


def _retired() -> set[str]:
    """The words of the page's last column that stand for themselves."""
    words: set[str] = set()
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            cell = line.strip("|").split("|")[-1].strip()
            if re.fullmatch(r"`\w+`(, `\w+`)*", cell):
                words |= set(re.findall(r"`(\w+)`", cell))
    return words


RETIRED = _retired()


def test_the_page_names_the_retired_words() -> None:
    assert {"view", "dim", "coordinates", "per_round", "lr", "step_size", "l2_norm"} == RETIRED


def _options() -> Iterator[tuple[str, str]]:
    program: Any = application._command((*application.VERBS, *application.VERB_FAMILIES))
    for name, verb in program.commands.items():
        for words, command in ((name, verb), *getattr(verb, "commands", {}).items()):
            for parameter in command.params:
                for typed in parameter.opts:
                    yield words, typed


def test_no_option_has_a_retired_name() -> None:
    retired = {f"--{word.replace('_', '-')}" for word in RETIRED} | {"--trust", "--level"}
    for words, typed in _options():
        assert typed not in retired, words
    old = {name for names in OLD_NAMES.values() for name in names}
    assert old >= {"--view", "--dim", "--coordinates", "--l2-norm", "--trust"}


def _keys(document: dict[str, Any]) -> Iterator[str]:
    for key, value in document.items():
        yield key
        if isinstance(value, dict):
            yield from _keys(value)


def test_no_key_of_a_run_file_has_a_retired_name() -> None:
    from mezzotint.cli import federate_run, train

    for example in (federate_run.EXAMPLE_RUN, train.EXAMPLE_RUN):
        assert not RETIRED & set(_keys(tomllib.loads(example)))
    records = [each.type for each in dataclasses.fields(federate_run.RunFile)]
    assert records
    for table in (*federate_run.KINDS.values(), *_tables(federate_run)):
        assert not RETIRED & {each.name for each in dataclasses.fields(table)}, table


def _tables(module: Any) -> list[type]:
    names = ("Data", "Model", "Training", "Rounds", "Privacy", "Server", "Evaluate")
    return [getattr(module, name) for name in names]


def test_old_keys_are_read_with_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    old_keys = {
        "rounds.clients": "rounds.clients_per_round",
        "run.optimizer.lr": "run.optimizer.learning_rate",
    }
    document: dict[str, Any] = {"rounds": {"clients": 3}, "run": {"optimizer": {"lr": 0.1}}}
    rename_keys(document, old_keys)
    assert document == {
        "rounds": {"clients_per_round": 3},
        "run": {"optimizer": {"learning_rate": 0.1}},
    }
    said = capsys.readouterr().err
    assert "rounds.clients is now called rounds.clients_per_round" in said
    rename_keys(document, old_keys)
    assert capsys.readouterr().err == ""
    with pytest.raises(ParameterError, match=r"rounds\.clients_per_round, which is there too"):
        rename_keys({"rounds": {"clients": 3, "clients_per_round": 4}}, old_keys)


@pytest.mark.parametrize("kind", ["rounded-gaussian", "ranked"])
def test_written_apps_and_runs_speak_as_the_page_does(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Keys of an app's configuration, what its modules call, and what a run's ledger states."""
    pytest.importorskip("flwr", reason="federated learning is an extra")
    from mezzotint.cli import run
    from mezzotint.federated import app
    from mezzotint.federated.run_ledger import Checkpoint, RunLedger
    from mezzotint.federated.settings import RunSettings

    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text(
        f'[mechanism]\nkind = "{kind}"\nclip_norm = 1.0\n[privacy]\nepsilon = 60.0\n'
    )
    assert run(["federate", "run.toml", "--app", "app"]) == 0, capsys.readouterr().err
    project = tomllib.loads(Path("app/pyproject.toml").read_text(encoding="utf-8"))
    config = {key.replace("-", "_") for key in project["tool"]["flwr"]["app"]["config"]}
    ambiguous = {"clients", "rate", "learning_rate", "trust", "level"}
    assert not config & (RETIRED | ambiguous)
    assert config >= {"population", "clients_per_round", "observer", "clip_norm"}
    called = set()
    for file in Path("app").rglob("*.py"):
        called |= set(re.findall(r"(\w+)=", file.read_text(encoding="utf-8")))
    assert "observer" in called
    assert not called & (RETIRED | ambiguous)
    settings = RunSettings(out=str(tmp_path))
    ledger = app._ledger(
        settings, Checkpoint(parameters=np.zeros(2), done=0, session=bytes(16)), "l.jsonl", "ab", 2
    )
    assert isinstance(ledger, RunLedger)
    assert not RETIRED & set(ledger.as_dict())


def test_examples_speak_as_the_page_does() -> None:
    files = [*(ROOT / "examples").rglob("*.toml"), *(ROOT / "examples").rglob("*.py")]
    assert files
    for file in files:
        words = set(
            re.findall(r"(?m)(?:^|[(, ])([a-z][\w-]*) ?=", file.read_text(encoding="utf-8"))
        )
        assert not {word.replace("-", "_") for word in words} & RETIRED, file


def _fields(public: type) -> Iterator[str]:
    """Fields and properties of a class, but for those that only say a new name."""
    if dataclasses.is_dataclass(public):
        yield from (field.name for field in dataclasses.fields(public))
    for name in dir(public):
        attribute = inspect.getattr_static(public, name)
        if isinstance(attribute, property) and not isinstance(attribute.fget, functools.partial):
            yield name


def _parameters() -> Iterator[str]:
    """Parameters of public functions, classes and their methods, and fields of classes, as
    subpackage.name(parameter).
    """
    for subpackage in SUBPACKAGES:
        module = importlib.import_module(f"mezzotint.{subpackage}")
        for name in dir(module):
            if name.startswith("_"):
                continue
            try:
                public = getattr(module, name)
            except ImportError:  # of an extra that is not installed
                continue
            callables = {f"{subpackage}.{name}": public}
            if inspect.isclass(public):
                yield from (f"{subpackage}.{name}({field})" for field in _fields(public))
                for method, function in vars(public).items():
                    if not method.startswith("_"):
                        inner = getattr(function, "__func__", function)
                        callables[f"{subpackage}.{name}.{method}"] = inner
            for words, function in callables.items():
                if not callable(function):
                    continue
                try:
                    parameters = inspect.signature(function).parameters
                except (ValueError, TypeError):
                    continue
                yield from (f"{words}({parameter})" for parameter in parameters)


def test_no_public_parameter_or_field_takes_a_retired_name_again() -> None:
    pytest.importorskip("flwr", reason="federated learning is an extra")
    found = {each for each in _parameters() if each.partition("(")[2].rstrip(")") in RETIRED}
    assert found == set()
    levels = [each for each in _parameters() if each.endswith("(level)")]
    assert all(
        each.startswith("privacy.Certificate") for each in levels
    )  # an output, not confidence


COMMAND = re.compile(r"mezzotint (account|advise|verify)\b[^\n`]*")


def test_commands_on_the_pages_have_the_names_of_today() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    for page in pages:
        for command in COMMAND.finditer(page.read_text(encoding="utf-8")):
            for old in OLD_NAMES[command[1]]:
                assert not re.search(rf"{old}(?![-\w])", command[0]), f"{page.name}: {command[0]}"
