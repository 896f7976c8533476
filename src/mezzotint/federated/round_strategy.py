"""What every strategy does: draw clients, exchange messages, keep the ledger ahead, note
incidents.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from logging import INFO, WARNING
from typing import ClassVar, Generic, Literal, TypedDict, TypeVar, final, get_args

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from mezzotint.core.arguments import (
    check_choice,
    check_count,
    check_instance,
    check_positive,
    check_probability,
)
from mezzotint.core.errors import BudgetError, ParameterError
from mezzotint.core.records import JsonObject, above, counted
from mezzotint.core.types import FloatArray
from mezzotint.federated.budgets import Sums
from mezzotint.federated.flower_records import (
    Key,
    flatten,
    further_answers,
    log,
    one_line,
    parameters,
    protocol_record,
    request,
    unflatten,
)
from mezzotint.federated.run_ledger import RunLedger
from mezzotint.federated.secagg import ProtocolError, TooFewClients
from mezzotint.federated.secagg.plan import SESSION_BYTES
from mezzotint.federated.secagg.roster import SAMPLINGS, Sampling
from mezzotint.federated.server_optimizers import FedAvg, ServerOptimizer, State
from mezzotint.privacy.claim import Claim

_AT_ONCE = 64  # most messages sent, or answers fetched, in one request
_FETCHED_BYTES = 1 << 22  # of answers in one request: they lie in memory until they are read
_SHORTEST, _LONGEST = 0.05, 1.0  # seconds between two polls
_PART = 20  # while nothing arrives, the pause grows to this fraction of the time waited so far


def arriving(
    grid: Grid,
    messages: Iterable[Message],
    *,
    timeout: float,
    answer_bytes: int = 0,
    late: dict[str, int] | None = None,
) -> Iterator[tuple[int, Message]]:
    """Send messages and yield (node asked, answer) as answers arrive, until all have arrived or the
    time is up.

    The node is that of the message answered: Flower itself answers for nodes that it lost, in its
    own name.

    Answers that the caller does not read are never fetched, and large ones (`answer_bytes`) a few
    at a time. Messages that Flower could not send are not waited for. `late` maps earlier messages
    to their nodes: their answers are yielded as well but not waited for; messages still unanswered
    at the end are in it.
    """
    unanswered = {} if late is None else late
    awaited = set[str]()
    outbox = iter(messages)
    while batch := list(islice(outbox, _AT_ONCE)):
        for message, number in zip(batch, grid.push_messages(batch), strict=True):
            if number:
                awaited.add(number)
                unanswered[number] = message.metadata.dst_node_id
    del batch
    asked_nodes = dict(unanswered)  # of a second answer, too
    last_arrival = time.monotonic()  # when something came
    deadline = last_arrival + timeout
    fetchable = _FETCHED_BYTES // max(1, answer_bytes)
    batch_size = max(1, min(_AT_ONCE, fetchable))
    while unanswered:
        is_last_poll = not awaited or time.monotonic() >= deadline
        numbers = list(unanswered)
        before = len(awaited)
        for offset in range(0, len(numbers), batch_size):
            answers = list(grid.pull_messages(numbers[offset : offset + batch_size]))
            while answers:
                answer = answers.pop(0)
                replied = answer.metadata.reply_to_message_id
                awaited.discard(replied)
                unanswered.pop(replied, None)
                yield asked_nodes.get(replied, answer.metadata.src_node_id), answer
        if is_last_poll or not awaited:
            return
        moment = time.monotonic()
        if len(awaited) < before:
            last_arrival = moment
        silence = moment - last_arrival
        pause = min(max(silence / _PART, _SHORTEST), _LONGEST)
        remaining = max(0.0, deadline - moment)
        time.sleep(min(pause, remaining))


Returns = Literal["weights", "update"]
R = TypeVar("R", bound="Running")


@final
@dataclass(frozen=True, kw_only=True)
class Incident:
    """Something that went wrong in a round: its kind, who caused it, and a description."""

    round: int
    client: str
    name: str
    what: str


class RoundTask(TypedDict):
    """What clients are asked to do: the model, and the configuration they train it with."""

    arrays: ArrayRecord
    config: ConfigRecord


@dataclass(kw_only=True)
class Running:
    """The round in progress; `nodes` and `names` are by a client's place in it."""

    number: int
    nodes: dict[int, int]
    task: RoundTask
    grid: Grid
    names: dict[int, str] = field(default_factory=dict)
    requests: Iterator[Message] = field(default_factory=lambda: iter(()))
    """The messages that ask for an update, each made when it is sent."""

    @cached_property
    def places(self) -> dict[int, int]:
        """Node -> place."""
        return {node: position for position, node in self.nodes.items()}

    def name(self, place: int) -> str:
        """The client's name for itself; its node's number before it has given one."""
        return self.names.get(place, str(self.nodes[place]))


