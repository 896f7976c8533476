"""Who dies or is cut off at which stage: no round is answered twice, what was sent is charged, and the run goes on.

The table in docs/tables/crashes.md is read here: each of its cells is played by the test that it names.
"""

from __future__ import annotations

import copy
import errno
import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from federated.grids import LocalGrid
from federated.rounds import EXCHANGES, apart, card, roster, secret
from federated.run_files import federate
from killing import Runs
from mezzotint.federated.client_mod import SecureUpdates
from mezzotint.federated.encoding import FixedPointEncoding, canonical, gaussian_encoding
from mezzotint.federated.flower_records import RECORD, reply
from mezzotint.federated.lifetime_ledger import LifetimeLedger
from mezzotint.federated.policy import Policy
from mezzotint.federated.run_ledger import Checkpoint
from mezzotint.federated.secagg import STAGES, client as client_module
from mezzotint.federated.secure_strategy import SecureStrategy
from mezzotint.vectors import ranked_codebook

TABLE = Path(__file__).parents[2] / "docs" / "tables" / "crashes.md"
CLIENTS, ROUNDS = 4, 2
PATIENCE = pytest.mark.timeout(3600)  # of tests of many processes, on a busy machine
PIECES = (
    3  # of all changes of files in a run: one in three each, a third of an hour on a busy machine
)
SENT = {
    "secure_sum": "mezzotint.federated.secagg.client:Client.sum",
    "reports": "mezzotint.vectors.ranked_session:RankedSession.answer",
}
"""What a client does when it sends something that depends on its data."""


def _table() -> dict[tuple[str, str], tuple[str, str]]:
    """(who, stage) -> outcome and test."""
    text = TABLE.read_text(encoding="utf-8")
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    assert tuple(rows[0][1:]) == (*EXCHANGES, "test")
    return {
        (who, stage): (outcome, test.strip("`"))
        for who, *outcomes, test in rows[2:]
        for stage, outcome in zip(EXCHANGES, outcomes, strict=True)
        if outcome != "-"
    }


def _cells(test: str) -> list[Any]:
    return [
        pytest.param(*place, id="-".join(place))
        for place, (_, named) in _table().items()
        if named == test
    ]


def test_every_cell_of_the_table_is_played():
    """Ordinary clients are asked twice a round; everybody else can be missed in every exchange."""
    assert set(_table()) == {
        (who, stage)
        for who in (
            "an ordinary client",
            "a member",
            "the server",
            "the link of one",
            "the link of all",
        )
        for stage in (STAGES[:2] if who == "an ordinary client" else EXCHANGES)
    }
    played = [test for test in globals().values() if hasattr(test, "pytestmark")]
    known = {
        test.__name__ for test in played for mark in test.pytestmark if mark.name == "parametrize"
    }
    assert {test for _, test in _table().values()} <= known


# Clients and links ----------------------------------------------------------------------------------------------------

MANY = 8
EXACT = FixedPointEncoding(clip=8.0, grid_bits=13)


class _Killed(BaseException):
    """Nothing that was begun is finished."""


def _killed(*words: Any, **named: Any) -> Any:
    raise _Killed


