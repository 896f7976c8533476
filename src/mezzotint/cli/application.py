"""The verbs put together, and the one place where errors become one line and an exit status."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from mezzotint.cli import account, compare, demo, design, estimate, privatize, reproduce, show, verify
from mezzotint.core.errors import MezzotintError
from mezzotint.core.lazy import LazyModule

metadata: Any = LazyModule("importlib.metadata")

BAD_INPUT = 2
INTERRUPTED = 130

app = typer.Typer(
    name="mezzotint",
    help="Differentially private randomized quantization: few bits, unbiased, with certificates a machine can check.",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

_VERBS = {
    "demo": demo.command,
    "design": design.command,
    "show": show.command,
    "verify": verify.command,
    "privatize": privatize.command,
    "estimate": estimate.command,
    "compare": compare.command,
    "account": account.command,
    "reproduce": reproduce.command,
}
_EXAMPLES = {
    "demo": demo.EXAMPLE,
    "design": design.EXAMPLE,
    "show": show.EXAMPLE,
    "verify": verify.EXAMPLE,
    "privatize": privatize.EXAMPLE,
    "estimate": estimate.EXAMPLE,
    "compare": compare.EXAMPLE,
    "account": account.EXAMPLE,
    "reproduce": reproduce.EXAMPLE,
}
_ROOMS = ("smoothed",)
"""Rooms that bring verbs of their own: `mezzotint.cli.<room>:app` becomes `mezzotint <room> ...`."""

for _name, _command in _VERBS.items():
    app.command(_name, epilog=f"Example: {_EXAMPLES[_name]}")(_command)
for _room in _ROOMS:
    if importlib.util.find_spec(f"mezzotint.cli.{_room}") is not None:
        app.add_typer(importlib.import_module(f"mezzotint.cli.{_room}").app, name=_room)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mezzotint {metadata.version('mezzotint')}")
        raise typer.Exit(0)


@app.callback(invoke_without_command=True)
def entrance(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
    no_color: Annotated[
        bool, typer.Option("--no-color", help="No colours; the variable NO_COLOR does the same.")
    ] = False,
) -> None:
    """Differentially private randomized quantization: few bits, unbiased, with certificates a machine can check."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _complain(text: str) -> int:
    print("mezzotint: " + " ".join(text.split()), file=sys.stderr)
    return BAD_INPUT


def _operating_system(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    reason = error.strerror or str(error)
    return f"{where}{reason}; nothing was left half-written, make room or name another place and run again"


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line and returns its exit status; bad input is one line on standard error, never a traceback.

    Arguments:
        arguments: without the program's name; None reads sys.argv.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if "--no-color" in given:  # wherever it stands
        os.environ["NO_COLOR"] = "1"
        given = [argument for argument in given if argument != "--no-color"]
    try:
        status = app(args=given, prog_name="mezzotint", standalone_mode=False)
        sys.stdout.flush()
    except MezzotintError as error:
        return _complain(str(error))
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
        path = getattr(getattr(error, "ctx", None), "command_path", "mezzotint")
        return _complain(f"{message()} Try: {path} --help")
    return status if isinstance(status, int) else 0


def _close_quietly() -> int:
    # The reader of our output went away. Python would flush again at exit and complain: give it somewhere to.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def main() -> None:
    """The console script `mezzotint`."""
    try:
        status = run()
    except SystemExit:  # typer leaves so when the reader of our output went away
        status = _close_quietly()
    sys.exit(status)
