"""The client's half of a Flower app: a mod that answers the protocol and lets only masked integers
out.

    app = ClientApp(mods=[SecureUpdates(policy="policy.toml")])

Flower routes a message to a registered function before it runs mods, so a mod cannot answer
`train.<stage>` actions that an app never registered. The stages therefore travel as ordinary
"train" messages whose record names the stage; the app's own train function runs only in the stage
"sum".
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from logging import WARNING
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar, final

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType

from mezzotint.core.errors import MezzotintError, ParameterError
from mezzotint.core.types import AnyPath
from mezzotint.federated.client_fn_apps import EXAMPLES, Train, adapted, is_client_fn
from mezzotint.federated.flower_records import (
    RECORD,
    Key,
    arrays_of,
    flatten,
    kind_of,
    log,
    parameters,
    protocol_record,
    reply,
    shapes,
    task_digest,
)
from mezzotint.federated.policy import Policy, PolicyRefusal, load_policy
from mezzotint.federated.secagg import Client
from mezzotint.federated.secagg.client import MOST_AHEAD
from mezzotint.federated.secagg.roster import read_identity
from mezzotint.federated.signer import (
    RemoteSigner,
    Signer,
    Signing,
    lasting_ledger,
    read_encoding,
    refusal_of,
)

if TYPE_CHECKING:
    from mezzotint.federated.encoding import Encoding, Vector
    from mezzotint.federated.wrapped_encodings import MetricsEncoding

_DEALING_KEYS = (Key.ENCODING, Key.NEXT)
_KEYS = {
    Key.CARD: (),
    "deal": _DEALING_KEYS,
    "sum": (Key.RETURNS,),
    "agree": (),
    "open": _DEALING_KEYS,
    "unite": _DEALING_KEYS,
}
"""Keys of a stage's messages besides its name and payload. Invitations to further rounds come with
another one, or with the message that ends a round for a member.
"""
_ANSWERS = {"train": ("weights", "update"), "evaluate": (Key.METRICS,)}
"""Values of `Key.RETURNS` in a round, by its purpose."""
_REHEARSED = "mezzotint.rehearsed"
_STATE = "client"

T = TypeVar("T")


class Updates(ABC):
    """A Flower mod that answers train messages by a protocol, and refuses whatever the client's
    policy forbids.

    Arguments:
        policy: the conditions, or their file (read anew for every message); None reads the file
            that the node's configuration names under "policy", and sets no conditions without one.
    """

    def __init__(self, policy: Policy | AnyPath | None = None) -> None:
        self.policy = policy

    def __call__(self, message: Message, context: Context, call_next: Train) -> Message:
        """Flower calls this for every message."""
        try:
            kind = kind_of(message)
            record = None
            if kind in self.kinds:
                record = protocol_record(message)
            if record is not None:
                # No plan binds the function: some clients could be asked something else.
                if message.metadata.message_type not in (kind, f"{kind}.default"):
                    raise PolicyRefusal(
                        f"{kind}: {self.protocol} asks an app's default function alone"
                    )
                if is_client_fn(call_next):
                    call_next = adapted(call_next)
                return self._answer(record, message, context, call_next)
            if kind == MessageType.TRAIN:
                raise PolicyRefusal(f"train: the server asks for an update without {self.protocol}")
            if not self._policy(context).evaluate:
                raise PolicyRefusal(
                    f"{kind}: metrics of this client's data are releases that nobody accounts for"
                )
        except Exception as error:
            return reply(message, _refusal(error))
        return call_next(message, context)

    protocol: ClassVar[str]
    """Names the protection of the update."""
    kinds: ClassVar[tuple[str, ...]] = (MessageType.TRAIN,)
    """Kinds of messages that the protocol uses, by Flower's names."""

    @abstractmethod
    def _answer(
        self, record: ConfigRecord, message: Message, context: Context, call_next: Train
    ) -> Message:
        """The answer to a message of the protocol."""

    def _policy(self, context: Context) -> Policy:
        policy = self.policy
        if policy is None:
            policy = context.node_config.get("policy")
        if isinstance(policy, Policy):
            return policy
        if policy is None:
            return Policy()
        try:
            return load_policy(str(policy))
        except MezzotintError as error:  # the server does not learn what is wrong with the file
            log(WARNING, "mezzotint: %s", error)
            raise PolicyRefusal(
                "policy: this client cannot read its own; its log says why"
            ) from None


