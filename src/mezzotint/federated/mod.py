"""The client's half in a Flower app: a mod that answers the protocol and lets nothing but masked integers out.

    app = ClientApp(mods=[SecureUpdates(policy="policy.toml")])

Flower routes a message to a registered function before it runs mods, so a mod cannot answer `train.<stage>` actions
that an app never registered. The stages therefore travel as ordinary "train" messages whose record says which stage
they are; the app's own train function runs in the stage "sum" alone.

An update can be spread over several sums in a row: a client then trains in its own turn alone, is in every sum, and
holds its update until its next turn.
"""

from __future__ import annotations

import hashlib
import io
import math
import os
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from logging import WARNING
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar, final

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType

from mezzotint.core.errors import BudgetError, MezzotintError, ParameterError
from mezzotint.core.files import replacing
from mezzotint.federated.policy import Policy, PolicyRefusal, load_policy
from mezzotint.federated.records import (
    RECORD,
    Key,
    flatten,
    log,
    only,
    parameters,
    protocol_record,
    reply,
    shapes,
    task_digest,
)
from mezzotint.federated.secagg import Client, OutOfRangeInteger, ProtocolError, ReplayedRound, RoundPlan
from mezzotint.federated.secagg.messages import read_invitation

if TYPE_CHECKING:
    from mezzotint.federated.encoding import Encoding, Vector
    from mezzotint.federated.joined import MetricsEncoding

EXAMPLES = "num-examples"

_KEYS = {Key.CARD: (), "deal": (Key.ENCODING,), "sum": (Key.RETURNS,)}
"""What messages of a stage hold besides its name and payload; of others, which ask nothing of the data, either."""
_ANSWERS = {"train": ("weights", "update"), "evaluate": (Key.METRICS,)}
"""What may be wanted back in a round, by its purpose."""
_STATE = "client"
_SETTINGS = "settings"

Train = Callable[[Message, Context], Message]
T = TypeVar("T")


class Updates(ABC):
    """A Flower mod that answers train messages by a protocol, and refuses what the client's policy does not allow.

    Arguments:
        policy: the conditions, or the file that holds them (read anew for every message); None reads the file that
            the node's configuration names under "policy", and without one asks for nothing.
    """

    def __init__(self, policy: Policy | str | os.PathLike[str] | None = None) -> None:
        self.policy = policy

    def __call__(self, message: Message, context: Context, call_next: Train) -> Message:
        """Flower calls this for every message."""
        try:
            kind, _, function = message.metadata.message_type.partition(".")
            record = protocol_record(message) if kind in self.kinds else None
            if record is not None:
                if function not in ("", "default"):  # no plan binds it: some could be asked something else
                    raise PolicyRefusal(f"{kind}: {self.protocol} asks an app's default function alone")
                return self._answer(record, message, context, call_next)
            if kind == MessageType.TRAIN:
                raise PolicyRefusal(f"train: the server asks for an update without {self.protocol}")
            if not self._policy(context).evaluate:
                raise PolicyRefusal(f"{kind}: metrics of this client's data are releases that nobody accounts for")
        except Exception as error:
            log(WARNING, "mezzotint: refused: %s", error, exc_info=not isinstance(error, MezzotintError))
            return reply(message, _refusal(error))
        return call_next(message, context)

    protocol: ClassVar[str]
    """What protects the update."""
    kinds: ClassVar[tuple[str, ...]] = (MessageType.TRAIN,)
    """Messages that may be of the protocol, by Flower's name."""

    @abstractmethod
    def _answer(self, record: ConfigRecord, message: Message, context: Context, call_next: Train) -> Message:
        """The answer to a message of the protocol."""

    def _policy(self, context: Context) -> Policy:
        if isinstance(self.policy, Policy):
            return self.policy
        path = self.policy if self.policy is not None else context.node_config.get("policy")
        try:
            return Policy() if path is None else load_policy(str(path))
        except MezzotintError as error:  # what is wrong with the file is told here alone
            log(WARNING, "mezzotint: %s", error)
            raise PolicyRefusal("policy: this client cannot read its own; its log says why") from None


