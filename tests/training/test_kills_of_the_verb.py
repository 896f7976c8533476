"""`mezzotint train` killed before every change of a file, and within every write: steps that were begun are paid."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from killing import Runs

pytest.importorskip("torch")
pytest.importorskip("opacus")

from mezzotint.training.packed import PackedModel
from training.flat import run_words

pytestmark = pytest.mark.slow

STEPS, EVERY = 6, 2
# Half of a run's time is torch's compiler, which the first optimizer of a process loads.
LOADS = (
    "torch",
    "torch._dynamo",
    "opacus",
    "sklearn.datasets",
    "dp_accounting.pld.privacy_loss_distribution",
)


def _words(folder: Path, *more: str) -> list[str]:
    given = ["--data", "breast-cancer", "--delta", 1e-5, "--steps", STEPS, "--batch-size", 10]
    given += ["--every", EVERY, "--noise-multiplier", 8, *more]
    words = run_words(folder.parent, *given, "--json")
    return ["train", *words, "--out", str(folder)]


def _reserved(folder: Path) -> int:
    ledger = folder / "run.pt.ledger.jsonl"
    whole = (
        ledger.read_text().split("\n")[:-1] if ledger.exists() else []
    )  # a torn line promised nothing yet
    return max([json.loads(line).get("reserved", 0) for line in whole], default=0)


@pytest.mark.parametrize(
    ("torn", "more", "block"),
    [(False, (), EVERY), (True, (), EVERY), (False, ("--bands", "4"), 4)],
    ids=["before", "within", "bands"],
)
def test_steps_are_paid_before_they_are_begun_and_never_forgotten(
    tmp_path: Path, torn: bool, more: tuple[str, ...], block: int
) -> None:
    marks = tmp_path / "marks"
    step = "mezzotint.training.trainer:Trainer.step"
    with Runs.of("mezzotint.cli:run", counted=step, marks=marks, loads=LOADS) as runs:
        # Where nothing was compiled before, the first run writes the compiler's cache as well.
        assert runs(*_words(tmp_path / "first", *more)).status == 0
        changes = runs(*_words(tmp_path / "whole", *more)).changes
        assert marks.stat().st_size == 2 * STEPS
        assert changes > 25
        for at in range(1, changes + 1):
            folder = tmp_path / str(at)
            before = marks.stat().st_size
            assert runs(*_words(folder, *more), at=at, torn=torn).status is None
            begun = marks.stat().st_size - before
            assert begun <= _reserved(folder)
            model = folder / "model.mz"
            if model.exists():  # killed after all steps: a whole model
                assert PackedModel.load(model).tensors
            again = runs(
                *_words(folder, *more)
            )  # the same command finishes, wherever it was killed
            assert again.status == 0, again.output
            assert PackedModel.load(model).tensors
            begun = marks.stat().st_size - before
            told = json.loads(again.output[again.output.index("{") : again.output.rindex("}") + 1])
            assert begun <= told["steps"] == _reserved(folder) <= STEPS + block
