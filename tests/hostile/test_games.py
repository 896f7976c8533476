"""Random lying servers: they fork rounds, restore states, lose answers, and are judged by which sums they learn.

Clients are real (`Signer`, with keys, masks and a ledger of its own). A server keeps branches of rounds: of one number it
may have several dealings, of one dealing several tasks, and of one task several sets of inputs. Clients deal in one
round, or in all of them ahead, and the server goes on with any of them, in any order. It may give any client any state
that it had before. The oracle knows every input: of one number at most one sum may be known, it must be the true one, of
enough clients.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from federated.rounds import card, roster, secret
from mezzotint.core.errors import MezzotintError
from mezzotint.federated.encoding import FixedPointEncoding
from mezzotint.federated.encoding_files import packed
from mezzotint.federated.lifetime_ledger import LifetimeLedger, RoundMemory
from mezzotint.federated.policy import Policy
from mezzotint.federated.secagg import Client, RoundPlan, Server, messages
from mezzotint.federated.secure_strategy import SecureStrategy
from mezzotint.federated.signer import Signer

CLIENTS, SIZE, MINIMUM = 6, 2, 4
ENCODING = FixedPointEncoding(clip=8.0, grid_bits=8)
DESCRIPTION = packed(ENCODING)
ROSTER = roster(CLIENTS)
POLICY = Policy(roster=ROSTER, minimum=MINIMUM)
STEPS = 14
NUMBERS = (1, 2, 3)
"""Of the rounds of one session."""
ANSWERED = {"sum": 1, "agree": 2, "unite": 2, "open": 3}
"""Stage -> stages that a client has answered before it."""


def _plans() -> dict[int, RoundPlan]:
    """number -> plan, of one session."""
    strategy = SecureStrategy(
        encoding=ENCODING,
        clients_per_round=CLIENTS,
        minimum=MINIMUM,
        roster=ROSTER,
        session=bytes(16),
    )
    return {
        number: strategy.plan(CLIENTS, number, SIZE, roster=ROSTER.digest) for number in NUMBERS
    }


def _task(model: int) -> bytes:
    return hashlib.sha256(bytes([model])).digest()


PLANS = _plans()


def _announcing(message: bytes, model: int, plan: RoundPlan) -> bytes:
    """The message before a client masks, for another model."""
    head = len(messages.header("sum", plan))
    task = _task(model)
    return message[:head] + task + message[head + len(task) :]


@dataclass(kw_only=True)
class _Person:
    """A client, and every state that it ever had; `update` is its input for a model."""

    signer: Signer
    index: int
    states: list[bytes] = field(default_factory=list)

    def keep(self) -> None:
        self.states.append(self.signer.client.save())

    def restore(self, at: int) -> None:
        self.signer.client = Client.load(self.states[at], trust=POLICY.trust)

    def restore_before(self, plan: RoundPlan, stage: str) -> None:
        """The last state in which it would answer this stage of this plan, if there was one."""
        for at in range(len(self.states) - 1, -1, -1):
            rounds = Client.load(self.states[at], trust=POLICY.trust)._rounds
            now = rounds.get(plan.base[: messages.TAG_BYTES])
            bound = now is not None and (stage == "sum" or now.plan.task == plan.task)
            if bound and now.plan.base == plan.base and now.done == ANSWERED[stage]:
                self.restore(at)
                return

    def update(self, model: int) -> np.ndarray:
        return np.array([1.0 + self.index, 4.0 * model])


def _people(folder: Path) -> list[_Person]:
    """The clients of the rounds, by their place in them: with so many, all take part in every round."""
    secrets = {card(number).identity: secret(number) for number in range(CLIENTS)}
    found = []
    for index, one in enumerate(ROSTER.members):
        client = Client(identity=secrets[one.identity], trust=POLICY.trust)
        ledger = LifetimeLedger(folder / f"{index}.jsonl", identity=one.identity.hex())
        signer = Signer(client=client, policy=lambda: POLICY, ledger=ledger, warn=lambda text: None)
        found.append(_Person(signer=signer, index=index))
    return found


@dataclass(kw_only=True)
class _Branch:
    """A round, as far as its server has come; `dealt` and `masked` are the answers to its first two messages."""

    number: int
    model: int
    server: Server
    dealt: dict[int, bytes] = field(default_factory=dict)
    masked: dict[int, bytes] = field(default_factory=dict)
    outbox: dict[int, bytes] = field(default_factory=dict)
    stage: str = "deal"


class _Game:
    """One server's play, by a generator; an eager one plays for longer, and always restores the state that it needs."""

    def __init__(self, seed: int, folder: Path, *, eager: bool = False) -> None:
        self.rng = np.random.default_rng(seed)
        self.steps, self.patience = STEPS, 0.7
        if eager:
            self.steps, self.patience = 3 * STEPS, 1.0
        self.people = _people(folder)
        self.by_identity = {person.signer.identity(): person for person in self.people}
        self.branches: list[_Branch] = []
        self.sums: list[tuple[int, int, tuple[int, ...], np.ndarray]] = []
        self.refusals = 0
        for person in self.people:
            person.keep()

    def play(self) -> None:
        for _ in range(self.steps):
            choice = self.rng.random()
            if not self.branches or choice < 0.1:
                self._begin()
            elif choice < 0.3:
                self._fork()
            else:
                self._go_on(self.branches[int(self.rng.integers(len(self.branches)))])
            if self.rng.random() < 0.2:
                self._restore()

    def _begin(self) -> None:
        """Invite to one round; or to all of them, in which clients then deal at once."""
        if self.rng.random() < 0.4:
            for number in NUMBERS:
                self._go_on(self._invite(number))
            return
        self._invite(int(self.rng.choice(NUMBERS)))

    def _invite(self, number: int) -> _Branch:
        server = Server(PLANS[number], ROSTER)
        outbox = dict(server.invitations(range(CLIENTS)))
        model = int(self.rng.integers(2))
        branch = _Branch(number=number, model=model, server=server, outbox=outbox)
        self.branches.append(branch)
        return branch

    def _fork(self) -> None:
        """Another server with the same dealings: for another model, or with some of the inputs."""
        old = self.branches[int(self.rng.integers(len(self.branches)))]
        if not old.masked:
            return
        server = Server(PLANS[old.number], ROSTER)
        for index, answer in old.dealt.items():
            server.receive(index, answer)
        if self.rng.random() < 0.1:
            branch = _Branch(
                number=old.number, model=1 - old.model, server=server, dealt=dict(old.dealt)
            )
            self.branches.append(branch)
            self._advance(branch)
            return
        server.bind(_task(old.model))
        server.advance()
        kept = {i: answer for i, answer in old.masked.items() if self.rng.random() < 0.8}
        try:
            for index, answer in kept.items():
                server.receive(index, answer)
        except MezzotintError:
            return  # a client that was left out there as too lonely is among these dealers
        branch = _Branch(
            number=old.number, model=old.model, server=server, dealt=old.dealt, masked=kept
        )
        branch.stage = "sum"
        self.branches.append(branch)
        self._advance(branch)

    def _restore(self) -> None:
        """Give some clients a state that they had."""
        for person in self.people:
            if self.rng.random() < 0.5:
                person.restore(int(self.rng.integers(len(person.states))))

    def _go_on(self, branch: _Branch) -> None:
        """Ask the clients that have not answered, or lose the answer of one; then the next stage, if there is one."""
        for index, message in branch.outbox.items():
            if self.rng.random() < 0.05:
                continue
            answer = self._ask(branch, index, message)
            if answer is None:
                continue
            try:
                branch.server.receive(index, answer)
            except MezzotintError:
                continue
            if branch.stage in ("deal", "sum"):
                {"deal": branch.dealt, "sum": branch.masked}[branch.stage][index] = answer
        self._advance(branch)

    def _ask(self, branch: _Branch, index: int, message: bytes) -> bytes | None:
        person = self.by_identity[branch.server.cohort[index].identity]
        signer = person.signer
        if branch.stage != "deal" and self.rng.random() < self.patience:
            person.restore_before(branch.server.plan, branch.stage)
        try:
            if branch.stage == "deal":
                answer = signer.deal(message, DESCRIPTION, kind="train")
            elif branch.stage == "sum":
                model = branch.model
                if self.rng.random() < 0.1:
                    model = 1 - model
                    message = _announcing(message, model, branch.server.plan)
                signer.expect(message, _task(model))
                answer = signer.sum(message, person.update(model).tobytes(), parameters=SIZE)
            else:
                answer = signer.member(message, stage=branch.stage)
        except MezzotintError:
            self.refusals += 1
            return None
        person.keep()
        return answer

    def _advance(self, branch: _Branch) -> None:
        server = branch.server
        try:
            if branch.stage in ("open", "unite"):
                total = server.result()
                survivors = tuple(
                    self.by_identity[server.cohort[index].identity].index
                    for index in total.survivors
                )
                self.sums.append((branch.number, branch.model, survivors, total.values))
                branch.outbox = {}
                return
            if branch.stage == "sum" and server.everybody and self.rng.random() < 0.5:
                branch.outbox, branch.stage = dict(server.unite()), "unite"
                return
            following = {"deal": "sum", "sum": "agree", "agree": "open"}[branch.stage]
            if branch.stage == "deal":
                server.bind(_task(branch.model))
            branch.outbox, branch.stage = dict(server.advance()), following
        except MezzotintError:
            return  # not enough yet; it may ask again

    def verdict(self) -> str:
        """What the server learnt that it may not; empty for nothing."""
        for number in NUMBERS:
            known = {(model, survivors) for at, model, survivors, _ in self.sums if at == number}
            if len(known) > 1:
                return "two sums of one number"
        for _, model, survivors, values in self.sums:
            if len(survivors) < MINIMUM:
                return "a sum of too few"
            inputs = [ENCODING.encode(self.people[place].update(model)) for place in survivors]
            if not np.array_equal(values, np.sum(inputs, axis=0)):
                return "a sum of nothing that was sent"
        return ""


