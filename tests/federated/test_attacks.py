"""Attacks on the protocol, each refused with its name; the victim then reveals nothing more in the round."""

from __future__ import annotations

import numpy as np
import pytest

from federated.rounds import answer, plan, random_inputs, run_round
from mezzotint.federated.secagg import (
    STAGES,
    Client,
    DuplicateAnswer,
    InconsistentLists,
    MalformedMessage,
    OutOfRangeInteger,
    OverlappingLists,
    PlanRefused,
    ProtocolError,
    ReplayedRound,
    RoundPlan,
    Server,
    SwappedKey,
    TamperedShare,
    TooFewClients,
    Trust,
    UnknownSender,
    WrongStage,
    safe_threshold,
)
from mezzotint.federated.secagg import messages as wire
from mezzotint.federated.secagg.messages import header


def _until(stage: str, the_plan: RoundPlan, inputs, *, gone=None, trust=None):
    """Server, clients and the messages of `stage`, all earlier stages done."""
    server = Server(the_plan)
    clients = {index: Client(trust=trust) for index in range(the_plan.clients)}
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


def test_overlapping_lists(the_plan, inputs):
    _, clients, _ = _until("confirm", the_plan, inputs)
    with pytest.raises(OverlappingLists, match="survivors and drop-outs") as caught:
        clients[0].confirm(wire.lists(the_plan, [1, 2, 3, 4, 5], [3]))
    assert caught.value.culprits == (3,)
    _refuses_from_now_on(clients[0])


def test_a_neighbour_on_neither_list(the_plan, inputs):
    _, clients, _ = _until("confirm", the_plan, inputs)
    with pytest.raises(OverlappingLists, match="neither"):
        clients[0].confirm(wire.lists(the_plan, [1, 2, 3, 4], []))


def test_a_survivor_called_dropped_to_itself(the_plan, inputs):
    _, clients, _ = _until("confirm", the_plan, inputs)
    with pytest.raises(OverlappingLists):
        clients[0].confirm(wire.lists(the_plan, [1, 2, 3, 4], [0, 5]))


def test_a_client_listed_twice_and_strangers(the_plan, inputs):
    for survivors, dropped, error in (
        ([1, 2, 3, 4, 5, 5], [], DuplicateAnswer),
        ([1, 2, 3, 4, 5, 77], [], UnknownSender),
        ([1, 2, 3, 4, 5], [77], UnknownSender),
        ([1], [2, 3, 4, 5], TooFewClients),
        ([0, 1, 2, 3, 4, 5], [], DuplicateAnswer),
    ):
        _, clients, _ = _until("confirm", the_plan, inputs)
        with pytest.raises(error):
            clients[0].confirm(wire.lists(the_plan, survivors, dropped))


def test_swapped_public_keys(the_plan, inputs):
    """The server puts its own mask key in a neighbour's place: the neighbour did not sign it."""
    for field in (slice(2, 34), slice(34, 66), slice(66, 98)):
        _, clients, outbox = _until("share", the_plan, inputs)
        start = len(header("share", the_plan)) + 2
        message = bytearray(outbox[0])
        message[start:][field] = bytes(32)
        place = slice(start + field.start, start + field.stop)
        message[place] = Client().identity
        with pytest.raises(SwappedKey):
            clients[0].share(bytes(message))
        _refuses_from_now_on(clients[0])


def test_a_made_up_client_is_not_in_the_directory(the_plan, inputs):
    known = [Client() for _ in range(6)]
    trust = Trust(directory=frozenset(one.identity for one in known[:5]))
    server = Server(the_plan)
    people = [Client.load(one.save(), trust=trust) for one in known]
    for index, message in server.invitations().items():
        server.receive(index, people[index].advertise(message))
    with pytest.raises(SwappedKey, match="directory"):
        people[0].share(server.advance()[0])


def test_one_identity_as_two_clients(the_plan):
    twin = Client()
    server = Server(the_plan)
    messages = server.invitations()
    server.receive(0, twin.advertise(messages[0]))
    again = Client.load(twin.save())
    again._last.clear()
    with pytest.raises(SwappedKey, match="one key"):
        server.receive(1, again.advertise(messages[1]))


