"""Exported models beside float32, and time per step beside Opacus's own DP-SGD on the same model and batches.

Run: python benchmarks/training.py [--steps 10] [--batch 64] [--only runs --mnist folder | --only large]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import opacus
import torch
from opacus.optimizers import DPOptimizer
from rich.console import Console
from rich.table import Table

from mezzotint.datasets import Dataset, idx_folder
from mezzotint.training import make_private, models
from mezzotint.training.export import export_model
from mezzotint.training.onnx_trace import float_graph
from mezzotint.training.optimizers import ProjectedOptimizer
from mezzotint.training.packed import PackedModel, pack_weights
from mezzotint.training.private import Settings
from mezzotint.training.projection import TrainingWarning, projection
from mezzotint.training.trainer import Levels, Trainer, TrainingSettings

TARGET = 1.0
ROUNDS = 60
LATENCY_ROUNDS = 200
SLOW_ROUNDS = 9
"""In which a step of Opacus takes a second."""


def images(records: int = 4000) -> Dataset:
    """Random images: the time of a step does not depend on what they show."""
    rng = np.random.default_rng(0)
    x, y = rng.random((records, 28, 28), dtype=np.float32), rng.integers(0, 10, records)
    return Dataset(name="random", train_x=x, train_y=y, test_x=x[:100], test_y=y[:100], classes=10)


def opacus_steps(data: Dataset, model: str, batch: int, steps: int) -> Callable[[], None]:
    """Opacus alone: GradSampleModule and DPOptimizer around SGD, on Poisson batches drawn by Opacus's sampler."""
    task = models.task(model, shape=(28, 28), classes=10)
    module = opacus.GradSampleModule(task.module)
    optimizer = DPOptimizer(
        torch.optim.SGD(module.parameters(), lr=0.1),
        noise_multiplier=1.0,
        max_grad_norm=0.5,
        expected_batch_size=batch,
    )
    accountant = opacus.accountants.create_accountant(
        "prv"
    )  # counts steps, as Opacus's engine does
    optimizer.attach_step_hook(
        accountant.get_optimizer_hook_fn(sample_rate=batch / len(data.train_x))
    )
    x, y = torch.from_numpy(data.train_x), torch.from_numpy(data.train_y)
    sampler = opacus.utils.uniform_sampler.UniformWithReplacementSampler(
        num_samples=len(x), sample_rate=batch / len(x), steps=(ROUNDS + 1) * steps
    )
    batches = iter(sampler)
    criterion = torch.nn.CrossEntropyLoss()

    def run() -> None:
        for _ in range(steps):
            chosen = next(batches)
            optimizer.zero_grad()
            criterion(module(x[chosen]), y[chosen]).backward()
            optimizer.step()

    return run


def our_steps(
    data: Dataset, model: str, levels: Levels | None, batch: int, steps: int
) -> Callable[[], None]:
    """The same through our trainer, private draws included."""
    trainer = Trainer(
        data=data,
        task=models.task(model, shape=(28, 28), classes=10),
        settings=TrainingSettings(steps=(ROUNDS + 1) * steps, batch_size=batch, step_size=0.1),
        private=Settings(delta=1e-5, noise_multiplier=1.0, max_grad_norm=0.5),
        levels=levels,
    )

    def run() -> None:
        for _ in range(steps):
            trainer.step()

    return run


@dataclass(frozen=True, kw_only=True)
class Timing:
    """Times of a step in several rounds, ms, and their ratios to those of another in the same round.

    Arguments:
        times: (rounds, 2) processor time and elapsed time.
        ratios: (rounds, 2).
    """

    times: Any
    ratios: Any

    @property
    def milliseconds(self) -> Any:
        """(2,) medians."""
        return np.median(self.times, axis=0)

    @property
    def ratio(self) -> Any:
        """(2,) medians of the ratios."""
        return np.median(self.ratios, axis=0)

    @property
    def quartiles(self) -> Any:
        """(2,) the first and the third quartile of the ratios of processor times."""
        return np.quantile(self.ratios[:, 0], [0.25, 0.75])


