"""Clients deal in rounds ahead, with an exchange of an earlier one: what is sent, and what happens where that fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message

from federated.grids import LocalGrid
from federated.rounds import EXCHANGES, LENIENT, card, plan, roster, secret
from federated.test_strategy import EXACT, _app, _start
from mezzotint.core.errors import FileFormatError
from mezzotint.federated.flower_records import RECORD, Key, request
from mezzotint.federated.policy import Policy
from mezzotint.federated.run_ledger import RunLedger
from mezzotint.federated.secagg import (
    Client,
    MalformedMessage,
    ReplayedRound,
    Server,
    TamperedShare,
    WrongStage,
    messages,
)
from mezzotint.federated.secagg.client import MOST_AHEAD
from mezzotint.federated.secure_strategy import Evaluation, SecureStrategy
from mezzotint.federated.wrapped_encodings import MetricsEncoding

CLIENTS = 6


def _record(message: Message) -> ConfigRecord:
    return message.content.config_records[RECORD]


class _Sent:
    """Notes what each node is sent: the stages, with "+2" where invitations to two further rounds come with one."""

    def __init__(self, change: Callable[[Message, Message], Message | None] | None = None) -> None:
        self.stages: dict[int, list[str]] = {}
        self.change = change

    def __call__(self, message: Message, reply: Message) -> Message | None:
        record = _record(message)
        further = f"+{len(record[Key.NEXT])}" if Key.NEXT in record else ""
        node = message.metadata.dst_node_id
        self.stages.setdefault(node, []).append(f"{record[Key.STAGE]}{further}")
        return reply if self.change is None else self.change(message, reply)

    def count(self, stage: str) -> int:
        """How often any node was sent this."""
        return sum(stages.count(stage) for stages in self.stages.values())


def _grid(sent: _Sent, corrupted: float = 0.0, policy: Policy | None = None) -> LocalGrid:
    policy = policy or Policy(corrupted=corrupted)
    return LocalGrid([_app(float(place), policy) for place in range(CLIENTS)], hand=sent)


def _strategy(**others: Any) -> SecureStrategy:
    """Of clients that assume that nobody is corrupted: some are no members of a committee."""
    return SecureStrategy(encoding=EXACT, clients_per_round=CLIENTS, corrupted=0.0, **others)


def test_a_round_takes_two_exchanges_and_only_members_take_part_in_the_second_as_such() -> None:
    sent = _Sent()
    strategy = _strategy(ahead=1)
    found = _start(_grid(sent), strategy, 3)
    np.testing.assert_allclose(found["a"], 3 * 2.5, atol=6 * EXACT.step)
    assert strategy.ledger.rounds == {1: "released", 2: "released", 3: "released"}
    assert strategy.incidents == []
    member = ["card", "deal", "sum", "unite+1", "sum", "unite+1", "sum", "unite"]
    for stages in sent.stages.values():
        # Whoever is no member of a round's committee is sent the invitation alone, and nothing after the last input.
        expected = [stage.replace("unite+1", "deal") for stage in member]
        shown = [stage.replace("unite+1", "deal") for stage in stages]
        assert shown in (expected, expected[:-1])
    assert sent.count("unite+1") > 0


def test_of_rounds_dealt_ahead_the_second_exchange_is_the_committees_alone() -> None:
    """Five rounds, three at once: dealt with the first exchange, and with the last of the third."""
    sent = _Sent()
    strategy = _strategy(ahead=3)
    found = _start(_grid(sent), strategy, 5)
    np.testing.assert_allclose(found["a"], 5 * 2.5, atol=10 * EXACT.step)
    assert list(strategy.ledger.rounds.values()) == ["released"] * 5
    assert strategy.incidents == []
    for stages in sent.stages.values():
        assert stages[:3] == ["card", "deal+2", "sum"]
        assert stages.count("sum") == 5
        dealt = stages.count("unite+2") + stages.count("deal+1")
        assert dealt == 1  # rounds 4 and 5, by members of the committee of round 3 and by others
        assert len(stages) == 3 + 4 + dealt + stages.count("unite")
    members = [strategy.plan(CLIENTS, number, 3, roster=bytes(32)).members for number in (1, 2)]
    assert members[0] == members[1] < CLIENTS
    assert sent.count("unite") + sent.count("unite+2") == 5 * members[0]


def test_without_it_a_round_takes_three() -> None:
    sent = _Sent()
    strategy = _strategy(ahead=0)
    _start(_grid(sent), strategy, 3)
    assert strategy.ledger.rounds == {1: "released", 2: "released", 3: "released"}
    assert not any("+" in stage for stages in sent.stages.values() for stage in stages)
    assert sent.count("deal") == 3 * CLIENTS


def _enrolled(folder: Path) -> dict[int, dict[str, str]]:
    """The configurations of nodes with identities and ledgers."""
    configs = {}
    for place in range(CLIENTS):
        (folder / f"key-{place}").write_bytes(secret(place))
        configs[place] = {"identity": str(folder / f"key-{place}"), "records": str(folder)}
    return configs


def test_a_client_that_lost_its_state_is_missed_once_and_left_out_of_what_it_dealt_in(
    tmp_path: Path,
) -> None:
    """It says so when it is to mask; the rounds after that have a committee that unites, for all who are in."""

    def forget(message: Message, reply: Message) -> Message:
        record = _record(message)
        is_first = record[Key.STAGE] == "deal" and len(record.get(Key.NEXT, [])) == 2
        if message.metadata.dst_node_id == 12 and is_first:
            grid.contexts[12].state.config_records.clear()
        return reply

    sent = _Sent(forget)
    apps = [_app(float(place), Policy(corrupted=0.0)) for place in range(CLIENTS)]
    grid = LocalGrid(apps, configs=_enrolled(tmp_path), hand=sent)
    strategy = _strategy(minimum=4, ahead=3)
    _start(grid, strategy, 4)
    assert list(strategy.ledger.rounds.values()) == ["released"] * 4
    members = strategy.plan(CLIENTS, 1, 3, roster=bytes(32)).members
    assert 0 < sent.count("open") <= sent.count("agree") <= members  # in one round alone
    assert [one.name for one in strategy.incidents] == ["WrongStage"]
    assert sent.stages[12].count("sum") == 2  # in the first round, and in the fourth, dealt anew
    assert strategy.ledger.charges["2"] == 1


def test_a_client_that_is_no_longer_connected_is_left_out_before_a_round_is_announced() -> None:
    sent = _Sent()
    grid = _grid(sent)
    strategy = _strategy(minimum=4, ahead=3)
    listed = grid.get_node_ids

    def connected() -> list[int]:
        """All at first; once they have masked in the first round, all but one."""
        is_first = sent.count("sum") < CLIENTS
        return [node for node in listed() if node != 12 or is_first]

    grid.get_node_ids = connected  # type: ignore[method-assign]
    _start(grid, strategy, 3)
    assert list(strategy.ledger.rounds.values()) == ["released"] * 3
    assert sent.count("agree") == 0
    assert strategy.ledger.charges == {str(place): 3 for place in range(CLIENTS) if place != 2} | {
        "2": 1
    }


def test_no_round_is_dealt_that_a_clients_budget_does_not_hold() -> None:
    """Rounds dealt ahead count as charged, those that are drawn without a client do not."""
    sent = _Sent()
    strategy = SecureStrategy(
        encoding=EXACT,
        clients_per_round=3,
        corrupted=0.0,
        dropped=0.0,
        most_rounds=2,
        sampling="cyclic",
        ahead=9,
    )
    _start(_grid(sent), strategy, 9)
    assert list(strategy.ledger.rounds.values()).count("released") == 4
    assert set(strategy.ledger.charges.values()) == {2}
    assert "exceed" in strategy.stopped


def _dealt_clients(
    numbers: list[int],
) -> tuple[dict[int, Client], dict[int, tuple[Server, dict[int, bytes]]]]:
    """Six clients that dealt in rounds of these numbers, and the messages that ask them to mask, by round."""
    session = bytes(range(16))
    plans = {number: plan(CLIENTS, session=session, round=number) for number in numbers}
    clients = {
        card(place).identity: Client(identity=secret(place), trust=LENIENT)
        for place in range(CLIENTS)
    }
    rounds = {}
    for number, one in plans.items():
        server = Server(one, roster(CLIENTS))
        for index, invitation in server.invitations().items():
            server.receive(index, clients[server.cohort[index].identity].deal(invitation))
        rounds[number] = server, dict(server.advance())
    return clients, rounds


def _masked(clients: dict[Any, Client], server: Server, outbox: dict[int, bytes]) -> None:
    for index, message in outbox.items():
        client = clients[server.cohort[index].identity]
        server.receive(index, client.sum(message, np.full(40, index)))


def test_rounds_dealt_ahead_are_summed_in_order_and_a_round_that_was_skipped_is_over() -> None:
    clients, rounds = _dealt_clients([1, 2, 3])
    client = clients[card(0).identity]
    for number in (1, 3):
        _masked(clients, *rounds[number])
        server, _ = rounds[number]
        opened = dict(server.unite())
        for index, message in opened.items():
            server.receive(index, clients[server.cohort[index].identity].unite(message))
        np.testing.assert_array_equal(server.result().values, np.full(40, sum(range(CLIENTS))))
    for index, message in rounds[2][1].items():
        with pytest.raises(WrongStage, match="no round"):
            clients[rounds[2][0].cohort[index].identity].sum(message, np.zeros(40, int))
    assert client.plan_of(rounds[2][1][0]) is None


def test_a_later_round_does_not_begin_before_one_that_goes_on_is_forgotten() -> None:
    """Once a client has masked in the second round, it opens nothing more of the first."""
    clients, rounds = _dealt_clients([1, 2])
    _masked(clients, *rounds[1])
    opened = dict(rounds[1][0].unite())
    _masked(clients, *rounds[2])
    for index, message in opened.items():
        with pytest.raises(ReplayedRound):
            clients[rounds[1][0].cohort[index].identity].unite(message)


def test_a_refusal_ends_its_own_round_alone() -> None:
    clients, rounds = _dealt_clients([1, 2])
    server, outbox = rounds[1]
    client = clients[server.cohort[0].identity]
    with pytest.raises(MalformedMessage):
        client.sum(outbox[0][:-1], np.zeros(40, int))
    with pytest.raises(ReplayedRound):
        client.sum(outbox[0], np.zeros(40, int))
    _masked(clients, *rounds[2])


def test_a_client_keeps_a_bounded_number_of_rounds_and_states_are_saved_with_all_of_them() -> None:
    session = bytes(range(16))
    client = Client(identity=secret(0), trust=LENIENT)
    place = [one.identity for one in roster(CLIENTS).cohort(1, CLIENTS)].index(client.identity)
    dealings = []
    for number in range(1, 31):
        one = plan(CLIENTS, session=session, round=number)
        place = [other.identity for other in roster(CLIENTS).cohort(number, CLIENTS)].index(
            client.identity
        )
        shipped = roster(CLIENTS).to_bytes()
        dealings.append(client.deal(messages.invitation(one, place, shipped), encoding=b"noise"))
    again = Client.load(client.save(), trust=LENIENT)
    assert again.save() == client.save()
    state = json.loads(client.save())
    for damaged in (
        client.save()[:-1],
        client.save()[:-1] + b',"last":0}',
        b"[]",
        json.dumps({**state, "identity": 7}).encode(),
        json.dumps({**state, "rounds": [{}]}).encode(),
    ):
        with pytest.raises(FileFormatError, match=r"^saved client: "):
            Client.load(damaged, trust=LENIENT)
    kept = [dealing for dealing in dealings if again.plan_of(dealing) is not None]
    assert kept == dealings[-MOST_AHEAD - 2 :]


def test_rounds_dealt_ahead_fit_in_the_memory_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one round takes it all, the next alone is dealt ahead."""
    monkeypatch.setattr("mezzotint.federated.secure_strategy._DEALT_BYTES", 1)
    sent = _Sent()
    strategy = _strategy(ahead=3)
    _start(_grid(sent), strategy, 4)
    assert list(strategy.ledger.rounds.values()) == ["released"] * 4
    assert {stage.partition("+")[2] for stages in sent.stages.values() for stage in stages} == {
        "",
        "1",
    }


