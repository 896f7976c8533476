"""Clients that send more than they may: what they move before a sum is refused, and that honest sums are not."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from federated.grids import LocalGrid
from mezzotint.federated.client_mod import SecureUpdates
from mezzotint.federated.encoding import GaussianEncoding, gaussian_encoding
from mezzotint.federated.policy import Policy
from mezzotint.federated.secagg import OutOfRangeInteger
from mezzotint.federated.secure_strategy import SecureStrategy
from mezzotint.federated.wrapped_encodings import MetricsEncoding, WeightedEncoding

CLIENTS, SIZE, MULTIPLIER = 50, 1000, 8.0


def _encoding(clients: int = CLIENTS, size: int = SIZE) -> GaussianEncoding:
    return gaussian_encoding(noise_multiplier=MULTIPLIER, clip_norm=1.0, clients=clients, size=size)


def _shift_at_half_power(encoding: GaussianEncoding, clients: int, signal: float) -> float:
    """The norm of what is added to a sum that is refused half of the time: where the mean of |S + A + Z|^2 is."""
    largest = encoding.largest_honest_norm(count=clients, size=SIZE)
    noise = clients * encoding.scheme(SIZE).variance * SIZE
    return math.sqrt(largest**2 - noise - signal**2)


@pytest.mark.parametrize("norm", [0.0, 1.0])
def test_honest_sums_pass_also_where_all_updates_are_equal(norm: float) -> None:
    """False alarm below 2^-40 each; the largest signal there is, and none."""
    encoding = _encoding()
    update = np.zeros(SIZE)
    update[0] = norm
    for seed in range(40):
        reports = [encoding.encode(update, rng=1000 * seed + place) for place in range(CLIENTS)]
        encoding.check_sum(np.sum(reports, axis=0), count=CLIENTS, size=SIZE)


@pytest.mark.parametrize("attackers", [1, 2, 3, 4, 5])
def test_several_attackers_move_no_more_than_one(attackers: int) -> None:
    """Of 50 clients some send the same long vector: refused at 1.15 of the norm at half power, let pass at .8."""
    encoding = _encoding()
    honest = CLIENTS - attackers
    rng = np.random.default_rng(attackers)
    updates = rng.normal(size=(honest, SIZE))
    updates /= np.linalg.norm(updates, axis=1, keepdims=True)
    signal = float(np.linalg.norm(updates.sum(axis=0)))
    half = _shift_at_half_power(encoding, CLIENTS, signal)
    direction = rng.normal(size=SIZE)
    direction /= np.linalg.norm(direction)
    unbounded = dataclasses.replace(encoding, clip_norm=1e6 * encoding.granularity)
    for factor, refused in ((0.8, False), (1.15, True)):
        each = factor * half / attackers * direction
        reports = [encoding.encode(update, rng=place) for place, update in enumerate(updates)]
        reports += [unbounded.encode(each, rng=100 + place) for place in range(attackers)]
        total = np.sum(reports, axis=0) % 2**encoding.modulus_bits
        if refused:
            with pytest.raises(OutOfRangeInteger, match="none can be named"):
                encoding.check_sum(total, count=CLIENTS, size=SIZE)
        else:
            encoding.check_sum(total, count=CLIENTS, size=SIZE)


@pytest.mark.parametrize("kind", ["weighted", "metrics"])
def test_wrapped_sums_are_tested_as_what_they_contain(kind: str) -> None:
    encoding: WeightedEncoding | MetricsEncoding = WeightedEncoding(
        inner=_encoding(size=SIZE + 1), most_examples=10
    )
    size, vector = SIZE, np.append(np.full(SIZE, 0.1), 5.0)
    if kind == "metrics":
        ranges = {str(place): (0.0, 1.0) for place in range(SIZE)}
        encoding = MetricsEncoding.gaussian(ranges, noise_multiplier=MULTIPLIER, clients=CLIENTS)
        vector = np.full(SIZE, 0.5)
    reports = [encoding.encode(vector, rng=place) for place in range(CLIENTS)]
    total = np.sum(reports, axis=0)
    encoding.check_sum(total, count=CLIENTS, size=size)
    half = (encoding.span + 1) // 2
    with pytest.raises(OutOfRangeInteger):
        encoding.check_sum(np.full_like(total, half), count=CLIENTS, size=size)


def _app(add: np.ndarray) -> ClientApp:
    app = ClientApp(mods=[SecureUpdates(Policy())])
    app.train()(
        lambda message, context: Message(
            RecordDict({"arrays": ArrayRecord({"a": Array(add)})}), reply_to=message
        )
    )
    return app


@pytest.mark.parametrize("length", [1.0, 400.0])
def test_a_poisoned_round_is_charged_moves_nothing_and_names_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, length: float
) -> None:
    """One of ten clients neither clips nor stays within its share; through the strategy, and then an honest round."""
    clients = 10
    encoding = _encoding(clients)
    honest = GaussianEncoding.encode
    long = dataclasses.replace(encoding, clip_norm=1e6 * encoding.granularity)

    def encode(self, update, *, rng=None):
        chosen = long if np.linalg.norm(update) > 1.0 else self
        return honest(chosen, update, rng=rng)

    updates = [np.eye(SIZE)[place] for place in range(clients)]
    updates[3] = length * updates[3]
    grid = LocalGrid([_app(update) for update in updates])
    strategy = SecureStrategy(
        encoding=encoding, clients_per_round=clients, returns="update", retries=0
    )
    start = ArrayRecord({"a": Array(np.zeros(SIZE))})
    with monkeypatch.context() as patch:
        patch.setattr(GaussianEncoding, "encode", encode)
        found = strategy.start(
            grid=grid, initial_arrays=start, num_rounds=1, train_config=ConfigRecord()
        )
    if length <= 1:
        assert strategy.counted == clients
        return
    assert strategy.last_sum is None
    assert not len(found.arrays) or not np.any(found.arrays["a"].numpy())
    assert len(strategy.ledger.charges) == clients
    (incident,) = strategy.incidents
    assert (incident.client, incident.name) == ("", "OutOfRangeInteger")
    assert strategy.excluded == set()


def test_the_stored_table_has_the_shift_that_the_threshold_leaves() -> None:
    """From the norms alone; the stored rates are those of a threshold that is neither half nor twice as large."""
    root = Path(__file__).parents[2]
    tables = json.loads((root / "benchmarks/results/tables.json").read_text(encoding="utf-8"))
    rows = tables["Poisoning of a noisy sum"]["rows"]
    assert [row[0] for row in rows] == ["1", "2", "3", "4", "5"]
    for attackers, moved, *rates in rows:
        signal = math.sqrt(CLIENTS - int(attackers))
        shift = _shift_at_half_power(_encoding(), CLIENTS, signal) / CLIENTS
        assert moved == f"{shift:.2f} C"
        below, at, above = map(float, rates)
        assert below <= 0.15
        assert 0.35 <= at <= 0.65
        assert above >= 0.85
