"""Attacks on the protocol, each refused with its name; the victim then reveals nothing more in the round."""

from __future__ import annotations

import hashlib
import math
import os
from dataclasses import replace

import numpy as np
import pytest

from federated.rounds import (
    LENIENT,
    answer,
    people,
    plain_sum,
    plan,
    random_inputs,
    roster,
    roster_of,
    run_round,
    secret,
    told,
)
from mezzotint.core.errors import ParameterError
from mezzotint.federated.secagg import (
    STAGES,
    Card,
    Client,
    DuplicateAnswer,
    InconsistentLists,
    MalformedMessage,
    OutOfRangeInteger,
    PlanRefused,
    ProtocolError,
    ReplayedRound,
    Roster,
    RoundPlan,
    Server,
    SwappedKey,
    TamperedShare,
    TooFewClients,
    Trust,
    UnknownSender,
    WrongStage,
    messages as wire,
    plan_sum,
)
from mezzotint.federated.secagg.masks import SMALL_IDENTITIES, sign, signed
from mezzotint.federated.secagg.messages import header
from mezzotint.federated.secagg.plan import forked
from tolerances import FEW


def _until(stage: str, the_plan: RoundPlan, inputs, *, gone=None, trust=None):
    """Server, clients and the messages of `stage`, all earlier stages done."""
    server = Server(the_plan, roster_of(the_plan))
    clients = people(the_plan, trust=trust)
    outbox = server.invitations()
    for step in STAGES[: STAGES.index(stage)]:
        for index, message in outbox.items():
            if index not in (gone or {}).get(step, set()):
                server.receive(index, answer(clients[index], step, message, inputs[index]))
        outbox = server.advance()
    return server, clients, outbox


@pytest.fixture
def the_plan() -> RoundPlan:
    return plan(6)


@pytest.fixture
def inputs(the_plan):
    return random_inputs(the_plan, 1)


def _refuses_from_now_on(client: Client, outbox_message: bytes = b"") -> None:
    for stage in STAGES[1:]:
        with pytest.raises(WrongStage):
            answer(client, stage, outbox_message, np.zeros(40, dtype=int))


# A server that picks its victims --------------------------------------------------------------------------------------


def _proposed(server: Server, survivors: set[int], *, dealt=None, said=None) -> bytes:
    """A proposal of other survivors than those who answered."""
    coins = server._dealt.coins()
    coins = coins if dealt is None else {index: coins.get(index, bytes(16)) for index in dealt}
    known = server._masked if said is None else said
    return wire.proposal(server.plan, coins, {index: known[index] for index in survivors})


def test_a_sum_of_fewer_than_the_minimum_is_signed_by_nobody():
    the_plan = plan(6, minimum=5)
    server, clients, _ = _until("agree", the_plan, random_inputs(the_plan, 1))
    for client in clients.values():
        with pytest.raises(TooFewClients, match="minimum"):
            client.agree(_proposed(server, {0, 1, 2}))
        _refuses_from_now_on(client)


def test_two_sets_of_survivors_never_both_find_a_quorum():
    """Half of the committee is shown one set, half another; five of six honest members make at most one quorum."""
    the_plan = plan(6, minimum=4)
    server, clients, _ = _until("agree", the_plan, random_inputs(the_plan, 1))
    sets = [{0, 1, 2, 3, 4}, {1, 2, 3, 4, 5}]
    said = {index: wire.read_agreement(client.agree(_proposed(server, sets[index % 2])), the_plan)
            for index, client in clients.items()}  # fmt: skip
    sealed = server._dealt.sealed(0)
    for half in (0, 1):
        some = {index: signature for index, signature in said.items() if index % 2 == half}
        with pytest.raises(TooFewClients, match="quorum"):
            clients[half].open(wire.opening(the_plan, some, sealed))
    for client in clients.values():  # nobody signs a second set
        with pytest.raises(WrongStage):
            client.agree(_proposed(server, sets[0]))


def test_signatures_of_another_set_count_for_nothing(the_plan, inputs):
    server, clients, outbox = _until("agree", the_plan, inputs)
    said = {
        index: wire.read_agreement(clients[index].agree(outbox[index]), the_plan)
        for index in range(5)
    }
    fewer = {0, 1, 2, 3, 4}
    clients[5].agree(_proposed(server, fewer))
    sealed = server._dealt.sealed(5)
    with pytest.raises(SwappedKey, match="did not sign these survivors"):
        clients[5].open(wire.opening(the_plan, said, sealed))
    _refuses_from_now_on(clients[5])