@pytest.mark.parametrize("invitations", [[b""] * (MOST_AHEAD + 1), b"", "none"])
def test_a_message_with_too_many_invitations_is_refused(invitations: Any) -> None:
    grid = _grid(_Sent())
    values = {Key.STAGE: "deal", Key.PAYLOAD: b"", Key.ENCODING: b"", Key.NEXT: invitations}
    (answer,) = grid.send_and_receive([request(10, "train", values, {})])
    assert _record(answer)[Key.REASON] == "next: need a list of at most 20 invitations"


def test_a_round_with_a_drop_out_deals_with_its_last_exchange() -> None:
    """Members agree first; the invitation comes with what they open."""

    def drop(message: Message, reply: Message) -> Any:
        is_lost = message.metadata.dst_node_id == 12 and _record(message)[Key.STAGE] == "sum"
        return None if is_lost else reply

    sent = _Sent(drop)
    strategy = _strategy(minimum=4, ahead=1)
    _start(_grid(sent), strategy, 2)
    assert strategy.ledger.rounds == {1: "released", 2: "released"}
    assert strategy.ledger.charges == {str(place): 2 for place in range(CLIENTS) if place != 2}
    assert sent.count("open+1") > 0


@pytest.mark.parametrize("field", [Key.PAYLOAD, Key.NEXT])
def test_each_part_of_a_joint_message_is_refused_alone(field: str) -> None:
    """A member that cannot open deals all the same; one that cannot deal has opened."""
    grid = _grid(_Sent(), corrupted=0.2)
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=CLIENTS, minimum=4, ahead=1)
    push = grid._push
    cut_messages: list[Message] = []

    def cut(message: Message) -> Any:
        record = _record(message)
        if Key.NEXT in record and not cut_messages:
            cut_messages.append(message)
            if field == Key.NEXT:
                record[field] = [record[field][0][:-1]]  # type: ignore[index]
            else:
                record[field] = bytes(record[field])[:-1]  # type: ignore[arg-type]
        return push(message)

    grid._push = cut  # type: ignore[method-assign]
    _start(grid, strategy, 2)
    assert strategy.ledger.rounds == {1: "released", 2: "released"}
    answers = [_record(reply) for reply in grid.received]
    refusals = [record[Key.REFUSED] for record in answers if Key.REFUSED in record]
    reasons = [
        reason for record in answers for reason in record.get(Key.NEXT_REASONS, []) if reason
    ]
    assert refusals + [reason.partition(":")[0] for reason in reasons] == ["MalformedMessage"]
    survivors = CLIENTS if field == Key.PAYLOAD else CLIENTS - 1
    assert strategy.last_sum is not None
    assert len(strategy.last_sum.survivors) == survivors


