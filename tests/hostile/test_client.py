"""Dishonest clients against the real strategy: who did it is named with proof, and the others go on."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from federated.grids import LocalGrid
from federated.rounds import card, roster, secret
from mezzotint.cli.application import run
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.federated.client_mod import SecureUpdates
from mezzotint.federated.encoding import FixedPointEncoding
from mezzotint.federated.flower_records import RECORD
from mezzotint.federated.policy import Policy
from mezzotint.federated.run_ledger import RunLedger
from mezzotint.federated.secagg import (
    Blame,
    Challenge,
    Client,
    client as client_module,
    roster as roster_module,
)
from mezzotint.federated.secagg.masks import KEY_BYTES, sign
from mezzotint.federated.secure_strategy import SecureStrategy

CLIENTS = 12
CROOKED = 5
EXACT = FixedPointEncoding(clip=8.0, grid_bits=13)

HONEST_SPLIT = client_module.split


def _of_nothing(secret_bytes: bytes, holders: int, threshold: int) -> list[bytes]:
    """Shares that are on no polynomial of the right degree."""
    return [bytes([place + 1]) * 16 + b"\0" for place in range(holders)]


def _of_another(secret_bytes: bytes, holders: int, threshold: int) -> list[bytes]:
    """Good shares of another secret."""
    return HONEST_SPLIT(bytes(16), holders, threshold)


def _unopenable(key: bytes, text: bytes, *, about: bytes) -> bytes:
    """A sealed message that nobody can open."""
    return bytes(len(text) + 16)


def _app(add: float, patch: tuple[str, object] | None = None, *, listed: bool = True) -> ClientApp:
    """A client; `patch` replaces a function of the protocol's client while it deals."""
    honest = SecureUpdates(Policy(roster=roster(CLIENTS) if listed else None))

    def mod(message: Message, context, call_next):
        if patch is None or str(message.content.config_records[RECORD]["stage"]) != "deal":
            return honest(message, context, call_next)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(client_module, patch[0], patch[1])
            return honest(message, context, call_next)

    app = ClientApp(mods=[mod])
    app.train()(
        lambda message, context: Message(
            RecordDict({"arrays": ArrayRecord({"a": Array(np.full(4, add))})}), reply_to=message
        )
    )
    return app


def _grid(tmp_path, patch: tuple[str, object] | None, **others) -> LocalGrid:
    for place in range(CLIENTS):
        (tmp_path / f"key-{place}").write_bytes(secret(place))
    apps = [_app(place / 2, patch if place == CROOKED else None) for place in range(CLIENTS)]
    configs = {
        place: {"identity": str(tmp_path / f"key-{place}"), "records": str(tmp_path)}
        for place in range(CLIENTS)
    }
    return LocalGrid(apps, configs=configs, **others)


def _strategy(tmp_path, **others) -> SecureStrategy:
    ledger = RunLedger(tmp_path / "ledger.jsonl", {"run": "x"})
    options = {
        "clients_per_round": CLIENTS,
        "roster": roster(CLIENTS),
        "returns": "update",
        "ledger": ledger,
    } | others
    return SecureStrategy(encoding=EXACT, **options)


def _start(grid: LocalGrid, strategy: SecureStrategy, rounds: int = 1) -> ArrayRecord:
    arrays = ArrayRecord({"a": Array(np.zeros(4))})
    return strategy.start(grid=grid, initial_arrays=arrays, num_rounds=rounds).arrays


MEAN = np.mean([place / 2 for place in range(CLIENTS) if place != CROOKED])


@pytest.mark.parametrize("how", [_of_nothing, _of_another])
def test_who_deals_shares_of_nothing_is_proved_guilty_and_the_round_repeated_without_it(
    tmp_path, how, capsys
):
    strategy = _strategy(tmp_path)
    found = _start(_grid(tmp_path, ("split", how)), strategy)
    np.testing.assert_allclose(found["a"].numpy(), MEAN, atol=2 * EXACT.step)
    guilty = card(CROOKED).identity
    assert [blame.identity for blame in strategy.blames] == [guilty]
    assert strategy.excluded == {guilty}
    assert [one.name for one in strategy.incidents if one.client] == ["TamperedShare"]
    # The spoilt round stays charged to all: together with the culprit's own seed its sum was open to the server.
    assert strategy.ledger.rounds == {1: "interrupted", 2: "released"}
    honest = {card(place).identity.hex(): 2 for place in range(CLIENTS) if place != CROOKED}
    assert strategy.ledger.charges == honest | {guilty.hex(): 1}
    # Anybody can check the proof, and a later run leaves the client out from the start.
    path = tmp_path / f"blame-{guilty.hex()}.json"
    assert run(["roster", "blame", str(path)]) == 0
    assert guilty.hex() in capsys.readouterr().out
    again = _strategy(tmp_path)
    found = _start(_grid(tmp_path, ("split", how)), again)
    np.testing.assert_allclose(found["a"].numpy(), MEAN, atol=2 * EXACT.step)
    assert again.incidents == []
    assert again.ledger.charges[guilty.hex()] == 1


