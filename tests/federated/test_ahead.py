"""Clients deal in a round with the last exchange of the one before: what is sent, and what happens where that fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message

from federated.grids import LocalGrid
from federated.rounds import EXCHANGES, card, roster, secret
from federated.test_strategy import EXACT, _app, _start
from mezzotint.federated.joined import MetricsEncoding
from mezzotint.federated.ledger import RunLedger
from mezzotint.federated.policy import Policy
from mezzotint.federated.records import RECORD, Key
from mezzotint.federated.secagg import Server, TamperedShare, messages
from mezzotint.federated.strategy import Evaluation, SecureStrategy

CLIENTS = 6


def _record(message: Message) -> ConfigRecord:
    return message.content.config_records[RECORD]


class _Sent:
    """Notes what each node is sent: the stages, with "+deal" where an invitation to the next round comes with one."""

    def __init__(self, change: Callable[[Message, Message], Message] | None = None) -> None:
        self.stages: dict[int, list[str]] = {}
        self.change = change

    def __call__(self, message: Message, reply: Message) -> Message:
        record = _record(message)
        joint = "+deal" if Key.NEXT in record else ""
        node = message.metadata.dst_node_id
        self.stages.setdefault(node, []).append(f"{record[Key.STAGE]}{joint}")
        return reply if self.change is None else self.change(message, reply)


def _grid(sent: _Sent, corrupted: float = 0.0, policy: Policy | None = None) -> LocalGrid:
    policy = policy or Policy(corrupted=corrupted)
    return LocalGrid([_app(float(place), policy) for place in range(CLIENTS)], hand=sent)


def _strategy(**others: Any) -> SecureStrategy:
    """Of clients that assume that nobody is corrupted: some are no members of a committee."""
    return SecureStrategy(encoding=EXACT, per_round=CLIENTS, corrupted=0.0, **others)


def test_a_round_takes_two_exchanges_and_only_members_take_part_in_the_second_as_such() -> None:
    sent = _Sent()
    strategy = _strategy()
    found = _start(_grid(sent), strategy, 3)
    np.testing.assert_allclose(found["a"], 3 * 2.5, atol=6 * EXACT.step)
    assert strategy.ledger.rounds == {1: "released", 2: "released", 3: "released"}
    assert strategy.incidents == []
    member = ["card", "deal", "sum", "unite+deal", "sum", "unite+deal", "sum", "unite"]
    assert all(len(stages) <= len(member) for stages in sent.stages.values())
    for stages in sent.stages.values():
        # Whoever is no member of a round's committee is sent the invitation alone, and nothing after the last input.
        expected = [stage.replace("unite+deal", "deal") for stage in member]
        shown = [stage.replace("unite+deal", "deal") for stage in stages]
        assert shown in (expected, expected[:-1])
    assert any("unite+deal" in stages for stages in sent.stages.values())


def test_without_it_a_round_takes_three() -> None:
    sent = _Sent()
    strategy = _strategy(deal_ahead=False)
    _start(_grid(sent), strategy, 3)
    assert strategy.ledger.rounds == {1: "released", 2: "released", 3: "released"}
    assert not any("+deal" in stage for stages in sent.stages.values() for stage in stages)


def test_a_round_with_a_drop_out_deals_with_its_last_exchange() -> None:
    """Members agree first; the invitation comes with what they open."""

    def drop(message: Message, reply: Message) -> Any:
        is_lost = message.metadata.dst_node_id == 12 and _record(message)[Key.STAGE] == "sum"
        return None if is_lost else reply

    sent = _Sent(drop)
    strategy = _strategy(minimum=4)
    _start(_grid(sent), strategy, 2)
    assert strategy.ledger.rounds == {1: "released", 2: "released"}
    assert strategy.ledger.charges == {str(place): 2 for place in range(CLIENTS) if place != 2}
    assert any("open+deal" in stages for stages in sent.stages.values())


def _tampered(grid: LocalGrid, key: str) -> None:
    """Cut one field of the first joint message."""
    push = grid._push
    cut_messages: list[Message] = []

    def cut(message: Message) -> Any:
        record = _record(message)
        if Key.NEXT in record and not cut_messages:
            cut_messages.append(message)
            record[key] = bytes(record[key])[:-1]  # type: ignore[arg-type]
        return push(message)

    grid._push = cut  # type: ignore[method-assign]


@pytest.mark.parametrize("field", [Key.PAYLOAD, Key.NEXT])
def test_each_part_of_a_joint_message_is_refused_alone(field: str) -> None:
    """A member that cannot open deals all the same; one that cannot deal has opened."""
    grid = _grid(_Sent(), corrupted=0.2)
    strategy = SecureStrategy(encoding=EXACT, per_round=CLIENTS, minimum=4)
    _tampered(grid, field)
    _start(grid, strategy, 2)
    assert strategy.ledger.rounds == {1: "released", 2: "released"}
    answers = [_record(reply) for reply in grid.received]
    refusals = [record for record in answers if {Key.REFUSED, Key.NEXT_REFUSED} & record.keys()]
    name = Key.REFUSED if field == Key.PAYLOAD else Key.NEXT_REFUSED
    assert [record.get(name) for record in refusals] == ["MalformedMessage"]
    survivors = CLIENTS if field == Key.PAYLOAD else CLIENTS - 1
    assert strategy.last_sum is not None
    assert len(strategy.last_sum.survivors) == survivors


def test_an_invitation_comes_with_the_end_of_a_round_alone() -> None:
    """A member that deals while its round goes on would forget what it still has to open."""
    sent = _Sent()
    grid = _grid(sent)
    push = grid._push
    early: list[ConfigRecord] = []

    def invite(message: Message) -> Any:
        record = _record(message)
        if record[Key.STAGE] == "sum" and not early:
            record[Key.NEXT], record[Key.ENCODING] = b"", b""
            number = push(message)
            early.append(_record(grid.received[-1]))
            return number
        return push(message)

    grid._push = invite  # type: ignore[method-assign]
    _start(grid, _strategy(), 1)
    assert early[0][Key.REFUSED] == "PolicyRefusal"
    assert str(early[0][Key.REASON]).startswith("record:")


def test_no_client_deals_for_a_round_that_does_not_come_or_before_a_sum_of_metrics() -> None:
    sent = _Sent()
    measures = MetricsEncoding.gaussian({"loss": (0, 5)}, noise_multiplier=8.0, clients=CLIENTS)
    strategy = _strategy(evaluation=Evaluation(encoding=measures, every=2))
    _start(_grid(sent), strategy, 4)
    joint = {sum("+deal" in stage for stage in stages) for stages in sent.stages.values()}
    assert max(joint) == 2  # in rounds 1 and 3
    assert list(strategy.ledger.rounds.values()) == ["released"] * 4


def test_a_round_that_too_few_dealt_in_ahead_is_begun_anew() -> None:
    """Its number is closed as failed, and no client is charged for it."""

    def lose(message: Message, reply: Message) -> Message:
        record = _record(reply)
        if Key.NEXT in _record(message):
            record.pop(Key.NEXT, None)
        is_ahead = len(strategy.ledger.rounds) == 2
        if _record(message)[Key.STAGE] == "deal" and is_ahead:
            record[Key.PAYLOAD] = b""
        return reply

    strategy = _strategy(minimum=4)
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
    strategy = _strategy(minimum=4)
    _start(_grid(_Sent()), strategy, 2)
    assert spoilt == [1]
    outcomes = list(strategy.ledger.rounds.values())
    assert outcomes[0] == "interrupted"
    assert outcomes[1] == "failed: TamperedShare"
    assert outcomes.count("released") == 2
    assert len(strategy.excluded) == 1


def test_a_budget_is_not_dealt_beyond(tmp_path: Any) -> None:
    ledger = RunLedger(tmp_path / "ledger.jsonl", {"run": "x"})
    sent = _Sent()
    strategy = _strategy(ledger=ledger, most_rounds=2)
    _start(_grid(sent), strategy, 4)
    assert strategy.ledger.rounds == {1: "released", 2: "released"}
    assert max(sum("+deal" in stage for stage in one) for one in sent.stages.values()) == 1
    assert "exceed" in strategy.stopped


def test_clients_with_ledgers_note_both_answers_before_either_leaves(tmp_path: Any) -> None:
    """A node that loses the reply to a joint message, and its state, has both on its ledger: it repeats neither."""
    configs = {}
    for place in range(CLIENTS):
        (tmp_path / f"key-{place}").write_bytes(secret(place))
        configs[place] = {"identity": str(tmp_path / f"key-{place}"), "records": str(tmp_path)}
    known = roster(CLIENTS)
    apps = [_app(float(place), Policy(roster=known)) for place in range(CLIENTS)]
    grid = LocalGrid(apps, configs=configs)
    strategy = SecureStrategy(encoding=EXACT, per_round=CLIENTS, roster=known)
    _start(grid, strategy, 2)
    assert strategy.ledger.rounds == {1: "released", 2: "released"}
    text = next(iter(tmp_path.glob(f"sums-{card(0).identity.hex()[:16]}*"))).read_text()
    noted = [line.split('"stage":"')[1].split('"')[0] for line in text.splitlines()[1:]]
    stages = [stage for stage in noted if stage != "sum"]
    assert stages in (["deal", "unite", "deal", "unite"], ["deal", "deal"])
    assert set(EXCHANGES) >= set(noted)
    assert messages.STAGES[0] == "deal"
