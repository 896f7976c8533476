"""What is released, to whom, and on whose randomness it relies; what that costs, with all its
assumptions."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields as fields_of
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast, final, runtime_checkable

from mezzotint.core.arguments import (
    Neighboring,
    check_count,
    check_delta,
    check_neighboring,
    check_others,
    check_positive,
    check_rate,
)
from mezzotint.core.errors import MezzotintError, ParameterError
from mezzotint.core.files import write_text
from mezzotint.core.kinds import checked
from mezzotint.core.loss import float_above
from mezzotint.core.mechanism import Mechanism
from mezzotint.core.records import JsonObject, Record, above, below, counted, plain
from mezzotint.core.types import UNIT, IntArray
from mezzotint.privacy.sums import Lattice, lattice_rows

if TYPE_CHECKING:
    from mezzotint import kernel

Unit = Literal["client", "record", "user"]
Observer = Literal["reports", "secure_sum", "model", "shuffled"]
Trust = Literal["local", "secure_sum", "central", "shuffler"]
Sampling = Literal["none", "public", "poisson", "without_replacement"]

_CHANGE = {"replace_one": "replacing", "add_or_remove_one": "adding or removing"}
_UNITS = {
    "client": "all data of one client",
    "record": "one record",
    "user": "all records of one user",
}

_SEEN = {
    "reports": "an observer of every single report",
    "secure_sum": "an observer of the secure sums alone",
    "model": "an observer of what is published alone",
    "shuffled": "an observer of the shuffler's output alone",
}

OBSERVERS: dict[Trust, Observer] = {
    "local": "reports",
    "secure_sum": "secure_sum",
    "central": "model",
    "shuffler": "shuffled",
}
"""The observer that a claim protects against, by who is trusted."""

TRUSTED: dict[Trust, str] = {
    "local": "only the device that draws a report is trusted with its value",
    "secure_sum": "the aggregation is trusted to show nothing but sums",
    "central": "the server is trusted with what it receives and with adding the noise before "
    "anything is published",
    "shuffler": "the shuffler is trusted to hide who sent which report, and reports to name nobody",
}
"""Who is trusted with what, in words."""


def basis(observer: Observer = "reports", *, certified: bool = False) -> str:
    """The words beside every epsilon and delta that is shown.

    Whether `mezzotint.kernel` checked it, and to whom.

    Arguments:
        observer: of the claim.
        certified: whether the kernel accepted a proof; otherwise the number is computed.

    Returns: such as "certified, to an observer of every single report".

    Example:
        >>> mz.privacy.basis("reports", certified=True)
        'certified, to an observer of every single report'
    """
    status = "certified" if certified else "computed"
    return f"{status}, to {_SEEN[observer]}"


SIMULATION = "Simulation; not private: what was drawn follows from a seed. Without one it would be"

_SAMPLING = {
    "none": "",
    "public": ", taking part in each round with probability {rate} and visibly so",
    "poisson": ", taking part in each round with probability {rate}, independently and in secret",
    "without_replacement": ", a secret random {rate} of all taking part in each round",
}

_LARGEST_EXPONENT = 700
"""e to this power is a float."""

_CLAIM_FIELDS = (
    *("epsilon", "delta", "neighboring", "unit", "observer", "trust", "honest_clients"),
    *("sampling", "sampling_rate", "dimension", "rounds", "method", "alternatives", "sha256"),
    *("seeded", "certified"),
)
"""What a claim's dictionary always has, in order."""


