"""Progress on standard error, where that is a terminal."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from mezzotint.cli.console import notices
from mezzotint.core.records import Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import ProgressColumn


@contextmanager
def bar(text: str, total: float = math.inf, *, unit: str = "") -> Iterator[Progress]:
    """A progress bar on standard error with rate and time left, if that is a terminal; yields the callback.

    Arguments:
        total: number of steps, if known before the first step.
        unit: unit of what is done; given where the total is only an estimate and is not shown.
    """
    from rich import progress as progress_bars

    shown = (progress_bars.BarColumn(), progress_bars.TextColumn("{task.fields[count]}"))
    with live(
        *shown, progress_bars.TimeElapsedColumn(), progress_bars.TimeRemainingColumn()
    ) as bars:
        task = bars.add_task(text, total=None, count="")

        def tell(done: float, total: float) -> None:
            seconds = bars.tasks[0].elapsed or 0.0
            rate = done / seconds if seconds > 0 else 0.0
            count = (
                f"{done:,.0f} {unit}"
                if unit
                else f"{done:.0f}/{total:.0f}"
                if total > 1
                else f"{done:.0%}"
            )
            shown = f"{count} {rate:,.0f}/s" if rate >= 100 else f"{count} {rate:.2g}/s"
            bars.update(
                task, completed=done, total=total if math.isfinite(total) else None, count=shown
            )

        if math.isfinite(total):
            tell(0, total)
        yield tell


@contextmanager
def busy(text: str) -> Iterator[Callable[[str], None]]:
    """A spinner on standard error with the elapsed time during one long call, if that is a terminal.

    Yields what says, beside the text, how far the call is.
    """
    from rich import progress as progress_bars

    with live(progress_bars.TimeElapsedColumn(), spinner=True) as bars:
        task = bars.add_task(text, total=None)
        yield lambda state: bars.update(task, description=f"{text}: {state}")


def live(*columns: ProgressColumn, spinner: bool = False) -> Bars:
    """A progress display on standard error, if that is a terminal: a description, then these columns."""
    from rich import progress as progress_bars

    first = [progress_bars.SpinnerColumn()] if spinner else []
    shown = (*first, progress_bars.TextColumn("{task.description}"), *columns)
    return progress_bars.Progress(
        *shown, console=notices(), transient=True, disable=not sys.stderr.isatty()
    )
