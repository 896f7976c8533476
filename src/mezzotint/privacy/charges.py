"""Charges and their sums: what a release costs whom, exactly."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Protocol, cast, final

from mezzotint.core.errors import ParameterError, as_scalar
from mezzotint.core.records import JsonObject, above, counted, plain

GLOBAL = "*"
"""The name under which releases about everyone stand."""


class Priced(Protocol):
    """Anything with an epsilon and a delta, such as a claim."""

    @property
    def epsilon(self) -> float: ...

    @property
    def delta(self) -> float: ...


def upwards(value: float | Fraction) -> float:
    """The float at or just above a number of any kind."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    if nearest < value:
        return math.nextafter(nearest, math.inf)
    return nearest


def _is_number(value: object) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real | Decimal)


def amount_of(parameter: str, value: float | Fraction) -> float:
    """An epsilon or a delta, rounded up; ParameterError outside its range."""
    largest = 1.0 if parameter == "delta" else math.inf
    scalar = as_scalar(value)
    try:
        amount = upwards(cast(float, scalar)) if _is_number(scalar) else math.nan
        if 0 <= amount <= largest:
            return amount
    except (TypeError, ValueError):
        pass
    remedy = "need a number >= 0 (inf is allowed)"
    if parameter == "delta":
        remedy = "need a probability in [0, 1]"
    raise ParameterError(parameter, value, remedy)


@final
@dataclass(frozen=True, kw_only=True)
class Charge:
    """One release and its price.

    Arguments:
        identity: names what is released; charging it again is another attempt at the same thing,
            and costs again.
        client: the person (or other unit) whose budget it takes, or `GLOBAL` for everyone's. Names
            are compared in Unicode's normal form C.
        epsilon, delta: of one attempt, as its claim says; epsilon may be inf.
        description: for people.
        fingerprint: SHA-256, in hexadecimal, of exactly the bits that go out, if they were made
            before they were charged. The same identity with the same fingerprint is the same
            release, and is charged once.

    Raises:
        ParameterError: an empty name, or an amount outside its range.

    Example:
        >>> charge = mz.privacy.Charge(identity="ages, May", client="ann", epsilon=1.0, delta=0.0)
        >>> ledger = mz.privacy.Ledger()
        >>> entry = ledger.reserve(charge, budget=(2.0, 0.0))
        >>> round(ledger.spent("ann").left(2.0), 6)
        1.0
    """

    # Fields are keys of the lines of ledgers: with another field, none that is on disk could be
    # read.
    identity: str
    client: str
    epsilon: float
    delta: float
    description: str = ""
    fingerprint: str = ""

    def __post_init__(self) -> None:
        for name in ("identity", "client", "description", "fingerprint"):
            # Values come from files and from untyped code.
            if not isinstance(getattr(self, name), str):
                raise ParameterError(name, getattr(self, name), "need text")
        if not self.identity or not self.client:
            remedy = "a release and its client need non-empty names"
            raise ParameterError("identity", self.identity, remedy)
        if self.fingerprint and not re.fullmatch("[0-9a-f]{64}", self.fingerprint):
            remedy = "need the 64 hexadecimal digits of a SHA-256"
            raise ParameterError("fingerprint", self.fingerprint, remedy)
        object.__setattr__(self, "client", normal_name(self.client))
        object.__setattr__(self, "identity", normal_name(self.identity))
        object.__setattr__(self, "epsilon", amount_of("epsilon", self.epsilon))
        object.__setattr__(self, "delta", amount_of("delta", self.delta))

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
            remedy = "a seeded run is not private; it has no price in epsilon"
            raise ParameterError("claim", str(claim), remedy)
        return cls(
            identity=identity,
            client=client,
            epsilon=claim.epsilon,
            delta=claim.delta,
            description=description or str(claim),
            fingerprint=fingerprint,
        )

    @property
    def price(self) -> tuple[str, float, float]:
        """The payer and the price."""
        return self.client, self.epsilon, self.delta

    def as_line(self, token: str) -> JsonObject:
        """The line of a ledger that charges it under this token."""
        line: JsonObject = {"charge": token}
        for name, value in vars(self).items():
            line[name] = plain(value)
        return line


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

    Guarantees: epsilon holds at whatever moment it is read, a moment chosen in the light of the
        releases included, and however their amounts were chosen, up to the delta that was fixed
        beforehand as the most that could be spent; the sum in `delta` is that bound where amounts
        do not depend on what was released.
    Source: Rogers, Roth, Ullman and Vadhan 2016. Advanced composition read at such a moment is not
        valid.

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
        amounts = f"epsilon {above(self.epsilon)} and delta {above(self.delta)}"
        return f"{amounts} in {counted(self.releases, 'release')} ({self.method})"


