"""Flower without a network: a grid that hands every message to a client app in this process."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.serverapp import Grid

from mezzotint.federated.budgets import Sums
from mezzotint.federated.encoding import Encoding
from mezzotint.federated.lifetime_ledger import Answer, LifetimeLedger, begin_lifetime
from mezzotint.federated.secagg import Client, ReplayedRound
from mezzotint.federated.secagg.roster import read_identity

TaskIdentity = None
with contextlib.suppress(ImportError):  # before Flower 1.38 messages carry no identity of a task
    from flwr.supercore.task_identity import TaskIdentity


class Clock:
    """Time passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        self.now += seconds


def name_task() -> None:
    """Whose messages are made in this process."""
    if TaskIdentity is not None:
        TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1


def enrol(config: Mapping[str, object]) -> None:
    """Begin the ledger of a node with an identity and records, as `mezzotint roster identity` does."""
    if "records" not in config:
        return
    client = Client()  # for single reports, which are charged to the node's name
    if "identity" in config:
        client = Client(identity=read_identity(str(config["identity"])))
    begin_lifetime(str(config["records"]), client.identity.hex())


def charge_sum(
    ledger: LifetimeLedger,
    encoding: Encoding,
    single_sum: Sums,
    number: int,
    *,
    budget: float = math.inf,
) -> float:
    """A sum of the round of this number, in which the client deals if it did not; epsilon of all sums."""
    dealing = Answer(session=bytes(16), number=number, stage="deal", payload=b"dealt")
    with contextlib.suppress(ReplayedRound):
        ledger.note(dealing)
    masked = dataclasses.replace(dealing, stage="sum", payload=b"masked")
    return ledger.charge(masked, encoding, single_sum, budget=budget)


class LocalGrid(Grid):
    """Nodes with contexts of their own, enrolled. `hand(message, reply)` may change, drop (None) or double (list) replies.

    A message whose reply is dropped counts as one that could not be sent: nobody waits for it. For the answers to
    `silent` messages everybody waits, but they never come.

    As in Flower's engine an app gets copies of the message and of its node's context, and a reply and the state that the
    app left reach the node one after the other: `keeps(message)` says whether the state does.
    """

    def __init__(
        self,
        apps: list[ClientApp],
        *,
        names: bool = True,
        configs: dict[int, dict] | None = None,
        hand: Callable[
            [Message, Message], Message | list[Message] | None
        ] = lambda message, reply: reply,
        silent: Callable[[Message], bool] = lambda message: False,
        keeps: Callable[[Message], bool] = lambda message: True,
    ) -> None:
        for config in (configs or {}).values():
            enrol(config)
        self.apps = {10 + place: app for place, app in enumerate(apps)}
        name_task()
        self.hand = hand
        self.silent = silent
        self.keeps = keeps
        self.received: list[Message] = []
        self._waiting: dict[str, list[Message]] = {}
        self._numbers = itertools.count()
        self.contexts = {
            node: Context(
                run_id=1,
                node_id=node,
                node_config=({"partition-id": node - 10} if names else {})
                | (configs or {}).get(node - 10, {}),
                state=RecordDict(),
                run_config={},
            )
            for node in self.apps
        }

    def set_run(self, run) -> None: ...

    @property
    def run(self): ...

    def create_message(self, *args, **kwargs): ...

    def push_messages(self, messages: Iterable[Message]) -> list[str | None]:
        return [self._push(message) for message in messages]

    def _push(self, message: Message) -> str | None:
        number = str(next(self._numbers))
        message.metadata.__dict__["_message_id"] = number
        node = message.metadata.dst_node_id
        if self.silent(message):
            return number
        context = copy.deepcopy(self.contexts[node])
        try:
            reply = self.apps[node](copy.deepcopy(message), context)
        except Exception as error:  # as Flower does
            reply = Message(
                Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=repr(error)),
                reply_to=message,
            )
        if self.keeps(message):
            self.contexts[node].state = context.state
        changed = self.hand(message, reply)
        replies = changed if isinstance(changed, list) else [] if changed is None else [changed]
        self.received += replies
        self._waiting[number] = replies
        return number if replies else None

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        return [
            copy.deepcopy(reply)
            for number in message_ids
            for reply in self._waiting.pop(number, [])
        ]

    def get_node_ids(self) -> list[int]:
        return list(self.apps)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        return self.pull_messages(number for number in self.push_messages(messages) if number)
