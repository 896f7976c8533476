"""The client's half of a Flower app: a mod that answers the protocol and lets only masked integers out.

    app = ClientApp(mods=[SecureUpdates(policy="policy.toml")])

Flower routes a message to a registered function before it runs mods, so a mod cannot answer `train.<stage>` actions
that an app never registered. The stages therefore travel as ordinary "train" messages whose record names the stage;
the app's own train function runs only in the stage "sum".
"""

from __future__ import annotations

import copy
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from logging import WARNING
from typing import TYPE_CHECKING, ClassVar, TypeVar, final

import numpy as np
from flwr.app import ConfigRecord, Context, Message, MessageType

from mezzotint.core.errors import BudgetError, MezzotintError, ParameterError
from mezzotint.federated.legacy import EXAMPLES, Train, adapted, is_client_fn
from mezzotint.federated.lifetime import Answer, LifetimeLedger, lifetime_path
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
    from mezzotint.federated.encoding import Encoding, Vector
    from mezzotint.federated.joined import MetricsEncoding

_KEYS = {Key.CARD: (), "deal": (Key.ENCODING,), "sum": (Key.RETURNS,)}
"""Keys of a stage's messages besides its name and payload; other stages, which do not touch the data, may have both."""
_ANSWERS = {"train": ("weights", "update"), "evaluate": (Key.METRICS,)}
"""Values of `Key.RETURNS` in a round, by its purpose."""
_REHEARSED = "mezzotint.rehearsed"
_STATE = "client"
_SETTINGS = "settings"

T = TypeVar("T")


class Updates(ABC):
    """A Flower mod that answers train messages by a protocol, and refuses whatever the client's policy forbids.

    Arguments:
        policy: the conditions, or their file (read anew for every message); None reads the file that the node's
            configuration names under "policy", and sets no conditions without one.
    """

    def __init__(self, policy: Policy | str | os.PathLike[str] | None = None) -> None:
        self.policy = policy

    def __call__(self, message: Message, context: Context, call_next: Train) -> Message:
        """Flower calls this for every message."""
        try:
            kind, _, function = message.metadata.message_type.partition(".")
            record = protocol_record(message) if kind in self.kinds else None
            if is_client_fn(call_next) and record is not None:
                call_next = adapted(call_next)
            if record is not None:
                if function not in (
                    "",
                    "default",
                ):  # no plan binds it: some could be asked something else
                    raise PolicyRefusal(
                        f"{kind}: {self.protocol} asks an app's default function alone"
                    )
                return self._answer(record, message, context, call_next)
            if kind == MessageType.TRAIN:
                raise PolicyRefusal(f"train: the server asks for an update without {self.protocol}")
            if not self._policy(context).evaluate:
                raise PolicyRefusal(
                    f"{kind}: metrics of this client's data are releases that nobody accounts for"
                )
        except Exception as error:
            log(
                WARNING,
                "mezzotint: refused: %s",
                error,
                exc_info=not isinstance(error, MezzotintError),
            )
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
        if isinstance(self.policy, Policy):
            return self.policy
        path = self.policy if self.policy is not None else context.node_config.get("policy")
        try:
            return Policy() if path is None else load_policy(str(path))
        except MezzotintError as error:  # the server does not learn what is wrong with the file
            log(WARNING, "mezzotint: %s", error)
            raise PolicyRefusal(
                "policy: this client cannot read its own; its log says why"
            ) from None


