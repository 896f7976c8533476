"""The state of a run on disk: parameters and the rounds behind them, whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import numpy.typing as npt

from mezzotint.core.errors import FileFormatError
from mezzotint.core.files import replacing

NAME = "model.npz"


@final
@dataclass(frozen=True, kw_only=True, eq=False)
class Checkpoint:
    """Parameters after a number of training rounds.

    Arguments:
        parameters: (d,) float64.
        done: training rounds behind them, 0 before the first.
        session: 16 bytes naming the run; clients refuse to answer one of its rounds twice.
    """

    parameters: npt.NDArray[np.float64]
    done: int
    session: bytes

    def save(self, folder: Path) -> None:
        """Replaces the folder's checkpoint; a crash leaves the old one or the new one."""
        with replacing(folder / NAME, overwrite=True) as temporary, temporary.open("wb") as handle:
            session = np.frombuffer(self.session, dtype=np.uint8)
            np.savez(handle, parameters=self.parameters, done=np.int64(self.done), session=session)

    @classmethod
    def load(cls, folder: Path) -> Checkpoint:
        """The folder's checkpoint.

        Raises:
            FileFormatError: none there, or damaged.
        """
        try:
            with np.load(folder / NAME, allow_pickle=False) as file:
                return cls(parameters=file["parameters"], done=int(file["done"]), session=file["session"].tobytes())
        except (OSError, ValueError, KeyError) as error:
            raise FileFormatError(f"{folder.name}: no checkpoint to resume from ({error})") from None
