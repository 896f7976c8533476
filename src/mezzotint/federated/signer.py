"""What holds a client's keys: it answers the protocol's messages, and takes updates as plain
vectors.

A `Signer` has the identity, the policy, the lifetime ledger and the round in progress. It runs
inside the mod; or, with `serve_signer`, as a process of another user on the same machine, which
alone can read these files. Code that a server delivers may then lie about its update; it cannot
take keys, exceed a budget, answer twice, open others' shares, or have an update leave without noise
and mask through the protocol.

Requests and answers are frames: a length, a JSON object of names and sizes, and bytes. An answer is
bytes, or a refusal from a closed list; never a key, a seed, an update or the text of a foreign
error.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import threading
from collections.abc import Callable, Collection, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, final, get_args

import numpy as np

from mezzotint.core.errors import (
    BudgetError,
    FileFormatError,
    MezzotintError,
    ParameterError,
    StorageError,
)
from mezzotint.core.files import parse_object
from mezzotint.core.records import JsonObject, exactly
from mezzotint.federated.lifetime_ledger import Answer, LifetimeLedger, lifetime_path
from mezzotint.federated.policy import Policy, PolicyRefusal, load_policy
from mezzotint.federated.secagg import (
    Client,
    OutOfRangeInteger,
    ProtocolError,
    ReplayedRound,
    RoundPlan,
)
from mezzotint.federated.secagg.messages import read_invitation
from mezzotint.federated.secagg.roster import read_identity

if TYPE_CHECKING:
    from mezzotint.federated.encoding import Encoding

_MEMBER_STAGES = ("agree", "open", "unite")


def lasting_ledger(
    folder: str | None, identity: str, warn: Callable[[str], None]
) -> LifetimeLedger:
    """The ledger of an identity's lifetime in its folder of records.

    Raises:
        PolicyRefusal: no folder, or no ledger in it; `warn` is told what to do.
    """
    if folder is None:
        # Flower's state lasts for one run: a server could repeat a plan in another and open both
        # secrets.
        raise PolicyRefusal(
            "records: this client has an identity, and no folder to note its sums in"
        )
    path = lifetime_path(folder, identity)
    if not path.exists():
        remedy = "enrol under a new identity (`mezzotint roster identity`)"
        warn(f"{path} is missing, and all that it held forgotten: {remedy}")
        raise PolicyRefusal("records: this identity's ledger is missing; its log says what to do")
    return LifetimeLedger(path, identity=identity)


Call = Literal["identity", "card", "check_purpose", "deal", "expect", "sum", "member", "abandon"]


def read_encoding(description: bytes) -> Encoding:
    """The encoding of an invitation; PolicyRefusal if there is none."""
    from mezzotint.federated.encoding_files import unpacked

    try:
        return unpacked(description)
    except MezzotintError as error:  # its words are the server's own
        raise PolicyRefusal(f"encoding: {error}") from None


@final
@dataclass(kw_only=True)
class Signer:
    """A client's keys, policy, ledger and rounds in progress.

    Arguments:
        client: identity and rounds.
        policy: called for the conditions of every message.
        ledger: of its lifetime; None for a client whose identity lasts for one run.
        warn: told what only this machine may know.

    Guarantees: no answer leaves before it is on the ledger; no masked input before it is charged.
    """

    client: Client
    policy: Callable[[], Policy]
    ledger: LifetimeLedger | None
    warn: Callable[[str], None]

    def ask(self, call: str, *parts: bytes, **head: Any) -> bytes:
        """The answer of the method that is called so.

        Arguments:
            call: the method's name.
            parts: bytes of messages and updates, in the order of its arguments.
            head: its further arguments.

        Raises:
            PolicyRefusal, ProtocolError: as of the method.
        """
        if call not in get_args(Call):
            raise PolicyRefusal("signer: an unknown call; mod and signer are of different versions")
        answer: bytes | None = getattr(self, call)(*parts, **head)
        return answer or b""

    def identity(self) -> bytes:
        """The public identity, 32 bytes."""
        return self.client.identity

    def card(self, question: bytes) -> bytes:
        """The answer to a server's `Challenge`."""
        return self.client.show(question)

    def check_purpose(self, payload: bytes, *, kind: str, stage: str) -> None:
        """Refuse a message of another kind than its round; nothing changes."""
        plan = self.client.plan_of(payload)
        if stage == "card":
            _compare_purpose(kind, "train")
        elif stage != "deal" and plan is not None:
            _compare_purpose(kind, plan.purpose)

    def deal(self, invitation: bytes, encoding: bytes, *, kind: str) -> bytes:
        """The answer to an invitation, under this description of an encoding."""
        policy = self.policy()
        plan = read_invitation(invitation)[0]
        self.client.trust = policy.trust  # the file may have changed
        _compare_purpose(kind, plan.purpose)
        policy.check(read_encoding(encoding), plan)
        answer = self.client.deal(invitation, encoding=encoding)
        try:
            self._note(plan, "deal", answer, policy)
        except MezzotintError:
            self.client.abandon(answer)
            raise
        return answer

    def expect(self, partners: bytes, task: bytes) -> bytes:
        """Check that `sum` would be answered, for this digest of the task; the description of the
        round's encoding.
        """
        plan, description, _ = self._announced(partners, self.policy())
        if plan.task != task:
            complaint = "not the model, or not the configuration, that the round was announced with"
            raise PolicyRefusal(f"model: {complaint}")
        return description

    def _announced(self, partners: bytes, policy: Policy) -> tuple[RoundPlan, bytes, Encoding]:
        """The plan under which `sum` would be answered, its encoding's description, the encoding.

        The policy may have changed since the invitation, and is compared again; what it asks of a
        committee where it names the roster: others' was not kept.
        """
        plan, description = self.client.expect(partners)
        encoding = read_encoding(description)
        policy.check(encoding, plan)
        if policy.roster is not None:
            policy.trust.roster_of(plan, b"")
            policy.trust.check(plan, len(policy.roster.members))
        return plan, description, encoding

    def sum(self, partners: bytes, update: bytes | None = None, *, parameters: int) -> bytes:
        """The masked input, noted and charged; without an update (float64) that can be encoded,
        noise alone.
        """
        policy = self.policy()
        plan, _, encoding = self._announced(partners, policy)
        # What is charged grows with them, and whoever asks could say fewer.
        if type(parameters) is not int or encoding.length(parameters) != plan.coordinates:
            raise PolicyRefusal("parameters: their number is not that of the round's plan")
        integers = None
        if update is not None:
            try:
                integers = encoding.encode(np.frombuffer(update, dtype="<f8"))
            except MezzotintError as error:
                self.warn(f"adding nothing but noise: {error}")
        if integers is None or integers.size != plan.coordinates:
            integers = encoding.encode(encoding.nothing(parameters))
        masked = self.client.sum(partners, integers)
        self._charge(plan, encoding, policy, encoding.numbers(parameters), masked)
        return masked

    def member(self, payload: bytes, *, stage: str) -> bytes:
        """The answer of a member of the committee: "agree", "open" or "unite"."""
        if stage not in _MEMBER_STAGES:
            raise PolicyRefusal("stage: unknown; server and client run different versions")
        agreement = b""
        if stage == "open":
            agreement = self.client.agreement(payload)
        plan = self.client.plan_of(payload)
        answer: bytes = getattr(self.client, stage)(payload)
        if plan is not None:
            self._note(plan, stage, answer, self.policy(), agreement)
        return answer

    def abandon(self, payload: bytes) -> None:
        """Forget the round that a message is about."""
        self.client.abandon(payload)

    def _note(
        self, plan: RoundPlan, stage: str, payload: bytes, policy: Policy, agreement: bytes = b""
    ) -> None:
        """Put an answer on the ledger before it leaves."""
        if self.ledger is None:
            return
        answer = Answer(
            session=plan.session,
            number=plan.round,
            stage=stage,
            payload=payload,
            agreement=agreement,
        )
        try:
            self.ledger.note(answer, dealings=policy.dealings)
        except ReplayedRound as error:  # this client forgot its round, which is over
            raise PolicyRefusal(f"round: {error}") from None
        except BudgetError as error:
            raise PolicyRefusal(str(error)) from None

    def _charge(
        self, plan: RoundPlan, encoding: Encoding, policy: Policy, size: int, masked: bytes
    ) -> None:
        """Charge a masked input before it leaves, or refuse it."""
        if self.ledger is None:
            if policy.budget < float("inf"):
                raise PolicyRefusal(
                    "budget: this client has no identity and no records that outlast the run"
                )
            return
        from mezzotint.federated.budgets import Sums  # read with the encoding already

        answer = Answer(session=plan.session, number=plan.round, stage="sum", payload=masked)
        single_sum = Sums(
            size=size,
            clients=plan.minimum,
            corrupted=policy.trust.corrupted_of(plan),
            delta=policy.delta,
        )
        try:
            self.ledger.charge(answer, encoding, single_sum, budget=policy.budget)
        except ReplayedRound as error:
            raise PolicyRefusal(f"round: {error}") from None
        except BudgetError as error:
            self.warn(str(error))
            raise PolicyRefusal(
                f"budget={exactly(policy.budget)}: another sum would exceed it; nothing was sent"
            ) from None
        except StorageError:
            raise
        except ParameterError:
            raise PolicyRefusal(
                "budget: nothing is claimed of this encoding's sums against their server"
            ) from None


