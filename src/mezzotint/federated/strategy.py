"""The server's half in a Flower app: a strategy whose rounds are secure sums.

strategy = SecureStrategy(encoding=..., per_round=100)
strategy.start(grid=grid, initial_arrays=..., num_rounds=10)
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from logging import INFO, WARNING
from typing import Any, Literal, final

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from mezzotint.core.errors import BudgetError, InfeasibleError, ParameterError
from mezzotint.federated.encoding import Encoding, packed
from mezzotint.federated.ledger import RunLedger
from mezzotint.federated.records import (
    ENCODING,
    NAME,
    PAYLOAD,
    REASON,
    RECORD,
    REFUSED,
    RETURNS,
    STAGE,
    flatten,
    log,
    protocol_record,
    unflatten,
)
from mezzotint.federated.secagg import ProtocolError, RoundPlan, SecureSum, Server, TooFewClients, safe_threshold

Sampling = Literal["fixed", "poisson"]
DEFAULT_NEIGHBOURS = 20


@final
@dataclass(frozen=True, kw_only=True)
class Incident:
    """Something that went wrong in a round: its name, who caused it, in words."""

    round: int
    client: str
    name: str
    what: str


@final
@dataclass
class _Running:
    """The round in progress."""

    number: int
    server: Server
    nodes: dict[int, int]
    names: dict[int, str]
    arrays: ArrayRecord
    grid: Grid

    def name(self, index: int) -> str:
        """How the client calls itself; its node's number when it has not said."""
        return self.names.get(index, str(self.nodes[index]))


