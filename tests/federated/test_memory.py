"""What a server of a secure sum holds in memory: 200 clients with a million numbers each, in a process of its own."""

from __future__ import annotations

import io
import itertools
import multiprocessing
import os
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from types import SimpleNamespace

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as ProtoRecordDict

from federated.grids import LocalGrid, name_task
from federated.rounds import answer, people, plan, roster_of
from mezzotint.federated.encoding import FixedPointEncoding
from mezzotint.federated.mod import SecureUpdates
from mezzotint.federated.policy import Policy
from mezzotint.federated.secagg import STAGES, Server
from mezzotint.federated.secagg import server as store
from mezzotint.federated.strategy import SecureStrategy

CLIENTS, COORDINATES = 200, 1_000_000
ENCODING = FixedPointEncoding(clip=7.0, grid_bits=4)
UPDATE = np.resize(np.arange(-7.0, 8.0), COORDINATES)  # on the grid: sums are exact


def _read(content: bytes) -> RecordDict:
    return recorddict_from_proto(ProtoRecordDict.FromString(content))


@dataclass
class _Far:
    """A grid whose clients live in another process, as they do behind a SuperLink."""

    link: Connection
    sent: dict[str, int] = field(default_factory=dict)
    model: str = ""

    def get_node_ids(self):
        return self._ask("nodes", None)

    def push_messages(self, messages):
        return [self._push(message) for message in messages]

    def _push(self, message) -> str:
        """Arrays are sent when they are new: a SuperLink keeps one copy of what many messages hold."""
        node, content = message.metadata.dst_node_id, message.content
        if content.array_records:
            (arrays,) = content.array_records.values()
            if self.model != arrays.object_id:
                self.model = arrays.object_id
                self._ask("model", arrays["a"].data)
            content = RecordDict(dict(content.config_records))
        number = self._ask(
            "push", (node, recorddict_to_proto(content).SerializeToString(), "config" in content)
        )
        self.sent[number] = node
        return number

    def pull_messages(self, message_ids):
        found = self._ask("pull", list(message_ids))
        return [self._answer(number, content) for number, content in found]

    def send_and_receive(self, messages, *, timeout=None):
        assert not list(messages)  # Flower's loop is left nothing to send
        return []

    def _ask(self, what: str, values):
        self.link.send((what, values))
        return self.link.recv()

    def _answer(self, number: str, content: bytes):
        metadata = SimpleNamespace(src_node_id=self.sent[number], reply_to_message_id=number)
        return SimpleNamespace(
            metadata=metadata,
            content=_read(content),
            has_error=lambda: False,
            has_content=lambda: True,
        )


def _resident(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith(name))


def _serve(link: Connection) -> None:
    """The server's process: a small round, whose memory is the base, then the large one."""
    name_task()
    peaks: list[int] = []

    def run(coordinates: int) -> SecureStrategy:
        strategy = SecureStrategy(
            encoding=ENCODING, per_round=CLIENTS, corrupted=0.05, dropped=0.05, returns="update"
        )
        apply = strategy._apply
        strategy._apply = lambda now, total: (peaks.append(_resident("VmHWM")), apply(now, total))[
            1
        ]
        arrays = ArrayRecord({"a": Array(np.zeros(coordinates))})
        strategy.start(grid=_Far(link), initial_arrays=arrays, num_rounds=1)
        assert strategy.last_sum is not None, strategy.incidents
        return strategy

    run(10)
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")  # the peak starts from here
    base = _resident("VmRSS")
    strategy = run(COORDINATES)
    total = strategy.last_sum
    assert total is not None
    right = np.array_equal(total.values, len(total.survivors) * (UPDATE + 7).astype(np.int64))
    link.send(("done", (peaks[-1] - base, _resident("VmHWM") - base, right, len(total.survivors))))


@pytest.mark.slow
@pytest.mark.skipif(
    not os.access("/proc/self/clear_refs", os.W_OK), reason="peaks are told by Linux alone"
)
def test_a_server_holds_one_sum_whatever_the_number_of_clients():
    """Until the sum is known, four vectors of float64 and a kilobyte a client."""
    app = ClientApp(mods=[SecureUpdates(Policy(corrupted=0.05))])

    @app.train()
    def train(message: Message, context) -> Message:
        size = next(iter(message.content.array_records.values()))["a"].numpy().size
        return Message(
            RecordDict({"arrays": ArrayRecord({"a": Array(UPDATE[:size])})}), reply_to=message
        )

    grid = LocalGrid([app] * CLIENTS)
    here, there = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,))
    server.start()
    there.close()
    waiting: dict[str, Message] = {}
    numbers = map(str, itertools.count())
    model = Array(np.zeros(1))
    while (asked := here.recv())[0] != "done":
        what, values = asked
        if what == "nodes":
            here.send(grid.get_node_ids())
        elif what == "model":
            model = Array(np.load(io.BytesIO(values)))
            here.send(None)
        elif what == "push":
            node, content, with_model = values
            records = _read(content)
            if with_model:
                records["arrays"] = ArrayRecord({"a": model})
            waiting[number := next(numbers)] = Message(
                records, message_type="train", dst_node_id=node
            )
            here.send(number)
        else:  # clients work when they are asked for their answer: this process holds no sum's worth of them
            found = []
            for number in values:
                (reply,) = grid.send_and_receive([waiting.pop(number)])
                found.append((number, recorddict_to_proto(reply.content).SerializeToString()))
            grid.received.clear()
            here.send(found)
    server.join()
    until_the_sum, in_all, right, survivors = asked[1]
    assert (right, survivors) == (True, CLIENTS)
    print(f"\nuntil the sum is known {until_the_sum:,} bytes, with the new model {in_all:,}")
    assert until_the_sum < 4 * 8 * COORDINATES + 1000 * CLIENTS


def test_a_server_keeps_less_than_a_kilobyte_of_a_client_at_any_stage(monkeypatch):
    """What waits for the committee, dealings and opened shares, waits in files but for one block of each."""
    clients, block = 150, 20_000
    monkeypatch.setattr(store, "_BLOCK", block)
    the_plan = plan(clients, picks=40, least=20, members=20)
    everybody = people(the_plan)

    def play(
        answers: dict[tuple[str, int], bytes], make: Callable[[str, int, bytes], bytes]
    ) -> list[int]:
        held, server = [], Server(the_plan, roster_of(the_plan))
        outbox = server.invitations()
        for stage in STAGES:
            for place, message in outbox.items():
                if (stage, place) not in answers:
                    answers[stage, place] = make(stage, place, message)
                server.receive(place, answers[stage, place])
            held.append(tracemalloc.get_traced_memory()[0] if tracemalloc.is_tracing() else 0)
            outbox = server.advance() if stage != "open" else outbox
        server.result()
        return held

    zeros, answers = np.zeros(the_plan.coordinates, dtype=np.int64), dict[tuple[str, int], bytes]()
    play(
        answers, lambda stage, place, message: answer(everybody[place], stage, message, zeros)
    )  # loads what it needs
    tracemalloc.start()
    try:
        held = play(answers, lambda *_: pytest.fail("an answer is missing"))
    finally:
        tracemalloc.stop()
    dealings = sum(len(data) for (stage, _), data in answers.items() if stage == "deal")
    print(
        f"\n{[round((one - 2 * block) / clients) for one in held]} bytes a client; dealings {dealings // clients}"
    )
    assert dealings > 1600 * clients
    assert max(held) - 2 * block < 1000 * clients
