"""The fuzzer's cases: which file is damaged how, which verb reads it then, and what may come of it.

A case is a number: kind of file, damage and verb are drawn from it before anything is written, so that the table of
cases (docs/tables/damaged.md, written by tools/fuzz_table.py) follows from the numbers alone.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, final

VERBS: dict[str, tuple[tuple[str, ...], ...]] = {
    "m.json": (("show",), ("verify",), ("account",), ("report",)),
    "ranked.json": (("show",), ("verify",), ("report",)),
    "claim.json": (("verify",), ("report",)),
    "reports.parquet": (("estimate",), ("report",)),
    "reports.csv": (("estimate",), ("report",)),
    "reports.csv.gz": (("estimate",),),
    "counts.json": (("estimate",), ("report",)),
    "log.jsonl": (("report",),),
    "ledger.jsonl": (("ledger",),),
    "in.parquet": (("privatize", "--column", "x", "--mechanism", "m.json"),),
    "in.csv": (("privatize", "--column", "x", "--mechanism", "m.json"),),
}
"""File -> the verbs that read such a file."""

STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, float("nan"), float("inf"), 2**70, "", "\x00", "ü" * 50, [], {}, [[]], {"a": {}}, "1e23",
)  # fmt: skip

PIECES = (
    b"\x00",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r\n",
    b"\x1b[31m",
    b'"',
    b"9" * 5000,
    "\u2028".encode(),
)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) inside a JSON value."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


def _another_value(body: bytes, dice: random.Random) -> bytes:
    try:
        value = json.loads(body.decode())
    except ValueError:
        return _flipped(body, dice)
    places = list(_places(value))
    container, key = dice.choice(places)
    action = dice.randrange(3)
    if action == 0:
        container[key] = dice.choice(STRANGE)
    elif action == 1:
        del container[key]
    else:
        other, place = dice.choice(places)
        container[key] = (
            json.loads(json.dumps(other[place]))
            if place in other or isinstance(other, list)
            else None
        )
    return json.dumps(value).encode()


def _flipped(body: bytes, dice: random.Random) -> bytes:
    damaged = bytearray(body)
    for _ in range(dice.choice((1, 1, 3, 20))):
        damaged[dice.randrange(len(damaged))] = dice.randrange(256)
    return bytes(damaged)


def _inserted(body: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(body) + 1)
    return body[:place] + dice.choice(PIECES) + body[place:]


@final
@dataclass(frozen=True, kw_only=True)
class Damage:
    """What is done to a file.

    Arguments:
        name: as the table of cases has it.
        apply: from the file's bytes and dice to other bytes.
        refused: whether every reader must refuse what is left; else it may be a file in order, of another content.
        weight: how often it is drawn.
    """

    name: str
    apply: Callable[[bytes, random.Random], bytes]
    refused: bool
    weight: int = 1


DAMAGES = (
    Damage(
        name="a JSON value changed, removed or exchanged; other files: bytes overwritten",
        apply=_another_value,
        refused=False,
        weight=2,
    ),
    Damage(name="bytes overwritten", apply=_flipped, refused=False),
    Damage(
        name="a piece inserted: NUL, byte order mark, escape, quote, 5,000 digits",
        apply=_inserted,
        refused=False,
    ),
    Damage(
        name="cut short", apply=lambda body, dice: body[: dice.randrange(len(body))], refused=False
    ),
    Damage(
        name="its end repeated",
        apply=lambda body, dice: body + body[dice.randrange(len(body)) :],
        refused=False,
    ),
    Damage(
        name="written as UTF-16",
        apply=lambda body, dice: body.decode("latin-1").encode("utf-16"),
        refused=True,
    ),
    Damage(name="200,000 open brackets", apply=lambda body, dice: b"[" * 200_000, refused=True),
    Damage(
        name="objects 50,000 deep",
        apply=lambda body, dice: b'{"format":' * 50_000 + b"1" + b"}" * 50_000,
        refused=True,
    ),
    Damage(
        name="random bytes",
        apply=lambda body, dice: dice.randbytes(dice.randrange(3000)),
        refused=True,
    ),
    Damage(name="compressed by gzip", apply=lambda body, dice: gzip.compress(body), refused=True),
    Damage(
        name="800 kB of other rows in 1 kB of gzip",
        apply=lambda body, dice: gzip.compress(b"x\n" + b"0\n" * 400_000),
        refused=True,
    ),
)

NUMBERS = {"fast": range(25), "slow": range(1000, 1500)}
"""The cases that the tests run."""


@final
@dataclass(frozen=True, kw_only=True)
class Case:
    """One damaged file and who reads it; `dice` draw the damage."""

    number: int
    name: str
    damage: Damage
    verb: tuple[str, ...]
    dice: random.Random


def case(number: int) -> Case:
    """The case of this number."""
    dice = random.Random(number)
    name = dice.choice(sorted(VERBS))
    (damage,) = dice.choices(DAMAGES, [one.weight for one in DAMAGES])
    return Case(number=number, name=name, damage=damage, verb=dice.choice(VERBS[name]), dice=dice)


def table(numbers: Iterable[int]) -> str:
    """Markdown: each damage with the number of its cases."""
    counts = Counter(case(number).damage.name for number in numbers)
    lines = ["| damage | cases |", "|---|--:|"]
    lines += [f"| {damage.name} | {counts[damage.name]} |" for damage in DAMAGES]
    lines.append(f"| together | {counts.total()} |")
    return "\n".join(lines) + "\n"
