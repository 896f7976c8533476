"""Encodings: unbiased means from sums, norms that hold, claims against independent formulas, files and messages."""

from __future__ import annotations

import json
import math
import re
import zlib
from dataclasses import replace

import mpmath
import numpy as np
import pytest

from federated.rounds import plan, roster
from laws.registry import judges
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.core.mechanism import Mechanism
from mezzotint.families import rqm, stochastic_rounding
from mezzotint.federated.budgets import Sums, noise_within
from mezzotint.federated.encoding import (
    Encoding,
    FixedPointEncoding,
    GaussianEncoding,
    TableEncoding,
    canonical,
    gaussian_encoding,
)
from mezzotint.federated.encoding_files import encoding_from, load_encoding, packed, unpacked
from mezzotint.federated.policy import Policy, PolicyRefusal
from mezzotint.federated.secagg import PlanRefused, RoundPlan
from mezzotint.federated.wrapped_encodings import MetricsEncoding, WeightedEncoding
from tolerances import FEW, MANY

SIZE, CLIENTS = 20, 50


ENCODINGS: dict[str, Encoding] = {
    "table": TableEncoding(mechanism=rqm(lower=-0.5, upper=0.5, levels=16, extension=0.5, q=0.42)),
    "rotated table": TableEncoding(
        mechanism=stochastic_rounding(lower=-1, upper=1, levels=16), clip_norm=1.0, seed=3
    ),
    "fixed": FixedPointEncoding(clip=0.5, grid_bits=12, clip_norm=1.0),
    "rounded gaussian": gaussian_encoding(
        noise_multiplier=2.0, clip_norm=1.0, clients=CLIENTS, size=SIZE
    ),
}


def _updates(seed: int = 0) -> np.ndarray:
    """Vectors of norm below 1 and coordinates below 0.5: nothing is clipped."""
    return np.random.default_rng(seed).uniform(-0.2, 0.2, (CLIENTS, SIZE))


@pytest.mark.parametrize("name", ENCODINGS)
def test_the_sum_of_integers_decodes_to_the_mean_of_updates(name):
    """Mean squared error of 30 sums: within 35 % of what is predicted; no bias beyond 6 standard errors."""
    encoding, updates = ENCODINGS[name], _updates()
    errors = []
    for run in range(30):
        total = np.zeros(encoding.length(SIZE), dtype=np.int64)
        for place, update in enumerate(updates):
            integers = encoding.encode(update, rng=1000 * run + place)
            assert integers.min() >= 0
            assert integers.max() <= encoding.span
            total += integers
        total %= 2 ** encoding.bits(CLIENTS)
        errors.append(encoding.decode(total, count=CLIENTS, size=SIZE) - updates.mean(axis=0))
    found = np.array(errors)
    if name == "fixed":
        assert np.abs(found).max() <= encoding.step
        return
    if name == "rounded gaussian":
        expected = encoding.mse() / CLIENTS
        assert pytest.approx(encoding.noise_multiplier(CLIENTS), rel=FEW) == 2.0
    else:
        table = encoding.mechanism
        values = (
            updates
            if name == "table"
            else np.stack([encoding.scheme(SIZE, 1)._rotation.apply(u) for u in updates])
        )
        expected = float(table.variance(values).mean()) / CLIENTS
    # A mean of squares of `found.size` errors, each of relative deviation 1.4 or less (heavier tails of rotations: 2).
    assert np.mean(found**2) == pytest.approx(expected, rel=0.35)
    assert (np.abs(found.mean(axis=0)) < 6 * math.sqrt(expected / len(found)) + FEW).all()


@pytest.mark.parametrize("name", ["rotated table", "rounded gaussian"])
def test_longer_updates_are_clipped_to_the_norm(name):
    encoding = ENCODINGS[name]
    long = np.full(SIZE, 5.0)
    total = sum(encoding.encode(long, rng=seed) for seed in range(100)) % 2 ** encoding.bits(100)
    if encoding.overflow == "modular":
        # 100 equal updates wrap around a modulus planned for 50: read one at a time instead.
        parts = [
            encoding.decode(encoding.encode(long, rng=seed), count=1, size=SIZE)
            for seed in range(100)
        ]
        mean = np.mean(parts, axis=0)
    else:
        mean = encoding.decode(total, count=100, size=SIZE)
    # The norm of the clipped update, and of noise in all coordinates, which is about 0.4 at most with this many.
    assert np.linalg.norm(mean) == pytest.approx(1.0, abs=0.5)


