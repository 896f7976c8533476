"""What is released, to whom, and on whose randomness it relies: the one description that all accounting takes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast, final, runtime_checkable

from mezzotint.core.arguments import check_count, check_delta, check_neighboring, check_others, check_rate
from mezzotint.core.errors import ParameterError
from mezzotint.core.loss import UNIT, pure_epsilon
from mezzotint.core.mechanism import IntArray, Mechanism
from mezzotint.privacy.claim import Claim, Observer, Sampling, Trust, Unit
from mezzotint.privacy.sums.lattice import Lattice, lattice_rows

if TYPE_CHECKING:
    from mezzotint.privacy.propose import Outcome

_OBSERVERS: dict[Trust, Observer] = {
    "local": "reports", "secure_sum": "secure_sum", "central": "model", "shuffler": "shuffled",
}  # fmt: skip


@runtime_checkable
class Accountable(Protocol):
    """What knows its own cost: a vector scheme, a training run. Tables are accounted here."""

    def account(self, release: Release) -> Claim:
        """The claim of a release of itself."""
        ...


@runtime_checkable
class Provable(Protocol):
    """What proposes proofs of its own claims."""

    def propose(self, release: Release, claim: Claim, *, seconds: int) -> Outcome | str:
        """A proof of the claim, or the reason why there is none."""
        ...


Released = Mechanism | Mapping[str, Mechanism] | Accountable


@final
@dataclass(frozen=True, kw_only=True)
class Release:
    """Everything that one person's data goes into, as it is observed.

    Arguments:
        mechanism: the table that every report is drawn from; or {column: table}, one report about a record from each;
            or what knows its own cost (a scheme of `mezzotint.vectors`, the steps of a training run).
        delta: of the claim, in [0, 1); 0 asks for pure epsilon.
        trust: "local": every report is seen, nobody is trusted. "secure_sum": only sums over clients are seen, and the
            aggregation is trusted with that. "central": whoever adds the noise is trusted.
            "shuffler": all reports of a round are seen in random order, and the shuffler is trusted to hide who sent
            which.
        dimension: reports of one client in one round; changing the client changes all of them.
        rounds: rounds; inputs of a round may depend on everything seen before.
        sampling: "public": who takes part is drawn at random and seen, by a local observer and by the server of a
            secure sum alike: no amplification, but a client pays only for rounds it took part in. "poisson": each
            decides independently and in secret; with trust="local" these are a client's records, of which it tells
            nobody which ones enter the vector that it reports about in every round, and the unit protected is one
            record. "without_replacement" (secure sums): a secret fixed-size choice.
        sampling_rate: probability in (0, 1] of taking part in a round.
        neighboring: "replace_one", or with secret records also "add_or_remove_one".
        clients: of a sum or shuffle: reports in one; with "poisson" the clients of whom each takes part by chance.
        corrupted: clients among them that add no honest noise.
        clip_norm: of a secure sum of vectors clipped to this L2 norm, rotated independently of the data and clipped to
            the table's range per coordinate, data units. None: every coordinate may change by its full range.
        distinct: reports are memoised, and the client has at most so many different values over the rounds. None: every
            report is drawn afresh.

    Raises:
        ParameterError: a value outside its range, or arguments about which together nothing is proved.
    """

    mechanism: Released
    delta: float
    trust: Trust = "local"
    dimension: int = 1
    rounds: int = 1
    sampling: str = "public"
    sampling_rate: float = 1.0
    neighboring: str = "replace_one"
    clients: int | None = None
    corrupted: int = 0
    clip_norm: float | None = None
    distinct: int | None = None

    def __post_init__(self) -> None:
        for name, value in (
            ("dimension", check_count("dimension", self.dimension)), ("rounds", check_count("rounds", self.rounds)),
            ("sampling_rate", check_rate(self.sampling_rate)), ("delta", check_delta(self.delta)),
        ):  # fmt: skip
            object.__setattr__(self, name, value)
        if self.trust not in _OBSERVERS:
            remedy = "use 'local' (every report is seen), 'secure_sum' (only sums are), 'shuffler' or 'central'"
            raise ParameterError("trust", self.trust, remedy)
        check_neighboring(self.neighboring)
        if self.trust == "local":
            self._check_local()
        elif self.trust != "central":
            self._check_crowd()
        if self.distinct is not None:
            self._check_memoised(self.distinct)

    def _check_local(self) -> None:
        if self.clients is not None or self.corrupted != 0:
            name, value = ("clients", self.clients) if self.clients is not None else ("corrupted", self.corrupted)
            remedy = "nobody else's noise helps where every report is seen; use trust='secure_sum'"
            raise ParameterError(name, value, remedy)
        if self.clip_norm is not None:
            remedy = "reports that are seen are accounted per coordinate; use trust='secure_sum'"
            raise ParameterError("clip_norm", self.clip_norm, remedy)
        if self.sampling not in ("public", "poisson"):
            remedy = "with trust='local' use 'public' (absence is seen) or 'poisson' (records, in secret)"
            raise ParameterError("sampling", self.sampling, remedy)
        if self.neighboring == "add_or_remove_one" and self.sampling != "poisson":
            remedy = "who is seen to be absent is not hidden; use 'replace_one', or sampling='poisson' of records"
            raise ParameterError("neighboring", self.neighboring, remedy)

    def _check_crowd(self) -> None:
        if self.clients is None:
            raise ParameterError("clients", None, "say how many reports a sum or shuffle has, e.g. clients=1000")
        check_others(self.clients, self.corrupted)
        if self.neighboring != "replace_one":
            raise ParameterError("neighboring", self.neighboring, "use 'replace_one' with sums and shuffles")
        if self.trust == "shuffler" and self.sampling_rate != 1:
            remedy = "shuffles are accounted for clients in every round: 1"
            raise ParameterError("sampling_rate", self.sampling_rate, remedy)
        if self.trust == "shuffler" and self.clip_norm is not None:
            raise ParameterError("clip_norm", self.clip_norm, "shuffles are accounted per coordinate; leave it out")
        if self.sampling not in ("public", "poisson", "without_replacement"):
            remedy = 'use "public" (the server of a secure sum knows who took part), "without_replacement" or "poisson"'
            raise ParameterError("sampling", self.sampling, remedy)
        if self.clip_norm is not None and not 0 < self.clip_norm < math.inf:
            raise ParameterError("clip_norm", self.clip_norm, "the L2 norm that a client's vector is clipped to, > 0")

    def _check_memoised(self, distinct: int) -> None:
        if not 1 <= distinct <= self.rounds:
            raise ParameterError("distinct", distinct, f"between 1 and the number of rounds, {self.rounds}")
        if self.trust != "local" or self.dimension != 1 or self.sampling_rate != 1 or self.delta != 0:
            remedy = "memoised reports are accounted one value a round, each seen, at delta=0"
            raise ParameterError("distinct", distinct, remedy)

    @property
    def table(self) -> Mechanism:
        """The mechanism, where it is a table."""
        return cast("Mechanism", self.mechanism)

    @property
    def observer(self) -> Observer:
        """Who the claim is against."""
        return _OBSERVERS[self.trust]

    @property
    def participation(self) -> Sampling:
        """Who takes part: "none" is drawn where everybody does."""
        return "none" if self.sampling_rate == 1 else cast("Sampling", self.sampling)

    @property
    def unit(self) -> Unit:
        """Whose data is protected."""
        records = self.trust == "central" or (self.trust == "local" and self.sampling == "poisson")
        return "record" if records or isinstance(self.mechanism, Mapping) else "client"

    @property
    def releases(self) -> int:
        """Reports of one client in all."""
        return self.dimension * self.rounds

    @property
    def others(self) -> int:
        """Other clients whose noise counts."""
        return check_others(self.clients or 1, self.corrupted)

    @property
    def honest(self) -> int:
        """Clients of a sum, the one protected among them, whose own randomness counts."""
        return int(self.clients or 1) - self.corrupted

    @property
    def pure(self) -> float:
        """Pure epsilon of all reports together, rounded up."""
        single = pure_epsilon(self.table.weights)
        return single if self.releases == 1 else self.releases * single * (1 + 4 * UNIT)

    @cached_property
    def summed(self) -> tuple[IntArray, Lattice]:
        """The rows of integers that are added up, and what they stand for."""
        return lattice_rows(self.table)

    def claim(self, bounds: Mapping[str, float], **more: Any) -> Claim:
        """The least of several valid bounds, by name (the first name when none is finite), the others beside it.

        Arguments:
            bounds: method -> epsilon.
            more: fields of the claim that this description does not settle.
        """
        finite = [(name, value) for name, value in bounds.items() if math.isfinite(value)]
        valid = sorted(finite, key=lambda item: item[1])
        method, epsilon = valid[0] if valid else (next(iter(bounds)), math.inf)
        honest = None if self.clients is None else self.honest
        fields: dict[str, Any] = {
            "epsilon": epsilon, "delta": self.delta, "neighboring": check_neighboring(self.neighboring),
            "unit": self.unit, "observer": self.observer, "honest_clients": honest, "sampling": self.participation,
            "sampling_rate": self.sampling_rate, "dimension": self.dimension, "rounds": self.rounds, "method": method,
            "alternatives": tuple(valid), "sha256": getattr(self.mechanism, "sha256", ""), "release": self,
        }  # fmt: skip
        return Claim(**(fields | more))