@final
class SecureUpdates(Updates):
    """A Flower mod: clip, quantize, mask; refuse what the client's policy does not allow.

    Arguments:
        policy: of the client, or the path of its file; None takes the policy file that the node's configuration names.
    Guarantees:
        A train message without the protocol is refused: the plain update never leaves.
        The reply of the train function reaches the server as masked integers only; its metrics are dropped. What the
            evaluate function measures reaches it likewise, within the plan's ranges, if the policy allows such sums.
        A model or a configuration other than those that the plan holds the hash of is refused: all summands of a sum
            answer one question.
        Evaluate messages without the protocol, and query messages, are refused unless the policy allows them: metrics
            of this client's data are releases that nobody accounts for.
        A message of another kind than the plan's purpose is refused, and changes nothing.
        What a refused message brought along is forgotten, and the round in progress is over: a later message of that
            round is refused too. (A message of another round alone changes nothing.)
        A refusal is answered with its name and a reason that depends on the server's messages and the policy, never
            on this client's data.
        Of a client with a file of its identity and a folder of records, a masked input leaves after its sum is on the
            ledger of its life: no plan is answered twice, and no `budget` exceeded. A `budget` asks for both.
        What `minimum` and `noise_multiplier` of the policy promise is checked by this client and by a committee drawn
            from its own roster, not taken from the server.
    Edge cases: the client's name in the server's ledger is its public identity where there is a roster, else the node's
        "name" or "partition-id" if configured.
    Example:
        >>> mod = mz.federated.SecureUpdates(mz.federated.Policy(report_epsilon=2.0))
        >>> callable(mod)
        True
    """

    protocol = "secure aggregation"
    kinds = (MessageType.TRAIN, MessageType.EVALUATE)

    def _answer(self, record: ConfigRecord, message: Message, context: Context, call_next: Train) -> Message:
        known = _KEYS.get(str(record.get(Key.STAGE)), (Key.ENCODING, Key.RETURNS))
        if strange := record.keys() - {Key.STAGE, Key.PAYLOAD, *known}:
            raise PolicyRefusal(f"record: {len(strange)} keys that this stage does not have")  # no plan binds them
        policy = self._policy(context)
        client, settings = _restored(context, policy)
        kind = message.metadata.message_type.split(".")[0]
        _check_kind(kind, str(record.get(Key.STAGE)), client.plan)
        try:
            stage, payload = str(record[Key.STAGE]), as_bytes(record[Key.PAYLOAD])
            answer: dict[str, object] = {}
            if stage == Key.CARD:
                answer = {Key.PAYLOAD: client.show(payload), Key.NAME: name_of(context) or client.identity.hex()}
            elif stage == "deal":
                if "identity" in context.node_config and "records" not in context.node_config:
                    # Flower's state is of one run: in two runs of one plan a server would have both secrets opened.
                    raise PolicyRefusal("records: this client has an identity, and no folder to note its sums in")
                settings = as_bytes(record[Key.ENCODING])
                plan = read_invitation(payload)[0]
                _check_kind(kind, "", plan)
                policy.check(_announced(settings), plan)
                answer = {Key.PAYLOAD: client.deal(payload)}
            elif stage == "sum":
                encoding = _agreed(client, policy, settings)
                answer = {Key.PAYLOAD: _masked(client, payload, encoding, message, call_next, context, policy)}
            else:
                answer = {Key.PAYLOAD: _method(client, stage)(payload)}
        except ReplayedRound:
            raise  # a message of another round: nothing of it is kept, and the round in progress goes on
        except BaseException:
            client.abandon()
            _keep(context, client, b"")
            raise
        _keep(context, client, settings)
        return reply(message, answer)


def _check_kind(kind: str, stage: str, plan: RoundPlan | None) -> None:
    """Refuse a message whose kind is not that of the round in progress; the first two stages begin a round."""
    asked = MessageType.TRAIN if stage == Key.CARD else kind if stage == "deal" or plan is None else plan.purpose
    if kind != asked:
        raise PolicyRefusal(f"purpose: a message to {kind}, in a round to {asked}")


