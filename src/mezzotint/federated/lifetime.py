"""The ledger of a client's lifetime: the sums it was charged for, and what it signed or opened in
which round.

Flower sends a reply and the state of the client in two requests. A process that dies between them
has answered, and its successor does not know it. So every answer is noted here, on disk, before it
leaves.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

from mezzotint.core.errors import BudgetError, FileFormatError, ParameterError
from mezzotint.core.files import AppendLog
from mezzotint.core.records import JsonObject
from mezzotint.federated.secagg.roster import DEALINGS
from mezzotint.federated.secagg.wire import ReplayedRound

if TYPE_CHECKING:
    from mezzotint.federated.encoding import Encoding

_FORMAT = "mezzotint-lifetime-ledger"

_ALL_STAGES = frozenset({"deal", "sum", "agree", "open", "unite"})
_EXCLUDED_AFTER: Mapping[str, frozenset[str]] = {
    "deal": _ALL_STAGES,
    "sum": _ALL_STAGES - {"deal"},
    "agree": frozenset({"open", "unite"}),
    "open": frozenset({"unite"}),
    "unite": frozenset({"agree", "open"}),
}
"""Stage -> stages of the same round after which it is refused."""

_REQUIRED_BEFORE: Mapping[str, str] = {
    "sum": "deal",
    "agree": "sum",
    "open": "agree",
    "unite": "sum",
}
"""Stage -> the stage whose answer must be on the ledger; a ledger without it has lost lines."""

Round = tuple[str, int]
"""Session and number. Not the plan: of one round, a server could make two plans."""


@final
@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer to one stage of a round, before it leaves.

    Arguments:
        session, number: of the round.
        stage: "deal", "sum", "agree", "open" or "unite".
        payload: the bytes that the server will get.
        agreement: for "open": this client's answer to "agree" for the set that it is to open.
    """

    session: bytes
    number: int
    stage: str
    payload: bytes
    agreement: bytes = b""

    @property
    def round(self) -> Round:
        return self.session.hex(), self.number

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.payload).hexdigest()


@final
class RoundMemory:
    """The digests of a client's answers, by round and stage, and whether it may give one more.

    A round is named by its session and number. Within a round, shares of both secrets of a client
    would unmask it; so one set of clients is signed or opened, once. The answers of committee
    members do not depend on chance, and may be repeated as they were: a member that died between
    noting and answering is not lost for the round.

    Source: docs/proofs/secure-sum.md, F.
    """

    def __init__(self) -> None:
        self._digests: dict[Round, dict[str, str]] = {}
        self._last_dealt: dict[str, int] = {}
        self.dealings = 0
        """Rounds dealt in, of all sessions."""

    def is_repeated(self, answer: Answer) -> bool:
        """Whether this very answer is noted already.

        Raises:
            ReplayedRound: the round was answered otherwise, or too far, or its earlier answers are
                missing.
        """
        earlier = self._digests.get(answer.round, {})
        if earlier.keys() & _EXCLUDED_AFTER[answer.stage]:
            raise ReplayedRound(answer.stage, "this round was answered before, or further")
        if answer.stage == "deal" and answer.number <= self._last_dealt.get(answer.round[0], 0):
            raise ReplayedRound("deal", "a later round of this session was answered before")
        if answer.stage in earlier:
            if earlier[answer.stage] != answer.digest:
                raise ReplayedRound(answer.stage, "this stage was answered before, otherwise")
            return True
        required = _REQUIRED_BEFORE.get(answer.stage, "")
        if required and required not in earlier:
            lost = f"the ledger lacks the answer to {required!r}; was an old copy restored?"
            raise ReplayedRound(answer.stage, lost)
        if answer.stage == "open":
            agreed = hashlib.sha256(answer.agreement).hexdigest()
            if earlier["agree"] != agreed:
                raise ReplayedRound("open", "another set than the one that was signed")
        return False

    def take(self, session: str, number: int, stage: str, digest: str) -> None:
        """Remember an answer."""
        if stage not in _ALL_STAGES:
            raise ValueError("unknown stage")
        self._digests.setdefault((session, number), {})[stage] = digest
        if stage == "deal":
            self.dealings += 1
            self._last_dealt[session] = max(number, self._last_dealt.get(session, 0))


