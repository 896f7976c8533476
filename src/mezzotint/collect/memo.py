"""Memoised reports: the same value of the same user gives the same report, in every round and process.

The word that a report is drawn from is a keyed pseudorandom function of the user's id and the value, not the next one
of a keystream. What that buys, and what it does not, is stated by `privacy.account(Release(..., distinct=...))`.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from mezzotint.collect.columns import arrow, numbers
from mezzotint.core.entropy import KEY_BYTES, Words, fresh_key
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import refuse_existing, sync_folder
from mezzotint.core.kernels import Codes
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.sampler import codes_from_words

compute: Any = pc  # its functions are made at import time, unseen by type checkers

BLOCK_BYTES = 16
SHORT = BLOCK_BYTES - 1
"""Ids of up to 15 bytes stand in an AES block as they are, after their length; longer ones as a keyed hash."""

_LONG = 0xFF


@final
@dataclass(frozen=True, kw_only=True)
class Memo:
    """Memoisation of a run.

    Arguments:
        users: column of user ids: integers or text, none missing. The integer 7 and the text "7" are one user.
        key: 32 secret bytes, the same in every round. Who has the key and a report learns the value.

    Raises:
        ParameterError: a key of another length.
    """

    users: str
    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.key) != KEY_BYTES:
            remedy = f"a key has {KEY_BYTES} bytes; make one with mezzotint.collect.new_memo_key"
            raise ParameterError("key", f"{len(self.key)} bytes", remedy)

    def words(
        self,
        users: pa.Array,
        values: npt.NDArray[np.floating],
        present: npt.NDArray[np.bool_] | None,
        column: str,
        mechanism: Mechanism,
    ) -> Callable[[Words], None]:
        """The words of the rows of a batch, in turn, as `drawing.NextWords`.

        Arguments:
            users: ids, one per row.
            values: one per present row, data units.
            present: (rows,) which rows have a value; None for all.
            column: whose reports these are: another column or table gets unrelated words.
            mechanism: the table.
        """
        if present is not None:
            users = users.filter(arrow(present))
        drawn = memo_words(users, values, key=self.key, column=column, mechanism=mechanism)
        words = drawn
        if present is not None:
            words = np.zeros(present.size, dtype=np.uint64)
            words[present] = drawn
        done = 0

        def fill(buffer: Words) -> None:
            nonlocal done
            buffer[:] = words[done : done + buffer.size]
            done += buffer.size

        return fill


def memoised(
    values: npt.ArrayLike | pa.Array, users: npt.ArrayLike | pa.Array, *, mechanism: Mechanism, key: bytes, column: str
) -> Codes:
    """One memoised report per value.

    Arguments:
        values: (n,) numbers in data units, none missing.
        users: (n,) integers or text.
        mechanism: the table.
        key: 32 secret bytes, kept from round to round.
        column: name of the quantity; another name gives unrelated reports of the same values.

    Returns: (n,) codes, uint8 up to 256 levels, else uint16.

    Raises:
        ParameterError: missing values or ids, ids of another type, different lengths, a key of another length.

    Guarantees:
        The code depends on user, clipped value, column, table and key alone: not on process, order, or day.
        Over the choice of the key, codes of different (user, value) pairs are drawn from the table independently, up to
        the pseudorandomness of AES-256.

    Edge cases: inputs beyond [lower, upper] are the same value as the end they are clipped to; -0.0 is 0.
    """
    Memo(users=column, key=key)  # checks the key
    given, present = numbers(pa.array(values))
    if present is not None:
        raise ParameterError("values", "missing", "drop missing values first")
    words = memo_words(pa.array(users), given, key=key, column=column, mechanism=mechanism)
    return codes_from_words(mechanism, given.astype(np.float64), words)


# Let E be AES-256 under a key of this column and table. With B1 a block made injectively of the id (but for long ids,
# which collide with the chance of a 120-bit hash) and B2 the 8 bytes of the value, the word is half of
# E(E(B1) xor B2): CBC-MAC on messages of two blocks always, a pseudorandom function (Bellare, Kilian, Rogaway 2000).
def memo_words(
    users: pa.Array, values: npt.NDArray[np.floating], *, key: bytes, column: str, mechanism: Mechanism
) -> Words:
    """(n,) uint64, one per pair of user and value; see `memoised`."""
    if len(users) != values.size:
        raise ParameterError("users", f"{len(users)} ids", f"need one per value, {values.size}")
    purpose = b"mezzotint memo\0" + bytes.fromhex(mechanism.sha256) + column.encode()
    derived = hmac.digest(key, purpose, "sha256")
    clipped = np.clip(values.astype(np.float64), mechanism.lower, mechanism.upper) + 0.0  # -0.0 becomes 0.0
    encryptor = Cipher(algorithms.AES(derived), modes.ECB()).encryptor()
    state = np.frombuffer(encryptor.update(_id_blocks(users, derived).tobytes()), dtype="<u8").reshape(-1, 2).copy()
    state[:, 0] ^= clipped.astype("<f8").view("<u8")
    return np.frombuffer(encryptor.update(state.tobytes()), dtype="<u8")[::2].astype(np.uint64)


def _id_blocks(users: pa.Array, key: bytes) -> npt.NDArray[np.uint8]:
    """(n, 16) bytes: length and text of short ids, a keyed hash of long ones."""
    text = _as_text(users)
    offsets = np.frombuffer(text.buffers()[1], dtype=np.int64, count=len(text) + 1, offset=8 * text.offset)
    data = np.frombuffer(text.buffers()[2] or b"", dtype=np.uint8)
    sizes = np.diff(offsets)
    blocks = np.zeros((len(text), BLOCK_BYTES), dtype=np.uint8)
    blocks[:, 0] = np.minimum(sizes, _LONG)
    for j in range(min(SHORT, int(sizes.max(initial=0)))):
        here = np.flatnonzero((sizes > j) & (sizes <= SHORT))
        blocks[here, j + 1] = data[offsets[:-1][here] + j]
    for i in np.flatnonzero(sizes > SHORT):
        blocks[i, 0] = _LONG
        hashed = hashlib.blake2b(data[offsets[i] : offsets[i + 1]].tobytes(), key=key, digest_size=SHORT)
        blocks[i, 1:] = np.frombuffer(hashed.digest(), dtype=np.uint8)
    return blocks


def _as_text(users: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(users.type):
        users = users.dictionary_decode()
    kind = users.type
    if pa.types.is_null(kind) or users.null_count:
        raise ParameterError("users", "missing", "every row needs a user id; drop rows without one first")
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        raise ParameterError("users", str(kind), "user ids are integers or text")
    return compute.cast(users, pa.large_string())


# Keys --------------------------------------------------------------------------------------------------------


def new_memo_key(path: str | os.PathLike[str]) -> bytes:
    """Makes a key, writes it to a new file that its owner alone may read, and returns it."""
    target = refuse_existing(path, parameter="key_file")
    key = fresh_key()
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as handle:
        handle.write(key.hex() + "\n")
        handle.flush()
        os.fsync(handle.fileno())
    sync_folder(target.parent)  # reports that a lost key drew cannot be drawn again
    return key


def load_memo_key(path: str | os.PathLike[str]) -> bytes:
    """Reads a key file.

    Raises:
        ParameterError: no such file, or one that other users of the machine may read.
        FileFormatError: no key in it.
    """
    target = Path(path)
    if not target.is_file():
        remedy = "no such file; make one with mezzotint.collect.new_memo_key, or --new-key"
        raise ParameterError("key_file", str(target), remedy)
    if os.name == "posix" and target.stat().st_mode & 0o077:
        raise ParameterError("key_file", str(target), "others may read this secret; run chmod 600 on it")
    try:
        key = bytes.fromhex(target.read_text(encoding="ascii").strip())
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise FileFormatError(f"{target}: holds no memo key; it has {2 * KEY_BYTES} hexadecimal digits on one line")
    return key
