"""The loop of `mezzotint train`, on `make_private`: a ledger ahead of every step, checkpoints,
accuracies.

An interrupted run goes on from its checkpoint; what it may have released before is in the ledger
beside it.
"""

from __future__ import annotations

import copy
import json
import math
import pickle
import time
from bisect import bisect_left
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, cast, final

import numpy as np

from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.files import AppendLog, parse_object, replacing
from mezzotint.core.records import JsonObject, Progress, plain
from mezzotint.core.types import AnyPath, Float32Array, IntArray
from mezzotint.datasets import Dataset
from mezzotint.privacy.claim import Claim
from mezzotint.training.batches import Draws, PoissonBatchSampler
from mezzotint.training.master import pack_levels, rule_of, without_rules
from mezzotint.training.models import Module, Task, Tensor, check_task, torch
from mezzotint.training.optimizers import NotFiniteError, ProjectedOptimizer
from mezzotint.training.packed import PackedModel, pack_codes, pack_weights
from mezzotint.training.private import Settings, made_private
from mezzotint.training.run_settings import (
    OPTIMIZERS,
    SCHEDULES,
    Levels,
    Standing,
    TrainingSettings,
    of_users,
)

Weights = dict[str, Float32Array]
"""Tensors of a module by name."""


@final
class Trainer:
    """One run, step by step.

    Arguments:
        data: what to learn.
        task: model, loss and decision; its weights are trained in place.
        settings: see `TrainingSettings`.
        private: how gradients become private; steps, users and the loss's reduction are the run's
            own.
        levels: what all weights are put onto after each step; None keeps floats.
    Raises:
        ParameterError: as of `make_private`; a task that does not fit the data.
    Guarantees:
        `spent` (what the claim is about) counts a step before its noise is drawn. It exceeds
        `taken` when a run was interrupted after its last checkpoint: the steps since then are paid
        for twice. `stopped` says why a run ended before its last step; empty when it did not. Sums
        are divided by the expected batch size, never by the realised one, which is private. With a
        seed, a run that was interrupted and resumed ends in the same weights; it cannot be resumed
        with correlated noise. With correlated noise, steps are spent in whole blocks: a run resumed
        after an interruption begins a new one.
    """

    def __init__(
        self,
        *,
        data: Dataset,
        task: Task,
        settings: TrainingSettings,
        private: Settings,
        levels: Levels | None = None,
    ) -> None:
        data = of_users(data, settings.records_per_user)
        check_task(task, shape=data.train_x.shape[1:], classes=data.classes)
        self.data = data
        self.task = task
        self.settings = settings
        self.levels = levels
        record_users = None
        if settings.records_per_user is not None:
            record_users = data.train_users
        self.private = replace(
            private,
            planned_steps=settings.steps,
            loss_reduction="sum",
            users=record_users,
            records_per_user=settings.records_per_user or 1,
        )
        self.taken = 0
        self.stopped = ""
        self.averaged: dict[str, Tensor] = {}
        self._losses = torch.tensor([math.nan])
        self.draws = Draws(private.seed)
        self.inner = OPTIMIZERS[settings.optimizer](task.module.parameters(), settings.step_size)
        self.module, self.optimizer, self.loader, self.accountant = made_private(
            task.module, self._projecting(), self._plain_loader(), self.private, draws=self.draws
        )
        self._batches = self._endless_batches()

    def _projecting(self) -> torch.optim.Optimizer:
        if self.levels is None:
            return self.inner
        return ProjectedOptimizer(
            self.inner,
            projection=self.levels.projection,
            bounds=self.levels.bounds,
            rng=partial(self.draws, "table"),
        )

    def _plain_loader(self) -> torch.utils.data.DataLoader[Any]:
        records = len(self.data.train_x)
        batch_size = self.settings.batch_size
        if batch_size > records:
            raise ParameterError(
                "batch_size", batch_size, f"need 1 to {records}, the number of training records"
            )
        # Records are their positions: whole batches are taken from the arrays at once.
        positions: Any = range(records)
        return torch.utils.data.DataLoader(
            positions, batch_size=batch_size, collate_fn=self._records
        )

    def _records(self, positions: list[int]) -> list[Tensor]:
        # numpy gathers rows in a third of the time that PyTorch takes.
        chosen = np.array(positions, dtype=np.intp)
        arrays = (self.data.train_x[chosen], self.data.train_y[chosen])
        return [torch.from_numpy(values) for values in arrays]

    def _endless_batches(self) -> Iterator[list[Tensor]]:
        # What the loader does, without its cost: a tenth of a step of a small model.
        while True:
            for positions in self._sampler:
                yield self._records(positions)

    @property
    def _sampler(self) -> PoissonBatchSampler:
        return cast(PoissonBatchSampler, self.loader.batch_sampler)

    @property
    def sampling_rate(self) -> float:
        """A record's probability of entering a batch (of its own part, if there are several),
        rounded up.
        """
        return self._sampler.batches.sampling.rate

    # Steps

    @property
    def coordinates(self) -> int:
        """Number of weights."""
        return sum(parameter.numel() for parameter in self.optimizer.params)

    @property
    def spent(self) -> int:
        """Steps that the claim is about."""
        if self.private.noiseless:
            return self.taken
        return len(self.accountant)

    @property
    def loss(self) -> float:
        """Mean loss of the last batch that was not empty; nan before the first."""
        return float(self._losses.mean())

    def _gradients(self, features: Tensor, labels: Tensor) -> None:
        if not len(features):
            # Opacus hangs per-record gradients onto the parameters.
            for parameter in self.optimizer.params:
                parameter.grad_sample = parameter.new_zeros((0, *parameter.shape))
            return
        losses = self.task.losses(self.module(features), labels)
        losses.sum().backward()
        self._losses = losses.detach()

    def step(self) -> None:
        """One step. Raises NotFiniteError, naming the step and what is spent; the weights are then
        unchanged.
        """
        if self.taken >= self.settings.steps:
            raise ParameterError(
                "steps", self.settings.steps, "all steps are taken; start another run"
            )
        step_share = SCHEDULES[self.settings.schedule](self.taken / self.settings.steps)
        for group in self.inner.param_groups:
            group["lr"] = self.settings.step_size * step_share
        self.taken += 1
        try:
            self.optimizer.zero_grad()
            self._gradients(*next(self._batches))
            self.optimizer.step()
        except NotFiniteError as error:
            raise NotFiniteError(
                f"step {self.taken} of {self.settings.steps}: {error}; the step was not taken. "
                f"Its cost counts: {self.spent} steps are spent. Lower step_size, or look for "
                "overflowing features"
            ) from error
        if self.settings.averaging > 0 and self.taken >= self.settings.first_averaged:
            self._average()

    @torch.no_grad()
    def _average(self) -> None:
        step_share = 1 / (self.taken - self.settings.first_averaged + 1)
        for name, parameter in self.task.module.named_parameters():
            if name in self.averaged:
                self.averaged[name].lerp_(parameter, step_share)
            else:
                self.averaged[name] = parameter.detach().clone()

    def run(
        self,
        *,
        every: int = 0,
        progress: Progress | None = None,
        checkpoint: AnyPath | None = None,
        target_epsilon: float | None = None,
    ) -> Standing:
        """Takes the steps that are left, in blocks.

        Arguments:
            every: steps per block, rounded up to whole blocks of correlated noise; 0 for one block.
            progress: called as progress(done, total), with steps, after every block; `last` then
                says where it stands.
            checkpoint: file to save to after every block (overwritten); beside it, a ledger is
                written before.
            target_epsilon: the run ends, with `stopped` saying so, before its claim exceeds this;
                None sets no limit.
        Returns: `last`.
        Raises:
            NotFiniteError: a weight that is not a number; ledger and last checkpoint stand.
        """
        begin_time = time.perf_counter()
        self.last = self.standing()
        ledger = StepLedger(self, checkpoint)
        is_saved = False
        block_size = self.accountant.noise.whole_blocks(every or self.settings.steps)
        while self.taken < self.settings.steps:
            wanted = min(block_size, self.settings.steps - self.taken)
            block_steps = ledger.reserve(wanted, target_epsilon=target_epsilon)
            if block_steps == 0:
                self.stopped = (
                    f"{self.spent} steps are spent, {self.taken} of {self.settings.steps} of them "
                    f"in this model; one more would exceed epsilon {target_epsilon}"
                )
                break
            if checkpoint is not None and not is_saved:
                # So that a run that dies in its first block can be resumed as well; one without a
                # step writes nothing.
                save(self, checkpoint)
                is_saved = True
            for _ in range(block_steps):
                self.step()
            if checkpoint is not None:
                save(self, checkpoint)
            self.last = self.standing(time.perf_counter() - begin_time)
            if progress is not None:
                progress(self.taken, self.settings.steps)
        return self.last

    # Results

    def claim(self, steps: int | None = None) -> Claim | None:
        """What the steps spent so far (or `steps` of them) cost one record; None where there is no
        limit.

        Of a seeded run it is what the run would cost without its seed, and says so.
        """
        if self.private.noiseless:
            return None
        if steps is None:
            steps = self.spent
        return self.accountant.claim_of(steps, self.optimizer)

    @property
    def seeded(self) -> bool:
        """Whether noise, batches and tables follow from a seed: nothing is private then."""
        return self.private.seed is not None

    def sentence(self, steps: int | None = None) -> str:
        """The claim in words, with the seed if there is one."""
        present_claim = self.claim(steps)
        if present_claim is None:
            return "No privacy is claimed."
        return str(present_claim)

    @property
    def privacy_facts(self) -> JsonObject:
        """Noise, clipping and levels as plain values."""
        fact_values: JsonObject = {
            "noise_multiplier": self.optimizer.noise_multiplier,
            "clip_norm": self.private.max_grad_norm,
            **self.accountant.noise.facts,
        }
        if self.levels is not None:
            fact_values |= self.levels.facts
        return fact_values

    def describe(self) -> JsonObject:
        """All settings as plain values, for logs and checkpoints."""
        return {
            **self.privacy_facts,
            **asdict(self.settings),
            "delta": self.private.delta,
            "neighboring": self.private.neighboring,
            "seed": self.private.seed,
        }

    def standing(self, seconds: float = 0.0) -> Standing:
        """Where the run stands."""
        weights = self.weights()
        present_claim = self.claim()
        epsilon = None
        if present_claim is not None:
            epsilon = present_claim.epsilon
        return Standing(
            step=self.taken,
            loss=self.loss,
            train_accuracy=self.accuracy(self.data.train_x, self.data.train_y, weights),
            test_accuracy=self.accuracy(self.data.test_x, self.data.test_y, weights),
            epsilon=epsilon,
            seconds=seconds,
            seeded=self.seeded,
        )

    def weights(self) -> Weights:
        """The weights to be used, by name: averaged if the settings say so and an averaged step was
        taken.
        """
        return {
            name: self.averaged.get(name, parameter.detach()).cpu().numpy().copy()
            for name, parameter in self.task.module.named_parameters()
        }

    def accuracy(self, features: Float32Array, labels: IntArray, weights: Weights) -> float:
        """Share of records that a model with these weights decides rightly."""
        return _accuracy(self.task, self.task.module, features, labels, weights)

    def packed_accuracy(self, packed: PackedModel) -> float:
        """Share of the test records that a packed model decides rightly."""
        module = self.task.module
        if self._has_rules:
            module = without_rules(module)
        return _accuracy(self.task, module, self.data.test_x, self.data.test_y, packed.values())

    @property
    def _has_rules(self) -> bool:
        return any(rule_of(layer) is not None for layer in self.task.module.modules())

    def packed(self, *, bits: int, note: JsonObject | None = None) -> PackedModel:
        """The weights in few bits: their codes if they stand on levels, else rounded as by
        `packed.pack_weights`.
        """
        if self._has_rules:
            module = copy.deepcopy(self.task.module)
            tensors = {
                name: torch.from_numpy(weight_values)
                for name, weight_values in self.weights().items()
            }
            module.load_state_dict(tensors, strict=False)
            return pack_levels(module, note=note)
        inner = self.optimizer.original_optimizer
        on_levels = isinstance(inner, ProjectedOptimizer) and inner.projection.bits == bits
        if not on_levels or self.averaged:
            return pack_weights(self.weights(), bits=bits, note=note)
        projected = cast(ProjectedOptimizer, inner)
        return pack_codes(
            [name for name, _ in self.task.module.named_parameters()],
            projected.codes,
            bounds=projected.bounds,
            levels=projected.projection.table.levels.tolist(),
            note=note or {},
        )


