"""Tables on terminals of any width: no number is cut, no heading stands twice."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Column, Table
from rich.text import Text

PROSE = 24
"""Words in a column that is wider than this stand below the table where it is too wide; see also `_is_prose`."""


@final
@dataclass(frozen=True)
class Fitted:
    """A table as the console has room for it; the first `keys` columns say what a row is about.

    Headings break between words, cells never: what is too wide goes on below, its rows named again and its columns not,
    and whole sentences follow, each once.
    """

    table: Table
    keys: int = 1

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        table, room = self.table, options.max_width
        needs = [_need(console, column, head=table.show_header) for column in table.columns]
        if _whole(needs) <= room:
            yield _part(table, range(len(needs)), needs, named=range(len(needs)), last=True, room=room)
            return
        keys, others = range(self.keys), range(self.keys, len(needs))
        prose = [i for i in others if _is_prose(table.columns[i], needs[i])]
        groups = _groups(needs, self.keys, [i for i in others if i not in prose], room)
        for place, group in enumerate(groups):
            named = (*keys, *group) if place == 0 else group
            yield _part(table, (*keys, *group), needs, named=named, last=group is groups[-1], room=room)
        yield from _sentences(console, table, self.keys, prose)


def headed(
    columns: Iterable[str], *, left: Collection[str] | None = None, title: str | None = None, caption: str | None = None
) -> Table:
    """A table without rows: numbers stand on the right of their columns, words on the left.

    Arguments:
        columns: headings.
        left: those of words; the first one if not given.
    """
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for place, name in enumerate(columns):
        words = place == 0 if left is None else name in left
        table.add_column(name, justify="left" if words else "right")
    return table


def ends(level: float) -> list[str]:
    """Headings of an interval's two ends."""
    return [f"{100 * level:.4g} % {end}" for end in ("low", "high")]


def _need(console: Console, column: Column, *, head: bool) -> int:
    """Least width of a column: of its widest cell, and of the widest word of its heading."""
    words = str(column.header).split() if head else []
    return max((console.measure(cell).maximum for cell in (*column.cells, *words)), default=1)


def _is_prose(column: Column, need: int) -> bool:
    """Words to be read below the table: long ones, and remarks that most rows have none of."""
    cells = [cell.plain if isinstance(cell, Text) else str(cell) for cell in column.cells]
    return column.justify == "left" and (need > PROSE or 2 * sum(map(bool, cells)) < len(cells))


def _whole(needs: Sequence[int]) -> int:
    return sum(needs) + 3 * len(needs) + 1


def _groups(needs: Sequence[int], keys: int, columns: Sequence[int], room: int) -> list[list[int]]:
    groups: list[list[int]] = [[]]
    for i in columns:
        if groups[-1] and _whole([*needs[:keys], *(needs[j] for j in (*groups[-1], i))]) > room:
            groups.append([])
        groups[-1].append(i)
    return groups


def _part(
    table: Table, chosen: Sequence[int], needs: Sequence[int], *, named: Sequence[int], last: bool, room: int
) -> Table:
    """These columns, some with their headings; the title above the first part, the caption below the last."""
    first = 0 in named
    wide = [max(needs[i], cell_len(str(table.columns[i].header))) if i in named else needs[i] for i in chosen]
    broken = _whole(wide) > room  # rich would narrow the widest column, and cut the last one after all
    part = Table(
        title=table.title if first else None,
        title_justify=table.title_justify,
        caption=table.caption if last else None,
        caption_justify=table.caption_justify,
        show_header=table.show_header,
    )
    for i in chosen:
        column = table.columns[i]
        head = column.header if i in named else ""
        width = needs[i] if broken else None
        part.add_column(head, justify=column.justify, width=width, min_width=needs[i], no_wrap=not table.show_header)
    for cells, row in zip(zip(*(table.columns[i].cells for i in chosen), strict=True), table.rows, strict=True):
        part.add_row(*cells, style=row.style, end_section=row.end_section)
    return part


def _sentences(console: Console, table: Table, keys: int, prose: Sequence[int]) -> Iterator[Text]:
    """What the columns of words say, each once, after whom it is about."""

    def plain(cell: RenderableType) -> str:
        return cell.plain if isinstance(cell, Text) else console.render_str(str(cell)).plain

    columns = [[plain(cell) for cell in column.cells] for column in table.columns]
    for i in prose:
        said: dict[str, list[str]] = {}
        for *names, words in zip(*columns[:keys], columns[i], strict=True):
            if words.strip():
                said.setdefault(words, []).append(" ".join(names))
        for words, names in said.items():
            yield Text(f"{', '.join(names)}: {words}")