def test_who_deals_what_nobody_can_open_is_left_out_without_a_proof(tmp_path):
    strategy = _strategy(tmp_path)
    found = _start(_grid(tmp_path, ("seal", _unopenable)), strategy)
    np.testing.assert_allclose(found["a"].numpy(), MEAN, atol=2 * EXACT.step)
    assert strategy.excluded == {card(CROOKED).identity}
    assert strategy.blames == []  # members' words alone prove nothing to others


def _lying(*kinds: bytes, members: int = CLIENTS):
    """Commitments to other shares than those that are sealed, for the first members of the committee."""
    honest = client_module.commitment

    def lie(share: bytes, *, plan: bytes, owner: int, holder: int, kind: bytes) -> bytes:
        found = honest(share, plan=plan, owner=owner, holder=holder, kind=kind)
        return bytes([found[0] ^ 1]) + found[1:] if kind in kinds and holder < members else found

    return lie


@pytest.mark.parametrize(("kind", "vanishes"), [(b"self", False), (b"key", True)])
def test_who_signs_other_shares_than_it_deals_is_left_out_and_no_member_accused(
    tmp_path, kind, vanishes
):
    def hand(message: Message, reply: Message) -> Message | None:
        stage = str(message.content.config_records[RECORD]["stage"])
        return (
            None
            if vanishes and stage == "sum" and message.metadata.dst_node_id == 10 + CROOKED
            else reply
        )

    strategy = _strategy(tmp_path)
    found = _start(_grid(tmp_path, ("commitment", _lying(kind)), hand=hand), strategy, rounds=2)
    np.testing.assert_allclose(found["a"].numpy(), 2 * MEAN, atol=4 * EXACT.step)
    guilty = card(CROOKED).identity
    assert strategy.excluded == {guilty}
    assert {one.client for one in strategy.incidents if one.client} == {guilty.hex()}
    # Who spoilt the first round had dealt in the second.
    outcomes = ["interrupted", "failed: TamperedShare", "released", "released"]
    assert list(strategy.ledger.rounds.values()) == outcomes
    honest = {card(place).identity.hex(): 3 for place in range(CLIENTS) if place != CROOKED}
    assert strategy.ledger.charges == honest | {guilty.hex(): 1}


def test_a_few_false_commitments_change_nothing_and_name_nobody(tmp_path):
    strategy = _strategy(tmp_path)
    members = strategy.plan(CLIENTS, 1, 1).members
    found = _start(_grid(tmp_path, ("commitment", _lying(b"self", members=1))), strategy)
    np.testing.assert_allclose(
        found["a"].numpy(), np.mean(np.arange(CLIENTS) / 2), atol=2 * EXACT.step
    )
    assert members > 1
    assert strategy.excluded == set()
    (told,) = strategy.incidents
    assert (told.client, told.name) == ("", "TamperedShare")
    assert "nobody can tell which" in told.what


def test_members_that_open_nothing_have_nobody_left_out(tmp_path, monkeypatch):
    """As many as could be corrupted, and one more: the sum is lost, and who dealt is not to blame."""
    strategy = _strategy(tmp_path)
    plan = strategy.plan(CLIENTS, 1, 1)
    idle = {card(place).identity for place in range(CLIENTS)}
    idle = set(sorted(idle)[: 2 * plan.quorum - plan.members])
    honest = client_module.Client._shares

    def nothing(self: Client, now: object, sealed: dict[int, tuple[bytes, bytes]]) -> bytes:
        return honest(self, now, {} if self.identity in idle else sealed)

    monkeypatch.setattr(client_module.Client, "_shares", nothing)
    _start(_grid(tmp_path, None), strategy)
    assert strategy.excluded == set()
    assert {one.client for one in strategy.incidents if one.client} <= {
        identity.hex() for identity in idle
    }


