"""Options of verbs, their help in panels, closed sets spelled out, and the names that options had
before.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    final,
    get_args,
    get_origin,
    get_type_hints,
)

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo, OptionInfo

NAME_WIDTH = 10
"""Of the longest verb, for lists that align across panels."""

OUTPUT = "Output"
"""The panel of what a verb writes and prints."""

PLACEHOLDERS = {
    "choice": "CHOICE",
    "integer": "N",
    "integer range": "N",
    "float": "NUMBER",
    "path": "FILE",
    "text": "TEXT",
}
"""Kind of value, as the parser has it -> how help shows it."""

KINDS: Mapping[object, str] = {int: "integer", float: "float", Path: "path"}
"""Type of a value -> its kind."""


def option(
    text: str,
    *names: str,
    panel: str | None = None,
    metavar: str | None = None,
    least: int | None = None,
    parser: Callable[[str], Any] | None = None,
) -> OptionInfo:
    """An option of a verb, for `Annotated`.

    Arguments:
        text: its help.
        names: as it is typed; by default the parameter's name. A flag must give its name, or it
            gets a --no-... too.
        panel: of the help that lists it.
        metavar: what help shows in place of its value; by default its kind.
        least: the smallest whole number allowed.
        parser: what makes its value of what is typed.
    """
    return typer.Option(
        *names, help=text, rich_help_panel=panel, metavar=metavar, min=least, parser=parser
    )


def argument(text: str, *, metavar: str | None = None) -> ArgumentInfo:
    """An argument of a verb, for `Annotated`.

    Arguments:
        text: its help.
        metavar: what help shows in its place; by default the parameter's name.
    """
    # Some releases of the parser lose an argument's help, and none its panel.
    return typer.Argument(help=text, metavar=metavar, rich_help_panel=text)


AsJson = Annotated[bool, option("Print one JSON object and nothing else.", "--json", panel=OUTPUT)]
Overwrite = Annotated[
    bool, option("Replace outputs that exist already.", "--overwrite", panel=OUTPUT)
]
ProofOption = Annotated[
    Path | None,
    option("Certify the claim; write it with its proof (.json).", "--proof", panel=OUTPUT),
]
Confidence = Annotated[float, option("Confidence of an interval, in (0, 1).")]
Address = Annotated[str | None, option("Address of a Ray cluster; by default this machine.")]


def verb_of(run: Callable[..., None]) -> Callable[..., None]:
    """The function of a verb for the parser, whose arguments are the options.

    Arguments:
        run: what the verb does; its docstring is the verb's help. Its arguments are the options,
            or it takes one frozen record of them, as `options`.
    """
    if "options" not in run.__annotations__:
        return run
    record = get_type_hints(run)["options"]
    declared = get_type_hints(record, include_extras=True)

    def command(**values: Any) -> None:
        run(record(**values))

    parameters = []
    for option_field in dataclasses.fields(record):
        default = option_field.default
        if default is dataclasses.MISSING:
            default = inspect.Parameter.empty
        annotation = declared[option_field.name]
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(
            inspect.Parameter(option_field.name, kind, default=default, annotation=annotation)
        )
    command.__doc__ = run.__doc__
    command.__annotations__ = declared
    setattr(command, "__signature__", inspect.Signature(parameters))  # noqa: B010  # typing knows no such name
    return command


def family() -> typer.Typer:
    """An application for the verbs of a verb."""
    return typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)


Verb = TypeVar("Verb", bound=Callable[..., None])


def verb(app: typer.Typer, example: str) -> Callable[[Verb], Verb]:
    """A decorator that adds a function, by its name, to the verbs of a verb.

    Arguments:
        app: of the verb, from `family`.
        example: a command line of both verbs, without the program's name and the first verb.
    """

    def add(run: Verb) -> Verb:
        family_name = run.__module__.rpartition(".")[2]
        epilog = f"Example: mezzotint {family_name} {example}"
        app.command(cls=VerbHelp, name=run.__name__, epilog=epilog)(verb_of(run))
        return run

    return add


# Help --------------------------------------------------------------------------------------------


class VerbHelp(TyperCommand):
    """A verb whose help lists its options in panels, one line each where they fit."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the panels; the parser's library calls this."""
        _write_panels(self, ctx, formatter)


class VerbsHelp(TyperGroup):
    """Verbs listed in panels."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the panels of verbs, then of options; the parser's library calls this."""
        panels: dict[str, list[tuple[str, str]]] = {}
        for name in self.list_commands(ctx):
            verb: Any = self.get_command(ctx, name)
            if verb is None or verb.hidden:
                continue
            help_row = (name.ljust(NAME_WIDTH), verb.get_short_help_str(limit=70))
            panels.setdefault(_panel(verb, "Verbs"), []).append(help_row)
        for title, help_rows in panels.items():
            with formatter.section(title):
                formatter.write_dl(help_rows)
        _write_panels(self, ctx, formatter)


def _panel(listed: Any, default: str) -> str:
    """The panel that a verb or an option names."""
    panel = getattr(listed, "rich_help_panel", None)
    if isinstance(panel, str):
        return panel
    return default


