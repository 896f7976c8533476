"""Which records enter a batch, drawn from a keystream by exact integers, so that what is drawn is
what is claimed.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, final

import numpy as np

from mezzotint.core.arguments import check_count
from mezzotint.core.errors import ParameterError
from mezzotint.core.kinds import checked
from mezzotint.core.sampler import BLOCK, ElementWords, fresh_key, key_from
from mezzotint.core.types import IntArray, Seed
from mezzotint.training.models import torch
from mezzotint.training.sampling import Poisson
from mezzotint.training.splitting import empty_batch

_WORDS = 2**64


@final
@checked
@dataclass(frozen=True, kw_only=True)
class PoissonBatches:
    """Every record enters every batch with the same probability, independently of all others.

    Arguments:
        batch_size: expected number of records in a batch, at least 1.
        dataset_size: number of records, at least batch_size.
    Raises:
        ParameterError: naming the parameter, its value and the remedy.
    Guarantees: a record enters with probability `threshold` / 2^64 exactly, and `sampling.rate` is
        not below that.
    """

    batch_size: int
    dataset_size: int

    def __post_init__(self) -> None:
        if not 1 <= self.batch_size <= self.dataset_size:
            raise ParameterError(
                "batch_size",
                self.batch_size,
                f"need 1 to {self.dataset_size}, the number of training records",
            )

    @cached_property
    def threshold(self) -> int:
        """ceil(2^64 batch_size / dataset_size): a record whose word is below it enters."""
        return -(-self.batch_size * _WORDS // self.dataset_size)

    @property
    def sampling(self) -> Poisson:
        """The rule that claims are made for."""
        exact_rate = Fraction(self.threshold, _WORDS)
        sampling_rate = float(exact_rate)
        if sampling_rate < exact_rate:
            sampling_rate = math.nextafter(sampling_rate, 1.0)
        return Poisson(rate=sampling_rate)

    def draw(self, key: bytes, *, records: int | None = None) -> IntArray:
        """Indices of the records of one batch, increasing; among the first `records`, if given."""
        if records is None:
            records = self.dataset_size
        if self.threshold == _WORDS:
            return np.arange(records)
        stream = ElementWords(key)
        chosen: list[IntArray] = []
        for first in range(0, max(1, records), BLOCK):
            random_words = np.empty(min(BLOCK, records - first), dtype=np.uint64)
            stream.fill(random_words)
            chosen.append(first + np.flatnonzero(random_words < np.uint64(self.threshold)))
        return np.concatenate(chosen)


def first_records(users: Any, limit: int, *, records: int) -> IntArray:
    """Increasing indices of the records that are trained on: the first `limit` of every user.

    Arguments:
        users: (records,) whose record each is.
    Raises:
        ParameterError: as many names as records are needed.
    """
    check_count("records_per_user", limit)
    user_names = np.asarray(users)
    if user_names.shape != (records,):
        raise ParameterError(
            "users",
            str(user_names.shape),
            f"name the user of each of the {records} records, in order",
        )
    _, numbers = np.unique(user_names, return_inverse=True)
    user_order = np.argsort(numbers, kind="stable")
    counts = np.bincount(numbers)
    earlier_records = np.repeat(np.cumsum(counts) - counts, counts)
    rank_in_user = np.arange(records) - earlier_records
    return np.sort(user_order[rank_in_user < limit])


@final
class Parts:
    """Every record belongs to one part, at random and for good; batch t takes its records from part
    t mod `count`.

    Arguments:
        count: number of parts.
        records: of the data.
        key: of the words that choose.
    """

    def __init__(self, count: int, *, records: int, key: bytes) -> None:
        random_words = np.empty(records, dtype=np.uint64)
        ElementWords(key).fill(random_words)
        self._count = count
        self._part_of_record = (random_words % np.uint64(count)).astype(np.int64)

    def __call__(self, chosen: IntArray, turn: int) -> IntArray:
        """The records that belong to the part whose turn it is."""
        return chosen[self._part_of_record[chosen] == turn % self._count]


@final
class Draws:
    """What to hand to `core.sampler.key_from` for each draw of a run, by its purpose.

    Arguments:
        seed: None for private draws; an integer for a simulation that can be repeated, which is NOT
            private.
        replicas: whether the processes of PyTorch's default group take part in the run: they then
            draw the same noise and the same codes, each its own batches.
    Guarantees: without a seed no key is ever given out twice, to whatever fork or replica.
    """

    def __init__(self, seed: int | None = None, *, replicas: bool = False) -> None:
        self.seed = seed
        self.replicas = replicas
        self.counts: Counter[str] = Counter()
        """Draws of a simulation so far, by purpose: a run that goes on needs no other state."""

    def __call__(self, purpose: str) -> int | None:
        """For "noise" and "table" the same on all replicas; for "batch" each replica's own."""
        is_own = purpose == "batch"
        if self.seed is not None:
            if is_own and self.replicas:
                purpose = f"batch {torch.distributed.get_rank()}"
            self.counts[purpose] += 1
            seed_text = f"mezzotint {self.seed} {self.counts[purpose]} {purpose}"
            return int.from_bytes(hashlib.sha256(seed_text.encode()).digest(), "little")
        if is_own or not self.replicas:
            return None
        # Rank 0 draws for all; 256 bits, as good as a key of the operating system's.
        shared = torch.frombuffer(bytearray(fresh_key()), dtype=torch.uint8).clone()
        if torch.distributed.get_backend() == "nccl":
            shared = shared.cuda()
        torch.distributed.broadcast(shared, src=0)
        return int.from_bytes(bytes(shared.cpu().tolist()), "little")


_DATA = torch.utils.data


