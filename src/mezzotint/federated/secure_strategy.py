"""The server's half in a Flower app: a strategy whose rounds are secure sums.

strategy = SecureStrategy(encoding=..., clients_per_round=100)
strategy.start(grid=grid, initial_arrays=..., num_rounds=10)
"""

from __future__ import annotations

import hashlib
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from logging import INFO, WARNING
from typing import Any, Unpack, final

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result

from mezzotint.core.arguments import (
    check_count,
    check_finite,
    check_instance,
    with_old_fields,
    with_old_names,
)
from mezzotint.core.errors import BudgetError, InfeasibleError, ParameterError
from mezzotint.core.kinds import checked
from mezzotint.core.records import counted
from mezzotint.federated.budgets import Sums, with_evaluations
from mezzotint.federated.encoding import Encoding
from mezzotint.federated.encoding_files import packed
from mezzotint.federated.flower_records import (
    RECORD,
    Key,
    log,
    parameters,
    request,
    task_digest,
)
from mezzotint.federated.introductions import Introduction, Introductions
from mezzotint.federated.round_strategy import (
    RoundOptions,
    RoundStrategy,
    RoundTask,
    Running,
    check_most_rounds,
    halfway,
)
from mezzotint.federated.run_ledger import RunLedger
from mezzotint.federated.secagg import (
    Blame,
    PlanRefused,
    ProtocolError,
    Roster,
    RoundPlan,
    SecureSum,
    Server,
    SumParameters,
    TamperedShare,
    TooFewClients,
    Trust,
    corrupted_in,
    plan_sum,
)
from mezzotint.federated.secagg.client import MOST_AHEAD
from mezzotint.federated.secagg.plan import CORRUPTED, DIGEST_BYTES, DROPPED, SESSION_BYTES, Draw
from mezzotint.federated.secagg.roster import ROUNDS
from mezzotint.federated.wrapped_encodings import Measured, MetricsEncoding
from mezzotint.privacy.claim import Claim

AHEAD = 5
"""Rounds that clients deal in at once, by default."""
_DEALT_BYTES = 1 << 28
"""Most memory of rounds dealt ahead, unless one alone takes more."""


@final
@dataclass(kw_only=True)
class _Secure(Running):
    """The round in progress, with the protocol's server."""

    server: Server
    holding: frozenset[int]
    """Places whose clients hold the roster themselves."""
    outbox: Mapping[int, bytes] = field(default_factory=dict[int, bytes])
    """The messages of an exchange that other rounds may share, by place."""
    united: bool = False
    """Whether all who dealt are in the sum: the committee then opens without agreeing first."""
    is_dealt: bool = False
    """Whether clients were asked to deal, with an exchange of an earlier round."""


@final
@checked
@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """Sums of clients' metrics between training rounds, with a session and a ledger of their own.

    Arguments:
        encoding: which metrics of the app's evaluate function, in which ranges, under how much
            noise.
        every: the number of successful training rounds between two of these sums.
        ledger: records these sums before they happen; by default in memory.
        most_rounds: sums that any one client may be charged for; None sets no limit.

    Raises:
        ParameterError: `every` below 1, an encoding of updates, a limit that is no count.

    Example:
        >>> from mezzotint.federated import MetricsEncoding
        >>> noisy = MetricsEncoding.gaussian({"loss": (0, 5)}, noise_multiplier=8.0, clients=100)
        >>> Evaluation(encoding=noisy, every=5).encoding.names
        ('loss',)
    """

    encoding: MetricsEncoding
    every: int = 1
    ledger: RunLedger | None = None
    most_rounds: int | None = None

    def __post_init__(self) -> None:
        check_count("every", self.every)
        check_most_rounds(self.most_rounds)


