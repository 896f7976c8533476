"""Updates spread over several sums: through mod and strategy, with deaths, absences and servers that lie."""

from __future__ import annotations

import dataclasses
import math
import pickle
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from federated.grids import LocalGrid
from federated.rounds import apart, card, roster, secret
from killing import Runs
from mezzotint.core.errors import ParameterError
from mezzotint.datasets import load_federation
from mezzotint.federated.encoding import GaussianEncoding
from mezzotint.federated.ledger import Checkpoint, RunLedger
from mezzotint.federated.lifetime import LifetimeLedger
from mezzotint.federated.mod import SecureUpdates, turn_of
from mezzotint.federated.policy import Policy
from mezzotint.federated.records import RECORD, reply
from mezzotint.federated.strategy import SecureStrategy
from mezzotint.federated.tasks import Rehearsal, model_for
from mezzotint.vectors.rotation import SCALE, coefficients
from tolerances import FEW

CLIENTS, SIZE, BANDS, ROUNDS = 8, 3, 3, 7
QUIET = GaussianEncoding(deviation=1.0, l2_norm=4.0, granularity=1e-5, modulus_bits=24, bands=BANDS)
"""Noise of a hundred-thousandth."""

NEAR = 6 * 3 * math.sqrt(CLIENTS * (1 + 1 / 12)) * 1e-5 * BANDS / CLIENTS * ROUNDS
"""Six deviations of a sum's noise, in as many solutions added up; a solution has less than three times the noise."""

TURNS = [turn_of(card(place).identity, BANDS) for place in range(CLIENTS)]


def update(place: int, number: int) -> np.ndarray:
    """What a client wants added in a round; shorter than the clipping norm."""
    return np.array([1.0, place / CLIENTS, number / ROUNDS])


def client(
    place: int, policy: Policy | None = None, trained: list[tuple[int, int]] | None = None
) -> ClientApp:
    """A client's app; `trained` is told when it was asked to train."""
    app = ClientApp(
        mods=[SecureUpdates(Policy(roster=roster(CLIENTS)) if policy is None else policy)]
    )

    @app.train()
    def train(message: Message, context: Any) -> Message:
        number = int(message.content.config_records["config"]["server-round"])
        if trained is not None:
            trained.append((place, number))
        arrays = ArrayRecord({"a": Array(update(place, number))})
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    return app


class Crowd:
    """Clients with identities and records; `trained` says who was asked to train when."""

    def __init__(self, folder: Path, *, policy: Policy | None = None, hand: Any = None) -> None:
        self.trained: list[tuple[int, int]] = []
        configs: dict[int, dict] = {}
        for place in range(CLIENTS):
            (folder / f"key-{place}").write_bytes(secret(place))
            configs[place] = {"identity": str(folder / f"key-{place}"), "records": str(folder)}
        more = {} if hand is None else {"hand": hand}
        apps = [client(place, policy, self.trained) for place in range(CLIENTS)]
        self.grid = LocalGrid(apps, configs=configs, **more)

    def forget(self, place: int) -> None:
        """A new process, with the files of the old one."""
        self.grid.contexts[10 + place].state = RecordDict()

    def rounds(self, strategy: SecureStrategy, start: np.ndarray, count: int) -> np.ndarray:
        for _ in range(count):
            arrays = ArrayRecord({"a": Array(start)})
            found = strategy.start(
                grid=self.grid, initial_arrays=arrays, num_rounds=1, train_config=ConfigRecord()
            )
            start = found.arrays["a"].numpy() if found.arrays else start
        return start


def strategy_of(encoding: GaussianEncoding = QUIET, **others: Any) -> SecureStrategy:
    return SecureStrategy(
        encoding=encoding, per_round=CLIENTS, roster=roster(CLIENTS), returns="update", **others
    )


def expected(said: dict[int, np.ndarray], there: dict[int, int]) -> np.ndarray:
    """The model after the rounds whose sums (without noise) and summands are given, by a dense system.

    A round without a sum is one equation less and one unknown less: its updates count as zero.
    """
    numbers = sorted(said)
    shares = [value / SCALE for value in coefficients(BANDS)]
    matrix = np.array(
        [[shares[t - s] if 0 <= t - s < BANDS else 0.0 for s in numbers] for t in numbers]
    )
    solutions = np.linalg.solve(matrix, np.array([said[number] for number in numbers]))
    return np.sum(
        [one * BANDS / there[number] for one, number in zip(solutions, numbers, strict=True)],
        axis=0,
    )