@pytest.mark.parametrize("name", ENCODINGS)
def test_descriptions_travel_and_come_back(name, tmp_path):
    encoding = ENCODINGS[name]
    again = unpacked(packed(encoding))
    assert again.as_dict() == encoding.as_dict()
    assert again.binding == encoding.binding
    path = tmp_path / "encoding.json"
    path.write_text(canonical(encoding.as_dict()))
    assert load_encoding(path).binding == encoding.binding
    assert len(packed(encoding)) < 6000


def test_mechanism_files_are_encodings_too(tmp_path):
    mechanism = stochastic_rounding(lower=-1, upper=1, levels=4)
    mechanism.save(tmp_path / "m.json")
    assert load_encoding(tmp_path / "m.json", clip_norm=2.0).norm == 2.0


@pytest.mark.parametrize(
    "bad",
    [
        b"nothing",
        zlib.compress(b"[]"),
        zlib.compress(b'{"kind":"noise"}'),
        zlib.compress(b'{"kind":"new"}'),
        zlib.compress(b'{"kind":"fixed","clip":NaN,"grid_bits":4,"clip_norm":null}'),
        zlib.compress(b" " * (1 << 25) + b"{}"),
    ],
)
def test_damaged_descriptions_are_refused(bad):
    with pytest.raises((FileFormatError, ParameterError)):
        unpacked(bad)


@pytest.mark.parametrize(
    "junk", [[[]] * 300_000, [{}] * 300_000, {str(place): 0 for place in range(300_000)}]
)
def test_descriptions_of_too_many_parts_are_refused_before_they_are_read(junk, monkeypatch):
    monkeypatch.setattr(
        "mezzotint.federated.encoding_files.parse_json",
        lambda *_, **__: pytest.fail("it was read"),
    )
    with pytest.raises(FileFormatError, match="more lists, objects and fields"):
        unpacked(zlib.compress(json.dumps(ENCODINGS["fixed"].as_dict() | {"junk": junk}).encode()))


@pytest.mark.parametrize("name", ["rotated table", "rounded gaussian"])
@pytest.mark.parametrize("rotation", [None, "another"], ids=["padded", "another"])
def test_descriptions_with_another_rotation_are_refused_by_its_name(name, rotation):
    """Those of earlier versions name none: they padded. Decoding them with this one's signs would give nonsense."""
    values = ENCODINGS[name].as_dict()
    assert values.pop("rotation")
    with pytest.raises(FileFormatError, match=rotation or "padding"):
        encoding_from(values | ({"rotation": rotation} if rotation else {}))
    assert (
        "rotation" not in ENCODINGS["table"].as_dict()
    )  # nothing is rotated, and old descriptions are read


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("bad", [[math.nan, 1.0], [1.0, math.inf], [], [[1.0]]])
def test_updates_that_are_no_finite_vectors_are_refused(name, bad):
    with pytest.raises(ParameterError, match="update"):
        ENCODINGS[name].encode(bad)


@pytest.mark.parametrize("name", ["table", "rotated table", "rounded gaussian"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, 0.5, 1.0, "1", 2**70])
def test_sums_that_are_not_integers_are_refused(name, bad):
    with pytest.raises(ParameterError, match=r"total(\[0\])?="):
        ENCODINGS[name].decode(np.full(SIZE, bad), count=CLIENTS, size=SIZE)


def test_levels_on_no_lattice_are_refused():
    odd = Mechanism(
        knots=np.array([-1.0, 1.0]),
        levels=np.array([-math.pi, 0.1, 1.0, 3.3]),
        weights=np.array([[2**31, 2**31, 0, 0], [0, 0, 2**31, 2**31]]),
        name="odd",
    )
    with pytest.raises(ParameterError, match=r"lattice|levels"):
        TableEncoding(mechanism=odd)


@judges("federated.encoding.SchemeEncoding.claims")
def test_the_central_claim_is_that_of_a_gaussian():
    """Replace-one: sums are 2 C apart in each of three rounds."""
    multiplier, sums = 2.0, Sums(size=SIZE, clients=CLIENTS, rounds=3, delta=1e-5)
    claims = ENCODINGS["rounded gaussian"].claims(sums)
    exact = exact_gaussian(2 * math.sqrt(sums.rounds) / multiplier, sums.delta)
    assert exact <= claims["central"].epsilon < (1 + MANY) * exact
    assert claims["central"].neighboring == "replace_one"
    assert claims["local"].epsilon > claims["central"].epsilon


