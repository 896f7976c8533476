"""The record of what was released: charged before it happens, shared by processes, whole after any crash.

One rule makes crashes harmless: charge first, release afterwards. A charge is on disk, in the file and in its folder,
before `charge` or `reserve` returns; so whatever was released is on record, and what a crash leaves on record without
a release only overstates. What costs more than a program's author may think is charged too: a run that was killed and
started again draws fresh noise, and is a second release; so every attempt counts.

Two questions are kept apart, because their answers rest on different theorems (docs/proofs/privacy-composition.md,
"Budgets and readings"):

- *May this release still happen?* (`reserve`) is a filter: the budget is fixed beforehand, and amounts may be chosen
  in the light of everything released earlier.
- *What has been spent?* (`spent`, `worst`) is an odometer's reading, at a moment that may depend on the data. Only
  plain sums are offered, for those hold whenever they are read.
"""

from __future__ import annotations

import math
import os
import re
import secrets
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Protocol, final

from mezzotint.core.errors import BudgetError, ParameterError
from mezzotint.core.files import Append, AppendLog
from mezzotint.core.records import JsonObject, above, plain

FORMAT = "mezzotint-ledger"
VERSION = 2
GLOBAL = "*"
"""The name under which releases about everyone stand."""


class Priced(Protocol):
    """Anything with an epsilon and a delta, such as a claim."""

    @property
    def epsilon(self) -> float: ...

    @property
    def delta(self) -> float: ...


def _upwards(value: float | Fraction) -> float:
    """The float at or just above a number of any kind."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    return math.nextafter(nearest, math.inf) if nearest < value else nearest


def _amount(parameter: str, value: float | Fraction) -> float:
    try:
        amount = _upwards(value)
        largest = 1.0 if parameter == "delta" else math.inf
        if 0 <= amount <= largest and not isinstance(value, str):
            return amount
    except (TypeError, ValueError):
        pass
    remedy = (
        "need a probability in [0, 1]"
        if parameter == "delta"
        else "need a number >= 0 (inf is allowed)"
    )
    raise ParameterError(parameter, value, remedy)


@final
@dataclass(frozen=True, kw_only=True)
class Charge:
    """One release and its price.

    Arguments:
        identity: names what is released; charging it again is another attempt at the same thing, and costs again.
        client: the person (or other unit) whose budget it takes, or `GLOBAL` for everyone's. Names are compared in
            Unicode's normal form C.
        epsilon, delta: of one attempt, as its claim says; epsilon may be inf.
        description: for people.
        fingerprint: SHA-256, in hexadecimal, of exactly the bits that go out, if they were made before they were
            charged. The same identity with the same fingerprint is the same release, and is charged once.

    Raises:
        ParameterError: an empty name, or an amount outside its range.

    Example:
        >>> charge = mz.privacy.Charge(identity="ages, May", client="ann", epsilon=1.0, delta=0.0)
        >>> ledger = mz.privacy.Ledger()
        >>> entry = ledger.reserve(charge, budget=(2.0, 0.0))
        >>> round(ledger.spent("ann").left(2.0), 6)
        1.0
    """

    identity: str
    client: str
    epsilon: float
    delta: float
    description: str = ""
    fingerprint: str = ""

    def __post_init__(self) -> None:
        for name in ("identity", "client", "description", "fingerprint"):
            if not isinstance(
                getattr(self, name), str
            ):  # values come from files and from untyped code
                raise ParameterError(name, getattr(self, name), "need text")
        if not self.identity or not self.client:
            raise ParameterError(
                "identity", self.identity, "a release and its client need non-empty names"
            )
        if self.fingerprint and not re.fullmatch("[0-9a-f]{64}", self.fingerprint):
            raise ParameterError(
                "fingerprint", self.fingerprint, "need the 64 hexadecimal digits of a SHA-256"
            )
        object.__setattr__(self, "client", _normal(self.client))
        object.__setattr__(self, "identity", _normal(self.identity))
        object.__setattr__(self, "epsilon", _amount("epsilon", self.epsilon))
        object.__setattr__(self, "delta", _amount("delta", self.delta))

    @classmethod
    def of(
        cls,
        claim: Priced,
        *,
        identity: str,
        client: str = GLOBAL,
        description: str = "",
        fingerprint: str = "",
    ) -> Charge:
        """The release that a claim speaks of, at its price; a claim of a seeded run is refused."""
        if getattr(claim, "seeded", False):
            raise ParameterError(
                "claim", str(claim), "a seeded run is not private; it has no price in epsilon"
            )
        return cls(
            identity=identity, client=client, epsilon=claim.epsilon, delta=claim.delta,
            description=description or str(claim), fingerprint=fingerprint,
        )  # fmt: skip

    @property
    def price(self) -> tuple[str, float, float]:
        """The payer and the price."""
        return self.client, self.epsilon, self.delta


@final
@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of a ledger: a release that may have happened.

    Arguments:
        release: what was charged.
        attempt: 1 for the first charge of that identity, 2 for the next...
        token: names this charge in all ledgers that it is merged into.
        withdrawn: why it costs nothing after all; empty for a charge that counts.

    Example:
        >>> ledger = mz.privacy.Ledger()
        >>> entry = ledger.charge(mz.privacy.Charge(identity="May", client="ann", epsilon=1.0, delta=0.0))
        >>> ledger.withdraw(entry, reason="nothing was sent")
        >>> ledger.spent("ann").epsilon
        0.0
    """

    release: Charge
    attempt: int
    token: str
    withdrawn: str = ""


