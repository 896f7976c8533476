"""RQM beside PBM and Gaussian noise: the RQM paper's task with a convolutional network, where mechanisms differ.

Run: python benchmarks/rqm_networks.py --data femnist.npz [--seeds 0,1,2] [--rounds 100] [--keep kept.jsonl]

FEMNIST by writer, the federated CNN (1,206,590 parameters), FedSGD with each coordinate of a gradient clipped to [-c,
c] for the paper's c. A round has 5 clients of 32 images each. Every mechanism is given the same epsilon: 0.125 at
delta = 1e-5 for one coordinate of one round, to an observer of the secure sum of the five, none of them corrupted,
for replacing one client's value by any other in [-c, c]. The whole vector has 1,206,590 coordinates in each round: no
useful epsilon holds for it, here as in the paper. Each mechanism trains at the server's rate that does best for it in
a shorter run with another seed. Noise is seeded: a simulation. Runs are kept in a file as they end; started again,
the script goes on behind the last one.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import optimize

from mezzotint import families
from mezzotint.core.mechanism import Mechanism
from mezzotint.datasets import Features, Labels, load_federation
from mezzotint.federated.budgets import Sums, noise_within
from mezzotint.federated.encoding import (
    FixedPointEncoding,
    GaussianEncoding,
    TableEncoding,
    Vector,
    gaussian_encoding,
)
from mezzotint.federated.models import LocalTraining, Model
from mezzotint.federated.rehearsal import Rehearsal
from mezzotint.papers.rqm import LEVELS, TRIALS
from mezzotint.papers.rqm_training import CLIP
from mezzotint.papers.simulation import network
from mezzotint.vectors.gaussian import RoundedGaussian

EPSILON, DELTA = 0.125, 1e-5
PER_ROUND, BATCH = 5, 32
TRIAL_SEED = 100
EVALUATED = 2000  # images at a time
EXTENSIONS = (16.0, 20.0, 28.0)
"""Delta / c of RQM that are tried; below 2 / (e^0.125 - 1) = 15.02 no q has the epsilon."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Network(Model):
    """A torch module whose parameters are one vector. Images come as (n, height, width[, channels])."""

    module: Any

    def initial(self, seed: int) -> Vector:
        import torch
        from torch import nn

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            for layer in self.module.modules():
                if isinstance(layer, (nn.Conv2d, nn.Linear)):
                    layer.reset_parameters()
        vector = nn.utils.parameters_to_vector(self.module.parameters())
        return vector.detach().numpy().astype(np.float64)

    def _load(self, parameters: Vector) -> None:
        import torch
        from torch import nn

        vector = torch.from_numpy(parameters.astype(np.float32))
        nn.utils.vector_to_parameters(vector, self.module.parameters())

    def gradient(self, parameters: Vector, x: Features, y: Labels) -> Vector:
        import torch

        self._load(parameters)
        loss = torch.nn.functional.cross_entropy(self.module(_as_images(x)), torch.from_numpy(y))
        gradients = torch.autograd.grad(loss, list(self.module.parameters()))
        flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
        return flat.numpy().astype(np.float64)

    def evaluate(self, parameters: Vector, x: Features, y: Labels) -> tuple[float, float]:
        import torch

        self._load(parameters)
        loss, correct = 0.0, 0
        with torch.no_grad():
            for start in range(0, len(y), EVALUATED):
                labels = torch.from_numpy(y[start : start + EVALUATED])
                scores = self.module(_as_images(x[start : start + EVALUATED]))
                loss += float(torch.nn.functional.cross_entropy(scores, labels, reduction="sum"))
                correct += int((scores.argmax(dim=1) == labels).sum())
        return loss / len(y), correct / len(y)


def _as_images(x: Features) -> Any:
    """The images with their channels first."""
    import torch

    tensor = torch.from_numpy(np.ascontiguousarray(x, dtype=np.float32))
    return tensor[:, None] if tensor.ndim == 3 else tensor.permute(0, 3, 1, 2)


def sum_epsilon(table: Mechanism) -> float:
    """Of one coordinate of one round, to an observer of the sum of its clients, none of whom is corrupted."""
    claim = TableEncoding(mechanism=table).central(
        Sums(rounds=1, clients=PER_ROUND, size=1, delta=DELTA)
    )
    return claim.epsilon


