"""Apps that cannot work cost nothing, and older apps work: what is known of an app without data is refused unpaid."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp

from federated.grids import LocalGrid
from federated.rounds import card, roster, secret
from mezzotint.core.errors import ParameterError
from mezzotint.federated.client_mod import SecureUpdates
from mezzotint.federated.encoding import FixedPointEncoding
from mezzotint.federated.lifetime_ledger import LifetimeLedger, lifetime_path
from mezzotint.federated.policy import Policy
from mezzotint.federated.secure_strategy import Evaluation, SecureStrategy
from mezzotint.federated.wrapped_encodings import MetricsEncoding, WeightedEncoding

CLIENTS = 6
EXACT = FixedPointEncoding(clip=8.0, grid_bits=16)


class _Older(NumPyClient):
    """An app of Flower's older kind: model and result are lists of arrays."""

    def __init__(self, place: int) -> None:
        self.place = place

    def fit(self, parameters: list[np.ndarray], config: dict[str, Any]) -> Any:
        assert config["server-round"] >= 1
        return [array + self.place for array in parameters], 1 + self.place, {"loss": 0.5}

    def evaluate(self, parameters: list[np.ndarray], config: dict[str, Any]) -> Any:
        return float(self.place), 10, {"accuracy": 0.25}


def _older(place: int, **policy: Any) -> ClientApp:
    return ClientApp(
        client_fn=lambda context: _Older(place).to_client(),
        mods=[SecureUpdates(Policy(**policy))],
    )


def _model() -> ArrayRecord:
    return ArrayRecord({"w": Array(np.zeros((2, 2))), "b": Array(np.ones(3))})


def _start(grid: LocalGrid, strategy: SecureStrategy, rounds: int = 1) -> Any:
    return strategy.start(
        grid=grid, initial_arrays=_model(), num_rounds=rounds, train_config=ConfigRecord()
    )


@pytest.mark.parametrize("weighs", [False, True])
def test_an_app_of_a_client_fn_is_summed_like_any_other(weighs: bool) -> None:
    """Its arrays come back under the model's names, and its number of examples weighs."""
    inner = FixedPointEncoding(clip=8.0, grid_bits=24)
    encoding = WeightedEncoding(inner=inner, most_examples=10) if weighs else EXACT
    strategy = SecureStrategy(encoding=encoding, clients_per_round=CLIENTS)
    found = _start(LocalGrid([_older(place) for place in range(CLIENTS)]), strategy, 2)
    assert strategy.incidents == []
    weights = np.arange(1, CLIENTS + 1) if weighs else np.ones(CLIENTS)
    mean = 2 * np.average(np.arange(CLIENTS), weights=weights)
    # Grids of 8 / 2^16 and finer: a few clients' sums err by a few 1e-4, their means by less.
    np.testing.assert_allclose(found.arrays["w"].numpy(), np.full((2, 2), mean), atol=1e-3)
    # As above.
    np.testing.assert_allclose(found.arrays["b"].numpy(), np.full(3, 1 + mean), atol=1e-3)


def test_what_an_app_of_a_client_fn_measures_is_summed_too() -> None:
    measures = MetricsEncoding.gaussian(
        {"loss": (0, 5), "accuracy": (0, 1)}, noise_multiplier=0.01, clients=CLIENTS
    )
    strategy = SecureStrategy(
        encoding=EXACT, clients_per_round=CLIENTS, evaluation=Evaluation(encoding=measures)
    )
    grid = LocalGrid([_older(place, evaluate_noise_multiplier=0.0) for place in range(CLIENTS)])
    _start(grid, strategy)
    assert strategy.evaluator is not None
    assert strategy.evaluator.incidents == []
    # Noise of .01 of the range 5 on each sum, and of the range 1 below: a mean has less.
    assert strategy.measured["loss"].value == pytest.approx(2.5, abs=0.05)
    # As above.
    assert strategy.measured["accuracy"].value == pytest.approx(0.25, abs=0.01)