def test_a_quorum_of_strangers_or_of_one_member_many_times_is_none():
    the_plan = plan(6, members=4, quorum=3)
    server, clients, outbox = _until("agree", the_plan, random_inputs(the_plan, 1))
    said = {
        index: wire.read_agreement(clients[index].agree(outbox[index]), the_plan)
        for index in range(4)
    }
    sealed = server._dealt.sealed(0)
    with pytest.raises(UnknownSender, match="not a member"):
        clients[0].open(wire.opening(the_plan, {0: said[0], 4: said[1], 5: said[2]}, sealed))
    head, one = (
        header("open", the_plan) + (3).to_bytes(2, "little"),
        (1).to_bytes(2, "little") + said[1],
    )
    with pytest.raises(DuplicateAnswer):
        clients[1].open(head + 3 * one + sealed)
    with pytest.raises(TooFewClients, match="quorum"):
        clients[2].open(wire.opening(the_plan, {1: said[1], 2: said[2]}, sealed))


def test_a_client_that_was_told_of_fewer_dealers_is_in_no_sum():
    """The attack on graphs that are checked among dealers alone: some picks of a victim are hidden from it.

    Its masks for them are missing; the committee, which asks every survivor for its word on who dealt, does not sign.
    """
    the_plan = plan(8, picks=5, least=2)
    inputs = random_inputs(the_plan, 1)
    server, clients, outbox = _until("sum", the_plan, inputs)
    victim, hidden = 7, set(sorted(server._dealt.picks[7].tolist())[:3])
    fewer = set(range(8)) - hidden
    shown = [
        server._dealt[index] for index in sorted(set(server._dealt.picks[victim].tolist()) - hidden)
    ]
    signature, packed = wire.read_masked(
        clients[victim].sum(told(the_plan, fewer, shown), inputs[victim]), the_plan
    )
    assert packed
    for index in range(7):
        server.receive(index, clients[index].sum(outbox[index], inputs[index]))
    with pytest.raises(SwappedKey, match="among whom"):  # an honest server would notice
        server.receive(victim, wire.masked(the_plan, signature, packed))
    server._masked[victim] = signature
    for member in range(7):
        with pytest.raises(
            InconsistentLists, match="client 7 did not mask among these dealers"
        ) as caught:
            clients[member].agree(_proposed(server, set(range(8))))
        assert caught.value.culprits == (victim,)


def test_a_client_from_whom_it_was_hidden_that_others_picked_it_is_in_no_sum():
    """A mask that one of two has: whoever picked nobody of some group, and is hidden from it, would be summed alone."""
    the_plan = plan(8, picks=3, least=1)
    inputs = random_inputs(the_plan, 1)
    server, clients, outbox = _until("sum", the_plan, inputs)
    dealt = server._dealt
    pairs = [(one, other) for one in range(8) for other in sorted(dealt.picks[one].tolist())]
    admirer, victim = next((one, other) for one, other in pairs if (other, one) not in pairs)
    shown = [dealt[other] for other in server._masking[victim].tolist() if other != admirer]
    given = clients[victim].sum(told(the_plan, set(range(8)), shown), inputs[victim])
    for index in set(range(8)) - {victim}:
        server.receive(index, clients[index].sum(outbox[index], inputs[index]))
    with pytest.raises(SwappedKey, match="among whom"):  # an honest server would notice
        server.receive(victim, given)
    server._masked[victim], _ = wire.read_masked(given, the_plan)
    for member in range(8):
        with pytest.raises(InconsistentLists, match=f"client {victim} did not mask") as caught:
            clients[member].agree(_proposed(server, set(range(8))))
        assert caught.value.culprits == (victim,)


# All at once ----------------------------------------------------------------------------------------------------------


def _united(server: Server, member: int, *, said=None) -> bytes:
    """What a member is shown when all who dealt are in the sum."""
    coins = server._dealt.coins()
    return wire.union(server.plan, coins, said or server._masked, server._dealt.sealed(member))


def _summed(the_plan: RoundPlan, inputs):
    """Server and clients, all masked inputs in."""
    server, clients, outbox = _until("sum", the_plan, inputs)
    for index, message in outbox.items():
        server.receive(index, clients[index].sum(message, inputs[index]))
    return server, clients