@final
class SecureUpdates(Updates):
    """A Flower mod: clip, quantize, mask; refuse whatever the client's policy forbids.

    Arguments:
        policy: of the client, or the path of its file; None takes the policy file that the node's configuration names.
    Guarantees:
        A train message without the protocol is refused: the plain update never leaves.
        The train function's reply reaches the server only as masked integers, without its metrics. So do the evaluate
            function's metrics, within the plan's ranges, if the policy allows such sums.
        A model or configuration that does not match the hash in the plan is refused: all summands answer one question.
        Evaluate messages without the protocol, and query messages, are refused unless the policy allows them: metrics
            of this client's data are releases that nobody accounts for.
        A message of another kind than the plan's purpose is refused, and changes nothing.
        A refused message is forgotten, and ends the round in progress: later messages of that round are refused, too.
            (Only a message of another round changes nothing.)
        A refusal is answered with its name and a reason that depends on the server's messages and the policy, never
            on this client's data.
        With a file of the client's identity and a folder of records, a masked input leaves only after its sum is on the
            client's lifetime ledger: no plan is answered twice, and no `budget` exceeded. A `budget` requires both.
        The policy's `minimum` and `noise_multiplier` are checked by this client and by a committee drawn from its own
            roster, without trusting the server.
    Edge cases: the client's name in the server's ledger is its public identity if there is a roster, else the node's
        "name" or "partition-id" if configured.
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
        named, kind = str(record.get(Key.STAGE)), message.metadata.message_type.split(".")[0]
        if strange := record.keys() - {
            Key.STAGE,
            Key.PAYLOAD,
            *_KEYS.get(named, (Key.ENCODING, Key.RETURNS)),
        }:
            raise PolicyRefusal(
                f"record: {len(strange)} keys that this stage does not have"
            )  # no plan binds them
        policy = self._policy(context)
        client, settings = _restored(context, policy)
        _check_kind(kind, named, client.plan)
        ledger = _lifetime(context, client.identity.hex())
        try:
            stage, payload = str(record[Key.STAGE]), as_bytes(record[Key.PAYLOAD])
            answer: dict[str, object] = {}
            if stage == Key.CARD:
                answer = {
                    Key.PAYLOAD: client.show(payload),
                    Key.NAME: name_of(context) or client.identity.hex(),
                }
            elif stage == "deal":
                settings = as_bytes(record[Key.ENCODING])
                plan = read_invitation(payload)[0]
                _check_kind(kind, "", plan)
                policy.check(_announced(settings), plan)
                answer = {Key.PAYLOAD: _noted(client, stage, payload, ledger, policy)}
            elif stage == "sum":
                answer = {
                    Key.PAYLOAD: _masked(
                        client, payload, settings, message, call_next, context, policy, ledger
                    )
                }
            elif stage in ("agree", "open", "unite"):
                answer = {Key.PAYLOAD: _noted(client, stage, payload, ledger, policy)}
            else:
                raise PolicyRefusal("stage: unknown; server and client run different versions")
        except ReplayedRound:
            raise  # a message of another round: the round in progress goes on
        except BaseException:
            client.abandon()
            _keep(context, client, b"")
            raise
        _keep(context, client, settings)
        return reply(message, answer)


def _check_kind(kind: str, stage: str, plan: RoundPlan | None) -> None:
    """Refuse a message of another kind than the round in progress; the first two stages begin a round."""
    asked = (
        MessageType.TRAIN
        if stage == Key.CARD
        else kind
        if stage == "deal" or plan is None
        else plan.purpose
    )
    if kind != asked:
        raise PolicyRefusal(f"purpose: a message to {kind}, in a round to {asked}")


def _refusal(error: Exception) -> dict[str, object]:
    """Name and reason for the server; the reason is withheld unless it comes from messages and policy alone."""
    if isinstance(error, PolicyRefusal | ProtocolError) and not isinstance(
        error, OutOfRangeInteger
    ):
        return {Key.REFUSED: type(error).__name__, Key.REASON: str(error)}
    return {
        Key.REFUSED: "ClientFault",
        Key.REASON: "this client cannot answer; its own log says why",
    }


def _restored(context: Context, policy: Policy) -> tuple[Client, bytes]:
    """The client as the last message left it, and the description of its round's encoding."""
    saved = context.state.config_records.get(RECORD)
    if saved is None:
        return Client(identity=_identity(context), trust=policy.trust), b""
    return Client.load(as_bytes(saved[_STATE]), trust=policy.trust), as_bytes(saved[_SETTINGS])


def _keep(context: Context, client: Client, settings: bytes) -> None:
    context.state[RECORD] = ConfigRecord({_STATE: client.save(), _SETTINGS: settings})


def _announced(settings: bytes) -> Encoding:
    """The encoding of an invitation."""
    from mezzotint.federated.joined import unpacked  # heavy, and not needed for other messages

    try:
        return unpacked(settings)
    except MezzotintError as error:  # its words are the server's own
        raise PolicyRefusal(f"encoding: {error}") from None


