"""Errors as one line that begins with the option that was typed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from mezzotint.core.errors import FileFormatError, MezzotintError, ParameterError

OPTION_OF: Mapping[str, Mapping[str, str]] = {
    "account": {"trust": "observer"},
    "advise": {"trust": "observer", "clients": "clients_per_round"},
    "estimate": {"source": "sources", "counts": "sources"},
    "federate": {"path": "out"},
    "ledger": {"path": "file"},
    "privatize": {"path": "ledger", "users": "memoise_by", "key": "key_file", "rng": "seed"},
    "report": {"source": "file", "counts": "file", "path": "file"},
    "train": {"path": "out"},
    "gradients": {"distributions": "distribution"},
}
"""Verb -> parameter of the library -> the verb's parameter that holds it, where their names differ.
"""


def complaint(error: MezzotintError, verb: Any) -> str:
    """The line that an error becomes: option, value as it was typed, remedy in the library's words.

    Arguments:
        error: what the library raised.
        verb: the parser's command that ran.
    """
    if isinstance(error, FileFormatError) or not isinstance(error, ParameterError):
        return str(error)
    parameter_name, bracket, index = error.parameter.partition("[")
    typed = _option(parameter_name, verb)
    head = f"{_as_typed(typed, parameter_name)}{bracket}{index}"
    if error.value is None:
        return f"{head} is not given: {error.remedy}"
    if getattr(typed, "is_flag", False):
        return f"{head}: {error.remedy}"
    value = error.value
    if not isinstance(value, str):
        # As the error shows it, which keeps long values short.
        value = str(error).removeprefix(f"{error.parameter}=").removesuffix(f": {error.remedy}")
    return f"{head}={value}: {error.remedy}"


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
        parameter_name = names.get(error.parameter, error.parameter)
        raise ParameterError(parameter_name, error.value, error.remedy) from error