def test_where_all_who_dealt_are_in_the_sum_the_committee_opens_at_once():
    """One never dealt, one member vanishes in the end; the sum is that of the two stages, and nobody answers again."""
    the_plan = plan(8, members=6, quorum=4)
    inputs = random_inputs(the_plan, 1)
    server, clients, outbox = _until("sum", the_plan, inputs, gone={"deal": {7}})
    for index, message in outbox.items():
        assert not server.everybody
        server.receive(index, clients[index].sum(message, inputs[index]))
    outbox = server.unite()
    assert set(outbox) == set(range(6))
    for index, message in outbox.items():
        if index != 2:
            server.receive(index, clients[index].unite(message))
            _refuses_from_now_on(clients[index], message)
    total = server.result()
    assert total.survivors == tuple(range(7))
    np.testing.assert_array_equal(total.values, plain_sum(inputs, total.survivors))


def test_nobody_opens_at_once_for_a_sum_without_somebody_who_dealt(the_plan, inputs):
    server, clients, outbox = _until("sum", the_plan, inputs)
    for index in range(5):
        server.receive(index, clients[index].sum(outbox[index], inputs[index]))
    with pytest.raises(WrongStage, match="all who dealt"):
        server.unite()
    for member, forged in enumerate((bytes(64), server._masked[1], server._masked[0])):
        with pytest.raises(InconsistentLists, match="client 5 did not mask") as caught:
            clients[member].unite(_united(server, member, said=dict(server._masked) | {5: forged}))
        assert caught.value.culprits == (5,)
        _refuses_from_now_on(clients[member])
    short = _united(server, 3, said=dict(server._masked) | {5: bytes(64)})[: -wire.SEALED_BYTES]
    with pytest.raises(MalformedMessage):
        clients[3].unite(short)


def test_nobody_opens_at_once_before_the_sum_or_after_signing(the_plan, inputs):
    _, clients, _ = _until("sum", the_plan, inputs)
    with pytest.raises(WrongStage):
        clients[0].unite(wire.union(the_plan, {}, {}, b""))
    server, clients = _summed(the_plan, inputs)
    said = dict(server._masked)
    proposals = server.advance()
    for index, client in clients.items():
        client.agree(proposals[index])
        with pytest.raises(WrongStage):
            client.unite(_united(server, index, said=said))


def test_members_who_open_for_all_and_members_who_open_for_fewer_open_one_sum():
    """Some are told that all six are in the sum, the others that one of them is missing; a member helps the server.

    However the honest five are divided, of the missing one no quorum of shares of both secrets comes together.
    """
    the_plan = plan(6, minimum=4, members=6, quorum=4)
    inputs, missing, helper = random_inputs(the_plan, 1), 5, 4
    for early in range(6):
        server, clients = _summed(the_plan, inputs)
        coins = server._dealt.coins()
        fewer = {
            index: signature for index, signature in server._masked.items() if index != missing
        }
        honest = [index for index in range(6) if index != helper]
        seeds, keys, said = {helper}, {helper}, {}
        for member in honest[:early]:
            wire.read_shares(
                clients[member].unite(_united(server, member)), the_plan, server._dealt
            )
            seeds.add(member)
        for member in [*honest[early:], helper]:
            answered = clients[member].agree(wire.proposal(the_plan, coins, fewer))
            said[member] = wire.read_agreement(answered, the_plan)
        for member in honest[early:]:
            opening = wire.opening(the_plan, said, server._dealt.sealed(member))
            if len(said) < the_plan.quorum:
                with pytest.raises(TooFewClients, match="quorum"):
                    clients[member].open(opening)
                continue
            clients[member].open(opening)
            keys.add(member)
        assert len(seeds) < the_plan.quorum or len(keys) < the_plan.quorum
        assert (
            early not in (0, 5) or max(len(seeds), len(keys)) >= the_plan.quorum
        )  # undivided they do open


def test_a_process_forgets_no_session(monkeypatch):
    """Of a round that is run twice both secrets of a client can be opened."""
    monkeypatch.setattr("mezzotint.federated.secagg.client._SESSIONS", 3)
    first, client = plan(6), people(plan(6))[0]
    others = [replace(first, session=os.urandom(len(first.session))) for _ in range(3)]
    for one in (first, *others[:2]):
        client.deal(wire.invitation(one, 0, roster_of(one).to_bytes()))
    for one in (others[2], first):
        with pytest.raises(ReplayedRound):
            client.deal(wire.invitation(one, 0, roster_of(one).to_bytes()))


