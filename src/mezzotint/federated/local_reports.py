"""Federated learning without secure sums: every client sends one index of a ranked codebook, which
the server sees.

A round is two exchanges: "join" announces the codebook and asks for a name; "report" sends the
model and a slot, and is answered with the index. Nobody is trusted: the claim is about a server
that keeps every report.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from logging import INFO, WARNING
from pathlib import Path
from typing import TypeAlias, Unpack, final

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord
from flwr.serverapp import Grid

from mezzotint.core.arguments import check_vector, with_old_fields
from mezzotint.core.errors import (
    BudgetError,
    FileFormatError,
    MezzotintError,
    ParameterError,
    StorageError,
)
from mezzotint.core.files import parse_object
from mezzotint.core.kinds import checked
from mezzotint.core.records import counted, exactly
from mezzotint.federated.budgets import Sums
from mezzotint.federated.client_mod import (
    Train,
    Updates,
    as_bytes,
    name_of,
    trained_update,
    whatever_happens,
)
from mezzotint.federated.flower_records import RECORD, Key, arrays_of, log, parameters, reply
from mezzotint.federated.lifetime_ledger import REPORTS
from mezzotint.federated.policy import Policy, PolicyRefusal
from mezzotint.federated.round_strategy import (
    RoundOptions,
    RoundStrategy,
    RoundTask,
    Running,
    halfway,
)
from mezzotint.federated.secagg import DuplicateAnswer, MalformedMessage, TooFewClients
from mezzotint.privacy.claim import Claim
from mezzotint.privacy.ledger import Ledger
from mezzotint.vectors import RankedCodebook, RankedSession, round_seeds

JOIN, REPORT = "join", "report"
LARGEST = 1 << 20
"""Most bytes of a codebook's description; a longer one is refused before it fills the memory."""

_CODEBOOK, _ANSWERS = "codebook", "answers"


# Clients ------------------------------------------------------------------------------------------


