"""Claim files of any content get a verdict: no exception, no long wait, no memory spent, no sentence of theirs."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from mezzotint import kernel
from mezzotint.kernel.checker import verdict_on
from mezzotint.kernel.units import MAX_TEXT, canonical, sha256
from reference.kernel import claim, leaves, sealed

QUARTER = 2**30
TABLE = canonical(
    {"knots": [0, 1], "levels": [0, 1], "weights": [[3 * QUARTER, QUARTER], [QUARTER, 3 * QUARTER]]}
)
GRID = {"low": -20, "high": 20}


def _files() -> list[dict[str, Any]]:
    """One valid file of each shape that is cheap to check."""
    release = kernel.ExactRelease(observer="reports", tables=((sha256(TABLE), 1),), rounds=2)
    secret = kernel.ExactRelease(
        observer="reports", tables=((sha256(TABLE), 1),), sampling="poisson", rate=Fraction(1, 2)
    )
    summed = kernel.ExactRelease(
        observer="secure_sum", tables=((sha256(TABLE), 1),), clients=3, lattice=(0, 1)
    )
    model = kernel.ExactRelease(observer="model", noise_multiplier=Fraction(2))
    blanket = {"rows": [0, 1], "block": 1, "components": []}
    cases = {"blankets": [blanket], "others": 2, "cases": {"corners": [[]]}}
    losses = {"step": "1/5", "tail": 100, "grids": [GRID]}
    noise = {"kappa": "1", "step": "1/4", "tail": 100, "sampled": GRID}
    profile = {
        "kind": "profile",
        "first": 9,
        "second": 8,
        "sampled": 9,
        "epsilon": "1",
        "log10_delta": "0",
    }
    bound = {
        "kind": "lower_bound",
        "loss": "mse",
        "prior": "uniform",
        "levels": 2,
        "epsilon": "1",
        "value": "0",
    }
    cut = {"edges": [-4, 4], "roots": [[-8, 8]], "ends": [[0, 0], [0, 0]]}
    made = [
        (claim(release, "3"), "ratio", {"tables": [TABLE]}),
        (claim(release, "1", "0.9"), "losses", {"tables": [TABLE], **losses}),
        (claim(release, "1", "0.9"), "renyi", {"tables": [TABLE], "order": "2"}),
        (claim(secret, "1", "0.9"), "losses", {"tables": [TABLE], **losses, "sampled": GRID}),
        (claim(summed, "1", "0.9"), "sum", {"tables": [TABLE], "tail": 100, **cases}),
        (claim(model, "3", "0.9"), "gaussian", noise),
        (kernel.ExactClaim(release=None, statement=profile), "profile", {}),
        (kernel.ExactClaim(release=None, statement=bound), "dual", {"scale": 2, "axis": [-8, 8], "cuts": [cut]}),
    ]  # fmt: skip
    return [
        {**said.document(), "proof": sealed(said, kind, **content)} for said, kind, content in made
    ]


ODD: list[Any] = [
    None, True, 0, -1, 2**70, 10**12, 10**400, "", "1e-5000", "1e9999", "9" * 1200, "1/3", "-1", "1e-9999", "\ud800",
    "x" * 1000, [], [[]], [0] * 1000, {}, {"a": {}}, [None], "certified: yes", "1/0", 0.5, "nan", -(10**12),
]  # fmt: skip


def _said(text: str, seconds: int = 5) -> tuple[int, str]:
    status, sentence, found = verdict_on(text, seconds)
    assert status in (0, 1, 2)
    assert sentence.isascii()
    assert sentence.isprintable()
    starts = {0: ("certified: ",), 1: ("REFUSED at ", "NOT CHECKED: "), 2: ("UNREADABLE: ",)}
    assert sentence.startswith(starts[status])
    assert (status == 0) == (found is not None and found.certified)
    return status, sentence


@pytest.mark.parametrize("number", range(8))
def test_every_field_may_hold_anything(number: int) -> None:
    """Each field of a file of each kind is replaced by odd values, with the hash of the claim made right."""
    document, chosen = _files()[number], random.Random(number)
    assert _said(json.dumps(document))[0] == 0
    for path in leaves(document):
        for value in chosen.sample(ODD, 5):
            forged = json.loads(json.dumps(document))
            target = forged
            for key in path[:-1]:
                target = target[key]
            target[path[-1]] = value
            try:
                # The hash that a forger would write, where the claim can be read.
                said, _ = kernel.read_claim(json.dumps(forged))
                forged["proof"]["claim_sha256"] = said.sha256
            except (kernel.Unreadable, kernel.Refused, TypeError, AttributeError):
                pass
            _said(json.dumps(forged))


HUGE = [
    '{"format": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "[" * (MAX_TEXT // 2),
    '{"a": "' + "x" * MAX_TEXT + '"}',
    "1" * 5_000,
    '{"format": "mezzotint-claim", "version": ' + "1" * 10_000 + "}",
    '{"format": "\\ud800"}',
    "\ud800",
    "\x00",
    "",
    "null",
    "[]",
    '{"a": 1, "a": 2}',
    '{"a": NaN}',
    '{"a": 1e400}',
]


@pytest.mark.parametrize("number", range(len(HUGE)))
def test_every_text_gets_a_sentence(number: int) -> None:
    started = time.process_time()
    assert _said(HUGE[number])[0] == 2
    assert time.process_time() - started < 60  # no loop without a limit; speed itself is not tested


def test_a_trillion_coordinates_are_no_use_of_memory() -> None:
    """Losses of 10,000 nats at each of 10^12 coordinates: the number is refused before it is made."""
    release = kernel.ExactRelease(
        observer="reports",
        tables=((sha256(TABLE), 10**12),),
        sampling="public",
        rate=Fraction(1, 2),
    )
    stated = claim(release, "1", "1/2")
    far = {"low": 10_000, "high": 10_010}
    proof = sealed(stated, "losses", tables=[TABLE], step="1", tail=160, grids=[far], sampled=GRID)
    status, sentence = _said(kernel.write_claim(stated, proof), 60)
    assert (status, "size" in sentence) == (1, True)


def test_verdicts_of_files_never_raise(tmp_path: Path) -> None:
    binary = tmp_path / "binary"
    binary.write_bytes(bytes(range(256)))
    for path in (binary, tmp_path, tmp_path / "absent", "\x00", "x" * 5000, None):
        status, sentence, found = kernel.verdict(path)  # pyright: ignore[reportArgumentType]
        assert (status, found) == (2, None)
        assert sentence.startswith("UNREADABLE: ")
    good = tmp_path / "good.json"
    good.write_text(json.dumps(_files()[0]))
    assert kernel.verdict(good).status == kernel.verdict(str(good)).status == 0


def test_a_pipe_is_no_claim_file(tmp_path: Path) -> None:
    """Nobody ever writes to it, so that reading would wait for ever."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[kernel.checker.Verdict] = []
    reader = threading.Thread(target=lambda: heard.append(kernel.verdict(pipe)), daemon=True)
    reader.start()
    reader.join(20)
    assert [(answer.status, answer.sentence) for answer in heard] == [
        (2, "UNREADABLE: not a regular file")
    ]