@pytest.mark.parametrize("early", [True, False])
def test_a_nameless_clients_key_is_nobody_elses_name(early):
    """Whichever of them says first who it is."""
    keys: dict[int, str] = {}
    grid = LocalGrid([_app(place / 2, listed=False) for place in range(CLIENTS)], names=False)
    thief, owner = (10, 10 + CROOKED) if early else (10 + CROOKED, 10)

    def hand(message: Message, reply: Message) -> Message:
        record = message.content.config_records[RECORD]
        if record["stage"] == "card":
            keys[message.metadata.dst_node_id] = str(reply.content.config_records[RECORD]["name"])
            if message.metadata.dst_node_id == thief:
                reply.content.config_records[RECORD]["name"] = keys.get(owner, "0" * 64)
        return reply

    grid.hand = hand
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=CLIENTS, returns="update")
    _start(grid, strategy)
    (told,) = strategy.incidents
    assert (told.client, told.name) == (str(thief), "SwappedKey")
    assert set(strategy.ledger.charges) == {key for node, key in keys.items() if node != thief}


def test_two_nodes_of_one_name_are_not_one_client(tmp_path):
    """Without a roster a name is its owner's word: whoever comes second with it is not taken in."""
    grid = LocalGrid([_app(place / 2, listed=False) for place in range(CLIENTS)])
    grid.contexts[10 + CROOKED].node_config["name"] = "3"
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=CLIENTS, returns="update")
    _start(grid, strategy)
    assert strategy.ledger.charges == {
        str(place): 1 for place in range(CLIENTS) if place != CROOKED
    }
    (told,) = strategy.incidents
    assert (told.client, told.name) == (str(10 + CROOKED), "DuplicateAnswer")


def test_a_culprit_that_vanishes_after_dealing_is_found_by_its_key(tmp_path):
    def hand(message: Message, reply: Message) -> Message | None:
        stage = str(message.content.config_records[RECORD]["stage"])
        return None if stage == "sum" and message.metadata.dst_node_id == 10 + CROOKED else reply

    strategy = _strategy(tmp_path)
    found = _start(_grid(tmp_path, ("split", _of_another), hand=hand), strategy)
    np.testing.assert_allclose(found["a"].numpy(), MEAN, atol=2 * EXACT.step)
    assert [blame.kind for blame in strategy.blames] == ["key"]
    strategy.blames[0].check()


def test_without_retries_the_round_is_lost_and_the_next_one_is_not(tmp_path):
    strategy = _strategy(tmp_path, retries=0)
    found = _start(_grid(tmp_path, ("split", _of_nothing)), strategy, rounds=2)
    np.testing.assert_allclose(found["a"].numpy(), MEAN, atol=2 * EXACT.step)
    assert strategy.ledger.rounds == {
        1: "interrupted",
        2: "failed: TamperedShare",
        3: "released",
    }


def test_nobody_is_blamed_by_a_file_that_proves_nothing(tmp_path, capsys):
    strategy = _strategy(tmp_path)
    _start(_grid(tmp_path, ("split", _of_another)), strategy)
    proof = strategy.blames[0]
    proof.check()
    some = dict(list(proof.shares.items())[:2])
    other = {holder: bytes(17) for holder in proof.shares}
    for changes, word in (
        ({"identity": card(0).identity}, "not signed"),
        ({"shares": some}, "needed"),
        ({"shares": other}, "not the one"),
        ({"shares": proof.shares | {400: bytes(17)}}, "committee"),
        ({"kind": "key"}, "not the one"),
        ({"dealing": proof.dealing[:-1]}, "not of this plan"),
        ({"plan": proof.plan[:-1] + b"x"}, "not of this plan"),
    ):
        with pytest.raises(ParameterError, match=word):
            dataclasses.replace(proof, **changes).check()
    path = tmp_path / "changed.json"
    dataclasses.replace(proof, shares=some).save(path)
    assert run(["roster", "blame", str(path)]) == 2
    assert "are needed" in capsys.readouterr().err
    plain = json.loads(path.read_text())
    for bad in ("{}", json.dumps(plain | {"kind": "both"}), json.dumps(plain | {"shares": []})):
        path.write_text(bad)
        with pytest.raises(FileFormatError):
            Blame.load(path)
    path.write_text(json.dumps({"format": "mezzotint-roster"}))
    with pytest.raises(FileFormatError, match="another format"):
        Blame.load(path)


