"""What the SuperLink runs: a Flower strategy that sees sums alone."""

from __future__ import annotations

from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp

from digits_app import task
from mezzotint.federated import SecureStrategy, gaussian_encoding

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    clients_per_round, rounds = int(config["clients-per-round"]), int(config["rounds"])
    delta = float(config["delta"])
    encoding = gaussian_encoding(
        epsilon=float(config["epsilon"]),
        delta=delta,
        rounds=rounds,
        clip_norm=float(config["clip-norm"]),
        clients=clients_per_round,
        size=task.SIZE,
    )
    strategy = SecureStrategy(
        encoding=encoding,
        clients_per_round=clients_per_round,
        learning_rate=float(config["server-learning-rate"]),
        delta=delta,  # logs the epsilon so far after every round
    )
    images, labels = task.load_test()

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        accuracy = task.accuracy(arrays["weights"].numpy(), images, labels)
        print(f"after round {number}: accuracy {accuracy:.3f}")
        return MetricRecord({"accuracy": accuracy})

    strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord({"weights": Array(task.initial_weights())}),
        num_rounds=rounds,
        evaluate_fn=evaluate,
    )
    for incident in strategy.incidents:
        print(f"round {incident.round}, client {incident.client}: {incident.what}")
