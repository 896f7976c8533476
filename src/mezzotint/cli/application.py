"""The verbs put together, and where errors become one line and an exit status."""

from __future__ import annotations

import errno
import functools
import importlib
import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, final

import typer

from mezzotint.cli import (
    account,
    advise,
    compare,
    console,
    demo,
    design,
    estimate,
    federate,
    ledger,
    messages,
    pages,
    plan,
    privatize,
    reproduce,
    show,
    train,
)
from mezzotint.cli.options import (
    VerbHelp,
    VerbsHelp,
    option,
    verb_of,
    with_left_out_values,
    with_names_of_today,
)
from mezzotint.core import not_installed
from mezzotint.core.errors import MezzotintError, ParameterError
from mezzotint.core.records import escaped

BAD_INPUT = 2
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
"""Errors of a place that cannot be written to any further."""

INTERRUPTED = 130
NO_COLOR = "--no-color"

SUMMARY = (
    "Differentially private randomized quantization: few bits, unbiased, with certificates a "
    "machine can check."
)

PLAN, COLLECT, CHECK, LEARN, PAPERS = "Plan", "Collect", "Check", "Learn", "Papers"
"""Panels of the list of verbs."""


@final
@dataclass(frozen=True, kw_only=True)
class Verb:
    """A verb of the command line.

    Arguments:
        panel: of the list of verbs.
        summary: its line there.
        example: a command line, below its help.
        run: its function, as `verb_of` takes it.
    """

    panel: str
    summary: str
    example: str
    run: Callable[..., None]


VERBS = {
    "plan": Verb(
        panel=PLAN,
        summary="People, epsilon or half width, from the other two",
        example=plan.EXAMPLE,
        run=plan.command,
    ),
    "compare": Verb(
        panel=PLAN,
        summary="Compare mechanisms at the same certified epsilon",
        example=compare.EXAMPLE,
        run=compare.command,
    ),
    "advise": Verb(
        panel=PLAN,
        summary="Rank schemes for means of clients' vectors",
        example=advise.EXAMPLE,
        run=advise.command,
    ),
    "explore": Verb(
        panel=PLAN,
        summary="Open a page on this machine that helps to choose",
        example=pages.EXPLORE,
        run=pages.explore,
    ),
    "design": Verb(
        panel=COLLECT,
        summary="Design a mechanism for a privacy level",
        example=design.EXAMPLE,
        run=design.command,
    ),
    "show": Verb(
        panel=COLLECT,
        summary="Show a mechanism: distributions, errors, certificate",
        example=show.SHOW,
        run=show.show,
    ),
    "privatize": Verb(
        panel=COLLECT,
        summary="Privatize columns: one report per row",
        example=privatize.EXAMPLE,
        run=privatize.command,
    ),
    "estimate": Verb(
        panel=COLLECT,
        summary="Estimate means, shares and quantiles from reports",
        example=estimate.EXAMPLE,
        run=estimate.command,
    ),
    "report": Verb(
        panel=COLLECT,
        summary="Write a page about a mechanism, reports or a run",
        example=pages.REPORT,
        run=pages.report,
    ),
    "verify": Verb(
        panel=CHECK,
        summary="Check a mechanism file or a claim file exactly",
        example=show.VERIFY,
        run=show.verify,
    ),
    "account": Verb(
        panel=CHECK,
        summary="Compute the epsilon of a complete release",
        example=account.EXAMPLE,
        run=account.command,
    ),
    "ledger": Verb(
        panel=CHECK,
        summary="Show what a ledger charges to whom, and what is left",
        example=ledger.EXAMPLE,
        run=ledger.command,
    ),
    "train": Verb(
        panel=LEARN,
        summary="Train a private model with few bits per weight",
        example=train.EXAMPLE,
        run=train.command,
    ),
    "federate": Verb(
        panel=LEARN,
        summary="Run federated learning, here or as an app of Flower",
        example=federate.EXAMPLE,
        run=federate.command,
    ),
    "reproduce": Verb(
        panel=PAPERS,
        summary="Recompute a published table or figure",
        example=reproduce.EXAMPLE,
        run=reproduce.command,
    ),
    "demo": Verb(
        panel=PAPERS,
        summary="Privatize 336,776 real flights with every family",
        example=demo.EXAMPLE,
        run=demo.command,
    ),
}
"""Verbs by name."""