class _Deaths:
    """Clients of whom some are hit once, in the first round, when they are asked at a stage.

    Arguments:
        folder: of identities and records.
        victims: clients.
        stage: the stage.
        moment: "before" the message is seen; "within": half-way through the answer; "after": the answer is lost.
        state: which one the node has afterwards: the "new" one of this answer, the "old" one of the answer before (the
            process died after its reply had left, and before its state had), or "none" (the node is started anew).
    """

    def __init__(
        self, folder: Path, victims: set[int], stage: str, moment: str, *, state: str
    ) -> None:
        self.stage, self.moment, self.state = stage, moment, state
        self.left = set(victims)
        self.hit: list[Message] = []
        self.lost: list[Message] = []
        self.answers: dict[tuple[int, str], list[bytes]] = {}
        configs: dict[int, dict] = {}
        for place in range(MANY):
            (folder / f"key-{place}").write_bytes(secret(place))
            configs[place] = {"identity": str(folder / f"key-{place}"), "records": str(folder)}
        self.grid = LocalGrid(
            [self._app(place) for place in range(MANY)], configs=configs, hand=self._hand
        )

    def _app(self, place: int) -> ClientApp:
        honest = SecureUpdates(Policy(roster=roster(MANY)))

        def mod(message: Message, context: Any, call_next: Any) -> Message:
            stage = str(message.content.config_records[RECORD]["stage"])
            if place in self.left and stage == self.stage:
                self.left.discard(place)
                self.hit.append(message)
                answer = self._hit(place, honest, message, context, call_next)
                self.lost.append(answer)
                return answer
            return self._noted(place, honest(message, context, call_next), stage)

        app = ClientApp(mods=[mod])

        @app.train()
        def train(message: Message, context: Any) -> Message:
            update = np.full(3, place / 2)
            return Message(
                RecordDict({"arrays": ArrayRecord({"a": Array(update)})}), reply_to=message
            )

        return app

    def _hit(
        self, place: int, honest: SecureUpdates, message: Message, context: Any, call_next: Any
    ) -> Message:
        before, answer = copy.deepcopy(context.state), reply(message, {})
        if self.moment == "within":
            # Where the stage writes a file, half of that; else in the middle of its cryptography.
            broken = {
                "sum": "os.fsync",
                **dict.fromkeys(("open", "unite"), f"{client_module.__name__}.unseal"),
            }
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(broken.get(self.stage, f"{client_module.__name__}.sign"), _killed)
                with pytest.raises(_Killed):
                    honest(message, context, call_next)
            context.state = (
                before  # what a node knows changes together with the answer that it is handed
            )
        elif self.moment == "after":
            answer = self._noted(place, honest(message, context, call_next), self.stage)
        if self.state == "old":
            context.state = before
        elif self.state == "none":
            context.state = RecordDict()
        return answer

    def _noted(self, place: int, answer: Message, stage: str) -> Message:
        payload = answer.content.config_records[RECORD].get("payload")
        if isinstance(payload, bytes):
            self.answers.setdefault((place, stage), []).append(payload)
        return answer

    def _hand(self, message: Message, answer: Message) -> Message | None:
        return None if any(answer is one for one in self.lost) else answer

    def ask_again(self) -> None:
        """The messages that the victims were asked with when they were hit, once more."""
        self.grid.send_and_receive([copy.deepcopy(message) for message in self.hit])

    def records(self, place: int) -> LifetimeLedger:
        identity = card(place).identity.hex()
        path = (
            Path(str(self.grid.contexts[10 + place].node_config["records"]))
            / f"sums-{identity[:16]}.jsonl"
        )
        return LifetimeLedger(path, identity=identity)


def _play(deaths: _Deaths, victims: set[int], outcome: str) -> None:
    """Two rounds, and in between a server that asks the victims again; then who was answered, charged and summed."""
    strategy = SecureStrategy(
        encoding=EXACT, clients_per_round=MANY, roster=roster(MANY), returns="update"
    )
    start = ArrayRecord({"a": Array(np.zeros(3))})
    asked = ConfigRecord()
    strategy.start(grid=deaths.grid, initial_arrays=start, num_rounds=1, train_config=asked)
    first = strategy.last_sum
    inside = set(range(MANY)) - (victims if outcome == "out" else set())
    names = {place: card(place).identity.hex() for place in range(MANY)}
    if outcome in ("out", "in"):
        assert first is not None
        drawn = roster(MANY).cohort(1, MANY)
        assert {drawn[place].identity.hex() for place in first.survivors} == {
            names[place] for place in inside
        }
        assert set(strategy.ledger.charges) == {names[place] for place in inside}
    else:
        assert first is None
        # Shares were revealed, so perhaps the sum is known: it stays charged. Before that nobody is charged.
        charged = set(names.values()) if outcome == "charged" else set()
        assert set(strategy.ledger.charges) == charged
    assert deaths.hit
    deaths.ask_again()
    deaths.left.clear()  # whoever was not asked in time lives
    for place in range(MANY):
        sums, signatures, shares = (
            deaths.answers.get((place, stage), []) for stage in ("sum", "agree", "unite")
        )
        assert len(sums) <= 1
        assert len({*signatures, *shares}) <= 1
        assert deaths.records(place).sums >= len(sums)
    found = strategy.start(
        grid=deaths.grid, initial_arrays=start, num_rounds=1, train_config=ConfigRecord()
    )
    np.testing.assert_allclose(
        found.arrays["a"].numpy(), np.mean(np.arange(MANY) / 2), atol=2 * EXACT.step
    )
    assert strategy.ledger.rounds[2] == "released"
    assert all(
        deaths.records(place).sums >= len(deaths.answers[place, "sum"]) for place in range(MANY)
    )