def test_a_pick_left_out_and_a_partner_that_nobody_picked():
    the_plan = plan(8, picks=3, least=1)
    inputs = random_inputs(the_plan, 1)
    server, clients, _ = _until("sum", the_plan, inputs)
    everybody = set(range(8))
    picks = {index: set(server._dealt.picks[index].tolist()) for index in server._dealt}
    deals = dict(server._dealt)
    left_out = sorted(picks[0])[1:]
    with pytest.raises(UnknownSender, match="picked and dealt"):
        clients[0].sum(told(the_plan, everybody, [deals[index] for index in left_out]), inputs[0])
    victim, stranger = next(
        (one, other) for one in range(1, 8) for other in range(8)
        if other != one and other not in picks[one] and one not in picks[other]
    )  # fmt: skip
    shown = [deals[index] for index in sorted(picks[victim] | {stranger})]
    with pytest.raises(UnknownSender, match="did not pick"):
        clients[victim].sum(told(the_plan, everybody, shown), inputs[victim])


def test_a_survivor_without_enough_of_its_picks_is_not_signed():
    the_plan = plan(8, picks=3, least=3)
    server, clients, _ = _until("agree", the_plan, random_inputs(the_plan, 1))
    alone = set(range(8)) - {min(server._dealt.picks[0].tolist())}
    with pytest.raises(TooFewClients, match="too few of its picks"):
        clients[0].agree(_proposed(server, alone))


def test_who_picked_too_few_of_those_that_dealt_is_left_out_and_ends_no_round(monkeypatch):
    """Client 0 looks for coins by which it picks those who are known to be away; the others pick enough of the rest."""
    the_plan, there = plan(12, picks=6, least=3, minimum=5, members=5), set(range(1, 7))
    dealing = Client._dealing

    def chosen(self, now):
        def fits(coins: bytes) -> bool:
            known = len(wire.picked(coins, the_plan, now.index) & there)
            return known < the_plan.least if now.index == 0 else known >= the_plan.least

        coins = next(filter(fits, (bytes([place]) * 16 for place in range(256))))
        now.coins = coins
        return dealing(self, now)

    monkeypatch.setattr(Client, "_dealing", chosen)
    inputs = random_inputs(the_plan, 1)
    seen: dict[tuple[str, int], bytes] = {}
    found = run_round(the_plan, inputs, gone={"deal": set(range(7, 12))}, seen=seen)
    assert set(found.survivors) == there
    np.testing.assert_array_equal(found.values, plain_sum(inputs, found.survivors))
    assert ("sum", 0) not in seen


def test_dealers_that_fall_below_the_minimum_get_no_input():
    the_plan = plan(6, minimum=5)
    inputs = random_inputs(the_plan, 1)
    server, clients, _ = _until("sum", the_plan, inputs)
    few = {0, 1, 2, 3}
    deals = [one for index, one in server._dealt.items() if index in few - {0}]
    with pytest.raises(TooFewClients, match="minimum"):
        clients[0].sum(told(the_plan, few, deals), inputs[0])


def test_survivors_who_did_not_deal_or_did_not_answer(the_plan, inputs):
    server, clients, _ = _until("agree", the_plan, inputs, gone={"deal": {5}})
    said = dict(server._masked)
    with pytest.raises(InconsistentLists):
        clients[0].agree(_proposed(server, set(range(6)), said=said | {5: said[1]}))
    with pytest.raises(InconsistentLists):
        clients[1].agree(
            _proposed(server, set(range(6)), dealt=set(range(6)), said=said | {5: said[1]})
        )
    server._masked.pop(4)
    with pytest.raises(InconsistentLists, match="client 4"):
        clients[2].agree(_proposed(server, set(range(5)), said=said | {4: said[3]}))


# Rosters --------------------------------------------------------------------------------------------------------------


def test_invented_clients_are_in_no_roster():
    """A server that ships a roster of its own to a client that holds one."""
    crowd = plan(6)
    own = roster(4)
    for client in people(crowd, trust=replace(LENIENT, roster=own)).values():
        with pytest.raises(PlanRefused, match="roster"):
            client.deal(wire.invitation(crowd, 0, roster_of(crowd).to_bytes()))


def test_a_roster_that_the_plan_is_not_about(the_plan):
    client = people(the_plan)[0]
    with pytest.raises(PlanRefused, match="roster"):
        client.deal(wire.invitation(the_plan, 0, roster(7).to_bytes()))
    with pytest.raises(MalformedMessage):
        client.deal(wire.invitation(the_plan, 0, roster(6).to_bytes()[:-1]))
    with pytest.raises(PlanRefused, match="roster"):
        Server(the_plan, roster(7))


def test_the_server_chooses_neither_clients_nor_committee():
    """Another place than the one drawn, and a round for which somebody else is drawn."""
    the_plan = plan(5, population=20)
    everybody = roster(20)
    drawn = everybody.cohort(1, 5)
    inside = people(the_plan)
    with pytest.raises(SwappedKey, match="another client is drawn"):
        inside[0].deal(wire.invitation(the_plan, 3, everybody.to_bytes()))
    outside = next(
        client
        for client in (Client(identity=secret(number), trust=LENIENT) for number in range(20))
        if client.identity not in {card.identity for card in drawn}
    )
    for place in range(5):
        with pytest.raises(SwappedKey, match="another client is drawn"):
            outside.deal(wire.invitation(the_plan, place, everybody.to_bytes()))


