"""What a whole release costs: every report seen, in random order, or only their secure sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mezzotint.core.errors import ParameterError
from mezzotint.privacy.claim import Claim
from mezzotint.privacy.local import account_local
from mezzotint.privacy.shuffle import account_shuffled
from mezzotint.privacy.sums.account import account_sum

if TYPE_CHECKING:
    from mezzotint.core.mechanism import Mechanism


def account(
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
    geometry: str = "coordinate",
    l2_norm: float | None = None,
    delta: float = 1e-6,
) -> Claim:
    """The cost of coordinates x rounds reports of one client, each of them seen, or only their secure sums.

    Arguments:
        mechanism: the table that every report is drawn from.
        coordinates: reports of one client in one round; changing the client changes all of them.
        rounds: rounds; inputs of a round may depend on everything seen before.
        sampling_rate: probability in (0, 1] of taking part in a round, independent over rounds.
        sampling: "revealed": a client takes part at random and is seen to be absent otherwise; in the local view the
            only honest reading of sampled clients. "poisson": in the local view a client draws which of its records
            enter the vector it reports about, tells nobody, and reports in every round; the unit protected is then one
            record. In the sum view also "without_replacement"; see `account_sum`.
        neighboring: "replace_one", or in the local view with "poisson" also "add_or_remove_one".
        view: "local": every report is seen. "sum": only the secure sum over clients is (`account_sum`). "shuffled": all
            reports of a round are, in random order and without a word on who sent them (`account_shuffled`).
        clients, corrupted: not in the local view: reports in a sum or shuffle, and those not relied upon.
        geometry, l2_norm: sum view only, see `account_sum`.
        delta: in [0, 1).

    Returns: the claim of the best valid method, the others beside it.

    Raises:
        ParameterError: a rate outside (0, 1], counts below 1, delta outside [0, 1), unknown or unfitting words.

    Guarantees:
        epsilon is never below the exact worst case over all inputs, and adaptive choices of them.
        Within 1e-3 of it for up to 8 reports of small tables; of many rows, the dominating pair's (T7).
        Never above rounds * coordinates * mechanism.epsilon.

    Edge cases: delta=0: pure composition. A table with epsilon=inf has a claim when its delta allows one, else inf.
    Source: T2, T7 (docs/proofs/tables.md), docs/proofs/privacy-composition.md, docs/proofs/sums.md.
    """
    if view == "local":
        _refuse_crowd(clients, corrupted, geometry, l2_norm)
        return account_local(
            mechanism, coordinates=coordinates, rounds=rounds, sampling_rate=sampling_rate, sampling=sampling,
            neighboring=neighboring, delta=delta,
        )  # fmt: skip
    if view not in ("sum", "shuffled"):
        remedy = "use 'local' (every report is seen), 'sum' (only secure sums are) or 'shuffled' (in random order)"
        raise ParameterError("view", view, remedy)
    if clients is None:
        raise ParameterError("clients", "None", "say how many reports a sum or shuffle has, e.g. clients=1000")
    if neighboring != "replace_one":
        raise ParameterError("neighboring", neighboring, "sums and shuffles are accounted for 'replace_one'")
    if view == "shuffled":
        if sampling_rate != 1:
            raise ParameterError("sampling_rate", sampling_rate, "shuffles are accounted for clients in every round: 1")
        if geometry != "coordinate" or l2_norm is not None:
            raise ParameterError("geometry", geometry, "shuffles are accounted per coordinate; use view='sum' for 'l2'")
        return account_shuffled(
            mechanism, clients=clients, coordinates=coordinates, rounds=rounds, corrupted=corrupted, delta=delta
        )
    return account_sum(
        mechanism, clients=clients, coordinates=coordinates, rounds=rounds, sampling_rate=sampling_rate,
        sampling=sampling, corrupted=corrupted, geometry=geometry, l2_norm=l2_norm, delta=delta,
    )  # fmt: skip


def _refuse_crowd(clients: int | None, corrupted: int, geometry: str, l2_norm: float | None) -> None:
    """Arguments of the sum view mean nothing where every report is seen."""
    if clients is not None or corrupted != 0:
        name, value = ("clients", clients) if clients is not None else ("corrupted", corrupted)
        raise ParameterError(name, value, "nobody else's noise helps where every report is seen; use view='sum'")
    if geometry != "coordinate":
        raise ParameterError("geometry", geometry, "the local view accounts per coordinate; use view='sum' for 'l2'")
    if l2_norm is not None:
        raise ParameterError("l2_norm", l2_norm, "the local view accounts per coordinate; use view='sum'")