DECIDED_TOGETHER = 4096
"""Records that are decided at a time."""


@torch.no_grad()
def _accuracy(
    task: Task,
    module: Module,
    features: Float32Array,
    labels: IntArray,
    weights: Weights,
) -> float:
    """Share of (n, ...) records whose label, of 0 .. classes - 1 though not all need occur, is
    decided rightly, a batch at a time; the module is left in its mode, and its own weights as they
    are.
    """
    tensors = {name: torch.from_numpy(weight_values) for name, weight_values in weights.items()}
    is_training = module.training
    module.eval()
    correct = 0
    for start in range(0, len(features), DECIDED_TOGETHER):
        records = slice(start, start + DECIDED_TOGETHER)
        inputs = torch.from_numpy(features[records])
        outputs = torch.func.functional_call(module, tensors, (inputs,))
        correct += int((task.decide(outputs).numpy() == labels[records]).sum())
    module.train(is_training)
    return correct / len(features)


SCHEMA = 3
FORMAT = "mezzotint-training-ledger"


def ledger_path(checkpoint: AnyPath) -> Path:
    """Where the ledger of a checkpoint stands: beside it, with .ledger.jsonl appended."""
    checkpoint_path = Path(checkpoint)
    return checkpoint_path.with_name(checkpoint_path.name + ".ledger.jsonl")


