"""The sum of the survivors, bit for bit, whoever drops out; and nothing in the messages that tells one input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from federated.rounds import (
    LENIENT,
    answer,
    people,
    plain_sum,
    plan,
    random_inputs,
    roster_of,
    run_round,
)
from mezzotint.federated.secagg import (
    STAGES,
    Client,
    SecureSum,
    Server,
    TooFewClients,
    Trust,
    bits_needed,
    messages,
    plan_sum,
)
from mezzotint.federated.secagg.client_values import compact, mask_partners


@settings(max_examples=40, deadline=None)
@given(
    clients=st.integers(2, 11),
    picks=st.integers(1, 10),
    members=st.integers(1, 11),
    span=st.sampled_from([1, 3, 15, 255, 4095]),
    coordinates=st.integers(1, 70),
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.05, 0.2]),
)
def test_any_dropouts_leave_the_survivors_sum_or_nothing(
    clients, picks, members, span, coordinates, seed, loss
):
    sizes = {"picks": min(picks, clients - 1), "members": min(members, clients)}
    the_plan = plan(clients, span=span, coordinates=coordinates, **sizes)
    rng = np.random.default_rng(seed)
    gone = {stage: set(np.flatnonzero(rng.random(clients) < loss).tolist()) for stage in STAGES}
    inputs = random_inputs(the_plan, seed)
    try:
        found = run_round(the_plan, inputs, gone=gone)
    except TooFewClients:
        assert any(gone.values())  # without drop-outs a round always succeeds
        return
    assert found.survivors == tuple(sorted(set(range(clients)) - gone["deal"] - gone["sum"]))
    np.testing.assert_array_equal(found.values, plain_sum(inputs, found.survivors))


@pytest.mark.parametrize("stage", STAGES)
def test_drop_outs_down_to_the_quorum_are_borne_and_one_more_is_not(stage):
    the_plan = plan(9, quorum=6)
    inputs = random_inputs(the_plan, 3)
    found = run_round(the_plan, inputs, gone={stage: {0, 4, 8}})
    assert found.survivors == ((1, 2, 3, 5, 6, 7) if stage in ("deal", "sum") else tuple(range(9)))
    np.testing.assert_array_equal(found.values, plain_sum(inputs, found.survivors))
    with pytest.raises(TooFewClients):
        run_round(the_plan, inputs, gone={stage: {0, 3, 4, 8}})


def test_one_drops_out_at_every_stage_of_a_sparse_round():
    the_plan = plan(30, picks=12, least=6, members=15, coordinates=1000)
    inputs = random_inputs(the_plan, 9)
    found = run_round(
        the_plan, inputs, gone={stage: {2 * place + 1} for place, stage in enumerate(STAGES)}
    )
    assert found.dropped == (1, 3)
    np.testing.assert_array_equal(found.values, plain_sum(inputs, found.survivors))


def test_a_cohort_is_a_part_of_the_roster_and_so_is_its_committee():
    the_plan = plan(7, population=20, members=5)
    inputs = random_inputs(the_plan, 9)
    found = run_round(the_plan, inputs, gone={"sum": {6}})
    np.testing.assert_array_equal(found.values, plain_sum(inputs, tuple(range(6))))


def test_an_ordinary_client_is_asked_twice_and_a_member_four_times():
    the_plan = plan(12, members=5)
    seen: dict[tuple[str, int], bytes] = {}
    run_round(the_plan, random_inputs(the_plan, 1), seen=seen)
    for client in range(12):
        assert sum(index == client for _, index in seen) == (4 if client < 5 else 2)


def test_fewer_than_the_minimum_learn_nothing():
    the_plan = plan(8, minimum=7)
    with pytest.raises(TooFewClients):
        run_round(the_plan, random_inputs(the_plan, 1), gone={"sum": {1, 2}})
    with pytest.raises(TooFewClients):
        run_round(the_plan, random_inputs(the_plan, 1), gone={"deal": set(range(8))})


def test_clients_may_be_saved_and_loaded_between_any_two_messages():
    the_plan = plan(6, picks=4, members=4)
    inputs = random_inputs(the_plan, 5)
    saved = {index: client.save() for index, client in people(the_plan).items()}
    server = Server(the_plan, roster_of(the_plan))
    outbox = server.invitations()
    for stage in STAGES:
        for index, message in outbox.items():
            client = Client.load(saved[index], trust=LENIENT)
            server.receive(index, answer(client, stage, message, inputs[index]))
            saved[index] = client.save()
        if (
            stage == "sum"
        ):  # the secrets went with the input; a member knows only what it needs to certify
            for index in range(4):
                assert b'"mask_seed": "", "self_seed": "",' in saved[index]
        outbox = server.advance() if stage != "open" else {}
    result = server.result()
    assert isinstance(result, SecureSum)
    np.testing.assert_array_equal(result.values, plain_sum(inputs, tuple(range(6))))
    assert all(b'"rounds": []' in state for state in saved.values())


def test_modular_sums_wrap_around():
    the_plan = plan(5, span=255, bits=8, overflow="modular")
    inputs = {index: np.full(40, 200) for index in range(5)}
    assert set(run_round(the_plan, inputs).values.tolist()) == {1000 % 256}


def _masked(the_plan, inputs):
    seen: dict[tuple[str, int], bytes] = {}
    run_round(the_plan, inputs, seen=seen)
    return {index: message[9 + 64 :] for (stage, index), message in seen.items() if stage == "sum"}


@pytest.mark.parametrize("bits", [5, 8, 11, 16, 19])
def test_masked_inputs_are_uniform(bits):
    """All-zero inputs: what the server sees is chi-square uniform. False alarm: below 1e-9 per test."""
    the_plan = plan(4, span=3, bits=bits, coordinates=40_000)
    uploads = _masked(the_plan, {index: np.zeros(40_000, dtype=int) for index in range(4)})
    for packed in uploads.values():
        planes = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), bitorder="little")[
            : 40_000 * bits
        ]
        words = planes.reshape(-1, bits)
        for counted in (words[:, :5], words[:, -5:]):  # lowest and highest bits of every coordinate
            cells = np.bincount(counted @ (1 << np.arange(5)), minlength=32)
            assert stats.chisquare(cells).pvalue > 1e-10


def test_masked_inputs_of_two_clients_are_uncorrelated_and_their_sum_is_not_masked_away():
    """Any two of three masked inputs together are uniform as well. False alarm: below 1e-9."""
    the_plan = plan(3, span=1, bits=4, coordinates=60_000)
    uploads = _masked(the_plan, {index: np.zeros(60_000, dtype=int) for index in range(3)})
    first, second = (
        np.unpackbits(np.frombuffer(uploads[i], dtype=np.uint8), bitorder="little").reshape(-1, 4)
        @ [1, 2, 4, 8]
        for i in (0, 1)
    )
    assert stats.chisquare(np.bincount(16 * first + second, minlength=256)).pvalue > 1e-10


def test_the_same_input_twice_shares_no_bytes():
    the_plan = plan(3, coordinates=20_000)
    inputs = random_inputs(the_plan, 2)
    again = plan(3, coordinates=20_000)
    first, second = _masked(the_plan, inputs), _masked(again, inputs)
    for index in range(3):
        one, two = (np.frombuffer(part[index], dtype=np.uint8) for part in (first, second))
        # Equal by chance: one in 256, here within 8 standard deviations (false alarm below 1e-14).
        share = np.mean(one == two)
        assert abs(share - 1 / 256) < 8 * np.sqrt(1 / 256 / one.size)
        windows = [
            {part[index][place : place + 8] for place in range(len(part[index]) - 7)}
            for part in (first, second)
        ]
        assert not windows[0] & windows[1]  # by chance with probability below 1e-10


@pytest.mark.slow
def test_uploads_take_exactly_the_bits_of_the_modulus():
    """100 clients with the sizes that 20 % corrupted ones ask for."""
    sizes = plan_sum(clients=100, corrupted=20, dropped=20, minimum=51, security_bits=50.0)
    shape = {
        "members": sizes.members,
        "quorum": sizes.quorum,
        "picks": sizes.picks,
        "least": sizes.least,
    }
    the_plan = plan(100, minimum=51, coordinates=10_000, **shape)
    assert the_plan.bits == bits_needed(100, 15) == 11
    seen: dict[tuple[str, int], bytes] = {}
    inputs = random_inputs(the_plan, 6)
    found = run_round(the_plan, inputs, seen=seen, trust=Trust(minimum=51))
    np.testing.assert_array_equal(found.values, plain_sum(inputs, tuple(range(100))))
    for client in range(100):
        assert len(seen["sum", client]) == 9 + 64 + 10_000 * 11 // 8
        assert len(seen["deal", client]) == 9 + 2 + 32 + 32 + 16 + 32 + 64 + 16 + sizes.members * (
            50 + 32
        )
        assert (
            ("agree", client) in seen if client < sizes.members else ("agree", client) not in seen
        )


@pytest.mark.slow
def test_a_fifth_dropped_and_a_fifth_corrupted_of_a_hundred():
    """The sizes that such clients ask for hold in a round that loses a fifth, and the rest are still bound together.

    The corrupted see to it that no round ends if they will not answer: too few honest members are left for a quorum.
    That is all: they have no quorum themselves, and two quorums have more members in common than there are of them.
    """
    trust = Trust(minimum=51)
    sizes = plan_sum(
        clients=100,
        corrupted=20,
        dropped=20,
        minimum=51,
        security_bits=trust.bits,
        drawn_bits=trust.drawn_bits(100, 100),
    )
    shape = {
        "members": sizes.members,
        "quorum": sizes.quorum,
        "picks": sizes.picks,
        "least": sizes.least,
    }
    the_plan = plan(100, minimum=51, coordinates=200, **shape)
    lost, corrupted = set(range(4, 100, 5)), set(range(2, 100, 5))
    survivors = tuple(sorted(set(range(100)) - lost))
    inputs = random_inputs(the_plan, 8)
    seen: dict[tuple[str, int], bytes] = {}
    found = run_round(the_plan, inputs, gone={"sum": lost}, seen=seen, trust=trust)
    assert (found.survivors, set(found.dropped)) == (survivors, lost)
    np.testing.assert_array_equal(found.values, plain_sum(inputs, survivors))

    deals = [messages.read_dealing(seen["deal", client], the_plan)[0] for client in range(100)]
    picks = [compact(messages.picked(deal.coins, the_plan, deal.index)) for deal in deals]
    masking = mask_partners(range(100), np.array(picks))
    honest = set(survivors) - corrupted
    reached, waiting = {min(honest)}, [min(honest)]
    while waiting:
        others = honest.intersection(masking[waiting.pop()].tolist()) - reached
        reached |= others
        waiting += others
    assert reached == honest  # only the sum of all honest survivors has no mask left

    theirs = sum(client < sizes.members for client in corrupted)
    assert theirs < 2 * sizes.quorum - sizes.members <= sizes.quorum
    with pytest.raises(TooFewClients, match="quorum"):
        run_round(the_plan, inputs, gone={"sum": lost, "agree": corrupted}, trust=trust)
