"""The proved checker beside the kernel: the same claim files to both, and reasons for what differs."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from mezzotint import kernel
from mezzotint.kernel.checker import verdict_on
from mezzotint.kernel.units import canonical, sha256
from reference import forger
from reference.kernel import forgeries

COMMAND = Path(__file__).parents[2] / "verified" / "build" / "mezzotint-check"
ABSENT = "the proved checker is not built: `make proofs` needs Coq and OCaml"

ROUNDING = Fraction(1, 2**140)
"""Both checkers round masses of 2**-160 up, in different orders: they agree once delta is raised by this."""

BEYOND = (
    "the theorems are not about secret participation",
    "the theorems are not about ranked codebooks",
    "the theorems are about",
    "simulation; no privacy",
)
"""Refusals of claims that the kernel has theorems for and the proved checker has none for yet, and of
simulations, whose proofs the kernel checks before it says that they are no privacy."""


class Checker:
    """The command in batch mode: a claim file per line."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [COMMAND, "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def verdict(self, text: str) -> tuple[int, str]:
        """Status and sentence."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(text.replace("\n", " ") + "\n")
        self.process.stdin.flush()
        status, sentence = self.process.stdout.readline().rstrip("\n").split("\t", 1)
        return int(status), sentence

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


def sealed_text(file: dict[str, Any]) -> str:
    """The claim file with a proof that names it."""
    stated = {key: file[key] for key in ("format", "version", "release", "statement")}
    proof = {**file["proof"], "claim_sha256": sha256(canonical(stated))}
    return canonical({**file, "proof": proof})


def untrimmed(text: str) -> str | None:
    """The same claim with a proof whose products drop nothing, if they drop something."""
    file = json.loads(text)
    if file["proof"].get("tail", 160) == 160:
        return None
    file["proof"]["tail"] = 160
    return sealed_text(file)


def raised(text: str) -> str | None:
    """The same claim with delta raised by ROUNDING, if it has a delta."""
    file = json.loads(text)
    try:
        delta = kernel.units.number(file["statement"]["delta"])
        file["statement"]["delta"] = str(delta + ROUNDING)
        return sealed_text(file)
    except (KeyError, TypeError, kernel.Unreadable):
        return None


@dataclass(frozen=True)
class Comparison:
    """Both verdicts about one claim file; `reason` says why they differ, and is empty if nobody knows."""

    text: str
    kernel: tuple[int, str]
    proved: tuple[int, str]
    reason: str

    @property
    def label(self) -> str:
        """A row of the table of counts."""
        ours, theirs = self.kernel[0] == 0, self.proved[0] == 0
        if ours and theirs:
            return "certified by both"
        if not ours and not theirs:
            return "refused by both"
        who = "the kernel" if ours else "the proved checker"
        return f"certified by {who} alone: {self.reason or 'UNEXPLAINED'}"


def _reason(checker: Checker, text: str, sentence: str) -> str:
    """Why one of them alone certifies; empty if nothing explains it."""
    for words in BEYOND:
        if words in sentence:
            return words
    again = raised(text)
    if again is not None and checker.verdict(again)[0] == verdict_on(again).status == 0:
        return "rounding, both certify delta + 2**-140"
    # A mass that is as large as what may be dropped, up to rounding, is dropped by one of them alone.
    whole = untrimmed(text)
    if whole is not None and (checker.verdict(whole)[0] == 0) == (verdict_on(whole).status == 0):
        return "trimming, both say the same of a proof that drops nothing"
    return ""


def compare(checker: Checker, text: str) -> Comparison:
    """Ask both; where one certifies alone, find the reason by asking again."""
    ours, theirs = verdict_on(text)[:2], checker.verdict(text)
    reason = ""
    if (ours[0] == 0) != (theirs[0] == 0):
        reason = _reason(checker, text, theirs[1])
    return Comparison(text, (ours[0], ours[1]), theirs, reason)


def forged(seed: int) -> Iterator[str]:
    """Claim files without end: releases and proofs of the forger at several deltas, and edited files."""
    draw = forger.Draw(seed)
    while True:
        draw.begin()
        trial = draw.one(forger.ranks, *[forger.reports] * 5)(draw)
        truth = trial.truth
        deltas = [Fraction(0), Fraction(draw.integer(0, 10**6), 10**6)]
        if truth:
            deltas += [
                truth * forger.MARGIN,
                truth,
                truth * (2 - forger.MARGIN),
                truth * Fraction(11, 10),
            ]
        for delta in deltas:
            statement = {"kind": "dp", "epsilon": str(trial.epsilon), "delta": str(delta)}
            claim = kernel.ExactClaim(release=trial.release, statement=statement)
            proof = {"version": 1, "claim_sha256": claim.sha256, "precision": 256}
            file = {**claim.document(), "proof": {**trial.proof, **proof}}
            yield canonical(file)
        if draw.chance(0.2):
            edited = [document for _, document in forgeries(file)]
            for document in draw.random.sample(edited, min(6, len(edited))):
                if draw.chance(0.6) and {"release", "statement", "proof"} <= document.keys():
                    yield sealed_text(document)
                else:
                    yield canonical(document)


def counts(seed: int, most: int) -> tuple[Counter[str], list[Comparison]]:
    """How often each label occurred among so many forged claims, and the unexplained ones."""
    found: Counter[str] = Counter()
    unexplained: list[Comparison] = []
    with Checker() as checker:
        for text, _ in zip(forged(seed), range(most), strict=False):
            compared = compare(checker, text)
            found[compared.label] += 1
            if "UNEXPLAINED" in compared.label:
                unexplained.append(compared)
    return found, unexplained


def main(arguments: list[str]) -> int:
    """Print the counts for SEED and NUMBER of claims."""
    found, unexplained = counts(int(arguments[0]), int(arguments[1]))
    for label, count in sorted(found.items()):
        print(f"{count:8,} {label}")
    for compared in unexplained[:5]:
        print(compared)
    return int(bool(unexplained))


if __name__ == "__main__":
    import sys

    sys.exit(main(sys.argv[1:]))