def exact_gaussian(mu: float, delta: float) -> float:
    """epsilon of N(mu, 1) and N(0, 1), by mpmath's own functions and root finding."""

    def excess(e: mpmath.mpf) -> mpmath.mpf:
        return mpmath.log(
            (mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)) / delta
        )

    with mpmath.workdps(30):
        return float(mpmath.findroot(excess, (0.1, 20), solver="illinois", tol=1e-24))


@pytest.mark.parametrize(
    ("clients", "bits", "share"), [(100, 8, 0.25), (1000, 10, 0.3125), (10_000, 12, 0.375)]
)
def test_rounded_gaussians_are_short_and_cost_what_a_gaussian_does(clients, bits, share):
    """A model of 1.1 million parameters, noise of eight norms: bits, epsilon at equal error, and the odds of a wrap."""
    size, delta, rounds = 1_100_000, 1e-5, 10
    encoding = gaussian_encoding(noise_multiplier=8.0, clip_norm=1.0, clients=clients, size=size)
    assert encoding.bits(clients) == bits
    assert encoding.length(size) * bits / (32 * size) == share
    claim = encoding.claims(Sums(rounds=rounds, clients=clients, size=size, delta=delta))["central"]
    error = math.sqrt(encoding.mse() * clients)
    assert 1 <= claim.epsilon / exact_gaussian(2 * math.sqrt(rounds) / error, delta) < 1.011
    assert (
        encoding.scheme(size).wrap_probability(clients) < 0.04
    )  # Hoeffding: one coordinate of a million


@pytest.mark.parametrize("clients", [1, 2, 5, 30, 300])
@pytest.mark.parametrize("size", [1, 3, 650, 7850])
@pytest.mark.parametrize("multiplier", [0.3, 2.0, 20.0])
def test_rounding_adds_at_most_two_percent_of_the_variance(clients, size, multiplier):
    encoding = gaussian_encoding(
        noise_multiplier=multiplier, clip_norm=0.3, clients=clients, size=size
    )
    assert encoding.noise_multiplier(clients) == pytest.approx(multiplier, rel=FEW)
    wanted = (multiplier * 0.3) ** 2 / clients
    assert wanted <= encoding.mse() * (1 + FEW) <= wanted * (1 + 1 / 48) * (1 + MANY)
    with pytest.raises(ParameterError, match="noise_multiplier"):
        gaussian_encoding(noise_multiplier=1e-30, clip_norm=0.3, clients=clients, size=size)


def test_fewer_honest_clients_cost_more():
    encoding = ENCODINGS["rounded gaussian"]
    sums = Sums(size=SIZE, clients=CLIENTS, delta=1e-5)
    honest, some = (
        encoding.claims(replace(sums, corrupted=bad))["central"].epsilon for bad in (0, 25)
    )
    assert some > 1.2 * honest


@pytest.mark.parametrize("name", ENCODINGS)
def test_decoding_draws_nothing(name):
    encoding = ENCODINGS[name]
    total = encoding.encode(_updates()[0], rng=1)
    first, again = (encoding.decode(total, count=1, size=SIZE) for _ in range(2))
    np.testing.assert_array_equal(first, again)


def _plan(encoding: Encoding) -> RoundPlan:
    return plan(
        CLIENTS,
        minimum=32,
        coordinates=32,
        span=encoding.span,
        bits=encoding.bits(CLIENTS),
        overflow=encoding.overflow,
        binding=encoding.binding,
    )


def test_a_policy_on_noise_counts_the_smallest_sum_without_the_corrupted():
    """Of 40 clients a twentieth is corrupted, so that 30 of the 32 honest noises count."""
    encoding, known = ENCODINGS["rounded gaussian"], roster(CLIENTS)
    least = 2.0 * math.sqrt(32 / CLIENTS)
    asked = least * 0.99
    Policy(noise_multiplier=asked, clip_norm=1.0, roster=known, corrupted=0.0).check(
        encoding, _plan(encoding)
    )
    fewer = least * math.sqrt(30 / 32)
    twentieth = {"roster": known, "corrupted": 2 / CLIENTS}
    Policy(noise_multiplier=fewer * 0.99, **twentieth).check(encoding, _plan(encoding))
    for policy in (
        Policy(noise_multiplier=least * 1.01, roster=known, corrupted=0.0),
        Policy(noise_multiplier=fewer * 1.01, **twentieth),
    ):
        with pytest.raises(PolicyRefusal, match="noise_multiplier"):
            policy.check(encoding, _plan(encoding))
    for other in ("table", "fixed"):
        with pytest.raises(PolicyRefusal, match="noise_multiplier"):
            Policy(noise_multiplier=0.1, roster=known).check(
                ENCODINGS[other], _plan(ENCODINGS[other])
            )
    with pytest.raises(ParameterError, match="noise_multiplier"):
        Policy(noise_multiplier=math.nan)


