"""The server's half in a Flower app: a strategy whose rounds are secure sums.

strategy = SecureStrategy(encoding=..., per_round=100)
strategy.start(grid=grid, initial_arrays=..., num_rounds=10)
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from logging import INFO
from typing import Unpack, final

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid

from mezzotint.core.errors import ParameterError
from mezzotint.federated.encoding import Encoding, packed
from mezzotint.federated.records import ENCODING, RECORD, RETURNS, flatten, log, task_digest
from mezzotint.federated.rounds import RoundOptions, RoundStrategy, Running, Task
from mezzotint.federated.secagg import ProtocolError, RoundPlan, SecureSum, Server, safe_threshold
from mezzotint.federated.secagg.plan import DIGEST_BYTES
from mezzotint.privacy.claim import Claim

DEFAULT_NEIGHBOURS = 20


@final
@dataclass(kw_only=True)
class _Secure(Running):
    """The round in progress, with the protocol's server."""

    server: Server


@final
class SecureStrategy(RoundStrategy[_Secure]):
    """Every training round is one secure sum; the mean update, times a learning rate, is added to the model.

    Arguments:
        encoding: clipping and mechanism, the same for all clients.
        neighbours, threshold: of the protocol's graph; by default 20 (or all) and the least safe threshold.
        options: see `RoundStrategy`. A round with fewer than `minimum` summands, usually half of per_round + 1, is
            refused and nothing is learnt.

    Guarantees:
        A round that fails at any stage leaves the model as it was; its reasons are in `incidents`.
        Sums that could overflow are refused before the first round.
    """

    def __init__(
        self,
        *,
        encoding: Encoding,
        per_round: int,
        neighbours: int | None = None,
        threshold: int | None = None,
        **options: Unpack[RoundOptions],
    ) -> None:
        super().__init__(per_round=per_round, **options)
        self.encoding = encoding
        self.neighbours = neighbours
        self.threshold = threshold
        self.last_sum: SecureSum | None = None
        self.plan(per_round, 1, 1)  # refuses now what could never run

    @staticmethod
    def usual_minimum(per_round: int) -> int:
        return per_round // 2 + 1

    # Planning ------------------------------------------------------------------------------------------------------

    def plan(self, clients: int, number: int, coordinates: int, *, task: bytes = bytes(DIGEST_BYTES)) -> RoundPlan:
        """The plan of a round of so many clients, who are asked to do what `task` is the SHA-256 of.

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
            task=task,
        )

    def claims(self, *, size: int, delta: float, corrupted: int) -> dict[str, Claim]:
        return self.ledger.claims(self.encoding, size=size, delta=delta, corrupted=corrupted)

    def cost(self, rounds: int, *, size: int, delta: float, corrupted: int) -> float:
        claims = self.encoding.claims(rounds=rounds, clients=self.minimum, size=size, delta=delta, corrupted=corrupted)
        if not claims:
            raise ParameterError("epsilon", "a budget", "without a mechanism nothing is private; name one")
        return claims["central"].epsilon

    @property
    def message_bits(self) -> int:
        return self.encoding.bits(self.per_round)

    @property
    def report_bits(self) -> int:
        return self.encoding.report_bits

    def report_mse(self) -> float:
        return self.encoding.mse()

    # Rounds --------------------------------------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Runs the stages before the masked input; returns the messages that ask for it."""
        self.last_sum = None
        return super().configure_train(server_round, arrays, config, grid)

    def _open(self, number: int, nodes: dict[int, int], task: Task, grid: Grid) -> _Secure:
        coordinates = self.encoding.length(flatten(task["arrays"]).size)
        returns = ConfigRecord({RETURNS: self.returns})
        asked = task_digest(RecordDict({RECORD: returns, "arrays": task["arrays"], "config": task["config"]}))
        server = Server(self.plan(len(nodes), number, coordinates, task=asked))
        return _Secure(number=number, server=server, nodes=nodes, task=task, grid=grid)

    def _stage(self, now: _Secure) -> str:
        return now.server.stage

    def _receive(self, now: _Secure, place: int, payload: bytes) -> None:
        now.server.receive(place, payload)

    def _until_train(self, now: _Secure) -> list[Message]:
        extra = {ENCODING: packed(self.encoding)}
        self._exchange(now, now.server.invitations(), extra)
        shares = now.server.advance()
        # What a client calls itself from here on is what it is charged under.
        now.names = {place: now.name(place) for place in now.nodes}
        asked = [now.names[place] for place in shares]
        self.ledger.ask(now.number, asked, minimum=self.minimum, most_rounds=self.most_rounds)
        self._exchange(now, shares, {})
        deliveries = now.server.advance()
        return self._messages(now, deliveries, {RETURNS: self.returns}, now.task)

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
            self._abort(now, error)  # no mask was opened: nothing is released
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

    def _apply(self, now: _Secure, total: SecureSum) -> tuple[ArrayRecord, MetricRecord]:
        self.last_sum, self.counted = total, len(total.survivors)
        self.ledger.close(now.number, [now.name(place) for place in total.survivors])
        size = flatten(now.task["arrays"]).size
        mean = self.encoding.decode(total.values, count=self.counted, size=size, release=(self.session, now.number))
        return self._moved(now, mean, {"survivors": len(total.survivors), "dropped": len(total.dropped)})

    def summary(self) -> None:
        """Logs the settings."""
        plan = self.plan(self.per_round, 1, 1)
        log(INFO, "\t├──> Secure sums of %d clients (%s)", self.per_round, self.sampling)
        log(INFO, "\t├──> %d bits a coordinate, integers up to %d", plan.bits, plan.span)
        log(INFO, "\t└──> %d neighbours, threshold %d, minimum %d", plan.neighbours, plan.threshold, plan.minimum)
