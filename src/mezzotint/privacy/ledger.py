"""An append-only record of releases: charged before they happen, so that no crash can lose a charge.

A ledger file holds one JSON object per line. A charge is on disk before the release it pays for. A torn last line is a
charge whose amount is unknown: it is charged as the announcement before it says, or, when even that is torn, in full
(infinite) until a person settles it. To make that rare, every charge is written twice: a short announcement line,
synced, then the record.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast, final

from mezzotint.core.errors import FileFormatError, ParameterError

FORMAT = "mezzotint-ledger"
VERSION = 1
GLOBAL = "*"
"""The name under which releases about everyone stand."""


@final
@dataclass(frozen=True, kw_only=True)
class Release:
    """One charge.

    Arguments:
        identity: unique text; merging shards counts a release once.
        client: whose budget it takes, or `GLOBAL` for everyone's.
        epsilon, delta: of the release, as its claim says; epsilon may be inf.
        description: for people.
    """

    identity: str
    client: str
    epsilon: float
    delta: float
    description: str = ""

    def __post_init__(self) -> None:
        if not self.identity or not self.client:
            raise ParameterError("identity", self.identity, "a release and its client need non-empty names")
        if not self.epsilon >= 0:
            raise ParameterError("epsilon", self.epsilon, "need a number >= 0 (inf is allowed)")
        if not 0 <= self.delta <= 1:
            raise ParameterError("delta", self.delta, "need a probability")


@final
@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a list of releases costs together: valid for adaptively chosen releases.

    Arguments:
        epsilon, delta: rounded up; the least of basic and advanced composition.
        releases: how many were charged.
        method: which composition gave epsilon.
    """

    epsilon: float
    delta: float
    releases: int
    method: str


def compose_releases(releases: Iterable[Release], *, slack: float = 0.0) -> Spent:
    """The total of releases whose mechanisms are only known by their (epsilon, delta).

    Arguments:
        releases: any number, also none.
        slack: extra delta that advanced composition may spend; 0 keeps to plain sums.

    Guarantees: never below what optimal composition of such releases would allow to happen.
    Source: Dwork, Rothblum and Vadhan 2010; Whitehouse, Ramdas, Rogers and Wu 2023 (amounts chosen adaptively).
    """
    charged = list(releases)
    basic = math.fsum(release.epsilon for release in charged) * (1 + 2.0**-50)
    delta = min(1.0, math.fsum(release.delta for release in charged) * (1 + 2.0**-50))
    best = Spent(epsilon=basic, delta=delta, releases=len(charged), method="basic composition")
    if slack <= 0 or math.isinf(basic) or not charged:
        return best
    # A privacy filter: what later releases cost may depend on earlier outputs (Whitehouse et al. 2023, Theorem 1).
    squares = math.fsum(release.epsilon**2 for release in charged)
    advanced = (squares / 2 + math.sqrt(2 * math.log(1 / slack) * squares)) * (1 + 2.0**-46)
    if advanced >= basic:
        return best
    total = min(1.0, (delta + slack) * (1 + 2.0**-50))
    return Spent(epsilon=advanced, delta=total, releases=len(charged), method="advanced composition")


