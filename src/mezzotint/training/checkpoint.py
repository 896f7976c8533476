"""Interrupted runs: weights in a checkpoint, and a ledger that is written before what it speaks of happens."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import replacing
from mezzotint.training.extra import torch

if TYPE_CHECKING:
    from mezzotint.training.trainer import Trainer

SCHEMA = 1


def ledger_path(checkpoint: str | os.PathLike[str]) -> Path:
    """Where the ledger of a checkpoint stands: beside it, with .ledger.json appended."""
    path = Path(checkpoint)
    return path.with_name(path.name + ".ledger.json")


def _identity(trainer: Trainer) -> dict[str, Any]:
    """What must not change between interruption and resumption."""
    return {
        "settings": asdict(trainer.settings),
        "method": trainer.method.describe(),
        "records": len(trainer.data.train_x),
        "coordinates": trainer.coordinates,
    }


def write_ledger(trainer: Trainer, checkpoint: str | os.PathLike[str], *, reserved: int) -> None:
    """Writes, before the steps are taken, how many will have been: a crash can then only overstate.

    Arguments:
        trainer: the run.
        checkpoint: the run's checkpoint file.
        reserved: steps that are spent once the coming block is through.
    """
    claim = trainer.claim(reserved)
    facts = {
        "schema": SCHEMA,
        "reserved": reserved,
        "claim": None if claim is None else claim.as_dict(),
        "sentence": trainer.sentence(reserved),
        **_identity(trainer),
    }
    with replacing(ledger_path(checkpoint), overwrite=True, parameter="checkpoint") as temporary:
        temporary.write_text(json.dumps(facts, indent=1, default=str), encoding="utf-8")


def read_ledger(checkpoint: str | os.PathLike[str]) -> dict[str, Any]:
    """The ledger beside a checkpoint; FileFormatError when it is missing or damaged."""
    path = ledger_path(checkpoint)
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        if facts["schema"] != SCHEMA or not isinstance(facts["reserved"], int):
            raise ValueError("unknown schema")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileFormatError(f"{path.name}: no readable ledger ({error}); what was spent is not known") from error
    return facts


def save(trainer: Trainer, checkpoint: str | os.PathLike[str]) -> None:
    """Writes weights and position, atomically. No generator's state: it would reveal the noise drawn so far."""
    state = {
        "schema": SCHEMA,
        "identity": json.dumps(_identity(trainer), sort_keys=True, default=str),
        "taken": trainer.taken,
        "spent": trainer.spent,
        "weights": trainer.task.module.state_dict(),
        "averaged": trainer.averaged,
    }
    with replacing(checkpoint, overwrite=True, parameter="checkpoint") as temporary:
        torch.save(state, temporary)


def restore(trainer: Trainer, checkpoint: str | os.PathLike[str]) -> None:
    """Puts a fresh trainer of the same settings where the checkpoint left off.

    Arguments:
        trainer: made with the data, task, method and settings of the interrupted run; no step taken.
        checkpoint: what `save` wrote; its ledger beside it.

    Raises:
        ParameterError: no such file; the trainer has taken steps, or its settings, method or data differ.
        FileFormatError: a damaged checkpoint or ledger.

    Guarantees:
        Without a seed, every step that the ledger reserved counts as spent, also those that were lost; with a seed
        the same noise is drawn again, and nothing is released twice.
    """
    if trainer.taken:
        raise ParameterError("trainer", trainer.taken, "has taken steps already; make a fresh one")
    if not Path(checkpoint).is_file():
        raise ParameterError("checkpoint", str(checkpoint), "no such file; a run that starts anew does not resume")
    try:
        state = torch.load(checkpoint, weights_only=True)
        known = state["schema"] == SCHEMA
    except (RuntimeError, KeyError, TypeError, EOFError, pickle.UnpicklingError) as error:
        raise FileFormatError(f"{Path(checkpoint).name}: no readable checkpoint ({error})") from error
    if not known:
        raise FileFormatError(f"{Path(checkpoint).name}: schema {state['schema']}, this version reads {SCHEMA}")
    ledger = read_ledger(checkpoint)
    if state["identity"] != json.dumps(_identity(trainer), sort_keys=True, default=str):
        raise ParameterError("checkpoint", str(checkpoint), "belongs to a run with other settings, method or data")
    trainer.task.module.load_state_dict(state["weights"])
    trainer.averaged = state["averaged"]
    trainer.taken, trainer.spent = state["taken"], state["spent"]
    if trainer.settings.seed is None:
        trainer.spent = max(trainer.spent, ledger["reserved"])