NO_DOCUMENTS: dict[str, Callable[[], object]] = {
    "keys of two types": lambda: {1: "a", "kind": "ratio"},
    "a tuple as a key": lambda: {("kind",): "ratio"},
    "bytes": lambda: {"kind": b"ratio"},
    "a set": lambda: {"kind": {"ratio"}},
    "no number": lambda: {"kind": float("nan")},
    "a list": lambda: [1, 2],
    "nothing": lambda: None,
    "a number": lambda: 7,
    "itself": lambda: _endless(),
    "depth": lambda: {"kind": json.loads("[" * 900 + "]" * 900)},
}


def _endless() -> dict[str, Any]:
    document: dict[str, Any] = {}
    document["kind"] = document
    return document


@pytest.mark.parametrize("name", NO_DOCUMENTS)
def test_a_proof_that_is_no_document_is_unreadable(name: str) -> None:
    """Callers in the same process may hand over anything."""
    release = kernel.ExactRelease(observer="reports", tables=((sha256(TABLE), 1),))
    with pytest.raises(kernel.Unreadable):
        kernel.check(claim(release, "3"), NO_DOCUMENTS[name]())  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("change", [{"rate": 0.5}, {"observer": "nobody"}, {"rounds": {1}}])
def test_a_release_that_is_no_document_is_unreadable(change: dict[str, Any]) -> None:
    release = kernel.ExactRelease(
        **{"observer": "reports", "tables": ((sha256(TABLE), 1),), **change}
    )
    stated = kernel.ExactClaim(
        release=release, statement={"kind": "dp", "epsilon": "3", "delta": "0"}
    )
    with pytest.raises(kernel.Unreadable):
        kernel.check(stated, {"kind": "ratio"})


def _table(*rows: list[int]) -> str:
    knots, levels = list(range(len(rows))), list(range(len(rows[0])))
    return canonical({"knots": knots, "levels": levels, "weights": list(rows)})