def test_noise_that_is_planned_for_what_a_policy_asks_for_is_accepted():
    """Multipliers go through a square root and two quotients; of 8.0 for 5 clients 7.999... came back."""
    for clients in range(2, CLIENTS + 1):
        for multiplier in (0.5, 1.1, 8.0):
            encoding = gaussian_encoding(
                noise_multiplier=multiplier, clip_norm=0.3, clients=clients, size=32
            )
            smallest = replace(
                _plan(encoding), minimum=clients, bits=encoding.bits(CLIENTS), span=encoding.span
            )
            known = {"roster": roster(CLIENTS), "corrupted": 0.0}
            Policy(noise_multiplier=multiplier, **known).check(encoding, smallest)
            with pytest.raises(PolicyRefusal, match="noise_multiplier"):
                Policy(noise_multiplier=multiplier * (1 + 1e-9), **known).check(encoding, smallest)


@pytest.mark.parametrize(
    ("name", "rule", "asked"),
    [
        ("table", "report_epsilon", lambda encoding: encoding.report_epsilon),
        ("table", "largest_value", lambda encoding: encoding.largest),
        ("fixed", "clip_norm", lambda encoding: encoding.norm),
    ],
)
def test_a_refusal_shows_two_numbers_of_which_the_first_is_more(name, rule, asked):
    """By one part in 2**52: rounded to six digits, both would read the same."""
    encoding = ENCODINGS[name]
    amount = asked(encoding)
    Policy(**{rule: amount}).check(encoding, _plan(encoding))
    with pytest.raises(PolicyRefusal) as refused:
        Policy(**{rule: math.nextafter(amount, 0)}).check(encoding, _plan(encoding))
    more, allowed = re.findall(r"\d[\d.e-]*", str(refused.value))
    assert float(more) == amount > float(allowed)


@pytest.mark.parametrize("unit", [5e-324, 1e-310, 1e-60, 1e60, 1.75e308])
@pytest.mark.parametrize("name", ["rounded gaussian", "rotated table", "fixed"])
def test_units_in_which_floats_lose_digits_or_overflow_are_refused_also_of_a_description(
    name, unit
):
    """A step of such a size times the noise was infinite, which is more than any policy asks for; or a rounded norm."""
    values = json.loads(json.dumps(ENCODINGS[name].as_dict()))
    forged = (
        values
        | {"clip_norm": unit}
        | ({"granularity": unit / 8 or unit} if "granularity" in values else {})
    )
    with pytest.raises(ParameterError, match="clip_norm"):
        unpacked(zlib.compress(canonical(forged).encode()))
    if "granularity" in values:
        with pytest.raises(ParameterError, match="granularity"):
            encoding_from(values | {"granularity": unit})


@pytest.mark.parametrize("unit", [5e-324, 1e60, 1.75e308])
def test_ranges_of_metrics_and_levels_of_such_a_size_are_refused(unit):
    with pytest.raises(ParameterError, match="ranges"):
        MetricsEncoding.gaussian({"loss": (0.0, unit)}, noise_multiplier=2.0, clients=CLIENTS)
    with pytest.raises(ParameterError, match="ranges"):
        MetricsEncoding.gaussian({"loss": (-1.5e308, 1.0)}, noise_multiplier=2.0, clients=CLIENTS)
    with pytest.raises(ParameterError, match="clip"):
        FixedPointEncoding(clip=unit)


@pytest.mark.parametrize("change", [-0.01, 0.01])
def test_a_policy_may_name_noise_by_its_hash_whatever_the_unit_but_not_of_finer_steps(change):
    encoding = ENCODINGS["rounded gaussian"]
    assert isinstance(encoding, GaussianEncoding)
    scaled = replace(
        encoding, clip_norm=encoding.clip_norm * 3.7, granularity=encoding.granularity * 3.7
    )
    finer = replace(encoding, granularity=encoding.granularity * (1 + change))
    assert scaled.sha256 == encoding.sha256 != finer.sha256
    policy = Policy(mechanisms=(encoding.sha256,))
    policy.check(scaled, _plan(scaled))
    with pytest.raises(PolicyRefusal, match="mechanism="):
        policy.check(finer, _plan(finer))