def _compare_purpose(kind: str, purpose: str) -> None:
    if kind != purpose:
        raise PolicyRefusal(f"purpose: a message to {kind}, in a round to {purpose}")


def lasting_signer(
    *, identity: Path, records: Path, policy: Path | None, warn: Callable[[str], None]
) -> Signer:
    """A signer over an identity's files.

    Arguments:
        identity: file of the secret key.
        records: folder of the ledger.
        policy: file of the conditions, read anew for every message; None sets none.
        warn: told what only this machine may know.

    Raises:
        PolicyRefusal: the ledger is missing. FileFormatError, ParameterError: a file that is none
            of these.
    """

    def conditions() -> Policy:
        if policy is None:
            return Policy()
        return load_policy(policy)

    client = Client(identity=read_identity(identity), trust=conditions().trust)
    ledger = lasting_ledger(str(records), client.identity.hex(), warn)
    return Signer(client=client, policy=conditions, ledger=ledger, warn=warn)


# The process --------------------------------------------------------------------------------------

LARGEST_FRAME = 1 << 30
"""Most bytes of a frame: an update of 128 million coordinates."""

_LENGTH = struct.Struct("<Q")
_CREDENTIALS = struct.Struct("3i")
"""Process, user and group at the other end of a socket."""
_LARGEST_HEAD = 1 << 12

