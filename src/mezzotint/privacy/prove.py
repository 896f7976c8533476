"""A claim about a whole release with a proof that the kernel has accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mezzotint.core.errors import ParameterError
from mezzotint.privacy.account import account
from mezzotint.privacy.propose import Outcome, propose_local
from mezzotint.privacy.sums.propose import propose_sum

if TYPE_CHECKING:
    from mezzotint.core.mechanism import Mechanism


def prove(
    mechanism: Mechanism,
    *,
    coordinates: int = 1,
    rounds: int = 1,
    sampling_rate: float = 1.0,
    sampling: str = "revealed",
    neighboring: str = "replace_one",
    view: str = "local",
    clients: int | None = None,
    corrupted: int = 0,
    delta: float = 1e-6,
    seconds: int = 60,
) -> Outcome:
    """What `account` finds, raised by a little, with a proof that `mezzotint.kernel.check` has accepted.

    Arguments:
        mechanism, coordinates, rounds, sampling_rate, sampling, neighboring, view, clients, corrupted, delta: as in
            `account`, which is asked first.
        seconds: processor time for each check.

    Returns: `.claim` (certified), `.proof`, `.text` (the claim file); without a proof `.claim` is computed and
        `.reason` says why.

    Raises:
        ParameterError: as `account`; and for secret participation in sums, about which no kind of proof says anything.

    Guarantees: a claim with a proof has passed `mezzotint.kernel.check` in this process.
    Source: docs/proofs/kernel.md.
    """
    found = account(
        mechanism, coordinates=coordinates, rounds=rounds, sampling_rate=sampling_rate, sampling=sampling,
        neighboring=neighboring, view=view, clients=clients, corrupted=corrupted, delta=delta,
    )  # fmt: skip
    if view == "local":
        return propose_local(
            mechanism, epsilon=found.epsilon, delta=delta, coordinates=coordinates, rounds=rounds,
            sampling=found.sampling, rate=sampling_rate, neighboring=neighboring, seconds=seconds,
        )  # fmt: skip
    if found.sampling not in ("none", "revealed"):
        raise ParameterError("sampling", sampling, "sums with secret participation have no proof yet; use account")
    return propose_sum(
        mechanism, epsilon=found.epsilon, delta=delta, clients=int(clients or 1), corrupted=corrupted,
        coordinates=coordinates, rounds=rounds, sampling=found.sampling, rate=sampling_rate, seconds=seconds,
    )  # fmt: skip
