"""Integer noise on vectors: against enumeration, the page's bound in plain loops, its edges."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from mezzotint import Mechanism, families, kernel, privacy, vectors
from mezzotint.core.errors import ParameterError
from mezzotint.kernel.checker import KINDS
from reference.kernel import accepts, claim, decimal_text, exponential, resealed, sealed

TOTAL = 2**32


def _table(weights: list[int]) -> Mechanism:
    levels = np.arange(float(len(weights)))
    return Mechanism(
        knots=[0.0, 1.0], levels=levels, weights=np.array([weights, weights]), name="noise"
    )


def _random(generator: np.random.Generator, size: int) -> Mechanism:
    raw = generator.dirichlet(np.full(size, 3.0)) + 0.02
    weights = np.rint(raw / raw.sum() * TOTAL).astype(np.int64)
    weights[0] += TOTAL - weights.sum()
    return _table(weights.tolist())


def _release(
    table: Mechanism, clients: int, shift: int, distance: int, dimension: int = 1, **more: Any
) -> Any:
    lattice = tuple(range(table.levels.size))
    return kernel.ExactRelease(
        observer="secure_sum", tables=((table.sha256, dimension),), clients=clients, lattice=lattice, shift=shift,
        distance=Fraction(distance), **more,
    )  # fmt: skip


def _proof(said: kernel.ExactClaim, table: Mechanism, order: str = "2", **more: Any) -> Any:
    return sealed(
        said, "renyi", tables=[table.canonical()], **{"order": order, "tail": 160, **more}
    )


def _summed(table: Mechanism, clients: int) -> list[Fraction]:
    row = [Fraction(int(weight), TOTAL) for weight in table.weights[0]]
    found = [Fraction(1)]
    for _ in range(clients):
        found = [
            sum(
                (found[i] * row[k - i] for i in range(len(found)) if 0 <= k - i < len(row)),
                Fraction(0),
            )
            for k in range(len(found) + len(row) - 1)
        ]
    return found


def _moved(noise: list[Fraction], move: int, reach: int) -> list[Fraction]:
    """The sum's distribution when the client's integer is `move`, on -reach .. size - 1 + reach."""
    empty = [Fraction(0)]
    return empty * (reach + move) + noise + empty * (reach - move)


def _worst(
    noise: list[Fraction], shift: int, distance: int, dimension: int, rounds: int, epsilon: Fraction
) -> float:
    """The exact delta over all moves that the release allows, by enumeration of all outputs."""
    factor, worst, count = exponential(epsilon), Fraction(0), dimension * rounds
    for moves in product(range(-shift, shift + 1), repeat=count):
        squares = [
            sum(move**2 for move in moves[k : k + dimension]) for k in range(0, count, dimension)
        ]
        if max(squares) > distance:
            continue
        first = [_moved(noise, 0, shift) for _ in moves]
        second = [_moved(noise, move, shift) for move in moves]
        pairs = [list(zip(p, q, strict=True)) for p, q in zip(first, second, strict=True)]
        total = Fraction(0)
        for outputs in product(*pairs):
            p, q = math.prod(o[0] for o in outputs), math.prod(o[1] for o in outputs)
            total += max(p - factor * q, 0)
        worst = max(worst, total)
    return float(worst)


def _stated(
    noise: list[Fraction],
    shift: int,
    distance: int,
    dimension: int,
    rounds: int,
    epsilon: Fraction,
    order: float,
) -> float:
    """The page's bound, by loops over places: what is cut off, and the conversion of the largest cost per square."""
    size, cost, cut = len(noise), 0.0, 0.0
    for move in [*range(-shift, 0), *range(1, shift + 1)]:
        kept = [i for i in range(size) if 0 <= i - move < size]
        power = sum(float(noise[i]) ** order * float(noise[i - move]) ** (1 - order) for i in kept)
        cost = max(cost, math.log(power) / move**2)
        cut = max(cut, 1 - float(sum(noise[i] for i in kept)))
    exponent = rounds * distance * cost - (order - 1) * float(epsilon)
    return math.exp(exponent) * (1 - 1 / order) ** order / (order - 1) + cut * dimension * rounds