def test_a_roster_smaller_than_the_round_and_a_plan_that_protects_less():
    the_plan = plan(6)
    message = wire.invitation(the_plan, 0, roster(6).to_bytes())
    first = people(the_plan)[0]
    for trust, word in (
        (Trust(minimum=5), "minimum"),
        (Trust(corrupted=0.5), "too few are left"),
        (Trust(corrupted=0.2), "minimum"),
    ):
        client = Client.load(first.save(), trust=trust)
        with pytest.raises(PlanRefused, match=word):
            client.deal(message)
    for changes, word in (
        ({"minimum": 4, "quorum": 4}, "quorum"),
        ({"minimum": 4, "quorum": 5, "picks": 2}, "picks"),
        ({"minimum": 4, "quorum": 5, "round": 9}, "round"),
    ):
        weak = plan(6, **changes)
        place = 0
        client = Client.load(people(weak)[place].save(), trust=Trust(rounds=8))
        with pytest.raises(PlanRefused, match=word):
            client.deal(wire.invitation(weak, place, roster(6).to_bytes()))
    sound = plan(6, minimum=4, quorum=5, least=4)
    Client.load(people(sound)[0].save(), trust=Trust(minimum=4)).deal(
        wire.invitation(sound, 0, roster(6).to_bytes())
    )


# Keys -----------------------------------------------------------------------------------------------------------------


def test_swapped_public_keys(the_plan, inputs):
    """The server puts a key, coins or contents of its own in a partner's place: the partner did not sign them."""
    for field in (slice(2, 34), slice(34, 66), slice(66, 82), slice(82, 114)):
        _, clients, outbox = _until("sum", the_plan, inputs)
        start = len(header("sum", the_plan)) + len(the_plan.task) + 1
        message = bytearray(outbox[0])
        place = slice(start + field.start, start + field.stop)
        message[place] = Client().identity[: field.stop - field.start]
        with pytest.raises(SwappedKey):
            clients[0].sum(bytes(message), inputs[0])
        _refuses_from_now_on(clients[0])


def test_a_client_that_speaks_for_another(the_plan):
    server = Server(the_plan, roster_of(the_plan))
    clients, invitations = people(the_plan), server.invitations()
    first = clients[0].deal(invitations[0])
    with pytest.raises(UnknownSender, match="speaks for"):
        server.receive(1, first)
    stranger = bytearray(first)
    start = len(header("deal", the_plan))
    stranger[start : start + 2] = (1).to_bytes(2, "little")
    with pytest.raises(SwappedKey):
        server.receive(1, bytes(stranger))


@pytest.mark.parametrize("field", ["mask", "channel"])
def test_a_key_of_small_order_is_refused_on_arrival(the_plan, field):
    server = Server(the_plan, roster_of(the_plan))
    client = people(the_plan)[2]
    deal, _ = wire.read_dealing(client.deal(server.invitations()[2]), the_plan)
    crooked = replace(deal, **{field: bytes(32)}, contents=hashlib.sha256(b"").digest())
    crooked = replace(crooked, signature=sign(client._identity, crooked.statement(the_plan)))
    with pytest.raises(ProtocolError):
        server.receive(2, wire.dealing(the_plan, crooked, b""))


# Replays --------------------------------------------------------------------------------------------------------------


def test_replayed_round(the_plan, inputs):
    everybody = people(the_plan)
    run_round(the_plan, inputs, clients=everybody)
    shipped = roster_of(the_plan).to_bytes()
    with pytest.raises(ReplayedRound):
        everybody[0].deal(wire.invitation(the_plan, 0, shipped))
    # Also after a restart, and under another plan for the same round.
    reloaded = Client.load(everybody[1].save(), trust=LENIENT)
    other = plan(6, session=the_plan.session, coordinates=3)
    with pytest.raises(ReplayedRound):
        reloaded.deal(wire.invitation(other, 1, shipped))


def test_messages_of_another_round_change_nothing(the_plan, inputs):
    later = plan(6, session=the_plan.session, round=2)
    _, _, old = _until("sum", the_plan, inputs)
    server, clients, outbox = _until("sum", later, inputs)
    with pytest.raises(ReplayedRound):
        clients[0].sum(old[0], inputs[0])
    server.receive(0, clients[0].sum(outbox[0], inputs[0]))  # the round goes on
    with pytest.raises(ReplayedRound):
        server.receive(1, header("sum", the_plan) + bytes(18))