def test_an_app_without_the_function_is_refused_before_anything_is_dealt(tmp_path: Path) -> None:
    """Flower itself says so, before any mod: no client is charged, and each is named."""
    for place in range(CLIENTS):
        (tmp_path / str(place)).write_bytes(secret(place))
    configs = {
        place: {"identity": str(tmp_path / str(place)), "records": str(tmp_path)}
        for place in range(CLIENTS)
    }
    apps = [ClientApp(mods=[SecureUpdates(Policy(roster=roster(CLIENTS)))]) for _ in range(CLIENTS)]
    grid = LocalGrid(apps, configs=configs)
    strategy = SecureStrategy(encoding=EXACT, clients_per_round=CLIENTS, roster=roster(CLIENTS))
    _start(grid, strategy)
    assert strategy.last_sum is None
    assert strategy.ledger.charges == {}
    assert len(strategy.incidents) >= CLIENTS


def _new(train: Callable[[Message, Context], Message], policy: Policy) -> ClientApp:
    app = ClientApp(mods=[SecureUpdates(policy)])
    app.train()(train)
    return app


def _broken(message: Message, context: Context) -> Message:
    raise KeyError("fitins.parameters")


def _works(message: Message, context: Context) -> Message:
    """Trains on what the node's configuration names, and says which data it saw."""
    count = context.state.config_records.setdefault("seen", ConfigRecord({"data": ""}))
    count["data"] = str(count["data"]) + str(context.node_config["data"])
    arrays = {"w": Array(np.full((2, 2), 1.0)), "b": Array(np.ones(3))}
    content = {"arrays": ArrayRecord(arrays), "metrics": MetricRecord({"num-examples": 1})}
    return Message(RecordDict(content), reply_to=message)


def _shapeless(message: Message, context: Context) -> Message:
    arrays = {"w": Array(np.full(7, 1.0))}
    return Message(RecordDict({"arrays": ArrayRecord(arrays)}), reply_to=message)


@pytest.mark.parametrize(
    ("train", "word"),
    [(_broken, "KeyError"), (_shapeless, "ParameterError"), (_works, "")],
    ids=["raises", "other shapes", "works"],
)
@pytest.mark.parametrize("rehearses", [True, False])
def test_an_app_that_fails_on_made_up_data_costs_nothing(
    tmp_path: Path, train: Callable[[Message, Context], Message], word: str, rehearses: bool
) -> None:
    """Without a rehearsal its failures are hidden, as facts about data have to be, and charged."""
    rehearse = {"data": "made up,"} if rehearses else None
    policy = Policy(roster=roster(CLIENTS), rehearse=rehearse)
    configs: dict[int, dict[str, str]] = {}
    for place in range(CLIENTS):
        (tmp_path / str(place)).write_bytes(secret(place))
        files = {"identity": str(tmp_path / str(place)), "records": str(tmp_path)}
        configs[place] = files | {"data": "own,"}
    grid = LocalGrid([_new(train, policy) for _ in range(CLIENTS)], configs=configs)
    strategy = SecureStrategy(
        encoding=EXACT, clients_per_round=CLIENTS, roster=roster(CLIENTS), returns="update"
    )
    _start(grid, strategy, 2)
    refused = rehearses and word != ""
    assert (strategy.last_sum is None) == refused
    sums = [
        LifetimeLedger(lifetime_path(tmp_path, name), identity=name).sums
        for name in (card(place).identity.hex() for place in range(CLIENTS))
    ]
    assert sums == [0 if refused else 2] * CLIENTS
    told = {one.what for one in strategy.incidents if one.client}
    expected = f"app: on made-up data its train function fails with {word}; nothing was charged"
    assert told == ({expected} if refused else set())
    if train is _works:
        # One rehearsal a run, whose traces in the app's state are gone.
        seen = {str(context.state["seen"]["data"]) for context in grid.contexts.values()}
        assert seen == {"own,own,"}


@pytest.mark.parametrize("bad", ["made-up.npz", {"data": [1]}, 3])
def test_a_rehearsal_is_a_table_of_settings(bad: Any) -> None:
    with pytest.raises(ParameterError, match="rehearse"):
        Policy(rehearse=bad)
