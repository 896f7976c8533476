"""Means weighted by examples: the ratio of two sums, within the clipping norm, through mod and strategy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from federated.grids import LocalGrid
from federated.run_files import federate
from federated.test_app import CLIENTS, _grid, _settings
from mezzotint.cli import run
from mezzotint.core.errors import ParameterError
from mezzotint.datasets import load_federation
from mezzotint.families import stochastic_rounding
from mezzotint.federated.app import run_server
from mezzotint.federated.budgets import Sums
from mezzotint.federated.client_mod import SecureUpdates
from mezzotint.federated.encoding import (
    Encoding,
    FixedPointEncoding,
    GaussianEncoding,
    TableEncoding,
    canonical,
    gaussian_encoding,
)
from mezzotint.federated.encoding_files import load_encoding, packed, unpacked
from mezzotint.federated.models import model_for
from mezzotint.federated.policy import Policy
from mezzotint.federated.rehearsal import Rehearsal, mean_update
from mezzotint.federated.secure_strategy import SecureStrategy
from mezzotint.federated.wrapped_encodings import WeightedEncoding
from tolerances import MANY


def _noise(multiplier: float, size: int) -> GaussianEncoding:
    return gaussian_encoding(noise_multiplier=multiplier, clip_norm=2.0, clients=50, size=size + 1)


INNER: dict[str, Encoding] = {
    "fixed": FixedPointEncoding(clip=1.0, grid_bits=24),
    "fixed-l2": FixedPointEncoding(clip=2.0, grid_bits=24, clip_norm=2.0),
    "table": TableEncoding(mechanism=stochastic_rounding(lower=-1.0, upper=1.0, levels=129)),
    "noise": _noise(0.01, 6),
}


@pytest.mark.parametrize("name", INNER)
def test_the_mean_is_that_of_all_examples_up_to_the_cap(name):
    """Of 50 clients' short updates, by the definition; rounding and noise are far below the tolerance."""
    rng = np.random.default_rng(3)
    updates, examples = rng.uniform(-0.4, 0.4, (50, 6)), rng.integers(1, 60, 50)
    encoding = WeightedEncoding(inner=INNER[name], most_examples=40)
    found = mean_update(
        encoding, [np.append(x, m) for x, m in zip(updates, examples, strict=True)], rng=rng
    )
    expected = np.average(updates, axis=0, weights=np.minimum(examples, 40))
    # Six deviations of what is left in a sum, over the sum of weights, 50 times about 1/2: noise of 0.01 * 2, or
    # rounding of 50 reports to 129 levels in [-1, 1], each of deviation at most 1/128: 6 * sqrt(50) / 128 / 25 = 0.013.
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.015)


@pytest.mark.parametrize("examples", [0, 1, 20, 40, 10**9])
@pytest.mark.parametrize("length", [0.1, 1.0, 1e6])
def test_no_client_moves_the_sum_by_more_than_the_norm(examples, length, monkeypatch):
    """What the inner encoding is given has norm at most C: it never has to clip, so the weight is not distorted."""
    given: list[np.ndarray] = []

    def note(self: GaussianEncoding, vector: np.ndarray, *, rng: Any = None) -> np.ndarray:
        given.append(vector)
        return np.zeros(vector.size, dtype=np.int64)

    monkeypatch.setattr(GaussianEncoding, "encode", note)
    inner = gaussian_encoding(noise_multiplier=1.0, clip_norm=2.0, clients=40, size=4)
    encoding = WeightedEncoding(inner=inner, most_examples=40)
    direction = np.array([3.0, -4.0, 0.0]) / 5
    encoding.encode(np.append(length * direction, examples))
    (vector,) = given
    weight = min(examples, 40) / 40
    assert np.linalg.norm(vector) <= 2.0 * weight * (1 + MANY)
    assert vector[-1] == weight * 1.0
    np.testing.assert_allclose(
        vector[:-1], weight * min(length, 3**0.5) * direction, rtol=MANY, atol=0
    )


