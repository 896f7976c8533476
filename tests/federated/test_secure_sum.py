"""The sum of the survivors, bit for bit, whoever drops out; and nothing in the messages that tells one input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from federated.rounds import answer, plain_sum, plan, random_inputs, run_round
from mezzotint.federated.secagg import STAGES, Client, SecureSum, Server, TooFewClients, bits_needed


@settings(max_examples=40, deadline=None)
@given(
    clients=st.integers(2, 11),
    degree=st.integers(1, 10),
    span=st.sampled_from([1, 3, 15, 255, 4095]),
    coordinates=st.integers(1, 70),
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.05, 0.2]),
)
def test_any_dropouts_leave_the_survivors_sum_or_nothing(clients, degree, span, coordinates, seed, loss):
    neighbours = min(degree - degree % 2 or 2, clients - 1) if clients > 2 else 1
    if neighbours % 2 and neighbours != clients - 1:
        neighbours -= 1
    the_plan = plan(clients, neighbours=neighbours, span=span, coordinates=coordinates)
    rng = np.random.default_rng(seed)
    gone = {stage: set(np.flatnonzero(rng.random(clients) < loss).tolist()) for stage in STAGES}
    inputs = random_inputs(the_plan, seed)
    try:
        found = run_round(the_plan, inputs, gone=gone)
    except TooFewClients:
        assert any(gone.values())  # without drop-outs a round always succeeds
        return
    lost = gone["advertise"] | gone["share"] | gone["mask"]
    assert found.survivors == tuple(sorted(set(range(clients)) - lost))
    np.testing.assert_array_equal(found.values, plain_sum(inputs, found.survivors))


@pytest.mark.parametrize("stage", STAGES)
def test_drop_outs_up_to_the_threshold_are_borne_and_one_more_is_not(stage):
    # All of 9 know each other; 8 neighbours, threshold 5: 6 must be left for each of them to find 5 others.
    the_plan = plan(9, threshold=5)
    inputs = random_inputs(the_plan, 3)
    found = run_round(the_plan, inputs, gone={stage: {0, 4, 8}})
    early = stage in ("advertise", "share", "mask")
    assert found.survivors == ((1, 2, 3, 5, 6, 7) if early else tuple(range(9)))
    np.testing.assert_array_equal(found.values, plain_sum(inputs, found.survivors))
    if stage != "unmask":
        with pytest.raises(TooFewClients):
            run_round(the_plan, inputs, gone={stage: {0, 3, 4, 8}})
    # At the last stage the four that vanish can still be unmasked by the five left.
    with pytest.raises(TooFewClients):
        run_round(the_plan, inputs, gone={"unmask": {0, 3, 4, 7, 8}})


def test_one_drops_out_at_every_stage_of_a_sparse_round():
    the_plan = plan(30, neighbours=12, span=15, coordinates=1000)
    inputs = random_inputs(the_plan, 9)
    gone = {stage: {2 * place + 1} for place, stage in enumerate(STAGES)}
    found = run_round(the_plan, inputs, gone=gone, rng=4)
    assert found.dropped == (1, 3, 5)
    np.testing.assert_array_equal(found.values, plain_sum(inputs, found.survivors))


def test_fewer_than_the_minimum_learn_nothing():
    the_plan = plan(8, minimum=7)
    with pytest.raises(TooFewClients):
        run_round(the_plan, random_inputs(the_plan, 1), gone={"mask": {1, 2}})
    with pytest.raises(TooFewClients):
        run_round(the_plan, random_inputs(the_plan, 1), gone={"advertise": set(range(8))})


def test_clients_may_be_saved_and_loaded_between_any_two_messages():
    the_plan = plan(6, neighbours=4)
    inputs = random_inputs(the_plan, 5)
    saved = {index: Client().save() for index in range(6)}
    server = Server(the_plan)
    outbox = server.invitations()
    for stage in STAGES:
        for index, message in outbox.items():
            client = Client.load(saved[index])
            server.receive(index, answer(client, stage, message, inputs[index]))
            saved[index] = client.save()
        outbox = server.advance() if stage != "unmask" else {}
    result = server.result()
    assert isinstance(result, SecureSum)
    np.testing.assert_array_equal(result.values, plain_sum(inputs, tuple(range(6))))
    assert all(b'"round": null' in state for state in saved.values())  # the round's secrets are gone


def test_modular_sums_wrap_around():
    the_plan = plan(5, span=255, bits=8, overflow="modular")
    inputs = {index: np.full(40, 200) for index in range(5)}
    assert set(run_round(the_plan, inputs).values.tolist()) == {1000 % 256}


def _masked(the_plan, inputs):
    seen: dict[tuple[str, int], bytes] = {}
    run_round(the_plan, inputs, seen=seen)
    return {index: message[9:] for (stage, index), message in seen.items() if stage == "mask"}


@pytest.mark.parametrize("bits", [5, 8, 11, 16, 19])
def test_masked_inputs_are_uniform(bits):
    """All-zero inputs: what the server sees is chi-square uniform. False alarm: below 1e-9 per test."""
    the_plan = plan(4, span=3, bits=bits, coordinates=40_000)
    uploads = _masked(the_plan, {index: np.zeros(40_000, dtype=int) for index in range(4)})
    for packed in uploads.values():
        planes = np.unpackbits(np.frombuffer(packed, dtype=np.uint8), bitorder="little")[: 40_000 * bits]
        words = planes.reshape(-1, bits)
        for counted in (words[:, :5], words[:, -5:]):  # lowest and highest bits of every coordinate
            cells = np.bincount(counted @ (1 << np.arange(5)), minlength=32)
            assert stats.chisquare(cells).pvalue > 1e-10


def test_masked_inputs_of_two_clients_are_uncorrelated_and_their_sum_is_not_masked_away():
    """Any two of three masked inputs together are uniform as well. False alarm: below 1e-9."""
    the_plan = plan(3, span=1, bits=4, coordinates=60_000)
    uploads = _masked(the_plan, {index: np.zeros(60_000, dtype=int) for index in range(3)})
    first, second = (
        np.unpackbits(np.frombuffer(uploads[i], dtype=np.uint8), bitorder="little").reshape(-1, 4) @ [1, 2, 4, 8]
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
            {part[index][place : place + 8] for place in range(len(part[index]) - 7)} for part in (first, second)
        ]
        assert not windows[0] & windows[1]  # by chance with probability below 1e-10


def test_uploads_take_exactly_the_bits_of_the_modulus():
    the_plan = plan(100, neighbours=20, threshold=11, span=15, coordinates=10_000)
    assert the_plan.bits == bits_needed(100, 15) == 11
    seen: dict[tuple[str, int], bytes] = {}
    down: dict[int, int] = {}

    def count(stage, index, message):
        down[index] = down.get(index, 0) + len(message)
        return message

    inputs = random_inputs(the_plan, 6)
    found = run_round(the_plan, inputs, seen=seen, down=count)
    np.testing.assert_array_equal(found.values, plain_sum(inputs, tuple(range(100))))
    for client in range(100):
        sent = sum(len(message) for (_, index), message in seen.items() if index == client)
        payload = 10_000 * 11 // 8
        assert len(seen["mask", client]) == payload + 9
        assert sent + down[client] - payload < 10_000