_ROUND_CALLS = ("expect", "sum", "member")
"""Calls whose refusal ends the round that their first part is about."""

REFUSALS = frozenset({"PolicyRefusal", *(kind.__name__ for kind in ProtocolError.__subclasses__())})
"""The refusals that leave a signer, by name."""


def _send(link: socket.socket, head: Mapping[str, object], *parts: bytes) -> None:
    """Send a frame: names and sizes, then bytes."""
    sizes = [len(block) for block in parts]
    head_text = json.dumps({**head, "sizes": sizes}).encode()
    length = _LENGTH.pack(len(head_text))
    link.sendall(length + head_text)
    for block in parts:
        link.sendall(block)


def _receive(link: socket.socket) -> tuple[JsonObject, list[bytes]]:
    """Receive a frame; ConnectionError if there is none, or one that is too large."""
    (length,) = _LENGTH.unpack(_exactly(link, _LENGTH.size))
    if length > _LARGEST_HEAD:
        raise ConnectionError("a frame's head is too long")
    header = parse_object(_exactly(link, length), name="frame")
    part_sizes = header.pop("sizes", None)
    if not isinstance(part_sizes, list):
        raise ConnectionError("a frame without sizes")
    checked_sizes = [size for size in part_sizes if type(size) is int and size >= 0]
    if len(checked_sizes) < len(part_sizes) or sum(checked_sizes) > LARGEST_FRAME:
        raise ConnectionError("a frame that is too large")
    return header, [_exactly(link, part_size) for part_size in checked_sizes]