# Shares ---------------------------------------------------------------------------------------------------------------


def test_shares_that_were_cut_or_are_meant_for_another_are_left_out(the_plan, inputs):
    """The member answers for the others; the server, which did it, gets no share of that client."""
    server, clients, outbox = _until("open", the_plan, inputs)
    with pytest.raises(MalformedMessage):
        clients[0].open(outbox[0][:-1])
    filled = outbox[1][:-8] + bytes(8)
    assert set(wire.read_shares(clients[1].open(filled), the_plan, server._dealt)) == {
        0,
        1,
        2,
        3,
        4,
    }
    # Another member's portions throughout: none of them opens.
    assert wire.read_shares(clients[2].open(outbox[3]), the_plan, server._dealt) == {}


def test_a_wrong_share_is_left_out_and_neither_side_blamed(the_plan, inputs):
    """A member that opens another share, or a dealer that signed another one: the server cannot tell."""
    server, clients, outbox = _until("open", the_plan, inputs)
    honest = clients[2].open(outbox[2])
    server.receive(2, honest[:-10] + bytes(10))
    assert server.disputed == {5: [2]}
    for index in (0, 1, 3, 4, 5):
        server.receive(index, clients[index].open(outbox[index]))
    assert server.result().survivors == tuple(range(6))
    assert server.blames == []


@pytest.mark.parametrize("good", [0, 1, 2])
def test_a_member_without_good_shares_of_half_the_dealers_is_named(the_plan, inputs, good):
    server, clients, outbox = _until("open", the_plan, inputs)
    honest = clients[2].open(outbox[2])
    dealt = wire.read_shares(honest, the_plan, server._dealt)
    spoilt = {owner: share if owner < good else bytes(len(share)) for owner, share in dealt.items()}
    for answered in (spoilt, {owner: share for owner, share in dealt.items() if owner < good}):
        with pytest.raises(TamperedShare) as caught:
            server.receive(2, wire.shares(the_plan, answered))
        assert caught.value.culprits == (2,)
    assert server.disputed == {}
    with pytest.raises(MalformedMessage):
        server.receive(2, honest[:-1])
    for index in (0, 1, 3, 4, 5):
        server.receive(index, clients[index].open(outbox[index]))
    assert server.result().survivors == tuple(range(6))  # without its shares


def _dealt_by(crooked: int, how, the_plan, inputs, monkeypatch) -> Server:
    """A round in which one client deals shares of something else than its secrets."""
    from mezzotint.federated.secagg import client as module

    honest = module.split
    server, clients, outbox = _until("deal", the_plan, inputs)
    for stage in STAGES:
        for index, message in outbox.items():
            monkeypatch.setattr(
                module, "split", how if (stage, index) == ("deal", crooked) else honest
            )
            server.receive(index, answer(clients[index], stage, message, inputs[index]))
        outbox = server.advance() if stage != "open" else {}
    return server


def test_a_client_that_deals_shares_that_do_not_fit_is_named(the_plan, inputs, monkeypatch):
    server = _dealt_by(
        4, lambda secret, holders, threshold: [bytes([i + 1]) * 16 + b"\0" for i in range(holders)],
        the_plan, inputs, monkeypatch,
    )  # fmt: skip
    with pytest.raises(TamperedShare) as caught:
        server.result()
    assert caught.value.culprits == (4,)


def test_a_proved_culprit_is_named_although_another_secret_is_missing(
    the_plan, inputs, monkeypatch
):
    """It would be drawn again otherwise, together with an accomplice who has that secret lost."""
    server = _dealt_by(
        4, lambda secret, holders, threshold: [bytes([i + 1]) * 16 + b"\0" for i in range(holders)],
        the_plan, inputs, monkeypatch,
    )  # fmt: skip
    restored = server._secret

    def missing(owner: int) -> bytes:
        if owner == 1:
            raise TooFewClients("open", "its shares did not come")
        return restored(owner)

    monkeypatch.setattr(server, "_secret", missing)
    with pytest.raises(TamperedShare) as caught:
        server.result()
    assert caught.value.culprits == (4,)
    monkeypatch.setattr(server, "_secret", lambda owner: missing(1))
    with pytest.raises(TooFewClients):
        server.result()


