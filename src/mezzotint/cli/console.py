"""What a verb prints: results on standard output, remarks on standard error, text of others
escaped.
"""

from __future__ import annotations

import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterable
from typing import Any, TextIO, final

from rich.console import Console, RenderableType
from rich.segment import Segment

from mezzotint.core.records import JsonObject, escaped, plain

PIPED_WIDTH = 80
"""Columns of tables where standard output is no terminal."""


@final
class EscapingConsole(Console):
    """A console on which no name or content of a file controls the terminal."""

    def render(self, renderable: RenderableType, options: Any = None) -> Iterable[Segment]:
        """Escape the text of every segment; the library calls this for whatever is printed."""
        for segment in super().render(renderable, options):
            if segment.control:
                yield segment
            else:
                yield Segment(escaped(segment.text), segment.style)


def output() -> Console:
    """Console for results."""
    return EscapingConsole(width=_width(sys.stdout))


def notices() -> Console:
    """Console on standard error."""
    return EscapingConsole(stderr=True, width=_width(sys.stderr))


def _width(stream: TextIO) -> int | None:
    """Wide enough for tables where it is not a terminal and COLUMNS asks for nothing else; None
    leaves it to rich.
    """
    if stream.isatty() or "COLUMNS" in os.environ:
        return None
    return PIPED_WIDTH


def say(text: str, *, style: str | None = None, on: Console | None = None) -> None:
    """Print sentences, wrapped between words on a terminal or to the width that COLUMNS gives.

    Pipes and files get the lines unwrapped. Paths and long words are never broken.

    Arguments:
        style: as rich has it.
        on: the console; standard output by default.
    """
    console = on or output()
    if console.is_terminal or "COLUMNS" in os.environ:
        wrapper = textwrap.TextWrapper(
            console.width,
            break_long_words=False,
            break_on_hyphens=False,
        )
        text = "\n".join(wrapper.fill(line) for line in text.split("\n"))
    console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def note(text: str) -> None:
    """Print a remark on standard error, unwrapped unless that is a terminal."""
    say(f"mezzotint: {text}", on=notices())


def warn(text: str) -> None:
    """Print a warning, as `note`."""
    note(f"warning: {text}")


def warn_each(texts: Iterable[str]) -> None:
    """Print several warnings."""
    for text in texts:
        warn(text)


def show(
    facts: JsonObject,
    as_json: bool,
    picture: Callable[[], RenderableType | list[RenderableType]],
    *,
    style: str | None = None,
    on: Console | None = None,
) -> None:
    """Print the results of a verb on standard output.

    Arguments:
        facts: what --json prints as one object; infinities and NaN, which JSON lacks, become text.
        picture: makes the text, the table, or a list of both.
        style, on: of the text, as in `say`.
    """
    if as_json:
        print(json.dumps(plain(facts), allow_nan=False))
        return
    renderables = picture()
    if not isinstance(renderables, list):
        renderables = [renderables]
    for renderable in renderables:
        _print(renderable, style=style, on=on)


def _print(shown: RenderableType, *, style: str | None, on: Console | None) -> None:
    """Print a table as wide as it may be, sentences as `say` does."""
    if isinstance(shown, str):
        say(shown, style=style, on=on)
    else:
        output().print(shown)
