"""Errors as one line that begins with the option that was typed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from mezzotint.core.errors import FileFormatError, MezzotintError, ParameterError

OPTION_OF: Mapping[str, Mapping[str, str]] = {
    "account": {"trust": "observer", "levels": "file"},
    "advise": {"trust": "observer", "clients": "clients_per_round"},
    "estimate": {"source": "sources", "counts": "sources"},
    "federate": {"path": "out", "run": "file"},
    "ledger": {"path": "file"},
    "privatize": {
        "path": "ledger",
        "mechanisms": "mechanism",
        "memo": "memoise_by",
        "users": "memoise_by",
        "key": "key_file",
        "rng": "seed",
    },
    "report": {"source": "file", "counts": "file", "path": "file"},
    "train": {"path": "out"},
}
"""Verb -> parameter of the library -> the verb's parameter that holds it, where their names differ.
"""

OBSERVER_OF: Mapping[str, str] = {
    "local": "reports",
    "sum": "secure_sum",
    "shuffler": "shuffled",
}
"""Who is trusted, as the library names it -> what an observer then sees, as options name it."""

_KEYWORD = re.compile(
    r"""(?<![-\w./{])(?P<name>[a-z][a-z_0-9]*)=
    (?P<value>'[^']*'|"[^"]*"|\[[^\]]*\]|[^\s,;:()'"]*)
    (?:[ ]\((?P<option>(?:mezzotint[ ]\w+[ ])?--[^()]*)\))?""",
    re.VERBOSE,
)
"""An argument as Python has it, and the option that the library names behind it."""

_NAME = re.compile(r"""(?<![-\w./'"{=])([a-z]+(?:_[a-z0-9]+)+)(?![\w./'"=-])(?: \((--[^()]*)\))?""")
"""A name of two words or more, and the option that the library names behind it."""

SUGGESTIONS: Mapping[str, Mapping[str, str]] = {
    "design": {"--bits": "--levels 4 makes reports of 2 bits"},
    "estimate": {
        "--mean": "the mean of numbers is always estimated",
        "--median": "--quantiles 0.5 estimates the median",
    },
    "plan": {"--bits": "--levels 4 plans reports of 2 bits"},
    "train": {
        "--data": "the run file names it: --set data.file=table.csv --set data.label=column",
        "--label": "the run file names it: --set data.file=table.csv --set data.label=column",
    },
}
"""Verb -> options that it does not have, but that are looked for -> what does the same."""

_INSTRUCTION = re.compile(
    r"(^|[(;]\s?|\b(use|try|give|with|below|above|exceed|or|and|set)\s|e\.g\.\s)$"
)
"""Before an argument that the reader is to type, or has typed."""


def complaint(error: MezzotintError, verb: Any) -> str:
    """The line that an error becomes: option, value as it was typed, remedy in the library's words.

    Arguments:
        error: what the library raised.
        verb: the parser's command that ran.
    """
    if isinstance(error, FileFormatError):
        return str(error)
    if not isinstance(error, ParameterError):
        return in_words_of(str(error), verb)
    parameter_name, bracket, index = error.parameter.partition("[")
    typed = _option(parameter_name, verb)
    head = f"{_as_typed(typed, parameter_name)}{bracket}{index}"
    remedy = in_words_of(error.remedy, verb)
    if error.value is None:
        return f"{head} is not given: {remedy}"
    if getattr(typed, "is_flag", False):
        return f"{head}: {remedy}"
    value = error.value
    if not isinstance(value, str):
        # As the error shows it, which keeps long values short.
        value = str(error).removeprefix(f"{error.parameter}=").removesuffix(f": {error.remedy}")
    is_argument = getattr(typed, "param_type_name", "") == "argument"
    if is_argument and not isinstance(error.value, str | os.PathLike):
        # The file was typed, and this stands in it.
        return f"{head}: its {parameter_name} {value} are {remedy}"
    return f"{head}={value}: {remedy}"


def in_words_of(text: str, verb: Any) -> str:
    """A sentence of the library in which arguments are options as they are typed.

    Arguments:
        text: may name arguments as Python has them: trust='secure_sum'.
        verb: the parser's command that ran; None leaves only those options that the text names
            itself.
    """

    def as_option(match: re.Match[str]) -> str:
        before = text[: match.start()]
        value = match["value"].strip("'\"")
        if "/" in value or before.count("{") > before.count("}"):
            return match[0]  # a path, or a table of a run file
        if match["option"]:
            return match["option"]
        parameter = _option(match["name"], verb)
        is_option = getattr(parameter, "param_type_name", "") == "option"
        if not is_option or (value and not _INSTRUCTION.search(before)):
            return f"{match['name'].replace('_', ' ')} {value}".strip()
        option = _as_typed(parameter, match["name"])
        if match["name"] == "trust":
            value = OBSERVER_OF.get(value, value)
        if parameter.is_flag or not value:
            return option
        return f"{option}={value}"

    def as_option_alone(match: re.Match[str]) -> str:
        if match[2]:
            return match[2]
        parameter = _option(match[1], verb)
        if getattr(parameter, "param_type_name", "") == "option":
            return _as_typed(parameter, match[1])
        return match[0]

    return _NAME.sub(as_option_alone, _KEYWORD.sub(as_option, text))


def named_verb(program: Any, words: Sequence[str]) -> Any:
    """The parser's command that the words of a command line name; the program itself where none
    does.
    """
    verb = program
    for typed_word in words:
        verb = getattr(verb, "commands", {}).get(typed_word, verb)
    return verb


def _option(parameter_name: str, verb: Any) -> Any:
    """The option or argument of a verb that holds a parameter of the library; None where there is
    none.
    """
    holds = OPTION_OF.get(str(getattr(verb, "name", "")), {}).get(parameter_name, parameter_name)
    for parameter in getattr(verb, "params", ()):
        if holds == parameter.name or f"--{holds.replace('_', '-')}" in parameter.opts:
            return parameter
    return None


def _as_typed(parameter: Any, parameter_name: str) -> str:
    if parameter is None:
        return parameter_name
    if parameter.param_type_name == "option":
        return str(parameter.opts[0])
    return str(parameter.name).upper()


@contextmanager
def renamed(names: Mapping[str, str]) -> Iterator[None]:
    """Around a call whose parameters hold values that the user knows by other names.

    Arguments:
        names: parameter of the library -> option of the verb or key of its file.
    """
    try:
        yield
    except ParameterError as error:
        if error.parameter not in names:
            raise
        renamed_error = ParameterError(names[error.parameter], error.value, error.remedy)
        for note in getattr(error, "__notes__", ()):
            renamed_error.add_note(note)
        raise renamed_error from error
