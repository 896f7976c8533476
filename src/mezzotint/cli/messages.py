"""Messages in the words of whoever typed the command: an option's name for a parameter's, everywhere in the text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from mezzotint.core.errors import FileFormatError, InfeasibleError, MezzotintError, ParameterError

if TYPE_CHECKING:
    import click

_DATA = dict.fromkeys(("train_x", "train_y", "test_x", "test_y"), "data")

ALIASES: dict[str, dict[str, str]] = {
    "account": {"trust": "view"},
    "advise": {"dimension": "dim", "epsilon": "target_epsilon"},
    "estimate": {"source": "sources", "counts": "sources", "histogram": "bins", "quantiles": "probabilities"},
    "federate": {"path": "out", "codebook": "mechanism", "dimension": "model"},
    "ledger": {"path": "file"},
    "privatize": {"path": "ledger", "people": "charge_by", "users": "memoise_by", "key": "key_file", "rng": "seed"},
    "report": {"source": "file", "counts": "file", "path": "file"},
    "train": {"path": "checkpoint", "clip": "clip_norm", "module": "model", "rounding": "projection", **_DATA},
    "gradients": {"distributions": "distribution"},
}
"""Verb -> parameters of the library and what this verb calls them, where that differs."""

VALUES: dict[str, dict[str, str]] = {
    "account": {"secure_sum": "sum", "shuffler": "shuffled"},
    "advise": {"secure_sum": "sum"},
}
"""Verb -> values of the library and how they are typed, where that differs."""

_COMMAND: ContextVar[object] = ContextVar("command", default=None)

_TOLD = re.compile(r"""\b\w+=(?:"[^"]*"|'[^']*'|[^\s(]*) \((--[^)]+)\)""")
_SETTING = re.compile(r"""(?<![-\w])([a-z]\w*)=("[^"]*"|'[^']*'|[^\s,;:()]*)""")
_WORD = re.compile(r"(?<![-\w/.])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w=/.])")


@contextmanager
def command_line(entered: object, words: Sequence[str]) -> Iterator[None]:
    """Messages speak of the verb among these words of a command line.

    Arguments:
        entered: the whole program, as the parser has it.
    """
    for word in words:
        entered = getattr(entered, "commands", {}).get(word, entered)
    token = _COMMAND.set(entered)
    try:
        yield
    finally:
        _COMMAND.reset(token)


def typed(text: str) -> str:
    """A message of the library with options as they are typed: max_level=3 is --max-level=3, other=True --other."""
    text = _TOLD.sub(r"\1", text)
    return _WORD.sub(lambda found: _word(_option(found[0])) or found[0], _SETTING.sub(_setting, text))


def complaint(error: MezzotintError) -> str:
    """The line that an error becomes; values stand as they were given."""
    if isinstance(error, FileFormatError):  # speaks of what is in a file
        return str(error)
    if not isinstance(error, ParameterError):
        return typed(str(error))
    name, rest = re.match(r"(\w*)(.*)", error.parameter, re.DOTALL).groups()  # type: ignore[union-attr]
    value = str(error).removeprefix(f"{error.parameter}=").removesuffix(f": {error.remedy}")
    option = _option(name, aliases=not isinstance(error.value, bool))
    shown = "" if option is not None and getattr(option, "is_flag", False) else f"{rest}={value}"
    shown = " is not given" if error.value is None else shown
    return f"{_word(option) or name}{shown}: {typed(error.remedy)}"


@contextmanager
def renamed(**names: str) -> Iterator[None]:
    """Around a call whose parameters stand for others of the verb: renamed(epsilon="report_epsilon")."""
    try:
        yield
    except ParameterError as error:
        raise ParameterError(names.get(error.parameter, error.parameter), error.value, error.remedy) from error
    except InfeasibleError as error:
        said = re.sub(r"(?<!\w)(\w+)=", lambda found: f"{names.get(found[1], found[1])}=", str(error))
        raise InfeasibleError(said) from error


def _option(name: str, *, aliases: bool = True) -> click.Parameter | None:
    """The option or argument of the verb that stands for a parameter of the library; None where there is none."""
    command = _COMMAND.get()
    known = ALIASES.get(getattr(command, "name", None) or "", {}) if aliases else {}
    name = known.get(name, name)
    for param in getattr(command, "params", ()):
        if name == param.name or f"--{name.replace('_', '-')}" in param.opts:
            return param
    return None


def _word(option: click.Parameter | None) -> str:
    """How an option or argument is typed; empty for None."""
    if option is None:
        return ""
    return option.opts[0] if option.param_type_name == "option" else str(option.name)


def _setting(found: re.Match[str]) -> str:
    name, value = found.groups()
    option = _option(name)
    if option is None or option.param_type_name != "option":
        return found[0]
    bare = value[1:-1] if value[:1] in ("'", '"') else value
    values = VALUES.get(getattr(_COMMAND.get(), "name", ""), {})
    flag = getattr(option, "is_flag", False)
    return option.opts[0] if flag or not bare else f"{option.opts[0]}={values.get(bare, bare)}"
