"""What mkdocstrings reads before it draws a docstring: our own headings become paragraphs that begin with them.

Google's style knows Arguments, Returns, Raises and Warns; of a heading that it does not know, the first line would
become the title of a box.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import griffe

sys.path.insert(0, str(Path(__file__).resolve().parent))
from escapes import powers

KNOWN = "Returns|Raises|Warns"
"""Sections of the style, which are drawn as such unless their text stands in the line of the heading."""
SECTION = re.compile(rf"^(Arguments|Examples?|{KNOWN}):$")
HEADING = re.compile(rf"^(?:(Guarantees|Edge cases|Sources?):(?: (.*))?|({KNOWN}): (.*))$")


def paragraphs(text: str) -> str:
    """The docstring with every such heading in bold, its text after it, and an empty line above the style's own.

    >>> paragraphs("Guarantees: pure.\\n    Always.\\nSource: a paper.")
    '\\n**Guarantees:** pure.\\nAlways.\\n\\n**Source:** a paper.'
    >>> paragraphs("Arguments:\\n    a: one.\\nRaises:\\n    KeyError: none.")
    'Arguments:\\n    a: one.\\n\\nRaises:\\n    KeyError: none.'
    """
    lines: list[str] = []
    within = example = False
    for line in text.split("\n"):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example:
            line = powers(line)
        found = HEADING.match(line)
        if found:
            name, words = found[1] or found[3], found[2] or found[4] or ""
            lines += ["", f"**{name}:** {words}".rstrip()]
        else:
            if SECTION.match(line) and lines and lines[-1]:
                lines.append("")
            line = "Examples:" if line == "Example:" else line  # the style draws that one as code
            lines.append(line.removeprefix("    ") if within else line)
        within = (
            bool(found) or (within and line.startswith("    ")) or (within and not line.strip())
        )
    return "\n".join(lines)


class Headings(griffe.Extension):
    """Called by griffe for every object that it has read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = paragraphs(obj.docstring.value)