@final
class SecureStrategy(Strategy):
    """Every training round is one secure sum; the mean update, times a learning rate, is added to the model.

    Arguments:
        encoding: clipping and mechanism, the same for all clients.
        per_round: clients of a round ("fixed": drawn without replacement), or the expected number ("poisson").
        minimum: fewest summands; a round with fewer is refused and nothing is learnt. Default: half of per_round + 1.
        neighbours, threshold: of the protocol's graph; by default 20 (or all) and the least safe threshold.
        sampling: "fixed" or "poisson"; neither is claimed to amplify, for the server knows who took part.
        learning_rate: factor of the mean update.
        returns: what clients' train functions return: "weights" (new parameters) or "update" (what is added).
        stage_timeout: seconds to wait for the answers of a stage; later ones are drop-outs.
        ledger: where releases are written before they happen; by default in memory.
        most_rounds: rounds that any one client may be charged for; the run stops before it is exceeded.
        session: 16 bytes naming the run; a resumed run passes its own.

    Guarantees:
        A round that fails at any stage leaves the model as it was; its reasons are in `incidents`.
        Sums that could overflow are refused before the first round.
    """

    def __init__(
        self,
        *,
        encoding: Encoding,
        per_round: int,
        minimum: int | None = None,
        neighbours: int | None = None,
        threshold: int | None = None,
        sampling: Sampling = "fixed",
        learning_rate: float = 1.0,
        returns: Literal["weights", "update"] = "weights",
        stage_timeout: float = 600.0,
        ledger: RunLedger | None = None,
        most_rounds: int | None = None,
        session: bytes | None = None,
    ) -> None:
        if per_round < 2:
            raise ParameterError("per_round", per_round, "need at least 2 clients; one alone hides nothing")
        if sampling not in ("fixed", "poisson"):
            raise ParameterError("sampling", sampling, "use 'fixed' or 'poisson'")
        self.encoding = encoding
        self.per_round = per_round
        self.minimum = per_round // 2 + 1 if minimum is None else minimum
        self.neighbours = neighbours
        self.threshold = threshold
        self.sampling = sampling
        self.learning_rate = learning_rate
        self.returns = returns
        self.stage_timeout = stage_timeout
        self.session = os.urandom(16) if session is None else session
        self.ledger = RunLedger(None, {}) if ledger is None else ledger
        self.most_rounds = most_rounds
        self.incidents: list[Incident] = []
        self.last_sum: SecureSum | None = None
        self.stopped = ""
        self.seconds: dict[str, float] = {}
        self._running: _Running | None = None
        self.plan(per_round, 1, 1)  # refuses now what could never run

    # Planning ------------------------------------------------------------------------------------------------------

    def plan(self, clients: int, number: int, coordinates: int) -> RoundPlan:
        """The plan of a round of so many clients.

        Raises:
            PlanRefused: an unsafe combination, or sums that could overflow.
        """
        wanted = DEFAULT_NEIGHBOURS if self.neighbours is None else self.neighbours
        neighbours = min(wanted, clients - 1)
        threshold = safe_threshold(neighbours) if self.threshold is None else self.threshold
        return RoundPlan(
            session=self.session,
            round=number,
            clients=clients,
            neighbours=neighbours,
            threshold=threshold,
            minimum=self.minimum,
            coordinates=coordinates,
            span=self.encoding.span,
            bits=self.encoding.bits(clients),
            overflow=self.encoding.overflow,
            binding=self.encoding.binding,
        )

    def _choose(self, grid: Grid) -> list[int]:
        """Nodes of this round, by the operating system's randomness."""
        deadline = time.monotonic() + self.stage_timeout
        told = -1
        while len(nodes := sorted(grid.get_node_ids())) < self.per_round and time.monotonic() < deadline:
            if len(nodes) != told:
                told = len(nodes)
                log(INFO, "mezzotint: %d nodes are connected; waiting for %d", told, self.per_round)
            time.sleep(0.2)
        source = random.SystemRandom()
        if self.sampling == "poisson":
            # The rate is fixed by the population: each takes part independently of all others.
            rate = min(1.0, self.per_round / max(1, len(nodes)))
            return [node for node in nodes if source.random() < rate]
        return sorted(source.sample(nodes, min(self.per_round, len(nodes))))

    # Flower's interface ----------------------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Runs the stages before the masked input; returns the messages that ask for it."""
        self._running = None
        self.last_sum = None
        most = max(self.ledger.charges.values(), default=0)
        if self.most_rounds is not None and most >= self.most_rounds:
            self.stopped = f"a client was charged for {most} rounds; one more would exceed the budget"
            log(WARNING, "mezzotint: %s", self.stopped)
            return []
        nodes = dict(enumerate(self._choose(grid)))
        coordinates = self.encoding.length(flatten(arrays).size)
        # On disk before anybody is asked: clients answer a number once, also when the round comes to nothing.
        number = self.ledger.start()
        try:
            if len(nodes) < max(2, self.minimum):
                raise TooFewClients("plan", f"{len(nodes)} clients are there, {self.minimum} are needed")
            server = Server(self.plan(len(nodes), number, coordinates))
        except ProtocolError as error:
            self._note(number, "", error)
            self.ledger.fail(number, type(error).__name__)
            return []
        self._running = _Running(number=number, server=server, nodes=nodes, names={}, arrays=arrays, grid=grid)
        return self._until_mask(self._running, config)

    def _until_mask(self, now: _Running, config: ConfigRecord) -> list[Message]:
        try:
            extra = {ENCODING: packed(self.encoding)}
            self._exchange(now, now.server.invitations(), extra)
            shares = now.server.advance()
            # What a client calls itself from here on is what it is charged under.
            now.names = {index: now.name(index) for index in now.nodes}
            asked = [now.names[index] for index in shares]
            self.ledger.ask(now.number, asked, minimum=self.minimum, most_rounds=self.most_rounds)
            self._exchange(now, shares, {})
            deliveries = now.server.advance()
        except ProtocolError as error:
            self._abort(now, error)
            return []
        except BudgetError as error:
            self.stopped = str(error)
            self._abort(now, error)
            return []
        config["server-round"] = now.number
        records: dict[str, Any] = {"arrays": now.arrays, "config": config}
        return self._messages(now, deliveries, {RETURNS: self.returns}, records)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Takes the masked inputs, runs the stages after them, and adds the mean update to the model."""
        now = self._running
        answered = list(replies)
        if now is None:
            return None, None
        self._running = None
        try:
            self._take(now, answered)
            self._exchange(now, now.server.advance(), {})
            confirmations = now.server.advance()
        except ProtocolError as error:
            self._abort(now, error)
            return None, None
        try:
            self._exchange(now, confirmations, {})
            start = time.perf_counter()
            total = now.server.result()
            self.seconds["result"] = time.perf_counter() - start
        except ProtocolError as error:
            # Shares were revealed, so the round stays charged although its sum is not known.
            self._note(now.number, "", error)
            return None, None
        return self._apply(now, total)

    def _apply(self, now: _Running, total: SecureSum) -> tuple[ArrayRecord, MetricRecord]:
        self.last_sum = total
        self.ledger.close(now.number, [now.name(index) for index in total.survivors])
        model = flatten(now.arrays)
        sum_of = (self.session, now.number)
        mean = self.encoding.decode(total.values, count=len(total.survivors), size=model.size, release=sum_of)
        arrays = unflatten(model + self.learning_rate * mean, now.arrays)
        counts = {"round": now.number, "survivors": len(total.survivors), "dropped": len(total.dropped)}
        return arrays, MetricRecord({name: int(value) for name, value in counts.items()})

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """No evaluation on clients: their metrics would be releases that nobody accounts for."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing was asked."""
        return None

    def summary(self) -> None:
        """Logs the settings."""
        plan = self.plan(self.per_round, 1, 1)
        log(INFO, "\t├──> Secure sums of %d clients (%s)", self.per_round, self.sampling)
        log(INFO, "\t├──> %d bits a coordinate, integers up to %d", plan.bits, plan.span)
        log(INFO, "\t└──> %d neighbours, threshold %d, minimum %d", plan.neighbours, plan.threshold, plan.minimum)

    # Messages ------------------------------------------------------------------------------------------------------

    def _messages(
        self,
        now: _Running,
        outbox: Mapping[int, bytes],
        extra: Mapping[str, str | bytes],
        records: Mapping[str, Any] | None = None,
    ) -> list[Message]:
        stage = now.server.stage
        return [
            Message(
                RecordDict({RECORD: ConfigRecord({STAGE: stage, PAYLOAD: payload, **extra}), **(records or {})}),
                message_type=MessageType.TRAIN,
                dst_node_id=now.nodes[index],
            )
            for index, payload in outbox.items()
        ]

    def _exchange(self, now: _Running, outbox: Mapping[int, bytes], extra: Mapping[str, str | bytes]) -> None:
        stage = now.server.stage
        start = time.perf_counter()
        replies = now.grid.send_and_receive(self._messages(now, outbox, extra), timeout=self.stage_timeout)
        self._take(now, replies)
        self.seconds[stage] = time.perf_counter() - start

    def _take(self, now: _Running, replies: Iterable[Message]) -> None:
        index_of = {node: index for index, node in now.nodes.items()}
        for answer in replies:
            node = answer.metadata.src_node_id
            if node not in index_of:
                self._note(now.number, str(node), ProtocolError(now.server.stage, "an answer of a node not asked"))
                continue
            index = index_of[node]
            who = now.name(index)
            if answer.has_error():
                self.incidents.append(
                    Incident(round=now.number, client=who, name="ClientError", what=str(answer.error.reason))
                )
                continue
            self._take_one(now, index, who, protocol_record(answer))

    def _take_one(self, now: _Running, index: int, who: str, record: ConfigRecord | None) -> None:
        if record is None or REFUSED in record:
            name = "NotMasked" if record is None else str(record[REFUSED])
            what = "the client does not run the secure mod" if record is None else str(record.get(REASON, ""))
            log(WARNING, "mezzotint: round %d, client %s refused: %s", now.number, who, what)
            self.incidents.append(Incident(round=now.number, client=who, name=name, what=what))
            return
        payload = record.get(PAYLOAD)
        try:
            now.server.receive(index, payload if isinstance(payload, bytes) else b"")
        except ProtocolError as error:
            self._note(now.number, who, error)
            return
        if NAME in record:
            now.names.setdefault(index, str(record[NAME]))

    def _note(self, number: int, client: str, error: Exception) -> None:
        log(WARNING, "mezzotint: round %d%s: %s", number, f", client {client}" if client else "", error)
        self.incidents.append(Incident(round=number, client=client, name=type(error).__name__, what=str(error)))

    def _abort(self, now: _Running, error: ProtocolError | BudgetError) -> None:
        """Before the last stage no mask was opened: nothing is released."""
        self._running = None
        self._note(now.number, "", error)
        self.ledger.fail(now.number, type(error).__name__)


def rounds_within(budget: float, spent: Callable[[int], float], rounds: int) -> int:
    """The most rounds, up to `rounds`, whose cost stays within the budget.

    Arguments:
        budget: epsilon.
        spent: rounds -> epsilon, non-decreasing.
        rounds: planned.

    Raises:
        InfeasibleError: not even one round fits.
    """
    if spent(rounds) <= budget:
        return rounds
    least = spent(1)
    if least > budget:
        raise InfeasibleError(
            f"one round costs epsilon {least:g}, the budget is {budget:g}: nothing was sent; "
            "use a noisier mechanism, more clients or fewer parameters"
        )
    low, high = 1, rounds
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if spent(middle) <= budget else (low, middle)
    return low
