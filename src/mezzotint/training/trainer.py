"""The loop: Poisson batches, per-sample gradients by Opacus, a private step, a ledger that is ahead of every step.

An interrupted run goes on from its checkpoint; what it may have released before is in the ledger beside it.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import pickle
import time
import warnings
from bisect import bisect_left
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.arguments import (
    Neighboring,
    check_choice,
    check_count,
    check_neighboring,
    check_positive,
)
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import AppendLog, replacing
from mezzotint.core.records import JsonObject, Progress, plain
from mezzotint.core.sampler import key_from
from mezzotint.datasets import Dataset
from mezzotint.privacy.claim import Claim
from mezzotint.training.batches import Drawn, Parts, PoissonBatches, first_records
from mezzotint.training.master import pack_levels, rule_of, without_rules
from mezzotint.training.methods import Method
from mezzotint.training.models import Task, torch
from mezzotint.training.optimizers import NotFiniteError
from mezzotint.training.packed import PackedModel, pack_codes, pack_weights


@final
@dataclass(frozen=True, kw_only=True)
class Standing:
    """Where a run stands. Loss and accuracy are computed without noise: for the operator's eyes, not for release.

    Arguments:
        step: steps taken.
        loss: mean loss of the last batch that was not empty; nan before the first.
        train_accuracy, test_accuracy: accuracies of the current (averaged) weights, as fractions.
        epsilon: spent so far at the run's delta; None where nothing is private.
        seconds: since the run (or its resumption) began.
        seeded: the run is a simulation; not private, whatever epsilon says.
    """

    step: int
    loss: float
    train_accuracy: float
    test_accuracy: float
    epsilon: float | None
    seconds: float
    seeded: bool = False


OPTIMIZERS: dict[str, Callable[[Iterable[torch.nn.Parameter], float], torch.optim.Optimizer]] = {
    "sgd": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate),
    "momentum": lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=0.9),
    "adam": lambda parameters, rate: torch.optim.Adam(parameters, lr=rate),
}
SCHEDULES: dict[str, Callable[[float], float]] = {
    "constant": lambda done: 1.0,
    "linear": lambda done: 1 - done,
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
}
"""Share of the step size after a share of the steps."""


@final
@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """What a run does, apart from its method.

    Arguments:
        steps: T >= 1.
        batch_size: expected records per batch, m; a record enters each batch with probability m / n.
        step_size: eta > 0.
        delta: of the claim, in [1e-11, 1).
        neighboring: "add_or_remove_one" or "replace_one"; None for the method's own relation.
        seed: None for noise and batches from the operating system's entropy; an integer for a run that can be
            repeated bit for bit, which is NOT private.
        averaging: share of the last steps whose weights are averaged (post-processing, free); 0 for the last alone.
        optimizer: one of `OPTIMIZERS`: "sgd", "momentum" (0.9) or "adam". But for "sgd" steps remember gradients, so
            that replacing codes buys nothing.
        records_per_user: maximum number of each user's records to train on; the claim is about all of them
            together; None for a claim about one record. Needs data that say whose each record is.
        schedule: of the step size, one of `SCHEDULES`: "constant", or falling to 0 at the end, "linear" or "cosine".
    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    """

    steps: int
    batch_size: int
    step_size: float
    delta: float = 1e-6
    neighboring: Neighboring | None = None
    seed: int | None = None
    averaging: float = 0.0
    optimizer: str = "sgd"
    schedule: str = "constant"
    records_per_user: int | None = None

    def __post_init__(self) -> None:
        check_count("steps", self.steps)
        check_count("batch_size", self.batch_size)
        check_positive("step_size", self.step_size)
        if self.records_per_user is not None:
            check_count("records_per_user", self.records_per_user)
        if not 0 <= self.averaging <= 1:
            raise ParameterError("averaging", self.averaging, "must lie in [0, 1]")
        check_choice("optimizer", self.optimizer, OPTIMIZERS)
        check_choice("schedule", self.schedule, SCHEDULES)
        if self.neighboring is not None:
            check_neighboring(self.neighboring)

    @property
    def first_averaged(self) -> int:
        """The first step (counted from 1) whose weights enter the average."""
        return min(self.steps, self.steps - math.ceil(self.averaging * self.steps) + 1)


def of_users(data: Dataset, most: int | None) -> Dataset:
    """The data with at most this many training records per user; all of them for None.

    Raises:
        ParameterError: data that do not say whose the records are.
    """
    if most is None:
        return data
    if data.train_users is None:
        raise ParameterError("records_per_user", most, "the data do not say whose the records are")
    kept = first_records(data.train_users, most, records=len(data.train_x))
    users = data.train_users[kept]
    return replace(data, train_x=data.train_x[kept], train_y=data.train_y[kept], train_users=users)


@final
class Trainer:
    """One run, step by step.

    Arguments:
        data: what to learn.
        task: model, loss and decision; its weights are trained in place.
        method: how gradients become private.
        settings: see `TrainingSettings`.
    Raises:
        ParameterError: a batch larger than the data.
    Guarantees:
        `spent` (what the claim is about) counts a step before its gradients are computed. It exceeds `taken` when a
        run was interrupted after its last checkpoint: the steps since then are paid for twice. `stopped` says why a run
        ended before its last step; empty when it did not.
        Sums are divided by the expected batch size, never by the realised one, which is private.
        With a seed, a run that was interrupted and resumed ends in the same weights; it cannot be resumed with bands.
        With bands, steps are spent in blocks of that length: a run resumed after an interruption begins a new block.
    """

    def __init__(
        self, *, data: Dataset, task: Task, method: Method, settings: TrainingSettings
    ) -> None:
        data = of_users(data, settings.records_per_user)
        self.data, self.task, self.method, self.settings = data, task, method, settings
        self.taken = self.spent = 0
        self.stopped = ""
        self._losses = torch.tensor([math.nan])
        self._features, self._labels = (
            torch.from_numpy(data.train_x),
            torch.from_numpy(data.train_y),
        )
        records, bands = len(data.train_x), method.bands
        self.batches = PoissonBatches.of_parts(
            bands, batch_size=settings.batch_size, dataset_size=records
        )
        self._drawn = Drawn()
        self._parts = (
            Parts(bands, records=records, key=key_from(self._rng("parts"))) if bands > 1 else None
        )
        # A sum over records for each batch; the optimizer divides it by the expected batch size.
        self.module = method.wrap(task.module)
        self.inner = OPTIMIZERS[settings.optimizer](self.module.parameters(), settings.step_size)
        self.optimizer = method.optimizer(
            self.inner, batch_size=settings.batch_size, rng=self._rng, drawn=self._drawn
        )
        self.averaged: dict[str, torch.Tensor] = {}

    # Randomness ------------------------------------------------------------------------------------------------

    def _rng(self, purpose: str) -> int | None:
        """None for private draws; else a seed for the step: a resumed run draws what an uninterrupted one does."""
        if self.settings.seed is None:
            return None
        text = f"mezzotint {self.settings.seed} {self.taken} {purpose}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    def _batch(self) -> npt.NDArray[np.int64]:
        chosen = self.batches.draw(key_from(self._rng("batch")))
        if self._parts is not None:
            chosen = self._parts(chosen, self._drawn())
        self._drawn.add(len(chosen))
        return chosen

    @property
    def sampling_rate(self) -> float:
        """A record's probability of entering a batch (of its own part, if there are several), rounded up."""
        return self.batches.sampling.rate

    # Steps -----------------------------------------------------------------------------------------------------

    @property
    def coordinates(self) -> int:
        """Number of weights."""
        return sum(parameter.numel() for parameter in self.optimizer.params)

    @property
    def loss(self) -> float:
        """Mean loss of the last batch that was not empty; nan before the first."""
        return float(self._losses.mean())

    def _gradients(self, batch: npt.NDArray[np.int64]) -> None:
        if batch.size == 0:
            attributed: list[Any] = (
                self.optimizer.params
            )  # Opacus hangs per-sample gradients onto the parameters
            for parameter in attributed:
                parameter.grad_sample = parameter.new_zeros((0, *parameter.shape))
            return
        losses = self.task.losses(self.module(self._features[batch]), self._labels[batch])
        with warnings.catch_warnings():
            # Opacus listens with full backward hooks on modules whose inputs need no gradient; torch remarks on that.
            warnings.filterwarnings("ignore", message="Full backward hook is firing")
            losses.sum().backward()
        self._losses = losses.detach()

    def step(self) -> None:
        """One step. Raises NotFiniteError, naming the step and what is spent; the weights are then unchanged."""
        if self.taken >= self.settings.steps:
            raise ParameterError(
                "steps", self.settings.steps, "all steps are taken; start another run"
            )
        share = SCHEDULES[self.settings.schedule](self.taken / self.settings.steps)
        for group in self.inner.param_groups:
            group["lr"] = self.settings.step_size * share
        self.taken += 1
        self.spent += 1
        try:
            self.optimizer.zero_grad()
            self._gradients(self._batch())
            self.optimizer.step()
        except NotFiniteError as error:
            raise NotFiniteError(
                f"step {self.taken} of {self.settings.steps}: {error}; the step was not taken. Its cost counts: "
                f"{self.spent} steps are spent. Lower step_size, or look for overflowing features"
            ) from error
        if self.settings.averaging > 0 and self.taken >= self.settings.first_averaged:
            self._average()

    @torch.no_grad()
    def _average(self) -> None:
        share = 1 / (self.taken - self.settings.first_averaged + 1)
        for name, parameter in self.task.module.named_parameters():
            if name in self.averaged:
                self.averaged[name].lerp_(parameter, share)
            else:
                self.averaged[name] = parameter.detach().clone()

    def run(
        self,
        *,
        every: int = 0,
        progress: Progress | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        target_epsilon: float | None = None,
    ) -> Standing:
        """Takes the steps that are left, in blocks.

        Arguments:
            every: steps per block, rounded up to a multiple of the bands; 0 for one block.
            progress: called as progress(done, total), with steps, after every block; `last` then says where it stands.
            checkpoint: file to save to after every block (overwritten); beside it, a ledger is written before.
            target_epsilon: the run ends, with `stopped` saying so, before its claim exceeds this; None sets no limit.
        Returns: `last`.
        Raises:
            NotFiniteError: a gradient that is not finite; ledger and last checkpoint stand.
        """
        begin = time.perf_counter()
        self.method.warn(
            step_size=self.settings.step_size,
            batch_size=self.settings.batch_size,
            steps=self.settings.steps,
        )
        self.last = self.standing()
        ledger = StepLedger(self, checkpoint)
        begun, whole = False, multiple(every or self.settings.steps, self.method.bands)
        while self.taken < self.settings.steps:
            wanted = min(whole, self.settings.steps - self.taken)
            block = ledger.reserve(wanted, target_epsilon=target_epsilon)
            if block == 0:
                self.stopped = (
                    f"{self.spent} steps are spent, {self.taken} of {self.settings.steps} of them in this model; "
                    f"one more would exceed epsilon {target_epsilon}"
                )
                break
            if checkpoint is not None and not begun:
                # So that a run that dies in its first block can be resumed as well; one without a step writes nothing.
                save(self, checkpoint)
            begun = True
            for _ in range(block):
                self.step()
            if checkpoint is not None:
                save(self, checkpoint)
            self.last = self.standing(time.perf_counter() - begin)
            if progress is not None:
                progress(self.taken, self.settings.steps)
        return self.last

    # Results ---------------------------------------------------------------------------------------------------

    def claim(self, steps: int | None = None) -> Claim | None:
        """What the steps spent so far (or `steps` of them) cost one record; None where there is no limit.

        Of a seeded run it is what the run would cost without its seed, and says so.
        """
        found = self.method.claim(
            steps=self.spent if steps is None else steps,
            sampling_rate=self.sampling_rate,
            coordinates=self.coordinates,
            delta=self.settings.delta,
            neighboring=self.settings.neighboring or self.method.relation,
            contraction=getattr(self.optimizer, "contraction", 1.0),
            records_per_user=self.settings.records_per_user or 1,
        )
        return None if found is None else replace(found, seeded=self.seeded)

    @property
    def seeded(self) -> bool:
        """Whether noise, batches and tables follow from a seed: nothing is private then."""
        return self.settings.seed is not None

    def sentence(self, steps: int | None = None) -> str:
        """The claim in words, with the seed if there is one."""
        claim = self.claim(steps)
        return "No privacy is claimed." if claim is None else str(claim)

    def standing(self, seconds: float = 0.0) -> Standing:
        """Where the run stands."""
        claim, weights = self.claim(), self.weights()
        return Standing(
            step=self.taken, loss=self.loss,
            train_accuracy=self.accuracy(self.data.train_x, self.data.train_y, weights),
            test_accuracy=self.accuracy(self.data.test_x, self.data.test_y, weights),
            epsilon=None if claim is None else claim.epsilon, seconds=seconds, seeded=self.seeded,
        )  # fmt: skip

    def weights(self) -> dict[str, npt.NDArray[np.float32]]:
        """The weights to be used, by name: averaged if the settings say so and an averaged step was taken."""
        return {
            name: self.averaged.get(name, parameter.detach()).cpu().numpy().copy()
            for name, parameter in self.task.module.named_parameters()
        }

    @torch.no_grad()
    def accuracy(
        self,
        x: npt.NDArray[np.float32],
        y: npt.NDArray[np.int64],
        weights: dict[str, npt.NDArray[np.float32]],
    ) -> float:
        """Share of records that a model with these weights decides rightly."""
        return self._accuracy(self.task.module, x, y, weights)

    def _accuracy(
        self,
        module: torch.nn.Module,
        x: npt.NDArray[np.float32],
        y: npt.NDArray[np.int64],
        weights: dict[str, npt.NDArray[np.float32]],
    ) -> float:
        tensors = {name: torch.from_numpy(value) for name, value in weights.items()}
        right, training = 0, module.training
        module.eval()
        for start in range(0, len(x), 4096):
            part = torch.from_numpy(x[start : start + 4096])
            outputs = torch.func.functional_call(module, tensors, (part,))
            right += int((self.task.decide(outputs).numpy() == y[start : start + 4096]).sum())
        module.train(training)
        return right / len(x)

    @torch.no_grad()
    def packed_accuracy(self, packed: PackedModel) -> float:
        """Share of the test records that a packed model decides rightly."""
        module = without_rules(self.task.module) if self._master else self.task.module
        return self._accuracy(module, self.data.test_x, self.data.test_y, packed.values())

    @property
    def _master(self) -> bool:
        return any(rule_of(layer) is not None for layer in self.task.module.modules())

    def packed(
        self,
        *,
        bits: int,
        scales: Literal["channel", "tensor"] = "channel",
        note: JsonObject | None = None,
    ) -> PackedModel:
        """The weights in few bits: their codes if they stand on levels, else rounded as by `packed.pack_weights`."""
        if self._master:
            module = copy.deepcopy(self.task.module)
            module.load_state_dict(
                {name: torch.from_numpy(value) for name, value in self.weights().items()},
                strict=False,
            )
            return pack_levels(module, note=note)
        projected = self.method.codes(self.optimizer)
        if projected is None or self.averaged or projected.projection.bits != bits:
            return pack_weights(self.weights(), bits=bits, scales=scales, note=note)
        return pack_codes(
            [name for name, _ in self.task.module.named_parameters()],
            projected.codes,
            bounds=projected.bounds,
            levels=projected.projection.table.levels.tolist(),
            note=note or {},
        )


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
    """Steps that are reserved on disk before they are taken, by whichever process and however often.

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
                append(
                    {"reserved": trainer.spent + granted, **self._words(trainer.spent + granted)}
                )
        return granted

    def _words(self, steps: int) -> JsonObject:
        if self._log.path is None:
            return {}  # nobody reads it, and claims take time
        claim = self._trainer.claim(steps)
        facts = None if claim is None else claim.as_dict()
        return cast(JsonObject, plain({"claim": facts, "sentence": self._trainer.sentence(steps)}))

    def affordable(self, steps: int, *, target_epsilon: float | None) -> int:
        """What `reserve` would return; nothing is reserved, but the trainer learns what was spent."""
        if self._trainer.settings.seed is None:
            # A record pays once for each block that is begun, and every attempt begins with a new one.
            self._trainer.spent = multiple(
                max(self._trainer.spent, self.reserved), self._trainer.method.bands
            )
        if target_epsilon is None:
            return steps

        def fits(count: int) -> bool:
            claim = self._trainer.claim(self._trainer.spent + count)
            return claim is None or claim.epsilon <= target_epsilon

        # No step at all is always affordable.
        return (
            steps
            if fits(steps)
            else bisect_left(range(1, steps), True, key=lambda count: not fits(count))
        )


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


@contextmanager
def _reading(checkpoint: str | os.PathLike[str]) -> Generator[None]:
    """Turns what PyTorch raises for damaged files into FileFormatError."""
    try:
        yield
    except (
        RuntimeError, LookupError, TypeError, AttributeError, ValueError, EOFError, pickle.UnpicklingError
    ) as error:  # fmt: skip
        reason = " ".join(str(error).split())
        raise FileFormatError(
            f"{Path(checkpoint).name}: no readable checkpoint ({reason})"
        ) from error


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
        raise ParameterError(
            "checkpoint", str(checkpoint), "no such file; omit --resume to start a new run"
        )
    with _reading(checkpoint):
        state = torch.load(checkpoint, weights_only=True)
        schema, identity, taken, spent = (
            state[name] for name in ("schema", "identity", "taken", "spent")
        )
        if not (
            all(isinstance(number, int) for number in (schema, taken, spent))
            and 0 <= taken <= spent
        ):
            raise ValueError(f"schema {schema}, {taken} steps taken, {spent} spent")
    if schema != SCHEMA:
        raise FileFormatError(
            f"{Path(checkpoint).name}: schema {schema}, this version reads {SCHEMA}"
        )
    if identity != json.dumps(_identity(trainer), sort_keys=True):
        raise ParameterError(
            "checkpoint", str(checkpoint), "belongs to a run with other settings, method or data"
        )
    path = ledger_path(checkpoint)
    if not path.is_file() or not path.stat().st_size:
        raise FileFormatError(f"{path.name}: no readable ledger; what was spent is not known")
    ledger = StepLedger(trainer, checkpoint)
    with _reading(checkpoint):
        trainer.task.module.load_state_dict(state["weights"])
        trainer.averaged = state["averaged"]
        trainer.inner.load_state_dict(state["optimizer"])
    trainer.taken, trainer.spent = taken, spent
    if trainer.settings.seed is None:
        trainer.spent = max(trainer.spent, ledger.reserved)
