"""What a sum can hold: encodings used for more clients, or shorter updates, than they were planned for."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord

from federated.grids import LocalGrid
from federated.run_files import federate
from mezzotint.cli import run
from mezzotint.core.errors import ParameterError
from mezzotint.core.files import write_text
from mezzotint.federated.encoding import FixedPointEncoding, canonical, gaussian_encoding
from mezzotint.federated.secure_strategy import Evaluation, SecureStrategy
from mezzotint.federated.wrapped_encodings import MetricsEncoding, WeightedEncoding
from mezzotint.vectors import GaussianScheme

SIZE = 64
PLANNED = 5
QUIET = gaussian_encoding(noise_multiplier=0.5, clip_norm=1.0, clients=PLANNED, size=SIZE)
MEASURED = MetricsEncoding.gaussian({"loss": (0, 5)}, noise_multiplier=0.5, clients=PLANNED)


@pytest.mark.parametrize("clients", [1, PLANNED, 7, 8, 20, 60, 400])
def test_a_sum_is_decoded_to_the_mean_or_refused(clients):
    """All vectors are the longest one, the worst case. Six deviations of the noise, 64 times each."""
    direction = np.full(SIZE, SIZE**-0.5)
    total = sum(QUIET.encode(direction, rng=number) for number in range(clients))
    residues = total % (QUIET.span + 1)
    try:
        QUIET.check_room(clients, size=SIZE)
    except ParameterError:
        assert clients > PLANNED
        with pytest.raises(ParameterError, match="wrap around"):
            QUIET.decode(residues, count=clients, size=SIZE)
        return
    errors = QUIET.decode(residues, count=clients, size=SIZE) - direction
    assert np.abs(errors).max() < 6 * np.sqrt(QUIET.mse() / clients)
    assert clients < 20  # four times as many are refused


def test_what_is_planned_fits_with_a_third_of_spare_clients():
    """For noise that is little and much, vectors that are short and long."""
    for multiplier in (0.01, 1.0, 100.0):
        for size in (1, 100, 10**6):
            for clients in (1, 10, 10**4):
                scheme = GaussianScheme.planned(
                    noise_multiplier=multiplier, size=size, clip_norm=2.0, clients=clients
                )
                scheme.check_room(clients + clients // 3)
                with pytest.raises(ParameterError, match="wrap around"):
                    scheme.check_room(8 * clients)


def test_wrapped_encodings_ask_the_one_inside_and_others_have_room_for_all():
    weighted = WeightedEncoding(inner=QUIET, most_examples=10)
    for encoding in (QUIET, weighted, MEASURED):
        encoding.check_room(PLANNED, size=SIZE)
        with pytest.raises(ParameterError, match="clients=400"):
            encoding.check_room(400, size=SIZE)
    # A rotation of few coordinates leaves more in each.
    with pytest.raises(ParameterError, match="3 coordinates"):
        QUIET.check_room(PLANNED, size=3)
    FixedPointEncoding(clip=1.0).check_room(10**6, size=SIZE)


def test_a_run_is_refused_before_anybody_is_asked(tmp_path, capsys):
    """By the strategy, for updates and for metrics, and by the verb, for a described encoding."""
    strategy = SecureStrategy(encoding=QUIET, clients_per_round=60)
    model = ArrayRecord({"w": Array(np.zeros(SIZE, dtype=np.float32))})
    grid = LocalGrid([])
    with pytest.raises(ParameterError, match="wrap around"):
        strategy.configure_train(1, model, {}, grid)
    assert strategy.ledger.charges == {}
    with pytest.raises(ParameterError, match="wrap around"):
        SecureStrategy(
            encoding=FixedPointEncoding(clip=1.0),
            clients_per_round=60,
            evaluation=Evaluation(encoding=MEASURED),
        )
    path = tmp_path / "encoding.json"
    write_text(path, canonical(QUIET.as_dict()))
    mechanism = {"kind": "file", "file": str(path)}
    for words in (["--dry-run"], ["--out", str(tmp_path / "run")]):
        assert run(federate(tmp_path, *words, mechanism=mechanism)) == 2
        assert "wrap around" in " ".join(capsys.readouterr().err.split())


# What else a strategy takes ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("most_rounds", float("nan")),
        ("most_rounds", 1.5),
        ("most_rounds", -1),
        ("most_rounds", "3"),
        ("session", 5),
        ("session", b"short"),
        ("returns", "weight"),
        ("retries", -1),
        ("retries", 1.5),
        ("rounds", 1.5),
    ],
)
def test_strategies_refuse_limits_that_would_limit_nothing(name, value):
    """No comparison with NaN stops a run."""
    options = {"encoding": FixedPointEncoding(clip=1.0), "clients_per_round": 60, name: value}
    with pytest.raises(ParameterError, match=name):
        SecureStrategy(**options)


def test_an_evaluation_sums_metrics_up_to_a_limit():
    for changed in (
        {"encoding": QUIET},
        {"most_rounds": float("nan")},
        {"most_rounds": "3"},
        {"ledger": "evaluations.jsonl"},
        {"every": 0},
    ):
        with pytest.raises(ParameterError, match=next(iter(changed))):
            Evaluation(**{"encoding": MEASURED, **changed})


@pytest.mark.parametrize(
    "ranges",
    [
        {},
        [("loss", 0, 5)],
        {"loss": 5},
        {"loss": (0,)},
        {"loss": ("a", "b")},
        {"loss": (0, 1j)},
        {"loss": (0, float("nan"))},
        {3: (0, 1)},
        {"loss": (1, 0)},
    ],
)
def test_metrics_have_names_and_ranges(ranges):
    with pytest.raises(ParameterError, match="ranges"):
        MetricsEncoding.gaussian(ranges, noise_multiplier=8.0, clients=5)


@pytest.mark.parametrize("count", [0, -3, 1.5, float("nan"), "5"])
def test_a_mean_is_of_at_least_one_client(count):
    """Of none it was NaN, or a division by zero."""
    rounding = FixedPointEncoding(clip=1.0)
    for mean in (
        lambda: rounding.decode(np.zeros(4, dtype=int), count=count, size=4),
        lambda: QUIET.decode(np.zeros(SIZE, dtype=int), count=count, size=SIZE),
        lambda: MEASURED.measured(np.zeros(1, dtype=int), count=count),
        lambda: MEASURED.error(count),
        lambda: QUIET.noise_per_coordinate(count),
    ):
        with pytest.raises(ParameterError, match=r"count|clients"):
            mean()