def said_in(
    number: int, silent: set[tuple[int, int]] = frozenset(), gone: set[int] = frozenset()
) -> np.ndarray:
    """The sum of a round; silent: (client, round of its turn) whose updates are lost; gone: who is not in it."""
    total = np.zeros(SIZE)
    for place in set(range(CLIENTS)) - gone:
        since = (number - 1 - TURNS[place]) % BANDS
        made = number - since
        if made >= 1 and (place, made) not in silent:
            total += coefficients(BANDS)[since] / SCALE * update(place, made)
    return total


def test_the_model_moves_by_the_updates_of_those_whose_turn_it_is(tmp_path: Path) -> None:
    assert set(TURNS) == set(range(BANDS))
    crowd = Crowd(tmp_path)
    strategy = strategy_of()
    found = crowd.rounds(strategy, np.zeros(SIZE), ROUNDS)
    turns = [(place, number) for number in range(1, ROUNDS + 1) for place in range(CLIENTS)
             if (number - 1) % BANDS == TURNS[place]]  # fmt: skip
    assert sorted(crowd.trained) == sorted(turns)
    plain = np.sum([update(place, number) for place, number in turns], axis=0) * BANDS / CLIENTS
    np.testing.assert_allclose(found, plain, atol=NEAR)
    # Nobody is charged for more than one update in three sums.
    claim = strategy.spent(size=SIZE, delta=1e-5)
    one = QUIET.claims(rounds=ROUNDS, clients=CLIENTS, size=SIZE, delta=1e-5)["central"]
    assert claim is not None
    assert claim.epsilon == one.epsilon


def test_a_client_started_anew_goes_on_with_its_files(tmp_path: Path) -> None:
    """Killed between rounds, and its process made anew: nothing changes."""
    crowd = Crowd(tmp_path)
    strategy, model = strategy_of(), np.zeros(SIZE)
    victim = TURNS.index(0)
    for _ in range(ROUNDS):
        model = crowd.rounds(strategy, model, 1)
        crowd.forget(victim)
    said = {number: said_in(number) for number in range(1, ROUNDS + 1)}
    np.testing.assert_allclose(model, expected(said, dict.fromkeys(said, CLIENTS)), atol=NEAR)
    assert sorted(number for place, number in crowd.trained if place == victim) == [1, 4, 7]
    (held,) = tmp_path.glob(f"update-{card(victim).identity.hex()[:16]}.npz")
    assert stat.S_IMODE(held.stat().st_mode) == 0o600
    held.write_bytes(held.read_bytes()[:40])  # damaged: like one that never was
    crowd.rounds(strategy, model, 1)
    assert strategy.incidents == []


