"""Updates that are spread over several sums in a row: each client trains in its turn alone, and is in every sum.

A client's own half: whose turn it is, and the update that it holds until its next one. What the server makes of the
sums: the sums of the updates behind the noise, which is correlated from round to round there.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.files import replacing
from mezzotint.federated.encoding import Vector
from mezzotint.federated.server_optimizers import State
from mezzotint.vectors import clip
from mezzotint.vectors.rotation import SCALE, coefficients, solved

if TYPE_CHECKING:
    from flwr.app import Context

_HELD = "mezzotint.held"
_BYTES = "update"
_SUM = "sum of round "


def turn_of(identity: bytes, bands: int) -> int:
    """How many rounds it takes until a client's first turn, 0 to bands - 1.

    It follows from the public identity alone: no server chooses it, and no crash makes a client forget it. So there are
    about as many clients in each turn, but not just as many.
    """
    return int.from_bytes(hashlib.sha256(b"mezzotint turn" + identity).digest()[:8], "little") % bands


@final
@dataclass(frozen=True, kw_only=True)
class Held:
    """Where a client keeps its last update between its turns: in its records, or in Flower's state of the run.

    Arguments:
        context: of the message.
        identity: of the client.
        about: what the update may be used for, such as the session and the encoding; under anything else there is none.

    Guarantees: a file is replaced as a whole, and on disk, before `keep` returns; nobody else may read it.
    Edge cases: what is lost or damaged counts as an update that never was: the client then adds noise alone.
    """

    context: Context
    identity: bytes
    about: bytes

    @property
    def _path(self) -> Path | None:
        folder, config = self.context.node_config.get("records"), self.context.node_config
        return None if folder is None or "identity" not in config else Path(str(folder)) / self._name

    @property
    def _name(self) -> str:
        return f"update-{self.identity.hex()[:16]}.npz"

    def keep(self, number: int, vector: Vector) -> None:
        """Replaces what is held by the update of this round."""
        file = io.BytesIO()
        np.savez(file, about=np.frombuffer(self.about, np.uint8), number=np.int64(number), vector=vector)
        if self._path is None:
            from flwr.app import ConfigRecord  # rehearsals do without Flower

            self.context.state[_HELD] = ConfigRecord({_BYTES: file.getvalue()})
            return
        with replacing(self._path, overwrite=True) as temporary:
            temporary.touch(mode=0o600)
            temporary.write_bytes(file.getvalue())

    def of(self, number: int) -> Vector | None:
        """The update of this round, if it is held."""
        try:
            with np.load(io.BytesIO(self._bytes()), allow_pickle=False) as file:
                same = file["about"].tobytes() == self.about and int(file["number"]) == number
                return file["vector"] if same else None
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def _bytes(self) -> bytes:
        if self._path is not None:
            return self._path.read_bytes()
        record = self.context.state.config_records.get(_HELD)
        found = b"" if record is None else record[_BYTES]
        return found if isinstance(found, bytes) else b""


def spread(update: Callable[[], Vector], *, number: int, size: int, bands: int, norm: float, held: Held) -> Vector:
    """(size,) a client's contribution to the sum of a round: its share of the update from its last turn.

    Arguments:
        update: trains; called in the client's turn alone, and once for a round.
        number: of the round.
        size: coordinates of an update.
        bands: of the encoding.
        norm: that updates are clipped to.
        held: where the update is kept.

    Guarantees: within a block of `bands` rounds from a turn on, shares of one update and of no other.
    Edge cases: zero where the client was not asked in its turn, or has lost the update; the sum gets its noise then.
    Source: docs/proofs/vectors.md, "Vectors in several sums".
    """
    since = (number - 1 - turn_of(held.identity, bands)) % bands
    vector = held.of(number - since)
    if vector is None and since == 0:
        vector = clip(update(), norm="l2", bound=norm)
        held.keep(number, vector)
    if vector is None or vector.size != size:
        vector = np.zeros(size)
    return coefficients(bands)[since] / SCALE * vector


def behind(
    state: State, total: npt.NDArray[np.float64], *, number: int, count: int, bands: int
) -> tuple[State, Vector]:
    """What is remembered for later rounds, and the mean update of this one.

    Arguments:
        state: what the round before remembered, possibly among other things.
        total: (d,) the decoded sum.
        number: of the round; one whose sum did not come about is missing, and its updates count as zero.
        count: summands, a `bands`-th of whom, about, it was the turn of.
    """
    earlier = {lag: state[_SUM + str(number - lag)] for lag in range(1, bands) if _SUM + str(number - lag) in state}
    found = solved(bands, SCALE * total, earlier)
    kept = {_SUM + str(number - lag): vector for lag, vector in earlier.items() if lag < bands - 1}
    return kept | {_SUM + str(number): found}, found * bands / count
