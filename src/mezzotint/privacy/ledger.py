"""The record of what was released: charged before it happens, shared by processes.
Whole after any crash.

One rule makes crashes harmless: charge first, release afterwards. A charge is on disk, in the file
and in its folder, before `charge` or `reserve` returns; so whatever was released is on record, and
what a crash leaves on record without a release only overstates. What costs more than a program's
author may think is charged too: a run that was killed and started again draws fresh noise, and is a
second release; so every attempt counts.

Two questions are kept apart, because their answers rest on different theorems
(docs/proofs/privacy-composition.md, "Budgets and readings"):

- *May this release still happen?* (`reserve`) is a filter: the budget is fixed beforehand, and
  amounts may be chosen in the light of everything released earlier.
- *What has been spent?* (`spent`, `worst`) is an odometer's reading, at a moment that may depend on
  the data. Only plain sums are offered, for those hold whenever they are read.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from fractions import Fraction
from typing import final

import numpy as np

from mezzotint.core.errors import BudgetError, ParameterError, StorageError
from mezzotint.core.files import Append, AppendLog
from mezzotint.core.kinds import checked
from mezzotint.core.records import JsonObject, above, exactly, plain
from mezzotint.privacy.charges import (
    GLOBAL,
    Charge,
    Entry,
    Spent,
    Total,
    checked_budget,
    checked_slack,
    normal_name,
    refusal,
    sums_by_client,
)
from mezzotint.privacy.ledger_state import LedgerState
from mezzotint.privacy.people import (
    UNITS,
    IdHash,
    PeopleLine,
    PersonCounter,
    Segment,
    budget_units,
    units_of,
)
from mezzotint.privacy.people_store import PeopleStore, people_folder, totals_name
from mezzotint.privacy.sorted_records import Records, largest_totals, lookup, ranges_of

FORMAT = "mezzotint-ledger"
VERSION = 2


@final
@checked
class Ledger:
    """Charges, in a file that any number of processes may share.

    Arguments:
        path: JSON-lines file, made when absent and read when present; None keeps the ledger in
            memory.
        slack: part of a budget's delta that `reserve` may spend on advanced composition. The first
            reservation then fixes the budget for good, as the theorem demands.

    Raises:
        ParameterError: the folder does not exist, or a slack outside [0, 1).
        FileFormatError: the file is not a ledger of this version, or was edited or damaged.
        StorageError: the file cannot be written, synced or locked; so nothing may be released.

    Guarantees:
        `charge` and `reserve` return after the charge is on disk, the file's name included. When
        they raise, nothing may be released.
        Cut at any byte, the file loads to a state that charges at least every release whose charge
        had returned; what was cut is on record in `repairs`, and a RepairWarning says so.
        Reading, deciding and charging happen under one lock: releases of processes that reserve at
        the same time never exceed a budget together, and no charge is lost. Every answer counts
        what others have charged up to then. Each attempt is charged, unless its bits are proved to
        be those of an earlier one (`Charge.fingerprint`).

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
        self.slack = checked_slack(slack)
        self._state = LedgerState()
        # Beside the ledger itself, where links to it lead.
        self._store: PeopleStore | None = None
        if path is not None:
            self._store = PeopleStore(people_folder(path))
        header = {"format": FORMAT, "version": VERSION}
        self._log = AppendLog(
            path,
            header=header,
            take=self._state.take,
            what="ledger",
        )
        self.path = self._log.path

    def __repr__(self) -> str:
        path_text = None
        if self.path:
            path_text = str(self.path)
        return f"Ledger({path_text!r}, {len(self._state.charges)} charges)"

    # People

    @contextmanager
    def counting(self, key: bytes) -> Generator[PersonCounter]:
        """A counter of the rows of people, for `charge_people`.

        Arguments:
            key: the secret under which ids are hashed, the same for every run of this ledger.

        Raises:
            ParameterError: a ledger in memory.
            StorageError: its folder cannot be written.
        """
        store = self._files()
        store.prepare()
        with PersonCounter(store.folder, IdHash(key)) as counter:
            yield counter

    def charge_people(
        self,
        counter: PersonCounter,
        claim: Charge,
        *,
        budget: float = math.inf,
    ) -> PeopleLine:
        """Charges each person that was counted for their rows, BEFORE anything is released; all or
        nobody.

        Arguments:
            counter: of `counting`, with all rows added.
            claim: of one row; its client is not looked at.
            budget: epsilon that nobody's charges may exceed together, those to everyone included.

        Returns: the charge; an earlier one only if identity, fingerprint and people prove the bits
            the same.

        Raises:
            BudgetError: somebody's rows do not fit; nothing was charged and nothing may be
            released. ParameterError: an infinite epsilon or a delta above 0; another key; a ledger
                with slack, or one that charges people by name (convert it).
            StorageError: the charge is not on disk.

        Guarantees: as `reserve`: the segment is on disk under its name, and the line that names it,
            when this returns. Amounts are exact in parts of 2^-48 of an epsilon, rounded against
            the spender.
        """
        store = self._files()
        segment = counter.finish()
        if math.isinf(claim.epsilon) or claim.delta > 0:
            remedy = "people are charged pure, finite epsilons; use a private table"
            raise ParameterError("claim", (claim.epsilon, claim.delta), remedy)
        with self._log.transaction() as append:
            self._check_people(counter.hashes.check)
            earlier = self._same_people(claim, segment)
            if earlier is not None:
                return earlier
            totals_file = totals_name(len(self._state.active_people()) + 1, counter.token)
            self._draft_totals(store, segment, claim, budget, counter.hashes, totals_file)
            store.commit(segment, counter.token)
            line: JsonObject = {
                "people": counter.token,
                "identity": claim.identity,
                "description": claim.description,
                "fingerprint": claim.fingerprint,
                "epsilon": claim.epsilon,
                "persons": segment.persons,
                "rows": segment.rows,
                "most": segment.most,
                "sha256": segment.sha256,
                "key": counter.hashes.check,
            }
            append(line)
            with suppress(StorageError):  # made again from segments where this fails
                store.adopt_totals(totals_file)
            return self._state.people[counter.token]

    @property
    def people(self) -> tuple[PeopleLine, ...]:
        """The runs that charged people, withdrawn ones too, in order."""
        with self._log.transaction():
            return tuple(self._state.people.values())

    def people_spent(self, *, top: int) -> list[tuple[bytes, Spent]]:
        """Those who have spent most, greatest first, by their hashes.

        Charges to everyone included.

        Raises:
            FileFormatError: segments that are missing or were changed.
        """
        with self._log.transaction():
            totals = self._person_totals()
            units = np.asarray(totals["units"], dtype=np.uint64)
            spent_by_hash: list[tuple[bytes, Spent]] = []
            for position in largest_totals(units, top):
                person = totals[position]
                high_half = int(person["high"])
                low_half = int(person["low"])
                hashed = high_half.to_bytes(8, "big") + low_half.to_bytes(8, "big")
                person_spent = self._of_person(high_half, low_half, int(units[position]))
                spent_by_hash.append((hashed, person_spent))
            return spent_by_hash

    @property
    def persons(self) -> int:
        """People who have charges of their own that count."""
        with self._log.transaction():
            if not self._state.active_people():
                return 0
            return len(self._person_totals())

    def export(self, hashes: IdHash | None = None) -> Iterable[JsonObject]:
        """Every charge as an object that people can read: those of people one by one.

        Arguments:
            hashes: of the ledger's key, for the names of people; None for their hashes.
        """
        for charge in self.charges:
            yield {**charge.release.as_line(charge.token), "withdrawn": charge.withdrawn}
        for line in self.people:
            description = {
                "identity": line.identity,
                "description": line.description,
                "epsilon of a row": line.epsilon,
                "withdrawn": line.withdrawn,
            }
            for hashed, rows in self._files().listed(line):
                if hashes is None:
                    person = hashed.tobytes().hex()
                else:
                    (person,) = hashes.names(hashed[None])
                price = float(Fraction(rows * line.units, UNITS))
                yield {"person": person, "rows": rows, "epsilon": price, **description}

    def shared_people(self, identities: Iterable[str]) -> int | None:
        """How many people were charged by more than one of these runs.

        Arguments:
            identities: of the runs.

        Returns: their number; None where one of the runs did not charge people for their own rows.
        """
        run_names = set(identities)
        with self._log.transaction():
            lines = {
                line.identity: line
                for line in self._state.active_people()
                if line.identity in run_names
            }
            if len(lines) < len(run_names):
                return None
            store = self._files()
            store.check(self._state.people)
            return store.shared(list(lines.values()))

    def person_spent(self, person: str, *, key: bytes) -> Spent:
        """The cost to one person, of their own rows and of releases about everyone.

        Raises:
            ParameterError: another key than that of the ledger.
        """
        hashes = IdHash(key)
        with self._log.transaction():
            self._check_people(hashes.check)
            halves = hashes.of([person]).view(">u8").astype(np.uint64)
            totals = self._person_totals()
            (units,) = lookup(totals, halves[:, 0], halves[:, 1]).tolist()
            high_half, low_half = halves[0].tolist()
            return self._of_person(high_half, low_half, units)

    def _files(self) -> PeopleStore:
        if self._store is None:
            raise ParameterError(
                "path", None, "people are charged in a ledger on disk; name a file"
            )
        return self._store

    def _check_people(self, key: str) -> None:
        """Raises ParameterError where people cannot be charged together with what is in the
        ledger."""
        if self.slack or self._state.fixed is not None:
            raise ParameterError(
                "slack", self.slack, "people keep to plain sums; use a ledger without slack"
            )
        if len(self._state.totals) > 1:
            remedy = "charges people by name; convert it first: mezzotint ledger FILE --convert NEW"
            raise ParameterError("ledger", str(self.path), remedy)
        other_keys = {line.key for line in self._state.people.values()} - {key}
        if other_keys:
            remedy = (
                "its people were hashed under another key, and would all be new; "
                "restore the key beside it"
            )
            raise ParameterError("ledger", str(self.path), remedy)

    def _same_people(self, claim: Charge, segment: Segment) -> PeopleLine | None:
        """An earlier charge that is proved to be of the same bits to the same people, or None.

        Charges to people are pure (`charge_people`), so their epsilons are all that they cost.
        """
        if not claim.fingerprint:
            return None
        charged_bits = (claim.identity, claim.fingerprint, claim.epsilon, segment.sha256)
        for line in self._state.active_people():
            line_bits = (line.identity, line.fingerprint, line.epsilon, line.sha256)
            if line_bits == charged_bits:
                return line
        return None

    def _draft_totals(
        self,
        store: PeopleStore,
        segment: Segment,
        claim: Charge,
        budget: float,
        hashes: IdHash,
        name: str,
    ) -> None:
        """Drafts totals with a segment charged.

        Raises:
            BudgetError: for the first person whose rows do not fit.
        """
        epsilon, _ = checked_budget((budget, 0.0))
        everyone = self._state.totals[GLOBAL]
        common = units_of(everyone.epsilon)
        limit = budget_units(epsilon) - common
        overspent = everyone.infinite or everyone.delta > 0 or limit < 0
        if overspent and segment.persons:
            raise BudgetError(
                f"release {claim.identity!r} exceeds the budget: releases about everyone alone have spent "
                f"{everyone.spent()}; the budget is epsilon {exactly(epsilon)}. Nothing was charged, and nothing may be "
                "released. Allow more (--budget), or keep another ledger for other people"
            )
        excess = store.charged(
            self._person_totals(),
            segment.records,
            name=name,
            units=units_of(claim.epsilon),
            limit=max(limit, 0),
        )
        if excess is not None:
            (person,) = hashes.names(excess.hashed[None])
            charged_epsilon = Fraction(excess.units + common, UNITS)
            earlier = above(float(charged_epsilon))
            remedy = excess.remedy(common=common)
            raise BudgetError(
                f"release {claim.identity!r} exceeds the budget: person {person!r} has spent epsilon "
                f"{earlier} and would pay {above(claim.epsilon)} for each of their rows; the budget "
                f"is epsilon {exactly(epsilon)}. Nothing was charged, and nothing may be released. "
                f"{remedy}"
            )

    def _person_totals(self) -> Records:
        store = self._files()
        store.check(self._state.people)
        return store.totals(self._state.active_people(), set(self._state.people))

    def _most_units(self) -> int:
        """Units of whoever has spent most of their own."""
        if self._store is None or not self._state.active_people():
            return 0
        most_units = 0
        for (totals,) in ranges_of([self._person_totals()]):
            most_units = max(most_units, int(totals["units"].max(initial=0)))
        return most_units

    def _of_person(
        self,
        high: int,
        low: int,
        units: int,
    ) -> Spent:
        store = self._files()
        run_count = sum(store.holds(line, high, low) for line in self._state.active_people())
        return self._of_units(units, runs=run_count)

    def _of_units(self, units: int, *, runs: int) -> Spent:
        personal = Total(epsilon=Fraction(units, UNITS), count=runs)
        everyone = self._state.totals[GLOBAL]
        return everyone.plus(personal).spent()

    # Charging

    @checked
    def charge(self, release: Charge) -> Entry:
        """Charges a release BEFORE it happens, whatever it costs.

        Returns: the charge; an earlier one only if identity and fingerprint prove that its bits are
            the same.

        Raises:
            ParameterError: the identity was charged with another price or client.
            StorageError: the charge is not on disk, so the release must not happen.
        """
        with self._log.transaction() as append:
            self._state.check_prices([release])
            (entry,) = self._charge_all([release], append)
            return entry

    @checked
    def reserve(self, release: Charge, *, budget: tuple[float, float]) -> Entry:
        """Charges a release if everybody who pays for it keeps to the budget; in one step, under
        the ledger's lock.

        Arguments:
            release: BEFORE it happens.
            budget: the (epsilon, delta) that no person's releases may exceed together, fixed
                beforehand.

        Returns: the charge, as `charge` does.

        Raises:
            BudgetError: it does not fit; nothing was charged and nothing may be released.
            ParameterError, StorageError: as `charge`; with slack, also a budget other than the one
                that was fixed, or one to be fixed after the first charge.

        Guarantees: if every release was reserved so, all of them together are (epsilon,
            delta)-differentially private for each person, also when what is released, at what
            price, and whether at all, was decided in the light of all earlier releases.
        """
        (entry,) = self.reserve_all([release], budget=budget)
        return entry

    @checked
    def reserve_all(
        self,
        releases: Iterable[Charge],
        *,
        budget: tuple[float, float],
    ) -> tuple[Entry, ...]:
        """Charges several releases, all or none: see `reserve`. One charge for each, in turn."""
        epsilon, delta = checked_budget(budget)
        charges = list(releases)
        with self._log.transaction() as append:
            fixes_budget = self._check_fixed(epsilon, delta)
            new_charges = [charge for charge in charges if self._state.same_bits(charge) is None]
            self._state.check_prices(new_charges)
            person = self._exceeding(new_charges, epsilon, delta)
            if person is not None:
                raise BudgetError(self._refusal(new_charges, person, epsilon, delta))
            if fixes_budget:
                append({"budget": plain(epsilon), "delta": delta, "slack": self.slack})
            return self._charge_all(charges, append)

    @checked
    def withdraw(self, charge: Entry | PeopleLine, *, reason: str) -> None:
        """Records that nothing of a charged release ever left, so that it no longer costs anything.

        For the program that made the charge and knows, say of an error before the first byte was
        sent. After a crash nobody does, and the charge stays.

        Raises:
            ParameterError: a charge of another ledger, one withdrawn already, or no reason.
        """
        if not reason:
            raise ParameterError("reason", reason, "say why nothing can have left")
        with self._log.transaction() as append:
            token = charge.token
            entry = self._state.charges.get(token) or self._state.people.get(token)
            if entry is None or entry.withdrawn:
                remedy = "name one that is in this ledger, once"
                raise ParameterError("charge", token, remedy)
            append({"withdraw": token, "reason": reason})
            if isinstance(entry, PeopleLine):
                self._files().forget_totals()

    @checked
    def merge(self, other: Ledger) -> None:
        """Charges everything another ledger (a parallel shard) holds; a charge that is in both
        counts once.

        The same identity charged in two ledgers is two charges, for it may have been released
        twice.

        Raises:
            ParameterError: an identity stands in both with different prices; nothing is merged.
        """
        other_charges = other.charges
        other_people = other.people
        if other_people:
            self._files().prepare()
        with self._log.transaction() as append:
            for line in other_people:
                self._check_people(line.key)
            new_charges = [
                charge for charge in other_charges if charge.token not in self._state.charges
            ]
            self._state.check_prices([charge.release for charge in new_charges])
            new_lines = [charge.release.as_line(charge.token) for charge in new_charges]
            append(*new_lines)
            for charge in other_charges:
                token = charge.token
                if charge.withdrawn and not self._state.charges[token].withdrawn:
                    append({"withdraw": token, "reason": charge.withdrawn})
            for line in other_people:
                self._merge_people(other, line, append)

    def _merge_people(
        self,
        other: Ledger,
        line: PeopleLine,
        append: Append,
    ) -> None:
        """Takes over the segment of a run, and whether it was withdrawn."""
        token = line.token
        store = self._files()
        if token not in self._state.people:
            segment_path = other._files().segment(token)
            store.adopt(segment_path, token)
            fields = dict(vars(line))
            del fields["token"], fields["withdrawn"]
            append({"people": token, **fields})
        if line.withdrawn and not self._state.people[token].withdrawn:
            append({"withdraw": token, "reason": line.withdrawn})
            store.forget_totals()

    # Reading

    @property
    def charges(self) -> tuple[Entry, ...]:
        """All charges in order, withdrawn ones too."""
        with self._log.transaction():
            return tuple(self._state.charges.values())

    @property
    def releases(self) -> tuple[Charge, ...]:
        """The releases that count, in order; a release that was attempted twice is listed twice."""
        return tuple(charge.release for charge in self.charges if not charge.withdrawn)

    @property
    def repairs(self) -> tuple[str, ...]:
        """The damage by a crash that this object found when it read the file, and how it was
        mended."""
        return tuple(self._log.repairs)

    @checked
    def spent(self, client: str = GLOBAL) -> Spent:
        """The cost to one client: of their own releases and those about everyone. `GLOBAL`: the
        latter only.

        Use `worst` for the largest total over persons, `reserve` to keep to a budget.

        Raises:
            ParameterError: a person of a ledger that charges people by their hashes: ask
            `person_spent`.
        """
        with self._log.transaction():
            self._refuse_names([client])
            return self._state.total(client).spent()

    def worst(self) -> Spent:
        """The largest totals over all clients, including one without charges of their own."""
        state = self._state
        with self._log.transaction():
            readings = [state.total(client).spent() for client in state.totals]
            most_units = self._most_units()
            readings.append(self._of_units(most_units, runs=0))
            release_counts = [total.count for total in state.totals.values()]
            person_counts = [line.persons for line in state.active_people()]
            return Spent(
                epsilon=max(reading.epsilon for reading in readings),
                delta=max(reading.delta for reading in readings),
                releases=sum(release_counts) + sum(person_counts),
            )

    def by_client(self) -> dict[str, Spent]:
        """The cost to each client in the ledger (see `spent`); `GLOBAL` comes first."""
        with self._log.transaction():
            return {client: self._state.total(client).spent() for client in self._state.totals}

    @property
    def fixed(self) -> tuple[float, float, float] | None:
        """The budget that the first reservation with slack fixed: epsilon, delta, and the slack in
        it."""
        self._log.refresh()
        return self._state.fixed

    def would_exceed(
        self,
        epsilon: float,
        delta: float,
        *,
        client: str | None = None,
        release: Charge | None = None,
    ) -> bool:
        """Whether somebody's releases, with `release` added if given, exceed a budget.

        Arguments:
            epsilon, delta: the budget.
            client: look at this person too (`GLOBAL`: one who paid for releases about everyone
                alone).
            release: look at all who would pay for it; without client and release, at everyone.

        The answer may be outdated when it is used: only `reserve` decides and charges in one step.
        """
        budget = checked_budget((epsilon, delta))
        with self._log.transaction():
            added: list[Charge] = []
            if release is not None and self._state.same_bits(release) is None:
                added = [release]
            persons: list[str] = []
            if client is not None:
                persons = [normal_name(client)]
            elif release is None:
                persons = list(self._state.totals)
            return self._exceeding(added, *budget, also=persons) is not None

    # Inside a transaction

    def _exceeding(
        self,
        added: list[Charge],
        epsilon: float,
        delta: float,
        *,
        also: Iterable[str] = (),
    ) -> str | None:
        """A client whose total would exceed the budget with these releases added, if any."""
        persons = set(also)
        added_totals = sums_by_client(added)
        self._refuse_names([*persons, *added_totals])
        if GLOBAL in added_totals:
            if not self._fits_people(added_totals[GLOBAL], epsilon):
                return GLOBAL
            persons.update(self._state.totals)
        persons.update(added_totals)
        exceeding: list[str] = []
        for person in persons:
            total = self._with(added_totals, person)
            if not total.within(epsilon, delta, self.slack):
                exceeding.append(person)
        return min(exceeding, default=None)

    def _refuse_names(self, clients: Iterable[str]) -> None:
        """Raises ParameterError where a person is named and the ledger knows hashes alone."""
        names = sorted(set(clients) - {GLOBAL})
        if self._state.people and names:
            remedy = "this ledger knows people by their hashes: use charge_people and person_spent"
            raise ParameterError("client", names[0], remedy)

    def _fits_people(self, added: Total, epsilon: float) -> bool:
        """Whether whoever has spent most of their own rows keeps to the budget.

        With this charge to everyone.
        """
        personal = Total(epsilon=Fraction(self._most_units(), UNITS))
        if personal.epsilon == 0 or math.isinf(epsilon):
            return True
        everyone = self._state.totals[GLOBAL].plus(added)
        total = everyone.plus(personal)
        return not total.infinite and total.epsilon <= Fraction(epsilon)

    def _with(self, sums: dict[str, Total], person: str) -> Total:
        """The charges to a person, with sums added that are not charged yet."""
        total = self._state.total(person)
        for client in {GLOBAL, person} & sums.keys():
            total = total.plus(sums[client])
        return total

    def _refusal(
        self,
        added: list[Charge],
        person: str,
        epsilon: float,
        delta: float,
    ) -> str:
        total = self._with(sums_by_client(added), person).spent()
        person_charges = [charge for charge in added if charge.client in (person, GLOBAL)]
        budget = f"epsilon {exactly(epsilon)} and delta {exactly(delta)}"
        if self.slack:
            budget += f", {exactly(self.slack)} of it slack"
        return refusal(person_charges[-1], person, total, budget)

    def _check_fixed(self, epsilon: float, delta: float) -> bool:
        """Whether this reservation fixes the filter's budget; raises when one was fixed otherwise."""
        budget = (epsilon, delta, self.slack)
        if self._state.fixed is None:
            if self.slack and self._state.charges:
                remedy = (
                    "advanced composition needs a budget fixed before the first charge; "
                    "use slack=0 here"
                )
                raise ParameterError("slack", self.slack, remedy)
            return self.slack > 0
        if self._state.fixed != budget:
            remedy = (
                f"epsilon, delta and slack were fixed at {self._state.fixed} before the first charge; "
                "use those"
            )
            raise ParameterError("budget", budget, remedy)
        return False

    def _charge_all(self, releases: list[Charge], append: Append) -> tuple[Entry, ...]:
        """One charge for each; same bits, also among these, are charged once."""
        lines: list[JsonObject] = []
        tokens: list[str] = []
        tokens_by_bits: dict[tuple[str, str], str] = {}
        for release in releases:
            earlier = self._state.same_bits(release)
            if earlier is not None:
                tokens.append(earlier.token)
                continue
            new_token = secrets.token_hex(8)
            bits = (release.identity, release.fingerprint or new_token)
            token = tokens_by_bits.setdefault(bits, new_token)
            if token == new_token:
                lines.append(release.as_line(token))
            tokens.append(token)
        append(*lines)
        return tuple(self._state.charges[token] for token in tokens)
