"""Flower without a network: a grid that hands every message to a client app in this process."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid

TaskIdentity = None
with contextlib.suppress(ImportError):  # before Flower 1.38 messages carry no identity of a task
    from flwr.supercore.task_identity import TaskIdentity


class LocalGrid(Grid):
    """Nodes with contexts of their own. `hand(message, reply)` may change, drop (None) or double (list) replies."""

    def __init__(
        self,
        apps: list[ClientApp],
        *,
        names: bool = True,
        configs: dict[int, dict] | None = None,
        hand: Callable[[Message, Message], Message | list[Message] | None] = lambda message, reply: reply,
    ) -> None:
        self.apps = {10 + place: app for place, app in enumerate(apps)}
        if TaskIdentity is not None:
            TaskIdentity.run_id, TaskIdentity.task_id, TaskIdentity.node_id = 1, 1, 1
        self.hand = hand
        self.received: list[Message] = []
        self._numbers = itertools.count()
        self.contexts = {
            node: Context(
                run_id=1,
                node_id=node,
                node_config=({"partition-id": node - 10} if names else {}) | (configs or {}).get(node - 10, {}),
                state=RecordDict(),
                run_config={},
            )
            for node in self.apps
        }

    def set_run(self, run) -> None: ...

    @property
    def run(self): ...

    def create_message(self, *args, **kwargs): ...

    def push_messages(self, messages): ...

    def pull_messages(self, message_ids): ...

    def get_node_ids(self) -> list[int]:
        return list(self.apps)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> list[Message]:
        replies: list[Message] = []
        for message in messages:
            node = message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = str(next(self._numbers))
            reply = self.apps[node](message, self.contexts[node])
            changed = self.hand(message, reply)
            replies += changed if isinstance(changed, list) else [] if changed is None else [changed]
        self.received += replies
        return replies
