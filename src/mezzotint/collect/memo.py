"""Memoised reports: the same value of the same user gives the same report, in every round and
process.

The word that a report is drawn from is a keyed pseudorandom function of the user's id and the
value, not the next one of a keystream. What that buys, and what it does not, is stated by
`privacy.account(Release(..., distinct=...))`.
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
from cryptography.hazmat.primitives.ciphers import (
    Cipher,
    algorithms,
    modes,
)

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import refuse_existing, sync_folder
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.sampler import (
    KEY_BYTES,
    codes_from_words,
    fresh_key,
)
from mezzotint.core.types import AnyPath, BoolArray, ByteArray, Codes, Floats, Words
from mezzotint.core.values import NO_ID, arrow, arrow_array, identities, inputs

compute: Any = pc  # its functions are made at import time, unseen by type checkers

BLOCK_BYTES = 16
SHORT = BLOCK_BYTES - 1
"""Ids of up to 15 bytes stand in an AES block as they are, after their length; longer ones as a
keyed hash.
"""

_LONG = 0xFF


@final
@dataclass(frozen=True, kw_only=True)
class Memo:
    """The memoisation of a run's reports.

    Arguments:
        users: column of user ids: integers or text, none missing. The integer 7 and the text "7"
            are one user.
        key: 32 secret bytes, the same in every round. Whoever has the key and a report learns the
            value.

    Raises:
        ParameterError: a key of another length.

    Example:
        >>> key = mz.collect.new_memo_key("secret.key")
        >>> memo = mz.collect.Memo(users="user", key=key)
        >>> memo.users
        'user'
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
        values: Floats,
        present: BoolArray | None,
        column: str,
        mechanism: Mechanism,
    ) -> Callable[[Words], None]:
        """The words of the rows of a batch, in turn: of one id per row and a value per present
        row.
        """
        mask = np.ones(len(users), dtype=bool) if present is None else present
        random_words = np.zeros(len(users), dtype=np.uint64)
        random_words[mask] = memo_words(
            users.filter(arrow(mask)),
            values,
            key=self.key,
            column=column,
            mechanism=mechanism,
        )
        position = 0

        def fill(buffer: Words) -> None:
            nonlocal position
            buffer[:] = random_words[position : position + buffer.size]
            position += buffer.size

        return fill


def memoised(
    values: npt.ArrayLike | pa.Array,
    users: npt.ArrayLike | pa.Array,
    *,
    mechanism: Mechanism,
    key: bytes,
    column: str,
) -> Codes:
    """One memoised report per value.

    Arguments:
        values: (n,) numbers in data units, or categories of the table; none missing.
        users: (n,) integers or text.
        mechanism: the table.
        key: 32 secret bytes, kept from round to round.
        column: name of the quantity; another name gives unrelated reports of the same values.

    Returns: (n,) codes, uint8 up to 256 levels, else uint16.

    Raises:
        ParameterError: missing values or ids, ids of another type, different lengths, a key of
            another length.

    Guarantees:
        The code depends on user, clipped value, column, table and key alone: not on process, order,
            or day.
        Over the choice of the key, codes of different (user, value) pairs are drawn from the table
        independently, up to the pseudorandomness of AES-256.

    Edge cases: inputs beyond [lower, upper] are the same value as the end they are clipped to; -0.0
        is 0.

    Example:
        >>> key = mz.collect.new_memo_key("secret.key")
        >>> mechanism = mz.families.randomized_response(lower=0, upper=1, epsilon=1.0)
        >>> options = {"mechanism": mechanism, "key": key, "column": "x"}
        >>> first = mz.collect.memoised([0.2, 0.2], ["ann", "bob"], **options)
        >>> again = mz.collect.memoised([0.2, 0.2], ["ann", "bob"], **options)
        >>> bool((first == again).all())
        True
    """
    Memo(users=column, key=key)  # checks the key
    listed = inputs(values, mechanism.categories, parameter="values")
    if listed.present is not None:
        raise ParameterError("values", "missing", "drop missing values first")
    # The word comes from the input, a category's position: one category, one report, however it is
    # spelled.
    user_ids = arrow_array(users, parameter="users")
    random_words = memo_words(
        user_ids,
        listed.values,
        key=key,
        column=column,
        mechanism=mechanism,
    )
    return codes_from_words(mechanism, listed.values.astype(np.float64), random_words)


