"""Bytes on the wire, read with care, and the names of all that is refused."""

from __future__ import annotations

from typing import final

from mezzotint.core.errors import MezzotintError


class ProtocolError(MezzotintError):
    """A message that does not fit the protocol; whoever raises this reveals nothing more in this
    round.

    Arguments:
        stage: where it happened: "plan", "card", "deal", "sum", "agree", "open" or "unite".
        what: what was wrong, in one sentence.
        culprits: indices of the clients whose messages caused it, when known.
    """

    def __init__(self, stage: str, what: str, culprits: tuple[int, ...] = ()) -> None:
        self.stage = stage
        self.what = what
        self.culprits = culprits
        super().__init__(f"{type(self).__name__} at stage {stage!r}: {what}")


class PlanRefused(ProtocolError):
    """A plan that is unsafe, for another roster, or less protective than required."""


class ReplayedRound(ProtocolError):
    """A round that was answered already, or a message of another round."""


class WrongStage(ProtocolError):
    """A message that is not the next one of its round."""


class MalformedMessage(ProtocolError):
    """Bytes of the wrong length or form."""


class UnknownSender(ProtocolError):
    """A message by, or about, a client that is not part of this round."""


class DuplicateAnswer(ProtocolError):
    """A second answer of one client in one stage, or one client named twice in a list."""


class SwappedKey(ProtocolError):
    """A public key that its owner did not sign, or somebody else in a client's place."""


class TamperedShare(ProtocolError):
    """A share that was cut, changed, meant for somebody else, or not the one that its owner
    committed to.
    """


class OutOfRangeInteger(ProtocolError):
    """An integer that the plan does not allow."""


class InconsistentLists(ProtocolError):
    """Clients were told different things about who takes part, or who survived."""


class TooFewClients(ProtocolError):
    """Fewer clients are left than the plan asks for: the sum stays secret."""


INDEX_BYTES = 2
"""Of a client's index in a round, and of numbers of clients."""


def number(value: int, width: int) -> bytes:
    """A number >= 0 in `width` bytes."""
    return int(value).to_bytes(width, "little")


def client_number(index: int) -> bytes:
    """A client's index in a round, or a number of clients."""
    return number(index, INDEX_BYTES)


@final
class Reader:
    """Reads a message from the front; anything missing, or left over after a `with` block, is
    refused.

    Arguments:
        data: the message.
        stage: for the error.
    """

    __slots__ = ("_data", "_offset", "_stage")

    def __init__(self, data: bytes, stage: str) -> None:
        self._data = data
        self._offset = 0
        self._stage = stage

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        end = self._offset + count
        if end > len(self._data):
            raise MalformedMessage(
                self._stage, f"{len(self._data)} bytes are too few; the message was cut"
            )
        chunk = self._data[self._offset : end]
        self._offset = end
        return chunk

    def number(self, width: int) -> int:
        """The next number of `width` bytes."""
        return int.from_bytes(self.take(width), "little")

    def client_number(self) -> int:
        """The next index of a client, or number of clients."""
        return self.number(INDEX_BYTES)

    @property
    def left(self) -> int:
        """The number of bytes not read yet."""
        return len(self._data) - self._offset

    def rest(self) -> bytes:
        """The remaining bytes."""
        return self.take(self.left)

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """Refuse bytes left over at the end of a `with` block."""
        if error is None and self.left:
            raise MalformedMessage(self._stage, f"{self.left} bytes are left over")