def _exactly(link: socket.socket, count: int) -> bytes:
    """So many bytes; ConnectionError if the other side ends before."""
    received = bytearray()
    while len(received) < count:
        missing = count - len(received)
        chunk = link.recv(min(1 << 20, missing))
        if not chunk:
            raise ConnectionError("the other side has ended")
        received += chunk
    return bytes(received)


class SignerRefusal(PolicyRefusal):
    """A refusal of a signer in another process, under its name and in its words."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(reason)
        self.name = name


def refusal_of(error: BaseException) -> tuple[str, str]:
    """Name and reason of an error, for the server: the reason is withheld unless it comes from
    messages and policy.
    """
    if isinstance(error, SignerRefusal):
        return error.name, str(error)
    is_public = isinstance(error, PolicyRefusal | ProtocolError)
    if is_public and not isinstance(error, OutOfRangeInteger):
        return type(error).__name__, str(error)
    return "ClientFault", "this client cannot answer; its own log says why"


@final
class SignerProcess:
    """Answers one connection after the other on a Unix socket, for these users alone.

    Arguments:
        path: of the socket, made with mode 0660; a file that is there is an error.
        signer: what answers.
        users: user numbers that may connect besides this process's own.

    Raises:
        ParameterError: the path exists.
    """

    def __init__(self, path: Path, signer: Signer, users: Collection[int] = ()) -> None:
        if path.exists():
            raise ParameterError("socket", str(path), "exists; end the other signer, or remove it")
        self.path = path
        self.signer = signer
        self.users = {os.getuid(), *users}
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o117)
        try:
            self._listening.bind(str(path))
        finally:
            os.umask(before)
        self._listening.listen()
        self._ended = threading.Event()

    def serve(self) -> None:
        """Answer until `close`; a connection that misbehaves ends alone."""
        while not self._ended.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(60.0)
                try:
                    self._converse(connection)
                except (OSError, ValueError, MezzotintError) as error:
                    self.signer.warn(f"signer: a connection ended: {type(error).__name__}")

    def close(self) -> None:
        """End, and remove the socket."""
        self._ended.set()
        with self._woken():
            self._listening.close()
        self.path.unlink(missing_ok=True)

    @contextmanager
    def _woken(self) -> Generator[None]:
        """Let `accept` return."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            with suppress(OSError):
                connection.connect(str(self.path))
            yield

    def _converse(self, link: socket.socket) -> None:
        credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        _, user, _ = _CREDENTIALS.unpack(credentials)
        if user not in self.users:
            raise ConnectionError("a user that may not connect")
        while not self._ended.is_set():
            try:
                header, parts = _receive(link)
            except (ConnectionError, FileFormatError):
                return
            call = str(header.pop("call", ""))
            try:
                answer = self.signer.ask(call, *parts, **header)
            except Exception as error:
                if call in _ROUND_CALLS and parts:
                    self.signer.abandon(parts[0])
                refusal_name, reason = refusal_of(error)
                if refusal_name == "ClientFault":
                    self.signer.warn(f"signer: {type(error).__name__}: {error}")
                _send(link, {"refused": refusal_name}, reason.encode(errors="backslashreplace"))
            else:
                _send(link, {}, answer)


@final
@dataclass(frozen=True, kw_only=True)
class RemoteSigner:
    """A signer in another process, by its socket; each call is a connection of its own."""

    path: Path

    def ask(self, call: Call, *parts: bytes, **head: str | int) -> bytes:
        """As of `Signer`; SignerRefusal for what it refuses."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(60.0)
            try:
                connection.connect(str(self.path))
                _send(connection, {"call": call, **head}, *parts)
                answer, received = _receive(connection)
            except (OSError, ValueError) as error:
                raise ParameterError(
                    "signer", str(self.path), f"does not answer ({type(error).__name__})"
                ) from None
        if "refused" in answer:
            refusal_name = str(answer["refused"])
            if refusal_name in REFUSALS:
                raise SignerRefusal(refusal_name, received[0].decode())
            raise ParameterError("signer", refusal_name, "its own log says why")
        return received[0]


Signing = Signer | RemoteSigner
"""Whom a mod asks."""
