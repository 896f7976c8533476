"""Where a run's draws come from: the operating system, one key common to all replicas, or a seed."""

from __future__ import annotations

import hashlib
from collections import Counter
from typing import final

from mezzotint.core.entropy import fresh_key
from mezzotint.training.extra import torch


@final
class Draws:
    """What to hand to `core.entropy.key_from` for each draw of a run, by its purpose.

    Arguments:
        seed: None for private draws; an integer for a simulation that can be repeated, which is NOT private.
        replicas: whether the processes of PyTorch's default group take part in the run: they then draw the same noise
            and the same codes, each its own batches.

    Guarantees: without a seed no key is ever given out twice, to whatever fork or replica.
    """

    def __init__(self, seed: int | None = None, *, replicas: bool = False) -> None:
        self.seed, self.replicas = seed, replicas
        self._drawn: Counter[str] = Counter()

    def __call__(self, purpose: str) -> int | None:
        """For "noise" and "table" the same on all replicas; for "batch" each replica's own."""
        own = purpose == "batch"
        if self.seed is not None:
            if own and self.replicas:
                purpose = f"batch {torch.distributed.get_rank()}"
            self._drawn[purpose] += 1
            text = f"mezzotint {self.seed} {self._drawn[purpose]} {purpose}"
            return int.from_bytes(hashlib.sha256(text.encode()).digest(), "little")
        if own or not self.replicas:
            return None
        # Rank 0 draws for all; 256 bits, as good as a key of the operating system's.
        shared = torch.frombuffer(bytearray(fresh_key()), dtype=torch.uint8).clone()
        if torch.distributed.get_backend() == "nccl":
            shared = shared.cuda()
        torch.distributed.broadcast(shared, src=0)
        return int.from_bytes(bytes(shared.cpu().tolist()), "little")