def test_never_below_enumeration_of_all_moves_and_at_the_bound_of_the_page() -> None:
    """200 small tables of noise, up to three clients, vectors of two integers or two rounds."""
    generator, tables, close = np.random.default_rng(15), 0, 0
    while tables < 200:
        table, clients = (
            _random(generator, int(generator.integers(3, 6))),
            int(generator.integers(1, 4)),
        )
        shift, (dimension, rounds) = (
            int(generator.integers(1, 3)),
            [(1, 1), (2, 1), (1, 2)][tables % 3],
        )
        distance = int(generator.integers(shift**2, 2 * shift**2 + 1))
        epsilon, order = (
            Fraction(int(generator.integers(5, 60)), 10),
            str(int(generator.integers(11, 60))) + "/10",
        )
        noise = _summed(table, clients)
        stated = _stated(noise, shift, distance, dimension, rounds, epsilon, float(Fraction(order)))
        if stated >= 1:
            continue
        tables += 1
        described = _release(table, clients, shift, distance, dimension, rounds=rounds)
        for factor, holds in ((1 + 1e-7, True), (1 - 1e-7, False)):
            said = claim(described, str(epsilon), decimal_text(Fraction(stated * factor)))
            assert accepts(said, _proof(said, table, order)) == holds
        exact = _worst(noise, shift, distance, dimension, rounds, epsilon)
        assert exact <= stated
        close += exact > 0.2 * stated
    assert close > 50


@pytest.mark.parametrize("weights", [[2**31, 3 * 2**29, 2**29], [2**29, 3 * 2**29, 2**31]])
def test_noise_that_leans_to_one_side_costs_what_the_worse_direction_does(
    weights: list[int],
) -> None:
    """What a move costs and what it leaves out differ by its direction; the mirrored noise has them the other way."""
    table = _table(weights)
    stated = _stated(_summed(table, 1), 1, 1, 1, 1, Fraction(1), 2.0)
    assert stated < 1
    for factor, holds in ((1 + 1e-7, True), (1 - 1e-7, False)):
        said = claim(_release(table, 1, 1, 1), "1", decimal_text(Fraction(stated * factor)))
        assert accepts(said, _proof(said, table)) == holds


def _by_losses(
    table: Mechanism, described: Any, epsilon: object, delta: Fraction, **more: Any
) -> bool:
    said = claim(described, epsilon, decimal_text(delta))
    return accepts(said, sealed(said, "sum", tables=[table.canonical()], **{"tail": 160, **more}))


def test_losses_of_one_integer_are_exact() -> None:
    """100 small tables, lopsided ones and some with a gap, moves by 1 and 2: neither below enumeration nor above it."""
    generator, seen = np.random.default_rng(16), 0
    for number in range(100):
        table, clients = (
            _random(generator, int(generator.integers(2, 6))),
            int(generator.integers(1, 4)),
        )
        lattice = tuple(range(table.levels.size))
        if number % 4 == 0:
            lattice = (0, *(place + 1 for place in lattice[1:]))
        weights = dict(zip(lattice, table.weights[0].tolist(), strict=True))
        spread = _table([weights.get(place, 0) for place in range(lattice[-1] + 1)])
        shift, epsilon = int(generator.integers(1, 3)), Fraction(int(generator.integers(0, 20)), 10)
        exact = Fraction(_worst(_summed(spread, clients), shift, shift**2, 1, 1, epsilon))
        described = replace(_release(table, clients, shift, shift**2), lattice=lattice)
        assert _by_losses(
            table, described, epsilon, exact * (1 + Fraction(1, 10**9)) + Fraction(1, 2**90)
        )
        if exact > Fraction(1, 10**9):
            seen += 1
            assert not _by_losses(table, described, epsilon, exact * (1 - Fraction(1, 10**9)))
    assert seen > 70


def test_every_move_is_computed() -> None:
    """Six draws from {0, 2}: a move by 1 is always seen, one by 2 seldom."""
    table = _table([2**31, 2**31])
    for shift, delta in ((1, Fraction(1)), (2, Fraction(1))):
        described = replace(_release(table, 6, shift, 4), lattice=(0, 2))
        assert _by_losses(table, described, 0, delta)
        assert not _by_losses(table, described, 0, delta - Fraction(1, 10**9))
    described = _release(table, 6, 1, 1)
    assert _by_losses(table, described, 0, Fraction(5, 16))
    assert not _by_losses(table, described, 0, Fraction(5, 16) - Fraction(1, 10**9))
    assert not _by_losses(table, replace(described, corrupted=2), 0, Fraction(5, 16))


