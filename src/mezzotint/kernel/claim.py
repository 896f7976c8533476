"""What is promised, to whom and about what: releases, claims, and the sentences about them.

`unit`, `trust` and `assumptions` follow from the release; a document that says otherwise is
refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, TypeAlias, final

from mezzotint.kernel.units import (
    Fields,
    Unreadable,
    canonical,
    number,
    printed,
    require,
    sha256,
    shown,
)

FORMAT = "mezzotint-claim"
VERSION = 1
"""Of this kernel, as its sentences name it."""

MOST = 10**12
"""Rounds, coordinates or clients."""

MOST_RECORDS = 100
"""Records of one user."""

MOST_EPSILON = 10**6
"""No guarantee is worth a larger one."""

Reader: TypeAlias = Callable[[Fields, str], Any]


def _whole(least: int, most: int = MOST) -> Reader:
    """A reader of integers in [least, most]."""
    return lambda fields, key: fields.integer(key, least, most)


_MODEL: dict[str, Reader] = {
    "noise_multiplier": Fields.number,
    "kept": Fields.number,
    "levels": _whole(2, 2**16),
}
# Kinds of releases, and the fields that each has besides the common ones.
KINDS: dict[str, dict[str, Reader]] = {
    "reports": {},
    "memoised": {"distinct": _whole(1)},
    "secure_sum": {
        "clients": _whole(1),
        "corrupted": _whole(0),
        "lattice": lambda fields, key: tuple(fields.integers(key)),
    },
    "model": _MODEL,
    "model_of_users": {**_MODEL, "records_per_user": _whole(2, MOST_RECORDS)},
}
OBSERVERS = {
    "reports": "local",
    "secure_sum": "secure_sum",
    "model": "central",
}
"""Who is trusted against each observer: nobody, the aggregation protocol, or the trainer."""

SAMPLINGS = ("none", "public", "poisson")
NEIGHBORINGS = ("replace_one", "add_or_remove_one")


LOWER_BOUND = {"kind": "lower_bound", "loss": "mse", "prior": "uniform"}
"""What every statement about a lower bound of designs says, besides its numbers."""

VARIANTS = {"memoised": "reports", "model_of_users": "model"}
"""A release with fields of its own -> its observer: what is assumed follows from the observer, what
is proved from the variant."""


@final
@dataclass(frozen=True, kw_only=True)
class ExactRelease:
    """The release over all rounds, and its observer, in the words of `mezzotint.privacy.Release`.

    Arguments:
        observer: "reports": every report is seen; "secure_sum": only the sums of integers over
            clients; "model": every noisy, quantized gradient step of a training run.
        tables: (sha256, coordinates) of each mechanism, where coordinates is the number of its
            reports in a round.
        rounds: their number; they may be chosen adaptively.
        sampling, rate: who takes part: "none" (all), "public" (at random, seen), "poisson" (in
            secret).
        neighboring: how two neighbouring data sets differ.
        distinct: for reports: 0 if each is drawn afresh; else reports of equal values are copies,
            and a client has at most this many different values. Neighbours then have equal values
            in the same rounds.
        clients, corrupted: for a sum: how many reports every sum adds up, whoever takes part, and
            how many of these add no honest randomness.
        lattice: for a sum: the integer that represents each level in use, increasing from 0.
        noise_multiplier: for a model: standard deviation of the Gaussian noise over the clipping
            norm.
        kept, levels: for a model: probability that a code is kept, not replaced uniformly, and the
            number of levels.
        records_per_user: for a model: 1 if a record is protected; else a user with at most this
            many.
        seeded: whether it is drawn from a seed, and so a simulation without privacy.
    """

    observer: str
    tables: tuple[tuple[str, int], ...] = ()
    rounds: int = 1
    sampling: str = "none"
    rate: Fraction = Fraction(1)
    neighboring: str = "replace_one"
    distinct: int = 0
    clients: int = 1
    corrupted: int = 0
    lattice: tuple[int, ...] = ()
    noise_multiplier: Fraction | None = None
    kept: Fraction = Fraction(1)
    levels: int = 2
    records_per_user: int = 1
    seeded: bool = False

    @property
    def unit(self) -> str:
        """The unit of privacy: all that a client ever reports on, a record, or a user's records."""
        if self.records_per_user > 1:
            return "user"
        if self.observer == "model" or self.sampling == "poisson":
            return "record"
        return "client"

    @property
    def trust(self) -> str:
        """The trusted party: nobody ("local"), the aggregation, or the trainer ("central")."""
        return OBSERVERS[self.observer]

    @property
    def kind(self) -> str:
        """The key of `KINDS`: the observer, or a variant with fields of its own."""
        if self.distinct:
            return "memoised"
        if self.records_per_user > 1:
            return "model_of_users"
        return self.observer

    @property
    def only_table(self) -> tuple[str, int]:
        """The hash and the coordinates of the table of a release that has one."""
        require(len(self.tables) == 1, "tables", "this proof is about one table")
        return self.tables[0]

    @property
    def independent_rounds(self) -> int:
        """Rounds in which reports are drawn independently: memoised ones repeat earlier ones."""
        return self.distinct or self.rounds

    @property
    def assumptions(self) -> list[str]:
        """The assumptions of the claim besides its proof."""
        summed = self.observer == "secure_sum"
        sampled = self.sampling != "none"
        memoised = self.distinct > 0
        central = self.observer == "model"
        secret = self.sampling == "poisson"
        replaced = secret and self.observer == "reports"
        applicable = {
            "distinct_rounds_use_fresh_randomness": not memoised,
            "reports_of_equal_values_are_copies": memoised,
            "neighbours_have_equal_values_in_the_same_rounds": memoised,
            f"distinct_values<={self.distinct}": memoised,
            "reports_are_drawn_from_the_tables": bool(self.tables),
            f"honest_clients>={self.clients - self.corrupted}": summed,
            # A sum hides a report among those of its own round, not of all who might have come.
            f"reports_in_every_sum>={self.clients}": summed and sampled,
            "only_sums_are_seen": summed,
            "gaussian_noise_is_ideal": central,
            "gradients_are_clipped": central,
            # Theorem A contracts what is known of a step by its codes; a momentum, say, tells more.
            "steps_depend_on_earlier_ones_by_released_codes_alone": self.kept < 1,
            f"records_per_user<={self.records_per_user}": self.records_per_user > 1,
            "participation_is_independent_of_data": sampled,
            "participation_is_secret": secret,
            "absent_records_leave_reports_as_if_drawn_for_others": replaced,
        }
        return sorted(assumption for assumption, applies in applicable.items() if applies)

    def document(self) -> dict[str, object]:
        """For JSON."""
        tables = [
            {"sha256": digest, "coordinates": coordinates} for digest, coordinates in self.tables
        ]
        content: dict[str, object] = {
            "observer": self.observer,
            "trust": self.trust,
            "neighboring": self.neighboring,
            "unit": self.unit,
            "tables": tables,
            "rounds": self.rounds,
            "sampling": {"kind": self.sampling, "rate": str(self.rate)},
            "randomness": "seeded" if self.seeded else "keystream",
            "assumptions": self.assumptions,
        }
        for name in KINDS[self.kind]:
            value = getattr(self, name)
            content[name] = {tuple: list, int: int}.get(type(value), str)(value)  # pyright: ignore[reportUnknownArgumentType]
        return content

    @staticmethod
    def read(value: object) -> ExactRelease:
        """From JSON; refuses fields that are unknown or do not agree with the others."""
        fields = Fields(value, "release")
        observer = fields.text("observer", tuple(OBSERVERS))
        sampling = fields.fields("sampling")
        tables: list[tuple[str, int]] = []
        for document in fields.items("tables", 1000):
            table = Fields(document, "tables")
            tables.append((table.digest("sha256"), table.integer("coordinates", 1, MOST)))
        kind = observer
        if fields.has("distinct"):
            kind = "memoised"
        if fields.has("records_per_user"):
            kind = "model_of_users"
        specific = {name: reader(fields, name) for name, reader in KINDS[kind].items()}
        release = ExactRelease(
            observer=observer,
            tables=tuple(tables),
            rounds=fields.integer("rounds", 1, MOST),
            sampling=sampling.text("kind", SAMPLINGS),
            rate=sampling.number("rate"),
            neighboring=fields.text("neighboring", NEIGHBORINGS),
            seeded=fields.text("randomness", ("keystream", "seeded")) == "seeded",
            **specific,
        )
        _require_consistent(release)
        # One text per release: what follows from it, fractions in lowest terms, nothing else.
        if release.document() != value:
            remedy = "is not written as it follows from its own values"
            raise Unreadable(f"the release holds unknown keys, or {remedy}")
        return release