# Let E be AES-256 under a key of this column and table. With B1 a block made injectively of the id
# (but for long ids, which collide with the chance of a 120-bit hash) and B2 the 8 bytes of the
# value, the word is half of E(E(B1) xor B2): CBC-MAC on messages of two blocks always, a
# pseudorandom function (Bellare, Kilian, Rogaway 2000).
def memo_words(
    users: pa.Array,
    values: Floats,
    *,
    key: bytes,
    column: str,
    mechanism: Mechanism,
) -> Words:
    """(n,) uint64, one per pair of user and value; see `memoised`."""
    if len(users) != values.size:
        raise ParameterError(
            "users",
            f"{len(users)} ids",
            f"need one per value, {values.size}",
        )
    purpose = b"mezzotint memo\0" + bytes.fromhex(mechanism.sha256) + column.encode()
    derived = hmac.digest(key, purpose, "sha256")
    clipped = np.clip(values.astype(np.float64), mechanism.lower, mechanism.upper)
    clipped += 0.0  # -0.0 becomes 0.0
    encryptor = Cipher(algorithms.AES(derived), modes.ECB()).encryptor()
    encrypted_ids = encryptor.update(_id_blocks(users, derived).tobytes())
    blocks = np.frombuffer(encrypted_ids, dtype="<u8").reshape(-1, 2).copy()
    blocks[:, 0] ^= clipped.astype("<f8").view("<u8")
    encrypted = encryptor.update(blocks.tobytes())
    return np.frombuffer(encrypted, dtype="<u8")[::2].astype(np.uint64)


def _id_blocks(users: pa.Array, key: bytes) -> ByteArray:
    """(n, 16) bytes: length and text of short ids, a keyed hash of long ones."""
    id_text = _as_text(users)
    offsets = np.frombuffer(
        id_text.buffers()[1],
        dtype=np.int64,
        count=len(id_text) + 1,
        offset=8 * id_text.offset,
    )
    data = np.frombuffer(id_text.buffers()[2] or b"", dtype=np.uint8)
    sizes = np.diff(offsets)
    blocks = np.zeros((len(id_text), BLOCK_BYTES), dtype=np.uint8)
    blocks[:, 0] = np.where(sizes <= SHORT, sizes, _LONG)
    for letter in range(min(SHORT, int(sizes.max(initial=0)))):
        short_ids = np.flatnonzero((sizes > letter) & (sizes <= SHORT))
        blocks[short_ids, letter + 1] = data[offsets[:-1][short_ids] + letter]
    for index in np.flatnonzero(sizes > SHORT):
        spelled = data[offsets[index] : offsets[index + 1]].tobytes()
        hashed = hashlib.blake2b(spelled, key=key, digest_size=SHORT)
        blocks[index, 1:] = np.frombuffer(hashed.digest(), dtype=np.uint8)
    return blocks


def _as_text(users: pa.Array) -> pa.Array:
    """User ids as text in Unicode's normal form C, as ledgers take them; ParameterError for others
    than `identities` takes.
    """

    def refuse(index: int | None, words: str) -> ParameterError:
        if index is None:
            return ParameterError("users", str(users.type), words)
        if words == NO_ID:
            remedy = "every row needs a user id; drop rows without one first"
            return ParameterError("users", "missing", remedy)
        return ParameterError("users", f"entry {index}", words)

    id_text = compute.cast(identities(users, refuse), pa.large_string())
    if compute.all(compute.string_is_ascii(id_text)).as_py() is False:
        id_text = compute.utf8_normalize(id_text, form="NFC")
    return id_text


# Keys ---------------------------------------------------------------------------------------------


def new_memo_key(path: AnyPath) -> bytes:
    """Makes a key, writes it to a new file that its owner alone may read, and returns it.

    Arguments:
        path: of a file that does not exist yet.

    Returns: 32 bytes.

    Example:
        >>> len(mz.collect.new_memo_key("secret.key"))
        32
    """
    memo_key = fresh_key()
    write_key(path, memo_key)
    return memo_key


def write_key(path: AnyPath, key: bytes) -> None:
    """Writes a key to a new file that its owner alone may read."""
    target = refuse_existing(path, parameter="key_file")
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as handle:
        handle.write(key.hex() + "\n")
        handle.flush()
        os.fsync(handle.fileno())
    sync_folder(target.parent)  # reports that a lost key drew cannot be drawn again


def load_memo_key(path: AnyPath) -> bytes:
    """Reads a key file.

    Arguments:
        path: of the key file.

    Returns: 32 bytes.

    Raises:
        ParameterError: no such file, or one that other users of the machine may read.
        FileFormatError: no key in it.

    Example:
        >>> key = mz.collect.new_memo_key("secret.key")
        >>> mz.collect.load_memo_key("secret.key") == key
        True
    """
    target = Path(path)
    if not target.is_file():
        remedy = "no such file; make one with mezzotint.collect.new_memo_key, or --new-key"
        raise ParameterError("key_file", str(target), remedy)
    if os.name == "posix" and target.stat().st_mode & 0o077:
        raise ParameterError(
            "key_file",
            str(target),
            "others may read this secret; run chmod 600 on it",
        )
    try:
        memo_key = bytes.fromhex(target.read_text(encoding="ascii").strip())
    except ValueError:
        memo_key = b""
    if len(memo_key) != KEY_BYTES:
        raise FileFormatError(
            f"{target}: holds no memo key; it has {2 * KEY_BYTES} hexadecimal digits on one line"
        )
    return memo_key
