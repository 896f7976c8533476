"""The ledger of a client's lifetime: the sums it was charged for, and what it signed or opened in
which round.

Flower sends a reply and the state of the client in two requests. A process that dies between them
has answered, and its successor does not know it. So every answer is noted here, on disk, before it
leaves.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, final

from mezzotint.core.arguments import check_count, check_limit
from mezzotint.core.errors import BudgetError, FileFormatError, ParameterError
from mezzotint.core.files import AppendLog
from mezzotint.core.kinds import checked
from mezzotint.core.records import JsonObject, above, exactly
from mezzotint.core.types import AnyPath
from mezzotint.federated.secagg.roster import DEALINGS
from mezzotint.federated.secagg.wire import ReplayedRound

if TYPE_CHECKING:
    from mezzotint.federated.budgets import Sums
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

_MIXED = (
    "; of sums of several kinds only those of Gaussian noise add up whatever their server saw "
    "before it chose: list that noise alone in the policy's mechanisms"
)

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

    @property
    def line(self) -> JsonObject:
        """The answer on the ledger."""
        session, number = self.round
        return {"session": session, "number": number, "stage": self.stage, "answer": self.digest}


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
        session, number = answer.round
        if answer.stage == "deal" and number <= self._last_dealt.get(session, 0):
            raise ReplayedRound("deal", "a later round of this session was answered before")
        if answer.stage in earlier:
            if earlier[answer.stage] != answer.digest:
                raise ReplayedRound(answer.stage, "this stage was answered before, otherwise")
            return True
        required = _REQUIRED_BEFORE.get(answer.stage, "")
        if required and required not in earlier:
            raise ReplayedRound(
                answer.stage,
                f"the ledger lacks the answer to {required!r}; was an old copy restored?",
            )
        if answer.stage == "open":
            agreed = hashlib.sha256(answer.agreement).hexdigest()
            if earlier["agree"] != agreed:
                raise ReplayedRound("open", "another set than the one that was signed")
        return False

    def take(self, session: str, number: int, stage: str, digest: str) -> None:
        """Remember an answer."""
        if stage not in _ALL_STAGES:
            raise ValueError("unknown stage")
        round_digests = self._digests.setdefault((session, number), {})
        round_digests[stage] = digest
        if stage == "deal":
            self.dealings += 1
            last_dealt = self._last_dealt.get(session, 0)
            self._last_dealt[session] = max(number, last_dealt)


@final
class SumKind(NamedTuple):
    """What sums have in common that compose exactly: the binding of their encoding in hexadecimal,
    the fewest summands, how many of these may add no noise, and the numbers of each client.
    """

    binding: str
    clients: int
    corrupted: int
    size: int


def lifetime_path(folder: str | Path, identity: str) -> Path:
    """The file of a client's ledger in its folder of records; `identity` in hexadecimal."""
    return Path(folder) / f"sums-{identity[:16]}.jsonl"


REPORTS = "reports.jsonl"
"""The ledger of a client's single reports, in its folder of records."""


def begin_lifetime(folder: str | Path, identity: str) -> Path:
    """Make a client's folder of records and begin its ledgers there, of sums and of single reports;
    returns its path.

    Only an enrolment calls this. Each client has a folder of its own: sums have a ledger for each
    identity, but single reports one that does not tell identities apart, and counts the charges of
    all clients of a folder against each. A client whose ledger is missing must not begin another one: it
    would have forgotten what it signed, and what it spent.
    """
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    from mezzotint.privacy.ledger import Ledger  # heavy, and not needed to note answers

    path = lifetime_path(folder, identity)
    LifetimeLedger(path, identity=identity)
    Ledger(Path(folder) / REPORTS)
    return path