def test_an_invitation_comes_with_the_end_of_a_round_alone() -> None:
    """While a round goes on, nobody deals: the corrupted clients of the next are known by then."""
    sent = _Sent()
    grid = _grid(sent)
    push = grid._push
    early: list[ConfigRecord] = []

    def invite(message: Message) -> Any:
        record = _record(message)
        if record[Key.STAGE] == "sum" and not early:
            record[Key.NEXT], record[Key.ENCODING] = [b""], b""
            number = push(message)
            early.append(_record(grid.received[-1]))
            return number
        return push(message)

    grid._push = invite  # type: ignore[method-assign]
    _start(grid, _strategy(), 1)
    assert early[0][Key.REFUSED] == "PolicyRefusal"
    assert str(early[0][Key.REASON]).startswith("record:")


def test_a_sum_of_metrics_comes_between_rounds_that_are_dealt_ahead() -> None:
    """It is of another session: those that a client dealt in go on."""
    sent = _Sent()
    measures = MetricsEncoding.gaussian({"loss": (0, 5)}, noise_multiplier=8.0, clients=CLIENTS)
    policy = Policy(corrupted=0.0, evaluate_noise_multiplier=0.0)
    strategy = _strategy(evaluation=Evaluation(encoding=measures, every=2), ahead=3)
    _start(_grid(sent, policy=policy), strategy, 4)
    assert strategy.evaluator is not None
    assert list(strategy.ledger.rounds.values()) == ["released"] * 4
    assert len(strategy.evaluator.ledger.rounds) == 2
    assert sent.count("deal+2") == CLIENTS


