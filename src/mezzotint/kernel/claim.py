"""What is promised, to whom and about what: `ExactRelease`, `ExactClaim`, and the sentences that may describe them.

`unit`, `trust` and `assumptions` follow from the release; a document that says otherwise is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeAlias, final

from mezzotint.kernel.units import (
    Fields,
    Refused,
    Unreadable,
    canonical,
    number,
    require,
    sha256,
    shown,
)

FORMAT, VERSION = "mezzotint-claim", 1  # of files; of this kernel, as its sentences name it
MOST = 10**12  # rounds, coordinates or clients
Reader: TypeAlias = Callable[[Fields, str], Any]


_SUM: dict[str, Reader] = {
    "clients": lambda fields, key: fields.integer(key, 1, MOST),
    "corrupted": lambda fields, key: fields.integer(key, 0, MOST),
    "lattice": lambda fields, key: tuple(fields.integers(key)),
}
_NOISY: dict[str, Reader] = {
    "shift": lambda fields, key: fields.integer(key, 1, MOST),
    "distance": Fields.number,
}
_MODEL: dict[str, Reader] = {
    "noise_multiplier": Fields.number, "kept": Fields.number,
    "levels": lambda fields, key: fields.integer(key, 2, 2**16),
}  # fmt: skip
# Kinds of releases, and the fields that each has besides the common ones.
KINDS = {"reports": {}, "secure_sum": _SUM, "noisy_sum": {**_SUM, **_NOISY}, "model": _MODEL}


@final
@dataclass(frozen=True, kw_only=True)
class ExactRelease:
    """The release over all rounds, and its observer.

    Arguments:
        observer: "reports": every report is seen; "secure_sum": only the sums of integers over clients; "model": every
            noisy, quantized gradient step of a training run.
        tables: (sha256, coordinates) of each mechanism, where coordinates is the number of its reports in a round.
        rounds: their number; they may be chosen adaptively.
        sampling, rate: who takes part: "none" (all), "revealed" (at random, publicly), "poisson" (in secret).
        neighboring: how two neighbouring data sets differ.
        clients, corrupted: for a sum: how many reports every sum adds up, whoever takes part, and how many of these add
            no honest randomness.
        lattice: for a sum: the integer that represents each level in use, increasing from 0.
        shift, distance: for a sum whose table is noise that every client adds to its integers: the most by which one
            client changes one of them, and the most that the squares of these changes in one round add up to.
        noise_multiplier: for a model: standard deviation of the Gaussian noise over the clipping norm.
        kept, levels: for a model: probability that a code is kept, not replaced uniformly, and the number of levels.
        seeded: whether it is drawn from a seed, and so a simulation without privacy.
    """

    observer: str
    tables: tuple[tuple[str, int], ...] = ()
    rounds: int = 1
    sampling: str = "none"
    rate: Fraction = Fraction(1)
    neighboring: str = "replace_one"
    clients: int = 1
    corrupted: int = 0
    lattice: tuple[int, ...] = ()
    shift: int = 0
    distance: Fraction = Fraction(0)
    noise_multiplier: Fraction | None = None
    kept: Fraction = Fraction(1)
    levels: int = 2
    seeded: bool = False

    @property
    def unit(self) -> str:
        """The unit of privacy: everything that a client ever reports on, or one record."""
        return "record" if self.observer == "model" or self.sampling == "poisson" else "client"

    @property
    def trust(self) -> str:
        """The trusted party: nobody ("local"), the aggregation protocol, or the trainer ("central")."""
        return {"reports": "local", "secure_sum": "secure_sum", "model": "central"}[self.observer]

    @property
    def kind(self) -> str:
        """The observer, or "noisy_sum" for a sum with integer noise, which needs proofs of its own."""
        return "noisy_sum" if self.shift else self.observer

    @property
    def assumptions(self) -> list[str]:
        """The assumptions of the claim besides its proof."""
        summed, sampled = self.trust == "secure_sum", self.sampling != "none"
        needed = {
            "distinct_rounds_use_fresh_randomness": True, "reports_are_drawn_from_the_tables": bool(self.tables),
            f"honest_clients>={self.clients - self.corrupted}": summed, "only_sums_are_seen": summed,
            "integers_are_bounded": self.shift > 0,
            "gaussian_noise_is_ideal": self.observer == "model", "gradients_are_clipped": self.observer == "model",
            # A sum hides one report among those of its own round, not among those of all who might have come.
            f"reports_in_every_sum>={self.clients}": summed and sampled,
            "participation_is_independent_of_data": sampled, "participation_is_secret": self.sampling == "poisson",
        }  # fmt: skip
        return sorted(name for name, holds in needed.items() if holds)

    def document(self) -> dict[str, object]:
        """For JSON."""
        found: dict[str, object] = {
            "observer": self.observer, "trust": self.trust, "neighboring": self.neighboring, "unit": self.unit,
            "tables": [{"sha256": digest, "coordinates": count} for digest, count in self.tables],
            "rounds": self.rounds, "sampling": {"kind": self.sampling, "rate": str(self.rate)},
            "randomness": "seeded" if self.seeded else "keystream", "assumptions": self.assumptions,
        }  # fmt: skip
        for name in KINDS[self.kind]:
            value = getattr(self, name)
            found[name] = (
                list(value)
                if name == "lattice"
                else value
                if isinstance(value, int)
                else str(value)
            )
        return found

    @staticmethod
    def read(value: object) -> ExactRelease:
        """From JSON; refuses fields that are unknown, contradict each other or do not follow from the others."""
        fields = Fields(value, "release")
        observer, sampling = (
            fields.text("observer", ("reports", "secure_sum", "model")),
            fields.fields("sampling"),
        )
        entries = [Fields(entry, "tables") for entry in fields.items("tables", 1000)]
        tables = [
            (table.digest("sha256"), table.integer("coordinates", 1, MOST)) for table in entries
        ]
        kind = "noisy_sum" if observer == "secure_sum" and fields.has("shift") else observer
        extra = {name: taken(fields, name) for name, taken in KINDS[kind].items()}
        r = ExactRelease(
            observer=observer, tables=tuple(tables), rounds=fields.integer("rounds", 1, MOST),
            sampling=sampling.text("kind", ("none", "revealed", "poisson")), rate=sampling.number("rate"),
            neighboring=fields.text("neighboring", ("replace_one", "add_or_remove_one")),
            seeded=fields.text("randomness", ("keystream", "seeded")) == "seeded", **extra,
        )  # fmt: skip
        if not (0 < r.rate <= 1) or (r.sampling == "none") != (r.rate == 1):
            raise Unreadable(f"sampling {r.sampling} does not match the rate {r.rate}")
        if (
            r.neighboring == "add_or_remove_one"
            and r.sampling != "poisson"
            and r.observer != "model"
        ):
            raise Unreadable(
                "one who is seen to be absent cannot be hidden: add_or_remove_one needs poisson sampling"
            )
        if r.observer != "model" and not r.tables:
            raise Unreadable("reports come from a table")
        if r.trust == "secure_sum" and not (r.corrupted < r.clients):
            raise Unreadable(
                f"corrupted is {r.corrupted}, not an integer from 0 to {r.clients - 1}"
            )
        if r.observer == "model" and (not r.noise_multiplier or not (0 < r.kept <= 1)):
            raise Unreadable(
                "a model needs a noise multiplier above 0 and a probability of keeping a code"
            )
        # One text per release: the trust, unit and assumptions that follow, fractions in lowest terms, nothing else.
        if r.document() != value:
            raise Unreadable(
                "the release holds unknown keys, or is not written as it follows from its own values"
            )
        return r


@final
@dataclass(frozen=True, kw_only=True)
class ExactClaim:
    """One statement about one release (or, without a release, about a problem that the statement describes).

    Arguments:
        release: what is released; None for lower bounds of designs.
        statement: one of those in docs/file-format.md, such as {"kind": "dp", "epsilon", "delta"}; numbers are exact.
    """

    release: ExactRelease | None
    statement: dict[str, Any]
    _stamp: object = field(default=None, repr=False, compare=False)

    def __getattr__(self, name: str) -> Any:
        """The fields of the release: observer, trust, neighboring, unit, rounds, seeded..."""
        if name.startswith("_") or self.release is None:
            raise AttributeError(name)
        return getattr(self.release, name)

    @property
    def epsilon(self) -> Fraction:
        """The claimed epsilon, exact."""
        return number(self.statement["epsilon"], "epsilon")

    @property
    def delta(self) -> Fraction:
        """The claimed delta, exact; 0 if the statement has none."""
        return number(self.statement.get("delta", 0), "delta")

    @property
    def certified(self) -> bool:
        """Whether `mezzotint.kernel.check` returned this object and it is unchanged since."""
        return self._stamp is not None and self._stamp == (_STAMP, self.sha256)

    def document(self) -> dict[str, object]:
        """As JSON, without a proof."""
        release = None if self.release is None else self.release.document()
        return {"format": FORMAT, "version": 1, "release": release, "statement": self.statement}

    @property
    def sha256(self) -> str:
        """The hash of the canonical claim, which its proof names."""
        return sha256(canonical(self.document()))

    @staticmethod
    def read(fields: Fields) -> ExactClaim:
        """From JSON; takes the keys of the claim and leaves all others."""
        if fields.text("format") != FORMAT or fields.integer("version", 0, MOST) != 1:
            raise Unreadable(f"not a claim of version 1 ({FORMAT})")
        raw = fields.take("release")
        release = None if raw is None else ExactRelease.read(raw)
        return ExactClaim(release=release, statement=fields.fields("statement").values)


_STAMP = object()


def stamp(claim: ExactClaim) -> ExactClaim:
    """Stamp a claim as certified; only `check` calls this, after its last comparison."""
    return replace(claim, _stamp=(_STAMP, claim.sha256))


@final
@dataclass(frozen=True)
class Target:
    """The statement to prove about a release: epsilon >= 0 at delta >= 0, or at the order of a Renyi statement."""

    release: ExactRelease
    epsilon: Fraction
    delta: Fraction
    order: Fraction | None

    @staticmethod
    def read(claim: ExactClaim, released: str, *kinds: str) -> Target:
        """Refuse kinds of releases or statements that the proof is not about."""
        release, fields = claim.release, Fields(claim.statement, "statement")
        if release is None or release.kind not in released.split():
            raise Refused("claim", f"this proof is about {released}")
        kind, epsilon = fields.text("kind", kinds), fields.number("epsilon")
        delta = fields.number("delta") if kind == "dp" else Fraction(0)
        order = fields.number("order") if kind == "renyi" else None
        fields.done()
        require(epsilon <= 10**6, "claim", "no guarantee is worth that epsilon", epsilon)
        return Target(release, epsilon, delta, order)


def words(claim: ExactClaim, reason: str = "") -> str:
    """One sentence about the claim: certified if `check` stamped it, else computed, with the reason.

    It consists of numbers that were read exactly and of words of this file. Numbers appear as they were checked, never
    rounded. Seeded draws protect nobody, checked or not.
    """
    promise = _bound(claim) if claim.release is None else _privacy(claim, claim.release)
    promise = f"{promise} (claim {claim.sha256[:16]})"
    if claim.release is not None and claim.release.seeded:
        return f"simulation; no privacy: {promise}, had the draws been secret"
    if claim.certified:
        return f"certified: {promise}, checked by version {VERSION} of mezzotint.kernel"
    return f"computed: {promise}" + (f" ({shown(reason, 1000)[1:-1]})" if reason else "")


def _exact(claim: ExactClaim, key: str) -> str:
    """A number of the statement as it is written there, once it has been read."""
    value = claim.statement.get(key)
    number(value, key)
    return str(value)


def _bound(claim: ExactClaim) -> str:
    """The sentence about a lower bound of designs."""
    stated = Fields(claim.statement, "statement")
    for key, only in (("kind", "lower_bound"), ("loss", "mse"), ("prior", "uniform")):
        stated.text(key, (only,))
    value, epsilon, levels = (_exact(claim, key) for key in ("value", "epsilon", "levels"))
    return (
        f"mean squared error of at least {value} for every unbiased {epsilon}-DP mechanism with {levels} levels, "
        "inputs uniform on [-1, 1] (on a range of width w: (w/2)**2 times as much)"
    )


def _privacy(claim: ExactClaim, release: ExactRelease) -> str:
    """The sentence about a release: the statement, for whom, what is seen, and what it assumes."""
    changes = {
        "replace_one": "replacing one record",
        "add_or_remove_one": "adding or removing one record",
    }
    change = changes[release.neighboring]
    if release.unit == "client":
        change = "replacing all data of one client"
    kind = Fields(claim.statement, "statement").text("kind", ("dp", "renyi"))
    epsilon = _exact(claim, "epsilon")
    if kind == "renyi":
        bound = f"Renyi divergence of order {_exact(claim, 'order')} at most {epsilon}"
    else:
        bound = f"({epsilon}, {_exact(claim, 'delta')})-differential privacy"
    assumed = ", ".join(release.assumptions).replace("_", " ").replace(">=", " at least ")
    return f"{bound} for {change}, {_seen(release)}; assumed: {assumed}"


def _seen(release: ExactRelease) -> str:
    """What an observer sees, in how many rounds, and who takes part."""
    summed = f"the secure sums of {release.clients} reports each ({release.corrupted} corrupted)"
    moved = f"move integers by {release.shift} and squares by {release.distance}"
    codes = f"codes of {release.levels} levels kept with probability {release.kept}"
    seen = {
        "reports": "every report",
        "secure_sum": summed,
        "noisy_sum": f"{summed}, whose clients {moved} and add noise",
        "model": f"every step, noise multiplier {release.noise_multiplier}, {codes}",
    }[release.kind]
    rounds = f"{release.rounds} round{'s' * (release.rounds != 1)}"
    drawn = [f"{count} from table {digest[:12]}" for digest, count in release.tables]
    if drawn:
        total = sum(count for _, count in release.tables)
        rounds += f" of {total} coordinate{'s' * (total != 1)} ({', '.join(drawn)})"
    manner = {
        "none": "",
        "revealed": f", taking part visibly with probability {release.rate}",
        "poisson": f", taking part in secret with probability {release.rate}",
    }[release.sampling]
    return f"to an observer of {seen}, in {rounds}{manner}"