def test_rounds_without_a_sum_and_clients_that_are_missing_cost_their_part_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Round 3 fails after all have trained; a client is away in round 5, in which it is not its turn."""
    away = TURNS.index(0)

    apart(monkeypatch, "agree")

    def hand(message: Message, reply: Message) -> Message | None:
        stage, number = (
            str(message.content.config_records[RECORD]["stage"]),
            len(strategy.ledger.rounds),
        )
        lost = (stage == "agree" and number == 3) or (
            stage in ("deal", "sum") and number == 5 and message.metadata.dst_node_id == 10 + away
        )
        return None if lost else reply

    crowd = Crowd(tmp_path, hand=hand)
    strategy = strategy_of()
    found = crowd.rounds(strategy, np.zeros(SIZE), ROUNDS)
    assert strategy.ledger.rounds[3].startswith("failed")
    there = {number: CLIENTS - (number == 5) for number in range(1, ROUNDS + 1) if number != 3}
    said = {number: said_in(number, gone={away} if number == 5 else set()) for number in there}
    np.testing.assert_allclose(found, expected(said, there), atol=NEAR)
    # Charged by the rounds that each was in: whoever was in them all pays for three blocks, and for the sum of seven.
    claim = strategy.spent(size=SIZE, delta=1e-5)
    assert claim is not None
    assert (
        claim.epsilon
        == QUIET.claims(rounds=9, clients=CLIENTS - 1, size=SIZE, delta=1e-5)["central"].epsilon
    )


STRIDE = 4  # a client changes files about forty times while it answers


class _Mortal:
    """A crowd of whom one answers one sum's message in a process of its own, which may be killed.

    Arguments:
        folder: of all files.
        runs: of that process.
        victim, number: who, and in which round.
        forgets: whether its node is started anew as well, and knows what is in its files alone.
    """

    def __init__(
        self, folder: Path, runs: Runs, victim: int, number: int, *, forgets: bool = False
    ) -> None:
        folder.mkdir()
        self.folder, self.runs, self.victim, self.number, self.forgets = (
            folder,
            runs,
            victim,
            number,
            forgets,
        )
        self.moment: dict[str, Any] = {}
        self.changes = 0
        self.lost: list[Message] = []
        self.crowd = Crowd(
            folder,
            hand=lambda message, answer: None if any(answer is one for one in self.lost) else answer,
        )  # fmt: skip
        self.app = self.crowd.grid.apps[10 + victim]
        self.crowd.grid.apps[10 + victim] = self._answer  # type: ignore[assignment]

    def _answer(self, message: Message, context: Context) -> Message:
        config = message.content.config_records.get(
            "config"
        )  # in the message that asks for an input
        if config is None or config["server-round"] != self.number:
            return self.app(message, context)
        before, after = self.folder / "before", self.folder / "after"
        before.write_bytes(pickle.dumps((self.victim, message, context)))
        ended = self.runs(before, after, **self.moment)
        if ended.status is None:
            assert not after.exists()
            context.state = (
                RecordDict() if self.forgets else context.state
            )  # what its node knew before the message
            self.lost.append(reply(message, {}))
            return self.lost[-1]
        assert ended.status == 0, ended.output
        content, context.state = pickle.loads(after.read_bytes())
        self.changes = ended.changes
        return Message(content, reply_to=message)

    def model(self, rounds: int, **moment: Any) -> np.ndarray:
        """After so many rounds."""
        self.moment = moment
        strategy = strategy_of()
        found = self.crowd.rounds(strategy, np.zeros(SIZE), rounds)
        assert set(strategy.ledger.rounds.values()) == {"released"}
        identity = card(self.victim).identity.hex()
        answered = rounds - len(self.lost)
        assert strategy.ledger.charges[identity] == answered
        # It may have died between its ledger and the answer.
        sums = LifetimeLedger(self.folder / f"sums-{identity[:16]}.jsonl", identity=identity).sums
        assert answered <= sums <= answered + len(self.lost)
        return found


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::mezzotint.core.files.RepairWarning")
@pytest.mark.parametrize("forgets", [False, True], ids=["remembers", "forgets"])
@pytest.mark.parametrize("since", range(BANDS))
def test_a_client_killed_in_a_band_shares_its_update_afterwards_or_noise_alone(
    tmp_path: Path, since: int, forgets: bool
) -> None:
    """SIGKILL at every fourth change of a file while it answers: in its turn, the first round, or in one of the next.

    The sum of that round is without it. In those that follow it adds the shares of that turn's update if the file of it
    was whole when it died, and nothing of it if not. Whatever it answered is on its ledger.
    """
    victim, dies_in, rounds = TURNS.index(0), 1 + since, BANDS + 1
    there = {number: CLIENTS - (number == dies_in) for number in range(1, rounds + 1)}

    def wanted(*, kept: bool) -> np.ndarray:
        silent = set() if kept else {(victim, 1)}
        return expected(
            {
                number: said_in(number, silent, set() if there[number] == CLIENTS else {victim})
                for number in there
            },
            there,
        )

    assert np.abs(wanted(kept=True) - wanted(kept=False)).max() > 2 * NEAR
    with Runs.of("federated.killed:answer", loads=["federated.test_turns"]) as runs:
        # Where nothing was compiled before, the first changes files of the compiler's cache as well.
        _Mortal(tmp_path / "first", runs, victim, dies_in).model(rounds)
        alive = _Mortal(tmp_path / "alive", runs, victim, dies_in)
        full = expected(
            {number: said_in(number) for number in there}, dict.fromkeys(there, CLIENTS)
        )
        np.testing.assert_allclose(alive.model(rounds), full, atol=NEAR)
        kept = []
        for torn in (False, True):
            for at in range(1 + torn, alive.changes + 1, STRIDE):
                one = _Mortal(tmp_path / f"{at}-{torn}", runs, victim, dies_in, forgets=forgets)
                model = one.model(rounds, at=at, torn=torn)
                kept.append(since > 0 or bool(np.abs(model - wanted(kept=True)).max() < NEAR))
                np.testing.assert_allclose(model, wanted(kept=kept[-1]), atol=NEAR)
    assert set(kept) == ({True} if since else {False, True})


def test_a_server_started_anew_goes_on_behind_the_noise(tmp_path: Path) -> None:
    """With the ledger, the session and what its checkpoint holds."""
    crowd, session = Crowd(tmp_path), bytes(range(16))
    facts = {"session": session.hex()}
    first = strategy_of(session=session, ledger=RunLedger(tmp_path / "ledger.jsonl", facts))
    model = crowd.rounds(first, np.zeros(SIZE), 4)
    Checkpoint(parameters=model, done=4, session=session, optimizer=first.optimizer_state).save(
        tmp_path
    )
    found = Checkpoint.load(tmp_path)
    again = strategy_of(session=found.session, ledger=RunLedger(tmp_path / "ledger.jsonl", facts))
    again.optimizer_state = found.optimizer
    said = {number: said_in(number) for number in range(1, ROUNDS + 1)}
    moved = crowd.rounds(again, found.parameters, ROUNDS - 4)
    np.testing.assert_allclose(moved, expected(said, dict.fromkeys(said, CLIENTS)), atol=NEAR)
    # A process that lost its checkpoint knows nothing behind the noise: what it makes of a sum is another thing.
    assert (
        len([name for name in again.optimizer_state if name.startswith("sum of round")])
        == BANDS - 1
    )


# Servers that lie -----------------------------------------------------------------------------------------------------


def test_a_rehearsal_spreads_updates_as_clients_and_server_do() -> None:
    """Almost without noise: in every round the mean of those whose turn it is, who take turns of three rounds."""
    federation = load_federation("digits", clients=20, dirichlet=5.0, seed=0)
    softmax = model_for("softmax", federation)
    told = {
        "federation": federation,
        "model": softmax,
        "per_round": 20,
        "learning_rate": 1.0,
        "rounds": 5,
        "every": 5,
    }
    found = Rehearsal(**told).run(dataclasses.replace(QUIET, l2_norm=50.0, modulus_bits=30), seed=3)
    # Whoever's turn it is, by the definition: drawn first of all that the seed decides.
    turns = np.random.default_rng(np.random.SeedSequence(3).spawn(2)[0]).integers(BANDS, size=20)
    parameters = softmax.initial(3)
    for number in range(1, 6):
        those = [place for place in range(20) if (number - 1) % BANDS == turns[place]]
        gradients = [softmax.gradient(parameters, *federation.clients[place]) for place in those]
        parameters = parameters - BANDS / 20 * np.sum(gradients, axis=0)
    loss, accuracy = softmax.evaluate(parameters, federation.test_x, federation.test_y)
    # Noise of a hundred-thousandth in 650 parameters.
    assert found[-1][1] == pytest.approx(loss, rel=1e-3)
    # A few of the test records lie so near a border.
    assert found[-1][2] == pytest.approx(accuracy, abs=0.01)
    with pytest.raises(ParameterError, match="per_round"):
        Rehearsal(**(told | {"per_round": 19})).run(QUIET, seed=3)


LOUD = GaussianEncoding(deviation=4.0, l2_norm=4.0, granularity=0.1, modulus_bits=16, bands=BANDS)


class Numbered(RunLedger):
    """Gives rounds the numbers that the server likes."""

    def __init__(self, numbers: list[int]) -> None:
        super().__init__(None, {})
        self._numbers = numbers

    def start(self) -> int:
        self._take({"round": (number := self._numbers.pop(0)), "asked": [], "minimum": 0})
        self._own.add(number)
        return number


def refusals(crowd: Crowd) -> list[tuple[str, str]]:
    records = [
        reply.content.config_records[RECORD]
        for reply in crowd.grid.received
        if not reply.has_error()
    ]
    return [(str(one["refused"]), str(one["reason"])) for one in records if "refused" in one]


def test_a_server_that_skips_to_a_clients_turns_finds_every_sum_charged_as_an_update(
    tmp_path: Path,
) -> None:
    """Rounds 1, 4 and 7 are turns of the same clients: three updates in three sums."""
    crowd = Crowd(tmp_path)
    strategy = strategy_of(LOUD, ledger=Numbered([1, 4, 7]))
    crowd.rounds(strategy, np.zeros(SIZE), 3)
    assert refusals(crowd) == []
    plan = strategy.plan(CLIENTS, 1, SIZE)
    told = {
        "clients": plan.minimum,
        "corrupted": strategy.trust.corrupted_of(plan),
        "size": SIZE,
        "delta": 1e-6,
    }
    for place in range(CLIENTS):
        identity = card(place).identity.hex()
        ledger = LifetimeLedger(tmp_path / f"sums-{identity[:16]}.jsonl", identity=identity)
        assert ledger.sums == 3
        assert ledger.spent(1e-6) == LOUD.claims(rounds=9, **told)["central"].epsilon
        assert [number for who, number in crowd.trained if who == place] == (
            [1, 4, 7] if TURNS[place] == 0 else []
        )


def test_a_budget_counts_updates_and_not_sums(tmp_path: Path) -> None:
    """Enough for one block: a server that goes through it is answered in all its rounds, one that skips in one."""
    plan = strategy_of(LOUD).plan(CLIENTS, 1, SIZE)
    trust = Policy(roster=roster(CLIENTS)).trust
    told = {
        "clients": plan.minimum,
        "corrupted": trust.corrupted_of(plan),
        "size": SIZE,
        "delta": 1e-6,
    }
    budget = LOUD.claims(rounds=BANDS, **told)["central"].epsilon * (1 + FEW)
    for numbers, answered in (([1, 2, 3], 3), ([1, 4, 7], 1)):
        (folder := tmp_path / str(answered)).mkdir()
        crowd = Crowd(folder, policy=Policy(roster=roster(CLIENTS), budget=budget))
        strategy = strategy_of(LOUD, ledger=Numbered(list(numbers)))
        crowd.rounds(strategy, np.zeros(SIZE), 3)
        sums = [
            LifetimeLedger(path, identity=card(place).identity.hex()).sums
            for place in range(CLIENTS)
            for path in folder.glob(f"sums-{card(place).identity.hex()[:16]}.jsonl")
        ]
        assert sums == [answered] * CLIENTS
        told_so = {(name, reason.split(":")[0]) for name, reason in refusals(crowd)}
        assert told_so == (set() if answered == 3 else {("PolicyRefusal", f"budget={budget:g}")})


@pytest.mark.parametrize("numbers", [[4, 4], [4, 2]], ids=["twice", "out of order"])
def test_a_round_asked_twice_or_out_of_order_is_answered_by_nobody(
    tmp_path: Path, numbers: list[int]
) -> None:
    crowd = Crowd(tmp_path)
    strategy = strategy_of(LOUD, ledger=Numbered(list(numbers)))
    crowd.rounds(strategy, np.zeros(SIZE), 1)
    assert strategy.last_sum is not None
    trained = list(crowd.trained)
    strategy.ledger._rounds.clear()
    crowd.rounds(strategy, np.zeros(SIZE), 1)
    assert strategy.last_sum is None
    assert {name for name, _ in refusals(crowd)} == {"ReplayedRound"}
    assert crowd.trained == trained


def test_clients_that_forgot_a_round_share_no_update_of_it_a_second_time(tmp_path: Path) -> None:
    """Another model, so another plan, in the same round of the same session; their records know it."""
    crowd = Crowd(tmp_path)
    crowd.rounds(strategy_of(LOUD, session=bytes(16), ledger=Numbered([4])), np.zeros(SIZE), 1)
    for place in range(CLIENTS):
        crowd.forget(place)
    again = strategy_of(LOUD, session=bytes(16), ledger=Numbered([4]))
    crowd.rounds(again, np.ones(SIZE), 1)
    assert again.last_sum is None
    assert {(name, reason.split(":")[0]) for name, reason in refusals(crowd)} == {
        ("PolicyRefusal", "round")
    }
    assert all(
        crowd.trained.count((place, 4)) <= 1 for place in range(CLIENTS)
    )  # it holds the update already


def test_an_update_is_added_under_its_own_encoding_and_session_alone(tmp_path: Path) -> None:
    """A server that goes on with a quieter encoding, or in another session, half-way through a block gets nothing."""
    quieter = dataclasses.replace(QUIET, granularity=QUIET.granularity / 2, modulus_bits=25)
    for name, encoding, session in (
        ("encoding", quieter, bytes(16)),
        ("session", QUIET, bytes(15) + b"1"),
    ):
        (folder := tmp_path / name).mkdir()
        crowd = Crowd(folder)
        crowd.rounds(strategy_of(session=bytes(16), ledger=Numbered([1])), np.zeros(SIZE), 1)
        second = strategy_of(encoding, session=session, ledger=Numbered([2]))
        found = crowd.rounds(second, np.zeros(SIZE), 1)
        said = sum(update(place, 2) for place in range(CLIENTS) if TURNS[place] == 1)
        np.testing.assert_allclose(found, said * BANDS / CLIENTS, atol=NEAR)


def test_bands_want_everybody_in_every_round() -> None:
    with pytest.raises(ParameterError, match="per_round"):
        SecureStrategy(encoding=QUIET, per_round=CLIENTS - 1, roster=roster(CLIENTS))


def test_a_budget_of_the_server_ends_with_the_last_round_that_it_holds_for(tmp_path: Path) -> None:
    """Rounds that failed count: a client that was in later ones alone could have begun as many blocks."""
    crowd = Crowd(tmp_path)
    strategy = strategy_of(LOUD, ledger=Numbered([1, 4, 5]), most_rounds=4)
    crowd.rounds(strategy, np.zeros(SIZE), 3)
    assert [number for number, what in strategy.ledger.rounds.items() if what == "released"] == [
        1,
        4,
    ]
    assert "rounds 1 to 4" in strategy.stopped


def test_an_identity_without_records_is_part_of_nothing(tmp_path: Path) -> None:
    """Flower's state is of one run: in a second run of the same plan both secrets of a client could be opened."""
    crowd = Crowd(tmp_path)
    for context in crowd.grid.contexts.values():
        del context.node_config["records"]
    strategy = strategy_of(LOUD)
    crowd.rounds(strategy, np.zeros(SIZE), 1)
    assert strategy.last_sum is None
    assert {(name, reason.split(":")[0]) for name, reason in refusals(crowd)} == {
        ("PolicyRefusal", "records")
    }
    assert crowd.trained == []


@pytest.mark.parametrize(
    "encoding", [LOUD, dataclasses.replace(LOUD, bands=1)], ids=["bands", "none"]
)
def test_a_second_run_of_a_round_is_answered_by_nobody(
    tmp_path: Path, encoding: GaussianEncoding
) -> None:
    """Under another model, or another minimum; on the same machines, which were not started anew."""
    crowd = Crowd(tmp_path)
    crowd.rounds(strategy_of(encoding, session=bytes(16), ledger=Numbered([4])), np.zeros(SIZE), 1)
    for others in ({}, {"minimum": CLIENTS - 1}):
        for place in range(CLIENTS):
            crowd.forget(place)  # what a second run finds
        again = strategy_of(encoding, session=bytes(16), ledger=Numbered([4]), **others)
        crowd.rounds(again, np.full(SIZE, 0.5), 1)
        assert again.last_sum is None
    assert {(name, reason.split(":")[0]) for name, reason in refusals(crowd)} == {
        ("PolicyRefusal", "round")
    }