def _require_consistent(release: ExactRelease) -> None:
    """Refuse a release whose fields contradict each other, or about which nothing is proved."""
    if VARIANTS.get(release.kind, release.observer) != release.observer:
        raise Unreadable("its observer does not see such a release")
    central = release.observer == "model"
    everybody = release.sampling == "none"
    if not (0 < release.rate <= 1) or everybody != (release.rate == 1):
        raise Unreadable(
            f"sampling {release.sampling} does not match the rate {shown(release.rate)}"
        )
    present = release.neighboring == "replace_one"
    hides_absence = release.sampling == "poisson" or central
    if not (present or hides_absence):
        raise Unreadable(
            "one who is seen to be absent cannot be hidden: add_or_remove_one needs poisson sampling"
        )
    if central == bool(release.tables):
        raise Unreadable("reports come from a table, models from none")
    if not (release.corrupted < release.clients):
        raise Unreadable(
            f"corrupted is {release.corrupted}, not an integer from 0 to {release.clients - 1}"
        )
    if not (release.distinct <= release.rounds and (everybody or not release.distinct)):
        raise Unreadable(
            "memoised reports have at most one value a round, and everybody takes part"
        )
    if central and (not release.noise_multiplier or not 0 < release.kept <= 1):
        raise Unreadable(
            "a model needs a noise multiplier above 0 and a probability of keeping a code"
        )