@final
@dataclass(frozen=True, kw_only=True, order=True)
class SumKind:
    """What sums have in common that compose exactly.

    Arguments:
        binding: of the encoding, hexadecimal.
        clients, corrupted: fewest summands, and the number of them that may add no noise.
        size: numbers that each client contributes.
    """

    binding: str
    clients: int
    corrupted: int
    size: int

    def to_list(self) -> list[str | int]:
        return [self.binding, self.clients, self.corrupted, self.size]

    @classmethod
    def from_list(cls, values: list[str | int]) -> SumKind:
        binding, clients, corrupted, size = values
        return cls(
            binding=str(binding), clients=int(clients), corrupted=int(corrupted), size=int(size)
        )


def lifetime_path(folder: str | Path, identity: str) -> Path:
    """The file of a client's ledger in its folder of records; `identity` in hexadecimal."""
    return Path(folder) / f"sums-{identity[:16]}.jsonl"


REPORTS = "reports.jsonl"
"""The ledger of a client's single reports, in its folder of records."""


def begin_lifetime(folder: str | Path, identity: str) -> Path:
    """Make a client's folder of records and begin its ledgers there, of sums and of single reports;
    returns its path.

    Only an enrolment calls this. A client whose ledger is missing must not begin another one: it
    would have forgotten what it signed, and what it spent.
    """
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    from mezzotint.privacy.ledger import Ledger  # heavy, and not needed to note answers

    path = lifetime_path(folder, identity)
    LifetimeLedger(path, identity=identity)
    Ledger(Path(folder) / REPORTS)
    return path


@final
class LifetimeLedger:
    """The sums a client took part in, and its answers, on disk before they leave; processes may
    share the file.

    Sums of one kind (encoding, fewest summands, corrupted ones, size) are composed by the
    encoding's own accountant; kinds are added up, each at its share of delta. A charge assumes the
    worst case, a sum of the plan's minimum in which corrupted clients add no noise, and is never
    taken back.

    Arguments:
        path: file, created if absent.
        identity: of the client, hexadecimal; a file of another client is refused.

    Raises:
        FileFormatError: a file of another client, or damaged other than by a crash.
        StorageError: it cannot be written or locked.

    Guarantees: `charge` and `note` return after their line is on disk; if they raise, nothing may
        be sent.

    Example:
        >>> from pathlib import Path
        >>> ledger = mz.federated.LifetimeLedger(Path("life.jsonl"), identity="ab" * 32)
        >>> Path("life.jsonl").exists()
        True
    """

    def __init__(self, path: Path, *, identity: str) -> None:
        self._counted: dict[SumKind, int] = {}
        self._summed: set[tuple[str, int]] = set()
        self._encodings: dict[str, bytes] = {}
        self._plans: set[str] = set()
        self._memory = RoundMemory()
        header = {"format": _FORMAT, "version": 1, "identity": identity}
        self._log = AppendLog(path, header=header, take=self._take, what="ledger")

    def note(self, answer: Answer, *, dealings: int = DEALINGS) -> None:
        """Note an answer other than a sum's, before it leaves.

        Arguments:
            answer: what will be sent.
            dealings: most rounds that this client deals in.

        Raises:
            ReplayedRound: the round was answered otherwise, or further, or its earlier answers are
                missing.
            BudgetError: this client dealt in `dealings` rounds already.
        """
        with self._log.transaction() as append:
            if self._memory.is_repeated(answer):
                return
            if answer.stage == "deal" and self._memory.dealings >= dealings:
                raise BudgetError(f"dealings={dealings}: this client dealt in as many rounds")
            append(_noted(answer))

    def charge(
        self,
        encoding: Encoding,
        *,
        plan: bytes,
        clients: int,
        corrupted: int,
        size: int,
        budget: float,
        delta: float,
        session: bytes = b"",
        number: int = 1,
        payload: bytes = b"",
    ) -> float:
        """Charge one more sum, before any part of it is sent.

        Arguments:
            encoding: of the sum.
            plan: its digest.
            clients, corrupted: fewest summands, and the number of them that may add no noise.
            size: numbers that each client contributes: parameters of the model, or metrics.
            budget, delta: the largest total epsilon (inf: any), and its delta.
            session, number: of the round; without a session the sum stands alone.
            payload: the masked input, which is noted as the answer to "sum"; without it the sum is
                charged alone.

        Returns: epsilon of all sums, this one included; inf without a budget, when sums are only
            recorded.

        Raises:
            BudgetError: the total would exceed the budget; nothing is charged.
            ReplayedRound: a sum of this plan, or of another plan of this round, is on the ledger: a
                second answer may open both secrets. Or the dealing is not on it.
            ParameterError: a budget, but this encoding, or an earlier one, has no claim against its
                server.
            FileFormatError: a budget, and sums on the ledger whose encoding this version cannot
                read.
        """
        from mezzotint.federated.joined import packed  # heavy, and not needed to note answers

        kind = SumKind(
            binding=encoding.binding.hex(), clients=clients, corrupted=corrupted, size=size
        )
        line: JsonObject = {
            "plan": plan.hex(),
            "purpose": encoding.purpose,
            "kind": kind.to_list(),
        }
        if session:
            line |= {"session": session.hex(), "number": number}
        with self._log.transaction() as append:
            self._check_unanswered(line)
            if payload:
                answer = Answer(session=session, number=number, stage="sum", payload=payload)
                self._memory.is_repeated(answer)  # never true: a repeated sum is refused
                line |= _noted(answer)
            counted = {**self._counted, kind: self._counted.get(kind, 0) + 1}
            encodings = self._encodings | {kind.binding: packed(encoding)}
            total = math.inf if math.isinf(budget) else _total(counted, encodings, delta)
            if total > budget:
                raise BudgetError(
                    f"epsilon {total:g} in all its sums would exceed the budget of {budget:g}"
                )
            if kind.binding not in self._encodings:
                line["encoding"] = encodings[kind.binding].hex()
            append(line)
        return total

    def _check_unanswered(self, line: JsonObject) -> None:
        """Refuse a sum of a plan, or of a round, that is on the ledger."""
        if line["plan"] in self._plans:
            raise ReplayedRound("sum", "this round was answered before, perhaps by another process")
        if "session" in line and (line["session"], line["number"]) in self._summed:
            raise ReplayedRound("sum", "this round was answered before, under another plan")

    def spent(self, delta: float) -> float:
        """Epsilon of all sums so far."""
        self._log.refresh()
        return _total(self._counted, self._encodings, delta)

    @property
    def sums(self) -> int:
        """The number of sums so far."""
        self._log.refresh()
        return sum(self._counted.values())

    @property
    def dealings(self) -> int:
        """The number of rounds dealt in so far."""
        self._log.refresh()
        return self._memory.dealings

    def _take(self, line: JsonObject) -> None:
        if "stage" in line:
            stage, digest = str(line["stage"]), str(line["answer"])
            self._memory.take(str(line["session"]), int(line["number"]), stage, digest)
            if stage != "sum":
                return
        self._plans.add(str(line["plan"]))
        kind = SumKind.from_list(line["kind"])
        self._counted[kind] = self._counted.get(kind, 0) + 1
        if "session" in line:
            self._summed.add((str(line["session"]), int(line["number"])))
        if "encoding" in line:
            self._encodings[kind.binding] = bytes.fromhex(line["encoding"])