def test_claims_are_those_of_one_more_coordinate():
    inner = _noise(8.0, 6)
    encoding = WeightedEncoding(inner=inner, most_examples=40)
    sums = Sums(size=6, clients=40, rounds=3, delta=1e-5)
    claims = encoding.claims(sums)
    for view, claim in claims.items():
        assert claim.epsilon == inner.claims(replace(sums, size=7))[view].epsilon
    assert encoding.central(sums).epsilon == claims["central"].epsilon
    assert encoding.length(6) == inner.length(7)


def test_a_second_sum_near_zero_is_taken_as_the_least_it_can_be():
    inner = FixedPointEncoding(clip=1.0)
    encoding = WeightedEncoding(inner=inner, most_examples=10)
    total = 5 * inner.encode([0.1, 0.0])
    np.testing.assert_allclose(
        encoding.decode(total, count=5, size=1), 10 * 0.1, atol=10 * inner.step
    )
    assert encoding.decode(5 * inner.encode([0.1, -0.5]), count=5, size=1) == pytest.approx(
        1.0, abs=10 * inner.step
    )


def test_descriptions_and_what_makes_no_sense(tmp_path):
    for inner in INNER.values():
        encoding = WeightedEncoding(inner=inner, most_examples=40)
        again = unpacked(packed(encoding))
        assert again.as_dict() == encoding.as_dict()
        assert again.binding == encoding.binding != inner.binding
        (tmp_path / "encoding.json").write_text(canonical(encoding.as_dict()))
        assert load_encoding(tmp_path / "encoding.json").as_dict() == encoding.as_dict()
    with pytest.raises(ParameterError, match="weighs once"):
        WeightedEncoding(
            inner=WeightedEncoding(inner=INNER["fixed"], most_examples=2), most_examples=2
        )
    with pytest.raises(ParameterError, match="most_examples"):
        WeightedEncoding(inner=INNER["fixed"], most_examples=0)
    with pytest.raises(ParameterError, match="num-examples"):
        WeightedEncoding(inner=INNER["fixed"], most_examples=2).encode([0.1, -1.0])
    ranked = {"kind": "ranked", "most_examples": 4}
    assert run(federate(tmp_path, mechanism=ranked)) == 2


def _app(add: float, metrics: dict[str, Any]) -> ClientApp:
    app = ClientApp(mods=[SecureUpdates(Policy())])

    @app.train()
    def train(message: Message, context: Any) -> Message:
        arrays = next(iter(message.content.array_records.values()))
        new = {name: Array(np.asarray(array.numpy() + add)) for name, array in arrays.items()}
        content = RecordDict({"arrays": ArrayRecord(new), "metrics": MetricRecord(metrics)})
        return Message(content, reply_to=message)

    return app


def test_mod_and_strategy_weigh_by_the_metric_of_flower():
    """Updates 0..5 of 1..6 examples; a client that does not say how many weighs nothing, and nothing is told."""
    encoding = WeightedEncoding(inner=FixedPointEncoding(clip=8.0, grid_bits=20), most_examples=4)
    apps = [_app(float(place), {"num-examples": place + 1, "loss": 3.0}) for place in range(6)]
    grid = LocalGrid([*apps, _app(9.0, {"loss": 1.0})])
    strategy = SecureStrategy(encoding=encoding, clients_per_round=7)
    found = strategy.start(
        grid=grid, initial_arrays=ArrayRecord({"a": Array(np.zeros(3))}), num_rounds=1
    )
    expected = np.average(np.arange(6), weights=[1, 2, 3, 4, 4, 4])
    np.testing.assert_allclose(
        found.arrays["a"].numpy(), expected, atol=1e-3
    )  # a grid of 16 / 2**20, of weights too
    assert strategy.incidents == []
    assert not any(reply.content.metric_records for reply in grid.received)


