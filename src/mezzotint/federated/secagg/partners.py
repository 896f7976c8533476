"""Who masks with whom: each client with those that it picked, and with those that picked it, among those that dealt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.federated.secagg.messages import Clients


@final
class Partners(Mapping[int, Clients]):
    """With whom each client that dealt masks, ascending; put together when it is asked for.

    All of them written out would take three times the memory of the picks, and more while they are made.

    Arguments:
        dealers: who dealt, ascending.
        picks: whom each client picked, one row a client; rows of others than dealers count for nothing.
    """

    def __init__(self, dealers: npt.NDArray[np.integer], picks: Clients) -> None:
        self._dealers, self._picks = dealers.astype(np.uint16), picks
        self._there = np.zeros(len(picks), dtype=np.bool_)
        self._there[dealers] = True
        pairs = picks[dealers].astype("<u4")
        pairs <<= 16
        pairs |= self._dealers[:, None]
        pairs = pairs.reshape(-1)
        pairs.sort()  # by whom was picked, then by who did
        halves = pairs.view("<u2")
        self._pickers, picked = halves[::2].copy(), halves[1::2].copy()
        self._begins = np.searchsorted(picked, np.arange(len(picks) + 1, dtype=np.uint16))

    def __getitem__(self, index: int) -> Clients:
        if index not in self:
            raise KeyError(index)
        mine = self._picks[index]
        found = np.append(mine[self._there[mine]], self._pickers[self._begins[index] : self._begins[index + 1]])
        found.sort()
        return found[np.append(True, found[1:] != found[:-1])] if found.size else found

    def __contains__(self, index: object) -> bool:
        return isinstance(index, int) and 0 <= index < self._there.size and bool(self._there[index])

    def __iter__(self) -> Iterator[int]:
        return iter(self._dealers.tolist())

    def __len__(self) -> int:
        return self._dealers.size