@final
class Drawn:
    """The batches that a loader has given to the loop. Copies of an optimizer look at the same
    loader: they share it.

    `count` of them so far; `size`, the records of the last one; `used`, the last one that a step
    was taken for.
    """

    def __init__(self) -> None:
        self.count = self.size = self.used = 0

    def __call__(self) -> int:
        return self.count

    def add(self, size: int) -> None:
        """One more batch, of this many records."""
        self.count = self.count + 1
        self.size = size

    def __deepcopy__(self, _: object) -> Drawn:
        return self


@final
class PoissonBatchSampler(_DATA.Sampler[list[int]]):
    """Indices of Poisson batches.

    Arguments:
        batches: size and rate, of this replica's records.
        steps: batches of one pass.
        rng: called once per batch; None for private draws, else a seed or a numpy Generator.
        first, every: this replica's records are first, first + every, ...; each record belongs to
            one replica.
        parts: what the batches, counted through all passes, are drawn from in turn; None for all
            records.
        ahead: batches are drawn in advance, as worker processes do; the loader counts those it
            gives.
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
        self.batches = batches
        self.steps = steps
        self.rng = rng
        self.first = first
        self.every = every
        self.parts = parts
        self.ahead = ahead
        self.drawn = Drawn()
        self.waiting: deque[int] = deque()

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[list[int]]:
        self.waiting = deque()  # sizes of batches of this pass that were drawn and not yet given
        return self._draw(self.waiting)

    def _draw(self, waiting: deque[int]) -> Iterator[list[int]]:
        own_count = len(range(self.first, self.batches.dataset_size, self.every))
        for _ in range(self.steps):
            chosen = self.batches.draw(key_from(self.rng()), records=own_count)
            if self.parts is not None:
                chosen = self.parts(chosen, self.drawn())
            if self.ahead:
                waiting.append(len(chosen))
            else:
                self.drawn.add(len(chosen))
            yield (self.first + self.every * chosen).tolist()


def check_loader(loader: object) -> None:
    """Raises ParameterError for anything but a DataLoader of batches, in order or shuffled, of data
    with an index.
    """
    remedy = (
        "records are sampled by index; give a torch.utils.data.DataLoader over a map-style data set"
    )
    if not isinstance(loader, _DATA.DataLoader):
        raise ParameterError("loader", type(loader).__name__, remedy)
    if isinstance(loader.dataset, _DATA.IterableDataset):
        raise ParameterError("loader", "IterableDataset", remedy)
    samplers = (_DATA.RandomSampler, _DATA.SequentialSampler, _DATA.DistributedSampler)
    if loader.batch_size is None or type(loader.batch_sampler) is not _DATA.BatchSampler:
        raise ParameterError(
            "loader", type(loader.batch_sampler).__name__, "give the DataLoader a plain batch_size"
        )
    if not isinstance(loader.sampler, samplers):
        remedy = (
            "batches become Poisson samples, every record as likely as any; leave the sampler out"
        )
        raise ParameterError("loader", type(loader.sampler).__name__, remedy)


def template_of(loader: _DATA.DataLoader[Any]) -> Any:
    """What a batch without records looks like: sizes and types of what the loader collates.

    Raises:
        ParameterError: batches that hold anything but tensors, tuples, lists and mappings.
    """
    record = loader.dataset[0]
    single = loader.collate_fn([record])
    return empty_batch(single, loader.collate_fn([record, loader.dataset[0]]))


@final
class CollateOrEmpty:
    """Collates records, or gives a batch of none: Poisson batches may be empty.

    Arguments:
        collate: of the loader.
        empty: a batch of no records.
    """

    def __init__(self, collate: Callable[[list[Any]], Any], empty: Any) -> None:
        self._collate = collate
        self._empty = empty

    def __call__(self, records: list[Any]) -> Any:
        if not records:
            return copy.deepcopy(self._empty)
        return self._collate(records)


@final
class _AheadLoader(_DATA.DataLoader[Any]):
    """A loader with worker processes: a batch counts when the loop gets it, not when they begin to
    prepare it.
    """

    def __iter__(self) -> Iterator[Any]:
        sampler: Any = self.batch_sampler
        batches = super().__iter__()
        waiting = (
            sampler.waiting
        )  # of this pass: others may be left in their midst, or go on beside it
        for collated_batch in batches:
            sampler.drawn.add(waiting.popleft())
            yield collated_batch


def expected_batch_size(loader: _DATA.DataLoader[Any]) -> int:
    """Records of a batch, over all replicas."""
    assert loader.batch_size is not None
    if isinstance(loader.sampler, _DATA.DistributedSampler):
        # Each replica's loader has its own share of the records, and its batch is its share.
        return loader.batch_size * loader.sampler.num_replicas
    return loader.batch_size


def poisson_loader(
    loader: _DATA.DataLoader[Any],
    *,
    template: Any,
    sampler: PoissonBatchSampler,
    kept: IntArray | None = None,
) -> _DATA.DataLoader[Any]:
    """A loader of the same data whose batches are Poisson samples.

    Arguments:
        loader: as `check_loader` has found it.
        template: of `template_of`.
        sampler: of the batches.
        kept: indices of the records that are drawn from; None for all.
    """
    data: Any = loader.dataset
    if kept is not None:
        data = _DATA.Subset(loader.dataset, kept.tolist())
    loader_type: type[_DATA.DataLoader[Any]] = _DATA.DataLoader
    if sampler.ahead:
        loader_type = _AheadLoader
    private: Any = loader_type(
        data,
        batch_sampler=sampler,
        collate_fn=CollateOrEmpty(loader.collate_fn, template),
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
        prefetch_factor=loader.prefetch_factor,
        persistent_workers=loader.persistent_workers,
    )
    private.mezzotint_plain = loader
    return private
