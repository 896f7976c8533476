"""Test accuracy on MNIST at one claim: Opacus's DP-SGD in floats beside models of few bits from one call.

Run: python benchmarks/accuracy.py --mnist folder [--model cnn] [--results runs.jsonl] [--show]

Runs are appended to a file, and those that it holds are not run again. Every contender starts from the same weights
under the same seed, with batches of one expected size and as many steps. All runs are seeded: simulations.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import opacus
import torch
from opacus.optimizers import DPOptimizer
from rich.console import Console
from rich.table import Table

from mezzotint.datasets import Dataset, idx_folder
from mezzotint.training import Banded, Fresh, make_private, models
from mezzotint.training.noise import Noise
from mezzotint.training.packed import pack_weights
from mezzotint.training.rqp import noise_multiplier

DELTA = 1e-5
SHARE = 0.1
"""Of the steps, at the end, whose iterates are averaged. Chosen, as the step sizes, on a seed that is not reported."""

CLIP = {"softmax": 1.0, "cnn": 0.5}
BITS = (4, 2)

Weights = dict[str, np.ndarray[Any, Any]]
Steps = Iterator[None]


def opacus_run(module: Any, data: Dataset, options: Any, epsilon: float, seed: int) -> Steps:
    """Opacus alone, with the least noise that our accountant finds for the same Poisson batches."""
    torch.manual_seed(seed)
    size, count = len(data.train_x), total_steps(data, options)
    noise = noise_multiplier(epsilon, sampling_rate=options.batch / size, steps=count, delta=DELTA)
    private = opacus.GradSampleModule(module)
    optimizer = DPOptimizer(
        optimizer_of(options, private), noise_multiplier=noise, max_grad_norm=CLIP[options.model],
        expected_batch_size=options.batch,
    )  # fmt: skip
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    sampler = opacus.utils.uniform_sampler.UniformWithReplacementSampler(
        num_samples=size, sample_rate=options.batch / size, steps=count
    )
    for chosen in sampler:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(private(x[chosen]), y[chosen]).backward()
        optimizer.step()
        yield


def our_run(
    module: Any, data: Dataset, options: Any, epsilon: float, seed: int, *, noise: Noise
) -> Steps:
    """The same by `make_private`."""
    records = torch.utils.data.TensorDataset(
        torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    )
    loader = torch.utils.data.DataLoader(records, batch_size=options.batch, shuffle=True)
    private, optimizer, batches, accountant = make_private(
        module, optimizer_of(options, module), loader, target_epsilon=epsilon, delta=DELTA, epochs=options.epochs,
        max_grad_norm=CLIP[options.model], noise=noise, seed=seed,
    )  # fmt: skip
    for _ in range(options.epochs):
        for x, y in batches:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(private(x), y).backward()
            optimizer.step()
            yield
    assert accountant.claim().epsilon <= epsilon


def optimizer_of(options: Any, module: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=options.step_size, momentum=options.momentum)


def total_steps(data: Dataset, options: Any) -> int:
    return options.epochs * -(-len(data.train_x) // options.batch)


CONTENDERS: dict[str, Callable[..., Steps]] = {
    "Opacus": opacus_run,
    "one band": lambda *given: our_run(*given, noise=Fresh()),
    "bands by formula": lambda *given: our_run(*given, noise=Banded()),
}


@torch.no_grad()
def right(module: Any, weights: Weights, data: Dataset) -> float:
    """Percentage of the test records that a module with these weights tells rightly."""
    for name, parameter in module.named_parameters():
        parameter.copy_(torch.from_numpy(np.asarray(weights[name], dtype=np.float32)))
    found = np.concatenate(
        [
            module(torch.from_numpy(part)).argmax(1).numpy()
            for part in np.array_split(data.test_x, 20)
        ]
    )
    return 100 * float((found == data.test_y).mean())


def trained(module: Any, steps: Steps, count: int) -> dict[str, Weights]:
    """Takes the steps; the last iterate, and the mean of the last ones."""
    first, taken, sums = count - round(count * SHARE), 0, defaultdict[str, Any](float)
    for taken, _ in enumerate(steps, start=1):
        if taken > first:
            for name, parameter in module.named_parameters():
                sums[name] += parameter.detach().numpy().astype(np.float64)
    assert taken == count
    last = {
        name: parameter.detach().numpy().copy() for name, parameter in module.named_parameters()
    }
    return {
        "last": last,
        f"last {SHARE:.0%} averaged": {
            name: total / (count - first) for name, total in sums.items()
        },
    }


def run(data: Dataset, options: Any, contender: str, epsilon: float, seed: int) -> dict[str, float]:
    """One run of a contender: what its weights get right, in floats and packed. Weights that were kept are taken."""
    module = models.task(options.model, shape=(28, 28), classes=10, seed=seed).module
    file = f"{options.model}-{contender}-{epsilon}-{seed}-{options.step_size}-{options.batch}.npz"
    place = None if options.keep is None else options.keep / file
    if place is not None and place.exists():
        weights: dict[str, Weights] = defaultdict(dict)
        for name, value in np.load(place).items():
            weights[name.split("/")[0]][name.split("/")[1]] = value
    else:
        steps = CONTENDERS[contender](module, data, options, epsilon, seed)
        weights = trained(module, steps, total_steps(data, options))
        if place is not None:
            np.savez(
                place,
                **{
                    f"{which}/{name}": value
                    for which, part in weights.items()
                    for name, value in part.items()
                },
            )
    told: dict[str, float] = {}
    for label in ("last", f"last {SHARE:.0%} averaged"):
        told[f"{label}, float"] = right(module, weights[label], data)
        for bits in BITS:
            told[f"{label}, {bits} bits"] = right(
                module, pack_weights(weights[label], bits=bits).values(), data
            )
    return told


def setting(options: Any) -> dict[str, Any]:
    return {
        name: getattr(options, name)
        for name in ("model", "batch", "epochs", "step_size", "momentum")
    }


def show(results: Path, screen: Console) -> None:
    """Means and standard errors over seeds, and the paired gain over Opacus's last iterate in floats."""
    runs: dict[Any, dict[int, dict[str, float]]] = defaultdict(dict)
    for line in results.read_text().splitlines():
        entry = json.loads(line)
        what = tuple(
            entry[name] for name in ("model", "batch", "epochs", "step_size", "momentum", "epsilon")
        )
        runs[what, entry["contender"]][entry["seed"]] = entry["accuracy"]
    table = Table(
        title=f"test accuracy in %, mean and standard error; gain: paired, over Opacus's last floats; delta {DELTA}"
    )
    for name in (
        "model, batch, epochs, step, momentum, epsilon",
        "contender",
        "weights",
        "accuracy",
        "gain",
        "seeds",
    ):
        table.add_column(name)
    for (what, contender), seeds in sorted(runs.items()):
        base = runs.get((what, "Opacus"), {})
        for label in next(iter(seeds.values())):
            values = [accuracy[label] for accuracy in seeds.values()]
            gains = [
                accuracy[label] - base[seed]["last, float"]
                for seed, accuracy in seeds.items()
                if seed in base
            ]
            table.add_row(
                ", ".join(map(str, what)),
                contender,
                label,
                stated(values),
                stated(gains),
                str(len(values)),
            )
    screen.print(table)


