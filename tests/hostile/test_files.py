"""Files that are damaged, forged or of another kind: every verb names what is wrong and ends with status 2 or 1.

Each case takes a file that mezzotint wrote, damages it at random, and gives it to a verb. Nothing may raise, one line
on standard error must say what is wrong, and a file that is no longer what was written must not pass `verify`.
"""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import mezzotint as mz
from mezzotint.cli import run

VERBS: dict[str, tuple[tuple[str, ...], ...]] = {
    "m.json": (("show",), ("verify",), ("account",), ("report",)),
    "ranked.json": (("show",), ("verify",), ("report",)),
    "claim.json": (("verify",), ("report",)),
    "reports.parquet": (("estimate",), ("report",)),
    "reports.csv": (("estimate",), ("report",)),
    "reports.csv.gz": (("estimate",),),
    "counts.json": (("estimate",), ("report",)),
    "log.jsonl": (("report",),),
    "in.parquet": (("privatize", "--column", "x", "--mechanism", "m.json"),),
    "in.csv": (("privatize", "--column", "x", "--mechanism", "m.json"),),
}
"""File -> the verbs that read such a file."""

STRANGE: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, float("nan"), float("inf"), 2**70, "", "\x00", "ü" * 50, [], {}, [[]], {"a": {}}, "1e23",
)  # fmt: skip

PIECES = (b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b"\x1b[31m", b'"', b"9" * 5000, "\u2028".encode())


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """One whole file of every kind."""
    folder = tmp_path_factory.mktemp("originals")
    mechanism = mz.families.rqm(lower=0, upper=10, levels=4, extension=5.0, q=0.4)
    mechanism.save(folder / "m.json")
    mz.vectors.ranked_codebook(dimension=4, bits=2, epsilon=2.0).save(folder / "ranked.json")
    claim = mz.kernel.Claim(
        release=mz.kernel.Release(observer="reports", tables=((mechanism.sha256, 1),)),
        statement={"kind": "dp", "epsilon": "9", "delta": "0"},
    )
    proof = {"kind": "ratio", "version": 1, "claim_sha256": claim.sha256, "precision": 128}
    text = mz.kernel.write_claim(claim, proof | {"tables": [mechanism.canonical()]})
    (folder / "claim.json").write_text(text, encoding="utf-8")
    values = np.random.default_rng(1).uniform(0, 10, 60)
    pq.write_table(pa.table({"x": values}), folder / "in.parquet")
    (folder / "in.csv").write_text("x\n" + "\n".join(map(str, values)) + "\n", encoding="utf-8")
    for name in ("reports.parquet", "reports.csv", "reports.csv.gz"):
        mz.collect.privatize(folder / "in.parquet", folder / name, column="x", mechanism=mechanism)
    counts = mz.collect.read_counts(folder / "reports.parquet")
    mz.collect.save_counts(counts, folder / "counts.json")
    lines = [
        {"steps": 2, "model": "logreg", "data": "records", "method": "dp-sgd", "delta": 1e-5, "seed": None},
        {"step": 1, "loss": 0.7, "epsilon": 0.5, "train_accuracy": 0.5, "test_accuracy": 0.5, "seconds": 1.0},
    ]
    (folder / "log.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
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
        container[key] = json.loads(json.dumps(other[place])) if place in other or isinstance(other, list) else None
    return json.dumps(value).encode()


def _flipped(body: bytes, dice: random.Random) -> bytes:
    damaged = bytearray(body)
    for _ in range(dice.choice((1, 1, 3, 20))):
        damaged[dice.randrange(len(damaged))] = dice.randrange(256)
    return bytes(damaged)


def _inserted(body: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(body) + 1)
    piece = dice.choice(
        (b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r\n", b"\x1b[31m", b'"', b"9" * 5000, "\u2028".encode())
    )
    return body[:place] + piece + body[place:]


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _another_value,
    _another_value,
    _flipped,
    _inserted,
    lambda body, dice: body[: dice.randrange(len(body))],
    lambda body, dice: body + body[dice.randrange(len(body)) :],
    lambda body, dice: body.decode("latin-1").encode("utf-16"),
    lambda body, dice: b"[" * 200_000,
    lambda body, dice: b'{"format":' * 50_000 + b"1" + b"}" * 50_000,
    lambda body, dice: dice.randbytes(dice.randrange(3000)),
    lambda body, dice: gzip.compress(body),
    lambda body, dice: gzip.compress(b"x\n" + b"0\n" * 400_000),
)


def _run(arguments: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run(arguments)
    return status, out.getvalue(), err.getvalue()


def _case(number: int, originals: dict[str, bytes], folder: Path) -> None:
    dice = random.Random(number)
    name = dice.choice(sorted(VERBS))
    damage = dice.choice(DAMAGES)
    body = damage(originals[name], dice)
    path = folder / name
    path.write_bytes(body)
    verb, *options = dice.choice(VERBS[name])
    out = [] if verb in ("show", "verify", "account", "estimate") else ["--out", f"out{number}.{_ending(verb)}"]
    status, said, complained = _run([verb, name, *options, *out])
    context = f"case {number}: {verb} {name}\n{said[-300:]}\n{complained[-300:]}"
    assert status in (0, 1, 2), context
    assert "Traceback" not in said + complained, context
    lines = [line for line in complained.splitlines() if not line.startswith("mezzotint: warning: ")]
    unreadable = said.startswith("UNREADABLE: ")  # what `verify` says of a claim file
    assert len(lines) + unreadable == (status == 2), context
    assert all(line.startswith("mezzotint: ") for line in lines), context
    assert not {"\x1b", "\x00"} & set(complained), context
    if status:
        assert not out or not (folder / out[1]).exists(), context
    if verb == "verify" and body != originals[name] and status == 0:
        assert _same(body, originals[name]), context


def _ending(verb: str) -> str:
    return "html" if verb == "report" else "parquet"


def _same(body: bytes, original: bytes) -> bool:
    """Whether what was changed is not part of any claim: white space, or a name."""
    loud = [json.loads(text.decode("utf-8-sig")) for text in (body, original)]
    for document in loud:
        document.pop("name", None)
    return loud[0] == loud[1]


def _cases(numbers: range, originals: dict[str, bytes], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("NO_COLOR", "1")
    for number in numbers:
        for name, body in originals.items():
            (folder / name).write_bytes(body)
        _case(number, originals, folder)


def test_damaged_files_are_named(originals: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _cases(range(25), originals, tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(5))
def test_five_hundred_damaged_files_are_named(
    part: int, originals: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _cases(range(1000 + 100 * part, 1100 + 100 * part), originals, tmp_path, monkeypatch)
