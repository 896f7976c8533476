"""Advice: every option at the same claim, errors as simulated, those worse than answering 0 called so."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from laws.registry import judges
from mezzotint import ParameterError
from mezzotint.cli.advise import candidates
from mezzotint.core.errors import InfeasibleError
from mezzotint.families import rqm
from mezzotint.privacy.tradeoffs import gaussian_epsilon, gaussian_shift
from mezzotint.vectors import (
    Advice,
    Option,
    RankedCodebook,
    Setting,
    advise,
    round_seeds,
)
from mezzotint.vectors.advice import ONE_BIT
from mezzotint.vectors.calibration import table_error
from mezzotint.vectors.cost_search import CLOSE, search
from tolerances import FEW, MANY, SOLVED


def setting(**changes: Any) -> Setting:
    basis: dict[str, Any] = {
        "clients": 200,
        "dimension": 1,
        "rounds": 1,
        "trust": "sum",
        "epsilon": 2.0,
        "delta": 1e-5,
    }
    return Setting(**{**basis, **changes})


def asked(**changes: Any) -> Advice:
    return advise(setting(**changes), tables=[ONE_BIT])


def vectors_of(one: Setting, rng: np.random.Generator) -> np.ndarray:
    if one.dimension == 1:
        return rng.uniform(-1, 1, size=(one.clients, 1))
    directions = rng.normal(size=(one.clients, one.dimension))
    return directions / np.linalg.norm(directions, axis=1, keepdims=True)


def simulated(one: Setting, option: Option, repeats: int) -> tuple[float, float]:
    """Mean squared error per coordinate of the mean, and its standard error, by running the scheme."""
    scheme = option.scheme
    assert scheme is not None
    rng = np.random.default_rng(1)
    errors: list[float] = []
    for repeat in range(repeats):
        vectors = vectors_of(one, rng)
        codes = [scheme.encode(vector, 10_000 * repeat + i) for i, vector in enumerate(vectors)]
        if one.trust == "sum":
            total = np.sum(codes, axis=0) % scheme.modulus
            mean = scheme.decode_sum(total, one.clients) / one.clients
        else:
            mean = np.mean([scheme.decode_sum(code, 1) for code in codes], axis=0)
        errors.append(float(((mean - vectors.mean(axis=0)) ** 2).mean()))
    return float(np.mean(errors)), float(np.std(errors) / math.sqrt(repeats))


@pytest.mark.parametrize(
    "changes",
    [
        {"clients": 60},
        {"trust": "local", "clients": 60, "delta": 1e-3},
        pytest.param(
            {"dimension": 20, "rounds": 3, "epsilon": 6.0, "clients": 60}, marks=pytest.mark.slow
        ),
    ],
)
def test_errors_are_those_of_running_the_schemes(changes):
    one = setting(**changes)
    advice = asked(**changes)
    for option in advice.options:
        if option.feasible:
            mse, error = simulated(one, option, 40)
            # Means of 40: beyond five standard errors with probability below 1e-4 (errors are nearly chi-squared).
            assert abs(mse - option.mse) <= 5 * error, option.name
    assert advice.best is not None


@judges(
    "vectors.advice.Advice.best",
    "vectors.advice.Option.epsilon",
    "vectors.setting.Setting.claim",
    "vectors.setting.Setting.release",
    "vectors.calibration.calibrated_gaussian",
    "vectors.calibration.calibrated_table",
)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"delta": 0.0},
        pytest.param({"dimension": 5, "rounds": 2}, marks=pytest.mark.slow),
        {"clients": 1},
        {"epsilon": 20.0, "clients": 30},
        {"corrupted": 100},
    ],
)
def test_options_keep_the_claim_use_it_and_are_ranked(changes):
    one = setting(**changes)
    advice = asked(**changes)
    feasible = [option for option in advice.options if option.feasible]
    assert [option.mse for option in feasible] == sorted(option.mse for option in feasible)
    assert list(advice.options[: len(feasible)]) == feasible
    for option in feasible:
        assert option.claim is not None
        assert option.scheme is not None
        assert option.epsilon <= one.epsilon
        assert option.claim.delta in (0.0, one.delta)
        assert option.claim.rounds == one.rounds
        claim = option.scheme.claim(
            clients=one.clients, rounds=one.rounds, corrupted=one.corrupted, delta=one.delta
        )
        assert claim.epsilon == option.epsilon
        assert (
            "least error" in option.reason
            or "error of the best" in option.reason
            or "as good" in option.reason
        )
    for option in advice.options[len(feasible) :]:
        assert option.epsilon == math.inf
        assert "; try " in option.reason
    assert asked(**changes).as_dict() == advice.as_dict()


def test_a_sum_of_one_is_a_single_report():
    alone, local = asked(clients=1), asked(clients=1, trust="local")
    assert [(o.name, o.mse, o.epsilon) for o in alone.options] == [
        (o.name, o.mse, o.epsilon) for o in local.options
    ]
    assert local.options[0].claim is not None
    assert local.options[0].claim.trust == "local"


@pytest.mark.parametrize(
    "changes", [{}, {"dimension": 300, "rounds": 20}, {"dimension": 9, "corrupted": 50}]
)
def test_rounded_gaussians_meet_the_claim_exactly_and_come_near_a_trusted_server(changes):
    one = setting(**changes)
    option = next(
        option for option in advise(one, tables=[]).options if option.name == "rounded Gaussian"
    )
    assert option.claim is not None
    assert not option.claim.certified
    # A closed form is solved to a millionth from below.
    assert one.epsilon * (1 - SOLVED) <= option.epsilon <= one.epsilon
    # A trusted server's Gaussian, as much more as the corrupted add nothing, and a twelfth of a step squared a client.
    least = (
        2
        * math.sqrt(one.rounds * one.clients / one.honest)
        / gaussian_shift(one.epsilon, one.delta)
    )
    # Two steps of deviation and more: rounding adds 1 / 48 of the variance at most.
    assert (
        (least / one.clients) ** 2
        <= option.mse
        <= (least / one.clients) ** 2 * (1 + 1 / 48) * (1 + MANY)
    )


def test_too_few_bits_leave_nothing_and_the_reason_says_so():
    nothing = asked(dimension=3, bits=2)
    assert nothing.best is None
    assert all("more bits" in option.reason for option in nothing.options)
    assert any("No scheme" in remark for remark in nothing.remarks)


def test_a_single_client_cannot_hide_and_is_told_so():
    advice = asked(clients=1)
    assert all(
        "worse than answering 0" in option.reason for option in advice.options if option.feasible
    )
    assert any("even a trusted server" in remark for remark in advice.remarks)


@pytest.mark.slow
def test_schemes_worse_than_answering_0_say_so():
    advice = asked(dimension=1000, rounds=500, clients=50)
    assert all(
        "worse than answering 0" in option.reason for option in advice.options if option.feasible
    )
    assert any("even a trusted server" in remark for remark in advice.remarks)
    local = asked(dimension=256, rounds=50, epsilon=1e-6, trust="local")
    assert any("epsilon=" in option.reason for option in local.options if not option.feasible)


@pytest.mark.slow
def test_fewer_bits_are_kept_and_cost_accuracy():
    free, tight = (asked(dimension=50, bits=bits, epsilon=8.0, clients=100) for bits in (None, 11))
    named = {option.name: option for option in free.options}
    for option in tight.options:
        if option.feasible:
            assert (option.wire_bits or 0) <= 11
            assert option.mse >= named[option.name].mse * 0.97


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 1e-6), (8.0, 1e-6), (0.001, 1e-5), (0.1, 0.3), (100.0, 1e-12)]
)
def test_the_yardsticks_gaussian_is_exactly_as_private_as_asked(epsilon, delta):
    mu = gaussian_shift(epsilon, delta)

    def exact(shift: float) -> Any:
        with mpmath.workdps(40):
            m, e = mpmath.mpf(shift), mpmath.mpf(epsilon)
            return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)

    assert exact(mu) <= delta * (1 + MANY)
    assert exact(mu * (1 + 1e-6)) > delta * (
        1 - 1e-4
    )  # a step of 1e-6 moves delta by less than 1e-4 of itself
    assert epsilon == pytest.approx(
        gaussian_epsilon(mu, delta), rel=1e-9
    )  # brackets of 1e-12; delta errs by as much


def test_the_search_finds_the_edge_and_says_when_there_is_none():
    def find(cost: Any, guess: float = 1.0) -> float:
        return search(lambda x: x, cost, guess=guess, target=2.0, least=1e-6, most=50.0)[0]  # pyright: ignore

    for cost in (lambda x: x, lambda x: x**3, lambda x: math.expm1(x)):
        for guess in (1e-5, 1.0, 40.0):
            found = find(cost, guess)
            assert cost(found) <= 2.0
            assert cost(found * 1.1) > 2.0 * CLOSE or cost(found) >= 2 * CLOSE
    assert find(lambda x: 0.1) == pytest.approx(50.0, rel=FEW)
    with pytest.raises(InfeasibleError, match="no noise"):
        find(lambda x: 3.0)


def test_a_search_ends_where_a_jump_leaves_nothing_to_win():
    """The cost jumps over the target at 4, and the error hardly falls any more: to the edge it wins a thousandth."""
    turns: list[float] = []

    def cost(x: float) -> float:
        turns.append(x)
        return 0.25 if x < 4 else 16.0

    def find(error: Any) -> float:
        turns.clear()
        return search(lambda x: x, cost, guess=1.0, target=2.0, least=1e-6, most=50.0, error=error)[
            0
        ]

    plain, slow = find(None), len(turns)
    assert plain == pytest.approx(4, rel=5e-3)  # brackets of 2e-3
    quick = find(lambda x: 1 + math.exp(-2 * x))
    assert quick < 4
    assert 1 + math.exp(-2 * quick) <= (1 + math.exp(-8)) * 1.005  # the share that may be left
    assert len(turns) < slow
    assert find(lambda x: 1 / x) == pytest.approx(
        plain, rel=5e-3
    )  # brackets of 2e-3, a share of 5e-3


@pytest.mark.parametrize(
    "changes",
    [
        {"clients": 0}, {"clients": 2.5}, {"clients": 10**10}, {"dimension": 0}, {"dimension": 2**30}, {"rounds": 0},
        {"trust": "server"}, {"epsilon": 0.0}, {"epsilon": math.inf}, {"epsilon": math.nan}, {"delta": 1.0},
        {"delta": -0.1}, {"delta": 1e-30}, {"delta": math.nan}, {"bits": 0}, {"corrupted": 200}, {"corrupted": -1},
        {"trust": "local", "corrupted": 3},
    ],
)  # fmt: skip
def test_bad_settings_are_refused_by_name(changes):
    with pytest.raises(ParameterError, match=list(changes)[-1]):
        setting(**changes)


# The page ------------------------------------------------------------------------------------------------------------

TABLES = Path(__file__).resolve().parents[2] / "docs" / "tables"
SETTINGS = {
    "advice-number": {"clients": 10**6, "rounds": 1, "epsilon": 1.0, "delta": 1e-6},
    "advice-vector": {
        "clients": 10**5, "dimension": 1000, "rounds": 1, "epsilon": 4.0, "delta": 0.0,
    },
    "advice-model": {"clients": 1000, "dimension": 10_000, "rounds": 589, "epsilon": 8.0, "delta": 1e-6},
}  # fmt: skip


def page_tables() -> dict[str, dict[tuple[str, str], tuple[float, int]]]:
    """File -> (trust, scheme) -> (error, bits per value), as printed."""
    found: dict[str, dict[tuple[str, str], tuple[float, int]]] = {}
    for name in SETTINGS:
        text = (TABLES / f"{name}.md").read_text(encoding="utf-8")
        rows = re.findall(
            r"^\| (sum|local) \| ([^|]+) \| ([0-9.e+-]+) \| (\d+) \|", text, re.MULTILINE
        )
        found[name] = {
            (trust, scheme.strip()): (float(mse), int(bits)) for trust, scheme, mse, bits in rows
        }
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("trust", ["sum", "local"])
def test_the_page_says_what_the_verb_says(name, trust):
    printed = {
        scheme: cells for (seen, scheme), cells in page_tables()[name].items() if seen == trust
    }
    one = setting(**SETTINGS[name], trust=trust)
    advice = advise(one, tables=candidates(one))
    computed = {option.name: option for option in advice.options if option.feasible}
    assert set(printed) == set(computed)
    for scheme, (mse, bits) in printed.items():
        # As printed, with two digits and more.
        assert computed[scheme].mse == pytest.approx(mse, rel=0.01)
        assert computed[scheme].wire_bits == bits


def test_the_page_ranks_by_error_and_knows_both_settings():
    tables = page_tables()
    assert set(tables) == set(SETTINGS)
    for rows in tables.values():
        for trust in ("sum", "local"):
            errors = [mse for (seen, _), (mse, _) in rows.items() if seen == trust]
            assert len(errors) >= 3
            assert errors == sorted(errors)


@judges("vectors.calibration.calibrated_ranked")
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"epsilon": 4.0, "delta": 0.0}, marks=pytest.mark.slow),
        pytest.param({"rounds": 20, "epsilon": 8.0}, marks=pytest.mark.slow),
        {"bits": 1},
    ],
)
def test_ranked_codebooks_are_an_option_for_vectors_that_everybody_sees(changes):
    one = setting(**{"dimension": 20, "trust": "local", "clients": 60, **changes})
    advice = advise(one)
    option = next(option for option in advice.options if option.name == "ranked codebook")
    assert option.feasible
    assert isinstance(option.scheme, RankedCodebook)
    assert option.claim is not None
    assert 0.9 * one.epsilon <= option.epsilon <= one.epsilon
    assert (option.claim.rounds, option.claim.trust) == (one.rounds, "local")
    assert option.claim.delta in (0.0, one.delta)
    assert option.client_bits == option.scheme.bits <= (one.bits or 60) * one.dimension
    vectors = vectors_of(one, np.random.default_rng(3))
    errors: list[float] = []
    for repeat in range(16):
        seeds = round_seeds(repeat, range(one.clients))
        mean = option.scheme.mean(option.scheme.encode(vectors, seeds, rng=repeat), seeds)
        errors.append(float(((mean - vectors.mean(axis=0)) ** 2).mean()))
    # Means of 16 with 20 coordinates each: five standard errors, below 1e-4.
    assert abs(float(np.mean(errors)) - option.mse) <= 5 * float(np.std(errors)) / math.sqrt(16)
    assert not [
        one for one in advise(setting(dimension=20)).options if one.name == "ranked codebook"
    ]


@pytest.mark.parametrize("dimension", [1, 2, 5, 20, 400])
def test_the_error_of_a_table_is_that_of_drawn_vectors(dimension: int) -> None:
    """Against drawn uniform scalars, or unit vectors: variance over clients, and the bias of clipping."""
    setting = Setting(
        clients=50, dimension=dimension, rounds=1, trust="local", epsilon=1.0, delta=1e-6
    )
    reach = 2.0 / math.sqrt(dimension) if dimension > 1 else 0.5
    table = rqm(lower=-reach, upper=reach, levels=4, extension=reach, q=0.5)
    rng = np.random.default_rng(11)
    if dimension == 1:
        points = rng.uniform(-1, 1, 100_000)
    else:
        # One coordinate of each of so many normal vectors, over their norms.
        coordinates = rng.normal(size=100_000)
        other_squares = rng.chisquare(dimension - 1, size=100_000)
        points = coordinates / np.sqrt(coordinates**2 + other_squares)
    clipped = np.clip(points, -reach, reach)
    probabilities = np.array([table.pmf(point) for point in np.linspace(-reach, reach, 401)])
    means = probabilities @ table.levels
    variances = probabilities @ table.levels**2 - means**2
    grid = np.linspace(-reach, reach, 401)
    errors = (
        np.interp(clipped, grid, variances) / 50 + (np.interp(clipped, grid, means) - points) ** 2
    )
    spread = errors.std() / math.sqrt(errors.size)
    # Five standard errors of the mean, and what interpolation and quadrature of a kink miss.
    assert abs(table_error(setting, table) - errors.mean()) <= 5 * spread + 0.01 * errors.mean()


@pytest.mark.parametrize("dimension", [2, 3, 8, 16])
def test_tables_that_cover_every_coordinate_are_not_said_to_clip(dimension: int) -> None:
    """Up to 16 coordinates tables reach as far as unit vectors do: all of the error is variance, that of one bit
    at +-A being A^2 - 1 / d a coordinate.
    """
    clients = 10**9
    setting = Setting(
        clients=clients, dimension=dimension, rounds=1, trust="local", epsilon=8.0, delta=0.0
    )
    assert setting.reach == 1.0
    table = ONE_BIT.build(1.0, setting.reach)
    variance = float(table.levels.max()) ** 2 - 1 / dimension
    assert table_error(setting, table) == pytest.approx(variance / clients, rel=SOLVED)
