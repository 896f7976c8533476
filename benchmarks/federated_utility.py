"""What secure sums of distributed noise cost in accuracy, beside a server that is trusted to add the noise itself.

Run: python benchmarks/federated_utility.py MNIST_FOLDER [--clients-per-round 100] [--seeds 0,1,2,3,4] [--tuning 100,101]

MNIST over 1,000 clients (Dirichlet 0.3), softmax regression (7,850 parameters), 20 rounds; epsilon 2 at delta 1e-5 for
replacing one client, computed: to an observer of the secure sums, or, where a trusted server adds the noise, of the
models. Rows of one size of rounds have one relation and one
participation. A row chooses its server optimizer, clipping norm and local training from the same lists in the same way,
on seeds that are not reported; without noise, and where all clients stay, what suits the trusted server is taken. Noise
is seeded: a simulation.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import final

import numpy as np
from rich.console import Console
from rich.table import Table

from mezzotint.core.arguments import check_choice
from mezzotint.datasets import Federation, load_federation
from mezzotint.federated.budgets import Sums, noise_within
from mezzotint.federated.encoding import (
    Encoding,
    FixedPointEncoding,
    GaussianEncoding,
    Vector,
    gaussian_encoding,
)
from mezzotint.federated.models import LocalTraining, model_for
from mezzotint.federated.rehearsal import Rehearsal
from mezzotint.federated.secagg.roster import SAMPLINGS, Sampling, most_participations, turn
from mezzotint.federated.server_optimizers import FedAvg, FedAvgM, ServerOptimizer, State
from mezzotint.privacy.tradeoffs import gaussian_shift

CLIENTS, ROUNDS, EPSILON, DELTA = 1000, 20, 2.0, 1e-5


@final
@dataclass(frozen=True, kw_only=True)
class FedAdam(ServerOptimizer):
    """Adam on mean updates, without bias correction (Reddi et al. 2021)."""

    first: float = 0.9
    second: float = 0.99
    least: float = 1e-3

    def step(self, state: State, mean: Vector) -> tuple[State, Vector]:
        start = {"first": np.zeros_like(mean), "second": np.full_like(mean, self.least**2)}
        before = state or start
        first = self.first * before["first"] + (1 - self.first) * mean
        second = self.second * before["second"] + (1 - self.second) * mean * mean
        return {"first": first, "second": second}, first / (np.sqrt(second) + self.least)


CLIPS: tuple[float, ...] = (0.1, 0.2, 0.3, 0.5)
LOCAL: tuple[LocalTraining, ...] = (
    LocalTraining(steps=1, learning_rate=0.5),
    LocalTraining(steps=5, learning_rate=0.2),
    LocalTraining(steps=5, learning_rate=0.5),
    LocalTraining(steps=10, learning_rate=0.5),
)
SERVERS: tuple[tuple[ServerOptimizer, float], ...] = (
    *((FedAvg(), rate) for rate in (0.5, 1.0, 2.0, 4.0)),
    *((FedAvgM(momentum=0.9), rate) for rate in (0.1, 0.2, 0.4, 0.8)),
    *((FedAdam(), rate) for rate in (0.003, 0.01, 0.03)),
)
NOBODY, TRUSTED, STAY, VANISH = (
    "nobody",
    "a trusted server",
    "clients, all stay",
    "clients, a fifth may vanish",
)


@final
@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a row may choose."""

    clip: float = 0.3
    local: LocalTraining = LOCAL[2]
    server: tuple[ServerOptimizer, float] = (FedAvg(), 1.0)

    def __str__(self) -> str:
        optimizer, rate = self.server
        name = type(optimizer).__name__
        return f"clip {self.clip:g}, {self.local.steps} x {self.local.learning_rate:g}, {name} {rate:g}"


@cache
def federation_of(folder: str, seed: int) -> Federation:
    return load_federation("mnist", folder=folder, clients=CLIENTS, dirichlet=0.3, seed=seed)


