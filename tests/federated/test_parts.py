"""Parts of the protocol by themselves: packing, masks, sharing, rosters and draws."""

from __future__ import annotations

import itertools
import os
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import stats

from federated.rounds import card, plan, roster, secret
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.sampler import pack_words, word_type
from mezzotint.federated.secagg import (
    Card,
    Client,
    MalformedMessage,
    ProtocolError,
    Roster,
    bits_needed,
    read_introduction,
)
from mezzotint.federated.secagg.client_values import mask_partners
from mezzotint.federated.secagg.masks import PRIME, add_mask, combine, read_words, split
from mezzotint.federated.secagg.messages import picked
from mezzotint.federated.secagg.roster import first_shuffled, shuffled


def test_packed_words_of_a_wrong_length_or_with_spare_bits_are_refused():
    packed = pack_words(np.arange(5, dtype=np.uint16), 11)
    for bad in (packed[:-1], packed + b"\0", packed[:-1] + bytes([packed[-1] | 0x80])):
        with pytest.raises(MalformedMessage):
            read_words(bad, 11, 5, stage="mask")


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
    shares = dict(enumerate(split(secret, holders, threshold)))
    for chosen in itertools.islice(itertools.combinations(shares, threshold), 10):
        assert combine({place: shares[place] for place in chosen}, threshold) == secret
    if threshold > 2:
        fewer = {place: shares[place] for place in range(threshold - 1)}
        assert combine(fewer, threshold - 1) != secret


def _interpolated(shares: dict[int, bytes]) -> Fraction:
    """The polynomial through (place + 1, share) at 0, over the rationals."""
    found = Fraction(0)
    for one, share in shares.items():
        term = Fraction(int.from_bytes(share, "little"))
        for other in shares:
            if other != one:
                term *= Fraction(other + 1, other - one)
        found += term
    return found


def test_shares_interpolate_to_the_secret_over_the_rationals_modulo_the_prime():
    secret = bytes(range(16))
    shares = dict(enumerate(split(secret, 7, 4)))
    found = _interpolated({place: shares[place] for place in (0, 2, 5, 6)})
    value = found.numerator * pow(found.denominator, -1, PRIME) % PRIME
    assert value.to_bytes(16, "little") == secret
    assert all(PRIME % factor for factor in range(2, 1000))
    assert pow(3, PRIME - 1, PRIME) == 1  # 2**130 - 5 is prime; Fermat's test and no small factor


def test_shares_of_no_secret_are_told_from_those_of_one():
    """Made-up shares give a number of 130 bits, above 128 with chance 3/4; false alarm: 2**-64 of 32 tries."""
    assert any(
        combine({place: os.urandom(16) + b"\3" for place in range(3)}, 3) is None for _ in range(32)
    )


def test_a_share_alone_is_uniform():
    """The first of two shares of a fixed secret, by its high bits. False alarm: below 1e-9."""
    cells = np.zeros(16, dtype=int)
    for _ in range(4000):
        cells[int.from_bytes(split(bytes(16), 2, 2)[0], "little") >> 126] += 1
    assert stats.chisquare(cells).pvalue > 1e-9


def test_a_draw_is_the_same_for_all_and_another_for_every_round_and_roster():
    known = roster(12)
    assert known.cohort(3, 12) == Roster.from_bytes(known.to_bytes()).cohort(3, 12)
    assert known.cohort(3, 5) == known.cohort(3, 12)[:5]
    assert sorted(known.cohort(3, 12), key=lambda one: one.identity) == list(known.members)
    assert known.cohort(4, 12) != known.cohort(3, 12) != roster(13).cohort(3, 12)
    other = Roster(members=known.members, beacon=b"1" * 32)
    assert other.digest != known.digest
    assert other.cohort(3, 12) != known.cohort(3, 12)


def test_every_member_is_drawn_as_often_for_the_committee():
    """600 rounds of 12 members, 4 drawn: by chi-square; false alarm below 1e-9, and the beacon is fixed."""
    known = roster(12)
    times = dict.fromkeys(known.members, 0)
    for number in range(1, 601):
        for drawn in known.cohort(number, 4):
            times[drawn] += 1
    assert stats.chisquare(list(times.values())).pvalue > 1e-9


@pytest.mark.parametrize(("population", "clients"), [(12, 4), (12, 5), (7, 7), (10, 3)])
def test_members_that_take_turns_are_drawn_alike_and_far_apart(population, clients):
    """Against the definition: one list of all, gone through again and again."""
    known = roster(population)
    rounds = [known.cohort(number, clients, "cyclic") for number in range(1, 2 * population + 1)]
    assert rounds == [
        Roster.from_bytes(known.to_bytes()).cohort(n, clients, "cyclic")
        for n in range(1, len(rounds) + 1)
    ]
    seen: dict[Any, list[int]] = {one: [] for one in known.members}
    for number, drawn in enumerate(rounds):
        assert len({*drawn}) == clients
        for one in drawn:
            seen[one].append(number)
        counts = [len(turns) for turns in seen.values()]
        assert min(counts) == (number + 1) * clients // population
        assert max(counts) <= min(counts) + 1
    assert {len(turns) for turns in seen.values()} == {2 * clients}
    assert min(np.diff(turns).min() for turns in seen.values()) >= population // clients
    # Whose turn it is stand in an order of the round's own: committees change from cycle to cycle.
    again = population // np.gcd(population, clients)
    assert {*rounds[0]} == {*rounds[again]}
    assert clients == 3 or rounds[0] != rounds[again]