def _masked(
    client: Client,
    payload: bytes,
    settings: bytes,
    message: Message,
    call_next: Train,
    context: Context,
    policy: Policy,
    ledger: LifetimeLedger | None,
) -> bytes:
    plan = client.plan
    if plan is None:
        return client.sum(payload, np.zeros(0, dtype=np.int64))  # refuses: no round is in progress
    encoding = _announced(settings)
    policy.check(encoding, plan)  # again: the policy may have changed since the invitation
    if plan.task != task_digest(message.content):
        raise PolicyRefusal(
            "model: not the model, or not the configuration, that the round was announced with"
        )
    size = parameters(only(message.content.array_records.values()))
    # Whatever the message alone makes fail is refused here; failures below are the client's, which then adds nothing.
    if _returns(message) not in _ANSWERS[plan.purpose]:
        raise PolicyRefusal(
            f"returns: of a round to {plan.purpose}, one of {', '.join(_ANSWERS[plan.purpose])}"
        )
    client.expect(payload)  # before the app runs: refused messages leave no trace in its state
    _rehearse(message, call_next, context, encoding, policy)
    integers = whatever_happens(
        lambda: encoding.encode(_input(message, call_next, context, encoding)),
        lambda: encoding.encode(encoding.nothing(size)),
        "adding nothing but noise",
    )
    masked = client.sum(payload, integers)
    _charge(ledger, plan, encoding, policy, encoding.numbers(size), masked)
    return masked  # it leaves only now, after it is on the client's ledger


def _rehearse(
    message: Message, call_next: Train, context: Context, encoding: Encoding, policy: Policy
) -> None:
    """Run the app once on made-up data, and refuse, unpaid, if it fails there: that is a fact about the app alone.

    On the client's own data a failure may be a fact about the data; it is hidden, and costs what an input costs. The
    rehearsal's context has the policy's settings in place of the node's, and a copy of the app's state.
    """
    kind = message.metadata.message_type.partition(".")[0]
    if policy.rehearse is None or kind in context.state.config_records.get(_REHEARSED, {}):
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
        told = f"app: on made-up data its {kind} function fails with {type(error).__name__}"
        raise PolicyRefusal(f"{told}; nothing was charged") from None
    before = context.state.config_records.get(_REHEARSED, {})
    context.state[_REHEARSED] = ConfigRecord({**before, kind: True})


def whatever_happens(make: Callable[[], T], nothing: Callable[[], T], told: str) -> T:
    """The result of `make`, or if it fails in any way, of `nothing`; the reason is logged on this machine alone.

    A missing input can be a fact about the data: the server is not told, and it costs what an input costs.
    """
    try:
        return make()
    except KeyboardInterrupt:
        raise  # from whoever runs this client
    except (
        BaseException
    ) as error:  # libraries may exit the process, or raise something other than an Exception
        made, ours = nothing(), isinstance(error, MezzotintError)
        why = str(error) if ours else type(error).__name__  # the text of others may itself raise
        log(WARNING, "mezzotint: %s: %s", told, why, exc_info=not ours)
        return made


def _input(message: Message, call_next: Train, context: Context, encoding: Encoding) -> Vector:
    """The input to the sum: metrics, or an update."""
    from mezzotint.federated.joined import MetricsEncoding

    if isinstance(encoding, MetricsEncoding):
        return measured(message, call_next, context, encoding)
    return trained_update(message, call_next, context, encoding)


def _lifetime(context: Context, identity: str) -> LifetimeLedger | None:
    """The ledger of this client's lifetime; None for a client without a lasting identity.

    Raises:
        PolicyRefusal: an identity without records, or whose ledger is not there.
    """
    if "identity" not in context.node_config:
        return None
    if "records" not in context.node_config:
        # Flower's state lasts for one run: a server could repeat a plan in another and open both secrets.
        raise PolicyRefusal(
            "records: this client has an identity, and no folder to note its sums in"
        )
    path = lifetime_path(str(context.node_config["records"]), identity)
    if not path.exists():
        remedy = "enrol under a new identity (`mezzotint roster identity`)"
        log(WARNING, "mezzotint: %s is missing, and all that it held forgotten: %s", path, remedy)
        raise PolicyRefusal("records: this identity's ledger is missing; its log says what to do")
    return LifetimeLedger(path, identity=identity)


