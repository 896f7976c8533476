"""The kernel's basic tools: exact numbers, strict JSON, refusals and limits of time and size.

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
from itertools import pairwise
from typing import Any, cast, final

TOTAL = 2**32
"""The sum of every row of a table."""

BITS = 160
"""Masses are integers in units of 2**-BITS."""

FINE = 256
"""Values of c = e**epsilon on grids are integers in units of 2**-FINE."""

FACTOR = 64
"""The value of c at a single epsilon is an integer in units of 2**-FACTOR."""

WHOLE = 1 << BITS
"""The mass 1."""

ONE = 1 << FINE
"""The value 1 of c on a grid."""

MAX_TEXT = 2**24
"""Characters of the longest file; the longest text of a table has about 2 million."""

MAX_ENTRIES = 2**22
"""Entries of the longest list."""

MAX_MEMORY = 2**30
"""Bits that the numbers of one list or polynomial take, each with `_OVERHEAD` bits of its own."""

_OVERHEAD = 512

MAX_INTEGER = 2**256
"""Entries of lists are below this."""

MAX_NUMBER_BITS = 13_000
"""Bits of the largest numerator or denominator: Python writes at most 4,300 digits."""

_NUMBER = re.compile(
    r"-?[0-9]{1,1200}(\.[0-9]{1,1200})?(e-?[0-9]{1,4})?|-?[0-9]{1,1200}/[0-9]{1,1200}"
)
_DIGEST = re.compile("[0-9a-f]{64}")

_BLANK = r"\x20"
"""What stands for a blank of a file in a message."""


def shown(value: object, most: int = 200) -> str:
    """The value for a message, in printable ASCII.

    A text stands in quotes, its blanks and all that does not print escaped: no text of a file looks
    like a sentence of the kernel, wherever a terminal breaks the line.
    """
    if isinstance(value, str):
        return ascii(value[:most]).replace(" ", _BLANK)
    try:
        text = str(value)
    except ValueError:  # Python writes no integers of more than 4300 digits
        return "a very long number"
    printable = printed(text, most)
    if isinstance(value, list | dict):
        return printable.replace(" ", _BLANK)
    return printable


def printed(text: str, most: int) -> str:
    """A text of this program in printable ASCII."""
    return ascii(text[:most])[1:-1]


class Refused(Exception):
    """The proof does not show the claim: the step that failed, why, what it has and needs.

    `evidence`, if any, is what the step computed; whoever proposes proofs may read it.
    """

    def __init__(
        self,
        step: str,
        why: str,
        have: object = None,
        want: object = None,
        evidence: object = None,
    ) -> None:
        self.step = step
        self.evidence = evidence
        numbers = ""
        if have is not None:
            numbers = f" (have {shown(have)}"
            numbers += ")" if want is None else f", want {shown(want)})"
        super().__init__(f"{step}: {why}{numbers}")


class Unreadable(Exception):
    """The text contains no claim, proof or table known to this kernel."""


class Unfinished(Exception):
    """The check reached its time limit: nothing is known."""


def require(
    holds: bool,
    step: str,
    why: str,
    have: object = None,
    want: object = None,
    evidence: object = None,
) -> None:
    """Refuse unless `holds` is True; an undecided comparison of balls is False, hence refused."""
    if holds is not True:
        raise Refused(step, why, have, want, evidence)


_PAUSE = 10**7
"""Nanoseconds between two readings of the processor's time, which take as long as a small loop."""

_deadline = [0, 0]
"""The processor time that ends the check, and the time of the next reading."""


def set_deadline(seconds: int) -> None:
    """Let `tick` allow less than this much processor time from now on."""
    _deadline[:] = [time.process_time_ns() + seconds * 10**9, 0]


def tick() -> None:
    """Check the time limit; called in every loop whose length is set by a proof.

    A product of two polynomials is not interrupted: `require_memory` bounds how long it takes.
    """
    monotonic = time.monotonic_ns()
    if monotonic < _deadline[1]:
        return
    if not (time.process_time_ns() < _deadline[0]):
        raise Unfinished("the limit of time is spent; allow more seconds")
    _deadline[1] = monotonic + _PAUSE


def require_memory(count: int, bits: int) -> None:
    """Refuse so many numbers of so many bits before they are made: FLINT aborts without memory."""
    memory = count * (bits + _OVERHEAD)
    require(
        memory <= MAX_MEMORY,
        "size",
        "numbers are too many or too large",
        memory,
        MAX_MEMORY,
    )


