"""Tables: laid out on terminals of any width, and written to files in the format of their name's
ending.
"""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from mezzotint.core.files import replacing
from mezzotint.core.records import Json, escaped

PROSE = 24
"""Words in a column that is wider than this stand below the table where it is too wide."""


def write_table(rows: Sequence[Json], path: Path, *, overwrite: bool, parameter: str) -> None:
    """Writes rows of plain values as a table, in the format that the name's ending says.

    Arguments:
        rows: objects; lists and objects in their cells become text.
        path: of the file.
        overwrite: whether a file there is replaced.
        parameter: name of the option, for errors.
    """
    objects = [row for row in rows if isinstance(row, Mapping)]
    records = [
        {column_name: _plain_cell(value) for column_name, value in row.items()} for row in objects
    ]
    names = list(dict.fromkeys(column_name for record in records for column_name in record))
    name_ending = path.suffix.lower()
    with replacing(path, overwrite=overwrite, parameter=parameter) as temporary:
        if name_ending == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            columns = {
                column_name: [record.get(column_name) for record in records]
                for column_name in names
            }
            pq.write_table(pa.table(columns), temporary)
            return
        cells = [
            [_cell_text(record.get(column_name)) for column_name in names] for record in records
        ]
        Path(temporary).write_text(TEXT_FORMATS[name_ending](names, cells), encoding="utf-8")


def _plain_cell(value: Json) -> Json:
    if isinstance(value, (list, tuple, Mapping)):
        return json.dumps(value)
    return value


def _cell_text(value: Json) -> str:
    if value is None:
        return ""
    return str(value)


