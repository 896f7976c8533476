"""Memoised reports: the same value of the same user gives the same report, in every round and
process.

The word that a report is drawn from is a keyed pseudorandom function of the user's id and the
value, not the next one of a keystream. What that buys, and what it does not, is stated by
`privacy.account(Release(..., distinct=...))`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import refuse_existing, sync_folder
from mezzotint.core.kinds import checked
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.sampler import (
    KEY_BYTES,
    codes_from_words,
    fresh_key,
)
from mezzotint.core.types import AnyPath, Codes, Floats, Words
from mezzotint.core.values import NO_ID, arrow_array, identities, inputs
from mezzotint.privacy.people import IdHash


@final
@checked
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
    hashes = IdHash(key, purpose=purpose)
    blocks = hashes.of_arrow(_checked(users)).view("<u8").copy()
    clipped = np.clip(values.astype(np.float64), mechanism.lower, mechanism.upper)
    clipped += 0.0  # -0.0 becomes 0.0
    blocks[:, 0] ^= clipped.astype("<f8").view("<u8")
    return hashes.encrypted(blocks).view("<u8")[:, 0].astype(np.uint64)


def _checked(users: pa.Array) -> pa.Array:
    """User ids; ParameterError for others than `identities` takes."""

    def refuse(index: int | None, words: str) -> ParameterError:
        if index is None:
            return ParameterError("users", str(users.type), words)
        if words == NO_ID:
            remedy = "every row needs a user id; drop rows without one first"
            return ParameterError("users", "missing", remedy)
        return ParameterError("users", f"entry {index}", words)

    return identities(users, refuse)


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
    if target.stat().st_mode & 0o077:
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