@with_old_fields(per_round="clients_per_round")
@final
@checked
class SecureStrategy(RoundStrategy[_Secure]):
    """Every training round is one secure sum; the mean update, times a learning rate, is added to
    the model.

    Arguments:
        encoding: clipping and mechanism, the same for all clients; of the next round, where its
            norm adapts.
        roster: all clients; a round's are drawn from it, whether they are connected or not. None
            draws from the connected ones, whom clients must trust to be real; those whose policy
            names a roster refuse.
        corrupted: share of the clients that may collude with the server, as clients demand it; see
            `Policy`.
        dropped: share of a round's clients that may drop out; in small rounds, as many as can be
            tolerated.
        rounds: largest round number, no larger than clients' policies allow.
        evaluation: clients' metrics, summed in the same way and released beside the model; every
            claim includes their cost, and clients whose policy forbids them refuse. None requests
            none.
        ahead: the number of rounds that clients deal in at once, at most 20, with the last exchange
            of the round before; in the others that exchange concerns the committee alone. 0 deals in
            every round by itself, which takes an exchange more. A client that loses its state is out
            for as many rounds.
        retries: how often a round that clients spoilt by bad shares is repeated without them; each
            time the others are charged, for their masks were opened.
        options: see `RoundStrategy`. A round with fewer than `minimum` summands, by default half of
            those drawn + 1, is refused and nothing is learnt.

    Guarantees:
        A round that fails at any stage leaves the model as it was; the reasons are in `incidents`.
        `blames` names only clients that signed the proof against them; proofs lie beside the
        ledger, if it is a file. Sums that could overflow are refused before the first round.

    Example:
        >>> encoding = mz.federated.gaussian_encoding(noise_multiplier=8.0, clip_norm=1.0, clients=100, size=1000)
        >>> strategy = mz.federated.SecureStrategy(encoding=encoding, clients_per_round=100)
        >>> strategy.encoding is encoding
        True
    """

    def __init__(
        self,
        *,
        encoding: Encoding,
        clients_per_round: int,
        roster: Roster | None = None,
        corrupted: float = CORRUPTED,
        dropped: float = DROPPED,
        rounds: int = ROUNDS,
        evaluation: Evaluation | None = None,
        ahead: int = AHEAD,
        retries: int = 2,
        **options: Unpack[RoundOptions],
    ) -> None:
        super().__init__(clients_per_round=clients_per_round, **options)
        self.encoding = check_instance("encoding", encoding, Encoding)
        self.message_bits = encoding.bits(self.invited)
        self.report_bits = encoding.report_bits
        self.roster: Roster | None = None
        if roster is not None:
            self.roster = check_instance("roster", roster, Roster)
        if not 0 <= check_finite("dropped", dropped) < 1:
            raise ParameterError("dropped", dropped, "need a share of a round's clients in [0, 1)")
        self.dropped = dropped
        self.trust = Trust(roster=roster, corrupted=corrupted, rounds=rounds)
        self._introductions = Introductions(
            has_roster=roster is not None, timeout=self.stage_timeout
        )
        self.retries = check_count("retries", retries, least=0)
        self.ahead = check_count("ahead", ahead, least=0, most=MOST_AHEAD)
        self._dealt: list[_Secure] = []
        self.blames: list[Blame] = []
        self.excluded = self._blamed()
        self.last_sum: SecureSum | None = None
        self.measured: dict[str, Measured] = {}
        self.every = 0
        self.evaluator: SecureStrategy | None = None
        if evaluation is not None:
            self.every = check_instance("evaluation", evaluation, Evaluation).every
            self.evaluator = self._measuring(evaluation, rounds, options)
        if roster is not None:
            roster.check_drawn(self.invited, parameter="clients_per_round")
        # With more, stages would end before enough of a committee have answered.
        if self.spare > math.ceil(self.dropped * self.invited):
            raise ParameterError(
                "spare", self.spare, f"at most the share {self.dropped:g} of all that are drawn"
            )
        if self.encoding.purpose == "evaluate":  # its size does not depend on the model
            self.encoding.check_room(self.invited, size=1)
        self.plan(self.invited, 1, 1)  # refuses now what could never run

    def _measuring(
        self, evaluation: Evaluation, rounds: int, options: RoundOptions
    ) -> SecureStrategy:
        """The same clients under the same protocol, in a session with round numbers of its own."""
        session_digest = hashlib.sha256(b"mezzotint evaluation" + self.session).digest()
        session = session_digest[:SESSION_BYTES]
        replaced: RoundOptions = {
            "session": session,
            "ledger": evaluation.ledger,
            "most_rounds": evaluation.most_rounds,
            "delta": None,
        }
        evaluator = SecureStrategy(
            encoding=evaluation.encoding,
            clients_per_round=self.clients_per_round,
            roster=self.roster,
            corrupted=self.trust.corrupted,
            dropped=self.dropped,
            rounds=rounds,
            retries=0,
            ahead=0,
            **{**options, **replaced},
        )
        evaluator.excluded = self.excluded
        evaluator._introductions = self._introductions
        evaluator._counted_as = "evaluation"
        return evaluator

    @property
    def message_type(self) -> str:
        if self.encoding.purpose == "evaluate":
            return MessageType.EVALUATE
        return MessageType.TRAIN

    @property
    def _wanted(self) -> str:
        """What clients shall return."""
        if self.encoding.purpose == "evaluate":
            return Key.METRICS
        return self.returns

    counted_view = "central"

    @staticmethod
    def usual_minimum(clients_per_round: int) -> int:
        return clients_per_round // 2 + 1

    # Planning -------------------------------------------------------------------------------------

    @with_old_names(coordinates="size")
    def plan(
        self,
        clients: int,
        number: int,
        size: int,
        *,
        roster: bytes = bytes(DIGEST_BYTES),
    ) -> RoundPlan:
        """Plan a round, without its task; PlanRefused for an unsafe one.

        `size` is the number of integers of an encoded update.
        A strategy without a roster needs the digest of one.
        """
        sizes = self._sizes(clients)
        encoding = self.encoding
        draw: Draw = "anew"
        if self.roster is not None:
            roster = self.roster.digest
            if self.sampling == "cyclic":
                draw = "cyclic"
        plan = RoundPlan(
            session=self.session,
            round=number,
            clients=clients,
            members=sizes.members,
            quorum=sizes.quorum,
            picks=sizes.picks,
            least=sizes.least,
            minimum=self.minimum,
            coordinates=size,
            span=encoding.span,
            bits=encoding.bits(clients),
            overflow=encoding.overflow,
            draw=draw,
            purpose=encoding.purpose,
            binding=encoding.binding,
            roster=roster,
        )
        self.trust.check(plan, self._population(clients))
        return plan

    def _population(self, clients: int) -> int:
        """The number of clients that a round's are drawn from, as its plan counts them."""
        if self.roster is None:
            return clients
        return len(self.roster.members)

    def _sizes(self, clients: int) -> SumParameters:
        """Sizes of a round for the most drop-outs that they bear, up to the assumed share. Raises
        ParameterError where those who are invited bear fewer than `spare`, PlanRefused where no
        number of drop-outs can be planned.
        """
        population = self._population(clients)
        committee_bits = self.trust.drawn_bits(population, clients)
        corrupted_clients = corrupted_in(
            population=population, share=self.trust.corrupted, clients=clients, bits=committee_bits
        )
        round_sizes = {"clients": clients, "corrupted": corrupted_clients, "minimum": self.minimum}
        reason = ""
        for drop_outs in range(math.ceil(self.dropped * clients), -1, -1):
            try:
                sizes = plan_sum(
                    **round_sizes,
                    dropped=drop_outs,
                    security_bits=self.trust.dealing_bits,
                    drawn_bits=committee_bits,
                )
            except (InfeasibleError, ParameterError) as error:
                reason = str(error)
                continue
            if clients == self.invited and drop_outs < self.spare:
                losses = counted(drop_outs, "drop-out")
                raise ParameterError(
                    "spare",
                    self.spare,
                    f"{clients} clients, {corrupted_clients} of whom may collude, bear {losses}: spare no more",
                )
            return sizes
        raise PlanRefused("plan", reason)

    def claims(self, sums: Sums) -> dict[str, Claim]:
        """Claims for updates and for clients' metrics, added up, each at half of delta."""
        evaluator = self.evaluator
        if evaluator is None or not evaluator.ledger.charges:
            return self.ledger.claims(self.encoding, sums)
        halved = replace(sums, delta=sums.delta / 2)
        updates = self.ledger.claims(self.encoding, halved)
        measured = evaluator.claims(halved)
        views = updates.keys() & measured.keys()
        return {view: with_evaluations(updates[view], measured[view]) for view in sorted(views)}

    def cost(self, sums: Sums) -> float:
        """Epsilon of training at the sums' delta, or of training and evaluations together, each at
        half of it; rounded up.
        """
        measured = 0.0
        evaluator = self.evaluator
        if evaluator is not None and evaluator.most_rounds != 0:
            if evaluator.most_rounds is None:
                raise ParameterError(
                    "most_rounds", None, "an unlimited number of evaluations has no cost: limit it"
                )
            sums = replace(sums, delta=sums.delta / 2)
            measured = evaluator.cost(replace(sums, rounds=evaluator.most_rounds))
        claim = self.encoding.central(replace(sums, clients=self.minimum))
        if claim is None:
            raise ParameterError(
                "epsilon", "a budget", "without a mechanism nothing is private; name one"
            )
        if not measured:
            return claim.epsilon
        total = claim.epsilon + measured
        return math.nextafter(total, math.inf)

    def report_mse(self) -> float:
        return self.encoding.mse()

    # Rounds ---------------------------------------------------------------------------------------

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Start a sum of clients' metrics of the new model, if one is due."""
        self.measured = {}
        evaluator = self.evaluator
        if evaluator is None or not self.counted:
            return []
        if self._released() % self.every:
            return []
        evaluator._patience = self._patience  # it need not wait again for absent nodes
        return evaluator.configure_train(server_round, arrays, config, grid)

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        """The means of clients' metrics, with the standard errors of their noise."""
        if self.evaluator is None or self.evaluator._running is None:  # not asked this time
            return None
        _, metrics = self.evaluator.aggregate_train(server_round, replies)
        self.measured = {}
        if metrics is not None:
            self.measured = self.evaluator.measured
        return self._with_spending(metrics)

    def _open(self, number: int, task: RoundTask, grid: Grid) -> _Secure:
        self.encoding.check_room(self.invited, size=parameters(task["arrays"]))
        participants = self._participants(number, grid)
        node_of = {client.card.identity: node for node, client in participants.items()}
        self._check_present(len(node_of))
        roster = self.roster
        clients = self.invited
        if roster is None:
            roster = Roster.drawn(client.card for client in participants.values())
        clients = min(clients, len(roster.members))
        coordinates = self.encoding.length(parameters(task["arrays"]))
        plan = self.plan(clients, number, coordinates, roster=roster.digest)
        server = Server(plan, roster)
        nodes = {
            position: node_of[card.identity]
            for position, card in enumerate(server.cohort)
            if card.identity in node_of
        }
        clients_by_place = {position: participants[node] for position, node in nodes.items()}
        holding = [
            position
            for position, client in clients_by_place.items()
            if client.roster == roster.digest
        ]
        return _Secure(
            number=number,
            server=server,
            nodes=nodes,
            task=task,
            grid=grid,
            names={position: client.name for position, client in clients_by_place.items()},
            holding=frozenset(holding),
        )

    def _participants(self, number: int, grid: Grid) -> dict[int, Introduction]:
        """Clients that may take part, by node: all connected ones of the roster, which draws among
        them, or those drawn here.
        """
        nodes = self._connected(grid)
        if self.roster is None and self.sampling != "cyclic":
            if self.most_rounds is not None:  # earlier processes charged names, not nodes
                self._introduced(nodes, number, grid)
            unspent = self._unspent(self._names(nodes))
            nodes = self._choose(unspent, number)
        introduced = self._introduced(nodes, number, grid)
        names = self._unspent({node: client.name for node, client in introduced.items()})
        chosen = list(names)
        if self.roster is None and self.sampling == "cyclic":  # clients, not nodes, have turns
            chosen = self._choose(names, number)
        return {node: introduced[node] for node in chosen}

    def _names(self, nodes: Iterable[int]) -> dict[int, str]:
        return self._introductions.names(nodes)

    def _introduced(self, nodes: list[int], number: int, grid: Grid) -> dict[int, Introduction]:
        """The clients behind these nodes, without those that were found guilty."""

        def note(node: int, error: ProtocolError) -> None:
            self._note(number, str(node), error)

        clients = self._introductions.ask(nodes, grid, note)
        return {
            node: client
            for node, client in clients.items()
            if client.card.identity not in self.excluded
        }

    def _stage(self, current: _Secure) -> str:
        if current.united:
            return "unite"
        return current.server.stage

    def _answer_bytes(self, current: _Secure) -> int:
        if current.server.stage != "sum":
            return 0
        return current.server.plan.coordinates * current.server.plan.bits // 8

    def _enough(self, current: _Secure) -> bool:
        server = current.server
        plan = current.server.plan
        wanted = min(self.clients_per_round, plan.clients)
        if server.stage == "deal":
            wanted = halfway(wanted, plan.clients)
        elif server.stage == "agree":
            wanted = halfway(plan.quorum, len(server.asked))
        elif server.stage == "open":
            wanted = plan.quorum
        return server.ready(wanted)

    def _receive(self, current: _Secure, place: int, payload: bytes) -> None:
        current.server.receive(place, payload)

    def _refused(self, current: _Secure, place: int) -> None:
        node = current.nodes[place]
        stage = current.server.stage
        # It may have restarted with another key: unless it only refuses to evaluate, it is asked
        # for its card again.
        if stage == "deal" and self.encoding.purpose == "train":
            self._introductions.forget(node)
        if stage == "sum":  # it may have lost its state: then it masks in none of those dealt ahead
            for later_round in self._dealt:
                if node in later_round.places:
                    later_round.server.leave_out(later_round.places[node])

    def _until_train(self, current: _Secure) -> Iterator[Message]:
        if not current.is_dealt:
            self._dealt = [current]
            self._open_ahead(current, self.ahead - 1)
            self._ask_dealing(current, {}, self._dealt)
            self._dealt = self._dealt[1:]
        current.server.bind(self._task_digest(current.task))
        partners = current.server.advance()
        client_names = [current.names[position] for position in partners]
        self.ledger.ask(
            current.number, client_names, minimum=self.minimum, most_rounds=self.most_rounds
        )
        return self._messages(current, partners, {Key.RETURNS: self._wanted}, current.task)

    def _task_digest(self, task: RoundTask) -> bytes:
        """What each client compares with the model and the configuration that it is sent."""
        returns = ConfigRecord({Key.RETURNS: self._wanted})
        content = {RECORD: returns, "arrays": task["arrays"], "config": task["config"]}
        return task_digest(RecordDict(content))

    def _until_mean(self) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Run the remaining stages; a round that clients spoilt by bad shares is repeated without
        them.
        """
        self.last_sum = None
        for retries_left in range(self.retries, -1, -1):
            current = self._running
            self._running = None
            if current is None:
                break
            secure_sum, culprits = self._finish(current)
            if secure_sum is not None:
                return self._apply(current, secure_sum)
            self._exclude(current, culprits)
            if not culprits or not retries_left:
                break
            self._begin(current.task["arrays"], current.task["config"], current.grid)
        return None, None

    def _finish(self, current: _Secure) -> tuple[SecureSum | None, tuple[int, ...]]:
        """The sum; or None, and the clients known to be at fault."""
        try:
            self._ask(current, current.requests)
            if current.server.everybody:  # one exchange less for the committee
                certificates = current.server.unite()
                current.united = True
            else:
                self._ask(current, self._messages(current, current.server.advance(), {}))
                certificates = current.server.advance()
        except ProtocolError as error:
            self._abort(current.number, error)  # no mask was opened: nothing is released
            return None, ()
        try:
            later_round: list[_Secure] = []
            if not self._dealt:
                self._open_ahead(current, self.ahead)
                later_round = self._dealt
            self._ask_dealing(current, certificates, later_round)
            beginning = time.perf_counter()
            secure_sum = current.server.result()
            parameter_count = parameters(current.task["arrays"])
            self.encoding.check_sum(
                secure_sum.values, count=len(secure_sum.survivors), size=parameter_count
            )
            self.seconds["result"] = time.perf_counter() - beginning
        except ProtocolError as error:
            # Shares were revealed, so the round stays charged although its sum is not known.
            self._note(current.number, "", error)
            return None, error.culprits
        finally:
            for owner, members in sorted(current.server.disputed.items()):
                member_names = ", ".join(map(current.name, members))
                signed = f"what client {current.name(owner)} signed"
                disagreement = f"{signed} is not what {member_names} opened"
                reason = f"{disagreement}: one side lies, and nobody can tell which"
                dispute = TamperedShare("open", reason)
                self._note(current.number, "", dispute)
        return secure_sum, ()

    # Dealings of later rounds -------------------------------------------------------------------

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        *arguments: Any,
        **options: Any,
    ) -> Result:
        """Flower's loop over all rounds; all arguments as of Flower's `Strategy.start`."""
        self._rounds_planned = num_rounds
        return super().start(grid, initial_arrays, num_rounds, *arguments, **options)

    def _open_ahead(self, current: _Secure, count: int) -> None:
        """Open up to so many rounds after this one, for clients to deal in with an exchange of
        it.
        """
        fitting = max(1, _DEALT_BYTES // current.server.dealt_bytes)
        for _ in range(min(count, self._rounds_left, fitting)):
            if self._shortage(current.grid):
                return
            number = self.ledger.start()
            try:
                later_round = self._opened(number, current.task, current.grid)
            except (ProtocolError, BudgetError) as error:
                self.ledger.fail(number, type(error).__name__)
                return
            later_round.is_dealt = True
            self._dealt.append(later_round)

    def _charges(self) -> Mapping[str, int]:
        """The rounds that each client is charged for, or may be: also those that are dealt
        ahead.
        """
        charges = Counter(self.ledger.charges)
        for later_round in self._dealt:
            charges.update(later_round.names.values())
        return charges

    def _released(self) -> int:
        """The number of rounds released so far."""
        return sum(outcome == "released" for outcome in self.ledger.rounds.values())

    def _dealt_ahead(self, grid: Grid) -> _Secure | None:
        connected = set(grid.get_node_ids())
        while self._dealt:
            following = self._dealt.pop(0)
            for position in following.server.answered:
                if following.nodes[position] not in connected:
                    following.server.leave_out(position)
            if following.grid is grid and following.server.ready(self.minimum):
                return following
            self.ledger.fail(following.number, TooFewClients.__name__)
        return None

    def _ask_dealing(
        self, current: _Secure, outbox: Mapping[int, bytes], rounds: Sequence[_Secure]
    ) -> None:
        """Send this outbox of the current round, and invitations to deal in these rounds, in one
        exchange.
        """
        current.outbox = outbox
        rounds_by_node = {current.nodes[position]: [current] for position in outbox}
        for later_round in rounds:
            later_round.outbox = later_round.server.invitations(later_round.holding)
            for node in later_round.places:
                rounds_by_node.setdefault(node, []).append(later_round)
        messages = self._joint_messages(rounds_by_node)
        self._ask(current, messages, rounds_by_node=rounds_by_node, awaited=rounds)

    def _joint_messages(self, rounds_by_node: Mapping[int, Sequence[_Secure]]) -> Iterator[Message]:
        """One message to each node: its first part is a stage's own, the others are invitations."""
        encoding = packed(self.encoding)
        for node, asked_rounds in rounds_by_node.items():
            payload, *further = [
                asked_round.outbox[asked_round.places[node]] for asked_round in asked_rounds
            ]
            stage = self._stage(asked_rounds[0])
            values: dict[str, Any] = {Key.STAGE: stage, Key.PAYLOAD: payload}
            if further:
                values[Key.NEXT] = further
            if further or stage == "deal":
                values[Key.ENCODING] = encoding
            yield request(node, self.message_type, values, {})

    def _exclude(self, current: _Secure, culprits: tuple[int, ...]) -> None:
        """Exclude clients from all later rounds, and save the proofs against them."""
        if culprits:  # they dealt in the following rounds, too
            for later_round in self._dealt:
                self.ledger.fail(later_round.number, TamperedShare.__name__)
            self._dealt = []
        for position in culprits:
            identity = current.server.cohort[position].identity
            self.excluded.add(identity)
            complaint = "what it dealt is of no use; it is left out from now on"
            error = TamperedShare("open", complaint, (position,))
            self._note(current.number, current.name(position), error)
        self.blames += current.server.blames
        if self.ledger.path is not None:
            folder = self.ledger.path.parent
            for blame in current.server.blames:
                blame.save(folder / f"blame-{blame.identity.hex()}.json")

    def _blamed(self) -> set[bytes]:
        """Clients excluded by proofs beside the ledger."""
        if self.ledger.path is None:
            return set()
        blames = [Blame.load(path) for path in sorted(self.ledger.path.parent.glob("blame-*.json"))]
        for blame in blames:
            blame.check()
        return {blame.identity for blame in blames}

    def _apply(self, current: _Secure, total: SecureSum) -> tuple[ArrayRecord, MetricRecord]:
        self.last_sum = total
        self.counted = len(total.survivors)
        survivors = [current.name(position) for position in total.survivors]
        self.ledger.close(current.number, survivors)
        if isinstance(self.encoding, MetricsEncoding):
            self.measured = self.encoding.measured(total.values, count=self.counted)
            metrics = MetricRecord({"round": current.number, "clients": self.counted})
            for metric_name, metric in self.measured.items():
                metrics[metric_name] = metric.value
                metrics[f"{metric_name}-error"] = metric.error
            return current.task["arrays"], metrics
        parameter_count = parameters(current.task["arrays"])
        mean_update = self.encoding.decode(total.values, count=self.counted, size=parameter_count)
        counts = {"survivors": len(total.survivors), "dropped": len(total.dropped)}
        return self._moved(current, mean_update, counts)

    def summary(self) -> None:
        """Log the settings."""
        metrics_text = "nothing"
        if self.evaluator is not None and isinstance(self.evaluator.encoding, MetricsEncoding):
            metrics_text = (
                f"{', '.join(self.evaluator.encoding.names)} every {counted(self.every, 'round')}"
            )
        plan = self.plan(self.invited, 1, 1)
        sizes_text = (
            f"Secure sums of {self.clients_per_round} clients of {plan.clients} drawn "
            f"({self.sampling}): {plan.bits} bits a coordinate, integers up to {plan.span}; "
            f"each masks with {plan.picks} of its own choice; minimum {plan.minimum}; "
            f"a committee of {plan.members}, of whom {plan.quorum} sign who is in the sum"
        )
        log(INFO, "\t├──> %s", sizes_text)
        log(INFO, "\t└──> clients measure %s", metrics_text)
        warning = self.encoding.noise_warning(self.clients_per_round)
        if warning:
            log(WARNING, "mezzotint: %s", warning)
