"""The verbs put together, and the one place where errors become one line and an exit status."""

from __future__ import annotations

import errno
import functools
import importlib
import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from mezzotint.cli import (
    advise,
    common,
    compare,
    demo,
    design,
    estimate,
    federate,
    ledger,
    pages,
    plan,
    privatize,
    reproduce,
    show,
    train,
)
from mezzotint.cli.common import option
from mezzotint.core import not_installed
from mezzotint.core.errors import MezzotintError

BAD_INPUT = 2
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)
"""Errors of a place that cannot be written to any further."""

INTERRUPTED = 130

SUMMARY = "Differentially private randomized quantization: few bits, unbiased, with certificates a machine can check."

VERBS = {
    "demo": (demo.command, demo.EXAMPLE),
    "plan": (plan.command, plan.EXAMPLE),
    "design": (design.command, design.EXAMPLE),
    "show": (show.show, show.SHOW),
    "verify": (show.verify, show.VERIFY),
    "privatize": (privatize.command, privatize.EXAMPLE),
    "estimate": (estimate.command, estimate.EXAMPLE),
    "compare": (compare.command, compare.EXAMPLE),
    "account": (ledger.account, ledger.ACCOUNT),
    "ledger": (ledger.ledger, ledger.LEDGER),
    "advise": (advise.command, advise.EXAMPLE),
    "reproduce": (reproduce.reproduce, reproduce.REPRODUCE),
    "report": (pages.report, pages.REPORT),
    "explore": (pages.explore, pages.EXPLORE),
    "train": (train.command, train.EXAMPLE),
    "federate": (federate.command, federate.EXAMPLE),
}
"""Functions whose signatures are the verbs' options, and an example of each."""

ROOMS = {
    "smoothed": "Smoothed differential privacy: how much a published sample of votes or gradients reveals.",
    "roster": "Manage client identities and the roster: the list of all clients that each client of secure sums holds.",
}
"""Rooms with several verbs: `mezzotint.cli.<room>:app` is `mezzotint <room> ...`. Imported only when named."""


EXTRAS = {
    "torch": "torch",
    "opacus": "torch",
    "sklearn": "torch",
    "flwr": "flower",
    "ray": "ray",
    "dash": "explore",
    "flask": "explore",
}
"""Libraries that the core does not need -> the extra that brings them."""


def build(words: Sequence[str]) -> typer.Typer:
    """The application for a command line: verbs and rooms that are not among `words` are listed, but not built."""
    app = typer.Typer(
        name="mezzotint", help=SUMMARY, pretty_exceptions_enable=False, rich_markup_mode="rich"
    )
    app.callback(invoke_without_command=True, help=SUMMARY)(entrance)
    for name, (verb, example) in VERBS.items():
        app.command(name, help=verb.__doc__, epilog=f"Example: {example}")(
            verb if name in words else _nothing
        )
    for room, summary in ROOMS.items():
        if room in words:
            app.add_typer(
                importlib.import_module(f"mezzotint.cli.{room}").app, name=room, help=summary
            )
        else:
            app.add_typer(typer.Typer(callback=_nothing), name=room, help=summary)
    return app


@functools.cache  # a process may run many command lines, and typer reads the annotations of each verb
def _command(names: tuple[str, ...]):  # of a class that typer has elsewhere in each release
    command = typer.main.get_command(build(names))
    for parameter in getattr(command, "commands", {})["estimate"].params:
        meant = estimate.OPTIONAL_VALUES.get(parameter.name)
        if meant is not None:  # typer has no name for this: an option whose value may be left out
            parameter._flag_needs_value, parameter.flag_value = True, meant
    common.refuse_repeats(command)
    return command


def _nothing() -> None:
    """Stands for a verb or a room that this command line does not name."""


def _version(wanted: bool) -> None:
    if wanted:
        from importlib import metadata

        typer.echo(f"mezzotint {metadata.version('mezzotint')}")
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
"""The application without the rooms' own verbs, for typer's tools; `run` is the program."""


def _complain(text: str) -> int:
    # Names and contents of files are printed as they are, but control no terminal and fit every encoding.
    line = "".join(
        letter if letter.isprintable() else ascii(letter)[1:-1] for letter in " ".join(text.split())
    )
    print(f"mezzotint: {line}", file=sys.stderr)
    return BAD_INPUT


def _operating_system(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    reason = f"{where}{error.strerror or str(error)}"
    if error.errno not in FULL:
        return reason
    return f"{reason}; no partial file was left behind. Free some space or choose another place, then run again"


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit status; bad input is one line on standard error, never a traceback.

    Arguments:
        arguments: without the program's name; None reads sys.argv.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    for argument in given:
        if "\0" in argument or any("\ud800" <= letter <= "\udc7f" for letter in argument):
            return _complain(f"{argument}: holds a character that no name can have")
    if "--no-color" in given:  # wherever it stands
        os.environ["NO_COLOR"] = "1"
        given = [argument for argument in given if argument != "--no-color"]
    try:
        # What the shell asks completion for: bash; zsh, fish and PowerShell.
        completed = " ".join(
            os.environ.get(name, "") for name in ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
        ).split()
        entered = _command(tuple(name for name in (*VERBS, *ROOMS) if name in (*given, *completed)))
        with common.command_line(entered, given):
            try:
                status = entered(args=given, prog_name="mezzotint", standalone_mode=False)
                sys.stdout.flush()
            except MezzotintError as error:
                return _complain(common.complaint(error))
    except ModuleNotFoundError as error:
        extra = EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        return _complain(not_installed(str(error.name).partition(".")[0], extra))
    except BrokenPipeError:
        return _close_quietly()
    except OSError as error:
        return _complain(_operating_system(error))
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except Exception as error:
        # Usage errors of the parser; their class lives in different modules in different releases of typer.
        message = getattr(error, "format_message", None)
        if message is None:
            raise
        if not message():  # a room named without a verb: its help is printed already
            return BAD_INPUT
        path = getattr(getattr(error, "ctx", None), "command_path", "mezzotint")
        # Some releases add a guess to a guess.
        said = re.sub(r"(\(?Did you mean [^?]*\?\)?)( ?\1)+", r"\1", message())
        return _complain(f"{said} Try: {path} --help")
    return status if isinstance(status, int) else 0


def _close_quietly() -> int:
    # The reader of our output went away. Python would flush again at exit and complain: give it somewhere to.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _streams() -> str:
    """Makes both streams take every character, as ? where their encoding lacks it; what is wrong with them."""
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  # for as long as the process lives
    if sys.stdout is None:
        return "standard output is closed; nothing was done, give it somewhere to go, as in > /dev/null"
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
        # typer leaves with 1 when the reader of our output went away, and by itself after completing a word.
        status = _close_quietly() if leaving.code == 1 else leaving.code
    sys.exit(status)
