"""Text of docstrings as Markdown: powers stay powers, where two pairs of asterisks would make what is between them bold."""

from __future__ import annotations

import re

CODE = re.compile(r"(`[^`]*`)")
POWER = re.compile(r"(?<=[\w)])\*\*(?=[\w(-])")


def powers(text: str) -> str:
    """The text with the asterisks of powers escaped, but for those in code.

    >>> print(powers("2**32 units, `2**31`, (e**epsilon + 1)"))
    2\\*\\*32 units, `2**31`, (e\\*\\*epsilon + 1)
    """
    parts = CODE.split(text)
    parts[::2] = [POWER.sub(r"\\*\\*", part) for part in parts[::2]]
    return "".join(parts)