def _victims(who: str) -> set[int]:
    """Clients by where they stand in the first round."""
    plan = SecureStrategy(encoding=EXACT, clients_per_round=MANY, roster=roster(MANY)).plan(
        MANY, 1, 3
    )
    places = {
        "an ordinary client": [MANY - 1],
        "a member": [1],
        "the link of one": [2],
        "the link of all": range(MANY),
    }
    assert plan.members < MANY
    drawn = roster(MANY).cohort(1, MANY)
    return {
        place for place in range(MANY) if card(place) in [drawn[index] for index in places[who]]
    }


FATES = pytest.mark.parametrize(
    ("moment", "state"),
    [
        *itertools.product(["before", "within", "after"], ["new", "none"]),
        ("after", "old"),  # without an answer there is no newer state
    ],
)
"""When a client dies, and with which state it comes back."""


@FATES
@pytest.mark.parametrize(("who", "stage"), _cells("test_a_client_dies"))
def test_a_client_dies(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    who: str,
    stage: str,
    moment: str,
    state: str,
) -> None:
    apart(monkeypatch, stage)
    victims = _victims(who)
    outcome = _table()[who, stage][0]
    _play(_Deaths(tmp_path, victims, stage, moment, state=state), victims, outcome)


def _dealing_ahead(rounds: int) -> tuple[SecureStrategy, ArrayRecord]:
    """A strategy whose clients deal in so many rounds at once, and the model that it starts from."""
    strategy = SecureStrategy(
        encoding=EXACT, clients_per_round=MANY, roster=roster(MANY), returns="update", ahead=rounds
    )
    return strategy, ArrayRecord({"a": Array(np.zeros(3))})


@FATES
@pytest.mark.parametrize("stage", ["unite", "open"])
def test_a_member_dies_that_opens_one_round_and_deals_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, moment: str, state: str
) -> None:
    """Both sums are known; the member is missing from the second where its dealing, or its state, was lost."""
    apart(monkeypatch, stage)
    victims = _victims("a member")
    deaths = _Deaths(tmp_path, victims, stage, moment, state=state)
    strategy, start = _dealing_ahead(1)
    strategy.one_round(deaths.grid, start, {}, left=1)
    assert strategy.last_sum is not None
    assert len(strategy.last_sum.survivors) == MANY
    assert "next" in deaths.hit[0].content.config_records[RECORD]
    deaths.ask_again()
    strategy.one_round(deaths.grid, start, {})
    assert strategy.last_sum is not None
    assert len(strategy.last_sum.survivors) == MANY - 1
    assert strategy.ledger.rounds == {1: "released", 2: "released"}
    for place in range(MANY):
        opened = {
            *deaths.answers.get((place, "agree"), []),
            *deaths.answers.get((place, stage), []),
        }
        assert len(deaths.answers[place, "sum"]) <= 2
        assert deaths.records(place).sums >= len(deaths.answers[place, "sum"])
        assert deaths.records(place).dealings == 2 or place in victims
        assert len(opened) <= 4