@final
@checked
class LifetimeLedger:
    """The sums a client took part in, and its answers, on disk before they leave; processes may
    share the file.

    Sums of one kind (encoding, fewest summands, corrupted ones, size) are composed by the
    encoding's own accountant; kinds of Gaussian noise are added up, each at its share of delta.
    Where one of several kinds is of another noise, their total is inf: a server that chooses the
    next kind by what it saw could reach more than delta. A charge assumes the worst case, a sum of
    the plan's minimum in which corrupted clients add no noise, and is never taken back.

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

    def __init__(self, path: AnyPath, *, identity: str) -> None:
        self._counts: Counter[SumKind] = Counter()
        self._encodings: dict[str, bytes] = {}
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
            ParameterError: `dealings` is not a count.
        """
        most_dealings = check_count("dealings", dealings, least=0)
        with self._log.transaction() as append:
            if self._memory.is_repeated(answer):
                return
            if answer.stage == "deal" and self._memory.dealings >= most_dealings:
                raise BudgetError(f"dealings={most_dealings}: this client dealt in as many rounds")
            append(answer.line)

    def charge(
        self, answer: Answer, encoding: Encoding, single_sum: Sums, *, budget: float
    ) -> float:
        """Charge one more sum and note its masked input, before any part of it leaves.

        Arguments:
            answer: to the stage "sum".
            encoding: of the sum.
            single_sum: this one, as it costs at worst: of the fewest summands, with the number of
                them that may add no noise, at the delta of the budget.
            budget: largest total epsilon of all sums; inf allows any.

        Returns: epsilon of all sums, this one included; inf without a budget, when sums are only
            recorded.

        Raises:
            BudgetError: the total would exceed the budget; nothing is charged.
            ReplayedRound: a sum of this round is on the ledger, under whatever plan: a second
                answer may open both secrets. Or the dealing is not on it.
            ParameterError: an answer to another stage, or a budget that is not a number >= 0 (NaN
                would limit nothing). A budget, but this encoding, or an earlier
                one, has no claim against its server.
            FileFormatError: a budget, and sums on the ledger whose encoding this version cannot
                read.
        """
        from mezzotint.federated.encoding_files import packed

        most_epsilon = check_limit("budget", budget)
        if answer.stage != "sum":
            raise ParameterError("stage", answer.stage, "a masked input answers the stage 'sum'")
        if single_sum.rounds != 1:
            raise ParameterError("rounds", single_sum.rounds, "sums are charged one by one")
        sum_kind = SumKind(
            binding=encoding.binding.hex(),
            clients=single_sum.clients,
            corrupted=single_sum.corrupted,
            size=single_sum.size,
        )
        line: JsonObject = {**answer.line, "purpose": encoding.purpose, "kind": list(sum_kind)}
        with self._log.transaction() as append:
            self._memory.is_repeated(answer)  # never true: a repeated sum is refused
            counts = self._counts.copy()
            counts[sum_kind] += 1
            encodings = self._encodings | {sum_kind.binding: packed(encoding)}
            total_epsilon = math.inf
            if most_epsilon < math.inf:
                total_epsilon = _total(counts, encodings, single_sum.delta)
            if not total_epsilon <= most_epsilon:  # nor one that is no number
                cost = f"epsilon {above(total_epsilon)} in all its sums"
                reason = _MIXED if len(counts) > 1 and total_epsilon == math.inf else ""
                raise BudgetError(
                    f"{cost} would exceed the budget of {exactly(most_epsilon)}{reason}"
                )
            if sum_kind.binding not in self._encodings:
                line["encoding"] = encodings[sum_kind.binding].hex()
            append(line)
        return total_epsilon

    def spent(self, delta: float) -> float:
        """Epsilon of all sums so far; inf for several kinds that are not all of Gaussian noise."""
        self._log.refresh()
        return _total(self._counts, self._encodings, delta)

    @property
    def sums(self) -> int:
        """The number of sums so far."""
        self._log.refresh()
        return sum(self._counts.values())

    @property
    def dealings(self) -> int:
        """The number of rounds dealt in so far."""
        self._log.refresh()
        return self._memory.dealings

    def _take(self, line: JsonObject) -> None:
        stage = str(line.get("stage", "sum"))  # sums alone were noted once, without a stage
        if "session" in line:
            digest = str(line.get("answer", ""))
            session = str(line["session"])
            number = int(line["number"])
            self._memory.take(session, number, stage, digest)
        if stage != "sum":
            return
        binding, clients, corrupted, size = line["kind"]
        sum_kind = SumKind(str(binding), int(clients), int(corrupted), int(size))
        self._counts[sum_kind] += 1
        if "encoding" in line:
            self._encodings[sum_kind.binding] = bytes.fromhex(line["encoding"])


def _total(counts: Mapping[SumKind, int], encodings: Mapping[str, bytes], delta: float) -> float:
    """Epsilon of sums of several kinds, which are added up, each at its share of delta; inf where
    they are not all of Gaussian noise.
    """
    delta_share = delta
    if len(counts) > 1:
        delta_share = math.nextafter(delta / len(counts), 0.0)
    costs: list[float] = []
    for sum_kind, rounds in counts.items():
        description = encodings.get(sum_kind.binding, b"")
        encoding = _readable(description)
        cost = _cost(encoding, sum_kind, rounds=rounds, delta=delta_share)
        is_gaussian = encoding.noise_multiplier(1) > 0
        costs.append(cost if is_gaussian or len(counts) == 1 else math.inf)
    if len(costs) > 1:
        return math.nextafter(math.fsum(costs), math.inf)
    return sum(costs)


def _readable(description: bytes) -> Encoding:
    """The encoding of a description on the ledger; FileFormatError, with the remedy, where this
    version cannot read it.
    """
    from mezzotint.federated.encoding_files import unpacked

    try:
        return unpacked(description)
    except (FileFormatError, ParameterError) as error:
        remedy = (
            "what those sums cost cannot be added up here, and none is forgotten: let the version that wrote them "
            "print LifetimeLedger(path, identity=...).spent(delta / 2), take that off the policy's budget, halve its "
            "delta, and only then put the file away, so that a new one begins"
        )
        raise FileFormatError(
            f"ledger: it holds sums of an encoding that this version cannot read ({error}); {remedy}"
        ) from None


def _cost(encoding: Encoding, kind: SumKind, *, rounds: int, delta: float) -> float:
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