def test_a_description_that_could_not_be_read_again_is_refused():
    """One letter of a name is two bytes as it travels and six as it is noted: a ledger would be unreadable for good."""
    metrics = MetricsEncoding.gaussian({"loss": (0, 5)}, noise_multiplier=8.0, clients=100)
    described = metrics.as_dict() | {"ranges": [["é" * 3_000_000, 0, 5]]}
    text = json.dumps(described, ensure_ascii=False)
    with pytest.raises(FileFormatError, match="too long"):
        unpacked(zlib.compress(text.encode()))


@pytest.mark.parametrize("noise", ["discrete Gaussian", "", None, "x" * 1000])
def test_noise_of_another_name_is_refused(noise):
    """Read as rounded Gaussian noise it would claim what is not proved of it."""
    described = ENCODINGS["rounded gaussian"].as_dict() | {"name": noise}
    with pytest.raises(FileFormatError, match="this version's 'rounded Gaussian'") as refused:
        encoding_from(described)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("seed", [math.nan, math.inf, "x", None, [1]])
@pytest.mark.parametrize("name", ["rounded gaussian", "rotated table"])
def test_a_seed_that_is_no_number_is_refused_by_name(name, seed):
    with pytest.raises((FileFormatError, ParameterError)):
        encoding_from(json.loads(json.dumps(ENCODINGS[name].as_dict())) | {"seed": seed})


@pytest.mark.parametrize("inner", [None, 3, "noise", [1], [[]], True])
@pytest.mark.parametrize("kind", ["metrics", "weighted"])
def test_an_inner_encoding_that_is_none_is_refused(kind, inner):
    values = {"kind": kind, "inner": inner, "ranges": [["a", 0, 1]], "most_examples": 1}
    with pytest.raises(FileFormatError):
        unpacked(zlib.compress(json.dumps(values).encode()))


@pytest.mark.parametrize("depth", [2, 900, 5000])
def test_encodings_in_one_another_without_end_are_refused(depth):
    text = '{"kind":"weighted","most_examples":1,"inner":' * depth + json.dumps(
        ENCODINGS["fixed"].as_dict()
    )
    with pytest.raises((FileFormatError, ParameterError)):
        unpacked(zlib.compress((text + "}" * depth).encode()))


def test_more_metrics_than_there_can_be_are_refused_unread():
    with pytest.raises(ParameterError, match="ranges"):
        MetricsEncoding.gaussian(
            {str(k): (0.0, 1.0) for k in range(1001)}, noise_multiplier=2.0, clients=CLIENTS
        )


@pytest.mark.parametrize("kind", [None, 3, ["table"], {"a": 1}, "x"])
def test_a_kind_that_there_is_not_is_refused(kind):
    with pytest.raises(ParameterError, match="this version knows"):
        encoding_from({"kind": kind})


def test_steps_too_fine_for_what_draws_the_noise_are_refused_when_the_encoding_is_made():
    with pytest.raises(ParameterError, match="granularity"):
        replace(ENCODINGS["rounded gaussian"], granularity=2.0**-37)
    replace(ENCODINGS["rounded gaussian"], granularity=2.0**-36)


@pytest.mark.parametrize("noise", [math.inf, math.nan])
def test_noise_that_is_no_number_passes_no_policy(monkeypatch, noise):
    encoding = ENCODINGS["rounded gaussian"]
    monkeypatch.setattr(GaussianEncoding, "noise_multiplier", lambda self, clients: noise)
    with pytest.raises(PolicyRefusal, match="noise_multiplier"):
        Policy(noise_multiplier=0.1, roster=roster(CLIENTS)).check(encoding, _plan(encoding))


_METRICS = MetricsEncoding.gaussian(
    {"loss": (0.0, 5.0), "hits": (0.0, 1.0)}, noise_multiplier=2.0, clients=CLIENTS
)
_WITHOUT = ENCODINGS | {
    "metrics": _METRICS,
    "weighted": WeightedEncoding(inner=ENCODINGS["fixed"], most_examples=4),
    "weighted metrics": MetricsEncoding.gaussian(
        {"loss": (0.0, 5.0)}, noise_multiplier=2.0, clients=CLIENTS, most_examples=4
    ),
}