@final
@dataclass(frozen=True, kw_only=True)
class ExactClaim:
    """One statement about one release, or about a problem that the statement describes.

    Arguments:
        release: what is released; None for lower bounds of designs and for profiles of one
            database.
        statement: one of those in docs/file-format.md, such as {"kind": "dp", "epsilon", "delta"};
            numbers are exact.
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
        return self._stamp is not None and self._stamp == (
            _STAMP,
            self.sha256,
        )

    def document(self) -> dict[str, object]:
        """As JSON, without a proof."""
        release = None if self.release is None else self.release.document()
        return {
            "format": FORMAT,
            "version": 1,
            "release": release,
            "statement": self.statement,
        }

    @property
    def sha256(self) -> str:
        """The hash of the canonical claim, which its proof names."""
        return sha256(canonical(self.document()))

    @staticmethod
    def read(fields: Fields) -> ExactClaim:
        """From JSON; takes the keys of the claim and leaves all others."""
        fields.text("format", (FORMAT,))
        fields.integer("version", 1, 1)
        document = fields.take("release")
        release = None if document is None else ExactRelease.read(document)
        return ExactClaim(release=release, statement=fields.fields("statement").values)


_STAMP = object()


def stamp(claim: ExactClaim) -> ExactClaim:
    """Stamp a claim as certified; only `check` calls this, after its last comparison."""
    return replace(claim, _stamp=(_STAMP, claim.sha256))


@final
@dataclass(frozen=True)
class Target:
    """The statement to prove about a release: epsilon >= 0 at delta >= 0, or at a Renyi order."""

    release: ExactRelease
    epsilon: Fraction
    delta: Fraction
    order: Fraction | None

    def __post_init__(self) -> None:
        require(0 <= self.epsilon <= MOST_EPSILON, "claim", "epsilon is out of range", self.epsilon)
        require(self.delta >= 0, "claim", "delta is negative", self.delta)

    @staticmethod
    def read(claim: ExactClaim, kinds: str, *statements: str) -> Target:
        """Refuse kinds of releases or statements that the proof is not about."""
        release = claim.release
        fields = Fields(claim.statement, "statement")
        require(
            release is not None and release.kind in kinds.split(),
            "claim",
            f"this proof is about {kinds}",
        )
        assert release is not None
        statement = fields.text("kind", statements)
        epsilon = fields.number("epsilon")
        delta = fields.number("delta") if statement == "dp" else Fraction(0)
        order = fields.number("order") if statement == "renyi" else None
        fields.done()
        return Target(release, epsilon, delta, order)


def words(claim: ExactClaim, reason: str = "") -> str:
    """One sentence about the claim: certified if `check` stamped it, else computed, and why.

    It consists of numbers that were read exactly and of words of this file. Numbers appear as they
    were checked, never rounded. Seeded draws protect nobody, checked or not.
    """
    if claim.release is not None:
        promise = _privacy(claim, claim.release)
    elif claim.statement.get("kind") == "profile":
        promise = _profile(claim)
    else:
        promise = _bound(claim)
    promise = f"{promise} (claim {claim.sha256[:16]})"
    if getattr(claim, "seeded", False):
        return f"simulation; no privacy: {promise}, had the draws been secret"
    if claim.certified:
        return f"certified: {promise}, checked by version {VERSION} of mezzotint.kernel"
    if reason:
        promise += f" ({printed(reason, 1000)})"
    return f"computed: {promise}"


def _exact(claim: ExactClaim, key: str) -> str:
    """A number of the statement as it is written there, once it has been read."""
    value = claim.statement.get(key)
    number(value, key)
    return str(value)


def _bound(claim: ExactClaim) -> str:
    """The sentence about a lower bound of designs."""
    stated = Fields(claim.statement, "statement")
    for key, constant in LOWER_BOUND.items():
        stated.text(key, (constant,))
    value = _exact(claim, "value")
    epsilon = _exact(claim, "epsilon")
    levels = _exact(claim, "levels")
    mechanisms = f"unbiased {epsilon}-DP mechanism with {levels} levels"
    inputs = "inputs uniform on [-1, 1] (on a range of width w: (w/2)**2 times as much)"
    return f"mean squared error of at least {value} for every {mechanisms}, {inputs}"


def _profile(claim: ExactClaim) -> str:
    """The sentence about the histogram of a sample of one database."""
    first = _exact(claim, "first")
    second = _exact(claim, "second")
    sampled = _exact(claim, "sampled")
    epsilon = _exact(claim, "epsilon")
    log10_delta = _exact(claim, "log10_delta")
    database = f"the database of {first} and {second} records of two types"
    histogram = f"the histogram of {sampled} records sampled from it without replacement"
    # In brackets: 10**-30/100 would read as a hundredth of 10**-30.
    guarantee = f"({epsilon}, 10**({log10_delta}))-indistinguishability from every neighbour"
    difference = "one record replaced by one of the other type"
    return f"{guarantee} of {database}, {difference}, to an observer of {histogram}"


def _privacy(claim: ExactClaim, release: ExactRelease) -> str:
    """The sentence about a release: the statement, for whom, what is seen, and what it assumes."""
    changes = {
        "replace_one": "replacing",
        "add_or_remove_one": "adding or removing",
    }
    units = {
        "client": "all data of one client",
        "record": "one record",
        "user": f"all records, at most {release.records_per_user}, of one user",
    }
    statement = Fields(claim.statement, "statement").text("kind", ("dp", "renyi"))
    epsilon = _exact(claim, "epsilon")
    if statement == "renyi":
        guarantee = f"Renyi divergence of order {_exact(claim, 'order')} at most {epsilon}"
    else:
        guarantee = f"({epsilon}, {_exact(claim, 'delta')})-differential privacy"
    neighbours = f"{changes[release.neighboring]} {units[release.unit]}"
    assumptions = ", ".join(release.assumptions).replace("_", " ")
    assumptions = assumptions.replace(">=", " at least ").replace("<=", " at most ")
    return f"{guarantee} for {neighbours}, {_seen(release)}; assumed: {assumptions}"


def _seen(release: ExactRelease) -> str:
    """What an observer sees, in how many rounds, and who takes part."""
    independence = "independently of all others"
    summed = (
        f"the secure sums of {release.clients} reports each ({release.corrupted} corrupted), drawn "
        "independently"
    )
    if release.lattice:
        summed += (
            f", whose {len(release.lattice)} levels stand for the integers "
            f"{shown(release.lattice[:100], 1000)}, the last one for {release.lattice[-1]}"
        )
    codes = f"codes of {release.levels} levels kept with probability {release.kept}"
    if release.kept < 1:
        codes += " and else replaced evenly by the others"
    model = f"every step, noise multiplier {release.noise_multiplier}, {codes}"
    observation = {
        "reports": f"every report, drawn {independence}",
        "memoised": f"every report, memoised for at most {release.distinct} distinct values, each "
        f"drawn {independence}",
        "secure_sum": summed,
        "model": model,
        "model_of_users": model,
    }[release.kind]
    rounds = f"{release.rounds} round{'s' * (release.rounds != 1)}"
    sources: list[str] = []
    total = 0
    for digest, coordinates in release.tables:
        sources.append(f"{coordinates} from table {digest[:12]}")
        total += coordinates
    if sources:
        rounds += f" of {total} coordinate{'s' * (total != 1)} ({', '.join(sources)})"
    participation = {
        "none": "",
        "public": f", taking part visibly with probability {release.rate}, {independence}",
        "poisson": f", taking part in secret with probability {release.rate}, {independence}",
    }[release.sampling]
    return f"to an observer of {observation}, in {rounds}{participation}"