def _write_panels(verb: Any, context: Any, formatter: Any) -> None:
    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in verb.get_params(context):
        if getattr(parameter, "hidden", False):
            continue
        panel = _panel(parameter, "Options")
        if parameter.param_type_name == "argument":
            panel = "Input"
        elif {"--help", "--json"} & set(parameter.opts):
            panel = OUTPUT
        panels.setdefault(panel, []).append(_row(parameter))
    output_rows = panels.pop(OUTPUT, None)
    if output_rows is not None:
        last_panel = "Options"
        if panels:
            last_panel = OUTPUT
        panels[last_panel] = output_rows
    for title, help_rows in panels.items():
        with formatter.section(title):
            formatter.write_dl(help_rows, col_max=30)


def value_kind(parameter: Any) -> tuple[str, tuple[str, ...]]:
    """The kind of an option's value, a key of `PLACEHOLDERS`, and the values of a closed set.

    Arguments:
        parameter: as the parser's library has it; its releases describe types in two ways.
    """
    described = getattr(parameter, "type", None)
    if described is not None:
        return str(described.name), tuple(map(str, getattr(described, "choices", ())))
    annotation = parameter.type_descriptor.annotation
    if get_origin(annotation) is Literal:
        return "choice", get_args(annotation)
    return KINDS.get(annotation, "text"), ()


def _row(parameter: Any) -> tuple[str, str]:
    """How an option is typed, and its help with its choices and its default."""
    if parameter.param_type_name == "argument":
        name = parameter.metavar or str(parameter.name).upper()
        if parameter.nargs != 1:
            name = f"{name}..."
        return name, _panel(parameter, "")
    help_text = parameter.help or ""
    names = ", ".join(parameter.opts)
    if parameter.is_flag:
        return names, help_text
    kind, choices = value_kind(parameter)
    if choices:
        between = ", "
        if len(choices) == 2:
            between = " or "
        help_text = f"{help_text} {between.join(map(str, choices))}"
    if parameter.required:
        help_text = f"{help_text} [required]"
    elif parameter.default is not None and parameter.default != ():
        default = parameter.default
        if isinstance(default, float):
            default = f"{default:g}"
        help_text = f"{help_text} [{default}]"
    placeholder = parameter.metavar or PLACEHOLDERS.get(kind, kind.upper())
    return f"{names} {placeholder}", help_text


# Old names ---------------------------------------------------------------------------------------


@final
@dataclass(frozen=True, kw_only=True)
class Renamed:
    """An option under a name that it had before.

    Arguments:
        name: of today.
        values: old values -> those of today; others stay.
    """

    name: str
    values: Mapping[str, str] = field(default_factory=dict)


OLD_NAMES: Mapping[str, Mapping[str, Renamed]] = {
    "account": {
        "--coordinates": Renamed(name="--dimension"),
        "--l2-norm": Renamed(name="--clip-norm"),
        "--view": Renamed(name="--observer", values={"local": "reports", "sum": "secure_sum"}),
    },
    "advise": {
        "--clients": Renamed(name="--clients-per-round"),
        "--dim": Renamed(name="--dimension"),
        "--target-epsilon": Renamed(name="--epsilon"),
        "--trust": Renamed(name="--observer", values={"local": "reports", "sum": "secure_sum"}),
    },
    "compare": {"--png": Renamed(name="--figure")},
    "verify": {"--budget": Renamed(name="--seconds")},
}
"""Verb -> its options by their old names, which still work and say what they are called now."""


def with_names_of_today(words: Sequence[str], warn: Callable[[str], None]) -> list[str]:
    """The words of a command line with old names of options replaced; each replacement is told.

    Arguments:
        words: of the command line, without the program's name.
        warn: prints a warning.
    """
    renamed: Mapping[str, Renamed] = {}
    current: list[str] = []
    values: Mapping[str, str] = {}
    for word in words:
        if not renamed and word in OLD_NAMES:
            renamed = OLD_NAMES[word]
            current.append(word)
            continue
        name, equals, value = word.partition("=")
        if name not in renamed:
            current.append(values.get(word, word))
            values = {}
            continue
        today = renamed[name]
        warn(f"{name} is now called {today.name}")
        if equals:
            current.append(f"{today.name}={today.values.get(value, value)}")
        else:
            current.append(today.name)
            values = today.values
    return current


# Options whose value may be left out ----------------------------------------------------------------


def with_left_out_values(words: Sequence[str], verb: str, values: Mapping[str, str]) -> list[str]:
    """The words of a command line with a value for each option that stands without one.

    Arguments:
        words: of the command line, without the program's name.
        verb: whose options these are; words of another verb stay as they are.
        values: option -> what it means alone.
    """
    if verb not in words:
        return list(words)
    completed = []
    for index, word in enumerate(words):
        following_words = [*words[index + 1 :], "-"]
        if word in values and following_words[0].startswith("-"):
            word = f"{word}={values[word]}"
        completed.append(word)
    return completed
