"""A page as one HTML file that loads nothing."""

from __future__ import annotations

import json
import re
from importlib import resources

from mezzotint.core.records import Json, JsonObject
from mezzotint.report.contents import Page, Section, Table
from mezzotint.report.svg import figure_html, slider_data, slider_html, text_of

# What the browser may do is in the page itself: no connection to anywhere, so that nothing about
# the data or its reader can leave, and a forgotten link to a library would fail in the tests.
POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:"
)


def html_page(page: Page) -> str:
    """The page as text: it contains everything it needs, and its policy forbids loading.

    Arguments:
        page: the report.

    Returns: HTML.

    Example:
        >>> page = mz.report.mechanism_page(mz.families.randomized_response(epsilon=1.0))
        >>> mz.report.html_page(page).rstrip().endswith("</html>")
        True
    """
    sliders: JsonObject = {slider.key: slider_data(slider) for slider in page.sliders}
    page_title = text_of(page.title)
    attachment = [] if page.attachment is None else [_attachment(*page.attachment)]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<link rel="icon" href="data:,"><title>{page_title}</title>',
            f"<style>{asset('page.css')}{asset('figures.css')}</style></head><body><main>",
            f'<h1>{page_title}</h1><p class="summary">{text_of(page.summary)}</p>',
            *(section_html(section) for section in page.sections),
            *attachment,
            "</main><footer>Made by mezzotint. This page is one file and loads nothing.</footer>",
            f'<script type="application/json" id="sliders">{embedded(sliders)}</script>',
            f"<script>{asset('page.js')}</script></body></html>",
        ]
    )


def embedded(value: Json) -> str:
    """JSON that can stand inside a script element, whatever texts it holds; numbers to 9 digits."""
    json_text = json.dumps(_rounded(value), separators=(",", ":"), allow_nan=False)
    return json_text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _rounded(value: Json) -> Json:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: _rounded(inner_value) for key, inner_value in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner_value) for inner_value in value]
    return value


def asset(name: str) -> str:
    """The text of a style sheet or script that goes into pages."""
    return resources.files("mezzotint.report").joinpath("assets", name).read_text(encoding="utf-8")


def section_html(section: Section) -> str:
    """A section: heading, paragraphs, then a slider, figures, a table, and lines to type."""
    elements = [f"<section><h2>{text_of(section.title)}</h2>"]
    elements += [f"<p>{text_of(paragraph)}</p>" for paragraph in section.words]
    if section.slider is not None:
        elements.append(slider_html(section.slider))
    if section.figures:
        figures = "".join(figure_html(figure) for figure in section.figures)
        elements.append(f'<div class="figures">{figures}</div>')
    if section.table is not None:
        elements.append(table_html(section.table))
    if section.code:
        elements.append(f"<pre>{text_of(section.code)}</pre>")
    return "\n".join([*elements, "</section>"])


def table_html(table: Table) -> str:
    """A table; columns of numbers stand at the right."""
    column_looks = [_look(table_column) for table_column in zip(*table.rows, strict=True)]
    column_looks = column_looks or [""] * len(table.headings)
    headings = zip(column_looks, table.headings, strict=True)
    heading_cells = "".join(
        f'<th scope="col"{column_look}>{text_of(heading)}</th>' for column_look, heading in headings
    )
    body_rows = []
    for row_index, table_row in enumerate(table.rows):
        looked_cells = zip(column_looks, table_row, strict=True)
        cell_elements = "".join(
            f"<td{column_look}>{text_of(cell_text)}</td>" for column_look, cell_text in looked_cells
        )
        row_attributes = ' class="own" aria-current="true"' if row_index == table.own else ""
        body_rows.append(f"<tr{row_attributes}>{cell_elements}</tr>")
    description = text_of(", ".join(table.headings))
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{description}">'
        f"<table><thead><tr>{heading_cells}</tr></thead>"
        f"<tbody>{''.join(body_rows)}</tbody></table></div>"
    )


_NUMBER = re.compile(r"[-+]?[\d,.]+(e[-+]?\d+)?( ?%)?|inf|-|")


def _look(column: tuple[str, ...]) -> str:
    return ' class="number"' if all(map(_NUMBER.fullmatch, column)) else ""


def _attachment(name: str, text: str) -> str:
    shown_name = text_of(name)
    return (
        f'<p><a id="save" download="{shown_name}" href="#">Save {shown_name}</a>: '
        "the file, as it is in this page.</p>"
        f'<script type="application/json" id="attachment">{embedded(text)}</script>'
    )
