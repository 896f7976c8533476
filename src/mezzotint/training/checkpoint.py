"""Interrupted runs: weights in a checkpoint, and a ledger that is written before what it speaks of happens."""

from __future__ import annotations

import json
import os
import pickle
from bisect import bisect_left
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast, final

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import AppendLog, replacing
from mezzotint.core.records import JsonObject, plain
from mezzotint.training.extra import torch

if TYPE_CHECKING:
    from mezzotint.training.trainer import Trainer

SCHEMA = 2
FORMAT = "mezzotint-training-ledger"


def ledger_path(checkpoint: str | os.PathLike[str]) -> Path:
    """Where the ledger of a checkpoint stands: beside it, with .ledger.jsonl appended."""
    path = Path(checkpoint)
    return path.with_name(path.name + ".ledger.jsonl")


def _identity(trainer: Trainer) -> JsonObject:
    """What must not change between interruption and resumption."""
    facts = {
        "settings": asdict(trainer.settings),
        "method": trainer.method.describe(),
        "records": len(trainer.data.train_x),
        "coordinates": trainer.coordinates,
    }
    return cast(JsonObject, plain(facts))


def multiple(number: int, of: int) -> int:
    """The least multiple that is no less than the number."""
    return -(-number // of) * of


@final
class StepLedger:
    """Steps that were reserved before they were taken: on disk, whoever takes them and however often.

    A run that was killed, or is started anew over its checkpoint, draws fresh noise: what was reserved stays spent,
    also that of another process on the same files, and so does the rest of a block of correlated noise. With a seed
    the same noise is drawn again: nothing is spent twice.

    Arguments:
        trainer: the run.
        checkpoint: its checkpoint file; None keeps the ledger in memory.

    Raises:
        FileFormatError: the ledger there is of a run with other settings, method or data, or damaged. A ledger is
            never overwritten.
    """

    def __init__(self, trainer: Trainer, checkpoint: str | os.PathLike[str] | None) -> None:
        self.reserved = 0
        self._trainer = trainer
        path = None if checkpoint is None else ledger_path(checkpoint)
        header = {"format": FORMAT, "version": 1, **_identity(trainer)}
        self._log = AppendLog(path, header=header, take=self._take, what="ledger")

    def _take(self, line: JsonObject) -> None:
        self.reserved = max(self.reserved, int(line["reserved"]))

    def reserve(self, steps: int, *, target_epsilon: float | None = None) -> int:
        """Counts steps as spent before they are taken, and tells the trainer what was spent before them.

        Arguments:
            steps: wanted.
            target_epsilon: what the claim must not exceed; None sets no limit.

        Returns: how many may be taken: fewer than wanted, or none, where more would exceed the target.
        """
        trainer = self._trainer
        with self._log.transaction() as append:
            granted = self.affordable(steps, target_epsilon=target_epsilon)
            if granted:
                append({"reserved": trainer.spent + granted, **self._words(trainer.spent + granted)})
        return granted

    def _words(self, steps: int) -> JsonObject:
        if self._log.path is None:
            return {}  # nobody reads it, and claims take time
        claim = self._trainer.claim(steps)
        facts = None if claim is None else claim.as_dict()
        return cast(JsonObject, plain({"claim": facts, "sentence": self._trainer.sentence(steps)}))

    def affordable(self, steps: int, *, target_epsilon: float | None) -> int:
        """What `reserve` would return; nothing is reserved, but the trainer is told what was spent."""
        if self._trainer.settings.seed is None:
            # A record pays once for each block that is begun, and every attempt begins with a new one.
            self._trainer.spent = multiple(max(self._trainer.spent, self.reserved), self._trainer.method.bands)
        if target_epsilon is None:
            return steps

        def fits(count: int) -> bool:
            claim = self._trainer.claim(self._trainer.spent + count)
            return claim is None or claim.epsilon <= target_epsilon

        # No step at all is always affordable.
        return steps if fits(steps) else bisect_left(range(1, steps), True, key=lambda count: not fits(count))


def save(trainer: Trainer, checkpoint: str | os.PathLike[str]) -> None:
    """Writes weights and position, atomically. No generator's state: it would reveal the noise drawn so far."""
    state = {
        "schema": SCHEMA,
        "identity": json.dumps(_identity(trainer), sort_keys=True),
        "taken": trainer.taken,
        "spent": trainer.spent,
        "weights": trainer.task.module.state_dict(),
        "averaged": trainer.averaged,
        "optimizer": trainer.inner.state_dict(),
    }
    with replacing(checkpoint, overwrite=True, parameter="checkpoint") as temporary:
        torch.save(state, temporary)


def restore(trainer: Trainer, checkpoint: str | os.PathLike[str]) -> None:
    """Puts a fresh trainer of the same settings where the checkpoint left off.

    Arguments:
        trainer: made with the data, task, method and settings of the interrupted run; no step taken.
        checkpoint: what `save` wrote; its ledger beside it.

    Raises:
        ParameterError: no such file; the trainer has taken steps, or its settings, method or data differ; correlated
            noise under a seed, as the sums that it goes on with are never written down.
        FileFormatError: a damaged checkpoint or ledger.

    Guarantees:
        Without a seed, every step that the ledger reserved counts as spent, also those that were lost; with a seed
        the same noise is drawn again, and nothing is released twice.
    """
    if trainer.taken:
        raise ParameterError("trainer", trainer.taken, "has taken steps already; make a fresh one")
    if trainer.method.bands > 1 and trainer.settings.seed is not None:
        remedy = "correlated noise begins anew where a run was interrupted, so a seed does not repeat it; start over"
        raise ParameterError("seed", trainer.settings.seed, remedy)
    if not Path(checkpoint).is_file():
        raise ParameterError("checkpoint", str(checkpoint), "no such file; a run that starts anew does not resume")
    try:
        state = torch.load(checkpoint, weights_only=True)
        known = state["schema"] == SCHEMA
    except (RuntimeError, KeyError, TypeError, EOFError, pickle.UnpicklingError) as error:
        raise FileFormatError(f"{Path(checkpoint).name}: no readable checkpoint ({error})") from error
    if not known:
        raise FileFormatError(f"{Path(checkpoint).name}: schema {state['schema']}, this version reads {SCHEMA}")
    if state["identity"] != json.dumps(_identity(trainer), sort_keys=True):
        raise ParameterError("checkpoint", str(checkpoint), "belongs to a run with other settings, method or data")
    path = ledger_path(checkpoint)
    if not path.is_file() or not path.stat().st_size:
        raise FileFormatError(f"{path.name}: no readable ledger; what was spent is not known")
    ledger = StepLedger(trainer, checkpoint)
    trainer.task.module.load_state_dict(state["weights"])
    trainer.averaged = state["averaged"]
    trainer.inner.load_state_dict(state["optimizer"])
    trainer.taken, trainer.spent = state["taken"], state["spent"]
    if trainer.settings.seed is None:
        trainer.spent = max(trainer.spent, ledger.reserved)
