"""What secure sums of distributed noise cost in accuracy, beside a server that is trusted to add the noise itself.

Run: python benchmarks/federated_utility.py MNIST_FOLDER [--seeds 0,1] [--per-round 100,200]

MNIST over 1,000 clients (Dirichlet 0.3), softmax regression (7,850 parameters), 20 rounds of 5 local steps, updates
clipped to 0.3 in L2; epsilon 2 at delta 1e-5 for replacing one client, computed: to an observer of the secure sums, or,
where a trusted server adds the noise, of the models. Rows of equally many clients a round, drawn alike, have the same
participation. Noise is seeded: a simulation.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from mezzotint.datasets import load_federation
from mezzotint.families import discrete_gaussian
from mezzotint.federated.budget import noise_within
from mezzotint.federated.encoding import Encoding, FixedPointEncoding, NoiseEncoding, noise_encoding
from mezzotint.federated.schedule import Sampling, most_participations
from mezzotint.federated.tasks import LocalTraining, Rehearsal, model_for
from mezzotint.vectors.calibration import gaussian_shift

CLIENTS, ROUNDS, CLIP, EPSILON, DELTA = 1000, 20, 0.3, 2.0, 1e-5
TRAINING = LocalTraining(steps=5, rate=0.5)


def encoding_of(multiplier: float, per_round: int, size: int, *, trusted: bool = False) -> NoiseEncoding:
    return noise_encoding(
        lambda deviation: discrete_gaussian(sigma=deviation),
        noise_multiplier=multiplier,
        l2_norm=CLIP,
        clients=per_round,
        size=size,
        adds="server" if trusted else "clients",
    )


def noise(what: str, per_round: int, charged: int, size: int) -> tuple[float, Encoding]:
    """The least noise for the budget: a trusted server's is accounted as the continuous Gaussian that it would add."""
    if what == "none":
        return 0.0, FixedPointEncoding(clip=CLIP, l2_norm=CLIP)
    if what == "trusted server":
        # Clients replaced: sums differ by at most twice the norm. Its discrete twin of the same variance is simulated.
        exact = 2 * charged**0.5 / gaussian_shift(EPSILON, DELTA)
        return exact, encoding_of(exact, per_round, size, trusted=True)
    least = per_round if what == "secure sum" else -(-4 * per_round // 5)
    return noise_within(
        EPSILON,
        lambda multiplier: encoding_of(multiplier, per_round, size),
        rounds=charged, clients=least, size=size, delta=DELTA,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="with MNIST's four files")
    parser.add_argument("--seeds", default="0,1", help="of split, start, turns and simulated noise")
    parser.add_argument("--per-round", default="100,200,1000")
    parser.add_argument("--noises", default="none,trusted server,secure sum,secure sum that a fifth may leave")
    parser.add_argument("--rates", default="1,2", help="of the server; the best is shown")
    arguments = parser.parse_args()
    seeds = [int(part) for part in arguments.seeds.split(",")]
    rates = [float(part) for part in arguments.rates.split(",")]
    federations = [
        load_federation("mnist", folder=arguments.folder, clients=CLIENTS, alpha=0.3, seed=seed) for seed in seeds
    ]
    model = model_for("softmax", federations[0])
    size = model.initial(0).size
    table = Table(
        title=f"Accuracy in percent after {ROUNDS} rounds, seeds {arguments.seeds}: best of rates {arguments.rates}"
    )
    for name in ("clients a round", "drawn", "noise", "rounds each", "noise multiplier", "accuracy", "rate", "seconds"):
        table.add_column(name, justify="right")

    def row(per_round: int, sampling: Sampling, what: str) -> None:
        start = time.process_time()
        charged = most_participations(sampling, rounds=ROUNDS, per_round=per_round, population=CLIENTS)
        multiplier, encoding = noise(what, per_round, charged, size)
        found = {}
        for rate in rates:
            scores = []
            for seed, federation in zip(seeds, federations, strict=True):
                run = Rehearsal(
                    federation=federation, model=model, per_round=per_round, learning_rate=rate, rounds=ROUNDS,
                    every=ROUNDS, sampling=sampling, training=TRAINING,
                )  # fmt: skip
                scores.append(100 * run.run(encoding, seed=seed)[-1][2])
            found[rate] = scores
        best = max(rates, key=lambda rate: float(np.mean(found[rate])))
        shown = f"{np.mean(found[best]):.1f} ({', '.join(f'{score:.1f}' for score in found[best])})"
        cells = (
            per_round,
            sampling,
            what,
            charged,
            f"{multiplier:.3f}",
            shown,
            best,
            round(time.process_time() - start),
        )
        table.add_row(*map(str, cells))
        console.print(*cells, highlight=False)

    console = Console(width=140)
    for per_round in [int(part) for part in arguments.per_round.split(",")]:
        for what in arguments.noises.split(","):
            for sampling in ("cyclic",) if per_round == CLIENTS else ("cyclic", "fixed"):
                row(per_round, sampling, what)
    console.print(table)


if __name__ == "__main__":
    main()
