"""Claim files of any content get a verdict: no exception, no long wait, no memory spent, no sentence of theirs."""

from __future__ import annotations

import json
import random
import time
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
