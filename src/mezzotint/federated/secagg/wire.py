"""Bytes of messages: fixed-width little-endian numbers and length-checked fields, read strictly."""

from __future__ import annotations

from typing import final

from mezzotint.federated.secagg.errors import MalformedMessage


def number(value: int, width: int) -> bytes:
    """A number >= 0 in `width` bytes."""
    return int(value).to_bytes(width, "little")


@final
class Reader:
    """Reads a message from the front; anything missing or left over is refused.

    Arguments:
        data: the message.
        stage: for the error.
    """

    __slots__ = ("_data", "_place", "_stage")

    def __init__(self, data: bytes, stage: str) -> None:
        self._data = data
        self._place = 0
        self._stage = stage

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        end = self._place + count
        if end > len(self._data):
            raise MalformedMessage(self._stage, f"{len(self._data)} bytes are too few; the message was cut")
        part = self._data[self._place : end]
        self._place = end
        return part

    def number(self, width: int) -> int:
        """The next number of `width` bytes."""
        return int.from_bytes(self.take(width), "little")

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return len(self._data) - self._place

    def rest(self) -> bytes:
        """All bytes left."""
        return self.take(self.left)

    def end(self) -> None:
        """Refuses bytes left over."""
        if self.left:
            raise MalformedMessage(self._stage, f"{self.left} bytes are left over")