def _calibrated(make: Callable[[float], Mechanism], low: float, high: float) -> Mechanism:
    """The table whose sums have `EPSILON`, from below: it grows with the parameter, and a report's is no smaller."""
    alone = optimize.brentq(lambda at: make(at).epsilon - EPSILON, low, high, xtol=1e-6)
    found = optimize.brentq(
        lambda at: sum_epsilon(make(at)) - EPSILON,
        0.999 * alone,
        min(3 * alone, 1.01 * high),
        rtol=1e-4,
    )
    while sum_epsilon(make(found)) > EPSILON:
        found *= 1 - 1e-4
    return make(found)


def randomized() -> Mechanism:
    """RQM with the least MSE at the epsilon, in units of c."""

    def of_width(extension: float) -> Mechanism:
        return _calibrated(
            lambda q: families.rqm(lower=-1, upper=1, levels=LEVELS, extension=extension, q=q),
            1e-5,
            0.9,
        )

    return min(map(of_width, EXTENSIONS), key=lambda table: table.mse())


def poisson_binomial() -> Mechanism:
    """PBM with as many outcomes at the epsilon, in units of c."""
    return _calibrated(
        lambda theta: families.pbm(lower=-1, upper=1, trials=TRIALS, theta=theta), 1e-3, 0.49
    )


@dataclass(frozen=True, kw_only=True)
class EachAlone:
    """Rounded Gaussian noise on each coordinate by itself.

    Arguments:
        one: encodes, and accounts for, vectors of one coordinate whose norm is the clipping of a coordinate; sums here
            are not wrapped at its modulus.
    """

    one: GaussianEncoding

    @property
    def weighs(self) -> bool:
        return False

    def length(self, size: int) -> int:
        return size

    def encode(self, update: np.ndarray, *, rng: int) -> np.ndarray:
        centres = np.clip(update, -self.one.clip_norm, self.one.clip_norm) / self.one.granularity
        return RoundedGaussian(sigma=self.one.deviation).draw(
            rng.to_bytes(32, "little"), update.size, centres
        )

    def decode(self, total: np.ndarray, *, count: int, size: int) -> np.ndarray:
        return total * (self.one.granularity / count)


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """Arguments: name; setting; bits of a report, if its number is fixed; epsilon; mse in units of c^2; encoding."""

    name: str
    setting: str
    bits: int | None
    epsilon: float
    mse: float
    encoding: Any


def _of_table(name: str, table: Mechanism) -> Contestant:
    scaled = Mechanism(
        knots=table.knots * CLIP, levels=table.levels * CLIP, weights=table.weights, name=table.name
    )
    encoding = TableEncoding(mechanism=scaled)
    return Contestant(
        name=name,
        setting=table.name,
        bits=encoding.report_bits,
        epsilon=sum_epsilon(table),
        mse=table.mse(),
        encoding=encoding,
    )


