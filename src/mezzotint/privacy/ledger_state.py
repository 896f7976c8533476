"""What the lines of a ledger say: charges, totals, and runs that charged people.

Whoever holds the ledger's lock may read it; `Ledger` decides, writes and answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from math import inf
from typing import final

from mezzotint.core.errors import ParameterError
from mezzotint.core.records import JsonObject
from mezzotint.privacy.charges import (
    GLOBAL,
    Charge,
    Entry,
    Total,
    checked_budget,
    checked_slack,
    normal_name,
)
from mezzotint.privacy.people import PeopleLine

_TOKEN = re.compile("[0-9a-f]{16}")


@final
class LedgerState:
    """The state after so many lines.

    Attributes:
        charges: by token, in order, withdrawn ones too.
        totals: of charges that count, by client; `GLOBAL` comes first.
        people: runs that charged people, by token, in order, withdrawn ones too.
        fixed: the budget that the first reservation with slack fixed: epsilon, delta, slack.
    """

    def __init__(self) -> None:
        self.charges: dict[str, Entry] = {}
        self.totals: dict[str, Total] = {GLOBAL: Total()}
        self.people: dict[str, PeopleLine] = {}
        self.fixed: tuple[float, float, float] | None = None
        self._by_identity: dict[str, list[str]] = {}

    def take(self, line: JsonObject) -> None:
        """Takes one line of the file, or one just appended to it."""
        if "charge" in line:
            self._take_charge(line)
        elif "people" in line:
            self._take_people(line)
        elif "withdraw" in line:
            self._take_withdrawal(line["withdraw"], str(line["reason"]))
        else:
            budget = (float(line["budget"]), line["delta"])
            self.fixed = (*checked_budget(budget), checked_slack(line["slack"]))

    def _take_withdrawal(self, token: str, reason: str) -> None:
        if token in self.people:
            self.people[token] = replace(self.people[token], withdrawn=reason)
            return
        entry = self.charges[token]
        release = entry.release
        self.charges[token] = replace(entry, withdrawn=reason)
        self.totals[release.client].add(release, -1)

    def _take_people(self, line: JsonObject) -> None:
        token = str(line["people"])
        field_names = set(PeopleLine.__dataclass_fields__) - {"token", "withdrawn"}
        fields: JsonObject = {name: line[name] for name in field_names}
        charged = PeopleLine(token=token, **fields)
        if token in self.people or not _TOKEN.fullmatch(token):
            raise ValueError("a charge is listed twice, or under no token")
        self.people[token] = charged

    def _take_charge(self, line: JsonObject) -> None:
        fields: JsonObject = {name: line[name] for name in Charge.__dataclass_fields__}
        if fields["epsilon"] == "inf":
            fields["epsilon"] = inf
        release = Charge(**fields)
        token = str(line["charge"])
        if token in self.charges:
            raise ValueError("a charge is listed twice")
        tokens = self._by_identity.setdefault(release.identity, [])
        tokens.append(token)
        self.charges[token] = Entry(release=release, attempt=len(tokens), token=token)
        total = self.totals.setdefault(release.client, Total())
        total.add(release)

    def active_people(self) -> list[PeopleLine]:
        """Runs that are not withdrawn."""
        return [line for line in self.people.values() if not line.withdrawn]

    def total(self, client: str) -> Total:
        """The charges to one client, those to everyone included."""
        everyone = self.totals[GLOBAL]
        personal = self.totals.get(normal_name(client))
        if client == GLOBAL or personal is None:
            return everyone
        return everyone.plus(personal)

    def same_bits(self, release: Charge) -> Entry | None:
        """The earlier charge of the same identity, fingerprint and price, if there is one."""
        if not release.fingerprint:
            return None
        for token in self._by_identity.get(release.identity, ()):
            entry = self.charges[token]
            earlier = entry.release
            same_bits = earlier.fingerprint == release.fingerprint
            same_price = earlier.price == release.price
            if same_bits and same_price and not entry.withdrawn:
                return entry
        return None

    def check_prices(self, releases: Iterable[Charge]) -> None:
        """One identity, one price, among these and all that were charged."""
        prices: dict[str, tuple[str, float, float]] = {}
        for release in releases:
            price = release.price
            tokens = self._by_identity.get(release.identity)
            if tokens:
                first_charge = self.charges[tokens[0]]
                price = first_charge.release.price
            if prices.setdefault(release.identity, price) != release.price:
                remedy = "was charged before with another price or client; use another name"
                raise ParameterError("identity", release.identity, remedy)