def test_an_honest_dealing_cannot_be_blamed(tmp_path):
    """The shares of an honest client fit together, whoever writes the file."""
    seen = []
    strategy = _strategy(tmp_path)
    apply = strategy._apply
    strategy._apply = lambda now, total: (seen.append(now.server), apply(now, total))[1]  # type: ignore[method-assign]
    _start(_grid(tmp_path, None), strategy)
    (server,) = seen
    for place in server._dealt:
        shares = server._shares.of(place)
        blame = Blame(
            identity=server.cohort[place].identity,
            plan=server.plan.to_bytes(),
            dealing=server._dealt.message(place),
            kind="self",
            shares=shares,
        )
        with pytest.raises(ParameterError, match="fit together"):
            blame.check()


# Another's card ------------------------------------------------------------------------------------------------------

THIEF, VICTIM = 0, CROOKED


def _of_another_server(question: bytes) -> bytes:
    """What the victim once answered to somebody else."""
    return Client(identity=secret(VICTIM)).show(Challenge().question)


def _signed_by_the_thief(question: bytes) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            roster_module, "introduce", lambda identity: Client(identity=secret(VICTIM)).card()
        )
        return Client(identity=secret(THIEF)).show(question)


def _on_its_own_card(question: bytes) -> bytes:
    """An identity of the thief's own, with the victim's channel key, which it cannot use."""
    own, keys = (
        Client(identity=secret(THIEF))._identity,
        card(THIEF).identity + card(VICTIM).channel,
    )
    said = keys + sign(own, roster_module._CARD + keys)
    guessed = bytes(KEY_BYTES)
    return said + sign(own, roster_module._owner_statement(question, guessed, said, b""))


THEFTS = {
    "the card alone": lambda question: Client(identity=secret(VICTIM)).card(),
    "what its owner told another server": _of_another_server,
    "signed by the thief": _signed_by_the_thief,
    "on the thief's own card": _on_its_own_card,
}


@pytest.mark.parametrize("listed", [True, False], ids=["roster", "no roster"])
@pytest.mark.parametrize("how", THEFTS)
def test_who_shows_anothers_card_does_not_shut_out_its_owner(tmp_path, how, listed):
    """The thief answers first, in a round in which the owner is not connected, and again in the next."""

    def hand(message: Message, reply: Message) -> Message:
        asked, answer = (one.content.config_records[RECORD] for one in (message, reply))
        if message.metadata.dst_node_id == 10 + THIEF and asked["stage"] == "card":
            question = asked["payload"]
            assert isinstance(question, bytes)
            answer["payload"] = THEFTS[how](question)
        return reply

    grid = _grid(tmp_path, None, hand=hand)
    if not listed:
        for place, node in enumerate(grid.apps):
            grid.apps[node] = _app(place / 2, listed=False)
    strategy = _strategy(tmp_path, roster=roster(CLIENTS) if listed else None, stage_timeout=0.1)
    away = grid.apps.pop(10 + VICTIM)
    _start(grid, strategy)
    assert strategy.counted == CLIENTS - 2
    grid.apps[10 + VICTIM] = away
    found = _start(grid, strategy)
    assert strategy.counted == CLIENTS - 1
    others = [place / 2 for place in range(CLIENTS) if place != THIEF]
    np.testing.assert_allclose(found["a"].numpy(), np.mean(others), atol=2 * EXACT.step)
    assert {(one.client, one.name) for one in strategy.incidents} <= {
        (str(10 + THIEF), "SwappedKey"),
        (str(10 + THIEF), "MalformedMessage"),
    }
    charged = card(VICTIM).identity.hex() if listed else str(VICTIM)
    assert strategy.ledger.charges[charged] == 1


def test_a_question_of_small_order_is_not_answered(tmp_path):
    """All would agree on one secret, and what one node said could be shown by another."""
    grid = _grid(tmp_path, None)
    asked = ConfigRecord({"stage": "card", "payload": bytes(KEY_BYTES)})
    message = Message(RecordDict({RECORD: asked}), message_type="train", dst_node_id=10)
    (reply,) = grid.send_and_receive([message])
    assert reply.content.config_records[RECORD]["refused"] == "SwappedKey"