def _identity(trainer: Trainer) -> JsonObject:
    """What must not change between interruption and resumption."""
    fact_values = {
        "settings": trainer.describe(),
        "records": len(trainer.data.train_x),
        "coordinates": trainer.coordinates,
    }
    return cast(JsonObject, plain(fact_values))


@final
class StepLedger:
    """Steps that are reserved on disk before they are taken, by whichever process and however
    often.

    A run that was killed, or is started anew over its checkpoint, draws fresh noise: what was
    reserved stays spent, also that of another process on the same files, and so does the rest of a
    block of correlated noise. With a seed the same noise is drawn again: nothing is spent twice.

    Arguments:
        trainer: the run.
        checkpoint: its checkpoint file; None keeps the ledger in memory.
    Raises:
        FileFormatError: the ledger there is of a run with other settings or data, or damaged. A
            ledger is never overwritten.
    """

    def __init__(self, trainer: Trainer, checkpoint: AnyPath | None) -> None:
        self.reserved = 0
        self._trainer = trainer
        checkpoint_path = None
        if checkpoint is not None:
            checkpoint_path = ledger_path(checkpoint)
        header = {"format": FORMAT, "version": 2, **_identity(trainer)}
        self._log = AppendLog(checkpoint_path, header=header, take=self._take, what="ledger")

    def _take(self, line: JsonObject) -> None:
        self.reserved = max(self.reserved, int(line["reserved"]))

    def reserve(self, steps: int, *, target_epsilon: float | None = None) -> int:
        """Counts steps as spent before they are taken, and tells the trainer what was spent before
        them.

        Arguments:
            steps: wanted.
            target_epsilon: what the claim must not exceed; None sets no limit.
        Returns: how many may be taken: fewer than wanted, or none, where more would exceed the
            target.
        """
        with self._log.transaction() as append:
            granted = self.affordable(steps, target_epsilon=target_epsilon)
            if granted:
                reserved = self._trainer.spent + granted
                append({"reserved": reserved, **self._claim_in_words(reserved)})
        return granted

    def _claim_in_words(self, steps: int) -> JsonObject:
        if self._log.path is None:
            return {}  # nobody reads it, and claims take time
        present_claim = self._trainer.claim(steps)
        fact_values = None
        if present_claim is not None:
            fact_values = present_claim.as_dict()
        return cast(
            JsonObject, plain({"claim": fact_values, "sentence": self._trainer.sentence(steps)})
        )

    def affordable(self, steps: int, *, target_epsilon: float | None) -> int:
        """What `reserve` would return; nothing is reserved, but the trainer learns what was
        spent.
        """
        trainer = self._trainer
        if not trainer.seeded and not trainer.private.noiseless:
            # A record pays once for each block that is begun, and every attempt begins with a new
            # one.
            spent_steps = trainer.accountant.noise.whole_blocks(max(trainer.spent, self.reserved))
            trainer.accountant.count_earlier(spent_steps, trainer.optimizer)
        if trainer.accountant.steps is not None:
            steps = max(0, min(steps, trainer.accountant.steps - trainer.spent))
        if target_epsilon is None or self._fits(steps, target_epsilon):
            return steps
        # No step at all is always affordable.
        return bisect_left(
            range(1, steps), True, key=lambda count: not self._fits(count, target_epsilon)
        )

    def _fits(self, steps: int, target_epsilon: float) -> bool:
        """Whether so many more steps keep to the target."""
        if steps == 0:
            return True
        present_claim = self._trainer.claim(self._trainer.spent + steps)
        return present_claim is None or present_claim.epsilon <= target_epsilon