def _refusal(error: Exception) -> dict[str, object]:
    """Name and reason as they travel. Only errors whose words come from messages and policy speak for themselves."""
    public = isinstance(error, PolicyRefusal | ProtocolError) and not isinstance(error, OutOfRangeInteger)
    if public:
        return {Key.REFUSED: type(error).__name__, Key.REASON: str(error)}
    return {Key.REFUSED: "ClientFault", Key.REASON: "this client cannot answer; its own log says why"}


def _restored(context: Context, policy: Policy) -> tuple[Client, bytes]:
    """The client as the last message left it, and the description of the encoding that its round was announced with."""
    saved = context.state.config_records.get(RECORD)
    if saved is None:
        return Client(identity=_identity(context), trust=policy.trust), b""
    return Client.load(as_bytes(saved[_STATE]), trust=policy.trust), as_bytes(saved[_SETTINGS])


def _keep(context: Context, client: Client, settings: bytes) -> None:
    context.state[RECORD] = ConfigRecord({_STATE: client.save(), _SETTINGS: settings})


def _method(client: Client, stage: str) -> Callable[[bytes], bytes]:
    methods = {"agree": client.agree, "open": client.open, "unite": client.unite}
    if stage not in methods:
        raise PolicyRefusal("stage: unknown; server and client run different versions")
    return methods[stage]


def _announced(settings: bytes) -> Encoding:
    """The encoding of an invitation."""
    from mezzotint.federated.joined import unpacked  # heavy, and not needed for other messages

    try:
        return unpacked(settings)
    except MezzotintError as error:  # its words are the server's own
        raise PolicyRefusal(f"encoding: {error}") from None


def _agreed(client: Client, policy: Policy, settings: bytes) -> Encoding | None:
    """The encoding of the round in progress, held against plan and policy once more; None between rounds."""
    if client.plan is None:
        return None
    from mezzotint.federated.joined import unpacked

    encoding = unpacked(settings)
    policy.check(encoding, client.plan)
    return encoding


def _masked(
    client: Client,
    payload: bytes,
    encoding: Encoding | None,
    message: Message,
    call_next: Train,
    context: Context,
    policy: Policy,
) -> bytes:
    plan = client.plan
    if encoding is None or plan is None:
        return client.sum(payload, np.zeros(0, dtype=np.int64))  # refuses: no round is in progress
    if plan.task != task_digest(message.content):
        raise PolicyRefusal("model: not the model, or not the configuration, that the round was announced with")
    size = parameters(only(message.content.array_records.values()))
    # What a message alone can make fail is refused here: below, a failure is the client's, and adds nothing.
    if _returns(message) not in _ANSWERS[plan.purpose]:
        raise PolicyRefusal(f"returns: of a round to {plan.purpose}, one of {', '.join(_ANSWERS[plan.purpose])}")
    client.expect(payload)  # before the app is asked: what is refused leaves no trace in its state
    integers = whatever_happens(
        lambda: encoding.encode(_share(message, call_next, context, client, encoding)),
        lambda: encoding.encode(encoding.nothing(size)),
        "adding nothing but noise",
    )
    masked = client.sum(payload, integers)
    _charge(client.identity.hex(), plan, encoding, policy, encoding.numbers(size), context)
    return masked  # only now, and only if it is on the client's ledger, does it leave


def whatever_happens(make: Callable[[], T], nothing: Callable[[], T], told: str) -> T:
    """What is made of the client's data, or, whatever that ends with, of nothing; the reason is logged here alone.

    That there is no input can be a fact about the data: it is not told, and costs what an input costs.
    """
    try:
        return make()
    except KeyboardInterrupt:
        raise  # of whoever runs this client
    except BaseException as error:  # libraries may end the process, or raise what is no Exception
        made, ours = nothing(), isinstance(error, MezzotintError)
        why = str(error) if ours else type(error).__name__  # others' words may raise
        log(WARNING, "mezzotint: %s: %s", told, why, exc_info=not ours)
        return made