class RoundOptions(TypedDict, total=False):
    """The arguments of every `RoundStrategy` that have a default; described there."""

    spare: int
    minimum: int | None
    sampling: Sampling
    learning_rate: float
    optimizer: ServerOptimizer
    returns: Returns
    stage_timeout: float
    ledger: RunLedger | None
    most_rounds: int | None
    session: bytes | None
    delta: float | None


def check_most_rounds(most_rounds: int | None) -> int | None:
    """The limit itself; ParameterError unless it is None or a count: a comparison with NaN would
    never stop a run.
    """
    if most_rounds is None:
        return None
    return check_count("most_rounds", most_rounds, least=0)


def _checked_session(session: bytes) -> bytes:
    if not isinstance(session, bytes) or len(session) != SESSION_BYTES:
        raise ParameterError("session", type(session).__name__, f"need {SESSION_BYTES} bytes")
    return session


class RoundStrategy(Strategy, ABC, Generic[R]):
    """Training rounds of several exchanges, each by Flower's train messages.

    Flower's loop reads answers only when the last has arrived or the time is up, so it is given no
    messages: the strategy sends its own, and reads answers as they arrive.

    Arguments:
        clients_per_round: clients of a round.
        spare: extra clients drawn, so that a round need not wait for the slowest: the training
            stage ends when `clients_per_round` have answered, the stage before it when at most half of the
            spare are missing.
        minimum: fewest clients with which a round goes on; None takes the protocol's default.
        sampling: "fixed": drawn without replacement; or "cyclic": all take turns, longest waiting
            first, and so equally often. No amplification is claimed, for the server knows who took
            part.
        learning_rate: factor on the optimizer's step.
        optimizer: see `ServerOptimizer`; its state is in `optimizer_state`, for resuming a run.
        returns: what clients' train functions return: "weights" (new parameters) or "update" (what
            is added).
        stage_timeout: seconds to wait for the answers of a stage, training included; clients that
            answer later count as drop-outs. The timeout of `start` is not used.
        ledger: records releases before they happen; by default in memory.
        most_rounds: rounds that any one client may be charged for. Clients that reach it are left
            out; the run stops when too few are left.
        session: 16 bytes naming the run; a resumed run passes its own.
        delta: at which the epsilon spent is reported after every round, even a failed one, in the
            log and as the metrics "epsilon" and "delta"; None reports nothing.

    Guarantees:
        A round that fails at any stage leaves the model as it was; the reasons are in `incidents`.
    """

    def __init__(
        self,
        *,
        clients_per_round: int,
        spare: int = 0,
        minimum: int | None = None,
        sampling: Sampling = "fixed",
        learning_rate: float = 1.0,
        optimizer: ServerOptimizer | None = None,
        returns: Returns = "weights",
        stage_timeout: float = 600.0,
        ledger: RunLedger | None = None,
        most_rounds: int | None = None,
        session: bytes | None = None,
        delta: float | None = None,
    ) -> None:
        self.clients_per_round = check_count(
            "clients_per_round", clients_per_round, least=2
        )  # one alone hides nothing
        self.spare = check_count("spare", spare, least=0)
        self.minimum = self.usual_minimum(self.invited)
        if minimum is not None:
            self.minimum = check_count("minimum", minimum)
        if not self.minimum <= clients_per_round:
            raise ParameterError(
                "minimum",
                self.minimum,
                f"a round has at most {clients_per_round} summands; choose a smaller minimum",
            )
        self.sampling = check_choice("sampling", sampling, SAMPLINGS)
        self.learning_rate = check_positive("learning_rate", learning_rate)
        self.optimizer: ServerOptimizer = FedAvg()
        if optimizer is not None:
            self.optimizer = check_instance("optimizer", optimizer, ServerOptimizer)
        self.optimizer_state: State = {}
        self.returns = check_choice("returns", returns, get_args(Returns))
        self.stage_timeout = check_positive("stage_timeout", stage_timeout, "need seconds above 0")
        self.session = os.urandom(SESSION_BYTES)
        if session is not None:
            self.session = _checked_session(session)
        self.ledger = RunLedger(None, {})
        if ledger is not None:
            self.ledger = check_instance("ledger", ledger, RunLedger)
        self.most_rounds = check_most_rounds(most_rounds)
        self.delta = delta
        if delta is not None:
            check_probability("delta", delta)
        self.incidents: list[Incident] = []
        self.counted = 0
        self.stopped = ""
        self.seconds: dict[str, float] = {}
        self._running: R | None = None
        self._model_size = 0
        self._counted_as = "round"
        self._patience = stage_timeout
        self._rounds_planned = 1
        self._rounds_left = 0
        self._turns: dict[str, int] = {}
        self._node_names: dict[int, str] = {}
        for names in self.ledger.turns.values():
            self._next(names, len(names))

    @property
    def message_type(self) -> str:
        """Flower's name for the kind of the rounds' messages."""
        return MessageType.TRAIN

    @property
    def invited(self) -> int:
        """The number of clients drawn for a round."""
        return self.clients_per_round + self.spare

    # What a protocol defines ----------------------------------------------------------------------

    @staticmethod
    @abstractmethod
    def usual_minimum(clients_per_round: int) -> int:
        """The default for the fewest clients with which a round goes on."""

    @abstractmethod
    def claims(self, sums: Sums) -> dict[str, Claim]:
        """The claims for the client charged most so far, by view ("local", "central").

        Arguments:
            sums: whose size, corrupted clients and delta count; their rounds and clients are those
                of the ledger.
        """

    counted_view: ClassVar[str]
    """The view whose claim counts against a budget."""

    def spent(self, sums: Sums) -> Claim | None:
        """The one of these claims that counts against a budget, if any."""
        return self.claims(sums).get(self.counted_view)

    @abstractmethod
    def cost(self, sums: Sums) -> float:
        """Epsilon of rounds, as counted against the run's budget.

        Arguments:
            sums: whose size, rounds, corrupted clients and delta count; their clients are the
                fewest with which a round goes on.
        """

    message_bits: int
    """Bits on the wire: per coordinate of a sum, or per report."""
    report_bits: int
    """Bits of one report by itself, without the room for summing."""

    @abstractmethod
    def report_mse(self) -> float:
        """Mean squared error of one coordinate of one report, data units squared; NaN where
        rounding is all.
        """

    @abstractmethod
    def _open(self, number: int, task: RoundTask, grid: Grid) -> R:
        """The round's state, participants included, before any client is asked for anything."""

    @abstractmethod
    def _until_train(self, current: R) -> Iterator[Message]:
        """Run the exchanges before training, announce the round, and make the messages that ask for
        an update.
        """

    @abstractmethod
    def _until_mean(self) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Run the remaining exchanges; the new model and the round's counts, if the round comes to
        a mean.
        """

    @abstractmethod
    def _stage(self, current: R) -> str:
        """The current stage."""

    @abstractmethod
    def _enough(self, current: R) -> bool:
        """Whether the current stage can end although some clients have not answered."""

    @abstractmethod
    def _receive(self, current: R, place: int, payload: bytes) -> None:
        """Take one answer, or refuse it with a ProtocolError."""

    # Flower's interface ---------------------------------------------------------------------------

    def one_round(
        self, grid: Grid, arrays: ArrayRecord, config: JsonObject, *, left: int = 0
    ) -> ArrayRecord:
        """The model after one round, evaluation included; `start` would log each round as a run of
        its own.

        Arguments:
            grid: Flower's.
            arrays: the model.
            config: of the clients' training.
            left: the number of rounds that follow, for which clients may deal already.
        """
        self._rounds_planned = 1 + left
        self.configure_train(1, arrays, ConfigRecord(config), grid)
        trained, _ = self.aggregate_train(1, [])
        if trained is not None:
            arrays = trained
        self.configure_evaluate(1, arrays, ConfigRecord(config), grid)
        self.aggregate_evaluate(1, [])
        return arrays

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Runs the stages before training; leaves nothing for Flower's loop to send."""
        self._rounds_left = max(0, self._rounds_planned - server_round)
        self._begin(arrays, config, grid)
        return []

    def _begin(self, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> None:
        """Run the stages before training."""
        self._running = None
        self.seconds = {}
        self.counted = 0
        self._model_size = parameters(arrays)
        current = self._dealt_ahead(grid)
        self.stopped = self._shortage(grid)
        if self.stopped:
            log(WARNING, "mezzotint: %s", self.stopped)
            if current is not None:
                self.ledger.fail(current.number, BudgetError.__name__)
            return
        # On disk before anybody is asked: clients answer a number once, also when the round comes
        # to nothing.
        number = self.ledger.start() if current is None else current.number
        config["server-round"] = number
        round_task: RoundTask = {"arrays": arrays, "config": config}
        try:
            if current is None:
                current = self._opened(number, round_task, grid)
            current.task = round_task
            self._running = current
            current.requests = self._until_train(current)
        except (ProtocolError, BudgetError) as error:
            self._abort(number, error)

    def _opened(self, number: int, task: RoundTask, grid: Grid) -> R:
        current = self._open(number, task, grid)
        self._check_present(len(current.nodes))
        return current

    def _check_present(self, clients: int) -> None:
        if clients < max(2, self.minimum):
            shortage = f"{counted(clients, 'client')} of the {self.minimum} that are needed"
            raise TooFewClients("plan", shortage)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """End the round, whatever its outcome, and report what has been spent."""
        arrays, counts = self._until_mean()
        return arrays, self._with_spending(counts)

    def _with_spending(self, metrics: MetricRecord | None) -> MetricRecord | None:
        """Log what has been spent so far and add it to the metrics, if the strategy has a delta."""
        if self.delta is None:
            return metrics
        sums = Sums(size=self._model_size, clients=self.minimum, delta=self.delta)
        claim = self.spent(sums)
        log(INFO, "mezzotint: %s", spending(claim, self.ledger))
        if claim is None:
            return metrics
        return MetricRecord({**(metrics or {}), "epsilon": claim.epsilon, "delta": claim.delta})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """No evaluation on clients: their metrics would be releases outside all accounting."""
        return []

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """Nothing was asked."""
        return None

    # Steps ----------------------------------------------------------------------------------------

    def _connected(self, grid: Grid) -> list[int]:
        """All connected nodes; rounds wait up to `stage_timeout` for those they need, and once in
        all for the rest.
        """
        beginning = time.monotonic()
        logged = -1
        while len(nodes := sorted(grid.get_node_ids())) < self.invited:
            patience = self.stage_timeout
            if len(nodes) >= max(2, self.minimum):
                patience = self._patience
            if time.monotonic() - beginning >= patience:
                break
            if len(nodes) != logged:
                logged = len(nodes)
                log(INFO, "mezzotint: %d nodes are connected; waiting for %d", logged, self.invited)
            time.sleep(0.2)
        self._patience = max(0.0, self._patience - (time.monotonic() - beginning))
        return nodes

    def _choose(self, names: Mapping[int, str], number: int) -> list[int]:
        """Draw this round's nodes, given the names of their clients, by the operating system's
        randomness.

        "cyclic" takes those that have waited longest, initially in an order derived from the
        session. Turns are on disk before clients are asked, so that a resumed server knows even
        those of clients that did not answer.
        """
        drawn_count = min(self.invited, len(names))
        if self.sampling != "cyclic":
            return sorted(random.SystemRandom().sample(sorted(names), drawn_count))
        turn = self._next(names.values(), drawn_count)
        self.ledger.take_turn(number, turn)
        return sorted(node for node, client_name in names.items() if client_name in turn)

    def _next(self, names: Iterable[str], size: int) -> set[str]:
        """Move the clients at the head of the queue to its end; new clients join at the head."""

        def waiting(name: str) -> tuple[int, bytes]:
            return self._turns.get(name, -1), hashlib.sha256(self.session + name.encode()).digest()

        turn = sorted(set(names), key=waiting)[:size]
        last_position = max(self._turns.values(), default=-1)
        self._turns.update(
            {name: position for position, name in enumerate(turn, start=last_position + 1)}
        )
        return set(turn)

    def _unspent(self, names: Mapping[int, str]) -> dict[int, str]:
        """Clients that may be charged for one more round; BudgetError if that leaves too few of
        enough clients.
        """
        if self.most_rounds is None:
            return dict(names)
        charges = self._charges()
        unspent = {
            key: client_name
            for key, client_name in names.items()
            if charges.get(client_name, 0) < self.most_rounds
        }
        if len(unspent) < max(1, self.minimum) <= len(names):
            raise BudgetError(self._shortage_of(len(unspent), len(names)))
        return unspent

    def _shortage(self, grid: Grid) -> str:
        """Why no further round may begin, if too few of all clients may be charged again.

        A connected node may be, unless the client behind it is known to have spent its rounds: it
        may be new.
        """
        charges = self._charges()
        if self.most_rounds is None or max(charges.values(), default=0) < self.most_rounds:
            return ""
        connected = self._names(self._connected(grid))
        clients = charges.keys() | set(connected.values())
        unspent = sum(charges.get(client, 0) < self.most_rounds for client in clients)
        if unspent < max(2, self.minimum):
            return self._shortage_of(unspent, len(clients))
        return ""

    def _names(self, nodes: Iterable[int]) -> dict[int, str]:
        """Node -> its client's name, or the node's number where that is not known."""
        return {node: self._node_names.get(node, str(node)) for node in nodes}

    def _shortage_of(self, unspent: int, clients: int) -> str:
        allowed = counted(self.most_rounds or 0, "round")
        return (
            f"only {unspent} of {clients} clients were charged for fewer than {allowed}; "
            "one more would exceed the budget of the others"
        )

    def _charges(self) -> Mapping[str, int]:
        """The rounds that each client is charged for, or may be."""
        return self.ledger.charges

    def _moved(
        self, current: R, mean: FloatArray, counts: Mapping[str, float]
    ) -> tuple[ArrayRecord, MetricRecord]:
        """The model after the mean update, and the round's counts."""
        model = current.task["arrays"]
        self.optimizer_state, change = self.optimizer.step(self.optimizer_state, mean)
        arrays = unflatten(flatten(model) + self.learning_rate * change, model)
        return arrays, MetricRecord({"round": current.number, **counts})

    def _messages(
        self,
        current: R,
        outbox: Mapping[int, bytes],
        extra: Mapping[str, str | bytes],
        task: RoundTask | None = None,
    ) -> Iterator[Message]:
        stage = self._stage(current)
        for position, payload in outbox.items():
            values = {Key.STAGE: stage, Key.PAYLOAD: payload, **extra}
            yield request(current.nodes[position], self.message_type, values, task or {})

    def _ask(
        self,
        current: R,
        messages: Iterable[Message],
        *,
        rounds_by_node: Mapping[int, Sequence[R]] | None = None,
        awaited: Sequence[R] = (),
    ) -> None:
        """Send the messages of a stage and take answers as they arrive, until there are enough.

        Arguments:
            rounds_by_node: the rounds that a node's message is about; by default this one.
            awaited: further rounds that need enough answers.
        """
        stage = self._stage(current)
        beginning = time.monotonic()
        answers = arriving(
            current.grid,
            messages,
            timeout=self.stage_timeout,
            answer_bytes=self._answer_bytes(current),
        )
        for node, answer in answers:
            asked_rounds = (rounds_by_node or {}).get(node, [current])
            if self._is_answer(asked_rounds[0], node, answer):
                record = protocol_record(answer)
                records = [record, *further_answers(record, len(asked_rounds) - 1)]
                for asked_round, part in zip(asked_rounds, records, strict=False):
                    self._take_one(asked_round, asked_round.places[node], part)
            if all(map(self._enough, (current, *awaited))):
                break
        self.seconds[stage] = time.monotonic() - beginning

    def _is_answer(self, current: R, node: int, answer: Message) -> bool:
        """Whether a message is the answer of a node that takes part in the round; else it is noted
        why not.
        """
        forged = not answer.has_error() and answer.metadata.src_node_id != node
        if forged or node not in current.places:
            stranger = ProtocolError(self._stage(current), "an answer of a node not asked")
            self._note(current.number, str(node), stranger)
            return False
        if not answer.has_error():
            return True
        client = current.name(current.places[node])
        self._log_incident(current.number, client, "ClientError", one_line(answer.error.reason))
        return False

    def _dealt_ahead(self, grid: Grid) -> R | None:
        """The next round, if clients dealt in it during the last one."""
        return None

    def _answer_bytes(self, current: R) -> int:
        """Size of an answer in this stage, if it may be large."""
        return 0

    def _take_one(self, current: R, place: int, record: ConfigRecord | None) -> None:
        """Take the answer of a client of the round, or note why not."""
        client_name = current.name(place)
        refusal = ("NotMasked", "the client does not run the mod")
        if record is not None and Key.REFUSED in record:
            refusal = one_line(record[Key.REFUSED]), one_line(record.get(Key.REASON, ""))
        if record is None or Key.REFUSED in record:
            self._log_incident(current.number, client_name, *refusal)
            self._refused(current, place)
            return
        # Popped: Flower's records form reference cycles, which live until the garbage collector
        # runs.
        payload = record.pop(Key.PAYLOAD, None)
        if not isinstance(payload, bytes):
            payload = b""
        try:
            self._receive(current, place, payload)
        except ProtocolError as error:
            self._note(current.number, client_name, error)
            return
        if Key.NAME in record:
            client_name = current.names.setdefault(place, one_line(record[Key.NAME]))
            self._node_names[current.nodes[place]] = client_name

    def _refused(self, current: R, place: int) -> None:
        """Handle a client's refusal to answer."""

    def _note(self, number: int, client: str, error: Exception) -> None:
        self._log_incident(number, client, type(error).__name__, str(error))

    def _log_incident(self, number: int, client: str, name: str, what: str) -> None:
        subject = ""
        if client:
            subject = f", client {client}"
        log(WARNING, "mezzotint: %s %d%s: %s", self._counted_as, number, subject, what)
        self.incidents.append(Incident(round=number, client=client, name=name, what=what))

    def _abort(self, number: int, error: ProtocolError | BudgetError) -> None:
        """End a round before anything was released."""
        self._running = None
        if isinstance(error, BudgetError):
            self.stopped = str(error)
        self._note(number, "", error)
        self.ledger.fail(number, type(error).__name__)


def spending(claim: Claim | None, ledger: RunLedger) -> str:
    """One line on the spending of the client charged most."""
    if not ledger.charges:
        return "nothing was released so far"
    if claim is None or claim.epsilon == math.inf:
        return "no epsilon can be claimed"
    return (
        f"epsilon {above(claim.epsilon)}, delta {above(claim.delta)} spent by the client that took "
        f"part most often, for {claim.change}, {claim.basis}"
    )


def halfway(needed: int, there: int) -> int:
    """The number of answers that end a stage before the last: half of the clients not needed may be
    late.
    """
    return needed + (max(0, there - needed) + 1) // 2