@pytest.mark.parametrize(("dimension", "rounds"), [(2, 1), (1, 2)])
def test_losses_of_several_integers_compose(dimension: int, rounds: int) -> None:
    """Of mirrored noise, whose moves up and down have one curve: at the enumeration but for what the grid costs."""
    generator = np.random.default_rng(17)
    grid = {"step": "1/200", "grid": {"low": -600, "high": 600}}
    for _ in range(6):
        end = int(generator.integers(2**28, 2**30))
        table = _table([end, TOTAL - 2 * end, end])
        described = _release(table, 2, 1, 2, dimension, rounds=rounds)
        noise = _summed(table, 2)
        exact = Fraction(_worst(noise, 1, 2, dimension, rounds, Fraction(1, 2)))
        assert not _by_losses(table, described, "1/2", exact * (1 - Fraction(1, 10**6)), **grid)
        assert _by_losses(table, described, "1/2", exact * Fraction(102, 100), **grid)


def test_moves_chosen_after_the_first_round_and_noise_cut_short_are_covered() -> None:
    """40 lopsided tables: no order and no tail certifies less than what whoever waits for the first sum gets."""
    generator, seen = np.random.default_rng(18), 0
    for _ in range(40):
        table, clients = (
            _random(generator, int(generator.integers(2, 5))),
            int(generator.integers(1, 4)),
        )
        shift, corrupted = int(generator.integers(1, 4)), int(clients > 2)
        distance, epsilon = (
            int(generator.integers(1, shift**2 + 2)),
            Fraction(int(generator.integers(1, 40)), 10),
        )
        noise, factor = _summed(table, clients - corrupted), exponential(epsilon)
        moves = [move for move in range(-shift, shift + 1) if move**2 <= distance]
        first, *others = (_moved(noise, move, shift) for move in (0, *moves))
        exact = Fraction(0)
        for other in others:
            chosen = [
                max(
                    sum(max(p * a - factor * q * b, 0) for a, b in zip(first, later, strict=True))
                    for later in others
                )
                for p, q in zip(first, other, strict=True)
            ]
            exact = max(exact, Fraction(sum(chosen)))
        seen += exact > Fraction(1, 1000)
        described = _release(table, clients, shift, distance, rounds=2, corrupted=corrupted)
        false = claim(described, epsilon, decimal_text(exact * (1 - Fraction(1, 10**9))))
        grid = {"step": "1/20", "grid": {"low": -80, "high": 80}}
        for tail in (160, 6, 2):
            for order in ("1.02", "2", "30"):
                assert not accepts(false, _proof(false, table, order, tail=tail))
            assert not accepts(
                false, sealed(false, "sum", tables=[table.canonical()], tail=tail, **grid)
            )
    assert seen > 30


TWO = _table([2**31, 2**31])
FIVE = _table([2**28, 2**30, TOTAL - 2 * 2**28 - 2 * 2**30, 2**30, 2**28])


def _holds(
    table: Mechanism, clients: int, shift: int, delta: str, order: str = "2", **more: Any
) -> bool:
    said = claim(_release(table, clients, shift, shift**2, **more), "50", delta)
    return accepts(said, _proof(said, table, order))


def test_what_the_shifted_noise_does_not_reach_is_charged_exactly() -> None:
    """One coin, shifted by one: half of it is cut off, at any epsilon; the rest of delta is what e**-50 needs."""
    assert not _holds(TWO, 1, 1, "1/2")
    assert _holds(TWO, 1, 1, "50000000001/100000000000")
    assert not _holds(TWO, 1, 1, "49999999999/100000000000")
    # Two rounds, or two integers, lose twice as much: nothing is left.
    assert not _holds(TWO, 1, 1, "99/100", rounds=2)
    assert not _holds(TWO, 1, 1, "99/100", dimension=2)
    # Of two coins a shift of one leaves out a quarter.
    assert _holds(TWO, 2, 1, "26/100")
    assert not _holds(TWO, 2, 1, "24/100")
    assert not _holds(TWO, 2, 1, "26/100", corrupted=1)


