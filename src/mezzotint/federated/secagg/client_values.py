"""Values for some of a round's clients, each made when it is looked up: together they would take too
much memory.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TypeVar, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.types import BoolArray

T = TypeVar("T")
Clients = npt.NDArray[np.uint16]
"""Indices of clients in a round."""


def compact(clients: Collection[int]) -> Clients:
    """The numbers of clients in two bytes each; a Python set takes a hundred."""
    return np.fromiter(clients, np.uint16, len(clients))


class ClientValues(Mapping[int, T], ABC):
    """A value for some of a round's clients, ascending, made on access.

    Arguments:
        has_value: (clients,) which of them have one.
    """

    def __init__(self, has_value: BoolArray) -> None:
        self._has_value = has_value

    @abstractmethod
    def _value(self, index: int) -> T:
        """The value of a client that has one."""

    def __getitem__(self, index: int) -> T:
        if index not in self:
            raise KeyError(index)
        return self._value(index)

    def __contains__(self, index: object) -> bool:
        if not isinstance(index, int):
            return False
        return 0 <= index < self._has_value.size and bool(self._has_value[index])

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self._has_value).tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self._has_value))


@final
class Outbox(ClientValues[bytes]):
    """A stage's messages by client: all of them together can be larger than the sum."""

    def __init__(self, clients: Collection[int], make: Callable[[int], bytes]) -> None:
        has_message = np.zeros(1 + max(clients, default=-1), dtype=np.bool_)
        has_message[list(clients)] = True
        super().__init__(has_message)
        self._make = make

    def _value(self, index: int) -> bytes:
        return self._make(index)


def mask_partners(dealers: Collection[int] | Clients, picks: Clients) -> dict[int, Clients]:
    """The mask partners of each dealer, ascending: the dealers that it picked or that picked it.

    Arguments:
        dealers: of the round, ascending.
        picks: (clients, picks) the clients that each one picked.
    """
    pickers = compact(dealers)
    has_dealt = np.zeros(len(picks), dtype=np.bool_)
    has_dealt[pickers] = True
    picker, pick = np.nonzero(has_dealt[picks[pickers]])
    first = pickers[picker].astype(np.uint32)
    second = picks[pickers][picker, pick].astype(np.uint32)
    # Each pair in both orders, once, sorted by its first client and then by its second.
    pairs = np.unique(np.concatenate([first << 16 | second, second << 16 | first]))
    borders = np.searchsorted(pairs >> 16, pickers)
    partners = np.split(pairs.astype(np.uint16), borders[1:])
    return dict(zip(pickers.tolist(), partners, strict=True))