@final
class SecureUpdates(Updates):
    """A Flower mod: clip, quantize, mask; refuse whatever the client's policy forbids.

    Arguments:
        policy: of the client, or the path of its file; None takes the policy file that the node's
            configuration names.
    Guarantees:
        A train message without the protocol is refused: the plain update never leaves.
        The train function's reply reaches the server only as masked integers, without its metrics.
        So do the evaluate
            function's metrics, within the plan's ranges, if the policy allows such sums.
        A model or configuration that does not match the hash in the plan is refused: all summands
        answer one question. Evaluate messages without the protocol, and query messages, are refused
        unless the policy allows them: metrics
            of this client's data are releases that nobody accounts for.
        A message of another kind than the plan's purpose is refused, and changes nothing.
        A refused message is forgotten, and ends its round: later messages of that round are
        refused, too. Other rounds, in which this client dealt, go on.
        A refusal is answered with its name and a reason that depends on the server's messages and
        the policy, never
            on this client's data.
        With a file of the client's identity and a folder of records, a masked input leaves only
        after its sum is on the
            client's lifetime ledger: no plan is answered twice, and no `budget` exceeded. A
            `budget` requires both.
        The policy's `minimum` and `noise_multiplier` are checked by this client and by a committee
        drawn from its own
            roster, without trusting the server.
    Edge cases: the client's name in the server's ledger is its public identity if there is a
        roster, else the node's "name" or "partition-id" if configured.
    Example:
        >>> mod = mz.federated.SecureUpdates(mz.federated.Policy(report_epsilon=2.0))
        >>> callable(mod)
        True
    """

    protocol = "secure aggregation"
    kinds = (MessageType.TRAIN, MessageType.EVALUATE)

    def _answer(
        self, record: ConfigRecord, message: Message, context: Context, call_next: Train
    ) -> Message:
        stage = _stage(record)
        kind = kind_of(message)
        payload = as_bytes(record.get(Key.PAYLOAD))
        signer = self._signer(context)
        signer.ask("check_purpose", payload, kind=kind, stage=stage)
        invitations: list[object] = []
        try:
            invitations = _invitations(stage, record)
            answer = self._asked(signer, record, message, context, call_next)
        except Exception as error:
            answer = _refusal(error)
            signer.ask("abandon", payload)
        answer |= _further_dealings(signer, kind, invitations, record.get(Key.ENCODING))
        _keep(context, signer)
        return reply(message, answer)

    def _asked(
        self,
        signer: Signing,
        record: ConfigRecord,
        message: Message,
        context: Context,
        call_next: Train,
    ) -> dict[str, object]:
        """The answer to a stage."""
        stage = _stage(record)
        payload = as_bytes(record.get(Key.PAYLOAD))
        if stage == Key.CARD:
            client_name = name_of(context) or signer.ask("identity").hex()
            return {Key.PAYLOAD: signer.ask("card", payload), Key.NAME: client_name}
        if stage == "deal":
            encoding = as_bytes(record.get(Key.ENCODING))
            return {Key.PAYLOAD: signer.ask("deal", payload, encoding, kind=kind_of(message))}
        if stage == "sum":
            policy = self._policy(context)
            return {Key.PAYLOAD: _masked(signer, payload, message, call_next, context, policy)}
        return {Key.PAYLOAD: signer.ask("member", payload, stage=stage)}

    def _signer(self, context: Context) -> Signing:
        """The process that the node's configuration names under "signer"; or a signer here, as the
        last message left it.
        """
        if "signer" in context.node_config:
            return RemoteSigner(path=Path(str(context.node_config["signer"])))
        policy = self._policy(context)
        saved_state = context.state.config_records.get(RECORD)
        if saved_state is None:
            identity = None
            if "identity" in context.node_config:
                identity = read_identity(str(context.node_config["identity"]))
            client = Client(identity=identity, trust=policy.trust)
        else:
            client = Client.load(as_bytes(saved_state[_STATE]), trust=policy.trust)
        ledger = None
        if "identity" in context.node_config:
            folder = None
            if "records" in context.node_config:
                folder = str(context.node_config["records"])
            ledger = lasting_ledger(folder, client.identity.hex(), _warn)
        return Signer(client=client, policy=lambda: policy, ledger=ledger, warn=_warn)