_ADVANCED_ROUNDING = 2.0**-46
"""Relative bound on the roundings of advanced composition."""


@dataclass
class Total:
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

    def plus(self, second: Total) -> Total:
        return Total(
            epsilon=self.epsilon + second.epsilon,
            squares=self.squares + second.squares,
            delta=self.delta + second.delta,
            infinite=self.infinite + second.infinite,
            count=self.count + second.count,
        )

    def spent(self) -> Spent:
        epsilon = math.inf if self.infinite else upwards(self.epsilon)
        return Spent(
            epsilon=epsilon,
            delta=min(1.0, upwards(self.delta)),
            releases=self.count,
        )

    def within(
        self,
        epsilon: float,
        delta: float,
        slack: float,
    ) -> bool:
        """The filter: whether these charges keep to a budget that was fixed before the first of
        them.

        With slack, a part of delta, the martingale of losses may end above advanced composition's
        bound with that probability (Whitehouse, Ramdas, Rogers and Wu 2023, Theorem 1). The slack
        counts whichever bound holds: which one does is seen at the end only, and may depend on the
        losses.
        """
        if self.delta + Fraction(slack) > Fraction(delta):
            return False
        if math.isinf(epsilon):
            return True
        if self.infinite:
            return False
        return self.epsilon <= Fraction(epsilon) or self._advanced(slack) <= epsilon

    def _advanced(self, slack: float) -> float:
        """Advanced composition's bound; inf without slack."""
        if slack == 0:
            return math.inf
        squares = upwards(self.squares)
        bound = squares / 2 + math.sqrt(2 * math.log(1 / slack) * squares)
        return bound * (1 + _ADVANCED_ROUNDING)


def refusal(charge: Charge, client: str, total: Spent, budget: str) -> str:
    """The message that a charge is refused for: it would bring a client to this total."""
    name = "everyone" if client == GLOBAL else f"client {client!r}"
    return (
        f"release {charge.identity!r} exceeds the budget: with it, {name} would have "
        f"spent {total}; the budget is {budget}. Nothing was charged, and nothing may be released"
    )


def sum_of(releases: Iterable[Charge]) -> Total:
    total = Total()
    for release in releases:
        total.add(release)
    return total


def sums_by_client(releases: Iterable[Charge]) -> dict[str, Total]:
    sums: dict[str, Total] = {}
    for release in releases:
        sums.setdefault(release.client, Total()).add(release)
    return sums


def compose_releases(releases: Iterable[Charge]) -> Spent:
    """The total cost of releases known only by their (epsilon, delta): exact sums, rounded up once."""
    return sum_of(releases).spent()


def admits(
    releases: Iterable[Charge],
    *,
    epsilon: float,
    delta: float,
    slack: float = 0.0,
) -> bool:
    """The filter by itself: whether releases, chosen adaptively, keep to a budget.

    The budget is fixed before the first of them. They are all that one person pays for, in any
    order. Advanced composition may spend the `slack`, a part of delta that is fixed as the budget
    is; 0 keeps to plain sums.
    """
    return sum_of(releases).within(
        amount_of("epsilon", epsilon),
        amount_of("delta", delta),
        checked_slack(slack),
    )


def normal_name(client: str) -> str:
    return unicodedata.normalize("NFC", client)


def checked_slack(slack: float) -> float:
    if not 0 <= slack < 1:
        raise ParameterError("slack", slack, "need a probability in [0, 1)")
    return float(slack)


def checked_budget(budget: tuple[float, float]) -> tuple[float, float]:
    try:
        epsilon, delta = budget
        if _is_number(epsilon) and _is_number(delta) and epsilon >= 0 and 0 <= delta <= 1:
            return downwards(epsilon), downwards(delta)
    except (TypeError, ValueError):
        pass
    remedy = "a budget is (epsilon, delta), epsilon >= 0 and delta in [0, 1]"
    raise ParameterError("budget", budget, remedy)


def downwards(value: float | Fraction) -> float:
    """The float at or just below a number of any kind."""
    nearest = upwards(value)
    if nearest > value:
        return math.nextafter(nearest, -math.inf)
    return nearest
