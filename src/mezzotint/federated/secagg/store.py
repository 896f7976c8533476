"""What the server keeps of a round for the committee: the dealings, and the shares that members open.

Both grow as clients times members, exceed all else in a round of thousands, and therefore lie in temporary files.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Collection, Generator, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from itertools import pairwise
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import StorageError
from mezzotint.federated.secagg import masks, messages
from mezzotint.federated.secagg.messages import Clients, Deal, OfClients
from mezzotint.federated.secagg.plan import RoundPlan
from mezzotint.federated.secagg.wire import Reader

Rows = npt.NDArray[np.uint8]
_SEALED = slice(0, messages.SEALED_BYTES)
_COMMITMENTS = slice(messages.SEALED_BYTES, messages.PORTION_BYTES)
_BLOCK = 1 << 19
"""Most bytes kept in memory at a time: only rounds with more write a file."""


@final
class Spill:
    """Bytes by offset: in memory while they are few, then in a nameless file that no other user can read.

    The file goes with the process, however that ends. (Under Windows it has a name until then.)

    Raises:
        StorageError: in both methods, if the folder for temporary files has no room.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_BLOCK, prefix="mezzotint-")  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def write(self, place: int, data: bytes) -> None:
        """Keep bytes."""
        with self._at(place):
            self._file.write(data)

    def read(self, place: int, count: int) -> bytes:
        """Bytes that were kept."""
        with self._at(place):
            return self._file.read(count)

    @contextmanager
    def _at(self, place: int) -> Generator[None]:
        try:
            self._file.seek(place)
            yield
        except OSError as error:
            remedy = f"what waits for the committee cannot be kept ({error.strerror}); name a folder with room"
            raise StorageError("TMPDIR", str(tempfile.tempdir), remedy) from None


@final
class ByClient(OfClients[bytes], MutableMapping[int, bytes]):
    """Bytes of one length by client, ascending, as rows of one array: a third of the size of a dictionary.

    Arguments:
        rows: (clients, bytes).
        there: (clients,) whether a client's row counts; None: not yet.
    """

    def __init__(self, rows: Rows, there: npt.NDArray[np.bool_] | None = None) -> None:
        super().__init__(np.zeros(len(rows), dtype=np.bool_) if there is None else there)
        self._rows = rows

    def _of(self, index: int) -> bytes:
        return self._rows[index].tobytes()

    def __setitem__(self, index: int, data: bytes) -> None:
        self._rows[index] = np.frombuffer(data, dtype=np.uint8)
        self._there[index] = True

    def __delitem__(self, index: int) -> None:
        if index not in self:
            raise KeyError(index)
        self._there[index] = False