def _share(message: Message, call_next: Train, context: Context, client: Client, encoding: Encoding) -> Vector:
    """What goes into the sum: metrics, a new update, or, of an encoding with bands, its share in this round."""
    from mezzotint.federated.joined import MetricsEncoding

    if isinstance(encoding, MetricsEncoding):
        return measured(message, call_next, context, encoding)

    def update() -> Vector:
        return trained_update(message, call_next, context, encoding)

    plan = client.plan
    if encoding.bands == 1 or encoding.norm is None or plan is None:
        return update()
    held = Held(context=context, identity=client.identity, about=plan.session + encoding.binding)
    size = parameters(only(message.content.array_records.values()))
    return spread(update, number=plan.round, size=size, bands=encoding.bands, norm=encoding.norm, held=held)


def _charge(identity: str, plan: RoundPlan, encoding: Encoding, policy: Policy, size: int, context: Context) -> None:
    """Puts the sum on the ledger of this client's life, if it has one, or refuses it."""
    folder = context.node_config.get("records")
    if folder is None or "identity" not in context.node_config:
        if math.isinf(policy.budget):
            return
        raise PolicyRefusal("budget: this client has no identity and no records that outlast the run")
    from mezzotint.federated.ledger import LifetimeLedger

    Path(str(folder)).mkdir(mode=0o700, parents=True, exist_ok=True)
    path = Path(str(folder)) / f"sums-{identity[:16]}.jsonl"
    try:
        LifetimeLedger(path, identity=identity).charge(
            encoding, plan=plan.digest, session=plan.session, number=plan.round, clients=plan.minimum,
            corrupted=policy.trust.corrupted_of(plan), size=size, budget=policy.budget, delta=policy.delta,
        )  # fmt: skip
    except ReplayedRound as error:
        raise PolicyRefusal(f"round: {error}") from None
    except BudgetError as error:
        log(WARNING, "mezzotint: %s", error)
        raise PolicyRefusal(f"budget={policy.budget:g}: another sum would exceed it; nothing was sent") from None
    except ParameterError:
        raise PolicyRefusal("budget: nothing is claimed of this encoding's sums against their server") from None


def trained_update(message: Message, call_next: Train, context: Context, encoding: Encoding | None = None) -> Vector:
    """What the app's train function wants added to the parameters, as one vector.

    Arguments:
        message, call_next, context: of the mod.
        encoding: of the update; one that weighs gets the function's metric "num-examples" behind it.

    Raises:
        Exception: whatever the function raised, or arrays other than those of the model.
    """
    answer = _asked(message, call_next, context)
    sent, trained = (only(one.content.array_records.values()) for one in (message, answer))
    returns = _returns(message)
    if shapes(trained) != shapes(sent):
        raise ParameterError("arrays", str(shapes(trained)), "the update's arrays differ from the model's")
    if returns not in ("update", "weights"):
        raise ParameterError("returns", returns, "use 'weights' (new parameters) or 'update' (what is added to them)")
    update = flatten(trained) if returns == "update" else flatten(trained) - flatten(sent)
    return update if encoding is None or not encoding.weighs else np.append(update, _metric(answer, EXAMPLES))


def measured(message: Message, call_next: Train, context: Context, encoding: MetricsEncoding) -> Vector:
    """What the app's evaluate function measures: the metrics that the encoding names, one behind the other.

    Raises:
        Exception: whatever the function raised, or a metric that it does not give.
    """
    answer = _asked(message, call_next, context)
    if (returns := _returns(message)) != Key.METRICS:
        raise ParameterError("returns", returns, f"use {Key.METRICS!r}: a sum of what clients measure")
    return np.array([_metric(answer, name) for name in (*encoding.names, *([EXAMPLES] if encoding.weighs else []))])


def _asked(message: Message, call_next: Train, context: Context) -> Message:
    record = message.content.pop(RECORD)  # what no plan binds is not the app's to see
    try:
        answer = call_next(message, context)
    finally:
        message.content[RECORD] = record
    if answer.has_error():
        raise ParameterError(message.metadata.message_type, str(answer.error.reason), "the app's function failed")
    return answer


def _returns(message: Message) -> str:
    record = protocol_record(message)
    wanted = None if record is None else record.get(Key.RETURNS)
    return wanted if isinstance(wanted, str) else ""