def _played(count: int, folder: Path, *, eager: bool = False) -> tuple[dict[str, int], int, int]:
    """Verdicts, sums and refusals of so many games, whose clients keep ledgers in the folder."""
    verdicts: dict[str, int] = {}
    sums = refusals = 0
    for seed in range(count):
        ledgers = folder / f"{eager}-{seed}"
        ledgers.mkdir()
        game = _Game(seed, ledgers, eager=eager)
        game.play()
        verdict = game.verdict()
        verdicts[verdict] = verdicts.get(verdict, 0) + 1
        sums += len(game.sums)
        refusals += game.refusals
    return verdicts, sums, refusals


@pytest.mark.parametrize("count", [24, pytest.param(5000, marks=pytest.mark.slow)])
@pytest.mark.timeout(7200)
def test_no_server_learns_two_sums_of_a_number_or_one_of_too_few(
    count: int, tmp_path: Path
) -> None:
    """Of so many games, half with eager servers."""
    for eager in (False, True):
        verdicts, sums, refusals = _played(count // 2, tmp_path, eager=eager)
        print(f"{count // 2} games: {sums} sums known, {refusals} refusals, verdicts {verdicts}")
        assert verdicts == {"": count // 2}
        assert sums > count / 10  # servers do learn what they may
        assert refusals > count


def _without_memory(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RoundMemory, "is_repeated", lambda self, answer: False)


def _memory_per_plan(patch: pytest.MonkeyPatch) -> None:
    """Answers are remembered, but not what they were: the same stage may be answered for another set."""
    honest = RoundMemory.is_repeated

    def repeated(self: RoundMemory, answer: Any) -> bool:
        if answer.stage in ("agree", "open", "unite"):
            return False
        return honest(self, answer)

    patch.setattr(RoundMemory, "is_repeated", repeated)


def _memory_of_the_last_number(patch: pytest.MonkeyPatch) -> None:
    """Only the round that was dealt in last is remembered: enough where no client deals ahead."""
    honest = RoundMemory.is_repeated

    def repeated(self: RoundMemory, answer: Any) -> bool:
        if answer.number < self._last_dealt.get(answer.round[0], 0):
            return False
        return honest(self, answer)

    patch.setattr(RoundMemory, "is_repeated", repeated)


def _task_bound_to_nothing(patch: pytest.MonkeyPatch) -> None:
    """Masks and signatures are about what was dealt alone, as dealings are."""
    patch.setattr(RoundPlan, "digest", property(lambda self: self.base))


FAULTS = [
    (_without_memory, "two sums of one number"),
    (_memory_per_plan, "two sums of one number"),
    (_memory_of_the_last_number, "two sums of one number"),
    (_task_bound_to_nothing, "a sum of nothing that was sent"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("fault", "verdict"), FAULTS)
def test_the_oracle_sees_what_a_fault_costs(
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pytest.MonkeyPatch], None],
    verdict: str,
    tmp_path: Path,
) -> None:
    """With the fault, a fifth or more of the games of eager servers end with what nobody may learn."""
    fault(monkeypatch)
    verdicts, _, _ = _played(70, tmp_path, eager=True)
    assert verdicts.get(verdict, 0) > 0