def paired(
    contenders: dict[str, Callable[[], None]], steps: int, *, rounds: int = ROUNDS
) -> dict[str, Timing]:
    """Times of contenders that take turns, after one round to warm up; ratios are to the first.

    Whatever else the machine does meets all contenders of a round alike, so that ratios within a
    round vary less than times do. Who begins changes from round to round.
    """
    names = list(contenders)
    taken = {name: np.empty((rounds, 2)) for name in names}
    for round_ in range(-1, rounds):
        begins = round_ % len(names)
        for name in names[begins:] + names[:begins]:
            begin = time.process_time(), time.perf_counter()
            contenders[name]()
            end = time.process_time(), time.perf_counter()
            if round_ >= 0:
                taken[name][round_] = np.subtract(end, begin) / steps * 1e3
    first = taken[names[0]]
    return {name: Timing(times=values, ratios=values / first) for name, values in taken.items()}


def packed_of(module: torch.nn.Module, bits: int) -> tuple[PackedModel, dict[str, Any]]:
    """A module in `bits` to a weight, and its weights."""
    weights = {name: parameter.detach().numpy() for name, parameter in module.named_parameters()}
    return pack_weights(weights, bits=bits), weights


def exported(module: torch.nn.Module, shape: tuple[int, ...], bits: int | None, path: Path) -> int:
    """Writes a module in ONNX, with `bits` to a weight or, for None, in float32; bytes of the file."""
    if bits is None:
        model = float_graph(module.eval(), shape, "float32")
        return path.write_bytes(model.SerializeToString())
    packed, _ = packed_of(module, bits)
    return export_model(packed, path, module=module, shape=shape, overwrite=True)