def save(trainer: Trainer, checkpoint: AnyPath) -> None:
    """Writes weights and position, atomically. No generator's state: it would reveal the noise
    drawn so far.
    """
    saved_state = {
        "schema": SCHEMA,
        "identity": json.dumps(_identity(trainer), sort_keys=True),
        "taken": trainer.taken,
        "spent": trainer.spent,
        "draws": dict(trainer.draws.counts),  # of a simulation; empty of a private run
        "weights": trainer.task.module.state_dict(),
        "averaged": trainer.averaged,
        "optimizer": trainer.inner.state_dict(),
    }
    with replacing(checkpoint, overwrite=True, parameter="checkpoint") as temporary:
        torch.save(saved_state, temporary)


@contextmanager
def _reading(checkpoint: AnyPath) -> Generator[None]:
    """Turns what PyTorch raises for damaged files into FileFormatError."""
    try:
        yield
    except _READING_ERRORS as error:
        reason = " ".join(str(error).split())
        name = Path(checkpoint).name
        raise FileFormatError(f"{name}: no readable checkpoint ({reason})") from error


_READING_ERRORS = (
    RuntimeError,
    LookupError,
    TypeError,
    AttributeError,
    ValueError,
    EOFError,
    pickle.UnpicklingError,
)


def restore(trainer: Trainer, checkpoint: AnyPath) -> None:
    """Puts a fresh trainer of the same settings where the checkpoint left off.

    Arguments:
        trainer: made with the data, task and settings of the interrupted run; no step taken.
        checkpoint: what `save` wrote; its ledger beside it.
    Raises:
        ParameterError: no such file; the trainer has taken steps, or its settings or data differ;
            correlated noise under a seed, as the sums that it goes on with are never written down.
        FileFormatError: a damaged checkpoint or ledger.
    Guarantees:
        Without a seed, every step that the ledger reserved counts as spent, also those that were
        lost; with a seed the same noise is drawn again, and nothing is released twice.
    """
    if trainer.taken:
        raise ParameterError("trainer", trainer.taken, "has taken steps already; make a fresh one")
    if trainer.accountant.noise.is_correlated and trainer.seeded:
        remedy = (
            "correlated noise begins anew where a run was interrupted, so a seed does not repeat "
            "it; start over"
        )
        raise ParameterError("seed", trainer.private.seed, remedy)
    saved_state = _read_state(trainer, checkpoint)
    checkpoint_path = ledger_path(checkpoint)
    if not checkpoint_path.is_file() or not checkpoint_path.stat().st_size:
        raise FileFormatError(
            f"{checkpoint_path.name}: no readable ledger; what was spent is not known"
        )
    ledger = StepLedger(trainer, checkpoint)
    with _reading(checkpoint):
        trainer.task.module.load_state_dict(saved_state["weights"])
        trainer.averaged = saved_state["averaged"]
        trainer.inner.load_state_dict(saved_state["optimizer"])
        trainer.draws.counts.clear()
        trainer.draws.counts.update(saved_state["draws"])
    trainer.taken = saved_state["taken"]
    spent_steps = saved_state["spent"]
    if not trainer.seeded:
        spent_steps = max(spent_steps, ledger.reserved)
    if not trainer.private.noiseless:
        trainer.accountant.count_earlier(spent_steps, trainer.optimizer)