class Kept:
    """What was computed, a line of JSON each: the tables that were calibrated, and every run that ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        self.found = {json.dumps(one["what"]): one["found"] for one in map(json.loads, lines)}

    def take(self, what: dict[str, Any], compute: Callable[[], Any]) -> Any:
        """What is there, or else what `compute` finds; in values of JSON."""
        key = json.dumps(what)
        if key not in self.found:
            self.found[key] = compute()
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"what": what, "found": self.found[key]}) + "\n")
        return self.found[key]


def contestants(kept: Kept) -> dict[str, Contestant]:
    """What trains, by name."""

    def table(name: str, calibrate: Callable[[], Mechanism]) -> Contestant:
        text = kept.take({"table": name, "epsilon": EPSILON}, lambda: calibrate().to_json())
        return _of_table(name, Mechanism.from_json(text))

    _, gaussian = noise_within(
        EPSILON,
        lambda multiplier: gaussian_encoding(
            noise_multiplier=multiplier, clip_norm=CLIP, clients=PER_ROUND, size=1
        ),
        Sums(size=1, clients=PER_ROUND, delta=DELTA),
    )
    claim = gaussian.central(Sums(rounds=1, clients=PER_ROUND, size=1, delta=DELTA))
    found = [
        Contestant(
            name="noise-free clipped",
            setting="",
            bits=None,
            epsilon=math.inf,
            mse=0.0,
            encoding=FixedPointEncoding(clip=CLIP),
        ),
        table("RQM", randomized),
        table("PBM", poisson_binomial),
        Contestant(
            name="rounded Gaussian",
            setting=f"deviation {gaussian.deviation * gaussian.granularity / CLIP:.3f} c each",
            bits=gaussian.report_bits,
            epsilon=claim.epsilon,
            mse=gaussian.mse() / CLIP**2,
            encoding=EachAlone(one=gaussian),
        ),
    ]
    return {one.name: one for one in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="FEMNIST by writer: npz or LEAF's folder")
    parser.add_argument(
        "--seeds", default="0,1,2", help="of start, turns, batches and simulated noise"
    )
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument(
        "--trial-rounds", type=int, default=60, help="of the runs that choose the rate"
    )
    parser.add_argument("--rates", default="3,10,30", help="of the server")
    parser.add_argument(
        "--keep", type=Path, default=Path("rqm_networks.jsonl"), help="file of what is computed"
    )
    arguments = parser.parse_args()
    console = Console(width=140)
    import torch

    torch.set_num_threads(1)
    federation = load_federation("femnist", folder=arguments.data, clients=0)
    module = network("cnn", federation.test_x.shape[1:], federation.classes)
    model, kept = Network(module=module), Kept(arguments.keep)
    contenders = contestants(kept)

    def trained(name: str, rate: float, rounds: int, seed: int) -> Any:
        def run() -> list[tuple[int, float, float]]:
            rehearsal = Rehearsal(
                federation=federation, model=model, clients_per_round=PER_ROUND, learning_rate=rate, rounds=rounds,
                every=max(1, rounds // 3), training=LocalTraining(algorithm="fedsgd", batch=BATCH),
            )  # fmt: skip
            return rehearsal.run(contenders[name].encoding, seed=seed)

        history = kept.take({"name": name, "rate": rate, "rounds": rounds, "seed": seed}, run)
        _, loss, accuracy = history[-1]
        said = f"{name}, rate {rate:g}, {rounds} rounds, seed {seed}: loss {loss:.3f}, accuracy {accuracy:.1%}"
        console.print(said, highlight=False)
        return history

    rates = [float(part) for part in arguments.rates.split(",")]
    seeds = [int(part) for part in arguments.seeds.split(",")]
    best = {
        name: min(
            rates, key=lambda rate: trained(name, rate, arguments.trial_rounds, TRIAL_SEED)[-1][1]
        )
        for name in contenders
    }
    for (
        seed
    ) in seeds:  # a pass over all for each seed, so that what there is can be compared at any time
        for name in contenders:
            trained(name, best[name], arguments.rounds, seed)
    ended = {
        name: [trained(name, best[name], arguments.rounds, seed)[-1] for seed in seeds]
        for name in best
    }
    table = Table(
        title=f"After {arguments.rounds} rounds of {PER_ROUND} of {len(federation.clients)} writers"
    )
    for heading in (
        "mechanism",
        "setting",
        "bits",
        "epsilon",
        "MSE / c^2",
        "rate",
        "loss",
        "accuracy, %",
        "s.e.",
    ):
        table.add_column(heading, justify="right")
    for name, one in contenders.items():
        accuracies = [100 * accuracy for _, _, accuracy in ended[name]]
        error = (
            np.std(accuracies, ddof=1) / math.sqrt(len(accuracies))
            if len(accuracies) > 1
            else math.nan
        )
        loss = np.mean([loss for _, loss, _ in ended[name]])
        cells = (
            name,
            one.setting,
            one.bits or "",
            f"{one.epsilon:.4f}",
            f"{one.mse:.3f}",
            f"{best[name]:g}",
            f"{loss:.3f}",
        )
        table.add_row(*map(str, cells), f"{np.mean(accuracies):.1f}", f"{error:.1f}")
    console.print(table)


if __name__ == "__main__":
    main()