@final
@dataclass(frozen=True, kw_only=True)
class Claim(Record):
    """(epsilon, delta) of a whole release, and everything that claim rests on.

    Arguments:
        epsilon, delta: rounded against us; epsilon is inf when nothing can be claimed at this
            delta.
        neighboring: what may differ between the two worlds: one replaced, or one added or removed.
        unit: whose data that is: all of a client's reports in all coordinates and rounds, one
            record behind them, or all records of one user in a training run.
        observer: who the claim is against: somebody who sees every report ("reports"), the sums of
            a secure aggregation and nothing else ("secure_sum"), only what a server publishes after
            it added noise ("model"), or the reports of each round in random order, without a word
            on who sent them ("shuffled").
        honest_clients: how many clients' randomness is relied upon; None where none is.
        sampling, sampling_rate: who takes part in a round, and who knows.
        dimension, rounds: reports of one client in one round, and rounds.
        method: the accounting that gave the least epsilon.
        alternatives: (method, epsilon) of all that apply, best first; each is valid by itself.
        sha256: the table, when all reports come from one.
        seeded: the draws followed from a seed: a simulation, and epsilon is what it would cost
            without.
        released: a client's release in a round, in words, where it is not a number of coordinates.
        between: the pairs of neighbours that the claim is limited to, in words; all where empty.
        parts: (name, epsilon) of releases that add up to this one.
        reason: why no requested proof was found.
        release: what the claim is about.
        checked: the claim that `mezzotint.kernel.check` certified; None without a proof.

    Example:
        >>> table = mz.families.randomized_response(epsilon=1.0)
        >>> claim = mz.privacy.account(mz.privacy.Release(mechanism=table, rounds=100, delta=1e-6))
        >>> claim.observer, claim.neighboring, claim.certified
        ('reports', 'replace_one', False)
        >>> claim.epsilon <= 100 * table.epsilon
        True
    """

    epsilon: float
    delta: float
    neighboring: Neighboring
    unit: Unit
    observer: Observer
    honest_clients: int | None
    sampling: Sampling
    sampling_rate: float
    dimension: int
    rounds: int
    method: str
    alternatives: tuple[tuple[str, float], ...]
    sha256: str
    seeded: bool = False
    released: str = ""
    between: str = ""
    parts: tuple[tuple[str, float], ...] = ()
    reason: str = ""
    release: Release | None = field(
        default=None,
        repr=False,
        compare=False,
    )
    checked: kernel.ExactClaim | None = None

    @property
    def certified(self) -> bool:
        """Whether the kernel accepted a proof of no more than this; otherwise the claim is
        computed.

        The release is part of the promise: a claim that was checked about another one certifies
            nothing here.
        """
        if self.checked is None or not self.checked.certified:
            return False
        # Numbers of a Renyi statement, or of a profile, are no (epsilon, delta).
        are_finite = math.isfinite(self.epsilon) and math.isfinite(self.delta)
        if not are_finite or self.checked.statement["kind"] != "dp":
            return False
        epsilon_holds = self.checked.epsilon <= Fraction(repr(self.epsilon))
        delta_holds = self.checked.delta <= Fraction(repr(self.delta))
        return epsilon_holds and delta_holds and self._describes(self.checked.release)

    def _describes(self, exact: kernel.ExactRelease | None) -> bool:
        """Whether a release that the kernel checked is the one that this claim's sentence is
        about.

        Not one field of it may differ, stronger or weaker, nor one word that follows from it.
        """
        release = self.release
        if exact is None or release is None or release.exact != exact:
            return False
        honest_clients = None
        if exact.trust == "secure_sum":
            honest_clients = exact.clients - exact.corrupted
        coordinates = [count for _table, count in exact.tables]
        dimension = sum(coordinates) or release.dimension
        has_other_neighbours = exact.distinct > 0 or exact.records_per_user > 1
        checked = (
            exact.observer,
            exact.neighboring,
            exact.rounds,
            exact.seeded,
            honest_clients,
            exact.sampling,
            float(exact.rate),
            dimension,
            release.sha256,
            has_other_neighbours,
            *(release.released, release.between, release.parts),
        )
        shown = (
            self.observer,
            self.neighboring,
            self.rounds,
            self.seeded,
            self.honest_clients,
            self.sampling,
            self.sampling_rate,
            self.dimension,
            self.sha256,
            bool(self.between),
            *(self.released, self.between, self.parts),
        )
        # A record is part of a client's data: what hides all of it hides one.
        same_unit = exact.unit == self.unit
        hides_more = exact.unit == "client" and self.unit == "record"
        is_described = self.unit in ("user", release.unit)
        return checked == shown and (same_unit or hides_more) and is_described

    @property
    def basis(self) -> str:
        """Certified or computed, and to whom."""
        return basis(self.observer, certified=self.certified)

    @property
    def change(self) -> str:
        """The change that is hidden: "replacing all data of one client (replace_one)"."""
        return f"{_CHANGE[self.neighboring]} {_UNITS[self.unit]} ({self.neighboring})"

    @property
    def standing(self) -> dict[str, object]:
        """The JSON fields beside an epsilon: observer, trust, and whether the kernel checked it."""
        return {"observer": self.observer, "trust": self.trust, "certified": self.certified}

    @property
    def trust(self) -> Trust:
        """Nobody ("local"), the aggregation ("secure_sum"), whoever adds the noise ("central"), or
        a "shuffler"."""
        return next(trust for trust, observer in OBSERVERS.items() if observer == self.observer)

    @property
    def releases(self) -> int:
        """Reports of one client that are accounted for: dimension times rounds."""
        return self.dimension * self.rounds

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON; an infinite epsilon as "inf"."""
        facts: dict[str, object] = {name: plain(getattr(self, name)) for name in _CLAIM_FIELDS}
        facts["alternatives"] = plain(dict(self.alternatives))
        if self.release is not None:
            facts |= getattr(self.release.mechanism, "facts", {})
        if self.between:
            facts["between"] = self.between
        if self.parts:
            facts["parts"] = plain(dict(self.parts))
        return facts

    def document(self) -> dict[str, object]:
        """The claim as the kernel checked it, which `mezzotint.kernel.check` takes with its proof.

        Raises:
            MezzotintError: nothing was checked.
        """
        if self.checked is None or not self.certified:
            reason = f": {self.reason}" if self.reason else ""
            raise MezzotintError(f"the claim is computed, not certified{reason}")
        return self.checked.document()

    def save(
        self,
        path: str | os.PathLike[str],
        proof: JsonObject,
        *,
        overwrite: bool = False,
    ) -> None:
        """Writes the claim file, which `mezzotint verify` checks again.

        Raises:
            MezzotintError: nothing was checked. ParameterError: the file exists, and `overwrite` is
                not set.
        """
        from mezzotint.kernel.units import canonical

        text = canonical({**self.document(), "proof": dict(proof)})
        write_text(path, text, overwrite=overwrite, parameter="proof")

    def __str__(self) -> str:
        change = self.change
        if self.between:
            change += f", between {self.between}"
        where = f"for {self._reports()}, to {_SEEN[self.observer]}{self._reliance()}"
        where += f"; {TRUSTED[self.trust]}"
        if math.isinf(self.epsilon):
            return f"No epsilon can be claimed at delta={self.delta:g} for {change}, {where}."
        promise = f"({above(self.epsilon)}, {above(self.delta)})-differential privacy"
        method = f"accounted by {self.method}"
        if self.certified:
            # Nothing of the sentence is a word that no check has seen; the method is one.
            method = "checked by mezzotint.kernel"
        return f"{self._standing()}: {promise} for {change}, {where}; {method}."

    def _reports(self) -> str:
        """What is released, and how often who takes part."""
        words = self.released or counted(self.dimension, "coordinate")
        if self.parts:
            sums = (f"{name} {above(epsilon)}" for name, epsilon in self.parts)
            words += f" ({' + '.join(sums)})"
        if self.observer != "model" or not self.released:
            words += f" in {counted(self.rounds, 'round')}"
        if self.observer != "model":
            # Rounded down, so that what is printed is true as it stands: more sampling costs more.
            words += _SAMPLING[self.sampling].format(rate=below(self.sampling_rate))
        if self.observer == "reports" and self.sampling == "poisson":
            words += " (without the record a report is sent all the same)"
        return words

    def _reliance(self) -> str:
        """Whose randomness the claim relies on."""
        if self.honest_clients is None:
            return ""
        return f", if {_honest(self.honest_clients)} honest randomness"

    def _standing(self) -> str:
        """Certified or computed, and why not certified; a simulation where the draws were
        seeded."""
        reason = ""
        if self.reason:
            reason = f" ({self.reason})"
        match self.certified, self.seeded:
            case True, False:
                return "Certified"
            case True, True:
                return f"{SIMULATION} certified"
            case False, False:
                return f"Computed{reason}"
            case False, True:
                return f"{SIMULATION} computed{reason}"


def _honest(clients: int) -> str:
    return "no client but the one protected adds" if clients == 1 else f"{clients} clients add"


class Claimed(Record):
    """Base of results of one claim; None where reports were drawn from a seed, and are not
    private."""

    claim: Claim | None

    @property
    def epsilon(self) -> float | None:
        """Epsilon of the claim, rounded up; None when there is no claim."""
        return None if self.claim is None else self.claim.epsilon

    def as_dict(self) -> JsonObject:
        """Plain values for JSON, with the epsilon and what it stands on where there is a claim."""
        shown = super().as_dict()
        if self.claim is None:
            shown.pop("claim", None)
            return shown
        return {**shown, "epsilon": plain(self.claim.epsilon), **self.claim.standing}


@runtime_checkable
class Accountable(Protocol):
    """A release that knows its own cost: a vector scheme, a training run. Tables are accounted
    here."""

    def account(self, release: Release) -> Claim:
        """The claim of a release of itself."""
        ...


@runtime_checkable
class Described(Protocol):
    """A mechanism whose releases the kernel has words for. Tables are described here."""

    def exact(self, release: Release) -> kernel.ExactRelease | None:
        """A release of itself as the kernel describes it; None where no kind of proof is about it."""
        ...


def nameless(mechanism: Mechanism) -> Mechanism:
    """The table without the names of its categories, which the kernel does not read: claims are
    about the numbers."""
    if mechanism.categories is None:
        return mechanism
    return Mechanism(
        knots=mechanism.knots,
        levels=mechanism.levels,
        weights=mechanism.weights,
        name=mechanism.name,
    )


Released = Mechanism | Mapping[str, Mechanism] | Accountable


@final
@checked
@dataclass(frozen=True, kw_only=True)
class Release:
    """Everything that one person's data enters, as an observer sees it.

    Arguments:
        mechanism: the table that every report is drawn from; or {column: table}, one report about a
            record from each; or what knows its own cost (a scheme of `mezzotint.vectors`, the steps
            of a training run).
        delta: of the claim, in [0, 1); 0 asks for pure epsilon.
        trust: "local": every report is seen, nobody is trusted. "secure_sum": only sums over
            clients are seen, and the aggregation is trusted with that. "central": whoever adds the
            noise is trusted. "shuffler": all reports of a round are seen in random order, and the
            shuffler is trusted to hide who sent which.
        dimension: reports of one client in one round; changing the client changes all of them.
        rounds: rounds; inputs of a round may depend on everything seen before.
        sampling: "public": who takes part is drawn at random and seen, by a local observer and by
            the server of a secure sum alike: no amplification, but a client pays only for rounds it
            took part in. "poisson": each decides independently and in secret; with trust="local"
            these are a client's records, which enter the vector reported in a round without anybody
            else knowing, and the unit protected is one record. "without_replacement" (secure sums):
            a secret fixed-size choice.
        sampling_rate: probability in (0, 1] of taking part in a round.
        neighboring: "replace_one", or with secret records also "add_or_remove_one".
        clients: of a sum or shuffle: reports in one; with "poisson" the clients of whom each takes
            part by chance.
        corrupted: clients among them that add no honest noise, and know whether they were chosen.
        clip_norm: of a secure sum of vectors clipped to this L2 norm, rotated independently of the
            data and clipped to the table's range per coordinate, data units. None: every coordinate
            may change by its full range.
        distinct: reports are memoised: the most different values of a client over the rounds. None:
            every report is drawn afresh.

    Raises:
        ParameterError: a value outside its range, or a combination of arguments for which nothing
            is proved.

    Example:
        >>> table = mz.families.randomized_response(epsilon=1.0)
        >>> release = mz.privacy.Release(
        ...     mechanism=table, trust="secure_sum", clients=1000, delta=1e-6
        ... )
        >>> mz.privacy.account(release).epsilon < 0.3
        True
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
        object.__setattr__(self, "dimension", check_count("dimension", self.dimension))
        object.__setattr__(self, "rounds", check_count("rounds", self.rounds))
        object.__setattr__(self, "sampling_rate", check_rate(self.sampling_rate))
        object.__setattr__(self, "delta", check_delta(self.delta))
        if not isinstance(cast("object", self.mechanism), (Mechanism, Mapping, Accountable)):
            remedy = (
                "need a Mechanism, {column: Mechanism}, or what accounts for itself, "
                "such as a vector scheme"
            )
            raise ParameterError("mechanism", type(self.mechanism).__name__, remedy)
        if isinstance(self.mechanism, Mapping) and not self.mechanism:
            raise ParameterError("mechanism", "no columns", "need a table for at least one")
        if self.trust not in list(OBSERVERS):  # a list has no hash, and is no word
            remedy = (
                "use 'local' (every report is visible), 'secure_sum' (only sums are), 'shuffler' "
                "or 'central'"
            )
            raise ParameterError("trust", self.trust, remedy)
        check_neighboring(self.neighboring)
        if self.trust == "local":
            self._check_local()
        elif self.trust != "central":
            self._check_crowd()
        if self.distinct is not None:
            self._check_memoised(self.distinct)

    def _check_local(self) -> None:
        """Raises ParameterError for settings that reports which everybody sees cannot have."""
        only_sums = (
            "applies to secure sums and shuffles only; use trust='secure_sum' or leave it out"
        )
        if self.clients is not None:
            raise ParameterError("clients", self.clients, only_sums)
        if self.corrupted != 0:
            raise ParameterError("corrupted", self.corrupted, only_sums)
        if self.clip_norm is not None:
            remedy = "reports that are seen are accounted per coordinate; use trust='secure_sum'"
            raise ParameterError("clip_norm", self.clip_norm, remedy)
        if self.sampling not in ("public", "poisson"):
            remedy = (
                "with trust='local' use 'public' (participation is visible) or 'poisson' "
                "(records sampled in secret)"
            )
            raise ParameterError("sampling", self.sampling, remedy)
        if self.neighboring == "add_or_remove_one" and self.sampling != "poisson":
            remedy = (
                "who is seen to be absent is not hidden; use 'replace_one', or sampling='poisson' "
                "of records"
            )
            raise ParameterError("neighboring", self.neighboring, remedy)

    def _check_crowd(self) -> None:
        """Raises ParameterError for settings that a secure sum or a shuffle cannot have."""
        if self.clients is None:
            remedy = "give the number of reports in a sum or shuffle, e.g. clients=1000"
            raise ParameterError("clients", None, remedy)
        check_others(self.clients, self.corrupted)
        if self.neighboring != "replace_one":
            remedy = "use 'replace_one' with sums and shuffles"
            raise ParameterError("neighboring", self.neighboring, remedy)
        if self.trust == "shuffler" and self.sampling_rate != 1:
            remedy = "shuffles are accounted for clients in every round: 1"
            raise ParameterError("sampling_rate", self.sampling_rate, remedy)
        if self.trust == "shuffler" and self.clip_norm is not None:
            remedy = "shuffles are accounted per coordinate; leave it out"
            raise ParameterError("clip_norm", self.clip_norm, remedy)
        if self.sampling not in ("public", "poisson", "without_replacement"):
            remedy = (
                'use "public" (the server of a secure sum knows who took part), '
                '"without_replacement" or "poisson"'
            )
            raise ParameterError("sampling", self.sampling, remedy)
        if self.clip_norm is not None:
            remedy = "the L2 norm that a client's vector is clipped to, > 0"
            check_positive("clip_norm", self.clip_norm, remedy)

    def _check_memoised(self, distinct: int) -> None:
        check_count("distinct", distinct)
        if distinct > self.rounds:
            remedy = f"between 1 and the number of rounds, {self.rounds}"
            raise ParameterError("distinct", distinct, remedy)
        each_seen = self.trust == "local" and self.sampling_rate == 1
        if not each_seen or self.dimension != 1 or self.delta != 0:
            remedy = "memoised reports are accounted one value a round, each seen, at delta=0"
            raise ParameterError("distinct", distinct, remedy)

    def require_only(self, trust: Trust, *counted: str) -> None:
        """Refuse what the accounting of a mechanism does not count.

        A claim would state it, and be too small.

        Arguments:
            trust: whom the accounting is about.
            counted: the fields that it takes from a release, besides mechanism, delta and trust.

        Raises:
            ParameterError: another trust, or a field that is not counted and not left out.
        """
        name = type(self.mechanism).__name__
        if self.trust != trust:
            raise ParameterError("trust", self.trust, f"a {name} is accounted for {trust!r} alone")
        for entry in fields_of(self):
            ignored = entry.name not in ("mechanism", "delta", "trust", *counted)
            value = getattr(self, entry.name)
            if ignored and value != entry.default:
                remedy = f"leave it out: a {name} says it itself, or is not accounted for it"
                raise ParameterError(entry.name, value, remedy)

    @property
    def table(self) -> Mechanism:
        """The mechanism, where it is a table."""
        return cast("Mechanism", self.mechanism)

    @property
    def observer(self) -> Observer:
        """The observer that the claim protects against."""
        return OBSERVERS[self.trust]

    @property
    def participation(self) -> Sampling:
        """The rule of participation: "none" where everybody takes part and nothing is drawn."""
        return "none" if self.sampling_rate == 1 else cast("Sampling", self.sampling)

    @property
    def unit(self) -> Unit:
        """The unit of privacy."""
        secret_records = self.trust == "local" and self.sampling == "poisson"
        if self.trust == "central" or secret_records or isinstance(self.mechanism, Mapping):
            return "record"
        return "client"

    @property
    def releases(self) -> int:
        """Reports of one client in all."""
        return self.dimension * self.rounds

    @property
    def released(self) -> str:
        """A client's release in a round, in words; empty where it is a number of coordinates.

        Of a mechanism that knows its own cost, its attribute `released` if it has one.
        """
        if isinstance(self.mechanism, Mapping):
            return "one report per column"
        if self.distinct is not None:
            return f"memoised reports of at most {self.distinct} distinct values"
        return getattr(self.mechanism, "released", "")

    @property
    def between(self) -> str:
        """The pairs of neighbours that a claim is limited to, in words; empty where it is not.

        Of a mechanism that knows its own cost, its attribute `between` if it has one.
        """
        if self.distinct is not None:
            equal = "histories that are equal in the same rounds"
            return f"{equal} (when a value changes is not protected)"
        return getattr(self.mechanism, "between", "")

    @property
    def parts(self) -> tuple[tuple[str, float], ...]:
        """Columns with the epsilons of their reports, of a record all of whose columns are
        reported."""
        if not isinstance(self.mechanism, Mapping):
            return ()
        return tuple((column, table.epsilon) for column, table in self.mechanism.items())

    @property
    def sha256(self) -> str:
        """The table, where all reports come from one."""
        if not isinstance(self.mechanism, Mapping):
            return getattr(self.mechanism, "sha256", "")
        digests = {table.sha256 for table in self.mechanism.values()}
        return digests.pop() if len(digests) == 1 else ""

    @property
    def others(self) -> int:
        """Other clients whose noise counts."""
        return check_others(self.clients or 1, self.corrupted)

    @property
    def honest(self) -> int:
        """Clients of a sum, the one protected among them, whose own randomness counts."""
        return int(self.clients or 1) - self.corrupted

    @property
    def chance(self) -> float:
        """Probability that the protected client is in a round, given which corrupted ones are; rounded
        up."""
        if self.participation != "without_replacement" or self.corrupted == 0:
            return self.sampling_rate
        # The honest ones of clients / rate in all compete for what places the corrupted ones leave.
        rate = Fraction(self.sampling_rate)
        clients = int(self.clients or 1)
        return min(1.0, float_above(rate * clients / (clients - rate * self.corrupted)))

    def over_rounds(self, round_epsilon: float | Fraction) -> float:
        """Pure epsilon of all rounds from that of one which the protected unit is in, rounded up.

        Of secret participation e**epsilon - 1 shrinks by the chance, where a round without the unit
        looks like one in which somebody else's data stand for it (docs/proofs/privacy-composition.md,
        "The alternatives").
        """
        if math.isinf(round_epsilon):
            return math.inf
        replaced = self.participation == "without_replacement"
        if self.trust == "local" and self.participation == "poisson":
            replaced = True
        if replaced and round_epsilon < _LARGEST_EXPONENT:
            amplified = math.log1p(self.chance * math.expm1(float_above(Fraction(round_epsilon))))
            round_epsilon = min(round_epsilon, amplified * (1 + 16 * UNIT))
        return float_above(self.rounds * Fraction(round_epsilon))

    @property
    def pure(self) -> float:
        """Pure epsilon of all reports together, rounded up."""
        if math.isinf(self.table.epsilon):
            return math.inf
        return self.over_rounds(self.dimension * Fraction(self.table.epsilon))

    @cached_property
    def exact(self) -> kernel.ExactRelease | None:
        """The release as the kernel describes it; None where no kind of proof is about it.

        A proof is about this release and no other: what it certifies, it certifies of a claim whose
        release is equal to it.
        """
        mechanism = self.mechanism
        if isinstance(mechanism, Described):
            return mechanism.exact(self)
        if self.trust not in ("local", "secure_sum"):
            return None
        if isinstance(mechanism, Mapping):
            drawn = Counter(nameless(table).sha256 for table in mechanism.values())
            return self.described(tables=tuple(drawn.items()))
        if not isinstance(mechanism, Mechanism):
            return None
        tables = ((nameless(mechanism).sha256, self.dimension),)
        if self.trust == "local":
            return self.described(tables=tables)
        try:
            _, lattice = self.summed
        except ParameterError:  # its levels are on no lattice
            return None
        return self.described(tables=tables, lattice=tuple(lattice.integers.tolist()))

    def described(self, **fields: Any) -> kernel.ExactRelease:
        """The kernel's release with these fields, and others as they are here: participation,
        rounds, neighbours, clients."""
        from mezzotint import kernel

        if self.clients is not None:
            fields |= {"clients": int(self.clients), "corrupted": self.corrupted}
        return kernel.ExactRelease(
            observer=self.observer,
            rounds=self.rounds,
            sampling=self.participation,
            # The binary fraction that is drawn with, not the decimal that rounds to it.
            rate=Fraction(self.sampling_rate),
            neighboring=self.neighboring,
            distinct=self.distinct or 0,
            **fields,
        )

    @cached_property
    def summed(self) -> tuple[IntArray, Lattice]:
        """The rows of integers that are added up, and what they stand for."""
        return lattice_rows(self.table)

    def claim(self, epsilons: Mapping[str, float], **more: Any) -> Claim:
        """The least of several valid bounds, the others beside it.

        Named by the first of them when none is finite.

        Arguments:
            epsilons: by method.
            more: fields of the claim that this description does not settle.
        """
        finite: list[tuple[str, float]] = []
        for bound in epsilons.items():
            if math.isfinite(bound[1]):
                finite.append(bound)
        finite.sort(key=lambda bound: bound[1])
        method = next(iter(epsilons))
        epsilon = math.inf
        if finite:
            method, epsilon = finite[0]
        fields: dict[str, Any] = {
            "epsilon": epsilon,
            "delta": self.delta,
            "neighboring": check_neighboring(self.neighboring),
            "unit": self.unit,
            "observer": self.observer,
            "honest_clients": None if self.clients is None else self.honest,
            "sampling": self.participation,
            "sampling_rate": self.sampling_rate,
            "dimension": self.dimension,
            "rounds": self.rounds,
            "method": method,
            "alternatives": tuple(finite),
            "sha256": self.sha256,
            "released": self.released,
            "between": self.between,
            "parts": self.parts,
            "release": self,
        }
        return Claim(**(fields | more))