def test_the_app_and_a_rehearsal_weigh_by_their_records(tmp_path):
    """The same mean in both, which all 12 clients' records determine, weighted by how many there are of each."""
    encoding = WeightedEncoding(inner=FixedPointEncoding(clip=1.0, grid_bits=24), most_examples=60)
    path = tmp_path / "weighted.json"
    path.write_text(canonical(encoding.as_dict()))
    settings = replace(
        _settings(tmp_path, mechanism=str(path), rounds=1, minimum=CLIENTS),
        server_learning_rate=1.0,
        dirichlet=0.5,
    )
    report = run_server(_grid(), settings)
    federation = load_federation("digits", clients=CLIENTS, dirichlet=0.5)
    model = model_for("softmax", federation)
    rehearsal = Rehearsal(
        federation=federation, model=model, clients_per_round=CLIENTS, learning_rate=1.0, rounds=1, every=1,
        training=settings.training,
    )  # fmt: skip
    assert report.loss[-1] == pytest.approx(
        rehearsal.run(encoding, seed=0)[-1][1], rel=1e-5
    )  # the app's float32
    alike = rehearsal.run(encoding.inner, seed=0)[-1][1]
    assert abs(report.loss[-1] - alike) > 1e-3  # and not that of clients that weigh alike


@pytest.mark.parametrize(
    "inner",
    [
        FixedPointEncoding(clip=0.4, grid_bits=24, clip_norm=4.0),
        TableEncoding(mechanism=stochastic_rounding(lower=-1.0, upper=0.1, levels=1025)),
        TableEncoding(mechanism=stochastic_rounding(lower=0.0, upper=0.4, levels=1025)),
        TableEncoding(mechanism=stochastic_rounding(lower=-1.0, upper=0.0, levels=1025)),
    ],
)
def test_the_weight_is_never_clipped(inner):
    """Where the range of a coordinate is narrower than half the norm, or not symmetric."""
    sign = -1.0 if inner.largest == 1.0 and inner.mechanism.upper == 0 else 1.0
    update = sign * np.array([0.05, 0.02])
    encoding = WeightedEncoding(inner=inner, most_examples=10)
    found = mean_update(encoding, [np.append(update, 10.0)] * 400, rng=np.random.default_rng(1))
    # A step of the coarsest grid, of which the mean of 400 roundings errs by a fortieth.
    np.testing.assert_allclose(found, update, atol=1e-3)


@pytest.mark.parametrize(
    ("inner", "unit", "most", "lost"),
    [
        (FixedPointEncoding(clip=1.0, grid_bits=4), 1.0, 6, 14),
        (FixedPointEncoding(clip=4.0, grid_bits=6, clip_norm=1.0), 0.5, 3, 25),
    ],
    ids=["range", "norm"],
)
def test_a_grid_on_which_light_clients_would_weigh_nothing_is_refused_with_numbers(
    inner, unit, most, lost
):
    """The weight 1 is 7 steps of 1/7, or 3.875 of 4/31: of 100 examples 14 and 25 are too few."""
    with pytest.raises(
        ParameterError, match=rf"up to {lost} examples would weigh 0 .* at most {most} there"
    ):
        WeightedEncoding(inner=inner, most_examples=100)
    assert int(lost / 100 * unit / inner.step) == 0 < int((lost + 1) / 100 * unit / inner.step)
    with pytest.raises(ParameterError, match="would weigh 0"):
        WeightedEncoding(inner=inner, most_examples=most + 1)
    light = WeightedEncoding(inner=inner, most_examples=most).encode([0.0, 1.0])
    assert light[1] > inner.span // 2


def test_where_no_weight_counts_on_a_grid_no_number_of_examples_is_named():
    inner = FixedPointEncoding(clip=1.0, grid_bits=2)
    with pytest.raises(ParameterError, match="grid of 2 bits: more grid_bits, or"):
        WeightedEncoding(inner=inner, most_examples=1)
