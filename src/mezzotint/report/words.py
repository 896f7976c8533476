"""Numbers as people read them."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context


def short(value: float | None, digits: int = 6) -> str:
    """A number to a few digits; a dash for None, a word for infinity."""
    if value is None:
        return "-"
    return "unbounded" if math.isinf(value) else f"{value:,.{digits}g}"


def upwards(value: float, digits: int = 6) -> str:
    """As `short`, never less than the value: for privacy numbers."""
    if math.isinf(value):
        return "unbounded"
    rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal_from_float(value).normalize()
    return f"{rounded:f}" if value == 0 or 1e-4 <= abs(value) < 1e9 else f"{rounded:g}"


def percent(value: float, digits: int = 3) -> str:
    """A share as a percentage, never less than the value."""
    return f"{upwards(100 * value, digits)} %"
