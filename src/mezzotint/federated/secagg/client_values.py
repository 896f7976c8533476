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


_CLIENT_BITS = 16
"""Of a client's index."""


def compact(clients: Collection[int] | Clients) -> Clients:
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
        if not isinstance(index, int) or not 0 <= index < self._has_value.size:
            return False
        return bool(self._has_value[index])

    def __iter__(self) -> Iterator[int]:
        clients = np.flatnonzero(self._has_value)
        return iter(clients.tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self._has_value))


@final
class Outbox(ClientValues[bytes]):
    """A stage's messages by client: all of them together can be larger than the sum."""

    def __init__(self, clients: Collection[int], make: Callable[[int], bytes]) -> None:
        size = 1 + max(clients, default=-1)
        has_message = np.zeros(size, dtype=np.bool_)
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
    picks_of_dealers = picks[pickers]
    is_dealer = has_dealt[picks_of_dealers]
    first = np.repeat(pickers, is_dealer.sum(axis=1))
    second = picks_of_dealers[is_dealer]
    # Each pair in both orders, once, sorted by its first client and then by its second.
    both_orders = [_pair_numbers(first, second), _pair_numbers(second, first)]
    pairs = np.unique(np.concatenate(both_orders))
    first_of_pairs = pairs >> _CLIENT_BITS
    second_of_pairs = pairs.astype(np.uint16)  # the lower half
    borders = np.searchsorted(first_of_pairs, pickers)
    partners = np.split(second_of_pairs, borders[1:])
    return dict(zip(pickers.tolist(), partners, strict=True))


def _pair_numbers(first: Clients, second: Clients) -> npt.NDArray[np.uint32]:
    """Pairs of clients as numbers: the first in the upper half."""
    upper_halves = first.astype(np.uint32)
    upper_halves <<= _CLIENT_BITS
    return upper_halves | second.astype(np.uint32)