@FATES
@pytest.mark.parametrize("stage", EXCHANGES)
def test_a_member_dies_that_dealt_in_two_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str, moment: str, state: str
) -> None:
    """Both sums are known; it is missing from the second only if its dealings or its state were lost."""
    apart(monkeypatch, stage)
    victims = _victims("a member")
    deaths = _Deaths(tmp_path, victims, stage, moment, state=state)
    strategy, start = _dealing_ahead(2)
    survivors: list[int] = []
    for left in (1, 0):
        strategy.one_round(deaths.grid, start, {}, left=left)
        assert strategy.last_sum is not None
        survivors.append(len(strategy.last_sum.survivors))
        deaths.ask_again()
    assert strategy.ledger.rounds == {1: "released", 2: "released"}
    is_out_first = stage in ("deal", "sum")
    is_out_then = stage == "deal" or state == "none"
    assert survivors == [MANY - is_out_first, MANY - is_out_then]
    for place in range(MANY):
        sums = deaths.answers.get((place, "sum"), [])
        assert len(sums) <= 2
        assert deaths.records(place).sums >= len(sums)
        assert deaths.records(place).dealings == 2 or place in victims
        for opening in ("agree", "open", "unite"):
            assert len(set(deaths.answers.get((place, opening), []))) <= 2


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize(("who", "stage"), _cells("test_a_link_fails"))
def test_a_link_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str, stage: str, moment: str
) -> None:
    """On the way there, or on the way back."""
    apart(monkeypatch, stage)
    victims = _victims(who)
    outcome = _table()[who, stage][0]
    _play(_Deaths(tmp_path, victims, stage, moment, state="new"), victims, outcome)