def test_edges_of_noise() -> None:
    assert _holds(FIVE, 1, 4, "99/100")
    assert not _holds(FIVE, 1, 5, "99/100")
    assert not _holds(FIVE, 1, 4, "99/100", order="1")
    gap = _table([2**30, 0, TOTAL - 2**31, 0, 2**30])
    said = claim(replace(_release(gap, 2, 1, 1), lattice=(0, 2, 4)), "50", "99/100")
    assert not accepts(said, _proof(said, gap))
    rows = Mechanism(
        knots=[0.0, 1.0],
        levels=[0.0, 1.0],
        weights=np.array([[2**31, 2**31], [2**30, TOTAL - 2**30]]),
        name="two",
    )
    assert not _holds(rows, 3, 1, "99/100")
    for change in ({"shift": 0}, {"distance": Fraction(-1)}):
        bad = claim(replace(_release(FIVE, 2, 1, 1), **change), "50", "99/100")
        assert not accepts(bad, _proof(bad, FIVE))
    secret = claim(_release(FIVE, 2, 1, 1, sampling="poisson", rate=Fraction(1, 2)), "50", "99/100")
    assert not accepts(secret, _proof(secret, FIVE))
    seen = claim(_release(FIVE, 2, 1, 1, sampling="public", rate=Fraction(1, 2)), "50", "99/100")
    assert accepts(seen, _proof(seen, FIVE))
    order = claim(_release(FIVE, 2, 1, 1), "50", order="2")
    assert not accepts(order, _proof(order, FIVE))


def test_a_sum_has_an_honest_client() -> None:
    """As many corrupted as there are clients would leave no noise at all, nor anybody to protect."""
    document = _release(FIVE, 3, 1, 1, corrupted=2).document()
    assert kernel.ExactRelease.read(document).corrupted == 2
    three = _release(FIVE, 3, 1, 1, corrupted=3).document()
    with pytest.raises(kernel.Unreadable, match="corrupted"):
        kernel.ExactRelease.read(three)
    # Moves are said of sums alone, and both or none.
    for change in ({"observer": "reports", "trust": "local"}, {"shift": 0}, {"distance": "-1"}):
        with pytest.raises(kernel.Unreadable):
            kernel.ExactRelease.read({**document, **change})
    with pytest.raises(kernel.Unreadable, match="distance"):
        kernel.ExactRelease.read(
            {key: value for key, value in document.items() if key != "distance"}
        )


def test_no_other_kind_of_proof_speaks_of_noise() -> None:
    """The table alone has one row, so as reports it would cost nothing."""
    said = claim(_release(FIVE, 3, 1, 1), "1/100", "99/100")
    blanket = {"rows": [0], "block": 1, "components": []}
    content: dict[str, dict[str, Any]] = {
        "ratio": {}, "delta": {}, "losses": {"step": "1", "tail": 9, "grids": [{"low": 0, "high": 1}]},
        "gaussian": {"kappa": "1", "step": "1", "tail": 9, "sampled": {"low": 0, "high": 1}}, "dual": {},
        "profile": {},
    }  # fmt: skip
    assert set(content) == set(KINDS) - {"renyi", "sum"}
    # Sums are shown by noise alone, or by blankets alone.
    blankets = {"blankets": [blanket], "others": 2, "cases": {"corners": [[]]}}
    assert not accepts(said, sealed(said, "sum", tables=[FIVE.canonical()], tail=9, **blankets))
    for kind, more in content.items():
        with pytest.raises((kernel.Refused, kernel.Unreadable), match=r"is about"):
            kernel.check(said, sealed(said, kind, tables=[FIVE.canonical()], **more))
    # A release of reports does not become one of noise, nor the other way round.
    plain = replace(said, release=replace(said.release, shift=0, distance=Fraction(0)))
    assert not accepts(plain, resealed(plain, _proof(plain, FIVE)))


def test_noise_of_clients_who_come_by_chance_is_not_counted_on() -> None:
    """Of a hundred clients who come with 1 in 10 only some ten add noise: the claim of a hundred would be too small."""
    shape: dict[str, Any] = {
        "delta": 1e-6,
        "trust": "secure_sum",
        "clients": 100,
        "sampling": "poisson",
    }
    scheme = vectors.GaussianScheme.planned(noise_multiplier=1.0, size=16, l2_norm=1.0, clients=100)
    with pytest.raises(ParameterError, match="absent clients add no noise"):
        privacy.account(privacy.Release(mechanism=scheme, sampling_rate=0.1, **shape))
    table = families.rqm(lower=-1, upper=1, levels=4, extension=1.0, q=0.42)
    scheme = vectors.TableScheme(mechanism=table, size=40, l2_norm=1.0, clients=100)
    release = privacy.Release(mechanism=scheme, sampling_rate=1.0, **shape)
    assert any("L2" in name for name, _ in privacy.account(release).alternatives)
    chance = privacy.Release(mechanism=scheme, sampling_rate=0.1, **shape)
    with pytest.raises(ParameterError, match="absent client adds 0"):
        privacy.account(chance)
