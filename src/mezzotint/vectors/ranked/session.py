"""The seed rule, enforced where reports are made: seeds by round and slot, one answer each, charged before."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import check_count
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import AppendLog, Line
from mezzotint.privacy.ledger import Charge, Ledger
from mezzotint.vectors.ranked.scheme import RankedCodebook

_MOST = 2**32


def round_seeds(round_number: int, slots: Iterable[int]) -> npt.NDArray[np.uint64]:
    """The seeds of some slots of a round: round times 2**32 plus slot. Reports of one round share a transform.

    Arguments:
        round_number: 0 to 2**32 - 1.
        slots: 0 to 2**32 - 1; which client has which slot must not depend on the clients' vectors.
    """
    numbers = [_checked("slot", slot) for slot in slots]
    return np.array([(_checked("round_number", round_number) << 32) + slot for slot in numbers], dtype=np.uint64)


def _checked(name: str, value: Any) -> int:
    number = check_count(name, value, least=0)
    if number >= _MOST:
        raise ParameterError(name, value, "need an integer from 0 to 2**32 - 1")
    return number


@final
class RankedSession:
    """One client's answers: the only object that a client program should make reports with.

    Arguments:
        scheme: the codebook, whose beacon was public before any vector was fixed.
        client: whose vectors these are, as the ledger calls it.
        ledger: what is charged, before an answer is handed out.
        budget: (epsilon, delta) that the client's releases may not exceed together.
        path: file of the answers given; None keeps them in memory, which a restart forgets.
        answers: round -> (slot, report, nonce) of answers that an earlier object gave and the caller kept (`answers`),
            for sessions without a file; they are on the ledger from now on.

    Guarantees:
        The client's program chooses no seed: a seed is made of round and slot, which the server assigns.
        One answer per round: asked again for the same round and slot, also after a crash or for another vector, the
        same report comes back, and nothing more is charged. Another slot of an answered round is refused.
        A report leaves only after it is on disk and charged. A repeated question gets the stored draw, charged once; a
            second draw, where the first was lost, is charged as one of its own also if its bits are the same, so that
            neither the ledger nor a refusal tells of the bits.

    Example:
        >>> from mezzotint.vectors import ranked_codebook
        >>> session = RankedSession(ranked_codebook(3, 1.0, 2), client="ann", ledger=Ledger(), budget=(2.0, 0.0))
        >>> first = session.answer([0.1, 0.2, 0.3], round_number=0, slot=17)
        >>> session.answer([0.3, 0.2, 0.1], round_number=0, slot=17) == first
        True
    """

    def __init__(
        self,
        scheme: RankedCodebook,
        *,
        client: str,
        ledger: Ledger,
        budget: tuple[float, float],
        path: str | os.PathLike[str] | None = None,
        answers: Mapping[int, tuple[int, int, str]] | None = None,
    ) -> None:
        self.scheme, self.client = scheme, client
        self._ledger, self._budget = ledger, budget
        self._answers: dict[int, tuple[int, int, str]] = dict(answers or {})
        for round_number, (slot, _, nonce) in self._answers.items():
            self._ledger.charge(self._release(round_number, slot, nonce))
        header = {"format": "mezzotint-ranked-answers", "version": 2, "sha256": scheme.sha256, "client": client}
        self._log = AppendLog(path, header=header, take=self._take, what="file of answers")

    def _take(self, line: Line) -> None:
        self._answers[line["round"]] = (line["slot"], line["report"], line["nonce"])

    @property
    def answers(self) -> dict[int, tuple[int, int, str]]:
        """round -> (slot, report, nonce of its draw) of every answer given."""
        self._log.refresh()
        return dict(self._answers)

    def answer(self, vector: npt.ArrayLike, *, round_number: int, slot: int) -> int:
        """The report for a question of the server.

        Arguments:
            vector: (d,) data units. What it is does not matter when the round was answered before.
            round_number, slot: as the server assigns them.

        Raises:
            ParameterError: the round was answered under another slot, or a vector of another shape.
            BudgetError: the report would not fit into the budget; nothing leaves.
            StorageError: the answer or its charge is not on disk; nothing leaves.
        """
        (seed,) = round_seeds(round_number, [slot]).tolist()
        with self._log.transaction() as append:
            known = self._answers.get(round_number)
            if known is not None and known[0] != slot:
                raise ParameterError("slot", slot, "this round was answered under another slot; one answer per round")
            if known is None:
                report, nonce = int(self.scheme.encode(np.asarray(vector), seed)), secrets.token_hex(16)
                append({"round": round_number, "slot": slot, "report": report, "nonce": nonce})
            else:
                _, report, nonce = known
        # After a crash in between, the stored answer is charged now, before it leaves; else it has been charged.
        self._ledger.reserve(self._release(round_number, slot, nonce), budget=self._budget)
        return report

    def _release(self, round_number: int, slot: int, nonce: str) -> Charge:
        """The charge of an answer; its fingerprint tells a repeated answer from a second draw, equal bits or not."""
        (seed,) = round_seeds(round_number, [slot]).tolist()
        drawn = f"{self.scheme.sha256} {seed} {nonce}"
        return Charge(
            identity=f"ranked {self.scheme.sha256[:16]} round {round_number} slot {slot} of {self.client}",
            client=self.client,
            epsilon=self.scheme.epsilon,
            delta=0.0,
            description=f"one index of {self.scheme.name}, {self.scheme.bits} bits",
            fingerprint=hashlib.sha256(drawn.encode()).hexdigest(),
        )