@final
@dataclass(frozen=True, kw_only=True)
class Spent:
    """The cost of a list of releases together: an odometer's reading.

    Arguments:
        epsilon, delta: their sums, rounded up.
        releases: their number.
        method: "basic composition".

    Guarantees: epsilon holds at whatever moment it is read, a moment chosen in the light of the releases included, and
        however their amounts were chosen, up to the delta that was fixed beforehand as the most that could be spent;
        the sum in `delta` is that bound where amounts do not depend on what was released.
    Source: Rogers, Roth, Ullman and Vadhan 2016. Advanced composition read at such a moment is not valid.

    Example:
        >>> ledger = mz.privacy.Ledger()
        >>> entry = ledger.charge(mz.privacy.Charge(identity="May", client="ann", epsilon=0.5, delta=0.0))
        >>> spent = ledger.spent("ann")
        >>> spent.epsilon, spent.releases, spent.left(2.0) < 1.5
        (0.5, 1, True)
    """

    epsilon: float
    delta: float
    releases: int
    method: str = "basic composition"

    def left(self, budget: float) -> float:
        """The remainder of an epsilon, rounded down; 0 where it is exceeded."""
        return max(0.0, math.nextafter(budget - self.epsilon, -math.inf))

    def __str__(self) -> str:
        many = "1 release" if self.releases == 1 else f"{self.releases} releases"
        return (
            f"epsilon {above(self.epsilon)} and delta {above(self.delta)} in {many} ({self.method})"
        )


@dataclass
class _Total:
    """Exact sums of charges."""

    epsilon: Fraction = field(default_factory=Fraction)
    squares: Fraction = field(default_factory=Fraction)
    delta: Fraction = field(default_factory=Fraction)
    infinite: int = 0
    count: int = 0

    def add(self, release: Charge, sign: int = 1) -> None:
        self.count += sign
        self.delta += sign * Fraction(release.delta)
        if math.isinf(release.epsilon):
            self.infinite += sign
            return
        epsilon = Fraction(release.epsilon)
        self.epsilon += sign * epsilon
        self.squares += sign * epsilon**2

    def plus(self, other: _Total) -> _Total:
        return _Total(**{name: value + getattr(other, name) for name, value in vars(self).items()})

    def spent(self) -> Spent:
        epsilon = math.inf if self.infinite else _upwards(self.epsilon)
        return Spent(epsilon=epsilon, delta=min(1.0, _upwards(self.delta)), releases=self.count)

    def within(self, epsilon: float, delta: float, slack: float) -> bool:
        """The filter: whether these charges keep to a budget that was fixed before the first of them.

        With slack, a part of delta, the martingale of losses may end above advanced composition's bound with that
        probability (Whitehouse, Ramdas, Rogers and Wu 2023, Theorem 1). The slack counts whichever bound holds: which
        one does is seen at the end only, and may depend on the losses.
        """
        if self.delta + Fraction(slack) > Fraction(delta):
            return False
        if math.isinf(epsilon):
            return True
        return not self.infinite and (
            self.epsilon <= Fraction(epsilon) or self._advanced(slack) <= epsilon
        )

    def _advanced(self, slack: float) -> float:
        if slack == 0:
            return math.inf
        squares = _upwards(self.squares)
        return (squares / 2 + math.sqrt(2 * math.log(1 / slack) * squares)) * (1 + 2.0**-46)


