"""Formulas of the pages as MathML, while the site is built: browsers draw it, and no page loads a library."""

from __future__ import annotations

import html
import re
from xml.etree import ElementTree

from latex2mathml.converter import convert

SPAN = re.compile(r'<(span|div) class="arithmatex">(.*?)</\1>', re.DOTALL)
UNKNOWN = re.compile(r"\\[A-Za-z]+")
NAMESPACE = "http://www.w3.org/1998/Math/MathML"
SCRIPTS = {
    f"{{{NAMESPACE}}}{name}"
    for name in ("msub", "msup", "msubsup", "munder", "mover", "munderover")
}
ROWS = {f"{{{NAMESPACE}}}{name}" for name in ("math", "mrow", "mtd", "msqrt", "mstyle")}
ROW, NAME, OPERATOR, GAP = (f"{{{NAMESPACE}}}{name}" for name in ("mrow", "mi", "mo", "mspace"))
SUBSCRIPT, SUPERSCRIPT, BOTH, UNDER = (
    f"{{{NAMESPACE}}}{name}" for name in ("msub", "msup", "msubsup", "munder")
)
BARE, SIGNS, CLOSING, PRIME = "|/\u2016", "+\u2212\u00b1", ")]}\u232a\u2032|", "\u2032"
RELATIONS = "\u223c~\u27fa\u27f9\u2016"
"""What the converter takes for letters; as operators they stand apart from their neighbours."""


def typeset(page: str, name: str) -> str:
    """The HTML of a page with every formula that arithmatex marked drawn.

    Raises:
        ValueError: a command that the converter does not know would stand on the page as it is.
    """

    def drawn(match: re.Match[str]) -> str:
        block = match[1] == "div"
        formula = html.unescape(match[2]).strip()[2:-2].strip()  # between \( \) or \[ \]
        markup = mathml(formula, block=block)
        left = UNKNOWN.search(re.sub(r'alttext="[^"]*"', "", markup))
        if left:
            raise ValueError(f"{name}: {left[0]} is not known, in the formula {formula}")
        return f'<div class="formula" tabindex="0">{markup}</div>' if block else markup

    return SPAN.sub(drawn, page)


def mathml(formula: str, *, block: bool) -> str:
    """One formula as a `math` element, its source as the text for whoever cannot see it."""
    ElementTree.register_namespace("", NAMESPACE)
    tree = ElementTree.fromstring(
        convert(formula, display="block" if block else "inline").replace("<mi>&</mi>", "")
    )
    tree.set("alttext", formula)
    for element in tree.iter():
        if element.tag == NAME and (element.text or "") in RELATIONS:
            element.tag = OPERATOR
        elif element.tag == OPERATOR and _word(element):
            element.tag = NAME
        elif block and element.tag == SUBSCRIPT and element[0].text in ("max", "min", "sup", "inf"):
            element.tag = UNDER
    for row in tree.iter():
        _prime(row)
        if row.tag in ROWS:
            _space_functions(row)
            _space_operators(row)
    return ElementTree.tostring(tree, encoding="unicode")


def _prime(script: ElementTree.Element) -> None:
    """x' at full size: few fonts draw a prime that is legible as a superscript."""
    if script.tag not in (SUPERSCRIPT, BOTH) or (script[-1].text or "").strip(PRIME):
        return
    base, *index, prime = script
    if prime.text:
        grouped = ElementTree.Element(ROW)
        grouped.extend([base, ElementTree.Element(OPERATOR, {"lspace": "0", "rspace": "0"})])
        grouped[1].text = prime.text
        script[:] = [grouped, *index]
        script.tag = SUBSCRIPT if index else ROW


def _space_operators(row: ElementTree.Element) -> None:
    """No space around bars and fractions' strokes; a sign after an operator or at the start belongs to what follows."""
    before: ElementTree.Element | None = None
    for element in row:
        if element.tag == OPERATOR:
            text = element.text or ""
            opened = before is None or (
                before.tag == OPERATOR and (before.text or "") not in CLOSING
            )
            if text and text in BARE:
                element.attrib |= {"lspace": "0", "rspace": "0"}
            elif text and text in SIGNS and opened:
                element.set("form", "prefix")
        before = element


def _word(element: ElementTree.Element) -> bool:
    text = element.text or ""
    return len(text) > 1 and text.isalpha() and text.isascii()


def _function(element: ElementTree.Element) -> bool:
    """log, max, ... or one of them with its index."""
    if element.tag in SCRIPTS:
        return _function(element[0])
    return element.tag == NAME and _word(element)


def _space_functions(row: ElementTree.Element) -> None:
    """A thin space between the name of a function and an argument without parentheses, or a factor before it."""
    for place in range(len(row) - 1, 0, -1):
        before, after = row[place - 1], row[place]
        named = _function(before) and after.tag not in (OPERATOR, GAP)
        factor = _function(after) and before.tag not in (OPERATOR, GAP)
        if named or factor:
            row.insert(place, ElementTree.Element(GAP, {"width": "0.167em"}))