# Inputs ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [-1, 16, 2**40])
def test_an_out_of_range_integer(the_plan, inputs, bad):
    _, clients, outbox = _until("sum", the_plan, inputs)
    values = inputs[0].copy()
    values[7] = bad
    with pytest.raises(OutOfRangeInteger, match="an integer lies outside"):
        clients[0].sum(outbox[0], values)
    _refuses_from_now_on(clients[0])


@pytest.mark.parametrize("shape", [(39,), (41,), (40, 1), ()])
def test_shapes_that_differ_and_floats(the_plan, inputs, shape):
    _, clients, outbox = _until("sum", the_plan, inputs)
    with pytest.raises(MalformedMessage):
        clients[0].sum(outbox[0], np.zeros(shape, dtype=int))
    with pytest.raises(MalformedMessage):
        clients[1].sum(outbox[1], np.full(40, np.nan))


def test_a_cheating_client_that_adds_too_much_is_noticed_in_the_sum():
    the_plan = plan(6, bits=12)
    inputs = random_inputs(the_plan, 1)

    def more(stage, index, message):
        if stage != "sum" or index:
            return message
        changed = bytearray(message)
        first = int.from_bytes(changed[73:75], "little")
        changed[73:75] = (first & 0xF000 | (first + 2000) & 0xFFF).to_bytes(2, "little")
        return bytes(changed)

    with pytest.raises(
        OutOfRangeInteger, match=r"coordinate 0 sums to .* no evidence against anybody"
    ) as found:
        run_round(the_plan, inputs, up=more)
    assert found.value.culprits == ()


# Twice ----------------------------------------------------------------------------------------------------------------


def test_a_client_answering_twice(the_plan, inputs):
    for stage in STAGES:
        server, clients, outbox = _until(stage, the_plan, inputs)
        reply = answer(clients[3], stage, outbox[3], inputs[3])
        server.receive(3, reply)
        with pytest.raises(DuplicateAnswer):
            server.receive(3, reply)


def test_a_client_asked_twice(the_plan, inputs):
    """The server asks for a second masked input, or a second reveal, with other lists."""
    for stage in STAGES[1:]:
        _, clients, outbox = _until(stage, the_plan, inputs)
        answer(clients[3], stage, outbox[3], inputs[3])
        with pytest.raises(WrongStage):
            answer(clients[3], stage, outbox[3], inputs[3])


@pytest.mark.parametrize(
    "changes",
    [
        {"bits": 6},  # 6 x 15 = 90 needs 7
        {"clients": 1},
        {"clients": 0},
        {"quorum": 2},  # two sets of survivors could both be signed by honest members
        {"quorum": 6},
        {"members": 0},
        {"members": 7},
        {"picks": 0},
        {"picks": 6},
        {"least": 0},
        {"least": 6},
        {"minimum": 1},
        {"minimum": 7},
        {"coordinates": 0},
        {"round": 0},
        {"span": 0},
        {"span": 128},
        {"bits": 33},
        {"session": b"short"},
        {"binding": b"short"},
        {"task": b"short"},
        {"roster": b"short"},
        {"overflow": "perhaps"},
    ],
)
def test_unsafe_plans_are_refused_before_the_run(changes):
    sound = {
        "session": bytes(16), "round": 1, "clients": 6, "members": 5, "quorum": 3, "picks": 5,
        "least": 2, "minimum": 2,
        "coordinates": 4, "span": 15, "bits": 7,
    }  # fmt: skip
    RoundPlan(**sound)
    with pytest.raises(PlanRefused):
        RoundPlan(**(sound | changes))


def test_garbage_never_crashes_either_side(the_plan, inputs):
    rng = np.random.default_rng(5)
    for stage in STAGES:
        server, clients, outbox = _until(stage, the_plan, inputs)
        for index, message in outbox.items():
            noise = bytearray(message)
            for place in rng.integers(0, len(noise), 3):
                noise[place] ^= int(rng.integers(1, 256))
            if index % 3 == 0:
                noise = noise[: int(rng.integers(0, len(noise)))]
            if index % 3 == 1:
                noise += b"more"
            try:
                reply = answer(clients[index], stage, bytes(noise), inputs[index])
            except ProtocolError:
                continue
            reply = bytearray(reply)
            reply[int(rng.integers(0, len(reply)))] ^= 255
            # Masked words are uniform: changing one is another valid message. All else is signed or committed to.
            if stage != "sum":
                with pytest.raises(ProtocolError):
                    server.receive(index, bytes(reply))