@final
class LocalUpdates(Updates):
    """A Flower mod: clip, rank, send one index; refuse whatever the client's policy forbids.

    The client's own ledger and its answers are kept in the folder that the node's configuration
    names under "records"; without one, in Flower's state of the run. A policy with a budget
    requires the folder, with the ledger that `mezzotint roster identity` begins there.

    Arguments:
        policy: of the client, or the path of its file; None takes the policy file that the node's
            configuration names.

    Guarantees:
        Each round of a session is answered once; asked again, the same index comes back and nothing
        more is charged. A report leaves only after it is on the client's ledger, which the server
        cannot write. The server learns nothing about the data but the index: if the train function
        fails, or returns an update of
            other shapes or one that is not finite, the zero vector is reported. Metrics are
            dropped. The time that an answer takes is outside the claim.
        A refusal is answered with its name and a reason that depends on the server's messages, the
        policy and the
            number of reports sent, never on this client's data.

    Example:
        >>> mod = mz.federated.LocalUpdates(mz.federated.Policy(report_epsilon=4.0))
        >>> callable(mod)
        True
    """

    protocol = "a ranked codebook"

    def _answer(
        self, record: ConfigRecord, message: Message, context: Context, call_next: Train
    ) -> Message:
        policy = self._policy(context)
        stage = str(record.get(Key.STAGE))
        if stage == JOIN:
            described = as_bytes(record.get(Key.ENCODING))
            policy.check_report(_announced(described))
            _check_lasting(policy, context)
            saved_state = context.state.config_records.get(RECORD)
            if saved_state is None or as_bytes(saved_state[_CODEBOOK]) != described:
                if saved_state is not None and _answers(saved_state):
                    raise PolicyRefusal("codebook: this client reports under one codebook in a run")
                _keep(context, described, {})
            return reply(message, {Key.PAYLOAD: b"", Key.NAME: _name(context)})
        if stage != REPORT:
            raise PolicyRefusal("stage: unknown; server and client run different versions")
        report = self._report(
            as_bytes(record.get(Key.PAYLOAD)), message, context, call_next, policy
        )
        return reply(message, {Key.PAYLOAD: report})

    def _report(
        self, payload: bytes, message: Message, context: Context, call_next: Train, policy: Policy
    ) -> bytes:
        """A client's report of a round, charged and kept before it is returned; an answered
        question is answered again with the same bits, and no update with a report about zeros.
        """
        saved_state = context.state.config_records.get(RECORD)
        if saved_state is None:
            raise PolicyRefusal("codebook: no round was announced to this client")
        described = as_bytes(saved_state[_CODEBOOK])
        scheme = _announced(described)
        policy.check_report(scheme)  # it may have been changed since
        _check_lasting(policy, context)
        number, slot = _question(payload)
        if not 1 <= number <= policy.rounds:
            raise PolicyRefusal(
                f"rounds={number}: this client answers rounds 1 to {policy.rounds} of a session"
            )
        parameter_count = parameters(arrays_of(message))
        if parameter_count != scheme.dimension:
            raise PolicyRefusal(
                f"dimension={scheme.dimension}: the model has {parameter_count} parameters"
            )
        session = _session(scheme, context, policy, _answers(saved_state))
        vector = None
        if number not in session.answers:  # for an answered question nothing is drawn
            vector = whatever_happens(
                lambda: check_vector(
                    trained_update(message, call_next, context), parameter_count, name="update"
                ),
                "reporting about no update",
            )
        if vector is None:
            vector = np.zeros(parameter_count)
        try:
            report = session.answer(vector, round_number=number, slot=slot)
        except BudgetError:
            raise PolicyRefusal(
                f"budget={exactly(policy.budget)}: another report would exceed it; nothing was sent"
            ) from None
        except StorageError:  # whose path is not the server's to know
            raise
        except ParameterError as error:  # another slot of a round that was answered
            raise PolicyRefusal(str(error)) from None
        _keep(context, described, session.answers)
        return report.to_bytes(-(-scheme.bits // 8), "big")


def _check_lasting(policy: Policy, context: Context) -> None:
    """Refuse a budget that nothing outlasting the run counts: a server could start one run after
    another.
    """
    if math.isinf(policy.budget):
        return
    if "records" not in context.node_config:
        raise PolicyRefusal(
            "records: this client has a budget, and no folder to count its reports in over all runs"
        )
    ledger_path = Path(str(context.node_config["records"])) / REPORTS
    if not ledger_path.exists():
        log(
            WARNING,
            "mezzotint: %s is missing: restore it, or enrol under a new identity "
            "(`mezzotint roster identity`)",
            ledger_path,
        )
        raise PolicyRefusal("records: the ledger of reports is missing; its log says what to do")


def _session(
    scheme: RankedCodebook, context: Context, policy: Policy, answers: Answers
) -> RankedSession:
    budget = (policy.budget, 0.0)
    name = _name(context)
    if "records" not in context.node_config:
        return RankedSession(scheme, client=name, ledger=Ledger(), budget=budget, answers=answers)
    folder = Path(str(context.node_config["records"]))
    path = folder / f"answers-{scheme.sha256[:16]}.jsonl"
    ledger = Ledger(folder / REPORTS)
    return RankedSession(scheme, client=name, ledger=ledger, budget=budget, path=path)


Answers: TypeAlias = dict[int, tuple[int, int, str]]
"""`RankedSession.answers`."""


def _answers(saved_state: ConfigRecord) -> Answers:
    """The answers that `_keep` kept; the session checks them."""
    saved_answers = parse_object(as_bytes(saved_state[_ANSWERS]), name="answers")
    try:
        return {int(number): tuple(answer) for number, answer in saved_answers.items()}
    except (ValueError, TypeError):
        raise FileFormatError("answers: not those that a client keeps") from None


def _keep(context: Context, described: bytes, answers: Answers) -> None:
    context.state[RECORD] = ConfigRecord(
        {_CODEBOOK: described, _ANSWERS: json.dumps(answers).encode()}
    )


def _name(context: Context) -> str:
    return name_of(context) or f"node {context.node_id}"


def _announced(described: bytes) -> RankedCodebook:
    """The codebook of an invitation, its claim checked exactly."""
    try:
        reader = zlib.decompressobj()
        document = reader.decompress(described, LARGEST).decode()
        if not reader.eof:
            raise ParameterError("codebook", f"{len(described)} bytes", "cut, or too long")
        return RankedCodebook.from_json(document)
    except (
        MezzotintError,
        zlib.error,
        UnicodeDecodeError,
    ) as error:  # its words are the server's own
        raise PolicyRefusal(f"codebook: {error}") from None


def _question(payload: bytes) -> tuple[int, int]:
    try:
        question = parse_object(payload, name="question")
        number = question["round"]
        slot = question["slot"]
        round_seeds(number, [slot])
    except (ValueError, KeyError, TypeError):
        raise PolicyRefusal(
            "question: no round and slot; server and client run different versions"
        ) from None
    return number, slot


# The server ---------------------------------------------------------------------------------------


@final
@dataclass(kw_only=True)
class _Local(Running):
    """The round in progress: its stage, who joined, their reports, who refused to report."""

    stage: str = JOIN
    joined: list[int] = field(default_factory=list)
    reports: dict[int, int] = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)


@with_old_fields(per_round="clients_per_round")
@final
@checked
class LocalStrategy(RoundStrategy[_Local]):
    """Every training round asks each client for one index about its whole update; the server
    averages the estimates.

    Arguments:
        scheme: the ranked codebook, of as many coordinates as the model has parameters. Its beacon
            is joined with the session, so that no two runs use the same seeds.
        options: see `RoundStrategy`. Fewer than `minimum` reports, by default 1, do not move the
            model, but are charged all the same.

    Guarantees:
        Every client that was asked and did not refuse is charged, whether its report arrived or
        not. A slot is a place among the nodes drawn, which does not depend on any client's vector.

    Example:
        >>> codebook = mz.vectors.ranked_codebook(100, 4.0, bits=8)
        >>> strategy = mz.federated.LocalStrategy(scheme=codebook, clients_per_round=20)
        >>> strategy.scheme.epsilon <= 4.0
        True
    """

    def __init__(
        self, *, scheme: RankedCodebook, clients_per_round: int, **options: Unpack[RoundOptions]
    ) -> None:
        super().__init__(clients_per_round=clients_per_round, **options)
        self.scheme = replace(scheme, beacon=f"{scheme.beacon} {self.session.hex()}".strip())
        self.message_bits = self.report_bits = scheme.bits

    counted_view = "local"

    @staticmethod
    def usual_minimum(clients_per_round: int) -> int:
        return 1

    def claims(self, sums: Sums) -> dict[str, Claim]:
        """The claim of the client charged most, against an observer of every report: the server
        itself.
        """
        rounds = max(self.ledger.charges.values(), default=0)
        return {"local": self.claim(rounds, delta=sums.delta)} if rounds else {}

    def claim(self, rounds: int, *, delta: float) -> Claim:
        """The claim of a client in this many rounds: pure, unless a delta buys a smaller epsilon.

        Arguments:
            rounds: that the client reports in.
            delta: that may be spent.
        """
        return self.scheme.claim(rounds=rounds, delta=delta)

    def cost(self, sums: Sums) -> float:
        return self.claim(sums.rounds, delta=sums.delta).epsilon

    def report_mse(self) -> float:
        return self.scheme.mse / self.scheme.dimension

    # Rounds ---------------------------------------------------------------------------------------

    def _open(self, number: int, task: RoundTask, grid: Grid) -> _Local:
        parameter_count = parameters(task["arrays"])
        if parameter_count != self.scheme.dimension:
            raise ParameterError(
                "dimension", self.scheme.dimension, f"the model has {parameter_count} parameters"
            )
        # A node's name is unknown until it has joined.
        nodes = self._choose({node: str(node) for node in self._connected(grid)}, number)
        return _Local(number=number, nodes=dict(enumerate(nodes)), task=task, grid=grid)

    def _stage(self, current: _Local) -> str:
        return current.stage

    def _enough(self, current: _Local) -> bool:
        wanted = min(self.clients_per_round, len(current.nodes))
        if current.stage == JOIN:
            return len(current.joined) >= halfway(wanted, len(current.nodes))
        return len(current.reports) >= wanted

    def _receive(self, current: _Local, place: int, payload: bytes) -> None:
        if current.stage == JOIN:
            if place in current.joined:
                raise DuplicateAnswer(JOIN, "a second answer of one client", (place,))
            current.joined.append(place)
            return
        if place not in current.joined:
            raise MalformedMessage(REPORT, "a report of a client that did not join", (place,))
        if place in current.reports:
            raise DuplicateAnswer(REPORT, "a second answer of one client", (place,))
        report = int.from_bytes(payload, "big")
        if len(payload) != -(-self.scheme.bits // 8) or report >= self.scheme.reports:
            raise MalformedMessage(REPORT, f"no index below {self.scheme.reports}", (place,))
        current.reports[place] = report

    def _refused(self, current: _Local, place: int) -> None:
        if current.stage == REPORT:
            current.refused.add(place)

    def _until_train(self, current: _Local) -> Iterator[Message]:
        described = zlib.compress(self.scheme.to_json().encode(), 9)
        self._ask(
            current,
            self._messages(current, dict.fromkeys(current.nodes, b""), {Key.ENCODING: described}),
        )
        if len(current.joined) < max(1, self.minimum):
            raise TooFewClients(
                JOIN, f"{counted(len(current.joined), 'client')} joined, {self.minimum} are needed"
            )
        # From here on a client is charged under its own name.
        current.names = self._unspent(
            {position: current.name(position) for position in current.joined}
        )
        current.joined = list(current.names)
        invited_names = list(current.names.values())
        self.ledger.ask(current.number, invited_names, minimum=1, most_rounds=self.most_rounds)
        current.stage = REPORT
        outbox = {
            position: json.dumps({"round": current.number, "slot": position}).encode()
            for position in current.joined
        }
        return self._messages(current, outbox, {Key.RETURNS: self.returns}, current.task)

    def _until_mean(self) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Request the reports and add the mean of their estimates to the model."""
        current = self._running
        self._running = None
        if current is None:
            return None, None
        self._ask(current, current.requests)
        # A silent client may have sent a report that others saw on its way, or that arrives late.
        charged = [
            current.names[position]
            for position in current.joined
            if position in current.reports or position not in current.refused
        ]
        enough = len(current.reports) >= max(1, self.minimum)
        averaged = len(current.reports) * enough
        self.ledger.close(current.number, charged, averaged=averaged)
        if not enough:
            shortage = TooFewClients(
                REPORT,
                f"{counted(len(current.reports), 'report')} arrived, {self.minimum} are needed",
            )
            self._note(current.number, "", shortage)
            return None, None
        self.counted = len(current.reports)
        places = sorted(current.reports)
        mean_update = self.scheme.mean(
            [current.reports[position] for position in places], round_seeds(current.number, places)
        )
        return self._moved(
            current,
            mean_update,
            {"survivors": len(places), "dropped": len(current.nodes) - len(places)},
        )

    def summary(self) -> None:
        """Log the settings."""
        log(
            INFO,
            "\t├──> Single reports of %d clients (%s), seen by this server",
            self.clients_per_round,
            self.sampling,
        )
        log(INFO, "\t└──> %s", self.scheme)
