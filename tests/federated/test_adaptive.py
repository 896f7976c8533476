"""Adaptive clipping norms: what is sent, how the norm moves, what is refused, through mod, strategy and app."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from federated.grids import LocalGrid
from federated.test_app import CLIENTS, _grid, _settings
from mezzotint.cli import run
from mezzotint.core.errors import InfeasibleError, ParameterError
from mezzotint.federated.app import run_server
from mezzotint.federated.encoding import (
    FixedPointEncoding,
    GaussianEncoding,
    canonical,
    gaussian_encoding,
)
from mezzotint.federated.joined import (
    MOST_COST,
    AdaptiveEncoding,
    WeightedEncoding,
    adaptive_encoding,
    cost_of_bits,
    encoding_from,
    load_encoding,
    packed,
    unpacked,
)
from mezzotint.federated.ledger import Checkpoint
from mezzotint.federated.lifetime import LifetimeLedger
from mezzotint.federated.mod import SecureUpdates
from mezzotint.federated.policy import Policy, PolicyRefusal, load_policy
from mezzotint.federated.strategy import SecureStrategy
from mezzotint.federated.tasks import mean_update
from mezzotint.vectors import ranked_codebook
from tolerances import MANY


def _small(clients: int, size: int, *, noise: float = 1e-3, **others: Any) -> AdaptiveEncoding:
    """For few clients, with noise that is hardly there and a bit that is as large as the update."""
    inner = gaussian_encoding(
        noise_multiplier=noise, l2_norm=2**0.5, clients=clients, size=size + 1
    )
    return AdaptiveEncoding(inner=inner, **others)


def test_every_vector_has_the_norm_that_the_noise_is_for(monkeypatch):
    """Before the inner encoding clips: at most R, so that no bit is distorted, and two clients as far apart as 2 R."""
    given: list[np.ndarray] = []
    monkeypatch.setattr(
        GaussianEncoding, "encode", lambda self, vector, rng=None: given.append(vector)
    )
    encoding = adaptive_encoding(noise_multiplier=9.0, clip=0.3, clients=600, size=2)
    for update in ([0.3, 0.0], [-0.3 * 1.001, 0.0], [0.0, 0.0], [0.1, 0.1], [1e9, -1e9]):
        encoding.encode(update)
    norm = encoding.inner.l2_norm
    assert max(np.linalg.norm(vector) for vector in given) <= norm * (1 + MANY)
    assert np.linalg.norm(given[0] - given[1]) == pytest.approx(2 * norm, rel=MANY)
    # w from R^2 - 1, as in the law.
    unit = 2 * math.sqrt(norm**2 - 1)
    np.testing.assert_allclose(
        [vector[-1] / unit for vector in given], [0.5, -0.5, 0.5, 0.5, -0.5], rtol=MANY
    )
    np.testing.assert_allclose(given[3][:-1], np.array([0.1, 0.1]) / 0.3, rtol=MANY)


def test_the_mean_and_the_share_come_back_and_the_norm_moves_by_the_rule():
    """Within six deviations of the noise that is said to be there."""
    rng = np.random.default_rng(5)
    lengths = rng.uniform(0.0, 1.0, 800)
    directions = rng.normal(size=(800, 10))
    updates = list(
        lengths[:, None] * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    )
    encoding = adaptive_encoding(
        noise_multiplier=4.0, clip=0.25, clients=800, size=10, quantile=0.7, rate=0.3
    )
    mean, following = mean_update(encoding, updates, rng=rng)
    expected = np.mean([x * min(1.0, 0.25 / np.linalg.norm(x)) for x in updates], axis=0)
    # Noise of 4 C cost / 800 and its rounding, 2 % of a variance.
    np.testing.assert_allclose(mean, expected, rtol=0, atol=6 * 1.01 * 4 * 0.25 * MOST_COST / 800)
    assert isinstance(following, AdaptiveEncoding)
    share = 0.7 - math.log(following.clip / 0.25) / 0.3
    # A deviation of 1/20 of a client in so many, and a percent for rounding.
    assert share == pytest.approx(np.mean(lengths <= 0.25), abs=6 * 1.01 / 20)
    assert following == replace(encoding, clip=following.clip)


def test_the_norm_ends_up_at_the_quantile_and_stays_in_its_range():
    """Norms uniform in [0, 1]: from .05 the norm rises to the quantile .6, or to where it may not go further."""
    rng = np.random.default_rng(6)
    updates = [np.array([length]) for length in np.linspace(0, 1, 400)]
    for most, expected, rounds in ((5.0, 0.6, 40), (0.2, 0.2, 15)):
        encoding = adaptive_encoding(
            noise_multiplier=3.0,
            clip=0.05,
            clients=400,
            size=1,
            quantile=0.6,
            rate=0.5,
            clip_range=(0.01, most),
        )
        for _ in range(rounds):
            _, encoding = mean_update(encoding, updates, rng=rng)
        # Each round moves log C by rate times an error of deviation 1/20; the pull back makes a stationary deviation
        # of about rate * .05 / sqrt(2 * rate * .6) = .033 of it, six of which are .2.
        assert encoding.clip == pytest.approx(expected, rel=0.2)
        assert 0.01 <= encoding.clip <= most


def test_few_clients_are_told_what_it_would_cost():
    with pytest.raises(InfeasibleError, match=r"1\.21 times the noise.*Use 287 clients a round"):
        adaptive_encoding(noise_multiplier=5.64, clip=0.3, clients=100, size=10)
    with pytest.raises(InfeasibleError, match="infinitely much noise"):
        adaptive_encoding(noise_multiplier=5.64, clip=0.3, clients=50, size=10)
    assert cost_of_bits(5.64, 286) > MOST_COST >= cost_of_bits(5.64, 287)
    assert (
        adaptive_encoding(noise_multiplier=5.64, clip=0.3, clients=287, size=10).inner.l2_norm
        <= MOST_COST
    )
    told = [
        "federate",
        "--mechanism",
        "rounded-gaussian",
        "--noise-multiplier",
        "5",
        "--clip-quantile",
        "0.5",
    ]
    assert run(told) != 0


def test_descriptions_and_what_makes_no_sense():
    encoding = _small(6, 3, clip=0.2, quantile=0.9, least=0.1, most=0.4)
    for one in (encoding, encoding.accounted):
        again = unpacked(packed(one))
        assert again == one
        assert again.binding == one.binding
    assert encoding.norm == encoding.largest == 0.2
    assert encoding.mse() == pytest.approx(0.04 * encoding.inner.mse(), rel=MANY)
    assert encoding.accounted == replace(encoding, clip=0.3).accounted
    for change in (
        {"clip": 0.5},
        {"clip": 0.0},
        {"quantile": 1.0},
        {"rate": 0.0},
        {"clip": math.nan},
    ):
        with pytest.raises(ParameterError):
            replace(encoding, **change)
    with pytest.raises(ParameterError, match="above 1"):
        replace(
            encoding, inner=gaussian_encoding(noise_multiplier=1, l2_norm=1.0, clients=6, size=4)
        )
    with pytest.raises(ParameterError, match="weighs once"):
        WeightedEncoding(inner=encoding, most_examples=5)
    damaged = encoding.as_dict() | {"inner": FixedPointEncoding(clip=1.0).as_dict()}
    with pytest.raises(ParameterError, match="not a rounded Gaussian"):
        encoding_from(damaged)


def test_sums_under_different_norms_compose_as_those_under_one(tmp_path):
    """On a client's ledger of its life: not added up, as sums of different encodings are."""
    encoding = adaptive_encoding(noise_multiplier=8.0, clip=0.3, clients=500, size=20)
    ledger = LifetimeLedger(tmp_path / "sums.jsonl", identity="ab")
    for place, norm in enumerate((0.3, 0.1, 0.7)):
        total = ledger.charge(
            replace(encoding, clip=norm),
            plan=bytes([place]),
            clients=400,
            corrupted=9,
            size=20,
            budget=9.0,
            delta=1e-5,
        )
    claim = encoding.central(rounds=3, clients=400, corrupted=9, size=20, delta=1e-5)
    assert claim is not None
    assert total == claim.epsilon