def _as_csv(names: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([names, *cells])
    return text.getvalue()


def as_markdown(names: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A table of Markdown."""
    lines = []
    for row in (names, ["---"] * len(names), *cells):
        escaped_cells = [cell.replace("|", "\\|") for cell in row]
        lines.append(f"| {' | '.join(escaped_cells)} |\n")
    return "".join(lines)


TEXT_FORMATS = {".csv": _as_csv, ".md": as_markdown}
"""Ending -> what writes column names and cells."""

TABLE_ENDINGS = (".csv", ".parquet", ".md")


UNICODE_BARS = "▁▂▃▄▅▆▇█"
ASCII_BARS = ".:-=+*#@"
"""Bars of sparklines, by height; the same number of both."""


def sparkline(probabilities: Sequence[float]) -> str:
    """One character per probability, its height relative to the largest."""
    encoding = sys.stdout.encoding or ""
    bars = ASCII_BARS
    if encoding.lower().startswith("utf"):
        bars = UNICODE_BARS
    largest = max(probabilities)
    characters = ""
    for probability in probabilities:
        if probability == 0:
            characters += " "
            continue
        height = int(len(bars) * probability / largest)
        characters += bars[min(len(bars) - 1, height)]
    return characters


@final
class TerminalTable:
    """A table laid out to fit the console: numbers are aligned right, words left.

    Headings wrap between words, cells never. Columns that do not fit continue below with the keys
    repeated, and columns of sentences follow as text, each sentence once.

    Arguments:
        columns: headings; none are printed if all are empty.
        rows: their cells, text as it is; None draws a line.
        left: the columns of words; the first column if None.
        title, caption: above and below.
        keys: this many first columns identify a row.
    """

    def __init__(
        self,
        columns: Iterable[str],
        table_rows: Iterable[Sequence[str | Text] | None],
        *,
        left: Collection[str] | None = None,
        title: str | None = None,
        caption: str | None = None,
        keys: int = 1,
    ) -> None:
        self.columns = [escaped(heading) for heading in columns]
        self.rows: list[list[Text] | None] = []
        for row in table_rows:
            if row is None:
                self.rows.append(None)
            else:
                self.rows.append([_as_it_is(cell) for cell in row])
        self.title = _title(title)
        self.caption = _title(caption)
        self.keys = keys
        if left is None:
            self.left = [index == 0 for index in range(len(self.columns))]
        else:
            self.left = [heading in left for heading in self.columns]

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        indices = range(len(self.columns))
        widths = [self._least_width(index) for index in indices]
        if _table_width(widths) <= options.max_width:
            yield self._table(indices, indices, widths, options.max_width, is_last=True)
            return
        keys = range(self.keys)
        groups, prose = self._layout(widths, options.max_width)
        headed: Sequence[int]
        for group in groups:
            chosen = (*keys, *group)
            headed = group
            if group is groups[0]:
                headed = chosen
            is_last = group is groups[-1]
            yield self._table(chosen, headed, widths, options.max_width, is_last=is_last)
        for index in prose:
            yield from self._sentences(index)

    def _cells(self, index: int) -> list[Text]:
        return [row[index] for row in self.rows if row is not None]

    def _least_width(self, index: int) -> int:
        """Columns of the terminal that no cell and no word of the heading exceeds."""
        words = self.columns[index].split()
        widths = [cell_len(word) for word in words]
        widths += [cell.cell_len for cell in self._cells(index)]
        return max(widths, default=1)

    def _layout(self, widths: Sequence[int], available: int) -> tuple[list[list[int]], list[int]]:
        """Groups of columns that fit side by side, below each other; and columns to print as
        sentences.
        """
        keys = range(self.keys)
        groups: list[list[int]] = [[]]
        prose: list[int] = []
        for index in range(self.keys, len(widths)):
            cells = self._cells(index)
            filled = sum(bool(cell.plain) for cell in cells)
            # Long text, or remarks that most rows lack, moves below the table.
            if self.left[index] and (widths[index] > PROSE or 2 * filled < len(cells)):
                prose.append(index)
                continue
            side_by_side = [widths[column] for column in (*keys, *groups[-1], index)]
            if groups[-1] and _table_width(side_by_side) > available:
                groups.append([])
            groups[-1].append(index)
        return groups, prose

    def _sentences(self, index: int) -> Iterator[Text]:
        """The cells of a column as text, each once, after the keys of the rows that say it."""
        keys_by_words: dict[str, list[str]] = {}
        for row in self.rows:
            if row is None or not row[index].plain.strip():
                continue
            keys = " ".join(cell.plain for cell in row[: self.keys])
            keys_by_words.setdefault(row[index].plain, []).append(keys)
        for words, keys in keys_by_words.items():
            yield Text(f"{', '.join(keys)}: {words}")

    def _table(
        self,
        chosen: Sequence[int],
        headed: Sequence[int],
        widths: Sequence[int],
        available: int,
        *,
        is_last: bool,
    ) -> RichTable:
        """The chosen columns, headings for some of them; title above the first group, caption below
        the last.
        """
        headings = dict.fromkeys(chosen, "")
        for index in headed:
            headings[index] = self.columns[index]
        whole_widths = [max(widths[index], cell_len(headings[index])) for index in chosen]
        # Else rich would narrow the widest column, and cut the last one after all.
        wraps = _table_width(whole_widths) > available
        table = RichTable(
            title_justify="left",
            caption_justify="left",
            show_header=any(self.columns),
        )
        if 0 in headed:
            table.title = self.title
        if is_last:
            table.caption = self.caption
        for index, heading in headings.items():
            width = None
            if wraps:
                width = widths[index]
            justify: JustifyMethod = "right"
            if self.left[index]:
                justify = "left"
            table.add_column(
                Text(heading),
                justify=justify,
                width=width,
                min_width=widths[index],
                no_wrap=not any(self.columns),
            )
        for row in self.rows:
            if row is None:
                table.add_section()
            else:
                table.add_row(*(row[index] for index in chosen))
        return table


def _title(text: str | None) -> Text | None:
    """The line above or below a table, as it is."""
    if text is None:
        return None
    return _as_it_is(text)


def _as_it_is(text: str | Text) -> Text:
    """Text of others: a word in brackets is no markup, and a control character moves no cursor."""
    return Text(escaped(str(text)))


def _table_width(widths: Sequence[int]) -> int:
    """Columns of the terminal that a table takes: cells, a space on both sides, and lines between
    them.
    """
    return sum(widths) + 3 * len(widths) + 1