def test_replayed_round(the_plan, inputs):
    people = {index: Client() for index in range(6)}
    run_round(the_plan, inputs, clients=people)
    with pytest.raises(ReplayedRound):
        people[0].advertise(wire.invitation(the_plan, 0))
    # Also after a restart, and under another plan for the same round.
    reloaded = Client.load(people[1].save())
    other = plan(6, session=the_plan.session, coordinates=3)
    with pytest.raises(ReplayedRound):
        reloaded.advertise(wire.invitation(other, 1))


def test_messages_of_another_round_change_nothing(the_plan, inputs):
    later = plan(6, session=the_plan.session, round=2)
    _, _, old = _until("share", the_plan, inputs)
    server, clients, outbox = _until("share", later, inputs)
    with pytest.raises(ReplayedRound):
        clients[0].share(old[0])
    server.receive(0, clients[0].share(outbox[0]))  # the round goes on
    with pytest.raises(ReplayedRound):
        server.receive(1, header("share", the_plan) + bytes(18))


def test_a_truncated_share(the_plan, inputs):
    _, clients, outbox = _until("mask", the_plan, inputs)
    with pytest.raises(MalformedMessage):
        clients[0].mask(outbox[0][:-1], inputs[0])
    _refuses_from_now_on(clients[0])
    # Cut and filled up again: the authentication fails.
    _, clients, outbox = _until("mask", the_plan, inputs)
    with pytest.raises(TamperedShare):
        clients[0].mask(outbox[0][:-8] + bytes(8), inputs[0])
    _refuses_from_now_on(clients[0])


def test_a_share_meant_for_another(the_plan, inputs):
    _, clients, outbox = _until("mask", the_plan, inputs)
    message = outbox[1][:11] + (1).to_bytes(2, "little") + outbox[1][13:]  # the first entry now names client 1
    with pytest.raises(TamperedShare):
        clients[0].mask(message, inputs[0])


def test_a_wrong_share_is_traced_to_the_client_that_revealed_it(the_plan, inputs):
    server, clients, outbox = _until("unmask", the_plan, inputs)
    honest = clients[2].unmask(outbox[2])
    with pytest.raises(TamperedShare) as caught:
        server.receive(2, honest[:-10] + bytes(8) + honest[-2:])
    assert caught.value.culprits[0] == 2
    with pytest.raises(MalformedMessage):
        server.receive(2, honest[:-1])
    for index in (0, 1, 3, 4, 5):
        server.receive(index, clients[index].unmask(outbox[index]))
    assert server.result().survivors == tuple(range(6))  # without its shares


@pytest.mark.parametrize("bad", [-1, 16, 2**40])
def test_an_out_of_range_integer(the_plan, inputs, bad):
    _, clients, outbox = _until("mask", the_plan, inputs)
    values = inputs[0].copy()
    values[7] = bad
    with pytest.raises(OutOfRangeInteger, match="an integer lies outside"):
        clients[0].mask(outbox[0], values)
    _refuses_from_now_on(clients[0])


@pytest.mark.parametrize("shape", [(39,), (41,), (40, 1), ()])
def test_shapes_that_differ_and_floats(the_plan, inputs, shape):
    _, clients, outbox = _until("mask", the_plan, inputs)
    with pytest.raises(MalformedMessage):
        clients[0].mask(outbox[0], np.zeros(shape, dtype=int))
    with pytest.raises(MalformedMessage):
        clients[1].mask(outbox[1], np.full(40, np.nan))


def test_a_cheating_client_that_adds_too_much_is_noticed_in_the_sum():
    the_plan = plan(6, bits=12)
    inputs = random_inputs(the_plan, 1)

    def more(stage, index, message):
        if stage != "mask" or index:
            return message
        changed = bytearray(message)
        first = int.from_bytes(changed[9:11], "little")
        changed[9:11] = (first & 0xF000 | (first + 2000) & 0xFFF).to_bytes(2, "little")
        return bytes(changed)

    with pytest.raises(OutOfRangeInteger, match="coordinate 0 sums to"):
        run_round(the_plan, inputs, up=more)


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