def _who(client: str) -> str:
    return "everyone" if client == GLOBAL else f"client {client!r}"


def _sum(releases: Iterable[Charge]) -> _Total:
    total = _Total()
    for release in releases:
        total.add(release)
    return total


def _by_client(releases: Iterable[Charge]) -> dict[str, _Total]:
    sums: dict[str, _Total] = {}
    for release in releases:
        sums.setdefault(release.client, _Total()).add(release)
    return sums


def compose_releases(releases: Iterable[Charge]) -> Spent:
    """The total cost of releases, if any, known only by their (epsilon, delta): exact sums, rounded up once."""
    return _sum(releases).spent()


def admits(releases: Iterable[Charge], *, epsilon: float, delta: float, slack: float = 0.0) -> bool:
    """The filter by itself: whether releases, chosen adaptively, keep to a budget fixed before the first of them.

    They are all that one person pays for, in any order. Advanced composition may spend the `slack`, a part of delta
    that is fixed as the budget is; 0 keeps to plain sums.
    """
    return _sum(releases).within(
        _amount("epsilon", epsilon), _amount("delta", delta), _checked_slack(slack)
    )


@final
class Ledger:
    """Charges, in a file that any number of processes may share.

    Arguments:
        path: JSON-lines file, made when absent and read when present; None keeps the ledger in memory.
        slack: part of a budget's delta that `reserve` may spend on advanced composition. The first reservation then
            fixes the budget for good, as the theorem demands.

    Raises:
        ParameterError: the folder does not exist, or a slack outside [0, 1).
        FileFormatError: the file is not a ledger of this version, or was edited or damaged.
        StorageError: the file cannot be written, synced or locked; so nothing may be released.

    Guarantees:
        `charge` and `reserve` return after the charge is on disk, the file's name included. When they raise, nothing
        may be released.
        Cut at any byte, the file loads to a state that charges at least every release whose charge had returned; what
        was cut is on record in `repairs`, and a RepairWarning says so.
        Reading, deciding and charging happen under one lock: releases of processes that reserve at the same time never
        exceed a budget together, and no charge is lost. Every answer counts what others have charged up to then.
        Each attempt is charged, unless its bits are proved to be those of an earlier one (`Charge.fingerprint`).

    Example:
        >>> ledger = Ledger()
        >>> weekly = Charge(identity="2026-w47", client="ann", epsilon=0.5, delta=0.0)
        >>> ledger.reserve(weekly, budget=(1.0, 1e-6)).attempt
        1
        >>> ledger.reserve(weekly, budget=(1.0, 1e-6)).attempt  # the run died and is started again
        2
        >>> ledger.spent("ann").epsilon
        1.0
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, slack: float = 0.0) -> None:
        self.slack = _checked_slack(slack)
        self._charges: dict[str, Entry] = {}
        self._by_identity: dict[str, list[str]] = {}
        self._totals: dict[str, _Total] = {GLOBAL: _Total()}
        self._fixed: tuple[float, float, float] | None = None
        header = {"format": FORMAT, "version": VERSION}
        self._log = AppendLog(path, header=header, take=self._take, what="ledger")
        self.path = self._log.path

    def __repr__(self) -> str:
        return f"Ledger({str(self.path) if self.path else None!r}, {len(self._charges)} charges)"

    # Charging --------------------------------------------------------------------------------------------------

    def charge(self, release: Charge) -> Entry:
        """Charges a release BEFORE it happens, whatever it costs.

        Returns: the charge; an earlier one only if identity and fingerprint prove that its bits are the same.

        Raises:
            ParameterError: the identity was charged with another price or client.
            StorageError: the charge is not on disk, so the release must not happen.
        """
        with self._log.transaction() as append:
            self._check_prices([release])
            return self._charge_all([release], append)[0]

    def reserve(self, release: Charge, *, budget: tuple[float, float]) -> Entry:
        """Charges a release if everybody who pays for it keeps to the budget; in one step, under the ledger's lock.

        Arguments:
            release: BEFORE it happens.
            budget: the (epsilon, delta) that no person's releases may exceed together, fixed beforehand.

        Returns: the charge, as `charge` does.

        Raises:
            BudgetError: it does not fit; nothing was charged and nothing may be released.
            ParameterError, StorageError: as `charge`; with slack, also a budget other than the one that was fixed, or
                one to be fixed after the first charge.

        Guarantees: if every release was reserved so, all of them together are (epsilon, delta)-differentially private
            for each person, also when what is released, at what price, and whether at all, was decided in the light of
            all earlier releases.
        """
        return self.reserve_all([release], budget=budget)[0]

    def reserve_all(
        self, releases: Iterable[Charge], *, budget: tuple[float, float]
    ) -> tuple[Entry, ...]:
        """Charges several releases, all or none: see `reserve`. One charge for each, in turn."""
        epsilon, delta = _checked_budget(budget)
        wanted = list(releases)
        with self._log.transaction() as append:
            fixes = self._check_fixed(epsilon, delta)
            fresh = [one for one in wanted if self._same_bits(one) is None]
            self._check_prices(fresh)
            person = self._exceeding(fresh, epsilon, delta)
            if person is not None:
                raise BudgetError(self._refusal(fresh, person, epsilon, delta))
            if fixes:
                append({"budget": plain(epsilon), "delta": delta, "slack": self.slack})
            return self._charge_all(wanted, append)

    def withdraw(self, charge: Entry, *, reason: str) -> None:
        """Records that nothing of a charged release ever left, so that it no longer costs anything.

        For the program that made the charge and knows, say of an error before the first byte was sent. After a crash
        nobody does, and the charge stays.

        Raises:
            ParameterError: a charge of another ledger, one withdrawn already, or no reason.
        """
        if not reason:
            raise ParameterError("reason", reason, "say why nothing can have left")
        with self._log.transaction() as append:
            known = self._charges.get(charge.token)
            if known is None or known.withdrawn:
                raise ParameterError(
                    "charge", charge.token, "name one that is in this ledger, once"
                )
            append({"withdraw": charge.token, "reason": reason})

    def merge(self, other: Ledger) -> None:
        """Charges everything another ledger (a parallel shard) holds; a charge that is in both counts once.

        The same identity charged in two ledgers is two charges, for it may have been released twice.

        Raises:
            ParameterError: an identity stands in both with different prices; nothing is merged.
        """
        theirs = other.charges
        with self._log.transaction() as append:
            new = [charge for charge in theirs if charge.token not in self._charges]
            self._check_prices([charge.release for charge in new])
            append(*(_as_line(charge.release, charge.token) for charge in new))
            for charge in theirs:
                if charge.withdrawn and not self._charges[charge.token].withdrawn:
                    append({"withdraw": charge.token, "reason": charge.withdrawn})

    # Reading ---------------------------------------------------------------------------------------------------

    @property
    def charges(self) -> tuple[Entry, ...]:
        """All charges in order, withdrawn ones too."""
        with self._log.transaction():
            return tuple(self._charges.values())

    @property
    def releases(self) -> tuple[Charge, ...]:
        """The releases that count, in order; a release that was attempted twice is listed twice."""
        return tuple(charge.release for charge in self.charges if not charge.withdrawn)

    @property
    def repairs(self) -> tuple[str, ...]:
        """The damage by a crash that this object found when it read the file, and how it was mended."""
        return tuple(self._log.repairs)

    def spent(self, client: str = GLOBAL) -> Spent:
        """The cost to one client: of their own releases and those about everyone. `GLOBAL`: the latter only.

        Use `worst` for the largest total over persons, `reserve` to keep to a budget.
        """
        with self._log.transaction():
            return self._total(client).spent()

    def worst(self) -> Spent:
        """The largest totals over all clients, including one without charges of their own."""
        with self._log.transaction():
            each = [self._total(client).spent() for client in self._totals]
            count = sum(total.count for total in self._totals.values())
            epsilon, delta = max(one.epsilon for one in each), max(one.delta for one in each)
            return Spent(epsilon=epsilon, delta=delta, releases=count)

    def by_client(self) -> dict[str, Spent]:
        """The cost to each client in the ledger (see `spent`); `GLOBAL` comes first."""
        with self._log.transaction():
            return {client: self._total(client).spent() for client in self._totals}

    @property
    def fixed(self) -> tuple[float, float, float] | None:
        """The budget that the first reservation with slack fixed: epsilon, delta, and the slack in it."""
        self._log.refresh()
        return self._fixed

    def would_exceed(
        self,
        epsilon: float,
        delta: float,
        *,
        client: str | None = None,
        release: Charge | None = None,
    ) -> bool:
        """Whether somebody's releases, with `release` added if given, exceed a budget of (epsilon, delta).

        Arguments:
            epsilon, delta: the budget.
            client: look at this person too (`GLOBAL`: one who paid for releases about everyone alone).
            release: look at all who would pay for it; without client and release, at everyone.

        The answer may be outdated when it is used: only `reserve` decides and charges in one step.
        """
        checked = _checked_budget((epsilon, delta))
        with self._log.transaction():
            added = [] if release is None or self._same_bits(release) is not None else [release]
            everybody = self._totals if client is None and release is None else ()
            named = () if client is None else (_normal(client),)
            return self._exceeding(added, *checked, also=(*everybody, *named)) is not None

    # Inside a transaction --------------------------------------------------------------------------------------

    def _total(self, client: str) -> _Total:
        everyone = self._totals[GLOBAL]
        own = self._totals.get(_normal(client)) if client != GLOBAL else None
        return everyone if own is None else everyone.plus(own)

    def _exceeding(
        self, added: list[Charge], epsilon: float, delta: float, *, also: Iterable[str] = ()
    ) -> str | None:
        """A client whose total would exceed the budget with these releases added; None if there is none."""
        sums = _by_client(added)
        persons = {*also, *sums, *(self._totals if GLOBAL in sums else ())}
        totals = ((person, self._with(sums, person)) for person in persons)
        return min(
            (person for person, total in totals if not total.within(epsilon, delta, self.slack)),
            default=None,
        )

    def _with(self, sums: dict[str, _Total], person: str) -> _Total:
        total = self._total(person)
        for client in {GLOBAL, person} & sums.keys():
            total = total.plus(sums[client])
        return total

    def _refusal(self, added: list[Charge], person: str, epsilon: float, delta: float) -> str:
        total = self._with(_by_client(added), person).spent()
        theirs = next(one for one in reversed(added) if one.client in (person, GLOBAL))
        slack = f", {above(self.slack)} of it slack" if self.slack else ""
        return (
            f"release {theirs.identity!r} exceeds the budget: with it, {_who(person)} would have spent {total}; the "
            f"budget is epsilon {above(epsilon)} and delta {above(delta)}{slack}. Nothing was charged, and nothing "
            "may be released"
        )

    def _check_fixed(self, epsilon: float, delta: float) -> bool:
        """Whether this reservation fixes the filter's budget; raises when one was fixed otherwise."""
        wanted = (epsilon, delta, self.slack)
        if self._fixed is None:
            if self.slack and self._charges:
                remedy = "advanced composition needs a budget fixed before the first charge; use slack=0 here"
                raise ParameterError("slack", self.slack, remedy)
            return self.slack > 0
        if self._fixed != wanted:
            remedy = f"epsilon, delta and slack were fixed at {self._fixed} before the first charge; use those"
            raise ParameterError("budget", wanted, remedy)
        return False

    def _same_bits(self, release: Charge) -> Entry | None:
        earlier = (self._charges[token] for token in self._by_identity.get(release.identity, ()))
        if not release.fingerprint:
            return None
        found = (
            one
            for one in earlier
            if one.release.fingerprint == release.fingerprint and not one.withdrawn
        )
        return next((one for one in found if one.release.price == release.price), None)

    def _check_prices(self, releases: Iterable[Charge]) -> None:
        """One identity, one price, among these and all that were charged."""
        prices: dict[str, tuple[str, float, float]] = {}
        for release in releases:
            tokens = self._by_identity.get(release.identity)
            known = self._charges[tokens[0]].release.price if tokens else release.price
            if prices.setdefault(release.identity, known) != release.price:
                remedy = "was charged before with another price or client; use another name"
                raise ParameterError("identity", release.identity, remedy)

    def _charge_all(self, releases: list[Charge], append: Append) -> tuple[Entry, ...]:
        """One charge for each; same bits, also among these, are charged once."""
        lines: list[JsonObject] = []
        tokens: list[str] = []
        drawn: dict[tuple[str, str], str] = {}
        for release in releases:
            known = self._same_bits(release)
            fresh = secrets.token_hex(8)
            key = (release.identity, release.fingerprint or fresh)
            token = drawn.setdefault(key, fresh) if known is None else known.token
            if token == fresh:
                lines.append(_as_line(release, token))
            tokens.append(token)
        append(*lines)
        return tuple(self._charges[token] for token in tokens)

    def _take(self, line: JsonObject) -> None:
        """Takes one line of the file, or one just appended to it."""
        if "charge" in line:
            self._take_charge(line)
        elif "withdraw" in line:
            known = self._charges[line["withdraw"]]
            self._charges[known.token] = replace(known, withdrawn=str(line["reason"]))
            self._totals[known.release.client].add(known.release, -1)
        else:
            epsilon, delta = _checked_budget((float(line["budget"]), line["delta"]))
            self._fixed = (epsilon, delta, _checked_slack(line["slack"]))

    def _take_charge(self, line: JsonObject) -> None:
        values: JsonObject = {name: line[name] for name in Charge.__dataclass_fields__}
        values["epsilon"] = math.inf if values["epsilon"] == "inf" else values["epsilon"]
        release = Charge(**values)
        token = str(line["charge"])
        if token in self._charges:
            raise ValueError("a charge is listed twice")
        tokens = self._by_identity.setdefault(release.identity, [])
        tokens.append(token)
        self._charges[token] = Entry(release=release, attempt=len(tokens), token=token)
        self._totals.setdefault(release.client, _Total()).add(release)


def _as_line(release: Charge, token: str) -> JsonObject:
    return {"charge": token, **{name: plain(value) for name, value in vars(release).items()}}


def _normal(client: str) -> str:
    return unicodedata.normalize("NFC", client)


def _checked_slack(slack: float) -> float:
    if not 0 <= slack < 1:
        raise ParameterError("slack", slack, "need a probability in [0, 1)")
    return float(slack)


def _checked_budget(budget: tuple[float, float]) -> tuple[float, float]:
    try:
        epsilon, delta = budget
        if epsilon >= 0 and 0 <= delta <= 1:
            return _downwards(epsilon), _downwards(delta)
    except (TypeError, ValueError):
        pass
    raise ParameterError(
        "budget", budget, "a budget is (epsilon, delta), epsilon >= 0 and delta in [0, 1]"
    )


def _downwards(value: float | Fraction) -> float:
    nearest = _upwards(value)
    return math.nextafter(nearest, -math.inf) if nearest > value else nearest
