"""What is promised, to whom, about what: one `Release`, one `Claim`, and the words that may be said of it.

`unit`, `trust` and `assumptions` follow from the release; a document that says otherwise is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, cast, final

from mezzotint.kernel.units import Fields, Unreadable, canonical, number, sha256

FORMAT = "mezzotint-claim"
OBSERVERS = ("reports", "secure_sum", "model")
SAMPLINGS = ("none", "revealed", "poisson")
RELATIONS = ("replace_one", "add_or_remove_one")
MOST = 10**12
"""Largest number of rounds, coordinates or clients."""


@final
@dataclass(frozen=True, kw_only=True)
class Release:
    """What is released over all rounds, and who sees it.

    Arguments:
        observer: "reports": every report is seen; "secure_sum": only the sums of integers over clients; "model": every
            noisy, quantized gradient step of a training run.
        tables: (sha256, coordinates) of each mechanism: how many reports of a round are drawn from it. Empty for
            "model" when the codes are not drawn from a table.
        rounds: adaptively chosen rounds.
        sampling, rate: who takes part in a round: "none" (all), "revealed" (at random and seen), "poisson" (at random
            and in secret).
        neighboring: what differs between the two worlds.
        clients, corrupted: of a secure sum, and how many of them add no honest randomness.
        lattice: of a secure sum: the integer that stands for each level in use, increasing from 0.
        noise_multiplier: of a model: standard deviation of the Gaussian noise over the clip norm.
        kept, levels: of a model: probability that a code of so many levels is kept, else replaced evenly; 1 and 2
            when nothing is replaced.
        seeded: drawn from a seed: a simulation without privacy.
    """

    observer: str
    tables: tuple[tuple[str, int], ...] = ()
    rounds: int = 1
    sampling: str = "none"
    rate: Fraction = Fraction(1)
    neighboring: str = "replace_one"
    clients: int | None = None
    corrupted: int = 0
    lattice: tuple[int, ...] = ()
    noise_multiplier: Fraction | None = None
    kept: Fraction = Fraction(1)
    levels: int = 2
    seeded: bool = False

    @property
    def unit(self) -> str:
        """Whose data the claim is about: all that a client ever reports on, or one record."""
        return "record" if self.observer == "model" or self.sampling == "poisson" else "client"

    @property
    def trust(self) -> str:
        """Who must be trusted: nobody ("local"), the aggregation protocol, or the trainer ("central")."""
        return {"reports": "local", "secure_sum": "secure_sum", "model": "central"}[self.observer]

    @property
    def assumptions(self) -> list[str]:
        """What the claim rests on beside its proof."""
        found = ["distinct_rounds_use_fresh_randomness"]
        if self.tables:
            found.append("reports_are_drawn_from_the_tables")
        if self.observer == "secure_sum":
            found += [f"honest_clients>={cast('int', self.clients) - self.corrupted}", "only_sums_are_seen"]
        if self.observer == "model":
            found += ["gaussian_noise_is_ideal", "gradients_are_clipped"]
        if self.sampling != "none":
            found.append("participation_is_independent_of_data")
        if self.sampling == "poisson":
            found.append("participation_is_secret")
        return sorted(found)

    def document(self) -> dict[str, object]:
        """For JSON."""
        found: dict[str, object] = {
            "observer": self.observer,
            "trust": self.trust,
            "neighboring": self.neighboring,
            "unit": self.unit,
            "tables": [{"sha256": digest, "coordinates": count} for digest, count in self.tables],
            "rounds": self.rounds,
            "sampling": {"kind": self.sampling, "rate": str(self.rate)},
            "randomness": "seeded" if self.seeded else "keystream",
            "assumptions": self.assumptions,
        }
        if self.observer == "secure_sum":
            found |= {"clients": self.clients, "corrupted": self.corrupted, "lattice": list(self.lattice)}
        if self.observer == "model":
            found |= {"noise_multiplier": str(self.noise_multiplier), "kept": str(self.kept), "levels": self.levels}
        return found

    @staticmethod
    def read(value: object) -> Release:
        """From JSON; refuses what is unknown, does not belong together or does not follow from the rest."""
        fields = Fields(value, "release")
        observer, sampling = fields.text("observer", OBSERVERS), fields.fields("sampling")
        entries = [Fields(entry, "tables") for entry in fields.items("tables", 1000)]
        tables = [(table.text("sha256"), table.integer("coordinates", 1, MOST)) for table in entries]
        extra: dict[str, Any] = {}
        if observer == "secure_sum":
            extra["clients"] = fields.integer("clients", 1, MOST)
            extra["corrupted"] = fields.integer("corrupted", 0, extra["clients"] - 1)
            extra["lattice"] = tuple(fields.integers("lattice"))
        if observer == "model":
            extra["noise_multiplier"] = fields.number("noise_multiplier")
            extra["kept"], extra["levels"] = fields.number("kept"), fields.integer("levels", 2, 2**16)
        release = Release(
            observer=observer, tables=tuple(tables), rounds=fields.integer("rounds", 1, MOST),
            sampling=sampling.text("kind", SAMPLINGS), rate=sampling.number("rate"),
            neighboring=fields.text("neighboring", RELATIONS),
            seeded=fields.text("randomness", ("keystream", "seeded")) == "seeded", **extra,
        )  # fmt: skip
        release.validate()
        # One text per release: trust, unit and assumptions as they follow, fractions in lowest terms, nothing more.
        if release.document() != value:
            raise Unreadable("the release holds unknown keys, or is not written as it follows from its own values")
        return release

    def validate(self) -> None:
        """Refuses combinations about which nothing is proved."""
        if not (0 < self.rate <= 1) or (self.sampling == "none") != (self.rate == 1):
            raise Unreadable(f"sampling {self.sampling} does not go with the rate {self.rate}")
        if self.neighboring == "add_or_remove_one" and self.sampling != "poisson" and self.observer != "model":
            raise Unreadable("one who is seen to be absent cannot be hidden: add_or_remove_one needs poisson sampling")
        if self.observer != "model" and not self.tables:
            raise Unreadable("reports come from a table")
        if self.observer == "model" and (not self.noise_multiplier or not (0 < self.kept <= 1)):
            raise Unreadable("a model needs a noise multiplier above 0 and a probability of keeping a code")


@final
@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement about one release (or, without a release, about a problem that the statement describes).

    Arguments:
        release: what is released; None for lower bounds of designs.
        statement: {"kind": "dp", "epsilon", "delta"}, {"kind": "renyi", "order", "epsilon"} or another kind of
            docs/file-format.md; numbers are integers or exact texts.
    """

    release: Release | None
    statement: dict[str, Any]
    _stamp: object = field(default=None, repr=False, compare=False)

    def __getattr__(self, name: str) -> Any:
        """What the release says: observer, trust, neighboring, unit, rounds, seeded..."""
        if name.startswith("_") or self.release is None:
            raise AttributeError(name)
        return getattr(self.release, name)

    @property
    def epsilon(self) -> Fraction:
        """As claimed, exact."""
        return number(self.statement["epsilon"], "epsilon")

    @property
    def delta(self) -> Fraction:
        """As claimed, exact; 0 when the statement has none."""
        return number(self.statement.get("delta", 0), "delta")

    @property
    def certified(self) -> bool:
        """Whether this object came out of `mezzotint.kernel.check`, and says what it said then."""
        return self._stamp is not None and self._stamp == (_STAMP, self.sha256)

    def document(self) -> dict[str, object]:
        """For JSON, without a proof."""
        release = None if self.release is None else self.release.document()
        return {"format": FORMAT, "version": 1, "release": release, "statement": self.statement}

    @property
    def sha256(self) -> str:
        """Of the canonical claim: what its proof names."""
        return sha256(canonical(self.document()))

    @staticmethod
    def read(fields: Fields) -> Claim:
        """From JSON; takes the claim's keys and leaves the others."""
        if fields.text("format") != FORMAT or fields.integer("version", 0, MOST) != 1:
            raise Unreadable(f"not a claim of version 1 ({FORMAT})")
        raw = fields.take("release")
        release = None if raw is None else Release.read(raw)
        return Claim(release=release, statement=fields.fields("statement").values)


_STAMP = object()


def stamp(claim: Claim) -> Claim:
    """Called by `check` alone, after its last comparison."""
    return replace(claim, _stamp=(_STAMP, claim.sha256))
