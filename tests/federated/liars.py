"""A server that goes through a round as it should, and then asks its clients for more; on any of Flower's grids.

It is also a part of the app that deployment tests ship: it imports nothing of the tests.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from mezzotint.federated.encoding import Encoding
from mezzotint.federated.encoding_files import packed
from mezzotint.federated.flower_records import RECORD, Key, request, task_digest
from mezzotint.federated.secagg import Challenge, Roster, RoundPlan, Server
from mezzotint.federated.secure_strategy import SecureStrategy


def introduced(grid: Grid, count: int, seconds: float = 120.0) -> dict[bytes, int]:
    """identity -> node, of so many nodes, once they are connected."""
    deadline = time.monotonic() + seconds
    while len(nodes := sorted(grid.get_node_ids())) < count:
        assert time.monotonic() < deadline, nodes
        time.sleep(0.2)
    challenges = {node: Challenge() for node in nodes}
    sent = [
        request(node, "train", {Key.STAGE: Key.CARD, Key.PAYLOAD: challenge.question}, {})
        for node, challenge in challenges.items()
    ]
    found = {}
    for answer in grid.send_and_receive(sent, timeout=seconds):
        node = answer.metadata.src_node_id
        payload = answer.content.config_records[RECORD][Key.PAYLOAD]
        found[challenges[node].read(payload)[0].identity] = node
    return found


class Round:
    """What a server has of a round: clients' answers to its first two messages, and what it told them to mask with."""

    def __init__(
        self,
        *,
        server: Server,
        dealt: Mapping[int, bytes],
        partners: Mapping[int, bytes],
        masked: Mapping[int, bytes],
    ) -> None:
        self.server, self.dealt, self.partners, self.masked = server, dealt, partners, masked

    def as_dealt(self, task: bytes) -> Server:
        """A server with the same dealings, for this task."""
        other = Server(replace(self.server.plan, task=bytes(32)), self.server.roster)
        for index, answer in self.dealt.items():
            other.receive(index, answer)
        other.bind(task)
        return other

    def without(self, *victims: int) -> Server:
        """The same round, as if the victims' inputs had never arrived."""
        other = self.as_dealt(self.server.plan.task)
        other.advance()
        for index, answer in self.masked.items():
            if index not in victims:
                other.receive(index, answer)
        return other


class Liar:
    """A server of one session, which uses the number 1 as often as it likes.

    Arguments:
        grid: of the clients.
        roster: of all clients.
        nodes: identity -> node.
        encoding, size: of the sums.
        session: its name.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        roster: Roster,
        nodes: Mapping[bytes, int],
        encoding: Encoding,
        size: int,
        session: bytes = bytes(16),
    ) -> None:
        self.grid, self.roster, self.encoding, self.size = grid, roster, encoding, size
        self.clients = len(roster.members)
        self.nodes = [nodes[one.identity] for one in roster.cohort(1, self.clients)]
        self.session = session

    def remember(self, stage: str) -> None:
        """Called before clients are asked at a stage."""

    def task(self, model: float) -> dict[str, Any]:
        arrays = ArrayRecord({"a": Array(np.full(self.size, model))})
        return {"arrays": arrays, "config": ConfigRecord({"server-round": 1})}

    def digest(self, model: float) -> bytes:
        """Of the task with this model."""
        returns = ConfigRecord({Key.RETURNS: "update"})
        return task_digest(RecordDict({RECORD: returns, **self.task(model)}))

    def plan(self) -> RoundPlan:
        """The plan under which clients deal."""
        strategy = SecureStrategy(
            encoding=self.encoding,
            clients_per_round=self.clients,
            roster=self.roster,
            session=self.session,
        )
        return strategy.plan(self.clients, 1, self.size, roster=self.roster.digest)

    def ask(self, stage: str, outbox: Mapping[int, bytes], model: float = 0.0) -> dict[int, bytes]:
        """The answers to a stage, by place in the round, of those who do not refuse."""
        extra: dict[str, dict[str, Any]] = {
            "deal": {Key.ENCODING: packed(self.encoding)},
            "sum": {Key.RETURNS: "update"},
        }
        task = self.task(model) if stage == "sum" else {}
        sent: list[Message] = []
        for index, payload in outbox.items():
            values = {Key.STAGE: stage, Key.PAYLOAD: payload, **extra.get(stage, {})}
            sent.append(request(self.nodes[index], "train", values, task))
        answers = {}
        for answer in self.grid.send_and_receive(sent, timeout=120.0):
            record = None if answer.has_error() else answer.content.config_records[RECORD]
            if record is not None and Key.REFUSED not in record:
                index = self.nodes.index(answer.metadata.src_node_id)
                answers[index] = record[Key.PAYLOAD]
        return answers

    def begin(self) -> tuple[Server, dict[int, bytes]]:
        """A server with all dealings, and the dealings."""
        server = Server(self.plan(), self.roster)
        self.remember("deal")
        dealt = self.ask("deal", dict(server.invitations(range(self.clients))))
        for index, answer in dealt.items():
            server.receive(index, answer)
        return server, dealt

    def run(
        self, *, united: bool, model: float = 0.0, absent: int | None = None, opens: bool = True
    ) -> Round:
        """A round as it should be, to its end or to its signatures; without the input of `absent`, if it is named."""
        server, dealt = self.begin()
        server.bind(self.digest(model))
        self.remember("sum")
        partners = dict(server.advance())
        masked = self.ask("sum", partners, model)
        for index, answer in masked.items():
            if index != absent:
                server.receive(index, answer)
        self.remember("unite")
        self.remember("agree")
        if united:
            outbox = server.unite()
        else:
            for index, answer in self.ask("agree", dict(server.advance())).items():
                server.receive(index, answer)
            self.remember("open")
            outbox = server.advance() if opens else {}
        for index, answer in self.ask("unite" if united else "open", dict(outbox)).items():
            server.receive(index, answer)
        return Round(server=server, dealt=dealt, partners=partners, masked=masked)

    def second_set(self, done: Round, *victims: int) -> tuple[int, int, np.ndarray | None]:
        """How many sign and open a second set, without the victims; and its sum, if it is known then."""
        other = done.without(*victims)
        signed = self.ask("agree", dict(other.advance()))
        for index, answer in signed.items():
            other.receive(index, answer)
        if len(signed) < other.plan.quorum:
            return len(signed), 0, None
        opened = self.ask("open", dict(other.advance()))
        for index, answer in opened.items():
            other.receive(index, answer)
        return len(signed), len(opened), other.result().values
