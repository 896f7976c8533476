"""What clients measure, summed with noise: arithmetic, claims, the strategy's schedule and price, the app's report."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from federated.grids import LocalGrid
from federated.run_files import federate
from federated.test_app import CLIENTS, _settings
from mezzotint.cli import run
from mezzotint.core.errors import FileFormatError, ParameterError
from mezzotint.federated import round_strategy as rounds_module
from mezzotint.federated.app import run_server
from mezzotint.federated.app_folder import write_app
from mezzotint.federated.budgets import Sums
from mezzotint.federated.client_app import make_client_app
from mezzotint.federated.client_mod import SecureUpdates
from mezzotint.federated.encoding import FixedPointEncoding, gaussian_encoding
from mezzotint.federated.encoding_files import encoding_from, packed, unpacked
from mezzotint.federated.flower_records import RECORD
from mezzotint.federated.policy import Policy
from mezzotint.federated.run_ledger import RunLedger
from mezzotint.federated.secure_strategy import Evaluation, SecureStrategy
from mezzotint.federated.settings import RunSettings
from mezzotint.federated.wrapped_encodings import MetricsEncoding, WeightedEncoding
from tolerances import FEW

RANGES = {"loss": (0.0, 5.0), "accuracy": (0.0, 1.0)}
EXACT = FixedPointEncoding(clip=8.0, grid_bits=13)
OPEN = Policy(evaluate_noise_multiplier=0.0)
"""Allows any sum of what is measured."""


def _encoding(noise: float = 2.0, clients: int = 6, **others: Any) -> MetricsEncoding:
    return MetricsEncoding.gaussian(RANGES, noise_multiplier=noise, clients=clients, **others)


# Arithmetic -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "most",
    [pytest.param(0, id="alike", marks=pytest.mark.slow), pytest.param(50, id="by examples")],
)
def test_the_sum_decodes_to_the_mean_of_clipped_metrics_and_its_error_is_as_said(most):
    """The slow twin averages in floats. Of 200 sums a mean of squares has the relative deviation .1; 6 of them."""
    rng = np.random.default_rng(5)
    clients = 40
    loss, accuracy = rng.uniform(-1, 7, clients), rng.uniform(0, 1, clients)
    examples = rng.integers(20, 90, clients)
    weights = np.minimum(examples, most) / most if most else np.ones(clients)
    clipped = np.stack([np.clip(loss, 0, 5), accuracy], axis=1)
    wanted = weights @ clipped / weights.sum()
    encoding = _encoding(4.0, clients, most_examples=most)
    rows = np.column_stack([loss, accuracy] + ([examples] if most else []))
    found = []
    for seed in range(200):
        draws = np.random.default_rng(seed)
        total = sum(
            encoding.encode(row, rng=int(draws.integers(2**31))) for row in rows
        ) % 2 ** encoding.bits(clients)
        found.append(encoding.measured(total, count=clients))
    for place, name in enumerate(RANGES):
        relative = np.array([(one[name].value - wanted[place]) / one[name].error for one in found])
        # A ratio is nearly normal where its divisor's error is small: here a sixth, at most, of the weights' sum.
        assert abs(np.mean(relative**2) - 1) < 6 * math.sqrt(2 / len(found))
        assert abs(np.mean(relative)) < 6 / math.sqrt(len(found))
    planned = encoding.error(clients)
    assert all(planned[name] > 0 for name in RANGES)
    if not most:
        assert {name: one.error for name, one in found[0].items()} == pytest.approx(
            planned, rel=FEW
        )


@pytest.mark.parametrize("weighed", [False, True])
def test_no_client_moves_the_sum_by_more_than_the_norm_and_ranges_are_clipped_to(
    weighed, monkeypatch
):
    encoding = _encoding(most_examples=10 if weighed else 0)
    noise = encoding.inner.inner if isinstance(encoding.inner, WeightedEncoding) else encoding.inner
    norms: list[float] = []

    def noted(self, update, *, rng=None):
        norms.append(float(np.linalg.norm(update)))
        return np.zeros(len(update), dtype=np.int64)

    monkeypatch.setattr(type(noise), "encode", noted)
    worst = [[5.0, 1.0], [0.0, 0.0], [1e300, -1e300], [-3.0, 1.0]]
    for row in worst:
        encoding.encode([*row, *([1e6] if weighed else [])])
    np.testing.assert_allclose(norms, 1.0, rtol=1e-12)  # rounding of a few operations


def test_metrics_beyond_their_range_are_encoded_as_its_end():
    encoding = _encoding()
    np.testing.assert_array_equal(
        encoding.encode([9.0, -1.0], rng=3), encoding.encode([5.0, 0.0], rng=3)
    )


def test_claims_are_the_noises_whatever_the_model():
    encoding = _encoding(8.0)
    sums = Sums(size=2, clients=6, rounds=3, corrupted=1, delta=1e-5)
    inner = gaussian_encoding(noise_multiplier=8.0, clip_norm=1.0, clients=6, size=2).claims(sums)
    for size in (1, 10**6):
        found = encoding.claims(replace(sums, size=size))
        assert {view: claim.epsilon for view, claim in found.items()} == {
            view: claim.epsilon for view, claim in inner.items()
        }
    assert encoding.numbers(10**6) == 2
    assert encoding.length(10**6) == 2


def test_descriptions_travel_and_what_makes_no_sense_is_refused():
    for most in (0, 40):
        encoding = _encoding(most_examples=most)
        assert unpacked(packed(encoding)) == encoding
        assert encoding.purpose == "evaluate"
    whole = encoding.as_dict()
    for ranges in (
        {},
        {"ranges": [["loss", 0.0]]},
        {"ranges": [["loss", "0", "x"]]},
        {"ranges": [7]},
    ):
        with pytest.raises(FileFormatError, match="metrics"):
            encoding_from({key: value for key, value in whole.items() if key != "ranges"} | ranges)
    noise = gaussian_encoding(noise_multiplier=1.0, clip_norm=1.0, clients=6, size=2)
    for bad in (
        (),
        (("a", 0.0, 0.0),),
        (("a", 0.0, math.inf),),
        (("a", 0.0, 1.0), ("a", 0.0, 1.0)),
    ):
        with pytest.raises(ParameterError, match="ranges"):
            MetricsEncoding(inner=noise, ranges=bad)
    for inner in (FixedPointEncoding(clip=1.0, clip_norm=1.0), _encoding()):
        with pytest.raises(ParameterError, match="inner"):
            MetricsEncoding(inner=inner, ranges=(("a", 0.0, 1.0),))
    with pytest.raises(ParameterError, match="inner"):
        WeightedEncoding(inner=_encoding(), most_examples=3)
    with pytest.raises(ParameterError, match="need loss, accuracy"):
        _encoding().encode([1.0])
    with pytest.raises(ParameterError, match="every"):
        Evaluation(encoding=_encoding(), every=0)


# Mod and strategy -----------------------------------------------------------------------------------------------------


def _app(
    place: int, policy: Policy | None = OPEN, *, asked: list[float] | None = None
) -> ClientApp:
    app = ClientApp(mods=[SecureUpdates(policy)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        return Message(
            RecordDict({"arrays": ArrayRecord({"a": Array(np.ones(4))})}), reply_to=message
        )

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        if asked is not None:
            asked.append(float(message.content.array_records["arrays"]["a"].numpy()[0]))
        found = {
            "loss": place / 2,
            "accuracy": place / 10,
            "num-examples": 10 * place,
            "secret": 1e9,
        }
        return Message(RecordDict({"metrics": MetricRecord(found)}), reply_to=message)

    return app


def _start(grid: LocalGrid, strategy: SecureStrategy, rounds: int = 1):
    arrays = ArrayRecord({"a": Array(np.zeros(4))})
    return strategy.start(
        grid=grid, initial_arrays=arrays, num_rounds=rounds, train_config=ConfigRecord()
    )


def _strategy(evaluation: Evaluation, **others: Any) -> SecureStrategy:
    return SecureStrategy(
        encoding=EXACT, clients_per_round=6, returns="update", evaluation=evaluation, **others
    )


@pytest.mark.parametrize("every", [1, 2, 3])
def test_every_so_many_rounds_the_new_model_is_measured_and_nothing_else_leaves(every):
    seen: list[float] = []
    grid = LocalGrid([_app(place, asked=seen if place == 0 else None) for place in range(6)])
    strategy = _strategy(Evaluation(encoding=_encoding(0.05), every=every))
    result = _start(grid, strategy, 4)
    due = [number for number in range(1, 5) if number % every == 0]
    assert list(result.evaluate_metrics_clientapp) == due
    np.testing.assert_allclose(
        seen, due, atol=8 * EXACT.step
    )  # the model after so many updates of 1
    np.testing.assert_allclose(result.arrays["a"].numpy(), 4.0, atol=8 * EXACT.step)
    for metrics in result.evaluate_metrics_clientapp.values():
        assert metrics["clients"] == 6
        for name, mean in (("loss", 1.25), ("accuracy", 0.25)):
            error = metrics[f"{name}-error"]
            assert isinstance(error, float)
            assert abs(metrics[name] - mean) < 6 * error  # false alarm below 1e-8
    assert strategy.evaluator is not None
    assert strategy.ledger.charges == {str(place): 4 for place in range(6)}
    assert strategy.evaluator.ledger.charges == {str(place): len(due) for place in range(6)}
    assert strategy.incidents == strategy.evaluator.incidents == []
    # Who stands behind a node is asked once, for both.
    assert sum("name" in reply.content.config_records[RECORD] for reply in grid.received) == 6
    for reply in grid.received:
        assert set(reply.content) == {RECORD}
        assert not reply.content.metric_records


def test_weights_by_examples_weigh_what_is_measured():
    grid = LocalGrid([_app(place) for place in range(1, 7)])
    strategy = _strategy(Evaluation(encoding=_encoding(0.05, most_examples=40)))
    found = _start(grid, strategy).evaluate_metrics_clientapp[1]
    weights = np.minimum(np.arange(1, 7), 4)
    for name, values in (("loss", np.arange(1, 7) / 2), ("accuracy", np.arange(1, 7) / 10)):
        assert abs(found[name] - np.average(values, weights=weights)) < 6 * found[f"{name}-error"]


def test_who_is_not_asked_in_its_policy_refuses_and_training_goes_on(monkeypatch):
    """By default; one client of six allows it, too few for a sum. The log does not take it for a round of training."""
    lines: list[str] = []
    monkeypatch.setattr(
        rounds_module, "log", lambda level, text, *words: lines.append(text % words)
    )
    grid = LocalGrid([_app(place, OPEN if place == 0 else Policy()) for place in range(6)])
    strategy = _strategy(Evaluation(encoding=_encoding()))
    result = _start(grid, strategy, 2)
    assert result.evaluate_metrics_clientapp == {}
    assert strategy.ledger.rounds == dict.fromkeys((1, 2), "released")
    assert strategy.evaluator is not None
    assert strategy.evaluator.ledger.charges == {}
    refused = [one for one in strategy.evaluator.incidents if one.client]
    assert len(refused) == 10
    assert sum(line.startswith("mezzotint: evaluation 1, client ") for line in lines) == 5
    assert not any(line.startswith("mezzotint: round") for line in lines)
    assert all(
        one.name == "PolicyRefusal" and "answers no sums of what it measures" in one.what
        for one in refused
    )
    assert sum("name" in reply.content.config_records[RECORD] for reply in grid.received) == 6


def test_without_a_function_that_measures_there_is_no_sum_and_training_goes_on():
    apps = [ClientApp(mods=[SecureUpdates(OPEN)]) for _ in range(6)]
    for app in apps:
        app.train()(
            lambda message, context: Message(
                RecordDict({"arrays": ArrayRecord({"a": Array(np.ones(4))})}), reply_to=message
            )
        )
    strategy = _strategy(Evaluation(encoding=_encoding()))
    result = _start(LocalGrid(apps), strategy)
    assert result.evaluate_metrics_clientapp == {}
    assert strategy.counted == 6
    assert strategy.evaluator is not None
    assert {one.name for one in strategy.evaluator.incidents} == {"ClientError", "TooFewClients"}


def test_what_was_measured_is_in_every_claim_and_in_the_cost():
    noise = gaussian_encoding(noise_multiplier=6.0, clip_norm=1.0, clients=6, size=4)
    evaluation = Evaluation(encoding=_encoding(9.0), every=2, most_rounds=2)
    strategy = SecureStrategy(
        encoding=noise, clients_per_round=6, returns="update", evaluation=evaluation, delta=1e-5
    )
    told = Sums(size=4, clients=4, delta=1e-5)
    assert strategy.claims(told) == {}
    half = {"clients": 4, "size": 4, "delta": 5e-6}
    beside = evaluation.encoding.claims(Sums(rounds=2, **half))["central"].epsilon
    alone = noise.claims(Sums(rounds=5, **half))["central"].epsilon
    assert strategy.cost(replace(told, rounds=5)) == pytest.approx(alone + beside, rel=FEW)
    grid = LocalGrid([_app(place) for place in range(6)])
    _start(grid, strategy, 1)
    whole = noise.claims(Sums(rounds=1, clients=6, size=4, delta=1e-5))["central"].epsilon
    assert strategy.claims(told)["central"].epsilon == whole  # nothing was measured yet
    result = _start(
        grid, strategy, 5
    )  # 6 rounds in all, 3 of them due, of which the limit allows 2
    assert strategy.evaluator is not None
    assert set(strategy.evaluator.ledger.charges.values()) == {2}
    assert "exceed" in strategy.evaluator.stopped
    for view in ("central", "local"):
        half["clients"] = 6
        parts = (
            noise.claims(Sums(rounds=6, **half))[view].epsilon,
            evaluation.encoding.claims(Sums(rounds=2, **half))[view].epsilon,
        )
        claim = strategy.claims(told)[view]
        assert claim.parts == (("updates", parts[0]), ("evaluations", parts[1]))
        assert claim.epsilon == pytest.approx(sum(parts), rel=FEW)
        assert claim.epsilon >= sum(parts)
        assert claim.delta == 1e-5
    spent = strategy.spent(told)
    assert spent is not None
    assert spent.epsilon == strategy.claims(told)["central"].epsilon
    # A round's metrics tell it, and so do those of each sum of what was measured, which comes after.
    assert result.train_metrics_clientapp[5]["epsilon"] == spent.epsilon
    measured = result.evaluate_metrics_clientapp
    assert list(measured) == [1, 3]
    assert result.train_metrics_clientapp[3]["epsilon"] < measured[3]["epsilon"] < spent.epsilon
    assert measured[3]["delta"] == 1e-5
    with pytest.raises(ParameterError, match="unlimited number"):
        SecureStrategy(
            encoding=noise, clients_per_round=6, evaluation=Evaluation(encoding=_encoding())
        ).cost(told)


def test_a_server_that_goes_on_keeps_the_schedule_and_the_charges(tmp_path):
    """Four rounds in one go, or with a new server after each: measured after the second and the fourth."""
    for rounds in ((4,), (1, 1, 1, 1)):
        folder = tmp_path / str(len(rounds))
        folder.mkdir()
        due = []
        for count in rounds:
            strategy = _strategy(
                Evaluation(encoding=_encoding(), every=2, ledger=RunLedger(folder / "evaluations", {})),
                session=bytes(16), ledger=RunLedger(folder / "ledger", {}),
            )  # fmt: skip
            due.append(
                len(
                    _start(
                        LocalGrid([_app(place) for place in range(6)]), strategy, count
                    ).evaluate_metrics_clientapp
                )
            )
        assert due == ([2] if rounds == (4,) else [0, 1, 0, 1])
        assert RunLedger(folder / "evaluations", {}).charges == {
            str(place): 2 for place in range(6)
        }


# The app --------------------------------------------------------------------------------------------------------------


def _grid() -> LocalGrid:
    return LocalGrid([make_client_app(SecureUpdates(OPEN))] * CLIENTS)


def test_the_app_prints_the_price_first_then_what_was_measured_and_goes_on_after_a_restart(
    tmp_path,
):
    lines: list[str] = []
    out = tmp_path / "run"
    settings = _settings(tmp_path, out=str(out), evaluate_every=2, evaluate_noise=0.1, rounds=2)
    first = run_server(_grid(), settings, lines.append)
    assert lines[0].startswith("clients measure every 2 rounds, each at most 1 time: epsilon ")
    assert "standard errors of the noise: loss " in lines[0]
    assert lines[-1].startswith(f"after round 2: {CLIENTS} clients measured loss ")
    (found,) = first.measured
    assert (found["round"], found["clients"]) == (2, CLIENTS)
    # On the very records that the clients hold; the public test data are of the same digits.
    value, error = found["accuracy"]
    assert abs(value - first.accuracy[-1]) < 0.15 + 6 * error
    assert first.evaluations["charges"] == {str(place): 1 for place in range(CLIENTS)}
    second = run_server(_grid(), replace(settings, rounds=4))
    assert [one["round"] for one in second.measured] == [2, 4]
    assert second.evaluations["charges"] == {str(place): 2 for place in range(CLIENTS)}
    claim = second.promises["central"]
    assert [name for name, _ in claim.parts] == ["updates", "evaluations"]
    assert "evaluations" in second.claims["central"]["text"]


def test_a_budget_counts_what_is_measured_before_and_after(tmp_path):
    """The run stops where updates of so many rounds, and all evaluations that were planned, are within the budget."""
    settings = _settings(tmp_path, evaluate_every=1, evaluate_noise=40.0, rounds=3)
    updates = [
        settings.encoding()
        .claims(Sums(rounds=rounds, clients=10, size=650, delta=5e-6))["central"]
        .epsilon
        for rounds in (1, 2, 3)
    ]
    beside = (
        settings.measuring(0)
        .claims(Sums(rounds=3, clients=10, size=650, delta=5e-6))["central"]
        .epsilon
    )
    budget = (updates[1] + updates[2]) / 2 + beside
    report = run_server(_grid(), replace(settings, epsilon=budget))
    assert report.ledger["rounds"] == {"1": "released", "2": "released"}
    assert len(report.measured) == 2
    assert report.promises["central"].epsilon <= budget
    assert "exceed" in report.stopped


def test_settings_reach_the_written_app_and_single_reports_are_measured_by_nobody(tmp_path):
    settings = _settings(tmp_path, evaluate_every=3, largest_loss=4.0)
    write_app(tmp_path / "app", settings, settings.encoding())
    text = (tmp_path / "app" / "pyproject.toml").read_text()
    assert "evaluate-every = 3\n" in text
    assert "largest-loss = 4.0\n" in text
    with pytest.raises(ParameterError, match="needs secure sums"):
        RunSettings(observer="reports", evaluate_every=1)
    with pytest.raises(ParameterError):
        run_server(_grid(), replace(settings, largest_loss=0.0))


def test_the_verb_refuses_a_budget_that_measuring_alone_exceeds(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    noisy = {"kind": "rounded-gaussian"}
    tables = {"mechanism": noisy, "privacy": {"epsilon": 2.0}, "rounds": {"count": 4}}
    often = federate(
        tmp_path, "--app", "a", **tables, evaluate={"every": 1, "noise_multiplier": 1.0}
    )
    assert run(often) == 2
    assert "evaluate.noise_multiplier" in capsys.readouterr().err
    rarely = federate(
        tmp_path, "--app", "a", **tables, evaluate={"every": 2, "noise_multiplier": 40.0}
    )
    assert run(rarely) == 0
    least = _found(capsys.readouterr().err)
    assert run(federate(tmp_path, "--app", "other", **tables)) == 0
    assert least > _found(capsys.readouterr().err)


def _found(told: str) -> float:
    """The noise multiplier that the verb says."""
    return float(" ".join(told.split()).partition("a noise multiplier of ")[2].split()[0])


@pytest.mark.slow
def test_the_verb_measures_on_flowers_own_engine(tmp_path, capsys):
    words = federate(
        tmp_path,
        "--json",
        "--out",
        str(tmp_path / "run"),
        data={"population": 8},
        rounds={"count": 2, "clients_per_round": 8},
        evaluate={"every": 2, "noise_multiplier": 0.5},
        mechanism={"kind": "rounded-gaussian", "noise_multiplier": 1.0},
    )
    assert run(words) == 0
    told = json.loads(capsys.readouterr().out)
    (found,) = told["measured"]
    assert found["clients"] == 8
    assert set(found) == {"round", "clients", "loss", "accuracy"}
    assert set(told["evaluations"]["charges"].values()) == {1}
    assert set(told["central"]["parts"]) == {"updates", "evaluations"}
