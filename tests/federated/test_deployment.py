"""Flower's deployment engine: SuperLink and 8 SuperNodes over TLS; two are killed, the sum is right or refused."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

from federated.deployed import Deployment

NODES, COORDINATES = 8, 3000
pytestmark = pytest.mark.slow


def _inputs(place: int) -> np.ndarray:
    """What the app's clients send: multiples of the grid's step, so encoding is exact."""
    return np.random.default_rng(place).integers(-7, 8, COORDINATES) + 7


def _run(folder, stops: dict[int, str], settings: str = "") -> dict:
    deployment = Deployment(folder, NODES, stops)
    try:
        deployment.submit(settings)
        for place in stops:
            deployment.await_file(f"marker-{place}", 240)
            deployment.kill(f"node-{place}")
        return json.loads(deployment.await_file("outcome.json", 300).read_text())
    finally:
        deployment.close()


def test_two_nodes_are_killed_and_the_sum_of_the_others_is_right_bit_for_bit(tmp_path):
    """One is killed while it shares keys, one after its masked input has gone out."""
    outcome = _run(tmp_path, {2: "share", 5: "confirm"})
    survivors = [place for place in range(NODES) if place != 2]
    assert outcome["values"] == sum(_inputs(place) for place in survivors).tolist()
    assert sorted(outcome["charges"]) == sorted(str(place) for place in survivors)
    masked = [bytes.fromhex(text)[9:] for stage, _, text in outcome["payloads"] if stage == "mask"]
    assert len(masked) == 7
    for payload in masked:
        # 7 bits each; false alarm below 1e-9.
        planes = np.unpackbits(np.frombuffer(payload, dtype=np.uint8), bitorder="little")[: 7 * COORDINATES]
        cells = np.bincount(planes.reshape(-1, 7) @ (1 << np.arange(7)), minlength=128)
        assert stats.chisquare(cells).pvalue > 1e-10
    windows = [{payload[i : i + 8] for i in range(len(payload) - 7)} for payload in masked]
    assert not set.intersection(*windows)


def test_under_the_minimum_the_sum_is_refused(tmp_path):
    outcome = _run(tmp_path, {2: "share", 5: "mask"}, "minimum=7")
    assert outcome["values"] is None
    assert outcome["charges"] == {}
    assert outcome["rounds"] == {"1": "failed: TooFewClients"}