def _read_state(trainer: Trainer, checkpoint: AnyPath) -> dict[str, Any]:
    """What `save` wrote for a trainer of the same settings."""
    if not Path(checkpoint).is_file():
        raise ParameterError(
            "checkpoint", str(checkpoint), "no such file; a run that has written none starts anew"
        )
    with _reading(checkpoint):
        saved_state = torch.load(checkpoint, weights_only=True)
        schema = saved_state["schema"]
        taken = saved_state["taken"]
        spent_steps = saved_state["spent"]
        numbers = all(isinstance(number, int) for number in (schema, taken, spent_steps))
        if not numbers or not 0 <= taken <= spent_steps:
            raise ValueError(f"schema {schema}, {taken} steps taken, {spent_steps} spent")
    if schema != SCHEMA:
        raise FileFormatError(
            f"{Path(checkpoint).name}: schema {schema}, this version reads {SCHEMA}"
        )
    with _reading(checkpoint):
        recorded_identity = parse_object(saved_state["identity"], name=Path(checkpoint).name)
    changed = _changed(recorded_identity, _identity(trainer))
    if changed:
        remedy = (
            f"belongs to a run with other settings or data ({', '.join(changed)}); name another "
            "place, or run it as it began"
        )
        raise ParameterError("checkpoint", str(checkpoint), remedy)
    return saved_state


def _changed(earlier: Mapping[str, Any], present: Mapping[str, Any]) -> list[str]:
    """What differs between two identities, in words."""
    changed: list[str] = []
    for name in sorted(earlier.keys() | present.keys()):
        before = earlier.get(name)
        after = present.get(name)
        if isinstance(before, dict) and isinstance(after, dict):
            changed += _changed(before, after)
        elif before != after:
            changed.append(f"{name}: {before} there, {after} here")
    return changed