def _noted(
    client: Client, stage: str, payload: bytes, ledger: LifetimeLedger | None, policy: Policy
) -> bytes:
    """The answer to any stage but "sum", on the ledger before it leaves."""
    agreement = client.agreement() if stage == "open" else b""
    plan = read_invitation(payload)[0] if stage == "deal" else client.plan
    answer: bytes = getattr(client, stage)(payload)
    if ledger is None or plan is None:
        return answer
    noted = Answer(
        session=plan.session,
        number=plan.round,
        stage=stage,
        payload=answer,
        agreement=agreement,
    )
    try:
        ledger.note(noted, dealings=policy.dealings)
    except ReplayedRound as error:  # this client forgot its round, which is over
        raise PolicyRefusal(f"round: {error}") from None
    except BudgetError as error:
        raise PolicyRefusal(str(error)) from None
    return answer


def _charge(
    ledger: LifetimeLedger | None,
    plan: RoundPlan,
    encoding: Encoding,
    policy: Policy,
    size: int,
    masked: bytes,
) -> None:
    """Record the sum in this client's lifetime ledger, if it has one, or refuse it."""
    if ledger is None:
        if math.isinf(policy.budget):
            return
        raise PolicyRefusal(
            "budget: this client has no identity and no records that outlast the run"
        )
    try:
        ledger.charge(
            encoding, plan=plan.digest, session=plan.session, number=plan.round, clients=plan.minimum,
            corrupted=policy.trust.corrupted_of(plan), size=size, budget=policy.budget, delta=policy.delta,
            payload=masked,
        )  # fmt: skip
    except ReplayedRound as error:
        raise PolicyRefusal(f"round: {error}") from None
    except BudgetError as error:
        log(WARNING, "mezzotint: %s", error)
        raise PolicyRefusal(
            f"budget={policy.budget:g}: another sum would exceed it; nothing was sent"
        ) from None
    except ParameterError:
        raise PolicyRefusal(
            "budget: nothing is claimed of this encoding's sums against their server"
        ) from None


def trained_update(
    message: Message, call_next: Train, context: Context, encoding: Encoding | None = None
) -> Vector:
    """The app's update of the parameters as one vector, then its metric "num-examples" if the encoding weighs."""
    answer = _asked(message, call_next, context)
    sent, trained = (only(one.content.array_records.values()) for one in (message, answer))
    returns = _returns(message)
    if shapes(trained) != shapes(sent):
        raise ParameterError(
            "arrays", str(shapes(trained)), "the update's arrays differ from the model's"
        )
    if returns not in ("update", "weights"):
        raise ParameterError(
            "returns", returns, "use 'weights' (new parameters) or 'update' (what is added to them)"
        )
    update = flatten(trained) if returns == "update" else flatten(trained) - flatten(sent)
    return (
        update
        if encoding is None or not encoding.weighs
        else np.append(update, _metric(answer, EXAMPLES))
    )


def measured(
    message: Message, call_next: Train, context: Context, encoding: MetricsEncoding
) -> Vector:
    """The metrics of the app's evaluate function that the encoding names, in order."""
    answer = _asked(message, call_next, context)
    if (returns := _returns(message)) != Key.METRICS:
        raise ParameterError(
            "returns", returns, f"use {Key.METRICS!r}: a sum of what clients measure"
        )
    return np.array(
        [
            _metric(answer, name)
            for name in (*encoding.names, *([EXAMPLES] if encoding.weighs else []))
        ]
    )


def _asked(message: Message, call_next: Train, context: Context) -> Message:
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
    wanted = None if record is None else record.get(Key.RETURNS)
    return wanted if isinstance(wanted, str) else ""


def _metric(answer: Message, name: str) -> float:
    """A metric from the app's function; "num-examples" is named as in Flower's own strategies."""
    for metrics in answer.content.metric_records.values():
        if name in metrics:
            return float(np.asarray(metrics[name]))
    raise ParameterError("metrics", f"without {name!r}", "the sum needs it from the app's function")


def _identity(context: Context) -> bytes | None:
    """The long-term key in the file that the node's configuration names; None without one."""
    path = context.node_config.get("identity")
    return None if path is None else read_identity(str(path))


def name_of(context: Context) -> str:
    """The client's name in the node's configuration; "" without one."""
    return next(
        (
            str(context.node_config[key])
            for key in ("name", "partition-id")
            if key in context.node_config
        ),
        "",
    )


def as_bytes(value: object) -> bytes:
    """The payload, checked to be bytes."""
    if not isinstance(value, bytes):
        raise ParameterError(
            "payload", type(value).__name__, "need bytes; the message was made by something else"
        )
    return value