@final
@dataclass(frozen=True, kw_only=True)
class VerbFamily:
    """A verb that has verbs of its own: `mezzotint.cli.<name>:app`, imported only when named.

    Arguments:
        panel: of the list of verbs.
        summary: its line there.
        text: its help.
    """

    panel: str
    summary: str
    text: str


VERB_FAMILIES = {
    "roster": VerbFamily(
        panel=LEARN,
        summary="Make client identities and the list of all clients",
        text=(
            "Manage client identities and the roster: the list of all clients that each client of "
            "secure sums holds."
        ),
    ),
    "smoothed": VerbFamily(
        panel=PAPERS,
        summary="Smoothed differential privacy of a published sample",
        text=(
            "Smoothed differential privacy: how much a published sample of votes or gradients "
            "reveals."
        ),
    ),
}
"""Verbs that have verbs of their own, by name."""


EXTRAS = {
    "torch": "torch",
    "opacus": "torch",
    "sklearn": "torch",
    "flwr": "flower",
    "ray": "ray",
    "marimo": "explore",
}
"""Libraries that the core does not need -> the extra that brings them."""


def build(words: Sequence[str]) -> typer.Typer:
    """The application for a command line: verbs that are not among `words` are listed, but not
    built.
    """
    program = typer.Typer(
        name="mezzotint",
        cls=VerbsHelp,
        help=SUMMARY,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    program.callback(invoke_without_command=True, help=SUMMARY)(entrance)
    for verb_name, verb in VERBS.items():
        command: Callable[..., None] = _nothing
        if verb_name in words:
            command = verb_of(verb.run)
        program.command(
            verb_name,
            cls=VerbHelp,
            help=command.__doc__,
            short_help=verb.summary,
            epilog=f"Example: {verb.example}",
            rich_help_panel=verb.panel,
        )(command)
    for verb_name, family in VERB_FAMILIES.items():
        inner = typer.Typer(callback=_nothing)
        if verb_name in words:
            inner = importlib.import_module(f"mezzotint.cli.{verb_name}").app
        program.add_typer(
            inner,
            name=verb_name,
            cls=VerbsHelp,
            help=family.text,
            short_help=family.summary,
            rich_help_panel=family.panel,
        )
    return program


@functools.cache  # a process may run many command lines, and typer reads the annotations of each verb
def _command(names: tuple[str, ...]) -> Any:  # of a class that typer has elsewhere in each release
    command: Any = typer.main.get_command(build(names))
    refuse_repeats(command)
    return command


def refuse_repeats(command: Any) -> None:
    """Make every command refuse an option of one value that is given twice: the parser would keep
    the last one.
    """
    for inner in getattr(command, "commands", {}).values():
        refuse_repeats(inner)
    parse = command.parse_args

    def parse_once(context: Any, words: list[str]) -> list[str]:
        typed = command.make_parser(context).parse_args(args=list(words))[2]
        for parameter in command.params:
            takes_one = not parameter.multiple and parameter.nargs == 1
            takes_one = takes_one and not getattr(parameter, "is_flag", False)
            count = sum(each is parameter for each in typed)
            if count > 1 and parameter.param_type_name == "option" and takes_one:
                raise ParameterError(
                    parameter.name, f"{count} times", "takes one value; give it once"
                )
        return parse(context, words)

    command.parse_args = parse_once


def _nothing() -> None:
    """In place of a verb that this command line does not name."""


def _version(wanted: bool) -> None:
    if wanted:
        package = importlib.import_module("mezzotint")
        typer.echo(f"mezzotint {package.__version__}")
        raise typer.Exit(0)


Version = Annotated[
    bool,
    typer.Option("--version", callback=_version, is_eager=True, help="Print version and exit."),
]
NoColor = Annotated[
    bool, option("Print without colours, as the environment variable NO_COLOR asks.", "--no-color")
]


def entrance(context: typer.Context, version: Version = False, no_color: NoColor = False) -> None:
    """Options that precede the verb; prints the help if there is no verb."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app = build((*VERBS,))
"""The application without the verbs of verbs, for typer's tools; `run` is the program."""


def _complain(message: str) -> int:
    line = escaped(" ".join(message.split()))
    print(f"mezzotint: {line}", file=sys.stderr)
    return BAD_INPUT


def _with_notes(line: str, error: BaseException) -> str:
    """The line of an error, with what was noted on its way: what is charged or left all the same."""
    notes = [messages.in_words_of(note, None) for note in getattr(error, "__notes__", ())]
    return "; ".join([line, *notes])


def _operating_system(error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.filename:
        reason = f"{error.filename}: {reason}"
    if error.errno not in FULL:
        return reason
    remedy = "Free some space"
    if not getattr(error, "__notes__", ()):  # which say how to go on
        remedy += " or choose another place, then run again"
    return f"{reason}; no partial file was left behind. {remedy}"


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit status; bad input is one line on standard error,
    never a traceback.

    Arguments:
        arguments: without the program's name; None reads sys.argv.
    """
    if arguments is None:
        arguments = sys.argv[1:]
    words = list(arguments)
    for word in words:
        if "\0" in word or any("\ud800" <= letter <= "\udc7f" for letter in word):
            return _complain(f"{word}: holds a character that no name can have")
    if NO_COLOR in words:  # wherever it stands
        os.environ["NO_COLOR"] = "1"
        words = [word for word in words if word != NO_COLOR]
    try:
        words = with_names_of_today(words, console.warn)
        return _run_verb(with_left_out_values(words, "estimate", estimate.OPTIONAL_VALUES))
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        return _complain(not_installed(str(error.name).partition(".")[0], extra))
    except BrokenPipeError:
        return _close_quietly()
    except OSError as error:
        return _complain(_with_notes(_operating_system(error), error))
    except (KeyboardInterrupt, typer.Abort) as error:
        interruption = error.__cause__ or error  # the parser raises an error of its own
        if getattr(interruption, "__notes__", ()):
            _complain(_with_notes("interrupted", interruption))
        return INTERRUPTED
    except Exception as error:
        return _complain_of_usage(error)


def _run_verb(words: list[str]) -> int:
    """Run the verb that the words name; a refusal of the library's is one line."""
    # What the shell asks completion for: bash; zsh, fish and PowerShell.
    completed_words: list[str] = []
    for variable in ("COMP_WORDS", "_TYPER_COMPLETE_ARGS"):
        completed_words += os.environ.get(variable, "").split()
    typed_words = {*words, *completed_words}
    program = _command(tuple(verb for verb in (*VERBS, *VERB_FAMILIES) if verb in typed_words))
    try:
        status = program(args=words, prog_name="mezzotint", standalone_mode=False)
        sys.stdout.flush()
    except MezzotintError as error:
        line = messages.complaint(error, messages.named_verb(program, words))
        return _complain(_with_notes(line, error))
    if isinstance(status, int):
        return status
    return 0


def _complain_of_usage(error: Exception) -> int:
    """The line for an error of the parser, whose class lives in different modules in different
    releases of typer.

    Raises:
        Exception: the error itself, where it is none of the parser's.
    """
    message = getattr(error, "format_message", None)
    if message is None:
        raise error
    text = message()
    if not text:  # a verb of verbs named without one: its help is printed already
        return BAD_INPUT
    path = getattr(getattr(error, "ctx", None), "command_path", "mezzotint")
    verb = path.rpartition(" ")[2]
    option_name = getattr(error, "option_name", "")
    suggestion = messages.SUGGESTIONS.get(verb, {}).get(option_name)
    if suggestion is not None:
        return _complain(f"No such option: {option_name}; {suggestion}. Try: {path} --help")
    # Some releases add a guess to a guess.
    text = re.sub(r"(\(?Did you mean [^?]*\?\)?)( ?\1)+", r"\1", text)
    return _complain(f"{text} Try: {path} --help")


def _close_quietly() -> int:
    # The reader of our output went away. Python would flush again at exit and complain: give it
    # somewhere to.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _streams() -> str:
    """Makes both streams take every character, as ? where their encoding lacks it; what is wrong
    with them.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # for as long as the process lives
    if sys.stdout is None:
        return (
            "standard output is closed; nothing was done, give it somewhere to go, as in > "
            "/dev/null"
        )
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and stream.errors == "strict":
            reconfigure(errors="replace")
    return ""


def main() -> None:
    """The console script `mezzotint`."""
    fault = _streams()
    if fault:
        sys.exit(_complain(fault))
    try:
        status = run()
    except SystemExit as leaving:
        # By itself after completing a word, with 1 when the reader of our output went away.
        status = leaving.code
        if status == 1:
            status = _close_quietly()
    sys.exit(status)