def _metric(answer: Message, name: str) -> float:
    """A metric from the app's function; "num-examples" is named as in Flower's own strategies."""
    for metrics in answer.content.metric_records.values():
        if name in metrics:
            return float(np.asarray(metrics[name]))
    raise ParameterError("metrics", f"without {name!r}", "the sum needs it from the app's function")


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


def name_of(context: Context) -> str:
    """What the node's configuration calls this client; "" when it does not."""
    for key in ("name", "partition-id"):
        if key in context.node_config:
            return str(context.node_config[key])
    return ""


def as_bytes(value: object) -> bytes:
    """The payload, checked to be bytes."""
    if not isinstance(value, bytes):
        raise ParameterError("payload", type(value).__name__, "need bytes; the message was made by something else")
    return value


_HELD = "mezzotint.held"
_BYTES = "update"


def turn_of(identity: bytes, bands: int) -> int:
    """How many rounds it takes until a client's first turn, 0 to bands - 1.

    It follows from the public identity alone: no server chooses it, and no crash makes a client forget it. So there are
    about as many clients in each turn, but not just as many.
    """
    return int.from_bytes(hashlib.sha256(b"mezzotint turn" + identity).digest()[:8], "little") % bands


@final
@dataclass(frozen=True, kw_only=True)
class Held:
    """Where a client keeps its last update between its turns: in its records, or in Flower's state of the run.

    Arguments:
        context: of the message.
        identity: of the client.
        about: what the update may be used for, such as the session and the encoding; under anything else there is none.

    Guarantees: a file is replaced as a whole, and on disk, before `keep` returns; nobody else may read it.
    Edge cases: what is lost or damaged counts as an update that never was: the client then adds noise alone.
    """

    context: Context
    identity: bytes
    about: bytes

    @property
    def _path(self) -> Path | None:
        folder, config = self.context.node_config.get("records"), self.context.node_config
        return None if folder is None or "identity" not in config else Path(str(folder)) / self._name

    @property
    def _name(self) -> str:
        return f"update-{self.identity.hex()[:16]}.npz"

    def keep(self, number: int, vector: Vector) -> None:
        """Replaces what is held by the update of this round."""
        file = io.BytesIO()
        np.savez(file, about=np.frombuffer(self.about, np.uint8), number=np.int64(number), vector=vector)
        if self._path is None:
            self.context.state[_HELD] = ConfigRecord({_BYTES: file.getvalue()})
            return
        with replacing(self._path, overwrite=True) as temporary:
            temporary.touch(mode=0o600)
            temporary.write_bytes(file.getvalue())

    def of(self, number: int) -> Vector | None:
        """The update of this round, if it is held."""
        try:
            with np.load(io.BytesIO(self._bytes()), allow_pickle=False) as file:
                same = file["about"].tobytes() == self.about and int(file["number"]) == number
                return file["vector"] if same else None
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return None

    def _bytes(self) -> bytes:
        if self._path is not None:
            return self._path.read_bytes()
        record = self.context.state.config_records.get(_HELD)
        found = b"" if record is None else record[_BYTES]
        return found if isinstance(found, bytes) else b""


def spread(update: Callable[[], Vector], *, number: int, size: int, bands: int, norm: float, held: Held) -> Vector:
    """(size,) a client's contribution to the sum of a round: its share of the update from its last turn.

    Arguments:
        update: trains; called in the client's turn alone, and once for a round.
        number: of the round.
        size: coordinates of an update.
        bands: of the encoding.
        norm: that updates are clipped to.
        held: where the update is kept.

    Guarantees: within a block of `bands` rounds from a turn on, shares of one update and of no other.
    Edge cases: zero where the client was not asked in its turn, or has lost the update; the sum gets its noise then.
    Source: docs/proofs/vectors.md, "Vectors in several sums".
    """
    from mezzotint.vectors import clip
    from mezzotint.vectors.rotation import SCALE, coefficients

    since = (number - 1 - turn_of(held.identity, bands)) % bands
    vector = held.of(number - since)
    if vector is None and since == 0:
        vector = clip(update(), norm="l2", bound=norm)
        held.keep(number, vector)
    if vector is None or vector.size != size:
        vector = np.zeros(size)
    return coefficients(bands)[since] / SCALE * vector
