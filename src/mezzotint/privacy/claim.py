"""What a whole release costs, in one record that hides none of its assumptions."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, final

from mezzotint.core.arguments import Neighboring
from mezzotint.core.errors import MezzotintError
from mezzotint.core.files import replacing
from mezzotint.core.records import JsonObject, Record, above, plain

if TYPE_CHECKING:
    from mezzotint import kernel
    from mezzotint.privacy.release import Release

Unit = Literal["client", "record", "user"]
View = Literal["local", "sum", "shuffled"]
Observer = Literal["reports", "secure_sum", "model", "shuffled"]
Trust = Literal["local", "secure_sum", "central", "shuffler"]
Sampling = Literal["none", "public", "poisson", "without_replacement"]

_CHANGE = {
    ("client", "replace_one"): "replacing all data of one client",
    ("client", "add_or_remove_one"): "adding or removing all data of one client",
    ("record", "replace_one"): "replacing one record",
    ("record", "add_or_remove_one"): "adding or removing one record",
    ("user", "replace_one"): "replacing all records of one user",
    ("user", "add_or_remove_one"): "adding or removing all records of one user",
}

_SEEN = {
    "reports": "an observer of every single report",
    "secure_sum": "an observer of the secure sums alone",
    "model": "an observer of what is published alone",
    "shuffled": "an observer of the shuffler's output alone",
}
_VIEWS: dict[Observer, View] = {"reports": "local", "secure_sum": "sum", "model": "sum", "shuffled": "shuffled"}

_TRUST: dict[Observer, Trust] = {
    "reports": "local",
    "secure_sum": "secure_sum",
    "model": "central",
    "shuffled": "shuffler",
}

TRUSTED: dict[Trust, str] = {
    "local": "nobody is trusted with single values but the device that draws their reports",
    "secure_sum": "the aggregation is trusted to show nothing but sums",
    "central": "the server is trusted with what it receives and with adding the noise before anything is published",
    "shuffler": "the shuffler is trusted to hide who sent which report, and reports to name nobody",
}
"""Who is trusted with what, in words."""


def basis(observer: Observer = "reports", *, certified: bool = False) -> str:
    """What stands beside every epsilon and delta that is shown: whether `mezzotint.kernel` checked it, and to whom.

    Arguments:
        observer: of the claim.
        certified: whether the kernel accepted a proof; otherwise the number is computed.
    """
    return f"{'certified' if certified else 'computed'}, to {_SEEN[observer]}"


SIMULATION = "Simulation; not private: what was drawn follows from a seed. Without one it would be"

_SAMPLING = {
    "none": "",
    "public": ", taking part in each round with probability {rate:g} and visibly so",
    "poisson": ", taking part in each round with probability {rate:g}, independently and in secret",
    "without_replacement": ", a secret random {rate:g} of all taking part in each round",
}


@final
@dataclass(frozen=True, kw_only=True)
class Claim(Record):
    """(epsilon, delta) of a whole release, with everything it rests on.

    Arguments:
        epsilon, delta: rounded against us; epsilon is inf when nothing can be claimed at this delta.
        neighboring: what may differ between the two worlds: one replaced, or one added or removed.
        unit: whose data that is: all of a client's reports in all coordinates and rounds, one record behind them, or
            all records of one user in a training run.
        observer: who the claim is against: somebody who sees every report ("reports"), the sums of a secure aggregation
            and nothing else ("secure_sum"), only what a server publishes after it added noise ("model"), or the reports
            of each round in random order, without a word on who sent them ("shuffled").
        honest_clients: how many clients' randomness is relied upon; None where none is.
        sampling, sampling_rate: who takes part in a round, and who knows.
        dimension, rounds: reports of one client in one round, and rounds.
        method: the accounting that gave the least epsilon.
        alternatives: (method, epsilon) of all that apply, best first; each is valid by itself.
        sha256: the table, when all reports come from one.
        seeded: the draws followed from a seed: a simulation, and epsilon is what it would cost without.
        released: what one client releases, in words, in a round, where that is not so many coordinates.
        between: which pairs of neighbours alone the claim is about, in words; all where empty.
        parts: (name, epsilon) of releases that add up to this one.
        reason: why it is computed although a proof was asked for.
        release: what the claim is about.
        checked: what `mezzotint.kernel.check` returned for a proof of this claim; None where there is none.
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
    release: Release | None = field(default=None, repr=False, compare=False)
    checked: kernel.ExactClaim | None = None

    @property
    def certified(self) -> bool:
        """Whether the kernel accepted a proof of no more than this; otherwise the claim is computed."""
        if self.checked is None or not self.checked.certified or math.isinf(self.epsilon):
            return False
        stated = Fraction(repr(self.epsilon)), Fraction(repr(self.delta))
        return self.checked.epsilon <= stated[0] and self.checked.delta <= stated[1]

    @property
    def basis(self) -> str:
        """Certified or computed, and to whom."""
        return basis(self.observer, certified=self.certified)

    @property
    def change(self) -> str:
        """What is hidden, with its relation: "replacing all data of one client (replace_one)"."""
        return f"{_CHANGE[self.unit, self.neighboring]} ({self.neighboring})"

    @property
    def standing(self) -> dict[str, object]:
        """What stands beside an epsilon in JSON: observer, trust, and whether the kernel checked it."""
        return {"observer": self.observer, "trust": self.trust, "certified": self.certified}

    @property
    def view(self) -> View:
        """What is seen: every report ("local"), sums ("sum"), or reports in random order ("shuffled")."""
        return _VIEWS[self.observer]

    @property
    def trust(self) -> Trust:
        """Nobody ("local"), the aggregation ("secure_sum"), whoever adds the noise ("central"), or a "shuffler"."""
        return _TRUST[self.observer]

    def __iter__(self) -> Iterator[Any]:
        """`claim, proof = account(release)` is `claim, proof = prove(release)`: certified where the kernel accepts it.

        Raises:
            MezzotintError: a claim that names no release.
        """
        from mezzotint.privacy.prove import prove

        if self.release is None:
            raise MezzotintError("the claim names no release that could be proved; make it with account(Release(...))")
        return iter(prove(self.release))

    @property
    def releases(self) -> int:
        """Reports of one client that are accounted for: dimension times rounds."""
        return self.dimension * self.rounds

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON; an infinite epsilon as "inf"."""
        return {
            "epsilon": plain(self.epsilon),
            "delta": self.delta,
            "neighboring": self.neighboring,
            "unit": self.unit,
            "view": self.view,
            "observer": self.observer,
            "trust": self.trust,
            "honest_clients": self.honest_clients,
            "sampling": self.sampling,
            "sampling_rate": self.sampling_rate,
            "dimension": self.dimension,
            "rounds": self.rounds,
            "method": self.method,
            "alternatives": {name: plain(epsilon) for name, epsilon in self.alternatives},
            "sha256": self.sha256,
            "seeded": self.seeded,
            "certified": self.certified,
            **getattr(self.release and self.release.mechanism, "facts", {}),
            **({"between": self.between} if self.between else {}),
            **({"parts": {name: plain(epsilon) for name, epsilon in self.parts}} if self.parts else {}),
        }

    def document(self) -> dict[str, object]:
        """The claim as the kernel checked it, which `mezzotint.kernel.check` takes with its proof.

        Raises:
            MezzotintError: nothing was checked.
        """
        if self.checked is None or not self.certified:
            raise MezzotintError(f"the claim is computed, not certified{self.reason and ': ' + self.reason}")
        return self.checked.document()

    def save(self, path: str | os.PathLike[str], proof: JsonObject, *, overwrite: bool = False) -> None:
        """Writes the claim file, which `mezzotint verify` checks again.

        Raises:
            MezzotintError: nothing was checked. ParameterError: the file exists, and `overwrite` is not set.
        """
        text = json.dumps({**self.document(), "proof": dict(proof)}, sort_keys=True, separators=(",", ":"))
        with replacing(path, overwrite=overwrite, parameter="proof") as draft:
            draft.write_text(text, encoding="utf-8")

    def __str__(self) -> str:
        many = self.released or counted(self.dimension, "coordinate")
        if self.parts:
            many += f" ({' + '.join(f'{name} {above(epsilon)}' for name, epsilon in self.parts)})"
        many += "" if self.observer == "model" and self.released else f" in {counted(self.rounds, 'round')}"
        sampled = "" if self.observer == "model" else _SAMPLING[self.sampling].format(rate=self.sampling_rate)
        honest = "" if self.honest_clients is None else f", if {_honest(self.honest_clients)} honest randomness"
        where = f"for {many}{sampled}, to {_SEEN[self.observer]}{honest}; {TRUSTED[self.trust]}"
        change = f"{self.change}{self.between and ', between ' + self.between}"
        if math.isinf(self.epsilon):
            return f"No epsilon can be claimed at delta={self.delta:g} for {change}, {where}."
        by = f"{'checked by mezzotint.kernel, ' * self.certified}accounted by {self.method}"
        status = "certified" if self.certified else "computed" + (self.reason and f" ({self.reason})")
        head = f"{SIMULATION} {status}" if self.seeded else status[0].upper() + status[1:]
        promise = f"({above(self.epsilon)}, {above(self.delta)})-differential privacy"
        return f"{head}: {promise} for {change}, {where}; {by}."


def counted(number: int, noun: str) -> str:
    """The number with its noun, in the plural but for 1."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _honest(clients: int) -> str:
    return "no client but the one protected adds" if clients == 1 else f"{clients} clients add"


class Claimed(Record):
    """Base of results of one claim; None where reports were drawn from a seed, and are not private."""

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