@final
@dataclass(kw_only=True)
class Ledger:
    """Releases charged so far; append-only, on disk when it has a path.

    Arguments:
        path: JSON-lines file, created when absent and read when present; None keeps the ledger in memory.
        slack: extra delta that totals may spend on advanced composition.

    Raises:
        FileFormatError: a file that is no ledger, or damaged anywhere but in its last line.

    Guarantees:
        `charge` returns only after the charge is on disk (fsync).
        Cut at any byte, the file loads to a state that charges at least every release whose `charge` returned.
        A charge that would repeat an identity with other amounts is refused.
        A file that something else wrote to since it was read is not written to.
    """

    path: Path | None = None
    slack: float = 0.0
    _releases: dict[str, Release] = field(default_factory=dict[str, Release], init=False, repr=False)
    _size: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.slack < 1:
            raise ParameterError("slack", self.slack, "need a probability in [0, 1)")
        if self.path is None:
            return
        self.path = Path(self.path)
        if not self.path.parent.is_dir():
            raise ParameterError("path", str(self.path), "its folder does not exist; create it first")
        if self.path.exists() and self.path.stat().st_size:
            self._recover(self.path.read_bytes())
        else:
            self._append({"format": FORMAT, "version": VERSION})
            _sync_folder(self.path.parent)

    @property
    def releases(self) -> tuple[Release, ...]:
        """All charges, in order."""
        return tuple(self._releases.values())

    def charge(self, release: Release) -> None:
        """Charges a release BEFORE it happens; once this returns, no crash can forget it.

        Raises: ParameterError: the identity was charged with other amounts.
        """
        known = self._releases.get(release.identity)
        if known == release:
            return
        if known is not None:
            raise ParameterError("identity", release.identity, "was charged before, differently; use another name")
        line = _as_line(release)
        # Announced first: a torn record is then charged by its announcement, not by infinity.
        self._append({"announce": line})
        self._append(line)
        self._releases[release.identity] = release

    def spent(self, client: str = GLOBAL) -> Spent:
        """What one client's budget has paid: its own releases and those about everyone. `GLOBAL`: the latter only.

        Use `worst` for the largest total over clients.
        """
        return compose_releases(self._of(client), slack=self.slack)

    def worst(self) -> Spent:
        """The largest total over all clients that stand in the ledger (and of a client that does not)."""
        clients = {GLOBAL, *(release.client for release in self._releases.values())}
        totals = [self.spent(client) for client in clients]
        epsilon = max(totals, key=lambda total: total.epsilon)
        delta = max(total.delta for total in totals)
        return Spent(epsilon=epsilon.epsilon, delta=delta, releases=len(self._releases), method=epsilon.method)

    def would_exceed(
        self, epsilon: float, delta: float, *, client: str = GLOBAL, release: Release | None = None
    ) -> bool:
        """Whether the client's total (with `release` added, if given) exceeds a budget of (epsilon, delta)."""
        if not epsilon >= 0 or not 0 <= delta <= 1:
            raise ParameterError("epsilon", (epsilon, delta), "a budget is epsilon >= 0 and delta in [0, 1]")
        charged = [*self._of(client), *([] if release is None else [release])]
        # Any one valid total within the budget suffices.
        totals = [compose_releases(charged), compose_releases(charged, slack=self.slack)]
        return not any(total.epsilon <= epsilon and total.delta <= delta for total in totals)

    def merge(self, other: Ledger) -> None:
        """Charges everything another ledger (a parallel shard) holds; an identity in both counts once."""
        for release in other.releases:
            known = self._releases.get(release.identity)
            if known is not None and known != release:
                raise ParameterError("identity", release.identity, "stands in both ledgers with different amounts")
        for release in other.releases:
            self.charge(release)

    def _of(self, client: str) -> list[Release]:
        return [release for release in self._releases.values() if release.client in (client, GLOBAL)]

    def _append(self, line: dict[str, Any]) -> None:
        if self.path is None:
            return
        with self.path.open("ab") as handle:
            # A write of somebody else, or one of ours that failed half-way, must not be written on.
            if handle.seek(0, os.SEEK_END) != self._size:
                remedy = "the file was written to since it was read; read it again (one ledger per process, then merge)"
                raise ParameterError("path", str(self.path), remedy)
            handle.write(json.dumps(line, allow_nan=False, separators=(",", ":")).encode("ascii") + b"\n")
            handle.flush()
            os.fsync(handle.fileno())
            self._size = handle.tell()

    def _recover(self, raw: bytes) -> None:
        """Reads the file; a torn tail becomes a charge and is put on record."""
        whole, separator, torn = raw.rpartition(b"\n")
        self._size = len(whole) + len(separator)
        lines = whole.split(b"\n") if separator else []
        if not lines:
            self._start_over(torn)
            return
        pending = _read_lines(lines, self._releases)
        if not torn and pending is None:
            return
        assert self.path is not None
        with self.path.open("r+b") as handle:
            handle.truncate(self._size)
            os.fsync(handle.fileno())
        if pending is None:
            # Not even the announcement survived. It was never synced, so no release followed; charged all the same.
            number = sum(release.identity.startswith("torn-") for release in self._releases.values())
            self.charge(
                Release(
                    identity=f"torn-{number}-{len(raw)}",
                    client=GLOBAL,
                    epsilon=math.inf,
                    delta=1.0,
                    description="a record was torn by a crash before its amount was on disk; settle by hand",
                )
            )
            return
        self._append(_as_line(pending))
        self._releases[pending.identity] = pending

    def _start_over(self, torn: bytes) -> None:
        header = json.dumps({"format": FORMAT, "version": VERSION}, separators=(",", ":")).encode("ascii")
        if not header.startswith(torn):
            raise FileFormatError("ledger: this is some other file")
        assert self.path is not None
        self.path.write_bytes(b"")
        self._append({"format": FORMAT, "version": VERSION})


def _sync_folder(folder: Path) -> None:
    """A new file's name must survive a crash too. Windows cannot open folders; its file systems journal names."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _as_line(release: Release) -> dict[str, Any]:
    return {
        "identity": release.identity,
        "client": release.client,
        "epsilon": release.epsilon if math.isfinite(release.epsilon) else "inf",
        "delta": release.delta,
        "description": release.description,
    }


def _as_release(line: Any) -> Release:
    keys = {"identity", "client", "epsilon", "delta", "description"}
    if not isinstance(line, dict) or set(cast(dict[str, Any], line)) != keys:
        raise FileFormatError("ledger: a line is no release; the file was edited or damaged")
    entry = cast(dict[str, Any], line)
    if not all(type(entry[key]) is str for key in ("identity", "client", "description")):
        raise FileFormatError("ledger: a line is no release; names and descriptions are text")
    try:
        return Release(
            identity=entry["identity"],
            client=entry["client"],
            epsilon=float(entry["epsilon"]),
            delta=float(entry["delta"]),
            description=entry["description"],
        )
    except (TypeError, ValueError) as error:
        raise FileFormatError(f"ledger: a line is no release: {error}") from None


def _read_lines(lines: list[bytes], releases: dict[str, Release]) -> Release | None:
    """Fills `releases`; returns an announced release whose record is missing at the end."""
    pending: Release | None = None
    for position, raw in enumerate(lines):
        try:
            line: Any = json.loads(raw)
        except ValueError:
            raise FileFormatError(f"ledger: line {position + 1} is damaged; it is not the last, so no crash") from None
        if position == 0:
            if line != {"format": FORMAT, "version": VERSION}:
                raise FileFormatError(f"ledger: not a ledger of version {VERSION}")
        elif isinstance(line, dict) and set(cast(dict[str, Any], line)) == {"announce"}:
            if pending is not None:
                raise FileFormatError(f"ledger: line {position + 1}: two announcements in a row")
            pending = _as_release(cast(dict[str, Any], line)["announce"])
        else:
            release = _as_release(line)
            if pending != release or release.identity in releases:
                raise FileFormatError(f"ledger: line {position + 1} is not the release that was announced")
            releases[release.identity] = release
            pending = None
    return pending