def increases(values: Sequence[Any]) -> bool:
    """Whether each value is above the one before it."""
    return all(lower < upper for lower, upper in pairwise(values))


def ceil_div(numerator: int, denominator: int) -> int:
    """The least integer at or above numerator/denominator, denominator > 0."""
    return -(-numerator // denominator)


def number(value: object, name: str = "number") -> Fraction:
    """An integer, or a text "p/q", "0.221", "1e-6", as the rational it is."""
    rational = None
    if type(value) is int:
        rational = Fraction(value)
    elif type(value) is str and _NUMBER.fullmatch(value):
        with suppress(ZeroDivisionError):
            rational = Fraction(value)
    if rational is None:
        raise Unreadable(f"{name} is not a number written exactly: {shown(value, 60)}")
    numerator_bits = rational.numerator.bit_length()
    denominator_bits = rational.denominator.bit_length()
    if not (max(numerator_bits, denominator_bits) <= MAX_NUMBER_BITS):
        raise Unreadable(f"{name} has too many digits: {shown(value, 60)}")
    return rational


def canonical(value: object) -> str:
    """The canonical text of a JSON value: sorted keys, no spaces, ASCII."""
    return json.dumps(
        value,
        sort_keys=True,
        separators=(",", ":"),
        allow_nan=False,
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
    """Parse strict JSON: no duplicate keys, no NaN; `real` converts numbers with a point.

    Claims and proofs hold no such numbers and have at most MAX_TEXT characters; tables, which do,
    stand in proofs or are read from files whose size their reader bounds.
    """
    if real is _refuse and len(text) > MAX_TEXT:
        raise Unreadable(f"longer than {MAX_TEXT} characters")
    try:
        return json.loads(
            text.encode().decode(),
            object_pairs_hook=_unique,
            parse_constant=_refuse,
            parse_float=real,
        )
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not valid JSON ({shown(error)}); truncated or edited") from None


@final
class Fields:
    """One JSON object, read key by key; `done` refuses keys that were not read."""

    def __init__(self, value: object, name: str) -> None:
        if not isinstance(value, dict):
            raise Unreadable(f"{name} is not a JSON object")
        self.values = dict(cast("dict[str, object]", value))
        self._name = name

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
            wanted = " or ".join(choices) or "a text"
            raise Unreadable(f"{key} is {shown(value, 60)}, not {wanted}")
        return value

    def digest(self, key: str) -> str:
        """A SHA-256 in hexadecimal."""
        value = self.text(key)
        if not _DIGEST.fullmatch(value):
            raise Unreadable(f"{key} is {shown(value, 70)}, not a SHA-256 in hexadecimal")
        return value

    def integer(self, key: str, least: int, most: int) -> int:
        """An integer in [least, most]."""
        value = self.take(key)
        if type(value) is not int or not (least <= value <= most):
            range_text = f"not an integer from {least} to {most}"
            raise Unreadable(f"{key} is {shown(value, 60)}, {range_text}")
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
        for value in values:
            if type(value) is not str:
                raise Unreadable(f"{key} is not a list of texts")
        return values

    def integers(self, key: str, least: int = 0) -> list[int]:
        """A list of integers at or above `least`."""
        return _integers(self.items(key), key, least)

    def lists(self, key: str, least: int = 0) -> list[list[int]]:
        """A list of lists of integers at or above `least`."""
        rows = self.items(key)
        for index, row in enumerate(rows):
            if type(row) is not list:
                raise Unreadable(f"{key}[{index}] is not a list")
            _integers(row, f"{key}[{index}]", least)  # pyright: ignore[reportUnknownArgumentType]
        return rows

    def done(self) -> None:
        """Refuse keys that were not read."""
        if self.values:
            unknown = ", ".join(shown(key, 40) for key in sorted(self.values)[:5])
            raise Unreadable(f"{self._name} has unknown keys: {unknown}")


def _integers(entries: list[Any], name: str, least: int) -> list[int]:
    """The list itself, once each entry is an integer at or above `least`."""
    for entry in entries:
        if type(entry) is not int or not (least <= entry < MAX_INTEGER):
            range_text = f"not an integer from {least} to 2**256"
            raise Unreadable(f"{name} holds {shown(entry, 60)}, {range_text}")
    return entries