def test_a_round_that_too_few_dealt_in_ahead_is_begun_anew() -> None:
    """Its number is closed as failed, and no client is charged for it."""

    def lose(message: Message, reply: Message) -> Message:
        record = _record(reply)
        record.pop(Key.NEXT, None)
        is_ahead = len(strategy.ledger.rounds) == 2
        if _record(message)[Key.STAGE] == "deal" and is_ahead:
            record[Key.PAYLOAD] = b""
        return reply

    strategy = _strategy(minimum=4, ahead=1)
    _start(_grid(_Sent(lose)), strategy, 2)
    assert strategy.ledger.rounds == {1: "released", 2: "failed: TooFewClients", 3: "released"}
    assert strategy.ledger.charges == {str(place): 2 for place in range(CLIENTS)}


def test_who_spoils_a_round_has_not_dealt_in_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The following round was dealt in by the culprit, too: it is given up, and the round is repeated without it."""
    honest = Server.result
    spoilt: list[int] = []

    def result(self: Server) -> Any:
        if not spoilt:
            spoilt.append(self.plan.round)
            raise TamperedShare("open", "useless", (0,))
        return honest(self)

    monkeypatch.setattr(Server, "result", result)
    strategy = _strategy(minimum=4, ahead=2)
    _start(_grid(_Sent()), strategy, 2)
    assert spoilt == [1]
    outcomes = list(strategy.ledger.rounds.values())
    assert outcomes[0] == "interrupted"
    assert outcomes[1] == "failed: TamperedShare"
    assert outcomes.count("released") == 2
    assert len(strategy.excluded) == 1


def test_a_budget_is_not_dealt_beyond(tmp_path: Path) -> None:
    ledger = RunLedger(tmp_path / "ledger.jsonl", {"run": "x"})
    sent = _Sent()
    strategy = _strategy(ledger=ledger, most_rounds=2)
    _start(_grid(sent), strategy, 4)
    assert strategy.ledger.rounds == {1: "released", 2: "released"}
    assert sent.count("deal+1") == CLIENTS
    assert "exceed" in strategy.stopped


@pytest.mark.parametrize("ahead", [1, 2])
def test_clients_with_ledgers_note_all_answers_before_any_leaves(
    tmp_path: Path, ahead: int
) -> None:
    """A node that loses the reply to a joint message, and its state, has both on its ledger: it repeats neither."""
    known = roster(CLIENTS)
    apps = [_app(float(place), Policy(roster=known)) for place in range(CLIENTS)]
    grid = LocalGrid(apps, configs=_enrolled(tmp_path))
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=CLIENTS, roster=known, ahead=ahead)
    _start(grid, strategy, 2)
    assert strategy.ledger.rounds == {1: "released", 2: "released"}
    text = next(iter(tmp_path.glob(f"sums-{card(0).identity.hex()[:16]}*"))).read_text()
    noted = [line.split('"stage":"')[1].split('"')[0] for line in text.splitlines()[1:]]
    stages = [stage for stage in noted if stage != "sum"]
    in_order = {1: ["deal", "unite", "deal", "unite"], 2: ["deal", "deal", "unite", "unite"]}
    assert stages in (in_order[ahead], ["deal", "deal"])
    assert set(EXCHANGES) >= set(noted)
    assert messages.STAGES[0] == "deal"
