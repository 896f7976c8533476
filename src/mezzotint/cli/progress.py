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
    from rich.progress import Progress as Bars, ProgressColumn


@contextmanager
def bar(text: str, total: float = math.inf, *, unit: str = "") -> Iterator[Progress]:
    """A progress bar on standard error with rate and time left, if that is a terminal; yields the
    callback.

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
            count = f"{_counted(done, total, unit)} {_rate(done, bars.tasks[0].elapsed)}"
            finite_total = None
            if math.isfinite(total):
                finite_total = total
            bars.update(task, completed=done, total=finite_total, count=count)

        if math.isfinite(total):
            tell(0, total)
        yield tell


def _counted(done: float, total: float, unit: str) -> str:
    """How far the work is: in its unit, in steps, or as a share where the total is 1."""
    if unit:
        return f"{done:,.0f} {unit}"
    if total > 1:
        return f"{done:.0f}/{total:.0f}"
    return f"{done:.0%}"


def _rate(done: float, seconds: float | None) -> str:
    """Steps a second."""
    rate = 0.0
    if seconds:
        rate = done / seconds
    if rate >= 100:
        return f"{rate:,.0f}/s"
    return f"{rate:.2g}/s"


@contextmanager
def busy(text: str) -> Iterator[Callable[[str], None]]:
    """A spinner on standard error with the elapsed time during one long call, if that is a
    terminal.

    Yields what says, beside the text, how far the call is.
    """
    from rich import progress as progress_bars

    with live(progress_bars.TimeElapsedColumn(), spinner=True) as bars:
        task = bars.add_task(text, total=None)
        yield lambda state: bars.update(task, description=f"{text}: {state}")


def live(*columns: ProgressColumn, spinner: bool = False) -> Bars:
    """A progress display on standard error, if that is a terminal: a description, then these
    columns.
    """
    from rich import progress as progress_bars

    description = progress_bars.TextColumn("{task.description}")
    all_columns: list[ProgressColumn] = [description, *columns]
    if spinner:
        all_columns.insert(0, progress_bars.SpinnerColumn())
    return progress_bars.Progress(
        *all_columns,
        console=notices(),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
