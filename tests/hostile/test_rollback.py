"""A server that asks clients of an older state for a second answer: another set, another task, another dealing.

Flower sends an answer and the client's state in two requests, and keeps the state of a series of runs that the server
names. So a client may find any state that it ever had. What it answered before stands on its ledger.
"""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from hypothesis import given, strategies as st

from federated.grids import LocalGrid, charge_sum
from federated.liars import Liar
from federated.rounds import card, roster, secret
from mezzotint.core.errors import ParameterError
from mezzotint.federated.budgets import Sums
from mezzotint.federated.client_mod import SecureUpdates
from mezzotint.federated.encoding import FixedPointEncoding, gaussian_encoding
from mezzotint.federated.flower_records import RECORD, Key
from mezzotint.federated.lifetime_ledger import Answer, LifetimeLedger, RoundMemory, lifetime_path
from mezzotint.federated.policy import Policy
from mezzotint.federated.secagg import ReplayedRound, Server
from mezzotint.federated.secure_strategy import SecureStrategy

CLIENTS, SIZE = 8, 3
EXACT = FixedPointEncoding(clip=8.0, grid_bits=13)
STAGES = ("deal", "sum", "agree", "open", "unite")


def _app(place: int) -> ClientApp:
    app = ClientApp(mods=[SecureUpdates(Policy(roster=roster(CLIENTS)))])

    @app.train()
    def train(message: Message, context: Any) -> Message:
        update = np.full(SIZE, place / 2)
        return Message(RecordDict({"arrays": ArrayRecord({"a": Array(update)})}), reply_to=message)

    return app


class _Liar(Liar):
    """A server that keeps every state of its clients, and may give any of them back.

    Arguments:
        folder: of identities and ledgers.
    """

    def __init__(self, folder: Path) -> None:
        configs = {}
        for place in range(CLIENTS):
            (folder / f"key-{place}").write_bytes(secret(place))
            configs[place] = {"identity": str(folder / f"key-{place}"), "records": str(folder)}
        self.folder = folder
        self.local = LocalGrid([_app(place) for place in range(CLIENTS)], configs=configs)
        nodes = {card(place).identity: 10 + place for place in range(CLIENTS)}
        super().__init__(self.local, roster=roster(CLIENTS), nodes=nodes, encoding=EXACT, size=SIZE)
        self.states: dict[str, dict[int, RecordDict]] = {}
        self.ledgers: dict[str, dict[Path, bytes]] = {}

    def remember(self, stage: str) -> None:
        """Keep the states in which clients are asked at a stage, and their ledgers."""
        self.states[stage] = {
            node: copy.deepcopy(context.state) for node, context in self.local.contexts.items()
        }
        self.ledgers[stage] = {path: path.read_bytes() for path in self.folder.glob("*.jsonl")}

    def roll_back(self, stage: str) -> None:
        for node, state in self.states[stage].items():
            self.local.contexts[node].state = copy.deepcopy(state)


def _forgetful(patch: pytest.MonkeyPatch) -> None:
    """Clients without a memory, as they were before answers were noted."""
    patch.setattr(RoundMemory, "is_repeated", lambda self, answer: False)


@pytest.mark.parametrize("united", [True, False], ids=["unite", "agree"])
@pytest.mark.parametrize("remembers", [True, False])
def test_members_sign_and_open_no_second_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, united: bool, remembers: bool
) -> None:
    """Opened under two sets, the victim's input is the difference of two sums; a memory prevents it."""
    if not remembers:
        _forgetful(monkeypatch)
    liar = _Liar(tmp_path)
    done = liar.run(united=united)
    first = done.server.result().values
    victim = CLIENTS - 1
    liar.roll_back("agree")
    signed, opened, second = liar.second_set(done, victim)
    if remembers:
        assert (signed, opened, second) == (0, 0, None)
        return
    assert signed >= done.server.plan.quorum
    assert opened >= done.server.plan.quorum
    place = liar.nodes[victim] - 10
    np.testing.assert_array_equal(first - second, EXACT.encode(np.full(SIZE, place / 2), rng=0))


