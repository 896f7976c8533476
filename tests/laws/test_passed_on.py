"""Options that a function passes on are checked first: no TypeError of an inner function, no value in silence."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import mezzotint as mz
from mezzotint import ParameterError

SOURCE = Path(mz.__file__).parent


def _passing_on() -> Iterator[tuple[str, ast.FunctionDef, str]]:
    """Public functions that give `**options` to a call that sets further arguments itself."""
    for file in sorted(SOURCE.rglob("*.py")):
        source = file.read_text("utf-8")
        if re.search(r"\*\*\w+: ", source) is None:  # no function with options: not worth parsing
            continue
        for function in ast.walk(ast.parse(source)):
            if not isinstance(function, ast.FunctionDef) or function.args.kwarg is None:
                continue
            if not function.name.startswith("_"):
                yield str(file.relative_to(SOURCE)), function, function.args.kwarg.arg


def _sets_more(function: ast.FunctionDef, options: str) -> bool:
    """Whether a call gets the options beside a keyword that the function has no parameter for."""
    parameters = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)}
    for call in ast.walk(function):
        if not isinstance(call, ast.Call):
            continue
        passed = [
            keyword
            for keyword in call.keywords
            if keyword.arg is None and ast.unparse(keyword.value) == options
        ]
        names = {keyword.arg for keyword in call.keywords if keyword.arg is not None}
        if passed and names - parameters:
            return True
    return False


def _checks(function: ast.FunctionDef, options: str) -> bool:
    for call in ast.walk(function):
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "check_options":
            return ast.unparse(call.args[0]) == options
    return False


PROGRAMS = {
    ("privacy/claim.py", "described"),  # its callers are the package's own
}


def test_whoever_sets_arguments_beside_options_checks_the_options() -> None:
    unchecked: set[tuple[str, str]] = set()
    for file, function, options in _passing_on():
        if _sets_more(function, options) and not _checks(function, options):
            unchecked.add((file, function.name))
    assert unchecked == PROGRAMS


TABLE = mz.families.randomized_response(epsilon=1.0)


@pytest.mark.parametrize("option", ["mechanisms", "misspelt"])
def test_options_of_privatize_are_refused_by_name(option: str) -> None:
    with pytest.raises(ParameterError, match=option):
        mz.collect.privatize("none.csv", "out.csv", column="x", mechanism=TABLE, **{option: 1})


def test_options_of_others_are_refused_by_name() -> None:
    with pytest.raises(ParameterError, match="misspelt"):
        mz.collect.arrow_codes(pa.array([0.5]), TABLE, misspelt=1)
    with pytest.raises(ParameterError, match="rng"):
        mz.collect.register_duckdb_function(None, "name", TABLE, rng=1)
    with pytest.raises(ParameterError, match="tables"):
        mz.collect.plan("mean", epsilon=1.0, people=100, tables=TABLE)
    with pytest.raises(ParameterError, match="mechanism"):
        mz.privacy.account(TABLE, mechanism=TABLE)
    with pytest.raises(ParameterError, match="released"):
        mz.privacy.prove(TABLE, released=TABLE)
