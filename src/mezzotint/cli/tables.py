"""Tables: laid out on terminals of any width, and written to files in the format of their name's ending."""

from __future__ import annotations

import csv
import html
import io
import json
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import final

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from mezzotint.core.files import replacing
from mezzotint.core.records import Json, escaped

TABLE_ENDINGS = (".csv", ".parquet", ".md", ".html")

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
    records = [{name: _plain_cell(value) for name, value in row.items()} for row in objects]
    names = list(dict.fromkeys(name for record in records for name in record))
    ending = path.suffix.lower()
    with replacing(path, overwrite=overwrite, parameter=parameter) as temporary:
        if ending == ".parquet":
            import pyarrow as pa
            import pyarrow.parquet as pq

            columns = {name: [record.get(name) for record in records] for name in names}
            pq.write_table(pa.table(columns), temporary)
            return
        cells = [[_cell_text(record.get(name)) for name in names] for record in records]
        Path(temporary).write_text(TEXT_FORMATS[ending](names, cells), encoding="utf-8")


def _plain_cell(value: Json) -> Json:
    return json.dumps(value) if isinstance(value, (list, tuple, Mapping)) else value


def _cell_text(value: Json) -> str:
    return "" if value is None else str(value)


def _as_csv(names: list[str], cells: list[list[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([names, *cells])
    return text.getvalue()


def _as_markdown(names: list[str], cells: list[list[str]]) -> str:
    lines = []
    for row in (names, ["---"] * len(names), *cells):
        escaped_cells = [cell.replace("|", "\\|") for cell in row]
        lines.append(f"| {' | '.join(escaped_cells)} |\n")
    return "".join(lines)


def _as_html(names: list[str], cells: list[list[str]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
    lines = [
        f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in cells
    ]
    return "\n".join(["<table>", f"<tr>{head}</tr>", *lines, "</table>", ""])


TEXT_FORMATS = {".csv": _as_csv, ".md": _as_markdown, ".html": _as_html}
"""Ending -> what writes column names and cells."""


def sparkline(probabilities: Sequence[float]) -> str:
    """One character per probability, its height relative to the largest."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    bars = "▁▂▃▄▅▆▇█" if unicode else ".:-=+*#@"
    top = max(probabilities)
    return "".join(" " if p == 0 else bars[min(7, int(8 * p / top))] for p in probabilities)


PROSE = 24
"""Words in a column that is wider than this stand below the table where it is too wide."""


@final
class TerminalTable:
    """A table laid out to fit the console: numbers are aligned right, words left.

    Headings wrap between words, cells never. Columns that do not fit continue below with the keys repeated,
    and columns of sentences follow as text, each sentence once.

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
        rows: Iterable[Sequence[str | Text] | None],
        *,
        left: Collection[str] | None = None,
        title: str | None = None,
        caption: str | None = None,
        keys: int = 1,
    ) -> None:
        self.columns = [escaped(heading) for heading in columns]
        self.rows: list[list[Text] | None] = []
        for row in rows:
            self.rows.append(None if row is None else [_as_it_is(cell) for cell in row])
        self.title = None if title is None else _as_it_is(title)
        self.caption = None if caption is None else _as_it_is(caption)
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
        for group in groups:
            headed = (*keys, *group) if group is groups[0] else group
            is_last = group is groups[-1]
            yield self._table((*keys, *group), headed, widths, options.max_width, is_last=is_last)
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
        """Groups of columns that fit side by side, below each other; and columns to print as sentences."""
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
        """The chosen columns, headings for some of them; title above the first group, caption below the last."""
        headings = [self.columns[index] if index in headed else "" for index in chosen]
        whole_headings = [
            max(widths[index], cell_len(heading))
            for index, heading in zip(chosen, headings, strict=True)
        ]
        # Else rich would narrow the widest column, and cut the last one after all.
        wraps = _table_width(whole_headings) > available
        has_headings = any(self.columns)
        table = RichTable(
            title=self.title if 0 in headed else None,
            title_justify="left",
            caption=self.caption if is_last else None,
            caption_justify="left",
            show_header=has_headings,
        )
        for index, heading in zip(chosen, headings, strict=True):
            table.add_column(
                Text(heading),
                justify="left" if self.left[index] else "right",
                width=widths[index] if wraps else None,
                min_width=widths[index],
                no_wrap=not has_headings,
            )
        for row in self.rows:
            if row is None:
                table.add_section()
            else:
                table.add_row(*(row[index] for index in chosen))
        return table


def _as_it_is(text: str | Text) -> Text:
    """Text of others: a word in brackets is no markup, and a control character moves no cursor."""
    return Text(escaped(str(text)))


def _table_width(widths: Sequence[int]) -> int:
    """Columns of the terminal that a table takes: cells, a space on both sides, and lines between them."""
    return sum(widths) + 3 * len(widths) + 1


def ends(confidence: float) -> list[str]:
    """Headings of an interval's two ends."""
    return [f"{100 * confidence:.4g} % {end}" for end in ("low", "high")]