@pytest.mark.parametrize("remembers", [True, False])
def test_nobody_opens_what_it_signed_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, remembers: bool
) -> None:
    """A member that signed one set, and whose state says that it signed another: it opens neither for the other."""
    liar = _Liar(tmp_path)
    done = liar.run(
        united=False, absent=0
    )  # everybody signed, and opened, the set without client 0
    other = done.without(1)
    proposal = dict(other.advance())
    with pytest.MonkeyPatch.context() as patch:
        _forgetful(patch)
        liar.roll_back("agree")
        for index, answer in liar.ask("agree", proposal).items():
            other.receive(index, answer)
        before = {path: path.read_bytes() for path in tmp_path.glob("*.jsonl")}
    # The ledgers lack these signatures: a state that they know nothing of.
    for path in before:
        path.write_bytes(liar.ledgers["open"][path])
    if not remembers:
        _forgetful(monkeypatch)
    opened = liar.ask("open", dict(other.advance()))
    assert len(opened) == (0 if remembers else len(proposal))


@pytest.mark.parametrize("remembers", [True, False])
@pytest.mark.parametrize("asked", ["again", "for another model", "to deal anew"])
def test_no_client_masks_twice_under_one_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: str, remembers: bool
) -> None:
    """Not for the same task, not for another one, not after another dealing: two inputs would have the same masks."""
    if not remembers:
        _forgetful(monkeypatch)
    liar = _Liar(tmp_path)
    done = liar.run(united=True)
    expected = 0 if remembers else CLIENTS
    if asked == "again":
        liar.roll_back("sum")
        assert len(liar.ask("sum", done.partners)) == expected
        return
    if asked == "for another model":
        liar.roll_back("sum")
        other = done.as_dealt(liar.digest(1.0))
        assert len(liar.ask("sum", dict(other.advance()), 1.0)) == expected
        return
    other = Server(liar.plan(), roster(CLIENTS))
    liar.roll_back("deal")
    dealt = liar.ask("deal", dict(other.invitations(range(CLIENTS))))
    assert len(dealt) == expected
    if remembers:
        return
    for index, answer in dealt.items():
        other.receive(index, answer)
    other.bind(liar.digest(0.0))
    assert len(liar.ask("sum", dict(other.advance()))) == CLIENTS


@pytest.mark.parametrize("stage", ["sum", "unite", "agree"])
def test_a_ledger_restored_from_an_older_copy_is_found_out_in_its_round(
    tmp_path: Path, stage: str
) -> None:
    """The node remembers a dealing, or an input, that the ledger does not: the client refuses to go on."""
    liar = _Liar(tmp_path)
    done = liar.run(united=True)
    older = "deal" if stage == "sum" else "sum"
    for path, text in liar.ledgers[older].items():
        path.write_bytes(text)
    liar.roll_back(stage)
    outbox: dict[int, bytes] = done.partners
    if stage != "sum":
        server = done.without()
        outbox = dict(server.unite() if stage == "unite" else server.advance())
    assert liar.ask(stage, outbox) == {}


def test_a_lost_ledger_is_not_begun_anew(tmp_path: Path) -> None:
    """A volume that is not mounted forgets everything: the client takes part in nothing until it is there again."""
    liar = _Liar(tmp_path)
    lost = lifetime_path(tmp_path, card(2).identity.hex())
    kept = lost.read_bytes()
    lost.unlink()
    server = Server(liar.plan(), roster(CLIENTS))
    invitations = dict(server.invitations(range(CLIENTS)))
    missing = liar.nodes.index(12)
    assert set(liar.ask("deal", invitations)) == set(range(CLIENTS)) - {missing}
    assert not lost.exists()
    refusal = [
        answer.content.config_records[RECORD][Key.REASON]
        for answer in liar.local.received
        if Key.REFUSED in answer.content.config_records[RECORD]
    ]
    assert refusal == ["records: this identity's ledger is missing; its log says what to do"]
    lost.write_bytes(kept)
    assert set(liar.ask("deal", invitations)) == {missing}


