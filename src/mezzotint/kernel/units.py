"""The kernel's basic tools: exact numbers, strict JSON, refusals and a time limit.

Every number read is an integer or a text such as "p/q", "0.221", "1e-6". Floats are refused.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from typing import Any, cast, final

TOTAL = 2**32  # what every row of a table sums to
# Masses are integers over 2**BITS, values of c = e**epsilon integers over 2**FINE on grids and 2**FACTOR alone.
BITS, FINE, FACTOR = 160, 256, 64
WHOLE, ONE = 1 << BITS, 1 << FINE
# Longest file in bytes, enough for the largest table; largest number of list entries and polynomial coefficients.
MAX_TEXT, MAX_ENTRIES = 2**26, 2**22

_NUMBER = re.compile(
    r"-?[0-9]{1,1200}(\.[0-9]{1,1200})?(e-?[0-9]{1,4})?|-?[0-9]{1,1200}/[0-9]{1,1200}"
)


def shown(value: object, most: int = 200) -> str:
    """The value for a message, in printable ASCII: a text in quotes, so that no text of a file looks like ours."""
    if isinstance(value, str):
        return ascii(value[:most])
    try:
        return ascii(str(value)[:most])[1:-1]
    except ValueError:  # Python writes no integers of more than 4300 digits
        return "a very long number"


class Refused(Exception):
    """The proof does not show the claim: the step that failed, why, what was found and what was needed."""

    def __init__(self, step: str, why: str, have: object = None, want: object = None) -> None:
        self.step, self.why = step, why
        self.have = "" if have is None else shown(have)
        self.want = "" if want is None else shown(want)
        found = f" (have {self.have}, want {self.want})" if self.have or self.want else ""
        super().__init__(f"{step}: {why}{found}")


class Unreadable(Exception):
    """The text contains no claim, proof or table known to this kernel."""


class Unfinished(Exception):
    """The check reached its time limit: nothing is known."""


def require(holds: bool, step: str, why: str, have: object = None, want: object = None) -> None:
    """Refuse unless `holds` is True; an undecided comparison of balls is False, hence refused."""
    if holds is not True:
        raise Refused(step, why, have, want)


_deadline = [0]


def set_deadline(seconds: int) -> None:
    """Let `tick` allow less than this much processor time from now on."""
    _deadline[0] = time.process_time_ns() + seconds * 10**9


def tick() -> None:
    """Check the time limit; called in every loop whose length is set by a proof."""
    if not (time.process_time_ns() < _deadline[0]):
        raise Unfinished("the limit of time is spent; allow more seconds")


def ceil_div(numerator: int, denominator: int) -> int:
    """The least integer at or above numerator/denominator, denominator > 0."""
    return -(-numerator // denominator)


def number(value: object, name: str = "number") -> Fraction:
    """An integer, or a text "p/q", "0.221", "1e-6", as the rational it is."""
    if type(value) is int:
        return Fraction(value)
    with suppress(ZeroDivisionError):
        if type(value) is str and _NUMBER.fullmatch(value):
            return Fraction(value)
    raise Unreadable(f"{name} is not a number written exactly: {shown(value, 60)}")


def canonical(value: object) -> str:
    """The canonical text of a JSON value: sorted keys, no spaces, ASCII."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def sha256(text: str) -> str:
    """The hash of the UTF-8 bytes, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise Unreadable("a key occurs twice, so two readers could see two files")
    return document


def _refuse(text: str) -> object:
    raise Unreadable(f"{shown(text, 40)} found where an integer or a text belongs")


def read_json(text: str, *, real: Callable[[str], object] = _refuse) -> object:
    """Parse strict JSON: no duplicate keys, no NaN; `real` converts the text of numbers with a point."""
    if len(text) > MAX_TEXT:
        raise Unreadable(f"longer than {MAX_TEXT} characters")
    try:
        return json.loads(
            text.encode().decode(),
            object_pairs_hook=_unique,
            parse_constant=_refuse,
            parse_float=real,
        )
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not valid JSON ({error}); truncated or edited") from None


@final
class Fields:
    """One JSON object, read key by key; `done` refuses keys that were not read."""

    def __init__(self, value: object, name: str) -> None:
        if not isinstance(value, dict):
            raise Unreadable(f"{name} is not a JSON object")
        self.values, self._name = dict(cast("dict[str, object]", value)), name

    def take(self, key: str) -> object:
        """The raw value; a missing key is an error."""
        if key not in self.values:
            raise Unreadable(f"{self._name} lacks {key!r}")
        return self.values.pop(key)

    def has(self, key: str) -> bool:
        """Whether the key is present and not yet read."""
        return key in self.values

    def fields(self, key: str) -> Fields:
        """A nested object."""
        return Fields(self.take(key), key)

    def text(self, key: str, choices: Sequence[str] = ()) -> str:
        """A text, and one of the choices if any are given."""
        value = self.take(key)
        if type(value) is not str or (choices and value not in choices):
            raise Unreadable(
                f"{key} is {shown(value, 60)}, not " + (" or ".join(choices) or "a text")
            )
        return value

    def digest(self, key: str) -> str:
        """A SHA-256 in hexadecimal."""
        value = self.text(key)
        if not re.fullmatch("[0-9a-f]{64}", value):
            raise Unreadable(f"{key} is {shown(value, 70)}, not a SHA-256 in hexadecimal")
        return value

    def integer(self, key: str, least: int, most: int) -> int:
        """An integer in [least, most]."""
        value = self.take(key)
        if type(value) is not int or not (least <= value <= most):
            raise Unreadable(f"{key} is {shown(value, 60)}, not an integer from {least} to {most}")
        return value

    def number(self, key: str) -> Fraction:
        """A non-negative rational."""
        value = number(self.take(key), key)
        if not (value >= 0):
            raise Unreadable(f"{key} is {shown(value)}, below 0")
        return value

    def items(self, key: str, most: int = MAX_ENTRIES) -> list[Any]:
        """A list with at most the given number of values."""
        value = cast("list[Any]", self.take(key))
        if type(value) is not list or len(value) > most:
            raise Unreadable(f"{key} is not a list of at most {most} values")
        return value

    def texts(self, key: str, most: int) -> list[str]:
        """A list of texts."""
        values = self.items(key, most)
        if not all(type(value) is str for value in values):
            raise Unreadable(f"{key} is not a list of texts")
        return values

    def integers(self, key: str, least: int = 0) -> list[int]:
        """A list of integers at or above `least`."""
        found = self.items(key)
        for entry in found:
            if type(entry) is not int or not (entry >= least):
                raise Unreadable(f"{key} holds {shown(entry, 60)}, not an integer from {least} on")
        return found

    def lists(self, key: str, least: int = 0) -> list[list[int]]:
        """A list of lists of integers at or above `least`."""
        rows = Fields(
            {f"{key}[{place}]": entry for place, entry in enumerate(self.items(key))}, key
        )
        return [rows.integers(row, least) for row in [*rows.values]]

    def done(self) -> None:
        """Refuse keys that were not read."""
        if self.values:
            raise Unreadable(f"{self._name} has unknown keys: {ascii(sorted(self.values))[:200]}")