@pytest.mark.parametrize(("share", "lost"), [(0.2, 0.2), (0.1, 0.3), (0.33, 0.1)])
@pytest.mark.parametrize("population", [4, 12, 40, 100, 200, 300])
def test_no_order_of_a_whole_roster_forks_its_committee(
    population: int, share: float, lost: float
) -> None:
    """Whoever drew the beacon: of any order, all corrupted members are fewer than what two quorums share."""
    trust = Trust(corrupted=share)
    corrupted = math.ceil(share * population)
    sizes = plan_sum(
        clients=population,
        corrupted=corrupted,
        dropped=min(math.ceil(lost * population), (population - corrupted) // 3),
        minimum=population // 2 + 1,
        security_bits=trust.dealing_bits,
        drawn_bits=trust.drawn_bits(population, population),
    )
    assert 2 * sizes.quorum - sizes.members > min(corrupted, sizes.members)


def test_a_committee_that_only_an_honest_beacon_protects_is_refused_in_a_round_of_all() -> None:
    """Of 300 members, with 60 corrupted: 154 members and a quorum of 107 fork with probability 2^-67, or if arranged."""
    trust = Trust(corrupted=0.2)
    shape = {"picks": 81, "least": 46, "minimum": 151, "coordinates": 1}
    arranged = plan(300, members=154, quorum=107, **shape)
    assert forked(clients=300, corrupted=60, members=154, quorum=107) < -60
    assert 2 * 107 - 154 <= 60
    with pytest.raises(PlanRefused, match="quorum"):
        trust.check(arranged, 300)
    trust.check(plan(300, members=157, quorum=109, **shape), 300)


def test_a_server_that_may_choose_among_draws_needs_better_odds():
    """Either order, any first part of it, any committee of that: the odds of one leave room for all of them."""
    trust = Trust(rounds=8)
    asked = 2.0**-40
    # A power with a negative exponent, but no tolerance: the odds of one draw, times all draws there are.
    assert 2.0 ** -trust.drawn_bits(100, 90) * 2 * 100 * 100 * 8 == pytest.approx(asked, rel=FEW)
    # Likewise odds: of one round, times the rounds.
    assert 2.0**-trust.bits * 8 == pytest.approx(asked, rel=FEW)
    known = roster(100)
    weak = plan_sum(clients=90, corrupted=27, dropped=5, minimum=60, security_bits=10.0)
    sizes = {
        "members": weak.members,
        "quorum": weak.quorum,
        "picks": 89,
        "least": 40,
        "minimum": 60,
    }
    the_plan = plan(90, population=100, **sizes)
    assert forked(clients=90, corrupted=20, members=weak.members, quorum=weak.quorum) <= -10
    with pytest.raises(PlanRefused, match="quorum"):
        Trust(corrupted=0.2).check(the_plan, len(known.members))


def test_identities_of_small_order_are_all_there_are_and_sign_nothing():
    """By arithmetic of our own on the curve -x^2 + y^2 = 1 + d x^2 y^2: eight times such a point is nothing."""
    prime = 2**255 - 19
    factor = -121665 * pow(121666, -1, prime) % prime
    root = pow(2, (prime - 1) // 4, prime)

    def add(one, two):
        (a, b), (c, d) = one, two
        product = factor * a * b * c * d % prime
        x = (a * d + b * c) * pow(1 + product, -1, prime) % prime
        return x, (b * d + a * c) * pow(1 - product, -1, prime) % prime

    def point(key):
        y, sign = int.from_bytes(key, "little") % 2**255 % prime, key[31] >> 7
        square = (y * y - 1) * pow(factor * y * y + 1, -1, prime) % prime
        x = pow(square, (prime + 3) // 8, prime)
        x = x if x * x % prime == square else x * root % prime
        assert x * x % prime == square
        return (prime - x if x % 2 != sign else x) % prime, y

    found = set()
    for key in SMALL_IDENTITIES:
        total = at = point(key)
        for _ in range(3):
            total = add(total, total)
        assert total == (0, 1)
        found.add(at)
    assert len(found) == 8
    # All encodings of their y: with y + p where it is below 2^255, with either sign bit.
    spelled = {y + more for _, y in found for more in (0, prime) if y + more < 2**255}
    every = {(y | sign << 255).to_bytes(32, "little") for y in spelled for sign in (0, 1)}
    assert every == SMALL_IDENTITIES
    neutral = (1).to_bytes(32, "little")
    # Anybody's signature under the neutral point, R = S B with S = 0, holds for every statement.
    assert not signed(neutral, neutral + bytes(32), b"anything")
    with pytest.raises(ParameterError, match="small order"):
        Roster.drawn(
            [
                Card(identity=bytes([place]) * 32, channel=bytes([place + 9]) * 32)
                for place in range(1, 4)
            ]
            + [Card(identity=neutral, channel=bytes([77]) * 32)]
        )