def _app(update: np.ndarray) -> ClientApp:
    app = ClientApp(mods=[SecureUpdates(Policy(l2_norm_range=(0.1, 2.0)))])

    @app.train()
    def train(message: Message, context: Any) -> Message:
        return Message(RecordDict({"arrays": ArrayRecord({"a": Array(update)})}), reply_to=message)

    return app


def test_mod_and_strategy_move_the_norm_with_every_round_that_has_a_sum():
    """Updates along one axis of norms .25 to 1.5: with C = 1 four of six are within it, then C shrinks; all below."""
    updates = [np.array([0.25 * number, 0.0]) for number in range(1, 7)]
    grid = LocalGrid([_app(update) for update in updates])
    encoding = _small(6, 2, clip=1.0, quantile=0.5, rate=1.0, least=0.1, most=2.0)
    strategy = SecureStrategy(encoding=encoding, per_round=6, returns="update")
    norm, model, start = 1.0, 0.0, ArrayRecord({"a": Array(np.zeros(2))})
    for _ in range(3):
        result = strategy.start(grid=grid, initial_arrays=start, num_rounds=1)
        (metrics,) = result.train_metrics_clientapp.values()
        # As below.
        assert metrics["l2_norm"] == pytest.approx(norm, rel=0.01)
        model += np.mean([min(one[0], norm) for one in updates])
        norm *= math.exp(0.5 - np.mean([one[0] <= norm for one in updates]))
        start = result.arrays
        # The noise has a deviation of C times 1e-3 * sqrt(2) on sums, and on the share of as much over w = 2: less than
        # 1e-2 in six deviations each, in three rounds.
        assert strategy.encoding.norm == pytest.approx(norm, rel=0.01)
        # Twice what the noise adds up to.
        np.testing.assert_allclose(start["a"].numpy(), [model, 0.0], rtol=0, atol=0.02)
    assert strategy.incidents == []


