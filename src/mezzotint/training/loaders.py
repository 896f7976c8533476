"""Data loaders whose batches are Poisson samples drawn from a keystream."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np
import numpy.typing as npt

from mezzotint.core.entropy import key_from
from mezzotint.core.errors import ParameterError
from mezzotint.core.mechanism import Seed
from mezzotint.training.batches import Parts, PoissonBatches
from mezzotint.training.extra import torch, wrap_collate_with_empty

_DATA = torch.utils.data


@final
class Drawn:
    """The batches that a loader has given to the loop. Copies of an optimizer look at the same loader: they share it.

    `count` of them so far; `size`, the records of the last one; `used`, the last one that a step was taken for.
    """

    def __init__(self) -> None:
        self.count = self.size = self.used = 0

    def __call__(self) -> int:
        return self.count

    def add(self, size: int) -> None:
        """One more batch, of so many records."""
        self.count, self.size = self.count + 1, size

    def __deepcopy__(self, _: object) -> Drawn:
        return self


@final
class PoissonBatchSampler(_DATA.Sampler[list[int]]):
    """Indices of Poisson batches.

    Arguments:
        batches: size and rate, of this replica's records.
        steps: batches of one pass.
        rng: called once per batch; None for private draws, else a seed or a numpy Generator.
        first, every: this replica's records are first, first + every, ...; each record belongs to one replica.
        parts: what the batches, counted through all passes, are drawn from in turn; None for all records.
        ahead: batches are drawn before they are asked for, as worker processes do; the loader counts those it gives.
    """

    def __init__(
        self,
        batches: PoissonBatches,
        *,
        steps: int,
        rng: Callable[[], Seed],
        first: int = 0,
        every: int = 1,
        parts: Parts | None = None,
        ahead: bool = False,
    ) -> None:
        self.batches, self.steps, self.rng, self.first, self.every = batches, steps, rng, first, every
        self.parts, self.ahead = parts, ahead
        self.drawn = Drawn()
        self.waiting: deque[int] = deque()

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[int]]:
        self.waiting = deque()  # sizes of batches of this pass that were drawn and not yet given
        return self._draw(self.waiting)

    def _draw(self, waiting: deque[int]) -> Iterator[list[int]]:
        mine = range(self.first, self.batches.dataset_size, self.every)
        for _ in range(self.steps):
            chosen = self.batches.draw(key_from(self.rng()), records=len(mine))
            if self.parts is not None:
                chosen = self.parts(chosen, self.drawn())
            if self.ahead:
                waiting.append(len(chosen))
            else:
                self.drawn.add(len(chosen))
            yield [mine[i] for i in chosen.tolist()]


def check_loader(loader: object) -> None:
    """Raises ParameterError for what is no DataLoader, and for data without length or index."""
    remedy = "records are sampled by index; give a torch.utils.data.DataLoader over a map-style data set"
    if not isinstance(loader, _DATA.DataLoader):
        raise ParameterError("loader", type(loader).__name__, remedy)
    if isinstance(loader.dataset, _DATA.IterableDataset):
        raise ParameterError("loader", "IterableDataset", remedy)


@final
class _AheadLoader(_DATA.DataLoader[Any]):
    """A loader with worker processes: a batch counts when the loop gets it, not when they begin to prepare it."""

    def __iter__(self) -> Iterator[Any]:
        sampler: Any = self.batch_sampler
        batches = super().__iter__()
        waiting = sampler.waiting  # of this pass: others may be left in their midst, or go on beside it
        for batch in batches:
            sampler.drawn.add(waiting.popleft())
            yield batch


def poisson_loader(
    loader: _DATA.DataLoader[Any],
    *,
    rng: Callable[[], Seed],
    first: int = 0,
    every: int = 1,
    bands: int = 1,
    kept: npt.NDArray[np.int64] | None = None,
) -> tuple[_DATA.DataLoader[Any], PoissonBatches]:
    """A loader of the same data whose batches are Poisson samples of the same expected size.

    Arguments:
        loader: with a batch size, over a data set of known length, shuffled or in order.
        rng, first, every, bands: as in `PoissonBatchSampler`. With bands every record gets a part at random, for good.

        kept: indices of the records that are drawn from; None for all.

    Returns: the loader, as many batches to a pass as the given one; and the rule by which records enter a batch.

    Raises:
        ParameterError: as `check_loader`; no batch size, a sampler of the user's own.
    """
    check_loader(loader)
    samplers = (_DATA.RandomSampler, _DATA.SequentialSampler, _DATA.DistributedSampler)
    if loader.batch_size is None or type(loader.batch_sampler) is not _DATA.BatchSampler:
        raise ParameterError("loader", type(loader.batch_sampler).__name__, "give the DataLoader a plain batch_size")
    if not isinstance(loader.sampler, samplers):
        remedy = "batches become Poisson samples, every record as likely as any; leave the sampler out"
        raise ParameterError("loader", type(loader.sampler).__name__, remedy)
    replicas = every if not isinstance(loader.sampler, _DATA.DistributedSampler) else loader.sampler.num_replicas
    # Where each replica's loader has its own share of the records, its batch size is its share of the batch.
    shared = isinstance(loader.sampler, _DATA.DistributedSampler)
    data: Any = loader.dataset if kept is None else _DATA.Subset(loader.dataset, kept.tolist())
    records = len(data)
    expected = loader.batch_size * (replicas if shared else 1)
    batches, parts = PoissonBatches.of_parts(bands, batch_size=expected, dataset_size=records), None
    if bands > 1:
        if loader.num_workers:
            raise ParameterError("loader", loader.num_workers, "with bands batches are drawn in step; num_workers=0")
        parts = Parts(bands, records=records, key=key_from(rng()))
    steps = max(1, len(loader))
    made = (_AheadLoader if loader.num_workers else _DATA.DataLoader)(
        data,
        batch_sampler=PoissonBatchSampler(
            batches,
            steps=steps,
            rng=rng,
            first=first,
            every=every,
            parts=parts,
            ahead=loader.num_workers > 0,
        ),
        collate_fn=_collate(loader),
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )
    return made, batches


def _collate(loader: _DATA.DataLoader[Any]) -> Any:
    """The loader's own, which also knows what an empty batch looks like, from the first record on."""
    wrapped = wrap_collate_with_empty(collate_fn=loader.collate_fn)
    wrapped([loader.dataset[0]])
    return wrapped