@pytest.mark.parametrize("name", _WITHOUT)
def test_a_client_without_an_input_can_be_encoded_like_one_with(name):
    """Zero of an update, the middle of a range, no weight; and as many integers as of any other client."""
    encoding = _WITHOUT[name]
    vector = encoding.nothing(SIZE)
    assert encoding.encode(vector, rng=1).size == encoding.length(encoding.numbers(SIZE))
    middles = {"metrics": [2.5, 0.5], "weighted metrics": [2.5, 0.0]}
    assert vector.tolist() == middles.get(name, [0.0] * (SIZE + encoding.weighs))


@pytest.mark.parametrize(
    "asked", [{"minimum": 3}, {"noise_multiplier": 0.1}], ids=["minimum", "noise_multiplier"]
)
def test_what_a_server_could_fill_with_inventions_needs_a_roster(asked):
    with pytest.raises(ParameterError, match="name the roster"):
        Policy(**asked)
    Policy(**asked, roster=roster(4))


def test_settings_that_make_no_sense_are_refused():
    for bad in ({"noise_multiplier": 0.0}, {"noise_multiplier": math.inf}, {"clip_norm": -1.0}):
        with pytest.raises(ParameterError, match=next(iter(bad))):
            gaussian_encoding(
                **({"noise_multiplier": 1.0, "clip_norm": 1.0} | bad), clients=5, size=5
            )
    for epsilon in (math.nan, math.inf, 0.0, "1"):
        with pytest.raises(ParameterError, match="budget="):
            noise_within(epsilon, ENCODINGS.get, Sums(size=5, clients=5, delta=1e-6))
    with pytest.raises(ParameterError, match="clip_norm"):
        TableEncoding(mechanism=stochastic_rounding(lower=-1, upper=1, levels=4), clip_norm=0.0)
    with pytest.raises(ParameterError, match="modulus_bits"):
        GaussianEncoding(deviation=2.0, clip_norm=1.0, granularity=1.0, modulus_bits=40)
    with pytest.raises(ParameterError, match="deviation"):
        GaussianEncoding(deviation=0.5, clip_norm=1.0, granularity=1.0, modulus_bits=8)
    assert json.loads(canonical(ENCODINGS["fixed"].as_dict()))["kind"] == "fixed"


@pytest.mark.parametrize(
    ("epsilon", "rounds", "corrupted"), [(2.0, 10, 0), (0.5, 1, 20), (30.0, 4, 0)]
)
def test_the_noise_for_an_epsilon_keeps_to_it_and_hardly_less_noise_would_not(
    epsilon: float, rounds: int, corrupted: int
) -> None:
    asked = {"clients": 100, "size": 500, "clip_norm": 0.7}
    told = {"rounds": rounds, "delta": 1e-6, "corrupted": corrupted}
    found = gaussian_encoding(epsilon=epsilon, **asked, **told)
    sums = Sums(size=500, clients=100, **told)
    claim = found.central(sums)
    assert 0.999 * epsilon < claim.epsilon <= epsilon
    quieter = gaussian_encoding(noise_multiplier=0.999 * found.noise_multiplier(100), **asked)
    assert quieter.central(sums).epsilon > epsilon


@pytest.mark.parametrize("both", [{}, {"noise_multiplier": 1.0, "epsilon": 1.0}])
def test_noise_is_named_or_found(both: dict[str, float]) -> None:
    with pytest.raises(ParameterError, match="noise_multiplier"):
        gaussian_encoding(clip_norm=1.0, clients=10, size=5, **both)
    with pytest.raises(ParameterError, match="epsilon"):
        gaussian_encoding(clip_norm=1.0, clients=10, size=5, epsilon=0.0)


@pytest.mark.parametrize("change", [-1, 1, 7])
@pytest.mark.parametrize("name", ENCODINGS)
def test_a_policy_knows_the_modulus(name: str, change: int) -> None:
    """Residues modulo 2**k that are summed modulo more tell, without noise, how many of them wrapped."""
    encoding = ENCODINGS[name]
    bits = encoding.bits(CLIENTS)
    right = plan(
        CLIENTS, span=encoding.span, bits=bits, overflow=encoding.overflow, binding=encoding.binding
    )
    Policy().check(encoding, right)
    try:
        wrong = replace(right, bits=bits + change)
    except PlanRefused:
        return  # no plan at all
    with pytest.raises(PolicyRefusal, match=f"bits={bits + change}"):
        Policy().check(encoding, wrong)