def test_two_stories_about_one_client(the_plan, inputs):
    """The server tells client 0 that 5 dropped out, and the others that it survived."""
    server, clients, outbox = _until("confirm", the_plan, inputs)
    told = dict(outbox)
    told[0] = wire.lists(the_plan, [1, 2, 3, 4], [5])
    said = {index: clients[index].confirm(told[index]) for index in range(6)}
    with pytest.raises(InconsistentLists):
        server.receive(0, said[0])  # an honest server would notice
    prefix = len(header("confirm", the_plan))
    passed_on = (
        header("unmask", the_plan) + (4).to_bytes(2, "little") + b"".join(said[i][prefix:] for i in (1, 2, 3, 4))
    )
    with pytest.raises(InconsistentLists, match="another story"):
        clients[0].unmask(passed_on)
    _refuses_from_now_on(clients[0])


def test_lists_that_nobody_signed(the_plan, inputs):
    server, clients, outbox = _until("confirm", the_plan, inputs)
    for index, message in outbox.items():
        server.receive(index, clients[index].confirm(message))
    message = bytearray(server.advance()[0])
    message[-1] ^= 1
    with pytest.raises(InconsistentLists, match="did not sign"):
        clients[0].unmask(bytes(message))


def test_too_few_signatures(the_plan, inputs):
    server, clients, outbox = _until("confirm", the_plan, inputs)
    for index in (0, 1, 2):
        server.receive(index, clients[index].confirm(outbox[index]))
    with pytest.raises(TooFewClients):
        clients[0].unmask(server.advance()[0])


def test_a_client_that_deals_shares_that_do_not_fit_is_named(the_plan, inputs, monkeypatch):
    from mezzotint.federated.secagg import client as module

    honest = module.split
    server, clients, outbox = _until("share", the_plan, inputs)

    def crooked(secret, holders, threshold):
        return {holder: bytes([holder]) * 16 for holder in holders}

    for index, message in outbox.items():
        monkeypatch.setattr(module, "split", crooked if index == 4 else honest)
        server.receive(index, clients[index].share(message))
    for stage in STAGES[2:]:
        outbox = server.advance()
        for index, message in outbox.items():
            server.receive(index, answer(clients[index], stage, message, inputs[index]))
    with pytest.raises(TamperedShare) as caught:
        server.result()
    assert caught.value.culprits == (4,)


@pytest.mark.parametrize(
    "changes",
    [
        {"bits": 6},  # 6 x 15 = 90 needs 7
        {"clients": 1},
        {"clients": 0},
        {"threshold": 2},  # both secrets of a client could be had from 5 neighbours
        {"threshold": 6},
        {"neighbours": 3},
        {"neighbours": 6},
        {"minimum": 1},
        {"minimum": 7},
        {"coordinates": 0},
        {"round": 0},
        {"span": 0},
        {"span": 128},
        {"bits": 33},
        {"session": b"short"},
        {"binding": b"short"},
        {"overflow": "perhaps"},
    ],
)
def test_unsafe_plans_are_refused_before_the_run(changes):
    sound = {
        "session": bytes(16), "round": 1, "clients": 6, "neighbours": 5, "threshold": 3, "minimum": 2,
        "coordinates": 4, "span": 15, "bits": 7,
    }  # fmt: skip
    RoundPlan(**sound)
    with pytest.raises(PlanRefused):
        RoundPlan(**(sound | changes))


def test_a_client_wants_more_than_the_plan_offers(the_plan):
    message = wire.invitation(the_plan, 0)
    for trust in (Trust(corrupted=3), Trust(minimum=5)):
        with pytest.raises(PlanRefused, match="this client wants"):
            Client(trust=trust).advertise(message)
    Client(trust=Trust(corrupted=0, minimum=2)).advertise(message)
    assert safe_threshold(20, 4) == 13


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
            if stage != "mask":
                with pytest.raises(ProtocolError):
                    server.receive(index, bytes(reply))