def test_a_norm_outlives_the_server(tmp_path):
    """Two rounds, then a new server for two more: each begins with the norm that the one before it left."""
    path = tmp_path / "adaptive.json"
    encoding = _small(CLIENTS, 650, clip=0.5, quantile=0.5, least=0.01, most=2.0)
    path.write_text(canonical(encoding.as_dict()))
    settings = replace(
        _settings(tmp_path, mechanism=str(path), rounds=2, minimum=CLIENTS),
        out=str(tmp_path / "run"),
        learning_rate=0.1,
    )
    lines: list[str] = []
    before = run_server(_grid(), settings, lines.append)
    assert len(before.l2_norms) == 3
    assert before.l2_norms[0] == 0.5 != before.l2_norms[2]
    assert f"clipping norm {before.l2_norms[2]:.4g}" in lines[-1]
    assert Checkpoint.load(tmp_path / "run").l2_norm == before.l2_norms[2]
    after = run_server(_grid(), replace(settings, rounds=4))
    assert after.l2_norms[:3] == before.l2_norms
    assert len(after.l2_norms) == 5
    assert after.claims["central"]["epsilon"] > before.claims["central"]["epsilon"]


def test_policies_name_a_range(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text("l2_norm_range = [0.1, 2.0]\n")
    assert load_policy(path).l2_norm_range == (0.1, 2.0)
    for bad in ((2.0, 0.1), (0.1,), (-1.0, 2.0), (0.1, math.inf), (math.nan, 2.0)):
        with pytest.raises(ParameterError, match="l2_norm_range"):
            Policy(l2_norm_range=bad)  # type: ignore[arg-type]
    strategy = SecureStrategy(encoding=FixedPointEncoding(clip=1.0), per_round=6)
    with pytest.raises(PolicyRefusal, match="l2_norm=None"):
        load_policy(path).check(strategy.encoding, strategy.plan(6, 1, 3))
    load_policy(path).check_report(ranked_codebook(16, 4.0, 4, clip_norm=2.0))
    with pytest.raises(PolicyRefusal, match=r"clip_norm=2\.1"):
        load_policy(path).check_report(ranked_codebook(16, 4.0, 4, clip_norm=2.1))


def test_the_command_writes_a_norm_that_adapts_and_finds_its_noise(tmp_path, capsys):
    """The noise is for mean and count together: what is written keeps to the budget, and takes most of it."""
    told = [
        "federate",
        "--mechanism",
        "rounded-gaussian",
        "--clip-quantile",
        "0.7",
        "--l2-norm",
        "0.5",
        "--l2-norm-range",
        "0.1",
        "2",
    ]
    drawn = [
        "--clients",
        "600",
        "--per-round",
        "600",
        "--rounds",
        "2",
        "--epsilon",
        "2",
        "--participation",
        "cyclic",
    ]
    assert run([*told, *drawn, "--app", str(tmp_path / "app")]) == 0
    encoding = load_encoding(next((tmp_path / "app").rglob("encoding.json")))
    assert isinstance(encoding, AdaptiveEncoding)
    assert (encoding.clip, encoding.quantile, encoding.least, encoding.most) == (0.5, 0.7, 0.1, 2.0)
    claim = encoding.central(rounds=2, clients=301, size=650, delta=1e-6)
    assert claim is not None
    assert 1.9 < claim.epsilon <= 2.0
    assert f"--noise-multiplier {encoding.noise_multiplier(600):.6g}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--mechanism", "ddg"], ["--most-examples", "9"], ["--trust", "local"]]
)
def test_the_command_refuses_what_does_not_go_together(words, capsys):
    told = ["federate", "--mechanism", "rounded-gaussian", "--clip-quantile", "0.5", *words]
    assert run(told) == 2
    assert "--clip-quantile" in capsys.readouterr().err