def test_dealings_are_counted_for_life(tmp_path: Path) -> None:
    """They cost no budget, and a server may let round after round fail until the coins suit it."""
    liar = _Liar(tmp_path)
    for app in liar.local.apps.values():
        app._mods[0].policy = Policy(roster=roster(CLIENTS), dealings=2)
    for number in (1, 2, 3):
        strategy = SecureStrategy(encoding=EXACT, clients_per_round=CLIENTS, roster=roster(CLIENTS))
        strategy.trust = Policy(roster=roster(CLIENTS), dealings=2).trust
        strategy.start(
            grid=liar.grid,
            initial_arrays=liar.task(0.0)["arrays"],
            num_rounds=1,
            train_config=ConfigRecord(),
        )
        assert (strategy.last_sum is not None) == (number <= 2)
    refused = {
        answer.content.config_records[RECORD].get(Key.REASON) for answer in liar.local.received
    }
    assert "dealings=2: this client dealt in as many rounds" in refused


@pytest.mark.parametrize("budget", [math.nan, -1.0, "9", True])
def test_a_budget_that_limits_nothing_is_refused_before_the_charge(
    tmp_path: Path, budget: Any
) -> None:
    path = tmp_path / "life.jsonl"
    ledger = LifetimeLedger(path, identity="ab")
    encoding = gaussian_encoding(noise_multiplier=4.0, clip_norm=1.0, clients=10, size=20)
    single_sum = Sums(size=20, clients=10, corrupted=2, delta=1e-5)
    with pytest.raises(ParameterError, match="budget="):
        charge_sum(ledger, encoding, single_sum, 1, budget=budget)
    dealing = Answer(session=bytes(16), number=2, stage="deal", payload=b"dealt")
    with pytest.raises(ParameterError, match="dealings="):
        ledger.note(dealing, dealings=budget)
    assert LifetimeLedger(path, identity="ab").spent(1e-6) == 0
    assert charge_sum(ledger, encoding, single_sum, 3, budget=math.inf) > 0


# Rules ----------------------------------------------------------------------------------------------------------------

_ASKED = st.tuples(st.integers(1, 3), st.sampled_from(STAGES), st.integers(0, 2))


@given(st.lists(_ASKED, max_size=40))
def test_whatever_a_server_asks_one_set_is_opened(questions: list[tuple[int, str, int]]) -> None:
    """The answers that leave, judged by what a server could learn from them, whatever rules forbade the others.

    Answers to "open" are shares for the set of the "agree" of the same value; of "unite", for the set of all.
    """
    memory, sent = RoundMemory(), set[tuple[int, str, int]]()
    for number, stage, value in questions:
        payload = f"{stage} {value}".encode()
        agreement = f"agree {value}".encode()
        answer = Answer(
            session=b"s", number=number, stage=stage, payload=payload, agreement=agreement
        )
        try:
            repeated = memory.is_repeated(answer)
        except ReplayedRound:
            continue
        assert repeated == ((number, stage, value) in sent)
        assert not (repeated and stage in ("deal", "sum"))
        if not repeated:
            memory.take(*answer.round, stage, answer.digest)
        sent.add((number, stage, value))
    assert memory.dealings == sum(stage == "deal" for _, stage, _ in sent)
    for number in {1, 2, 3}:
        values = {
            stage: {value for n, asked, value in sent if (n, asked) == (number, stage)}
            for stage in STAGES
        }
        assert all(len(answers) <= 1 for answers in values.values())
        assert values["open"] <= values["agree"]
        assert not (values["unite"] and values["agree"])
        assert (
            bool(values["deal"]) >= bool(values["sum"]) >= bool(values["agree"] | values["unite"])
        )
