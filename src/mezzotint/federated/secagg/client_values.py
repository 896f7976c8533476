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


@final
class Partners(ClientValues[Clients]):
    """The mask partners of each dealer, ascending: all together take three times as much memory.

    Arguments:
        dealers: of the round.
        picks: (clients, picks) the clients that each one picked.
    """

    def __init__(self, dealers: npt.NDArray[np.integer], picks: Clients) -> None:
        has_dealt = np.zeros(len(picks), dtype=np.bool_)
        has_dealt[dealers] = True
        super().__init__(has_dealt)
        self._picks = picks
        # Pairs of 16 + 16 bits, sorted by who was picked and then by who picked.
        pairs = picks[dealers].astype("<u4")
        pairs <<= 16
        pairs |= dealers.astype(np.uint16)[:, None]
        pairs = pairs.reshape(-1)
        pairs.sort()
        halves = pairs.view("<u2")
        self._pickers = halves[::2].copy()
        picked = halves[1::2].copy()
        borders = np.arange(len(picks) + 1, dtype=np.uint16)
        self._begins = np.searchsorted(picked, borders)

    def _value(self, index: int) -> Clients:
        picks = self._picks[index]
        dealing_picks = picks[self._has_value[picks]]
        first, behind = self._begins[index : index + 2]
        clients = np.append(dealing_picks, self._pickers[first:behind])
        clients.sort()
        if not clients.size:
            return clients
        is_new = np.append(True, clients[1:] != clients[:-1])
        return clients[is_new]
