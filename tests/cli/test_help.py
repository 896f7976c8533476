"""Help of every verb: short, in panels, closed sets as choices; old names of options still work and say so."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mezzotint.cli import application
from mezzotint.cli.options import (
    OLD_NAMES,
    value_kind,
    with_left_out_values,
    with_names_of_today,
)
from mezzotint.cli.plan import Estimand, Family

Invoke = Callable[..., Any]

MOST_LINES = 59
MOST_COLUMNS = 80
MOST_OPTIONS = 15
"""Of `train` and `federate`, whose runs are described by files."""


def _commands() -> Iterator[tuple[str, Any]]:
    """Every verb by its words, those of verbs too."""
    program = application._command((*application.VERBS, *application.VERB_FAMILIES))
    for name, command in program.commands.items():
        yield name, command
        for inner, verb in getattr(command, "commands", {}).items():
            yield f"{name} {inner}", verb


COMMANDS = dict(_commands())


@pytest.mark.parametrize("words", COMMANDS)
def test_help_fits_a_screen(words: str, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(MOST_COLUMNS))
    lines = invoke(*words.split(), "--help").out.splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= MOST_COLUMNS


@pytest.mark.parametrize("words", COMMANDS)
def test_every_option_is_explained_in_a_panel(words: str, invoke: Invoke) -> None:
    """What is typed, and words beside it; a set of a few values is spelled out."""
    command = COMMANDS[words]
    shown = " ".join(invoke(*words.split(), "--help").out.split())
    for parameter in command.params:
        if parameter.param_type_name == "argument":
            assert parameter.rich_help_panel, parameter.name
            continue
        assert parameter.help, parameter.name
        assert parameter.opts[0] in shown
        for choice in value_kind(parameter)[1]:
            assert choice in shown
    if not hasattr(command, "commands"):
        assert "--json" in shown
        assert f"Example: mezzotint {words}" in shown


def test_closed_sets_are_choices() -> None:
    """No help lists values that its option does not check: a colon or 'or' between words of a set."""
    closed = {
        "design": ("loss", "family", "metric", "method"),
        "plan": ("estimand", "family"),
        "privatize": ("missing", "on_out_of_range", "engine", "decimal"),
        "estimate": ("method", "engine"),
        "account": ("observer", "sampling", "neighboring"),
        "advise": ("observer",),
        "reproduce": ("model", "device"),
        "smoothed expected": ("method",),
        "smoothed own": ("sampling",),
        "smoothed elections": ("which",),
    }
    for words, names in closed.items():
        options = {parameter.name: parameter for parameter in COMMANDS[words].params}
        for name in names:
            assert len(value_kind(options[name])[1]) >= 2, (words, name)


def test_choices_are_those_of_the_library() -> None:
    from typing import get_args

    from mezzotint.cli import design
    from mezzotint.collect import plans
    from mezzotint.design import constraints, problem
    from mezzotint.families import categories

    assert get_args(Estimand) == get_args(plans.Estimand)
    assert set(get_args(Family)) == set(design.CLOSED_FORMS)
    assert get_args(design.Family) == design.FAMILIES
    assert get_args(design.Loss) == get_args(problem.Loss)
    assert get_args(design.Metric) == get_args(constraints.Metric)
    assert get_args(design.Coding) == get_args(categories.Method)


@pytest.mark.parametrize("verb", ["train", "federate"])
def test_runs_are_described_by_files(verb: str, invoke: Invoke) -> None:
    options = [each for each in COMMANDS[verb].params if each.param_type_name == "option"]
    assert len(options) <= MOST_OPTIONS
    assert "[" in invoke(verb, "--example").out


def test_the_list_of_verbs_has_five_panels(invoke: Invoke) -> None:
    shown = invoke("--help").out
    places = [shown.index(f"{panel}:") for panel in ("Plan", "Collect", "Check", "Learn", "Papers")]
    assert places == sorted(places)
    for name in (*application.VERBS, *application.VERB_FAMILIES):
        assert f"\n  {name} " in shown


def test_a_budget_is_never_seconds() -> None:
    for words, command in COMMANDS.items():
        for parameter in command.params:
            if parameter.name == "budget":
                assert "psilon" in parameter.help, words


@pytest.mark.parametrize("verb", OLD_NAMES)
def test_old_names_are_hidden_aliases_with_a_warning(verb: str) -> None:
    options = {opt for parameter in COMMANDS[verb].params for opt in parameter.opts}
    for old, renamed in OLD_NAMES[verb].items():
        assert old not in options
        assert renamed.name in options
        value = next(iter(renamed.values), "5")
        expected = renamed.values.get(value, value)
        warnings: list[str] = []
        assert with_names_of_today([verb, old, value], warnings.append) == [
            verb,
            renamed.name,
            expected,
        ]
        assert with_names_of_today([verb, f"{old}={value}"], warnings.append) == [
            verb,
            f"{renamed.name}={expected}",
        ]
        assert warnings == [f"{old} is now called {renamed.name}"] * 2


def test_an_old_name_gives_what_its_new_one_does(invoke: Invoke, mechanism_file: Path) -> None:
    crowd = ("--clients", 100, "--json")
    old = invoke("account", mechanism_file, "--view", "sum", "--coordinates=2", *crowd)
    new = invoke("account", mechanism_file, "--observer", "secure_sum", "--dimension=2", *crowd)
    assert old.json == new.json
    assert "--view is now called --observer" in old.err
    assert new.err == ""


def test_an_option_may_stand_without_its_value() -> None:
    values = {"--histogram": "10"}
    for words, completed in (
        ("estimate r.csv --histogram", "estimate r.csv --histogram=10"),
        ("estimate --histogram --json r.csv", "estimate --histogram=10 --json r.csv"),
        ("estimate r.csv --histogram 5", "estimate r.csv --histogram 5"),
        ("estimate r.csv --histogram=5", "estimate r.csv --histogram=5"),
        ("report --histogram", "report --histogram"),
    ):
        assert with_left_out_values(words.split(), "estimate", values) == completed.split()


def test_completion_offers_the_values_of_a_closed_set() -> None:
    words = {
        **os.environ,
        "_MEZZOTINT_COMPLETE": "complete_bash",
        "COMP_WORDS": "mezzotint account m.json --observer ",
        "COMP_CWORD": "4",
    }
    program = [sys.executable, "-c", "from mezzotint.cli import main; main()"]
    completed = subprocess.run(program, capture_output=True, text=True, env=words, check=False)
    assert completed.stdout.split() == ["reports", "secure_sum", "shuffled"]