@final
@dataclass(frozen=True, kw_only=True)
class Row:
    """Who adds the noise to rounds of so many clients, and how much."""

    folder: str
    clients_per_round: int
    adds: str
    sampling: Sampling = "cyclic"

    @property
    def sums(self) -> int:
        """That a client is in."""
        return most_participations(
            self.sampling,
            rounds=ROUNDS,
            clients_per_round=self.clients_per_round,
            population=CLIENTS,
        )

    @property
    def least(self) -> int:
        """Summands that the noise has to be enough for."""
        return (
            -(-4 * self.clients_per_round // 5) if self.adds == VANISH else self.clients_per_round
        )

    def multiplier(self, size: int) -> float:
        """The least noise for the budget: a trusted server's is accounted as the continuous Gaussian that it adds."""
        if self.adds == NOBODY:
            return 0.0
        if self.adds == TRUSTED:
            # Clients replaced: sums differ by at most twice the norm.
            return 2 * self.sums**0.5 / gaussian_shift(EPSILON, DELTA)
        return noise_within(
            EPSILON,
            lambda multiplier: self.encoding(multiplier, 1.0, size),
            Sums(size=size, clients=self.least, rounds=self.sums, delta=DELTA),
        )[0]

    def encoding(self, multiplier: float, clip: float, size: int) -> GaussianEncoding:
        return gaussian_encoding(
            noise_multiplier=multiplier,
            clip_norm=clip,
            clients=self.clients_per_round,
            size=size,
        )

    def protocol(self, setting: Setting, multiplier: float, seed: int) -> float:
        """Accuracy in percent, through the encoding that clients use: integers modulo M are summed and decoded."""
        federation, (optimizer, rate) = federation_of(self.folder, seed), setting.server
        model = model_for("softmax", federation)
        encoding: Encoding = FixedPointEncoding(
            clip=setting.clip, clip_norm=setting.clip, grid_bits=24
        )
        if multiplier:
            encoding = self.encoding(multiplier, setting.clip, model.initial(0).size)
        run = Rehearsal(
            federation=federation, model=model, clients_per_round=self.clients_per_round, learning_rate=rate, rounds=ROUNDS,
            every=ROUNDS, sampling=self.sampling, training=setting.local, optimizer=optimizer,
        )  # fmt: skip
        return 100 * run.run(encoding, seed=seed)[-1][2]

    def simulated(self, setting: Setting, multiplier: float, seed: int) -> float:
        """The same, but clipped floats are summed, and continuous noise is drawn once for each sum.

        So does a trusted server; for clients' noise, this is what settings are chosen by: it is quicker.
        """
        federation, (optimizer, rate) = federation_of(self.folder, seed), setting.server
        model = model_for("softmax", federation)
        choice = np.random.default_rng(np.random.SeedSequence(seed).spawn(2)[0])  # of `Rehearsal`
        order = choice.permutation(CLIENTS) if self.sampling == "cyclic" else None
        parameters, rng = model.initial(seed), np.random.default_rng([seed, 1])
        state: State = {}
        for number in range(1, ROUNDS + 1):
            total = multiplier * setting.clip * rng.standard_normal(parameters.size)
            turns = (
                choice.permutation(CLIENTS)[: self.clients_per_round]
                if order is None
                else order[turn(number, self.clients_per_round, CLIENTS)]
            )
            for place in turns:
                update = setting.local.update(model, parameters, *federation.clients[place], seed=0)
                total += update * (setting.clip / max(float(np.linalg.norm(update)), setting.clip))
            state, change = optimizer.step(state, total / self.clients_per_round)
            parameters = parameters + rate * change
        return 100 * model.evaluate(parameters, federation.test_x, federation.test_y)[1]

    def tuned(self, multiplier: float, seeds: Sequence[int]) -> Setting:
        """One choice after another, each the best of its list with those before it as chosen."""
        scores: dict[Setting, float] = {}

        def score(setting: Setting) -> float:
            if setting not in scores:
                scores[setting] = float(
                    np.mean([self.simulated(setting, multiplier, seed) for seed in seeds])
                )
            return scores[setting]

        best = Setting()
        lists: tuple[Callable[[Setting], list[Setting]], ...] = (
            lambda now: [replace(now, server=server) for server in SERVERS],
            lambda now: [replace(now, clip=clip) for clip in CLIPS],
            lambda now: [replace(now, local=local) for local in LOCAL],
        )
        for others in lists:
            best = max([best, *others(best)], key=score)
        return best


def shown(values: Sequence[float]) -> str:
    """Mean and its standard error."""
    mean = f"{np.mean(values):.2f}"
    return (
        f"{mean} +- {np.std(values, ddof=1) / len(values) ** 0.5:.2f}" if len(values) > 1 else mean
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "folder", nargs="?", help="with MNIST's four files; nothing is run without it"
    )
    parser.add_argument(
        "--seeds", default="0,1,2,3,4", help="of split, start, turns and simulated noise"
    )
    parser.add_argument(
        "--tuning", default="100,101", help="seeds that settings are chosen on; not reported"
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="choose for the trusted server alone, and take it for all",
    )
    parser.add_argument("--clients-per-round", default="100,200,1000")
    parser.add_argument(
        "--sampling", default="cyclic", help="cyclic, or fixed: drawn anew in every round"
    )
    arguments = parser.parse_args()
    if arguments.folder is None:
        print("no folder of MNIST is given: nothing to run")
        return
    seeds, tuning = (
        [int(part) for part in text.split(",")] for text in (arguments.seeds, arguments.tuning)
    )
    size = model_for("softmax", federation_of(arguments.folder, seeds[0])).initial(0).size
    sampling = check_choice("sampling", arguments.sampling, SAMPLINGS)
    console = Console(width=180)
    table = Table(
        title=f"Accuracy in percent after {ROUNDS} rounds: mean and standard error, seeds {arguments.seeds}"
    )
    names = (
        "clients a round",
        "updates each",
        "noise added by",
        "noise multiplier",
        "epsilon at most",
        "if all stay",
    )
    for name in (*names, "chosen", "accuracy", "less than trusted, paired", "seconds"):
        table.add_column(name, justify="right")
    for clients_per_round in map(int, arguments.clients_per_round.split(",")):
        reference: list[float] = []
        setting = Setting()
        for adds in (TRUSTED, NOBODY, STAY, VANISH):
            start = time.process_time()
            row = Row(
                folder=arguments.folder,
                clients_per_round=clients_per_round,
                adds=adds,
                sampling=sampling,
            )
            multiplier = row.multiplier(size)
            if adds == TRUSTED or (adds == VANISH and not arguments.once):
                setting = row.tuned(multiplier, tuning)
            score = row.simulated if adds == TRUSTED else row.protocol
            scores = [score(setting, multiplier, seed) for seed in seeds]
            epsilons = ("-", "-") if adds == NOBODY else (f"{EPSILON:g}",) * 2
            paired = ""
            if adds == TRUSTED:
                reference = scores
            elif adds != NOBODY:
                paired = shown([one - other for one, other in zip(reference, scores, strict=True)])
                encoding = row.encoding(multiplier, setting.clip, size)
                told = {"rounds": row.sums, "size": size, "delta": DELTA}
                claims = [
                    encoding.claims(Sums(clients=count, **told))["central"]
                    for count in (row.least, clients_per_round)
                ]
                epsilons = tuple(f"{claim.epsilon:.3f}" for claim in claims)
            each = f"{shown(scores)} ({', '.join(f'{score:.1f}' for score in scores)})"
            seconds = round(time.process_time() - start)
            cells = (
                clients_per_round,
                row.sums,
                adds,
                f"{multiplier:.3f}",
                *epsilons,
                setting,
                each,
                paired,
                seconds,
            )
            table.add_row(*map(str, cells))
            console.print(" | ".join(map(str, cells)), highlight=False)
    console.print(table)


if __name__ == "__main__":
    main()
