"""Parts of the protocol by themselves: packing, masks, sharing, the ring of neighbours and its odds."""

from __future__ import annotations

import itertools
import math
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mezzotint.core import packing
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.federated.secagg import MalformedMessage, bits_needed, plan_graph, safe_threshold
from mezzotint.federated.secagg.masks import add_mask, combine, pack_words, split, unpack_words, word_type
from mezzotint.federated.secagg.plan import neighbour_graph


@given(bits=st.integers(1, 32), count=st.integers(0, 200), seed=st.integers(0, 2**32))
def test_packing_gives_the_words_back_and_agrees_with_core(bits, count, seed):
    words = np.random.default_rng(seed).integers(0, 2**bits, count, dtype=np.uint64).astype(word_type(bits))
    packed = pack_words(words, bits)
    np.testing.assert_array_equal(unpack_words(packed, bits, count, stage="mask"), words)
    if bits <= 16:
        assert packed == packing.pack(words, bits)


def test_packed_words_of_a_wrong_length_or_with_spare_bits_are_refused():
    packed = pack_words(np.arange(5, dtype=np.uint16), 11)
    for bad in (packed[:-1], packed + b"\0", packed[:-1] + bytes([packed[-1] | 0x80])):
        with pytest.raises(MalformedMessage):
            unpack_words(bad, 11, 5, stage="mask")


@pytest.mark.parametrize("bits", [3, 11, 20])
@pytest.mark.parametrize("size", [1, 7, 65536 * 8 + 3])
def test_masks_cancel_and_depend_on_their_key(bits, size):
    kind = word_type(bits)
    start = np.arange(size).astype(kind)
    total = start.copy()
    one, two = os.urandom(32), os.urandom(32)
    add_mask(total, one, sign=1)
    add_mask(total, two, sign=-1)
    assert size == 1 or (total != start).any()
    add_mask(total, two, sign=1)
    add_mask(total, one, sign=-1)
    np.testing.assert_array_equal(total, start)


@pytest.mark.parametrize(("holders", "threshold"), [(1, 1), (2, 2), (5, 3), (6, 6), (20, 11)])
def test_any_threshold_of_the_shares_restores_the_secret_and_fewer_do_not(holders, threshold):
    secret = os.urandom(16)
    names = tuple(7 * place + 3 for place in range(holders))
    shares = split(secret, names, threshold)
    for chosen in itertools.islice(itertools.combinations(names, threshold), 10):
        assert combine({name: shares[name] for name in chosen}, names, threshold) == secret
    if threshold > 2:
        fewer = {name: shares[name] for name in names[: threshold - 1]}
        assert combine(fewer, names, threshold - 1) != secret


@pytest.mark.parametrize(("members", "neighbours"), [(2, 1), (5, 4), (9, 4), (30, 12), (30, 40)])
def test_the_ring_is_symmetric_regular_and_connected(members, neighbours):
    people = list(range(100, 100 + members))
    graph = neighbour_graph(people, neighbours, rng=1)
    for one, others in graph.items():
        assert one not in others
        assert len(set(others)) == min(neighbours, members - 1)
        assert all(one in graph[other] for other in others)
    reached, edge = {people[0]}, [people[0]]
    while edge:
        new = {other for one in edge for other in graph[one]} - reached
        reached |= new
        edge = list(new)
    assert reached == set(people)
    if neighbours < members - 1:
        assert graph != neighbour_graph(people, neighbours, rng=2)


def test_the_odds_of_the_ring_hold_in_simulation():
    """Union bounds never fall below simulated frequencies (by more than 5 standard errors)."""
    found = plan_graph(clients=24, corrupted=0.2, dropped=0.1, security_bits=1.0, failure_bits=1.0)
    rng = np.random.default_rng(3)
    runs, exposed, failed = 3000, 0, 0
    for run in range(runs):
        graph = neighbour_graph(range(24), found.neighbours, rng=run)
        bad = set(rng.permutation(24)[:5].tolist())
        lost = set(rng.permutation(24)[:3].tolist())
        exposed += any(len(bad & set(graph[i])) >= found.threshold for i in set(range(24)) - bad)
        failed += any(len(set(graph[i]) - lost) < found.threshold for i in range(24))
    for count, bound in ((exposed, found.exposed), (failed, found.failed)):
        assert count / runs <= 2**bound + 5 * math.sqrt(0.25 / runs)


def test_more_corruption_needs_more_neighbours_until_it_cannot_be_had():
    few = plan_graph(clients=1000, corrupted=0.05, dropped=0.05)
    many = plan_graph(clients=1000, corrupted=0.2, dropped=0.1)
    assert few.neighbours < many.neighbours < 300
    for found in (few, many):
        assert found.threshold >= safe_threshold(found.neighbours)
        assert max(found.exposed, found.split) <= -40
        assert found.failed <= -20
    with pytest.raises(InfeasibleError, match="collude"):
        plan_graph(clients=10, corrupted=0.6, dropped=0.3)
    for bad in ({"clients": 1}, {"corrupted": 1.0}, {"dropped": -0.1}):
        with pytest.raises(ParameterError):
            plan_graph(**({"clients": 10, "corrupted": 0.0, "dropped": 0.0} | bad))


@given(clients=st.integers(1, 3000), span=st.integers(1, 300))
def test_the_modulus_holds_the_largest_sum_and_is_no_larger_than_needed(clients, span):
    bits = bits_needed(clients, span)
    assert 2 ** (bits - 1) <= clients * span < 2**bits
