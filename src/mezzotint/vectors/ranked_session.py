"""A client's answers with a ranked codebook: seeds by round and slot, one answer each, charged first."""

from __future__ import annotations

import hashlib
import operator
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import final

import numpy.typing as npt

from mezzotint.core.errors import ParameterError
from mezzotint.core.files import AppendLog
from mezzotint.core.kinds import checked
from mezzotint.core.records import JsonObject
from mezzotint.core.types import AnyPath
from mezzotint.privacy.charges import Charge
from mezzotint.privacy.ledger import Ledger
from mezzotint.vectors.ranked import RankedCodebook
from mezzotint.vectors.seeds import round_seeds


@final
@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a round was answered with.

    Arguments:
        slot: as the server assigned it.
        report: of the codebook.
        nonce: of the draw; it tells a repeated answer from a second draw, equal bits or not.
    """

    # Fields are keys of the lines of files of answers.
    slot: int
    report: int
    nonce: str


@final
@checked
class RankedSession:
    """One client's answers. A client program should make its reports only through this class.

    Arguments:
        scheme: the codebook, whose beacon was public before any vector was fixed.
        client: the owner of the vectors, by its name in the ledger.
        ledger: charged before an answer is returned.
        budget: (epsilon, delta) that the client's releases may not exceed together.
        path: file of the answers given; None keeps them in memory, which a restart forgets.
        answers: round -> (slot, report, nonce) of answers that an earlier object gave and the
            caller kept (`answers`), for sessions without a file; they are put on the ledger.

    Guarantees:
        The client's program chooses no seed: a seed consists of round and slot, which the server
        assigns. One answer per round: asked again for the same round and slot, even after a crash
            or for another vector, the session returns the same report, and charges nothing more.
            Another slot of an answered round is refused.
        A report leaves only after it is on disk and charged. A second draw, where the first was
            lost, is charged separately even if its bits are the same, so that neither the ledger
            nor a refusal depends on the bits.

    Example:
        >>> from mezzotint.vectors import ranked_codebook
        >>> scheme = ranked_codebook(3, 1.0, 2)
        >>> session = RankedSession(scheme, client="ann", ledger=Ledger(), budget=(2.0, 0.0))
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
        path: AnyPath | None = None,
        answers: Mapping[int, tuple[int, int, str]] | None = None,
    ) -> None:
        self.scheme = scheme
        self.client = client
        self._ledger = ledger
        self._budget = budget
        self._answers: dict[int, Answer] = {}
        for round_number, (slot, report, nonce) in (answers or {}).items():
            answer = Answer(slot=slot, report=report, nonce=nonce)
            self._answers[round_number] = answer
            self._ledger.charge(self._charge(round_number, answer))
        header = {
            "format": "mezzotint-ranked-answers",
            "version": 2,
            "sha256": scheme.sha256,
            "client": client,
        }
        self._log = AppendLog(
            path,
            header=header,
            take=self._take,
            what="file of answers",
        )

    @property
    def answers(self) -> dict[int, tuple[int, int, str]]:
        """round -> (slot, report, nonce of its draw) of every answer given."""
        self._log.refresh()
        return {
            round_number: (answer.slot, answer.report, answer.nonce)
            for round_number, answer in self._answers.items()
        }

    def _take(self, line: JsonObject) -> None:
        self._answers[line["round"]] = Answer(
            slot=line["slot"],
            report=line["report"],
            nonce=line["nonce"],
        )

    @checked
    def answer(
        self,
        vector: npt.ArrayLike,
        *,
        round_number: int,
        slot: int,
    ) -> int:
        """The report for a question of the server.

        Arguments:
            vector: (d,) data units; ignored if the round was answered before.
            round_number, slot: as the server assigns them.

        Raises:
            ParameterError: the round was answered under another slot, or a vector of another shape.
            BudgetError: the report would not fit into the budget; nothing leaves.
            StorageError: the answer or its charge is not on disk; nothing leaves.
        """
        (seed,) = round_seeds(round_number, [slot]).tolist()
        # Of whatever integer type they are: the file of answers has plain ones.
        round_number, slot = operator.index(round_number), operator.index(slot)
        with self._log.transaction() as append:
            answer = self._answers.get(round_number)
            if answer is None:
                report = int(self.scheme.encode(vector, seed))
                answer = Answer(slot=slot, report=report, nonce=secrets.token_hex(16))
                append({"round": round_number, **asdict(answer)})
            elif answer.slot != slot:
                remedy = "this round was answered under another slot; one answer per round"
                raise ParameterError("slot", slot, remedy)
        # After a crash in between, the stored answer is charged now, before it leaves; otherwise it
        # is charged already.
        self._ledger.reserve(self._charge(round_number, answer), budget=self._budget)
        return answer.report

    def _charge(self, round_number: int, answer: Answer) -> Charge:
        (seed,) = round_seeds(round_number, [answer.slot]).tolist()
        scheme = self.scheme
        draw = f"{scheme.sha256} {seed} {answer.nonce}"
        where = f"round {round_number} slot {answer.slot} of {self.client}"
        return Charge(
            identity=f"ranked {scheme.sha256[:16]} {where}",
            client=self.client,
            epsilon=scheme.epsilon,
            delta=0.0,
            description=f"one index of {scheme.name}, {scheme.bits} bits",
            fingerprint=hashlib.sha256(draw.encode()).hexdigest(),
        )
