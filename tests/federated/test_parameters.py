"""The sizes of a round, against exact counting of small ones, published numbers and servers that play for a split."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.federated.secagg import corrupted_in, plan as module, plan_sum
from mezzotint.federated.secagg.plan import forked, split
from mezzotint.federated.secagg.roster import RISK, most_participations
from tolerances import FEW, MANY

COMMITTEES = {
    (100, 20): (61, 41), (100, 40): (61, 41), (1_000, 20): (235, 162), (1_000, 40): (327, 219),
    (10_000, 20): (312, 215), (10_000, 40): (493, 330),
}  # fmt: skip
"""(clients, bits of failing) -> (members, quorum): a fifth corrupted, a fifth dropped, forked at most 2**-43."""
PARTNERS = {
    (100, 20): (40, 21), (100, 40): (41, 21), (1_000, 20): (101, 56), (1_000, 40): (126, 64),
    (10_000, 20): (130, 72), (10_000, 40): (161, 83),
}  # fmt: skip
"""The same -> (picks, least) of an independent union bound over the sets that are dropped; split at most 2**-40."""


@pytest.mark.parametrize(("clients", "failure"), COMMITTEES)
def test_committees_are_those_that_were_computed_independently(clients, failure):
    fifth = clients // 5
    assert (
        module._committee(clients, fifth, fifth, 43.0, float(failure))
        == COMMITTEES[clients, failure]
    )


@pytest.mark.parametrize(("clients", "failure"), PARTNERS)
@pytest.mark.parametrize("minimum", ["four fifths", "half"])
def test_partners_are_no_more_than_a_coarser_bound_asks_for(clients, failure, minimum):
    """A bound over the part that is cut off is sharper than one over all that may be dropped; n = 100 agrees."""
    fifth = clients // 5
    least = clients - fifth if minimum == "four fifths" else clients // 2 + 1
    picks, own = module._partners(clients, fifth, fifth, least, 40.0, float(failure))
    coarse = PARTNERS[clients, failure]
    assert (picks, own) <= coarse
    if clients == 100:
        assert (picks, own) == coarse
    for one, other in ((picks, own), coarse):
        assert split(clients=clients, corrupted=fifth, minimum=least, picks=one, least=other) <= -40


def _hypergeometric(population: int, marked: int, drawn: int, least: int) -> Fraction:
    ways = sum(
        math.comb(marked, k) * math.comb(population - marked, drawn - k)
        for k in range(least, drawn + 1)
    )
    return Fraction(ways, math.comb(population, drawn))


@pytest.mark.parametrize(
    ("population", "marked", "drawn"), [(10, 3, 4), (30, 6, 11), (200, 40, 90), (5, 0, 3)]
)
def test_tails_are_those_of_exact_counting(population, marked, drawn):
    found = module._tails(population, marked, drawn)
    for least in range(drawn + 2):
        exact = _hypergeometric(population, marked, drawn, least)
        expected = (
            -math.inf if exact == 0 else math.log2(exact.numerator) - math.log2(exact.denominator)
        )
        assert found[least] == pytest.approx(expected, abs=MANY)


@pytest.mark.parametrize(
    ("trials", "most", "miss"), [(50, 3, 0.2), (50, 20, 0.3), (400, 10, 0.5), (9, 0, 0.1)]
)
def test_few_hits_are_never_likelier_than_said(trials, most, miss):
    bound = module._few(np.array([trials]), np.array([most]), np.array([math.log2(miss)]))[0]
    assert stats.binom.logcdf(most, trials, 1 - miss) / math.log(2) <= bound + MANY


def test_forking_takes_as_many_corrupted_members_as_two_quorums_have_in_common():
    """Committees of 7 among 10 clients, 4 of them corrupted, by listing them all."""
    for quorum in range(4, 8):
        forking = sum(
            len(set(members) & set(range(4))) >= 2 * quorum - 7
            for members in itertools.combinations(range(10), 7)
        )
        found = forked(clients=10, corrupted=4, members=7, quorum=quorum)
        exact = forking / math.comb(10, 7)
        assert 2.0**found == pytest.approx(exact, abs=FEW)


def _falls_apart(picks: dict[int, frozenset[int]], clients: int, minimum: int, least: int) -> bool:
    """Whether some set that members would certify has honest clients that masks do not connect. Slow and obvious."""
    for size in range(minimum, clients + 1):
        for chosen in itertools.combinations(range(clients), size):
            survivors = frozenset(chosen)
            honest = [one for one in chosen if one in picks]
            if len(honest) < 2 or any(len(picks[one] & survivors) < least for one in honest):
                continue
            reached, edge = {honest[0]}, [honest[0]]
            while edge:
                one = edge.pop()
                new = {
                    o for o in honest if o not in reached and (o in picks[one] or one in picks[o])
                }
                reached |= new
                edge += new
            if len(reached) < len(honest):
                return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("corrupted", [0, 1])
@pytest.mark.parametrize("minimum", [2, 3, 4])
def test_splits_of_all_graphs_of_five_clients(corrupted, minimum):
    """All picks of the honest ones, all sets: the bound holds, and for some sizes it says something."""
    clients, said = 5, 0
    honest = range(corrupted, clients)
    for picks, least in ((1, 1), (2, 1), (2, 2), (3, 2), (3, 3), (4, 2)):
        choices = [
            [
                frozenset(pair)
                for pair in itertools.combinations([o for o in range(clients) if o != one], picks)
            ]
            for one in honest
        ]
        graphs = list(itertools.product(*choices))
        if len(graphs) > 1500:
            graphs = graphs[:: len(graphs) // 1500]
        apart = sum(
            _falls_apart(dict(zip(honest, graph, strict=True)), clients, minimum, least)
            for graph in graphs
        )
        bound = 2.0 ** split(
            clients=clients, corrupted=corrupted, minimum=minimum, picks=picks, least=least
        )
        assert apart / len(graphs) <= bound + MANY
        said += bound < 1
    assert said


def _drawn(rng: np.random.Generator, clients: int, picks: int) -> np.ndarray:
    """(clients, clients) whether one picks the other."""
    keys = rng.random((clients, clients))
    np.fill_diagonal(keys, 2.0)
    chosen = np.zeros((clients, clients), dtype=bool)
    np.put_along_axis(chosen, np.argpartition(keys, picks, axis=1)[:, :picks], True, axis=1)
    return chosen


def _alone(chosen: np.ndarray, corrupted: int, minimum: int, least: int) -> bool:
    """Whether a server that drops all honest clients around one of them leaves it with corrupted ones alone."""
    honest = slice(corrupted, None)
    around = (chosen | chosen.T)[honest, honest].sum(axis=1)
    return bool(
        (
            (chosen[honest, :corrupted].sum(axis=1) >= least) & (len(chosen) - around >= minimum)
        ).any()
    )


def test_a_server_that_drops_all_around_a_victim_succeeds_no_oftener_than_said():
    """30 clients, 8 of them corrupted, 6 picks of which 4 must be left: by simulation, to 5 standard errors."""
    rng = np.random.default_rng(5)
    sizes = {"corrupted": 8, "minimum": 16, "least": 4}
    runs = 4000
    seen = sum(_alone(_drawn(rng, 30, 6), **sizes) for _ in range(runs)) / runs
    assert seen > 0.01  # the attack is real where the sizes are small
    assert seen <= 2.0 ** split(clients=30, picks=6, **sizes) + 5 * math.sqrt(0.25 / runs)
    fewer = {"corrupted": 8, "minimum": 24, "least": 6}
    seen = sum(_alone(_drawn(rng, 30, 12), **fewer) for _ in range(runs)) / runs
    assert seen <= 2.0 ** split(clients=30, picks=12, **fewer) + 5 * math.sqrt(0.25 / runs)


@pytest.mark.slow
def test_a_server_that_drops_all_around_a_victim_never_succeeds_with_the_sizes_of_a_hundred_clients():
    rng = np.random.default_rng(7)
    assert not any(
        _alone(_drawn(rng, 100, 41), corrupted=20, minimum=51, least=21) for _ in range(3000)
    )


def test_corrupted_clients_of_a_cohort_are_counted_with_room_for_bad_luck():
    assert corrupted_in(population=100, share=0.2, clients=100, bits=50.0) == 20
    found = corrupted_in(population=10_000, share=0.2, clients=100, bits=40.0)
    assert _hypergeometric(10_000, 2_000, 100, found + 1) <= Fraction(1, 2**40)
    assert _hypergeometric(10_000, 2_000, 100, found) > Fraction(1, 2**40)
    assert corrupted_in(population=50, share=0.0, clients=20, bits=40.0) == 0
    # At most a quarter of ten, and of all of them: two may be, and a third is not excluded.
    assert corrupted_in(population=10, share=0.25, clients=10, bits=40.0) == 3


@pytest.mark.parametrize("clients", [2, 3, 4, 6, 9, 17, 50])
def test_sizes_protect_and_do_not_fail(clients):
    found = plan_sum(
        clients=clients, corrupted=clients // 5, dropped=0, minimum=max(2, clients // 2 + 1)
    )
    assert max(found.forked, found.split) <= -40
    assert found.failed <= -20
    assert found.members // 2 < found.quorum <= found.members <= clients


@pytest.mark.parametrize("clients", [17, 50])
def test_one_partner_fewer_would_not_protect_or_would_fail(clients):
    sizes = {"clients": clients, "corrupted": clients // 5, "minimum": clients // 2 + 1}
    dropped = clients // 10
    for bits in range(5, 41, 3):
        found = plan_sum(**sizes, dropped=dropped, security_bits=bits)
        assert max(found.forked, found.split) <= -bits
        assert found.failed <= -module.FAILURE_BITS
        fewer = found.picks - 1
        lonely = math.log2(clients) + module._tails(clients - 1, dropped, fewer)
        for least in range(1, fewer + 1):
            fails = lonely[fewer - least + 1] > -(module.FAILURE_BITS + 1)
            assert fails or split(**sizes, picks=fewer, least=least) > -bits


def test_a_round_fails_as_often_as_its_sizes_say():
    clients, dropped = 200, 40
    found = plan_sum(clients=clients, corrupted=40, dropped=dropped, minimum=101)
    fatal = found.members - found.quorum + 1
    without_quorum = _hypergeometric(clients, dropped, found.members, fatal)
    fatal = found.picks - found.least + 1
    without_partners = clients * _hypergeometric(clients - 1, dropped, found.picks, fatal)
    exact = math.log2(without_quorum + without_partners)
    assert found.failed == pytest.approx(exact, abs=MANY)
    assert without_quorum > 0
    assert without_partners > 0


@pytest.mark.parametrize("dropped", [3, 5, 8, 12])
def test_one_member_fewer_would_not_protect_or_would_fail(dropped):
    clients, corrupted = 50, 5
    for bits in range(5, 41, 3):
        found = plan_sum(
            clients=clients, corrupted=corrupted, dropped=dropped, minimum=26, security_bits=bits
        )
        members, quorum = found.members, found.quorum
        absent = module._tails(clients, dropped, members)
        assert absent[members - quorum + 1] <= -(module.FAILURE_BITS + 1)
        members -= 1
        absent = module._tails(clients, dropped, members)
        for quorum in range(members // 2 + 1, members + 1):
            forks = forked(clients=clients, corrupted=corrupted, members=members, quorum=quorum)
            fails = absent[members - quorum + 1] > -(module.FAILURE_BITS + 1)
            assert fails or forks > -bits


@pytest.mark.parametrize(
    ("clients", "corrupted", "minimum", "picks", "least"),
    [(10, 2, 6, 4, 2), (17, 3, 9, 6, 4), (17, 0, 9, 3, 3), (50, 10, 26, 20, 9)],
)
def test_the_bound_on_splits_is_its_formula(clients, corrupted, minimum, picks, least):
    """Of every size: who is in the part, that its members pick inside, and that the others outside miss it."""
    honest, others = clients - corrupted, clients - 1
    bound = 0.0
    for size in range(1, honest // 2 + 1):
        inside = _hypergeometric(others, corrupted + size - 1, picks, least)
        miss = math.comb(others - size, picks) / math.comb(others, picks)
        outside = honest - size
        share = min(clients - minimum, honest - 2 * size) / outside
        chernoff = 1.0
        if share < 1 - miss:
            chernoff = math.exp(-outside * (stats.entropy([share, 1 - share], [1 - miss, miss])))
        bound += math.comb(honest, size) * float(inside) ** size * chernoff
    found = split(clients=clients, corrupted=corrupted, minimum=minimum, picks=picks, least=least)
    assert 2.0**found == pytest.approx(bound, rel=MANY)


def test_what_cannot_be_protected_is_refused():
    with pytest.raises(InfeasibleError, match="no committee"):
        plan_sum(clients=10, corrupted=6, dropped=3, minimum=7)
    good = {"clients": 10, "corrupted": 2, "dropped": 1, "minimum": 6}
    for bad in (
        {"clients": 1},
        {"corrupted": 10},
        {"dropped": -1},
        {"minimum": 1},
        {"minimum": 11},
    ):
        with pytest.raises(ParameterError):
            plan_sum(**(good | bad))


@pytest.mark.parametrize(
    ("rounds", "clients_per_round", "population"),
    [(20, 100, 1000), (7, 3, 11), (60, 4, 5), (200, 9, 10)],
)
def test_the_most_rounds_of_one_client_are_those_of_exact_counting(
    rounds, clients_per_round, population
):
    rate = Fraction(clients_per_round, population)

    def beyond(most: int) -> Fraction:
        """Bound on the probability that some client is drawn more often."""
        odds = (
            math.comb(rounds, k) * rate**k * (1 - rate) ** (rounds - k)
            for k in range(most + 1, rounds + 1)
        )
        return population * sum(odds, Fraction(0))

    found = most_participations(
        "fixed", rounds=rounds, clients_per_round=clients_per_round, population=population
    )
    assert beyond(found) <= RISK < beyond(found - 1)