def test_a_client_that_forgot_its_round_answers_it_no_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node is started anew, and the server goes through the same plan with it once more.

    The coins are fixed, so that the messages of the first time fit what it deals in the second.
    """
    monkeypatch.setattr(client_module, "os", SimpleNamespace(urandom=bytes))
    (victim,) = _victims("an ordinary client")
    deaths = _Deaths(tmp_path, set(), "", "", state="new")
    seen: list[Message] = []
    push = deaths.grid.push_messages

    def noting(messages: Any) -> Any:
        batch = list(messages)
        seen.extend(copy.deepcopy(one) for one in batch if one.metadata.dst_node_id == 10 + victim)
        return push(batch)

    deaths.grid.push_messages = noting  # type: ignore[method-assign]
    strategy = SecureStrategy(
        encoding=EXACT, clients_per_round=MANY, roster=roster(MANY), returns="update"
    )
    start = ArrayRecord({"a": Array(np.zeros(3))})
    strategy.start(
        grid=deaths.grid, initial_arrays=start, num_rounds=1, train_config=ConfigRecord()
    )
    deaths.grid.push_messages = push  # type: ignore[method-assign]
    deaths.grid.contexts[10 + victim].state = RecordDict()
    answers = deaths.grid.send_and_receive(seen)
    told = [answer.content.config_records[RECORD].get("refused") for answer in answers]
    assert told[:2] == [None, "PolicyRefusal"]  # its card, and no dealing
    assert None not in told[1:]
    assert len(deaths.answers[victim, "sum"]) == deaths.records(victim).sums == 1


@pytest.mark.slow
@PATIENCE
@pytest.mark.parametrize("torn", [False, True], ids=["before", "within"])
def test_a_client_killed_at_its_records_answers_no_plan_twice(tmp_path: Path, torn: bool) -> None:
    """SIGKILL at every change of the ledger of its life; then the same plan again, and another."""
    marks = tmp_path / "marks"
    with Runs.of(
        "federated.killed:note", counted="federated.killed:Answers.leave", marks=marks
    ) as runs:
        changes = runs(tmp_path / "whole", 1).changes
        assert changes > 5
        for at in range(1 + torn, changes + 1):
            before = marks.stat().st_size
            assert runs(tmp_path / str(at), 1, at=at, torn=torn).status is None
            again, other = runs(tmp_path / str(at), 1), runs(tmp_path / str(at), 2)
            assert other.status == 0, other.output  # the lock is free, and the file whole
            assert again.status in (0, 3), again.output
            answered = marks.stat().st_size - before
            assert answered <= 2
            lines = map(json.loads, (tmp_path / str(at)).read_text().splitlines())
            assert answered <= sum(line.get("stage") == "sum" for line in lines) == 2


# Servers --------------------------------------------------------------------------------------------------------------


def _settings(folder: Path, observer: str) -> dict[str, Any]:
    path = folder / "mechanism.json"
    if observer == "reports":
        ranked_codebook(650, 8.0, clip_norm=1.0).save(path)
    else:
        noise = gaussian_encoding(noise_multiplier=4.0, clip_norm=2.0, clients=CLIENTS, size=650)
        path.write_text(canonical(noise.as_dict()))
    return {
        "population": CLIENTS, "clients_per_round": CLIENTS, "dirichlet": 5.0, "mechanism": str(path), "rounds": ROUNDS,
        "minimum": 3, "stage_timeout": 5.0, "observer": observer,
    }  # fmt: skip


@pytest.mark.slow
@PATIENCE
@pytest.mark.parametrize(("who", "stage"), _cells("test_the_server_dies"))
def test_the_server_dies(tmp_path: Path, who: str, stage: str) -> None:
    """SIGKILL when the first message of a stage is on its way, and when the last answer is; then the run goes on."""
    outcome, _ = _table()[who, stage]
    settings, marks = _settings(tmp_path, "secure_sum"), tmp_path / "marks"
    with Runs.of("federated.killed:serve", counted=SENT["secure_sum"], marks=marks) as runs:
        for answers in (0, 1, None):
            name, before = (
                str(tmp_path / f"run-{answers}"),
                marks.stat().st_size if marks.exists() else 0,
            )
            words = json.dumps(settings | {"out": name})
            died = runs(words, stage, json.dumps(answers))
            assert died.status is None, died.output
            found = runs(words)  # the lock is free
            assert found.status == 0, found.output
            charged = sum(json.loads(found.output.rstrip().splitlines()[-1]).values())
            sent = marks.stat().st_size - before
            lines = [
                json.loads(line) for line in (Path(name) / "ledger.jsonl").read_text().splitlines()
            ]
            # Of the round in which it died nothing was learnt; whoever may have been in it is charged.
            assert sum("released" in line for line in lines) == ROUNDS
            # The numbers of all rounds, in which clients had been asked to deal, are not used again.
            released = [line["round"] for line in lines if "released" in line]
            assert released == list(range(ROUNDS + 1, 2 * ROUNDS + 1))
            assert charged == CLIENTS * (ROUNDS + (outcome == "charged"))
            assert sent <= charged
            assert max(line["round"] for line in lines if "round" in line) == 2 * ROUNDS


@pytest.mark.slow
@PATIENCE
@pytest.mark.parametrize("piece", range(PIECES))
@pytest.mark.parametrize("observer", list(SENT))
@pytest.mark.parametrize("torn", [False, True], ids=["before", "within"])
def test_whatever_was_sent_is_charged_and_no_round_is_asked_twice(
    tmp_path: Path, observer: str, torn: bool, piece: int
) -> None:
    settings, marks = _settings(tmp_path, observer), tmp_path / "marks"
    with Runs.of("federated.killed:serve", counted=SENT[observer], marks=marks) as runs:

        def run(name: object, **moment: Any) -> Any:
            return runs(json.dumps(settings | {"out": str(tmp_path / str(name))}), **moment)

        run(
            "first"
        )  # where nothing was compiled before, it changes files of the compiler's cache as well
        changes = run("whole").changes
        assert marks.stat().st_size == 2 * CLIENTS * ROUNDS
        assert changes > 10
        for at in range(1 + torn + piece, changes + 1, PIECES):
            before = marks.stat().st_size
            assert run(at, at=at, torn=torn).status is None
            found = run(at)
            assert found.status == 0, found.output
            sent = marks.stat().st_size - before
            charged = json.loads(found.output.rstrip().splitlines()[-1])
            # One round at most was interrupted, and asked its clients for nothing twice.
            assert sent <= sum(charged.values()) <= CLIENTS * (ROUNDS + 1)
            assert sum(charged.values()) >= CLIENTS * ROUNDS, (at, found.output)
            lines = (tmp_path / str(at) / "ledger.jsonl").read_text().splitlines()
            asked = [line["round"] for line in map(json.loads, lines) if line.get("asked")]
            assert len(asked) == len(set(asked))


@pytest.mark.slow
@PATIENCE
def test_a_disk_that_is_full_at_any_change_forgets_no_charge_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    """Through the verb, of whose changes of files one in six fails in turn."""
    marks = tmp_path / "marks"
    words = federate(
        tmp_path,
        data={"population": CLIENTS},
        rounds={"count": ROUNDS, "clients_per_round": CLIENTS},
        mechanism={"kind": "rounded-gaussian", "noise_multiplier": 4.0},
        privacy={"epsilon": 1000.0},
    )
    command = "federated.killed:command"
    with Runs.of(command, counted=SENT["secure_sum"], marks=marks) as runs:
        for name in ("first", "whole"):
            whole = runs(*words, "--out", tmp_path / name)
        assert whole.status == 0, whole.output
        for at in range(1, whole.changes + 1, 2 * PIECES):
            before, out = marks.stat().st_size, tmp_path / str(at)
            failed = runs(*words, "--out", out, at=at, fails=errno.ENOSPC)
            told = " ".join(failed.output.split())
            assert "Traceback" not in told
            has_begun = (out / "ledger.jsonl").exists()
            if failed.status:
                assert ("--resume" in told) == has_begun
                assert ("run again" in told) <= (not has_begun)
            ended = runs(*words, "--out", out)
            if has_begun:
                assert ended.status == 2, ended.output
                ended = runs("federate", "--out", out, "--resume")
            assert ended.status == 0, ended.output
            report = json.loads((out / "report.json").read_text())
            assert report["stopped"] == ""
            assert len(report["accuracy"]) == ROUNDS + 1
            charged = sum(report["ledger"]["charges"].values())
            assert marks.stat().st_size - before <= charged <= CLIENTS * (ROUNDS + 1)


@pytest.mark.slow
@PATIENCE
@pytest.mark.parametrize(("optimizer", "kills"), [("fedavgm", 20)])
def test_a_server_killed_at_any_moment_ends_with_the_model_of_one_that_was_not(
    tmp_path: Path, optimizer: str, kills: int
) -> None:
    """Half of the kills after a random time, half at a random change of a file, or within it; some runs die twice.

    The mechanism is a fine grid and all take part, so that a round that is repeated gives the same mean: parameters and
    the optimizer's memory are the same bits as if nothing had happened.
    """
    settings = {
        "population": CLIENTS, "clients_per_round": CLIENTS, "dirichlet": 5.0, "clip": 1.0, "rounds": 3, "minimum": CLIENTS,
        "stage_timeout": 5.0, "server_optimizer": optimizer, "server_learning_rate": 0.05,
    }  # fmt: skip
    rng = np.random.default_rng(11)
    with Runs.of("federated.killed:serve_for", loads=["sklearn.datasets"]) as runs:

        def run(name: object, seconds: float = 0.0, **moment: Any) -> Any:
            return runs(
                json.dumps(settings | {"out": str(tmp_path / str(name))}), seconds, **moment
            )

        run("first")  # compiles, where nothing was compiled before
        found = run("whole")
        seconds = float(found.output.rstrip().splitlines()[-1])
        whole, deaths = Checkpoint.load(tmp_path / "whole"), 0
        assert whole.done == 3
        assert whole.optimizer
        for trial in range(kills):
            for _ in range(1 + trial % 4 // 3):
                if trial % 2:
                    died = run(
                        trial,
                        at=int(rng.integers(1, found.changes + 1)),
                        torn=bool(rng.integers(2)),
                    )
                else:
                    died = run(trial, float(rng.uniform(0, seconds)))
                deaths += died.status is None
            ended = run(trial)
            assert ended.status == 0, ended.output
            again = Checkpoint.load(tmp_path / str(trial))
            assert again.done == whole.done
            np.testing.assert_array_equal(again.parameters, whole.parameters, strict=True)
            assert again.optimizer.keys() == whole.optimizer.keys()
            for name, vector in whole.optimizer.items():
                np.testing.assert_array_equal(again.optimizer[name], vector, strict=True)
    assert (
        deaths >= kills / 2
    )  # a run that is quicker than the whole one was, or goes on near its end, may live