def session_of(place: Path) -> Any:
    """A runtime on one thread; unless told otherwise, it rounds the inputs of layers of integers to 8 bits."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(place, options, providers=["CPUExecutionProvider"])


CALLS = 20
"""Of a session in a turn."""


def latencies(sessions: dict[Any, Any], shape: tuple[int, ...]) -> dict[Any, Timing]:
    """Times of one record by sessions that take turns; ratios are to the first."""
    record = {"features": np.random.default_rng(0).random((1, *shape), dtype=np.float32)}

    def calls_of(session: Any) -> Callable[[], None]:
        def calls() -> None:
            for _ in range(CALLS):
                session.run(None, record)

        return calls

    contenders = {key: calls_of(session) for key, session in sessions.items()}
    return paired(contenders, CALLS, rounds=LATENCY_ROUNDS)


def right(outputs: Callable[[Any], Any], data: Dataset) -> float:
    """Share of the test records that are told rightly."""
    found = [outputs(part).argmax(axis=1) for part in np.array_split(data.test_x, 20)]
    return float((np.concatenate(found) == data.test_y).mean())


def right_in_torch(module: torch.nn.Module, data: Dataset) -> float:
    """The same of a module."""
    with torch.no_grad():
        return right(lambda part: module.eval()(torch.from_numpy(part)).numpy(), data)


SIDE = 2000


def updates() -> dict[str, Callable[[], None]]:
    """What moves a weight of SIDE x SIDE once its gradient is there."""

    def weight() -> torch.nn.Parameter:
        made = torch.nn.Parameter(torch.randn(SIDE, SIDE) * 0.01)
        made.grad = torch.randn(SIDE, SIDE) * 0.001
        return made

    def projected(**settings: Any) -> Callable[[], None]:
        moved = weight()
        inner = torch.optim.SGD([moved], lr=0.1)
        made, gradient = (
            ProjectedOptimizer(inner, projection=projection(bits=4, **settings), bounds=0.1),
            moved.grad,
        )

        def step() -> None:
            moved.grad = gradient.view_as(moved)  # a new one, as after every noise
            made.step()

        return step

    read = torch.randn(SIDE, SIDE)
    return {
        "SGD": torch.optim.SGD([weight()], lr=0.1).step,
        "multiply in place": lambda: read.mul_(1.0),
        "SGD, rounded to the nearest level": projected(rounding="nearest"),
        "SGD, rounded without bias": projected(),
        "SGD, nearest level, replaced at random": projected(rounding="nearest", q=0.9),
    }


def whole_steps(batch: int) -> dict[str, Callable[[], None]]:
    """Forward pass, backward pass and step of a dense layer of SIDE x SIDE."""
    x, y = torch.randn(10 * batch, SIDE), torch.randint(0, SIDE, (10 * batch,))

    def steps_of(private: Callable[..., tuple[Any, ...]]) -> Callable[[], None]:
        layer = torch.nn.Linear(SIDE, SIDE, bias=False)
        module, optimizer, *loader = private(layer, torch.optim.SGD(layer.parameters(), lr=0.1))

        def step() -> None:
            for one in loader:  # a step without a batch of its own is refused
                next(iter(one.batch_sampler))
                one.batch_sampler.drawn.add(batch)  # all take batches of the same size
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(module(x[:batch]), y[:batch]).backward()
            optimizer.step()

        return step

    def of_opacus(module: Any, inner: Any) -> tuple[Any, Any]:
        settings = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": batch}
        return opacus.GradSampleModule(module), DPOptimizer(inner, **settings)

    def ours(**settings: Any) -> Callable[..., tuple[Any, ...]]:
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=batch)
        return lambda module, inner: make_private(
            module, inner, loader, noise_multiplier=1.0, delta=1e-5, **settings
        )[:3]  # fmt: skip

    return {
        "SGD, not private": steps_of(lambda module, inner: (module, inner)),
        "Opacus DP-SGD": steps_of(of_opacus),
        "DP-SGD": steps_of(ours()),
        "projected, 4 bits": steps_of(ours(bits=4)),
        "RQP, q=.9, 4 bits": steps_of(ours(method="rqp", q=0.9, bound=0.1)),
    }


def large(batch: int) -> Table:
    """Steps of four million weights with one thread (processor time) and with two (time on the clock)."""
    table = Table(
        title=f"{SIDE**2:,} weights, batch {batch}; ratios to SGD without privacy in the same run"
    )
    for name in ("part", "what", "1 thread, ms", "ratio", "2 threads, ms", "ratio"):
        table.add_column(name, justify="left" if name in ("part", "what") else "right")
    cores = sorted(os.sched_getaffinity(0))
    for part, contenders, rounds in (
        ("the update alone", updates(), ROUNDS),
        ("a whole step", whole_steps(batch), SLOW_ROUNDS),
    ):
        timings = []
        for threads in (1, 2):
            torch.set_num_threads(threads)
            os.sched_setaffinity(0, cores[:threads])  # what our own threads go by
            timings.append(paired(contenders, 1, rounds=rounds))
        os.sched_setaffinity(0, cores)
        for name in contenders:
            cells = []
            for clock, timing in enumerate(timings):
                cells.append(f"{timing[name].milliseconds[clock]:.2f}")
                cells.append(f"{timing[name].ratio[clock]:.1f}")
            table.add_row(part, name, *cells)
    torch.set_num_threads(1)
    return table


BITS = (None, 8, 4, 2)
"""Bits to a weight of exported models; None for float32."""


STEPS: dict[str, dict[str, Any]] = {
    "softmax": {"step_size": 3.0},
    "cnn": {"step_size": 2.0},
    "transformer": {"step_size": 0.005, "optimizer": "adam"},
}
SIDES = (256, 512, 768, 1024)


def trained(data: Dataset, model: str, steps: int) -> torch.nn.Module:
    """A private model with float weights (DP-SGD, batches of 256, noise multiplier 0.8)."""
    task = models.task(model, shape=data.train_x.shape[1:], classes=data.classes)
    settings = TrainingSettings(steps=steps, batch_size=256, **STEPS[model])
    clip_norm = 0.5 if model == "cnn" else 1.0
    private = Settings(delta=1e-5, noise_multiplier=0.8, max_grad_norm=clip_norm, seed=1)
    Trainer(data=data, task=task, settings=settings, private=private).run()
    return task.module


def runs(data: Dataset | None, steps: int) -> Table:
    """What exported models take, and what they get right where there is data."""
    title = "run by onnxruntime, one record, one thread; ratios to float32 in the same run"
    table = Table(title=title)
    names = ("bytes", "ratio", "us", "ratio", "test accuracy", "packed model's")
    for name in ("model", "weights", *names):
        table.add_column(name, justify="right" if name in names else "left")
    cases: dict[str, tuple[torch.nn.Module, tuple[int, ...]]] = {}
    for side in SIDES:
        layers = torch.nn.Sequential(*(torch.nn.Linear(side, side) for _ in range(4)))
        cases[f"4 dense layers of {side} x {side}"] = (layers, (side,))
    for model in STEPS:
        if data is None:
            module = models.task(model, shape=IMAGE, classes=10).module
        else:
            module = trained(data, model, steps)
        cases[model] = (module, IMAGE)
    with tempfile.TemporaryDirectory() as folder:
        for label, (module, shape) in cases.items():
            add_rows(table, label, module, shape, Path(folder), data if shape == IMAGE else None)
    return table


IMAGE = (28, 28)


def add_rows(
    table: Table,
    label: str,
    module: torch.nn.Module,
    shape: tuple[int, ...],
    folder: Path,
    data: Dataset | None,
) -> None:
    """Rows of one module, one for each number of bits."""
    sizes: dict[Any, int] = {}
    sessions: dict[Any, Any] = {}
    for bits in BITS:
        path = folder / f"{bits}.onnx"
        sizes[bits] = exported(module, shape, bits, path)
        sessions[bits] = session_of(path)
    times = latencies(sessions, shape)
    for bits in BITS:
        accuracies = ["", ""]
        if data is not None:
            session, plain = sessions[bits], module
            if bits is not None:
                plain = packed_of(module, bits)[0].to_module(module)
            share = right(
                lambda part, session=session: session.run(None, {"features": part})[0], data
            )
            accuracies = [f"{share:.2%}", f"{right_in_torch(plain, data):.2%}"]
        table.add_row(
            label,
            "float32" if bits is None else f"{bits} bits",
            f"{sizes[bits]:,}",
            f"{sizes[bits] / sizes[None]:.3f}",
            f"{times[bits].milliseconds[0] * 1e3:.1f}",
            f"{times[bits].ratio[0]:.2f}",
            *accuracies,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=10, help="steps of a turn")
    parser.add_argument("--batch", type=int, default=64, help="expected records per batch")
    parser.add_argument("--only", choices=["steps", "runs", "large"], help="one of the parts")
    parser.add_argument(
        "--mnist",
        type=Path,
        help="folder with MNIST's idx files, for the accuracy of exported models",
    )
    parser.add_argument(
        "--train-steps", type=int, default=300, help="steps that those are trained for"
    )
    options = parser.parse_args()
    warnings.filterwarnings("ignore", category=TrainingWarning)
    torch.set_num_threads(1)
    torch.set_flush_denormal(
        True
    )  # saturated random models would otherwise time the processor, not the method
    # Opacus listens with full backward hooks on modules whose inputs need no gradient; torch remarks on that.
    warnings.filterwarnings("ignore", message="Full backward hook is firing")
    screen = Console(width=130)
    if options.only in (None, "large"):
        screen.print(large(options.batch))
    if options.only in (None, "runs"):
        screen.print(
            runs(idx_folder(options.mnist) if options.mnist else None, options.train_steps)
        )
    if options.only in (None, "steps"):
        steps(options, screen)


def steps(options: Any, screen: Console) -> None:
    """Times of steps and bytes of packed codes."""
    data = images()
    replaced = projection(bits=4, rounding="nearest", q=0.9)
    ours = {
        "DP-SGD": None,
        "projected, stochastic, 4 bits": Levels(projection=projection(bits=4), bounds=0.1),
        "RQP, q=.9, 4 bits": Levels(projection=replaced, bounds=0.1),
    }
    times = Table(
        title=f"one thread, batch {options.batch}; ratio to Opacus, target at most {TARGET}"
    )
    numbers = ("weights", "CPU ms per step", "ratio", "quartiles", "elapsed, ratio")
    for name in ("model", "weights", "method", *numbers[1:]):
        times.add_column(name, justify="right" if name in numbers else "left")
    sizes = Table(title="bytes of a model")
    for name in ("model", "float32", "8 bits", "4 bits", "2 bits", "4 bits, ratio"):
        sizes.add_column(name, justify="left" if name == "model" else "right")
    for model in ("softmax", "cnn"):
        contenders = {"Opacus DP-SGD": opacus_steps(data, model, options.batch, options.steps)}
        contenders |= {
            name: our_steps(data, model, levels, options.batch, options.steps)
            for name, levels in ours.items()
        }
        module = models.task(model, shape=(28, 28), classes=10).module
        weights = {
            name: parameter.detach().numpy() for name, parameter in module.named_parameters()
        }
        count = sum(value.size for value in weights.values())
        for name, timing in paired(contenders, options.steps).items():
            first, third = timing.quartiles
            times.add_row(
                model,
                f"{count:,}",
                name,
                f"{timing.milliseconds[0]:.3f}",
                f"{timing.ratio[0]:.2f}",
                f"{first:.2f} to {third:.2f}",
                f"{timing.ratio[1]:.2f}",
            )
        packed = {bits: pack_weights(weights, bits=bits).packed_bytes for bits in (8, 4, 2)}
        sizes.add_row(
            model,
            f"{4 * count:,}",
            *(f"{packed[bits]:,}" for bits in (8, 4, 2)),
            f"{packed[4] / (4 * count):.4f}",
        )
    screen.print(times)
    screen.print(sizes)


if __name__ == "__main__":
    main()
