"""Messages on their way: answers are taken one by one as they come, so that nobody waits for the last of them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice

from flwr.app import Message
from flwr.serverapp import Grid

_AT_ONCE = 64
"""Messages sent, or answers fetched, by one request, at most."""
_ROOM = 1 << 22
"""Bytes of answers fetched by one request: what is fetched lies in memory until it is read."""
_SHORTEST, _LONGEST = 0.05, 1.0
"""Seconds between two looks for answers."""
_PART = 20
"""While nothing comes, a look is this part of the time waited for it later than the one before: so little is lost."""


def arriving(
    grid: Grid,
    messages: Iterable[Message],
    *,
    timeout: float,
    answer_bytes: int = 0,
    late: dict[str, int] | None = None,
) -> Iterator[Message]:
    """Sends messages, and gives their answers in the order in which they come.

    Ends when all have come or the time is over, whichever is first. Whoever stops reading gives up the others: they are
    never fetched. Messages that Flower could not send are not waited for. Of an answer that was read nothing is kept.

    Arguments:
        grid: Flower's.
        messages: to send, once the first answer is asked for; taken a few at a time.
        timeout: seconds, once all are sent. What has come by its end is given, however long the reader took.
        answer_bytes: of an answer, if known: large ones are fetched a few at a time.
        late: number -> node of earlier messages, whose answers are given as well, but not waited for; messages that are
            not answered at the end are added.
    """
    late = {} if late is None else late
    outbox, waiting = iter(messages), dict[str, int]()
    while some := list(islice(outbox, _AT_ONCE)):
        for message, number in zip(some, grid.push_messages(some), strict=True):
            if number:
                waiting[number] = message.metadata.dst_node_id
    del some
    last = time.monotonic()  # when something came
    deadline = last + timeout
    size = max(1, min(_AT_ONCE, _ROOM // max(1, answer_bytes)))
    try:
        while waiting or late:
            over = not waiting or time.monotonic() >= deadline  # then this is the last look
            asked, before = [*waiting, *late], len(waiting)
            for begin in range(0, len(asked), size):
                found = list(grid.pull_messages(asked[begin : begin + size]))
                for answer in found:
                    waiting.pop(answer.metadata.reply_to_message_id, None)
                    late.pop(answer.metadata.reply_to_message_id, None)
                while found:
                    yield found.pop(0)
            if over or not waiting:
                return
            now = time.monotonic()
            last = now if len(waiting) < before else last
            pause = min(max((now - last) / _PART, _SHORTEST), _LONGEST)
            time.sleep(min(pause, max(0.0, deadline - now)))
    finally:
        late.update(waiting)
