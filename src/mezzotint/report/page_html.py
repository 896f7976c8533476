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
    title = text_of(page.title)
    attachment = [] if page.attachment is None else [_attachment(*page.attachment)]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<link rel="icon" href="data:,"><title>{title}</title>',
            f"<style>{asset('page.css')}{asset('figures.css')}</style></head><body><main>",
            f'<h1>{title}</h1><p class="summary">{text_of(page.summary)}</p>',
            *(section_html(section) for section in page.sections),
            *attachment,
            "</main><footer>Made by mezzotint. This page is one file and loads nothing.</footer>",
            f'<script type="application/json" id="sliders">{embedded(sliders)}</script>',
            f"<script>{asset('page.js')}</script></body></html>",
        ]
    )


def embedded(value: Json) -> str:
    """JSON that can stand inside a script element, whatever texts it holds; numbers to 9 digits."""
    text = json.dumps(_rounded(value), separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _rounded(value: Json) -> Json:
    if isinstance(value, float):
        return float(f"{value:.9g}")
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    return value


def asset(name: str) -> str:
    """The text of a style sheet or script that goes into pages."""
    return resources.files("mezzotint.report").joinpath("assets", name).read_text(encoding="utf-8")


def section_html(section: Section) -> str:
    """A section: heading, paragraphs, then a slider, figures, a table, and lines to type."""
    parts = [f"<section><h2>{text_of(section.title)}</h2>"]
    parts += [f"<p>{text_of(words)}</p>" for words in section.words]
    if section.slider is not None:
        parts.append(slider_html(section.slider))
    if section.figures:
        figures = "".join(figure_html(figure) for figure in section.figures)
        parts.append(f'<div class="figures">{figures}</div>')
    if section.table is not None:
        parts.append(table_html(section.table))
    if section.code:
        parts.append(f"<pre>{text_of(section.code)}</pre>")
    return "\n".join([*parts, "</section>"])


def table_html(table: Table) -> str:
    """A table; columns of numbers stand at the right."""
    looks = [_look(column) for column in zip(*table.rows, strict=True)]
    looks = looks or [""] * len(table.headings)
    headings = zip(looks, table.headings, strict=True)
    head = "".join(f'<th scope="col"{look}>{text_of(heading)}</th>' for look, heading in headings)
    body = []
    for index, row in enumerate(table.rows):
        cells = zip(looks, row, strict=True)
        inner = "".join(f"<td{look}>{text_of(cell)}</td>" for look, cell in cells)
        own = ' class="own" aria-current="true"' if index == table.own else ""
        body.append(f"<tr{own}>{inner}</tr>")
    about = text_of(", ".join(table.headings))
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{about}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


_NUMBER = re.compile(r"[-+]?[\d,.]+(e[-+]?\d+)?( ?%)?|inf|-|")


def _look(column: tuple[str, ...]) -> str:
    return ' class="number"' if all(map(_NUMBER.fullmatch, column)) else ""


def _attachment(name: str, text: str) -> str:
    shown = text_of(name)
    return (
        f'<p><a id="save" download="{shown}" href="#">Save {shown}</a>: '
        "the file, as it is in this page.</p>"
        f'<script type="application/json" id="attachment">{embedded(text)}</script>'
    )
