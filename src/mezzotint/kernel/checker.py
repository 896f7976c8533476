"""`check`, the only entry: a claim and its proof go in; the claim comes out certified or
refused."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeAlias

import flint

from mezzotint.kernel.claim import FORMAT, ExactClaim, stamp, words
from mezzotint.kernel.dual import check_dual
from mezzotint.kernel.gaussian import check_gaussian
from mezzotint.kernel.losses import check_delta, check_losses
from mezzotint.kernel.one import check_ratio, check_renyi
from mezzotint.kernel.smoothed import check_profile
from mezzotint.kernel.sums import check_sum
from mezzotint.kernel.table import Tables, read_table
from mezzotint.kernel.units import (
    MAX_TEXT,
    Fields,
    Refused,
    Unfinished,
    Unreadable,
    canonical,
    read_json,
    require,
    set_deadline,
    shown,
    tick,
)

Check: TypeAlias = Callable[[ExactClaim, Fields, Tables], None]

KINDS: dict[str, Check] = {
    "ratio": check_ratio,
    "delta": check_delta,
    "renyi": check_renyi,
    "losses": check_losses,
    "sum": check_sum,
    "gaussian": check_gaussian,
    "dual": check_dual,
    "profile": check_profile,
}


def check(claim: ExactClaim, proof: Mapping[str, object], *, seconds: int = 60) -> ExactClaim:
    """Certify the claim if the proof (docs/file-format.md) shows it.

    Raises:
        Refused: the proof does not show the claim; names the step that fails, what it has and
            needs.
        Unreadable: a field is missing, unknown or of the wrong type.
        Unfinished: the given seconds of processor time were not enough; nothing is known.

    Guarantees:
        A claim that is returned holds, provided that docs/proofs is right, the claim's assumptions
        hold, and Python and FLINT compute as documented. Nothing in the proof is trusted: each
        number is checked or is a harmless choice.
    """
    set_deadline(seconds)
    return _certified(claim, proof)


def _certified(claim: ExactClaim, proof: Mapping[str, object]) -> ExactClaim:
    """What `check` returns, by a time limit that is set."""
    tick()
    # To text and back, so that what is checked is what a file would contain.
    try:
        claim_text = canonical(claim.document())
        proof_text = canonical(dict(proof))
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise Unreadable(f"the claim or the proof is no JSON ({shown(error)})") from None
    read_back = ExactClaim.read(Fields(read_json(claim_text), "claim"))
    fields = Fields(read_json(proof_text), "proof")
    check_kind = KINDS[fields.text("kind", tuple(KINDS))]
    fields.integer("version", 1, 1)
    claim_hash = fields.text("claim_sha256")
    require(claim_hash == read_back.sha256, "proof", "it was written for another claim")
    tables = dict(read_table(text) for text in fields.texts("tables", 1000))
    precision = fields.integer("precision", 64, 512)
    with flint.ctx.workprec(precision):
        check_kind(read_back, fields, tables)
    fields.done()
    return stamp(read_back)


def read_claim(text: str) -> tuple[ExactClaim, dict[str, object]]:
    """The claim and the proof of a claim file, or `Unreadable`; nothing has been checked yet."""
    fields = Fields(read_json(text), "the file")
    claim = ExactClaim.read(fields)
    proof = fields.fields("proof")
    fields.done()
    return claim, proof.values


def write_claim(claim: ExactClaim, proof: Mapping[str, object]) -> str:
    """The text of a claim file, which `read_claim` reads."""
    return canonical({**claim.document(), "proof": dict(proof)})


class Verdict(NamedTuple):
    """What a check says: 0 certified, 1 refused, unfinished or a simulation, 2 unreadable; why;
    and the claim."""

    status: int
    sentence: str
    claim: ExactClaim | None


def verdict(path: str | os.PathLike[str], seconds: int = 60) -> Verdict:
    """Check a claim file; never raises an exception, whatever the file holds."""
    try:
        # A pipe could keep its readers waiting for ever.
        if not stat.S_ISREG(os.stat(path).st_mode):
            return Verdict(2, "UNREADABLE: not a regular file", None)
        with Path(path).open(encoding="utf-8") as file:
            text = file.read(MAX_TEXT + 1)
    except (OSError, TypeError, ValueError) as error:
        # Without the file's name, which could hold a sentence of the kernel.
        return Verdict(2, f"UNREADABLE: no text file ({type(error).__name__})", None)
    return verdict_on(text, seconds)


def verdict_on(text: str, seconds: int = 60) -> Verdict:
    """Check the text of a claim file; never raises an exception, whatever the text is.

    The seconds of processor time hold for reading and checking together.
    """
    claim = None
    try:
        set_deadline(seconds)
        claim, proof = read_claim(text)
        claim = _certified(claim, proof)
        status = int(getattr(claim, "seeded", False))
        return Verdict(status, words(claim), claim)
    except Unreadable as error:
        hint = "" if FORMAT in text else " (no claim file; mezzotint verify?)"
        return Verdict(2, f"UNREADABLE: {error}{hint}", None)
    except Refused as error:
        return Verdict(1, f"REFUSED at {error}", claim)
    except Unfinished as error:
        return Verdict(1, f"NOT CHECKED: {error}", claim)
    except Exception as error:  # such as memory or recursion: nothing was certified
        reason = f"the kernel could not compute this ({type(error).__name__})"
        return Verdict(1, f"NOT CHECKED: {reason}", claim)
