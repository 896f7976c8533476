"""The client's half in a Flower app: a mod that answers the protocol and lets nothing but masked integers out.

    app = ClientApp(mods=[SecureUpdates(policy="policy.toml")])

Flower routes a message to a registered function before it runs mods, so a mod cannot answer `train.<stage>` actions
that an app never registered. The stages therefore travel as ordinary "train" messages whose record says which stage
they are; the app's own train function runs in the stage "mask" alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, final

import numpy as np
import numpy.typing as npt
from flwr.app import ConfigRecord, Context, Message, MessageType

from mezzotint.core.errors import MezzotintError, ParameterError
from mezzotint.federated.encoding import Encoding, unpacked
from mezzotint.federated.policy import Policy, PolicyRefusal, load_policy
from mezzotint.federated.records import (
    ENCODING,
    NAME,
    PAYLOAD,
    REASON,
    RECORD,
    REFUSED,
    RETURNS,
    STAGE,
    flatten,
    only,
    protocol_record,
    reply,
    shapes,
)
from mezzotint.federated.secagg import Client
from mezzotint.federated.secagg.messages import read_invitation

_STATE = "client"
_SETTINGS = "settings"

Train = Callable[[Message, Context], Message]


@final
class SecureUpdates:
    """A Flower mod: clip, quantize, mask; refuse what the client's policy does not allow.

    Arguments:
        policy: the conditions, or the file that holds them (read anew for every message); None reads the file that
            the node's configuration names under "policy", and without one asks for nothing.

    Guarantees:
        A train message without the protocol is refused: the plain update never leaves.
        The reply of the train function reaches the server as masked integers only; its metrics are dropped.
        A refusal is answered with its name and reason; the client goes on with the next round.
    Edge cases: evaluate and query messages pass unchanged. The client's name in the server's ledger is the node's
        "name" or "partition-id" if configured, else its public identity.
    """

    def __init__(self, policy: Policy | str | os.PathLike[str] | None = None) -> None:
        self.policy = policy

    def __call__(self, message: Message, context: Context, call_next: Train) -> Message:
        """Flower calls this for every message."""
        if message.metadata.message_type.split(".")[0] != MessageType.TRAIN:
            return call_next(message, context)
        try:
            return self._answer(message, context, call_next)
        except MezzotintError as error:
            return reply(message, {REFUSED: type(error).__name__, REASON: str(error)})

    def _answer(self, message: Message, context: Context, call_next: Train) -> Message:
        record = protocol_record(message)
        if record is None:
            raise PolicyRefusal("train: the server asks for an update without secure aggregation")
        policy = self._policy(context)
        saved = context.state.config_records.get(RECORD)
        client = (
            Client.load(_bytes(saved[_STATE]), trust=policy.trust)
            if saved is not None
            else Client(identity=_identity(context), trust=policy.trust)
        )
        settings = _bytes(saved[_SETTINGS]) if saved is not None else b""
        try:
            stage, payload = str(record[STAGE]), _bytes(record[PAYLOAD])
            if stage == "advertise":
                settings = _bytes(record[ENCODING])
                policy.check(unpacked(settings), read_invitation(payload)[0])
                return reply(message, {PAYLOAD: client.advertise(payload), NAME: _name(context, client)})
            if stage == "mask":
                return reply(message, {PAYLOAD: _masked(client, payload, settings, message, context, call_next)})
            return reply(message, {PAYLOAD: _method(client, stage)(payload)})
        except ParameterError:
            client.abandon()
            raise
        finally:
            context.state[RECORD] = ConfigRecord({_STATE: client.save(), _SETTINGS: settings})

    def _policy(self, context: Context) -> Policy:
        if isinstance(self.policy, Policy):
            return self.policy
        path = self.policy if self.policy is not None else context.node_config.get("policy")
        return Policy() if path is None else load_policy(str(path))


def _method(client: Client, stage: str) -> Callable[[bytes], bytes]:
    methods = {"share": client.share, "confirm": client.confirm, "unmask": client.unmask}
    if stage not in methods:
        raise ParameterError("stage", stage, "unknown; server and client run different versions")
    return methods[stage]


def _masked(
    client: Client, payload: bytes, settings: bytes, message: Message, context: Context, call_next: Train
) -> bytes:
    encoding: Encoding = unpacked(settings)
    record = protocol_record(message)
    returns = str(record[RETURNS]) if record is not None else ""
    sent = only(message.content.array_records.values())
    trained = call_next(message, context)
    if trained.has_error():
        raise ParameterError("train", str(trained.error.reason), "the train function failed")
    update = _update(only(trained.content.array_records.values()), sent, returns)
    return client.mask(payload, encoding.encode(update))


def _update(trained: Any, sent: Any, returns: str) -> npt.NDArray[np.float64]:
    if shapes(trained) != shapes(sent):
        raise ParameterError("arrays", str(shapes(trained)), "the update's arrays differ from the model's")
    if returns == "update":
        return flatten(trained)
    if returns == "weights":
        return flatten(trained) - flatten(sent)
    raise ParameterError("returns", returns, "use 'weights' (new parameters) or 'update' (what is added to them)")


def _identity(context: Context) -> bytes | None:
    """The long-term key from the file that the node's configuration names; None makes one that lasts for the run."""
    path = context.node_config.get("identity")
    if path is None:
        return None
    with open(str(path), "rb") as handle:
        key = handle.read()
    if len(key) != 32:
        raise ParameterError("identity", str(path), "the file holds 32 bytes, an Ed25519 private key")
    return key


def _name(context: Context, client: Client) -> str:
    for key in ("name", "partition-id"):
        if key in context.node_config:
            return str(context.node_config[key])
    return client.identity.hex()


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise ParameterError("payload", type(value).__name__, "need bytes; the message was made by something else")
    return value