def _noted(answer: Answer) -> JsonObject:
    """The line of an answer."""
    session, number = answer.round
    return {"session": session, "number": number, "stage": answer.stage, "answer": answer.digest}


def _total(counted: Mapping[SumKind, int], encodings: dict[str, bytes], delta: float) -> float:
    share = math.nextafter(delta / len(counted), 0.0) if len(counted) > 1 else delta
    each = [
        _epsilon(_known(encodings.get(kind.binding, b"")), rounds, kind, share)
        for kind, rounds in counted.items()
    ]
    return math.nextafter(math.fsum(each), math.inf) if len(each) > 1 else sum(each)


def _known(described: bytes) -> Encoding:
    from mezzotint.federated.joined import unpacked

    try:
        return unpacked(described)
    except (FileFormatError, ParameterError) as error:
        remedy = (
            "what those sums cost cannot be added up here, and none is forgotten: let the version that wrote them "
            "print LifetimeLedger(path, identity=...).spent(delta / 2), take that off the policy's budget, halve its "
            "delta, and only then put the file away, so that a new one begins"
        )
        raise FileFormatError(
            f"ledger: it holds sums of an encoding that this version cannot read ({error}); {remedy}"
        ) from None


def _epsilon(encoding: Encoding, rounds: int, kind: SumKind, delta: float) -> float:
    """Epsilon of sums of one kind, in all sessions together."""
    from mezzotint.federated.budgets import Sums

    sums = Sums(
        size=kind.size,
        clients=kind.clients,
        rounds=rounds,
        corrupted=kind.corrupted,
        delta=delta,
    )
    claims = encoding.claims(sums)
    if "local" not in claims:  # no noise of the clients' own
        raise ParameterError(
            "encoding", encoding.sha256, "nothing is claimed of its sums against their server"
        )
    return claims["central"].epsilon