def test_every_member_is_as_often_in_the_committee_of_a_cycle():
    """5 of 12 in turn, the first 2 of them a committee: by chi-square; false alarm below 1e-9, the beacon is fixed."""
    known = roster(12)
    times = dict.fromkeys(known.members, 0)
    for number in range(1, 1201):
        for drawn in known.cohort(number, 5, "cyclic")[:2]:
            times[drawn] += 1
    assert stats.chisquare(list(times.values())).pvalue > 1e-9


def test_picks_are_as_many_others_as_the_plan_says_and_every_set_is_as_likely():
    """Of 5 clients, 2 picks: six sets, by chi-square; false alarm below 1e-9 with these coins."""
    the_plan = plan(5, picks=2, session=bytes(16))
    counted: dict[frozenset[int], int] = {}
    for trial in range(3000):
        picks = picked(trial.to_bytes(16, "little"), the_plan, 3)
        counted[picks] = counted.get(picks, 0) + 1
    assert set(counted) == {frozenset(pair) for pair in itertools.combinations((0, 1, 2, 4), 2)}
    assert stats.chisquare(list(counted.values())).pvalue > 1e-9


@pytest.mark.parametrize(("count", "wanted"), [(2, 1), (9, 1), (9, 8), (500, 133), (10_000, 37)])
def test_the_first_of_a_shuffle_are_found_without_it(count, wanted):
    for trial in range(20):
        key = secret(trial)
        found = first_shuffled(count, key, wanted)
        assert len(found) == wanted
        assert set(found) == set(shuffled(count, key)[:wanted])


@pytest.mark.parametrize(("clients", "picks"), [(2, 1), (7, 2), (300, 20), (65_535, 1)])
def test_partners_are_those_picked_and_those_who_pick_among_those_that_dealt(clients, picks):
    rng = np.random.default_rng(clients)
    dealt = np.sort(rng.choice(clients, max(2, 4 * clients // 5), replace=False)).tolist()
    drawn = rng.integers(0, clients - 1, (clients, picks))
    drawn += drawn >= np.arange(clients)[:, None]  # nobody picks itself
    chosen = {one: frozenset(drawn[one].tolist()) for one in dealt}
    expected: dict[int, set[int]] = {one: set() for one in dealt}
    for one, others in chosen.items():
        for other in others & expected.keys():
            expected[one].add(other)
            expected[other].add(one)
    found = mask_partners(dealt, drawn.astype(np.uint16))
    assert list(found) == dealt
    assert {*range(clients)} - {*dealt} == {one for one in range(clients) if one not in found}
    assert {one: others.tolist() for one, others in found.items()} == {
        one: sorted(others) for one, others in expected.items()
    }


def test_a_roster_is_a_file(tmp_path):
    known = roster(4)
    known.save(tmp_path / "roster.json")
    assert Roster.load(tmp_path / "roster.json") == known
    text = (tmp_path / "roster.json").read_text()
    for bad in (
        "{}",
        text.replace("mezzotint roster", "mezzotint rooster"),
        text[:-9],
        text.replace('"beacon"', '"b"'),
    ):
        (tmp_path / "bad.json").write_text(bad)
        with pytest.raises(FileFormatError):
            Roster.load(tmp_path / "bad.json")


def test_a_roster_names_nobody_twice_and_in_one_order():
    first, second = roster(2).members
    for members in (
        (first,),
        (first, first),
        (second, first),
        (first, Card(identity=second.identity, channel=b"")),
    ):
        with pytest.raises(ParameterError):
            Roster(members=members, beacon=bytes(32))
    with pytest.raises(MalformedMessage):
        Roster.from_bytes(bytes(32) + (2).to_bytes(2, "little") + 2 * first.to_bytes())
    assert Roster.drawn([second, first]).members == (first, second)


def test_a_card_is_signed_by_its_identity():
    said = Client(identity=secret(0)).card()
    assert read_introduction(said) == card(0)
    for bad in (said[:-1], said[:40] + b"x" + said[41:], said[:32] + bytes(32) + said[64:]):
        with pytest.raises(ProtocolError):
            read_introduction(bad)


@given(clients=st.integers(1, 3000), span=st.integers(1, 300))
def test_the_modulus_holds_the_largest_sum_and_is_no_larger_than_needed(clients, span):
    bits = bits_needed(clients, span)
    assert 2 ** (bits - 1) <= clients * span < 2**bits


def test_a_plan_is_printed_in_words_with_the_first_digits_of_what_it_binds():
    """All that is drawn, sent and signed; nothing of it as bytes."""
    shown = plan(9, binding=bytes(range(32)), session=bytes(range(16)), roster=bytes(32))
    text = str(shown)
    for part in ("0001020304050607", f"{shown.clients} clients", f"{shown.coordinates} integers", f"2**{shown.bits}",
                 f"{shown.minimum} summands", f"committee of {shown.members}", f"{shown.quorum} sign"):  # fmt: skip
        assert part in text
    assert text.endswith("bound to encoding 0001020304050607")
    assert "\\x" not in text