def _greedy(name: str) -> str:
    """A small file that asks for much memory or time, by the size and the number of its numbers."""
    total, seen = 2**32, {"observer": "reports", "rounds": 2}
    many = _table(*([row + 1, total - row - 1] for row in range(20_000)))
    grid, losses = {"low": -1000, "high": 1000}, {"kind": "losses", "step": "1/100", "tail": 160}
    summed = {"observer": "secure_sum", "clients": 3, "lattice": (0, 16_383)}
    blanket = {"rows": [0, 1], "block": 1, "components": []}
    leaf = {"tail": 110, "others": 2, "blankets": [blanket], "cases": {"corners": [[]]}}
    table, release, proof = TABLE, dict(seen), losses | {"grids": [grid]}
    if name == "points of high losses":
        proof |= {"step": "1/40", "grids": [{"low": 2_000_000, "high": 4_000_000}]}
    if name == "points":
        proof |= {"step": "1/10000", "grids": [{"low": -900_000, "high": 4_000_000}]}
    if name == "rows of losses":
        table = many
    if name == "rows of one report":
        table, release, proof = many, {"observer": "reports"}, {"kind": "delta"}
    if name == "rows of a lattice":
        table, release, proof = many, summed, {"kind": "sum", **leaf}
    if name == "composed losses":
        release |= {"tables": ((sha256(TABLE), 10**12),)}
        proof |= {"step": "1/20000", "grids": [{"low": -22_000, "high": 22_000}]}
    if name == "losses beyond the grid, sampled":
        release |= {"tables": ((sha256(TABLE), 64),), "sampling": "poisson", "rate": Fraction(1, 2)}
        proof |= {
            "step": "10",
            "grids": [{"low": 0, "high": 10_000}],
            "sampled": {"low": 0, "high": 1},
        }
    if name == "corners above the draws":
        shape = {"shape": [2**30, 2**30], "places": [[1], [1]]}
        forged = blanket | {"components": [shape]}
        release = summed | {"lattice": (0, 1)}
        proof = {"kind": "sum", **leaf, "blankets": [forged], "cases": {"corners": [[10**70]]}}
    if name == "shapes":
        shape = {"shape": [1] * 1_000_000, "places": [[1], [1]]}
        release = summed | {"lattice": (0, 1)}
        proof = {"kind": "sum", **leaf, "blankets": [blanket | {"components": [shape]}]}
    if name == "rates of many digits":
        table = ""
        rate = Fraction(10**1198 + 1, 10**1199 + 7)
        model = {"sampling": "poisson", "rate": rate, "records_per_user": 100}
        release = {"observer": "model", "noise_multiplier": Fraction(1), "rounds": 1, **model}
        proof = {"kind": "gaussian", "kappa": "1", "step": "1/10", "tail": 160, "sampled": grid}
    if table:
        release = {"tables": ((sha256(table), 1),), **release}
    stated = claim(kernel.ExactRelease(**release), "1", "1/2")
    content = {key: value for key, value in proof.items() if key != "kind"}
    sealed_proof = sealed(stated, str(proof["kind"]), tables=[table] if table else [], **content)
    return kernel.write_claim(stated, sealed_proof)


GREEDY = {
    "points of high losses": "REFUSED at size", "points": "REFUSED at size", "rows of losses": "REFUSED at size",
    "rows of one report": "REFUSED at size", "rows of a lattice": "REFUSED at size", "composed losses": "",
    "losses beyond the grid, sampled": "REFUSED at size", "corners above the draws": "",
    "shapes": "REFUSED at size", "rates of many digits": "",
}  # fmt: skip

_LIMITED = """
import re, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 * 2**30, 3 * 2**30))
from mezzotint import kernel
import time
started = time.process_time()
print(kernel.verdict(sys.argv[1], int(sys.argv[2])).sentence)
# Unlike ru_maxrss, this begins anew when a program is started, however large the parent was.
peak = re.search(r"VmHWM:\\s+([0-9]+) kB", open("/proc/self/status").read())
print(time.process_time() - started, peak[1])
"""


@pytest.mark.parametrize("name", GREEDY)
def test_a_small_file_takes_neither_memory_nor_time_beyond_the_limits(
    name: str, tmp_path: Path
) -> None:
    """In a process of its own with 3 GB of addresses, which FLINT ends where memory ends."""
    path, seconds = tmp_path / "greedy.json", 1
    path.write_text(_greedy(name))
    command = [sys.executable, "-c", _LIMITED, str(path), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    sentence, spent = done.stdout.splitlines()
    assert sentence.startswith(("REFUSED at ", "NOT CHECKED: the limit of time"))
    assert sentence.startswith(GREEDY[name])
    used, kilobytes = spent.split()
    assert float(used) < seconds + 10  # one product more: no loop without a tick
    assert int(kilobytes) < 2**20