@final
class Dealings(OfClients[Deal]):
    """The dealings of a round: the public part of each by client, ascending, and the rest on request.

    Public parts stay in memory. Portions, one for each member and all but two hundred bytes of a dealing, are written
    as they were sent, sealed: a block of dealings at a time, by member, so that one member's are read in few pieces.

    Arguments:
        plan: of the round.
    """

    def __init__(self, plan: RoundPlan) -> None:
        super().__init__(np.zeros(plan.clients, dtype=np.bool_))
        self._plan = plan
        self._at = np.zeros(plan.clients, dtype=np.int32)
        """A dealer's place in order of arrival."""
        self._came = 0
        self._public = np.zeros((plan.clients, messages.DEAL_BYTES + masks.COMMITMENT_BYTES), dtype=np.uint8)
        self.picks: npt.NDArray[np.uint16] = np.zeros((plan.clients, plan.picks), dtype=np.uint16)
        """Each client's picks."""
        rows = min(plan.clients, max(1, _BLOCK // (plan.members * messages.PORTION_BYTES)))
        self._block = np.zeros((plan.members, rows, messages.PORTION_BYTES), dtype=np.uint8)
        self._spill = Spill()

    def _of(self, index: int) -> Deal:
        return Deal.from_reader(Reader(self.public([index]), "deal"))

    @property
    def clients(self) -> npt.NDArray[np.intp]:
        """The dealers, ascending."""
        return np.flatnonzero(self._there)

    def add(self, index: int, message: bytes, picks: Collection[int]) -> None:
        """Take a dealing that `messages.read_dealing` accepted, and the picks of its coins."""
        members, rows, width = self._block.shape
        public, portions = messages.parts(message)
        self._public[index] = np.frombuffer(public, dtype=np.uint8)
        self.picks[index] = messages.compact(picks)
        self._block[:, self._came % rows] = np.frombuffer(portions, dtype=np.uint8).reshape(members, width)
        self._there[index], self._at[index] = True, self._came
        self._came += 1
        if self._came % rows == 0:
            self._spill.write((self._came // rows - 1) * self._block.nbytes, self._block.tobytes())

    def leave_out(self, index: int) -> None:
        """Forget a client."""
        self._there[index] = False

    def public(self, clients: Collection[int] | Clients) -> bytes:
        """The public parts of these clients, one after the other."""
        return self._public[messages.compact(clients), : messages.DEAL_BYTES].tobytes()

    def seed(self, index: int) -> bytes:
        """A client's commitment to its self mask's seed."""
        return self._public[index, messages.DEAL_BYTES :].tobytes()

    def coins(self) -> Mapping[int, bytes]:
        """The coins of all dealers."""
        return ByClient(self._public[:, messages.COINS], self._there.copy())

    def promised(self, member: int) -> Iterator[tuple[int, bytes, bytes]]:
        """Each dealer's commitments to one member's shares of its seed and of its mask key."""
        rows = np.empty((len(self), 2 * masks.COMMITMENT_BYTES), dtype=np.uint8)
        self._column(member, _COMMITMENTS, rows)
        for index, row in zip(self, rows, strict=True):
            both = row.tobytes()
            yield index, both[: masks.COMMITMENT_BYTES], both[masks.COMMITMENT_BYTES :]

    def sealed(self, member: int, head: bytes = b"") -> bytes:
        """`head`; then each dealer's channel key and what it sealed for one member, as sent to it."""
        text = bytearray(len(head) + len(self) * (masks.KEY_BYTES + messages.SEALED_BYTES))
        text[: len(head)] = head
        rows = np.frombuffer(text, dtype=np.uint8, offset=len(head)).reshape(len(self), -1)
        rows[:, : masks.KEY_BYTES] = self._public[self.clients, messages.CHANNEL]
        self._column(member, _SEALED, rows[:, masks.KEY_BYTES :])
        return bytes(text)

    def _column(self, member: int, part: slice, found: Rows) -> None:
        """Fill in a part of each portion of one member, one row a dealer."""
        at, rows = self._at[self.clients], self._block.shape[1]
        order = np.argsort(at)
        begins = np.searchsorted(at[order], np.arange(self._came // rows + 2) * rows)
        for block, (begin, end) in enumerate(pairwise(begins.tolist())):
            here = order[begin:end]
            found[here] = self._piece(block, member)[at[here] % rows, part]

    def message(self, index: int) -> bytes:
        """A client's dealing."""
        block, row = divmod(int(self._at[index]), self._block.shape[1])
        portions = b"".join(self._piece(block, member)[row].tobytes() for member in range(self._plan.members))
        return messages.header("deal", self._plan) + self._public[index].tobytes() + portions

    def _piece(self, block: int, member: int) -> Rows:
        """A member's portions in a block."""
        _, rows, width = self._block.shape
        if block == self._came // rows:
            return self._block[member]
        data = self._spill.read(block * self._block.nbytes + member * rows * width, rows * width)
        return np.frombuffer(data, dtype=np.uint8).reshape(rows, width)


@final
class Shares:
    """The shares that members opened, each block of clients sealed under keys that are never written.

    Arguments:
        plan: of the round.
    """

    def __init__(self, plan: RoundPlan) -> None:
        self._plan = plan
        self.counts = np.zeros(plan.clients, dtype=np.uint16)
        """The number of shares of each client's secret."""
        self._key = os.urandom(32)
        self._holders: list[int] = []
        self._rows = max(1, _BLOCK // (plan.members * (1 + masks.SHARE_BYTES)))
        self._spill = Spill()
        self._at_hand: tuple[int, Rows] | None = None

    def add(self, holder: int, found: Mapping[int, bytes]) -> None:
        """Take the shares that a member opened, by dealer."""
        owners = messages.compact(found)
        table = np.zeros((self._plan.clients, 1 + masks.SHARE_BYTES), dtype=np.uint8)
        table[owners, 0] = 1
        table[owners, 1:] = np.frombuffer(b"".join(found.values()), dtype=np.uint8).reshape(-1, masks.SHARE_BYTES)
        self.counts[owners] += 1
        self._holders.append(holder)
        self._at_hand = None
        for block, begin in enumerate(range(0, len(table), self._rows)):
            part = table[begin : begin + self._rows].tobytes()
            sealed = masks.seal(self._key_of(block, holder), part, about=self._plan.digest)
            self._spill.write(self._place(block, holder), sealed)

    def of(self, owner: int) -> dict[int, bytes]:
        """holder -> its share of a client's secret; quick for consecutive clients."""
        block, row = divmod(owner, self._rows)
        holders = sorted(self._holders)
        if not holders:
            return {}
        if self._at_hand is None or self._at_hand[0] != block:
            self._at_hand = block, np.stack([self._table(block, holder) for holder in holders], axis=1)
        shares = self._at_hand[1][row].tobytes()
        places = zip(holders, range(0, len(shares), 1 + masks.SHARE_BYTES), strict=True)
        return {holder: shares[at + 1 : at + 1 + masks.SHARE_BYTES] for holder, at in places if shares[at]}

    def _place(self, block: int, holder: int) -> int:
        return (block * self._plan.members + holder) * (self._rows * (1 + masks.SHARE_BYTES) + masks.TAG_BYTES)

    def _key_of(self, block: int, holder: int) -> bytes:
        purpose = masks.pair_purpose(b"shares at rest", block, holder)
        return masks.derive(self._key, plan=self._plan.digest, purpose=purpose)

    def _table(self, block: int, holder: int) -> Rows:
        rows = min(self._rows, self._plan.clients - block * self._rows)
        sealed = self._spill.read(self._place(block, holder), rows * (1 + masks.SHARE_BYTES) + masks.TAG_BYTES)
        part = masks.unseal(self._key_of(block, holder), sealed, about=self._plan.digest)
        if part is None:
            raise StorageError("TMPDIR", str(tempfile.tempdir), "a temporary file was changed while it was in use")
        return np.frombuffer(part, dtype=np.uint8).reshape(rows, 1 + masks.SHARE_BYTES)