def _stage(record: ConfigRecord) -> str:
    """The stage that a message names; empty for one that there is not, which may be any text."""
    stage = str(record.get(Key.STAGE))
    return stage if stage in _KEYS else ""


def _invitations(stage: str, record: ConfigRecord) -> list[object]:
    """The invitations to further rounds that come with a message, of which all keys are checked."""
    strange = record.keys() - {Key.STAGE, Key.PAYLOAD, *_KEYS.get(stage, ())}
    if strange:  # no plan binds them
        raise PolicyRefusal(f"record: {len(strange)} keys that this stage does not have")
    invitations = record.get(Key.NEXT, [])
    if not isinstance(invitations, list) or len(invitations) > MOST_AHEAD:
        raise PolicyRefusal(f"next: need a list of at most {MOST_AHEAD} invitations")
    return list(invitations)


def _further_dealings(
    signer: Signing, kind: str, invitations: Iterable[object], encoding: object
) -> dict[str, object]:
    """The answers to the invitations to further rounds: each is refused alone."""
    dealings: list[bytes] = []
    reasons: list[str] = []
    for invitation in invitations:
        dealing = b""
        reason = ""
        try:
            dealing = signer.ask("deal", as_bytes(invitation), as_bytes(encoding), kind=kind)
        except Exception as error:
            refused = _refusal(error)
            reason = f"{refused[Key.REFUSED]}: {refused[Key.REASON]}"
        dealings.append(dealing)
        reasons.append(reason)
    if not dealings:
        return {}
    return {Key.NEXT: dealings, Key.NEXT_REASONS: reasons}


def _warn(text: str) -> None:
    log(WARNING, "mezzotint: %s", text)


def _refusal(error: Exception) -> dict[str, object]:
    """Name and reason for the server; both are logged."""
    is_foreign = not isinstance(error, MezzotintError)
    log(WARNING, "mezzotint: refused: %s", error, exc_info=is_foreign)
    refusal_name, reason = refusal_of(error)
    return {Key.REFUSED: refusal_name, Key.REASON: reason}


def _keep(context: Context, signer: Signing) -> None:
    """Leave the state of a signer in this process to the next message."""
    if isinstance(signer, Signer):
        context.state[RECORD] = ConfigRecord({_STATE: signer.client.save()})


def _masked(
    signer: Signing,
    payload: bytes,
    message: Message,
    call_next: Train,
    context: Context,
    policy: Policy,
) -> bytes:
    """The masked input; before the app runs, everything that the message alone makes fail is
    refused.
    """
    encoding = read_encoding(signer.ask("expect", payload, task_digest(message.content)))
    parameter_count = parameters(arrays_of(message))
    if _returns(message) not in _ANSWERS[encoding.purpose]:
        raise PolicyRefusal(
            f"returns: of a round to {encoding.purpose}, one of {', '.join(_ANSWERS[encoding.purpose])}"
        )
    _rehearse(message, call_next, context, encoding, policy)
    update = whatever_happens(
        lambda: _input(message, call_next, context, encoding), "adding nothing but noise"
    )
    parts = [payload]
    if update is not None:
        parts.append(update.astype("<f8").tobytes())
    return signer.ask("sum", *parts, parameters=parameter_count)


def _rehearse(
    message: Message, call_next: Train, context: Context, encoding: Encoding, policy: Policy
) -> None:
    """Run the app once on made-up data, and refuse, unpaid, if it fails there: that is a fact about
    the app alone.

    On the client's own data a failure may be a fact about the data; it is hidden, and costs what an
    input costs. The rehearsal's context has the policy's settings in place of the node's, and a
    copy of the app's state.
    """
    kind = kind_of(message)
    rehearsed = context.state.config_records.get(_REHEARSED, ConfigRecord())
    if policy.rehearse is None or kind in rehearsed:
        return
    made_up = Context(
        run_id=context.run_id,
        node_id=context.node_id,
        node_config={**context.node_config, **policy.rehearse},
        state=copy.deepcopy(context.state),
        run_config=dict(context.run_config),
    )
    try:
        encoding.encode(_input(copy.deepcopy(message), call_next, made_up, encoding))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        log(WARNING, "mezzotint: the app fails on made-up data", exc_info=True)
        failure = f"app: on made-up data its {kind} function fails with {type(error).__name__}"
        raise PolicyRefusal(f"{failure}; nothing was charged") from None
    context.state[_REHEARSED] = ConfigRecord({**rehearsed, kind: True})