def stated(values: list[float]) -> str:
    if len(values) < 2:
        return "".join(f"{value:.2f}" for value in values)
    return f"{np.mean(values):.2f} +- {np.std(values, ddof=1) / len(values) ** 0.5:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mnist", type=Path, help="folder with MNIST's idx files")
    parser.add_argument("--model", choices=sorted(CLIP), default="softmax")
    parser.add_argument("--contenders", nargs="+", choices=CONTENDERS, default=[*CONTENDERS])
    parser.add_argument("--epsilons", nargs="+", type=float, default=[1.0, 2.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3, 4, 5])
    parser.add_argument("--batch", type=int, default=300, help="expected records per batch")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--step-size", type=float, default=4.0)
    parser.add_argument("--momentum", type=float, default=0.0)
    parser.add_argument(
        "--results", type=Path, default=Path("accuracy.jsonl"), help="one line a run"
    )
    parser.add_argument(
        "--keep",
        type=Path,
        help="folder for the weights of every run, which are then taken from there",
    )
    parser.add_argument("--show", action="store_true", help="only the table of the runs so far")
    options = parser.parse_args()
    screen = Console(width=150)
    if options.mnist is None and not options.show:
        screen.print("give --mnist, the folder with MNIST's idx files")
        return
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    if not options.show:
        data = idx_folder(options.mnist)
        for seed in options.seeds:
            for epsilon in options.epsilons:
                for contender in options.contenders:
                    key = {
                        **setting(options),
                        "contender": contender,
                        "epsilon": epsilon,
                        "seed": seed,
                    }
                    lines = (
                        options.results.read_text().splitlines() if options.results.exists() else []
                    )
                    if any(key.items() <= json.loads(line).items() for line in lines):
                        continue
                    accuracy = run(data, options, contender, epsilon, seed)
                    with options.results.open("a") as file:
                        file.write(json.dumps({**key, "accuracy": accuracy}) + "\n")
    show(options.results, screen)


if __name__ == "__main__":
    main()
