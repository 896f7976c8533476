"""The client behind each node: its card, which it proves to hold, and its name for itself.

A node is asked once, before its first round, and again when it comes back or refuses to deal. Sums
of updates and sums of metrics share what was learnt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import final

from flwr.app import ConfigRecord, Message, MessageType
from flwr.serverapp import Grid

from mezzotint.federated.flower_records import Key, one_line, protocol_record, request
from mezzotint.federated.round_strategy import arriving
from mezzotint.federated.secagg import (
    Card,
    Challenge,
    DuplicateAnswer,
    MalformedMessage,
    ProtocolError,
    SwappedKey,
)

_IDENTITY = re.compile("[0-9a-f]{64}")  # which names clients that give no other name


@final
@dataclass(frozen=True, kw_only=True)
class Introduction:
    """A client's card, the name under which it is charged, and the digest of the roster that it
    holds.
    """

    card: Card
    name: str
    roster: bytes


@final
class Introductions:
    """Asks nodes who they are.

    Arguments:
        has_roster: whether clients are charged by their identities, for a roster lists them.
            Without one they name themselves, each by a name of its own.
        timeout: seconds to wait for nodes; one that answers later is not asked anew.
    """

    def __init__(self, *, has_roster: bool, timeout: float) -> None:
        self._has_roster = has_roster
        self._timeout = timeout
        self._clients: dict[int, Introduction] = {}
        self._challenges: dict[int, Challenge] = {}
        self._late_nodes: dict[str, int] = {}

    def names(self, nodes: Iterable[int]) -> dict[int, str]:
        """Node -> its client's name, or the node's number before it has given one."""
        names = {node: str(node) for node in nodes}
        for node in names.keys() & self._clients.keys():
            names[node] = self._clients[node].name
        return names

    def forget(self, node: int) -> None:
        """Ask this node again: another client may be behind it."""
        self._clients.pop(node, None)

    def ask(
        self, nodes: Iterable[int], grid: Grid, note: Callable[[int, ProtocolError], None]
    ) -> dict[int, Introduction]:
        """The clients behind these nodes; the client of a disconnected node is forgotten.

        Arguments:
            nodes: of which those without a client are asked.
            grid: Flower's.
            note: called with a node that is left out, and the reason.
        """
        connected = set(grid.get_node_ids())
        wanted = set(nodes)
        for node in self._clients.keys() - connected:
            del self._clients[node]
        for number, node in list(self._late_nodes.items()):
            if node not in connected:  # it may have lost the question
                del self._late_nodes[number]
        asked_before = self._clients.keys() | set(self._late_nodes.values())
        unknown = sorted(wanted - asked_before)
        for node in unknown:
            self._challenges[node] = Challenge()
        questions = map(self._question, unknown)
        answers = arriving(grid, questions, timeout=self._timeout, late=self._late_nodes)
        for node, answer in answers:
            record = None
            if not answer.has_error():
                record = protocol_record(answer)
            try:
                self._clients[node] = self._introduction(node, record)
            except ProtocolError as error:
                note(node, error)
        introduced = sorted(wanted & self._clients.keys())
        return {node: self._clients[node] for node in introduced}

    def _question(self, node: int) -> Message:
        question = self._challenges[node].question
        values = {Key.STAGE: Key.CARD, Key.PAYLOAD: question}
        return request(node, MessageType.TRAIN, values, {})

    def _introduction(self, node: int, record: ConfigRecord | None) -> Introduction:
        """The client that a node's answer proves to be; ProtocolError for any other answer."""
        if node in self._clients:
            raise DuplicateAnswer(Key.CARD, "the node has said who it is; its first answer stands")
        silence = "the node does not say who it is"
        if record is None:
            raise MalformedMessage(Key.CARD, f"{silence}: it fails, or runs no mod")
        payload = record.get(Key.PAYLOAD)
        if Key.REFUSED in record or not isinstance(payload, bytes):
            reason = one_line(record.get(Key.REASON, "it runs no mod"))
            raise MalformedMessage(Key.CARD, f"{silence}: {reason}")
        challenge = self._challenges.get(node)
        if challenge is None:
            raise MalformedMessage(Key.CARD, "the node was not asked who it is")
        card, roster = challenge.read(payload)
        public_keys = {card.identity, card.channel}
        for client in self._clients.values():
            client_keys = {client.card.identity, client.card.channel}
            if public_keys & client_keys:
                raise SwappedKey(Key.CARD, "another node has introduced itself with this key")
        client_name = card.identity.hex()
        if not self._has_roster and Key.NAME in record:
            wanted_name = one_line(record[Key.NAME])
            client_name = self._free_name(wanted_name, client_name)
        return Introduction(card=card, name=client_name, roster=roster)

    def _free_name(self, name: str, identity: str) -> str:
        """A client's name for itself; ProtocolError for another's, or what could be its
        identity.
        """
        if name != identity and _IDENTITY.fullmatch(name):
            raise SwappedKey(Key.CARD, "a name that could be another client's key")
        names = [client.name for client in self._clients.values()]
        if name in names:
            raise DuplicateAnswer(
                Key.CARD, "another node that is there has introduced itself by this name"
            )
        return name