def whatever_happens(make: Callable[[], T], told: str) -> T | None:
    """The result of `make`; None if it fails in any way, for a reason that is logged on this
    machine alone.

    A missing input can be a fact about the data: the server is not told, and it costs what an input
    costs.
    """
    try:
        return make()
    except KeyboardInterrupt:
        raise  # from whoever runs this client
    except BaseException as error:  # libraries may exit the process, or raise no Exception
        if isinstance(error, MezzotintError):
            log(WARNING, "mezzotint: %s: %s", told, error)
        else:  # the text of others may itself raise
            log(WARNING, "mezzotint: %s: %s", told, type(error).__name__, exc_info=True)
        return None


def _input(message: Message, call_next: Train, context: Context, encoding: Encoding) -> Vector:
    """The input to the sum: metrics, or an update."""
    from mezzotint.federated.wrapped_encodings import MetricsEncoding

    if isinstance(encoding, MetricsEncoding):
        return measured(message, call_next, context, encoding)
    return trained_update(message, call_next, context, encoding)


def trained_update(
    message: Message, call_next: Train, context: Context, encoding: Encoding | None = None
) -> Vector:
    """The app's update of the parameters as one vector, then its metric "num-examples" if the
    encoding weighs.
    """
    # Looked at before the app runs, which may train in the message's own arrays.
    model_arrays = arrays_of(message)
    model_shapes = shapes(model_arrays)
    model = flatten(model_arrays)
    answer = _answered(message, call_next, context)
    trained_arrays = arrays_of(answer)
    returns = _returns(message)
    if shapes(trained_arrays) != model_shapes:
        raise ParameterError(
            "arrays", str(shapes(trained_arrays)), "the update's arrays differ from the model's"
        )
    if returns not in ("update", "weights"):
        raise ParameterError(
            "returns", returns, "use 'weights' (new parameters) or 'update' (what is added to them)"
        )
    update = flatten(trained_arrays)
    if returns == "weights":
        update = update - model
    if encoding is not None and encoding.weighs:
        update = np.append(update, _metric(answer, EXAMPLES))
    return update


def measured(
    message: Message, call_next: Train, context: Context, encoding: MetricsEncoding
) -> Vector:
    """The metrics of the app's evaluate function that the encoding names, in order."""
    answer = _answered(message, call_next, context)
    metric_names = list(encoding.names)
    if encoding.weighs:
        metric_names.append(EXAMPLES)
    return np.array([_metric(answer, metric) for metric in metric_names])


def _answered(message: Message, call_next: Train, context: Context) -> Message:
    record = message.content.pop(RECORD)  # the app must not see what no plan binds
    try:
        answer = call_next(message, context)
    finally:
        message.content[RECORD] = record
    if answer.has_error():
        raise ParameterError(
            message.metadata.message_type, str(answer.error.reason), "the app's function failed"
        )
    return answer


def _returns(message: Message) -> str:
    record = protocol_record(message)
    if record is None:
        return ""
    wanted = record.get(Key.RETURNS)
    return wanted if isinstance(wanted, str) else ""


def _metric(answer: Message, name: str) -> float:
    """A metric from the app's function; "num-examples" is named as in Flower's own strategies."""
    for metrics in answer.content.metric_records.values():
        if name in metrics:
            return float(np.asarray(metrics[name]))
    raise ParameterError("metrics", f"without {name!r}", "the sum needs it from the app's function")


def name_of(context: Context) -> str:
    """The client's name in the node's configuration; "" without one."""
    settings = context.node_config
    return str(settings.get("name", settings.get("partition-id", "")))


def as_bytes(value: object) -> bytes:
    """A field of a message, or of the state; PolicyRefusal unless it is there and bytes."""
    if not isinstance(value, bytes):
        raise PolicyRefusal(
            f"message: bytes are missing, or are {type(value).__name__}; server and client run "
            "different versions"
        )
    return value
